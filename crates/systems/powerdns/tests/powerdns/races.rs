//! Slow answers that overlap with status writes, deletions and full passes.
//!
//! Each test lets one answer come late, on the sandbox and the server in memory, and then checks from outside: nothing
//! of ours is served without an owner, and nothing is released while it is served.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use signpost_apis::powerdns::{ClusterRRset, ClusterZone, RRset, RRsetStatus, Zone, ZoneStatus};
use signpost_dns::ZoneName;
use signpost_engine::{OperatorOptions, clock::ManualClock};
use signpost_provider_powerdns::{Call, Fault, MemoryServer, ServerError};
use signpost_sandbox::{FaultPlan, Session};
use signpost_system_powerdns::Pace;
use signpost_testkit::{Cluster, eventually, sandbox_cluster};

use crate::rig::{PATIENCE, Replica, fast, rrset, start_in, zone_spec};

const NAME: &str = "late.example";

/// A grace period that ends only when the clock is moved.
const GRACE: Duration = Duration::from_mins(10);

/// One namespace on a sandbox, and a server in memory.
struct Scene {
    cluster: Cluster,
    zones: Api<Zone>,
    sets: Api<RRset>,
    server: MemoryServer,
    clock: Arc<ManualClock>,
}

impl Scene {
    async fn new() -> Self {
        let cluster = sandbox_cluster().await;
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let namespace = cluster.namespace("late").await;
        let zones = Api::namespaced(cluster.client(), &namespace);
        let sets = Api::namespaced(cluster.client(), &namespace);
        let clock = Arc::new(ManualClock::starting_at(jiff::Timestamp::now()));
        Self { cluster, zones, sets, server: MemoryServer::new(), clock }
    }

    /// An operator whose requests to the API server meet these faults.
    fn start_faulty(
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

    fn start(&self, pace: Pace) -> Replica {
        self.start_as(self.cluster.client(), pace)
    }

    fn start_as(&self, client: kube::Client, pace: Pace) -> Replica {
        let options = OperatorOptions { clock: self.clock.clone(), ..OperatorOptions::default() };
        start_in(client, options, Arc::new(self.server.clone()), pace)
    }

    /// Moves the operator's clock past [`GRACE`].
    fn end_grace(&self) {
        self.clock.skew_by((GRACE + Duration::from_secs(1)).try_into().unwrap());
    }

    async fn zone(&self, more: Value) {
        let mut spec = zone_spec();
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let zone = Zone::new(NAME, serde_json::from_value(spec).unwrap());
        self.zones.create(&PostParams::default(), &zone).await.unwrap();
    }

    async fn zone_status(&self) -> ZoneStatus {
        self.zones.get(NAME).await.unwrap().status.unwrap_or_default()
    }

    async fn until_zone(&self, sync: &str) {
        eventually(&format!("the zone is {sync}"), PATIENCE, || async {
            let status = self.zone_status().await;
            if status.sync_status.as_deref() == Some(sync) { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// Changes the zone object, so that there is a full pass.
    async fn touch_zone(&self, account: &str) {
        let patch = json!({ "spec": { "account": account } });
        self.zones.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn create(&self, object: &str, name: &str, rtype: &str, record: &str) {
        let spec = serde_json::from_value(rrset(NAME, "Zone", name, rtype, &[record])).unwrap();
        self.sets.create(&PostParams::default(), &RRset::new(object, spec)).await.unwrap();
    }

    async fn status(&self, object: &str) -> RRsetStatus {
        self.sets.get(object).await.unwrap().status.unwrap_or_default()
    }

    async fn until_set(&self, name: &str, sync: &str) {
        eventually(&format!("{name} is {sync}"), PATIENCE, || async {
            let object = self.sets.get(name).await.unwrap();
            let status = object.status.unwrap_or_default();
            let current = status.observed_generation == object.metadata.generation;
            if current && status.sync_status.as_deref() == Some(sync) { Ok(()) } else { Err(status) }
        })
        .await;
    }

    async fn delete(&self, object: &str) {
        self.sets.delete(object, &DeleteParams::default()).await.unwrap();
    }

    async fn until_gone(&self, object: &str) {
        eventually(&format!("{object} is gone"), PATIENCE, || async {
            self.sets.get_opt(object).await.unwrap().map_or(Ok(()), Err)
        })
        .await;
    }

    async fn until_zone_gone(&self) {
        eventually("the zone object is gone", PATIENCE, || async {
            self.zones.get_opt(NAME).await.unwrap().map_or(Ok(()), |zone| Err(format!("{:?}", zone.status)))
        })
        .await;
    }

    /// What the server has below the apex; `None` without the zone.
    fn served(&self) -> Option<Vec<String>> {
        let zone = ZoneName::parse(NAME).unwrap();
        let contents = self.server.contents(&zone)?;
        let below = contents.sets.into_iter().filter(|set| set.name != *zone.name());
        Some(below.map(|set| format!("{} {} {}", set.name, set.rtype, set.contents.join(","))).collect())
    }

    async fn until_served(&self, count: usize) {
        eventually(&format!("{count} record sets are served"), PATIENCE, || async {
            let served = self.served().unwrap_or_default();
            if served.len() == count { Ok(()) } else { Err(served) }
        })
        .await;
    }

    /// Waits until the zone was looked at so many times more.
    async fn looks(&self, count: usize) {
        let looks = || self.server.log().iter().filter(|call| matches!(call, Call::Zone(_) | Call::Read(_))).count();
        let before = looks();
        eventually("the zone is looked at", PATIENCE, || async {
            if looks() >= before + count { Ok(()) } else { Err(looks() - before) }
        })
        .await;
    }

    fn serial(&self) -> u32 {
        self.server.contents(&ZoneName::parse(NAME).unwrap()).unwrap().info.serial
    }
}

fn timeout() -> ServerError {
    ServerError::Timeout { after: Duration::from_secs(10) }
}

fn without_resync() -> Pace {
    Pace { resync: Duration::from_hours(1), full_read: Duration::from_hours(2), ..fast() }
}

/// Delays the writes of record sets' statuses while the switch is on.
fn slow_statuses(
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

/// `www` is served, its status came late, and meanwhile a full pass met a server that hangs and then fails.
async fn outage_after_write() -> (Scene, Arc<AtomicBool>, Replica) {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let slow = Arc::new(AtomicBool::new(true));
    let replica = scene.start_faulty(without_resync(), slow_statuses(&slow, Duration::from_secs(1)));
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    eventually("www is written and has its finalizer", PATIENCE, || async {
        let finalizers = scene.sets.get("www").await.unwrap().metadata.finalizers;
        if finalizers.is_some_and(|list| !list.is_empty()) && scene.served().unwrap().len() == 1 {
            Ok(())
        } else {
            Err(scene.served())
        }
    })
    .await;
    slow.store(false, Ordering::SeqCst);
    let down = Arc::new(AtomicBool::new(true));
    let gate = down.clone();
    let asked = Arc::new(AtomicBool::new(false));
    let first = asked.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Server => Fault::None,
        _ if gate.load(Ordering::SeqCst) => {
            // The first question is answered only when the status has landed.
            if first.swap(true, Ordering::SeqCst) {
                Fault::Before(timeout())
            } else {
                Fault::SlowBefore(Duration::from_secs(3), timeout())
            }
        }
        _ => Fault::None,
    })));
    scene.touch_zone("x").await;
    eventually("the pass waits for the server", PATIENCE, || async {
        if asked.load(Ordering::SeqCst) { Ok(()) } else { Err(()) }
    })
    .await;
    eventually("www reports what it wrote", PATIENCE, || async {
        let status = scene.status("www").await;
        if status.applied.is_some() { Ok(()) } else { Err(status) }
    })
    .await;
    scene.until_zone("Failed").await;
    (scene, down, replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_that_saw_an_older_status_does_not_erase_what_was_applied() {
    let (scene, down, replica) = outage_after_write().await;
    assert!(scene.status("www").await.applied.is_some());
    scene.delete("www").await;
    // It is judged while the server is down, and must stay.
    eventually("www fails", PATIENCE, || async {
        let status = scene.status("www").await;
        if status.sync_status.as_deref() == Some("Failed") { Ok(()) } else { Err(status) }
    })
    .await;
    down.store(false, Ordering::SeqCst);
    scene.until_gone("www").await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_changed_in_an_outage_is_switched_when_the_server_is_back() {
    let (scene, down, replica) = outage_after_write().await;
    let patch = json!({ "spec": { "type": "CNAME", "records": ["web.example.org."] } });
    scene.sets.patch("www", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    scene.until_set("www", "Failed").await;
    down.store(false, Ordering::SeqCst);
    scene.until_set("www", "Succeeded").await;
    assert_eq!(scene.served().unwrap(), [format!("www.{NAME}. CNAME web.example.org.")]);
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_sets_deleted_in_an_outage_leave_nothing_behind() {
    const COUNT: usize = 60;
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    for n in 0..COUNT {
        scene.create(&format!("r{n}"), &format!("r{n}"), "A", "192.0.2.1").await;
    }
    let replica = scene.start_faulty(fast(), |resource, _, _| {
        if resource == "rrsets" {
            return signpost_sandbox::Fault::Delay(Duration::from_millis(60));
        }
        signpost_sandbox::Fault::None
    });
    scene.until_served(COUNT).await;
    let down = Arc::new(AtomicBool::new(true));
    let gate = down.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Server => Fault::None,
        _ if gate.load(Ordering::SeqCst) => Fault::SlowBefore(Duration::from_millis(1_500), timeout()),
        _ => Fault::None,
    })));
    scene.looks(3).await;
    let items = scene.sets.list(&ListParams::default()).await.unwrap().items;
    let unowned = || async {
        let ledger = scene.zone_status().await.in_flight;
        let items = scene.sets.list(&ListParams::default()).await.unwrap().items;
        let known = |name: &str| {
            let listed = ledger.iter().any(|line| line.starts_with(&format!("{name} ")));
            let applied = |set: &RRset| set.status.as_ref().is_some_and(|status| status.applied.is_some());
            listed || items.iter().any(|set| set.metadata.name.as_deref() == Some(name) && applied(set))
        };
        (0..COUNT).map(|n| format!("r{n}")).filter(|name| !known(name)).collect::<Vec<_>>()
    };
    assert_eq!(unowned().await, Vec::<String>::new(), "every record is in a status or in the ledger");
    for set in &items {
        scene.delete(set.metadata.name.as_deref().unwrap()).await;
    }
    scene.looks(2).await;
    down.store(false, Ordering::SeqCst);
    eventually("all objects are gone", PATIENCE, || async {
        let left = scene.sets.list(&ListParams::default()).await.unwrap().items.len();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_lands_during_a_full_pass_does_not_release_a_served_object() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let slow = Arc::new(AtomicBool::new(true));
    let replica = scene.start_faulty(without_resync(), slow_statuses(&slow, Duration::from_secs(3)));
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    eventually("www is written and has its finalizer", PATIENCE, || async {
        let finalizers = scene.sets.get("www").await.unwrap().metadata.finalizers;
        if finalizers.is_some_and(|list| !list.is_empty()) && scene.served().unwrap().len() == 1 {
            Ok(())
        } else {
            Err(scene.served())
        }
    })
    .await;
    // While one PATCH is under way, the object is deleted and the zone object changed: both are in the next pass, whose
    // question about the zone is answered only after the status has landed.
    let patching = Arc::new(AtomicBool::new(false));
    let (patches, asks) = (patching.clone(), Arc::new(AtomicBool::new(false)));
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) if !patches.swap(true, Ordering::SeqCst) => Fault::Slow(Duration::from_millis(600)),
        Call::Zone(_) | Call::Read(_) if !asks.swap(true, Ordering::SeqCst) => Fault::Slow(Duration::from_secs(6)),
        _ => Fault::None,
    })));
    scene.create("other", "other", "A", "192.0.2.2").await;
    eventually("a PATCH is under way", PATIENCE, || async {
        if patching.load(Ordering::SeqCst) { Ok(()) } else { Err(()) }
    })
    .await;
    scene.delete("www").await;
    scene.touch_zone("x").await;
    scene.until_gone("www").await;
    assert_eq!(scene.served().unwrap(), [format!("other.{NAME}. A 192.0.2.2")]);
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_whose_deletion_fails_keeps_its_record_sets() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(fast());
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    let stuck = Arc::new(AtomicBool::new(true));
    let gate = stuck.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Delete(_) if gate.load(Ordering::SeqCst) => {
            Fault::Before(ServerError::Failed { status: 500, words: "database is locked".into() })
        }
        _ => Fault::None,
    })));
    scene.zones.delete(NAME, &DeleteParams::default()).await.unwrap();
    scene.delete("www").await;
    scene.until_set("www", "Failed").await;
    let status = scene.status("www").await;
    assert!(status.applied.is_some() && scene.served().unwrap().len() == 1, "{status:?}");
    stuck.store(false, Ordering::SeqCst);
    scene.until_gone("www").await;
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None);
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loser_keeps_what_it_wrote_until_the_winner_is_written() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let refuses = Arc::new(AtomicBool::new(false));
    let gate = refuses.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) if gate.load(Ordering::SeqCst) => {
            Fault::Before(ServerError::Refused { words: format!("RRset www.{NAME}. IN A: not this one") })
        }
        _ => Fault::None,
    })));
    let pace = Pace { retry_refused: Duration::from_mins(10), ..fast() };
    let replica = scene.start(pace);
    scene.until_zone("Succeeded").await;
    scene.create("older", "www", "TXT", "\"x\"").await;
    scene.until_set("older", "Succeeded").await;
    let created = |object: &RRset| object.metadata.creation_timestamp.clone().unwrap().0;
    let before = created(&scene.sets.get("older").await.unwrap());
    // Creation is told in whole seconds.
    let mut tries = 0;
    loop {
        scene.create("younger", "www", "A", "192.0.2.2").await;
        if created(&scene.sets.get("younger").await.unwrap()) > before {
            break;
        }
        tries += 1;
        assert!(tries < 1_000);
        scene.delete("younger").await;
        scene.until_gone("younger").await;
    }
    scene.until_set("younger", "Succeeded").await;
    refuses.store(true, Ordering::SeqCst);
    let patch = json!({ "spec": { "type": "A", "records": ["192.0.2.1"] } });
    scene.sets.patch("older", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    scene.until_set("older", "Failed").await;
    scene.until_set("younger", "Failed").await;
    assert!(scene.status("younger").await.applied.is_some(), "its record is still the one that is served");
    assert_eq!(scene.served().unwrap().len(), 2);
    refuses.store(false, Ordering::SeqCst);
    scene.delete("younger").await;
    scene.until_gone("younger").await;
    scene.delete("older").await;
    scene.until_gone("older").await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_that_takes_effect_after_its_timeout_is_cleaned_up() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.until_zone("Succeeded").await;
    let hangs = Arc::new(AtomicBool::new(true));
    let gate = hangs.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) if gate.load(Ordering::SeqCst) => Fault::Late(timeout()),
        _ => Fault::None,
    })));
    scene.create("www", "www", "A", "192.0.2.1").await;
    eventually("a PATCH timed out", PATIENCE, || async { if scene.server.late() > 0 { Ok(()) } else { Err(()) } })
        .await;
    scene.delete("www").await;
    scene.until_gone("www").await;
    hangs.store(false, Ordering::SeqCst);
    scene.looks(2).await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    assert_eq!(scene.zone_status().await.in_flight.len(), 1, "the server may still carry it out");
    assert!(scene.server.carry_out_late() > 0);
    assert_eq!(scene.served().unwrap().len(), 1);
    scene.until_served(0).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_that_takes_effect_after_its_object_is_gone_is_cleaned_up() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    let hangs = Arc::new(AtomicBool::new(true));
    let gate = hangs.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) if gate.load(Ordering::SeqCst) => Fault::Late(timeout()),
        _ => Fault::None,
    })));
    let patch = json!({ "spec": { "records": ["192.0.2.2"] } });
    scene.sets.patch("www", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    eventually("a PATCH timed out", PATIENCE, || async { if scene.server.late() > 0 { Ok(()) } else { Err(()) } })
        .await;
    hangs.store(false, Ordering::SeqCst);
    scene.delete("www").await;
    scene.until_gone("www").await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    assert!(scene.server.carry_out_late() > 0);
    assert_eq!(scene.served().unwrap().len(), 1);
    scene.until_served(0).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncertain_lines_leave_the_ledger_after_the_grace_period() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(Pace { grace: Duration::from_secs(1), ..fast() });
    scene.until_zone("Succeeded").await;
    let once = Arc::new(AtomicBool::new(true));
    let gate = once.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) if gate.swap(false, Ordering::SeqCst) => Fault::After(timeout()),
        _ => Fault::None,
    })));
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    assert!(!once.load(Ordering::SeqCst));
    eventually("the ledger is clear", PATIENCE, || async {
        let status = scene.zone_status().await;
        if status.in_flight.is_empty() { Ok(()) } else { Err(status) }
    })
    .await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retained_zone_stays_while_the_guard_pauses_its_deletions() {
    let scene = Scene::new().await;
    scene.zone(json!({ "deletionPolicy": "Retain" })).await;
    let replica = scene.start_faulty(without_resync(), |resource, _, _| {
        if resource == "rrsets" {
            return signpost_sandbox::Fault::status(503, "ServiceUnavailable", "not now");
        }
        signpost_sandbox::Fault::None
    });
    scene.until_zone("Succeeded").await;
    for n in 0..12 {
        scene.create(&format!("r{n}"), &format!("r{n}"), "A", "192.0.2.1").await;
    }
    scene.until_served(12).await;
    replica.crash().await;
    for n in 0..12 {
        scene.delete(&format!("r{n}")).await;
    }
    assert!(scene.zone_status().await.in_flight.len() >= 12);
    scene.zones.delete(NAME, &DeleteParams::default()).await.unwrap();
    let replica = scene.start(fast());
    scene.until_zone_gone().await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new(), "nothing of ours is left, and the zone is");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_sets_deleted_right_after_their_retained_zone_leave_nothing_behind() {
    let scene = Scene::new().await;
    scene.zone(json!({ "deletionPolicy": "Retain" })).await;
    let replica = scene.start(fast());
    scene.until_zone("Succeeded").await;
    for n in 0..12 {
        scene.create(&format!("r{n}"), &format!("r{n}"), "A", "192.0.2.1").await;
    }
    scene.zones.delete(NAME, &DeleteParams::default()).await.unwrap();
    for n in 0..12 {
        scene.delete(&format!("r{n}")).await;
    }
    scene.until_zone_gone().await;
    eventually("all objects are gone", PATIENCE, || async {
        let left = scene.sets.list(&ListParams::default()).await.unwrap().items.len();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retained_zone_stays_until_its_record_sets_report_what_they_have() {
    let scene = Scene::new().await;
    scene.zone(json!({ "deletionPolicy": "Retain" })).await;
    let refuses = Arc::new(AtomicBool::new(true));
    let refusing = refuses.clone();
    let replica = scene.start_faulty(fast(), move |resource, _, _| {
        if resource == "rrsets" && refusing.load(Ordering::SeqCst) {
            return signpost_sandbox::Fault::status(503, "ServiceUnavailable", "not now");
        }
        signpost_sandbox::Fault::None
    });
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_served(1).await;
    scene.zones.delete(NAME, &DeleteParams::default()).await.unwrap();
    scene.looks(3).await;
    let zone = scene.zones.get_opt(NAME).await.unwrap();
    assert!(zone.is_some(), "its ledger alone tells whose the record is");
    refuses.store(false, Ordering::SeqCst);
    scene.until_zone_gone().await;
    assert!(scene.status("www").await.applied.is_some());
    scene.delete("www").await;
    scene.until_gone("www").await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_refuses_adoption_knows_the_zone_it_created_before_its_status_lands() {
    let scene = Scene::new().await;
    let replica = scene.start_faulty(fast(), |resource, subresource, _| {
        if resource == "zones" && subresource == "status" {
            return signpost_sandbox::Fault::Delay(Duration::from_millis(200));
        }
        signpost_sandbox::Fault::None
    });
    scene.zone(json!({ "adoptionPolicy": "Refuse" })).await;
    for n in 0..20 {
        scene.create(&format!("r{n}"), &format!("r{n}"), "A", "192.0.2.1").await;
    }
    let foreign = AtomicUsize::new(0);
    eventually("all are served and reported", PATIENCE, || async {
        let zone = scene.zone_status().await;
        if zone.conditions.iter().any(|condition| condition.reason == "ForeignRecord") {
            foreign.fetch_add(1, Ordering::SeqCst);
        }
        let items = scene.sets.list(&ListParams::default()).await.unwrap().items;
        let done = |set: &&RRset| set.status.as_ref().is_some_and(|s| s.sync_status.as_deref() == Some("Succeeded"));
        let done = items.iter().filter(done).count();
        if done == 20 { Ok(()) } else { Err((done, zone)) }
    })
    .await;
    assert_eq!(foreign.load(Ordering::SeqCst), 0, "it never took its own zone for a foreign one");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_refuses_adoption_takes_its_zone_along_before_its_status_lands() {
    let scene = Scene::new().await;
    let writes = Arc::new(AtomicUsize::new(0));
    let replica = scene.start_faulty(fast(), move |resource, subresource, _| {
        // The first status carries the ledger; the one with the identifier of the zone comes late.
        let status = resource == "zones" && subresource == "status";
        if status && writes.fetch_add(1, Ordering::SeqCst) == 1 {
            return signpost_sandbox::Fault::Delay(Duration::from_millis(500));
        }
        signpost_sandbox::Fault::None
    });
    scene.zone(json!({ "adoptionPolicy": "Refuse" })).await;
    eventually("the zone is created", PATIENCE, || async { scene.served().map(|_| ()).ok_or(()) }).await;
    scene.zones.delete(NAME, &DeleteParams::default()).await.unwrap();
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None, "the zone is gone with its object");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_object_waits_for_a_creation_that_ended_without_an_answer() {
    let scene = Scene::new().await;
    let once = Arc::new(AtomicBool::new(true));
    let gate = once.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Create(_) if gate.swap(false, Ordering::SeqCst) => Fault::Late(timeout()),
        Call::Create(_) => Fault::Before(timeout()),
        _ => Fault::None,
    })));
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.zone(json!({})).await;
    eventually("a creation timed out", PATIENCE, || async { if scene.server.late() > 0 { Ok(()) } else { Err(()) } })
        .await;
    scene.zones.delete(NAME, &DeleteParams::default()).await.unwrap();
    scene.looks(2).await;
    assert!(scene.zones.get_opt(NAME).await.unwrap().is_some(), "the server may still create the zone");
    assert_eq!(scene.server.carry_out_late(), 1);
    scene.end_grace();
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None, "the zone is deleted with its object");
    replica.stop().await;
}

/// The first creation of the zone timed out, the second was answered, and then the zone object was deleted.
async fn zone_deleted_after_an_uncertain_creation() -> (Scene, Replica) {
    let scene = Scene::new().await;
    let once = AtomicBool::new(true);
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Create(_) if once.swap(false, Ordering::SeqCst) => Fault::Late(timeout()),
        _ => Fault::None,
    })));
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.zone(json!({})).await;
    scene.until_zone("Succeeded").await;
    scene.zones.delete(NAME, &DeleteParams::default()).await.unwrap();
    eventually("the zone is deleted", PATIENCE, || async { scene.served().map_or(Ok(()), Err) }).await;
    scene.looks(2).await;
    assert!(scene.zones.get_opt(NAME).await.unwrap().is_some(), "the server may still create the zone");
    (scene, replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_lands_after_the_zone_was_deleted_leaves_no_zone() {
    let (scene, replica) = zone_deleted_after_an_uncertain_creation().await;
    assert_eq!(scene.server.carry_out_late(), 1);
    scene.end_grace();
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None, "the zone is deleted with its object");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_does_not_forget_a_creation_that_ended_without_an_answer() {
    let (scene, replica) = zone_deleted_after_an_uncertain_creation().await;
    replica.crash().await;
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.looks(3).await;
    assert!(scene.zones.get_opt(NAME).await.unwrap().is_some(), "the server may still create the zone");
    assert_eq!(scene.server.carry_out_late(), 1);
    scene.end_grace();
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None, "the zone is deleted with its object");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certain_zone_has_no_mark_after_the_grace_period() {
    let scene = Scene::new().await;
    let once = AtomicBool::new(true);
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Create(_) if once.swap(false, Ordering::SeqCst) => Fault::Late(timeout()),
        _ => Fault::None,
    })));
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.zone(json!({})).await;
    scene.until_zone("Succeeded").await;
    assert_eq!(scene.zone_status().await.in_flight, ["@ ZONE"], "the server may still create the zone");
    scene.end_grace();
    eventually("the ledger is clear", PATIENCE, || async {
        let status = scene.zone_status().await;
        if status.in_flight.is_empty() { Ok(()) } else { Err(status) }
    })
    .await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_record_costs_no_zone_status_when_it_is_tried_again() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    scene.server.set_gate(Some(Arc::new(|call| match call {
        Call::Patch(..) => {
            Fault::Before(ServerError::Refused { words: format!("RRset www.{NAME}. IN A: not this one") })
        }
        _ => Fault::None,
    })));
    let retry_refused = Duration::from_mins(10);
    let replica = scene.start(Pace { retry_refused, ..fast() });
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Failed").await;
    scene.looks(2).await;
    let sandbox = scene.cluster.sandbox().unwrap();
    sandbox.take_log();
    let patches = || scene.server.log().iter().filter(|call| matches!(call, Call::Patch(..))).count();
    for _ in 0..3 {
        let before = patches();
        scene.clock.skew_by((retry_refused + Duration::from_secs(1)).try_into().unwrap());
        eventually("www is tried again", PATIENCE, || async {
            if patches() > before { Ok(()) } else { Err(patches()) }
        })
        .await;
        scene.looks(2).await;
    }
    let log = sandbox.take_log();
    let writes: Vec<_> = log.iter().filter(|entry| entry.is_write() && entry.info.resource == "zones").collect();
    assert!(writes.is_empty(), "{writes:?}");
    // Once the object is deleted, nothing is listed any more.
    scene.delete("www").await;
    scene.until_gone("www").await;
    eventually("the ledger is clear", PATIENCE, || async {
        let status = scene.zone_status().await;
        if status.in_flight.is_empty() { Ok(()) } else { Err(status) }
    })
    .await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_whole_zone_takes_few_requests() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(Pace { resync: Duration::from_millis(600), ..Pace::default() });
    scene.until_zone("Succeeded").await;
    let refuses = Arc::new(AtomicBool::new(true));
    let gate = refuses.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) if gate.load(Ordering::SeqCst) => {
            Fault::Before(ServerError::Refused { words: format!("Failed to rectify '{NAME}.' Exception") })
        }
        _ => Fault::None,
    })));
    for n in 0..300 {
        scene.create(&format!("r{n}"), &format!("r{n}"), "A", "192.0.2.1").await;
    }
    scene.until_set("r299", "Failed").await;
    scene.until_zone("Failed").await;
    scene.looks(3).await;
    let patches = || scene.server.log().iter().filter(|call| matches!(call, Call::Patch(..))).count();
    assert!(patches() < 100, "{} PATCHes for 300 record sets in a zone that takes none", patches());
    let ready = |status: ZoneStatus| status.conditions.into_iter().find(|c| c.type_ == "Ready").unwrap();
    let ready = ready(scene.zone_status().await);
    assert!(ready.reason == "ProviderRejected" && ready.message.contains("rectify"), "{ready:?}");
    // A change of the zone object is a reason to try again.
    refuses.store(false, Ordering::SeqCst);
    scene.touch_zone("again").await;
    scene.until_served(300).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_was_lost_comes_back_with_a_higher_serial() {
    for mode in ["INCREASE", "DEFAULT"] {
        let scene = Scene::new().await;
        let replica = scene.start(fast());
        scene.zone(json!({ "soa_edit_api": mode })).await;
        for n in 0..8 {
            scene.create(&format!("r{n}"), &format!("r{n}"), "A", "192.0.2.1").await;
            scene.until_set(&format!("r{n}"), "Succeeded").await;
        }
        let before = scene.serial();
        eventually("the status has the serial", PATIENCE, || async {
            let status = scene.zone_status().await;
            if status.serial == Some(i64::from(before)) { Ok(()) } else { Err(status) }
        })
        .await;
        scene.server.wipe();
        scene.until_served(8).await;
        assert!(scene.serial() > before, "{mode}: {} is not above {before}", scene.serial());
        eventually("the status has the new serial", PATIENCE, || async {
            let status = scene.zone_status().await;
            if status.serial == Some(i64::from(scene.serial())) { Ok(()) } else { Err(status) }
        })
        .await;
        replica.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_while_a_lost_zone_is_created_does_not_take_the_serial_back() {
    let scene = Scene::new().await;
    let replica = scene.start(fast());
    scene.zone(json!({ "soa_edit_api": "INCREASE" })).await;
    for n in 0..8 {
        scene.create(&format!("r{n}"), &format!("r{n}"), "A", "192.0.2.1").await;
        scene.until_set(&format!("r{n}"), "Succeeded").await;
    }
    let before = scene.serial();
    eventually("the status has the serial", PATIENCE, || async {
        let status = scene.zone_status().await;
        if status.serial == Some(i64::from(before)) { Ok(()) } else { Err(status) }
    })
    .await;
    // The zone is created, and nothing after that.
    scene.server.set_gate(Some(Arc::new(|call| match call {
        Call::Patch(..) => Fault::Hang,
        _ => Fault::None,
    })));
    scene.server.wipe();
    eventually("the zone is created", PATIENCE, || async { scene.served().map(|_| ()).ok_or(()) }).await;
    replica.crash().await;
    scene.server.set_gate(None);
    let replica = scene.start(fast());
    scene.until_served(8).await;
    assert!(scene.serial() > before, "{} is not above {before}", scene.serial());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_the_server_refuses_are_not_sent_on_every_pass() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(Pace { resync: Duration::from_millis(300), ..Pace::default() });
    scene.until_zone("Succeeded").await;
    scene.server.set_gate(Some(Arc::new(|call| match call {
        Call::Configure(_) => Fault::Before(ServerError::Refused { words: "no such account".into() }),
        _ => Fault::None,
    })));
    scene.touch_zone("x").await;
    scene.until_zone("Failed").await;
    scene.looks(5).await;
    let sent = || scene.server.log().iter().filter(|call| matches!(call, Call::Configure(_))).count();
    assert_eq!(sent(), 1);
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    assert_eq!(sent(), 1);
    scene.until_zone("Failed").await;
    scene.touch_zone("y").await;
    eventually("other settings are tried at once", PATIENCE, || async {
        if sent() == 2 { Ok(()) } else { Err(sent()) }
    })
    .await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_that_does_not_end_is_retried_ever_more_slowly() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(without_resync());
    scene.until_zone("Succeeded").await;
    let conflicts = Arc::new(AtomicUsize::new(0));
    let count = conflicts.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) => {
            count.fetch_add(1, Ordering::SeqCst);
            Fault::Before(ServerError::Conflict { words: "Conflict".into() })
        }
        _ => Fault::None,
    })));
    let began = tokio::time::Instant::now();
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Failed").await;
    eventually("it was tried four times", PATIENCE, || async {
        let tried = conflicts.load(Ordering::SeqCst);
        if tried >= 4 { Ok(()) } else { Err(tried) }
    })
    .await;
    // Exponential backoff with jitter: three pauses of a few hundred milliseconds at least.
    assert!(began.elapsed() > Duration::from_millis(300), "{:?}", began.elapsed());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comment_on_a_server_that_keeps_none_does_not_block_its_record() {
    let scene = Scene::new().await;
    scene.server.refuse_comments();
    scene.zone(json!({})).await;
    let replica = scene.start(fast());
    let mut spec = rrset(NAME, "Zone", "www", "A", &["192.0.2.1"]);
    spec["comment"] = json!("not here");
    let set = RRset::new("www", serde_json::from_value(spec).unwrap());
    scene.sets.create(&PostParams::default(), &set).await.unwrap();
    scene.create("plain", "plain", "A", "192.0.2.2").await;
    scene.until_set("www", "Succeeded").await;
    scene.until_set("plain", "Succeeded").await;
    let notice = |status: RRsetStatus| status.conditions.into_iter().find(|condition| condition.type_ == "Notice");
    let notice_of_www = notice(scene.status("www").await).unwrap();
    assert_eq!((notice_of_www.status.as_str(), notice_of_www.reason.as_str()), ("True", "CommentNotKept"));
    assert_eq!(notice(scene.status("plain").await), None);
    scene.until_served(2).await;
    replica.stop().await;
    // A new process does not try the comment again.
    let writes = || scene.server.log().iter().filter(|call| call.is_write()).count();
    let before = writes();
    let replica = scene.start(Pace { full_read: Duration::from_millis(1), ..fast() });
    scene.looks(4).await;
    assert_eq!(writes(), before);
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_repeats_its_zone_is_served_with_a_warning() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(fast());
    scene.create("api", &format!("api.{NAME}"), "A", "192.0.2.1").await;
    scene.until_set("api", "Succeeded").await;
    assert_eq!(scene.served().unwrap(), [format!("api.{NAME}.{NAME}. A 192.0.2.1")]);
    let status = scene.status("api").await;
    let notice = status.conditions.iter().find(|condition| condition.type_ == "Notice").unwrap();
    assert_eq!((notice.status.as_str(), notice.reason.as_str()), ("True", "NameRepeatsZone"));
    assert!(notice.message.contains("create it with the name api"), "{}", notice.message);
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(scene.cluster.client());
    eventually("there is a warning", PATIENCE, || async {
        let items = events.list(&ListParams::default()).await.unwrap().items;
        let warned = |event: &k8s_openapi::api::events::v1::Event| {
            event.type_.as_deref() == Some("Warning") && event.reason.as_deref() == Some("NameRepeatsZone")
        };
        if items.iter().any(warned) { Ok(()) } else { Err(items.len()) }
    })
    .await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_set_deleted_in_a_zone_that_became_secondary_takes_its_record_along() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(fast());
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    let patch = json!({ "spec": { "kind": "Slave", "masters": ["192.0.2.53"], "nameservers": null } });
    scene.zones.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    scene.until_set("www", "Failed").await;
    assert_eq!(scene.served().unwrap().len(), 1);
    scene.delete("www").await;
    scene.until_gone("www").await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_operators_of_one_namespace_each_do_not_fight_over_a_cluster_record_set() {
    let cluster = sandbox_cluster().await;
    cluster.install(&signpost_apis::powerdns::crds()).await;
    let zones: Api<ClusterZone> = Api::all(cluster.client());
    let sets: Api<ClusterRRset> = Api::all(cluster.client());
    let zone = ClusterZone::new(NAME, serde_json::from_value(zone_spec()).unwrap());
    zones.create(&PostParams::default(), &zone).await.unwrap();
    let server = MemoryServer::new();
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let namespace = cluster.namespace("team").await;
        let options = OperatorOptions { namespace: Some(namespace), ..OperatorOptions::default() };
        let pace = Pace { partial_view: true, ..fast() };
        replicas.push(start_in(cluster.client(), options, Arc::new(server.clone()), pace));
    }
    let spec = serde_json::from_value(rrset(NAME, "ClusterZone", "www", "A", &["192.0.2.1"])).unwrap();
    sets.create(&PostParams::default(), &ClusterRRset::new("www", spec)).await.unwrap();
    eventually("www is served and reported", PATIENCE, || async {
        let status = sets.get("www").await.unwrap().status.unwrap_or_default();
        if status.sync_status.as_deref() == Some("Succeeded") && status.applied.is_some() {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    let looks = || server.log().iter().filter(|call| matches!(call, Call::Zone(_))).count();
    let wait_for = |more: usize| {
        let before = looks();
        eventually("both look at the zone", PATIENCE, move || async move {
            if looks() >= before + more { Ok(()) } else { Err(looks()) }
        })
    };
    wait_for(4).await;
    cluster.sandbox().unwrap().take_log();
    wait_for(8).await;
    let log = cluster.sandbox().unwrap().take_log();
    let writes: Vec<_> =
        log.iter().filter(|entry| entry.is_write() && entry.info.resource == "clusterrrsets").collect();
    assert!(writes.is_empty(), "{writes:?}");
    for replica in replicas {
        replica.stop().await;
    }
}
