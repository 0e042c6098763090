//! What is said about what was done. Pure: only what was applied can be called a success.
//!
//! In: verdicts and the zone's outcome. Out: statuses (`Available` with PowerDNS-Operator's reasons, `Ready` with
//! ours), events, and when the zone is next.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use signpost_apis::powerdns::{RRsetStatus, ZoneStatus};
use signpost_dns::{Fqdn, RecordKey, ZoneName};
use signpost_engine::{ObjectId, clock::whole_seconds, conditions};
use signpost_planning::{Reason, Refusal};
use signpost_provider_powerdns::{SetContent, ZoneInfo};

use crate::{
    digest::Digest,
    record::{Applied, NOTICE, Record, Since, Sync, ZoneObject},
};

/// What a pass decided about a record set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) id: Arc<ObjectId>,
    pub(crate) uid: Box<str>,
    pub(crate) generation: i64,
    pub(crate) deleting: bool,
    pub(crate) says: Says,
    pub(crate) found: Found,
    pub(crate) serial: Option<u32>,
    pub(crate) updated: Option<Timestamp>,
    pub(crate) name: Option<Fqdn>,
    /// Whether the object may go.
    pub(crate) release: bool,
    /// What the user should know although the object is served.
    pub(crate) notice: Option<Refusal>,
}

/// What a pass found out about an object's record on the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    /// Nothing: whatever the object is known to have there, it still has.
    Nothing,
    /// The server has this, written for the object.
    Wrote(Box<Applied>),
    /// This record is not on the server, or it is another object's or nobody's from now on.
    Absent(ZoneName, RecordKey),
}

/// How it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Says {
    /// Served as wanted.
    Succeeded,
    /// Waits for something.
    Pending(Refusal),
    /// Cannot be served as it is.
    Failed(Refusal),
}

impl Says {
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

impl Verdict {
    /// A verdict that changes nothing about what the object has written.
    pub(crate) fn carried(record: &Record, says: Says) -> Self {
        Self {
            id: record.identity.id.clone(),
            uid: record.identity.uid.clone(),
            generation: record.identity.generation,
            deleting: record.identity.deleting,
            found: Found::Nothing,
            serial: record.seen.serial,
            updated: record.seen.updated,
            name: record.name.as_ref().ok().cloned(),
            release: false,
            notice: record.repeats_zone().filter(|_| matches!(says, Says::Succeeded)),
            says,
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

    /// Whether a status made from it would mean the same.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let part = |verdict: &Self| (verdict.uid.clone(), verdict.generation, verdict.deleting, verdict.release);
        part(self) == part(other) && self.says == other.says && self.found == other.found && self.notice == other.notice
    }

    /// The server has exactly what the object wants, and had it before this pass.
    pub(crate) fn settled(record: &Record, zone: &ZoneName, key: &RecordKey, digest: Digest, now: Timestamp) -> Self {
        let found = Found::Wrote(Box::new(Applied { zone: zone.clone(), key: key.clone(), digest }));
        // A pass before this one may have written it, and its status is still on the way.
        let pending = record.verdict.as_ref().filter(|verdict| verdict.found == found);
        let (serial, updated) = match pending {
            Some(verdict) => (verdict.serial, verdict.updated),
            None => (record.seen.serial, record.seen.updated),
        };
        Self { found, serial, updated: updated.or(Some(now)), ..Self::carried(record, Says::Succeeded) }
    }

    /// Nothing of the object is in the zone any more, or what is there is not its own from now on.
    pub(crate) fn absent(record: &Record, zone: &ZoneName, says: Says) -> Self {
        let here = record.applied().filter(|applied| applied.zone == *zone);
        let found = here.map_or(Found::Nothing, |applied| Found::Absent(zone.clone(), applied.key.clone()));
        Self { found, ..Self::carried(record, says) }
    }

    /// As [`Verdict::absent`], and the object may be deleted if it is being deleted.
    pub(crate) fn released(record: &Record, zone: &ZoneName, says: Says) -> Self {
        Self { release: record.identity.deleting, ..Self::absent(record, zone, says) }
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
fn available_reason(says: &Says) -> &'static str {
    match says.refusal().map(|refusal| refusal.reason) {
        None => "Succeeded",
        Some(Reason::ClaimedByAnother) => "Duplicated",
        Some(Reason::ZoneMissing) => "ZoneMissing",
        Some(Reason::ZoneNotReady) => "ZoneNotAvailable",
        Some(_) => "SynchronizationFailed",
    }
}

fn condition(
    type_: &str,
    says: &Says,
    reason: &str,
    generation: i64,
    before: Option<Since>,
    now: Timestamp,
) -> Condition {
    let status = matches!(says, Says::Succeeded);
    let message = says.refusal().map_or("Succeeded", |refusal| refusal.message.as_str());
    let at = before.filter(|before| before.status == status).map_or(now, |before| before.at);
    conditions::condition(type_, status, reason, message, Some(generation), at)
}

fn both_conditions(
    says: &Says,
    generation: i64,
    before: (Option<Since>, Option<Since>),
    now: Timestamp,
) -> Vec<Condition> {
    let ready = says.refusal().map_or("Succeeded", |refusal| refusal.reason.as_str());
    vec![
        condition("Available", says, available_reason(says), generation, before.0, now),
        condition("Ready", says, ready, generation, before.1, now),
    ]
}

/// The status of a record set.
pub(crate) fn record_status(record: &Record, verdict: &Verdict, now: Timestamp) -> RRsetStatus {
    let before = (record.seen.available, record.seen.ready);
    let mut conditions = both_conditions(&verdict.says, verdict.generation, before, now);
    if let Some(Refusal { reason, message }) = &verdict.notice {
        let at = record.seen.noticed.filter(|_| record.seen.notice == Some(*reason)).unwrap_or(now);
        let notice = conditions::condition(NOTICE, true, reason.as_str(), message, Some(verdict.generation), at);
        conditions.insert(1, notice);
    }
    RRsetStatus {
        dns_entry_name: verdict.name.as_ref().map(ToString::to_string),
        last_update_time: verdict.updated.map(whole_seconds),
        sync_status: Some(verdict.says.sync().as_str().to_owned()),
        conditions,
        observed_generation: Some(verdict.generation),
        serial: verdict.serial.map(i64::from),
        applied: record.applied().map(Applied::to_status),
    }
}

/// The status of a zone.
pub(crate) fn zone_status(
    zone: &ZoneObject,
    says: &Says,
    info: Option<&ZoneInfo>,
    in_flight: Vec<String>,
    now: Timestamp,
) -> ZoneStatus {
    let before = &zone.status.conditions;
    let since = (crate::record::since(before, "Available"), crate::record::since(before, "Ready"));
    let mut status = ZoneStatus {
        sync_status: Some(says.sync().as_str().to_owned()),
        conditions: both_conditions(says, zone.identity.generation, since, now),
        observed_generation: Some(zone.identity.generation),
        in_flight,
        name: zone.key.zone().map(ToString::to_string),
        ..(*zone.status).clone()
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
