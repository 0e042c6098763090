//! Is the process alive, is it ready, and if not, what is missing and what to do about it.
//!
//! In: named checks that the hub, the lease and the systems keep up to date. Out: `/healthz`, `/readyz` (text, or JSON when asked for)
//! and `/metrics` on one server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::metrics::Metrics;

/// The state of one check.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Check {
    /// As it should be.
    Ok,
    /// Worth knowing, but the process is ready: a provider is down, an optional kind is not installed.
    Degraded {
        /// What is wrong.
        message: String,
    },
    /// The process is not ready.
    Failing {
        /// What is missing.
        message: String,
        /// What to do about it, e.g. a command.
        fix: Option<String>,
    },
}

impl Check {
    /// A failing check with nothing to suggest.
    pub fn failing(message: impl Into<String>) -> Self {
        Self::Failing { message: message.into(), fix: None }
    }

    /// A failing check and what to do about it.
    pub fn failing_with_fix(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Failing { message: message.into(), fix: Some(fix.into()) }
    }

    /// A degraded check.
    pub fn degraded(message: impl Into<String>) -> Self {
        Self::Degraded { message: message.into() }
    }
}

/// The checks of this process. Cloning gives another handle to the same checks.
#[derive(Clone, Debug)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
    metrics: Metrics,
}

impl Health {
    /// No checks yet: ready.
    pub fn new(metrics: Metrics) -> Self {
        Self { checks: Arc::default(), metrics }
    }

    /// Sets a check by name, e.g. `provider powerdns`.
    pub fn set(&self, name: impl Into<String>, check: Check) {
        self.lock().insert(name.into(), check);
    }

    /// Removes a check.
    pub fn clear(&self, name: &str) {
        self.lock().remove(name);
    }

    /// True when no check is failing.
    pub fn is_ready(&self) -> bool {
        !self.lock().values().any(|check| matches!(check, Check::Failing { .. }))
    }

    /// All checks, by name.
    pub fn checks(&self) -> BTreeMap<String, Check> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Check>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
