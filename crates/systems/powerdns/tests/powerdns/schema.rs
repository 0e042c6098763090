//! Objects that `kubectl apply` refuses and accepts, on both API servers.

use serde_json::{Value, json};
use signpost_testkit::{Cluster, on_both};

use crate::rig::{Rig, rrset, zone_spec};

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

/// Kind, spec, and a part of the message when it is refused.
fn cases(zone: &str) -> Vec<(&'static str, Value, Option<&'static str>)> {
    let a = || rrset(zone, "Zone", "www", "A", &["192.0.2.1"]);
    let ttl = |ttl: i64| with(a(), "ttl", json!(ttl));
    let typed = |rtype: &str, records: &[&str]| rrset(zone, "Zone", "www", rtype, records);
    let named = |name: &str| rrset(zone, "Zone", name, "A", &["192.0.2.1"]);
    vec![
        ("RRset", a(), None),
        ("RRset", ttl(0), None),
        ("RRset", ttl(2_147_483_647), None),
        ("RRset", ttl(-1), Some("spec.ttl")),
        ("RRset", ttl(2_147_483_648), Some("spec.ttl")),
        ("RRset", with(a(), "records", json!([])), Some("spec.records")),
        ("RRset", typed("AA", &["1"]), None),
        ("RRset", typed("aaaa", &["::1"]), None),
        ("RRset", typed("A B", &["1"]), Some("spec.type")),
        ("RRset", typed("", &["1"]), Some("spec.type")),
        ("RRset", typed("CNAME", &["a.example."]), None),
        ("RRset", typed("CNAME", &["a.example.", "b.example."]), Some("exactly one record")),
        ("RRset", typed("dname", &["a.example.", "b.example."]), Some("exactly one record")),
        ("RRset", named("@"), None),
        ("RRset", named(""), Some("spec.name")),
        ("RRset", named(&format!("www.{zone}.")), None),
        ("RRset", named(&format!("{zone}.").to_uppercase()), None),
        ("RRset", named("www.elsewhere.example."), Some("inside the zone")),
        ("RRset", named(&format!("evil{zone}.")), Some("inside the zone")),
        ("RRset", with(a(), "zoneRef", json!({ "name": zone, "kind": "Realm" })), Some("spec.zoneRef.kind")),
        ("RRset", with(a(), "deletionPolicy", json!("Keep")), Some("spec.deletionPolicy")),
        ("ClusterRRset", rrset(zone, "ClusterZone", "www", "A", &["192.0.2.1"]), None),
        ("ClusterRRset", a(), Some("belongs to a ClusterZone")),
        ("Zone", zone_spec(), None),
        ("Zone", json!({ "kind": "Native" }), None),
        ("Zone", json!({ "kind": "Primary" }), Some("spec.kind")),
        ("Zone", with(zone_spec(), "nameservers", json!(["ns1.example.org."])), None),
        ("Zone", with(zone_spec(), "nameservers", json!(["bad name"])), Some("spec.nameservers")),
        ("Zone", with(zone_spec(), "soa_edit_api", json!("NEVER")), Some("spec.soa_edit_api")),
        ("Zone", json!({ "kind": "Consumer", "masters": ["192.0.2.53"] }), None),
        (
            "Zone",
            json!({ "kind": "Consumer", "masters": ["192.0.2.53"], "nameservers": ["ns1.example.org"] }),
            Some("no nameservers of its own"),
        ),
        ("Zone", json!({ "kind": "Slave" }), Some("needs spec.masters")),
        ("Zone", json!({ "kind": "Consumer" }), Some("needs spec.masters")),
        (
            "Zone",
            with(zone_spec(), "soa", json!({ "primary": "ns1.example.org", "mailbox": "h.example.org", "retry": -5 })),
            Some("spec.soa.retry"),
        ),
        ("ClusterZone", json!({ "kind": "Slave" }), Some("needs spec.masters")),
    ]
}

async fn refuses_and_takes(cluster: Cluster) {
    let Some(mut rig) = Rig::new(cluster).await else { return };
    // Only the API server is asked.
    rig.stop().await;
    for (n, (kind, spec, refused)) in cases(&rig.zone).into_iter().enumerate() {
        let name = format!("case-{n}.{}", rig.zone);
        let answer = rig.try_put(kind, &rig.namespace, &name, spec.clone()).await;
        match (answer, refused) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) if error.to_string().contains(part) => {}
            (answer, _) => panic!("{kind} {spec}\nexpected {refused:?}\ngot {answer:?}"),
        }
    }
}

on_both! {
    async fn what_can_be_decided_from_the_object_alone_is_refused_by_the_api_server(cluster) {
        refuses_and_takes(cluster).await;
    }

    async fn name_zone_reference_and_zone_name_are_immutable(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.stop().await;
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        let moved = [
            (rig.rrset("other", "A", &["192.0.2.1"]), "name is immutable"),
            (rrset("other.example", "Zone", "www", "A", &["192.0.2.1"]), "zoneRef is immutable"),
            (rrset(&rig.zone, "ClusterZone", "www", "A", &["192.0.2.1"]), "zoneRef is immutable"),
        ];
        for (spec, message) in moved {
            let error = rig.try_put("RRset", &rig.namespace, "www", spec).await.unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        rig.put("RRset", "www", rig.rrset("www", "TXT", &["\"the type may change\""])).await;
        let named = |name: Option<&str>| {
            let mut spec = zone_spec();
            if let Some(name) = name {
                spec["zoneName"] = json!(name);
            }
            spec
        };
        rig.put("Zone", &rig.zone, named(Some("_a.example"))).await;
        for other in [Some("_b.example"), None] {
            let error = rig.try_put("Zone", &rig.namespace, &rig.zone, named(other)).await.unwrap_err().to_string();
            assert!(error.contains("zoneName is immutable"), "{error}");
        }
    }
}
