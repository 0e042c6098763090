//! A process of the operator, as the network sees it: alive, frozen or dead.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::time::Instant;

/// One process. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Process {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    dead: AtomicBool,
    frozen_until: Mutex<Option<Instant>>,
}

impl Process {
    /// A process that runs.
    pub fn new(name: String) -> Self {
        Self { inner: Arc::new(Inner { name, dead: AtomicBool::new(false), frozen_until: Mutex::new(None) }) }
    }

    /// Its name in the trace.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// From now on nothing leaves the process.
    pub fn kill(&self) {
        self.inner.dead.store(true, Ordering::Relaxed);
    }

    /// Nothing leaves or reaches the process until then.
    pub fn freeze(&self, until: Instant) {
        *self.inner.frozen_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Waits while the process is frozen, and indefinitely once it is dead.
    pub async fn runs(&self) {
        loop {
            if self.inner.dead.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let until = *self.inner.frozen_until.lock().unwrap_or_else(PoisonError::into_inner);
            match until {
                Some(until) if until > Instant::now() => tokio::time::sleep_until(until).await,
                _ => return,
            }
        }
    }
}
