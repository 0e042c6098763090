//! The names of every system in one inventory.
//!
//! ```text
//!  touch · end of a pass · note ─► keys that changed ─► project(key) ─► Inventory::replace(system and key)
//! ```
//!
//! Runs on every replica. It runs only when a system asks for it ([`crate::Operator::keep_inventory`]); otherwise no key is remembered and
//! nothing is projected.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use signpost_inventory::{At, Entry, Inventory, Origin, Owner, Provenance, Source, Stage};
use signpost_planning::Refusal;
use tokio::time::Instant;

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

/// Keys that keep changing are projected less often: this is the shortest pause, and nine tenths of the time are pauses.
const PAUSE: Duration = Duration::from_millis(20);

/// Projects the keys of a system as they change, until it is dropped.
pub(crate) async fn run<S>(
    system: Arc<S>,
    queue: Queue<S::Key, S::Object>,
    inventory: Arc<Inventory>,
    clock: Arc<dyn Clock>,
) where
    S: System + Project<S::Key>,
{
    loop {
        let keys = queue.changed().await;
        let began = Instant::now();
        for key in keys {
            let now = clock.now();
            let entries = system.project(&key, now);
            inventory.replace(&Owner::new(S::NAME, &key.to_string()), entries, now);
            tokio::task::yield_now().await;
        }
        tokio::time::sleep((began.elapsed() * 9).max(PAUSE)).await;
    }
}

/// The object as the origin of a name.
pub fn origin(id: &ObjectId) -> Origin {
    Origin {
        kind: id.kind.name.as_str().into(),
        namespace: id.namespace.as_deref().unwrap_or_default().into(),
        name: id.name.as_str().into(),
    }
}

/// The provenance of names that an object wants from a system, which publishes them to `publisher`.
pub fn wanted_by(id: &ObjectId, publisher: &str) -> Arc<Provenance> {
    Arc::new(Provenance {
        origin: origin(id),
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
