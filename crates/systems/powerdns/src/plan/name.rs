//! The plan for one name of a zone: the owner of each set, the writes and the deletions. Pure.
//!
//! ```text
//!  objects at the name ─► claims (oldest first) ─► what may exist side by side ─► writes, switches of type, deletions
//!  status.applied, ledger ─► what was written here and is wanted no longer ────┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};
use signpost_planning::{Candidates, Claim, Reason, Refusal, admit, excludes};
use signpost_provider_powerdns::{COMMENT_ACCOUNT, Comment, CommentChange, SetContent};

use super::{Atom, Plan, Waiting, Write, memory::Present, not_served, registry::Entry, unexplained, zone};
use crate::{
    index::{
        digest::Digest,
        record::{AppliedRecord, Record, ZoneObject},
    },
    report::status::{Found, Readiness, RecordStatus},
};

/// The input that all names of a zone share.
pub(crate) struct Scope<'a> {
    pub(crate) zone: &'a ZoneName,
    pub(crate) holder: Option<&'a Arc<ZoneObject>>,
    /// Why nothing is written in this zone, although what is known to be ours may go.
    pub(crate) barred: Option<&'a Readiness>,
    /// Whether objects that are not seen may own something here.
    pub(crate) shared: bool,
    pub(crate) now: Timestamp,
}

impl Scope<'_> {
    /// Whether the zone object itself asks for this record set.
    fn is_of_zone(&self, key: &RecordKey) -> bool {
        self.holder.is_some_and(|holder| zone::holds(self.zone, holder, key))
    }

    fn stays_behind(&self, record: &Record) -> bool {
        record.stays_behind(self.holder.map(|holder| &**holder))
    }

    /// Whether the object refers to the holder. The ledger is of one zone object: nothing was written through it for an object that refers to
    /// another one.
    fn is_of_holder(&self, record: &Record) -> bool {
        self.holder.is_some_and(|holder| record.is_of(&holder.identity.id))
    }

    /// Whether the records of the zone come from elsewhere, so that only what is there exactly as written is ours.
    fn is_secondary(&self) -> bool {
        self.holder.is_some_and(|holder| holder.spec.kind.is_secondary())
    }

    fn serves(&self, record: &Record) -> bool {
        self.is_of_holder(record) && self.holder.is_some_and(|holder| !holder.identity.is_deleting())
    }
}

/// Adds atoms and statuses for everything at one name; returns what only the ledger knows of.
pub(crate) fn plan_name(plan: &mut Plan, scope: &Scope<'_>, name: &Fqdn, records: &[Arc<Record>]) -> Vec<RecordKey> {
    if scope.barred.is_none()
        && let Some(status) = at_rest(plan, scope, name, records)
    {
        plan.decided.push(status);
        return Vec::new();
    }
    let mut place = Place::of(plan, scope, name, records);
    place.find_unwanted();
    let mut orphans = place.take_listed(plan);
    let edited = place.take_edited(plan, &orphans);
    place.admit(plan, &mut orphans);
    let start = plan.atoms.len();
    let heirs = place.write(plan, &mut orphans);
    place.depart(plan, start, &heirs);
    edited.wait(plan, scope.zone, start, &mut orphans);
    orphans
}

/// Everything at one name, sorted.
struct Place<'a> {
    scope: &'a Scope<'a>,
    name: &'a Fqdn,
    records: &'a [Arc<Record>],
    /// The server's sets at this name.
    there: BTreeMap<RecordKey, Digest>,
    wants: BTreeMap<RecordKey, Arc<Record>>,
    losers: Vec<(Arc<Record>, Readiness)>,
    leaving: Vec<Arc<Record>>,
    /// Sets that objects wrote here and no longer want.
    unwanted: BTreeSet<RecordKey>,
    /// A listed set that stays, because it may be the old type of an object that cannot be written now: the first such object
    /// reports it from now on.
    kept: Option<(Arc<str>, RecordKey)>,
    /// The sets on the server that the ledger lists.
    listed: BTreeSet<RecordKey>,
    /// By the set of an endpoint: what of external-dns is deleted with its write, so that external-dns gives the name up.
    taken_over: BTreeMap<RecordKey, BTreeSet<RecordKey>>,
}

/// The result for the sets that are wanted here.
#[derive(Default)]
struct Heirs {
    /// Sets that the server has as their holders want them.
    in_place: BTreeSet<RecordKey>,
    /// Sets that are written now, and the atom that does it.
    written: BTreeMap<RecordKey, usize>,
    /// Sets that the server refuses, and that are tried again.
    refused: BTreeSet<RecordKey>,
}

impl Heirs {
    /// Whether the line of a refused set saves a write: the set is tried again, unless another one is served at the name.
    fn keep_refused(&self, key: &RecordKey) -> bool {
        self.refused.contains(key) || self.in_place.is_empty()
    }
}

/// Objects that are being deleted, and listed sets that they may have written before they were edited.
#[derive(Default)]
struct Edited {
    records: Vec<Arc<Record>>,
    sets: Vec<RecordKey>,
}

impl Edited {
    /// The objects wait until the sets are deleted. Their deletion was seen, so the guard does not pause it.
    fn wait(self, plan: &mut Plan, zone: &ZoneName, start: usize, orphans: &mut Vec<RecordKey>) {
        let Self { records, sets } = self;
        let Some(name) = sets.first().map(|key| key.name.clone()) else { return };
        let leaves = |record: &Arc<Record>| Waiting::Leaves(record.clone());
        let (own, others): (Vec<_>, Vec<_>) = std::mem::take(orphans).into_iter().partition(|key| sets.contains(key));
        *orphans = others;
        let replaces = |atom: &Atom| atom.deletes.iter().any(|key| sets.contains(key));
        if !own.is_empty() {
            let waiting = records.iter().map(leaves).collect();
            plan.atoms.insert(start, Atom { name, deletes: own, write: None, waiting });
        } else if let Some(atom) = plan.atoms[start..].iter_mut().find(|atom| replaces(atom)) {
            // A set that is written now needs their place.
            atom.waiting.extend(records.iter().map(leaves));
        } else {
            // They stay, because they may be of another object that was edited too.
            let released = |record: &Arc<Record>| RecordStatus::released(record, zone, Readiness::Succeeded);
            plan.decided.extend(records.iter().map(released));
        }
    }
}

impl<'a> Place<'a> {
    /// The claims.
    fn of(plan: &Plan, scope: &'a Scope<'a>, name: &'a Fqdn, records: &'a [Arc<Record>]) -> Self {
        let present = plan.memory.present.as_ref();
        let there = present.map(|present| present.at(name).map(|(key, digest)| (key.clone(), digest)).collect());
        let mut place = Self {
            scope,
            name,
            records,
            there: there.unwrap_or_default(),
            wants: BTreeMap::new(),
            losers: Vec::new(),
            leaving: Vec::new(),
            unwanted: BTreeSet::new(),
            listed: plan.memory.ledger.at(name).into_iter().filter(|key| plan.memory.is_ours_by_ledger(key)).collect(),
            kept: None,
            taken_over: BTreeMap::new(),
        };
        let mut queue: Vec<&Arc<Record>> = records.iter().collect();
        // Of two that were made in the same second, the one that is served stays.
        queue.sort_by(|one, other| {
            let served = |record: &Record| record.applied().is_some();
            one.identity.claim().cmp_served(&served(one), &other.identity.claim(), &served(other))
        });
        for record in queue {
            place.sort(plan, record);
        }
        place
    }

    fn sort(&mut self, plan: &Plan, record: &Arc<Record>) {
        if record.identity.is_deleting() {
            self.leaving.push(record.clone());
            return;
        }
        let loses = |readiness| (record.clone(), readiness);
        if let Some(readiness) = not_served(plan, record).or_else(|| self.scope.barred.cloned()) {
            self.losers.push(loses(readiness));
            return;
        }
        let Some(key) = record.key() else {
            self.losers.push(loses(Readiness::Failed(record.refusal().cloned().unwrap_or_else(unexplained))));
            return;
        };
        if let Some(refusal) = owned_by_external_dns(plan, record, &key) {
            self.losers.push(loses(Readiness::Failed(refusal)));
            return;
        }
        let of_zone = self.scope.holder.filter(|_| self.scope.is_of_zone(&key)).map(|holder| &holder.identity.id);
        let first = of_zone.or_else(|| self.wants.get(&key).map(|first| first.reported_on()));
        match first {
            // Several objects may ask for the same records, for example one for each external-dns.
            Some(_) if record.endpoint.is_some() && self.wants.get(&key).is_some_and(|first| agree(first, record)) => {
                self.losers.push(loses(Readiness::Succeeded));
            }
            Some(first) => self.losers.push(loses(Readiness::Failed(claimed(&key, &first.to_string())))),
            None => {
                self.wants.insert(key, record.clone());
            }
        }
    }

    /// The set that the object wrote at this name.
    fn wrote(&self, record: &Record) -> Option<RecordKey> {
        let here = |applied: &&Arc<AppliedRecord>| applied.zone == *self.scope.zone && applied.key.name == *self.name;
        if let Some(applied) = record.applied().filter(here) {
            let ours = !self.scope.is_secondary() || self.there.get(&applied.key) == Some(&applied.digest);
            return ours.then(|| applied.key.clone());
        }
        // Only what is there exactly as the object wants it is taken for PowerDNS-Operator's.
        let inherited = record.inherited().filter(|_| self.scope.serves(record));
        let inherited = inherited.filter(|(key, digest)| self.there.get(key) == Some(digest)).map(|(key, _)| key);
        inherited.or_else(|| self.listed_for(record))
    }

    /// The set of an object that is being deleted, where the ledger alone lists it: the object was deleted before its status was written.
    fn listed_for(&self, record: &Record) -> Option<RecordKey> {
        let of_holder = self.scope.is_of_holder(record);
        let alone = record.identity.is_deleting() && record.endpoint.is_none() && of_holder && !self.scope.shared;
        let asks =
            |other: &Arc<Record>, key: &RecordKey| !other.identity.is_deleting() && other.key().as_ref() == Some(key);
        let key = record.key().filter(|key| alone && self.listed.contains(key))?;
        (!self.records.iter().any(|other| asks(other, &key))).then_some(key)
    }

    fn kept(&self, record: &Record) -> bool {
        !record.identity.is_deleting() && self.wrote(record).is_some_and(|old| Some(&old) == record.key().as_ref())
    }

    /// Sets that objects wrote here and no longer want: the object is being deleted, or its type was changed.
    fn find_unwanted(&mut self) {
        let mut unwanted: BTreeSet<RecordKey> = BTreeSet::new();
        let leaving = self.leaving.iter().filter(|record| !self.scope.stays_behind(record));
        unwanted.extend(leaving.filter_map(|record| self.wrote(record)));
        for (key, record) in &self.wants {
            unwanted.extend(self.wrote(record).filter(|old| old != key));
        }
        for (record, readiness) in &self.losers {
            let moved_on =
                matches!(readiness, Readiness::Failed(refusal) if refusal.reason == Reason::ClaimedByAnother);
            unwanted.extend(self.wrote(record).filter(|old| moved_on && Some(old) != record.key().as_ref()));
        }
        unwanted.retain(|key| self.may_go(key) && !self.wants.contains_key(key));
        self.unwanted = unwanted;
    }

    /// Whether there is something that may be taken off at all.
    fn may_go(&self, key: &RecordKey) -> bool {
        key.rtype != RecordType::Soa && !self.scope.is_of_zone(key) && self.there.contains_key(key)
    }

    /// Sets that only the ledger lists: written for an object that was deleted, or for an object that was given another type
    /// before its status could report what it wrote. Returns what is there; the rest is forgotten.
    fn take_listed(&self, plan: &mut Plan) -> Vec<RecordKey> {
        // The ledger is of one zone object: nothing was written through it for an object that refers to another one.
        let of_holder = |record: &Record| self.scope.holder.is_none_or(|holder| record.is_of(&holder.identity.id));
        let claims = |record: &Arc<Record>, key: &RecordKey| {
            let asks = of_holder(record) && record.key().as_ref() == Some(key);
            let named = asks || self.wrote(record).as_ref() == Some(key);
            if record.identity.is_deleting() {
                named && self.scope.stays_behind(record)
            } else {
                // An object that cannot be understood keeps what it wrote.
                named || (of_holder(record) && record.desired.is_err())
            }
        };
        let mut listed = plan.memory.ledger.at(self.name);
        // Where objects are seen, an unseen one may exist beside them. A name that lost its last object was theirs alone.
        let unseen = self.scope.shared && !self.records.is_empty();
        listed.retain(|key| {
            !unseen && !self.unwanted.contains(key) && !self.records.iter().any(|record| claims(record, key))
        });
        let ours = |key: &RecordKey| plan.memory.is_ours_by_ledger(key) && !self.scope.is_of_zone(key);
        let (orphans, forget): (Vec<RecordKey>, Vec<RecordKey>) = listed.into_iter().partition(ours);
        plan.forget.extend(forget);
        orphans
    }

    /// Takes the objects out that may have written one of these listed sets: the ledger does not list for which object a set was written. A set
    /// of an endpoint is deleted by the rules of its DNSEndpoint.
    fn take_edited(&mut self, plan: &Plan, orphans: &[RecordKey]) -> Edited {
        let of_object = |key: &&RecordKey| !plan.memory.ledger.has_endpoint(key);
        let sets: Vec<RecordKey> = orphans.iter().filter(of_object).cloned().collect();
        if sets.is_empty() {
            return Edited::default();
        }
        let may_be_of = |record: &Arc<Record>| {
            let own = record.endpoint.is_none() && self.scope.is_of_holder(record) && self.wrote(record).is_none();
            own && record.was_edited() && !self.scope.stays_behind(record)
        };
        let (records, leaving): (Vec<_>, Vec<_>) = self.leaving.iter().cloned().partition(may_be_of);
        self.leaving = leaving;
        if records.is_empty() { Edited::default() } else { Edited { records, sets } }
    }

    /// Admits the sets that may exist side by side: sets on the server first, then former ones, then new ones. Sets that the
    /// server refuses come last: they keep nothing else from their name.
    fn admit(&mut self, plan: &Plan, orphans: &mut Vec<RecordKey>) {
        let mut candidates: Candidates<String> = BTreeMap::new();
        for (key, record) in &self.wants {
            let since = match (self.there.contains_key(key), self.kept(record)) {
                (true, _) => Timestamp::MIN,
                (false, _) if orphans.is_empty() && self.has_nothing(plan, key, record) => Timestamp::MAX,
                (false, true) => Timestamp::UNIX_EPOCH,
                (false, false) => record.identity.created,
            };
            let claim = Claim::new(record.identity.id.to_string(), since, record.identity.uid.clone());
            candidates.insert(key.clone(), claim);
        }
        self.find_taken_over(plan);
        let taken_over: BTreeSet<&RecordKey> = self.taken_over.values().flatten().collect();
        let stays =
            |key: &&RecordKey| !self.unwanted.contains(*key) && !orphans.contains(*key) && !taken_over.contains(key);
        let foreign: BTreeSet<RecordKey> = self.there.keys().filter(stays).cloned().collect();
        let admission = admit(self.scope.zone, &candidates, &foreign);
        // An orphan may be the old type of an object that was edited; it stays while the new one cannot be written. It gives way to a set that is
        // written now and cannot be beside it.
        let refused = |key: &RecordKey, record: &Record| {
            admission.refused.iter().any(|refused| refused.key == *key) || self.rejected(plan, key, record).is_some()
        };
        let waits = |record: &&Arc<Record>| self.scope.barred.is_some() && !record.identity.is_deleting();
        let barred = self.records.iter().filter(waits);
        let (refused, written): (Vec<_>, Vec<_>) = self.wants.iter().partition(|(key, record)| refused(key, record));
        let mut waiting = refused.into_iter().map(|(_, record)| record).chain(barred);
        let apex = self.name == self.scope.zone.name();
        let written: Vec<RecordType> = written.into_iter().map(|(key, _)| key.rtype).collect();
        let gives_way = |old: &RecordKey| written.iter().any(|rtype| excludes(*rtype, old.rtype, apex));
        if let Some(record) = waiting.find(|record| record.may_have_more()) {
            let (deleted, kept): (Vec<_>, Vec<_>) = std::mem::take(orphans).into_iter().partition(gives_way);
            self.kept = kept.into_iter().next().map(|old| (record.identity.uid.clone(), old));
            *orphans = deleted;
        }
        for refused in admission.refused {
            if let Some(record) = self.wants.remove(&refused.key) {
                // The switch cannot be made, so the old set stays, unless it is in the way of a set that is written now.
                let old = self.wrote(&record).filter(|old| self.unwanted.remove(old));
                orphans.extend(old.filter(gives_way));
                self.losers.push((record, Readiness::Failed(refused.refusal)));
                self.leave_alone(refused.key);
            }
        }
    }

    /// What each endpoint takes over from external-dns: the TXT record of its own set, and the sets that cannot be beside it with theirs.
    fn find_taken_over(&mut self, plan: &Plan) {
        let takes_over = plan.pace.endpoints.as_ref().is_some_and(|source| source.take_over);
        let Some(present) = plan.memory.present.as_ref().filter(|_| takes_over) else { return };
        let registered: BTreeSet<RecordKey> = present.registry.at(self.name).map(|(key, _)| key.clone()).collect();
        let apex = self.name == self.scope.zone.name();
        let wrote = |key: &RecordKey| self.records.iter().any(|record| self.wrote(record).as_ref() == Some(key));
        let (mut found, mut taken_over) = (BTreeSet::new(), BTreeMap::new());
        for (key, _) in self.wants.iter().filter(|(_, record)| record.endpoint.is_some()) {
            let gives_way =
                |other: &RecordKey| excludes(key.rtype, other.rtype, apex) && !self.wants.contains_key(other);
            let about = registered.iter().filter(|other| *other == key || gives_way(other)).cloned().collect();
            let entries = present.registry.entries_alone(&about);
            let sets = about.into_iter().filter(|other| other != key && self.may_go(other) && !wrote(other));
            let taken = sets.chain(entries).filter(|other| !self.wants.contains_key(other));
            // Each is deleted once, with the first endpoint that needs it.
            let taken: BTreeSet<RecordKey> = taken.filter(|other| found.insert(other.clone())).collect();
            taken_over.insert(key.clone(), taken);
        }
        self.taken_over = taken_over;
    }

    /// What was written for an object that cannot be written now, and that its status does not report yet: it would be unknown whose that is
    /// once the ledger is deleted with the zone object. Where some objects are not seen, it may be theirs.
    fn unsaid(&self, plan: &Plan, record: &Record) -> Found {
        let of_holder = self.scope.is_of_holder(record);
        if !of_holder || self.scope.shared || record.endpoint.is_some() || self.wrote(record).is_some() {
            return Found::Nothing;
        }
        let kept = self.kept.iter().filter(|(uid, _)| *uid == record.identity.uid).map(|(_, old)| old);
        plan.memory.find_listed(self.scope.zone, record.key().iter().chain(kept))
    }

    /// Whether the server refuses what the object wants and has nothing else of the object at this name.
    fn has_nothing(&self, plan: &Plan, key: &RecordKey, record: &Record) -> bool {
        let there = || self.wrote(record).is_some_and(|old| self.there.contains_key(&old));
        self.rejected(plan, key, record).is_some() && !there()
    }

    /// No object takes the set over: it is deleted with the object that wrote it.
    fn leave_alone(&mut self, key: RecordKey) {
        let goes = |record: &&Arc<Record>| !self.scope.stays_behind(record);
        let of_leaving = self.leaving.iter().filter(goes).any(|leaves| self.wrote(leaves).as_ref() == Some(&key));
        if of_leaving && self.may_go(&key) {
            self.unwanted.insert(key);
        }
    }

    fn rejected(&self, plan: &Plan, key: &RecordKey, record: &Record) -> Option<Refusal> {
        let rejection = plan.memory.rejected.get(key)?;
        let (_, digest) = record.wanted(plan.memory.no_comments)?;
        let same = digest == rejection.digest && rejection.until > self.scope.now;
        same.then(|| Refusal::new(Reason::ProviderRejected, rejection.words.clone()))
    }

    /// Whether another object wrote the set and gives it up now.
    fn is_inherited(&self, key: &RecordKey) -> bool {
        let leaving = self.leaving.iter().filter(|record| !self.scope.stays_behind(record));
        let losers = self.losers.iter().map(|(record, _)| record);
        leaving.chain(losers).any(|other| self.wrote(other).as_ref() == Some(key))
    }

    /// Whether the object's status reports that it wrote the set, so that the object is not deleted without it.
    fn reports(&self, record: &Record, key: &RecordKey) -> bool {
        let is_this = |applied: &Arc<AppliedRecord>| applied.key == *key && applied.zone == *self.scope.zone;
        record.has_finalizer() && record.seen.applied.as_ref().is_some_and(is_this)
    }

    /// The sets to write.
    fn write(&mut self, plan: &mut Plan, orphans: &mut Vec<RecordKey>) -> Heirs {
        let mut heirs = Heirs::default();
        for (key, record) in std::mem::take(&mut self.wants) {
            let Some((content, digest)) = record.wanted(plan.memory.no_comments) else { continue };
            let old = self.wrote(&record).filter(|old| *old != key && self.unwanted.contains(old));
            let endpoint = record.endpoint.is_some();
            let ledger = &plan.memory.ledger;
            let unlisted = endpoint && !ledger.lists_endpoint(&key, digest);
            // A line that replaces another one needs no room: the old line is taken off, and there is room for what is in flight.
            let deleted = |line: &RecordKey| self.unwanted.contains(line) || orphans.contains(line);
            let replaces = |line: &RecordKey| ledger.has_endpoint(line) && (*line == key || deleted(line));
            let is_new = unlisted && !ledger.at(&key.name).iter().any(replaces);
            if is_new && !plan.take_room() {
                plan.decided.push(RecordStatus::carried(&record, Readiness::Failed(no_room(&key))));
                // It may be the old type of the same object.
                orphans.clear();
                continue;
            }
            let taken_over = self.taken_over.remove(&key).unwrap_or_default();
            if self.there.get(&key) == Some(&digest) && old.is_none() && taken_over.is_empty() {
                plan.memory.rejected.remove(&key);
                if endpoint {
                    // No status of an object prunes what else was listed for it.
                    plan.memory.ledger.list_endpoint(key.clone(), digest);
                    plan.memory.ledger.confirm(&key, digest);
                }
                if !endpoint && self.is_inherited(&key) && !self.reports(&record, &key) {
                    plan.inherited.push((key.clone(), digest));
                }
                let status = RecordStatus::settled(&record, self.scope.zone, &key, digest, self.scope.now);
                plan.decided.push(status.with_comment_notice(&record, content));
                heirs.in_place.insert(key);
                continue;
            }
            if let Some(refusal) = self.rejected(plan, &key, &record) {
                let found = self.unsaid(plan, &record);
                plan.decided.push(RecordStatus { found, ..RecordStatus::carried(&record, Readiness::Failed(refusal)) });
                self.unwanted.retain(|key| Some(key) != old.as_ref());
                self.leave_alone(key.clone());
                heirs.refused.insert(key);
                continue;
            }
            if let Some(old) = &old {
                self.unwanted.remove(old);
            }
            // Only what the object's status reports survives a crash; for the rest there is the ledger.
            let reported = self.reports(&record, &key);
            let ledger = if endpoint { unlisted } else { !(reported || plan.memory.ledger.lists(&key, digest)) };
            let write = Write {
                content: content.clone(),
                digest,
                comment: comment_change(plan.memory.present.as_ref(), &key, content),
                ledger,
                endpoint,
                key: key.clone(),
            };
            heirs.written.insert(key, plan.atoms.len());
            plan.atoms.push(Atom {
                name: self.name.clone(),
                // It may need their place.
                deletes: old.into_iter().chain(std::mem::take(orphans)).chain(taken_over).collect(),
                write: Some(write),
                waiting: vec![Waiting::Holds(record)],
            });
        }
        heirs
    }

    /// The sets to delete, and the objects that wait for the deletion or for a new owner.
    fn depart(self, plan: &mut Plan, start: usize, heirs: &Heirs) {
        let zone = self.scope.zone;
        let mut going: BTreeMap<RecordKey, Vec<Waiting>> =
            self.unwanted.iter().map(|key| (key.clone(), Vec::new())).collect();
        for record in &self.leaving {
            let stays = self.scope.stays_behind(record);
            let old = self.wrote(record).filter(|_| !stays);
            if stays {
                plan.unlist.extend(self.wrote(record).into_iter().chain(record.key()));
            }
            let taken = old.as_ref().and_then(|old| heirs.written.get(old));
            if let Some(waiting) = old.as_ref().and_then(|old| going.get_mut(old)) {
                waiting.push(Waiting::Leaves(record.clone()));
            } else if let Some(atom) = taken.and_then(|at| plan.atoms.get_mut(*at)) {
                atom.waiting.push(Waiting::Leaves(record.clone()));
            } else {
                plan.decided.push(RecordStatus::released(record, zone, Readiness::Succeeded));
            }
        }
        let mut asked: BTreeSet<RecordKey> = BTreeSet::new();
        for (record, readiness) in &self.losers {
            plan.forget.extend(self.idle_line(plan, record, heirs));
            // Of several that ask for the same, the first one owns it.
            let first = record.key().is_none_or(|key| asked.insert(key));
            let old = self.wrote(record);
            let mut status = RecordStatus::carried(record, readiness.clone());
            let claimed = |refusal: &Refusal| refusal.reason == Reason::ClaimedByAnother;
            if first && !readiness.refusal().is_some_and(claimed) {
                status.found = self.unsaid(plan, record);
            }
            let lost = || RecordStatus::absent(record, zone, readiness.clone());
            let Some(old) = old else {
                plan.decided.push(status);
                continue;
            };
            let of_zone = |atom: &Atom| atom.write.as_ref().is_some_and(|write| write.key == old);
            let by_zone = self.scope.is_of_zone(&old).then(|| plan.atoms.iter().position(of_zone));
            let needed = plan.atoms[start..].iter().position(|atom| atom.deletes.contains(&old)).map(|at| start + at);
            if let Some(waiting) = going.get_mut(&old) {
                waiting.push(Waiting::Clears(Box::new(lost())));
            } else if let Some(at) = heirs.written.get(&old).copied().or(by_zone.flatten()).or(needed) {
                plan.atoms[at].waiting.push(Waiting::Clears(Box::new(lost())));
            } else if heirs.in_place.contains(&old) || by_zone.is_some() {
                plan.decided.push(lost());
            } else {
                plan.decided.push(status);
            }
        }
        // A deletion comes before a write at the same name, so that a successor of another type finds its place.
        for (key, waiting) in going {
            plan.atoms.insert(start, Atom { name: self.name.clone(), deletes: vec![key], write: None, waiting });
        }
    }
}

impl Place<'_> {
    /// The line of an object that is not written now and has nothing on the server: a later try lists it again.
    fn idle_line(&self, plan: &Plan, record: &Record, heirs: &Heirs) -> Option<RecordKey> {
        let key = record.key().filter(|key| !self.scope.shared && plan.memory.ledger.count(key) > 0)?;
        let wanted = heirs.written.contains_key(&key) || heirs.in_place.contains(&key);
        let refused = plan.memory.rejected.contains_key(&key) && heirs.keep_refused(&key);
        let needed = wanted || refused || plan.memory.is_ours_by_ledger(&key);
        (!needed && !plan.forget.contains(&key)).then_some(key)
    }
}

/// The common case, decided without building anything: one object at the name, served as it wants.
fn at_rest(plan: &Plan, scope: &Scope<'_>, name: &Fqdn, records: &[Arc<Record>]) -> Option<RecordStatus> {
    let ([record], Some(holder), Some(present)) = (records, scope.holder, &plan.memory.present) else { return None };
    let (key, (content, digest)) = (record.key()?, record.wanted(plan.memory.no_comments)?);
    let mut at = present.at(name);
    let (Some((there, served)), None) = (at.next(), at.next()) else { return None };
    let served = *there == key && served == digest && record.is_of(&holder.identity.id);
    let wrote = record.applied().is_none_or(|applied| applied.zone == *scope.zone && applied.key == key);
    let own = scope.is_of_zone(&key) || plan.memory.rejected.contains_key(&key);
    let listed = plan.memory.ledger.at(name).iter().all(|listed| *listed == key)
        && (record.endpoint.is_none()
            || (plan.memory.ledger.lists_endpoint(&key, digest) && plan.memory.ledger.count(&key) == 1));
    (served && wrote && listed && !own && !record.identity.is_deleting()).then(|| {
        RecordStatus::settled(record, scope.zone, &key, digest, scope.now).with_comment_notice(record, content)
    })
}

/// Why an endpoint is left to external-dns: its registry has the name, with this type or with another, and it is not ours already.
fn owned_by_external_dns(plan: &Plan, record: &Record, key: &RecordKey) -> Option<Refusal> {
    let source = plan.pace.endpoints.as_ref().filter(|_| record.endpoint.is_some())?;
    if source.take_over || plan.memory.is_ours_by_ledger(key) {
        return None;
    }
    let foreign = |(owned, _): &(&RecordKey, &Entry)| !plan.memory.is_ours_by_ledger(owned);
    let registered = plan.memory.present.as_ref()?.registry.at(&key.name).filter(foreign);
    let (owned, entry) = registered.min_by_key(|(owned, _)| *owned != key)?;
    let which = if owned == key { key.to_string() } else { format!("{key} is not published, because {owned}") };
    let message = format!(
        "{which} is owned by the external-dns with the owner id {:?}, by the TXT record {}. Withdraw it there, or set PDNS_DNSENDPOINTS_TAKE_OVER=true",
        entry.owner, entry.at
    );
    Some(Refusal::new(Reason::ForeignRecord, message))
}

/// Whether two objects ask for the same records.
fn agree(one: &Record, other: &Record) -> bool {
    one.wanted(false).map(|(_, digest)| digest) == other.wanted(false).map(|(_, digest)| digest)
}

fn no_room(key: &RecordKey) -> Refusal {
    let message = format!(
        "{key}: the list of DNSEndpoint records on the zone object is full ({} record sets). What is published is kept. Give some of the names a zone of their own, or use RRsets for the rest",
        super::MAX_ENDPOINTS
    );
    Refusal::new(Reason::Unsupported, message)
}

fn claimed(key: &RecordKey, holder: &str) -> Refusal {
    let message = format!("{key} is already owned by {holder}. Delete one of the two, or change the name");
    Refusal::new(Reason::ClaimedByAnother, message)
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
