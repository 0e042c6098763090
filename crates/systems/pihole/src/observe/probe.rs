//! Whether Pi-holes answer: ready when at least one does. A probe takes no session. A slow Pi-hole delays no other,
//! and a throttled one is not asked. When a failed Pi-hole answers again, its work is resumed at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use signpost_engine::health::{Check, Health};
use signpost_engine::{Clock, Queue, Touch};
use signpost_provider_pihole::{Pihole, PiholeError};
use tokio::sync::Notify;

use crate::index::IngressId;

/// How often a Pi-hole is asked whether it answers.
const EVERY: Duration = Duration::from_secs(10);
/// How often a Pi-hole that refuses connections is asked: it costs nothing, and it may be back at any moment.
const AGAIN: Duration = Duration::from_secs(1);

/// One Pi-hole.
pub struct Instance {
    /// Its name in logs, events and metrics.
    pub name: String,
    /// The way to it.
    pub pihole: Arc<dyn Pihole>,
    after: Mutex<AfterPass>,
    /// Whether a good probe has ended a pause since the last pass that succeeded.
    woken: AtomicBool,
    /// Notified when the Pi-hole should be probed soon.
    doubted: Notify,
}

/// The result of the last pass, for the probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AfterPass {
    /// Until when nobody asks anything: the Pi-hole has had too many requests.
    pub(crate) quiet_until: Option<Timestamp>,
    /// Whether it failed in a way that a good probe disproves.
    pub(crate) waits_for_probe: bool,
    /// Failures in a row.
    pub(crate) failures: u32,
}

impl Instance {
    /// A Pi-hole by this name.
    pub fn new(name: impl Into<String>, pihole: Arc<dyn Pihole>) -> Self {
        Self {
            name: name.into(),
            pihole,
            after: Mutex::default(),
            woken: AtomicBool::new(false),
            doubted: Notify::new(),
        }
    }

    fn after(&self) -> MutexGuard<'_, AfterPass> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of how a pass ended.
    pub(crate) fn passed(&self, after: AfterPass) {
        *self.after() = after;
        if after.waits_for_probe {
            self.doubted.notify_one();
        } else {
            self.woken.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a good probe ends the pause after the last failure: the probe before it failed as well, or it is the first failure in a row (a restart
    /// between two probes), once. A Pi-hole that answers probes and fails otherwise keeps its pause.
    fn is_over(&self, was_silent: bool) -> bool {
        let mut after = self.after();
        let first = after.failures <= 1 && !self.woken.load(Ordering::Relaxed);
        let over = after.waits_for_probe && (was_silent || first);
        if over {
            after.waits_for_probe = false;
            self.woken.store(true, Ordering::Relaxed);
        }
        over
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Keeps `/readyz` up to date.
pub(crate) struct Readiness {
    health: Health,
    clock: Arc<dyn Clock>,
    /// How long a Pi-hole that has had too many requests is not asked.
    throttle: Duration,
    /// Why each Pi-hole is not counted, if it is not.
    silent: Mutex<BTreeMap<String, Option<String>>>,
}

impl Readiness {
    pub(crate) fn new(health: Health, clock: Arc<dyn Clock>, throttle: Duration) -> Self {
        Self { health, clock, throttle, silent: Mutex::default() }
    }

    /// Asks every Pi-hole again and again, each at its own pace.
    pub(crate) async fn watch(self, instances: Vec<Arc<Instance>>, queue: Queue<String, IngressId>) {
        if instances.is_empty() {
            self.health.set("pihole", Check::Ok);
        }
        let unheard = |instance: &Arc<Instance>| (instance.name.clone(), Some("no answer yet".to_owned()));
        self.silent().extend(instances.iter().map(unheard));
        let each = instances.iter().map(|instance| async {
            let mut answered = true;
            loop {
                let pause = self.ask(instance).await;
                let answers = self.answers(&instance.name);
                if answers && instance.is_over(!answered) {
                    queue.touch(instance.name.clone(), Touch::All);
                    queue.wake(&instance.name);
                }
                answered = answers;
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(pause) => {}
                    // A pass has failed: whether it answers is asked now and not at the next time.
                    () = instance.doubted.notified() => {}
                }
            }
        });
        futures::future::join_all(each).await;
    }

    fn silent(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answers(&self, instance: &str) -> bool {
        self.silent().get(instance).is_some_and(Option::is_none)
    }

    /// Asks one Pi-hole, unless it is to be left alone; how long to wait before the next time.
    async fn ask(&self, instance: &Instance) -> Duration {
        let now = self.clock.now();
        let quiet = instance.after().quiet_until.filter(|until| now < *until);
        if let Some(until) = quiet {
            return now.duration_until(until).unsigned_abs();
        }
        let answer = instance.pihole.probe().await;
        let pause = match &answer {
            Err(error) if error.is_quick() => AGAIN,
            Err(PiholeError::RateLimited { retry_after }) => self.throttle.max(retry_after.unwrap_or_default()),
            Ok(()) | Err(_) => EVERY,
        };
        let mut silent = self.silent();
        silent.insert(instance.name.clone(), answer.err().map(|error| error.to_string()));
        self.health.set("pihole", judge(&silent));
        pause
    }
}

/// The readiness while some Pi-holes do not answer.
fn judge(silent: &BTreeMap<String, Option<String>>) -> Check {
    let reasons: Vec<String> =
        silent.iter().filter_map(|(name, why)| Some(format!("{name}: {}", why.as_ref()?))).collect();
    if reasons.is_empty() {
        Check::Ok
    } else if reasons.len() < silent.len() {
        Check::degraded(reasons.join("; "))
    } else {
        Check::failing(format!("no Pi-hole answers: {}", reasons.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use signpost_engine::ManualClock;
    use signpost_provider_pihole::MemoryPihole;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rows_34_37_and_41_only_a_refused_connection_is_retried_at_once() {
        let pihole = MemoryPihole::new();
        let instance = Instance::new("pihole", Arc::new(pihole.clone()));
        let clock = Arc::new(ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
        let minute = Duration::from_mins(1);
        let readiness = Readiness::new(
            Health::new(signpost_engine::metrics::Metrics::new()),
            Arc::clone(&clock) as Arc<dyn Clock>,
            minute,
        );
        let server = |status| PiholeError::Server { status, detail: String::new() };
        let refused = |quick| PiholeError::Unreachable { what: "refused".into(), quick };
        let after = |retry_after| PiholeError::RateLimited { retry_after };
        for (answer, pause) in [
            (None, EVERY),
            (Some(refused(true)), AGAIN),
            (Some(refused(false)), EVERY),
            (Some(PiholeError::Timeout), EVERY),
            (Some(PiholeError::Unauthorized), EVERY),
            (Some(PiholeError::NotAPihole { status: 404 }), EVERY),
            (Some(server(500)), EVERY),
            (Some(after(None)), minute),
            (Some(after(Some(2 * minute))), 2 * minute),
        ] {
            pihole.fail(answer.clone());
            assert_eq!(readiness.ask(&instance).await, pause, "{answer:?}");
        }
        // While the worker leaves it alone, so does this.
        pihole.fail(None);
        assert!(!readiness.health.is_ready());
        instance.passed(AfterPass { quiet_until: Some(clock.now() + minute), ..AfterPass::default() });
        assert_eq!(readiness.ask(&instance).await, minute);
        assert!(!readiness.health.is_ready(), "it was not asked");
        tokio::time::advance(minute).await;
        assert_eq!(readiness.ask(&instance).await, EVERY);
        assert!(readiness.health.is_ready());
    }

    #[test]
    fn a_good_probe_ends_only_the_pause_of_a_silent_pihole() {
        let instance = Instance::new("pihole", Arc::new(MemoryPihole::new()));
        let failed = |failures| instance.passed(AfterPass { waits_for_probe: true, failures, ..AfterPass::default() });
        assert!(!instance.is_over(true), "it did not fail");
        failed(1);
        assert!(instance.is_over(false), "it restarted between two probes");
        failed(1);
        assert!(!instance.is_over(false), "it failed again: once is enough");
        instance.passed(AfterPass::default());
        failed(1);
        assert!(instance.is_over(false), "it has worked in between");
        failed(3);
        assert!(!instance.is_over(false), "it answers probes and fails all the same");
        assert!(instance.is_over(true));
    }
}
