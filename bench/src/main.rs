//! `make bench`: the numbers the project holds itself to, on real servers, every comparison inside one run.
//!
//! Each figure is one line, `NAME VALUE UNIT (goal GOAL) ok|short`; all of them also go to `target/bench.json`. The exit code is
//! 1 when a figure is short.

mod change;
mod converge;
mod cutter;
mod figure;
mod memory;
mod operator;
mod pihole;
mod strategies;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use signpost_testkit::{Backend, Cluster, PowerDns, PowerDnsOptions};

use figure::Figures;

const BENCHES: [&str; 4] = ["converge", "change", "memory", "pihole"];

/// Benchmarks on the real servers.
#[derive(Debug, Parser)]
struct Args {
    /// The operator's binary, built for release
    #[arg(long, value_name = "FILE", default_value = "target/release/signpost")]
    operator: PathBuf,
    /// Run only this one
    #[arg(long, value_name = "NAME", value_parser = BENCHES)]
    only: Option<String>,
    /// Where the figures go as JSON
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    json: PathBuf,
}

/// What every benchmark stands on.
struct Bench {
    cluster: Cluster,
    powerdns: PowerDns,
    operator: PathBuf,
    started: Instant,
    logs: tempfile::TempDir,
}

impl Bench {
    /// Progress, on standard error so that standard output holds figures alone.
    #[allow(clippy::print_stderr)] // this is the program's way to talk
    fn say(&self, what: &str) {
        eprintln!("[{:6.1} s] {what}", self.started.elapsed().as_secs_f64());
    }

    /// Starts the operator for the powerdns system on one namespace.
    fn operator(&self, namespace: &str) -> anyhow::Result<operator::Operator> {
        let environment = [
            ("KUBECONFIG", self.cluster.kubeconfig().display().to_string()),
            ("WATCH_NAMESPACE", namespace.to_owned()),
            ("POD_NAMESPACE", namespace.to_owned()),
            ("PDNS_API_URL", self.powerdns.api_url()),
            ("PDNS_API_KEY", self.powerdns.api_key()),
        ];
        operator::Operator::start(&self.operator, &environment, &self.logs.path().join(format!("{namespace}.log")))
    }

    /// Starts the operator for the pihole system on one namespace.
    fn pihole_operator(&self, namespace: &str, kubeconfig: &Path, url: &str) -> anyhow::Result<operator::Operator> {
        let environment = [
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("WATCH_NAMESPACE", namespace.to_owned()),
            ("POD_NAMESPACE", namespace.to_owned()),
            ("PIHOLE_URL", url.to_owned()),
            ("PIHOLE_API_TOKEN", signpost_testkit::pihole::V6Options::default().password.unwrap_or_default()),
            ("PIHOLE_API_DIALECT", "v6".to_owned()),
            ("DEFAULT_TARGET_IP", "10.0.0.1".to_owned()),
            ("OWNER_ID", "b".to_owned()),
        ];
        operator::Operator::start(&self.operator, &environment, &self.logs.path().join(format!("{namespace}.log")))
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[tokio::main]
#[allow(clippy::print_stdout)] // this is the program's output
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    anyhow::ensure!(args.operator.exists(), "{} is not there; `make bench` builds it", args.operator.display());
    let started = Instant::now();
    let cluster = signpost_testkit::real_cluster().await.context("no kube-apiserver; run dev/setup")?;
    cluster.install(&signpost_apis::powerdns::crds()).await;
    // Its own default; the tests switch it off, to edit the database behind the server's back.
    let settings = vec![("zone-cache-refresh-interval".to_owned(), "300".to_owned())];
    let options = PowerDnsOptions { settings, ..PowerDnsOptions::default() };
    let powerdns = PowerDns::start(Backend::Sqlite, options).await.context("no PowerDNS; run dev/setup")?;
    let bench = Bench { cluster, powerdns, operator: args.operator, started, logs: tempfile::tempdir()? };

    let mut figures = Figures::default();
    for name in BENCHES.into_iter().filter(|name| args.only.as_deref().is_none_or(|only| only == *name)) {
        match name {
            "converge" => converge::run(&bench, &mut figures).await,
            "change" => change::run(&bench, &mut figures).await,
            "memory" => memory::run(&bench, &mut figures).await,
            "pihole" => pihole::run(&bench, &mut figures).await,
            other => anyhow::bail!("no benchmark is called {other}"),
        }
        .with_context(|| format!("{name}; the operator's logs are in {}", bench.logs.path().display()))?;
    }
    if let Some(folder) = args.json.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&args.json, serde_json::to_string_pretty(figures.all())?)?;
    let short = figures.all().iter().filter(|figure| !figure.ok).count();
    println!("{} figures, {short} short", figures.all().len());
    Ok(if short == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
