//! The source of the time of day.
//!
//! Only the shell reads a clock; plans get `now` passed in. [`ManualClock`] follows tokio's (possibly paused) time from a fixed start and
//! can be moved forward or back, so that tests control the time.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

/// The time of day.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A moment as Kubernetes stores it: a finer one would differ from the value read back and would be written again and again.
pub fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// A clock that starts at a given moment and moves with tokio's time; in a paused runtime it stops until the test advances it.
#[derive(Debug)]
pub struct ManualClock {
    start: Timestamp,
    from: Instant,
    skew: Mutex<SignedDuration>,
}

impl ManualClock {
    /// A clock that shows `start` now. Must be called inside a tokio runtime.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, from: Instant::now(), skew: Mutex::new(SignedDuration::ZERO) }
    }

    /// Moves the clock forward (or back, for a negative value) against tokio's time.
    pub fn skew_by(&self, by: SignedDuration) {
        let mut skew = self.skew.lock().unwrap_or_else(PoisonError::into_inner);
        *skew = skew.saturating_add(by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let skew = *self.skew.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = SignedDuration::try_from(self.from.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(elapsed).and_then(|time| time.saturating_add(skew)).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_manual_clock_moves_with_paused_time_and_with_skew() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = ManualClock::starting_at(start);
        assert_eq!(clock.now(), start);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
        clock.skew_by(SignedDuration::from_hours(-1));
        assert_eq!(clock.now().to_string(), "2025-12-31T23:01:30Z");
    }
}
