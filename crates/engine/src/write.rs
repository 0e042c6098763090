//! The writer: every write to the API server, except those of the lease and of events.
//!
//! ```text
//!  submit(write) ─► lane per (object, status | metadata), latest wins ─► a turn (`pace`) ─► PATCH
//!  write(write) ────────────────────────► at most 16 at once, beside the turns ───────────►  │
//!                    skipped when the server is known to have that status ◄──────────────────┘
//! ```
//!
//! Every patch carries the object's UID: a write does not create a deleted object again, and metadata meant for it does not reach another
//! object of the same name. Both end as [`WriteError::Gone`]. Submitted writes are retried by the class of their error until they succeed,
//! are replaced by a newer one or cannot succeed.
//!
//! Statuses are applied under a field manager of ours, so a system may write a part of a status (one list of an Ingress) and owns only what
//! it sends. Two systems that write parts of one status each need a manager of their own: see [`ObjectWrite::owned_by`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::{
    Client, Resource as _,
    api::{DynamicObject, Patch, PatchParams},
    core::{Request, request::Error as RequestError},
};
use rand::{SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    health::Health,
    hub::{Compared, Need},
    lease::Fence,
    metrics::Metrics,
    object::{Identity, Kind, ObjectId},
    permissions::{Permission, Permissions},
    queue::{jittered, transient_delay},
};

mod child;
mod error;
mod known;
pub(crate) mod owned;
mod pace;
pub use child::{Child, ChildApplied, ChildDeleted, ChildError, Proof};
pub use error::WriteError;
use known::{Digest, Part};
pub(crate) use pace::{Turn, TurnQueue};

/// The field manager of everything this operator applies.
pub const FIELD_MANAGER: &str = "signpost";
/// How often a write that a caller waits for is sent while the errors are transient.
pub(crate) const TRIES: u32 = 3;
/// A write that failed this often in a row is in the log, once.
pub(crate) const REPORTED: u32 = 3;

/// One Kubernetes write.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectWrite {
    /// Which object.
    pub id: Arc<ObjectId>,
    /// The UID of the object.
    pub uid: Arc<str>,
    /// The content.
    pub patch: ObjectPatch,
    /// The part of the operator that owns the written fields; empty for the default.
    pub owner: &'static str,
    /// The system that writes. Metadata of one object that two systems write is queued apart.
    pub system: &'static str,
}

/// The content of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectPatch {
    /// A status, or a part of one, by server-side apply, forced.
    Status(Value),
    /// A merge patch of `metadata` (finalizers, annotations, labels). With a `resourceVersion` in it, the API server rejects the write
    /// ([`WriteError::Conflict`]) when the object has changed since.
    Metadata(Value),
}

impl ObjectWrite {
    /// A status, or the part of it that is ours. Fields that were applied before and are not in it any more are removed.
    pub fn status(identity: &Identity, status: Value) -> Self {
        Self::new(identity, ObjectPatch::Status(status))
    }

    /// A merge patch of the metadata.
    pub fn metadata(identity: &Identity, metadata: Value) -> Self {
        Self::new(identity, ObjectPatch::Metadata(metadata))
    }

    /// Exactly these finalizers, unless the object has changed since.
    pub fn finalizers(identity: &Identity, finalizers: &[String]) -> Self {
        let mut metadata = json!({ "finalizers": finalizers });
        if identity.version != 0 {
            metadata["resourceVersion"] = json!(identity.version.to_string());
        }
        Self::metadata(identity, metadata)
    }

    fn new(identity: &Identity, patch: ObjectPatch) -> Self {
        Self { id: identity.id.clone(), uid: identity.uid.clone(), patch, owner: "", system: "" }
    }

    /// The same, owned by a part of the operator with a field manager of its own (`signpost-OWNER`), so that two parts can write to one
    /// status.
    #[must_use]
    pub fn owned_by(mut self, owner: &'static str) -> Self {
        self.owner = owner;
        self
    }

    /// The same, queued with the other writes of this system. It replaces queued metadata of the same object by the same system only.
    #[must_use]
    pub fn by_system(mut self, system: &'static str) -> Self {
        self.system = system;
        self
    }

    /// Whether it writes a status.
    pub(crate) fn is_status(&self) -> bool {
        matches!(self.patch, ObjectPatch::Status(_))
    }

    fn lane(&self) -> Lane {
        match self.patch {
            ObjectPatch::Status(_) => Lane::Status(self.owner),
            ObjectPatch::Metadata(_) => Lane::Metadata(self.system),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Status(&'static str),
    Metadata(&'static str),
}

/// How the writer behaves.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Turns at the same time for statuses and submitted writes, and as many requests of other writes beside them.
    pub concurrency: usize,
    /// Longest time for one request.
    pub deadline: Duration,
    /// Seed of the jitter between tries.
    pub seed: u64,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { concurrency: 16, deadline: Duration::from_secs(10), seed: 0 }
    }
}

/// Writes objects. Cloning gives another handle to the same writer.
#[derive(Clone)]
pub struct Writer {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    options: WriterOptions,
    /// For writes that are not made in a turn: children, and what a caller waits for. Statuses that hang cannot take them.
    permits: Semaphore,
    pace: Arc<pace::Pace>,
    state: Mutex<State>,
    /// A lane was removed.
    moved: Notify,
    /// Failed writes are not tried again.
    draining: CancellationToken,
    stop: CancellationToken,
    fence: Fence,
    permissions: Permissions,
    metrics: Metrics,
}

struct State {
    /// Lanes that have a task.
    lanes: BTreeMap<(Arc<ObjectId>, Lane), InLane>,
    /// The API server's state of the fields that we applied.
    known: known::Table,
    /// Statuses whose last answer was lost. They are sent again although the watch may show that the server has them: who reports what is in
    /// a status waits for the answer.
    unanswered: BTreeMap<Arc<ObjectId>, BTreeSet<Lane>>,
    rng: StdRng,
}

/// The state of a lane that has a task.
struct InLane {
    next: Next,
    /// Wakes the task that waits for a retry.
    overtaken: Arc<Notify>,
}

/// The next write of a lane when its request has ended.
enum Next {
    /// The same write, until it is done.
    Same,
    /// This write instead.
    Newer(Box<ObjectWrite>),
    /// None: another write takes its place.
    Nothing,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer on `client`. The client must not retry by itself (see [`crate::client::connect`]).
    ///
    /// It writes only while `fence` is open, and reports in `health` which permission it lacks.
    pub fn new(client: Client, options: WriterOptions, fence: Fence, health: Health, metrics: Metrics) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                options,
                permits: Semaphore::new(options.concurrency.max(1)),
                pace: Arc::new(pace::Pace::new(options.concurrency)),
                state: Mutex::new(State {
                    lanes: BTreeMap::new(),
                    known: known::Table::default(),
                    unanswered: BTreeMap::new(),
                    rng: StdRng::seed_from_u64(options.seed),
                }),
                moved: Notify::new(),
                draining: CancellationToken::new(),
                stop: CancellationToken::new(),
                fence,
                permissions: Permissions::new(health),
                metrics,
            }),
        }
    }

    /// Queues a write and returns at once. A newer write of the same object and lane replaces a queued one.
    pub fn submit(&self, write: ObjectWrite) {
        if self.inner.stop.is_cancelled() {
            return;
        }
        let lane = (write.id.clone(), write.lane());
        let overtaken = Arc::new(Notify::new());
        {
            let mut state = self.lock();
            if let Some(there) = state.lanes.get_mut(&lane) {
                there.next = Next::Newer(Box::new(write));
                return;
            }
            if state.has_status(&write) {
                self.inner.metrics.writes("unchanged");
                return;
            }
            state
                .lanes
                .insert(lane.clone(), InLane { next: Next::Newer(Box::new(write)), overtaken: overtaken.clone() });
        }
        let writer = self.clone();
        tokio::spawn(async move {
            let stop = writer.inner.stop.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => { writer.lock().lanes.remove(&lane); }
                () = writer.work_off(&lane, &overtaken) => {}
            }
            writer.inner.moved.notify_waiters();
        });
    }

    /// Writes and waits for the answer. A status the server is known to have is not sent; the answer is then `null`. A queued write of the
    /// same lane is older and is dropped.
    ///
    /// Transient errors are retried a few times; the caller has to handle the rest.
    pub async fn write(&self, write: &ObjectWrite) -> Result<Value, WriteError> {
        self.try_write(write, TRIES, Some(&self.inner.permits)).await
    }

    /// Writes, at most this often while the errors are transient.
    async fn try_write(
        &self,
        write: &ObjectWrite,
        tries: u32,
        permits: Option<&Semaphore>,
    ) -> Result<Value, WriteError> {
        self.overtake(&(write.id.clone(), write.lane())).await;
        let mut tried = 0;
        loop {
            tried += 1;
            let permit = match permits {
                Some(permits) => permits.acquire().await.ok(),
                None => None,
            };
            let answer = self.send(write).await;
            drop(permit);
            match answer {
                Err(WriteError::Transient(_)) if tried < tries => {
                    let delay = self.delay(tried);
                    tokio::time::sleep(delay).await;
                }
                answer => return answer,
            }
        }
    }

    /// Waits for a turn to write a status: few at a time while many objects arrive, or while the API server's answers get slower.
    pub(crate) async fn turn(&self, queue: TurnQueue) -> Turn {
        self.inner.pace.turn(queue).await
    }

    /// A turn for a status that a caller waits for.
    pub(crate) fn turn_now(&self) -> Turn {
        self.inner.pace.turn_now()
    }

    /// Declares a kind whose status is written here, and its fields that only record when something happened.
    pub(crate) fn reported(&self, kind: &'static Kind, times: &[&'static str]) {
        self.lock().known.reported(kind, times);
    }

    /// Declares a part of the operator that owns fields of statuses (see [`ObjectWrite::owned_by`]): what it applied is known from the
    /// first list on.
    pub fn status_owner(&self, owner: &'static str) {
        self.lock().known.owner(owner);
    }

    /// Whether the API server has fields of a status that this part of the operator applied.
    pub fn owns_status(&self, id: &ObjectId, owner: &'static str) -> bool {
        self.lock().known.owns(id, Part::status(owner))
    }

    /// Notes an object that the watch delivered. `applied` is the object where it has fields of ours.
    pub(crate) fn saw(
        &self,
        id: &ObjectId,
        uid: &str,
        version: u64,
        deleting: bool,
        applied: Option<&Value>,
        compared: Compared,
    ) {
        self.lock().known.saw(id, uid, (version, deleting), applied, compared);
    }

    /// Notes an object that was read whole, `managedFields` included.
    pub fn saw_object(&self, id: &ObjectId, object: &Value) {
        let text = |field: &str| object["metadata"][field].as_str();
        let version = crate::object::version_of(text("resourceVersion"));
        let deleting = text("deletionTimestamp").is_some();
        let compared = Compared { status: true, whole: true };
        self.saw(id, text("uid").unwrap_or_default(), version, deleting, Some(object), compared);
    }

    /// Whether what a stream delivers of a kind of children is complete and current. The namespace is `None` for all namespaces.
    pub(crate) fn view_of(&self, kind: &'static Kind, stream: &'static str, namespace: Option<&str>, current: bool) {
        self.lock().known.view_of(kind, stream, namespace, current);
    }

    /// A stream's list of a kind of children is complete, in this version. Returns whether children that only our own writes have shown are
    /// not in it.
    pub(crate) fn listed(&self, kind: &'static Kind, stream: &'static str, version: u64) -> bool {
        self.lock().known.listed(kind, stream, version)
    }

    /// A user created or changed an object: fewer statuses are written while many arrive.
    pub(crate) fn object_arrived(&self) {
        self.inner.pace.arrived();
    }

    /// Forgets an object that is deleted.
    pub fn forget(&self, id: &ObjectId) {
        let mut state = self.lock();
        state.known.forget(id);
        state.unanswered.remove(id);
    }

    /// The cluster was restored from an older state: forgets what is known of it.
    pub(crate) fn rewound(&self) {
        self.lock().known.clear();
    }

    /// Ends the submitted writes before this replica stops. A write that failed is not tried again: another replica waits for the lease, and
    /// writes it.
    pub async fn drain(&self) {
        self.inner.draining.cancel();
        self.idle().await;
    }

    /// Waits until everything submitted is written or given up.
    pub async fn idle(&self) {
        loop {
            let moved = self.inner.moved.notified();
            if self.lock().lanes.is_empty() {
                return;
            }
            moved.await;
        }
    }

    /// Drops queued writes and rejects new ones from now on.
    pub fn close(&self) {
        self.inner.stop.cancel();
    }

    /// True while this replica leads and is not stopping.
    pub fn may_write(&self) -> bool {
        !self.inner.stop.is_cancelled() && self.inner.fence.is_open()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self, attempt: u32) -> Duration {
        transient_delay(attempt, &mut self.lock().rng)
    }

    /// Makes sure that no older write of the same lane is sent after this one: waits for a request in progress, whose effect may come
    /// late, and cancels its retries.
    async fn overtake(&self, lane: &(Arc<ObjectId>, Lane)) {
        loop {
            let moved = self.inner.moved.notified();
            match self.lock().lanes.get_mut(lane) {
                Some(there) => {
                    there.next = Next::Nothing;
                    there.overtaken.notify_one();
                }
                None => return,
            }
            moved.await;
        }
    }

    /// Takes the newest write of a lane; an empty lane is removed.
    fn newest(&self, lane: &(Arc<ObjectId>, Lane), current: &mut Option<ObjectWrite>) {
        let mut state = self.lock();
        match state.lanes.get_mut(lane).map(|there| std::mem::replace(&mut there.next, Next::Same)) {
            Some(Next::Same) => {}
            Some(Next::Newer(newer)) => *current = Some(*newer),
            Some(Next::Nothing) | None => *current = None,
        }
        if current.is_none() {
            // Removed under the same lock that found it empty, so that no submit can come in between.
            state.lanes.remove(lane);
        }
    }

    async fn work_off(&self, lane: &(Arc<ObjectId>, Lane), overtaken: &Notify) {
        let draining = &self.inner.draining;
        let mut current: Option<ObjectWrite> = None;
        let mut failures = 0;
        loop {
            self.newest(lane, &mut current);
            let Some(system) = current.as_ref().map(|write| write.system) else { return };
            let turn = tokio::select! {
                biased;
                () = overtaken.notified() => continue,
                () = draining.cancelled(), if failures > 0 => {
                    (current, failures) = (None, 0);
                    continue;
                }
                turn = self.turn(TurnQueue::Submitted(system)) => turn,
            };
            // It may have been replaced while it waited for its turn.
            self.newest(lane, &mut current);
            let Some(write) = &current else { return };
            let answer = turn.timed(self.send(write)).await;
            drop(turn);
            let Err(error) = answer else {
                if failures >= REPORTED {
                    tracing::info!(object = %write.id, "a write that failed is done");
                }
                (current, failures) = (None, 0);
                continue;
            };
            // A busy server is not a failure of this write.
            let failed = !matches!(error, WriteError::Throttled(_));
            failures += u32::from(failed);
            let Some(delay) = self.retry_delay(&error, lane.1, failures) else {
                if error != WriteError::Gone {
                    tracing::warn!(object = %write.id, error = %error, "write given up");
                }
                (current, failures) = (None, 0);
                continue;
            };
            if failed && failures == REPORTED {
                tracing::warn!(object = %write.id, error = %error, "a write keeps failing; it will be retried");
            } else {
                tracing::debug!(object = %write.id, error = %error, "write will be retried");
            }
            tokio::select! {
                biased;
                () = draining.cancelled() => {
                    (current, failures) = (None, 0);
                }
                // Woken up or not, the lane has the next write.
                _ = timeout(delay, overtaken.notified()) => {}
            }
        }
    }

    fn retry_delay(&self, error: &WriteError, lane: Lane, attempt: u32) -> Option<Duration> {
        match error {
            WriteError::Gone | WriteError::Invalid(_) => None,
            WriteError::Conflict if matches!(lane, Lane::Metadata(_)) => None,
            WriteError::Conflict | WriteError::Transient(_) => Some(self.delay(attempt)),
            WriteError::Throttled(after) => {
                let asked = after.unwrap_or(Duration::from_secs(1));
                Some(asked + jittered(Duration::from_millis(250), &mut self.lock().rng))
            }
            // The permission may be granted later; until then there is no hurry.
            WriteError::Forbidden(_) => Some(jittered(Duration::from_mins(1), &mut self.lock().rng)),
        }
    }

    async fn send(&self, write: &ObjectWrite) -> Result<Value, WriteError> {
        if self.inner.stop.is_cancelled() {
            return Err(WriteError::Transient("the writer is closed".to_owned()));
        }
        if !self.inner.fence.is_open() {
            return Err(WriteError::Transient("this replica is no longer the leader".to_owned()));
        }
        if self.lock().has_status(write) {
            self.inner.metrics.writes("unchanged");
            return Ok(Value::Null);
        }
        let answer = match self.request(write).await {
            // The API server accepts a status with any UID: only the answer shows that the object is another one now. Its own status is
            // written when its own pass ends, which is after this.
            Ok(object) if object.pointer("/metadata/uid").is_some_and(|uid| *uid != *write.uid) => {
                Err(WriteError::Gone)
            }
            answer => answer,
        };
        if write.is_status() {
            self.lock().note_answer(write, &answer);
        }
        match &answer {
            Ok(object) => {
                let wanted = self.lock().wanted(write);
                if let Some((part, wanted)) = wanted {
                    self.lock().known.answered(&write.id, &write.uid, part, wanted, object);
                }
                self.inner.metrics.writes("written");
            }
            Err(error) => {
                if *error == WriteError::Gone {
                    self.forget(&write.id);
                }
                self.inner.metrics.writes(error.label());
            }
        }
        answer
    }

    async fn request(&self, write: &ObjectWrite) -> Result<Value, WriteError> {
        let ObjectWrite { id, uid, patch, owner, system: _ } = write;
        let url = DynamicObject::url_path(&id.kind.api_resource(), id.namespace.as_deref());
        let manager = owned::manager(owner);
        let request = Request::new(url);
        let built = match patch {
            ObjectPatch::Status(status) => {
                let mut metadata = json!({ "name": id.name, "uid": **uid });
                if let Some(namespace) = &id.namespace {
                    metadata["namespace"] = json!(namespace);
                }
                let mut body =
                    json!({ "apiVersion": id.kind.api_version(), "kind": id.kind.name, "metadata": metadata });
                // An empty one would still be owned.
                if *status != json!({}) {
                    body["status"] = status.clone();
                }
                let params = PatchParams::apply(&manager).force();
                request.patch_subresource("status", &id.name, &params, &Patch::Apply(body))
            }
            ObjectPatch::Metadata(metadata) => {
                let mut metadata = metadata.clone();
                metadata["uid"] = json!(**uid);
                let params = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
                request.patch(&id.name, &params, &Patch::Merge(json!({ "metadata": metadata })))
            }
        };
        let (name, subresource) = match patch {
            ObjectPatch::Status(_) => ("patch_status", "status"),
            ObjectPatch::Metadata(_) => ("patch", ""),
        };
        self.answer(built, name, &[permission("patch", id.kind, subresource)]).await
    }

    /// The answer to a request that needs these permissions.
    async fn answer(
        &self,
        request: Result<http::Request<Vec<u8>>, RequestError>,
        name: &'static str,
        permissions: &[Permission],
    ) -> Result<Value, WriteError> {
        let mut request = request.map_err(|error| WriteError::Invalid(error.to_string()))?;
        request.extensions_mut().insert(name);
        let deadline = self.inner.options.deadline;
        let answer = match timeout(deadline, self.inner.client.request::<Value>(request)).await {
            Ok(answer) => answer.map_err(WriteError::from),
            Err(_) => Err(WriteError::Transient(format!("no answer within {deadline:?}"))),
        };
        if let Err(WriteError::Throttled(Some(wait))) = &answer {
            self.inner.pace.pause(*wait);
        }
        for permission in permissions {
            self.inner.permissions.answered(permission, &answer);
        }
        answer
    }
}

/// The permission for a write.
fn permission(verb: &'static str, kind: &Kind, subresource: &'static str) -> Permission {
    Permission { verb, resource: kind.resource(), subresource, need: Need::Required }
}

impl State {
    /// The part that a write applies, and the digest of its content.
    fn wanted(&self, write: &ObjectWrite) -> Option<(Part, Digest)> {
        let ObjectPatch::Status(status) = &write.patch else { return None };
        let part = Part::status(write.owner);
        Some((part, self.known.digest_of_status(&write.id, status)))
    }

    /// Notes whether the answer to a status was lost.
    fn note_answer(&mut self, write: &ObjectWrite, answer: &Result<Value, WriteError>) {
        if matches!(answer, Err(WriteError::Transient(_))) {
            self.unanswered.entry(write.id.clone()).or_default().insert(write.lane());
        } else if let Some(lanes) = self.unanswered.get_mut(&write.id) {
            lanes.remove(&write.lane());
            if lanes.is_empty() {
                self.unanswered.remove(&write.id);
            }
        }
    }

    fn has_status(&self, write: &ObjectWrite) -> bool {
        if self.unanswered.get(&write.id).is_some_and(|lanes| lanes.contains(&write.lane())) {
            return false;
        }
        let Some((part, wanted)) = self.wanted(write) else { return false };
        self.known.has(&write.id, &write.uid, part, wanted)
            || (wanted == self.known.empty_status(&write.id) && self.known.has_nothing(&write.id, part))
    }
}
