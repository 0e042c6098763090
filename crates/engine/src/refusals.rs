//! Refusals, reported once when they begin: an event, a log entry and a metric each.
//!
//! ```text
//!  status path, when a status is written ─────────► report ──► event + log + metric
//!  driver, for objects that have no status ───────► set ──────► the same for new ones; ended ones are forgotten
//! ```
//!
//! A system with [`System::LOGS_REFUSALS`] writes its own log entries, so the log entry is left out here.
//!
//! The system writes the status itself; the reasons are those of [`signpost_planning::Reason`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use signpost_planning::Refusal;

use crate::{
    driver::System,
    events::{Event, EventKind, Recorder},
    metrics::Metrics,
    object::{Identity, ObjectId},
};

/// Reports refusals. Cloning gives another handle to the same reporter.
#[derive(Clone, Debug)]
pub struct Refusals {
    recorder: Recorder,
    metrics: Metrics,
    reported: Arc<Mutex<Reported>>,
}

/// Reported refusals of objects without a status: the UID and the refusals, by object and system.
type Reported = BTreeMap<Arc<ObjectId>, BTreeMap<&'static str, (Arc<str>, BTreeSet<Refusal>)>>;

impl Refusals {
    pub(crate) fn new(recorder: Recorder, metrics: Metrics) -> Self {
        Self { recorder, metrics, reported: Arc::default() }
    }

    /// Reports a refusal, whether or not it was reported before.
    pub fn report(&self, system: &'static str, identity: &Identity, refusal: &Refusal) {
        log(system, identity, refusal);
        self.record(system, identity, refusal);
    }

    /// Reports a refusal of the system `S`, whether or not it was reported before.
    pub(crate) fn report_for<S: System>(&self, identity: &Identity, refusal: &Refusal) {
        if !S::LOGS_REFUSALS {
            log(S::NAME, identity, refusal);
        }
        self.record(S::NAME, identity, refusal);
    }

    /// Sets the refusals of an object by this system. New ones are reported; ended ones are forgotten.
    pub fn set(&self, system: &'static str, identity: &Identity, refusals: &[Refusal]) {
        for refusal in &self.replace(system, identity, refusals) {
            self.report(system, identity, refusal);
        }
    }

    /// Sets the refusals of an object by the system `S`. New ones are reported; ended ones are forgotten.
    pub(crate) fn set_for<S: System>(&self, identity: &Identity, refusals: &[Refusal]) {
        for refusal in &self.replace(S::NAME, identity, refusals) {
            self.report_for::<S>(identity, refusal);
        }
    }

    /// Counts a refusal and records its event.
    fn record(&self, system: &'static str, identity: &Identity, refusal: &Refusal) {
        self.metrics.refused(system, refusal.reason.as_str());
        self.recorder.record(Event {
            object: identity.reference(),
            kind: EventKind::Warning,
            reason: refusal.reason.as_str().to_owned(),
            note: refusal.message.clone(),
        });
    }

    /// Stores the refusals of an object by this system, and returns the new ones.
    fn replace(&self, system: &'static str, identity: &Identity, refusals: &[Refusal]) -> Vec<Refusal> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<Refusal> = refusals.iter().cloned().collect();
        let of_object = reported.entry(identity.id.clone()).or_default();
        let before = match of_object.get(system) {
            Some((uid, before)) if *uid == identity.uid => before.clone(),
            _ => BTreeSet::new(),
        };
        let new: Vec<Refusal> = now.difference(&before).cloned().collect();
        if now.is_empty() {
            of_object.remove(system);
        } else {
            of_object.insert(system, (identity.uid.clone(), now));
        }
        if of_object.is_empty() {
            reported.remove(&identity.id);
        }
        new
    }

    /// Forgets an object that is deleted.
    pub(crate) fn forget(&self, id: &ObjectId) {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

fn log(system: &'static str, identity: &Identity, refusal: &Refusal) {
    tracing::info!(system, object = %identity.id, reason = refusal.reason.as_str(), why = refusal.message, "refused");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::testing;
    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
    use signpost_planning::Reason;

    fn identity(uid: &str) -> Identity {
        let metadata = ObjectMeta { name: Some("a".into()), uid: Some(uid.into()), ..ObjectMeta::default() };
        Identity::of(&ConfigMap { metadata, ..ConfigMap::default() })
    }

    #[tokio::test]
    async fn a_refusal_is_reported_when_it_begins_and_after_it_had_ended() {
        let (recorder, mut events) = testing::recorder();
        let refusals = Refusals::new(recorder, Metrics::new());
        let (bad, worse) = (Refusal::new(Reason::InvalidName, "bad"), Refusal::new(Reason::InvalidTtl, "worse"));
        let one = identity("1");
        let mut reported = |now: &[Refusal], object: &Identity| {
            refusals.set("test", object, now);
            testing::drain(&mut events).into_iter().map(|event| event.note).collect::<Vec<_>>()
        };
        assert_eq!(reported(std::slice::from_ref(&bad), &one), ["bad"]);
        assert!(reported(std::slice::from_ref(&bad), &one).is_empty());
        assert_eq!(reported(&[bad.clone(), worse.clone()], &one), ["worse"]);
        assert!(reported(std::slice::from_ref(&worse), &one).is_empty());
        assert_eq!(reported(&[worse.clone(), bad.clone()], &one), ["bad"]);
        assert_eq!(reported(&[bad], &identity("2")), ["bad"], "another incarnation");
        refusals.forget(&one.id);
        assert!(refusals.reported.lock().unwrap().is_empty());
    }
}
