//! Zones from creation to deletion.

use serde_json::json;
use signpost_testkit::{eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, zone_spec};

on_both! {
    async fn a_zone_is_created_with_its_status_finalizer_and_one_series(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("Zone", &rig.zone, zone_spec()).await;
        let status = rig.until("Zone", &rig.zone, "Succeeded").await;
        assert_eq!(status["name"], rig.fqdn("@"));
        assert_eq!(status["kind"], "Native");
        assert_eq!(status["dnssec"], false);
        assert!(status["serial"].as_u64().unwrap() > 2_000_000_000, "{status}");
        assert_eq!(condition(&status, "Available")["reason"], "Succeeded");
        assert_eq!(condition(&status, "Ready")["status"], "True");
        let object = rig.get("Zone", &rig.zone).await;
        assert_eq!(object["metadata"]["finalizers"], json!(["dns.cav.enablers.ob/external-resources"]));
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
        rig.until_states("zones_status", &rig.zone, &["Succeeded"]).await;
    }

    async fn a_zone_goes_from_the_server_with_its_object(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("Zone", &rig.zone, json!({ "kind": "Master", "nameservers": ["ns1.example.org"] })).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        assert_eq!(rig.contents().await.unwrap().info.kind, "Master");
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        assert!(rig.contents().await.is_none());
        rig.until_states("zones_status", &rig.zone, &[]).await;
    }

    async fn changed_name_servers_are_served_and_the_serial_rises(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let before = rig.serial().await;
        rig.put("Zone", &rig.zone, json!({ "kind": "Native", "nameservers": ["ns3.example.org"] })).await;
        rig.until_served("@", "NS", &["ns3.example.org."]).await;
        let status = rig.until("Zone", &rig.zone, "Succeeded").await;
        assert!(rig.serial().await > before);
        assert_eq!(status["serial"].as_u64(), Some(u64::from(rig.serial().await)));
        assert_eq!(rig.set("@", "NS").await.unwrap().ttl, 3600, "the TTL of the NS set is kept");
    }

    async fn a_zone_changes_its_kind_through_all_kinds(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        for kind in ["Master", "Producer", "Native", "Slave", "Consumer", "Native"] {
            let spec = match kind {
                "Slave" | "Consumer" => json!({ "kind": kind, "masters": ["192.0.2.53"] }),
                _ => json!({ "kind": kind, "nameservers": ["ns1.example.org"] }),
            };
            rig.put("Zone", &rig.zone, spec).await;
            let status = rig.until("Zone", &rig.zone, "Succeeded").await;
            assert_eq!(status["kind"], kind);
            assert_eq!(rig.contents().await.unwrap().info.kind, kind);
        }
    }

    async fn a_changed_catalog_is_sent(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.put("Zone", &rig.zone, json!({ "kind": "Master", "nameservers": ["ns1.example.org"], "catalog": "catalog.example" })).await;
        let status = rig.until("Zone", &rig.zone, "Succeeded").await;
        assert_eq!(status["catalog"], "catalog.example.");
        assert_eq!(rig.contents().await.unwrap().info.catalog, "catalog.example.");
    }

    async fn a_changed_soa_edit_api_is_sent(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let spec = |mode: &str, account: &str| {
            json!({ "kind": "Native", "nameservers": ["ns1.example.org"], "soa_edit_api": mode, "account": account })
        };
        let mut before = 0;
        for (n, mode) in ["INCREASE", "EPOCH", "INCREASE", "DEFAULT"].into_iter().enumerate() {
            rig.put("Zone", &rig.zone, spec(mode, "a")).await;
            rig.until("Zone", &rig.zone, "Succeeded").await;
            rig.served("www", "www", "A", &[&format!("192.0.2.{n}")]).await;
            let info = rig.contents().await.unwrap().info;
            assert_eq!(info.soa_edit_api, mode);
            assert!(info.serial > before, "{mode}: {} is not above {before}", info.serial);
            before = info.serial;
        }
        // From a serial that spells a date, the time is a step back: everything but that is done.
        rig.put("Zone", &rig.zone, spec("EPOCH", "b")).await;
        let status = rig.until("Zone", &rig.zone, "Failed").await;
        let ready = condition(&status, "Ready");
        assert!(ready["reason"] == "InvalidSpec" && ready["message"].as_str().unwrap().contains("EPOCH"), "{status}");
        rig.served("www", "www", "A", &["192.0.2.9"]).await;
        let info = rig.contents().await.unwrap().info;
        assert_eq!((info.soa_edit_api.as_str(), info.account.as_str()), ("DEFAULT", "b"));
        assert!(info.serial > before, "{} is not above {before}", info.serial);
    }

    async fn a_new_zone_names_its_first_name_server_as_primary(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let soa = rig.set("@", "SOA").await.unwrap().contents[0].to_string();
        assert!(soa.starts_with(&format!("ns1.example.org. hostmaster.{}. ", rig.zone)), "{soa}");
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes, "the SOA is not written again");
    }

    async fn a_zone_that_is_on_the_server_already_is_adopted(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.foreign_zone().await;
        rig.tamper("kept", "A", Some(&["192.0.2.7"])).await;
        rig.zone().await;
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
        rig.until_served("kept", "A", &["192.0.2.7"]).await;
    }

    async fn an_adopted_zone_goes_whole_with_its_object_unless_it_is_retained(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.foreign_zone().await;
        rig.tamper("kept", "A", Some(&["192.0.2.7"])).await;
        let mut spec = zone_spec();
        spec["deletionPolicy"] = json!("Retain");
        rig.put("Zone", &rig.zone, spec).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        rig.until_served("kept", "A", &["192.0.2.7"]).await;

        rig.zone().await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        assert!(rig.contents().await.is_none());
    }

    async fn a_zone_that_is_on_the_server_already_is_left_alone_when_adoption_is_refused(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.foreign_zone().await;
        let mut spec = zone_spec();
        spec["adoptionPolicy"] = json!("Refuse");
        rig.put("Zone", &rig.zone, spec).await;
        let status = rig.until("Zone", &rig.zone, "Failed").await;
        assert_eq!(condition(&status, "Ready")["reason"], "ForeignRecord");
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until_refused("RRset", "www", "ZoneNotAvailable").await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        assert_eq!(rig.proxy.writes(), 0);
        assert!(rig.contents().await.is_some());
    }

    async fn a_zone_that_refuses_adoption_is_made_when_there_is_none(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        let mut spec = zone_spec();
        spec["adoptionPolicy"] = json!("Refuse");
        rig.put("Zone", &rig.zone, spec).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        rig.restart().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        assert!(rig.contents().await.is_none());
    }

    async fn a_zone_deleted_on_the_server_is_made_again_when_its_object_changes(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.server_delete().await;
        rig.put("Zone", &rig.zone, json!({ "kind": "Native", "nameservers": ["ns5.example.org"] })).await;
        rig.until_served("@", "NS", &["ns5.example.org."]).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
    }

    async fn a_zone_object_goes_although_its_zone_is_gone_from_the_server(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.server_delete().await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
    }

    async fn a_second_zone_of_that_name_in_another_namespace_fails(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.without_resync().await;
        rig.zone().await;
        let other = rig.cluster.namespace("other").await;
        rig.put_in("Zone", &other, &rig.zone, json!({ "kind": "Native", "nameservers": ["evil.example"] })).await;
        let status = rig.until_in("Zone", &other, &rig.zone, "Failed").await;
        let available = condition(&status, "Available");
        assert_eq!(available["reason"], "Duplicated");
        assert!(available["message"].as_str().unwrap().contains(&format!("Zone {}/{}", rig.namespace, rig.zone)), "{available}");
        assert!(rig.metrics().contains("powerdns_refusals_total{reason=\"ClaimedByAnother\"} 1"), "{}", rig.metrics());
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
    }

    async fn a_cluster_zone_with_the_name_of_a_zone_fails(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.put("ClusterZone", &rig.zone, zone_spec()).await;
        rig.until_refused("ClusterZone", &rig.zone, "Duplicated").await;
        let writes = rig.proxy.writes();
        rig.delete("ClusterZone", &rig.zone).await;
        rig.until_gone("ClusterZone", &rig.zone).await;
        assert_eq!(rig.proxy.writes(), writes, "the loser never touches the server");
        rig.until("Zone", &rig.zone, "Succeeded").await;
    }

    async fn a_cluster_zone_is_created(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("ClusterZone", &rig.zone, zone_spec()).await;
        rig.until("ClusterZone", &rig.zone, "Succeeded").await;
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
        rig.delete("ClusterZone", &rig.zone).await;
        rig.until_gone("ClusterZone", &rig.zone).await;
        assert!(rig.contents().await.is_none());
    }

    async fn a_zone_with_the_name_of_a_cluster_zone_fails_and_takes_over_when_that_one_goes(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("ClusterZone", &rig.zone, zone_spec()).await;
        rig.until("ClusterZone", &rig.zone, "Succeeded").await;
        rig.put("RRset", "old", crate::rig::rrset(&rig.zone, "ClusterZone", "old", "A", &["192.0.2.1"])).await;
        rig.until("RRset", "old", "Succeeded").await;
        rig.put("Zone", &rig.zone, json!({ "kind": "Native", "nameservers": ["ns7.example.org"] })).await;
        rig.until_refused("Zone", &rig.zone, "Duplicated").await;
        rig.put("RRset", "new", rig.rrset("new", "A", &["192.0.2.2"])).await;
        rig.until_refused("RRset", "new", "ZoneNotAvailable").await;
        rig.delete("ClusterZone", &rig.zone).await;
        rig.until_gone("ClusterZone", &rig.zone).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        rig.until_served("@", "NS", &["ns7.example.org."]).await;
        rig.until_served("new", "A", &["192.0.2.2"]).await;
        rig.until("RRset", "old", "Pending").await;
        rig.until_served("old", "A", &[]).await;
    }

    async fn a_zone_deleted_before_its_record_sets_goes_first_and_they_wait(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        assert!(rig.contents().await.is_none());
        let status = rig.until("RRset", "www", "Pending").await;
        assert_eq!(condition(&status, "Available")["reason"], "ZoneMissing");
        rig.zone().await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        rig.delete("Zone", &rig.zone).await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_gone("Zone", &rig.zone).await;
    }

    async fn a_retained_zone_stays_on_the_server_and_its_records_can_still_be_deleted(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let mut spec = zone_spec();
        spec["deletionPolicy"] = json!("Retain");
        rig.put("Zone", &rig.zone, spec).await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.served("mail", "mail", "A", &["192.0.2.2"]).await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        rig.until("RRset", "www", "Pending").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www", "A", &[]).await;
        rig.until_served("mail", "A", &["192.0.2.2"]).await;
    }

    async fn a_retained_zone_keeps_the_records_of_objects_that_kubernetes_deletes_after_it(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let mut spec = zone_spec();
        spec["deletionPolicy"] = json!("Retain");
        rig.put("Zone", &rig.zone, spec).await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        let owner = json!({
            "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "Zone", "name": rig.zone,
            "uid": rig.get("Zone", &rig.zone).await["metadata"]["uid"],
        });
        let patch = json!({ "metadata": { "ownerReferences": [owner] } });
        let params = kube::api::PatchParams::default();
        rig.api("RRset").patch("www", &params, &kube::api::Patch::Merge(patch)).await.unwrap();
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        // Without a garbage collector in the API server, the test does its work.
        let _ = rig.api("RRset").delete("www", &kube::api::DeleteParams::default()).await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }

    async fn a_zone_named_by_its_spec_can_have_an_underscore_and_upper_case(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let mut spec = zone_spec();
        spec["zoneName"] = json!(format!("_MSDCS.{}", rig.zone));
        rig.put("Zone", "msdcs", spec).await;
        let status = rig.until("Zone", "msdcs", "Succeeded").await;
        assert_eq!(status["name"], format!("_msdcs.{}.", rig.zone));
        rig.put("RRset", "dc", crate::rig::rrset("msdcs", "Zone", "dc", "A", &["192.0.2.1"])).await;
        rig.until("RRset", "dc", "Succeeded").await;
        rig.until_served("dc._msdcs", "A", &["192.0.2.1"]).await;
        // An object without a dot in its name leaves it to the operator what is inside the zone.
        let (inside, outside) = (rig.fqdn("gc._msdcs"), rig.fqdn("gc"));
        rig.put("RRset", "inside", crate::rig::rrset("msdcs", "Zone", &inside, "A", &["192.0.2.2"])).await;
        rig.put("RRset", "outside", crate::rig::rrset("msdcs", "Zone", &outside, "A", &["192.0.2.3"])).await;
        rig.until_served("gc._msdcs", "A", &["192.0.2.2"]).await;
        let status = rig.until("RRset", "outside", "Failed").await;
        assert_eq!(condition(&status, "Ready")["reason"], "OutsideZone");
    }

    async fn an_absolute_name_is_held_against_the_name_of_the_zone_object(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let mut spec = zone_spec();
        spec["zoneName"] = json!(format!("_tcp.{}", rig.zone));
        let object = format!("tcp.{}", rig.zone);
        rig.put("Zone", &object, spec).await;
        let absolute = crate::rig::rrset(&object, "Zone", &rig.fqdn("ldap._tcp"), "A", &["192.0.2.1"]);
        let error = rig.try_put("RRset", &rig.namespace, "ldap", absolute).await.unwrap_err().to_string();
        assert!(error.contains("relative to the zone"), "{error}");
        rig.put("RRset", "ldap", crate::rig::rrset(&object, "Zone", "ldap", "A", &["192.0.2.1"])).await;
        rig.until_served("ldap._tcp", "A", &["192.0.2.1"]).await;
    }

    async fn a_delegation_and_the_zone_it_leads_to_are_no_duplicates(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let child = format!("child.{}", rig.zone);
        rig.put("Zone", &child, json!({ "kind": "Native", "nameservers": ["ns3.example.org"] })).await;
        rig.until("Zone", &child, "Succeeded").await;
        rig.served("delegation", "child", "NS", &["ns3.example.org."]).await;
        rig.put("RRset", "above", rig.rrset("child", "DS", &["12345 8 2 49FD46E6C4B45C55D4AC69CBD3CD34AC1AFE51DE8B91B5C2A0B0AAF7B10A9C2E"])).await;
        rig.until("RRset", "above", "Succeeded").await;
        rig.put("RRset", "below", crate::rig::rrset(&child, "Zone", "@", "TXT", &["\"below\""])).await;
        rig.until("RRset", "below", "Succeeded").await;
        rig.until_served("child", "TXT", &["\"below\""]).await;
        rig.until_served("child", "NS", &["ns3.example.org."]).await;
        assert!(rig.set("child", "NS").await.is_some(), "and the parent has its delegation");
        rig.delete("RRset", "delegation").await;
        rig.until_gone("RRset", "delegation").await;
        rig.until_served("child", "NS", &["ns3.example.org."]).await;
    }

    async fn a_start_of_authority_in_the_spec_is_served(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let mut spec = zone_spec();
        spec["soa"] = json!({ "primary": "ns1.example.org", "mailbox": "host.master@example.org", "refresh": 7200 });
        rig.put("Zone", &rig.zone, spec).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        eventually("the SOA is served", PATIENCE, || async {
            let soa = rig.set("@", "SOA").await.unwrap().contents[0].to_string();
            let right = soa.starts_with("ns1.example.org. host\\.master.example.org. ") && soa.contains(" 7200 3600 604800 3600");
            if right { Ok(()) } else { Err(soa) }
        }).await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes, "the SOA is not written again");
    }
}

impl Rig {
    /// Deletes the zone behind the operator's back.
    pub async fn server_delete(&self) {
        use signpost_provider_powerdns::ZoneServer;
        let zone = self.zone_name();
        assert!(crate::rig::by_hand("deleting the zone", async || self.server.delete(&zone).await).await);
    }
}
