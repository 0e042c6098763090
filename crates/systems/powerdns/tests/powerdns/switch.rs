//! Taking over from PowerDNS-Operator: what it left on the server and in the cluster is taken up as it is.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use signpost_dns::Fqdn;
use signpost_provider_powerdns::{
    Action, Change, Comment, CommentChange, LEGACY_COMMENT_ACCOUNT, NewZone, SetContent, ZoneServer, ZoneSettings,
};
use signpost_testkit::{eventually, on_both};

use crate::rig::{PATIENCE, Rig, by_hand, zone_spec};

/// Name, type, the record as the manifest has it and as the server does, and a comment.
const SETS: &[(&str, &str, &str, &str, Option<&str>)] = &[
    ("www", "A", "192.0.2.1", "192.0.2.1", Some("nothing to tell")),
    ("six", "AAAA", "2001:0db8:0000::0001", "2001:db8::1", None),
    ("alias", "CNAME", "Target.example.org", "target.example.org.", None),
    ("mail", "MX", "10 mail.example.org", "10 mail.example.org.", None),
    ("text", "TXT", "\"v=spf1 -all\"", "\"v=spf1 -all\"", None),
];

impl Rig {
    /// An object as the other operator leaves it: both finalizers, its owner, and its status.
    async fn left_behind(&self, kind: &str, name: &str, spec: Value, status: Value) {
        self.put(kind, name, spec).await;
        let mut metadata = json!({
            "finalizers": ["dns.cav.enablers.ob/metrics", "dns.cav.enablers.ob/external-resources"],
        });
        if kind == "RRset" {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "Zone", "name": self.zone, "controller": true,
                "blockOwnerDeletion": true, "uid": self.get("Zone", &self.zone).await["metadata"]["uid"],
            }]);
        }
        let params = PatchParams { field_manager: Some("manager".into()), ..PatchParams::default() };
        let api = self.api(kind);
        api.patch(name, &params, &Patch::Merge(json!({ "metadata": metadata }))).await.unwrap();
        api.patch_status(name, &params, &Patch::Merge(json!({ "status": status }))).await.unwrap();
    }
}

fn status(sync: &str, more: &Value) -> Value {
    let reason = if sync == "Succeeded" { "Succeeded" } else { "SynchronizationFailed" };
    let mut status = json!({
        "syncStatus": sync, "observedGeneration": 1,
        "conditions": [{
            "type": "Available", "status": if sync == "Succeeded" { "True" } else { "False" }, "reason": reason,
            "message": reason, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    for (field, value) in more.as_object().unwrap() {
        status[field] = value.clone();
    }
    status
}

async fn other_operator_was_here(rig: &Rig) {
    let zone = NewZone {
        name: rig.zone_name(),
        kind: "Native".into(),
        nameservers: ["ns1.example.org", "ns2.example.org"].map(|host| Fqdn::parse(host).unwrap()).into(),
        settings: ZoneSettings { soa_edit_api: Some("DEFAULT".into()), ..ZoneSettings::default() },
    };
    by_hand("making the zone", async || rig.server.create(&zone).await).await;
    let changes: Vec<Change> = SETS
        .iter()
        .map(|(name, rtype, _, record, comment)| {
            let comments: Vec<Comment> = comment
                .map(|content| Comment {
                    content: content.to_owned(),
                    account: LEGACY_COMMENT_ACCOUNT.to_owned(),
                    modified_at: None,
                })
                .into_iter()
                .collect();
            let content = SetContent { ttl: 300, records: Box::new([Box::from(*record)]), comment: None };
            let comment = if comments.is_empty() { CommentChange::Keep } else { CommentChange::Are(comments.into()) };
            let action = Action::Replace { content: Arc::new(content), comment };
            Change { name: Fqdn::parse(&rig.fqdn(name)).unwrap(), rtype: rtype.parse().unwrap(), action }
        })
        .collect();
    by_hand("writing records", async || rig.server.patch(&zone.name, &changes).await).await;
    let serial = rig.serial().await;
    let zone_status =
        json!({ "id": rig.fqdn("@"), "name": rig.fqdn("@"), "kind": "Native", "serial": serial, "dnssec": false });
    rig.left_behind("Zone", &rig.zone, zone_spec(), status("Succeeded", &zone_status)).await;
    for (name, rtype, record, _, comment) in SETS {
        let mut spec = rig.rrset(name, rtype, &[record]);
        if let Some(comment) = comment {
            spec["comment"] = json!(comment);
        }
        let said = json!({ "dnsEntryName": rig.fqdn(name), "lastUpdateTime": "2026-01-01T00:00:00Z" });
        rig.left_behind("RRset", name, spec, status("Succeeded", &said)).await;
    }
}

on_both! {
    async fn what_powerdns_operator_left_is_taken_up_without_a_write_to_the_server(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.stop().await;
        other_operator_was_here(&rig).await;
        let serial = rig.serial().await;
        rig.start();
        for (name, ..) in SETS {
            eventually(&format!("{name} says what it has written"), PATIENCE, || async {
                let status = rig.get("RRset", name).await["status"].clone();
                let right = status["applied"]["name"] == rig.fqdn(name) && status["syncStatus"] == "Succeeded";
                if right { Ok(()) } else { Err(status) }
            })
            .await;
        }
        rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, 0, "{:?}", rig.proxy.seen());
        assert_eq!(rig.serial().await, serial);
        let object = rig.get("RRset", "www").await;
        assert_eq!(object["metadata"]["ownerReferences"][0]["name"], rig.zone.as_str(), "left as it is");

        // From here on it is like any other: deleted with its record, whatever finalizers are on it.
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www", "A", &[]).await;
        rig.until_served("mail", "MX", &["10 mail.example.org."]).await;
    }

    async fn what_powerdns_operator_gave_up_is_served(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.stop().await;
        other_operator_was_here(&rig).await;
        rig.left_behind("RRset", "late", rig.rrset("late", "A", &["192.0.2.9"]), status("Failed", &json!({}))).await;
        rig.start();
        rig.until("RRset", "late", "Succeeded").await;
        rig.until_served("late", "A", &["192.0.2.9"]).await;
    }

    async fn a_zone_of_powerdns_operator_goes_with_all_that_it_owns(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.stop().await;
        other_operator_was_here(&rig).await;
        rig.start();
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        assert!(rig.contents().await.is_none());
        for (name, ..) in SETS {
            // Without a garbage collector in the API server, the test does its work.
            let _ = rig.api("RRset").delete(name, &kube::api::DeleteParams::default()).await;
            rig.until_gone("RRset", name).await;
        }
    }
}
