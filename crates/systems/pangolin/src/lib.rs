//! Ingress → public endpoints of Pangolin: PangolinResource objects for pangolin-operator, or resources in Pangolin itself.
//!
//! ```text
//! Ingress, IngressClass, Service, PangolinTunnel ──watch──► index ──► queue: one key per Ingress
//!                                                                        │
//!                 schema │ lists of Pangolin ─► observe ─► plan ─► apply ─► report ─► events, status, digest
//!                                                                   ├─ crd: PangolinResources (label and owner of the Ingress)
//!                                                                   └─ api: resources with a mark in their identifier
//! ```
//! In direct mode the marks in Pangolin are the ledger: what carries a mark of ours and has no Ingress is deleted by a sweep, at the start and
//! at every comparison. So an Ingress needs no finalizer and its deletion never waits for a Pangolin that is down; the endpoint is deleted
//! when Pangolin answers again, by this process or by the next one.

mod apply;
mod demo;
mod index;
mod metrics;
mod observe;
mod plan;
mod project;
mod report;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use signpost_apis::ingress::{Ingress, IngressClass};
use signpost_apis::pangolin::{GROUP, PangolinOrganization, PangolinResource, PangolinTunnel};
use signpost_apis::service::Service;
use signpost_engine::health::Check;
use signpost_engine::{
    Configured, DriveOptions, Gather, Identity, Index, Job, ObjectId, Operator, Queue, Report, Rule, Settings, System,
    SystemSpec, Wanted, Watch, Writer,
};
use signpost_exposure::hex;
use signpost_provider_pangolin::{Pangolin, PangolinClient, PangolinError};

pub use apply::ApplyResult;
pub use index::{
    APPLIED_ANNOTATION, HOST_ANNOTATION, IngressId, Key, NAME_LABEL, NAMESPACE_LABEL, PangolinIndex, UID_LABEL,
};
pub use metrics::Measured;
pub use plan::crd::Shape;
pub use plan::{Memory, Observed, Plan};
pub use settings::{CONTROLLER, Dialect, Mode, MultiHost, PangolinConfig, Policy, TargetMode};

use metrics::PangolinMetrics;
use observe::link::Link;
use observe::schema::Schema;

/// The name of the system.
pub(crate) const NAME: &str = "pangolin";

/// The description of this system.
pub const SPEC: SystemSpec = SystemSpec {
    name: NAME,
    title: "Pangolin",
    about: "Ingress objects to public endpoints of Pangolin, through pangolin-operator or its API",
    settings: settings::SETTINGS,
    servers: &["PIC_MODE"],
    hints: &["PIC_DEFAULT_TUNNEL_NAME", "PANGOLIN_DEFAULT_TUNNEL_NAME", "PIC_TUNNEL_CLASS_MAPPING", "PIC_API_URL"],
    crds: Vec::new,
    rules: &[
        READ,
        READ_CLASSES,
        READ_SERVICES,
        WRITE_RESOURCES,
        READ_TUNNELS,
        PATCH_INGRESSES,
        PATCH_STATUS,
        READ_CLUSTER_ID,
    ],
    variants: &[("crd", CRD_RULES), ("api", API_RULES)],
    shared: READ_TUNNELS.resources,
    configure,
    demo: Some(demo::DEMO),
};

/// The permissions of crd mode.
const CRD_RULES: &[Rule] = &[READ, READ_CLASSES, READ_SERVICES, WRITE_RESOURCES, READ_TUNNELS];
/// The permissions of api mode.
const API_RULES: &[Rule] = &[READ, READ_CLASSES, READ_SERVICES, PATCH_INGRESSES, READ_CLUSTER_ID];

const READ: Rule = Rule {
    own_namespace: false,
    group: "networking.k8s.io",
    resources: &["ingresses"],
    names: &[],
    verbs: &["list", "watch"],
    why: "read hosts, paths and annotations",
};
const READ_CLASSES: Rule = Rule {
    own_namespace: false,
    group: "networking.k8s.io",
    resources: &["ingressclasses"],
    names: &[],
    verbs: &["list", "watch"],
    why: "read which controller a class is for",
};
const READ_SERVICES: Rule = Rule {
    own_namespace: false,
    group: "",
    resources: &["services"],
    names: &[],
    verbs: &["list", "watch"],
    why: "read the ports of backends",
};
const WRITE_RESOURCES: Rule = Rule {
    own_namespace: false,
    group: GROUP,
    resources: &["pangolinresources"],
    names: &[],
    verbs: &["get", "list", "watch", "create", "patch", "delete"],
    why: "crd mode: one for each exposed host",
};
const READ_TUNNELS: Rule = Rule {
    own_namespace: false,
    group: GROUP,
    resources: &["pangolintunnels", "pangolinorganizations"],
    names: &[],
    verbs: &["list", "watch"],
    why: "crd mode: read tunnels, and the domains of their organisation",
};
const PATCH_INGRESSES: Rule = Rule {
    own_namespace: false,
    group: "networking.k8s.io",
    resources: &["ingresses"],
    names: &[],
    verbs: &["patch"],
    why: "api mode: note a digest of what Pangolin has, so that a start needs to read nothing else",
};
const PATCH_STATUS: Rule = Rule {
    own_namespace: false,
    group: "networking.k8s.io",
    resources: &["ingresses/status"],
    names: &[],
    verbs: &["patch"],
    why: "only with PIC_UPDATE_INGRESS_STATUS: the exposed hosts",
};
const READ_CLUSTER_ID: Rule = Rule {
    own_namespace: false,
    group: "",
    resources: &["namespaces"],
    names: &["kube-system"],
    verbs: &["get"],
    why: "api mode without PIC_OWNER_ID: the UID of kube-system identifies the cluster in Pangolin",
};

fn configure(settings: &mut Settings) -> Option<Box<dyn Configured>> {
    let config = PangolinConfig::read(settings)?;
    Some(Box::new(move |operator: &mut Operator| install(operator, config).map_err(Into::into)))
}

/// The system: what it needs in every step.
pub struct PangolinSystem {
    policy: Arc<Policy>,
    index: Arc<PangolinIndex>,
    schema: Arc<Schema>,
    /// The way to Pangolin, in direct mode.
    link: Option<Arc<Link>>,
    writer: Writer,
    client: kube::Client,
    metrics: PangolinMetrics,
    /// The owner id in the marks, once known.
    owner: tokio::sync::OnceCell<String>,
    /// Who works on a host (direct mode).
    turns: std::sync::Mutex<std::collections::BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// When a write to a host was last sent whose effect is not known (direct mode).
    doubts: std::sync::Mutex<std::collections::BTreeMap<String, tokio::time::Instant>>,
    /// When the next pass that is limited may continue.
    next: tokio::sync::Mutex<tokio::time::Instant>,
}

impl PangolinSystem {
    pub(crate) fn new(
        operator: &Operator,
        policy: Arc<Policy>,
        index: Arc<PangolinIndex>,
        schema: Arc<Schema>,
        link: Option<Arc<Link>>,
    ) -> Self {
        Self {
            policy,
            index,
            schema,
            link,
            writer: operator.writer(),
            client: operator.client(),
            metrics: PangolinMetrics::register(&operator.metrics()),
            owner: tokio::sync::OnceCell::new(),
            turns: std::sync::Mutex::default(),
            doubts: std::sync::Mutex::default(),
            next: tokio::sync::Mutex::new(tokio::time::Instant::now()),
        }
    }

    /// The owner id in the marks: the configured owner, or an id of the cluster; with the watched namespaces, where they are limited.
    pub(crate) async fn owner(&self) -> Result<String, PangolinError> {
        let find = || async {
            let id = match &self.policy.owner {
                Some(owner) => owner.clone(),
                None => hex(&self.cluster_id().await?, 5),
            };
            let scope = self.policy.watched();
            Ok(if scope.is_empty() { id } else { format!("{id}-{}", hex(&scope, 3)) })
        };
        self.owner.get_or_try_init(find).await.cloned()
    }

    async fn cluster_id(&self) -> Result<String, PangolinError> {
        let failed = |what: String| PangolinError::Setup {
            what: format!("the id of this cluster cannot be read ({what}); allow it, or set PIC_OWNER_ID"),
        };
        let request = http::Request::get("/api/v1/namespaces/kube-system").body(Vec::new());
        let request = request.map_err(|error| failed(error.to_string()))?;
        let answer = tokio::time::timeout(Duration::from_secs(10), self.client.request::<Value>(request)).await;
        let namespace =
            answer.map_err(|_| failed("no answer".to_owned()))?.map_err(|error| failed(error.to_string()))?;
        let uid = namespace["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
        uid.map(str::to_owned).ok_or_else(|| failed("the namespace kube-system has no UID".to_owned()))
    }
}

impl System for PangolinSystem {
    const NAME: &'static str = NAME;
    type Key = Key;
    type Object = ();
    type Memory = Memory;
    type Observed = Observed;
    type Plan = Plan;
    type Applied = ApplyResult;
    type Status = (Identity, Vec<String>);
    type Measured = Measured;

    async fn observe(&self, job: &Job<Key, ()>, memory: Memory) -> Observed {
        self.see(job, memory).await
    }

    fn plan(observed: Observed, now: Timestamp) -> Plan {
        plan::plan(observed, now)
    }

    async fn apply(&self, plan: Plan) -> ApplyResult {
        self.carry_out(plan).await
    }

    fn report(applied: ApplyResult, now: Timestamp) -> Report<Self> {
        report::report(applied, now)
    }

    fn settle(&self, _: &Key, statuses: Vec<Self::Status>) -> Vec<IngressId> {
        statuses.into_iter().map(|(identity, hosts)| self.index.set_exposed(identity, hosts)).collect()
    }

    fn wanted(&self, id: &ObjectId, _: Timestamp) -> Option<Wanted> {
        self.index.wanted(id)
    }

    fn knows(&self, key: &Key) -> bool {
        match key {
            Key::Sweep => true,
            Key::Ingress(id) => self.index.knows(id),
        }
    }

    fn measure(&self, measured: Measured) {
        self.index.settle(&measured);
        self.metrics.record(measured);
    }
}

/// Adds the system to an operator, as the settings ask for it.
pub fn install(operator: &mut Operator, config: PangolinConfig) -> Result<(), PangolinError> {
    let PangolinConfig { policy, connection } = config;
    match connection {
        Some(connection) => {
            let client = PangolinClient::new(&connection)?;
            install_api(operator, policy, Arc::new(client));
        }
        None => install_crd(operator, policy),
    }
    Ok(())
}

/// Adds the system to an operator, with PangolinResource objects as the delivery.
pub fn install_crd(operator: &mut Operator, policy: Policy) {
    add(operator, Policy { mode: Mode::Crd, ..policy }, None);
}

/// Adds the system to an operator, with a Pangolin of any make (such as [`signpost_provider_pangolin::MemoryPangolin`]).
pub fn install_api(operator: &mut Operator, policy: Policy, pangolin: Arc<dyn Pangolin>) {
    add(operator, Policy { mode: Mode::Api, ..policy }, Some(Arc::new(Link::new(pangolin))));
}

fn add(operator: &mut Operator, policy: Policy, link: Option<Arc<Link>>) {
    let policy = Arc::new(policy);
    let queue = Queue::new();
    let statuses = policy.ingress_status.then(|| operator.writer());
    if let Some(writer) = &statuses {
        writer.status_owner(NAME);
    }
    let index = Arc::new(PangolinIndex::new(Arc::clone(&policy), queue.clone(), statuses));
    let mut places: Vec<Option<String>> = policy.namespaces.iter().cloned().map(Some).collect();
    if places.is_empty() {
        places.push(None);
    }
    let within = |watch: Watch, place: &Option<String>| match place {
        Some(namespace) => watch.in_namespace(namespace.clone()),
        None => watch,
    };
    for place in &places {
        let ingresses = if policy.ingress_status { Watch::required().reported(&[]) } else { Watch::required() };
        operator.watch::<Ingress>(NAME, within(ingresses, place), index.clone() as Arc<dyn Index<Ingress>>);
        operator.watch::<Service>(NAME, within(Watch::required(), place), index.clone() as Arc<dyn Index<Service>>);
    }
    operator.watch::<IngressClass>(NAME, Watch::required(), index.clone() as Arc<dyn Index<IngressClass>>);
    let schema = Arc::new(Schema::new(operator.client(), policy.dialect));
    match &link {
        None => {
            for place in &places {
                let children = Watch::required().labels(UID_LABEL).children();
                operator.watch(NAME, within(children, place), index.clone() as Arc<dyn Index<PangolinResource>>);
            }
            let limited = places[0].is_some() || !policy.scope.is_empty();
            let elsewhere = policy.tunnel_namespace.clone().filter(|place| limited && *place != policy.scope).map(Some);
            places.extend(elsewhere.filter(|place| !places.contains(place)));
            let required = places.iter().cloned().map(|place| (place, Watch::required()));
            // One that may not be read does not hold up the Ingresses with other tunnels.
            let named = policy.named_namespaces().into_iter().map(|place| (Some(place), Watch::optional()));
            for (place, watch) in required.chain(named) {
                operator.watch(NAME, within(watch, &place), index.clone() as Arc<dyn Index<PangolinTunnel>>);
                let organizations = index.clone() as Arc<dyn Index<PangolinOrganization>>;
                operator.watch(NAME, within(Watch::optional(), &place), organizations);
            }
            operator.spawn(Arc::clone(&schema).watch(index.clone()));
        }
        Some(link) => {
            operator.health().set(NAME, Check::failing("Pangolin has not answered yet"));
            operator.spawn(Arc::clone(link).watch(operator.health(), index.clone(), queue.clone()));
        }
    }
    let options = DriveOptions {
        concurrency: policy.concurrency,
        // Every request has its own deadline; an Ingress with many hosts may need many.
        deadline: Duration::from_mins(5),
        gather: Gather::default(),
    };
    let system = PangolinSystem::new(operator, policy, index, schema, link);
    operator.drive(system, queue, options);
}
