//! The heap of the operator per object when idle. Fails when it grows.
//!
//! The sandbox and the in-memory PowerDNS run in the same process. So the operator is started again when nothing is left to write: the growth of
//! the heap is then the operator's alone. That of an operator with one zone and no record set is subtracted.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::json;
use signpost_engine::{Operator, OperatorOptions};
use signpost_provider_powerdns::MemoryServer;
use signpost_sandbox::{Sandbox, SandboxOptions};
use signpost_system_powerdns::Pace;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static HEAP: dhat::Alloc = dhat::Alloc;

const OBJECTS: usize = 400;
/// Bytes per record set: index, queue, memory of the zone and digests of statuses. As measured, plus ten percent.
const LIMIT: usize = 1_790;

const WRITTEN: &str = "signpost_object_writes_total{outcome=\"written\"}";

struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn start(sandbox: &Sandbox, server: &MemoryServer) -> (Running, signpost_engine::metrics::Metrics) {
    let mut operator = Operator::new(sandbox.client(), OperatorOptions::default());
    signpost_system_powerdns::install_with(&mut operator, Arc::new(server.clone()), Pace::default());
    let metrics = operator.metrics();
    let stop = CancellationToken::new();
    let ends = stop.clone();
    let task = tokio::spawn(async move { operator.run(ends).await.unwrap() });
    (Running { stop, task }, metrics)
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn api(sandbox: &Sandbox, kind: &str, plural: &str) -> Api<DynamicObject> {
    let group = "dns.cav.enablers.ob";
    let resource = ApiResource {
        group: group.into(),
        version: "v1alpha2".into(),
        api_version: format!("{group}/v1alpha2"),
        kind: kind.into(),
        plural: plural.into(),
    };
    Api::namespaced_with(sandbox.client(), "default", &resource)
}

async fn create(api: &Api<DynamicObject>, object: serde_json::Value) {
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

fn metric(metrics: &signpost_engine::metrics::Metrics, name: &str) -> f64 {
    let text = metrics.encode();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn reached(metrics: &signpost_engine::metrics::Metrics, name: &str, value: f64) {
    for _ in 0..6_000 {
        if metric(metrics, name) >= value {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} is {} and not {value}", metric(metrics, name));
}

/// How much the heap grows by an operator that has nothing to write.
async fn growth(sandbox: &Sandbox, server: &MemoryServer) -> usize {
    let before = dhat::HeapStats::get().curr_bytes;
    let (running, metrics) = start(sandbox, server);
    reached(&metrics, "signpost_passes_total{system=\"powerdns\",outcome=\"done\"}", 1.0).await;
    let after = dhat::HeapStats::get().curr_bytes;
    assert!(metric(&metrics, WRITTEN) < 3.0, "nothing is left to write");
    running.stop().await;
    after - before
}

#[tokio::test]
async fn a_record_set_takes_a_bounded_part_of_the_heap() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let sandbox = Sandbox::new(SandboxOptions { log: false, ..SandboxOptions::default() });
    let crds: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(sandbox.client());
    for crd in signpost_apis::powerdns::crds() {
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    let version = "dns.cav.enablers.ob/v1alpha2";
    create(
        &api(&sandbox, "Zone", "zones"),
        json!({"apiVersion": version, "kind": "Zone", "metadata": {"name": "heap.example"},
        "spec": {"kind": "Native", "nameservers": ["ns1.example.net"]}}),
    )
    .await;
    let server = MemoryServer::new();
    let (writing, metrics) = start(&sandbox, &server);
    reached(&metrics, WRITTEN, 2.0).await;
    drop(metrics);
    writing.stop().await;
    let alone = growth(&sandbox, &server).await;

    let rrsets = api(&sandbox, "RRset", "rrsets");
    for n in 0..OBJECTS {
        create(
            &rrsets,
            json!({"apiVersion": version, "kind": "RRset", "metadata": {"name": format!("host-{n}")},
            "spec": {"type": "A", "name": format!("host-{n}"), "ttl": 300, "records": ["192.0.2.1"],
                "zoneRef": {"name": "heap.example", "kind": "Zone"}}}),
        )
        .await;
    }
    let (writing, metrics) = start(&sandbox, &server);
    // A finalizer and a status for each.
    #[allow(clippy::cast_precision_loss)] // a small number
    reached(&metrics, WRITTEN, 2.0 * OBJECTS as f64).await;
    drop(metrics);
    writing.stop().await;

    let each = (growth(&sandbox, &server).await - alone) / OBJECTS;
    assert!(each <= LIMIT, "{each} bytes per record set, and {LIMIT} are allowed");
    assert!(each > LIMIT / 2, "{each} bytes per record set: lower the limit, so that it guards what was gained");
}
