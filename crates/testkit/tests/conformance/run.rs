//! Runs one case against one server: raw HTTP through the cluster's client.

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use signpost_testkit::{Cluster, eventually_within};
use tokio::time::{Instant, timeout_at};

use crate::case::{Case, Step};
use crate::matching::differences;

const PATIENCE: Duration = Duration::from_mins(2);

type Events = futures::stream::BoxStream<'static, Result<Value, String>>;

/// A running case: what it has captured and which watches it has open.
struct Run<'a> {
    cluster: &'a Cluster,
    client: &'a Client,
    vars: BTreeMap<String, Value>,
    watches: BTreeMap<String, Events>,
}

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    text: String,
    json: Option<Value>,
}

/// Runs a case; `Err` is a report that shows the step, what was sent, expected and got.
pub(crate) async fn run(cluster: &Cluster, client: &Client, case: &Case) -> Result<(), String> {
    let ns = cluster.namespace("case").await;
    let custom = "/apis/conformance.signpost.dev/v1";
    let vars = [
        ("configmaps", format!("/api/v1/namespaces/{ns}/configmaps")),
        ("secrets", format!("/api/v1/namespaces/{ns}/secrets")),
        ("services", format!("/api/v1/namespaces/{ns}/services")),
        ("ingresses", format!("/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses")),
        ("leases", format!("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases")),
        ("widgets", format!("{custom}/namespaces/{ns}/widgets")),
        ("gadgets", format!("{custom}/gadgets")),
        ("ns", ns),
    ];
    let vars = vars.map(|(name, value)| (name.to_owned(), Value::String(value))).into();
    let mut run = Run { cluster, client, vars, watches: BTreeMap::new() };
    for (number, step) in case.steps.iter().enumerate() {
        run.step(step).await.map_err(|problem| {
            let what = describe(&run.vars, step);
            format!("CASE {}\nSTEP {} of {}: {what}\n{problem}\n", case.name, number + 1, case.steps.len())
        })?;
    }
    Ok(())
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) -> Result<(), String> {
        if let Some(token) = &step.forget {
            return self.forget(token);
        }
        if let Some(path) = &step.watch {
            return self.open(path, step).await;
        }
        if let Some(expected) = &step.events {
            return self.read_events(expected, step).await;
        }
        let answer = if step.until {
            eventually_within(PATIENCE, || async { self.ask(step).await.map_err(Report) }).await?
        } else {
            self.ask(step).await?
        };
        self.capture(step, answer.json.as_ref())
    }

    async fn ask(&self, step: &Step) -> Result<Answer, String> {
        let request = step.request.as_deref().ok_or("a step needs request, watch, events or forget")?;
        let (method, path) = request.split_once(' ').ok_or("a request is `METHOD /path`")?;
        let response = self.send(method, path, step).await?;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let json = serde_json::from_str(&text).ok();
        let answer = Answer { status: head.status.as_u16(), headers: head.headers, text, json };
        let expected = step.status.unwrap_or(if method == "POST" { 201 } else { 200 });
        self.check(step, expected, answer)
    }

    async fn send(&self, method: &str, path: &str, step: &Step) -> Result<http::Response<Body>, String> {
        let body = match (&step.body, &step.raw) {
            (Some(body), _) => self.fill(body).to_string().into_bytes(),
            (None, Some(raw)) => self.fill_text(raw).into_bytes(),
            (None, None) => Vec::new(),
        };
        let mut request = http::Request::builder().method(method).uri(self.fill_text(path));
        if !body.is_empty() {
            request = request
                .header("content-type", content_type(step.content_type.as_deref().unwrap_or("application/json")));
        }
        request = request.header("accept", accept(step.accept.as_deref().unwrap_or("application/json")));
        if !step.headers.contains_key("user-agent") {
            request = request.header("user-agent", "conformance/1");
        }
        for (name, value) in &step.headers {
            request = request.header(name, self.fill_text(value));
        }
        let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
        let sent = tokio::time::timeout(PATIENCE, self.client.send(request)).await;
        sent.map_err(|_| format!("no answer within {PATIENCE:?}"))?.map_err(|error| format!("no answer: {error}"))
    }

    fn check(&self, step: &Step, expected: u16, answer: Answer) -> Result<Answer, String> {
        let mut problems = Vec::new();
        if answer.status != expected {
            problems.push(format!("status: expected {expected}, got {}", answer.status));
        }
        if let Some(message) = &step.message {
            let message = Value::String(self.fill_text(message));
            problems.extend(differences(&serde_json::json!({ "message": message }), answer.json.as_ref()));
        }
        if let Some(expect) = &step.expect {
            problems.extend(differences(&self.fill(expect), answer.json.as_ref()));
        }
        if let Some(text) = &step.text
            && !answer.text.contains(&self.fill_text(text))
        {
            problems.push(format!("expected the text {text:?}"));
        }
        for (pointer, value) in &step.differs {
            let got = answer.json.as_ref().and_then(|json| json.pointer(pointer));
            if got.is_none() || got == Some(&self.fill(value)) {
                problems.push(format!("{pointer}: expected anything but {}, got {got:?}", self.fill(value)));
            }
        }
        for (name, value) in &step.answers {
            let got =
                answer.headers.get(name).and_then(|got| got.to_str().ok()).map(|got| Value::String(got.to_owned()));
            let found = differences(&Value::String(self.fill_text(value)), got.as_ref());
            problems.extend(found.into_iter().map(|problem| format!("header {name} {problem}")));
        }
        if problems.is_empty() {
            return Ok(answer);
        }
        let body = answer.json.as_ref().map_or(answer.text, |json| format!("{json:#}"));
        Err(format!("  {}\ngot {}: {body}", problems.join("\n  "), answer.status))
    }

    fn capture(&mut self, step: &Step, json: Option<&Value>) -> Result<(), String> {
        for (name, pointer) in &step.capture {
            let value = json
                .and_then(|json| json.pointer(pointer))
                .ok_or_else(|| format!("nothing at {pointer} to capture"))?;
            self.vars.insert(name.clone(), value.clone());
        }
        Ok(())
    }

    async fn open(&mut self, path: &str, step: &Step) -> Result<(), String> {
        let response = self.send("GET", path, step).await?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(format!("the watch answered {status}"));
        }
        let bytes = response.into_body().into_data_stream();
        let lines = bytes.map_err(std::io::Error::other).into_async_read().lines();
        let events = lines.map(|line| {
            let line = line.map_err(|error| format!("the watch broke: {error}"))?;
            serde_json::from_str(&line).map_err(|error| format!("not an event ({error}): {line}"))
        });
        self.watches.insert(watch_name(step), events.boxed());
        Ok(())
    }

    async fn read_events(&mut self, expected: &[Value], step: &Step) -> Result<(), String> {
        let name = watch_name(step);
        let expected: Vec<Value> = expected.iter().map(|event| self.fill(event)).collect();
        let events = self.watches.get_mut(&name).ok_or_else(|| format!("no watch {name} is open"))?;
        let end = Instant::now() + PATIENCE;
        let mut last = None;
        for (number, expected) in expected.iter().enumerate() {
            let event = loop {
                let next = timeout_at(end, events.next()).await;
                let event = match next {
                    Err(_) => {
                        return Err(format!(
                            "event {}: nothing within {PATIENCE:?}, expected {expected:#}",
                            number + 1
                        ));
                    }
                    Ok(None) => return Err(format!("event {}: the watch ended, expected {expected:#}", number + 1)),
                    Ok(Some(event)) => event?,
                };
                if event["type"] != "BOOKMARK" || expected["type"] == "BOOKMARK" {
                    break event;
                }
            };
            let found = differences(expected, Some(&event));
            if !found.is_empty() {
                return Err(format!("event {}:\n  {}\ngot {event:#}", number + 1, found.join("\n  ")));
            }
            last = Some(event);
        }
        if step.closed {
            match timeout_at(end, events.next()).await {
                Ok(None) => {}
                Ok(Some(event)) => return Err(format!("expected the watch to end, got {event:?}")),
                Err(_) => return Err(format!("the watch did not end within {PATIENCE:?}")),
            }
        }
        self.capture(step, last.as_ref())
    }

    /// Sandbox: drops its history. Real server: its caches outlive a compaction of etcd (done before the first case), so
    /// the token is set back to a revision from before it.
    fn forget(&mut self, token: &str) -> Result<(), String> {
        if let Some(sandbox) = self.cluster.sandbox() {
            sandbox.compact();
        } else if let Some(Value::String(text)) = self.vars.get_mut(token) {
            let bytes =
                BASE64URL_NOPAD.decode(text.trim_end_matches('=').as_bytes()).map_err(|error| error.to_string())?;
            let mut parsed: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            parsed["rv"] = Value::from(2);
            *text = BASE64URL_NOPAD.encode(parsed.to_string().as_bytes());
        }
        Ok(())
    }

    fn fill(&self, value: &Value) -> Value {
        fill(&self.vars, value)
    }

    fn fill_text(&self, text: &str) -> String {
        fill_text(&self.vars, text)
    }
}

/// Prints as it is, where `Debug` is asked for.
struct Report(String);

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn watch_name(step: &Step) -> String {
    step.name.clone().unwrap_or_else(|| "watch".into())
}

fn describe(vars: &BTreeMap<String, Value>, step: &Step) -> String {
    let what = match (&step.request, &step.watch, &step.events) {
        (Some(request), ..) => fill_text(vars, request),
        (_, Some(path), _) => format!("watch {}", fill_text(vars, path)),
        (.., Some(_)) => format!("events of {}", watch_name(step)),
        _ => "forget".into(),
    };
    let mut lines = vec![what];
    if let Some(body) = &step.body {
        let kind = step.content_type.as_deref().unwrap_or("json");
        lines.push(format!("sent ({kind}): {}", fill(vars, body)));
    }
    if let Some(raw) = &step.raw {
        lines.push(format!("sent (raw): {raw}"));
    }
    if let Some(message) = &step.message {
        lines.push(format!("expected message: {}", fill_text(vars, message)));
    }
    if let Some(expect) = &step.expect {
        lines.push(format!("expected: {}", fill(vars, expect)));
    }
    lines.join("\n")
}

fn fill(vars: &BTreeMap<String, Value>, value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).and_then(|name| vars.get(name));
            whole.cloned().unwrap_or_else(|| Value::String(fill_text(vars, text)))
        }
        Value::Array(elements) => elements.iter().map(|element| fill(vars, element)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (fill_text(vars, name), fill(vars, value))).collect()
        }
        other => other.clone(),
    }
}

fn fill_text(vars: &BTreeMap<String, Value>, text: &str) -> String {
    let mut filled = text.to_owned();
    for (name, value) in vars {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        filled = filled.replace(&format!("${{{name}}}"), &value);
    }
    filled
}

fn content_type(short: &str) -> &str {
    match short {
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "yaml" => "application/yaml",
        full => full,
    }
}

fn accept(short: &str) -> &str {
    match short {
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "partial" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "partial-list" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "discovery" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        full => full,
    }
}
