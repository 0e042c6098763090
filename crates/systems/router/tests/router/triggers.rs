//! The table "what triggers reconciliation", one test per row, and the watches beside it.

use serde_json::json;
use signpost_testkit::{eventually, on_both};

use crate::rig::{PATIENCE, Rig, alias};

on_both! {
    async fn a_changed_route_is_published_under_its_new_host_and_gateway(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.gateway("second", "external").await;
        rig.route("api").await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.route_in(&rig.app, "api-route", "web", "second").await;
        let there = format!("{} CNAME aks01-weu-external.example.com", rig.host("web"));
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &there)]).await;
        rig.until_hosts("second", &[&rig.host("web")]).await;
        rig.until_hosts("gw", &[]).await;
        assert!(rig.deletions().is_empty(), "the DNSEndpoint is changed, not replaced");
    }

    async fn an_endpoint_that_is_changed_or_deleted_is_restored(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        let wanted = [("api-route-external-dns-weu", &*alias("api", "weu"))];
        rig.until_endpoints(&rig.app, &wanted).await;
        rig.merge("DNSEndpoint", &rig.app, wanted[0].0, json!({ "spec": { "endpoints": [] } })).await;
        rig.until_endpoints(&rig.app, &wanted).await;
        rig.delete("DNSEndpoint", &rig.app, wanted[0].0).await;
        rig.until_endpoints(&rig.app, &wanted).await;
    }

    async fn an_endpoint_that_is_created_for_a_route_is_judged_by_its_owner(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        // As an operator of another version, or a person, may create it: it is the route's, and the route does not want it.
        let body = json!({
            "metadata": { "labels": {
                "app.kubernetes.io/managed-by": "service-router-operator", "router.io/controller": "external-dns-old",
                "router.io/serviceroute": "api-route",
            } },
            "spec": { "endpoints": [{ "dnsName": rig.host("api"), "recordType": "CNAME", "targets": ["old.example.com"] }] },
        });
        rig.put("DNSEndpoint", &rig.app, "api-route-external-dns-old", body).await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
        rig.until_event_of("Normal", &rig.app, "api-route", "Withdrawn").await;
    }

    async fn a_changed_policy_changes_every_route_of_its_namespace_and_no_other(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        let other = rig.cluster.namespace("other").await;
        rig.put("DNSPolicy", &other, "policy", json!({ "spec": {} })).await;
        rig.route_in(&other, "else-route", "else", "gw").await;
        rig.route("api").await;
        rig.route("web").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until("ServiceRoute", "web-route", "ReconciliationSucceeded").await;
        rig.until_condition("ServiceRoute", &other, "else-route", "Ready", "ReconciliationSucceeded").await;
        let untouched = rig.get("ServiceRoute", &other, "else-route").await.unwrap();
        rig.proxy.forget();
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.until_endpoints(&rig.app, &[
            ("api-route-external-dns-neu", &alias("api", "weu")), ("api-route-external-dns-weu", &alias("api", "weu")),
            ("web-route-external-dns-neu", &alias("web", "weu")), ("web-route-external-dns-weu", &alias("web", "weu")),
        ]).await;
        for route in ["api-route", "web-route"] {
            eventually("the route lists both", PATIENCE, || async {
                let status = rig.get("ServiceRoute", &rig.app, route).await.unwrap()["status"].clone();
                if status["dnsEndpoints"].as_array().map(Vec::len) == Some(2) { Ok(()) } else { Err(status) }
            }).await;
        }
        rig.until_endpoints(&other, &[("else-route-external-dns-weu", &alias("else", "weu"))]).await;
        // The other namespace cost no request at all.
        let seen = rig.proxy.seen().into_iter().map(|seen| format!("{} {}", seen.method, seen.path));
        let about: Vec<String> = seen.filter(|request| request.contains(&format!("/namespaces/{other}/"))).collect();
        assert_eq!(about, [""; 0]);
        assert_eq!(rig.get("ServiceRoute", &other, "else-route").await.unwrap(), untouched);
    }

    async fn a_changed_gateway_changes_the_target_of_every_route_that_uses_it(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
        rig.gateway("other", "other").await;
        rig.route_in(&rig.app, "web-route", "web", "gw").await;
        rig.route_in(&rig.app, "else-route", "else", "other").await;
        rig.until_hosts("gw", &[&rig.host("api"), &rig.host("web")]).await;
        let elsewhere = format!("{} CNAME aks01-weu-other.example.com", rig.host("else"));
        rig.gateway("gw", "edge").await;
        let there = |service: &str| format!("{} CNAME aks01-weu-edge.example.com", rig.host(service));
        rig.until_endpoints(&rig.app, &[
            ("api-route-external-dns-weu", &there("api")), ("else-route-external-dns-weu", &elsewhere),
            ("web-route-external-dns-weu", &there("web")),
        ]).await;
        eventually("the Istio Gateway selects the new controller's pods", PATIENCE, || async {
            let istio = rig.get("IstioGateway", &rig.infra, "gw").await.unwrap();
            if istio["spec"]["selector"] == json!({ "istio": "istio-edge" }) { Ok(()) } else { Err(istio) }
        }).await;
        let spec = json!({ "controller": "istio-edge", "credentialName": "another", "targetPostfix": "edge" });
        rig.put("Gateway", &rig.infra, "gw", json!({ "spec": spec })).await;
        eventually("the Istio Gateway has the new certificate", PATIENCE, || async {
            let istio = rig.get("IstioGateway", &rig.infra, "gw").await.unwrap();
            if istio["spec"]["servers"][0]["tls"]["credentialName"] == "another" { Ok(()) } else { Err(istio) }
        }).await;
    }

    async fn a_changed_identity_changes_every_route_and_gateway_of_the_cluster(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        let other = rig.cluster.namespace("other").await;
        rig.put("DNSPolicy", &other, "policy", json!({ "spec": {} })).await;
        rig.route("api").await;
        rig.route_in(&other, "web-route", "web", "gw").await;
        rig.until_hosts("gw", &[&rig.host("api"), &rig.host("web")]).await;
        let spec = json!({ "region": "neu", "cluster": "aks02", "domain": "example.org", "environmentLetter": "t" });
        rig.put("ClusterIdentity", "", "cluster-identity", json!({ "spec": spec })).await;
        let to = |service: &str| format!("{service}-ns-t-prod-myapp.example.org CNAME aks02-neu-internal.example.org");
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-neu", &to("api"))]).await;
        rig.until_endpoints(&other, &[("web-route-external-dns-neu", &to("web"))]).await;
        rig.until_hosts("gw", &["api-ns-t-prod-myapp.example.org", "web-ns-t-prod-myapp.example.org"]).await;
        rig.until_endpoints(&rig.infra, &[
            ("gateway-controller-istio-internal-internal-external-dns-neu", "aks02-neu-internal.example.org A 10.123.45.67"),
            ("gateway-controller-istio-internal-internal-external-dns-weu", "aks02-neu-internal.example.org A 10.123.45.67"),
        ]).await;
    }

    async fn a_changed_configuration_adds_and_removes_controllers(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.configuration(&["weu", "frc"]).await;
        rig.until_endpoints(&rig.app, &[
            ("api-route-external-dns-frc", &alias("api", "weu")), ("api-route-external-dns-weu", &alias("api", "weu")),
        ]).await;
        let a = "aks01-weu-internal.example.com A 10.123.45.67";
        rig.until_endpoints(&rig.infra, &[
            ("gateway-controller-istio-internal-internal-external-dns-frc", a),
            ("gateway-controller-istio-internal-internal-external-dns-weu", a),
        ]).await;
        // A controller that moves to another region takes its label along.
        let moved = json!([{ "name": "external-dns-weu", "region": "weu" }, { "name": "external-dns-frc", "region": "eastus" }]);
        rig.put("DNSConfiguration", "", "dns-config", json!({ "spec": { "externalDNSControllers": moved } })).await;
        eventually("the label follows", PATIENCE, || async {
            let endpoint = rig.get("DNSEndpoint", &rig.app, "api-route-external-dns-frc").await.unwrap();
            if endpoint["metadata"]["labels"]["router.io/region"] == "eastus" { Ok(()) } else { Err(endpoint) }
        }).await;
    }

    async fn a_route_waits_for_each_thing_that_it_needs_in_any_order(cluster) {
        let rig = Rig::new(cluster).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ClusterIdentityNotAvailable").await;
        rig.identity("weu", &[]).await;
        let status = rig.until("ServiceRoute", "api-route", "DNSPolicyNotFound").await;
        assert_eq!(status["phase"], "Pending");
        rig.policy(json!({})).await;
        rig.until("ServiceRoute", "api-route", "DNSConfigurationNotAvailable").await;
        let status = rig.until("DNSPolicy", "policy", "DNSConfigurationNotAvailable").await;
        assert_eq!((&status["phase"], &status["active"]), (&json!("Pending"), &json!(null)));
        rig.configuration(&["weu"]).await;
        let status = rig.until("ServiceRoute", "api-route", "GatewayNotFound").await;
        assert_eq!(status["phase"], "Failed");
        rig.gateway("gw", "internal").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
        rig.balancer("internal", json!([{ "ip": "10.0.0.1" }])).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
    }
}
