//! The names of a DNS object as entries of the inventory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use signpost_apis::portal::TargetMatch;
use signpost_engine::Identity;
use signpost_engine::project::origin;
use signpost_inventory::{At, Entry, Provenance, Refusal, Source, Stage, SyncReason};

use super::entries::{Invalid, Subject, Wanted};
use super::{Checked, invalid};
use crate::index::{DnsFacts, Seed};

type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// The views of an object with names, shown by a portal. The same name in several groups is one view with several groups. An entry with a name that cannot be
/// looked up is refused, with the reason. An entry that is not a name has no view.
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
        for wanted in group.names.iter() {
            let Some(subject) = place(wanted) else { continue };
            let (groups, _) = by_subject.entry((subject, &wanted.labels)).or_insert_with(|| (Vec::new(), wanted));
            if !groups.contains(&group.name) {
                groups.push(group.name.clone());
            }
        }
    }
    let mut shared: BTreeMap<(Vec<Arc<str>>, &Labels), Arc<Provenance>> = BTreeMap::new();
    let mut entries = Vec::with_capacity(by_subject.len());
    for (groups, wanted) in by_subject.into_values() {
        let Some(((name, rtype, ..), _)) = place(wanted) else { continue };
        let provenance = shared.entry((groups.clone(), &wanted.labels)).or_insert_with(|| {
            Arc::new(Provenance {
                origin: origin.clone(),
                uid: identity.uid.clone(),
                source: facts.source,
                groups,
                portals: portals.clone(),
                labels: wanted.labels.clone(),
                publisher: Box::default(),
            })
        });
        let mut entry = Entry::new(name, rtype, provenance.clone());
        entry.targets = wanted.targets.clone();
        entry.description.clone_from(&wanted.description);
        entry.first_seen = At::from(identity.created);
        entry.last_seen = At::from(now);
        let verdict = match &wanted.question {
            Ok(question) => {
                entry.claims = question.how == TargetMatch::Exact && facts.source != Source::Remote;
                let checked = checked(wanted);
                entry.checked_at = checked.as_ref().map_or(At::NEVER, |checked| At::from(checked.at));
                checked.map(|checked| checked.verdict)
            }
            Err(Invalid { why, .. }) => {
                let reason = SyncReason::InvalidEntry.as_str();
                entry.stage = Stage::Refused;
                entry.refusal = Some(Box::new(Refusal { reason, message: why.as_str().into() }));
                Some(invalid(why))
            }
        };
        if let Some(verdict) = verdict {
            (entry.status, entry.reason, entry.observed) = (verdict.status, verdict.reason, verdict.observed);
        }
        entries.push(entry);
    }
    entries
}

/// What tells the views of an object apart: the subject of an entry, and whether the entry is refused. `None` for an entry that is not a name.
fn place(wanted: &Wanted) -> Option<(Subject, bool)> {
    match &wanted.question {
        Ok(_) => Some((wanted.subject()?, false)),
        Err(Invalid { name, rtype, .. }) => {
            Some(((name.clone()?, *rtype, wanted.targets.clone(), TargetMatch::Exact), true))
        }
    }
}

/// The verdict of an entry in the last status.
pub(crate) fn seeded(seed: &Seed, wanted: &Wanted) -> Option<Checked> {
    let rtype = wanted.question.as_ref().ok()?.rtype.map(|rtype| rtype.as_str().to_owned());
    seed.get(&(wanted.shown.clone(), rtype, wanted.targets.clone())).cloned()
}
