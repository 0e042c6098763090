//! The hub on the sandbox: the calls of an index, and the checks on `/readyz` when something is missing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

mod support;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use serde_json::json;
use signpost_engine::{
    Identity, Index, ObjectId, Operator, OperatorOptions, Watch,
    health::{Check, Health},
    hub::KindState,
    lease::LeaseOptions,
    metrics::Metrics,
};
use signpost_sandbox::{DenyRule, Fault, FaultPlan, Sandbox};
use support::{eventually, mirror::Mirror, sandbox};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// An index that records its calls.
#[derive(Default)]
struct Calls(Mutex<Vec<String>>);

impl Calls {
    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Waits until this call is recorded; removes and returns everything up to it.
    async fn until(&self, line: &str) -> Vec<String> {
        let place = eventually(&format!("{line} in {:?}", self.lines()), Duration::from_mins(5), || async {
            self.lines().iter().position(|have| have == line)
        })
        .await;
        self.0.lock().unwrap().drain(..=place).collect()
    }
}

impl<K: signpost_engine::hub::Watched> Index<K> for Calls {
    fn applied(&self, object: &K) {
        self.write(format!("applied {}", ObjectId::of(object).path()));
    }

    fn deleted(&self, id: &ObjectId) {
        self.write(format!("deleted {}", id.path()));
    }

    fn unreadable(&self, object: &Identity, error: &str) {
        assert!(!error.is_empty());
        self.write(format!("unreadable {}", object.id.path()));
    }

    fn listed(&self) {
        self.write("listed".to_owned());
    }
}

struct Watching {
    calls: Arc<Calls>,
    health: Health,
    metrics: Metrics,
    kinds: tokio::sync::watch::Receiver<signpost_engine::hub::Kinds>,
    _stop: tokio_util::sync::DropGuard,
}

impl Watching {
    fn state(&self, resource: &str) -> KindState {
        self.kinds.borrow()[resource].state.clone()
    }

    async fn synced(&self, resource: &str) {
        eventually(resource, Duration::from_mins(1), || async {
            self.kinds.borrow().get(resource).filter(|kind| kind.state == KindState::Synced).map(drop)
        })
        .await;
    }

    /// Waits until exactly these calls are recorded.
    async fn recorded(&self, lines: &[&str]) {
        eventually(&format!("{lines:?}"), Duration::from_mins(1), || async {
            (self.calls.lines().len() >= lines.len()).then_some(())
        })
        .await;
        assert_eq!(self.calls.lines(), lines);
    }

    /// The metric that shows whether the view of a kind is current.
    fn synced_metric(&self, resource: &str) -> Option<String> {
        let begin = format!("signpost_kind_synced{{kind=\"{resource}\"}} ");
        self.metrics.encode().lines().find_map(|line| line.strip_prefix(&begin).map(str::to_owned))
    }

    fn check(&self, resource: &str) -> Check {
        self.health.checks().get(&format!("kind {resource}")).cloned().unwrap_or(Check::Ok)
    }
}

/// Starts a replica that watches one kind.
fn watch<K: signpost_engine::hub::Watched>(client: Client, watch: Watch, options: OperatorOptions) -> Watching {
    let calls = Arc::new(Calls::default());
    let mut operator = Operator::new(client, options);
    operator.watch::<K>("test", watch, calls.clone());
    let (health, metrics, kinds) = (operator.health(), operator.metrics(), operator.kinds());
    let stop = CancellationToken::new();
    tokio::spawn(operator.run(stop.clone()));
    Watching { calls, health, metrics, kinds, _stop: stop.drop_guard() }
}

fn options() -> OperatorOptions {
    OperatorOptions { clock: support::clock(), page_size: 2, ..OperatorOptions::default() }
}

async fn make(client: &Client, name: &str) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    Api::<ConfigMap>::namespaced(client.clone(), "default").create(&PostParams::default(), &map).await.unwrap();
}

async fn remove(client: &Client, name: &str) {
    Api::<ConfigMap>::namespaced(client.clone(), "default").delete(name, &DeleteParams::default()).await.unwrap();
}

fn is_watch(info: &signpost_sandbox::RequestInfo) -> bool {
    info.verb == "watch"
}

/// A sandbox with three ConfigMaps and a replica that has seen them.
async fn three(faults: FaultPlan) -> (Sandbox, Client, Watching) {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    for name in ["a", "b", "c"] {
        make(&user, name).await;
    }
    let watching = watch::<ConfigMap>(sandbox.client_with(faults), Watch::required(), options());
    let recorded = watching.calls.until("listed").await;
    assert_eq!(recorded, ["applied default/a", "applied default/b", "applied default/c", "listed"]);
    (sandbox, user, watching)
}

#[tokio::test(start_paused = true)]
async fn changes_arrive_one_by_one() {
    let (_sandbox, user, watching) = three(FaultPlan::none()).await;
    make(&user, "d").await;
    remove(&user, "a").await;
    assert_eq!(watching.calls.until("deleted default/a").await, ["applied default/d", "deleted default/a"]);
    assert!(watching.health.is_ready());
}

/// Makes all lists and watches fail until the faults are cleared, and waits until the last watch has ended.
async fn cut_off(sandbox: &Sandbox) {
    sandbox.faults().set(FaultPlan::new(|info, _| match info.verb.as_str() {
        "watch" | "list" => Fault::Drop,
        _ => Fault::None,
    }));
    sleep(Duration::from_mins(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_after_410_reports_only_changes() {
    let (sandbox, user, watching) = three(FaultPlan::none()).await;
    cut_off(&sandbox).await;
    make(&user, "d").await;
    remove(&user, "b").await;
    sandbox.compact();
    sandbox.faults().clear();
    assert_eq!(watching.calls.until("listed").await, ["applied default/d", "deleted default/b", "listed"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_can_be_resumed_needs_no_list() {
    let (sandbox, user, watching) = three(FaultPlan::none()).await;
    cut_off(&sandbox).await;
    make(&user, "d").await;
    remove(&user, "b").await;
    sandbox.faults().clear();
    assert_eq!(watching.calls.until("deleted default/b").await, ["applied default/d", "deleted default/b"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_half_way_deletes_nothing() {
    let (sandbox, _user, watching) = three(FaultPlan::none()).await;
    cut_off(&sandbox).await;
    sandbox.compact();
    // The first page is served, all others fail.
    sandbox.faults().set(FaultPlan::new(|info, _| {
        let later_page = info.query.iter().any(|(name, _)| name == "continue");
        if later_page { Fault::internal() } else { Fault::None }
    }));
    sleep(Duration::from_mins(3)).await;
    assert!(matches!(watching.state("configmaps"), KindState::Stale { .. }), "{:?}", watching.state("configmaps"));
    sandbox.faults().clear();
    assert_eq!(watching.calls.until("listed").await, ["listed"], "nothing was deleted, nothing reported twice");
}

#[tokio::test(start_paused = true)]
async fn an_object_created_again_is_reported_deleted_and_new() {
    let (sandbox, user, watching) = three(FaultPlan::none()).await;
    cut_off(&sandbox).await;
    remove(&user, "b").await;
    make(&user, "b").await;
    sandbox.compact();
    sandbox.faults().clear();
    assert_eq!(watching.calls.until("listed").await, ["deleted default/b", "applied default/b", "listed"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_open_is_retried_within_a_minute() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    // The first watch gets no answer at all.
    let watching = watch::<ConfigMap>(
        sandbox.client_with(FaultPlan::first(1, is_watch, Fault::Delay(Duration::from_hours(1)))),
        Watch::required(),
        options(),
    );
    watching.calls.until("listed").await;
    make(&user, "a").await;
    let began = tokio::time::Instant::now();
    watching.calls.until("applied default/a").await;
    assert!(began.elapsed() <= Duration::from_secs(61), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_loss_is_noticed_within_a_minute() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    let inner = sandbox.client();
    let first = Arc::new(Mutex::new(true));
    // The first watch is accepted and then silent: no event, no bookmark, no end.
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, first) = (inner.clone(), first.clone());
        async move {
            let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if watch && std::mem::take(&mut *first.lock().unwrap()) {
                let silence = StreamBody::new(futures::stream::pending::<
                    Result<Frame<_>, Box<dyn std::error::Error + Send + Sync>>,
                >());
                return Ok(http::Response::new(silence.boxed_unsync()));
            }
            client.send(request).await.map(|answer| answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
    });
    let watching = watch::<ConfigMap>(Client::new(service, "default"), Watch::required(), options());
    watching.calls.until("listed").await;
    eventually("synced", Duration::from_secs(5), || async {
        (watching.state("configmaps") == KindState::Synced).then_some(())
    })
    .await;
    make(&user, "a").await;
    let began = tokio::time::Instant::now();
    assert_eq!(watching.calls.until("applied default/a").await, ["applied default/a"], "resumed, not listed again");
    assert!(began.elapsed() <= Duration::from_mins(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_bad_object_is_reported_and_the_others_are_seen() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    support::install_mirrors(&user).await;
    let api: Api<DynamicObject> = Api::namespaced_with(user.clone(), "default", &ApiResource::erase::<Mirror>(&()));
    let mirror = |name: &str, text: serde_json::Value| -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "test.signpost.dev/v1", "kind": "Mirror", "metadata": {"name": name}, "spec": {"text": text},
        }))
        .unwrap()
    };
    for (name, text) in [("a", json!("x")), ("b", json!(1)), ("c", json!("x"))] {
        api.create(&PostParams::default(), &mirror(name, text)).await.unwrap();
    }
    let watching = watch::<Mirror>(sandbox.client(), Watch::required(), options());
    let recorded = watching.calls.until("listed").await;
    assert_eq!(recorded, ["applied default/a", "unreadable default/b", "applied default/c", "listed"]);
    let patch = |text: serde_json::Value| Patch::Merge(json!({"spec": {"text": text}}));
    api.patch("a", &PatchParams::default(), &patch(json!({}))).await.unwrap();
    api.patch("b", &PatchParams::default(), &patch(json!("good"))).await.unwrap();
    assert_eq!(watching.calls.until("applied default/b").await, ["unreadable default/a", "applied default/b"]);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    watching.calls.until("deleted default/a").await;
}

#[tokio::test(start_paused = true)]
async fn the_leader_reports_unreadable_objects_and_their_finalizers() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    support::install_mirrors(&user).await;
    let api: Api<DynamicObject> = Api::namespaced_with(user.clone(), "default", &ApiResource::erase::<Mirror>(&()));
    for name in ["bad", "going"] {
        let object = json!({
            "apiVersion": "test.signpost.dev/v1", "kind": "Mirror",
            "metadata": {"name": name, "finalizers": ["test.signpost.dev/mirror"]}, "spec": {"text": 1},
        });
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    api.delete("going", &DeleteParams::default()).await.unwrap();
    let notes = || async {
        let all = Api::<Event>::all(user.clone()).list(&ListParams::default()).await.unwrap().items;
        let text = |event: Event| {
            (event.involved_object.name.unwrap(), event.reason.unwrap(), event.message.unwrap(), event.count.unwrap())
        };
        let mut notes: Vec<_> = all.into_iter().map(text).collect();
        notes.sort();
        notes
    };
    // Another replica leads: this one only watches.
    let lease = |identity: &str| OperatorOptions {
        identity: identity.to_owned(),
        lease: Some(LeaseOptions::new("default", "signpost")),
        ..options()
    };
    let leader = watch::<ConfigMap>(sandbox.client(), Watch::required(), lease("leader"));
    leader.calls.until("listed").await;
    sleep(Duration::from_secs(5)).await;
    let watching = watch::<Mirror>(sandbox.client(), Watch::required(), lease("follower"));
    watching.calls.until("listed").await;
    sleep(Duration::from_mins(3)).await;
    assert_eq!(notes().await, []);
    drop(leader);
    sleep(Duration::from_mins(2)).await;
    let reported = notes().await;
    let [bad, going] = reported.as_slice() else { panic!("{reported:?}") };
    assert_eq!((bad.0.as_str(), bad.1.as_str(), bad.3), ("bad", "Unreadable", 1));
    assert!(bad.2.contains("what was known of it is kept"), "{}", bad.2);
    assert_eq!((going.0.as_str(), going.1.as_str(), going.3), ("going", "Unreadable", 1));
    assert!(going.2.contains("being deleted") && going.2.contains("(test.signpost.dev/mirror)"), "{}", going.2);
    // A restart does not repeat the events.
    drop(watching);
    let again = watch::<Mirror>(sandbox.client(), Watch::required(), options());
    again.calls.until("listed").await;
    sleep(Duration::from_mins(2)).await;
    assert_eq!(notes().await, reported);
}

#[tokio::test(start_paused = true)]
async fn a_missing_optional_kind_is_found_within_seconds_of_its_crd() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    let watching = watch::<Mirror>(sandbox.client(), Watch::optional(), options());
    sleep(Duration::from_mins(3)).await;
    assert_eq!(watching.state("mirrors.test.signpost.dev"), KindState::Missing);
    assert!(watching.health.is_ready(), "an optional kind is not needed to be ready");
    assert_eq!(watching.synced_metric("mirrors.test.signpost.dev"), None, "an alert on 0 must not fire");
    support::install_mirrors(&user).await;
    let began = tokio::time::Instant::now();
    watching.calls.until("listed").await;
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
    eventually("synced", Duration::from_secs(5), || async {
        (watching.state("mirrors.test.signpost.dev") == KindState::Synced).then_some(())
    })
    .await;
    assert_eq!(watching.synced_metric("mirrors.test.signpost.dev").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_missing_required_kind_names_the_crd_and_the_command() {
    let sandbox = sandbox(1);
    let watching = watch::<Mirror>(sandbox.client(), Watch::required(), options());
    sleep(Duration::from_secs(1)).await;
    assert!(!watching.health.is_ready());
    assert_eq!(watching.synced_metric("mirrors.test.signpost.dev").as_deref(), Some("0"));
    let Check::Failing { message, fix } = watching.check("mirrors.test.signpost.dev") else { panic!("not failing") };
    assert!(message.contains("mirrors.test.signpost.dev is not installed"), "{message}");
    assert!(fix.unwrap().contains("signpost crds | kubectl apply"));
}

#[tokio::test(start_paused = true)]
async fn list_allowed_but_watch_denied_is_not_ready_and_names_the_verb() {
    for verb in ["list", "watch"] {
        let sandbox = sandbox(1);
        sandbox.deny(vec![DenyRule::new(verb, "configmaps")]);
        let watching = watch::<ConfigMap>(sandbox.client(), Watch::required(), options());
        sleep(Duration::from_secs(2)).await;
        assert!(!watching.health.is_ready(), "{verb}");
        let Check::Failing { message, fix } = watching.check("configmaps") else { panic!("not failing") };
        assert!(message.contains(&format!("no permission to {verb} configmaps")), "{message}");
        assert!(fix.unwrap().contains(&format!("kubectl auth can-i {verb} configmaps")));
        // Once the permission is granted, it recovers by itself.
        sandbox.deny(Vec::new());
        eventually("ready", Duration::from_secs(30), || async { watching.health.is_ready().then_some(()) }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_namespace_can_be_watched_alone() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    make(&user, "here").await;
    let other = Api::<ConfigMap>::namespaced(user.clone(), "kube-public");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("there".to_owned());
    other.create(&PostParams::default(), &map).await.unwrap();
    let limited = || OperatorOptions { namespace: Some("default".to_owned()), ..options() };
    let maps = watch::<ConfigMap>(sandbox.client(), Watch::required(), limited());
    assert_eq!(maps.calls.until("listed").await, ["applied default/here", "listed"]);
    // Cluster-scoped kinds have no namespace to be limited to.
    let namespaces = watch::<Namespace>(sandbox.client(), Watch::required(), limited());
    assert!(namespaces.calls.until("listed").await.contains(&"applied kube-public".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn two_indexes_of_one_kind_share_one_stream() {
    let sandbox = sandbox(1);
    make(&sandbox.client(), "a").await;
    let (one, two) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
    let mut operator = Operator::new(sandbox.client(), options());
    operator.watch::<ConfigMap>("test", Watch::optional(), one.clone());
    operator.watch::<ConfigMap>("test", Watch::required(), two.clone());
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator.run(stop.clone()));
    assert_eq!(one.until("listed").await, two.until("listed").await);
    let lists = sandbox.log().iter().filter(|entry| entry.info.verb == "list").count();
    assert_eq!(lists, 1);
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_degraded_first_and_failing_after_minutes() {
    let (sandbox, _user, watching) = three(FaultPlan::none()).await;
    sandbox.faults().set(FaultPlan::new(|_, _| Fault::Drop));
    sleep(Duration::from_mins(2)).await;
    assert!(matches!(watching.check("configmaps"), Check::Degraded { .. }), "reads are served from the last view");
    sleep(Duration::from_mins(5)).await;
    assert!(matches!(watching.check("configmaps"), Check::Failing { .. }), "{:?}", watching.check("configmaps"));
    sandbox.faults().clear();
    eventually("ready", Duration::from_secs(31), || async { watching.health.is_ready().then_some(()) }).await;
    assert!(watching.calls.lines().iter().all(|line| line == "listed"), "an outage changes nothing");
}

#[tokio::test(start_paused = true)]
async fn lists_that_keep_expiring_are_degraded_first_and_failing_after_minutes() {
    let (sandbox, _user, watching) = three(FaultPlan::none()).await;
    // The watch ends, and every list and watch after it is answered with 410.
    cut_off(&sandbox).await;
    sandbox.faults().set(FaultPlan::new(|info, _| match info.verb.as_str() {
        "watch" | "list" => Fault::expired(),
        _ => Fault::None,
    }));
    sleep(Duration::from_mins(2)).await;
    assert!(matches!(watching.check("configmaps"), Check::Degraded { .. }), "{:?}", watching.check("configmaps"));
    sleep(Duration::from_mins(5)).await;
    let Check::Failing { message, .. } = watching.check("configmaps") else { panic!("not failing") };
    assert!(message.contains("410"), "{message}");
    sandbox.faults().clear();
    eventually("ready", Duration::from_secs(31), || async { watching.health.is_ready().then_some(()) }).await;
    assert!(watching.calls.lines().iter().all(|line| line == "listed"), "nothing is taken for deleted");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_expires_beside_a_good_list_is_not_ready() {
    let (sandbox, user, watching) = three(FaultPlan::none()).await;
    cut_off(&sandbox).await;
    let expire = |info: &signpost_sandbox::RequestInfo, _| {
        if is_watch(info) { Fault::ExpireWatch { after: 0 } } else { Fault::None }
    };
    sandbox.faults().set(FaultPlan::new(expire));
    sleep(Duration::from_mins(2)).await;
    assert!(matches!(watching.check("configmaps"), Check::Degraded { .. }), "{:?}", watching.check("configmaps"));
    sleep(Duration::from_mins(5)).await;
    let Check::Failing { message, .. } = watching.check("configmaps") else { panic!("not failing") };
    assert!(message.contains("410"), "{message}");
    sandbox.faults().clear();
    eventually("ready", Duration::from_secs(32), || async { watching.health.is_ready().then_some(()) }).await;
    labelled(&user, "new", "dns").await;
    eventually("the watch works", Duration::from_secs(2), || async {
        watching.calls.lines().iter().any(|line| line == "applied default/new").then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_view_whose_watch_is_denied_or_throttled_is_listed_again() {
    for fault in [Fault::status(403, "Forbidden", "refused by the test"), Fault::throttled(1)] {
        let (sandbox, user, watching) = three(FaultPlan::none()).await;
        let refused = fault.clone();
        sandbox.faults().set(FaultPlan::new(move |info, _| if is_watch(info) { refused.clone() } else { Fault::None }));
        // The watch that is open ends within a minute.
        sleep(Duration::from_mins(1)).await;
        make(&user, "d").await;
        eventually(&format!("d is listed, {fault:?}"), Duration::from_mins(6), || async {
            watching.calls.lines().iter().any(|line| line == "applied default/d").then_some(())
        })
        .await;
        assert!(!watching.health.is_ready(), "{fault:?}: the view is never current");
        sleep(Duration::from_mins(30)).await;
        let lists = watching.kinds.borrow()["configmaps"].lists;
        assert!((6..=9).contains(&lists), "{fault:?}: {lists} lists in more than half an hour");
        sandbox.faults().clear();
        watching.synced("configmaps").await;
        assert!(watching.health.is_ready(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_opened_again_changes_no_state() {
    let (sandbox, _user, watching) = three(FaultPlan::none()).await;
    watching.synced("configmaps").await;
    let mut kinds = watching.kinds.clone();
    kinds.mark_unchanged();
    sleep(Duration::from_mins(5)).await;
    assert!(sandbox.log().iter().filter(|entry| is_watch(&entry.info)).count() > 5, "it was opened again");
    assert!(!kinds.has_changed().unwrap());
    assert_eq!(watching.synced_metric("configmaps").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_lasts_as_long_as_the_options_ask_for() {
    let sandbox = sandbox(1);
    let options = OperatorOptions { watch: Duration::from_mins(5), ..options() };
    let watching = watch::<ConfigMap>(sandbox.client(), Watch::required(), options);
    watching.synced("configmaps").await;
    sleep(Duration::from_mins(9)).await;
    assert_eq!(sandbox.log().iter().filter(|entry| is_watch(&entry.info)).count(), 2);
    assert!(watching.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_lists_report_nothing_twice() {
    let (sandbox, _user, watching) =
        three(FaultPlan::new(|info, _| if is_watch(info) { Fault::ExpireWatch { after: 0 } } else { Fault::None }))
            .await;
    let lists = || watching.kinds.borrow()["configmaps"].lists;
    eventually("a hundred lists", Duration::from_hours(2), || async { (lists() >= 100).then_some(()) }).await;
    let recorded: BTreeSet<String> = watching.calls.take().into_iter().collect();
    assert_eq!(recorded, BTreeSet::from(["listed".to_owned()]));
    assert_eq!(sandbox.writes(), 3, "only the user's");
}

async fn labelled(client: &Client, name: &str, label: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"team": label}}});
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&map)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_selector_delivers_only_matching_objects() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    labelled(&user, "a", "dns").await;
    labelled(&user, "b", "web").await;
    let watching = watch::<ConfigMap>(sandbox.client(), Watch::required().labels("team=dns"), options());
    watching.synced("configmaps (labels team=dns)").await;
    labelled(&user, "c", "dns").await;
    labelled(&user, "a", "web").await;
    watching.recorded(&["applied default/a", "listed", "applied default/c", "deleted default/a"]).await;
    let one = watch::<ConfigMap>(sandbox.client(), Watch::required().named("default", "c"), options());
    one.synced("configmaps (namespace default, fields metadata.name=c)").await;
    labelled(&user, "b", "dns").await;
    labelled(&user, "c", "web").await;
    one.recorded(&["applied default/c", "listed", "applied default/c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_metadata_watch_fetches_only_metadata() {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    labelled(&user, "a", "dns").await;
    let watching =
        watch::<PartialObjectMeta<ConfigMap>>(sandbox.client(), Watch::required().metadata_only(), options());
    watching.synced("configmaps (metadata)").await;
    labelled(&user, "b", "dns").await;
    watching.recorded(&["applied default/a", "listed", "applied default/b"]).await;
}
