//! The report of a pass: decisions about objects, and when the key is next.
//!
//! A success is reported only of what was written. After a failure that may end by itself, the last true status is kept.

pub(crate) mod status;

use signpost_engine::{
    ChildError, Event, EventKind, Identity, ObjectId, Outcome, Report, RetryClass, Touched, WriteError,
};
use signpost_planning::{Reason, Refusal};

use crate::{
    RouterSystem,
    apply::ApplyResult,
    index::RouterKey,
    metrics::Measured,
    plan::{Blame, Memory, Plan},
    report::status::{Decision, TargetVerdict, Verdict},
};

/// The reason of the event about something that was withdrawn.
const WITHDRAWN: &str = "Withdrawn";

/// Reports a pass.
pub(crate) fn report(result: ApplyResult) -> Report<RouterSystem> {
    let ApplyResult { plan, errors, deleted, measured } = result;
    let Plan { key, decisions, blame, about, memory, again, apply: _, delete: _ } = plan;
    let mut report = Report::new(Outcome::Done);
    report.events.extend(about.and_then(|about| withdrawn(&about, &deleted, &decisions)));
    report.measured = measured;
    report.memory = (memory != Memory::default()).then_some(memory);
    let failure = Failure::of(errors, &key);
    match failure {
        None => {
            report.statuses = decisions;
            if let Some(after) = again {
                report.outcome = Outcome::Check { after };
            }
        }
        Some(Failure { refusal, taken, class }) => {
            if let Some(refusal) = refusal {
                report.statuses.extend(blamed(blame, refusal));
            }
            if !taken.is_empty() {
                report.statuses.push(Decision::Taken(taken));
            }
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
        Decision::Object { verdict, .. } => verdict.told.first().filter(|told| !told.status).map(|told| &*told.message),
        Decision::Target { verdict, .. } => Some(verdict.message.as_str()).filter(|_| !verdict.ready),
        Decision::Published { .. } | Decision::TargetGone(_) | Decision::Taken(_) => None,
    });
    let note = format!("deleted {names}: {}", why.unwrap_or("no selected controller needs it any more"));
    Some(Event { object: about.reference(), kind: EventKind::Normal, reason: WITHDRAWN.to_owned(), note })
}

struct Failure {
    /// The report; `None` when it may end by itself.
    refusal: Option<Refusal>,
    taken: Vec<ObjectId>,
    class: RetryClass,
}

impl Failure {
    fn of(errors: Vec<ChildError>, key: &RouterKey) -> Option<Self> {
        let (mut refusal, mut taken, mut class): (Option<Refusal>, Vec<ObjectId>, Option<RetryClass>) =
            (None, Vec::new(), None);
        for error in errors {
            let (found, soon) = match &error {
                ChildError::NotOurs { id, .. } => {
                    taken.push(id.clone());
                    (Some(Refusal::new(Reason::NameTaken, error.to_string())), None)
                }
                // Forbidden is also a full quota, a webhook or a namespace that is being deleted: it is tried again.
                ChildError::Write(write @ (WriteError::Invalid(_) | WriteError::Forbidden(_))) => {
                    let reason = if matches!(key, RouterKey::Gateway(_)) {
                        Reason::IstioGatewayGenerationFailed
                    } else {
                        Reason::DNSEndpointGenerationFailed
                    };
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
        Some(Self { refusal, taken, class: class.unwrap_or(RetryClass::Slow) })
    }
}

fn blamed(blame: Blame, refusal: Refusal) -> Option<Decision> {
    match blame {
        Blame::Nobody => None,
        Blame::Object { judged, detail } => {
            let verdict = Verdict::refused(Some("Failed"), refusal, detail);
            Some(Decision::Object { judged, verdict })
        }
        Blame::Target { target, addresses, host } => {
            let (reason, message) = (refusal.reason.as_str(), refusal.message.clone());
            let verdict = TargetVerdict { ready: false, reason, message, refusal: Some(refusal), addresses, host };
            Some(Decision::Target { target, verdict })
        }
    }
}

/// The writes of a pass, for the metrics.
pub(crate) fn measured(plan: &Plan) -> Measured {
    Measured { applied: plan.apply.len(), deleted: plan.delete.len() }
}
