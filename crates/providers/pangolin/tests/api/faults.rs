//! Keys, outages, and answers that are not what the API promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use signpost_provider_pangolin::{
    Connection, ErrorClass, Pangolin as _, PangolinClient, PangolinError, Secret, Timing, parse_base_url,
};
use signpost_testkit::pangolin::{ORG, Pangolin};
use signpost_testkit::{Fault, FaultProxy, Rule};

use super::{client_for, exposed, new, start};

const NOW: Duration = Duration::ZERO;

fn through(proxy: &FaultProxy) -> PangolinClient {
    client_for(&proxy.url(), ORG, Pangolin::KEY)
}

#[tokio::test]
async fn wrong_keys_are_told_apart() {
    let (server, _) = start().await;
    for (org, key, expected) in [
        (ORG, "nobody.secret", PangolinError::Unauthorized),
        (ORG, "minimum.wrong", PangolinError::Unauthorized),
        (ORG, "minimum", PangolinError::MalformedKey),
        (ORG, ".secret", PangolinError::MalformedKey),
        (ORG, "minimum.\n", PangolinError::MalformedKey),
        (ORG, "other.secret", PangolinError::OtherOrganization { org: ORG.into() }),
        ("nowhere", "minimum.secret", PangolinError::OtherOrganization { org: "nowhere".into() }),
        (ORG, "none.secret", PangolinError::Forbidden { permission: "listResources" }),
        (ORG, "powerless.secret", PangolinError::Forbidden { permission: "listResources" }),
    ] {
        let error = client_for(&server.url(), org, key).resources(NOW).await.unwrap_err();
        assert_eq!((&error, error.class()), (&expected, ErrorClass::Settings), "{key:?}");
        assert!(!error.to_string().contains("minimum"), "{error}");
    }
}

#[tokio::test]
async fn a_rotated_key_is_read_from_its_file_at_the_next_call() {
    let (server, _) = start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "minimum.secret\n").unwrap();
    let key = Secret::File(file.path().to_owned());
    let client = PangolinClient::new(&Connection::new(parse_base_url(&server.url()).unwrap(), ORG, key)).unwrap();
    client.resources(NOW).await.unwrap();
    server.rotate("minimum", "fresh");
    assert_eq!(client.resources(NOW).await, Err(PangolinError::Unauthorized));
    std::fs::write(file.path(), "minimum.fresh").unwrap();
    client.resources(NOW).await.unwrap();
}

#[tokio::test]
async fn the_probe_needs_no_key_and_finds_what_is_not_the_api() {
    let (server, _) = start().await;
    client_for(&server.url(), ORG, "nobody").probe().await.unwrap();
    assert_eq!(server.requests(), Vec::<String>::new());
    let elsewhere = client_for(&format!("{}/dashboard", server.url()), ORG, Pangolin::KEY);
    assert_eq!(elsewhere.probe().await, Err(PangolinError::NotTheApi { status: 404 }));
    let error = elsewhere.resources(NOW).await.unwrap_err();
    assert_eq!(error, PangolinError::NotTheApi { status: 404 });
    assert!(error.to_string().contains("enable_integration_api"), "{error}");
}

#[tokio::test]
async fn answers_that_are_not_the_envelope_are_errors() {
    let (server, _) = start().await;
    let proxy = FaultProxy::start(&server.url()).await;
    let client = through(&proxy);
    let answer = |status, body: &str| Fault::Answer { status, headers: Vec::new(), body: body.to_owned() };
    let redirect = Fault::Answer {
        status: 302,
        headers: vec![("location", "https://login.test/x?y".into())],
        body: String::new(),
    };
    for (fault, reason) in [
        (answer(200, "<html>Login</html>"), "NotTheApi"),
        (answer(200, "{\"data\":{\"resources\":[]"), "Protocol"),
        (answer(200, "{\"success\":true,\"data\":{}}"), "Incomplete"),
        (answer(200, "[]"), "Protocol"),
        (answer(404, "<html>"), "NotTheApi"),
        (answer(413, "{}"), "Rejected"),
        (answer(502, "<html>Bad gateway</html>"), "ServerError"),
        (answer(500, "{\"success\":false,\"message\":\"An error occurred\"}"), "ServerError"),
        (Fault::throttled(7), "RateLimited"),
        (redirect, "Redirected"),
        (Fault::CutBefore, "Unreachable"),
        (Fault::CutBody(20), "Unreachable"),
    ] {
        proxy.clear();
        proxy.add(Rule::every(fault.clone()));
        assert_eq!(client.resources(NOW).await.unwrap_err().reason(), reason, "{fault:?}");
    }
    proxy.clear();
    assert!(client.resources(NOW).await.unwrap().is_empty());
    let throttled = PangolinError::RateLimited { retry_after: Some(Duration::from_secs(7)) };
    assert_eq!(throttled.class(), ErrorClass::Throttled(Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn a_dropped_connection_repeats_a_read_once_and_a_write_never() {
    let (server, _) = start().await;
    let proxy = FaultProxy::start(&server.url()).await;
    let client = through(&proxy);
    proxy.add(Rule::nth(1, Fault::CutBefore));
    client.resources(NOW).await.unwrap();
    proxy.clear();
    client.domains().await.unwrap();
    proxy.add(Rule::nth(1, Fault::CutAfter).method(http::Method::PUT));
    let error = client.create_resource(&new("app.ns.test")).await.unwrap_err();
    assert_eq!(error.reason(), "Unreachable");
    assert_eq!(server.state().resources.len(), 1, "the answer was lost, not the request");
}

#[tokio::test]
async fn after_a_lost_answer_the_host_is_looked_up_before_another_create() {
    let (server, _) = start().await;
    let proxy = FaultProxy::start(&server.url()).await;
    let client = through(&proxy);
    client.resources(NOW).await.unwrap();
    proxy.add(Rule::nth(1, Fault::CutAfter).method(http::Method::PUT));
    client.create_resource(&new("app.ns.test")).await.unwrap_err();
    assert_eq!(client.create_resource(&new("app.ns.test")).await.unwrap_err().reason(), "HostTaken");
    assert_eq!(server.state().resources.len(), 1);
    // It is found by its name and host, and can be marked.
    let listed = client.resources(Duration::MAX).await.unwrap()[0].clone();
    assert_eq!(listed.name, new("app.ns.test").name);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_at_the_deadline() {
    let (server, _) = start().await;
    let proxy = FaultProxy::start(&server.url()).await;
    proxy.add(Rule::every(Fault::Hang));
    let timing = Timing { total: Duration::from_millis(200), ..Timing::default() };
    let base = Connection::new(parse_base_url(&proxy.url()).unwrap(), ORG, Secret::Value(Pangolin::KEY.into()));
    let client = PangolinClient::new(&Connection { timing, ..base }).unwrap();
    let error = client.resources(NOW).await.unwrap_err();
    assert_eq!((&error, error.is_ambiguous()), (&PangolinError::Timeout, true));
}

#[tokio::test]
async fn at_most_two_calls_are_in_flight() {
    let (server, client) = start().await;
    let made = exposed(&client, "app.ns.test").await;
    let proxy = FaultProxy::start(&server.url()).await;
    proxy.add(Rule::every(Fault::Hang));
    let client = Arc::new(through(&proxy));
    let ended = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let (client, ended) = (Arc::clone(&client), Arc::clone(&ended));
        tokio::spawn(async move {
            let _ = client.resource(made.id).await;
            ended.fetch_add(1, Ordering::SeqCst);
        });
    }
    let in_flight = || async {
        let seen = proxy.seen().len();
        if seen >= 2 { Ok(()) } else { Err(seen) }
    };
    signpost_testkit::eventually("two calls are in flight", Duration::from_secs(30), in_flight).await;
    // Every other task has had its turn.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(proxy.seen().len(), 2);
    proxy.clear();
    let all = || async {
        let done = ended.load(Ordering::SeqCst);
        if done == 8 { Ok(()) } else { Err(done) }
    };
    signpost_testkit::eventually("the others follow", Duration::from_secs(30), all).await;
}
