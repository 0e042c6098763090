//! A server of the token dialect: `/admin/api/dns/local` with a Bearer token, and nothing else.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::dns::{self, Zone};
use super::{Book, Keeps, answer, empty, lock, noted, open_book, plain, takes_its_time};

const PATH: &str = "/admin/api/dns/local";

/// A running token-dialect server. Stops when dropped, and then fails the test over unacknowledged violations.
pub struct PiholeSpec {
    state: Arc<Mutex<Inner>>,
    addr: SocketAddr,
    dns: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    token: String,
    records: Vec<(String, String)>,
    write_time: Duration,
    book: Book,
}

impl PiholeSpec {
    /// The token it accepts.
    pub const TOKEN: &'static str = "spec-token";

    /// Starts an empty server on loopback.
    pub async fn start() -> Self {
        let inner = Inner {
            token: Self::TOKEN.to_owned(),
            records: Vec::new(),
            write_time: Duration::from_millis(1),
            book: Book::default(),
        };
        let state = Arc::new(Mutex::new(inner));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("an address");
        let router = Router::new().fallback(serve).with_state(Arc::clone(&state));
        let http = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        let lines = Arc::clone(&state);
        let (dns, task) = dns::serve(Arc::new(move || {
            let hosts: Vec<String> = lock(&lines).records.iter().map(|(domain, ip)| format!("{ip} {domain}")).collect();
            Some(Zone::of(&hosts, &[]))
        }))
        .await;
        Self { state, addr, dns, tasks: vec![http, task] }
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where it answers DNS.
    pub fn dns(&self) -> SocketAddr {
        self.dns
    }

    /// The records, in order, as (domain, ip).
    pub fn records(&self) -> Vec<(String, String)> {
        lock(&self.state).records.clone()
    }

    /// Adds a record as its owner would.
    pub fn add(&self, domain: &str, ip: &str) {
        lock(&self.state).records.push((domain.to_owned(), ip.to_owned()));
    }

    /// Removes records as their owner would.
    pub fn remove(&self, domain: &str) {
        lock(&self.state).records.retain(|(name, _)| name != domain);
    }

    /// Changes the token it accepts.
    pub fn set_token(&self, token: &str) {
        token.clone_into(&mut lock(&self.state).token);
    }

    /// How long a write takes; longer makes overlapping writes certain to collide.
    pub fn set_write_time(&self, time: Duration) {
        lock(&self.state).write_time = time;
    }
}

open_book!(PiholeSpec);

impl Keeps for Inner {
    fn book(&mut self) -> &mut Book {
        &mut self.book
    }
}

impl Drop for PiholeSpec {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        lock(&self.state).book.close("the token-dialect server");
    }
}

async fn serve(State(state): State<Arc<Mutex<Inner>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method, parts.uri.path().to_owned());
    let body = to_bytes(body, 1 << 20).await.unwrap_or_default();
    let reply = respond(&state, &method, &path, &parts.headers, &body);
    noted(&state, &method, &path, &path, reply).await
}

async fn respond(state: &Arc<Mutex<Inner>>, method: &Method, path: &str, headers: &HeaderMap, body: &[u8]) -> Response {
    let bearer = format!("Bearer {}", lock(state).token);
    if headers.get("authorization").and_then(|value| value.to_str().ok()) != Some(bearer.as_str()) {
        return plain(401, &json!({"error": "unauthorized"}));
    }
    let json = headers.get("content-type").is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    match (method, path.strip_prefix(PATH)) {
        (&Method::GET, Some("")) => {
            let data: Vec<Value> =
                lock(state).records.iter().map(|(domain, ip)| json!({"domain": domain, "ip": ip})).collect();
            plain(200, &json!({ "data": data }))
        }
        (&Method::POST, Some("")) => create(state, json, body).await,
        (&Method::DELETE, Some(rest)) if rest.len() > 1 && rest.starts_with('/') && !rest[1..].contains('/') => {
            let domain = percent_decode_str(&rest[1..]).decode_utf8_lossy().into_owned();
            delete(state, &domain).await
        }
        _ => {
            lock(state).book.violation(format!("{method} {path} is not part of the dialect"));
            answer(404, json!({}))
        }
    }
}

async fn create(state: &Arc<Mutex<Inner>>, json: bool, body: &[u8]) -> Response {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let exact = value.as_object().is_some_and(|object| object.len() == 2);
    let (Some(domain), Some(ip), true, true) = (value["domain"].as_str(), value["ip"].as_str(), exact, json) else {
        lock(state).book.violation(format!("POST with a body that is not exactly domain and ip: {value}"));
        return plain(400, &json!({"error": "bad body"}));
    };
    if ip.parse::<std::net::Ipv4Addr>().is_err() || domain.is_empty() || domain.contains(['*', ' ', '#', '/']) {
        return plain(400, &json!({"error": "invalid record"}));
    }
    let (mut snapshot, pause) = begin(state);
    if snapshot.iter().any(|(name, _)| name == domain) {
        lock(state).book.violation(format!("POST for {domain}, which exists: the result is undefined in this dialect"));
    }
    takes_its_time(state, pause).await;
    snapshot.push((domain.to_owned(), ip.to_owned()));
    end(state, snapshot);
    plain(201, &json!({"domain": domain, "ip": ip}))
}

async fn delete(state: &Arc<Mutex<Inner>>, domain: &str) -> Response {
    let (mut snapshot, pause) = begin(state);
    takes_its_time(state, pause).await;
    let before = snapshot.len();
    snapshot.retain(|(name, _)| name != domain);
    let found = snapshot.len() < before;
    end(state, snapshot);
    if found { empty(204) } else { plain(404, &json!({"error": "no such record"})) }
}

/// A write reads everything, takes its time and writes everything back: overlapping writes lose one another's work.
fn begin(state: &Arc<Mutex<Inner>>) -> (Vec<(String, String)>, Duration) {
    let mut inner = lock(state);
    inner.book.write_begins();
    (inner.records.clone(), inner.write_time)
}

fn end(state: &Arc<Mutex<Inner>>, records: Vec<(String, String)>) {
    let mut inner = lock(state);
    inner.records = records;
    inner.book.write_ends();
}
