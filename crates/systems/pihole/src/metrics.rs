//! The metrics of this system, and its log lines about a pass. Labels are instances and reasons, never hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use signpost_dns::Fqdn;
use signpost_engine::Identity;
use signpost_engine::metrics::Metrics;
use signpost_planning::Reason;

use crate::observe::Failure;
use crate::observe::probe::{AfterPass, Instance};
use crate::plan::{Change, RecordRefusal, Slot};

/// The reasons why a Pi-hole does not get a record.
pub const REASONS: [Reason; 9] = [
    Reason::HostTaken,
    Reason::ForeignRecord,
    Reason::OtherOwner,
    Reason::SharedLine,
    Reason::Unsupported,
    Reason::AliasLoop,
    Reason::LineRefused,
    Reason::DeletionsHeld,
    Reason::ForeignLineMissing,
];

/// The counts and the log entries of a pass.
#[derive(Debug, Default)]
pub struct Measured {
    /// Of which Pi-hole.
    pub(crate) instance: Option<Arc<Instance>>,
    /// Hosts with a record of ours, when it was read with success.
    pub(crate) records: Option<usize>,
    /// Write requests sent.
    pub(crate) writes: u32,
    /// Errors: the one before, and the one now.
    pub(crate) errors: Vec<(Option<Reason>, Option<Reason>)>,
    /// Refusals by reason.
    pub(crate) refusals: BTreeMap<Reason, i64>,
    /// The log entries.
    pub(crate) notices: Vec<Notice>,
    /// The result for the probe.
    pub(crate) after: AfterPass,
}

/// A log entry of a pass.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// A record is refused.
    Refused(RecordRefusal),
    /// A failure, for this Ingress or for all.
    Failed {
        /// `namespace/name`, or `*`.
        ingress: String,
        /// The failure.
        failure: Failure,
    },
    /// It works again.
    Recovered,
    /// The finalizer of an Ingress is removed although a Pi-hole did not confirm.
    GaveUp(Identity),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfInstance {
    instance: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    instance: String,
    reason: &'static str,
}

/// Above so many, the memory of logged finalizers is cleared. That costs a line that is logged twice.
const MOST_GIVEN_UP: usize = 1000;

/// Counters and gauges of this system.
#[derive(Debug, Default)]
pub(crate) struct PiholeMetrics {
    records: Family<OfInstance, Gauge>,
    writes: Family<OfInstance, Counter>,
    errors: Family<ByReason, Counter>,
    ongoing: Family<ByReason, Gauge>,
    refusals: Family<ByReason, Gauge>,
    /// The Ingresses, by UID, whose finalizer was removed although a Pi-hole did not confirm. It may take more than one attempt.
    given_up: Mutex<BTreeSet<Arc<str>>>,
}

impl PiholeMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let own = Self::default();
        metrics.register("pihole_records", "Hosts with a record of ours, by Pi-hole", own.records.clone());
        metrics.register("pihole_writes", "Write requests sent, by Pi-hole", own.writes.clone());
        metrics.register("pihole_errors", "Failed passes, by Pi-hole and reason", own.errors.clone());
        metrics.register("pihole_trouble", "1 while a Pi-hole has this error", own.ongoing.clone());
        metrics.register(
            "pihole_refusals",
            "Records that are not written, by Pi-hole and reason",
            own.refusals.clone(),
        );
        own
    }

    pub(crate) fn record(&self, measured: Measured) {
        let Measured { instance, records, writes, errors, refusals, notices, after: _ } = measured;
        let Some(instance) = instance else { return };
        let of = || OfInstance { instance: instance.name.clone() };
        let by = |reason| ByReason { instance: instance.name.clone(), reason };
        if let Some(count) = records {
            self.records.get_or_create(&of()).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.writes.get_or_create(&of()).inc_by(u64::from(writes));
        for (before, now) in errors {
            if let Some(reason) = before.filter(|_| before != now) {
                self.ongoing.remove(&by(reason.as_str()));
            }
            if let Some(reason) = now {
                self.errors.get_or_create(&by(reason.as_str())).inc();
                self.ongoing.get_or_create(&by(reason.as_str())).set(1);
            }
        }
        for (reason, count) in refusals {
            self.refusals.get_or_create(&by(reason.as_str())).set(count);
        }
        for notice in notices {
            self.log(&instance.name, &notice);
        }
    }

    fn log(&self, instance: &str, notice: &Notice) {
        match notice {
            Notice::Refused(refusal) => {
                let ingress = refusal.ingress.as_ref().map_or_else(|| "*".to_owned(), |id| id.path());
                let host = refusal.host.as_ref().map_or("", Fqdn::undotted);
                let (reason, error) = (refusal.reason.as_str(), &refusal.message);
                tracing::warn!(ingress, host, instance, reason, error, "dns record refused");
            }
            Notice::Failed { ingress, failure } => {
                let (operation, error, reason) =
                    (failure.operation, failure.cause.to_string(), failure.cause.reason().as_str());
                tracing::error!(ingress, operation, error, instance, reason, "pi-hole api error");
                tracing::error!(ingress, error, instance, reason, "reconcile failed");
            }
            Notice::Recovered => tracing::info!(instance, "pi-hole works again"),
            Notice::GaveUp(identity) => {
                let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
                if given_up.len() >= MOST_GIVEN_UP {
                    given_up.clear();
                }
                if given_up.insert(identity.uid.clone()) {
                    let ingress = identity.id.path();
                    tracing::warn!(ingress, "finalizer removed although a pi-hole did not confirm");
                }
            }
        }
    }
}

/// Logs a change that was seen to be done.
pub(crate) fn log_done(instance: &str, change: &Change) {
    let ingress = change.ingress.as_ref().map_or_else(|| "unknown".to_owned(), |id| id.path());
    let host = change.host.undotted();
    match (change.slot, &change.old, &change.new) {
        (Slot::Cname, None, Some(new)) => {
            tracing::info!(%ingress, host, target = %new, instance, "dns record created");
        }
        (Slot::Cname, Some(old), Some(new)) => {
            tracing::info!(%ingress, host, old_target = %old, new_target = %new, instance, "dns record updated");
        }
        (_, Some(old), Some(new)) if old == new && change.add.is_none() && change.remove.is_empty() => {
            tracing::info!(%ingress, host, ip = %new, instance, "dns record adopted");
        }
        (_, None, Some(new)) => tracing::info!(%ingress, host, ip = %new, instance, "dns record created"),
        (_, Some(old), Some(new)) => {
            tracing::info!(%ingress, host, old_ip = %old, new_ip = %new, instance, "dns record updated");
        }
        (_, _, None) => tracing::info!(%ingress, host, instance, "dns record deleted"),
    }
}
