//! The statuses of zone objects, and of the zone itself.

use std::collections::BTreeSet;

use jiff::Timestamp;
use signpost_apis::powerdns::ZoneStatus;
use signpost_dns::ZoneName;
use signpost_engine::{Identity, Touched, WriteError};
use signpost_planning::{Reason, Refusal};
use signpost_provider_powerdns::ErrorClass;

use super::{
    retry::Retries,
    status::{Decision, Readiness, ZoneDecision, zone_status},
};
use crate::{
    apply::ZoneOutcome,
    index::record::{Sync, ZoneKey, ZoneObject},
    metrics::Measured,
    plan::{
        ledger::ZONE_MARK,
        memory::ZoneMemory,
        zone::{behind, server_refusal},
    },
};

/// The statuses of zone objects.
#[derive(Default)]
pub(crate) struct ZoneReport {
    pub(crate) decisions: Vec<Decision>,
    pub(crate) refusals: Vec<(Identity, Vec<Refusal>)>,
    pub(crate) measured: Measured,
}

/// How the zone is, as the pass found it.
pub(crate) struct ZoneState<'a> {
    pub(crate) zone: &'a ZoneName,
    pub(crate) readiness: &'a Readiness,
    /// Whether another pass follows as soon as the record sets have their statuses.
    pub(crate) more_comes: bool,
    /// Whether DNSEndpoints are published, so that the ledger has their lines.
    pub(crate) endpoints: bool,
    pub(crate) now: Timestamp,
}

impl ZoneReport {
    /// Reports the object that has the zone.
    pub(crate) fn holder(&mut self, holder: &ZoneObject, state: &ZoneState<'_>, memory: &ZoneMemory) {
        let ZoneState { zone, readiness, more_comes, endpoints, now } = *state;
        let base = holder.decided();
        let info = memory.present.as_ref().map(|present| &present.info).filter(|_| *readiness == Readiness::Succeeded);
        let mut status = zone_status(holder, readiness, info, ledger_lines(zone, base, memory), now);
        if memory.deleted {
            // The object is kept for a moment. A zone of that name from now on is not the one that it had.
            status.id = None;
        }
        if endpoints {
            status.endpoints = memory.ledger.endpoint_lines(zone);
        }
        // The serial that secondaries have seen is remembered until the server's is above it.
        if let Some(floor) = behind(holder, memory, now) {
            status.serial = Some(i64::from(floor));
        }
        // A serial alone is reported with the end of the ledger, in one write.
        let serials = |of: &ZoneStatus| (of.serial, of.notified_serial, of.edited_serial);
        let (serial, notified_serial, edited_serial) = serials(base);
        let only_serials = ZoneStatus { serial, notified_serial, edited_serial, ..status.clone() } == *base;
        if more_comes && only_serials && serials(&status) != serials(base) {
            return;
        }
        self.push(holder, status, readiness);
    }

    /// Reports the object of a zone whose name is not one.
    pub(crate) fn unnamed(&mut self, holder: &ZoneObject, readiness: &Readiness, now: Timestamp) {
        let status = zone_status(holder, readiness, None, Vec::new(), now);
        self.push(holder, status, readiness);
    }

    /// Reports an object that claims a zone which another one has.
    pub(crate) fn loser(&mut self, loser: &ZoneObject, holder: &ZoneObject, key: &ZoneKey, now: Timestamp) {
        let message = format!("zone {key} is already owned by {}. Delete one of the two objects", holder.identity.id);
        let refusal = Refusal::new(Reason::ClaimedByAnother, message);
        let readiness = Readiness::Failed(refusal.clone());
        // It has no zone, so it has no identifier of one either.
        let status = ZoneStatus { id: None, serial: None, ..zone_status(loser, &readiness, None, Vec::new(), now) };
        self.push(loser, status, &readiness);
        self.refusals.push((loser.identity.clone(), vec![refusal]));
    }

    /// Reports a status; what the API server has already is not written.
    fn push(&mut self, zone: &ZoneObject, status: ZoneStatus, readiness: &Readiness) {
        if let Some(refusal) = readiness.refusal()
            && zone.decided().conditions != status.conditions
        {
            self.measured.refused.push(refusal.reason);
        }
        self.decisions.push(Decision::Zone(Box::new(ZoneDecision { judged: zone.identity.clone(), status })));
    }
}

/// The lines of the ledger for a status. A ledger that only shrinks is not worth a write; one that is done with is, also where
/// lines of what the server refuses are left: a line that stays would claim a later foreign write. So would a zone in any shape.
fn ledger_lines(zone: &ZoneName, reported: &ZoneStatus, memory: &ZoneMemory) -> Vec<String> {
    let lines = memory.ledger.lines(zone);
    let is_done =
        || !memory.ledger.lists_zone() && memory.ledger.in_flight().all(|key| memory.rejected.contains_key(key));
    let shrinks = || {
        let any_shape = |lines: &[String]| lines.iter().any(|line| line == ZONE_MARK);
        let claims_less = any_shape(&reported.in_flight) && !any_shape(&lines);
        let reported: BTreeSet<&String> = reported.in_flight.iter().collect();
        !claims_less && lines.iter().all(|line| reported.contains(line))
    };
    if !is_done() && shrinks() { reported.in_flight.clone() } else { lines }
}

/// The refusal of the record sets of a zone that could not be created or changed.
pub(crate) fn zone_failure(outcome: &ZoneOutcome, present: bool) -> Option<Refusal> {
    match outcome {
        ZoneOutcome::Failed(error) if error.class() == ErrorClass::Refused && !present => {
            Some(Refusal::new(Reason::ZoneNotReady, format!("the zone cannot be made: {error}")))
        }
        ZoneOutcome::Failed(error) => Some(server_refusal(error)),
        ZoneOutcome::Kept | ZoneOutcome::Released | ZoneOutcome::Refused(_) | ZoneOutcome::NotWritten(_) => None,
    }
}

/// The former error of the zone that is not known to be over: a pass over some record sets does not look at the zone, and
/// all it can show is that the server takes writes again.
pub(crate) fn still_refused(reported: &ZoneStatus, generation: i64, wrote: bool) -> Option<Refusal> {
    let failed = reported.sync_status.as_deref() == Some(Sync::Failed.as_str());
    let ready = reported.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let reason: Reason = ready.reason.parse().ok()?;
    let of_server =
        matches!(reason, Reason::ProviderUnreachable | Reason::ProviderThrottled | Reason::ProviderUnauthorized);
    let current = reported.observed_generation == Some(generation);
    (failed && current && !(wrote && of_server)).then(|| Refusal::new(reason, ready.message.clone()))
}

/// How the zone is, by what became of it.
pub(crate) fn zone_readiness(outcome: &ZoneOutcome, retry: &mut Retries) -> Readiness {
    match outcome {
        ZoneOutcome::Kept | ZoneOutcome::Released => Readiness::Succeeded,
        ZoneOutcome::Refused(refusal) => {
            if refusal.reason == Reason::ForeignRecord {
                retry.slow = Touched::All;
            }
            Readiness::Failed(refusal.clone())
        }
        ZoneOutcome::Failed(error) => {
            retry.server(error, None);
            Readiness::Failed(server_refusal(error))
        }
        ZoneOutcome::NotWritten(error) => {
            match error {
                WriteError::Conflict | WriteError::Gone => retry.now = true,
                other => retry.object(other, Touched::All),
            }
            Readiness::Pending(Refusal::new(Reason::ZoneNotReady, format!("the object cannot be written: {error}")))
        }
    }
}
