//! `make bench`: the goals of the project, measured on real servers. Every comparison is made within one run.
//!
//! Each measurement is one line, `NAME VALUE UNIT (goal GOAL) ok|short`; all of them are also written to `target/bench.json`. The exit code
//! is 1 when a measurement is short of its goal. With `--before FILE` every benchmark runs with that operator first, and the end shows both
//! side by side. With `--rounds NUMBER` each of them runs so often, by turns, and the medians are compared.

mod answered;
mod change;
mod converge;
mod cutter;
mod inventory;
mod measurement;
mod memory;
mod operator;
mod pangolin;
mod pihole;
mod portal;
mod relay;
mod router;
mod servers;
mod strategies;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use signpost_testkit::{Backend, Cluster, PowerDns, PowerDnsOptions};

use measurement::Measurements;

/// The benchmark that needs neither servers nor an operator.
const IN_MEMORY: &str = "inventory";
/// The benchmarks that an operator from before the engine took over statuses, memory and refusals can run, with the same settings and metrics.
const SINCE_THE_START: [&str; 4] = ["converge", "change", "memory", "pihole"];
/// `router` is the last: its 50,000 objects are not deleted.
const BENCHES: [&str; 8] = [IN_MEMORY, "converge", "change", "memory", "pihole", "pangolin", "portal", "router"];

/// Benchmarks on the real servers.
#[derive(Debug, Parser)]
struct Args {
    /// The operator's binary, built for release
    #[arg(long, value_name = "FILE", default_value = "target/release/signpost")]
    operator: PathBuf,
    /// The binary of an older operator to compare with, built for release
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Run only these
    #[arg(long, value_name = "NAME", value_parser = BENCHES, value_delimiter = ',')]
    only: Vec<String>,
    /// How often each benchmark runs; with --before, the medians are compared
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    rounds: usize,
    /// Routes of the router benchmark; fewer show that it works
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    routes: usize,
    /// File for the measurements as JSON
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    json: PathBuf,
}

/// The environment of every benchmark.
struct Bench {
    cluster: Cluster,
    powerdns: PowerDns,
    operator: PathBuf,
    started: Instant,
    logs: tempfile::TempDir,
    routes: usize,
}

impl Bench {
    /// Reports progress on standard error, so that standard output has only measurements.
    #[allow(clippy::print_stderr)] // progress is part of the program
    fn report(&self, what: &str) {
        eprintln!("[{:6.1} s] {what}", self.started.elapsed().as_secs_f64());
    }

    /// Starts the operator for the powerdns system on one namespace.
    fn operator(&self, namespace: &str) -> anyhow::Result<operator::Operator> {
        self.start(namespace, &self.cluster.kubeconfig(), self.powerdns())
    }

    /// Starts the operator for the pihole system on one namespace.
    fn pihole_operator(&self, namespace: &str, kubeconfig: &Path, url: &str) -> anyhow::Result<operator::Operator> {
        self.start(namespace, kubeconfig, pihole_at(url))
    }

    /// Starts the operator for both systems on one namespace.
    fn both_operator(&self, namespace: &str, url: &str) -> anyhow::Result<operator::Operator> {
        self.start(namespace, &self.cluster.kubeconfig(), [self.powerdns(), pihole_at(url)].concat())
    }

    fn start(
        &self,
        namespace: &str,
        kubeconfig: &Path,
        mut settings: Vec<(&str, String)>,
    ) -> anyhow::Result<operator::Operator> {
        settings.extend([
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("WATCH_NAMESPACE", namespace.to_owned()),
            ("POD_NAMESPACE", namespace.to_owned()),
        ]);
        operator::Operator::start(&self.operator, &settings, &self.logs.path().join(format!("{namespace}.log")))
    }

    fn powerdns(&self) -> Vec<(&'static str, String)> {
        vec![("PDNS_API_URL", self.powerdns.api_url()), ("PDNS_API_KEY", self.powerdns.api_key())]
    }

    /// Runs one benchmark.
    async fn run(&self, name: &str, measurements: &mut Measurements) -> anyhow::Result<()> {
        match name {
            "converge" => converge::run(self, measurements).await,
            "change" => change::run(self, measurements).await,
            "memory" => memory::run(self, measurements).await,
            "pihole" => pihole::run(self, measurements).await,
            "router" => router::run(self, measurements, self.routes).await,
            "pangolin" => pangolin::run(self, measurements).await,
            "portal" => portal::run(self, measurements).await,
            other => anyhow::bail!("{other} is not a benchmark"),
        }
        .with_context(|| name.to_owned())
    }
}

fn pihole_at(url: &str) -> Vec<(&'static str, String)> {
    vec![
        ("PIHOLE_URL", url.to_owned()),
        ("PIHOLE_API_TOKEN", signpost_testkit::pihole::V6Options::default().password.unwrap_or_default()),
        ("PIHOLE_API_DIALECT", "v6".to_owned()),
        ("DEFAULT_TARGET_IP", "10.0.0.1".to_owned()),
        ("OWNER_ID", "b".to_owned()),
    ]
}

/// Writes the measurements, also when a benchmark failed. The logs are kept then, and the error names them.
#[allow(clippy::print_stdout)] // this is the program's output
fn conclude(
    measurements: &Measurements,
    json: &Path,
    logs: tempfile::TempDir,
    ending: anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    if let Some(folder) = json.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(json, serde_json::to_string_pretty(measurements.all())?)?;
    let short = measurements.all().iter().filter(|measurement| !measurement.ok).count();
    println!("{} measurements, {short} short", measurements.all().len());
    ending.map_err(|error| error.context(format!("the operator's logs are in {}", logs.keep().display())))?;
    Ok(if short == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let (mut measurements, mut earlier) = (Measurements::default(), Measurements::labelled("before: "));
    let chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    if chosen(IN_MEMORY) {
        inventory::run(&mut measurements).context(IN_MEMORY)?;
    }
    if args.only == [IN_MEMORY] {
        return conclude(&measurements, &args.json, tempfile::tempdir()?, Ok(()));
    }
    for operator in args.before.iter().chain([&args.operator]) {
        anyhow::ensure!(operator.exists(), "{} does not exist; `make bench` builds the operator", operator.display());
    }
    let started = Instant::now();
    let cluster = signpost_testkit::real_cluster().await.context("no kube-apiserver; run dev/setup")?;
    cluster.install(&signpost_apis::powerdns::crds()).await;
    // PowerDNS's own default; the tests switch it off, to edit the database directly.
    let settings = vec![("zone-cache-refresh-interval".to_owned(), "300".to_owned())];
    let options = PowerDnsOptions { settings, ..PowerDnsOptions::default() };
    let powerdns = PowerDns::start(Backend::Sqlite, options).await.context("no PowerDNS; run dev/setup")?;
    let (operator, logs, routes) = (args.operator.clone(), tempfile::tempdir()?, args.routes);
    let mut bench = Bench { cluster, powerdns, operator, started, logs, routes };

    let mut ending = Ok(());
    let names = || BENCHES.into_iter().filter(|name| *name != IN_MEMORY && chosen(name));
    for name in (0..args.rounds).flat_map(|_| names()) {
        // The operator of --before may be older than the other systems.
        if let Some(before) = args.before.as_ref().filter(|_| SINCE_THE_START.contains(&name)) {
            bench.operator.clone_from(before);
            ending = bench.run(name, &mut earlier).await.context("with the operator of --before");
            if ending.is_err() {
                break;
            }
            bench.operator.clone_from(&args.operator);
        }
        ending = bench.run(name, &mut measurements).await;
        if ending.is_err() {
            break;
        }
    }
    if args.before.is_some() {
        measurement::side_by_side(&earlier, &measurements);
    }
    conclude(&measurements, &args.json, bench.logs, ending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use measurement::{Goal, Measurement};

    #[test]
    fn a_failure_keeps_the_measurements_and_the_logs() {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("deep/bench.json");
        let mut measurements = Measurements::default();
        measurements.push(Measurement::new("a.b", 1.0, "x", Goal::None));
        let logs = tempfile::tempdir().unwrap();
        let kept = logs.path().to_owned();
        let error = conclude(&measurements, &json, logs, Err(anyhow::anyhow!("no answer"))).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.contains(kept.to_str().unwrap()) && message.contains("no answer"), "{message}");
        assert!(kept.is_dir());
        std::fs::remove_dir(&kept).unwrap();
        assert!(std::fs::read_to_string(&json).unwrap().contains("a.b"));

        let logs = tempfile::tempdir().unwrap();
        let removed = logs.path().to_owned();
        assert_eq!(conclude(&measurements, &json, logs, Ok(())).unwrap(), ExitCode::SUCCESS);
        assert!(!removed.exists());
    }
}
