//! What is to be done at one name of a zone: who holds what there, what is written and what goes. Pure.
//!
//! ```text
//!  objects at the name ─► claims (oldest first) ─► who may stand beside whom ─► writes, switches of type, deletions
//!  status.applied, ledger ─► what was written here and is wanted no longer ────┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};
use signpost_planning::{Candidates, Claim, Reason, Refusal, admit};
use signpost_provider_powerdns::{COMMENT_ACCOUNT, Comment, CommentChange, SetContent};

use crate::{
    digest::Digest,
    memory::Present,
    plan::{Atom, Plan, Waiting, Write, not_served, unexplained},
    record::{Applied, Record, ZoneObject},
    report::{Says, Verdict},
    zone_plan,
};

/// The plan for everything at one name.
pub(crate) struct NamePlan<'a> {
    pub(crate) plan: &'a mut Plan,
    pub(crate) zone: &'a ZoneName,
    pub(crate) holder: Option<&'a Arc<ZoneObject>>,
    pub(crate) name: &'a Fqdn,
    pub(crate) records: &'a [Arc<Record>],
    /// Why nothing is written in this zone, although what is known to be ours may go.
    pub(crate) barred: Option<&'a Says>,
    /// Whether objects that are not seen may hold something here.
    pub(crate) shared: bool,
    pub(crate) now: Timestamp,
}

impl NamePlan<'_> {
    /// Adds atoms and verdicts; returns what only the ledger knows of.
    pub(crate) fn make(self) -> Vec<RecordKey> {
        let Self { plan, zone, holder, name, records, barred, shared, now } = self;
        if barred.is_none()
            && let Some(verdict) = at_rest(plan, zone, holder, name, records, now)
        {
            plan.decided.push(verdict);
            return Vec::new();
        }
        let start = plan.atoms.len();
        let there: BTreeMap<RecordKey, Digest> = plan
            .memory
            .present
            .as_ref()
            .map(|present| present.at(name).map(|(key, digest)| (key.clone(), digest)).collect())
            .unwrap_or_default();

        // Who claims what.
        let mut wants: BTreeMap<RecordKey, Arc<Record>> = BTreeMap::new();
        let mut losers: Vec<(Arc<Record>, Says)> = Vec::new();
        let mut leaving: Vec<Arc<Record>> = Vec::new();
        let mut line: Vec<&Arc<Record>> = records.iter().collect();
        // Of two that were made in the same second, the one that is served stays.
        let serves = |record: &Record| {
            record.seen.applied.is_some() || record.verdict.as_ref().is_some_and(|verdict| verdict.applied.is_some())
        };
        line.sort_by_key(|record| {
            (record.identity.created, !serves(record), record.identity.uid.clone(), record.identity.id.clone())
        });
        for record in line {
            if record.identity.deleting {
                leaving.push(record.clone());
                continue;
            }
            if let Some(says) = not_served(plan, record).or_else(|| barred.cloned()) {
                losers.push((record.clone(), says));
                continue;
            }
            let Some(key) = record.key() else {
                losers.push((record.clone(), Says::Failed(record.refusal().cloned().unwrap_or_else(unexplained))));
                continue;
            };
            if let Some(holder) = holder.filter(|holder| zone_plan::holds(zone, holder, &key)) {
                losers.push((record.clone(), Says::Failed(claimed(&key, &holder.identity.id.to_string()))));
            } else if let Some(first) = wants.get(&key) {
                losers.push((record.clone(), Says::Failed(claimed(&key, &first.identity.id.to_string()))));
            } else {
                wants.insert(key, record.clone());
            }
        }

        // What objects wrote here and no longer want: the object is going, or its type was changed.
        let wrote = |record: &Record| {
            let applied =
                record.seen.applied.as_ref().filter(|applied| applied.zone == *zone && applied.key.name == *name);
            // Only what is there exactly as the object wants it is taken for PowerDNS-Operator's.
            let inherited = || {
                let (key, digest) = record.inherited().filter(|_| served_by(holder, record))?;
                (there.get(&key) == Some(&digest)).then_some(key)
            };
            applied.map(|applied| applied.key.clone()).or_else(inherited)
        };
        let stays = |record: &Record| record.stays_behind(holder.map(|holder| &**holder));
        let of_zone = |key: &RecordKey| holder.is_some_and(|holder| zone_plan::holds(zone, holder, key));
        let mut unwanted: BTreeSet<RecordKey> = BTreeSet::new();
        unwanted.extend(leaving.iter().filter(|record| !stays(record)).filter_map(|record| wrote(record)));
        for (key, record) in &wants {
            unwanted.extend(wrote(record).filter(|old| old != key));
        }
        for (record, says) in &losers {
            let moved_on = matches!(says, Says::Failed(refusal) if refusal.reason == Reason::ClaimedByAnother);
            unwanted.extend(wrote(record).filter(|old| moved_on && Some(old) != record.key().as_ref()));
        }
        unwanted.retain(|key| {
            key.rtype != RecordType::Soa && !wants.contains_key(key) && !of_zone(key) && there.contains_key(key)
        });
        let kept = |record: &Record| {
            !record.identity.deleting && wrote(record).is_some_and(|old| Some(&old) == record.key().as_ref())
        };

        // What only the ledger knows of: it was written for an object that is gone, or for one that was given another type
        // before its status could say what it wrote.
        let claims = |record: &Arc<Record>, key: &RecordKey| {
            let named = wrote(record).as_ref() == Some(key) || record.key().as_ref() == Some(key);
            if record.identity.deleting {
                named && stays(record)
            } else {
                // One that cannot be understood keeps whatever it wrote.
                named || record.desired.is_err()
            }
        };
        let mut listed = plan.memory.ledger.at(name);
        // Where objects are seen, one that is not may stand beside them; a name that lost its last one was all theirs.
        let unseen = shared && !records.is_empty();
        listed.retain(|key| !unseen && !unwanted.contains(key) && !records.iter().any(|record| claims(record, key)));
        let (mut orphans, forget): (Vec<RecordKey>, Vec<RecordKey>) =
            listed.into_iter().partition(|key| plan.memory.is_ours_by_ledger(key) && !of_zone(key));
        plan.forget.extend(forget);

        // Who can stand beside whom. What is on the server goes before what was, and that before what is new.
        let mut candidates: Candidates<String> = BTreeMap::new();
        for (key, record) in &wants {
            let since = match (there.contains_key(key), kept(record)) {
                (true, _) => Timestamp::MIN,
                (false, true) => Timestamp::UNIX_EPOCH,
                (false, false) => record.identity.created,
            };
            let claim = Claim::new(record.identity.id.to_string(), since, record.identity.uid.clone());
            candidates.insert(key.clone(), claim);
        }
        let stays_there = |key: &&RecordKey| !unwanted.contains(*key) && !orphans.contains(*key);
        let foreign: BTreeSet<RecordKey> = there.keys().filter(stays_there).cloned().collect();
        let admission = admit(zone, &candidates, &foreign);
        let rejected = |plan: &Plan, key: &RecordKey, record: &Record| {
            let rejection = plan.memory.rejected.get(key)?;
            let same = record.desired.as_ref().is_ok_and(|desired| desired.digest == rejection.digest);
            (same && rejection.until > now).then(|| Refusal::new(Reason::ProviderRejected, rejection.words.clone()))
        };
        // An orphan may be the old type of an object that was edited; it stays while the new one cannot be written.
        let edited = |record: &Record| record.seen.applied.is_none() && record.identity.generation > 1;
        let refused = |key: &RecordKey, record: &Record| {
            admission.refused.iter().any(|refused| refused.key == *key) || rejected(plan, key, record).is_some()
        };
        let waits = |record: &&Arc<Record>| barred.is_some() && !record.identity.deleting;
        if wants.iter().any(|(key, record)| edited(record) && refused(key, record))
            || records.iter().filter(waits).any(|record| edited(record))
        {
            orphans.clear();
        }
        for refused in admission.refused {
            if let Some(record) = wants.remove(&refused.key) {
                // The switch cannot be made, so the old set stays.
                if let Some(old) = wrote(&record) {
                    unwanted.remove(&old);
                }
                losers.push((record, Says::Failed(refused.refusal)));
            }
        }

        // What has to be written.
        for (key, record) in &wants {
            let Ok(desired) = &record.desired else { continue };
            let old = wrote(record).filter(|old| old != key && unwanted.contains(old));
            if there.get(key) == Some(&desired.digest) && old.is_none() {
                plan.memory.rejected.remove(key);
                plan.decided.push(Verdict::settled(record, zone, key, desired.digest, now));
                continue;
            }
            if let Some(refusal) = rejected(plan, key, record) {
                plan.decided.push(Verdict::carried(record, Says::Failed(refusal)));
                unwanted.retain(|key| Some(key) != old.as_ref());
                continue;
            }
            if let Some(old) = &old {
                unwanted.remove(old);
            }
            let known = kept(record) && record.identity.held;
            let write = Write {
                content: desired.content.clone(),
                digest: desired.digest,
                comment: comment_change(plan.memory.present.as_ref(), key, &desired.content),
                ledger: !(known || plan.memory.ledger.lists(key, desired.digest)),
                key: key.clone(),
            };
            plan.atoms.push(Atom {
                name: name.clone(),
                // It may need their place.
                deletes: old.into_iter().chain(std::mem::take(&mut orphans)).collect(),
                write: Some(write),
                waiting: vec![Waiting::Holds(record.clone())],
            });
        }

        // What has to go.
        let mut going: BTreeMap<RecordKey, Vec<Waiting>> =
            unwanted.iter().map(|key| (key.clone(), Vec::new())).collect();
        for record in leaving {
            let waits = wrote(&record).and_then(|key| going.get_mut(&key));
            match waits {
                Some(waiting) if !stays(&record) => waiting.push(Waiting::Leaves(record)),
                _ => {
                    if stays(&record) {
                        plan.unlist.extend(wrote(&record).into_iter().chain(record.key()));
                    }
                    let verdict = Verdict::carried(&record, Says::Succeeded);
                    plan.decided.push(Verdict { release: true, applied: None, ..verdict });
                }
            }
        }
        for (record, says) in losers {
            let mut verdict = Verdict::carried(&record, says);
            let lost = wrote(&record).filter(|old| unwanted.contains(old) || wants.contains_key(old) || of_zone(old));
            if lost.is_some() {
                verdict.applied = None;
            } else if barred.is_some() {
                verdict.applied = verdict.applied.or_else(|| unsaid(plan, zone, &record));
            }
            match lost.and_then(|old| going.get_mut(&old)) {
                Some(waiting) => waiting.push(Waiting::Clears(verdict)),
                None => plan.decided.push(verdict),
            }
        }
        // A deletion goes before a write at the same name, so that a successor of another type finds its place.
        for (key, waiting) in going {
            plan.atoms.insert(start, Atom { name: name.clone(), deletes: vec![key], write: None, waiting });
        }
        orphans
    }
}

/// The common case, decided without building anything: one object at the name, served as it wants.
fn at_rest(
    plan: &Plan,
    zone: &ZoneName,
    holder: Option<&Arc<ZoneObject>>,
    name: &Fqdn,
    records: &[Arc<Record>],
    now: Timestamp,
) -> Option<Verdict> {
    let ([record], Some(holder), Some(present)) = (records, holder, &plan.memory.present) else { return None };
    let (Some(key), Ok(desired)) = (record.key(), &record.desired) else { return None };
    let mut at = present.at(name);
    let (Some((there, digest)), None) = (at.next(), at.next()) else { return None };
    let served = *there == key && digest == desired.digest && record.zone == holder.identity.id;
    let wrote = record.seen.applied.as_ref().is_none_or(|applied| applied.zone == *zone && applied.key == key);
    let own = zone_plan::holds(zone, holder, &key) || plan.memory.rejected.contains_key(&key);
    let listed = plan.memory.ledger.at(name).iter().all(|listed| *listed == key);
    (served && wrote && listed && !own && !record.identity.deleting)
        .then(|| Verdict::settled(record, zone, &key, desired.digest, now))
}

fn served_by(holder: Option<&Arc<ZoneObject>>, record: &Record) -> bool {
    holder.is_some_and(|holder| holder.identity.id == record.zone && !holder.identity.deleting)
}

/// What was written for an object that its status does not say yet: the ledger that says it goes with the zone object.
fn unsaid(plan: &Plan, zone: &ZoneName, record: &Record) -> Option<Box<Applied>> {
    let (key, desired) = (record.key()?, record.desired.as_ref().ok()?);
    let digest = desired.digest;
    let there = plan.memory.present.as_ref()?.sets.get(&key) == Some(&digest);
    (there && plan.memory.ledger.lists(&key, digest)).then(|| Box::new(Applied { zone: zone.clone(), key, digest }))
}

fn claimed(key: &RecordKey, holder: &str) -> Refusal {
    Refusal::new(Reason::ClaimedByAnother, format!("{key} is held by {holder}"))
}

/// Ours is written, or taken off; those of others stay.
fn comment_change(present: Option<&Present>, key: &RecordKey, content: &SetContent) -> CommentChange {
    let others = || present.and_then(|present| present.beside.get(key)).cloned().unwrap_or_default();
    match &content.comment {
        Some(text) => {
            let account = COMMENT_ACCOUNT.to_owned();
            let ours = Comment { content: text.to_string(), account, modified_at: None };
            CommentChange::Are(std::iter::once(ours).chain(others().iter().cloned()).collect())
        }
        None if present.is_some_and(|present| present.commented.contains(key)) => CommentChange::Are(others()),
        None => CommentChange::Keep,
    }
}
