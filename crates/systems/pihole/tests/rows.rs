//! The rest of the acceptance list: examples, the integration cases, and that every row has a test (`ROWS.md`).

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use common::{Bed, Both, Draft, TARGET, logs, until};
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use signpost_engine::Settings;
use signpost_planning::Reason;
use signpost_system_pihole::{PiholeConfig, Problem, REASONS, REGISTER, SPEC, TARGET_IP, read};
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

/// Kind, namespace and name of every object in these files.
fn places(paths: &[PathBuf]) -> BTreeSet<(String, Option<String>, Option<String>)> {
    let place = |object: DynamicObject| {
        let kind = object.types.map(|types| types.kind).unwrap_or_default();
        (kind, object.metadata.namespace, object.metadata.name)
    };
    paths.iter().flat_map(|path| documents(path)).map(place).collect()
}

#[test]
fn no_example_replaces_an_object_of_the_shipped_installation() {
    let shipped = places(&["operator.yaml", "rbac.yaml"].map(|name| root().join("deploy").join(name)));
    let examples = places(&examples());
    for places in [&shipped, &examples] {
        assert!(places.iter().any(|(kind, ..)| kind == "Deployment"), "{places:?}");
    }
    let both: Vec<_> = examples.intersection(&shipped).collect();
    assert!(both.is_empty(), "{both:?}");
}

#[test]
fn the_demo_has_two_good_ingresses_a_wildcard_and_an_unregistered_one() {
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

#[test]
fn the_settings_in_the_examples_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = dir.path().to_str().unwrap();
    for file in ["token", "primary-ca.crt"] {
        std::fs::write(dir.path().join(file), "something").unwrap();
    }
    let here = |text: &str| text.replace("/etc/signpost/pihole", mounted);
    let deployment = documents(&root().join("examples/pihole/deployment.yaml")).pop().unwrap();
    let container = deployment.data["spec"]["template"]["spec"]["containers"][0].clone();
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    for variable in container["env"].as_array().unwrap() {
        given.insert(variable["name"].as_str().unwrap().to_owned(), here(variable["value"].as_str().unwrap()));
    }
    let known = |name: &String| SPEC.settings.iter().any(|setting| setting.name == *name);
    assert!(given.keys().all(known), "{given:?} are not all settings of this system");
    let mut one = Settings::new(given);
    assert_eq!(PiholeConfig::read(&mut one).unwrap().instances.len(), 1);

    let secret = documents(&root().join("examples/pihole/two-piholes.yaml")).pop().unwrap();
    let file = dir.path().join("instances.yaml");
    std::fs::write(&file, here(secret.data["stringData"]["instances.yaml"].as_str().unwrap())).unwrap();
    let mut two = one;
    two.set("PIHOLE_URL", "");
    two.set("PIHOLE_API_TOKEN_FILE", "");
    two.set("PIHOLE_INSTANCES_FILE", file.to_str().unwrap());
    assert_eq!(PiholeConfig::read(&mut two).unwrap().instances.len(), 2);
}

on_both! {
    async fn row_44_every_example_is_accepted_and_has_the_resources_of_the_request(cluster) {
        let mut limits = None;
        let namespace = cluster.namespace("examples").await;
        for path in examples() {
            for mut object in documents(&path) {
                let types = object.types.clone().unwrap();
                if types.kind == "Deployment" {
                    limits = Some(object.data["spec"]["template"]["spec"]["containers"][0]["resources"].clone());
                }
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
        until("it is logged", || logs::about(&bed.path("bad"), "invalid annotation").len() == 1).await;
        assert!(logs::about(&bed.path("bad"), "reconcile failed").is_empty(), "skipped, and not an error");
        running.is_ready().await;
        piholes.serve("bad.lan", &[]).await;
    }
}

/// The words in quotes after `=> ` in a source file.
fn quoted(source: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(source)).unwrap();
    let word = |line: &str| Some(line.split_once("=> \"")?.1.split_once('"')?.0.to_owned());
    text.lines().filter_map(word).collect()
}

#[test]
fn every_reason_is_explained_and_every_variable_is_documented() {
    let page = std::fs::read_to_string(root().join("docs/troubleshoot-pihole.md")).unwrap();
    let mut reasons: BTreeSet<String> =
        REASONS.into_iter().chain(Problem::REASONS).map(|reason| reason.as_str().to_owned()).collect();
    reasons.extend(quoted("crates/providers/pihole/src/error.rs"));
    reasons.extend([Reason::Ledger, Reason::Unsettled].map(|reason| reason.as_str().to_owned()));
    assert!(reasons.contains("AppSudoOff") && reasons.contains("Unsettled") && reasons.len() > 25, "{reasons:?}");
    for reason in reasons {
        assert!(reason.parse::<Reason>().is_ok(), "{reason} is not in the closed list");
        let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{reason}`")));
        let what_to_do = row.and_then(|row| row.trim_end_matches('|').rsplit('|').next()).unwrap_or_default();
        assert!(!what_to_do.trim().is_empty(), "{reason} is not explained");
    }
    let page = std::fs::read_to_string(root().join("docs/homelab-pihole.md")).unwrap();
    let mut variables: Vec<&str> = SPEC.settings.iter().map(|setting| setting.name).collect();
    variables.extend(["WATCH_NAMESPACE", "LOG_LEVEL"]);
    assert!(variables.contains(&"PIHOLE_URL") && variables.len() >= 15, "{variables:?}");
    for variable in variables {
        assert!(page.contains(&format!("`{variable}`")), "{variable} is not documented");
    }
}

#[test]
fn every_row_of_the_acceptance_list_has_a_test_on_both_api_servers() {
    let folder = root().join("crates/systems/pihole/tests");
    let mut text = String::new();
    let beside = [root().join("crates/signpost/tests/pihole/main.rs")];
    let here = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    for path in here.chain(beside) {
        if path.extension().is_some_and(|ext| ext == "rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    // Only a test of `on_both!` is given a cluster.
    let on_both: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("async fn ")?.split_once("(cluster)"))
        .map(|(name, _)| name)
        .collect();
    let table = std::fs::read_to_string(folder.join("ROWS.md")).unwrap();
    let mut covered = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(row) = cells.get(1).and_then(|cell| cell.parse::<u32>().ok()) else { continue };
        let here: BTreeSet<&str> = cells[3].split('`').filter(|name| on_both.contains(name)).collect();
        assert!(!here.is_empty(), "no test of row {row} runs on both: {line}");
        let named = cells[3].split(" (").next().unwrap().split('`').filter(|name| name.starts_with("row_"));
        for name in named {
            assert!(here.contains(name), "row {row} names {name}, which is not a test on both");
        }
        covered.insert(row);
        listed.extend(here);
    }
    let missing: Vec<u32> = (1..=55).filter(|row| !covered.contains(row)).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
    let unlisted: Vec<&&str> =
        on_both.iter().filter(|name| name.starts_with("row_") && !listed.contains(*name)).collect();
    assert!(unlisted.is_empty(), "tests that the table does not list: {unlisted:?}");
}
