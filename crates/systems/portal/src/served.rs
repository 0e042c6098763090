//! Whether the names that other systems published are served: looked up like the names of DNS objects, with the result in the inventory.
//!
//! ```text
//!  change of a system's view ─► key of its owner ─► lookups ─► Inventory::judge
//!                           └─► DNS and discovered objects with the same name: looked up soon
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use signpost_apis::portal::DnsEntry;
use signpost_dns::Fqdn;
use signpost_engine::{ObjectId, Touch};
use signpost_inventory::{At, Change, Inventory, Judgement, Owner, Source, Update, View};

use crate::index::{Key, Keys, Objects};
use crate::plan::NamesPlan;
use crate::plan::entries::{self, Wanted};
use crate::{NAME, PortalSystem};

/// Touches what the changes of other systems concern, until it is dropped.
pub(crate) fn follow(inventory: Arc<Inventory>, objects: Arc<Objects>, queue: Keys) -> impl Future<Output = ()> {
    // From before the first change.
    let (_, mut changes) = inventory.subscribe();
    async move {
        loop {
            let (mut owners, mut names) = (BTreeSet::new(), BTreeSet::new());
            match changes.next().await {
                Update::Lagged(snapshot) => {
                    let others = snapshot.iter().filter(|view| is_of_system(view));
                    owners.extend(others.map(|view| view.owner().clone()));
                }
                Update::Changes(batch) => {
                    for change in &batch.changes {
                        let (Change::Added(view) | Change::Modified(view) | Change::Removed(view)) = change;
                        if is_of_system(view) {
                            owners.insert(view.owner().clone());
                            names.insert(view.name().clone());
                        }
                    }
                }
            }
            for (id, names) in with_names(&inventory, &objects, names) {
                objects.names_changed(&id, names);
            }
            for owner in owners {
                queue.touch(Key::Names(owner), Touch::All);
            }
        }
    }
}

fn is_of_system(view: &View) -> bool {
    view.owner().system != NAME && view.provenance().source == Source::System
}

/// The objects of this system that have one of these names.
fn with_names(
    inventory: &Inventory,
    objects: &Objects,
    names: BTreeSet<Fqdn>,
) -> BTreeMap<Arc<ObjectId>, BTreeSet<Fqdn>> {
    let snapshot = inventory.snapshot();
    let mut found: BTreeMap<Arc<ObjectId>, BTreeSet<Fqdn>> = BTreeMap::new();
    for name in names {
        for view in snapshot.get(&name).filter(|view| view.owner().system == NAME) {
            if let Some(id) = objects.of_owner(view.owner()) {
                found.entry(id).or_default().insert(name.clone());
            }
        }
    }
    found
}

/// What is expected of a name that a system published.
pub(crate) fn wanted(view: &View) -> Wanted {
    entries::read(&DnsEntry {
        fqdn: view.name().undotted().to_owned(),
        record_type: view.rtype().map(|rtype| rtype.as_str().to_owned()),
        targets: view.targets().iter().map(str::to_owned).collect(),
        ..DnsEntry::default()
    })
}

/// Writes the verdicts on an owner's names into the inventory.
pub(crate) fn judge(system: &PortalSystem, plan: &NamesPlan) {
    let judgement = |view: &View| {
        let checked = plan.verdicts.get(&wanted(view).subject()?)?;
        let verdict = &checked.verdict;
        Some(Judgement {
            status: verdict.status,
            reason: verdict.reason,
            observed: verdict.observed.clone(),
            checked_at: At::from(checked.at),
        })
    };
    let owner: &Owner = &plan.owner;
    system.inventory.judge(owner, system.clock.now(), judgement);
}
