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

/// A publisher of one namespace, with its own entry in the registry.
async fn publisher_of(
    version: ExternalDnsVersion,
    rig: &Rig,
    namespace: &str,
    policy: &'static str,
) -> Option<Publisher> {
    let options =
        ExternalDnsOptions::new(&rig.zone, &format!("owner-{policy}")).with(format!("--txt-prefix={policy}-"));
    publisher(version, rig, namespace, ExternalDnsOptions { policy, ..options }).await
}

impl Rig {
    /// Publishes an address from a namespace, under the name of the policy there.
    async fn address_of(&mut self, (policy, namespace): (&str, &str), address: &str) {
        let own = std::mem::replace(&mut self.namespace, namespace.to_owned());
        self.publish(policy, json!([self.endpoint(policy, "A", &[address])])).await;
        self.namespace = own;
    }
}

/// What each policy may do: `sync` everything, `upsert-only` does not delete, `create-only` does not change either.
async fn policies(version: ExternalDnsVersion) {
    let Some(mut rig) = bed().await else { return };
    let mut all = Vec::new();
    for policy in ["sync", "upsert-only", "create-only"] {
        let namespace = rig.cluster.namespace(policy).await;
        let Some(publisher) = publisher_of(version, &rig, &namespace, policy).await else { return };
        all.push((policy, namespace, publisher));
    }
    for (policy, namespace, _) in &all {
        rig.address_of((policy, namespace), "192.0.2.1").await;
    }
    for (policy, ..) in &all {
        rig.until_served(policy, "A", &["192.0.2.1"]).await;
    }
    for (policy, namespace, publisher) in &mut all {
        rig.address_of((policy, namespace), "192.0.2.2").await;
        publisher.passes(6).await;
        let changed = if *policy == "create-only" { "192.0.2.1" } else { "192.0.2.2" };
        rig.until_served(policy, "A", &[changed]).await;
    }
    for (policy, namespace, publisher) in &mut all {
        let own = std::mem::replace(&mut rig.namespace, namespace.clone());
        rig.withdraw(policy).await;
        rig.namespace = own;
        publisher.passes(6).await;
        if *policy == "sync" {
            rig.until_missing(policy, "A").await;
            rig.until_missing(&format!("{policy}-a-{policy}"), "TXT").await;
        } else {
            assert!(rig.set(policy, "A").await.is_some(), "{policy} deletes nothing");
        }
    }
}

/// 0.22 does not start without a policy. Before, it is `sync`.
async fn without_a_policy(version: ExternalDnsVersion) {
    let Some(rig) = bed().await else { return };
    let options = ExternalDnsOptions::new(&rig.zone, "weu").with("--txt-prefix=weu-");
    let options = ExternalDnsOptions { policy: "", ..options };
    let Some(mut publisher) = publisher(version, &rig, &rig.namespace, options).await else { return };
    if version == ExternalDnsVersion::V22 {
        let ended = publisher.ends().await;
        assert!(ended.contains("policy"), "{ended}");
        return;
    }
    rig.publish("api", json!([rig.endpoint("api", "A", &["192.0.2.1"])])).await;
    rig.until_served("api", "A", &["192.0.2.1"]).await;
    rig.withdraw("api").await;
    rig.until_missing("api", "A").await;
}

/// What both versions make of one name in two objects, of an IPv6 address in an A record and of a trailing dot.
async fn odd_endpoints(version: ExternalDnsVersion) {
    let Some(rig) = bed().await else { return };
    let options = ExternalDnsOptions::new(&rig.zone, "weu").with("--txt-prefix=weu-");
    let Some(mut publisher) = publisher(version, &rig, &rig.namespace, options).await else { return };
    rig.publish("one", json!([rig.endpoint("both", "A", &["192.0.2.1"])])).await;
    rig.publish("two", json!([rig.endpoint("both", "A", &["192.0.2.2"])])).await;
    rig.publish("six", json!([rig.endpoint("six", "A", &["2001:db8::1"])])).await;
    rig.publish("dot", json!([rig.endpoint("dot", "CNAME", &["lb.example.org."])])).await;
    rig.until_served("both", "A", &["192.0.2.1", "192.0.2.2"]).await;
    rig.until_served("dot", "CNAME", &["lb.example.org."]).await;
    publisher.passes(6).await;
    assert!(rig.set("six", "A").await.is_none() && rig.set("six", "AAAA").await.is_none(), "it is dropped");
}

/// The registry's label has 63 bytes at most. A longer one is left out, and the record is never deleted. A prefix that ends in a dot has no limit.
async fn long_labels(version: ExternalDnsVersion) {
    let Some(mut rig) = bed().await else { return };
    let fits = "f".repeat(57);
    let (long, longest) = ("l".repeat(58), "m".repeat(63));
    let options = ExternalDnsOptions::new(&rig.zone, "plain");
    let Some(mut plain) = publisher(version, &rig, &rig.namespace, options).await else { return };
    let dotted = rig.cluster.namespace("dotted").await;
    let options = ExternalDnsOptions::new(&rig.zone, "dotted").with("--txt-prefix=%{record_type}-weu.");
    let Some(_dotted) = publisher(version, &rig, &dotted, options).await else { return };
    for (name, label) in [("fits", &fits), ("long", &long)] {
        rig.publish(name, json!([rig.endpoint(label, "CNAME", &["lb.example.org"])])).await;
    }
    for name in [&fits, &long] {
        rig.until_served(name, "CNAME", &["lb.example.org."]).await;
    }
    plain.passes(4).await;
    assert!(rig.set(&format!("cname-{fits}"), "TXT").await.is_some(), "63 bytes");
    rig.withdraw("fits").await;
    rig.withdraw("long").await;
    rig.until_missing(&fits, "CNAME").await;
    plain.passes(6).await;
    assert!(rig.set(&long, "CNAME").await.is_some(), "without an entry it has no owner, and is not deleted");

    rig.namespace = dotted;
    rig.publish("longest", json!([rig.endpoint(&longest, "CNAME", &["lb.example.org"])])).await;
    rig.until_served(&longest, "CNAME", &["lb.example.org."]).await;
    rig.withdraw("longest").await;
    rig.until_missing(&longest, "CNAME").await;
}

/// Different owner ids: the second cluster has nothing until the first one withdraws the name, and never with `upsert-only`.
async fn different_owners(version: ExternalDnsVersion) {
    let Some(mut rig) = bed().await else { return };
    for policy in ["sync", "upsert-only"] {
        let (one, two) = (rig.cluster.namespace("one").await, rig.cluster.namespace("two").await);
        let [of_one, of_two] = ["one", "two"].map(|owner| {
            let options = ExternalDnsOptions::new(&rig.zone, &format!("{policy}-{owner}"));
            ExternalDnsOptions { policy, ..options.with(format!("--txt-prefix={policy}-")) }
        });
        let Some(mut first) = publisher(version, &rig, &one, of_one).await else { return };
        rig.address_of((policy, &one), "192.0.2.1").await;
        rig.until_served(policy, "A", &["192.0.2.1"]).await;
        let Some(mut second) = publisher(version, &rig, &two, of_two).await else { return };
        rig.address_of((policy, &two), "192.0.2.2").await;
        second.passes(6).await;
        rig.until_served(policy, "A", &["192.0.2.1"]).await;
        let own = std::mem::replace(&mut rig.namespace, one);
        rig.withdraw(policy).await;
        rig.namespace = own;
        first.passes(6).await;
        second.passes(6).await;
        rig.until_served(policy, "A", &[if policy == "sync" { "192.0.2.2" } else { "192.0.2.1" }]).await;
    }
}

/// One registry and `sync`: the second cluster has the name, and each deletes what only the other one has.
async fn one_registry_with_sync(version: ExternalDnsVersion) {
    let Some((mut rig, second)) = two_clusters().await else { return };
    let options = || ExternalDnsOptions::new(&rig.zone, "weu").with("--txt-prefix=weu-");
    let (one, two) = (options(), options());
    let first = rig.namespace.clone();
    let old = publisher(version, &rig, &first, one).await;
    if old.is_none() {
        return;
    }
    publish_in(&mut rig, &first, "aks01.example.org").await;
    rig.publish("only", json!([rig.endpoint("only", "A", &["192.0.2.1"])])).await;
    rig.until_served("api", "CNAME", &["aks01.example.org."]).await;
    rig.until_served("only", "A", &["192.0.2.1"]).await;
    // The first one is stopped, so that the two do not change the name in turns.
    drop(old);
    let Some(_new) = publisher(version, &rig, &second, two).await else { return };
    publish_in(&mut rig, &second, "aks02.example.org").await;
    rig.until_served("api", "CNAME", &["aks02.example.org."]).await;
    rig.until_missing("only", "A").await;
}

/// Another key of the annotation: a running external-dns that filters by the old one keeps the name, and the next one deletes it.
async fn a_changed_annotation(version: ExternalDnsVersion) {
    let Some(rig) = bed().await else { return };
    let options = || ExternalDnsOptions::new(&rig.zone, "weu").with("--txt-prefix=weu-").with(annotation());
    let Some(mut first) = publisher(version, &rig, &rig.namespace, options()).await else { return };
    let endpoints = json!([rig.endpoint("api", "A", &["192.0.2.1"])]);
    rig.publish_as("api", of_region("weu"), endpoints.clone()).await;
    rig.until_served("api", "A", &["192.0.2.1"]).await;
    let metadata = json!({ "annotations": { "external-dns.kubernetes.io/controller": "external-dns-weu" } });
    rig.publish_as("api", metadata, endpoints).await;
    first.passes(6).await;
    assert!(rig.set("api", "A").await.is_some(), "it is not noticed before a restart");
    drop(first);
    let Some(_second) = publisher(version, &rig, &rig.namespace, options()).await else { return };
    rig.until_missing("api", "A").await;
}

with_external_dns! {
    a_chain_is_published_by_label => |version| a_chain(version, label());
    a_chain_is_published_by_annotation => |version| a_chain(version, annotation());
    an_address_cannot_become_an_alias_in_one_step => one_step_is_refused;
    separate_prefixes_do_not_take_over => separate_prefixes_never_take_over;
    a_shared_registry_hands_over_without_a_gap => one_registry_hands_over_without_a_gap;
    what_external_dns_owns_is_left_until_it_is_taken_over => the_operator_beside_it;
    a_policy_decides_what_is_changed_and_deleted => policies;
    a_policy_is_required_since_0_22 => without_a_policy;
    addresses_of_two_objects_are_joined_and_odd_targets_are_dropped => odd_endpoints;
    a_long_label_has_no_owner_unless_the_prefix_ends_in_a_dot => long_labels;
    different_owners_do_not_take_over => different_owners;
    one_registry_with_sync_deletes_the_names_of_the_other_cluster => one_registry_with_sync;
    a_changed_annotation_is_a_deletion_at_the_next_start => a_changed_annotation;
}
