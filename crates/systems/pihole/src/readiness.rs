//! Whether Pi-holes answer: ready when at least one does. No session is taken for it, one that is slow to answer delays no other,
//! and one that is to be left alone is not asked. When one that had failed answers again, its work goes on at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use signpost_engine::health::{Check, Health};
use signpost_engine::{Clock, Queue, Touch};
use signpost_provider_pihole::PiholeError;

use crate::index::IngressKey;
use crate::instance::Instance;

/// How often a Pi-hole is asked whether it answers.
const EVERY: Duration = Duration::from_secs(10);
/// How often one is asked that refuses connections: nobody is bothered, and it may be back at any moment.
const AGAIN: Duration = Duration::from_secs(1);

/// What keeps `/readyz` up to date.
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
    pub(crate) async fn watch(self, instances: Vec<Arc<Instance>>, queue: Queue<String, IngressKey>) {
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
        let quiet = instance.memory().quiet_until.filter(|until| now < *until);
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

/// What the silence of some Pi-holes means for readiness.
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
    async fn rows_34_37_and_41_only_one_that_refuses_connections_is_asked_again_at_once() {
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
        instance.memory().quiet_until = Some(clock.now() + minute);
        assert_eq!(readiness.ask(&instance).await, minute);
        assert!(!readiness.health.is_ready(), "it was not asked");
        tokio::time::advance(minute).await;
        assert_eq!(readiness.ask(&instance).await, EVERY);
        assert!(readiness.health.is_ready());
    }
}
