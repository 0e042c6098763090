//! Replicas on the sandbox: when they start to work, how they stop, and which one takes over.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

#[allow(dead_code, missing_docs, unreachable_pub, reason = "the example has its own test")]
#[path = "example/greeter.rs"]
mod greeter;
mod support;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use greeter::index::{Greeting, GreetingSpec};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use signpost_engine::{
    OperatorError, OperatorOptions,
    health::{Check, Health},
    lease::LeaseOptions,
    metrics::Metrics,
};
use signpost_inventory::{Inventory, Owner};
use signpost_sandbox::{DenyRule, EventPlan, Fault, FaultPlan, RequestInfo, Sandbox};
use support::{
    eventually,
    mirror::{self, Mirror, MirrorSpec},
    sandbox,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

async fn cluster() -> (Sandbox, Client) {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    support::install_mirrors(&user).await;
    (sandbox, user)
}

async fn make(client: &Client, name: &str) {
    let mirror = Mirror::new(name, MirrorSpec { text: name.into() });
    Api::<Mirror>::namespaced(client.clone(), "default").create(&PostParams::default(), &mirror).await.unwrap();
}

async fn status(client: &Client, name: &str) -> Option<String> {
    let mirror = Api::<Mirror>::namespaced(client.clone(), "default").get(name).await.unwrap();
    mirror.status.and_then(|status| status.text)
}

async fn mirrored(client: &Client, name: &str) -> Duration {
    let began = Instant::now();
    eventually(&format!("{name} is mirrored"), Duration::from_mins(2), || status(client, name)).await;
    began.elapsed()
}

fn with_lease(identity: &str) -> OperatorOptions {
    OperatorOptions {
        identity: identity.to_owned(),
        lease: Some(LeaseOptions::new("default", "signpost")),
        clock: support::clock(),
        ..OperatorOptions::default()
    }
}

/// The holder of the lease.
async fn holder(client: &Client) -> String {
    let lease = Api::<Lease>::namespaced(client.clone(), "default").get("signpost").await.unwrap();
    lease.spec.unwrap().holder_identity.unwrap()
}

struct Replica {
    stop: CancellationToken,
    task: JoinHandle<Result<(), OperatorError>>,
    health: Health,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Replica {
    fn knows(&self, name: &str) -> bool {
        self.calls.lock().unwrap().contains(&format!("applied Mirror default/{name}"))
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn start(client: Client, options: OperatorOptions) -> Replica {
    let (operator, maps) = mirror::operator(client, options);
    let stop = CancellationToken::new();
    let health = operator.health();
    Replica { task: tokio::spawn(operator.run(stop.clone())), stop, health, calls: maps.calls }
}

#[tokio::test(start_paused = true)]
async fn a_single_change_is_processed_at_once() {
    let (sandbox, user) = cluster().await;
    let _replica = start(sandbox.client(), OperatorOptions { clock: support::clock(), ..OperatorOptions::default() });
    make(&user, "first").await;
    mirrored(&user, "first").await;
    sleep(Duration::from_secs(10)).await;
    let before = Instant::now();
    make(&user, "second").await;
    mirrored(&user, "second").await;
    assert!(before.elapsed() <= Duration::from_millis(200), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_status_is_written_once_the_api_server_accepts_it() {
    let (sandbox, user) = cluster().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    // As with CRDs that are older than the operator.
    sandbox.faults().set(FaultPlan::new(move |info, _| {
        if info.subresource != "status" || !info.is_write() {
            return Fault::None;
        }
        counted.fetch_add(1, Ordering::SeqCst);
        Fault::status(422, "Invalid", "status.text: Unsupported value")
    }));
    let _replica = start(sandbox.client(), OperatorOptions { clock: support::clock(), ..OperatorOptions::default() });
    make(&user, "a").await;
    sleep(Duration::from_mins(1)).await;
    let first = tries.load(Ordering::SeqCst);
    assert!(first > 0, "it was sent");
    sleep(Duration::from_mins(30)).await;
    let later = tries.load(Ordering::SeqCst) - first;
    assert!((1..=10).contains(&later), "{later} tries in half an hour");
    // Nothing touches the object, and the operator is not started again.
    sandbox.faults().clear();
    eventually("the status is written", Duration::from_mins(10), || status(&user, "a")).await;
}

#[tokio::test(start_paused = true)]
async fn background_work_may_end_and_its_panic_ends_the_operator() {
    let (sandbox, _user) = cluster().await;
    let options = OperatorOptions { clock: support::clock(), ..OperatorOptions::default() };
    let (mut operator, _maps) = mirror::operator(sandbox.client(), options);
    operator.spawn(async {});
    operator.spawn(async {
        sleep(Duration::from_mins(1)).await;
        panic!("a defect in a probe");
    });
    let running = tokio::spawn(operator.run(CancellationToken::new()));
    sleep(Duration::from_secs(50)).await;
    assert!(!running.is_finished());
    let ended = running.await.unwrap();
    assert!(matches!(ended, Err(OperatorError::Broken { part: "background work", .. })), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_every_required_kind_is_listed() {
    let (sandbox, user) = cluster().await;
    make(&user, "a").await;
    // ConfigMaps cannot be listed yet, so nothing may be decided.
    sandbox.faults().set(FaultPlan::new(|info, _| {
        if info.verb == "list" && info.resource == "configmaps" { Fault::unavailable() } else { Fault::None }
    }));
    let before = sandbox.writes();
    let replica = start(sandbox.client(), OperatorOptions { clock: support::clock(), ..OperatorOptions::default() });
    sleep(Duration::from_mins(2)).await;
    assert_eq!(sandbox.writes(), before);
    assert!(
        matches!(&replica.health.checks()["kind configmaps"], Check::Failing { message, .. } if message.contains("503"))
    );
    sandbox.faults().clear();
    mirrored(&user, "a").await;
    assert!(replica.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_follower_watches_and_writes_nothing() {
    let (sandbox, user) = cluster().await;
    let leader = start(sandbox.client(), with_lease("leader"));
    make(&user, "a").await;
    mirrored(&user, "a").await;
    let writes = Arc::new(Mutex::new(0));
    let counted = writes.clone();
    let plan = FaultPlan::new(move |info, _| {
        if info.is_write() {
            *counted.lock().unwrap() += 1;
        }
        Fault::None
    });
    let follower = start(sandbox.client_with(plan), with_lease("follower"));
    make(&user, "b").await;
    mirrored(&user, "b").await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(*writes.lock().unwrap(), 0);
    assert!(follower.calls.lock().unwrap().contains(&"applied Mirror default/b".to_owned()), "it serves reads");
    assert!(follower.health.is_ready() && leader.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_its_work_over_within_two_seconds() {
    let (sandbox, user) = cluster().await;
    let first = start(sandbox.client(), with_lease("first"));
    make(&user, "a").await;
    mirrored(&user, "a").await;
    let _second = start(sandbox.client(), with_lease("second"));
    sleep(Duration::from_secs(30)).await;
    let began = Instant::now();
    first.stop.cancel();
    make(&user, "b").await;
    first.task.await.unwrap().unwrap();
    mirrored(&user, "b").await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// A replica that has just been elected. The leader before it had published b, which this replica did not know: since before b was created,
/// its requests for Mirrors of these verbs have met the fault.
struct Elected {
    sandbox: Sandbox,
    user: Client,
    replica: Replica,
    faulty: Arc<AtomicBool>,
}

impl Elected {
    async fn new(verbs: &'static [&'static str], fault: Fault) -> Self {
        let (sandbox, user) = cluster().await;
        let first = start(sandbox.client(), with_lease("first"));
        make(&user, "a").await;
        mirrored(&user, "a").await;
        let faulty = Arc::new(AtomicBool::new(false));
        let on = faulty.clone();
        let plan = FaultPlan::new(move |info, _| {
            let meets = info.resource == "mirrors" && verbs.contains(&info.verb.as_str());
            if meets && on.load(Ordering::Relaxed) { fault.clone() } else { Fault::None }
        });
        let replica = start(sandbox.client_with(plan), with_lease("second"));
        sleep(Duration::from_secs(10)).await;
        faulty.store(true, Ordering::Relaxed);
        // The watch that is open ends within a minute.
        sleep(Duration::from_mins(1)).await;
        make(&user, "b").await;
        mirrored(&user, "b").await;
        assert!(replica.knows("a") && !replica.knows("b"));
        first.stop().await;
        eventually("the second replica leads", Duration::from_secs(5), || async {
            (holder(&user).await == "second").then_some(())
        })
        .await;
        Self { sandbox, user, replica, faulty }
    }

    /// ConfigMaps that were deleted.
    fn deletions(&self) -> usize {
        let is_deletion = |info: &RequestInfo| info.verb == "delete" && info.resource == "configmaps";
        self.sandbox.log().iter().filter(|entry| is_deletion(&entry.info)).count()
    }

    /// Ends the faults, and waits until this replica works.
    async fn recovers(&self) {
        self.faulty.store(false, Ordering::Relaxed);
        make(&self.user, "c").await;
        mirrored(&self.user, "c").await;
        assert!(self.replica.health.is_ready() && self.replica.knows("b"));
        assert_eq!(self.deletions(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_whose_view_was_frozen_deletes_nothing() {
    let faults = [
        Fault::status(403, "Forbidden", "refused by the test"),
        Fault::throttled(30),
        // The watch is open and delivers nothing.
        Fault::Events(EventPlan::late(Duration::from_hours(1))),
    ];
    for fault in faults {
        let elected = Elected::new(&["watch"], fault.clone()).await;
        sleep(Duration::from_mins(1)).await;
        assert!(elected.replica.knows("b"), "{fault:?}: it was listed again");
        assert_eq!(elected.deletions(), 0, "{fault:?}");
        elected.recovers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_for_a_fresh_list_and_names_it() {
    let elected = Elected::new(&["list", "watch"], Fault::unavailable()).await;
    make(&elected.user, "waiting").await;
    sleep(Duration::from_mins(2)).await;
    let checks = elected.replica.health.checks();
    let Check::Failing { message, .. } = &checks["kind mirrors.test.signpost.dev"] else { panic!("{checks:?}") };
    let waits = message.starts_with("mirror: waiting for a fresh list of Mirror: not current since ");
    assert!(waits && message.contains("503"), "{message}");
    assert_eq!(status(&elected.user, "waiting").await, None, "it does not work on an old view");
    elected.recovers().await;
    mirrored(&elected.user, "waiting").await;
}

#[tokio::test(start_paused = true)]
async fn stopping_while_waiting_for_a_fresh_list_releases_the_lease() {
    let elected = Elected::new(&["list", "watch"], Fault::unavailable()).await;
    sleep(Duration::from_secs(30)).await;
    let began = Instant::now();
    elected.replica.stop().await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(holder(&elected.user).await, "");
}

#[tokio::test(start_paused = true)]
async fn each_kind_is_listed_once_at_a_start_and_once_when_elected() {
    for delay in [Duration::ZERO, Duration::from_millis(300)] {
        let (sandbox, user) = cluster().await;
        let lists = || {
            let counts = sandbox.request_counts();
            ["mirrors", "configmaps"].map(|kind| counts.get(&("list".to_owned(), kind.to_owned())).copied())
        };
        // Two requests until the first one leads.
        let slow =
            FaultPlan::new(move |info, _| if info.resource == "leases" { Fault::Delay(delay) } else { Fault::None });
        let first = start(sandbox.client_with(slow), with_lease("first"));
        make(&user, "a").await;
        mirrored(&user, "a").await;
        sleep(Duration::from_mins(3)).await;
        assert_eq!(lists(), [Some(1); 2], "a start with a free lease, answers after {delay:?}");
        let _second = start(sandbox.client(), with_lease("second"));
        sleep(Duration::from_mins(3)).await;
        assert_eq!(lists(), [Some(2); 2], "a start as a follower");
        first.stop().await;
        make(&user, "b").await;
        mirrored(&user, "b").await;
        sleep(Duration::from_mins(3)).await;
        assert_eq!(lists(), [Some(3); 2], "an election");
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_flushes_work_and_statuses_before_the_lease() {
    let (sandbox, user) = cluster().await;
    // Every write takes a second, so that the stop has to wait.
    let slow = FaultPlan::new(|info, _| {
        if info.is_write() && info.resource != "leases" { Fault::Delay(Duration::from_secs(1)) } else { Fault::None }
    });
    let replica = start(sandbox.client_with(slow), with_lease("one"));
    sleep(Duration::from_secs(5)).await;
    make(&user, "a").await;
    sleep(Duration::from_millis(500)).await;
    replica.stop.cancel();
    replica.task.await.unwrap().unwrap();
    assert_eq!(status(&user, "a").await.as_deref(), Some("a"), "a started pass was finished and reported");
    let log = sandbox.log();
    let last_status = log.iter().rposition(|entry| entry.info.subresource == "status").unwrap();
    let release = log.iter().rposition(|entry| entry.info.resource == "leases" && entry.is_write()).unwrap();
    assert!(last_status < release, "the lease is released last");
    assert_eq!(holder(&user).await, "");
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_a_limited_time() {
    let (sandbox, user) = cluster().await;
    let stuck = FaultPlan::new(|info, _| {
        if info.is_write() && info.resource != "leases" { Fault::Delay(Duration::from_hours(1)) } else { Fault::None }
    });
    let replica = start(sandbox.client_with(stuck), with_lease("one"));
    sleep(Duration::from_secs(5)).await;
    make(&user, "a").await;
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    replica.stop.cancel();
    replica.task.await.unwrap().unwrap();
    assert!(began.elapsed() <= Duration::from_secs(12), "{:?}", began.elapsed());
    let before = sandbox.writes();
    sleep(Duration::from_hours(2)).await;
    assert_eq!(sandbox.writes(), before, "nothing is left running");
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_on_the_lease_is_named() {
    for verb in ["get", "create", "update"] {
        let (sandbox, user) = cluster().await;
        if verb == "update" {
            // There is a lease already, from a replica that has stopped.
            let before = start(sandbox.client(), with_lease("before"));
            sleep(Duration::from_secs(1)).await;
            before.stop.cancel();
            before.task.await.unwrap().unwrap();
        }
        sandbox.deny(vec![DenyRule::new(verb, "leases")]);
        let replica = start(sandbox.client(), with_lease("one"));
        sleep(Duration::from_secs(5)).await;
        let checks = replica.health.checks();
        let Check::Failing { message, fix } = &checks["lease default/signpost"] else { panic!("{verb}: {checks:?}") };
        assert!(message.contains(verb) && fix.as_ref().unwrap().contains("leases"), "{verb}: {message}");
        sandbox.deny(Vec::new());
        make(&user, "a").await;
        mirrored(&user, "a").await;
        assert!(replica.health.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn lease_errors_are_reported_while_there_is_no_leader() {
    let lease = |info: &RequestInfo| info.resource == "leases";
    let errors = [
        ("401 Unauthorized", Fault::status(401, "Unauthorized", "Unauthorized")),
        ("422 not a lease", Fault::status(422, "Invalid", "not a lease")),
        ("500", Fault::internal()),
        ("no answer", Fault::Delay(Duration::from_mins(1))),
    ];
    for (reported, fault) in errors {
        let (sandbox, user) = cluster().await;
        let plan = FaultPlan::new(move |info, _| if lease(info) { fault.clone() } else { Fault::None });
        sandbox.faults().set(plan.clone());
        let replica = start(sandbox.client(), with_lease("one"));
        sleep(Duration::from_secs(6)).await;
        let checks = replica.health.checks();
        let check = &checks["lease default/signpost"];
        assert!(
            matches!(check, Check::Failing { message, .. } if message.contains(reported)),
            "{reported}: {checks:?}"
        );
        sandbox.faults().clear();
        make(&user, "a").await;
        mirrored(&user, "a").await;
        assert!(replica.health.is_ready(), "{reported}: {:?}", replica.health.checks());
        // While another replica leads, this one is ready, until the lease of that one expires.
        let other = start(sandbox.client(), with_lease("other"));
        sleep(Duration::from_secs(5)).await;
        sandbox.faults().set(plan);
        sleep(Duration::from_secs(6)).await;
        assert!(other.health.is_ready(), "{reported}: {:?}", other.health.checks());
        sleep(Duration::from_secs(20)).await;
        assert!(!other.health.is_ready(), "{reported}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_of_the_lease_is_named() {
    let (sandbox, user) = cluster().await;
    let lease = Some(LeaseOptions::new("nowhere", "signpost"));
    let replica = start(sandbox.client(), OperatorOptions { lease, ..with_lease("one") });
    sleep(Duration::from_secs(5)).await;
    let checks = replica.health.checks();
    let Check::Failing { message, fix } = &checks["lease nowhere/signpost"] else { panic!("{checks:?}") };
    assert!(message.contains("nowhere") && fix.as_ref().unwrap().contains("namespace nowhere"), "{message}");
    let namespace: Namespace =
        serde_json::from_value(serde_json::json!({ "metadata": { "name": "nowhere" } })).unwrap();
    Api::all(user.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    make(&user, "a").await;
    mirrored(&user, "a").await;
    assert!(replica.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn losing_the_lease_ends_the_replica_and_all_its_writes() {
    let (sandbox, user) = cluster().await;
    let cut = Arc::new(Mutex::new(false));
    let flag = cut.clone();
    let plan =
        FaultPlan::new(
            move |info, _| {
                if *flag.lock().unwrap() && info.resource == "leases" { Fault::Drop } else { Fault::None }
            },
        );
    let first = start(sandbox.client_with(plan), with_lease("first"));
    make(&user, "a").await;
    mirrored(&user, "a").await;
    let _second = start(sandbox.client(), with_lease("second"));
    *cut.lock().unwrap() = true;
    let ended = tokio::time::timeout(Duration::from_secs(13), first.task).await.expect("ends in time").unwrap();
    assert!(matches!(ended, Err(OperatorError::LeaseLost)), "{ended:?}");
    make(&user, "b").await;
    assert!(mirrored(&user, "b").await <= Duration::from_secs(20));
}

#[tokio::test]
async fn health_and_metrics_are_served_over_http() {
    let health = Health::new(Metrics::new());
    health.set("kind rrsets", Check::failing_with_fix("the CRD is not installed", "signpost crds"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = tokio::spawn({
        let (health, stop) = (health.clone(), stop.clone());
        async move { health.serve(listener, stop).await }
    });
    let get = |path: &'static str| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(get("/healthz").await.starts_with("HTTP/1.1 200"));
    let answer = get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("to fix it: signpost crds"), "{answer}");
    let answer = get("/readyz?format=json").await;
    assert!(answer.contains(r#""ready":false"#) && answer.contains(r#""fix":"signpost crds""#), "{answer}");
    health.clear("kind rrsets");
    assert!(get("/readyz").await.starts_with("HTTP/1.1 200"));
    let answer = get("/metrics").await;
    assert!(answer.contains("application/openmetrics-text") && answer.contains("signpost_leader 0"), "{answer}");
    stop.cancel();
    server.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_replica_keeps_the_names_of_its_systems_in_the_inventory() {
    let (sandbox, user) = cluster().await;
    let inventories: Vec<Arc<Inventory>> = ["leader", "follower"]
        .map(|identity| {
            let inventory = Arc::new(Inventory::new());
            let (mut operator, _maps) = mirror::operator(sandbox.client(), with_lease(identity));
            operator.keep_inventory(inventory.clone());
            tokio::spawn(operator.run(CancellationToken::new()));
            inventory
        })
        .to_vec();
    let shows = async |expected: &[&str]| {
        for inventory in &inventories {
            eventually(&format!("{expected:?}"), Duration::from_mins(2), || async {
                let snapshot = inventory.snapshot();
                let names: Vec<&str> = snapshot.iter().map(|view| view.name().undotted()).collect();
                (names == expected).then_some(())
            })
            .await;
        }
    };
    make(&user, "one").await;
    make(&user, "two").await;
    shows(&["one.default.example", "two.default.example"]).await;
    let mirrors = Api::<Mirror>::namespaced(user.clone(), "default");
    mirrors.delete("one", &kube::api::DeleteParams::default()).await.unwrap();
    shows(&["two.default.example"]).await;
    let owners = inventories[1].owners("mirror");
    assert_eq!(owners.iter().map(Owner::key).collect::<Vec<_>>(), ["default"], "an owner is a key");
}

/// Only the answer to its creation has shown the child. A list that does not have it is all that reports its deletion.
#[tokio::test(start_paused = true)]
async fn a_child_deleted_before_the_watch_delivered_it_is_created_again() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    support::install_kind(&user, "Greeting").await;
    // The first watch breaks at its first event. Until the child is deleted all others break, and the next one after that has expired.
    let (broken, expired, deleted) = (AtomicBool::new(false), AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let over = deleted.clone();
    let faults = FaultPlan::new(move |info, _| match info.verb.as_str() {
        "watch" | "list" if info.resource != "configmaps" => Fault::None,
        "watch" if !broken.swap(true, Ordering::Relaxed) => Fault::CutWatch { after: 0 },
        "watch" | "list" if broken.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) => Fault::Drop,
        "watch" if !expired.swap(true, Ordering::Relaxed) => Fault::expired(),
        _ => Fault::None,
    });
    let mut operator = support::operator(sandbox.client_with(faults));
    greeter::install(&mut operator, String::new());
    let _running = support::run(operator);
    let greetings: Api<Greeting> = Api::namespaced(user.clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(user, "default");
    let greeting = Greeting::new("hello", GreetingSpec { text: "world".into() });
    greetings.create(&PostParams::default(), &greeting).await.unwrap();
    eventually("the greeting is served", Duration::from_mins(1), || async {
        greetings.get("hello").await.unwrap().status.filter(|status| !status.conditions.is_empty())
    })
    .await;
    maps.delete("hello", &DeleteParams::default()).await.unwrap();
    deleted.store(true, Ordering::Relaxed);
    eventually("the ConfigMap is created again", Duration::from_mins(2), || async {
        maps.get_opt("hello").await.unwrap()
    })
    .await;
}
