//! Wakes the watches of a table in the order in which they began to wait.
//!
//! tokio's own `watch` channel wakes its receivers in a random order. A simulation with the same seed must take the same course.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Inner {
    changes: AtomicU64,
    closed: AtomicBool,
    notify: Notify,
}

/// The side that reports changes. Its listeners learn when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Signal(Arc<Inner>);

impl Signal {
    /// Reports a change.
    pub(crate) fn send(&self) {
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        self.0.notify.notify_waiters();
    }

    /// A listener that has seen everything until now.
    pub(crate) fn subscribe(&self) -> Listener {
        Listener { seen: self.0.changes.load(Ordering::Acquire), inner: self.0.clone() }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }
}

/// The side that waits for changes.
#[derive(Debug)]
pub(crate) struct Listener {
    inner: Arc<Inner>,
    seen: u64,
}

/// The signal was dropped: there are no further changes.
#[derive(Debug)]
pub(crate) struct Closed;

impl Listener {
    /// Whether further changes are possible.
    pub(crate) fn is_open(&self) -> bool {
        !self.inner.closed.load(Ordering::Acquire)
    }

    /// Counts all changes until now as seen.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.inner.changes.load(Ordering::Acquire);
    }

    /// Waits for a change that is not seen yet.
    pub(crate) async fn changed(&mut self) -> Result<(), Closed> {
        let inner = self.inner.clone();
        loop {
            // Made before the check, so that a change in between is not missed.
            let mut notified = std::pin::pin!(inner.notify.notified());
            notified.as_mut().enable();
            let changes = inner.changes.load(Ordering::Acquire);
            if changes != self.seen {
                self.seen = changes;
                return Ok(());
            }
            if !self.is_open() {
                return Err(Closed);
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn listeners_are_woken_in_the_order_in_which_they_wait() {
        let (signal, order) = (Signal::default(), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..20 {
            let (mut listener, order) = (signal.subscribe(), order.clone());
            tasks.push(tokio::spawn(async move {
                listener.changed().await.unwrap();
                order.lock().unwrap().push(number);
            }));
        }
        tokio::task::yield_now().await;
        signal.send();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_before_the_wait_is_not_missed_and_the_end_is_reported() {
        let signal = Signal::default();
        let mut listener = signal.subscribe();
        signal.send();
        listener.changed().await.unwrap();
        signal.send();
        listener.mark_seen();
        assert!(listener.changed().now_or_never().is_none());
        drop(signal);
        assert!(!listener.is_open());
        assert!(listener.changed().await.is_err());
    }
}
