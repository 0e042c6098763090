//! The operator as a separate process: start it, wait until it is ready, read its memory and CPU, stop it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A running operator.
pub(crate) struct Operator {
    child: Child,
    health: SocketAddr,
    /// One for all questions: a new client reads every certificate of the machine, which takes longer than the answer.
    client: reqwest::Client,
    started: Instant,
}

impl Operator {
    /// Starts `binary run` with these environment variables; its log is written to `log`.
    pub(crate) fn start(binary: &Path, environment: &[(&str, String)], log: &Path) -> anyhow::Result<Self> {
        let health = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let client = reqwest::Client::builder().timeout(Duration::from_secs(2)).build()?;
        let file = std::fs::File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let started = Instant::now();
        let mut command = Command::new(binary);
        command.arg("run").env_clear();
        for name in ["PATH", "HOME"] {
            if let Ok(value) = std::env::var(name) {
                command.env(name, value);
            }
        }
        let child = command
            .envs(environment.iter().map(|(name, value)| (name, value.as_str())))
            .env("HEALTH_ADDRESS", health.to_string())
            .env("LOG_FORMAT", "json")
            .env("LOG_LEVEL", "warn")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        Ok(Self { child, health, client, started })
    }

    /// When the process was started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Waits until `/readyz` answers 200; returns the time since the start.
    pub(crate) async fn ready(&mut self, deadline: Duration) -> anyhow::Result<Duration> {
        let url = format!("http://{}/readyz", self.health);
        let mut last = String::from("no answer");
        while self.started.elapsed() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("the operator stopped before it was ready: {status}");
            }
            match self.client.get(&url).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(self.started.elapsed()),
                Ok(answer) => last = answer.text().await.unwrap_or_default(),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("the operator was not ready after {deadline:?}; /readyz answered: {last}")
    }

    /// Waits until one of the operator's own counters has reached this value.
    pub(crate) async fn reached(&self, name: &str, value: f64, deadline: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        // A series that was never counted does not exist.
        while self.counter(name).await.unwrap_or(0.0) < value {
            anyhow::ensure!(start.elapsed() < deadline, "{name} is still below {value} after {deadline:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn metrics(&self) -> reqwest::Result<reqwest::Response> {
        self.client.get(format!("http://{}/metrics", self.health)).send().await
    }

    /// One of the operator's own counters.
    pub(crate) async fn counter(&self, name: &str) -> anyhow::Result<f64> {
        let text = self.metrics().await?.text().await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("/metrics has no {name}"))?.parse()?)
    }

    /// The sum of the series that begin with `prefix` and have this label.
    pub(crate) async fn sum(&self, prefix: &str, label: &str) -> anyhow::Result<f64> {
        // It may not answer yet.
        let Ok(answer) = self.metrics().await else { return Ok(0.0) };
        let text = answer.text().await?;
        let series = text.lines().filter(|line| line.starts_with(prefix) && line.contains(label));
        Ok(series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Waits until it is idle: less than 25 ms of CPU time within half a second.
    pub(crate) async fn rest(&self, deadline: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut before = self.cpu_seconds()?;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = self.cpu_seconds()?;
            if now - before < 0.025 {
                return Ok(());
            }
            before = now;
            anyhow::ensure!(start.elapsed() < deadline, "the operator did not come to rest within {deadline:?}");
        }
    }

    /// Resident memory in MB.
    pub(crate) fn rss_mb(&self) -> anyhow::Result<f64> {
        self.memory("VmRSS:")
    }

    /// Peak resident memory in MB.
    pub(crate) fn peak_mb(&self) -> anyhow::Result<f64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with(field)).with_context(|| format!("no {field}"))?;
        let kilobytes: f64 = line.split_whitespace().nth(1).context("no value")?.parse()?;
        Ok(kilobytes / 1024.0)
    }

    /// CPU seconds used so far, in user and kernel mode.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().context("no stat")?.split_whitespace().collect();
        let ticks: f64 =
            fields.get(11).context("no utime")?.parse::<f64>()? + fields.get(12).context("no stime")?.parse::<f64>()?;
        Ok(ticks / 100.0)
    }

    /// Asks the process to stop and waits for it; kills it when it does not.
    pub(crate) async fn stop(mut self) -> anyhow::Result<Duration> {
        let asked = Instant::now();
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        while asked.elapsed() < Duration::from_secs(20) {
            if self.child.try_wait()?.is_some() {
                return Ok(asked.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.child.kill()?;
        self.child.wait()?;
        bail!("the operator did not stop within 20 s of SIGTERM")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
