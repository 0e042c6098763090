//! The name of a gateway: every address of its load balancer, by the right record type.

use serde_json::json;
use signpost_testkit::{Cluster, eventually, on_both};

use crate::rig::{EDNS, PATIENCE, Rig, condition};

const NAME: &str = "gateway-controller-istio-internal-internal-external-dns-weu";
const HOST: &str = "aks01-weu-internal.example.com";

impl Rig {
    /// One controller, and the address of a load balancer that is published.
    async fn with_address(cluster: Cluster) -> Self {
        let rig = Self::new(cluster).await;
        rig.publish_address().await;
        rig
    }

    /// The same, and external-dns has read it.
    async fn with_read_address(cluster: Cluster) -> Self {
        let rig = Self::with_address(cluster).await;
        rig.observe(NAME).await;
        rig
    }

    /// The same, with a change of the record type that takes longer than the test.
    async fn with_slow_changes(cluster: Cluster) -> Self {
        let mut rig = Self::new(cluster).await;
        rig.stop().await;
        rig.config.type_change_after = PATIENCE;
        rig.start().await;
        rig.publish_address().await;
        rig.observe(NAME).await;
        rig
    }

    async fn publish_address(&self) {
        self.basics(&["weu"]).await;
        self.until_records(&format!("{HOST} A 10.123.45.67")).await;
    }

    /// A load balancer with a host name, by its label `istio`.
    async fn named_balancer(&self, namespace: &str, name: &str, label: &str) {
        let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 443 }] });
        let body = json!({ "metadata": { "labels": { "istio": label } }, "spec": spec });
        self.put("Service", namespace, name, body).await;
        let status = json!({ "loadBalancer": { "ingress": [{ "hostname": "lb.example.net" }] } });
        self.merge_status("Service", namespace, name, status).await;
    }

    async fn until_records(&self, records: &str) {
        self.until_endpoints(&self.infra, &[(NAME, records)]).await;
    }

    /// As the powerdns system does when it has published the DNSEndpoint; returns the generation.
    async fn report_as_published(&self) -> i64 {
        let endpoint = self.get("DNSEndpoint", &self.infra, NAME).await.unwrap();
        let generation = endpoint["metadata"]["generation"].as_i64().unwrap();
        let status = json!({ "apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint", "metadata": { "name": NAME },
            "status": { "observedGeneration": generation } });
        let params = kube::api::PatchParams::apply("signpost").force();
        let api = self.api("DNSEndpoint", &self.infra);
        api.patch_status(NAME, &params, &kube::api::Patch::Apply(&status)).await.unwrap();
        generation
    }

    /// As external-dns does when it has read a DNSEndpoint.
    async fn observe(&self, name: &str) {
        let endpoint = self.get("DNSEndpoint", &self.infra, name).await.unwrap();
        let status = json!({ "observedGeneration": endpoint["metadata"]["generation"] });
        self.merge_status("DNSEndpoint", &self.infra, name, status).await;
    }
}

on_both! {
    async fn an_address_is_published_for_every_controller_with_both_selectors(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        let records = format!("{HOST} A 10.123.45.67");
        rig.until_endpoints(&rig.infra, &[
            ("gateway-controller-istio-internal-internal-external-dns-neu", &records), (NAME, &records),
        ]).await;
        let endpoint = rig.get("DNSEndpoint", &rig.infra, NAME).await.unwrap();
        assert_eq!(endpoint["metadata"]["labels"], json!({
            "app.kubernetes.io/managed-by": "service-router-operator", "router.io/controller": "external-dns-weu",
            "router.io/istio-controller": "istio-internal", "router.io/region": "weu",
            "router.io/resource-type": "gateway-service", "router.io/target-postfix": "internal",
        }));
        assert_eq!(endpoint["metadata"]["annotations"][EDNS], "external-dns-weu");
        assert_eq!(endpoint["metadata"]["ownerReferences"][0]["kind"], "Service");
        assert_eq!(endpoint["spec"]["endpoints"][0]["recordTTL"], 300);
    }

    async fn changed_and_several_addresses_of_both_families_are_published(cluster) {
        let rig = Rig::with_address(cluster).await;
        rig.balancer("internal", json!([{ "ip": "10.0.0.2" }, { "ip": "10.0.0.1" }, { "ip": "2001:db8::1" }])).await;
        rig.until_records(&format!("{HOST} A 10.0.0.1 10.0.0.2; {HOST} AAAA 2001:db8::1")).await;
        rig.balancer("internal", json!([{ "ip": "2001:db8::2" }])).await;
        rig.until_records(&format!("{HOST} AAAA 2001:db8::2")).await;
        let many: Vec<_> = (0..100).map(|n| json!({ "ip": format!("10.0.1.{n}") })).collect();
        rig.balancer("internal", json!(many)).await;
        eventually("a hundred addresses", PATIENCE, || async {
            let endpoint = rig.get("DNSEndpoint", &rig.infra, NAME).await.unwrap();
            let count = endpoint["spec"]["endpoints"][0]["targets"].as_array().map(Vec::len);
            if count == Some(100) { Ok(()) } else { Err(count) }
        }).await;
        assert!(rig.deletions().is_empty());
    }

    async fn an_address_becomes_a_host_name_in_two_steps(cluster) {
        let rig = Rig::with_read_address(cluster).await;
        rig.balancer("internal", json!([{ "hostname": "lb.example.net" }])).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "RecordTypeChanging").await;
        rig.until_records("").await;
        rig.observe(NAME).await;
        rig.until_records(&format!("{HOST} CNAME lb.example.net")).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        rig.observe(NAME).await;
        rig.balancer("internal", json!([{ "ip": "10.0.0.5" }])).await;
        rig.until_records("").await;
        rig.observe(NAME).await;
        rig.until_records(&format!("{HOST} A 10.0.0.5")).await;
    }

    async fn the_second_step_of_a_type_change_waits_for_the_deletion(cluster) {
        let rig = Rig::with_slow_changes(cluster).await;
        rig.balancer("internal", json!([{ "hostname": "lb.example.net" }])).await;
        rig.until_records("").await;
        // external-dns has read it. Whether the address is deleted on the name server, nobody knows yet.
        rig.observe(NAME).await;
        rig.settled().await;
        rig.until_records("").await;
        let status = rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "RecordTypeChanging").await;
        assert!(condition(&status, "DNSReady")["message"].to_string().contains("external-dns-weu"), "{status}");
        // The first type needs no pause.
        rig.balancer("internal", json!([{ "ip": "10.0.0.6" }])).await;
        rig.until_records(&format!("{HOST} A 10.0.0.6")).await;
    }

    async fn a_restart_remembers_the_record_type_of_a_deleted_load_balancer(cluster) {
        let mut rig = Rig::with_slow_changes(cluster).await;
        eventually("the type is reported", PATIENCE, || async {
            let status = rig.get("Gateway", &rig.infra, "gw").await.unwrap()["status"].clone();
            if status["recordType"] == "A" { Ok(()) } else { Err(status) }
        }).await;
        rig.stop().await;
        rig.delete("Service", &rig.infra, "istio-internal").await;
        let _ = rig.api("DNSEndpoint", &rig.infra).delete(NAME, &kube::api::DeleteParams::default()).await;
        rig.until_endpoints(&rig.infra, &[]).await;
        rig.balancer("internal", json!([{ "hostname": "lb.example.net" }])).await;
        rig.start().await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "RecordTypeChanging").await;
        rig.settled().await;
        assert!(rig.endpoints(&rig.infra).await.is_empty(), "external-dns may still have the address");
    }

    async fn a_name_that_this_operator_publishes_changes_its_type_in_one_step(cluster) {
        let rig = Rig::with_address(cluster).await;
        let generation = rig.report_as_published().await;
        rig.balancer("internal", json!([{ "hostname": "lb.example.net" }])).await;
        rig.until_records(&format!("{HOST} CNAME lb.example.net")).await;
        let endpoint = rig.get("DNSEndpoint", &rig.infra, NAME).await.unwrap();
        assert_eq!(endpoint["metadata"]["generation"], generation + 1, "it was never empty");
    }

    async fn a_name_that_is_left_to_external_dns_again_changes_its_type_in_two_steps(cluster) {
        let rig = Rig::with_address(cluster).await;
        rig.report_as_published().await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        // As docs/external-dns.md has it, after the powerdns system is switched off.
        rig.merge_status("DNSEndpoint", &rig.infra, NAME, json!({ "observedGeneration": null })).await;
        // The operator has seen that: it reports what happened after it.
        rig.read_route("api-route-external-dns-weu").await;
        rig.balancer("internal", json!([{ "hostname": "lb.example.net" }])).await;
        rig.until_records(&format!("{HOST} CNAME lb.example.net")).await;
        assert_eq!(rig.one_step_changes(), [""; 0]);
    }

    async fn a_load_balancer_that_moves_and_gets_a_host_name_takes_two_steps(cluster) {
        let rig = Rig::with_read_address(cluster).await;
        let mesh = rig.cluster.namespace("mesh").await;
        rig.named_balancer(&mesh, "ingress", "istio-internal").await;
        rig.merge("Service", &rig.infra, "istio-internal", json!({ "spec": { "type": "ClusterIP" } })).await;
        rig.until_records("").await;
        assert!(rig.endpoints(&mesh).await.is_empty(), "external-dns may still have the address");
        rig.observe(NAME).await;
        rig.until_endpoints(&mesh, &[(NAME, &format!("{HOST} CNAME lb.example.net"))]).await;
        rig.until_endpoints(&rig.infra, &[]).await;
    }

    async fn entrances_that_are_left_out_are_reported_and_the_others_are_published(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let many: Vec<_> = (0..300).map(|n| json!({ "ip": format!("10.0.{}.{}", n / 250, n % 250 + 1) })).collect();
        rig.balancer("internal", json!(many)).await;
        let status = rig.until_refused("Gateway", &rig.infra, "gw", "Notice", "AddressesLeftOut").await;
        assert!(condition(&status, "Notice")["message"].to_string().contains("44 are beyond the limit"), "{status}");
        assert_eq!(condition(&status, "DNSReady")["reason"], "DNSEndpointsCreated");
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn another_controller_with_a_host_name_takes_over_in_two_steps(cluster) {
        let rig = Rig::with_read_address(cluster).await;
        rig.named_balancer(&rig.infra, "another", "another").await;
        let spec = json!({ "controller": "another", "credentialName": "cert", "targetPostfix": "internal" });
        rig.put("Gateway", &rig.infra, "gw", json!({ "spec": spec })).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "RecordTypeChanging").await;
        rig.until_records("").await;
        rig.observe(NAME).await;
        let alias = format!("{HOST} CNAME lb.example.net");
        rig.until_endpoints(&rig.infra, &[("gateway-controller-another-internal-external-dns-weu", &alias)]).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
    }

    async fn a_record_type_that_nobody_has_read_changes_in_two_steps_too(cluster) {
        let rig = Rig::with_address(cluster).await;
        // external-dns may have read it, and its report be on the way.
        rig.balancer("internal", json!([{ "hostname": "lb.example.net" }])).await;
        rig.until_records(&format!("{HOST} CNAME lb.example.net")).await;
        assert_eq!(rig.one_step_changes(), [""; 0]);
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        let generation = rig.get("DNSEndpoint", &rig.infra, NAME).await.unwrap()["metadata"]["generation"].clone();
        assert_eq!(generation, 3, "addresses, nothing, alias");
    }

    async fn an_entrance_that_cannot_be_used_does_not_keep_the_others_from_being_published(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.balancer("internal", json!([{ "ip": "10.0.0.1" }, { "hostname": "lb.example.net" }])).await;
        rig.until_records(&format!("{HOST} A 10.0.0.1")).await;
        eventually("the status has both", PATIENCE, || async {
            let status = rig.get("Gateway", &rig.infra, "gw").await.unwrap()["status"].clone();
            let all = json!(["10.0.0.1", "lb.example.net"]);
            if status["loadBalancerIP"] == "10.0.0.1" && status["addresses"] == all { Ok(()) } else { Err(status) }
        }).await;
        let status = rig.until_refused("Gateway", &rig.infra, "gw", "Notice", "AddressesLeftOut").await;
        let message = condition(&status, "Notice")["message"].to_string();
        assert!(message.contains("1 of the addresses") && message.contains("1 are host names, which cannot be beside addresses"), "{message}");
    }

    async fn every_valid_address_is_published_and_host_names_beside_it_are_counted(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        // As minikube and kind report it.
        rig.balancer("internal", json!([{ "ip": "127.0.0.1" }])).await;
        rig.until_records(&format!("{HOST} A 127.0.0.1")).await;
        let status = rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        assert!(condition(&status, "Notice").is_null(), "{status}");
        // An alias has one target.
        rig.balancer("internal", json!([{ "hostname": "lb-a.example.net" }, { "hostname": "lb-b.example.net" }, { "hostname": HOST }])).await;
        rig.until_records(&format!("{HOST} CNAME lb-a.example.net")).await;
        let status = rig.until_refused("Gateway", &rig.infra, "gw", "Notice", "AddressesLeftOut").await;
        let message = condition(&status, "Notice")["message"].to_string();
        for part in ["2 of the addresses", "1 are further host names", &format!("1 are host names that lead back to {HOST}")] {
            assert!(message.contains(part), "{message}");
        }
        // No address that can be used: what is published is kept, and the reason is reported.
        rig.balancer("internal", json!([{ "ip": "0.0.0.0" }])).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
        let status = rig.until_condition("Gateway", &rig.infra, "gw", "Notice", "AddressesLeftOut").await;
        assert!(condition(&status, "Notice")["message"].to_string().contains("neither an address of a host"), "{status}");
        rig.until_records(&format!("{HOST} CNAME lb-a.example.net")).await;
    }

    async fn a_service_is_also_found_by_its_name_beside_the_gateway(cluster) {
        let rig = Rig::new(cluster).await;
        rig.identity("weu", &[]).await;
        rig.configuration(&["weu"]).await;
        rig.gateway("gw", "internal").await;
        let body = json!({ "spec": { "type": "LoadBalancer", "ports": [{ "port": 443 }] } });
        rig.put("Service", &rig.infra, "istio-internal", body).await;
        rig.merge_status("Service", &rig.infra, "istio-internal", json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.7" }] } })).await;
        rig.until_records(&format!("{HOST} A 10.0.0.7")).await;
    }

    async fn a_service_of_another_type_is_not_a_load_balancer(cluster) {
        let rig = Rig::new(cluster).await;
        rig.identity("weu", &[]).await;
        rig.configuration(&["weu"]).await;
        rig.gateway("gw", "internal").await;
        let body = json!({ "metadata": { "labels": { "istio": "istio-internal" } }, "spec": { "type": "ClusterIP", "ports": [{ "port": 443 }] } });
        rig.put("Service", &rig.infra, "inside", body).await;
        let status = rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
        assert!(status["conditions"].to_string().contains("istio=istio-internal"));
    }

    async fn a_deleted_service_takes_its_addresses_along(cluster) {
        let rig = Rig::with_address(cluster).await;
        rig.delete("Service", &rig.infra, "istio-internal").await;
        rig.until_endpoints(&rig.infra, &[]).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
    }
}
