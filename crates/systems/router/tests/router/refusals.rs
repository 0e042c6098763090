//! Input that cannot be used: a reason on the object, an event, and neighbours that are not harmed.

use serde_json::{Value, json};
use signpost_testkit::on_both;

use crate::rig::{Rig, condition, foreign_crds, identity, route};

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

    async fn a_route_with_a_bad_host_is_told_and_its_neighbour_is_served(cluster) {
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
        for controllers in [
            json!([{ "name": "external-dns-weu", "region": "weu" }, { "name": "external-dns-weu", "region": "neu" }]),
            json!([{ "name": "", "region": "weu" }]),
            json!([{ "name": "external-dns-weu", "region": "" }]),
            json!([{ "name": "External DNS", "region": "weu" }]),
        ] {
            rig.put("DNSConfiguration", "", "dns-config", json!({ "spec": { "externalDNSControllers": controllers } })).await;
            rig.until_refused("DNSConfiguration", "", "dns-config", "Ready", "InvalidSpec").await;
        }
        rig.until("ServiceRoute", "api-route", "DNSConfigurationNotAvailable").await;
        assert!(rig.deletions().is_empty());
        rig.configuration(&["weu"]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn an_adopted_region_without_a_controller_is_told_and_prevents_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.identity("weu", &["frc"]).await;
        let status = rig.until_refused("ClusterIdentity", "", "cluster-identity", "AdoptedRegionsValid", "AdoptedRegionNotFound").await;
        assert_eq!((&status["phase"], &condition(&status, "Ready")["status"]), (&json!("Active"), &json!("True")));
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn a_gateway_that_istio_would_reject_is_told(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        rig.gateway("with.dot", "edge").await;
        rig.until_refused("Gateway", &rig.infra, "with.dot", "Ready", "ValidationFailed").await;
        let spec = json!({ "controller": "not a label", "credentialName": "cert", "targetPostfix": "third" });
        rig.put("Gateway", &rig.infra, "third", json!({ "spec": spec })).await;
        let status = rig.until("Gateway", "third", "ValidationFailed").await;
        assert_eq!(status["phase"], "Failed");
        rig.route("api").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
    }

    async fn a_label_that_leaves_no_room_for_the_ownership_record_gets_a_notice(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        rig.config.txt_prefix_length = "weu-p-aks01-".len();
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
        rig.delete("ServiceRoute", &rig.app, &name).await;
        rig.until_endpoints(&rig.app, &[]).await;
    }
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
        let status = rig.until_refused("Gateway", &rig.infra, "gw", "Ready", "KindNotInstalled").await;
        assert_eq!(condition(&status, "DNSReady")["reason"], "DNSEndpointsCreated");
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
