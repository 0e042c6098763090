//! Input that cannot be used: a reason on the object, an event, a metric, and neighbours that are not harmed. What the API server rejects gets
//! its answer, 422, which names the field: there is no object that could have a reason.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use signpost_testkit::{eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, foreign_crds, identity, route};

on_both! {
    async fn the_schema_rejects_what_can_never_work(cluster) {
        let rig = Rig::new(cluster).await;
        let mut bad: Vec<(&str, Value)> = Vec::new();
        for domain in ["nodots", "Example.COM", "example.com.", "a_b.example.com", "-a.example.com", ""] {
            let mut spec = identity("weu", &[]);
            spec["domain"] = json!(domain);
            bad.push(("ClusterIdentity", spec));
        }
        for (field, value) in [("region", ""), ("cluster", ""), ("environmentLetter", "dev"), ("environmentLetter", "")] {
            let mut spec = identity("weu", &[]);
            spec[field] = json!(value);
            bad.push(("ClusterIdentity", spec));
        }
        bad.push(("DNSConfiguration", json!({ "externalDNSControllers": [] })));
        for (name, region) in [("", "weu"), ("external-dns-weu", ""), ("External DNS", "weu"), ("a..b", "weu"), ("-a", "weu")] {
            bad.push(("DNSConfiguration", json!({ "externalDNSControllers": [{ "name": name, "region": region }] })));
        }
        bad.push(("Gateway", json!({ "controller": "c", "credentialName": "s", "targetPostfix": "In_ternal" })));
        bad.push(("Gateway", json!({ "controller": "", "credentialName": "s", "targetPostfix": "x" })));
        bad.push(("DNSPolicy", json!({ "mode": "RegionBound" })));
        bad.push(("DNSPolicy", json!({ "mode": "RegionBound", "sourceRegion": "" })));
        bad.push(("DNSPolicy", json!({ "mode": "Passive" })));
        for field in ["serviceName", "gatewayName", "environment", "application"] {
            let mut spec = route("api", "gw");
            spec[field] = json!("");
            bad.push(("ServiceRoute", spec));
        }
        for (kind, spec) in bad {
            let answer = rig.try_put(kind, &rig.app, "bad", json!({ "spec": spec })).await;
            assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 422), "{kind} {spec}: {answer:?}");
        }
        rig.put("DNSPolicy", &rig.app, "no-mode", json!({ "spec": {} })).await;
        rig.put("DNSPolicy", &rig.app, "empty", json!({ "spec": { "mode": "Active", "sourceRegion": "", "sourceCluster": "" } })).await;
    }

    /// The API server rejects such objects now, with 422. Those that it stored under an older definition are reported, and harm no neighbour.
    async fn what_an_older_definition_allowed_is_reported(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        let strict = signpost_apis::router::crds();
        rig.cluster.install(&strict.iter().map(without_rules).collect::<Vec<_>>()).await;
        rig.basics(&["weu"]).await;
        let with = |field: &str, value: &str, mut spec: Value| {
            spec[field] = json!(value);
            json!({ "spec": spec })
        };
        for field in ["serviceName", "environment", "application"] {
            let name = format!("no-{}", field.to_lowercase());
            eventually_put(&rig, "ServiceRoute", &rig.app, &name, with(field, "", route("api", "gw"))).await;
        }
        let gateway = json!({ "controller": "istio-bad", "credentialName": "cert", "targetPostfix": "bad" });
        rig.put("Gateway", &rig.infra, "postfix", with("targetPostfix", "In ternal", gateway.clone())).await;
        rig.put("Gateway", &rig.infra, "certificate", with("credentialName", "", gateway)).await;
        let other = rig.cluster.namespace("other").await;
        rig.put("DNSPolicy", &other, "policy", json!({ "spec": { "mode": "Passive" } })).await;
        rig.route_in(&other, "unread-route", "unread", "gw").await;
        // As upstream, such a policy is active in every cluster.
        let everywhere = rig.cluster.namespace("everywhere").await;
        rig.put("DNSPolicy", &everywhere, "policy", json!({ "spec": { "mode": "RegionBound" } })).await;
        rig.route_in(&everywhere, "all-route", "all", "gw").await;
        rig.cluster.install(&strict).await;
        rig.start().await;
        for field in ["servicename", "environment", "application"] {
            let status = rig.until_refused("ServiceRoute", &rig.app, &format!("no-{field}"), "Ready", "ValidationFailed").await;
            assert_eq!(status["phase"], "Failed");
        }
        rig.until_refused("Gateway", &rig.infra, "postfix", "Ready", "InvalidHost").await;
        rig.until_refused("Gateway", &rig.infra, "certificate", "Ready", "ValidationFailed").await;
        let status = rig.until_refused("ServiceRoute", &other, "unread-route", "Ready", "DNSPolicyNotFound").await;
        assert!(condition(&status, "Ready")["message"].to_string().contains("DNSPolicy policy"), "{status}");
        rig.until_condition("ServiceRoute", &everywhere, "all-route", "Ready", "ReconciliationSucceeded").await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_hosts("gw", &[&rig.host("all"), &rig.host("api"), &rig.host("unread")]).await;
    }

    async fn a_stored_route_that_cannot_be_read_stays_published_and_in_its_istio_gateway(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("web").await;
        rig.until_hosts("gw", &[&rig.host("web")]).await;
        rig.until("ServiceRoute", "web-route", "ReconciliationSucceeded").await;
        rig.stop().await;
        let strict = signpost_apis::router::crds();
        rig.cluster.install(&strict.iter().map(without_rules).collect::<Vec<_>>()).await;
        let mut unreadable = json!({ "spec": route("web", "gw") });
        unreadable["spec"].as_object_mut().unwrap().remove("application");
        eventually_put(&rig, "ServiceRoute", &rig.app, "web-route", unreadable).await;
        rig.cluster.install(&strict).await;
        rig.start().await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_hosts("gw", &[&rig.host("api"), &rig.host("web")]).await;
        assert!(rig.deletions().is_empty());
        // It is about its own host: others come and are removed, also from the Istio Gateway of another Gateway.
        rig.gateway("second", "external").await;
        rig.route_in(&rig.app, "old-route", "old", "second").await;
        rig.route("other").await;
        rig.until_hosts("second", &[&rig.host("old")]).await;
        rig.until_hosts("gw", &[&rig.host("api"), &rig.host("other"), &rig.host("web")]).await;
        rig.delete("ServiceRoute", &rig.app, "old-route").await;
        rig.delete("ServiceRoute", &rig.app, "other-route").await;
        rig.until_hosts("second", &[]).await;
        rig.until_hosts("gw", &[&rig.host("api"), &rig.host("web")]).await;
        rig.delete("ServiceRoute", &rig.app, "web-route").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
    }

    /// The same for the objects of which a cluster has one: nothing that is published is withdrawn.
    async fn a_stored_identity_or_configuration_that_cannot_be_used_keeps_what_is_published(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        let strict = signpost_apis::router::crds();
        for domain in ["a_b.example.com", "-", ""] {
            rig.stop().await;
            rig.cluster.install(&strict.iter().map(without_rules).collect::<Vec<_>>()).await;
            let mut spec = identity("weu", &[]);
            spec["domain"] = json!(domain);
            eventually_put(&rig, "ClusterIdentity", "", "cluster-identity", json!({ "spec": spec })).await;
            rig.cluster.install(&strict).await;
            rig.start().await;
            rig.until_refused("ClusterIdentity", "", "cluster-identity", "Ready", "InvalidSpec").await;
            rig.until_refused("ServiceRoute", &rig.app, "api-route", "Ready", "ClusterIdentityNotAvailable").await;
            rig.identity("weu", &[]).await;
            rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
            // Otherwise the next refusal would be the one that is in the status already, which is not reported again.
            rig.until_condition("ClusterIdentity", "", "cluster-identity", "Ready", "ValidationSucceeded").await;
        }
        rig.stop().await;
        rig.cluster.install(&strict.iter().map(without_rules).collect::<Vec<_>>()).await;
        eventually_put(&rig, "DNSConfiguration", "", "dns-config", json!({ "spec": { "externalDNSControllers": [] } })).await;
        rig.cluster.install(&strict).await;
        rig.start().await;
        rig.until_refused("DNSConfiguration", "", "dns-config", "Ready", "InvalidSpec").await;
        let status = rig.until_condition("DNSPolicy", &rig.app, "policy", "Ready", "DNSConfigurationNotAvailable").await;
        assert_eq!((&status["active"], &status["activeControllers"]), (&json!(true), &json!(["external-dns-weu"])), "as before");
        assert!(rig.deletions().is_empty());
    }

    async fn a_route_with_a_bad_host_is_reported_and_its_neighbour_is_served(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        for (name, service) in [("under", "a_b".to_owned()), ("blank", "a b".to_owned()), ("long", "a".repeat(60)), ("dots", "a..b".to_owned())] {
            rig.route_in(&rig.app, name, &service, "gw").await;
            let status = rig.until_refused("ServiceRoute", &rig.app, name, "Ready", "InvalidHost").await;
            assert_eq!(status["phase"], "Failed");
        }
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.route_in(&rig.app, "upper", "Web", "gw").await;
        let status = rig.until("ServiceRoute", "upper", "ReconciliationSucceeded").await;
        assert_eq!(status["hostname"], "web-ns-p-prod-myapp.example.com", "names are written in lower case");
    }

    async fn a_name_of_more_than_253_characters_is_refused(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let mut spec = identity("weu", &[]);
        spec["domain"] = json!(format!("{}com", "abcdefghi.".repeat(23)));
        rig.put("ClusterIdentity", "", "cluster-identity", json!({ "spec": spec })).await;
        rig.route("api-of-a-long-name").await;
        rig.until_refused("ServiceRoute", &rig.app, "api-of-a-long-name-route", "Ready", "InvalidHost").await;
        // A neighbour whose host fits is served.
        rig.route_in(&rig.app, "short", "a", "gw").await;
        let status = rig.until("ServiceRoute", "short", "ReconciliationSucceeded").await;
        assert!(status["hostname"].as_str().is_some_and(|host| host.len() <= 253), "{status}");
    }

    async fn a_gateway_of_a_namespace_that_does_not_exist_is_not_found(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let mut spec = route("api", "gw");
        spec["gatewayNamespace"] = json!("nowhere");
        rig.put("ServiceRoute", &rig.app, "api-route", json!({ "spec": spec })).await;
        let status = rig.until("ServiceRoute", "api-route", "GatewayNotFound").await;
        assert!(condition(&status, "Ready")["message"].to_string().contains("nowhere/gw"));
        rig.until_refused("ServiceRoute", &rig.app, "api-route", "Ready", "GatewayNotFound").await;
        rig.route("web").await;
        rig.until("ServiceRoute", "web-route", "ReconciliationSucceeded").await;
        rig.until_hosts("gw", &[&rig.host("web")]).await;
    }

    async fn duplicate_controllers_are_refused_and_what_is_published_is_kept(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        // Apart from the first, an older definition allowed them.
        let strict = signpost_apis::router::crds();
        rig.cluster.install(&strict.iter().map(without_rules).collect::<Vec<_>>()).await;
        for controllers in [
            json!([{ "name": "external-dns-weu", "region": "weu" }, { "name": "external-dns-weu", "region": "neu" }]),
            json!([{ "name": "", "region": "weu" }]),
            json!([{ "name": "external-dns-weu", "region": "" }]),
            json!([{ "name": "External DNS", "region": "weu" }]),
        ] {
            let body = json!({ "spec": { "externalDNSControllers": controllers } });
            eventually_put(&rig, "DNSConfiguration", "", "dns-config", body).await;
            rig.until_refused("DNSConfiguration", "", "dns-config", "Ready", "InvalidSpec").await;
        }
        rig.until("ServiceRoute", "api-route", "DNSConfigurationNotAvailable").await;
        assert!(rig.deletions().is_empty());
        rig.cluster.install(&strict).await;
        rig.configuration(&["weu"]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn an_adopted_region_without_a_controller_is_reported_and_prevents_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.identity("weu", &["frc"]).await;
        let status = rig.until_refused("ClusterIdentity", "", "cluster-identity", "AdoptedRegionsValid", "AdoptedRegionNotFound").await;
        assert_eq!((&status["phase"], &condition(&status, "Ready")["status"]), (&json!("Active"), &json!("True")));
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn a_gateway_that_istio_would_reject_is_reported(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.gateway("with.dot", "edge").await;
        rig.until_refused("Gateway", &rig.infra, "with.dot", "Ready", "ValidationFailed").await;
        let spec = json!({ "controller": "not a label", "credentialName": "cert", "targetPostfix": "third" });
        rig.put("Gateway", &rig.infra, "third", json!({ "spec": spec })).await;
        let status = rig.until_refused("Gateway", &rig.infra, "third", "Ready", "ValidationFailed").await;
        assert_eq!(status["phase"], "Failed");
        rig.route("api").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
    }

    async fn a_label_that_leaves_no_room_for_the_ownership_record_gets_a_notice(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        rig.config.txt_prefix_length = Some("weu-p-aks01-".len());
        rig.start().await;
        rig.basics(&["weu"]).await;
        let fits = "a".repeat(45 - "-ns-p-prod-myapp".len());
        rig.route_in(&rig.app, "fits", &fits, "gw").await;
        rig.route_in(&rig.app, "passes", &format!("{fits}a"), "gw").await;
        let status = rig.until("ServiceRoute", "fits", "ReconciliationSucceeded").await;
        assert!(condition(&status, "Notice").is_null());
        let status = rig.until_refused("ServiceRoute", &rig.app, "passes", "Notice", "TxtNameTooLong").await;
        assert_eq!(status["phase"], "Active");
    }

    async fn long_names_of_objects_are_cut_and_published(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let name = "r".repeat(253);
        rig.route_in(&rig.app, &name, "api", "gw").await;
        let status = rig.until("ServiceRoute", &name, "ReconciliationSucceeded").await;
        let child = status["dnsEndpoint"].as_str().unwrap().to_owned();
        assert!(child.len() <= 253 && child.ends_with("-external-dns-weu"), "{child}");
        // A name that is longer than the value of a label is reported as it is.
        let controller = format!("external-dns-{}", "w".repeat(60));
        let controllers = json!([{ "name": controller, "region": "weu" }]);
        rig.put("DNSConfiguration", "", "dns-config", json!({ "spec": { "externalDNSControllers": controllers } })).await;
        eventually("the controller is reported", PATIENCE, || async {
            let status = rig.get("ServiceRoute", &rig.app, &name).await.unwrap()["status"].clone();
            if status["dnsEndpoints"][0]["controller"] == json!(controller) { Ok(()) } else { Err(status) }
        }).await;
        rig.delete("ServiceRoute", &rig.app, &name).await;
        rig.until_endpoints(&rig.app, &[]).await;
    }
}

/// A definition as an older version had it: with the same fields, and without rules for their values.
fn without_rules(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    fn loosen(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                // A field may have the name of a rule: then it is an object itself.
                fields.retain(|name, rule| {
                    let rules = [
                        "pattern",
                        "minLength",
                        "maxLength",
                        "minItems",
                        "enum",
                        "required",
                        "x-kubernetes-validations",
                    ];
                    !rules.contains(&name.as_str()) || rule.is_object()
                });
                fields.values_mut().for_each(loosen);
            }
            Value::Array(items) => items.iter_mut().for_each(loosen),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(crd).unwrap();
    for version in value["spec"]["versions"].as_array_mut().unwrap() {
        loosen(&mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]);
    }
    serde_json::from_value(value).unwrap()
}

/// Puts an object once the API server has noticed the changed definition.
async fn eventually_put(rig: &Rig, kind: &str, namespace: &str, name: &str, body: Value) {
    eventually(&format!("{kind} {name} is accepted"), PATIENCE, || async {
        rig.try_put(kind, namespace, name, body.clone()).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// Kinds can be removed from a sandbox of one's own only.
mod missing_kinds {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_istio_names_are_published_and_readiness_names_the_kind() {
        let cluster = signpost_testkit::sandbox_cluster().await;
        let mut crds = foreign_crds(&cluster);
        let istio = crds.pop().unwrap();
        let rig = Rig::with_crds(cluster, crds).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_refused("Gateway", &rig.infra, "gw", "Ready", "KindNotInstalled").await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        let checks = rig.checks();
        let check = format!("{:?}", checks["kind gateways.networking.istio.io"]);
        assert!(check.contains("gateways.networking.istio.io is not installed"), "{check}");
        rig.cluster.install(&[istio]).await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.until("Gateway", "gw", "GatewayCreated").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_external_dns_gateways_are_made_and_names_follow_when_the_kind_appears() {
        let cluster = signpost_testkit::sandbox_cluster().await;
        let mut crds = foreign_crds(&cluster);
        let endpoint = crds.remove(0);
        let rig = Rig::with_crds(cluster, crds).await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        let status = rig.until_refused("ServiceRoute", &rig.app, "api-route", "Ready", "KindNotInstalled").await;
        assert_eq!(status["phase"], "Pending");
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "KindNotInstalled").await;
        rig.cluster.install(&[endpoint]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
    }
}
