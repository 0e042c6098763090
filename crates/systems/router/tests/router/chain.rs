//! From a route to an answer, with real parts only: kube-apiserver, this system, external-dns 0.22 and 0.21, PowerDNS, DNS queries. Then two
//! control planes in two regions on one zone.

use std::net::SocketAddr;

use serde_json::{Value, json};
use signpost_testkit::{
    Backend, ExternalDnsOptions, ExternalDnsVersion, PowerDns, PowerDnsOptions, Prober, Publisher, dig, eventually,
    real_cluster, second_real_cluster, with_external_dns,
};

use crate::rig::{EDNS, PATIENCE, Rig, host, identity};

const ZONE: &str = "example.com";
const WEU: &str = "aks01-weu-internal.example.com";
const NEU: &str = "aks02-neu-internal.example.com";

/// A PowerDNS with the zone of the routes. `None` when it is not installed.
async fn server() -> Option<PowerDns> {
    let server = PowerDns::start(Backend::Sqlite, PowerDnsOptions::default()).await?;
    server.add_zone(ZONE).await;
    Some(server)
}

async fn until_served(dns: SocketAddr, name: &str, rtype: &str, wanted: &[&str]) {
    eventually(&format!("{name} {rtype} is answered with {wanted:?}"), PATIENCE, || async {
        let answer = dig(dns, name, rtype).await;
        if answer.records == wanted { Ok(()) } else { Err(answer) }
    })
    .await;
}

impl Rig {
    /// Waits until external-dns has read a DNSEndpoint of the route, as the status of the route reports it.
    async fn until_observed(&self, route: &str, endpoint: &str) {
        eventually(&format!("{endpoint} is observed"), PATIENCE, || async {
            let route = self.get("ServiceRoute", &self.app, route).await.unwrap();
            let endpoints = route["status"]["dnsEndpoints"].as_array().cloned().unwrap_or_default();
            let observed = endpoints.iter().any(|have| have["name"] == endpoint && have["observed"] == true);
            if observed { Ok(()) } else { Err(endpoints) }
        })
        .await;
    }
}

/// A route's alias and its gateway's addresses, published through one of the selectors; then everything that may become of them.
async fn a_chain(version: ExternalDnsVersion, selector: &str, controller: &str) {
    let Some(cluster) = real_cluster().await else { return };
    let Some(server) = server().await else { return };
    let rig = Rig::new(cluster).await;
    let options = ExternalDnsOptions::new(ZONE, "external-dns-weu").with("--txt-prefix=weu-").with(selector);
    // As in the documentation of service-router-operator.
    let options =
        options.with("--crd-source-apiversion=externaldns.k8s.io/v1alpha1").with("--crd-source-kind=DNSEndpoint");
    let started = Publisher::start(version, &rig.cluster.kubeconfig(), &server, &options).await;
    let Some(mut publisher) = started else { return };
    let (dns, api) = (server.dns_addr(), host("api"));
    let configure = async |more: &[Value]| {
        let controllers: Vec<Value> =
            [json!({ "name": controller, "region": "weu" })].iter().chain(more).cloned().collect();
        let body = json!({ "spec": { "externalDNSControllers": controllers } });
        rig.put("DNSConfiguration", "", "dns-config", body).await;
    };
    rig.identity("weu", &[]).await;
    configure(&[]).await;
    rig.gateway("gw", "internal").await;
    rig.balancer("internal", json!([{ "ip": "192.0.2.1" }, { "ip": "2001:db8::1" }])).await;
    rig.policy(json!({ "mode": "Active" })).await;
    rig.route("api").await;
    until_served(dns, &api, "CNAME", &[&format!("{WEU}.")]).await;
    until_served(dns, WEU, "A", &["192.0.2.1"]).await;
    until_served(dns, &api, "A", &["192.0.2.1"]).await;
    until_served(dns, &api, "AAAA", &["2001:db8::1"]).await;
    rig.until_observed("api-route", &format!("api-route-{controller}")).await;
    let owner = dig(dns, &format!("weu-cname-{api}"), "TXT").await;
    assert!(owner.records.concat().contains("external-dns/owner=external-dns-weu"), "{owner:?}");

    // The records of another controller are not selected. They come after the others: external-dns 0.22 with an annotation filter may
    // publish nothing where such an object exists at its start.
    configure(&[json!({ "name": "external-dns-neu", "region": "neu" })]).await;
    rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
    let neu = "api-route-external-dns-neu";
    eventually("the other region's DNSEndpoint exists", PATIENCE, || async {
        rig.get("DNSEndpoint", &rig.app, neu).await.map(drop).ok_or(())
    })
    .await;

    // The load balancer gets another address: one record changes, and there is an answer at every moment.
    let prober = Prober::start(dns, api.clone(), "A");
    prober.until("192.0.2.1").await;
    rig.balancer("internal", json!([{ "ip": "192.0.2.2" }, { "ip": "2001:db8::1" }])).await;
    prober.until("192.0.2.2").await;
    publisher.passes(4).await;
    assert_eq!(prober.stop().await, [["192.0.2.1"], ["192.0.2.2"]], "no gap and no other answer");
    let other = rig.get("DNSEndpoint", &rig.app, neu).await.unwrap();
    assert!(other["status"]["observedGeneration"].is_null(), "not selected: {other}");

    // A load balancer with a host name, and back: each change of type in two steps, because PowerDNS refuses both types at one name.
    rig.balancer("internal", json!([{ "hostname": "lb.example.net" }])).await;
    until_served(dns, WEU, "CNAME", &["lb.example.net."]).await;
    rig.balancer("internal", json!([{ "ip": "192.0.2.3" }])).await;
    until_served(dns, &api, "A", &["192.0.2.3"]).await;
    until_served(dns, &api, "CNAME", &[&format!("{WEU}.")]).await;

    // A deleted route is withdrawn with its entry in the registry; the gateway's name stays.
    rig.delete("ServiceRoute", &rig.app, "api-route").await;
    until_served(dns, &api, "CNAME", &[]).await;
    until_served(dns, &format!("weu-cname-{api}"), "TXT", &[]).await;
    until_served(dns, WEU, "A", &["192.0.2.3"]).await;
    publisher.must_run();
}

/// One of two clusters, each with its own API server, operator and external-dns of the region neu.
struct Region {
    rig: Rig,
    /// The namespace of the RegionBound route.
    admin: String,
    publisher: Publisher,
}

impl Region {
    async fn start(
        rig: Rig,
        version: ExternalDnsVersion,
        server: &PowerDns,
        (region, name): (&str, &str),
        address: &str,
    ) -> Option<Self> {
        // One registry for both clusters, and nothing is deleted: docs/external-dns.md, "Take a name over between clusters".
        let options = ExternalDnsOptions::new(ZONE, "external-dns-neu").with("--txt-prefix=neu-");
        let options =
            ExternalDnsOptions { policy: "upsert-only", ..options }.with("--label-filter=router.io/region=neu");
        let publisher = Publisher::start(version, &rig.cluster.kubeconfig(), server, &options).await?;
        let mut spec = identity(region, &[]);
        spec["cluster"] = json!(name);
        rig.put("ClusterIdentity", "", "cluster-identity", json!({ "spec": spec })).await;
        rig.configuration(&["weu", "neu"]).await;
        rig.gateway("gw", "internal").await;
        rig.balancer("internal", json!([{ "ip": address }])).await;
        rig.policy(json!({ "mode": "Active" })).await;
        let admin = rig.cluster.namespace("admin").await;
        let region = Self { rig, admin, publisher };
        region.bind("weu").await;
        Some(region)
    }

    /// Binds the namespace `admin` to a region.
    async fn bind(&self, region: &str) {
        let spec = json!({ "mode": "RegionBound", "sourceRegion": region });
        self.rig.put("DNSPolicy", &self.admin, "policy", json!({ "spec": spec })).await;
    }

    async fn routes(&self) {
        self.rig.route("shop").await;
        self.rig.route_in(&self.admin, "admin-route", "admin", "gw").await;
    }

    async fn adopts(&self, regions: &[&str]) {
        let patch = json!({ "spec": { "adoptsRegions": regions } });
        self.rig.merge("ClusterIdentity", "", "cluster-identity", patch).await;
    }

    /// Waits until a namespace has no DNSEndpoint of the region neu, and external-dns knows that.
    async fn until_withdrawn(&mut self, namespace: &str) {
        eventually("the region neu is withdrawn", PATIENCE, || async {
            let left = self.rig.endpoints(namespace).await;
            if left.keys().any(|name| name.ends_with("-external-dns-neu")) { Err(left) } else { Ok(()) }
        })
        .await;
        self.publisher.passes(6).await;
    }
}

/// Two control planes in two regions share the zone that clients of neu use. A region is adopted and handed back, the mode of a namespace is
/// switched and switched back, and a bound namespace moves, always in the order "the old cluster withdraws, the new one publishes". A prober sees no gap and no other answer.
async fn two_regions(version: ExternalDnsVersion) {
    let Some(cluster) = real_cluster().await else { return };
    let Some(second) = second_real_cluster().await else { return };
    let Some(server) = server().await else { return };
    let (dns, shop, admin) = (server.dns_addr(), host("shop"), host("admin"));
    let (weu, neu) = (Rig::new(cluster).await, Rig::beside(second).await);
    let Some(mut weu) = Region::start(weu, version, &server, ("weu", "aks01"), "192.0.2.1").await else { return };
    let Some(mut neu) = Region::start(neu, version, &server, ("neu", "aks02"), "192.0.2.2").await else { return };
    weu.routes().await;
    neu.routes().await;

    // Active: clients of neu reach neu. RegionBound to weu: they reach weu, and the other cluster publishes nothing.
    until_served(dns, WEU, "A", &["192.0.2.1"]).await;
    until_served(dns, NEU, "A", &["192.0.2.2"]).await;
    until_served(dns, &shop, "CNAME", &[&format!("{NEU}.")]).await;
    until_served(dns, &admin, "CNAME", &[&format!("{WEU}.")]).await;
    neu.rig.until_condition("ServiceRoute", &neu.admin, "admin-route", "Ready", "DNSPolicyInactive").await;
    assert!(neu.rig.endpoints(&neu.admin).await.is_empty(), "a RegionBound policy of another region publishes nothing");
    let (asks_shop, asks_admin) = (Prober::start(dns, shop.clone(), "A"), Prober::start(dns, admin.clone(), "A"));
    asks_shop.until("192.0.2.2").await;
    asks_admin.until("192.0.2.1").await;

    // weu adopts neu.
    neu.rig.policy(json!({ "mode": "Active", "sourceRegion": "weu" })).await;
    let app = neu.rig.app.clone();
    neu.until_withdrawn(&app).await;
    weu.adopts(&["neu"]).await;
    asks_shop.until("192.0.2.1").await;
    weu.rig.until_observed("shop-route", "shop-route-external-dns-neu").await;

    // The region is handed back.
    weu.adopts(&[]).await;
    let app = weu.rig.app.clone();
    weu.until_withdrawn(&app).await;
    assert!(weu.rig.endpoints(&app).await.contains_key("shop-route-external-dns-weu"), "the own region stays");
    neu.rig.policy(json!({ "mode": "Active" })).await;
    asks_shop.until("192.0.2.2").await;

    // The policy of both clusters is switched from Active to RegionBound: clients of neu reach weu. And back.
    let bound = json!({ "mode": "RegionBound", "sourceRegion": "weu" });
    neu.rig.policy(bound.clone()).await;
    neu.rig.until("ServiceRoute", "shop-route", "DNSPolicyInactive").await;
    let app = neu.rig.app.clone();
    neu.until_withdrawn(&app).await;
    assert!(neu.rig.endpoints(&app).await.is_empty());
    weu.rig.policy(bound).await;
    asks_shop.until("192.0.2.1").await;
    let status = weu.rig.until("DNSPolicy", "policy", "PolicyActive").await;
    assert_eq!(status["activeControllers"], json!(["external-dns-weu", "external-dns-neu"]));
    weu.rig.policy(json!({ "mode": "Active" })).await;
    let app = weu.rig.app.clone();
    weu.until_withdrawn(&app).await;
    neu.rig.policy(json!({ "mode": "Active" })).await;
    asks_shop.until("192.0.2.2").await;

    // The bound namespace moves to neu.
    weu.bind("neu").await;
    let namespace = weu.admin.clone();
    weu.until_withdrawn(&namespace).await;
    neu.bind("neu").await;
    asks_admin.until("192.0.2.2").await;
    weu.publisher.passes(4).await;
    neu.publisher.passes(4).await;
    let (here, there) = (["192.0.2.2"], ["192.0.2.1"]);
    assert_eq!(asks_shop.stop().await, [here, there, here, there, here], "no gap and no other answer");
    assert_eq!(asks_admin.stop().await, [["192.0.2.1"], ["192.0.2.2"]], "no gap and no other answer");
}

with_external_dns! {
    a_route_is_served_through_the_label_filter =>
        async |version| a_chain(version, "--label-filter=router.io/region=weu", "external-dns-weu").await;
    // A controller may have any name: the annotation has it as it is.
    a_route_is_served_through_the_annotation_filter =>
        async |version| a_chain(version, &format!("--annotation-filter={EDNS}=zone.west"), "zone.west").await;
    two_regions_on_one_zone_hand_names_over_without_a_gap => two_regions;
}
