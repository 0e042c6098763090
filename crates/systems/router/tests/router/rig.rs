//! One operator with the router system, in a cluster of its own or alone in the shared one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures::TryStreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client,
    api::{
        Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, WatchEvent,
        WatchParams,
    },
};
use serde_json::{Value, json};
use signpost_engine::{
    Operator, OperatorOptions,
    health::{Check, Health},
    metrics::Metrics,
};
use signpost_system_router::{RouterConfig, install};
use signpost_testkit::{Cluster, FaultProxy, eventually};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

/// How long anything may take, on the busiest machine.
pub const PATIENCE: Duration = Duration::from_mins(2);

pub const EDNS: &str = "external-dns.alpha.kubernetes.io/controller";

/// group, version, plural, namespaced
fn row(kind: &str) -> (&'static str, &'static str, &'static str, &'static str, bool) {
    match kind {
        "ClusterIdentity" => ("cluster.router.io", "v1alpha1", "ClusterIdentity", "clusteridentities", false),
        "DNSConfiguration" => ("cluster.router.io", "v1alpha1", "DNSConfiguration", "dnsconfigurations", false),
        "Gateway" => ("routing.router.io", "v1alpha1", "Gateway", "gateways", true),
        "DNSPolicy" => ("routing.router.io", "v1alpha1", "DNSPolicy", "dnspolicies", true),
        "ServiceRoute" => ("routing.router.io", "v1alpha1", "ServiceRoute", "serviceroutes", true),
        "DNSEndpoint" => ("externaldns.k8s.io", "v1alpha1", "DNSEndpoint", "dnsendpoints", true),
        "IstioGateway" => ("networking.istio.io", "v1", "Gateway", "gateways", true),
        "Service" => ("", "v1", "Service", "services", true),
        "Event" => ("", "v1", "Event", "events", true),
        "Namespace" => ("", "v1", "Namespace", "namespaces", false),
        other => panic!("{other} is not a kind of these tests"),
    }
}

pub struct Rig {
    pub cluster: Cluster,
    pub client: Client,
    /// The namespace of routes.
    pub app: String,
    /// The namespace of gateways.
    pub infra: String,
    pub proxy: FaultProxy,
    pub config: RouterConfig,
    running: Option<Running>,
    seen: Arc<Mutex<Seen>>,
    watching: Vec<tokio::task::JoinHandle<()>>,
    /// Tasks beside the test. They are aborted with it.
    beside: Mutex<tokio::task::JoinSet<()>>,
    /// The kinds of the cluster are shared: on the real server one test runs at a time.
    _alone: Option<OwnedMutexGuard<()>>,
}

/// What was taken away, and how records changed, whoever did it.
#[derive(Default)]
struct Seen {
    /// DNSEndpoints that were deleted.
    deleted: Vec<String>,
    /// Names that a DNSEndpoint had and lost, and hosts that an Istio Gateway had and lost: object and name.
    lost: Vec<(&'static str, String, String)>,
    /// DNSEndpoints whose addresses became an alias, or the reverse, in one step.
    one_step: Vec<String>,
}

impl Seen {
    fn note(&mut self, kind: &'static str, before: Option<&DynamicObject>, now: Option<&DynamicObject>) {
        let Some(before) = before else { return };
        let name = before.metadata.name.clone().unwrap();
        if now.is_none() && kind == "DNSEndpoint" {
            self.deleted.push(name.clone());
        }
        let has = now.map(|object| names_of(kind, &object.data)).unwrap_or_default();
        let lost = names_of(kind, &before.data).into_iter().filter(|name| !has.contains(name));
        self.lost.extend(lost.map(|lost| (kind, name.clone(), lost)));
        let alias =
            |object: &DynamicObject| Some(object.data["spec"]["endpoints"][0]["recordType"].as_str()? == "CNAME");
        let changed = alias(before).zip(now.and_then(alias)).is_some_and(|(before, now)| before != now);
        if kind == "DNSEndpoint" && changed {
            self.one_step.push(name);
        }
    }
}

/// The names of a DNSEndpoint, or the hosts of an Istio Gateway.
fn names_of(kind: &str, data: &Value) -> BTreeSet<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let texts = match kind {
        "DNSEndpoint" => list(&data["spec"]["endpoints"]).iter().map(|point| point["dnsName"].clone()).collect(),
        _ => list(&data["spec"]["servers"]).iter().flat_map(|server| list(&server["hosts"])).collect::<Vec<_>>(),
    };
    texts.into_iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    health: Health,
    metrics: Metrics,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.watching.iter().for_each(tokio::task::JoinHandle::abort);
        if let Some(running) = &self.running {
            running.task.abort();
        }
    }
}

/// The CRDs of others: the real ones where `dev/setup` has fetched them. On the real API server their absence is a skip.
pub fn foreign_crds(cluster: &Cluster) -> Vec<CustomResourceDefinition> {
    let real = |name: &str, group: &str| {
        let crds = signpost_testkit::foreign_crds(name)?;
        let wanted = |crd: &CustomResourceDefinition| {
            crd.spec.group == group && ["Gateway", "DNSEndpoint"].contains(&crd.spec.names.kind.as_str())
        };
        crds.into_iter().find(wanted)
    };
    let (endpoint, gateway) = (real("dnsendpoint", "externaldns.k8s.io"), real("istio", "networking.istio.io"));
    if cluster.is_real() && (endpoint.is_none() || gateway.is_none()) {
        signpost_testkit::skip(
            "CRDs of external-dns and Istio",
            "they are not in the cache; run dev/setup crds to get them",
        );
    }
    vec![endpoint.unwrap_or_else(signpost_apis::externaldns::crd), gateway.unwrap_or_else(signpost_apis::istio::crd)]
}

/// Calls `note` with every object that changes after this version, and whether it exists, for as long as it is polled.
pub async fn follow(api: Api<DynamicObject>, mut version: String, mut note: impl FnMut(DynamicObject, bool)) {
    loop {
        if let Ok(stream) = api.watch(&WatchParams::default(), &version).await {
            let mut stream = std::pin::pin!(stream);
            while let Ok(Some(event)) = stream.try_next().await {
                let (object, exists) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
                    WatchEvent::Deleted(object) => (object, false),
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                };
                version = object.metadata.resource_version.clone().unwrap();
                note(object, exists);
            }
        }
        // A pause, so that this task can end with its runtime: then every request fails, or every watch ends, at once.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Rig {
    pub async fn new(cluster: Cluster) -> Self {
        let crds = foreign_crds(&cluster);
        Self::with_crds(cluster, crds).await
    }

    pub async fn with_crds(cluster: Cluster, foreign: Vec<CustomResourceDefinition>) -> Self {
        static ALONE: OnceLock<Arc<tokio::sync::Mutex<()>>> = OnceLock::new();
        let alone =
            if cluster.is_real() { Some(ALONE.get_or_init(Arc::default).clone().lock_owned().await) } else { None };
        Self::in_cluster(cluster, foreign, alone).await
    }

    /// In a second cluster, for a test that is alone already.
    pub async fn beside(cluster: Cluster) -> Self {
        let crds = foreign_crds(&cluster);
        Self::in_cluster(cluster, crds, None).await
    }

    async fn in_cluster(
        cluster: Cluster,
        foreign: Vec<CustomResourceDefinition>,
        alone: Option<OwnedMutexGuard<()>>,
    ) -> Self {
        cluster.install(&signpost_apis::router::crds()).await;
        cluster.install(&foreign).await;
        let (app, infra) = (cluster.namespace("app").await, cluster.namespace("infra").await);
        let config = cluster.config().await;
        let proxy = FaultProxy::start(&config.cluster_url.to_string()).await;
        let client = cluster.client();
        let config = RouterConfig {
            gateway_namespace: infra.clone(),
            withdraw_after: Duration::from_millis(300),
            type_change_after: Duration::from_millis(300),
            ..RouterConfig::default()
        };
        let (seen, watching, beside) = (Arc::default(), Vec::new(), Mutex::default());
        let running = None;
        let mut rig =
            Self { cluster, client, app, infra, proxy, config, running, seen, watching, beside, _alone: alone };
        rig.clean().await;
        for (installed, kind) in [("DNSEndpoint", "DNSEndpoint"), ("Gateway", "IstioGateway")] {
            if foreign.iter().any(|crd| crd.spec.names.kind == installed) {
                rig.watch_losses(kind).await;
            }
        }
        rig.start().await;
        rig
    }

    /// Removes what earlier tests left in a shared cluster.
    async fn clean(&self) {
        if !self.cluster.is_real() {
            return;
        }
        for kind in [
            "ServiceRoute",
            "DNSPolicy",
            "Gateway",
            "DNSConfiguration",
            "ClusterIdentity",
            "DNSEndpoint",
            "IstioGateway",
        ] {
            let api = self.all(kind);
            for object in api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
                let (namespace, name) = (object.metadata.namespace.unwrap_or_default(), object.metadata.name.unwrap());
                let _ = self.api(kind, &namespace).delete(&name, &DeleteParams::default()).await;
            }
            eventually(&format!("no {kind} is left"), PATIENCE, || async {
                match api.list(&ListParams::default()).await {
                    Ok(list) if !list.items.is_empty() => Err(list.items.len()),
                    _ => Ok(()),
                }
            })
            .await;
        }
        // A Service of an earlier test must not be the load balancer of a controller of the same name.
        for object in self.all("Service").list(&ListParams::default()).await.unwrap().items {
            let (namespace, name) = (object.metadata.namespace.unwrap_or_default(), object.metadata.name.unwrap());
            if name != "kubernetes" {
                let _ = self.api("Service", &namespace).delete(&name, &DeleteParams::default()).await;
            }
        }
    }

    /// Notes every name that an object of the kind loses from now on.
    async fn watch_losses(&mut self, kind: &'static str) {
        let api = self.all(kind);
        let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let seen = self.seen.clone();
        self.watching.push(tokio::spawn(async move {
            let mut objects: BTreeMap<(Option<String>, Option<String>), DynamicObject> = BTreeMap::new();
            follow(api, version, |object, exists| {
                let key = (object.metadata.namespace.clone(), object.metadata.name.clone());
                let before = objects.remove(&key);
                seen.lock().unwrap().note(kind, before.as_ref(), Some(&object).filter(|_| exists));
                if exists {
                    objects.insert(key, object);
                }
            })
            .await;
        }));
    }

    /// Removes kinds of others from the cluster. Deletions of DNSEndpoints are not noted any more.
    pub async fn remove_kinds(&mut self, crds: &[&CustomResourceDefinition]) {
        self.watching.iter().for_each(tokio::task::JoinHandle::abort);
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for name in crds.iter().filter_map(|crd| crd.metadata.name.as_deref()) {
            api.delete(name, &DeleteParams::default()).await.unwrap();
            eventually(&format!("{name} is removed"), PATIENCE, || async {
                if api.get_opt(name).await.unwrap().is_none() { Ok(()) } else { Err(()) }
            })
            .await;
        }
    }

    /// Runs something beside the test, for as long as the rig exists.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.beside.lock().unwrap().spawn(task);
    }

    /// The DNSEndpoints that were deleted so far.
    pub fn deletions(&self) -> Vec<String> {
        self.seen.lock().unwrap().deleted.clone()
    }

    /// The names that objects of the kind lost so far: object and name. An object may have been emptied and filled again.
    pub fn losses(&self, kind: &str) -> Vec<(String, String)> {
        let seen = self.seen.lock().unwrap();
        seen.lost
            .iter()
            .filter(|(of, ..)| *of == kind)
            .map(|(_, object, name)| (object.clone(), name.clone()))
            .collect()
    }

    /// The DNSEndpoints whose record type changed in one step.
    pub fn one_step_changes(&self) -> Vec<String> {
        self.seen.lock().unwrap().one_step.clone()
    }

    pub async fn start(&mut self) {
        let mut config = self.cluster.config().await;
        config.cluster_url = self.proxy.url().parse().unwrap();
        self.start_with(Client::try_from(config).unwrap());
    }

    pub fn start_with(&mut self, client: Client) {
        let mut operator = Operator::new(client, OperatorOptions::default());
        install(&mut operator, self.config.clone());
        let stop = CancellationToken::new();
        let (health, metrics) = (operator.health(), operator.metrics());
        let token = stop.clone();
        let task = tokio::spawn(async move {
            let _ = operator.run(token).await;
        });
        self.running = Some(Running { stop, task, health, metrics });
    }

    pub async fn stop(&mut self) {
        if let Some(Running { stop, task, .. }) = self.running.take() {
            stop.cancel();
            task.await.unwrap();
        }
    }

    /// Ends the operator as a crash would.
    pub async fn crash(&mut self) {
        if let Some(Running { task, .. }) = self.running.take() {
            task.abort();
            let _ = task.await;
        }
    }

    pub async fn restart(&mut self) {
        self.stop().await;
        self.start().await;
    }

    pub fn checks(&self) -> BTreeMap<String, Check> {
        self.running.as_ref().unwrap().health.checks()
    }

    pub fn metrics(&self) -> String {
        self.running.as_ref().unwrap().metrics.encode()
    }

    fn resource(kind: &str) -> (ApiResource, bool) {
        let (group, version, name, plural, namespaced) = row(kind);
        (ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural), namespaced)
    }

    pub fn all(&self, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &Self::resource(kind).0)
    }

    pub fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (resource, namespaced) = Self::resource(kind);
        if namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    pub async fn try_put(&self, kind: &str, namespace: &str, name: &str, body: Value) -> kube::Result<DynamicObject> {
        let (resource, _) = Self::resource(kind);
        let mut object = body;
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        object["metadata"]["name"] = json!(name);
        self.api(kind, namespace).patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await
    }

    pub async fn put(&self, kind: &str, namespace: &str, name: &str, body: Value) {
        self.try_put(kind, namespace, name, body).await.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }

    pub async fn merge(&self, kind: &str, namespace: &str, name: &str, patch: Value) {
        self.api(kind, namespace).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub async fn merge_status(&self, kind: &str, namespace: &str, name: &str, status: Value) {
        let patch = json!({ "status": status });
        self.api(kind, namespace).patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.api(kind, namespace).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.api(kind, namespace).get_opt(name).await.unwrap().map(|object| serde_json::to_value(object).unwrap())
    }

    pub async fn identity(&self, region: &str, adopts: &[&str]) {
        self.put("ClusterIdentity", "", "cluster-identity", json!({ "spec": identity(region, adopts) })).await;
    }

    pub async fn configuration(&self, regions: &[&str]) {
        self.put("DNSConfiguration", "", "dns-config", json!({ "spec": configuration(regions) })).await;
    }

    /// A Gateway of the controller `istio-POSTFIX`.
    pub async fn gateway(&self, name: &str, postfix: &str) {
        let spec =
            json!({ "controller": format!("istio-{postfix}"), "credentialName": "cert", "targetPostfix": postfix });
        self.put("Gateway", &self.infra, name, json!({ "spec": spec })).await;
    }

    /// The load balancer of `istio-POSTFIX`.
    pub async fn balancer(&self, postfix: &str, points: Value) {
        let name = format!("istio-{postfix}");
        let body = json!({
            "metadata": { "labels": { "istio": name } },
            "spec": { "type": "LoadBalancer", "ports": [{ "name": "https", "port": 443 }] },
        });
        self.put("Service", &self.infra, &name, body).await;
        self.merge_status("Service", &self.infra, &name, json!({ "loadBalancer": { "ingress": points } })).await;
    }

    pub async fn policy(&self, spec: Value) {
        self.put("DNSPolicy", &self.app, "policy", json!({ "spec": spec })).await;
    }

    /// A route of the service to the Gateway `gw`.
    pub async fn route(&self, service: &str) {
        self.route_in(&self.app, &format!("{service}-route"), service, "gw").await;
    }

    pub async fn route_in(&self, namespace: &str, name: &str, service: &str, gateway: &str) {
        self.put("ServiceRoute", namespace, name, json!({ "spec": route(service, gateway) })).await;
    }

    /// Identity and configuration of these regions (the first is ours), a Gateway with a load balancer, an Active policy.
    pub async fn basics(&self, regions: &[&str]) {
        self.identity(regions[0], &[]).await;
        self.configuration(regions).await;
        self.gateway("gw", "internal").await;
        self.balancer("internal", json!([{ "ip": "10.123.45.67" }])).await;
        self.policy(json!({ "mode": "Active" })).await;
    }

    /// Waits until the condition of an object has this reason for its current generation; returns the status.
    pub async fn until_condition(&self, kind: &str, namespace: &str, name: &str, type_: &str, reason: &str) -> Value {
        eventually(&format!("{kind} {name} is {reason}"), PATIENCE, || async {
            let object = self.api(kind, namespace).get(name).await.map_err(|error| error.to_string())?;
            let status = object.data["status"].clone();
            let current = status["observedGeneration"].as_i64() == object.metadata.generation;
            if current && condition(&status, type_)["reason"] == reason { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }

    pub async fn until(&self, kind: &str, name: &str, reason: &str) -> Value {
        let namespace = match kind {
            "Gateway" => &self.infra,
            _ => &self.app,
        };
        self.until_condition(kind, namespace, name, "Ready", reason).await
    }

    /// The DNSEndpoints of a namespace: `NAME TYPE TARGETS` of each entry, by object.
    pub async fn endpoints(&self, namespace: &str) -> BTreeMap<String, String> {
        let list = self.api("DNSEndpoint", namespace).list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|object| (object.metadata.name.clone().unwrap(), records(&object.data))).collect()
    }

    /// Waits until the namespace has exactly these DNSEndpoints.
    pub async fn until_endpoints(&self, namespace: &str, wanted: &[(&str, &str)]) {
        let wanted: BTreeMap<String, String> = wanted.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        eventually(&format!("the DNSEndpoints of {namespace} are {wanted:?}"), PATIENCE, || async {
            let have = self.endpoints(namespace).await;
            if have == wanted { Ok(()) } else { Err(have) }
        })
        .await;
    }

    /// Waits until the Istio Gateway of that name has these hosts; none means that it does not exist.
    pub async fn until_hosts(&self, name: &str, wanted: &[&str]) {
        eventually(&format!("Istio Gateway {name} has {wanted:?}"), PATIENCE, || async {
            let have = self.get("IstioGateway", &self.infra, name).await;
            let hosts = have.map(|object| object["spec"]["servers"][0]["hosts"].clone()).unwrap_or(json!([]));
            if hosts == json!(wanted) { Ok(()) } else { Err(hosts) }
        })
        .await;
    }

    /// As external-dns does when it has read the DNSEndpoint of the route `api`; waits until the route reports it.
    pub async fn read_route(&self, name: &str) {
        let endpoint = self.get("DNSEndpoint", &self.app, name).await.unwrap();
        let status = json!({ "observedGeneration": endpoint["metadata"]["generation"] });
        self.merge_status("DNSEndpoint", &self.app, name, status).await;
        eventually("the route reports it", PATIENCE, || async {
            let status = self.get("ServiceRoute", &self.app, "api-route").await.unwrap()["status"].clone();
            if status["dnsEndpoints"][0]["observed"] == true { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// Everything that was made so far is published, for sure: a new route is.
    pub async fn settled(&self) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let name = format!("settled{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        self.route(&name).await;
        self.until("ServiceRoute", &format!("{name}-route"), "ReconciliationSucceeded").await;
        self.delete("ServiceRoute", &self.app, &format!("{name}-route")).await;
        eventually("its DNSEndpoints are deleted", PATIENCE, || async {
            let left = self.endpoints(&self.app).await.into_keys().filter(|key| key.starts_with(&name)).count();
            if left == 0 { Ok(()) } else { Err(left) }
        })
        .await;
    }

    /// Waits until no write was seen for a while and none is in progress, and returns how many there were. The while is counted in checks: on a busy
    /// machine they are as slow as the operator, which is in the same process.
    pub async fn at_rest(&self) -> usize {
        const CHECKS: u32 = 25;
        let (mut last, mut calm) = (self.proxy.writes(), 0);
        eventually("no more writes", PATIENCE, || {
            let writes = self.proxy.writes();
            let waits = |seen: &signpost_testkit::Seen| {
                seen.method != http::Method::GET && seen.status.is_none() && !seen.faulty
            };
            let same = writes == last && !self.proxy.seen().iter().any(waits);
            calm = if same { calm + 1 } else { 0 };
            last = writes;
            let result = if calm > CHECKS { Ok(()) } else { Err(writes) };
            async move { result }
        })
        .await;
        self.proxy.writes()
    }

    /// Waits until an object is refused: the reason is in a condition, in a Warning and in the metric.
    pub async fn until_refused(&self, kind: &str, namespace: &str, name: &str, type_: &str, reason: &str) -> Value {
        let status = self.until_condition(kind, namespace, name, type_, reason).await;
        self.until_event(namespace, name, reason).await;
        let counted = |line: &str| line.starts_with("signpost_refusals_total") && line.contains(reason);
        // The status is there a moment before it is counted.
        eventually(&format!("{reason} is counted"), PATIENCE, || async {
            let metrics = self.metrics();
            if metrics.lines().any(counted) { Ok(()) } else { Err(metrics) }
        })
        .await;
        status
    }

    /// Waits for a Warning event of this reason about an object.
    pub async fn until_event(&self, namespace: &str, name: &str, reason: &str) {
        self.until_event_of("Warning", namespace, name, reason).await;
    }

    pub async fn until_event_of(&self, type_: &str, namespace: &str, name: &str, reason: &str) {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        eventually(&format!("an event {reason} about {name}"), PATIENCE, || async {
            let list = self.api("Event", namespace).list(&ListParams::default()).await.unwrap();
            let about = |object: &DynamicObject| {
                object.data["reason"] == reason
                    && object.data["involvedObject"]["name"] == name
                    && object.data["type"] == type_
            };
            if list.items.iter().any(about) { Ok(()) } else { Err(list.items.len()) }
        })
        .await;
    }

    #[allow(clippy::unused_self, reason = "reads as the rest of a test")]
    pub fn host(&self, service: &str) -> String {
        host(service)
    }
}

pub fn records(object: &Value) -> String {
    let texts = object["spec"]["endpoints"].as_array().cloned().unwrap_or_default().into_iter().map(|point| {
        let targets: Vec<String> = serde_json::from_value(point["targets"].clone()).unwrap();
        format!(
            "{} {} {}",
            point["dnsName"].as_str().unwrap(),
            point["recordType"].as_str().unwrap(),
            targets.join(" ")
        )
    });
    texts.collect::<Vec<_>>().join("; ")
}

pub fn host(service: &str) -> String {
    format!("{service}-ns-p-prod-myapp.example.com")
}

pub fn alias(service: &str, region: &str) -> String {
    format!("{} CNAME aks01-{region}-internal.example.com", host(service))
}

pub fn identity(region: &str, adopts: &[&str]) -> Value {
    json!({ "region": region, "cluster": "aks01", "domain": "example.com", "environmentLetter": "p", "adoptsRegions": adopts })
}

pub fn configuration(regions: &[&str]) -> Value {
    let controller = |region: &&str| json!({ "name": format!("external-dns-{region}"), "region": region });
    json!({ "externalDNSControllers": regions.iter().map(controller).collect::<Vec<_>>() })
}

pub fn route(service: &str, gateway: &str) -> Value {
    json!({ "serviceName": service, "gatewayName": gateway, "environment": "prod", "application": "myapp" })
}

pub fn condition(status: &Value, type_: &str) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default()
}
