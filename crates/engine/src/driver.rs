//! The four steps of a pass: observe → plan → apply → report.
//!
//! In: jobs from a [`Queue`]. Out: object writes to the [`Writer`], events to the [`Recorder`], and an outcome that tells the queue when
//! the key is next. Each step has a deadline, a step that overruns or panics is an outcome like any other, and nothing a system does can
//! stop another key.

use std::{fmt, future::Future, time::Duration};

use jiff::Timestamp;

use crate::{
    events::Event,
    queue::{Gather, Job, Touched},
    write::ObjectWrite,
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
