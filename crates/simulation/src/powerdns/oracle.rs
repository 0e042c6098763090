//! The expected records and statuses, computed from the API objects alone. None of the operator's code is used here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
};

use kube::api::{DynamicObject, ListParams};
use serde_json::Value;
use signpost_provider_powerdns::ZoneInfo;
use tokio::time::Instant;

use super::{
    PowerDnsBed,
    action::{REFUSED, ZONES},
    model::{Id, Model, Object, Spec},
    twin::{Key, Set, Twin, compared},
};
use crate::{bed::Moment, world::World};

/// A released record must not be served any more, unless it was to stay or another object claims it.
pub fn check_release(world: &World, twin: &Twin, model: &Model, id: &Id, object: &Object) {
    let Some(deleted) = object.deleted else {
        world.violation(format!("{id:?} was released although no user deleted it"));
        return;
    };
    match &object.spec {
        Spec::Record(record) if !record.retain => {
            let contents = twin.contents(&record.zone).map(|(_, sets)| sets).unwrap_or_default();
            for (key, set) in object.keys.iter().filter_map(|key| contents.get_key_value(key)) {
                let seen = twin.seen();
                let claimed = model.others_claim(id, key) || model.was_handed_over(object, key, set, deleted);
                // Another object that claimed it was deleted, and its deletion policy leaves what it has. Only the operator knows which of the
                // two had it.
                let claimed = claimed || model.was_left_by_another(object, key);
                let other = seen.foreign.contains(key) || seen.open.contains(key) || claimed;
                let standing = seen.since.get(key).is_some_and(|since| *since < deleted);
                // A zone always has a start of authority.
                let of_zone = is_apex_ns(key) || key.2 == "SOA";
                if standing && !other && !of_zone {
                    world.violation(format!("{id:?} was released while {key:?} was served"));
                }
            }
        }
        Spec::Zone(zone) if !zone.retain => {
            let name = format!("{}.", zone.name);
            let Some((made, by_hand)) = twin.seen().zones.get(&name).copied() else { return };
            let foreign = zone.refuse && (by_hand || made < object.made);
            if made < deleted && !foreign && !model.others_hold(id, &name) {
                world.violation(format!("{id:?} was released while its zone was served"));
            }
        }
        Spec::Record(_) | Spec::Zone(_) | Spec::Endpoint(_) => {}
    }
}

fn is_secondary(zone: &Item) -> bool {
    zone.spec["kind"] == "Slave"
}

fn is_apex_ns(key: &Key) -> bool {
    key.0 == key.1 && key.2 == "NS"
}

/// An object as the API has it.
#[allow(clippy::struct_excessive_bools)] // Independent facts about the object.
struct Item {
    id: String,
    namespace: String,
    name: String,
    uid: String,
    created: i64,
    deleting: bool,
    current: bool,
    /// Whether its spec was changed after its creation.
    edited: bool,
    sync: String,
    ready: bool,
    spec: Value,
    status: Value,
}

impl Item {
    fn of(kind: &str, object: DynamicObject) -> Self {
        let (meta, data) = (object.metadata, object.data);
        let status = data["status"].clone();
        let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        let namespace = meta.namespace.unwrap_or_default();
        let name = meta.name.unwrap_or_default();
        Self {
            id: format!("{kind} {namespace}/{name}"),
            namespace,
            name,
            uid: meta.uid.unwrap_or_default(),
            created: meta.creation_timestamp.map_or(0, |time| time.0.as_second()),
            deleting: meta.deletion_timestamp.is_some(),
            current: status["observedGeneration"].as_i64() == meta.generation,
            edited: meta.generation > Some(1),
            sync: status["syncStatus"].as_str().unwrap_or_default().to_owned(),
            ready: status["conditions"].as_array().is_some_and(|conditions| conditions.iter().any(ready)),
            spec: data["spec"].clone(),
            status,
        }
    }

    fn succeeded(&self) -> bool {
        self.sync == "Succeeded"
    }
}

/// The request of a record set object, or of one endpoint.
struct Wish {
    item: Arc<Item>,
    key: Key,
    set: Set,
    /// The zone object that it refers to: namespace and name. An endpoint names none: its namespace is its own.
    zone: (String, String),
    endpoint: bool,
}

impl Wish {
    /// The endpoints of a DNSEndpoint.
    fn of_endpoints(item: Item) -> Vec<Self> {
        let item = Arc::new(item);
        let endpoints = item.spec["endpoints"].as_array().into_iter().flatten();
        let wish = |endpoint: &Value| {
            let text = |field: &str| endpoint[field].as_str().unwrap_or_default();
            let (name, rtype) = (text("dnsName"), text("recordType"));
            let zone = ZONES.iter().find(|zone| name == **zone || name.ends_with(&format!(".{zone}")))?;
            let target = endpoint["targets"][0].as_str().unwrap_or_default();
            let record = match rtype {
                "TXT" => format!("\"{target}\""),
                "CNAME" => format!("{target}."),
                _ => target.to_owned(),
            };
            let ttl = endpoint["recordTTL"].as_u64().and_then(|ttl| u32::try_from(ttl).ok()).unwrap_or(0);
            Some(Self {
                item: item.clone(),
                key: (format!("{zone}."), format!("{name}."), rtype.to_owned()),
                set: Set { ttl, records: vec![record] },
                zone: (item.namespace.clone(), (*zone).to_owned()),
                endpoint: true,
            })
        };
        endpoints.filter_map(wish).collect()
    }

    /// Whether it is served through this zone object.
    fn refers_to(&self, zone: &Item) -> bool {
        let namespace = self.zone.0 == zone.namespace || (self.endpoint && zone.namespace.is_empty());
        namespace && self.zone.1 == zone.name
    }

    fn of(item: Item) -> Self {
        let text = |pointer: &str| item.spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (zone, name, rtype) = (text("/zoneRef/name"), text("/name"), text("/type"));
        let full = if name == "@" { format!("{zone}.") } else { format!("{name}.{zone}.") };
        let records = item.spec["records"].as_array().into_iter().flatten();
        let mut records: Vec<String> =
            records.filter_map(|record| record.as_str().map(|record| compared(&rtype, record))).collect();
        records.sort();
        let ttl = item.spec["ttl"].as_u64().and_then(|ttl| u32::try_from(ttl).ok()).unwrap_or(0);
        let cluster = text("/zoneRef/kind") == "ClusterZone";
        let namespace = if cluster { String::new() } else { item.namespace.clone() };
        Self {
            key: (format!("{zone}."), full, rtype),
            set: Set { ttl, records },
            zone: (namespace, zone),
            item: Arc::new(item),
            endpoint: false,
        }
    }

    /// Whether its object wrote this before it asked for another type that cannot be written: it stays then.
    fn keeps(&self, key: &Key) -> bool {
        let applied = |field: &str| self.item.status["applied"][field].as_str().unwrap_or_default();
        !self.item.succeeded() && (applied("zone"), applied("name"), applied("type")) == (&key.0, &key.1, &key.2)
    }

    fn is_refused(&self) -> bool {
        self.set.records.iter().any(|record| record == REFUSED)
    }
}

/// Everything that is looked at.
struct Look<'a> {
    world: &'a World,
    twin: &'a Twin,
    model: &'a Model,
    moment: Moment,
    zones: Vec<Item>,
    wishes: Vec<Wish>,
}

async fn items(bed: &PowerDnsBed, kind: &str) -> Vec<Item> {
    match bed.api(kind, "").list(&ListParams::default()).await {
        Ok(list) => list.items.into_iter().map(|object| Item::of(kind, object)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Characters of a mark, the short form of a line of the list of endpoints.
const MARK: usize = 16;

/// Whether a string of the list of endpoints has marks: a line has spaces.
fn is_packed(line: &str) -> bool {
    !line.contains(' ')
}

/// Checks everything.
pub async fn check(bed: &Arc<PowerDnsBed>, moment: Moment) {
    let mut zones = items(bed, "Zone").await;
    zones.extend(items(bed, "ClusterZone").await);
    let mut records = items(bed, "RRset").await;
    records.extend(items(bed, "ClusterRRset").await);
    let endpoints = items(bed, "DNSEndpoint").await;
    let model = bed.model.lock().unwrap_or_else(PoisonError::into_inner);
    let mut wishes: Vec<Wish> = records.into_iter().map(Wish::of).collect();
    if bed.endpoints {
        wishes.extend(endpoints.into_iter().flat_map(Wish::of_endpoints));
    }
    let look = Look { world: &bed.world, twin: &bed.twin, model: &model, moment, zones, wishes };
    look.everything();
}

impl Look<'_> {
    fn wrong(&self, what: &str) {
        self.world.violation(format!("{:?}: {what}", self.moment));
    }

    fn everything(&self) {
        let stuck = self.zones.iter().chain(self.wishes.iter().map(|wish| &*wish.item)).filter(|item| item.deleting);
        for item in stuck {
            self.wrong(&format!("{} is still being deleted", item.id));
        }
        let mut names: BTreeSet<String> = self.zones.iter().map(|zone| format!("{}.", zone.name)).collect();
        names.extend(self.twin.seen().zones.keys().cloned());
        for name in &names {
            self.zone(name);
        }
        // Record sets without a zone object.
        for wish in self.wishes.iter().filter(|wish| !wish.item.deleting && !wish.endpoint) {
            if !self.zones.iter().any(|zone| wish.refers_to(zone) && !zone.deleting) && self.moment == Moment::Rest {
                self.reported(&wish.item, false, "its zone object does not exist");
            }
        }
    }

    /// Whether the status is correct and is about the current spec.
    fn reported(&self, item: &Item, success: bool, why: &str) {
        if !item.current || item.sync.is_empty() {
            self.wrong(&format!("{}: the status is not about the current spec: {}", item.id, item.status));
        } else if item.succeeded() != success || item.ready != success {
            self.wrong(&format!("{}: the status is {} although {why}: {}", item.id, item.sync, item.status));
        }
    }

    /// The zone object that decides: the oldest, and of several of the same second the one whose status claims it.
    fn holder<'a>(claimants: &[&'a Item]) -> Option<&'a Item> {
        let first = claimants.iter().map(|zone| zone.created).min()?;
        let tied = || claimants.iter().filter(|zone| zone.created == first);
        tied().find(|zone| zone.succeeded()).or_else(|| tied().min_by_key(|zone| &zone.uid)).copied()
    }

    fn zone(&self, name: &str) {
        let claimants: Vec<&Item> =
            self.zones.iter().filter(|zone| format!("{}.", zone.name) == name && !zone.deleting).collect();
        let server = self.twin.contents(name);
        let made = self.twin.seen().zones.get(name).copied();
        let Some(holder) = Self::holder(&claimants) else {
            self.left_behind(name, server, made);
            return;
        };
        if self.moment == Moment::Rest {
            for loser in claimants.iter().filter(|zone| zone.uid != holder.uid) {
                self.reported(loser, false, "another object holds the zone");
            }
        }
        if holder.spec["adoptionPolicy"] == "Refuse" && holder.status["id"].is_null() {
            let object = self.model.objects.values().find(|object| object.uid == holder.uid);
            let foreign = match (made, object) {
                (Some((_, true)), _) => true,
                (Some((made, false)), Some(object)) => made < object.made,
                _ => false,
            };
            if foreign {
                if self.moment == Moment::Rest {
                    self.reported(holder, false, "the zone is foreign and it refuses to adopt");
                    for wish in self.wishes_of(holder).filter(|wish| !wish.endpoint) {
                        self.reported(&wish.item, false, "the zone is foreign");
                    }
                }
                return;
            }
        }
        let Some((info, sets)) = server else {
            self.wrong(&format!("zone {name} is not served although {} asks for it", holder.id));
            return;
        };
        self.settings(name, holder, &info, &sets);
        if is_secondary(holder) {
            self.of_masters(holder);
        } else {
            self.records(holder, &sets);
        }
        self.orphans(name, &sets);
    }

    fn settings(&self, name: &str, holder: &Item, info: &ZoneInfo, sets: &BTreeMap<Key, Set>) {
        // Its serial and its name servers are those of its masters.
        let secondary = is_secondary(holder);
        let floor = self.model.floors.get(name).filter(|(uid, _)| *uid == holder.uid && !secondary);
        if let Some((_, floor)) = floor
            && u64::from(info.serial) < *floor
        {
            self.wrong(&format!(
                "the serial of {name} went backwards: {floor} was reported, {} is served",
                info.serial
            ));
        }
        let epoch = holder.spec["soa_edit_api"] == "EPOCH";
        let refused = epoch && !holder.succeeded();
        if self.moment == Moment::Rest && !refused {
            self.reported(holder, true, "the zone is served");
            self.ledger(holder);
            if holder.status["serial"].as_u64() != Some(u64::from(info.serial)) {
                self.wrong(&format!(
                    "{}: status.serial is {}, {} is served",
                    holder.id, holder.status["serial"], info.serial
                ));
            }
        }
        let wants = |field: &str| holder.spec[field].as_str().unwrap_or_default();
        if info.kind != wants("kind") || (!refused && info.soa_edit_api != wants("soa_edit_api")) {
            self.wrong(&format!("zone {name} is {} {}, wanted: {}", info.kind, info.soa_edit_api, holder.spec));
        }
        let hosts: BTreeSet<String> = holder.spec["nameservers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|host| host.as_str().map(|host| format!("{host}.")))
            .collect();
        let apex = (name.to_owned(), name.to_owned(), "NS".to_owned());
        let served: BTreeSet<String> =
            sets.get(&apex).map(|set| set.records.iter().cloned().collect()).unwrap_or_default();
        if !secondary && !hosts.is_empty() && hosts != served {
            self.wrong(&format!("the name servers of {name} are {served:?}, wanted: {hosts:?}"));
        }
    }

    /// What only endpoints ask for and is served is listed on the zone object, so that it is deleted with them whatever happens. A
    /// DNSEndpoint whose endpoints are all served, and wanted by no other object, has observed its generation.
    fn listed(&self, holder: &Item, wish: &Wish, served: bool) {
        let same = |other: &&Wish| other.key.1 == wish.key.1 && other.item.uid != wish.item.uid;
        if !served || self.wishes_of(holder).any(|other| same(&other)) {
            return;
        }
        let name = wish.key.1.strip_suffix(&format!(".{}", wish.key.0)).unwrap_or("@");
        let start = format!("{name} {} ", wish.key.2);
        let mut lines = holder.status["endpoints"].as_array().into_iter().flatten().filter_map(Value::as_str);
        // Marks have no names, so they are counted (`marks`).
        if !lines.any(|line| line.starts_with(&start) || is_packed(line)) {
            self.wrong(&format!("{}: {:?} of {} is served and not listed", holder.id, wish.key, wish.item.id));
        }
        let only = wish.item.spec["endpoints"].as_array().is_some_and(|endpoints| endpoints.len() == 1);
        if only && !wish.item.current {
            self.wrong(&format!("{}: served, but its status is {}", wish.item.id, wish.item.status));
        }
    }

    /// A list without names has a mark for each record set that only endpoints ask for, and for none that is neither on the server nor asked
    /// for: an edited object keeps its old type while the new one cannot be written, and what the server refuses is tried again.
    fn marks(&self, holder: &Item, sets: &BTreeMap<Key, Set>) {
        let lines = holder.status["endpoints"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let marks: usize = lines.filter(|line| is_packed(line)).map(|line| line.len() / MARK).sum();
        let (served, waiting): (Vec<&Wish>, Vec<&Wish>) = self
            .wishes_of(holder)
            .filter(|wish| wish.endpoint)
            .partition(|wish| sets.get(&wish.key) == Some(&wish.set));
        let keys: BTreeSet<&Key> = served.into_iter().map(|wish| &wish.key).collect();
        let shared = |key: &&&Key| self.wishes_of(holder).any(|wish| !wish.endpoint && wish.key.1 == key.1);
        let least = keys.len() - keys.iter().filter(shared).count();
        let most = sets.len() + waiting.len();
        if marks > 0 && !(least..=most).contains(&marks) {
            self.wrong(&format!("{}: {marks} endpoints are listed, but {least} to {most} may be", holder.id));
        }
    }

    /// Nothing is on its way at rest, apart from what the server refuses: that is tried again.
    fn ledger(&self, holder: &Item) {
        let refused: BTreeSet<String> = self
            .wishes_of(holder)
            .filter(|wish| wish.is_refused())
            .map(|wish| format!("{} {} ", wish.item.spec["name"].as_str().unwrap_or_default(), wish.key.2))
            .collect();
        let lines = holder.status["inFlight"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for line in lines.filter(|line| !refused.iter().any(|start| line.starts_with(start))) {
            self.wrong(&format!("{}: the ledger lists {line} at rest", holder.id));
        }
    }

    fn wishes_of<'a>(&'a self, zone: &'a Item) -> impl Iterator<Item = &'a Wish> {
        self.wishes.iter().filter(|wish| wish.refers_to(zone) && !wish.item.deleting)
    }

    /// The record sets of a zone whose records come from its masters: none of them is served for its object.
    fn of_masters(&self, holder: &Item) {
        if self.moment == Moment::Rest {
            for wish in self.wishes_of(holder).filter(|wish| !wish.endpoint) {
                self.reported(&wish.item, false, "the zone takes its records from its masters");
            }
        }
    }

    /// The record sets of a zone that is served.
    fn records(&self, holder: &Item, sets: &BTreeMap<Key, Set>) {
        // Those that refer to another object of the same zone are not served.
        let elsewhere = self.wishes.iter().filter(|wish| {
            wish.zone.1 == holder.name && !wish.refers_to(holder) && !wish.item.deleting && wish.item.succeeded()
        });
        for wish in elsewhere {
            self.wrong(&format!(
                "{}: the status is Succeeded although its zone object does not hold the zone",
                wish.item.id
            ));
        }
        if self.moment == Moment::Rest {
            self.marks(holder, sets);
        }
        let mut names: BTreeMap<&str, BTreeMap<&str, Vec<&Wish>>> = BTreeMap::new();
        for wish in self.wishes_of(holder) {
            let served = sets.get(&wish.key) == Some(&wish.set);
            if self.moment == Moment::Rest {
                let own = is_apex_ns(&wish.key)
                    && holder.spec["nameservers"].as_array().is_some_and(|hosts| !hosts.is_empty());
                if wish.endpoint {
                    self.listed(holder, wish, served);
                } else if !wish.item.current || wish.item.sync.is_empty() {
                    self.wrong(&format!(
                        "{}: the status is not about the current spec: {}",
                        wish.item.id, wish.item.status
                    ));
                } else if wish.item.succeeded() && (!served || own) {
                    self.wrong(&format!(
                        "{}: the status is Succeeded, but {:?} is served",
                        wish.item.id,
                        sets.get(&wish.key)
                    ));
                }
                if own {
                    continue;
                }
            }
            names.entry(&wish.key.1).or_default().entry(&wish.key.2).or_default().push(wish);
        }
        for (name, types) in names {
            self.name(holder, name, &types, sets);
        }
    }

    /// The record sets of one name.
    fn name(&self, holder: &Item, name: &str, types: &BTreeMap<&str, Vec<&Wish>>, sets: &BTreeMap<Key, Set>) {
        let zone = format!("{}.", holder.name);
        let apex = name == zone;
        let foreign =
            |key: &Key| !types.contains_key(key.2.as_str()) && (!apex || !["SOA", "NS"].contains(&key.2.as_str()));
        let there: Vec<&Key> = sets.keys().filter(|key| key.1 == name && foreign(key)).collect();
        let conflict = types.contains_key("CNAME") && (types.len() > 1 || apex || !there.is_empty())
            || there.iter().any(|key| key.2 == "CNAME");
        let mut served = 0;
        for (rtype, wishes) in types {
            if apex && *rtype == "NS" && holder.spec["nameservers"].as_array().is_some_and(|hosts| !hosts.is_empty()) {
                continue;
            }
            let first = wishes.iter().map(|wish| wish.item.created).min().unwrap_or_default();
            let tied: Vec<&&Wish> = wishes.iter().filter(|wish| wish.item.created == first).collect();
            let key = (zone.clone(), name.to_owned(), (*rtype).to_owned());
            let set = sets.get(&key);
            let winner = tied.iter().find(|wish| Some(&wish.set) == set);
            let refused = tied.iter().any(|wish| wish.is_refused());
            // The former record of an object whose new request is refused stays.
            served += usize::from(winner.is_some() || (refused && set.is_some()));
            if winner.is_none() && !conflict && !refused {
                self.wrong(&format!("{} asks for {key:?} {:?}, but {set:?} is served", tied[0].item.id, tied[0].set));
            }
            if self.moment == Moment::Rest && !conflict && !refused {
                let successes = wishes.iter().filter(|wish| wish.item.succeeded()).count();
                let true_ones = tied.iter().filter(|wish| wish.item.succeeded()).count();
                // A DNSEndpoint that owns the record set reports no success of its own.
                let by_endpoint = tied.iter().any(|wish| wish.endpoint) && successes == 0;
                if !by_endpoint && (successes != 1 || true_ones != 1) {
                    let reported: Vec<String> =
                        wishes.iter().map(|wish| format!("{} {}", wish.item.id, wish.item.status)).collect();
                    self.wrong(&format!("{successes} objects report that they serve {key:?}: {reported:?}"));
                }
            }
        }
        let possible = types.iter().any(|(rtype, wishes)| {
            let place = !(apex && (*rtype == "CNAME" || *rtype == "NS"));
            let first = wishes.iter().map(|wish| wish.item.created).min();
            place && wishes.iter().filter(|wish| Some(wish.item.created) == first).all(|wish| !wish.is_refused())
        });
        if conflict && there.is_empty() && possible && served == 0 {
            self.wrong(&format!("nothing is served at {name} although {:?} are asked for", types.keys()));
        }
    }

    /// Record sets that no object asks for.
    fn orphans(&self, zone: &str, sets: &BTreeMap<Key, Set>) {
        let seen = self.twin.seen();
        for (key, set) in sets {
            let of_zone = key.1 == zone && ["SOA", "NS"].contains(&key.2.as_str());
            let by_hand = seen.foreign.contains(key) || seen.open.contains(key);
            let claimed = self.wishes.iter().any(|wish| wish.key == *key || wish.keeps(key));
            // It may be the old type of an object whose new one cannot be written.
            let of_edited =
                |wish: &Wish| wish.key.1 == key.1 && wish.item.edited && sets.get(&wish.key) != Some(&wish.set);
            let claimed = claimed || (self.model.of_endpoints.contains(key) && self.wishes.iter().any(of_edited));
            if !of_zone && !by_hand && !claimed && !self.model.retained.contains(key) {
                self.wrong(&format!("{key:?} {set:?} is served although no object asks for it"));
            }
        }
    }

    /// A zone without an object.
    fn left_behind(&self, name: &str, server: Option<(ZoneInfo, BTreeMap<Key, Set>)>, made: Option<(Instant, bool)>) {
        let (Some((_, sets)), Some((made, by_hand))) = (server, made) else { return };
        let retained = self.model.retained_zones.contains(name);
        // An object that was deleted before it had its finalizer did not adopt the zone.
        let adopted = self.model.was_adopted(name, made) && self.twin.seen().taken.contains(name);
        let never_adopted = by_hand && !adopted;
        if never_adopted {
            return;
        }
        if !retained {
            self.wrong(&format!("zone {name} is served although no object asks for it"));
            return;
        }
        self.orphans(name, &sets);
    }
}
