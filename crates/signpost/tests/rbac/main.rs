//! The roles in `deploy/rbac.yaml` are sufficient and minimal.
//!
//! Sufficient: all systems converge on a real kube-apiserver as a service account with only those roles. Minimal: on the sandbox, the rules of
//! each system alone allow every request of that system, and a request uses every rule.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use signpost::rbac;
use signpost::systems::SYSTEMS;
use signpost_apis::externaldns;
use signpost_apis::powerdns::RRset;
use signpost_dns::{Fqdn, RecordType, ZoneName};
use signpost_engine::lease::LeaseOptions;
use signpost_engine::{ObjectId, Operator, OperatorOptions, SystemSpec};
use signpost_inventory::{Entry, Inventory, Owner, Stage};
use signpost_provider_pangolin::{Domain, DomainId, DomainKind, MemoryPangolin, Site, SiteId, SiteKind};
use signpost_provider_pihole::{Connection, Dialect, MemoryPihole, OwnerId, Secret, connect, parse_base_url};
use signpost_provider_powerdns::MemoryServer;
use signpost_provider_resolver::Memory;
use signpost_sandbox::{Fault, FaultPlan, Sandbox};
use signpost_system_pihole::{Instance, Policy};
use signpost_system_powerdns::{EndpointSource, Pace};
use signpost_testkit::pihole::PiholeSpec;
use signpost_testkit::{Cluster, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[allow(dead_code)] // One of the two shapes is used.
#[path = "../../../systems/pangolin/tests/common/crds.rs"]
mod pangolin_crds;

mod namespaces;
mod printed;

/// An operator for each system, on servers in memory, and a stand-in that needs the ledger.
struct TestOperator {
    powerdns: MemoryServer,
    pihole: MemoryPihole,
    spec: PiholeSpec,
    pangolin: MemoryPangolin,
    stop: CancellationToken,
    running: Vec<JoinHandle<()>>,
}

/// A Pangolin with one domain and one site.
fn pangolin() -> MemoryPangolin {
    let base = signpost_dns::Fqdn::parse("rbac.example").unwrap();
    let domain = Domain { id: DomainId("d".into()), base, kind: DomainKind::Ns, verified: true };
    let site = Site { id: SiteId(1), nice_id: "s".into(), name: "s".into(), kind: SiteKind::Newt, online: Some(true) };
    MemoryPangolin::new(vec![domain], vec![site])
}

impl TestOperator {
    /// `client` is called with the name of a system; both modes of one that has two are systems here.
    async fn start(client: impl Fn(&'static str) -> Client, namespace: &str) -> Self {
        let with = |system, lease| {
            let options =
                OperatorOptions { lease, namespace: Some(namespace.to_owned()), ..OperatorOptions::default() };
            Operator::new(client(system), options)
        };
        let lease = LeaseOptions::new(namespace, "signpost");
        let mut served = with("powerdns", Some(lease));
        let [mut ingress, mut portal, mut routing, mut crd, mut direct] =
            ["pihole", "portal", "router", "pangolin-crd", "pangolin-api"].map(|system| with(system, None));
        let (powerdns, pihole, spec) = (MemoryServer::new(), MemoryPihole::new(), PiholeSpec::start().await);
        let pace = Pace { endpoints: Some(EndpointSource::default()), ..Pace::default() };
        signpost_system_powerdns::install_with(&mut served, Arc::new(powerdns.clone()), pace);
        let mut policy = Policy::new(OwnerId::parse("rbac").unwrap(), "192.0.2.1".parse().unwrap());
        namespace.clone_into(&mut policy.namespace);
        policy.finalizer = true;
        policy.gather = Duration::from_millis(20);
        let connection =
            Connection::new(parse_base_url(&spec.url()).unwrap(), Secret::Value(PiholeSpec::TOKEN.to_owned()));
        let instances = vec![
            Instance::new("memory", Arc::new(pihole.clone())),
            Instance::new("spec", connect(connection, Dialect::Spec).unwrap()),
        ];
        signpost_system_pihole::install_instances(&mut ingress, policy, instances);
        let pace = signpost_system_portal::Pace { namespace: namespace.to_owned(), verify: true, ..Default::default() };
        let inventory = Arc::new(Inventory::new());
        signpost_system_portal::install_with(&mut portal, Arc::new(Memory::default()), &inventory, pace);
        // As `powerdns` does beside it.
        let id = ObjectId::new::<RRset>(Some(namespace), "www");
        let name = Fqdn::parse("www.rbac.example").unwrap();
        let published = Entry {
            stage: Stage::Published,
            ..Entry::new(
                name,
                Some(RecordType::A),
                signpost_engine::project::wanted_by(&id, &Arc::default(), "powerdns"),
            )
        };
        inventory.replace(&Owner::new("powerdns", "rbac.example"), vec![published], jiff::Timestamp::UNIX_EPOCH);
        let router =
            signpost_system_router::RouterConfig { gateway_namespace: namespace.to_owned(), ..Default::default() };
        signpost_system_router::install(&mut routing, router);
        let mut exposed =
            signpost_system_pangolin::Policy { ingress_status: true, ..signpost_system_pangolin::Policy::default() };
        exposed.hosts.unlisted = true;
        signpost_system_pangolin::install_crd(&mut crd, exposed);
        let pangolin = pangolin();
        signpost_system_pangolin::install_api(
            &mut direct,
            signpost_system_pangolin::Policy::default(),
            Arc::new(pangolin.clone()),
        );
        let stop = CancellationToken::new();
        let running = [served, ingress, portal, routing, crd, direct].map(|operator| {
            let ended = stop.clone();
            tokio::spawn(async move { operator.run(ended).await.unwrap() })
        });
        Self { powerdns, pihole, spec, pangolin, stop, running: running.into() }
    }

    async fn served(&self, zone: &str) {
        let zone = ZoneName::parse(zone).unwrap();
        eventually("the record set, the endpoint and both Pi-holes", Duration::from_mins(2), || async {
            let sets = self.powerdns.contents(&zone).map_or(0, |contents| contents.sets.len());
            let seen =
                (sets, self.pihole.listing().hosts.len(), self.spec.records().len(), self.pangolin.stored().len());
            if seen == (4, 1, 1, 1) { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    async fn stop(self) {
        self.stop.cancel();
        for running in self.running {
            running.await.unwrap();
        }
    }
}

fn api(client: &Client, namespace: &str, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version,
        kind: kind.into(),
        plural: plural.into(),
    };
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

async fn put(api: &Api<DynamicObject>, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
}

struct Objects {
    zones: Api<DynamicObject>,
    rrsets: Api<DynamicObject>,
    ingresses: Api<DynamicObject>,
    endpoints: Api<DynamicObject>,
    resources: Api<DynamicObject>,
}

impl Objects {
    async fn observed(&self) {
        eventually("the DNSEndpoint is observed", Duration::from_mins(2), || async {
            let status = self.endpoints.get("app").await.unwrap().data["status"].clone();
            if status["observedGeneration"] == 1 { Ok(()) } else { Err(status) }
        })
        .await;
        eventually("the record set is verified", Duration::from_mins(2), || async {
            let status = self.rrsets.get("www").await.unwrap().data["status"].to_string();
            if status.contains("\"Served\"") { Ok(()) } else { Err(status) }
        })
        .await;
    }
}

/// An Ingress of this class and host, with its Service and a tunnel that is ready.
async fn make_shop(client: &Client, namespace: &str, class: &str, host: &str) {
    let tunnels = api(client, namespace, "tunnel.pangolin.io", "v1alpha1", "PangolinTunnel", "pangolintunnels");
    put(&tunnels, &json!({"apiVersion": "tunnel.pangolin.io/v1alpha1", "kind": "PangolinTunnel", "metadata": {"name": "default"}, "spec": {}})).await;
    let ready = json!({"status": {"status": "Ready"}});
    tunnels.patch_status("default", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    let services = api(client, namespace, "", "v1", "Service", "services");
    put(&services, &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": {"ports": [{"port": 80}]}})).await;
    let ingresses = api(client, namespace, "networking.k8s.io", "v1", "Ingress", "ingresses");
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "shop"},
        "spec": {"ingressClassName": class, "rules": [{"host": host}],
            "defaultBackend": {"service": {"name": "shop", "port": {"number": 80}}}}});
    put(&ingresses, &ingress).await;
}

async fn make(cluster: &Cluster, namespace: &str, zone: &str) -> Objects {
    let client = cluster.client();
    cluster.install(&signpost::crds::all()).await;
    cluster.install(&[externaldns::crd()]).await;
    cluster.install(&pangolin_crds::crds(pangolin_crds::Kind::Single)).await;
    let group = "dns.cav.enablers.ob";
    let objects = Objects {
        zones: api(&client, namespace, group, "v1alpha2", "Zone", "zones"),
        rrsets: api(&client, namespace, group, "v1alpha2", "RRset", "rrsets"),
        ingresses: api(&client, namespace, "networking.k8s.io", "v1", "Ingress", "ingresses"),
        endpoints: api(&client, namespace, externaldns::GROUP, externaldns::VERSION, "DNSEndpoint", "dnsendpoints"),
        resources: api(&client, namespace, "tunnel.pangolin.io", "v1alpha1", "PangolinResource", "pangolinresources"),
    };
    make_shop(&client, namespace, "pangolin", "shop.rbac.example").await;
    let version = "dns.cav.enablers.ob/v1alpha2";
    put(&objects.zones, &json!({"apiVersion": version, "kind": "Zone", "metadata": {"name": zone}, "spec": {"kind": "Native", "nameservers": ["ns1.example.net"]}})).await;
    for (name, host) in [("www", "www"), ("again", "WWW")] {
        put(&objects.rrsets, &json!({"apiVersion": version, "kind": "RRset", "metadata": {"name": name},
            "spec": {"type": "A", "name": host, "ttl": 60, "records": ["192.0.2.1"], "zoneRef": {"name": zone, "kind": "Zone"}}})).await;
    }
    let endpoint = json!({"dnsName": format!("app.{zone}"), "recordType": "A", "targets": ["192.0.2.2"]});
    put(
        &objects.endpoints,
        &json!({"apiVersion": externaldns::API_VERSION, "kind": "DNSEndpoint", "metadata": {"name": "app"},
        "spec": {"endpoints": [endpoint]}}),
    )
    .await;
    put(&objects.ingresses, &json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "app", "annotations": {"pihole.io/register": "true"}},
        "spec": {"rules": [{"host": "app.rbac.lan"}, {"host": "*.rbac.lan"}], "defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}})).await;
    let dns = api(&client, namespace, "sreportal.io", "v1alpha1", "DNS", "dns");
    put(
        &dns,
        &json!({"apiVersion": "sreportal.io/v1alpha1", "kind": "DNS",
        "metadata": {"name": "names", "annotations": {"sreportal.io/component": "Names"}},
        "spec": {"portalRef": "main", "groups": [{"name": "all", "entries": [{"fqdn": "www.rbac.example"}]}]}}),
    )
    .await;
    make_router(cluster, namespace).await;
    objects
}

/// A portal of another cluster is read with a certificate from a Secret, and forgotten.
async fn read_and_forget_remote_portal(client: &Client, namespace: &str) {
    let server = signpost_testkit::ConnectPortal::start("main", 10).await;
    server.set_fqdns(vec![json!({"name": "www.east.example", "source": "manual"})]);
    let front = signpost_testkit::TlsFront::open_by_address(server.addr()).await;
    let secrets = api(client, namespace, "", "v1", "Secret", "secrets");
    let ca = k8s_openapi::ByteString(std::fs::read(front.ca_file()).unwrap());
    put(&secrets, &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east"}, "data": {"ca.crt": ca}}))
        .await;
    let portals = api(client, namespace, "sreportal.io", "v1alpha1", "Portal", "portals");
    let remote = json!({"url": front.url(), "tls": {"caSecretRef": {"name": "east"}}});
    put(
        &portals,
        &json!({"apiVersion": "sreportal.io/v1alpha1", "kind": "Portal", "metadata": {"name": "east"},
        "spec": {"title": "East", "remote": remote}}),
    )
    .await;
    let copies = api(client, namespace, "sreportal.io", "v1alpha1", "DNS", "dns");
    eventually("the names of the other cluster", Duration::from_mins(2), || async {
        let copy = copies.get_opt("remote-east").await.unwrap().map(|copy| copy.data["status"]["total"].clone());
        if copy == Some(json!(1)) { Ok(()) } else { Err(copy) }
    })
    .await;
    let patch = json!({"spec": {"remote": null}});
    portals.patch("east", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    eventually("the copy is deleted", Duration::from_mins(2), || async {
        if copies.get_opt("remote-east").await.unwrap().is_none() { Ok(()) } else { Err("it is there") }
    })
    .await;
}

/// The Secret that was asked for can be read by name, and nothing else.
async fn reads_no_other_secret(client: &Client, account: &Client, namespace: &str) {
    let all = api(client, namespace, "", "v1", "Secret", "secrets");
    put(&all, &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other"}})).await;
    let allowed = api(account, namespace, "", "v1", "Secret", "secrets");
    allowed.get("east").await.unwrap();
    let denied = |error: kube::Error| matches!(&error, kube::Error::Api(status) if status.code == 403);
    assert!(denied(allowed.get("other").await.unwrap_err()));
    assert!(denied(allowed.list(&kube::api::ListParams::default()).await.unwrap_err()));
}

/// The component of the DNS object is created, reported, and deleted when the annotation is removed.
async fn create_and_delete_component(client: &Client, namespace: &str) {
    let components = api(client, namespace, "sreportal.io", "v1alpha1", "Component", "components");
    let count = async |reported: usize| {
        let all = components.list(&kube::api::ListParams::default()).await.unwrap().items;
        let seen = all.iter().filter(|component| component.data["status"]["computedStatus"].is_string()).count();
        if seen == reported && all.len() == reported { Ok(()) } else { Err(all) }
    };
    eventually("the component is reported", Duration::from_mins(2), || count(1)).await;
    let dns = api(client, namespace, "sreportal.io", "v1alpha1", "DNS", "dns");
    let patch = json!({"metadata": {"annotations": {"sreportal.io/component": null}}});
    dns.patch("names", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    eventually("the component is deleted", Duration::from_mins(2), || count(0)).await;
}

/// A route and its gateway, and what the operator has to delete: a DNSEndpoint of a removed controller, an Istio Gateway without routes.
async fn make_router(cluster: &Cluster, namespace: &str) {
    let client = cluster.client();
    cluster.install(&[signpost_apis::externaldns::crd(), signpost_apis::istio::crd()]).await;
    let (group, ours) = ("routing.router.io", json!({"app.kubernetes.io/managed-by": "service-router-operator"}));
    let labelled = |key: &str, value: &str| {
        let mut labels = ours.clone();
        labels[key] = json!(value);
        labels
    };
    let objects = [
        (
            "",
            "cluster.router.io",
            "ClusterIdentity",
            "clusteridentities",
            json!({"metadata": {"name": "cluster-identity"},
            "spec": {"region": "weu", "cluster": "one", "domain": "router.example", "environmentLetter": "d"}}),
        ),
        (
            "",
            "cluster.router.io",
            "DNSConfiguration",
            "dnsconfigurations",
            json!({"metadata": {"name": "dns-config"},
            "spec": {"externalDNSControllers": [{"name": "dns", "region": "weu"}]}}),
        ),
        (
            namespace,
            group,
            "Gateway",
            "gateways",
            json!({"metadata": {"name": "gw"},
            "spec": {"controller": "istio", "credentialName": "cert", "targetPostfix": "in"}}),
        ),
        (
            namespace,
            group,
            "Gateway",
            "gateways",
            json!({"metadata": {"name": "idle"},
            "spec": {"controller": "istio", "credentialName": "cert", "targetPostfix": "out"}}),
        ),
        (namespace, group, "DNSPolicy", "dnspolicies", json!({"metadata": {"name": "policy"}, "spec": {}})),
        (
            namespace,
            group,
            "ServiceRoute",
            "serviceroutes",
            json!({"metadata": {"name": "route"},
            "spec": {"serviceName": "api", "gatewayName": "gw", "environment": "dev", "application": "app"}}),
        ),
        (
            namespace,
            "externaldns.k8s.io",
            "DNSEndpoint",
            "dnsendpoints",
            json!({
            "metadata": {"name": "route-removed", "labels": labelled("router.io/serviceroute", "route")}, "spec": {"endpoints": []}}),
        ),
        (
            namespace,
            "networking.istio.io",
            "Gateway",
            "gateways",
            json!({
            "metadata": {"name": "idle", "labels": labelled("router.io/gateway", "idle")}, "spec": {"servers": []}}),
        ),
    ];
    for (scope, group, kind, plural, mut object) in objects {
        let version = if group == "networking.istio.io" { "v1" } else { "v1alpha1" };
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["kind"] = json!(kind);
        put(&api(&client, scope, group, version, kind, plural), &object).await;
    }
}

/// Waits until the route is published and everything that is stale is deleted. The test's own requests are lists.
async fn routed(cluster: &Cluster, namespace: &str) {
    let client = cluster.client();
    let endpoints = api(&client, namespace, "externaldns.k8s.io", "v1alpha1", "DNSEndpoint", "dnsendpoints");
    let istio = api(&client, namespace, "networking.istio.io", "v1", "Gateway", "gateways");
    eventually("the route is published", Duration::from_mins(1), || async {
        let mut names = Vec::new();
        for kind in [&endpoints, &istio] {
            let list = kind.list(&kube::api::ListParams::default()).await.unwrap();
            names.extend(list.items.into_iter().map(|object| object.metadata.name.unwrap()));
        }
        let has = |name: &str| names.iter().any(|other| other == name);
        let done = has("route-dns") && has("gw") && !has("route-removed") && !has("idle");
        if done { Ok(()) } else { Err(names) }
    })
    .await;
    let routes = api(&client, namespace, "routing.router.io", "v1alpha1", "ServiceRoute", "serviceroutes");
    let gateways = api(&client, namespace, "routing.router.io", "v1alpha1", "Gateway", "gateways");
    eventually("the statuses are written", Duration::from_mins(1), || async {
        for kind in [&routes, &gateways] {
            let list = kind.list(&kube::api::ListParams::default()).await.unwrap();
            if list.items.iter().any(|object| object.data["status"]["phase"].is_null()) {
                return Err(list.items);
            }
        }
        Ok(())
    })
    .await;
}

/// Lets pangolin-operator have finished, and waits for the status of the Ingress.
async fn exposed(objects: &Objects) {
    let resources = async || objects.resources.list(&kube::api::ListParams::default()).await.unwrap().items;
    let made =
        eventually("the PangolinResource", Duration::from_mins(2), || async { resources().await.pop().ok_or("none") })
            .await;
    let ready = json!({"status": {"status": "Ready", "targetIds": ["1"]}});
    let name = made.metadata.name.unwrap();
    objects.resources.patch_status(&name, &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    eventually("the status of the Ingress", Duration::from_mins(2), || async {
        let ingress = objects.ingresses.get("shop").await.unwrap();
        let host = ingress.data["status"]["loadBalancer"]["ingress"][0]["hostname"].clone();
        if host == "shop.rbac.example" { Ok(()) } else { Err(host) }
    })
    .await;
    // It is deleted by the operator, not by the cluster.
    let class = json!({"spec": {"ingressClassName": "other"}});
    objects.ingresses.patch("shop", &PatchParams::default(), &Patch::Merge(&class)).await.unwrap();
    eventually("the PangolinResource is deleted", Duration::from_mins(2), || async {
        let left = resources().await.len();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

async fn delete_all(objects: &Objects, zone: &str) {
    let all = [
        (&objects.ingresses, "app"),
        (&objects.endpoints, "app"),
        (&objects.rrsets, "www"),
        (&objects.rrsets, "again"),
        (&objects.zones, zone),
    ];
    for (api, name) in all {
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }
    for (api, name) in all {
        eventually("the object to go", Duration::from_mins(2), || async {
            api.get_opt(name).await.unwrap().map_or(Ok(()), Err)
        })
        .await;
    }
}

async fn grant(client: &Client, objects: Vec<Value>) {
    for object in objects {
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
        let kind = object["kind"].as_str().unwrap();
        let scope = object["metadata"]["namespace"].as_str().unwrap_or_default();
        put(&api(client, scope, group, version, kind, &format!("{}s", kind.to_lowercase())), &object).await;
    }
}

/// The smaller roles are sufficient, each alone and each for its mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mode_of_pangolin_works_with_its_own_role() {
    use signpost_system_pangolin::{SPEC, install_api, install_crd};
    let Some(cluster) = signpost_testkit::real_cluster().await else { return };
    cluster.install(&pangolin_crds::crds(pangolin_crds::Kind::Single)).await;
    let client = cluster.client();
    for (variant, rules) in SPEC.variants {
        let (name, direct) = (&format!("signpost-pangolin-{variant}"), *variant == "api");
        let namespace = cluster.namespace("rbac-pangolin").await;
        let spec = signpost_engine::SystemSpec { rules, ..SPEC };
        grant(&client, rbac::manifests_named(name, &namespace, &[spec])).await;
        let tunnels = api(&client, &namespace, "tunnel.pangolin.io", "v1alpha1", "PangolinTunnel", "pangolintunnels");
        put(&tunnels, &json!({"apiVersion": "tunnel.pangolin.io/v1alpha1", "kind": "PangolinTunnel", "metadata": {"name": "default"}, "spec": {}})).await;
        let ready = json!({"status": {"status": "Ready"}});
        tunnels.patch_status("default", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
        let services = api(&client, &namespace, "", "v1", "Service", "services");
        put(&services, &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": {"ports": [{"port": 80}]}})).await;
        let ingresses = api(&client, &namespace, "networking.k8s.io", "v1", "Ingress", "ingresses");
        // A class of its own: the operator of another test watches the whole cluster.
        let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "shop"},
            "spec": {"ingressClassName": name, "rules": [{"host": "shop.rbac.example"}],
                "defaultBackend": {"service": {"name": "shop", "port": {"number": 80}}}}});
        put(&ingresses, &ingress).await;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let account = cluster.client_as(&user, &["system:serviceaccounts", "system:authenticated"]).await;
        let lease = LeaseOptions::new(&namespace, name);
        let options = OperatorOptions { lease: Some(lease), namespace: None, ..OperatorOptions::default() };
        let mut operator = Operator::new(account, options);
        let mut policy = signpost_system_pangolin::Policy::default();
        name.clone_into(&mut policy.class.class);
        policy.hosts.unlisted = true;
        let server = pangolin();
        if direct {
            install_api(&mut operator, policy, Arc::new(server.clone()));
        } else {
            install_crd(&mut operator, policy);
        }
        let stop = CancellationToken::new();
        let ended = stop.clone();
        let running = tokio::spawn(async move { operator.run(ended).await.unwrap() });
        let made = api(&client, &namespace, "tunnel.pangolin.io", "v1alpha1", "PangolinResource", "pangolinresources");
        let count = async || {
            let children = made.list(&kube::api::ListParams::default()).await.unwrap().items.len();
            if direct { server.stored().len() } else { children }
        };
        let has = async |expected: usize| {
            eventually(&format!("{expected} exposed with {name}"), Duration::from_mins(1), || async {
                let seen = count().await;
                if seen == expected { Ok(()) } else { Err(seen) }
            })
            .await;
        };
        has(1).await;
        if direct {
            eventually("the digest is noted", Duration::from_mins(1), || async {
                let noted = ingresses.get("shop").await.unwrap().metadata.annotations.unwrap_or_default();
                if noted.contains_key("pic.ingress.k8s.io/applied") { Ok(()) } else { Err(noted) }
            })
            .await;
        }
        let events = api(&client, &namespace, "", "v1", "Event", "events");
        eventually("an event", Duration::from_mins(1), || async {
            events.list(&kube::api::ListParams::default()).await.unwrap().items.pop().ok_or("no event")
        })
        .await;
        let class = json!({"spec": {"ingressClassName": "other"}});
        ingresses.patch("shop", &PatchParams::default(), &Patch::Merge(&class)).await.unwrap();
        has(0).await;
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_account_has_enough_permissions_on_a_real_cluster() {
    let Some(cluster) = signpost_testkit::real_cluster().await else { return };
    let namespace = cluster.namespace("rbac").await;
    let client = cluster.client();
    grant(&client, rbac::manifests(&namespace, SYSTEMS)).await;
    let secrets = [(namespace.clone(), "east".to_owned())].into();
    grant(&client, rbac::secrets("signpost", &namespace, &secrets, SYSTEMS)).await;
    let objects = make(&cluster, &namespace, "rbac.example").await;
    let user = format!("system:serviceaccount:{namespace}:signpost");
    let account = cluster.client_as(&user, &["system:serviceaccounts", "system:authenticated"]).await;
    let operator = TestOperator::start(|_| account.clone(), &namespace).await;
    operator.served("rbac.example").await;
    objects.observed().await;
    create_and_delete_component(&client, &namespace).await;
    read_and_forget_remote_portal(&client, &namespace).await;
    reads_no_other_secret(&client, &account, &namespace).await;
    routed(&cluster, &namespace).await;
    exposed(&objects).await;
    let lease = api(&client, &namespace, "coordination.k8s.io", "v1", "Lease", "leases");
    assert!(lease.get("signpost").await.unwrap().data["spec"]["holderIdentity"].is_string());
    let events = api(&client, &namespace, "", "v1", "Event", "events");
    eventually("an event", Duration::from_mins(2), || async {
        events.list(&kube::api::ListParams::default()).await.unwrap().items.pop().ok_or("no event")
    })
    .await;
    delete_all(&objects, "rbac.example").await;
    operator.stop().await;
}

/// Verb, group, and resource with its subresource.
type Request = (String, String, String);

/// A client that records the requests of one system.
fn recording(
    sandbox: &Sandbox,
    all: &Arc<Mutex<BTreeMap<&'static str, BTreeSet<Request>>>>,
    system: &'static str,
) -> Client {
    let all = Arc::clone(all);
    sandbox.client_with(FaultPlan::new(move |info, _| {
        if !info.resource.is_empty() {
            let subresource =
                if info.subresource.is_empty() { String::new() } else { format!("/{}", info.subresource) };
            let request = (info.verb.clone(), info.group.clone(), format!("{}{subresource}", info.resource));
            all.lock().unwrap().entry(system).or_default().insert(request);
        }
        Fault::None
    }))
}

/// The spec of a system, or of one mode of it with the permissions of that mode alone.
fn spec_of(name: &str) -> SystemSpec {
    let (system, mode) = name.split_once('-').unwrap_or((name, ""));
    let spec = *SYSTEMS.iter().find(|spec| spec.name == system).unwrap();
    match spec.variants.iter().find(|(variant, _)| *variant == mode) {
        Some((_, rules)) => SystemSpec { rules, ..spec },
        None => spec,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_has_a_rule_of_its_system_and_every_rule_is_used() {
    let cluster = signpost_testkit::sandbox_cluster().await;
    let namespace = cluster.namespace("rbac").await;
    let objects = make(&cluster, &namespace, "rbac.example").await;
    let sandbox = cluster.sandbox().unwrap();
    let requests = Arc::default();
    let operator = TestOperator::start(|system| recording(sandbox, &requests, system), &namespace).await;
    operator.served("rbac.example").await;
    create_and_delete_component(&cluster.client(), &namespace).await;
    read_and_forget_remote_portal(&cluster.client(), &namespace).await;
    routed(&cluster, &namespace).await;
    eventually("an event", Duration::from_mins(2), || async {
        sandbox.request_counts().remove(&("create".into(), "events".into())).ok_or("no event")
    })
    .await;
    objects.observed().await;
    exposed(&objects).await;
    delete_all(&objects, "rbac.example").await;
    operator.stop().await;

    let requests = std::mem::take(&mut *requests.lock().unwrap());
    assert_eq!(requests.len(), 6, "every system made requests");
    for (system, used) in &requests {
        let spec = spec_of(system);
        for (verb, group, resource) in used {
            // A setting that is off by default; the roles of the modes do not include it.
            let optional = !spec.variants.is_empty() && resource == "ingresses/status";
            assert!(
                optional || rbac::allows(&[spec], verb, group, resource),
                "no rule of {system} allows {verb} {resource} ({group})"
            );
        }
    }
    // Not used in a short run: a second write of the same event, and the cluster-scoped kinds.
    // An apply that creates an object is one PATCH, and the API server asks for both verbs.
    // Foreign kinds that are not installed here are listed and not watched.
    let not_installed = ["virtualservices"];
    let rare = |verb: &str, resource: &str| {
        let created = ["configmaps", "components", "portals", "dns", "pangolinresources", "dnsendpoints", "gateways"];
        (verb == "create" && created.contains(&resource))
            || (verb, resource) == ("patch", "events")
            || resource.starts_with("cluster")
            || verb == "watch" && not_installed.contains(&resource)
    };
    let uses = |system: &str, request: &Request| {
        requests.iter().any(|(name, used)| name.split('-').next() == Some(system) && used.contains(request))
    };
    for spec in SYSTEMS {
        for rule in spec.rules {
            for resource in rule.resources {
                let foreign_gateway = rule.group == signpost_apis::gatewayapi::GROUP;
                let rare = |verb: &str| rare(verb, resource) || foreign_gateway && verb == "watch";
                for verb in rule.verbs.iter().filter(|verb| !rare(verb)) {
                    let request = ((*verb).to_owned(), rule.group.to_owned(), (*resource).to_owned());
                    assert!(uses(spec.name, &request), "{} does not use {request:?}: {}", spec.name, rule.why);
                }
            }
        }
    }
    for (verb, group, resource) in [
        ("get", "coordination.k8s.io", "leases"),
        ("create", "coordination.k8s.io", "leases"),
        ("update", "coordination.k8s.io", "leases"),
        ("create", "", "events"),
    ] {
        let request = (verb.to_owned(), group.to_owned(), resource.to_owned());
        assert!(requests.values().any(|used| used.contains(&request)), "nothing uses {request:?}");
    }
}
