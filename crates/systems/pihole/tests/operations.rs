//! Rows 17 to 49 of the acceptance list as far as a cluster and a Pi-hole are needed: errors, pauses, readiness, permissions, logs.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::time::{Duration, Instant};

use common::{
    Bed, Both, Dead, Draft, PATIENCE, Running, TARGET, connection, http_status, logs, named, serves, spec, takes_away,
    until, v6,
};
use serde_json::json;
use signpost_engine::health::Check;
use signpost_provider_pihole::{Connection, Dialect, Timing, connect};
use signpost_system_pihole::{Instance, Policy, TARGET_CNAME, TARGET_IP, TARGET_IPV6};
use signpost_testkit::pihole::{PiholeSpec, PiholeV6, Upset, V6Options};
use signpost_testkit::{dig, eventually, on_both, try_dig};

on_both! {
    async fn row_17_errors_are_retried_until_the_record_is_there(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        for status in [500, 503, 404] {
            piholes.v6.upset(Upset::status("PUT", "/api/config", if status == 404 { 500 } else { status }, 1));
            piholes.spec.upset(Upset::status("POST", "/admin", status, 1));
        }
        bed.register("app", &["app.lan"]).await;
        let _running = bed.start(piholes.instances());
        piholes.serve("app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
    }

    async fn row_20_a_dead_pihole_at_the_start_delays_nothing_but_readiness(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        takes_away(&server).await;
        bed.register("app", &["app.lan"]).await;
        let running = bed.start(vec![v6(&server)]);
        until("all but the Pi-hole is there", || running.known() == 1).await;
        assert!(!running.health.is_ready());
        server.release_restarts();
        let begun = Instant::now();
        running.is_ready().await;
        eventually("the record is there", PATIENCE, || async {
            match try_dig(server.dns(), "app.lan", "A").await {
                Ok(answer) if answer.records == [TARGET] => Ok(()),
                other => Err(format!("{other:?}")),
            }
        }).await;
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    async fn row_24_errors_carry_their_context_and_never_a_secret(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let name = format!("ctx-{}", bed.namespace);
        bed.register("app", &["app.lan"]).await;
        let _running = bed.start(vec![named(&name, &server.url(), "hunter2-is-wrong")]);
        until("the error is logged", || !logs::of_instance(&name, "pi-hole api error").is_empty()).await;
        let line = &logs::of_instance(&name, "pi-hole api error")[0];
        assert_eq!((line.level.as_str(), line.field("operation"), line.field("reason")), ("ERROR", "list", "Unauthorized"));
        assert!(!line.field("error").is_empty() && !line.field("ingress").is_empty());
        assert!(!logs::everything().contains("hunter2"));
        let events = bed.events().await;
        assert!(!format!("{events:?}").contains("hunter2"));
        // The answer of the Pi-hole is repeated: status, key, message and hint.
        let body = json!({"error": {"key": "some_key", "message": "Some message", "hint": "some hint"}});
        let talking = PiholeV6::start().await;
        talking.upset(Upset { body, ..Upset::status("PUT", "/api/config", 418, 1) });
        let name = format!("answers-{}", bed.namespace);
        let _other = bed.start(vec![named(&name, &talking.url(), PiholeV6::PASSWORD)]);
        until("the error is logged", || !logs::of_instance(&name, "pi-hole api error").is_empty()).await;
        let line = &logs::of_instance(&name, "pi-hole api error")[0];
        assert_eq!((line.field("operation"), line.field("reason"), line.field("instance")), ("create", "Rejected", name.as_str()));
        for part in ["status 418", "some_key", "Some message", "some hint"] {
            assert!(line.field("error").contains(part), "{part} is missing in {}", line.field("error"));
        }
        assert!(bed.event("Rejected").await.contains("some hint"));
        assert!(!logs::everything().contains(PiholeV6::PASSWORD));
    }

    async fn row_31_and_26_any_token_will_do_for_a_pihole_without_a_password(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { password: None, ..V6Options::default() }).await;
        bed.register("app", &["app.lan"]).await;
        let _running = bed.start(vec![named("open", &server.url(), "unused")]);
        serves(server.dns(), "app.lan", &[TARGET]).await;
    }

    async fn row_33_a_refused_record_is_reported_once_and_not_sent_again_unchanged(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeSpec::start().await;
        server.upset(Upset::status("POST", "/admin", 400, 2));
        let policy = Policy { resync: Some(Duration::from_millis(200)), ..bed.policy() };
        let running = bed.start_with(policy, vec![spec(&server)]);
        bed.register("one", &["one.lan"]).await;
        bed.register("two", &["two.lan"]).await;
        let posts = || server.requests().iter().filter(|request| request.starts_with("POST")).count();
        until("both are refused", || posts() == 2).await;
        for name in ["one", "two"] {
            until("it is logged", || !logs::about(&bed.path(name), "dns record refused").is_empty()).await;
        }
        let requests = server.counters().requests;
        until("it has checked again and again", || server.counters().requests > requests + 6).await;
        assert_eq!(posts(), 2, "nothing has changed, so nothing is sent");
        assert!(running.metrics.encode().contains("signpost_pihole_refusals{instance=\"spec\",reason=\"LineRefused\"} 2"));
        bed.set_hosts("one", &["one.lan", "more.lan"]).await;
        serves(server.dns(), "one.lan", &[TARGET]).await;
        serves(server.dns(), "more.lan", &[TARGET]).await;
        assert_eq!(posts(), 4, "one Ingress has changed, the other has not");
        server.add("mine.lan", "10.0.0.1");
        serves(server.dns(), "two.lan", &[TARGET]).await;
        eventually("both are reported, once each", PATIENCE, || async {
            let reported = bed.events().await.iter().filter(|(reason, _)| reason == "LineRefused").count();
            if reported == 2 { Ok(()) } else { Err(reported) }
        }).await;
    }

    async fn row_33_a_refused_deletion_is_reported_and_not_sent_again_unchanged(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeSpec::start().await;
        let name = format!("keeps-{}", bed.namespace);
        let policy = Policy { resync: Some(Duration::from_millis(200)), ..bed.policy() };
        let _running = bed.start_with(policy, vec![named(&name, &server.url(), PiholeSpec::TOKEN)]);
        bed.register("app", &["app.lan"]).await;
        serves(server.dns(), "app.lan", &[TARGET]).await;
        server.upset(Upset::status("DELETE", "/admin", 400, 1));
        bed.delete("app").await;
        until("it is logged", || !logs::about(&bed.path("app"), "dns record refused").is_empty()).await;
        let requests = server.counters().requests;
        until("it has checked again and again", || server.counters().requests > requests + 6).await;
        let deletions = || server.requests().iter().filter(|request| request.starts_with("DELETE")).count();
        assert_eq!(deletions(), 1, "nothing has changed, so nothing is sent");
        let lines = logs::about(&bed.path("app"), "dns record refused");
        assert_eq!((lines.len(), lines[0].field("reason"), lines[0].field("host")), (1, "LineRefused", "app.lan"));
        assert!(logs::of_instance(&name, "pi-hole api error").is_empty(), "there is no other writer");
        server.add("mine.lan", "10.0.0.1");
        serves(server.dns(), "app.lan", &[]).await;
    }

    async fn a_refusal_is_logged_by_the_system_and_not_again_by_the_engine(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeSpec::start().await;
        server.upset(Upset::status("POST", "/admin", 400, 1));
        let running = bed.start(vec![spec(&server)]);
        bed.register("app", &["app.lan"]).await;
        bed.event("LineRefused").await;
        bed.create(Draft::new("bad", &["bad.lan"]).registered().annotate(TARGET_IP, "bad")).await;
        bed.event("InvalidAnnotation").await;
        for (name, message, reason) in [
            ("app", "dns record refused", "LineRefused"),
            ("bad", "invalid annotation", "InvalidAnnotation"),
        ] {
            until("it is logged", || !logs::about(&bed.path(name), message).is_empty()).await;
            assert_eq!(logs::about(&bed.path(name), message).len(), 1);
            // The engine logs before it records the event, which is there.
            assert_eq!(logs::of_the_engine(&bed.path(name)), []);
            let counted = format!("signpost_refusals_total{{system=\"pihole\",reason=\"{reason}\"}} 1");
            assert!(running.metrics.encode().contains(&counted), "{counted}");
        }
    }

    async fn row_33_a_foreign_invalid_line_is_reported_once_for_the_instance(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        server.edit(|hosts, _| hosts.push("broken line of mine".into()));
        for name in ["one", "two", "three"] {
            bed.register(name, &[&format!("{name}.lan")]).await;
        }
        let running = bed.start(vec![v6(&server)]);
        assert!(bed.event("BadForeignLine").await.contains("broken line of mine"));
        assert_eq!(bed.events().await.iter().filter(|(reason, _)| reason == "BadForeignLine").count(), 1);
        let series = "signpost_pihole_trouble{instance=\"v6\",reason=\"BadForeignLine\"} 1";
        until("the error is in the metrics", || running.metrics.encode().contains(series)).await;
        server.edit(|hosts, _| hosts.clear());
        serves(server.dns(), "two.lan", &[TARGET]).await;
        until("the error is over", || !running.metrics.encode().contains("signpost_pihole_trouble{")).await;
    }

    async fn row_34_a_session_lost_in_the_middle_is_renewed_at_once(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let _running = bed.start(vec![v6(&server)]);
        bed.register("one", &["one.lan"]).await;
        serves(server.dns(), "one.lan", &[TARGET]).await;
        server.forget_sessions();
        bed.register("two", &["two.lan"]).await;
        serves(server.dns(), "two.lan", &[TARGET]).await;
        assert_eq!(server.counters().logins, 2);
    }

    async fn row_34_app_sudo_off_is_one_message_and_works_once_it_is_on(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { app_password: Some("app".into()), ..V6Options::default() }).await;
        for name in ["one", "two", "three"] {
            bed.register(name, &[&format!("{name}.lan")]).await;
        }
        let _running = bed.start(vec![named("sudo", &server.url(), "app")]);
        assert!(bed.event("AppSudoOff").await.contains("webserver.api.app_sudo"));
        assert_eq!(server.counters().writes, 0, "nothing is tried that cannot work");
        server.set(|options| options.app_sudo = true);
        serves(server.dns(), "three.lan", &[TARGET]).await;
        assert_eq!(bed.events().await.iter().filter(|(reason, _)| reason == "AppSudoOff").count(), 1);
    }

    async fn row_36_a_pihole_that_restarts_is_waited_for(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let _running = bed.start(vec![v6(&server)]);
        bed.register("one", &["one.lan"]).await;
        serves(server.dns(), "one.lan", &[TARGET]).await;
        server.restart_for(Duration::from_millis(300));
        bed.register("two", &["two.lan"]).await;
        until("two.lan is there", || server.hosts().iter().any(|line| line.contains("two.lan"))).await;
        assert_eq!(server.counters().logins, 1);
    }

    async fn row_37_and_41_after_a_429_the_instance_is_left_alone_for_a_flat_time(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let other = PiholeV6::start().await;
        bed.register("one", &["one.lan"]).await;
        // Longer than this test.
        let policy = Policy { throttle: Duration::from_hours(1), ..bed.policy() };
        let mut instances = piholes.instances();
        instances.push(named("other", &other.url(), PiholeV6::PASSWORD));
        let running = bed.start_with(policy, instances);
        piholes.serve("one.lan", &[TARGET]).await;
        serves(other.dns(), "one.lan", &[TARGET]).await;
        bed.shows("one", Some("one.lan")).await;
        piholes.v6.upset(Upset::status("PUT", "/api/config", 429, 1));
        piholes.spec.upset(Upset::status("POST", "/admin", 429, 1));
        bed.register("two", &["two.lan"]).await;
        for instance in ["v6", "spec"] {
            let metric = format!("signpost_pihole_trouble{{instance=\"{instance}\",reason=\"RateLimited\"}} 1");
            until("it has had too many", || running.metrics.encode().contains(&metric)).await;
        }
        let asked = || {
            let records = |requests: Vec<String>| requests.into_iter().filter(|request| request.contains("/api/config")).count();
            (records(piholes.v6.requests()), piholes.spec.counters().writes)
        };
        let before = asked();
        // A new change does not end the pause; a healthy Pi-hole gets it at once.
        bed.register("three", &["three.lan"]).await;
        serves(other.dns(), "three.lan", &[TARGET]).await;
        bed.register("four", &["four.lan"]).await;
        serves(other.dns(), "four.lan", &[TARGET]).await;
        assert_eq!(asked(), before, "the whole Pi-hole is left alone");
        running.stop().await;
        // After the time is over, everything is written.
        piholes.v6.upset(Upset::status("PATCH", "/api/config", 429, 1));
        piholes.spec.upset(Upset::status("POST", "/admin", 429, 1));
        let _running = bed.start(piholes.instances());
        for host in ["two.lan", "three.lan", "four.lan"] {
            piholes.serve(host, &[TARGET]).await;
        }
    }

    async fn row_38_a_name_shared_with_a_foreign_record_is_not_deleted_by_name(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeSpec::start().await;
        let _running = bed.start(vec![spec(&server)]);
        bed.register("app", &["app.lan"]).await;
        serves(server.dns(), "app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
        server.add("app.lan", "10.0.0.50");
        bed.delete("app").await;
        until("it is logged", || !logs::about(&bed.path("app"), "dns record refused").is_empty()).await;
        assert_eq!(server.records().len(), 2);
        server.remove("app.lan");
    }

    async fn row_39_drift_is_repaired_and_at_rest_nothing_is_written(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let policy = Policy { resync: Some(Duration::from_millis(300)), ..bed.policy() };
        let _running = bed.start_with(policy, piholes.instances());
        bed.register("app", &["app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
        let (writes, requests) = (piholes.writes(), piholes.requests());
        let version = bed.get("app").await.metadata.resource_version;
        until("some checks have passed", || piholes.requests() > requests + 12).await;
        assert_eq!(piholes.writes(), writes);
        assert_eq!(bed.get("app").await.metadata.resource_version, version);
        piholes.v6.edit(|hosts, _| hosts.clear());
        piholes.spec.remove("app.lan");
        piholes.serve("app.lan", &[TARGET]).await;
    }

    async fn row_42_an_invalid_address_keeps_the_records_that_are_there(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.register("app", &["app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
        let writes = piholes.writes();
        bed.annotate("app", TARGET_IP, Some("not-an-address")).await;
        until("it is logged", || logs::about(&bed.path("app"), "invalid annotation").len() == 1).await;
        bed.register("next", &["next.lan"]).await;
        piholes.serve("next.lan", &[TARGET]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        assert_eq!(piholes.writes(), writes + 2);
        bed.shows("app", Some("app.lan")).await;
    }

    async fn row_45_and_46_alive_always_and_ready_while_one_pihole_answers(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let dead = Dead::new();
        let running = bed.start(vec![v6(&server), named("dead", &dead.url(), "x")]);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (health, stop) = (running.health.clone(), tokio_util::sync::CancellationToken::new());
        let token = stop.clone();
        let serving = tokio::spawn(async move { health.serve(listener, token).await });
        let status = |path: &'static str| { let url = format!("{base}{path}"); async move { http_status(&url).await.unwrap() } };
        assert_eq!(status("/healthz").await, 200);
        running.is_ready().await;
        assert_eq!(status("/readyz").await, 200);
        assert!(server.counters().login_attempts <= 1, "readiness takes no seat");
        // The Pi-hole answers, but its resolver does not.
        let silent = json!({"https_port": 443, "dns": false});
        server.upset(Upset { body: silent, ..Upset::status("GET", "/api/info/login", 200, 2) });
        until("nobody serves", || !running.health.is_ready()).await;
        assert_eq!((status("/readyz").await, status("/healthz").await), (503, 200));
        running.is_ready().await;
        // The Pi-hole answers, but Kubernetes does not.
        let lost = kube::Client::try_from(kube::Config::new(dead.url().parse().unwrap())).unwrap();
        let lost = Running::start(lost, Some(&bed.namespace), bed.policy(), vec![v6(&server)]);
        // It has begun to watch, and its Pi-hole is there.
        let answered = || lost.health.checks().len() > 1 && lost.health.checks().get("pihole") == Some(&Check::Ok);
        until("only Kubernetes is missing", answered).await;
        assert!(!lost.health.is_ready(), "{:?}", lost.health.checks());
        let alone = bed.start(vec![named("alone", &dead.url(), "x")]);
        eventually("nobody answers", PATIENCE, || async {
            let text = format!("{:?}", alone.health.checks());
            if text.contains("no Pi-hole answers") { Ok(()) } else { Err(text) }
        }).await;
        assert!(!alone.health.is_ready());
        stop.cancel();
        serving.await.unwrap().unwrap();
    }

    async fn row_23_and_48_the_messages_and_fields_are_those_of_the_request(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let _running = bed.start(vec![v6(&server)]);
        bed.create(Draft::new("app", &["app.lan"]).registered().annotate(TARGET_IP, "10.0.0.1")).await;
        serves(server.dns(), "app.lan", &["10.0.0.1"]).await;
        bed.annotate("app", TARGET_IP, Some("10.0.0.2")).await;
        serves(server.dns(), "app.lan", &["10.0.0.2"]).await;
        bed.annotate("app", TARGET_IP, Some("bad")).await;
        until("the annotation is reported", || logs::about(&bed.path("app"), "invalid annotation").len() == 1).await;
        bed.delete("app").await;
        serves(server.dns(), "app.lan", &[]).await;
        until("the deletion is logged", || !logs::about(&bed.path("app"), "dns record deleted").is_empty()).await;
        for (message, level, fields) in [
            ("reconcile started", "DEBUG", &["ingress"][..]),
            ("dns record created", "INFO", &["ingress", "host", "ip"]),
            ("dns record updated", "INFO", &["ingress", "host", "old_ip", "new_ip"]),
            ("dns record deleted", "INFO", &["ingress", "host"]),
            ("invalid annotation", "WARN", &["ingress", "annotation", "value", "error"]),
        ] {
            let lines = logs::about(&bed.path("app"), message);
            assert_eq!(lines.first().map(|line| line.level.as_str()), Some(level), "{message}");
            for field in fields {
                assert!(!lines[0].field(field).is_empty(), "{message} has no {field}");
            }
        }
    }

    async fn row_55_aaaa_and_cname_are_written_with_few_restarts_and_cleaned_up(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { restart: Duration::from_millis(60), ..V6Options::default() }).await;
        server.edit(|_, cnames| cnames.push("mine.lan,user.lan".into()));
        bed.create(Draft::new("dual", &["dual.lan"]).registered().annotate(TARGET_IPV6, "fd00::10")).await;
        for name in ["a", "b", "c"] {
            bed.create(Draft::new(name, &[&format!("{name}.lan")]).registered().annotate(TARGET_CNAME, "dual.lan")).await;
        }
        // With the pauses of production: the check after a write runs into the restart that it causes.
        let connection = Connection { timing: Timing::default(), ..connection(&server.url(), PiholeV6::PASSWORD) };
        let _running = bed.start(vec![Instance::new("v6", connect(connection, Dialect::Auto).unwrap())]);
        let served = |host: &'static str, wanted: &'static [&'static str]| { let dns = server.dns(); async move {
            eventually(&format!("{host} is {wanted:?}"), PATIENCE, || async {
                match try_dig(dns, host, "A").await {
                    Ok(answer) if answer.records == wanted => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            }).await;
        }};
        for host in ["a.lan", "b.lan", "c.lan", "dual.lan"] {
            served(host, &[TARGET]).await;
        }
        assert_eq!(server.counters().restarts, 1, "{:?}", server.counters());
        assert_eq!(dig(server.dns(), "dual.lan", "AAAA").await.records, ["fd00::10"]);
        // From alias to address and back without a moment when neither is there: the new one first.
        let alias = || server.cnames().iter().any(|line| line.starts_with("a.lan,"));
        let address = || server.hosts().iter().any(|line| line.contains(" a.lan "));
        bed.annotate("a", TARGET_CNAME, None).await;
        until("the alias is deleted", || {
            let (alias, address) = (alias(), address());
            assert!(alias || address, "the address comes first");
            !alias
        }).await;
        bed.annotate("a", TARGET_CNAME, Some("dual.lan")).await;
        until("the address is deleted", || {
            let (address, alias) = (address(), alias());
            assert!(alias || address, "the alias comes first");
            !address
        }).await;
        bed.annotate("b", TARGET_CNAME, Some("c.lan")).await;
        until("the move is logged", || logs::about(&bed.path("b"), "dns record updated").len() == 1).await;
        let line = &logs::about(&bed.path("b"), "dns record updated")[0];
        assert_eq!((line.field("old_target"), line.field("new_target")), ("dual.lan", "c.lan"));
        let line = &logs::about(&bed.path("b"), "dns record created")[0];
        assert_eq!((line.field("target"), line.fields.contains_key("old_target")), ("dual.lan", false));
        for name in ["a", "b", "c", "dual"] {
            bed.delete(name).await;
        }
        until("only the user's are left", || server.cnames() == ["mine.lan,user.lan"] && server.hosts().is_empty()).await;
    }

    async fn row_55_an_alias_that_leads_to_itself_or_is_refused_blocks_no_other(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { restart: Duration::from_millis(20), ..V6Options::default() }).await;
        for (name, target) in [("self", "self.lan"), ("one", "two.lan"), ("two", "one.lan"), ("good", "app.lan")] {
            bed.create(Draft::new(name, &[&format!("{name}.lan")]).registered().annotate(TARGET_CNAME, target)).await;
        }
        let _running = bed.start(vec![v6(&server)]);
        let written = ["good.lan,app.lan # signpost=home", "one.lan,two.lan # signpost=home"];
        until("the valid aliases are there", || server.cnames() == written).await;
        for name in ["self", "two"] {
            until("the loop is logged", || !logs::about(&bed.path(name), "dns record refused").is_empty()).await;
            assert_eq!(logs::about(&bed.path(name), "dns record refused")[0].field("reason"), "AliasLoop");
        }
        assert!(bed.event("AliasLoop").await.contains("leads back"));
        // Reversed, it is not a loop any more.
        bed.annotate("one", TARGET_CNAME, Some("app.lan")).await;
        until("both are there", || server.cnames().contains(&"two.lan,one.lan # signpost=home".to_owned())).await;
    }

    async fn row_55_two_clusters_share_a_pihole_and_leave_each_other_alone(cluster) {
        let bed = Bed::new(cluster.clone()).await;
        let other = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let office = Policy { owner: signpost_provider_pihole::OwnerId::parse("office").unwrap(), ..other.policy() };
        bed.register("app", &["app.lan", "home.lan"]).await;
        let _home = bed.start(vec![v6(&server)]);
        serves(server.dns(), "home.lan", &[TARGET]).await;
        other.register("app", &["app.lan", "office.lan"]).await;
        let office = other.start_with(office, vec![v6(&server)]);
        serves(server.dns(), "office.lan", &[TARGET]).await;
        assert!(other.event("OtherOwner").await.contains("home"));
        office.stop().await;
        bed.delete("app").await;
        serves(server.dns(), "app.lan", &[]).await;
        until("only the office's is left", || server.hosts() == [format!("{TARGET} office.lan # signpost=office")]).await;
    }

    async fn row_55_a_write_that_is_undone_is_repeated_and_then_postponed(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let name = format!("undone-{}", bed.namespace);
        // Every write is answered with success and has no effect, as when another tool puts its own list back.
        server.upset(Upset { body: json!({"took": 0.1}), ..Upset::status("PUT", "/api/config", 201, 4) });
        bed.register("app", &["app.lan"]).await;
        let _running = bed.start(vec![named(&name, &server.url(), PiholeV6::PASSWORD)]);
        serves(server.dns(), "app.lan", &[TARGET]).await;
        let lines = logs::of_instance(&name, "pi-hole api error");
        assert_eq!((lines.len(), lines[0].field("reason")), (1, "Unsettled"));
    }

    async fn row_55_an_answer_that_gets_lost_changes_nothing(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        piholes.v6.upset(Upset { effective: true, ..Upset::status("PUT", "/api/config", 502, 1) });
        piholes.spec.upset(Upset { effective: true, ..Upset::status("POST", "/admin", 502, 1) });
        bed.register("app", &["app.lan"]).await;
        let _running = bed.start(piholes.instances());
        bed.shows("app", Some("app.lan")).await;
        bed.delete("app").await;
        piholes.serve("app.lan", &[]).await;
    }

    async fn row_55_a_crash_after_any_request_leaves_nothing_wrong_behind(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let user = ["10.0.0.1 printer.lan", "192.168.1.10 odd.lan # signpost=home, but mine", "10.0.0.2 a-3.lan b.lan"];
        server.edit(|hosts, _| hosts.extend(user.map(str::to_owned)));
        for death in 1..=13_u64 {
            let before = server.counters().requests;
            let running = bed.start(vec![v6(&server)]);
            bed.register(&format!("one-{death}"), &[&format!("a-{death}.lan"), "shared.lan"]).await;
            bed.register(&format!("two-{death}"), &[&format!("b-{death}.lan")]).await;
            if death > 2 {
                bed.delete(&format!("two-{}", death - 2)).await;
            }
            until("it has made so many requests", || server.counters().requests >= before + death).await;
            running.crash().await;
            assert_eq!(server.hosts()[..3], user.map(str::to_owned), "after death {death}");
        }
        // The crashed processes left their sessions behind; one more seat is free.
        let _running = bed.start(vec![v6(&server)]);
        serves(server.dns(), "a-13.lan", &[TARGET]).await;
        serves(server.dns(), "b-1.lan", &[]).await;
        until("everything is as it should be", || server.hosts().len() == 3 + 12 + 2 + 1).await;
        assert_eq!(server.hosts()[..3], user.map(str::to_owned));
    }

    async fn row_55_one_dead_or_hanging_pihole_never_delays_another(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let dead = Dead::new();
        // Accepts connections and never answers.
        let silence = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut hanging = connection(&format!("http://{}", silence.local_addr().unwrap()), "x");
        hanging.timing.total = Duration::from_mins(10);
        let hanging = Instance::new("hanging", connect(hanging, Dialect::Auto).unwrap());
        let running = bed.start(vec![v6(&server), named("dead", &dead.url(), "x"), hanging]);
        running.is_ready().await;
        bed.register("app", &["app.lan"]).await;
        serves(server.dns(), "app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
    }
}
