//! The exposed hosts of an Ingress as names of the inventory. Pangolin answers for them, so they have no expected values.
//!
//! What the last pass of this process found counts. In crd mode, a PangolinResource that is ready and has a target counts on every
//! replica.

use jiff::Timestamp;
use signpost_engine::Project;
use signpost_engine::project::{entry_of, wanted_by};
use signpost_inventory::Entry;
use signpost_planning::{Reason, Refusal};

use crate::index::{ChildFacts, ChildState, Key};
use crate::plan::refusals::of_host;
use crate::{NAME, PangolinSystem};

impl Project<Key> for PangolinSystem {
    fn project(&self, key: &Key, _now: Timestamp) -> Vec<Entry> {
        let Key::Ingress(id) = key else { return Vec::new() };
        let Some(claimant) = self.index.claimant(id) else { return Vec::new() };
        let (outcome, taken) = (self.index.outcome(id), self.index.taken(&claimant));
        let (children, claimed) = (self.index.children(id), self.index.claimed(id));
        let provenance = wanted_by(id, &claimant.identity.uid, NAME);
        let entries = claimed.iter().map(|host| {
            let is_ready = |child: &ChildFacts| {
                matches!(child.state, ChildState::Ready { targets: true, .. })
                    && child.host.as_deref() == Some(host.undotted())
                    && !child.deleting
            };
            let owned = taken
                .get(host)
                .map(|owner| Refusal::new(Reason::HostTaken, format!("{host} is owned by {owner}, which is older")));
            let refusal = owned.or_else(|| of_host(&outcome.refusals, host).cloned());
            let elsewhere = refusal.as_ref().is_some_and(|refusal| refusal.reason == Reason::ResourceWrongHost);
            let published = outcome.hosts.contains(host) || !elsewhere && children.values().any(is_ready);
            let entry = Entry::new(host.clone(), None, provenance.clone());
            entry_of(entry, &claimant.identity, published, refusal.as_ref())
        });
        entries.collect()
    }
}
