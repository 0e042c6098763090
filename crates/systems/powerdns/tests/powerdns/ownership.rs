//! Only records that are provably ours are deleted, whenever the process dies.

use serde_json::json;
use signpost_testkit::{Fault, Rule, eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, zone_spec};

on_both! {
    async fn a_record_written_by_a_process_that_died_goes_with_its_object(cluster) {
        let Some((_server, mut rig)) = Rig::alone(cluster).await else { return };
        rig.without_resync().await;
        rig.zone().await;
        rig.at_rest().await;
        // The PATCH arrives, its answer does not, and then the process dies: no finalizer, no status.
        rig.proxy.add(Rule::next(1, Fault::CutAfter).method(http::Method::PATCH));
        rig.proxy.add(Rule::every(Fault::Hang));
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        rig.crash().await;
        rig.proxy.clear();
        let ledger = rig.get("Zone", &rig.zone).await["status"]["inFlight"].clone();
        assert!(ledger[0].as_str().unwrap().starts_with("www A "), "{ledger}");
        let object = rig.get("RRset", "www").await;
        if object["metadata"]["finalizers"].is_null() {
            rig.delete("RRset", "www").await;
            rig.until_gone("RRset", "www").await;
        } else {
            rig.delete("RRset", "www").await;
        }
        rig.start();
        rig.until_served("www", "A", &[]).await;
        rig.until_ledger_clear("Zone", &rig.zone).await;
        rig.until_gone("RRset", "www").await;
    }

    async fn a_foreign_record_where_one_was_to_be_written_is_never_deleted(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.at_rest().await;
        rig.tamper("www", "A", Some(&["203.0.113.1"])).await;
        // The ledger is written, the PATCH never arrives.
        rig.proxy.add(Rule::every(Fault::CutBefore).method(http::Method::PATCH));
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        eventually("the ledger lists it", PATIENCE, || async {
            let ledger = rig.get("Zone", &rig.zone).await["status"]["inFlight"].clone();
            if ledger.is_array() { Ok(()) } else { Err(ledger) }
        }).await;
        rig.crash().await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.proxy.clear();
        rig.start();
        rig.until_ledger_clear("Zone", &rig.zone).await;
        rig.until_served("www", "A", &["203.0.113.1"]).await;
    }

    async fn an_object_that_never_wrote_is_deletable_while_the_server_is_down(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.at_rest().await;
        rig.proxy.add(Rule::every(Fault::CutBefore));
        rig.put("RRset", "bad", rig.rrset("bad", "TXT", &["unquoted"])).await;
        rig.until("RRset", "bad", "Failed").await;
        rig.delete("RRset", "bad").await;
        rig.until_gone("RRset", "bad").await;
    }

    async fn an_object_that_became_invalid_keeps_serving_what_it_had(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.put("RRset", "www", rig.rrset("www", "A", &["not an address"])).await;
        rig.until("RRset", "www", "Failed").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www", "A", &[]).await;
    }

    async fn an_alias_cannot_push_out_what_is_served_at_its_name(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("older", "www", "A", &["192.0.2.1"]).await;
        rig.served("mail", "www", "MX", &["10 mail.example.org."]).await;
        rig.put("RRset", "older", rig.rrset("www", "CNAME", &["web.example.org."])).await;
        let status = rig.until("RRset", "older", "Failed").await;
        assert_eq!(condition(&status, "Ready")["reason"], "CnameConflict");
        rig.until_served("www", "MX", &["10 mail.example.org."]).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        rig.delete("RRset", "mail").await;
        rig.until_gone("RRset", "mail").await;
        rig.until("RRset", "older", "Succeeded").await;
        rig.until_served("www", "CNAME", &["web.example.org."]).await;
    }

    async fn a_restart_writes_nothing_anywhere(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.many(30).await;
        rig.until_all(30, "Succeeded").await;
        rig.at_rest().await;
        let versions = |rig: &Rig| {
            let api = rig.api("RRset");
            async move {
                let list = api.list(&kube::api::ListParams::default()).await.unwrap();
                list.items.into_iter().map(|object| object.metadata.resource_version).collect::<Vec<_>>()
            }
        };
        let before = versions(&rig).await;
        rig.stop().await;
        rig.proxy.forget();
        rig.start();
        assert_eq!(rig.after_a_resync().await, 0);
        assert_eq!(versions(&rig).await, before);
    }

    async fn a_changed_status_is_put_right(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        let patch = json!({ "status": { "syncStatus": "Failed" } });
        let params = kube::api::PatchParams::default();
        rig.api("RRset").patch_status("www", &params, &kube::api::Patch::Merge(patch)).await.unwrap();
        rig.until("RRset", "www", "Succeeded").await;
    }
    async fn a_changed_status_of_a_zone_is_put_right(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let cluster_zone = format!("wide.{}", rig.zone);
        rig.zone().await;
        rig.put("ClusterZone", &cluster_zone, zone_spec()).await;
        for (kind, name) in [("Zone", &rig.zone), ("ClusterZone", &cluster_zone)] {
            let before = rig.until(kind, name, "Succeeded").await;
            for patch in [
                json!({ "syncStatus": "Failed", "serial": 1, "id": "nonsense" }),
                json!({ "conditions": null, "observedGeneration": 0 }),
                json!({ "syncStatus": "Failed", "serial": 1, "id": "nonsense" }),
            ] {
                rig.set_status(kind, name, patch).await;
                eventually("the status is as it was", PATIENCE, || async {
                    let status = rig.get(kind, name).await["status"].clone();
                    let same = ["syncStatus", "serial", "id", "observedGeneration"]
                        .iter()
                        .all(|field| status[*field] == before[*field])
                        && condition(&status, "Ready")["status"] == "True"
                        && condition(&status, "Available")["status"] == "True";
                    if same { Ok(()) } else { Err(status.to_string()) }
                })
                .await;
            }
        }
    }

    async fn a_condition_of_somebody_else_on_a_zone_is_left_alone(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.at_rest().await;
        let audited = json!({
            "type": "Audited", "status": "True", "reason": "Looked", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        rig.set_status("Zone", &rig.zone, json!({ "conditions": [audited] })).await;
        let types = |object: &serde_json::Value| {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let mut types: Vec<String> = conditions.iter().map(|c| c["type"].as_str().unwrap().to_owned()).collect();
            types.sort();
            types
        };
        eventually("ours are back", PATIENCE, || async {
            let types = types(&rig.get("Zone", &rig.zone).await);
            if types == ["Audited", "Available", "Ready"] { Ok(()) } else { Err(types) }
        })
        .await;
        rig.after_a_resync().await;
        let version = rig.get("Zone", &rig.zone).await["metadata"]["resourceVersion"].clone();
        rig.after_a_resync().await;
        let after = rig.get("Zone", &rig.zone).await;
        assert_eq!(after["metadata"]["resourceVersion"], version, "nothing is written again");
        assert_eq!(types(&after), ["Audited", "Available", "Ready"]);
    }
}

impl Rig {
    /// Changes a status as `kubectl edit --subresource=status` does.
    async fn set_status(&self, kind: &str, name: &str, status: serde_json::Value) {
        let params = kube::api::PatchParams { field_manager: Some("kubectl-edit".into()), ..Default::default() };
        let patch = kube::api::Patch::Merge(json!({ "status": status }));
        self.api(kind).patch_status(name, &params, &patch).await.unwrap();
    }
}
