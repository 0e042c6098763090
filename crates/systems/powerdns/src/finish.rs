//! Finalizers and statuses of record sets, after serving and behind its back.
//!
//! ```text
//!  verdicts ─► one line of object ids ─► up to 16 workers ─► finalizer, then at the end of the line again
//!                                                          ├► status, from the newest verdict
//!                                                          └► all of a zone done ─► the zone looks at its ledger
//! ```
//!
//! The status does not follow the finalizer at once where others wait: the API server writes from its watch cache, and
//! does the whole write twice when that has not seen the finalizer yet.
//!
//! A write is made up only when its turn comes, so ten thousand waiting ones cost ten thousand pointers. Each is one
//! finalizer patch and one status, and none where the object says so already.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use serde_json::json;
use signpost_apis::powerdns::{API_VERSION, ClusterRRset, RRset, ZoneStatus};
use signpost_engine::{Clock, Event, EventKind, ObjectId, ObjectWrite, Recorder, Touch, WriteError, Writer};

use crate::{
    index::{World, Zones},
    metrics::Figures,
    record::{Identity, Record, ZoneKey, meaning_hash},
    report::{self, Verdict},
};

const WORKERS: usize = 16;
/// How long a zone waits after its last object write before it says its serial and clears its ledger.
const SETTLE: Duration = Duration::from_millis(500);

/// Writes what verdicts say about record sets. Cloning gives another handle.
#[derive(Clone)]
pub(crate) struct Finisher {
    inner: Arc<Inner>,
}

struct Inner {
    world: Weak<World>,
    writer: Writer,
    recorder: Recorder,
    zones: Zones,
    clock: Arc<dyn Clock>,
    figures: Figures,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<(Arc<ObjectId>, ZoneKey)>,
    /// Everything waiting.
    queued: HashSet<Arc<ObjectId>>,
    /// Everything a worker has in hand; true when it was asked for again meanwhile.
    in_hand: BTreeMap<Arc<ObjectId>, bool>,
    /// Objects waiting or in hand, by zone, and whether any was written.
    zones: BTreeMap<ZoneKey, (usize, bool)>,
    workers: usize,
    /// Statuses that read back otherwise than written, because somebody else owns a field: wanted and seen hash.
    futile: BTreeMap<Arc<ObjectId>, (u64, u64)>,
}

/// What became of one object.
enum Finished {
    /// As it should be; true when something was written.
    Yes(bool),
    /// The finalizer is on; the status is for its next turn.
    Held,
    /// To be tried again after this long.
    Later(Duration),
}

impl Finisher {
    pub(crate) fn new(
        world: &Arc<World>,
        writer: Writer,
        recorder: Recorder,
        zones: Zones,
        clock: Arc<dyn Clock>,
        figures: Figures,
    ) -> Self {
        let inner =
            Inner { world: Arc::downgrade(world), writer, recorder, zones, clock, figures, line: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Puts objects in line and makes sure somebody works on it.
    pub(crate) fn enqueue(&self, objects: Vec<(Arc<ObjectId>, ZoneKey)>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let start = {
            let mut line = self.lock();
            for (id, zone) in objects {
                if let Some(again) = line.in_hand.get_mut(&id) {
                    *again = true;
                } else if line.queued.insert(id.clone()) {
                    line.zones.entry(zone.clone()).or_default().0 += 1;
                    line.waiting.push_back((id, zone));
                }
            }
            let start = line.waiting.len().min(WORKERS.saturating_sub(line.workers));
            line.workers += start;
            start
        };
        for _ in 0..start {
            let finisher = self.clone();
            runtime.spawn(async move { finisher.work().await });
        }
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, id: &ObjectId) {
        self.lock().futile.remove(id);
    }

    /// Tells the writer what status a zone object has, so that it is not taken for the one that was written last.
    pub(crate) fn saw_zone_status<K: Resource<DynamicType = ()>>(&self, object: &K, status: &ZoneStatus) {
        if let Ok(status) = serde_json::to_value(status) {
            self.inner.writer.known_status(object, &status);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.inner.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(self) {
        loop {
            let next = {
                let mut line = self.lock();
                let next = line.waiting.pop_front();
                match &next {
                    Some((id, _)) => {
                        line.queued.remove(id);
                        line.in_hand.insert(id.clone(), false);
                    }
                    None => line.workers -= 1,
                }
                next
            };
            let Some((id, zone)) = next else { return };
            let (wrote, later) = match self.finish(&id).await {
                Finished::Yes(wrote) => (wrote, None),
                Finished::Later(after) => (false, Some(after)),
                Finished::Held => {
                    self.stay(id, zone);
                    continue;
                }
            };
            let again = self.lock().in_hand.remove(&id).unwrap_or(false);
            if let Some(after) = later {
                let finisher = self.clone();
                let (id, zone) = (id.clone(), zone.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    finisher.enqueue(vec![(id, zone)]);
                });
            } else if again {
                self.enqueue(vec![(id.clone(), zone.clone())]);
            }
            self.leave(&id, zone, wrote);
        }
    }

    /// Goes to the end of the line without leaving it.
    fn stay(&self, id: Arc<ObjectId>, zone: ZoneKey) {
        let mut line = self.lock();
        line.in_hand.remove(&id);
        line.zones.entry(zone.clone()).or_default().1 = true;
        line.queued.insert(id.clone());
        line.waiting.push_back((id, zone));
    }

    fn leave(&self, id: &Arc<ObjectId>, zone: ZoneKey, wrote: bool) {
        let settled = {
            let mut line = self.lock();
            let Some((count, any)) = line.zones.get_mut(&zone) else { return };
            *count = count.saturating_sub(1);
            *any |= wrote;
            let settled = *count == 0 && *any;
            if *count == 0 {
                line.zones.remove(&zone);
            }
            settled
        };
        if settled {
            self.inner.zones.touch_after(zone, Touch::One(id.clone()), SETTLE);
        }
    }

    async fn finish(&self, id: &Arc<ObjectId>) -> Finished {
        let mut wrote = false;
        for attempt in 0..8 {
            let Some(world) = self.inner.world.upgrade() else { return Finished::Yes(wrote) };
            let Some(record) = world.record(id) else { return Finished::Yes(wrote) };
            let Some(verdict) = record.verdict.as_deref() else { return Finished::Yes(wrote) };
            let identity = &record.identity;
            let mut wanted = None;
            let write = if verdict.release && identity.deleting {
                if !identity.is_kept_by_us() {
                    return Finished::Yes(wrote);
                }
                metadata(identity, false)
            } else if record.applied().is_some() && !identity.held && !identity.deleting {
                metadata(identity, true)
            } else {
                let status = report::record_status(&record, verdict, self.inner.clock.now());
                let hashes = (meaning_hash(&status), record.seen.hash);
                if hashes.0 == hashes.1 || self.lock().futile.get(id) == Some(&hashes) {
                    return Finished::Yes(wrote);
                }
                wanted = Some(hashes.0);
                // What is seen is never older than what was written from here: the writer's own memory adds nothing.
                self.inner.writer.forget(id);
                let Ok(status) = serde_json::to_value(&status) else { return Finished::Yes(wrote) };
                object_status(identity, status)
            };
            match self.inner.writer.write(&write).await {
                Ok(answer) => {
                    wrote = true;
                    world.written(id, answer);
                    if let Some(wanted) = wanted {
                        self.announce(&record, verdict);
                        self.note_futile(&world, id, wanted);
                        return Finished::Yes(true);
                    }
                    if world.record(id).is_some_and(|record| record.identity.held) {
                        return Finished::Held;
                    }
                }
                Err(WriteError::Gone) => return Finished::Yes(wrote),
                Err(WriteError::Conflict) => tokio::time::sleep(Duration::from_millis(10 << attempt)).await,
                Err(WriteError::Throttled(after)) => return Finished::Later(after.unwrap_or(Duration::from_secs(1))),
                Err(WriteError::Transient(_)) => return Finished::Later(Duration::from_secs(2)),
                Err(WriteError::Forbidden(_)) => return Finished::Later(Duration::from_mins(1)),
                Err(WriteError::Invalid(why)) => {
                    tracing::error!(object = %id, why, "the API server refuses a status");
                    return Finished::Yes(wrote);
                }
            }
        }
        Finished::Later(Duration::from_secs(5))
    }

    /// A status that does not read back as it was written is not written again and again.
    fn note_futile(&self, world: &World, id: &Arc<ObjectId>, wanted: u64) {
        let seen = world.record(id).map(|record| record.seen.hash);
        let mut line = self.lock();
        match seen {
            Some(seen) if seen != wanted => line.futile.insert(id.clone(), (wanted, seen)),
            _ => line.futile.remove(id),
        };
    }

    /// A refusal is said in an event, in the log and in a metric, once per change of the status.
    fn announce(&self, record: &Record, verdict: &Verdict) {
        let identity = &record.identity;
        let notice = verdict.notice.as_ref().filter(|notice| record.seen.notice != Some(notice.reason));
        let Some(refusal) = verdict.says.refusal().or(notice) else { return };
        self.inner.figures.refused(refusal.reason);
        tracing::info!(object = %identity.id, reason = refusal.reason.as_str(), message = refusal.message, "refused");
        self.inner.recorder.record(warning(identity, refusal.reason.as_str(), &refusal.message));
    }
}

/// A warning about an object.
pub(crate) fn warning(identity: &Identity, reason: &str, note: &str) -> Event {
    Event { object: reference(identity), kind: EventKind::Warning, reason: reason.to_owned(), note: note.to_owned() }
}

pub(crate) fn reference(identity: &Identity) -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(identity.id.kind.to_owned()),
        namespace: identity.id.namespace.clone(),
        name: Some(identity.id.name.clone()),
        uid: Some(identity.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// Puts our finalizer on, or takes everything of ours off.
pub(crate) fn metadata(identity: &Identity, ours: bool) -> ObjectWrite {
    let mut patch = json!({ "finalizers": identity.finalizers_with(ours) });
    if identity.version != 0 {
        patch["resourceVersion"] = json!(identity.version.to_string());
    }
    let (id, uid) = ((*identity.id).clone(), identity.uid.to_string());
    match identity.id.kind {
        "RRset" => ObjectWrite::metadata::<RRset>(id, uid, patch),
        "ClusterRRset" => ObjectWrite::metadata::<ClusterRRset>(id, uid, patch),
        "Zone" => ObjectWrite::metadata::<signpost_apis::powerdns::Zone>(id, uid, patch),
        _ => ObjectWrite::metadata::<signpost_apis::powerdns::ClusterZone>(id, uid, patch),
    }
}

/// The whole status of an object.
pub(crate) fn object_status(identity: &Identity, status: serde_json::Value) -> ObjectWrite {
    let (id, uid) = ((*identity.id).clone(), identity.uid.to_string());
    match identity.id.kind {
        "RRset" => ObjectWrite::status::<RRset>(id, uid, status),
        "ClusterRRset" => ObjectWrite::status::<ClusterRRset>(id, uid, status),
        "Zone" => ObjectWrite::status::<signpost_apis::powerdns::Zone>(id, uid, status),
        _ => ObjectWrite::status::<signpost_apis::powerdns::ClusterZone>(id, uid, status),
    }
}
