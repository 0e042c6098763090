//! Leader election on the sandbox: hand-over, take-over, and clocks that do not agree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

mod support;

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client, client::Body};
use signpost_engine::{
    clock::ManualClock,
    lease::{Candidate, Ended, Fence, LeaseOptions, Role},
};
use signpost_sandbox::{DenyRule, Fault, FaultPlan, Sandbox, Session};
use support::{clock, eventually, sandbox};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, advance, sleep},
};
use tokio_util::sync::CancellationToken;

struct Runner {
    role: watch::Receiver<Role>,
    fence: Fence,
    stop: CancellationToken,
    task: JoinHandle<Ended>,
}

impl Runner {
    fn leads(&self) -> bool {
        *self.role.borrow() == Role::Leader
    }

    async fn leading(&self) -> Duration {
        let began = Instant::now();
        let mut role = self.role.clone();
        tokio::time::timeout(Duration::from_mins(5), role.wait_for(|role| *role == Role::Leader))
            .await
            .expect("leads within five minutes")
            .unwrap();
        began.elapsed()
    }
}

fn candidate(client: Client, name: &str, clock: Arc<ManualClock>) -> Runner {
    let seed = name.bytes().map(u64::from).sum();
    let candidate = Candidate::new(client, LeaseOptions::new("default", "signpost"), name, clock, seed);
    let (role, fence, stop) = (candidate.role(), candidate.fence(), CancellationToken::new());
    let task = tokio::spawn(candidate.run(stop.clone()));
    Runner { role, fence, stop, task }
}

async fn spec(sandbox: &Sandbox) -> LeaseSpec {
    Api::<Lease>::namespaced(sandbox.client(), "default").get("signpost").await.unwrap().spec.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_one_leads_and_the_second_waits() {
    let sandbox = sandbox(1);
    let first = candidate(sandbox.client(), "first", clock());
    assert!(first.leading().await < Duration::from_secs(1));
    let second = candidate(sandbox.client(), "second", clock());
    sleep(Duration::from_mins(5)).await;
    assert!(first.leads() && first.fence.is_open());
    assert!(!second.leads() && !second.fence.is_open());
    let spec = spec(&sandbox).await;
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("first"), Some(0)));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    let acquired = spec.acquire_time.unwrap().0;
    let renewed = spec.renew_time.unwrap().0;
    assert_eq!(acquired, support::start(), "renewals do not move the time it was acquired");
    assert!(renewed.duration_since(acquired) >= SignedDuration::from_mins(4));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_over_within_two_seconds() {
    for round in 0..20 {
        let sandbox = sandbox(round);
        let first = candidate(sandbox.client(), &format!("first-{round}"), clock());
        first.leading().await;
        let second = candidate(sandbox.client(), &format!("second-{round}"), clock());
        sleep(Duration::from_millis(10_000 + 137 * round)).await;
        first.stop.cancel();
        assert_eq!(first.task.await.unwrap(), Ended::Stopped);
        assert!(!first.fence.is_open());
        let took = second.leading().await;
        assert!(took < Duration::from_secs(2), "round {round}: {took:?}");
        let spec = spec(&sandbox).await;
        assert_eq!(spec.lease_transitions, Some(1));
        assert_eq!(spec.holder_identity, Some(format!("second-{round}")));
    }
}

/// A client whose changes of the lease are served at once and, while `late` is set, answered `LATE` after that.
fn answered_late(client: Client, late: &Arc<AtomicBool>) -> Client {
    let late = late.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, late) = (client.clone(), late.clone());
        async move {
            let read = request.method() == http::Method::GET;
            let answer = client.send(request).await;
            if !read && late.load(Ordering::Relaxed) {
                sleep(LATE).await;
            }
            answer
        }
    });
    Client::new(service, "default")
}

const LATE: Duration = Duration::from_millis(700);

/// Waits until the lease was changed this often.
async fn changed(sandbox: &Sandbox, times: usize) {
    let changes = || sandbox.log().iter().filter(|entry| entry.is_write()).count();
    while changes() < times {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_during_a_renewal_hands_over_within_two_seconds() {
    for lost in [false, true] {
        let sandbox = sandbox(1);
        let late = Arc::new(AtomicBool::new(false));
        let first = candidate(answered_late(sandbox.client(), &late), "first", clock());
        first.leading().await;
        let second = candidate(sandbox.client(), "second", clock());
        late.store(true, Ordering::Relaxed);
        changed(&sandbox, 3).await;
        // The renewal has happened, and its answer is lost.
        late.store(lost, Ordering::Relaxed);
        first.stop.cancel();
        let began = Instant::now();
        second.leading().await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(first.task.await.unwrap(), Ended::Stopped);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_while_stopping_is_released() {
    let sandbox = sandbox(1);
    let late = Arc::new(AtomicBool::new(true));
    let first = candidate(answered_late(sandbox.client(), &late), "first", clock());
    changed(&sandbox, 1).await;
    first.stop.cancel();
    assert_eq!(first.task.await.unwrap(), Ended::Stopped);
    assert_eq!(*first.role.borrow(), Role::Follower);
    assert!(!first.fence.is_open());
    assert_eq!(spec(&sandbox).await.holder_identity.as_deref(), Some(""));
    let second = candidate(sandbox.client(), "second", clock());
    assert!(second.leading().await < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_two_seconds_at_most_to_release_the_lease() {
    let sandbox = sandbox(1);
    let cut = Arc::new(AtomicBool::new(false));
    let flag = cut.clone();
    let plan =
        FaultPlan::new(
            move |_, _| {
                if flag.load(Ordering::Relaxed) { Fault::Delay(Duration::from_hours(1)) } else { Fault::None }
            },
        );
    let leader = candidate(sandbox.client_with(plan.clone()), "leader", clock());
    leader.leading().await;
    cut.store(true, Ordering::Relaxed);
    let follower = candidate(sandbox.client_with(plan), "follower", clock());
    sleep(Duration::from_secs(1)).await;
    for runner in [leader, follower] {
        let began = Instant::now();
        runner.stop.cancel();
        assert_eq!(runner.task.await.unwrap(), Ended::Stopped);
        assert!(began.elapsed() < Duration::from_millis(2_100), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_replaced_after_its_lease_expired() {
    let sandbox = sandbox(1);
    let session = Session::default();
    let first = candidate(sandbox.session_client(&session), "first", clock());
    first.leading().await;
    let second = candidate(sandbox.client(), "second", clock());
    sleep(Duration::from_secs(30)).await;
    session.crash();
    first.task.abort();
    let took = second.leading().await;
    assert!(took >= Duration::from_secs(13) && took <= Duration::from_secs(18), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn clocks_an_hour_apart_do_not_change_when_the_lease_is_taken() {
    for hours in [-1, 1] {
        let sandbox = sandbox(1);
        let first = candidate(sandbox.client(), "first", clock());
        first.leading().await;
        let other = clock();
        other.skew_by(SignedDuration::from_hours(hours));
        let second = candidate(sandbox.client(), "second", other);
        sleep(Duration::from_mins(10)).await;
        assert!(first.leads() && !second.leads(), "{hours} h");
        first.task.abort();
        let took = second.leading().await;
        assert!(took >= Duration::from_secs(13) && took <= Duration::from_secs(18), "{hours} h: {took:?}");
        // And the clock may jump under a leader.
        let third = clock();
        let runner = candidate(sandbox.client(), "third", third.clone());
        third.skew_by(SignedDuration::from_hours(-2 * hours));
        sleep(Duration::from_mins(1)).await;
        assert!(second.leads() && !runner.leads(), "{hours} h");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_stops_before_another_can_take_over() {
    let sandbox = sandbox(1);
    let cut = Arc::new(Mutex::new(false));
    let flag = cut.clone();
    // Requests hang without an answer, which is worse than an error.
    let plan = FaultPlan::new(
        move |_, _| if *flag.lock().unwrap() { Fault::Delay(Duration::from_mins(10)) } else { Fault::None },
    );
    let first = candidate(sandbox.client_with(plan), "first", clock());
    first.leading().await;
    let second = candidate(sandbox.client(), "second", clock());
    sleep(Duration::from_mins(1)).await;
    *cut.lock().unwrap() = true;
    let mut role = first.role.clone();
    let stopped = async {
        role.wait_for(|role| *role == Role::Follower).await.unwrap();
        Instant::now()
    };
    let taken = async {
        second.leading().await;
        Instant::now()
    };
    let (stopped, taken) = tokio::join!(stopped, taken);
    assert!(taken.duration_since(stopped) >= Duration::from_secs(3), "{:?}", taken.duration_since(stopped));
    assert_eq!(first.task.await.unwrap(), Ended::Lost);
}

#[tokio::test(start_paused = true)]
async fn the_fence_is_closed_after_the_process_was_suspended() {
    let sandbox = sandbox(1);
    let first = candidate(sandbox.client(), "first", clock());
    first.leading().await;
    assert!(first.fence.is_open());
    // Time passes without any task of the process being run, as in a paused container.
    advance(Duration::from_secs(11)).await;
    assert!(!first.fence.is_open(), "nothing may be written on the strength of a lease of eleven seconds ago");
}

#[tokio::test(start_paused = true)]
async fn work_is_not_polled_after_the_lease_and_ends_when_it_is_lost() {
    let sandbox = sandbox(1);
    let first = candidate(sandbox.client(), "first", clock());
    first.leading().await;
    let polls = Mutex::new(0);
    let endless = || {
        poll_fn(|_| {
            *polls.lock().unwrap() += 1;
            Poll::<()>::Pending
        })
    };
    let mut asleep = std::pin::pin!(first.fence.guard(endless()));
    assert!(futures::poll!(asleep.as_mut()).is_pending());
    advance(Duration::from_secs(11)).await;
    assert_eq!(futures::poll!(asleep.as_mut()), Poll::Ready(None));
    assert_eq!(*polls.lock().unwrap(), 1, "work was run after the lease had run out");
    // The work continues with every renewal; the end of the lease wakes it up.
    let second = candidate(sandbox.client(), "second", clock());
    second.leading().await;
    let stop = second.stop.clone();
    let ended = tokio::spawn(async move { second.fence.guard(std::future::pending::<()>()).await });
    sleep(Duration::from_mins(2)).await;
    assert!(!ended.is_finished());
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(11), ended).await.expect("ends with the lease").unwrap();
    assert_eq!(ended, None);
    assert_eq!(Fence::open().guard(async { 7 }).await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn short_api_server_errors_do_not_lose_the_lease() {
    let sandbox = sandbox(1);
    let calls = Mutex::new(0_u64);
    let plan = FaultPlan::new(move |_, _| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        match *calls % 7 {
            1 if *calls > 1 => Fault::internal(),
            2 if *calls > 2 => Fault::LoseAnswer,
            3 if *calls > 3 => Fault::conflict(),
            _ => Fault::None,
        }
    });
    let first = candidate(sandbox.client_with(plan), "first", clock());
    first.leading().await;
    let second = candidate(sandbox.client(), "second", clock());
    sleep(Duration::from_mins(20)).await;
    assert!(first.leads() && !second.leads());
    assert_eq!(spec(&sandbox).await.lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_follower_without_permission_tries_every_few_seconds() {
    let sandbox = sandbox(1);
    sandbox.deny(vec![DenyRule::new("get", "leases")]);
    let first = candidate(sandbox.client(), "first", clock());
    sleep(Duration::from_hours(1)).await;
    let tries = sandbox.log().len();
    assert!((360..=721).contains(&tries), "{tries} in an hour");
    sandbox.deny(Vec::new());
    let took = first.leading().await;
    assert!(took <= Duration::from_secs(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn of_many_candidates_exactly_one_leads() {
    let sandbox = sandbox(1);
    let runners: Vec<_> = (0..10).map(|n| candidate(sandbox.client(), &format!("r{n}"), clock())).collect();
    for _ in 0..9 {
        eventually("a leader", Duration::from_mins(1), || async { runners.iter().any(Runner::leads).then_some(()) })
            .await;
        sleep(Duration::from_secs(20)).await;
        let leaders: Vec<_> = runners.iter().filter(|runner| runner.leads()).collect();
        assert_eq!(leaders.len(), 1);
        leaders[0].stop.cancel();
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_created_again() {
    let sandbox = sandbox(1);
    let first = candidate(sandbox.client(), "first", clock());
    first.leading().await;
    Api::<Lease>::namespaced(sandbox.client(), "default")
        .delete("signpost", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(first.leads());
    assert_eq!(spec(&sandbox).await.holder_identity.as_deref(), Some("first"));
}
