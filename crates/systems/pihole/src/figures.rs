//! The figures of this system, and what has been said about Ingresses. Labels are instances and reasons, never hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use signpost_engine::metrics::Metrics;

use crate::index::{Claimant, IngressIndex, IngressKey, Problem};
use crate::plan::{Reason, Refusal};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfInstance {
    instance: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    instance: String,
    reason: &'static str,
}

/// Counters and gauges of this system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    records: Family<OfInstance, Gauge>,
    writes: Family<OfInstance, Counter>,
    errors: Family<ByReason, Counter>,
    trouble: Family<ByReason, Gauge>,
    refusals: Family<ByReason, Gauge>,
}

impl Figures {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let figures = Self::default();
        metrics.register("pihole_records", "Hosts with a record of ours, by Pi-hole", figures.records.clone());
        metrics.register("pihole_writes", "Write requests sent, by Pi-hole", figures.writes.clone());
        metrics.register("pihole_errors", "Failed passes, by Pi-hole and reason", figures.errors.clone());
        metrics.register("pihole_trouble", "1 while a Pi-hole has this trouble", figures.trouble.clone());
        metrics.register(
            "pihole_refusals",
            "Records that are not written, by Pi-hole and reason",
            figures.refusals.clone(),
        );
        figures
    }

    pub(crate) fn records(&self, instance: &str, count: usize) {
        let label = OfInstance { instance: instance.to_owned() };
        self.records.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn written(&self, instance: &str, writes: u32) {
        self.writes.get_or_create(&OfInstance { instance: instance.to_owned() }).inc_by(u64::from(writes));
    }

    /// The trouble a Pi-hole has now; the one it had before is over.
    pub(crate) fn trouble(&self, instance: &str, before: Option<&'static str>, now: Option<&'static str>) {
        if let Some(reason) = before.filter(|_| before != now) {
            self.trouble.remove(&ByReason { instance: instance.to_owned(), reason });
        }
        if let Some(reason) = now {
            let label = ByReason { instance: instance.to_owned(), reason };
            self.errors.get_or_create(&label).inc();
            self.trouble.get_or_create(&label).set(1);
        }
    }

    /// What is wrong with Ingresses, whatever the Pi-hole.
    pub(crate) fn problems(&self, instance: &str, claimants: &[std::sync::Arc<Claimant>]) {
        let reasons = claimants.iter().flat_map(|claimant| &claimant.problems).map(Problem::reason);
        self.set_refusals(instance, reasons, &Reason::OF_INGRESS);
    }

    /// What is not written to a Pi-hole.
    pub(crate) fn refusals(&self, instance: &str, refusals: &[Refusal]) {
        let others: Vec<Reason> =
            Reason::ALL.into_iter().filter(|reason| !Reason::OF_INGRESS.contains(reason)).collect();
        self.set_refusals(instance, refusals.iter().map(|refusal| refusal.reason), &others);
    }

    fn set_refusals(&self, instance: &str, found: impl Iterator<Item = Reason>, all: &[Reason]) {
        let mut counts: BTreeMap<Reason, i64> = BTreeMap::new();
        for reason in found {
            *counts.entry(reason).or_default() += 1;
        }
        for reason in all {
            let label = ByReason { instance: instance.to_owned(), reason: reason.as_str() };
            self.refusals.get_or_create(&label).set(counts.get(reason).copied().unwrap_or_default());
        }
    }
}

/// Above so many, what was said about finalizers is forgotten: it costs a line that is said twice.
const MOST_GIVEN_UP: usize = 1000;

/// What has been said about Ingresses, so that it is said once, however many Pi-holes there are.
#[derive(Debug, Default)]
pub(crate) struct Voice {
    said: Mutex<BTreeMap<IngressKey, BTreeSet<Problem>>>,
    /// The Ingresses, by uid, that were let go although a Pi-hole did not confirm.
    given_up: Mutex<BTreeSet<Box<str>>>,
}

impl Voice {
    /// The problems that have not been said yet. Asked of the index itself: a pass that began long ago knows less than what has been said
    /// since, and would forget it.
    pub(crate) fn news(&self, index: &IngressIndex) -> Vec<(IngressKey, Problem)> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = Vec::new();
        let mut now = BTreeMap::new();
        for claimant in index.with_problems() {
            let before = said.get(&claimant.key);
            let problems: BTreeSet<Problem> = claimant.problems.iter().cloned().collect();
            for problem in problems.iter().filter(|problem| before.is_none_or(|before| !before.contains(problem))) {
                news.push((claimant.key.clone(), problem.clone()));
            }
            now.insert(claimant.key.clone(), problems);
        }
        *said = now;
        news
    }

    /// Says, once, that an Ingress is let go although a Pi-hole did not confirm. Its finalizer may take more than one attempt.
    pub(crate) fn gave_up(&self, claimant: &Claimant) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        if given_up.len() >= MOST_GIVEN_UP {
            given_up.clear();
        }
        if given_up.insert(claimant.uid.clone()) {
            tracing::warn!(ingress = %claimant.key, "finalizer removed although a pi-hole did not confirm");
        }
    }
}
