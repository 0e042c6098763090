//! The four steps of a pass: observe → plan → apply → report.
//!
//! In: jobs from a [`Queue`] and the memory of their key. Out: object writes to the [`Writer`], events to the [`Recorder`], refusals, the
//! key's memory, and an outcome from which the queue decides when the key runs next. `observe` and `apply` wait for servers and have a
//! deadline each; `plan` and `report` are pure. A step that overruns its deadline or panics is retried and does not stop other keys.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;
use signpost_planning::Refusal;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    clock::Clock,
    events::{Event, Recorder},
    lease::Fence,
    metrics::Metrics,
    object::{Identity, ObjectId},
    queue::{Gather, Job, Queue, Touch, Touched},
    refusals::Refusals,
    write::{ChildError, ObjectWrite, WriteError, Writer},
};

mod reporting;

/// One system: what it observes, decides, does and reports, in that order.
///
/// `plan` and `report` have no `self`: they are functions of their arguments. Settings and the state of earlier passes are passed in
/// [`System::Observed`] and [`System::Memory`].
pub trait System: Send + Sync + Sized + 'static {
    /// The name in logs and metrics.
    const NAME: &'static str;
    /// Whether the system logs its refusals itself, with fields of its own. The engine then leaves out its log entry.
    const LOGS_REFUSALS: bool = false;
    /// The unit that is written at once.
    type Key: Ord + Clone + fmt::Display + fmt::Debug + Send + Sync + 'static;
    /// An object under a key.
    type Object: Ord + Clone + fmt::Debug + Send + Sync + 'static;
    /// The state of a key between its passes. The driver keeps it. A pass that panics or overruns its deadline loses it, which costs a full
    /// read.
    type Memory: Default + Send;
    /// The input of `plan`.
    type Observed: Send;
    /// The actions, and the refusals.
    type Plan: Send;
    /// The results of the actions.
    type Applied: Send;
    /// The decision of a pass about one object whose status is queued for writing. `()` for a system without such objects.
    type Status: Send;
    /// The measurements of a pass. `()` for a system without metrics of its own.
    type Measured: Default + Send;

    /// Reads indexes and provider state. Total: a provider that cannot be reached is a value, not an error.
    fn observe(
        &self,
        job: &Job<Self::Key, Self::Object>,
        memory: Self::Memory,
    ) -> impl Future<Output = Self::Observed> + Send;
    /// Decides. Pure.
    fn plan(observed: Self::Observed, now: Timestamp) -> Self::Plan;
    /// Executes the plan: the step that writes to providers.
    fn apply(&self, plan: Self::Plan) -> impl Future<Output = Self::Applied> + Send;
    /// Reports the results. Pure.
    fn report(applied: Self::Applied, now: Timestamp) -> Report<Self>;

    /// Stores the decisions of a pass about objects, and returns the objects whose status may have to be written.
    fn settle(&self, key: &Self::Key, statuses: Vec<Self::Status>) -> Vec<Arc<ObjectId>> {
        let _ = (key, statuses);
        Vec::new()
    }
    /// The wanted state of an object now; called when its turn to be written comes. `None` when there is nothing to write.
    fn wanted(&self, id: &ObjectId, now: Timestamp) -> Option<Wanted> {
        let _ = (id, now);
        None
    }
    /// The object as the API server returned it for such a write, ahead of the watch.
    fn written(&self, id: &ObjectId, object: &Value) {
        let _ = (id, object);
    }
    /// No status of a key is queued any more, and at least one was written; `last` was the last one. A write that failed is repeated later,
    /// and counts again then. Returns what to touch then, and how much later.
    fn all_written(&self, key: &Self::Key, last: &Arc<ObjectId>) -> Option<(Touch<Self::Object>, Duration)> {
        let _ = (key, last);
        None
    }
    /// Whether the index has anything under a key: an object, or something that was made for one. A replica that does not lead forgets a key
    /// without, some minutes later. A system whose keys are deleted with their objects implements it.
    fn knows(&self, key: &Self::Key) -> bool {
        let _ = key;
        true
    }
    /// Counts what a pass measured.
    fn measure(&self, measured: Self::Measured) {
        let _ = measured;
    }
}

/// The result of a pass.
pub struct Report<S: System> {
    /// The new memory of the key. `None` clears it.
    pub memory: Option<S::Memory>,
    /// Decisions about objects whose status is queued for writing.
    pub statuses: Vec<S::Status>,
    /// Metadata to write as it is, after serving.
    pub writes: Vec<ObjectWrite>,
    /// Events to record.
    pub events: Vec<Event>,
    /// Refusals of objects that have no status of ours. The list of an object is complete; an empty one clears earlier refusals.
    pub refusals: Vec<(Identity, Vec<Refusal>)>,
    /// Measurements for the metrics.
    pub measured: S::Measured,
    /// Other keys to touch, and how much later.
    pub touches: Vec<(S::Key, Touch<S::Object>, Duration)>,
    /// When this key runs next.
    pub outcome: Outcome<S::Object>,
}

impl<S: System> Report<S> {
    /// A report with an outcome only.
    pub fn new(outcome: Outcome<S::Object>) -> Self {
        Self {
            memory: None,
            statuses: Vec::new(),
            writes: Vec::new(),
            events: Vec::new(),
            refusals: Vec::new(),
            measured: S::Measured::default(),
            touches: Vec::new(),
            outcome,
        }
    }
}

/// The wanted state of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Which object, as it is known now.
    pub identity: Identity,
    /// Its finalizers, where they have to change. They are written first.
    pub finalizers: Option<Vec<String>>,
    /// Its status, or the part that is ours; `None` leaves it alone.
    pub status: Option<Value>,
    /// The refusals in the status; reported when the status is written.
    pub refusals: Vec<Refusal>,
    /// The part of the operator that owns the status (see [`ObjectWrite::owned_by`]); empty for the default.
    pub owner: &'static str,
}

impl Wanted {
    /// Nothing is wanted of this object.
    pub fn nothing(identity: Identity) -> Self {
        Self { identity, finalizers: None, status: None, refusals: Vec::new(), owner: "" }
    }
}

/// When a key runs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<O> {
    /// When something changes.
    Done,
    /// When something changes, or after this long for a full pass.
    Check {
        /// How long to wait; spread by a tenth so that keys do not run in step.
        after: Duration,
    },
    /// Something failed.
    Retry {
        /// How soon.
        class: RetryClass,
        /// For which objects.
        objects: Touched<O>,
    },
}

/// How soon a failed pass is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// A conflict: the object read is out of date. At once, then with short delays.
    Now,
    /// Unreachable, a timeout, a 5xx: exponential backoff with jitter.
    Transient,
    /// The provider asked to wait: not before this long, whatever else is touched.
    Throttled {
        /// How long, where the provider named a time.
        after: Option<Duration>,
    },
    /// Input that will not become valid by itself: minutes. Other objects of the key do not wait for it.
    Slow,
    /// After exactly this long.
    Fixed(Duration),
}

impl From<&WriteError> for RetryClass {
    fn from(error: &WriteError) -> Self {
        match error {
            WriteError::Conflict => Self::Now,
            WriteError::Throttled(after) => Self::Throttled { after: *after },
            WriteError::Invalid(_) => Self::Slow,
            WriteError::Gone | WriteError::Forbidden(_) | WriteError::Transient(_) => Self::Transient,
        }
    }
}

impl From<&ChildError> for RetryClass {
    fn from(error: &ChildError) -> Self {
        match error {
            ChildError::NotOurs { .. } => Self::Slow,
            ChildError::Leaving { .. } => Self::Transient,
            ChildError::Write(error) => error.into(),
        }
    }
}

impl RetryClass {
    /// The name in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Now => "conflict",
            Self::Transient => "transient",
            Self::Throttled { .. } => "throttled",
            Self::Slow => "slow",
            Self::Fixed(_) => "fixed",
        }
    }
}

/// How a system is driven.
#[derive(Clone, Copy, Debug)]
pub struct DriveOptions {
    /// Keys worked on at the same time.
    pub concurrency: usize,
    /// Longest time for one `observe` and for one `apply`.
    pub deadline: Duration,
    /// How long a key waits for more touches.
    pub gather: Gather,
}

impl Default for DriveOptions {
    fn default() -> Self {
        Self { concurrency: 8, deadline: Duration::from_secs(30), gather: Gather::default() }
    }
}

/// How often a queue is tidied whose driver does not run yet.
const TIDY: Duration = Duration::from_mins(10);

/// The receivers of a driver's results.
#[derive(Clone)]
pub(crate) struct Outlets {
    pub(crate) writer: Writer,
    pub(crate) recorder: Recorder,
    pub(crate) refusals: Refusals,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) fence: Fence,
}

/// A system and its queue, ready to be driven.
pub(crate) struct Driver<S: System> {
    system: Arc<S>,
    queue: Queue<S::Key, S::Object>,
    options: DriveOptions,
    outlets: Outlets,
    /// A pass takes the memory of its key out and puts it back at its end.
    memories: Mutex<BTreeMap<S::Key, S::Memory>>,
}

type JobOf<S> = Job<<S as System>::Key, <S as System>::Object>;

impl<S: System> Driver<S> {
    pub(crate) fn new(
        system: Arc<S>,
        queue: Queue<S::Key, S::Object>,
        options: DriveOptions,
        outlets: Outlets,
    ) -> Self {
        Self { system, queue, options, outlets, memories: Mutex::default() }
    }

    fn memories(&self) -> MutexGuard<'_, BTreeMap<S::Key, S::Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs as soon as `opens` returns, until `stop`.
    pub(crate) async fn run_after(self, opens: impl Future<Output = ()>, seed: u64, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = opens => {}
            () = self.keep_tidy() => {}
        }
        self.run(seed, stop).await;
    }

    /// Every replica fills the queue, and only a driver empties it. Until this one runs, what belongs to deleted objects is given back.
    async fn keep_tidy(&self) {
        loop {
            tokio::time::sleep(TIDY).await;
            let now = self.outlets.clock.now();
            self.queue.tidy(|key| or_panicked(|| self.system.knows(key)));
            self.queue.statuses().tidy(|id| or_panicked(|| self.system.wanted(id, now).is_some()));
        }
    }

    /// Works off the queue until `stop`, then lets running passes and status writes end. Dropping the future ends them where they are.
    async fn run(self, seed: u64, stop: CancellationToken) {
        let driver = Arc::new(self);
        driver.queue.start(driver.options.gather, seed);
        // Only here: a replica that does not lead fills the queue and never empties it.
        let keys = driver.queue.clone();
        driver.outlets.metrics.follow_depth(S::NAME, move || keys.depth());
        let permits = Arc::new(Semaphore::new(driver.options.concurrency.max(1)));
        let mut passes = JoinSet::new();
        // The reports of the last passes are still written.
        let passes_ended = CancellationToken::new();
        let mut statuses = JoinSet::new();
        statuses.spawn(Arc::clone(&driver).write_statuses(passes_ended.clone()));
        loop {
            let next = async {
                // The semaphore is never closed.
                let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
                Some((permit, driver.queue.next().await))
            };
            let (permit, job) = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                next = next => match next {
                    Some(next) => next,
                    None => break,
                },
            };
            while passes.try_join_next().is_some() {}
            let driver = Arc::clone(&driver);
            passes.spawn(async move {
                driver.work(job).await;
                drop(permit);
            });
        }
        while passes.join_next().await.is_some() {}
        passes_ended.cancel();
        while statuses.join_next().await.is_some() {}
    }

    async fn work(&self, job: JobOf<S>) {
        let metrics = &self.outlets.metrics;
        let span = tracing::info_span!("pass", system = S::NAME, key = %job.key, attempt = job.attempt);
        let outcome = match AssertUnwindSafe(self.pass(&job).instrument(span.clone())).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(panic) => {
                metrics.panicked(S::NAME);
                let _in_span = span.enter();
                tracing::error!(panic = panic_text(&*panic), "pass panicked; it will be retried");
                (Outcome::Retry { class: RetryClass::Transient, objects: job.touched.clone() }, "panic")
            }
        };
        let (outcome, label) = outcome;
        metrics.pass(S::NAME, label);
        if let Outcome::Retry { class, .. } = &outcome {
            metrics.retry(S::NAME, class.label());
        }
        self.queue.finish(&job.key, outcome);
    }

    async fn pass(&self, job: &JobOf<S>) -> (Outcome<S::Object>, &'static str) {
        let Self { system, options, outlets, .. } = self;
        let Outlets { metrics, clock, fence, .. } = outlets;
        let overrun = |step: &'static str| {
            tracing::warn!(step, deadline = ?options.deadline, "step exceeded its deadline; the pass will be retried");
            (Outcome::Retry { class: RetryClass::Transient, objects: job.touched.clone() }, "deadline")
        };

        let began = Instant::now();
        let memory = self.memories().remove(&job.key).unwrap_or_default();
        let Ok(observed) = timeout(options.deadline, system.observe(job, memory)).await else {
            return overrun("observe");
        };
        metrics.step(S::NAME, "observe", began.elapsed());

        let began = Instant::now();
        let plan = S::plan(observed, clock.now());
        metrics.step(S::NAME, "plan", began.elapsed());

        let began = Instant::now();
        let applied = match fence.guard(timeout(options.deadline, system.apply(plan))).await {
            Some(Ok(applied)) => applied,
            Some(Err(_)) => return overrun("apply"),
            // The lease ran out, perhaps while this process was asleep: another replica may lead now.
            None => return (Outcome::Retry { class: RetryClass::Transient, objects: job.touched.clone() }, "fenced"),
        };
        metrics.step(S::NAME, "apply", began.elapsed());

        let began = Instant::now();
        let outcome = self.hand_over(&job.key, S::report(applied, clock.now()));
        metrics.step(S::NAME, "report", began.elapsed());
        let label = match &outcome {
            Outcome::Done | Outcome::Check { .. } => "done",
            Outcome::Retry { .. } => "retry",
        };
        tracing::debug!(outcome = label, touched = %job.touched, "pass ended");
        (outcome, label)
    }
}

impl<S: System> Driver<S> {
    /// Passes everything on that a pass reported.
    fn hand_over(&self, key: &S::Key, report: Report<S>) -> Outcome<S::Object> {
        let Outlets { writer, recorder, refusals: reporter, .. } = &self.outlets;
        let Report { memory, statuses, writes, events, refusals, measured, touches, outcome } = report;
        if let Some(memory) = memory {
            self.memories().insert(key.clone(), memory);
        }
        let objects = self.system.settle(key, statuses);
        self.queue.statuses().enqueue(objects.into_iter().map(|id| (id, key.clone())));
        for write in writes {
            writer.submit(write.by_system(S::NAME));
        }
        for event in events {
            recorder.record(event);
        }
        for (identity, refusals) in refusals {
            reporter.set_for::<S>(&identity, &refusals);
        }
        self.system.measure(measured);
        for (key, touch, after) in touches {
            self.queue.touch_after(key, touch, after);
        }
        outcome
    }
}

/// The answer of a system; true when it panicked: then a pass of this key, or the turn of this object, reports it.
fn or_panicked(ask: impl FnOnce() -> bool) -> bool {
    std::panic::catch_unwind(AssertUnwindSafe(ask)).unwrap_or(true)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests;
