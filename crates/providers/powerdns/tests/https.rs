//! A real PowerDNS behind HTTPS, as people put it behind a proxy: with an authority of one's own, and under a path.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use axum::{Router, body::Body, extract::Request, response::Response};
use signpost_dns::{Fqdn, ZoneName};
use signpost_provider_powerdns::{
    ClientOptions, Health, NewZone, PowerDnsClient, Secret, ServerError, ZoneServer, ZoneSettings,
};
use signpost_testkit::{PowerDns, TlsFront};

async fn server() -> Option<&'static PowerDns> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    PowerDns::shared_lmdb().await
}

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

fn client(server: &PowerDns, url: &str, ca_path: Option<PathBuf>, insecure: bool) -> PowerDnsClient {
    PowerDnsClient::new(ClientOptions {
        url: url.parse().unwrap(),
        key: Secret::Value(server.api_key()),
        vhost: "localhost".into(),
        timeout: Duration::from_mins(1),
        insecure,
        ca_path,
        concurrency: 2,
    })
    .unwrap()
}

#[tokio::test]
async fn the_right_authority_is_enough() {
    let Some(server) = server().await else { return };
    let front = TlsFront::open_by_address(address(&server.api_url())).await;
    let client = client(server, &front.url(), Some(front.ca_file().to_owned()), false);
    assert_eq!(client.server().await.unwrap().daemon_type, "authoritative");
}

#[tokio::test]
async fn another_authority_or_none_is_an_error_that_names_the_setting() {
    let Some(server) = server().await else { return };
    let front = TlsFront::open_by_address(address(&server.api_url())).await;
    let other = TlsFront::open(address(&server.api_url())).await;
    for ca_path in [Some(other.ca_file().to_owned()), None] {
        let client = client(server, &front.url(), ca_path.clone(), false);
        let error = client.server().await.unwrap_err();
        assert!(matches!(error, ServerError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains("PDNS_API_CA_PATH"), "{ca_path:?}: {error}");
        let health = client.health();
        assert!(matches!(&health, Health::Down { why } if why.contains("PDNS_API_CA_PATH")), "{health:?}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_by_the_right_authority_too() {
    let Some(server) = server().await else { return };
    let front = TlsFront::open(address(&server.api_url())).await;
    let client = client(server, &front.url(), Some(front.ca_file().to_owned()), false);
    assert!(matches!(client.server().await, Err(ServerError::Unreachable { .. })));
}

#[tokio::test]
async fn insecure_takes_any_certificate() {
    let Some(server) = server().await else { return };
    let front = TlsFront::open(address(&server.api_url())).await;
    let client = client(server, &front.url(), None, true);
    assert_eq!(client.server().await.unwrap().daemon_type, "authoritative");
}

#[tokio::test]
async fn a_file_without_a_certificate_names_the_setting() {
    let Some(server) = server().await else { return };
    let file = std::env::temp_dir().join(format!("signpost-no-certificate-{}", std::process::id()));
    std::fs::write(&file, "nothing\n").unwrap();
    let options = ClientOptions {
        url: server.api_url().parse().unwrap(),
        key: Secret::Value("k".into()),
        vhost: "localhost".into(),
        timeout: Duration::from_mins(1),
        insecure: false,
        ca_path: Some(file.clone()),
        concurrency: 2,
    };
    let error = PowerDnsClient::new(options).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    assert!(error.starts_with("PDNS_API_CA_PATH: "), "{error}");
}

/// A proxy that serves PowerDNS under `/dns` and nothing else.
async fn under_a_path(to: String) -> SocketAddr {
    let app = Router::new().fallback(move |request: Request| {
        let to = to.clone();
        async move {
            let (head, body) = request.into_parts();
            let path = head.uri.path_and_query().unwrap().as_str();
            let Some(path) = path.strip_prefix("/dns") else {
                return Response::builder().status(404).body(Body::from("<html>not here</html>")).unwrap();
            };
            let mut headers = head.headers;
            headers.remove("host");
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let sent = reqwest::Client::new().request(head.method, format!("{to}{path}")).headers(headers).body(body);
            let answer = sent.send().await.unwrap();
            let status = answer.status();
            Response::builder().status(status).body(Body::from(answer.bytes().await.unwrap())).unwrap()
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

#[tokio::test]
async fn a_zone_lives_behind_https_and_a_path() {
    let Some(server) = server().await else { return };
    let front = TlsFront::open_by_address(under_a_path(server.api_url()).await).await;
    let zone = NewZone {
        name: ZoneName::parse("_under.a-path.example").unwrap(),
        kind: "Native".into(),
        nameservers: vec![Fqdn::parse("ns1.example.org").unwrap()],
        settings: ZoneSettings::default(),
    };
    for url in [format!("{}/dns", front.url()), format!("{}/dns/", front.url())] {
        let client = client(server, &url, Some(front.ca_file().to_owned()), false);
        client.create(&zone).await.unwrap();
        assert!(client.read(&zone.name).await.unwrap().is_some());
        assert_eq!(client.delete(&zone.name).await, Ok(true));
        assert_eq!(client.zone(&zone.name).await, Ok(None));
    }
    let lost = client(server, &front.url(), Some(front.ca_file().to_owned()), false);
    let error = lost.zone(&zone.name).await.unwrap_err();
    assert!(error.to_string().contains("PDNS_API_URL"), "{error}");
}
