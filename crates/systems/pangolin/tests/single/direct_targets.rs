//! C35 in direct mode: targets are addresses of Services, for a newt that runs outside the cluster. The clock is paused.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_sandbox::edge::Answer;
use signpost_system_pangolin::{Policy, TargetMode};

use super::direct::policy;
use super::direct_turns::{Quiet, seconds};

impl Quiet {
    async fn reaching(target_mode: TargetMode) -> Self {
        Self::with(|bed| Policy { target_mode, ..policy(bed) }).await
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.bed.cluster.client(), &self.bed.namespace)
    }

    async fn service(&self, name: &str, spec: &Value) {
        let service = json!({"metadata": {"name": name}, "spec": spec});
        self.services().create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    }

    async fn balanced(&self, addresses: Value) {
        let status = json!({"status": {"loadBalancer": {"ingress": addresses}}});
        self.services().patch_status("app", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        seconds(5).await;
    }

    fn assert_target(&self, expected: &str) {
        assert_eq!(self.server.state().answer("app.ns.test", "/"), Answer::Served(vec![expected.to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn c35_the_cluster_ip_of_a_service_is_its_target() {
    let quiet = Quiet::reaching(TargetMode::ClusterIp).await;
    let app = quiet.services().get("app").await.unwrap();
    let address = app.spec.and_then(|spec| spec.cluster_ip).unwrap();
    quiet.create("app", "app", 80).await;
    seconds(20).await;
    quiet.assert_target(&format!("{address}:80"));
    // Its health check is of the same address.
    quiet.bed.annotate("app", "healthcheck-enabled", Some("true")).await;
    seconds(20).await;
    let checked: Vec<Value> =
        quiet.server.state().targets.values().map(|target| target.field("hcHostname").clone()).collect();
    assert_eq!(checked, [json!(address)]);
    quiet.bed.annotate("app", "healthcheck-enabled", None).await;
    seconds(20).await;
    // Headless: refused, and the last good target stays. Then it has another address, which costs one call.
    quiet.services().delete("app", &DeleteParams::default()).await.unwrap();
    quiet.service("app", &json!({"clusterIP": "None", "ports": [{"port": 80}]})).await;
    seconds(20).await;
    let note = quiet.bed.event("Warning", "BackendNotSupported").await;
    assert!(note.contains("/app is headless and has no cluster IP, which PIC_TARGET_MODE=cluster-ip needs"), "{note}");
    quiet.assert_target(&format!("{address}:80"));
    quiet.services().delete("app", &DeleteParams::default()).await.unwrap();
    quiet.server.calls();
    quiet.service("app", &json!({"clusterIP": "10.96.200.7", "ports": [{"port": 80}]})).await;
    seconds(5).await;
    quiet.assert_target("10.96.200.7:80");
    let calls: Vec<String> = quiet.server.calls().into_iter().filter(|call| call != "GET /v1").collect();
    assert!(calls.len() == 1 && calls[0].starts_with("POST /v1/target/"), "{calls:?}");
    // The name that an ExternalName stands for is known outside the cluster too.
    quiet.service("outside", &json!({"type": "ExternalName", "externalName": "db.example.net"})).await;
    quiet.bed.patch("app", json!({"spec": {"rules": Quiet::to("outside", 443)}})).await;
    seconds(5).await;
    quiet.assert_target("db.example.net:443");
}

#[tokio::test(start_paused = true)]
async fn c35_the_address_of_a_load_balancer_is_the_target_of_its_service() {
    let quiet = Quiet::reaching(TargetMode::LoadBalancer).await;
    quiet.create("app", "app", 80).await;
    seconds(20).await;
    let note = quiet.bed.event("Warning", "BackendNotSupported").await;
    assert!(note.contains("/app is not of type LoadBalancer"), "{note}");
    quiet.services().delete("app", &DeleteParams::default()).await.unwrap();
    quiet.service("app", &json!({"type": "LoadBalancer", "ports": [{"port": 80}]})).await;
    seconds(20).await;
    let events = quiet.bed.events().await;
    let waits = |event: &(String, String, String)| event.2.contains("/app has no address of a load balancer yet");
    assert!(events.iter().any(waits), "{events:?}");
    assert_eq!(quiet.server.state().answer("app.ns.test", "/"), Answer::NoRouter);
    quiet.balanced(json!([{"ip": "2001:db8::7"}, {"ip": "192.0.2.7"}])).await;
    quiet.assert_target("192.0.2.7:80");
    quiet.balanced(json!([{"ip": "2001:db8::8"}])).await;
    quiet.assert_target("2001:db8::8:80");
    quiet.balanced(json!([{"hostname": "lb.example.net"}])).await;
    quiet.assert_target("lb.example.net:80");
    // An address that is lost for a while keeps its host as it is.
    quiet.balanced(json!([])).await;
    quiet.assert_target("lb.example.net:80");
}

/// A site that is not newt puts the address into a URL without brackets: the host is refused, and its neighbour is exposed.
#[tokio::test(start_paused = true)]
async fn c35_an_ipv6_address_at_a_site_that_cannot_reach_it_is_refused() {
    let quiet = Quiet::reaching(TargetMode::LoadBalancer).await;
    quiet.services().delete("app", &DeleteParams::default()).await.unwrap();
    quiet.service("app", &json!({"type": "LoadBalancer", "ports": [{"port": 80}]})).await;
    quiet.balanced(json!([{"ip": "2001:db8::8"}])).await;
    quiet.create("app", "app", 80).await;
    quiet.bed.annotate("app", "tunnel-name", Some("home")).await;
    quiet.service("other", &json!({"type": "ExternalName", "externalName": "other.example.net"})).await;
    let rules =
        json!([{"host": "other.ns.test", "http": {"paths": [crate::common::bed::path("/", "Prefix", "other", 80)]}}]);
    quiet.bed.create("other", &json!({}), json!({"ingressClassName": "pangolin", "rules": rules})).await;
    seconds(60).await;
    let note = quiet.bed.event("Warning", "ProviderRejected").await;
    assert!(note.contains("2001:db8::8:80"), "{note}");
    let served = Answer::Served(vec!["other.example.net:80".to_owned()]);
    assert_eq!(quiet.server.state().answer("other.ns.test", "/"), served);
}
