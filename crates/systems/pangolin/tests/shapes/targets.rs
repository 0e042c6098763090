//! C35: how a tunnel that ends outside the cluster reaches Services. Crd mode, with both shapes of PangolinResource.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_system_pangolin::{Policy, TargetMode};
use signpost_testkit::on_both;

use crate::KIND;
use crate::common::bed::{Bed, target};

fn services(bed: &Bed) -> Api<Service> {
    Api::namespaced(bed.cluster.client(), &bed.namespace)
}

async fn create(bed: &Bed, name: &str, spec: &Value) -> Service {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    services(bed).create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap()
}

fn cluster_ip(service: &Service) -> String {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone()).unwrap()
}

on_both! {
async fn c35_a_target_is_the_cluster_ip_of_its_service_and_follows_it(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let address = cluster_ip(&services(&bed).get("app").await.unwrap());
    let _running = bed.start_with(Policy { target_mode: TargetMode::ClusterIp, ..bed.policy() });
    bed.expose("app", &["app.example.com"]).await;
    bed.specified("the cluster IP", |spec| target(spec)["ip"] == address.as_str() && target(spec)["port"] == 80).await;
    // A Service that is created again has another address. While it is headless, the last good target stays.
    services(&bed).delete("app", &DeleteParams::default()).await.unwrap();
    create(&bed, "app", &json!({"clusterIP": "None", "ports": [{"port": 80}]})).await;
    let note = bed.event("Warning", "BackendNotSupported").await;
    let name = format!("Service {}/app is headless and has no cluster IP", bed.namespace);
    assert!(note.starts_with(&name) && note.contains("PIC_TARGET_MODE=cluster-ip"), "{note}");
    assert_eq!(target(&bed.resource().await.data["spec"])["ip"], address.as_str());
    services(&bed).delete("app", &DeleteParams::default()).await.unwrap();
    let other = format!("10.96.{}.77", 1 + u8::from(address.starts_with("10.96.1.")));
    create(&bed, "app", &json!({"clusterIP": other, "ports": [{"port": 80}]})).await;
    bed.specified("the new address", |spec| target(spec)["ip"] == other.as_str()).await;
}

async fn c35_a_target_is_the_address_of_a_load_balancer_and_follows_it(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start_with(Policy { target_mode: TargetMode::LoadBalancer, ..bed.policy() });
    bed.expose("app", &["app.example.com"]).await;
    let note = bed.event("Warning", "BackendNotSupported").await;
    assert!(note.contains("/app is not of type LoadBalancer"), "{note}");
    assert!(bed.hosts().await.is_empty());
    services(&bed).delete("app", &DeleteParams::default()).await.unwrap();
    create(&bed, "app", &json!({"type": "LoadBalancer", "ports": [{"port": 80}]})).await;
    for (addresses, expected) in [
        (json!([{"ip": "2001:db8::7"}, {"ip": "192.0.2.7"}]), "192.0.2.7"),
        (json!([{"ip": "192.0.2.8"}]), "192.0.2.8"),
        (json!([{"ip": "2001:db8::8"}]), "2001:db8::8"),
        (json!([{"hostname": "lb.example.net"}]), "lb.example.net"),
    ] {
        let status = json!({"status": {"loadBalancer": {"ingress": addresses}}});
        services(&bed).patch_status("app", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        bed.specified(expected, |spec| target(spec)["ip"] == expected).await;
    }
}
}
