//! The lines of a Pi-hole, sorted by host and type into ours and foreign ones.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use signpost_dns::Fqdn;
use signpost_provider_pihole::{Line, Listing};

use super::change::{Change, Slot, Value, is_unusable, wanted};
use super::{Ownership, PlanInput};
use crate::index::{Claimant, Wanted};

/// One line and its content for a host.
#[derive(Clone, Debug)]
pub(super) struct Sighting<'a> {
    pub(super) line: &'a Line,
    pub(super) value: Option<Value>,
    /// Whether the line holds this host alone.
    pub(super) alone: bool,
}

/// The lines of a listing by host and type: ours, and foreign ones for the hosts that matter.
pub(super) struct Sorted<'a> {
    pub(super) own: BTreeMap<(Fqdn, Slot), Vec<Sighting<'a>>>,
    pub(super) foreign: BTreeMap<(Fqdn, Slot), Vec<Sighting<'a>>>,
    pub(super) lines: usize,
}

impl Sorted<'_> {
    /// Whether a change takes lines out of a host that has foreign lines of any type beside them.
    pub(super) fn shares_its_name(&self, change: &Change) -> bool {
        let foreign = |slot: Slot| self.foreign.get(&(change.host.clone(), slot)).into_iter().flatten();
        let stays = |seen: &Sighting<'_>| !change.remove.contains(seen.line);
        !change.remove.is_empty() && Slot::ALL.into_iter().any(|slot| foreign(slot).any(stays))
    }

    /// The owner of a host: its oldest claim. A claim with an unusable target only keeps existing records: a host without a record of ours, or
    /// with the record that the next claim asks for, belongs to the next claim.
    pub(super) fn holder_of<'c>(&self, host: &Fqdn, oldest: &'c Claimant, waiting: &[&'c Claimant]) -> &'c Claimant {
        let next = waiting.iter().find(|claimant| !is_unusable(&claimant.target));
        let Some(next) = next.filter(|_| is_unusable(&oldest.target)) else { return oldest };
        let agrees = |slot: Slot| {
            let own = self.own.get(&(host.clone(), slot)).map(Vec::as_slice).unwrap_or_default();
            let asked = wanted(&next.target, slot);
            own.iter().all(|seen| matches!((&asked, &seen.value), (Wanted::Value(asked), Some(seen)) if asked == seen))
        };
        if Slot::ALL.into_iter().all(agrees) { next } else { oldest }
    }
}

pub(super) fn sort<'a>(input: &PlanInput<'a>, claimed: impl Fn(&Fqdn) -> bool) -> Sorted<'a> {
    let mut sorted = Sorted { own: BTreeMap::new(), foreign: BTreeMap::new(), lines: 0 };
    let mut own_hosts = BTreeSet::new();
    let mut others: Vec<(Fqdn, Slot, Sighting<'a>)> = Vec::new();
    let mut file = |line: &'a Line, own: Option<(Fqdn, Slot, Value)>, names: Vec<(&str, Slot, Option<Value>)>| {
        if let Some((host, slot, value)) = own {
            sorted.lines += 1;
            own_hosts.insert(host.clone());
            let sighting = Sighting { line, value: Some(value), alone: true };
            sorted.own.entry((host, slot)).or_default().push(sighting);
            return;
        }
        let alone = names.len() == 1;
        for (name, slot, value) in names {
            if let Ok(host) = Fqdn::parse(name) {
                others.push((host, slot, Sighting { line, value, alone }));
            }
        }
    };
    for line in &input.listing.hosts {
        let parts = line.address_parts();
        let own = input.ownership.own_address(line).map(|(ip, host)| (host, Slot::of(ip), Value::Address(ip)));
        let slot = parts.ip.map_or(Slot::A, Slot::of);
        let value = parts.ip.map(Value::Address);
        file(line, own, parts.names.iter().map(|name| (*name, slot, value.clone())).collect());
    }
    for line in &input.listing.cnames {
        let own = input.ownership.own_alias(line).map(|(alias, target)| (alias, Slot::Cname, Value::Name(target)));
        let parts = line.alias_parts();
        let target = parts.target.and_then(|target| Fqdn::parse(target).ok()).map(Value::Name);
        file(line, own, parts.aliases.iter().map(|name| (*name, Slot::Cname, target.clone())).collect());
    }
    for (host, slot, seen) in others {
        if claimed(&host) || own_hosts.contains(&host) {
            sorted.foreign.entry((host, slot)).or_default().push(seen);
        }
    }
    sorted
}

/// Identifies the lines that are not ours without keeping them. Their blanks do not count: a write of ours tidies them.
pub(crate) fn other_lines(listing: &Listing, ownership: &Ownership) -> u64 {
    let mut hasher = DefaultHasher::new();
    for line in listing.hosts.iter().filter(|line| ownership.own_address(line).is_none()) {
        line.tidy().hash(&mut hasher);
    }
    for line in listing.cnames.iter().filter(|line| ownership.own_alias(line).is_none()) {
        line.tidy().hash(&mut hasher);
    }
    hasher.finish()
}

/// The hosts that have a record of ours.
pub(crate) fn own_hosts(listing: &Listing, ownership: &Ownership) -> BTreeSet<Fqdn> {
    let hosts = listing.hosts.iter().filter_map(|line| ownership.own_address(line).map(|(_, host)| host));
    let aliases = listing.cnames.iter().filter_map(|line| ownership.own_alias(line).map(|(alias, _)| alias));
    hosts.chain(aliases).collect()
}
