//! The end of a pass: statuses of record sets from what was applied, the zones' statuses, and when the zone is next. Pure.
//!
//! In: [`ApplyResult`]. Out: the engine's [`Report`]. Only what was applied can be called a success.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use signpost_dns::RecordKey;
use signpost_engine::{ObjectId, Outcome, Report, Touch, Touched};
use signpost_planning::{GuardMemory, Reason, Refusal};

use crate::{
    PowerDnsSystem,
    apply::{ApplyResult, ZoneOutcome, patch::AtomOutcome},
    index::record::{Record, ZoneKey, ZoneObject},
    plan::{
        Atom, Extent, Waiting,
        memory::{Rejection, ZoneMemory},
        zone::server_refusal,
    },
    settings::Pace,
};

mod retry;
pub(crate) mod status;
mod zone;

use retry::Retries;
use status::{Decision, Found, Readiness, RecordStatus};
use zone::{ZoneReport, ZoneState, still_refused, zone_failure, zone_readiness};

/// The shortest time until a pass that nothing but the clock asks for.
const SHORT: Duration = Duration::from_millis(100);

/// How soon a zone is read again after a foreign write.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// How soon deletions that the guard paused are judged again.
const CONFIRM: Duration = Duration::from_secs(5);

/// A ledger with more lines than this has none of what the server refused: they would leave no room for what it accepts.
const REFUSED_LINES: usize = 100;

/// Reports a pass.
pub(crate) fn report(applied: ApplyResult, now: Timestamp) -> Report<PowerDnsSystem> {
    let ApplyResult {
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
        again: asked,
        pace,
        extent: Extent { full, left, shared },
    } = applied;
    let mut retry = Retries { fixed: asked, ..Retries::default() };
    let readiness = zone_readiness(&outcome, &mut retry);
    let mut pass = Pass { key, memory, retry, readiness, statuses: decided, shared, now };
    for (record, status) in with_zone {
        pass.statuses.push(match pass.readiness.refusal() {
            Some(refusal) if !step_done => RecordStatus::carried(&record, Readiness::Failed(refusal.clone())),
            _ => status,
        });
    }
    if let (Some(holder), ZoneOutcome::Kept, false) = (&holder, &outcome, full) {
        pass.carry_refusal(holder, &atoms);
    }
    pass.respect_closed();
    let blocked = zone_failure(&outcome, pass.memory.present.is_some());
    for (atom, became) in &atoms {
        pass.report_atom(atom, became, blocked.as_ref(), &pace);
    }
    if full && guarded.is_none() && atoms.iter().any(is_swept) {
        // The deletions that the guard allowed are done. If the same ones are planned again, they are paused again: the passes until then
        // may be over some names only, and do not change this memory.
        pass.memory.guard = GuardMemory::default();
    }
    let mut zones = ZoneReport::default();
    let watched = holder.is_some() && outcome != ZoneOutcome::Released;
    if let Some(holder) = &holder {
        if watched {
            let more_comes = !full && atoms.iter().any(is_awaited);
            pass.report_holder(&mut zones, holder, more_comes, pace.endpoints.is_some());
        }
        for loser in losers.iter().filter(|loser| !loser.identity.is_deleting()) {
            zones.loser(loser, holder, &pass.key, now);
        }
        let refused = pass.readiness.refusal().filter(|_| watched).into_iter().chain(&guarded).cloned().collect();
        zones.refusals.push((holder.identity.clone(), refused));
    }
    if let Some(refusal) = &guarded {
        zones.measured.refused.push(refusal.reason);
        pass.retry.fixed = Some(CONFIRM);
    }
    // Names that lost an object are looked at once; after a failure only a full pass finds them again.
    if left && !full {
        pass.retry.widen();
    }
    let Pass { key, memory, retry, statuses, .. } = pass;
    // A pass over some record sets leaves the clock of the next full one alone.
    let outcome = retry.outcome((watched && full).then_some(pace.resync));
    let retries = matches!(outcome, Outcome::Retry { .. });
    let again = next_full_pass(&memory, &pace, retries, now).filter(|_| watched);
    let ZoneReport { decisions, refusals, measured } = zones;
    let statuses = decisions.into_iter().chain(statuses.into_iter().map(Decision::Record)).collect();
    let touches = again.map(|after| (key, Touch::All, after)).into_iter().collect();
    Report { memory: watched.then_some(memory), statuses, refusals, measured, touches, ..Report::new(outcome) }
}

/// Written record sets write their statuses, and then there is a pass for the zone.
fn is_awaited((atom, became): &(Atom, AtomOutcome)) -> bool {
    let for_record = |waiting: &Waiting| matches!(waiting, Waiting::Holds(record) if record.endpoint.is_none());
    matches!(became, AtomOutcome::Done { .. }) && atom.waiting.iter().any(for_record)
}

/// Whether a set was deleted that only the ledger lists: no object waits for that.
fn is_swept((atom, became): &(Atom, AtomOutcome)) -> bool {
    matches!(became, AtomOutcome::Done { .. }) && atom.write.is_none() && atom.waiting.is_empty()
}

/// When the next full pass is, where the outcome does not tell it.
fn next_full_pass(memory: &ZoneMemory, pace: &Pace, retries: bool, now: Timestamp) -> Option<Duration> {
    let mut again = retries.then_some(pace.resync);
    if memory.present.is_some() && memory.read_at.is_none() {
        // A foreign writer changed the zone beside us.
        again = Some(pace.resync.min(READ_AGAIN));
    }
    // Lines that are uncertain are looked at again as soon as they are not.
    if let Some(since) = memory.ledger.uncertain_since() {
        let left = pace.grace.saturating_sub(now.duration_since(since).unsigned_abs());
        again = Some(again.unwrap_or(pace.resync).min(left.max(SHORT)));
    }
    again
}

/// A report in the making.
struct Pass {
    key: ZoneKey,
    memory: ZoneMemory,
    retry: Retries,
    /// How the zone itself is.
    readiness: Readiness,
    statuses: Vec<RecordStatus>,
    /// Whether objects that are not seen may have something in the zone.
    shared: bool,
    now: Timestamp,
}

impl Pass {
    /// A pass over some record sets does not look at the zone: what was wrong with it before still is.
    fn carry_refusal(&mut self, holder: &ZoneObject, atoms: &[(Atom, AtomOutcome)]) {
        let wrote = atoms.iter().any(|(_, became)| matches!(became, AtomOutcome::Done { .. }));
        if let Some(refusal) = still_refused(holder.decided(), holder.identity.generation, wrote) {
            self.readiness = Readiness::Failed(refusal);
        }
    }

    /// A zone that refuses every change is not well, although its record sets are not tried again yet.
    fn respect_closed(&mut self) {
        let closed = self.memory.closed.as_ref().filter(|(_, until)| *until > self.now);
        if let (Some((words, _)), Readiness::Succeeded) = (closed, &self.readiness) {
            self.readiness = Readiness::Failed(Refusal::new(Reason::ProviderRejected, words.clone()));
        }
    }

    fn report_atom(&mut self, atom: &Atom, became: &AtomOutcome, blocked: Option<&Refusal>, pace: &Pace) {
        match (became, blocked) {
            (AtomOutcome::Uncommented, _) => {
                if let Some(write) = &atom.write {
                    self.memory.ledger.strike(&write.key, write.digest);
                }
                self.retry.now = true;
            }
            // Not tried: the status of those that wait for it is unchanged until their round comes.
            (AtomOutcome::Deferred, None) => self.retry.deferred = true,
            // Not tried, and those that wait for the zone report so.
            (AtomOutcome::Deferred, Some(refusal)) => {
                for waiting in &atom.waiting {
                    if let Waiting::Holds(record) | Waiting::Leaves(record) = waiting {
                        self.statuses.push(RecordStatus::carried(record, Readiness::Failed(refusal.clone())));
                    }
                }
            }
            _ => {
                let refusal = refusal_of(atom, became, pace, self.now, &mut self.memory, &mut self.retry);
                if matches!(became, AtomOutcome::Refused(_))
                    && self.statuses.iter().any(|status| gives_way(status, atom))
                {
                    self.retry.fixed = Some(SHORT);
                }
                for waiting in &atom.waiting {
                    self.report_waiting(atom, became, waiting, refusal.as_ref());
                }
            }
        }
    }

    /// The result of an atom for an object that waits for it. `refusal` is `None` when it is done.
    fn report_waiting(&mut self, atom: &Atom, became: &AtomOutcome, waiting: &Waiting, refusal: Option<&Refusal>) {
        let failed = || Readiness::Failed(refusal.cloned().unwrap_or_else(not_tried));
        let zone = self.key.zone();
        let status = match waiting {
            Waiting::Holds(record) => match (refusal, &atom.write, became, zone) {
                (None, Some(write), AtomOutcome::Done { serial }, Some(zone)) => {
                    RecordStatus::served(record, zone, &write.key, write.digest, *serial, self.now)
                        .with_comment_notice(record, &write.content)
                }
                _ => RecordStatus { found: self.unsaid(atom, record), ..RecordStatus::carried(record, failed()) },
            },
            Waiting::Leaves(record) => match (refusal, zone) {
                (None, Some(zone)) => RecordStatus::released(record, zone, Readiness::Succeeded),
                _ => RecordStatus::carried(record, failed()),
            },
            Waiting::Clears(status) => match refusal {
                None => (**status).clone(),
                // Its report is decided; it only includes the deletion of the old set once that is done.
                Some(_) => RecordStatus { found: Found::Nothing, release: false, ..(**status).clone() },
            },
            Waiting::Zone => {
                if let (Some(refusal), Readiness::Succeeded) = (refusal, &self.readiness) {
                    self.readiness = Readiness::Failed(refusal.clone());
                }
                return;
            }
        };
        self.statuses.push(status);
    }

    /// What the object has on the server although the atom is not done, and what its status does not report yet.
    fn unsaid(&self, atom: &Atom, record: &Record) -> Found {
        let (Some(zone), Some(write)) = (self.key.zone(), &atom.write) else { return Found::Nothing };
        if self.shared || record.endpoint.is_some() || record.applied().is_some() {
            return Found::Nothing;
        }
        // What another object gives up for this one is that object's.
        let of_another = |key: &RecordKey| {
            let gives_up = |status: &RecordStatus| matches!(&status.found, Found::Absent(_, old) if old == key);
            atom.waiting.iter().any(|waiting| matches!(waiting, Waiting::Clears(status) if gives_up(status)))
        };
        let old = atom.deletes.iter().filter(|key| record.may_have_more() && !of_another(key));
        self.memory.find_listed(zone, std::iter::once(&write.key).chain(old))
    }

    fn report_holder(&mut self, zones: &mut ZoneReport, holder: &ZoneObject, more_comes: bool, endpoints: bool) {
        let Self { key, memory, readiness, now, .. } = self;
        let Some(zone) = key.zone() else {
            zones.unnamed(holder, readiness, *now);
            return;
        };
        // The status that drops the mark reports the zone's identifier, which takes its place.
        let certain = memory.ledger.zone_uncertain.is_none();
        let keeps = !certain || memory.present.is_none() || *readiness != Readiness::Succeeded;
        memory.ledger.keep_zone(keeps);
        zones.holder(holder, &ZoneState { zone, readiness, more_comes, endpoints, now: *now }, memory);
    }
}

/// Whether an object gave way to what the atom was to write, so that it can be served now that the server refuses the atom.
fn gives_way(status: &RecordStatus, atom: &Atom) -> bool {
    let conflict = |refusal: &Refusal| refusal.reason == Reason::CnameConflict;
    atom.write.is_some() && status.name.as_ref() == Some(&atom.name) && status.readiness.refusal().is_some_and(conflict)
}

/// Why the atom is not done; `None` when it is.
fn refusal_of(
    atom: &Atom,
    became: &AtomOutcome,
    pace: &Pace,
    now: Timestamp,
    memory: &mut ZoneMemory,
    retry: &mut Retries,
) -> Option<Refusal> {
    let objects = || {
        let ids = atom.waiting.iter().filter_map(|waiting| match waiting {
            Waiting::Holds(record) | Waiting::Leaves(record) => Some(record.identity.id.clone()),
            Waiting::Clears(status) => Some(status.judged.id.clone()),
            Waiting::Zone => None,
        });
        let ids: BTreeSet<Arc<ObjectId>> = ids.collect();
        if ids.is_empty() { Touched::All } else { Touched::Some(ids) }
    };
    match became {
        AtomOutcome::Done { .. } => None,
        AtomOutcome::Refused(words) => {
            if let Some(write) = &atom.write {
                let until = now.checked_add(pace.retry_refused).unwrap_or(Timestamp::MAX);
                let rejection = Rejection { digest: write.digest, words: words.clone(), until };
                let before = memory.rejected.insert(write.key.clone(), rejection);
                if let Some(before) = before.filter(|before| before.digest != write.digest) {
                    memory.ledger.strike(&write.key, before.digest);
                }
                // A content that was listed before and never arrived would keep this one from being the only one.
                memory.strike_absent(&write.key, write.digest);
                // It is not there, but it stays listed: the next try of the same content needs no other write of the zone object.
                let alone = memory.ledger.count(&write.key) == 1;
                if !alone || memory.ledger.len() > REFUSED_LINES {
                    memory.ledger.strike(&write.key, write.digest);
                }
            }
            retry.slow.merge(objects());
            Some(Refusal::new(Reason::ProviderRejected, words.clone()))
        }
        AtomOutcome::Failed(error) => {
            retry.server(error, Some(objects()));
            Some(server_refusal(error))
        }
        AtomOutcome::NotListed(error) => {
            retry.object(error, objects());
            Some(Refusal::new(Reason::ZoneNotReady, format!("the zone object cannot be written: {error}")))
        }
        AtomOutcome::Deferred | AtomOutcome::Uncommented => Some(not_tried()),
    }
}

fn not_tried() -> Refusal {
    Refusal::new(Reason::ProviderThrottled, "too much at once; it is written in the next round")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        index::{digest::Digest, record::content},
        plan::{
            Write,
            memory::{Present, plain_info},
        },
    };
    use signpost_apis::powerdns::{ClusterZone, ZoneStatus};
    use signpost_dns::{Fqdn, Rdata, RecordType, ZoneName};
    use signpost_engine::Identity;
    use signpost_planning::{DeletionGuard, GuardDecision, Permission};
    use signpost_provider_powerdns::{CommentChange, ServerError, ZoneContents};

    /// A pass over a zone that needed nothing, as it ends for an object with this status.
    fn quiet_pass(status: &ZoneStatus, memory: ZoneMemory, shared: bool) -> Report<PowerDnsSystem> {
        report(quiet(status, memory, shared), Timestamp::UNIX_EPOCH)
    }

    fn quiet(status: &ZoneStatus, memory: ZoneMemory, shared: bool) -> ApplyResult {
        let id = Arc::new(ObjectId::new::<ClusterZone>(None, "example.com"));
        let spec = serde_json::from_value(serde_json::json!({ "kind": "Native" })).unwrap();
        let identity = Identity::of_meta(id, &kube::core::ObjectMeta::default());
        let holder = ZoneObject::of(identity, &spec, Some(status));
        ApplyResult {
            key: ZoneKey::of("example.com"),
            memory,
            holder: Some(Arc::new(holder)),
            losers: vec![],
            zone: ZoneOutcome::Kept,
            atoms: vec![],
            decided: vec![],
            with_zone: vec![],
            step_done: false,
            guarded: None,
            again: None,
            pace: Arc::new(Pace::default()),
            extent: Extent { full: true, left: false, shared },
        }
    }

    /// The status that the zone object of a report is to have.
    fn status_of(report: &Report<PowerDnsSystem>) -> &ZoneStatus {
        let [Decision::Zone(decision)] = &*report.statuses else { panic!("{:?}", report.statuses) };
        &decision.status
    }

    #[test]
    fn a_zone_that_needs_nothing_keeps_its_status_whatever_somebody_made_of_it() {
        let first = quiet_pass(&ZoneStatus::default(), ZoneMemory::default(), false);
        let reported = status_of(&first);
        let strayed = ZoneStatus { sync_status: Some("Failed".into()), ..reported.clone() };
        let second = |seen: &ZoneStatus| {
            let mut pass = quiet(seen, first.memory.clone().unwrap(), false);
            Arc::make_mut(pass.holder.as_mut().unwrap()).wanted = Some(Arc::new(reported.clone()));
            report(pass, Timestamp::from_second(60).unwrap())
        };
        for seen in [reported, &strayed] {
            let second = second(seen);
            assert_eq!(status_of(&second), reported);
            assert!(second.writes.is_empty() && second.measured.refused.is_empty());
        }
    }

    #[test]
    fn a_pass_over_some_record_sets_does_not_call_a_zone_well_that_was_not_looked_at() {
        let one_write = |became| {
            let name = Fqdn::parse("www.example.com").unwrap();
            (Atom { name, deletes: vec![], write: None, waiting: vec![] }, became)
        };
        let key_refused = ServerError::Unauthorised { status: 403 };
        for (error, atoms, over) in [
            (key_refused.clone(), vec![], false),
            (key_refused.clone(), vec![one_write(AtomOutcome::Failed(key_refused.clone()))], false),
            (key_refused, vec![one_write(AtomOutcome::Done { serial: Some(8) })], true),
            (
                ServerError::Refused { words: "no".into() },
                vec![one_write(AtomOutcome::Done { serial: Some(8) })],
                false,
            ),
        ] {
            let failed = ApplyResult {
                zone: ZoneOutcome::Failed(error.clone()),
                ..quiet(&ZoneStatus::default(), ZoneMemory::default(), false)
            };
            let first = report(failed, Timestamp::UNIX_EPOCH);
            let reported = status_of(&first);
            let extent = Extent { full: false, left: false, shared: false };
            let partial = ApplyResult { atoms, extent, ..quiet(reported, first.memory.clone().unwrap(), false) };
            let later = Timestamp::from_second(60).unwrap();
            let second = report(partial, later);
            assert_eq!(status_of(&second) != reported, over, "{error}");
            assert!(second.measured.refused.is_empty(), "{error}");
            assert_eq!(second.refusals[0].1.is_empty(), over, "{error}");
        }
    }

    #[test]
    fn deletions_that_are_done_are_paused_when_they_are_planned_again() {
        let name = Fqdn::parse("www.example.com").unwrap();
        let failed = AtomOutcome::Failed(ServerError::Unauthorised { status: 403 });
        let check = |guard: &mut GuardMemory| {
            let planned = ["a", "b", "c", "d"];
            guard.check(DeletionGuard::ZONE, 10, planned, Permission::Guarded, Duration::ZERO, Timestamp::UNIX_EPOCH)
        };
        for (became, done) in [(AtomOutcome::Done { serial: Some(8) }, true), (failed, false)] {
            let mut memory = ZoneMemory::default();
            assert_ne!(check(&mut memory.guard), GuardDecision::Allowed);
            assert_eq!(check(&mut memory.guard), GuardDecision::Allowed, "the second pass plans the same");
            let deletes = vec![RecordKey::new(name.clone(), RecordType::A)];
            let atoms = vec![(Atom { name: name.clone(), deletes, write: None, waiting: vec![] }, became)];
            let pass = ApplyResult { atoms, ..quiet(&ZoneStatus::default(), memory, false) };
            let mut memory = report(pass, Timestamp::UNIX_EPOCH).memory.unwrap();
            assert_eq!(check(&mut memory.guard) != GuardDecision::Allowed, done);
        }
    }

    /// A set that was written before, and an edit of it that the server refuses: its key, both digests, and the memory after the refusal.
    fn after_a_refused_edit(
        prepare: impl Fn(&mut ZoneMemory, &RecordKey, Digest),
    ) -> (RecordKey, [Digest; 2], ZoneMemory) {
        let name = Fqdn::parse("www.example.com").unwrap();
        let key = RecordKey::new(name.clone(), RecordType::A);
        let set = |address: &str| content(300, &[Rdata::parse(&RecordType::A, address).unwrap()], None);
        let digest = |address: &str| Digest::of_content(RecordType::A, &set(address));
        let (before, refused) = (digest("192.0.2.1"), digest("192.0.2.2"));
        let mut memory = ZoneMemory::default();
        memory.ledger.list(key.clone(), before);
        memory.ledger.list(key.clone(), refused);
        prepare(&mut memory, &key, before);
        let write = Write {
            key: key.clone(),
            content: Arc::new(set("192.0.2.2")),
            digest: refused,
            comment: CommentChange::Keep,
            ledger: true,
            endpoint: false,
        };
        let atom = Atom { name, deletes: vec![], write: Some(write), waiting: vec![] };
        let became = AtomOutcome::Refused("no".to_owned());
        let now = Timestamp::UNIX_EPOCH;
        assert!(refusal_of(&atom, &became, &Pace::default(), now, &mut memory, &mut Retries::default()).is_some());
        (key, [before, refused], memory)
    }

    fn empty_zone() -> Present {
        let zone = ZoneName::parse("example.com").unwrap();
        Present::of(&ZoneContents { info: plain_info(zone), sets: vec![] })
    }

    #[test]
    fn a_refused_edit_leaves_what_was_written_before_it_in_the_ledger() {
        let (key, [served, refused], memory) = after_a_refused_edit(|memory, key, served| {
            let mut present = empty_zone();
            present.sets.insert(key.clone(), served);
            memory.present = Some(present);
        });
        assert!(memory.ledger.lists(&key, served) && !memory.ledger.lists(&key, refused));
    }

    #[test]
    fn a_content_that_never_arrived_leaves_the_ledger_with_the_next_refusal() {
        let (key, [absent, refused], memory) = after_a_refused_edit(|memory, _, _| memory.present = Some(empty_zone()));
        assert!(
            !memory.ledger.lists(&key, absent) && memory.ledger.lists(&key, refused),
            "the next try needs no write"
        );
        let (key, [late, refused], memory) = after_a_refused_edit(|memory, key, late| {
            memory.present = Some(empty_zone());
            memory.ledger.list_uncertain(key.clone(), late, Timestamp::UNIX_EPOCH);
        });
        assert!(memory.ledger.lists(&key, late) && !memory.ledger.lists(&key, refused), "it may still arrive");
    }
}
