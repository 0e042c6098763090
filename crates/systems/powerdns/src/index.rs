//! What is known of the cluster: zones, their claimants, and record sets by zone and name.
//!
//! ```text
//!  Zone, ClusterZone ──► zones ──► claimants by zone name (oldest first)
//!  RRset, ClusterRRset ─► records ─► by home zone ─► by owner name
//!                                  └► by the zone object they refer to
//! ```
//!
//! In: watch events and the answers to our own writes. Out: snapshots for a pass, and touches of the zones an event
//! concerns. Everything is behind one lock, nothing in here waits.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::Resource;
use signpost_apis::powerdns::{ClusterRRset, ClusterZone, RRset, RRsetSpec, RRsetStatus, Zone, ZoneSpec, ZoneStatus};
use signpost_dns::{Fqdn, RecordKey, ZoneName};
use signpost_engine::{Index, ObjectId, Queue, Touch, Touched};

use crate::{
    finish::Finisher,
    memory::Ledger,
    record::{Record, ZoneKey, ZoneObject, status_hash},
    report::Verdict,
};

/// The queue of this system.
pub(crate) type Zones = Queue<ZoneKey, Arc<ObjectId>>;

/// Names kept that lost an object and were not looked at yet.
const MAX_LEFT: usize = 1024;

/// The index.
pub(crate) struct World {
    state: RwLock<State>,
    queue: Zones,
    /// Only zones at or below this name are looked at.
    only: Option<ZoneName>,
    /// Whether other processes watch other namespaces of the same cluster.
    partial_view: bool,
    finisher: OnceLock<Finisher>,
}

#[derive(Default)]
struct State {
    zones: BTreeMap<Arc<ObjectId>, Arc<ZoneObject>>,
    /// Claimants of a zone name, oldest first.
    claimants: BTreeMap<ZoneKey, Vec<Arc<ObjectId>>>,
    /// What the status of a zone object should be, as last said, and the status it was last seen to stray to.
    said: BTreeMap<Arc<ObjectId>, Said>,
    records: HashMap<Arc<ObjectId>, Arc<Record>>,
    homes: BTreeMap<ZoneKey, Home>,
    /// Record sets by the zone object they refer to.
    followers: BTreeMap<Arc<ObjectId>, BTreeSet<Arc<ObjectId>>>,
}

/// A zone object's status, hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    wanted: u64,
    strayed: Option<u64>,
    /// What was said before and is perhaps still on its way back to us, newest last.
    earlier: VecDeque<u64>,
}

/// So many earlier statuses of a zone object are known again when the watch brings them late.
const EARLIER: usize = 64;

impl World {
    /// After a restore of the cluster no version says which of two states is newer.
    fn forget_versions(&self) {
        let mut state = self.write();
        for zone in state.zones.values_mut() {
            Arc::make_mut(zone).identity.version = 0;
        }
        for record in state.records.values_mut() {
            Arc::make_mut(record).identity.version = 0;
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// The record sets of one zone.
#[derive(Default)]
struct Home {
    members: BTreeSet<Arc<ObjectId>>,
    names: BTreeMap<Fqdn, Vec<Arc<ObjectId>>>,
    /// Names that lost an object since the last pass.
    left: BTreeSet<Fqdn>,
}

/// What a pass of one zone looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Zone objects of this name, oldest first.
    pub(crate) claimants: Vec<Arc<ZoneObject>>,
    /// Every record set at the names looked at.
    pub(crate) names: BTreeMap<Fqdn, Vec<Arc<Record>>>,
    /// Record sets without a name.
    pub(crate) nameless: Vec<Arc<Record>>,
    /// Whether this is everything under the key.
    pub(crate) full: bool,
    /// Whether a name is looked at because an object is gone.
    pub(crate) left: bool,
    /// Whether the ledger may list what objects wrote that this process does not see.
    pub(crate) shared: bool,
    /// What of the ledger is also in the status of an object that has our finalizer, as of this snapshot.
    pub(crate) durable: BTreeSet<RecordKey>,
}

impl World {
    pub(crate) fn new(queue: Zones, only: Option<ZoneName>, partial_view: bool) -> Self {
        Self { state: RwLock::default(), queue, only, partial_view, finisher: OnceLock::new() }
    }

    pub(crate) fn set_finisher(&self, finisher: Finisher) {
        let _ = self.finisher.set(finisher);
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn minds(&self, key: &ZoneKey) -> bool {
        match (&self.only, key) {
            (None, _) => true,
            (Some(only), ZoneKey::Zone(zone)) => zone.name().is_within(only),
            (Some(_), ZoneKey::Unnamed(_)) => false,
        }
    }

    /// The zone object that has the ledger of a zone, as it is known now: the claimants, oldest first.
    pub(crate) fn claimants(&self, key: &ZoneKey) -> Vec<Arc<ZoneObject>> {
        self.read().claimants_of(key)
    }

    /// What a pass looks at, and which lines of the zone's ledger are durable: all of it from one moment. Names that
    /// lost an object are looked at once.
    pub(crate) fn snapshot(&self, key: &ZoneKey, touched: &Touched<Arc<ObjectId>>, ledger: &Ledger) -> Snapshot {
        let mut state = self.write();
        let left = state.homes.get_mut(key).map(|home| std::mem::take(&mut home.left)).unwrap_or_default();
        if state.homes.get(key).is_some_and(|home| home.members.is_empty()) {
            state.homes.remove(key);
        }
        let state = &*state;
        let claimants = state.claimants_of(key);
        // A zone object that goes takes along what was written through it: all of that, or it is too early.
        let everything = Touched::All;
        let touched = if claimants.iter().any(|zone| zone.identity.deleting) { &everything } else { touched };
        let mut snapshot =
            Snapshot { claimants, full: *touched == Touched::All, left: !left.is_empty(), ..Snapshot::default() };
        let nothing = Home::default();
        let home = state.homes.get(key).unwrap_or(&nothing);
        let lookup = |ids: &[Arc<ObjectId>]| ids.iter().filter_map(|id| state.records.get(id).cloned()).collect();
        match touched {
            Touched::All => {
                for (name, ids) in &home.names {
                    snapshot.names.insert(name.clone(), lookup(ids));
                }
                let records = home.members.iter().filter_map(|id| state.records.get(id));
                snapshot.nameless = records.filter(|record| record.names().next().is_none()).cloned().collect();
            }
            Touched::Some(ids) => {
                let mut names = left;
                for record in ids.iter().filter_map(|id| state.records.get(id)).filter(|record| record.home == *key) {
                    if record.names().next().is_none() {
                        snapshot.nameless.push(record.clone());
                    }
                    names.extend(record.names().cloned());
                }
                for name in names {
                    let records = home.names.get(&name).map(|ids| lookup(ids)).unwrap_or_default();
                    snapshot.names.insert(name, records);
                }
            }
        }
        if let Some(zone) = key.zone() {
            let listed = ledger.entries.keys();
            snapshot.durable = listed.filter(|listed| state.is_durable(home, zone, listed)).cloned().collect();
        }
        snapshot
    }

    /// Whether any object has to do with this key.
    pub(crate) fn knows(&self, key: &ZoneKey) -> bool {
        let state = self.read();
        state.claimants.contains_key(key) || state.homes.contains_key(key)
    }

    /// The record set as it is known now.
    pub(crate) fn record(&self, id: &Arc<ObjectId>) -> Option<Arc<Record>> {
        self.read().records.get(id).cloned()
    }

    /// Takes what a pass decided and found out. What it found out holds for the object whatever became of its spec; the
    /// rest is for the object that was judged, and one that has changed since is left to its next pass.
    ///
    /// An object that is known to have something on the server is never released: whoever judged so did not know.
    pub(crate) fn settle(&self, verdicts: Vec<Verdict>) {
        let mut due = Vec::with_capacity(verdicts.len());
        let mut again = Vec::new();
        {
            let mut state = self.write();
            for verdict in verdicts {
                let Some(old) = state.records.get(&verdict.id).cloned() else { continue };
                if old.identity.uid != verdict.uid {
                    continue;
                }
                if old.would_learn(&verdict.found) {
                    let mut new = (*old).clone();
                    new.learn(&verdict.found);
                    state.replace(&old, new);
                }
                let Some(record) = state.records.get_mut(&verdict.id) else { continue };
                let judged =
                    record.identity.generation == verdict.generation && record.identity.deleting == verdict.deleting;
                if judged && verdict.release && record.applied().is_some() {
                    again.push((record.home.clone(), verdict.id));
                } else if judged {
                    let news = old.verdict.as_ref().is_none_or(|before| !before.says_the_same(&verdict));
                    if news || !self.others_write(&verdict.id) {
                        due.push((verdict.id.clone(), record.home.clone()));
                    }
                    Arc::make_mut(record).verdict = Some(Box::new(verdict));
                }
            }
        }
        for (home, id) in again {
            self.queue.touch(home, Touch::One(id));
        }
        if let Some(finisher) = self.finisher.get() {
            finisher.enqueue(due);
        }
    }

    /// Whether other processes report their part about the same object: there, only what has changed is written.
    fn others_write(&self, id: &ObjectId) -> bool {
        self.partial_view && id.namespace.is_none()
    }

    /// Remembers what a zone object's status should be, so that its echo is told from somebody else's change.
    pub(crate) fn zone_said(&self, id: &Arc<ObjectId>, status: &ZoneStatus) {
        let wanted = status_hash(status);
        let mut state = self.write();
        let found = state.zones.get(id).map(|zone| status_hash(&*zone.status));
        let Some(said) = state.said.get_mut(id) else {
            let earlier = found.into_iter().collect();
            state.said.insert(id.clone(), Said { wanted, strayed: None, earlier });
            return;
        };
        if said.wanted != wanted {
            if said.earlier.len() == EARLIER {
                said.earlier.pop_front();
            }
            said.earlier.push_back(said.wanted);
            (said.wanted, said.strayed) = (wanted, None);
        }
    }

    /// Folds the object that the API server answered to a write of ours, without waiting for the watch.
    pub(crate) fn written(&self, id: &ObjectId, object: serde_json::Value) {
        match id.kind {
            "RRset" => fold::<RRset>(object, |object| {
                self.record_applied(id.clone(), object, &object.spec, object.status.as_ref(), Source::Answer);
            }),
            "ClusterRRset" => fold::<ClusterRRset>(object, |object| {
                self.record_applied(id.clone(), object, &object.spec, object.status.as_ref(), Source::Answer);
            }),
            "Zone" => fold::<Zone>(object, |object| {
                self.zone_applied(id.clone(), object, &object.spec, object.status.as_ref(), Source::Answer);
            }),
            "ClusterZone" => fold::<ClusterZone>(object, |object| {
                self.zone_applied(id.clone(), object, &object.spec, object.status.as_ref(), Source::Answer);
            }),
            _ => {}
        }
    }

    /// Calls `each` for every zone object and every record set, in order.
    pub(crate) fn for_each(&self, mut zone: impl FnMut(&ZoneObject), mut record: impl FnMut(&Record)) {
        let state = self.read();
        state.zones.values().for_each(|object| zone(object));
        let mut records: Vec<&Arc<Record>> = state.records.values().collect();
        records.sort_unstable_by(|a, b| a.identity.id.cmp(&b.identity.id));
        for object in records {
            record(object);
        }
    }

    fn zone_applied<K: Resource<DynamicType = ()>>(
        &self,
        id: ObjectId,
        object: &K,
        spec: &ZoneSpec,
        status: Option<&ZoneStatus>,
        source: Source,
    ) {
        let id = Arc::new(id);
        let new = ZoneObject::of(id.clone(), object.meta(), spec, status);
        if !self.minds(&new.key) {
            return;
        }
        let mut touched: Vec<(ZoneKey, Touch<Arc<ObjectId>>)> = Vec::new();
        {
            let mut state = self.write();
            let old = state.zones.get(&id).cloned();
            if old.as_ref().is_some_and(|old| !new.identity.is_newer_than(&old.identity)) {
                return;
            }
            if source == Source::Answer && old.as_ref().is_none_or(|old| old.identity.uid != new.identity.uid) {
                return;
            }
            let unchanged = old.as_ref().is_some_and(|old| {
                old.identity.uid == new.identity.uid
                    && old.identity.generation == new.identity.generation
                    && old.identity.deleting == new.identity.deleting
                    && (old.identity.held == new.identity.held || new.identity.held)
            });
            let strays = state.stray(&new);
            if unchanged {
                touched.extend(strays.then(|| (new.key.clone(), Touch::One(id.clone()))));
            } else {
                touched.push((new.key.clone(), Touch::All));
            }
            // What somebody else wrote is written over; what is only an older write of ours, the writer knows better.
            if let (Source::Watch, true, Some(finisher)) = (source, strays, self.finisher.get()) {
                finisher.saw_zone_status(object, &new.status);
            }
            let moved = old.as_ref().is_none_or(|old| old.key != new.key || old.identity.uid != new.identity.uid);
            let key = new.key.clone();
            if moved && let Some(old) = old {
                state.withdraw(&old);
                touched.push((old.key.clone(), Touch::All));
            }
            state.zones.insert(id.clone(), Arc::new(new));
            if moved {
                state.claim(key, &id);
                touched.extend(state.rehome(&id).into_iter().map(|key| (key, Touch::All)));
            }
        }
        for (key, touch) in touched {
            self.queue.touch(key, touch);
        }
    }

    fn zone_deleted(&self, id: &ObjectId) {
        let mut touched = Vec::new();
        {
            let mut state = self.write();
            let Some(old) = state.zones.remove(id) else { return };
            state.said.remove(id);
            state.withdraw(&old);
            touched.push(old.key.clone());
            touched.extend(state.rehome(&old.identity.id));
        }
        for key in touched {
            self.queue.touch(key, Touch::All);
        }
    }

    fn record_applied<K: Resource<DynamicType = ()>>(
        &self,
        id: ObjectId,
        object: &K,
        spec: &RRsetSpec,
        status: Option<&RRsetStatus>,
        source: Source,
    ) {
        let id = Arc::new(id);
        let mut new = Record::of(id, object.meta(), spec, status);
        let mut touched = Vec::new();
        let mut finish = None;
        {
            let mut state = self.write();
            let old = state.records.get(&new.identity.id).cloned();
            if source == Source::Answer && old.as_ref().is_none_or(|old| old.identity.uid != new.identity.uid) {
                return;
            }
            if let Some(old) = &old {
                if !new.identity.is_newer_than(&old.identity) {
                    return;
                }
                new.identity.id = old.identity.id.clone();
            }
            if let Some(old) = old.as_ref().filter(|old| old.identity.uid == new.identity.uid) {
                new.inherit_facts(old);
            }
            let id = new.identity.id.clone();
            if let Some((zone, _)) = state.followers.get_key_value(&new.zone) {
                new.zone = zone.clone();
            }
            let referred = state.zones.get(&new.zone).map(|zone| zone.key.clone());
            new.settle_in(referred.as_ref());
            if !self.minds(&new.home) {
                return;
            }
            let unchanged = old.as_ref().is_some_and(|old| {
                old.identity.uid == new.identity.uid
                    && old.identity.generation == new.identity.generation
                    && old.identity.deleting == new.identity.deleting
                    && old.home == new.home
                    && old.name == new.name
            });
            if let Some(old) = old {
                if unchanged {
                    new.verdict.clone_from(&old.verdict);
                    new.written_name = old.written_name.clone();
                }
                if old.home != new.home {
                    touched.push(old.home.clone());
                }
                // A status echo changes no place: leave the maps alone.
                if !unchanged || !old.names().eq(new.names()) {
                    state.unlist(&old);
                    state.list(&new);
                }
            } else {
                state.list(&new);
            }
            if unchanged {
                if new.verdict.is_some() && !self.others_write(&id) {
                    finish = Some((id.clone(), new.home.clone()));
                }
            } else {
                touched.push(new.home.clone());
            }
            state.records.insert(id.clone(), Arc::new(new));
            for key in touched {
                self.queue.touch(key, Touch::One(id.clone()));
            }
        }
        if let (Some(finish), Some(finisher)) = (finish, self.finisher.get()) {
            finisher.enqueue(vec![finish]);
        }
    }

    fn record_deleted(&self, id: &ObjectId) {
        let touched = {
            let mut state = self.write();
            let Some(old) = state.records.remove(id) else { return };
            state.unlist(&old);
            let home = state.homes.entry(old.home.clone()).or_default();
            home.left.extend(old.names().cloned());
            // A replica that does not lead takes no snapshot: from here on, everything is looked at instead.
            let touch = if home.left.len() > MAX_LEFT {
                home.left.clear();
                Touch::All
            } else {
                Touch::One(old.identity.id.clone())
            };
            (old.home.clone(), touch)
        };
        if let Some(finisher) = self.finisher.get() {
            finisher.forget(id);
        }
        self.queue.touch(touched.0, touched.1);
    }
}

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The watch, which alone says that an object is there or gone.
    Watch,
    /// The answer to a write of ours: it may arrive after the watch has said that the object is gone.
    Answer,
}

fn fold<K: serde::de::DeserializeOwned>(object: serde_json::Value, applied: impl FnOnce(&K)) {
    // The watch brings the same object; an answer that cannot be read is only a little later.
    if let Ok(object) = serde_json::from_value::<K>(object) {
        applied(&object);
    }
}

impl State {
    /// Whether a zone object's status is not what was said of it. One that stays as it is although it was written over,
    /// because somebody else holds a field of it, is told once; what was said before and comes late is no news.
    fn stray(&mut self, zone: &ZoneObject) -> bool {
        let Some(said) = self.said.get_mut(&zone.identity.id) else { return false };
        let seen = status_hash(&*zone.status);
        if said.wanted == seen {
            said.earlier.clear();
        } else if said.earlier.contains(&seen) {
            return false;
        }
        let strayed = (said.wanted != seen).then_some(seen);
        let news = strayed.is_some() && said.strayed != strayed;
        said.strayed = strayed;
        news
    }

    fn claimants_of(&self, key: &ZoneKey) -> Vec<Arc<ZoneObject>> {
        self.claimants.get(key).into_iter().flatten().filter_map(|id| self.zones.get(id).cloned()).collect()
    }

    /// Whether the status of some object with our finalizer reports that it wrote this.
    fn is_durable(&self, home: &Home, zone: &ZoneName, key: &RecordKey) -> bool {
        let ids = home.names.get(&key.name).into_iter().flatten();
        ids.filter_map(|id| self.records.get(id)).any(|record| {
            let reported = record.seen.applied.as_ref();
            record.identity.held && reported.is_some_and(|applied| applied.key == *key && applied.zone == *zone)
        })
    }

    /// Puts a record set in the place of what was known of it before.
    fn replace(&mut self, old: &Record, mut new: Record) {
        let referred = self.zones.get(&new.zone).map(|zone| zone.key.clone());
        new.settle_in(referred.as_ref());
        if old.home != new.home || !old.names().eq(new.names()) {
            self.unlist(old);
            self.list(&new);
        }
        self.records.insert(new.identity.id.clone(), Arc::new(new));
    }

    fn claim(&mut self, key: ZoneKey, id: &Arc<ObjectId>) {
        let zones = &self.zones;
        let line = self.claimants.entry(key).or_default();
        line.push(id.clone());
        line.sort_by_cached_key(|id| {
            (zones.get(id).map(|zone| (zone.identity.created, zone.identity.uid.clone())), id.clone())
        });
    }

    fn withdraw(&mut self, zone: &ZoneObject) {
        if let Some(line) = self.claimants.get_mut(&zone.key) {
            line.retain(|id| *id != zone.identity.id);
            if line.is_empty() {
                self.claimants.remove(&zone.key);
            }
        }
    }

    /// Gives the followers of a zone object that came, went or changed its name their place. Returns the keys concerned.
    fn rehome(&mut self, zone: &Arc<ObjectId>) -> BTreeSet<ZoneKey> {
        let referred = self.zones.get(zone).map(|zone| zone.key.clone());
        let followers: Vec<Arc<ObjectId>> = self.followers.get(zone).into_iter().flatten().cloned().collect();
        let mut keys = BTreeSet::new();
        for id in followers {
            let Some(old) = self.records.get(&id).cloned() else { continue };
            let mut new = (*old).clone();
            new.settle_in(referred.as_ref());
            keys.insert(old.home.clone());
            keys.insert(new.home.clone());
            if new.home != old.home || new.name != old.name {
                new.verdict = None;
                self.unlist(&old);
                self.list(&new);
                self.records.insert(id, Arc::new(new));
            }
        }
        keys
    }

    fn list(&mut self, record: &Record) {
        let id = &record.identity.id;
        let home = self.homes.entry(record.home.clone()).or_default();
        home.members.insert(id.clone());
        for name in record.names() {
            let ids = home.names.entry(name.clone()).or_default();
            if !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        self.followers.entry(record.zone.clone()).or_default().insert(id.clone());
    }

    fn unlist(&mut self, record: &Record) {
        let id = &record.identity.id;
        if let Some(home) = self.homes.get_mut(&record.home) {
            home.members.remove(id);
            for name in record.names() {
                if let Some(ids) = home.names.get_mut(name) {
                    ids.retain(|other| other != id);
                    if ids.is_empty() {
                        home.names.remove(name);
                    }
                }
            }
        }
        if let Some(followers) = self.followers.get_mut(&record.zone) {
            followers.remove(id);
            if followers.is_empty() {
                self.followers.remove(&record.zone);
            }
        }
    }
}

macro_rules! index {
    ($kind:ty, $applied:ident, $deleted:ident) => {
        impl Index<$kind> for World {
            fn applied(&self, object: &$kind) {
                let id = ObjectId::of(object);
                self.$applied(id, object, &object.spec, object.status.as_ref(), Source::Watch);
            }
            fn deleted(&self, id: &ObjectId) {
                self.$deleted(id);
            }
            fn rewound(&self) {
                self.forget_versions();
            }
        }
    };
}

index!(Zone, zone_applied, zone_deleted);
index!(ClusterZone, zone_applied, zone_deleted);
index!(RRset, record_applied, record_deleted);
index!(ClusterRRset, record_applied, record_deleted);

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
