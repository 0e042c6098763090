//! The rules of the Pi-hole stand-ins, one test each. What a rule says was observed on a real server; the test says it in
//! our words, so that a rule that turns out to be wrong is easy to find.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use serde_json::{Value, json};
use signpost_testkit::pihole::{PiholeSpec, PiholeV6, Upset, V6Options};
use signpost_testkit::{dig, eventually, try_dig};

fn plain_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap()
}

struct Caller {
    http: reqwest::Client,
    base: String,
    sid: Option<String>,
}

impl Caller {
    fn new(base: String) -> Self {
        Self { http: plain_client(), base, sid: None }
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(sid) = &self.sid {
            request = request.header("X-FTL-SID", sid);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, None).await
    }

    async fn login(&self, password: &str) -> (u16, Value) {
        self.call("POST", "/api/auth", Some(json!({ "password": password }))).await
    }

    async fn logged_in(base: String, password: &str) -> Self {
        let mut caller = Self::new(base);
        let (status, body) = caller.login(password).await;
        assert_eq!(status, 200, "{body}");
        caller.sid = body["session"]["sid"].as_str().map(str::to_owned);
        caller
    }

    async fn put(&self, line: &str) -> (u16, Value) {
        self.call("PUT", &format!("/api/config/dns/hosts/{}", escape(line)), None).await
    }

    async fn delete(&self, line: &str) -> (u16, Value) {
        self.call("DELETE", &format!("/api/config/dns/hosts/{}", escape(line)), None).await
    }

    async fn patch(&self, lines: &[String]) -> (u16, Value) {
        self.call("PATCH", "/api/config/dns/hosts", Some(json!({"config": {"dns": {"hosts": lines}}}))).await
    }
}

fn escape(line: &str) -> String {
    percent_encoding::utf8_percent_encode(line, percent_encoding::NON_ALPHANUMERIC).to_string()
}

async fn v6(options: V6Options) -> (PiholeV6, Caller) {
    let pihole = PiholeV6::with(options).await;
    let caller = Caller::logged_in(pihole.url(), PiholeV6::PASSWORD).await;
    (pihole, caller)
}

fn without_took(mut body: Value) -> Value {
    body.as_object_mut().and_then(|object| object.remove("took")).expect("every answer says how long it took");
    body
}

#[tokio::test]
async fn the_other_dialects_paths_answer_400_with_a_hint_at_the_right_place() {
    let pihole = PiholeV6::start().await;
    let (status, body) = Caller::new(pihole.url()).get("/admin/api/dns/local").await;
    assert_eq!(status, 400);
    assert_eq!(
        without_took(body),
        json!({"error": {"key": "bad_request", "message": "Bad request", "hint": "The API is hosted at pi.hole/api, not pi.hole/admin/api"}})
    );
}

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

#[tokio::test]
async fn asking_for_the_session_without_one_is_401_with_a_session_object_and_takes_no_seat() {
    let pihole = PiholeV6::start().await;
    let (status, body) = Caller::new(pihole.url()).get("/api/auth").await;
    assert_eq!((status, body["session"]["valid"].clone()), (401, json!(false)));
    assert_eq!(body["session"]["message"], "no SID provided");
    assert_eq!(pihole.sessions(), 0);
}

#[tokio::test]
async fn a_wrong_password_is_401_with_a_session_object_and_no_error_object() {
    let pihole = PiholeV6::start().await;
    let (status, body) = Caller::new(pihole.url()).login("wrong").await;
    assert_eq!(status, 401);
    assert_eq!(body["session"]["message"], "password incorrect");
    assert!(body.get("error").is_none());
}

#[tokio::test]
async fn a_login_that_is_no_login_is_400_with_its_own_words() {
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
}

#[tokio::test]
async fn the_fourth_wrong_password_within_a_second_is_429_for_everybody_and_the_next_second_forgets() {
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

#[tokio::test]
async fn right_web_passwords_do_not_count_against_the_login_limit() {
    let pihole = PiholeV6::start().await;
    pihole.next_second();
    let caller = Caller::new(pihole.url());
    for _ in 0..6 {
        assert_eq!(caller.login(PiholeV6::PASSWORD).await.0, 200);
    }
}

#[tokio::test]
async fn the_third_right_app_password_within_a_second_is_answered_like_a_wrong_one() {
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

#[tokio::test]
async fn every_login_takes_a_seat_and_the_seventeenth_is_refused_until_somebody_leaves() {
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

#[tokio::test]
async fn leaving_twice_is_401_session_unknown() {
    let (_pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.call("DELETE", "/api/auth", None).await.0, 204);
    let (status, body) = caller.call("DELETE", "/api/auth", None).await;
    assert_eq!((status, body["session"]["message"].as_str()), (401, Some("session unknown")));
}

#[tokio::test]
async fn a_session_survives_a_restart_but_not_a_new_password() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.restart_for(Duration::from_millis(30));
    eventually("the server is back", Duration::from_secs(5), || async {
        let answer = caller.http.get(format!("{}/api/info/login", caller.base)).send().await;
        answer.map(|_| ()).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(caller.get("/api/config/dns/hosts").await.0, 200);
    pihole.change_password("other");
    assert_eq!(caller.get("/api/config/dns/hosts").await.0, 401);
}

#[tokio::test]
async fn without_a_password_everybody_is_let_in_and_a_login_gives_no_session_id() {
    let pihole = PiholeV6::with(V6Options { password: None, ..V6Options::default() }).await;
    let caller = Caller::new(pihole.url());
    let (status, body) = caller.login("anything").await;
    assert_eq!((status, &body["session"]["valid"], &body["session"]["sid"]), (200, &json!(true), &Value::Null));
    assert_eq!(caller.get("/api/config/dns/hosts").await.0, 200);
    assert_eq!(caller.get("/api/auth").await.0, 200);
    assert_eq!(caller.call("DELETE", "/api/auth", None).await.0, 401);
}

#[tokio::test]
async fn with_a_second_factor_the_web_password_alone_is_400_and_an_app_password_needs_no_code() {
    let pihole =
        PiholeV6::with(V6Options { totp: true, app_password: Some("app".into()), ..V6Options::default() }).await;
    let caller = Caller::new(pihole.url());
    let (status, body) = caller.login(PiholeV6::PASSWORD).await;
    assert_eq!(status, 400);
    assert!(body["error"]["message"].as_str().unwrap().starts_with("No 2FA token found"));
    assert_eq!(caller.login("app").await.1["session"]["message"], "app-password correct");
}

#[tokio::test]
async fn readiness_can_be_asked_without_a_session_and_tells_whether_dns_is_up() {
    let pihole = PiholeV6::start().await;
    let (status, body) = Caller::new(pihole.url()).get("/api/info/login").await;
    assert_eq!((status, &body["dns"]), (200, &json!(true)));
    assert_eq!(pihole.counters().logins, 0);
}

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

#[tokio::test]
async fn a_list_set_by_the_environment_cannot_be_changed_and_says_so_beforehand() {
    let (_pihole, caller) = v6(V6Options { env_locked: true, ..V6Options::default() }).await;
    let (_, body) = caller.get("/api/config/dns/hosts?detailed=true").await;
    assert_eq!(body["config"]["dns"]["hosts"]["flags"]["env_var"], json!(true));
    let (status, body) = caller.put("10.0.0.1 a.lan").await;
    assert_eq!((status, body["error"]["hint"].as_str()), (400, Some("dns.hosts")));
    assert_eq!(body["error"]["message"], "Config items set via environment variables cannot be changed via the API");
}

#[tokio::test]
async fn a_read_only_configuration_refuses_patch_but_takes_put_and_forgets_it_at_the_next_restart() {
    let (pihole, caller) = v6(V6Options { read_only: true, ..V6Options::default() }).await;
    assert_eq!(caller.patch(&["10.0.0.1 a.lan".into()]).await.0, 403);
    assert_eq!(caller.put("10.0.0.1 a.lan").await.0, 201);
    assert_eq!(pihole.hosts(), ["10.0.0.1 a.lan"]);
    pihole.restart_for(Duration::from_millis(20));
    eventually("the line is gone", Duration::from_secs(5), || async {
        if pihole.hosts().is_empty() { Ok(()) } else { Err(pihole.hosts()) }
    })
    .await;
}

#[tokio::test]
async fn one_line_is_added_once_and_a_second_time_is_refused_as_present() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.put("192.168.1.100 app.local").await.0, 201);
    let (status, body) = caller.put("192.168.1.100 app.local").await;
    assert_eq!(status, 400);
    assert_eq!(
        without_took(body),
        json!({"error": {"key": "bad_request", "message": "Item already present", "hint": "Uniqueness of items is enforced"}})
    );
    assert_eq!(dig(pihole.dns(), "app.local", "A").await.records, ["192.168.1.100"]);
    assert_eq!(dig(pihole.dns(), "app.local", "A").await.ttl, Some(0));
}

#[tokio::test]
async fn a_second_address_for_a_name_is_another_line_and_both_are_served() {
    let (pihole, caller) = v6(V6Options::default()).await;
    caller.put("10.0.0.1 app.lan").await;
    assert_eq!(caller.put("10.0.0.2 app.lan").await.0, 201);
    assert_eq!(caller.put("fd00::2 app.lan").await.0, 201);
    assert_eq!(dig(pihole.dns(), "app.lan", "A").await.records, ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(dig(pihole.dns(), "app.lan", "AAAA").await.records, ["fd00::2"]);
}

#[tokio::test]
async fn a_comment_is_kept_verbatim_and_not_served() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.put("10.0.0.1 app.lan # signpost=home").await.0, 201);
    assert_eq!(pihole.hosts(), ["10.0.0.1 app.lan # signpost=home"]);
    assert_eq!(dig(pihole.dns(), "app.lan", "A").await.records, ["10.0.0.1"]);
    caller.put("10.0.0.1 other.lan # hidden.lan").await;
    assert_eq!(dig(pihole.dns(), "hidden.lan", "A").await.rcode, "NXDOMAIN");
}

#[tokio::test]
async fn an_ftl_before_6_0_3_refuses_comments() {
    let (_pihole, caller) = v6(V6Options { comments: false, ..V6Options::default() }).await;
    let (status, body) = caller.put("10.0.0.1 app.lan # signpost=home").await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Invalid value")));
    assert!(body["error"]["hint"].as_str().unwrap().starts_with("dns.hosts[0]:"));
}

#[tokio::test]
async fn only_the_exact_line_can_be_deleted() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.edit(|hosts, _| hosts.extend(["10.0.0.1 a.lan # note".to_owned(), "10.0.0.2 b.lan c.lan".to_owned()]));
    for other in ["10.0.0.1 a.lan", "10.0.0.1  a.lan # note", "a.lan", "10.0.0.2 b.lan", "10.0.0.9 x.lan"] {
        let (status, body) = caller.delete(other).await;
        assert_eq!((status, without_took(body)), (404, json!({})), "{other}");
    }
    assert_eq!(caller.delete("10.0.0.1 a.lan # note").await.0, 204);
    assert_eq!(dig(pihole.dns(), "a.lan", "A").await.rcode, "NXDOMAIN");
    assert_eq!(pihole.hosts(), ["10.0.0.2 b.lan c.lan"]);
}

#[tokio::test]
async fn a_line_with_a_slash_cannot_be_named_in_a_path() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.put("10.0.0.1 a.lan # x/y").await.0, 404);
    assert_eq!(pihole.take_violations().len(), 1);
}

#[tokio::test]
async fn a_plus_in_a_path_is_a_blank() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.call("PUT", "/api/config/dns/hosts/10.0.0.1+a.lan", None).await.0, 201);
    assert_eq!(pihole.hosts(), ["10.0.0.1 a.lan"]);
}

#[tokio::test]
async fn invalid_lines_are_refused_with_their_index_and_odd_but_valid_ones_are_kept_verbatim() {
    let (pihole, caller) = v6(V6Options::default()).await;
    for bad in ["10.0.0.1 *.lan", "300.0.0.1 a.lan", "10.0.0.01 a.lan", "10.0.0.1", "10.0.0.1 ä.lan"] {
        let (status, body) = caller.put(bad).await;
        assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Invalid value")), "{bad}");
        assert!(body["error"]["hint"].as_str().unwrap().starts_with("dns.hosts[0]: "), "{bad}");
    }
    for odd in
        ["10.0.0.1 UPPER.lan", "10.0.0.1 dotted.lan.", "10.0.0.1 _under.lan", "10.0.0.1 -dash.lan", "10.0.0.1 single"]
    {
        assert_eq!(caller.put(odd).await.0, 201, "{odd}");
        assert_eq!(pihole.hosts().last().map(String::as_str), Some(odd));
    }
    assert_eq!(dig(pihole.dns(), "upper.LAN", "A").await.records, ["10.0.0.1"]);
}

#[tokio::test]
async fn one_bad_line_of_somebody_else_makes_every_addition_fail_but_not_a_deletion() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.edit(|hosts, _| hosts.extend(["10.0.0.1 ok.lan".to_owned(), "bogus line".to_owned()]));
    let (status, body) = caller.put("10.0.0.2 new.lan").await;
    assert_eq!(status, 400);
    assert_eq!(body["error"]["hint"], "dns.hosts[1]: neither a valid IPv4 nor IPv6 address (\"bogus\")");
    assert_eq!(caller.delete("10.0.0.1 ok.lan").await.0, 204);
}

#[tokio::test]
async fn a_patch_replaces_the_whole_list_or_changes_nothing() {
    let (pihole, caller) = v6(V6Options::default()).await;
    let three: Vec<String> = (1..=3).map(|n| format!("10.0.0.{n} h{n}.lan")).collect();
    let (status, body) = caller.patch(&three).await;
    assert_eq!((status, &body["config"]["dns"]["hosts"]), (200, &json!(three)));
    let mut bad = three.clone();
    bad[1] = "bogus x.lan".into();
    let (status, body) = caller.patch(&bad).await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Config item validation failed")));
    assert_eq!(body["error"]["hint"], "dns.hosts[1]: neither a valid IPv4 nor IPv6 address (\"bogus\")");
    assert_eq!(pihole.hosts(), three);
    let twice = vec![three[0].clone(), three[0].clone()];
    assert_eq!(caller.patch(&twice).await.0, 200, "duplicates inside one PATCH are accepted");
}

#[tokio::test]
async fn a_patch_that_is_not_one_is_refused_by_shape() {
    let (_pihole, caller) = v6(V6Options::default()).await;
    let (status, body) = caller.call("PATCH", "/api/config/dns/hosts", Some(json!({}))).await;
    assert_eq!((status, body["error"]["key"].as_str()), (400, Some("body_error")));
    let (status, body) =
        caller.call("PATCH", "/api/config/dns/hosts", Some(json!({"config": {"dns": {"hosts": "x"}}}))).await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Config item is invalid")));
}

#[tokio::test]
async fn a_body_above_64_kib_is_dropped_and_answered_as_if_there_were_none() {
    let (pihole, caller) = v6(V6Options::default()).await;
    let lines = |count: u32| (0..count).map(|n| format!("10.0.0.1 host-{n:05}.lan")).collect::<Vec<_>>();
    assert_eq!(caller.patch(&lines(2000)).await.0, 200);
    let (status, body) = caller.patch(&lines(2600)).await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("No request body data")));
    assert_eq!(pihole.hosts().len(), 2000);
}

#[tokio::test]
async fn a_mistyped_key_is_answered_with_success_and_an_empty_configuration() {
    let (pihole, caller) = v6(V6Options::default()).await;
    let (status, body) = caller.get("/api/config/dns/host").await;
    assert_eq!((status, without_took(body)), (200, json!({"config": {}})));
    assert_eq!(pihole.take_violations().len(), 1, "and no client of ours may ever ask for one");
}

#[tokio::test]
async fn two_writes_at_once_both_succeed_and_one_of_them_is_lost() {
    let (pihole, caller) = v6(V6Options { write_time: Duration::from_millis(50), ..V6Options::default() }).await;
    let (one, two) = tokio::join!(caller.put("10.0.0.1 one.lan"), caller.put("10.0.0.2 two.lan"));
    assert_eq!((one.0, two.0), (201, 201));
    assert_eq!(pihole.hosts().len(), 1);
    assert_eq!(pihole.counters().most_writes_at_once, 2);
}

#[tokio::test]
async fn a_host_write_restarts_nothing_and_an_alias_write_takes_api_and_dns_down_for_a_while() {
    let (pihole, caller) = v6(V6Options { restart: Duration::from_millis(150), ..V6Options::default() }).await;
    caller.put("10.0.0.1 app.lan").await;
    assert_eq!(pihole.counters().restarts, 0);
    let path = format!("/api/config/dns/cnameRecords/{}", escape("www.lan,app.lan # signpost=home"));
    assert_eq!(caller.call("PUT", &path, None).await.0, 201, "the answer comes before the restart");
    eventually("connections are refused", Duration::from_secs(2), || async {
        match tokio::net::TcpStream::connect(pihole.addr()).await {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    eventually("the alias is served after the restart", Duration::from_secs(5), || async {
        match try_dig(pihole.dns(), "www.lan", "A").await {
            Ok(answer) if answer.records == ["10.0.0.1"] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(caller.get("/api/config/dns/cnameRecords").await.0, 200, "with the same session");
    let again = format!("/api/config/dns/cnameRecords/{}", escape("www.lan,other.lan"));
    assert_eq!(caller.call("PUT", &again, None).await.0, 400, "a second target for an alias is refused");
}

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
async fn a_violation_nobody_took_note_of_fails_the_test() {
    let (_pihole, caller) = v6(V6Options::default()).await;
    caller.get("/api/dns/local").await;
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

#[tokio::test]
async fn the_token_dialect_refuses_a_wrong_token_and_reports_what_it_does_not_define() {
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
