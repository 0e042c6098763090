//! Logins: passwords, seats, limits.

use super::*;

/// FTL v6.4.1: `GET`, `POST` and `DELETE` of `/admin/api/dns/local`, with or without a Bearer token, answer 400
/// `{"error":{"key":"bad_request","message":"Bad request","hint":"The API is hosted at pi.hole/api, not pi.hole/admin/api"}}`.
#[tokio::test]
async fn the_other_dialects_paths_answer_400_with_a_hint_at_the_right_place() {
    let pihole = PiholeV6::start().await;
    for method in ["GET", "POST", "DELETE"] {
        let (status, body) = Caller::new(pihole.url()).call(method, "/admin/api/dns/local", None).await;
        assert_eq!(status, 400);
        assert_eq!(
            without_took(body),
            json!({"error": {"key": "bad_request", "message": "Bad request", "hint": "The API is hosted at pi.hole/api, not pi.hole/admin/api"}})
        );
    }
}

/// FTL v6.4.1: `GET /api/config/dns/hosts` with `Authorization: Bearer <password>` answers 401
/// `{"error":{"key":"unauthorized","message":"Unauthorized","hint":null}}`.
#[tokio::test]
async fn a_bearer_token_opens_nothing_in_v6() {
    let pihole = PiholeV6::start().await;
    let response = plain_client()
        .get(format!("{}/api/config/dns/hosts", pihole.url()))
        .bearer_auth(PiholeV6::PASSWORD)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
    let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(without_took(body), json!({"error": {"key": "unauthorized", "message": "Unauthorized", "hint": null}}));
}

/// FTL v6.4.1: `GET /api/auth` without a session answers 401
/// `{"session":{"valid":false,"totp":false,"sid":null,"validity":-1,"message":"no SID provided"}}`, and no seat is taken.
#[tokio::test]
async fn a_session_query_without_a_session_is_401_and_takes_no_seat() {
    let pihole = PiholeV6::start().await;
    let (status, body) = Caller::new(pihole.url()).get("/api/auth").await;
    assert_eq!((status, body["session"]["valid"].clone()), (401, json!(false)));
    assert_eq!(body["session"]["message"], "no SID provided");
    assert_eq!(pihole.sessions(), 0);
}

/// FTL v6.4.1: a wrong password answers 401
/// `{"session":{"valid":false,"totp":false,"sid":null,"validity":-1,"message":"password incorrect"}}`; there is no `error` object.
#[tokio::test]
async fn a_wrong_password_is_401_with_a_session_object_and_no_error_object() {
    let pihole = PiholeV6::start().await;
    let (status, body) = Caller::new(pihole.url()).login("wrong").await;
    assert_eq!(status, 401);
    assert_eq!(body["session"]["message"], "password incorrect");
    assert!(body.get("error").is_none());
}

/// FTL v6.4.1: `POST /api/auth` answers 400 with "No request body data" without a body, "Invalid request body data (no valid JSON), error at hint"
/// for one that is not JSON, "No password found in JSON payload" without the key, and "Field password has to be of type 'string'" for a number.
#[tokio::test]
async fn a_malformed_login_is_400_with_a_message_of_its_own() {
    let pihole = PiholeV6::start().await;
    let caller = Caller::new(pihole.url());
    for (body, message) in [
        (None, "No request body data"),
        (Some(json!({})), "No password found in JSON payload"),
        (Some(json!({"password": 7})), "Field password has to be of type 'string'"),
    ] {
        let (status, answer) = caller.call("POST", "/api/auth", body).await;
        assert_eq!((status, answer["error"]["message"].as_str()), (400, Some(message)));
    }
    let answer = caller.http.post(format!("{}/api/auth", caller.base)).body("{password").send().await.unwrap();
    assert_eq!(answer.status(), 400);
    let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(body["error"]["message"], "Invalid request body data (no valid JSON), error at hint");
}

/// FTL v6.4.1: the fourth attempt after three failures within one second answers 429
/// `{"error":{"key":"rate_limiting","message":"Rate-limiting login attempts","hint":null}}` after a stall of 250 ms and without `Retry-After`. The count is one
/// for all clients and starts again with the next second.
#[tokio::test]
async fn the_fourth_wrong_password_in_a_second_is_429_for_every_client() {
    let pihole = PiholeV6::with(V6Options { stall: Duration::from_millis(1), ..V6Options::default() }).await;
    pihole.next_second();
    let caller = Caller::new(pihole.url());
    for _ in 0..3 {
        assert_eq!(caller.login("wrong").await.0, 401);
    }
    let (status, body) = caller.login(PiholeV6::PASSWORD).await;
    assert_eq!((status, body["error"]["key"].as_str()), (429, Some("rate_limiting")));
    pihole.next_second();
    assert_eq!(caller.login(PiholeV6::PASSWORD).await.0, 200);
}

/// FTL v6.4.1: logins with the right web password are not counted by the limit.
#[tokio::test]
async fn right_web_passwords_do_not_count_against_the_login_limit() {
    let pihole = PiholeV6::start().await;
    pihole.next_second();
    let caller = Caller::new(pihole.url());
    for _ in 0..6 {
        assert_eq!(caller.login(PiholeV6::PASSWORD).await.0, 200);
    }
}

/// FTL v6.4.1: five logins in a row with the right app password answer 200, 200, 401 "password incorrect", 429, and a second later 200: each is first tried as
/// the web password and counts as a failure.
#[tokio::test]
async fn the_third_app_password_in_a_second_is_answered_like_a_wrong_one() {
    let options =
        V6Options { app_password: Some("app".into()), stall: Duration::from_millis(1), ..V6Options::default() };
    let pihole = PiholeV6::with(options).await;
    pihole.next_second();
    let caller = Caller::new(pihole.url());
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(caller.login("app").await.0);
    }
    pihole.next_second();
    seen.push(caller.login("app").await.0);
    assert_eq!(seen, [200, 200, 401, 429, 200]);
}

/// FTL v6.4.1: there are 16 seats; a login takes one even when its caller has one already; the seventeenth answers 429
/// `{"error":{"key":"api_seats_exceeded","message":"API seats exceeded","hint":"increase webserver.api.max_sessions"}}`. `DELETE /api/auth` answers 204 and frees one.
#[tokio::test]
async fn every_login_takes_a_seat_and_the_seventeenth_waits_for_a_free_one() {
    let pihole = PiholeV6::start().await;
    let first = Caller::logged_in(pihole.url(), PiholeV6::PASSWORD).await;
    for _ in 0..15 {
        assert_eq!(first.login(PiholeV6::PASSWORD).await.0, 200);
    }
    let (status, body) = first.login(PiholeV6::PASSWORD).await;
    assert_eq!((status, body["error"]["key"].as_str()), (429, Some("api_seats_exceeded")));
    assert_eq!(body["error"]["hint"], "increase webserver.api.max_sessions");
    assert_eq!(first.call("DELETE", "/api/auth", None).await.0, 204);
    assert_eq!(first.login(PiholeV6::PASSWORD).await.0, 200);
}

/// FTL v6.4.1: `DELETE /api/auth` answers 204, and 401 "session unknown" the second time.
#[tokio::test]
async fn leaving_twice_is_401_session_unknown() {
    let (_pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.call("DELETE", "/api/auth", None).await.0, 204);
    let (status, body) = caller.call("DELETE", "/api/auth", None).await;
    assert_eq!((status, body["session"]["message"].as_str()), (401, Some("session unknown")));
}

/// FTL v6.4.1: the same session is valid after a restart; a new password ends every session, and the next call answers 401.
#[tokio::test]
async fn a_session_survives_a_restart_but_not_a_new_password() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.hold_restarts();
    pihole.restart_for(Duration::ZERO);
    eventually("the server is away", PATIENCE, || async {
        let connected = tokio::net::TcpStream::connect(pihole.addr()).await;
        if connected.is_err() { Ok(()) } else { Err("still there") }
    })
    .await;
    pihole.release_restarts();
    eventually("the server is back", PATIENCE, || async {
        let answer = caller.http.get(format!("{}/api/info/login", caller.base)).send().await;
        answer.map(|_| ()).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(caller.get("/api/config/dns/hosts").await.0, 200);
    pihole.change_password("other");
    assert_eq!(caller.get("/api/config/dns/hosts").await.0, 401);
}

/// FTL v6.4.1: without a password `GET /api/auth` answers 200 with `valid` true and `sid` null ("no password set"), a login with any password does too, every call
/// is let in, and `DELETE /api/auth` answers 401.
#[tokio::test]
async fn without_a_password_every_call_is_allowed_and_logins_have_no_session() {
    let pihole = PiholeV6::with(V6Options { password: None, ..V6Options::default() }).await;
    let caller = Caller::new(pihole.url());
    let (status, body) = caller.login("anything").await;
    assert_eq!((status, &body["session"]["valid"], &body["session"]["sid"]), (200, &json!(true), &Value::Null));
    assert_eq!(caller.get("/api/config/dns/hosts").await.0, 200);
    assert_eq!(caller.get("/api/auth").await.0, 200);
    assert_eq!(caller.call("DELETE", "/api/auth", None).await.0, 401);
}

/// FTL v6.4.1: with a second factor the web password alone answers 400 "No 2FA token found…"; an app password needs none ("app-password correct").
#[tokio::test]
async fn with_2fa_the_web_password_is_400_and_an_app_password_needs_no_code() {
    let pihole =
        PiholeV6::with(V6Options { totp: true, app_password: Some("app".into()), ..V6Options::default() }).await;
    let caller = Caller::new(pihole.url());
    let (status, body) = caller.login(PiholeV6::PASSWORD).await;
    assert_eq!(status, 400);
    assert!(body["error"]["message"].as_str().unwrap().starts_with("No 2FA token found"));
    assert_eq!(caller.login("app").await.1["session"]["message"], "app-password correct");
}

/// FTL v6.4.1: `GET /api/info/login` answers 200 `{"https_port":…,"dns":true}` to anybody and takes no seat.
#[tokio::test]
async fn readiness_can_be_asked_without_a_session_and_tells_whether_dns_is_up() {
    let pihole = PiholeV6::start().await;
    let (status, body) = Caller::new(pihole.url()).get("/api/info/login").await;
    assert_eq!((status, &body["dns"]), (200, &json!(true)));
    assert_eq!(pihole.counters().logins, 0);
}

/// FTL v6.4.1: under an app password, `webserver.api.app_sudo` can be read; every PUT, PATCH and DELETE of the configuration answers 403
/// `{"error":{"key":"forbidden","message":"Unable to change configuration (read-only)","hint":"The current app session is not allowed to modify Pi-hole config settings (webserver.api.app_sudo is false)"}}`
/// until it is true.
#[tokio::test]
async fn an_app_password_may_read_but_not_write_until_app_sudo_is_on() {
    let pihole = PiholeV6::with(V6Options { app_password: Some("app".into()), ..V6Options::default() }).await;
    let caller = Caller::logged_in(pihole.url(), "app").await;
    assert_eq!(caller.get("/api/config/dns/hosts").await.0, 200);
    assert_eq!(
        caller.get("/api/config/webserver/api/app_sudo").await.1["config"]["webserver"]["api"]["app_sudo"],
        json!(false)
    );
    for (status, body) in
        [caller.put("10.0.0.1 a.lan").await, caller.delete("10.0.0.1 a.lan").await, caller.patch(&[]).await]
    {
        assert_eq!((status, body["error"]["key"].as_str()), (403, Some("forbidden")));
        assert!(body["error"]["hint"].as_str().unwrap().contains("webserver.api.app_sudo is false"));
    }
    pihole.set(|options| options.app_sudo = true);
    assert_eq!(caller.put("10.0.0.1 a.lan").await.0, 201);
}

/// FTL v6.4.1: a session is good for 1,800 seconds from its last use; a seat that has expired is free at the next login.
#[tokio::test]
async fn a_seat_that_has_expired_is_free_at_the_next_login() {
    let pihole = PiholeV6::with(V6Options { seats: 1, session: Duration::ZERO, ..V6Options::default() }).await;
    let caller = Caller::new(pihole.url());
    for _ in 0..3 {
        assert_eq!(caller.login(PiholeV6::PASSWORD).await.0, 200);
    }
    assert_eq!(V6Options::default().session, Duration::from_mins(30));
}

/// FTL v6.4.1: with an app password set, a wrong password is tried as both and counts as two failures: 401, 401, 429 within one second.
#[tokio::test]
async fn a_wrong_password_counts_twice_where_there_is_an_app_password() {
    let options =
        V6Options { app_password: Some("app".into()), stall: Duration::from_millis(1), ..V6Options::default() };
    let pihole = PiholeV6::with(options).await;
    pihole.next_second();
    let caller = Caller::new(pihole.url());
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(caller.login("wrong").await.0);
    }
    assert_eq!(seen, [401, 401, 429]);
}

/// FTL v6.4.1: a login takes 0.11 s with the web password and 0.27 s with an app password, which is tried second. Only on request here, so that tests are fast.
#[tokio::test]
async fn a_login_takes_its_time_on_request() {
    let (web, app) = (Duration::from_millis(110), Duration::from_millis(270));
    let options =
        V6Options { app_password: Some("app".into()), login_time: web, app_login_time: app, ..V6Options::default() };
    let pihole = PiholeV6::with(options).await;
    let caller = Caller::new(pihole.url());
    for (password, time) in [(PiholeV6::PASSWORD, web), ("app", app)] {
        let begun = std::time::Instant::now();
        assert_eq!(caller.login(password).await.0, 200);
        assert!(begun.elapsed() >= time, "{password}: {:?}", begun.elapsed());
    }
    assert!(V6Options::default().login_time.is_zero() && V6Options::default().app_login_time.is_zero());
}
