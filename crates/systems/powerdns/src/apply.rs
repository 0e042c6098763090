//! The only writer. It can be cut off after any call and run again.
//!
//! ```text
//!  finalizer of the zone ─► zone itself ─► ledger of new names ─► PATCH ─► (statuses, later, by the engine)
//! ```
//!
//! In: a [`Plan`]. Out: [`ApplyResult`], from which alone a success can be reported.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use signpost_apis::powerdns::{AdoptionPolicy, FINALIZER, ZoneStatus};
use signpost_dns::{RecordKey, RecordType, ZoneName};
use signpost_engine::{Identity, ObjectWrite, WriteError};
use signpost_planning::Refusal;
use signpost_provider_powerdns::{ErrorClass, NewZone, ServerError};

use crate::{
    PowerDnsSystem,
    index::{
        ZoneIndex,
        record::{Record, ZoneKey, ZoneObject, has_any_finalizer},
    },
    plan::{
        Atom, Extent, Plan, Waiting, Write, ZoneStep,
        ledger::Ledger,
        memory::{RejectedSettings, ZoneMemory, canonical_host},
        zone::{apex, serial_floor, shape_asked, with_safe_serial},
    },
    report::status::{Found, RecordStatus},
    settings::Pace,
};

pub(crate) mod fenced;
pub(crate) mod patch;

use patch::{AtomOutcome, Sent};

/// Bytes of ledger at once; more would make the zone object larger than the API server takes. The rest waits for the next round.
const MAX_LEDGER: usize = 1_200_000;

/// How soon a pass looks for room in the ledger again.
const ROOM: Duration = Duration::from_secs(1);

/// The result of a plan.
#[derive(Debug)]
pub(crate) struct ApplyResult {
    pub(crate) key: ZoneKey,
    pub(crate) memory: ZoneMemory,
    pub(crate) holder: Option<Arc<ZoneObject>>,
    pub(crate) losers: Vec<Arc<ZoneObject>>,
    pub(crate) zone: ZoneOutcome,
    pub(crate) atoms: Vec<(Atom, AtomOutcome)>,
    pub(crate) decided: Vec<RecordStatus>,
    /// Record sets that are decided so when the step of the zone is done.
    pub(crate) with_zone: Vec<(Arc<Record>, RecordStatus)>,
    /// Whether the step of the zone is done.
    pub(crate) step_done: bool,
    pub(crate) guarded: Option<Refusal>,
    pub(crate) again: Option<Duration>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) extent: Extent,
}

/// The outcome for the zone itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ZoneOutcome {
    /// No zone object, or nothing to do about it.
    Kept,
    /// It is not on the server any more, or was left there on purpose; the object may be deleted.
    Released,
    /// It is not as the object wants, for a reason in the object.
    Refused(Refusal),
    /// The server failed or refused.
    Failed(ServerError),
    /// The zone object could not be written, so nothing was done on the server.
    NotWritten(WriteError),
}

pub(crate) async fn apply(system: &PowerDnsSystem, mut plan: Plan) -> ApplyResult {
    if !matches!(plan.step, ZoneStep::Create(_)) {
        forget_lines(&mut plan);
    }
    let mut outcome = match (plan.zone_refusal.take(), plan.unreachable.take()) {
        (_, Some(error)) => ZoneOutcome::Failed(error),
        (Some(refusal), None) => ZoneOutcome::Refused(refusal),
        (None, None) => ZoneOutcome::Kept,
    };
    let reachable = !matches!(outcome, ZoneOutcome::Failed(_));
    if let Err(error) = prepare_release(system, &mut plan).await {
        // An object whose record stays may only go once the ledger no longer claims that record.
        plan.decided.retain(|status| !status.release);
        outcome = ZoneOutcome::NotWritten(error);
    }
    let mut outcomes = vec![AtomOutcome::Deferred; plan.atoms.len()];
    let mut step_done = false;
    if let (Some(zone), true) = (plan.key.zone().cloned(), reachable) {
        (outcome, outcomes, step_done) = work(system, &zone, &mut plan, outcome).await;
    }
    if let (Some(holder), false, ZoneStep::Release) = (&plan.holder, reachable, &plan.step) {
        // The zone stays where it is. Record sets that do not are waited for under its name.
        match release(system, holder).await {
            ZoneOutcome::Released if plan.decided.iter().any(|status| !status.release) => {}
            released => outcome = released,
        }
    }
    if let (Some(holder), None) = (&plan.holder, plan.key.zone())
        && holder.identity.is_deleting()
    {
        // No zone has such a name, so there is nothing of it on the server.
        outcome = release(system, holder).await;
    }
    for loser in plan.losers.iter().filter(|loser| loser.identity.is_deleting() && has_any_finalizer(&loser.identity)) {
        // It never had the zone, so there is nothing of it on the server.
        if let ZoneOutcome::NotWritten(error) = release(system, loser).await {
            outcome = ZoneOutcome::NotWritten(error);
        }
    }
    let Plan { key, memory, holder, losers, atoms, decided, with_zone, guarded, again, pace, extent, .. } = plan;
    let atoms = atoms.into_iter().zip(outcomes).collect();
    ApplyResult {
        key,
        memory,
        holder,
        losers,
        zone: outcome,
        atoms,
        decided,
        with_zone,
        step_done,
        guarded,
        again,
        pace,
        extent,
    }
}

/// Takes lines off the ledger. Where a read found no zone, only the creation of the zone proves that nothing of them is on the server.
fn forget_lines(plan: &mut Plan) {
    for key in std::mem::take(&mut plan.forget) {
        plan.memory.ledger.forget(&key);
    }
}

/// Brings the ledger up to date before objects are released: lines of records that stay on the server without an object are taken off it,
/// and records that pass to another object are listed until the status of that object reports them.
async fn prepare_release(system: &PowerDnsSystem, plan: &mut Plan) -> Result<(), WriteError> {
    let before = plan.memory.ledger.clone();
    for key in &plan.unlist {
        plan.memory.ledger.unlist(key);
    }
    let mut inherited = std::mem::take(&mut plan.inherited);
    let (Some(holder), Some(zone)) = (&mut plan.holder, plan.key.zone()) else { return Ok(()) };
    inherited.retain(|(key, digest)| !plan.memory.ledger.lists(key, *digest));
    let room = fitting(zone, &plan.memory.ledger, inherited.iter().map(|(key, _)| (key, false)));
    let mut waits = inherited.split_off(room);
    if !waits.is_empty() {
        plan.again = Some(ROOM);
    }
    for (key, digest) in &inherited {
        plan.memory.ledger.list(key.clone(), *digest);
    }
    let written = if plan.memory.ledger == before {
        Ok(())
    } else {
        write_ledger(system, zone, holder, &mut plan.memory, before).await
    };
    if written.is_err() {
        waits.append(&mut inherited);
    }
    let keeps = |key: &RecordKey| waits.iter().any(|(waiting, _)| waiting == key);
    plan.decided.retain(|status| !matches!(&status.found, Found::Absent(_, key) if keeps(key)));
    written
}

/// The zone, then its records, then the release of its object. Returns what became of the zone, of the atoms, and
/// whether the step of the zone is done.
async fn work(
    system: &PowerDnsSystem,
    zone: &ZoneName,
    plan: &mut Plan,
    mut outcome: ZoneOutcome,
) -> (ZoneOutcome, Vec<AtomOutcome>, bool) {
    let nothing = |plan: &Plan| vec![AtomOutcome::Deferred; plan.atoms.len()];
    let done = match plan.holder.clone() {
        Some(mut holder) => {
            let done = take_step(system, zone, &mut holder, plan).await;
            plan.holder = Some(holder);
            done
        }
        None => Ok(()),
    };
    // Settings that the server refuses are no reason to keep the records of a zone that is there from it.
    match (done, &plan.step) {
        (Ok(()), _) => {}
        (Err(ZoneOutcome::Failed(ServerError::Refused { words })), ZoneStep::Configure(settings)) => {
            let until = system.clock.now().checked_add(system.pace.retry_refused).unwrap_or(Timestamp::MAX);
            let rejected = RejectedSettings { settings: settings.clone(), words: words.clone(), until };
            plan.memory.rejected_settings = Some(rejected);
            outcome = ZoneOutcome::Failed(ServerError::Refused { words });
        }
        (Err(failed), step) => {
            // A server that refuses to create the zone does not have it: for an existing zone the answer is a conflict.
            let refused = matches!(failed, ZoneOutcome::Failed(ServerError::Refused { .. }));
            let missing = refused && matches!(step, ZoneStep::Create(_));
            return (failed, nothing(plan), missing);
        }
    }
    forget_lines(plan);
    if let (ZoneStep::Create(_), Some(holder)) = (&plan.step, plan.holder.clone())
        && !holder.spec.kind.is_secondary()
    {
        // Only now there is something to compare the apex with.
        let apex = apex(zone, &holder, &plan.memory, plan.soa_elsewhere, system.clock.now());
        plan.add_own(apex);
        plan.keep_one_soa();
        if let (Some(refusal), ZoneOutcome::Kept) = (plan.zone_refusal.take(), &outcome) {
            outcome = ZoneOutcome::Refused(refusal);
        }
    }
    if let Err(error) = secure_serial(system, zone, plan).await {
        return (ZoneOutcome::Failed(error), nothing(plan), false);
    }
    let outcomes = write_records(system, zone, plan.holder.as_mut(), &plan.atoms, &mut plan.memory).await;
    // An outcome is there already where the plan keeps the object although the zone is deleted.
    if let (Some(holder), ZoneStep::Delete | ZoneStep::Release) = (&plan.holder, &plan.step)
        && outcome == ZoneOutcome::Kept
        && outcomes.iter().all(|outcome| matches!(outcome, AtomOutcome::Done { .. }))
    {
        outcome = release(system, holder).await;
    }
    (outcome, outcomes, true)
}

/// A start of authority that is written never takes the serial back. The server's own serial is asked for first: after
/// the write, the serial would no longer show a foreign change of the zone.
async fn secure_serial(system: &PowerDnsSystem, zone: &ZoneName, plan: &mut Plan) -> Result<(), ServerError> {
    let writes_soa = |atom: &Atom| atom.write.as_ref().is_some_and(|write| write.key.rtype == RecordType::Soa);
    if !plan.atoms.iter().any(writes_soa) {
        return Ok(());
    }
    let info = system.server.zone(zone).await?.ok_or(ServerError::NoZone)?;
    let memory = &mut plan.memory;
    if let Some(present) = &mut memory.present {
        if present.info.serial != info.serial {
            memory.read_at = None;
        }
        present.info = info;
    }
    let floor = plan.holder.as_ref().and_then(|holder| serial_floor(holder));
    for write in plan.atoms.iter_mut().filter_map(|atom| atom.write.as_mut()) {
        write.content = with_safe_serial(memory.present.as_ref(), floor, &write.key, &write.content);
    }
    Ok(())
}

async fn release(system: &PowerDnsSystem, zone: &ZoneObject) -> ZoneOutcome {
    let identity = &zone.identity;
    if !has_any_finalizer(identity) {
        return ZoneOutcome::Released;
    }
    // In the queue of its statuses, so that none of them reaches another object that is created under the same name.
    let mut releasing = Releasing::begin(&system.index, identity);
    match system.queue.statuses().write_now(identity.id.clone(), zone.key.clone()).await {
        Ok(()) | Err(WriteError::Gone) => {
            releasing.done = true;
            ZoneOutcome::Released
        }
        Err(error) => ZoneOutcome::NotWritten(error),
    }
}

/// Lets a zone object be deleted while the pass that decided so waits for it. A pass that is cut off has decided nothing.
struct Releasing<'a> {
    index: &'a ZoneIndex,
    identity: &'a Identity,
    done: bool,
}

impl<'a> Releasing<'a> {
    fn begin(index: &'a ZoneIndex, identity: &'a Identity) -> Self {
        index.release_zone(identity, true);
        Self { index, identity, done: false }
    }
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.index.release_zone(self.identity, false);
        }
    }
}

async fn take_step(
    system: &PowerDnsSystem,
    zone: &ZoneName,
    holder: &mut Arc<ZoneObject>,
    plan: &mut Plan,
) -> Result<(), ZoneOutcome> {
    let identity = &holder.identity;
    let memory = &mut plan.memory;
    let touches = !plan.atoms.is_empty() || memory.present.is_some() || plan.step != ZoneStep::Keep;
    // It has the finalizer before anything is written or adopted in its name, so that its deletion can be cleaned up after.
    if !holder.has_finalizer() && !identity.is_deleting() && touches {
        let write = ObjectWrite::finalizers(identity, &identity.finalizers.with(FINALIZER));
        let answer = system.writer.write(&write).await.map_err(ZoneOutcome::NotWritten)?;
        system.index.written(&identity.id, &answer);
    }
    let reshapes =
        matches!(plan.step, ZoneStep::Configure(_)) || plan.atoms.iter().any(|atom| atom.name == *zone.name());
    if reshapes && memory.present.is_some() && memory.ledger.lists_shapes() {
        // The zone is ours by its shape, and is about to get another one.
        let before = memory.ledger.clone();
        memory.ledger.list_any_shape();
        write_ledger(system, zone, holder, memory, before).await.map_err(ZoneOutcome::NotWritten)?;
    }
    match &plan.step {
        ZoneStep::Keep | ZoneStep::Release => Ok(()),
        ZoneStep::Create(new) => create(system, zone, holder, new, memory).await,
        ZoneStep::Configure(settings) => {
            system.server.configure(zone, settings).await.map_err(ZoneOutcome::Failed)?;
            let info = system.server.zone(zone).await.map_err(ZoneOutcome::Failed)?;
            match (info, &mut memory.present) {
                (Some(info), Some(present)) => present.info = info,
                _ => memory.present = None,
            }
            Ok(())
        }
        ZoneStep::Delete => {
            system.server.delete(zone).await.map_err(ZoneOutcome::Failed)?;
            memory.zone_deleted();
            Ok(())
        }
    }
}

async fn create(
    system: &PowerDnsSystem,
    zone: &ZoneName,
    holder: &mut Arc<ZoneObject>,
    new: &NewZone,
    memory: &mut ZoneMemory,
) -> Result<(), ZoneOutcome> {
    let (marked, asked) = (memory.ledger.lists_zone(), shape_asked(new));
    if holder.spec.adoption_policy == AdoptionPolicy::Refuse && !memory.ledger.lists_creation(asked) {
        let before = memory.ledger.clone();
        memory.ledger.list_zone(asked);
        write_ledger(system, zone, holder, memory, before).await.map_err(ZoneOutcome::NotWritten)?;
    }
    if let Err(error) = system.server.create(new).await {
        // It was certainly not made by this call, and a try before whose end is not known cannot have
        // made it either, unless this one ran into it: from now on the zone is created by a foreign writer.
        let ours = marked && error.class() != ErrorClass::Refused;
        memory.ledger.keep_zone(error.is_uncertain() || ours);
        if may_be_late(&error) {
            // The object is kept until it is certain whether the zone was created for it.
            memory.ledger.list_zone(asked);
            memory.ledger.zone_uncertain = Some(system.clock.now());
        }
        return Err(ZoneOutcome::Failed(error));
    }
    (memory.created, memory.deleted) = (true, false);
    memory.present = crate::observe::read(system, zone).await.map_err(ZoneOutcome::Failed)?;
    memory.read_at = Some(system.clock.now());
    Ok(())
}

/// Whether the server may still carry out a request that failed so: no answer of its own has come.
fn may_be_late(error: &ServerError) -> bool {
    match error {
        ServerError::Unreachable { .. } | ServerError::Timeout { .. } => true,
        ServerError::Failed { status, .. } => matches!(status, 502..=504),
        _ => false,
    }
}

async fn write_records(
    system: &PowerDnsSystem,
    zone: &ZoneName,
    holder: Option<&mut Arc<ZoneObject>>,
    atoms: &[Atom],
    memory: &mut ZoneMemory,
) -> Vec<AtomOutcome> {
    if atoms.is_empty() {
        return Vec::new();
    }
    let new: Vec<&Write> = atoms.iter().filter_map(|atom| atom.write.as_ref().filter(|write| write.ledger)).collect();
    let mut end = atoms.len();
    if let (Some(holder), false) = (holder, new.is_empty()) {
        let before = memory.ledger.clone();
        let room = listable(zone, &memory.ledger, &new);
        if new.len() > room {
            end = room_for(atoms, room);
        }
        for write in &new[..room] {
            if write.endpoint {
                memory.ledger.list_endpoint(write.key.clone(), write.digest);
            } else {
                memory.ledger.list(write.key.clone(), write.digest);
            }
        }
        if let Err(error) = write_ledger(system, zone, holder, memory, before).await {
            tracing::warn!(%zone, %error, "the ledger could not be written");
            return vec![AtomOutcome::NotListed(error); atoms.len()];
        }
    }
    let known = memory.present.as_ref().map(|present| &present.info);
    let refuses = memory.closed.as_ref().map(|(words, _)| words.as_str());
    let Sent { mut outcomes, calls, strayed, closed } =
        patch::send(&*system.server, zone, &atoms[..end], known, refuses).await;
    if strayed {
        // The serial alone would hide from now on what a foreign writer changed before this: read the whole zone.
        memory.read_at = None;
    }
    memory.no_comments |= outcomes.contains(&AtomOutcome::Uncommented);
    let until = system.clock.now().checked_add(system.pace.retry_refused).unwrap_or(Timestamp::MAX);
    memory.closed = closed.map(|words| (words, until));
    outcomes.resize(atoms.len(), AtomOutcome::Deferred);
    // After a start of authority was written, the server does not tell the serial by itself.
    if outcomes.contains(&AtomOutcome::Done { serial: None })
        && let Ok(Some(info)) = system.server.zone(zone).await
    {
        for outcome in outcomes.iter_mut().filter(|outcome| matches!(outcome, AtomOutcome::Done { .. })) {
            *outcome = AtomOutcome::Done { serial: Some(info.serial) };
        }
        if let Some(present) = &mut memory.present {
            present.info = info;
        }
    }
    let changed = remember(zone, atoms, &outcomes, memory, system.clock.now());
    system.metrics.patched(calls, changed);
    system.metrics.repaired(atoms.iter().zip(&outcomes).filter(|(atom, outcome)| is_repair(atom, outcome)).count());
    outcomes
}

/// Whether it put back what the status of its object reports already.
fn is_repair(atom: &Atom, outcome: &AtomOutcome) -> bool {
    let wrote = |waiting: &Waiting| match (waiting, &atom.write) {
        (Waiting::Holds(record), Some(write)) => record
            .seen
            .applied
            .as_ref()
            .is_some_and(|applied| applied.key == write.key && applied.digest == write.digest),
        _ => false,
    };
    matches!(outcome, AtomOutcome::Done { .. }) && atom.waiting.iter().any(wrote)
}

/// How many of the new ones the ledger has room for.
fn listable(zone: &ZoneName, ledger: &Ledger, new: &[&Write]) -> usize {
    fitting(zone, ledger, new.iter().map(|write| (&write.key, write.endpoint)))
}

/// How many of these record sets the ledger has room for. True is for those of DNSEndpoints.
fn fitting<'a>(zone: &ZoneName, ledger: &Ledger, new: impl Iterator<Item = (&'a RecordKey, bool)>) -> usize {
    let mut size = ledger.size(zone);
    new.take_while(|(key, endpoint)| {
        size.add(zone, key, *endpoint);
        size.bytes() <= MAX_LEDGER
    })
    .count()
}

/// How many atoms fit when only so many may be new, without splitting a name.
fn room_for(atoms: &[Atom], room: usize) -> usize {
    let mut left = room;
    for (at, atom) in atoms.iter().enumerate() {
        if atom.write.as_ref().is_some_and(|write| write.ledger) {
            if left == 0 {
                return atoms[..at].iter().rposition(|before| before.name != atom.name).map_or(0, |last| last + 1);
            }
            left -= 1;
        }
    }
    atoms.len()
}

/// Stores the server's current sets. Returns how many sets changed.
fn remember(
    zone: &ZoneName,
    atoms: &[Atom],
    outcomes: &[AtomOutcome],
    memory: &mut ZoneMemory,
    now: Timestamp,
) -> usize {
    let mut changed = 0;
    let mut lost = false;
    for (atom, outcome) in atoms.iter().zip(outcomes) {
        match outcome {
            AtomOutcome::Done { serial } => {
                changed += atom.deletes.len() + usize::from(atom.write.is_some());
                remember_done(zone, atom, *serial, memory);
            }
            AtomOutcome::Failed(error) => {
                lost |= error.is_uncertain() || *error == ServerError::NoZone;
                // The zone object's own sets are never deleted by the ledger, so they are not listed either.
                let of_zone = atom.waiting.contains(&Waiting::Zone);
                if let (Some(write), true) = (&atom.write, may_be_late(error) && !of_zone) {
                    memory.ledger.list_uncertain(write.key.clone(), write.digest, now);
                }
            }
            AtomOutcome::Refused(_) | AtomOutcome::Uncommented | AtomOutcome::NotListed(_) | AtomOutcome::Deferred => {}
        }
    }
    if lost {
        // Whether it took effect is not known: read again.
        memory.present = None;
    }
    changed
}

fn remember_done(zone: &ZoneName, atom: &Atom, serial: Option<u32>, memory: &mut ZoneMemory) {
    for key in &atom.deletes {
        memory.ledger.forget(key);
        memory.rejected.remove(key);
    }
    if let Some(write) = &atom.write {
        memory.rejected.remove(&write.key);
        memory.ledger.confirm(&write.key, write.digest);
    }
    let Some(present) = &mut memory.present else { return };
    let is_apex = |key: &RecordKey, rtype| key.rtype == rtype && key.name == *zone.name();
    for key in &atom.deletes {
        present.sets.remove(key);
        present.registry.remove(key);
        present.commented.remove(key);
        present.beside.remove(key);
        if is_apex(key, RecordType::Ns) {
            present.apex_ns = None;
        }
    }
    if let Some(serial) = serial {
        // Without SOA-EDIT both are one.
        if present.info.edited_serial == present.info.serial {
            present.info.edited_serial = serial;
        }
        present.info.serial = serial;
    }
    let Some(write) = &atom.write else { return };
    present.sets.insert(write.key.clone(), write.digest);
    if write.content.comment.is_some() {
        present.commented.insert(write.key.clone());
    } else {
        present.commented.remove(&write.key);
    }
    if is_apex(&write.key, RecordType::Soa) {
        present.soa = write.content.records.first().map(|text| (write.content.ttl, text.clone()));
    }
    if is_apex(&write.key, RecordType::Ns) {
        let hosts = write.content.records.iter().map(|host| canonical_host(host)).collect();
        present.apex_ns = Some((write.content.ttl, hosts));
    }
}

/// Writes what is in flight to the zone object, before it is. Where that fails the ledger is what it was before:
/// nothing may be taken for listed that is not.
async fn write_ledger(
    system: &PowerDnsSystem,
    zone: &ZoneName,
    holder: &mut Arc<ZoneObject>,
    memory: &mut ZoneMemory,
    before: Ledger,
) -> Result<(), WriteError> {
    let mut status = ZoneStatus { in_flight: memory.ledger.lines(zone), ..holder.decided().clone() };
    if memory.lists_endpoints {
        status.endpoints = memory.ledger.endpoint_lines(zone);
    }
    let status = Arc::new(status);
    system.index.want_zone(&holder.identity, Some(status.clone()));
    match system.queue.statuses().write_now(holder.identity.id.clone(), holder.key.clone()).await {
        Ok(()) => {
            Arc::make_mut(holder).wanted = Some(status);
            Ok(())
        }
        Err(error) => {
            system.index.want_zone(&holder.identity, holder.wanted.clone());
            memory.ledger = before;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{index::digest::Digest, plan::memory::Present};
    use signpost_dns::Fqdn;
    use signpost_provider_powerdns::{MemoryServer, ZoneServer, ZoneSettings};

    #[tokio::test]
    async fn name_servers_that_were_taken_off_are_not_remembered() {
        let zone = ZoneName::parse("example.com").unwrap();
        let nameservers = vec![Fqdn::parse("ns1.example.org").unwrap()];
        let new = NewZone { name: zone.clone(), kind: "Native".into(), nameservers, settings: ZoneSettings::default() };
        let server = MemoryServer::new();
        server.create(&new).await.unwrap();
        let contents = server.read(&zone).await.unwrap().unwrap();
        let mut memory = ZoneMemory { present: Some(Present::of(&contents)), ..ZoneMemory::default() };
        assert!(memory.present.as_ref().unwrap().apex_ns.is_some());
        let key = RecordKey::new(zone.name().clone(), RecordType::Ns);
        let atom = Atom { name: zone.name().clone(), deletes: vec![key], write: None, waiting: vec![] };
        let done = AtomOutcome::Done { serial: Some(8) };
        remember(&zone, &[atom], &[done], &mut memory, Timestamp::UNIX_EPOCH);
        assert_eq!(memory.present.unwrap().apex_ns, None);
    }

    #[test]
    fn what_a_zone_object_asks_for_is_not_listed_when_its_request_ends_without_an_answer() {
        let zone = ZoneName::parse("example.com").unwrap();
        let late = [AtomOutcome::Failed(ServerError::Timeout { after: Duration::from_secs(10) })];
        let mut atoms = new_names(1, 1);
        for (waiting, lines) in [(vec![Waiting::Zone], 0), (vec![], 1)] {
            atoms[0].waiting = waiting;
            let mut memory = ZoneMemory::default();
            remember(&zone, &atoms, &late, &mut memory, Timestamp::UNIX_EPOCH);
            assert_eq!(memory.ledger.len(), lines);
        }
    }

    /// New names, so that every atom needs a line in the ledger.
    fn new_names(count: usize, label: usize) -> Vec<Atom> {
        let zone = ZoneName::parse("example.com").unwrap();
        let label = "x".repeat(label);
        let content = Arc::new(crate::index::record::content(
            300,
            &[signpost_dns::Rdata::parse(&RecordType::A, "192.0.2.1").unwrap()],
            None,
        ));
        let atom = |n: usize| {
            let name = zone.resolve(&format!("n{n:05}.{label}")).unwrap();
            let digest = Digest::of_content(RecordType::A, &content);
            let comment = signpost_provider_powerdns::CommentChange::Keep;
            let key = RecordKey::new(name.clone(), RecordType::A);
            let (content, ledger) = (content.clone(), true);
            let write = Write { key, content, digest, comment, ledger, endpoint: false };
            Atom { name, deletes: vec![], write: Some(write), waiting: vec![] }
        };
        (0..count).map(atom).collect()
    }

    fn lines(atoms: &[Atom]) -> Vec<&Write> {
        atoms.iter().filter_map(|atom| atom.write.as_ref()).collect()
    }

    #[test]
    fn a_ledger_never_outgrows_what_the_api_server_takes_and_what_it_has_no_room_for_waits() {
        let zone = ZoneName::parse("example.com").unwrap();
        let atoms = new_names(20_000, 60);
        let new = lines(&atoms);
        let mut ledger = Ledger::default();
        let room = listable(&zone, &ledger, &new);
        assert!(0 < room && room < new.len());
        for write in &new[..room] {
            ledger.list(write.key.clone(), write.digest);
        }
        assert!(serde_json::to_vec(&ledger.lines(&zone)).unwrap().len() <= MAX_LEDGER + 2);
        assert_eq!(room_for(&atoms, room), room);
        assert_eq!(listable(&zone, &ledger, &new[room..]), 0, "the next round finds it full until it was pruned");
        let few = new_names(20_000, 10);
        assert_eq!(listable(&zone, &Ledger::default(), &lines(&few)), 20_000, "names are listed without their zone");
    }

    #[test]
    fn room_is_counted_in_new_names_and_no_name_is_split() {
        let mut atoms = new_names(4, 1);
        assert_eq!(room_for(&atoms, 4), 4);
        assert_eq!((room_for(&atoms, 3), room_for(&atoms, 0)), (3, 0));
        // A known one needs no line.
        atoms[1].write.as_mut().unwrap().ledger = false;
        assert_eq!((room_for(&atoms, 3), room_for(&atoms, 2)), (4, 3));
        // Two atoms of one name wait together.
        atoms[3].name = atoms[2].name.clone();
        assert_eq!((room_for(&atoms, 3), room_for(&atoms, 2)), (4, 2));
    }
}
