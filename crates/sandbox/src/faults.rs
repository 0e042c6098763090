//! Injected faults between a client and the API.
//!
//! A [`FaultPlan`] picks a [`Fault`] for each request of a client, by the request and its number. Plans are scripted, seeded, or
//! any function. One can be set for the whole sandbox and one per client, so that two replicas meet different faults.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio_util::sync::CancellationToken;

use crate::{request::RequestInfo, status::ApiError};

/// The fault of one request.
///
/// The order is: [`Delay`](Self::Delay); [`Crash`](Self::Crash), [`Drop`](Self::Drop) or [`Fail`](Self::Fail), which end the
/// request without an effect; [`LateEffect`](Self::LateEffect); the effect; [`LateAnswer`](Self::LateAnswer);
/// [`LoseAnswer`](Self::LoseAnswer) or [`FailAfter`](Self::FailAfter) in place of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The request is delayed before it reaches the server. It has no effect if the client gives up in that time.
    Delay(Duration),
    /// The request reaches the server, which serves it after this time, even if the client has given up by then.
    LateEffect(Duration),
    /// The request is served at once and its answer arrives after this time.
    LateAnswer(Duration),
    /// The connection breaks before the request is served.
    Drop,
    /// The request is refused and has no effect.
    Fail(Box<ApiError>),
    /// The request is served, but the connection breaks before its answer arrives.
    LoseAnswer,
    /// The request is served, but answered with this refusal.
    FailAfter(Box<ApiError>),
    /// A watch breaks in the middle of the event after this many whole ones. Other requests are served.
    CutWatch {
        /// Whole events before the half one.
        after: usize,
    },
    /// A watch breaks this long after it was opened. Other requests are served.
    BreakWatch {
        /// How long the watch is served.
        after: Duration,
    },
    /// A watch ends in a 410 `ERROR` event after this many events. Other requests are served.
    ExpireWatch {
        /// Events before the error.
        after: usize,
    },
    /// A watch ends without an error after this many events, as when the server stops. Other requests are served.
    EndWatch {
        /// Events before the end.
        after: usize,
    },
    /// The events of a watch arrive late or more than once. Other requests are served.
    Events(EventPlan),
    /// A read answers the state of some versions ago. Other requests are served.
    Stale {
        /// How many versions ago.
        behind: u64,
    },
    /// The client is cut off until the sandbox ends: this request, all later ones and all its watches fail.
    Crash,
    /// Several faults at one request. Delays add up; of two faults of one kind the later one counts.
    All(Vec<Fault>),
}

/// How one event of a watch is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventFate {
    /// How long it takes, behind the event before it.
    pub delay: Duration,
    /// How often it is repeated. Bookmarks and errors never are.
    pub repeats: usize,
}

type DecideEvent = dyn Fn(u64) -> EventFate + Send + Sync;

/// Decides how each event of a watch is delivered, by its number from 0.
#[derive(Clone)]
pub struct EventPlan(Arc<DecideEvent>);

impl EventPlan {
    /// Any function of the event's number in its watch.
    pub fn new(decide: impl Fn(u64) -> EventFate + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    /// Every event is this late.
    pub fn late(delay: Duration) -> Self {
        Self::new(move |_| EventFate { delay, repeats: 0 })
    }

    /// Every event is delivered `1 + repeats` times.
    pub fn repeated(repeats: usize) -> Self {
        Self::new(move |_| EventFate { delay: Duration::ZERO, repeats })
    }

    pub(crate) fn fate(&self, number: u64) -> EventFate {
        (self.0)(number)
    }
}

impl std::fmt::Debug for EventPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventPlan")
    }
}

/// A plan equals itself and its clones.
impl PartialEq for EventPlan {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The faults of one request, sorted by the moment at which each takes hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    pub(crate) delay: Duration,
    pub(crate) crash: bool,
    pub(crate) drop: bool,
    pub(crate) refuse: Option<Box<ApiError>>,
    pub(crate) late_effect: Option<Duration>,
    pub(crate) behind: u64,
    pub(crate) watch: WatchFate,
    pub(crate) late_answer: Duration,
    pub(crate) lose_answer: bool,
    pub(crate) refuse_after: Option<Box<ApiError>>,
}

/// The faults of one watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchFate {
    pub(crate) cut: Option<usize>,
    pub(crate) expire: Option<usize>,
    pub(crate) end: Option<usize>,
    pub(crate) break_after: Option<Duration>,
    pub(crate) events: Option<EventPlan>,
}

impl From<Fault> for Fate {
    fn from(fault: Fault) -> Self {
        let mut fate = Self::default();
        fate.add(fault);
        fate
    }
}

impl Fate {
    fn add(&mut self, fault: Fault) {
        match fault {
            Fault::None => {}
            Fault::Delay(time) => self.delay += time,
            Fault::LateEffect(time) => self.late_effect = Some(self.late_effect.unwrap_or_default() + time),
            Fault::LateAnswer(time) => self.late_answer += time,
            Fault::Drop => self.drop = true,
            Fault::Fail(error) => self.refuse = Some(error),
            Fault::LoseAnswer => self.lose_answer = true,
            Fault::FailAfter(error) => self.refuse_after = Some(error),
            Fault::CutWatch { after } => self.watch.cut = Some(after),
            Fault::BreakWatch { after } => self.watch.break_after = Some(after),
            Fault::ExpireWatch { after } => self.watch.expire = Some(after),
            Fault::EndWatch { after } => self.watch.end = Some(after),
            Fault::Events(plan) => self.watch.events = Some(plan),
            Fault::Stale { behind } => self.behind = behind,
            Fault::Crash => self.crash = true,
            Fault::All(faults) => faults.into_iter().for_each(|fault| self.add(fault)),
        }
    }
}

impl Fault {
    /// 409, the object has been modified.
    pub fn conflict() -> Self {
        Self::status(
            409,
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 429 with a `Retry-After` of this many seconds.
    pub fn throttled(seconds: u64) -> Self {
        let mut error = ApiError::new(429, "TooManyRequests", "too many requests, please try again later");
        error.status["details"] = serde_json::json!({"retryAfterSeconds": seconds});
        error.retry_after = Some(seconds);
        Self::Fail(Box::new(error))
    }

    /// 410, the version that was asked for is no longer kept.
    pub fn expired() -> Self {
        Self::Fail(Box::new(ApiError::expired("The resourceVersion for the provided list is too old.")))
    }

    /// 500.
    pub fn internal() -> Self {
        Self::status(500, "InternalError", "Internal error occurred: injected fault")
    }

    /// 503.
    pub fn unavailable() -> Self {
        Self::status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    }

    /// Any status code with a reason and a message.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        Self::Fail(Box::new(ApiError::new(code, reason, message)))
    }
}

type Decide = dyn Fn(&RequestInfo, u64) -> Fault + Send + Sync;

/// Picks a fault for each request: `n` counts the plan's requests from 0.
#[derive(Clone)]
pub struct FaultPlan {
    decide: Arc<Decide>,
    seen: Arc<AtomicU64>,
}

impl std::fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultPlan").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::none()
    }
}

impl FaultPlan {
    /// Any function of the request and its number.
    pub fn new(decide: impl Fn(&RequestInfo, u64) -> Fault + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), seen: Arc::default() }
    }

    /// No faults.
    pub fn none() -> Self {
        Self::new(|_, _| Fault::None)
    }

    /// Faults by request number.
    pub fn script(script: impl IntoIterator<Item = (u64, Fault)>) -> Self {
        let script: BTreeMap<u64, Fault> = script.into_iter().collect();
        Self::new(move |_, n| script.get(&n).cloned().unwrap_or_default())
    }

    /// The client is cut off at its request `n` (from 0).
    pub fn crash_after(n: u64) -> Self {
        Self::new(move |_, seen| if seen >= n { Fault::Crash } else { Fault::None })
    }

    /// The first `times` requests that the filter picks get the fault.
    pub fn first(times: u64, pick: impl Fn(&RequestInfo) -> bool + Send + Sync + 'static, fault: Fault) -> Self {
        let left = AtomicU64::new(times);
        Self::new(move |info, _| {
            let take =
                pick(info) && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
            if take { fault.clone() } else { Fault::None }
        })
    }

    /// A mixture of all faults that a client must survive: about `share` (0.0 to 1.0) of requests, the same for the same seed.
    pub fn seeded(seed: u64, share: f64) -> Self {
        let dice = Mutex::new(StdRng::seed_from_u64(seed));
        Self::new(move |info, _| {
            let mut dice = dice.lock().unwrap_or_else(PoisonError::into_inner);
            if !dice.random_bool(share.clamp(0.0, 1.0)) {
                return Fault::None;
            }
            let after = dice.random_range(0..5);
            match (info.verb.as_str(), dice.random_range(0..6_u8)) {
                ("watch", 0 | 1) => Fault::CutWatch { after },
                ("watch", 2) => Fault::ExpireWatch { after },
                ("watch", 3) => Fault::EndWatch { after },
                ("list" | "get", 0) => Fault::Stale { behind: dice.random_range(1..6) },
                (_, 0) if info.is_write() => Fault::LoseAnswer,
                (_, 1) if info.is_write() && info.verb != "create" => Fault::conflict(),
                (_, 2) => Fault::throttled(1),
                (_, 3) => Fault::internal(),
                (_, 4) => Fault::Delay(Duration::from_millis(dice.random_range(1..50))),
                _ => Fault::Drop,
            }
        })
    }

    fn next(&self, info: &RequestInfo) -> Fault {
        (self.decide)(info, self.seen.fetch_add(1, Ordering::Relaxed))
    }
}

/// The faults of the whole sandbox, for every client.
#[derive(Debug, Default)]
pub struct Faults {
    plan: Mutex<FaultPlan>,
}

impl Faults {
    /// Replaces the plan.
    pub fn set(&self, plan: FaultPlan) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.set(FaultPlan::none());
    }

    pub(crate) fn next(&self, info: &RequestInfo) -> Fault {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone();
        plan.next(info)
    }
}

/// One client's connection to the sandbox.
#[derive(Clone, Debug, Default)]
pub struct Session {
    plan: FaultPlan,
    crashed: CancellationToken,
}

impl Session {
    /// A session under a plan.
    pub fn new(plan: FaultPlan) -> Self {
        Self { plan, crashed: CancellationToken::new() }
    }

    /// Cuts the client off now: its watches break and its requests fail.
    pub fn crash(&self) {
        self.crashed.cancel();
    }

    /// Whether the client has been cut off.
    pub fn is_crashed(&self) -> bool {
        self.crashed.is_cancelled()
    }

    pub(crate) fn token(&self) -> CancellationToken {
        self.crashed.clone()
    }

    /// Waits; `None` when the client is cut off meanwhile.
    pub(crate) async fn wait(&self, time: Duration) -> Option<()> {
        if !time.is_zero() {
            let _ = tokio::time::timeout(time, self.crashed.cancelled()).await;
        }
        (!self.is_crashed()).then_some(())
    }

    /// The fault of the next request: the client's own, else the sandbox's.
    pub(crate) fn next(&self, faults: &Faults, info: &RequestInfo) -> Fault {
        if self.is_crashed() {
            return Fault::Crash;
        }
        match (self.plan.next(info), faults.next(info)) {
            (Fault::None, common) => common,
            (own, _) => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let info = RequestInfo::parse("GET", "/api/v1/configmaps?watch=1");
        let run = |seed| {
            let plan = FaultPlan::seeded(seed, 0.5);
            (0..50).map(|_| plan.next(&info)).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }

    #[test]
    fn first_counts_only_what_it_picks() {
        let plan = FaultPlan::first(1, RequestInfo::is_write, Fault::Drop);
        let read = RequestInfo::parse("GET", "/api/v1/pods");
        let write = RequestInfo::parse("POST", "/api/v1/namespaces/a/pods");
        assert_eq!([&read, &write, &write].map(|info| plan.next(info)), [Fault::None, Fault::Drop, Fault::None]);
    }

    #[test]
    fn faults_of_one_request_add_up() {
        let second = Duration::from_secs(1);
        let fate = Fate::from(Fault::All(vec![
            Fault::Delay(second),
            Fault::All(vec![Fault::Delay(second), Fault::LateEffect(second)]),
            Fault::LateAnswer(second),
            Fault::LoseAnswer,
            Fault::BreakWatch { after: second },
        ]));
        assert_eq!((fate.delay, fate.late_effect, fate.late_answer), (2 * second, Some(second), second));
        assert!(fate.lose_answer && !fate.drop && !fate.crash);
        assert_eq!(fate.watch.break_after, Some(second));
    }
}
