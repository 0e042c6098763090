//! Metrics. Counts of objects are made from the index when they are asked for, so they are never stale.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::Counter},
};
use signpost_engine::metrics::Metrics;

use crate::index::{RouterIndex, facts::Known};

/// The measurements of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Objects that were compared with what is wanted, and written where they differed.
    pub(crate) applied: usize,
    /// Objects that were deleted.
    pub(crate) deleted: usize,
}

/// The counters of this system.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouterMetrics {
    applied: Counter,
    deleted: Counter,
}

impl RouterMetrics {
    pub(crate) fn register(metrics: &Metrics, index: &Arc<RouterIndex>) -> Self {
        let own = Self::default();
        let compared = "Generated objects that were compared with what is wanted";
        metrics.register("router_children_compared", compared, own.applied.clone());
        metrics.register("router_children_deleted", "Generated objects that were withdrawn", own.deleted.clone());
        let count = |what| Counts { index: Arc::downgrade(index), what };
        metrics.register("router_objects", "Objects by kind and phase", count(What::Objects));
        metrics.register(
            "router_dnsendpoints",
            "DNSEndpoints by purpose and whether external-dns has read them",
            count(What::Endpoints),
        );
        metrics.register("router_hosts", "Hosts that ServiceRoutes own", count(What::Hosts));
        own
    }

    pub(crate) fn record(&self, measured: Measured) {
        self.applied.inc_by(measured.applied as u64);
        self.deleted.inc_by(measured.deleted as u64);
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Objects,
    Endpoints,
    Hosts,
}

#[derive(Debug)]
struct Counts {
    index: Weak<RouterIndex>,
    what: What,
}

type Series = BTreeMap<Vec<(&'static str, &'static str)>, i64>;

impl EncodeMetric for Counts {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(index) = self.index.upgrade() else { return Ok(()) };
        for (labels, count) in self.series(&index) {
            encoder.encode_family(&labels)?.encode_gauge(&count)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl Counts {
    fn series(&self, index: &RouterIndex) -> Series {
        use crate::index::facts::Owner;
        let world = index.lock();
        let mut series = Series::new();
        match self.what {
            What::Hosts => {
                series.insert(Vec::new(), i64::try_from(world.hosts.len()).unwrap_or(i64::MAX));
            }
            What::Endpoints => {
                for child in world.children.values() {
                    let purpose = match child.owner {
                        Owner::Route(_) => "route",
                        Owner::Target(_) => "gateway",
                    };
                    let observed = if child.observed { "true" } else { "false" };
                    *series.entry(vec![("purpose", purpose), ("observed", observed)]).or_default() += 1;
                }
            }
            What::Objects => {
                let mut count = |kind, phase| *series.entry(vec![("kind", kind), ("phase", phase)]).or_default() += 1;
                world.identities.values().for_each(|known| count("ClusterIdentity", phase(known)));
                world.policies.values().for_each(|known| count("DNSPolicy", phase(known)));
                world.gateways.values().for_each(|known| count("Gateway", phase(known)));
                world.routes.values().for_each(|route| count("ServiceRoute", phase(&route.known)));
            }
        }
        series
    }
}

/// The phase that a pass of this process decided, or else that of the status: a replica that does not lead has no other.
fn phase<S>(known: &Known<S>) -> &'static str {
    known.verdict.as_ref().and_then(|verdict| verdict.phase).or(known.seen.phase).unwrap_or("Pending")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use signpost_apis::router::{DNSPolicy, Gateway, ServiceRoute};
    use signpost_engine::{Index, Queue};

    use crate::settings::RouterConfig;

    fn read<K: serde::de::DeserializeOwned>(spec: &serde_json::Value, phase: Option<&str>) -> K {
        let metadata = json!({ "name": "a", "namespace": "app" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } })).unwrap()
    }

    #[test]
    fn objects_are_counted_by_their_status_where_no_pass_has_decided() {
        let index = Arc::new(RouterIndex::new(Queue::new(), &RouterConfig::default()));
        let route = json!({ "serviceName": "api", "gatewayName": "gw", "environment": "prod", "application": "app" });
        let gateway = json!({ "controller": "c", "credentialName": "s", "targetPostfix": "p" });
        index.applied(&read::<ServiceRoute>(&route, Some("Active")));
        index.applied(&read::<DNSPolicy>(&json!({}), Some("Inactive")));
        index.applied(&read::<Gateway>(&gateway, None));
        let counts = Counts { index: Arc::downgrade(&index), what: What::Objects };
        let wanted = [("DNSPolicy", "Inactive"), ("Gateway", "Pending"), ("ServiceRoute", "Active")];
        let wanted = wanted.map(|(kind, phase)| (vec![("kind", kind), ("phase", phase)], 1));
        assert_eq!(counts.series(&index), Series::from(wanted));
    }
}
