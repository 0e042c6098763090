//! The wiring of one process (or of one in-process replica in a test).
//!
//! ```text
//!  start:  lease ───► this replica leads ────────────────────────────────┐
//!          streams ─► fresh lists of the kinds of a system, and watches ─┴─► the driver of that system
//!  stop:   no new passes ─► running passes end ─► writes and events flushed ─► closing work ─► lease released
//! ```
//!
//! A list is fresh if this replica led when it began. Each system waits for its own kinds only: a CRD that is missing for one system does
//! not delay another.
//!
//! Losing the lease ends [`Operator::run`] at once with an error; the process starts again as a follower. Dropping the future of `run`
//! aborts everything, as a crash would.

use std::{any::TypeId, collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::Client;
use signpost_inventory::Inventory;
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, SystemClock},
    driver::{DriveOptions, Driver, Outlets, System},
    events::{self, Publisher, Recorder},
    health::Health,
    hub::{self, Compared, Fold, Index, KindState, KindStatus, Kinds, Scope, Stream, Watch, Watched},
    lease::{Candidate, Election, Ended, Fence, LeaseOptions, Role},
    metrics::Metrics,
    object::Kind,
    project::{self, Place, Places, Project},
    queue::Queue,
    refusals::Refusals,
    write::{Writer, WriterOptions},
};

/// Longest time for waiting events when asked to stop: another replica waits for the lease.
const EVENTS: Duration = Duration::from_millis(500);
/// Longest time for the closing work of systems, such as logging out.
const CLOSING: Duration = Duration::from_secs(2);

/// How one process runs.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// The name of this replica in the lease: the pod's name and a part that differs after a restart.
    pub identity: String,
    /// Leader election; without it, this replica always leads.
    pub lease: Option<LeaseOptions>,
    /// Watch only this namespace (cluster-scoped kinds are watched all the same).
    pub namespace: Option<String>,
    /// Objects per page of a list.
    pub page_size: u32,
    /// The API server ends a watch after this long; it is then resumed. A watch that is silent for five seconds longer has lost its
    /// connection unnoticed, so this is also how long a loss may stay unnoticed.
    pub watch: Duration,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Seed of all jitter.
    pub seed: u64,
    /// Kubernetes writes.
    pub writer: WriterOptions,
    /// Longest time for running passes and pending writes to end when asked to stop.
    pub drain: Duration,
    /// The command that installs missing CRDs, shown where one is missing.
    pub install_crds: String,
}

impl Default for OperatorOptions {
    fn default() -> Self {
        Self {
            identity: "signpost".to_owned(),
            lease: None,
            namespace: None,
            page_size: 250,
            watch: Duration::from_secs(50),
            clock: Arc::new(SystemClock),
            seed: 0,
            writer: WriterOptions::default(),
            drain: Duration::from_secs(10),
            install_crds: "signpost crds | kubectl apply --server-side -f -".to_owned(),
        }
    }
}

/// Why the operator stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// Another replica may lead now; start again as a follower.
    #[error("the lease was lost: another replica may lead now; this one must start again")]
    LeaseLost,
    /// A part of the operator ended that should run until the end. This is a defect: the process must start again.
    #[error("the {part} ended unexpectedly: {reason}; this process must start again")]
    Broken {
        /// Which part.
        part: &'static str,
        /// How it ended.
        reason: String,
    },
}

type StartDriver = Box<dyn FnOnce(BoxFuture<'static, ()>, u64, CancellationToken) -> BoxFuture<'static, ()> + Send>;
type StartProjection = Box<dyn FnOnce(Arc<Inventory>, Option<Places>) -> BoxFuture<'static, ()> + Send>;

/// One replica of the operator.
pub struct Operator {
    client: Client,
    options: OperatorOptions,
    metrics: Metrics,
    health: Health,
    writer: Writer,
    recorder: Recorder,
    refusals: Refusals,
    publisher: Publisher,
    streams: BTreeMap<(TypeId, Scope), Box<dyn Stream>>,
    drivers: Vec<(&'static str, StartDriver)>,
    projections: Vec<StartProjection>,
    inventory: Option<Arc<Inventory>>,
    places: Option<Places>,
    background: Vec<BoxFuture<'static, ()>>,
    closing: Vec<BoxFuture<'static, ()>>,
    kinds: watch::Sender<Kinds>,
    candidate: Option<Candidate>,
    fence: Fence,
}

impl Operator {
    /// A replica that does nothing yet. Must be called inside a tokio runtime.
    pub fn new(client: Client, options: OperatorOptions) -> Self {
        let metrics = Metrics::new();
        let health = Health::new(metrics.clone());
        let candidate = options.lease.clone().map(|lease| {
            Candidate::new(client.clone(), lease, &options.identity, options.clock.clone(), options.seed)
                .with_health(health.clone())
        });
        let fence = candidate.as_ref().map_or_else(Fence::open, Candidate::fence);
        let writer_options = WriterOptions { seed: options.seed, ..options.writer };
        let writer = Writer::new(client.clone(), writer_options, fence.clone(), health.clone(), metrics.clone());
        let (recorder, publisher) = events::recorder(
            client.clone(),
            &options.identity,
            options.clock.clone(),
            fence.clone(),
            health.clone(),
            metrics.clone(),
        );
        let refusals = Refusals::new(recorder.clone(), metrics.clone());
        Self {
            client,
            options,
            metrics,
            health,
            writer,
            recorder,
            refusals,
            publisher,
            streams: BTreeMap::new(),
            drivers: Vec::new(),
            projections: Vec::new(),
            inventory: None,
            places: None,
            background: Vec::new(),
            closing: Vec::new(),
            kinds: watch::Sender::new(Kinds::new()),
            candidate,
            fence,
        }
    }

    /// Folds what a system watches of a kind into its index. Watches of one kind with the same selectors share one stream.
    pub fn watch<K: Watched>(&mut self, system: &'static str, watch: Watch, index: Arc<dyn Index<K>>) {
        if let Some(times) = watch.reported {
            self.writer.reported(Kind::of::<K>(), times);
        }
        let Watch { need, scope, reported, children } = watch;
        let place = (TypeId::of::<K>(), scope.clone());
        let stream = self.streams.entry(place).or_insert_with(|| Box::new(Fold::<K>::new(scope)));
        if let Some(fold) = stream.as_any_mut().downcast_mut::<Fold<K>>() {
            fold.add(system, need, Compared { status: reported.is_some(), whole: children }, index);
        }
    }

    /// Runs `work` beside the drivers, on every replica, until the operator stops.
    pub fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.push(Box::pin(work));
    }

    /// Runs `work` after an orderly stop, for at most two seconds: for example, logs out of a server.
    pub fn at_stop(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.closing.push(Box::pin(work));
    }

    /// Keeps the names of every system of this replica in this inventory, whether the replica leads or not.
    pub fn keep_inventory(&mut self, inventory: Arc<Inventory>) {
        self.inventory = Some(inventory);
    }

    /// Asks `place` where the names of systems are shown in the inventory, again whenever `changed` changes.
    pub fn place_names(&mut self, place: Arc<dyn Place>, changed: watch::Receiver<()>) {
        self.places = Some(Places { place, changed });
    }

    /// Drives a system from its queue while this replica leads.
    pub fn drive<S>(&mut self, system: S, queue: Queue<S::Key, S::Object>, options: DriveOptions)
    where
        S: System + Project<S::Key>,
    {
        let outlets = Outlets {
            writer: self.writer(),
            recorder: self.recorder(),
            refusals: self.refusals.clone(),
            metrics: self.metrics(),
            clock: self.clock(),
            fence: self.fence.clone(),
        };
        let (system, clock) = (Arc::new(system), self.clock());
        let driver = Driver::new(system.clone(), queue.clone(), options, outlets);
        self.drivers.push((S::NAME, Box::new(move |opens, seed, stop| Box::pin(driver.run_after(opens, seed, stop)))));
        self.projections.push(Box::new(move |inventory, places| {
            queue.follow();
            Box::pin(project::run(system, queue, inventory, places, clock))
        }));
    }

    /// The writer of this replica.
    pub fn writer(&self) -> Writer {
        self.writer.clone()
    }

    /// The event recorder of this replica.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The reporter of refusals of this replica, for objects whose status has no room for them.
    pub fn refusals(&self) -> Refusals {
        self.refusals.clone()
    }

    /// The checks of this replica.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// The metrics of this replica.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// The clock of this replica.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.options.clock.clone()
    }

    /// The client of this replica, for reads.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The state of every watched kind, as it changes.
    pub fn kinds(&self) -> watch::Receiver<Kinds> {
        self.kinds.subscribe()
    }

    /// The role of this replica, as it changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        match &self.candidate {
            Some(candidate) => candidate.role(),
            None => watch::Sender::new(Role::Leader).subscribe(),
        }
    }

    /// Runs until `stop`, then drains and releases the lease.
    pub async fn run(self, stop: CancellationToken) -> Result<(), OperatorError> {
        let (writer, recorder, metrics, drain) = (self.writer(), self.recorder(), self.metrics(), self.options.drain);
        // However this ends, nothing is written afterwards.
        let _closed = CloseOnDrop(writer.clone());
        let Running { mut parts, mut beside, mut drivers, intake, release, elected, closing } = self.start();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            ended = unexpected(&mut parts) => {
                metrics.leader(false);
                return Err(ended);
            }
            ended = driver_ended(&mut drivers) => return Err(ended),
            ended = background_panicked(&mut beside) => return Err(ended),
        }
        intake.cancel();
        tokio::select! {
            biased;
            ended = unexpected(&mut parts) => return Err(ended),
            () = drained(&mut drivers, &writer, &recorder, drain) => {}
        }
        drivers.abort_all();
        beside.abort_all();
        metrics.leader(false);
        writer.close();
        release.cancel();
        released_and_closed(parts, elected, closing).await;
        Ok(())
    }

    /// Starts everything. Every replica watches from the start; only the leader drives, and each system only on a fresh view of its own kinds.
    fn start(self) -> Running {
        let shared = self.shared();
        let Self { options, metrics, publisher, streams, drivers, inventory, places, kinds, candidate, .. } = self;
        let mut beside = JoinSet::new();
        // Before the first event, so that no change is missed.
        for start in self.projections {
            if let Some(inventory) = &inventory {
                beside.spawn(start(inventory.clone(), places.clone()));
            }
        }
        let mut parts: JoinSet<Part> = JoinSet::new();
        start_streams(streams.into_values(), &shared, &mut parts);
        parts.spawn(async move {
            publisher.run().await;
            Part::Publisher
        });
        for work in self.background {
            beside.spawn(work);
        }
        let (release, intake) = (CancellationToken::new(), CancellationToken::new());
        let elected = candidate.is_some();
        let role = start_election(candidate, &release, &mut parts);
        let gate = Gate { role, kinds: kinds.subscribe(), metrics };
        let drivers = start_drivers(drivers, options.seed, &gate, &intake);
        Running { parts, beside, drivers, intake, release, elected, closing: self.closing }
    }

    /// The parts that all streams share.
    fn shared(&self) -> hub::Shared {
        hub::Shared {
            client: self.client(),
            namespace: self.options.namespace.clone(),
            page_size: self.options.page_size,
            watch: self.options.watch,
            election: self.candidate.as_ref().map_or_else(Election::without_lease, Candidate::election),
            clock: self.clock(),
            metrics: self.metrics(),
            health: self.health(),
            writer: self.writer(),
            refusals: self.refusals(),
            recorder: self.recorder(),
            kinds: self.kinds.clone(),
            install_crds: self.options.install_crds.clone(),
            seed: self.options.seed,
        }
    }
}

/// The tasks of a running operator, and how they are ended.
struct Running {
    /// Tasks that run until the end: streams, events and the lease.
    parts: JoinSet<Part>,
    /// Projections and the background work of systems.
    beside: JoinSet<()>,
    /// The drivers of the systems.
    drivers: JoinSet<&'static str>,
    /// Ends the intake of new passes.
    intake: CancellationToken,
    /// Releases the lease.
    release: CancellationToken,
    /// Whether there is a lease.
    elected: bool,
    /// Work after an orderly stop.
    closing: Vec<BoxFuture<'static, ()>>,
}

/// Waits until the lease is released, if there is one, and the closing work of the systems has ended. Both run concurrently, so the lease
/// does not wait for the closing work.
async fn released_and_closed(mut parts: JoinSet<Part>, elected: bool, closing: Vec<BoxFuture<'static, ()>>) {
    let released = async {
        while elected && let Some(part) = parts.join_next().await {
            if matches!(part, Ok(Part::Lease(_))) {
                break;
            }
        }
    };
    let closed = timeout(CLOSING, futures::future::join_all(closing));
    let ((), closed) = futures::future::join(released, closed).await;
    if closed.is_err() {
        tracing::warn!(limit = ?CLOSING, "stopping before the closing work of a system has ended");
    }
}

/// Waits for the passes, the writes and the events, each for a limited time.
async fn drained<T: 'static>(running: &mut JoinSet<T>, writer: &Writer, recorder: &Recorder, limit: Duration) {
    let done = async {
        while running.join_next().await.is_some() {}
        writer.drain().await;
    };
    if timeout(limit, done).await.is_err() {
        tracing::warn!(?limit, "stopping before all passes and writes have ended");
    }
    if timeout(EVENTS, recorder.flush()).await.is_err() {
        tracing::warn!(limit = ?EVENTS, "stopping before all events are written");
    }
}

/// Starts the election, if there is one; the role of this replica, as it changes.
fn start_election(
    candidate: Option<Candidate>,
    release: &CancellationToken,
    parts: &mut JoinSet<Part>,
) -> watch::Receiver<Role> {
    let Some(candidate) = candidate else { return watch::Sender::new(Role::Leader).subscribe() };
    let (role, release) = (candidate.role(), release.clone());
    parts.spawn(async move { Part::Lease(candidate.run(release).await) });
    role
}

/// Starts every watch. A kind is not ready until its first list is complete, or has shown that the system can do without it.
fn start_streams(streams: impl Iterator<Item = Box<dyn Stream>>, shared: &hub::Shared, parts: &mut JoinSet<Part>) {
    for stream in streams {
        let name = stream.name();
        let systems = stream.systems().clone();
        let status =
            KindStatus { systems, state: KindState::Listing, complete: false, fresh: false, old: false, lists: 0 };
        shared.health.set(format!("kind {name}"), hub::check_of(shared, stream.kind(), name, &status));
        shared.kinds.send_modify(|kinds| {
            kinds.insert(name, status);
        });
        let run = stream.run(shared.clone());
        parts.spawn(async move {
            run.await;
            Part::Stream
        });
    }
}

/// Starts every driver: each runs when its gate opens, until `intake` ends.
fn start_drivers(
    drivers: Vec<(&'static str, StartDriver)>,
    seed: u64,
    gate: &Gate,
    intake: &CancellationToken,
) -> JoinSet<&'static str> {
    let mut running = JoinSet::new();
    for (number, (name, start)) in drivers.into_iter().enumerate() {
        let opens = Box::pin(gate.clone().opens(name));
        let run = start(opens, seed.wrapping_add(number as u64 + 1), intake.clone());
        running.spawn(async move {
            run.await;
            name
        });
    }
    running
}

/// The preconditions of a driver.
#[derive(Clone)]
struct Gate {
    role: watch::Receiver<Role>,
    kinds: watch::Receiver<Kinds>,
    metrics: Metrics,
}

impl Gate {
    /// Waits until this replica leads and the views of the kinds of `system` are fresh. Does not return when that is no longer possible.
    async fn opens(mut self, system: &'static str) {
        let leads = self.role.wait_for(|role| *role == Role::Leader).await.is_ok();
        if leads {
            self.metrics.leader(true);
        }
        let fresh = self.kinds.wait_for(|kinds| hub::may_drive(kinds, system)).await.is_ok();
        if !(leads && fresh) {
            std::future::pending::<()>().await;
        }
    }
}

enum Part {
    Stream,
    Publisher,
    Lease(Ended),
}

struct CloseOnDrop(Writer);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits for the end of a part that should not end.
async fn unexpected(parts: &mut JoinSet<Part>) -> OperatorError {
    let (part, reason) = match parts.join_next().await {
        Some(Ok(Part::Lease(Ended::Lost | Ended::Stopped))) => return OperatorError::LeaseLost,
        Some(Ok(Part::Stream)) => ("watch", "it returned".to_owned()),
        Some(Ok(Part::Publisher)) => ("event publisher", "it returned".to_owned()),
        Some(Err(error)) => ("operator", error.to_string()),
        None => std::future::pending().await,
    };
    OperatorError::Broken { part, reason }
}

/// Waits for background work to panic. Background work may return: some of it is done at some point.
async fn background_panicked(beside: &mut JoinSet<()>) -> OperatorError {
    loop {
        match beside.join_next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                return OperatorError::Broken { part: "background work", reason: error.to_string() };
            }
            None => std::future::pending().await,
        }
    }
}

/// Waits for a driver to end although it was not asked to.
async fn driver_ended(running: &mut JoinSet<&'static str>) -> OperatorError {
    match running.join_next().await {
        Some(Ok(part)) => OperatorError::Broken { part, reason: "its driver returned".to_owned() },
        Some(Err(error)) => OperatorError::Broken { part: "driver", reason: error.to_string() },
        None => std::future::pending().await,
    }
}
