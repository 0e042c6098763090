//! The token dialect, and finding out which dialect is spoken.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use common::{close_in, line};
use serde_json::json;
use signpost_provider_pihole::{
    AutoDialect, Capabilities, ChangeSet, Dialect, ErrorClass, Pihole, PiholeError, SpecDialect, V6Dialect,
};
use signpost_testkit::pihole::{PiholeSpec, PiholeV6, Upset};
use signpost_testkit::{Fault, FaultProxy, Rule, dig};

const PATH: &str = "/admin/api/dns/local";

async fn spec() -> (PiholeSpec, SpecDialect) {
    let server = PiholeSpec::start().await;
    let pihole = SpecDialect::new(close_in(&server.url(), PiholeSpec::TOKEN)).unwrap();
    (server, pihole)
}

fn changes(add: &[&str], remove: &[&str]) -> ChangeSet {
    let lines = |raw: &[&str]| raw.iter().map(|raw| line(raw)).collect();
    ChangeSet { add_hosts: lines(add), remove_hosts: lines(remove), ..ChangeSet::default() }
}

#[tokio::test]
async fn row_31_and_51_list_create_and_delete_send_the_documented_calls_only() {
    let (server, pihole) = spec().await;
    assert_eq!(pihole.apply(&changes(&["10.0.0.1 app.lan"], &[])).await.writes, 1);
    assert_eq!(dig(server.dns(), "app.lan", "A").await.records, ["10.0.0.1"]);
    let listing = pihole.list().await.unwrap();
    assert_eq!((listing.hosts, listing.capabilities), (vec![line("10.0.0.1 app.lan")], Capabilities::SPEC));
    assert_eq!(pihole.apply(&changes(&[], &["10.0.0.1 app.lan"])).await.stopped, None);
    assert_eq!(server.requests(), [format!("POST {PATH}"), format!("GET {PATH}"), format!("DELETE {PATH}/app.lan")]);
    assert_eq!(pihole.apply(&changes(&[], &["10.0.0.1 app.lan"])).await.stopped, None, "404 on delete is success");
}

#[tokio::test]
async fn an_address_changes_by_delete_and_post_and_the_post_is_repeated_at_once() {
    let (server, pihole) = spec().await;
    server.add("app.lan", "10.0.0.1");
    server.upset(Upset::status("POST", PATH, 503, 1));
    let applied = pihole.apply(&changes(&["10.0.0.2 app.lan"], &["10.0.0.1 app.lan"])).await;
    assert_eq!((applied.writes, applied.stopped), (3, None));
    assert_eq!(server.records(), [("app.lan".to_owned(), "10.0.0.2".to_owned())]);
}

#[tokio::test]
async fn a_record_whose_successor_is_refused_is_put_back() {
    let (server, pihole) = spec().await;
    server.add("App.lan", "10.0.0.1");
    server.upset(Upset::status("POST", PATH, 400, 1));
    let applied = pihole.apply(&changes(&["10.0.0.2 app.lan"], &["10.0.0.1 App.lan"])).await;
    assert_eq!((applied.refused.len(), applied.writes, applied.stopped), (1, 3, None));
    assert_eq!(applied.refused[0].0, line("10.0.0.2 app.lan"));
    assert_eq!(server.records(), [("App.lan".to_owned(), "10.0.0.1".to_owned())]);
    // The same when the first attempt fails and only the second is refused.
    server.upset(Upset::status("POST", PATH, 503, 1));
    server.upset(Upset::status("POST", PATH, 400, 1));
    let applied = pihole.apply(&changes(&["10.0.0.2 app.lan"], &["10.0.0.1 App.lan"])).await;
    assert_eq!((applied.refused.len(), applied.stopped), (1, None));
    assert_eq!(server.records(), [("App.lan".to_owned(), "10.0.0.1".to_owned())]);
}

#[tokio::test]
async fn a_record_whose_answer_got_lost_is_not_created_twice() {
    let (server, _) = spec().await;
    let proxy = FaultProxy::start(&server.url()).await;
    let pihole = SpecDialect::new(close_in(&proxy.url(), PiholeSpec::TOKEN)).unwrap();
    // The connection breaks before the answer arrives.
    proxy.add(Rule::nth(1, Fault::CutAfter).method(axum::http::Method::POST));
    assert_eq!(pihole.apply(&changes(&["10.0.0.1 a.lan"], &[])).await.stopped, None);
    // The connection breaks before the request arrives.
    proxy.add(Rule::nth(1, Fault::CutBefore).method(axum::http::Method::POST));
    assert_eq!(pihole.apply(&changes(&["10.0.0.1 b.lan"], &[])).await.stopped, None);
    // A proxy gives up on a creation that succeeds.
    server.upset(Upset { effective: true, ..Upset::status("POST", PATH, 504, 1) });
    assert_eq!(pihole.apply(&changes(&["10.0.0.2 a.lan"], &["10.0.0.1 a.lan"])).await.stopped, None);
    let records = |records: &[(&str, &str)]| {
        records.iter().map(|(name, ip)| ((*name).to_owned(), (*ip).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(server.records(), records(&[("b.lan", "10.0.0.1"), ("a.lan", "10.0.0.2")]));
}

#[tokio::test]
async fn row_33_to_37_the_error_table_of_the_request_holds() {
    let (server, pihole) = spec().await;
    for (status, reason) in [
        (401, "Unauthorized"),
        (403, "Unauthorized"),
        (404, "Rejected"),
        (429, "RateLimited"),
        (500, "ServerError"),
        (503, "ServerError"),
    ] {
        server.upset(Upset::status("GET", PATH, status, 1));
        assert_eq!(pihole.list().await.unwrap_err().reason(), reason, "{status} on list");
        server.upset(Upset::status("POST", PATH, status, 1));
        let stopped = pihole.apply(&changes(&["10.0.0.1 a.lan", "10.0.0.1 b.lan"], &[])).await.stopped.unwrap();
        assert_eq!(stopped.reason(), reason, "{status} on create stops the rest");
        let throttled = matches!(stopped.class(), ErrorClass::Throttled(_));
        assert_eq!(throttled, status == 429);
    }
    assert!(server.records().is_empty());
    server.upset(Upset::status("POST", PATH, 400, 1));
    let applied = pihole.apply(&changes(&["10.0.0.1 a.lan", "10.0.0.1 b.lan"], &[])).await;
    assert_eq!((applied.refused.len(), applied.stopped), (1, None), "400 concerns one record; the others go on");
    assert_eq!(applied.refused[0].1.class(), ErrorClass::Permanent);
    assert_eq!(server.records(), [("b.lan".to_owned(), "10.0.0.1".to_owned())]);
}

#[tokio::test]
async fn row_32_any_2xx_is_success() {
    let (server, pihole) = spec().await;
    for status in [200, 201, 202, 204] {
        server.upset(Upset { effective: true, ..Upset::status("POST", PATH, status, 1) });
        assert_eq!(pihole.apply(&changes(&["10.0.0.1 a.lan"], &[])).await.stopped, None, "{status}");
        server.upset(Upset { effective: true, ..Upset::status("DELETE", PATH, status, 1) });
        assert_eq!(pihole.apply(&changes(&[], &["10.0.0.1 a.lan"])).await.stopped, None, "{status}");
    }
    assert!(server.records().is_empty());
}

#[tokio::test]
async fn row_35_a_404_is_success_on_delete_and_worth_another_try_elsewhere() {
    let (server, pihole) = spec().await;
    assert_eq!(pihole.apply(&changes(&[], &["10.0.0.1 never.lan"])).await.stopped, None);
    server.upset(Upset::status("POST", PATH, 404, 1));
    let stopped = pihole.apply(&changes(&["10.0.0.1 a.lan"], &[])).await.stopped.unwrap();
    assert_eq!(stopped.class(), ErrorClass::Transient);
    server.upset(Upset::status("GET", PATH, 404, 1));
    assert_eq!(pihole.list().await.unwrap_err().class(), ErrorClass::Transient);
}

#[tokio::test]
async fn unknown_fields_are_tolerated_and_a_missing_list_is_an_error() {
    let (server, pihole) = spec().await;
    let body = json!({"data": [{"domain": "a.lan", "ip": "10.0.0.1", "ttl": 5}], "page": 1});
    server.upset(Upset { body, ..Upset::status("GET", PATH, 200, 1) });
    assert_eq!(pihole.list().await.unwrap().hosts, [line("10.0.0.1 a.lan")]);
    for body in [json!({}), json!({"data": null}), json!([]), json!({"data": [{"domain": "x"}]})] {
        server.upset(Upset { body: body.clone(), ..Upset::status("GET", PATH, 200, 1) });
        assert_eq!(pihole.list().await.unwrap_err().reason(), "Protocol", "{body}");
    }
}

#[tokio::test]
async fn unsupported_records_are_refused_without_a_request() {
    let (server, pihole) = spec().await;
    let mut set = changes(&["fd00::1 six.lan", "10.0.0.1 two.lan names.lan"], &[]);
    set.add_cnames.push(line("a.lan,b.lan"));
    let applied = pihole.apply(&set).await;
    assert_eq!((applied.refused.len(), applied.stopped), (3, None));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn auto_finds_the_seed_dialect_by_its_first_list_and_asks_nothing_else() {
    let server = PiholeSpec::start().await;
    let pihole = AutoDialect::new(close_in(&server.url(), PiholeSpec::TOKEN)).unwrap();
    assert_eq!(pihole.list().await.unwrap().capabilities, Capabilities::SPEC);
    assert_eq!(server.requests(), [format!("GET {PATH}")]);
    assert_eq!(pihole.dialect(), Some(Dialect::Spec));
    let wrong = AutoDialect::new(close_in(&server.url(), "wrong")).unwrap();
    assert_eq!(wrong.list().await.unwrap_err(), PiholeError::Unauthorized);
    assert_eq!(wrong.dialect(), Some(Dialect::Spec), "a wrong token of the token dialect is not the other dialect");
}

#[tokio::test]
async fn auto_finds_v6_by_the_hint_and_keeps_the_verdict() {
    let server = PiholeV6::start().await;
    let pihole = AutoDialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    let (listed, probed) = tokio::join!(pihole.list(), pihole.probe());
    assert_eq!(listed.unwrap().capabilities, Capabilities::V6);
    probed.unwrap();
    pihole.list().await.unwrap();
    pihole.apply(&changes(&["10.0.0.1 a.lan"], &[])).await;
    let asked = server.requests().iter().filter(|request| request.contains("/admin/")).count();
    assert_eq!((asked, server.counters().logins), (1, 1));
    pihole.close().await;
    assert_eq!(server.sessions(), 0);
}

#[tokio::test]
async fn auto_never_guesses_from_a_server_that_is_down_or_failing() {
    let server = PiholeV6::start().await;
    let pihole = AutoDialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    server.upset(Upset::status("GET", "/admin", 503, 1));
    assert_eq!(pihole.list().await.unwrap_err().reason(), "ServerError");
    assert_eq!(pihole.dialect(), None);
    pihole.list().await.unwrap();
    let nowhere = AutoDialect::new(close_in("http://127.0.0.1:9", "x")).unwrap();
    assert_eq!(nowhere.list().await.unwrap_err().reason(), "Unreachable");
}

#[tokio::test]
async fn auto_takes_no_answer_without_a_list_for_the_token_dialect() {
    let server = PiholeV6::start().await;
    let pihole = AutoDialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    // Something in front of the Pi-hole answers for it: it is asked who it is all the same.
    for (status, body) in [(200, json!({"status": "ok"})), (200, json!([])), (401, json!("log in first"))] {
        let pihole = AutoDialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
        server.upset(Upset { body, ..Upset::status("GET", "/admin", status, 1) });
        assert_eq!(pihole.list().await.unwrap().capabilities, Capabilities::V6);
    }
    let nobody = json!({"neither": "nor"});
    server.upset(Upset { body: nobody.clone(), ..Upset::status("GET", "/admin", 200, 1) });
    server.upset(Upset { body: nobody, ..Upset::status("GET", "/api/auth", 200, 1) });
    assert_eq!(pihole.list().await.unwrap_err(), PiholeError::NotAPihole { status: 200 });
    assert_eq!(pihole.dialect(), None);
    assert_eq!(pihole.list().await.unwrap().capabilities, Capabilities::V6);
    // An answer that stops fitting drops the detected dialect, and the next list detects it again.
    let broken = json!({"config": {}});
    server.upset(Upset { body: broken, ..Upset::status("GET", "/api/config/dns/hosts", 200, 1) });
    assert_eq!(pihole.list().await.unwrap_err().reason(), "Protocol");
    assert_eq!(pihole.dialect(), None);
    assert_eq!(pihole.list().await.unwrap().capabilities, Capabilities::V6);
    assert_eq!(server.counters().logins, 4, "the session is kept: one for each of four connections");
}

#[tokio::test]
async fn auto_reports_a_missing_pihole_and_a_redirect() {
    let router = axum::Router::new().fallback(|| async { (axum::http::StatusCode::NOT_FOUND, "<html>nginx</html>") });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let error = AutoDialect::new(close_in(&url, "x")).unwrap().list().await.unwrap_err();
    assert_eq!(error, PiholeError::NotAPihole { status: 404 });

    let router = axum::Router::new().fallback(|| async {
        (axum::http::StatusCode::MOVED_PERMANENTLY, [("location", "https://pi.example.com/admin/secret-path")], "")
    });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let error = AutoDialect::new(close_in(&url, "x")).unwrap().list().await.unwrap_err();
    assert_eq!(error, PiholeError::Redirected { status: 301, location: "https://pi.example.com".into() });
}

#[tokio::test]
async fn the_wrong_dialect_is_reported_and_is_not_permanent() {
    let server = PiholeV6::start().await;
    let pihole = SpecDialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    let error = pihole.list().await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("WrongDialect", ErrorClass::Transient));
    let spec = PiholeSpec::start().await;
    let error = V6Dialect::new(close_in(&spec.url(), PiholeSpec::TOKEN)).unwrap().list().await.unwrap_err();
    assert_eq!(error.reason(), "Unauthorized", "without a Bearer token the token dialect answers 401 to everything");
}

#[tokio::test]
async fn auto_notices_when_the_server_behind_the_address_changes() {
    let spec = PiholeSpec::start().await;
    let pihole = AutoDialect::new(close_in(&spec.url(), PiholeSpec::TOKEN)).unwrap();
    pihole.list().await.unwrap();
    let hint = json!({"error": {"key": "bad_request", "message": "Bad request", "hint": "The API is hosted at pi.hole/api, not pi.hole/admin/api"}});
    spec.upset(Upset { body: hint, ..Upset::status("GET", PATH, 400, 1) });
    assert_eq!(pihole.list().await.unwrap_err().reason(), "WrongDialect");
    assert_eq!(pihole.dialect(), None, "the dialect is dropped, and detected again by the next list");
    pihole.list().await.unwrap();
    assert_eq!(pihole.dialect(), Some(Dialect::Spec));
    pihole.probe().await.unwrap();
}

#[tokio::test]
async fn a_replica_that_only_asks_for_readiness_notices_a_change_too() {
    let server = PiholeV6::start().await;
    let pihole = AutoDialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    pihole.probe().await.unwrap();
    assert_eq!(pihole.dialect(), Some(Dialect::V6));
    server.upset(Upset::status("GET", "/api/info/login", 404, 1));
    assert_eq!(pihole.probe().await.unwrap_err().reason(), "WrongDialect");
    assert_eq!(pihole.dialect(), None, "detected again by the next request");
    pihole.probe().await.unwrap();
    assert_eq!(pihole.dialect(), Some(Dialect::V6));
    assert_eq!(server.counters().login_attempts, 0);
}
