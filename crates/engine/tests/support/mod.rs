//! Shared by the suites on the sandbox: a small but complete system, and a cluster for it.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each suite uses its part")]

pub mod mirror;

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use signpost_engine::{Operator, OperatorOptions, clock::ManualClock};
use signpost_sandbox::{Sandbox, SandboxClock, SandboxOptions};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// When every test begins.
pub fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A clock that follows the paused time of the test.
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(start()))
}

/// An empty cluster on paused time.
pub fn sandbox(seed: u64) -> Sandbox {
    Sandbox::new(SandboxOptions { clock: SandboxClock::tokio_from(start()), seed, ..SandboxOptions::default() })
}

/// A replica without systems, whose clock follows the paused time of the test.
pub fn operator(client: Client) -> Operator {
    Operator::new(client, OperatorOptions { clock: clock(), ..OperatorOptions::default() })
}

/// Runs the operator until the guard is dropped.
pub fn run(operator: Operator) -> DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(operator.run(stop.clone()));
    stop.drop_guard()
}

/// The CRD of [`mirror::Mirror`].
pub async fn install_mirrors(client: &Client) {
    install_kind(client, "Mirror").await;
}

/// A namespaced kind of `test.signpost.dev/v1`; its schema accepts anything, so that a test can store objects that the operator cannot
/// read.
pub async fn install_kind(client: &Client, kind: &str) {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.test.signpost.dev") },
        "spec": {
            "group": "test.signpost.dev",
            "scope": "Namespaced",
            "names": { "plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List") },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": anything, "status": anything } } },
            }],
        },
    }))
    .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &crd).await.unwrap();
}

/// Waits for a condition, with a deadline in the time of the test.
pub async fn eventually<T, F>(what: &str, within: Duration, mut check: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let until = Instant::now() + within;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < until, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A runtime with paused time: it advances only when all tasks wait, and then at once.
pub fn paused<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}
