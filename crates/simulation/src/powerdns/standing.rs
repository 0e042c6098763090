//! Looks for record sets that one object has asked for and that have been unserved for longer than their own faults explain.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{
    model::{Model, Standing},
    twin::{Key, Set, Twin},
};
use crate::{strikes::Allowed, world::World};

/// How long a record set that is asked for may be unserved.
const ALLOWED: Allowed = Allowed {
    // A pass of the zone that began just before, its pause, and the passes of other zones.
    without_fault: Duration::from_secs(20),
    // A request that hangs for its 10 seconds, the longest pause after failures, and a lease that runs out.
    after_fault: Duration::from_mins(4),
    // Passwords and permissions are tried again after one to ten minutes.
    after_refusal: Duration::from_mins(12),
};

/// Looks at every record set that must be served.
pub fn look(world: &World, twin: &Twin, model: &Model) -> bool {
    let (now, mut clear) = (Instant::now(), true);
    // Each zone is read once, not once for each of its record sets.
    let mut zones: BTreeMap<String, BTreeMap<Key, Set>> = BTreeMap::new();
    for standing in model.standing() {
        // A hand edit is repaired by a full read, which is not soon.
        if model.is_by_hand(&standing.key) {
            continue;
        }
        let zone = &standing.key.0;
        let read = || twin.contents(zone).map(|(_, sets)| sets).unwrap_or_default();
        if is_served(twin, &standing, zones.entry(zone.clone()).or_insert_with(read)) {
            continue;
        }
        clear = false;
        let own = world.strikes.of(|name| concerns(name, &standing));
        if now > own.deadline(standing.since, &ALLOWED) {
            world.violation(format!(
                "{:?} asks for {:?} alone and without faults of its own, and it is not served",
                standing.id, standing.key
            ));
        }
    }
    clear
}

/// Whether a request has to do with a record set: it names its zone or its object.
fn concerns(name: &str, standing: &Standing<'_>) -> bool {
    let object = |plural: &str| name.contains(&format!("{plural}/{}", standing.id.2));
    name.contains(&standing.zone.name) || object("rrsets") || object("dnsendpoints")
}

fn is_served(twin: &Twin, standing: &Standing<'_>, sets: &BTreeMap<Key, Set>) -> bool {
    let (zone, name, _) = &standing.key;
    let made = twin.seen().zones.get(zone).copied();
    let foreign = made.is_some_and(|(made, by_hand)| by_hand || made < standing.zone_made);
    if standing.zone.refuse && foreign {
        return true;
    }
    let wanted = standing.record.set();
    // Another type at the name, left by a deletion policy, may forbid this one. Only the SOA and NS sets of the apex are the zone's own.
    let of_zone = |key: &Key| key.0 == key.1 && ["SOA", "NS"].contains(&key.2.as_str());
    let others = sets.keys().any(|key| key.1 == *name && key != &standing.key && !of_zone(key));
    others || sets.get(&standing.key) == Some(&wanted)
}
