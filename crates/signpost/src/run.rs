//! `signpost run`: the wiring of the operator.

use std::io::Write as _;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use anyhow::Context;
use signpost_engine::lease::LeaseOptions;
use signpost_engine::{Operator, OperatorOptions, client, logs};
use tokio_util::sync::CancellationToken;

use crate::cli::RunArgs;
use crate::config;

/// Runs until asked to stop. Exit code 2 when the configuration is wrong.
pub async fn run(args: &RunArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let config = match config::read(args) {
        Ok(config) => config,
        Err(problems) => {
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "signpost: the configuration cannot be used:");
            for problem in problems {
                let _ = writeln!(out, "  {problem}");
            }
            let _ = writeln!(out, "`signpost run --help` describes every setting.");
            return Ok(ExitCode::from(2));
        }
    };
    logs::init(&config.process.log_level, config.process.log_format)?;
    let mut listeners = Vec::new();
    for address in &config.process.health_addresses {
        let listener = tokio::net::TcpListener::bind(address).await;
        listeners.push(listener.with_context(|| {
            format!("health and metrics cannot be served at {address}; choose another HEALTH_ADDRESS")
        })?);
    }
    let client = tokio::select! {
        client = client::connect(args.process.kubeconfig.as_deref()) => client?,
        // Asked to stop while the cluster does not answer.
        () = stop.cancelled() => return Ok(ExitCode::SUCCESS),
    };

    let lease = config
        .process
        .leader_elect
        .then(|| LeaseOptions::new(&config.process.own_namespace, &config.process.lease_name));
    let options = OperatorOptions {
        identity: config.process.identity.clone(),
        lease,
        namespace: config.process.watch_namespace.clone(),
        ..OperatorOptions::default()
    };
    let mut operator = Operator::new(client, options);
    let health = operator.health();
    let mut names = Vec::new();
    for (name, system) in config.systems {
        system.install(&mut operator).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        names.push(name);
    }

    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = config.process.identity,
        systems = names.join(","),
        "signpost started"
    );
    let mut running = std::pin::pin!(operator.run(stop));
    // Polled once before the health server starts, so that the checks exist.
    let first = futures::poll!(running.as_mut());
    let serving = CancellationToken::new();
    let servers = listeners.into_iter().map(|listener| {
        let (health, serving) = (health.clone(), serving.clone());
        tokio::spawn(async move { health.serve(listener, serving).await })
    });
    let servers = futures::future::join_all(servers.collect::<Vec<_>>());
    let ended = match first {
        Poll::Ready(ended) => ended,
        Poll::Pending => running.await,
    };
    serving.cancel();
    // A server waits for a client that sent half a request.
    let _ = tokio::time::timeout(Duration::from_secs(1), servers).await;
    ended?;
    tracing::info!("signpost stopped");
    Ok(ExitCode::SUCCESS)
}
