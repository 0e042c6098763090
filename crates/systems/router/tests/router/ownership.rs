//! One owner per host and per object: the oldest stays, foreign objects are not touched, drift is repaired.

use kube::api::DeleteParams;
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
        // The name of the route, and another Gateway, are not concerned.
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.gateway("second", "external").await;
        rig.route_in(&rig.app, "web-route", "web", "second").await;
        rig.until_hosts("second", &[&rig.host("web")]).await;
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

    async fn edited_labels_of_a_gateways_endpoint_are_repaired_and_it_is_never_deleted(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        // Another gateway, which an edited label may name.
        rig.gateway("edge", "edge").await;
        rig.balancer("edge", json!([{ "ip": "10.0.0.9" }])).await;
        let (name, edge) = ("gateway-controller-istio-internal-internal-external-dns-weu", "gateway-controller-istio-edge-edge-external-dns-weu");
        let wanted = [(edge, "aks01-weu-edge.example.com A 10.0.0.9"), (name, "aks01-weu-internal.example.com A 10.123.45.67")];
        rig.until_endpoints(&rig.infra, &wanted).await;
        let right = json!({
            "app.kubernetes.io/managed-by": "service-router-operator", "router.io/controller": "external-dns-weu",
            "router.io/istio-controller": "istio-internal", "router.io/region": "weu",
            "router.io/resource-type": "gateway-service", "router.io/target-postfix": "internal",
        });
        for (restart, edit) in [
            (false, json!({ "router.io/istio-controller": "x" })),
            (false, json!({ "router.io/istio-controller": "istio-edge", "router.io/target-postfix": "edge" })),
            (false, json!({ "router.io/target-postfix": "x" })),
            (false, json!({ "router.io/controller": "x", "router.io/region": "x" })),
            (false, json!({ "router.io/resource-type": null })),
            (false, json!({ "app.kubernetes.io/managed-by": null })),
            (true, json!({ "router.io/istio-controller": "istio-edge" })),
            (true, json!({ "router.io/istio-controller": null, "router.io/target-postfix": "x" })),
        ] {
            if restart {
                rig.stop().await;
            }
            rig.merge("DNSEndpoint", &rig.infra, name, json!({ "metadata": { "labels": edit } })).await;
            if restart {
                rig.start().await;
            }
            eventually(&format!("{edit} is repaired"), PATIENCE, || async {
                let object = rig.get("DNSEndpoint", &rig.infra, name).await.unwrap();
                if object["metadata"]["labels"] == right { Ok(()) } else { Err(object) }
            }).await;
        }
        rig.settled().await;
        rig.until_endpoints(&rig.infra, &wanted).await;
        assert!(!rig.deletions().iter().any(|name| name.starts_with("gateway-controller")), "{:?}", rig.deletions());
    }

    async fn an_edited_label_does_not_hide_a_routes_endpoint(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        // While nothing can be published, so that nothing repairs it.
        rig.delete("Gateway", &rig.infra, "gw").await;
        rig.until("ServiceRoute", "api-route", "GatewayNotFound").await;
        let labels = json!({ "router.io/resource-type": "gateway-service", "router.io/controller": "x" });
        rig.merge("DNSEndpoint", &rig.app, "api-route-external-dns-weu", json!({ "metadata": { "labels": labels } })).await;
        rig.route("other").await;
        rig.until("ServiceRoute", "other-route", "GatewayNotFound").await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
        assert!(!rig.deletions().iter().any(|name| name.starts_with("api-route")), "an edited label is not a decision");
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "neu" })).await;
        rig.until_endpoints(&rig.app, &[]).await;
    }

    async fn the_first_by_name_of_two_routes_of_one_second_has_the_host(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.stop().await;
        let second = |object: serde_json::Value| object["metadata"]["creationTimestamp"].as_str().unwrap().to_owned();
        // UIDs are drawn, so several pairs: by UID one of them would have the other order.
        let services = ["one", "two", "three", "four", "five"];
        for service in services {
            let names = [format!("b-{service}"), format!("a-{service}")];
            eventually("two routes of one second", PATIENCE, || async {
                let mut seconds = Vec::new();
                for name in &names {
                    let _ = rig.api("ServiceRoute", &rig.app).delete(name, &kube::api::DeleteParams::default()).await;
                }
                for name in &names {
                    rig.route_in(&rig.app, name, service, "gw").await;
                    seconds.push(second(rig.get("ServiceRoute", &rig.app, name).await.unwrap()));
                }
                if seconds[0] == seconds[1] { Ok(()) } else { Err(seconds) }
            }).await;
        }
        rig.start().await;
        for service in services {
            rig.until("ServiceRoute", &format!("a-{service}"), "ReconciliationSucceeded").await;
            rig.until_refused("ServiceRoute", &rig.app, &format!("b-{service}"), "Ready", "HostConflict").await;
        }
        let names: Vec<String> = rig.endpoints(&rig.app).await.into_keys().collect();
        assert!(names.len() == services.len() && names.iter().all(|name| name.starts_with("a-")), "{names:?}");
    }

    async fn the_loser_of_a_host_withdraws_although_one_name_of_the_winner_is_foreign(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.stop().await;
        rig.route_in(&rig.app, "a-older", "api", "gw").await;
        rig.route_in(&rig.app, "b-younger", "api", "gw").await;
        // As the old operator left it: both routes are published.
        let route = rig.get("ServiceRoute", &rig.app, "b-younger").await.unwrap();
        let owner = json!([{ "apiVersion": "routing.router.io/v1alpha1", "kind": "ServiceRoute", "name": "b-younger",
            "uid": route["metadata"]["uid"], "controller": true }]);
        let labels = json!({ "app.kubernetes.io/managed-by": "service-router-operator", "router.io/controller": "external-dns-weu",
            "router.io/serviceroute": "b-younger" });
        let spec = json!({ "endpoints": [{ "dnsName": rig.host("api"), "recordType": "CNAME", "targets": ["old.example.com"] }] });
        let body = json!({ "metadata": { "labels": labels, "ownerReferences": owner }, "spec": spec });
        rig.put("DNSEndpoint", &rig.app, "b-younger-external-dns-weu", body).await;
        rig.put("DNSEndpoint", &rig.app, "a-older-external-dns-neu", json!({ "spec": spec })).await;
        rig.start().await;
        let status = rig.until_refused("ServiceRoute", &rig.app, "a-older", "Ready", "NameTaken").await;
        assert_eq!(status["dnsEndpoints"].as_array().map(Vec::len), Some(1), "the foreign object is not listed: {status}");
        rig.until("ServiceRoute", "b-younger", "HostConflict").await;
        rig.until_endpoints(&rig.app, &[
            ("a-older-external-dns-neu", &format!("{} CNAME old.example.com", rig.host("api"))),
            ("a-older-external-dns-weu", &alias("api", "weu")),
        ]).await;
    }

    async fn a_blocked_route_withdraws_its_old_host_when_another_route_has_it(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.gateway("second", "external").await;
        rig.route_in(&rig.app, "a-first", "api", "gw").await;
        rig.until("ServiceRoute", "a-first", "ReconciliationSucceeded").await;
        rig.route_in(&rig.app, "b-next", "api", "second").await;
        rig.until("ServiceRoute", "b-next", "HostConflict").await;
        // It asks for another host now, and cannot be published.
        rig.route_in(&rig.app, "a-first", "other", "nowhere").await;
        rig.until("ServiceRoute", "a-first", "GatewayNotFound").await;
        rig.until("ServiceRoute", "b-next", "ReconciliationSucceeded").await;
        let there = format!("{} CNAME aks01-weu-external.example.com", rig.host("api"));
        rig.until_endpoints(&rig.app, &[("b-next-external-dns-weu", &there)]).await;
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

    async fn an_endpoint_whose_label_was_removed_is_still_withdrawn(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu", "frc"]).await;
        rig.identity("weu", &["frc"]).await;
        rig.route("api").await;
        let gateway = |dns: &str| format!("gateway-controller-istio-internal-internal-{dns}");
        let (weu, frc) = (gateway("external-dns-weu"), gateway("external-dns-frc"));
        let address = "aks01-weu-internal.example.com A 10.123.45.67";
        rig.until_endpoints(&rig.infra, &[(&frc, address), (&weu, address)]).await;
        rig.until_endpoints(&rig.app, &[
            ("api-route-external-dns-frc", &alias("api", "weu")),
            ("api-route-external-dns-weu", &alias("api", "weu")),
        ]).await;
        rig.stop().await;
        let unlabelled = json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": null } } });
        rig.merge("DNSEndpoint", &rig.app, "api-route-external-dns-frc", unlabelled.clone()).await;
        rig.merge("DNSEndpoint", &rig.infra, &frc, unlabelled).await;
        rig.configuration(&["weu"]).await;
        rig.start().await;
        rig.until_endpoints(&rig.app, &[("api-route-external-dns-weu", &alias("api", "weu"))]).await;
        rig.until_endpoints(&rig.infra, &[(&weu, address)]).await;
    }

    async fn the_loser_of_a_host_withdraws_although_its_owner_is_blocked(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route_in(&rig.app, "a-owner", "api", "gw").await;
        rig.route_in(&rig.app, "b-loser", "web", "gw").await;
        rig.until("ServiceRoute", "a-owner", "ReconciliationSucceeded").await;
        rig.until("ServiceRoute", "b-loser", "ReconciliationSucceeded").await;
        // Both have a DNSEndpoint of the host, as late writes leave it, and the owner cannot be published again.
        rig.stop().await;
        rig.delete("Gateway", &rig.infra, "gw").await;
        let records = json!([{ "dnsName": rig.host("api"), "recordType": "CNAME", "targets": ["aks01-weu-internal.example.com"] }]);
        rig.merge("DNSEndpoint", &rig.app, "b-loser-external-dns-weu", json!({ "spec": { "endpoints": records } })).await;
        rig.route_in(&rig.app, "b-loser", "api", "gw").await;
        rig.start().await;
        rig.until("ServiceRoute", "a-owner", "GatewayNotFound").await;
        rig.until("ServiceRoute", "b-loser", "HostConflict").await;
        rig.until_endpoints(&rig.app, &[("a-owner-external-dns-weu", &alias("api", "weu"))]).await;
    }

    async fn a_foreign_object_does_not_withdraw_what_has_another_name(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let controllers = json!([{ "name": "c", "region": "weu" }, { "name": "b-c", "region": "weu" }]);
        rig.put("DNSConfiguration", "", "dns-config", json!({ "spec": { "externalDNSControllers": controllers } })).await;
        rig.route_in(&rig.app, "a", "one", "gw").await;
        rig.until("ServiceRoute", "a", "ReconciliationSucceeded").await;
        rig.route_in(&rig.app, "a-b", "two", "gw").await;
        rig.until("ServiceRoute", "a-b", "ReconciliationSucceeded").await;
        // The second one has another name, because the first has `a-b-c`. That becomes a foreign object's.
        rig.stop().await;
        rig.delete("ServiceRoute", &rig.app, "a").await;
        for name in ["a-b-c", "a-c"] {
            let _ = rig.api("DNSEndpoint", &rig.app).delete(name, &DeleteParams::default()).await;
        }
        rig.put("DNSEndpoint", &rig.app, "a-b-c", json!({ "spec": { "endpoints": [] } })).await;
        let deleted = rig.deletions();
        rig.start().await;
        rig.settled().await;
        rig.route_in(&rig.app, "a-b", "three", "gw").await;
        eventually("the route has its new host by both controllers", PATIENCE, || async {
            let have = rig.endpoints(&rig.app).await;
            let count = have.values().filter(|text| **text == alias("three", "weu")).count();
            if count == 2 { Ok(()) } else { Err(have) }
        }).await;
        let ours = |name: &String| name.starts_with("a-b") && name != "a-b-c" && !deleted.contains(name);
        let withdrawn: Vec<String> = rig.deletions().into_iter().filter(ours).collect();
        assert_eq!(withdrawn, [""; 0]);
        assert_eq!(rig.get("DNSEndpoint", &rig.app, "a-b-c").await.unwrap()["spec"]["endpoints"], json!([]));
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
