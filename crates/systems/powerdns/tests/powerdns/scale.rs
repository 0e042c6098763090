//! Thousands of record sets in one zone: few requests, one status each, nothing at rest. And large ones.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;
use signpost_apis::powerdns::{RRset, Zone};
use signpost_dns::ZoneName;
use signpost_provider_powerdns::{Call, MemoryServer};
use signpost_system_powerdns::Pace;
use signpost_testkit::{Fault, Rule, eventually, on_both, sandbox_cluster};

use crate::rig::{Rig, condition, start_with, zone_spec};

/// A debug build spends minutes in the sandbox on ten thousand; a quarter of them shows the same there.
const COUNT: usize = if cfg!(debug_assertions) { 2_500 } else { 10_000 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_record_sets_take_few_patches_and_one_status_each() {
    let cluster = sandbox_cluster().await;
    cluster.install(&signpost_apis::powerdns::crds()).await;
    let namespace = cluster.namespace("scale").await;
    let sandbox = cluster.sandbox().unwrap();
    let zones: Api<Zone> = Api::namespaced(cluster.client(), &namespace);
    let sets: Api<RRset> = Api::namespaced(cluster.client(), &namespace);
    let zone = Zone::new("big.example", serde_json::from_value(zone_spec()).unwrap());
    zones.create(&PostParams::default(), &zone).await.unwrap();
    let create = |n: usize| {
        let sets = sets.clone();
        async move {
            let spec = json!({
                "type": "A", "name": format!("host-{n}"), "ttl": 300, "records": ["192.0.2.1"],
                "zoneRef": { "name": "big.example", "kind": "Zone" },
            });
            let set = RRset::new(&format!("host-{n}"), serde_json::from_value(spec).unwrap());
            sets.create(&PostParams::default(), &set).await.unwrap();
        }
    };
    futures::stream::iter(0..COUNT).map(create).buffer_unordered(32).collect::<Vec<()>>().await;
    sandbox.take_log();

    let server = MemoryServer::new();
    let name = ZoneName::parse("big.example").unwrap();
    let pace = Pace { resync: Duration::from_secs(2), ..Pace::default() };
    let replica = start_with(cluster.client(), Arc::new(server.clone()), pace.clone());
    eventually("everything is served", Duration::from_mins(2), || async {
        let there = server.contents(&name).map_or(0, |contents| contents.sets.len());
        if there == COUNT + 2 { Ok(()) } else { Err(there) }
    })
    .await;
    eventually("every status and the ledger are written", Duration::from_mins(4), || async {
        let writes = sandbox.writes();
        let zone = zones.get("big.example").await.unwrap();
        let clear = zone.status.is_some_and(|status| status.in_flight.is_empty() && status.serial.is_some());
        if clear && writes >= 2 * COUNT { Ok(()) } else { Err(writes) }
    })
    .await;
    let patches = server.log().iter().filter(|call| matches!(call, Call::Patch(..))).count();
    assert!(patches < COUNT / 200, "{patches} PATCHes");
    let writes = sandbox.take_log().into_iter().filter(signpost_sandbox::RequestLogEntry::is_write).count();
    assert!(writes <= 2 * COUNT + COUNT / 100, "{writes} writes for {COUNT} objects");

    // A second process finds nothing to do.
    replica.stop().await;
    sandbox.take_log();
    let before = server.log().len();
    let replica = start_with(cluster.client(), Arc::new(server.clone()), pace);
    eventually("the zone is read and looked at again", Duration::from_mins(2), || async {
        let looks = server.log()[before..].iter().filter(|call| matches!(call, Call::Zone(_))).count();
        if looks >= 2 { Ok(()) } else { Err(looks) }
    })
    .await;
    assert!(server.log()[before..].iter().all(|call| !call.is_write()));
    let writes: Vec<_> = sandbox.take_log().into_iter().filter(signpost_sandbox::RequestLogEntry::is_write).collect();
    assert!(writes.is_empty(), "{} writes at rest, the first: {:?}", writes.len(), writes.first());
    replica.stop().await;
}

/// How many arrive while the operator runs. Ten thousand take seconds in the build of `make test`.
const ARRIVING: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };

on_both! {
    async fn record_sets_that_arrive_by_the_thousand_are_served_and_reported(cluster) {
        let Some((_server, mut rig)) = Rig::alone(cluster).await else { return };
        rig.put("Zone", &rig.zone, json!({ "kind": "Native", "nameservers": ["ns1.example.org"], "soa_edit_api": "INCREASE" })).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        rig.at_rest().await;
        let before = rig.serial().await;
        rig.proxy.forget();
        let sets: Api<RRset> = Api::namespaced(rig.cluster.client(), &rig.namespace);
        let create = |n: usize| {
            let (sets, spec) = (sets.clone(), rig.rrset(&format!("host-{n}"), "A", &["192.0.2.1"]));
            async move {
                let set = RRset::new(&format!("host-{n}"), serde_json::from_value(spec).unwrap());
                sets.create(&PostParams::default(), &set).await.unwrap();
            }
        };
        futures::stream::iter(0..ARRIVING).map(create).buffer_unordered(16).collect::<Vec<()>>().await;
        eventually("everything is reported", Duration::from_mins(10), || async {
            let items = sets.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
            let reported = |set: &&RRset| {
                let status = set.status.clone().unwrap_or_default();
                status.sync_status.as_deref() == Some("Succeeded") && status.applied.is_some()
            };
            let reported = items.iter().filter(reported).count();
            if reported == ARRIVING { Ok(()) } else { Err(format!("{reported} of {}", items.len())) }
        })
        .await;
        let contents = rig.contents().await.unwrap();
        assert_eq!(contents.sets.len(), ARRIVING + 2, "with NS and SOA");
        rig.until_ledger_clear("Zone", &rig.zone).await;
        let patches = rig.proxy.count(&http::Method::PATCH, "/zones/");
        let steps = usize::try_from(rig.serial().await - before).unwrap();
        assert_eq!(steps, patches, "one serial step per PATCH");
        assert!(patches < ARRIVING / 5, "{patches} PATCHes for {ARRIVING} record sets");
        let writes = rig.proxy.writes();
        assert_eq!(rig.after_a_read().await, writes, "a new process finds nothing to do");
    }
}

/// So many texts of 250 characters.
fn texts(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("\"{n:04}{}\"", "x".repeat(246))).collect()
}

impl Rig {
    async fn put_texts(&self, name: &str, count: usize) {
        let records = texts(count);
        self.put("RRset", name, self.rrset(name, "TXT", &records.iter().map(String::as_str).collect::<Vec<_>>())).await;
    }

    fn patch_sizes(&self) -> Vec<usize> {
        let patches = self.proxy.seen().into_iter().filter(|seen| seen.method == http::Method::PATCH);
        patches.map(|seen| seen.body.len()).collect()
    }
}

on_both! {
    /// On a PowerDNS with its own limit of two megabytes.
    async fn what_is_larger_than_a_request_may_be_goes_out_in_several(cluster) {
        let Some((_server, mut rig)) = Rig::alone(cluster).await else { return };
        rig.zone().await;
        rig.stop().await;
        rig.set_timeout(Duration::from_mins(1));
        for n in 0..30 {
            rig.put_texts(&format!("large{n}"), 800).await;
        }
        // More than any DNS message holds.
        rig.put_texts("huge", 1_500).await;
        rig.put("RRset", "small", rig.rrset("small", "A", &["192.0.2.1"])).await;
        rig.proxy.forget();
        rig.start();
        rig.until_all(31, "Succeeded").await;
        let status = rig.until("RRset", "huge", "Failed").await;
        assert_eq!(condition(&status, "Ready")["reason"], "Unsupported", "{status}");
        let sizes = rig.patch_sizes();
        assert!(sizes.len() >= 4 && sizes.iter().sum::<usize>() > 6_000_000, "{sizes:?}");
        assert!(sizes.iter().filter(|size| **size > 1_500_000).count() >= 3, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size < 2_000_000), "{sizes:?}");
        let set = rig.set("large29", "TXT").await.unwrap();
        assert_eq!(set.contents.len(), 800);
        let writes = rig.at_rest().await;
        assert_eq!(rig.after_a_resync().await, writes);
    }

    async fn a_proxy_that_takes_less_than_the_server_holds_up_nothing_that_fits(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        rig.zone().await;
        rig.stop().await;
        for n in 0..4 {
            let name = format!("r{n}");
            rig.put("RRset", &name, rig.rrset(&name, "A", &["192.0.2.1"])).await;
        }
        // Long enough to be written, before it is tried again.
        rig.set_pace(|pace| pace.retry_refused = Duration::from_secs(10));
        rig.proxy.forget();
        // Four at once are too many for it, and so are two; of those that come alone the first is.
        rig.proxy.add(Rule::next(3, Fault::status(413)).method(http::Method::PATCH));
        rig.start();
        let status = rig.until("RRset", "r0", "Failed").await;
        assert_eq!(condition(&status, "Ready")["reason"], "ProviderRejected", "{status}");
        assert!(condition(&status, "Ready")["message"].to_string().contains("413"), "{status}");
        for name in ["r1", "r2", "r3"] {
            rig.until("RRset", name, "Succeeded").await;
        }
        rig.until("RRset", "r0", "Succeeded").await;
    }
}
