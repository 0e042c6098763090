//! The examples as they are shipped: each team applies its part with the role of the examples, on the real API server, and the routes are served.

use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use signpost_testkit::{on_both, real_cluster};

use crate::rig::Rig;

/// The objects of one file of `examples/router`.
fn example(file: &str) -> Vec<Value> {
    let path = format!("{}/../../../examples/router/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The objects of one file of `tests/manifests`.
fn manifest(file: &str) -> Vec<Value> {
    let path = format!("{}/tests/manifests/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn resource_of(object: &Value) -> ApiResource {
    let text = |field: &str| object[field].as_str().unwrap();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let kind = text("kind");
    let plural = match kind {
        "ClusterIdentity" => "clusteridentities".to_owned(),
        "DNSPolicy" => "dnspolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural)
}

/// Applies an object as this client; returns the HTTP status of the answer.
async fn apply(client: &Client, object: &Value, subresource: &str) -> u16 {
    let resource = resource_of(object);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let (name, params) = (object["metadata"]["name"].as_str().unwrap(), PatchParams::apply("team").force());
    let answer = match subresource {
        "" => api.patch(name, &params, &Patch::Apply(object)).await,
        _ => api.patch_status(name, &params, &Patch::Apply(object)).await,
    };
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Applies all objects that the team owns; each is accepted.
async fn apply_all(client: &Client, objects: impl Iterator<Item = Value>) {
    for object in objects {
        assert_eq!(apply(client, &object, "").await, 200, "{object}");
    }
}

/// Whether this client may read the Gateways of a namespace.
async fn may_read_gateways(client: &Client, namespace: &str) -> bool {
    let object = json!({ "apiVersion": "routing.router.io/v1alpha1", "kind": "Gateway" });
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource_of(&object));
    api.list(&kube::api::ListParams::default()).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_team_can_do_its_part_of_the_examples_and_not_that_of_another() {
    // The sandbox has no authorization.
    let Some(cluster) = real_cluster().await else { return };
    let mut rig = Rig::new(cluster).await;
    rig.stop().await;
    rig.config.gateway_namespace = "istio-system".to_owned();
    rig.start().await;
    for namespace in ["istio-system", "frontend", "admin", "myapp", "identity"] {
        rig.put("Namespace", "", namespace, json!({})).await;
    }
    apply_all(&rig.client, example("roles.yaml").into_iter()).await;
    let platform = rig.cluster.client_as("someone", &["platform-team", "system:authenticated"]).await;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:myapp", "system:authenticated"];
    let team = rig.cluster.client_as("system:serviceaccount:myapp:myapp", &groups).await;
    let stranger = rig.cluster.client_as("stranger", &["system:authenticated"]).await;

    // The platform team: identity, configuration and Gateways. The Service comes with Istio.
    let is = |kind: &'static str| move |object: &Value| object["kind"] == kind;
    let of_platform =
        || example("cluster.yaml").into_iter().chain(example("gateways.yaml").into_iter().filter(is("Gateway")));
    apply_all(&platform, of_platform()).await;
    apply_all(&rig.client, example("gateways.yaml").into_iter().filter(is("Service"))).await;
    let address = json!({ "loadBalancer": { "ingress": [{ "ip": "10.1.2.3" }] } });
    rig.merge_status("Service", "istio-system", "aks-istio-ingressgateway-internal", address).await;

    // The application team: the policies and routes of its own namespace.
    let all = || example("policies.yaml").into_iter().chain(example("routes.yaml"));
    let of_team = |object: &Value| object["metadata"]["namespace"] == "myapp" && object["kind"] != "VirtualService";
    apply_all(&team, all().filter(of_team)).await;
    assert!(may_read_gateways(&team, "istio-system").await, "it refers to them");

    // Nobody does what another team does.
    for object in of_platform() {
        assert_eq!(apply(&team, &object, "").await, 403, "{object}");
    }
    for object in all().filter(|object| object["kind"] != "VirtualService") {
        assert_eq!(apply(&platform, &object, "").await, 403, "{object}");
        assert_eq!(apply(&stranger, &object, "").await, 403, "{object}");
        if !of_team(&object) {
            assert_eq!(apply(&team, &object, "").await, 403, "{object}");
        }
    }
    assert!(!may_read_gateways(&stranger, "istio-system").await && !may_read_gateways(&team, "identity").await);
    let route = example("routes.yaml").remove(0);
    let mut status = route.clone();
    status["status"] = json!({ "phase": "Active" });
    assert_eq!(apply(&team, &status, "status").await, 403, "a status is the operator's");

    // What the examples promise in their comments.
    let status = rig.until_condition("ServiceRoute", "myapp", "api-route", "Ready", "ReconciliationSucceeded").await;
    assert_eq!(status["hostname"], "api-ns-p-prod-myapp.aks.vecp.vczc.nl");
    assert_eq!(status["target"], "vec-weu-p-aks01-weu-internal.aks.vecp.vczc.nl");
    let status = rig.until_condition("ServiceRoute", "myapp", "admin-route", "Ready", "ReconciliationSucceeded").await;
    assert_eq!(status["hostname"], "admin-ns-p-prod-myapp.aks.vecp.vczc.nl");
    for gateway in ["default-gateway", "internal-gateway"] {
        let status = rig.until_condition("Gateway", "istio-system", gateway, "DNSReady", "DNSEndpointsCreated").await;
        assert_eq!(status["loadBalancerIP"], "10.1.2.3", "both have the name of one load balancer");
        rig.until_condition("Gateway", "istio-system", gateway, "Ready", "GatewayCreated").await;
    }
}

/// Applies a file as it is, in the namespaces that it names; the one route of it is published and served.
async fn is_accepted_and_served(rig: &mut Rig, file: &str, wanted: &Value) {
    rig.stop().await;
    "istio-system".clone_into(&mut rig.config.gateway_namespace);
    rig.start().await;
    for namespace in ["istio-system", "myapp"] {
        rig.put("Namespace", "", namespace, json!({})).await;
    }
    let objects = manifest(file);
    let named = |kind: &str| {
        let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
        object["metadata"]["name"].as_str().unwrap().to_owned()
    };
    apply_all(&rig.client, objects.iter().cloned()).await;
    let ready = |kind: &'static str, namespace: &'static str, reason: &'static str| {
        let (rig, name) = (&*rig, named(kind));
        async move { rig.until_condition(kind, namespace, &name, "Ready", reason).await }
    };
    ready("ClusterIdentity", "", "ValidationSucceeded").await;
    ready("DNSConfiguration", "", "ConfigurationValid").await;
    ready("DNSPolicy", "myapp", "PolicyActive").await;
    ready("Gateway", "istio-system", "GatewayCreated").await;
    let status = ready("ServiceRoute", "myapp", "ReconciliationSucceeded").await;
    assert_eq!(
        json!({ "hostname": status["hostname"], "target": status["target"], "dnsEndpoint": status["dnsEndpoint"] }),
        *wanted
    );
    let istio = rig.get("IstioGateway", "istio-system", &named("Gateway")).await.unwrap();
    assert_eq!(istio["spec"]["servers"][0]["hosts"], json!([wanted["hostname"]]));
}

/// What the comments of the examples promise: namespace, route, host and the controllers that publish it.
const PROMISED: [(&str, &str, &str, &[&str]); 4] = [
    ("myapp", "api-route", "api-ns-p-prod-myapp", &["frc", "neu", "weu"]),
    ("myapp", "admin-route", "admin-ns-p-prod-myapp", &["frc", "neu", "weu"]),
    ("identity", "auth-route", "auth-ns-p-dev-identity", &["frc", "weu"]),
    ("identity", "pep-route", "pep-ns-p-dev-identity", &["frc", "weu"]),
];

on_both! {
    async fn every_example_of_an_identity_is_used_as_it_is(cluster) {
        let rig = Rig::new(cluster).await;
        for file in ["identities/development.yaml", "identities/production.yaml", "cluster.yaml"] {
            apply_all(&rig.client, example(file).into_iter()).await;
            rig.until_condition("ClusterIdentity", "", "cluster-identity", "Ready", "ValidationSucceeded").await;
        }
    }

    async fn every_example_is_published_as_its_comments_promise(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        "istio-system".clone_into(&mut rig.config.gateway_namespace);
        rig.start().await;
        for namespace in ["istio-system", "frontend", "admin", "myapp", "identity"] {
            rig.put("Namespace", "", namespace, json!({})).await;
        }
        let files = ["cluster.yaml", "gateways.yaml", "policies.yaml", "routes.yaml"];
        let objects = files.into_iter().flat_map(example);
        apply_all(&rig.client, objects.filter(|object| object["kind"] != "VirtualService")).await;
        for (namespace, policy, selected) in [
            ("frontend", "frontend-dns", json!(["external-dns-weu", "external-dns-frc"])),
            ("admin", "admin-dns", json!(["external-dns-weu", "external-dns-neu", "external-dns-frc"])),
            ("myapp", "migration-dns", json!(["external-dns-weu", "external-dns-neu", "external-dns-frc"])),
            ("identity", "identity-dns", json!(["external-dns-weu", "external-dns-frc"])),
        ] {
            let status = rig.until_condition("DNSPolicy", namespace, policy, "Ready", "PolicyActive").await;
            assert_eq!((&status["active"], &status["activeControllers"]), (&json!(true), &selected), "{policy}");
        }
        for (namespace, route, host, regions) in PROMISED {
            let status = rig.until_condition("ServiceRoute", namespace, route, "Ready", "ReconciliationSucceeded").await;
            assert_eq!(status["hostname"], format!("{host}.aks.vecp.vczc.nl"));
            assert_eq!(status["target"], "vec-weu-p-aks01-weu-internal.aks.vecp.vczc.nl");
            let endpoints = rig.endpoints(namespace).await;
            let of_route = endpoints.keys().filter_map(|name| name.strip_prefix(&format!("{route}-external-dns-")));
            assert_eq!(of_route.collect::<Vec<_>>(), regions, "{route}");
        }
    }

    async fn manifests_with_every_field_are_accepted_unchanged_and_served(cluster) {
        let mut rig = Rig::new(cluster).await;
        is_accepted_and_served(&mut rig, "whole.yaml", &json!({
            "hostname": "api-ns-d-dev-myapp.aks.vecd.vczc.nl",
            "target": "vec-weu-d-aks01-weu-internal.aks.vecd.vczc.nl",
            "dnsEndpoint": "api-route-external-dns-weu",
        })).await;
    }

    async fn samples_without_optional_fields_are_accepted_unchanged_and_served(cluster) {
        let mut rig = Rig::new(cluster).await;
        is_accepted_and_served(&mut rig, "samples.yaml", &json!({
            "hostname": "web-ns-t-test-shop.example.com",
            "target": "aks02-neu-gateway.example.com",
            "dnsEndpoint": "serviceroute-sample-external-dns-neu",
        })).await;
    }
}
