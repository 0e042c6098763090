//! `memory`: 10,000 realistic Ingresses on the real API server, a fifth of them registered. Measured: resident memory, the cost of
//! unregistered Ingresses, growth over a hundred complete lists, the time until ready, and the time of a hand-over. Then both systems in
//! one process, with 10,000 record sets beside the Ingresses.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use signpost_testkit::pihole::PiholeV6;
use signpost_testkit::{Fault, FaultProxy, Rule};

use crate::cutter::Cutter;
use crate::measurement::{Goal, Measurement, Measurements};
use crate::servers::{self, at_full_speed};
use crate::strategies::Direct;
use crate::{Bench, seconds};

const SIZE: usize = 10_000;
const REGISTERED: usize = 2_000;
const RELISTS: usize = 100;
/// Memory that 8,000 unregistered Ingresses may add, in MB: little more than the difference between two starts.
const UNRELATED: f64 = 5.0;
/// Counts the watch events of Ingresses that the operator received.
const CHANGES: &str = "signpost_watch_events_total{kind=\"ingresses.networking.k8s.io\"}";
/// Counts its complete lists of Ingresses.
const LISTS: &str = "signpost_lists_total{kind=\"ingresses.networking.k8s.io\",outcome=\"complete\"}";
const DEADLINE: Duration = Duration::from_mins(3);

/// An Ingress with three rules, TLS, the usual annotations and the last-applied annotation of `kubectl apply`.
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

/// Creates Ingresses at full speed, registered or not.
pub(crate) async fn create(
    bench: &Bench,
    namespace: &str,
    numbers: Range<usize>,
    registered: bool,
) -> anyhow::Result<()> {
    let api: &Api<Ingress> = &Api::namespaced(bench.cluster.client(), namespace);
    let params = &PostParams { field_manager: Some("kubectl-client-side-apply".into()), ..PostParams::default() };
    at_full_speed(numbers, async |n| {
        api.create(params, &ingress(namespace, n, registered)?).await?;
        Ok(())
    })
    .await
}

/// Runs the benchmark.
pub(crate) async fn run(bench: &Bench, measurements: &mut Measurements) -> anyhow::Result<()> {
    let pihole = PiholeV6::start().await;
    let empty = bench.cluster.namespace("bench-memory-empty").await;
    let mut operator = bench.pihole_operator(&empty, &bench.cluster.kubeconfig(), &pihole.url())?;
    let ready = operator.ready(DEADLINE).await?;
    measurements.push(Measurement::new("memory.start_to_ready_empty", seconds(ready), "s", Goal::AtMost(2.0)));
    measurements.push(Measurement::new("memory.rss_empty", operator.rss_mb()?, "MB", Goal::None));
    let mut next = bench.pihole_operator(&empty, &bench.cluster.kubeconfig(), &pihole.url())?;
    next.ready(DEADLINE).await?;
    let first = leader(bench, &empty).await?.context("there is no leader")?;
    let asked = Instant::now();
    operator.stop().await?;
    while leader(bench, &empty).await?.is_none_or(|leader| leader == first) {
        anyhow::ensure!(asked.elapsed() < DEADLINE, "no replica took over");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    measurements.push(Measurement::new("memory.handover", seconds(asked.elapsed()), "s", Goal::AtMost(2.0)));
    next.stop().await?;

    let namespace = &bench.cluster.namespace("bench-memory").await;
    unrelated(bench, measurements, namespace, &pihole).await?;
    relists(bench, measurements, namespace, &pihole).await?;
    both(bench, measurements, namespace, &pihole).await?;
    let ingresses: Api<Ingress> = Api::namespaced(bench.cluster.client(), namespace);
    ingresses.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

/// The holder of the lease of the operators of a namespace.
async fn leader(bench: &Bench, namespace: &str) -> anyhow::Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(bench.cluster.client(), namespace);
    let spec = leases.get_opt(&format!("signpost-{namespace}")).await?.and_then(|lease| lease.spec);
    Ok(spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty()))
}

/// The memory of unregistered Ingresses, and the time until ready with all of them.
async fn unrelated(
    bench: &Bench,
    measurements: &mut Measurements,
    namespace: &str,
    pihole: &PiholeV6,
) -> anyhow::Result<()> {
    // Without a proxy in between, which would be measured too.
    let start = || bench.pihole_operator(namespace, &bench.cluster.kubeconfig(), &pihole.url());
    bench.report(&format!("creating {REGISTERED} Ingresses that ask for records"));
    create(bench, namespace, 0..REGISTERED, true).await?;
    let operator = start()?;
    written(pihole).await?;
    operator.stop().await?;
    // Both times all records exist already.
    let mut operator = start()?;
    operator.ready(DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    let alone = operator.rss_mb()?;
    operator.stop().await?;

    bench.report(&format!("creating {} that do not", SIZE - REGISTERED));
    create(bench, namespace, REGISTERED..SIZE, false).await?;
    let mut operator = start()?;
    let ready = operator.ready(DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    let among_others = operator.rss_mb()?;
    operator.stop().await?;
    measurements.extend([
        Measurement::new("memory.start_to_ready", seconds(ready), "s", Goal::AtMost(10.0)),
        Measurement::new("memory.rss_without_unrelated", alone, "MB", Goal::None),
        Measurement::new("memory.unrelated", among_others - alone, "MB", Goal::AtMost(UNRELATED)),
    ]);
    Ok(())
}

/// Whether memory grows when the watches expire and everything must be listed again.
async fn relists(
    bench: &Bench,
    measurements: &mut Measurements,
    namespace: &str,
    pihole: &PiholeV6,
) -> anyhow::Result<()> {
    let proxy = FaultProxy::start(&bench.cluster.config().await.cluster_url.to_string()).await;
    let cutter = Cutter::start(proxy.url().trim_start_matches("http://").parse()?).await?;
    let kubeconfig = bench.logs.path().join("through-proxy.kubeconfig");
    std::fs::write(&kubeconfig, bench.cluster.kubeconfig_through(&cutter.url()))?;
    let mut operator = bench.pihole_operator(namespace, &kubeconfig, &pihole.url())?;
    operator.ready(DEADLINE).await?;
    written(pihole).await?;
    let first = operator.rss_mb()?;

    bench.report(&format!("expiring the watches: {RELISTS} complete lists"));
    let mut most = first;
    let ingresses: Api<Ingress> = Api::namespaced(bench.cluster.client(), namespace);
    for round in 0..RELISTS {
        let before = operator.counter(LISTS).await?;
        proxy.add(Rule::next(1, Fault::status(410)).path("watch=true"));
        cutter.cut();
        operator.reached(LISTS, before + 1.0, DEADLINE).await?;
        // A change that the new watch delivers: the view is current again, and the next expiry does not count as repeated.
        let before = operator.counter(CHANGES).await.unwrap_or(0.0);
        let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
        ingresses.patch("app-09999", &PatchParams::default(), &Patch::Merge(patch)).await?;
        operator.reached(CHANGES, before + 1.0, DEADLINE).await?;
        most = most.max(operator.rss_mb()?);
        // The list of requests would grow here, beside the operator, and cost it time.
        proxy.forget();
    }
    operator.rest(DEADLINE).await?;
    let last = operator.rss_mb()?;
    let stopped = operator.stop().await?;
    measurements.extend([
        Measurement::new("memory.rss", first, "MB", Goal::AtMost(48.0)),
        Measurement::new("memory.rss_most", most, "MB", Goal::AtMost(48.0)),
        Measurement::new("memory.growth_over_relists", last / first, "x", Goal::AtMost(1.15)),
        Measurement::new("memory.stop", seconds(stopped), "s", Goal::AtMost(2.0)),
    ]);
    Ok(())
}

/// Both systems in one process, over the Ingresses and as many record sets.
async fn both(
    bench: &Bench,
    measurements: &mut Measurements,
    namespace: &str,
    pihole: &PiholeV6,
) -> anyhow::Result<()> {
    let (client, zone) = (bench.cluster.client(), "both.bench");
    bench.report(&format!("creating {SIZE} record sets beside the Ingresses"));
    servers::create_zone(&client, namespace, zone).await?;
    servers::create_rrsets(&client, namespace, zone, SIZE).await?;
    bench.report("starting the operator for both systems");
    let mut operator = bench.both_operator(namespace, &pihole.url())?;
    let (_, _) = tokio::try_join!(
        servers::all_served(bench.powerdns.dns_addr(), zone, SIZE, 0, DEADLINE),
        servers::all_reported(&client, namespace, SIZE, DEADLINE)
    )?;
    operator.ready(DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    let (rss, peak) = (operator.rss_mb()?, operator.peak_mb()?);
    operator.stop().await?;
    // Again, with all records written already.
    let mut operator = bench.both_operator(namespace, &pihole.url())?;
    let ready = operator.ready(DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    let again = operator.rss_mb()?;
    operator.stop().await?;
    measurements.extend([
        Measurement::new("memory.both.rss", rss, "MB", Goal::AtMost(100.0)),
        Measurement::new("memory.both.rss_peak", peak, "MB", Goal::None),
        Measurement::new("memory.both.rss_after_restart", again, "MB", Goal::AtMost(100.0)),
        Measurement::new("memory.both.start_to_ready", seconds(ready), "s", Goal::AtMost(10.0)),
    ]);
    servers::clear(&client, namespace).await?;
    Direct::new(&bench.powerdns)?.delete_zone(zone).await
}

/// Waits until every line is in the Pi-hole.
async fn written(pihole: &PiholeV6) -> anyhow::Result<()> {
    let start = Instant::now();
    while pihole.hosts().len() < REGISTERED {
        anyhow::ensure!(start.elapsed() < DEADLINE, "only {} of {REGISTERED} lines were written", pihole.hosts().len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
