//! The change stream. A subscriber that falls behind gets a snapshot instead of what it missed, so the stream keeps a bounded number of changes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::store::{Inventory, Snapshot, lock};
use crate::view::View;

/// So many changes are kept for subscribers that are behind.
const KEPT: usize = 16 * 1024;

/// A change of one view.
#[derive(Clone, Debug)]
pub enum Change {
    /// The view was not there before.
    Added(Arc<View>),
    /// The view is different now.
    Modified(Arc<View>),
    /// The view is not there any more.
    Removed(Arc<View>),
}

/// The changes of one replacement: one owner, as a whole.
#[derive(Debug)]
pub struct Batch {
    /// The version of the snapshot that has these changes.
    pub version: u64,
    /// The changes, by name and type.
    pub changes: Box<[Change]>,
}

/// A message to a subscriber.
#[derive(Clone, Debug)]
pub enum Update {
    /// The next changes.
    Changes(Arc<Batch>),
    /// The subscriber was too slow. This is everything as of now; changes continue from here.
    Lagged(Arc<Snapshot>),
}

/// The last changes, and who waits for more.
#[derive(Debug, Default)]
pub(crate) struct Stream(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    batches: VecDeque<Arc<Batch>>,
    changes: usize,
    waiting: Vec<Waker>,
}

impl Stream {
    /// Adds the changes of the next version.
    pub(crate) fn push(&self, batch: Batch) {
        let mut recent = lock(&self.0);
        recent.changes += batch.changes.len();
        recent.batches.push_back(Arc::new(batch));
        let mut dropped = Vec::new();
        // The newest is always kept, so that the newest version is known.
        while recent.changes > KEPT && recent.batches.len() > 1 {
            let Some(oldest) = recent.batches.pop_front() else { break };
            recent.changes -= oldest.changes.len();
            dropped.push(oldest);
        }
        let waiting = std::mem::take(&mut recent.waiting);
        drop(recent);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A reader of changes.
#[derive(Debug)]
pub struct Subscription {
    inventory: Arc<Inventory>,
    stream: Arc<Stream>,
    seen: u64,
}

impl Subscription {
    pub(crate) fn new(inventory: Arc<Inventory>, stream: Arc<Stream>, seen: u64) -> Self {
        Self { inventory, stream, seen }
    }

    /// The next update, as soon as there is one.
    pub async fn next(&mut self) -> Update {
        poll_fn(|context| self.poll(context)).await
    }

    /// The next update, if there is one now.
    pub fn try_next(&mut self) -> Option<Update> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(update) => Some(update),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Update> {
        let mut recent = lock(&self.stream.0);
        let first = recent.batches.partition_point(|batch| batch.version <= self.seen);
        let Some(batch) = recent.batches.get(first).cloned() else {
            if !recent.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                recent.waiting.push(context.waker().clone());
            }
            return Poll::Pending;
        };
        drop(recent);
        if batch.version == self.seen + 1 {
            self.seen = batch.version;
            return Poll::Ready(Update::Changes(batch));
        }
        let snapshot = self.inventory.snapshot();
        self.seen = snapshot.version;
        Poll::Ready(Update::Lagged(snapshot))
    }
}
