//! One Pi-hole and what is remembered of it between passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use signpost_dns::Fqdn;
use signpost_planning::Fingerprint;
use signpost_provider_pihole::{Line, Pihole};

use crate::index::Claimant;
use crate::ledger::Versioned;
use crate::plan::Refusal;

/// One Pi-hole.
pub struct Instance {
    /// Its name in logs, events and metrics.
    pub name: String,
    /// The way to it.
    pub pihole: Arc<dyn Pihole>,
    memory: Mutex<Memory>,
}

/// What is remembered between passes. Losing it costs a pass, never a record.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Failures in a row, each after the pause of the one before.
    pub(crate) failures: u32,
    /// When the pause after the last failure ends.
    pub(crate) paused_until: Option<Timestamp>,
    /// Until when nobody asks anything: the Pi-hole has had too many requests.
    pub(crate) quiet_until: Option<Timestamp>,
    /// Writes in a row that did not stay.
    pub(crate) rounds: u32,
    /// Writes of aliases in a row that did not stay: each makes the time to the next restart longer.
    pub(crate) undone: u32,
    /// A large deletion that waits, and since when.
    pub(crate) held: Option<(Fingerprint, Timestamp)>,
    /// When the resolver was last restarted by us.
    pub(crate) restarted: Option<Timestamp>,
    /// The hosts that had a record of ours at the end of the last good pass.
    pub(crate) present: Option<Arc<BTreeSet<Fqdn>>>,
    /// What has been said already.
    pub(crate) said: BTreeSet<Refusal>,
    /// The trouble that has been said already.
    pub(crate) trouble: Option<&'static str>,
    /// The lines that were refused for good, and what other people's lines were then.
    pub(crate) refused: Option<(u64, BTreeMap<Line, Refused>)>,
    /// The ledger as last read or written.
    pub(crate) ledger: Option<Versioned>,
}

/// A line that was refused for good.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// What was said.
    pub(crate) message: String,
    /// The Ingress it was for, as it was then.
    pub(crate) claimant: Option<Arc<Claimant>>,
}

impl Memory {
    /// How long the resolver is left alone after a restart: longer while what it was restarted for does not stay.
    pub(crate) fn restart_pause(&self, usual: Duration) -> Duration {
        (usual * 2_u32.saturating_pow(self.undone.min(4))).min(usual * 10)
    }
}

impl Instance {
    /// A Pi-hole by this name.
    pub fn new(name: impl Into<String>, pihole: Arc<dyn Pihole>) -> Self {
        Self { name: name.into(), pihole, memory: Mutex::default() }
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("name", &self.name).finish_non_exhaustive()
    }
}
