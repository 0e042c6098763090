//! A real external-dns that publishes the DNSEndpoints of a cluster on a PowerDNS. A test can stop it; dropping it stops it too.

use std::path::Path;
use std::time::Duration;

use http::Method;

use crate::binaries::{Binary, find_binary};
use crate::process::{Process, Spec, free_port, scratch_dir};
use crate::{FaultProxy, PowerDns, eventually, skip};

/// A version of external-dns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalDnsVersion {
    /// 0.22.
    V22,
    /// 0.21.
    V21,
}

impl ExternalDnsVersion {
    fn binary(self) -> Binary {
        match self {
            Self::V22 => Binary::ExternalDns22,
            Self::V21 => Binary::ExternalDns21,
        }
    }
}

/// How to start an external-dns.
#[derive(Clone, Debug)]
pub struct ExternalDnsOptions {
    /// `--domain-filter`: the zone.
    pub zone: String,
    /// `--txt-owner-id`.
    pub owner: String,
    /// `--policy`; empty for none.
    pub policy: &'static str,
    /// Between two passes. An event starts one too, a few seconds later.
    pub interval: Duration,
    /// Further arguments, such as `--label-filter=…`.
    pub more: Vec<String>,
}

impl ExternalDnsOptions {
    /// For a zone and an owner id: policy `sync`, a pass each second.
    pub fn new(zone: &str, owner: &str) -> Self {
        let interval = Duration::from_secs(1);
        Self { zone: zone.to_owned(), owner: owner.to_owned(), policy: "sync", interval, more: Vec::new() }
    }

    /// With one more argument.
    #[must_use]
    pub fn with(mut self, argument: impl Into<String>) -> Self {
        self.more.push(argument.into());
        self
    }
}

/// A running external-dns.
#[derive(Debug)]
pub struct ExternalDns {
    process: Process,
}

impl ExternalDns {
    /// Starts one for a PowerDNS by the URL and the key of its API. `None` after reporting a skip, when this version is not installed.
    pub fn start(
        version: ExternalDnsVersion,
        kubeconfig: &Path,
        (server, key): (&str, &str),
        options: &ExternalDnsOptions,
    ) -> Option<Self> {
        let binary = version.binary();
        let Some(program) = find_binary(binary) else {
            let why = format!("{} is not installed; run dev/setup external-dns to get it", binary.name());
            skip("external-dns", &why);
            return None;
        };
        let mut args = vec![
            "--source=crd".to_owned(),
            "--provider=pdns".to_owned(),
            "--pdns-server-id=localhost".to_owned(),
            "--registry=txt".to_owned(),
            "--events".to_owned(),
            "--min-event-sync-interval=100ms".to_owned(),
            "--log-level=debug".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--pdns-server={server}"),
            format!("--pdns-api-key={key}"),
            format!("--domain-filter={}", options.zone),
            format!("--txt-owner-id={}", options.owner),
            format!("--interval={}ms", options.interval.as_millis()),
            format!("--metrics-address=127.0.0.1:{}", free_port()),
        ];
        let policy = Some(format!("--policy={}", options.policy)).filter(|_| !options.policy.is_empty());
        args.extend(policy.into_iter().chain(options.more.iter().cloned()));
        let spec = Spec { name: "external-dns", program, args, dir: scratch_dir("external-dns") };
        Some(Self { process: Process::start(&spec) })
    }

    /// Panics with the end of its log when it has ended by itself.
    pub fn must_run(&mut self) {
        if let Some(ended) = self.process.ended() {
            panic!("{ended}");
        }
    }

    /// The message of its end, when it has ended by itself.
    pub fn ended(&mut self) -> Option<String> {
        self.process.ended()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.process.log()).unwrap_or_default()).into_owned()
    }
}

/// How long external-dns may take to look at a zone, on the busiest machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A running external-dns, and the proxy that it reaches its PowerDNS through: a test can wait for its passes.
#[derive(Debug)]
pub struct Publisher {
    process: ExternalDns,
    proxy: FaultProxy,
}

impl Publisher {
    /// Starts one for the cluster of a kubeconfig. `None` after reporting a skip, when this version is not installed.
    pub async fn start(
        version: ExternalDnsVersion,
        kubeconfig: &Path,
        server: &PowerDns,
        options: &ExternalDnsOptions,
    ) -> Option<Self> {
        let proxy = FaultProxy::start(&server.api_url()).await;
        let process = ExternalDns::start(version, kubeconfig, (&proxy.url(), &server.api_key()), options)?;
        Some(Self { process, proxy })
    }

    /// Waits until it has looked at the zones this many times more.
    pub async fn passes(&mut self, more: usize) {
        let path = "/zones";
        let before = self.proxy.count(&Method::GET, path);
        eventually("external-dns looks at the zone", PATIENCE, || {
            self.process.must_run();
            let seen = self.proxy.count(&Method::GET, path);
            async move { if seen >= before + more { Ok(()) } else { Err(seen) } }
        })
        .await;
    }

    /// Panics with the end of its log when it has ended by itself.
    pub fn must_run(&mut self) {
        self.process.must_run();
    }

    /// Waits until it has ended by itself; returns the message, with the end of its log.
    pub async fn ends(&mut self) -> String {
        eventually("external-dns ends", PATIENCE, || {
            let ended = self.process.ended();
            async move { ended.ok_or(()) }
        })
        .await
    }
}
