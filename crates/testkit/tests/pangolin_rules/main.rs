//! The rules of the Pangolin stand-in, one test each.
//!
//! The line above a test is the fact that the rule stands for: what a real server of the version named there (1.22.0 where none is named) was
//! seen to answer. So a rule that turns out to be wrong for another version is easy to find.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod blueprints;
mod lists;
mod resources;
mod targets;
mod versions;

use std::time::Duration;

use serde_json::{Value, json};
use signpost_testkit::pangolin::{Options, Pangolin, Version};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

struct Caller {
    http: reqwest::Client,
    base: String,
    key: Option<String>,
}

impl Caller {
    fn new(server: &Pangolin, key: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { http, base: server.url(), key: Some(key.to_owned()) }
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    /// Status and body; a body that is not JSON is null.
    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = self.request(method, path);
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

    async fn status(&self, path: &str) -> u16 {
        self.get(path).await.0
    }

    /// Creates a resource with more keys beside name, domain and the older pair.
    async fn create(&self, domain: &str, more: Value) -> (u16, Value) {
        let mut body = json!({ "name": "app", "domainId": domain, "http": true, "protocol": "tcp" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.call("PUT", "/v1/org/home-org/resource", Some(body)).await
    }

    async fn created(&self, domain: &str, subdomain: &str) -> i64 {
        let (status, body) = self.create(domain, json!({ "subdomain": subdomain })).await;
        assert_eq!(status, 201, "{body}");
        body["data"]["resourceId"].as_i64().unwrap()
    }

    async fn update(&self, id: i64, body: Value) -> (u16, Value) {
        self.call("POST", &format!("/v1/resource/{id}"), Some(body)).await
    }

    async fn resource(&self, id: i64) -> Value {
        self.get(&format!("/v1/resource/{id}")).await.1["data"].clone()
    }

    /// Creates a target with more keys beside site, address, port, method and priority.
    async fn target(&self, resource: i64, more: Value) -> (u16, Value) {
        let mut body = json!({ "siteId": 2, "ip": "app.demo.svc", "port": 80, "method": "http", "priority": 100 });
        for (key, value) in more.as_object().unwrap() {
            // The word stands for a key that is left out.
            if value == "absent" {
                body.as_object_mut().unwrap().remove(key);
            } else {
                body[key] = value.clone();
            }
        }
        self.call("PUT", &format!("/v1/resource/{resource}/target"), Some(body)).await
    }

    async fn change_target(&self, id: i64, body: Value) -> (u16, Value) {
        self.call("POST", &format!("/v1/target/{id}"), Some(body)).await
    }
}

fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap_or_default()
}

async fn server() -> (Pangolin, Caller) {
    of(Version::V1_22).await
}

async fn of(version: Version) -> (Pangolin, Caller) {
    let server = Pangolin::with(Options { version, ..Options::default() }).await;
    let caller = Caller::new(&server, "all.secret");
    (server, caller)
}
