//! Bursts, rest and restarts: how many requests a change costs.

use futures::StreamExt;
use serde_json::json;
use signpost_testkit::{eventually, on_both};

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
}

on_both! {
    async fn a_burst_of_routes_costs_few_writes_of_their_gateway(cluster) {
        let rig = Rig::new(cluster).await;
        rig.basics(&["weu", "neu"]).await;
        rig.policy(json!({ "mode": "RegionBound", "sourceRegion": "weu" })).await;
        rig.until("Gateway", "gw", "NoServiceRoutes").await;
        let (count, began) = (150, std::time::Instant::now());
        rig.many(count).await;
        rig.until_active(count).await;
        let hosts: Vec<String> = (0..count).map(|n| host(&format!("s{n:04}"))).collect();
        rig.until_hosts("gw", &hosts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(rig.endpoints(&rig.app).await.len(), 2 * count);
        let istio = rig.proxy.count(&http::Method::PATCH, "networking.istio.io");
        // Hosts that keep changing are written once a second, others 50 ms after a change: two writes a second at most, however long the burst takes.
        let most = 4 + 2 * usize::try_from(began.elapsed().as_secs()).unwrap();
        assert!(istio <= most, "{istio} writes of the Istio Gateway in {:?}", began.elapsed());
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
    }
}
