//! A portal that answers with far too much: what is kept of it is bounded, and the rest is counted.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use signpost_provider_portal::{PortalOptions, RemoteError, RemoteNames, RemotePortal};
use signpost_testkit::ConnectPortal;

async fn names(server: &ConnectPortal) -> Result<RemoteNames, RemoteError> {
    let url = format!("http://{}", server.addr()).parse().unwrap();
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
