//! The statuses of objects. Only an applied change can be reported as a success.
//!
//! In: what a pass decided, and the zone's outcome. Out: statuses (`Available` with PowerDNS-Operator's reasons, `Ready` with
//! ours), events, and when the zone is next.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use signpost_apis::powerdns::{FINALIZER, RRsetStatus, ZoneStatus};
use signpost_dns::{Fqdn, RecordKey, ZoneName};
use signpost_engine::{Identity, Wanted, clock::whole_seconds, conditions};
use signpost_planning::{Reason, Refusal};
use signpost_provider_powerdns::{SetContent, ZoneInfo};

use crate::{
    index::digest::Digest,
    index::record::{
        AppliedRecord, NOTICE, Record, Seen, Since, Sync, ZoneObject, has_any_finalizer, since, without_finalizers,
    },
};

/// The decision of a pass about an object.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // A pass decides about thousands of record sets and one zone: only the zone is boxed.
pub(crate) enum Decision {
    /// About a record set.
    Record(RecordStatus),
    /// About a zone object.
    Zone(Box<ZoneDecision>),
}

/// The decision of a pass about a zone object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ZoneDecision {
    /// The object as it was judged.
    pub(crate) judged: Identity,
    pub(crate) status: ZoneStatus,
}

/// The decision of a pass about a record set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordStatus {
    /// The object as it was judged.
    pub(crate) judged: Identity,
    pub(crate) readiness: Readiness,
    pub(crate) found: Found,
    pub(crate) serial: Option<u32>,
    pub(crate) updated: Option<Timestamp>,
    pub(crate) name: Option<Fqdn>,
    /// Whether the object may go.
    pub(crate) release: bool,
    /// A notice for the user although the object is served.
    pub(crate) notice: Option<Refusal>,
}

/// The finding of a pass about an object's record on the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    /// Nothing: whatever the object is known to have there, it still has.
    Nothing,
    /// The server has this, written for the object.
    Wrote(Arc<AppliedRecord>),
    /// This record is not on the server, or it belongs to another object or to no object from now on.
    Absent(ZoneName, RecordKey),
}

/// The last decision about a record set, as the index keeps it: few bytes for a served one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decided {
    name: Option<Fqdn>,
    serial: Option<u32>,
    updated: Option<Timestamp>,
    /// Whether the pass found the object's record on the server.
    wrote: bool,
    release: bool,
    /// The readiness and notice to report; `None` when it is served and there is nothing to report.
    reported: Option<Box<(Readiness, Option<Refusal>)>>,
}

impl Decided {
    pub(crate) fn readiness(&self) -> &Readiness {
        self.reported.as_ref().map_or(&Readiness::Succeeded, |reported| &reported.0)
    }

    fn notice(&self) -> Option<&Refusal> {
        self.reported.as_ref()?.1.as_ref()
    }

    /// Whether a status made from it would mean the same.
    pub(crate) fn means_the_same(&self, other: &Self) -> bool {
        (&self.reported, self.wrote, self.release) == (&other.reported, other.wrote, other.release)
    }

    /// The refusal, or else the notice that was not reported yet although the object is served.
    pub(crate) fn refusal(&self, seen: &Seen) -> Option<&Refusal> {
        let new = |notice: &&Refusal| seen.notice != Some(notice.reason);
        self.readiness().refusal().or(self.notice().filter(new))
    }
}

impl From<RecordStatus> for Decided {
    fn from(status: RecordStatus) -> Self {
        let RecordStatus { judged: _, readiness, found, serial, updated, name, release, notice } = status;
        let plain = readiness == Readiness::Succeeded && notice.is_none();
        let reported = (!plain).then(|| Box::new((readiness, notice)));
        Self { name, serial, updated, wrote: matches!(found, Found::Wrote(_)), release, reported }
    }
}

/// Whether the object is served, and why not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Readiness {
    /// Served as wanted.
    Succeeded,
    /// Waits for something.
    Pending(Refusal),
    /// Cannot be served as it is.
    Failed(Refusal),
}

impl Readiness {
    pub(crate) fn sync(&self) -> Sync {
        match self {
            Self::Succeeded => Sync::Succeeded,
            Self::Pending(_) => Sync::Pending,
            Self::Failed(_) => Sync::Failed,
        }
    }

    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Succeeded => None,
            Self::Pending(refusal) | Self::Failed(refusal) => Some(refusal),
        }
    }
}

impl RecordStatus {
    /// A status that changes nothing about what the object has written.
    pub(crate) fn carried(record: &Record, readiness: Readiness) -> Self {
        Self {
            judged: record.identity.clone(),
            found: Found::Nothing,
            serial: record.seen.serial,
            updated: record.seen.updated,
            name: record.name.as_ref().ok().cloned(),
            release: false,
            notice: record.repeats_zone().filter(|_| readiness == Readiness::Succeeded),
            readiness,
        }
    }

    /// Adds that the comment of the object is not on the server, where that is so.
    pub(crate) fn with_comment_notice(mut self, record: &Record, written: &SetContent) -> Self {
        let asked = record.desired.as_ref().is_ok_and(|desired| desired.content.comment.is_some());
        if asked && written.comment.is_none() && self.notice.is_none() {
            let message = "the record set is served without its comment: the backend of the PowerDNS server does not support comments. Remove spec.comment";
            self.notice = Some(Refusal::new(Reason::CommentNotKept, message));
        }
        self
    }

    /// The server has exactly what the object wants, and had it before this pass.
    pub(crate) fn settled(record: &Record, zone: &ZoneName, key: &RecordKey, digest: Digest, now: Timestamp) -> Self {
        let same = |applied: &&Arc<AppliedRecord>| (&applied.zone, &applied.key, applied.digest) == (zone, key, digest);
        let known = record.applied().filter(same);
        // A pass before this one may have written it, and its status is still on the way.
        let pending = record.status.as_ref().filter(|status| status.wrote && known.is_some());
        let new = || Arc::new(AppliedRecord { zone: zone.clone(), key: key.clone(), digest });
        // The record of an endpoint is in the ledger.
        let found = match record.endpoint {
            Some(_) => Found::Nothing,
            None => Found::Wrote(known.cloned().unwrap_or_else(new)),
        };
        let (serial, updated) = match pending {
            Some(status) => (status.serial, status.updated),
            None => (record.seen.serial, record.seen.updated),
        };
        Self { found, serial, updated: updated.or(Some(now)), ..Self::carried(record, Readiness::Succeeded) }
    }

    /// Nothing of the object is in the zone any more, or what is there is not its own from now on.
    pub(crate) fn absent(record: &Record, zone: &ZoneName, readiness: Readiness) -> Self {
        let here = record.applied().filter(|applied| applied.zone == *zone);
        let found = here.map_or(Found::Nothing, |applied| Found::Absent(zone.clone(), applied.key.clone()));
        Self { found, ..Self::carried(record, readiness) }
    }

    /// As [`RecordStatus::absent`], and the object may be deleted if it is being deleted.
    pub(crate) fn released(record: &Record, zone: &ZoneName, readiness: Readiness) -> Self {
        Self { release: record.identity.is_deleting(), ..Self::absent(record, zone, readiness) }
    }

    /// It was written just now.
    pub(crate) fn served(
        record: &Record,
        zone: &ZoneName,
        key: &RecordKey,
        digest: Digest,
        serial: Option<u32>,
        now: Timestamp,
    ) -> Self {
        Self { updated: Some(now), serial, ..Self::settled(record, zone, key, digest, now) }
    }
}

/// PowerDNS-Operator's reason on `Available`.
fn available_reason(readiness: &Readiness) -> &'static str {
    match readiness.refusal().map(|refusal| refusal.reason) {
        None => "Succeeded",
        Some(Reason::ClaimedByAnother) => "Duplicated",
        Some(Reason::ZoneMissing) => "ZoneMissing",
        Some(Reason::ZoneNotReady) => "ZoneNotAvailable",
        Some(_) => "SynchronizationFailed",
    }
}

fn condition(
    type_: &str,
    readiness: &Readiness,
    reason: &str,
    generation: i64,
    before: Option<Since>,
    now: Timestamp,
) -> Condition {
    let status = matches!(readiness, Readiness::Succeeded);
    let message = readiness.refusal().map_or("Succeeded", |refusal| refusal.message.as_str());
    let at = before.filter(|before| before.status == status).map_or(now, |before| before.at);
    conditions::condition(type_, status, reason, message, Some(generation), at)
}

fn both_conditions(
    readiness: &Readiness,
    generation: i64,
    before: (Option<Since>, Option<Since>),
    now: Timestamp,
) -> Vec<Condition> {
    let ready = readiness.refusal().map_or("Succeeded", |refusal| refusal.reason.as_str());
    vec![
        condition("Available", readiness, available_reason(readiness), generation, before.0, now),
        condition("Ready", readiness, ready, generation, before.1, now),
    ]
}

/// The wanted state of a record set now: its finalizers first, then its status.
pub(crate) fn wanted(record: &Record, now: Timestamp) -> Option<Wanted> {
    let decided = record.status.as_deref()?;
    let identity = record.identity.clone();
    if decided.release && identity.is_deleting() {
        let finalizers = has_any_finalizer(&identity).then(|| without_finalizers(&identity));
        return Some(Wanted { finalizers, ..Wanted::nothing(identity) });
    }
    let lacks = record.applied().is_some() && !record.has_finalizer() && !identity.is_deleting();
    let finalizers = lacks.then(|| identity.finalizers.with(FINALIZER));
    let refusals = decided.refusal(&record.seen).cloned().into_iter().collect();
    let status = serde_json::to_value(record_status(record, decided, now)).ok();
    Some(Wanted { finalizers, status, refusals, ..Wanted::nothing(identity) })
}

/// The wanted state of a zone object now.
pub(crate) fn zone_wanted(zone: &ZoneObject) -> Option<Wanted> {
    let identity = zone.identity.clone();
    if zone.release && identity.is_deleting() {
        let finalizers = has_any_finalizer(&identity).then(|| without_finalizers(&identity));
        return Some(Wanted { finalizers, ..Wanted::nothing(identity) });
    }
    let status = serde_json::to_value(zone.wanted.as_deref()?).ok()?;
    Some(Wanted { status: Some(status), ..Wanted::nothing(identity) })
}

/// The status of a record set.
fn record_status(record: &Record, decided: &Decided, now: Timestamp) -> RRsetStatus {
    let before = (record.seen.available, record.seen.ready);
    // An object of another generation has nothing decided about it.
    let generation = record.identity.generation;
    let mut conditions = both_conditions(decided.readiness(), generation, before, now);
    if let Some(Refusal { reason, message }) = decided.notice() {
        let at = record.seen.noticed.filter(|_| record.seen.notice == Some(*reason)).unwrap_or(now);
        let notice = conditions::condition(NOTICE, true, reason.as_str(), message, Some(generation), at);
        conditions.insert(1, notice);
    }
    RRsetStatus {
        dns_entry_name: decided.name.as_ref().map(ToString::to_string),
        last_update_time: decided.updated.map(whole_seconds),
        sync_status: Some(decided.readiness().sync().as_str().to_owned()),
        conditions,
        observed_generation: Some(generation),
        serial: decided.serial.map(i64::from),
        applied: record.applied().map(|applied| applied.to_status()),
    }
}

/// The status of a zone.
pub(crate) fn zone_status(
    zone: &ZoneObject,
    readiness: &Readiness,
    info: Option<&ZoneInfo>,
    in_flight: Vec<String>,
    now: Timestamp,
) -> ZoneStatus {
    let before = &zone.decided().conditions;
    let since = (since(before, "Available"), since(before, "Ready"));
    let mut status = ZoneStatus {
        sync_status: Some(readiness.sync().as_str().to_owned()),
        conditions: both_conditions(readiness, zone.identity.generation, since, now),
        observed_generation: Some(zone.identity.generation),
        in_flight,
        name: zone.key.zone().map(ToString::to_string),
        ..zone.decided().clone()
    };
    if let Some(info) = info {
        status.id = Some(info.id.clone());
        status.kind = Some(info.kind.clone());
        status.serial = Some(i64::from(info.serial));
        status.notified_serial = Some(i64::from(info.notified_serial));
        status.edited_serial = Some(i64::from(info.edited_serial));
        status.masters.clone_from(&info.masters);
        status.dnssec = Some(info.dnssec);
        status.catalog = Some(info.catalog.clone()).filter(|catalog| !catalog.is_empty());
    }
    status
}
