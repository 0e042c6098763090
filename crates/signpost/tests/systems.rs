//! Each system waits for its own kinds only: a missing CRD of one does not delay another.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::{Value, json};
use signpost_dns::ZoneName;
use signpost_engine::health::Check;
use signpost_engine::{Operator, OperatorOptions};
use signpost_provider_pihole::{MemoryPihole, OwnerId};
use signpost_provider_powerdns::MemoryServer;
use signpost_system_pihole::{Instance, Policy};
use signpost_system_powerdns::Pace;
use signpost_testkit::{Cluster, eventually, on_both};
use tokio_util::sync::CancellationToken;

/// How long anything may take, on the busiest machine.
const PATIENCE: Duration = Duration::from_mins(2);

async fn create(cluster: &Cluster, namespace: &str, plural: &str, object: Value) {
    let api_version = object["apiVersion"].as_str().unwrap().to_owned();
    let (group, version) = api_version.split_once('/').unwrap();
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.clone(),
        kind: object["kind"].as_str().unwrap().into(),
        plural: plural.into(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), namespace, &resource);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

on_both! {
    async fn pihole_serves_without_powerdns_kinds_and_powerdns_once_installed(cluster) {
        let namespace = cluster.namespace("systems").await;
        let options = OperatorOptions { namespace: Some(namespace.clone()), ..OperatorOptions::default() };
        let mut operator = Operator::new(cluster.client(), options);
        let (server, pihole) = (MemoryServer::new(), MemoryPihole::new());
        signpost_system_powerdns::install_with(&mut operator, Arc::new(server.clone()), Pace::default());
        let policy = Policy::new(OwnerId::parse("systems").unwrap(), "192.0.2.80".parse().unwrap());
        let instances = vec![Instance::new("pihole", Arc::new(pihole.clone()))];
        signpost_system_pihole::install_instances(&mut operator, policy, instances);
        let health = operator.health();
        let stop = CancellationToken::new();
        let ends = stop.clone();
        let running = tokio::spawn(async move { operator.run(ends).await.unwrap() });

        create(&cluster, &namespace, "ingresses", json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "app", "annotations": {"pihole.io/register": "true"}},
            "spec": {"rules": [{"host": "app.home.arpa"}]}})).await;
        eventually("the Pi-hole has the host", PATIENCE, || async {
            let lines = pihole.listing().hosts;
            if lines.len() == 1 && format!("{lines:?}").contains("192.0.2.80 app.home.arpa") { Ok(()) } else { Err(lines) }
        }).await;
        eventually("the missing kind is reported", PATIENCE, || async {
            let checks = health.checks();
            match checks.get("kind rrsets.dns.cav.enablers.ob") {
                Some(Check::Failing { message, .. }) if message.starts_with("powerdns: RRset") => Ok(()),
                _ => Err(checks),
            }
        }).await;

        cluster.install(&signpost::crds::all()).await;
        let version = "dns.cav.enablers.ob/v1alpha2";
        create(&cluster, &namespace, "zones", json!({"apiVersion": version, "kind": "Zone", "metadata": {"name": "systems.example"},
            "spec": {"kind": "Native", "nameservers": ["ns1.example.net"]}})).await;
        create(&cluster, &namespace, "rrsets", json!({"apiVersion": version, "kind": "RRset", "metadata": {"name": "www"},
            "spec": {"type": "A", "name": "www", "ttl": 300, "records": ["192.0.2.1"],
                "zoneRef": {"name": "systems.example", "kind": "Zone"}}})).await;
        let zone = ZoneName::parse("systems.example").unwrap();
        eventually("PowerDNS has the record, without a restart", PATIENCE, || async {
            let sets = server.contents(&zone).map(|contents| contents.sets).unwrap_or_default();
            let www = sets.iter().find(|set| set.name.undotted() == "www.systems.example");
            // Beside the record, the start of authority and the name servers of the zone.
            let served = www.is_some_and(|set| set.contents.iter().map(ToString::to_string).eq(["192.0.2.1"]));
            if sets.len() == 3 && served { Ok(()) } else { Err(format!("{sets:?}")) }
        }).await;
        eventually("no kind of powerdns is missing any more", PATIENCE, || async {
            let checks = health.checks();
            let failing = |(name, check): (&String, &Check)| name.starts_with("kind ") && matches!(check, Check::Failing { .. });
            if checks.iter().any(failing) { Err(checks) } else { Ok(()) }
        }).await;
        assert_eq!(pihole.listing().hosts.len(), 1, "the Pi-hole still has its host");
        stop.cancel();
        running.await.unwrap();
    }
}
