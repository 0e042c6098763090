//! Requests that end without an answer and that the server carries out all the same, later.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use signpost_dns::{Fqdn, ZoneName};
use signpost_provider_powerdns::{Call, Fault, NewZone, ZoneServer, ZoneSettings};
use signpost_system_powerdns::Pace;
use signpost_testkit::eventually;

use crate::{
    rig::{PATIENCE, Replica, fast},
    scene::{GRACE, NAME, Scene, timeout},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_that_takes_effect_after_its_timeout_is_cleaned_up() {
    let (scene, replica) = Scene::served_by(Pace { grace: GRACE, ..fast() }).await;
    let hangs = scene.fault_while(|call| matches!(call, Call::Patch(..)), Fault::Late(timeout()));
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_late().await;
    scene.delete("www").await;
    scene.until_gone("www").await;
    hangs.store(false, Ordering::SeqCst);
    scene.looks(2).await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    assert_eq!(scene.zone_status().await.in_flight.len(), 1, "the server may still carry it out");
    scene.late_write_is_deleted().await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_that_takes_effect_after_its_object_is_gone_is_cleaned_up() {
    let (scene, replica) = Scene::served_by(Pace { grace: GRACE, ..fast() }).await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    let hangs = scene.fault_while(|call| matches!(call, Call::Patch(..)), Fault::Late(timeout()));
    let patch = json!({ "spec": { "records": ["192.0.2.2"] } });
    scene.sets.patch("www", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    scene.until_late().await;
    hangs.store(false, Ordering::SeqCst);
    scene.delete("www").await;
    scene.until_gone("www").await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    scene.late_write_is_deleted().await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_patch_that_does_not_move_the_serial_is_cleaned_up() {
    let scene = Scene::new().await;
    // With EPOCH, several changes in one second have one serial.
    scene.server.set_clock(Arc::new(|| 1_700_000_000));
    scene.zone(json!({ "soa_edit_api": "EPOCH" })).await;
    let replica = scene.start(Pace { grace: GRACE, full_read: Duration::from_hours(2), ..fast() });
    scene.until_zone("Succeeded").await;
    let hangs = scene.fault_while(|call| matches!(call, Call::Patch(..)), Fault::Late(timeout()));
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_late().await;
    scene.delete("www").await;
    scene.until_gone("www").await;
    hangs.store(false, Ordering::SeqCst);
    scene.looks(2).await;
    let serial = scene.serial();
    assert!(scene.server.carry_out_late() > 0);
    assert_eq!((scene.serial(), scene.served().unwrap().len()), (serial, 1));
    scene.end_grace();
    scene.until_served(0).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncertain_lines_leave_the_ledger_after_the_grace_period() {
    let (scene, replica) = Scene::served_by(Pace { grace: Duration::from_secs(1), ..fast() }).await;
    let once = scene.fault_once(|call| matches!(call, Call::Patch(..)), Fault::After(timeout()));
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    assert!(!once.load(Ordering::SeqCst));
    scene.until_ledger_clear().await;
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
    scene.until_late().await;
    scene.delete_zone().await;
    scene.looks(2).await;
    assert!(scene.zones.get_opt(NAME).await.unwrap().is_some(), "the server may still create the zone");
    assert_eq!(scene.server.carry_out_late(), 1);
    scene.end_grace();
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None, "the zone is deleted with its object");
    replica.stop().await;
}

/// A zone object that refuses to adopt, whose creations end without an answer and without effect, and a zone that a user creates meanwhile.
async fn foreign_zone_after_an_uncertain_creation() -> (Scene, Replica) {
    let scene = Scene::new().await;
    scene.fault_while(|call| matches!(call, Call::Create(_)), Fault::Before(timeout()));
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.zone(json!({ "adoptionPolicy": "Refuse" })).await;
    eventually("a creation is tried", PATIENCE, || async {
        let listed = scene.zone_status().await.in_flight;
        if listed.iter().any(|line| line.starts_with("@ ZONE ")) { Ok(()) } else { Err(listed) }
    })
    .await;
    scene.until_zone("Failed").await;
    replica.crash().await;
    scene.server.set_gate(None);
    create_by_hand(&scene).await;
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    (scene, replica)
}

/// A user creates the zone at the server.
async fn create_by_hand(scene: &Scene) {
    let name = ZoneName::parse(NAME).unwrap();
    let nameservers = vec![Fqdn::parse("ns9.elsewhere.example").unwrap()];
    let new = NewZone { name, kind: "Native".into(), nameservers, settings: ZoneSettings::default() };
    scene.server.create(&new).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_made_by_hand_after_an_uncertain_creation_is_foreign() {
    let (scene, replica) = foreign_zone_after_an_uncertain_creation().await;
    let before = scene.serial();
    eventually("the zone is reported as foreign", PATIENCE, || async {
        let status = scene.zone_status().await;
        if status.conditions.iter().any(|condition| condition.reason == "ForeignRecord") { Ok(()) } else { Err(status) }
    })
    .await;
    assert_eq!(scene.serial(), before, "nothing was written");
    scene.delete_zone().await;
    scene.end_grace();
    scene.until_zone_gone().await;
    assert!(scene.served().is_some(), "the foreign zone is not deleted with the object");
    replica.stop().await;
}

/// The first creation of the zone timed out, the second was answered, and then the zone object was deleted.
async fn zone_deleted_after_an_uncertain_creation(spec: Value) -> (Scene, Replica) {
    let scene = Scene::new().await;
    scene.fault_once(|call| matches!(call, Call::Create(_)), Fault::Late(timeout()));
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.zone(spec).await;
    scene.until_zone("Succeeded").await;
    scene.delete_zone().await;
    eventually("the zone is deleted", PATIENCE, || async { scene.served().map_or(Ok(()), Err) }).await;
    scene.looks(2).await;
    assert!(scene.zones.get_opt(NAME).await.unwrap().is_some(), "the server may still create the zone");
    (scene, replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_lands_after_the_zone_was_deleted_leaves_no_zone() {
    let (scene, replica) = zone_deleted_after_an_uncertain_creation(json!({})).await;
    assert_eq!(scene.server.carry_out_late(), 1);
    scene.end_grace();
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None, "the zone is deleted with its object");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_asked_once_more_when_the_grace_period_ends_during_a_look() {
    let (scene, replica) = zone_deleted_after_an_uncertain_creation(json!({})).await;
    let (looks, clock, server) = (AtomicUsize::new(0), scene.clock.clone(), scene.server.clone());
    scene.server.set_gate(Some(Arc::new(move |call| {
        if matches!(call, Call::Zone(_) | Call::Read(_)) {
            match looks.fetch_add(1, Ordering::SeqCst) {
                // The zone does not exist yet, and the grace period is over before that is judged.
                0 => clock.skew_by((GRACE + Duration::from_secs(1)).try_into().unwrap()),
                1 => assert_eq!(server.carry_out_late(), 1),
                _ => {}
            }
        }
        Fault::None
    })));
    scene.until_zone_gone().await;
    assert_eq!((scene.server.late(), scene.served()), (0, None), "the zone is deleted with its object");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_does_not_forget_a_creation_that_ended_without_an_answer() {
    let (scene, replica) = zone_deleted_after_an_uncertain_creation(json!({})).await;
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
async fn a_zone_made_by_hand_after_ours_was_deleted_is_foreign() {
    let refuse = json!({ "adoptionPolicy": "Refuse" });
    let (scene, mut replica) = zone_deleted_after_an_uncertain_creation(refuse).await;
    eventually("the object does not report the zone any more", PATIENCE, || async {
        let status = scene.zone_status().await;
        if status.id.is_none() { Ok(()) } else { Err(status) }
    })
    .await;
    create_by_hand(&scene).await;
    scene.looks(2).await;
    assert!(scene.served().is_some(), "the process that deleted ours does not delete it");
    replica.crash().await;
    replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.looks(2).await;
    scene.end_grace();
    scene.until_zone_gone().await;
    assert!(scene.served().is_some(), "the next process does not delete it either");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certain_zone_has_no_mark_after_the_grace_period() {
    let scene = Scene::new().await;
    scene.fault_once(|call| matches!(call, Call::Create(_)), Fault::Late(timeout()));
    let replica = scene.start(Pace { grace: GRACE, ..fast() });
    scene.zone(json!({})).await;
    scene.until_zone("Succeeded").await;
    let listed = scene.zone_status().await.in_flight;
    assert!(listed.len() == 1 && listed[0].starts_with("@ ZONE "), "the server may still create the zone: {listed:?}");
    scene.end_grace();
    scene.until_ledger_clear().await;
    replica.stop().await;
}
