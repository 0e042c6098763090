//! Places for writes of Istio Gateways: a few at once, so that a webhook of Istio that does not answer leaves passes for DNSEndpoints.
//!
//! ```text
//! a place is free ─► write       writes end quickly ─► wait a moment       none has ended for a while ─► no place, the pass comes again
//! ```

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};

/// How many passes write Istio Gateways at once.
const AT_ONCE: usize = 4;
/// How long a pass waits for a place, and how long a write takes that is not slow.
const QUICK: Duration = Duration::from_millis(500);

/// The places.
#[derive(Debug)]
pub(crate) struct Places {
    free: Semaphore,
    /// Whether the last write was slow, or a pass has waited for a place in vain since.
    slow: AtomicBool,
}

impl Default for Places {
    fn default() -> Self {
        Self { free: Semaphore::new(AT_ONCE), slow: AtomicBool::new(false) }
    }
}

impl Places {
    /// A place; `None` when the writes that have the places do not end. While writes are slow, nobody waits.
    pub(super) async fn take(&self) -> Option<Place<'_>> {
        let wait = if self.slow.load(Ordering::Relaxed) { Duration::ZERO } else { QUICK };
        let Ok(permit) = timeout(wait, self.free.acquire()).await else {
            self.slow.store(true, Ordering::Relaxed);
            return None;
        };
        // The semaphore is never closed.
        Some(Place { places: self, began: Instant::now(), _permit: permit.ok()? })
    }
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    places: &'a Places,
    began: Instant,
    _permit: SemaphorePermit<'a>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.places.slow.store(self.began.elapsed() > QUICK, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place, and whether it took a while to get it, or to get none.
    async fn take(places: &Places) -> (Option<Place<'_>>, bool) {
        let began = Instant::now();
        (places.take().await, began.elapsed() > QUICK / 4)
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_do_not_end_leave_no_place_and_nobody_waits_twice() {
        let places = Places::default();
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            let (place, waited) = take(&places).await;
            assert!(place.is_some() && !waited);
            taken.push(place);
        }
        let (place, waited) = take(&places).await;
        assert!(place.is_none() && waited);
        let (place, waited) = take(&places).await;
        assert!(place.is_none() && !waited, "it is known that writes are slow");
        // One of them ends at last. The next one is quick, so that passes wait again.
        taken.pop();
        let (place, waited) = take(&places).await;
        assert!(place.is_some() && !waited);
        drop(place);
        assert!(!places.slow.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_waits_a_moment_for_writes_that_end() {
        let places = Places::default();
        let taken = [take(&places).await.0, take(&places).await.0, take(&places).await.0, take(&places).await.0];
        let end = async {
            tokio::time::sleep(QUICK / 2).await;
            drop(taken);
        };
        let ((place, waited), ()) = tokio::join!(take(&places), end);
        assert!(place.is_some() && waited);
    }
}
