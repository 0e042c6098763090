//! Kubernetes events, without repetition.
//!
//! In: events from reports. Out: core/v1 Events; the same object, reason and note within ten minutes counts up one event instead of making
//! another. Recording does not wait and does not fail a pass; memory and rate are bounded. Only the leader publishes.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event as CoreEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use crate::{
    clock::{Clock, whole_seconds},
    health::Health,
    hub::Need,
    lease::Fence,
    metrics::Metrics,
    permissions::{Permission, Permissions},
    write::{FIELD_MANAGER, WriteError},
};

/// An event that is repeated within this time increments the count of the first.
const WINDOW: Duration = Duration::from_mins(10);
/// The API server accepts no longer note.
const NOTE_LIMIT: usize = 1024;
/// Events that wait to be written; more are dropped. Half of the room is for Warnings alone, because a refusal is reported only once.
const WAITING: usize = 1_000;
/// Events that are remembered for counting up; the oldest are forgotten first.
const REMEMBERED: usize = 2_000;
/// Requests per second, and the size of a burst.
const RATE: f64 = 20.0;
const BURST: f64 = 100.0;
/// Longest time for one request.
const DEADLINE: Duration = Duration::from_secs(5);

/// A message for the owner of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The object it is about.
    pub object: ObjectReference,
    /// Good or bad.
    pub kind: EventKind,
    /// A reason from a closed list, in CamelCase.
    pub reason: String,
    /// A sentence for people. Cut at 1,024 bytes.
    pub note: String,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// The normal course of things.
    Normal,
    /// Something that needs attention.
    Warning,
}

impl EventKind {
    fn label(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Records events. Cloning gives another handle to the same recorder.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Entry>,
    metrics: Metrics,
}

/// An item of the queue.
#[derive(Debug)]
pub(crate) enum Entry {
    Event(Event),
    /// Not repeated while the API server still has it, even after a restart.
    Once(Event),
    /// Answered when everything before it is published or given up.
    Flush(oneshot::Sender<()>),
}

impl Recorder {
    /// Queues an event and returns at once. The event is dropped (and counted) when the queue is full, a Normal one when it is half full.
    pub fn record(&self, mut event: Event) {
        if event.kind == EventKind::Normal && self.queue.capacity() <= self.queue.max_capacity() / 2 {
            self.metrics.events("dropped");
            return;
        }
        cut(&mut event.note, NOTE_LIMIT);
        self.enqueue(Entry::Event(event));
    }

    /// Like [`Self::record`], for a problem that every start finds again: a restart does not repeat the event.
    pub(crate) fn record_once(&self, mut event: Event) {
        cut(&mut event.note, NOTE_LIMIT);
        self.enqueue(Entry::Once(event));
    }

    fn enqueue(&self, entry: Entry) {
        if self.queue.try_send(entry).is_err() {
            self.metrics.events("dropped");
        }
    }

    /// Waits until everything recorded so far is published or given up.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Entry::Flush(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

/// A recorder and its publisher.
pub(crate) fn recorder(
    client: Client,
    identity: &str,
    clock: Arc<dyn Clock>,
    fence: Fence,
    health: Health,
    metrics: Metrics,
) -> (Recorder, Publisher) {
    let (send, receive) = mpsc::channel(WAITING);
    let publisher = Publisher {
        queue: receive,
        client,
        identity: identity.to_owned(),
        clock,
        fence,
        permissions: Permissions::new(health),
        metrics: metrics.clone(),
        published: BTreeMap::new(),
        order: VecDeque::new(),
        tokens: BURST,
        refilled: Instant::now(),
        made: 0,
    };
    (Recorder { queue: send, metrics }, publisher)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message {
    uid: String,
    reason: String,
    note: String,
}

#[derive(Clone, Debug)]
struct Published {
    namespace: String,
    name: String,
    count: i32,
    last: Instant,
}

/// The other end of a [`Recorder`]: writes its events.
pub(crate) struct Publisher {
    queue: mpsc::Receiver<Entry>,
    client: Client,
    identity: String,
    clock: Arc<dyn Clock>,
    fence: Fence,
    permissions: Permissions,
    metrics: Metrics,
    published: BTreeMap<Message, Published>,
    /// Messages by age, for forgetting.
    order: VecDeque<(Instant, Message)>,
    tokens: f64,
    refilled: Instant,
    made: u64,
}

impl Publisher {
    /// Publishes until every recorder is dropped.
    pub(crate) async fn run(mut self) {
        while let Some(entry) = self.queue.recv().await {
            let (event, once) = match entry {
                Entry::Event(event) => (event, false),
                Entry::Once(event) => (event, true),
                Entry::Flush(done) => {
                    let _ = done.send(());
                    continue;
                }
            };
            self.forget_old();
            self.wait_for_token().await;
            if self.fence.is_open() {
                self.publish(event, once).await;
            } else {
                self.metrics.events("dropped");
            }
        }
    }

    async fn publish(&mut self, event: Event, once: bool) {
        let message = Message {
            uid: event.object.uid.clone().unwrap_or_default(),
            reason: event.reason.clone(),
            note: event.note.clone(),
        };
        let now = self.clock.now();
        let known = self.published.get(&message).cloned();
        let name = self.name(&message, &event, once, now);
        let mut counts = known.is_some();
        let mut answer = match &known {
            Some(published) => self.answer("patch", self.count_up(published, now)).await,
            None => self.answer("create", self.make(&name, &event, now)).await,
        };
        if counts && answer.as_ref().is_err_and(|error| *error == WriteError::Gone) {
            // The event has expired on the server: create it again.
            self.published.remove(&message);
            counts = false;
            answer = self.answer("create", self.make(&name, &event, now)).await;
        }
        let outcome = match answer {
            Ok(published) => {
                self.remember(message, published);
                if counts { "counted" } else { "made" }
            }
            Err(WriteError::Conflict) if once => "known",
            Err(error) => {
                tracing::debug!(reason = event.reason, error = %error, "event not written");
                "failed"
            }
        };
        self.metrics.events(outcome);
    }

    /// The answer to a request. A missing permission is reported but does not make the replica unready: events are not essential.
    async fn answer(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<Published>>,
    ) -> Result<Published, WriteError> {
        let answer = match timeout(DEADLINE, request).await {
            Ok(answer) => answer.map_err(WriteError::from),
            Err(_) => Err(WriteError::Transient(format!("no answer within {DEADLINE:?}"))),
        };
        let permission = Permission { verb, resource: "events".to_owned(), subresource: "", need: Need::Optional };
        self.permissions.answered(&permission, &answer);
        answer
    }

    /// The name of an event: unique, or derived from the message for [`Entry::Once`].
    fn name(&mut self, message: &Message, event: &Event, once: bool, now: Timestamp) -> String {
        let base = name_base(event.object.name.as_deref().unwrap_or_default());
        if once {
            let mut hasher = DefaultHasher::new();
            message.hash(&mut hasher);
            return format!("{base}.{:016x}", hasher.finish());
        }
        self.made += 1;
        format!("{base}.{:x}{:x}", now.as_nanosecond(), self.made)
    }

    async fn make(&self, name: &str, event: &Event, now: Timestamp) -> kube::Result<Published> {
        // Events of cluster-scoped objects live in `default`.
        let namespace = event.object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let object = CoreEvent {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: event.object.clone(),
            type_: Some(event.kind.label().to_owned()),
            reason: Some(event.reason.clone()),
            message: Some(event.note.clone()),
            count: Some(1),
            first_timestamp: Some(whole_seconds(now)),
            last_timestamp: Some(whole_seconds(now)),
            source: Some(EventSource { component: Some(FIELD_MANAGER.to_owned()), host: None }),
            reporting_component: Some(FIELD_MANAGER.to_owned()),
            reporting_instance: Some(self.identity.clone()),
            ..CoreEvent::default()
        };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        Api::<CoreEvent>::namespaced(self.client.clone(), &namespace).create(&params, &object).await?;
        Ok(Published { namespace, name: name.to_owned(), count: 1, last: Instant::now() })
    }

    async fn count_up(&self, published: &Published, now: Timestamp) -> kube::Result<Published> {
        let count = published.count.saturating_add(1);
        let patch = json!({ "count": count, "lastTimestamp": whole_seconds(now) });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        Api::<CoreEvent>::namespaced(self.client.clone(), &published.namespace)
            .patch(&published.name, &params, &Patch::Merge(patch))
            .await?;
        Ok(Published { count, last: Instant::now(), ..published.clone() })
    }

    fn remember(&mut self, message: Message, published: Published) {
        self.order.push_back((published.last, message.clone()));
        self.published.insert(message, published);
    }

    fn forget_old(&mut self) {
        let now = Instant::now();
        while let Some((at, _)) = self.order.front()
            && (now.duration_since(*at) >= WINDOW || self.order.len() > REMEMBERED)
        {
            let Some((at, message)) = self.order.pop_front() else { break };
            if self.published.get(&message).is_some_and(|published| published.last == at) {
                self.published.remove(&message);
            }
        }
    }

    async fn wait_for_token(&mut self) {
        let now = Instant::now();
        self.tokens = (self.tokens + now.duration_since(self.refilled).as_secs_f64() * RATE).min(BURST);
        self.refilled = now;
        if self.tokens < 1.0 {
            tokio::time::sleep(Duration::from_secs_f64((1.0 - self.tokens) / RATE)).await;
            self.tokens = 1.0;
            self.refilled = Instant::now();
        }
        self.tokens -= 1.0;
    }
}

/// The prefix of an event's name: the object's name, cut. A dot follows, so it must not end in a dot or a dash. API servers accept such
/// names, but their documentation does not allow them.
fn name_base(name: &str) -> &str {
    name[..name.floor_char_boundary(200)].trim_end_matches(['.', '-'])
}

/// Shortens `text` to at most `limit` bytes, at a character boundary.
pub(crate) fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
    }
}

/// A recorder whose events a unit test reads.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Entry, Event, Metrics, Recorder, mpsc};

    pub(crate) type Events = mpsc::Receiver<Entry>;

    pub(crate) fn recorder() -> (Recorder, Events) {
        let (queue, events) = mpsc::channel(100);
        (Recorder { queue, metrics: Metrics::new() }, events)
    }

    pub(crate) fn drain(events: &mut Events) -> Vec<Event> {
        let mut drained = Vec::new();
        while let Ok(entry) = events.try_recv() {
            if let Entry::Event(event) | Entry::Once(event) = entry {
                drained.push(event);
            }
        }
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_normal_events_leave_room_for_warnings() {
        let (recorder, mut events) = testing::recorder();
        let event = |kind| Event { object: ObjectReference::default(), kind, reason: "R".into(), note: "n".into() };
        for _ in 0..200 {
            recorder.record(event(EventKind::Normal));
        }
        for _ in 0..50 {
            recorder.record(event(EventKind::Warning));
        }
        let recorded = testing::drain(&mut events);
        assert_eq!(recorded.iter().filter(|event| event.kind == EventKind::Warning).count(), 50);
        assert_eq!(recorded.len(), 100);
        assert!(recorder.metrics.encode().contains("signpost_events_total{outcome=\"dropped\"} 150"));
    }

    #[test]
    fn a_long_name_is_cut_so_that_the_event_name_is_valid() {
        assert_eq!(name_base("www.example.org"), "www.example.org");
        for separator in [".", "-", "--"] {
            let before = "a".repeat(200 - separator.len());
            assert_eq!(name_base(&format!("{before}{separator}example.org")), before, "{separator}");
        }
    }
}
