//! Undocumented requests fail; how a stand-in misbehaves on request; and the token dialect, which has no real server.

use super::*;

/// FTL v6.4.1: `GET /api/dns/local` answers 404 `{"error":{"key":"not_found","message":"Not found","hint":"/api/dns/local"}}`. Any other call that the contract does not name is
/// answered the same way here, and fails the test.
#[tokio::test]
async fn anything_else_is_404_and_kept_against_the_caller() {
    let (pihole, caller) = v6(V6Options::default()).await;
    let (status, body) = caller.get("/api/dns/local").await;
    assert_eq!(status, 404);
    assert_eq!(
        without_took(body),
        json!({"error": {"key": "not_found", "message": "Not found", "hint": "/api/dns/local"}})
    );
    assert_eq!(pihole.take_violations().len(), 1);
}

#[tokio::test]
#[should_panic(expected = "used against its contract")]
async fn an_unacknowledged_violation_fails_the_test() {
    let (_pihole, caller) = v6(V6Options::default()).await;
    caller.get("/api/dns/local").await;
}

#[tokio::test]
async fn a_paused_write_is_in_flight_until_it_is_released() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.hold_writes();
    let mut write = std::pin::pin!(caller.put("10.0.0.1 a.lan"));
    tokio::select! {
        answer = &mut write => panic!("answered {answer:?}"),
        () = async { while pihole.counters().writes == 0 { tokio::task::yield_now().await } } => {}
    }
    assert!(pihole.hosts().is_empty());
    pihole.release_writes();
    assert_eq!(write.await.0, 201);
    assert_eq!(pihole.hosts(), ["10.0.0.1 a.lan"]);
}

#[tokio::test]
async fn an_upset_answers_so_many_requests_wrongly_and_no_more() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.upset(Upset::status("GET", "/api/config", 503, 2));
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(caller.get("/api/config/dns/hosts").await.0);
    }
    assert_eq!(seen, [503, 503, 200]);
}

/// The token dialect as it was asked for: `GET /admin/api/dns/local` answers `{"data":[{"domain":…,"ip":…}]}`; `POST` of
/// `{"domain":…,"ip":…}` answers 201; `DELETE /admin/api/dns/local/{domain}` answers 204, and 404 when nothing is there.
#[tokio::test]
async fn the_token_dialect_lists_creates_and_deletes_by_name() {
    let pihole = PiholeSpec::start().await;
    let http = plain_client();
    let url = format!("{}/admin/api/dns/local", pihole.url());
    let created = http
        .post(&url)
        .bearer_auth(PiholeSpec::TOKEN)
        .json(&json!({"domain": "app.lan", "ip": "10.0.0.1"}))
        .send()
        .await
        .unwrap();
    assert_eq!(created.status(), 201);
    assert_eq!(dig(pihole.dns(), "app.lan", "A").await.records, ["10.0.0.1"]);
    let listed = http.get(&url).bearer_auth(PiholeSpec::TOKEN).send().await.unwrap();
    let body: Value = serde_json::from_slice(&listed.bytes().await.unwrap()).unwrap();
    assert_eq!(body, json!({"data": [{"domain": "app.lan", "ip": "10.0.0.1"}]}));
    for status in [204, 404] {
        let deleted = http.delete(format!("{url}/app.lan")).bearer_auth(PiholeSpec::TOKEN).send().await.unwrap();
        assert_eq!(deleted.status(), status);
    }
}

/// The token dialect as it was asked for: every request carries `Authorization: Bearer <token>`, and there are no other paths and fields.
#[tokio::test]
async fn the_token_dialect_refuses_wrong_tokens_and_reports_undefined_calls() {
    let pihole = PiholeSpec::start().await;
    let http = plain_client();
    let url = format!("{}/admin/api/dns/local", pihole.url());
    assert_eq!(http.get(&url).bearer_auth("wrong").send().await.unwrap().status(), 401);
    assert_eq!(
        http.get(format!("{}/api/auth", pihole.url())).bearer_auth(PiholeSpec::TOKEN).send().await.unwrap().status(),
        404
    );
    let extra = json!({"domain": "a.lan", "ip": "10.0.0.1", "ttl": 5});
    assert_eq!(http.post(&url).bearer_auth(PiholeSpec::TOKEN).json(&extra).send().await.unwrap().status(), 400);
    assert_eq!(pihole.take_violations().len(), 2);
}

#[tokio::test]
async fn a_struck_request_is_never_answered_and_takes_effect_or_not() {
    for effective in [false, true] {
        let (pihole, caller) = v6(V6Options::default()).await;
        let reached = pihole.strike(1, effective);
        assert_eq!(caller.get("/api/config/dns/hosts").await.0, 200, "the one before is answered");
        tokio::select! {
            answer = caller.put("10.0.0.1 a.lan") => panic!("answered {answer:?}"),
            () = reached.notified() => {}
        }
        assert_eq!(pihole.hosts().len(), usize::from(effective));
        assert_eq!(caller.put("10.0.0.1 b.lan").await.0, 201, "and so is the one after");
    }
}
