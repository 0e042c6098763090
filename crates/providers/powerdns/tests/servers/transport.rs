//! Failures of HTTP, on a stand-in that answers anything.

use super::*;
use axum::{Router, body::Body, extract::Request, http::StatusCode, response::Response};
use signpost_provider_powerdns::ErrorClass;

async fn serve(answer: impl Fn(&Request) -> Response + Clone + Send + Sync + 'static) -> String {
    tls();
    let app = Router::new().fallback(move |request: Request| {
        let response = answer(&request);
        async move { response }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

fn answer(status: u16, body: &str) -> Response {
    Response::builder().status(status).body(Body::from(body.to_owned())).unwrap()
}

fn zone() -> ZoneName {
    ZoneName::parse("example.com").unwrap()
}

/// A server's description of itself.
const SERVER: &str = r#"{"type": "Server", "id": "localhost", "daemon_type": "authoritative", "version": "5.0.0"}"#;

#[tokio::test]
async fn a_zone_is_missing_only_when_a_server_reports_it() {
    let zone = zone();
    let stranger = serve(|_| answer(404, "<html>not here</html>")).await;
    let nameless = serve(|request| match request.uri().path() {
        "/api/v1/servers/localhost" => answer(200, r#"{"daemon_type": "", "version": ""}"#),
        _ => answer(404, "Not Found"),
    })
    .await;
    for url in [stranger, nameless] {
        let client = client(&url, "k");
        let answers = [
            client.zone(&zone).await.map(drop),
            client.read(&zone).await.map(drop),
            client.delete(&zone).await.map(drop),
            client.patch(&zone, &[]).await.map(drop),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert!(matches!(error, ServerError::Protocol { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("PDNS_API_URL") && text.contains("PDNS_API_VHOST"), "{text}");
        }
        let health = format!("{:?}", client.health());
        assert!(health.contains("Down") && health.contains("PDNS_API_VHOST"), "{health}");
    }
    let server = serve(|request| match request.uri().path() {
        "/api/v1/servers/localhost" => answer(200, SERVER),
        _ => answer(404, "Not Found"),
    })
    .await;
    let client = client(&server, "k");
    assert_eq!(client.zone(&zone).await, Ok(None));
    assert_eq!(client.read(&zone).await, Ok(None));
    assert_eq!(client.delete(&zone).await, Ok(false));
    assert_eq!(client.patch(&zone, &[]).await, Err(ServerError::NoZone));
}

/// Whether a change was answered with 404 although the server has the zone.
fn is_not_found<T>(result: &Result<T, ServerError>) -> bool {
    matches!(result, Err(ServerError::Failed { status: 404, .. }))
}

#[tokio::test]
async fn one_404_of_a_proxy_is_not_a_missing_zone() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    // The proxy passes on everything but the first request about a zone.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let url = serve(move |request| match (request.method().as_str(), request.uri().path()) {
        (_, "/api/v1/servers/localhost") => answer(200, SERVER),
        _ if count.fetch_add(1, Ordering::SeqCst) == 0 => answer(404, "<html>not here</html>"),
        ("GET", _) => answer(200, &zone_body("example.com.")),
        _ => answer(204, ""),
    })
    .await;
    let (client, zone) = (client(&url, "k"), zone());
    assert!(client.zone(&zone).await.unwrap().is_some());
    asked.store(0, Ordering::SeqCst);
    assert!(client.read(&zone).await.unwrap().is_some());
    asked.store(0, Ordering::SeqCst);
    assert!(is_not_found(&client.configure(&zone, &ZoneSettings::default()).await));
    asked.store(0, Ordering::SeqCst);
    assert!(is_not_found(&client.delete(&zone).await));
    asked.store(0, Ordering::SeqCst);
    assert!(is_not_found(&client.patch(&zone, &[]).await));
    assert_eq!(asked.load(Ordering::SeqCst), 2, "the change is sent once, and then the zone is looked for");
    client.patch(&zone, &[]).await.unwrap();
}

#[tokio::test]
async fn errors_are_classified_by_status_and_carry_the_servers_words() {
    for (status, class) in [
        (401, ErrorClass::Unauthorised),
        (403, ErrorClass::Unauthorised),
        (409, ErrorClass::Transient),
        (422, ErrorClass::Refused),
        (400, ErrorClass::Refused),
        (413, ErrorClass::Refused),
        (429, ErrorClass::Throttled(None)),
        (500, ErrorClass::Transient),
        (503, ErrorClass::Transient),
        (302, ErrorClass::Transient),
    ] {
        let url = serve(move |_| answer(status, r#"{"error": "its words"}"#)).await;
        let error = client(&url, "k").zone(&zone()).await.unwrap_err();
        assert_eq!(error.class(), class, "{status}");
        if class == ErrorClass::Refused {
            let expected = if status == 413 { "the request is too large (413): its words" } else { "its words" };
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[tokio::test]
async fn only_a_422_at_its_creation_proves_that_a_zone_is_missing() {
    for (status, proof) in [(422, true), (400, false), (413, false)] {
        let url = serve(move |_| answer(status, r#"{"error": "its words"}"#)).await;
        let error = client(&url, "k").create(&new_zone(&zone())).await.unwrap_err();
        assert_eq!(matches!(error, ServerError::Refused { .. }), proof, "{status}: {error:?}");
        assert_eq!(error.is_uncertain(), !proof, "{status}: {error:?}");
        assert!(error.to_string().contains("its words"), "{error}");
    }
}

#[tokio::test]
async fn retry_after_is_passed_on_within_reason() {
    let for_ever = "18446744073709551615";
    for (asked, taken) in [("7", Some(7)), ("0", Some(0)), ("86400", Some(300)), (for_ever, Some(300)), ("soon", None)]
    {
        let url = serve(move |_| {
            let mut response = answer(429, "busy");
            response.headers_mut().insert("retry-after", asked.parse().unwrap());
            response
        })
        .await;
        let error = client(&url, "k").zone(&zone()).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Throttled(taken.map(Duration::from_secs)), "{asked}");
    }
}

#[tokio::test]
async fn retry_after_may_be_a_date() {
    let at = std::time::SystemTime::now() + Duration::from_mins(1);
    let url = serve(move |_| {
        let mut response = answer(503, "busy");
        response.headers_mut().insert("retry-after", httpdate::fmt_http_date(at).parse().unwrap());
        response
    })
    .await;
    let class = client(&url, "k").zone(&zone()).await.unwrap_err().class();
    assert!(matches!(class, ErrorClass::Throttled(Some(wait)) if (40..=60).contains(&wait.as_secs())), "{class:?}");
}

#[tokio::test]
async fn unavailable_with_retry_after_is_a_wait() {
    let url = serve(|_| {
        let mut response = answer(503, "busy");
        response.headers_mut().insert("retry-after", "7".parse().unwrap());
        response
    })
    .await;
    let error = client(&url, "k").zone(&zone()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Throttled(Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn all_errors_are_reported_without_control_characters() {
    let url = serve(|_| answer(422, "{\"error\": \"one\", \"errors\": [\"one\", \"two\\u001b[31m\"]}")).await;
    let error = client(&url, "k").zone(&zone()).await.unwrap_err();
    assert_eq!(error.to_string(), "one; two [31m");
}

#[tokio::test]
async fn a_path_prefix_is_kept_and_every_request_asks_for_json_with_the_key() {
    let url = serve(|request| {
        let right = request.headers()["accept"] == "application/json" && request.headers()["x-api-key"] == "k";
        match request.uri().path().strip_prefix("/behind/a/proxy/api/v1/servers/localhost") {
            Some("/zones/=5Fa.example.com.") if right => answer(404, ""),
            Some("") if right => answer(200, SERVER),
            _ => answer(500, ""),
        }
    })
    .await;
    let client = client(&format!("{url}/behind/a/proxy/"), "k");
    assert_eq!(client.zone(&ZoneName::parse("_a.example.com").unwrap()).await, Ok(None));
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_after_the_deadline() {
    tls();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut options = options(&url, "k");
    options.timeout = Duration::from_millis(200);
    let client = PowerDnsClient::new(options).unwrap();
    let error = client.zone(&zone()).await.unwrap_err();
    assert_eq!(error, ServerError::Timeout { after: Duration::from_millis(200) });
    drop(listener);
}

#[tokio::test]
async fn an_answer_that_is_not_json_is_a_failure_not_an_empty_zone() {
    let url = serve(|_| answer(200, "<html>login</html>")).await;
    let client = client(&url, "k");
    assert!(matches!(client.read(&zone()).await, Err(ServerError::Protocol { .. })));
    assert!(matches!(client.patch(&zone(), &[]).await, Err(ServerError::Protocol { .. })));
    assert!(matches!(client.delete(&zone()).await, Err(ServerError::Protocol { .. })));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_opens_the_breaker() {
    tls();
    let client = client("http://127.0.0.1:1", "k");
    for _ in 0..5 {
        assert!(matches!(client.zone(&zone()).await, Err(ServerError::Unreachable { .. })));
    }
    assert!(matches!(client.zone(&zone()).await, Err(ServerError::Paused { .. })));
    let health = client.health();
    assert!(
        matches!(&health, signpost_provider_powerdns::Health::Down { why } if why.starts_with("http://127.0.0.1:1: ")),
        "{health:?}"
    );
}

#[tokio::test]
async fn a_key_file_is_read_again_for_every_call() {
    let url = serve(|request| {
        let right = request.headers()["x-api-key"] == "second";
        match request.uri().path() {
            "/api/v1/servers/localhost" if right => answer(200, SERVER),
            _ => answer(if right { StatusCode::NOT_FOUND.as_u16() } else { 500 }, ""),
        }
    })
    .await;
    let file = std::env::temp_dir().join(format!("signpost-provider-key-{}", std::process::id()));
    std::fs::write(&file, "first").unwrap();
    let client = PowerDnsClient::new(ClientOptions { key: Secret::File(file.clone()), ..options(&url, "") }).unwrap();
    assert!(client.zone(&zone()).await.is_err());
    std::fs::write(&file, "second\n").unwrap();
    assert_eq!(client.zone(&zone()).await, Ok(None));
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(client.zone(&zone()).await, Err(ServerError::Key { .. })));
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_a_problem_of_the_settings() {
    tls();
    let mut options = options("https://127.0.0.1:1", "k");
    options.ca_path = Some("/nonexistent/ca.pem".into());
    assert!(PowerDnsClient::new(options).unwrap_err().to_string().contains("/nonexistent/ca.pem"));
}
#[tokio::test]
async fn no_call_that_changes_something_outlives_the_deadline() {
    tls();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let timeout = Duration::from_millis(200);
    let client = PowerDnsClient::new(ClientOptions { timeout, ..options(&url, "k") }).unwrap();
    let zone = zone();
    let answers = [
        client.create(&new_zone(&zone)).await.map(drop),
        client.configure(&zone, &ZoneSettings::default()).await,
        client.patch(&zone, &[replace(&zone, "www", "A", &["192.0.2.1"])]).await.map(drop),
        client.delete(&zone).await.map(drop),
    ];
    assert_eq!(answers, [(); 4].map(|()| Err(ServerError::Timeout { after: timeout })));
    drop(listener);
}

/// A zone as the server tells it, under an identifier of its choice.
fn zone_body(id: &str) -> String {
    format!(r#"{{"id": "{id}", "name": "example.com.", "kind": "Native", "serial": 7}}"#)
}

#[tokio::test]
async fn a_zone_is_asked_for_by_the_identifier_that_the_server_gave_it() {
    let url = serve(|request| {
        let path = request.uri().path().strip_prefix("/api/v1/servers/localhost").unwrap_or_default();
        match (request.method().as_str(), path) {
            ("POST", "/zones") | ("GET", "/zones/example.com." | "/zones/opaque=7") => {
                answer(200, &zone_body("opaque=7"))
            }
            ("PUT" | "PATCH" | "DELETE", "/zones/opaque=7") => answer(204, ""),
            ("GET", "") => answer(200, SERVER),
            _ => answer(404, "Not Found"),
        }
    })
    .await;
    let zone = zone();
    for made in [true, false] {
        let client = client(&url, "k");
        let info = if made {
            client.create(&new_zone(&zone)).await.unwrap()
        } else {
            assert!(is_not_found(&client.patch(&zone, &[]).await), "it does not know the identifier yet");
            client.zone(&zone).await.unwrap().unwrap()
        };
        assert_eq!(info.id, "opaque=7");
        client.patch(&zone, &[]).await.unwrap();
        client.configure(&zone, &ZoneSettings::default()).await.unwrap();
        assert!(client.read(&zone).await.unwrap().is_some());
        assert_eq!(client.delete(&zone).await, Ok(true));
        assert!(is_not_found(&client.patch(&zone, &[]).await), "a deleted zone has no identifier");
    }
}

#[tokio::test]
async fn another_server_id_is_in_every_path() {
    let url = serve(|request| match request.uri().path().strip_prefix("/api/v1/servers/dns=2Feast") {
        Some("") => answer(200, SERVER),
        Some("/zones" | "/zones/example.com.") if request.method() != "PATCH" => {
            answer(200, &zone_body("example.com."))
        }
        Some("/zones/example.com.") => answer(204, ""),
        _ => answer(404, "Not Found"),
    })
    .await;
    let client = PowerDnsClient::new(ClientOptions { vhost: "dns=2Feast".into(), ..options(&url, "k") }).unwrap();
    let zone = zone();
    assert_eq!(client.server().await.unwrap().daemon_type, "authoritative");
    client.create(&new_zone(&zone)).await.unwrap();
    client.patch(&zone, &[]).await.unwrap();
    assert!(client.read(&zone).await.unwrap().is_some() && client.zone(&zone).await.unwrap().is_some());
}

#[tokio::test]
async fn only_so_many_calls_are_under_way_at_once() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    tls();
    // No request is answered before the test allows it.
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let door = Arc::new(tokio::sync::Semaphore::new(0));
    let (counter, top, gate) = (inside.clone(), most.clone(), door.clone());
    let app = Router::new().fallback(move |_: Request| {
        let (counter, top, gate) = (counter.clone(), top.clone(), gate.clone());
        async move {
            top.fetch_max(counter.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _passed = gate.acquire().await;
            counter.fetch_sub(1, Ordering::SeqCst);
            answer(200, SERVER)
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let client = Arc::new(PowerDnsClient::new(ClientOptions { concurrency: 3, ..options(&url, "k") }).unwrap());
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.server().await })
        })
        .collect();
    signpost_testkit::eventually("the door is full", Duration::from_mins(1), || async {
        let so_far = inside.load(Ordering::SeqCst);
        if so_far >= 3 { Ok(()) } else { Err(so_far) }
    })
    .await;
    door.add_permits(12);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_answer_without_end_is_given_up_with_a_plain_word() {
    let url = serve(|_| answer(200, &"x".repeat(33 << 20))).await;
    let error = client(&url, "k").read(&zone()).await.unwrap_err();
    assert!(error.to_string().contains("larger than 32 MB"), "{error}");
}

/// The environment of a process is set before it starts, so this runs itself again.
#[tokio::test]
async fn a_proxy_of_the_environment_never_sees_the_key() {
    const URL: &str = "SIGNPOST_TEST_URL";
    if let Ok(url) = std::env::var(URL) {
        tls();
        assert_eq!(client(&url, "k").server().await.unwrap().daemon_type, "authoritative");
        return;
    }
    let url = serve(|_| answer(200, SERVER)).await;
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "transport::a_proxy_of_the_environment_never_sees_the_key"]).env(URL, url);
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(variable, "http://127.0.0.1:1");
    }
    let output = child.output().await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}
