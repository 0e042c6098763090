//! Crd mode with the shape that has several targets: what differs from the shape with one.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

use kube::ResourceExt as _;
use serde_json::json;
use signpost_system_pangolin::{Dialect, Policy};
use signpost_testkit::on_both;

use common::bed::{Bed, path, rules};
use common::crds::Kind;

on_both! {
async fn a_resource_has_targets_access_and_the_namespace_of_its_tunnel(cluster) {
    let bed = Bed::new(cluster, Kind::Multi).await;
    let _running = bed.start();
    let annotations = json!({"pangolin.ingress.k8s.io/sso": "true"});
    bed.create("app", &annotations, json!({"ingressClassName": "pangolin", "rules": rules(&["app.example.com"])})).await;
    let resource = bed.resource().await;
    let namespace = &bed.namespace;
    assert_eq!(
        resource.data["spec"],
        json!({
            "name": format!("{namespace}/app/app.example.com"), "enabled": true, "protocol": "http",
            "tunnelRef": {"name": "default", "namespace": namespace},
            "httpConfig": {"domainName": "example.com", "subdomain": "app", "sso": true, "blockAccess": false},
            "targets": [{"ip": format!("app.{namespace}.svc.cluster.local"), "port": 80, "method": "http", "priority": 100}],
        })
    );
    bed.report("PangolinResource", &resource.name_any(), &json!({"status": "Ready", "targetIds": ["1"], "fullDomain": "other.example.com"})).await;
    bed.event("Warning", "ResourceWrongHost").await;
    bed.patch("app", json!({"spec": {"rules": rules(&["new.example.com"])}})).await;
    bed.exposes(&["new.example.com"]).await;
    bed.delete("app").await;
    bed.exposes(&[]).await;
}

async fn paths_are_written_only_when_asked(cluster) {
    let bed = Bed::new(cluster, Kind::Multi).await;
    let running = bed.start();
    let paths = json!([path("/", "Prefix", "app", 80), path("/api", "Exact", "api", 9000)]);
    let spec = json!({"ingressClassName": "pangolin", "rules": [{"host": "app.example.com", "http": {"paths": paths}}]});
    bed.create("app", &json!({}), spec).await;
    bed.specified("one target", |spec| spec["targets"].as_array().is_some_and(|all| all.len() == 1)).await;
    bed.event("Warning", "PathNotSupported").await;
    running.stop().await;
    let _running = bed.start_with(Policy { crd_paths: true, ..bed.policy() });
    let resource = bed.specified("two targets", |spec| spec["targets"].as_array().is_some_and(|all| all.len() == 2)).await;
    let first = &resource.data["spec"]["targets"][0];
    assert_eq!((&first["path"], &first["pathMatchType"], &first["priority"]), (&json!("/api"), &json!("exact"), &json!(1000)));
}

async fn a_tunnel_in_another_namespace_is_found(cluster) {
    let other = Bed::new(cluster.clone(), Kind::Multi).await;
    other.tunnel("shared", Some("Ready")).await;
    let bed = Bed::bare(cluster).await;
    let _running = bed.start_with(Policy { tunnel_namespace: Some(other.namespace.clone()), ..bed.policy() });
    let annotations = json!({"pangolin.ingress.k8s.io/tunnel-name": "shared"});
    bed.create("app", &annotations, json!({"ingressClassName": "pangolin", "rules": rules(&["app.example.com"])})).await;
    let resource = bed.resource().await;
    assert_eq!(resource.data["spec"]["tunnelRef"], json!({"name": "shared", "namespace": other.namespace}));
}
}

/// The schema changes while the operator runs, and the shape that is set by hand is used without looking.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shape_is_read_again_after_it_changes() {
    let bed = Bed::new(signpost_testkit::sandbox_cluster().await, Kind::Single).await;
    let running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    bed.specified("one target", |spec| spec["target"]["port"] == 80).await;
    bed.cluster.install(&common::crds::crds(Kind::Multi)).await;
    bed.patch("app", json!({"spec": {"rules": [{"host": "app.example.com", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]}})).await;
    bed.specified("several targets", |spec| spec["targets"][0]["port"] == 9000).await;
    running.stop().await;
    let _running = bed.start_with(Policy { dialect: Dialect::Multi, ..bed.policy() });
    bed.patch("app", json!({"spec": {"rules": rules(&["app.example.com"])}})).await;
    bed.specified("the shape that is set", |spec| spec["targets"][0]["port"] == 80).await;
}
