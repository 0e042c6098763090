//! The desired lines of one Pi-hole, and the changes that may be made to get there. Pure: no I/O, no clock, no log.
//!
//! ```text
//! claimants ─► claims (oldest, then UID) ─► wanted per host and type ─┐
//! listing ──► own lines │ foreign lines ─────────────────────────────┼─► changes · refusals · what is paused
//! released, policy, guard ────────────────────────────────────────────┘
//! ```
//! A line that is not provably ours is never changed, except under the policy `overwrite`, and then only one that
//! holds a claimed host alone. Nothing that could not be read ever causes a deletion.

mod aliases;
mod change;
mod claimed;
mod hosts;
mod lines;
mod ownership;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signpost_planning::{GuardMemory, Reason, doubled};
use signpost_provider_pihole::{Line, Listing};

use crate::apply::Versioned;
use crate::index::{Claimant, Snapshot};
use crate::observe::{Observed, Sight};
use crate::settings::Policy;

pub use change::{Change, Planned, RecordRefusal, Slot, Value};
pub(crate) use hosts::claims_of;
pub(crate) use lines::{other_lines, own_hosts};
pub use ownership::{Ledger, Ownership};
pub(crate) use ownership::{Uncertain, address_of};

/// Everything a plan is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanInput<'a> {
    /// The requests of Ingresses.
    pub(crate) snapshot: &'a Snapshot,
    /// The lines in the Pi-hole.
    pub(crate) listing: &'a Listing,
    /// How our lines are recognised.
    pub(crate) ownership: &'a Ownership,
    /// The rules.
    pub(crate) policy: &'a Policy,
    /// Whether the resolver may be restarted now.
    pub(crate) may_restart: bool,
    /// The time.
    pub(crate) now: Timestamp,
}

/// The memory of a Pi-hole between passes. Losing it costs a pass, never a record.
#[derive(Debug, Default)]
pub struct Memory {
    /// Failures in a row, each after the pause of the one before.
    pub(crate) failures: u32,
    /// When the pause after the last failure ends.
    pub(crate) paused_until: Option<Timestamp>,
    /// Writes in a row that did not stay.
    pub(crate) rounds: u32,
    /// Writes of aliases in a row that did not stay: each makes the time to the next restart longer.
    pub(crate) undone: u32,
    /// A large deletion that waits, and since when.
    pub(crate) guard: GuardMemory,
    /// When the resolver was last restarted by us.
    pub(crate) restarted: Option<Timestamp>,
    /// The refusals that have been reported already.
    pub(crate) reported: BTreeSet<RecordRefusal>,
    /// The error that has been reported already.
    pub(crate) error: Option<Reason>,
    /// The error that stops the aliases alone.
    pub(crate) aliases: Option<AliasError>,
    /// The lines that were permanently refused, and the foreign lines at that time.
    pub(crate) refused: Option<(u64, BTreeMap<Line, RefusedLine>)>,
    /// The ledger as last read or written.
    pub(crate) ledger: Option<Versioned>,
    /// Whether this process wrote the ledger since it read it: no earlier request can change it any more.
    pub(crate) ledger_written: bool,
    /// The records of requests without an answer; None until the ledger is read for the first time.
    pub(crate) uncertain: Option<Uncertain>,
}

impl Memory {
    /// How long the resolver is left alone after a restart: longer while what it was restarted for does not stay.
    pub(crate) fn restart_pause(&self, usual: Duration) -> Duration {
        doubled(usual, self.undone, usual * 10)
    }

    /// Until when aliases wait for their list, where the foreign lines are still these.
    pub(crate) fn aliases_wait_until(&self, others: u64, now: Timestamp) -> Option<Timestamp> {
        self.aliases.as_ref().filter(|error| error.others == others && now < error.until).map(|error| error.until)
    }
}

/// The error that stops the aliases of a Pi-hole alone.
#[derive(Clone, Debug)]
pub(crate) struct AliasError {
    /// Its reason.
    pub(crate) reason: Reason,
    /// Until when they are not tried again, unless the foreign lines change.
    pub(crate) until: Timestamp,
    /// The foreign lines at that time.
    pub(crate) others: u64,
}

/// A line that was permanently refused.
#[derive(Clone, Debug)]
pub(crate) struct RefusedLine {
    /// The Pi-hole's message.
    pub(crate) message: String,
    /// The Ingress it was for, as it was then.
    pub(crate) claimant: Option<Arc<Claimant>>,
}

/// The changes to apply.
#[derive(Debug)]
pub struct Plan {
    pub(crate) observed: Observed,
    pub(crate) planned: Planned,
    /// Lines that are not sent again, with the Pi-hole's message to them.
    pub(crate) spared: BTreeMap<Line, RefusedLine>,
}

/// Decides.
pub(crate) fn plan(mut observed: Observed, now: Timestamp) -> Plan {
    let mut spared = BTreeMap::new();
    let planned = match &observed.sight {
        Sight::Unneeded | Sight::Failed(_) => Planned::default(),
        Sight::Seen { listing, ownership } => {
            let (memory, policy, snapshot) = (&mut observed.memory, &*observed.policy, &observed.snapshot);
            let others = other_lines(listing, ownership);
            let pause = memory.restart_pause(policy.restart_pause);
            let rested = memory.restarted.is_none_or(|when| now.duration_since(when).unsigned_abs() >= pause);
            let may_restart = rested && memory.aliases_wait_until(others, now).is_none();
            let input = PlanInput { snapshot, listing, ownership, policy, may_restart, now };
            let mut planned = hosts::make(&input, &mut memory.guard);
            if let Some((_, refused)) = memory.refused.as_ref().filter(|(before, _)| *before == others) {
                spared = spare(&mut planned, refused, snapshot);
            }
            planned
        }
    };
    Plan { observed, planned, spared }
}

/// Removes the changes that the Pi-hole would refuse again: neither the Ingress nor the Pi-hole has changed.
fn spare(
    planned: &mut Planned,
    refused: &BTreeMap<Line, RefusedLine>,
    snapshot: &Snapshot,
) -> BTreeMap<Line, RefusedLine> {
    let mut spared = BTreeMap::new();
    for change in std::mem::take(&mut planned.changes) {
        let now = change.ingress.as_ref().and_then(|ingress| snapshot.claimant(ingress));
        let before = change.lines().find_map(|line| refused.get_key_value(line));
        match before.filter(|(_, before)| match (&before.claimant, now) {
            (Some(before), Some(now)) => before.asks_the_same(now),
            (before, now) => before.is_none() && now.is_none(),
        }) {
            None => planned.changes.push(change),
            Some((line, before)) => {
                spared.insert(line.clone(), before.clone());
                let message = before.message.clone();
                planned.refuse(change.ingress.as_ref(), Some(&change.host), Reason::LineRefused, message);
            }
        }
    }
    spared
}

#[cfg(test)]
mod tests;
