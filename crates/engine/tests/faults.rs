//! A complete system on the sandbox, under every kind of fault, thousands of times.
//!
//! A *script* is a list of user actions; a *scenario* is a kind of fault. Each schedule runs one script under one scenario. It must end in
//! the same state as the script without faults, and then write nothing. The seed determines everything: a failure prints it, and `SEED=…
//! cargo test -p signpost-engine --test faults` runs that schedule alone, with its log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use signpost_engine::{
    OperatorError, OperatorOptions,
    lease::{LeaseOptions, Role},
};
use signpost_sandbox::{Fault, FaultPlan, RequestInfo, RequestLogEntry, Sandbox, Session};
use support::mirror::{self, Mirror};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

/// Number of scripts.
const SCRIPTS: u64 = 40;
/// Longest time from the last user action to the expected state.
const CONVERGE: Duration = Duration::from_mins(10);
/// A time without writes after which no late event is expected: a watch that was cut may deliver old changes again.
const SETTLE: Duration = Duration::from_secs(90);
/// How long the cluster is watched for writes afterwards.
const REST: Duration = Duration::from_mins(2);

const FOREVER: Duration = Duration::from_hours(1_000);

#[derive(Clone, Debug)]
enum Action {
    Make {
        at: Place,
        text: Value,
    },
    Change {
        at: Place,
        text: Value,
    },
    Delete {
        at: Place,
    },
    /// Makes an object that is being deleted readable again, if it still exists.
    Repair {
        at: Place,
        text: Value,
    },
    /// A user edits the copy.
    EditCopy {
        at: Place,
    },
    /// A user deletes the copy.
    DeleteCopy {
        at: Place,
    },
    Wait(Duration),
}

type Place = (&'static str, String);

/// The user actions of script `number`. At its end every object is deleted, valid, or was never valid.
fn script(number: u64) -> Vec<Action> {
    let mut rng = StdRng::seed_from_u64(number);
    let mut alive: BTreeSet<Place> = BTreeSet::new();
    let mut unreadable: BTreeSet<Place> = BTreeSet::new();
    let mut actions = Vec::new();
    let mut texts = 0;
    let mut text = || {
        texts += 1;
        json!(format!("text {texts}"))
    };
    for turn in 0..rng.random_range(6..12) {
        let namespace = if rng.random_bool(0.7) { "default" } else { "kube-public" };
        let at: Place = (namespace, format!("m{}", rng.random_range(0..4)));
        if alive.contains(&at) {
            match rng.random_range(0..6) {
                0 => {
                    actions.push(Action::Delete { at: at.clone() });
                    alive.remove(&at);
                    // An unreadable object keeps its finalizer: its owner repairs it.
                    if unreadable.remove(&at) {
                        actions.push(Action::Wait(Duration::from_millis(rng.random_range(1..3_000))));
                        actions.push(Action::Repair { at, text: text() });
                    }
                }
                1 => actions.push(Action::EditCopy { at }),
                2 => actions.push(Action::DeleteCopy { at }),
                3 => {
                    actions.push(Action::Change { at: at.clone(), text: json!(["not", "a", "text"]) });
                    unreadable.insert(at);
                }
                _ => {
                    actions.push(Action::Change { at: at.clone(), text: text() });
                    unreadable.remove(&at);
                }
            }
        } else {
            actions.push(Action::Make { at: at.clone(), text: text() });
            alive.insert(at);
        }
        if turn == 2 && rng.random_bool(0.5) {
            actions.push(Action::Make { at: ("default", "unreadable".to_owned()), text: json!(42) });
        }
        if rng.random_bool(0.6) {
            actions.push(Action::Wait(Duration::from_millis(rng.random_range(1..3_000))));
        }
    }
    for at in unreadable {
        actions.push(Action::Change { at, text: text() });
    }
    actions
}

fn mirrors(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Mirror>(&()))
}

/// Does one action, as a user would: again until it succeeds.
async fn act(client: &Client, action: Action) {
    match action {
        Action::Wait(time) => tokio::time::sleep(time).await,
        Action::Make { at: (namespace, name), text } => {
            let object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "test.signpost.dev/v1", "kind": "Mirror",
                "metadata": { "name": name, "namespace": namespace }, "spec": { "text": text },
            }))
            .unwrap();
            // The deletion of the previous object of that name may still be in progress.
            support::eventually("the name is free", CONVERGE, || async {
                mirrors(client, namespace).create(&PostParams::default(), &object).await.ok()
            })
            .await;
        }
        Action::Change { at: (namespace, name), text } => {
            let patch = Patch::Merge(json!({ "spec": { "text": text } }));
            mirrors(client, namespace).patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
        Action::Repair { at: (namespace, name), text } => {
            let patch = Patch::Merge(json!({ "spec": { "text": text } }));
            match mirrors(client, namespace).patch(&name, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                answer => drop(answer.unwrap()),
            }
        }
        Action::Delete { at: (namespace, name) } => {
            mirrors(client, namespace).delete(&name, &DeleteParams::default()).await.unwrap();
        }
        Action::EditCopy { at: (namespace, name) } => {
            let patch = Patch::Merge(json!({ "data": { "text": "not what it was" } }));
            let _ = copies(client, namespace).patch(&name, &PatchParams::default(), &patch).await;
        }
        Action::DeleteCopy { at: (namespace, name) } => {
            let _ = copies(client, namespace).delete(&name, &DeleteParams::default()).await;
        }
    }
}

fn copies(client: &Client, namespace: &str) -> Api<k8s_openapi::api::core::v1::ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    NoFaults,
    CutWatches,
    ExpiredWatches,
    EndedWatches,
    Conflicts,
    Throttling,
    Errors,
    LostAnswers,
    DroppedAndSlow,
    StaleLists,
    Everything,
    Crashes,
    TwoReplicas,
}

const SCENARIOS: [Scenario; 12] = [
    Scenario::CutWatches,
    Scenario::ExpiredWatches,
    Scenario::EndedWatches,
    Scenario::Conflicts,
    Scenario::Throttling,
    Scenario::Errors,
    Scenario::LostAnswers,
    Scenario::DroppedAndSlow,
    Scenario::StaleLists,
    Scenario::Everything,
    Scenario::Crashes,
    Scenario::TwoReplicas,
];

/// The faults one client meets.
fn plan(scenario: Scenario, seed: u64) -> FaultPlan {
    let rng = Mutex::new(StdRng::seed_from_u64(seed));
    let roll = move |share: f64| {
        let mut rng = rng.lock().unwrap();
        let number = rng.random_range(0..4_u64);
        rng.random_bool(share).then_some(number)
    };
    let watch = |info: &RequestInfo| info.verb == "watch";
    match scenario {
        Scenario::NoFaults | Scenario::TwoReplicas => FaultPlan::none(),
        Scenario::Everything => FaultPlan::seeded(seed, 0.3),
        Scenario::Crashes => FaultPlan::crash_after(StdRng::seed_from_u64(seed).random_range(1..60)),
        Scenario::CutWatches => FaultPlan::new(move |info, _| match roll(0.7) {
            Some(number) if watch(info) => Fault::CutWatch { after: usize::try_from(number).unwrap() },
            _ => Fault::None,
        }),
        Scenario::ExpiredWatches => FaultPlan::new(move |info, _| match roll(0.6) {
            Some(number) if watch(info) => Fault::ExpireWatch { after: usize::try_from(number).unwrap() },
            _ => Fault::None,
        }),
        Scenario::EndedWatches => FaultPlan::new(move |info, _| match roll(0.8) {
            Some(number) if watch(info) => Fault::EndWatch { after: usize::try_from(number).unwrap() },
            _ => Fault::None,
        }),
        Scenario::Conflicts => FaultPlan::new(move |info, _| match roll(0.5) {
            Some(_) if info.is_write() => Fault::conflict(),
            _ => Fault::None,
        }),
        Scenario::Throttling => FaultPlan::new(move |_, _| match roll(0.3) {
            Some(number) => Fault::throttled(number + 1),
            None => Fault::None,
        }),
        Scenario::Errors => FaultPlan::new(move |_, _| match roll(0.4) {
            Some(0 | 1) => Fault::internal(),
            Some(_) => Fault::unavailable(),
            None => Fault::None,
        }),
        Scenario::LostAnswers => FaultPlan::new(move |info, _| match roll(0.5) {
            Some(_) if info.is_write() => Fault::LoseAnswer,
            _ => Fault::None,
        }),
        Scenario::DroppedAndSlow => FaultPlan::new(move |_, _| match roll(0.5) {
            Some(0 | 1) => Fault::Drop,
            Some(number) => Fault::Delay(Duration::from_secs(number * 15)),
            None => Fault::None,
        }),
        Scenario::StaleLists => FaultPlan::new(move |info, _| match roll(0.6) {
            Some(number) if info.verb == "list" => Fault::Stale { behind: number + 1 },
            Some(number) if watch(info) => Fault::ExpireWatch { after: usize::try_from(number).unwrap() },
            _ => Fault::None,
        }),
    }
}

/// One replica that is restarted whenever it ends, as a kubelet would.
struct Replica(JoinHandle<()>);

impl Drop for Replica {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// When a replica began to lead and when it stopped.
type RoleChanges = Arc<Mutex<Vec<(usize, Instant, Role)>>>;

fn replica(
    sandbox: &Sandbox,
    number: usize,
    can_crash: bool,
    options: &OperatorOptions,
    role_changes: &RoleChanges,
    plan: impl Fn(u64) -> FaultPlan + Send + 'static,
) -> Replica {
    let (sandbox, options, role_changes) = (sandbox.clone(), options.clone(), role_changes.clone());
    Replica(tokio::spawn(async move {
        for incarnation in 0.. {
            let session = Session::new(plan(incarnation));
            let options = OperatorOptions { identity: format!("replica-{number}-{incarnation}"), ..options.clone() };
            let (operator, _maps) = mirror::operator(sandbox.session_client(&session), options);
            let mut role = operator.role();
            let changes = role_changes.clone();
            let notes = tokio::spawn(async move {
                while role.changed().await.is_ok() {
                    changes.lock().unwrap().push((number, Instant::now(), *role.borrow()));
                }
            });
            let crashed = async {
                // Only checked where a crash is part of the scenario: the wake-ups add up.
                while !can_crash || !session.is_crashed() {
                    tokio::time::sleep(if can_crash { Duration::from_millis(50) } else { FOREVER }).await;
                }
            };
            tokio::select! {
                biased;
                // A crash: the whole process stops.
                () = crashed => {}
                ended = operator.run(CancellationToken::new()) => match ended {
                    Err(OperatorError::LeaseLost) => {}
                    other => panic!("the operator ended: {other:?}"),
                },
            }
            session.crash();
            notes.abort();
            role_changes.lock().unwrap().push((number, Instant::now(), Role::Follower));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }))
}

/// The result of a run.
struct Run {
    state: Value,
    requests: u64,
    writes: usize,
}

/// Runs a script under a scenario until the state is `expected` (without faults: until nothing happens any more) and no more writes follow.
async fn run(
    number: u64,
    scenario: Scenario,
    seed: u64,
    crash_at: Option<u64>,
    expected: Option<&Value>,
) -> Result<Run, String> {
    let sandbox = support::sandbox(seed);
    let user = sandbox.client();
    support::install_mirrors(&user).await;
    let clock = support::clock();
    let lease = (scenario == Scenario::TwoReplicas).then(|| LeaseOptions::new("default", "signpost"));
    let leases = lease.is_some();
    let options = OperatorOptions { clock, seed, lease, page_size: 2, ..OperatorOptions::default() };
    let role_changes = RoleChanges::default();
    let counted = Arc::new(Mutex::new(0_u64));

    let can_crash = scenario == Scenario::Crashes || crash_at.is_some();
    let mut replicas = Vec::new();
    let pauses: Arc<Mutex<BTreeMap<usize, Instant>>> = Arc::default();
    for replica_number in 0..if leases { 2 } else { 1 } {
        let (counted, pauses) = (counted.clone(), pauses.clone());
        let plan = move |incarnation: u64| match (scenario, crash_at) {
            (_, Some(at)) if incarnation == 0 => FaultPlan::crash_after(at),
            (Scenario::Crashes, _) if incarnation < 5 => {
                plan(scenario, seed.wrapping_mul(31).wrapping_add(incarnation))
            }
            (Scenario::Crashes, _) => FaultPlan::none(),
            (Scenario::TwoReplicas, _) => {
                let pauses = pauses.clone();
                FaultPlan::new(move |_, _| match pauses.lock().unwrap().get(&replica_number) {
                    Some(until) => Fault::Delay(until.saturating_duration_since(Instant::now())),
                    None => Fault::None,
                })
            }
            (Scenario::NoFaults, _) => {
                let counted = counted.clone();
                FaultPlan::new(move |_, number| {
                    *counted.lock().unwrap() = number + 1;
                    Fault::None
                })
            }
            _ => plan(scenario, seed),
        };
        replicas.push(replica(&sandbox, replica_number, can_crash, &options, &role_changes, plan));
    }

    let mut rng = StdRng::seed_from_u64(seed);
    for action in script(number) {
        act(&user, action).await;
        if scenario == Scenario::ExpiredWatches && rng.random_bool(0.3) {
            sandbox.compact();
        }
        if leases && rng.random_bool(0.3) {
            pause_the_leader(&role_changes, &pauses, Duration::from_secs(rng.random_range(1..40)));
        }
    }

    let state = converge(&sandbox, &user, expected).await?;
    let before = quiet(&sandbox).await?;
    tokio::time::sleep(REST).await;
    let after = writes(&sandbox);
    if before != after {
        let log: Vec<_> = sandbox
            .log()
            .into_iter()
            .filter(RequestLogEntry::is_write)
            .map(|entry| format!("{} {} {}", entry.info.verb, entry.info.path, entry.status))
            .collect();
        return Err(format!("{} writes when idle: {:#?}", after - before, &log[log.len().saturating_sub(8)..]));
    }
    let at_rest = mirror::snapshot(&user).await;
    if at_rest != state {
        return Err(format!("the state changed when idle: {at_rest:#} instead of {state:#}"));
    }
    one_leader_at_a_time(&role_changes.lock().unwrap())?;
    drop(replicas);
    let requests = *counted.lock().unwrap();
    Ok(Run { state, requests, writes: after })
}

/// Delays all requests and answers of the leader for a while.
fn pause_the_leader(role_changes: &RoleChanges, pauses: &Arc<Mutex<BTreeMap<usize, Instant>>>, time: Duration) {
    let role_changes = role_changes.lock().unwrap();
    let leader = role_changes.iter().rev().find(|(_, _, role)| *role == Role::Leader).map_or(0, |(number, ..)| *number);
    let until = Instant::now() + time;
    pauses.lock().unwrap().insert(leader, until);
    let pauses = pauses.clone();
    tokio::spawn(async move {
        tokio::time::sleep_until(until).await;
        pauses.lock().unwrap().remove(&leader);
    });
}

fn one_leader_at_a_time(role_changes: &[(usize, Instant, Role)]) -> Result<(), String> {
    let mut leader: Option<usize> = None;
    for (number, at, role) in role_changes {
        match (role, leader) {
            (Role::Leader, Some(other)) if other != *number => {
                return Err(format!("replica {number} leads at {at:?} while {other} still does"));
            }
            (Role::Leader, _) => leader = Some(*number),
            (Role::Follower, Some(same)) if same == *number => leader = None,
            (Role::Follower, _) => {}
        }
    }
    Ok(())
}

/// Writes except those of leases, which are renewed all the time.
fn writes(sandbox: &Sandbox) -> usize {
    sandbox.log().iter().filter(|entry| entry.is_write() && entry.info.resource != "leases").count()
}

/// Waits until there was no write for a while, and returns how many there were.
async fn quiet(sandbox: &Sandbox) -> Result<usize, String> {
    let until = Instant::now() + CONVERGE;
    loop {
        let before = writes(sandbox);
        tokio::time::sleep(SETTLE).await;
        let after = writes(sandbox);
        if before == after {
            return Ok(after);
        }
        if Instant::now() >= until {
            return Err(format!("it does not stop writing: {} times in {SETTLE:?}", after - before));
        }
    }
}

async fn converge(sandbox: &Sandbox, user: &Client, expected: Option<&Value>) -> Result<Value, String> {
    let until = Instant::now() + CONVERGE;
    let mut version = 0;
    loop {
        let now = sandbox.resource_version();
        // A new version is compared with the expected state; without one, ten quiet seconds are the end.
        match expected {
            Some(expected) if now != version || version == 0 => {
                let state = mirror::snapshot(user).await;
                if state == *expected {
                    return Ok(state);
                }
                if Instant::now() >= until {
                    return Err(format!(
                        "not the state without faults after {CONVERGE:?}: {state:#} instead of {expected:#}"
                    ));
                }
            }
            None if now == version => return Ok(mirror::snapshot(user).await),
            Some(_) | None => {}
        }
        if Instant::now() >= until {
            let state = mirror::snapshot(user).await;
            return Err(format!("no end after {CONVERGE:?}: {state:#} instead of {expected:#?}"));
        }
        version = now;
        tokio::time::sleep(if expected.is_some() { Duration::from_secs(1) } else { Duration::from_secs(10) }).await;
    }
}

/// The result of a script without faults, and how many requests it took.
fn without_faults(number: u64) -> Run {
    let run = support::paused(run(number, Scenario::NoFaults, number, None, None)).expect("no faults");
    check_without_faults(&script(number), &run.state);
    run
}

/// Compares the result without faults with the script, so that all scenarios are compared with it too.
fn check_without_faults(actions: &[Action], state: &Value) {
    let mut expected: BTreeMap<Place, Value> = BTreeMap::new();
    for action in actions {
        match action {
            Action::Make { at, text } | Action::Change { at, text } => {
                expected.insert(at.clone(), text.clone());
            }
            Action::Delete { at } => {
                expected.remove(at);
            }
            Action::Repair { .. } | Action::EditCopy { .. } | Action::DeleteCopy { .. } | Action::Wait(_) => {}
        }
    }
    for ((namespace, name), text) in &expected {
        let mirror = &state[format!("Mirror {namespace}/{name}")];
        let copy = &state[format!("ConfigMap {namespace}/{name}")];
        if text.is_string() {
            assert_eq!((&mirror["status"]["text"], &copy["data"]["text"]), (text, text), "{namespace}/{name}");
            assert_eq!(mirror["status"]["conditions"][0]["status"], "True");
            assert_eq!(mirror["finalizers"], json!([mirror::FINALIZER]));
        } else {
            assert!(copy.is_null() && mirror["status"].is_null(), "what cannot be read is left alone: {mirror}");
        }
    }
    let mirrors = state.as_object().unwrap().keys().filter(|key| key.starts_with("Mirror")).count();
    assert_eq!(mirrors, expected.len(), "nothing else is left: {state:#}");
}

/// One schedule: the script, the scenario and the random numbers, all from the seed.
fn schedule(seed: u64, expected_states: &mut BTreeMap<u64, Value>) {
    let scenario = SCENARIOS[usize::try_from(seed % SCENARIOS.len() as u64).unwrap()];
    let number = (seed / SCENARIOS.len() as u64) % SCRIPTS;
    let expected = expected_states.entry(number).or_insert_with(|| without_faults(number).state).clone();
    if let Err(problem) = support::paused(run(number, scenario, seed, None, Some(&expected))) {
        panic!(
            "seed {seed} (script {number}, {scenario:?}): {problem}\n\nto reproduce it: SEED={seed} cargo test -p signpost-engine --test faults"
        );
    }
}

/// The seeds of one of `parts` tests that run in parallel.
fn schedules(part: u64, parts: u64) {
    let mut expected_states = BTreeMap::new();
    if let Ok(seed) = env::var("SEED") {
        if part == 0 {
            let _ = signpost_engine::logs::init("debug", signpost_engine::logs::Format::Text);
            schedule(seed.parse().expect("SEED is a number"), &mut expected_states);
        }
        return;
    }
    let count: u64 = env::var("SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(2_100);
    // Scripts are distributed, so that each state without faults is computed once.
    for seed in (0..count).filter(|seed| (seed / SCENARIOS.len() as u64) % SCRIPTS % parts == part) {
        schedule(seed, &mut expected_states);
    }
}

#[test]
fn two_thousand_schedules_end_as_without_faults_first_half() {
    schedules(0, 2);
}

#[test]
fn two_thousand_schedules_end_as_without_faults_second_half() {
    schedules(1, 2);
}

#[test]
fn a_crash_after_any_request_loses_nothing() {
    if env::var("SEED").is_ok() {
        return;
    }
    for number in 0..3 {
        let without_faults = without_faults(number);
        for at in 0..without_faults.requests {
            let run = support::paused(run(number, Scenario::NoFaults, number, Some(at), Some(&without_faults.state)));
            if let Err(problem) = run {
                panic!("script {number}, crash at request {at} of {}: {problem}", without_faults.requests);
            }
        }
    }
}

#[test]
fn conflicts_cost_at_most_three_times_the_writes() {
    if env::var("SEED").is_ok() {
        return;
    }
    for number in 0..5 {
        let without_faults = without_faults(number);
        let rejected =
            support::paused(run(number, Scenario::Conflicts, number, None, Some(&without_faults.state))).unwrap();
        assert!(
            rejected.writes <= without_faults.writes * 3,
            "script {number}: {} writes instead of {}",
            rejected.writes,
            without_faults.writes
        );
    }
}
