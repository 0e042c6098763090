//! Lists: both kinds of paging, caches, and lists that cannot be trusted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use signpost_provider_pangolin::{
    Connection, DomainKind, Incoming, Outgoing, Pangolin as _, PangolinClient, PangolinError, Secret, SiteKind,
    Transport, parse_base_url,
};
use signpost_testkit::pangolin::{ResourceRow, Version};
use signpost_testkit::{Fault, FaultProxy, Rule};

use super::{ANY_AGE, client_for, client_of, exposed, name, of, start};

const NOW: Duration = Duration::ZERO;

/// Copies a resource until there are so many.
fn fill(server: &super::Pangolin, count: i64) {
    let mut state = server.state();
    let one: ResourceRow = state.resources.values().next().unwrap().clone();
    for id in 1..count {
        let id = 10_000 + id;
        state.resources.insert(id, ResourceRow { id, nice_id: format!("n-{id}"), ..one.clone() });
    }
}

#[tokio::test]
async fn every_resource_is_read_once_on_every_version() {
    for version in Version::ALL {
        let (server, client) = of(version).await;
        exposed(&client, "app.ns.test").await;
        fill(&server, 2300);
        let ids: BTreeSet<_> = client.resources(NOW).await.unwrap().iter().map(|listed| listed.id).collect();
        assert_eq!(ids.len(), 2300, "{version:?}");
        let before = server.requests().len();
        client.resources(NOW).await.unwrap();
        assert_eq!(server.requests().len() - before, 3, "{version:?}: the kind of paging is remembered");
    }
}

/// A server with so many resources, which counts its requests.
#[derive(Debug)]
struct Many {
    total: usize,
    requests: std::sync::atomic::AtomicUsize,
}

impl Transport for Many {
    fn carry(&self, request: Outgoing) -> futures::future::BoxFuture<'_, Result<Incoming, PangolinError>> {
        self.requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let page = request.url.query_pairs().find(|(name, _)| name == "page");
        let page: usize = page.unwrap().1.parse().unwrap();
        let rows: Vec<_> = (1000 * (page - 1)..(1000 * page).min(self.total))
            .map(|n| json!({ "resourceId": n, "niceId": "x", "name": "x" }))
            .collect();
        let data = json!({ "resources": rows, "pagination": { "total": self.total, "pageSize": 1000, "page": page } });
        let body = json!({ "data": data, "success": true, "error": false, "message": "", "status": 200 });
        let answer = Incoming { status: 200, location: None, retry_after: None, body: body.to_string().into_bytes() };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// A hundred pages, exactly full: no page is asked for that cannot have rows. One page more is an error, never a shorter list.
#[tokio::test]
async fn a_hundred_pages_are_read_and_one_more_is_an_error() {
    let connection = Connection::new(parse_base_url("http://x.test").unwrap(), "home-org", Secret::Value("a.b".into()));
    let many = |total| Arc::new(Many { total, requests: 0.into() });
    let server = many(100_000);
    let client = PangolinClient::over(server.clone(), &connection);
    assert_eq!(client.resources(NOW).await.unwrap().len(), 100_000);
    assert_eq!(server.requests.load(std::sync::atomic::Ordering::SeqCst), 100);
    let error = PangolinClient::over(many(100_001), &connection).resources(NOW).await.unwrap_err();
    assert_eq!(error, PangolinError::Incomplete { list: "resources", what: "it has more than 100 pages".into() });
}

/// A server with offsets, of which a row is deleted after the first page was read.
#[derive(Debug, Default)]
struct Shrinking {
    requests: std::sync::atomic::AtomicUsize,
}

impl Transport for Shrinking {
    fn carry(&self, request: Outgoing) -> futures::future::BoxFuture<'_, Result<Incoming, PangolinError>> {
        let before = self.requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let offset = request.url.query_pairs().find(|(name, _)| name == "offset").map(|(_, value)| value.into_owned());
        let at: usize = offset.as_deref().unwrap_or("0").parse().unwrap();
        // The first request asks for pages, which this server ignores; the second one is the first page.
        let all: Vec<usize> = if before < 2 { (0..1500).collect() } else { (1..1500).collect() };
        let rows = all.iter().skip(at).take(1000).map(|n| json!({ "resourceId": n, "niceId": "x", "name": "x" }));
        let rows: Vec<_> = rows.collect();
        let pagination = json!({ "total": all.len(), "limit": 1000, "offset": at });
        let data = json!({ "resources": rows, "pagination": pagination });
        let body = json!({ "data": data, "success": true, "error": false, "message": "", "status": 200 });
        let answer = Incoming { status: 200, location: None, retry_after: None, body: body.to_string().into_bytes() };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

#[tokio::test]
async fn a_row_that_vanishes_between_two_offsets_hides_no_other() {
    let connection = Connection::new(parse_base_url("http://x.test").unwrap(), "home-org", Secret::Value("a.b".into()));
    let client = PangolinClient::over(Arc::new(Shrinking::default()), &connection);
    let ids: BTreeSet<i64> = client.resources(NOW).await.unwrap().iter().map(|listed| listed.id.0).collect();
    assert_eq!(ids, (1..1500).collect(), "all that are there, once the walk is repeated");
}

#[tokio::test]
async fn an_upgrade_of_the_server_changes_the_paging_without_a_restart() {
    let (server, client) = of(Version::V1_15).await;
    exposed(&client, "app.ns.test").await;
    fill(&server, 50);
    for version in [Version::V1_15, Version::V1_18, Version::V1_15, Version::V1_22] {
        server.upgrade(version);
        assert_eq!(client.resources(NOW).await.unwrap().len(), 50, "{version:?}");
    }
}

#[tokio::test]
async fn items_are_read_as_each_version_shows_them() {
    for version in Version::ALL {
        let (_server, client) = of(version).await;
        exposed(&client, "app.ns.test").await;
        let fresh = client.resources(NOW).await.unwrap();
        let one = &fresh[0];
        assert_eq!((one.sso, one.ssl, one.enabled), (Some(false), Some(true), true), "{version:?}");
        assert_eq!((one.host.as_ref(), one.nice_id.as_str()), (Some(&name("app.ns.test")), "sp-home-1"));
        let targets = one.targets.as_ref().unwrap();
        assert_eq!((targets[0].ip.as_str(), targets[0].port, targets[0].enabled), ("app.demo.svc", 80, true));
    }
}

#[tokio::test]
async fn domains_and_sites_of_the_organisation_are_read_and_kept() {
    for version in Version::ALL {
        let (server, client) = of(version).await;
        let domains = client.domains().await.unwrap();
        let kinds: Vec<_> =
            domains.iter().map(|domain| (domain.base.undotted(), domain.kind, domain.verified)).collect();
        let expected = [
            ("wild.test", DomainKind::Wildcard, true),
            ("ns.test", DomainKind::Ns, true),
            ("one.cname.test", DomainKind::Cname, true),
            ("open.test", DomainKind::Ns, false),
        ];
        assert_eq!(kinds, expected, "{version:?}");
        let sites = client.sites().await.unwrap();
        let kinds: Vec<_> = sites.iter().map(|site| (site.nice_id.as_str(), site.kind)).collect();
        let expected = [("home", SiteKind::Local), ("cluster", SiteKind::Newt), ("guard", SiteKind::Wireguard)];
        assert_eq!(kinds, expected, "{version:?}");
        let before = server.requests().len();
        client.domains().await.unwrap();
        client.sites().await.unwrap();
        assert_eq!(server.requests().len(), before, "{version:?}");
        client.forget();
        client.domains().await.unwrap();
        assert_eq!(server.requests().len(), before + 1, "{version:?}");
    }
}

#[tokio::test]
async fn the_known_list_has_own_writes_without_another_request() {
    let (server, client) = start().await;
    client.resources(NOW).await.unwrap();
    let made = exposed(&client, "app.ns.test").await;
    server.forget_requests();
    let known = client.resources(ANY_AGE).await.unwrap();
    assert_eq!(server.requests(), Vec::<String>::new());
    assert_eq!((known[0].id, known[0].nice_id.as_str(), known[0].sso), (made.id, "sp-home-1", Some(false)));
    assert_eq!(known, client.resources(NOW).await.unwrap(), "as the server has it");
}

fn page(total: u64, shown: (u64, u64), rows: usize) -> Fault {
    let rows: Vec<_> = (0..rows).map(|n| json!({ "resourceId": n, "niceId": "x", "name": "x" })).collect();
    let data = json!({ "resources": rows, "pagination": { "total": total, "pageSize": shown.0, "page": shown.1 } });
    let body = json!({ "data": data, "success": true, "error": false, "message": "", "status": 200 }).to_string();
    Fault::Answer { status: 200, headers: vec![("content-type", "application/json".into())], body }
}

#[tokio::test]
async fn a_list_that_is_not_complete_is_an_error_and_never_shorter() {
    for (fault, why) in [
        (page(25, (20, 1), 20), "another page was returned than asked for"),
        (page(25, (1000, 2), 20), "another page was returned than asked for"),
        (page(5, (1000, 1), 3), "3 of 5 were read"),
    ] {
        let (server, _) = start().await;
        let proxy = FaultProxy::start(&server.url()).await;
        proxy.add(Rule::every(fault).path("/resources"));
        let client = client_for(&proxy.url(), "home-org", super::Pangolin::KEY);
        let error = client.resources(NOW).await.unwrap_err();
        assert_eq!(error, PangolinError::Incomplete { list: "resources", what: why.into() });
    }
}

#[tokio::test]
async fn a_server_that_repeats_its_pages_ends_the_walk_with_an_error() {
    let (server, _) = start().await;
    let proxy = FaultProxy::start(&server.url()).await;
    for n in 1..=3 {
        proxy.add(Rule::every(page(9000, (1000, n), 1000)).path(&format!("&page={n}")));
    }
    let client = client_for(&proxy.url(), "home-org", super::Pangolin::KEY);
    let error = client.resources(NOW).await.unwrap_err();
    assert_eq!(error, PangolinError::Incomplete { list: "resources", what: "a page is repeated".into() });
}

#[tokio::test]
async fn an_organisation_without_domains_is_a_wrong_setting() {
    let (server, _) = start().await;
    let client = client_for(&server.url(), "nowhere", "root.secret");
    let expected = PangolinError::EmptyOrganization { org: "nowhere".into() };
    assert_eq!(client.domains().await.unwrap_err(), expected);
    assert_eq!(client.create_resource(&super::new("a.ns.test")).await.unwrap_err(), expected);
    let client = client_of(&server, "root.secret");
    assert!(client.domains().await.is_ok());
}
