//! Crd mode with the shape that has several targets: everything that holds for both shapes (`tests/shapes`), and what this one alone has.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../shapes/crd.rs"]
mod crd;
#[path = "../shapes/requirements.rs"]
mod requirements;
#[path = "../shapes/targets.rs"]
mod targets;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use signpost_system_pangolin::{Dialect, Policy};
use signpost_testkit::on_both;

use common::bed::{Bed, path, rules};
use common::crds::Kind;

/// The shape of PangolinResource in this binary. The tests of a binary share one API server, and so one CRD.
pub(crate) const KIND: Kind = Kind::Multi;

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

async fn an_exposure_with_several_targets_from_creation_to_deletion(cluster) {
    let bed = Bed::new(cluster, Kind::Multi).await;
    bed.tunnel("edge", Some("Ready")).await;
    bed.tunnel("slow", Some("Waiting")).await;
    let running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    // What others change or delete is repaired.
    let resources = bed.dynamic("PangolinResource");
    let drift = json!({"spec": {"targets": [{"ip": "elsewhere", "port": 1}]}});
    resources.patch(&name, &PatchParams::default(), &Patch::Merge(&drift)).await.unwrap();
    bed.specified("the target is corrected", |spec| spec["targets"][0]["port"] == 80 && spec["targets"][1].is_null()).await;
    resources.delete(&name, &DeleteParams::default()).await.unwrap();
    bed.specified("it is created again", |spec| spec["targets"][0]["port"] == 80).await;
    // Access, tunnel and host follow their annotations; what cannot be used changes nothing.
    bed.annotate("app", "block-access", Some("true")).await;
    bed.specified("access is blocked", |spec| spec["httpConfig"]["blockAccess"] == true).await;
    bed.annotate("app", "block-access", None).await;
    bed.specified("access is open", |spec| spec["httpConfig"]["blockAccess"] == false).await;
    for (tunnel, kind, reason) in [("absent", "Warning", "TunnelNotFound"), ("slow", "Normal", "TunnelNotReady")] {
        bed.annotate("app", "tunnel-name", Some(tunnel)).await;
        bed.event(kind, reason).await;
        assert_eq!(bed.resource().await.data["spec"]["tunnelRef"]["name"], "default", "{reason}");
    }
    bed.annotate("app", "tunnel-name", Some("edge")).await;
    bed.specified("the other tunnel", |spec| spec["tunnelRef"]["name"] == "edge").await;
    let moved = json!({"pangolin.ingress.k8s.io/domain-name": "example.net", "pangolin.ingress.k8s.io/subdomain": "shop"});
    bed.patch("app", json!({"metadata": {"annotations": moved}})).await;
    bed.exposes(&["shop.example.net"]).await;
    let back = json!({"pangolin.ingress.k8s.io/domain-name": null, "pangolin.ingress.k8s.io/subdomain": null});
    bed.patch("app", json!({"metadata": {"annotations": back}})).await;
    bed.exposes(&["app.example.com"]).await;
    // The last good target stays while a Service is missing.
    let late = json!([{"host": "app.example.com", "http": {"paths": [path("/", "Prefix", "late", 80)]}}]);
    bed.patch("app", json!({"spec": {"rules": late}})).await;
    bed.event("Warning", "BackendNotFound").await;
    let served = |spec: &serde_json::Value, service: &str| spec["targets"][0]["ip"].as_str().is_some_and(|ip| ip.starts_with(service));
    assert!(served(&bed.resource().await.data["spec"], "app."));
    bed.service("late", &json!([{"port": 80}])).await;
    bed.specified("the Service that appeared", |spec| served(spec, "late.")).await;
    // Hosts, the switch, the class, and a deletion while nobody looks.
    bed.patch("app", json!({"spec": {"rules": rules(&["app.example.com", "more.example.com"])}})).await;
    bed.exposes(&["app.example.com", "more.example.com"]).await;
    bed.annotate("app", "enabled", Some("false")).await;
    bed.exposes(&[]).await;
    bed.annotate("app", "enabled", None).await;
    bed.exposes(&["app.example.com", "more.example.com"]).await;
    bed.patch("app", json!({"spec": {"ingressClassName": "nginx"}})).await;
    bed.exposes(&[]).await;
    bed.patch("app", json!({"spec": {"ingressClassName": "pangolin"}})).await;
    bed.exposes(&["app.example.com", "more.example.com"]).await;
    running.crash().await;
    bed.delete("app").await;
    let _running = bed.start();
    bed.exposes(&[]).await;
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
    bed.expose("other", &["other.example.com"]).await;
    bed.exposes(&["app.example.com", "other.example.com"]).await;
    bed.cluster.install(&common::crds::crds(Kind::Multi)).await;
    bed.patch("app", json!({"spec": {"rules": [{"host": "app.example.com", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]}})).await;
    let all = async |what: &str, fits: &dyn Fn(&serde_json::Value) -> bool| {
        signpost_testkit::eventually(what, common::bed::PATIENCE, || async {
            let specs: Vec<_> = bed.resources().await.iter().map(|one| one.data["spec"].clone()).collect();
            if specs.len() == 2 && specs.iter().all(fits) { Ok(()) } else { Err(specs) }
        })
        .await;
    };
    // The one that was edited reads the new shape first; the other one is not forgotten.
    all("several targets", &|spec| spec["targets"][0]["port"].is_number()).await;
    bed.delete("other").await;
    bed.specified("several targets", |spec| spec["targets"][0]["port"] == 9000).await;
    running.stop().await;
    let _running = bed.start_with(Policy { dialect: Dialect::Multi, ..bed.policy() });
    bed.patch("app", json!({"spec": {"rules": rules(&["app.example.com"])}})).await;
    bed.specified("the shape that is set", |spec| spec["targets"][0]["port"] == 80).await;
}
