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
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::dns::{self, Zone};
use super::{Book, Counters, Upset, answer, empty, lock, plain, v6_config};

/// How a Pi-hole v6 is set up.
#[derive(Clone, Debug)]
pub struct V6Options {
    /// The web password; None for a Pi-hole without one.
    pub password: Option<String>,
    /// An app password beside it.
    pub app_password: Option<String>,
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
    /// `misc.readOnly`.
    pub read_only: bool,
    /// FTL 6.0.3 and later accept comments in lines.
    pub comments: bool,
    /// How long a restart takes.
    pub restart: Duration,
    /// How long after the answer a restart begins.
    pub restart_delay: Duration,
    /// How long a write takes; overlapping ones lose each other's lines.
    pub write_time: Duration,
    /// What a refused login stalls for once the limit is reached.
    pub stall: Duration,
}

impl Default for V6Options {
    fn default() -> Self {
        Self {
            password: Some(PiholeV6::PASSWORD.to_owned()),
            app_password: None,
            app_sudo: false,
            totp: false,
            seats: 16,
            session: Duration::from_secs(1800),
            env_locked: false,
            read_only: false,
            comments: true,
            restart: Duration::from_millis(300),
            restart_delay: Duration::from_millis(20),
            write_time: Duration::from_millis(1),
            stall: Duration::from_millis(250),
        }
    }
}

/// A running Pi-hole v6. Stops when dropped, and then fails the test over violations nobody took note of.
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
    /// What is on disk: a restart goes back to it.
    pub(super) saved: (Vec<String>, Vec<String>),
    sessions: BTreeMap<String, Session>,
    failures: (u64, u32),
    frozen_second: Option<u64>,
    started: Instant,
    pub(super) down: bool,
    pub(super) restart: mpsc::UnboundedSender<Duration>,
    pub(super) book: Book,
}

#[derive(Clone, Debug)]
struct Session {
    until: Instant,
    app: bool,
}

/// Who is calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// Anybody, on a Pi-hole without a password.
    Open,
    /// The web password.
    Web,
    /// An app password.
    App,
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
            started: Instant::now(),
            down: false,
            restart: restart.clone(),
            book: Book::default(),
        }));
        let http = tokio::spawn(run(Arc::clone(&state), listener, addr, restarts));
        let lines = Arc::clone(&state);
        let (dns, task) = dns::serve(Arc::new(move || {
            let inner = lock(&lines);
            (!inner.down).then(|| Zone::of(&inner.hosts, &inner.cnames))
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

    /// Stops the second hand that the login limit goes by; each call moves it on by one.
    pub fn next_second(&self) {
        let mut inner = lock(&self.state);
        let second = inner.second();
        inner.frozen_second = Some(second + 1);
    }

    /// Restarts now and stays away for `time`.
    pub fn restart_for(&self, time: Duration) {
        lock(&self.state).book.counters.restarts += 1;
        let _ = self.restart.send(time);
    }

    /// Misbehaves for some requests.
    pub fn upset(&self, upset: Upset) {
        lock(&self.state).book.upsets.push(upset);
    }

    /// What was asked so far.
    pub fn counters(&self) -> Counters {
        lock(&self.state).book.counters
    }

    /// Every request, in order, as `METHOD path`.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.state).book.requests.clone()
    }

    /// Takes note of what was asked against the contract.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).book.violations)
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

/// Serves until the next restart, stays away, and serves again on the same port.
async fn run(
    state: Arc<Mutex<Inner>>,
    mut listener: tokio::net::TcpListener,
    addr: SocketAddr,
    mut restarts: mpsc::UnboundedReceiver<Duration>,
) {
    loop {
        let router = Router::new().fallback(serve).with_state(Arc::clone(&state));
        let (away, mut time) = mpsc::unbounded_channel();
        let wait = async {
            let time = restarts.recv().await.unwrap_or(Duration::MAX);
            let _ = away.send(time);
        };
        if axum::serve(listener, router).with_graceful_shutdown(Box::pin(async move {
            // The borrow of `restarts` must outlive the server: it is polled below instead.
            std::future::pending::<()>().await;
        })).into_future_until(wait).await.is_err() {
            return;
        }
        let Ok(time) = time.try_recv() else { return };
        lock(&state).down = true;
        tokio::time::sleep(time).await;
        listener = loop {
            match tokio::net::TcpListener::bind(addr).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let mut inner = lock(&state);
        inner.down = false;
        let (hosts, cnames) = inner.saved.clone();
        (inner.hosts, inner.cnames) = (hosts, cnames);
    }
}
