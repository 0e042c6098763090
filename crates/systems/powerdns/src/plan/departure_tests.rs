//! Zone objects that go, are handed over or may not be touched, and what becomes of record sets meanwhile.

use super::*;

/// More of an RRset that wrote at the apex.
fn wrote_at_apex(rtype: &str, record: &str) -> serde_json::Value {
    let mut more = wrote("x", rtype, record);
    more["status"]["applied"]["name"] = json!("example.com.");
    more
}

fn going(spec: &serde_json::Value) -> serde_json::Value {
    json!({ "metadata": { "deletionTimestamp": "2026-03-01T00:00:00Z", "resourceVersion": "2" }, "spec": spec })
}

const SOA: &str = "ns9.example.org. host.example.org. 1 2 3 4 5";

#[test]
fn a_retained_zone_that_goes_leaves_its_name_servers_and_start_of_authority_as_they_are() {
    let soa = json!({ "primary": "ns1.example.org", "mailbox": "host.example.org" });
    let scene = Scene::new()
        .zone(going(&json!({ "deletionPolicy": "Retain", "soa": soa })))
        .object("ns", 1, "@", "NS", "ns9.example.org.", json!({}))
        .object("soa", 1, "@", "SOA", SOA, json!({}));
    assert_eq!(scene.words(), "release zone\nns: ZoneMissing\nsoa: ZoneMissing\n");
    let scene = Scene::new().zone(going(&json!({ "deletionPolicy": "Retain" }))).object(
        "ns",
        1,
        "@",
        "NS",
        "ns9.example.org.",
        deleting(wrote_at_apex("NS", "ns9.example.org.")),
    );
    assert_eq!(scene.words(), "release zone\nns: ok, goes\n", "what the zone object holds is not the record set's");
}

#[test]
fn nothing_new_is_written_to_a_retained_zone_that_goes_and_what_was_written_is_remembered() {
    let scene = Scene::new()
        .zone(going(&json!({ "deletionPolicy": "Retain" })))
        .object("new", 1, "new", "A", "192.0.2.1", json!({}))
        .object("changed", 1, "changed", "A", "192.0.2.2", wrote("changed", "A", "192.0.2.1"))
        .object("switched", 1, "switched", "TXT", "\"now\"", wrote("switched", "A", "192.0.2.1"))
        .object("unsaid", 1, "unsaid", "A", "192.0.2.1", json!({}))
        .object("leaving", 1, "leaving", "A", "192.0.2.1", deleting(wrote("leaving", "A", "192.0.2.1")))
        .on_server("changed", "A", "192.0.2.1")
        .on_server("switched", "A", "192.0.2.1")
        .on_server("unsaid", "A", "192.0.2.1")
        .on_server("leaving", "A", "192.0.2.1")
        .in_ledger("unsaid", "A", "192.0.2.1");
    assert_eq!(
        scene.words(),
        "-leaving.example.com. A leaving leaves\n\
         changed: ZoneMissing, keeps its record\n\
         new: ZoneMissing\n\
         switched: ZoneMissing, keeps its record\n\
         unsaid: ZoneMissing, keeps its record\n"
    );
}

#[test]
fn name_servers_that_the_zone_object_took_over_are_no_longer_the_record_sets() {
    let wrote = wrote_at_apex("NS", "ns1.example.org.");
    let scene = Scene::new().object("ns", 1, "@", "NS", "ns1.example.org.", wrote);
    assert_eq!(scene.words(), "ns: ClaimedByAnother\n");
}

/// The zone object is deleted, and one in another namespace is the next owner, with a record set of its own at `www`.
fn with_heir(policy: &str) -> Scene {
    let heir = json!({
        "metadata": { "namespace": "other", "uid": "heir", "creationTimestamp": "2026-01-02T00:00:00Z", "finalizers": null },
        "spec": { "adoptionPolicy": policy },
        "status": { "id": null },
    });
    let theirs = json!({ "metadata": { "namespace": "other" } });
    Scene::new()
        .zone(going(&json!({})))
        .zone(heir)
        .object("www", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1"))
        .object("old", 1, "old", "A", "192.0.2.1", wrote("old", "A", "192.0.2.1"))
        .object("soa", 1, "@", "SOA", SOA, wrote_at_apex("SOA", SOA))
        .object("ns", 1, "@", "NS", "ns1.example.org.", wrote_at_apex("NS", "ns1.example.org."))
        .object("theirs", 2, "www", "A", "192.0.2.2", theirs)
        .on_server("@", "SOA", SOA)
        .on_server("www", "A", "192.0.2.1")
        .on_server("old", "A", "192.0.2.1")
}

#[test]
fn an_heir_finds_what_its_own_record_sets_want_in_place() {
    assert_eq!(
        with_heir("Adopt").words(),
        "release zone\n\
         -old.example.com. A old says ZoneMissing\n\
         ns: ZoneMissing\nsoa: ZoneMissing\nwww: ZoneMissing, keeps its record\n"
    );
    let scene = with_heir("Adopt").in_ledger("www", "A", "192.0.2.1").in_ledger("@", "SOA", SOA);
    assert_eq!(scene.plan().atoms.len(), 1, "what only the ledger lists is treated alike");
}

#[test]
fn an_unreported_object_waits_for_its_record_when_its_zone_passes_to_an_heir() {
    let scene = |rtype: &str, record: &str, generation: i64| {
        let metadata = json!({ "finalizers": ["dns.cav.enablers.ob/external-resources"], "generation": generation });
        with_heir("Adopt")
            .object("late", 1, "late", rtype, record, deleting(json!({ "metadata": metadata })))
            .on_server("late", "A", "192.0.2.1")
            .in_ledger("late", "A", "192.0.2.1")
            .words()
    };
    let waits = "-late.example.com. A late says ZoneMissing\n";
    assert!(scene("A", "192.0.2.1", 2).contains(waits), "{}", scene("A", "192.0.2.1", 2));
    assert!(scene("TXT", "\"x\"", 3).contains(waits), "{}", scene("TXT", "\"x\"", 3));
    let unedited = scene("TXT", "\"x\"", 2);
    assert!(unedited.contains("\nlate: ZoneMissing, goes\n"), "{unedited}");
}

#[test]
fn who_refuses_a_zone_it_did_not_make_inherits_none() {
    let words = with_heir("Refuse").words();
    assert!(words.starts_with("delete zone\n") && !words.contains('-'), "{words}");
}

#[test]
fn what_was_written_in_another_zone_before_is_left_to_that_zone() {
    let mut elsewhere = wrote("moved", "A", "192.0.2.1");
    elsewhere["status"]["applied"]["zone"] = json!("other.example.");
    elsewhere["status"]["applied"]["name"] = json!("moved.other.example.");
    for policy in ["Adopt", "Refuse"] {
        let scene = with_heir(policy).object("moved", 1, "moved", "A", "192.0.2.1", elsewhere.clone());
        let words = scene.words();
        assert!(
            words.contains("\nmoved: ZoneMissing, keeps its record\n") && !words.contains("other.example"),
            "{words}"
        );
    }
}

#[test]
fn a_zone_object_that_never_touched_its_zone_takes_nothing_along() {
    let never = json!({ "metadata": { "finalizers": null }, "status": { "id": null } });
    for policy in ["Adopt", "Refuse"] {
        let mut zone = going(&json!({ "adoptionPolicy": policy }));
        merge(&mut zone, never.clone());
        let scene = Scene::new()
            .zone(zone)
            .object("www", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1"))
            .on_server("www", "A", "192.0.2.1");
        assert_eq!(scene.words(), "release zone\nwww: ZoneMissing, keeps its record\n", "{policy}");
    }
}

#[test]
fn in_a_zone_that_is_refused_as_foreign_only_what_an_object_wrote_itself_goes_with_it() {
    let refusing = json!({
        "metadata": { "resourceVersion": "2" }, "spec": { "adoptionPolicy": "Refuse" }, "status": { "id": null },
    });
    let scene = Scene::new()
        .zone(refusing)
        .object("gone", 1, "gone", "A", "192.0.2.1", deleting(wrote("gone", "A", "192.0.2.1")))
        .object("never", 1, "never", "A", "192.0.2.1", deleting(json!({})))
        .object("there", 1, "there", "A", "192.0.2.1", wrote("there", "A", "192.0.2.1"))
        .object("new", 1, "new", "A", "192.0.2.1", json!({}))
        .on_server("gone", "A", "192.0.2.1")
        .on_server("never", "A", "192.0.2.1")
        .on_server("there", "A", "192.0.2.1");
    assert_eq!(
        scene.words(),
        "-gone.example.com. A gone leaves\n\
         never: ok, goes\nnew: ZoneNotReady\nthere: ZoneNotReady, keeps its record\n"
    );
}

#[test]
fn a_record_in_place_is_listed_until_its_next_object_reports_it() {
    let inherited = |more| {
        let scene = Scene::new()
            .object("www", 1, "www", "A", "192.0.2.1", deleting(wrote("www", "A", "192.0.2.1")))
            .object("heir", 2, "www", "A", "192.0.2.1", more)
            .on_server("www", "A", "192.0.2.1");
        assert!(scene.words().contains("www: ok, goes"), "{}", scene.words());
        scene.plan().inherited
    };
    let key = RecordKey::new(zone().resolve("www").unwrap(), RecordType::A);
    assert_eq!(inherited(json!({})), [(key, digest("A", "192.0.2.1"))]);
    assert_eq!(inherited(wrote("www", "A", "192.0.2.1")), []);
}

#[test]
fn a_line_of_a_refused_content_is_forgotten_when_its_object_loses_the_name() {
    let scene = |content: &str| {
        Scene::new()
            .object("alias", 1, "www", "CNAME", "web.example.org.", wrote("www", "CNAME", "web.example.org."))
            .object("www", 2, "www", "A", content, json!({}))
            .on_server("www", "CNAME", "web.example.org.")
            .in_ledger("www", "A", "192.0.2.66")
            .refused("www", "A", "192.0.2.66")
            .plan()
    };
    let key = RecordKey::new(zone().resolve("www").unwrap(), RecordType::A);
    let asked = scene("192.0.2.66");
    assert_eq!((asked.forget, asked.memory.rejected.len()), (vec![key.clone()], 1), "a later try lists it again");
    let other = scene("192.0.2.1");
    assert_eq!((other.forget, other.memory.rejected.len()), (vec![key], 0), "its object was deleted or changed");
}

#[test]
fn a_creation_without_an_answer_owns_a_zone_of_its_shape_alone() {
    let unreported = |spec: serde_json::Value| {
        let mut zone = going(&spec);
        merge(&mut zone, json!({ "spec": { "adoptionPolicy": "Refuse" }, "status": { "id": null } }));
        zone
    };
    // Every scene serves a plain zone with this name server.
    let asked = |host: &str| {
        let settings = ZoneSettings { soa_edit_api: Some("DEFAULT".into()), ..ZoneSettings::default() };
        let nameservers = vec![Fqdn::parse(host).unwrap()];
        zone::shape_asked(&NewZone { name: zone(), kind: "Native".into(), nameservers, settings })
    };
    let words = |listed: Digest, nameserver: &str| {
        let mut scene = Scene::new().zone(unreported(json!({ "nameservers": [nameserver] })));
        scene.ledger.push(format!("@ ZONE {listed}"));
        scene.words()
    };
    let (ours, other) = ("ns1.example.org", "ns2.example.org");
    assert_eq!(words(asked(ours), ours), "delete zone\n");
    assert_eq!(words(asked(ours), other), "delete zone\n", "the object was changed since");
    assert_eq!(words(asked(other), ours), "delete zone\n", "and the zone with it");
    assert_eq!(words(asked(other), other), "release zone\n", "a foreign writer created the zone");
}

#[test]
fn an_edit_of_the_type_before_the_status_is_written_is_one_atom() {
    let edited = || json!({ "metadata": { "generation": 2 } });
    let scene = |more| {
        Scene::new()
            .object("www", 1, "www", "CNAME", "web.example.org.", more)
            .on_server("www", "A", "192.0.2.1")
            .in_ledger("www", "A", "192.0.2.1")
    };
    let switch = "-www.example.com. A +www.example.com. CNAME (ledger) for www\n";
    assert_eq!(scene(edited()).words(), switch);
    assert_eq!(scene(json!({})).words(), switch, "or the address was of an object that is gone");
    let foreign = scene(edited()).on_server("www", "TXT", "\"theirs\"");
    assert_eq!(
        foreign.words(),
        "www: CnameConflict, keeps its record\n",
        "while the switch cannot be made, the old set stays"
    );
    assert_eq!(foreign.plan().forget, []);
    let gone = scene(json!({})).on_server("www", "TXT", "\"theirs\"");
    assert_eq!(gone.words(), "-www.example.com. A\nwww: CnameConflict\n");
}

#[test]
fn an_old_type_gives_way_to_the_older_object_of_its_name() {
    let scene = |more| {
        Scene::new()
            .object("alias", 1, "www", "CNAME", "web.example.org.", json!({}))
            .object("www", 2, "www", "AAAA", "2001:db8::1", more)
            .on_server("www", "TXT", "\"old\"")
            .in_ledger("www", "TXT", "\"old\"")
            .words()
    };
    let switch = "-www.example.com. TXT +www.example.com. CNAME (ledger) for alias\nwww: CnameConflict\n";
    assert_eq!(scene(json!({})), switch);
    assert_eq!(
        scene(json!({ "metadata": { "generation": 2 } })),
        switch,
        "it may be the old type of the younger object"
    );
}

#[test]
fn a_reported_old_type_gives_way_to_the_older_object_of_its_name() {
    let scene = || {
        Scene::new()
            .object("alias", 1, "www", "CNAME", "web.example.org.", json!({}))
            .object("www", 2, "www", "AAAA", "2001:db8::1", wrote("www", "TXT", "\"old\""))
            .on_server("www", "TXT", "\"old\"")
    };
    assert_eq!(
        scene().words(),
        "-www.example.com. TXT +www.example.com. CNAME (ledger) for alias www says CnameConflict\n",
        "beside the TXT record the server would refuse the alias, and the younger object would win"
    );
    let refused = scene().refused("www", "CNAME", "web.example.org.");
    assert_eq!(
        refused.words(),
        "-www.example.com. TXT +www.example.com. AAAA (ledger) for www\nalias: CnameConflict\n",
        "a refused alias keeps nothing from its name"
    );
    // Without another set in its place, the old type stays.
    let apex = Scene::new()
        .object("top", 1, "@", "CNAME", "web.example.org.", wrote_at_apex("A", "192.0.2.1"))
        .object("text", 2, "@", "TXT", "\"x\"", json!({}))
        .on_server("@", "A", "192.0.2.1");
    assert_eq!(apex.words(), "+example.com. TXT (ledger) for text\ntop: WrongPlace, keeps its record\n");
}

#[test]
fn a_start_of_authority_for_another_zone_object_is_not_the_zones() {
    let elsewhere = |more| Scene::new().object("soa", 1, "@", "SOA", SOA, more).plan().soa_elsewhere;
    assert!(elsewhere(json!({})));
    assert!(
        !elsewhere(json!({ "metadata": { "namespace": "other" } })),
        "the new zone would keep the server's default"
    );
}

#[test]
fn while_the_server_rejects_the_new_type_the_old_one_stays() {
    let scene = Scene::new()
        .object("www", 1, "www", "CNAME", "web.example.org.", json!({ "metadata": { "generation": 2 } }))
        .on_server("www", "A", "192.0.2.1")
        .in_ledger("www", "A", "192.0.2.1");
    let mut memory = scene.plan().memory;
    let rejection = crate::plan::memory::Rejection {
        digest: digest("CNAME", "web.example.org."),
        words: "no".into(),
        until: now() + std::time::Duration::from_mins(1),
    };
    memory.rejected.insert(RecordKey::new(zone().resolve("www").unwrap(), RecordType::Cname), rejection);
    let key = ZoneKey::Zone(zone());
    let snapshot = scene.world.snapshot(&key, &Touched::All, &Ledger::default());
    let plan = plan(Observed { key, snapshot, server: ServerView::Present, memory, pace: pace() }, now());
    assert_eq!((plan.atoms, plan.forget), (vec![], vec![]));
    assert_eq!(says(&plan.decided[0].readiness), "ProviderRejected");
    assert!(is_learned(&plan.decided[0]), "and the object reports it");
}

#[test]
fn an_old_type_that_stays_at_the_apex_is_reported_by_its_object() {
    let edited = json!({ "metadata": { "generation": 2 } });
    let scene = Scene::new()
        .object("top", 1, "@", "CNAME", "web.example.org.", edited)
        .on_server("@", "A", "192.0.2.1")
        .in_ledger("@", "A", "192.0.2.1");
    assert_eq!(scene.words(), "top: WrongPlace, keeps its record\n");
    // Once the status of the object reports it, the ledger need not.
    let scene = scene.object("top", 1, "@", "CNAME", "web.example.org.", {
        let mut reported = wrote_at_apex("A", "192.0.2.1");
        merge(&mut reported, json!({ "metadata": { "generation": 2, "resourceVersion": "2" } }));
        reported
    });
    assert_eq!(scene.words(), "top: WrongPlace, keeps its record\n");
    assert_eq!(scene.plan().memory.ledger.len(), 0);
}

#[test]
fn an_edit_that_the_server_rejects_reports_what_was_written_before_it() {
    let edited = |uid: &'static str| {
        Scene::new()
            .object(uid, 1, "www", "A", "192.0.2.66", json!({ "metadata": { "generation": 2 } }))
            .on_server("www", "A", "192.0.2.1")
            .in_ledger("www", "A", "192.0.2.1")
            .refused("www", "A", "192.0.2.66")
    };
    let scene = edited("www").object("younger", 2, "www", "A", "192.0.2.66", json!({}));
    assert_eq!(scene.words(), "www: ProviderRejected, keeps its record\nyounger: ClaimedByAnother\n");
}

#[test]
fn what_stays_on_the_server_does_not_wait_for_it() {
    let unreachable = |scene: &Scene, ledger: &[String]| {
        let key = ZoneKey::Zone(zone());
        let server = ServerView::Unreachable(ServerError::Timeout { after: std::time::Duration::from_secs(1) });
        let memory = ZoneMemory { ledger: Ledger::parse(&zone(), ledger), ..ZoneMemory::default() };
        plan(
            Observed {
                snapshot: scene.world.snapshot(&key, &Touched::All, &Ledger::default()),
                key,
                server,
                memory,
                pace: pace(),
            },
            now(),
        )
    };
    let mut kept = deleting(wrote("kept", "A", "192.0.2.1"));
    kept["spec"]["deletionPolicy"] = json!("Retain");
    let scene = Scene::new().object("kept", 1, "kept", "A", "192.0.2.1", kept).object(
        "gone",
        1,
        "gone",
        "A",
        "192.0.2.1",
        deleting(wrote("gone", "A", "192.0.2.1")),
    );
    let line = format!("kept A {}", digest("A", "192.0.2.1"));
    let first = unreachable(&scene, std::slice::from_ref(&line));
    let released: BTreeMap<&str, bool> = first.decided.iter().map(|v| (&*v.judged.uid, v.release)).collect();
    assert_eq!(released, BTreeMap::from([("kept", true), ("gone", false)]));
    assert!(first.unlist.contains(&RecordKey::new(zone().resolve("kept").unwrap(), RecordType::A)));
    assert_eq!(first.step, ZoneStep::Keep);
    let retained = scene.zone(going(&json!({ "deletionPolicy": "Retain" })));
    assert_eq!(unreachable(&retained, &[line]).step, ZoneStep::Release);
    let other = format!("other A {}", digest("A", "192.0.2.1"));
    assert_eq!(unreachable(&retained, &[other]).step, ZoneStep::Keep, "something may still have to be taken off");
    let deleted = Scene::new().zone(going(&json!({})));
    assert_eq!(unreachable(&deleted, &[]).step, ZoneStep::Keep);
}

#[test]
fn what_only_the_ledger_knows_is_deleted_before_its_deleted_object_is_released() {
    // So many that the guard would pause them, if no object were there.
    let mut scene = Scene::new();
    for number in 0..12 {
        let name = format!("r{number}");
        let leaves = deleting(json!({ "metadata": { "finalizers": ["dns.cav.enablers.ob/external-resources"] } }));
        scene = scene.object(&name, 1, &name, "A", "192.0.2.1", leaves).on_server(&name, "A", "192.0.2.1").in_ledger(
            &name,
            "A",
            "192.0.2.1",
        );
    }
    let plan = scene.plan();
    assert_eq!((plan.atoms.len(), plan.decided.len(), plan.guarded), (12, 0, None));
    assert!(plan.atoms.iter().all(|atom| matches!(atom.waiting.as_slice(), [Waiting::Leaves(_)])));
}
