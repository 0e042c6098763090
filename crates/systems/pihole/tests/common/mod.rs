//! A namespace, an operator that watches it, and Pi-holes of both dialects: what the scenarios share.
#![allow(dead_code, unreachable_pub)] // Each test file uses a part of it.

pub mod logs;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use signpost_engine::health::Health;
use signpost_engine::metrics::Metrics;
use signpost_engine::{Operator, OperatorOptions};
use signpost_provider_pihole::{Connection, Dialect, OwnerId, Secret, Timing, connect, parse_base_url};
use signpost_system_pihole::{Instance, MANAGED_HOSTS, Policy, REGISTER, install_instances};
use signpost_testkit::pihole::{PiholeSpec, PiholeV6};
use signpost_testkit::{Cluster, dig, eventually};
use tokio_util::sync::CancellationToken;

/// The default target of every test.
pub const TARGET: &str = "192.168.1.10";
/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// One test's corner of a cluster.
pub struct Bed {
    pub cluster: Cluster,
    pub namespace: String,
    pub api: Api<Ingress>,
}

impl Bed {
    pub async fn new(cluster: Cluster) -> Self {
        logs::capture();
        let namespace = cluster.namespace("pihole").await;
        let api = Api::namespaced(cluster.client(), &namespace);
        Self { cluster, namespace, api }
    }

    /// The `ingress` field of log lines about one of this test's Ingresses.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    pub async fn create(&self, ingress: Draft) {
        let object = ingress.object();
        let created = self.api.create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|error| panic!("cannot create {}: {error}", object.name_any()));
    }

    /// An Ingress that asks for records.
    pub async fn register(&self, name: &str, hosts: &[&str]) {
        self.create(Draft::new(name, hosts).annotate(REGISTER, "true")).await;
    }

    pub async fn patch(&self, name: &str, patch: Value) {
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn annotate(&self, name: &str, key: &str, value: Option<&str>) {
        self.patch(name, json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub async fn set_hosts(&self, name: &str, hosts: &[&str]) {
        self.patch(name, json!({"spec": {"rules": rules(hosts)}})).await;
    }

    pub async fn delete(&self, name: &str) {
        self.api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn get(&self, name: &str) -> Ingress {
        self.api.get(name).await.unwrap()
    }

    pub async fn view(&self, name: &str) -> Option<String> {
        self.get(name).await.annotations().get(MANAGED_HOSTS).cloned()
    }

    /// Waits until an Ingress has this view.
    pub async fn shows(&self, name: &str, view: Option<&str>) {
        let wanted = view.map(str::to_owned);
        eventually(&format!("{name} shows {view:?}"), PATIENCE, || async {
            let seen = self.view(name).await;
            if seen == wanted { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    pub async fn ledger(&self, instance: &str) -> String {
        let api = Api::<ConfigMap>::namespaced(self.cluster.client(), &self.namespace);
        let maps = api.list(&ListParams::default()).await.unwrap();
        let (plain, hashed) = (format!("-{instance}"), format!("-{instance}."));
        let is_of = |name: &str| name.ends_with(&plain) || name.contains(&hashed);
        let ours =
            maps.items.into_iter().find(|map| map.name_any().starts_with("signpost-pihole-") && is_of(&map.name_any()));
        ours.and_then(|map| map.data?.remove("hosts")).unwrap_or_default()
    }

    pub async fn events(&self) -> Vec<(String, String)> {
        let api = Api::<Event>::namespaced(self.cluster.client(), &self.namespace);
        let events = api.list(&ListParams::default()).await.unwrap();
        events
            .items
            .into_iter()
            .map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect()
    }

    /// Waits for an event with this reason.
    pub async fn event(&self, reason: &str) -> String {
        eventually(&format!("an event {reason}"), PATIENCE, || async {
            let events = self.events().await;
            events.iter().find(|(seen, _)| seen == reason).map(|(_, note)| note.clone()).ok_or(events)
        })
        .await
    }

    /// A policy whose pauses are short.
    pub fn policy(&self) -> Policy {
        Policy {
            namespace: self.namespace.clone(),
            gather: Duration::from_millis(40),
            gather_at_most: Duration::from_millis(600),
            brake: Duration::from_millis(400),
            restart_pause: Duration::from_millis(600),
            backoff: Duration::from_millis(150),
            throttle: Duration::from_millis(400),
            ..Policy::new(OwnerId::parse("home").unwrap(), TARGET.parse().unwrap())
        }
    }

    pub fn start(&self, instances: Vec<Instance>) -> Running {
        self.start_with(self.policy(), instances)
    }

    pub fn start_with(&self, policy: Policy, instances: Vec<Instance>) -> Running {
        Running::start(self.cluster.client(), Some(&self.namespace), policy, instances)
    }
}

/// An Ingress to be made.
pub struct Draft {
    name: String,
    annotations: BTreeMap<String, String>,
    rules: Value,
}

impl Draft {
    pub fn new(name: &str, hosts: &[&str]) -> Self {
        Self { name: name.to_owned(), annotations: BTreeMap::new(), rules: rules(hosts) }
    }

    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn registered(self) -> Self {
        self.annotate(REGISTER, "true")
    }

    /// Adds a rule without a host.
    pub fn any_host(mut self) -> Self {
        let mut rule = rules(&["x"])[0].clone();
        rule.as_object_mut().unwrap().remove("host");
        self.rules.as_array_mut().unwrap().push(rule);
        self
    }

    pub fn object(&self) -> Ingress {
        serde_json::from_value(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": self.name, "annotations": self.annotations},
            "spec": {"rules": self.rules},
        }))
        .unwrap()
    }
}

pub fn rules(hosts: &[&str]) -> Value {
    let backend = json!({"service": {"name": "app", "port": {"number": 80}}});
    let http = json!({"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]});
    hosts.iter().map(|host| json!({"host": host, "http": http})).collect()
}

/// An operator at work.
pub struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    pub health: Health,
    pub metrics: Metrics,
}

impl Running {
    pub fn start(client: Client, namespace: Option<&str>, policy: Policy, instances: Vec<Instance>) -> Self {
        let options = OperatorOptions { namespace: namespace.map(str::to_owned), ..OperatorOptions::default() };
        let mut operator = Operator::new(client, options);
        install_instances(&mut operator, policy, instances);
        let (health, metrics) = (operator.health(), operator.metrics());
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task =
            tokio::spawn(async move { operator.run(token).await.expect("the operator runs until it is stopped") });
        Self { stop, task, health, metrics }
    }

    /// Stops in good order.
    pub async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.unwrap();
    }

    /// Stops as if the power had failed.
    pub async fn crash(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// How many changes of Ingresses the operator has seen by its watch.
    pub fn watched(&self) -> u64 {
        let text = self.metrics.encode();
        let lines = text.lines().filter(|line| line.starts_with("signpost_watch_events_total{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// How many Ingresses the operator knows.
    pub fn known(&self) -> u64 {
        let text = self.metrics.encode();
        let lines = text.lines().filter(|line| line.starts_with("signpost_objects{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    pub async fn is_ready(&self) {
        eventually("the operator is ready", PATIENCE, || async {
            if self.health.is_ready() { Ok(()) } else { Err(self.health.checks()) }
        })
        .await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection whose pauses are short.
pub fn connection(url: &str, token: &str) -> Connection {
    let timing = Timing {
        quick: [Duration::from_millis(30), Duration::from_millis(100), Duration::from_millis(400)],
        login_again: Duration::from_millis(20),
        total: Duration::from_secs(5),
        ..Timing::default()
    };
    Connection { timing, ..Connection::new(parse_base_url(url).unwrap(), Secret::Value(token.into())) }
}

pub fn v6(server: &PiholeV6) -> Instance {
    Instance::new("v6", connect(connection(&server.url(), PiholeV6::PASSWORD), Dialect::Auto).unwrap())
}

pub fn spec(server: &PiholeSpec) -> Instance {
    Instance::new("spec", connect(connection(&server.url(), PiholeSpec::TOKEN), Dialect::Auto).unwrap())
}

/// A Pi-hole by a name of its own, so that its log lines differ from those of other tests.
pub fn named(name: &str, url: &str, token: &str) -> Instance {
    Instance::new(name, connect(connection(url, token), Dialect::Auto).unwrap())
}

/// An address where nobody listens, and nobody else can begin to.
pub struct Dead(tokio::net::TcpSocket);

impl Dead {
    pub fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }
}

/// Takes a Pi-hole away until its restarts are released.
pub async fn takes_away(server: &PiholeV6) {
    server.hold_restarts();
    server.restart_for(Duration::ZERO);
    until("the Pi-hole is away", || std::net::TcpStream::connect(server.addr()).is_err()).await;
}

/// The status of one GET.
pub async fn http_status(url: &str) -> Result<u16, std::io::Error> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| std::io::Error::other(text))
}

/// A Pi-hole of each dialect, side by side.
pub struct Both {
    pub v6: PiholeV6,
    pub spec: PiholeSpec,
}

impl Both {
    pub async fn start() -> Self {
        Self { v6: PiholeV6::start().await, spec: PiholeSpec::start().await }
    }

    pub fn instances(&self) -> Vec<Instance> {
        vec![v6(&self.v6), spec(&self.spec)]
    }

    /// Waits until both answer a name with exactly these addresses (none: the name does not exist).
    pub async fn serve(&self, host: &str, addresses: &[&str]) {
        serves(self.v6.dns(), host, addresses).await;
        serves(self.spec.dns(), host, addresses).await;
    }

    pub fn writes(&self) -> u64 {
        self.v6.counters().writes + self.spec.counters().writes
    }

    pub fn requests(&self) -> u64 {
        self.v6.counters().requests + self.spec.counters().requests
    }
}

/// Waits until a name server answers a name with exactly these addresses.
pub async fn serves(server: SocketAddr, host: &str, addresses: &[&str]) {
    eventually(&format!("{host} is answered with {addresses:?}"), PATIENCE, || async {
        let answer = dig(server, host, "A").await;
        if answer.records == addresses { Ok(()) } else { Err(answer.lines) }
    })
    .await;
}

/// Waits until a condition holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    eventually(what, PATIENCE, || async { if condition() { Ok(()) } else { Err("not yet") } }).await;
}
