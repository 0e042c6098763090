//! The report of a pass: decisions about objects, and when the key is next.
//!
//! A success is reported only of what was written. After a failure that may end by itself, the last true status is kept.

pub(crate) mod status;

use signpost_engine::{ChildError, ObjectId, Outcome, Report, RetryClass, Touched, WriteError};
use signpost_planning::{Reason, Refusal};

use crate::{
    RouterSystem,
    apply::ApplyResult,
    index::RouterKey,
    metrics::Measured,
    plan::{Blame, Memory, Plan},
    report::status::{Decision, TargetVerdict, Verdict},
};

/// Reports a pass.
pub(crate) fn report(result: ApplyResult) -> Report<RouterSystem> {
    let ApplyResult { plan, errors, measured } = result;
    let Plan { key, decisions, blame, memory, again, apply: _, delete: _ } = plan;
    let mut report = Report::new(Outcome::Done);
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
                ChildError::Write(WriteError::Invalid(_)) => {
                    let reason = if matches!(key, RouterKey::Gateway(_)) {
                        Reason::IstioGatewayGenerationFailed
                    } else {
                        Reason::DNSEndpointGenerationFailed
                    };
                    (Some(Refusal::new(reason, error.to_string())), None)
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
