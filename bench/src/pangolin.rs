//! `pangolin`: 1,000 Ingresses. In crd mode against the bare cost of 1,000 applies in the same run; in api mode the calls that reach a stand-in of Pangolin.

#[allow(clippy::unwrap_used, dead_code)] // A fixture of tests, with both shapes.
#[path = "../../crates/systems/pangolin/tests/common/crds.rs"]
mod crds;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use signpost_testkit::pangolin::{ORG, Pangolin};

use crate::measurement::{Goal, Measurement, Measurements};
use crate::servers::{at_full_speed, writes_of};
use crate::{Bench, seconds};

const SIZE: usize = 1000;
const DEADLINE: Duration = Duration::from_mins(5);
/// Counts the passes that ended well.
const PASSES: &str = "pic_reconcile_total{result=\"success\"}";
/// Tunnel heartbeats that are sent.
const BEATS: usize = 20;
/// Ingresses that are changed at a time.
const CHANGES: usize = 100;
/// The groups of everything that the operator writes to Kubernetes, beside events and its Lease.
const GROUPS: &[&str] = &["networking.k8s.io", "tunnel.pangolin.io"];

/// Runs the benchmark.
pub(crate) async fn run(bench: &Bench, measurements: &mut Measurements) -> anyhow::Result<()> {
    bench.cluster.install(&crds::crds(crds::Kind::Multi)).await;
    crd_mode(bench, measurements).await?;
    api_mode(bench, measurements).await
}

fn api(bench: &Bench, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "tunnel.pangolin.io".into(),
        version: "v1alpha1".into(),
        api_version: "tunnel.pangolin.io/v1alpha1".into(),
        kind: kind.into(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    Api::namespaced_with(bench.cluster.client(), namespace, &resource)
}

async fn create(bench: &Bench, namespace: &str) -> anyhow::Result<()> {
    let services: Api<Service> = Api::namespaced(bench.cluster.client(), namespace);
    let service = serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "app"}, "spec": {"ports": [{"name": "web", "port": 80}, {"name": "other", "port": 8080}]}}),
    )?;
    services.create(&PostParams::default(), &service).await?;
    let ingresses: &Api<Ingress> = &Api::namespaced(bench.cluster.client(), namespace);
    at_full_speed(0..SIZE, async |n| {
        ingresses.create(&PostParams::default(), &serde_json::from_value(ingress(n, 80))?).await?;
        Ok(())
    })
    .await
}

fn ingress(n: usize, port: u16) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": format!("app-{n:05}")},
        "spec": {"ingressClassName": "pangolin", "rules": [{"host": format!("app-{n:05}.ns.test"), "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "app", "port": {"number": port}}}}]}}]}})
}

/// The PangolinResource that the operator makes for an Ingress, field by field, so that the end state is the same.
fn resource_of(ingress: &Ingress, namespace: &str) -> Value {
    let (name, uid) = (ingress.name_any(), ingress.uid());
    json!({"apiVersion": "tunnel.pangolin.io/v1alpha1", "kind": "PangolinResource",
        "metadata": {
            "name": format!("pic-{namespace}-{name}-00000000"),
            "labels": {"pic.ingress.k8s.io/uid": uid, "pic.ingress.k8s.io/name": name, "pic.ingress.k8s.io/namespace": namespace},
            "annotations": {"pic.ingress.k8s.io/host": format!("{name}.ns.test")},
            "ownerReferences": [{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": name, "uid": uid, "controller": true}]},
        "spec": {"enabled": true, "protocol": "http", "name": format!("{namespace}/{name}/{name}.ns.test"),
            "tunnelRef": {"name": "default", "namespace": namespace},
            "httpConfig": {"domainName": "ns.test", "subdomain": name, "sso": false, "blockAccess": false},
            "targets": [{"ip": format!("app.{namespace}.svc.cluster.local"), "port": 80, "method": "http"}]}})
}

/// What the operator writes, without an operator. Returns the time that it takes, and the fields of one of them.
async fn bare_applies(bench: &Bench) -> anyhow::Result<(Duration, Value)> {
    bench.report("1,000 bare applies of PangolinResources");
    let namespace = bench.cluster.namespace("bench-pangolin-bare").await;
    create(bench, &namespace).await?;
    let ingresses: Api<Ingress> = Api::namespaced(bench.cluster.client(), &namespace);
    let ingresses = ingresses.list(&ListParams::default()).await?.items;
    let objects: Vec<Value> = ingresses.iter().map(|ingress| resource_of(ingress, &namespace)).collect();
    let resources = &api(bench, &namespace, "PangolinResource");
    let changes = resources.watch(&WatchParams::default(), "0").await?.boxed();
    let began = Instant::now();
    let applied = at_full_speed(objects, async |object: Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        resources.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&object)).await?;
        Ok(())
    });
    let ((), (_, last)) = futures::future::try_join(applied, all_made(changes)).await?;
    Ok((last.duration_since(began), fields_of(resources).await?))
}

/// Waits until the watch has shown all PangolinResources. Returns when it showed the first one and the last one. It counts in both halves of
/// the comparison, because it is work for the API server. Lists of a thousand objects would be more.
async fn all_made(
    mut changes: BoxStream<'_, kube::Result<WatchEvent<DynamicObject>>>,
) -> anyhow::Result<(Instant, Instant)> {
    let (mut names, mut first, until) = (BTreeSet::new(), None, Instant::now() + DEADLINE);
    while names.len() < SIZE {
        let change = tokio::time::timeout_at(until.into(), changes.next()).await;
        match change.context("not all PangolinResources are made in time")?.context("the watch ended")?? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                first.get_or_insert_with(Instant::now);
                names.insert(object.metadata.name);
            }
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => anyhow::bail!("the watch failed: {error:?}"),
        }
    }
    let last = Instant::now();
    Ok((first.unwrap_or(last), last))
}

/// The names of the fields that were written to a PangolinResource.
async fn fields_of(resources: &Api<DynamicObject>) -> anyhow::Result<Value> {
    fn names(value: &Value) -> Value {
        match value {
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), names(value))).collect(),
            Value::Array(items) => items.iter().map(names).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Value::Null,
        }
    }
    let one = resources.list(&ListParams::default().limit(1)).await?.items.pop().context("no PangolinResource")?;
    let meta = one.metadata;
    Ok(names(&json!([meta.labels, meta.annotations, meta.owner_references, one.data["spec"]])))
}

async fn crd_mode(bench: &Bench, measurements: &mut Measurements) -> anyhow::Result<()> {
    let (bare, fields) = bare_applies(bench).await?;
    bench.report("1,000 Ingresses that wait for the operator in crd mode");
    let namespace = &bench.cluster.namespace("bench-pangolin-crd").await;
    let tunnels = api(bench, namespace, "PangolinTunnel");
    let tunnel = json!({"apiVersion": "tunnel.pangolin.io/v1alpha1", "kind": "PangolinTunnel", "metadata": {"name": "default"}, "spec": {}});
    tunnels.patch("default", &PatchParams::apply("bench"), &Patch::Apply(&tunnel)).await?;
    let beat = async |n: usize| {
        let status = json!({"status": {"status": "Ready", "conditions": [{"type": "Ready", "status": "True", "message": n.to_string()}]}});
        tunnels.patch_status("default", &PatchParams::default(), &Patch::Merge(&status)).await
    };
    beat(0).await?;
    create(bench, namespace).await?;
    let settings = || vec![("PIC_MODE", "crd".to_owned()), ("PIC_ALLOW_UNLISTED_SUFFIX", "true".to_owned())];
    let resources = api(bench, namespace, "PangolinResource");
    let changes = resources.watch(&WatchParams::default(), "0").await?.boxed();
    let mut operator = bench.start(namespace, &bench.cluster.kubeconfig(), settings())?;
    let (first, last) = all_made(changes).await?;
    let (first, exposed) = (first.duration_since(operator.started()), last.duration_since(operator.started()));
    let ours = fields_of(&resources).await?;
    anyhow::ensure!(ours == fields, "the bare applies write other fields than the operator: {fields} {ours}");
    operator.ready(DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    let (passes, written) = (operator.counter(PASSES).await?, writes_of(&bench.cluster.client(), GROUPS).await?);
    for n in 1..=BEATS {
        beat(n).await?;
    }
    operator.rest(DEADLINE).await?;
    let woken = operator.counter(PASSES).await? - passes;
    // The heartbeats are writes of the benchmark.
    let resting = (writes_of(&bench.cluster.client(), GROUPS).await? - written).saturating_sub(BEATS as u64);
    let rss = operator.rss_mb()?;
    operator.stop().await?;

    bench.report("a start with 1,000 unchanged Ingresses in crd mode, and a comparison of all");
    let compared = [settings(), vec![("PIC_RESYNC_PERIOD", "10s".to_owned())]].concat();
    let restarted = writes_in_a_start_and_a_comparison(bench, namespace, compared).await?;
    measurements.extend([
        Measurement::new("pangolin.bare_applies.1000", seconds(bare), "s", Goal::None),
        // How much of the next one is the start of the process, its lists and its lease.
        Measurement::new("pangolin.crd.first_of.1000", seconds(first), "s", Goal::None),
        Measurement::new("pangolin.crd.waiting.1000", seconds(exposed), "s", Goal::None),
        Measurement::new("pangolin.crd.over_bare_applies", seconds(exposed) / seconds(bare), "x", Goal::AtMost(1.5)),
        Measurement::new("pangolin.crd.passes_per_20_heartbeats", woken, "passes", Goal::AtMost(0.0)),
        Measurement::new("pangolin.crd.writes_at_rest.1000", count(resting), "writes", Goal::AtMost(0.0)),
        Measurement::new("pangolin.crd.restart_and_comparison.writes", count(restarted), "writes", Goal::AtMost(0.0)),
        Measurement::new("pangolin.crd.rss.1000", rss, "MB", Goal::AtMost(40.0)),
    ]);
    Ok(())
}

/// Kubernetes writes of a process that starts with all Ingresses unchanged and compares each of them once more.
async fn writes_in_a_start_and_a_comparison(
    bench: &Bench,
    namespace: &str,
    settings: Vec<(&'static str, String)>,
) -> anyhow::Result<u64> {
    let before = writes_of(&bench.cluster.client(), GROUPS).await?;
    let mut operator = bench.start(namespace, &bench.cluster.kubeconfig(), settings)?;
    operator.ready(DEADLINE).await?;
    operator.reached(PASSES, ratio(2 * SIZE, 1), DEADLINE).await?;
    // Its last writes may still be queued.
    tokio::time::sleep(Duration::from_secs(2)).await;
    operator.stop().await?;
    Ok(writes_of(&bench.cluster.client(), GROUPS).await? - before)
}

/// Changes the paths of some Ingresses, and waits until Pangolin has so many targets like this.
async fn change(
    bench: &Bench,
    namespace: &str,
    which: std::ops::Range<usize>,
    paths: &Value,
    done: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let ingresses: Api<Ingress> = Api::namespaced(bench.cluster.client(), namespace);
    for n in which {
        let patch = json!({"spec": {"rules": [{"host": format!("app-{n:05}.ns.test"), "http": {"paths": paths}}]}});
        ingresses.patch(&format!("app-{n:05}"), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    let began = Instant::now();
    while !done() {
        anyhow::ensure!(began.elapsed() < DEADLINE, "not all changes arrived within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn path(path: &str, port: u16) -> Value {
    json!({"path": path, "pathType": "Prefix", "backend": {"service": {"name": "app", "port": {"number": port}}}})
}

/// The settings of api mode with the stand-in.
fn api_settings(server: &Pangolin, resync: &str) -> Vec<(&'static str, String)> {
    vec![
        ("PIC_MODE", "api".to_owned()),
        ("PIC_API_URL", server.url()),
        ("PIC_ORG_ID", ORG.to_owned()),
        ("PIC_API_KEY", Pangolin::KEY.to_owned()),
        ("PIC_DEFAULT_TUNNEL_NAME", "cluster".to_owned()),
        ("PIC_RESYNC_PERIOD", resync.to_owned()),
        // The limit spares a server that computes a password hash for each call; the stand-in computes none.
        ("PIC_RECONCILE_RATE", "0".to_owned()),
    ]
}

/// The targets whose port is `port`.
fn on_port(server: &Pangolin, port: u16) -> usize {
    server.state().targets.values().filter(|target| *target.field("port") == json!(port)).count()
}

async fn api_mode(bench: &Bench, measurements: &mut Measurements) -> anyhow::Result<()> {
    let server = Pangolin::start().await;
    let namespace = &bench.cluster.namespace("bench-pangolin-api").await;
    create(bench, namespace).await?;
    api_mode_from_nothing(bench, &server, namespace, measurements).await?;
    api_mode_after_a_restart(bench, &server, namespace, measurements).await
}

async fn api_mode_from_nothing(
    bench: &Bench,
    server: &Pangolin,
    namespace: &str,
    measurements: &mut Measurements,
) -> anyhow::Result<()> {
    bench.report("1,000 Ingresses that wait for the operator in api mode");
    let mut operator = bench.start(namespace, &bench.cluster.kubeconfig(), api_settings(server, "1h"))?;
    operator.ready(DEADLINE).await?;
    while server.state().targets.len() < SIZE {
        anyhow::ensure!(operator.started().elapsed() < DEADLINE, "not all Ingresses are exposed after {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let exposed = operator.started().elapsed();
    operator.rest(DEADLINE).await?;
    let per_host = ratio(server.requests().len(), SIZE);
    let rss = operator.rss_mb()?;

    bench.report("100 changed backends");
    server.forget_requests();
    change(bench, namespace, 0..CHANGES, &json!([path("/", 8080)]), || on_port(server, 8080) == CHANGES).await?;
    operator.rest(DEADLINE).await?;
    let per_change = ratio(server.requests().len(), CHANGES);

    bench.report("100 new paths");
    server.forget_requests();
    let both = json!([path("/", 80), path("/api", 80)]);
    let all = || server.state().targets.len();
    change(bench, namespace, CHANGES..2 * CHANGES, &both, || all() == SIZE + CHANGES).await?;
    operator.rest(DEADLINE).await?;
    let per_path = ratio(server.requests().len(), CHANGES);
    operator.stop().await?;
    measurements.extend([
        Measurement::new("pangolin.api.waiting.1000", seconds(exposed), "s", Goal::None),
        Measurement::new("pangolin.api.calls_per_new_host", per_host, "calls", Goal::AtMost(3.05)),
        Measurement::new("pangolin.api.calls_per_change", per_change, "calls", Goal::AtMost(1.0)),
        Measurement::new("pangolin.api.calls_per_new_path", per_path, "calls", Goal::AtMost(1.0)),
        Measurement::new("pangolin.api.rss.1000", rss, "MB", Goal::AtMost(40.0)),
    ]);
    Ok(())
}

async fn api_mode_after_a_restart(
    bench: &Bench,
    server: &Pangolin,
    namespace: &str,
    measurements: &mut Measurements,
) -> anyhow::Result<()> {
    bench.report("a start with 1,000 unchanged Ingresses");
    server.forget_requests();
    let written = writes_of(&bench.cluster.client(), GROUPS).await?;
    let mut operator = bench.start(namespace, &bench.cluster.kubeconfig(), api_settings(server, "1h"))?;
    operator.ready(DEADLINE).await?;
    operator.reached(PASSES, ratio(SIZE, 1), DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    let (reads, writes) = (server.requests().len() - server.writes().len(), server.writes().len());

    bench.report("30 seconds at rest, between two comparisons");
    server.forget_requests();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let resting = server.requests().len();
    let noted = writes_of(&bench.cluster.client(), GROUPS).await? - written;

    bench.report("100 changed backends, the first change of each after the start");
    server.forget_requests();
    let third = 2 * CHANGES..3 * CHANGES;
    change(bench, namespace, third, &json!([path("/", 8080)]), || on_port(server, 8080) == 2 * CHANGES).await?;
    operator.rest(DEADLINE).await?;
    let per_first_change = ratio(server.requests().len(), CHANGES);
    operator.stop().await?;

    bench.report("a start in api mode, and a comparison of all");
    server.forget_requests();
    let renoted = writes_in_a_start_and_a_comparison(bench, namespace, api_settings(server, "10s")).await?;
    let rewritten = server.writes().len();
    measurements.extend([
        // What a process has not read or written itself is read once before it is changed: settings, targets, and the write.
        Measurement::new("pangolin.api.restart.calls_per_first_change", per_first_change, "calls", Goal::AtMost(3.0)),
        Measurement::new("pangolin.api.restart.kubernetes_writes", count(noted), "writes", Goal::AtMost(0.0)),
        Measurement::new("pangolin.api.comparison.kubernetes_writes", count(renoted), "writes", Goal::AtMost(0.0)),
        Measurement::new("pangolin.api.comparison.writes", ratio(rewritten, 1), "calls", Goal::AtMost(0.0)),
        Measurement::new("pangolin.api.restart.lists", ratio(reads, 1), "calls", Goal::AtMost(3.0)),
        Measurement::new("pangolin.api.restart.writes", ratio(writes, 1), "calls", Goal::AtMost(0.0)),
        Measurement::new("pangolin.api.calls_at_rest.30s", ratio(resting, 1), "calls", Goal::AtMost(0.0)),
    ]);
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // Thousands.
fn ratio(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}

#[allow(clippy::cast_precision_loss)] // Thousands.
fn count(number: u64) -> f64 {
    number as f64
}
