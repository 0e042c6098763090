//! ClusterIdentity, DNSConfiguration, Gateway, DNSPolicy and ServiceRoute to DNSEndpoints and Istio Gateways.
//!
//! ```text
//!  five kinds, Service ─► index ─► keys: route · gateway · target · policies · cluster
//!                                   └► observe ─► plan ─► apply ─► report ─► statuses
//!                                                          └► DNSEndpoint (CNAME, A, AAAA), Istio Gateway
//! ```
//!
//! A key is what is written at once: a route and its DNSEndpoints, a gateway and its Istio Gateway. So one changed route costs its own
//! DNSEndpoints and one Istio Gateway.

mod apply;
mod demo;
mod index;
mod metrics;
mod observe;
mod plan;
mod project;
mod report;
mod settings;

pub use report::states::State;
pub use settings::RouterConfig;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use signpost_apis::{
    externaldns::{self, DnsEndpoint},
    istio::{self, IstioGateway},
    router::{self, CLUSTER_GROUP, ClusterIdentity, DNSConfiguration, DNSPolicy, ROUTING_GROUP, ServiceRoute},
    service::Service,
};
use signpost_engine::{
    Configured, DriveOptions, Gather, Index, Job, ObjectId, Operator, Queue, Report, Rule, Settings, System,
    SystemSpec, Wanted, Watch, Writer, hub::Kinds,
};
use tokio::sync::watch;

use crate::{
    index::{RouterIndex, RouterKey},
    metrics::{Measured, RouterMetrics},
    report::status::Decision,
};

/// The name of the system.
const NAME: &str = "router";

/// The description of this system.
pub const SPEC: SystemSpec = SystemSpec {
    name: NAME,
    title: "Router",
    about: "ClusterIdentity, DNSConfiguration, Gateway, DNSPolicy and ServiceRoute to DNSEndpoints and Istio Gateways",
    settings: settings::SETTINGS,
    servers: &[],
    hints: &[],
    crds: router::crds,
    rules: &[
        Rule {
            own_namespace: false,
            group: CLUSTER_GROUP,
            resources: &["clusteridentities", "dnsconfigurations"],
            names: &[],
            verbs: &["list", "watch"],
            why: "who this cluster is, and which external-dns controllers there are",
        },
        Rule {
            own_namespace: false,
            group: CLUSTER_GROUP,
            resources: &["clusteridentities/status", "dnsconfigurations/status"],
            names: &[],
            verbs: &["patch"],
            why: "report whether they are used",
        },
        Rule {
            own_namespace: false,
            group: ROUTING_GROUP,
            resources: &["gateways", "dnspolicies", "serviceroutes"],
            names: &[],
            verbs: &["list", "watch"],
            why: "read what is wanted",
        },
        Rule {
            own_namespace: false,
            group: ROUTING_GROUP,
            resources: &["gateways/status", "dnspolicies/status", "serviceroutes/status"],
            names: &[],
            verbs: &["patch"],
            why: "report what was done",
        },
        Rule {
            own_namespace: false,
            group: externaldns::GROUP,
            resources: &["dnsendpoints"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            why: "the records of routes and gateways",
        },
        Rule {
            own_namespace: false,
            group: istio::GROUP,
            resources: &["gateways"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            why: "the hosts of routes",
        },
        Rule {
            own_namespace: false,
            group: "",
            resources: &["services"],
            names: &[],
            verbs: &["list", "watch"],
            why: "the addresses of load balancers",
        },
    ],
    variants: &[],
    shared: &[],
    configure,
    demo: Some(demo::DEMO),
};

fn configure(settings: &mut Settings) -> Option<Box<dyn Configured>> {
    let config = RouterConfig::read(settings)?;
    Some(Box::new(move |operator: &mut Operator| {
        install(operator, config);
        Ok(())
    }))
}

/// Adds the system to an operator.
pub fn install(operator: &mut Operator, config: RouterConfig) {
    let queue = Queue::new();
    let index = Arc::new(RouterIndex::new(queue.clone(), &config));
    let metrics = RouterMetrics::register(&operator.metrics(), &index);
    let ours = || Watch::required().reported(&[]);
    operator.watch::<ClusterIdentity>(NAME, ours(), index.clone() as Arc<dyn Index<ClusterIdentity>>);
    operator.watch::<DNSConfiguration>(NAME, ours(), index.clone() as Arc<dyn Index<DNSConfiguration>>);
    operator.watch::<router::Gateway>(NAME, ours(), index.clone() as Arc<dyn Index<router::Gateway>>);
    operator.watch::<DNSPolicy>(NAME, ours(), index.clone() as Arc<dyn Index<DNSPolicy>>);
    operator.watch::<ServiceRoute>(NAME, ours(), index.clone() as Arc<dyn Index<ServiceRoute>>);
    operator.watch::<Service>(NAME, Watch::required(), index.clone() as Arc<dyn Index<Service>>);
    // All of them, not only ours: a foreign one may have a name that we need.
    let generated = || Watch::optional().children();
    operator.watch::<DnsEndpoint>(NAME, generated(), index.clone() as Arc<dyn Index<DnsEndpoint>>);
    operator.watch::<IstioGateway>(NAME, generated(), index.clone() as Arc<dyn Index<IstioGateway>>);
    let options = DriveOptions { concurrency: 16, deadline: Duration::from_mins(2), gather: Gather::default() };
    let kinds = operator.kinds();
    operator.spawn(observe::follow_kinds(index.clone(), kinds.clone()));
    let (config, places) = (Arc::new(config), apply::Places::default());
    let system = RouterSystem { index, writer: operator.writer(), kinds, metrics, config, places };
    operator.drive(system, queue, options);
}

/// The system.
pub(crate) struct RouterSystem {
    pub(crate) index: Arc<RouterIndex>,
    pub(crate) writer: Writer,
    pub(crate) kinds: watch::Receiver<Kinds>,
    pub(crate) metrics: RouterMetrics,
    pub(crate) config: Arc<RouterConfig>,
    pub(crate) places: apply::Places,
}

impl System for RouterSystem {
    const NAME: &'static str = NAME;
    type Key = RouterKey;
    type Object = ();
    type Memory = plan::Memory;
    type Observed = plan::Observed;
    type Plan = plan::Plan;
    type Applied = apply::ApplyResult;
    type Status = Decision;
    type Measured = Measured;

    async fn observe(&self, job: &Job<RouterKey, ()>, memory: plan::Memory) -> plan::Observed {
        observe::observe(self, &job.key, memory)
    }

    fn plan(observed: plan::Observed, now: Timestamp) -> plan::Plan {
        plan::plan(observed, now)
    }

    async fn apply(&self, plan: plan::Plan) -> apply::ApplyResult {
        apply::apply(self, plan).await
    }

    fn report(applied: apply::ApplyResult, _now: Timestamp) -> Report<Self> {
        report::report(applied)
    }

    fn settle(&self, key: &RouterKey, decisions: Vec<Decision>) -> Vec<Arc<ObjectId>> {
        self.index.settle(key, decisions)
    }

    fn wanted(&self, id: &ObjectId, now: Timestamp) -> Option<Wanted> {
        self.index.wanted(id, now)
    }

    fn knows(&self, key: &RouterKey) -> bool {
        match key {
            RouterKey::Route(id) => self.index.lock().knows_route(id),
            RouterKey::Cluster | RouterKey::Policies(_) | RouterKey::Gateway(_) | RouterKey::Target(_) => true,
        }
    }

    fn measure(&self, measured: Measured) {
        self.metrics.record(measured);
    }
}
