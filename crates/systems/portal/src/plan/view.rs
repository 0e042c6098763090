//! The names of a DNS object as entries of the inventory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use signpost_apis::portal::TargetMatch;
use signpost_engine::Identity;
use signpost_engine::project::origin;
use signpost_inventory::{At, Entry, Provenance, Source};

use super::Checked;
use super::entries::Wanted;
use crate::index::{DnsFacts, Seed};

type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// The views of an object with names, shown by a portal. The same name in several groups is one view with several groups. An entry that is not a name has no view.
pub(crate) fn views(
    identity: &Identity,
    facts: &DnsFacts,
    portal: Option<&str>,
    checked: impl Fn(&Wanted) -> Option<Checked>,
    now: Timestamp,
) -> Vec<Entry> {
    let origin = origin(&identity.id);
    let portals: Vec<Arc<str>> = portal.into_iter().map(Arc::from).collect();
    let mut by_subject: BTreeMap<_, (Vec<Arc<str>>, &Wanted)> = BTreeMap::new();
    for group in facts.groups.iter() {
        for wanted in &group.names {
            let Some(subject) = wanted.subject() else { continue };
            let (groups, _) = by_subject.entry((subject, &wanted.labels)).or_insert_with(|| (Vec::new(), wanted));
            if !groups.contains(&group.name) {
                groups.push(group.name.clone());
            }
        }
    }
    let mut shared: BTreeMap<(Vec<Arc<str>>, &Labels), Arc<Provenance>> = BTreeMap::new();
    let mut entries = Vec::with_capacity(by_subject.len());
    for (groups, wanted) in by_subject.into_values() {
        let Ok(question) = &wanted.question else { continue };
        let provenance = shared.entry((groups.clone(), &wanted.labels)).or_insert_with(|| {
            Arc::new(Provenance {
                origin: origin.clone(),
                source: facts.source,
                groups,
                portals: portals.clone(),
                labels: wanted.labels.clone(),
                publisher: Box::default(),
            })
        });
        let mut entry = Entry::new(question.name.clone(), question.rtype, provenance.clone());
        entry.targets = wanted.targets.clone();
        entry.description.clone_from(&wanted.description);
        entry.first_seen = At::from(identity.created);
        entry.last_seen = At::from(now);
        entry.claims = question.how == TargetMatch::Exact && facts.source != Source::Remote;
        if let Some(checked) = checked(wanted) {
            entry.status = checked.verdict.status;
            entry.reason = checked.verdict.reason;
            entry.observed = checked.verdict.observed;
            entry.checked_at = At::from(checked.at);
        }
        entries.push(entry);
    }
    entries
}

/// The verdict of an entry in the last status.
pub(crate) fn seeded(seed: &Seed, wanted: &Wanted) -> Option<Checked> {
    let rtype = wanted.question.as_ref().ok()?.rtype.map(|rtype| rtype.as_str().to_owned());
    seed.get(&(wanted.shown.clone(), rtype, wanted.targets.clone())).cloned()
}
