//! The rules of the Pi-hole stand-ins, one test each.
//!
//! The line above a test is the fact behind the rule: what a real `pihole-FTL` of the version named there was seen to answer,
//! with its bodies as they were (without `took`). So a rule that turns out to be wrong for another version is easy to find.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bed;
mod lines;
mod lists;
mod sessions;
mod tls;
mod writes;

use std::time::Duration;

use serde_json::{Value, json};
use signpost_testkit::pihole::{PiholeSpec, PiholeV6, TlsFront, Upset, V6Options};
use signpost_testkit::{dig, eventually, try_dig};

/// How long a condition is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

fn plain_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
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
    body.as_object_mut().and_then(|object| object.remove("took")).expect("every answer has the time it took");
    body
}
