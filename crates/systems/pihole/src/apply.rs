//! Does what was planned: ledger, lines, a second look, ledger. The only step that writes to a Pi-hole.
//!
//! What counts as done is what the second look shows, not what the answers said. It can be cut off anywhere: the next
//! pass starts from what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signpost_dns::Fqdn;
use signpost_engine::Touched;
use signpost_provider_pihole::{ChangeSet, ErrorClass, Line, Listing, PiholeError};

use crate::PiholeSystem;
use crate::index::{IngressKey, Problem, Snapshot};
use crate::instance::{AliasError, Instance, Refused};
use crate::ledger::{Ledger, LedgerError, Versioned};
use crate::observe::{Cause, Failure, Observed, Sight};
use crate::ownership::Ownership;
use crate::plan::{self, Change, Planned, Reason, Refusal, Slot, Value, World};

/// How often a write that did not stay is repeated at once.
pub(crate) const ROUNDS: u32 = 3;

/// How many missing foreign lines one pass reports.
const MOST_MISSING: usize = 10;

/// What is to be done.
#[derive(Debug)]
pub struct Plan {
    pub(crate) observed: Observed,
    pub(crate) planned: Planned,
    /// Lines that are not sent again, with what the Pi-hole said to them.
    pub(crate) spared: BTreeMap<Line, Refused>,
}

/// What was done.
#[derive(Debug)]
pub struct Applied {
    /// On which Pi-hole.
    pub(crate) instance: Arc<Instance>,
    /// For whom.
    pub(crate) snapshot: Snapshot,
    /// What was touched.
    pub(crate) touched: Touched<IngressKey>,
    /// Changes that the second look did not show.
    pub(crate) missing: usize,
    /// What did not work.
    pub(crate) failure: Option<Failure>,
    /// What did not work with aliases alone, when it has not been reported before.
    pub(crate) alias_failure: Option<Failure>,
    /// Whether the trouble of this Pi-hole is news.
    pub(crate) trouble_is_new: bool,
    /// Refusals that have not been said before.
    pub(crate) news: Vec<Refusal>,
    /// Whether the Pi-hole was looked at with success, so that views may be written.
    pub(crate) looked: bool,
    /// What this Pi-hole waits for, when nothing failed.
    pub(crate) waits: Option<Waits>,
}

/// Why another look has to follow before the usual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// What was done lets something else be done.
    NextStep,
    /// A large deletion waits for its second look.
    Brake,
    /// Aliases wait for a restart that is allowed.
    Restart,
    /// Aliases wait until their list can be written again.
    Aliases,
}

impl PiholeSystem {
    pub(crate) fn decide(&self, observed: Observed, now: Timestamp) -> Plan {
        let mut spared = BTreeMap::new();
        let planned = match &observed.sight {
            Sight::Unneeded | Sight::Failed(_) => Planned::default(),
            Sight::Seen { listing, ownership } => {
                let others = plan::other_lines(listing, ownership);
                let (held, may_restart) = {
                    let memory = observed.instance.memory();
                    let waited = |since: Timestamp, pause: Duration| now.duration_since(since).unsigned_abs() >= pause;
                    let held = memory.held.filter(|(_, since)| waited(*since, self.policy.brake));
                    let pause = memory.restart_pause(self.policy.restart_pause);
                    let stopped = memory.aliases.as_ref().is_some_and(|it| it.others == others && now < it.until);
                    let may_restart = !stopped && memory.restarted.is_none_or(|when| waited(when, pause));
                    (held.map(|(fingerprint, _)| fingerprint), may_restart)
                };
                let snapshot = &observed.snapshot;
                let mut planned = plan::plan(&World {
                    snapshot,
                    listing,
                    ownership,
                    policy: &self.policy,
                    confirmed: held.as_ref(),
                    may_restart,
                });
                if let Some((before, refused)) = &observed.instance.memory().refused
                    && *before == others
                {
                    spared = spare(&mut planned, refused, snapshot);
                }
                planned
            }
        };
        Plan { observed, planned, spared }
    }

    pub(crate) async fn carry_out(&self, plan: Plan) -> Applied {
        let Plan { observed: Observed { instance, snapshot, touched, sight }, planned, mut spared } = plan;
        let now = self.clock.now();
        let mut applied = Applied {
            instance: Arc::clone(&instance),
            snapshot,
            touched,
            missing: 0,
            failure: None,
            trouble_is_new: false,
            news: Vec::new(),
            looked: false,
            alias_failure: None,
            waits: match (planned.held, planned.deferred) {
                (Some(_), _) => Some(Waits::Brake),
                (None, true) if instance.memory().aliases.as_ref().is_some_and(|it| now < it.until) => {
                    Some(Waits::Aliases)
                }
                (None, true) => Some(Waits::Restart),
                (None, false) => None,
            },
        };
        let mut refusals = planned.refusals.clone();
        match sight {
            Sight::Unneeded => {}
            Sight::Failed(failure) => applied.failure = Some(failure),
            Sight::Seen { listing, ownership } => {
                let write = self.write(&instance, listing, ownership, &planned, &mut applied, &mut refusals);
                let Some((refused, others)) = write.await else {
                    self.remember(&instance, &planned, &mut applied, refusals, now);
                    return applied;
                };
                spared.extend(refused);
                instance.memory().refused = (!spared.is_empty()).then_some((others, spared));
            }
        }
        self.remember(&instance, &planned, &mut applied, refusals, now);
        applied
    }

    async fn write(
        &self,
        instance: &Arc<Instance>,
        before: Listing,
        mut ownership: Ownership,
        planned: &Planned,
        applied: &mut Applied,
        refusals: &mut Vec<Refusal>,
    ) -> Option<(BTreeMap<Line, Refused>, u64)> {
        let fail = |operation, cause: Cause| Some(Failure { operation, cause });
        let mut after = before;
        let mut for_good = BTreeMap::new();
        if let Some(trouble) = after.trouble.clone() {
            // Nothing is written into a Pi-hole that would refuse it, or forget it at its next restart.
            applied.failure = fail("check settings", trouble.into());
        } else if !planned.changes.is_empty() {
            if let Err(error) = self.announce(instance, &mut ownership, &planned.changes).await {
                applied.failure = fail("write ledger", error.into());
                return None;
            }
            let changes = planned.change_set();
            let outcome = instance.pihole.apply(&changes).await;
            self.figures.written(&instance.name, outcome.writes);
            let restarted = changes.touches_cnames() > 0 && outcome.writes > 0 && outcome.aliases.is_none();
            if restarted {
                // It begins after the answer, not when the pass began.
                instance.memory().restarted = Some(self.clock.now());
            }
            applied.failure = outcome.stopped.and_then(|error| fail(operation_of(&planned.changes), error.into()));
            match instance.pihole.list().await {
                Ok(listing) => after = listing,
                Err(error) => {
                    applied.failure.get_or_insert(Failure { operation: "list", cause: error.into() });
                    return None;
                }
            }
            let refused: BTreeSet<&Line> = outcome.refused.iter().map(|(line, _)| line).collect();
            let postponed: BTreeSet<&Line> = outcome.postponed.iter().collect();
            for (line, error) in &outcome.refused {
                let change = planned.changes.iter().find(|change| change.lines().any(|own| own == line));
                let claimant = change.and_then(|change| applied.snapshot.claimant(change.ingress.as_ref()?));
                for_good.insert(line.clone(), Refused { message: error.to_string(), claimant });
                refusals.push(Refusal {
                    ingress: change.and_then(|change| change.ingress.clone()),
                    host: change.map(|change| change.host.clone()),
                    reason: Reason::LineRefused,
                    message: error.to_string(),
                });
            }
            refusals.extend(missing_lines(outcome.sent.as_deref(), &changes, &after, &ownership));
            // Blanks may have been tidied since.
            let present: BTreeSet<Line> = after.hosts.iter().chain(&after.cnames).map(Line::tidy).collect();
            let mut undone = false;
            for change in &planned.changes {
                if change.lines().any(|line| refused.contains(line)) {
                    continue;
                }
                if outcome.aliases.is_some() && change.slot == Slot::Cname {
                    applied.waits = Some(Waits::Aliases);
                    continue;
                }
                if change.lines().any(|line| postponed.contains(line)) {
                    applied.waits = Some(Waits::Restart);
                    continue;
                }
                if change.add.iter().all(|line| present.contains(&line.tidy()))
                    && !change.remove.iter().any(|line| present.contains(&line.tidy()))
                {
                    say_done(&instance.name, change);
                    if planned.unfinished {
                        applied.waits = Some(Waits::NextStep);
                    }
                } else {
                    applied.missing += 1;
                    undone |= change.slot == Slot::Cname;
                }
            }
            if changes.touches_cnames() > 0 && applied.failure.is_none() {
                let others = plan::other_lines(&after, &ownership);
                self.note_aliases(instance, outcome.aliases.map(|error| (error, others)), applied);
            }
            if restarted && applied.failure.is_none() {
                let mut memory = instance.memory();
                memory.undone = if undone { memory.undone.saturating_add(1) } else { 0 };
            }
        }
        if let Err(error) = self.clear_up(instance, &mut ownership, &after, &planned.changes, applied).await {
            applied.failure.get_or_insert(Failure { operation: "write ledger", cause: error.into() });
        }
        let present = plan::own_hosts(&after, &ownership);
        self.figures.records(&instance.name, present.len());
        let claims = plan::claims_of(&applied.snapshot);
        let settled = |host: &&Fqdn| !present.contains(*host) || claims.holder_of(host).is_some();
        let snapshot = &applied.snapshot;
        self.index.confirm(&instance.name, snapshot, snapshot.released.keys().filter(settled).cloned());
        instance.memory().present = Some(Arc::new(present));
        applied.looked = true;
        Some((for_good, plan::other_lines(&after, &ownership)))
    }

    /// Remembers what stops the aliases alone, and reports it once.
    fn note_aliases(&self, instance: &Instance, error: Option<(PiholeError, u64)>, applied: &mut Applied) {
        let before = instance.memory().aliases.take().map(|error| error.reason);
        let now = error.as_ref().map(|(error, _)| error.reason());
        if before != now {
            self.figures.trouble(&instance.name, before, now);
        }
        let Some((error, others)) = error else { return };
        let until = self.clock.now().saturating_add(self.policy.backoff * 10).unwrap_or(Timestamp::MAX);
        instance.memory().aliases = Some(AliasError { reason: error.reason(), until, others });
        if before != now {
            let failure = Failure { operation: "update aliases", cause: error.into() };
            say_failed(&instance.name, &applied.touched, &failure);
            applied.alias_failure = Some(failure);
        }
    }

    /// The ledger of a Pi-hole, read once.
    pub(crate) async fn ledger_of(&self, instance: &Instance) -> Result<Ledger, LedgerError> {
        if let Some(known) = &instance.memory().ledger {
            return Ok(known.ledger.clone());
        }
        let loaded = self.ledgers.load(&instance.name).await?;
        let ledger = loaded.ledger.clone();
        instance.memory().ledger = Some(loaded);
        Ok(ledger)
    }

    async fn save(&self, instance: &Instance, ledger: Ledger) -> Result<(), LedgerError> {
        let version = instance.memory().ledger.as_ref().and_then(|known| known.version.clone());
        let saved = self.ledgers.save(&instance.name, Versioned { ledger, version }).await;
        // After a failure nobody knows what is there: it is read again.
        instance.memory().ledger = saved.as_ref().ok().cloned();
        saved.map(|_| ())
    }

    /// Writes down what is about to be created.
    async fn announce(
        &self,
        instance: &Instance,
        ownership: &mut Ownership,
        changes: &[Change],
    ) -> Result<(), LedgerError> {
        let Ownership::Ledger(ledger) = ownership else { return Ok(()) };
        let mut grown = false;
        for change in changes {
            if let Some(Value::Address(ip)) = &change.new {
                grown |= ledger.add(&change.host, *ip);
            }
        }
        if grown { self.save(instance, ledger.clone()).await } else { Ok(()) }
    }

    /// Strikes out what is gone. What may still arrive (its request failed on the way) stays.
    async fn clear_up(
        &self,
        instance: &Instance,
        ownership: &mut Ownership,
        after: &Listing,
        changes: &[Change],
        applied: &Applied,
    ) -> Result<(), LedgerError> {
        let (Ownership::Ledger(ledger) | Ownership::Marker { unmarked: ledger, .. }) = ownership;
        // By what lines say, not by their text: blanks, upper case or a dot at the end make no other record.
        let says = |line: &Line| {
            let parts = line.address_parts();
            let ([name], Some(ip)) = (parts.names.as_slice(), parts.ip) else { return None };
            Some((Fqdn::parse(name).ok()?, ip))
        };
        let unmarked = after.hosts.iter().filter(|line| !line.is_marked());
        let mut present: BTreeSet<(Fqdn, std::net::IpAddr)> = unmarked.filter_map(says).collect();
        if applied.failure.is_some() {
            present.extend(changes.iter().filter_map(|change| says(change.add.as_ref()?)));
        }
        let shrunk = ledger.retain(|host, ip| present.contains(&(host.clone(), ip)));
        if shrunk { self.save(instance, ledger.clone()).await } else { Ok(()) }
    }

    /// Notes how the pass went, and says aloud what has not been said before.
    fn remember(
        &self,
        instance: &Instance,
        planned: &Planned,
        applied: &mut Applied,
        refusals: Vec<Refusal>,
        now: Timestamp,
    ) {
        self.figures.problems(&instance.name, &applied.snapshot.claimants);
        let mut memory = instance.memory();
        if applied.looked {
            memory.yielded = Arc::new(planned.yielded.clone());
        }
        if applied.looked || applied.failure.is_some() {
            applied.news = refusals.iter().filter(|refusal| !memory.said.contains(refusal)).cloned().collect();
            if applied.looked {
                self.figures.refusals(&instance.name, &refusals);
                memory.said = refusals.into_iter().collect();
            }
        }
        memory.held = match (planned.held, memory.held) {
            (Some(held), Some((before, since))) if before == held.fingerprint => Some((before, since)),
            (Some(held), _) => Some((held.fingerprint, now)),
            (None, held) if !applied.looked => held,
            (None, _) => None,
        };
        // Aliases that did not stay are not settled because they have to wait for the next restart.
        let settled = applied.missing == 0 && !(planned.deferred && memory.undone > 0);
        if applied.looked && applied.failure.is_none() {
            if settled {
                (memory.rounds, memory.undone) = (0, 0);
            } else if applied.missing > 0 {
                memory.rounds += 1;
            }
            if memory.rounds >= ROUNDS {
                let (missing, rounds) = (applied.missing, memory.rounds);
                applied.failure = Some(Failure { operation: "verify", cause: Cause::Unsettled { missing, rounds } });
                memory.rounds = 0;
            }
        }
        let trouble = applied.failure.as_ref().map(|failure| failure.cause.reason());
        let still = !settled && trouble.is_none() && memory.trouble == Some("Unsettled");
        if (applied.looked && !still) || trouble.is_some() {
            applied.trouble_is_new = trouble.is_some() && memory.trouble != trouble;
            if trouble.is_none() && memory.trouble.is_some() {
                tracing::info!(instance = %instance.name, "pi-hole works again");
            }
            self.figures.trouble(&instance.name, memory.trouble, trouble);
            memory.trouble = trouble;
        }
        if applied.looked && applied.failure.is_none() && !still {
            (memory.failures, memory.paused_until) = (0, None);
            memory.waits_for_probe = false;
        }
        drop(memory);
        for refusal in &applied.news {
            say_refused(&instance.name, refusal);
        }
        if let Some(failure) = &applied.failure {
            // What a person has to change is checked every few seconds and reported once.
            if applied.trouble_is_new || failure.cause.class() != ErrorClass::Instance {
                say_failed(&instance.name, &applied.touched, failure);
            }
        }
        let problems = self.voice.news(&self.index);
        for (ingress, problem) in &problems {
            say_problem(ingress, problem);
        }
        applied.news.extend(problems.into_iter().map(|(ingress, problem)| refusal_of(ingress, &problem)));
    }
}

/// The foreign lines that were sent as part of the whole list and are not there afterwards.
fn missing_lines(sent: Option<&[Line]>, changes: &ChangeSet, after: &Listing, ownership: &Ownership) -> Vec<Refusal> {
    let after: BTreeSet<Line> = after.hosts.iter().map(Line::tidy).collect();
    let lost = |line: &&Line| {
        ownership.own_address(line).is_none() && !changes.add_hosts.contains(line) && !after.contains(&line.tidy())
    };
    let refusal = |line: &Line| {
        let line: String = line.as_str().chars().take(120).collect();
        let message = format!(
            "the line {line:?} was on the Pi-hole before this write and is not there after it. If you did not delete it, add it again: something else writes this Pi-hole at the same time"
        );
        Refusal { ingress: None, host: None, reason: Reason::ForeignLineMissing, message }
    };
    sent.unwrap_or_default().iter().filter(lost).take(MOST_MISSING).map(refusal).collect()
}

/// Takes out of a plan what the Pi-hole has refused and would refuse again: neither the Ingress nor anything there has changed.
fn spare(planned: &mut Planned, refused: &BTreeMap<Line, Refused>, snapshot: &Snapshot) -> BTreeMap<Line, Refused> {
    let mut spared = BTreeMap::new();
    for change in std::mem::take(&mut planned.changes) {
        let now = change.ingress.as_ref().and_then(|ingress| snapshot.claimant(ingress));
        let before = change.lines().find_map(|line| refused.get_key_value(line));
        match before.filter(|(_, before)| match (&before.claimant, &now) {
            (Some(before), Some(now)) => before.asks_the_same(now),
            (before, now) => before.is_none() && now.is_none(),
        }) {
            None => planned.changes.push(change),
            Some((line, before)) => {
                spared.insert(line.clone(), before.clone());
                let Change { ingress, host, .. } = change;
                let message = before.message.clone();
                planned.refusals.push(Refusal { ingress, host: Some(host), reason: Reason::LineRefused, message });
            }
        }
    }
    spared
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

fn say_done(instance: &str, change: &Change) {
    let ingress = change.ingress.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string);
    let host = change.host.undotted();
    match (change.slot, &change.old, &change.new) {
        (Slot::Cname, None, Some(new)) => {
            tracing::info!(%ingress, host, target = %new, instance, "dns record created");
        }
        (Slot::Cname, Some(old), Some(new)) => {
            tracing::info!(%ingress, host, old_target = %old, new_target = %new, instance, "dns record updated");
        }
        (_, Some(old), Some(new)) if old == new && change.add.is_none() && change.remove.is_empty() => {
            tracing::info!(%ingress, host, ip = %new, instance, "dns record adopted");
        }
        (_, None, Some(new)) => tracing::info!(%ingress, host, ip = %new, instance, "dns record created"),
        (_, Some(old), Some(new)) => {
            tracing::info!(%ingress, host, old_ip = %old, new_ip = %new, instance, "dns record updated");
        }
        (_, _, None) => tracing::info!(%ingress, host, instance, "dns record deleted"),
    }
}

fn say_refused(instance: &str, refusal: &Refusal) {
    let ingress = refusal.ingress.as_ref().map_or_else(|| "*".to_owned(), ToString::to_string);
    let host = refusal.host.as_ref().map_or("", Fqdn::undotted);
    tracing::warn!(
        ingress,
        host,
        instance,
        reason = refusal.reason.as_str(),
        error = refusal.message,
        "dns record refused"
    );
}

fn say_failed(instance: &str, touched: &Touched<IngressKey>, failure: &Failure) {
    let ingress = match touched {
        Touched::Some(keys) if keys.len() == 1 => keys.first().map(ToString::to_string).unwrap_or_default(),
        Touched::Some(_) | Touched::All => "*".to_owned(),
    };
    let (operation, error, reason) = (failure.operation, failure.cause.to_string(), failure.cause.reason());
    tracing::error!(ingress, operation, error, instance, reason, "pi-hole api error");
    tracing::error!(ingress, error, instance, reason, "reconcile failed");
}

fn say_problem(ingress: &IngressKey, problem: &Problem) {
    match problem {
        Problem::Annotation { annotation, value, error } => {
            tracing::warn!(%ingress, annotation, value, error, "invalid annotation");
        }
        Problem::Host { host, error } => tracing::warn!(%ingress, host, error, "invalid host"),
        Problem::NoHosts => tracing::warn!(%ingress, "ingress skipped (no hosts)"),
    }
}

fn refusal_of(ingress: IngressKey, problem: &Problem) -> Refusal {
    let message = match problem {
        Problem::Annotation { annotation, value, error } => format!("{annotation}: {value:?} cannot be used: {error}"),
        Problem::Host { host, error } => format!("the host {host:?} cannot be registered: {error}"),
        Problem::NoHosts => "no host to register: no rule and no pihole.io/hosts names one".to_owned(),
    };
    Refusal { ingress: Some(ingress), host: None, reason: problem.reason(), message }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
