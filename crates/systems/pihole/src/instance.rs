//! One Pi-hole and what is remembered of it between passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use signpost_dns::Fqdn;
use signpost_planning::Fingerprint;
use signpost_provider_pihole::{Line, Pihole};
use tokio::sync::Notify;

use crate::index::{Claimant, IngressKey};
use crate::ledger::Versioned;
use crate::plan::Refusal;

/// One Pi-hole.
pub struct Instance {
    /// Its name in logs, events and metrics.
    pub name: String,
    /// The way to it.
    pub pihole: Arc<dyn Pihole>,
    memory: Mutex<Memory>,
    /// Notified when the Pi-hole should be probed soon.
    pub(crate) doubted: Notify,
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
    /// What stops the aliases alone.
    pub(crate) aliases: Option<AliasError>,
    /// Hosts of an Ingress whose target cannot be understood, and who has them instead.
    pub(crate) yielded: Arc<BTreeMap<Fqdn, IngressKey>>,
    /// Whether the last pass failed in a way that a good probe disproves.
    pub(crate) waits_for_probe: bool,
}

/// What stops the aliases of a Pi-hole alone.
#[derive(Clone, Debug)]
pub(crate) struct AliasError {
    /// Its reason.
    pub(crate) reason: &'static str,
    /// Until when they are not tried again, unless the foreign lines change.
    pub(crate) until: Timestamp,
    /// What the foreign lines were then.
    pub(crate) others: u64,
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
        Self { name: name.into(), pihole, memory: Mutex::default(), doubted: Notify::new() }
    }

    /// Whether a good probe ends the pause after the last failure: the probe before it failed as well, or it is the first failure in a row (a restart
    /// between two probes). One that answers probes and fails otherwise keeps its pause.
    pub(crate) fn is_over(&self, was_silent: bool) -> bool {
        let mut memory = self.memory();
        if !memory.waits_for_probe || !(was_silent || memory.failures <= 1) {
            return false;
        }
        memory.waits_for_probe = false;
        memory.paused_until = None;
        true
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
