//! A portal of another cluster: `sreportal.v1` over Connect with JSON, strict about what it is asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

/// A server with portals and names, which may fail on request.
#[derive(Debug)]
pub struct ConnectPortal {
    addr: SocketAddr,
    content: Arc<Mutex<Content>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Content {
    portals: Vec<Value>,
    fqdns: Vec<Value>,
    page: usize,
    /// Whether the size of a page that is asked for is ignored.
    whole: bool,
    /// How long an answer takes.
    delay: Duration,
    failure: Option<(u16, String)>,
    calls: usize,
}

type Shared = Arc<Mutex<Content>>;
type Reply = (StatusCode, [(&'static str, &'static str); 1], String);

fn lock(content: &Shared) -> MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConnectPortal {
    /// Starts with one main portal of this name, without names, and so many names per page.
    pub async fn start(portal: &str, page: usize) -> Self {
        let portals = vec![json!({ "name": portal, "title": "Elsewhere", "main": true, "ready": true })];
        let content: Shared = Arc::new(Mutex::new(Content { portals, page, ..Content::default() }));
        let router = Router::new()
            .route("/sreportal.v1.PortalService/ListPortals", post(list_portals))
            .route("/sreportal.v1.DNSService/ListFQDNs", post(list_fqdns))
            .with_state(content.clone());
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("an address");
        let task =
            tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves until it is dropped") });
        Self { addr, content, task }
    }

    /// Where it listens, without TLS.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Replaces the portals.
    pub fn set_portals(&self, portals: Vec<Value>) {
        lock(&self.content).portals = portals;
    }

    /// Replaces the names, as the messages of `ListFQDNs`.
    pub fn set_fqdns(&self, fqdns: Vec<Value>) {
        lock(&self.content).fqdns = fqdns;
    }

    /// Whether a page has the number of names that is asked for, or as many as it may have.
    pub fn set_pages(&self, pages: bool) {
        lock(&self.content).whole = !pages;
    }

    /// Answers every call so late.
    pub fn set_delay(&self, delay: Duration) {
        lock(&self.content).delay = delay;
    }

    /// Answers every call with this status and body, or as usual again.
    pub fn fail(&self, failure: Option<(u16, &str)>) {
        lock(&self.content).failure = failure.map(|(status, body)| (status, body.to_owned()));
    }

    /// How many calls there were.
    pub fn calls(&self) -> usize {
        lock(&self.content).calls
    }
}

impl Drop for ConnectPortal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn reply(status: StatusCode, body: &Value) -> Reply {
    (status, [("content-type", "application/json")], body.to_string())
}

fn invalid(why: &str) -> Reply {
    reply(StatusCode::BAD_REQUEST, &json!({ "code": "invalid_argument", "message": why }))
}

/// The message of a call: a JSON object with these fields only.
fn message(headers: &HeaderMap, body: &[u8], fields: &[&str]) -> Result<Map<String, Value>, Reply> {
    if headers.get("content-type").is_none_or(|media| media != "application/json") {
        return Err(reply(StatusCode::UNSUPPORTED_MEDIA_TYPE, &json!({ "code": "unknown", "message": "not JSON" })));
    }
    if headers.get("connect-protocol-version").is_none_or(|version| version != "1") {
        return Err(invalid("missing required header: set Connect-Protocol-Version to \"1\""));
    }
    let Ok(Value::Object(message)) = serde_json::from_slice(body) else { return Err(invalid("not a message")) };
    match message.keys().find(|key| !fields.contains(&key.as_str())) {
        Some(unknown) => Err(invalid(&format!("unknown field {unknown}"))),
        None => Ok(message),
    }
}

/// Counts a call, and fails it when that is asked for.
fn called(content: &mut Content) -> Option<Reply> {
    content.calls += 1;
    let (status, body) = content.failure.clone()?;
    let status = StatusCode::from_u16(status).expect("a status code");
    Some((status, [("content-type", "application/json")], body))
}

async fn list_portals(State(content): State<Shared>, headers: HeaderMap, body: Bytes) -> Reply {
    let delay = lock(&content).delay;
    tokio::time::sleep(delay).await;
    let mut content = lock(&content);
    if let Some(failed) = called(&mut content) {
        return failed;
    }
    match message(&headers, &body, &["namespace"]) {
        Ok(_) => reply(StatusCode::OK, &json!({ "portals": content.portals })),
        Err(refused) => refused,
    }
}

async fn list_fqdns(State(content): State<Shared>, headers: HeaderMap, body: Bytes) -> Reply {
    let delay = lock(&content).delay;
    tokio::time::sleep(delay).await;
    let mut content = lock(&content);
    if let Some(failed) = called(&mut content) {
        return failed;
    }
    let fields = ["namespace", "source", "search", "portal", "pageSize", "pageToken"];
    let message = match message(&headers, &body, &fields) {
        Ok(message) => message,
        Err(refused) => return refused,
    };
    let text = |field: &str| message.get(field).and_then(Value::as_str).unwrap_or_default();
    let Some(start) = Some(text("pageToken")).map_or(Some(0), |token| {
        if token.is_empty() { Some(0) } else { token.strip_prefix("from-").and_then(|from| from.parse().ok()) }
    }) else {
        return invalid("the page token is not one of this server");
    };
    // A portal that does not exist has no names.
    let known = content.portals.iter().any(|portal| portal["name"] == text("portal"));
    let all: &[Value] = if known { &content.fqdns } else { &[] };
    let size = message.get("pageSize").and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
    let size = size.filter(|size| *size > 0 && !content.whole).unwrap_or(usize::MAX).min(content.page);
    let page: Vec<&Value> = all.iter().skip(start).take(size).collect();
    let end = start + page.len();
    let mut answer = json!({ "fqdns": page, "totalSize": all.len() });
    if end < all.len() {
        answer["nextPageToken"] = json!(format!("from-{end}"));
    }
    reply(StatusCode::OK, &answer)
}
