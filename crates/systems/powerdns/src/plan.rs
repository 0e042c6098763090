//! The plan for a zone. Pure: no I/O, no clock, no `Result`; bad input is a refusal.
//!
//! ```text
//!  claimants ─► holder ─► zone step (create, configure, delete)          ┐
//!  names ─► claims ─► what may exist side by side ─► atoms (delete, write) ├─► Plan
//!  ledger, status.applied ─► what is ours and wanted by nobody ──────────┘
//! ```
//!
//! An [`Atom`] is what is sent together or not at all: the type change of one object is one atom.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use signpost_apis::powerdns::{AdoptionPolicy, DeletionPolicy};
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};
use signpost_planning::{DeletionGuard, GuardDecision, Permission, Reason, Refusal};
use signpost_provider_powerdns::{CommentChange, NewZone, ServerError, SetContent, ZoneSettings};

use crate::{
    index::{
        ZoneSnapshot,
        digest::Digest,
        record::{AppliedRecord, Record, Sync, ZoneKey, ZoneObject},
    },
    report::status::{Found, Readiness, RecordStatus},
    settings::Pace,
};

pub(crate) mod ledger;
mod mark;
pub(crate) mod memory;
mod name;
pub(crate) mod registry;
mod release;
pub(crate) mod zone;

use memory::{Present, ZoneMemory};
use name::{Scope, plan_name};
use release::{hold_until_created, may_have_written};

/// Everything a plan depends on.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) key: ZoneKey,
    pub(crate) snapshot: ZoneSnapshot,
    pub(crate) server: ServerView,
    pub(crate) memory: ZoneMemory,
    pub(crate) pace: Arc<Pace>,
}

/// The answer of the server.
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

/// The plan.
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
    /// Record sets that are decided whatever the server answers.
    pub(crate) decided: Vec<RecordStatus>,
    /// Record sets that are decided so once the zone is deleted or created, and not before.
    pub(crate) with_zone: Vec<(Arc<Record>, RecordStatus)>,
    /// Ledger entries that are neither wanted nor on the server. Where a read found no zone, they are kept until it is created.
    pub(crate) forget: Vec<RecordKey>,
    /// Ledger entries that must be off before their object is deleted, because what it wrote stays.
    pub(crate) unlist: Vec<RecordKey>,
    /// Record sets that are on the server as another object wants them. They must be in the ledger before their former object gives them
    /// up, because the status of the other object does not report them yet.
    pub(crate) inherited: Vec<(RecordKey, Digest)>,
    /// Why deletions are paused by the guard.
    pub(crate) guarded: Option<Refusal>,
    /// The server could not be asked.
    pub(crate) unreachable: Option<ServerError>,
    pub(crate) extent: Extent,
    /// Whether a record set is the start of authority, so that the zone object has none of its own.
    pub(crate) soa_elsewhere: bool,
    /// When to come back although nothing failed.
    pub(crate) again: Option<Duration>,
    /// How many more lines of endpoints the zone object has room for.
    pub(crate) endpoint_room: usize,
    pub(crate) pace: Arc<Pace>,
}

/// Record sets of endpoints that a zone object may list: 900,000 bytes as marks. The rest of what the API server stores is for what is in
/// flight.
pub(crate) const MAX_ENDPOINTS: usize = 56_000;

/// How much of a zone a pass is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// All of it.
    pub(crate) full: bool,
    /// Whether a name is looked at because an object was deleted.
    pub(crate) left: bool,
    /// Whether other processes may keep the zone object as well.
    pub(crate) shared: bool,
}

/// The step for the zone itself.
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
    /// The objects that wait for the outcome.
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
    /// Whether it is for an endpoint of a DNSEndpoint.
    pub(crate) endpoint: bool,
}

/// The decision that depends on an atom.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Waiting {
    /// The object owns what is written.
    Holds(Arc<Record>),
    /// The object is released once its record is deleted or taken over.
    Leaves(Arc<Record>),
    /// The object's old set is deleted, or becomes another object's; the rest of its status is decided already.
    Clears(Box<RecordStatus>),
    /// The zone object itself: name servers or start of authority.
    Zone,
}

/// Makes the plan.
pub(crate) fn plan(observed: Observed, now: Timestamp) -> Plan {
    let Observed { key, snapshot, server, mut memory, pace } = observed;
    forget_unwanted_refusals(&mut memory, &snapshot, key.zone());
    memory.prune(&snapshot.durable);
    // Its own status reports durably that the zone is this object's. A creation that may still be carried out is not in it.
    let unreported = snapshot.claimants.first().is_none_or(|holder| holder.status.id.is_none());
    memory.ledger.keep_zone(memory.ledger.zone_uncertain.is_some() || unreported);
    if let Some(holder) = snapshot.claimants.first()
        && memory.generation != holder.identity.generation
    {
        // Another spec: what was refused may be accepted now.
        memory.generation = holder.identity.generation;
        memory.forget_refusals();
    }
    let mut plan = Plan {
        key: key.clone(),
        holder: snapshot.claimants.first().cloned(),
        losers: snapshot.claimants.iter().skip(1).cloned().collect(),
        step: ZoneStep::Keep,
        zone_refusal: None,
        atoms: Vec::new(),
        decided: Vec::new(),
        with_zone: Vec::new(),
        forget: Vec::new(),
        unlist: Vec::new(),
        inherited: Vec::new(),
        guarded: None,
        unreachable: None,
        extent: Extent { full: snapshot.full, left: snapshot.left, shared: snapshot.shared },
        soa_elsewhere: false,
        again: None,
        endpoint_room: 0,
        memory,
        pace,
    };
    let Some(zone) = key.zone().cloned() else {
        let refusal = Refusal::new(Reason::InvalidName, format!("{key} is not the name of a zone; set spec.zoneName"));
        plan.zone_refusal = Some(refusal.clone());
        for record in records(&snapshot) {
            let failed = || Readiness::Failed(Refusal::new(Reason::ZoneNotReady, refusal.message.clone()));
            let readiness = not_served(&plan, record).unwrap_or_else(failed);
            plan.decided.push(RecordStatus {
                release: record.identity.is_deleting(),
                ..RecordStatus::carried(record, readiness)
            });
        }
        return plan;
    };
    match server {
        ServerView::Unreachable(error) => plan_unreachable(&mut plan, &snapshot, &zone, error),
        ServerView::NotAsked => plan_unasked(&mut plan, &snapshot, &zone),
        ServerView::Missing | ServerView::Present => plan_zone(&mut plan, &snapshot, &zone, now),
    }
    if matches!(plan.step, ZoneStep::Create(_)) {
        hold_until_created(&mut plan, &snapshot, &zone);
    }
    if plan.step == ZoneStep::Release && plan.unreachable.is_none() {
        hold_release(&mut plan, &snapshot, &zone, now);
    }
    if plan.step == ZoneStep::Delete && plan.memory.ledger.zone_uncertain.is_some() {
        // The zone is deleted now, and a creation of it may still be carried out.
        hold_uncertain(&mut plan, now);
    }
    plan
}

/// A refused content that no object asks for any more needs no memory. The apex has sets of the zone object too.
fn forget_unwanted_refusals(memory: &mut ZoneMemory, snapshot: &ZoneSnapshot, zone: Option<&ZoneName>) {
    let (no_comments, own) = (memory.no_comments, zone.map(ZoneName::name));
    memory.rejected.retain(|key, rejection| {
        let asks = |record: &Arc<Record>| {
            let wanted = record.wanted(no_comments).map(|(_, digest)| digest);
            !record.identity.is_deleting() && record.key().as_ref() == Some(key) && wanted == Some(rejection.digest)
        };
        let kept = match snapshot.names.get(&key.name) {
            Some(records) => records.iter().any(asks),
            None => !snapshot.full,
        };
        kept || own == Some(&key.name)
    });
}

/// Keeps the zone object while a request may still be carried out. False when there is no such request.
fn hold_uncertain(plan: &mut Plan, now: Timestamp) -> bool {
    let Some(since) = plan.memory.ledger.uncertain_since() else { return false };
    plan.again = Some(plan.pace.grace.saturating_sub(now.duration_since(since).unsigned_abs()));
    let message = "the object is kept for a moment: a request to the PowerDNS server ended without an answer, and the server may still carry it out";
    plan.zone_refusal = Some(Refusal::new(Reason::ProviderUnreachable, message));
    true
}

/// A zone object is not released while its ledger may be needed: only the ledger lists what is still to be deleted.
fn hold_release(plan: &mut Plan, snapshot: &ZoneSnapshot, zone: &ZoneName, now: Timestamp) {
    if let Some(guarded) = &plan.guarded {
        plan.step = ZoneStep::Keep;
        plan.zone_refusal = Some(guarded.clone());
    } else if hold_uncertain(plan, now) {
        plan.step = ZoneStep::Keep;
    } else if plan.decided.iter().any(is_learned) || records(snapshot).any(|record| is_unreported(record, zone)) {
        plan.step = ZoneStep::Keep;
        plan.again = Some(UNREPORTED);
        let message = "the object is kept for a moment: some record sets do not report yet what they have in the zone";
        plan.zone_refusal = Some(Refusal::new(Reason::ZoneNotReady, message));
    }
}

/// How soon a zone object that waits for statuses of its record sets is judged again.
const UNREPORTED: Duration = Duration::from_secs(1);

/// Whether the pass itself found out what the object has on the server.
fn is_learned(status: &RecordStatus) -> bool {
    matches!(status.found, Found::Wrote(_))
}

/// Whether only this process and the ledger know what the object has in the zone.
fn is_unreported(record: &Arc<Record>, zone: &ZoneName) -> bool {
    let here = record.applied().filter(|applied| applied.zone == *zone && !record.identity.is_deleting());
    here.is_some_and(|applied| record.seen.applied.as_deref() != Some(applied) || !record.has_finalizer())
}

/// The server cannot be asked: keep everything, and report it where something waits for the server.
fn plan_unreachable(plan: &mut Plan, snapshot: &ZoneSnapshot, zone: &ZoneName, error: ServerError) {
    let refusal = zone::server_refusal(&error);
    for record in records(snapshot) {
        if record.identity.is_deleting() && record.stays_behind(plan.holder.as_deref()) {
            // Its records stay on the server, so the server is not asked.
            let wrote = record.applied().map(|applied| applied.key.clone());
            plan.unlist.extend(wrote.into_iter().chain(record.key()));
            plan.decided.push(RecordStatus::released(record, zone, Readiness::Succeeded));
        } else if record.identity.is_deleting() {
            let wrote = may_have_written(plan, snapshot, zone, record);
            let readiness = if wrote { Readiness::Failed(refusal.clone()) } else { Readiness::Succeeded };
            plan.decided.push(RecordStatus { release: !wrote, ..RecordStatus::carried(record, readiness) });
        } else if let Some(readiness) = not_served(plan, record) {
            plan.decided.push(RecordStatus::carried(record, readiness));
        } else if let Some(own) = record.refusal() {
            // An error in the object itself does not depend on the server.
            plan.decided.push(RecordStatus::carried(record, Readiness::Failed(own.clone())));
        } else if !is_settled(record, zone) && !is_listed(plan, record) {
            plan.decided.push(RecordStatus::carried(record, Readiness::Failed(refusal.clone())));
        }
    }
    // A zone that stays on the server needs nothing of it either, unless something may still have to be taken off.
    let retained = |holder: &Arc<ZoneObject>| {
        holder.identity.is_deleting() && holder.spec.deletion_policy == DeletionPolicy::Retain
    };
    let ledger = &plan.memory.ledger;
    let in_flight = ledger.has_marks() || ledger.keys().any(|key| !plan.unlist.contains(key));
    if plan.holder.as_ref().is_some_and(retained) && !in_flight {
        plan.step = ZoneStep::Release;
    }
    plan.unreachable = Some(error);
}

/// Nothing on the server is concerned: no zone object, and no object has written anything.
fn plan_unasked(plan: &mut Plan, snapshot: &ZoneSnapshot, zone: &ZoneName) {
    for record in records(snapshot) {
        let readiness = not_served(plan, record).unwrap_or(Readiness::Succeeded);
        plan.decided.push(if record.identity.is_deleting() {
            RecordStatus::released(record, zone, readiness)
        } else {
            RecordStatus::carried(record, readiness)
        });
    }
}

fn plan_zone(plan: &mut Plan, snapshot: &ZoneSnapshot, zone: &ZoneName, now: Timestamp) {
    let Some(holder) = plan.holder.clone() else {
        plan_names(plan, snapshot, zone, None, None, now);
        return;
    };
    if holder.identity.is_deleting() {
        plan_departure(plan, snapshot, zone, &holder, now);
        return;
    }
    let present = plan.memory.present.is_some();
    if present && !owns(plan, zone, &holder, now) && holder.spec.adoption_policy == AdoptionPolicy::Refuse {
        let message = format!("the server already has zone {zone} and spec.adoptionPolicy is Refuse");
        plan.zone_refusal = Some(Refusal::new(Reason::ForeignRecord, message.clone()));
        let barred = Readiness::Failed(Refusal::new(Reason::ZoneNotReady, message));
        plan_names(plan, snapshot, zone, Some(&holder), Some(&barred), now);
        return;
    }
    if !plan_step(plan, zone, &holder, now) {
        let why = plan.zone_refusal.as_ref().map_or_else(String::new, |refusal| refusal.message.clone());
        let message = format!("the zone cannot be made: {why}");
        for record in records(snapshot) {
            let failed = || Readiness::Failed(Refusal::new(Reason::ZoneNotReady, message.clone()));
            let readiness = not_served(plan, record).unwrap_or_else(failed);
            // The server has no such zone, so it has nothing of the object.
            plan.decided.push(if record.identity.is_deleting() {
                RecordStatus::released(record, zone, readiness)
            } else {
                RecordStatus::carried(record, readiness)
            });
        }
        return;
    }
    if holder.spec.kind.is_secondary() {
        let message = format!("{} zones take their records from their masters", holder.spec.kind.as_str());
        let barred = Readiness::Failed(Refusal::new(Reason::ZoneNotReady, message));
        plan_names(plan, snapshot, zone, Some(&holder), Some(&barred), now);
        return;
    }
    let is_soa = |record: &Arc<Record>| {
        record.is_of(&holder.identity.id) && record.key().is_some_and(|key| key.rtype == RecordType::Soa)
    };
    plan.soa_elsewhere = snapshot.names.get(zone.name()).is_some_and(|records| records.iter().any(is_soa));
    // The apex of a zone that is created now is judged once the zone exists.
    if present {
        let apex = zone::apex(zone, &holder, &plan.memory, plan.soa_elsewhere, now);
        plan.add_own(apex);
    }
    plan_names(plan, snapshot, zone, Some(&holder), None, now);
    plan.keep_one_soa();
}

impl Plan {
    /// Adds the record sets that the zone object itself asks for.
    pub(crate) fn add_own(&mut self, apex: Vec<Result<Atom, Refusal>>) {
        for part in apex {
            match part {
                Ok(atom) => self.atoms.push(atom),
                Err(refusal) => self.zone_refusal = self.zone_refusal.take().or(Some(refusal)),
            }
        }
    }

    /// Takes the room of one more line of an endpoint; false when the list is full.
    pub(crate) fn take_room(&mut self) -> bool {
        let left = self.endpoint_room.checked_sub(1);
        self.endpoint_room = left.unwrap_or(self.endpoint_room);
        left.is_some()
    }

    /// A record set that writes the start of authority raises its serial as well: the zone need not.
    pub(crate) fn keep_one_soa(&mut self) {
        let writes = |atom: &Atom| atom.write.as_ref().is_some_and(|write| write.key.rtype == RecordType::Soa);
        if self.atoms.iter().filter(|atom| writes(atom)).count() > 1 {
            self.atoms.retain(|atom| !writes(atom) || !atom.waiting.contains(&Waiting::Zone));
        }
    }
}

/// Whether the zone on the server is known to be this object's. A creation whose result is unknown proves it only for a zone that looks as
/// that creation asked for, or as the object asks for now: a foreign writer may have created the zone meanwhile.
fn owns(plan: &Plan, zone: &ZoneName, holder: &ZoneObject, now: Timestamp) -> bool {
    let looks_like_ours = |present: &Present| {
        let served = zone::shape_served(present);
        let wanted = || zone::wanted_shape(zone, holder, now) == Some(served);
        plan.memory.ledger.lists_zone_as(served) || (plan.memory.ledger.lists_zone() && wanted())
    };
    let known = (holder.status.id.is_some() && !plan.memory.deleted) || plan.memory.created;
    known || plan.memory.present.as_ref().is_some_and(looks_like_ours)
}

/// Decides what happens to the zone itself. False when it is not there and cannot be made.
fn plan_step(plan: &mut Plan, zone: &ZoneName, holder: &ZoneObject, now: Timestamp) -> bool {
    match zone::step(zone, holder, &plan.memory, now) {
        Ok((ZoneStep::Configure(settings), refusal)) => {
            let before = plan.memory.rejected_settings.as_ref();
            let rejected = before.filter(|before| before.settings == settings && before.until > now);
            if let Some(rejected) = rejected {
                plan.zone_refusal = Some(Refusal::new(Reason::ProviderRejected, rejected.words.clone()));
            } else {
                plan.zone_refusal = refusal;
                plan.step = ZoneStep::Configure(settings);
            }
            true
        }
        Ok((step, refusal)) => {
            (plan.step, plan.zone_refusal) = (step, refusal);
            true
        }
        Err(refusal) => {
            plan.zone_refusal = Some(refusal);
            plan.memory.present.is_some()
        }
    }
}

/// The holder is being deleted.
fn plan_departure(plan: &mut Plan, snapshot: &ZoneSnapshot, zone: &ZoneName, holder: &Arc<ZoneObject>, now: Timestamp) {
    let adopted = holder.spec.adoption_policy == AdoptionPolicy::Adopt;
    let owned = adopted || owns(plan, zone, holder, now);
    let wrote = holder.has_finalizer() || holder.status.id.is_some();
    // The next claimant has the zone from here on, unless it refuses a zone that it did not create.
    let next = plan.losers.iter().find(|loser| !loser.identity.is_deleting()).cloned();
    let heir = next.filter(|next| next.spec.adoption_policy == AdoptionPolicy::Adopt);
    let goes = holder.spec.deletion_policy == DeletionPolicy::Delete && owned && wrote;
    let present = plan.memory.present.is_some();
    // A read that finds no zone does not prove that the zone of this object was deleted. The deletion of a missing zone succeeds.
    let had_zone = holder.exists() && holder.has_finalizer() && !plan.memory.deleted;
    plan.step = if goes && heir.is_none() && (present || had_zone) { ZoneStep::Delete } else { ZoneStep::Release };
    let missing =
        || Readiness::Pending(Refusal::new(Reason::ZoneMissing, format!("{} is being deleted", holder.identity.id)));
    let departed = |record: &Arc<Record>| RecordStatus::released(record, zone, missing());
    if plan.step == ZoneStep::Delete {
        // Everything is deleted with the zone: no record set needs a call of its own.
        plan.with_zone.extend(records(snapshot).map(|record| (record.clone(), departed(record))));
    } else if !present {
        plan.decided.extend(records(snapshot).map(departed));
    } else if let (Some(heir), true) = (heir, goes) {
        hand_over(plan, snapshot, zone, holder, &heir, &missing());
    } else {
        plan_names(plan, snapshot, zone, Some(holder), Some(&missing()), now);
    }
}

/// Another object takes the zone over: the records of the deleted object are deleted with it, apart from those that the
/// next pass overwrites for the heir.
fn hand_over(
    plan: &mut Plan,
    snapshot: &ZoneSnapshot,
    zone: &ZoneName,
    holder: &ZoneObject,
    heir: &ZoneObject,
    missing: &Readiness,
) {
    let follows = |record: &&Arc<Record>| record.is_of(&heir.identity.id) && !record.identity.is_deleting();
    let wanted: BTreeSet<RecordKey> = records(snapshot).filter(follows).filter_map(|record| record.key()).collect();
    // A zone always has a start of authority.
    let stays = |key: &RecordKey| key.rtype == RecordType::Soa || wanted.contains(key) || zone::holds(zone, heir, key);
    // Deleted objects without a status: only the ledger may list what they have.
    let mut unreported: BTreeMap<&Fqdn, Vec<(&Arc<Record>, RecordStatus)>> = BTreeMap::new();
    for (name, records) in &snapshot.names {
        for record in records.iter().filter(|record| record.is_of(&holder.identity.id)) {
            let status = RecordStatus::released(record, zone, missing.clone());
            let here = record.applied().filter(|applied| applied.zone == *zone);
            match here {
                Some(applied) if !record.retain && !stays(&applied.key) => plan.atoms.push(Atom {
                    name: name.clone(),
                    deletes: vec![applied.key.clone()],
                    write: None,
                    waiting: vec![Waiting::Clears(Box::new(status))],
                }),
                // It is the object's until the next pass has written over it in the name of the heir.
                Some(applied) if !record.retain && wanted.contains(&applied.key) => {
                    plan.decided.push(RecordStatus::carried(record, missing.clone()));
                }
                None if record.identity.is_deleting() && record.applied().is_none() && !record.retain => {
                    unreported.entry(name).or_default().push((record, status));
                }
                _ => plan.decided.push(status),
            }
        }
    }
    let deleted: BTreeSet<RecordKey> = plan.atoms.iter().flat_map(|atom| atom.deletes.iter().cloned()).collect();
    let listed = plan.memory.ours_by_ledger().filter(|key| !snapshot.shared && !deleted.contains(key) && !stays(key));
    let mut names: BTreeMap<Fqdn, Vec<RecordKey>> = BTreeMap::new();
    for key in listed {
        names.entry(key.name.clone()).or_default().push(key);
    }
    for (name, deletes) in names {
        let mut waiting = Vec::new();
        for (record, status) in unreported.remove(&name).unwrap_or_default() {
            if record.was_edited() || record.key().is_some_and(|key| deletes.contains(&key)) {
                waiting.push(Waiting::Clears(Box::new(status)));
            } else {
                plan.decided.push(status);
            }
        }
        plan.atoms.push(Atom { name, deletes, write: None, waiting });
    }
    plan.decided.extend(unreported.into_values().flatten().map(|(_, status)| status));
}

fn plan_names(
    plan: &mut Plan,
    snapshot: &ZoneSnapshot,
    zone: &ZoneName,
    holder: Option<&Arc<ZoneObject>>,
    barred: Option<&Readiness>,
    now: Timestamp,
) {
    for record in &snapshot.nameless {
        let readiness = not_served(plan, record)
            .or_else(|| barred.cloned())
            .unwrap_or_else(|| Readiness::Failed(record.refusal().cloned().unwrap_or_else(unexplained)));
        plan.decided
            .push(RecordStatus { release: record.identity.is_deleting(), ..RecordStatus::carried(record, readiness) });
    }
    if plan.pace.endpoints.is_some() {
        plan.endpoint_room = MAX_ENDPOINTS.saturating_sub(plan.memory.ledger.endpoints());
    }
    let mut orphans = Vec::new();
    let scope = Scope { zone, holder, barred, shared: snapshot.shared, now };
    for (name, records) in &snapshot.names {
        orphans.extend(plan_name(plan, &scope, name, records));
    }
    // Ledger entries at names without any object; a partial pass leaves them to the next full one.
    if snapshot.full && !snapshot.shared {
        let of_zone = |key: &RecordKey| holder.is_some_and(|holder| zone::holds(zone, holder, key));
        // An object that was given an invalid name before its status reported what it wrote: any of these may be its own.
        let nameless = snapshot.nameless.iter().filter(|record| record.endpoint.is_none()).any(|record| {
            !record.identity.is_deleting() && record.applied().is_none() && record.identity.generation > 1
        });
        let keys = plan.memory.ledger.keys().filter(|_| !nameless);
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
    take_orphans(plan, orphans, snapshot.full, now);
}

/// The records in the ledger that no object wants. No deletion of an object was seen, so the guard checks it.
fn take_orphans(plan: &mut Plan, orphans: Vec<RecordKey>, full: bool, now: Timestamp) {
    let served = plan.memory.present.as_ref().map_or(0, |present| present.sets.len());
    let mut guard = plan.memory.guard;
    let verdict = guard.check(DeletionGuard::ZONE, served, &orphans, Permission::Guarded, Duration::ZERO, now);
    // A pass over some names sees only some orphans: what was paused before is for the next full one to confirm.
    if full {
        plan.memory.guard = guard;
    }
    match verdict {
        GuardDecision::Allowed => {
            for key in orphans {
                plan.atoms.push(Atom { name: key.name.clone(), deletes: vec![key], write: None, waiting: vec![] });
            }
        }
        GuardDecision::Paused { deletions, served, .. } => {
            let message = format!("{deletions} of {served} record sets would go at once; the next pass confirms it");
            plan.guarded = Some(Refusal::new(Reason::DeletionHeld, message));
        }
    }
}

/// Why a record set is not served whatever is in it: its zone object is missing or does not have the zone.
pub(crate) fn not_served(plan: &Plan, record: &Record) -> Option<Readiness> {
    match &plan.holder {
        Some(holder) if record.is_of(&holder.identity.id) => None,
        Some(holder) if plan.losers.iter().any(|loser| record.is_of(&loser.identity.id)) => {
            let message = format!("{} does not own the zone: {} does", record.zone, holder.identity.id);
            Some(Readiness::Failed(Refusal::new(Reason::ZoneNotReady, message)))
        }
        _ if record.endpoint.is_some() => Some(endpoint_not_served(plan, record)),
        _ => Some(Readiness::Pending(Refusal::new(Reason::ZoneMissing, format!("there is no {}", record.zone)))),
    }
}

fn endpoint_not_served(plan: &Plan, record: &Record) -> Readiness {
    if let Some(refusal) = record.refusal() {
        return Readiness::Failed(refusal.clone());
    }
    let name = &record.written_name;
    let Some(holder) = &plan.holder else {
        let message = format!("{name}: there is no Zone or ClusterZone with this name in it");
        return Readiness::Pending(Refusal::new(Reason::ZoneMissing, message));
    };
    let message = format!(
        "{name}: zone {} belongs to {}, which serves its own namespace only; use a ClusterZone, or move the DNSEndpoint",
        plan.key, holder.identity.id
    );
    Readiness::Failed(Refusal::new(Reason::ZoneNotReady, message))
}

/// Whether the ledger lists that exactly this is on the server for an endpoint, as it was last known.
fn is_listed(plan: &Plan, record: &Record) -> bool {
    let (Some(key), Some((_, digest))) = (record.key(), record.wanted(false)) else { return false };
    record.endpoint.is_some() && plan.memory.ledger.lists_endpoint(&key, digest)
}

/// Whether the object's status already reports that exactly this is served.
fn is_settled(record: &Record, zone: &ZoneName) -> bool {
    let (Some(key), Some((_, digest))) = (record.key(), record.wanted(false)) else { return false };
    let same = |applied: &AppliedRecord| applied.zone == *zone && applied.key == key && applied.digest == digest;
    record.seen.sync == Some(Sync::Succeeded) && record.seen.applied.as_deref().is_some_and(same)
}

fn records(snapshot: &ZoneSnapshot) -> impl Iterator<Item = &Arc<Record>> {
    // A record set that wrote at another name than it wants is listed at both.
    let named = snapshot
        .names
        .iter()
        .flat_map(|(name, records)| records.iter().filter(move |record| record.names().next() == Some(name)));
    named.chain(&snapshot.nameless)
}

pub(crate) fn unexplained() -> Refusal {
    Refusal::new(Reason::InvalidSpec, "the object cannot be read")
}

#[cfg(test)]
mod tests;
