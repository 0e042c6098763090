//! One operator, one namespace, one zone.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kube::{
    Client,
    api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use signpost_dns::{Fqdn, RecordType, ZoneName};
use signpost_engine::{
    Operator, OperatorOptions,
    health::{Check, Health},
    metrics::Metrics,
};
use signpost_provider_powerdns::{
    Action, Change, ClientOptions, CommentChange, NewZone, PowerDnsClient, ServerError, ServerSet, SetContent,
    ZoneContents, ZoneServer, ZoneSettings,
};
use signpost_system_powerdns::{Pace, PowerDnsConfig, Secret, install, install_with};
use signpost_testkit::{Backend, Cluster, FaultProxy, PowerDns, PowerDnsOptions, dig, eventually};
use tokio_util::sync::CancellationToken;

/// How long anything may take, on the busiest machine.
pub const PATIENCE: Duration = Duration::from_mins(2);

pub struct Rig {
    pub cluster: Cluster,
    pub client: Client,
    pub namespace: String,
    /// The zone, without its trailing dot; every other zone of the test is below it.
    pub zone: String,
    pub proxy: FaultProxy,
    pub dns: SocketAddr,
    pub server: PowerDnsClient,
    key: Secret,
    timeout: Duration,
    pace: Pace,
    tune: Tune,
    running: Option<Running>,
}

/// A last word on the configuration.
type Tune = Box<dyn Fn(&mut PowerDnsConfig) + Send + Sync>;

struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    metrics: Metrics,
    health: Health,
}

pub fn fast() -> Pace {
    Pace {
        resync: Duration::from_millis(600),
        retry_refused: Duration::from_secs(2),
        grace: Duration::from_secs(3),
        ..Pace::default()
    }
}

/// The TLS provider every HTTP client of this process uses, also those of the test bed.
fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A PowerDNS for one test. `None` when it is not installed.
pub async fn own_server() -> Option<PowerDns> {
    install_tls();
    PowerDns::start(Backend::Sqlite, PowerDnsOptions::default()).await
}

/// The PowerDNS on LMDB that all tests share.
pub async fn lmdb_server() -> Option<&'static PowerDns> {
    install_tls();
    PowerDns::shared_lmdb().await
}

fn direct(url: &str, key: Secret) -> PowerDnsClient {
    PowerDnsClient::new(ClientOptions {
        url: url.parse().unwrap(),
        key,
        vhost: "localhost".into(),
        timeout: Duration::from_secs(20),
        insecure: false,
        ca_path: None,
        concurrency: 4,
    })
    .unwrap()
}

impl Rig {
    /// On the PowerDNS all tests share. `None` when it is not installed.
    pub async fn new(cluster: Cluster) -> Option<Self> {
        install_tls();
        let server = PowerDns::shared_sqlite().await?;
        Some(Self::on(cluster, server).await)
    }

    /// On a PowerDNS of its own, for tests that count requests: where many tests share one, its SQLite answers 500 when two write in the same
    /// moment, and the operator tries again. It stops when the server is dropped. `None` when it is not installed.
    pub async fn alone(cluster: Cluster) -> Option<(PowerDns, Self)> {
        let server = own_server().await?;
        let rig = Self::on(cluster, &server).await;
        Some((server, rig))
    }

    /// On this PowerDNS.
    pub async fn on(cluster: Cluster, server: &PowerDns) -> Self {
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let namespace = cluster.namespace("dns").await;
        let zone = format!("{namespace}.example");
        let key = Secret::Value(server.api_key());
        let mut rig = Self {
            client: cluster.client(),
            proxy: FaultProxy::start(&server.api_url()).await,
            dns: server.dns_addr(),
            server: direct(&server.api_url(), key.clone()),
            pace: Pace { only: Some(ZoneName::parse(&zone).unwrap()), ..fast() },
            timeout: Duration::from_secs(15),
            tune: Box::new(|_| {}),
            running: None,
            cluster,
            namespace,
            zone,
            key,
        };
        rig.start();
        rig
    }

    pub fn set_key(&mut self, key: Secret) {
        self.key = key;
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub fn set_pace(&mut self, change: impl FnOnce(&mut Pace)) {
        change(&mut self.pace);
    }

    /// Starts again without timed passes: from now on there is a pass only after a change.
    pub async fn without_resync(&mut self) {
        self.stop().await;
        self.set_pace(|pace| (pace.resync, pace.full_read) = (Duration::from_hours(1), Duration::from_hours(2)));
        self.start();
    }

    /// Changes any other setting, from the next start on.
    pub fn tune(&mut self, change: impl Fn(&mut PowerDnsConfig) + Send + Sync + 'static) {
        self.tune = Box::new(change);
    }

    pub fn start(&mut self) {
        let mut operator = Operator::new(self.cluster.client(), OperatorOptions::default());
        let mut config = PowerDnsConfig::new(self.proxy.url(), self.key.clone());
        config.timeout = self.timeout;
        config.pace = self.pace.clone();
        (self.tune)(&mut config);
        install(&mut operator, &config).unwrap();
        self.running = Some(run(operator));
    }

    pub async fn stop(&mut self) {
        if let Some(Running { stop, task, .. }) = self.running.take() {
            stop.cancel();
            task.await.unwrap();
        }
    }

    pub async fn restart(&mut self) {
        self.stop().await;
        self.start();
    }

    /// Ends the operator as a crash would: nothing more is written.
    pub async fn crash(&mut self) {
        if let Some(Running { task, .. }) = self.running.take() {
            task.abort();
            let _ = task.await;
        }
    }

    pub fn metrics(&self) -> String {
        self.running.as_ref().unwrap().metrics.encode()
    }

    /// The readiness check of the server.
    pub fn readiness(&self) -> Option<Check> {
        self.running.as_ref().unwrap().health.checks().get("powerdns").cloned()
    }

    pub async fn until_ready(&self) {
        eventually("readiness is back", PATIENCE, || async {
            let check = self.readiness();
            if check == Some(Check::Ok) { Ok(()) } else { Err(check) }
        })
        .await;
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        self.api_in(kind, &self.namespace)
    }

    pub fn api_in(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("dns.cav.enablers.ob", "v1alpha2", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
        if kind.starts_with("Cluster") {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    /// Applies an object as a user would.
    pub async fn put(&self, kind: &str, name: &str, spec: Value) {
        self.put_in(kind, &self.namespace, name, spec).await;
    }

    pub async fn put_in(&self, kind: &str, namespace: &str, name: &str, spec: Value) {
        self.try_put(kind, namespace, name, spec).await.unwrap();
    }

    pub async fn try_put(&self, kind: &str, namespace: &str, name: &str, spec: Value) -> kube::Result<DynamicObject> {
        let object = json!({
            "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        let params = PatchParams::apply("user").force();
        self.api_in(kind, namespace).patch(name, &params, &Patch::Apply(&object)).await
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn get(&self, kind: &str, name: &str) -> Value {
        serde_json::to_value(self.api(kind).get(name).await.unwrap()).unwrap()
    }

    /// Waits until the object's `syncStatus` is for its current generation and is this; returns the status.
    pub async fn until(&self, kind: &str, name: &str, sync: &str) -> Value {
        self.until_in(kind, &self.namespace, name, sync).await
    }

    pub async fn until_in(&self, kind: &str, namespace: &str, name: &str, sync: &str) -> Value {
        eventually(&format!("{kind} {name} is {sync}"), PATIENCE, || async {
            let object = self.api_in(kind, namespace).get(name).await.map_err(|error| error.to_string())?;
            let status = object.data["status"].clone();
            let current = status["observedGeneration"].as_i64() == object.metadata.generation;
            if current && status["syncStatus"] == sync { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }

    /// Waits until the object is refused for this reason (PowerDNS-Operator's, on `Available`).
    pub async fn until_refused(&self, kind: &str, name: &str, reason: &str) -> Value {
        eventually(&format!("{kind} {name} is {reason}"), PATIENCE, || async {
            let object = self.api(kind).get(name).await.map_err(|error| error.to_string())?;
            let status = object.data["status"].clone();
            if condition(&status, "Available")["reason"] == reason { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }

    pub async fn until_gone(&self, kind: &str, name: &str) {
        eventually(&format!("{kind} {name} is gone"), PATIENCE, || async {
            match self.api(kind).get_opt(name).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// Waits until a query for the name below the zone is answered with exactly these; the apex is "@".
    pub async fn until_served(&self, name: &str, rtype: &str, records: &[&str]) {
        let name = self.fqdn(name);
        let mut wanted: Vec<String> = records.iter().map(|record| (*record).to_owned()).collect();
        wanted.sort();
        eventually(&format!("{name} {rtype} is {records:?}"), PATIENCE, || async {
            let answer = dig(self.dns, &name, rtype).await;
            if answer.records == wanted { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }

    /// Waits until the series of `family` with `part` in their labels have these states: one series each. They follow the
    /// watch, which may report a status later than a read of the object.
    pub async fn until_states(&self, family: &str, part: &str, states: &[&str]) {
        eventually(&format!("{family} of {part} is {states:?}"), PATIENCE, || async {
            let metrics = self.metrics();
            let series = metrics.lines().filter(|line| line.starts_with(&format!("{family}{{")) && line.contains(part));
            let state = |line: &str| line.split("status=\"").nth(1)?.split('"').next().map(str::to_owned);
            let found: Vec<String> = series.clone().filter_map(state).collect();
            if found == states { Ok(()) } else { Err(series.map(str::to_owned).collect::<Vec<_>>()) }
        })
        .await;
    }

    pub fn fqdn(&self, name: &str) -> String {
        match name {
            "@" => format!("{}.", self.zone),
            absolute if absolute.ends_with('.') => absolute.to_owned(),
            relative => format!("{relative}.{}.", self.zone),
        }
    }

    pub fn zone_name(&self) -> ZoneName {
        ZoneName::parse(&self.zone).unwrap()
    }

    /// The records of the server, asked directly.
    pub async fn contents(&self) -> Option<ZoneContents> {
        let zone = self.zone_name();
        by_hand("reading the zone", async || self.server.read(&zone).await).await
    }

    pub async fn set(&self, name: &str, rtype: &str) -> Option<ServerSet> {
        let name = Fqdn::parse(&self.fqdn(name)).unwrap();
        let rtype: RecordType = rtype.parse().unwrap();
        self.contents().await?.sets.into_iter().find(|set| set.name == name && set.rtype == rtype)
    }

    pub async fn serial(&self) -> u32 {
        self.contents().await.unwrap().info.serial
    }

    /// Changes a record behind the operator's back.
    pub async fn tamper(&self, name: &str, rtype: &str, records: Option<&[&str]>) {
        let action = match records {
            None => Action::Delete,
            Some(records) => Action::Replace {
                content: Arc::new(SetContent {
                    ttl: 60,
                    records: records.iter().map(|record| Box::from(*record)).collect(),
                    comment: None,
                }),
                comment: CommentChange::Keep,
            },
        };
        let name = Fqdn::parse(&self.fqdn(name)).unwrap();
        let change = Change { name, rtype: rtype.parse().unwrap(), action };
        let (zone, changes) = (self.zone_name(), [change]);
        by_hand("changing a record", async || self.server.patch(&zone, &changes).await).await;
    }

    /// Makes the zone on the server before any object asks for it.
    pub async fn foreign_zone(&self) {
        let zone = NewZone {
            name: self.zone_name(),
            kind: "Native".into(),
            nameservers: vec![Fqdn::parse("ns9.elsewhere.example").unwrap()],
            settings: ZoneSettings { soa_edit_api: Some("DEFAULT".into()), ..ZoneSettings::default() },
        };
        by_hand("making a zone", async || self.server.create(&zone).await).await;
    }

    /// A zone object that is served.
    pub async fn zone(&self) {
        self.put("Zone", &self.zone, zone_spec()).await;
        self.until("Zone", &self.zone, "Succeeded").await;
    }

    pub fn rrset(&self, name: &str, rtype: &str, records: &[&str]) -> Value {
        rrset(&self.zone, "Zone", name, rtype, records)
    }

    /// An RRset object named after its content that is served.
    pub async fn served(&self, object: &str, name: &str, rtype: &str, records: &[&str]) -> Value {
        self.put("RRset", object, self.rrset(name, rtype, records)).await;
        self.until("RRset", object, "Succeeded").await
    }

    /// Waits until nothing is being written any more, then returns how many writes PowerDNS has seen.
    pub async fn at_rest(&self) -> usize {
        self.until_ledger_clear("Zone", &self.zone).await;
        self.proxy.writes()
    }

    pub async fn until_ledger_clear(&self, kind: &str, name: &str) {
        eventually("the ledger is clear", PATIENCE, || async {
            let status = self.get(kind, name).await["status"].clone();
            if status["inFlight"].is_null() { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Starts a new process, which reads every record of the zone, and returns how many writes there were until then.
    pub async fn after_a_read(&mut self) -> usize {
        let path = format!("/zones/{}.", self.zone);
        let reads = |rig: &Self| {
            let read = |seen: &&signpost_testkit::Seen| seen.method == http::Method::GET && seen.path.ends_with(&path);
            rig.proxy.seen().iter().filter(read).count()
        };
        let before = reads(self);
        self.restart().await;
        eventually("the zone is read", PATIENCE, || async { if reads(self) > before { Ok(()) } else { Err(()) } })
            .await;
        self.after_a_resync().await
    }

    /// Waits for the next look at the zone's serial and returns how many writes there were until then.
    pub async fn after_a_resync(&self) -> usize {
        let looks = || self.proxy.count(&http::Method::GET, "rrsets=false");
        let before = looks();
        eventually("the zone is looked at twice", PATIENCE, || async {
            if looks() >= before + 2 { Ok(()) } else { Err(looks()) }
        })
        .await;
        self.proxy.writes()
    }
}

/// An operator on a server of the caller's choice.
pub fn start_with(client: Client, server: Arc<dyn ZoneServer>, pace: Pace) -> Replica {
    start_in(client, OperatorOptions::default(), server, pace)
}

/// The same with options of the caller's choice.
pub fn start_in(client: Client, options: OperatorOptions, server: Arc<dyn ZoneServer>, pace: Pace) -> Replica {
    let mut operator = Operator::new(client, options);
    install_with(&mut operator, server, pace);
    Replica(run(operator))
}

pub struct Replica(Running);

impl Replica {
    pub async fn stop(self) {
        self.0.stop.cancel();
        self.0.task.await.unwrap();
    }

    /// As a crash would.
    pub async fn crash(self) {
        self.0.task.abort();
        let _ = self.0.task.await;
    }
}

fn run(operator: Operator) -> Running {
    let stop = CancellationToken::new();
    let (metrics, health) = (operator.metrics(), operator.health());
    let token = stop.clone();
    let task = tokio::spawn(async move { operator.run(token).await.unwrap() });
    Running { stop, task, metrics, health }
}

pub fn condition(status: &Value, type_: &str) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default()
}

pub fn zone_spec() -> Value {
    json!({ "kind": "Native", "nameservers": ["ns1.example.org", "ns2.example.org"] })
}

pub fn rrset(zone: &str, kind: &str, name: &str, rtype: &str, records: &[&str]) -> Value {
    json!({ "type": rtype, "name": name, "ttl": 300, "records": records, "zoneRef": { "name": zone, "kind": kind } })
}

/// A call that a test makes itself. Many tests share one SQLite, which answers 500 when two write in the same moment; a person would
/// try again, and so does this.
pub async fn by_hand<T>(what: &str, call: impl AsyncFn() -> Result<T, ServerError>) -> T {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(done) => return done,
            Err(ServerError::Failed { status: 500, .. }) if tokio::time::Instant::now() < until => {}
            Err(error) => panic!("{what}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
