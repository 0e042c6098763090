use super::*;
use crate::report::status::Readiness;
use serde_json::json;

fn world() -> (ZoneIndex, Zones) {
    let queue: Zones = Queue::new();
    (ZoneIndex::new(queue.clone(), None, false), queue)
}

fn rrset(version: u64, generation: u64, more: &serde_json::Value) -> RRset {
    let mut object = json!({
        "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "RRset",
        "metadata": { "name": "www", "namespace": "ns", "uid": "u1", "resourceVersion": version.to_string(), "generation": generation,
            "creationTimestamp": "2026-02-01T00:00:00Z" },
        "spec": { "type": "A", "name": "www", "ttl": 300, "records": ["192.0.2.1"], "zoneRef": { "name": "example.com", "kind": "Zone" } },
    });
    for (key, value) in more.as_object().unwrap() {
        object[key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn key() -> ZoneKey {
    ZoneKey::of("example.com")
}

/// Takes what is waiting, so that the next look sees only what is new.
fn touched(queue: &Zones) -> Vec<ZoneKey> {
    let mut keys = Vec::new();
    while let Some(job) = queue.try_next() {
        queue.finish(&job.key, signpost_engine::Outcome::Done);
        keys.push(job.key);
    }
    keys
}

#[tokio::test(start_paused = true)]
async fn a_status_echo_touches_nothing_and_an_older_event_changes_nothing() {
    let (world, queue) = world();
    Index::<RRset>::applied(&world, &rrset(5, 1, &json!({})));
    assert_eq!(touched(&queue), [key()]);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    Index::<RRset>::applied(&world, &rrset(6, 1, &json!({ "status": { "syncStatus": "Succeeded" } })));
    assert_eq!(touched(&queue), []);
    Index::<RRset>::applied(&world, &rrset(4, 7, &json!({})));
    let id = Arc::new(ObjectId::new::<RRset>(Some("ns"), "www"));
    assert_eq!(world.record(&id).unwrap().identity.version, 6);
    assert_eq!(touched(&queue), []);
    Index::<RRset>::applied(&world, &rrset(7, 2, &json!({})));
    assert_eq!(touched(&queue), [key()]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_arrives_after_the_object_is_gone_brings_nothing_back() {
    let (world, _) = world();
    let id = ObjectId::new::<RRset>(Some("ns"), "www");
    Index::<RRset>::applied(&world, &rrset(5, 1, &json!({})));
    Index::<RRset>::deleted(&world, &id);
    world.written(&id, &serde_json::to_value(rrset(6, 1, &json!({}))).unwrap());
    assert!(world.record(&Arc::new(id)).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_lost_its_object_is_looked_at_once() {
    let (world, _) = world();
    Index::<RRset>::applied(&world, &rrset(5, 1, &json!({})));
    Index::<RRset>::deleted(&world, &ObjectId::new::<RRset>(Some("ns"), "www"));
    let none = Touched::none();
    let first = world.snapshot(&key(), &none, &Ledger::default());
    assert_eq!(first.names.keys().map(ToString::to_string).collect::<Vec<_>>(), ["www.example.com."]);
    assert!(first.left && world.snapshot(&key(), &none, &Ledger::default()).names.is_empty());
}

/// The zone object `ns/example.com` appears, for another zone than its name.
fn appear_as_other(world: &ZoneIndex) -> ZoneKey {
    let zone: Zone = serde_json::from_value(json!({
        "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "Zone",
        "metadata": { "name": "example.com", "namespace": "ns", "uid": "z", "resourceVersion": "6", "generation": 1 },
        "spec": { "kind": "Native", "zoneName": "_other.example" },
    }))
    .unwrap();
    Index::<Zone>::applied(world, &zone);
    ZoneKey::of("_other.example")
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_appears_under_another_name_takes_its_record_sets_along() {
    let (world, queue) = world();
    Index::<RRset>::applied(&world, &rrset(5, 1, &json!({})));
    touched(&queue);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let other = appear_as_other(&world);
    assert!(touched(&queue).contains(&other));
    let snapshot = world.snapshot(&other, &Touched::All, &Ledger::default());
    assert_eq!(snapshot.names.keys().map(ToString::to_string).collect::<Vec<_>>(), ["www._other.example."]);
    Index::<Zone>::deleted(&world, &ObjectId::new::<Zone>(Some("ns"), "example.com"));
    assert_eq!(world.snapshot(&key(), &Touched::All, &Ledger::default()).names.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_zone_object_that_goes_is_looked_at_with_all_its_record_sets_whatever_was_touched() {
    let (world, _) = world();
    Index::<RRset>::applied(&world, &rrset(5, 1, &json!({})));
    let mut zone: Zone = serde_json::from_value(json!({
        "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "Zone",
        "metadata": { "name": "example.com", "namespace": "ns", "uid": "z", "resourceVersion": "6", "generation": 1 },
        "spec": { "kind": "Native" },
    }))
    .unwrap();
    let look = |world: &ZoneIndex| {
        let snapshot = world.snapshot(&key(), &Touched::none(), &Ledger::default());
        (snapshot.full, snapshot.names.len())
    };
    Index::<Zone>::applied(&world, &zone);
    assert_eq!(look(&world), (false, 0));
    zone.metadata.resource_version = Some("7".to_owned());
    zone.metadata.deletion_timestamp = Some(deletion());
    Index::<Zone>::applied(&world, &zone);
    assert_eq!(look(&world), (true, 1));
}

fn deletion() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2026-03-01T00:00:00Z".parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn names_that_nobody_looks_at_are_not_collected_for_ever() {
    let (world, queue) = world();
    for n in 0..3_000 {
        let name = format!("host-{n}");
        let mut set = rrset(5 + n, 1, &json!({}));
        set.metadata.name = Some(name.clone());
        set.spec.name.clone_from(&name);
        Index::<RRset>::applied(&world, &set);
        Index::<RRset>::deleted(&world, &ObjectId::new::<RRset>(Some("ns"), &name));
    }
    assert!(world.snapshot(&key(), &Touched::none(), &Ledger::default()).names.len() <= 1024);
    assert_eq!(queue.try_next().map(|job| job.touched), Some(Touched::All), "everything is looked at instead");
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_of_the_cluster_an_older_version_is_news() {
    let (world, queue) = world();
    Index::<RRset>::applied(&world, &rrset(50, 3, &json!({})));
    touched(&queue);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    Index::<RRset>::rewound(&world);
    Index::<RRset>::applied(&world, &rrset(7, 2, &json!({})));
    assert_eq!(touched(&queue), [key()]);
    let id = Arc::new(ObjectId::new::<RRset>(Some("ns"), "www"));
    assert_eq!(world.record(&id).unwrap().identity.version, 7);
}

#[tokio::test(start_paused = true)]
async fn a_zone_status_that_somebody_changed_is_queued_and_touches_no_zone() {
    for partial_view in [false, true] {
        let queue: Zones = Queue::new();
        let world = ZoneIndex::new(queue.clone(), None, partial_view);
        let object = |version: u64, serial: u64| -> ClusterZone {
            let object = json!({
                "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "ClusterZone",
                "metadata": { "name": "example.com", "uid": "z1", "resourceVersion": version.to_string(),
                    "generation": 1, "creationTimestamp": "2026-02-01T00:00:00Z" },
                "spec": { "kind": "Native" },
                "status": { "serial": serial },
            });
            serde_json::from_value(object).unwrap()
        };
        let seen = |version, serial| Index::<ClusterZone>::applied(&world, &object(version, serial));
        seen(1, 7);
        touched(&queue);
        let decide = |serial| {
            let status = ZoneStatus { serial: Some(serial), ..ZoneStatus::default() };
            world.settle_zone(ZoneDecision { judged: Identity::of(&object(1, 7)), status }).is_some()
        };
        // Where other processes report their part about the same object, only what has changed is written.
        assert_eq!(decide(7), !partial_view);
        assert!(decide(8));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        seen(2, 1);
        assert_eq!(touched(&queue), []);
        assert_eq!(queue.statuses().queued(), usize::from(!partial_view));
        let id = ObjectId::new::<ClusterZone>(None, "example.com");
        assert_eq!(world.zone(&id).unwrap().decided().serial, Some(8), "what was decided is still wanted");
        let mut other = object(3, 1);
        other.metadata.uid = Some("z2".to_owned());
        Index::<ClusterZone>::applied(&world, &other);
        assert_eq!(world.zone(&id).unwrap().wanted, None, "nothing was decided about another object of the name");
    }
}

#[tokio::test(start_paused = true)]
async fn a_zone_made_anew_under_another_name_takes_along_record_sets_that_wrote_in_the_old_one() {
    let (world, queue) = world();
    let wrote = json!({ "syncStatus": "Succeeded", "applied": {
        "zone": "example.com.", "name": "www.example.com.", "type": "A", "hash": "0123456789abcdef",
    } });
    Index::<RRset>::applied(&world, &rrset(5, 1, &json!({ "status": wrote.clone() })));
    let id = Arc::new(ObjectId::new::<RRset>(Some("ns"), "www"));
    assert_eq!(world.record(&id).unwrap().home, key(), "without a zone object it is where it wrote");
    touched(&queue);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let other = appear_as_other(&world);
    assert!(touched(&queue).contains(&other));
    let names = |key: &ZoneKey| {
        let snapshot = world.snapshot(key, &Touched::All, &Ledger::default());
        snapshot.names.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!((names(&other), names(&key())), (vec!["www._other.example.".to_owned()], vec![]));
    let mut going = rrset(7, 1, &json!({ "status": wrote }));
    going.metadata.deletion_timestamp = Some(deletion());
    Index::<RRset>::applied(&world, &going);
    assert_eq!(
        (names(&other), names(&key())),
        (vec![], vec!["www.example.com.".to_owned()]),
        "what it wrote goes first"
    );
}

#[tokio::test(start_paused = true)]
async fn a_line_is_not_durable_by_a_status_that_is_about_to_be_replaced() {
    let (world, _) = world();
    let wrote = json!({ "syncStatus": "Succeeded", "applied": {
        "zone": "example.com.", "name": "www.example.com.", "type": "A", "hash": "0123456789abcdef",
    } });
    let mut object = rrset(5, 1, &json!({ "status": wrote }));
    object.metadata.finalizers = Some(vec![signpost_apis::powerdns::FINALIZER.to_owned()]);
    Index::<RRset>::applied(&world, &object);
    let record = world.record(&ObjectId::new::<RRset>(Some("ns"), "www")).unwrap();
    let AppliedRecord { zone, key: set, digest } = (**record.applied().unwrap()).clone();
    let mut ledger = Ledger::default();
    ledger.list(set.clone(), digest);
    let durable = || world.snapshot(&key(), &Touched::All, &ledger).durable;
    assert_eq!(durable(), BTreeSet::from([set]));
    // Another object wrote over it, and the status that no longer reports it is still on its way.
    world.settle(vec![RecordStatus::absent(&record, &zone, Readiness::Succeeded)]);
    assert_eq!(durable(), BTreeSet::new());
}
