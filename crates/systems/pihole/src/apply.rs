//! Does what was planned: ledger, lines, a second read, ledger. The only step that writes to a Pi-hole.
//!
//! The second read decides what is done, not the answers. A pass can be cut off anywhere: the next
//! pass starts from what is there.

mod ledger;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use signpost_dns::Fqdn;
use signpost_engine::Touched;
use signpost_planning::Reason;
use signpost_provider_pihole::{ApplyResult, ChangeSet, Line, Listing, PiholeError};

use crate::PiholeSystem;
use crate::index::{IngressId, Snapshot, Standing};
use crate::metrics::log_done;
use crate::observe::probe::Instance;
use crate::observe::{Failure, Observed, Sight, reason_of};
use crate::plan::{
    self, AliasError, Change, Memory, Ownership, Plan, Planned, RecordRefusal, RefusedLine, Slot, Value,
};
use crate::report;
use crate::settings::Policy;

pub(crate) use ledger::CLUSTER_ID;
pub use ledger::{ConfigMaps, LedgerError, LedgerStore, Versioned};

/// How many missing foreign lines one pass reports.
const MOST_MISSING: usize = 10;

/// The result of a plan.
#[derive(Debug)]
pub struct PassResult {
    /// On which Pi-hole.
    pub(crate) instance: Arc<Instance>,
    /// The rules.
    pub(crate) policy: Arc<Policy>,
    /// For whom.
    pub(crate) snapshot: Snapshot,
    /// The touched Ingresses.
    pub(crate) touched: Touched<IngressId>,
    /// The memory.
    pub(crate) memory: Memory,
    /// Why another pass has to follow.
    pub(crate) waits: Option<Waits>,
    /// Whether aliases wait for the next allowed restart.
    pub(crate) deferred: bool,
    /// Changes that the second read did not show.
    pub(crate) missing: usize,
    /// The failure.
    pub(crate) failure: Option<Failure>,
    /// The former and the current error of aliases alone; None when no alias was tried.
    pub(crate) aliases: Option<(Option<Reason>, Option<PiholeError>)>,
    /// Everything that is refused.
    pub(crate) refusals: Vec<RecordRefusal>,
    /// The hosts that have a record of ours, when the Pi-hole was read with success: then views may be written.
    pub(crate) present: Option<usize>,
    /// The Ingress that every change is for, when there is only one.
    pub(crate) changed: Option<IngressId>,
    /// Write requests sent.
    pub(crate) writes: u32,
    /// The standings of all Pi-holes.
    pub(crate) standings: Vec<Standing>,
    /// The Ingresses with hosts that some Pi-hole has not confirmed to be deleted.
    pub(crate) unconfirmed: BTreeSet<IngressId>,
    /// The views that are not as they should be.
    pub(crate) views: BTreeMap<IngressId, Option<String>>,
}

/// Why another pass has to follow before the usual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A change that depended on this pass can be made now.
    NextStep,
    /// A large deletion waits for its second pass.
    Guard,
    /// Aliases wait for a restart that is allowed.
    Restart,
    /// Aliases wait until their list can be written again.
    Aliases(Timestamp),
}

impl PiholeSystem {
    pub(crate) async fn carry_out(&self, plan: Plan) -> PassResult {
        let Plan { observed, planned, mut spared } = plan;
        let Observed { instance, policy, snapshot, touched, sight, memory } = observed;
        let mut applied = PassResult {
            instance,
            policy,
            snapshot,
            touched,
            memory,
            waits: None,
            deferred: planned.deferred,
            missing: 0,
            failure: None,
            aliases: None,
            refusals: planned.refusals.clone(),
            present: None,
            changed: only_ingress(&planned.changes),
            writes: 0,
            standings: Vec::new(),
            unconfirmed: BTreeSet::new(),
            views: BTreeMap::new(),
        };
        let mut found = None;
        match sight {
            Sight::Unneeded => {}
            Sight::Failed(failure) => applied.failure = Some(failure),
            Sight::Seen { listing, ownership } => {
                applied.waits = waits_of(&planned, &applied.memory, &listing, &ownership, self.clock.now());
                let aliases = planned.deferred || planned.changes.iter().any(|change| change.slot == Slot::Cname);
                if let Some(over) = applied.memory.aliases.take_if(|_| !aliases) {
                    // No alias has to be written any more.
                    applied.aliases = Some((Some(over.reason), None));
                }
                // A foreign line that is added while this pass writes is a change: refused lines are tried again after it.
                let others = plan::other_lines(&listing, &ownership);
                if let Some((after, ownership, refused)) =
                    self.write(listing, ownership, others, &planned, &mut applied).await
                {
                    spared.extend(refused);
                    applied.memory.refused = (!spared.is_empty()).then_some((others, spared));
                    found = Some(self.confirm(&after, &ownership, planned, &mut applied));
                }
            }
        }
        applied.standings = self.index.stand(&applied.instance.name, found);
        applied.unconfirmed = self.index.unconfirmed();
        if applied.present.is_some() {
            applied.views = report::views(&applied.snapshot, &applied.standings);
            self.index.expect_views(applied.views.clone());
        }
        applied
    }

    /// Writes what was planned and reads it back; None when nothing is known for certain afterwards.
    async fn write(
        &self,
        before: Listing,
        mut ownership: Ownership,
        others: u64,
        planned: &Planned,
        applied: &mut PassResult,
    ) -> Option<(Listing, Ownership, BTreeMap<Line, RefusedLine>)> {
        let mut after = before;
        let mut refused = BTreeMap::new();
        if let Some(write_error) = after.write_error.clone() {
            // Nothing is written into a Pi-hole that would refuse it, or forget it at its next restart.
            applied.failure = Some(Failure { operation: "check settings", cause: write_error.into() });
        } else if !planned.changes.is_empty() {
            if let Err(error) = self.announce(&mut ownership, &planned.changes, applied).await {
                applied.failure = Some(Failure { operation: "write ledger", cause: error.into() });
                return None;
            }
            let changes = planned.change_set();
            let pihole = Arc::clone(&applied.instance.pihole);
            let mut written = pihole.apply(&changes).await;
            applied.writes = written.writes;
            // After an invalid line among the addresses, the aliases are written all the same.
            let is_refused = written
                .stopped
                .as_ref()
                .is_some_and(|error| !may_be_late(error) && !matches!(error, PiholeError::BadForeignLine { .. }));
            if changes.touches_cnames() > 0 && written.writes > 0 && written.aliases.is_none() && !is_refused {
                // It begins after the answer, not when the pass began. A write that was refused restarts nothing.
                applied.memory.restarted = Some(self.clock.now());
            }
            if let Some(error) = written.stopped.take() {
                if may_be_late(&error) {
                    doubt(ownership.ledger_mut(), &changes, &written, applied, self.clock.now());
                }
                applied.failure = Some(Failure { operation: operation_of(&planned.changes), cause: error.into() });
            }
            after = match pihole.list().await {
                Ok(listing) => listing,
                Err(error) => {
                    applied.failure.get_or_insert(Failure { operation: "list", cause: error.into() });
                    return None;
                }
            };
            refused = refused_lines(&written, planned, applied);
            applied.refusals.extend(missing_lines(written.sent.as_deref(), &changes, &after, &ownership));
            self.judge(&written, planned, &after, others, applied);
        }
        if let Err(error) = self.clear_up(&mut ownership, &after, &planned.changes, applied).await {
            applied.failure.get_or_insert(Failure { operation: "write ledger", cause: error.into() });
        }
        Some((after, ownership, refused))
    }

    /// Compares what was planned with what the second read shows.
    fn judge(&self, written: &ApplyResult, planned: &Planned, after: &Listing, others: u64, applied: &mut PassResult) {
        let refused: BTreeSet<&Line> = written.refused.iter().map(|(line, _)| line).collect();
        let postponed: BTreeSet<&Line> = written.postponed.iter().collect();
        // Blanks may have been tidied since.
        let present: BTreeSet<Line> = after.hosts.iter().chain(&after.cnames).map(Line::tidy).collect();
        let (mut tried, mut undone) = (false, false);
        let until = report::later(self.clock.now(), applied.policy.backoff * 10);
        for change in &planned.changes {
            tried |= change.slot == Slot::Cname;
            if change.lines().any(|line| refused.contains(line)) {
                continue;
            }
            if written.aliases.is_some() && change.slot == Slot::Cname {
                applied.waits = Some(Waits::Aliases(until));
            } else if change.lines().any(|line| postponed.contains(line)) {
                applied.waits = Some(Waits::Restart);
            } else if change.add.iter().all(|line| present.contains(&line.tidy()))
                && !change.remove.iter().any(|line| present.contains(&line.tidy()))
            {
                log_done(&applied.instance.name, change);
                if planned.unfinished {
                    applied.waits = Some(Waits::NextStep);
                }
            } else {
                applied.missing += 1;
                undone |= change.slot == Slot::Cname;
            }
        }
        if tried && applied.failure.is_none() {
            let before = applied.memory.aliases.take().map(|error| error.reason);
            applied.memory.aliases =
                written.aliases.as_ref().map(|error| AliasError { reason: reason_of(error), until, others });
            if written.aliases.is_none() && written.writes > 0 {
                applied.memory.undone = if undone { applied.memory.undone.saturating_add(1) } else { 0 };
            }
            applied.aliases = Some((before, written.aliases.clone()));
        }
    }

    /// Passes on what a Pi-hole that was read with success holds.
    fn confirm(&self, after: &Listing, ownership: &Ownership, planned: Planned, applied: &mut PassResult) -> Standing {
        let present = plan::own_hosts(after, ownership);
        let (snapshot, instance) = (&applied.snapshot, &applied.instance.name);
        let claims = plan::claims_of(snapshot);
        let settled = |host: &&Fqdn| !present.contains(*host) || claims.holder_of(host).is_some();
        self.index.confirm(instance, snapshot, snapshot.released.keys().filter(settled).cloned());
        applied.present = Some(present.len());
        let mut refusals: BTreeMap<IngressId, Vec<_>> = BTreeMap::new();
        let mut refused = BTreeMap::new();
        for refusal in &applied.refusals {
            if let Some(id) = &refusal.ingress {
                refusals.entry(id.clone()).or_default().push(refusal.on(instance));
                let host = refusal.host.clone().map(|host| (id.clone(), host));
                refused.extend(host.map(|place| (place, refusal.on(instance))));
            }
        }
        Standing {
            present: Some(Arc::new(present)),
            yielded: Arc::new(planned.yielded),
            refusals: Arc::new(refusals),
            refused: Arc::new(refused),
        }
    }

    async fn save(&self, ledger: plan::Ledger, applied: &mut PassResult) -> Result<(), LedgerError> {
        let version = applied.memory.ledger.take().and_then(|known| known.version);
        // After a failure nobody knows what is there: it is read again.
        applied.memory.ledger_written = false;
        let saved = self.ledgers.save(&applied.instance.name, Versioned { ledger, version }).await?;
        applied.memory.ledger = Some(saved);
        applied.memory.ledger_written = true;
        Ok(())
    }

    /// Writes down what is about to be created. What is listed already is written again where the ledger was only read: an earlier request
    /// may still remove it.
    async fn announce(
        &self,
        ownership: &mut Ownership,
        changes: &[Change],
        applied: &mut PassResult,
    ) -> Result<(), LedgerError> {
        let Ownership::Ledger(ledger) = ownership else { return Ok(()) };
        let (mut creates, mut grown) = (false, false);
        for change in changes {
            if let Some(Value::Address(ip)) = &change.new {
                creates = true;
                grown |= ledger.add(&change.host, *ip);
            }
        }
        if grown || (creates && !applied.memory.ledger_written) {
            self.save(ledger.clone(), applied).await
        } else {
            Ok(())
        }
    }

    /// Strikes out what is deleted. What may still arrive (its request failed, or ended without an answer) stays.
    async fn clear_up(
        &self,
        ownership: &mut Ownership,
        after: &Listing,
        changes: &[Change],
        applied: &mut PassResult,
    ) -> Result<(), LedgerError> {
        // By content, not by text: blanks, upper case or a dot at the end make no other record.
        let unmarked = after.hosts.iter().filter(|line| !line.is_marked());
        let mut present: BTreeSet<_> = unmarked.filter_map(plan::address_of).collect();
        if applied.failure.is_some() {
            present.extend(changes.iter().filter_map(|change| plan::address_of(change.add.as_ref()?)));
        }
        let uncertain = applied.memory.uncertain.get_or_insert_default();
        uncertain.expire(self.clock.now(), applied.policy.grace);
        let stays = |host: &Fqdn, ip| uncertain.holds(host, ip) || present.contains(&(ip, host.clone()));
        let ledger = ownership.ledger_mut();
        let shrunk = ledger.retain(stays);
        if shrunk { self.save(ledger.clone(), applied).await } else { Ok(()) }
    }
}

/// Whether the Pi-hole may still carry out a request that failed so: no answer of its own has come.
fn may_be_late(error: &PiholeError) -> bool {
    matches!(
        error,
        PiholeError::Timeout | PiholeError::Unreachable { .. } | PiholeError::Server { status: 502..=504, .. }
    )
}

/// Notes the records of ours that a request without an answer was about: its additions, or all of a list that was sent as a whole.
fn doubt(ledger: &plan::Ledger, changes: &ChangeSet, written: &ApplyResult, applied: &mut PassResult, now: Timestamp) {
    let uncertain = applied.memory.uncertain.get_or_insert_default();
    let sent = changes.add_hosts.iter().chain(written.sent.iter().flatten());
    for (ip, host) in sent.filter_map(plan::address_of).filter(|(ip, host)| ledger.holds(host, *ip)) {
        uncertain.add(&host, ip, now);
    }
}

/// What a plan waits for, before anything is done.
fn waits_of(
    planned: &Planned,
    memory: &Memory,
    listing: &Listing,
    ownership: &Ownership,
    now: Timestamp,
) -> Option<Waits> {
    if planned.paused {
        return Some(Waits::Guard);
    }
    let stopped = || memory.aliases_wait_until(plan::other_lines(listing, ownership), now);
    planned.deferred.then(|| stopped().map_or(Waits::Restart, Waits::Aliases))
}

/// The lines that the Pi-hole refused, each for whom; they are refusals of their Ingresses too.
fn refused_lines(written: &ApplyResult, planned: &Planned, applied: &mut PassResult) -> BTreeMap<Line, RefusedLine> {
    let mut lines = BTreeMap::new();
    for (line, error) in &written.refused {
        let change = planned.changes.iter().find(|change| change.lines().any(|own| own == line));
        let claimant = change.and_then(|change| applied.snapshot.claimant(change.ingress.as_ref()?)).cloned();
        lines.insert(line.clone(), RefusedLine { message: error.to_string(), claimant });
        applied.refusals.push(RecordRefusal {
            ingress: change.and_then(|change| change.ingress.clone()),
            host: change.map(|change| change.host.clone()),
            reason: Reason::LineRefused,
            message: error.to_string(),
        });
    }
    lines
}

/// The foreign lines that were sent as part of the whole list and are not there afterwards.
fn missing_lines(
    sent: Option<&[Line]>,
    changes: &ChangeSet,
    after: &Listing,
    ownership: &Ownership,
) -> Vec<RecordRefusal> {
    let after: BTreeSet<Line> = after.hosts.iter().map(Line::tidy).collect();
    let lost = |line: &&Line| {
        ownership.own_address(line).is_none() && !changes.add_hosts.contains(line) && !after.contains(&line.tidy())
    };
    let refusal = |line: &Line| {
        let line: String = line.as_str().chars().take(120).collect();
        let message = format!(
            "the line {line:?} was on the Pi-hole before this write and is not there after it. If you did not delete it, add it again: something else writes this Pi-hole at the same time"
        );
        RecordRefusal { ingress: None, host: None, reason: Reason::ForeignLineMissing, message }
    };
    sent.unwrap_or_default().iter().filter(lost).take(MOST_MISSING).map(refusal).collect()
}

/// The Ingress that every change is for, when there is only one.
fn only_ingress(changes: &[Change]) -> Option<IngressId> {
    let first = changes.first()?.ingress.clone()?;
    changes.iter().all(|change| change.ingress.as_ref() == Some(&first)).then_some(first)
}

fn operation_of(changes: &[Change]) -> &'static str {
    let (mut adds, mut removes) = (false, false);
    for change in changes {
        adds |= change.add.is_some();
        removes |= !change.remove.is_empty();
    }
    match (adds, removes) {
        (true, false) => "create",
        (false, true) => "delete",
        _ => "update",
    }
}

#[cfg(test)]
mod tests;
