//! The record sets of a zone as names of the inventory.
//!
//! A pass of this process has decided about each; otherwise its last status counts, as on a replica that does not lead.

use std::net::Ipv6Addr;

use jiff::Timestamp;
use signpost_dns::RecordType;
use signpost_engine::{
    Project,
    project::{entry_of, wanted_by},
};
use signpost_inventory::{Entry, Stage};
use signpost_planning::Refusal;

use crate::{
    NAME, PowerDnsSystem,
    index::record::{Record, Sync, ZoneKey},
    report::status::{Decided, Readiness},
};

impl Project<ZoneKey> for PowerDnsSystem {
    fn project(&self, key: &ZoneKey, _now: Timestamp) -> Vec<Entry> {
        self.index.members(key).iter().filter_map(|record| entry(record)).collect()
    }
}

/// A record set whose name cannot be read has no entry: its own status has the reason.
fn entry(record: &Record) -> Option<Entry> {
    let name = record.name.as_ref().ok()?;
    let desired = record.desired.as_ref().ok();
    let published = is_published(record);
    if record.identity.is_deleting() && !published {
        return None;
    }
    let (refusal, pending) = refusal(record);
    let provenance = wanted_by(record.reported_on(), &record.identity.uid, NAME);
    let mut entry = Entry::new(name.clone(), desired.map(|desired| desired.rtype), provenance);
    if let Some(desired) = desired {
        entry.targets = desired.content.records.iter().map(|value| shown(desired.rtype, value)).collect();
    }
    let mut entry = entry_of(entry, &record.identity, published, refusal.as_ref());
    if pending && !published {
        entry.stage = Stage::Wanted;
    }
    Some(entry)
}

/// A value as every system projects it: addresses in their short form.
fn shown(rtype: RecordType, value: &str) -> String {
    match value.parse::<Ipv6Addr>() {
        Ok(ip) if rtype == RecordType::Aaaa => ip.to_string(),
        _ => value.to_owned(),
    }
}

/// Whether the server has what the record set wants.
fn is_published(record: &Record) -> bool {
    let decided = record.status.as_deref().is_some_and(|decided| *decided.readiness() == Readiness::Succeeded);
    let current = record.applied().is_some_and(|applied| {
        let digests = [false, true].map(|plain| record.wanted(plain).map(|(_, digest)| digest));
        Some(&applied.key) == record.key().as_ref() && digests.contains(&Some(applied.digest))
    });
    decided || current
}

/// Why it is not published, and whether that may end by itself.
fn refusal(record: &Record) -> (Option<Refusal>, bool) {
    match record.status.as_deref().map(Decided::readiness) {
        Some(Readiness::Failed(refusal)) => (Some(refusal.clone()), false),
        Some(Readiness::Pending(refusal)) => (Some(refusal.clone()), true),
        Some(Readiness::Succeeded) => (None, false),
        None => {
            let seen = record.seen.refused.map(|reason| Refusal::new(reason, reason.meaning()));
            let pending = record.seen.sync != Some(Sync::Failed);
            match record.refusal() {
                Some(refusal) => (Some(refusal.clone()), false),
                None => (seen, pending),
            }
        }
    }
}
