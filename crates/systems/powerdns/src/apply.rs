//! The only writer. It can be cut off after any call and run again.
//!
//! ```text
//!  finalizer of the zone ─► zone itself ─► ledger of new names ─► PATCH ─► (statuses, later, by the finisher)
//! ```
//!
//! In: a [`Plan`]. Out: [`Applied`], from which alone a success can be reported.

use std::sync::Arc;

use signpost_dns::{RecordKey, RecordType, ZoneName};
use signpost_engine::WriteError;
use signpost_planning::Refusal;
use signpost_provider_powerdns::{ErrorClass, NewZone, ServerError};

use crate::{
    PowerDnsSystem,
    digest::Digest,
    finish,
    memory::{Ledger, Present, ZoneMemory, canonical_host},
    patch::{self, AtomOutcome, Sent},
    plan::{Atom, Plan, Waiting, ZoneStep},
    record::{ZoneKey, ZoneObject, content},
    report::Verdict,
    zone_plan::with_safe_serial,
};

/// Bytes of ledger at once; more would make the zone object larger than the API server takes. The rest waits for the next round.
const MAX_LEDGER: usize = 1_000_000;

/// What was done.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) key: ZoneKey,
    pub(crate) memory: ZoneMemory,
    pub(crate) holder: Option<Arc<ZoneObject>>,
    pub(crate) losers: Vec<Arc<ZoneObject>>,
    pub(crate) zone: ZoneOutcome,
    pub(crate) atoms: Vec<(Atom, AtomOutcome)>,
    pub(crate) decided: Vec<Verdict>,
    pub(crate) guarded: Option<Refusal>,
    pub(crate) full: bool,
    pub(crate) left: bool,
    pub(crate) shared: bool,
}

/// What became of the zone itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ZoneOutcome {
    /// No zone object, or nothing to do about it.
    Kept,
    /// It is gone from the server, or was left there on purpose; the object may go.
    Released,
    /// It is not as the object wants, for a reason in the object.
    Refused(Refusal),
    /// The server failed or refused.
    Failed(ServerError),
    /// The zone object could not be written, so nothing was done on the server.
    NotWritten(WriteError),
}

pub(crate) async fn apply(system: &PowerDnsSystem, plan: Plan) -> Applied {
    let Plan {
        key,
        mut memory,
        holder,
        losers,
        step,
        zone_refusal,
        mut atoms,
        mut decided,
        forget,
        unlist,
        guarded,
        unreachable,
        full,
        left,
        shared,
    } = plan;
    for key in forget {
        memory.ledger.entries.remove(&key);
    }
    let reachable = unreachable.is_none();
    let mut outcome = match (zone_refusal, unreachable) {
        (_, Some(error)) => ZoneOutcome::Failed(error),
        (Some(refusal), None) => ZoneOutcome::Refused(refusal),
        (None, None) => ZoneOutcome::Kept,
    };
    let before = memory.ledger.clone();
    let listed = unlist.iter().filter(|key| memory.ledger.entries.remove(*key).is_some()).count();
    if let (Some(holder), Some(zone), true) = (&holder, key.zone(), listed > 0)
        && let Err(error) = write_ledger(system, zone, holder, &mut memory, before).await
    {
        // An object whose record stays may only go once the ledger no longer claims that record.
        decided.retain(|verdict| !verdict.release);
        outcome = ZoneOutcome::NotWritten(error);
    }
    let mut outcomes = vec![AtomOutcome::Deferred; atoms.len()];
    if let (Some(zone), true) = (key.zone().cloned(), reachable) {
        let zone_done = match &holder {
            Some(holder) => take_step(system, &zone, holder, &step, !atoms.is_empty(), &mut memory).await,
            None => Ok(()),
        };
        // Settings that the server refuses are no reason to keep the records of a zone that is there from it.
        let refused =
            |error: &ServerError| error.class() == ErrorClass::Refused && matches!(step, ZoneStep::Configure(_));
        match zone_done {
            Err(failed) if !matches!(&failed, ZoneOutcome::Failed(error) if refused(error)) => outcome = failed,
            done => {
                if let Err(failed) = done {
                    outcome = failed;
                }
                // The zone may have been made just now: only here its serial is known.
                for write in atoms.iter_mut().filter_map(|atom| atom.write.as_mut()) {
                    write.content = with_safe_serial(memory.present.as_ref(), &write.key, &write.content);
                }
                outcomes = write_records(system, &zone, holder.as_ref(), &atoms, &mut memory).await;
                if let (Some(holder), ZoneStep::Delete | ZoneStep::Release) = (&holder, &step)
                    && outcomes.iter().all(|outcome| matches!(outcome, AtomOutcome::Done { .. }))
                {
                    outcome = release(system, holder).await;
                }
            }
        }
    }
    if let (Some(holder), false, ZoneStep::Release) = (&holder, reachable, &step) {
        // The zone stays where it is. Record sets that do not are waited for under its name.
        match release(system, holder).await {
            ZoneOutcome::Released if decided.iter().any(|verdict| !verdict.release) => {}
            released => outcome = released,
        }
    }
    if let (Some(holder), None) = (&holder, key.zone())
        && holder.identity.deleting
    {
        // No zone has such a name, so there is nothing of it on the server.
        outcome = release(system, holder).await;
    }
    for loser in losers.iter().filter(|loser| loser.identity.deleting && loser.identity.is_kept_by_us()) {
        // It never held the zone, so there is nothing of it on the server.
        if let ZoneOutcome::NotWritten(error) = release(system, loser).await {
            outcome = ZoneOutcome::NotWritten(error);
        }
    }
    let atoms = atoms.into_iter().zip(outcomes).collect();
    Applied { key, memory, holder, losers, zone: outcome, atoms, decided, guarded, full, left, shared }
}

async fn release(system: &PowerDnsSystem, zone: &ZoneObject) -> ZoneOutcome {
    if !zone.identity.is_kept_by_us() {
        return ZoneOutcome::Released;
    }
    match system.writer.write(&finish::metadata(&zone.identity, false)).await {
        Ok(_) | Err(WriteError::Gone) => ZoneOutcome::Released,
        Err(error) => ZoneOutcome::NotWritten(error),
    }
}

async fn take_step(
    system: &PowerDnsSystem,
    zone: &ZoneName,
    holder: &Arc<ZoneObject>,
    step: &ZoneStep,
    writes: bool,
    memory: &mut ZoneMemory,
) -> Result<(), ZoneOutcome> {
    let identity = &holder.identity;
    // Held before anything is written or adopted in its name, so that its deletion can be cleaned up after.
    if !identity.held && !identity.deleting && (writes || memory.present.is_some() || *step != ZoneStep::Keep) {
        let held = system.writer.write(&finish::metadata(identity, true)).await.map_err(ZoneOutcome::NotWritten)?;
        system.world.written(&identity.id, held);
    }
    match step {
        ZoneStep::Keep | ZoneStep::Release => Ok(()),
        ZoneStep::Create(new) => {
            let marked = memory.ledger.zone;
            if holder.spec.adoption_policy == signpost_apis::powerdns::AdoptionPolicy::Refuse && !marked {
                let before = memory.ledger.clone();
                memory.ledger.zone = true;
                write_ledger(system, zone, holder, memory, before).await.map_err(ZoneOutcome::NotWritten)?;
            }
            let info = match system.server.create(new).await {
                Ok(info) => info,
                Err(error) => {
                    // It was certainly not made by this call, and a try before whose end is not known cannot have
                    // made it either, unless this one ran into it: who makes the zone from now on is somebody else.
                    let ours = marked && error.class() != ErrorClass::Refused;
                    memory.ledger.zone &= error.is_uncertain() || ours;
                    return Err(ZoneOutcome::Failed(error));
                }
            };
            memory.present = Some(fresh(new, info));
            memory.read_at = Some(system.clock.now());
            Ok(())
        }
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
            *memory = ZoneMemory::default();
            Ok(())
        }
    }
}

/// What a zone holds that was made just now.
fn fresh(new: &NewZone, info: signpost_provider_powerdns::ZoneInfo) -> Present {
    let mut present = Present {
        info,
        sets: std::collections::BTreeMap::new(),
        commented: std::collections::BTreeSet::new(),
        beside: std::collections::BTreeMap::new(),
        apex_ns: None,
        // The server makes one, unless the zone's content comes from elsewhere.
        has_soa: !matches!(new.kind.as_str(), "Slave" | "Consumer"),
    };
    if !new.nameservers.is_empty() {
        let records: Vec<_> = new.nameservers.iter().cloned().map(signpost_dns::Rdata::Ns).collect();
        let ns = content(3600, &records, None);
        let key = RecordKey::new(new.name.name().clone(), RecordType::Ns);
        present.sets.insert(key, Digest::of_content(RecordType::Ns, &ns));
        present.apex_ns = Some((3600, ns.records.iter().map(|host| canonical_host(host)).collect()));
    }
    present
}

async fn write_records(
    system: &PowerDnsSystem,
    zone: &ZoneName,
    holder: Option<&Arc<ZoneObject>>,
    atoms: &[Atom],
    memory: &mut ZoneMemory,
) -> Vec<AtomOutcome> {
    if atoms.is_empty() {
        return Vec::new();
    }
    let new: Vec<(RecordKey, Digest)> = atoms
        .iter()
        .filter_map(|atom| atom.write.as_ref().filter(|write| write.ledger))
        .map(|write| (write.key.clone(), write.digest))
        .collect();
    let mut end = atoms.len();
    if let (Some(holder), false) = (holder, new.is_empty()) {
        system.prune(zone, &mut memory.ledger);
        let before = memory.ledger.clone();
        let room = listable(zone, &memory.ledger, &new);
        if new.len() > room {
            end = room_for(atoms, room);
        }
        for (key, digest) in new.into_iter().take(room) {
            memory.ledger.entries.entry(key).or_default().insert(digest);
        }
        if let Err(error) = write_ledger(system, zone, holder, memory, before).await {
            tracing::warn!(%zone, %error, "the ledger could not be written");
            return vec![AtomOutcome::NotListed(error); atoms.len()];
        }
    }
    let known = memory.present.as_ref().map(|present| &present.info);
    let Sent { mut outcomes, calls, strayed } = patch::send(&*system.server, zone, &atoms[..end], known).await;
    if strayed {
        // The serial alone would hide from now on what somebody else wrote before this: look at all of it.
        memory.read_at = None;
    }
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
    let changed = remember(zone, atoms, &outcomes, memory);
    system.figures.patched(calls, changed);
    system.figures.repaired(atoms.iter().zip(&outcomes).filter(|(atom, outcome)| is_repair(atom, outcome)).count());
    outcomes
}

/// Whether it put back what its object says it wrote already.
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
fn listable(zone: &ZoneName, ledger: &Ledger, new: &[(RecordKey, Digest)]) -> usize {
    let mut bytes = ledger.bytes(zone);
    let fits = |(key, _): &&(RecordKey, Digest)| {
        bytes += Ledger::line_bytes(zone, key);
        bytes <= MAX_LEDGER
    };
    new.iter().take_while(fits).count()
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

/// What the server has now. Returns how many sets changed.
fn remember(zone: &ZoneName, atoms: &[Atom], outcomes: &[AtomOutcome], memory: &mut ZoneMemory) -> usize {
    let mut changed = 0;
    let mut lost = false;
    for (atom, outcome) in atoms.iter().zip(outcomes) {
        match outcome {
            AtomOutcome::Done { serial } => {
                for key in &atom.deletes {
                    changed += 1;
                    memory.ledger.entries.remove(key);
                    memory.rejected.remove(key);
                }
                let Some(present) = &mut memory.present else { continue };
                for key in &atom.deletes {
                    present.sets.remove(key);
                    present.commented.remove(key);
                    present.beside.remove(key);
                    if key.rtype == RecordType::Ns && key.name == *zone.name() {
                        present.apex_ns = None;
                    }
                }
                if let Some(serial) = serial {
                    // Without SOA-EDIT both are one.
                    if present.info.edited_serial == present.info.serial {
                        present.info.edited_serial = *serial;
                    }
                    present.info.serial = *serial;
                }
                if let Some(write) = &atom.write {
                    changed += 1;
                    memory.rejected.remove(&write.key);
                    if let Some(digests) = memory.ledger.entries.get_mut(&write.key) {
                        *digests = [write.digest].into();
                    }
                    present.sets.insert(write.key.clone(), write.digest);
                    present.has_soa |= write.key.rtype == RecordType::Soa;
                    if write.content.comment.is_some() {
                        present.commented.insert(write.key.clone());
                    } else {
                        present.commented.remove(&write.key);
                    }
                    if write.key.rtype == RecordType::Ns && write.key.name == *zone.name() {
                        let hosts = write.content.records.iter().map(|host| canonical_host(host)).collect();
                        present.apex_ns = Some((write.content.ttl, hosts));
                    }
                }
            }
            AtomOutcome::Failed(error) => lost |= error.is_uncertain() || *error == ServerError::NoZone,
            AtomOutcome::Refused(_) | AtomOutcome::NotListed(_) | AtomOutcome::Deferred => {}
        }
    }
    if lost {
        // Whether it took effect is not known: read again.
        memory.present = None;
    }
    changed
}

/// Writes what is in flight to the zone object, before it is. Where that fails the ledger is what it was before:
/// nothing may be taken for listed that is not.
async fn write_ledger(
    system: &PowerDnsSystem,
    zone: &ZoneName,
    holder: &Arc<ZoneObject>,
    memory: &mut ZoneMemory,
    before: Ledger,
) -> Result<(), WriteError> {
    let mut status = memory.said.clone().unwrap_or_else(|| (*holder.status).clone());
    status.in_flight = memory.ledger.lines(zone);
    let value = serde_json::to_value(&status).map_err(|error| WriteError::Invalid(error.to_string()))?;
    system.world.zone_said(&holder.identity.id, &status);
    if let Err(error) = system.writer.write(&finish::object_status(&holder.identity, value)).await {
        memory.ledger = before;
        return Err(error);
    }
    memory.said = Some(status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::Fqdn;
    use signpost_provider_powerdns::{MemoryServer, ZoneServer, ZoneSettings};

    #[tokio::test]
    async fn name_servers_that_were_taken_off_are_not_remembered() {
        let zone = ZoneName::parse("example.com").unwrap();
        let nameservers = vec![Fqdn::parse("ns1.example.org").unwrap()];
        let new = NewZone { name: zone.clone(), kind: "Native".into(), nameservers, settings: ZoneSettings::default() };
        let info = MemoryServer::new().create(&new).await.unwrap();
        let mut memory = ZoneMemory { present: Some(fresh(&new, info)), ..ZoneMemory::default() };
        assert!(memory.present.as_ref().unwrap().apex_ns.is_some());
        let key = RecordKey::new(zone.name().clone(), RecordType::Ns);
        let atom = Atom { name: zone.name().clone(), deletes: vec![key], write: None, waiting: vec![] };
        remember(&zone, &[atom], &[AtomOutcome::Done { serial: Some(8) }], &mut memory);
        assert_eq!(memory.present.unwrap().apex_ns, None);
    }
    /// New names, so that every atom needs a line in the ledger.
    fn new_names(count: usize, label: usize) -> Vec<Atom> {
        let zone = ZoneName::parse("example.com").unwrap();
        let label = "x".repeat(label);
        let content = Arc::new(content(300, &[signpost_dns::Rdata::parse(&RecordType::A, "192.0.2.1").unwrap()], None));
        let atom = |n: usize| {
            let name = zone.resolve(&format!("n{n:05}.{label}")).unwrap();
            let digest = Digest::of_content(RecordType::A, &content);
            let comment = signpost_provider_powerdns::CommentChange::Keep;
            let key = RecordKey::new(name.clone(), RecordType::A);
            let write = crate::plan::Write { key, content: content.clone(), digest, comment, ledger: true };
            Atom { name, deletes: vec![], write: Some(write), waiting: vec![] }
        };
        (0..count).map(atom).collect()
    }

    #[test]
    fn a_ledger_never_outgrows_what_the_api_server_takes_and_what_it_has_no_room_for_waits() {
        let zone = ZoneName::parse("example.com").unwrap();
        let lines = |atoms: &[Atom]| -> Vec<(RecordKey, Digest)> {
            atoms.iter().filter_map(|atom| atom.write.as_ref()).map(|write| (write.key.clone(), write.digest)).collect()
        };
        let atoms = new_names(20_000, 60);
        let new = lines(&atoms);
        let mut ledger = Ledger::default();
        let room = listable(&zone, &ledger, &new);
        assert!(0 < room && room < new.len());
        ledger.entries.extend(new[..room].iter().map(|(key, digest)| (key.clone(), [*digest].into())));
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
