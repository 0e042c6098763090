//! Ingress → local DNS records in one or more Pi-holes.
//!
//! ```text
//! Ingress ──watch──► index ──► queue: one key per Pi-hole, so never two writes to one at a time
//!                                │
//!   Pi-hole lists ─► observe ─► plan ─► apply ─► report ─► pihole.io/managed-hosts, finalizer, events
//!                                         └─► list again: what counts is what is there
//! ```
//! Ownership lives in the Pi-hole itself (a marker comment in each line) or, where lines cannot carry one, in a
//! ConfigMap. The annotation is a view: whoever forges it changes nothing.

mod aliases;
mod apply;
mod config;
mod figures;
mod index;
mod instance;
mod ledger;
mod observe;
mod ownership;
mod plan;
mod readiness;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use signpost_apis::ingress::Ingress;
use signpost_engine::health::Check;
use signpost_engine::metrics::Metrics;
use signpost_engine::{Clock, DriveOptions, Gather, Job, Need, Operator, Queue, Report, System};
use signpost_provider_pihole::{OwnerId, PiholeError, connect};

pub use config::{ConfigProblem, ConflictPolicy, InstanceConfig, PiholeConfig, PiholeSettings, Policy};
pub use index::{
    Claimant, FINALIZER, Finalizers, HOSTS, IngressIndex, IngressKey, MANAGED_HOSTS, Problem, REGISTER, Snapshot,
    TARGET_CNAME, TARGET_IP, TARGET_IPV6, Target, Wanted, read,
};
pub use instance::Instance;
pub use ledger::{ConfigMaps, Ledger, LedgerError, LedgerStore, Versioned};
pub use ownership::Ownership;
pub use plan::{Change, Held, Planned, Reason, Refusal, Slot, Value, World, plan};

use figures::{Figures, Voice};
use readiness::Readiness;

/// The system: what it needs in every step.
pub struct PiholeSystem {
    policy: Policy,
    index: Arc<IngressIndex>,
    instances: BTreeMap<String, Arc<Instance>>,
    ledgers: Arc<dyn LedgerStore>,
    clock: Arc<dyn Clock>,
    figures: Figures,
    voice: Voice,
    /// What events about a whole Pi-hole are attached to.
    event_object: ObjectReference,
    /// Who writes the markers, once known.
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
        let event_object = ObjectReference {
            api_version: Some("apps/v1".into()),
            kind: Some("Deployment".into()),
            name: Some("signpost".into()),
            namespace: Some(policy.namespace.clone()),
            ..ObjectReference::default()
        };
        let (figures, voice) = (Figures::register(metrics), Voice::default());
        let owner = tokio::sync::OnceCell::new();
        Self { policy, index, instances, ledgers, clock, figures, voice, event_object, owner }
    }
}

impl System for PiholeSystem {
    const NAME: &'static str = "pihole";
    type Key = String;
    type Object = IngressKey;
    type Observed = Option<observe::Observed>;
    type Plan = Option<apply::Plan>;
    type Applied = Option<apply::Applied>;

    async fn observe(&self, job: &Job<String, IngressKey>) -> Self::Observed {
        self.look(job).await
    }

    fn plan(&self, observed: Self::Observed, now: Timestamp) -> Self::Plan {
        observed.map(|observed| self.decide(observed, now))
    }

    async fn apply(&self, plan: Self::Plan) -> Self::Applied {
        match plan {
            Some(plan) => Some(self.carry_out(plan).await),
            None => None,
        }
    }

    fn report(&self, applied: Self::Applied, now: Timestamp) -> Report<IngressKey> {
        match applied {
            Some(applied) => self.say(&applied, now),
            None => Report { writes: Vec::new(), events: Vec::new(), outcome: signpost_engine::Outcome::Done },
        }
    }
}

/// The running system, as far as its owner has to care: close it after the operator has stopped.
#[must_use = "closing gives the sessions at the Pi-holes back"]
pub struct Installed {
    instances: Vec<Arc<Instance>>,
    probe: tokio::task::JoinHandle<()>,
}

impl Installed {
    /// Logs out everywhere.
    pub async fn close(self) {
        self.probe.abort();
        futures::future::join_all(self.instances.iter().map(|instance| instance.pihole.close())).await;
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.probe.abort();
    }
}

/// Adds the system to an operator, with a connection to every configured Pi-hole.
pub fn install(operator: &mut Operator, config: PiholeConfig) -> Result<Installed, PiholeError> {
    let mut instances = Vec::new();
    for InstanceConfig { name, connection, dialect } in config.instances {
        instances.push(Instance::new(name, connect(connection, dialect)?));
    }
    if config.nameless && !config.policy.cluster_id {
        tracing::warn!(
            owner = config.policy.owner.as_str(),
            "OWNER_ID is \"default\"; clusters that share a Pi-hole under one owner delete each other's records"
        );
    }
    Ok(install_instances(operator, config.policy, instances))
}

/// Adds the system to an operator, with Pi-holes of any make (such as [`signpost_provider_pihole::MemoryPihole`]).
pub fn install_instances(operator: &mut Operator, policy: Policy, instances: Vec<Instance>) -> Installed {
    let instances: BTreeMap<String, Arc<Instance>> =
        instances.into_iter().map(|instance| (instance.name.clone(), Arc::new(instance))).collect();
    let queue = Queue::new();
    let names = instances.keys().cloned().collect();
    let index = Arc::new(IngressIndex::new(policy.default_target, policy.finalizer, names, queue.clone()));
    operator.watch::<Ingress>(Need::Required, Arc::clone(&index) as Arc<dyn signpost_engine::Index<Ingress>>);
    operator.health().set("pihole", Check::failing("no Pi-hole has answered yet"));
    let readiness = Readiness::new(operator.health(), operator.clock(), policy.throttle);
    let probe = tokio::spawn(readiness.watch(instances.values().cloned().collect(), queue.clone()));
    let installed = Installed { instances: instances.values().cloned().collect(), probe };
    let options = DriveOptions {
        // One pass per Pi-hole at a time is the queue's promise; all of them may run side by side.
        concurrency: instances.len().max(1),
        // Every request has its own deadline; thousands of them, one by one, may take minutes.
        deadline: Duration::from_mins(15),
        gather: Gather { idle: Duration::ZERO, busy: policy.gather, storm: Duration::ZERO },
    };
    let ledgers = ConfigMaps::new(operator.client(), &policy.namespace, policy.owner.as_str());
    let system = PiholeSystem::new(policy, index, instances, Arc::new(ledgers), operator.clock(), &operator.metrics());
    operator.drive(system, queue, options);
    installed
}
