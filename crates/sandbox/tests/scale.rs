//! Ten thousand objects: lists, pages and watches show each of them once, and statuses reach those they are for.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{collections::BTreeSet, pin::pin, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    api::networking::v1::Ingress, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
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
    for n in 0..MANY {
        api.create(&PostParams::default(), &ingress(n)).await.unwrap();
    }
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), MANY);
    sandbox.take_log();
    let lists = || sandbox.request_counts().remove(&("list".into(), "ingresses".into())).unwrap_or(0);
    for (config, pages) in [
        (watcher::Config::default().page_size(50), MANY / 50),
        // Whole, by the watch itself.
        (watcher::Config::default().streaming_lists(), 0),
    ] {
        let before = lists();
        let mut events = pin!(watcher(api.clone(), config));
        let mut seen = BTreeSet::new();
        loop {
            match tokio::time::timeout(Duration::from_mins(1), events.next()).await.unwrap().unwrap().unwrap() {
                watcher::Event::InitApply(object) => assert!(seen.insert(object.name_any()), "each comes once"),
                watcher::Event::InitDone => break,
                _ => {}
            }
        }
        assert_eq!(seen.len(), MANY);
        assert_eq!(lists() - before, pages);
    }
    for n in 0..1000 {
        let status = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
        let params = PatchParams::apply("scale").force();
        api.patch_status(&format!("i{n:05}"), &params, &Patch::Apply(status)).await.unwrap();
    }
    let all = api.list(&ListParams::default()).await.unwrap();
    let address = |object: &Ingress| {
        object.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first().map(|entry| entry.ip.clone())
    };
    let with_status = all.iter().filter(|object| address(object).is_some()).count();
    assert_eq!((all.items.len(), with_status), (MANY, 1000));
}

#[tokio::test]
async fn a_thousand_custom_objects_each_get_their_own_status() {
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
    for n in 0..1000 {
        let object = DynamicObject::new(&format!("w{n}"), &resource).data(json!({"spec": {"size": n}}));
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    for n in 0..1000 {
        let status = json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "of": n}});
        api.patch_status(&format!("w{n}"), &PatchParams::apply("scale").force(), &Patch::Apply(status)).await.unwrap();
    }
    let all = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), 1000);
    for object in all {
        assert_eq!(object.data["status"]["of"], object.data["spec"]["size"], "{}", object.name_any());
        assert_eq!(object.metadata.generation, Some(1), "a status is not a change of the spec");
    }
}
