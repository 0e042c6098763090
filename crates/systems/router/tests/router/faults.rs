//! Crashes after every request, conflicts, cut watches and late kinds. It always ends the same, and nothing that is there at the end was
//! deleted on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::time::Duration;

use serde_json::json;
use signpost_sandbox::{Fault, FaultPlan, Session};
use signpost_testkit::{eventually, sandbox_cluster};

use crate::rig::{PATIENCE, Rig};

impl Rig {
    /// Users act: routes, a second region, a changed host, a deleted route, a foreign object.
    async fn script(&self) {
        self.basics(&["weu", "neu"]).await;
        for service in ["api", "web", "old"] {
            self.route(service).await;
        }
        self.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        self.route_in(&self.app, "web-route", "shop", "gw").await;
        self.delete("ServiceRoute", &self.app, "old-route").await;
        self.balancer("internal", json!([{ "ip": "10.0.0.8" }])).await;
    }

    async fn ended(&self) -> Option<BTreeMap<String, String>> {
        let mut have = self.endpoints(&self.app).await;
        have.extend(self.endpoints(&self.infra).await);
        let alias = |service: &str| crate::rig::alias(service, "weu");
        let mut wanted = BTreeMap::new();
        for region in ["weu", "neu"] {
            wanted.insert(format!("api-route-external-dns-{region}"), alias("api"));
            wanted.insert(format!("web-route-external-dns-{region}"), alias("shop"));
            let name = format!("gateway-controller-istio-internal-internal-external-dns-{region}");
            wanted.insert(name, "aks01-weu-internal.example.com A 10.0.0.8".to_owned());
        }
        let istio = self.get("IstioGateway", &self.infra, "gw").await?;
        let hosts = json!([self.host("api"), self.host("shop")]);
        (have == wanted && istio["spec"]["servers"][0]["hosts"] == hosts).then_some(wanted)
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
    }

    async fn on_sandbox() -> Self {
        let mut rig = Self::new(sandbox_cluster().await).await;
        rig.crash().await;
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
    assert!(requests > 30, "{requests} requests: the script has become trivial");
    for n in (1..=requests).filter(|n| n % 4 == part) {
        let mut rig = Rig::on_sandbox().await;
        let sandbox = rig.cluster.sandbox().unwrap().clone();
        let first = Session::new(FaultPlan::crash_after(n));
        rig.start_with(sandbox.session_client(&first));
        rig.script().await;
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
        for (kind, name, reason) in
            [("ServiceRoute", "api-route", "ReconciliationSucceeded"), ("Gateway", "gw", "GatewayCreated")]
        {
            rig.until(kind, name, reason).await;
        }
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
    for plural in [
        "serviceroutes",
        "dnspolicies",
        "gateways",
        "clusteridentities",
        "dnsconfigurations",
        "services",
        "dnsendpoints",
    ] {
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
    for plural in [
        "serviceroutes",
        "dnspolicies",
        "gateways",
        "clusteridentities",
        "dnsconfigurations",
        "services",
        "dnsendpoints",
    ] {
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
