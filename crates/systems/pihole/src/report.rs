//! Says what was done: views and finalizers on Ingresses, events, and when to look again. Decides from data alone.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};
use signpost_apis::ingress::Ingress;
use signpost_dns::Fqdn;
use signpost_engine::{Event, EventKind, ObjectWrite, Outcome, Report, RetryClass, Touched};
use signpost_provider_pihole::{ErrorClass, PiholeError};

use crate::PiholeSystem;
use crate::apply::{Applied, Waits};
use crate::index::{Claimant, FINALIZER, IngressKey, MANAGED_HOSTS};
use crate::observe::{Cause, Failure};
use crate::plan;

impl PiholeSystem {
    pub(crate) fn say(&self, applied: &Applied, now: Timestamp) -> Report<IngressKey> {
        let mut events = Vec::new();
        for refusal in &applied.news {
            let object = match &refusal.ingress {
                Some(key) => self.index.claimant(key).map(|claimant| reference(&claimant)),
                None => Some(self.event_object.clone()),
            };
            if let Some(object) = object {
                let (reason, note) = (
                    refusal.reason.as_str().to_owned(),
                    format!("{} (Pi-hole {})", refusal.message, applied.instance.name),
                );
                events.push(Event { object, kind: EventKind::Warning, reason, note });
            }
        }
        if let Some(failure) = applied.failure.as_ref().filter(|_| applied.trouble_is_new) {
            let note = format!("Pi-hole {}: {}", applied.instance.name, failure.cause);
            let reason = failure.cause.reason().to_owned();
            events.push(Event { object: self.event_object.clone(), kind: EventKind::Warning, reason, note });
        }
        if let Some(failure) = &applied.alias_failure {
            let note = format!(
                "Pi-hole {}: {}. Its aliases wait; addresses are written",
                applied.instance.name, failure.cause
            );
            let reason = failure.cause.reason().to_owned();
            events.push(Event { object: self.event_object.clone(), kind: EventKind::Warning, reason, note });
        }
        let writes =
            if applied.looked { self.metadata_writes(applied, now) } else { self.late_finalizers(applied, now) };
        Report { writes, events, outcome: self.outcome(applied, now) }
    }

    fn outcome(&self, applied: &Applied, now: Timestamp) -> Outcome<IngressKey> {
        let retry = |class| Outcome::Retry { class, objects: Touched::All };
        if let Some(failure) = &applied.failure {
            return retry(self.pause(applied, failure, now));
        }
        if applied.missing > 0 {
            return retry(RetryClass::Now);
        }
        let memory = applied.instance.memory();
        let left = |since: Option<Timestamp>, pause: Duration| {
            let gone = since.map_or(pause, |since| now.duration_since(since).unsigned_abs());
            RetryClass::Fixed(pause.saturating_sub(gone).max(Duration::from_millis(10)))
        };
        match applied.waits {
            Some(Waits::NextStep) => retry(RetryClass::Now),
            Some(Waits::Brake) => retry(left(memory.held.map(|(_, since)| since), self.policy.brake)),
            Some(Waits::Restart) => retry(left(memory.restarted, memory.restart_pause(self.policy.restart_pause))),
            Some(Waits::Aliases) => {
                let until = memory.aliases.as_ref().map_or(now, |error| error.until);
                let pause = now.duration_until(until).unsigned_abs().max(Duration::from_millis(10));
                retry(RetryClass::Fixed(pause))
            }
            None => self.policy.resync.map_or(Outcome::Done, |after| Outcome::Check { after }),
        }
    }

    /// How long to leave a Pi-hole alone after a failure.
    fn pause(&self, applied: &Applied, failure: &Failure, now: Timestamp) -> RetryClass {
        if failure.cause == Cause::Pihole(PiholeError::CommentsRefused) {
            // The next look takes the ledger for what the lines cannot carry.
            return RetryClass::Now;
        }
        let longest = self.policy.backoff * 10;
        if failure.cause.is_over_when_it_answers() {
            applied.instance.memory().waits_for_probe = true;
            applied.instance.doubted.notify_one();
        }
        match failure.cause.class() {
            // Flat, and without a word about earlier failures.
            ErrorClass::Throttled(asked) => {
                let pause = asked.unwrap_or_default().max(self.policy.throttle);
                applied.instance.memory().quiet_until = Some(after(now, pause));
                RetryClass::Throttled { after: Some(pause) }
            }
            // A setting that a person changes. It is read again every few seconds, so that the change takes effect soon.
            ErrorClass::Instance => RetryClass::Throttled { after: Some(self.policy.backoff / 3) },
            ErrorClass::Permanent => RetryClass::Throttled { after: Some(longest) },
            ErrorClass::Transient => {
                let mut memory = applied.instance.memory();
                // One that is tried before its time, for a new change, makes the pause no longer.
                let until = memory.paused_until.filter(|until| now < *until).unwrap_or_else(|| {
                    memory.failures = memory.failures.saturating_add(1);
                    let who = (&self.policy.owner, &applied.instance.name);
                    after(now, backoff(self.policy.backoff, memory.failures, &who))
                });
                memory.paused_until = Some(until);
                let pause = now.duration_until(until).unsigned_abs();
                match &failure.cause {
                    // It fails: new changes wait with the rest. Where nobody listens, nobody is bothered by one that is tried at once.
                    Cause::Pihole(error) if !error.is_quick() => RetryClass::Throttled { after: Some(pause) },
                    // It is not the Pi-hole that fails, and other records may well be written.
                    Cause::Pihole(_) | Cause::Ledger(_) | Cause::Unsettled { .. } => RetryClass::Fixed(pause),
                }
            }
        }
    }

    /// The views and finalizers that are not as they should be.
    fn metadata_writes(&self, applied: &Applied, now: Timestamp) -> Vec<ObjectWrite> {
        let snapshot = &applied.snapshot;
        let claims = plan::claims_of(snapshot);
        let seen: Vec<Option<Arc<BTreeSet<Fqdn>>>> =
            self.instances.values().map(|instance| instance.memory().present.clone()).collect();
        let complete = seen.iter().all(Option::is_some);
        let present = |host: &Fqdn| seen.iter().flatten().any(|hosts| hosts.contains(host));
        let holder_of = |host: &Fqdn| {
            let claim = claims.holder_of(&host)?;
            snapshot.claimants.get(claim.holder).map(|holder| holder.target.clone())
        };
        // Where an Ingress that cannot be understood has left a host to another one, that one shows it.
        let yielded: Vec<Arc<BTreeMap<Fqdn, IngressKey>>> =
            self.instances.values().map(|instance| Arc::clone(&instance.memory().yielded)).collect();
        let shows = |claimant: &Claimant, host: &Fqdn| {
            let mut there =
                seen.iter().zip(&yielded).filter(|(seen, _)| seen.as_ref().is_some_and(|it| it.contains(host)));
            there.any(|(_, yielded)| match yielded.get(host) {
                Some(key) => *key == claimant.key,
                None => holder_of(host).is_some_and(|target| target == claimant.target),
            })
        };
        let mut writes = Vec::new();
        for claimant in &snapshot.claimants {
            let mut metadata = serde_json::Map::new();
            let view =
                plan::view(claimant, |host| holder_of(host).is_some(), |host| shows(claimant, host), present, complete);
            if view.as_deref() != claimant.view.as_deref() {
                metadata.insert("annotations".into(), json!({ MANAGED_HOSTS: view }));
            }
            let left = || {
                let unclaimed = |host: &Fqdn| holder_of(host).is_none();
                claimant.viewed().any(|host| unclaimed(&host) && (present(&host) || !complete))
                    || snapshot
                        .released
                        .iter()
                        .any(|(host, by)| *by == claimant.key && unclaimed(host) && present(host))
            };
            if let Some((list, version)) = self.finalizers(claimant, left, now) {
                metadata.insert("finalizers".into(), json!(list));
                metadata.insert("resourceVersion".into(), json!(version));
            }
            if metadata.is_empty() {
                continue;
            }
            if metadata.contains_key("annotations") {
                self.index.expect_view(&claimant.key, view);
            }
            writes.push(ObjectWrite::metadata::<Ingress>(claimant.key.id(), &*claimant.uid, Value::Object(metadata)));
        }
        writes
    }

    /// The finalizers that have waited long enough for a Pi-hole that cannot be read.
    fn late_finalizers(&self, applied: &Applied, now: Timestamp) -> Vec<ObjectWrite> {
        let mut writes = Vec::new();
        for claimant in &applied.snapshot.claimants {
            if let Some((list, version)) = self.finalizers(claimant, || true, now) {
                let metadata = json!({ "finalizers": list, "resourceVersion": version });
                writes.push(ObjectWrite::metadata::<Ingress>(claimant.key.id(), &*claimant.uid, metadata));
            }
        }
        writes
    }

    /// The finalizers an Ingress should have, when they differ from those it has.
    fn finalizers(
        &self,
        claimant: &Claimant,
        left: impl Fn() -> bool,
        now: Timestamp,
    ) -> Option<(Vec<String>, String)> {
        let finalizers = claimant.finalizers.as_ref()?;
        let mut list = finalizers.list.clone();
        match (finalizers.wants_ours(self.policy.finalizer), finalizers.has_ours()) {
            (true, false) => list.push(FINALIZER.to_owned()),
            (false, true) => {
                let late = finalizers
                    .deleting
                    .is_some_and(|since| now.duration_since(since).unsigned_abs() >= self.policy.finalizer_patience);
                if self.policy.finalizer && left() {
                    if !late {
                        return None;
                    }
                    self.voice.gave_up(claimant);
                }
                list.retain(|name| name != FINALIZER);
            }
            (true, true) | (false, false) => return None,
        }
        Some((list, finalizers.resource_version.clone()))
    }
}

/// The pause after so many failures in a row: doubling to ten times the first, a tenth more or less.
pub(crate) fn backoff(first: Duration, failures: u32, who: &impl Hash) -> Duration {
    let doubled = first * 2_u32.saturating_pow(failures.saturating_sub(1).min(8));
    let pause = doubled.min(first * 10);
    let mut hasher = DefaultHasher::new();
    (who, failures).hash(&mut hasher);
    let spread = u32::try_from(hasher.finish() % 201).unwrap_or(100);
    pause * (900 + spread) / 1000
}

fn after(now: Timestamp, pause: Duration) -> Timestamp {
    now.saturating_add(pause).unwrap_or(Timestamp::MAX)
}

fn reference(claimant: &Claimant) -> ObjectReference {
    let id = claimant.key.id();
    ObjectReference {
        api_version: Some("networking.k8s.io/v1".into()),
        kind: Some("Ingress".into()),
        namespace: id.namespace,
        name: Some(id.name),
        uid: Some(claimant.uid.to_string()),
        ..ObjectReference::default()
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
