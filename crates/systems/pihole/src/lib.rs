//! Ingress → local DNS records in one or more Pi-holes.
//!
//! ```text
//! Ingress ──watch──► index ──► queue: one key per Pi-hole, so never two writes to one at a time
//!                                │
//!   Pi-hole lists ─► observe ─► plan ─► apply ─► report ─► pihole.io/managed-hosts, finalizer, events
//!                                         └─► list again: what counts is what is there
//! ```
//! Ownership lives in the Pi-hole itself (a marker comment in each line) or, where lines cannot carry one, in a
//! ConfigMap. The annotation is a view: a forged one changes nothing.

mod apply;
mod demo;
mod index;
mod metrics;
mod observe;
mod plan;
mod project;
mod report;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signpost_apis::ingress::Ingress;
use signpost_engine::health::Check;
use signpost_engine::metrics::Metrics;
use signpost_engine::{
    Clock, DriveOptions, Gather, Index, Job, Operator, Outcome, Queue, Report, Rule, System, SystemSpec, Watch,
};
use signpost_provider_pihole::{OwnerId, PiholeError, connect};

pub use apply::{ConfigMaps, LedgerError, LedgerStore, PassResult, Versioned};
pub use index::{
    Claimant, FINALIZER, HOSTS, IngressId, IngressIndex, MANAGED_HOSTS, Problem, REGISTER, Snapshot, Standing,
    TARGET_CNAME, TARGET_IP, TARGET_IPV6, Target, Wanted, ingress_id, read,
};
pub use metrics::{Measured, REASONS};
pub use observe::Observed;
pub use observe::probe::Instance;
pub use plan::{Change, Ledger, Memory, Ownership, Plan, Planned, RecordRefusal, Slot, Value};
pub use settings::{ConflictPolicy, InstanceConfig, PiholeConfig, Policy};

use apply::CLUSTER_ID;
use metrics::PiholeMetrics;
use observe::probe::Readiness;

/// The description of this system.
pub const SPEC: SystemSpec = SystemSpec {
    name: PiholeSystem::NAME,
    title: "Pi-hole",
    about: "Ingress to local DNS records of one or more Pi-holes",
    settings: settings::SETTINGS,
    servers: &["PIHOLE_URL", "PIHOLE_INSTANCES_FILE"],
    hints: &["PIHOLE_API_TOKEN", "PIHOLE_API_TOKEN_FILE", "DEFAULT_TARGET_IP"],
    crds: Vec::new,
    rules: &[
        Rule {
            own_namespace: false,
            group: "networking.k8s.io",
            resources: &["ingresses"],
            names: &[],
            verbs: &["list", "watch", "patch"],
            why: "read hosts; patch writes pihole.io/managed-hosts and the optional finalizer",
        },
        Rule {
            own_namespace: true,
            group: "",
            resources: &["configmaps"],
            names: &[],
            verbs: &["get", "create", "patch"],
            why: "the id of the cluster, and the ledger of records in a Pi-hole that has no room for a mark",
        },
    ],
    variants: &[],
    shared: &[],
    configure: |settings| {
        let config = PiholeConfig::read(settings)?;
        Some(Box::new(move |operator: &mut Operator| install(operator, config).map_err(Into::into)))
    },
    demo: Some(demo::DEMO),
};

/// The system: the state that every step needs.
pub struct PiholeSystem {
    policy: Arc<Policy>,
    index: Arc<IngressIndex>,
    instances: BTreeMap<String, Arc<Instance>>,
    ledgers: Arc<dyn LedgerStore>,
    clock: Arc<dyn Clock>,
    metrics: PiholeMetrics,
    /// The owner id in the markers, once known.
    owner: tokio::sync::OnceCell<OwnerId>,
}

impl PiholeSystem {
    /// The system on these Pi-holes, by name.
    pub fn new(
        policy: Policy,
        index: Arc<IngressIndex>,
        instances: BTreeMap<String, Arc<Instance>>,
        ledgers: Arc<dyn LedgerStore>,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Self {
        let (metrics, owner) = (PiholeMetrics::register(metrics), tokio::sync::OnceCell::new());
        Self { policy: Arc::new(policy), index, instances, ledgers, clock, metrics, owner }
    }
}

impl System for PiholeSystem {
    const NAME: &'static str = "pihole";
    /// The published log lines `dns record refused`, `invalid annotation`, `invalid host` and `ingress skipped (no hosts)`.
    const LOGS_REFUSALS: bool = true;
    type Key = String;
    type Object = IngressId;
    type Memory = Memory;
    type Observed = Option<Observed>;
    type Plan = Option<Plan>;
    type Applied = Option<PassResult>;
    type Status = ();
    type Measured = Measured;

    async fn observe(&self, job: &Job<String, IngressId>, memory: Memory) -> Option<Observed> {
        self.read_all(job, memory).await
    }

    fn plan(observed: Option<Observed>, now: Timestamp) -> Option<Plan> {
        observed.map(|observed| plan::plan(observed, now))
    }

    async fn apply(&self, plan: Option<Plan>) -> Option<PassResult> {
        match plan {
            Some(plan) => Some(self.carry_out(plan).await),
            None => None,
        }
    }

    fn report(applied: Option<PassResult>, now: Timestamp) -> Report<Self> {
        applied.map_or_else(|| Report::new(Outcome::Done), |applied| report::report(applied, now))
    }

    fn measure(&self, measured: Measured) {
        if let Some(instance) = &measured.instance {
            instance.passed(measured.after);
        }
        self.metrics.record(measured);
    }
}

/// Adds the system to an operator, with a connection to every configured Pi-hole.
pub fn install(operator: &mut Operator, config: PiholeConfig) -> Result<(), PiholeError> {
    let mut instances = Vec::new();
    for InstanceConfig { name, connection, dialect } in config.instances {
        instances.push(Instance::new(name, connect(connection, dialect)?));
    }
    let owner = config.policy.owner.as_str();
    if config.policy.cluster_id {
        tracing::warn!("OWNER_ID is not set; this cluster gets an id, which is kept in the ConfigMap {CLUSTER_ID}");
    } else if config.nameless {
        tracing::warn!(
            owner,
            "clusters that share a Pi-hole under one owner delete each other's records; change OWNER_ID"
        );
    }
    install_instances(operator, config.policy, instances);
    Ok(())
}

/// Adds the system to an operator, with Pi-holes of any make (such as [`signpost_provider_pihole::MemoryPihole`]).
pub fn install_instances(operator: &mut Operator, policy: Policy, instances: Vec<Instance>) {
    let instances: BTreeMap<String, Arc<Instance>> =
        instances.into_iter().map(|instance| (instance.name.clone(), Arc::new(instance))).collect();
    let queue = Queue::new();
    let names = instances.keys().cloned().collect();
    let index = Arc::new(IngressIndex::new(policy.default_target, policy.finalizer, names, queue.clone()));
    operator.watch::<Ingress>(PiholeSystem::NAME, Watch::required(), Arc::clone(&index) as Arc<dyn Index<Ingress>>);
    operator.health().set("pihole", Check::failing("no Pi-hole has answered yet"));
    let readiness = Readiness::new(operator.health(), operator.clock(), policy.throttle);
    operator.spawn(readiness.watch(instances.values().cloned().collect(), queue.clone()));
    let all: Vec<Arc<Instance>> = instances.values().cloned().collect();
    operator.at_stop(async move {
        futures::future::join_all(all.iter().map(|instance| instance.pihole.close())).await;
    });
    let options = DriveOptions {
        // One pass per Pi-hole at a time is the queue's promise; all of them may run side by side.
        concurrency: instances.len().max(1),
        // Every request has its own deadline; thousands of them, one by one, may take minutes.
        deadline: Duration::from_mins(15),
        gather: Gather { at_most: policy.gather },
    };
    let ledgers = ConfigMaps::new(operator.client(), operator.writer(), &policy.namespace, policy.owner.as_str());
    let system = PiholeSystem::new(policy, index, instances, Arc::new(ledgers), operator.clock(), &operator.metrics());
    operator.drive(system, queue, options);
}
