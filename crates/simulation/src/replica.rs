//! The replicas of the operator, and what keeps them running: whoever ends without being asked to is started again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use signpost_engine::{ManualClock, Operator, OperatorOptions, lease::LeaseOptions};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    bed::Bed,
    history::ProcessEvent,
    process::Process,
    wire,
    world::{START, World},
};

/// One seed of so many has watches that are as short as in production.
const SHORT_OF: u64 = 4;

/// One replica and what its next start is like.
pub struct Replica<B> {
    bed: Arc<B>,
    world: Arc<World>,
    number: usize,
    lease: bool,
    /// After this long the API server ends a watch.
    watch: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    starts: u32,
    pace: usize,
    /// The process that runs now.
    process: Option<Process>,
    supervisor: Option<AbortHandle>,
    stop: Option<CancellationToken>,
}

impl<B: Bed> Replica<B> {
    /// A replica that runs.
    pub fn start(bed: &Arc<B>, world: &Arc<World>, number: usize, lease: bool) -> Arc<Self> {
        let (bed, world) = (bed.clone(), world.clone());
        // Half of all simulated requests were watches that were opened again every 50 seconds.
        let short = world.seed.is_multiple_of(SHORT_OF);
        let watch = if short { Duration::from_secs(50) } else { Duration::from_mins(5) };
        let replica = Arc::new(Self { bed, world, number, lease, watch, state: Mutex::default() });
        replica.run();
        replica
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process, and another one whenever it ends without being asked to.
    fn run(self: &Arc<Self>) {
        let replica = self.clone();
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move {
            while !token.is_cancelled() {
                let (process, operator, installed) = replica.process();
                let ended = operator.run(token.clone()).await;
                drop(installed);
                replica.world.note(&format!("{} ended: {ended:?}", process.name()));
                process.kill();
                if ended.is_ok() {
                    return;
                }
                sleep(Duration::from_secs(1)).await;
            }
        });
        let mut state = self.lock();
        state.supervisor = Some(task.abort_handle());
        state.stop = Some(stop);
    }

    fn process(&self) -> (Process, Operator, Box<dyn std::any::Any + Send>) {
        let (process, pace, starts) = {
            let mut state = self.lock();
            state.starts += 1;
            let process = Process::new(format!("replica-{}-{}", self.number, state.starts));
            state.process = Some(process.clone());
            (process, state.pace, state.starts)
        };
        self.world.note(&format!("{} starts, pace {pace}", process.name()));
        if !self.lease {
            self.world.strikes.forget_lost_events();
        }
        let start = Timestamp::from_second(START).unwrap_or_default();
        let clock = ManualClock::starting_at(start);
        clock.skew_by(jiff::SignedDuration::try_from(self.world.elapsed()).unwrap_or_default());
        // Slower than in production: an hour of it is simulated for every seed.
        let lease = LeaseOptions {
            duration: Duration::from_mins(2),
            renew_deadline: Duration::from_secs(80),
            retry: Duration::from_secs(20),
            ..LeaseOptions::new("default", "signpost")
        };
        let options = OperatorOptions {
            identity: process.name().to_owned(),
            lease: self.lease.then_some(lease),
            watch: self.watch,
            clock: Arc::new(clock),
            seed: u64::from(starts) + 1_000 * self.number as u64,
            ..OperatorOptions::default()
        };
        let mut operator = Operator::new(wire::client(&self.world, &process), options);
        let installed = self.bed.install(&mut operator, &process, pace);
        (process, operator, installed)
    }

    /// Something happens to this replica.
    pub fn meet(self: &Arc<Self>, event: ProcessEvent) {
        match event {
            ProcessEvent::Freeze { lasts, .. } => {
                if let Some(process) = &self.lock().process {
                    process.freeze(Instant::now() + Duration::from_millis(lasts));
                }
            }
            ProcessEvent::Crash { down, .. } => {
                self.crash();
                self.restart_after(down);
            }
            ProcessEvent::Restart { down, pace, .. } => {
                let stop = {
                    let mut state = self.lock();
                    state.pace = pace;
                    state.stop.take()
                };
                // A replica that is stopping already is started by the action that stopped it.
                let Some(stop) = stop else { return };
                stop.cancel();
                let replica = self.clone();
                tokio::spawn(async move {
                    let ended = async {
                        while replica.lock().supervisor.as_ref().is_some_and(|task| !task.is_finished()) {
                            sleep(Duration::from_millis(250)).await;
                        }
                    };
                    // Kubernetes waits for so long, then it kills.
                    drop(timeout(Duration::from_secs(30), ended).await);
                    replica.crash();
                    replica.restart_after(down);
                });
            }
        }
    }

    /// Ends the process at once and for good.
    pub fn end(&self) {
        self.crash();
    }

    /// Ends the process at once: nothing more leaves it.
    fn crash(&self) {
        let mut state = self.lock();
        if let Some(process) = state.process.take() {
            process.kill();
        }
        if let Some(task) = state.supervisor.take() {
            task.abort();
        }
        state.stop = None;
    }

    fn restart_after(self: &Arc<Self>, down: u64) {
        let replica = self.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(down)).await;
            if replica.lock().supervisor.is_none() {
                replica.run();
            }
        });
    }
}
