//! The metrics of this system, under the names of pangolin-ingress-controller, and its log lines about a pass.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use signpost_engine::metrics::Metrics;
use signpost_planning::Reason;
use tokio::time::Instant;

use crate::apply::{Change, What};
use crate::index::{IngressId, Key};
use crate::plan::refusals::HostRefusal;

/// What a pass counted, and what is to be logged about it.
#[derive(Debug, Default)]
pub struct Measured {
    pub(crate) key: Option<Key>,
    pub(crate) failed: bool,
    pub(crate) errors: Vec<String>,
    pub(crate) changes: Vec<Change>,
    pub(crate) tunnel: String,
    pub(crate) refusals: Vec<HostRefusal>,
    /// Hosts that are exposed.
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) managed: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

/// Counters and gauges of this system.
#[derive(Debug)]
pub(crate) struct PangolinMetrics {
    passes: Family<ByResult, Counter>,
    managed: Gauge,
    seconds: Histogram,
    /// How many resources each Ingress has.
    counts: Mutex<BTreeMap<IngressId, usize>>,
    /// When the pass of a key began. A key has one pass at a time.
    began: Mutex<BTreeMap<Key, Instant>>,
}

impl PangolinMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let own = Self {
            passes: Family::default(),
            managed: Gauge::default(),
            seconds: Histogram::new(exponential_buckets(0.001, 4.0, 9)),
            counts: Mutex::default(),
            began: Mutex::default(),
        };
        metrics.register_as("pic_reconcile", "Passes by result", own.passes.clone());
        metrics.register_as(
            "pic_pangolinresource_managed",
            "PangolinResources, or resources of Pangolin, that this operator manages",
            own.managed.clone(),
        );
        metrics.register_as("pic_reconcile_duration_seconds", "Duration of passes", own.seconds.clone());
        own
    }

    /// A pass begins.
    pub(crate) fn began(&self, key: &Key) {
        self.began.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), Instant::now());
    }

    pub(crate) fn record(&self, measured: Measured) {
        let Measured { key, failed, errors, changes, tunnel, refusals, hosts: _, managed } = measured;
        let result = if failed { "error" } else { "success" };
        self.passes.get_or_create(&ByResult { result }).inc();
        let Some(key) = key else { return };
        if let Some(at) = self.began.lock().unwrap_or_else(PoisonError::into_inner).remove(&key) {
            self.seconds.observe(at.elapsed().as_secs_f64());
        }
        let (namespace, ingress) = match &key {
            Key::Sweep => (String::new(), "*".to_owned()),
            Key::Ingress(id) => (id.namespace.clone().unwrap_or_default(), id.name.clone()),
        };
        if let Key::Ingress(id) = key {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let before = if managed == 0 { counts.remove(&id) } else { counts.insert(id, managed) };
            // By the difference: a sum over all Ingresses after each pass would be quadratic.
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            self.managed.inc_by(number(managed) - number(before.unwrap_or(0)));
        }
        for Change { what, host, object } in &changes {
            let what = match what {
                What::Created => "exposure created",
                What::Updated => "exposure updated",
                What::Deleted => "exposure deleted",
            };
            tracing::info!(namespace, ingress, host, tunnel, "pangolinResource" = object, "{what}");
        }
        let lost =
            [Reason::TunnelNotFound, Reason::TunnelAmbiguous, Reason::TunnelNotInNamespace, Reason::TunnelNotAllowed];
        for refusal in refusals.iter().map(|refused| &refused.refusal).filter(|refusal| lost.contains(&refusal.reason))
        {
            tracing::error!(namespace, ingress, tunnel, error = refusal.message, "tunnel cannot be resolved");
        }
        for error in errors {
            tracing::error!(namespace, ingress, tunnel, error, "reconcile failed");
        }
    }
}
