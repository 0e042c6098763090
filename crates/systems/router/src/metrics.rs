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

use crate::index::{
    RouterIndex,
    facts::{Known, Owner},
};

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
        let world = index.lock();
        let (labels, counts) = match self.what {
            What::Hosts => {
                return Series::from([(Vec::new(), i64::try_from(world.hosts.len()).unwrap_or(i64::MAX))]);
            }
            What::Endpoints => {
                let values = world.children.values().map(|child| {
                    let purpose = match child.owner {
                        Owner::Route(_) => "route",
                        Owner::Target(_) => "gateway",
                    };
                    [purpose, if child.observed { "true" } else { "false" }]
                });
                (["purpose", "observed"], counted(values))
            }
            What::Objects => {
                let identities = world.identities.values().map(|known| ["ClusterIdentity", phase(known)]);
                let policies = world.policies.values().map(|known| ["DNSPolicy", phase(known)]);
                let gateways = world.gateways.values().map(|known| ["Gateway", phase(known)]);
                let routes = world.routes.values().map(|route| ["ServiceRoute", phase(&route.known)]);
                (["kind", "phase"], counted(identities.chain(policies).chain(gateways).chain(routes)))
            }
        };
        let series = |(values, count): ([&'static str; 2], i64)| (labels.into_iter().zip(values).collect(), count);
        counts.into_iter().map(series).collect()
    }
}

/// How often each value occurs. Without an allocation per value: there may be 50,000, and the passes wait for the lock meanwhile.
fn counted(values: impl Iterator<Item = [&'static str; 2]>) -> BTreeMap<[&'static str; 2], i64> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
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
