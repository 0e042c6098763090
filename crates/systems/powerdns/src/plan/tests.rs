//! Plans of small scenes.

use std::{collections::BTreeMap, fmt::Write as _};

use super::*;
use serde_json::json;
use signpost_apis::{
    externaldns::DnsEndpoint,
    powerdns::{RRset, Zone},
};
use signpost_engine::{Index, ObjectId, Queue, Touched};
use signpost_provider_powerdns::{ServerSet, ZoneContents};

use crate::{
    index::ZoneIndex,
    plan::{
        ledger::Ledger,
        memory::{Present, Rejection, plain_info},
    },
    settings::EndpointSource,
};

#[path = "departure_tests.rs"]
mod departures;
#[path = "property_tests.rs"]
mod properties;
#[path = "take_over_tests.rs"]
mod take_overs;
#[path = "unreported_tests.rs"]
mod unreported;

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

fn pace() -> Arc<Pace> {
    Arc::default()
}

const SERVED_SOA: &str = "ns1.example.org. hostmaster.example.com. 7 10800 3600 604800 3600";

fn zone() -> ZoneName {
    ZoneName::parse("example.com").unwrap()
}

/// A world, built as the watch would.
struct Scene {
    world: ZoneIndex,
    sets: Vec<ServerSet>,
    ledger: Vec<String>,
    rejected: Vec<(RecordKey, Rejection)>,
    present: bool,
    /// DNSEndpoints are a source; `true`: names of external-dns are taken over.
    take_over: Option<bool>,
}

impl Scene {
    fn new() -> Self {
        let world = ZoneIndex::new(Queue::new(), None, false);
        let scene = Self { world, sets: vec![], ledger: vec![], rejected: vec![], present: true, take_over: None };
        scene.zone(json!({}))
    }

    fn zone(self, more: serde_json::Value) -> Self {
        let mut object = json!({
            "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "Zone",
            "metadata": { "name": "example.com", "namespace": "ns", "uid": "zone", "resourceVersion": "1", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["dns.cav.enablers.ob/external-resources"] },
            "spec": { "kind": "Native", "nameservers": ["ns1.example.org"] },
            "status": { "id": "example.com." },
        });
        merge(&mut object, more);
        Index::<Zone>::applied(&self.world, &serde_json::from_value(object).unwrap());
        self
    }

    /// An RRset `uid` made at that hour.
    fn object(self, uid: &str, hour: u8, name: &str, rtype: &str, record: &str, more: serde_json::Value) -> Self {
        let mut object = json!({
            "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "RRset",
            "metadata": { "name": uid, "namespace": "ns", "uid": uid, "resourceVersion": "1", "generation": 1,
                "creationTimestamp": format!("2026-02-01T{hour:02}:00:00Z") },
            "spec": { "type": rtype, "name": name, "ttl": 300, "records": [record],
                "zoneRef": { "name": "example.com", "kind": "Zone" } },
        });
        merge(&mut object, more);
        Index::<RRset>::applied(&self.world, &serde_json::from_value(object).unwrap());
        self
    }

    /// A DNSEndpoint `uid` with one endpoint, made after every RRset.
    fn endpoint(self, uid: &str, name: &str, rtype: &str, target: &str) -> Self {
        let object = json!({
            "apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint",
            "metadata": { "name": uid, "namespace": "ns", "uid": uid, "resourceVersion": "1", "generation": 1,
                "creationTimestamp": "2026-03-01T00:00:00Z" },
            "spec": { "endpoints": [{ "dnsName": format!("{name}.example.com"), "recordType": rtype, "targets": [target] }] },
        });
        Index::<DnsEndpoint>::applied(&self.world, &serde_json::from_value(object).unwrap());
        Self { take_over: self.take_over.or(Some(false)), ..self }
    }

    /// external-dns owns what its TXT record at this name is about.
    fn registered(self, at: &str) -> Self {
        self.on_server(at, "TXT", "\"heritage=external-dns,external-dns/owner=weu\"")
    }

    fn on_server(mut self, name: &str, rtype: &str, record: &str) -> Self {
        self.sets.push(ServerSet {
            name: zone().resolve(name).unwrap(),
            rtype: rtype.parse().unwrap(),
            ttl: 300,
            contents: vec![record.into()],
            disabled: false,
            comments: vec![],
        });
        self
    }

    fn in_ledger(mut self, name: &str, rtype: &str, record: &str) -> Self {
        self.ledger.push(format!("{name} {rtype} {}", digest(rtype, record)));
        self
    }

    /// The server has refused this.
    fn refused(mut self, name: &str, rtype: &str, record: &str) -> Self {
        let key = RecordKey::new(zone().resolve(name).unwrap(), rtype.parse().unwrap());
        let until = now() + Duration::from_mins(5);
        self.rejected.push((key, Rejection { digest: digest(rtype, record), words: "no".to_owned(), until }));
        self
    }

    fn plan(&self) -> Plan {
        self.plan_with(signpost_planning::GuardMemory::default())
    }

    fn plan_with(&self, guard: signpost_planning::GuardMemory) -> Plan {
        self.plan_of(&Touched::All, guard)
    }

    fn plan_of(&self, touched: &Touched<Arc<ObjectId>>, guard: signpost_planning::GuardMemory) -> Plan {
        let mut sets = self.sets.clone();
        sets.push(ServerSet {
            name: zone().name().clone(),
            rtype: RecordType::Ns,
            ttl: 3600,
            contents: vec!["ns1.example.org.".into()],
            disabled: false,
            comments: vec![],
        });
        let present = self.present.then(|| Present {
            soa: Some((3600, SERVED_SOA.into())),
            ..Present::of(&ZoneContents { info: plain_info(zone()), sets })
        });
        let key = ZoneKey::Zone(zone());
        let (ledger, rejected) = (Ledger::parse(&zone(), &self.ledger), self.rejected.iter().cloned().collect());
        // The generation of the zone object: another one would forget what was refused.
        let memory = ZoneMemory { ledger, rejected, present, guard, generation: 1, ..ZoneMemory::default() };
        let server = if self.present { ServerView::Present } else { ServerView::Missing };
        let snapshot = self.world.snapshot(&key, touched, &memory.ledger);
        let source = self.take_over.map(|take_over| EndpointSource { take_over, ..EndpointSource::default() });
        let pace = Arc::new(Pace { endpoints: source, ..Pace::default() });
        plan(Observed { key, snapshot, server, memory, pace }, now())
    }

    /// The plan in words: `+` writes, `-` deletions, then verdicts.
    fn words(&self) -> String {
        let plan = self.plan();
        let mut text = String::new();
        match &plan.step {
            ZoneStep::Keep => {}
            ZoneStep::Create(_) => text.push_str("create zone\n"),
            ZoneStep::Configure(_) => text.push_str("configure zone\n"),
            ZoneStep::Delete => text.push_str("delete zone\n"),
            ZoneStep::Release => text.push_str("release zone\n"),
        }
        for atom in &plan.atoms {
            let mut line: Vec<String> = atom.deletes.iter().map(|key| format!("-{key}")).collect();
            line.extend(
                atom.write.iter().map(|write| format!("+{}{}", write.key, if write.ledger { " (ledger)" } else { "" })),
            );
            for waiting in &atom.waiting {
                line.push(match waiting {
                    Waiting::Holds(record) => format!("for {}", record.identity.uid),
                    Waiting::Leaves(record) => format!("{} leaves", record.identity.uid),
                    Waiting::Clears(verdict) => format!("{} says {}", verdict.judged.uid, says(&verdict.readiness)),
                    Waiting::Zone => "for the zone".to_owned(),
                });
            }
            writeln!(text, "{}", line.join(" ")).unwrap();
        }
        let with_zone = plan.with_zone.iter().map(|(_, verdict)| verdict);
        let mut decided: Vec<String> = plan
            .decided
            .iter()
            .chain(with_zone)
            .map(|verdict| {
                let release = if verdict.release { ", goes" } else { "" };
                let mut record = (*self.world.record(&verdict.judged.id).unwrap()).clone();
                record.learn(&verdict.found);
                let applied = if record.applied().is_some() { ", keeps its record" } else { "" };
                format!("{}: {}{applied}{release}", verdict.judged.uid, says(&verdict.readiness))
            })
            .collect();
        decided.sort();
        for line in decided {
            writeln!(text, "{line}").unwrap();
        }
        if let Some(refusal) = &plan.guarded {
            writeln!(text, "held: {refusal}").unwrap();
        }
        text
    }
}

fn says(says: &Readiness) -> String {
    says.refusal().map_or("ok".to_owned(), |refusal| refusal.reason.to_string())
}

fn merge(base: &mut serde_json::Value, more: serde_json::Value) {
    match (base, more) {
        (serde_json::Value::Object(base), serde_json::Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}

fn digest(rtype: &str, record: &str) -> Digest {
    let content = SetContent { ttl: 300, records: Box::new([record.into()]), comment: None };
    Digest::of_content(rtype.parse().unwrap(), &content)
}

fn wrote(name: &str, rtype: &str, record: &str) -> serde_json::Value {
    json!({
        "metadata": { "finalizers": ["dns.cav.enablers.ob/external-resources"] },
        "status": { "syncStatus": "Succeeded", "applied": {
            "zone": "example.com.", "name": format!("{name}.example.com."), "type": rtype, "hash": digest(rtype, record).to_string(),
        } },
    })
}

fn deleting(mut more: serde_json::Value) -> serde_json::Value {
    more["metadata"]["deletionTimestamp"] = json!("2026-03-01T00:00:00Z");
    more
}

#[test]
fn a_new_object_is_written_through_the_ledger_and_a_known_one_is_not() {
    let scene = Scene::new().object("new", 1, "new", "A", "192.0.2.1", json!({})).object(
        "known",
        1,
        "known",
        "A",
        "192.0.2.2",
        wrote("known", "A", "192.0.2.1"),
    );
    assert_eq!(scene.words(), "+known.example.com. A for known\n+new.example.com. A (ledger) for new\n");
}

#[test]
fn what_is_served_as_wanted_is_left_alone() {
    let scene = Scene::new().object("www", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1")).on_server(
        "www",
        "A",
        "192.0.2.1",
    );
    assert_eq!(scene.words(), "www: ok, keeps its record\n");
}

#[test]
fn the_oldest_holds_and_the_next_in_line_takes_over_in_place() {
    let scene = Scene::new()
        .object("old", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1"))
        .object("young", 2, "www", "A", "192.0.2.2", json!({}))
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "old: ok, keeps its record\nyoung: ClaimedByAnother\n");
    let scene = Scene::new()
        .object("old", 1, "www", "A", "192.0.2.1", deleting(wrote("www", "A", "192.0.2.1")))
        .object("young", 2, "www", "A", "192.0.2.2", json!({}))
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "+www.example.com. A (ledger) for young old leaves\n", "one write, no deletion");
}

#[test]
fn a_type_change_is_one_atom() {
    let scene = Scene::new()
        .object("www", 1, "www", "CNAME", "web.example.org.", wrote("www", "A", "192.0.2.1"))
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "-www.example.com. A +www.example.com. CNAME (ledger) for www\n");
}

#[test]
fn a_successor_of_another_type_finds_its_place_after_the_deletion() {
    let scene = Scene::new()
        .object("old", 1, "www", "A", "192.0.2.1", deleting(wrote("www", "A", "192.0.2.1")))
        .object("next", 2, "www", "CNAME", "web.example.org.", json!({}))
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "-www.example.com. A old leaves\n+www.example.com. CNAME (ledger) for next\n");
}

#[test]
fn a_refused_set_gives_way_to_a_younger_one_of_another_type_unless_it_is_served() {
    let both = || {
        Scene::new().object("old", 1, "www", "A", "192.0.2.1", json!({})).object(
            "young",
            2,
            "www",
            "CNAME",
            "web.example.org.",
            json!({}),
        )
    };
    assert_eq!(both().words(), "+www.example.com. A (ledger) for old\nyoung: CnameConflict\n");
    let refused = both().refused("www", "A", "192.0.2.1");
    assert_eq!(refused.words(), "+www.example.com. CNAME (ledger) for young\nold: CnameConflict\n");
    let served = both().refused("www", "A", "192.0.2.1").on_server("www", "CNAME", "web.example.org.");
    assert_eq!(served.words(), "old: CnameConflict\nyoung: ok, keeps its record\n");
    // An edit that is refused leaves what the object has, which keeps its place.
    let edited = |more| Scene::new().object("old", 1, "www", "A", "192.0.2.9", more).refused("www", "A", "192.0.2.9");
    for (rtype, record) in [("A", "192.0.2.1"), ("TXT", "\"x\"")] {
        let scene = edited(wrote("www", rtype, record)).on_server("www", rtype, record);
        let scene = scene.object("young", 2, "www", "CNAME", "web.example.org.", json!({}));
        assert_eq!(scene.words(), "old: ProviderRejected, keeps its record\nyoung: CnameConflict\n");
    }
    // Both are refused: neither is tried again yet.
    let neither = both().refused("www", "A", "192.0.2.1").refused("www", "CNAME", "web.example.org.");
    assert_eq!(neither.plan().atoms, []);
}

#[test]
fn an_object_that_cannot_be_understood_keeps_what_it_wrote() {
    let scene = Scene::new().object("www", 1, "www", "A", "nonsense", wrote("www", "A", "192.0.2.1")).on_server(
        "www",
        "A",
        "192.0.2.1",
    );
    assert_eq!(scene.words(), "www: InvalidRecord, keeps its record\n");
}

#[test]
fn a_loser_that_goes_touches_nothing() {
    let scene = Scene::new()
        .object("old", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1"))
        .object("young", 2, "www", "A", "192.0.2.2", deleting(json!({})))
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "old: ok, keeps its record\nyoung: ok, goes\n");
}

#[test]
fn the_ledger_alone_deletes_only_what_it_says_was_written() {
    let scene = Scene::new().on_server("ours", "A", "192.0.2.1").on_server("theirs", "A", "203.0.113.1");
    let scene = scene.in_ledger("ours", "A", "192.0.2.1").in_ledger("theirs", "A", "192.0.2.9").in_ledger(
        "absent",
        "A",
        "192.0.2.1",
    );
    assert_eq!(scene.words(), "-ours.example.com. A\n");
    let mut forgotten: Vec<String> = scene.plan().forget.iter().map(ToString::to_string).collect();
    forgotten.sort();
    assert_eq!(forgotten, ["absent.example.com. A", "theirs.example.com. A"]);
}

#[test]
fn the_ledger_never_deletes_a_start_of_authority() {
    let scene = || Scene::new().on_server("@", "SOA", SERVED_SOA).in_ledger("@", "SOA", SERVED_SOA);
    assert_eq!(scene().words(), "", "at a name without objects");
    let apex = scene().object("apex", 1, "@", "A", "192.0.2.1", json!({}));
    assert_eq!(apex.words(), "+example.com. A (ledger) for apex\n", "nor at one with an object");
    assert_eq!(apex.plan().forget.len(), 1);
}

#[test]
fn the_ledger_keeps_no_line_for_a_loser_that_has_nothing_on_the_server() {
    let scene = Scene::new()
        .object("old", 1, "www", "CNAME", "web.example.org.", wrote("www", "CNAME", "web.example.org."))
        .object("young", 2, "www", "A", "192.0.2.1", json!({}))
        .on_server("www", "CNAME", "web.example.org.")
        .in_ledger("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "old: ok, keeps its record\nyoung: CnameConflict\n");
    assert_eq!(scene.plan().forget.iter().map(ToString::to_string).collect::<Vec<_>>(), ["www.example.com. A"]);
}

#[test]
fn a_line_of_a_refused_set_stays_although_a_younger_object_reports_the_set() {
    let mut younger = wrote("www", "A", "192.0.2.3");
    merge(&mut younger, json!({ "metadata": { "generation": 1 } }));
    let scene = Scene::new()
        .object("older", 1, "www", "A", "192.0.2.66", json!({ "metadata": { "generation": 2 } }))
        .object("younger", 2, "www", "A", "192.0.2.3", younger)
        .on_server("www", "A", "192.0.2.3")
        .in_ledger("www", "A", "192.0.2.66");
    assert_eq!(scene.plan().memory.ledger.len(), 0, "without a refusal, the status of the younger one is enough");
    let refused = scene.refused("www", "A", "192.0.2.66");
    let plan = refused.plan();
    assert_eq!((plan.memory.ledger.len(), plan.forget), (1, vec![]), "the next try needs no write of the zone object");
    assert_eq!(refused.words(), "older: ProviderRejected\nyounger: ClaimedByAnother, keeps its record\n");
}

#[test]
fn the_ledger_keeps_no_line_for_an_object_of_another_zone_object() {
    let elsewhere = || json!({ "spec": { "zoneRef": { "name": "example.com", "kind": "ClusterZone" } } });
    let scene = Scene::new()
        .object("other", 1, "www", "A", "192.0.2.1", elsewhere())
        .on_server("www", "A", "192.0.2.1")
        .in_ledger("www", "A", "192.0.2.1");
    assert!(scene.words().starts_with("-www.example.com. A\n"), "{}", scene.words());
    let absent =
        Scene::new().object("other", 1, "www", "A", "192.0.2.1", elsewhere()).in_ledger("www", "A", "192.0.2.1");
    assert_eq!(absent.plan().forget.len(), 1, "{}", absent.words());
}

#[test]
fn a_large_part_of_a_zone_does_not_go_by_the_ledger_without_a_second_pass() {
    let mut scene = Scene::new();
    for n in 0..12 {
        scene = scene.on_server(&format!("h{n}"), "A", "192.0.2.1").in_ledger(&format!("h{n}"), "A", "192.0.2.1");
    }
    let first = scene.plan();
    assert!(first.atoms.is_empty() && first.guarded.is_some());
    let second = scene.plan_with(first.memory.guard);
    assert_eq!((second.atoms.len(), second.guarded), (12, None));
}

#[test]
fn deletions_that_users_asked_for_are_not_held() {
    let mut scene = Scene::new();
    for n in 0..12 {
        let name = format!("h{n}");
        scene = scene.object(&name, 1, &name, "A", "192.0.2.1", deleting(wrote(&name, "A", "192.0.2.1"))).on_server(
            &name,
            "A",
            "192.0.2.1",
        );
    }
    let plan = scene.plan();
    assert_eq!((plan.atoms.len(), plan.guarded), (12, None));
}

#[test]
fn a_zone_that_vanished_is_made_again_with_everything() {
    let mut scene = Scene::new().object("www", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1"));
    scene.present = false;
    assert_eq!(scene.words(), "create zone\n+www.example.com. A for www\n");
}

#[test]
fn a_zone_that_goes_takes_everything_with_it() {
    let scene = Scene::new()
        .zone(json!({ "metadata": { "deletionTimestamp": "2026-03-01T00:00:00Z", "resourceVersion": "2" } }))
        .object("www", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1"))
        .object("gone", 1, "gone", "A", "192.0.2.1", deleting(wrote("gone", "A", "192.0.2.1")))
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "delete zone\ngone: ZoneMissing, goes\nwww: ZoneMissing\n");
}

#[test]
fn an_unreachable_server_changes_nothing_that_is_served() {
    let scene = Scene::new()
        .object("served", 1, "served", "A", "192.0.2.1", wrote("served", "A", "192.0.2.1"))
        .object("changed", 1, "changed", "A", "192.0.2.2", wrote("changed", "A", "192.0.2.1"))
        .object("leaving", 1, "leaving", "A", "192.0.2.1", deleting(wrote("leaving", "A", "192.0.2.1")))
        .object("wrong", 1, "wrong", "A", "nonsense", json!({}))
        .object("never", 1, "never", "A", "192.0.2.1", deleting(json!({})));
    let key = ZoneKey::Zone(zone());
    let server = ServerView::Unreachable(ServerError::Timeout { after: std::time::Duration::from_secs(1) });
    let snapshot = scene.world.snapshot(&key, &Touched::All, &Ledger::default());
    let plan = plan(Observed { key, snapshot, server, memory: ZoneMemory::default(), pace: pace() }, now());
    assert!(plan.atoms.is_empty() && plan.step == ZoneStep::Keep);
    let decided: BTreeMap<&str, (String, bool)> = plan
        .decided
        .iter()
        .map(|verdict| (&*verdict.judged.uid, (says(&verdict.readiness), verdict.release)))
        .collect();
    assert_eq!(decided.get("served"), None);
    assert_eq!(decided["changed"], ("ProviderUnreachable".to_owned(), false));
    assert_eq!(decided["leaving"], ("ProviderUnreachable".to_owned(), false));
    assert_eq!(decided["never"], ("ok".to_owned(), true));
    assert_eq!(decided["wrong"], ("InvalidRecord".to_owned(), false), "which is so whatever the server says");
}

#[test]
fn a_pass_over_one_object_looks_at_its_name_only() {
    let scene = Scene::new()
        .object("a", 1, "a", "A", "192.0.2.1", json!({}))
        .object("b", 1, "b", "A", "192.0.2.1", json!({}))
        .object("b2", 2, "b", "A", "192.0.2.2", json!({}));
    let id = Arc::new(ObjectId::new::<RRset>(Some("ns"), "b2"));
    let snapshot = scene.world.snapshot(&ZoneKey::Zone(zone()), &Touched::Some([id].into()), &Ledger::default());
    let names: Vec<String> = snapshot.names.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["b.example.com."]);
    assert_eq!(snapshot.names.values().next().unwrap().len(), 2);
}

fn owner() -> serde_json::Value {
    json!([{ "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "Zone", "name": "example.com", "uid": "zone" }])
}

#[test]
fn what_goes_because_its_retained_zone_went_stays_on_the_server() {
    let mut owned = deleting(wrote("www", "A", "192.0.2.1"));
    owned["metadata"]["ownerReferences"] = owner();
    let scene = |world| Scene { world, sets: vec![], ledger: vec![], rejected: vec![], present: true, take_over: None };
    let alone = scene(ZoneIndex::new(Queue::new(), None, false))
        .object("www", 1, "www", "A", "192.0.2.1", owned.clone())
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(alone.words(), "www: ok, goes\n", "the collector deletes it after the zone object is gone");
    let snapshot = alone.world.snapshot(&ZoneKey::Zone(zone()), &Touched::All, &Ledger::default());
    assert!(!crate::observe::needs_server(&snapshot));
    let leaving = Scene::new()
        .zone(json!({ "metadata": { "deletionTimestamp": "2026-03-01T00:00:00Z", "resourceVersion": "2" }, "spec": { "deletionPolicy": "Retain" } }))
        .object("www", 1, "www", "A", "192.0.2.1", owned.clone())
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(leaving.words(), "release zone\nwww: ok, goes\n", "or while it is on its way");
    let held = Scene::new().object("www", 1, "www", "A", "192.0.2.1", owned).on_server("www", "A", "192.0.2.1");
    assert_eq!(held.words(), "-www.example.com. A www leaves\n", "under a zone that stays it is deleted");
    let free = scene(ZoneIndex::new(Queue::new(), None, false))
        .object("www", 1, "www", "A", "192.0.2.1", deleting(wrote("www", "A", "192.0.2.1")))
        .on_server("www", "A", "192.0.2.1");
    assert_eq!(free.words(), "-www.example.com. A www leaves\n", "nobody else deletes it");
}

#[test]
fn a_record_set_that_goes_leaves_the_name_servers_the_zone_object_holds() {
    let mut more = deleting(wrote("x", "NS", "ns1.example.org."));
    more["status"]["applied"]["name"] = json!("example.com.");
    let scene = Scene::new().object("ns", 1, "@", "NS", "ns1.example.org.", more);
    assert_eq!(scene.words(), "ns: ok, goes\n");
    let mut scene = Scene::new();
    scene.ledger.push(format!("@ NS {}", scene.plan().memory.present.unwrap().sets.values().next().unwrap()));
    assert_eq!(scene.words(), "", "nor does the ledger take them off");
}

#[test]
fn an_edit_to_nonsense_before_the_status_is_written_leaves_what_is_served() {
    let edited = || json!({ "metadata": { "generation": 2 } });
    let scene = Scene::new()
        .object("www", 1, "www", "A", "nonsense", edited())
        .on_server("www", "A", "192.0.2.1")
        .in_ledger("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "www: InvalidRecord\n");
    assert_eq!(scene.plan().forget, []);
    let scene = Scene::new()
        .object("www", 1, "a..b", "A", "192.0.2.1", edited())
        .on_server("www", "A", "192.0.2.1")
        .in_ledger("www", "A", "192.0.2.1");
    assert_eq!(scene.words(), "www: InvalidName\n");
    assert_eq!(scene.plan().forget, []);
}

#[test]
fn what_the_ledger_of_a_shared_zone_says_of_unseen_objects_is_left_alone() {
    let scene = Scene::new()
        .object("www", 1, "www", "A", "192.0.2.1", wrote("www", "A", "192.0.2.1"))
        .on_server("www", "A", "192.0.2.1")
        .on_server("www", "TXT", "\"theirs\"")
        .on_server("far", "A", "192.0.2.1")
        .in_ledger("www", "TXT", "\"theirs\"")
        .in_ledger("far", "A", "192.0.2.1")
        .in_ledger("soon", "A", "192.0.2.1");
    assert_eq!(scene.words(), "-www.example.com. TXT\n-far.example.com. A\nwww: ok, keeps its record\n");
    let key = ZoneKey::Zone(zone());
    let memory = scene.plan().memory;
    let snapshot = ZoneSnapshot { shared: true, ..scene.world.snapshot(&key, &Touched::All, &Ledger::default()) };
    let plan = plan(Observed { key, snapshot, server: ServerView::Present, memory, pace: pace() }, now());
    assert_eq!((plan.atoms, plan.forget), (vec![], vec![]));
}

#[test]
fn what_powerdns_operator_wrote_goes_with_its_object_also_when_that_was_never_seen_alive() {
    let theirs = |sync: &str| {
        deleting(json!({
            "metadata": { "finalizers": ["dns.cav.enablers.ob/external-resources"] }, "status": { "syncStatus": sync },
        }))
    };
    let scene = |sync: &str| Scene::new().object("www", 1, "www", "A", "192.0.2.1", theirs(sync));
    let served = scene("Succeeded").on_server("www", "A", "192.0.2.1");
    assert_eq!(served.words(), "-www.example.com. A www leaves\n");
    let other = scene("Succeeded").on_server("www", "A", "203.0.113.1");
    assert_eq!(other.words(), "www: ok, goes\n", "not what it asked for, so not its own");
    let failed = scene("Failed").on_server("www", "A", "192.0.2.1");
    assert_eq!(failed.words(), "www: ok, goes\n", "it never wrote anything");
    let heir = served.object("heir", 2, "www", "A", "192.0.2.1", json!({}));
    assert_eq!(heir.words(), "heir: ok, keeps its record\nwww: ok, goes\n");
    let key = ZoneKey::Zone(zone());
    let server = ServerView::Unreachable(ServerError::Timeout { after: std::time::Duration::from_secs(1) });
    let snapshot = scene("Succeeded").world.snapshot(&key, &Touched::All, &Ledger::default());
    let plan = plan(Observed { key, snapshot, server, memory: ZoneMemory::default(), pace: pace() }, now());
    assert!(plan.decided.iter().all(|verdict| !verdict.release), "it waits for the server");
}

#[test]
fn a_pass_over_some_names_does_not_forget_what_the_guard_held() {
    let mut scene = Scene::new().object("www", 1, "www", "A", "192.0.2.1", json!({}));
    for n in 0..12 {
        scene = scene.on_server(&format!("h{n}"), "A", "192.0.2.1").in_ledger(&format!("h{n}"), "A", "192.0.2.1");
    }
    let held = scene.plan().memory.guard;
    assert!(held.is_paused());
    let www = Touched::Some([Arc::new(ObjectId::new::<RRset>(Some("ns"), "www"))].into());
    assert_eq!(scene.plan_of(&www, held).memory.guard, held);
}
