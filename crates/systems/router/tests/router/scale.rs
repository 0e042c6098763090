//! Bursts, rest and restarts: how many requests a change costs. Writes that hang, and what they do not delay.

use std::collections::BTreeSet;

use futures::StreamExt;
use serde_json::json;
use signpost_testkit::{Fault, Rule, eventually, on_both};

use crate::rig::{PATIENCE, Rig, host};

impl Rig {
    async fn many(&self, count: usize) {
        let put = |n: usize| async move { self.route(&format!("s{n:04}")).await };
        futures::stream::iter(0..count).map(put).buffer_unordered(16).collect::<Vec<()>>().await;
    }

    async fn until_active(&self, count: usize) {
        eventually(&format!("{count} routes are active"), PATIENCE, || async {
            let list = self
                .all("ServiceRoute")
                .list(&kube::api::ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let active = list.items.iter().filter(|object| object.data["status"]["phase"] == "Active").count();
            if active == count { Ok(()) } else { Err(format!("{active} of {}", list.items.len())) }
        })
        .await;
    }

    /// The reads that the proxy has seen, apart from watches that continue and reads of single generated objects. So neither the ClusterIdentity nor
    /// anything else is read for a pass.
    fn reads(&self) -> Vec<String> {
        let is_watch = |path: &str| path.contains("watch=true") && !path.contains("sendInitialEvents=true");
        let is_child = |path: &str| {
            let path = path.split('?').next().unwrap_or_default();
            path.contains("/dnsendpoints/") || (path.contains("networking.istio.io") && path.contains("/gateways/"))
        };
        let reads = self.proxy.seen().into_iter().filter(|seen| seen.method == http::Method::GET);
        reads.map(|seen| seen.path).filter(|path| !is_watch(path) && !is_child(path)).collect()
    }
}

on_both! {
    async fn a_burst_of_routes_costs_few_writes_of_their_gateway(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.until("Gateway", "gw", "NoServiceRoutes").await;
        let count = 150;
        rig.many(count).await;
        rig.until_active(count).await;
        let hosts: Vec<String> = (0..count).map(|n| host(&format!("s{n:04}"))).collect();
        rig.until_hosts("gw", &hosts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(rig.endpoints(&rig.app).await.len(), 2 * count);
        let istio = rig.proxy.count(&http::Method::PATCH, "networking.istio.io");
        assert!(istio <= 20, "{istio} writes of the Istio Gateway");
    }

    async fn one_changed_route_costs_its_own_objects_only(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.many(20).await;
        rig.until_active(20).await;
        let hosts: Vec<String> = (0..20).map(|n| host(&format!("s{n:04}"))).collect();
        rig.until_hosts("gw", &hosts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        rig.at_rest().await;
        rig.proxy.forget();
        rig.route_in(&rig.app, "s0007-route", "changed", "gw").await;
        eventually("the host has changed", PATIENCE, || async {
            let istio = rig.get("IstioGateway", &rig.infra, "gw").await.unwrap();
            if istio.to_string().contains(&host("changed")) { Ok(()) } else { Err(()) }
        }).await;
        rig.until("ServiceRoute", "s0007-route", "ReconciliationSucceeded").await;
        rig.at_rest().await;
        let writes: Vec<String> = rig.proxy.seen().into_iter()
            .filter(|seen| seen.method != http::Method::GET).map(|seen| seen.path).collect();
        let of = |part: &str| writes.iter().filter(|path| path.contains(part)).count();
        assert_eq!((of("/dnsendpoints/"), of("networking.istio.io")), (2, 1), "{writes:#?}");
        assert!(writes.iter().filter(|path| path.contains("/dnsendpoints/") || path.contains("/serviceroutes/")).all(|path| path.contains("s0007-route")), "{writes:#?}");
        assert_eq!(rig.reads(), [""; 0], "everything that a pass needs is in the index");
    }

    async fn at_rest_and_after_a_restart_nothing_is_written(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.identity("weu", &["neu"]).await;
        rig.many(10).await;
        rig.until_active(10).await;
        rig.gateway("empty", "edge").await;
        rig.until("Gateway", "empty", "NoServiceRoutes").await;
        rig.until("Gateway", "gw", "GatewayCreated").await;
        rig.at_rest().await;
        rig.proxy.forget();
        rig.restart().await;
        let lists = || rig.proxy.seen().iter().filter(|seen| seen.path.contains("serviceroutes")).count();
        eventually("it has listed again", PATIENCE, || async { if lists() > 0 { Ok(()) } else { Err(()) } }).await;
        let ready = || rig.checks().values().all(|check| *check == signpost_engine::health::Check::Ok);
        eventually("it is ready", PATIENCE, || async { if ready() { Ok(()) } else { Err(rig.checks()) } }).await;
        rig.at_rest().await;
        let writes: Vec<String> = rig.proxy.seen().into_iter().filter(|seen| seen.method != http::Method::GET).map(|seen| format!("{} {}", seen.method, seen.path)).collect();
        assert!(writes.is_empty(), "{writes:#?}");
        // What it has listed once is not read again for a change.
        rig.proxy.forget();
        rig.route("late").await;
        rig.until_active(11).await;
        rig.at_rest().await;
        assert_eq!(rig.reads(), [""; 0]);
    }

    async fn istio_writes_that_hang_do_not_delay_the_endpoints_of_routes(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu"]).await;
        // As with a webhook of Istio that does not answer. There are more Gateways than passes at once.
        rig.proxy.add(Rule::every(Fault::Hang).method(http::Method::PATCH).path("networking.istio.io"));
        let names: Vec<String> = (0..20).map(|n| format!("gw{n:02}")).collect();
        for name in &names {
            rig.gateway(name, name).await;
            rig.route_in(&rig.app, name, name, name).await;
        }
        let tried = || {
            let seen = rig.proxy.seen().into_iter().filter(|seen| seen.method == http::Method::PATCH);
            let paths = seen.map(|seen| seen.path).filter(|path| path.contains("networking.istio.io"));
            paths.collect::<BTreeSet<String>>().len()
        };
        let is_postponed = |line: &str| line.starts_with("signpost_retries_total") && line.contains(r#"class="fixed""#);
        eventually("no place is left", PATIENCE, || async {
            if tried() >= 16 || rig.metrics().lines().any(is_postponed) { Ok(()) } else { Err(tried()) }
        }).await;
        rig.route("late").await;
        eventually("the new route is published", PATIENCE, || async {
            let endpoints = rig.endpoints(&rig.app).await;
            if endpoints.contains_key("late-route-external-dns-weu") { Ok(()) } else { Err(endpoints.len()) }
        }).await;
        // A write is given up after three tries of 10 s. Then other Gateways have its place.
        assert!(tried() < 16, "{} Istio Gateways were tried meanwhile", tried());
        rig.proxy.clear();
        for name in &names {
            rig.until_hosts(name, &[&host(name)]).await;
        }
    }
}
