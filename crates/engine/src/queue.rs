//! A keyed queue: at most one pass per key at a time. Touches during a pass are kept for the next one.
//!
//! ```text
//!  touch(key, object) ─┐                        ┌─► next() ─► Job { key, touched, attempt }
//!  touch_after(..) ────┼─► plans of that key ───┤
//!  finish(outcome) ────┘   (merged when due)    └─► one at a time per key, oldest due first
//! ```
//!
//! A key that is idle runs at once. Touches during a pass are merged into the next pass of the key, which begins after a pause as long as
//! the last pass took (see [`Gather`]). Failures are retried by class: at once, with exponential backoff and jitter, not before the
//! provider allows it, or minutes later.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use signpost_planning::doubled;
use tokio::{sync::Notify, time::Instant};

use crate::driver::{Outcome, RetryClass};

mod changed;
mod statuses;
use changed::Changed;
pub use statuses::Statuses;
pub(crate) use statuses::Taken;

/// A larger set of touched objects becomes a full pass.
const TOUCHED_LIMIT: usize = 4096;
/// A new touch waits at most this long behind a transient failure of its key.
const TOUCH_WAIT: Duration = Duration::from_secs(1);
/// Separate timers one key may have for [`Queue::touch_after`]; more are merged into the earliest.
const TIMERS_PER_KEY: usize = 8;

/// The objects that a touch asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touch<O> {
    /// Everything under the key.
    All,
    /// This object.
    One(O),
}

/// The objects that a pass works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched<O> {
    /// Everything under the key.
    All,
    /// These objects.
    Some(BTreeSet<O>),
}

impl<O: Ord> Touched<O> {
    /// Nothing yet.
    pub fn none() -> Self {
        Self::Some(BTreeSet::new())
    }

    /// True when this object is to be worked on.
    pub fn includes(&self, object: &O) -> bool {
        match self {
            Self::All => true,
            Self::Some(objects) => objects.contains(object),
        }
    }

    /// True when there is nothing to work on.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Some(objects) if objects.is_empty())
    }

    /// Adds the objects of `other`.
    pub fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (Self::Some(_), Self::All) => *self = Self::All,
            (Self::Some(have), Self::Some(more)) => {
                if have.is_empty() {
                    *have = more;
                } else {
                    have.extend(more);
                }
                if have.len() > TOUCHED_LIMIT {
                    *self = Self::All;
                }
            }
        }
    }
}

impl<O> std::fmt::Display for Touched<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Some(objects) => write!(f, "{}", objects.len()),
        }
    }
}

impl<O: Ord> From<Touch<O>> for Touched<O> {
    fn from(touch: Touch<O>) -> Self {
        match touch {
            Touch::All => Self::All,
            Touch::One(object) => Self::Some(BTreeSet::from([object])),
        }
    }
}

/// One pass to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job<K, O> {
    /// The unit that is written at once.
    pub key: K,
    /// The objects touched since the last pass of this key.
    pub touched: Touched<O>,
    /// How often this key has failed in a row; 0 on the first try.
    pub attempt: u32,
}

/// How long a key waits before it runs again.
///
/// A key that is idle runs at once. A key that is touched again waits after its last pass as long as that pass took, and not longer than
/// this. Touches until then are part of the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// At most this long.
    pub at_most: Duration,
}

impl Gather {
    fn pause(self, took: Duration) -> Duration {
        took.min(self.at_most)
    }
}

impl Default for Gather {
    fn default() -> Self {
        Self { at_most: Duration::from_millis(300) }
    }
}

/// The queue of one system. Cloning gives another handle to the same queue.
#[derive(Debug)]
pub struct Queue<K, O> {
    shared: Arc<Shared<K, O>>,
}

impl<K, O> Clone for Queue<K, O> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Ord + Clone, O: Ord + Clone> Default for Queue<K, O> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Shared<K, O> {
    state: Mutex<State<K, O>>,
    /// Earlier than anything else is due.
    began: Instant,
    wake: Notify,
    statuses: Statuses<K>,
    changed: Changed<K>,
}

#[derive(Debug)]
struct State<K, O> {
    entries: BTreeMap<K, Entry<O>>,
    /// Keys that may run, by when and in order of arrival.
    due: BTreeSet<(Instant, u64, K)>,
    /// Keys that ended a pass with nothing left to do: forgotten once their pause has passed.
    resting: VecDeque<(Instant, K)>,
    gather: Gather,
    arrivals: u64,
    running: usize,
    rng: StdRng,
}

#[derive(Debug)]
struct Entry<O> {
    plans: Vec<Plan<O>>,
    due: Option<(Instant, u64)>,
    running: bool,
    /// When the pass in progress began.
    began: Option<Instant>,
    /// When the last pass ended, and how long it took.
    finished: Option<(Instant, Duration)>,
    not_before: Option<Instant>,
    attempts: u32,
    slow_attempts: u32,
    /// The system did not know the key when the queue was tidied last, and nothing has touched it since.
    unknown: bool,
}

impl<O> Default for Entry<O> {
    fn default() -> Self {
        Self {
            plans: Vec::new(),
            due: None,
            running: false,
            began: None,
            finished: None,
            not_before: None,
            attempts: 0,
            slow_attempts: 0,
            unknown: false,
        }
    }
}

#[derive(Debug)]
struct Plan<O> {
    at: Instant,
    why: Why,
    touched: Touched<O>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    First,
    Touched,
    Retry,
    Slow,
    Check,
    Later,
}

impl<O: Ord> Entry<O> {
    fn plan(&mut self, at: Instant, why: Why, touched: Touched<O>) {
        let same = self.plans.iter_mut().find(|plan| plan.why == why);
        match (why, same) {
            (Why::Check, Some(plan)) => plan.at = at,
            (Why::First | Why::Touched | Why::Retry | Why::Slow, Some(plan)) => {
                plan.at = plan.at.min(at);
                plan.touched.merge(touched);
            }
            (Why::Later, Some(_)) => self.plan_later(at, touched),
            (_, None) => self.plans.push(Plan { at, why, touched }),
        }
    }

    /// Adds to a retry that is planned, which is not delayed for long then. Returns what there is no retry for.
    fn join_retry(&mut self, touched: Touched<O>) -> Option<Touched<O>> {
        let Some(retry) = self.plans.iter_mut().find(|plan| plan.why == Why::Retry) else { return Some(touched) };
        retry.at = retry.at.min(Instant::now() + TOUCH_WAIT);
        retry.touched.merge(touched);
        None
    }

    fn plan_later(&mut self, at: Instant, touched: Touched<O>) {
        let timers = || self.plans.iter().filter(|plan| plan.why == Why::Later);
        let full = timers().count() >= TIMERS_PER_KEY;
        let everything = touched == Touched::All && timers().any(|plan| plan.touched == Touched::All);
        let join = self
            .plans
            .iter_mut()
            .filter(|plan| plan.why == Why::Later)
            .find(|plan| plan.at == at || full || (everything && plan.touched == Touched::All));
        match join {
            Some(plan) => {
                plan.at = plan.at.min(at);
                plan.touched.merge(touched);
            }
            None => self.plans.push(Plan { at, why: Why::Later, touched }),
        }
    }

    fn next_at(&self) -> Option<Instant> {
        let at = self.plans.iter().map(|plan| plan.at).min()?;
        Some(self.not_before.map_or(at, |earliest| earliest.max(at)))
    }
}

impl<K: Ord + Clone, O: Ord + Clone> Queue<K, O> {
    /// An empty queue. The seed of its jitter and its gather window are set when a driver takes it.
    pub fn new() -> Self {
        let state = State {
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            resting: VecDeque::new(),
            gather: Gather::default(),
            arrivals: 0,
            running: 0,
            rng: StdRng::seed_from_u64(0),
        };
        let (state, statuses, changed) = (Mutex::new(state), Statuses::new(), Changed::new());
        Self { shared: Arc::new(Shared { state, began: Instant::now(), wake: Notify::new(), statuses, changed }) }
    }

    /// Asks for a pass of `key`, as soon as the key is free.
    pub fn touch(&self, key: K, touch: Touch<O>) {
        let now = Instant::now();
        self.change(key, |entry, gather, _| {
            if let Some(touched) = entry.join_retry(touch.into()) {
                let at = entry.rested(gather).map_or(now, |rested| rested.max(now));
                entry.plan(at, Why::Touched, touched);
            }
        });
    }

    /// Asks for a pass of `key` before those of all other keys, and without a pause after its last one: for what must not be there any more. A
    /// key that waits after a failure keeps its turn.
    pub fn touch_first(&self, key: K, touch: Touch<O>) {
        let first = self.shared.began;
        self.change(key, |entry, _, _| {
            let touched = touch.into();
            if let Some(touched) = entry.join_retry(touched) {
                entry.plan(first, Why::First, touched);
            }
        });
    }

    /// Asks for a pass of `key` once `delay` has passed. A full pass that is already planned for later is brought forward, not doubled.
    pub fn touch_after(&self, key: K, touch: Touch<O>, delay: Duration) {
        let at = Instant::now() + delay;
        self.change(key, |entry, _, _| entry.plan(at, Why::Later, touch.into()));
    }

    /// What is known under `key` has changed, and no pass is needed: only the inventory is brought up to date.
    pub fn note(&self, key: &K) {
        self.shared.changed.note(key);
    }

    /// Whether an inventory is kept, so that what is only shown there is worth its memory.
    pub fn is_followed(&self) -> bool {
        self.shared.changed.is_followed()
    }

    /// From now on, keys that change are remembered for [`Queue::changed`].
    pub(crate) fn follow(&self) {
        self.shared.changed.follow();
    }

    /// Waits for keys that were touched, whose pass ended, or that were noted.
    pub(crate) async fn changed(&self) -> BTreeSet<K> {
        self.shared.changed.next().await
    }

    /// Ends the pause after a failure of `key`: what waits for it is due now. Nothing happens to a key that does not wait.
    pub fn wake(&self, key: &K) {
        if !self.lock().entries.contains_key(key) {
            return;
        }
        let now = Instant::now();
        self.change(key.clone(), |entry, _, _| {
            entry.not_before = None;
            for plan in entry.plans.iter_mut().filter(|plan| matches!(plan.why, Why::Retry | Why::Slow)) {
                plan.at = plan.at.min(now);
            }
        });
    }

    /// The touched objects that are queued, due or not, by key.
    pub fn waiting(&self) -> BTreeMap<K, Touched<O>> {
        let state = self.lock();
        let merged = |entry: &Entry<O>| {
            let mut touched = Touched::none();
            for plan in entry.plans.iter().filter(|plan| plan.why != Why::Check) {
                touched.merge(plan.touched.clone());
            }
            touched
        };
        state
            .entries
            .iter()
            .map(|(key, entry)| (key.clone(), merged(entry)))
            .filter(|(_, touched)| !touched.is_empty())
            .collect()
    }

    /// Takes the next key that is due now, if any. Every job must be ended with [`Queue::finish`].
    pub fn try_next(&self) -> Option<Job<K, O>> {
        self.lock().take_due(Instant::now())
    }

    /// Waits for the next key that is due. Every job must be ended with [`Queue::finish`].
    pub async fn next(&self) -> Job<K, O> {
        loop {
            let wake = self.shared.wake.notified();
            let until = {
                let mut state = self.lock();
                let now = Instant::now();
                if let Some(job) = state.take_due(now) {
                    return job;
                }
                state.due.first().map(|(at, ..)| *at)
            };
            match until {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = wake => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => wake.await,
            }
        }
    }

    /// Ends the pass of `key` and plans the next one by its outcome.
    pub fn finish(&self, key: &K, outcome: Outcome<O>) {
        let now = Instant::now();
        {
            let mut state = self.lock();
            state.running = state.running.saturating_sub(1);
        }
        self.change(key.clone(), |entry, gather, rng| {
            entry.running = false;
            let began = entry.began.take().unwrap_or(now);
            entry.finished = Some((now, now.duration_since(began)));
            let rested = entry.rested(gather).unwrap_or(now);
            for plan in entry.plans.iter_mut().filter(|plan| plan.why == Why::Touched) {
                plan.at = plan.at.max(rested);
            }
            match outcome {
                Outcome::Done => entry.succeeded(),
                Outcome::Check { after } => {
                    entry.succeeded();
                    entry.plan(now + spread(after, rng), Why::Check, Touched::All);
                }
                Outcome::Retry { class, objects } => entry.failed(now, class, objects, rng),
            }
        });
    }

    /// Between half of `delay` and all of it, drawn from the generator of this queue.
    pub(crate) fn jittered(&self, delay: Duration) -> Duration {
        jittered(delay, &mut self.lock().rng)
    }

    /// The objects of this system whose status may have to be written.
    pub fn statuses(&self) -> &Statuses<K> {
        &self.shared.statuses
    }

    /// Prepares the queue for a driver: touches until now become a full pass of each key, since a new leader has to check everything.
    pub(crate) fn start(&self, gather: Gather, seed: u64) {
        let mut state = self.lock();
        state.gather = gather;
        state.rng = StdRng::seed_from_u64(seed);
        state.touch_all();
        drop(state);
        self.shared.wake.notify_waiters();
    }

    /// Gives memory back while no driver takes from the queue. Forgets the lists of touched objects, because every key gets a full pass at the
    /// start. Forgets a key that the system did not know at two calls in a row without a touch in between: its objects are deleted.
    pub(crate) fn tidy(&self, knows: impl Fn(&K) -> bool) {
        // Without the lock: an index touches keys while it has its own lock, and `knows` waits for that.
        let keys: Vec<K> = self.lock().entries.keys().cloned().collect();
        let (known, unknown): (Vec<K>, Vec<K>) = keys.into_iter().partition(knows);
        let mut state = self.lock();
        state.touch_all();
        for key in &known {
            if let Some(entry) = state.entries.get_mut(key) {
                entry.unknown = false;
            }
        }
        for key in &unknown {
            state.forget_unknown(key);
        }
    }

    /// Keys that are due and keys that are running.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.lock();
        let now = Instant::now();
        (state.due.iter().take_while(|(at, ..)| *at <= now).count(), state.running)
    }

    fn lock(&self) -> MutexGuard<'_, State<K, O>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, key: K, change: impl FnOnce(&mut Entry<O>, Gather, &mut StdRng)) {
        self.note(&key);
        self.lock().change(key, change);
        self.shared.wake.notify_one();
    }
}

impl<K: Ord + Clone, O: Ord + Clone> State<K, O> {
    fn change(&mut self, key: K, change: impl FnOnce(&mut Entry<O>, Gather, &mut StdRng)) {
        let Self { entries, due, resting, gather, arrivals, rng, .. } = self;
        let entry = entries.entry(key.clone()).or_default();
        entry.unknown = false;
        change(entry, *gather, rng);
        let at = if entry.running { None } else { entry.next_at() };
        if entry.due.map(|(at, _)| at) != at {
            if let Some((at, arrival)) = entry.due.take() {
                due.remove(&(at, arrival, key.clone()));
            }
            if let Some(at) = at {
                *arrivals += 1;
                entry.due = Some((at, *arrivals));
                due.insert((at, *arrivals, key.clone()));
            }
        }
        if !entry.running
            && entry.plans.is_empty()
            && let Some(rested) = entry.rested(*gather)
        {
            resting.push_back((rested, key));
        }
    }

    fn take_due(&mut self, now: Instant) -> Option<Job<K, O>> {
        self.forget_rested(now);
        if self.due.first().is_none_or(|(at, ..)| *at > now) {
            return None;
        }
        let (_, _, key) = self.due.pop_first()?;
        let entry = self.entries.get_mut(&key)?;
        let mut touched = Touched::none();
        let (ready, mut rest): (Vec<_>, Vec<_>) = entry.plans.drain(..).partition(|plan| plan.at <= now);
        for plan in ready {
            touched.merge(plan.touched);
        }
        if touched == Touched::All {
            // A full pass works on these as well.
            rest.retain(|plan| !matches!(plan.why, Why::Retry | Why::Slow | Why::Touched | Why::First));
        }
        entry.plans = rest;
        entry.due = None;
        entry.not_before = None;
        entry.began = Some(now);
        entry.running = true;
        self.running += 1;
        Some(Job { attempt: entry.attempts, key, touched })
    }

    /// Every key that is queued gets a full pass.
    fn touch_all(&mut self) {
        for plan in self.entries.values_mut().flat_map(|entry| &mut entry.plans) {
            plan.touched = Touched::All;
        }
    }

    /// Forgets a key that was unknown before, too.
    fn forget_unknown(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if !std::mem::replace(&mut entry.unknown, true) {
            return;
        }
        if let Some((at, arrival)) = entry.due {
            self.due.remove(&(at, arrival, key.clone()));
        }
        self.entries.remove(key);
    }

    fn forget_rested(&mut self, now: Instant) {
        while let Some((until, _)) = self.resting.front()
            && *until <= now
        {
            let Some((_, key)) = self.resting.pop_front() else { break };
            let gather = self.gather;
            // A key that had another pass meanwhile has a new pause.
            let rested = |entry: &Entry<O>| entry.rested(gather).is_none_or(|rested| rested <= now);
            if self.entries.get(&key).is_some_and(|entry| !entry.running && entry.plans.is_empty() && rested(entry)) {
                self.entries.remove(&key);
            }
        }
    }
}

impl<O: Ord> Entry<O> {
    /// When the pause after the last pass is over.
    fn rested(&self, gather: Gather) -> Option<Instant> {
        self.finished.map(|(at, took)| at + gather.pause(took))
    }

    fn succeeded(&mut self) {
        self.attempts = 0;
        if !self.plans.iter().any(|plan| plan.why == Why::Slow) {
            self.slow_attempts = 0;
        }
    }

    fn failed(&mut self, now: Instant, class: RetryClass, objects: Touched<O>, rng: &mut StdRng) {
        match class {
            RetryClass::Now => {
                self.attempts = self.attempts.saturating_add(1);
                let delay = match self.attempts {
                    1 | 2 => Duration::ZERO,
                    more => jittered(doubled(Duration::from_millis(20), more - 3, Duration::from_secs(5)), rng),
                };
                self.plan(now + delay, Why::Retry, objects);
            }
            RetryClass::Transient => {
                self.attempts = self.attempts.saturating_add(1);
                let (mut objects, mut delay) = (objects, transient_delay(self.attempts, rng));
                // Objects touched during the pass would meet the same failure, so they wait with the rest.
                for plan in self.plans.extract_if(.., |plan| matches!(plan.why, Why::Touched | Why::First)) {
                    objects.merge(plan.touched);
                    delay = delay.min(TOUCH_WAIT);
                }
                self.plan(now + delay, Why::Retry, objects);
            }
            RetryClass::Throttled { after } => {
                self.attempts = self.attempts.saturating_add(1);
                // Not earlier than asked, and a little later, so that keys do not all retry at the same moment.
                let asked = after.unwrap_or_else(|| transient_delay(self.attempts.max(3), rng));
                let until = now + asked + jittered(asked.min(Duration::from_secs(2)) / 4, rng);
                self.not_before = Some(until);
                self.plan(until, Why::Retry, objects);
            }
            RetryClass::Slow => {
                self.slow_attempts = self.slow_attempts.saturating_add(1);
                let delay = doubled(Duration::from_mins(1), self.slow_attempts - 1, Duration::from_mins(5));
                self.plan(now + jittered(delay, rng), Why::Slow, objects);
            }
            RetryClass::Fixed(delay) => self.plan(now + delay, Why::Later, objects),
        }
    }
}

/// A quarter second, doubled per attempt up to eight seconds; after about a minute of failures, up to half a minute.
pub(crate) fn transient_delay(attempt: u32, rng: &mut StdRng) -> Duration {
    let cap = if attempt <= 12 { Duration::from_secs(8) } else { Duration::from_secs(30) };
    jittered(doubled(Duration::from_millis(250), attempt.saturating_sub(1), cap), rng)
}

/// Between half of `delay` and all of it.
pub(crate) fn jittered(delay: Duration, rng: &mut StdRng) -> Duration {
    delay.mul_f64(rng.random_range(0.5..=1.0))
}

/// `delay`, up to a tenth more or less.
fn spread(delay: Duration, rng: &mut StdRng) -> Duration {
    delay.mul_f64(rng.random_range(0.9..=1.1))
}

#[cfg(test)]
mod tests;
