//! Crashes after every request, two replicas, an API server that does not answer, a clock that is set, and resolvers that are dead, slow, flapping or
//! wrong.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use signpost_apis::ingress::Ingress;
use signpost_apis::portal::{Component, DNS, Portal};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_engine::lease::LeaseOptions;
use signpost_engine::{ManualClock, OperatorOptions};
use signpost_inventory::SyncStatus;
use signpost_provider_resolver::{Lookup, LookupError, Memory, Options, Reply, Resolvers, Upstream};
use signpost_sandbox::{Fault, FaultPlan, Session};
use signpost_testkit::{ConnectPortal, eventually, on_both, sandbox_cluster};
use tokio::net::UdpSocket;

use crate::bed::{Bed, PATIENCE, one};
use crate::remote::fqdn;

const NAME: &str = "www.example.org";

impl Bed {
    pub fn with_lease(&self, identity: &str) -> OperatorOptions {
        let lease = Some(LeaseOptions::new(&self.namespace, "signpost"));
        OperatorOptions { identity: identity.to_owned(), lease, ..self.options() }
    }
}

on_both! {
    async fn a_follower_shows_the_verdicts_of_the_leader_and_looks_nothing_up(cluster) {
        let leader = Bed::without_operator(cluster).await;
        leader.start_with(leader.cluster.client(), leader.with_lease("leader"), leader.resolver.clone());
        leader.answers(NAME, "A", &["192.0.2.1"]);
        leader.dns("team", one(NAME, "192.0.2.1"), json!({})).await;
        leader.lists(&["www.example.org sync"]).await;
        let follower = leader.replica();
        follower.start_with(follower.cluster.client(), follower.with_lease("follower"), follower.resolver.clone());
        follower.lists(&["www.example.org sync"]).await;
        leader.answers(NAME, "A", &["192.0.2.9"]);
        leader.lists(&["www.example.org notFound"]).await;
        follower.lists(&["www.example.org notFound"]).await;
        assert!(leader.resolver.asked() > 0);
        assert_eq!(follower.resolver.asked(), 0, "only the leader looks names up");
    }
}

/// Two resolvers.
#[derive(Debug)]
struct Both(Arc<Memory>, Arc<Memory>);

impl Lookup for Both {
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let (mut all, more) = (self.0.lookup(name, rtype).await, self.1.lookup(name, rtype).await);
            all.extend(more.into_iter().map(|reply| Reply { resolver: "second".into(), ..reply }));
            all
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_one_of_two_resolvers_is_reported_and_keeps_its_verdict() {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    let second = Arc::<Memory>::default();
    let both = Arc::new(Both(bed.resolver.clone(), second.clone()));
    bed.start_with(bed.cluster.client(), bed.options(), both);
    bed.answers(NAME, "A", &["192.0.2.1"]);
    bed.dns("team", one(NAME, "192.0.2.1"), json!({})).await;
    bed.shows("team", &[(NAME, "notFound/NoSuchName")]).await;
    bed.condition("team", "Resolved", "Answered").await;
    second.set_down(true);
    bed.condition("team", "Resolved", "PartlyAnswered").await;
    bed.shows("team", &[(NAME, "notFound/NoSuchName")]).await;
    let right = Rdata::parse(&RecordType::A, "192.0.2.1").unwrap();
    second.set(&Fqdn::parse(NAME).unwrap(), RecordType::A, vec![right]);
    second.set_down(false);
    bed.shows("team", &[(NAME, "sync/Match")]).await;
    bed.condition("team", "Resolved", "Answered").await;
}

/// A verdict that one of two resolvers gave, and a restart after which the second one does not answer. The first one has the right answer then.
async fn restarted_beside_a_dead_resolver(wrong: &str) -> Bed {
    let before = Bed::without_operator(sandbox_cluster().await).await;
    let second = Arc::<Memory>::default();
    let right = || vec![Rdata::parse(&RecordType::A, "192.0.2.1").unwrap()];
    let name = Fqdn::parse(NAME).unwrap();
    let answering = if wrong == "second" { &before.resolver } else { &second };
    answering.set(&name, RecordType::A, right());
    let both = Arc::new(Both(before.resolver.clone(), second.clone()));
    let running = before.start_with(before.cluster.client(), before.options(), both);
    before.dns("team", one(NAME, "192.0.2.1"), json!({})).await;
    before.shows("team", &[(NAME, "notFound/NoSuchName")]).await;
    let by = before.status("team").await.groups[0].fqdns[0].resolver.clone();
    assert_eq!(by.as_deref(), Some(wrong), "the status has who gave the result");
    before.stop();
    running.await.unwrap();
    second.set_down(true);
    let after = before.replica();
    after.resolver.set(&name, RecordType::A, right());
    after.start_with(after.cluster.client(), after.options(), Arc::new(Both(after.resolver.clone(), second)));
    after.condition("team", "Resolved", "PartlyAnswered").await;
    after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_fixed_turns_green_after_a_restart_beside_a_dead_resolver() {
    let bed = restarted_beside_a_dead_resolver("memory").await;
    bed.shows("team", &[(NAME, "sync/Match")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_verdict_of_a_dead_resolver_is_kept_after_a_restart() {
    let bed = restarted_beside_a_dead_resolver("second").await;
    let asked = bed.resolver.asked();
    eventually("the name is looked up more than once", PATIENCE, || async {
        let more = bed.resolver.asked() - asked;
        if more >= 3 { Ok(()) } else { Err(more) }
    })
    .await;
    bed.shows("team", &[(NAME, "notFound/NoSuchName")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_writes_nothing_and_takes_over_with_the_verdicts() {
    let leader = Bed::without_operator(sandbox_cluster().await).await;
    let running = leader.start_with(leader.cluster.client(), leader.with_lease("leader"), leader.resolver.clone());
    leader.answers(NAME, "A", &["192.0.2.1"]);
    let component = json!({ "sreportal.io/component": "Shop" });
    leader.dns("team", one(NAME, "192.0.2.1"), component).await;
    leader.shows("team", &[(NAME, "sync/Match")]).await;
    leader.has_components(&["Shop"]).await;

    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    let plan = FaultPlan::new(move |info, _| {
        let reads = matches!(info.verb.as_str(), "get" | "list" | "watch");
        if !reads && info.resource != "leases" {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Fault::None
    });
    let follower = leader.replica();
    // Its resolver does not work: a verdict that it shows is one that it took over.
    follower.resolver.set_down(true);
    let client = follower.cluster.sandbox().unwrap().client_with(plan);
    follower.start_with(client, follower.with_lease("follower"), follower.resolver.clone());
    follower.lists(&["www.example.org sync"]).await;
    leader.answers(NAME, "A", &["192.0.2.9"]);
    follower.lists(&["www.example.org notFound"]).await;
    assert_eq!((writes.load(Ordering::SeqCst), follower.resolver.asked()), (0, 0));

    leader.stop();
    running.await.unwrap();
    eventually("the follower leads", PATIENCE, || async {
        let asked = follower.resolver.asked();
        if asked > 2 { Ok(()) } else { Err(asked) }
    })
    .await;
    follower.condition("team", "Resolved", "ResolverUnavailable").await;
    assert_eq!(follower.lines(), ["www.example.org notFound"], "an outage keeps the verdict of the replica before");
    follower.answers(NAME, "A", &["192.0.2.1"]);
    follower.resolver.set_down(false);
    follower.shows("team", &[(NAME, "sync/Match")]).await;
    assert!(writes.load(Ordering::SeqCst) > 0);
    follower.has_components(&["Shop"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_kept_and_looked_up_while_the_api_server_does_not_answer() {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    // Watches break all the time, so that those from before the outage end soon.
    let (down, ingresses_unread) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_down, unread) = (down.clone(), ingresses_unread.clone());
    let plan = FaultPlan::new(move |info, _| match info.verb.as_str() {
        verb if is_down.load(Ordering::SeqCst) => {
            if info.resource == "ingresses" && matches!(verb, "list" | "watch") {
                unread.store(true, Ordering::SeqCst);
            }
            Fault::Drop
        }
        "watch" => Fault::BreakWatch { after: Duration::from_millis(500) },
        _ => Fault::None,
    });
    bed.start_with(bed.cluster.sandbox().unwrap().client_with(plan), bed.options(), bed.resolver.clone());
    bed.answers(NAME, "A", &["192.0.2.1"]);
    bed.dns("team", one(NAME, "192.0.2.1"), json!({})).await;
    let ingress: Ingress = serde_json::from_value(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "app" },
        "spec": { "rules": [{ "host": "app.example.org" }] },
    }))
    .unwrap();
    bed.api::<Ingress>().create(&PostParams::default(), &ingress).await.unwrap();
    bed.lists(&["app.example.org notFound", "www.example.org sync"]).await;

    down.store(true, Ordering::SeqCst);
    bed.answers(NAME, "A", &["192.0.2.9"]);
    bed.lists(&["app.example.org notFound", "www.example.org notFound"]).await;
    // A watch from before the outage would still deliver the deletion. It has ended once the operator asks for Ingresses again.
    eventually("the watch of Ingresses has ended", PATIENCE, || async {
        if ingresses_unread.load(Ordering::SeqCst) { Ok(()) } else { Err("still open") }
    })
    .await;
    // Deleted meanwhile: nothing is removed before the API server reports it.
    bed.api::<Ingress>().delete("app", &DeleteParams::default()).await.unwrap();
    bed.answers(NAME, "A", &["192.0.2.1"]);
    bed.lists(&["app.example.org notFound", "www.example.org sync"]).await;
    bed.answers(NAME, "A", &["192.0.2.8"]);
    bed.lists(&["app.example.org notFound", "www.example.org notFound"]).await;
    down.store(false, Ordering::SeqCst);
    bed.lists(&["www.example.org notFound"]).await;
    bed.shows("team", &[(NAME, "notFound/Mismatch")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_stops_neither_lookups_nor_visits() {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    let clock = Arc::new(ManualClock::starting_at(jiff::Timestamp::now()));
    let options = OperatorOptions { clock: clock.clone(), ..bed.options() };
    let server = ConnectPortal::start("main", 10).await;
    server.set_fqdns(vec![fqdn("a", "sync")]);
    bed.answers(NAME, "A", &["192.0.2.1"]);
    bed.start_with(bed.cluster.client(), options, bed.resolver.clone());
    bed.dns("team", one(NAME, "192.0.2.1"), json!({})).await;
    bed.remote(&format!("http://{}", server.addr()), serde_json::Value::Null).await;
    bed.lists(&["a.example.org sync", "www.example.org sync"]).await;
    clock.skew_by(jiff::SignedDuration::from_hours(-24));
    bed.answers(NAME, "A", &["192.0.2.9"]);
    server.set_fqdns(vec![fqdn("b", "sync")]);
    bed.lists(&["b.example.org sync", "www.example.org notFound"]).await;
    clock.skew_by(jiff::SignedDuration::from_hours(48));
    bed.answers(NAME, "A", &["192.0.2.1"]);
    bed.lists(&["b.example.org sync", "www.example.org sync"]).await;
}

impl Bed {
    /// Users act: two DNS objects, one with a component that gets another name, one that is deleted. Each step waits until the operator has
    /// done the one before, or has crashed.
    async fn script(&self, crashed: impl Fn() -> bool) {
        self.answers("new.example.org", "A", &["192.0.2.1"]);
        self.dns("a", one("old.example.org", "192.0.2.1"), json!({ "sreportal.io/component": "Shop" })).await;
        self.dns("b", one(NAME, "192.0.2.1"), json!({ "sreportal.io/component": "Blog" })).await;
        let components =
            async || -> usize { self.api::<Component>().list(&ListParams::default()).await.unwrap().items.len() };
        let reached = async |count: usize| {
            eventually("the components, or a crash", PATIENCE, || async {
                if crashed() || components().await == count { Ok(()) } else { Err(()) }
            })
            .await;
        };
        reached(2).await;
        let spec = json!({ "metadata": { "annotations": { "sreportal.io/component": "Store" } },
            "spec": { "groups": one("new.example.org", "192.0.2.1") } });
        self.api::<DNS>().patch("a", &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
        self.api::<DNS>().delete("b", &DeleteParams::default()).await.unwrap();
        reached(1).await;
    }

    /// What is there, as text; the same after every history.
    async fn ended(&self) -> Result<(), String> {
        let components = self.api::<Component>().list(&ListParams::default()).await.unwrap().items;
        let shown: Vec<(&str, &str)> = components
            .iter()
            .map(|component| (component.spec.display_name.as_str(), component.spec.portal_ref.as_str()))
            .collect();
        let portals = self.api::<Portal>().list(&ListParams::default()).await.unwrap().items;
        let ready: Vec<Option<bool>> =
            portals.iter().map(|portal| portal.status.as_ref().and_then(|status| status.ready)).collect();
        let (results, lines) = (self.results("a").await, self.lines());
        let expected = BTreeMap::from([("new.example.org".to_owned(), "sync/Match".to_owned())]);
        let as_wanted = shown == [("Store", "main")]
            && ready == [Some(true)]
            && results == expected
            && lines == ["new.example.org sync"];
        if as_wanted { Ok(()) } else { Err(format!("{shown:?} {ready:?} {results:?} {lines:?}")) }
    }
}

/// How many requests the operator sends until everything is as wanted, without a fault.
async fn requests() -> u64 {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    let last = Arc::new(AtomicU64::new(0));
    let count = last.clone();
    let plan = FaultPlan::new(move |_, n| {
        count.fetch_max(n, Ordering::Relaxed);
        Fault::None
    });
    bed.start_with(bed.cluster.sandbox().unwrap().client_with(plan), bed.options(), bed.resolver.clone());
    bed.script(|| false).await;
    eventually("everything is as wanted", PATIENCE, || bed.ended()).await;
    last.load(Ordering::Relaxed)
}

/// A crash after each of the requests, in two tests that run beside one another.
async fn crashes(part: u64) {
    let requests = requests().await;
    assert!(requests > 20, "{requests} requests: the script has become trivial");
    for n in (1..=requests).filter(|n| n % 2 == part) {
        let bed = Bed::without_operator(sandbox_cluster().await).await;
        let first = Session::new(FaultPlan::crash_after(n));
        let client = bed.cluster.sandbox().unwrap().session_client(&first);
        let running = bed.start_with(client, bed.options(), bed.resolver.clone());
        bed.script(|| first.is_crashed()).await;
        eventually("the first process is over or done", PATIENCE, || async {
            if first.is_crashed() { Ok(()) } else { bed.ended().await }
        })
        .await;
        running.abort();
        let second = bed.replica();
        second.answers("new.example.org", "A", &["192.0.2.1"]);
        second.start();
        eventually(&format!("a crash after request {n} ends as wanted"), PATIENCE, || second.ended()).await;
    }
}

mod a_crash_after_every_request_ends_the_same {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn even() {
        crashes(0).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn odd() {
        crashes(1).await;
    }
}

/// How a name server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Answers every name with this address.
    Right(Ipv4Addr),
    /// Answers nothing.
    Silent,
    /// Answers nothing for names that begin with `slow`.
    Slow,
    /// Answers every second question for a name.
    Flapping,
    /// Answers with another id.
    WrongId,
    /// Answers another question.
    WrongQuestion,
    /// Answers SERVFAIL to every question, as a forwarder whose own server is down.
    Broken,
    /// Answers SERVFAIL for names that begin with `slow`.
    OneBroken,
}

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A name server over UDP with the behaviour that a test sets.
struct Wild {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    asked: Arc<AtomicU64>,
}

impl Wild {
    async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (mood, asked) = (Arc::new(Mutex::new(Mood::Right(ADDRESS))), Arc::new(AtomicU64::new(0)));
        let (now, count) = (mood.clone(), asked.clone());
        tokio::spawn(async move {
            let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query).await {
                count.fetch_add(1, Ordering::SeqCst);
                let mood = *now.lock().unwrap();
                if let Some(answer) = answer(&query[..length], mood, &mut seen) {
                    drop(socket.send_to(&answer, from).await);
                }
            }
        });
        Self { address, mood, asked }
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Waits until it was asked so often again.
    async fn is_asked(&self, times: u64) {
        let before = self.asked.load(Ordering::SeqCst);
        eventually(&format!("{times} more questions"), PATIENCE, || async {
            let more = self.asked.load(Ordering::SeqCst) - before;
            if more >= times { Ok(()) } else { Err(more) }
        })
        .await;
    }
}

/// An answer on the wire: header, question, and one address where an address is asked for.
fn answer(query: &[u8], mood: Mood, seen: &mut BTreeMap<Vec<u8>, u64>) -> Option<Vec<u8>> {
    let name_ends = 12 + query.get(12..)?.iter().position(|byte| *byte == 0)? + 1;
    let question = query.get(12..name_ends + 4)?;
    let times = seen.entry(question.to_ascii_lowercase()).or_default();
    *times += 1;
    let address = match mood {
        Mood::Silent => return None,
        Mood::Slow if question.to_ascii_lowercase().starts_with(b"\x04slow") => return None,
        Mood::Flapping if *times % 2 == 1 => return None,
        Mood::Right(address) => address,
        _ => ADDRESS,
    };
    let is_address = query.get(name_ends..name_ends + 2)? == [0, 1];
    let mut answer = query.get(..2)?.to_vec();
    if mood == Mood::WrongId {
        answer[0] ^= 0xff;
    }
    let is_slow = question.to_ascii_lowercase().starts_with(b"\x04slow");
    let fails = mood == Mood::Broken || mood == Mood::OneBroken && is_slow;
    let answers = u8::from(is_address && !fails);
    answer.extend([0x81, if fails { 0x82 } else { 0x80 }, 0, 1, 0, answers, 0, 0, 0, 0]);
    answer.extend(question);
    if mood == Mood::WrongQuestion {
        let last = answer.len() - 1;
        answer[last - 4 - 1] = b'x';
        answer[last - 2] ^= 0x10;
    }
    if answers == 1 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

impl Bed {
    /// With a name server of any behaviour behind the real resolver.
    async fn with_wild_server() -> (Self, Wild) {
        let (bed, wild) = (Self::without_operator(sandbox_cluster().await).await, Wild::start().await);
        let options = Options {
            resolvers: vec![Upstream::Server(wild.address)],
            // A busy machine must not look like a slow name.
            deadline: Duration::from_secs(5),
            ..Options::default()
        };
        bed.start_with(bed.cluster.client(), bed.options(), Arc::new(Resolvers::new(&options)));
        (bed, wild)
    }

    /// Two names, one of which a slow server never answers.
    async fn two_names(&self) {
        let entry = |name: &str| json!({ "fqdn": name, "recordType": "A", "targets": [ADDRESS.to_string()] });
        let entries = json!([entry("fast.example.org"), entry("slow.example.org")]);
        self.dns("team", json!([{ "name": "all", "entries": entries }]), json!({})).await;
    }

    async fn both_show(&self, fast: &str, slow: &str) {
        self.shows("team", &[("fast.example.org", fast), ("slow.example.org", slow)]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_does_not_work_keeps_every_verdict_and_is_reported() {
    let (bed, wild) = Bed::with_wild_server().await;
    wild.set(Mood::Silent);
    bed.two_names().await;
    bed.condition("team", "Resolved", "ResolverUnavailable").await;
    bed.both_show("/", "/").await;
    assert_eq!(bed.in_inventory(SyncStatus::Unchecked), 2, "an outage is not a verdict");
    for mood in [Mood::Silent, Mood::WrongId, Mood::WrongQuestion] {
        wild.set(Mood::Right(ADDRESS));
        bed.condition("team", "Resolved", "Answered").await;
        bed.both_show("sync/Match", "sync/Match").await;
        wild.set(mood);
        bed.condition("team", "Resolved", "ResolverUnavailable").await;
        bed.both_show("sync/Match", "sync/Match").await;
        assert_eq!(bed.in_inventory(SyncStatus::Sync), 2, "{mood:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_name_is_reported_alone_and_a_wrong_answer_until_it_is_right() {
    let (bed, wild) = Bed::with_wild_server().await;
    wild.set(Mood::Slow);
    bed.two_names().await;
    bed.both_show("sync/Match", "timeout/Timeout").await;
    bed.condition("team", "Resolved", "Answered").await;
    wild.set(Mood::Right(Ipv4Addr::new(192, 0, 2, 9)));
    bed.both_show("notFound/Mismatch", "notFound/Mismatch").await;
    // A failure of one name is its own; a resolver that fails for every name does not work, and turns none red.
    wild.set(Mood::OneBroken);
    bed.both_show("sync/Match", "error/ServFail").await;
    bed.condition("team", "Resolved", "Answered").await;
    wild.set(Mood::Right(ADDRESS));
    bed.both_show("sync/Match", "sync/Match").await;
    wild.set(Mood::Broken);
    bed.condition("team", "Resolved", "ResolverUnavailable").await;
    bed.both_show("sync/Match", "sync/Match").await;
    let version = bed.api::<DNS>().get("team").await.unwrap().metadata.resource_version;
    wild.is_asked(30).await;
    let after = bed.api::<DNS>().get("team").await.unwrap().metadata.resource_version;
    assert_eq!(after, version, "the status is not written again while the outage lasts");
    wild.set(Mood::Right(Ipv4Addr::new(192, 0, 2, 9)));
    bed.both_show("notFound/Mismatch", "notFound/Mismatch").await;
    bed.condition("team", "Resolved", "Answered").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flapping_resolver_turns_no_name_red() {
    let (bed, wild) = Bed::with_wild_server().await;
    bed.two_names().await;
    bed.both_show("sync/Match", "sync/Match").await;
    bed.condition("team", "Ready", "ReconcileSucceeded").await;
    let version = bed.api::<DNS>().get("team").await.unwrap().metadata.resource_version;
    wild.set(Mood::Flapping);
    wild.is_asked(24).await;
    let after = bed.api::<DNS>().get("team").await.unwrap().metadata.resource_version;
    assert_eq!(after, version, "the status was not written");
    assert_eq!(bed.lines(), ["fast.example.org sync", "slow.example.org sync"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_take_too_long_do_not_delay_those_of_other_objects() {
    let (bed, wild) = (Bed::without_operator(sandbox_cluster().await).await, Wild::start().await);
    wild.set(Mood::Slow);
    let (resolvers, deadline) = (vec![Upstream::Server(wild.address)], Duration::from_secs(2));
    let options = Options { resolvers, concurrency: 4, deadline, ..Options::default() };
    bed.start_at(bed.cluster.client(), bed.options(), Arc::new(Resolvers::new(&options)), |pace| {
        (pace.lookups, pace.slow) = (4, 2);
        // Every name has its first lookup in the first pass of its object.
        pace.budget = Duration::from_mins(1);
    });
    for object in 0..30 {
        let entry = |part: &str| json!({ "fqdn": format!("slow.{part}{object}.example.org"), "recordType": "A" });
        let groups = json!([{ "name": "all", "entries": [entry("a"), entry("b")] }]);
        bed.dns(&format!("slow{object}"), groups, json!({})).await;
    }
    eventually("all of them take too long", PATIENCE, || async {
        let late = bed.in_inventory(SyncStatus::Timeout);
        if late == 60 { Ok(()) } else { Err(late) }
    })
    .await;
    // They are looked up again and again. One after another at four turns, that takes 30 seconds.
    let created = Instant::now();
    bed.dns("team", one("fast.example.org", &ADDRESS.to_string()), json!({})).await;
    bed.has_result("fast.example.org", "sync/Match").await;
    assert!(created.elapsed() < Duration::from_secs(10), "{:?}", created.elapsed());
}

/// Takes too long for every name, and counts the lookups of each that were not given up.
#[derive(Debug, Default)]
struct Tardy(Mutex<BTreeMap<Fqdn, usize>>);

impl Tardy {
    /// How many names were looked up so often.
    fn looked_up(&self, times: usize) -> usize {
        self.0.lock().unwrap().values().filter(|seen| **seen >= times).count()
    }
}

impl Lookup for Tardy {
    fn lookup<'a>(&'a self, name: &'a Fqdn, _rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let (server, after): (Arc<str>, _) = ("tardy".into(), Duration::from_millis(100));
            tokio::time::sleep(after).await;
            *self.0.lock().unwrap().entry(name.clone()).or_default() += 1;
            vec![Reply { resolver: server.clone(), result: Err(LookupError::Timeout { server, after }) }]
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_many_objects_that_take_too_long_are_all_looked_up_again() {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    let tardy = Arc::<Tardy>::default();
    bed.start_at(bed.cluster.client(), bed.options(), tardy.clone(), |pace| {
        // One after another, all names take five times as long as a pass.
        (pace.lookups, pace.slow, pace.budget) = (10, 1, Duration::from_secs(2));
    });
    for object in 0..12 {
        let entry = |number: usize| json!({ "fqdn": format!("n{number}.o{object}.example.org"), "recordType": "A" });
        let entries: Vec<_> = (0..8).map(entry).collect();
        bed.dns(&format!("team{object}"), json!([{ "name": "all", "entries": entries }]), json!({})).await;
    }
    eventually("every name is looked up again", PATIENCE, || async {
        let often = tardy.looked_up(2);
        if often == 96 { Ok(()) } else { Err(often) }
    })
    .await;
}
