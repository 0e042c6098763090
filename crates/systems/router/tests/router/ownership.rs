//! One owner per host and per object: the oldest stays, foreign objects are not touched, drift is repaired.

use serde_json::json;
use signpost_testkit::{eventually, on_both};

use crate::rig::{EDNS, PATIENCE, Rig, alias, condition};

on_both! {
    async fn the_older_of_two_routes_keeps_the_host_over_namespaces_and_gateways(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.gateway("second", "external").await;
        let other = rig.cluster.namespace("z-other").await;
        rig.put("DNSPolicy", &other, "policy", json!({ "spec": {} })).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        // The next second, so that age decides and not the UID.
        let before = rig.get("ServiceRoute", &rig.app, "api-route").await.unwrap()["metadata"]["creationTimestamp"].clone();
        eventually("a younger route exists", PATIENCE, || async {
            let _ = rig.api("ServiceRoute", &other).delete("thief", &kube::api::DeleteParams::default()).await;
            rig.route_in(&other, "thief", "api", "second").await;
            let thief = rig.get("ServiceRoute", &other, "thief").await.unwrap();
            if thief["metadata"]["creationTimestamp"] == before { Err(()) } else { Ok(()) }
        }).await;
        let status = rig.until_refused("ServiceRoute", &other, "thief", "Ready", "HostConflict").await;
        assert_eq!(status["phase"], "Failed");
        let message = condition(&status, "Ready")["message"].to_string();
        assert!(message.contains(&format!("ServiceRoute {}/api-route", rig.app)), "{message}");
        rig.route_in(&other, "neighbour", "web", "second").await;
        rig.until_hosts("second", &[&rig.host("web")]).await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        let there = format!("{} CNAME aks01-weu-external.example.com", rig.host("web"));
        rig.until_endpoints(&other, &[("neighbour-external-dns-weu", &there)]).await;
        // The younger one takes over when the older one is deleted.
        rig.delete("ServiceRoute", &rig.app, "api-route").await;
        rig.until_condition("ServiceRoute", &other, "thief", "Ready", "ReconciliationSucceeded").await;
        rig.until_hosts("second", &[&rig.host("api"), &rig.host("web")]).await;
        rig.until_hosts("gw", &[]).await;
    }

    async fn a_foreign_endpoint_of_the_name_is_not_touched(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        let theirs = json!({ "spec": { "endpoints": [{ "dnsName": "mine.example.com", "recordType": "A", "targets": ["192.0.2.1"] }] } });
        rig.put("DNSEndpoint", &rig.app, "api-route-external-dns-weu", theirs).await;
        rig.route("api").await;
        let status = rig.until_refused("ServiceRoute", &rig.app, "api-route", "Ready", "NameTaken").await;
        assert_eq!(status["phase"], "Failed");
        rig.until_endpoints(&rig.app, &[
            ("api-route-external-dns-neu", &alias("api", "weu")),
            ("api-route-external-dns-weu", "mine.example.com A 192.0.2.1"),
        ]).await;
        rig.delete("DNSEndpoint", &rig.app, "api-route-external-dns-weu").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_endpoints(&rig.app, &[
            ("api-route-external-dns-neu", &alias("api", "weu")),
            ("api-route-external-dns-weu", &alias("api", "weu")),
        ]).await;
    }

    async fn a_foreign_istio_gateway_of_the_name_is_not_touched(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let theirs = json!({ "selector": { "istio": "mine" }, "servers": [{
            "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": ["mine.example.com"],
        }] });
        rig.put("IstioGateway", &rig.infra, "gw", json!({ "spec": theirs })).await;
        rig.route("api").await;
        let status = rig.until_refused("Gateway", &rig.infra, "gw", "Ready", "NameTaken").await;
        assert_eq!(status["phase"], "Failed");
        rig.delete("ServiceRoute", &rig.app, "api-route").await;
        rig.until("Gateway", "gw", "NoServiceRoutes").await;
        assert_eq!(rig.get("IstioGateway", &rig.infra, "gw").await.unwrap()["spec"], theirs, "neither changed nor deleted");
        rig.route("api").await;
        rig.until("Gateway", "gw", "NameTaken").await;
        rig.delete("IstioGateway", &rig.infra, "gw").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.until("Gateway", "gw", "GatewayCreated").await;
    }

    async fn what_service_router_operator_left_is_taken_over(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        let route = rig.get("ServiceRoute", &rig.app, "api-route").await.unwrap();
        let labels = json!({
            "app.kubernetes.io/managed-by": "service-router-operator", "router.io/controller": "external-dns-weu",
            "router.io/region": "weu", "router.io/serviceroute": "api-route", "router.io/source-namespace": rig.app,
        });
        let owner = json!([{ "apiVersion": "routing.router.io/v1alpha1", "kind": "ServiceRoute", "name": "api-route",
            "uid": route["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true }]);
        for (name, target) in [("api-route-external-dns-weu", "old.example.com"), ("api-route-external-dns-old", "old.example.com")] {
            let body = json!({
                "metadata": { "labels": labels, "ownerReferences": owner },
                "spec": { "endpoints": [{ "dnsName": rig.host("api"), "recordType": "CNAME", "targets": [target] }] },
            });
            rig.put("DNSEndpoint", &rig.app, name, body).await;
        }
        let gateway = json!({ "app.kubernetes.io/managed-by": "service-router-operator", "router.io/resource-type": "gateway-service",
            "router.io/istio-controller": "istio-internal", "router.io/target-postfix": "internal", "router.io/region": "weu" });
        let name = "gateway-controller-istio-internal-internal-external-dns-weu";
        let spec = json!({ "endpoints": [{ "dnsName": "aks01-weu-internal.example.com", "recordType": "A", "targets": ["10.9.9.9"] }] });
        rig.put("DNSEndpoint", &rig.infra, name, json!({ "metadata": { "labels": gateway }, "spec": spec })).await;
        rig.start().await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
        rig.until_endpoints(&rig.infra, &[(name, "aks01-weu-internal.example.com A 10.123.45.67")]).await;
        let taken = rig.get("DNSEndpoint", &rig.infra, name).await.unwrap();
        assert_eq!(taken["metadata"]["annotations"][EDNS], "external-dns-weu", "both selectors of external-dns work for both kinds");
        assert_eq!(taken["metadata"]["labels"]["router.io/controller"], "external-dns-weu");
    }

    async fn drift_of_labels_annotations_and_spec_is_repaired_and_additions_are_kept(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        let name = "api-route-external-dns-weu";
        for patch in [
            json!({ "metadata": { "labels": { "router.io/region": "neu", "mine": "kept" } } }),
            json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": null } } }),
            json!({ "metadata": { "labels": { "router.io/serviceroute": "another" } } }),
            json!({ "metadata": { "annotations": { EDNS: "nobody" } } }),
            json!({ "spec": { "endpoints": [{ "dnsName": "x.example.com", "recordType": "A", "targets": ["192.0.2.1"] }] } }),
        ] {
            rig.merge("DNSEndpoint", &rig.app, name, patch.clone()).await;
            eventually(&format!("{patch} is repaired"), PATIENCE, || async {
                let object = rig.get("DNSEndpoint", &rig.app, name).await.unwrap();
                let labels = &object["metadata"]["labels"];
                let right = labels["router.io/region"] == "weu" && labels["app.kubernetes.io/managed-by"] == "service-router-operator"
                    && labels["router.io/serviceroute"] == "api-route" && labels["mine"] == "kept"
                    && object["metadata"]["annotations"][EDNS] == "external-dns-weu"
                    && crate::rig::records(&object) == alias("api", "weu");
                if right { Ok(()) } else { Err(object) }
            }).await;
        }
        for patch in [
            json!({ "metadata": { "labels": { "router.io/gateway": null } } }),
            json!({ "spec": { "selector": { "istio": "another" } } }),
            json!({ "spec": { "servers": [] } }),
        ] {
            rig.merge("IstioGateway", &rig.infra, "gw", patch.clone()).await;
            eventually(&format!("{patch} is repaired"), PATIENCE, || async {
                let object = rig.get("IstioGateway", &rig.infra, "gw").await.unwrap();
                let right = object["metadata"]["labels"]["router.io/gateway"] == "gw"
                    && object["spec"]["selector"]["istio"] == "istio-internal"
                    && object["spec"]["servers"][0]["hosts"] == json!([rig.host("api")]);
                if right { Ok(()) } else { Err(object) }
            }).await;
        }
        assert!(rig.deletions().is_empty());
    }

    async fn two_routes_whose_endpoint_names_collide_are_both_published(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let controllers = json!([{ "name": "c", "region": "weu" }, { "name": "b-c", "region": "weu" }]);
        rig.put("DNSConfiguration", "", "dns-config", json!({ "spec": { "externalDNSControllers": controllers } })).await;
        rig.route_in(&rig.app, "a", "one", "gw").await;
        rig.route_in(&rig.app, "a-b", "two", "gw").await;
        rig.until("ServiceRoute", "a", "ReconciliationSucceeded").await;
        rig.until("ServiceRoute", "a-b", "ReconciliationSucceeded").await;
        eventually("both are published twice", PATIENCE, || async {
            let have = rig.endpoints(&rig.app).await;
            let count = |service: &str| have.values().filter(|text| **text == alias(service, "weu")).count();
            if (count("one"), count("two")) == (2, 2) { Ok(()) } else { Err(have) }
        }).await;
    }

    async fn a_gateway_that_loses_its_name_keeps_it_until_the_winner_is_published(cluster) {
        let rig = Rig::new(cluster).await;
        let gateway = |postfix: &str| json!({ "spec": { "controller": "another", "credentialName": "cert", "targetPostfix": postfix } });
        rig.put("Gateway", &rig.infra, "a-older", gateway("other")).await;
        rig.basics(&["weu"]).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        rig.put("Gateway", &rig.infra, "a-older", gateway("internal")).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "HostConflict").await;
        rig.until_condition("Gateway", &rig.infra, "a-older", "DNSReady", "LoadBalancerIPPending").await;
        rig.settled().await;
        let host = "aks01-weu-internal.example.com";
        let before = format!("{host} A 10.123.45.67");
        rig.until_endpoints(&rig.infra, &[("gateway-controller-istio-internal-internal-external-dns-weu", &before)]).await;
        assert!(!rig.deletions().iter().any(|name| name.starts_with("gateway-controller")));
        let body = json!({
            "metadata": { "labels": { "istio": "another" } }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 443 }] },
        });
        rig.put("Service", &rig.infra, "another", body).await;
        rig.merge_status("Service", &rig.infra, "another", json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.9" }] } })).await;
        let after = format!("{host} A 10.0.0.9");
        rig.until_endpoints(&rig.infra, &[("gateway-controller-another-internal-external-dns-weu", &after)]).await;
    }

    async fn a_host_that_moves_to_an_older_route_is_served_until_that_one_is_published(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.gateway("second", "external").await;
        // The older route has another host at first, and a Gateway that does not exist.
        rig.route_in(&rig.app, "a-older", "other", "nowhere").await;
        rig.until("ServiceRoute", "a-older", "GatewayNotFound").await;
        let older = rig.get("ServiceRoute", &rig.app, "a-older").await.unwrap()["metadata"]["creationTimestamp"].clone();
        eventually("a younger route exists", PATIENCE, || async {
            let _ = rig.api("ServiceRoute", &rig.app).delete("api-route", &kube::api::DeleteParams::default()).await;
            // The garbage collector would delete the DNSEndpoint of the new route with that of the old one.
            rig.until_endpoints(&rig.app, &[]).await;
            rig.route("api").await;
            let route = rig.get("ServiceRoute", &rig.app, "api-route").await.unwrap();
            if route["metadata"]["creationTimestamp"] == older { Err(()) } else { Ok(()) }
        }).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.route_in(&rig.app, "a-older", "api", "nowhere").await;
        rig.until("ServiceRoute", "api-route", "HostConflict").await;
        rig.until("ServiceRoute", "a-older", "GatewayNotFound").await;
        rig.settled().await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        assert_eq!(rig.endpoints(&rig.app).await["api-route-external-dns-weu"], alias("api", "weu"), "still published");
        // Now the owner can serve it: the host moves, and the younger route withdraws.
        rig.route_in(&rig.app, "a-older", "api", "second").await;
        rig.until("ServiceRoute", "a-older", "ReconciliationSucceeded").await;
        let there = format!("{} CNAME aks01-weu-external.example.com", rig.host("api"));
        rig.until_endpoints(&rig.app, &[("a-older-external-dns-weu", &there)]).await;
        rig.until_hosts("second", &[&rig.host("api")]).await;
        rig.until_hosts("gw", &[]).await;
        rig.until_event_of("Normal", &rig.app, "api-route", "Withdrawn").await;
    }

    async fn another_service_of_the_label_takes_over_from_one_that_the_old_operator_named_controller(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        let name = "gateway-controller-istio-internal-internal-external-dns-weu";
        // As the old operator left it: the reference has another field manager.
        let service = rig.get("Service", &rig.infra, "istio-internal").await.unwrap();
        let owner = json!({ "apiVersion": "v1", "kind": "Service", "name": "istio-internal", "uid": service["metadata"]["uid"], "controller": true });
        rig.merge("DNSEndpoint", &rig.infra, name, json!({ "metadata": { "ownerReferences": [owner] } })).await;
        let body = json!({
            "metadata": { "labels": { "istio": "istio-internal" } }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 443 }] },
        });
        rig.put("Service", &rig.infra, "second", body).await;
        rig.merge_status("Service", &rig.infra, "second", json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.9" }] } })).await;
        rig.merge("Service", &rig.infra, "istio-internal", json!({ "spec": { "type": "ClusterIP" } })).await;
        rig.until_endpoints(&rig.infra, &[(name, "aks01-weu-internal.example.com A 10.0.0.9")]).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
    }

    async fn gateways_of_one_postfix_and_two_controllers_do_not_share_a_name(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        let spec = json!({ "controller": "another", "credentialName": "cert", "targetPostfix": "internal" });
        rig.put("Gateway", &rig.infra, "x-second", json!({ "spec": spec })).await;
        rig.until_condition("Gateway", &rig.infra, "x-second", "DNSReady", "HostConflict").await;
        let mut same = spec.clone();
        same["controller"] = json!("istio-internal");
        rig.put("Gateway", &rig.infra, "x-second", json!({ "spec": same })).await;
        rig.until_condition("Gateway", &rig.infra, "x-second", "DNSReady", "DNSEndpointsCreated").await;
        rig.delete("Gateway", &rig.infra, "x-second").await;
        rig.settled().await;
        assert_eq!(rig.endpoints(&rig.infra).await.len(), 1, "the other Gateway still needs it");
    }
}
