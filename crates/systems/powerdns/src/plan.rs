//! What is to be done about a zone. Pure: no I/O, no clock, no `Result`; bad input is a refusal.
//!
//! ```text
//!  claimants ─► holder ─► zone step (create, configure, delete)          ┐
//!  names ─► claims ─► who may stand beside whom ─► atoms (delete, write) ├─► Plan
//!  ledger, status.applied ─► what is ours and wanted by nobody ──────────┘
//! ```
//!
//! An [`Atom`] is what goes together or not at all: the type change of one object is one atom.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use signpost_apis::powerdns::{AdoptionPolicy, DeletionPolicy};
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};
use signpost_planning::{DeletionGuard, Permission, Reason, Refusal, Verdict as GuardVerdict};
use signpost_provider_powerdns::{CommentChange, NewZone, ServerError, SetContent, ZoneSettings};

use crate::{
    digest::Digest,
    index::Snapshot,
    memory::ZoneMemory,
    name_plan::NamePlan,
    record::{Record, ZoneKey, ZoneObject},
    report::{Says, Verdict},
    zone_plan,
};

/// Everything a plan depends on.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) key: ZoneKey,
    pub(crate) snapshot: Snapshot,
    pub(crate) server: ServerView,
    pub(crate) memory: ZoneMemory,
}

/// What the server said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ServerView {
    /// Nothing under this key needs the server.
    NotAsked,
    /// It could not be asked.
    Unreachable(ServerError),
    /// It has no such zone.
    Missing,
    /// It has the zone: see the memory.
    Present,
}

/// What to do.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) key: ZoneKey,
    pub(crate) memory: ZoneMemory,
    /// The zone object that decides, if any.
    pub(crate) holder: Option<Arc<ZoneObject>>,
    /// Zone objects that lost to the holder.
    pub(crate) losers: Vec<Arc<ZoneObject>>,
    pub(crate) step: ZoneStep,
    /// Why the zone object is not as it should be, decided without the server.
    pub(crate) zone_refusal: Option<Refusal>,
    pub(crate) atoms: Vec<Atom>,
    /// Record sets that are decided whatever the server says.
    pub(crate) decided: Vec<Verdict>,
    /// Ledger entries that are neither wanted nor on the server.
    pub(crate) forget: Vec<RecordKey>,
    /// Ledger entries that must be off before their object goes, because what it wrote stays.
    pub(crate) unlist: Vec<RecordKey>,
    /// Whether the guard held deletions back.
    pub(crate) guarded: Option<Refusal>,
    /// The server could not be asked.
    pub(crate) unreachable: Option<ServerError>,
    pub(crate) full: bool,
    pub(crate) left: bool,
    /// Whether other processes may keep the zone object as well.
    pub(crate) shared: bool,
}

/// What happens to the zone itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ZoneStep {
    /// Nothing.
    Keep,
    /// Make it.
    Create(NewZone),
    /// Change settings.
    Configure(ZoneSettings),
    /// Take it off the server and let the object go.
    Delete,
    /// Let the object go, leave the zone.
    Release,
}

/// Changes that go together or not at all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Atom {
    pub(crate) name: Fqdn,
    pub(crate) deletes: Vec<RecordKey>,
    pub(crate) write: Option<Write>,
    /// Who waits for the outcome.
    pub(crate) waiting: Vec<Waiting>,
}

/// A record set to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) key: RecordKey,
    pub(crate) content: Arc<SetContent>,
    pub(crate) digest: Digest,
    pub(crate) comment: CommentChange,
    /// Whether it must be in the ledger first.
    pub(crate) ledger: bool,
}

/// What an atom decides.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Waiting {
    /// The object holds what is written.
    Holds(Arc<Record>),
    /// The object goes once the deletion is done.
    Leaves(Arc<Record>),
    /// The object's old set goes; what it says besides is decided already.
    Clears(Verdict),
    /// The zone object itself: name servers or start of authority.
    Zone,
}

/// Makes the plan.
pub(crate) fn plan(observed: Observed, now: Timestamp) -> Plan {
    let Observed { key, snapshot, server, memory } = observed;
    let mut plan = Plan {
        key: key.clone(),
        holder: snapshot.claimants.first().cloned(),
        losers: snapshot.claimants.iter().skip(1).cloned().collect(),
        step: ZoneStep::Keep,
        zone_refusal: None,
        atoms: Vec::new(),
        decided: Vec::new(),
        forget: Vec::new(),
        unlist: Vec::new(),
        guarded: None,
        unreachable: None,
        full: snapshot.full,
        left: snapshot.left,
        shared: snapshot.shared,
        memory,
    };
    let Some(zone) = key.zone().cloned() else {
        let refusal = Refusal::new(Reason::InvalidName, format!("{key} is not the name of a zone; set spec.zoneName"));
        plan.zone_refusal = Some(refusal.clone());
        decide_all(&mut plan, &snapshot, |_| Says::Failed(Refusal::new(Reason::ZoneNotReady, refusal.message.clone())));
        return plan;
    };
    match server {
        ServerView::Unreachable(error) => plan_unreachable(&mut plan, &snapshot, &zone, error),
        ServerView::NotAsked => plan_unasked(&mut plan, &snapshot),
        ServerView::Missing | ServerView::Present => plan_zone(&mut plan, &snapshot, &zone, now),
    }
    plan
}

/// The server cannot be asked: keep everything, and say so where something waits for it.
fn plan_unreachable(plan: &mut Plan, snapshot: &Snapshot, zone: &ZoneName, error: ServerError) {
    let refusal = zone_plan::server_refusal(&error);
    for record in records(snapshot) {
        if record.identity.deleting && record.stays_behind(plan.holder.as_deref()) {
            // What it wrote stays on the server, so nothing has to be asked of it.
            let wrote = record.seen.applied.as_ref().map(|applied| applied.key.clone());
            plan.unlist.extend(wrote.into_iter().chain(record.key()));
            let verdict = Verdict::carried(record, Says::Succeeded);
            plan.decided.push(Verdict { release: true, applied: None, ..verdict });
        } else if record.identity.deleting {
            let inherited = not_served(plan, record).is_none() && record.inherited().is_some();
            let wrote = record.seen.applied.is_some() || inherited || in_ledger(plan, record);
            let says = if wrote { Says::Failed(refusal.clone()) } else { Says::Succeeded };
            plan.decided.push(Verdict { release: !wrote, ..Verdict::carried(record, says) });
        } else if let Some(says) = not_served(plan, record) {
            plan.decided.push(Verdict::carried(record, says));
        } else if let Some(own) = record.refusal() {
            // What is wrong with the object itself is no news of the server.
            plan.decided.push(Verdict::carried(record, Says::Failed(own.clone())));
        } else if !is_settled(record, zone) {
            plan.decided.push(Verdict::carried(record, Says::Failed(refusal.clone())));
        }
    }
    // A zone that stays on the server needs nothing of it either, unless something may still have to be taken off.
    let retained =
        |holder: &Arc<ZoneObject>| holder.identity.deleting && holder.spec.deletion_policy == DeletionPolicy::Retain;
    let in_flight = plan.memory.ledger.entries.keys().any(|key| !plan.unlist.contains(key));
    if plan.holder.as_ref().is_some_and(retained) && !in_flight {
        plan.step = ZoneStep::Release;
    }
    plan.unreachable = Some(error);
}

/// Nothing on the server is concerned: no zone object, and nobody has written anything.
fn plan_unasked(plan: &mut Plan, snapshot: &Snapshot) {
    for record in records(snapshot) {
        let says = not_served(plan, record).unwrap_or(Says::Succeeded);
        plan.decided.push(Verdict { release: record.identity.deleting, ..Verdict::carried(record, says) });
    }
}

fn plan_zone(plan: &mut Plan, snapshot: &Snapshot, zone: &ZoneName, now: Timestamp) {
    let Some(holder) = plan.holder.clone() else {
        plan_names(plan, snapshot, zone, None, None, now);
        return;
    };
    if holder.identity.deleting {
        plan_departure(plan, snapshot, zone, &holder, now);
        return;
    }
    let present = plan.memory.present.is_some();
    let owned = holder.status.id.is_some() || plan.memory.ledger.zone;
    if present && !owned && holder.spec.adoption_policy == AdoptionPolicy::Refuse {
        let message = format!("the server already has zone {zone} and spec.adoptionPolicy is Refuse");
        plan.zone_refusal = Some(Refusal::new(Reason::ForeignRecord, message.clone()));
        let barred = Says::Failed(Refusal::new(Reason::ZoneNotReady, message));
        plan_names(plan, snapshot, zone, Some(&holder), Some(&barred), now);
        return;
    }
    match zone_plan::step(zone, &holder, plan.memory.present.as_ref()) {
        Ok(step) => plan.step = step,
        Err(refusal) => {
            plan.zone_refusal = Some(refusal.clone());
            if !present {
                let message = format!("the zone cannot be made: {}", refusal.message);
                decide_all(plan, snapshot, |_| Says::Failed(Refusal::new(Reason::ZoneNotReady, message.clone())));
                return;
            }
        }
    }
    if holder.spec.kind.is_secondary() {
        let message = format!("{} zones take their records from their masters", holder.spec.kind.as_str());
        decide_all(plan, snapshot, |_| Says::Failed(Refusal::new(Reason::ZoneNotReady, message.clone())));
        return;
    }
    let is_soa = |record: &Arc<Record>| record.key().is_some_and(|key| key.rtype == RecordType::Soa);
    let soa_elsewhere = snapshot.names.get(zone.name()).is_some_and(|records| records.iter().any(is_soa));
    for part in zone_plan::apex(zone, &holder, &plan.memory, soa_elsewhere, now) {
        match part {
            Ok(atom) => plan.atoms.push(atom),
            Err(refusal) => plan.zone_refusal = plan.zone_refusal.take().or(Some(refusal)),
        }
    }
    plan_names(plan, snapshot, zone, Some(&holder), None, now);
}

/// The holder is being deleted.
fn plan_departure(plan: &mut Plan, snapshot: &Snapshot, zone: &ZoneName, holder: &Arc<ZoneObject>, now: Timestamp) {
    let adopted = holder.spec.adoption_policy == AdoptionPolicy::Adopt;
    let owned = adopted || holder.status.id.is_some() || plan.memory.ledger.zone;
    let wrote = holder.identity.held || holder.status.id.is_some();
    // The next in line holds the zone from here on, unless it will not have one that it did not make.
    let next = plan.losers.iter().find(|loser| !loser.identity.deleting).cloned();
    let heir = next.filter(|next| next.spec.adoption_policy == AdoptionPolicy::Adopt);
    let goes = holder.spec.deletion_policy == DeletionPolicy::Delete && owned && wrote;
    let present = plan.memory.present.is_some();
    plan.step = if goes && heir.is_none() && present { ZoneStep::Delete } else { ZoneStep::Release };
    let missing =
        || Says::Pending(Refusal::new(Reason::ZoneMissing, format!("{} is being deleted", holder.identity.id)));
    if plan.step == ZoneStep::Delete || !present {
        // Everything goes with the zone: no record set needs a call of its own.
        plan.decided.extend(records(snapshot).map(|record| departed(record, zone, missing())));
    } else if let (Some(heir), true) = (heir, goes) {
        hand_over(plan, snapshot, zone, holder, &heir, &missing());
    } else {
        plan_names(plan, snapshot, zone, Some(holder), Some(&missing()), now);
    }
}

/// A record set whose zone object goes: it has nothing in that zone any more.
fn departed(record: &Record, zone: &ZoneName, says: Says) -> Verdict {
    let elsewhere = record.seen.applied.clone().filter(|applied| applied.zone != *zone);
    Verdict { applied: elsewhere, release: record.identity.deleting, ..Verdict::carried(record, says) }
}

/// Another object takes the zone over: what was written through the one that goes, goes with it, apart from what the
/// next pass writes over in the name of the heir.
fn hand_over(
    plan: &mut Plan,
    snapshot: &Snapshot,
    zone: &ZoneName,
    holder: &ZoneObject,
    heir: &ZoneObject,
    missing: &Says,
) {
    let follows = |record: &&Arc<Record>| *record.zone == *heir.identity.id && !record.identity.deleting;
    let wanted: BTreeSet<RecordKey> = records(snapshot).filter(follows).filter_map(|record| record.key()).collect();
    // A zone always has a start of authority.
    let stays =
        |key: &RecordKey| key.rtype == RecordType::Soa || wanted.contains(key) || zone_plan::holds(zone, heir, key);
    for (name, records) in &snapshot.names {
        for record in records.iter().filter(|record| *record.zone == *holder.identity.id) {
            let verdict = departed(record, zone, missing.clone());
            let here = record.seen.applied.as_ref().filter(|applied| applied.zone == *zone);
            match here {
                Some(applied) if !record.retain && !stays(&applied.key) => plan.atoms.push(Atom {
                    name: name.clone(),
                    deletes: vec![applied.key.clone()],
                    write: None,
                    waiting: vec![Waiting::Clears(verdict)],
                }),
                _ => plan.decided.push(verdict),
            }
        }
    }
    let deleted: BTreeSet<RecordKey> = plan.atoms.iter().flat_map(|atom| atom.deletes.iter().cloned()).collect();
    let listed = plan.memory.ours_by_ledger().filter(|key| !snapshot.shared && !deleted.contains(key) && !stays(key));
    for key in listed.collect::<Vec<_>>() {
        plan.atoms.push(Atom { name: key.name.clone(), deletes: vec![key], write: None, waiting: vec![] });
    }
}

fn plan_names(
    plan: &mut Plan,
    snapshot: &Snapshot,
    zone: &ZoneName,
    holder: Option<&Arc<ZoneObject>>,
    barred: Option<&Says>,
    now: Timestamp,
) {
    for record in &snapshot.nameless {
        let says = not_served(plan, record)
            .or_else(|| barred.cloned())
            .unwrap_or_else(|| Says::Failed(record.refusal().cloned().unwrap_or_else(unexplained)));
        plan.decided.push(Verdict { release: record.identity.deleting, ..Verdict::carried(record, says) });
    }
    let mut orphans = Vec::new();
    for (name, records) in &snapshot.names {
        orphans.extend(NamePlan { plan, zone, holder, name, records, barred, shared: snapshot.shared, now }.make());
    }
    // Ledger entries at names nobody has any object at; a partial pass leaves them to the next full one.
    if snapshot.full && !snapshot.shared {
        let of_zone = |key: &RecordKey| holder.is_some_and(|holder| zone_plan::holds(zone, holder, key));
        // An object that was given a name that is none before it could say what it wrote: any of these may be its.
        let nameless = snapshot
            .nameless
            .iter()
            .any(|record| !record.identity.deleting && record.seen.applied.is_none() && record.identity.generation > 1);
        let keys = plan.memory.ledger.entries.keys().filter(|_| !nameless);
        let alone: Vec<RecordKey> = keys.filter(|key| !snapshot.names.contains_key(&key.name)).cloned().collect();
        for key in alone {
            // Not there, not what was to be written, or the zone object's own: not to be deleted.
            if plan.memory.is_ours_by_ledger(&key) && !of_zone(&key) {
                orphans.push(key);
            } else {
                plan.forget.push(key);
            }
        }
    }
    take_orphans(plan, orphans, snapshot.full);
}

/// What the ledger says is ours and no object wants. No deletion of an object was seen, so the guard looks at it.
fn take_orphans(plan: &mut Plan, orphans: Vec<RecordKey>, full: bool) {
    let served = plan.memory.present.as_ref().map_or(0, |present| present.sets.len());
    let before = plan.memory.held;
    // A pass over some names sees only some orphans: what was held before is for the next full one to confirm.
    let mut hold = |held| plan.memory.held = if full { held } else { before };
    match DeletionGuard::ZONE.check(served, &orphans, before.as_ref(), Permission::Guarded) {
        GuardVerdict::Allowed => {
            hold(None);
            for key in orphans {
                plan.atoms.push(Atom { name: key.name.clone(), deletes: vec![key], write: None, waiting: vec![] });
            }
        }
        GuardVerdict::Held { deletions, served, fingerprint } => {
            hold(Some(fingerprint));
            let message = format!("{deletions} of {served} record sets would go at once; the next pass confirms it");
            plan.guarded = Some(Refusal::new(Reason::DeletionHeld, message));
        }
    }
}

/// Why a record set is not served whatever it says: its zone object is missing or has no say.
pub(crate) fn not_served(plan: &Plan, record: &Record) -> Option<Says> {
    match &plan.holder {
        Some(holder) if holder.identity.id == record.zone => None,
        Some(holder) if plan.losers.iter().any(|loser| loser.identity.id == record.zone) => {
            let message = format!("{} does not hold the zone: {} does", record.zone, holder.identity.id);
            Some(Says::Failed(Refusal::new(Reason::ZoneNotReady, message)))
        }
        _ => Some(Says::Pending(Refusal::new(Reason::ZoneMissing, format!("there is no {}", record.zone)))),
    }
}

fn in_ledger(plan: &Plan, record: &Record) -> bool {
    record.key().is_some_and(|key| plan.memory.ledger.entries.contains_key(&key))
}

/// Whether the object's status already says that exactly this is served.
fn is_settled(record: &Record, zone: &ZoneName) -> bool {
    let (Some(key), Ok(desired)) = (record.key(), &record.desired) else { return false };
    record.seen.sync == Some(crate::record::Sync::Succeeded)
        && record
            .seen
            .applied
            .as_ref()
            .is_some_and(|applied| applied.zone == *zone && applied.key == key && applied.digest == desired.digest)
}

fn records(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Record>> {
    // A record set that wrote at another name than it wants is listed at both.
    let named = snapshot
        .names
        .iter()
        .flat_map(|(name, records)| records.iter().filter(move |record| record.names().next() == Some(name)));
    named.chain(&snapshot.nameless)
}

/// Decides every record set without the server: nothing can be written there, so nothing has to be waited for.
fn decide_all(plan: &mut Plan, snapshot: &Snapshot, says: impl Fn(&Record) -> Says) {
    for record in records(snapshot) {
        let says = not_served(plan, record).unwrap_or_else(|| says(record));
        plan.decided.push(Verdict { release: record.identity.deleting, ..Verdict::carried(record, says) });
    }
}

pub(crate) fn unexplained() -> Refusal {
    Refusal::new(Reason::InvalidSpec, "the object cannot be read")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
