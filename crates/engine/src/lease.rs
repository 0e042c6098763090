//! Who writes: leader election on a coordination.k8s.io Lease, in client-go's protocol.
//!
//! ```text
//!  Follower ──(no holder, or a holder unchanged for its duration by our own stopwatch)──► Leader ──► renew every 2 s
//!      ▲                                                                                    │
//!      └──────────── no renewal for 10 s (others wait 15 s), or another holder ◄────────────┘
//! ```
//!
//! Expiry is judged by how long a record has been seen unchanged, never by the times written in it, so clocks may differ by hours. Every
//! change carries the version it is based on; of two that try at once, one is refused. A leader that is asked to stop gives the lease
//! back, and the next one takes it at its next look, about a second later.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use rand::{SeedableRng, rngs::StdRng};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    health::{Check, Health},
    queue::jittered,
    write::FIELD_MANAGER,
};

/// Longest time for giving the lease back: a process that is stopping has no time to argue, and a lease runs out by itself.
const RELEASE: Duration = Duration::from_secs(2);

/// What this replica may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Watch and serve reads.
    Follower,
    /// Write as well.
    Leader,
}

/// Where the lease is and how it is kept.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Name of the Lease.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// How long others wait after the last renewal they saw.
    pub duration: Duration,
    /// How long the holder tries to renew before it stops. Shorter than `duration`.
    pub renew_deadline: Duration,
    /// Time between renewals. Followers look twice as often, so that a lease given back is taken within this time.
    pub retry: Duration,
}

impl LeaseOptions {
    /// The usual times: 15, 10 and 2 seconds.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Until when this replica may write. Checked right before each write, so that a process that was paused and wakes up after its lease has
/// run out does nothing with it.
#[derive(Clone, Debug)]
pub struct Fence {
    until: Arc<Mutex<Until>>,
    /// How long the machine has been suspended since it was booted: [`Instant`] does not count that time, and a lease does.
    suspended: fn() -> Duration,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Always,
    Never,
    /// Until that moment, if the machine has been suspended no longer than that by then.
    Moment(Instant, Duration),
}

/// How long this machine has been suspended since it was booted.
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    // The clock that stops is read first, so that a moment between the two never looks like a suspension that ended.
    let running = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(running)
}

/// The two clocks are not read in the same instant; less than this is not a suspension.
const CLOCK_NOISE: Duration = Duration::from_millis(100);

impl Fence {
    /// A fence that is always open: for a process that runs without a lease.
    pub fn open() -> Self {
        Self { until: Arc::new(Mutex::new(Until::Always)), suspended }
    }

    fn closed() -> Self {
        Self { until: Arc::new(Mutex::new(Until::Never)), suspended }
    }

    /// True while this replica may write.
    pub fn is_open(&self) -> bool {
        match self.until() {
            Until::Always => true,
            Until::Never => false,
            Until::Moment(until, before) => Instant::now() + self.asleep_since(before) < until,
        }
    }

    /// How long the machine was suspended since then.
    fn asleep_since(&self, before: Duration) -> Duration {
        let asleep = (self.suspended)().saturating_sub(before);
        if asleep < CLOCK_NOISE { Duration::ZERO } else { asleep }
    }

    fn open_until(&self, moment: Instant) {
        self.set(Until::Moment(moment, (self.suspended)()));
    }

    /// Does `work` while this replica may write. `None` when that ends first: the work is dropped where it is, without being run a
    /// moment longer, also when the whole process was asleep in between.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut fallen = pin!(self.fallen());
        poll_fn(|context| {
            // Looked at first and by the clock: after a long sleep the timers have not been told yet.
            if !self.is_open() {
                return Poll::Ready(None);
            }
            match work.as_mut().poll(context) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending => fallen.as_mut().poll(context).map(|()| None),
            }
        })
        .await
    }

    /// Ends when this replica may no longer write; a renewal puts that off.
    async fn fallen(&self) {
        loop {
            match self.until() {
                Until::Always => std::future::pending().await,
                Until::Moment(until, _) if self.is_open() => tokio::time::sleep_until(until).await,
                Until::Never | Until::Moment(..) => return,
            }
        }
    }

    fn until(&self) -> Until {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, until: Until) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// How a candidacy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Asked to stop; the lease was given back if it was held.
    Stopped,
    /// Held and lost.
    Lost,
}

/// One candidate for a lease.
pub struct Candidate {
    api: Api<Lease>,
    options: LeaseOptions,
    identity: String,
    clock: Arc<dyn Clock>,
    role: watch::Sender<Role>,
    fence: Fence,
    health: Option<Health>,
    rng: StdRng,
    observed: Option<Observed>,
}

/// The record as last seen, and since when it has looked like that by our own stopwatch.
struct Observed {
    lease: Lease,
    since: Instant,
}

impl Candidate {
    /// A follower that wants to lead.
    pub fn new(client: Client, options: LeaseOptions, identity: &str, clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self {
            api: Api::namespaced(client, &options.namespace),
            options,
            identity: identity.to_owned(),
            clock,
            role: watch::Sender::new(Role::Follower),
            fence: Fence::closed(),
            health: None,
            rng: StdRng::seed_from_u64(seed),
            observed: None,
        }
    }

    /// Says on `/readyz` what keeps this candidate from leading: such a replica would follow for ever without a word.
    #[must_use]
    pub fn with_health(self, health: Health) -> Self {
        Self { health: Some(health), ..self }
    }

    /// The role of this candidate, as it changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// Until when this candidate may write.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Tries to lead, then keeps leading, until asked to stop or until the lease is lost.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        // A try under way may make us the holder although we are asked to stop: it is waited for, so that the lease can be given back.
        let given_up = async {
            stop.cancelled().await;
            tokio::time::sleep(RELEASE).await;
        };
        tokio::select! {
            acquired = self.acquire(&stop) => if !acquired { return Ended::Stopped },
            () = given_up => return Ended::Stopped,
        }
        let ended = if stop.is_cancelled() {
            Ended::Stopped
        } else {
            tracing::info!(identity = self.identity, lease = self.options.name, "leading");
            self.role.send_replace(Role::Leader);
            tokio::select! {
                biased;
                () = stop.cancelled() => Ended::Stopped,
                () = self.keep() => Ended::Lost,
            }
        };
        self.fence.set(Until::Never);
        self.role.send_replace(Role::Follower);
        match ended {
            Ended::Stopped => self.release().await,
            Ended::Lost => tracing::error!(identity = self.identity, lease = self.options.name, "lease lost"),
        }
        ended
    }

    /// Tries until it is ours, or until asked to stop between two tries: false.
    async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        loop {
            if self.attempt().await {
                return true;
            }
            // Jitter between half and all of it: two followers do not collide for ever.
            let pause = jittered(self.options.retry / 2, &mut self.rng);
            if timeout(pause, stop.cancelled()).await.is_ok() {
                return false;
            }
        }
    }

    /// Renews until that has not worked for too long.
    async fn keep(&mut self) {
        loop {
            let Until::Moment(deadline, _) = self.fence.until() else { return };
            let renewed = async {
                tokio::time::sleep(self.options.retry).await;
                while !self.attempt().await {
                    if self.held_by_another() {
                        return false;
                    }
                    let pause = jittered(self.options.retry / 4, &mut self.rng);
                    tokio::time::sleep(pause).await;
                }
                true
            };
            // Others may take over `duration` after they saw the last renewal; this ends earlier, whatever a request is doing.
            match timeout_at(deadline, renewed).await {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// One try to take or renew the lease. True when it is ours from now on.
    async fn attempt(&mut self) -> bool {
        let sent = Instant::now();
        let limit = self.options.renew_deadline / 2;
        let held = match timeout(limit, self.take_or_renew()).await {
            Ok(Ok(held)) => {
                self.check(Check::Ok);
                held
            }
            Ok(Err(error)) => {
                self.failed(&error);
                tracing::warn!(lease = self.options.name, error = %error, "lease could not be read or written");
                false
            }
            Err(_) => {
                if self.sees_no_leader() {
                    self.check(Check::failing(format!("no answer about the lease within {limit:?}")));
                }
                tracing::warn!(lease = self.options.name, "no answer about the lease within {limit:?}");
                false
            }
        };
        if held {
            self.fence.open_until(sent + self.options.renew_deadline);
        }
        held
    }

    /// Says on `/readyz` what keeps this replica from leading. Where another one leads, only a right that is missing: it will be missed
    /// when that one goes, and nothing else is sure to last until then.
    fn failed(&self, error: &kube::Error) {
        let namespace = &self.options.namespace;
        let check = match error {
            kube::Error::Api(status) if status.code == 403 => {
                let fix =
                    format!("allow get, create and update of leases.coordination.k8s.io in the namespace {namespace}");
                Check::failing_with_fix(status.message.clone(), fix)
            }
            _ if !self.sees_no_leader() => return,
            kube::Error::Api(status) if status.code == 404 => {
                let fix = format!("create the namespace {namespace}, or name the one that this replica runs in");
                Check::failing_with_fix(status.message.clone(), fix)
            }
            kube::Error::Api(status) => Check::failing(format!("{} {}", status.code, status.message)),
            other => Check::failing(other.to_string()),
        };
        self.check(check);
    }

    async fn take_or_renew(&mut self) -> kube::Result<bool> {
        // The common case: nobody else has touched it since the last renewal, so one request is enough.
        if let Some(observed) = &self.observed
            && self.is_ours(&observed.lease)
        {
            let next = self.renewed(&observed.lease);
            match self.replace(next).await {
                Ok(()) => return Ok(true),
                // Changed meanwhile, deleted, or a renewal whose answer was lost: look.
                Err(kube::Error::Api(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(lease) = self.api.get_opt(&self.options.name).await? else {
            return self.create().await;
        };
        self.observe(lease);
        let Some(observed) = &self.observed else { return Ok(false) };
        if self.is_free(observed) {
            let next = self.renewed(&observed.lease);
            return match self.replace(next).await {
                Ok(()) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
                Err(error) => Err(error),
            };
        }
        Ok(false)
    }

    async fn create(&mut self) -> kube::Result<bool> {
        let now = MicroTime(self.now());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.options.name.clone()),
                namespace: Some(self.options.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(seconds(self.options.duration)),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        match self.api.create(&params(), &lease).await {
            Ok(lease) => {
                self.observe(lease);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn replace(&mut self, lease: Lease) -> kube::Result<()> {
        let lease = self.api.replace(&self.options.name, &params(), &lease).await?;
        self.observe(lease);
        Ok(())
    }

    /// Gives the lease back: no holder, so that the next one need not wait.
    async fn release(&mut self) {
        let deadline = Instant::now() + RELEASE;
        let seen = self.observed.take().map(|observed| observed.lease);
        let mut given = timeout(RELEASE / 2, self.give_back(seen)).await;
        if !matches!(given, Ok(Ok(_))) {
            // The renewal that the stop cut off has changed it, or the answer is lost: what is there decides.
            given = timeout_at(deadline, self.give_back(None)).await;
        }
        match given {
            Ok(Ok(true)) => tracing::info!(lease = self.options.name, "lease given back"),
            Ok(Ok(false)) => tracing::info!(lease = self.options.name, "lease is not ours any more"),
            Ok(Err(error)) => tracing::warn!(lease = self.options.name, error = %error, "lease not given back"),
            Err(_) => tracing::warn!(lease = self.options.name, "lease not given back in time"),
        }
    }

    /// One try to give it back, as it was last seen or else as it is. False when it is not ours.
    async fn give_back(&self, seen: Option<Lease>) -> kube::Result<bool> {
        let lease = match seen {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.options.name).await?,
        };
        let Some(mut lease) = lease.filter(|lease| self.is_ours(lease)) else { return Ok(false) };
        let now = MicroTime(self.now());
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(now.clone());
        spec.acquire_time = Some(now);
        self.api.replace(&self.options.name, &params(), &lease).await?;
        Ok(true)
    }

    /// The record with us as its holder from now on.
    fn renewed(&self, lease: &Lease) -> Lease {
        let mut next = lease.clone();
        let ours = self.is_ours(lease);
        let now = MicroTime(self.now());
        let spec = next.spec.get_or_insert_default();
        if !ours {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = Some(seconds(self.options.duration));
        spec.renew_time = Some(now);
        next
    }

    fn observe(&mut self, lease: Lease) {
        let same = self.observed.as_ref().is_some_and(|seen| {
            seen.lease.spec == lease.spec && seen.lease.metadata.resource_version == lease.metadata.resource_version
        });
        if !same {
            self.observed = Some(Observed { lease, since: Instant::now() });
        }
    }

    fn is_free(&self, observed: &Observed) -> bool {
        let holder = holder(&observed.lease);
        if holder.is_empty() || holder == self.identity {
            return true;
        }
        let spec = observed.lease.spec.as_ref();
        let promised =
            spec.and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
        let duration = promised.map_or(self.options.duration, Duration::from_secs);
        observed.since.elapsed() >= duration
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == self.identity
    }

    fn held_by_another(&self) -> bool {
        self.observed
            .as_ref()
            .is_some_and(|observed| !holder(&observed.lease).is_empty() && !self.is_ours(&observed.lease))
    }

    /// True when nobody holds the lease, as far as can be seen from here.
    fn sees_no_leader(&self) -> bool {
        self.observed.as_ref().is_none_or(|observed| !self.is_ours(&observed.lease) && self.is_free(observed))
    }

    fn check(&self, check: Check) {
        if let Some(health) = &self.health {
            health.set(format!("lease {}/{}", self.options.namespace, self.options.name), check);
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    static SUSPENDED: AtomicU64 = AtomicU64::new(7);

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_suspended_wakes_up_with_a_closed_fence() {
        let fence = Fence { suspended: || Duration::from_secs(SUSPENDED.load(Ordering::SeqCst)), ..Fence::closed() };
        fence.open_until(Instant::now() + Duration::from_secs(10));
        assert!(fence.is_open());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(fence.is_open());
        SUSPENDED.fetch_add(6, Ordering::SeqCst);
        assert!(!fence.is_open(), "5 s awake and 6 s asleep are more than 10 s");
        assert_eq!(fence.guard(async { 1 }).await, None);
        fence.open_until(Instant::now() + Duration::from_secs(10));
        assert!(fence.is_open(), "a renewal after the suspension counts");
    }

    #[test]
    fn the_clock_of_this_machine_tells_how_long_it_was_suspended() {
        assert!(suspended() < Duration::from_hours(24 * 3650));
    }
}
