//! Objects that are being deleted while the server may still have something of them: they are not released yet. Pure.
//!
//! In: the plan so far, the objects of the zone, the ledger. Out: whether an object may have something on the server, and releases that wait
//! until the zone is created.

use std::{collections::BTreeMap, sync::Arc};

use signpost_dns::{RecordKey, RecordType, ZoneName};

use super::{Plan, not_served, records, zone};
use crate::{
    index::{ZoneSnapshot, record::Record},
    report::status::RecordStatus,
};

/// Whether the server may have something of an object: its status reports it, PowerDNS-Operator wrote it, or the ledger lists it.
pub(super) fn may_have_written(plan: &Plan, snapshot: &ZoneSnapshot, zone: &ZoneName, record: &Record) -> bool {
    let inherited = || not_served(plan, record).is_none() && record.inherited().is_some();
    record.applied().is_some() || inherited() || in_ledger(plan, record) || may_be_listed(plan, snapshot, zone, record)
}

fn in_ledger(plan: &Plan, record: &Record) -> bool {
    record.key().is_some_and(|key| plan.memory.ledger.count(&key) > 0)
}

/// Whether the object was edited, and the ledger lists a set at its name that it may have written before: no other object asks for the set or
/// reports it.
fn may_be_listed(plan: &Plan, snapshot: &ZoneSnapshot, zone: &ZoneName, record: &Record) -> bool {
    let (Some(holder), Ok(name)) = (&plan.holder, &record.name) else { return false };
    let of_holder = |record: &Record| record.is_of(&holder.identity.id);
    if !record.was_edited() || !of_holder(record) || record.endpoint.is_some() || snapshot.shared {
        return false;
    }
    let is_of = |other: &Record, key: &RecordKey| {
        let asks = !other.identity.is_deleting() && of_holder(other) && other.key().as_ref() == Some(key);
        let reports = other.applied().is_some_and(|applied| applied.zone == *zone && applied.key == *key);
        asks || reports
    };
    let of_another = |key: &RecordKey| {
        let mut others = snapshot.names.get(name).into_iter().flatten();
        others.any(|other| other.identity.uid != record.identity.uid && is_of(other, key))
    };
    let ledger = &plan.memory.ledger;
    // The start of authority and what the zone object asks for are never deleted with a record set.
    let of_zone = |key: &RecordKey| key.rtype == RecordType::Soa || zone::holds(zone, holder, key);
    ledger.at(name).iter().any(|key| !of_zone(key) && !ledger.has_endpoint(key) && !of_another(key))
}

/// A read found no zone, and only its creation proves that: until then, an object that may have something in the zone is not released.
pub(super) fn hold_until_created(plan: &mut Plan, snapshot: &ZoneSnapshot, zone: &ZoneName) {
    let waits = |record: &&Arc<Record>| {
        let leaves = record.identity.is_deleting() && !record.stays_behind(plan.holder.as_deref());
        leaves && may_have_written(plan, snapshot, zone, record)
    };
    let waiting: BTreeMap<Arc<str>, Arc<Record>> =
        records(snapshot).filter(waits).map(|record| (record.identity.uid.clone(), record.clone())).collect();
    let mut decided: Vec<RecordStatus> = Vec::with_capacity(plan.decided.len());
    for status in std::mem::take(&mut plan.decided) {
        match waiting.get(&status.judged.uid).filter(|_| status.release) {
            Some(record) => plan.with_zone.push((record.clone(), status)),
            None => decided.push(status),
        }
    }
    plan.decided = decided;
}
