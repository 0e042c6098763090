//! DNS objects looked up and judged, Portal and Component objects, and every name in the inventory.
//!
//! ```text
//!  DNS ─► collect ─► aggregate ─► look up ─► judge ─► views in the inventory ─► status, events
//!                                    ▲                     └─► Component from the annotations
//!                        resolvers ──┘                          a key is one object
//! ```
//!
//! Every replica fills the inventory from the watch; only the leader looks names up and writes. A resolver that does not work keeps the last
//! verdicts.

mod apply;
mod demo;
mod discover;
pub mod index;
mod metrics;
mod observe;
pub mod plan;
mod project;
pub mod report;
mod served;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signpost_apis::portal::{Component, DNS, GROUP, Portal};
use signpost_apis::powerdns::{ClusterRRset, RRset};
use signpost_apis::{externaldns, gatewayapi, istio};
use signpost_engine::{
    Clock, Configured, DriveOptions, Gather, Index, Job, ObjectId, Operator, Queue, Report, Rule, Settings, System,
    SystemSpec, Wanted, Watch, Writer,
};
use signpost_inventory::Inventory;
use signpost_provider_portal::{Connect, Portals};
use signpost_provider_resolver::{Lookup, Options, Resolvers, Upstream};
use tokio::sync::Semaphore;

use crate::index::{Key, Keys, Objects};
use crate::metrics::PortalMetrics;

pub use settings::{Pace, PortalConfig};

/// The name of the system.
pub(crate) const NAME: &str = "portal";

/// The description of this system.
pub const SPEC: SystemSpec = SystemSpec {
    name: NAME,
    title: "Portal",
    about: "DNS objects to verdicts on their names, and Component objects",
    settings: settings::SETTINGS,
    servers: &[],
    hints: &[],
    crds: signpost_apis::portal::crds,
    rules: &[
        Rule {
            own_namespace: false,
            group: GROUP,
            resources: &["dns", "portals"],
            names: &[],
            verbs: &["list", "watch"],
            why: "read which names should exist",
        },
        Rule {
            own_namespace: false,
            group: GROUP,
            resources: &["components"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            why: "components that annotations of DNS objects ask for",
        },
        Rule {
            own_namespace: true,
            group: GROUP,
            resources: &["portals"],
            names: &[],
            verbs: &["get", "create", "patch"],
            why: "create the main portal",
        },
        Rule {
            own_namespace: false,
            group: GROUP,
            resources: &["dns"],
            names: &[],
            verbs: &["get", "create", "patch", "delete"],
            why: "the names of remote portals, as DNS objects",
        },
        Rule {
            own_namespace: true,
            group: "",
            resources: &["secrets"],
            names: &[],
            verbs: &["get"],
            why: "the certificates of remote portals; granted for the names of --secrets alone",
        },
        discovers("networking.k8s.io", &["ingresses"]),
        discovers("", &["services", "namespaces"]),
        discovers(externaldns::GROUP, &["dnsendpoints"]),
        discovers(gatewayapi::GROUP, &["gateways", "httproutes", "grpcroutes", "tlsroutes"]),
        discovers(istio::GROUP, &["gateways", "virtualservices"]),
        Rule {
            own_namespace: false,
            group: GROUP,
            resources: &["dns/status", "portals/status", "components/status"],
            names: &[],
            verbs: &["patch"],
            why: "report the result",
        },
        Rule {
            own_namespace: false,
            group: signpost_apis::powerdns::GROUP,
            resources: &["rrsets", "clusterrrsets"],
            names: &[],
            verbs: &["list", "watch"],
            why: "with VERIFY: read which record sets are to be reported on",
        },
        Rule {
            own_namespace: false,
            group: signpost_apis::powerdns::GROUP,
            resources: &["rrsets/status", "clusterrrsets/status"],
            names: &[],
            verbs: &["patch"],
            why: "with VERIFY: the condition Served",
        },
    ],
    variants: &[],
    shared: &[],
    configure,
    demo: Some(demo::DEMO),
};

/// The permission to read names; without it, or with PORTAL_DISCOVER=false, the kind is left out.
const fn discovers(group: &'static str, resources: &'static [&'static str]) -> Rule {
    Rule {
        own_namespace: false,
        group,
        resources,
        names: &[],
        verbs: &["list", "watch"],
        why: "read which names others publish",
    }
}

fn configure(settings: &mut Settings) -> Option<Box<dyn Configured>> {
    let config = PortalConfig::read(settings)?;
    Some(Box::new(move |operator: &mut Operator| {
        install(operator, &config);
        Ok(())
    }))
}

/// Adds the system to an operator, with the resolvers of its settings. Must be called inside a tokio runtime.
pub fn install(operator: &mut Operator, config: &PortalConfig) {
    let server = |(publisher, upstream): &(Box<str>, Upstream)| {
        // What such a server answers is its own answer.
        let options = Options { resolvers: vec![upstream.clone()], forwards: false, ..config.resolvers.clone() };
        (publisher.clone(), Arc::new(Resolvers::new(&options)) as Arc<dyn Lookup>)
    };
    let lookups = Lookups {
        resolvers: Arc::new(Resolvers::new(&config.resolvers)),
        servers: config.servers.iter().map(server).collect(),
        portals: Arc::new(Connect),
    };
    install_with(operator, lookups, &Arc::new(Inventory::new()), config.pace.clone());
}

/// Who is asked for names, and for the names of other clusters.
#[derive(Clone, Debug)]
pub struct Lookups {
    /// The resolvers, for every name.
    pub resolvers: Arc<dyn Lookup>,
    /// The servers that systems publish to, by the name of the publisher in the inventory.
    pub servers: BTreeMap<Box<str>, Arc<dyn Lookup>>,
    /// The portals of other clusters.
    pub portals: Arc<dyn Portals>,
}

impl<L: Lookup + 'static> From<Arc<L>> for Lookups {
    fn from(resolvers: Arc<L>) -> Self {
        Self { resolvers, servers: BTreeMap::new(), portals: Arc::new(Connect) }
    }
}

/// Fields of a status that only tell when something happened.
const TIMES: &[&str] = &["lastReconcileTime", "lastSeen", "checkedAt", "lastStatusChange", "lastSyncTime"];

/// Adds the system to an operator, with any resolvers and inventory. Must be called inside a tokio runtime.
pub fn install_with(operator: &mut Operator, lookups: impl Into<Lookups>, inventory: &Arc<Inventory>, pace: Pace) {
    let queue: Keys = Queue::new();
    let writer = operator.writer();
    operator.keep_inventory(inventory.clone());
    let objects = Arc::new(Objects::new(queue.clone(), &pace.namespace));
    operator.place_names(objects.clone(), objects.places());
    let watch = || Watch::required().reported(TIMES);
    operator.watch::<Portal>(NAME, watch(), objects.clone() as Arc<dyn Index<Portal>>);
    operator.watch::<DNS>(NAME, watch(), objects.clone() as Arc<dyn Index<DNS>>);
    operator.watch::<Component>(NAME, watch().children(), objects.clone() as Arc<dyn Index<Component>>);
    if pace.verify {
        writer.status_owner(report::SERVED_OWNER);
        let records = || Watch::optional().reported(&[]);
        operator.watch::<RRset>(NAME, records(), objects.clone() as Arc<dyn Index<RRset>>);
        operator.watch::<ClusterRRset>(NAME, records(), objects.clone() as Arc<dyn Index<ClusterRRset>>);
    }
    if pace.check {
        let (inventory, objects, queue) = (inventory.clone(), objects.clone(), queue.clone());
        let (writer, clock) = (writer.clone(), operator.clock());
        operator.spawn(served::follow(served::Follower { inventory, objects, queue, writer, clock }));
    }
    if pace.discover {
        discover::install(operator, &objects, inventory);
    }
    let metrics = PortalMetrics::register(&operator.metrics(), inventory, &writer);
    let options = DriveOptions {
        // Many objects wait for answers at the same time; the resolvers limit the questions.
        concurrency: 64,
        deadline: pace.budget + Duration::from_secs(30),
        gather: Gather::default(),
    };
    let (inventory, lookups) = (inventory.clone(), lookups.into());
    let client = operator.client();
    let (clock, kept) = (operator.clock(), observe::Kept::default());
    let visits = Semaphore::new(observe::remote::MOST_VISITS);
    let slow = Semaphore::new(pace.slow.max(1));
    let system = PortalSystem { objects, inventory, lookups, client, writer, clock, metrics, kept, visits, slow, pace };
    operator.drive(system, queue, options);
}

/// The system.
pub struct PortalSystem {
    pub(crate) objects: Arc<Objects>,
    pub(crate) inventory: Arc<Inventory>,
    pub(crate) lookups: Lookups,
    pub(crate) client: kube::Client,
    pub(crate) writer: Writer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: PortalMetrics,
    /// The memory that the answers of all passes take.
    pub(crate) kept: observe::Kept,
    /// The turns of visits of remote portals.
    pub(crate) visits: Semaphore,
    /// The turns of lookups of names that may take long.
    pub(crate) slow: Semaphore,
    pub(crate) pace: Pace,
}

impl System for PortalSystem {
    const NAME: &'static str = NAME;
    type Key = Key;
    type Object = ();
    type Memory = plan::Memory;
    type Observed = plan::Observed;
    type Plan = plan::Plan;
    type Applied = apply::ApplyResult;
    type Status = report::Decision;
    type Measured = ();

    async fn observe(&self, job: &Job<Key, ()>, memory: plan::Memory) -> plan::Observed {
        observe::observe(self, job, memory).await
    }

    fn plan(observed: plan::Observed, now: Timestamp) -> plan::Plan {
        plan::plan(observed, now)
    }

    async fn apply(&self, plan: plan::Plan) -> apply::ApplyResult {
        apply::apply(self, plan).await
    }

    fn report(applied: apply::ApplyResult, now: Timestamp) -> Report<Self> {
        report::report(applied, now)
    }

    fn settle(&self, _key: &Key, statuses: Vec<report::Decision>) -> Vec<Arc<ObjectId>> {
        statuses.into_iter().filter_map(|decision| self.objects.settle(decision)).collect()
    }

    fn wanted(&self, id: &ObjectId, now: Timestamp) -> Option<Wanted> {
        report::wanted(&self.objects.get(id)?, now)
    }

    fn knows(&self, key: &Key) -> bool {
        match key {
            Key::Object(id) => self.objects.get(id).is_some(),
            Key::Names(owner) => !self.inventory.views(owner).is_empty(),
            Key::Main => true,
        }
    }
}
