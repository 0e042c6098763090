//! The current state: the index, the memory of the zone, and the server where it must be asked.
//!
//! A change of some record sets asks nothing: the memory knows what the server has. A full pass asks for the serial, and
//! reads the records only when it moved, when they were not read for long, or when nothing is remembered.

use std::sync::Arc;

use jiff::Timestamp;
use signpost_dns::{RecordKey, ZoneName};
use signpost_engine::{Job, ObjectId, Touched};
use signpost_provider_powerdns::ServerError;

use crate::{
    PowerDnsSystem,
    index::ZoneSnapshot,
    index::record::{Record, ZoneKey, ZoneObject},
    plan::{
        Observed, ServerView,
        ledger::Ledger,
        memory::{Present, Reading, ZoneMemory},
    },
};

pub(crate) mod probe;

pub(crate) async fn observe(
    system: &PowerDnsSystem,
    job: &Job<ZoneKey, Arc<ObjectId>>,
    mut memory: ZoneMemory,
) -> Observed {
    let pace = system.pace_now();
    let now = system.clock.now();
    if memory.ledger.is_over(now, pace.grace) {
        // Late writes are only found by a read: the serial need not have changed.
        memory.present = None;
    }
    // Without memory every record set has to be looked at, since the server will be read.
    let claimed = !system.index.claimants(&job.key).is_empty();
    let mut touched = if memory.present.is_none() && claimed { &Touched::All } else { &job.touched };
    let mut left = false;
    let snapshot = loop {
        let mut snapshot = system.index.snapshot(&job.key, touched, &memory.ledger);
        let endpoints = pace.endpoints.is_some();
        if !endpoints {
            drop_endpoints(&mut snapshot);
        }
        sort_claimants(&mut snapshot.claimants, &memory);
        left |= snapshot.left;
        memory.ledger.packs_above = pace.packs_above;
        let loaded = job.key.zone().is_some_and(|zone| load_ledger(&mut memory, &snapshot, zone, endpoints, now));
        if !loaded {
            break ZoneSnapshot { left, ..snapshot };
        }
        // Which lines are durable is a matter of the same snapshot as the rest, so the ledger comes first.
        touched = &Touched::All;
    };
    // By the time before the server is asked: what it does between its answer and the end of the grace period is found by the next pass.
    memory.ledger.expire(now, pace.grace);
    let Some(zone) = job.key.zone() else {
        return Observed { key: job.key.clone(), snapshot, server: ServerView::NotAsked, memory, pace };
    };
    let server = if needs_server(&snapshot) {
        let check =
            snapshot.full || meets_external_dns(&snapshot, &memory) || withdraws_endpoint(&snapshot, &memory.ledger);
        look(system, &mut memory, zone, check).await.unwrap_or_else(|error| {
            tracing::debug!(%zone, %error, "the server could not be asked");
            ServerView::Unreachable(error)
        })
    } else {
        ServerView::NotAsked
    };
    name_marks(&mut memory, &snapshot, &server);
    let wide = |holder: &Arc<ZoneObject>| holder.identity.id.namespace.is_none();
    let shared = system.pace.partial_view && snapshot.claimants.first().is_some_and(wide);
    Observed { key: job.key.clone(), snapshot: ZoneSnapshot { shared, ..snapshot }, server, memory, pace }
}

/// Of two that were created in the same second, the current owner keeps the zone.
fn sort_claimants(claimants: &mut [Arc<ZoneObject>], memory: &ZoneMemory) {
    let served = |claimant: &ZoneObject| {
        (memory.ledger_of.as_ref() == Some(&claimant.identity.uid), claimant.status.id.is_some())
    };
    claimants
        .sort_by(|one, other| one.identity.claim().cmp_served(&served(one), &other.identity.claim(), &served(other)));
}

/// Whether an endpoint is to be written for the first time in a zone that external-dns writes to as well: it may have taken the name since
/// the zone was read.
fn meets_external_dns(snapshot: &ZoneSnapshot, memory: &ZoneMemory) -> bool {
    let shared = memory.present.as_ref().is_some_and(|present| !present.registry.is_empty());
    let is_new = |record: &Arc<Record>| {
        record.endpoint.is_some() && record.key().is_some_and(|key| memory.ledger.count(&key) == 0)
    };
    shared && snapshot.names.values().flatten().any(is_new)
}

/// Whether a record set of an endpoint is to be deleted: another cluster that publishes in the zone may have taken the name over since the
/// zone was read.
fn withdraws_endpoint(snapshot: &ZoneSnapshot, ledger: &Ledger) -> bool {
    snapshot.names.iter().any(|(name, records)| {
        let is_wanted =
            |key: &RecordKey| records.iter().any(|record| record.key().is_some_and(|wanted| wanted == *key));
        ledger.at(name).iter().any(|key| ledger.has_endpoint(key) && !is_wanted(key))
    })
}

/// Endpoints that are known before all of them are: they are published when the list is complete.
fn drop_endpoints(snapshot: &mut ZoneSnapshot) {
    let is_object = |record: &Arc<Record>| record.endpoint.is_none();
    for records in snapshot.names.values_mut() {
        records.retain(is_object);
    }
    snapshot.nameless.retain(is_object);
}

/// The ledger is the holder's: another holder starts with its own. The lines of endpoints are added when all DNSEndpoints are known. True when
/// something was read now.
fn load_ledger(
    memory: &mut ZoneMemory,
    snapshot: &ZoneSnapshot,
    zone: &ZoneName,
    endpoints: bool,
    now: Timestamp,
) -> bool {
    let Some(holder) = snapshot.claimants.first() else { return false };
    let known = memory.ledger_of.as_ref() == Some(&holder.identity.uid);
    if known && memory.lists_endpoints == endpoints {
        return false;
    }
    if !known {
        let packs_above = memory.ledger.packs_above;
        memory.ledger = Ledger::parse(zone, &holder.status.in_flight);
        memory.ledger.packs_above = packs_above;
        (memory.created, memory.deleted) = (false, false);
    }
    if endpoints {
        memory.ledger.add_endpoints(zone, &holder.status.endpoints);
    }
    memory.ledger.doubt(now);
    memory.ledger_of = Some(holder.identity.uid.clone());
    memory.lists_endpoints = endpoints;
    true
}

/// Finds the record sets of the marks that were read back: what the server has, and what objects want. A mark of neither is over with its
/// request.
fn name_marks(memory: &mut ZoneMemory, snapshot: &ZoneSnapshot, server: &ServerView) {
    if !memory.ledger.has_marks() {
        return;
    }
    for (key, digest) in memory.present.iter().flat_map(|present| &present.sets) {
        memory.ledger.name_mark(key, *digest);
    }
    for record in snapshot.names.values().flatten().filter(|record| record.endpoint.is_some()) {
        if let (Some(key), Some((_, digest))) = (record.key(), record.wanted(memory.no_comments)) {
            memory.ledger.name_mark(&key, digest);
        }
    }
    match server {
        ServerView::Present => memory.ledger.forget_marks(),
        // A zone that seems to be missing is created first, and read after that.
        ServerView::Missing | ServerView::NotAsked | ServerView::Unreachable(_) => {}
    }
}

/// Without a zone object the server only matters to those that wrote there and are being deleted, unless what they wrote stays.
pub(crate) fn needs_server(snapshot: &ZoneSnapshot) -> bool {
    match snapshot.claimants.first() {
        Some(_) => true,
        None => snapshot
            .names
            .values()
            .flatten()
            .any(|record| record.identity.is_deleting() && !record.stays_behind(None) && record.applied().is_some()),
    }
}

async fn look(
    system: &PowerDnsSystem,
    memory: &mut ZoneMemory,
    zone: &ZoneName,
    full: bool,
) -> Result<ServerView, ServerError> {
    let now = system.clock.now();
    if let Some(present) = &mut memory.present {
        if !full {
            return Ok(ServerView::Present);
        }
        system.metrics.read(false);
        let Some(info) = system.server.zone(zone).await? else {
            memory.present = None;
            memory.forget_refusals();
            return Ok(ServerView::Missing);
        };
        let moved = info.serial != present.info.serial;
        let fresh = memory.read_at.is_some_and(|at| now.duration_since(at).unsigned_abs() < system.pace.full_read);
        present.info = info;
        if !moved && fresh {
            return Ok(ServerView::Present);
        }
        if moved {
            // A foreign writer changed the zone: refused changes may be accepted now.
            memory.forget_refusals();
        }
    }
    memory.present = read(system, zone).await?;
    memory.read_at = Some(now);
    Ok(if memory.present.is_some() { ServerView::Present } else { ServerView::Missing })
}

/// Reads every record of a zone, few zones at a time. Only digests are kept, so that a large zone costs little memory.
pub(crate) async fn read(system: &PowerDnsSystem, zone: &ZoneName) -> Result<Option<Present>, ServerError> {
    // The semaphore is never closed.
    let _permit = system.reads.acquire().await;
    system.metrics.read(true);
    let mut reading = Reading::new(zone.name());
    let info = system.server.read_each(zone, &mut |set| reading.add(&set)).await?;
    Ok(info.map(|info| reading.finish(info)))
}
