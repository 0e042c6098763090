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
    async fn run(&self, name: &str, figures: &mut Figures) -> anyhow::Result<()> {
        match name {
            "converge" => converge::run(self, figures).await,
            "change" => change::run(self, figures).await,
            "memory" => memory::run(self, figures).await,
            "pihole" => pihole::run(self, figures).await,
            other => anyhow::bail!("no benchmark is called {other}"),
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

/// Writes what was measured, also when a benchmark failed; then its logs stay, and the error says where.
#[allow(clippy::print_stdout)] // this is the program's output
fn conclude(
    figures: &Figures,
    json: &Path,
    logs: tempfile::TempDir,
    ending: anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    if let Some(folder) = json.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(json, serde_json::to_string_pretty(figures.all())?)?;
    let short = figures.all().iter().filter(|figure| !figure.ok).count();
    println!("{} figures, {short} short", figures.all().len());
    ending.map_err(|error| error.context(format!("the operator's logs are in {}", logs.keep().display())))?;
    Ok(if short == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[tokio::main]
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
    let mut ending = Ok(());
    for name in BENCHES.into_iter().filter(|name| args.only.as_deref().is_none_or(|only| only == *name)) {
        ending = bench.run(name, &mut figures).await;
        if ending.is_err() {
            break;
        }
    }
    conclude(&figures, &args.json, bench.logs, ending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use figure::{Figure, Goal};

    #[test]
    fn what_was_measured_before_a_failure_is_written_and_the_logs_that_are_named_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("deep/bench.json");
        let mut figures = Figures::default();
        figures.push(Figure::new("a.b", 1.0, "x", Goal::Told));
        let logs = tempfile::tempdir().unwrap();
        let kept = logs.path().to_owned();
        let error = conclude(&figures, &json, logs, Err(anyhow::anyhow!("no answer"))).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains(kept.to_str().unwrap()) && said.contains("no answer"), "{said}");
        assert!(kept.is_dir());
        std::fs::remove_dir(&kept).unwrap();
        assert!(std::fs::read_to_string(&json).unwrap().contains("a.b"));

        let logs = tempfile::tempdir().unwrap();
        let gone = logs.path().to_owned();
        assert_eq!(conclude(&figures, &json, logs, Ok(())).unwrap(), ExitCode::SUCCESS);
        assert!(!gone.exists());
    }
}
