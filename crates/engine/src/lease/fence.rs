//! The fence: whether this replica may still write.
//!
//! In: the end of the lease, with each renewal. Out: open or closed, also after the process or the machine was suspended.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::time::Instant;

/// Until when this replica may write. Checked directly before each write, so that a process that was suspended does not write after its
/// lease has expired.
#[derive(Clone, Debug)]
pub struct Fence {
    until: Arc<Mutex<Until>>,
    /// How long the machine has been suspended since it was booted: [`Instant`] does not count that time, and a lease does.
    pub(super) suspended: fn() -> Duration,
}

/// The end of the permission to write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    Always,
    Never,
    /// Until that moment; the duration is the suspended time of the machine so far.
    Moment(Instant, Duration),
}

/// How long this machine has been suspended since it was booted.
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    // The clock that stops is read first, so that a moment between the two never looks like a suspension that ended.
    let running = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(running)
}

/// The two clocks are not read in the same instant; less than this is not a suspension.
const CLOCK_NOISE: Duration = Duration::from_millis(100);

impl Fence {
    /// A fence that is always open: for a process that runs without a lease.
    pub fn open() -> Self {
        Self { until: Arc::new(Mutex::new(Until::Always)), suspended }
    }

    pub(super) fn closed() -> Self {
        Self { until: Arc::new(Mutex::new(Until::Never)), suspended }
    }

    /// True while this replica may write.
    pub fn is_open(&self) -> bool {
        match self.until() {
            Until::Always => true,
            Until::Never => false,
            Until::Moment(until, before) => Instant::now() + self.asleep_since(before) < until,
        }
    }

    /// How long the machine was suspended since then.
    fn asleep_since(&self, before: Duration) -> Duration {
        let asleep = (self.suspended)().saturating_sub(before);
        if asleep < CLOCK_NOISE { Duration::ZERO } else { asleep }
    }

    /// Opens the fence until `moment`, which was computed when the machine had been suspended for `asleep` in all.
    pub(super) fn open_until(&self, moment: Instant, asleep: Duration) {
        self.set(Until::Moment(moment, asleep));
    }

    /// Runs `work` while this replica may write. `None` when the lease ends first: the work is dropped and not polled again, also when the
    /// whole process was suspended in between.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut closes = pin!(self.closes());
        poll_fn(|context| {
            // Checked first and by the clock: after a suspension the timers have not fired yet.
            if !self.is_open() {
                return Poll::Ready(None);
            }
            match work.as_mut().poll(context) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending => closes.as_mut().poll(context).map(|()| None),
            }
        })
        .await
    }

    /// Returns when this replica may no longer write; a renewal postpones that.
    async fn closes(&self) {
        loop {
            match self.until() {
                Until::Always => std::future::pending().await,
                Until::Moment(until, _) if self.is_open() => tokio::time::sleep_until(until).await,
                Until::Never | Until::Moment(..) => return,
            }
        }
    }

    pub(super) fn until(&self) -> Until {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, until: Until) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    static SUSPENDED: AtomicU64 = AtomicU64::new(7);

    #[tokio::test(start_paused = true)]
    async fn the_fence_is_closed_after_the_machine_was_suspended() {
        let fence = Fence { suspended: || Duration::from_secs(SUSPENDED.load(Ordering::SeqCst)), ..Fence::closed() };
        fence.open_until(Instant::now() + Duration::from_secs(10), (fence.suspended)());
        assert!(fence.is_open());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(fence.is_open());
        SUSPENDED.fetch_add(6, Ordering::SeqCst);
        assert!(!fence.is_open(), "5 s awake and 6 s asleep are more than 10 s");
        assert_eq!(fence.guard(async { 1 }).await, None);
        fence.open_until(Instant::now() + Duration::from_secs(10), (fence.suspended)());
        assert!(fence.is_open(), "a renewal after the suspension counts");
        // The renewal was sent before the suspension, and its answer is read afterwards.
        let (sent, asleep) = (Instant::now(), (fence.suspended)());
        SUSPENDED.fetch_add(60, Ordering::SeqCst);
        fence.open_until(sent + Duration::from_secs(10), asleep);
        assert!(!fence.is_open(), "another replica may lead by now");
    }

    #[test]
    fn the_suspended_time_of_this_machine_can_be_read() {
        assert!(suspended() < Duration::from_hours(24 * 3650));
    }
}
