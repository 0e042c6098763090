//! A further system needs one line in `systems.rs`. The spec of `docs/add-a-system.md` is compiled here, and CRDs, permissions and the demo
//! are taken from a list that has it.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use serde_json::{Value, json};
use signpost::cli::DemoArgs;
use signpost::systems::SYSTEMS;
use signpost::{crds, demo, rbac};
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::demo::{BoxError, Demo, Mirror, Mirrored, Names, Show, Stage, Starting, State, answered};
use signpost_engine::{Configured, Operator, OperatorOptions, Rule, Setting, Settings, SystemSpec};
use signpost_sandbox::{Fault, FaultPlan, Sandbox, SandboxOptions};
use signpost_testkit::eventually;
use tokio_util::sync::CancellationToken;

/// The system of the example.
#[allow(dead_code)] // its own test uses more of it
#[path = "../../engine/tests/example/greeter.rs"]
mod system;

mod greeter {
    use super::*;

    // docs/add-a-system.md has this text.
    pub const SPEC: SystemSpec = SystemSpec {
        name: "greeter",
        title: "Greeter",
        about: "Greeting → ConfigMap",
        settings: &[Setting::new("GREETER_PREFIX", "TEXT", "Text before every greeting").or("")],
        servers: &[], // no server: it runs when SIGNPOST_SYSTEMS names it
        hints: &[],
        crds,
        rules: &[
            Rule {
                own_namespace: false,
                group: "test.signpost.dev",
                resources: &["greetings"],
                names: &[],
                verbs: &["list", "watch"],
                why: "the greetings",
            },
            Rule {
                own_namespace: false,
                group: "test.signpost.dev",
                resources: &["greetings/status"],
                names: &[],
                verbs: &["patch"],
                why: "the status of the greetings",
            },
            Rule {
                own_namespace: false,
                group: "",
                resources: &["configmaps"],
                names: &[],
                verbs: &["get", "list", "watch", "patch", "create"],
                why: "the texts of the greetings",
            },
        ],
        variants: &[],
        shared: &[],
        configure,
        demo: Some(Demo { examples: &[("greeter.yaml", EXAMPLE)], crds: Vec::new, start }),
    };

    const EXAMPLE: &str = "{apiVersion: test.signpost.dev/v1, kind: Greeting, metadata: {name: hello, namespace: demo}, spec: {text: hi}}";

    fn crds() -> Vec<CustomResourceDefinition> {
        let names = json!({"kind": "Greeting", "plural": "greetings", "singular": "greeting"});
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
        let spec = json!({"group": "test.signpost.dev", "scope": "Namespaced", "names": names, "versions": [version]});
        vec![
            serde_json::from_value(json!({"metadata": {"name": "greetings.test.signpost.dev"}, "spec": spec})).unwrap(),
        ]
    }

    #[allow(clippy::unnecessary_wraps)] // a system whose settings are wrong returns none
    fn configure(settings: &mut Settings) -> Option<Box<dyn Configured>> {
        let prefix = settings.given("GREETER_PREFIX").unwrap_or_default().to_owned();
        Some(Box::new(move |operator: &mut Operator| {
            system::install(operator, prefix);
            Ok(())
        }))
    }

    /// Serves every greeting as a name, in two clusters.
    fn start(stage: &mut dyn Stage) -> Starting<'_> {
        Box::pin(async move {
            system::install(stage.operator(), String::new());
            let (names, name) = (stage.names(), Fqdn::parse("hello.greeting.test")?);
            Mirror::new(stage.names()).names([Mirrored {
                name,
                rtype: RecordType::A,
                ttl: 60,
                data: vec!["192.0.2.7".into()],
            }]);
            let here = stage.operator().client();
            let there = stage.cluster("west").await?.client();
            Ok(Box::new(Greeter { names, here, there }) as Box<dyn Show>)
        })
    }

    struct Greeter {
        names: Arc<dyn Names>,
        here: kube::Client,
        there: kube::Client,
    }

    impl Show for Greeter {
        fn about(&self) -> String {
            "names in memory, in two clusters".into()
        }

        fn check<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Option<State>> {
            Box::pin(async move {
                let name = object["metadata"]["name"].as_str().filter(|_| object["kind"] == "Greeting")?;
                Some(answered(&*self.names, [(format!("{name}.greeting.test."), "A".to_owned())]).await)
            })
        }

        fn then(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>> {
            Box::pin(async {
                let named = |name: &str| ConfigMap {
                    metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
                    ..ConfigMap::default()
                };
                let maps = |client: &kube::Client| Api::<ConfigMap>::default_namespaced(client.clone());
                maps(&self.there).create(&PostParams::default(), &named("west")).await?;
                if maps(&self.here).get_opt("west").await?.is_some() {
                    return Err("the two clusters are one".into());
                }
                Ok(vec!["  west     is a cluster of its own".into()])
            })
        }
    }
}

fn once() -> DemoArgs {
    let (dns_port, api_port, health_port) = (0, 0, 0);
    DemoArgs { once: true, examples: None, dns_port, api_port, health_port, kubeconfig: None, timeout: 120 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_further_spec_gives_crds_permissions_and_its_demo() {
    let systems: Vec<SystemSpec> = SYSTEMS.iter().copied().chain([greeter::SPEC]).collect();
    let groups: Vec<String> = crds::of(&systems).into_iter().map(|crd| crd.spec.group).collect();
    assert!(groups.contains(&"test.signpost.dev".to_owned()), "{groups:?}");
    let rules = rbac::manifests("signpost", &systems)[1]["rules"].to_string();
    assert!(rules.contains("greetings/status"), "{rules}");
    let ending = demo::run_systems(&systems, &once(), CancellationToken::new()).await.unwrap();
    assert_eq!(ending, demo::Ending::Converged);
}

#[tokio::test]
async fn the_documented_spec_installs_a_system_that_works() {
    let sandbox = Sandbox::new(SandboxOptions::default());
    let client = sandbox.client();
    for crd in crds::of(&[greeter::SPEC]) {
        Api::all(client.clone()).create(&PostParams::default(), &crd).await.unwrap();
    }
    let mut settings = Settings::new([("GREETER_PREFIX", "dear-")]);
    let configured = (greeter::SPEC.configure)(&mut settings).unwrap();
    let requests: Arc<Mutex<BTreeSet<[String; 3]>>> = Arc::default();
    let recorded = requests.clone();
    let recording = sandbox.client_with(FaultPlan::new(move |info, _| {
        let resource = [&*info.resource, &*info.subresource].join("/");
        let request = [info.verb.clone(), info.group.clone(), resource.trim_end_matches('/').to_owned()];
        recorded.lock().unwrap().insert(request);
        Fault::None
    }));
    let mut operator = Operator::new(recording, OperatorOptions::default());
    configured.install(&mut operator).unwrap();
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    tokio::spawn(operator.run(stop));
    let greeting = system::index::Greeting::new("hello", system::index::GreetingSpec { text: "world".into() });
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &greeting).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let deadline = Duration::from_mins(2);
    let text = eventually("the greeting has its ConfigMap", deadline, async || {
        let map = maps.get_opt("hello").await.map_err(|error| error.to_string())?;
        map.and_then(|map| map.data?.remove("text")).ok_or_else(|| "none yet".to_owned())
    });
    assert_eq!(text.await, "dear-world");
    let greetings: Api<system::index::Greeting> = Api::default_namespaced(client);
    let reason = eventually("the greeting has its status", deadline, async || {
        let status = greetings.get("hello").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        status.conditions.first().map(|condition| condition.reason.clone()).ok_or_else(|| "none yet".to_owned())
    });
    assert_eq!(reason.await, "Greeted");
    for [verb, group, resource] in requests.lock().unwrap().iter().filter(|[_, _, resource]| !resource.is_empty()) {
        assert!(rbac::allows(&[greeter::SPEC], verb, group, resource), "no rule allows {verb} {resource} ({group})");
    }
}

/// The scope of a kind is in its CRD, and nowhere else.
#[test]
fn a_kind_without_a_namespace_is_granted_by_a_cluster_role() {
    fn without_namespace() -> Vec<CustomResourceDefinition> {
        let mut crds = (greeter::SPEC.crds)();
        for crd in &mut crds {
            crd.spec.scope = "Cluster".into();
        }
        crds
    }
    let granted = |spec: SystemSpec, kind: &str| -> BTreeSet<String> {
        let places = rbac::Places { watched: ["shop".to_owned()].into(), ..rbac::Places::default() };
        let roles = rbac::manifests_in("signpost", "signpost", &places, &[spec]);
        let rules = roles.iter().filter(|role| role["kind"] == kind).filter_map(|role| role["rules"].as_array());
        let resources = rules.flatten().filter_map(|rule| rule["resources"].as_array()).flatten();
        resources.map(|resource| resource.as_str().unwrap().to_owned()).collect()
    };
    let greetings = ["greetings".to_owned(), "greetings/status".to_owned()];
    let of_cluster = SystemSpec { crds: without_namespace, ..greeter::SPEC };
    assert_eq!(granted(of_cluster, "ClusterRole"), BTreeSet::from(greetings.clone()));
    assert!(greetings.iter().all(|resource| !granted(of_cluster, "Role").contains(resource)));
    assert!(granted(greeter::SPEC, "ClusterRole").is_empty());
    assert!(greetings.iter().all(|resource| granted(greeter::SPEC, "Role").contains(resource)));
}

/// The one system that must not have a result is missing from the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_whose_last_step_fails_has_not_converged() {
    struct Failing;
    impl Show for Failing {
        fn about(&self) -> String {
            "fails".into()
        }
        fn check<'a>(&'a self, _object: &'a Value) -> BoxFuture<'a, Option<State>> {
            Box::pin(async { None })
        }
        fn then(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>> {
            Box::pin(async { Err("on purpose".into()) })
        }
    }
    let demo = Demo { examples: &[], crds: Vec::new, start: |_| Box::pin(async { Ok(Box::new(Failing) as _) }) };
    let spec = SystemSpec { demo: Some(demo), ..greeter::SPEC };
    let ending = demo::run_systems(&[spec], &once(), CancellationToken::new()).await.unwrap();
    assert_eq!(ending, demo::Ending::Short);
}

#[test]
fn the_example_system_has_fewer_than_250_lines_with_its_test() {
    let (system, test) =
        (include_str!("../../engine/tests/example/greeter.rs"), include_str!("../../engine/tests/example/main.rs"));
    assert!(system.contains("impl System for Greeter") && test.contains("#[tokio::test"));
    let lines = system.lines().count() + test.lines().count();
    assert!(lines < 250, "{lines} lines");
}

#[test]
fn the_documented_spec_is_the_compiled_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let spec = |text: &str| {
        let from = text.find("pub const SPEC").expect("there is a SPEC");
        words(&text[from..][..text[from..].find("};").expect("it ends")])
    };
    let page = std::fs::read_to_string(root.join("docs/add-a-system.md")).unwrap();
    let here = std::fs::read_to_string(root.join("crates/signpost/tests/one_line.rs")).unwrap();
    assert_eq!(spec(&page), spec(&here));
}
