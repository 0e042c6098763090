//! The real external-dns on a real API server and a real `pdns_server`: what it does with DNSEndpoints, and what this operator does beside it.
//!
//! DNSEndpoints are made by hand here, with the labels and annotations of the router. A namespace represents a cluster.

use serde_json::{Value, json};
use signpost_system_powerdns::EndpointSource;
use signpost_testkit::{
    ExternalDnsOptions, ExternalDnsVersion, PowerDns, Prober, Publisher, dig, real_cluster, with_external_dns,
};

use crate::{
    endpoints::{install_crd, rig_with},
    rig::Rig,
};

/// An external-dns that publishes the objects of a namespace in the zone of the rig. `None` when it is not installed.
async fn publisher(
    version: ExternalDnsVersion,
    rig: &Rig,
    namespace: &str,
    options: ExternalDnsOptions,
) -> Option<Publisher> {
    let server = PowerDns::shared_sqlite().await?;
    let options = options.with(format!("--namespace={namespace}"));
    Publisher::start(version, &rig.cluster.kubeconfig(), server, &options).await
}

const REGION: &str = "router.io/region";
const CONTROLLER: &str = "external-dns.alpha.kubernetes.io/controller";

/// The metadata that the router gives its DNSEndpoints.
fn of_region(region: &str) -> Value {
    json!({
        "labels": { REGION: region, "app.kubernetes.io/managed-by": "service-router-operator" },
        "annotations": { CONTROLLER: format!("external-dns-{region}") },
    })
}

async fn bed() -> Option<Rig> {
    let cluster = real_cluster().await?;
    install_crd(&cluster).await?;
    let rig = Rig::new(cluster).await?;
    rig.zone().await;
    Some(rig)
}

/// A route's alias and its gateway's addresses, published through one of the selectors; then everything that may become of them.
async fn a_chain(version: ExternalDnsVersion, selector: String) {
    let Some(rig) = bed().await else { return };
    let options = ExternalDnsOptions::new(&rig.zone, "external-dns-weu").with("--txt-prefix=weu-").with(selector);
    let Some(mut publisher) = publisher(version, &rig, &rig.namespace, options).await else { return };
    let gateway = |address: &[&str]| {
        json!([rig.endpoint("aks01-weu", "A", address), rig.endpoint("aks01-weu", "AAAA", &["2001:db8::1"])])
    };
    let target = rig.fqdn("aks01-weu");
    let alias = json!([rig.endpoint("api", "CNAME", &[target.trim_end_matches('.')])]);
    rig.publish_as("gateway-weu", of_region("weu"), gateway(&["192.0.2.1"])).await;
    rig.publish_as("route-weu", of_region("weu"), alias.clone()).await;
    rig.until_served("api", "CNAME", &[&target]).await;
    rig.until_served("api", "A", &["192.0.2.1"]).await;
    rig.until_served("api", "AAAA", &["2001:db8::1"]).await;
    // After the others: external-dns 0.22 with an annotation filter may publish nothing where such an object exists at its start.
    rig.publish_as("route-neu", of_region("neu"), json!([rig.endpoint("elsewhere", "A", &["192.0.2.66"])])).await;
    let registry = rig.set("weu-cname-api", "TXT").await.unwrap();
    assert!(registry.contents[0].contains("external-dns/owner=external-dns-weu"), "{registry:?}");
    let observed = rig.endpoints().get("route-weu").await.unwrap();
    assert!(observed.is_observed(), "{:?}", observed.status);
    assert!(rig.set("elsewhere", "A").await.is_none(), "not selected");

    // The load balancer gets another address: one record changes, the alias stays.
    let prober = Prober::start(rig.dns, rig.fqdn("api"), "A");
    prober.until("192.0.2.1").await;
    rig.publish_as("gateway-weu", of_region("weu"), gateway(&["192.0.2.2"])).await;
    prober.until("192.0.2.2").await;
    let answers = prober.stop().await;
    assert_eq!(answers, [["192.0.2.1"], ["192.0.2.2"]], "no gap and no other answer");

    // A load balancer with a host name: withdrawn, seen to be withdrawn, published as an alias. In one step PowerDNS refuses the mix.
    rig.withdraw("gateway-weu").await;
    rig.until_missing("aks01-weu", "A").await;
    rig.until_missing("aks01-weu", "AAAA").await;
    let hosted = json!([rig.endpoint("aks01-weu", "CNAME", &["lb.example.org"])]);
    rig.publish_as("gateway-weu", of_region("weu"), hosted).await;
    rig.until_served("aks01-weu", "CNAME", &["lb.example.org."]).await;

    // A deleted route is withdrawn with its entry in the registry; its neighbours stay.
    rig.withdraw("route-weu").await;
    rig.until_missing("api", "CNAME").await;
    rig.until_missing("weu-cname-api", "TXT").await;
    rig.until_served("aks01-weu", "CNAME", &["lb.example.org."]).await;
    publisher.must_run();
    assert!(rig.set("elsewhere", "A").await.is_none());
}

fn label() -> String {
    format!("--label-filter={REGION}=weu")
}

fn annotation() -> String {
    format!("--annotation-filter={CONTROLLER}=external-dns-weu")
}

/// An address that becomes an alias in one edit is what external-dns cannot do on PowerDNS: the router takes two steps because of this.
async fn one_step_is_refused(version: ExternalDnsVersion) {
    let Some(rig) = bed().await else { return };
    let options = ExternalDnsOptions::new(&rig.zone, "weu").with("--txt-prefix=weu-");
    let Some(mut publisher) = publisher(version, &rig, &rig.namespace, options).await else { return };
    rig.publish("gateway", json!([rig.endpoint("gw", "A", &["192.0.2.1"])])).await;
    rig.until_served("gw", "A", &["192.0.2.1"]).await;
    rig.publish("gateway", json!([rig.endpoint("gw", "CNAME", &["lb.example.org"])])).await;
    publisher.passes(8).await;
    assert!(rig.set("gw", "CNAME").await.is_none(), "when this fails, the router no longer needs two steps");
    rig.until_served("gw", "A", &["192.0.2.1"]).await;
}

/// Two clusters, one zone. Returns the rig, whose namespace is the first cluster, and the namespace of the second.
async fn two_clusters() -> Option<(Rig, String)> {
    let rig = bed().await?;
    let second = rig.cluster.namespace("aks02").await;
    Some((rig, second))
}

async fn publish_in(rig: &mut Rig, namespace: &str, target: &str) {
    let own = std::mem::replace(&mut rig.namespace, namespace.to_owned());
    let alias = json!([rig.endpoint("api", "CNAME", &[target])]);
    rig.publish("api", alias).await;
    rig.namespace = own;
}

/// The documented take-over: the same owner id, a prefix for each cluster. It never happens, because a TXT record without its own prefix
/// tells an external-dns nothing.
async fn separate_prefixes_never_take_over(version: ExternalDnsVersion) {
    let Some((mut rig, second)) = two_clusters().await else { return };
    let options =
        |prefix: &str| ExternalDnsOptions::new(&rig.zone, "external-dns-weu").with(format!("--txt-prefix={prefix}"));
    let (one, two) = (options("aks01-"), options("aks02-"));
    let Some(_first) = publisher(version, &rig, &rig.namespace, one).await else { return };
    let first = rig.namespace.clone();
    publish_in(&mut rig, &first, "aks01.example.org").await;
    rig.until_served("api", "CNAME", &["aks01.example.org."]).await;
    let Some(mut other) = publisher(version, &rig, &second, two).await else { return };
    publish_in(&mut rig, &second, "aks02.example.org").await;
    other.passes(8).await;
    rig.until_served("api", "CNAME", &["aks01.example.org."]).await;
    // Only when the first gives the name up, the second has it: with a gap between the two.
    rig.withdraw("api").await;
    rig.until_served("api", "CNAME", &["aks02.example.org."]).await;
}

/// The take-over that works: one registry for both clusters (the same owner id and the same prefix) and `upsert-only`, so that neither
/// deletes the names of the other. The old cluster withdraws, the new one publishes; the record is never missing.
async fn one_registry_hands_over_without_a_gap(version: ExternalDnsVersion) {
    let Some((mut rig, second)) = two_clusters().await else { return };
    let options = || {
        let options = ExternalDnsOptions::new(&rig.zone, "external-dns-weu").with("--txt-prefix=weu-");
        ExternalDnsOptions { policy: "upsert-only", ..options }
    };
    let (one, two) = (options(), options());
    let Some(mut old) = publisher(version, &rig, &rig.namespace, one).await else { return };
    let Some(_new) = publisher(version, &rig, &second, two).await else { return };
    let first = rig.namespace.clone();
    publish_in(&mut rig, &first, "aks01.example.org").await;
    rig.until_served("api", "CNAME", &["aks01.example.org."]).await;
    let prober = Prober::start(rig.dns, rig.fqdn("api"), "CNAME");
    prober.until("aks01.example.org.").await;
    rig.withdraw("api").await;
    old.passes(4).await;
    publish_in(&mut rig, &second, "aks02.example.org").await;
    prober.until("aks02.example.org.").await;
    old.passes(4).await;
    let answers = prober.stop().await;
    assert_eq!(answers, [["aks01.example.org."], ["aks02.example.org."]], "no gap, and no way back");
}

/// This operator publishes DNSEndpoints beside an external-dns: it leaves the names of external-dns alone, and takes them over on request, while external-dns runs.
async fn the_operator_beside_it(version: ExternalDnsVersion) {
    let Some(cluster) = real_cluster().await else { return };
    let Some(mut rig) = rig_with(cluster, |_| {}).await else { return };
    let theirs = rig.cluster.namespace("theirs").await;
    let options = ExternalDnsOptions::new(&rig.zone, "weu").with("--txt-prefix=weu-");
    let Some(mut publisher) = publisher(version, &rig, &theirs, options).await else { return };
    rig.stop().await;
    publish_in(&mut rig, &theirs, "aks01.example.org").await;
    rig.until_served("api", "CNAME", &["aks01.example.org."]).await;
    rig.start();
    let first = rig.namespace.clone();
    publish_in(&mut rig, &first, "aks02.example.org").await;
    rig.until_told("api", "ForeignRecord", &["api.", "\"weu\"", "weu-cname-api"]).await;
    assert_eq!(dig(rig.dns, &rig.fqdn("api"), "CNAME").await.records, ["aks01.example.org."]);
    rig.stop().await;
    rig.set_pace(|pace| pace.endpoints = Some(EndpointSource { take_over: true, ..EndpointSource::default() }));
    let prober = Prober::start(rig.dns, rig.fqdn("api"), "CNAME");
    prober.until("aks01.example.org.").await;
    rig.start();
    prober.until("aks02.example.org.").await;
    rig.until_missing("weu-cname-api", "TXT").await;
    publisher.passes(8).await;
    let answers = prober.stop().await;
    assert_eq!(
        answers,
        [["aks01.example.org."], ["aks02.example.org."]],
        "no gap, and external-dns does not take it back"
    );
}

with_external_dns! {
    a_chain_is_published_by_label => |version| a_chain(version, label());
    a_chain_is_published_by_annotation => |version| a_chain(version, annotation());
    an_address_cannot_become_an_alias_in_one_step => one_step_is_refused;
    separate_prefixes_do_not_take_over => separate_prefixes_never_take_over;
    a_shared_registry_hands_over_without_a_gap => one_registry_hands_over_without_a_gap;
    what_external_dns_owns_is_left_until_it_is_taken_over => the_operator_beside_it;
}
