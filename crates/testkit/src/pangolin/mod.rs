//! A strict stand-in for the Integration API of a Pangolin, in the nine versions whose behaviour was observed, and in 1.9 and
//! 1.10.
//!
//! ```text
//!   client ──HTTP──► Pangolin ─► strict bodies and queries ─► rows ─► edge: which target answers a URL?
//! ```
//! It answers as the real server was seen to answer, status by status, including what the real server does not check. For faults on
//! the way, put a [`crate::FaultProxy`] in front of it.

mod auth;
mod blueprint;
mod lists;
mod reply;
mod resources;
mod routes;
mod schema;
mod state;
mod targets;
mod version;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use signpost_sandbox::edge::{self, Answer, Visit};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub use auth::MINIMUM;
pub use state::{DomainRow, Key, ResourceRow, SiteRow, State, TargetRow};
pub use version::Version;

use routes::Call;

/// The organisation of the keys `minimum`, `all` and `none`.
pub const ORG: &str = "home-org";
/// Another organisation on the same server.
pub const OTHER_ORG: &str = "other-org";

/// How a stand-in is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which version it plays.
    pub version: Version,
    /// The host of its dashboard.
    pub dashboard: String,
    /// Whether licensed features work.
    pub licensed: bool,
    /// How long an idle connection stays open.
    pub idle: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Version::V1_22,
            dashboard: "pangolin.ns.test".to_owned(),
            licensed: false,
            idle: Duration::from_secs(5),
        }
    }
}

impl State {
    /// A server of this version with its usual organisations and no resource. It has no port: requests are values.
    pub fn of(version: Version) -> Self {
        Self::new(Options { version, ..Options::default() })
    }

    /// The status and the body that answer a request.
    pub fn respond(&mut self, request: &Asked<'_>) -> (u16, String) {
        let Asked { method, path, query, authorization, body } = *request;
        let body = body.unwrap_or_default().as_bytes();
        let call = Call { method, path, query, authorization, json: true, body };
        let reply = routes::respond(self, &call);
        self.requests.clear();
        let (status, _, body) = reply.into_parts();
        (status, body)
    }

    /// Replaces the secret of a key.
    pub fn rotate(&mut self, id: &str, secret: &str) {
        if let Some(key) = self.keys.iter_mut().find(|key| key.id == id) {
            secret.clone_into(&mut key.secret);
        }
    }

    /// Which target (`ip:port`) answers `https://host/path`.
    pub fn answer(&self, host: &str, path: &str) -> Answer<String> {
        edge::answer(&self.exposures(), true, host, path)
    }

    /// What a visitor of `https://host/path` gets who is not logged in.
    pub fn visit(&self, host: &str, path: &str) -> Visit<String> {
        edge::visit(&self.exposures(), true, host, path)
    }
}

/// A request to a stand-in without a port.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The method.
    pub method: &'a str,
    /// The path.
    pub path: &'a str,
    /// The query, without the question mark.
    pub query: &'a str,
    /// The header `Authorization`.
    pub authorization: Option<&'a str>,
    /// The body, as JSON.
    pub body: Option<&'a str>,
}

/// The stand-in. Dropping it closes its port.
#[derive(Debug)]
pub struct Pangolin {
    state: Arc<Mutex<State>>,
    addr: SocketAddr,
    _server: AbortOnDropHandle<()>,
}

impl Pangolin {
    /// A key with exactly the permissions that this project asks for.
    pub const KEY: &'static str = "minimum.secret";

    /// Starts a server of the newest version.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// Starts a server of this version.
    pub async fn of(version: Version) -> Self {
        Self::with(Options { version, ..Options::default() }).await
    }

    /// Starts a server.
    pub async fn with(options: Options) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let idle = options.idle;
        let state = Arc::new(Mutex::new(State::new(options)));
        let server = AbortOnDropHandle::new(tokio::spawn(accept(listener, Arc::clone(&state), idle)));
        Self { state, addr, _server: server }
    }

    /// Its base URL, without `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Everything that it stores, to read or to change as a person at the dashboard would.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Every request with a key, in order, as `METHOD path`.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Forgets the requests so far.
    pub fn forget_requests(&self) {
        self.state().requests.clear();
    }

    /// The requests that are not reads.
    pub fn writes(&self) -> Vec<String> {
        self.requests().into_iter().filter(|request| !request.starts_with("GET ")).collect()
    }

    /// Plays another version from now on, as after an upgrade.
    pub fn upgrade(&self, version: Version) {
        self.state().options.version = version;
    }

    /// Replaces the secret of a key.
    pub fn rotate(&self, id: &str, secret: &str) {
        self.state().rotate(id, secret);
    }

    /// Takes one action from a key.
    pub fn revoke(&self, id: &str, action: &str) {
        if let Some(key) = self.state().keys.iter_mut().find(|key| key.id == id) {
            key.actions.remove(action);
        }
    }

    /// Which target (`ip:port`) answers `https://host/path`.
    pub fn get(&self, host: &str, path: &str) -> Answer<String> {
        self.state().answer(host, path)
    }

    /// What a visitor of `https://host/path` gets who is not logged in.
    pub fn visit(&self, host: &str, path: &str) -> Visit<String> {
        self.state().visit(host, path)
    }

    /// Reports the health of a target, as newt does.
    pub fn set_health(&self, target: i64, health: &'static str) {
        if let Some(target) = self.state().targets.get_mut(&target) {
            target.health = health;
        }
    }
}

fn lock(state: &Arc<Mutex<State>>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>, idle: Duration) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&state), request));
            // The time to read a head counts from the end of the last answer.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(idle)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    state: Arc<Mutex<State>>,
    request: http::Request<hyper::body::Incoming>,
) -> Result<axum::response::Response, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let header = |name| head.headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let call = Call {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        authorization: header(http::header::AUTHORIZATION),
        json: header(http::header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json")),
        body: &body,
    };
    let reply = routes::respond(&mut lock(&state), &call);
    Ok(reply.into_response(head.headers.get(http::header::IF_NONE_MATCH)))
}
