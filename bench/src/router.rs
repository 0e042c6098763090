//! `router`: routes to DNSEndpoints and Istio Gateways, on the real API server.
//!
//! A tenth of the routes waits for the operator, another tenth arrives while it runs, and then all are there. The bare cost is that of
//! applying as many DNSEndpoints, with the same fields, with as many writers as the operator has. Nobody watches these, while the operator watches
//! its own. The gateway has a load balancer, so its own name is published too.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{Stream, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::answered;
use crate::measurement::{Goal, Measurement, Measurements};
use crate::operator::Operator;
use crate::servers::at_full_speed;
use crate::{Bench, seconds};

/// External-dns controllers, and so DNSEndpoints per route.
const CONTROLLERS: usize = 5;
/// The domain of the cluster.
pub(crate) const DOMAIN: &str = "router.bench";
/// The address of its gateway.
pub(crate) const ADDRESS: &str = "192.0.2.1";
const ROUNDS: usize = 31;
/// The pause between two changes, so that each is processed alone.
const QUIET: Duration = Duration::from_millis(1200);
const DEADLINE: Duration = Duration::from_mins(10);
const ENDPOINTS: &str = "signpost_router_dnsendpoints{purpose=\"route\",observed=\"false\"}";
const WRITTEN: &str = "signpost_object_writes_total{outcome=\"written\"}";
const PLANNED: &str = "signpost_step_seconds_sum{system=\"router\",step=\"plan\"}";
const ACTIVE: &str = "signpost_router_objects{kind=\"ServiceRoute\",phase=\"Active\"}";

pub(crate) struct Apis {
    pub(crate) routes: Api<DynamicObject>,
    pub(crate) endpoints: Api<DynamicObject>,
    istio: Api<DynamicObject>,
    pub(crate) namespace: String,
    /// The UID of the gateway.
    gateway: String,
}

fn api(
    bench: &Bench,
    namespace: Option<&str>,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: format!("{group}/{version}"),
        kind: kind.into(),
        plural: plural.into(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(bench.cluster.client(), namespace, &resource),
        None => Api::all_with(bench.cluster.client(), &resource),
    }
}

/// Runs the benchmark with this many routes in the end.
pub(crate) async fn run(bench: &Bench, measurements: &mut Measurements, size: usize) -> anyhow::Result<()> {
    let apis = &prepare(bench).await?;
    answered::run(bench, measurements, apis).await?;
    let tenth = (size / 10).max(1);
    let per_tenth = tenth * CONTROLLERS;

    bench.report(&format!("applying {per_tenth} DNSEndpoints, bare"));
    let bare = bare(apis, tenth).await?;
    bench.report(&format!("{tenth} routes wait for the operator"));
    create(apis, 0..tenth).await?;
    let operator = start(bench, apis, "waiting")?;
    operator.reached(ENDPOINTS, count(per_tenth), DEADLINE).await?;
    let waiting = operator.started().elapsed();
    let waiting_cpu = operator.cpu_seconds()?;
    bench.report(&format!("{tenth} routes arrive"));
    operator.reached(ACTIVE, count(tenth), DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    let before = generation(apis).await?;
    let (arrived, cpu_before) = (Instant::now(), operator.cpu_seconds()?);
    create(apis, tenth..2 * tenth).await?;
    let created = arrived.elapsed();
    operator.reached(ENDPOINTS, count(2 * per_tenth), DEADLINE).await?;
    let arriving = arrived.elapsed();
    let arriving_cpu = operator.cpu_seconds()? - cpu_before;
    operator.rest(DEADLINE).await?;
    let writes = generation(apis).await? - before;
    measurements.extend([
        Measurement::new("router.bare", seconds(bare), "s", Goal::None),
        Measurement::new("router.waiting", seconds(waiting), "s", Goal::None),
        Measurement::new("router.waiting_of_bare", seconds(waiting) / seconds(bare), "x", Goal::AtMost(1.5)),
        Measurement::new("router.arriving", seconds(arriving), "s", Goal::None),
        Measurement::new("router.arriving_of_bare", seconds(arriving) / seconds(bare), "x", Goal::AtMost(1.5)),
        // How much of that is the creation of the routes.
        Measurement::new("router.created", seconds(created), "s", Goal::None),
        // What the operator itself computes. The API server and etcd share the cores with it.
        Measurement::new("router.waiting_cpu", waiting_cpu, "s", Goal::None),
        Measurement::new("router.arriving_cpu", arriving_cpu, "s", Goal::None),
        Measurement::new("router.istio_writes_per_burst", count_of(writes), "writes", Goal::AtMost(20.0)),
    ]);

    bench.report(&format!("{size} routes"));
    create(apis, 2 * tenth..size).await?;
    operator.reached(ENDPOINTS, count(size * CONTROLLERS), DEADLINE).await?;
    operator.reached(ACTIVE, count(size), DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    change(bench, measurements, apis, size).await?;
    operator.rest(DEADLINE).await?;
    measurements.push(Measurement::new("router.rss", operator.rss_mb()?, "MB", Goal::AtMost(100.0)));
    operator.stop().await?;

    bench.report("a second start");
    let operator = start(bench, apis, "again")?;
    operator.reached(ACTIVE, count(size), DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    measurements.extend([
        Measurement::new("router.plan_all", operator.counter(PLANNED).await?, "s", Goal::AtMost(1.0)),
        // A series that was never counted does not exist.
        Measurement::new(
            "router.writes_at_rest",
            operator.counter(WRITTEN).await.unwrap_or(0.0),
            "writes",
            Goal::AtMost(0.0),
        ),
        Measurement::new("router.rss_after_restart", operator.rss_mb()?, "MB", Goal::AtMost(100.0)),
    ]);
    operator.stop().await?;
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // counts of objects
fn count(number: usize) -> f64 {
    number as f64
}

#[allow(clippy::cast_precision_loss)] // counts of writes
fn count_of(number: i64) -> f64 {
    number as f64
}

/// The CRDs of external-dns and Istio: the real ones where `dev/setup` has fetched them.
pub(crate) fn foreign_crds() -> [CustomResourceDefinition; 2] {
    let real = |name: &str, crd: CustomResourceDefinition| {
        let mut all = signpost_testkit::foreign_crds(name).unwrap_or_default().into_iter();
        all.find(|real| real.metadata.name == crd.metadata.name).unwrap_or(crd)
    };
    [real("dnsendpoint", signpost_apis::externaldns::crd()), real("istio", signpost_apis::istio::crd())]
}

/// The load balancer of the gateway, with an address.
async fn balancer(bench: &Bench, namespace: &str) -> anyhow::Result<()> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Service"), "services");
    let services: Api<DynamicObject> = Api::namespaced_with(bench.cluster.client(), namespace, &resource);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "istio", "labels": {"istio": "istio"}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}});
    services.patch("istio", &PatchParams::apply("bench").force(), &Patch::Apply(&service)).await?;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}, {"ip": "2001:db8::1"}]}}});
    services.patch_status("istio", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

async fn prepare(bench: &Bench) -> anyhow::Result<Apis> {
    bench.cluster.install(&signpost_apis::router::crds()).await;
    bench.cluster.install(&foreign_crds()).await;
    let namespace = bench.cluster.namespace("bench-router").await;
    let here = Some(namespace.as_str());
    let controllers: Vec<Value> =
        (0..CONTROLLERS).map(|n| json!({"name": format!("external-dns-{n}"), "region": format!("r{n}")})).collect();
    let (cluster, routing, version) = ("cluster.router.io", "routing.router.io", "v1alpha1");
    let objects = [
        (
            None,
            cluster,
            "ClusterIdentity",
            "clusteridentities",
            "cluster-identity",
            json!({
            "region": "r0", "cluster": "bench", "domain": DOMAIN, "environmentLetter": "p"}),
        ),
        (
            None,
            cluster,
            "DNSConfiguration",
            "dnsconfigurations",
            "dns-config",
            json!({"externalDNSControllers": controllers}),
        ),
        (
            here,
            routing,
            "Gateway",
            "gateways",
            "gw",
            json!({
            "controller": "istio", "credentialName": "cert", "targetPostfix": "internal"}),
        ),
        (here, routing, "DNSPolicy", "dnspolicies", "policy", json!({"mode": "RegionBound", "sourceRegion": "r0"})),
    ];
    let mut gateway = String::new();
    for (scope, group, kind, plural, name, spec) in objects {
        let object =
            json!({"apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec});
        let api = api(bench, scope, group, version, kind, plural);
        let applied = api.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&object)).await?;
        if kind == "Gateway" {
            gateway = applied.metadata.uid.context("the gateway has no uid")?;
        }
    }
    balancer(bench, &namespace).await?;
    Ok(Apis {
        routes: api(bench, here, routing, version, "ServiceRoute", "serviceroutes"),
        endpoints: api(bench, here, "externaldns.k8s.io", version, "DNSEndpoint", "dnsendpoints"),
        istio: api(bench, here, "networking.istio.io", "v1", "Gateway", "gateways"),
        namespace,
        gateway,
    })
}

fn start(bench: &Bench, apis: &Apis, name: &str) -> anyhow::Result<Operator> {
    let settings = [
        ("KUBECONFIG", bench.cluster.kubeconfig().display().to_string()),
        ("POD_NAMESPACE", apis.namespace.clone()),
        ("SIGNPOST_SYSTEMS", "router".to_owned()),
        ("ROUTER_GATEWAY_NAMESPACE", apis.namespace.clone()),
    ];
    Operator::start(&bench.operator, &settings, &bench.logs.path().join(format!("router-{name}.log")))
}

/// The name that a route of this service is published under.
fn full_name(service: &str) -> String {
    format!("{service}-ns-p-prod-app.{DOMAIN}")
}

/// The name and the object of a DNSEndpoint with the fields that the operator writes.
fn bare_endpoint(apis: &Apis, route: &str, controller: usize, host: &str) -> (String, Value) {
    let name = format!("{route}-external-dns-{controller}");
    let labels = json!({"app.kubernetes.io/managed-by": "bench", "router.io/controller": format!("external-dns-{controller}"),
        "router.io/region": format!("r{controller}"), "router.io/serviceroute": route, "router.io/source-namespace": apis.namespace});
    let annotations = json!({"external-dns.alpha.kubernetes.io/controller": format!("external-dns-{controller}")});
    // The cluster deletes an object whose owner does not exist.
    let owner = json!({"apiVersion": "routing.router.io/v1alpha1", "kind": "Gateway", "name": "gw", "uid": apis.gateway,
        "controller": true});
    let spec = json!({"endpoints": [{"dnsName": full_name(host), "recordType": "CNAME",
        "targets": ["bench-r0-internal.router.bench"]}]});
    let object = json!({"apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint",
        "metadata": {"name": name, "labels": labels, "annotations": annotations, "ownerReferences": [owner]}, "spec": spec});
    (name, object)
}

async fn apply_bare(apis: &Apis, (name, object): (String, Value)) -> anyhow::Result<()> {
    apis.endpoints.patch(&name, &PatchParams::apply("bench").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

/// The time to apply the DNSEndpoints of so many routes.
async fn bare(apis: &Apis, routes: usize) -> anyhow::Result<Duration> {
    let of_route = |route: usize| {
        let route = format!("bare-{route:05}");
        (0..CONTROLLERS).map(move |n| bare_endpoint(apis, &route, n, &route))
    };
    let start = Instant::now();
    at_full_speed((0..routes).flat_map(of_route), async |endpoint| apply_bare(apis, endpoint).await).await?;
    let took = start.elapsed();
    let own = ListParams::default().labels("app.kubernetes.io/managed-by=bench");
    apis.endpoints.delete_collection(&DeleteParams::default(), &own).await?;
    Ok(took)
}

async fn create(apis: &Apis, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    at_full_speed(numbers, async |n| {
        let object = json!({"apiVersion": "routing.router.io/v1alpha1", "kind": "ServiceRoute",
            "metadata": {"name": format!("route-{n:05}")},
            "spec": {"serviceName": format!("s{n:05}"), "gatewayName": "gw", "environment": "prod", "application": "app"}});
        apis.routes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    })
    .await
}

/// How often the Istio Gateway was written.
async fn generation(apis: &Apis) -> anyhow::Result<i64> {
    Ok(apis.istio.get_opt("gw").await?.and_then(|gateway| gateway.metadata.generation).unwrap_or(0))
}

/// Waits until the watch has shown so many DNSEndpoints of a host.
async fn until_seen(
    events: &mut (impl Stream<Item = watcher::Result<watcher::Event<DynamicObject>>> + Unpin),
    host: &str,
    count: usize,
) -> anyhow::Result<()> {
    let (start, mut seen) = (Instant::now(), 0);
    while seen < count {
        anyhow::ensure!(start.elapsed() < DEADLINE, "{seen} of {count} DNSEndpoints of {host} were seen");
        let event = events.next().await.context("the watch ended")??;
        let shows = |object: &DynamicObject| object.data["spec"]["endpoints"][0]["dnsName"] == host;
        seen += usize::from(matches!(event, watcher::Event::Apply(object) if shows(&object)));
    }
    Ok(())
}

/// One changed route → its DNSEndpoints are written, against one bare apply of a DNSEndpoint with the same fields. Both are changes of objects
/// that exist, begin after the same pause, and end when the watch shows them.
async fn change(bench: &Bench, measurements: &mut Measurements, apis: &Apis, size: usize) -> anyhow::Result<()> {
    bench.report("changing one route, and a bare apply, by turns");
    let mut events = Box::pin(watcher(apis.endpoints.clone(), watcher::Config::default().any_semantic()));
    while !matches!(events.next().await.context("the watch ended")??, watcher::Event::InitDone) {}
    apply_bare(apis, bare_endpoint(apis, "bare", 0, "before")).await?;
    let (mut changes, mut answers, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        tokio::time::sleep(QUIET).await;
        let name = format!("route-{:05}", round * 97 % size);
        let host = format!("changed{round}");
        let patch = json!({"spec": {"serviceName": &host}});
        apis.routes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        // From the answer on: the operator's own watch has the change by then.
        let start = Instant::now();
        until_seen(&mut events, &full_name(&host), CONTROLLERS).await?;
        changes.push(start.elapsed());

        // The status of the route and the Istio Gateway are written by then.
        tokio::time::sleep(QUIET).await;
        let host = format!("bare{round}");
        let one = bare_endpoint(apis, "bare", 0, &host);
        let start = Instant::now();
        apply_bare(apis, one).await?;
        answers.push(start.elapsed());
        until_seen(&mut events, &full_name(&host), 1).await?;
        bare.push(start.elapsed());
    }
    let [change, answer, bare] = [changes, answers, bare].map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    measurements.extend([
        Measurement::new("router.bare_apply_answered", seconds(answer) * 1000.0, "ms", Goal::None),
        Measurement::new("router.bare_apply", seconds(bare) * 1000.0, "ms", Goal::None),
        Measurement::new("router.change", seconds(change) * 1000.0, "ms", Goal::None),
        Measurement::new("router.change_of_bare_apply", seconds(change) / seconds(bare), "x", Goal::AtMost(3.0)),
    ]);
    Ok(())
}
