//! `signpost run` for a Pi-hole, on the sandbox and on the real API server: settings, readiness, memory and log lines as a pod has them.
//!
//! The rows are those of the acceptance list in `crates/systems/pihole/tests/ROWS.md`.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "../../../systems/pihole/tests/common/mod.rs"]
mod common;
mod process;

use std::time::Duration;

use common::{Bed, Draft, TARGET, http_status, serves, takes_away, until};
use futures::StreamExt;
use kube::ResourceExt as _;
use kube::api::ListParams;
use process::Process;
use serde_json::json;
use signpost_system_pihole::{MANAGED_HOSTS, REGISTER, TARGET_IP};
use signpost_testkit::pihole::{PiholeSpec, PiholeV6, TlsFront, Upset, V6Options};
use signpost_testkit::{eventually, free_port, on_both};

on_both! {
    async fn row_20_and_21_a_thousand_ingresses_are_ready_in_time_in_little_memory(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let each = |n: usize| {
            let bed = &bed;
            async move {
                let hosts = [format!("a{n}.lan"), format!("www-{n}.lan"), format!("api-{n}.lan")];
                let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
                let first = hosts[0];
                // The annotation that kubectl leaves behind is most of an Ingress.
                let applied = "x".repeat(1500);
                let draft = Draft::new(&format!("app-{n}"), &hosts).registered().annotate("pihole.io/hosts", first);
                bed.create(draft.annotate("kubectl.kubernetes.io/last-applied-configuration", &applied)).await;
            }
        };
        futures::stream::iter((0..1000).map(each)).buffer_unordered(32).collect::<Vec<()>>().await;
        let health = format!("127.0.0.1:{}", free_port());
        let process = Process::start(&bed, &server.url(), PiholeV6::PASSWORD, &[("HEALTH_ADDRESS", &health)]);
        let url = format!("http://{health}/readyz");
        eventually("it is ready within 30 seconds", Duration::from_secs(30), || async {
            match http_status(&url).await {
                Ok(200) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        }).await;
        until("every name is there", || server.hosts().len() == 1000).await;
        eventually("every view is written", Duration::from_mins(2), || async {
            let list = bed.api.list(&ListParams::default()).await.unwrap();
            let shown = list.items.iter().filter(|ingress| ingress.annotations().contains_key(MANAGED_HOSTS)).count();
            if shown == 1000 { Ok(()) } else { Err(shown) }
        }).await;
        let resident = process.resident();
        eprintln!("resident with 1,000 Ingresses, not optimised: {resident} KiB");
        assert!(resident < 64 * 1024, "{resident} KiB");
        assert_eq!((server.counters().logins, server.counters().writes), (1, 1));
        assert_eq!(process.ended().await.0, 0);
        assert_eq!(server.sessions(), 0, "the session is given back");
    }

    async fn row_25_to_29_and_50_usual_settings_make_a_working_operator(cluster) {
        let bed = Bed::new(cluster.clone()).await;
        let elsewhere = Bed::new(cluster).await;
        elsewhere.register("app", &["elsewhere.lan"]).await;
        bed.register("app", &["app.lan"]).await;
        for pasted in ["", "/", "/admin", "/admin/", "/api"] {
            // A Pi-hole without a password accepts any token, which is still required.
            let server = PiholeV6::with(V6Options { password: None, ..V6Options::default() }).await;
            let process = Process::start(&bed, &format!("{}{pasted}", server.url()), "unused", &[]);
            serves(server.dns(), "app.lan", &[TARGET]).await;
            process.logs("dns record created", &bed.path("app")).await;
            assert_eq!(server.hosts().len(), 1, "the namespace that is named, and no other");
            let (code, text) = process.ended().await;
            assert_eq!(code, 0, "{text}");
            assert!(!text.contains("\"DEBUG\""), "info is the default: {text}");
            let warnings = text.lines().filter(|line| line.contains("OWNER_ID is not set")).collect::<Vec<_>>();
            assert!(warnings.len() == 1 && warnings[0].contains("\"WARN\""), "{text}");
        }
        for (level, logged) in [("debug", true), ("info", true), ("warn", false), ("error", false)] {
            let server = PiholeSpec::start().await;
            let process = Process::start(&bed, &server.url(), PiholeSpec::TOKEN, &[("LOG_LEVEL", level), ("OWNER_ID", level)]);
            serves(server.dns(), "app.lan", &[TARGET]).await;
            let (_, text) = process.ended().await;
            assert_eq!(text.contains("dns record created"), logged, "{level}: {text}");
            assert!(!text.contains("OWNER_ID is not set"), "{text}");
            assert_eq!(text.contains("reconcile started"), level == "debug", "{level}: {text}");
        }
    }

    async fn row_25_to_30_and_50_wrong_settings_are_listed_and_nothing_is_written(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        bed.register("app", &["app.lan"]).await;
        let version = bed.get("app").await.metadata.resource_version;
        let wrong = [("DEFAULT_TARGET_IP", "01.2.3.4"), ("LOG_LEVEL", "loud"), ("CONFLICT_POLICY", "maybe"), ("PIHOLE_RESYNC", "often")];
        let (code, text) = Process::start(&bed, "pi.hole", " ", &wrong).ends().await;
        assert_eq!(code, 2, "{text}");
        for setting in ["PIHOLE_URL", "PIHOLE_API_TOKEN", "DEFAULT_TARGET_IP", "LOG_LEVEL", "CONFLICT_POLICY", "PIHOLE_RESYNC"] {
            assert!(text.lines().any(|line| line.starts_with(&format!("  {setting}: "))), "{setting} is missing in {text}");
        }
        for (name, value) in wrong {
            let (code, text) = Process::start(&bed, &server.url(), PiholeV6::PASSWORD, &[(name, value)]).ends().await;
            let problems = text.lines().filter(|line| line.contains(&format!("{name}: "))).count();
            assert!(code == 2 && problems == 1, "{name}: {code}, {text}");
        }
        // Missing settings are reported together with all other problems.
        for (token, address) in [(PiholeV6::PASSWORD, ""), ("", TARGET), (PiholeV6::PASSWORD, "01.2.3.4")] {
            let wrong = [("DEFAULT_TARGET_IP", address), ("GC", "sometimes")];
            let (code, text) = Process::start(&bed, "", token, &wrong).ends().await;
            assert_eq!(code, 2, "{text}");
            let mut reported: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(": ")).map(|(setting, _)| setting).collect();
            reported.sort_unstable();
            let mut missing = vec!["GC", "PIHOLE_URL"];
            missing.extend((address != TARGET).then_some("DEFAULT_TARGET_IP"));
            missing.extend(token.is_empty().then_some("PIHOLE_API_TOKEN"));
            missing.sort_unstable();
            assert_eq!(reported, missing, "{text}");
        }
        let (code, text) = Process::start(&bed, "", "", &[("DEFAULT_TARGET_IP", "")]).ends().await;
        assert!(code == 2 && text.contains("no system is switched on"), "{text}");
        assert_eq!(server.counters().requests, 0);
        assert_eq!(bed.get("app").await.metadata.resource_version, version);
    }

    async fn row_47_to_49_log_lines_are_flat_json_with_time_level_and_msg_first(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let process = Process::start(&bed, &server.url(), PiholeV6::PASSWORD, &[("LOG_LEVEL", "debug")]);
        bed.create(Draft::new("app", &["app.lan"]).registered().annotate(TARGET_IP, "192.168.1.100")).await;
        let created = process.logs("dns record created", &bed.path("app")).await;
        assert_eq!((&created["host"], &created["ip"]), (&json!("app.lan"), &json!("192.168.1.100")));
        bed.annotate("app", TARGET_IP, Some("192.168.1.101")).await;
        let updated = process.logs("dns record updated", &bed.path("app")).await;
        assert_eq!((&updated["host"], &updated["old_ip"], &updated["new_ip"]), (&json!("app.lan"), &json!("192.168.1.100"), &json!("192.168.1.101")));
        bed.annotate("app", TARGET_IP, Some("nonsense")).await;
        let invalid = process.logs("invalid annotation", &bed.path("app")).await;
        assert_eq!((&invalid["annotation"], &invalid["value"]), (&json!(TARGET_IP), &json!("nonsense")));
        bed.create(Draft::new("none", &[]).any_host().annotate(REGISTER, "true")).await;
        let skipped = process.logs("ingress skipped (no hosts)", &bed.path("none")).await;
        bed.delete("app").await;
        let deleted = process.logs("dns record deleted", &bed.path("app")).await;
        assert_eq!(deleted["host"], "app.lan");
        let started = process.logs("reconcile started", &bed.path("app")).await;
        server.upset(Upset::status("PUT", "/api/config", 500, 1));
        bed.register("late", &["late.lan"]).await;
        let error = process.logs("pi-hole api error", &bed.path("late")).await;
        assert_eq!(error["operation"], "create");
        let failed = process.logs("reconcile failed", &bed.path("late")).await;
        assert!(error["error"].as_str().unwrap().contains("500") && failed["error"].as_str().unwrap().contains("500"));
        for (line, level) in [
            (&started, "DEBUG"), (&created, "INFO"), (&updated, "INFO"), (&deleted, "INFO"),
            (&invalid, "WARN"), (&skipped, "WARN"), (&error, "ERROR"), (&failed, "ERROR"),
        ] {
            assert_eq!(line["level"], level, "{line:?}");
        }
        let (_, text) = process.ended().await;
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
        for raw in &lines {
            let line: serde_json::Map<String, serde_json::Value> = serde_json::from_str(raw).unwrap();
            assert!(line["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{raw}");
            assert!(line.values().all(|value| !value.is_object() && !value.is_array()), "{raw} is flat");
            let place = |key: &str| raw.find(&format!("\"{key}\":")).unwrap();
            assert!(place("time") < place("level") && place("level") < place("msg"), "{raw}");
        }
        assert!(!text.contains(PiholeV6::PASSWORD), "no secret");
    }

    async fn several_piholes_from_a_file_converge_independently_one_over_tls(cluster) {
        let bed = Bed::new(cluster).await;
        let (primary, second, older) = (PiholeV6::start().await, PiholeV6::start().await, PiholeSpec::start().await);
        let front = TlsFront::open(primary.addr()).await;
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, format!("{}\n", PiholeV6::PASSWORD)).unwrap();
        let instances = json!({"instances": [
            {"name": "primary", "url": front.url(), "token": PiholeV6::PASSWORD, "dialect": "v6", "caFile": front.ca_file(), "serverName": "pi.hole"},
            {"name": "second", "url": second.url(), "tokenFile": token},
            {"name": "older", "url": older.url(), "token": PiholeSpec::TOKEN, "dialect": "spec"},
        ]});
        let file = dir.path().join("instances.yaml");
        std::fs::write(&file, instances.to_string()).unwrap();
        let process = Process::start(&bed, "", "", &[("PIHOLE_INSTANCES_FILE", file.to_str().unwrap())]);
        bed.register("one", &["one.lan"]).await;
        for dns in [primary.dns(), second.dns(), older.dns()] {
            serves(dns, "one.lan", &[TARGET]).await;
        }
        takes_away(&second).await;
        bed.register("two", &["two.lan"]).await;
        bed.delete("one").await;
        for dns in [primary.dns(), older.dns()] {
            serves(dns, "two.lan", &[TARGET]).await;
            serves(dns, "one.lan", &[]).await;
        }
        second.release_restarts();
        let caught_up = || second.hosts().len() == 1 && second.hosts()[0].contains("two.lan");
        // The pause after its second failure is a minute.
        eventually("it catches up when it is back", 3 * common::PATIENCE, || async {
            if caught_up() { Ok(()) } else { Err(second.hosts()) }
        })
        .await;
        let (code, text) = process.ended().await;
        assert_eq!(code, 0, "{text}");
        assert_eq!((primary.sessions(), second.sessions()), (0, 0), "both sessions are given back");
        assert!(!text.contains(PiholeV6::PASSWORD) && !text.contains(PiholeSpec::TOKEN));
    }
}

/// Runs the demo with one folder of examples. The folder has an installation too, which the demo leaves out.
fn demo_of(examples: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let examples = format!("{}/../../examples/{examples}", env!("CARGO_MANIFEST_DIR"));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_signpost"))
        .args(["demo", "--once", "--api-port", "0", "--dns-port", "0", "--health-port", "0", "--examples", &examples])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

#[test]
fn the_examples_run_in_the_demo() {
    let printed = demo_of("powerdns");
    assert!(printed.contains("test.helloworld.com."), "{printed}");
    let printed = demo_of("pihole");
    for host in ["app.home.arpa.", "media.home.arpa.", "films.home.arpa."] {
        assert!(printed.contains(host), "{host} is missing in {printed}");
    }
}
