//! A circuit breaker: a server that does not answer is not asked for a while.
//!
//! ```text
//!  closed ──5 failures in a row──► open (1 s, doubling to 30 s) ──time──► one trial ──answer──► closed
//! ```
//!
//! The caller decides which failures are the server's, and which of them open it at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const THRESHOLD: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whether a server is asked; `E` is what is known of a failure.
#[derive(Debug)]
pub struct Breaker<E>(Mutex<State<E>>);

/// The server is not asked now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused<E> {
    /// The last failure.
    pub error: E,
    /// How soon it may be asked again.
    pub retry_after: Duration,
}

#[derive(Debug)]
struct State<E> {
    /// How the last call ended.
    last: Option<Result<(), E>>,
    failures: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    pause: Duration,
    /// Whether the one trial call is under way.
    trial: bool,
}

impl<E> Default for Breaker<E> {
    fn default() -> Self {
        Self(Mutex::new(State { last: None, failures: 0, open: None }))
    }
}

impl<E: Clone> Breaker<E> {
    /// Whether the server may be asked. The end of the call is then noted with one of the functions below.
    pub fn admit(&self) -> Result<(), Paused<E>> {
        let mut state = self.lock();
        let State { last: Some(Err(error)), open: Some(open), .. } = &mut *state else { return Ok(()) };
        let now = Instant::now();
        if open.until <= now && !open.trial {
            open.trial = true;
            return Ok(());
        }
        let retry_after = open.until.saturating_duration_since(now).max(Duration::from_millis(100));
        Err(Paused { error: error.clone(), retry_after })
    }

    /// The server answered.
    pub fn succeeded(&self) {
        *self.lock() = State { last: Some(Ok(())), failures: 0, open: None };
    }

    /// A call was given up before it had an answer.
    pub fn abandoned(&self) {
        if let Some(open) = &mut self.lock().open {
            open.trial = false;
        }
    }

    /// The call failed; `at_once` opens the breaker without waiting for more failures.
    pub fn failed(&self, error: E, at_once: bool) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        state.last = Some(Err(error));
        let pause = match &state.open {
            Some(open) if open.trial => (open.pause * 2).min(LONGEST_PAUSE),
            None if at_once || state.failures >= THRESHOLD => FIRST_PAUSE,
            Some(_) | None => return,
        };
        state.open = Some(Open { until: Instant::now() + pause, pause, trial: false });
    }

    /// How the last call ended; `None` when there was none yet.
    pub fn last(&self) -> Option<Result<(), E>> {
        self.lock().last.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: &str = "no answer";

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_open_it_and_one_success_closes_it() {
        let breaker = Breaker::default();
        assert_eq!(breaker.last(), None);
        for _ in 0..4 {
            breaker.failed(DOWN, false);
            assert!(breaker.admit().is_ok());
        }
        breaker.failed(DOWN, false);
        assert_eq!(breaker.admit(), Err(Paused { error: DOWN, retry_after: FIRST_PAUSE }));
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(breaker.admit().is_ok());
        assert!(breaker.admit().is_err(), "only one trial call at a time");
        breaker.succeeded();
        assert_eq!((breaker.admit(), breaker.last()), (Ok(()), Some(Ok(()))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_trial_doubles_the_pause_up_to_a_limit() {
        let breaker = Breaker::default();
        for _ in 0..5 {
            breaker.failed(DOWN, false);
        }
        tokio::time::advance(FIRST_PAUSE).await;
        breaker.admit().unwrap();
        breaker.failed("again", false);
        assert_eq!(breaker.admit(), Err(Paused { error: "again", retry_after: FIRST_PAUSE * 2 }));
        for _ in 0..10 {
            tokio::time::advance(LONGEST_PAUSE).await;
            breaker.admit().unwrap();
            breaker.failed(DOWN, false);
        }
        assert_eq!(breaker.admit(), Err(Paused { error: DOWN, retry_after: LONGEST_PAUSE }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_more_calls_cannot_mend_opens_it_at_once() {
        let breaker = Breaker::default();
        breaker.failed("refused key", true);
        assert_eq!(breaker.admit(), Err(Paused { error: "refused key", retry_after: FIRST_PAUSE }));
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(breaker.admit().is_ok());
        breaker.failed(DOWN, false);
        assert_eq!(breaker.admit().unwrap_err().error, DOWN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_was_given_up_lets_the_next_one_through() {
        let breaker = Breaker::default();
        breaker.failed(DOWN, true);
        tokio::time::advance(FIRST_PAUSE).await;
        breaker.admit().unwrap();
        breaker.abandoned();
        assert!(breaker.admit().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_between_keeps_it_closed() {
        let breaker = Breaker::default();
        for _ in 0..20 {
            breaker.failed(DOWN, false);
            breaker.succeeded();
        }
        assert!(breaker.admit().is_ok());
    }
}
