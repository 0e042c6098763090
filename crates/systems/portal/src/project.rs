//! The names of DNS objects and of discovered objects for the inventory: with the verdicts of this process, or else with those of the last status, as on a replica that
//! does not look names up.

use jiff::Timestamp;
use signpost_engine::Project;
use signpost_inventory::Entry;

use crate::PortalSystem;
use crate::index::Key;
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
        view::views(&known.identity, facts, shown_by, of, now)
    }
}
