//! Reports what was done: views and finalizers on Ingresses, events, refusals, metrics, memory, and when the key runs next. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use signpost_dns::Fqdn;
use signpost_engine::{Event, EventKind, Identity, ObjectWrite, Outcome, Report, RetryClass, Touched};
use signpost_planning::{Reason, Refusal, doubled};
use signpost_provider_pihole::{ErrorClass, PiholeError};

use crate::PiholeSystem;
use crate::apply::{PassResult, Waits};
use crate::index::{Claimant, FINALIZER, IngressId, MANAGED_HOSTS, Problem, Snapshot, Standing};
use crate::metrics::{Measured, Notice};
use crate::observe::probe::AfterPass;
use crate::observe::{Cause, Failure, reason_of};
use crate::plan::{self, RecordRefusal};
use crate::settings::Policy;

/// How often a write that did not stay is repeated at once.
const ROUNDS: u32 = 3;

/// Reports what was done.
pub(crate) fn report(mut applied: PassResult, now: Timestamp) -> Report<PiholeSystem> {
    let mut events = Vec::new();
    let mut measured = Measured { instance: Some(Arc::clone(&applied.instance)), ..Measured::default() };
    verify(&mut applied);
    let new = new_refusals(&mut applied, &mut measured);
    for refusal in new.iter().filter(|refusal| refusal.ingress.is_none()) {
        let Refusal { reason, message } = refusal.on(&applied.instance.name);
        events.push(about_pihole(&applied.policy, reason, message));
    }
    measured.notices.extend(new.into_iter().map(Notice::Refused));
    errors(&mut applied, &mut events, &mut measured);
    let writes = object_writes(&applied, now, &mut measured);
    let (outcome, after) = outcome(&mut applied, now);
    measured.after = after;
    measured.records = applied.present;
    measured.writes = applied.writes;
    let refusals = refusals_of_ingresses(&applied);
    Report { memory: Some(applied.memory), writes, events, refusals, measured, ..Report::new(outcome) }
}

/// Judges whether what was written stays.
fn verify(applied: &mut PassResult) {
    let memory = &mut applied.memory;
    if applied.present.is_none() || applied.failure.is_some() {
        return;
    }
    if is_settled(applied.missing, applied.deferred, memory.undone) {
        (memory.rounds, memory.undone) = (0, 0);
    } else if applied.missing > 0 {
        memory.rounds += 1;
    }
    if memory.rounds >= ROUNDS {
        let cause = Cause::Unsettled { missing: applied.missing, rounds: memory.rounds };
        applied.failure = Some(Failure { operation: "verify", cause });
        memory.rounds = 0;
    }
}

/// Aliases that did not stay are not settled because they have to wait for the next restart.
fn is_settled(missing: usize, deferred: bool, undone: u32) -> bool {
    missing == 0 && !(deferred && undone > 0)
}

/// The refusals that have not been reported before.
fn new_refusals(applied: &mut PassResult, measured: &mut Measured) -> Vec<RecordRefusal> {
    let problems = applied.snapshot.claimants.iter().flat_map(|claimant| &claimant.problems);
    let mut counts: BTreeMap<Reason, i64> = Problem::REASONS.into_iter().map(|reason| (reason, 0)).collect();
    for problem in problems {
        *counts.entry(problem.refusal().reason).or_default() += 1;
    }
    let mut new = Vec::new();
    if applied.present.is_some() || applied.failure.is_some() {
        let known = &applied.memory.reported;
        new.extend(applied.refusals.iter().filter(|refusal| !known.contains(refusal)).cloned());
    }
    if applied.present.is_some() {
        counts.extend(crate::metrics::REASONS.into_iter().map(|reason| (reason, 0)));
        for refusal in &applied.refusals {
            *counts.entry(refusal.reason).or_default() += 1;
        }
        applied.memory.reported = applied.refusals.iter().cloned().collect();
    } else {
        // A pass that failed has not seen everything, so what was reported before stays reported.
        applied.memory.reported.extend(new.iter().cloned());
    }
    measured.refusals = counts;
    new
}

/// The error of the Pi-hole and of its aliases: reported when it begins.
fn errors(applied: &mut PassResult, events: &mut Vec<Event>, measured: &mut Measured) {
    let memory = &mut applied.memory;
    let settled = is_settled(applied.missing, applied.deferred, memory.undone);
    let error = applied.failure.as_ref().map(|failure| failure.cause.reason());
    let still = !settled && error.is_none() && memory.error == Some(Reason::Unsettled);
    let begins = error.is_some() && memory.error != error;
    if (applied.present.is_some() && !still) || error.is_some() {
        if error.is_none() && memory.error.is_some() {
            measured.notices.push(Notice::Recovered);
        }
        measured.errors.push((memory.error, error));
        memory.error = error;
    }
    if applied.present.is_some() && error.is_none() && !still {
        (memory.failures, memory.paused_until) = (0, None);
    }
    if let Some(failure) = &applied.failure {
        if begins {
            let note = format!("Pi-hole {}: {}", applied.instance.name, failure.cause);
            events.push(about_pihole(&applied.policy, failure.cause.reason(), note));
        }
        // A setting that a person has to change is checked every few seconds and reported once.
        if begins || failure.cause.class() != ErrorClass::Instance {
            measured.notices.push(Notice::Failed {
                ingress: concerned(applied.changed.as_ref(), &applied.touched),
                failure: failure.clone(),
            });
        }
    }
    if let Some((before, error)) = applied.aliases.take() {
        let reason = error.as_ref().map(reason_of);
        if before != reason {
            measured.errors.push((before, reason));
            if let Some(error) = error {
                let name = &applied.instance.name;
                let note = format!("Pi-hole {name}: {error}. Its aliases wait; addresses are written");
                events.push(about_pihole(&applied.policy, reason_of(&error), note));
                let failure = Failure { operation: "update aliases", cause: error.into() };
                measured
                    .notices
                    .push(Notice::Failed { ingress: concerned(applied.changed.as_ref(), &applied.touched), failure });
            }
        }
    }
}

/// The Ingress that a failure is logged for: the only one that was to be changed, or touched; `*` for several.
fn concerned(changed: Option<&IngressId>, touched: &Touched<IngressId>) -> String {
    match (changed, touched) {
        (Some(id), _) => id.path(),
        (None, Touched::Some(ids)) if ids.len() == 1 => ids.first().map(|id| id.path()).unwrap_or_default(),
        (None, Touched::Some(_) | Touched::All) => "*".to_owned(),
    }
}

/// An event about a whole Pi-hole, on the operator's own Deployment.
fn about_pihole(policy: &Policy, reason: Reason, note: String) -> Event {
    let object = policy.deployment().reference();
    Event { object, kind: EventKind::Warning, reason: reason.to_string(), note }
}

/// All that is refused of each Ingress, by any Pi-hole.
fn refusals_of_ingresses(applied: &PassResult) -> Vec<(Identity, Vec<Refusal>)> {
    let all = |claimant: &Arc<Claimant>| {
        let problems = claimant.problems.iter().map(Problem::refusal);
        let refused = applied.standings.iter().filter_map(|standing| standing.refusals.get(claimant.id())).flatten();
        (claimant.identity.clone(), problems.chain(refused.cloned()).collect())
    };
    applied.snapshot.claimants.iter().map(all).collect()
}

fn outcome(applied: &mut PassResult, now: Timestamp) -> (Outcome<IngressId>, AfterPass) {
    let retry = |class| Outcome::Retry { class, objects: Touched::All };
    if let Some(failure) = applied.failure.take() {
        let (class, quiet_until) = pause(applied, &failure, now);
        let waits_for_probe = failure.cause.is_over_when_it_answers();
        return (retry(class), AfterPass { quiet_until, waits_for_probe, failures: applied.memory.failures });
    }
    if applied.missing > 0 {
        return (retry(RetryClass::Now), AfterPass::default());
    }
    let policy = &applied.policy;
    let soon = |pause: Duration| retry(RetryClass::Fixed(pause.max(Duration::from_millis(10))));
    let left = |since: Option<Timestamp>, pause: Duration| {
        pause.saturating_sub(since.map_or(pause, |since| now.duration_since(since).unsigned_abs()))
    };
    let outcome = match applied.waits {
        Some(Waits::NextStep) => retry(RetryClass::Now),
        Some(Waits::Guard) => soon(policy.brake),
        Some(Waits::Restart) => {
            soon(left(applied.memory.restarted, applied.memory.restart_pause(policy.restart_pause)))
        }
        Some(Waits::Aliases(until)) => soon(now.duration_until(until).unsigned_abs()),
        None => match (uncertain_for(applied, now), policy.resync) {
            // Requests that may still arrive are checked as soon as they cannot arrive any more.
            (Some(left), resync) if resync.is_none_or(|resync| left < resync) => soon(left),
            (_, Some(after)) => Outcome::Check { after },
            (_, None) => Outcome::Done,
        },
    };
    (outcome, AfterPass::default())
}

/// How long requests without an answer may still be carried out; None when there are none.
fn uncertain_for(applied: &PassResult, now: Timestamp) -> Option<Duration> {
    applied.memory.uncertain.as_ref()?.left(now, applied.policy.grace)
}

/// How long to leave a Pi-hole alone after a failure, and until when nobody asks it anything.
fn pause(applied: &mut PassResult, failure: &Failure, now: Timestamp) -> (RetryClass, Option<Timestamp>) {
    if failure.cause == Cause::Pihole(PiholeError::CommentsRefused) {
        // The next pass takes the ledger for what the lines cannot carry.
        return (RetryClass::Now, None);
    }
    let (policy, memory) = (&applied.policy, &mut applied.memory);
    match failure.cause.class() {
        // Flat, whatever failed earlier.
        ErrorClass::Throttled(asked) => {
            let pause = asked.unwrap_or_default().max(policy.throttle);
            (RetryClass::Throttled { after: Some(pause) }, Some(later(now, pause)))
        }
        // A setting that a person changes. It is read again every few seconds, so that the change takes effect soon.
        ErrorClass::Instance => (RetryClass::Throttled { after: Some(policy.backoff / 3) }, None),
        ErrorClass::Permanent => (RetryClass::Throttled { after: Some(policy.backoff * 10) }, None),
        ErrorClass::Transient => {
            // An early attempt, for a new change, does not make the pause longer.
            let until = memory.paused_until.filter(|until| now < *until).unwrap_or_else(|| {
                memory.failures = memory.failures.saturating_add(1);
                let who = (&policy.owner, &applied.instance.name);
                later(now, backoff(policy.backoff, memory.failures, &who))
            });
            memory.paused_until = Some(until);
            let pause = now.duration_until(until).unsigned_abs();
            let class = match &failure.cause {
                // It fails: new changes wait with the rest. Where nobody listens, an attempt at once costs nothing.
                Cause::Pihole(error) if !error.is_quick() => RetryClass::Throttled { after: Some(pause) },
                // It is not the Pi-hole that fails, and other records may well be written.
                Cause::Pihole(_) | Cause::Ledger(_) | Cause::Unsettled { .. } => RetryClass::Fixed(pause),
            };
            (class, None)
        }
    }
}

/// The time so much later.
pub(crate) fn later(now: Timestamp, pause: Duration) -> Timestamp {
    now.saturating_add(pause).unwrap_or(Timestamp::MAX)
}

/// The pause after so many failures in a row: doubling to ten times the first, a tenth more or less.
fn backoff(first: Duration, failures: u32, who: &impl Hash) -> Duration {
    let pause = doubled(first, failures.saturating_sub(1), first * 10);
    let mut hasher = DefaultHasher::new();
    (who, failures).hash(&mut hasher);
    let spread = u32::try_from(hasher.finish() % 201).unwrap_or(100);
    pause * (900 + spread) / 1000
}

/// The state of all Pi-holes.
struct Everywhere<'a> {
    snapshot: &'a Snapshot,
    standings: &'a [Standing],
    claims: signpost_planning::Claims<&'a Fqdn, usize>,
}

impl<'a> Everywhere<'a> {
    fn of(snapshot: &'a Snapshot, standings: &'a [Standing]) -> Self {
        Self { snapshot, standings, claims: plan::claims_of(snapshot) }
    }

    /// Whether every Pi-hole has been read.
    fn is_complete(&self) -> bool {
        self.standings.iter().all(|standing| standing.present.is_some())
    }

    fn is_present(&self, host: &Fqdn) -> bool {
        let has = |present: &Arc<BTreeSet<Fqdn>>| present.contains(host);
        self.standings.iter().filter_map(|standing| standing.present.as_ref()).any(has)
    }

    fn is_claimed(&self, host: &Fqdn) -> bool {
        self.claims.holder_of(&host).is_some()
    }

    /// Whether a host that is there is there for this Ingress. Where an Ingress that cannot be understood has left a host to another one, it is
    /// there for that one.
    fn shows(&self, claimant: &Claimant, host: &Fqdn) -> bool {
        let holder = self.claims.holder_of(&host).and_then(|claim| self.snapshot.claimants.get(claim.holder));
        let here = |standing: &&Standing| standing.present.as_ref().is_some_and(|present| present.contains(host));
        self.standings.iter().filter(here).any(|standing| match standing.yielded.get(host) {
            Some(id) => id == claimant.id(),
            None => holder.is_some_and(|holder| holder.target == claimant.target),
        })
    }
}

/// The views that are not as they should be.
pub(crate) fn views(snapshot: &Snapshot, standings: &[Standing]) -> BTreeMap<IngressId, Option<String>> {
    let everywhere = Everywhere::of(snapshot, standings);
    let view = |claimant: &Arc<Claimant>| {
        let view = view(
            claimant,
            |host| everywhere.is_claimed(host),
            |host| everywhere.shows(claimant, host),
            |host| everywhere.is_present(host),
            everywhere.is_complete(),
        );
        (view.as_deref() != claimant.view.as_deref()).then(|| (claimant.id().clone(), view))
    };
    snapshot.claimants.iter().filter_map(view).collect()
}

/// The value that `pihole.io/managed-hosts` should have: the hosts of this Ingress that have a record of ours somewhere.
///
/// A host stays in the view after its claim is removed until its record is deleted everywhere; `complete` tells whether
/// every Pi-hole has been read.
pub(crate) fn view(
    claimant: &Claimant,
    is_claimed: impl Fn(&Fqdn) -> bool,
    shows: impl Fn(&Fqdn) -> bool,
    present: impl Fn(&Fqdn) -> bool,
    complete: bool,
) -> Option<String> {
    let join = |hosts: &mut dyn Iterator<Item = &Fqdn>| {
        let names: Vec<&str> = hosts.map(Fqdn::undotted).collect();
        (!names.is_empty()).then(|| names.join(","))
    };
    let own = || claimant.hosts.iter().filter(|host| shows(host));
    let now = join(&mut own());
    if claimant.view.is_none() || claimant.view.as_deref() == now.as_deref() {
        return now;
    }
    let mut hosts: BTreeSet<Fqdn> = own().cloned().collect();
    hosts.extend(claimant.viewed().filter(|host| !is_claimed(host) && (present(host) || !complete)));
    join(&mut hosts.iter())
}

/// The views and finalizers that have to be written.
fn object_writes(applied: &PassResult, now: Timestamp, measured: &mut Measured) -> Vec<ObjectWrite> {
    let PassResult { snapshot, standings, .. } = applied;
    let everywhere = Everywhere::of(snapshot, standings);
    let complete = everywhere.is_complete();
    let mut writes = Vec::new();
    for claimant in &snapshot.claimants {
        let left = || {
            let free = |host: &Fqdn| !everywhere.is_claimed(host);
            // A Pi-hole that could not be read may have anything.
            applied.present.is_none()
                || applied.unconfirmed.contains(claimant.id())
                || claimant.viewed().any(|host| free(&host) && (everywhere.is_present(&host) || !complete))
        };
        let mut metadata = json!({});
        if let Some(list) = finalizers(claimant, &applied.policy, left, now, measured) {
            metadata["finalizers"] = json!(list);
            // Refused when the Ingress has changed since.
            metadata["resourceVersion"] = json!(claimant.identity.version.to_string());
        }
        if let Some(view) = applied.views.get(claimant.id()) {
            metadata["annotations"] = json!({ MANAGED_HOSTS: view });
        }
        if metadata != json!({}) {
            writes.push(ObjectWrite::metadata(&claimant.identity, metadata));
        }
    }
    writes
}

/// The finalizers an Ingress should have, when they differ from those it has.
fn finalizers(
    claimant: &Claimant,
    policy: &Policy,
    left: impl Fn() -> bool,
    now: Timestamp,
    measured: &mut Measured,
) -> Option<Vec<String>> {
    let present = &claimant.identity.finalizers;
    match (claimant.wants_finalizer(policy.finalizer), claimant.has_finalizer()) {
        (true, false) => Some(present.with(FINALIZER)),
        (false, true) => {
            let waited = |since: Timestamp| now.duration_since(since).unsigned_abs() >= policy.finalizer_patience;
            if policy.finalizer && left() {
                if !claimant.identity.deleting_since.is_some_and(waited) {
                    return None;
                }
                measured.notices.push(Notice::GaveUp(claimant.identity.clone()));
            }
            Some(present.without(&[FINALIZER]))
        }
        (true, true) | (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_40_pauses_double_from_thirty_seconds_to_five_minutes_within_a_tenth() {
        for (failures, seconds) in [(1, 30.0), (2, 60.0), (3, 120.0), (4, 240.0), (5, 300.0), (6, 300.0), (60, 300.0)] {
            let pause = backoff(Duration::from_secs(30), failures, &"pihole").as_secs_f64();
            assert!((seconds * 0.9..=seconds * 1.1).contains(&pause), "{failures}: {pause}");
        }
    }
}
