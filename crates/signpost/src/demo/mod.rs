//! `signpost demo`: everything embedded on this machine.
//!
//! ```text
//!   examples ──apply──► sandbox (Kubernetes API on loopback, kubectl works)
//!                          │ watch              ▲ status
//!                          ▼                    │
//!                       operator: every system whose spec has a demo
//!                          │ servers in memory
//!                          ▼
//!                       name server (UDP and TCP on loopback, dig works) ◄── every result is queried before it is printed
//! ```

mod examples;
mod names;
mod progress;
mod stage;
mod summary;

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use kube::Client;
use signpost_engine::health::Health;
use signpost_engine::{OperatorError, SystemSpec};
use signpost_sandbox::nameserver::NameServer;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::DemoArgs;
use crate::{crds, systems::SYSTEMS};
use examples::{Example, Expected, Kinds};
use progress::Outcome;
use stage::{Clusters, Shown};

/// How the demo ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Everything that the examples ask for is served, or refused with the expected reason.
    Converged,
    /// Something is not, and was reported.
    Short,
}

/// A file that is removed when dropped. It is always a new file, so that no existing kubeconfig is overwritten.
struct Kubeconfig(PathBuf);

impl Kubeconfig {
    fn write(path: Option<PathBuf>, port: u16, text: &str) -> anyhow::Result<Self> {
        let write = |path: &Path| {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
        };
        let written = match path {
            Some(path) => write(&path).map(|()| path.clone()).map_err(|error| (path, error)),
            // A file that a killed demo left behind does not block the next one.
            None => (0..100)
                .map(|n| if n == 0 { String::new() } else { format!("-{n}") })
                .map(|again| std::env::temp_dir().join(format!("signpost-demo-{port}{again}.kubeconfig")))
                .map(|path| write(&path).map(|()| path.clone()).map_err(|error| (path, error)))
                .find(|written| !matches!(written, Err((_, error)) if error.kind() == io::ErrorKind::AlreadyExists))
                .unwrap_or_else(|| Err((std::env::temp_dir(), io::ErrorKind::AlreadyExists.into()))),
        };
        written.map(Self).map_err(|(path, error)| {
            let problem = format!("the kubeconfig cannot be written to {}", path.display());
            match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    anyhow::anyhow!("{problem}: there is a file already; choose a new one with --kubeconfig")
                }
                _ => anyhow::anyhow!("{problem}: {error}; choose another file with --kubeconfig"),
            }
        })
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Prints a line at once, also into a pipe.
fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Runs the demo of every system until Ctrl-C, or until it converged with `--once`.
pub async fn run(args: &DemoArgs, stop: CancellationToken) -> anyhow::Result<Ending> {
    run_systems(SYSTEMS, args, stop).await
}

/// Runs the demo of some systems.
pub async fn run_systems(systems: &[SystemSpec], args: &DemoArgs, stop: CancellationToken) -> anyhow::Result<Ending> {
    let started = Instant::now();
    let foreign = systems.iter().filter_map(|spec| spec.demo).flat_map(|demo| (demo.crds)());
    let mut crds: Vec<_> = crds::of(systems).into_iter().chain(foreign).collect();
    // Several systems may need the same kind.
    let mut named = BTreeSet::new();
    crds.retain(|crd| named.insert(crd.metadata.name.clone()));
    let kinds = Kinds::new(&crds);
    let examples = examples::load(args.examples.as_deref(), systems, &kinds)?;
    let plurals = kinds.plurals(&examples);

    let sandbox = stage::sandbox();
    let served = at_port(args.api_port, "Kubernetes API", |addr| sandbox.serve(addr)).await?;
    let names = at_port(args.dns_port, "name server", NameServer::start).await?;
    let kubeconfig = Kubeconfig::write(args.kubeconfig.clone(), served.addr().port(), &served.kubeconfig())?;
    print_line(&format!("Kubernetes API  http://{}   (kubeconfig {})", served.addr(), kubeconfig.0.display()));
    print_line(&format!("name server     {}   (UDP and TCP)", names.addr()));
    for name in systems.iter().flat_map(|spec| spec.servers) {
        if std::env::var_os(name).is_some() {
            print_line(&format!("{name} is set, but the demo uses no real server; `signpost run` uses it"));
        }
    }

    let client = sandbox.client();
    let mut clusters = Clusters::new(&client, Arc::new(names::Served::by(&names).await?), crds).await?;
    let shows = clusters.start(systems).await?;
    let (health, further) = clusters.health();
    let listener = at_port(args.health_port, "health server", tokio::net::TcpListener::bind).await?;
    print_line(&format!("operator        http://{}/readyz", listener.local_addr()?));
    let health_server = tokio::spawn({
        let (health, stop) = (health.clone(), stop.clone());
        async move { health.serve(listener, stop).await }
    });
    for (name, show) in &shows {
        print_line(&format!("  {name:<13} {}", show.about()));
    }
    let mut running = Running(Some(tokio::spawn(clusters.run(stop.clone()))));

    let deadline = started + Duration::from_secs(args.timeout);
    let ending = match running.while_it_runs(&stop, follow(&client, examples, &shows, deadline)).await {
        Some(outcome) => {
            let outcome = outcome?;
            let ready = std::iter::once(&health).chain(&further).all(Health::is_ready);
            let ending = if outcome.missing.is_empty() && ready { Ending::Converged } else { Ending::Short };
            summary::print(&outcome, started.elapsed(), ending);
            if args.once {
                ending
            } else {
                summary::invite(&outcome, &shows, &plurals, &names.addr(), &kubeconfig.0);
                running.while_it_runs(&stop, std::future::pending::<()>()).await;
                if stop.is_cancelled() {
                    print_line("\nstopping");
                    ending
                } else {
                    Ending::Short
                }
            }
        }
        None => Ending::Short,
    };
    stop.cancel();
    running.finish().await;
    health_server.abort();
    Ok(ending)
}

/// The operator's task; `None` once it has ended.
struct Running(Option<JoinHandle<Result<(), OperatorError>>>);

impl Running {
    /// The result of `wanted`; `None` when the demo is asked to stop first, or when the operator ends, which is reported.
    async fn while_it_runs<T>(&mut self, stop: &CancellationToken, wanted: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            why = self.ended() => {
                print_line(&format!("\nthe operator ended, and nothing is served or written any more: {why}"));
                None
            }
            outcome = wanted => Some(outcome),
        }
    }

    /// Waits until it ends without being asked to, and returns why.
    async fn ended(&mut self) -> String {
        let ended = match &mut self.0 {
            Some(task) => task.await,
            None => std::future::pending().await,
        };
        self.0 = None;
        match ended {
            Ok(Ok(())) => "it had nothing more to do".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        }
    }

    /// Waits a limited time for the end after it was asked to stop.
    async fn finish(self) {
        if let Some(task) = self.0 {
            let _ = tokio::time::timeout(Duration::from_secs(5), task).await;
        }
    }
}

/// Applies the examples that are expected to be served, then those expected to be refused, and follows both. Then it checks those that must
/// not be changed, and shows what the systems have beyond their examples.
async fn follow(
    client: &Client,
    examples: Vec<Example>,
    shows: &[Shown],
    deadline: Instant,
) -> anyhow::Result<Outcome> {
    let (refused, others): (Vec<_>, Vec<_>) =
        examples.into_iter().partition(|example| matches!(example.expected(), Expected::Refused(_)));
    print_line(&format!("\napplying {} objects", others.len()));
    examples::apply(client, &others).await?;
    let (ignored, served): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|example| example.expected() == Expected::Ignored);
    let mut outcome = progress::follow(client, shows, &served, deadline).await;
    if !refused.is_empty() {
        // The older claim wins, and Kubernetes counts age in whole seconds: wait for the next one.
        let now = jiff::Timestamp::now();
        tokio::time::sleep(Duration::from_millis(1020 - u64::try_from(now.subsec_millisecond()).unwrap_or(0))).await;
        print_line(&format!("\napplying {} objects that cannot be served, to show why", refused.len()));
        examples::apply(client, &refused).await?;
        outcome.add(progress::follow(client, shows, &refused, deadline).await);
    }
    outcome.missing.extend(progress::changed(client, shows, &ignored).await);
    for (name, show) in shows {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, show.then()).await {
            Ok(Ok(lines)) => lines.iter().for_each(|line| print_line(line)),
            Ok(Err(error)) => outcome.missing.push(((*name).to_owned(), error.to_string())),
            Err(_) => outcome.missing.push(((*name).to_owned(), "its last step did not end in time".to_owned())),
        }
    }
    Ok(outcome)
}

/// Starts a server at the wanted port of loopback, or at a free one, which is reported.
async fn at_port<T, F, Fut>(port: u16, what: &str, start: F) -> anyhow::Result<T>
where
    F: Fn(SocketAddr) -> Fut,
    Fut: Future<Output = io::Result<T>>,
{
    match start((Ipv4Addr::LOCALHOST, port).into()).await {
        Ok(server) => Ok(server),
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {
            print_line(&format!("port {port} cannot be had for the {what} ({error}); using a free one"));
            start((Ipv4Addr::LOCALHOST, 0).into())
                .await
                .with_context(|| format!("no free port on 127.0.0.1 for the {what}"))
        }
        Err(error) => Err(error).with_context(|| format!("starting the {what} on 127.0.0.1:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_operator_that_ends_by_itself_ends_the_demo() {
        let broken = OperatorError::Broken { part: "hub", reason: "a defect".into() };
        for (ended, why) in [
            (tokio::spawn(async { Err(broken) }), "the hub ended unexpectedly: a defect"),
            (tokio::spawn(async { Ok(()) }), "nothing more to do"),
            (tokio::spawn(async { panic!("at the operator's own peril") }), "own peril"),
        ] {
            let mut running = Running(Some(ended));
            let reason = running.ended().await;
            assert!(reason.contains(why), "{reason}");
            running.finish().await;
        }
        let stop = CancellationToken::new();
        let mut running = Running(Some(tokio::spawn(async { Ok(()) })));
        assert_eq!(running.while_it_runs(&stop, std::future::pending::<()>()).await, None);
        assert!(!stop.is_cancelled());
    }

    #[tokio::test]
    async fn work_ends_with_its_result_or_with_the_stop() {
        let stop = CancellationToken::new();
        let mut running = Running(Some(tokio::spawn(std::future::pending())));
        assert_eq!(running.while_it_runs(&stop, async { 7 }).await, Some(7));
        stop.cancel();
        assert_eq!(running.while_it_runs(&stop, std::future::pending::<()>()).await, None);
    }
}
