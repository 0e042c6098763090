//! Crashes after every request, conflicts, cut watches and late kinds. It always ends the same, and nothing that is there at the end was
//! deleted on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use signpost_sandbox::{Fault, FaultPlan, Session};
use signpost_testkit::{eventually, sandbox_cluster};

use crate::rig::{PATIENCE, Rig, condition};

/// A foreign DNSEndpoint with a name that a route needs.
const FOREIGN: &str = "taken-route-external-dns-weu";

/// The conditions at the end.
const STATUSES: [(&str, &str, &str, &str); 10] = [
    ("ClusterIdentity", "cluster-identity", "Ready", "ValidationSucceeded"),
    ("DNSConfiguration", "dns-config", "Ready", "ConfigurationValid"),
    ("DNSPolicy", "policy", "Ready", "PolicyActive"),
    ("Gateway", "gw", "Ready", "GatewayCreated"),
    ("Gateway", "gw", "DNSReady", "DNSEndpointsCreated"),
    ("Gateway", "edge", "DNSReady", "DNSEndpointsCreated"),
    ("ServiceRoute", "api-route", "Ready", "ReconciliationSucceeded"),
    ("ServiceRoute", "web-route", "Ready", "ReconciliationSucceeded"),
    ("ServiceRoute", "taken-route", "Ready", "NameTaken"),
    ("ServiceRoute", "z-second", "Ready", "HostConflict"),
];

/// The kinds that are read.
const KINDS: [&str; 7] =
    ["serviceroutes", "dnspolicies", "gateways", "clusteridentities", "dnsconfigurations", "services", "dnsendpoints"];

impl Rig {
    /// Users act: routes, an adopted region, a changed host, a deleted route, a foreign object, two routes with one host, a load balancer whose
    /// address becomes a host name.
    async fn script(&self) {
        self.script_until(|| false).await;
    }

    /// The same, for an operator that may have ended.
    async fn script_until(&self, ended: impl Fn() -> bool) {
        let foreign = json!({ "spec": { "endpoints": [{ "dnsName": "theirs.example.com", "recordType": "A", "targets": ["192.0.2.1"] }] } });
        self.put("DNSEndpoint", &self.app, FOREIGN, foreign).await;
        self.basics(&["weu", "neu"]).await;
        self.gateway("edge", "edge").await;
        self.balancer("edge", json!([{ "ip": "10.0.0.9" }])).await;
        for service in ["api", "web", "old", "taken"] {
            self.route(service).await;
        }
        self.route_in(&self.app, "z-second", "api", "gw").await;
        self.identity("weu", &["neu"]).await;
        self.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        self.route_in(&self.app, "web-route", "shop", "gw").await;
        self.delete("ServiceRoute", &self.app, "old-route").await;
        self.balancer("internal", json!([{ "ip": "10.0.0.8" }])).await;
        // The operator knows that the addresses have been read, so that the change takes two steps.
        eventually("the names of the gateways are read", PATIENCE, || async {
            let metrics = self.metrics();
            let read = |line: &&str| line.contains(r#"purpose="gateway""#) && line.contains(r#"observed="true""#);
            let read = metrics.lines().find(read).is_some_and(|line| line.ends_with(" 4"));
            if read || ended() { Ok(()) } else { Err(metrics) }
        })
        .await;
        self.balancer("edge", json!([{ "hostname": "lb.example.net" }])).await;
    }

    /// The DNSEndpoints of ours, once everything is as it should be at the end: objects, hosts and statuses.
    async fn ended(&self) -> Option<BTreeMap<String, String>> {
        let mut have = self.endpoints(&self.app).await;
        have.extend(self.endpoints(&self.infra).await);
        let alias = |service: &str| crate::rig::alias(service, "weu");
        let mut wanted = BTreeMap::new();
        for region in ["weu", "neu"] {
            for (route, service) in [("api", "api"), ("web", "shop"), ("taken", "taken")] {
                wanted.insert(format!("{route}-route-external-dns-{region}"), alias(service));
            }
            let name = |postfix: &str| format!("gateway-controller-istio-{postfix}-{postfix}-external-dns-{region}");
            wanted.insert(name("internal"), "aks01-weu-internal.example.com A 10.0.0.8".to_owned());
            wanted.insert(name("edge"), "aks01-weu-edge.example.com CNAME lb.example.net".to_owned());
        }
        wanted.insert(FOREIGN.to_owned(), "theirs.example.com A 192.0.2.1".to_owned());
        let istio = self.get("IstioGateway", &self.infra, "gw").await?;
        let hosts = json!([self.host("api"), self.host("shop"), self.host("taken")]);
        if have != wanted || istio["spec"]["servers"][0]["hosts"] != hosts {
            return None;
        }
        for (kind, name, type_, reason) in STATUSES {
            let namespace = if kind == "Gateway" { &self.infra } else { &self.app };
            let object = self.get(kind, namespace, name).await?;
            let status = &object["status"];
            let current = status["observedGeneration"] == object["metadata"]["generation"];
            if !current || condition(status, type_)["reason"] != reason {
                return None;
            }
        }
        wanted.remove(FOREIGN);
        Some(wanted)
    }

    async fn until_ended(&self, seed: u64) {
        let ended = eventually(&format!("seed {seed} ends as wanted"), PATIENCE, || async {
            match self.ended().await {
                Some(ended) => Ok(ended),
                None => Err((self.endpoints(&self.app).await, self.endpoints(&self.infra).await)),
            }
        })
        .await;
        let deleted: BTreeSet<String> = self.deletions().into_iter().collect();
        let wrongly: Vec<&String> = deleted.iter().filter(|name| ended.contains_key(*name)).collect();
        assert!(wrongly.is_empty(), "seed {seed}: deleted although they are there at the end: {wrongly:?}");
        // Also for a moment, apart from the name whose record type changes in two steps.
        let has = |object: &String, name: &String| ended.get(object).is_some_and(|records| records.contains(name));
        let is_edge = |object: &String| object.contains("-edge-");
        let lost =
            self.losses("DNSEndpoint").into_iter().filter(|(object, name)| has(object, name) && !is_edge(object));
        assert_eq!(lost.collect::<Vec<_>>(), [], "seed {seed}: emptied although they are there at the end");
        let hosts = [self.host("api"), self.host("shop"), self.host("taken")];
        let lost = self.losses("IstioGateway").into_iter().filter(|(_, host)| hosts.contains(host));
        assert_eq!(lost.collect::<Vec<_>>(), [], "seed {seed}: hosts that are there at the end were taken away");
        assert_eq!(self.one_step_changes(), [""; 0], "seed {seed}: a name server refuses this");
    }

    /// A small external-dns: it reads every DNSEndpoint, and reports the generation. It ends with the rig's runtime.
    fn read_endpoints(&self) {
        let api = self.all("DNSEndpoint");
        let namespaced = |namespace: String| self.api("DNSEndpoint", &namespace);
        let apis: BTreeMap<String, _> =
            [self.app.clone(), self.infra.clone()].into_iter().map(|name| (name.clone(), namespaced(name))).collect();
        self.spawn(async move {
            loop {
                let list = api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
                for object in list {
                    let (meta, observed) = (object.metadata, object.data["status"]["observedGeneration"].as_i64());
                    let (Some(namespace), Some(name)) = (&meta.namespace, &meta.name) else { continue };
                    if let Some(api) = apis.get(namespace).filter(|_| observed != meta.generation) {
                        let status = json!({ "status": { "observedGeneration": meta.generation } });
                        let _ = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }

    async fn on_sandbox() -> Self {
        let mut rig = Self::new(sandbox_cluster().await).await;
        rig.crash().await;
        rig.read_endpoints();
        rig
    }
}

/// How many requests the operator sends until everything is as wanted, without a fault.
async fn requests() -> u64 {
    let mut rig = Rig::on_sandbox().await;
    let last = Arc::new(AtomicU64::new(0));
    let count = last.clone();
    let plan = FaultPlan::new(move |_, n| {
        count.fetch_max(n, Ordering::Relaxed);
        Fault::None
    });
    let client = rig.cluster.sandbox().unwrap().client_with(plan);
    rig.start_with(client);
    rig.script().await;
    rig.until_ended(0).await;
    last.load(Ordering::Relaxed)
}

/// A crash after each of the requests, in four tests that run beside one another.
async fn crashes(part: u64) {
    let requests = requests().await;
    assert!(requests > 40, "{requests} requests: the script has become trivial");
    for n in (1..=requests).filter(|n| n % 4 == part) {
        let mut rig = Rig::on_sandbox().await;
        let sandbox = rig.cluster.sandbox().unwrap().clone();
        let first = Session::new(FaultPlan::crash_after(n));
        rig.start_with(sandbox.session_client(&first));
        rig.script_until(|| first.is_crashed()).await;
        eventually("the first process is over or done", PATIENCE, || async {
            if first.is_crashed() || rig.ended().await.is_some() { Ok(()) } else { Err(()) }
        })
        .await;
        rig.crash().await;
        rig.start().await;
        rig.until_ended(n).await;
    }
}

mod a_crash_after_every_request_ends_the_same {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn first_quarter() {
        crashes(0).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn second_quarter() {
        crashes(1).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn third_quarter() {
        crashes(2).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn fourth_quarter() {
        crashes(3).await;
    }
}

/// The API server fails for the DNSEndpoints of one controller, as it does when a webhook is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_is_reported_and_holds_up_no_withdrawal() {
    let mut rig = Rig::on_sandbox().await;
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let plan = FaultPlan::new(move |info, _| {
        let concerned = info.resource == "dnsendpoints" && info.is_write() && info.name.ends_with("-external-dns-weu");
        if concerned && failing.load(Ordering::Relaxed) {
            return Fault::status(500, "InternalError", "failed calling webhook");
        }
        Fault::None
    });
    let client = rig.cluster.sandbox().unwrap().client_with(plan);
    rig.start_with(client);
    rig.basics(&["weu", "neu"]).await;
    rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
    rig.route("api").await;
    rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
    fails.store(true, Ordering::Relaxed);
    // A new object has a status, although the failure may end by itself.
    rig.route("new").await;
    let status = rig.until("ServiceRoute", "new-route", "DNSEndpointGenerationFailed").await;
    assert_eq!(status["phase"], "Pending");
    assert!(condition(&status, "Ready")["message"].to_string().contains("failed calling webhook"), "{status}");
    rig.gateway("edge", "edge").await;
    rig.balancer("edge", json!([{ "ip": "10.0.0.9" }])).await;
    rig.route_in(&rig.app, "edge-route", "edge", "edge").await;
    rig.until("Gateway", "edge", "GatewayCreated").await;
    // A controller that is not selected any more is withdrawn, although the other one's DNSEndpoint cannot be changed.
    rig.route_in(&rig.app, "api-route", "shop", "gw").await;
    rig.policy(json!({ "mode": "Active" })).await;
    eventually("the region neu is withdrawn", PATIENCE, || async {
        let left = rig.endpoints(&rig.app).await;
        if left.keys().any(|name| name.ends_with("-external-dns-neu")) { Err(left) } else { Ok(()) }
    })
    .await;
    assert_eq!(rig.endpoints(&rig.app).await["api-route-external-dns-weu"], crate::rig::alias("api", "weu"));
    fails.store(false, Ordering::Relaxed);
    for name in ["api-route", "new-route", "edge-route"] {
        rig.until("ServiceRoute", name, "ReconciliationSucceeded").await;
    }
}

/// Heads or tails, by the seed and the number of the write.
fn tails(seed: u64, n: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    (seed, n).hash(&mut hasher);
    hasher.finish() & 1 == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_on_half_of_all_writes_ends_the_same() {
    for seed in 0..6_u64 {
        let mut rig = Rig::on_sandbox().await;
        // Counted by write: a retry is a read and a write, so every second request could be the write of the same retry every time.
        let (writes, met) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let conflicts = met.clone();
        let plan = FaultPlan::new(move |info, _| {
            if info.is_write() && tails(seed, writes.fetch_add(1, Ordering::Relaxed)) {
                conflicts.fetch_add(1, Ordering::Relaxed);
                return Fault::conflict();
            }
            Fault::None
        });
        let client = rig.cluster.sandbox().unwrap().client_with(plan);
        rig.start_with(client);
        rig.script().await;
        rig.until_ended(seed).await;
        assert!(met.load(Ordering::Relaxed) > 5, "seed {seed}: {met:?} conflicts");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_are_cut_and_expire_end_the_same() {
    let mut rig = Rig::on_sandbox().await;
    let plan = FaultPlan::new(|info, n| match (info.verb.as_str(), n % 3) {
        ("watch", 0) => Fault::CutWatch { after: 1 },
        ("watch", 1) => Fault::ExpireWatch { after: 2 },
        _ => Fault::None,
    });
    let client = rig.cluster.sandbox().unwrap().client_with(plan);
    rig.start_with(client);
    rig.script().await;
    rig.until_ended(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mixture_of_all_faults_ends_the_same() {
    for seed in 0..6_u64 {
        let mut rig = Rig::on_sandbox().await;
        let client = rig.cluster.sandbox().unwrap().client_with(FaultPlan::seeded(seed, 0.2));
        rig.start_with(client);
        rig.script().await;
        rig.until_ended(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_whose_list_fails_at_a_start_withdraws_nothing() {
    for plural in KINDS {
        let mut rig = Rig::on_sandbox().await;
        rig.start().await;
        rig.script().await;
        rig.until_ended(0).await;
        rig.stop().await;
        let before = rig.deletions();
        let sandbox = rig.cluster.sandbox().unwrap().clone();
        let denied = plural.to_owned();
        let pick = move |info: &signpost_sandbox::RequestInfo| info.verb == "list" && info.resource == denied;
        let plan = FaultPlan::first(4, pick, Fault::unavailable());
        rig.start_with(sandbox.client_with(plan));
        rig.settled().await;
        rig.until_ended(0).await;
        let new: Vec<String> = rig.deletions().split_off(before.len());
        assert!(new.iter().all(|name| name.starts_with("settled")), "{plural}: {new:?}");
    }
}

/// Every watch breaks after a while, and at the re-list of one kind the API server does not have it: for a moment it is not served at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_missing_at_a_re_list_withdraws_nothing() {
    for plural in KINDS {
        let mut rig = Rig::on_sandbox().await;
        let (missing, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_missing, count) = (missing.clone(), asked.clone());
        let plan = FaultPlan::new(move |info, _| match info.verb.as_str() {
            "list" | "watch" if info.resource == plural && is_missing.load(Ordering::Relaxed) => {
                count.fetch_add(1, Ordering::Relaxed);
                Fault::status(404, "NotFound", "the server could not find the requested resource")
            }
            "watch" => Fault::BreakWatch { after: Duration::from_millis(300) },
            _ => Fault::None,
        });
        let client = rig.cluster.sandbox().unwrap().client_with(plan);
        rig.start_with(client);
        rig.script().await;
        rig.until_ended(0).await;
        let before = rig.deletions();
        missing.store(true, Ordering::Relaxed);
        eventually(&format!("{plural} were asked for and are missing"), PATIENCE, || async {
            let asked = asked.load(Ordering::Relaxed);
            if asked >= 3 { Ok(()) } else { Err(asked) }
        })
        .await;
        assert_eq!(rig.deletions(), before, "{plural} are missing");
        missing.store(false, Ordering::Relaxed);
        rig.settled().await;
        rig.until_ended(0).await;
        let new: Vec<String> = rig.deletions().split_off(before.len());
        assert!(new.iter().all(|name| name.starts_with("settled")), "{plural}: {new:?}");
    }
}
