//! The index and the answers of the resolvers as plain data.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::Job;
use signpost_inventory::{Owner, Stage, SyncStatus};
use tokio::time::{Instant, timeout_at};

use crate::index::Key;
use crate::plan::entries::Wanted;
use crate::plan::judge::{Answers, questions};
use crate::plan::{Memory, Observed, ObservedDns, ObservedNames, Pauses, Verdicts, due, is_checked, view};
use crate::{PortalSystem, served};

pub(crate) async fn observe(system: &PortalSystem, job: &Job<Key, ()>, memory: Memory) -> Observed {
    let objects = &system.objects;
    let id = match &job.key {
        Key::Main => {
            let namespace = &system.pace.namespace;
            let missing = !namespace.is_empty() && !objects.has_main(namespace);
            return Observed::Main(missing.then(|| namespace.clone()));
        }
        Key::Names(owner) => return Observed::Names(Box::new(observe_names(system, owner, memory).await)),
        Key::Object(id) => id,
    };
    let Some(known) = objects.get(id).filter(|known| !known.identity.is_deleting()) else { return Observed::Nothing };
    let namespace = id.namespace.as_deref();
    if let Some(portal) = known.portal() {
        return Observed::Portal(known.identity.clone(), *portal);
    }
    if let Some(component) = known.component() {
        let has_portal = objects.portal(namespace, &component.portal).is_some();
        return Observed::Component(known.identity.clone(), Box::new(component.clone()), has_portal);
    }
    let Some(facts) = known.dns().cloned() else { return Observed::Nothing };
    let now = system.clock.now();
    let (shown_by, portal) = objects.portal_of(id, &facts).unzip();
    // After a start, the verdicts of the last status count. Names in sync were looked up a refresh ago at most.
    let verdicts = memory.verdicts.unwrap_or_else(|| {
        let names = facts.groups.iter().flat_map(|group| &group.names);
        let seeded = names.filter_map(|wanted| {
            let mut checked = view::seeded(&facts.seed, wanted)?;
            if checked.verdict.status == SyncStatus::Sync {
                checked.next = checked.at.checked_add(system.pace.refresh).unwrap_or(now);
            }
            Some((wanted.subject()?, checked))
        });
        Arc::new(seeded.collect::<Verdicts>())
    });
    let mut asked: Vec<(Fqdn, RecordType)> = Vec::new();
    if is_checked(&facts, portal, system.pace.check) {
        let mut seen = BTreeSet::new();
        let names = facts.groups.iter().flat_map(|group| &group.names);
        let changed = objects.take_changed(id);
        let wanted =
            due(names, &verdicts, &changed, now).into_iter().filter_map(|wanted| wanted.question.as_ref().ok());
        asked.extend(wanted.flat_map(questions).filter(|question| seen.insert(question.clone())));
    }
    let (count, answers) = (asked.len(), look_up(system, asked).await);
    let owned = objects.owned_by(&known.identity.uid);
    Observed::Dns(Box::new(ObservedDns {
        left: count - answers.len(),
        identity: known.identity,
        portal,
        shown_by,
        verdicts,
        missing: memory.missing,
        check: system.pace.check,
        answers,
        owned: owned.into_iter().map(|(id, state)| (id.name.clone(), state)).collect(),
        pauses: Pauses { refresh: system.pace.refresh, again: system.pace.again },
        facts,
    }))
}

/// The published names of an owner of another system, and what the resolvers answer for those that are due.
async fn observe_names(system: &PortalSystem, owner: &Owner, memory: Memory) -> ObservedNames {
    let views = system.inventory.views(owner);
    let published = views.iter().filter(|view| system.pace.check && view.stage() == Stage::Published);
    let names: Vec<Wanted> = published.map(|view| served::wanted(view)).collect();
    let verdicts = memory.verdicts.unwrap_or_default();
    let mut seen = BTreeSet::new();
    let due = due(names.iter(), &verdicts, &BTreeSet::new(), system.clock.now()).into_iter();
    let asked = due.filter_map(|wanted| wanted.question.as_ref().ok()).flat_map(questions);
    let asked: Vec<(Fqdn, RecordType)> = asked.filter(|question| seen.insert(question.clone())).collect();
    let (count, answers) = (asked.len(), look_up(system, asked).await);
    let pauses = Pauses { refresh: system.pace.refresh, again: system.pace.again };
    ObservedNames { owner: owner.clone(), names, verdicts, left: count - answers.len(), answers, pauses }
}

/// Asks, as many questions at once as the resolvers allow, until the time of the pass is over.
async fn look_up(system: &PortalSystem, asked: Vec<(Fqdn, RecordType)>) -> Answers {
    let until = Instant::now() + system.pace.budget;
    let mut answers = Answers::new();
    let mut replies = futures::stream::iter(asked)
        .map(|(name, rtype)| async move {
            let replies = system.resolver.lookup(&name, rtype).await;
            ((name, rtype), replies)
        })
        .buffer_unordered(system.pace.lookups);
    while let Ok(Some((question, replies))) = timeout_at(until, replies.next()).await {
        system.metrics.looked_up(&replies);
        answers.insert(question, replies);
    }
    answers
}
