//! Hosts, names and load balancers that move from one object to another: nobody has them twice, and nobody loses them on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use signpost_testkit::{Fault, Rule, eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, follow, host, identity};

const HOST: &str = "aks01-weu-internal.example.com";

impl Rig {
    /// A Gateway of the controller `istio-internal`, as `gw` is.
    async fn second_gateway(&self, name: &str) {
        let spec = json!({ "controller": "istio-internal", "credentialName": "cert", "targetPostfix": "second" });
        self.put("Gateway", &self.infra, name, json!({ "spec": spec })).await;
    }

    /// Another load balancer of `istio-internal`.
    async fn balancer_in(&self, namespace: &str, name: &str, points: Value) {
        let body = json!({
            "metadata": { "labels": { "istio": "istio-internal" } },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 443 }] },
        });
        self.put("Service", namespace, name, body).await;
        self.merge_status("Service", namespace, name, json!({ "loadBalancer": { "ingress": points } })).await;
    }

    /// Waits until the name of the gateway `gw` has this address.
    async fn until_address(&self, address: &str) {
        let name = "gateway-controller-istio-internal-internal-external-dns-weu";
        self.until_endpoints(&self.infra, &[(name, &format!("{HOST} A {address}"))]).await;
    }

    /// Notes every host that two Istio Gateways have at the same time.
    async fn watch_duplicates(&self) -> Arc<Mutex<Vec<String>>> {
        let api = self.all("IstioGateway");
        let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let duplicates = Arc::<Mutex<Vec<String>>>::default();
        let found = duplicates.clone();
        tokio::spawn(async move {
            let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
            follow(api, version, |object, exists| {
                let name = object.metadata.name.clone().unwrap();
                hosts.insert(name, if exists { hosts_of(&object) } else { Vec::new() });
                let mut seen = BTreeSet::new();
                let twice = hosts.values().flatten().filter(|host| !seen.insert((*host).clone()));
                found.lock().unwrap().extend(twice.cloned());
            })
            .await;
        });
        duplicates
    }
}

fn hosts_of(object: &DynamicObject) -> Vec<String> {
    serde_json::from_value(object.data["spec"]["servers"][0]["hosts"].clone()).unwrap()
}

on_both! {
    async fn a_route_that_moves_between_gateways_of_the_same_pods_is_never_in_both(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.second_gateway("second").await;
        for service in ["api", "web", "one", "two"] {
            rig.route(service).await;
        }
        rig.until_hosts("gw", &[&host("api"), &host("one"), &host("two"), &host("web")]).await;
        let duplicates = rig.watch_duplicates().await;
        // Hosts of the first Gateway keep changing, so that it is written late.
        for (round, (from, to)) in [("gw", "second"), ("second", "gw"), ("gw", "second")].into_iter().enumerate() {
            rig.route_in(&rig.app, "one-route", &format!("one{round}"), from).await;
            rig.route_in(&rig.app, "two-route", &format!("two{round}"), from).await;
            rig.route_in(&rig.app, "api-route", "api", to).await;
            rig.route_in(&rig.app, "web-route", "web", to).await;
            rig.until_hosts(from, &[&host(&format!("one{round}")), &host(&format!("two{round}"))]).await;
            rig.until_hosts(to, &[&host("api"), &host("web")]).await;
        }
        assert_eq!(*duplicates.lock().unwrap(), [""; 0], "Istio drops a whole server for one of these");
        let status = rig.until("Gateway", "second", "GatewayCreated").await;
        assert_eq!(condition(&status, "Notice"), json!(null));
    }

    async fn a_host_that_a_refused_gateway_keeps_is_not_added_to_another_one(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.second_gateway("second").await;
        rig.route("api").await;
        rig.until_hosts("gw", &[&host("api")]).await;
        let duplicates = rig.watch_duplicates().await;
        rig.merge("Gateway", &rig.infra, "gw", json!({ "spec": { "credentialName": " " } })).await;
        rig.until("Gateway", "gw", "ValidationFailed").await;
        // Its Istio Gateway cannot be written either.
        let path = format!("/networking.istio.io/v1/namespaces/{}/gateways/gw", rig.infra);
        rig.proxy.add(Rule::every(Fault::status(503)).method(http::Method::PATCH).path(&path));
        rig.proxy.add(Rule::every(Fault::status(503)).method(http::Method::DELETE).path(&path));
        rig.route_in(&rig.app, "api-route", "api", "second").await;
        rig.route_in(&rig.app, "web-route", "web", "second").await;
        let status = rig.until_refused("Gateway", &rig.infra, "second", "Notice", "HostConflict").await;
        let message = condition(&status, "Notice")["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&host("api")) && message.contains(&format!("Istio Gateway {}/gw", rig.infra)), "{message}");
        rig.until_hosts("second", &[&host("web")]).await;
        rig.until_hosts("gw", &[&host("api")]).await;
        // The first Gateway can be written again: the host moves.
        rig.proxy.clear();
        rig.merge("Gateway", &rig.infra, "gw", json!({ "spec": { "credentialName": "cert" } })).await;
        rig.until_hosts("second", &[&host("api"), &host("web")]).await;
        rig.until_hosts("gw", &[]).await;
        eventually("the notice ends", PATIENCE, || async {
            let status = rig.get("Gateway", &rig.infra, "second").await.unwrap()["status"].clone();
            if condition(&status, "Notice").is_null() { Ok(()) } else { Err(status) }
        }).await;
        assert_eq!(*duplicates.lock().unwrap(), [""; 0]);
    }

    async fn a_refused_gateway_gives_up_hosts_that_moved_to_another_one(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.second_gateway("second").await;
        for service in ["api", "old", "web"] {
            rig.route(service).await;
        }
        rig.until_hosts("gw", &[&host("api"), &host("old"), &host("web")]).await;
        let duplicates = rig.watch_duplicates().await;
        rig.merge("Gateway", &rig.infra, "gw", json!({ "spec": { "credentialName": " " } })).await;
        rig.until("Gateway", "gw", "ValidationFailed").await;
        rig.route_in(&rig.app, "api-route", "api", "second").await;
        rig.delete("ServiceRoute", &rig.app, "old-route").await;
        // What is its own stays, with the certificate that it had.
        rig.until_hosts("gw", &[&host("web")]).await;
        rig.until_hosts("second", &[&host("api")]).await;
        let istio = rig.get("IstioGateway", &rig.infra, "gw").await.unwrap();
        assert_eq!(istio["spec"]["servers"][0]["tls"], json!({ "mode": "SIMPLE", "credentialName": "cert" }));
        assert_eq!(istio["spec"]["selector"], json!({ "istio": "istio-internal" }));
        rig.route_in(&rig.app, "web-route", "web", "second").await;
        rig.until_hosts("gw", &[]).await;
        rig.until_hosts("second", &[&host("api"), &host("web")]).await;
        let status = rig.until("Gateway", "gw", "ValidationFailed").await;
        assert_eq!(status["phase"], "Failed");
        assert_eq!(*duplicates.lock().unwrap(), [""; 0]);
    }

    async fn gateways_of_the_same_pods_that_are_refused_come_to_rest(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.second_gateway("second").await;
        // As Istio's webhook rejects an object.
        rig.proxy.add(Rule::every(Fault::status(400)).method(http::Method::PATCH).path("networking.istio.io"));
        rig.route("api").await;
        rig.route_in(&rig.app, "web-route", "web", "second").await;
        for name in ["gw", "second"] {
            rig.until_refused("Gateway", &rig.infra, name, "Ready", "IstioGatewayGenerationFailed").await;
        }
        rig.at_rest().await;
        // What is accepted again is written with the next change.
        rig.proxy.clear();
        rig.route("more").await;
        rig.until_hosts("gw", &[&host("api"), &host("more")]).await;
    }

    async fn a_gateway_that_is_being_deleted_gives_up_hosts_that_moved(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.second_gateway("second").await;
        rig.route("api").await;
        rig.route("web").await;
        rig.until_hosts("gw", &[&host("api"), &host("web")]).await;
        rig.merge("Gateway", &rig.infra, "gw", json!({ "metadata": { "finalizers": ["example.org/stuck"] } })).await;
        rig.delete("Gateway", &rig.infra, "gw").await;
        rig.route_in(&rig.app, "api-route", "api", "second").await;
        rig.until_hosts("second", &[&host("api")]).await;
        rig.until_hosts("gw", &[&host("web")]).await;
        rig.merge("Gateway", &rig.infra, "gw", json!({ "metadata": { "finalizers": null } })).await;
    }

    async fn the_istio_gateway_of_an_orphaned_deletion_is_deleted_by_its_labels(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.second_gateway("second").await;
        rig.route("api").await;
        rig.until_hosts("gw", &[&host("api")]).await;
        let orphan = || kube::api::DeleteParams { propagation_policy: Some(kube::api::PropagationPolicy::Orphan), ..Default::default() };
        let theirs = json!({ "spec": { "selector": { "istio": "theirs" }, "servers": [{
            "port": { "number": 443, "name": "https", "protocol": "HTTPS" }, "tls": { "mode": "SIMPLE", "credentialName": "c" }, "hosts": ["a.example.org"],
        }] } });
        rig.put("IstioGateway", &rig.infra, "theirs", theirs).await;
        rig.api("Gateway", &rig.infra).delete("gw", &orphan()).await.unwrap();
        rig.route_in(&rig.app, "api-route", "api", "second").await;
        rig.until_hosts("second", &[&host("api")]).await;
        rig.until_hosts("gw", &[]).await;
        // Also when that happens while the operator is stopped.
        rig.stop().await;
        rig.api("Gateway", &rig.infra).delete("second", &orphan()).await.unwrap();
        rig.start().await;
        rig.until_hosts("second", &[]).await;
        rig.until_hosts("theirs", &["a.example.org"]).await;
    }

    async fn every_route_of_a_host_that_a_foreign_istio_gateway_has_gets_a_notice(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let theirs = |hosts: &[String]| json!({ "spec": { "selector": { "istio": "istio-internal" }, "servers": [{
            "port": { "number": 443, "name": "https", "protocol": "HTTPS" }, "tls": { "mode": "SIMPLE", "credentialName": "c" }, "hosts": hosts,
        }] } });
        rig.put("IstioGateway", &rig.infra, "theirs", theirs(&[host("api"), host("web")])).await;
        for service in ["api", "free", "web"] {
            rig.route(service).await;
        }
        for name in ["api-route", "web-route"] {
            let status = rig.until_refused("ServiceRoute", &rig.app, name, "Notice", "HostConflict").await;
            let message = condition(&status, "Notice")["message"].to_string();
            assert!(message.contains(&format!("Istio Gateway {}/theirs", rig.infra)), "{message}");
        }
        let status = rig.until("ServiceRoute", "free-route", "ReconciliationSucceeded").await;
        assert!(condition(&status, "Notice").is_null(), "{status}");
        rig.until_hosts("gw", &[&host("free")]).await;
        rig.put("IstioGateway", &rig.infra, "theirs", theirs(&[host("web")])).await;
        rig.until_hosts("gw", &[&host("api"), &host("free")]).await;
        eventually("the notice ends", PATIENCE, || async {
            let status = rig.get("ServiceRoute", &rig.app, "api-route").await.unwrap()["status"].clone();
            if condition(&status, "Notice").is_null() { Ok(()) } else { Err(status) }
        }).await;
        rig.until_condition("ServiceRoute", &rig.app, "web-route", "Notice", "HostConflict").await;
    }

    async fn a_host_of_an_istio_gateway_without_a_selector_is_not_added(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        // What it finds at a start is complete.
        rig.stop().await;
        // Istio applies it to all pods, and drops a whole server of ours for one of its hosts.
        rig.put("IstioGateway", &rig.app, "theirs", json!({ "spec": { "servers": [{
            "port": { "number": 443, "name": "https", "protocol": "HTTPS" }, "tls": { "mode": "SIMPLE", "credentialName": "c" }, "hosts": [host("api")],
        }] } })).await;
        rig.route("api").await;
        rig.route("free").await;
        rig.start().await;
        let status = rig.until_refused("ServiceRoute", &rig.app, "api-route", "Notice", "HostConflict").await;
        let message = condition(&status, "Notice")["message"].to_string();
        assert!(message.contains(&format!("Istio Gateway {}/theirs", rig.app)), "{message}");
        rig.until_hosts("gw", &[&host("free")]).await;
        rig.delete("IstioGateway", &rig.app, "theirs").await;
        rig.until_hosts("gw", &[&host("api"), &host("free")]).await;
    }

    async fn an_address_that_flaps_does_not_move_the_name_to_another_service(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        rig.config.withdraw_after = PATIENCE;
        rig.start().await;
        rig.basics(&["weu"]).await;
        rig.until_address("10.123.45.67").await;
        let other = rig.cluster.namespace("other").await;
        rig.balancer_in(&other, "canary", json!([{ "ip": "10.9.9.9" }])).await;
        rig.balancer("internal", json!([])).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
        rig.settled().await;
        rig.until_address("10.123.45.67").await;
        assert!(rig.endpoints(&other).await.is_empty());
        rig.balancer("internal", json!([{ "ip": "10.0.0.9" }])).await;
        rig.until_address("10.0.0.9").await;
        assert!(rig.endpoints(&other).await.is_empty() && !rig.deletions().iter().any(|name| name.starts_with("gateway-")));
    }

    async fn another_service_takes_over_when_the_address_stays_away(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.until_address("10.123.45.67").await;
        rig.balancer_in(&rig.infra, "canary", json!([{ "ip": "10.9.9.9" }])).await;
        rig.balancer("internal", json!([])).await;
        rig.until_address("10.9.9.9").await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        // The name stays where it is when the first one has an address again.
        rig.balancer("internal", json!([{ "ip": "10.123.45.67" }])).await;
        rig.settled().await;
        rig.until_address("10.9.9.9").await;
    }

    async fn a_load_balancer_that_reports_the_name_of_its_gateway_changes_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until_address("10.123.45.67").await;
        rig.until_hosts("gw", &[&host("api")]).await;
        // A real API server accepts neither upper case nor a trailing dot in the status of a Service.
        let spellings = [format!("{HOST}."), host("api").to_uppercase()];
        let plain = [HOST.to_owned(), host("api")];
        for name in if rig.cluster.is_real() { &plain } else { &spellings } {
            rig.balancer("internal", json!([{ "hostname": name }])).await;
            rig.until_refused("Gateway", &rig.infra, "gw", "DNSReady", "AliasLoop").await;
            let name = name.trim_end_matches('.').to_lowercase();
            eventually(&format!("the status has {name}"), PATIENCE, || async {
                let status = rig.get("Gateway", &rig.infra, "gw").await.unwrap()["status"].clone();
                let message = condition(&status, "DNSReady")["message"].to_string();
                if message.contains(&format!("reports the host name {name}")) { Ok(()) } else { Err(message) }
            }).await;
            rig.until_address("10.123.45.67").await;
        }
        // The route is deleted: what was its host is a name like others.
        rig.delete("ServiceRoute", &rig.app, "api-route").await;
        let name = "gateway-controller-istio-internal-internal-external-dns-weu";
        rig.until_endpoints(&rig.infra, &[(name, &format!("{HOST} CNAME {}", host("api")))]).await;
    }

    async fn a_service_that_is_not_a_load_balancer_for_a_while_keeps_its_addresses(cluster) {
        let rig = Rig::new(cluster).await;
        rig.identity("weu", &[]).await;
        rig.configuration(&["weu"]).await;
        rig.gateway("gw", "internal").await;
        rig.policy(json!({})).await;
        // It is found by its name alone.
        let body = |type_: &str| json!({ "spec": { "type": type_, "ports": [{ "port": 443 }] } });
        let points = json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.7" }] } });
        rig.put("Service", &rig.infra, "istio-internal", body("LoadBalancer")).await;
        rig.merge_status("Service", &rig.infra, "istio-internal", points).await;
        rig.until_address("10.0.0.7").await;
        rig.put("Service", &rig.infra, "istio-internal", body("ClusterIP")).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
        // It would be withdrawn after 300 ms.
        for _ in 0..3 {
            rig.settled().await;
        }
        rig.until_address("10.0.0.7").await;
        assert!(!rig.deletions().iter().any(|name| name.starts_with("gateway-")));
        rig.delete("Service", &rig.infra, "istio-internal").await;
        rig.until_endpoints(&rig.infra, &[]).await;
    }

    async fn the_old_host_of_a_blocked_route_is_withdrawn_when_another_route_has_published_it(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let there = format!("{} CNAME {HOST}", host("api"));
        for (blocked, gateway, reason) in [("bad_name", "gw", "InvalidHost"), ("other", "nowhere", "GatewayNotFound")] {
            rig.route_in(&rig.app, "a-first", "api", "gw").await;
            rig.until_endpoints(&rig.app, &[("a-first-external-dns-weu", &there)]).await;
            rig.route_in(&rig.app, "b-second", "api", "gw").await;
            rig.until("ServiceRoute", "b-second", "HostConflict").await;
            rig.route_in(&rig.app, "a-first", blocked, gateway).await;
            rig.until("ServiceRoute", "b-second", "ReconciliationSucceeded").await;
            rig.until("ServiceRoute", "a-first", reason).await;
            rig.until_endpoints(&rig.app, &[("b-second-external-dns-weu", &there)]).await;
            rig.until_hosts("gw", &[&host("api")]).await;
            rig.delete("ServiceRoute", &rig.app, "a-first").await;
            rig.delete("ServiceRoute", &rig.app, "b-second").await;
            rig.until_endpoints(&rig.app, &[]).await;
        }
    }

    async fn a_changed_cluster_name_keeps_the_former_one_until_every_route_has_moved(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.route("web").await;
        let there = |service: &str, target: &str| format!("{} CNAME {target}", host(service));
        let (api, web) = ("api-route-external-dns-weu", "web-route-external-dns-weu");
        rig.until_endpoints(&rig.app, &[(api, &there("api", HOST)), (web, &there("web", HOST))]).await;
        rig.until_address("10.123.45.67").await;
        // The DNSEndpoint of one route cannot be written for a while.
        rig.proxy.add(Rule::every(Fault::status(500)).method(http::Method::PATCH).path(api));
        let (mut spec, new) = (identity("weu", &[]), "aks02-weu-internal.example.com");
        spec["cluster"] = json!("aks02");
        rig.put("ClusterIdentity", "", "cluster-identity", json!({ "spec": spec })).await;
        rig.until_endpoints(&rig.app, &[(api, &there("api", HOST)), (web, &there("web", new))]).await;
        let name = "gateway-controller-istio-internal-internal-external-dns-weu";
        let both = |address: &str| format!("{new} A {address}; {HOST} A {address}");
        rig.until_endpoints(&rig.infra, &[(name, &both("10.123.45.67"))]).await;
        eventually("the Gateway reports the name that is kept", PATIENCE, || async {
            let status = rig.get("Gateway", &rig.infra, "gw").await.unwrap()["status"].clone();
            let message = condition(&status, "DNSReady")["message"].to_string();
            if message.contains(&format!("still point at {HOST}")) && status["hostname"] == new { Ok(()) } else { Err(status) }
        }).await;
        // It has the current address, and a restart does not change that. Without a pointer it would be withdrawn after 300 ms.
        rig.balancer("internal", json!([{ "ip": "10.0.0.9" }])).await;
        rig.until_endpoints(&rig.infra, &[(name, &both("10.0.0.9"))]).await;
        rig.restart().await;
        for _ in 0..3 {
            rig.settled().await;
        }
        rig.until_endpoints(&rig.infra, &[(name, &both("10.0.0.9"))]).await;
        let has_lost = || rig.losses("DNSEndpoint").iter().any(|(object, lost)| object == name && lost == HOST);
        assert!(!has_lost());
        rig.proxy.clear();
        rig.until_endpoints(&rig.app, &[(api, &there("api", new)), (web, &there("web", new))]).await;
        rig.until_endpoints(&rig.infra, &[(name, &format!("{new} A 10.0.0.9"))]).await;
    }

    async fn a_changed_postfix_keeps_the_former_name_until_every_route_has_moved(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.balancer("edge", json!([{ "ip": "10.0.0.9" }])).await;
        rig.route("api").await;
        let (api, there) = ("api-route-external-dns-weu", format!("{} CNAME {HOST}", host("api")));
        rig.until_endpoints(&rig.app, &[(api, &there)]).await;
        rig.until_address("10.123.45.67").await;
        rig.proxy.add(Rule::every(Fault::status(500)).method(http::Method::PATCH).path(api));
        rig.gateway("gw", "edge").await;
        let before = ("gateway-controller-istio-internal-internal-external-dns-weu", format!("{HOST} A 10.123.45.67"));
        let after = ("gateway-controller-istio-edge-edge-external-dns-weu", "aks01-weu-edge.example.com A 10.0.0.9");
        rig.until_endpoints(&rig.infra, &[after, (before.0, &before.1)]).await;
        // It would be withdrawn after 300 ms.
        for _ in 0..3 {
            rig.settled().await;
        }
        rig.until_endpoints(&rig.infra, &[after, (before.0, &before.1)]).await;
        rig.until_endpoints(&rig.app, &[(api, &there)]).await;
        assert!(!rig.deletions().contains(&before.0.to_owned()));
        rig.proxy.clear();
        rig.until_endpoints(&rig.app, &[(api, &there.replace("internal", "edge"))]).await;
        rig.until_endpoints(&rig.infra, &[after]).await;
    }

    async fn a_route_waits_until_the_new_name_of_its_gateway_is_published(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        let (api, there) = ("api-route-external-dns-weu", format!("{} CNAME {HOST}", host("api")));
        rig.until_endpoints(&rig.app, &[(api, &there)]).await;
        rig.until_address("10.123.45.67").await;
        // The load balancer of the new name has no address yet.
        rig.balancer("edge", json!([])).await;
        rig.gateway("gw", "edge").await;
        let status = rig.until("ServiceRoute", "api-route", "TargetNotPublished").await;
        assert_eq!((&status["phase"], &status["target"]), (&json!("Pending"), &json!(HOST)));
        let message = condition(&status, "Ready")["message"].to_string();
        assert!(message.contains(HOST) && message.contains("aks01-weu-edge.example.com"), "{message}");
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
        // A restart does not change that. The old name would be withdrawn after 300 ms.
        rig.restart().await;
        for _ in 0..3 {
            rig.settled().await;
        }
        rig.until_address("10.123.45.67").await;
        rig.until_endpoints(&rig.app, &[(api, &there)]).await;
        let before = rig.at_rest().await;
        assert_eq!(rig.at_rest().await, before, "a route that waits is not written");
        rig.balancer("edge", json!([{ "ip": "10.0.0.9" }])).await;
        rig.until_endpoints(&rig.app, &[(api, &there.replace("internal", "edge"))]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        let name = "gateway-controller-istio-edge-edge-external-dns-weu";
        rig.until_endpoints(&rig.infra, &[(name, "aks01-weu-edge.example.com A 10.0.0.9")]).await;
        assert!(!rig.deletions().contains(&api.to_owned()));
    }

    async fn a_route_waits_for_a_load_balancer_that_is_created_after_its_gateway(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        rig.config.withdraw_after = PATIENCE;
        rig.start().await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        let (api, there) = ("api-route-external-dns-weu", format!("{} CNAME {HOST}", host("api")));
        rig.until_endpoints(&rig.app, &[(api, &there)]).await;
        rig.until_address("10.123.45.67").await;
        rig.gateway("gw", "edge").await;
        rig.until("ServiceRoute", "api-route", "TargetNotPublished").await;
        // It is replaced before it has an address.
        let until_dns = async |text: &str| {
            eventually(&format!("DNSReady of the Gateway reports: {text}"), PATIENCE, || async {
                let status = rig.get("Gateway", &rig.infra, "gw").await.unwrap()["status"].clone();
                let message = condition(&status, "DNSReady")["message"].to_string();
                if message.contains(text) { Ok(()) } else { Err(message) }
            }).await;
        };
        rig.balancer("edge", json!([])).await;
        until_dns("istio-edge has no address").await;
        rig.delete("Service", &rig.infra, "istio-edge").await;
        until_dns("no Service of type LoadBalancer").await;
        rig.settled().await;
        rig.until_endpoints(&rig.app, &[(api, &there)]).await;
        rig.until("ServiceRoute", "api-route", "TargetNotPublished").await;
        rig.balancer("edge", json!([{ "ip": "10.0.0.9" }])).await;
        rig.until_endpoints(&rig.app, &[(api, &there.replace("internal", "edge"))]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn an_adopted_region_begins_with_the_name_that_a_waiting_route_keeps(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "frc"]).await;
        rig.route("api").await;
        let (weu, frc) = ("api-route-external-dns-weu", "api-route-external-dns-frc");
        let there = format!("{} CNAME {HOST}", host("api"));
        rig.until_endpoints(&rig.app, &[(weu, &there)]).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        rig.balancer("edge", json!([])).await;
        rig.gateway("gw", "edge").await;
        rig.until("ServiceRoute", "api-route", "TargetNotPublished").await;
        rig.identity("weu", &["frc"]).await;
        rig.until_endpoints(&rig.app, &[(frc, &there), (weu, &there)]).await;
        rig.balancer("edge", json!([{ "ip": "10.0.0.9" }])).await;
        let moved = there.replace("internal", "edge");
        rig.until_endpoints(&rig.app, &[(frc, &moved), (weu, &moved)]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn a_route_waits_a_while_for_a_gateway_without_a_load_balancer(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        let (api, there) = ("api-route-external-dns-weu", format!("{} CNAME {HOST}", host("api")));
        rig.until_endpoints(&rig.app, &[(api, &there)]).await;
        rig.until_address("10.123.45.67").await;
        rig.balancer("edge", json!([])).await;
        rig.gateway("gw", "edge").await;
        rig.until("ServiceRoute", "api-route", "TargetNotPublished").await;
        // Others publish the name from now on.
        rig.delete("Service", &rig.infra, "istio-edge").await;
        rig.until_endpoints(&rig.app, &[(api, &there.replace("internal", "edge"))]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn a_region_is_handed_back_also_where_it_was_the_only_one(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.configuration(&["frc"]).await;
        rig.identity("weu", &["frc"]).await;
        rig.route("api").await;
        let there = format!("{} CNAME {HOST}", host("api"));
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-frc", &there)]).await;
        // A mistake in the region of the controller withdraws nothing.
        let mistake = json!([{ "name": "external-dns-frc", "region": "frx" }]);
        rig.put("DNSConfiguration", "", "dns-config", json!({ "spec": { "externalDNSControllers": mistake } })).await;
        rig.until("ServiceRoute", "api-route", "NoControllers").await;
        assert!(!rig.deletions().contains(&"api-route-external-dns-frc".to_owned()));
        rig.configuration(&["frc"]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.identity("weu", &[]).await;
        rig.until("ServiceRoute", "api-route", "NoControllers").await;
        rig.until_endpoints(&rig.app, &[]).await;
        rig.identity("weu", &["frc"]).await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-frc", &there)]).await;
    }

    async fn a_deselected_controller_is_withdrawn_although_another_write_fails(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu", "frc"]).await;
        rig.identity("weu", &["frc"]).await;
        rig.route("api").await;
        let (weu, frc) = ("api-route-external-dns-weu", "api-route-external-dns-frc");
        let there = format!("{} CNAME {HOST}", host("api"));
        rig.until_endpoints(&rig.app, &[(frc, &there), (weu, &there)]).await;
        rig.stop().await;
        // The route does not wait for the new name of its gateway, so that its write fails at once.
        rig.config.withdraw_after = std::time::Duration::ZERO;
        rig.proxy.add(Rule::every(Fault::status(500)).method(http::Method::PATCH).path(weu));
        rig.identity("weu", &[]).await;
        rig.gateway("gw", "edge").await;
        rig.start().await;
        rig.until_endpoints(&rig.app, &[(weu, &there)]).await;
        rig.proxy.clear();
        rig.until_endpoints(&rig.app, &[(weu, &there.replace("internal", "edge"))]).await;
    }
}
