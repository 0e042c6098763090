//! The requests of users so far, as they see them: which objects they made, changed and deleted, and when.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    action::{EndpointObject, REFUSED, RecordObject, ZoneObject},
    twin::{Key, Set, compared},
};
use crate::world::World;

/// How long a claim must have stood, without any fault, before nothing may be done against it.
const SETTLED: Duration = Duration::from_mins(1);

/// The kind of an object, whatever its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Zone or ClusterZone.
    Zone,
    /// An RRset or ClusterRRset.
    Record,
    /// A DNSEndpoint.
    Endpoint,
}

/// Which object: its kind, its namespace (empty for a cluster-scoped one) and its name.
pub type Id = (Kind, String, String);

/// An object as its user knows it.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its uid.
    pub uid: String,
    /// Its spec.
    pub spec: Spec,
    /// When it was made.
    pub made: Instant,
    /// When it was last changed.
    pub since: Instant,
    /// When it was deleted.
    pub deleted: Option<Instant>,
    /// Since when it is deleted from the API.
    pub released: Option<Instant>,
    /// Every record set it has claimed.
    pub keys: BTreeSet<Key>,
}

/// The request of an object.
#[derive(Clone, Debug)]
pub enum Spec {
    /// A zone.
    Zone(ZoneObject),
    /// A record set.
    Record(RecordObject),
    /// A DNSEndpoint.
    Endpoint(EndpointObject),
}

impl Spec {
    /// The record sets that it asks for.
    pub fn records(&self) -> Vec<RecordObject> {
        match self {
            Self::Zone(_) => Vec::new(),
            Self::Record(record) => vec![record.clone()],
            Self::Endpoint(object) => object.records(),
        }
    }
}

impl RecordObject {
    /// The record set it claims.
    pub fn key(&self) -> Key {
        let name = match self.name.as_str() {
            "@" => format!("{}.", self.zone),
            name => format!("{name}.{}.", self.zone),
        };
        (format!("{}.", self.zone), name, self.rtype.clone())
    }

    /// Its request.
    pub fn set(&self) -> Set {
        let mut records: Vec<String> = self.records.iter().map(|record| compared(&self.rtype, record)).collect();
        records.sort();
        Set { ttl: self.ttl, records }
    }
}

impl Object {
    fn retains(&self) -> bool {
        match &self.spec {
            Spec::Zone(zone) => zone.retain,
            Spec::Record(record) => record.retain,
            Spec::Endpoint(_) => false,
        }
    }

    fn is_zone_of(&self, zone: &str) -> bool {
        matches!(&self.spec, Spec::Zone(object) if format!("{}.", object.name) == zone)
    }

    fn claims_at(&self, zone: &str, name: &str) -> bool {
        self.keys.iter().any(|key| key.0 == zone && key.1 == name)
    }
}

/// A record set that must be served.
#[derive(Debug)]
pub struct Standing<'a> {
    /// Which object asks for it.
    pub id: &'a Id,
    /// Its request.
    pub record: RecordObject,
    /// The zone it is in.
    pub zone: &'a ZoneObject,
    /// When the zone object was made.
    pub zone_made: Instant,
    /// The record set.
    pub key: Key,
    /// Since when no action of users prevents it.
    pub since: Instant,
}

/// A record set that an object asked for when it was deleted from the API.
struct Released {
    uid: String,
    key: Key,
    set: Set,
    at: Instant,
}

/// The requests of users so far.
pub struct Model {
    world: Arc<World>,
    /// The objects that users know, also those that they deleted, until another one takes their place.
    pub objects: BTreeMap<Id, Object>,
    /// Zones that were created or lost by hand at the server, or whose apex was edited.
    pub zones_by_hand: BTreeSet<String>,
    /// Names that were edited by hand at the server, each with its zone.
    pub names_by_hand: BTreeSet<(String, String)>,
    /// When an object that other objects may have waited for was last deleted, by name and by zone.
    freed: BTreeMap<String, Instant>,
    handed_over: Vec<Released>,
    /// Record sets that stay although their object was deleted.
    pub retained: BTreeSet<Key>,
    /// The UIDs of deleted objects that left a record set behind by their deletion policy.
    left_by: BTreeMap<Key, BTreeSet<String>>,
    /// Zones that stay although their object was deleted.
    pub retained_zones: BTreeSet<String>,
    claimed: BTreeSet<Key>,
    /// Every record set that a DNSEndpoint has ever asked for.
    pub of_endpoints: BTreeSet<Key>,
    adopters: BTreeSet<String>,
    /// The serial that a zone object has reported, by zone: a later one is never below.
    pub floors: BTreeMap<String, (String, u64)>,
}

impl Model {
    /// Nothing yet.
    pub fn new(world: Arc<World>) -> Self {
        Self {
            world,
            objects: BTreeMap::new(),
            zones_by_hand: BTreeSet::new(),
            names_by_hand: BTreeSet::new(),
            freed: BTreeMap::new(),
            handed_over: Vec::new(),
            retained: BTreeSet::new(),
            left_by: BTreeMap::new(),
            retained_zones: BTreeSet::new(),
            claimed: BTreeSet::new(),
            of_endpoints: BTreeSet::new(),
            adopters: BTreeSet::new(),
            floors: BTreeMap::new(),
        }
    }

    /// A user made or changed an object; the API server took it.
    pub fn put(&mut self, id: Id, uid: String, spec: Spec) {
        let now = Instant::now();
        let old = self.objects.get(&id).filter(|old| old.uid == uid);
        let (made, mut keys) = old.map_or((now, BTreeSet::new()), |old| (old.made, old.keys.clone()));
        match &spec {
            Spec::Record(record) => {
                self.claimed.insert(record.key());
                keys.insert(record.key());
                let namespace = if record.cluster_zone { String::new() } else { record.namespace.clone() };
                let zone = self.objects.get(&(Kind::Zone, namespace, record.zone.clone()));
                // A deleted zone leaves the retained records; only while its zone object exists can an object own them again.
                if record.retain {
                    self.retained.insert(record.key());
                } else if zone.is_some_and(|zone| zone.deleted.is_none()) {
                    self.retained.remove(&record.key());
                }
            }
            Spec::Endpoint(object) => {
                let own: Vec<Key> = object.records().iter().map(RecordObject::key).collect();
                self.claimed.extend(own.iter().cloned());
                self.of_endpoints.extend(own.iter().cloned());
                keys.extend(own);
            }
            Spec::Zone(zone) => {
                let name = format!("{}.", zone.name);
                self.claimed.insert((name.clone(), name.clone(), "NS".to_owned()));
                // An object that refuses to adopt does not take over records of another object.
                if !zone.refuse {
                    self.adopters.insert(name);
                }
            }
        }
        self.objects.insert(id, Object { uid, spec, made, since: now, deleted: None, released: None, keys });
    }

    /// A user deletes an object. An object without a finalizer is deleted at once, so the operator has no part in it: a zone that was
    /// retained before stays.
    pub fn delete(&mut self, id: &Id, finalizer: bool) {
        let Some(object) = self.objects.get_mut(id) else { return };
        object.deleted = object.deleted.or(Some(Instant::now()));
        if let Spec::Zone(zone) = &object.spec
            && finalizer
            && !zone.refuse
        {
            self.retained_zones.remove(&format!("{}.", zone.name));
        }
        if object.retains() {
            match &object.spec {
                Spec::Record(_) | Spec::Endpoint(_) => {
                    for key in &object.keys {
                        self.left_by.entry(key.clone()).or_default().insert(object.uid.clone());
                    }
                    self.retained.extend(object.keys.iter().cloned());
                }
                Spec::Zone(zone) => {
                    let zone = format!("{}.", zone.name);
                    // Only the zone object lists what was written for DNSEndpoints.
                    self.retained.extend(self.of_endpoints.iter().filter(|key| key.0 == zone).cloned());
                    self.retained_zones.insert(zone);
                }
            }
        }
    }

    /// An object is deleted from the API.
    pub fn release(&mut self, id: &Id) {
        let now = Instant::now();
        let Some(object) = self.objects.get_mut(id).filter(|object| object.released.is_none()) else { return };
        object.released = Some(now);
        for record in object.spec.records() {
            self.handed_over.push(Released { uid: object.uid.clone(), key: record.key(), set: record.set(), at: now });
        }
        let names: Vec<String> = match &object.spec {
            Spec::Record(_) | Spec::Endpoint(_) => object.keys.iter().map(|key| key.1.clone()).collect(),
            Spec::Zone(zone) => vec![format!("{}.", zone.name)],
        };
        self.freed.extend(names.into_iter().map(|name| (name, now)));
    }

    /// The zone object that a record set of an object of this kind is in. An endpoint is in any zone object that its namespace may use.
    fn zone_of(&self, kind: Kind, record: &RecordObject) -> Option<&Object> {
        let zone = |namespace: &str| self.objects.get(&(Kind::Zone, namespace.to_owned(), record.zone.clone()));
        match kind {
            Kind::Endpoint => {
                [zone(""), zone(&record.namespace)].into_iter().flatten().find(|zone| zone.released.is_none())
            }
            _ if record.cluster_zone => zone(""),
            _ => zone(&record.namespace),
        }
    }

    /// The zone object of a record set, where it is the only one of its zone, and since when both have been as they are.
    fn settled_zone(&self, kind: Kind, record: &RecordObject) -> Option<(&ZoneObject, &Object)> {
        let zone = format!("{}.", record.zone);
        let object = self.zone_of(kind, record)?;
        let Spec::Zone(spec) = &object.spec else { return None };
        let alone =
            self.objects.values().filter(|other| other.is_zone_of(&zone) && other.released.is_none()).count() == 1;
        (object.deleted.is_none() && object.released.is_none() && alone).then_some((spec, object))
    }

    /// Record sets that one object alone has asked for, unchanged and in a zone that has one object; and since when.
    pub fn standing(&self) -> Vec<Standing<'_>> {
        let mut standing = Vec::new();
        for (id, object) in &self.objects {
            for record in object.spec.records() {
                let Some((zone, of_zone)) = self.settled_zone(id.0, &record) else { continue };
                let key = record.key();
                let at = |other: &Object| other.claims_at(&key.0, &key.1) && other.released.is_none();
                let alone = self.objects.values().filter(|other| at(other)).count() == 1;
                let possible = key.0 != key.1 || !["CNAME", "NS"].contains(&key.2.as_str());
                let refused = record.records.iter().any(|content| content == REFUSED);
                let secondary = zone.kind == "Slave";
                let deleted = object.deleted.is_some() || object.released.is_some();
                if deleted || !alone || !possible || refused || secondary {
                    continue;
                }
                let freed = [self.freed.get(&key.0), self.freed.get(&key.1)].into_iter().flatten().copied();
                let since = freed.fold(object.since.max(of_zone.since), Instant::max);
                standing.push(Standing { id, record, zone, zone_made: of_zone.made, key, since });
            }
        }
        standing
    }

    /// A name was edited by hand at the server. At the apex, that may concern the whole zone.
    pub fn edited_by_hand(&mut self, zone: &str, name: &str) {
        if zone == name {
            self.zones_by_hand.insert(zone.to_owned());
        } else {
            self.names_by_hand.insert((zone.to_owned(), name.to_owned()));
        }
    }

    /// Whether a person edited the name or the zone of a record set at the server.
    pub fn is_by_hand(&self, key: &Key) -> bool {
        self.zones_by_hand.contains(&key.0) || self.names_by_hand.contains(&(key.0.clone(), key.1.clone()))
    }

    /// Whether any object has ever claimed the record set.
    pub fn was_claimed(&self, key: &Key) -> bool {
        self.claimed.contains(key)
    }

    /// Whether there are zone objects of that name and each of them has always refused to adopt.
    pub fn refused_from_the_start(&self, zone: &str) -> bool {
        !self.adopters.contains(zone) && self.objects.values().any(|object| object.is_zone_of(zone))
    }

    /// Whether a zone object that adopts was there at that time or later.
    pub fn was_adopted(&self, zone: &str, made: Instant) -> bool {
        let adopts = |object: &Object| matches!(&object.spec, Spec::Zone(zone) if !zone.refuse);
        let later = |object: &Object| object.deleted.is_none_or(|deleted| deleted > made);
        self.objects.values().any(|object| object.is_zone_of(zone) && adopts(object) && later(object))
    }

    fn settled(&self, object: &Object, asked: Instant) -> bool {
        object.deleted.is_none() && object.since.max(self.world.calm_since()) + SETTLED < asked
    }

    /// Whether a zone object has stood for long, alone and unchanged.
    pub fn zone_stands_alone(&self, zone: &str, asked: Instant) -> bool {
        let mut objects = self.objects.values().filter(|object| object.is_zone_of(zone) && object.released.is_none());
        matches!((objects.next(), objects.next()), (Some(object), None) if self.settled(object, asked))
    }

    /// Whether a record set is claimed by an object that has stood for long, alone at its name, in a zone that has too.
    pub fn stands_alone(&self, key: &Key, asked: Instant) -> bool {
        let (zone, name, _) = key;
        let mut at =
            self.objects.iter().filter(|(_, object)| object.claims_at(zone, name) && object.released.is_none());
        let (Some((id, object)), None) = (at.next(), at.next()) else { return false };
        let Some(record) = object.spec.records().into_iter().find(|record| record.key() == *key) else { return false };
        self.settled(object, asked)
            && self.zone_of(id.0, &record).is_some_and(|zone| zone.deleted.is_none())
            && self.zone_stands_alone(zone, asked)
    }

    /// Whether an object that is not deleted yet has claimed the record set, apart from this one.
    pub fn others_claim(&self, but: &Id, key: &Key) -> bool {
        self.objects.iter().any(|(id, object)| id != but && object.released.is_none() && object.keys.contains(key))
    }

    /// Whether another object asked for exactly this after `deleted`, and is deleted since: the record set was handed over to it, and the
    /// operator need not know yet that it is deleted. Where watches have met a fault since the other object was deleted, the operator need
    /// not know so either, even if that was before `deleted`.
    pub fn was_handed_over(&self, from: &Object, key: &Key, set: &Set, deleted: Instant) -> bool {
        let late = self.world.strikes.of(|_| false).any;
        let unknown = |released: Instant| released >= deleted || late.is_some_and(|until| until >= released);
        self.handed_over
            .iter()
            .any(|other| other.uid != from.uid && unknown(other.at) && (&other.key, &other.set) == (key, set))
    }

    /// Whether the record set stays because another object that claimed it was deleted and retains it.
    pub fn was_left_by_another(&self, but: &Object, key: &Key) -> bool {
        let by_another = |uids: &BTreeSet<String>| uids.iter().any(|uid| *uid != but.uid);
        self.retained.contains(key) && self.left_by.get(key).is_some_and(by_another)
    }

    /// Whether another zone object of the zone is not deleted yet.
    pub fn others_hold(&self, but: &Id, zone: &str) -> bool {
        self.objects.iter().any(|(id, object)| id != but && object.released.is_none() && object.is_zone_of(zone))
    }

    /// Whether an object that was not deleted claims the record set.
    pub fn is_claimed(&self, key: &Key) -> bool {
        self.objects.values().any(|object| object.deleted.is_none() && object.keys.contains(key))
    }
}
