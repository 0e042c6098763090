//! Input about gateways and load balancers that cannot be used, and kinds that are not installed.

use serde_json::{Value, json};
use signpost_testkit::{Fault, Rule, eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, foreign_crds, identity};

const NAME: &str = "gateway-controller-istio-internal-internal-external-dns-weu";
const HOST: &str = "aks01-weu-internal.example.com";

on_both! {
    async fn a_foreign_endpoint_of_a_gateways_name_is_not_touched(cluster) {
        let rig = Rig::new(cluster).await;
        rig.put("DNSEndpoint", &rig.infra, NAME, json!({ "spec": { "endpoints": [
            { "dnsName": "mine.example.com", "recordType": "A", "targets": ["192.0.2.1"] },
        ] } })).await;
        rig.basics(&["weu", "neu"]).await;
        let status = rig.until_refused("Gateway", &rig.infra, "gw", "DNSReady", "NameTaken").await;
        assert!(condition(&status, "DNSReady")["message"].as_str().unwrap().contains(NAME), "{status}");
        let address = format!("{HOST} A 10.123.45.67");
        let neighbour = NAME.replace("weu", "neu");
        rig.until_endpoints(&rig.infra, &[(&neighbour, &address), (NAME, "mine.example.com A 192.0.2.1")]).await;
        // Routes do not depend on it.
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.delete("DNSEndpoint", &rig.infra, NAME).await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        rig.until_endpoints(&rig.infra, &[(&neighbour, &address), (NAME, &address)]).await;
    }

    async fn a_gateway_whose_name_is_too_long_is_reported_and_its_neighbour_is_served(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        // `aks01-weu-` and 54 characters are a label of 64.
        rig.gateway("long", &"a".repeat(54)).await;
        let status = rig.until_refused("Gateway", &rig.infra, "long", "Ready", "InvalidHost").await;
        assert_eq!(status["phase"], "Failed");
        rig.until_condition("Gateway", &rig.infra, "long", "DNSReady", "InvalidHost").await;
        rig.route_in(&rig.app, "lost", "lost", "long").await;
        rig.until_refused("ServiceRoute", &rig.app, "lost", "Ready", "InvalidHost").await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;

        // More than 253 characters with the domain: every gateway reports it, and what is published is kept.
        let mut spec = identity("weu", &[]);
        spec["domain"] = json!(format!("{}com", "abcdefghi.".repeat(24)));
        rig.put("ClusterIdentity", "", "cluster-identity", json!({ "spec": spec })).await;
        rig.until_refused("Gateway", &rig.infra, "gw", "Ready", "InvalidHost").await;
        rig.until_endpoints(&rig.infra, &[(NAME, &format!("{HOST} A 10.123.45.67"))]).await;
        rig.identity("weu", &[]).await;
        rig.until("Gateway", "gw", "GatewayCreated").await;
        assert!(rig.deletions().is_empty(), "{:?}", rig.deletions());
    }

    async fn a_hundred_mixed_entrances_are_published_by_their_kind(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let real = rig.cluster.is_real();
        let point = |n: usize| match n % 5 {
            0 => json!({ "ip": format!("10.0.1.{n}") }),
            1 => json!({ "ip": format!("2001:db8::{n:x}") }),
            2 => json!({ "hostname": format!("lb{n}.example.net") }),
            // A real API server does not accept the rest.
            _ if real => json!({ "ip": format!("10.0.2.{n}") }),
            3 => json!({ "ip": "not an address", "hostname": "also ignored" }),
            _ => json!({ "hostname": "-bad-.example.net" }),
        };
        let points: Vec<Value> = (0..100).map(point).collect();
        rig.balancer("internal", json!(points)).await;
        let (v4, v6) = (if real { 60 } else { 20 }, 20);
        eventually("every usable address is published", PATIENCE, || async {
            let endpoint = rig.get("DNSEndpoint", &rig.infra, NAME).await.unwrap_or_default();
            let records = endpoint["spec"]["endpoints"].as_array().cloned().unwrap_or_default();
            let counts: Vec<_> = records.iter()
                .map(|record| (record["recordType"].as_str().unwrap().to_owned(), record["targets"].as_array().unwrap().len())).collect();
            if counts == [("A".to_owned(), v4), ("AAAA".to_owned(), v6)] { Ok(()) } else { Err(counts) }
        }).await;
        // The rest is counted: host names beside addresses, and what is neither.
        let status = rig.until_refused("Gateway", &rig.infra, "gw", "Notice", "AddressesLeftOut").await;
        let message = condition(&status, "Notice")["message"].to_string();
        assert!(message.contains(&format!("{} of the addresses", 100 - v4 - v6)), "{message}");
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        rig.route("api").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    }

    async fn host_names_of_load_balancers_are_one_name_in_every_spelling(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        // A real API server accepts the plain spelling only.
        let spellings: &[&str] = if rig.cluster.is_real() { &["lb.example.net"] } else { &["LB.Example.NET", "lb.example.net.", "LB.EXAMPLE.NET."] };
        for spelling in spellings {
            rig.balancer("internal", json!([{ "hostname": spelling }])).await;
            rig.until_endpoints(&rig.infra, &[(NAME, &format!("{HOST} CNAME lb.example.net"))]).await;
            eventually("the status has the name", PATIENCE, || async {
                let status = rig.get("Gateway", &rig.infra, "gw").await.unwrap()["status"].clone();
                if status["addresses"] == json!(["lb.example.net"]) { Ok(()) } else { Err(status) }
            }).await;
        }
        for bad in if rig.cluster.is_real() { &[][..] } else { &["-", "a..b", "*.example.net", "under_score!.example.net"] } {
            rig.balancer("internal", json!([{ "hostname": bad }])).await;
            let status = rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
            assert!(condition(&status, "DNSReady")["message"].as_str().unwrap().contains("1 cannot"), "{status}");
            rig.until_refused("Gateway", &rig.infra, "gw", "Notice", "AddressesLeftOut").await;
            rig.until_endpoints(&rig.infra, &[(NAME, &format!("{HOST} CNAME lb.example.net"))]).await;
        }
        assert!(rig.deletions().is_empty());
    }

    async fn a_kind_that_is_not_installed_is_named_by_readiness_and_followed(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        let [endpoint, istio]: [_; 2] = foreign_crds(&rig.cluster).try_into().unwrap();
        rig.remove_kinds(&[&endpoint, &istio]).await;
        rig.start().await;
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.until_refused("ServiceRoute", &rig.app, "api-route", "Ready", "KindNotInstalled").await;
        rig.until_refused("Gateway", &rig.infra, "gw", "Ready", "KindNotInstalled").await;
        for kind in ["gateways.networking.istio.io", "dnsendpoints.externaldns.k8s.io"] {
            let check = format!("{:?}", rig.checks()[&format!("kind {kind}")]);
            assert!(check.contains(&format!("{kind} is not installed")), "{check}");
        }
        rig.cluster.install(&[endpoint]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        rig.cluster.install(&[istio]).await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        eventually("it is ready", PATIENCE, || async {
            let ready = rig.checks().values().all(|check| *check == signpost_engine::health::Check::Ok);
            if ready { Ok(()) } else { Err(rig.checks()) }
        }).await;
    }

    async fn new_objects_whose_writes_fail_report_what_they_wait_for(cluster) {
        let mut rig = Rig::new(cluster).await;
        // All of it is there when the operator starts, so that the first report is about the write.
        rig.stop().await;
        rig.proxy.add(Rule::every(Fault::status(500)).method(http::Method::PATCH).path("/dnsendpoints/"));
        rig.basics(&["weu"]).await;
        rig.route("api").await;
        rig.start().await;
        let status = rig.until("ServiceRoute", "api-route", "DNSEndpointGenerationFailed").await;
        assert_eq!(status["phase"], "Pending");
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.until("Gateway", "gw", "GatewayCreated").await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointGenerationFailed").await;
        rig.proxy.clear();
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
    }

    async fn the_name_of_a_gateway_that_leaves_no_room_for_the_ownership_record_gets_a_notice(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.stop().await;
        rig.config.txt_prefix_length = Some("weu-p-aks01-".len());
        rig.start().await;
        rig.basics(&["weu"]).await;
        // 47 bytes: room for `a-`, and not for `aaaa-`.
        let postfix = "p".repeat(47 - "aks01-weu-".len());
        rig.gateway("long", &postfix).await;
        rig.balancer(&postfix, json!([{ "ip": "10.0.0.1" }])).await;
        let status = rig.until_condition("Gateway", &rig.infra, "long", "DNSReady", "DNSEndpointsCreated").await;
        assert!(condition(&status, "Notice").is_null(), "{status}");
        rig.balancer(&postfix, json!([{ "ip": "10.0.0.1" }, { "ip": "2001:db8::1" }])).await;
        rig.until_refused("Gateway", &rig.infra, "long", "Notice", "TxtNameTooLong").await;
        // A registry without that limit.
        rig.stop().await;
        rig.config.txt_prefix_length = None;
        rig.start().await;
        eventually("the notice ends", PATIENCE, || async {
            let status = rig.get("Gateway", &rig.infra, "long").await.unwrap()["status"].clone();
            if condition(&status, "Notice").is_null() { Ok(()) } else { Err(status) }
        }).await;
    }

    async fn a_region_that_is_not_the_value_of_a_label_gets_a_notice(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        let controllers = json!([{ "name": "external-dns-weu", "region": "weu" }, { "name": "other", "region": "North Europe" }]);
        rig.put("DNSConfiguration", "", "dns-config", json!({ "spec": { "externalDNSControllers": controllers } })).await;
        let status = rig.until_refused("DNSConfiguration", "", "dns-config", "Notice", "LabelDiffers").await;
        assert_eq!(condition(&status, "Ready")["status"], "True");
        let name = "gateway-controller-istio-internal-internal-other";
        let endpoint = eventually("its DNSEndpoint exists", PATIENCE, || async {
            rig.get("DNSEndpoint", &rig.infra, name).await.ok_or(())
        }).await;
        let label = endpoint["metadata"]["labels"]["router.io/region"].as_str().unwrap().to_owned();
        assert!(condition(&status, "Notice")["message"].as_str().unwrap().contains(&label), "{status}");
    }
}
