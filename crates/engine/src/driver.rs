//! The four steps of a pass: observe → plan → apply → report.
//!
//! In: jobs from a [`Queue`]. Out: object writes to the [`Writer`], events to the [`Recorder`], and an outcome that tells the queue when
//! the key is next. `observe` and `apply`, which wait for others, have a deadline each; `plan` and `report` are pure and wait for nobody. A
//! step that overruns or panics is an outcome like any other, and nothing a system does can stop another key.

use std::{any::Any, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use jiff::Timestamp;
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
    queue::{Gather, Job, Queue, Touched},
    write::{ObjectWrite, Writer},
};

/// One system: what it looks at, decides, does and says, in that order.
pub trait System: Send + Sync + 'static {
    /// The name in logs and metrics.
    const NAME: &'static str;
    /// The unit that is written at once.
    type Key: Ord + Clone + fmt::Display + fmt::Debug + Send + Sync + 'static;
    /// An object under a key.
    type Object: Ord + Clone + fmt::Debug + Send + Sync + 'static;
    /// What was seen.
    type Observed: Send;
    /// What is to be done, and what is refused.
    type Plan: Send;
    /// What was done.
    type Applied: Send;

    /// Reads indexes and provider state. Total: a provider that cannot be reached is a value, not an error.
    fn observe(&self, job: &Job<Self::Key, Self::Object>) -> impl Future<Output = Self::Observed> + Send;
    /// Decides. Pure.
    fn plan(&self, observed: Self::Observed, now: Timestamp) -> Self::Plan;
    /// Does it: the only step that writes.
    fn apply(&self, plan: Self::Plan) -> impl Future<Output = Self::Applied> + Send;
    /// Says what was done. Pure.
    fn report(&self, applied: Self::Applied, now: Timestamp) -> Report<Self::Object>;
}

/// What a pass says at its end.
#[derive(Debug)]
pub struct Report<O> {
    /// Statuses (and metadata) to write, after serving.
    pub writes: Vec<ObjectWrite>,
    /// Events to record.
    pub events: Vec<Event>,
    /// When this key is next.
    pub outcome: Outcome<O>,
}

/// When a key is next.
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

/// How soon a failed pass comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// A conflict: what was read is out of date. At once, then with short delays.
    Now,
    /// Unreachable, a timeout, a 5xx: exponential backoff with jitter.
    Transient,
    /// Told to wait: not before this long, whatever else is touched.
    Throttled {
        /// What Retry-After said.
        after: Option<Duration>,
    },
    /// Input that will not become valid by itself: minutes. Other objects of the key are not held up.
    Slow,
    /// After exactly this long.
    Fixed(Duration),
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

/// What a driver hands its results to.
#[derive(Clone)]
pub(crate) struct Outlets {
    pub(crate) writer: Writer,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) fence: Fence,
}

/// A system and its queue, ready to be driven.
pub(crate) struct Driver<S: System> {
    system: S,
    queue: Queue<S::Key, S::Object>,
    options: DriveOptions,
    outlets: Outlets,
}

type JobOf<S> = Job<<S as System>::Key, <S as System>::Object>;

impl<S: System> Driver<S> {
    pub(crate) fn new(system: S, queue: Queue<S::Key, S::Object>, options: DriveOptions, outlets: Outlets) -> Self {
        Self { system, queue, options, outlets }
    }

    /// Works off the queue until `stop`, then lets running passes end. Dropping the future ends them where they are.
    pub(crate) async fn run(self, seed: u64, stop: CancellationToken) {
        let driver = Arc::new(self);
        driver.queue.start(driver.options.gather, seed);
        let permits = Arc::new(Semaphore::new(driver.options.concurrency.max(1)));
        let mut passes = JoinSet::new();
        loop {
            let next = async {
                // The semaphore is never closed; should it be, there is nothing to hand out.
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
    }

    async fn work(&self, job: JobOf<S>) {
        let metrics = &self.outlets.metrics;
        metrics.depth(S::NAME, self.queue.depth());
        let span = tracing::info_span!("pass", system = S::NAME, key = %job.key, attempt = job.attempt);
        let outcome = match AssertUnwindSafe(self.pass(&job).instrument(span.clone())).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(panic) => {
                metrics.panicked(S::NAME);
                let _in_span = span.enter();
                tracing::error!(panic = panic_text(&*panic), "pass panicked; it will be tried again");
                (Outcome::Retry { class: RetryClass::Transient, objects: job.touched.clone() }, "panic")
            }
        };
        let (outcome, label) = outcome;
        metrics.pass(S::NAME, label);
        if let Outcome::Retry { class, .. } = &outcome {
            metrics.retry(S::NAME, class.label());
        }
        self.queue.finish(&job.key, outcome);
        metrics.depth(S::NAME, self.queue.depth());
    }

    async fn pass(&self, job: &JobOf<S>) -> (Outcome<S::Object>, &'static str) {
        let Self { system, options, outlets, .. } = self;
        let Outlets { writer, recorder, metrics, clock, fence } = outlets;
        let overrun = |step: &'static str| {
            tracing::warn!(step, deadline = ?options.deadline, "step took too long; the pass will be tried again");
            (Outcome::Retry { class: RetryClass::Transient, objects: job.touched.clone() }, "deadline")
        };

        let began = Instant::now();
        let Ok(observed) = timeout(options.deadline, system.observe(job)).await else { return overrun("observe") };
        metrics.step(S::NAME, "observe", began.elapsed());

        let began = Instant::now();
        let plan = system.plan(observed, clock.now());
        metrics.step(S::NAME, "plan", began.elapsed());

        let began = Instant::now();
        let applied = match fence.guard(timeout(options.deadline, system.apply(plan))).await {
            Some(Ok(applied)) => applied,
            Some(Err(_)) => return overrun("apply"),
            // The lease ran out, perhaps while this process was asleep: somebody else is at it.
            None => return (Outcome::Retry { class: RetryClass::Transient, objects: job.touched.clone() }, "fenced"),
        };
        metrics.step(S::NAME, "apply", began.elapsed());

        let began = Instant::now();
        let Report { writes, events, outcome } = system.report(applied, clock.now());
        for write in writes {
            writer.submit(write);
        }
        for event in events {
            recorder.record(event);
        }
        metrics.step(S::NAME, "report", began.elapsed());
        let label = match &outcome {
            Outcome::Done | Outcome::Check { .. } => "done",
            Outcome::Retry { .. } => "retry",
        };
        tracing::debug!(outcome = label, touched = %job.touched, "pass ended");
        (outcome, label)
    }
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
