//! The cluster's own work: garbage collection, declarations that come and go, permissions, lagging reads, HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::{
    api::{
        authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
        core::v1::ConfigMap,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::ApiResource,
};
use serde_json::json;
use signpost_sandbox::{DenyRule, Fault, FaultPlan, Sandbox, SandboxOptions};

/// How long an event is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.into());
    object
}

fn owned_by(mut object: ConfigMap, owner: &ConfigMap) -> ConfigMap {
    object
        .owner_references_mut()
        .push(OwnerReference { block_owner_deletion: Some(true), ..owner.owner_ref(&()).unwrap() });
    object
}

async fn names(api: &Api<ConfigMap>) -> Vec<String> {
    api.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect()
}

async fn install_widgets(client: Client) -> ApiResource {
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "red"}}},
                    "status": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}}}
            }]
        }
    }))
    .unwrap();
    let made = Api::<CustomResourceDefinition>::all(client.clone()).create(&PostParams::default(), &crd).await.unwrap();
    let now = Api::<CustomResourceDefinition>::all(client).get(&made.name_any()).await.unwrap();
    let established =
        now.status.unwrap().conditions.unwrap().into_iter().any(|c| c.type_ == "Established" && c.status == "True");
    assert!(established);
    ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    }
}

#[tokio::test]
async fn deleting_an_owner_deletes_what_only_it_owns() {
    let sandbox = Sandbox::default();
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    let one = api.create(&PostParams::default(), &config_map("one")).await.unwrap();
    let two = api.create(&PostParams::default(), &config_map("two")).await.unwrap();
    api.create(&PostParams::default(), &owned_by(config_map("of-one"), &one)).await.unwrap();
    let both = owned_by(owned_by(config_map("of-both"), &one), &two);
    api.create(&PostParams::default(), &both).await.unwrap();
    api.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(names(&api).await, ["of-both", "two"]);
    let left = api.get("of-both").await.unwrap();
    assert_eq!(left.owner_references().iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["two"]);
}

#[tokio::test]
async fn foreground_waits_for_dependents_and_orphan_lets_them_be() {
    let sandbox = Sandbox::default();
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    let owner = api.create(&PostParams::default(), &config_map("owner")).await.unwrap();
    let mut child = owned_by(config_map("child"), &owner);
    child.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    api.create(&PostParams::default(), &child).await.unwrap();
    api.delete("owner", &DeleteParams::foreground()).await.unwrap();
    assert_eq!(names(&api).await, ["child", "owner"], "the owner waits");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("child", &PatchParams::default(), &release).await.unwrap();
    assert_eq!(names(&api).await, Vec::<String>::new());

    let owner = api.create(&PostParams::default(), &config_map("owner")).await.unwrap();
    api.create(&PostParams::default(), &owned_by(config_map("kept"), &owner)).await.unwrap();
    api.delete("owner", &DeleteParams::orphan()).await.unwrap();
    assert_eq!(names(&api).await, ["kept"]);
    assert!(api.get("kept").await.unwrap().owner_references().is_empty());
}

#[tokio::test]
async fn a_declaration_brings_its_objects_and_takes_them_with_it() {
    let sandbox = Sandbox::default();
    let client = sandbox.client();
    let resource = install_widgets(client.clone()).await;
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let widget = |size: i64| DynamicObject::new("w", &resource).data(json!({"spec": {"size": size}}));
    let refused = api.create(&PostParams::default(), &widget(0)).await.unwrap_err();
    assert!(refused.to_string().contains("should be greater than or equal to 1"), "{refused}");
    let made = api.create(&PostParams::default(), &widget(1)).await.unwrap();
    assert_eq!((made.data["spec"]["color"].as_str(), made.metadata.generation), (Some("red"), Some(1)));
    let status = Patch::Merge(json!({"status": {"ok": true}, "spec": {"size": 5}}));
    let patched = api.patch_status("w", &PatchParams::default(), &status).await.unwrap();
    assert_eq!((&patched.data["spec"]["size"], patched.metadata.generation), (&json!(1), Some(1)));

    let mut events = Box::pin(api.watch(&WatchParams::default(), &patched.resource_version().unwrap()).await.unwrap());
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    crds.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Deleted(_)));
    assert!(tokio::time::timeout(PATIENCE, events.next()).await.unwrap().is_none(), "the watch ends");
    assert!(crds.get_opt("widgets.example.com").await.unwrap().is_none());
    assert!(api.list(&ListParams::default()).await.is_err());
}

#[tokio::test]
async fn a_denied_request_is_refused_with_a_message() {
    let deny = vec![DenyRule::new("create", "configmaps")];
    let sandbox = Sandbox::new(SandboxOptions { deny, ..SandboxOptions::default() });
    let client = sandbox.client();
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let refused = api.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    let text = "cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert!(refused.to_string().contains(text), "{refused}");
    assert!(api.list(&ListParams::default()).await.is_ok());
    let may = |verb: &str| {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.into()),
                resource: Some("configmaps".into()),
                namespace: Some("default".into()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        async move { api.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed }
    };
    assert!(!may("create").await);
    assert!(may("list").await);
    sandbox.deny(Vec::new());
    assert!(api.create(&PostParams::default(), &config_map("a")).await.is_ok());
}

#[tokio::test]
async fn a_stale_read_shows_the_past() {
    let sandbox = Sandbox::default();
    let plain: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    plain.create(&PostParams::default(), &config_map("a")).await.unwrap();
    plain.create(&PostParams::default(), &config_map("b")).await.unwrap();
    let lagging = sandbox.client_with(FaultPlan::new(|_, _| Fault::Stale { behind: 1 }));
    let api: Api<ConfigMap> = Api::default_namespaced(lagging);
    assert_eq!(names(&api).await, ["a"]);
    assert!(api.get_opt("b").await.unwrap().is_none());
    assert_eq!(names(&plain).await, ["a", "b"]);
}

#[tokio::test]
async fn a_throttled_request_has_a_retry_after() {
    let sandbox = Sandbox::default();
    sandbox.faults().set(FaultPlan::script([(0, Fault::throttled(3))]));
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    match api.get("a").await.unwrap_err() {
        kube::Error::Api(status) => {
            assert_eq!(status.code, 429);
            assert_eq!(status.details.unwrap().retry_after_seconds, 3);
        }
        other => panic!("expected a status, got {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_would_see_the_same_cluster() {
    let sandbox = Sandbox::default();
    let served = sandbox.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    assert!(served.kubeconfig().contains(&served.url()));
    let client = Client::try_from(kube::Config::new(served.url().parse().unwrap())).unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.36.3");
    let far: Api<ConfigMap> = Api::default_namespaced(client);
    let near: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    let mut events = Box::pin(far.watch(&WatchParams::default(), "0").await.unwrap());
    near.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Added(object) if object.name_any() == "a"));
    assert_eq!(names(&far).await, ["a"]);
}
