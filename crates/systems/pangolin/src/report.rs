//! Reports what was done: events, refusals, the status and the digest on the Ingress, metrics, and when to come back. Pure.

use jiff::Timestamp;
use serde_json::json;
use signpost_engine::{Event, EventKind, Identity, ObjectWrite, Outcome, Report, RetryClass, Touch, Touched};

use crate::PangolinSystem;
use crate::apply::{ApplyResult, Change, What};
use crate::index::{APPLIED_ANNOTATION, Key};
use crate::metrics::Measured;
use crate::settings::Mode;

/// Reports what was done.
pub(crate) fn report(mut applied: ApplyResult, now: Timestamp) -> Report<PangolinSystem> {
    let events = events(&applied);
    if applied.unsure {
        applied.memory.doubt = Some(now);
    }
    let writes = writes(&mut applied, now);
    let statuses = status(&applied).into_iter().collect();
    let deployment = applied.policy.deployment();
    let outcome = outcome(&applied);
    // What waits for something is still compared from time to time, as everything else.
    let compared = applied.policy.resync.filter(|_| applied.ours && matches!(outcome, Outcome::Retry { .. }));
    let touches = compared.map(|after| (applied.key.clone(), Touch::All, after)).into_iter().collect();
    let sweeps = applied.key == Key::Sweep;
    let ApplyResult {
        key, mut memory, identity, tunnel, refusals, judged, changes, errors, hosts, managed, ours, ..
    } = applied;
    let measured = Measured {
        key: Some(key),
        failed: !errors.is_empty(),
        errors,
        changes,
        tunnel,
        refusals: refusals.clone(),
        hosts,
        managed: if ours { managed } else { 0 },
    };
    let object = if sweeps { Some(deployment) } else { identity.filter(|_| judged) };
    let refusals = refusals.into_iter().map(|refused| refused.refusal).collect();
    let refusals = object.map(|object| (object, refusals)).into_iter().collect();
    // Nothing is remembered of what is not ours any more, but what is still being deleted.
    let lasting = ours || sweeps || !memory.children.is_empty() || !memory.left.is_empty() || memory.doubt.is_some();
    if !ours {
        memory.applied = None;
    }
    Report {
        memory: lasting.then_some(memory),
        statuses,
        writes,
        events,
        refusals,
        measured,
        touches,
        ..Report::new(outcome)
    }
}

/// The events: on the Ingress; of a sweep, on the operator's own Deployment.
fn events(applied: &ApplyResult) -> Vec<Event> {
    let object = match (&applied.key, &applied.identity) {
        (Key::Sweep, _) => applied.policy.deployment().reference(),
        (Key::Ingress(_), Some(identity)) => identity.reference(),
        (Key::Ingress(id), None) => id.reference(),
    };
    let done = applied
        .changes
        .iter()
        .map(|change| (EventKind::Normal, change.what.reason(), description(change, applied.policy.mode)));
    let notes = applied.notes.iter().map(|note| {
        let kind = if note.warning { EventKind::Warning } else { EventKind::Normal };
        (kind, note.reason, note.text.clone())
    });
    done.chain(notes)
        .map(|(kind, reason, note)| Event { object: object.clone(), kind, reason: reason.to_owned(), note })
        .collect()
}

fn description(change: &Change, mode: Mode) -> String {
    let Change { what, host, object } = change;
    let what = match what {
        What::Created => "created",
        What::Updated => "updated",
        What::Deleted => "deleted",
    };
    match mode {
        Mode::Crd => format!("PangolinResource {object} for {host} was {what}"),
        Mode::Api => format!("resource {object} of Pangolin for {host} was {what}"),
    }
}

/// The digest on the Ingress.
fn writes(applied: &mut ApplyResult, now: Timestamp) -> Vec<ObjectWrite> {
    let mut writes = Vec::new();
    let Some(identity) = applied.identity.clone().filter(|_| applied.present) else { return writes };
    if let Some(digest) = applied.digest.take().filter(|_| applied.ours) {
        let (class, noted_class) = applied.classes.take().unwrap_or_default();
        if applied.noted.as_ref() != Some(&digest) || class.as_deref() != noted_class.as_deref() {
            let note = class.map_or_else(|| digest.clone(), |class| format!("{digest}@{class}"));
            writes.push(ObjectWrite::metadata(&identity, json!({ "annotations": { APPLIED_ANNOTATION: note } })));
        }
        let read = applied.memory.applied.as_ref().filter(|(before, _)| *before == digest).map(|(_, at)| *at);
        // Something was read or written: what is known is of now.
        let at = if applied.read { now } else { read.unwrap_or(now) };
        applied.memory.applied = Some((digest, at));
    }
    writes
}

/// The hosts in the status. One that is not ours has none.
fn status(applied: &ApplyResult) -> Option<(Identity, Vec<String>)> {
    let identity = applied.identity.clone().filter(|_| applied.present)?;
    if !applied.policy.ingress_status || !applied.judged {
        return None;
    }
    let mut hosts = if applied.ours { applied.hosts.clone()? } else { Vec::new() };
    hosts.sort();
    Some((identity, hosts))
}

fn outcome(applied: &ApplyResult) -> Outcome<()> {
    if let Some(class) = applied.again {
        return Outcome::Retry { class, objects: Touched::Some([()].into()) };
    }
    if applied.paused {
        let class = RetryClass::Fixed(applied.policy.brake);
        return Outcome::Retry { class, objects: Touched::Some([()].into()) };
    }
    let lasting = applied.ours || applied.key == Key::Sweep && applied.policy.mode == Mode::Api;
    match applied.policy.resync.filter(|_| lasting) {
        Some(after) => Outcome::Check { after },
        None => Outcome::Done,
    }
}

#[cfg(test)]
mod tests;
