//! The end of a pass: verdicts from what was applied, the zones' statuses, and when the zone is next. Pure.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use signpost_apis::powerdns::ZoneStatus;
use signpost_dns::ZoneName;
use signpost_engine::{Event, ObjectId, ObjectWrite, Outcome, Report, RetryClass, Touched, WriteError};
use signpost_planning::{Reason, Refusal};
use signpost_provider_powerdns::{ErrorClass, ServerError};

use crate::{
    apply::{Applied, ZoneOutcome},
    config::Pace,
    finish,
    memory::{Rejection, ZoneMemory},
    patch::AtomOutcome,
    plan::{Atom, Waiting},
    record::{Sync, ZoneKey, ZoneObject},
    report::{Found, Says, Verdict, zone_status},
    zone_plan::{behind, server_refusal},
};

/// Everything a pass says.
pub(crate) struct Said {
    pub(crate) key: ZoneKey,
    pub(crate) memory: ZoneMemory,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) report: ZoneReport,
    /// When the next full pass is, where the outcome is a retry of something else.
    pub(crate) again: Option<Duration>,
}

/// What is said about zone objects.
pub(crate) struct ZoneReport {
    pub(crate) statuses: Vec<(Arc<ObjectId>, ZoneStatus, ObjectWrite)>,
    /// Zones that are refused, when that is news.
    pub(crate) refused: Vec<(Arc<ObjectId>, Refusal)>,
    events: Vec<Event>,
    outcome: Outcome<Arc<ObjectId>>,
}

impl ZoneReport {
    fn refuse(&mut self, zone: &ZoneObject, refusal: &Refusal) {
        self.events.push(finish::warning(&zone.identity, refusal.reason.as_str(), &refusal.message));
        self.refused.push((zone.identity.id.clone(), refusal.clone()));
    }

    pub(crate) fn into_report(self) -> Report<Arc<ObjectId>> {
        let writes = self.statuses.into_iter().map(|(_, _, write)| write).collect();
        Report { writes, events: self.events, outcome: self.outcome }
    }
}

/// The shortest time until a pass that nothing but the clock asks for.
const SHORT: Duration = Duration::from_millis(100);

/// How soon a zone is read again that somebody else wrote to.
const READ_AGAIN: Duration = Duration::from_secs(1);

pub(crate) fn say(pace: &Pace, applied: Applied, now: Timestamp) -> Said {
    let Applied {
        key,
        mut memory,
        holder,
        losers,
        zone: outcome,
        atoms,
        decided,
        with_zone,
        deleted,
        guarded,
        again: asked,
        full,
        left,
        shared,
    } = applied;
    let mut verdicts = decided;
    let mut retry = Retries { fixed: asked, ..Retries::default() };
    let mut zone_says = zone_verdict(&outcome, &mut retry);
    for (record, verdict) in with_zone {
        verdicts.push(match zone_says.refusal() {
            Some(refusal) if !deleted => Verdict::carried(&record, Says::Failed(refusal.clone())),
            _ => verdict,
        });
    }
    if let (Some(holder), ZoneOutcome::Kept, false) = (&holder, &outcome, full) {
        let wrote = atoms.iter().any(|(_, became)| matches!(became, AtomOutcome::Done { .. }));
        let said = memory.said.as_ref().unwrap_or(&holder.status);
        if let Some(refusal) = still_refused(said, holder.identity.generation, wrote) {
            zone_says = Says::Failed(refusal);
        }
    }
    if let (Some((words, _)), Says::Succeeded) = (memory.closed.as_ref().filter(|(_, until)| *until > now), &zone_says)
    {
        zone_says = Says::Failed(Refusal::new(Reason::ProviderRejected, words.clone()));
    }
    let blocked = zone_failure(&outcome, memory.present.is_some());
    for (atom, became) in &atoms {
        if *became == AtomOutcome::Uncommented {
            if let Some(write) = &atom.write {
                memory.ledger.strike(&write.key, write.digest);
            }
            retry.now = true;
            continue;
        }
        if *became == AtomOutcome::Deferred {
            // Not tried: those that wait for the zone say so, the others say what they said until their round comes.
            let Some(refusal) = &blocked else {
                retry.deferred = true;
                continue;
            };
            for waiting in &atom.waiting {
                if let Waiting::Holds(record) | Waiting::Leaves(record) = waiting {
                    verdicts.push(Verdict::carried(record, Says::Failed(refusal.clone())));
                }
            }
            continue;
        }
        let says = atom_says(atom, became, pace, now, &mut memory, &mut retry);
        for waiting in &atom.waiting {
            match waiting {
                Waiting::Holds(record) => verdicts.push(match (&says, &atom.write, became, key.zone()) {
                    (None, Some(write), AtomOutcome::Done { serial }, Some(zone)) => {
                        Verdict::served(record, zone, &write.key, write.digest, *serial, now)
                            .with_comment_notice(record, &write.content)
                    }
                    _ => Verdict::carried(record, Says::Failed(says.clone().unwrap_or_else(not_tried))),
                }),
                Waiting::Leaves(record) => verdicts.push(match (&says, key.zone()) {
                    (None, Some(zone)) => Verdict::released(record, zone, Says::Succeeded),
                    _ => Verdict::carried(record, Says::Failed(says.clone().unwrap_or_else(not_tried))),
                }),
                Waiting::Clears(verdict) => verdicts.push(match says {
                    None => verdict.clone(),
                    // What it says is decided; that its old set is gone is only true when it is.
                    Some(_) => Verdict { found: Found::Nothing, release: false, ..verdict.clone() },
                }),
                Waiting::Zone => {
                    if let (Some(refusal), Says::Succeeded) = (&says, &zone_says) {
                        zone_says = Says::Failed(refusal.clone());
                    }
                }
            }
        }
    }
    let mut report =
        ZoneReport { statuses: Vec::new(), refused: Vec::new(), events: Vec::new(), outcome: Outcome::Done };
    if let (Some(holder), Some(zone)) = (&holder, key.zone()) {
        // The status that drops the mark reports the zone's identifier, which takes its place.
        memory.ledger.zone &= memory.present.is_none() || zone_says != Says::Succeeded;
        if outcome != ZoneOutcome::Released {
            // What was written for record sets makes them write their statuses, and then there is a pass for the zone.
            let awaited = |(atom, became): &(Atom, AtomOutcome)| {
                let for_record = |waiting: &Waiting| matches!(waiting, Waiting::Holds(_));
                matches!(became, AtomOutcome::Done { .. }) && atom.waiting.iter().any(for_record)
            };
            let more_comes = !full && atoms.iter().any(awaited);
            let saying = Saying { zone, says: &zone_says, shared, more_comes, now };
            say_zone(&mut report, holder, &saying, &mut memory);
        }
    } else if let (Some(holder), false) = (&holder, outcome == ZoneOutcome::Released) {
        let status = zone_status(holder, &zone_says, None, Vec::new(), now);
        push_status(&mut report, holder, &holder.status, status, &zone_says);
    }
    if let Some(holder) = &holder {
        for loser in losers.iter().filter(|loser| !loser.identity.deleting) {
            let message = format!("zone {key} is held by {}", holder.identity.id);
            let says = Says::Failed(Refusal::new(Reason::ClaimedByAnother, message));
            // It has no zone, so it has no identifier of one either.
            let status = ZoneStatus { id: None, serial: None, ..zone_status(loser, &says, None, Vec::new(), now) };
            push_status(&mut report, loser, &loser.status, status, &says);
        }
    }
    if let (Some(refusal), Some(holder)) = (&guarded, &holder) {
        report.refuse(holder, refusal);
        retry.fixed = Some(Duration::from_secs(5));
    }
    let watched = holder.is_some() && outcome != ZoneOutcome::Released;
    // Names that lost an object are looked at once; after a failure only a full pass finds them again.
    if left && !full {
        retry.widen();
    }
    // A pass over some record sets leaves the clock of the next full one alone.
    report.outcome = retry.outcome((watched && full).then_some(pace.resync));
    let mut again = (watched && matches!(report.outcome, Outcome::Retry { .. })).then_some(pace.resync);
    if watched && memory.present.is_some() && memory.read_at.is_none() {
        // Somebody else wrote to the zone beside us.
        again = Some(pace.resync.min(READ_AGAIN));
    }
    // Lines that are uncertain are looked at again as soon as they are not.
    if let Some(since) = memory.ledger.uncertain_since().filter(|_| watched) {
        let left = pace.grace.saturating_sub(now.duration_since(since).unsigned_abs());
        again = Some(again.unwrap_or(pace.resync).min(left.max(SHORT)));
    }
    Said { key, memory, verdicts, report, again }
}

/// What there is to say about a zone.
struct Saying<'a> {
    zone: &'a ZoneName,
    says: &'a Says,
    shared: bool,
    /// Whether another pass follows as soon as the record sets have their statuses.
    more_comes: bool,
    now: Timestamp,
}

fn say_zone(report: &mut ZoneReport, holder: &Arc<ZoneObject>, saying: &Saying<'_>, memory: &mut ZoneMemory) {
    let Saying { zone, says, shared, more_comes, now } = *saying;
    let mut base = (**holder).clone();
    if let Some(said) = &memory.said {
        base.status = Arc::new(said.clone());
    }
    // What somebody else made of it is put right. Where other processes say their part about the same object, that
    // would be a quarrel without end: there, only what is news is said.
    let seen = if shared { base.status.clone() } else { holder.status.clone() };
    let info = memory.present.as_ref().map(|present| &present.info).filter(|_| *says == Says::Succeeded);
    let mut status = zone_status(&base, says, info, ledger_lines(zone, &base.status, memory), now);
    // The serial that secondaries have seen is remembered until the server's is above it.
    if let Some(floor) = behind(holder, memory, now) {
        status.serial = Some(i64::from(floor));
    }
    // A serial alone is told with the end of the ledger, in one write.
    let serials = |of: &ZoneStatus| (of.serial, of.notified_serial, of.edited_serial);
    let (serial, notified_serial, edited_serial) = serials(&base.status);
    let only_serials = ZoneStatus { serial, notified_serial, edited_serial, ..status.clone() } == *base.status;
    if more_comes && only_serials && serials(&status) != serials(&base.status) {
        return;
    }
    memory.said = Some(status.clone());
    push_status(report, &base, &seen, status, says);
}

/// The lines of the ledger for a status. A ledger that only shrinks is not worth a write; one that is done with is.
fn ledger_lines(zone: &ZoneName, said: &ZoneStatus, memory: &ZoneMemory) -> Vec<String> {
    let lines = memory.ledger.lines(zone);
    let shrinks = || {
        let said: BTreeSet<&String> = said.in_flight.iter().collect();
        lines.iter().all(|line| said.contains(line))
    };
    if !lines.is_empty() && shrinks() { said.in_flight.clone() } else { lines }
}

/// Says a status unless it was said before and is seen; the writer leaves out what the API server has already.
fn push_status(report: &mut ZoneReport, zone: &ZoneObject, seen: &ZoneStatus, status: ZoneStatus, says: &Says) {
    if status == *zone.status && status == *seen {
        return;
    }
    let Ok(value) = serde_json::to_value(&status) else { return };
    if let Some(refusal) = says.refusal()
        && zone.status.conditions != status.conditions
    {
        report.refuse(zone, refusal);
    }
    let write = finish::object_status(&zone.identity, value);
    report.statuses.push((zone.identity.id.clone(), status, write));
}

/// What a zone that could not be made or changed means for its record sets.
fn zone_failure(outcome: &ZoneOutcome, present: bool) -> Option<Refusal> {
    match outcome {
        ZoneOutcome::Failed(error) if error.class() == ErrorClass::Refused && !present => {
            Some(Refusal::new(Reason::ZoneNotReady, format!("the zone cannot be made: {error}")))
        }
        ZoneOutcome::Failed(error) => Some(server_refusal(error)),
        ZoneOutcome::Kept | ZoneOutcome::Released | ZoneOutcome::Refused(_) | ZoneOutcome::NotWritten(_) => None,
    }
}

/// What was wrong with the zone and is not known to be over: a pass over some record sets does not look at the zone, and
/// all it can show is that the server takes writes again.
fn still_refused(said: &ZoneStatus, generation: i64, wrote: bool) -> Option<Refusal> {
    let failed = said.sync_status.as_deref() == Some(Sync::Failed.as_str());
    let ready = said.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let reason: Reason = ready.reason.parse().ok()?;
    let of_server =
        matches!(reason, Reason::ProviderUnreachable | Reason::ProviderThrottled | Reason::ProviderUnauthorized);
    let current = said.observed_generation == Some(generation);
    (failed && current && !(wrote && of_server)).then(|| Refusal::new(reason, ready.message.clone()))
}

fn zone_verdict(outcome: &ZoneOutcome, retry: &mut Retries) -> Says {
    match outcome {
        ZoneOutcome::Kept | ZoneOutcome::Released => Says::Succeeded,
        ZoneOutcome::Refused(refusal) => {
            if refusal.reason == Reason::ForeignRecord {
                retry.slow = Touched::All;
            }
            Says::Failed(refusal.clone())
        }
        ZoneOutcome::Failed(error) => {
            retry.server(error, None);
            Says::Failed(server_refusal(error))
        }
        ZoneOutcome::NotWritten(error) => {
            match error {
                WriteError::Conflict | WriteError::Gone => retry.now = true,
                other => retry.object(other, Touched::All),
            }
            Says::Pending(Refusal::new(Reason::ZoneNotReady, format!("the object cannot be written: {error}")))
        }
    }
}

/// Why the atom is not done; `None` when it is.
fn atom_says(
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
            Waiting::Clears(verdict) => Some(verdict.id.clone()),
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
                memory.rejected.insert(write.key.clone(), rejection);
                // It was listed before it was tried, and it is not there.
                memory.ledger.strike(&write.key, write.digest);
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

/// What has to be tried again, and how soon.
struct Retries {
    now: bool,
    deferred: bool,
    transient: Touched<Arc<ObjectId>>,
    throttled: bool,
    /// The longest pause that was asked for.
    pause: Option<Duration>,
    slow: Touched<Arc<ObjectId>>,
    fixed: Option<Duration>,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            now: false,
            deferred: false,
            transient: Touched::none(),
            throttled: false,
            pause: None,
            slow: Touched::none(),
            fixed: None,
        }
    }
}

impl Retries {
    fn server(&mut self, error: &ServerError, objects: Option<Touched<Arc<ObjectId>>>) {
        match error.class() {
            ErrorClass::Transient | ErrorClass::Unauthorised | ErrorClass::Stale => {
                self.transient.merge(objects.unwrap_or(Touched::All));
            }
            ErrorClass::Throttled(after) => {
                self.throttled = true;
                self.pause = after.max(self.pause);
                self.transient.merge(objects.unwrap_or(Touched::All));
            }
            ErrorClass::Refused => self.slow.merge(objects.unwrap_or(Touched::All)),
            ErrorClass::Missing => self.now = true,
        }
    }

    /// A write to the API server failed.
    fn object(&mut self, error: &WriteError, objects: Touched<Arc<ObjectId>>) {
        if let WriteError::Throttled(after) = error {
            self.throttled = true;
            self.pause = (*after).max(self.pause);
        }
        self.transient.merge(objects);
    }

    fn widen(&mut self) {
        if !self.transient.is_empty() {
            self.transient = Touched::All;
        }
    }

    fn outcome(mut self, resync: Option<Duration>) -> Outcome<Arc<ObjectId>> {
        let retry = |class, objects| Outcome::Retry { class, objects };
        if self.deferred {
            // What was not tried at all waits for no longer than what failed.
            self.widen();
        }
        if self.now {
            return retry(RetryClass::Now, Touched::All);
        }
        if self.throttled {
            return retry(RetryClass::Throttled { after: self.pause }, self.transient);
        }
        if !self.transient.is_empty() {
            return retry(RetryClass::Transient, self.transient);
        }
        if self.deferred {
            return retry(RetryClass::Fixed(Duration::from_millis(200)), Touched::All);
        }
        if let Some(after) = self.fixed {
            return retry(RetryClass::Fixed(after), Touched::All);
        }
        if !self.slow.is_empty() {
            return retry(RetryClass::Slow, self.slow);
        }
        resync.map_or(Outcome::Done, |after| Outcome::Check { after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{digest::Digest, plan::Write, record::content};
    use signpost_dns::{Fqdn, Rdata, RecordKey, RecordType};
    use signpost_provider_powerdns::CommentChange;

    /// A pass over a zone that needed nothing, as it ends for an object with this status.
    fn quiet_pass(status: &ZoneStatus, memory: ZoneMemory, shared: bool) -> Said {
        say(&Pace::default(), quiet(status, memory, shared), Timestamp::UNIX_EPOCH)
    }

    fn quiet(status: &ZoneStatus, memory: ZoneMemory, shared: bool) -> Applied {
        let id = Arc::new(ObjectId::new("ClusterZone", None, "example.com"));
        let spec = serde_json::from_value(serde_json::json!({ "kind": "Native" })).unwrap();
        let holder = ZoneObject::of(id, &kube::core::ObjectMeta::default(), &spec, Some(status));
        Applied {
            key: ZoneKey::of("example.com"),
            memory,
            holder: Some(Arc::new(holder)),
            losers: vec![],
            zone: ZoneOutcome::Kept,
            atoms: vec![],
            decided: vec![],
            with_zone: vec![],
            deleted: false,
            guarded: None,
            again: None,
            full: true,
            left: false,
            shared,
        }
    }

    #[test]
    fn a_zone_status_that_strayed_is_said_again_unless_others_say_their_part_about_it_too() {
        let first = quiet_pass(&ZoneStatus::default(), ZoneMemory::default(), false);
        let [(_, said, _)] = &*first.report.statuses else { panic!("one status") };
        let strayed = ZoneStatus { sync_status: Some("Failed".into()), ..said.clone() };
        let again = |seen: &ZoneStatus, shared| {
            let statuses = quiet_pass(seen, first.memory.clone(), shared).report.statuses;
            statuses.into_iter().map(|(_, status, _)| status).collect::<Vec<_>>()
        };
        assert_eq!(again(said, false), []);
        assert_eq!(again(&strayed, false), std::slice::from_ref(said));
        assert_eq!(again(&strayed, true), []);
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
            let failed = Applied {
                zone: ZoneOutcome::Failed(error.clone()),
                ..quiet(&ZoneStatus::default(), ZoneMemory::default(), false)
            };
            let first = say(&Pace::default(), failed, Timestamp::UNIX_EPOCH);
            let [(_, said, _)] = &*first.report.statuses else { panic!("one status") };
            let partial = Applied { full: false, atoms, ..quiet(said, first.memory.clone(), false) };
            let later = Timestamp::from_second(60).unwrap();
            let second = say(&Pace::default(), partial, later);
            assert_eq!(!second.report.statuses.is_empty(), over, "{error}");
            assert!(second.report.events.is_empty(), "{error}");
        }
    }

    #[test]
    fn a_refused_edit_leaves_what_was_written_before_it_in_the_ledger() {
        let name = Fqdn::parse("www.example.com").unwrap();
        let key = RecordKey::new(name.clone(), RecordType::A);
        let set = |address: &str| content(300, &[Rdata::parse(&RecordType::A, address).unwrap()], None);
        let digest = |address: &str| Digest::of_content(RecordType::A, &set(address));
        let (served, refused) = (digest("192.0.2.1"), digest("192.0.2.2"));
        let mut memory = ZoneMemory::default();
        memory.ledger.list(key.clone(), served);
        memory.ledger.list(key.clone(), refused);
        let write = Write {
            key: key.clone(),
            content: Arc::new(set("192.0.2.2")),
            digest: refused,
            comment: CommentChange::Keep,
            ledger: true,
        };
        let atom = Atom { name, deletes: vec![], write: Some(write), waiting: vec![] };
        let became = AtomOutcome::Refused("no".to_owned());
        let now = Timestamp::UNIX_EPOCH;
        assert!(atom_says(&atom, &became, &Pace::default(), now, &mut memory, &mut Retries::default()).is_some());
        assert!(memory.ledger.lists(&key, served) && !memory.ledger.lists(&key, refused));
    }
    #[test]
    fn what_was_not_tried_is_tried_again_with_what_failed() {
        let one = Touched::Some([Arc::new(ObjectId::new("RRset", Some("ns"), "www"))].into());
        let retries = || Retries { deferred: true, ..Retries::default() };
        let objects = |retries: Retries| match retries.outcome(Some(Duration::from_mins(1))) {
            Outcome::Retry { objects, .. } => objects,
            other => panic!("{other:?}"),
        };
        assert_eq!(objects(retries()), Touched::All);
        assert_eq!(objects(Retries { transient: one.clone(), ..retries() }), Touched::All);
        assert_eq!(objects(Retries { transient: one.clone(), throttled: true, ..retries() }), Touched::All);
        assert_eq!(objects(Retries { transient: one.clone(), ..Retries::default() }), one);
    }
}
