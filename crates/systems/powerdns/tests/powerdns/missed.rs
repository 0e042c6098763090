//! Reads that do not find a zone although the server has it: a proxy that lost its server for a moment. Sandbox and in-memory server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt, ready};
use serde_json::json;
use signpost_dns::ZoneName;
use signpost_engine::OperatorOptions;
use signpost_provider_powerdns::{
    Change, Health, MemoryServer, NewZone, Patched, ServerError, ServerInfo, ZoneContents, ZoneInfo, ZoneServer,
    ZoneSettings,
};
use signpost_system_powerdns::Pace;

use crate::{
    rig::{Replica, fast, start_in},
    scene::Scene,
};

/// A server whose first read finds no zone.
struct Missing {
    server: MemoryServer,
    first: AtomicBool,
}

impl Missing {
    fn is_missed(&self) -> bool {
        self.first.swap(false, Ordering::SeqCst)
    }
}

impl ZoneServer for Missing {
    fn server(&self) -> BoxFuture<'_, Result<ServerInfo, ServerError>> {
        self.server.server()
    }
    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        if self.is_missed() { ready(Ok(None)).boxed() } else { self.server.zone(zone) }
    }
    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>> {
        if self.is_missed() { ready(Ok(None)).boxed() } else { self.server.read(zone) }
    }
    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>> {
        self.server.create(zone)
    }
    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>> {
        self.server.configure(zone, settings)
    }
    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>> {
        self.server.patch(zone, changes)
    }
    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>> {
        self.server.delete(zone)
    }
    fn health(&self) -> Health {
        Health::Up
    }
}

/// An operator whose first read does not find the zone. Lines that it reads back are certain at once.
fn start_missing(scene: &Scene) -> Replica {
    let server = Missing { server: scene.server.clone(), first: AtomicBool::new(true) };
    let options = OperatorOptions { clock: scene.clock.clone(), ..OperatorOptions::default() };
    let pace = Pace { grace: Duration::ZERO, ..fast() };
    start_in(scene.cluster.client(), options, Arc::new(server), pace)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_is_missed_once_releases_no_record_set_that_is_served() {
    let (scene, replica) = Scene::served_by(fast()).await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    replica.stop().await;
    scene.delete("www").await;
    let replica = start_missing(&scene);
    scene.until_gone("www").await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new(), "its record is deleted first");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_is_missed_once_loses_no_line_of_its_ledger() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start_faulty(fast(), |resource, _, _| {
        if resource == "rrsets" {
            return signpost_sandbox::Fault::status(503, "ServiceUnavailable", "not now");
        }
        signpost_sandbox::Fault::None
    });
    scene.until_zone("Succeeded").await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_served(1).await;
    replica.crash().await;
    // It has no finalizer, so only the ledger lists its record from now on.
    scene.delete("www").await;
    scene.until_gone("www").await;
    let replica = start_missing(&scene);
    scene.until_served(0).await;
    scene.until_ledger_clear().await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_is_missed_once_is_deleted_with_its_object() {
    let (scene, replica) = Scene::served_by(fast()).await;
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    replica.stop().await;
    scene.delete_zone().await;
    let replica = start_missing(&scene);
    scene.until_zone_gone().await;
    assert_eq!(scene.served(), None);
    replica.stop().await;
}
