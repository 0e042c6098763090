//! The shared state of one simulation: the cluster, the time, the weather, the trace, and the violations.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::api::{Api, PostParams};
use signpost_sandbox::{Sandbox, SandboxClock, SandboxOptions};
use tokio::time::Instant;

use crate::{
    dice::hash,
    history::Side,
    strikes::Strikes,
    weather::{Class, Fate, Weather},
};

/// When every simulation starts: 16 November 2026, midnight.
pub const START: i64 = 1_794_787_200;

/// Called with the path of an object after the operator wrote its metadata.
type Hook = Box<dyn Fn(String) -> BoxFuture<'static, ()> + Send + Sync>;

/// The shared state of one simulation. Must be created inside the runtime of the simulation.
pub struct World {
    /// The seed of the history.
    pub seed: u64,
    /// The Kubernetes API.
    pub sandbox: Sandbox,
    /// The faults of requests.
    pub weather: Weather,
    /// Which requests met a fault.
    pub strikes: Strikes,
    origin: Instant,
    trace: Mutex<Trace>,
    /// Writes of the operator so far, leases left out.
    writes: AtomicU64,
    last_write: Mutex<String>,
    violations: Mutex<BTreeSet<String>>,
    /// What users did so far, in the cluster and at the provider.
    acts: AtomicU64,
    /// Until when faults may have an effect.
    disturbed: Mutex<Instant>,
    hook: OnceLock<Hook>,
    /// When the write of metadata was sent that the hook is called for.
    sent: Mutex<Instant>,
}

#[derive(Debug)]
struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

fn start() -> Timestamp {
    Timestamp::from_second(START).unwrap_or_default()
}

fn options(clock: SandboxClock, seed: u64) -> SandboxOptions {
    SandboxOptions { clock, seed, bookmark_interval: Duration::from_mins(30), log: false, ..SandboxOptions::default() }
}

/// A cluster that `install` has been run on, for [`World::new`].
pub fn prepare<F>(install: impl FnOnce(kube::Client) -> F) -> Result<Sandbox, String>
where
    F: Future<Output = Result<(), kube::Error>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let sandbox = Sandbox::new(options(SandboxClock::from_fn(start), 0));
        install(sandbox.client()).await.map_err(|error| error.to_string())?;
        Ok(sandbox)
    })
}

/// Installs definitions.
pub async fn create_definitions(
    client: &kube::Client,
    definitions: &[CustomResourceDefinition],
) -> Result<(), kube::Error> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        crds.create(&PostParams::default(), definition).await?;
    }
    Ok(())
}

/// Creates namespaces.
pub async fn create_namespaces(client: &kube::Client, names: &[&str]) -> Result<(), kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in names {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some((*name).to_owned());
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    Ok(())
}

impl World {
    /// A new world whose cluster is a copy of `prepared`. With `keep`, the lines of the trace are kept for printing.
    pub fn new(prepared: &Sandbox, seed: u64, keep: bool) -> Arc<Self> {
        let sandbox = prepared.fork(options(SandboxClock::tokio_from(start()), seed));
        Arc::new(Self {
            seed,
            sandbox,
            weather: Weather::new(seed),
            strikes: Strikes::default(),
            origin: Instant::now(),
            trace: Mutex::new(Trace { hash: seed, lines: keep.then(Vec::new) }),
            writes: AtomicU64::new(0),
            last_write: Mutex::default(),
            violations: Mutex::default(),
            acts: AtomicU64::new(0),
            disturbed: Mutex::new(Instant::now()),
            hook: OnceLock::new(),
            sent: Mutex::new(Instant::now()),
        })
    }

    /// The fate of a request; `name` identifies it.
    pub fn fate(&self, side: Side, class: Class, name: &str) -> Fate {
        let fate = self.weather.fate(side, class, name);
        self.strikes.note(class, name, &fate);
        fate
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The wall clock in seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        START.unsigned_abs() + self.elapsed().as_secs()
    }

    fn trace(&self) -> MutexGuard<'_, Trace> {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what happened.
    pub fn note(&self, line: &str) {
        let at = self.elapsed();
        let mut trace = self.trace();
        trace.hash = hash(trace.hash, line, u64::try_from(at.as_micros()).unwrap_or(u64::MAX));
        if let Some(lines) = &mut trace.lines {
            lines.push(format!("{:>10.3} {line}", at.as_secs_f64()));
        }
    }

    /// A digest of the trace.
    pub fn trace_hash(&self) -> u64 {
        self.trace().hash
    }

    /// The trace so far, where it is kept.
    pub fn trace_lines(&self) -> Vec<String> {
        self.trace().lines.clone().unwrap_or_default()
    }

    /// The operator changed something, on either side.
    pub fn wrote(&self, what: &str) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        what.clone_into(&mut self.last_write.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// How many writes of the operator there were, and what the last one was.
    pub fn writes(&self) -> (u64, String) {
        let last = self.last_write.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.writes.load(Ordering::Relaxed), last)
    }

    /// A user does something, in the cluster or at the provider.
    pub fn acts(&self) {
        self.acts.fetch_add(1, Ordering::Relaxed);
    }

    /// The version of the last change in the cluster. Leases and events do not count: no check looks at them.
    pub fn last_change(&self) -> u64 {
        self.sandbox.last_change_outside(&["events", "leases.coordination.k8s.io"])
    }

    /// The same value means that neither the cluster nor the provider has changed.
    pub fn version(&self) -> (u64, u64, u64) {
        let [writes, acts] = [&self.writes, &self.acts].map(|count| count.load(Ordering::Relaxed));
        (self.last_change(), writes, acts)
    }

    /// A fault whose effect lasts until then, at most.
    pub fn disturb(&self, until: Instant) {
        let mut disturbed = self.disturbed.lock().unwrap_or_else(PoisonError::into_inner);
        *disturbed = until.max(*disturbed);
    }

    /// Since when no fault has had an effect.
    pub fn calm_since(&self) -> Instant {
        *self.disturbed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `hook` from now on with the bed and the path of the object, after every write of metadata by the operator.
    pub fn on_metadata<B, F>(&self, bed: &Arc<B>, hook: impl Fn(Arc<B>, String) -> F + Send + Sync + 'static)
    where
        B: Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let bed = Arc::downgrade(bed);
        let hook: Hook = Box::new(move |path| match bed.upgrade() {
            Some(bed) => hook(bed, path).boxed(),
            None => std::future::ready(()).boxed(),
        });
        drop(self.hook.set(hook));
    }

    /// The operator wrote the metadata of the object at this path, by a request that was sent then.
    pub async fn metadata_written(&self, path: String, sent: Instant) {
        if let Some(hook) = self.hook.get() {
            *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = sent;
            hook(path).await;
        }
    }

    /// When the write was sent that the hook is called for. It must be asked before the hook waits for anything.
    pub fn sent(&self) -> Instant {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that must never be.
    pub fn violation(&self, what: String) {
        self.note(&format!("VIOLATION {what}"));
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }

    /// Everything found wrong so far.
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
