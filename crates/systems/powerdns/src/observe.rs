//! What there is: the index, the memory of the zone, and the server where it must be asked.
//!
//! A change of some record sets asks nothing: the memory knows what the server has. A full pass asks for the serial, and
//! reads the records only when it moved, when they were not read for long, or when nothing is remembered.

use std::sync::Arc;

use signpost_dns::ZoneName;
use signpost_engine::{Job, ObjectId, Touched};
use signpost_provider_powerdns::ServerError;

use crate::{
    PowerDnsSystem,
    index::Snapshot,
    memory::{Ledger, Present, ZoneMemory},
    plan::{Observed, ServerView},
    record::{ZoneKey, ZoneObject},
};

pub(crate) async fn observe(system: &PowerDnsSystem, job: &Job<ZoneKey, Arc<ObjectId>>) -> Observed {
    let mut memory = system.recall(&job.key);
    let mut snapshot = system.world.snapshot(&job.key, &job.touched);
    let Some(zone) = job.key.zone() else {
        return Observed { key: job.key.clone(), snapshot, server: ServerView::NotAsked, memory };
    };
    let zone = zone.clone();
    // Without memory every record set has to be looked at, since the server will be read.
    if memory.present.is_none() && !snapshot.full && !snapshot.claimants.is_empty() {
        snapshot = system.world.snapshot(&job.key, &Touched::All);
    }
    // Of two that were made in the same second, the one that holds the zone keeps it.
    snapshot.claimants.sort_by_cached_key(|claimant| {
        let identity = &claimant.identity;
        let holds = memory.ledger_of.as_ref() == Some(&identity.uid);
        (identity.created, !holds, claimant.status.id.is_none(), identity.uid.clone(), identity.id.clone())
    });
    let wide = |holder: &Arc<ZoneObject>| holder.identity.id.namespace.is_none();
    snapshot.shared = system.pace.partial_view && snapshot.claimants.first().is_some_and(wide);
    load_ledger(&mut memory, &snapshot, &zone);
    let server = if needs_server(&snapshot) {
        look(system, &mut memory, &zone, snapshot.full).await.unwrap_or_else(|error| {
            tracing::debug!(%zone, %error, "the server could not be asked");
            ServerView::Unreachable(error)
        })
    } else {
        ServerView::NotAsked
    };
    if snapshot.full && !memory.ledger.is_empty() {
        system.prune(&zone, &mut memory.ledger);
    }
    Observed { key: job.key.clone(), snapshot, server, memory }
}

/// The ledger is the holder's: another holder starts with its own.
fn load_ledger(memory: &mut ZoneMemory, snapshot: &Snapshot, zone: &ZoneName) {
    let Some(holder) = snapshot.claimants.first() else {
        memory.said = None;
        return;
    };
    if memory.ledger_of.as_ref() != Some(&holder.identity.uid) {
        memory.ledger = Ledger::parse(zone, &holder.status.in_flight);
        memory.ledger_of = Some(holder.identity.uid.clone());
        memory.said = None;
    }
}

/// Without a zone object the server only matters to those that wrote there and are going, unless they go after it.
pub(crate) fn needs_server(snapshot: &Snapshot) -> bool {
    match snapshot.claimants.first() {
        Some(_) => true,
        None => snapshot
            .names
            .values()
            .flatten()
            .any(|record| record.identity.deleting && !record.stays_behind(None) && record.seen.applied.is_some()),
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
        system.figures.read(false);
        let Some(info) = system.server.zone(zone).await? else {
            memory.present = None;
            memory.rejected.clear();
            return Ok(ServerView::Missing);
        };
        let moved = info.serial != present.info.serial;
        let fresh = memory.read_at.is_some_and(|at| now.duration_since(at).unsigned_abs() < system.pace.full_read);
        present.info = info;
        if !moved && fresh {
            return Ok(ServerView::Present);
        }
        if moved {
            // Somebody changed the zone: what was refused may be accepted now.
            memory.rejected.clear();
        }
    }
    system.figures.read(true);
    memory.present = system.server.read(zone).await?.map(|contents| Present::of(&contents));
    memory.read_at = Some(now);
    Ok(if memory.present.is_some() { ServerView::Present } else { ServerView::Missing })
}
