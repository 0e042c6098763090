//! One registry for the process, and the engine's own metrics.
//!
//! Labels are systems, kinds, steps and outcomes: closed sets. An object's name is never a label.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry},
};

/// The prefix of our own metrics.
const PREFIX: &str = "signpost";

/// The metrics of this process. Cloning gives another handle to the same registry.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Mutex<Registry>,
    passes: Family<Pass, Counter>,
    steps: Family<Step, Histogram>,
    retries: Family<Retry, Counter>,
    panics: Family<OfSystem, Counter>,
    refusals: Family<RefusalLabels, Counter>,
    waiting: Family<OfSystem, Gauge>,
    running: Family<OfSystem, Gauge>,
    writes: Family<ByOutcome, Counter>,
    events: Family<ByOutcome, Counter>,
    watch_events: Family<OfKind, Counter>,
    lists: Family<ListOutcome, Counter>,
    watch_errors: Family<OfKind, Counter>,
    unreadable: Family<OfKind, Gauge>,
    objects: Family<OfKind, Gauge>,
    synced: Family<OfKind, Gauge>,
    leader: Gauge,
    /// Set the gauges of the queues.
    depths: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pass {
    system: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Step {
    system: &'static str,
    step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Retry {
    system: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    system: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSystem {
    system: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListOutcome {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with the engine's metrics.
    pub fn new() -> Self {
        let inner = Inner {
            registry: Mutex::new(Registry::default()),
            passes: Family::default(),
            steps: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 9))),
            retries: Family::default(),
            panics: Family::default(),
            refusals: Family::default(),
            waiting: Family::default(),
            running: Family::default(),
            writes: Family::default(),
            events: Family::default(),
            watch_events: Family::default(),
            lists: Family::default(),
            watch_errors: Family::default(),
            unreadable: Family::default(),
            objects: Family::default(),
            synced: Family::default(),
            leader: Gauge::default(),
            depths: Mutex::default(),
        };
        let metrics = Self { inner: Arc::new(inner) };
        let own = &metrics.inner;
        metrics.register("passes", "Passes by system and outcome", own.passes.clone());
        metrics.register("step_seconds", "Duration of the steps of a pass", own.steps.clone());
        metrics.register("retries", "Passes that are retried, by system and class", own.retries.clone());
        metrics.register("panics", "Passes that panicked, by system", own.panics.clone());
        metrics.register("refusals", "Refusals reported, by system and reason", own.refusals.clone());
        metrics.register("queue_waiting", "Keys that are due and not yet in progress, by system", own.waiting.clone());
        metrics.register("queue_running", "Keys in progress, by system", own.running.clone());
        metrics.register("object_writes", "Kubernetes writes by outcome", own.writes.clone());
        metrics.register("events", "Kubernetes events by outcome", own.events.clone());
        metrics.register("watch_events", "Watch events received, by kind", own.watch_events.clone());
        metrics.register("lists", "Complete and failed lists, by kind", own.lists.clone());
        metrics.register("watch_errors", "Watches that failed, by kind", own.watch_errors.clone());
        metrics.register(
            "unreadable_objects",
            "Objects that exist but cannot be read, by kind",
            own.unreadable.clone(),
        );
        metrics.register("objects", "Objects known, by kind", own.objects.clone());
        metrics.register("kind_synced", "1 when the view of a kind is complete and current", own.synced.clone());
        metrics.register("leader", "1 while this replica is the leader", own.leader.clone());
        metrics
    }

    /// Adds a metric of a system, e.g. a `Family` of counters. Names get the prefix `signpost_`.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry().register(format!("{PREFIX}_{name}"), help, metric);
    }

    /// Adds a metric under a name that existing dashboards use, without our prefix.
    pub fn register_as(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry().register(name, help, metric);
    }

    /// Everything in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        self.depths().iter().for_each(|set| set());
        let mut text = String::new();
        match encode(&mut text, &self.registry()) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n# EOF\n"),
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.inner.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pass(&self, system: &'static str, outcome: &'static str) {
        self.inner.passes.get_or_create(&Pass { system, outcome }).inc();
    }

    pub(crate) fn step(&self, system: &'static str, step: &'static str, took: Duration) {
        self.inner.steps.get_or_create(&Step { system, step }).observe(took.as_secs_f64());
    }

    pub(crate) fn retry(&self, system: &'static str, class: &'static str) {
        self.inner.retries.get_or_create(&Retry { system, class }).inc();
    }

    pub(crate) fn refused(&self, system: &'static str, reason: &'static str) {
        self.inner.refusals.get_or_create(&RefusalLabels { system, reason }).inc();
    }

    pub(crate) fn panicked(&self, system: &'static str) {
        self.inner.panics.get_or_create(&OfSystem { system }).inc();
    }

    /// Counts the keys of a system that are due and that are running whenever the metrics are read. Counting takes a step per key that is due.
    pub(crate) fn follow_depth(
        &self,
        system: &'static str,
        depth: impl Fn() -> (usize, usize) + Send + Sync + 'static,
    ) {
        let label = OfSystem { system };
        let gauges = [&self.inner.waiting, &self.inner.running].map(|family| family.get_or_create_owned(&label));
        let set = move || {
            let (waiting, running) = depth();
            gauges[0].set(as_gauge(waiting));
            gauges[1].set(as_gauge(running));
        };
        self.depths().push(Box::new(set));
    }

    fn depths(&self) -> MutexGuard<'_, Vec<Box<dyn Fn() + Send + Sync>>> {
        self.inner.depths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn writes(&self, outcome: &'static str) {
        self.inner.writes.get_or_create(&ByOutcome { outcome }).inc();
    }

    pub(crate) fn events(&self, outcome: &'static str) {
        self.inner.events.get_or_create(&ByOutcome { outcome }).inc();
    }

    pub(crate) fn watch_event(&self, kind: &'static str) {
        self.inner.watch_events.get_or_create(&OfKind { kind }).inc();
    }

    pub(crate) fn list(&self, kind: &'static str, outcome: &'static str) {
        self.inner.lists.get_or_create(&ListOutcome { kind, outcome }).inc();
    }

    pub(crate) fn watch_error(&self, kind: &'static str) {
        self.inner.watch_errors.get_or_create(&OfKind { kind }).inc();
    }

    pub(crate) fn kind(&self, kind: &'static str, objects: usize, unreadable: usize, synced: bool) {
        let label = OfKind { kind };
        self.inner.objects.get_or_create(&label).set(as_gauge(objects));
        self.inner.unreadable.get_or_create(&label).set(as_gauge(unreadable));
        self.inner.synced.get_or_create(&label).set(i64::from(synced));
    }

    /// A kind that no system waits for has no view that could be current: an alert on 0 must not fire for it.
    pub(crate) fn kind_left_out(&self, kind: &'static str) {
        self.inner.synced.remove(&OfKind { kind });
    }

    pub(crate) fn leader(&self, leads: bool) {
        self.inner.leader.set(i64::from(leads));
    }
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_encoded_with_their_closed_labels() {
        let metrics = Metrics::new();
        metrics.pass("powerdns", "done");
        metrics.writes("written");
        metrics.step("powerdns", "observe", Duration::from_millis(3));
        metrics.kind("RRset", 3, 1, true);
        let own: Counter = Counter::default();
        metrics.register("records", "Records served", own.clone());
        own.inc();
        let text = metrics.encode();
        for line in [
            "signpost_passes_total{system=\"powerdns\",outcome=\"done\"} 1",
            "signpost_object_writes_total{outcome=\"written\"} 1",
            "signpost_unreadable_objects{kind=\"RRset\"} 1",
            "signpost_records_total 1",
            "signpost_leader 0",
        ] {
            assert!(text.contains(line), "missing {line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
