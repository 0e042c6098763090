//! The index and the answers of the resolvers as plain data.

mod lookup;
pub(crate) mod remote;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::Job;
use signpost_inventory::{Owner, Stage, SyncStatus, View};

use crate::index::{ComponentFacts, DnsFacts, Key, Known};
use crate::plan::entries::Wanted;
use crate::plan::judge::questions;
use crate::plan::{MainPortal, Memory, Observed, ObservedDns, ObservedNames, Pauses, Verdicts, due, is_checked, view};
use crate::{PortalSystem, served};

pub(crate) use lookup::Kept;
use lookup::{LookedUp, Server, doubtful, look_up};

pub(crate) async fn observe(system: &PortalSystem, job: &Job<Key, ()>, memory: Memory) -> Observed {
    let objects = &system.objects;
    let id = match &job.key {
        Key::Main => {
            let namespace = system.pace.namespace.clone();
            let missing = !namespace.is_empty() && !objects.has_main(&namespace);
            let deployment = system.pace.deployment.clone();
            return Observed::Main(MainPortal { namespace, deployment, missing });
        }
        Key::Names(owner) => return Observed::Names(Box::new(observe_names(system, owner, memory).await)),
        Key::Object(id) => id,
    };
    let Some(known) = objects.get(id).filter(|known| !known.identity.is_deleting()) else { return Observed::Nothing };
    if let Some(portal) = known.portal() {
        let Some(remote) = known.remote() else {
            let leftover = !remote::copies_of(objects, &known.identity).is_empty();
            return Observed::Portal(known.identity.clone(), *portal, leftover);
        };
        let (portal, remote) = (*portal, remote.clone());
        return remote::observe(system, &known, portal, &remote, memory).await;
    }
    if let Some(component) = known.component() {
        let has_portal = objects.has_portal(id, component);
        let (decided, missed) = known.history();
        let component = ComponentFacts { decided, missed, ..component.clone() };
        return Observed::Component(known.identity.clone(), Box::new(component), has_portal);
    }
    let Some(facts) = known.dns().cloned() else { return Observed::Nothing };
    let now = system.clock.now();
    let (shown_by, portal) = objects.portal_of(id, &facts).unzip();
    let verdicts = memory.verdicts.unwrap_or_else(|| last_verdicts(&known, &facts, system.pace.refresh, now));
    let changed = objects.take_changed(id);
    let names = facts.groups.iter().flat_map(|group| group.names.iter()).map(|wanted| (wanted, ()));
    let is_checked = is_checked(&facts, portal, system.pace.check);
    let due = if is_checked { due(names, &verdicts, changed.names(), now) } else { Vec::new() };
    let due: Vec<&Wanted> = due.into_iter().map(|(wanted, ())| wanted).collect();
    let mut seen = BTreeSet::new();
    let readable = due.iter().filter_map(|wanted| wanted.question.as_ref().ok());
    let asked = readable.flat_map(questions).filter(|question| seen.insert(question.clone()));
    let asked: Vec<_> = asked.map(|question| (question, None)).collect();
    let of_names: BTreeMap<Fqdn, Vec<RecordType>> = types_of(&asked, changed.names());
    let doubtful = doubtful(&due, &verdicts, changed.names());
    let LookedUp { answers, unfinished, left, busy } = look_up(system, &due, asked, &doubtful).await;
    let is_answered = |name: &Fqdn| {
        let types = of_names.get(name).into_iter().flatten();
        types.into_iter().all(|rtype| answers.contains_key(&(name.clone(), *rtype)))
    };
    let changed = changed.answered(is_answered);
    let owned = objects.owned_by(&known.identity);
    Observed::Dns(Box::new(ObservedDns {
        left,
        busy,
        unfinished,
        identity: known.identity,
        portal,
        shown_by,
        verdicts,
        outages: memory.outages,
        noticed: memory.noticed,
        check: system.pace.check,
        answers,
        changed,
        owned,
        pauses: Pauses { refresh: system.pace.refresh, again: system.pace.again },
        facts,
    }))
}

/// The verdicts of a key without a memory: those of the last pass, which was cut off, or else those of the status. Events of a pass that was cut
/// off are lost.
fn last_verdicts(known: &Known, facts: &DnsFacts, refresh: Duration, now: Timestamp) -> Arc<Verdicts> {
    let of_status = || Arc::new(verdicts_of_status(facts, known.identity.generation, refresh, now));
    known.verdicts.clone().unwrap_or_else(of_status)
}

/// The verdicts of the last status, which count after a start. Names in sync were looked up a refresh ago at most.
fn verdicts_of_status(facts: &DnsFacts, generation: i64, refresh: Duration, now: Timestamp) -> Verdicts {
    let names = facts.groups.iter().flat_map(|group| group.names.iter());
    let seeded = names.filter_map(|wanted| {
        let mut checked = view::seeded(&facts.seed, wanted)?;
        // What was edited since is looked up, and so is everything that a wrong clock has dated into the future.
        if checked.verdict.status == SyncStatus::Sync && facts.reported == generation && checked.at <= now {
            checked.next = checked.at.checked_add(refresh).unwrap_or(now);
            checked.from = checked.next;
        }
        Some((wanted.subject()?, checked))
    });
    seeded.collect()
}

/// The types that are asked for, of each of these names.
fn types_of<T>(asked: &[((Fqdn, RecordType), T)], names: &BTreeSet<Fqdn>) -> BTreeMap<Fqdn, Vec<RecordType>> {
    let mut types: BTreeMap<Fqdn, Vec<RecordType>> = BTreeMap::new();
    for ((name, rtype), _) in asked.iter().filter(|((name, _), _)| names.contains(name)) {
        types.entry(name.clone()).or_default().push(*rtype);
    }
    types
}

/// The published names of an owner of another system, and what the resolvers answer for those that are due.
async fn observe_names(system: &PortalSystem, owner: &Owner, memory: Memory) -> ObservedNames {
    let views = system.inventory.views(owner);
    // As they are before the lookups: a result for an object that is edited meanwhile is dropped.
    let records = if system.pace.verify { served::records(&system.objects, &views) } else { Vec::new() };
    let mut verdicts = memory.verdicts.unwrap_or_default();
    let shown: Vec<Arc<View>> = views.iter().filter(|view| is_looked_up(system, view)).cloned().collect();
    let (names, servers) = published(system, &shown);
    if system.pace.verify {
        let seeds = served::seeds(&system.objects, &shown, &verdicts);
        if !seeds.is_empty() {
            Arc::make_mut(&mut verdicts).extend(seeds);
        }
    }
    let due = due(names.iter().map(|wanted| (wanted, ())), &verdicts, &BTreeSet::new(), system.clock.now());
    let due: Vec<&Wanted> = due.into_iter().map(|(wanted, ())| wanted).collect();
    let asked = questions_of(&due, &names, &servers);
    let doubtful = doubtful(&due, &verdicts, &BTreeSet::new());
    let LookedUp { answers, unfinished, left, busy } = look_up(system, &due, asked, &doubtful).await;
    let pauses = Pauses { refresh: system.pace.refresh, again: system.pace.again };
    let (owner, outages) = (owner.clone(), memory.outages);
    ObservedNames { owner, names, views: shown, records, verdicts, outages, answers, unfinished, left, busy, pauses }
}

fn is_looked_up(system: &PortalSystem, view: &View) -> bool {
    system.pace.check && view.stage() == Stage::Published && served::is_comparable(view)
}

/// The names that were published, and the server that each was published to.
fn published(system: &PortalSystem, views: &[Arc<View>]) -> (Vec<Wanted>, Vec<Option<Server>>) {
    let server = |view: &View| {
        let (publisher, _) = system.lookups.servers.get_key_value(&view.provenance().publisher)?;
        Some(publisher.clone())
    };
    views.iter().map(|view| (served::wanted(view), server(view))).unzip()
}

/// The questions for the names that are due, each with the server to ask beside the resolvers: that of the published name. A target of a published name may
/// be anywhere, unless it is published too.
fn questions_of(
    due: &[&Wanted],
    names: &[Wanted],
    servers: &[Option<Server>],
) -> Vec<((Fqdn, RecordType), Option<Server>)> {
    let own: BTreeMap<(Fqdn, RecordType), &Server> = names
        .iter()
        .zip(servers)
        .filter_map(|(wanted, server)| Some((wanted.question.as_ref().ok()?, server.as_ref()?)))
        .flat_map(|(question, server)| {
            let asked = questions(question).into_iter().filter(|(name, _)| *name == question.name);
            asked.map(move |asked| (asked, server))
        })
        .collect();
    let (mut seen, mut asked) = (BTreeSet::new(), Vec::new());
    for wanted in due {
        let Ok(question) = &wanted.question else { continue };
        let new = questions(question).into_iter().filter(|question| seen.insert(question.clone()));
        asked.extend(new.map(|asked| {
            let server = own.get(&asked).map(|server| (*server).clone());
            (asked, server)
        }));
    }
    asked
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use signpost_apis::portal::{DNS, DnsEntry};
    use signpost_engine::{Index, ObjectId};

    use super::*;
    use crate::index::{Keys, Objects};
    use crate::plan::entries;

    #[test]
    fn a_pass_that_was_cut_off_keeps_the_verdicts_of_an_object() {
        let objects = Objects::new(Keys::default(), "");
        let entry = json!({ "fqdn": "www.example.org", "recordType": "A", "targets": ["192.0.2.1"] });
        let mut shown = entry.clone();
        (shown["syncStatus"], shown["reason"]) = (json!("sync"), json!("Match"));
        let object: DNS = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "metadata": { "name": "team", "namespace": "a", "uid": "u" },
            "spec": { "portalRef": "main", "groups": [{ "name": "apps", "entries": [entry] }] },
            "status": { "groups": [{ "name": "apps", "source": "manual", "fqdns": [shown] }] },
        }))
        .unwrap();
        Index::<DNS>::applied(&objects, &object);
        let (refresh, now) = (Duration::from_mins(5), "2026-03-04T12:00:00Z".parse().unwrap());
        let last = || {
            let known = objects.get(&ObjectId::of(&object)).unwrap();
            let facts = known.dns().unwrap();
            (last_verdicts(&known, facts, refresh, now), facts.seed.len())
        };
        let (of_status, seeds) = last();
        let statuses: Vec<SyncStatus> = of_status.values().map(|checked| checked.verdict.status).collect();
        assert_eq!((&statuses[..], seeds), (&[SyncStatus::Sync][..], 1), "those of the status");

        // The next pass reports nothing: the API server does not answer for its component.
        objects.judged(&objects.get(&ObjectId::of(&object)).unwrap().identity, of_status.clone());
        let (verdicts, seeds) = last();
        assert!(Arc::ptr_eq(&verdicts, &of_status));
        assert_eq!(seeds, 0, "verdicts are kept once");
        Index::<DNS>::applied(&objects, &object);
        assert!(Arc::ptr_eq(&last().0, &of_status));
    }

    #[test]
    fn a_record_that_is_the_target_of_an_alias_is_asked_of_its_server() {
        let read = |name: &str, target: &str| {
            entries::read(&DnsEntry { fqdn: name.into(), targets: vec![target.into()], ..DnsEntry::default() })
        };
        let names = [read("example.org", "lb.example.org"), read("lb.example.org", "192.0.2.1")];
        let servers = [Some("powerdns".into()), Some("powerdns".into())];
        let asked = questions_of(&names.iter().collect::<Vec<_>>(), &names, &servers);
        let of = |name: &str, rtype| {
            let name = Fqdn::parse(name).unwrap();
            asked.iter().find(|((of, as_), _)| (of, as_) == (&name, &rtype)).map(|(_, server)| server.as_deref())
        };
        assert_eq!(of("lb.example.org", RecordType::A), Some(Some("powerdns")), "also when the alias is the first");
        assert_eq!(of("lb.example.org", RecordType::Aaaa), Some(None), "that type was not published");
        assert_eq!(of("example.org", RecordType::A), Some(Some("powerdns")));
    }
}
