//! The way to a Pangolin. While it fails it is asked by one caller after a pause, and all others get the same error, so that a thousand
//! Ingresses do not ask a server that is down. A probe, which needs no key, ends the pause after a silence; a list ends any other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use signpost_engine::Touch;
use signpost_engine::health::{Check, Health};
use signpost_planning::doubled;
use signpost_provider_pangolin::{Domain, ErrorClass, Listed, Pangolin, PangolinError, Site};
use tokio::time::Instant;

use crate::index::{Key, Keys, PangolinIndex};

/// How often it is asked whether it answers.
const EVERY: Duration = Duration::from_secs(10);
/// The first pause after a failure; doubled up to the longest.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest pause.
const LONGEST: Duration = Duration::from_mins(1);

/// The way to a Pangolin.
pub(crate) struct Link {
    pub(crate) pangolin: Arc<dyn Pangolin>,
    down: Mutex<Option<Down>>,
    /// Locked by the caller that asks; others wait for its answer.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Down {
    until: Instant,
    failures: u32,
    error: PangolinError,
}

impl Link {
    pub(crate) fn new(pangolin: Arc<dyn Pangolin>) -> Self {
        Self { pangolin, down: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    fn down(&self) -> MutexGuard<'_, Option<Down>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Domains, sites and resources, from lists that are at most so old where it matters.
    pub(crate) async fn read(&self, age: Duration) -> Result<Lists, PangolinError> {
        let _asking = self.asking.lock().await;
        if let Some(down) = self.down().as_ref().filter(|down| Instant::now() < down.until) {
            return Err(down.error.clone());
        }
        let lists = async {
            let domains = self.pangolin.domains().await?;
            let sites = self.pangolin.sites().await?;
            Ok((domains, sites, self.pangolin.resources(age).await?))
        };
        let before = self.pangolin.answers();
        let lists = lists.await;
        match &lists {
            // A list from memory is not an answer of the server.
            Ok(_) if self.pangolin.answers() == before => {}
            Ok(_) => *self.down() = None,
            Err(error) => self.note(error),
        }
        lists
    }

    /// Records the error of a call. An error about one object proves nothing about the server.
    pub(crate) fn note(&self, error: &PangolinError) {
        let mut down = self.down();
        let asked = match error.class() {
            ErrorClass::Object => return,
            ErrorClass::Throttled(after) => after,
            ErrorClass::Transient if matches!(error, PangolinError::NotFound { .. }) => return,
            ErrorClass::Transient | ErrorClass::Settings => None,
        };
        let now = Instant::now();
        let failures = down.as_ref().map_or(0, |down| down.failures);
        if down.as_ref().is_some_and(|down| now < down.until) {
            return;
        }
        if failures == 0 {
            tracing::error!(reason = error.reason(), %error, "Pangolin cannot be used");
        }
        let until = now + asked.unwrap_or_default().max(doubled(PAUSE, failures, LONGEST));
        *down = Some(Down { until, failures: failures + 1, error: error.clone() });
    }

    /// Asks again and again whether it answers, and ends the pause when it does after a silence.
    pub(crate) async fn watch(self: Arc<Self>, health: Health, index: Arc<PangolinIndex>, queue: Keys) {
        let mut silent = false;
        loop {
            let answer = self.pangolin.probe().await;
            if answer.is_ok() && silent {
                *self.down() = None;
                index.touch_all();
                queue.touch(Key::Sweep, Touch::One(()));
            }
            silent = answer.is_err();
            // Whether the key is accepted again is seen by a list; nobody else may have a reason to ask.
            let due = self.down().as_ref().is_some_and(|down| Instant::now() >= down.until);
            if !silent && due {
                let _ = self.read(Duration::ZERO).await;
            }
            let failed = answer.err().or_else(|| self.down().as_ref().map(|down| down.error.clone()));
            let check = failed.map_or(Check::Ok, |error| Check::failing(format!("Pangolin: {error}")));
            health.set(crate::NAME, check);
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// Domains, sites and resources.
pub(crate) type Lists = (Arc<[Domain]>, Arc<[Site]>, Arc<[Listed]>);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use futures::future::{BoxFuture, join_all};
    use signpost_provider_pangolin::{
        Connection, Incoming, Outgoing, PangolinClient, Secret, Transport, parse_base_url,
    };

    use super::*;

    /// A server that gives no answer, and the number of calls.
    #[derive(Debug, Default)]
    struct Silent(AtomicUsize);

    impl Transport for Silent {
        fn carry(&self, _: Outgoing) -> BoxFuture<'_, Result<Incoming, PangolinError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            async {
                tokio::time::sleep(Duration::from_secs(15)).await;
                Err(PangolinError::Timeout)
            }
            .boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_wait_for_a_silent_server_share_one_failure() {
        let (server, base) = (Arc::new(Silent::default()), parse_base_url("http://pangolin.test").unwrap());
        let connection = Connection::new(base, "home", Secret::Value("id.secret".into()));
        let link = Link::new(Arc::new(PangolinClient::over(server.clone(), &connection)));
        let began = Instant::now();
        let answers = join_all((0..16).map(|_| link.read(Duration::MAX))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(PangolinError::Timeout))));
        assert_eq!((began.elapsed().as_secs(), server.0.load(Ordering::SeqCst)), (15, 1));
    }
}
