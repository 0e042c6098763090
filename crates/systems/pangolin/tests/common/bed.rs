//! A namespace with Services and a tunnel, and an operator that watches it: what the tests share.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use signpost_engine::health::Health;
use signpost_engine::metrics::Metrics;
use signpost_engine::{ManualClock, Operator, OperatorOptions};
use signpost_system_pangolin::Policy;
use signpost_testkit::{Cluster, eventually};
use tokio_util::sync::CancellationToken;

use super::crds::{Kind, crds};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// How long something that must not happen is waited for: until a later change is seen to be done.
pub(crate) const ANNOTATION: &str = "pangolin.ingress.k8s.io/";

pub(crate) struct Bed {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) ingresses: Api<Ingress>,
}

impl Bed {
    pub(crate) async fn bare(cluster: Cluster) -> Self {
        let namespace = cluster.namespace("pangolin").await;
        let ingresses = Api::namespaced(cluster.client(), &namespace);
        let bed = Self { cluster, namespace, ingresses };
        bed.service("app", &json!([{"name": "web", "port": 80}, {"name": "other", "port": 8080}])).await;
        bed.service("api", &json!([{"name": "http", "port": 9000}])).await;
        bed
    }

    /// With the kinds of pangolin-operator and a tunnel that is ready.
    pub(crate) async fn new(cluster: Cluster, kind: Kind) -> Self {
        cluster.install(&crds(kind)).await;
        let bed = Self::bare(cluster).await;
        bed.tunnel("default", Some("Ready")).await;
        bed
    }

    pub(crate) fn dynamic(&self, kind: &str) -> Api<DynamicObject> {
        let plural = format!("{}s", kind.to_lowercase());
        let resource = ApiResource {
            group: "tunnel.pangolin.io".into(),
            version: "v1alpha1".into(),
            api_version: "tunnel.pangolin.io/v1alpha1".into(),
            kind: kind.into(),
            plural,
        };
        Api::namespaced_with(self.cluster.client(), &self.namespace, &resource)
    }

    pub(crate) async fn put(&self, kind: &str, name: &str, spec: &Value, status: Option<&Value>) {
        let api = self.dynamic(kind);
        let object = json!({"apiVersion": "tunnel.pangolin.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
        if let Some(status) = status {
            self.report(kind, name, status).await;
        }
    }

    /// Sets the status of an object, as pangolin-operator does.
    pub(crate) async fn report(&self, kind: &str, name: &str, status: &Value) {
        let api = self.dynamic(kind);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&json!({"status": status}))).await.unwrap();
    }

    pub(crate) async fn tunnel(&self, name: &str, status: Option<&str>) {
        let status = status.map(|word| json!({"status": word}));
        self.put("PangolinTunnel", name, &json!({"organizationRef": {"name": "org"}}), status.as_ref()).await;
    }

    pub(crate) async fn service(&self, name: &str, ports: &Value) {
        let object: Service = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports},
        }))
        .unwrap();
        Api::<Service>::namespaced(self.cluster.client(), &self.namespace)
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    pub(crate) async fn create(&self, name: &str, annotations: &Value, spec: Value) -> Ingress {
        let object: Ingress = serde_json::from_value(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec,
        }))
        .unwrap();
        self.ingresses.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Two Ingresses of class pangolin for a host each, with the Service `app`. Returns the name of the one that a shared host belongs to, and
    /// the other one. The clock of the sandbox is not paused: both are of one second as a rule, and then the smaller UID decides.
    pub(crate) async fn two_ages(&self, hosts: [&str; 2]) -> [&'static str; 2] {
        let [one, two] = [("one", hosts[0]), ("two", hosts[1])];
        let made = [self.expose(one.0, &[one.1]).await, self.expose(two.0, &[two.1]).await];
        let age = |ingress: &Ingress| (ingress.creation_timestamp().map(|time| time.0), ingress.uid());
        if age(&made[0]) < age(&made[1]) { [one.0, two.0] } else { [two.0, one.0] }
    }

    /// An Ingress of class pangolin for these hosts, with the Service `app`.
    pub(crate) async fn expose(&self, name: &str, hosts: &[&str]) -> Ingress {
        self.create(name, &json!({}), json!({"ingressClassName": "pangolin", "rules": rules(hosts)})).await
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        self.ingresses.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn annotate(&self, name: &str, key: &str, value: Option<&str>) {
        self.patch(name, json!({"metadata": {"annotations": {format!("{ANNOTATION}{key}"): value}}})).await;
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.ingresses.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The PangolinResources, by name.
    pub(crate) async fn resources(&self) -> Vec<DynamicObject> {
        self.dynamic("PangolinResource").list(&ListParams::default()).await.unwrap().items
    }

    /// The hosts of the PangolinResources, sorted.
    pub(crate) async fn hosts(&self) -> Vec<String> {
        let host = |object: &DynamicObject| {
            let http = &object.data["spec"]["httpConfig"];
            format!(
                "{}.{}",
                http["subdomain"].as_str().unwrap_or_default(),
                http["domainName"].as_str().unwrap_or_default()
            )
        };
        let mut hosts: Vec<String> = self.resources().await.iter().map(host).collect();
        hosts.sort();
        hosts
    }

    /// Waits until there are PangolinResources for exactly these hosts.
    pub(crate) async fn exposes(&self, hosts: &[&str]) {
        eventually(&format!("PangolinResources for {hosts:?}"), PATIENCE, || async {
            let seen = self.hosts().await;
            if seen == hosts { Ok(()) } else { Err((seen, self.events().await)) }
        })
        .await;
    }

    /// The only PangolinResource.
    pub(crate) async fn resource(&self) -> DynamicObject {
        eventually("one PangolinResource", PATIENCE, || async {
            let all = self.resources().await;
            if all.len() == 1 { Ok(all[0].clone()) } else { Err((all.len(), self.events().await)) }
        })
        .await
    }

    /// Waits until the only PangolinResource has this specification.
    pub(crate) async fn specified(&self, what: &str, fits: impl Fn(&Value) -> bool) -> DynamicObject {
        eventually(what, PATIENCE, || async {
            let all = self.resources().await;
            match &all[..] {
                [one] if fits(&one.data["spec"]) => Ok(one.clone()),
                _ => Err((all.iter().map(|one| one.data["spec"].clone()).collect::<Vec<_>>(), self.events().await)),
            }
        })
        .await
    }

    /// Events as type, reason and note. Those of the API server about Services are left out.
    pub(crate) async fn events(&self) -> Vec<(String, String, String)> {
        let api = Api::<Event>::namespaced(self.cluster.client(), &self.namespace);
        let read = |event: Event| {
            (event.type_.unwrap_or_default(), event.reason.unwrap_or_default(), event.message.unwrap_or_default())
        };
        let events = api.list(&ListParams::default()).await.unwrap().items.into_iter();
        events.filter(|event| event.involved_object.kind.as_deref() != Some("Service")).map(read).collect()
    }

    /// Waits for an event; returns its note.
    pub(crate) async fn event(&self, kind: &str, reason: &str) -> String {
        eventually(&format!("a {kind} event {reason}"), PATIENCE, || async {
            let events = self.events().await;
            events.iter().find(|(k, r, _)| k == kind && r == reason).map(|(_, _, note)| note.clone()).ok_or(events)
        })
        .await
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy {
            namespace: self.namespace.clone(),
            namespaces: vec![self.namespace.clone()],
            owner: Some("home".to_owned()),
            brake: Duration::from_millis(200),
            tunnel_wait: Duration::from_millis(500),
            ..Policy::default()
        }
    }

    /// Starts an operator in crd mode.
    pub(crate) fn start(&self) -> Running {
        self.start_with(self.policy())
    }

    pub(crate) fn start_with(&self, policy: Policy) -> Running {
        Running::start(self.cluster.client(), move |operator| signpost_system_pangolin::install_crd(operator, policy))
    }
}

pub(crate) fn backend(service: &str, port: &Value) -> Value {
    json!({"service": {"name": service, "port": port}})
}

pub(crate) fn path(path: &str, kind: &str, service: &str, port: u16) -> Value {
    json!({"path": path, "pathType": kind, "backend": backend(service, &json!({"number": port}))})
}

/// The first target of a specification, in the shape of this binary.
pub(crate) fn target(spec: &Value) -> &Value {
    match crate::KIND {
        Kind::Single => &spec["target"],
        Kind::Multi => &spec["targets"][0],
    }
}

/// A specification with this target alone, in the shape of this binary.
pub(crate) fn targets(target: &Value) -> Value {
    match crate::KIND {
        Kind::Single => json!({ "target": target }),
        Kind::Multi => json!({ "targets": [target] }),
    }
}

/// `httpConfig` with open access, where the shape of this binary has fields for it.
pub(crate) fn http_config(mut http: Value) -> Value {
    if crate::KIND == Kind::Multi {
        http["sso"] = json!(false);
        http["blockAccess"] = json!(false);
    }
    http
}

/// A rule for each host, with the root path to the Service `app`.
pub(crate) fn rules(hosts: &[&str]) -> Value {
    hosts.iter().map(|host| json!({"host": host, "http": {"paths": [path("/", "Prefix", "app", 80)]}})).collect()
}

/// An operator at work.
pub(crate) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
}

impl Running {
    pub(crate) fn start(client: Client, install: impl FnOnce(&mut Operator)) -> Self {
        super::logs::keep();
        // A clock that is paused with the one of the runtime.
        let clock = std::sync::Arc::new(ManualClock::starting_at(jiff::Timestamp::now()));
        let mut operator = Operator::new(client, OperatorOptions { clock, ..OperatorOptions::default() });
        install(&mut operator);
        let (health, metrics) = (operator.health(), operator.metrics());
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task =
            tokio::spawn(async move { operator.run(token).await.expect("the operator runs until it is stopped") });
        Self { stop, task, health, metrics }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.unwrap();
    }

    /// Ends as if the power had failed.
    pub(crate) async fn crash(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Waits until no pass has ended for a while, and returns how many there were. The while is counted in checks: on a busy machine they are as slow
    /// as the operator, which is in the same process.
    pub(crate) async fn at_rest(&self) -> f64 {
        const CHECKS: u32 = 25;
        let (mut last, mut calm) = (0.0, 0);
        eventually("no more passes", PATIENCE, || {
            let passes = self.metric("pic_reconcile_total");
            calm = if passes > last { 0 } else { calm + 1 };
            last = passes;
            let result = if calm > CHECKS { Ok(passes) } else { Err(passes) };
            async move { result }
        })
        .await
    }

    /// The sum of a metric.
    pub(crate) fn metric(&self, start: &str) -> f64 {
        let text = self.metrics.encode();
        let lines = text.lines().filter(|line| line.starts_with(start));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
