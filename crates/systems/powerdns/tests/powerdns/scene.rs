//! One namespace on the sandbox with a server in memory: for tests that let single answers fail or come late.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use signpost_apis::powerdns::{RRset, RRsetStatus, Zone, ZoneStatus};
use signpost_dns::ZoneName;
use signpost_engine::{OperatorOptions, clock::ManualClock};
use signpost_provider_powerdns::{Call, Fault, MemoryServer, ServerError};
use signpost_sandbox::{FaultPlan, Session};
use signpost_system_powerdns::Pace;
use signpost_testkit::{Cluster, eventually, sandbox_cluster};

use crate::rig::{PATIENCE, Replica, fast, rrset, start_in, zone_spec};

pub const NAME: &str = "late.example";

/// A grace period that ends only when the clock is moved.
pub const GRACE: Duration = Duration::from_mins(10);

/// One namespace on a sandbox, and a server in memory.
pub struct Scene {
    pub cluster: Cluster,
    pub zones: Api<Zone>,
    pub sets: Api<RRset>,
    pub server: MemoryServer,
    pub clock: Arc<ManualClock>,
}

impl Scene {
    pub async fn new() -> Self {
        let cluster = sandbox_cluster().await;
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let namespace = cluster.namespace("late").await;
        let zones = Api::namespaced(cluster.client(), &namespace);
        let sets = Api::namespaced(cluster.client(), &namespace);
        let clock = Arc::new(ManualClock::starting_at(jiff::Timestamp::now()));
        Self { cluster, zones, sets, server: MemoryServer::new(), clock }
    }

    /// An operator whose requests to the API server meet these faults.
    pub fn start_faulty(
        &self,
        pace: Pace,
        fault: impl Fn(&str, &str, &str) -> signpost_sandbox::Fault + Send + Sync + 'static,
    ) -> Replica {
        let session = Session::new(FaultPlan::new(move |info, _| {
            if info.is_write() {
                return fault(&info.resource, &info.subresource, &info.name);
            }
            signpost_sandbox::Fault::None
        }));
        self.start_as(self.cluster.sandbox().unwrap().session_client(&session), pace)
    }

    pub fn start(&self, pace: Pace) -> Replica {
        self.start_as(self.cluster.client(), pace)
    }

    pub fn start_as(&self, client: kube::Client, pace: Pace) -> Replica {
        let options = OperatorOptions { clock: self.clock.clone(), ..OperatorOptions::default() };
        start_in(client, options, Arc::new(self.server.clone()), pace)
    }

    /// Moves the operator's clock past [`GRACE`].
    pub fn end_grace(&self) {
        self.clock.skew_by((GRACE + Duration::from_secs(1)).try_into().unwrap());
    }

    /// The server carries out what timed out; the record that this leaves is deleted by the operator.
    pub async fn late_write_is_deleted(&self) {
        let patches = || self.calls(|call| matches!(call, Call::Patch(..)));
        let before = patches();
        assert!(self.server.carry_out_late() > 0);
        eventually("the record of the late write is deleted", PATIENCE, || async {
            let seen = (patches() > before, self.served().unwrap());
            if seen.0 && seen.1.is_empty() { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    pub async fn zone(&self, more: Value) {
        let mut spec = zone_spec();
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let zone = Zone::new(NAME, serde_json::from_value(spec).unwrap());
        self.zones.create(&PostParams::default(), &zone).await.unwrap();
    }

    pub async fn zone_status(&self) -> ZoneStatus {
        self.zones.get(NAME).await.unwrap().status.unwrap_or_default()
    }

    pub async fn until_zone(&self, sync: &str) {
        eventually(&format!("the zone is {sync}"), PATIENCE, || async {
            let status = self.zone_status().await;
            if status.sync_status.as_deref() == Some(sync) { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// Changes the zone object, so that there is a full pass.
    pub async fn touch_zone(&self, account: &str) {
        let patch = json!({ "spec": { "account": account } });
        self.zones.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn create(&self, object: &str, name: &str, rtype: &str, record: &str) {
        let spec = serde_json::from_value(rrset(NAME, "Zone", name, rtype, &[record])).unwrap();
        self.sets.create(&PostParams::default(), &RRset::new(object, spec)).await.unwrap();
    }

    /// Creates a record set in a later second than another one: creation times are whole seconds.
    pub async fn create_younger(&self, object: &str, than: &str, name: &str, rtype: &str, record: &str) {
        let created = async |object: &str| self.sets.get(object).await.unwrap().metadata.creation_timestamp.unwrap().0;
        let before = created(than).await;
        eventually(&format!("{object} is younger than {than}"), PATIENCE, || async {
            self.create(object, name, rtype, record).await;
            if created(object).await > before {
                return Ok(());
            }
            self.delete(object).await;
            self.until_gone(object).await;
            Err(before)
        })
        .await;
    }

    pub async fn status(&self, object: &str) -> RRsetStatus {
        self.sets.get(object).await.unwrap().status.unwrap_or_default()
    }

    pub async fn until_set(&self, name: &str, sync: &str) {
        eventually(&format!("{name} is {sync}"), PATIENCE, || async {
            let object = self.sets.get(name).await.unwrap();
            let status = object.status.unwrap_or_default();
            let current = status.observed_generation == object.metadata.generation;
            if current && status.sync_status.as_deref() == Some(sync) { Ok(()) } else { Err(status) }
        })
        .await;
    }

    pub async fn delete(&self, object: &str) {
        self.sets.delete(object, &DeleteParams::default()).await.unwrap();
    }

    pub async fn until_gone(&self, object: &str) {
        eventually(&format!("{object} is gone"), PATIENCE, || async {
            self.sets.get_opt(object).await.unwrap().map_or(Ok(()), Err)
        })
        .await;
    }

    pub async fn until_zone_gone(&self) {
        eventually("the zone object is gone", PATIENCE, || async {
            self.zones.get_opt(NAME).await.unwrap().map_or(Ok(()), |zone| Err(format!("{:?}", zone.status)))
        })
        .await;
    }

    /// The server's records below the apex; `None` without the zone.
    pub fn served(&self) -> Option<Vec<String>> {
        let zone = ZoneName::parse(NAME).unwrap();
        let contents = self.server.contents(&zone)?;
        let below = contents.sets.into_iter().filter(|set| set.name != *zone.name());
        Some(below.map(|set| format!("{} {} {}", set.name, set.rtype, set.contents.join(","))).collect())
    }

    pub async fn until_served(&self, count: usize) {
        eventually(&format!("{count} record sets are served"), PATIENCE, || async {
            let served = self.served().unwrap_or_default();
            if served.len() == count { Ok(()) } else { Err(served) }
        })
        .await;
    }

    /// Waits until the zone was looked at so many times more.
    pub async fn looks(&self, count: usize) {
        let looks = || self.server.log().iter().filter(|call| matches!(call, Call::Zone(_) | Call::Read(_))).count();
        let before = looks();
        eventually("the zone is looked at", PATIENCE, || async {
            if looks() >= before + count { Ok(()) } else { Err(looks() - before) }
        })
        .await;
    }

    pub fn serial(&self) -> u32 {
        self.server.contents(&ZoneName::parse(NAME).unwrap()).unwrap().info.serial
    }

    /// A zone that is served, and the operator that serves it.
    pub async fn served_by(pace: Pace) -> (Self, Replica) {
        let scene = Self::new().await;
        scene.zone(json!({})).await;
        let replica = scene.start(pace);
        scene.until_zone("Succeeded").await;
        (scene, replica)
    }

    /// The calls that are picked meet this fault while the switch is on, and it is on.
    pub fn fault_while(&self, picks: impl Fn(&Call) -> bool + Send + Sync + 'static, fault: Fault) -> Arc<AtomicBool> {
        let on = Arc::new(AtomicBool::new(true));
        let switch = on.clone();
        self.server.set_gate(Some(Arc::new(move |call| {
            if picks(call) && switch.load(Ordering::SeqCst) { fault.clone() } else { Fault::None }
        })));
        on
    }

    /// The first call that is picked meets this fault.
    pub fn fault_once(&self, picks: impl Fn(&Call) -> bool + Send + Sync + 'static, fault: Fault) -> Arc<AtomicBool> {
        let once = Arc::new(AtomicBool::new(true));
        let switch = once.clone();
        self.server.set_gate(Some(Arc::new(move |call| {
            if picks(call) && switch.swap(false, Ordering::SeqCst) { fault.clone() } else { Fault::None }
        })));
        once
    }

    /// How many calls there were of those that are picked.
    pub fn calls(&self, picks: impl Fn(&Call) -> bool) -> usize {
        self.server.log().iter().filter(|call| picks(call)).count()
    }

    /// Waits until a request timed out that the server may still carry out.
    pub async fn until_late(&self) {
        let late = || async { if self.server.late() > 0 { Ok(()) } else { Err(()) } };
        eventually("a request timed out", PATIENCE, late).await;
    }

    pub async fn until_ledger_clear(&self) {
        eventually("the ledger is clear", PATIENCE, || async {
            let status = self.zone_status().await;
            if status.in_flight.is_empty() { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// Waits until the only record set is served and has its finalizer.
    pub async fn until_written(&self, object: &str) {
        eventually(&format!("{object} is written and has its finalizer"), PATIENCE, || async {
            let finalizers = self.sets.get(object).await.unwrap().metadata.finalizers;
            let written = finalizers.is_some_and(|list| !list.is_empty()) && self.served().unwrap().len() == 1;
            if written { Ok(()) } else { Err(self.served()) }
        })
        .await;
    }

    pub async fn delete_zone(&self) {
        self.zones.delete(NAME, &DeleteParams::default()).await.unwrap();
    }

    /// Creates `r0`, `r1` and so on.
    pub async fn create_many(&self, count: usize) {
        for n in 0..count {
            self.create(&format!("r{n}"), &format!("r{n}"), "A", "192.0.2.1").await;
        }
    }

    pub async fn delete_many(&self, count: usize) {
        for n in 0..count {
            self.delete(&format!("r{n}")).await;
        }
    }

    pub async fn until_all_gone(&self) {
        eventually("all objects are gone", PATIENCE, || async {
            let left = self.sets.list(&ListParams::default()).await.unwrap().items.len();
            if left == 0 { Ok(()) } else { Err(left) }
        })
        .await;
    }
}

pub fn timeout() -> ServerError {
    ServerError::Timeout { after: Duration::from_secs(10) }
}

pub fn without_resync() -> Pace {
    Pace { resync: Duration::from_hours(1), full_read: Duration::from_hours(2), ..fast() }
}

/// Delays the writes of record sets' statuses while the switch is on.
pub fn slow_statuses(
    on: &Arc<AtomicBool>,
    delay: Duration,
) -> impl Fn(&str, &str, &str) -> signpost_sandbox::Fault + use<> {
    let on = on.clone();
    move |resource: &str, subresource: &str, _: &str| {
        if resource == "rrsets" && subresource == "status" && on.load(Ordering::SeqCst) {
            return signpost_sandbox::Fault::Delay(delay);
        }
        signpost_sandbox::Fault::None
    }
}
