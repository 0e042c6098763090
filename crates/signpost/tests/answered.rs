//! From a ServiceRoute to the answer of a name server with `router` and `powerdns` in one operator, without external-dns: on the sandbox with servers
//! in memory, and on a real API server with a real PowerDNS.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};
use signpost_apis::externaldns;
use signpost_dns::{Fqdn, RecordSet, RecordType, Ttl};
use signpost_engine::{Operator, OperatorOptions};
use signpost_provider_powerdns::MemoryServer;
use signpost_sandbox::nameserver::NameServer;
use signpost_system_powerdns::{EndpointSource, Pace, PowerDnsConfig, Secret};
use signpost_system_router::RouterConfig;
use signpost_testkit::{
    Backend, Cluster, PowerDns, PowerDnsOptions, Prober, dig, eventually, foreign_crds, on_both, skip,
};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_mins(2);
const HOST: &str = "api-ns-p-prod-myapp.example.com.";
const GATEWAY: &str = "aks01-weu-internal.example.com.";

/// Where the records are written and asked for; it lasts as long as this value.
enum Dns {
    Memory { server: MemoryServer, names: NameServer },
    Real(PowerDns),
}

impl Dns {
    /// `None` when it is not installed.
    async fn start(cluster: &Cluster) -> Option<Self> {
        if cluster.is_real() {
            return Some(Self::Real(PowerDns::start(Backend::Sqlite, PowerDnsOptions::default()).await?));
        }
        let (server, names) =
            (MemoryServer::new(), NameServer::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap());
        let (records, shown) = (names.records(), Mutex::new(BTreeSet::<(Fqdn, RecordType)>::new()));
        server.on_change(Arc::new(move |zone, contents| {
            records.add_zone(zone);
            let mut shown = shown.lock().unwrap();
            let sets = contents.into_iter().flat_map(|contents| &contents.sets);
            let sets: Vec<RecordSet> = sets
                .map(|set| {
                    let data: Vec<&str> = set.contents.iter().map(|text| &**text).collect();
                    RecordSet::parse(set.name.clone(), set.rtype, Ttl::new(set.ttl).unwrap(), &data).unwrap()
                })
                .collect();
            let now: BTreeSet<(Fqdn, RecordType)> = sets.iter().map(|set| (set.name.clone(), set.rtype)).collect();
            for (name, rtype) in shown.difference(&now) {
                records.remove(name, rtype);
            }
            for set in &sets {
                records.set(set);
            }
            *shown = now;
        }));
        Some(Self::Memory { server, names })
    }

    fn install(&self, operator: &mut Operator) {
        let source = EndpointSource { labels: Some("router.io/region=weu".to_owned()), ..EndpointSource::default() };
        let pace = Pace { endpoints: Some(source), ..Pace::default() };
        match self {
            Self::Memory { server, .. } => {
                signpost_system_powerdns::install_with(operator, Arc::new(server.clone()), pace);
            }
            Self::Real(server) => {
                let mut config = PowerDnsConfig::new(server.api_url(), Secret::Value(server.api_key()));
                config.pace = pace;
                signpost_system_powerdns::install(operator, &config).unwrap();
            }
        }
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Memory { names, .. } => names.addr(),
            Self::Real(server) => server.dns_addr(),
        }
    }

    async fn until(&self, name: &str, rtype: &str, wanted: &[&str]) {
        eventually(&format!("{name} {rtype} is answered with {wanted:?}"), PATIENCE, || async {
            let answer = dig(self.address(), name, rtype).await;
            if answer.records == wanted { Ok(()) } else { Err(answer) }
        })
        .await;
    }
}

fn resource((group, kind, plural): (&str, &str, &str)) -> ApiResource {
    let version = match group {
        "" => "v1",
        "dns.cav.enablers.ob" => "v1alpha2",
        _ => "v1alpha1",
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn api(cluster: &Cluster, kind: (&str, &str, &str), namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = resource(kind);
    match namespace {
        Some(namespace) => Api::namespaced_with(cluster.client(), namespace, &resource),
        None => Api::all_with(cluster.client(), &resource),
    }
}

const CLUSTER_ZONE: (&str, &str, &str) = ("dns.cav.enablers.ob", "ClusterZone", "clusterzones");
const IDENTITY: (&str, &str, &str) = ("cluster.router.io", "ClusterIdentity", "clusteridentities");
const CONFIGURATION: (&str, &str, &str) = ("cluster.router.io", "DNSConfiguration", "dnsconfigurations");
const ROUTER_GATEWAY: (&str, &str, &str) = ("routing.router.io", "Gateway", "gateways");
const POLICY: (&str, &str, &str) = ("routing.router.io", "DNSPolicy", "dnspolicies");
const ROUTE: (&str, &str, &str) = ("routing.router.io", "ServiceRoute", "serviceroutes");
const SERVICE: (&str, &str, &str) = ("", "Service", "services");

async fn put(cluster: &Cluster, kind: (&str, &str, &str), namespace: Option<&str>, name: &str, mut object: Value) {
    let api = api(cluster, kind, namespace);
    let version = resource(kind).api_version;
    (object["apiVersion"], object["kind"], object["metadata"]["name"]) = (json!(version), json!(kind.1), json!(name));
    api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
}

/// The load balancer of the gateway has these entries.
async fn balance(cluster: &Cluster, namespace: &str, ingress: Value) {
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 443 }] });
    let object = json!({ "metadata": { "labels": { "istio": "ingress" } }, "spec": spec });
    put(cluster, SERVICE, Some(namespace), "ingress", object).await;
    let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
    let services = api(cluster, SERVICE, Some(namespace));
    services.patch_status("ingress", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

on_both! {
    async fn a_route_is_answered_by_router_and_powerdns_in_one_operator(cluster) {
        let endpoint = foreign_crds("dnsendpoint").or_else(|| (!cluster.is_real()).then(|| vec![externaldns::crd()]));
        let Some(endpoint) = endpoint else {
            skip("a route that is answered on the real API server", "the CRD of DNSEndpoint is not in the cache; run dev/setup crds to get it");
            return;
        };
        let Some(dns) = Dns::start(&cluster).await else { return };
        cluster.install(&signpost::crds::all()).await;
        cluster.install(&endpoint).await;
        let (app, infra) = (cluster.namespace("app").await, cluster.namespace("infra").await);
        let mut operator = Operator::new(cluster.client(), OperatorOptions::default());
        dns.install(&mut operator);
        let config = RouterConfig { gateway_namespace: infra.clone(), ..RouterConfig::default() };
        signpost_system_router::install(&mut operator, config);
        let stop = CancellationToken::new();
        let ends = stop.clone();
        let running = tokio::spawn(async move { operator.run(ends).await.unwrap() });

        let zone = json!({ "spec": { "kind": "Native", "nameservers": ["ns1.example.net"] } });
        put(&cluster, CLUSTER_ZONE, None, "example.com", zone).await;
        let identity = json!({ "region": "weu", "cluster": "aks01", "domain": "example.com", "environmentLetter": "p" });
        put(&cluster, IDENTITY, None, "cluster-identity", json!({ "spec": identity })).await;
        let controllers = json!([{ "name": "external-dns-neu", "region": "neu" }, { "name": "external-dns-weu", "region": "weu" }]);
        put(&cluster, CONFIGURATION, None, "dns-config", json!({ "spec": { "externalDNSControllers": controllers } })).await;
        let gateway = json!({ "controller": "ingress", "credentialName": "cert", "targetPostfix": "internal" });
        put(&cluster, ROUTER_GATEWAY, Some(&infra), "gw", json!({ "spec": gateway })).await;
        balance(&cluster, &infra, json!([{ "ip": "10.0.0.1" }, { "ip": "2001:db8::1" }])).await;
        put(&cluster, POLICY, Some(&app), "policy", json!({ "spec": {} })).await;
        dns.until(GATEWAY, "AAAA", &["2001:db8::1"]).await;
        let route = json!({ "serviceName": "api", "gatewayName": "gw", "environment": "prod", "application": "myapp" });
        put(&cluster, ROUTE, Some(&app), "api", json!({ "spec": route })).await;
        dns.until(HOST, "CNAME", &[GATEWAY]).await;
        dns.until(HOST, "A", &["10.0.0.1"]).await;

        // Another address: no gap, and no other answer.
        let prober = Prober::start(dns.address(), HOST.to_owned(), "A");
        prober.until("10.0.0.1").await;
        balance(&cluster, &infra, json!([{ "ip": "10.0.0.2" }])).await;
        prober.until("10.0.0.2").await;
        assert_eq!(prober.stop().await, [["10.0.0.1"], ["10.0.0.2"]]);
        // A host name: this operator publishes it itself, so the type changes without a pause.
        balance(&cluster, &infra, json!([{ "hostname": "lb.example.net" }])).await;
        dns.until(GATEWAY, "CNAME", &["lb.example.net."]).await;
        // A deleted route is not answered any more. Its gateway is.
        api(&cluster, ROUTE, Some(&app)).delete("api", &DeleteParams::default()).await.unwrap();
        dns.until(HOST, "CNAME", &[]).await;
        dns.until(GATEWAY, "CNAME", &["lb.example.net."]).await;
        stop.cancel();
        running.await.unwrap();
    }
}
