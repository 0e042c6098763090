//! The number of concurrent status writes.
//!
//! Status writes compete with the users of the API server and with our own children, and serving does not depend on them. So: one write at a
//! time during a burst of objects, few while many children are written in a burst, more when it is quiet, fewer again when the answers get
//! slower.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use super::{ObjectWrite, WriteError, Writer};

/// This many objects within one window of time are a burst.
const WINDOW: Duration = Duration::from_millis(250);
const BURST: u32 = 10;
/// This many children that are being written at once, during a burst, are waited for: one status per window is written meanwhile.
const BUSY: usize = 4;
/// An answer that takes this many times as long as the quickest is slow.
const SLOW: u32 = 8;
/// An answer within this time is not slow.
const QUICK: Duration = Duration::from_millis(20);

/// Hands out turns.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
    freed: Notify,
    most: usize,
}

#[derive(Debug)]
struct State {
    taken: usize,
    /// Turns at the same time when it is quiet, adjusted by how quick the answers are.
    limit: f64,
    /// The quickest answer so far; it grows a little with every answer, so that an old one is forgotten.
    quickest: Option<Duration>,
    /// The window that arrivals are counted in, this one's count and the count of the one before.
    window: Instant,
    arrived: (u32, u32),
    /// Children that are being written.
    children: usize,
    /// When the last turn began.
    turned: Instant,
}

/// A child that is being written, until it is dropped.
#[derive(Debug)]
pub(super) struct Serving {
    pace: Arc<Pace>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut state = self.pace.lock();
        state.children -= 1;
        if state.children < BUSY {
            self.pace.freed.notify_one();
        }
    }
}

/// One turn to write; it is over when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    pace: Arc<Pace>,
}

impl Pace {
    pub(super) fn new(most: usize) -> Self {
        let now = Instant::now();
        let state =
            State { taken: 0, limit: 4.0, quickest: None, window: now, arrived: (0, 0), children: 0, turned: now };
        Self { state: Mutex::new(state), freed: Notify::new(), most: most.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object was created or changed by a user.
    pub(super) fn arrived(&self) {
        let mut state = self.lock();
        state.roll(Instant::now());
        state.arrived.0 += 1;
    }

    /// A child is being written.
    pub(super) fn serving(self: &Arc<Self>) -> Serving {
        self.lock().children += 1;
        Serving { pace: Arc::clone(self) }
    }

    /// Waits for a turn.
    pub(super) async fn turn(self: &Arc<Self>) -> Turn {
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.lock();
                let now = Instant::now();
                if state.taken < state.allowed(now, self.most) {
                    state.taken += 1;
                    state.turned = now;
                    return Turn { pace: Arc::clone(self) };
                }
            }
            // The end of a burst does not wake the waiting tasks.
            let _ = timeout(WINDOW, freed).await;
        }
    }
}

impl Pace {
    /// A turn beside all others, for a write that cannot wait.
    pub(super) fn turn_now(self: &Arc<Self>) -> Turn {
        self.lock().taken += 1;
        Turn { pace: Arc::clone(self) }
    }
}

impl State {
    fn roll(&mut self, now: Instant) {
        let passed = now.duration_since(self.window);
        if passed >= WINDOW {
            let previous = if passed < 2 * WINDOW { self.arrived.0 } else { 0 };
            self.arrived = (0, previous);
            self.window = now;
        }
    }

    fn allowed(&mut self, now: Instant, most: usize) -> usize {
        self.roll(now);
        if self.arrived.0.max(self.arrived.1) >= BURST {
            let waits = self.children >= BUSY && now.duration_since(self.turned) < WINDOW;
            return usize::from(!waits);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and `most`")]
        let limit = self.limit as usize;
        limit.clamp(1, most)
    }

    /// Additive increase, multiplicative decrease.
    fn adjust(&mut self, took: Duration, most: usize) {
        let quickest = self.quickest.map_or(took, |quickest| (quickest + quickest / 64).min(took));
        self.quickest = Some(quickest);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let most = most as f64;
        self.limit = if took > QUICK && took > quickest * SLOW {
            (self.limit * 0.7).max(2.0)
        } else {
            (self.limit + 1.0 / self.limit).min(most)
        };
    }
}

impl Turn {
    /// Writes, and notes how long the API server took.
    pub(crate) async fn write(&self, writer: &Writer, write: &ObjectWrite) -> Result<Value, WriteError> {
        self.timed(writer.write(write)).await
    }

    /// Waits for the answer to a write, and notes how long the API server took.
    pub(super) async fn timed(
        &self,
        write: impl Future<Output = Result<Value, WriteError>>,
    ) -> Result<Value, WriteError> {
        let began = Instant::now();
        let answer = write.await;
        match &answer {
            Ok(Value::Null) => {}
            Ok(_) => self.took(began.elapsed()),
            // A server that asks to wait, or does not answer, counts as slow.
            Err(WriteError::Throttled(_) | WriteError::Transient(_)) => self.took(Duration::from_mins(1)),
            Err(_) => {}
        }
        answer
    }

    fn took(&self, took: Duration) {
        self.pace.lock().adjust(took, self.pace.most);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.pace.lock().taken -= 1;
        self.pace.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn write(pace: &Arc<Pace>, took: Duration) {
        pace.turn().await.took(took);
    }

    fn allowed(pace: &Pace) -> usize {
        pace.lock().allowed(Instant::now(), pace.most)
    }

    #[tokio::test(start_paused = true)]
    async fn quick_answers_raise_the_limit() {
        let pace = Arc::new(Pace::new(16));
        for _ in 0..200 {
            write(&pace, Duration::from_millis(5)).await;
        }
        assert_eq!(allowed(&pace), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_lower_the_limit_and_quick_ones_raise_it_again() {
        let pace = Arc::new(Pace::new(16));
        for _ in 0..200 {
            write(&pace, Duration::from_millis(5)).await;
        }
        for _ in 0..20 {
            write(&pace, Duration::from_millis(400)).await;
        }
        assert_eq!(allowed(&pace), 2);
        for _ in 0..200 {
            write(&pace, Duration::from_millis(5)).await;
        }
        assert_eq!(allowed(&pace), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn many_children_in_a_burst_come_before_statuses() {
        let pace = Arc::new(Pace::new(16));
        let mut children: Vec<_> = (0..BUSY).map(|_| pace.serving()).collect();
        assert!(allowed(&pace) > 1, "without a burst nothing waits");
        (0..BURST).for_each(|_| pace.arrived());
        drop(pace.turn().await);
        assert_eq!(allowed(&pace), 0);
        children.pop();
        assert_eq!(allowed(&pace), 1, "few children");
        children.push(pace.serving());
        tokio::time::advance(WINDOW).await;
        (0..BURST).for_each(|_| pace.arrived());
        assert_eq!(allowed(&pace), 1, "one status per window all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_allows_one_turn_and_its_end_allows_more() {
        let pace = Arc::new(Pace::new(16));
        let first = pace.turn().await;
        for _ in 0..20 {
            pace.arrived();
        }
        assert_eq!(allowed(&pace), 1);
        let began = Instant::now();
        let second = pace.turn().await;
        assert!(began.elapsed() >= WINDOW, "the second turn waits for the end of the burst");
        drop((first, second));
        assert!(allowed(&pace) > 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_objects_are_not_a_burst() {
        let pace = Arc::new(Pace::new(16));
        for _ in 0..BURST - 1 {
            pace.arrived();
        }
        assert!(allowed(&pace) > 1);
    }
}
