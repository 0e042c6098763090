//! The only way to the API server's write verbs.
//!
//! ```text
//!  submit(write) ─► lane per (object, status | metadata), latest wins ─► at most 16 at once ─► PATCH
//!  write(write) ──────────────────────────────────────────────────────►        │
//!                    skipped when the server is known to have that status ◄────┘
//! ```
//!
//! Every patch carries the object's uid: an object that was deleted is never made again by a write, and metadata meant for it never
//! reaches another object of the same name; the write ends as [`WriteError::Gone`]. Submitted writes are retried here by the class of their failure until they are done, replaced
//! by a newer one or pointless.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use kube::{
    Client, Resource,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, Request, request::Error as RequestError},
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
    hub::Need,
    lease::Fence,
    metrics::Metrics,
    object::ObjectId,
    queue::{jittered, transient_delay},
    rights::{Right, Rights, resource_name},
};

mod child;
mod error;
pub use child::{Child, ChildApplied, ChildDeleted, ChildError, Proof};
pub use error::WriteError;

/// The field manager of everything this operator applies.
pub const FIELD_MANAGER: &str = "signpost";

/// One Kubernetes write.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectWrite {
    /// Which object.
    pub id: ObjectId,
    /// Which life of that object.
    pub uid: String,
    /// Its API resource.
    pub resource: ApiResource,
    /// What to write.
    pub patch: ObjectPatch,
}

/// What is written.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectPatch {
    /// The whole status, by server-side apply as `signpost`, forced.
    Status(Value),
    /// A merge patch of `metadata` (finalizers, annotations, labels). With a `resourceVersion` in it, the write is refused
    /// ([`WriteError::Conflict`]) when the object has changed since.
    Metadata(Value),
}

impl ObjectWrite {
    /// A write of the whole status of a `K`.
    pub fn status<K: Resource<DynamicType = ()>>(id: ObjectId, uid: impl Into<String>, status: Value) -> Self {
        Self { id, uid: uid.into(), resource: ApiResource::erase::<K>(&()), patch: ObjectPatch::Status(status) }
    }

    /// A merge patch of the metadata of a `K`.
    pub fn metadata<K: Resource<DynamicType = ()>>(id: ObjectId, uid: impl Into<String>, metadata: Value) -> Self {
        Self { id, uid: uid.into(), resource: ApiResource::erase::<K>(&()), patch: ObjectPatch::Metadata(metadata) }
    }

    fn lane(&self) -> Lane {
        match self.patch {
            ObjectPatch::Status(_) => Lane::Status,
            ObjectPatch::Metadata(_) => Lane::Metadata,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Status,
    Metadata,
}

/// How the writer behaves.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Requests at the same time.
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
    permits: Semaphore,
    state: Mutex<State>,
    /// Something left a lane.
    moved: Notify,
    stop: CancellationToken,
    fence: Fence,
    rights: Rights,
    metrics: Metrics,
}

struct State {
    /// Lanes that have a task.
    lanes: BTreeMap<(ObjectId, Lane), InLane>,
    /// What status the API server has, as far as known: object → (life, status), all hashed.
    known: HashMap<u64, Known>,
    rng: StdRng,
}

/// What the task of a lane is told.
struct InLane {
    next: Next,
    /// Wakes the task that waits to try again.
    overtaken: Arc<Notify>,
}

/// What the task of a lane does when its request has ended.
enum Next {
    /// What it has in hand, until that is done.
    Same,
    /// This instead.
    Newer(Box<ObjectWrite>),
    /// Nothing: another write takes its place.
    Nothing,
}

#[derive(Clone, Copy)]
struct Known {
    uid: u64,
    status: u64,
    /// The version of the object that has it; 0 when that is not known.
    version: u64,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer on `client`. The client must not retry by itself (see [`crate::client::connect`]).
    ///
    /// It writes only while `fence` is open, and says in `health` which right it lacks.
    pub fn new(client: Client, options: WriterOptions, fence: Fence, health: Health, metrics: Metrics) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                options,
                permits: Semaphore::new(options.concurrency.max(1)),
                state: Mutex::new(State {
                    lanes: BTreeMap::new(),
                    known: HashMap::new(),
                    rng: StdRng::seed_from_u64(options.seed),
                }),
                moved: Notify::new(),
                stop: CancellationToken::new(),
                fence,
                rights: Rights::new(health),
                metrics,
            }),
        }
    }

    /// Hands over a write and returns at once. A newer write of the same object and lane replaces one that has not started.
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

    /// Writes and waits for the answer. A status the server is known to have is not sent; the answer is then `null`.
    ///
    /// Short failures are retried a few times; what is left is the caller's to plan for.
    pub async fn write(&self, write: &ObjectWrite) -> Result<Value, WriteError> {
        if write.lane() == Lane::Status {
            self.overtake(write).await;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match self.send(write).await {
                Err(WriteError::Transient(_)) if tries < 3 => {
                    let delay = self.delay(tries);
                    tokio::time::sleep(delay).await;
                }
                answer => return answer,
            }
        }
    }

    /// Writes all of them, at most as many at once as the writer allows, and returns the answers in the same order.
    pub async fn write_all(&self, writes: Vec<ObjectWrite>) -> Vec<Result<Value, WriteError>> {
        let concurrency = self.inner.options.concurrency.max(1);
        stream::iter(writes)
            .map(|write| {
                let writer = self.clone();
                async move { writer.write(&write).await }
            })
            .buffered(concurrency)
            .collect()
            .await
    }

    /// Tells the writer what status the API server has, so that writing the same again is skipped. Indexes call it from `applied`, with
    /// the status as they would write it. A version older than one written from here says nothing new and is ignored.
    pub fn known_status<K: Resource<DynamicType = ()>>(&self, object: &K, status: &Value) {
        let meta = object.meta();
        let version = meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0);
        self.lock().know(&ObjectId::of(object), meta.uid.as_deref().unwrap_or_default(), version, status);
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, id: &ObjectId) {
        self.lock().known.remove(&hash_of(id));
    }

    /// Waits until everything submitted is written or given up.
    pub async fn drain(&self) {
        loop {
            let moved = self.inner.moved.notified();
            if self.lock().lanes.is_empty() {
                return;
            }
            moved.await;
        }
    }

    /// Drops what is waiting and refuses everything from now on.
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

    /// Makes sure no older status of the same object is sent after the one in hand: waits for a request that is under way, since nobody
    /// knows when it takes effect, and for no other try of it.
    async fn overtake(&self, write: &ObjectWrite) {
        let lane = (write.id.clone(), Lane::Status);
        loop {
            let moved = self.inner.moved.notified();
            match self.lock().lanes.get_mut(&lane) {
                Some(there) => {
                    there.next = Next::Nothing;
                    there.overtaken.notify_one();
                }
                None => return,
            }
            moved.await;
        }
    }

    async fn work_off(&self, lane: &(ObjectId, Lane), overtaken: &Notify) {
        let mut current: Option<ObjectWrite> = None;
        let mut attempt = 0;
        loop {
            {
                let mut state = self.lock();
                let Some(there) = state.lanes.get_mut(lane) else { return };
                match std::mem::replace(&mut there.next, Next::Same) {
                    Next::Same => {}
                    Next::Newer(newer) => current = Some(*newer),
                    Next::Nothing => current = None,
                }
                if current.is_none() {
                    // Removed under the same lock that found it empty, so that no submit can fall between.
                    state.lanes.remove(lane);
                    return;
                }
            }
            let Some(write) = &current else { return };
            match self.send(write).await {
                Ok(_) => {
                    current = None;
                    attempt = 0;
                }
                Err(error) => {
                    attempt += 1;
                    if let Some(delay) = self.retry_delay(&error, lane.1, attempt) {
                        tracing::debug!(object = %write.id, error = %error, "write will be tried again");
                        // Woken up or not, what to do next stands in the lane.
                        let _ = timeout(delay, overtaken.notified()).await;
                    } else {
                        if error != WriteError::Gone {
                            tracing::warn!(object = %write.id, error = %error, "write given up");
                        }
                        current = None;
                        attempt = 0;
                    }
                }
            }
        }
    }

    fn retry_delay(&self, error: &WriteError, lane: Lane, attempt: u32) -> Option<Duration> {
        match error {
            WriteError::Gone | WriteError::Invalid(_) => None,
            WriteError::Conflict if lane == Lane::Metadata => None,
            WriteError::Conflict | WriteError::Transient(_) => Some(self.delay(attempt)),
            WriteError::Throttled(after) => {
                let asked = after.unwrap_or(Duration::from_secs(1));
                Some(asked + jittered(Duration::from_millis(250), &mut self.lock().rng))
            }
            // Rights may be given later; until then there is no hurry.
            WriteError::Forbidden(_) => Some(jittered(Duration::from_mins(1), &mut self.lock().rng)),
        }
    }

    async fn send(&self, write: &ObjectWrite) -> Result<Value, WriteError> {
        let _permit = self.inner.permits.acquire().await;
        if self.inner.stop.is_cancelled() {
            return Err(WriteError::Transient("the writer is closed".to_owned()));
        }
        if !self.inner.fence.is_open() {
            return Err(WriteError::Transient("this replica does not lead any more".to_owned()));
        }
        if self.lock().has_status(write) {
            self.inner.metrics.writes("unchanged");
            return Ok(Value::Null);
        }
        let answer = match self.request(write).await {
            // A status is taken whatever uid comes with it: only the answer tells that the object is another one by now. Its own status
            // is written when its own pass ends, which is after this.
            Ok(object) if object.pointer("/metadata/uid").is_some_and(|uid| *uid != write.uid.as_str()) => {
                Err(WriteError::Gone)
            }
            answer => answer,
        };
        match &answer {
            Ok(object) => {
                if let ObjectPatch::Status(status) = &write.patch {
                    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                    let version = version.and_then(|version| version.parse().ok()).unwrap_or(0);
                    self.lock().know(&write.id, &write.uid, version, status);
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
        let ObjectWrite { id, uid, resource, patch } = write;
        let url = DynamicObject::url_path(resource, id.namespace.as_deref());
        let request = Request::new(url);
        let built = match patch {
            ObjectPatch::Status(status) => {
                let mut metadata = json!({ "name": id.name, "uid": uid });
                if let Some(namespace) = &id.namespace {
                    metadata["namespace"] = json!(namespace);
                }
                let body = json!({
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "metadata": metadata,
                    "status": status,
                });
                let params = PatchParams::apply(FIELD_MANAGER).force();
                request.patch_subresource("status", &id.name, &params, &Patch::Apply(body))
            }
            ObjectPatch::Metadata(metadata) => {
                let mut metadata = metadata.clone();
                metadata["uid"] = json!(uid);
                let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                request.patch(&id.name, &params, &Patch::Merge(json!({ "metadata": metadata })))
            }
        };
        let (name, subresource) = match patch {
            ObjectPatch::Status(_) => ("patch_status", "status"),
            ObjectPatch::Metadata(_) => ("patch", ""),
        };
        self.answer(built, name, &[right("patch", resource, subresource)]).await
    }

    /// The answer to a request that needs these rights.
    async fn answer(
        &self,
        request: Result<http::Request<Vec<u8>>, RequestError>,
        name: &'static str,
        rights: &[Right],
    ) -> Result<Value, WriteError> {
        let mut request = request.map_err(|error| WriteError::Invalid(error.to_string()))?;
        request.extensions_mut().insert(name);
        let deadline = self.inner.options.deadline;
        let answer = match timeout(deadline, self.inner.client.request::<Value>(request)).await {
            Ok(answer) => answer.map_err(WriteError::from),
            Err(_) => Err(WriteError::Transient(format!("no answer within {deadline:?}"))),
        };
        for right in rights {
            self.inner.rights.heard(right, &answer);
        }
        answer
    }
}

/// What it takes to write.
fn right(verb: &'static str, resource: &ApiResource, subresource: &'static str) -> Right {
    Right { verb, resource: resource_name(&resource.plural, &resource.group), subresource, need: Need::Required }
}

impl State {
    fn has_status(&self, write: &ObjectWrite) -> bool {
        let ObjectPatch::Status(status) = &write.patch else { return false };
        self.known
            .get(&hash_of(&write.id))
            .is_some_and(|known| known.uid == hash_of(&write.uid) && known.status == hash_value(status))
    }

    fn know(&mut self, id: &ObjectId, uid: &str, version: u64, status: &Value) {
        let known = Known { uid: hash_of(uid), status: hash_value(status), version };
        let place = self.known.entry(hash_of(id)).or_insert(known);
        if place.uid != known.uid || place.version <= version || version == 0 {
            *place = known;
        }
    }
}

fn hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A hash of a JSON value that does not depend on the order of keys or on transition times, and takes a missing field and `null` for the
/// same.
fn hash_value(value: &Value) -> u64 {
    fn feed(value: &Value, hasher: &mut DefaultHasher) {
        match value {
            Value::Null => 0_u8.hash(hasher),
            Value::Bool(flag) => (1_u8, flag).hash(hasher),
            Value::Number(number) => (2_u8, number.to_string()).hash(hasher),
            Value::String(text) => (3_u8, text).hash(hasher),
            Value::Array(items) => {
                (4_u8, items.len()).hash(hasher);
                for item in items {
                    feed(item, hasher);
                }
            }
            Value::Object(fields) => {
                // When a condition came about is no news by itself: two passes that each saw an older status than the other wrote would
                // otherwise put their times in each other's place for ever.
                let counts = |name: &str, value: &Value| !value.is_null() && name != "lastTransitionTime";
                let mut present: Vec<_> = fields.iter().filter(|(name, value)| counts(name, value)).collect();
                present.sort_by_key(|(name, _)| *name);
                (5_u8, present.len()).hash(hasher);
                for (name, value) in present {
                    name.hash(hasher);
                    feed(value, hasher);
                }
            }
        }
    }
    let mut hasher = DefaultHasher::new();
    feed(value, &mut hasher);
    hasher.finish()
}
