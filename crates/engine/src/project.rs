//! The names of every system in one inventory.
//!
//! ```text
//!  touch · end of a pass · note ─► keys that changed ─► project(key) ─► place ─► Inventory::replace(system and key)
//!                                  every key, when the places changed ──┘
//! ```
//!
//! Runs on every replica. It runs only when a system asks for it ([`crate::Operator::keep_inventory`]); otherwise no key is remembered and
//! nothing is projected.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use signpost_inventory::{At, Entry, Inventory, Origin, Owner, Provenance, Source, Stage};
use signpost_planning::Refusal;
use tokio::{sync::watch, time::Instant};

use crate::{
    clock::Clock,
    driver::System,
    object::{Identity, ObjectId},
    queue::Queue,
};

/// The names that a system knows. [`crate::Operator::drive`] asks for it, so a system without it does not compile.
pub trait Project<K>: Send + Sync + 'static {
    /// Every name under a key as of now: wanted, published or refused. Empty when the key does not exist any more. Reads the index only.
    fn project(&self, key: &K, now: Timestamp) -> Vec<Entry>;
}

/// Who decides where the names of systems are shown. There is one for all of them.
pub trait Place: Send + Sync + 'static {
    /// Sets the groups and the portals of names that a system publishes from an object. False when they are not shown at all.
    fn place(&self, provenance: &mut Provenance) -> bool;
}

/// The places of names, and when they change.
#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) place: Arc<dyn Place>,
    pub(crate) changed: watch::Receiver<()>,
}

/// Keys that keep changing are projected less often: these are the shortest and the longest pause, and nine tenths of the time between them are pauses.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Projects the keys of a system as they change, until it is dropped.
pub(crate) async fn run<S>(
    system: Arc<S>,
    queue: Queue<S::Key, S::Object>,
    inventory: Arc<Inventory>,
    mut places: Option<Places>,
    clock: Arc<dyn Clock>,
) where
    S: System + Project<S::Key>,
{
    // The keys with names that have a place.
    let mut placed: BTreeSet<S::Key> = BTreeSet::new();
    loop {
        let keys = tokio::select! {
            // In order: a simulation with the same seed must take the same way.
            biased;
            keys = queue.changed() => keys,
            () = moved(&mut places) => placed.clone(),
        };
        // Without the time that other work takes in between: on a busy machine that is most of it.
        let mut busy = Duration::ZERO;
        for key in keys {
            let (began, now) = (Instant::now(), clock.now());
            let mut entries = seen(system.project(&key, now), now);
            if let Some(places) = &places {
                if entries.iter().any(has_place) {
                    placed.insert(key.clone());
                } else {
                    placed.remove(&key);
                }
                entries = in_place(entries, &*places.place);
            }
            inventory.replace(&Owner::new(S::NAME, &key.to_string()), entries, now);
            busy += began.elapsed();
            tokio::task::yield_now().await;
        }
        tokio::time::sleep((busy * 9).clamp(PAUSE, LONGEST_PAUSE)).await;
    }
}

/// Waits until the places of names change.
async fn moved(places: &mut Option<Places>) {
    if let Some(places) = places
        && places.changed.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Whether others decide where a name is shown.
fn has_place(entry: &Entry) -> bool {
    entry.provenance.source == Source::System
}

/// The entries that are shown, in their place. Entries that share their provenance still do.
fn in_place(entries: Vec<Entry>, place: &dyn Place) -> Vec<Entry> {
    let mut last: Option<(Arc<Provenance>, Option<Arc<Provenance>>)> = None;
    let placed = |mut entry: Entry| {
        if !has_place(&entry) {
            return Some(entry);
        }
        let known =
            last.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &entry.provenance)).map(|(_, placed)| placed.clone());
        let placed = known.unwrap_or_else(|| {
            let mut provenance = (*entry.provenance).clone();
            let placed = place.place(&mut provenance).then(|| Arc::new(provenance));
            last = Some((entry.provenance.clone(), placed.clone()));
            placed
        });
        entry.provenance = placed?;
        Some(entry)
    };
    entries.into_iter().filter_map(placed).collect()
}

/// Entries with the time when they were last seen: now, unless a system knows better. It is in whole minutes, because a view with another time is another view:
/// a burst of changes in a large zone is not to copy all of its views every time.
fn seen(mut entries: Vec<Entry>, now: Timestamp) -> Vec<Entry> {
    let second = now.as_second();
    let minute = Timestamp::from_second(second - second.rem_euclid(60)).unwrap_or(now);
    for entry in entries.iter_mut().filter(|entry| entry.last_seen == At::NEVER) {
        entry.last_seen = At::from(minute).max(entry.first_seen);
    }
    entries
}

/// The object as the origin of a name.
pub fn origin(id: &ObjectId) -> Origin {
    Origin {
        kind: id.kind.name.as_str().into(),
        namespace: id.namespace.as_deref().unwrap_or_default().into(),
        name: id.name.as_str().into(),
    }
}

/// The object that a name comes from, for an event about it.
pub fn reference(provenance: &Provenance) -> ObjectReference {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let Origin { kind, namespace, name } = &provenance.origin;
    ObjectReference {
        kind: given(kind),
        namespace: given(namespace),
        name: given(name),
        uid: given(&provenance.uid),
        ..ObjectReference::default()
    }
}

/// The provenance of names that an object wants from a system, which publishes them to `publisher`.
pub fn wanted_by(id: &ObjectId, uid: &Arc<str>, publisher: &str) -> Arc<Provenance> {
    Arc::new(Provenance {
        origin: origin(id),
        uid: uid.clone(),
        source: Source::System,
        publisher: publisher.into(),
        ..Provenance::default()
    })
}

/// Completes an entry of a system: it is a claim of its object, published or not, and perhaps refused.
#[must_use]
pub fn entry_of(mut entry: Entry, identity: &Identity, published: bool, refusal: Option<&Refusal>) -> Entry {
    entry.first_seen = At::from(identity.created);
    entry.claims = true;
    entry.stage = match (published, refusal) {
        (true, _) => Stage::Published,
        (false, Some(_)) => Stage::Refused,
        (false, None) => Stage::Wanted,
    };
    entry.refusal = refusal.filter(|_| !published).map(|refusal| {
        let message = refusal.message.as_str().into();
        Box::new(signpost_inventory::Refusal { reason: refusal.reason.as_str(), message })
    });
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::Fqdn;

    #[test]
    fn a_name_of_a_system_was_last_seen_when_it_was_projected() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let entry = || Entry::new(Fqdn::parse("www.example.org").unwrap(), None, Arc::default());
        let last_seen = |entry: Entry, second| seen(vec![entry], at(second)).remove(0).last_seen;
        let minute = 1_800_000_000;
        assert_eq!([last_seen(entry(), minute), last_seen(entry(), minute + 59)], [At::from(at(minute)); 2]);
        let mut young = entry();
        young.first_seen = At::from(at(minute + 30));
        assert_eq!(last_seen(young, minute + 31), At::from(at(minute + 30)), "not before it was created");
        let mut known = entry();
        known.last_seen = At::from(at(minute - 7));
        assert_eq!(last_seen(known, minute), At::from(at(minute - 7)));
    }
}
