//! Every system projects its names into one inventory: what is wanted, published and refused, and why.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use signpost_apis::{externaldns, istio, portal, powerdns, router};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_engine::metrics::Metrics;
use signpost_engine::{Operator, OperatorOptions};
use signpost_inventory::{Inventory, Stage, View};
use signpost_provider_pangolin::{Domain, DomainId, DomainKind, MemoryPangolin, Site, SiteId, SiteKind};
use signpost_provider_pihole::{MemoryPihole, OwnerId};
use signpost_provider_powerdns::MemoryServer;
use signpost_provider_resolver::Memory;
use signpost_testkit::{eventually, sandbox_cluster};
use tokio_util::sync::CancellationToken;

mod served;

const PATIENCE: Duration = Duration::from_mins(2);

fn api(client: &Client, namespace: Option<&str>, kind: &str) -> Api<DynamicObject> {
    let (group, version, plural) = match kind {
        "ClusterZone" => (powerdns::GROUP, "v1alpha2", "clusterzones"),
        "RRset" => (powerdns::GROUP, "v1alpha2", "rrsets"),
        "Ingress" => ("networking.k8s.io", "v1", "ingresses"),
        "Service" => ("", "v1", "services"),
        "ClusterIdentity" => (router::CLUSTER_GROUP, "v1alpha1", "clusteridentities"),
        "DNSConfiguration" => (router::CLUSTER_GROUP, "v1alpha1", "dnsconfigurations"),
        "Gateway" => (router::ROUTING_GROUP, "v1alpha1", "gateways"),
        "DNSPolicy" => (router::ROUTING_GROUP, "v1alpha1", "dnspolicies"),
        "DNS" => (portal::GROUP, "v1alpha1", "dns"),
        "Portal" => (portal::GROUP, "v1alpha1", "portals"),
        "ServiceRoute" => (router::ROUTING_GROUP, "v1alpha1", "serviceroutes"),
        other => panic!("{other} is not a kind of this test"),
    };
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version,
        kind: kind.into(),
        plural: plural.into(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn put(client: &Client, namespace: Option<&str>, kind: &str, name: &str, mut body: Value) {
    let api = api(client, namespace, kind);
    let object = DynamicObject::new(name, &resource_of(&api, kind));
    let types = serde_json::to_value(&object).unwrap();
    body["apiVersion"] = types["apiVersion"].clone();
    body["kind"] = types["kind"].clone();
    body["metadata"]["name"] = json!(name);
    api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&body)).await.unwrap();
}

fn resource_of(api: &Api<DynamicObject>, kind: &str) -> ApiResource {
    let path = api.resource_url().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let api_version = if parts[0] == "apis" { format!("{}/{}", parts[1], parts[2]) } else { "v1".to_owned() };
    ApiResource { group: String::new(), version: String::new(), api_version, kind: kind.into(), plural: String::new() }
}

/// `system name type [targets] stage reason`.
fn line(view: &View) -> String {
    let rtype = view.rtype().map_or("-".to_owned(), |rtype| rtype.as_str().to_owned());
    let targets = view.targets().iter().collect::<Vec<_>>().join(",");
    let reason = view.refusal().map_or("", |refusal| refusal.reason);
    let line = format!(
        "{} {} {rtype} [{targets}] {} {reason}",
        view.owner().system,
        view.name().undotted(),
        view.stage().as_str()
    );
    line.trim_end().to_owned()
}

async fn shows(inventory: &Inventory, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|line| (*line).to_owned()).collect();
    eventually("the names of every system", PATIENCE, || async {
        let seen: BTreeSet<String> = inventory.snapshot().iter().map(|view| line(view)).collect();
        if seen == expected { Ok(()) } else { Err(seen) }
    })
    .await;
}

fn pangolin() -> MemoryPangolin {
    let base = Fqdn::parse("apps.example.org").unwrap();
    let domain = Domain { id: DomainId("d".into()), base, kind: DomainKind::Wildcard, verified: true };
    let (nice_id, name) = ("cluster".to_owned(), "cluster".to_owned());
    let site = Site { id: SiteId(1), nice_id, name, kind: SiteKind::Newt, online: Some(true) };
    MemoryPangolin::new(vec![domain], vec![site])
}

/// Every system, with servers in memory.
fn install_all(operator: &mut Operator, namespace: &str, resolver: Arc<Memory>, inventory: &Arc<Inventory>) {
    let pace = signpost_system_powerdns::Pace::default();
    signpost_system_powerdns::install_with(operator, Arc::new(MemoryServer::new()), pace);
    let policy = signpost_system_pihole::Policy::new(OwnerId::parse("names").unwrap(), "192.0.2.80".parse().unwrap());
    let instance = signpost_system_pihole::Instance::new("home", Arc::new(MemoryPihole::new()));
    signpost_system_pihole::install_instances(operator, policy, vec![instance]);
    let policy = signpost_system_pangolin::Policy { owner: Some("names".into()), ..Default::default() };
    signpost_system_pangolin::install_api(operator, policy, Arc::new(pangolin()));
    signpost_system_router::install(
        operator,
        signpost_system_router::RouterConfig { gateway_namespace: namespace.to_owned(), ..Default::default() },
    );
    // A name that is not as expected is looked up again after an hour, or when what publishes it has changed.
    let hour = Duration::from_hours(1);
    let pace = signpost_system_portal::Pace {
        namespace: namespace.to_owned(),
        refresh: hour,
        again: hour,
        verify: true,
        ..Default::default()
    };
    signpost_system_portal::install_with(operator, resolver, inventory, pace);
}

/// A route with everything that it needs.
async fn create_route(client: &kube::Client, here: Option<&str>) {
    let identity =
        json!({ "spec": { "region": "weu", "cluster": "aks01", "domain": "example.com", "environmentLetter": "p" } });
    put(client, None, "ClusterIdentity", "cluster-identity", identity).await;
    let controllers = json!([{ "name": "external-dns-weu", "region": "weu" }]);
    put(client, None, "DNSConfiguration", "dns-config", json!({ "spec": { "externalDNSControllers": controllers } }))
        .await;
    let gateway =
        json!({ "spec": { "controller": "internal", "credentialName": "cert", "targetPostfix": "internal" } });
    put(client, here, "Gateway", "gw", gateway).await;
    put(client, here, "DNSPolicy", "policy", json!({ "spec": { "mode": "Active" } })).await;
    let route =
        json!({ "spec": { "serviceName": "api", "gatewayName": "gw", "environment": "prod", "application": "myapp" } });
    put(client, here, "ServiceRoute", "api", route).await;
}

/// `photos` moves to another portal and group, is left out, and comes back.
async fn annotations_decide_where_a_name_is_shown(
    client: &kube::Client,
    here: Option<&str>,
    inventory: &Inventory,
    ingress: impl Fn(Value) -> Value,
) {
    let is_shown = async |name: &str, expected: Option<&str>| {
        let name = Fqdn::parse(name).unwrap();
        eventually(&format!("{name} is shown in {expected:?}"), PATIENCE, || async {
            let snapshot = inventory.snapshot();
            let mut views = snapshot.get(&name).filter(|view| view.stage() == Stage::Published);
            let place = views.next().map(|view| {
                let provenance = view.provenance();
                format!("{}/{}", provenance.portals.join(","), provenance.groups.join(","))
            });
            if place.as_deref() == expected { Ok(()) } else { Err(place) }
        })
        .await;
    };
    let annotate = async |more: Value| put(client, here, "Ingress", "photos", ingress(more)).await;
    is_shown("www.example.org", Some("main/Services")).await;
    is_shown("photos.home.arpa", Some("main/Services")).await;
    put(client, here, "Portal", "team", json!({ "spec": { "title": "Team" } })).await;
    annotate(json!({ "sreportal.io/groups": "Web", "sreportal.io/portal": "team" })).await;
    is_shown("photos.home.arpa", Some("team/Web")).await;
    annotate(json!({ "sreportal.io/ignore": "true" })).await;
    is_shown("photos.home.arpa", None).await;
    annotate(json!({})).await;
    is_shown("photos.home.arpa", Some("main/Services")).await;
    is_shown("www.example.org", Some("main/Services")).await;
}

/// `www` is served, and `again` is refused.
async fn served_is_beside_ready(rrsets: &Api<DynamicObject>) {
    eventually("the record set is ready and served, each with its own owner", PATIENCE, || async {
        let status = rrsets.get("www").await.unwrap().data["status"].clone();
        let conditions: Vec<String> = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| format!("{}={} {}", c["type"], c["status"], c["reason"]).replace('"', ""))
            .collect();
        let has = |text: &str| conditions.iter().any(|condition| condition.starts_with(text));
        if has("Ready=True ") && has("Served=True Match") { Ok(()) } else { Err(conditions) }
    })
    .await;
    let again = rrsets.get("again").await.unwrap().data["status"].to_string();
    assert!(!again.contains("Served"), "what is refused is not served: {again}");
}

fn rrset(name: &str, rtype: &str, record: &str) -> Value {
    json!({ "spec": { "type": rtype, "name": name, "ttl": 60, "records": [record],
        "zoneRef": { "name": "example.org", "kind": "ClusterZone" } } })
}

fn ingress(annotation: (&str, &str), class: Option<&str>, host: &str) -> Value {
    json!({ "metadata": { "annotations": { annotation.0: annotation.1 } }, "spec": { "ingressClassName": class,
        "rules": [{ "host": host, "http": { "paths": [{ "path": "/", "pathType": "Prefix",
            "backend": { "service": { "name": "shop", "port": { "number": 80 } } } }] } }] } })
}

fn answers(resolver: &Memory, name: &str, address: &str) {
    let value = Rdata::parse(&RecordType::A, address).unwrap();
    resolver.set(&Fqdn::parse(name).unwrap(), RecordType::A, vec![value]);
}

/// What was published is looked up, and a DNS object with the same name is judged again when it is published.
async fn published_names_are_looked_up(client: &Client, here: Option<&str>, inventory: &Inventory, resolver: &Memory) {
    let status = |system: &str, name: &str| {
        let (snapshot, name) = (inventory.snapshot(), Fqdn::parse(name).unwrap());
        let views = snapshot.get(&name).filter(|view| view.owner().system == system && view.stage() != Stage::Refused);
        views.map(|view| view.status().as_str()).collect::<Vec<_>>().join(" ")
    };
    let has = async |system: &str, name: &str, expected: &str| {
        eventually(&format!("{system} {name} is {expected}"), PATIENCE, || async {
            let seen = status(system, name);
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    };
    has("powerdns", "www.example.org", "sync").await;
    served_is_beside_ready(&api(client, here, "RRset")).await;
    has("pihole", "photos.home.arpa", "notFound").await;
    let entries = json!([{ "fqdn": "new.example.org", "recordType": "A", "targets": ["192.0.2.9"] }]);
    let groups = json!([{ "name": "all", "entries": entries }]);
    put(client, here, "DNS", "team", json!({ "spec": { "portalRef": "main", "groups": groups } })).await;
    has("portal", "new.example.org", "notFound").await;
    answers(resolver, "new.example.org", "192.0.2.9");
    put(client, here, "RRset", "new", rrset("new", "A", "192.0.2.9")).await;
    has("powerdns", "new.example.org", "sync").await;
    has("portal", "new.example.org", "sync").await;
}

/// Names, conflicts and lookups are counted. `www` and `new` are in sync, and `www` is wanted by two objects.
async fn metrics_count_names_and_lookups(metrics: &Metrics) {
    eventually("the metrics of names", PATIENCE, || async {
        let text = metrics.encode();
        let sum = |parts: &[&str]| -> f64 {
            let lines = text.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        let in_sync = sum(&["signpost_names{", "system=\"powerdns\"", "status=\"sync\"", "rtype=\"A\""]);
        let conflicts = sum(&["signpost_name_conflicts "]);
        let oldest = sum(&["signpost_name_check_oldest_timestamp_seconds "]);
        let lookups = |result: &str| sum(&["signpost_portal_lookups_total{", "resolver=\"memory\"", result]);
        let answered = lookups("\"NOERROR\"") >= 1.0 && lookups("\"NXDOMAIN\"") >= 1.0;
        let counted = (1.5..2.5).contains(&in_sync) && (0.5..1.5).contains(&conflicts);
        if counted && answered && oldest > 1.7e9 { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_system_projects_what_it_wants_published_and_refused() {
    let cluster = sandbox_cluster().await;
    let crds = [powerdns::crds(), portal::crds(), router::crds(), vec![externaldns::crd(), istio::crd()]].concat();
    cluster.install(&crds).await;
    let (client, namespace) = (cluster.client(), cluster.namespace("names").await);
    let inventory = Arc::new(Inventory::new());
    let mut operator = Operator::new(cluster.client(), OperatorOptions::default());
    let resolver = Arc::new(Memory::default());
    answers(&resolver, "www.example.org", "192.0.2.1");
    install_all(&mut operator, &namespace, resolver.clone(), &inventory);
    let metrics = operator.metrics();
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    tokio::spawn(operator.run(stop));

    let here = Some(namespace.as_str());
    let zone = json!({ "spec": { "kind": "Native", "nameservers": ["ns1.example.org"] } });
    put(&client, None, "ClusterZone", "example.org", zone).await;
    put(&client, here, "RRset", "www", rrset("www", "A", "192.0.2.1")).await;
    put(&client, here, "RRset", "alias", rrset("alias", "CNAME", "www.example.org.")).await;
    shows(
        &inventory,
        &[
            "powerdns www.example.org A [192.0.2.1] published",
            "powerdns alias.example.org CNAME [www.example.org.] published",
        ],
    )
    .await;
    put(&client, here, "RRset", "again", rrset("WWW", "A", "192.0.2.2")).await;
    put(&client, here, "RRset", "broken", rrset("broken", "A", "not an address")).await;
    put(&client, here, "Service", "shop", json!({ "spec": { "ports": [{ "port": 80 }] } })).await;
    put(&client, here, "Ingress", "photos", ingress(("pihole.io/register", "true"), None, "photos.home.arpa")).await;
    put(&client, here, "Ingress", "shop", ingress(("a", "b"), Some("pangolin"), "shop.apps.example.org")).await;
    put(&client, here, "Ingress", "stranger", ingress(("a", "b"), Some("pangolin"), "shop.other.example")).await;
    create_route(&client, here).await;
    let common = [
        "powerdns www.example.org A [192.0.2.1] published",
        "powerdns www.example.org A [192.0.2.2] refused ClaimedByAnother",
        "powerdns alias.example.org CNAME [www.example.org.] published",
        "powerdns broken.example.org - [] refused InvalidRecord",
        "pihole photos.home.arpa A [192.0.2.80] published",
        "pangolin shop.apps.example.org - [] published",
    ];
    eventually("what each system knows", PATIENCE, || async {
        let seen: BTreeSet<String> = inventory.snapshot().iter().map(|view| line(view)).collect();
        let has = |line: &&str| seen.contains(*line);
        let refused = seen.iter().any(|line| line.starts_with("pangolin shop.other.example - [] refused "));
        let routed = seen
            .iter()
            .any(|line| line.starts_with("router ") && line.contains(" CNAME [") && line.ends_with(" published"));
        if common.iter().all(has) && refused && routed { Ok(()) } else { Err(seen) }
    })
    .await;
    let conflicts: Vec<_> = inventory.snapshot().conflicts().collect();
    let [conflict] = &conflicts[..] else { panic!("{conflicts:?}") };
    let served = conflict.served.as_ref().map(|view| view.provenance().origin.name.to_string());
    assert_eq!((conflict.name().unwrap().undotted(), served.as_deref()), ("www.example.org", Some("www")));

    published_names_are_looked_up(&client, here, &inventory, &resolver).await;
    metrics_count_names_and_lookups(&metrics).await;
    let annotated = |mut more: Value| {
        more["pihole.io/register"] = json!("true");
        let mut body = ingress(("a", "b"), None, "photos.home.arpa");
        body["metadata"]["annotations"] = more;
        body
    };
    annotations_decide_where_a_name_is_shown(&client, here, &inventory, annotated).await;
    api(&client, here, "RRset").delete("again", &DeleteParams::default()).await.unwrap();
    api(&client, here, "Ingress").delete("photos", &DeleteParams::default()).await.unwrap();
    api(&client, here, "Ingress").delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("names of deleted objects are removed", PATIENCE, || async {
        let seen: BTreeSet<String> = inventory.snapshot().iter().map(|view| line(view)).collect();
        let left = |name: &str| seen.iter().any(|line| line.contains(name));
        let gone = !left("192.0.2.2") && !left("photos") && !left("shop.apps");
        if gone && inventory.snapshot().conflicts().count() == 0 { Ok(()) } else { Err(seen) }
    })
    .await;
}
