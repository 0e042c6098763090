//! Zone, ClusterZone, RRset and ClusterRRset, and DNSEndpoint where asked, to a PowerDNS server.
//!
//! ```text
//!  four kinds ─► ZoneIndex ─► one key per zone ─► observe ─► plan ─► apply ─► report
//!                                                 │ serial    │ pure   │ ledger, one PATCH
//!                                                 └ memory    │        └ statuses: finalizer, status (engine)
//! ```
//!
//! A zone is worked on by one pass at a time; what changes meanwhile is in the next. Records are served first; the
//! ledger on the zone object makes that safe: whatever was being written when the process died is known afterwards.

mod apply;
mod demo;
mod index;
mod metrics;
mod observe;
mod plan;
mod project;
mod report;
mod settings;

pub use index::record::ZoneKey;
pub use settings::{EndpointSource, Pace, PowerDnsConfig};
pub use signpost_provider_powerdns::{MemoryServer, OptionsError, PowerDnsClient, Secret, ZoneServer};

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use signpost_apis::{
    externaldns::{self, DnsEndpoint},
    powerdns::{ClusterRRset, ClusterZone, GROUP, RRset, Zone},
};
use signpost_engine::{
    Clock, Configured, DriveOptions, Gather, Index, Job, ObjectId, Operator, Queue, Refusals, Report, Rule, Settings,
    System, SystemSpec, Touch, Wanted, Watch, Writer,
    health::{Check, Health},
    settings::Problem,
};
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::{
    apply::fenced::Fenced,
    index::{ZoneIndex, Zones},
    metrics::{Measured, PowerDnsMetrics},
    observe::probe,
    plan::memory::ZoneMemory,
    report::status::Decision,
};

/// The name of the system.
const NAME: &str = "powerdns";

/// The description of this system.
pub const SPEC: SystemSpec = SystemSpec {
    name: NAME,
    title: "PowerDNS",
    about: "Zone, ClusterZone, RRset and ClusterRRset objects to zones and records in PowerDNS",
    settings: settings::SETTINGS,
    servers: &["PDNS_API_URL"],
    hints: &[],
    crds: signpost_apis::powerdns::crds,
    rules: &[
        Rule {
            own_namespace: false,
            group: GROUP,
            resources: &["zones", "clusterzones", "rrsets", "clusterrrsets"],
            names: &[],
            verbs: &["list", "watch", "patch"],
            why: "read what is wanted; patch adds and removes the finalizer",
        },
        Rule {
            own_namespace: false,
            group: GROUP,
            resources: &["zones/status", "clusterzones/status", "rrsets/status", "clusterrrsets/status"],
            names: &[],
            verbs: &["patch"],
            why: "report what was done",
        },
        Rule {
            own_namespace: false,
            group: externaldns::GROUP,
            resources: &["dnsendpoints"],
            names: &[],
            verbs: &["list", "watch"],
            why: "read what is wanted, with PDNS_DNSENDPOINTS=true",
        },
        Rule {
            own_namespace: false,
            group: externaldns::GROUP,
            resources: &["dnsendpoints/status"],
            names: &[],
            verbs: &["patch"],
            why: "report which generation is published, with PDNS_DNSENDPOINTS=true",
        },
    ],
    variants: &[],
    shared: &[],
    configure,
    demo: Some(demo::DEMO),
};

fn configure(settings: &mut Settings) -> Option<Box<dyn Configured>> {
    let config = PowerDnsConfig::read(settings)?;
    Some(Box::new(move |operator: &mut Operator| install(operator, &config).map_err(Into::into)))
}

/// Why the system cannot be installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// Settings that cannot work.
    #[error("the PowerDNS configuration cannot work: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<Problem>),
    /// No client can be made of them.
    #[error(transparent)]
    Client(#[from] OptionsError),
}

/// Adds the system to an operator, with a PowerDNS server behind it. Must be called inside a tokio runtime.
pub fn install(operator: &mut Operator, config: &PowerDnsConfig) -> Result<(), InstallError> {
    let problems = config.validate();
    let options = match config.client_options() {
        Some(options) if problems.is_empty() => options,
        _ => return Err(InstallError::Config(problems)),
    };
    // A request may still be carried out a good while after its caller gave up.
    let grace = config.pace.grace.max(config.timeout.saturating_mul(3));
    let pace = Pace { grace, ..config.pace.clone() };
    install_with(operator, Arc::new(PowerDnsClient::new(options)?), pace);
    Ok(())
}

/// Fields of a record set's status that only tell when something happened.
const TIMES: &[&str] = &["lastUpdateTime", "serial"];

/// Adds the system to an operator, with any server behind it. Must be called inside a tokio runtime.
pub fn install_with(operator: &mut Operator, server: Arc<dyn ZoneServer>, pace: Pace) {
    let queue: Zones = Queue::new();
    let mut index = ZoneIndex::new(queue.clone(), pace.only.clone(), pace.partial_view);
    if let Some(source) = &pace.endpoints {
        index.endpoint_filter = source.annotations.clone();
    }
    let index = Arc::new(index);
    let metrics = PowerDnsMetrics::register(&operator.metrics(), &index);
    let zones = || Watch::required().reported(&[]);
    let records = || Watch::required().reported(TIMES);
    operator.watch::<Zone>(NAME, zones(), index.clone() as Arc<dyn Index<Zone>>);
    operator.watch::<ClusterZone>(NAME, zones(), index.clone() as Arc<dyn Index<ClusterZone>>);
    operator.watch::<RRset>(NAME, records(), index.clone() as Arc<dyn Index<RRset>>);
    operator.watch::<ClusterRRset>(NAME, records(), index.clone() as Arc<dyn Index<ClusterRRset>>);
    if let Some(source) = &pace.endpoints {
        // Zones and record sets need no DNSEndpoint. Until the first complete list, the source counts as switched off (`pace_now`): every
        // record set that was written for an endpoint would look unwanted.
        let mut endpoints = Watch::optional().reported(&[]);
        if let Some(labels) = &source.labels {
            endpoints = endpoints.labels(labels);
        }
        operator.watch::<DnsEndpoint>(NAME, endpoints, index.clone() as Arc<dyn Index<DnsEndpoint>>);
    }
    operator.health().set(NAME, Check::failing("the PowerDNS server has not answered yet"));
    operator.spawn(probe::probe(server.clone(), operator.health(), pace.probe));
    let options = DriveOptions {
        concurrency: pace.zones_at_once,
        // Every call has its own deadline; a round of many chunks may take several of them.
        deadline: Duration::from_mins(5),
        gather: Gather::default(),
    };
    let system = PowerDnsSystem {
        index,
        queue: queue.clone(),
        server: Arc::new(Fenced::new(server, operator.writer())),
        writer: operator.writer(),
        clock: operator.clock(),
        health: operator.health(),
        refusals: operator.refusals(),
        metrics,
        reads: Semaphore::new(READS_AT_ONCE),
        pace: Arc::new(pace),
    };
    operator.drive(system, queue, options);
}

/// The system.
pub(crate) struct PowerDnsSystem {
    pub(crate) index: Arc<ZoneIndex>,
    pub(crate) queue: Zones,
    pub(crate) server: Arc<dyn ZoneServer>,
    pub(crate) writer: Writer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Health,
    pub(crate) refusals: Refusals,
    pub(crate) metrics: PowerDnsMetrics,
    /// Zones that are read whole at the same time.
    pub(crate) reads: Semaphore,
    pub(crate) pace: Arc<Pace>,
}

impl PowerDnsSystem {
    /// The settings of a pass that begins now: without the source of DNSEndpoints, as long as these were not listed completely.
    pub(crate) fn pace_now(&self) -> Arc<Pace> {
        if self.pace.endpoints.is_none() || self.index.are_endpoints_listed() {
            return self.pace.clone();
        }
        Arc::new(Pace { endpoints: None, ..(*self.pace).clone() })
    }
}

/// Zones that are read whole at the same time at most. A read has a deadline, so a hanging read delays others for a limited time.
const READS_AT_ONCE: usize = 4;

/// How long a zone waits after its last object write before it reports its serial and clears its ledger.
const SETTLE: Duration = Duration::from_millis(500);

impl System for PowerDnsSystem {
    const NAME: &'static str = NAME;
    type Key = ZoneKey;
    type Object = Arc<ObjectId>;
    type Memory = ZoneMemory;
    type Observed = plan::Observed;
    type Plan = plan::Plan;
    type Applied = apply::ApplyResult;
    type Status = Decision;
    type Measured = Measured;

    async fn observe(&self, job: &Job<ZoneKey, Arc<ObjectId>>, memory: ZoneMemory) -> plan::Observed {
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

    fn settle(&self, _key: &ZoneKey, statuses: Vec<Decision>) -> Vec<Arc<ObjectId>> {
        let mut due = Vec::new();
        let mut records = Vec::with_capacity(statuses.len());
        for decision in statuses {
            match decision {
                Decision::Zone(zone) => due.extend(self.index.settle_zone(*zone)),
                Decision::Record(record) => records.push(record),
            }
        }
        due.extend(self.index.settle(records));
        // The status of a DNSEndpoint has no room for a reason.
        for (object, refusals) in self.index.endpoint_refusals(&due) {
            self.refusals.set(NAME, &object, &refusals);
        }
        due
    }

    fn wanted(&self, id: &ObjectId, now: Timestamp) -> Option<Wanted> {
        match self.index.zone(id) {
            Some(zone) => report::status::zone_wanted(&zone),
            None if id.is::<DnsEndpoint>() => self.index.endpoint_wanted(id),
            None => report::status::wanted(&*self.index.record(id)?, now),
        }
    }

    fn written(&self, id: &ObjectId, object: &Value) {
        if let Some(reason) = self.index.written(id, object) {
            self.metrics.refused(reason);
        }
    }

    fn all_written(&self, key: &ZoneKey, last: &Arc<ObjectId>) -> Option<(Touch<Arc<ObjectId>>, Duration)> {
        self.index.take_written(key).then(|| (Touch::One(last.clone()), SETTLE))
    }

    fn measure(&self, measured: Measured) {
        for reason in measured.refused {
            self.metrics.refused(reason);
        }
        // Readiness reports whether the server can be reached.
        self.health.set(NAME, probe::check(&*self.server));
    }
}
