//! A portal that answers with far too much: what is kept of it is bounded, and the rest is counted.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use signpost_provider_portal::{PortalOptions, RemoteError, RemoteNames, RemotePortal};
use signpost_testkit::ConnectPortal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn names(server: &ConnectPortal) -> Result<RemoteNames, RemoteError> {
    names_at(server.addr()).await
}

async fn names_at(server: SocketAddr) -> Result<RemoteNames, RemoteError> {
    let url = format!("http://{server}").parse().unwrap();
    let options = PortalOptions { url, certificates: signpost_provider_http::Certificates::default(), insecure: false };
    RemotePortal::new(options).unwrap().names(None).await
}

fn many(count: usize, text: &str) -> Vec<String> {
    (0..count).map(|number| format!("{text}{number}")).collect()
}

#[tokio::test]
async fn what_a_name_brings_along_is_bounded() {
    let server = ConnectPortal::start("main", 10).await;
    server.set_fqdns(vec![
        json!({ "name": "a.example.org", "groups": many(100, "g"), "targets": many(1_000, &"t".repeat(2_000)) }),
        json!({ "name": "b.example.org", "groups": vec!["x"; 100], "description": "d".repeat(100_000) }),
    ]);
    let read = names(&server).await.unwrap();
    let [a, b] = &read.names[..] else { panic!("{read:?}") };
    assert_eq!((a.groups.len(), a.targets.len()), (8, 32));
    assert!(a.targets.iter().all(|target| target.chars().count() <= 513));
    assert_eq!((&b.groups[..], b.description.as_ref().unwrap().chars().count()), (&["x".to_owned()][..], 1_025));
}

#[tokio::test]
async fn a_page_of_more_names_than_are_read_is_counted() {
    // Two octets in the answer, and hundreds in memory.
    let server = ConnectPortal::start("main", usize::MAX).await;
    server.set_pages(false);
    server.set_fqdns(vec![json!({}); 150_000]);
    let read = names(&server).await.unwrap();
    assert_eq!((read.names.len(), read.omitted), (20_000, 130_000));
}

#[tokio::test]
async fn the_names_of_all_pages_are_bounded_together() {
    let server = ConnectPortal::start("main", 200).await;
    let long =
        |number: usize| json!({ "name": format!("n{number}.example.org"), "targets": vec!["t".repeat(512); 32] });
    server.set_fqdns((0..3_000).map(long).collect());
    let read = names(&server).await.unwrap();
    let octets: usize = read.names.iter().flat_map(|name| &name.targets).map(String::len).sum();
    assert!(octets <= 24 << 20, "{octets}");
    assert!(read.omitted > 0);
    assert_eq!(read.names.len() + read.omitted, 3_000, "what is not kept is counted");
}

#[tokio::test]
async fn a_list_of_portals_without_an_end_is_read_to_its_limit() {
    let server = ConnectPortal::start("main", 10).await;
    let mut portals: Vec<Value> = vec![json!({}); 200_000];
    portals.push(json!({ "name": "main", "main": true }));
    server.set_portals(portals);
    let error = names(&server).await.unwrap_err();
    assert!(error.to_string().contains("no main portal"), "{error}");
}

/// A server whose answers have no end. Returns its address, and how many octets of answers it could send.
async fn endless(length: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    const PART: usize = 65_536;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, sent) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = sent.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The question is short: one read has all of it.
            let mut question = vec![0; PART];
            if stream.read(&mut question).await.is_err() {
                continue;
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{length}\r\n\r\n");
            let part = " ".repeat(PART);
            let part = if length.starts_with("transfer") { format!("{PART:x}\r\n{part}\r\n") } else { part };
            let mut open = stream.write_all(head.as_bytes()).await;
            while open.is_ok() {
                open = stream.write_all(part.as_bytes()).await;
                counter.fetch_add(PART, Ordering::SeqCst);
            }
        }
    });
    (address, sent)
}

#[tokio::test]
async fn an_answer_of_any_length_is_read_to_its_limit() {
    for length in ["content-length: 1073741824", "transfer-encoding: chunked"] {
        let (server, sent) = endless(length).await;
        let error = names_at(server).await.unwrap_err();
        assert!(error.to_string().contains("larger than 8 MiB"), "{length}: {error}");
        // The rest is what the buffers of two sockets hold.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 64 << 20, "{length}: {sent} octets were sent");
    }
}

#[tokio::test]
async fn pages_without_an_end_are_an_error() {
    let server = ConnectPortal::start("main", 1).await;
    server.set_fqdns((0..1_100).map(|number| json!({ "name": format!("n{number}.example.org") })).collect());
    let error = names(&server).await.unwrap_err();
    assert!(error.to_string().contains("do not end after 1000 pages"), "{error}");
}
