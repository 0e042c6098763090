//! The sandbox inside one thread on a paused clock: every fault, without waiting in real time, the same for the same seed.

#![allow(clippy::expect_used, reason = "helpers of tests are tests")]

use std::{collections::BTreeMap, time::Duration};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::{PartialObjectMeta, PartialObjectMetaExt},
    runtime::{WatchStreamExt, watcher},
};
use signpost_sandbox::{
    ApiError, EventFate, EventPlan, Fault, FaultPlan, RequestInfo, Sandbox, SandboxClock, SandboxOptions, Session,
};
use tokio::time::{Instant, timeout};

const MINUTE: Duration = Duration::from_mins(1);

fn sandbox(seed: u64) -> Sandbox {
    let clock = SandboxClock::tokio_from("2026-01-01T00:00:00Z".parse().expect("a time"));
    Sandbox::new(SandboxOptions { clock, seed, ..SandboxOptions::default() })
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let mut object = ConfigMap { data: Some(BTreeMap::from([("k".into(), value.into())])), ..ConfigMap::default() };
    object.metadata.name = Some(name.into());
    object
}

/// A client whose creates meet the fault, and a client without faults.
fn at_create(sandbox: &Sandbox, fault: Fault) -> (Api<ConfigMap>, Api<ConfigMap>) {
    let plan = FaultPlan::new(move |info, _| if info.verb == "create" { fault.clone() } else { Fault::None });
    (Api::default_namespaced(sandbox.client_with(plan)), Api::default_namespaced(sandbox.client()))
}

async fn create(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    api.create(&PostParams::default(), &config_map(name, "1")).await
}

async fn exists(api: &Api<ConfigMap>, name: &str) -> bool {
    api.get_opt(name).await.expect("an answer").is_some()
}

async fn event(events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin)) -> String {
    match timeout(60 * MINUTE, events.next()).await.expect("an event in time") {
        Some(Ok(WatchEvent::Added(object))) => format!("added {}", object.name_any()),
        Some(Ok(WatchEvent::Modified(object))) => format!("modified {}", object.name_any()),
        Some(Ok(WatchEvent::Deleted(object))) => format!("deleted {}", object.name_any()),
        Some(Ok(WatchEvent::Bookmark(_))) => "bookmark".into(),
        Some(Ok(WatchEvent::Error(status))) => format!("error {}", status.code),
        Some(Err(_)) => "broken".into(),
        None => "end".into(),
    }
}

/// Opens a watch from the beginning through a client that meets the fault at it.
async fn watch(
    sandbox: &Sandbox,
    params: &WatchParams,
    fault: Fault,
) -> impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin + use<> {
    let plan = FaultPlan::first(1, |info: &RequestInfo| info.verb == "watch", fault);
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client_with(plan));
    Box::pin(api.watch(params, "0").await.expect("a watch"))
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_has_no_effect_when_its_client_gives_up() {
    let sandbox = sandbox(1);
    let (slow, plain) = at_create(&sandbox, Fault::Delay(MINUTE));
    timeout(MINUTE / 2, create(&slow, "a")).await.unwrap_err();
    tokio::time::sleep(2 * MINUTE).await;
    assert!(!exists(&plain, "a").await);
    let start = Instant::now();
    create(&slow, "a").await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_late_effect_comes_after_its_client_gave_up() {
    let sandbox = sandbox(1);
    let (slow, plain) = at_create(&sandbox, Fault::LateEffect(MINUTE));
    timeout(MINUTE / 2, create(&slow, "a")).await.unwrap_err();
    assert!(!exists(&plain, "a").await, "not yet");
    tokio::time::sleep(MINUTE).await;
    assert!(exists(&plain, "a").await);
    assert!(sandbox.log().iter().any(|entry| entry.is_write() && entry.status == 201), "{:?}", sandbox.log());
}

#[tokio::test(start_paused = true)]
async fn a_late_effect_comes_after_its_client_crashed() {
    let sandbox = sandbox(1);
    let session = Session::new(FaultPlan::new(|_, _| Fault::LateEffect(MINUTE)));
    let dying: Api<ConfigMap> = Api::default_namespaced(sandbox.session_client(&session));
    let (answer, ()) = tokio::join!(create(&dying, "a"), async {
        tokio::time::sleep(MINUTE / 2).await;
        session.crash();
    });
    answer.unwrap_err();
    assert!(exists(&Api::default_namespaced(sandbox.client()), "a").await);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_comes_after_the_effect() {
    let sandbox = sandbox(1);
    let (slow, plain) = at_create(&sandbox, Fault::LateAnswer(MINUTE));
    let start = Instant::now();
    let (made, seen) = tokio::join!(create(&slow, "a"), async {
        tokio::time::sleep(MINUTE / 2).await;
        exists(&plain, "a").await
    });
    assert!(seen, "the effect comes before the answer");
    assert_eq!(made.unwrap().name_any(), "a");
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_can_come_before_or_after_the_effect() {
    let sandbox = sandbox(1);
    let error = || Box::new(ApiError::new(504, "Timeout", "the request did not complete in time"));
    for (fault, done) in [(Fault::Fail(error()), false), (Fault::FailAfter(error()), true)] {
        let (refused, plain) = at_create(&sandbox, fault);
        let answer = create(&refused, "a").await.unwrap_err();
        assert!(matches!(&answer, kube::Error::Api(status) if status.code == 504), "{answer}");
        assert_eq!(exists(&plain, "a").await, done);
    }
    assert_eq!(sandbox.writes(), 1, "the log counts what may have changed the cluster");
}

#[tokio::test(start_paused = true)]
async fn a_connection_can_break_before_or_after_the_effect() {
    let sandbox = sandbox(1);
    for (fault, done) in [(Fault::Drop, false), (Fault::LoseAnswer, true)] {
        let (cut, plain) = at_create(&sandbox, Fault::All(vec![Fault::Delay(MINUTE), fault]));
        let start = Instant::now();
        create(&cut, "a").await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), 60);
        assert_eq!(exists(&plain, "a").await, done);
    }
}

#[tokio::test(start_paused = true)]
async fn watch_events_can_be_late() {
    let sandbox = sandbox(1);
    let plan = EventPlan::new(|n| EventFate { delay: if n == 0 { MINUTE } else { Duration::ZERO }, repeats: 0 });
    let mut events = watch(&sandbox, &WatchParams::default(), Fault::Events(plan)).await;
    let plain: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    create(&plain, "a").await.unwrap();
    create(&plain, "b").await.unwrap();
    let start = Instant::now();
    assert_eq!(event(&mut events).await, "added a");
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!(event(&mut events).await, "added b");
    assert_eq!(start.elapsed().as_secs(), 60, "only the first is late");
}

#[tokio::test(start_paused = true)]
async fn watch_events_can_be_repeated_but_bookmarks_are_not() {
    let sandbox = sandbox(1);
    let params = WatchParams::default().timeout(120);
    let mut events = watch(&sandbox, &params, Fault::Events(EventPlan::repeated(2))).await;
    let plain: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    create(&plain, "a").await.unwrap();
    plain.delete("a", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..8 {
        seen.push(event(&mut events).await);
    }
    let a = ["added a"; 3].into_iter().chain(["deleted a"; 3]);
    assert_eq!(seen, a.chain(["bookmark", "end"]).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_can_break_at_a_given_time() {
    let sandbox = sandbox(1);
    let fault = Fault::BreakWatch { after: MINUTE / 2 };
    let start = Instant::now();
    let mut events = watch(&sandbox, &WatchParams::default(), fault).await;
    assert_eq!(event(&mut events).await, "broken");
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_eq!(event(&mut events).await, "end");
}

#[tokio::test(start_paused = true)]
async fn a_watch_breaks_while_its_event_is_late() {
    let sandbox = sandbox(1);
    create(&Api::default_namespaced(sandbox.client()), "a").await.unwrap();
    let late = Fault::Events(EventPlan::late(10 * MINUTE));
    let start = Instant::now();
    let fault = Fault::All(vec![late, Fault::BreakWatch { after: MINUTE }]);
    let mut events = watch(&sandbox, &WatchParams::default(), fault).await;
    assert_eq!(event(&mut events).await, "broken");
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_list_can_be_refused_as_expired() {
    let sandbox = sandbox(1);
    let plan = FaultPlan::first(1, |info| info.verb == "list", Fault::expired());
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client_with(plan));
    let error = api.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if (status.code, &*status.reason) == (410, "Expired")),
        "{error}"
    );
    api.list(&ListParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bookmarks_and_timeouts_take_no_real_time() {
    let sandbox = sandbox(1);
    let real = std::time::Instant::now();
    let start = Instant::now();
    let mut events = watch(&sandbox, &WatchParams::default().timeout(290), Fault::None).await;
    for _ in 0..4 {
        assert_eq!(event(&mut events).await, "bookmark");
    }
    assert_eq!(event(&mut events).await, "end");
    assert_eq!(start.elapsed().as_secs(), 290);
    assert!(real.elapsed() < Duration::from_mins(1), "290 s on the paused clock");
}

#[tokio::test(start_paused = true)]
async fn objects_are_stamped_by_the_paused_clock() {
    let sandbox = sandbox(1);
    tokio::time::sleep(90 * MINUTE).await;
    let made = create(&Api::default_namespaced(sandbox.client()), "a").await.unwrap();
    assert_eq!(made.creation_timestamp().unwrap().0.to_string(), "2026-01-01T01:30:00Z");
}

#[tokio::test(start_paused = true)]
async fn a_metadata_watcher_follows_its_selector() {
    let sandbox = sandbox(1);
    let api: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(sandbox.client());
    let plain: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    for streaming in [false, true] {
        let config = watcher::Config::default().labels("x=1");
        let config = if streaming { config.streaming_lists() } else { config };
        create(&plain, "a").await.unwrap();
        let mut events = Box::pin(watcher(api.clone(), config).default_backoff().filter_map(async |event| event.ok()));
        let mut next = async || timeout(MINUTE, events.next()).await.expect("in time").expect("an open stream");
        assert!(matches!(next().await, watcher::Event::Init));
        assert!(matches!(next().await, watcher::Event::InitDone));
        for (label, applied) in [("1", true), ("2", false)] {
            let labels = BTreeMap::from([("x".to_owned(), label.to_owned())]);
            let meta = kube::core::ObjectMeta { labels: Some(labels), ..Default::default() };
            let patch = Patch::Merge(meta.into_request_partial::<ConfigMap>());
            api.patch_metadata("a", &PatchParams::default(), &patch).await.unwrap();
            match next().await {
                watcher::Event::Apply(object) => assert!(applied && object.name_any() == "a"),
                watcher::Event::Delete(object) => assert!(!applied && object.name_any() == "a"),
                other => panic!("unexpected {other:?}"),
            }
        }
        plain.delete("a", &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_starts_equal_and_then_differs() {
    let base = sandbox(1);
    let (old, _) = at_create(&base, Fault::None);
    let first = create(&old, "a").await.unwrap();
    let fork = |seed| base.fork(SandboxOptions { seed, ..SandboxOptions::default() });
    let (one, two) = (fork(1), fork(1));
    assert_eq!(one.resource_version(), base.resource_version());
    let mut events = watch(&one, &WatchParams::default(), Fault::None).await;
    assert_eq!(event(&mut events).await, "added a");
    let three = fork(2);
    create(&old, "only-in-the-base").await.unwrap();
    let mut made = Vec::new();
    for sandbox in [&one, &two, &three] {
        let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
        assert_eq!(api.get("a").await.unwrap().uid(), first.uid());
        assert!(!exists(&api, "only-in-the-base").await);
        made.push(create(&api, "b").await.unwrap().uid());
    }
    assert_eq!(event(&mut events).await, "added b", "no event of the base");
    assert_eq!(made[0], made[1], "one seed, one sequence of uids");
    assert!(made[0] != made[2] && made[0] != first.uid());
}

/// The objects that a few clients under seeded faults leave behind, with the log and the time it took.
fn history(seed: u64) -> String {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let sandbox = sandbox(seed);
        let start = Instant::now();
        let workers = (0..3).map(|worker| {
            let api: Api<ConfigMap> =
                Api::default_namespaced(sandbox.client_with(FaultPlan::seeded(seed + worker, 0.3)));
            tokio::spawn(async move {
                for n in 0..20 {
                    let name = format!("c{}", n % 5);
                    let object = config_map(&name, &format!("{worker}-{n}"));
                    let params = PatchParams::apply("t").force();
                    let done = timeout(MINUTE, api.patch(&name, &params, &Patch::Apply(object))).await;
                    if !matches!(done, Ok(Ok(_))) {
                        tokio::time::sleep(Duration::from_millis(7 * (worker + 1))).await;
                    }
                    if n % 7 == worker {
                        let _ = api.delete(&name, &DeleteParams::default()).await;
                    }
                }
            })
        });
        futures::future::join_all(workers).await;
        let objects: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
        let left = objects.list(&ListParams::default()).await.expect("a list");
        format!("{:?} {:?} {:?}", start.elapsed(), left, sandbox.log())
    })
}

#[test]
fn one_seed_makes_one_history_in_one_thread() {
    assert_eq!(history(5), history(5));
    assert_ne!(history(5), history(6));
}
