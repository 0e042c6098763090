//! Finalizers and statuses, after serving and beside the passes.
//!
//! ```text
//!  Statuses (object ids, each once; first those that a caller waits for, last those whose write failed)
//!      └─► a turn (see `write/pace.rs`) ─► wanted(id): computed only now, so the newest state is written
//!                                                                    ├► finalizers, then to the end of the queue again
//!                                                                    ├► status, unless the server has it
//!                                                                    └► all of a key written ─► all_written(key)
//! ```
//!
//! The status does not follow the finalizers at once while other objects are queued: the API server writes from its watch cache, and
//! repeats the whole write when the cache does not have the finalizers yet.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use serde_json::Value;
use signpost_planning::doubled;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{Driver, System, Wanted, panic_text};
use crate::{
    object::ObjectId,
    queue::Taken,
    write::{ObjectWrite, REPORTED, TRIES, Turn, TurnQueue, WriteError},
};

/// How often a conflict is retried within one turn, and the first pause.
const CONFLICTS: u32 = 8;
const CONFLICT: Duration = Duration::from_millis(10);
/// How soon a write that failed is tried again: the first time, and at most. The pause is doubled with every failure.
const FAILED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// The same for a write that is denied: the permission may be granted later.
const DENIED: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(2));
/// How soon a status is tried again that the API server rejects: the CRDs may be updated, or a webhook corrected, without a change of the object.
const REJECTED: Duration = Duration::from_mins(10);
/// How soon a write that panicked is tried again.
const PANICKED: Duration = Duration::from_mins(1);
/// Longest time for statuses that are still queued when asked to stop: another replica waits for the lease, and writes the rest.
const FLUSH: Duration = Duration::from_secs(1);

/// The result of one object's turn.
enum Written {
    /// The object is as wanted; true when something was written.
    Done(bool),
    /// The finalizers are written; the status is written in the next turn.
    Finalizers,
}

impl<S: System> Driver<S> {
    /// Writes statuses until `stop`, then queued ones for a limited time, and lets the writes in progress end.
    pub(super) async fn write_statuses(self: Arc<Self>, stop: CancellationToken) {
        let mut writes = JoinSet::new();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.begin_writes(&mut writes) => {}
        }
        let until = Instant::now() + FLUSH;
        // A write that failed before is left to the next leader.
        while self.queue.statuses().has_new() || !writes.is_empty() {
            let flushed = async {
                tokio::select! {
                    biased;
                    _ = writes.join_next(), if !writes.is_empty() => None,
                    turn = self.turn(), if self.queue.statuses().has_new() => Some(turn),
                }
            };
            match timeout_at(until, flushed).await {
                Ok(Some(turn)) => self.begin_write(&mut writes, turn),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        while writes.join_next().await.is_some() {}
    }

    async fn begin_writes(self: &Arc<Self>, writes: &mut JoinSet<()>) {
        loop {
            let turn = self.turn().await;
            while writes.try_join_next().is_some() {}
            self.begin_write(writes, turn);
        }
    }

    /// Waits until an object is queued and may be written.
    async fn turn(&self) -> Turn {
        let (statuses, writer) = (self.queue.statuses(), &self.outlets.writer);
        statuses.ready().await;
        tokio::select! {
            biased;
            () = statuses.urgent() => writer.turn_now(),
            turn = writer.turn(TurnQueue::Statuses(S::NAME)) => turn,
        }
    }

    fn begin_write(self: &Arc<Self>, writes: &mut JoinSet<()>, turn: Turn) {
        if let Some(taken) = self.queue.statuses().take() {
            let driver = Arc::clone(self);
            writes.spawn(async move { driver.write_status(taken, turn).await });
        }
    }

    async fn write_status(&self, taken: Taken, turn: Turn) {
        let Taken { id, waiters, failures } = taken;
        let statuses = self.queue.statuses();
        // An object that fails keeps its turn for one request only, unless a pass waits for it.
        let tries = if waiters.is_empty() { 1 } else { TRIES };
        let (ended, end) = match AssertUnwindSafe(self.write_wanted(&id, &turn, tries)).catch_unwind().await {
            Ok(Ok(written)) => {
                if failures >= REPORTED {
                    tracing::info!(object = %id, "the finalizers and the status of an object can be written again");
                }
                match written {
                    Written::Done(wrote) => (statuses.done(&id, wrote), Ok(())),
                    Written::Finalizers => return statuses.requeue(id, waiters, true),
                }
            }
            Ok(Err(error)) => (self.failed(&id, failures, &error), Err(error)),
            Err(panic) => {
                self.outlets.metrics.panicked(S::NAME);
                let panic = panic_text(&*panic);
                tracing::error!(object = %id, panic, "status write panicked; it will be retried");
                let error = WriteError::Transient("the write panicked".to_owned());
                (statuses.failed(&id, failures.saturating_add(1), PANICKED), Err(error))
            }
        };
        drop(turn);
        for waiter in waiters {
            // A caller that does not wait any more has been cut off.
            let _ = waiter.send(end.clone());
        }
        for key in ended {
            if let Some((touch, after)) = self.system.all_written(&key, &id) {
                self.queue.touch_after(key, touch, after);
            }
        }
    }

    /// Queues an object again whose write failed; it had failed this often before. The log has it once. Returns the keys of which it was the
    /// last.
    fn failed(&self, id: &Arc<ObjectId>, before: u32, error: &WriteError) -> Vec<S::Key> {
        let pause = |(first, longest)| self.queue.jittered(doubled(first, before, longest));
        let (more, delay) = match error {
            WriteError::Gone => return self.queue.statuses().done(id, false),
            // A busy server is not a failure of this object.
            WriteError::Throttled(after) => (0, after.unwrap_or(Duration::from_secs(1))),
            WriteError::Conflict | WriteError::Transient(_) => (1, pause(FAILED)),
            WriteError::Forbidden(_) => (1, pause(DENIED)),
            // It does not pass by itself, so it is reported at once.
            WriteError::Invalid(_) => (REPORTED, self.queue.jittered(REJECTED)),
        };
        let failures = before.saturating_add(more);
        if before < REPORTED && failures >= REPORTED {
            if let WriteError::Invalid(why) = error {
                tracing::error!(object = %id, why, "the API server rejects a status as invalid; check that the CRDs are those of this version");
            } else {
                tracing::warn!(object = %id, error = %error, "the finalizers or the status of an object cannot be written; they will be retried");
            }
        }
        self.queue.statuses().failed(id, failures, delay)
    }

    async fn write_wanted(&self, id: &Arc<ObjectId>, turn: &Turn, tries: u32) -> Result<Written, WriteError> {
        let mut wrote = false;
        let gone = |wrote| if wrote { Ok(Written::Done(true)) } else { Err(WriteError::Gone) };
        for attempt in 0..CONFLICTS {
            let Some(wanted) = self.system.wanted(id, self.outlets.clock.now()) else { return gone(wrote) };
            let Wanted { identity, finalizers, status, refusals, owner } = wanted;
            let (write, more) = match (finalizers, status) {
                (Some(finalizers), status) => (ObjectWrite::finalizers(&identity, &finalizers), status.is_some()),
                (None, Some(status)) => (ObjectWrite::status(&identity, status).owned_by(owner), false),
                (None, None) => return Ok(Written::Done(wrote)),
            };
            match turn.write(&self.outlets.writer, &write, tries).await {
                // The server has it already.
                Ok(Value::Null) => return Ok(Written::Done(wrote)),
                Err(WriteError::Gone) => return gone(wrote),
                Ok(answer) => {
                    wrote = true;
                    self.system.written(id, &answer);
                    if write.is_status() {
                        for refusal in &refusals {
                            self.outlets.refusals.report_for::<S>(&identity, refusal);
                        }
                        return Ok(Written::Done(true));
                    }
                    if more {
                        return Ok(Written::Finalizers);
                    }
                }
                Err(WriteError::Conflict) => {
                    tokio::time::sleep(doubled(CONFLICT, attempt, Duration::from_secs(2))).await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(WriteError::Conflict)
    }
}
