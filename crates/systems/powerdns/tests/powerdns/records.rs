//! Record sets from creation to deletion.

use serde_json::json;
use signpost_testkit::on_both;

use crate::rig::{Rig, condition, lmdb_server, rrset, zone_spec};

on_both! {
    async fn an_address_is_created_with_its_comment_ttl_finalizer_and_series(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let mut spec = rig.rrset("test", "A", &["1.1.1.1", "2.2.2.2"]);
        spec["comment"] = json!("nothing to tell");
        rig.put("RRset", "test", spec).await;
        let status = rig.until("RRset", "test", "Succeeded").await;
        assert_eq!(status["dnsEntryName"], rig.fqdn("test"));
        assert_eq!(status["applied"]["name"], rig.fqdn("test"));
        assert_eq!(status["applied"]["type"], "A");
        assert_eq!(condition(&status, "Available")["reason"], "Succeeded");
        assert_eq!(condition(&status, "Ready")["status"], "True");
        assert!(status["lastUpdateTime"].is_string());
        let set = rig.set("test", "A").await.unwrap();
        assert_eq!((set.ttl, set.comments[0].content.as_str()), (300, "nothing to tell"));
        rig.until_served("test", "A", &["1.1.1.1", "2.2.2.2"]).await;
        let object = rig.get("RRset", "test").await;
        assert_eq!(object["metadata"]["finalizers"], json!(["dns.cav.enablers.ob/external-resources"]));
        rig.until_states("rrsets_status", &rig.fqdn("test"), &["Succeeded"]).await;
        let metrics = rig.metrics();
        let typed = |line: &&str| line.contains(&rig.fqdn("test")) && line.contains("type=\"A\"");
        assert_eq!(metrics.lines().filter(typed).count(), 1, "{metrics}");
    }

    async fn changed_records_ttl_and_comment_are_served_and_the_serial_rises_each_time(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("test", "test", "A", &["1.1.1.1"]).await;
        let mut serial = rig.serial().await;
        let mut spec = rig.rrset("test", "A", &["3.3.3.3"]);
        for (field, value) in [("records", json!(["3.3.3.3"])), ("ttl", json!(60)), ("comment", json!("changed"))] {
            spec[field] = value;
            rig.put("RRset", "test", spec.clone()).await;
            let status = rig.until("RRset", "test", "Succeeded").await;
            let now = rig.serial().await;
            assert!(now > serial, "{field}");
            assert_eq!(status["serial"].as_u64(), Some(u64::from(now)), "{field}");
            serial = now;
        }
        let set = rig.set("test", "A").await.unwrap();
        assert_eq!((set.ttl, &*set.contents[0], set.comments[0].content.as_str()), (60, "3.3.3.3", "changed"));
    }

    async fn a_record_set_that_is_on_the_server_already_is_taken_over(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.tamper("test", "A", Some(&["9.9.9.9"])).await;
        rig.served("test", "test", "A", &["1.1.1.1"]).await;
        rig.until_served("test", "A", &["1.1.1.1"]).await;
        rig.delete("RRset", "test").await;
        rig.until_gone("RRset", "test").await;
        rig.until_served("test", "A", &[]).await;
    }

    async fn a_record_set_deleted_on_the_server_comes_back_when_its_object_changes(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("test", "test", "A", &["1.1.1.1"]).await;
        rig.tamper("test", "A", None).await;
        rig.put("RRset", "test", rig.rrset("test", "A", &["4.4.4.4"])).await;
        rig.until_served("test", "A", &["4.4.4.4"]).await;
    }

    async fn a_record_set_can_be_deleted_after_its_zone_was_deleted_on_the_server(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("test", "test", "A", &["1.1.1.1"]).await;
        rig.server_delete().await;
        rig.delete("RRset", "test").await;
        rig.until_gone("RRset", "test").await;
    }

    async fn an_unknown_type_fails_in_the_words_of_the_server_and_blocks_nobody(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.put("RRset", "bad", rig.rrset("bad", "AA", &["1.1.1.1"])).await;
        rig.put("RRset", "good", rig.rrset("good", "A", &["1.1.1.1"])).await;
        let status = rig.until("RRset", "bad", "Failed").await;
        let available = condition(&status, "Available");
        assert_eq!(available["reason"], "SynchronizationFailed");
        assert!(available["message"].as_str().unwrap().contains("unknown type"), "{available}");
        rig.until("RRset", "good", "Succeeded").await;
    }

    async fn a_service_without_its_final_dot_is_absolute_and_served(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("srv", "_http._tcp", "SRV", &["1 50 80 www.example.org"]).await;
        rig.until_served("_http._tcp", "SRV", &["1 50 80 www.example.org."]).await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
    }

    async fn text_without_quotes_fails_and_says_why(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let writes = rig.at_rest().await;
        rig.put("RRset", "txt", rig.rrset("txt", "TXT", &["no quotes"])).await;
        let status = rig.until("RRset", "txt", "Failed").await;
        assert_eq!(condition(&status, "Available")["reason"], "SynchronizationFailed");
        assert_eq!(condition(&status, "Ready")["reason"], "UnquotedText");
        assert_eq!(rig.proxy.writes(), writes, "it is not even sent");
    }

    async fn a_hint_that_the_server_should_fill_in_fails_and_is_not_sent(cluster) {
        // On LMDB a zone with such a record cannot be read any more.
        let Some(server) = lmdb_server().await else { return };
        let rig = Rig::on(cluster, server).await;
        rig.zone().await;
        let writes = rig.at_rest().await;
        for (object, rtype, hint) in [("four", "HTTPS", "ipv4hint=auto"), ("six", "SVCB", "ipv6hint=auto")] {
            rig.put("RRset", object, rig.rrset(object, rtype, &[&format!("1 . alpn=h2 {hint}")])).await;
            let status = rig.until("RRset", object, "Failed").await;
            let ready = condition(&status, "Ready");
            assert_eq!(ready["reason"], "Unsupported");
            assert!(ready["message"].as_str().unwrap().contains("auto"), "{ready}");
        }
        assert_eq!(rig.proxy.writes(), writes, "they are not even sent");
        rig.served("given", "given", "HTTPS", &["1 . alpn=h2 ipv4hint=192.0.2.1"]).await;
        assert!(rig.set("given", "HTTPS").await.is_some(), "the zone can be read");
    }

    async fn a_duplicate_fails_and_names_the_holder(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("first", "test", "A", &["1.1.1.1"]).await;
        rig.put("RRset", "second", rig.rrset(&rig.fqdn("TEST"), "A", &["2.2.2.2"])).await;
        let status = rig.until_refused("RRset", "second", "Duplicated").await;
        let message = condition(&status, "Available")["message"].to_string();
        assert!(message.contains(&format!("RRset {}/first", rig.namespace)), "{message}");
        assert_eq!(status["dnsEntryName"], rig.fqdn("test"));
        rig.until_served("test", "A", &["1.1.1.1"]).await;
    }

    async fn a_record_set_without_its_zone_waits_and_is_woken_by_it(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("RRset", "test", rig.rrset("test", "A", &["1.1.1.1"])).await;
        let status = rig.until("RRset", "test", "Pending").await;
        assert_eq!(condition(&status, "Available")["reason"], "ZoneMissing");
        let object = rig.get("RRset", "test").await;
        assert!(object["metadata"]["finalizers"].is_null(), "nothing was written, nothing holds it");
        rig.zone().await;
        rig.until("RRset", "test", "Succeeded").await;
    }

    async fn a_cluster_record_set_that_duplicates_a_record_set_fails(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("ClusterZone", &rig.zone, zone_spec()).await;
        rig.put("RRset", "test", rrset(&rig.zone, "ClusterZone", "test", "A", &["1.1.1.1"])).await;
        rig.until("RRset", "test", "Succeeded").await;
        let name = format!("test.{}", rig.zone);
        rig.put("ClusterRRset", &name, rrset(&rig.zone, "ClusterZone", "test", "A", &["2.2.2.2"])).await;
        rig.until_refused("ClusterRRset", &name, "Duplicated").await;
        rig.until_served("test", "A", &["1.1.1.1"]).await;
    }

    async fn a_record_set_that_duplicates_a_cluster_record_set_fails_until_that_one_goes(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("ClusterZone", &rig.zone, zone_spec()).await;
        let name = format!("test.{}", rig.zone);
        rig.put("ClusterRRset", &name, rrset(&rig.zone, "ClusterZone", "test", "A", &["1.1.1.1"])).await;
        rig.until("ClusterRRset", &name, "Succeeded").await;
        rig.until_served("test", "A", &["1.1.1.1"]).await;
        rig.put("RRset", "test", rrset(&rig.zone, "ClusterZone", "test", "A", &["2.2.2.2"])).await;
        rig.until_refused("RRset", "test", "Duplicated").await;
        rig.delete("ClusterRRset", &name).await;
        rig.until_gone("ClusterRRset", &name).await;
        rig.until("RRset", "test", "Succeeded").await;
        rig.until_served("test", "A", &["2.2.2.2"]).await;
    }

    async fn a_cluster_record_set_is_created_and_deleted(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put("ClusterZone", &rig.zone, zone_spec()).await;
        let name = format!("test.{}", rig.zone);
        rig.put("ClusterRRset", &name, rrset(&rig.zone, "ClusterZone", "test", "A", &["1.1.1.1"])).await;
        let status = rig.until("ClusterRRset", &name, "Succeeded").await;
        assert_eq!(status["dnsEntryName"], rig.fqdn("test"));
        rig.until_served("test", "A", &["1.1.1.1"]).await;
        rig.until_states("clusterrrsets_status", &name, &["Succeeded"]).await;
        rig.delete("ClusterRRset", &name).await;
        rig.until_gone("ClusterRRset", &name).await;
        rig.until_served("test", "A", &[]).await;
    }

    async fn a_record_set_is_created_updated_and_deleted(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        let mut spec = rig.rrset("www", "A", &["192.0.2.2", "192.0.2.3"]);
        spec["ttl"] = json!(120);
        rig.put("RRset", "www", spec).await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_served("www", "A", &["192.0.2.2", "192.0.2.3"]).await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www", "A", &[]).await;
    }

    async fn a_retained_record_set_stays_on_the_server(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        let mut spec = rig.rrset("www", "A", &["192.0.2.1"]);
        spec["deletionPolicy"] = json!("Retain");
        rig.put("RRset", "www", spec).await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
    }

    async fn a_record_set_at_the_apex_is_written_with_an_at_sign_or_the_absolute_name(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("at", "@", "TXT", &["\"at the top\""]).await;
        rig.served("absolute", &rig.fqdn("@"), "MX", &["10 mail.example.org."]).await;
        rig.until_served("@", "TXT", &["\"at the top\""]).await;
        rig.until_served("@", "MX", &["10 mail.example.org."]).await;
    }

    async fn the_apex_name_servers_are_the_zones(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.put("RRset", "ns", rig.rrset("@", "NS", &["evil.example."])).await;
        let status = rig.until_refused("RRset", "ns", "Duplicated").await;
        assert!(condition(&status, "Available")["message"].to_string().contains("Zone "), "{status}");
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
        rig.delete("RRset", "ns").await;
        rig.until_gone("RRset", "ns").await;
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
    }

    async fn a_finalizer_of_powerdns_operator_is_taken_off_with_ours(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        let patch = json!({ "metadata": { "finalizers": ["dns.cav.enablers.ob/external-resources", "dns.cav.enablers.ob/metrics"] } });
        let params = kube::api::PatchParams::default();
        rig.api("RRset").patch("www", &params, &kube::api::Patch::Merge(patch)).await.unwrap();
        rig.delete("RRset", "www").await;
        rig.until_gone("RRset", "www").await;
        rig.until_served("www", "A", &[]).await;
    }
}

/// One record of a type: created, answered by DNS, not written twice, deleted.
async fn lives(cluster: signpost_testkit::Cluster, name: &str, rtype: &str, records: &[&str], answered: &[&str]) {
    let Some(mut rig) = Rig::new(cluster).await else { return };
    rig.zone().await;
    rig.served("record", name, rtype, records).await;
    rig.until_served(name, rtype, answered).await;
    let writes = rig.at_rest().await;
    assert_eq!(rig.after_a_resync().await, writes, "nothing is written twice");
    assert_eq!(rig.after_a_read().await, writes, "nor when it is read again");
    rig.delete("RRset", "record").await;
    rig.until_gone("RRset", "record").await;
    assert_eq!(rig.set(name, rtype).await, None);
}

on_both! {
    async fn an_ipv6_address_lives(cluster) {
        lives(cluster, "six", "AAAA", &["2001:0db8:0000:0000:0000:0000:0000:0001"], &["2001:db8::1"]).await;
    }
    async fn an_alias_lives(cluster) {
        lives(cluster, "alias", "CNAME", &["Target.example.org"], &["target.example.org."]).await;
    }
    async fn a_wildcard_lives(cluster) {
        lives(cluster, "*.wild", "A", &["192.0.2.1"], &["192.0.2.1"]).await;
    }
    async fn a_mail_exchange_lives(cluster) {
        lives(cluster, "mx", "MX", &["10 mail.example.org", "20 backup.example.org."], &["10 mail.example.org.", "20 backup.example.org."]).await;
    }
    async fn a_delegation_lives(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("sub", "sub", "NS", &["ns1.sub.example.org.", "ns2.sub.example.org"]).await;
        let set = rig.set("sub", "NS").await.unwrap();
        assert_eq!(set.contents.len(), 2);
        let answer = signpost_testkit::dig(rig.dns, &rig.fqdn("host.sub"), "A").await;
        assert!(answer.authority.iter().any(|line| line.contains("ns2.sub.example.org.")), "{answer:?}");
    }
    async fn a_text_lives(cluster) {
        lives(cluster, "txt", "TXT", &["\"v=spf1 -all\""], &["\"v=spf1 -all\""]).await;
    }
    async fn a_service_lives(cluster) {
        lives(cluster, "_sip._tcp", "SRV", &["1 50 5060 sip.example.org."], &["1 50 5060 sip.example.org."]).await;
    }
    async fn a_certificate_authority_lives(cluster) {
        lives(cluster, "caa", "CAA", &["0 issue \"letsencrypt.org\""], &["0 issue \"letsencrypt.org\""]).await;
    }
    async fn a_pointer_lives(cluster) {
        lives(cluster, "5.2.0.192", "PTR", &["www.example.org."], &["www.example.org."]).await;
    }
    async fn a_wildcard_answers_for_names_that_are_not_there(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("wild", "*.wild", "A", &["192.0.2.1"]).await;
        rig.until_served("anything.wild", "A", &["192.0.2.1"]).await;
    }
}

/// A type and a record of it as people spell them, which is not always as the server does.
const SPELLINGS: &[(&str, &str)] = &[
    ("A", "192.0.2.1"),
    ("AAAA", "2001:0DB8:0::0001"),
    ("AFSDB", "1  AFS.example.org."),
    ("ALIAS", "Target.example.org."),
    ("APL", "1:192.168.32.0/21 !1:192.168.38.0/28"),
    ("CAA", "0 issue \"letsencrypt.org; validationmethods=dns-01\""),
    ("CDNSKEY", "257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ=="),
    ("CDS", "12345 8 2 49FD46E6C4B45C55D4AC69CBD3CD34AC1AFE51DE8B91B5C2A0B0AAF7B10A9C2E"),
    ("CERT", "1 0 0 MQ=="),
    ("CNAME", "Target.example.org"),
    ("CSYNC", "66 3 A NS AAAA"),
    ("DHCID", "AAIBY2/AuCccgoJbsaxcQc9TUapptP69lOjxfNuVAA2kjEA="),
    ("DLV", "12345 8 2 49FD46E6C4B45C55D4AC69CBD3CD34AC1AFE51DE8B91B5C2A0B0AAF7B10A9C2E"),
    ("DNAME", "Target.example.org"),
    ("DS", "12345 8 2 49fd46e6c4b45c55d4ac69cbd3cd34ac1afe51de8b91b5c2a0b0aaf7b10a9c2e"),
    ("EUI48", "00-00-5E-00-53-2A"),
    ("EUI64", "00-00-5E-EF-10-00-00-2A"),
    ("HINFO", "\"PC\" \"Linux\""),
    ("HTTPS", "1 . alpn=\"h3,h2\" port=443"),
    ("IPSECKEY", "10 1 2 192.0.2.38 AQNRU3mG7TVTO2BkR47usntb102uFJtugbo6BSGvgqt4AQ=="),
    ("KX", "10 kx.example.org."),
    ("L32", "10 10.1.2.0"),
    ("L64", "10 2001:0DB8:1140:1000"),
    ("LOC", "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m"),
    ("LP", "10 L64.example.org."),
    ("LUA", "A \"ifportup(443, {'192.0.2.1'})\""),
    ("MINFO", "a.example.org. b.example.org."),
    ("MX", "10   mail.example.org"),
    ("NAPTR", "100 50 \"s\" \"z3950+I2L+I2C\" \"\" _z3950._tcp.example.org"),
    ("NID", "10 0014:4FFF:FF20:EE64"),
    ("NS", "NS1.example.org"),
    ("NSEC3PARAM", "1 0 0 AABBCCDD"),
    ("OPENPGPKEY", "bWFpbA=="),
    ("PTR", "Host.example.org"),
    ("RP", "Admin.example.org. people.example.org."),
    ("SMIMEA", "3 1 1 D2ABDE240D7CD3EE6B4B28C54DF034B97983A1D16E8A410E4561CB106618E971"),
    ("SPF", "\"v=spf1 -all\""),
    ("SRV", "1 2 443   Web.example.org"),
    ("SSHFP", "1 1 AABBCCDDEEFF00112233445566778899AABBCCDD"),
    ("SVCB", "2 Svc.example.org. port=8443 alpn=h2"),
    ("TLSA", "3 1 1 D2ABDE240D7CD3EE6B4B28C54DF034B97983A1D16E8A410E4561CB106618E971"),
    ("TXT", "\"first\"   \"second; with \\\"quotes\\\" and \\\\\""),
    ("TYPE65534", "\\# 4 0A000001"),
    ("URI", "10 1 \"https://example.org/\""),
    (
        "ZONEMD",
        "2018031500 1 1 FEBE3D4CE2EC2FFA4BA99D46CD69D6D29711E55217057BEE7EB1A7B641A47BA7FED2DD5B97AE499FAFA4F22C6BD647DE",
    ),
];

/// Every spelling is accepted, and a read of all records finds nothing to write.
async fn spellings_read_back(mut rig: Rig) {
    rig.stop().await;
    rig.set_pace(|pace| pace.full_read = std::time::Duration::from_millis(1));
    rig.start();
    rig.zone().await;
    for (rtype, record) in SPELLINGS {
        let name = rtype.to_lowercase();
        rig.put("RRset", &name, rig.rrset(&format!("{name}.types"), rtype, &[record])).await;
    }
    for (rtype, _) in SPELLINGS {
        rig.until("RRset", &rtype.to_lowercase(), "Succeeded").await;
    }
    rig.at_rest().await;
    let (writes, patches) = (rig.after_a_resync().await, rig.proxy.seen());
    let last = patches.iter().rfind(|seen| seen.method == http::Method::PATCH).map(|seen| seen.body.clone());
    rig.proxy.forget();
    assert_eq!(rig.after_a_resync().await, 0, "{writes} writes so far, the last {last:?}");
}

on_both! {
    async fn every_spelling_is_written_once_on_sqlite(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        spellings_read_back(rig).await;
    }
    async fn every_spelling_is_written_once_on_lmdb(cluster) {
        let Some(server) = lmdb_server().await else { return };
        spellings_read_back(Rig::on(cluster, server).await).await;
    }
}
