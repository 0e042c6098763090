//! The test bed itself: the real servers start, can be broken, and leave nothing behind.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use signpost_testkit::{
    Backend, FaultProxy, PowerDns, PowerDnsOptions, dig, eventually, on_both, real_cluster, sandbox_cluster, try_dig,
};

/// Longest wait for a condition.
const TIMEOUT: Duration = Duration::from_mins(2);

on_both! {
    async fn every_namespace_has_a_new_name(cluster) {
        let one = cluster.namespace("fresh").await;
        let two = cluster.namespace("fresh").await;
        assert_ne!(one, two);
    }
}

async fn status_of(client: &kube::Client, path: &str) -> u16 {
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    client.send(request).await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn rbac_decides_what_an_impersonated_user_may_do() {
    let Some(cluster) = real_cluster().await else { return };
    let nobody = cluster.client_as("nobody", &["system:authenticated"]).await;
    assert_eq!(status_of(&nobody, "/api/v1/secrets").await, 403);
    assert_eq!(status_of(&cluster.client(), "/api/v1/secrets").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_works_through_the_fault_proxy() {
    let Some(cluster) = real_cluster().await else { return };
    let proxy = FaultProxy::start(&cluster.config().await.cluster_url.to_string()).await;
    let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig_through(&proxy.url())).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    assert_eq!(status_of(&client, "/api/v1/namespaces").await, 200);
    assert_eq!(proxy.seen()[0].path, "/api/v1/namespaces");
    proxy.add(signpost_testkit::Rule::every(signpost_testkit::Fault::status(500)));
    assert_eq!(status_of(&client, "/api/v1/namespaces").await, 500);
}

async fn create_zone(server: &PowerDns, zone: &str) -> u16 {
    let body = json!({
        "name": zone, "kind": "Native", "nameservers": [format!("ns1.{zone}")],
        "rrsets": [
            {"name": format!("www.{zone}"), "type": "A", "ttl": 60, "records": [{"content": "192.0.2.2", "disabled": false}, {"content": "192.0.2.1", "disabled": false}]},
            {"name": format!("txt.{zone}"), "type": "TXT", "ttl": 60, "records": [{"content": "\"hello \\\"world\\\"\"", "disabled": false}]},
            {"name": format!("big.{zone}"), "type": "TXT", "ttl": 60,
             "records": (0..40).map(|n| json!({"content": format!("\"{n:0>200}\""), "disabled": false})).collect::<Vec<Value>>()},
        ],
    });
    let url = format!("{}/api/v1/servers/localhost/zones", server.api_url());
    let client = reqwest::Client::new();
    client.post(url).header("X-API-Key", server.api_key()).json(&body).send().await.unwrap().status().as_u16()
}

async fn answers_and_survives(backend: Backend) {
    let Some(server) = PowerDns::start(backend, PowerDnsOptions::default()).await else { return };
    assert_eq!(create_zone(&server, "one.test.").await, 201);
    let www = dig(server.dns_addr(), "www.one.test", "A").await;
    assert_eq!(
        (www.rcode.as_str(), www.records.as_slice()),
        ("NOERROR", ["192.0.2.1".to_owned(), "192.0.2.2".into()].as_slice())
    );
    assert_eq!(www.ttl, Some(60));
    assert!(www.authoritative);
    assert_eq!(dig(server.dns_addr(), "txt.one.test.", "TXT").await.records, [r#""hello \"world\"""#]);
    assert_eq!(dig(server.dns_addr(), "big.one.test", "TXT").await.records.len(), 40, "by TCP");
    assert_eq!(dig(server.dns_addr(), "no.one.test", "A").await.rcode, "NXDOMAIN");
    assert_eq!(dig(server.dns_addr(), "elsewhere.test", "A").await.rcode, "REFUSED");

    server.kill();
    try_dig(server.dns_addr(), "www.one.test", "A").await.unwrap_err();
    server.restart().await;
    assert_eq!(dig(server.dns_addr(), "www.one.test", "A").await.records.len(), 2, "the data survived");

    server.pause();
    // A signal takes a moment to stop every thread.
    eventually("it is silent", TIMEOUT, || async {
        match try_dig(server.dns_addr(), "www.one.test", "A").await {
            Err(_) => Ok(()),
            Ok(answer) => Err(answer),
        }
    })
    .await;
    server.resume();
    eventually("it answers again", TIMEOUT, || try_dig(server.dns_addr(), "www.one.test", "A")).await;

    let old = server.api_key();
    server.replace_api_key("another").await;
    assert_ne!(server.api_key(), old);
    assert_eq!(create_zone(&server, "two.test.").await, 201);

    server.wipe().await;
    assert_eq!(dig(server.dns_addr(), "www.one.test", "A").await.rcode, "REFUSED");
    assert_eq!(create_zone(&server, "one.test.").await, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn powerdns_on_sqlite_answers_and_survives() {
    answers_and_survives(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn powerdns_on_lmdb_answers_and_survives() {
    answers_and_survives(Backend::Lmdb).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_cluster_has_a_supported_version() {
    let Some(cluster) = real_cluster().await else { return };
    assert!(cluster.is_real());
    assert!(sandbox_cluster().await.sandbox().is_some());
    let version = cluster.client().apiserver_version().await.unwrap();
    let minor: u32 = version.minor.parse().unwrap();
    assert!(version.major == "1" && minor >= 34, "{}", version.git_version);
}
