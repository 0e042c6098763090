//! Direct mode at rest: what is asked of Pangolin while nothing changes. The clock is paused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use signpost_provider_pangolin::{Connection, PangolinClient, Secret, parse_base_url};
use signpost_system_pangolin::Policy;
use signpost_testkit::pangolin::{ORG, Pangolin};
use signpost_testkit::{eventually, sandbox_cluster};

use super::direct::{policy, start_with};
use crate::common::bed::{Bed, PATIENCE, Running};
use crate::common::pangolins::InProcess;

/// Three exposed hosts that nobody touched for ten minutes.
async fn resting(change: impl FnOnce(&mut Policy)) -> (Bed, Arc<InProcess>, Running) {
    let bed = Bed::bare(sandbox_cluster().await).await;
    let server = Arc::new(InProcess::default());
    let base = parse_base_url("http://pangolin.test").unwrap();
    let connection = Connection::new(base, ORG, Secret::Value(Pangolin::KEY.into()));
    let mut policy = policy(&bed);
    change(&mut policy);
    let running = start_with(&bed, policy, Arc::new(PangolinClient::over(server.clone(), &connection)));
    for host in ["a.ns.test", "b.ns.test", "c.ns.test"] {
        bed.expose(&host[..1], &[host]).await;
    }
    eventually("three hosts", PATIENCE, || async {
        let count = server.state().targets.len();
        if count == 3 { Ok(()) } else { Err(count) }
    })
    .await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    server.calls();
    (bed, server, running)
}

/// The calls with a key, by kind: numbers are left out.
fn counted(server: &InProcess) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in server.calls().into_iter().filter(|call| call != "GET /v1") {
        let kind: String = call
            .split('/')
            .map(|part| if part.parse::<i64>().is_ok() { "N" } else { part })
            .collect::<Vec<_>>()
            .join("/");
        *counts.entry(kind).or_insert(0) += 1;
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn an_hour_at_rest_costs_a_list_per_comparison_and_two_reads_per_host() {
    let (_bed, server, _running) = resting(|_| {}).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let counts = counted(&server);
    let of = |call: &str| counts.get(call).copied().unwrap_or_default();
    let lists: usize =
        ["domains", "sites", "resources"].iter().map(|list| of(&format!("GET /v1/org/{ORG}/{list}"))).sum();
    let (settings, targets) = (of("GET /v1/resource/N"), of("GET /v1/resource/N/targets"));
    assert_eq!(counts.values().sum::<usize>(), lists + settings + targets, "no write and nothing else: {counts:?}");
    assert!((11..=14).contains(&of(&format!("GET /v1/org/{ORG}/resources"))), "{counts:?}");
    assert_eq!((settings, targets), (3, 3), "once for each host: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn between_two_comparisons_nothing_is_asked() {
    let (_bed, server, _running) = resting(|policy| policy.resync = Some(Duration::from_hours(1))).await;
    tokio::time::sleep(Duration::from_mins(45)).await;
    assert_eq!(counted(&server), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn without_comparisons_a_day_at_rest_costs_no_call() {
    let (_bed, server, _running) = resting(|policy| policy.resync = None).await;
    tokio::time::sleep(Duration::from_hours(24)).await;
    assert_eq!(counted(&server), BTreeMap::new());
}

/// An Ingress is deleted while the first pass after a start still reads, and the endpoint cannot be deleted: that is reported.
#[tokio::test(start_paused = true)]
async fn a_deletion_during_the_first_pass_is_reported_when_it_fails() {
    use signpost_system_pangolin::APPLIED_ANNOTATION;
    let calls = [
        "GET /v1/org/home-org/domains",
        "GET /v1/org/home-org/resources",
        "GET /v1/resource/101",
        "GET /v1/resource/101/targets",
        "nothing",
    ];
    for slow in calls {
        let (bed, server, running) = resting(|_| {}).await;
        running.crash().await;
        // Without its digest, everything of it is read.
        bed.patch("a", serde_json::json!({"metadata": {"annotations": {APPLIED_ANNOTATION: null}}})).await;
        server.slow(slow, Duration::from_secs(5));
        server.fail("DELETE /v1/resource/");
        let base = parse_base_url("http://pangolin.test").unwrap();
        let connection = Connection::new(base, ORG, Secret::Value(Pangolin::KEY.into()));
        let _running = start_with(&bed, policy(&bed), Arc::new(PangolinClient::over(server.clone(), &connection)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        bed.delete("a").await;
        let api = kube::Api::<k8s_openapi::api::core::v1::Event>::namespaced(bed.cluster.client(), &bed.namespace);
        eventually(&format!("it is reported on the Ingress, {slow} slow"), PATIENCE, || async {
            let events = api.list(&kube::api::ListParams::default()).await.unwrap().items;
            let about = |event: &k8s_openapi::api::core::v1::Event| {
                event.reason.as_deref() == Some("StillExposed") && event.involved_object.name.as_deref() == Some("a")
            };
            if events.iter().any(about) {
                Ok(())
            } else {
                Err(events
                    .into_iter()
                    .map(|event| (event.involved_object.name, event.reason, event.message))
                    .collect::<Vec<_>>())
            }
        })
        .await;
        server.mend();
        eventually("it is deleted in the end", Duration::from_mins(30), || async {
            let count = server.state().resources.len();
            if count == 2 { Ok(()) } else { Err(count) }
        })
        .await;
    }
}
