//! The entry point: reads the command line, runs the command, turns its ending into an exit code.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 128 plus its number for a second signal.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use signpost::cli::{Cli, Command};
use signpost::{crds, demo, manifest, rbac, run, systems};
use signpost_engine::SystemSpec;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ending = match cli.command {
        Command::Crds(args) => {
            with_systems(&args.systems, |systems| crds::yaml(systems).and_then(|text| print(text.as_bytes())))
        }
        Command::Rbac(args) => with_systems(&args.systems, |systems| match rbac::asked_for(&args, systems) {
            Ok(manifests) => manifest::to_stream(&manifests).and_then(|text| print(text.as_bytes())),
            Err(problem) => {
                let _ = writeln!(std::io::stderr(), "signpost: {problem}");
                Ok(ExitCode::from(2))
            }
        }),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "signpost", &mut text);
            print(&text)
        }
        Command::Demo(args) => on_runtime(|stop| async move {
            Ok(match demo::run(&args, stop).await? {
                demo::Ending::Converged => ExitCode::SUCCESS,
                demo::Ending::Short => ExitCode::FAILURE,
            })
        }),
        Command::Run(args) => on_runtime(|stop| async move { run::run(&args, stop).await }),
    };
    ending.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "signpost: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs `what` with the systems of a list, or with all when it is empty. Exit code 2 when a name is not a system.
fn with_systems(list: &str, what: impl FnOnce(&[SystemSpec]) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match list.trim() {
        "" => what(systems::SYSTEMS),
        list => match systems::named(list) {
            Ok(chosen) => what(&chosen),
            Err(problem) => {
                let _ = writeln!(std::io::stderr(), "signpost: --systems: {problem}");
                Ok(ExitCode::from(2))
            }
        },
    }
}

/// Prints to standard output; a reader that closed its end is not an error.
fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    match std::io::stdout().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Runs a command that stops when asked to by a signal; the second signal ends it at once.
fn on_runtime<F>(command: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<ExitCode>> + Send + 'static,
{
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ending = runtime.block_on(async {
        let stop = CancellationToken::new();
        // Installed before anything starts: from here on a signal ends the command in an orderly way.
        let mut signals = Signals::listen()?;
        let mut running = tokio::spawn(command(stop.clone()));
        tokio::select! {
            ending = &mut running => return ending?,
            _ = signals.next() => stop.cancel(),
        }
        tokio::select! {
            biased;
            code = signals.next() => Ok(ExitCode::from(code)),
            ending = running => ending?,
        }
    });
    // A command that was interrupted is dropped here, which removes its files.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ending
}

/// The signals that ask a process to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where it is ignored, as under nohup.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }

    /// Waits for one; returns the exit code of a process that it ends.
    async fn next(&mut self) -> u8 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = hangup => 129,
        }
    }
}

/// Whether SIGHUP, the lowest bit of the mask, is ignored in this process; `false` where that is unknown.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1))
}
