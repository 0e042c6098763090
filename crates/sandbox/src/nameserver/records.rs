//! The content of the name server: record sets by name and type, and zones.
//!
//! A name in no zone is a tiny zone of its own, so that single names can be served without their neighbours.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use signpost_dns::{Fqdn, Rdata, RecordSet, RecordType, Soa, Ttl, ZoneName};

/// Seconds a negative answer may be kept, and the TTL of a made-up SOA.
const NEGATIVE_TTL: u32 = 60;

/// A handle on the records; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Records(Arc<RwLock<RecordMap>>);

/// The records themselves.
#[derive(Debug, Default)]
pub(super) struct RecordMap {
    zones: BTreeSet<Fqdn>,
    /// Kept when a zone is removed, so that its serial never decreases when it is added again.
    serials: BTreeMap<Fqdn, u32>,
    /// Keyed with the labels reversed, so that a tree is one range.
    names: BTreeMap<Reversed, (Fqdn, BTreeMap<RecordType, RecordSet>)>,
}

/// A name's labels from the root down.
type Reversed = Vec<String>;

fn reversed(name: &Fqdn) -> Reversed {
    name.labels().rev().map(str::to_owned).collect()
}

impl Records {
    /// Adds a zone; names in it are answered from now on.
    pub fn add_zone(&self, zone: &ZoneName) {
        let mut records = self.write();
        if records.zones.insert(zone.name().clone()) {
            records.touch(zone.name());
        }
    }

    /// Drops a zone with all its records, except those of zones below it.
    pub fn remove_zone(&self, zone: &ZoneName) {
        let mut records = self.write();
        let removed: Vec<Reversed> = records
            .below(zone.name())
            .filter(|(_, (name, _))| records.zone_of(name) == Some(zone.name()))
            .map(|(key, _)| key.clone())
            .collect();
        for key in removed {
            records.names.remove(&key);
        }
        records.zones.remove(zone.name());
        records.touch(zone.name());
    }

    /// Puts a record set in place of the one with its name and type; without records, removes it.
    pub fn set(&self, set: &RecordSet) {
        if set.records.is_empty() {
            return self.remove(&set.name, &set.rtype);
        }
        let mut records = self.write();
        let (_, sets) = records.names.entry(reversed(&set.name)).or_insert_with(|| (set.name.clone(), BTreeMap::new()));
        if sets.insert(set.rtype, set.clone()).as_ref() != Some(set) {
            records.touch(&set.name);
        }
    }

    /// Removes a record set.
    pub fn remove(&self, name: &Fqdn, rtype: &RecordType) {
        let mut records = self.write();
        let key = reversed(name);
        let Some((_, sets)) = records.names.get_mut(&key) else { return };
        let removed = sets.remove(rtype).is_some();
        if sets.is_empty() {
            records.names.remove(&key);
        }
        if removed {
            records.touch(name);
        }
    }

    /// The record set with that name and type.
    pub fn get(&self, name: &Fqdn, rtype: &RecordType) -> Option<RecordSet> {
        self.read().set(name, *rtype).cloned()
    }

    /// Every name that has records, sorted.
    pub fn names(&self) -> Vec<Fqdn> {
        let mut names: Vec<Fqdn> = self.read().names.values().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// The zones, sorted; names outside of them are not listed.
    pub fn zones(&self) -> Vec<Fqdn> {
        self.read().zones.iter().cloned().collect()
    }

    /// Every record set, sorted.
    pub fn all(&self) -> Vec<RecordSet> {
        let mut sets: Vec<RecordSet> =
            self.read().names.values().flat_map(|(_, sets)| sets.values().cloned()).collect();
        sets.sort();
        sets
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, RecordMap> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, RecordMap> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordMap {
    fn touch(&mut self, name: &Fqdn) {
        let zone = self.zone_of(name).unwrap_or(name).clone();
        let serial = self.serials.entry(zone).or_default();
        *serial = serial.wrapping_add(1);
    }

    /// The deepest zone that the name is in.
    fn zone_of(&self, name: &Fqdn) -> Option<&Fqdn> {
        name.ancestors().find_map(|ancestor| self.zones.get(ancestor))
    }

    /// The apex of the zone that answers for the name: a zone that was added, else the nearest name with records.
    pub(super) fn apex_of(&self, name: &Fqdn) -> Option<Fqdn> {
        if let Some(zone) = self.zone_of(name) {
            return Some(zone.clone());
        }
        let mut name = Some(name.clone());
        while let Some(candidate) = name {
            if self.names.contains_key(&reversed(&candidate)) {
                return Some(candidate);
            }
            name = candidate.parent();
        }
        None
    }

    /// The record sets of a name.
    pub(super) fn sets(&self, name: &Fqdn) -> Option<&BTreeMap<RecordType, RecordSet>> {
        self.names.get(&reversed(name)).map(|(_, sets)| sets)
    }

    pub(super) fn set(&self, name: &Fqdn, rtype: RecordType) -> Option<&RecordSet> {
        self.sets(name).and_then(|sets| sets.get(&rtype))
    }

    /// Whether the name or one below it has records.
    pub(super) fn exists(&self, name: &Fqdn) -> bool {
        self.below(name).next().is_some()
    }

    fn below(&self, name: &Fqdn) -> impl Iterator<Item = (&Reversed, &(Fqdn, BTreeMap<RecordType, RecordSet>))> {
        let key = reversed(name);
        let length = key.len();
        let first = key.clone();
        self.names
            .range((Bound::Included(first), Bound::Unbounded))
            .take_while(move |(other, _)| other.get(..length) == Some(&key[..]))
    }

    /// The zone's SOA: the stored one, else a generated one whose serial rises with every change.
    pub(super) fn soa(&self, apex: &Fqdn) -> Option<RecordSet> {
        if let Some(set) = self.set(apex, RecordType::Soa) {
            return Some(set.clone());
        }
        let serial = self.serials.get(apex).copied().unwrap_or(1);
        let zone = if apex.is_root() { String::new() } else { apex.undotted().to_owned() };
        let text = format!("ns.{zone}. hostmaster.{zone}. {serial} 3600 600 604800 {NEGATIVE_TTL}");
        let text = text.replace("..", ".");
        let soa: Rdata = Rdata::parse(&RecordType::Soa, &text).ok()?;
        let ttl = Ttl::new(NEGATIVE_TTL).ok()?;
        Some(RecordSet { name: apex.clone(), rtype: RecordType::Soa, ttl, records: BTreeSet::from([soa]) })
    }
}

/// How long a negative answer may be kept: the lesser of the SOA's TTL and its minimum.
pub(super) fn negative_ttl(soa: &RecordSet) -> u32 {
    let minimum = soa.records.iter().find_map(|rdata| match rdata {
        Rdata::Soa(soa) => {
            let Soa { minimum, .. } = **soa;
            Some(minimum)
        }
        _ => None,
    });
    soa.ttl.seconds().min(minimum.unwrap_or(NEGATIVE_TTL))
}
