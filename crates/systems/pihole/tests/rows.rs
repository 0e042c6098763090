//! The rest of the acceptance list: examples, log lines as they are printed, and that every row has a test.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Bed, Both, Draft, TARGET, logs, until};
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use signpost_engine::metrics::Metrics;
use signpost_engine::{Index, Job, Queue, System, SystemClock, Touched};
use signpost_provider_pihole::{MemoryPihole, OwnerId};
use signpost_system_pihole::{
    ConfigMaps, IngressIndex, IngressKey, Instance, PiholeSystem, Policy, REGISTER, TARGET_IP, read,
};
use signpost_testkit::on_both;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn documents(path: &Path) -> Vec<DynamicObject> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parts =
        text.split("\n---\n").filter(|part| part.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#')));
    parts
        .map(|part| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

fn examples() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(root().join("examples/pihole")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.push(root().join("examples/demo/ingress.yaml"));
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "yaml"));
    paths.sort();
    paths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_44_every_example_is_accepted_by_the_real_api_server_and_has_the_resources_of_the_request() {
    let mut limits = None;
    let cluster = signpost_testkit::real_cluster().await;
    let namespace = match &cluster {
        Some(cluster) => cluster.namespace("examples").await,
        None => String::new(),
    };
    for path in examples() {
        for mut object in documents(&path) {
            let types = object.types.clone().unwrap();
            if types.kind == "Deployment" {
                let container = &object.data["spec"]["template"]["spec"]["containers"][0];
                limits = Some(container["resources"].clone());
            }
            let Some(cluster) = &cluster else { continue };
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
            let api: kube::Api<DynamicObject> = if types.kind == "Namespace" || types.kind.starts_with("Cluster") {
                kube::Api::all_with(cluster.client(), &resource)
            } else {
                object.metadata.namespace = Some(namespace.clone());
                kube::Api::namespaced_with(cluster.client(), &namespace, &resource)
            };
            let name = object.metadata.name.clone().unwrap();
            let mut params = PatchParams::apply("examples").force();
            params.dry_run = true;
            params.field_validation = Some(kube::api::ValidationDirective::Strict);
            let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
            applied.unwrap_or_else(|error| panic!("{}: {} {name}: {error}", path.display(), types.kind));
        }
    }
    let wanted: Value = serde_json::json!({
        "requests": {"memory": "32Mi", "cpu": "10m"},
        "limits": {"memory": "64Mi", "cpu": "100m"},
    });
    assert_eq!(limits, Some(wanted));
}

#[test]
fn the_demo_ingresses_show_two_good_ones_a_wildcard_and_one_that_does_not_ask() {
    let mut hosts = BTreeMap::new();
    let mut problems = 0;
    for object in documents(&root().join("examples/demo/ingress.yaml")) {
        let types = object.types.clone().unwrap();
        if types.kind == "Namespace" {
            continue;
        }
        assert_eq!(object.metadata.namespace.as_deref(), Some("demo"));
        let ingress = serde_json::from_value(serde_json::to_value(&object).unwrap()).unwrap();
        if let Some(claimant) = read(&ingress, TARGET.parse().unwrap(), false) {
            problems += claimant.problems.len();
            hosts.insert(object.metadata.name.unwrap(), claimant.hosts.len());
        }
    }
    assert_eq!((hosts.len(), problems), (3, 1), "{hosts:?}");
    assert!(hosts.values().all(|count| *count > 0));
}

on_both! {
    async fn row_54_the_integration_cases_of_the_request_one_after_another(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let running = bed.start(piholes.instances());
        bed.register("app", &["a.lan", "b.lan"]).await;
        piholes.serve("a.lan", &[TARGET]).await;
        bed.set_hosts("app", &["b.lan", "c.lan"]).await;
        piholes.serve("c.lan", &[TARGET]).await;
        piholes.serve("a.lan", &[]).await;
        bed.annotate("app", REGISTER, None).await;
        piholes.serve("b.lan", &[]).await;
        bed.annotate("app", REGISTER, Some("true")).await;
        piholes.serve("b.lan", &[TARGET]).await;
        bed.delete("app").await;
        piholes.serve("b.lan", &[]).await;
        bed.create(Draft::new("bad", &["bad.lan"]).registered().annotate(TARGET_IP, "nonsense")).await;
        until("it is said", || logs::about(&bed.path("bad"), "invalid annotation").len() == 1).await;
        assert!(logs::about(&bed.path("bad"), "reconcile failed").is_empty(), "skipped, and no error");
        running.is_ready().await;
        piholes.serve("bad.lan", &[]).await;
    }
}

/// Prints what one pass says, when a parent test asks for it.
#[tokio::test]
async fn a_child_process_speaks() {
    if std::env::var_os("SIGNPOST_TEST_SPEAK").is_none() {
        return;
    }
    signpost_engine::logs::init("debug", signpost_engine::logs::Format::Json).unwrap();
    let policy = Policy {
        gather: std::time::Duration::ZERO,
        ..Policy::new(OwnerId::parse("home").unwrap(), TARGET.parse().unwrap())
    };
    let index = Arc::new(IngressIndex::new(policy.default_target, false, vec!["pihole".into()], Queue::new()));
    let ingress = |name: &str, host: &str, ip: &str| {
        serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "default", "name": name, "uid": name, "annotations": {REGISTER: "true", TARGET_IP: ip}},
            "spec": {"rules": [{"host": host}]},
        }))
        .unwrap()
    };
    index.applied(&ingress("my-app", "app.local", "192.168.1.100"));
    index.applied(&ingress("bad", "bad.local", "bad"));
    let pihole = MemoryPihole::new();
    let instances =
        BTreeMap::from([("pihole".to_owned(), Arc::new(Instance::new("pihole", Arc::new(pihole.clone()))))]);
    let service = tower_service();
    let ledgers = Arc::new(ConfigMaps::new(service, "default", "home"));
    let system =
        PiholeSystem::new(policy, Arc::clone(&index), instances, ledgers, Arc::new(SystemClock), &Metrics::new());
    for fault in [None, Some(signpost_provider_pihole::PiholeError::Timeout)] {
        pihole.fail(fault);
        let touched = Touched::Some([IngressKey::new("default", "my-app")].into());
        let job = Job { key: "pihole".to_owned(), touched, attempt: 0 };
        let plan = system.plan(system.observe(&job).await, jiff::Timestamp::now());
        let applied = system.apply(plan).await;
        let _ = system.report(applied, jiff::Timestamp::now());
    }
}

/// A client that is never used.
fn tower_service() -> kube::Client {
    let mut config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    config.auth_info = kube::config::AuthInfo::default();
    let _ = rustls_provider();
    kube::Client::try_from(config).unwrap()
}

fn rustls_provider() -> bool {
    // The HTTP client of the provider installs the TLS provider of the process.
    let url = signpost_provider_pihole::parse_base_url("http://127.0.0.1:9").unwrap();
    let connection =
        signpost_provider_pihole::Connection::new(url, signpost_provider_pihole::Secret::Value(String::new()));
    signpost_provider_pihole::connect(connection, signpost_provider_pihole::Dialect::V6).is_ok()
}

#[test]
fn row_47_and_49_log_lines_are_flat_json_with_time_level_and_msg_first() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_process_speaks", "--nocapture", "--test-threads=1"])
        .env("SIGNPOST_TEST_SPEAK", "1")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<serde_json::Map<String, Value>> =
        text.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
    let find =
        |msg: &str| lines.iter().find(|line| line["msg"] == msg).unwrap_or_else(|| panic!("no {msg:?} in {text}"));
    let created = find("dns record created");
    assert_eq!(
        (created["level"].as_str(), created["ingress"].as_str(), created["host"].as_str(), created["ip"].as_str()),
        (Some("INFO"), Some("default/my-app"), Some("app.local"), Some("192.168.1.100"))
    );
    assert_eq!(find("invalid annotation")["level"], "WARN");
    assert_eq!(find("reconcile started")["level"], "DEBUG");
    for msg in ["pi-hole api error", "reconcile failed"] {
        assert_eq!(
            (find(msg)["level"].as_str(), find(msg)["ingress"].as_str()),
            (Some("ERROR"), Some("default/my-app"))
        );
        assert!(!find(msg)["error"].as_str().unwrap().is_empty());
    }
    assert_eq!(find("pi-hole api error")["operation"], "list");
    for line in &lines {
        assert!(line["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        assert!(line.values().all(|value| !value.is_object() && !value.is_array()), "{line:?} is flat");
    }
    let raw = text.lines().find(|line| line.contains("dns record created")).unwrap();
    let place = |key: &str| raw.find(&format!("\"{key}\":")).unwrap();
    assert!(place("time") < place("level") && place("level") < place("msg") && place("msg") < place("ingress"));
}

#[test]
fn every_row_of_the_acceptance_list_has_a_test() {
    let mut text = String::new();
    for folder in ["crates/systems/pihole/src", "crates/systems/pihole/tests", "crates/providers/pihole/tests"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ext| ext == "rs") {
                text.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_once("fn row_")).map(|(_, name)| name).collect();
    let rows = |name: &str| {
        let words: Vec<&str> = name.split('_').take(3).collect();
        let number = |word: &str| word.parse::<u32>().ok();
        match words.as_slice() {
            [first, "to", last] => (number(first).unwrap_or(1)..=number(last).unwrap_or(0)).collect(),
            [first, "and", second] => [number(first), number(second)].into_iter().flatten().collect::<Vec<u32>>(),
            [first, ..] => number(first).into_iter().collect(),
            [] => Vec::new(),
        }
    };
    let covered: std::collections::BTreeSet<u32> = names.iter().flat_map(|name| rows(name)).collect();
    let missing: Vec<u32> = (1..=55).filter(|row| !covered.contains(row)).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
}
