//! Ten thousand objects: lists, pages and watches stay usable in a debug build.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::{
    api::networking::v1::Ingress, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::ApiResource,
    runtime::watcher,
};
use serde_json::json;
use signpost_sandbox::Sandbox;

const MANY: usize = 10_000;

fn ingress(n: usize) -> Ingress {
    serde_json::from_value(json!({
        "metadata": {"name": format!("i{n:05}"), "labels": {"app": "web", "n": n.to_string()}},
        "spec": {"rules": [{"host": format!("h{n}.example.com"), "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}
    }))
    .unwrap()
}

#[tokio::test]
async fn ten_thousand_ingresses_are_listed_paged_and_watched() {
    let sandbox = Sandbox::default();
    let api: Api<Ingress> = Api::default_namespaced(sandbox.client());
    let start = Instant::now();
    for n in 0..MANY {
        api.create(&PostParams::default(), &ingress(n)).await.unwrap();
    }
    eprintln!("create {MANY}: {:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), MANY);
    eprintln!("first list: {:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), MANY);
    eprintln!("second list: {:?}", start.elapsed());
    for config in [watcher::Config::default().page_size(50), watcher::Config::default().streaming_lists()] {
        let start = Instant::now();
        let mut events = pin!(watcher(api.clone(), config));
        let mut seen = 0;
        loop {
            match tokio::time::timeout(Duration::from_mins(1), events.next()).await.unwrap().unwrap().unwrap() {
                watcher::Event::InitApply(_) => seen += 1,
                watcher::Event::InitDone => break,
                _ => {}
            }
        }
        assert_eq!(seen, MANY);
        eprintln!("watcher: {:?}", start.elapsed());
    }
    let start = Instant::now();
    for n in 0..1000 {
        let status = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
        let params = PatchParams::apply("scale").force();
        api.patch_status(&format!("i{n:05}"), &params, &Patch::Apply(status)).await.unwrap();
    }
    eprintln!("1000 status applies: {:?}", start.elapsed());
}

#[tokio::test]
async fn custom_objects_are_written_quickly() {
    let sandbox = Sandbox::default();
    let crds: Api<CustomResourceDefinition> = Api::all(sandbox.client());
    let crd = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}},
                        "x-kubernetes-validations": [{"rule": "self.size < 100000", "message": "too big"}]},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}
    }))
    .unwrap();
    crds.create(&PostParams::default(), &crd).await.unwrap();
    let resource = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    let api: Api<DynamicObject> = Api::default_namespaced_with(sandbox.client(), &resource);
    let start = Instant::now();
    for n in 0..1000 {
        let object = DynamicObject::new(&format!("w{n}"), &resource).data(json!({"spec": {"size": n}}));
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    eprintln!("1000 custom creates: {:?}", start.elapsed());
    let start = Instant::now();
    for n in 0..1000 {
        let status = json!({"apiVersion": "example.com/v1", "kind": "Widget", "status": {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 1}});
        api.patch_status(&format!("w{n}"), &PatchParams::apply("scale").force(), &Patch::Apply(status)).await.unwrap();
    }
    eprintln!("1000 custom status applies: {:?}", start.elapsed());
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1000);
}
