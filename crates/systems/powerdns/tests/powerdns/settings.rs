//! Settings of zones, from the spec to the server and no further.

use serde_json::{Value, json};
use signpost_provider_powerdns::{ZoneInfo, ZoneServer, ZoneSettings};
use signpost_testkit::{dig, dig_signed, eventually, on_both};

use crate::rig::{PATIENCE, Rig, by_hand, condition, zone_spec};

fn with(field: &str, value: Value) -> Value {
    let mut spec = zone_spec();
    spec[field] = value;
    spec
}

impl Rig {
    async fn info(&self) -> ZoneInfo {
        self.contents().await.unwrap().info
    }

    /// Applies the zone object and waits until it is served.
    async fn put_zone(&self, spec: Value) -> Value {
        self.put("Zone", &self.zone, spec).await;
        self.until("Zone", &self.zone, "Succeeded").await
    }

    /// Waits until the zone's keys are answered.
    async fn until_signed(&self) {
        eventually("the zone's keys are served", PATIENCE, || async {
            let answer = dig(self.dns, &self.fqdn("@"), "DNSKEY").await;
            if answer.records.is_empty() { Err(answer) } else { Ok(()) }
        })
        .await;
    }

    async fn by_hand(&self, settings: ZoneSettings) {
        let zone = self.zone_name();
        by_hand("changing settings", async || self.server.configure(&zone, &settings).await).await;
    }

    /// Whether any request ever asked for the zone to be unsigned.
    fn asked_to_unsign(&self) -> bool {
        let compact = |body: &str| body.split_whitespace().collect::<String>();
        self.proxy.seen().iter().any(|seen| compact(&seen.body).contains("\"dnssec\":false"))
    }
}

on_both! {
    async fn a_new_zone_is_signed_when_it_says_so(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let status = rig.put_zone(with("dnssec", json!(true))).await;
        assert_eq!(status["dnssec"], true);
        rig.until_signed().await;
        let info = rig.info().await;
        assert!(info.dnssec && info.api_rectify, "{info:?}");
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.until_proven("www").await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
    }

    async fn an_existing_zone_is_signed_when_it_says_so_and_rectified_from_then_on(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.served("before", "before", "A", &["192.0.2.1"]).await;
        let info = rig.info().await;
        assert!(!info.dnssec && !info.api_rectify, "{info:?}");
        rig.put_zone(with("dnssec", json!(true))).await;
        rig.until_signed().await;
        let info = rig.info().await;
        assert!(info.dnssec && info.api_rectify, "{info:?}");
        rig.served("after", "after", "A", &["192.0.2.2"]).await;
        rig.until_proven("before").await;
        rig.until_proven("after").await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
    }

    async fn a_zone_signed_by_hand_stays_signed(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.by_hand(ZoneSettings { dnssec: Some(true), ..ZoneSettings::default() }).await;
        rig.until_signed().await;
        rig.put_zone(json!({ "kind": "Master", "nameservers": ["ns3.example.org"], "soa_edit_api": "INCREASE" })).await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.restart().await;
        rig.after_a_resync().await;
        rig.until_signed().await;
        eventually("the status says so", PATIENCE, || async {
            let signed = rig.get("Zone", &rig.zone).await["status"]["dnssec"].clone();
            if signed == true { Ok(()) } else { Err(signed) }
        })
        .await;
        rig.until_proven("www").await;
        assert!(!rig.asked_to_unsign());
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
    }

    async fn a_zone_is_unsigned_only_when_it_says_so(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put_zone(with("dnssec", json!(true))).await;
        rig.until_signed().await;
        rig.put_zone(zone_spec()).await;
        rig.after_a_resync().await;
        rig.until_signed().await;
        assert!(!rig.asked_to_unsign(), "leaving the field out touches nothing");
        let status = rig.put_zone(with("dnssec", json!(false))).await;
        assert_eq!(status["dnssec"], false);
        assert!(!rig.info().await.dnssec);
    }

    async fn rectifying_is_off_for_a_zone_made_here_and_otherwise_as_the_spec_says(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        assert!(!rig.info().await.api_rectify);
        for rectify in [true, false] {
            rig.put_zone(with("apiRectify", json!(rectify))).await;
            assert_eq!(rig.info().await.api_rectify, rectify);
        }
        rig.put_zone(zone_spec()).await;
        rig.by_hand(ZoneSettings { api_rectify: Some(true), ..ZoneSettings::default() }).await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
        assert!(rig.info().await.api_rectify, "what the spec leaves out is left alone");
    }

    async fn an_account_is_sent_put_right_and_left_alone_without_one(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.put_zone(with("account", json!("team-a"))).await;
        assert_eq!(rig.info().await.account, "team-a");
        rig.put_zone(with("account", json!("team-b"))).await;
        assert_eq!(rig.info().await.account, "team-b");
        rig.by_hand(ZoneSettings { account: Some("somebody".into()), ..ZoneSettings::default() }).await;
        eventually("it is put right", PATIENCE, || async {
            let account = rig.info().await.account;
            if account == "team-b" { Ok(()) } else { Err(account) }
        })
        .await;
        rig.put_zone(zone_spec()).await;
        rig.by_hand(ZoneSettings { account: Some("somebody".into()), ..ZoneSettings::default() }).await;
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
        assert_eq!(rig.info().await.account, "somebody");
        rig.put_zone(with("account", json!(""))).await;
        assert_eq!(rig.info().await.account, "", "an empty one clears it");
    }

    async fn a_start_of_authority_in_the_spec_never_takes_the_serial_back(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let spec = |more: Value| {
            let mut spec = with("soa_edit_api", json!("INCREASE"));
            if !more.is_null() {
                spec["soa"] = more;
            }
            spec
        };
        rig.put_zone(spec(Value::Null)).await;
        let mut serial = rig.serial().await;
        for refresh in [7200, 3600, 1800] {
            rig.served(&format!("r{refresh}"), &format!("r{refresh}"), "A", &["192.0.2.1"]).await;
            let soa = json!({ "primary": "ns1.example.org", "mailbox": "hostmaster.example.org", "refresh": refresh });
            rig.put_zone(spec(soa)).await;
            eventually("the SOA is served", PATIENCE, || async {
                let soa = dig(rig.dns, &rig.fqdn("@"), "SOA").await;
                if soa.records.iter().any(|soa| soa.contains(&format!(" {refresh} 3600 604800 3600"))) { Ok(()) } else { Err(soa) }
            })
            .await;
            let now = rig.serial().await;
            assert!(now > serial, "{now} is not above {serial}");
            serial = now;
        }
        let zone = rig.get("Zone", &rig.zone).await;
        assert_eq!(zone["status"]["serial"].as_u64(), Some(u64::from(serial)));
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
        assert_eq!(rig.serial().await, serial);
    }

    async fn a_classless_reverse_zone_has_its_name_in_the_spec(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let zone = format!("0/25.2.0.192.{}", rig.zone);
        rig.put("Zone", "reverse-office", with("zoneName", json!(zone))).await;
        let status = rig.until("Zone", "reverse-office", "Succeeded").await;
        assert_eq!((status["name"].as_str(), status["id"].as_str()), (Some(&*format!("{zone}.")), Some(&*format!("{}.", zone.replace('/', "=2F")))));
        rig.put("RRset", "seven", crate::rig::rrset("reverse-office", "Zone", "7", "PTR", &["www.example.org."])).await;
        rig.until("RRset", "seven", "Succeeded").await;
        let name = signpost_dns::ZoneName::parse(&zone).unwrap();
        let pointers = async || {
            let contents = by_hand("reading the zone", async || rig.server.read(&name).await).await?;
            let pointers = contents.sets.into_iter().filter(|set| set.rtype.as_str() == "PTR");
            Some(pointers.map(|set| format!("{} {}", set.name, set.contents.join(" "))).collect::<Vec<_>>())
        };
        assert_eq!(pointers().await, Some(vec![format!("7.{zone}. www.example.org.")]));
        rig.delete("RRset", "seven").await;
        rig.until_gone("RRset", "seven").await;
        assert_eq!(pointers().await, Some(vec![]));
        rig.delete("Zone", "reverse-office").await;
        rig.until_gone("Zone", "reverse-office").await;
        assert_eq!(pointers().await, None);
    }

    async fn a_slave_zone_has_no_name_servers_and_no_records_of_its_own(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        // As manifests for PowerDNS-Operator have it, where name servers were mandatory.
        let spec = json!({ "kind": "Slave", "nameservers": ["ns1.example.org"], "masters": ["192.0.2.53:53", "2001:0db8::0053", "[2001:db8::54]:53", "[2001:db8::55]:5300"] });
        let status = rig.put_zone(spec).await;
        assert_eq!(status["kind"], "Slave");
        assert!(rig.contents().await.unwrap().sets.iter().all(|set| set.rtype.as_str() != "NS"));
        rig.put("RRset", "www", rig.rrset("www", "A", &["192.0.2.1"])).await;
        let status = rig.until_refused("RRset", "www", "ZoneNotAvailable").await;
        assert!(condition(&status, "Ready")["message"].as_str().unwrap().contains("masters"), "{status}");
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes, "the spelling of an address is no difference");
        // Once it is a zone of one's own, its records are served.
        rig.put_zone(zone_spec()).await;
        rig.until("RRset", "www", "Succeeded").await;
        rig.until_served("@", "NS", &["ns1.example.org.", "ns2.example.org."]).await;
    }
}

impl Rig {
    /// Waits until the address at the name is signed, and until it is proven that there is no text: that is what
    /// rectifying is for.
    async fn until_proven(&self, name: &str) {
        let name = self.fqdn(name);
        eventually(&format!("{name} is signed"), PATIENCE, || async {
            let (there, not_there) = (dig_signed(self.dns, &name, "A").await, dig_signed(self.dns, &name, "TXT").await);
            let signed = there.lines.iter().any(|line| line.contains(" RRSIG "));
            let proof = not_there.authority.iter().any(|line| line.starts_with(&name) && line.contains(" NSEC "));
            if signed && proof { Ok(()) } else { Err((there, not_there)) }
        })
        .await;
    }
}
