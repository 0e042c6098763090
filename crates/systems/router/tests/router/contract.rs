//! The contract with users of service-router-operator: modes, patterns, generated objects, statuses.

use serde_json::json;
use signpost_testkit::{eventually, on_both};

use crate::rig::{EDNS, PATIENCE, Rig, alias, condition, configuration, identity};

on_both! {
    async fn a_route_is_published_with_the_labels_annotation_and_owner_of_the_example(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.route("api").await;
        let status = rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        assert_eq!(status["phase"], "Active");
        assert_eq!(status["hostname"], "api-ns-p-prod-myapp.example.com");
        assert_eq!(status["target"], "aks01-weu-internal.example.com");
        assert_eq!(status["dnsEndpoint"], "api-route-external-dns-weu");
        assert_eq!(status["dnsEndpoints"], json!([{ "name": "api-route-external-dns-weu", "controller": "external-dns-weu", "observed": false }]));
        let endpoint = rig.get("DNSEndpoint", &rig.app, "api-route-external-dns-weu").await.unwrap();
        assert_eq!(endpoint["metadata"]["labels"], json!({
            "app.kubernetes.io/managed-by": "service-router-operator",
            "router.io/controller": "external-dns-weu",
            "router.io/region": "weu",
            "router.io/serviceroute": "api-route",
            "router.io/source-namespace": rig.app,
        }));
        assert_eq!(endpoint["metadata"]["annotations"], json!({ EDNS: "external-dns-weu" }));
        let managers = endpoint["metadata"]["managedFields"].as_array().unwrap();
        let applied = |manager: &serde_json::Value| (&manager["manager"], &manager["operation"]) == (&json!("signpost"), &json!("Apply"));
        assert!(managers.len() == 1 && managers.iter().all(applied), "{managers:?}");
        let owner = &endpoint["metadata"]["ownerReferences"][0];
        let route = rig.get("ServiceRoute", &rig.app, "api-route").await.unwrap();
        assert_eq!((&owner["kind"], &owner["name"], &owner["uid"]), (&json!("ServiceRoute"), &json!("api-route"), &route["metadata"]["uid"]));
        assert_eq!(endpoint["spec"], json!({ "endpoints": [{
            "dnsName": "api-ns-p-prod-myapp.example.com", "recordType": "CNAME", "targets": ["aks01-weu-internal.example.com"],
        }] }));
    }

    async fn an_istio_gateway_has_the_hosts_of_all_routes_sorted_and_none_is_left_without(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let status = rig.until("Gateway", "gw", "NoServiceRoutes").await;
        assert_eq!(status["phase"], "Pending");
        rig.route("web").await;
        rig.route("api").await;
        let (api, web) = (rig.host("api"), rig.host("web"));
        rig.until_hosts("gw", &[&api, &web]).await;
        rig.until("Gateway", "gw", "GatewayCreated").await;
        signpost_testkit::eventually("both hosts are counted", crate::rig::PATIENCE, || async {
            let status = rig.get("Gateway", &rig.infra, "gw").await.unwrap()["status"].clone();
            if (&status["phase"], &status["hosts"]) == (&json!("Active"), &json!(2)) { Ok(()) } else { Err(status) }
        }).await;
        let istio = rig.get("IstioGateway", &rig.infra, "gw").await.unwrap();
        assert_eq!(istio["spec"], json!({
            "selector": { "istio": "istio-internal" },
            "servers": [{
                "port": { "number": 443, "name": "https", "protocol": "HTTPS" },
                "tls": { "mode": "SIMPLE", "credentialName": "cert" },
                "hosts": [api, web],
            }],
        }));
        assert_eq!(istio["metadata"]["labels"]["router.io/gateway"], "gw");
        assert_eq!(istio["metadata"]["ownerReferences"][0]["kind"], "Gateway");
        for name in ["api-route", "web-route"] {
            rig.delete("ServiceRoute", &rig.app, name).await;
        }
        rig.until_hosts("gw", &[]).await;
        rig.until("Gateway", "gw", "NoServiceRoutes").await;
        assert!(rig.get("IstioGateway", &rig.infra, "gw").await.is_none());
    }

    async fn active_mode_publishes_in_the_own_region_only(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["neu", "weu", "frc"]).await;
        rig.route("api").await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-neu", &alias("api", "neu"))]).await;
        let status = rig.until("DNSPolicy", "policy", "PolicyActive").await;
        assert_eq!((&status["phase"], &status["active"]), (&json!("Active"), &json!(true)));
        assert_eq!(status["activeControllers"], json!(["external-dns-neu"]));
    }

    async fn adopted_regions_follow_the_own_one_without_duplicates(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["frc", "weu", "neu"]).await;
        rig.identity("weu", &["frc", "weu", "frc"]).await;
        rig.route("api").await;
        rig.until_endpoints(&rig.app, &[
            ("api-route-external-dns-frc", &alias("api", "weu")),
            ("api-route-external-dns-weu", &alias("api", "weu")),
        ]).await;
        // The status follows the records: it may still be that of the first identity.
        eventually("the policy lists both controllers", PATIENCE, || async {
            let status = rig.until("DNSPolicy", "policy", "PolicyActive").await;
            if status["activeControllers"] == json!(["external-dns-weu", "external-dns-frc"]) { Ok(()) } else { Err(status) }
        }).await;
        let identity = rig.until_condition("ClusterIdentity", "", "cluster-identity", "AdoptedRegionsValid", "AllAdoptedRegionsValid").await;
        assert_eq!(identity["phase"], "Active");
    }

    async fn region_bound_publishes_in_all_regions_from_the_source_region(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "frc", "neu"]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.route("api").await;
        rig.until_endpoints(&rig.app, &["frc", "neu", "weu"].map(|region| (format!("api-route-external-dns-{region}"), alias("api", "weu")))
            .iter().map(|(a, b)| (a.as_str(), b.as_str())).collect::<Vec<_>>()).await;
        let status = rig.until("DNSPolicy", "policy", "PolicyActive").await;
        assert_eq!(status["activeControllers"], json!(["external-dns-weu", "external-dns-frc", "external-dns-neu"]));
    }

    async fn region_bound_elsewhere_is_inactive_and_publishes_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["neu", "weu"]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.route("api").await;
        let status = rig.until("ServiceRoute", "api-route", "DNSPolicyInactive").await;
        assert_eq!(status["phase"], "Pending");
        let status = rig.until("DNSPolicy", "policy", "PolicyInactive").await;
        assert_eq!((&status["phase"], &status["active"]), (&json!("Inactive"), &json!(false)));
        assert!(status["activeControllers"] == json!([]) && rig.endpoints(&rig.app).await.is_empty());
        rig.until_hosts("gw", &[&rig.host("api")]).await;
    }

    async fn a_source_cluster_filters_in_both_modes(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.route("api").await;
        for (mode, cluster, reason) in [
            ("RegionBound", "aks02", "DNSPolicyInactive"), ("RegionBound", "aks01", "ReconciliationSucceeded"),
            ("Active", "aks02", "DNSPolicyInactive"), ("Active", "aks01", "ReconciliationSucceeded"),
        ] {
            rig.policy(json!({ "mode": mode, "sourceRegion": "weu", "sourceCluster": cluster })).await;
            rig.until("ServiceRoute", "api-route", reason).await;
        }
    }

    async fn the_mode_switch_extends_the_source_and_withdraws_the_others(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.route("api").await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.until_endpoints(&rig.app, &[
            ("api-route-external-dns-neu", &alias("api", "weu")),
            ("api-route-external-dns-weu", &alias("api", "weu")),
        ]).await;
        assert!(rig.deletions().is_empty(), "the name of the own region stays");
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "neu" })).await;
        rig.until("ServiceRoute", "api-route", "DNSPolicyInactive").await;
        rig.until_endpoints(&rig.app, &[]).await;
        rig.until_event_of("Normal", &rig.app, "api-route", "Withdrawn").await;
        rig.policy(json!({ "mode": "Active" })).await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
    }

    async fn a_route_that_begins_under_an_inactive_policy_waits_without_an_error(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.policy(json!({ "sourceRegion": "neu" })).await;
        rig.until("DNSPolicy", "policy", "PolicyInactive").await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "DNSPolicyInactive").await;
        rig.policy(json!({})).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn withdrawing_twice_and_rapid_changes_end_as_the_last_policy_asks(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        for _ in 0..5 {
            rig.policy(json!({ "sourceRegion": "neu" })).await;
            rig.policy(json!({ "sourceRegion": "weu" })).await;
        }
        rig.policy(json!({ "sourceRegion": "neu" })).await;
        rig.until("ServiceRoute", "api-route", "DNSPolicyInactive").await;
        rig.until_endpoints(&rig.app, &[]).await;
        // Both were true for a moment after each earlier policy too. The last one is known now, and a pass of the route that began later has ended.
        rig.until("DNSPolicy", "policy", "PolicyInactive").await;
        rig.merge("ServiceRoute", &rig.app, "api-route", json!({ "spec": { "environment": "test" } })).await;
        rig.until("ServiceRoute", "api-route", "DNSPolicyInactive").await;
        rig.until_endpoints(&rig.app, &[]).await;
        rig.at_rest().await;
        assert_eq!(rig.endpoints(&rig.app).await, std::collections::BTreeMap::new(), "nothing is published after that");
        // What is withdrawn already costs no further request.
        rig.proxy.forget();
        rig.merge("ServiceRoute", &rig.app, "api-route", json!({ "metadata": { "annotations": { "touched": "1" } } })).await;
        rig.merge("ServiceRoute", &rig.app, "api-route", json!({ "spec": { "environment": "dev" } })).await;
        rig.until("ServiceRoute", "api-route", "DNSPolicyInactive").await;
        rig.merge("ServiceRoute", &rig.app, "api-route", json!({ "spec": { "environment": "prod" } })).await;
        rig.until("ServiceRoute", "api-route", "DNSPolicyInactive").await;
        assert_eq!(rig.proxy.count(&http::Method::DELETE, "/dnsendpoints/"), 0, "{:#?}", rig.proxy.seen());
        rig.policy(json!({ "sourceRegion": "weu" })).await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
    }

    async fn deleting_a_route_deletes_its_endpoints_and_nothing_else(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.route("web").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until("ServiceRoute", "web-route", "ReconciliationSucceeded").await;
        rig.delete("ServiceRoute", &rig.app, "api-route").await;
        rig.until_endpoints(&rig.app, &[("web-route-external-dns-weu", &alias("web", "weu"))]).await;
        rig.until_hosts("gw", &[&rig.host("web")]).await;
    }

    async fn the_gateway_of_another_namespace_and_the_default_one_are_both_found(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let shared = rig.cluster.namespace("shared").await;
        let spec = json!({ "controller": "istio-external", "credentialName": "cert", "targetPostfix": "external" });
        rig.put("Gateway", &shared, "gw", json!({ "spec": spec })).await;
        rig.route("api").await;
        let mut there = crate::rig::route("web", "gw");
        there["gatewayNamespace"] = json!(shared);
        rig.put("ServiceRoute", &rig.app, "web-route", json!({ "spec": there })).await;
        let status = rig.until("ServiceRoute", "web-route", "ReconciliationSucceeded").await;
        assert_eq!(status["target"], "aks01-weu-external.example.com");
        let status = rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        assert_eq!(status["target"], "aks01-weu-internal.example.com");
    }

    async fn an_observed_generation_is_reported_on_the_route(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.read_route("api-route-external-dns-weu").await;
    }

    async fn a_singleton_of_another_name_works_with_a_notice(cluster) {
        let rig = Rig::new(cluster).await;
        rig.gateway("gw", "internal").await;
        rig.policy(json!({})).await;
        rig.put("ClusterIdentity", "", "clusteridentity-sample", json!({ "spec": identity("weu", &[]) })).await;
        rig.put("DNSConfiguration", "", "mine", json!({ "spec": configuration(&["weu"]) })).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        let status = rig.until_condition("ClusterIdentity", "", "clusteridentity-sample", "Notice", "UnusualName").await;
        assert_eq!(condition(&status, "Ready")["reason"], "ValidationSucceeded");
        rig.until_condition("DNSConfiguration", "", "mine", "Notice", "UnusualName").await;
        rig.until_event("", "mine", "UnusualName").await;
    }

    async fn the_first_statuses_are_those_of_the_documentation(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        let status = rig.until_condition("ClusterIdentity", "", "cluster-identity", "Ready", "ValidationSucceeded").await;
        assert_eq!(status["phase"], "Active");
        assert!(condition(&status, "Ready")["message"].as_str().unwrap().contains("ReconciliationSucceeded"), "upstream's reason is in the text");
        assert_eq!(condition(&status, "AdoptedRegionsValid")["reason"], "NoAdoptedRegions");
        rig.until_condition("DNSConfiguration", "", "dns-config", "Ready", "ConfigurationValid").await;
        rig.until("Gateway", "gw", "GatewayCreated").await;
        // The name and its addresses are another pass's.
        let status = rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        let name = (&status["hostname"], &status["loadBalancerIP"]);
        assert_eq!(name, (&json!("aks01-weu-internal.example.com"), &json!("10.123.45.67")));
    }
}
