//! Statuses that fail, hang or are throttled: how often they are sent, what waits for them, and what the log has of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

mod support;

use std::{
    fmt::{Debug, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use signpost_engine::{Identity, ObjectWrite, OperatorOptions};
use signpost_sandbox::{Fault, FaultPlan, RequestInfo, Sandbox};
use support::{
    eventually,
    mirror::{self, Mirror, MirrorSpec},
    sandbox,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{Level, Subscriber, field::Field, subscriber::DefaultGuard};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The namespace whose statuses cannot be written.
const BAD: &str = "kube-public";
const GOOD: &str = "default";
const HANGS: Fault = Fault::Delay(Duration::from_hours(1));

async fn cluster() -> (Sandbox, Client) {
    let sandbox = sandbox(1);
    let user = sandbox.client();
    support::install_mirrors(&user).await;
    (sandbox, user)
}

fn options() -> OperatorOptions {
    OperatorOptions { clock: support::clock(), ..OperatorOptions::default() }
}

async fn make(client: &Client, namespace: &str, name: &str) {
    let mirror = Mirror::new(name, MirrorSpec { text: name.into() });
    Api::<Mirror>::namespaced(client.clone(), namespace).create(&PostParams::default(), &mirror).await.unwrap();
}

async fn status(client: &Client, namespace: &str, name: &str) -> Option<String> {
    let mirror = Api::<Mirror>::namespaced(client.clone(), namespace).get(name).await.unwrap();
    mirror.status.and_then(|status| status.text)
}

/// How long it takes until the object has its status.
async fn reported(client: &Client, namespace: &str, name: &str) -> Duration {
    let began = Instant::now();
    eventually(&format!("{name} is reported"), Duration::from_mins(15), || status(client, namespace, name)).await;
    began.elapsed()
}

fn is_status(info: &RequestInfo) -> bool {
    info.is_write() && info.subresource == "status"
}

/// Statuses of the bad namespace get the fault.
fn in_bad_namespace(fault: Fault) -> FaultPlan {
    FaultPlan::new(move |info, _| if is_status(info) && info.namespace == BAD { fault.clone() } else { Fault::None })
}

/// Counts the statuses that are sent. They get the fault until it is switched off.
struct Failing {
    sent: Arc<AtomicUsize>,
    active: Arc<AtomicBool>,
}

impl Failing {
    fn start(sandbox: &Sandbox, fault: Fault) -> Self {
        let failing = Self { sent: Arc::default(), active: Arc::new(AtomicBool::new(true)) };
        let (sent, active) = (failing.sent.clone(), failing.active.clone());
        sandbox.faults().set(FaultPlan::new(move |info, _| {
            if !is_status(info) {
                return Fault::None;
            }
            sent.fetch_add(1, Ordering::SeqCst);
            if active.load(Ordering::SeqCst) { fault.clone() } else { Fault::None }
        }));
        failing
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    fn stop(&self) {
        self.active.store(false, Ordering::SeqCst);
    }
}

/// The log of this thread, which is that of the test: every task of it runs here.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Level, String)>>>);

struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level <= Level::INFO {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lock().unwrap().push((level, text.0));
        }
    }
}

impl Log {
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines of this level about the object.
    fn about(&self, object: &str, level: Level) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let about = lines.iter().filter(|(of, text)| *of == level && text.contains(object));
        about.map(|(_, text)| text.clone()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_failed_is_sent_again_after_a_few_seconds() {
    let (sandbox, user) = cluster().await;
    // The watch shows the finalizer meanwhile, so that the second try is at once.
    sandbox.faults().set(FaultPlan::first(2, is_status, Fault::internal()));
    let (operator, _maps) = mirror::operator(sandbox.client(), options());
    let _running = support::run(operator);
    sleep(Duration::from_secs(5)).await;
    make(&user, GOOD, "a").await;
    let took = reported(&user, GOOD, "a").await;
    assert!(took >= Duration::from_secs(1) && took <= Duration::from_millis(4_500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_keeps_failing_is_sent_ever_more_slowly() {
    let (sandbox, user) = cluster().await;
    let failing = Failing::start(&sandbox, Fault::internal());
    let (operator, _maps) = mirror::operator(sandbox.client(), options());
    let _running = support::run(operator);
    make(&user, GOOD, "a").await;
    sleep(Duration::from_hours(1)).await;
    assert!((120..=250).contains(&failing.sent()), "{} times in an hour", failing.sent());
    failing.stop();
    let took = reported(&user, GOOD, "a").await;
    assert!(took <= Duration::from_secs(31), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn failing_statuses_do_not_delay_those_of_another_namespace() {
    let (sandbox, user) = cluster().await;
    sandbox.faults().set(in_bad_namespace(Fault::internal()));
    let (operator, _maps) = mirror::operator(sandbox.client(), options());
    let _running = support::run(operator);
    for number in 0..200 {
        make(&user, BAD, &format!("m{number}")).await;
    }
    sleep(Duration::from_mins(1)).await;
    make(&user, GOOD, "a").await;
    let took = reported(&user, GOOD, "a").await;
    assert!(took <= Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_asks_to_wait_does_not_delay_other_statuses() {
    let (sandbox, user) = cluster().await;
    let mut busy = Fault::throttled(60);
    if let Fault::Fail(error) = &mut busy {
        error.status["message"] = json!(r#"admission webhook "policy.example.org" denied the request: later"#);
    }
    sandbox.faults().set(in_bad_namespace(busy));
    let (operator, _maps) = mirror::operator(sandbox.client(), options());
    let _running = support::run(operator);
    for number in 0..20 {
        make(&user, BAD, &format!("m{number}")).await;
    }
    sleep(Duration::from_secs(10)).await;
    for number in 0..5 {
        let name = format!("a{number}");
        make(&user, GOOD, &name).await;
        let took = reported(&user, GOOD, &name).await;
        assert!(took <= Duration::from_secs(2), "{name}: {took:?}");
        sleep(Duration::from_secs(7)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn retries_that_hang_do_not_delay_the_status_of_another_object() {
    let (sandbox, user) = cluster().await;
    sandbox.faults().set(in_bad_namespace(HANGS));
    let (operator, _maps) = mirror::operator(sandbox.client(), options());
    let _running = support::run(operator);
    for number in 0..20 {
        make(&user, BAD, &format!("m{number}")).await;
    }
    // Each was sent once by now, two at a time.
    sleep(Duration::from_mins(5)).await;
    for number in 0..5 {
        let name = format!("a{number}");
        make(&user, GOOD, &name).await;
        let took = reported(&user, GOOD, &name).await;
        assert!(took <= Duration::from_secs(2), "{name}: {took:?}");
        sleep(Duration::from_secs(7)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_writes_of_one_system_do_not_delay_the_statuses_of_another() {
    let (sandbox, user) = cluster().await;
    sandbox.faults().set(FaultPlan::new(|info, _| {
        if info.verb == "patch" && info.name.starts_with("hanging-") { HANGS } else { Fault::None }
    }));
    let (operator, _maps) = mirror::operator(sandbox.client(), options());
    let writer = operator.writer();
    let _running = support::run(operator);
    let maps: Api<ConfigMap> = Api::namespaced(user.clone(), BAD);
    for number in 0..200 {
        let map = json!({ "metadata": { "name": format!("hanging-{number}") } });
        let map = maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        let note = json!({ "annotations": { "a": "b" } });
        writer.submit(ObjectWrite::metadata(&Identity::of(&map), note).by_system("other"));
    }
    sleep(Duration::from_mins(1)).await;
    make(&user, GOOD, "a").await;
    let took = reported(&user, GOOD, "a").await;
    assert!(took <= Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_to_wait_gets_few_statuses() {
    let (sandbox, user) = cluster().await;
    for number in 0..100 {
        make(&user, GOOD, &format!("m{number}")).await;
    }
    let busy = Failing::start(&sandbox, Fault::throttled(2));
    let (log, _guard) = Log::start();
    let (operator, _maps) = mirror::operator(sandbox.client(), options());
    let _running = support::run(operator);
    eventually("a status is sent", Duration::from_mins(1), async || (busy.sent() > 0).then_some(())).await;
    sleep(Duration::from_millis(1_800)).await;
    assert!(busy.sent() <= 6, "{} requests while the server asks to wait", busy.sent());
    sleep(Duration::from_secs(10)).await;
    busy.stop();
    for number in 0..100 {
        reported(&user, GOOD, &format!("m{number}")).await;
    }
    assert_eq!(log.about("Mirror", Level::WARN), [""; 0], "nothing is wrong with these objects");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_is_in_the_log_once() {
    let denied = Fault::status(403, "Forbidden", r#"admission webhook "policy.example.org" denied the request: no"#);
    let slow = r#"admission webhook "slow.example.org" denied the request: later"#;
    let errors = [
        ("failed calling webhook", Level::WARN, Fault::status(500, "InternalError", "failed calling webhook")),
        ("denied the request", Level::WARN, denied),
        ("slow.example.org", Level::WARN, Fault::status(429, "TooManyRequests", slow)),
        ("no answer within", Level::WARN, HANGS),
        ("Unsupported value", Level::ERROR, Fault::status(422, "Invalid", "status.text: Unsupported value")),
    ];
    for (why, level, fault) in errors {
        let (log, _guard) = Log::start();
        let (sandbox, user) = cluster().await;
        let failing = Failing::start(&sandbox, fault);
        let (operator, _maps) = mirror::operator(sandbox.client(), options());
        let _running = support::run(operator);
        make(&user, GOOD, "a").await;
        sleep(Duration::from_hours(1)).await;
        let lines = log.about("Mirror default/a", level);
        assert!(lines.len() == 1 && lines[0].contains(why), "{why}: {lines:?}");
        assert_eq!(log.about("Mirror default/a", Level::INFO), [""; 0], "{why}");
        failing.stop();
        reported(&user, GOOD, "a").await;
        let lines = log.about("Mirror default/a", Level::INFO);
        assert!(lines.len() == 1 && lines[0].contains("can be written again"), "{why}: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_submitted_write_that_keeps_failing_is_in_the_log_once() {
    let (log, _guard) = Log::start();
    let (sandbox, user) = cluster().await;
    let maps: Api<ConfigMap> = Api::namespaced(user.clone(), GOOD);
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    let map = maps.create(&PostParams::default(), &map).await.unwrap();
    sandbox.faults().set(FaultPlan::new(|info, _| {
        if info.verb == "patch" && info.resource == "configmaps" { Fault::internal() } else { Fault::None }
    }));
    let operator = support::operator(sandbox.client());
    let writer = operator.writer();
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator.run(stop.clone()));
    let note = |text: &str| ObjectWrite::metadata(&Identity::of(&map), json!({ "annotations": { "a": text } }));
    writer.submit(note("one"));
    sleep(Duration::from_mins(10)).await;
    assert_eq!(log.about("ConfigMap default/a", Level::WARN).len(), 1);
    sandbox.faults().clear();
    writer.idle().await;
    assert_eq!(log.about("ConfigMap default/a", Level::INFO).len(), 1);
    // A write that fails again does not delay the end of this replica.
    sandbox.faults().set(FaultPlan::new(|info, _| if info.verb == "patch" { Fault::internal() } else { Fault::None }));
    writer.submit(note("two"));
    sleep(Duration::from_secs(30)).await;
    let began = Instant::now();
    stop.cancel();
    running.await.unwrap().unwrap();
    assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
}
