//! A Kubernetes API, an authoritative name server and the public edge of a Pangolin in one process, for the demo and the tests. See
//! `README.md`.
//!
//! In: requests of an unmodified `kube::Client`, or of kubectl over loopback. Out: what kube-apiserver would answer, from
//! memory, with a clock and identifiers that a test can fix, and with injected faults.
//!
//! ```text
//! kube::Client ─┐                                   ┌► discovery · openapi
//! kubectl ──────┴► service (faults, log, deny) ─────┼► api (get list create update patch delete) ─► world (store, kinds)
//!                                                   └► watch ◄──────────── changes ────────────────┘
//! ```

mod api;
pub mod apply;
mod clock;
mod discovery;
mod document;
pub mod edge;
mod faults;
mod kinds;
mod log;
pub mod nameserver;
mod openapi;
mod protobuf;
mod render;
mod request;
pub mod schema;
mod selector;
mod serve;
mod service;
mod signal;
mod status;
mod store;
mod table;
mod watch;
mod world;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response};

pub use crate::{
    api::review::DenyRule,
    clock::SandboxClock,
    faults::{EventFate, EventPlan, Fault, FaultPlan, Faults, Session},
    log::RequestLogEntry,
    request::RequestInfo,
    serve::Served,
    status::ApiError,
};
use crate::{log::RequestLog, world::SandboxState};

/// How a sandbox is set up.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// Where timestamps come from.
    pub clock: SandboxClock,
    /// The seed of uids and generated names.
    pub seed: u64,
    /// How many past changes each resource keeps; watches from before get 410.
    pub history: usize,
    /// How often watches get bookmarks.
    pub bookmark_interval: Duration,
    /// Requests to refuse with 403.
    pub deny: Vec<DenyRule>,
    /// Whether owner garbage collection and namespace deletion run, as kube-controller-manager does them.
    pub controllers: bool,
    /// Whether requests are kept for [`Sandbox::log`] and the counters. They are kept until the sandbox is dropped.
    pub log: bool,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        Self {
            clock: SandboxClock::system(),
            seed: 0,
            history: 20_000,
            bookmark_interval: Duration::from_mins(1),
            deny: Vec::new(),
            controllers: true,
            log: true,
        }
    }
}

/// The state that all clients of one sandbox share.
#[derive(Debug)]
pub(crate) struct Shared {
    world: Mutex<SandboxState>,
    options: SandboxOptions,
    faults: Faults,
    log: RequestLog,
    deny: Mutex<Vec<DenyRule>>,
}

impl Shared {
    pub(crate) fn world(&self) -> MutexGuard<'_, SandboxState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn deny(&self) -> Vec<DenyRule> {
        self.deny.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A Kubernetes API in this process. Clones share it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new(SandboxOptions::default())
    }
}

impl Sandbox {
    /// An empty cluster with the usual namespaces.
    pub fn new(options: SandboxOptions) -> Self {
        let world = SandboxState::new(&options);
        Self::of(world, options)
    }

    /// A copy of this cluster that shares nothing with it from now on: objects, kinds and history are the same, the clock, the
    /// seed and everything else are those of `options`. The history keeps its length.
    ///
    /// Installing CRDs is the most expensive part of a short test. Install them once and fork the result.
    #[must_use]
    pub fn fork(&self, options: SandboxOptions) -> Self {
        let world = self.shared.world().fork(&options);
        Self::of(world, options)
    }

    fn of(world: SandboxState, options: SandboxOptions) -> Self {
        let deny = Mutex::new(options.deny.clone());
        let log = RequestLog::new(options.log);
        let shared = Shared { world: Mutex::new(world), options, faults: Faults::default(), log, deny };
        Self { shared: Arc::new(shared) }
    }

    /// A client of this sandbox. Needs a tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.session_client(&Session::default())
    }

    /// A client that meets the faults of a plan.
    pub fn client_with(&self, plan: FaultPlan) -> kube::Client {
        self.session_client(&Session::new(plan))
    }

    /// A client of a session, which a test can cut off at any moment.
    pub fn session_client(&self, session: &Session) -> kube::Client {
        kube::Client::new(self.connection(session), "default")
    }

    /// The service that the clients of a session send their requests to, for a test with a network of its own.
    pub fn connection(&self, session: &Session) -> Connection {
        Connection { shared: self.shared.clone(), session: session.clone() }
    }

    /// Serves the API over plain HTTP, for kubectl and other processes.
    pub async fn serve(&self, addr: SocketAddr) -> io::Result<Served> {
        serve::serve(self.shared.clone(), addr).await
    }

    /// Faults for all clients.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Replaces the requests that are refused with 403.
    pub fn deny(&self, rules: Vec<DenyRule>) {
        *self.shared.deny.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// All requests so far, oldest first.
    pub fn log(&self) -> Vec<RequestLogEntry> {
        self.shared.log.entries()
    }

    /// All requests so far; forgets them.
    pub fn take_log(&self) -> Vec<RequestLogEntry> {
        self.shared.log.take()
    }

    /// How often each verb was used on each resource (`ingresses`, `ingresses/status`).
    pub fn request_counts(&self) -> BTreeMap<(String, String), usize> {
        self.shared.log.counts()
    }

    /// How many requests changed the cluster, or may have.
    pub fn writes(&self) -> usize {
        self.shared.log.writes()
    }

    /// The version of the last change.
    pub fn resource_version(&self) -> u64 {
        self.shared.world().store.version()
    }

    /// The version of the last change outside these resources, such as `events` or `leases.coordination.k8s.io`.
    pub fn last_change_outside(&self, resources: &[&str]) -> u64 {
        let world = self.shared.world();
        let others = world.store.tables().filter(|(name, _)| !resources.contains(&name.as_str()));
        others.map(|(_, table)| table.last_change()).max().unwrap_or_default()
    }

    /// Forgets all past changes: watches and pages from before now get 410.
    pub fn compact(&self) {
        self.shared.world().store.compact();
    }
}

/// One client's way to the sandbox.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    session: Session,
}

impl tower::Service<Request<kube::client::Body>> for Connection {
    type Response = Response<service::Body>;
    type Error = watch::BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let (shared, session) = (self.shared.clone(), self.session.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            service::serve(shared, session, Request::from_parts(parts, body)).await
        })
    }
}
