//! The names of DNS objects and of discovered objects for the inventory: with the verdicts of this process, or else with those of the last status, as on a replica that
//! does not look names up. A verdict that is in no status is not known there, and the reason is `LeaderOnly`.

use std::sync::Arc;

use jiff::Timestamp;
use signpost_engine::Project;
use signpost_inventory::{At, Entry, Provenance, Source, SyncReason, SyncStatus};

use crate::PortalSystem;
use crate::index::{Key, Known};
use crate::plan::entries::Wanted;
use crate::plan::view;

impl Project<Key> for PortalSystem {
    fn project(&self, key: &Key, now: Timestamp) -> Vec<Entry> {
        let Key::Object(id) = key else { return Vec::new() };
        let Some(known) = self.objects.get(id).filter(|known| !known.identity.is_deleting()) else { return Vec::new() };
        let Some(facts) = known.dns() else { return Vec::new() };
        let portal = self.objects.portal_of(id, facts);
        if portal.as_ref().is_some_and(|(_, portal)| !portal.dns) {
            return Vec::new();
        }
        let asked = Some(facts.portal.as_str()).filter(|asked| !asked.is_empty());
        let shown_by = portal.as_ref().map(|(name, _)| name.as_str()).or(asked);
        let of = |wanted: &Wanted| match &known.verdicts {
            Some(verdicts) => verdicts.get(&wanted.subject()?).cloned(),
            None => view::seeded(&facts.seed, wanted),
        };
        let mut entries = view::views(&known.identity, facts, shown_by, of, now);
        if facts.source == Source::Remote && is_stale(&known) {
            let last_seen = self.objects.last_visit(id, facts).map_or(At::NEVER, At::from);
            for entry in &mut entries {
                mark_stale(entry, last_seen);
            }
        }
        if facts.source != Source::Remote && self.pace.check && !self.writer.may_write() {
            let unknown = |entry: &&mut Entry| entry.status == SyncStatus::Unchecked;
            entries.iter_mut().filter(unknown).for_each(|entry| entry.reason = SyncReason::LeaderOnly);
        }
        entries
    }
}

/// The label of names whose portal did not answer the last time.
const STALE: &str = "sreportal.io/stale";

fn is_stale(known: &Known) -> bool {
    known.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "False")
}

/// Marks a name of a portal that was last read at this time.
fn mark_stale(entry: &mut Entry, last_seen: At) {
    entry.last_seen = last_seen.max(entry.first_seen);
    let mut labels = entry.provenance.labels.clone();
    labels.insert(STALE.into(), "true".into());
    entry.provenance = Arc::new(Provenance { labels, ..(*entry.provenance).clone() });
}
