//! A whole system on the sandbox, under every kind of weather, thousands of times.
//!
//! A *script* is what users do; a *weather* is what goes wrong. Each schedule runs one script under one weather and must end in the same
//! world as the same script in calm weather, with no write once it is at rest. All of it follows from the seed: a failure prints it, and
//! `SEED=… cargo test -p signpost-engine --test faults` runs that schedule alone, with its log.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on says so by panicking"
)]

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

/// Different things users do.
const SCRIPTS: u64 = 40;
/// Longest time from the last thing a user did to the right world.
const CONVERGE: Duration = Duration::from_mins(10);
/// A time without writes after which the last echoes are over: a watch that was cut may still have to tell what is already so.
const ECHOES: Duration = Duration::from_secs(90);
/// How long the cluster is watched for writes afterwards.
const REST: Duration = Duration::from_mins(2);

const FOREVER: Duration = Duration::from_hours(1_000);

#[derive(Clone, Debug)]
enum Deed {
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
    /// Makes one readable again that is being deleted, if it is still there.
    Repair {
        at: Place,
        text: Value,
    },
    /// Somebody edits the copy.
    Tamper {
        at: Place,
    },
    /// Somebody deletes the copy.
    Steal {
        at: Place,
    },
    Wait(Duration),
}

type Place = (&'static str, String);

/// What users do in script `number`. It ends with every object either gone, good, or bad from its first day.
fn script(number: u64) -> Vec<Deed> {
    let mut dice = StdRng::seed_from_u64(number);
    let mut alive: BTreeSet<Place> = BTreeSet::new();
    let mut spoiled: BTreeSet<Place> = BTreeSet::new();
    let mut deeds = Vec::new();
    let mut texts = 0;
    let mut text = || {
        texts += 1;
        json!(format!("text {texts}"))
    };
    for turn in 0..dice.random_range(6..12) {
        let namespace = if dice.random_bool(0.7) { "default" } else { "kube-public" };
        let at: Place = (namespace, format!("m{}", dice.random_range(0..4)));
        if alive.contains(&at) {
            match dice.random_range(0..6) {
                0 => {
                    deeds.push(Deed::Delete { at: at.clone() });
                    alive.remove(&at);
                    // What cannot be read cannot be let go of either: its owner repairs it.
                    if spoiled.remove(&at) {
                        deeds.push(Deed::Wait(Duration::from_millis(dice.random_range(1..3_000))));
                        deeds.push(Deed::Repair { at, text: text() });
                    }
                }
                1 => deeds.push(Deed::Tamper { at }),
                2 => deeds.push(Deed::Steal { at }),
                3 => {
                    deeds.push(Deed::Change { at: at.clone(), text: json!(["not", "a", "text"]) });
                    spoiled.insert(at);
                }
                _ => {
                    deeds.push(Deed::Change { at: at.clone(), text: text() });
                    spoiled.remove(&at);
                }
            }
        } else {
            deeds.push(Deed::Make { at: at.clone(), text: text() });
            alive.insert(at);
        }
        if turn == 2 && dice.random_bool(0.5) {
            deeds.push(Deed::Make { at: ("default", "riddle".to_owned()), text: json!(42) });
        }
        if dice.random_bool(0.6) {
            deeds.push(Deed::Wait(Duration::from_millis(dice.random_range(1..3_000))));
        }
    }
    for at in spoiled {
        deeds.push(Deed::Change { at, text: text() });
    }
    deeds
}

fn mirrors(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Mirror>(&()))
}

/// Does one deed, as a user would: again until it works.
async fn act(client: &Client, deed: Deed) {
    match deed {
        Deed::Wait(time) => tokio::time::sleep(time).await,
        Deed::Make { at: (namespace, name), text } => {
            let object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "test.signpost.dev/v1", "kind": "Mirror",
                "metadata": { "name": name, "namespace": namespace }, "spec": { "text": text },
            }))
            .unwrap();
            // The one of that name that was deleted before may still be on its way out.
            support::eventually("the name is free", CONVERGE, || async {
                mirrors(client, namespace).create(&PostParams::default(), &object).await.ok()
            })
            .await;
        }
        Deed::Change { at: (namespace, name), text } => {
            let patch = Patch::Merge(json!({ "spec": { "text": text } }));
            mirrors(client, namespace).patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
        Deed::Repair { at: (namespace, name), text } => {
            let patch = Patch::Merge(json!({ "spec": { "text": text } }));
            match mirrors(client, namespace).patch(&name, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                answer => drop(answer.unwrap()),
            }
        }
        Deed::Delete { at: (namespace, name) } => {
            mirrors(client, namespace).delete(&name, &DeleteParams::default()).await.unwrap();
        }
        Deed::Tamper { at: (namespace, name) } => {
            let patch = Patch::Merge(json!({ "data": { "text": "not what it was" } }));
            let _ = copies(client, namespace).patch(&name, &PatchParams::default(), &patch).await;
        }
        Deed::Steal { at: (namespace, name) } => {
            let _ = copies(client, namespace).delete(&name, &DeleteParams::default()).await;
        }
    }
}

fn copies(client: &Client, namespace: &str) -> Api<k8s_openapi::api::core::v1::ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Calm,
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

const STORMS: [Weather; 12] = [
    Weather::CutWatches,
    Weather::ExpiredWatches,
    Weather::EndedWatches,
    Weather::Conflicts,
    Weather::Throttling,
    Weather::Errors,
    Weather::LostAnswers,
    Weather::DroppedAndSlow,
    Weather::StaleLists,
    Weather::Everything,
    Weather::Crashes,
    Weather::TwoReplicas,
];

/// The faults one client meets.
fn plan(weather: Weather, seed: u64) -> FaultPlan {
    let dice = Mutex::new(StdRng::seed_from_u64(seed));
    let roll = move |share: f64| {
        let mut dice = dice.lock().unwrap();
        let number = dice.random_range(0..4_u64);
        dice.random_bool(share).then_some(number)
    };
    let watch = |info: &RequestInfo| info.verb == "watch";
    match weather {
        Weather::Calm | Weather::TwoReplicas => FaultPlan::none(),
        Weather::Everything => FaultPlan::seeded(seed, 0.3),
        Weather::Crashes => FaultPlan::crash_after(StdRng::seed_from_u64(seed).random_range(1..60)),
        Weather::CutWatches => FaultPlan::new(move |info, _| match roll(0.7) {
            Some(number) if watch(info) => Fault::CutWatch { after: usize::try_from(number).unwrap() },
            _ => Fault::None,
        }),
        Weather::ExpiredWatches => FaultPlan::new(move |info, _| match roll(0.6) {
            Some(number) if watch(info) => Fault::ExpireWatch { after: usize::try_from(number).unwrap() },
            _ => Fault::None,
        }),
        Weather::EndedWatches => FaultPlan::new(move |info, _| match roll(0.8) {
            Some(number) if watch(info) => Fault::EndWatch { after: usize::try_from(number).unwrap() },
            _ => Fault::None,
        }),
        Weather::Conflicts => FaultPlan::new(move |info, _| match roll(0.5) {
            Some(_) if info.is_write() => Fault::conflict(),
            _ => Fault::None,
        }),
        Weather::Throttling => FaultPlan::new(move |_, _| match roll(0.3) {
            Some(number) => Fault::throttled(number + 1),
            None => Fault::None,
        }),
        Weather::Errors => FaultPlan::new(move |_, _| match roll(0.4) {
            Some(0 | 1) => Fault::internal(),
            Some(_) => Fault::unavailable(),
            None => Fault::None,
        }),
        Weather::LostAnswers => FaultPlan::new(move |info, _| match roll(0.5) {
            Some(_) if info.is_write() => Fault::LoseAnswer,
            _ => Fault::None,
        }),
        Weather::DroppedAndSlow => FaultPlan::new(move |_, _| match roll(0.5) {
            Some(0 | 1) => Fault::Drop,
            Some(number) => Fault::Delay(Duration::from_secs(number * 15)),
            None => Fault::None,
        }),
        Weather::StaleLists => FaultPlan::new(move |info, _| match roll(0.6) {
            Some(number) if info.verb == "list" => Fault::Stale { behind: number + 1 },
            Some(number) if watch(info) => Fault::ExpireWatch { after: usize::try_from(number).unwrap() },
            _ => Fault::None,
        }),
    }
}

/// One replica that is started again whenever it ends, as a kubelet would.
struct Replica(JoinHandle<()>);

impl Drop for Replica {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// When a replica began to lead and when it stopped.
type Reigns = Arc<Mutex<Vec<(usize, Instant, Role)>>>;

fn replica(
    sandbox: &Sandbox,
    number: usize,
    mortal: bool,
    options: &OperatorOptions,
    reigns: &Reigns,
    plan: impl Fn(u64) -> FaultPlan + Send + 'static,
) -> Replica {
    let (sandbox, options, reigns) = (sandbox.clone(), options.clone(), reigns.clone());
    Replica(tokio::spawn(async move {
        for life in 0.. {
            let session = Session::new(plan(life));
            let options = OperatorOptions { identity: format!("replica-{number}-{life}"), ..options.clone() };
            let (operator, _maps) = mirror::operator(sandbox.session_client(&session), options);
            let mut role = operator.role();
            let book = reigns.clone();
            let notes = tokio::spawn(async move {
                while role.changed().await.is_ok() {
                    book.lock().unwrap().push((number, Instant::now(), *role.borrow()));
                }
            });
            let crashed = async {
                // Only looked at where a crash is part of the weather: the wake-ups add up.
                while !mortal || !session.is_crashed() {
                    tokio::time::sleep(if mortal { Duration::from_millis(50) } else { FOREVER }).await;
                }
            };
            tokio::select! {
                biased;
                // A crash: everything in the process stops where it is.
                () = crashed => {}
                ended = operator.run(CancellationToken::new()) => match ended {
                    Err(OperatorError::LeaseLost) => {}
                    other => panic!("the operator ended: {other:?}"),
                },
            }
            session.crash();
            notes.abort();
            reigns.lock().unwrap().push((number, Instant::now(), Role::Follower));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }))
}

/// What a run ended in.
struct Run {
    world: Value,
    requests: u64,
    writes: usize,
}

/// Runs a script under a weather until the world is `expected` (calm: until nothing happens any more) and at rest.
async fn run(
    number: u64,
    weather: Weather,
    seed: u64,
    crash_at: Option<u64>,
    expected: Option<&Value>,
) -> Result<Run, String> {
    let sandbox = support::sandbox(seed);
    let user = sandbox.client();
    support::install_mirrors(&user).await;
    let clock = support::clock();
    let lease = (weather == Weather::TwoReplicas).then(|| LeaseOptions::new("default", "signpost"));
    let leases = lease.is_some();
    let options = OperatorOptions { clock, seed, lease, page_size: 2, ..OperatorOptions::default() };
    let reigns = Reigns::default();
    let counted = Arc::new(Mutex::new(0_u64));

    let mortal = weather == Weather::Crashes || crash_at.is_some();
    let mut replicas = Vec::new();
    let pauses: Arc<Mutex<BTreeMap<usize, Instant>>> = Arc::default();
    for replica_number in 0..if leases { 2 } else { 1 } {
        let (counted, pauses) = (counted.clone(), pauses.clone());
        let plan = move |life: u64| match (weather, crash_at) {
            (_, Some(at)) if life == 0 => FaultPlan::crash_after(at),
            (Weather::Crashes, _) if life < 5 => plan(weather, seed.wrapping_mul(31).wrapping_add(life)),
            (Weather::Crashes, _) => FaultPlan::none(),
            (Weather::TwoReplicas, _) => {
                let pauses = pauses.clone();
                FaultPlan::new(move |_, _| match pauses.lock().unwrap().get(&replica_number) {
                    Some(until) => Fault::Delay(until.saturating_duration_since(Instant::now())),
                    None => Fault::None,
                })
            }
            (Weather::Calm, _) => {
                let counted = counted.clone();
                FaultPlan::new(move |_, number| {
                    *counted.lock().unwrap() = number + 1;
                    Fault::None
                })
            }
            _ => plan(weather, seed),
        };
        replicas.push(replica(&sandbox, replica_number, mortal, &options, &reigns, plan));
    }

    let mut dice = StdRng::seed_from_u64(seed);
    for deed in script(number) {
        act(&user, deed).await;
        if weather == Weather::ExpiredWatches && dice.random_bool(0.3) {
            sandbox.compact();
        }
        if leases && dice.random_bool(0.3) {
            pause_the_leader(&reigns, &pauses, Duration::from_secs(dice.random_range(1..40)));
        }
    }

    let world = converge(&sandbox, &user, expected).await?;
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
        return Err(format!("{} writes at rest: {:#?}", after - before, &log[log.len().saturating_sub(8)..]));
    }
    let at_rest = mirror::world(&user).await;
    if at_rest != world {
        return Err(format!("the world changed at rest: {at_rest:#} instead of {world:#}"));
    }
    one_leader_at_a_time(&reigns.lock().unwrap())?;
    drop(replicas);
    let requests = *counted.lock().unwrap();
    Ok(Run { world, requests, writes: after })
}

/// Holds up everything the leader sends and gets for a while.
fn pause_the_leader(reigns: &Reigns, pauses: &Arc<Mutex<BTreeMap<usize, Instant>>>, time: Duration) {
    let reigns = reigns.lock().unwrap();
    let leader = reigns.iter().rev().find(|(_, _, role)| *role == Role::Leader).map_or(0, |(number, ..)| *number);
    let until = Instant::now() + time;
    pauses.lock().unwrap().insert(leader, until);
    let pauses = pauses.clone();
    tokio::spawn(async move {
        tokio::time::sleep_until(until).await;
        pauses.lock().unwrap().remove(&leader);
    });
}

fn one_leader_at_a_time(reigns: &[(usize, Instant, Role)]) -> Result<(), String> {
    let mut leader: Option<usize> = None;
    for (number, at, role) in reigns {
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

/// Writes to anything but leases, which are renewed for ever.
fn writes(sandbox: &Sandbox) -> usize {
    sandbox.log().iter().filter(|entry| entry.is_write() && entry.info.resource != "leases").count()
}

/// Waits until there was no write for a while, and returns how many there were.
async fn quiet(sandbox: &Sandbox) -> Result<usize, String> {
    let until = Instant::now() + CONVERGE;
    loop {
        let before = writes(sandbox);
        tokio::time::sleep(ECHOES).await;
        let after = writes(sandbox);
        if before == after {
            return Ok(after);
        }
        if Instant::now() >= until {
            return Err(format!("it writes for ever: {} times in {ECHOES:?}", after - before));
        }
    }
}

async fn converge(sandbox: &Sandbox, user: &Client, expected: Option<&Value>) -> Result<Value, String> {
    let until = Instant::now() + CONVERGE;
    let mut version = 0;
    loop {
        let now = sandbox.resource_version();
        // A new world is worth a look; without an expected one, ten quiet seconds are the end.
        match expected {
            Some(expected) if now != version || version == 0 => {
                let world = mirror::world(user).await;
                if world == *expected {
                    return Ok(world);
                }
                if Instant::now() >= until {
                    return Err(format!("not the calm world after {CONVERGE:?}: {world:#} instead of {expected:#}"));
                }
            }
            None if now == version => return Ok(mirror::world(user).await),
            Some(_) | None => {}
        }
        if Instant::now() >= until {
            let world = mirror::world(user).await;
            return Err(format!("no end after {CONVERGE:?}: {world:#} instead of {expected:#?}"));
        }
        version = now;
        tokio::time::sleep(if expected.is_some() { Duration::from_secs(1) } else { Duration::from_secs(10) }).await;
    }
}

/// The world a script ends in when nothing goes wrong, and how many requests it took.
fn calm(number: u64) -> Run {
    let run = support::paused(run(number, Weather::Calm, number, None, None)).expect("calm weather");
    check_calm(&script(number), &run.world);
    run
}

/// Calm weather is held to what the script asks for, so that all storms are too.
fn check_calm(deeds: &[Deed], world: &Value) {
    let mut expected: BTreeMap<Place, Value> = BTreeMap::new();
    for deed in deeds {
        match deed {
            Deed::Make { at, text } | Deed::Change { at, text } => {
                expected.insert(at.clone(), text.clone());
            }
            Deed::Delete { at } => {
                expected.remove(at);
            }
            Deed::Repair { .. } | Deed::Tamper { .. } | Deed::Steal { .. } | Deed::Wait(_) => {}
        }
    }
    for ((namespace, name), text) in &expected {
        let mirror = &world[format!("Mirror {namespace}/{name}")];
        let copy = &world[format!("ConfigMap {namespace}/{name}")];
        if text.is_string() {
            assert_eq!((&mirror["status"]["text"], &copy["data"]["text"]), (text, text), "{namespace}/{name}");
            assert_eq!(mirror["status"]["conditions"][0]["status"], "True");
            assert_eq!(mirror["finalizers"], json!([mirror::FINALIZER]));
        } else {
            assert!(copy.is_null() && mirror["status"].is_null(), "what cannot be read is left alone: {mirror}");
        }
    }
    let mirrors = world.as_object().unwrap().keys().filter(|key| key.starts_with("Mirror")).count();
    assert_eq!(mirrors, expected.len(), "nothing else is left: {world:#}");
}

/// One schedule: which script, which weather, which dice, all from the seed.
fn schedule(seed: u64, calm_worlds: &mut BTreeMap<u64, Value>) {
    let weather = STORMS[usize::try_from(seed % STORMS.len() as u64).unwrap()];
    let number = (seed / STORMS.len() as u64) % SCRIPTS;
    let expected = calm_worlds.entry(number).or_insert_with(|| calm(number).world).clone();
    if let Err(problem) = support::paused(run(number, weather, seed, None, Some(&expected))) {
        panic!(
            "seed {seed} (script {number}, {weather:?}): {problem}\n\nto see it again: SEED={seed} cargo test -p signpost-engine --test faults"
        );
    }
}

/// The seeds of one of `parts` tests that run side by side.
fn schedules(part: u64, parts: u64) {
    let mut calm_worlds = BTreeMap::new();
    if let Ok(seed) = env::var("SEED") {
        if part == 0 {
            let _ = signpost_engine::logs::init("debug", signpost_engine::logs::Format::Text);
            schedule(seed.parse().expect("SEED is a number"), &mut calm_worlds);
        }
        return;
    }
    let count: u64 = env::var("SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(2_100);
    // Scripts are dealt out, so that each calm world is made once.
    for seed in (0..count).filter(|seed| (seed / STORMS.len() as u64) % SCRIPTS % parts == part) {
        schedule(seed, &mut calm_worlds);
    }
}

#[test]
fn two_thousand_schedules_end_as_in_calm_weather_first_half() {
    schedules(0, 2);
}

#[test]
fn two_thousand_schedules_end_as_in_calm_weather_second_half() {
    schedules(1, 2);
}

#[test]
fn a_crash_after_every_single_request_loses_nothing() {
    if env::var("SEED").is_ok() {
        return;
    }
    for number in 0..3 {
        let calm = calm(number);
        for at in 0..calm.requests {
            let run = support::paused(run(number, Weather::Calm, number, Some(at), Some(&calm.world)));
            if let Err(problem) = run {
                panic!("script {number}, crash at request {at} of {}: {problem}", calm.requests);
            }
        }
    }
}

#[test]
fn half_of_all_writes_refused_costs_three_writes_per_object_at_most() {
    if env::var("SEED").is_ok() {
        return;
    }
    for number in 0..5 {
        let calm = calm(number);
        let stormy = support::paused(run(number, Weather::Conflicts, number, None, Some(&calm.world))).unwrap();
        assert!(
            stormy.writes <= calm.writes * 3,
            "script {number}: {} writes instead of {}",
            stormy.writes,
            calm.writes
        );
    }
}
