//! A server that names the time to wait only in a header, as an overloaded API server and the proxies in front of it do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use signpost_engine::{
    Identity, Index, ObjectId, ObjectWrite, Operator, OperatorOptions, Watch, WriteError, Writer, client::connect,
    health::Health, lease::Fence, metrics::Metrics, write::WriterOptions,
};
use signpost_testkit::{Cluster, Fault, FaultProxy, Rule, eventually, on_both};
use tokio_util::sync::CancellationToken;

/// The operator's client, through a proxy.
async fn through_proxy(cluster: &Cluster) -> (FaultProxy, Client) {
    let proxy = FaultProxy::start(&cluster.config().await.cluster_url.to_string()).await;
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let server = text.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let path = std::env::temp_dir().join(format!("signpost-throttling-{}", proxy.url().rsplit(':').next().unwrap()));
    let lines = text.replace(server, &proxy.url());
    let plain: Vec<_> = lines.lines().filter(|line| !line.contains("certificate-authority")).collect();
    std::fs::write(&path, plain.join("\n")).unwrap();
    let client = connect(Some(&path)).await;
    std::fs::remove_file(path).unwrap();
    (proxy, client.unwrap())
}

/// Notes when the first complete list was processed.
#[derive(Default)]
struct Listed(Mutex<Option<Instant>>);

impl Index<ConfigMap> for Listed {
    fn applied(&self, _: &ConfigMap) {}
    fn deleted(&self, _: &ObjectId) {}
    fn listed(&self) {
        self.0.lock().unwrap().get_or_insert_with(Instant::now);
    }
}

on_both! {
    async fn retry_after_is_reported_to_a_write_and_awaited_by_a_submit(cluster) {
        let namespace = cluster.namespace("throttling").await;
        let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
        let map = Api::namespaced(cluster.client(), &namespace).create(&PostParams::default(), &map).await.unwrap();
        let (proxy, client) = through_proxy(&cluster).await;
        let writer = || {
            let health = Health::new(Metrics::new());
            Writer::new(client.clone(), WriterOptions::default(), Fence::open(), health, Metrics::new())
        };
        let write = ObjectWrite::metadata(&Identity::of(&map), json!({ "labels": { "a": "b" } }));
        proxy.add(Rule::next(1, Fault::throttled(7)).method(Method::PATCH));
        assert_eq!(writer().write(&write).await, Err(WriteError::Throttled(Some(Duration::from_secs(7)))));
        proxy.add(Rule::next(1, Fault::throttled(2)).method(Method::PATCH));
        // Another writer: submitted writes of the first one wait for those seven seconds.
        let (writer, began) = (writer(), Instant::now());
        writer.submit(write);
        writer.idle().await;
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(proxy.count(&Method::PATCH, "configmaps/a"), 3);
    }

    async fn a_list_waits_for_retry_after(cluster) {
        let (proxy, client) = through_proxy(&cluster).await;
        proxy.add(Rule::next(1, Fault::throttled(2)).path("configmaps"));
        let mut operator = Operator::new(client, OperatorOptions::default());
        let listed = Arc::new(Listed::default());
        operator.watch::<ConfigMap>("test", Watch::required(), listed.clone());
        let stop = CancellationToken::new();
        let began = Instant::now();
        let running = tokio::spawn(operator.run(stop.clone()));
        let at = eventually("listed", Duration::from_mins(2), || async { listed.0.lock().unwrap().ok_or("not yet") }).await;
        assert!(at.duration_since(began) >= Duration::from_secs(2), "{:?}", at.duration_since(began));
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}
