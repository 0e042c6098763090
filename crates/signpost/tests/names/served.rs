//! Names that systems published are looked up: at the server that they were published to, and with the configured resolvers. Both are asked over
//! UDP. For `powerdns` the server is a real PowerDNS, and the result is the condition `Served` too.
//!
//! | the server answers | the resolver answers | verdict |
//! |---|---|---|
//! | nothing | nothing | `notFound`, `NoSuchName` |
//! | as published | something else | `notFound`, with the resolver's answer |
//! | something else | as published | `notFound`, with the server's answer |
//! | as published | as published | `sync` |

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};
use signpost_apis::{externaldns, istio, portal, powerdns, router};
use signpost_dns::{Fqdn, RecordSet, RecordType, Ttl, ZoneName};
use signpost_engine::{Operator, OperatorOptions};
use signpost_inventory::{Inventory, View};
use signpost_provider_pihole::{MemoryPihole, OwnerId};
use signpost_provider_powerdns::{
    Action, Change, ClientOptions, CommentChange, PowerDnsClient, Secret, SetContent, ZoneServer,
};
use signpost_provider_resolver::{Lookup, Options, Resolvers, Upstream};
use signpost_sandbox::nameserver::NameServer;
use signpost_system_portal::Lookups;
use signpost_system_powerdns::PowerDnsConfig;
use signpost_testkit::{Backend, Cluster, PowerDns, PowerDnsOptions, eventually, on_both, sandbox_cluster};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{PATIENCE, api, create_route, ingress, pangolin, put, rrset};

/// A name server over UDP with the zones of these tests.
async fn name_server() -> NameServer {
    let server = NameServer::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    for zone in ["example.org", "example.com", "home.arpa"] {
        server.records().add_zone(&ZoneName::parse(zone).unwrap());
    }
    server
}

/// Sets the only record of a name, or removes the name.
fn answer(server: &NameServer, name: &str, record: Option<(&str, &str)>) {
    let (name, records) = (Fqdn::parse(name).unwrap(), server.records());
    for rtype in [RecordType::A, RecordType::Cname] {
        records.remove(&name, &rtype);
    }
    if let Some((rtype, value)) = record {
        records.set(&RecordSet::parse(name, rtype.parse().unwrap(), Ttl::new(1).unwrap(), [value]).unwrap());
    }
}

fn asks(server: SocketAddr, forwards: bool) -> Arc<Resolvers> {
    // A busy machine must not look like a slow name.
    let deadline = Duration::from_secs(5);
    let resolvers = vec![Upstream::Server(server)];
    Arc::new(Resolvers::new(&Options { resolvers, deadline, forwards, ..Options::default() }))
}

/// An operator with `portal` and one other system, the server that this one publishes to, and a resolver.
struct Bed {
    client: Client,
    namespace: String,
    inventory: Arc<Inventory>,
    resolver: NameServer,
    _stop: DropGuard,
}

impl Bed {
    async fn start(
        cluster: &Cluster,
        (publisher, server): (&str, SocketAddr),
        install: impl FnOnce(&mut Operator, &str),
    ) -> Self {
        cluster.install(&[powerdns::crds(), portal::crds()].concat()).await;
        if !cluster.is_real() {
            cluster.install(&[router::crds(), vec![externaldns::crd(), istio::crd()]].concat()).await;
        }
        let namespace = cluster.namespace("served").await;
        let (inventory, resolver) = (Arc::new(Inventory::new()), name_server().await);
        let mut operator = Operator::new(cluster.client(), OperatorOptions::default());
        install(&mut operator, &namespace);
        let servers = BTreeMap::from([(publisher.into(), asks(server, false) as Arc<dyn Lookup>)]);
        let lookups = Lookups { servers, ..Lookups::from(asks(resolver.addr(), true)) };
        let pace = signpost_system_portal::Pace {
            namespace: namespace.clone(),
            refresh: Duration::from_millis(500),
            again: Duration::from_millis(100),
            verify: true,
            ..Default::default()
        };
        signpost_system_portal::install_with(&mut operator, lookups, &inventory, pace);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        tokio::spawn(operator.run(stop));
        Self { client: cluster.client(), namespace, inventory, resolver, _stop: guard }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        api(&self.client, Some(&self.namespace), kind)
    }

    async fn put(&self, kind: &str, name: &str, body: Value) {
        put(&self.client, Some(&self.namespace), kind, name, body).await;
    }

    /// Waits until the only view of a name has this result, as `system status/reason [answer]`; `None` for no view.
    async fn shows(&self, name: &str, expected: Option<&str>) {
        let fqdn = Fqdn::parse(name).unwrap();
        eventually(&format!("{name} is {expected:?}"), PATIENCE, || async {
            let line = |view: &Arc<View>| {
                let (status, reason) = (view.status().as_str(), view.reason().as_str());
                let observed = view.observed().iter().collect::<Vec<_>>().join(", ");
                format!("{} {status}/{reason} [{observed}]", view.owner().system)
            };
            let seen: Vec<String> = self.inventory.snapshot().get(&fqdn).map(line).collect();
            if seen.iter().map(String::as_str).eq(expected) { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// The rows of the table above, for a name of a system. `answers` are the right one and two others, and what is shown of each.
    async fn follows(&self, system: &str, server: &NameServer, name: &str, answers: [((&str, &str), &str); 3]) {
        let [(right, as_right), (other, as_other), (third, as_third)] = answers;
        let shows = async |expected: &str| self.shows(name, Some(&format!("{system} {expected}"))).await;
        answer(server, name, Some(right));
        answer(&self.resolver, name, Some(other));
        shows(as_other).await;
        answer(server, name, Some(third));
        answer(&self.resolver, name, Some(right));
        shows(as_third).await;
        answer(server, name, Some(right));
        shows(as_right).await;
        answer(&self.resolver, name, None);
        shows("notFound/NoSuchName []").await;
        answer(&self.resolver, name, Some(right));
        shows(as_right).await;
        answer(server, name, None);
        shows("notFound/NoSuchName []").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_of_a_pi_hole_is_asked_of_the_pi_hole_and_of_the_resolvers() {
    let (cluster, server, pihole) = (sandbox_cluster().await, name_server().await, MemoryPihole::new());
    // The Pi-hole answers for its lines.
    let records = server.records();
    pihole.on_change(move |listing| {
        for line in &listing.hosts {
            let parts = line.address_parts();
            let address = parts.ip.unwrap().to_string();
            for name in &parts.names {
                let (name, ttl) = (Fqdn::parse(name).unwrap(), Ttl::new(1).unwrap());
                records.set(&RecordSet::parse(name, RecordType::A, ttl, [&address]).unwrap());
            }
        }
    });
    let bed = Bed::start(&cluster, ("pihole home", server.addr()), |operator, _| {
        let policy =
            signpost_system_pihole::Policy::new(OwnerId::parse("served").unwrap(), "192.0.2.80".parse().unwrap());
        let instance = signpost_system_pihole::Instance::new("home", Arc::new(pihole.clone()));
        signpost_system_pihole::install_instances(operator, policy, vec![instance]);
    })
    .await;
    let name = "photos.home.arpa";
    bed.put("Ingress", "photos", ingress(("pihole.io/register", "true"), None, name)).await;
    // The Pi-hole has it, and the resolver does not.
    bed.shows(name, Some("pihole notFound/NoSuchName []")).await;
    answer(&bed.resolver, name, Some(("A", "192.0.2.80")));
    bed.shows(name, Some("pihole sync/Match [192.0.2.80]")).await;
    let answers = [
        (("A", "192.0.2.80"), "sync/Match [192.0.2.80]"),
        (("A", "192.0.2.8"), "notFound/Mismatch [192.0.2.8]"),
        (("A", "192.0.2.9"), "notFound/Mismatch [192.0.2.9]"),
    ];
    bed.follows("pihole", &server, name, answers).await;
    bed.api("Ingress").delete("photos", &DeleteParams::default()).await.unwrap();
    bed.shows(name, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_is_asked_of_the_server_of_external_dns_and_of_the_resolvers() {
    let (cluster, server) = (sandbox_cluster().await, name_server().await);
    let bed = Bed::start(&cluster, ("external-dns", server.addr()), |operator, namespace| {
        let gateway_namespace = namespace.to_owned();
        let config = signpost_system_router::RouterConfig { gateway_namespace, ..Default::default() };
        signpost_system_router::install(operator, config);
    })
    .await;
    create_route(&bed.client, Some(&bed.namespace)).await;
    let name = "api-ns-p-prod-myapp.example.com";
    bed.shows(name, Some("router notFound/NoSuchName []")).await;
    let answers = [
        (("CNAME", "aks01-weu-internal.example.com."), "sync/Match [aks01-weu-internal.example.com.]"),
        (("CNAME", "other.example.com."), "notFound/Mismatch [other.example.com.]"),
        (("A", "192.0.2.9"), "notFound/NoData []"),
    ];
    bed.follows("router", &server, name, answers).await;
    bed.api("ServiceRoute").delete("api", &DeleteParams::default()).await.unwrap();
    bed.shows(name, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_behind_pangolin_is_asked_of_its_domain_and_of_the_resolvers() {
    let (cluster, server) = (sandbox_cluster().await, name_server().await);
    let bed = Bed::start(&cluster, ("pangolin", server.addr()), |operator, _| {
        let policy = signpost_system_pangolin::Policy { owner: Some("served".into()), ..Default::default() };
        signpost_system_pangolin::install_api(operator, policy, Arc::new(pangolin()));
    })
    .await;
    bed.put("Service", "shop", json!({ "spec": { "ports": [{ "port": 80 }] } })).await;
    let name = "shop.apps.example.org";
    bed.put("Ingress", "shop", ingress(("a", "b"), Some("pangolin"), name)).await;
    bed.shows(name, Some("pangolin notFound/NoSuchName []")).await;
    // Pangolin expects no values: any answer will do, and an alias that leads nowhere is not an answer.
    let answers = [
        (("A", "192.0.2.1"), "sync/Exists [192.0.2.1]"),
        (("CNAME", "one.example.org."), "notFound/NoSuchName [CNAME one.example.org.]"),
        (("CNAME", "two.example.org."), "notFound/NoSuchName [CNAME two.example.org.]"),
    ];
    bed.follows("pangolin", &server, name, answers).await;
    bed.api("Ingress").delete("shop", &DeleteParams::default()).await.unwrap();
    bed.shows(name, None).await;
}

/// `status/reason: message` of the condition `Served`, where there is one.
async fn is_served(rrsets: &Api<DynamicObject>, name: &str, expected: Option<&str>) {
    eventually(&format!("{name} has {expected:?}"), PATIENCE, || async {
        let status = rrsets.get(name).await.unwrap().data["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let served = conditions.iter().find(|condition| condition["type"] == "Served");
        let seen = served.map(|c| format!("{}/{}: {}", c["status"], c["reason"], c["message"]).replace('"', ""));
        if seen.as_deref() == expected { Ok(()) } else { Err(status) }
    })
    .await;
}

/// A change behind the back of the operator.
async fn write_directly(server: &PowerDns, name: &str, address: &str) {
    let options = ClientOptions {
        url: server.api_url().parse().unwrap(),
        key: Secret::Value(server.api_key()),
        vhost: "localhost".into(),
        timeout: PATIENCE,
        insecure: false,
        ca_path: None,
        concurrency: 1,
    };
    let content = Arc::new(SetContent { ttl: 1, records: [Box::from(address)].into_iter().collect(), comment: None });
    let action = Action::Replace { content, comment: CommentChange::Keep };
    let change = Change { name: Fqdn::parse(name).unwrap(), rtype: RecordType::A, action };
    let zone = ZoneName::parse("example.org").unwrap();
    PowerDnsClient::new(options).unwrap().patch(&zone, &[change]).await.unwrap();
}

on_both! {
    async fn a_record_set_is_asked_of_the_real_powerdns_and_of_the_resolvers(cluster) {
        let Some(server) = PowerDns::start(Backend::Sqlite, PowerDnsOptions::default()).await else { return };
        let bed = Bed::start(&cluster, ("powerdns", server.dns_addr()), |operator, _| {
            let config = PowerDnsConfig::new(server.api_url(), Secret::Value(server.api_key()));
            signpost_system_powerdns::install(operator, &config).unwrap();
        })
        .await;
        let zone = json!({ "spec": { "kind": "Native", "nameservers": ["ns1.example.org"] } });
        put(&bed.client, None, "ClusterZone", "example.org", zone).await;
        bed.put("RRset", "www", rrset("www", "A", "192.0.2.1")).await;
        let (rrsets, name) = (bed.api("RRset"), "www.example.org");
        let (dns, resolver) = (server.dns_addr(), bed.resolver.addr());
        let served = async |expected: &str| is_served(&rrsets, "www", Some(expected)).await;
        // PowerDNS answers it, and the resolver does not.
        served(&format!("False/NoSuchName: {resolver} has no such record")).await;
        bed.shows(name, Some("powerdns notFound/NoSuchName []")).await;
        answer(&bed.resolver, name, Some(("A", "192.0.2.8")));
        served(&format!("False/Mismatch: {resolver}: 192.0.2.8")).await;
        answer(&bed.resolver, name, Some(("A", "192.0.2.1")));
        served("True/Match: 192.0.2.1").await;
        bed.shows(name, Some("powerdns sync/Match [192.0.2.1]")).await;
        // The resolver answers from its cache, and PowerDNS has something else.
        write_directly(&server, name, "192.0.2.9").await;
        served(&format!("False/Mismatch: {dns}: 192.0.2.9")).await;
        bed.shows(name, Some("powerdns notFound/Mismatch [192.0.2.9]")).await;
        write_directly(&server, name, "192.0.2.1").await;
        served("True/Match: 192.0.2.1").await;
        // While PowerDNS answers nothing, what the resolver answers counts.
        server.pause();
        answer(&bed.resolver, name, Some(("A", "192.0.2.8")));
        served(&format!("False/Mismatch: {resolver}: 192.0.2.8")).await;
        answer(&bed.resolver, name, Some(("A", "192.0.2.1")));
        served("True/Match: 192.0.2.1").await;
        server.resume();
        // Another value is looked up as soon as it is published.
        bed.put("RRset", "www", rrset("www", "A", "192.0.2.2")).await;
        served(&format!("False/Mismatch: {resolver}: 192.0.2.1")).await;
        answer(&bed.resolver, name, Some(("A", "192.0.2.2")));
        served("True/Match: 192.0.2.2").await;
        rrsets.delete("www", &DeleteParams::default()).await.unwrap();
        bed.shows(name, None).await;
    }
}
