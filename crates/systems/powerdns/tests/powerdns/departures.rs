//! Zone objects that are deleted: what stays, what is deleted with them, and the next owner.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use signpost_testkit::{Fault, Rule, eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, rrset, zone_spec};

fn with(field: &str, value: &str) -> Value {
    let mut spec = zone_spec();
    spec[field] = json!(value);
    spec
}

impl Rig {
    /// A zone object that is served and whose zone stays when it is deleted.
    async fn retained_zone(&self) {
        self.put("Zone", &self.zone, with("deletionPolicy", "Retain")).await;
        self.until("Zone", &self.zone, "Succeeded").await;
    }

    async fn delete_zone(&self) {
        self.delete("Zone", &self.zone).await;
        self.until_gone("Zone", &self.zone).await;
    }

    /// The requests to the server about this name and type since the proxy was reset.
    fn asked_for(&self, name: &str, rtype: &str) -> Vec<String> {
        let name = self.fqdn(name);
        let bodies = self.proxy.seen().into_iter().filter(|seen| seen.method == http::Method::PATCH);
        let changes = bodies.flat_map(|seen| {
            let body: Value = serde_json::from_str(&seen.body).unwrap();
            body["rrsets"].as_array().cloned().unwrap_or_default()
        });
        let ours = changes.filter(|change| change["name"] == *name && change["type"] == rtype);
        ours.map(|change| change["changetype"].as_str().unwrap().to_owned()).collect()
    }
}

const SOA: &str = "ns9.example.org. host.example.org. 1 7200 3600 604800 3600";

on_both! {
    async fn a_retained_zone_keeps_its_name_servers_whatever_a_duplicate_wants(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.retained_zone().await;
        rig.put("RRset", "ns", rig.rrset("@", "NS", &["ns9.example.org."])).await;
        rig.until_refused("RRset", "ns", "Duplicated").await;
        rig.delete_zone().await;
        rig.until_refused("RRset", "ns", "ZoneMissing").await;
        let served = ["ns1.example.org.", "ns2.example.org."];
        rig.until_served("@", "NS", &served).await;
        rig.delete("RRset", "ns").await;
        rig.until_gone("RRset", "ns").await;
        rig.until_served("@", "NS", &served).await;
        assert_eq!(rig.asked_for("@", "NS"), [""; 0]);
    }

    async fn an_heir_takes_a_zone_over_without_a_gap_and_the_start_of_authority_stays(cluster) {
        let Some((_server, rig)) = Rig::alone(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.served("old", "old", "A", &["192.0.2.1"]).await;
        rig.served("soa", "@", "SOA", &[SOA]).await;
        let other = rig.cluster.namespace("heir").await;
        rig.put_in("Zone", &other, &rig.zone, zone_spec()).await;
        rig.until_in("Zone", &other, &rig.zone, "Failed").await;
        rig.put_in("RRset", &other, "theirs", rig.rrset("www", "A", &["192.0.2.2"])).await;
        rig.until_in("RRset", &other, "theirs", "Failed").await;
        rig.at_rest().await;
        rig.proxy.forget();
        rig.delete_zone().await;
        rig.until_in("Zone", &other, &rig.zone, "Succeeded").await;
        rig.until_in("RRset", &other, "theirs", "Succeeded").await;
        rig.until_served("www", "A", &["192.0.2.2"]).await;
        rig.until_served("old", "A", &[]).await;
        assert_eq!(rig.asked_for("www", "A"), ["REPLACE"], "it was served all the time");
        assert_eq!(rig.asked_for("@", "SOA"), [""; 0]);
        assert!(rig.set("@", "SOA").await.is_some());
        for object in ["www", "old", "soa"] {
            rig.until_refused("RRset", object, "ZoneMissing").await;
            rig.delete("RRset", object).await;
            rig.until_gone("RRset", object).await;
        }
        rig.until_served("www", "A", &["192.0.2.2"]).await;
    }

    async fn who_refuses_a_zone_it_did_not_make_is_given_a_new_one(cluster) {
        let Some((_server, rig)) = Rig::alone(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        let other = rig.cluster.namespace("heir").await;
        rig.put_in("Zone", &other, &rig.zone, with("adoptionPolicy", "Refuse")).await;
        rig.until_in("Zone", &other, &rig.zone, "Failed").await;
        rig.delete_zone().await;
        rig.until_in("Zone", &other, &rig.zone, "Succeeded").await;
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
        rig.until_served("www", "A", &[]).await;
        assert_eq!(rig.proxy.count(&http::Method::DELETE, "/zones/"), 1, "the first one went whole");
        rig.api_in("Zone", &other).delete(&rig.zone, &DeleteParams::default()).await.unwrap();
        eventually("the heir is gone", PATIENCE, || async {
            rig.api_in("Zone", &other).get_opt(&rig.zone).await.unwrap().map_or(Ok(()), Err)
        }).await;
        assert!(rig.contents().await.is_none());
    }

    async fn what_is_retained_can_be_deleted_while_the_server_is_down(cluster) {
        let Some((server, mut rig)) = Rig::alone(cluster).await else { return };
        rig.retained_zone().await;
        let mut spec = rig.rrset("kept", "A", &["192.0.2.1"]);
        spec["deletionPolicy"] = json!("Retain");
        rig.put("RRset", "kept", spec).await;
        rig.until("RRset", "kept", "Succeeded").await;
        rig.served("gone", "gone", "A", &["192.0.2.2"]).await;
        rig.at_rest().await;
        // Nothing is remembered of the zone either.
        rig.stop().await;
        server.kill();
        rig.start();
        rig.delete("RRset", "kept").await;
        rig.until_gone("RRset", "kept").await;
        rig.delete("RRset", "gone").await;
        rig.until_refused("RRset", "gone", "SynchronizationFailed").await;
        rig.delete_zone().await;
        server.restart().await;
        rig.until_gone("RRset", "gone").await;
        rig.until_served("gone", "A", &[]).await;
        rig.until_served("kept", "A", &["192.0.2.1"]).await;
    }

    async fn a_record_goes_with_its_object_although_its_zone_is_refused_as_foreign(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.retained_zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.served("stays", "stays", "A", &["192.0.2.2"]).await;
        rig.at_rest().await;
        rig.delete_zone().await;
        rig.put("Zone", &rig.zone, with("adoptionPolicy", "Refuse")).await;
        let status = rig.until("Zone", &rig.zone, "Failed").await;
        assert_eq!(condition(&status, "Ready")["reason"], "ForeignRecord");
        rig.until_refused("RRset", "stays", "ZoneNotAvailable").await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www", "A", &[]).await;
        rig.until_served("stays", "A", &["192.0.2.2"]).await;
        rig.delete_zone().await;
        rig.until_served("stays", "A", &["192.0.2.2"]).await;
    }

    async fn a_zone_object_made_anew_for_another_zone_takes_its_record_sets_there(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        for zone in ["first", "second"] {
            let mut spec = with("deletionPolicy", "Retain");
            spec["zoneName"] = json!(format!("{zone}.{}", rig.zone));
            rig.put("Zone", "office", spec).await;
            rig.until("Zone", "office", "Succeeded").await;
            if zone == "first" {
                rig.put("RRset", "www", rrset("office", "Zone", "www", "A", &["192.0.2.1"])).await;
                rig.until("RRset", "www", "Succeeded").await;
                rig.until_served("www.first", "A", &["192.0.2.1"]).await;
                rig.until_ledger_clear("Zone", "office").await;
                rig.delete("Zone", "office").await;
                rig.until_gone("Zone", "office").await;
                rig.until("RRset", "www", "Pending").await;
            }
        }
        let status = rig.until("RRset", "www", "Succeeded").await;
        assert_eq!(status["dnsEntryName"], rig.fqdn("www.second"));
        rig.until_served("www.second", "A", &["192.0.2.1"]).await;
        rig.until_served("www.first", "A", &["192.0.2.1"]).await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www.second", "A", &[]).await;
    }

    async fn a_zone_that_appeared_in_the_moment_it_was_to_be_made_is_adopted(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.foreign_zone().await;
        rig.tamper("foreign", "A", Some(&["203.0.113.1"])).await;
        // A foreign writer is faster: the zone is missing when it is looked up, which is done twice, and exists when it is to be created.
        let missing = Fault::Answer { status: 404, headers: vec![], body: "Not Found".into() };
        rig.proxy.add(Rule::next(2, missing).method(http::Method::GET).path("/zones/"));
        rig.zone().await;
        let answers: Vec<Option<u16>> =
            rig.proxy.seen().iter().filter(|seen| seen.method == http::Method::POST).map(|seen| seen.status).collect();
        assert_eq!(answers, [Some(409)]);
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
        rig.until_served("foreign", "A", &["203.0.113.1"]).await;
    }
}
