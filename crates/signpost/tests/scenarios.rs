//! Scenarios as data: objects and provider state in, provider state, statuses and events out. A bug report can be a file.
//!
//! Every file of `tests/scenarios/SYSTEM/` is run on the sandbox with a provider in memory, on a paused clock. After each step the operator
//! has ten minutes of that clock. `UPDATE=1 cargo test -p signpost --test scenarios` writes the results as the expectations: read the
//! difference before you commit it. `tests/scenarios/README.md` explains the format.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};
use signpost::{crds, manifest};
use signpost_dns::{Fqdn, ZoneName};
use signpost_engine::{ManualClock, Operator, OperatorOptions};
use signpost_provider_pihole::{Line, MemoryPihole, OwnerId, PiholeError};
use signpost_provider_powerdns::{Action, Call, Change, CommentChange, Fault, MemoryServer, NewZone, ServerError};
use signpost_provider_powerdns::{SetContent, ZoneServer, ZoneSettings};
use signpost_sandbox::{Sandbox, SandboxClock, SandboxOptions};
use signpost_system_pihole::{Instance, Policy};
use signpost_system_powerdns::Pace;
use tokio_util::sync::CancellationToken;

/// How long the operator has after each step.
const QUIET: Duration = Duration::from_mins(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// Its purpose, in one sentence.
    #[allow(dead_code, reason = "for readers of the file")]
    about: String,
    system: System,
    /// The provider's content before the operator starts: record lines by zone, or the lines of the Pi-hole.
    #[serde(default)]
    provider: BTreeMap<String, Vec<String>>,
    /// The objects of the cluster before the operator starts, created a second apart.
    #[serde(default)]
    objects: Vec<Value>,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    expected: Value,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum System {
    Powerdns,
    Pihole,
}

/// One step of a scenario.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Step {
    /// A user applies an object.
    Apply(Value),
    /// A user deletes an object.
    Delete(Named),
    /// A user edits the provider by hand: lines as in `provider`; a line that begins with `-` is removed.
    Edit(BTreeMap<String, Vec<String>>),
    /// The provider loses everything.
    Wipe(()),
    /// The provider does not answer from now on.
    Down(()),
    /// The provider answers again.
    Up(()),
    /// The operator is stopped and started again.
    Restart(()),
    /// The operator is stopped.
    Stop(()),
}

#[derive(Deserialize)]
struct Named {
    kind: String,
    name: String,
}

enum Provider {
    PowerDns(MemoryServer),
    Pihole(MemoryPihole),
}

struct Environment {
    sandbox: Sandbox,
    client: Client,
    provider: Provider,
    clock: Arc<ManualClock>,
    running: Option<(CancellationToken, tokio::task::JoinHandle<()>)>,
}

fn resource(kind: &str) -> ApiResource {
    let (group, version, plural) = match kind {
        "Zone" => ("dns.cav.enablers.ob", "v1alpha2", "zones"),
        "ClusterZone" => ("dns.cav.enablers.ob", "v1alpha2", "clusterzones"),
        "RRset" => ("dns.cav.enablers.ob", "v1alpha2", "rrsets"),
        "ClusterRRset" => ("dns.cav.enablers.ob", "v1alpha2", "clusterrrsets"),
        "Ingress" => ("networking.k8s.io", "v1", "ingresses"),
        other => panic!("{other} is not a kind of the scenarios"),
    };
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: format!("{group}/{version}"),
        kind: kind.into(),
        plural: plural.into(),
    }
}

impl Environment {
    async fn new(system: System) -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = SandboxClock::tokio_from(start);
        let sandbox = Sandbox::new(SandboxOptions { clock, seed: 1, ..SandboxOptions::default() });
        let client = sandbox.client();
        let definitions: Api<
            k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        > = Api::all(client.clone());
        for crd in crds::all() {
            definitions.create(&kube::api::PostParams::default(), &crd).await.unwrap();
        }
        let provider = match system {
            System::Powerdns => Provider::PowerDns(MemoryServer::new()),
            System::Pihole => Provider::Pihole(MemoryPihole::new()),
        };
        Self { sandbox, client, provider, clock: Arc::new(ManualClock::starting_at(start)), running: None }
    }

    fn start(&mut self) {
        let options = OperatorOptions { clock: self.clock.clone(), ..OperatorOptions::default() };
        let mut operator = Operator::new(self.sandbox.client(), options);
        match &self.provider {
            Provider::PowerDns(server) => {
                signpost_system_powerdns::install_with(&mut operator, Arc::new(server.clone()), Pace::default());
            }
            Provider::Pihole(pihole) => {
                let policy = Policy::new(OwnerId::parse("scenario").unwrap(), "192.0.2.80".parse().unwrap());
                let instances = vec![Instance::new("pihole", Arc::new(pihole.clone()))];
                signpost_system_pihole::install_instances(&mut operator, policy, instances);
            }
        }
        let stop = CancellationToken::new();
        let ends = stop.clone();
        self.running = Some((stop, tokio::spawn(async move { operator.run(ends).await.unwrap() })));
    }

    async fn stop(&mut self) {
        if let Some((stop, task)) = self.running.take() {
            stop.cancel();
            task.await.unwrap();
        }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        match kind {
            "ClusterZone" | "ClusterRRset" => Api::all_with(self.client.clone(), &resource(kind)),
            _ => Api::namespaced_with(self.client.clone(), "default", &resource(kind)),
        }
    }

    /// A user's apply. A rejection by the API server is part of the result.
    async fn apply(&self, object: &Value, refused: &mut Vec<String>) {
        let kind = object["kind"].as_str().expect("an object has a kind");
        let name = object["metadata"]["name"].as_str().expect("an object has a name");
        let mut object = object.clone();
        object["apiVersion"] = json!(resource(kind).api_version);
        let answer = self.api(kind).patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await;
        if let Err(kube::Error::Api(status)) = answer {
            refused.push(format!("{kind} {name}: {}", status.message));
        }
        // Kubernetes counts ages in whole seconds.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    async fn edit(&self, lines: &BTreeMap<String, Vec<String>>) {
        match &self.provider {
            Provider::PowerDns(server) => {
                for (zone, lines) in lines {
                    edit_zone(server, &ZoneName::parse(zone).unwrap(), lines).await;
                }
            }
            Provider::Pihole(pihole) => pihole.edit(|listing| {
                for (list, lines) in lines {
                    let list = if list == "hosts" { &mut listing.hosts } else { &mut listing.cnames };
                    for line in lines {
                        match line.strip_prefix('-') {
                            Some(removed) => list.retain(|have| have.as_str() != removed.trim()),
                            None => list.push(Line::stored(line)),
                        }
                    }
                }
            }),
        }
    }

    fn wipe(&self) {
        match &self.provider {
            Provider::PowerDns(server) => server.wipe(),
            Provider::Pihole(pihole) => pihole.edit(|listing| {
                listing.hosts.clear();
                listing.cnames.clear();
            }),
        }
    }

    fn down(&self, down: bool) {
        match &self.provider {
            Provider::PowerDns(server) => {
                let gate = |_: &Call| Fault::Before(ServerError::Unreachable { why: "connection refused".into() });
                server.set_gate(if down { Some(Arc::new(gate)) } else { None });
            }
            Provider::Pihole(pihole) => {
                let fault = PiholeError::Unreachable { what: "connection refused".into(), quick: true };
                pihole.fail(down.then_some(fault));
            }
        }
    }

    /// The provider's content.
    fn provided(&self) -> Value {
        match &self.provider {
            Provider::PowerDns(server) => {
                let zones = server.zones().into_iter().map(|zone| {
                    let contents = server.contents(&zone).unwrap();
                    let mut lines: Vec<String> = contents.sets.iter().flat_map(zone_lines).collect();
                    lines.sort();
                    (zone.to_string(), json!(lines))
                });
                Value::Object(zones.collect())
            }
            Provider::Pihole(pihole) => {
                let listing = pihole.listing();
                let lines = |list: &[Line]| list.iter().map(|line| line.as_str().to_owned()).collect::<Vec<_>>();
                json!({ "hosts": lines(&listing.hosts), "cnames": lines(&listing.cnames) })
            }
        }
    }

    /// The reported state of the objects.
    async fn reported(&self, system: System) -> Value {
        let kinds: &[&str] = match system {
            System::Powerdns => &["ClusterZone", "Zone", "ClusterRRset", "RRset"],
            System::Pihole => &["Ingress"],
        };
        let mut objects = serde_json::Map::new();
        for kind in kinds {
            for object in self.api(kind).list(&ListParams::default()).await.unwrap() {
                objects.insert(format!("{kind} {}", object.name_any()), reported(&object));
            }
        }
        Value::Object(objects)
    }

    async fn events(&self) -> Vec<String> {
        let events: Api<k8s_openapi::api::core::v1::Event> = Api::all(self.client.clone());
        let mut lines: Vec<String> = events
            .list(&ListParams::default())
            .await
            .unwrap()
            .into_iter()
            .map(|event| {
                let about = event.involved_object;
                format!(
                    "{} {} {} {}: {}",
                    event.type_.unwrap_or_default(),
                    event.reason.unwrap_or_default(),
                    about.kind.unwrap_or_default(),
                    about.name.unwrap_or_default(),
                    event.message.unwrap_or_default()
                )
            })
            .collect();
        lines.sort();
        lines.dedup();
        lines
    }
}

/// The lines of a record set, one per record, without the serial, which depends on the day.
fn zone_lines(set: &signpost_provider_powerdns::ServerSet) -> Vec<String> {
    let content = |content: &str| match set.rtype.as_str() {
        "SOA" => {
            let words: Vec<&str> = content.split(' ').collect();
            [&words[..2], &["SERIAL"], &words[3..]].concat().join(" ")
        }
        _ => content.to_owned(),
    };
    set.contents.iter().map(|line| format!("{} {} {} {}", set.name, set.ttl, set.rtype, content(line))).collect()
}

/// The reported state of an object, without times and serials.
fn reported(object: &DynamicObject) -> Value {
    let mut shown = json!({});
    if let Some(status) = object.data["status"].as_object() {
        let mut status = status.clone();
        for field in ["serial", "edited_serial", "notified_serial", "lastUpdateTime"] {
            status.remove(field);
        }
        for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            condition.as_object_mut().unwrap().remove("lastTransitionTime");
        }
        if let Some(applied) = status.get_mut("applied").and_then(Value::as_object_mut) {
            applied.remove("hash");
        }
        shown["status"] = json!(status);
    }
    if !object.finalizers().is_empty() {
        shown["finalizers"] = json!(object.finalizers());
    }
    if let Some(hosts) = object.annotations().get("pihole.io/managed-hosts") {
        shown["managedHosts"] = json!(hosts);
    }
    if object.metadata.deletion_timestamp.is_some() {
        shown["deleting"] = json!(true);
    }
    shown
}

/// A hand edit of a zone, which is created when it is missing.
async fn edit_zone(server: &MemoryServer, zone: &ZoneName, lines: &[String]) {
    if server.contents(zone).is_none() {
        let new = NewZone {
            name: zone.clone(),
            kind: "Native".into(),
            nameservers: vec![],
            settings: ZoneSettings::default(),
        };
        server.create(&new).await.unwrap();
    }
    for line in lines {
        let (removed, line) = line.strip_prefix('-').map_or((false, line.as_str()), |line| (true, line.trim()));
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [name, ttl, rtype, content] = words[..] else { panic!("{line:?} is not NAME TTL TYPE CONTENT") };
        let action = if removed {
            Action::Delete
        } else {
            let content = SetContent { ttl: ttl.parse().unwrap(), records: vec![content.into()].into(), comment: None };
            Action::Replace { content: Arc::new(content), comment: CommentChange::Keep }
        };
        let change = Change { name: Fqdn::parse(name).unwrap(), rtype: rtype.parse().unwrap(), action };
        server.patch(zone, &[change]).await.unwrap();
    }
}

/// Runs a scenario and returns its result.
async fn run(scenario: &Scenario) -> Value {
    let mut environment = Environment::new(scenario.system).await;
    let mut refused = Vec::new();
    environment.edit(&scenario.provider).await;
    for object in &scenario.objects {
        environment.apply(object, &mut refused).await;
    }
    environment.start();
    tokio::time::sleep(QUIET).await;
    for step in &scenario.steps {
        match step {
            Step::Apply(object) => environment.apply(object, &mut refused).await,
            Step::Delete(Named { kind, name }) => {
                environment.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
            }
            Step::Edit(lines) => environment.edit(lines).await,
            Step::Wipe(()) => environment.wipe(),
            Step::Down(()) => environment.down(true),
            Step::Up(()) => environment.down(false),
            Step::Restart(()) => {
                environment.stop().await;
                environment.start();
            }
            Step::Stop(()) => environment.stop().await,
        }
        tokio::time::sleep(QUIET).await;
    }
    let outcome = json!({
        "provider": environment.provided(),
        "objects": environment.reported(scenario.system).await,
        "events": environment.events().await,
        "refused": refused,
    });
    environment.stop().await;
    without_empty(outcome)
}

fn without_empty(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| *value != json!([]) && *value != json!({}));
    }
    value
}

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let mut files: Vec<PathBuf> = ["powerdns", "pihole"]
        .iter()
        .flat_map(|system| std::fs::read_dir(root.join(system)).expect("the folder of a system"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_scenario_has_the_expected_result() {
    let update = std::env::var_os("UPDATE").is_some();
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let files = files();
    assert!(files.len() >= 30, "only {} scenarios", files.len());
    let files: Vec<_> = files.iter().filter(|file| file.to_string_lossy().contains(&only)).collect();
    assert!(!files.is_empty(), "SCENARIO={only} is part of no file's path");
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let scenario: Scenario =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let outcome = runtime.block_on(run(&scenario));
        if outcome == scenario.expected {
            continue;
        }
        let expected = manifest::to_yaml(&json!({ "expected": outcome })).unwrap();
        if update {
            let head = text.split("\nexpected:").next().unwrap().trim_end();
            std::fs::write(file, format!("{head}\n{expected}")).unwrap();
            println!("{} is updated", file.display());
        } else {
            wrong.push(format!("{}: the result is not as expected; it was\n{expected}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\nUPDATE=1 writes it into the files.", wrong.join("\n"));
}
