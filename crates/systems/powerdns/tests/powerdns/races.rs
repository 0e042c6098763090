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
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use signpost_apis::powerdns::{ClusterRRset, ClusterZone, RRset};
use signpost_engine::OperatorOptions;
use signpost_provider_powerdns::{Call, Fault, MemoryServer, ServerError};
use signpost_system_powerdns::Pace;
use signpost_testkit::{eventually, sandbox_cluster};

use crate::{
    rig::{PATIENCE, Replica, fast, rrset, start_in, zone_spec},
    scene::{NAME, Scene, slow_statuses, timeout, without_resync},
};

/// `www` is served, its status came late, and meanwhile a full pass met a server that hangs and then fails.
async fn outage_after_write() -> (Scene, Arc<AtomicBool>, Replica) {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let slow = Arc::new(AtomicBool::new(true));
    let replica = scene.start_faulty(without_resync(), slow_statuses(&slow, Duration::from_secs(1)));
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_written("www").await;
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

/// `www A` is served and its object has its finalizer, but the process died before it could write the status. Then the type was changed, and
/// the object was deleted.
async fn retyped_before_its_status() -> Scene {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start_faulty(without_resync(), |resource, subresource, _| {
        if (resource, subresource) == ("rrsets", "status") {
            return signpost_sandbox::Fault::status(503, "ServiceUnavailable", "not now");
        }
        signpost_sandbox::Fault::None
    });
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_written("www").await;
    replica.crash().await;
    assert!(scene.status("www").await.applied.is_none());
    let patch = json!({ "spec": { "type": "TXT", "records": ["\"x\""] } });
    scene.sets.patch("www", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    scene.delete("www").await;
    scene
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_retyped_before_its_status_is_not_released_while_served() {
    // The server cannot be asked, or it can and takes no change.
    let outages: [fn(&Call) -> bool; 2] =
        [|call: &Call| matches!(call, Call::Zone(_) | Call::Read(_)), |call: &Call| matches!(call, Call::Patch(..))];
    for outage in outages {
        let scene = retyped_before_its_status().await;
        let down = scene.fault_while(outage, Fault::Before(timeout()));
        let replica = scene.start(fast());
        scene.until_set("www", "Failed").await;
        assert_eq!(scene.served().unwrap(), [format!("www.{NAME}. A 192.0.2.1")]);
        down.store(false, Ordering::SeqCst);
        scene.until_gone("www").await;
        assert_eq!(scene.served().unwrap(), Vec::<String>::new(), "its record is deleted first");
        replica.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_sets_deleted_in_an_outage_leave_nothing_behind() {
    const COUNT: usize = 60;
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    scene.create_many(COUNT).await;
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
    scene.until_all_gone().await;
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
    scene.until_written("www").await;
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
    let (scene, replica) = Scene::served_by(fast()).await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    let stuck = scene.fault_while(
        |call| matches!(call, Call::Delete(_)),
        Fault::Before(ServerError::Failed { status: 500, words: "database is locked".into() }),
    );
    scene.delete_zone().await;
    // Zones and RRsets have a watch each. Before it knows of the deletion of the zone, the operator deletes the record alone.
    eventually("the deletion of the zone is tried", PATIENCE, || async {
        match scene.calls(|call| matches!(call, Call::Delete(_))) {
            0 => Err("no call"),
            _ => Ok(()),
        }
    })
    .await;
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
    scene.create_many(12).await;
    scene.until_served(12).await;
    replica.crash().await;
    scene.delete_many(12).await;
    assert!(scene.zone_status().await.in_flight.len() >= 12);
    scene.delete_zone().await;
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
    scene.create_many(12).await;
    scene.delete_zone().await;
    scene.delete_many(12).await;
    scene.until_zone_gone().await;
    scene.until_all_gone().await;
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
    scene.delete_zone().await;
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
async fn a_record_that_passed_to_another_object_is_deleted_with_it() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start_faulty(fast(), |resource, subresource, name| {
        if (resource, subresource, name) == ("rrsets", "", "heir") {
            // It gets no finalizer, so Kubernetes deletes it without the operator.
            return signpost_sandbox::Fault::Drop;
        }
        signpost_sandbox::Fault::None
    });
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    scene.until_ledger_clear().await;
    scene.create("heir", "www", "A", "192.0.2.1").await;
    scene.until_set("heir", "Failed").await;
    scene.delete("www").await;
    scene.until_gone("www").await;
    assert_eq!(scene.served().unwrap().len(), 1, "the other object asks for the same");
    scene.delete("heir").await;
    scene.until_gone("heir").await;
    scene.until_served(0).await;
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
    scene.create_many(20).await;
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
    scene.delete_zone().await;
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None, "the zone is gone with its object");
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
async fn a_record_set_deleted_in_a_zone_that_became_secondary_takes_its_record_along() {
    let (scene, replica) = Scene::served_by(fast()).await;
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
