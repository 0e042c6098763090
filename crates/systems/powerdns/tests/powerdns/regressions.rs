//! Flaws that operators of this kind have had, each with its test.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use signpost_provider_powerdns::{Action, Change, Comment, CommentChange, Secret, SetContent, ZoneServer};
use signpost_testkit::{Fault, Rule, eventually, on_both};

use crate::rig::{PATIENCE, Rig, by_hand, condition, rrset, zone_spec};

on_both! {
    async fn deleting_a_duplicate_keeps_the_winner(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("winner", "www", "A", &["192.0.2.1"]).await;
        rig.put("RRset", "loser", rig.rrset("www", "A", &["192.0.2.2"])).await;
        rig.until_refused("RRset", "loser", "Duplicated").await;
        let writes = rig.at_rest().await;
        rig.delete("RRset", "loser").await;
        rig.until_gone("RRset", "loser").await;
        assert_eq!(rig.proxy.writes(), writes);
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }

    async fn deleting_a_duplicate_zone_keeps_the_winner(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        let other = rig.cluster.namespace("other").await;
        rig.put_in("Zone", &other, &rig.zone, zone_spec()).await;
        rig.until_in("Zone", &other, &rig.zone, "Failed").await;
        rig.api_in("Zone", &other).delete(&rig.zone, &kube::api::DeleteParams::default()).await.unwrap();
        eventually("the loser is gone", PATIENCE, || async {
            match rig.api_in("Zone", &other).get_opt(&rig.zone).await { Ok(None) => Ok(()), other => Err(format!("{other:?}")) }
        }).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }

    async fn a_server_error_is_only_for_a_while(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.proxy.add(Rule::next(2, Fault::status(500)).method(http::Method::PATCH));
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        assert_eq!(rig.proxy.seen().iter().filter(|seen| seen.faulty).count(), 2, "it was refused twice");
    }

    async fn a_zone_and_its_record_sets_can_be_applied_together(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let (first, zone, last) = (
            rig.put("RRset", "a", rig.rrset("a", "A", &["192.0.2.1"])),
            rig.put("Zone", &rig.zone, zone_spec()),
            rig.put("RRset", "b", rig.rrset("b", "A", &["192.0.2.2"])),
        );
        tokio::join!(first, zone, last);
        rig.until("Zone", &rig.zone, "Succeeded").await;
        rig.until("RRset", "a", "Succeeded").await;
        rig.until("RRset", "b", "Succeeded").await;
    }

    async fn a_zone_that_failed_and_was_fixed_wakes_its_record_sets(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("Zone", &rig.zone, json!({ "kind": "Native", "nameservers": ["ns1.example.org"], "catalog": "not..a.name" })).await;
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until("Zone", &rig.zone, "Failed").await;
        rig.until_refused("RRset", "www", "ZoneNotAvailable").await;
        rig.put("Zone", &rig.zone, zone_spec()).await;
        rig.until("RRset", "www", "Succeeded").await;
    }

    async fn a_record_set_of_an_invalid_type_can_be_deleted(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.put("RRset", "bad", rig.rrset("bad", "AA", &["1.1.1.1"])).await;
        rig.until("RRset", "bad", "Failed").await;
        rig.delete("RRset", "bad").await;
        rig.until_gone("RRset", "bad").await;
    }

    async fn an_address_becomes_an_alias_in_one_patch(cluster) {
        let Some((_server, rig)) = Rig::alone(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.at_rest().await;
        rig.proxy.forget();
        rig.put("RRset", "www", rig.rrset("www", "CNAME", &["web.example.org"])).await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_served("www", "CNAME", &["web.example.org."]).await;
        assert_eq!(rig.set("www", "A").await, None);
        assert_eq!(rig.proxy.count(&http::Method::PATCH, "/zones/"), 1);
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.9"])).await;
        rig.until_served("www", "A", &["192.0.2.9"]).await;
        assert_eq!(rig.set("www", "CNAME").await, None);
    }

    async fn a_removed_comment_is_removed(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let mut spec = rig.rrset("www", "A", &["192.0.2.1"]);
        spec["comment"] = json!("soon gone");
        rig.put("RRset", "www", spec).await;
        rig.until("RRset", "www", "Succeeded").await;
        assert_eq!(rig.set("www", "A").await.unwrap().comments.len(), 1);
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until("RRset", "www", "Succeeded").await;
        assert_eq!(rig.set("www", "A").await.unwrap().comments, []);
    }

    async fn comments_of_others_stay_when_ours_is_written_or_removed(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let spec = |comment: Option<&str>| {
            let mut spec = rig.rrset("www", "A", &["192.0.2.1"]);
            if let Some(comment) = comment {
                spec["comment"] = json!(comment);
            }
            spec
        };
        rig.put("RRset", "www", spec(Some("ours"))).await;
        rig.until("RRset", "www", "Succeeded").await;
        let set = rig.set("www", "A").await.unwrap();
        let theirs = Comment { content: "ticket 7".into(), account: "admin".into(), modified_at: Some(1_700_000_000) };
        let both: Vec<Comment> = set.comments.iter().cloned().chain([theirs.clone()]).collect();
        let content = SetContent { ttl: set.ttl, records: set.contents.into(), comment: None };
        let action = Action::Replace { content: Arc::new(content), comment: CommentChange::Are(both.into()) };
        let (zone, changes) = (rig.zone_name(), [Change { name: set.name, rtype: set.rtype, action }]);
        by_hand("adding a comment", async || rig.server.patch(&zone, &changes).await).await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes, "a comment of somebody else is no difference");
        let comments = || async {
            let mut comments = rig.set("www", "A").await.unwrap().comments;
            comments.sort_by(|a, b| a.account.cmp(&b.account));
            comments
        };
        rig.put("RRset", "www", spec(Some("changed"))).await;
        rig.until("RRset", "www", "Succeeded").await;
        let now = comments().await;
        assert_eq!((&now[0], now[1].content.as_str(), now.len()), (&theirs, "changed", 2), "{now:?}");
        rig.put("RRset", "www", spec(None)).await;
        rig.until("RRset", "www", "Succeeded").await;
        assert_eq!(comments().await, [theirs]);
    }

    async fn a_removed_catalog_is_removed(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("Zone", &rig.zone, json!({ "kind": "Master", "nameservers": ["ns1.example.org"], "catalog": "catalog.example" })).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        assert_eq!(rig.contents().await.unwrap().info.catalog, "catalog.example.");
        rig.put("Zone", &rig.zone, json!({ "kind": "Master", "nameservers": ["ns1.example.org"] })).await;
        let status = rig.until("Zone", &rig.zone, "Succeeded").await;
        assert_eq!(rig.contents().await.unwrap().info.catalog, "");
        assert!(status["catalog"].is_null(), "{status}");
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
    }

    async fn reordered_records_are_not_written(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1", "192.0.2.2"]).await;
        let writes = rig.at_rest().await;
        rig.served("www", "www", "A", &["192.0.2.2", "192.0.2.1"]).await;
        assert_eq!(rig.proxy.writes(), writes);
    }

    async fn an_expanded_ipv6_address_is_written_once(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("six", "six", "AAAA", &["2001:0db8:0000:0000:0000:0000:0000:0001"]).await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
        assert_eq!(rig.after_a_read().await, writes, "nor when it is read again");
        rig.served("six", "six", "AAAA", &["2001:DB8::1"]).await;
        assert_eq!(rig.proxy.writes(), writes);
    }

    async fn an_undotted_alias_is_written_once(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "CNAME", &["web.example.org"]).await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
        rig.restart().await;
        assert_eq!(rig.after_a_resync().await, writes, "a new process finds nothing to do either");
    }

    async fn the_serial_never_goes_down_when_a_start_of_authority_is_written(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("Zone", &rig.zone, json!({ "kind": "Native", "nameservers": ["ns1.example.org"], "soa_edit_api": "INCREASE" })).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        for n in 0..3 {
            rig.served(&format!("r{n}"), &format!("r{n}"), "A", &["192.0.2.1"]).await;
        }
        let before = rig.serial().await;
        rig.served("soa", "@", "SOA", &["ns1.example.org. host.example.org. 1 10800 3600 604800 3600"]).await;
        let after = rig.serial().await;
        assert!(after > before, "{after} is not above {before}");
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes, "the SOA is not written again for its serial");
        rig.served("soa", "@", "SOA", &["ns1.example.org. host.example.org. 1 7200 3600 604800 3600"]).await;
        assert!(rig.serial().await > after);
        rig.delete("RRset", "soa").await;
        rig.until_gone("RRset", "soa").await;
        assert!(rig.set("@", "SOA").await.is_some(), "a zone without a start of authority is no zone");
    }

    async fn a_consumer_zone_is_created(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("Zone", &rig.zone, json!({ "kind": "Consumer", "masters": ["192.0.2.53"] })).await;
        let status = rig.until("Zone", &rig.zone, "Succeeded").await;
        assert_eq!((&status["kind"], &status["masters"]), (&json!("Consumer"), &json!(["192.0.2.53"])));
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until_refused("RRset", "www", "ZoneNotAvailable").await;
    }

    async fn a_slave_zone_has_its_masters(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("Zone", &rig.zone, json!({ "kind": "Slave", "masters": ["192.0.2.53", "192.0.2.54:5300"] })).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        let info = rig.contents().await.unwrap().info;
        assert_eq!((info.kind.as_str(), info.masters), ("Slave", vec!["192.0.2.53".to_owned(), "192.0.2.54:5300".to_owned()]));
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
        rig.put("Zone", &rig.zone, json!({ "kind": "Slave", "masters": ["192.0.2.55"] })).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        assert_eq!(rig.contents().await.unwrap().info.masters, ["192.0.2.55"]);
    }

    async fn a_wiped_server_gets_every_record_back(cluster) {
        let Some((server, rig)) = Rig::alone(cluster).await else { return };
        rig.zone().await;
        for n in 0..20 {
            rig.put("RRset", &format!("r{n}"), rig.rrset(&format!("r{n}"), "A", &["192.0.2.1"])).await;
        }
        rig.until("RRset", "r19", "Succeeded").await;
        rig.at_rest().await;
        let before = rig.serial().await;
        eventually("the status has the serial", PATIENCE, || async {
            let serial = rig.get("Zone", &rig.zone).await["status"]["serial"].as_u64();
            if serial == Some(u64::from(before)) { Ok(()) } else { Err(serial) }
        }).await;
        server.wipe().await;
        for n in 0..20 {
            rig.until_served(&format!("r{n}"), "A", &["192.0.2.1"]).await;
        }
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
        let after = rig.serial().await;
        assert!(after > before, "secondaries ignore {after} after {before}");
    }

    async fn a_hung_request_of_one_zone_does_not_block_another(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let second = format!("second.{}", rig.zone);
        rig.put("Zone", &second, zone_spec()).await;
        rig.until("Zone", &second, "Succeeded").await;
        rig.stop().await;
        rig.set_timeout(Duration::from_secs(20));
        rig.start();
        rig.until_ledger_clear("Zone", &second).await;
        rig.proxy.add(Rule::every(Fault::Hang).method(http::Method::PATCH).path(&format!("/zones/{}.", rig.zone)));
        rig.put("RRset", "stuck", rig.rrset("stuck", "A", &["192.0.2.1"])).await;
        let seen = || rig.proxy.count(&http::Method::PATCH, &format!("/zones/{}.", rig.zone));
        eventually("the PATCH hangs", PATIENCE, || async { if seen() > 0 { Ok(()) } else { Err(()) } }).await;
        rig.put("RRset", "free", rrset(&second, "Zone", "free", "A", &["192.0.2.2"])).await;
        rig.until("RRset", "free", "Succeeded").await;
        rig.until_served("free.second", "A", &["192.0.2.2"]).await;
        rig.proxy.clear();
        rig.until("RRset", "stuck", "Succeeded").await;
    }

    async fn the_series_of_an_object_moves_with_its_status(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until("RRset", "www", "Pending").await;
        rig.until_states("rrsets_status", &rig.namespace, &["Pending"]).await;
        rig.zone().await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_states("rrsets_status", &rig.namespace, &["Succeeded"]).await;
        rig.put("RRset", "www", rig.rrset("www", "TXT", &["bare"])).await;
        rig.until("RRset", "www", "Failed").await;
        rig.until_states("rrsets_status", &rig.namespace, &["Failed"]).await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_states("rrsets_status", &rig.namespace, &[]).await;
    }

    async fn another_namespace_cannot_take_a_record_over(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("ClusterZone", &rig.zone, zone_spec()).await;
        rig.put("RRset", "www", rrset(&rig.zone, "ClusterZone", "www", "A", &["192.0.2.1"])).await;
        rig.until("RRset", "www", "Succeeded").await;
        let other = rig.cluster.namespace("other").await;
        rig.put_in("RRset", &other, "www", rrset(&rig.zone, "ClusterZone", "www", "A", &["203.0.113.66"])).await;
        rig.until_in("RRset", &other, "www", "Failed").await;
        let mut touched = rrset(&rig.zone, "ClusterZone", "www", "A", &["192.0.2.1"]);
        touched["ttl"] = json!(301);
        rig.put("RRset", "www", touched).await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_in("RRset", &other, "www", "Failed").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        rig.api_in("RRset", &other).delete("www", &kube::api::DeleteParams::default()).await.unwrap();
        eventually("the other is gone", PATIENCE, || async {
            match rig.api_in("RRset", &other).get_opt("www").await { Ok(None) => Ok(()), other => Err(format!("{other:?}")) }
        }).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }

    async fn a_key_is_rotated_without_a_restart(cluster) {
        let Some((server, mut rig)) = Rig::alone(cluster).await else { return };
        rig.stop().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let old = server.api_key();
        std::fs::write(&file, &old).unwrap();
        rig.set_key(Secret::File(file.clone()));
        rig.start();
        rig.zone().await;
        server.replace_api_key("the-new-key").await;
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        // While the server comes up with its new key it cannot be reached at all; then it refuses the old one.
        let status = eventually("the key is refused", PATIENCE, || async {
            let status = rig.get("RRset", "www").await["status"].clone();
            let refused = condition(&status, "Ready")["reason"] == "ProviderUnauthorized";
            if refused && status["syncStatus"] == "Failed" { Ok(status) } else { Err(status.to_string()) }
        })
        .await;
        assert!(!status.to_string().contains(&old), "{status}");
        std::fs::write(&file, "the-new-key\n").unwrap();
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }

    async fn a_serial_above_two_to_the_31_is_in_the_status(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("Zone", &rig.zone, json!({ "kind": "Native", "nameservers": ["ns1.example.org"], "soa_edit_api": "INCREASE" })).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        rig.served("soa", "@", "SOA", &["ns1.example.org. host.example.org. 4294967000 10800 3600 604800 3600"]).await;
        eventually("the serial is large", PATIENCE, || async {
            let serial = rig.get("Zone", &rig.zone).await["status"]["serial"].as_u64();
            if serial.is_some_and(|serial| serial >= 4_294_967_000) { Ok(()) } else { Err(serial) }
        }).await;
        assert!(rig.serial().await >= 4_294_967_000);
    }
}
