//! The report of a pass: decisions about objects, and when the key is next.
//!
//! A success is reported only of what was written. After a failure that may end by itself, the last success is kept.

pub(crate) mod states;
pub(crate) mod status;

use std::time::Duration;

use signpost_engine::{
    ChildError, Event, EventKind, Identity, ObjectId, Outcome, Report, RetryClass, Touch, Touched, WriteError,
};
use signpost_planning::{Reason, Refusal};

use crate::{
    RouterSystem,
    apply::ApplyResult,
    index::RouterKey,
    plan::{Blame, Memory, Plan},
    report::{
        states::State,
        status::{Decision, ObjectStatus, READY, Reported, TargetVerdict},
    },
};

/// When a pass comes again that found no place for its writes.
const POSTPONED: Duration = Duration::from_secs(2);

/// Reports a pass.
pub(crate) fn report(result: ApplyResult) -> Report<RouterSystem> {
    let ApplyResult { plan, postponed, errors, written, deleted, measured } = result;
    let Plan { key, decisions, blame, about, memory, again, apply: _, delete: _, replaced_by: _, withdraw: _ } = plan;
    let mut report = Report::new(Outcome::Done);
    report.memory = (memory != Memory::default()).then_some(memory);
    if postponed {
        // Nothing is decided: the next pass tries again, and reports.
        report.outcome = Outcome::Retry { class: RetryClass::Fixed(POSTPONED), objects: Touched::All };
        return report;
    }
    report.events.extend(about.and_then(|about| withdrawn(&about, &deleted, &decisions)));
    report.measured = measured;
    let failure = Failure::of(errors, &key);
    match failure {
        None => {
            report.statuses = decisions;
            if let Some(after) = again {
                report.outcome = Outcome::Check { after };
            }
        }
        Some(Failure { refusal, taken, only_taken, words, class }) => {
            // A host is published by the DNSEndpoints that are there, and rivals must know.
            let published = |decision: &Decision| matches!(decision, Decision::Published { .. });
            // A refusal of the object itself is more important than what became of the writes.
            let refused = |decision: &Decision| matches!(decision, Decision::Object { .. });
            let nobody = matches!(blame, Blame::Nobody);
            let reported = |it: &Decision| (only_taken && written > 0 && published(it)) || (nobody && refused(it));
            report.statuses.extend(decisions.into_iter().filter(reported));
            match refusal {
                Some(refusal) => report.statuses.extend(blamed(blame.without(&taken), refusal)),
                None => report.statuses.extend(delayed(blame, failed_reason(&key), words)),
            }
            if !taken.is_empty() {
                report.statuses.push(Decision::Taken(taken));
            }
            // A retry may be minutes away, and a pause of other objects of the key ends before that.
            report.touches.extend(again.map(|after| (key, Touch::All, after)));
            report.outcome = Outcome::Retry { class, objects: Touched::All };
        }
    }
    report
}

/// How many deleted objects an event names.
const NAMED: usize = 10;

/// The event about objects that were deleted, with the reason for it.
fn withdrawn(about: &Identity, deleted: &[ObjectId], decisions: &[Decision]) -> Option<Event> {
    let names: Vec<String> = deleted.iter().take(NAMED).map(ToString::to_string).collect();
    let names = match deleted.len().checked_sub(NAMED) {
        _ if deleted.is_empty() => return None,
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names.join(", ")),
    };
    let why = decisions.iter().find_map(|decision| match decision {
        Decision::Object { verdict, .. } => {
            let explains =
                |reported: &&Reported| !reported.status && reported.reason != State::TargetNotPublished.into();
            verdict.conditions.first().filter(explains).map(|reported| &*reported.message)
        }
        Decision::Target { verdict, .. } => Some(verdict.message.as_str()).filter(|_| !verdict.ready),
        Decision::Published { .. }
        | Decision::Strays { .. }
        | Decision::Delayed { .. }
        | Decision::DelayedTarget { .. }
        | Decision::TargetGone(_)
        | Decision::Taken(_) => None,
    });
    let note = format!("deleted {names}: {}", why.unwrap_or("no selected controller needs it any more"));
    Some(Event {
        object: about.reference(),
        kind: EventKind::Normal,
        reason: State::Withdrawn.as_str().to_owned(),
        note,
    })
}

struct Failure {
    /// The report; `None` when it may end by itself.
    refusal: Option<Refusal>,
    taken: Vec<ObjectId>,
    /// Whether foreign names are all that failed.
    only_taken: bool,
    /// The words of the first failure.
    words: String,
    class: RetryClass,
}

impl Failure {
    fn of(errors: Vec<ChildError>, key: &RouterKey) -> Option<Self> {
        let (mut refusal, mut taken, mut class): (Option<Refusal>, Vec<ObjectId>, Option<RetryClass>) =
            (None, Vec::new(), None);
        let words = errors.first().map(ToString::to_string).unwrap_or_default();
        let only_taken = errors.iter().all(|error| matches!(error, ChildError::NotOurs { .. }));
        for error in errors {
            let (found, soon) = match &error {
                ChildError::NotOurs { id, .. } => {
                    taken.push(id.clone());
                    (Some(Refusal::new(Reason::NameTaken, error.to_string())), None)
                }
                // Forbidden is also a full quota, a webhook or a namespace that is being deleted: it is tried again.
                ChildError::Write(write @ (WriteError::Invalid(_) | WriteError::Forbidden(_))) => {
                    let reason = failed_reason(key);
                    let forbidden = matches!(write, WriteError::Forbidden(_));
                    let soon = forbidden.then(|| RetryClass::from(&error));
                    (Some(Refusal::new(reason, error.to_string())), soon)
                }
                ChildError::Leaving { .. } | ChildError::Write(_) => (None, Some(RetryClass::from(&error))),
            };
            refusal = refusal.or(found);
            class = class.or(soon);
        }
        if refusal.is_none() && class.is_none() {
            return None;
        }
        Some(Self { refusal, taken, only_taken, words, class: class.unwrap_or(RetryClass::Slow) })
    }
}

fn blamed(blame: Blame, refusal: Refusal) -> Option<Decision> {
    match blame {
        Blame::Nobody => None,
        Blame::Object { judged, detail } => {
            let verdict = ObjectStatus::refused(Some("Failed"), refusal, detail);
            Some(Decision::Object { judged, verdict })
        }
        Blame::Target { target, addresses, host, class } => {
            let (reason, message) = (refusal.reason.into(), refusal.message.clone());
            let refusal = Some(refusal);
            let verdict =
                TargetVerdict { ready: false, reason, message, refusal, addresses, host, class, notice: None };
            Some(Decision::Target { target, verdict })
        }
    }
}

/// The reason of a failed write.
fn failed_reason(key: &RouterKey) -> Reason {
    if matches!(key, RouterKey::Gateway(_)) {
        Reason::IstioGatewayGenerationFailed
    } else {
        Reason::DNSEndpointGenerationFailed
    }
}

/// The report of a failure that may end by itself, for an object that is not ready.
fn delayed(blame: Blame, reason: Reason, words: String) -> Option<Decision> {
    match blame {
        Blame::Nobody => None,
        Blame::Object { judged, detail } => {
            let reported = vec![Reported::new(READY, false, reason, words)];
            let verdict = ObjectStatus {
                phase: Some("Pending"),
                conditions: reported,
                refusal: None,
                notices: Vec::new(),
                detail,
            };
            Some(Decision::Delayed { judged, verdict })
        }
        Blame::Target { target, addresses, host, class } => {
            let (reason, message) = (reason.into(), words);
            let verdict =
                TargetVerdict { ready: false, reason, message, refusal: None, addresses, host, class, notice: None };
            Some(Decision::DelayedTarget { target, verdict })
        }
    }
}
