//! Kubernetes events, said once.
//!
//! In: events from reports. Out: core/v1 Events; the same object, reason and note within ten minutes counts up one event instead of
//! making another. Recording never waits, never fails a pass, keeps a bounded memory and a bounded rate.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::sync::mpsc;

use crate::{clock::Clock, metrics::Metrics};

/// Something worth telling the owner of an object.
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

/// Whether an event is good or bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// As it should be.
    Normal,
    /// Something to look at.
    Warning,
}

/// Records events. Cloning gives another handle to the same recorder.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Event>,
    metrics: Metrics,
}

impl Recorder {
    /// Hands over an event and returns at once. Dropped (and counted) when too many are waiting.
    pub fn record(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.metrics.events("dropped");
        }
    }
}

/// The other end of a [`Recorder`]: what writes its events.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) queue: mpsc::Receiver<Event>,
}

/// A recorder and its publisher.
pub(crate) fn recorder(_client: Client, _clock: Arc<dyn Clock>, metrics: Metrics) -> (Recorder, Publisher) {
    let (send, receive) = mpsc::channel(1_000);
    (Recorder { queue: send, metrics }, Publisher { queue: receive })
}
