//! The entry point: reads the command line, runs the command, turns its ending into an exit code.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use signpost::cli::{Cli, Command};
use signpost::{crds, demo, run};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ending = match cli.command {
        Command::Crds => crds::yaml().and_then(|text| print(text.as_bytes())),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "signpost", &mut text);
            print(&text)
        }
        Command::Demo(args) => on_runtime(async move |stop| {
            Ok(match demo::run(&args, stop).await? {
                demo::Ending::Converged => ExitCode::SUCCESS,
                demo::Ending::Short => ExitCode::FAILURE,
            })
        }),
        Command::Run(args) => on_runtime(async move |stop| run::run(&args, stop).await),
    };
    ending.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "signpost: {error:#}");
        ExitCode::FAILURE
    })
}

/// Prints to standard output; a reader that went away is no error.
fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    match std::io::stdout().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Runs a command that stops when asked to by SIGINT or SIGTERM; the second signal ends it at once.
fn on_runtime(command: impl AsyncFnOnce(CancellationToken) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        // Listened to before anything is begun: from here on a signal ends the command in good order.
        let signals = Signals::listen()?;
        tokio::spawn(signals.forward_to(stop.clone()));
        command(stop).await
    })
}

/// The two signals that ask a process to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn forward_to(mut self, stop: CancellationToken) {
        self.next().await;
        stop.cancel();
        let code = self.next().await;
        std::process::exit(code);
    }

    /// Waits for one; returns the exit code of a process that it ends.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}
