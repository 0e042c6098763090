//! Objects that were edited before their status reported what they wrote, and reads that do not find the zone.

use super::*;

/// More of an RRset that has its finalizer and no status, and that is being deleted in this generation.
fn leaves_without_status(generation: i64) -> serde_json::Value {
    let metadata = json!({ "finalizers": ["dns.cav.enablers.ob/external-resources"], "generation": generation });
    deleting(json!({ "metadata": metadata }))
}

/// `www A` was written for an object that asks for a text now. It was edited once and is being deleted.
fn retyped() -> Scene {
    Scene::new()
        .object("www", 1, "www", "TXT", "\"x\"", leaves_without_status(3))
        .on_server("www", "A", "192.0.2.1")
        .in_ledger("www", "A", "192.0.2.1")
}

/// A plan for this view of the server, with a memory that was changed.
fn plan_of(scene: &Scene, server: ServerView, change: impl FnOnce(&mut ZoneMemory)) -> Plan {
    let mut memory = scene.plan().memory;
    change(&mut memory);
    let key = ZoneKey::Zone(zone());
    let snapshot = scene.world.snapshot(&key, &Touched::All, &Ledger::default());
    plan(Observed { key, snapshot, server, memory, pace: pace() }, now())
}

/// Which objects are released while the server cannot be asked.
fn released_in_an_outage(scene: &Scene) -> Vec<String> {
    let server = ServerView::Unreachable(ServerError::Timeout { after: Duration::from_secs(1) });
    let plan = plan_of(scene, server, |_| {});
    plan.decided.iter().filter(|status| status.release).map(|status| status.judged.uid.to_string()).collect()
}

#[test]
fn a_retyped_object_waits_for_the_record_that_only_the_ledger_lists() {
    assert_eq!(retyped().words(), "-www.example.com. A www leaves\n");
    let scene = |generation| {
        Scene::new()
            .object("www", 1, "www", "TXT", "\"x\"", leaves_without_status(generation))
            .on_server("www", "A", "192.0.2.1")
            .in_ledger("www", "A", "192.0.2.1")
            .words()
    };
    assert_eq!(scene(2), "-www.example.com. A\nwww: ok, goes\n", "it never asked for an address");
    // An object that cannot be read any more has written something too.
    let nonsense = Scene::new()
        .object("www", 1, "www", "A", "nonsense", leaves_without_status(3))
        .on_server("www", "A", "192.0.2.1")
        .in_ledger("www", "A", "192.0.2.1");
    assert_eq!(nonsense.words(), "-www.example.com. A www leaves\n");
}

#[test]
fn the_guard_does_not_pause_records_whose_retyped_objects_are_deleted() {
    let mut scene = Scene::new();
    for number in 0..12 {
        let name = format!("r{number}");
        scene = scene
            .object(&name, 1, &name, "TXT", "\"x\"", leaves_without_status(3))
            .on_server(&name, "A", "192.0.2.1")
            .in_ledger(&name, "A", "192.0.2.1");
    }
    let plan = scene.plan();
    assert_eq!((plan.atoms.len(), plan.decided.len(), plan.guarded), (12, 0, None));
}

#[test]
fn a_retyped_object_waits_for_the_set_that_takes_the_place_of_its_record() {
    let alias = retyped().object("next", 2, "www", "CNAME", "web.example.org.", json!({}));
    assert_eq!(alias.words(), "-www.example.com. A +www.example.com. CNAME (ledger) for next www leaves\n");
}

#[test]
fn a_retyped_object_does_not_wait_for_a_record_of_another_object() {
    let asked = || retyped().object("next", 2, "www", "A", "192.0.2.9", json!({}));
    assert_eq!(asked().words(), "+www.example.com. A (ledger) for next\nwww: ok, goes\n");
    assert_eq!(released_in_an_outage(&asked()), ["www"]);
    // Its status reports the record, but it has no finalizer yet, so the line stays.
    let mut reports = wrote("www", "A", "192.0.2.1");
    reports["metadata"]["finalizers"] = json!(null);
    let reported = retyped().object("next", 2, "www", "CNAME", "web.example.org.", reports);
    assert_eq!(released_in_an_outage(&reported), ["www"]);
    // The old type of an edited object that cannot be written stays, and that object reports it.
    let edited = json!({ "metadata": { "generation": 2 } });
    let conflict = retyped().on_server("www", "MX", "10 theirs.example.org.");
    let conflict = conflict.object("next", 2, "www", "CNAME", "web.example.org.", edited);
    assert_eq!(conflict.words(), "next: CnameConflict, keeps its record\nwww: ok, goes\n");
}

#[test]
fn a_retyped_object_does_not_wait_for_a_record_of_a_dnsendpoint() {
    let key = RecordKey::new(zone().resolve("www").unwrap(), RecordType::A);
    let of_endpoint = |memory: &mut ZoneMemory| memory.ledger.list_endpoint(key, digest("A", "192.0.2.1"));
    let plan = plan_of(&retyped(), ServerView::Present, of_endpoint);
    assert_eq!(plan.atoms.len(), 1);
    assert!(plan.atoms[0].waiting.is_empty(), "the guard checks the deletion: {:?}", plan.atoms);
    assert!(plan.decided.len() == 1 && plan.decided[0].release, "{:?}", plan.decided);
}

#[test]
fn a_retyped_object_is_not_released_in_an_outage() {
    let none: [&str; 0] = [];
    assert_eq!(released_in_an_outage(&retyped()), none);
    let unedited = Scene::new().object("www", 1, "www", "TXT", "\"x\"", leaves_without_status(2)).in_ledger(
        "www",
        "A",
        "192.0.2.1",
    );
    assert_eq!(released_in_an_outage(&unedited), ["www"], "it never asked for an address");
}

#[test]
fn a_retyped_object_at_the_apex_does_not_wait_for_what_the_zone_has() {
    let apex = || {
        Scene::new()
            .object("top", 1, "@", "TXT", "\"x\"", leaves_without_status(3))
            .in_ledger("@", "SOA", SERVED_SOA)
            .in_ledger("@", "NS", "ns1.example.org.")
    };
    assert_eq!(released_in_an_outage(&apex()), ["top"]);
    let none: [&str; 0] = [];
    assert_eq!(released_in_an_outage(&apex().in_ledger("@", "A", "192.0.2.1")), none);
}

#[test]
fn a_deleted_object_waits_until_a_zone_that_was_not_found_is_created() {
    let mut kept = deleting(wrote("kept", "A", "192.0.2.1"));
    kept["spec"]["deletionPolicy"] = json!("Retain");
    let mut scene = Scene::new()
        .object("www", 1, "www", "A", "192.0.2.1", deleting(wrote("www", "A", "192.0.2.1")))
        .object("listed", 1, "listed", "A", "192.0.2.1", leaves_without_status(2))
        .object("kept", 1, "kept", "A", "192.0.2.1", kept)
        .object("never", 1, "never", "A", "192.0.2.1", deleting(json!({})))
        .in_ledger("listed", "A", "192.0.2.1");
    scene.present = false;
    let plan = scene.plan();
    assert!(matches!(plan.step, ZoneStep::Create(_)), "{:?}", plan.step);
    let waiting: BTreeMap<&str, bool> =
        plan.with_zone.iter().map(|(_, status)| (&*status.judged.uid, status.release)).collect();
    assert_eq!(waiting, BTreeMap::from([("listed", true), ("www", true)]));
    let decided: BTreeMap<&str, bool> =
        plan.decided.iter().map(|status| (&*status.judged.uid, status.release)).collect();
    assert_eq!(decided, BTreeMap::from([("kept", true), ("never", true)]));
}

#[test]
fn a_zone_that_was_not_found_is_deleted_with_its_object_all_the_same() {
    let going = |more: serde_json::Value| {
        let mut zone = json!({ "metadata": { "deletionTimestamp": "2026-03-01T00:00:00Z", "resourceVersion": "2" } });
        merge(&mut zone, more);
        let scene = Scene::new().zone(zone).object("www", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1"));
        Scene { present: false, ..scene }
    };
    assert_eq!(going(json!({})).words(), "delete zone\nwww: ZoneMissing\n");
    for never_had_it in [json!({ "status": { "id": null } }), json!({ "metadata": { "finalizers": null } })] {
        assert!(going(never_had_it).words().starts_with("release zone\n"));
    }
    assert!(going(json!({ "spec": { "deletionPolicy": "Retain" } })).words().starts_with("release zone\n"));
    let again = plan_of(&going(json!({})), ServerView::Missing, |memory| memory.deleted = true);
    assert_eq!(again.step, ZoneStep::Release, "it was deleted before");
}
