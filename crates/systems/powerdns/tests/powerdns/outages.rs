//! A PowerDNS that refuses the key, or hangs for a minute: it is left alone, the rest continues, and the result is correct without help.

use std::time::{Duration, Instant};

use serde_json::json;
use signpost_provider_powerdns::Secret;
use signpost_testkit::{Fault, Rule, eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, own_server, rrset, zone_spec};

/// How many calls get through in that time when all of them fail: as many at once as there may be, then one trial after
/// 1, 2, 4, … seconds.
fn bound(time: Duration) -> usize {
    let mut trials = 0;
    let (mut at, mut pause) = (Duration::ZERO, Duration::from_secs(1));
    while at <= time {
        trials += 1;
        at += pause;
        pause = (pause * 2).min(Duration::from_secs(30));
    }
    8 + trials
}

on_both! {
    async fn a_refused_key_is_said_on_readiness_and_not_tried_again_and_again(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let zones: Vec<String> = (0..4).map(|n| format!("z{n}.{}", rig.zone)).collect();
        for zone in &zones {
            rig.put("Zone", zone, zone_spec()).await;
            rig.until("Zone", zone, "Succeeded").await;
        }
        for status in [401, 403] {
            rig.proxy.add(Rule::every(Fault::status(status)));
            rig.proxy.forget();
            let began = Instant::now();
            for round in 0..5 {
                for (n, zone) in zones.iter().enumerate() {
                    let name = format!("r{status}-{round}-{n}");
                    rig.put("RRset", &name, rrset(zone, "Zone", &name, "A", &["192.0.2.1"])).await;
                }
            }
            for round in 0..5 {
                for n in 0..zones.len() {
                    let said = rig.until("RRset", &format!("r{status}-{round}-{n}"), "Failed").await;
                    assert_eq!(condition(&said, "Ready")["reason"], "ProviderUnauthorized", "{said}");
                    assert!(said.to_string().contains("PDNS_API_KEY"), "{said}");
                }
            }
            let calls = rig.proxy.seen().len();
            assert!(calls <= bound(began.elapsed()), "{calls} calls in {:?}", began.elapsed());
            let readiness = format!("{:?}", rig.readiness());
            assert!(readiness.contains(&status.to_string()) && readiness.contains("PDNS_API_KEY"), "{readiness}");
            assert!(readiness.contains(&rig.proxy.url()), "it names the server: {readiness}");
            // However often it is tried meanwhile, the status of an object is unchanged. Only the ledger may grow: a name
            // is listed before it is first tried.
            let objects = async || {
                let mut zone = rig.get("Zone", &zones[0]).await["status"].take();
                zone["inFlight"].take();
                (zone, rig.get("RRset", &format!("r{status}-0-0")).await)
            };
            rig.until("Zone", &zones[0], "Failed").await;
            let (before, calls) = (objects().await, rig.proxy.seen().len());
            eventually("it is tried twice more", PATIENCE, || async {
                let now = rig.proxy.seen().len();
                if now >= calls + 2 { Ok(()) } else { Err(now) }
            })
            .await;
            assert_eq!(objects().await, before);
            rig.proxy.clear();
            for round in 0..5 {
                for n in 0..zones.len() {
                    rig.until("RRset", &format!("r{status}-{round}-{n}"), "Succeeded").await;
                }
            }
            rig.until_ready().await;
        }
    }

    async fn readiness_names_a_server_that_cannot_be_asked_before_there_is_any_zone(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        let until_ready = async |rig: &Rig| {
            eventually("the server is known", PATIENCE, || async {
                let said = rig.readiness();
                if said == Some(signpost_engine::health::Check::Ok) { Ok(()) } else { Err(said) }
            })
            .await;
        };
        until_ready(&rig).await;
        for (fault, part) in [
            (Fault::status(401), "PDNS_API_KEY"),
            (Fault::CutBefore, "cannot be reached"),
            (Fault::status(404), "PDNS_API_VHOST"),
            (Fault::Answer { status: 200, headers: vec![], body: "<html>login</html>".into() }, "PDNS_API_URL"),
        ] {
            rig.stop().await;
            rig.proxy.add(Rule::every(fault));
            rig.start();
            eventually(&format!("readiness says {part}"), PATIENCE, || async {
                let said = format!("{:?}", rig.readiness());
                if said.contains("Failing") && said.contains(part) { Ok(()) } else { Err(said) }
            })
            .await;
            rig.proxy.clear();
            until_ready(&rig).await;
        }
        assert_eq!(rig.proxy.writes(), 0);
    }

    async fn readiness_names_something_that_answers_in_the_place_of_the_server_also_when_there_are_zones(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.proxy.add(Rule::every(Fault::status(404)));
        eventually("readiness says PDNS_API_VHOST", PATIENCE, || async {
            let said = format!("{:?}", rig.readiness());
            if said.contains("Failing") && said.contains("PDNS_API_VHOST") { Ok(()) } else { Err(said) }
        })
        .await;
        rig.proxy.clear();
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.until_ready().await;
    }

    async fn a_proxy_that_loses_the_server_for_a_moment_orphans_nothing(cluster) {
        let Some((_server, mut rig)) = Rig::alone(cluster).await else { return };
        let lost = |times| Rule::next(times, Fault::status(404)).method(http::Method::GET).path("/zones/");
        rig.zone().await;
        for (times, object) in [(1, "one"), (2, "two")] {
            rig.served(object, object, "A", &["192.0.2.1"]).await;
            rig.stop().await;
            rig.delete("RRset", object).await;
            rig.proxy.add(lost(times));
            rig.start();
            rig.until_gone("RRset", object).await;
            assert!(rig.set(object, "A").await.is_none(), "{object} is served without an object");
        }
        assert_eq!(rig.proxy.count(&http::Method::POST, "/zones"), 2, "the zone, and a conflict after two answers");
        rig.stop().await;
        rig.delete("Zone", &rig.zone).await;
        rig.proxy.add(lost(2));
        rig.start();
        rig.until_gone("Zone", &rig.zone).await;
        assert!(rig.contents().await.is_none());
    }

    async fn readiness_notices_a_server_that_went_away_while_there_is_nothing_to_do(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.stop().await;
        rig.set_pace(|pace| (pace.resync, pace.probe) = (Duration::from_hours(1), Duration::from_millis(200)));
        rig.start();
        let until = async |rig: &Rig, part: &str| {
            eventually(&format!("readiness says {part}"), PATIENCE, || async {
                let said = format!("{:?}", rig.readiness());
                if said.contains(part) { Ok(()) } else { Err(said) }
            })
            .await;
        };
        until(&rig, "Ok").await;
        for _ in 0..2 {
            rig.proxy.add(Rule::every(Fault::CutBefore));
            until(&rig, "cannot be reached").await;
            rig.proxy.clear();
            until(&rig, "Ok").await;
        }
        assert_eq!(rig.proxy.count(&http::Method::GET, "/zones"), 0, "no pass was needed for it");
    }

    async fn a_rotated_key_is_taken_up_and_readiness_comes_back(cluster) {
        let Some((server, mut rig)) = Rig::alone(cluster).await else { return };
        rig.stop().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, server.api_key()).unwrap();
        rig.set_key(Secret::File(file.clone()));
        rig.start();
        rig.zone().await;
        server.replace_api_key("another-key").await;
        eventually("readiness names the key", PATIENCE, || async {
            let said = format!("{:?}", rig.readiness());
            if said.contains("PDNS_API_KEY_FILE") { Ok(()) } else { Err(said) }
        })
        .await;
        rig.proxy.forget();
        let began = Instant::now();
        for n in 0..20 {
            rig.put("RRset", &format!("r{n}"), rig.rrset(&format!("r{n}"), "A", &["192.0.2.1"])).await;
        }
        rig.until("RRset", "r19", "Failed").await;
        let calls = rig.proxy.seen().len();
        assert!(calls <= bound(began.elapsed()), "{calls} calls in {:?}", began.elapsed());
        std::fs::write(&file, "another-key\n").unwrap();
        rig.until_all(20, "Succeeded").await;
        rig.until_ready().await;
    }

    /// With the timeouts of a plain installation, and with all that one process can have besides its one server: zones on
    /// it that are served and stay so in their statuses, objects that need no server, and another process on another server.
    async fn a_server_that_hangs_for_a_minute_holds_up_nobody_else_and_ends_right(cluster) {
        let Some(server) = own_server().await else { return };
        let Some(other) = Rig::new(cluster.clone()).await else { return };
        let mut rig = Rig::on(cluster, &server).await;
        rig.stop().await;
        rig.tune(|config| {
            let plain = signpost_system_powerdns::PowerDnsConfig::new("http://127.0.0.1", config.key.clone());
            assert_eq!(plain.timeout, Duration::from_secs(10));
            config.timeout = plain.timeout;
            config.pace.retry_refused = plain.pace.retry_refused;
        });
        rig.start();
        rig.zone().await;
        rig.tamper("foreign", "A", Some(&["203.0.113.1"])).await;
        let second = format!("second.{}", rig.zone);
        rig.put("Zone", &second, zone_spec()).await;
        rig.until("Zone", &second, "Succeeded").await;
        rig.served("before", "before", "A", &["192.0.2.1"]).await;
        rig.served("edited", "edited", "A", &["192.0.2.1"]).await;
        rig.served("gone", "gone", "A", &["192.0.2.1"]).await;
        other.zone().await;

        server.pause();
        let resume_at = tokio::time::Instant::now() + Duration::from_mins(1);
        rig.proxy.forget();
        rig.put("RRset", "new", rig.rrset("new", "A", &["192.0.2.2"])).await;
        rig.put("RRset", "elsewhere", rrset(&second, "Zone", "elsewhere", "A", &["192.0.2.3"])).await;
        rig.put("RRset", "edited", rig.rrset("edited", "A", &["192.0.2.4"])).await;
        rig.delete("RRset", "gone").await;

        // The rest continues: another process with another server, and work that needs no server.
        other.served("www", "www", "A", &["192.0.2.5"]).await;
        other.until_served("www", "A", &["192.0.2.5"]).await;
        rig.put("RRset", "wrong", rig.rrset("wrong", "TXT", &["no quotes"])).await;
        rig.until("RRset", "wrong", "Failed").await;
        rig.delete("RRset", "wrong").await;
        rig.until_gone("RRset", "wrong").await;
        for object in ["new", "elsewhere"] {
            let status = rig.until("RRset", object, "Failed").await;
            assert_eq!(condition(&status, "Ready")["reason"], "ProviderUnreachable");
        }
        let status = rig.get("RRset", "before").await["status"].clone();
        assert_eq!(status["syncStatus"], "Succeeded", "what is served stays so: {status}");
        assert!(!rig.get("RRset", "gone").await["metadata"]["deletionTimestamp"].is_null());
        tokio::time::sleep_until(resume_at).await;
        let readiness = format!("{:?}", rig.readiness());
        assert!(readiness.contains("did not answer within 10 s"), "{readiness}");
        let calls = rig.proxy.seen().len();
        assert!(calls <= 40, "{calls} calls in a minute");

        server.resume();
        for object in ["new", "elsewhere", "edited", "before"] {
            rig.until("RRset", object, "Succeeded").await;
        }
        rig.until_gone("RRset", "gone").await;
        rig.until_served("new", "A", &["192.0.2.2"]).await;
        rig.until_served("elsewhere.second", "A", &["192.0.2.3"]).await;
        rig.until_served("edited", "A", &["192.0.2.4"]).await;
        rig.until_served("gone", "A", &[]).await;
        rig.until_served("foreign", "A", &["203.0.113.1"]).await;
        rig.at_rest().await;
        assert_eq!(rig.contents().await.unwrap().sets.len(), 6, "before, edited, new, foreign, NS and SOA");
        rig.until_ready().await;
        assert_eq!(json!(rig.get("Zone", &rig.zone).await["status"]["syncStatus"]), "Succeeded");
    }
}
