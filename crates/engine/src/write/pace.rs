//! The number of concurrent status writes.
//!
//! Status writes compete with the users of the API server and with our own children, and serving does not depend on them. So: one write at a
//! time during a burst of objects, few while many children are written in a burst, more when it is quiet, fewer again when the answers get
//! slower, and none while the API server asks to wait.
//!
//! ```text
//!  statuses of a system ─────────► first of its queue ─┐
//!  submitted writes of a system ─► first of its queue ─┴─► queues take turns ─► a turn
//! ```
//!
//! A queue that has no turn gets one, however many the others have: writes of one system that hang do not stop those of another.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::{Notify, Semaphore},
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
/// How long the quickest answer is remembered.
const REMEMBERED: Duration = Duration::from_mins(10);
/// The longest pause of all turns that the API server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Writes that get their turns in order of arrival. Queues share turns equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TurnQueue {
    /// The statuses and finalizers of a system.
    Statuses(&'static str),
    /// The writes that a system submitted.
    Submitted(&'static str),
}

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
    /// Turns by queue.
    by_queue: BTreeMap<TurnQueue, usize>,
    /// The queues whose first write waits for a turn, in the order in which they get one.
    waiting: VecDeque<TurnQueue>,
    /// One permit for each queue: the first write of a queue has it, and the others wait for it. So few tasks wait for a turn.
    first: BTreeMap<TurnQueue, Arc<Semaphore>>,
    /// Turns at the same time when it is quiet, adjusted by how quick the answers are.
    limit: f64,
    /// The quickest answer, and when it came.
    quickest: Option<(Duration, Instant)>,
    /// No turn begins before this: the API server asked to wait.
    paused_until: Option<Instant>,
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
            self.pace.freed.notify_waiters();
        }
    }
}

/// The first write of a queue that waits for a turn, until it is dropped.
struct Waiting<'a> {
    pace: &'a Pace,
    queue: TurnQueue,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pace.lock().waiting.retain(|queue| *queue != self.queue);
        // The next queue may be allowed a turn as well.
        self.pace.freed.notify_waiters();
    }
}

/// One turn to write; it is over when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    pace: Arc<Pace>,
    /// `None` for a turn beside all queues.
    queue: Option<TurnQueue>,
}

impl Pace {
    pub(super) fn new(most: usize) -> Self {
        let now = Instant::now();
        let state = State {
            taken: 0,
            by_queue: BTreeMap::new(),
            waiting: VecDeque::new(),
            first: BTreeMap::new(),
            limit: 4.0,
            quickest: None,
            paused_until: None,
            window: now,
            arrived: (0, 0),
            children: 0,
            turned: now,
        };
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

    /// The API server asks to wait: no turn begins until then.
    pub(super) fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait.min(LONGEST_PAUSE);
        let mut state = self.lock();
        state.paused_until = state.paused_until.max(Some(until));
    }

    /// Waits for a turn.
    pub(super) async fn turn(self: &Arc<Self>, queue: TurnQueue) -> Turn {
        let first = self.lock().first.entry(queue).or_insert_with(|| Arc::new(Semaphore::new(1))).clone();
        // The semaphore is never closed.
        let _first = first.acquire().await;
        self.lock().waiting.push_back(queue);
        let _waiting = Waiting { pace: self, queue };
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.lock();
                let now = Instant::now();
                if state.next(now, self.most) == Some(queue) {
                    state.taken += 1;
                    *state.by_queue.entry(queue).or_default() += 1;
                    state.turned = now;
                    return Turn { pace: Arc::clone(self), queue: Some(queue) };
                }
            }
            // The end of a burst or of a pause does not wake the waiting tasks.
            let _ = timeout(WINDOW, freed).await;
        }
    }

    /// A turn beside all others, for a write that cannot wait.
    pub(super) fn turn_now(self: &Arc<Self>) -> Turn {
        self.lock().taken += 1;
        Turn { pace: Arc::clone(self), queue: None }
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

    /// The queue that may have the next turn.
    fn next(&mut self, now: Instant, most: usize) -> Option<TurnQueue> {
        let allowed = self.allowed(now, most);
        if allowed == 0 {
            return None;
        }
        let has_none = |queue: &TurnQueue| self.by_queue.get(queue).is_none_or(|turns| *turns == 0);
        self.waiting.iter().copied().find(|queue| self.taken < allowed || has_none(queue))
    }

    fn allowed(&mut self, now: Instant, most: usize) -> usize {
        self.roll(now);
        if self.paused_until.is_some_and(|until| now < until) {
            return 0;
        }
        if self.arrived.0.max(self.arrived.1) >= BURST {
            let waits = self.children >= BUSY && now.duration_since(self.turned) < WINDOW;
            return usize::from(!waits);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and `most`")]
        let limit = self.limit as usize;
        limit.clamp(1, most)
    }

    /// The API server answered: additive increase, or multiplicative decrease where that took long.
    fn answered(&mut self, took: Duration, now: Instant, most: usize) {
        let quickest = match self.quickest {
            Some((quickest, at)) if took > quickest && now.duration_since(at) < REMEMBERED => quickest,
            Some(_) | None => {
                self.quickest = Some((took, now));
                took
            }
        };
        if took > QUICK && took > quickest * SLOW {
            self.decrease();
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let most = most as f64;
        self.limit = (self.limit + 1.0 / self.limit).min(most);
    }

    fn decrease(&mut self) {
        self.limit = (self.limit * 0.7).max(2.0);
    }
}

impl Turn {
    /// Writes, at most this often while the errors are transient, and notes how long the API server took.
    pub(crate) async fn write(&self, writer: &Writer, write: &ObjectWrite, tries: u32) -> Result<Value, WriteError> {
        // A turn takes the place of a permit.
        self.timed(writer.try_write(write, tries, None)).await
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
            Err(WriteError::Throttled(_) | WriteError::Transient(_)) => self.failed(),
            Err(_) => {}
        }
        answer
    }

    fn took(&self, took: Duration) {
        self.pace.lock().answered(took, Instant::now(), self.pace.most);
    }

    /// The API server did not answer, or asked to wait. That is no measure of how quick it is.
    fn failed(&self) {
        self.pace.lock().decrease();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.pace.lock();
        state.taken -= 1;
        if let Some(queue) = self.queue
            && let Some(turns) = state.by_queue.get_mut(&queue)
        {
            *turns -= 1;
        }
        drop(state);
        self.pace.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, sleep};

    const ONE: TurnQueue = TurnQueue::Statuses("one");
    const OTHER: TurnQueue = TurnQueue::Submitted("other");

    async fn write(pace: &Arc<Pace>, took: Duration) {
        pace.turn(ONE).await.took(took);
    }

    async fn write_many(pace: &Arc<Pace>, count: u32, took: Duration) {
        for _ in 0..count {
            write(pace, took).await;
        }
    }

    fn allowed(pace: &Pace) -> usize {
        pace.lock().allowed(Instant::now(), pace.most)
    }

    /// All turns that are left for one queue, and many of its writes that wait for more.
    async fn hung(pace: &Arc<Pace>, queue: TurnQueue) -> Vec<Turn> {
        let mut turns = Vec::new();
        while allowed(pace) > pace.lock().taken {
            turns.push(pace.turn(queue).await);
        }
        for _ in 0..500 {
            let pace = pace.clone();
            tokio::spawn(async move {
                let _turn = pace.turn(queue).await;
                std::future::pending::<()>().await;
            });
        }
        sleep(Duration::from_millis(1)).await;
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn quick_answers_raise_the_limit() {
        let pace = Arc::new(Pace::new(16));
        write_many(&pace, 200, Duration::from_millis(5)).await;
        assert_eq!(allowed(&pace), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_lower_the_limit_and_quick_ones_raise_it_again() {
        let pace = Arc::new(Pace::new(16));
        write_many(&pace, 200, Duration::from_millis(5)).await;
        write_many(&pace, 20, Duration::from_millis(400)).await;
        assert_eq!(allowed(&pace), 2);
        write_many(&pace, 1_000, Duration::from_mins(1)).await;
        assert_eq!(allowed(&pace), 2, "slow answers are not the measure of slow answers");
        write_many(&pace, 200, Duration::from_millis(5)).await;
        assert_eq!(allowed(&pace), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_never_raise_the_limit() {
        let pace = Arc::new(Pace::new(16));
        for _ in 0..1_000 {
            pace.turn(ONE).await.failed();
            advance(Duration::from_mins(1)).await;
        }
        assert_eq!(allowed(&pace), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_became_slower_is_measured_again_after_ten_minutes() {
        let pace = Arc::new(Pace::new(16));
        write_many(&pace, 200, Duration::from_millis(5)).await;
        write_many(&pace, 200, Duration::from_millis(400)).await;
        assert_eq!(allowed(&pace), 2);
        advance(REMEMBERED).await;
        write_many(&pace, 200, Duration::from_millis(400)).await;
        assert_eq!(allowed(&pace), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_whose_writes_hang_leaves_one_turn_to_another() {
        let pace = Arc::new(Pace::new(16));
        let _hung = hung(&pace, OTHER).await;
        for _ in 0..100 {
            let turn = timeout(Duration::from_millis(1), pace.turn(ONE)).await.expect("a turn at once");
            assert!(timeout(Duration::from_secs(1), pace.turn(ONE)).await.is_err(), "one, and not more");
            drop(turn);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn queues_share_the_turns_that_end() {
        let pace = Arc::new(Pace::new(16));
        let _own = pace.turn(ONE).await;
        let mut hung = hung(&pace, OTHER).await;
        let waits = tokio::spawn({
            let pace = pace.clone();
            async move { drop(pace.turn(ONE).await) }
        });
        sleep(Duration::from_millis(1)).await;
        // Two turns end: one is for the write that waited first, and one for the other queue.
        hung.truncate(1);
        sleep(Duration::from_millis(1)).await;
        assert!(waits.is_finished(), "it does not wait for 500 others");
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_write_of_a_queue_waits_for_a_turn() {
        let pace = Arc::new(Pace::new(16));
        let _hung = hung(&pace, OTHER).await;
        assert_eq!(pace.lock().waiting.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_turn_begins_while_the_server_asks_to_wait() {
        let pace = Arc::new(Pace::new(16));
        pace.pause(Duration::from_secs(2));
        pace.pause(Duration::from_secs(1));
        let began = Instant::now();
        drop(pace.turn(ONE).await);
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(began.elapsed() <= Duration::from_secs(2) + WINDOW, "{:?}", began.elapsed());
        pace.pause(Duration::from_hours(1));
        advance(LONGEST_PAUSE).await;
        assert!(allowed(&pace) > 0, "it is not paused for an hour");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_stops_waiting_leaves_its_place() {
        let pace = Arc::new(Pace::new(16));
        let _hung = hung(&pace, OTHER).await;
        let _own = pace.turn(ONE).await;
        assert!(timeout(Duration::from_secs(1), pace.turn(ONE)).await.is_err());
        assert_eq!(pace.lock().waiting, [OTHER]);
        assert!(timeout(Duration::from_secs(1), pace.turn(ONE)).await.is_err(), "it can wait again");
    }

    #[tokio::test(start_paused = true)]
    async fn many_children_in_a_burst_come_before_statuses() {
        let pace = Arc::new(Pace::new(16));
        let mut children: Vec<_> = (0..BUSY).map(|_| pace.serving()).collect();
        assert!(allowed(&pace) > 1, "without a burst nothing waits");
        (0..BURST).for_each(|_| pace.arrived());
        drop(pace.turn(ONE).await);
        assert_eq!(allowed(&pace), 0);
        children.pop();
        assert_eq!(allowed(&pace), 1, "few children");
        children.push(pace.serving());
        advance(WINDOW).await;
        (0..BURST).for_each(|_| pace.arrived());
        assert_eq!(allowed(&pace), 1, "one status per window all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_allows_one_turn_and_its_end_allows_more() {
        let pace = Arc::new(Pace::new(16));
        let first = pace.turn(ONE).await;
        for _ in 0..20 {
            pace.arrived();
        }
        assert_eq!(allowed(&pace), 1);
        let began = Instant::now();
        let second = pace.turn(ONE).await;
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
