//! The wiring of one process (or of one in-process replica in a test).
//!
//! ```text
//!  start:  streams ─► every required kind complete ─┐
//!          lease ───► this replica leads ───────────┴─► drivers
//!  stop:   no new passes ─► running passes end ─► writes and events flushed ─► lease given back
//! ```
//!
//! A lease that is lost ends [`Operator::run`] at once with an error; the process starts again as a follower. Dropping the future of
//! `run` stops everything where it is, as a crash would.

use std::{any::TypeId, collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::Client;
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, SystemClock},
    driver::{DriveOptions, Driver, Outlets, System},
    events::{self, Publisher, Recorder},
    health::{Check, Health},
    hub::{self, Fold, Index, KindState, KindStatus, Kinds, Need, Stream, Watched},
    lease::{Candidate, Ended, Fence, LeaseOptions, Role},
    metrics::Metrics,
    queue::Queue,
    write::{Writer, WriterOptions},
};

/// Longest time for waiting events when asked to stop: somebody waits for the lease.
const EVENTS: Duration = Duration::from_millis(500);

/// How one process runs.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// What this replica is called in the lease: the pod's name and something that differs after a restart.
    pub identity: String,
    /// Leader election; without it, this replica always leads.
    pub lease: Option<LeaseOptions>,
    /// Watch only this namespace (cluster-scoped kinds are watched all the same).
    pub namespace: Option<String>,
    /// Objects per page of a list.
    pub page_size: u32,
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
    /// A part of the operator ended that never should. A defect: the process must start again.
    #[error("the {part} ended unexpectedly: {reason}; this process must start again")]
    Broken {
        /// Which part.
        part: &'static str,
        /// What is known about it.
        reason: String,
    },
}

type StartDriver = Box<dyn FnOnce(u64, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// One replica of the operator.
pub struct Operator {
    client: Client,
    options: OperatorOptions,
    metrics: Metrics,
    health: Health,
    writer: Writer,
    recorder: Recorder,
    publisher: Publisher,
    streams: BTreeMap<TypeId, Box<dyn Stream>>,
    drivers: Vec<(&'static str, StartDriver)>,
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
        Self {
            client,
            options,
            metrics,
            health,
            writer,
            recorder,
            publisher,
            streams: BTreeMap::new(),
            drivers: Vec::new(),
            kinds: watch::Sender::new(Kinds::new()),
            candidate,
            fence,
        }
    }

    /// Folds every `K` into `index`. Several indexes may watch one kind: there is still one stream.
    pub fn watch<K: Watched>(&mut self, need: Need, index: Arc<dyn Index<K>>) {
        let stream =
            self.streams.entry(TypeId::of::<K>()).or_insert_with(|| Box::new(Fold::<K> { need, indexes: Vec::new() }));
        if let Some(fold) = stream.as_any_mut().downcast_mut::<Fold<K>>() {
            fold.need = fold.need.max(need);
            fold.indexes.push(index);
        }
    }

    /// Drives a system from its queue while this replica leads.
    pub fn drive<S: System>(&mut self, system: S, queue: Queue<S::Key, S::Object>, options: DriveOptions) {
        let outlets = Outlets {
            writer: self.writer(),
            recorder: self.recorder(),
            metrics: self.metrics(),
            clock: self.clock(),
            fence: self.fence.clone(),
        };
        let driver = Driver::new(system, queue, options, outlets);
        self.drivers.push((S::NAME, Box::new(move |seed, stop| Box::pin(driver.run(seed, stop)))));
    }

    /// The writer of this replica.
    pub fn writer(&self) -> Writer {
        self.writer.clone()
    }

    /// The event recorder of this replica.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The checks of this replica.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// The figures of this replica.
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

    /// Runs until `stop`, then drains and gives the lease back.
    pub async fn run(self, stop: CancellationToken) -> Result<(), OperatorError> {
        let Self {
            client,
            options,
            metrics,
            health,
            writer,
            recorder,
            publisher,
            streams,
            drivers,
            kinds,
            candidate,
            fence: _,
        } = self;
        // Whatever way this ends, nothing is written afterwards.
        let _closed = CloseOnDrop(writer.clone());
        let seed = options.seed;
        let shared = hub::Shared {
            client,
            namespace: options.namespace,
            page_size: options.page_size,
            clock: options.clock,
            metrics: metrics.clone(),
            health: health.clone(),
            writer: writer.clone(),
            recorder: recorder.clone(),
            kinds: kinds.clone(),
            install_crds: options.install_crds,
            seed,
        };

        let mut parts: JoinSet<Part> = JoinSet::new();
        for stream in streams.into_values() {
            let resource = stream.resource();
            kinds.send_modify(|kinds| {
                let status = KindStatus { need: stream.need(), state: KindState::Listing, complete: false, lists: 0 };
                kinds.insert(resource, status);
            });
            if stream.need() == Need::Required {
                health.set(format!("kind {resource}"), Check::failing("the first list is not complete yet"));
            }
            let run = stream.run(shared.clone());
            parts.spawn(async move {
                run.await;
                Part::Stream
            });
        }
        parts.spawn(async move {
            publisher.run().await;
            Part::Publisher
        });
        let release = CancellationToken::new();
        let elected = candidate.is_some();
        let mut role = match candidate {
            Some(candidate) => {
                let role = candidate.role();
                let release = release.clone();
                parts.spawn(async move { Part::Lease(candidate.run(release).await) });
                role
            }
            None => watch::Sender::new(Role::Leader).subscribe(),
        };

        // Every replica watches from the start; only the leader drives, and only on a complete view.
        let mut view = kinds.subscribe();
        let may_drive = async {
            let complete = view.wait_for(hub::required_are_complete).await.is_ok();
            complete && role.wait_for(|role| *role == Role::Leader).await.is_ok()
        };
        let started = tokio::select! {
            biased;
            () = stop.cancelled() => false,
            ended = unexpected(&mut parts) => return Err(ended),
            started = may_drive => started,
        };

        if started {
            metrics.leader(true);
            let intake = CancellationToken::new();
            let mut running: JoinSet<&'static str> = JoinSet::new();
            for (number, (name, start)) in drivers.into_iter().enumerate() {
                let run = start(seed.wrapping_add(number as u64 + 1), intake.clone());
                running.spawn(async move {
                    run.await;
                    name
                });
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                ended = unexpected(&mut parts) => {
                    metrics.leader(false);
                    return Err(ended);
                }
                ended = driver_ended(&mut running) => return Err(ended),
            }
            intake.cancel();
            let drained = async {
                let done = async {
                    while running.join_next().await.is_some() {}
                    writer.drain().await;
                };
                if timeout(options.drain, done).await.is_err() {
                    tracing::warn!(limit = ?options.drain, "stopping although passes or writes are not done");
                }
                if timeout(EVENTS, recorder.flush()).await.is_err() {
                    tracing::warn!(limit = ?EVENTS, "stopping although events are not written");
                }
            };
            tokio::select! {
                biased;
                ended = unexpected(&mut parts) => return Err(ended),
                () = drained => {}
            }
            running.abort_all();
            metrics.leader(false);
        }

        writer.close();
        release.cancel();
        while elected && let Some(part) = parts.join_next().await {
            if matches!(part, Ok(Part::Lease(_))) {
                break;
            }
        }
        Ok(())
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

/// Waits for a part that should run for ever to end.
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

/// Waits for a driver to end although nobody asked it to.
async fn driver_ended(running: &mut JoinSet<&'static str>) -> OperatorError {
    match running.join_next().await {
        Some(Ok(part)) => OperatorError::Broken { part, reason: "its driver returned".to_owned() },
        Some(Err(error)) => OperatorError::Broken { part: "driver", reason: error.to_string() },
        None => std::future::pending().await,
    }
}
