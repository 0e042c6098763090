//! Applies every YAML that a user may copy: the examples, and the blocks of the documentation.
//!
//! Blocks with `apiVersion` and `kind` of a kind that the sandbox serves must be accepted as they are; every other block must at least parse.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Discovery;
use serde_json::{Value, json};
use signpost::manifest;
use signpost_sandbox::{Sandbox, SandboxOptions};
use signpost_testkit::Lines;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, endings, found);
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e)) {
            found.push(path);
        }
    }
    found.sort();
}

/// The YAML blocks of a Markdown file.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        match (&mut open, line.trim_start()) {
            (None, "```yaml") => open = Some(String::new()),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), _) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

#[test]
fn r088_pangolin_classes_name_our_controller_and_are_not_the_default() {
    let path = root().join("examples/pangolin/ingressclass.yaml");
    let classes = manifest::from_yaml("ingressclass.yaml", &std::fs::read_to_string(path).unwrap()).unwrap();
    let names: Vec<&str> = classes.iter().filter_map(|class| class["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["pangolin", "pangolin-edge-eu"]);
    for class in &classes {
        assert_eq!((&class["apiVersion"], &class["kind"]), (&json!("networking.k8s.io/v1"), &json!("IngressClass")));
        assert_eq!(class["spec"]["controller"], signpost_system_pangolin::CONTROLLER);
        let default = &class["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"];
        assert_ne!(default, "true", "{class}");
    }
    // They are not made by the operator: it may not.
    let rules = signpost_system_pangolin::SPEC.rules.iter().filter(|rule| rule.resources.contains(&"ingressclasses"));
    let verbs: Vec<&str> = rules.flat_map(|rule| rule.verbs).copied().collect();
    assert_eq!(verbs, ["list", "watch"]);
}

#[test]
fn every_reason_is_on_the_troubleshooting_page() {
    let page = std::fs::read_to_string(root().join("docs/troubleshoot.md")).unwrap();
    for reason in signpost_planning::Reason::ALL {
        assert!(page.contains(&format!("`{reason}`")), "{reason} is not in docs/troubleshoot.md");
    }
    for state in signpost_system_router::State::ALL.iter().map(|state| state.as_str()) {
        assert!(page.contains(&format!("`{state}`")), "the state {state} of router is not in docs/troubleshoot.md");
    }
}

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn the_readme_applies_the_kinds_before_the_operator() {
    let readme = page("README.md");
    let (_, block) = readme.split_once("In the cluster it is an image, a role and a Deployment:").unwrap();
    let block = block.split("```").nth(1).unwrap();
    let at = |file: &str| {
        let line = block.lines().position(|line| line.starts_with("kubectl apply ") && line.contains(file));
        line.unwrap_or_else(|| panic!("{file} is not applied: {block}"))
    };
    assert!(at("deploy/crds.yaml") < at("deploy/operator.yaml"), "{block}");
    assert!(at("deploy/rbac.yaml") < at("deploy/operator.yaml"), "{block}");
}

#[test]
fn the_pihole_pages_name_the_setting_that_lets_an_app_password_write() {
    for (path, end) in [("docs/homelab-pihole.md", "\n2. "), ("docs/troubleshoot-pihole.md", "\n")] {
        let page = page(path);
        let (_, rest) = page.split_once("`AppSudoOff`").unwrap_or_else(|| panic!("{path} does not name AppSudoOff"));
        let explained = rest.split(end).next().unwrap();
        assert!(explained.contains("pihole-FTL --config webserver.api.app_sudo true"), "{path}: {explained}");
    }
}

/// The commands that the demo prints once it is complete.
fn commands_of_the_demo() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_signpost"))
        .args(["demo", "--api-port", "0", "--dns-port", "0", "--health-port", "0", "--kubeconfig"])
        .arg(folder.path().join("kubeconfig"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = Lines::of(demo.stdout.take().unwrap());
    let (mut to_try, mut commands) = (false, Vec::new());
    loop {
        let line = lines.next(Duration::from_mins(2)).expect("the demo runs until it is stopped");
        match line.strip_prefix("  ") {
            _ if line.contains("Ctrl-C stops it") => break,
            Some(command) if to_try => commands.push(command.to_owned()),
            _ => to_try = line == "try",
        }
    }
    demo.kill().unwrap();
    demo.wait().unwrap();
    commands
}

#[test]
fn the_commands_that_the_demo_prints_can_be_pasted() {
    let commands = commands_of_the_demo();
    for start in ["dig @", "kubectl --kubeconfig "] {
        assert!(commands.iter().any(|command| command.starts_with(start)), "{commands:?}");
    }
    for command in &commands {
        let checked = Command::new("bash").args(["-n", "-c", command]).output().unwrap();
        assert!(checked.status.success(), "{command}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

async fn applied(client: &kube::Client, discovery: &Discovery, source: &str, object: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some((resource, capabilities)) = discovery.resolve_gvk(&GroupVersionKind::gvk(group, version, &kind)) else {
        return false;
    };
    let api: Api<DynamicObject> = match capabilities.scope {
        kube::discovery::Scope::Namespaced => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
            let namespaces: Api<DynamicObject> = Api::all_with(
                client.clone(),
                &discovery.resolve_gvk(&GroupVersionKind::gvk("", "v1", "Namespace")).unwrap().0,
            );
            let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            namespaces.patch(namespace, &PatchParams::apply("docs"), &Patch::Apply(&made)).await.unwrap();
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_else(|| panic!("{source}: an object has no name"));
    let params = PatchParams {
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::apply("docs").force()
    };
    let result = api.patch(name, &params, &Patch::Apply(object)).await;
    assert!(result.is_ok(), "{source}: {kind} {name} is refused: {}", result.unwrap_err());
    true
}

#[tokio::test]
async fn every_example_and_yaml_block_of_the_docs_is_accepted() {
    let sandbox = Sandbox::new(SandboxOptions::default());
    let client = sandbox.client();
    let crds: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(client.clone());
    for crd in signpost::crds::all().into_iter().chain([signpost_apis::externaldns::crd()]) {
        crds.create(&kube::api::PostParams::default(), &crd).await.unwrap();
    }
    let discovery = Discovery::new(client.clone()).run().await.unwrap();

    let mut sources: Vec<(String, String)> = Vec::new();
    let mut yaml = Vec::new();
    files(&root().join("examples"), &["yaml"], &mut yaml);
    files(&root().join("deploy"), &["yaml"], &mut yaml);
    for file in yaml {
        sources.push((file.display().to_string(), std::fs::read_to_string(&file).unwrap()));
    }
    let mut pages = vec![root().join("README.md")];
    files(&root().join("docs"), &["md"], &mut pages);
    for page in pages {
        for (number, block) in blocks(&std::fs::read_to_string(&page).unwrap()).into_iter().enumerate() {
            sources.push((format!("{} block {}", page.display(), number + 1), block));
        }
    }

    let (mut accepted, mut kinds) = (0, BTreeSet::new());
    for (source, text) in &sources {
        let is_object = text.lines().any(|line| line.starts_with("apiVersion:"));
        if !is_object {
            let parsed: Result<Vec<Value>, _> = serde_saphyr::from_multiple(text);
            assert!(parsed.is_ok(), "{source} is not valid YAML: {}", parsed.unwrap_err());
            continue;
        }
        for object in manifest::from_yaml(source, text).unwrap() {
            if applied(&client, &discovery, source, &object).await {
                accepted += 1;
                kinds.insert(object["kind"].as_str().unwrap().to_owned());
            }
        }
    }
    let router = ["ClusterIdentity", "DNSConfiguration", "Gateway", "DNSPolicy", "ServiceRoute", "Role", "ClusterRole"];
    let others = ["Zone", "ClusterZone", "RRset", "ClusterRRset", "Ingress", "DNS", "Portal"];
    for kind in others.into_iter().chain(router) {
        assert!(kinds.contains(kind), "no example of {kind} was applied");
    }
    assert!(accepted >= 20, "only {accepted} objects were applied");
}
