//! A small external-dns: it reads the DNSEndpoints of all controllers from time to time, reports the generation that it read, and notes which
//! records each name has. It cannot replace an alias by addresses, or the reverse: a name server refuses the mix.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::{RouterBed, action::Kind, lock, writes};
use crate::world::World;

/// The names that a controller has published: whether each is an alias.
type Zone = BTreeMap<(String, String), bool>;

/// Reads all DNSEndpoints at this interval, as long as the cluster exists.
pub async fn external_dns(bed: Arc<RouterBed>, interval: Duration) {
    let (world, bed): (Weak<World>, _) = (Arc::downgrade(&bed.world), Arc::downgrade(&bed));
    let (mut version, mut zone) = (0, Zone::new());
    loop {
        sleep(interval).await;
        let (Some(bed), Some(world)) = (bed.upgrade(), world.upgrade()) else { return };
        if world.last_change() != version {
            zone = sync(&bed, zone).await;
            version = world.last_change();
        }
    }
}

async fn sync(bed: &RouterBed, before: Zone) -> Zone {
    let mut zone = Zone::new();
    for thing in bed.list(Kind::DnsEndpoint).await {
        let controller = thing.label("router.io/controller").to_owned();
        for (name, rtype, _) in writes::records(&thing) {
            if !controller.is_empty() {
                zone.insert((controller.clone(), name), rtype == "CNAME");
            }
        }
        if thing.status["observedGeneration"].as_i64() == Some(thing.generation) {
            continue;
        }
        let (namespace, name) = thing.path();
        let status = json!({ "status": { "observedGeneration": thing.generation } });
        let api = bed.api(Kind::DnsEndpoint, namespace);
        let answer = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
        bed.world.note(&format!("external-dns reads {namespace}/{name} {}: {}", thing.generation, answer.is_ok()));
    }
    // What was published is forgotten by a process that ends, and by users who edit it.
    let undisturbed = lock(&bed.touched).is_none() && bed.world.calm_since() <= bed.began;
    for ((controller, name), alias) in &zone {
        let had = before.get(&(controller.clone(), name.clone()));
        if undisturbed && had.is_some_and(|had| had != alias) {
            bed.world.violation(format!("{name} becomes another type of record for {controller} in one step"));
        }
    }
    zone
}
