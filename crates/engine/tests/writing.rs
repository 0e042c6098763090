//! The writer and the event recorder on the sandbox.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

mod support;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use signpost_engine::{
    Child, ChildApplied, Event, EventKind, Identity, Index, ObjectId, ObjectWrite, Operator, OperatorOptions, Proof,
    Watch, WriteError, Writer, health::Health, lease::Fence, metrics::Metrics, write::WriterOptions,
};
use signpost_sandbox::{DenyRule, Fault, FaultPlan, RequestInfo, Sandbox};
use support::{
    mirror::{Mirror, MirrorSpec},
    sandbox,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

async fn cluster() -> (Sandbox, Client) {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    support::install_mirrors(&user).await;
    (sandbox, user)
}

fn mirrors(client: &Client) -> Api<Mirror> {
    Api::namespaced(client.clone(), "default")
}

async fn make(client: &Client, name: &str) -> Mirror {
    let mirror = Mirror::new(name, MirrorSpec { text: "x".into() });
    mirrors(client).create(&PostParams::default(), &mirror).await.unwrap()
}

fn writer(client: Client) -> Writer {
    Writer::new(client, WriterOptions::default(), Fence::open(), Health::new(Metrics::new()), Metrics::new())
}

fn status(mirror: &Mirror, text: &str) -> ObjectWrite {
    ObjectWrite::status(&Identity::of(mirror), json!({ "text": text }))
}

async fn text(client: &Client, name: &str) -> Option<String> {
    mirrors(client).get(name).await.unwrap().status.and_then(|status| status.text)
}

fn writes_of_status(sandbox: &Sandbox) -> usize {
    sandbox.log().iter().filter(|entry| entry.info.subresource == "status").count()
}

fn is_write(info: &RequestInfo) -> bool {
    info.is_write()
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_once_and_not_sent_again_unchanged() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let writer = writer(sandbox.client());
    writer.submit(status(&mirror, "one"));
    writer.drain().await;
    assert_eq!(text(&user, "a").await.as_deref(), Some("one"));
    writer.submit(status(&mirror, "one"));
    writer.drain().await;
    assert_eq!(writer.write(&status(&mirror, "one")).await, Ok(Value::Null));
    assert_eq!(writes_of_status(&sandbox), 1);
    writer.submit(status(&mirror, "two"));
    writer.drain().await;
    assert_eq!((text(&user, "a").await.as_deref(), writes_of_status(&sandbox)), (Some("two"), 2));
}

#[tokio::test(start_paused = true)]
async fn another_transition_time_alone_causes_no_write() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let writer = writer(sandbox.client());
    let ready = |truth: &str, second: u8| {
        let condition = json!({
            "type": "Ready", "status": truth, "reason": "Mirrored", "message": "",
            "lastTransitionTime": format!("2026-01-01T00:00:0{second}Z"),
        });
        ObjectWrite::status(&Identity::of(&mirror), json!({ "conditions": [condition] }))
    };
    for (truth, second) in [("True", 5), ("True", 6), ("True", 5), ("False", 7), ("True", 8)] {
        writer.write(&ready(truth, second)).await.unwrap();
    }
    assert_eq!(writes_of_status(&sandbox), 3);
    let status = mirrors(&user).get("a").await.unwrap().status.unwrap();
    assert_eq!(status.conditions[0].last_transition_time.0.to_string(), "2026-01-01T00:00:08Z");
}

#[tokio::test(start_paused = true)]
async fn an_existing_status_is_not_written_again_after_a_restart() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    writer(sandbox.client()).write(&status(&mirror, "one")).await.unwrap();
    let fresh = writer(sandbox.client());
    let read = serde_json::to_value(mirrors(&user).get("a").await.unwrap()).unwrap();
    fresh.saw_object(&ObjectId::of(&mirror), &read);
    fresh.submit(status(&mirror, "one"));
    fresh.drain().await;
    assert_eq!(writes_of_status(&sandbox), 1);
    // An old event from before a write must not make the write look undone.
    fresh.write(&status(&mirror, "two")).await.unwrap();
    fresh.saw_object(&ObjectId::of(&mirror), &read);
    fresh.write(&status(&mirror, "two")).await.unwrap();
    assert_eq!(writes_of_status(&sandbox), 2);
}

#[tokio::test(start_paused = true)]
async fn only_the_latest_of_many_waiting_writes_is_sent() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let writer = writer(sandbox.client_with(FaultPlan::new(|info, _| {
        if info.is_write() { Fault::Delay(Duration::from_secs(1)) } else { Fault::None }
    })));
    for number in 0..100 {
        writer.submit(status(&mirror, &format!("{number}")));
        sleep(Duration::from_millis(1)).await;
    }
    writer.drain().await;
    assert_eq!(text(&user, "a").await.as_deref(), Some("99"));
    assert_eq!(writes_of_status(&sandbox), 2, "the first, and the latest of those that came meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_write_does_not_create_a_deleted_object_again() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    mirrors(&user).delete("a", &DeleteParams::default()).await.unwrap();
    let writer = writer(sandbox.client());
    assert_eq!(writer.write(&status(&mirror, "one")).await, Err(WriteError::Gone));
    let metadata = ObjectWrite::metadata(&Identity::of(&mirror), json!({"finalizers": ["a/b"]}));
    assert_eq!(writer.write(&metadata).await, Err(WriteError::Gone));
    assert!(mirrors(&user).get_opt("a").await.unwrap().is_none());
    // Another object of the same name is not written either.
    let recreated = make(&user, "a").await;
    assert_eq!(writer.write(&metadata).await, Err(WriteError::Gone));
    assert!(mirrors(&user).get("a").await.unwrap().finalizers().is_empty());
    assert_eq!(writer.write(&status(&mirror, "one")).await, Err(WriteError::Gone));
    writer.write(&status(&recreated, "one")).await.unwrap();
    writer.write(&status(&recreated, "two")).await.unwrap();
    assert_eq!(text(&user, "a").await.as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn metadata_with_an_old_version_is_a_conflict() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let writer = writer(sandbox.client());
    writer.write(&status(&mirror, "newer")).await.unwrap();
    let patch = json!({ "finalizers": ["a/b"], "resourceVersion": mirror.resource_version().unwrap() });
    let write = ObjectWrite::metadata(&Identity::of(&mirror), patch);
    assert_eq!(writer.write(&write).await, Err(WriteError::Conflict));
    assert!(mirrors(&user).get("a").await.unwrap().finalizers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn metadata_that_a_webhook_answers_with_409_is_sent_again() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let denied = r#"admission webhook "policy.example.org" denied the request: later"#;
    let later = Fault::status(409, "Conflict", denied);
    let writer = writer(sandbox.client_with(FaultPlan::first(3, is_write, later)));
    writer.submit(ObjectWrite::metadata(&Identity::of(&mirror), json!({ "annotations": { "a/one": "new" } })));
    writer.idle().await;
    let annotations = mirrors(&user).get("a").await.unwrap().annotations().clone();
    assert_eq!(annotations, BTreeMap::from([("a/one".into(), "new".into())]));
}

#[tokio::test(start_paused = true)]
async fn metadata_of_two_systems_on_one_object_is_written_by_both() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    // The first request of each system fails, so that its write is queued when the next one arrives.
    let writer = writer(sandbox.client_with(FaultPlan::first(2, is_write, Fault::internal())));
    let note = |key: &str, value: &str, system| {
        let metadata = json!({ "annotations": { key: value } });
        ObjectWrite::metadata(&Identity::of(&mirror), metadata).by_system(system)
    };
    writer.submit(note("a/one", "old", "one"));
    writer.submit(note("a/two", "old", "two"));
    writer.submit(note("a/one", "new", "one"));
    writer.idle().await;
    let annotations = async || mirrors(&user).get("a").await.unwrap().annotations().clone();
    let expected = |one: &str, two: &str| BTreeMap::from([("a/one".into(), one.into()), ("a/two".into(), two.into())]);
    assert_eq!(annotations().await, expected("new", "old"));
    // A write that a caller waits for is newer than what its system has queued.
    writer.submit(note("a/one", "queued", "one"));
    writer.submit(note("a/two", "queued", "two"));
    writer.write(&note("a/one", "newest", "one")).await.unwrap();
    writer.drain().await;
    assert_eq!(annotations().await, expected("newest", "queued"));
}

#[tokio::test(start_paused = true)]
async fn submitted_writes_are_retried_after_transient_errors() {
    let errors = [
        ("500", Fault::internal(), Duration::from_secs(10)),
        ("dropped", Fault::Drop, Duration::from_secs(10)),
        ("answer lost", Fault::LoseAnswer, Duration::from_secs(10)),
        ("conflict", Fault::conflict(), Duration::from_secs(10)),
        ("hanging", Fault::Delay(Duration::from_hours(1)), Duration::from_mins(1)),
    ];
    for (name, fault, within) in errors {
        let (sandbox, user) = cluster().await;
        let mirror = make(&user, "a").await;
        let writer = writer(sandbox.client_with(FaultPlan::first(3, is_write, fault)));
        let began = Instant::now();
        writer.submit(status(&mirror, "one"));
        writer.idle().await;
        assert_eq!(text(&user, "a").await.as_deref(), Some("one"), "{name}");
        assert!(began.elapsed() <= within, "{name}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_whose_answer_was_lost_is_sent_until_it_is_answered() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let writer = writer(sandbox.client_with(FaultPlan::first(3, is_write, Fault::LoseAnswer)));
    assert!(matches!(writer.write(&status(&mirror, "one")).await, Err(WriteError::Transient(_))));
    // The watch shows that it had its effect. Its refusals are reported with the answer, so the answer is still needed.
    let live = serde_json::to_value(mirrors(&user).get("a").await.unwrap()).unwrap();
    assert_eq!(live["status"]["text"], "one");
    writer.saw_object(&ObjectId::of(&mirror), &live);
    let answer = writer.write(&status(&mirror, "one")).await.unwrap();
    assert_eq!(answer["status"]["text"], "one");
    assert_eq!(answer["metadata"]["resourceVersion"], live["metadata"]["resourceVersion"], "nothing was changed");
    assert_eq!(writer.write(&status(&mirror, "one")).await, Ok(Value::Null));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let writer = writer(sandbox.client_with(FaultPlan::first(1, is_write, Fault::throttled(7))));
    let began = Instant::now();
    writer.submit(status(&mirror, "one"));
    writer.idle().await;
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(7) && took < Duration::from_secs(8), "{took:?}");
    // A direct write returns the time to wait to its caller.
    let direct = self::writer(sandbox.client_with(FaultPlan::first(1, is_write, Fault::throttled(7))));
    assert_eq!(direct.write(&status(&mirror, "two")).await, Err(WriteError::Throttled(Some(Duration::from_secs(7)))));
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named_and_retried_slowly() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    sandbox.deny(vec![DenyRule::new("patch", "mirrors/status")]);
    let writer = writer(sandbox.client());
    let answer = writer.write(&status(&mirror, "one")).await;
    assert!(matches!(&answer, Err(WriteError::Forbidden(message)) if message.contains("mirrors")), "{answer:?}");
    writer.submit(status(&mirror, "one"));
    sleep(Duration::from_mins(5)).await;
    let tries = writes_of_status(&sandbox);
    assert!((4..=13).contains(&tries), "{tries} tries in five minutes");
    sandbox.deny(Vec::new());
    writer.idle().await;
    assert_eq!(text(&user, "a").await.as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn a_write_does_not_wait_for_the_retry_of_an_older_one() {
    let errors = [("throttled", Fault::throttled(300)), ("forbidden", Fault::status(403, "Forbidden", "no"))];
    for (name, fault) in errors {
        let (sandbox, user) = cluster().await;
        let mirror = make(&user, "a").await;
        let writer = writer(sandbox.client_with(FaultPlan::first(1, is_write, fault)));
        writer.submit(status(&mirror, "older"));
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        writer.write(&status(&mirror, "newer")).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(1), "{name}: {:?}", began.elapsed());
        writer.drain().await;
        sleep(Duration::from_mins(10)).await;
        assert_eq!((text(&user, "a").await.as_deref(), writes_of_status(&sandbox)), (Some("newer"), 2), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_an_older_one_in_progress() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let slow = FaultPlan::first(1, is_write, Fault::Delay(Duration::from_secs(5)));
    let writer = writer(sandbox.client_with(slow));
    writer.submit(status(&mirror, "older"));
    sleep(Duration::from_secs(1)).await;
    writer.write(&status(&mirror, "newer")).await.unwrap();
    sleep(Duration::from_mins(1)).await;
    assert_eq!((text(&user, "a").await.as_deref(), writes_of_status(&sandbox)), (Some("newer"), 2));
}

#[tokio::test(start_paused = true)]
async fn submitted_writes_take_turns() {
    let (sandbox, user) = cluster().await;
    let mut all = Vec::new();
    for number in 0..16 {
        all.push(make(&user, &format!("m{number}")).await);
    }
    let slow =
        FaultPlan::new(|info, _| if info.is_write() { Fault::Delay(Duration::from_secs(1)) } else { Fault::None });
    let writer = writer(sandbox.client_with(slow));
    let began = Instant::now();
    for mirror in &all {
        writer.submit(status(mirror, "one"));
    }
    writer.drain().await;
    assert!(began.elapsed() >= Duration::from_secs(3), "as many at a time as the pace allows: {:?}", began.elapsed());
    assert_eq!(writes_of_status(&sandbox), 16);
}

#[tokio::test(start_paused = true)]
async fn hanging_writes_of_one_system_do_not_delay_those_of_another() {
    let (sandbox, user) = cluster().await;
    let (hanging, other) = (make(&user, "hanging").await, make(&user, "other").await);
    let hangs = FaultPlan::new(|info, _| {
        if info.name.starts_with("hanging-") { Fault::Delay(Duration::from_hours(1)) } else { Fault::None }
    });
    let writer = writer(sandbox.client_with(hangs));
    let note = |id: Identity, system| ObjectWrite::metadata(&id, json!({ "labels": { "a": "b" } })).by_system(system);
    for number in 0..500 {
        let id = Arc::new(ObjectId { name: format!("hanging-{number}"), ..ObjectId::of(&hanging) });
        writer.submit(note(Identity { id, ..Identity::of(&hanging) }, "one"));
    }
    sleep(Duration::from_mins(1)).await;
    writer.submit(note(Identity::of(&other), "two"));
    sleep(Duration::from_millis(100)).await;
    assert_eq!(mirrors(&user).get("other").await.unwrap().labels().get("a").map(String::as_str), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn hanging_statuses_leave_room_for_children_and_direct_writes() {
    let (sandbox, user) = cluster().await;
    let hangs = FaultPlan::new(|info, _| {
        let is_status = info.subresource == "status";
        if is_status { Fault::Delay(Duration::from_hours(1)) } else { Fault::None }
    });
    let options = WriterOptions { concurrency: 4, ..WriterOptions::default() };
    let health = Health::new(Metrics::new());
    let writer = Writer::new(sandbox.client_with(hangs), options, Fence::open(), health, Metrics::new());
    for number in 0..4 {
        writer.submit(status(&make(&user, &format!("m{number}")).await, "one"));
    }
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let labels = ObjectWrite::metadata(&Identity::of(&make(&user, "a").await), json!({ "labels": { "a": "b" } }));
    writer.write(&labels).await.unwrap();
    let proof = Proof::Label { key: "owner".into(), value: "test".into() };
    let child = Child::new::<ConfigMap>(Some("default"), "child", proof);
    assert_eq!(writer.apply_child(&child, &json!({ "data": { "a": "b" } })).await, Ok(ChildApplied::Made));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_to_wait_gets_few_submitted_writes() {
    let (sandbox, user) = cluster().await;
    let busy = FaultPlan::new(|info, _| if info.is_write() { Fault::throttled(2) } else { Fault::None });
    let writer = writer(sandbox.client_with(busy));
    for number in 0..100 {
        writer.submit(status(&make(&user, &format!("m{number}")).await, "one"));
    }
    sleep(Duration::from_millis(1_900)).await;
    let sent = writes_of_status(&sandbox);
    assert!((1..=4).contains(&sent), "{sent} requests while the server asks to wait");
    sleep(Duration::from_mins(1)).await;
    let sent = writes_of_status(&sandbox);
    assert!((10..=150).contains(&sent), "{sent} requests in a minute");
}

#[tokio::test(start_paused = true)]
async fn draining_does_not_wait_for_writes_that_failed() {
    let (sandbox, user) = cluster().await;
    let faults = FaultPlan::new(|info, _| match (info.is_write(), info.name.as_str()) {
        (true, "failing") => Fault::internal(),
        (true, "denied") => Fault::status(403, "Forbidden", "no"),
        (true, _) => Fault::Delay(Duration::from_millis(500)),
        (false, _) => Fault::None,
    });
    let writer = writer(sandbox.client_with(faults));
    for name in ["failing", "denied"] {
        writer.submit(status(&make(&user, name).await, "one"));
    }
    sleep(Duration::from_secs(5)).await;
    writer.submit(status(&make(&user, "slow").await, "one"));
    let began = Instant::now();
    writer.drain().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(text(&user, "slow").await.as_deref(), Some("one"), "a write that did not fail is ended");
}

#[tokio::test(start_paused = true)]
async fn a_closed_writer_writes_nothing() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let writer = writer(sandbox.client_with(FaultPlan::new(|_, _| Fault::internal())));
    writer.submit(status(&mirror, "one"));
    sleep(Duration::from_secs(1)).await;
    writer.close();
    let before = sandbox.log().len();
    writer.drain().await;
    writer.submit(status(&mirror, "two"));
    assert!(writer.write(&status(&mirror, "three")).await.is_err());
    sleep(Duration::from_mins(5)).await;
    assert_eq!(sandbox.log().len(), before);
}

// Events.

/// Runs a replica that does nothing but record events.
fn recorder(client: Client) -> (signpost_engine::Recorder, tokio_util::sync::DropGuard) {
    let operator = Operator::new(client, OperatorOptions { clock: support::clock(), ..OperatorOptions::default() });
    let recorder = operator.recorder();
    let stop = CancellationToken::new();
    tokio::spawn(operator.run(stop.clone()));
    (recorder, stop.drop_guard())
}

fn event(mirror: &Mirror, reason: &str, note: &str) -> Event {
    Event {
        object: Identity::of(mirror).reference(),
        kind: EventKind::Warning,
        reason: reason.into(),
        note: note.into(),
    }
}

async fn events(client: &Client) -> Vec<CoreEvent> {
    Api::<CoreEvent>::all(client.clone()).list(&ListParams::default()).await.unwrap().items
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_counts_up_and_another_note_is_a_new_event() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let (recorder, _stop) = recorder(sandbox.client());
    for _ in 0..3 {
        recorder.record(event(&mirror, "Refused", "owned by b"));
        sleep(Duration::from_mins(1)).await;
    }
    recorder.record(event(&mirror, "Refused", "owned by c"));
    sleep(Duration::from_secs(1)).await;
    let mut counts: Vec<_> =
        events(&user).await.into_iter().map(|event| (event.message.unwrap(), event.count.unwrap())).collect();
    counts.sort();
    assert_eq!(counts, [("owned by b".to_owned(), 3), ("owned by c".to_owned(), 1)]);
    // After ten quiet minutes it is a new event.
    sleep(Duration::from_mins(11)).await;
    recorder.record(event(&mirror, "Refused", "owned by b"));
    sleep(Duration::from_secs(1)).await;
    let all = events(&user).await;
    assert_eq!(all.len(), 3);
    let one = all.iter().find(|event| event.count == Some(3)).unwrap();
    assert_eq!(one.involved_object.name.as_deref(), Some("a"));
    assert_eq!((one.type_.as_deref(), one.reason.as_deref()), (Some("Warning"), Some("Refused")));
    assert_eq!(
        one.last_timestamp.clone().unwrap().0.duration_since(one.first_timestamp.clone().unwrap().0).as_secs(),
        120
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_note_is_cut_between_characters() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let (recorder, _stop) = recorder(sandbox.client());
    recorder.record(event(&mirror, "Long", &"ä".repeat(2_000)));
    sleep(Duration::from_secs(1)).await;
    let note = events(&user).await.remove(0).message.unwrap();
    assert_eq!((note.len(), note.chars().all(|char| char == 'ä')), (1024, true));
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_events_is_limited_in_rate_and_number() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let (recorder, _stop) = recorder(sandbox.client());
    for number in 0..5_000 {
        recorder.record(event(&mirror, "Flood", &format!("number {number}")));
    }
    sleep(Duration::from_secs(10)).await;
    let made = sandbox.log().iter().filter(|entry| entry.info.resource == "events").count();
    assert!((100..=320).contains(&made), "{made} in ten seconds");
    sleep(Duration::from_mins(3)).await;
    let made = events(&user).await.len();
    assert!((1_000..=1_001).contains(&made), "what waits is bounded: {made}");
}

#[tokio::test(start_paused = true)]
async fn queued_events_are_written_at_a_stop_within_a_limited_time() {
    for (name, slow, written) in [("quick", Duration::from_millis(20), 8), ("stuck", Duration::from_hours(1), 0)] {
        let (sandbox, user) = cluster().await;
        let mirror = make(&user, "a").await;
        let plan = FaultPlan::new(move |info, _| match info.resource.as_str() {
            "events" => Fault::Delay(slow),
            _ => Fault::None,
        });
        let options = OperatorOptions { clock: support::clock(), ..OperatorOptions::default() };
        let operator = Operator::new(sandbox.client_with(plan), options);
        let recorder = operator.recorder();
        let stop = CancellationToken::new();
        let running = tokio::spawn(operator.run(stop.clone()));
        sleep(Duration::from_secs(1)).await;
        for number in 0..8 {
            recorder.record(event(&mirror, "Refused", &format!("number {number}")));
        }
        stop.cancel();
        let began = Instant::now();
        running.await.unwrap().unwrap();
        assert!(began.elapsed() <= Duration::from_secs(1), "{name}: {:?}", began.elapsed());
        assert_eq!(events(&user).await.len(), written, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_event_writes_do_not_stop_later_ones() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let broken = Mutex::new(3);
    let plan = FaultPlan::new(move |info, _| {
        let mut broken = broken.lock().unwrap();
        if info.resource == "events" && *broken > 0 {
            *broken -= 1;
            return [Fault::Drop, Fault::internal(), Fault::Delay(Duration::from_hours(1))][*broken].clone();
        }
        Fault::None
    });
    let (recorder, _stop) = recorder(sandbox.client_with(plan));
    for number in 0..5 {
        recorder.record(event(&mirror, "Refused", &format!("number {number}")));
    }
    sleep(Duration::from_secs(20)).await;
    assert_eq!(events(&user).await.len(), 2, "three are lost, the rest is reported");
    // An event that expired on the server is created again.
    let known = events(&user).await.remove(0);
    Api::<CoreEvent>::namespaced(user.clone(), "default")
        .delete(&known.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    recorder.record(event(&mirror, "Refused", &known.message.unwrap()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(events(&user).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn unchanged_watched_children_cost_no_request() {
    struct Nothing;
    impl Index<ConfigMap> for Nothing {
        fn applied(&self, _: &ConfigMap) {}
        fn deleted(&self, _: &ObjectId) {}
    }
    let (sandbox, user) = cluster().await;
    let run = async |client: Client| {
        let mut operator = Operator::new(client, OperatorOptions::default());
        operator.watch::<ConfigMap>("test", Watch::required().children(), Arc::new(Nothing));
        let (writer, mut kinds) = (operator.writer(), operator.kinds());
        let stop = CancellationToken::new();
        tokio::spawn(operator.run(stop.clone()));
        kinds.wait_for(|kinds| kinds.values().all(|kind| kind.complete) && !kinds.is_empty()).await.unwrap();
        (writer, stop.drop_guard())
    };
    let children = |text: &str| -> Vec<(Child, serde_json::Value)> {
        let proof = || Proof::Label { key: "owner".into(), value: "test".into() };
        let child = |n| Child::new::<ConfigMap>(Some("default"), &format!("c{n}"), proof());
        (0..20).map(|n| (child(n), json!({ "data": { "text": text } }))).collect()
    };
    let requests = || {
        sandbox.log().iter().filter(|entry| entry.info.resource == "configmaps" && entry.info.verb != "watch").count()
    };
    let before = requests();
    let (writer, _first) = run(sandbox.client()).await;
    let made = writer.apply_children(children("one")).await;
    assert!(made.iter().all(|made| *made == Ok(ChildApplied::Made)), "{made:?}");
    assert_eq!(requests() - before, 21, "a list, and one apply for each: that none is there was known");
    let same = writer.apply_children(children("one")).await;
    assert!(same.iter().all(|same| *same == Ok(ChildApplied::Unchanged)));
    // A process that has just started knows them from its first list.
    let (fresh, _second) = run(sandbox.client()).await;
    assert!(fresh.apply_children(children("one")).await.iter().all(|same| *same == Ok(ChildApplied::Unchanged)));
    assert_eq!(requests() - before, 22, "its list");
    // A foreign change is detected and reverted.
    let maps: Api<ConfigMap> = Api::namespaced(user, "default");
    maps.patch("c7", &PatchParams::default(), &Patch::Merge(json!({ "data": { "text": "theirs" } }))).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let repaired = writer.apply_children(children("one")).await;
    assert_eq!(repaired.iter().filter(|done| **done == Ok(ChildApplied::Changed)).count(), 1);
    assert_eq!(maps.get("c7").await.unwrap().data.unwrap()["text"], "one");
}

#[tokio::test(start_paused = true)]
async fn two_owners_write_parts_of_one_status() {
    let (sandbox, user) = cluster().await;
    let mirror = make(&user, "a").await;
    let writer = writer(sandbox.client());
    writer.write(&status(&mirror, "one")).await.unwrap();
    let condition = json!({"type": "Served", "status": "True", "reason": "Answered", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let served = ObjectWrite::status(&Identity::of(&mirror), json!({ "conditions": [condition] })).owned_by("portal");
    writer.write(&served).await.unwrap();
    writer.write(&status(&mirror, "two")).await.unwrap();
    writer.write(&served).await.unwrap();
    let status = mirrors(&user).get("a").await.unwrap().status.unwrap();
    assert_eq!((status.text.as_deref(), status.conditions.len()), (Some("two"), 1));
    assert_eq!(writes_of_status(&sandbox), 3, "the same part again is not sent");
}
