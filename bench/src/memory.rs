//! `memory`: 10,000 Ingresses as real ones look, on the real API server, a fifth of them registered: the operator's resident memory,
//! whether it grows when its watches expire and it must list everything again, twenty times, and how long it takes from the start of the
//! process until it is ready, here and on an empty cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use signpost_testkit::pihole::PiholeV6;
use signpost_testkit::{Fault, FaultProxy, Rule};

use crate::cutter::Cutter;
use crate::figure::{Figure, Figures, Goal};
use crate::world::WRITERS;
use crate::{Bench, seconds};

const SIZE: usize = 10_000;
/// Objects in one page of a list, as the operator asks for them.
const PAGE: usize = 250;
const REGISTERED: usize = 2_000;
const RELISTS: usize = 20;
const DEADLINE: Duration = Duration::from_mins(2);

/// An Ingress with three rules, TLS, the annotations of a usual set-up and what `kubectl apply` leaves behind.
pub(crate) fn ingress(namespace: &str, n: usize, registered: bool) -> anyhow::Result<Ingress> {
    let rule = |host: String| {
        json!({"host": host, "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": format!("app-{n}"), "port": {"number": 80}}}},
            {"path": "/api", "pathType": "Prefix", "backend": {"service": {"name": format!("app-{n}-api"), "port": {"number": 8080}}}}]}})
    };
    let hosts = [format!("app-{n:05}.bench.lan"), format!("www-{n:05}.bench.lan"), format!("api-{n:05}.bench.lan")];
    let spec = json!({"ingressClassName": "nginx", "tls": [{"hosts": hosts, "secretName": format!("app-{n}-tls")}],
        "rules": hosts.clone().map(rule)});
    let mut annotations = json!({
        "cert-manager.io/cluster-issuer": "letsencrypt", "nginx.ingress.kubernetes.io/proxy-body-size": "16m",
        "nginx.ingress.kubernetes.io/ssl-redirect": "true",
        "kubectl.kubernetes.io/last-applied-configuration": serde_json::to_string(&spec)?,
    });
    if registered {
        annotations["pihole.io/register"] = json!("true");
        annotations["pihole.io/hosts"] = json!(format!("app-{n:05}.bench.lan"));
    }
    Ok(serde_json::from_value(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": format!("app-{n:05}"), "namespace": namespace, "annotations": annotations,
            "labels": {"app.kubernetes.io/name": format!("app-{n}"), "app.kubernetes.io/managed-by": "Helm"}},
        "spec": spec}))?)
}

/// Creates Ingresses at full speed; the first `registered` of them ask for records.
pub(crate) async fn create(bench: &Bench, namespace: &str, count: usize, registered: usize) -> anyhow::Result<()> {
    let api: Api<Ingress> = Api::namespaced(bench.cluster.client(), namespace);
    let params = PostParams { field_manager: Some("kubectl-client-side-apply".into()), ..PostParams::default() };
    stream::iter(0..count)
        .map(|n| {
            let (api, params) = (api.clone(), params.clone());
            async move {
                api.create(&params, &ingress(namespace, n, n < registered)?).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// The cluster's kubeconfig with another address for the API server.
fn kubeconfig_through(bench: &Bench, url: &str) -> anyhow::Result<PathBuf> {
    let mut config: serde_json::Value = serde_saphyr::from_str(&std::fs::read_to_string(bench.cluster.kubeconfig())?)?;
    config["clusters"][0]["cluster"] = json!({"server": url});
    let path = bench.logs.path().join("through-proxy.kubeconfig");
    std::fs::write(&path, serde_json::to_string(&config)?)?;
    Ok(path)
}

/// Runs the benchmark.
pub(crate) async fn run(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let pihole = PiholeV6::start().await;
    let empty = bench.cluster.namespace("bench-memory-empty").await;
    let mut operator = bench.pihole_operator(&empty, &bench.cluster.kubeconfig(), &pihole.url())?;
    let ready_empty = operator.ready(DEADLINE).await?;
    let rss_empty = operator.rss_mb()?;
    operator.stop().await?;

    let namespace = bench.cluster.namespace("bench-memory").await;
    bench.say(&format!("creating {SIZE} Ingresses, {REGISTERED} of them registered"));
    create(bench, &namespace, SIZE, REGISTERED).await?;

    // Without anything in between, which would be measured too.
    let mut operator = bench.pihole_operator(&namespace, &bench.cluster.kubeconfig(), &pihole.url())?;
    let ready = operator.ready(DEADLINE).await?;
    operator.stop().await?;

    let proxy = FaultProxy::start(&bench.cluster.config().await.cluster_url.to_string()).await;
    let cutter = Cutter::start(proxy.url().trim_start_matches("http://").parse()?).await?;
    let kubeconfig = kubeconfig_through(bench, &cutter.url())?;
    let mut operator = bench.pihole_operator(&namespace, &kubeconfig, &pihole.url())?;
    operator.ready(DEADLINE).await?;
    let start = Instant::now();
    while pihole.hosts().len() < REGISTERED {
        anyhow::ensure!(start.elapsed() < DEADLINE, "only {} of {REGISTERED} lines were written", pihole.hosts().len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let first = operator.rss_mb()?;

    bench.say("expiring the watches: 20 complete lists");
    let mut most = first;
    let ingresses: Api<Ingress> = Api::namespaced(bench.cluster.client(), &namespace);
    for round in 0..RELISTS {
        let pages = || proxy.count(&Method::GET, "/ingresses?");
        let watches = || proxy.count(&Method::GET, "watch=true");
        let (pages_before, watches_before) = (pages(), watches());
        proxy.add(Rule::next(1, Fault::status(410)).path("watch=true"));
        cutter.cut();
        let start = Instant::now();
        // The refused watch, all pages of a list, and the watch that follows them.
        while pages() < pages_before + SIZE / PAGE || watches() < watches_before + 2 {
            anyhow::ensure!(start.elapsed() < DEADLINE, "no complete list after the watch expired (round {round})");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // A change that the new watch delivers: the view is current again, and the next expiry is not a repeated one.
        let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
        ingresses.patch("app-09999", &PatchParams::default(), &Patch::Merge(patch)).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        most = most.max(operator.rss_mb()?);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = operator.rss_mb()?;
    let stopped = operator.stop().await?;
    ingresses.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    figures.extend([
        Figure::new("memory.start_to_ready_empty", seconds(ready_empty), "s", Goal::AtMost(2.0)),
        Figure::new("memory.start_to_ready", seconds(ready), "s", Goal::AtMost(10.0)),
        Figure::new("memory.rss_empty", rss_empty, "MB", Goal::Told),
        Figure::new("memory.rss", first, "MB", Goal::AtMost(48.0)),
        Figure::new("memory.rss_most", most, "MB", Goal::AtMost(48.0)),
        Figure::new("memory.growth_over_relists", last / first, "x", Goal::AtMost(1.15)),
        Figure::new("memory.stop", seconds(stopped), "s", Goal::AtMost(2.0)),
    ]);
    Ok(())
}
