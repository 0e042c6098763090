//! A PowerDNS that fails in every way it can. The result is always correct, nothing foreign is touched, and the rest continues.

use std::time::Duration;

use signpost_testkit::{Cluster, Fault, PowerDns, Rule, eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, lmdb_server, rrset, zone_spec};

impl Rig {
    /// Creates so many addresses at once: `r0` to `rN`.
    pub async fn many(&self, count: usize) {
        use futures::StreamExt;
        let put = |n: usize| async move {
            let name = format!("r{n}");
            self.put("RRset", &name, self.rrset(&name, "A", &["192.0.2.1"])).await;
        };
        futures::stream::iter(0..count).map(put).buffer_unordered(16).collect::<Vec<()>>().await;
    }

    pub async fn until_all(&self, count: usize, sync: &str) {
        eventually(&format!("{count} are {sync}"), PATIENCE * 2, || async {
            let list =
                self.api("RRset").list(&kube::api::ListParams::default()).await.map_err(|error| error.to_string())?;
            let so = list.items.iter().filter(|object| object.data["status"]["syncStatus"] == sync).count();
            if so == count { Ok(()) } else { Err(format!("{so} of {}", list.items.len())) }
        })
        .await;
    }
}

/// A server of one's own with a foreign record in the zone.
async fn rig_with_foreign_record(cluster: Cluster) -> Option<(PowerDns, Rig)> {
    let (server, rig) = Rig::alone(cluster).await?;
    rig.zone().await;
    rig.tamper("foreign", "A", Some(&["203.0.113.1"])).await;
    Some((server, rig))
}

on_both! {
    async fn a_server_killed_in_the_middle_of_a_batch_ends_with_everything_served(cluster) {
        let Some((server, mut rig)) = rig_with_foreign_record(cluster).await else { return };
        // No look at the zone comes between, so that the next request is the batch.
        rig.without_resync().await;
        rig.served("r0", "r0", "A", &["192.0.2.1"]).await;
        rig.at_rest().await;
        rig.proxy.forget();
        // It takes the request and dies before it has answered.
        server.pause();
        rig.many(60).await;
        let batch = || rig.proxy.seen().into_iter().find(|seen| seen.method == http::Method::PATCH);
        eventually("a PATCH is on its way", PATIENCE, || async { batch().map(drop).ok_or(()) }).await;
        server.kill();
        assert_eq!(batch().unwrap().status, None, "it was cut");
        server.restart().await;
        rig.until_all(60, "Succeeded").await;
        rig.until_served("r59", "A", &["192.0.2.1"]).await;
        rig.until_served("foreign", "A", &["203.0.113.1"]).await;
        assert_eq!(rig.contents().await.unwrap().sets.len(), 63, "60, the foreign one, NS and SOA");
    }

    async fn a_server_that_hangs_is_waited_for(cluster) {
        let Some((server, mut rig)) = rig_with_foreign_record(cluster).await else { return };
        rig.stop().await;
        rig.set_timeout(Duration::from_millis(500));
        rig.start();
        rig.served("before", "before", "A", &["192.0.2.1"]).await;
        server.pause();
        rig.put("RRset", "during", rig.rrset("during", "A", &["192.0.2.2"])).await;
        let status = rig.until("RRset", "during", "Failed").await;
        assert_eq!(condition(&status, "Ready")["reason"], "ProviderUnreachable");
        let before = rig.get("RRset", "before").await;
        assert_eq!(before["status"]["syncStatus"], "Succeeded", "what is served stays so");
        server.resume();
        rig.until("RRset", "during", "Succeeded").await;
        rig.until_served("during", "A", &["192.0.2.2"]).await;
        rig.until_served("foreign", "A", &["203.0.113.1"]).await;
    }

    async fn a_server_that_asks_to_slow_down_is_obeyed(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.at_rest().await;
        rig.proxy.add(Rule::next(1, Fault::throttled(2)).method(http::Method::PATCH));
        let start = std::time::Instant::now();
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
        rig.until("RRset", "www", "Succeeded").await;
    }

    async fn an_error_in_one_zone_touches_neither_another_zone_nor_what_is_foreign(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.tamper("foreign", "A", Some(&["203.0.113.1"])).await;
        rig.served("before", "before", "A", &["192.0.2.1"]).await;
        let second = format!("second.{}", rig.zone);
        rig.put("Zone", &second, zone_spec()).await;
        rig.until("Zone", &second, "Succeeded").await;
        for (fault, reason) in [(Fault::status(500), "ProviderUnreachable"), (Fault::throttled(1), "ProviderThrottled")] {
            let name = reason.to_lowercase();
            rig.proxy.add(Rule::every(fault).method(http::Method::PATCH).path(&format!("/zones/{}", rig.zone)));
            rig.put("RRset", &name, rig.rrset(&name, "A", &["192.0.2.2"])).await;
            let status = rig.until("RRset", &name, "Failed").await;
            assert_eq!(condition(&status, "Ready")["reason"], reason, "{status}");
            let other = format!("other-{name}");
            rig.put("RRset", &other, rrset(&second, "Zone", &name, "A", &["192.0.2.3"])).await;
            rig.until("RRset", &other, "Succeeded").await;
            rig.until_served(&format!("{name}.second"), "A", &["192.0.2.3"]).await;
            rig.until_served("before", "A", &["192.0.2.1"]).await;
            rig.proxy.clear();
            rig.until("RRset", &name, "Succeeded").await;
            rig.until_served(&name, "A", &["192.0.2.2"]).await;
        }
        rig.until_served("foreign", "A", &["203.0.113.1"]).await;
        rig.at_rest().await;
        assert_eq!(rig.contents().await.unwrap().sets.len(), 6, "before, two new ones, the foreign one, NS and SOA");
    }

    async fn a_refusal_is_an_event_on_its_object(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.put("RRset", "text", rig.rrset("text", "TXT", &["no quotes"])).await;
        rig.until("RRset", "text", "Failed").await;
        let foreign = format!("bad.{}", rig.zone);
        let spec = serde_json::json!({ "kind": "Native", "nameservers": ["ns1.example.org"], "catalog": "not..a.name" });
        rig.put("Zone", &foreign, spec).await;
        rig.until("Zone", &foreign, "Failed").await;
        let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(rig.client.clone(), &rig.namespace);
        for (kind, name, reason) in [("RRset", "text", "UnquotedText"), ("Zone", foreign.as_str(), "InvalidName")] {
            let uid = rig.get(kind, name).await["metadata"]["uid"].as_str().map(str::to_owned);
            let event = eventually(&format!("{kind} {name} has its event"), PATIENCE, || async {
                let events = events.list(&kube::api::ListParams::default()).await.map_err(|error| error.to_string())?;
                let of_it = events.items.into_iter().find(|event| event.involved_object.name.as_deref() == Some(name));
                of_it.ok_or_else(|| "none".to_owned())
            })
            .await;
            let object = &event.involved_object;
            assert_eq!((object.kind.as_deref(), &object.uid), (Some(kind), &uid), "{event:?}");
            assert_eq!((object.namespace.as_deref(), object.api_version.as_deref()), (Some(rig.namespace.as_str()), Some("dns.cav.enablers.ob/v1alpha2")));
            assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some(reason)), "{event:?}");
            assert!(!event.message.unwrap_or_default().is_empty());
        }
    }

    async fn a_lost_answer_is_found_out_and_nothing_is_written_twice(cluster) {
        let Some((_server, rig)) = Rig::alone(cluster).await else { return };
        rig.zone().await;
        rig.at_rest().await;
        rig.proxy.forget();
        rig.proxy.add(Rule::next(1, Fault::CutAfter).method(http::Method::PATCH));
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        rig.until("RRset", "www", "Succeeded").await;
        assert_eq!(rig.proxy.count(&http::Method::PATCH, "/zones/"), 1, "the second look finds it there");
    }

    async fn a_proxy_that_answers_nonsense_deletes_nothing(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.at_rest().await;
        rig.proxy.forget();
        let nonsense = Fault::Answer { status: 200, headers: vec![], body: "<html>login</html>".into() };
        rig.proxy.add(Rule::every(nonsense));
        rig.put("RRset", "more", rig.rrset("more", "A", &["192.0.2.2"])).await;
        rig.until("RRset", "www", "Succeeded").await;
        eventually("it was asked", PATIENCE, || async { if rig.proxy.seen().len() > 2 { Ok(()) } else { Err(()) } }).await;
        rig.proxy.clear();
        rig.until_served("more", "A", &["192.0.2.2"]).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        assert_eq!(rig.proxy.count(&http::Method::DELETE, "/"), 0);
    }

    async fn one_bad_record_of_a_thousand_is_the_only_one_that_fails(cluster) {
        let Some((_server, mut rig)) = Rig::alone(cluster).await else { return };
        rig.zone().await;
        rig.stop().await;
        rig.set_timeout(Duration::from_mins(1));
        rig.set_pace(|pace| pace.retry_refused = Duration::from_mins(5));
        rig.many(999).await;
        // Well-formed here, unknown to the server.
        rig.put("RRset", "bad", rig.rrset("bad", "NOTYPE", &["1 2 3"])).await;
        rig.proxy.forget();
        rig.start();
        rig.until_all(999, "Succeeded").await;
        let status = rig.until("RRset", "bad", "Failed").await;
        assert!(condition(&status, "Available")["message"].to_string().contains("NOTYPE"), "{status}");
        let patches = rig.proxy.count(&http::Method::PATCH, "/zones/");
        assert!(patches <= 4, "{patches} PATCHes: one refused, one without the bad record");
    }

    async fn a_record_that_drifted_is_put_right_and_a_foreign_one_is_left_alone(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.at_rest().await;
        rig.tamper("www", "A", Some(&["203.0.113.9"])).await;
        rig.tamper("foreign", "TXT", Some(&["\"not ours\""])).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
        rig.until_served("foreign", "TXT", &["\"not ours\""]).await;
        assert!(rig.metrics().contains("powerdns_repaired_total 1"), "{}", rig.metrics());
    }

    async fn a_hand_edit_just_before_a_write_of_ours_is_not_hidden_by_it(cluster) {
        let Some((_server, mut rig)) = Rig::alone(cluster).await else { return };
        // The clock does not come to help.
        rig.without_resync().await;
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.served("mail", "mail", "A", &["192.0.2.2"]).await;
        // It need not read its own writes.
        let read = |rig: &Rig| rig.metrics().lines().find(|line| line.contains("powerdns_reads_total{depth=\"records\"}")).map(str::to_owned);
        let before = read(&rig);
        rig.served("ftp", "ftp", "A", &["192.0.2.4"]).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(read(&rig), before);
        rig.tamper("www", "A", Some(&["203.0.113.9"])).await;
        rig.put("RRset", "mail", rig.rrset("mail", "A", &["192.0.2.3"])).await;
        rig.until_served("mail", "A", &["192.0.2.3"]).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }

    async fn a_hand_edit_just_before_a_write_of_the_soa_is_not_hidden_by_it(cluster) {
        let Some((_server, mut rig)) = Rig::alone(cluster).await else { return };
        rig.without_resync().await;
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.at_rest().await;
        rig.tamper("www", "A", Some(&["203.0.113.9"])).await;
        // The serial in an SOA of the user's is the one that the write leads to.
        let soa = "ns1.example.org. hostmaster.example.org. 4000000000 3600 600 604800 300";
        rig.put("RRset", "soa", rig.rrset("@", "SOA", &[soa])).await;
        rig.until("RRset", "soa", "Succeeded").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }

    async fn readiness_says_that_the_server_is_down(cluster) {
        let Some((server, rig)) = rig_with_foreign_record(cluster).await else { return };
        server.kill();
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        let status = rig.until("RRset", "www", "Failed").await;
        assert_eq!(condition(&status, "Ready")["reason"], "ProviderUnreachable");
        let down = format!("{:?}", rig.readiness());
        assert!(down.contains("cannot be reached"), "{down}");
        server.restart().await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_ready().await;
    }

    async fn lmdb_serves_the_same(cluster) {
        let Some(server) = lmdb_server().await else { return };
        let rig = Rig::on(cluster, server).await;
        rig.put("ClusterZone", &rig.zone, zone_spec()).await;
        rig.until("ClusterZone", &rig.zone, "Succeeded").await;
        for (name, rtype, record) in [("www", "A", "192.0.2.1"), ("txt", "TXT", "\"hello\""), ("six", "AAAA", "2001:db8::1")] {
            rig.put("RRset", name, rrset(&rig.zone, "ClusterZone", name, rtype, &[record])).await;
            rig.until("RRset", name, "Succeeded").await;
            rig.until_served(name, rtype, &[record]).await;
        }
        rig.until_ledger_clear("ClusterZone", &rig.zone).await;
        let writes = rig.proxy.writes();
        assert_eq!(rig.after_a_resync().await, writes);
        let mut spec = rrset(&rig.zone, "ClusterZone", "www", "A", &["192.0.2.1"]);
        spec["comment"] = serde_json::json!("LMDB keeps none");
        rig.put("RRset", "www", spec).await;
        let status = rig.until("RRset", "www", "Succeeded").await;
        assert_eq!(condition(&status, "Notice")["reason"], "CommentNotKept", "{status}");
        assert!(condition(&status, "Notice")["message"].to_string().contains("comment"), "{status}");
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upper_case_hexadecimal_digits_are_written_once_on_lmdb() {
    let Some(server) = lmdb_server().await else { return };
    let mut rig = Rig::on(signpost_testkit::sandbox_cluster().await, server).await;
    rig.zone().await;
    let digest = "49FD46E6C4B45C55D4AC69CBD3CD34AC1AFE51DE8B91B5C2A0B0AAF7B10A9C2E";
    for (name, rtype, record) in [
        ("@", "CDS", format!("12345 8 2 {digest}")),
        ("smimea", "SMIMEA", format!("3 1 1 {digest}")),
        ("dlv", "DLV", format!("12345 8 2 {digest}")),
        ("param", "NSEC3PARAM", "1 0 0 AABB".to_owned()),
    ] {
        rig.put("RRset", &rtype.to_lowercase(), rig.rrset(name, rtype, &[&record])).await;
        rig.until("RRset", &rtype.to_lowercase(), "Succeeded").await;
    }
    let writes = rig.at_rest().await;
    assert_eq!(rig.after_a_read().await, writes);
}
