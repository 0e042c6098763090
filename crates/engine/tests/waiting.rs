//! Which kinds a system waits for before it runs: its own, and of those only what it needs or what is installed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

mod support;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use signpost_engine::{
    DriveOptions, Identity, Index, Job, ObjectId, Operator, OperatorOptions, Outcome, Project, Queue, Report, System,
    Touch, Watch,
    health::{Check, Health},
};
use signpost_inventory::Entry;
use signpost_sandbox::{DenyRule, Fault, FaultPlan};
use support::{
    eventually,
    mirror::{Mirror, MirrorSpec},
    sandbox,
};
use tokio::time::sleep;
use tokio_util::sync::DropGuard;

/// An index that keeps nothing.
struct Nothing;

impl<K: signpost_engine::hub::Watched> Index<K> for Nothing {
    fn applied(&self, _: &K) {}
    fn deleted(&self, _: &ObjectId) {}
    fn unreadable(&self, _: &Identity, _: &str) {}
    fn listed(&self) {}
}

/// Refuses the lists and watches that `which` selects.
fn refused(
    code: u16,
    reason: &'static str,
    which: impl Fn(&signpost_sandbox::RequestInfo) -> bool + Send + Sync + 'static,
) -> FaultPlan {
    FaultPlan::new(move |info, _| match info.verb.as_str() {
        "watch" | "list" if which(info) => Fault::status(code, reason, "refused by the test"),
        _ => Fault::None,
    })
}

/// A system that needs one kind and only notes that it runs.
struct Runs(Arc<Mutex<Vec<&'static str>>>, &'static str);

macro_rules! runs {
    ($system:ident, $name:literal) => {
        struct $system(Runs);
        impl System for $system {
            const NAME: &'static str = $name;
            type Key = String;
            type Object = String;
            type Memory = ();
            type Observed = ();
            type Plan = ();
            type Applied = ();
            type Status = ();
            type Measured = ();
            async fn observe(&self, _: &Job<String, String>, (): ()) {
                self.0.0.lock().unwrap().push(self.0.1);
            }
            fn plan((): (), _: jiff::Timestamp) {}
            async fn apply(&self, (): ()) {}
            fn report((): (), _: jiff::Timestamp) -> Report<Self> {
                Report::new(Outcome::Done)
            }
        }
        impl Project<String> for $system {
            fn project(&self, _: &String, _: jiff::Timestamp) -> Vec<Entry> {
                Vec::new()
            }
        }
    };
}
runs!(One, "one");
runs!(Other, "other");

/// A system that needs ConfigMaps and reads mirrors where it can, and another one beside it that needs ConfigMaps alone.
struct Beside {
    ran: Arc<Mutex<Vec<&'static str>>>,
    health: Health,
    _running: DropGuard,
}

impl Beside {
    fn start(client: Client, mirrors: Watch) -> Self {
        // Two objects in a page, so that a list has several.
        let options = OperatorOptions { clock: support::clock(), page_size: 2, ..OperatorOptions::default() };
        let mut operator = Operator::new(client, options);
        let ran: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let calls = Arc::new(Nothing);
        operator.watch::<ConfigMap>("one", Watch::required(), calls.clone());
        operator.watch::<Mirror>("one", mirrors, calls.clone());
        operator.watch::<ConfigMap>("other", Watch::required(), calls);
        let queues = [Queue::new(), Queue::new()];
        operator.drive(One(Runs(ran.clone(), "one")), queues[0].clone(), DriveOptions::default());
        operator.drive(Other(Runs(ran.clone(), "other")), queues[1].clone(), DriveOptions::default());
        for queue in &queues {
            queue.touch("key".to_owned(), Touch::All);
        }
        let health = operator.health();
        Self { ran, health, _running: support::run(operator) }
    }

    fn ran(&self) -> Vec<&'static str> {
        let mut ran = self.ran.lock().unwrap().clone();
        ran.sort_unstable();
        ran
    }

    async fn until_both_ran(&self) {
        eventually("both run", Duration::from_mins(1), async || (self.ran() == ["one", "other"]).then_some(())).await;
    }

    fn check(&self) -> Check {
        self.health.checks()["kind mirrors.test.signpost.dev"].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_of_one_system_does_not_delay_another() {
    let sandbox = sandbox(1);
    let both = Beside::start(sandbox.client(), Watch::required());
    sleep(Duration::from_secs(30)).await;
    assert_eq!(both.ran(), ["other"]);
    let Check::Failing { message, .. } = both.check() else { panic!("{:?}", both.check()) };
    assert!(message.starts_with("one: Mirror: the CRD"), "system and kind are named: {message}");
    support::install_mirrors(&sandbox.client()).await;
    both.until_both_ran().await;
}

#[tokio::test(start_paused = true)]
async fn an_installed_optional_kind_is_complete_before_its_system_runs() {
    let sandbox = sandbox(1);
    support::install_mirrors(&sandbox.client()).await;
    let mirrors: Api<Mirror> = Api::namespaced(sandbox.client(), "default");
    for name in ["a", "b", "c"] {
        let mirror = Mirror::new(name, MirrorSpec { text: name.to_owned() });
        mirrors.create(&PostParams::default(), &mirror).await.unwrap();
    }
    // A page of mirrors takes ten seconds.
    let slow = FaultPlan::new(|info, _| {
        if info.resource == "mirrors" && info.verb == "list" {
            Fault::Delay(Duration::from_secs(10))
        } else {
            Fault::None
        }
    });
    let both = Beside::start(sandbox.client_with(slow), Watch::optional());
    sleep(Duration::from_secs(15)).await;
    assert_eq!(both.ran(), ["other"], "the second page of the first list of mirrors is in progress");
    let Check::Failing { message, .. } = both.check() else { panic!("{:?}", both.check()) };
    assert_eq!(message, "one: Mirror: the first list is not complete yet");
    both.until_both_ran().await;
    assert_eq!((both.check(), both.health.is_ready()), (Check::Ok, true));
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_may_not_be_listed_counts_as_missing() {
    let sandbox = sandbox(1);
    support::install_mirrors(&sandbox.client()).await;
    sandbox.deny(vec![DenyRule::new("list", "mirrors")]);
    let both = Beside::start(sandbox.client(), Watch::optional());
    both.until_both_ran().await;
    let Check::Degraded { message, .. } = both.check() else { panic!("{:?}", both.check()) };
    assert!(message.contains("no permission to list mirrors"), "{message}");
    assert!(both.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_may_be_listed_and_not_watched_is_waited_for() {
    let sandbox = sandbox(1);
    support::install_mirrors(&sandbox.client()).await;
    sandbox.deny(vec![DenyRule::new("watch", "mirrors")]);
    let both = Beside::start(sandbox.client(), Watch::optional());
    sleep(Duration::from_mins(1)).await;
    assert_eq!(both.ran(), ["other"], "a view that never changes must not be acted on");
    let Check::Failing { message, .. } = both.check() else { panic!("{:?}", both.check()) };
    assert!(message.contains("no permission to watch mirrors"), "{message}");
    sandbox.deny(Vec::new());
    both.until_both_ran().await;
}

#[tokio::test(start_paused = true)]
async fn a_denied_list_or_a_broken_watch_of_one_system_does_not_delay_another() {
    for broken in ["list", "watch"] {
        let sandbox = sandbox(1);
        support::install_mirrors(&sandbox.client()).await;
        let (code, reason) = if broken == "list" { (403, "Forbidden") } else { (503, "ServiceUnavailable") };
        let faults = refused(code, reason, move |info| info.resource == "mirrors" && info.verb == broken);
        let both = Beside::start(sandbox.client_with(faults), Watch::required());
        sleep(Duration::from_mins(1)).await;
        assert_eq!(both.ran(), ["other"], "{broken}");
        assert!(matches!(both.check(), Check::Failing { .. }), "{broken}: {:?}", both.check());
    }
}
