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
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
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
use signpost_sandbox::{DenyRule, Fault, FaultPlan, RequestInfo, Sandbox};
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

struct Replica {
    stop: CancellationToken,
    task: JoinHandle<Result<(), OperatorError>>,
    health: Health,
    calls: Arc<Mutex<Vec<String>>>,
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
    let holder =
        Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(user, "default").get("signpost").await.unwrap();
    assert_eq!(holder.spec.unwrap().holder_identity.as_deref(), Some(""));
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
