//! A circuit breaker: a server that does not answer is not asked for a while.
//!
//! ```text
//!  closed ──5 failures in a row──► open (1 s, doubling to 30 s) ──time──► one trial ──answer──► closed
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const THRESHOLD: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whether a server answers.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open: Option<Open>,
    last: Option<String>,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    pause: Duration,
    trial: bool,
}

impl Breaker {
    /// Whether the server may be asked; otherwise why not, and for how long.
    pub(crate) fn admit(&self) -> Result<(), (String, Duration)> {
        let mut state = self.lock();
        let why = state.last.clone();
        let Some(open) = &mut state.open else { return Ok(()) };
        let now = Instant::now();
        if open.until <= now && !open.trial {
            open.trial = true;
            return Ok(());
        }
        let left = open.until.saturating_duration_since(now).max(Duration::from_millis(100));
        Err((why.unwrap_or_default(), left))
    }

    /// The server answered.
    pub(crate) fn succeeded(&self) {
        *self.lock() = State::default();
    }

    /// A question was given up before its time was over.
    pub(crate) fn abandoned(&self) {
        if let Some(open) = &mut self.lock().open {
            open.trial = false;
        }
    }

    /// The server did not answer.
    pub(crate) fn failed(&self, why: String) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        state.last = Some(why);
        let pause = match &state.open {
            Some(open) if open.trial => (open.pause * 2).min(LONGEST_PAUSE),
            None if state.failures >= THRESHOLD => FIRST_PAUSE,
            Some(_) | None => return,
        };
        state.open = Some(Open { until: Instant::now() + pause, pause, trial: false });
    }

    /// The last failure, while there is one.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.lock().last.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn five_failures_open_it_and_a_trial_closes_it_or_doubles_the_pause() {
        let breaker = Breaker::default();
        for _ in 0..4 {
            breaker.failed("no answer".into());
            assert!(breaker.admit().is_ok());
        }
        breaker.failed("no answer".into());
        assert_eq!(breaker.admit(), Err(("no answer".into(), FIRST_PAUSE)));
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(breaker.admit().is_ok());
        assert!(breaker.admit().is_err(), "one trial at a time");
        breaker.failed("again".into());
        assert_eq!(breaker.admit(), Err(("again".into(), FIRST_PAUSE * 2)));
        tokio::time::advance(FIRST_PAUSE * 2).await;
        assert!(breaker.admit().is_ok());
        breaker.abandoned();
        assert!(breaker.admit().is_ok(), "an abandoned trial is repeated");
        breaker.succeeded();
        assert!(breaker.admit().is_ok() && breaker.last_failure().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_between_keeps_it_closed() {
        let breaker = Breaker::default();
        for _ in 0..20 {
            breaker.failed("no answer".into());
            breaker.succeeded();
        }
        assert!(breaker.admit().is_ok());
    }
}
