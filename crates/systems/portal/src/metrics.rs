//! The metrics of this system: names as they are in the inventory when they are asked for, and lookups by resolver and result.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use signpost_engine::Writer;
use signpost_engine::metrics::Metrics;
use signpost_inventory::Inventory;
use signpost_provider_resolver::{LookupError, Reply};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    resolver: String,
    result: String,
}

/// Counters of this system.
#[derive(Debug, Default)]
pub(crate) struct PortalMetrics {
    lookups: Family<ByResult, Counter>,
}

impl PortalMetrics {
    pub(crate) fn register(metrics: &Metrics, inventory: &Arc<Inventory>, writer: &Writer) -> Self {
        let own = Self::default();
        metrics.register("portal_lookups", "Lookups, by resolver and result", own.lookups.clone());
        let names = |what| Names { inventory: Arc::downgrade(inventory), writer: writer.clone(), what };
        metrics.register("names", "Names in the inventory, by system, portal, status and type", names(What::Names));
        metrics.register(
            "name_conflicts",
            "Names that two objects want with different targets",
            names(What::Conflicts),
        );
        metrics.register(
            "name_check_oldest_timestamp_seconds",
            "When the name whose last lookup is longest ago was looked up",
            names(What::Oldest),
        );
        own
    }

    pub(crate) fn looked_up(&self, replies: &[Reply]) {
        for reply in replies {
            let result = match &reply.result {
                Ok(answer) => answer.rcode.to_string(),
                Err(error) => failure(error).to_owned(),
            };
            self.lookups.get_or_create(&ByResult { resolver: reply.resolver.to_string(), result }).inc();
        }
    }
}

fn failure(error: &LookupError) -> &'static str {
    match error {
        LookupError::Timeout { .. } => "timeout",
        LookupError::Unreachable { .. } => "unreachable",
        LookupError::BadAnswer { .. } => "bad answer",
        LookupError::CnameLoop { .. } => "loop",
        LookupError::Paused { .. } => "paused",
        LookupError::BadQuestion { .. } => "bad question",
        LookupError::NoServer { .. } => "no server",
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Names,
    Conflicts,
    Oldest,
}

/// A gauge that is counted when it is asked for.
#[derive(Debug)]
struct Names {
    inventory: Weak<Inventory>,
    writer: Writer,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct NameLabels {
    system: &'static str,
    portal: String,
    status: &'static str,
    rtype: String,
}

impl EncodeMetric for Names {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(inventory) = self.inventory.upgrade() else { return Ok(()) };
        let snapshot = inventory.snapshot();
        match self.what {
            What::Names => {
                let mut counts: BTreeMap<NameLabels, i64> = BTreeMap::new();
                for view in snapshot.iter() {
                    let portal = view.provenance().portals.first().map(ToString::to_string).unwrap_or_default();
                    let rtype = view.rtype().map(|rtype| rtype.as_str().to_owned()).unwrap_or_default();
                    let (system, status) = (view.owner().system, view.status().as_str());
                    *counts.entry(NameLabels { system, portal, status, rtype }).or_default() += 1;
                }
                for (labels, count) in counts {
                    encoder.encode_family(&labels)?.encode_gauge(&count)?;
                }
                Ok(())
            }
            What::Conflicts => encoder.encode_gauge(&i64::try_from(snapshot.conflicts().count()).unwrap_or(i64::MAX)),
            // The others know when a status was last written, which is another time.
            What::Oldest if !self.writer.may_write() => Ok(()),
            What::Oldest => {
                let oldest = snapshot.iter().filter_map(|view| view.checked_at().timestamp()).min();
                encoder.encode_gauge(&oldest.map_or(0, jiff::Timestamp::as_second))
            }
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
