//! The known state of the cluster: zones, their claimants, and record sets by zone and name.
//!
//! ```text
//!  Zone, ClusterZone ──► zones ──► claimants by zone name (oldest first)
//!  RRset, ClusterRRset ─► records ─► by home zone ─► by owner name
//!  DNSEndpoint, each endpoint ─►─┘ └► by the zone object they refer to
//! ```
//!
//! In: watch events and the answers to our own writes. Out: snapshots for a pass, and touches of the zones an event
//! concerns. Everything is behind one lock, nothing in here waits.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::Resource;
use serde_json::Value;
use signpost_apis::powerdns::{ClusterRRset, ClusterZone, RRset, RRsetSpec, RRsetStatus, Zone, ZoneSpec, ZoneStatus};
use signpost_dns::{Fqdn, RecordKey, ZoneName};
use signpost_engine::{Identity, Index, ObjectId, Queue, Selector, Touch, Touched};
use signpost_planning::{Claims, Reason};

use crate::{
    plan::ledger::Ledger,
    report::status::{Decided, RecordStatus, ZoneDecision},
};

pub(crate) mod digest;
mod endpoints;
pub(crate) mod record;

use endpoints::EndpointObject;
use record::{AppliedRecord, Record, ZoneKey, ZoneObject};

/// The queue of this system.
pub(crate) type Zones = Queue<ZoneKey, Arc<ObjectId>>;

/// Names kept that lost an object and were not looked at yet.
const MAX_LEFT: usize = 1024;

/// The index.
pub(crate) struct ZoneIndex {
    state: RwLock<State>,
    queue: Zones,
    /// Only zones at or below this name are looked at.
    only: Option<ZoneName>,
    /// Whether other processes watch other namespaces of the same cluster.
    partial_view: bool,
    /// DNSEndpoints with these annotations count.
    pub(crate) endpoint_filter: Selector,
}

#[derive(Default)]
struct State {
    zones: BTreeMap<Arc<ObjectId>, Arc<ZoneObject>>,
    /// Zone objects by the zone that they claim, oldest first.
    claims: Claims<ZoneKey, Arc<ObjectId>>,
    records: HashMap<Arc<ObjectId>, Arc<Record>>,
    homes: BTreeMap<ZoneKey, Home>,
    /// Record sets by the zone object they refer to.
    followers: BTreeMap<Arc<ObjectId>, BTreeSet<Arc<ObjectId>>>,
    endpoints: BTreeMap<Arc<ObjectId>, EndpointObject>,
    /// Whether all DNSEndpoints have been listed.
    endpoints_listed: bool,
}

impl ZoneIndex {
    /// After a restore of the cluster, versions do not tell which of two states is newer.
    fn forget_versions(&self) {
        let mut state = self.write();
        for zone in state.zones.values_mut() {
            Arc::make_mut(zone).identity.version = 0;
        }
        for record in state.records.values_mut() {
            Arc::make_mut(record).identity.version = 0;
        }
        for object in state.endpoints.values_mut() {
            object.identity.version = 0;
        }
    }
}

impl fmt::Debug for ZoneIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZoneIndex").finish_non_exhaustive()
    }
}

/// The record sets of one zone.
#[derive(Default)]
struct Home {
    members: BTreeSet<Arc<ObjectId>>,
    names: BTreeMap<Fqdn, Vec<Arc<ObjectId>>>,
    /// Names that lost an object since the last pass.
    left: BTreeSet<Fqdn>,
    /// Whether a record set was written.
    written: bool,
}

/// The input of a pass of one zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneSnapshot {
    /// Zone objects of this name, oldest first.
    pub(crate) claimants: Vec<Arc<ZoneObject>>,
    /// Every record set at the names looked at.
    pub(crate) names: BTreeMap<Fqdn, Vec<Arc<Record>>>,
    /// Record sets without a name.
    pub(crate) nameless: Vec<Arc<Record>>,
    /// Whether this is everything under the key.
    pub(crate) full: bool,
    /// Whether a name is looked at because an object was deleted.
    pub(crate) left: bool,
    /// Whether the ledger may list what objects wrote that this process does not see.
    pub(crate) shared: bool,
    /// The lines of the ledger that are also in the status of an object with our finalizer, as of this snapshot.
    pub(crate) durable: BTreeSet<RecordKey>,
}

impl ZoneIndex {
    pub(crate) fn new(queue: Zones, only: Option<ZoneName>, partial_view: bool) -> Self {
        Self { state: RwLock::default(), queue, only, partial_view, endpoint_filter: Selector::default() }
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

    /// The input of a pass, and which lines of the zone's ledger are durable: all of it from one moment. Names that
    /// lost an object are looked at once.
    pub(crate) fn snapshot(&self, key: &ZoneKey, touched: &Touched<Arc<ObjectId>>, ledger: &Ledger) -> ZoneSnapshot {
        let mut state = self.write();
        let left = state.homes.get_mut(key).map(|home| std::mem::take(&mut home.left)).unwrap_or_default();
        if state.homes.get(key).is_some_and(|home| home.members.is_empty()) {
            state.homes.remove(key);
        }
        let state = &*state;
        let claimants = state.claimants_of(key);
        // A zone object that is deleted takes along what was written through it: all of that, or it is too early.
        let everything = Touched::All;
        let touched = if claimants.iter().any(|zone| zone.identity.is_deleting()) { &everything } else { touched };
        let mut snapshot = ZoneSnapshot {
            claimants,
            full: *touched == Touched::All,
            left: !left.is_empty(),
            ..ZoneSnapshot::default()
        };
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
            snapshot.durable = ledger.keys().filter(|listed| state.is_durable(home, zone, listed)).cloned().collect();
        }
        snapshot
    }

    /// Every record set under a key, in the order of their ids.
    pub(crate) fn members(&self, key: &ZoneKey) -> Vec<Arc<Record>> {
        let state = self.read();
        let members = state.homes.get(key).into_iter().flat_map(|home| &home.members);
        members.filter_map(|id| state.records.get(id).cloned()).collect()
    }

    /// The record set as it is known now.
    pub(crate) fn record(&self, id: &ObjectId) -> Option<Arc<Record>> {
        self.read().records.get(id).cloned()
    }

    /// Stores the decisions and findings of a pass, and returns the objects whose status may have to be written. Findings are
    /// valid for the object whatever its spec is now. Decisions are for the judged object: an object that has changed since
    /// is left to its next pass.
    ///
    /// An object that is known to have a record on the server is never released: such a decision was made from an older state.
    pub(crate) fn settle(&self, statuses: Vec<RecordStatus>) -> Vec<Arc<ObjectId>> {
        let mut due = Vec::with_capacity(statuses.len());
        let mut again = Vec::new();
        {
            let mut state = self.write();
            for status in statuses {
                let Some(old) = state.records.get(&status.judged.id) else { continue };
                if old.identity.uid != status.judged.uid {
                    continue;
                }
                let learns = old.would_learn(&status.found);
                if learns {
                    let old = Arc::clone(old);
                    let mut new = (*old).clone();
                    new.learn(&status.found);
                    state.replace(&old, new);
                }
                let Some(record) = state.records.get_mut(&status.judged.id) else { continue };
                if !record.identity.asks_the_same(&status.judged) {
                    continue;
                }
                let id = record.identity.id.clone();
                if status.release && record.applied().is_some() {
                    again.push((record.home.clone(), id));
                    continue;
                }
                let decided = Decided::from(status);
                let changed = learns || record.status.as_ref().is_none_or(|before| !before.means_the_same(&decided));
                if changed || !self.others_write(&id) {
                    due.push(record.reported_on().clone());
                }
                if record.status.as_deref() != Some(&decided) {
                    Arc::make_mut(record).status = Some(Box::new(decided));
                }
            }
        }
        for (home, id) in again {
            self.queue.touch(home, Touch::One(id));
        }
        due
    }

    /// Whether other processes report their part about the same object: there, only what has changed is written.
    fn others_write(&self, id: &ObjectId) -> bool {
        self.partial_view && id.namespace.is_none()
    }

    /// Takes what a pass decided about a zone object. Returns the object when its status may have to be written.
    pub(crate) fn settle_zone(&self, decision: ZoneDecision) -> Option<Arc<ObjectId>> {
        let ZoneDecision { judged, status } = decision;
        let mut state = self.write();
        let zone = state.zone_mut(&judged)?;
        let changed = *zone.decided() != status;
        zone.wanted = Some(Arc::new(status));
        let id = zone.identity.id.clone();
        (changed || !self.others_write(&id)).then_some(id)
    }

    /// Sets what the status of a zone object should be, before the end of the pass.
    pub(crate) fn want_zone(&self, zone: &Identity, wanted: Option<Arc<ZoneStatus>>) {
        if let Some(zone) = self.write().zone_mut(zone) {
            zone.wanted = wanted;
        }
    }

    /// Sets whether a zone object may be deleted.
    pub(crate) fn release_zone(&self, zone: &Identity, release: bool) {
        if let Some(zone) = self.write().zone_mut(zone) {
            zone.release = release;
        }
    }

    /// The zone object as it is known now.
    pub(crate) fn zone(&self, id: &ObjectId) -> Option<Arc<ZoneObject>> {
        self.read().zones.get(id).cloned()
    }

    /// Whether a record set under the key was written since this was last asked.
    pub(crate) fn take_written(&self, key: &ZoneKey) -> bool {
        self.write().homes.get_mut(key).is_some_and(|home| std::mem::take(&mut home.written))
    }

    /// Folds the object that the API server answered to a write of ours, without waiting for the watch. Returns what
    /// its new status refuses.
    pub(crate) fn written(&self, id: &ObjectId, object: &Value) -> Option<Reason> {
        let before = self.record(id);
        if let Some(before) = &before
            && let Some(home) = self.write().homes.get_mut(&before.home)
        {
            home.written = true;
        }
        if id.is::<RRset>() {
            fold::<RRset>(object, |object| {
                self.record_applied(object, &object.spec, object.status.as_ref(), Source::Answer);
            });
        } else if id.is::<ClusterRRset>() {
            fold::<ClusterRRset>(object, |object| {
                self.record_applied(object, &object.spec, object.status.as_ref(), Source::Answer);
            });
        } else if id.is::<Zone>() {
            fold::<Zone>(object, |object| {
                self.zone_applied(object, &object.spec, object.status.as_ref(), Source::Answer);
            });
        } else if id.is::<ClusterZone>() {
            fold::<ClusterZone>(object, |object| {
                self.zone_applied(object, &object.spec, object.status.as_ref(), Source::Answer);
            });
        }
        let after = self.record(id)?;
        let changed = before.is_some_and(|before| before.seen != after.seen);
        after.status.as_ref().filter(|_| changed)?.refusal(&after.seen).map(|refusal| refusal.reason)
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

    fn zone_applied<K: Resource<DynamicType = ()> + 'static>(
        &self,
        object: &K,
        spec: &ZoneSpec,
        status: Option<&ZoneStatus>,
        source: Source,
    ) {
        let mut new = ZoneObject::of(Identity::of(object), spec, status);
        let id = new.identity.id.clone();
        if !self.minds(&new.key) {
            return;
        }
        let mut touched: Vec<(ZoneKey, Touch<Arc<ObjectId>>)> = Vec::new();
        let mut report = None;
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
                // With the answer to the release, our finalizer is removed: the object is deleted, and the watch reports that.
                let kept = new.has_finalizer() || !old.has_finalizer() || (source == Source::Answer && old.release);
                new.identity.asks_the_same(&old.identity) && kept
            });
            if let Some(old) = old.as_ref().filter(|old| old.identity.uid == new.identity.uid) {
                (new.wanted, new.release) = (old.wanted.clone(), old.release);
            }
            if !unchanged {
                touched.push((new.key.clone(), Touch::All));
            } else if new.wanted.is_some() && source == Source::Watch && !self.others_write(&id) {
                // A foreign writer may have changed its status.
                report = Some((id.clone(), new.key.clone()));
            }
            let moved = old.as_ref().is_none_or(|old| old.key != new.key || old.identity.uid != new.identity.uid);
            let appeared = old.as_ref().is_some_and(|old| old.exists() != new.exists());
            let key = new.key.clone();
            if moved && let Some(old) = old {
                state.claims.remove(&old.key, &id);
                touched.push((old.key.clone(), Touch::All));
            }
            let claim = new.identity.claim();
            state.zones.insert(id.clone(), Arc::new(new));
            if moved {
                state.claims.insert(key, claim);
                touched.extend(state.rehome(&id).into_iter().map(|key| (key, Touch::All)));
            }
            if moved || appeared {
                touched.extend(state.rehome_endpoints().into_iter().map(|key| (key, Touch::All)));
            }
        }
        for (key, touch) in touched {
            self.queue.touch(key, touch);
        }
        self.queue.statuses().enqueue(report);
    }

    fn zone_deleted(&self, id: &ObjectId) {
        let mut touched = Vec::new();
        {
            let mut state = self.write();
            let Some(old) = state.zones.remove(id) else { return };
            state.claims.remove(&old.key, &old.identity.id);
            touched.push(old.key.clone());
            touched.extend(state.rehome(&old.identity.id));
            touched.extend(state.rehome_endpoints());
        }
        for key in touched {
            self.queue.touch(key, Touch::All);
        }
    }

    fn record_applied<K: Resource<DynamicType = ()> + 'static>(
        &self,
        object: &K,
        spec: &RRsetSpec,
        status: Option<&RRsetStatus>,
        source: Source,
    ) {
        let mut new = Record::of(Identity::of(object), object.meta(), spec, status);
        let mut touched = Vec::new();
        let mut report = None;
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
                new.identity.asks_the_same(&old.identity) && old.home == new.home && old.name == new.name
            });
            if let Some(old) = old {
                if unchanged {
                    new.status.clone_from(&old.status);
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
                self.queue.note(&new.home);
                // A foreign writer may have changed its status; the answer to our own write is what we wanted.
                if new.status.is_some() && source == Source::Watch && !self.others_write(&id) {
                    report = Some((id.clone(), new.home.clone()));
                }
            } else {
                touched.push(new.home.clone());
            }
            state.records.insert(id.clone(), Arc::new(new));
            for key in touched {
                self.queue.touch(key, Touch::One(id.clone()));
            }
        }
        self.queue.statuses().enqueue(report);
    }

    fn record_deleted(&self, id: &ObjectId) {
        let removed = self.write().remove_record(id);
        if let Some((home, touch)) = removed {
            self.queue.touch(home, touch);
        }
    }
}

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The watch: the only proof that an object exists or was deleted.
    Watch,
    /// The answer to a write of ours: it may arrive after the watch has reported the deletion of the object.
    Answer,
}

fn fold<K: serde::de::DeserializeOwned>(object: &Value, applied: impl FnOnce(&K)) {
    // The watch brings the same object; an answer that cannot be read is only a little later.
    if let Ok(object) = K::deserialize(object) {
        applied(&object);
    }
}

impl State {
    /// The zone object, while it is the judged one.
    fn zone_mut(&mut self, judged: &Identity) -> Option<&mut ZoneObject> {
        let zone = self.zones.get_mut(&judged.id).filter(|zone| zone.identity.uid == judged.uid)?;
        Some(Arc::make_mut(zone))
    }

    fn claimants_of(&self, key: &ZoneKey) -> Vec<Arc<ZoneObject>> {
        self.claims.queue(key).filter_map(|claim| self.zones.get(&claim.holder).cloned()).collect()
    }

    /// Whether the status of some object with our finalizer reports that it wrote this, and goes on to report it: another object may have
    /// taken the set over, and the status that reports so is still on its way.
    fn is_durable(&self, home: &Home, zone: &ZoneName, key: &RecordKey) -> bool {
        let ids = home.names.get(&key.name).into_iter().flatten();
        let is_this = |applied: &Arc<AppliedRecord>| applied.key == *key && applied.zone == *zone;
        ids.filter_map(|id| self.records.get(id)).any(|record| {
            let reported = record.seen.applied.as_ref().is_some_and(is_this);
            record.has_finalizer() && reported && record.applied().is_some_and(is_this)
        })
    }

    /// Removes a record set. Returns what is to be looked at.
    fn remove_record(&mut self, id: &ObjectId) -> Option<(ZoneKey, Touch<Arc<ObjectId>>)> {
        let old = self.records.remove(id)?;
        self.unlist(&old);
        let home = self.homes.entry(old.home.clone()).or_default();
        home.left.extend(old.names().cloned());
        // A replica that does not lead takes no snapshot: from here on, everything is looked at instead.
        let touch = if home.left.len() > MAX_LEFT {
            home.left.clear();
            Touch::All
        } else {
            Touch::One(old.identity.id.clone())
        };
        Some((old.home.clone(), touch))
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

    /// Gives the followers of a zone object that came, went or changed its name their place. Returns the keys concerned.
    fn rehome(&mut self, zone: &Arc<ObjectId>) -> BTreeSet<ZoneKey> {
        let referred = self.zones.get(zone).map(|zone| zone.key.clone());
        let followers: Vec<Arc<ObjectId>> = self.followers.get(zone).into_iter().flatten().cloned().collect();
        let mut keys = BTreeSet::new();
        for id in followers {
            let Some(old) = self.records.get(&id).filter(|record| record.endpoint.is_none()).cloned() else { continue };
            let mut new = (*old).clone();
            new.settle_in(referred.as_ref());
            keys.insert(old.home.clone());
            keys.insert(new.home.clone());
            if new.home != old.home || new.name != old.name {
                new.status = None;
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
        impl Index<$kind> for ZoneIndex {
            fn applied(&self, object: &$kind) {
                self.$applied(object, &object.spec, object.status.as_ref(), Source::Watch);
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
mod tests;
