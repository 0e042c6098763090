//! Fifty thousand endpoint names in one zone. Not with debug assertions: an unoptimised build spends many minutes on them.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use signpost_apis::{
    externaldns::{self, DnsEndpoint},
    powerdns::Zone,
};
use signpost_dns::ZoneName;
use signpost_provider_powerdns::{Call, MemoryServer};
use signpost_system_powerdns::{EndpointSource, Pace};
use signpost_testkit::{eventually, on_both};

use crate::{
    endpoints::install_crd,
    rig::{PATIENCE, start_with, zone_spec},
    room::marks_in,
};

const MANY: usize = 1_000;
const BIG: &str = "big.example";

/// A zone with thousands of names, and a server in memory.
struct Crowd {
    zones: Api<Zone>,
    endpoints: Api<DnsEndpoint>,
    events: Api<Event>,
    server: MemoryServer,
}

impl Crowd {
    async fn publish(&self, object: usize) {
        let endpoint = |number: usize| {
            let name = format!("api-{object:02}-{number:03}-ns-p-prod-myapp.{BIG}");
            json!({ "dnsName": name, "recordType": "A", "targets": [format!("10.0.{object}.{}", number % 250)] })
        };
        let (name, list) = (format!("many{object:02}"), (0..MANY).map(endpoint).collect::<Vec<_>>());
        let object = json!({
            "apiVersion": externaldns::API_VERSION, "kind": "DNSEndpoint",
            "metadata": { "name": name }, "spec": { "endpoints": list },
        });
        let params = PatchParams::apply("user").force();
        self.endpoints.patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
    }

    async fn withdraw(&self, object: usize) {
        self.endpoints.delete(&format!("many{object:02}"), &DeleteParams::default()).await.unwrap();
    }

    async fn marked(&self) -> usize {
        let status = self.zones.get(BIG).await.unwrap().status.unwrap_or_default();
        marks_in(&status.endpoints)
    }

    fn served(&self) -> usize {
        let contents = self.server.contents(&ZoneName::parse(BIG).unwrap());
        contents.map_or(0, |contents| contents.sets.iter().filter(|set| set.rtype.as_str() == "A").count())
    }

    /// Waits until so many names are served and listed.
    async fn until_served(&self, count: usize) {
        eventually(&format!("{count} names are served and listed"), Duration::from_mins(4), || async {
            let seen = (self.served(), self.marked().await);
            if seen == (count, count) { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// Waits until all objects but so many are observed.
    async fn until_refused(&self, count: usize) {
        eventually(&format!("{count} objects are not published"), PATIENCE, || async {
            let objects = self.endpoints.list(&ListParams::default()).await.unwrap().items;
            let waits = objects.iter().filter(|object| !object.is_observed()).count();
            if waits == count { Ok(()) } else { Err(waits) }
        })
        .await;
    }

    fn writes(&self) -> usize {
        self.server.log().iter().filter(|call| call.is_write()).count()
    }
}

on_both! {
    async fn fifty_thousand_names_of_one_zone_are_listed_and_known_after_a_restart(cluster) {
        let Some(()) = install_crd(&cluster).await else { return };
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let namespace = cluster.namespace("crowd").await;
        let crowd = Crowd {
            zones: Api::namespaced(cluster.client(), &namespace),
            endpoints: Api::namespaced(cluster.client(), &namespace),
            events: Api::namespaced(cluster.client(), &namespace),
            server: MemoryServer::new(),
        };
        let zone = Zone::new(BIG, serde_json::from_value(zone_spec()).unwrap());
        crowd.zones.create(&PostParams::default(), &zone).await.unwrap();
        for object in 0..50 {
            crowd.publish(object).await;
        }
        let only = Some(ZoneName::parse(BIG).unwrap());
        let endpoints = Some(EndpointSource::default());
        let (resync, grace) = (Duration::from_secs(1), Duration::from_secs(3));
        let pace = Pace { resync, grace, only, endpoints, ..Pace::default() };
        let start = || start_with(cluster.client(), Arc::new(crowd.server.clone()), pace.clone());
        let replica = start();
        crowd.until_served(50 * MANY).await;
        replica.crash().await;

        // One object is deleted while no process runs: the next one deletes its names, and only those.
        crowd.withdraw(7).await;
        let writes = crowd.writes();
        let replica = start();
        crowd.until_served(49 * MANY).await;
        assert_eq!(crowd.writes(), writes + 1, "one request deletes them");

        // Beyond the limit, names are refused one by one, and what is published is kept.
        for object in 50..58 {
            crowd.publish(object).await;
        }
        crowd.until_served(56_000).await;
        crowd.until_refused(1).await;
        eventually("the refusal is reported", PATIENCE, || async {
            let notes = crowd.events.list(&ListParams::default()).await.unwrap().items;
            let notes: Vec<String> = notes.into_iter().filter_map(|event| event.note).collect();
            let words = ["-ns-p-prod-myapp", "is full (56000 record sets)", "What is published is kept"];
            if notes.iter().any(|note| words.iter().all(|word| note.contains(word))) { Ok(()) } else { Err(notes) }
        })
        .await;
        replica.stop().await;
        let list = serde_json::to_vec(&crowd.zones.get(BIG).await.unwrap()).unwrap();
        assert!(list.len() < 1_000_000, "{} bytes", list.len());
        let reads = || crowd.server.log().iter().filter(|call| matches!(call, Call::Read(_))).count();
        let (before, writes) = (reads(), crowd.writes());
        let replica = start();
        eventually("the zone is read again", PATIENCE, || async { if reads() > before { Ok(()) } else { Err(()) } }).await;
        crowd.until_served(56_000).await;
        assert_eq!(crowd.writes(), writes, "a new process finds nothing to do");
        // Where names are withdrawn, the others follow.
        crowd.withdraw(8).await;
        crowd.until_refused(0).await;
        crowd.until_served(56_000).await;
        replica.stop().await;
    }
}
