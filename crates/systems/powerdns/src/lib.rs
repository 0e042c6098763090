//! Zone, ClusterZone, RRset and ClusterRRset to a PowerDNS server.
//!
//! ```text
//!  four kinds ─► World (index) ─► one key per zone ─► observe ─► plan ─► apply ─► report
//!                                                     │ serial    │ pure   │ ledger, one PATCH
//!                                                     └ memory    │        └ finisher: finalizer, status
//! ```
//!
//! A zone is worked on by one pass at a time; what changes meanwhile is in the next. Records are served first; the
//! ledger on the zone object makes that safe: whatever was being written when the process died is known afterwards.

mod apply;
mod config;
mod digest;
mod fenced;
mod finish;
mod index;
mod memory;
mod metrics;
mod name_plan;
mod observe;
mod outcome;
mod patch;
mod plan;
mod probe;
mod record;
mod report;
mod zone_plan;

pub use config::{ConfigProblem, Pace, PowerDnsConfig};
pub use record::ZoneKey;
pub use signpost_provider_powerdns::{MemoryServer, OptionsError, PowerDnsClient, Secret, ZoneServer};

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use signpost_apis::powerdns::{ClusterRRset, ClusterZone, RRset, Zone};
use signpost_engine::{
    Clock, DriveOptions, Gather, Index, Job, Need, ObjectId, Operator, Queue, Report, System, Writer,
    health::{Check, Health},
};
use thiserror::Error;

use crate::{
    fenced::Fenced,
    finish::Finisher,
    index::{World, Zones},
    memory::ZoneMemory,
    metrics::Figures,
};

/// Why the system cannot be installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// Settings that cannot work.
    #[error("the PowerDNS configuration cannot work: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<ConfigProblem>),
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

/// Adds the system to an operator, with any server behind it. Must be called inside a tokio runtime.
pub fn install_with(operator: &mut Operator, server: Arc<dyn ZoneServer>, pace: Pace) {
    let queue: Zones = Queue::new();
    let world = Arc::new(World::new(queue.clone(), pace.only.clone(), pace.partial_view));
    let figures = Figures::register(&operator.metrics(), &world);
    world.set_finisher(Finisher::new(
        &world,
        operator.writer(),
        operator.recorder(),
        queue.clone(),
        operator.clock(),
        figures.clone(),
    ));
    operator.watch::<Zone>(Need::Required, world.clone() as Arc<dyn Index<Zone>>);
    operator.watch::<ClusterZone>(Need::Required, world.clone() as Arc<dyn Index<ClusterZone>>);
    operator.watch::<RRset>(Need::Required, world.clone() as Arc<dyn Index<RRset>>);
    operator.watch::<ClusterRRset>(Need::Required, world.clone() as Arc<dyn Index<ClusterRRset>>);
    operator.health().set(probe::CHECK, Check::failing("the PowerDNS server has not answered yet"));
    tokio::spawn(probe::probe(server.clone(), operator.health(), Arc::downgrade(&world), pace.probe));
    let options = DriveOptions {
        concurrency: pace.zones_at_once,
        // Every call has its own deadline; a round of many chunks may take several of them.
        deadline: Duration::from_mins(5),
        gather: Gather::default(),
    };
    let system = PowerDnsSystem {
        world,
        queue: queue.clone(),
        server: Arc::new(Fenced::new(server, operator.writer())),
        writer: operator.writer(),
        clock: operator.clock(),
        health: operator.health(),
        figures,
        pace,
        memories: Mutex::default(),
    };
    operator.drive(system, queue, options);
}

/// The system.
pub(crate) struct PowerDnsSystem {
    pub(crate) world: Arc<World>,
    pub(crate) queue: Zones,
    pub(crate) server: Arc<dyn ZoneServer>,
    pub(crate) writer: Writer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Health,
    pub(crate) figures: Figures,
    pub(crate) pace: Pace,
    /// A pass takes its zone's memory and gives it back at its end; one that dies on the way loses it, and reads again.
    memories: Mutex<HashMap<ZoneKey, ZoneMemory>>,
}

impl PowerDnsSystem {
    pub(crate) fn recall(&self, key: &ZoneKey) -> ZoneMemory {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner).remove(key).unwrap_or_default()
    }

    pub(crate) fn memorise(&self, key: ZoneKey, memory: ZoneMemory) {
        if memory != ZoneMemory::default() && self.world.knows(&key) {
            self.memories.lock().unwrap_or_else(PoisonError::into_inner).insert(key, memory);
        }
    }

    /// Readiness says whether the server can be reached.
    pub(crate) fn report_health(&self) {
        let check = match self.server.health() {
            signpost_provider_powerdns::Health::Unknown | signpost_provider_powerdns::Health::Up => Check::Ok,
            signpost_provider_powerdns::Health::Down { why } => Check::failing(why),
        };
        self.health.set(probe::CHECK, check);
    }
}

impl System for PowerDnsSystem {
    const NAME: &'static str = "powerdns";
    type Key = ZoneKey;
    type Object = Arc<ObjectId>;
    type Observed = plan::Observed;
    type Plan = plan::Plan;
    type Applied = apply::Applied;

    async fn observe(&self, job: &Job<ZoneKey, Arc<ObjectId>>) -> plan::Observed {
        observe::observe(self, job).await
    }

    fn plan(&self, observed: plan::Observed, now: Timestamp) -> plan::Plan {
        plan::plan(observed, now)
    }

    async fn apply(&self, plan: plan::Plan) -> apply::Applied {
        apply::apply(self, plan).await
    }

    fn report(&self, applied: apply::Applied, now: Timestamp) -> Report<Arc<ObjectId>> {
        self.report_health();
        let outcome::Said { key, memory, verdicts, report, again } = outcome::say(&self.pace, applied, now);
        for (id, refusal) in &report.refused {
            self.figures.refused(refusal.reason);
            tracing::info!(object = %id, reason = refusal.reason.as_str(), message = refusal.message, "refused");
        }
        for write in &report.statuses {
            self.world.zone_said(&write.0, &write.1);
        }
        self.memorise(key.clone(), memory);
        self.world.settle(verdicts);
        if let Some(after) = again {
            self.queue.touch_after(key, signpost_engine::Touch::All, after);
        }
        report.into_report()
    }
}
