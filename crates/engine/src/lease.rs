//! Leader election on a coordination.k8s.io Lease, in client-go's protocol.
//!
//! ```text
//!  Follower ──(no holder, or a holder unchanged for its duration by our own stopwatch)──► Leader ──► renew every 2 s
//!      ▲                                                                                    │
//!      └──────────── no renewal for 10 s (others wait 15 s), or another holder ◄────────────┘
//! ```
//!
//! Expiry is judged by how long a record has been seen unchanged, never by the times written in it, so clocks may differ by hours. Every
//! change carries the version it is based on, so of two concurrent ones the API server rejects one. A leader that is asked to stop releases
//! the lease; the next candidate takes it at its next check, about a second later.

use std::{sync::Arc, time::Duration};

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

mod fence;
pub use fence::Fence;
use fence::Until;

/// Longest time for releasing the lease; after that it expires by itself.
const RELEASE: Duration = Duration::from_secs(2);
/// How often a follower checks again whether a missing permission is granted.
const FORBIDDEN: Duration = Duration::from_secs(10);

/// The role of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Watch and serve reads.
    Follower,
    /// Write as well.
    Leader,
}

/// Name and timing of the lease.
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
    /// Time between renewals. Followers check twice as often, so that a released lease is taken within this time.
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

/// Whether this replica leads, for its watches. A process is elected once at most: losing the lease ends it.
///
/// Waiting tasks are woken in the order in which they began to wait. A `watch` channel wakes them in a random order, and a simulation with the
/// same seed must take the same way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Election {
    answered: CancellationToken,
    won: CancellationToken,
}

impl Election {
    /// Won from the start: for a process that runs without a lease.
    pub(crate) fn without_lease() -> Self {
        let election = Self::default();
        election.win();
        election
    }

    fn win(&self) {
        // In this order: a task that waits for the first answer must see the result of it.
        self.won.cancel();
        self.answered.cancel();
    }

    /// True from the moment at which this replica leads.
    pub(crate) fn is_won(&self) -> bool {
        self.won.is_cancelled()
    }

    /// Waits until this replica leads.
    pub(crate) async fn won(&self) {
        self.won.cancelled().await;
    }

    /// Waits for the end of the first attempt to take the lease, at most for `limit`.
    pub(crate) async fn first_answer(&self, limit: Duration) {
        drop(timeout(limit, self.answered.cancelled()).await);
    }
}

/// How a candidacy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Asked to stop; the lease was released if this candidate was the holder.
    Stopped,
    /// This candidate was the holder and lost the lease.
    Lost,
}

/// One candidate for a lease.
pub struct Candidate {
    api: Api<Lease>,
    options: LeaseOptions,
    identity: String,
    clock: Arc<dyn Clock>,
    role: watch::Sender<Role>,
    election: Election,
    fence: Fence,
    health: Option<Health>,
    rng: StdRng,
    observed: Option<Observed>,
    /// The error of the last attempt, as it was logged.
    error: Option<String>,
}

/// The result of one attempt to take or renew the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// This candidate is the holder from now on.
    Holder,
    /// Another candidate is the holder, or the attempt failed.
    NotHolder,
    /// A permission is missing.
    Forbidden,
}

/// The record as last seen, and since when it is unchanged by our own stopwatch.
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
            election: Election::default(),
            fence: Fence::closed(),
            health: None,
            rng: StdRng::seed_from_u64(seed),
            observed: None,
            error: None,
        }
    }

    /// Reports on `/readyz` why this candidate cannot lead. Without that, it would follow indefinitely without a report.
    #[must_use]
    pub fn with_health(self, health: Health) -> Self {
        Self { health: Some(health), ..self }
    }

    /// The role of this candidate, as it changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// Whether this candidate has won.
    pub(crate) fn election(&self) -> Election {
        self.election.clone()
    }

    /// Until when this candidate may write.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Tries to lead, then keeps leading, until asked to stop or until the lease is lost.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        // An attempt in progress may make us the holder although we are asked to stop: it is awaited, so that the lease can be released.
        let stopped = async {
            stop.cancelled().await;
            tokio::time::sleep(RELEASE).await;
        };
        tokio::select! {
            // In order: a simulation with the same seed must take the same way.
            biased;
            acquired = self.acquire(&stop) => if !acquired { return Ended::Stopped },
            () = stopped => return Ended::Stopped,
        }
        let ended = if stop.is_cancelled() {
            Ended::Stopped
        } else {
            tracing::info!(identity = self.identity, lease = self.options.name, "leading");
            self.election.win();
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

    /// Tries until this candidate is the holder. False when asked to stop between two attempts.
    async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        loop {
            let pause = match self.attempt().await {
                Attempt::Holder => return true,
                Attempt::NotHolder => self.options.retry / 2,
                Attempt::Forbidden => FORBIDDEN,
            };
            self.election.answered.cancel();
            // Jitter between half and all of it, so that two followers do not collide again and again.
            let pause = jittered(pause, &mut self.rng);
            if timeout(pause, stop.cancelled()).await.is_ok() {
                return false;
            }
        }
    }

    /// Renews the lease until the renew deadline passes without success.
    async fn keep(&mut self) {
        loop {
            let Until::Moment(deadline, _) = self.fence.until() else { return };
            let renewed = async {
                tokio::time::sleep(self.options.retry).await;
                while self.attempt().await != Attempt::Holder {
                    if self.has_another_holder() {
                        return false;
                    }
                    let pause = jittered(self.options.retry / 4, &mut self.rng);
                    tokio::time::sleep(pause).await;
                }
                true
            };
            // Others may take over `duration` after they saw the last renewal; this ends earlier, even during a request.
            match timeout_at(deadline, renewed).await {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// One attempt to take or renew the lease.
    async fn attempt(&mut self) -> Attempt {
        // Both before the request: an answer that is read after a suspension is out of date.
        let (sent, asleep) = (Instant::now(), (self.fence.suspended)());
        let limit = self.options.renew_deadline / 2;
        match timeout(limit, self.take_or_renew()).await {
            Ok(Ok(holds)) => {
                self.check(Check::Ok);
                self.log(None);
                if !holds {
                    return Attempt::NotHolder;
                }
                self.fence.open_until(sent + self.options.renew_deadline, asleep);
                Attempt::Holder
            }
            Ok(Err(error)) => {
                self.failed(&error);
                self.log(Some(error.to_string()));
                match error {
                    kube::Error::Api(status) if status.code == 403 => Attempt::Forbidden,
                    _ => Attempt::NotHolder,
                }
            }
            Err(_) => {
                let error = format!("no answer about the lease within {limit:?}");
                if self.sees_no_leader() {
                    self.check(Check::failing(error.clone()));
                }
                self.log(Some(error));
                Attempt::NotHolder
            }
        }
    }

    /// Logs the error of an attempt when it begins, when it changes and when it ends: there is an attempt every second.
    fn log(&mut self, error: Option<String>) {
        if self.error == error {
            return;
        }
        if let Some(error) = &error {
            tracing::warn!(lease = self.options.name, error = %error, "lease could not be read or written");
        } else {
            tracing::info!(lease = self.options.name, "lease can be read and written again");
        }
        self.error = error;
    }

    /// Reports on `/readyz` why this replica cannot lead. While another one leads, only a missing permission is reported: other errors may
    /// pass before that one stops.
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
        // The common case: the lease is unchanged since the last renewal, so one request is enough.
        if let Some(observed) = &self.observed
            && self.is_ours(&observed.lease)
        {
            let next = self.renewed(&observed.lease);
            match self.replace(next).await {
                Ok(()) => return Ok(true),
                // Changed meanwhile, deleted, or a renewal whose answer was lost: read it.
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

    /// Releases the lease: it has no holder then, so that the next candidate need not wait.
    async fn release(&mut self) {
        let deadline = Instant::now() + RELEASE;
        let seen = self.observed.take().map(|observed| observed.lease);
        let mut released = timeout(RELEASE / 2, self.release_once(seen)).await;
        if !matches!(released, Ok(Ok(_))) {
            // The renewal that the stop interrupted has changed the lease, or the answer is lost: read it and try again.
            released = timeout_at(deadline, self.release_once(None)).await;
        }
        match released {
            Ok(Ok(true)) => tracing::info!(lease = self.options.name, "lease released"),
            Ok(Ok(false)) => tracing::info!(lease = self.options.name, "another replica is the holder of the lease"),
            Ok(Err(error)) => tracing::warn!(lease = self.options.name, error = %error, "lease not released"),
            Err(_) => tracing::warn!(lease = self.options.name, "lease not released in time"),
        }
    }

    /// One attempt to release the lease, as it was last seen or else as it is. False when this candidate is not the holder.
    async fn release_once(&self, seen: Option<Lease>) -> kube::Result<bool> {
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

    fn has_another_holder(&self) -> bool {
        self.observed
            .as_ref()
            .is_some_and(|observed| !holder(&observed.lease).is_empty() && !self.is_ours(&observed.lease))
    }

    /// True when the lease has no holder, as far as this candidate knows.
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
    use signpost_sandbox::{Sandbox, SandboxOptions};
    use std::sync::atomic::{AtomicU64, Ordering};
    use tracing_subscriber::layer::{Context, SubscriberExt};

    /// Counts the lines of the log.
    struct Lines(Arc<AtomicU64>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Lines {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn an_error_of_the_lease_is_logged_when_it_changes_and_when_it_ends() {
        let client = Sandbox::new(SandboxOptions::default()).client();
        let (options, clock) = (LeaseOptions::new("default", "signpost"), Arc::new(crate::clock::SystemClock));
        let mut candidate = Candidate::new(client, options, "one", clock, 0);
        let lines = Arc::new(AtomicU64::new(0));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Lines(lines.clone())), || {
            for (error, logged) in [(None, 0), (Some("a"), 1), (Some("a"), 1), (Some("b"), 2), (None, 3), (None, 3)] {
                candidate.log(error.map(str::to_owned));
                assert_eq!(lines.load(Ordering::SeqCst), logged, "{error:?}");
            }
        });
    }
}
