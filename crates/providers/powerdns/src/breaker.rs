//! A circuit breaker: a server that does not answer gets no requests for a while, and readiness can report it.
//!
//! ```text
//!  Closed ──5 failures in a row──► Open (1 s, doubling to 30 s) ──time──► one trial call ──ok──► Closed
//! ```
//!
//! Only failures of the server as a whole count (no connection, no answer, 502 to 504, a refused key), never a
//! 500 or a refusal of one request: those belong to a zone or a record.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::error::ServerError;

const THRESHOLD: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whether calls get through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// No call has been made yet.
    Unknown,
    /// The last call got through.
    Up,
    /// Calls fail.
    Down {
        /// The last failure.
        why: String,
    },
}

#[derive(Debug)]
pub(crate) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    health: Health,
    failures: u32,
    open_until: Option<Instant>,
    pause: Duration,
    /// Set while the one trial call of a half-open breaker is under way.
    trial: bool,
    /// Whether the last failure was the key's.
    refused_key: bool,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                health: Health::Unknown,
                failures: 0,
                open_until: None,
                pause: FIRST_PAUSE,
                trial: false,
                refused_key: false,
            }),
        }
    }

    pub(crate) fn health(&self) -> Health {
        self.lock().health.clone()
    }

    /// Whether a call may be made now.
    pub(crate) fn admit(&self) -> Result<(), ServerError> {
        let mut state = self.lock();
        let Some(until) = state.open_until else { return Ok(()) };
        let now = Instant::now();
        if until <= now && !state.trial {
            state.trial = true;
            return Ok(());
        }
        let why = match &state.health {
            Health::Down { why } => why.clone(),
            Health::Unknown | Health::Up => String::from("it failed before"),
        };
        let retry_after = until.saturating_duration_since(now).max(Duration::from_millis(100));
        Err(ServerError::Paused { why, retry_after, refused_key: state.refused_key })
    }

    /// A call that was admitted was given up before it had an answer.
    pub(crate) fn abandoned(&self) {
        self.lock().trial = false;
    }

    pub(crate) fn succeeded(&self) {
        let mut state = self.lock();
        *state = State {
            health: Health::Up,
            failures: 0,
            open_until: None,
            pause: FIRST_PAUSE,
            trial: false,
            refused_key: false,
        };
    }

    pub(crate) fn failed(&self, error: &ServerError) {
        let mut state = self.lock();
        let trial = std::mem::take(&mut state.trial);
        state.failures = state.failures.saturating_add(1);
        state.health = Health::Down { why: error.to_string() };
        state.refused_key = matches!(error, ServerError::Unauthorised { .. } | ServerError::Key { .. });
        if trial {
            state.pause = (state.pause * 2).min(LONGEST_PAUSE);
        }
        if trial || state.refused_key || state.failures >= THRESHOLD {
            state.open_until = Some(Instant::now() + state.pause);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down() -> ServerError {
        ServerError::Unreachable { why: "refused".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_open_it_and_one_success_closes_it() {
        let breaker = Breaker::new();
        for _ in 0..4 {
            breaker.failed(&down());
            assert!(breaker.admit().is_ok());
        }
        breaker.failed(&down());
        assert!(matches!(breaker.admit(), Err(ServerError::Paused { .. })));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(breaker.admit().is_ok());
        assert!(breaker.admit().is_err(), "only one trial call at a time");
        breaker.succeeded();
        assert_eq!((breaker.admit(), breaker.health()), (Ok(()), Health::Up));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_trial_doubles_the_pause_up_to_a_limit() {
        let breaker = Breaker::new();
        for _ in 0..5 {
            breaker.failed(&down());
        }
        for _ in 0..10 {
            tokio::time::advance(LONGEST_PAUSE).await;
            breaker.admit().unwrap();
            breaker.failed(&down());
        }
        let Err(ServerError::Paused { retry_after, .. }) = breaker.admit() else { panic!("open") };
        assert_eq!(retry_after, LONGEST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_key_opens_it_at_once() {
        let breaker = Breaker::new();
        breaker.failed(&ServerError::Unauthorised { status: 401 });
        assert!(matches!(breaker.admit(), Err(ServerError::Paused { refused_key: true, .. })));
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert!(breaker.admit().is_ok());
        breaker.failed(&down());
        assert!(matches!(breaker.admit(), Err(ServerError::Paused { refused_key: false, .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_was_given_up_lets_the_next_one_through() {
        let breaker = Breaker::new();
        breaker.failed(&ServerError::Unauthorised { status: 401 });
        tokio::time::advance(Duration::from_secs(2)).await;
        breaker.admit().unwrap();
        breaker.abandoned();
        assert!(breaker.admit().is_ok());
    }
}
