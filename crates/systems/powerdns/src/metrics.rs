//! Metrics: PowerDNS-Operator's series with true values, and our own counters.
//!
//! The series of objects are made up from the index when they are asked for, so there is exactly one per object, it is
//! never stale, and they cost nothing in between.

use std::sync::{Arc, Weak};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::Counter, family::Family},
};
use signpost_engine::metrics::Metrics;
use signpost_planning::Reason;

use crate::{
    index::ZoneIndex,
    index::record::{Record, Sync, ZoneObject},
};

/// Our own counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct PowerDnsMetrics {
    refusals: Family<ByReason, Counter>,
    patches: Counter,
    changes: Counter,
    reads: Family<ByDepth, Counter>,
    repaired: Counter,
}

/// The measurements of a pass.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Zone objects that are refused for another reason than before.
    pub(crate) refused: Vec<Reason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDepth {
    depth: &'static str,
}

impl PowerDnsMetrics {
    /// Adds the metrics to the process's registry.
    pub(crate) fn register(metrics: &Metrics, index: &Arc<ZoneIndex>) -> Self {
        let own = Self::default();
        metrics.register(
            "powerdns_refusals",
            "Refusals reported of zones and record sets, by reason",
            own.refusals.clone(),
        );
        metrics.register("powerdns_patches", "PATCH requests sent to PowerDNS", own.patches.clone());
        metrics.register("powerdns_changes", "Record sets written or deleted on PowerDNS", own.changes.clone());
        metrics.register("powerdns_reads", "Zones read from PowerDNS, by depth", own.reads.clone());
        metrics.register("powerdns_repaired", "Record sets put right after they had drifted", own.repaired.clone());
        for (kind, name, help) in NAMES {
            metrics.register_as(name, help, Objects { index: Arc::downgrade(index), kind });
        }
        own
    }

    pub(crate) fn refused(&self, reason: Reason) {
        self.refusals.get_or_create(&ByReason { reason: reason.as_str() }).inc();
    }

    pub(crate) fn patched(&self, calls: usize, changes: usize) {
        self.patches.inc_by(calls as u64);
        self.changes.inc_by(changes as u64);
    }

    pub(crate) fn read(&self, full: bool) {
        self.reads.get_or_create(&ByDepth { depth: if full { "records" } else { "serial" } }).inc();
    }

    pub(crate) fn repaired(&self, count: usize) {
        self.repaired.inc_by(count as u64);
    }
}

/// One series per object of a kind, with its state as a label.
#[derive(Debug)]
struct Objects {
    index: Weak<ZoneIndex>,
    kind: &'static str,
}

const NAMES: [(&str, &str, &str); 4] = [
    ("Zone", "zones_status", "Zones by status"),
    ("ClusterZone", "clusterzones_status", "ClusterZones by status"),
    ("RRset", "rrsets_status", "RRsets by status"),
    ("ClusterRRset", "clusterrrsets_status", "ClusterRRsets by status"),
];

impl EncodeMetric for Objects {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(index) = self.index.upgrade() else { return Ok(()) };
        let (mut zones, mut records) = (Vec::new(), Vec::new());
        index.for_each(
            |zone| zones.extend((zone.identity.id.kind.name == self.kind).then(|| of_zone(zone))),
            |record| records.extend((record.identity.id.kind.name == self.kind).then(|| of_record(record))),
        );
        for labels in zones.into_iter().chain(records) {
            encoder.encode_family(&labels)?.encode_gauge(&1_i64)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

fn state(sync: Option<Sync>) -> String {
    sync.map_or("Pending", Sync::as_str).to_owned()
}

fn of_zone(zone: &ZoneObject) -> Vec<(&'static str, String)> {
    let sync = zone.status.sync_status.as_deref().and_then(Sync::parse);
    let mut labels = vec![("status", state(sync)), ("name", zone.identity.id.name.clone())];
    labels.extend(zone.identity.id.namespace.clone().map(|namespace| ("namespace", namespace)));
    labels
}

fn of_record(record: &Record) -> Vec<(&'static str, String)> {
    let fqdn = record.name.as_ref().map(ToString::to_string).unwrap_or_default();
    let rtype = record.desired.as_ref().map(|desired| desired.rtype.to_string()).unwrap_or_default();
    let sync = record.status.as_ref().map(|decided| decided.readiness().sync()).or(record.seen.sync);
    let mut labels =
        vec![("fqdn", fqdn), ("type", rtype), ("status", state(sync)), ("name", record.identity.id.name.clone())];
    labels.extend(record.identity.id.namespace.clone().map(|namespace| ("namespace", namespace)));
    labels
}
