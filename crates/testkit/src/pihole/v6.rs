//! A Pi-hole v6: sessions, seats and the login limit here, the configuration API in `v6_config`.
//!
//! Restarting closes the listening socket for a while, as the real server does after a CNAME write.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use data_encoding::BASE64;
use http::{HeaderMap, Method};
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::dns::{self, Zone};
use super::{Book, Keeps, answer, empty, lock, noted, open_book, v6_config};

/// How a Pi-hole v6 is set up.
#[allow(clippy::struct_excessive_bools)] // Switches of the real server, each its own.
#[derive(Clone, Debug)]
pub struct V6Options {
    /// The web password; None for a Pi-hole without one.
    pub password: Option<String>,
    /// An app password beside it.
    pub app_password: Option<String>,
    /// The password of the command line, which may read and never write.
    pub cli_password: Option<String>,
    /// `webserver.api.app_sudo`.
    pub app_sudo: bool,
    /// A second factor on the web password.
    pub totp: bool,
    /// `webserver.api.max_sessions`.
    pub seats: usize,
    /// `webserver.session.timeout`.
    pub session: Duration,
    /// `dns.hosts` is set by an environment variable.
    pub env_locked: bool,
    /// `dns.cnameRecords` is set by an environment variable.
    pub cnames_env_locked: bool,
    /// `misc.readOnly`.
    pub read_only: bool,
    /// FTL 6.0.3 and later accept comments in lines.
    pub comments: bool,
    /// FTL 6.3 and later put one blank between the words of every host line whenever they store anything.
    pub tidies: bool,
    /// The largest request body; one above is dropped.
    pub body_limit: usize,
    /// How many characters are missing at the start of a line that the resolver quotes.
    pub cut_hints: usize,
    /// Two writes at once end the process, as a real one does now and then. Without it they only lose each other's lines.
    pub crashes: bool,
    /// How long a restart takes.
    pub restart: Duration,
    /// How long after the answer a restart begins.
    pub restart_delay: Duration,
    /// How long a write to an empty list takes; overlapping ones lose each other's lines.
    pub write_time: Duration,
    /// How much longer it takes for every line that is there already: each write stores the whole list.
    pub line_time: Duration,
    /// How long a refused login stalls once the limit is reached.
    pub stall: Duration,
    /// How long it takes to verify the web password (0.11 s on a real server).
    pub login_time: Duration,
    /// How long it takes to verify an app password, which is tried second (0.27 s on a real server).
    pub app_login_time: Duration,
}

impl Default for V6Options {
    fn default() -> Self {
        Self {
            password: Some(PiholeV6::PASSWORD.to_owned()),
            app_password: None,
            cli_password: None,
            app_sudo: false,
            totp: false,
            seats: 16,
            session: Duration::from_mins(30),
            env_locked: false,
            cnames_env_locked: false,
            read_only: false,
            comments: true,
            tidies: true,
            // A real server took 65,524 bytes and dropped 65,534.
            body_limit: 65_524,
            cut_hints: 0,
            crashes: false,
            restart: Duration::from_millis(300),
            restart_delay: Duration::from_millis(20),
            write_time: Duration::from_millis(1),
            line_time: Duration::ZERO,
            stall: Duration::from_millis(250),
            login_time: Duration::ZERO,
            app_login_time: Duration::ZERO,
        }
    }
}

/// A running Pi-hole v6. Stops when dropped, and then fails the test over unacknowledged violations.
pub struct PiholeV6 {
    state: Arc<Mutex<Inner>>,
    addr: SocketAddr,
    dns: SocketAddr,
    restart: mpsc::UnboundedSender<Duration>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) options: V6Options,
    pub(super) hosts: Vec<String>,
    pub(super) cnames: Vec<String>,
    /// The configuration on disk, which a restart reads.
    pub(super) saved: (Vec<String>, Vec<String>),
    sessions: BTreeMap<String, Session>,
    failures: (u64, u32),
    frozen_second: Option<u64>,
    /// Whether a login that is refused for its rate moves the second hand on.
    moves_on: bool,
    started: Instant,
    pub(super) down: bool,
    /// How often the process has ended by itself.
    pub(super) process: u64,
    /// Whether a restart that has begun continues.
    away: watch::Sender<bool>,
    pub(super) restart: mpsc::UnboundedSender<Duration>,
    pub(super) book: Book,
}

#[derive(Clone, Debug)]
struct Session {
    until: Instant,
    caller: Caller,
}

/// The caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// Any client, on a Pi-hole without a password.
    Open,
    /// The web password.
    Web,
    /// An app password.
    App,
    /// The password of the command line.
    Cli,
}

impl PiholeV6 {
    /// The web password of the default options.
    pub const PASSWORD: &'static str = "web-secret";

    /// Starts a server with the default options.
    pub async fn start() -> Self {
        Self::with(V6Options::default()).await
    }

    /// Starts a server.
    pub async fn with(options: V6Options) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("an address");
        let (restart, restarts) = mpsc::unbounded_channel();
        let state = Arc::new(Mutex::new(Inner {
            options,
            hosts: Vec::new(),
            cnames: Vec::new(),
            saved: (Vec::new(), Vec::new()),
            sessions: BTreeMap::new(),
            failures: (0, 0),
            frozen_second: None,
            moves_on: false,
            started: Instant::now(),
            down: false,
            process: 0,
            away: watch::Sender::new(false),
            restart: restart.clone(),
            book: Book::default(),
        }));
        let http = tokio::spawn(run(Arc::clone(&state), listener, addr, restarts));
        let lines = Arc::clone(&state);
        let (dns, task) = dns::serve(Arc::new(move || {
            let inner = lock(&lines);
            (!inner.down).then(|| Zone::of(&inner.hosts, &inner.cnames).with_own_name("pi.hole"))
        }))
        .await;
        Self { state, addr, dns, restart, tasks: vec![http, task] }
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where it answers HTTP.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it answers DNS.
    pub fn dns(&self) -> SocketAddr {
        self.dns
    }

    /// `dns.hosts`, verbatim.
    pub fn hosts(&self) -> Vec<String> {
        lock(&self.state).hosts.clone()
    }

    /// `dns.cnameRecords`, verbatim.
    pub fn cnames(&self) -> Vec<String> {
        lock(&self.state).cnames.clone()
    }

    /// Edits the lists as a person with an editor would: nothing is checked.
    pub fn edit(&self, change: impl FnOnce(&mut Vec<String>, &mut Vec<String>)) {
        let mut inner = lock(&self.state);
        let Inner { hosts, cnames, saved, .. } = &mut *inner;
        change(hosts, cnames);
        *saved = (hosts.clone(), cnames.clone());
    }

    /// Changes a setting while it runs.
    pub fn set(&self, change: impl FnOnce(&mut V6Options)) {
        change(&mut lock(&self.state).options);
    }

    /// Changes a password: every session ends at once.
    pub fn change_password(&self, password: &str) {
        let mut inner = lock(&self.state);
        inner.options.password = Some(password.to_owned());
        inner.sessions.clear();
    }

    /// Ends every session, as an expiry or a lost session file does.
    pub fn forget_sessions(&self) {
        lock(&self.state).sessions.clear();
    }

    /// How many seats are taken.
    pub fn sessions(&self) -> usize {
        lock(&self.state).sessions.len()
    }

    /// Stops the clock of the login limit; each call advances it by one second.
    pub fn next_second(&self) {
        let mut inner = lock(&self.state);
        let second = inner.second();
        inner.frozen_second = Some(second + 1);
    }

    /// The same, and it moves on once a login was refused for its rate.
    pub fn next_second_after_refusal(&self) {
        self.next_second();
        lock(&self.state).moves_on = true;
    }

    /// Lets restarts begin and none end until [`Self::release_restarts`]: it is away for as long as a test likes.
    pub fn hold_restarts(&self) {
        lock(&self.state).away.send_replace(true);
    }

    /// Lets restarts end again.
    pub fn release_restarts(&self) {
        lock(&self.state).away.send_replace(false);
    }

    /// Restarts now and does not answer for `time`.
    pub fn restart_for(&self, time: Duration) {
        lock(&self.state).book.counters.restarts += 1;
        let _ = self.restart.send(time);
    }
}

open_book!(PiholeV6);

impl Keeps for Inner {
    fn book(&mut self) -> &mut Book {
        &mut self.book
    }
}

impl Drop for PiholeV6 {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        lock(&self.state).book.close("the v6 server");
    }
}

/// Serves until the next restart, does not answer during it, and serves again on the same port.
async fn run(
    state: Arc<Mutex<Inner>>,
    mut listener: tokio::net::TcpListener,
    addr: SocketAddr,
    mut restarts: mpsc::UnboundedReceiver<Duration>,
) {
    loop {
        let router = Router::new().fallback(serve).with_state(Arc::clone(&state));
        // Dropping `stop` (this task is aborted) ends the server too.
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, router).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let server = tokio::spawn(server.into_future());
        let Some(time) = restarts.recv().await else { return };
        lock(&state).down = true;
        let _ = stop.send(());
        let _ = tokio::time::timeout(Duration::from_millis(200), server).await;
        // Bound and not listening while it is down: no other process gets the port, and connections are refused.
        let bound = loop {
            match reserve(addr) {
                Ok(socket) => break socket,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        tokio::time::sleep(time).await;
        let mut away = lock(&state).away.subscribe();
        // The sender is part of the state, which exists as long as this.
        let _ = away.wait_for(|away| !away).await;
        listener = bound.listen(1024).unwrap_or_else(|error| panic!("listening on {addr} again: {error}"));
        let mut inner = lock(&state);
        inner.down = false;
        let (hosts, cnames) = inner.saved.clone();
        (inner.hosts, inner.cnames) = (hosts, cnames);
    }
}

fn reserve(addr: SocketAddr) -> std::io::Result<tokio::net::TcpSocket> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

async fn serve(State(state): State<Arc<Mutex<Inner>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method, parts.uri.path().to_owned());
    let target = parts.uri.path_and_query().map_or_else(|| path.clone(), ToString::to_string);
    let body = to_bytes(body, 1 << 20).await.unwrap_or_default();
    let reply = route(&state, &method, &path, parts.uri.query(), &parts.headers, &body);
    noted(&state, &method, &target, &path, reply).await
}

async fn route(
    state: &Arc<Mutex<Inner>>,
    method: &Method,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    if path.starts_with("/admin/api") {
        // Asking once is how a client finds out which dialect is spoken; the real server logs a warning.
        return error(
            400,
            "bad_request",
            "Bad request",
            Some("The API is hosted at pi.hole/api, not pi.hole/admin/api"),
        );
    }
    match (method.as_str(), path) {
        ("POST", "/api/auth") => return log_in(state, body).await,
        ("GET", "/api/auth") => return lock(state).show_session(headers),
        ("DELETE", "/api/auth") => return lock(state).log_out(headers),
        ("GET", "/api/info/login") => return answer(200, json!({"https_port": 443, "dns": true})),
        _ => {}
    }
    if !path.starts_with("/api/") {
        lock(state).book.violation(format!("{method} {path} is outside the API"));
        return error(404, "not_found", "Not found", Some(path));
    }
    let Some(caller) = lock(state).caller(headers) else {
        return error(401, "unauthorized", "Unauthorized", None);
    };
    if let Some(rest) = path.strip_prefix("/api/config") {
        return v6_config::serve(state, method, rest, query, caller, body).await;
    }
    lock(state).book.violation(format!("{method} {path} is not part of the contract"));
    error(404, "not_found", "Not found", Some(path))
}

/// Pi-hole's error object.
pub(super) fn error(status: u16, key: &str, message: &str, hint: Option<&str>) -> Response {
    answer(status, json!({"error": {"key": key, "message": message, "hint": hint}}))
}

fn session(status: u16, message: &str) -> Response {
    let session = json!({"valid": false, "totp": false, "sid": null, "validity": -1, "message": message});
    answer(status, json!({ "session": session }))
}

async fn log_in(state: &Arc<Mutex<Inner>>, body: &[u8]) -> Response {
    let (time, stall) = {
        let mut inner = lock(state);
        inner.book.counters.login_attempts += 1;
        let time = match inner.caller_of(body) {
            Some(Caller::App) => inner.options.app_login_time,
            Some(_) | None => inner.options.login_time,
        };
        match inner.try_log_in(body) {
            Ok(reply) if time.is_zero() => return reply,
            Ok(reply) => (time, Ok(reply)),
            Err(stall) => (stall, Err(())),
        }
    };
    tokio::time::sleep(time).await;
    stall.unwrap_or_else(|()| error(429, "rate_limiting", "Rate-limiting login attempts", None))
}

/// The session id a request carries.
fn sid_of(headers: &HeaderMap) -> Option<&str> {
    ["x-ftl-sid", "sid"].iter().find_map(|name| headers.get(*name)?.to_str().ok())
}

impl Inner {
    fn second(&self) -> u64 {
        self.frozen_second.unwrap_or_else(|| self.started.elapsed().as_secs())
    }

    /// Answers a login, or returns how long to stall before refusing it for its rate.
    fn try_log_in(&mut self, body: &[u8]) -> Result<Response, Duration> {
        let bad = |message: &str| Ok(error(400, "bad_request", message, None));
        if body.is_empty() {
            return bad("No request body data");
        }
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return bad("Invalid request body data (no valid JSON), error at hint");
        };
        let password = match value.get("password") {
            None => return bad("No password found in JSON payload"),
            Some(Value::String(password)) => password.clone(),
            Some(_) => return bad("Field password has to be of type 'string'"),
        };
        let Some(web) = self.options.password.clone() else {
            let open = json!({"valid": true, "totp": false, "sid": null, "validity": -1, "message": "no password set"});
            return Ok(answer(200, json!({ "session": open })));
        };
        let second = self.second();
        if self.failures.0 != second {
            self.failures = (second, 0);
        }
        if self.failures.1 >= 3 {
            return Err(self.options.stall);
        }
        let caller = if self.options.cli_password.as_deref() == Some(password.as_str()) {
            Caller::Cli
        } else if password == web {
            if self.options.totp {
                return bad("No 2FA token found in JSON payload");
            }
            Caller::Web
        } else {
            // Any other password has failed as the web password by now, even when it is a right app password.
            self.failures.1 += 1;
            let often = self.failures.1 >= 3;
            let app = self.options.app_password.as_deref();
            if often || app != Some(password.as_str()) {
                if often && self.moves_on {
                    self.frozen_second = Some(second + 1);
                }
                // A wrong one fails as the app password too.
                self.failures.1 += u32::from(!often && app.is_some());
                return Ok(session(401, "password incorrect"));
            }
            Caller::App
        };
        let now = Instant::now();
        self.sessions.retain(|_, session| session.until > now);
        if self.sessions.len() >= self.options.seats {
            let hint = Some("increase webserver.api.max_sessions");
            return Ok(error(429, "api_seats_exceeded", "API seats exceeded", hint));
        }
        let mut bytes = [0_u8; 16];
        rand::rng().fill_bytes(&mut bytes);
        // Base64 with every awkward character, as real ids have.
        let sid = format!("/+{}=", &BASE64.encode(&bytes)[..21]);
        self.sessions.insert(sid.clone(), Session { until: now + self.options.session, caller });
        self.book.counters.logins += 1;
        let message = if caller == Caller::App { "app-password correct" } else { "password correct" };
        let validity = self.options.session.as_secs();
        let csrf = BASE64.encode(&bytes[..12]);
        let opened = json!({"valid": true, "totp": self.options.totp, "sid": sid, "csrf": csrf, "validity": validity, "message": message});
        Ok(answer(200, json!({ "session": opened })))
    }

    /// The caller that the password of a login belongs to, if there is one.
    fn caller_of(&self, body: &[u8]) -> Option<Caller> {
        let value: Value = serde_json::from_slice(body).ok()?;
        let password = value["password"].as_str();
        let is = |known: &Option<String>| known.is_some() && known.as_deref() == password;
        [(&self.options.password, Caller::Web), (&self.options.app_password, Caller::App)]
            .into_iter()
            .find_map(|(known, caller)| is(known).then_some(caller))
    }

    fn caller(&mut self, headers: &HeaderMap) -> Option<Caller> {
        if self.options.password.is_none() {
            return Some(Caller::Open);
        }
        let renewed = Instant::now() + self.options.session;
        let sid = sid_of(headers)?.to_owned();
        let session = self.sessions.get_mut(&sid)?;
        session.until = renewed;
        Some(session.caller)
    }

    fn show_session(&mut self, headers: &HeaderMap) -> Response {
        match self.caller(headers) {
            Some(Caller::Open) => answer(
                200,
                json!({"session": {"valid": true, "totp": false, "sid": null, "validity": -1, "message": "no password set"}}),
            ),
            Some(Caller::Web | Caller::App | Caller::Cli) => answer(
                200,
                json!({"session": {"valid": true, "totp": self.options.totp, "sid": sid_of(headers), "validity": self.options.session.as_secs(), "message": "correct"}}),
            ),
            None if sid_of(headers).is_some() => session(401, "session unknown"),
            None => session(401, "no SID provided"),
        }
    }

    fn log_out(&mut self, headers: &HeaderMap) -> Response {
        match sid_of(headers).map(str::to_owned).and_then(|sid| self.sessions.remove(&sid)) {
            Some(_) => {
                self.book.counters.logouts += 1;
                empty(204)
            }
            None => session(401, "session unknown"),
        }
    }
}
