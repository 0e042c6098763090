//! etcd, kube-apiserver and kube-controller-manager on free loopback ports: one set per test binary.
//!
//! The controller manager runs only the two controllers that the suites rely on: garbage collection and namespace deletion. RBAC is on; the
//! administrator's token is in `system:masters`; tests with fewer permissions impersonate a user.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data_encoding::{BASE64, HEXLOWER};
use tokio::sync::OnceCell;

use crate::binaries::{Binary, find_binary};
use crate::process::{Process, Spec, free_port, scratch_dir};

/// A running control plane. It runs until the test process ends.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    etcd_url: String,
    kubeconfig: PathBuf,
    _processes: Vec<Process>,
}

/// How long a start may take before it counts as failed. Usually about three seconds.
const START_DEADLINE: Duration = Duration::from_secs(90);

impl ControlPlane {
    /// The control plane of this test binary, started at the first call; `Err` names a missing binary.
    pub(crate) async fn shared() -> Result<&'static Self, String> {
        static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
        Self::once(&SHARED).await
    }

    /// A second one, for tests of two clusters.
    pub(crate) async fn second() -> Result<&'static Self, String> {
        static SECOND: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
        Self::once(&SECOND).await
    }

    async fn once(cell: &'static OnceCell<Result<Self, String>>) -> Result<&'static Self, String> {
        let binaries = Binaries::find()?;
        let started = cell.get_or_init(|| Self::start_with_retries(&binaries)).await;
        Ok(started.as_ref().unwrap_or_else(|error| panic!("{error}")))
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The address of etcd, for compaction, which the API server does not offer.
    pub(crate) fn etcd_url(&self) -> &str {
        &self.etcd_url
    }

    /// Another process may take a port between our check and the server's bind: retry on other ports.
    async fn start_with_retries(binaries: &Binaries) -> Result<Self, String> {
        let mut problems = Vec::new();
        for _ in 0..3 {
            match Self::start(binaries).await {
                Ok(plane) => return Ok(plane),
                Err(problem) => problems.push(problem),
            }
        }
        Err(format!("the control plane did not start in three attempts:\n{}", problems.join("\n")))
    }

    async fn start(binaries: &Binaries) -> Result<Self, String> {
        let (etcd, etcd_url) = start_etcd(binaries);
        let (api_server, api_port, dir) = start_api_server(binaries, &etcd_url);
        let mut processes = vec![etcd, api_server];
        let token = std::fs::read_to_string(dir.join("token")).map_err(|error| error.to_string())?;
        wait_until_ready(&mut processes, &dir, api_port, &token).await?;
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_text(api_port, &dir.join("data/apiserver.crt"), &token))
            .map_err(|error| format!("cannot write {}: {error}", kubeconfig.display()))?;
        processes.push(start_controller_manager(binaries, &kubeconfig));
        Ok(Self { etcd_url, kubeconfig, _processes: processes })
    }
}

struct Binaries {
    etcd: PathBuf,
    api_server: PathBuf,
    controller_manager: PathBuf,
}

impl Binaries {
    fn find() -> Result<Self, String> {
        let find = |binary: Binary| {
            find_binary(binary).ok_or_else(|| format!("{} is not installed; run dev/setup to get it", binary.name()))
        };
        Ok(Self {
            etcd: find(Binary::Etcd)?,
            api_server: find(Binary::ApiServer)?,
            controller_manager: find(Binary::ControllerManager)?,
        })
    }
}

fn start_etcd(binaries: &Binaries) -> (Process, String) {
    let dir = scratch_dir("etcd");
    let url = format!("http://127.0.0.1:{}", free_port());
    let peer = format!("http://127.0.0.1:{}", free_port());
    let args = [
        format!("--data-dir={}", dir.join("data").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data does not outlive the test, so it need not reach the disk.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ];
    let spec = Spec { name: "etcd", program: binaries.etcd.clone(), args: args.into(), dir };
    (Process::start(&spec), url)
}

fn start_api_server(binaries: &Binaries, etcd_url: &str) -> (Process, u16, PathBuf) {
    let dir = scratch_dir("kube-apiserver");
    let port = free_port();
    let token = HEXLOWER.encode(&rand::random::<[u8; 16]>());
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path.display().to_string()
    };
    write("token", &token);
    let tokens = write("tokens.csv", &format!("{token},admin,admin,\"system:masters\"\n"));
    let key = write("service-account.pem", &ec_private_key_pem());
    let args = [
        format!("--etcd-servers={etcd_url}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", dir.join("data").display()),
        format!("--token-auth-file={tokens}"),
        "--authorization-mode=RBAC".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={key}"),
        format!("--service-account-signing-key-file={key}"),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        // No controller here creates default service accounts, so nothing may wait for them.
        "--disable-admission-plugins=ServiceAccount".into(),
        "--profiling=false".into(),
        "--shutdown-delay-duration=0s".into(),
    ];
    let program = binaries.api_server.clone();
    let spec = Spec { name: "kube-apiserver", program, args: args.into(), dir: dir.clone() };
    (Process::start(&spec), port, dir)
}

fn start_controller_manager(binaries: &Binaries, kubeconfig: &Path) -> Process {
    let kubeconfig = kubeconfig.display();
    let args = [
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--controllers=garbage-collector-controller,namespace-controller".into(),
        "--leader-elect=false".into(),
        "--use-service-account-credentials=false".into(),
        // It serves nothing that a test needs.
        "--secure-port=0".into(),
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
    ];
    let dir = scratch_dir("kube-controller-manager");
    let program = binaries.controller_manager.clone();
    Process::start(&Spec { name: "kube-controller-manager", program, args: args.into(), dir })
}

/// Waits until the API server reports ready, or until one of the processes ends.
async fn wait_until_ready(processes: &mut [Process], dir: &Path, port: u16, token: &str) -> Result<(), String> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let started = Instant::now();
    let certificate = dir.join("data/apiserver.crt");
    let mut client = None;
    loop {
        if let Some(ended) = processes.iter_mut().find_map(Process::ended) {
            return Err(ended);
        }
        if client.is_none() {
            client = std::fs::read(&certificate).ok().and_then(|pem| https_client(&pem));
        }
        if let Some(client) = &client {
            let request = client.get(format!("https://127.0.0.1:{port}/readyz")).bearer_auth(token);
            if request.send().await.is_ok_and(|response| response.status().is_success()) {
                return Ok(());
            }
        }
        if started.elapsed() > START_DEADLINE {
            let logs: Vec<_> = processes.iter().map(|process| process.log().display().to_string()).collect();
            return Err(format!("not ready after {START_DEADLINE:?}; see {}", logs.join(", ")));
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

fn https_client(pem: &[u8]) -> Option<reqwest::Client> {
    let certificates = reqwest::Certificate::from_pem_bundle(pem).ok()?;
    reqwest::Client::builder().tls_certs_only(certificates).timeout(Duration::from_secs(5)).build().ok()
}

fn kubeconfig_text(port: u16, certificate: &Path, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters:\n- name: test\n  cluster:\n    server: https://127.0.0.1:{port}\n    certificate-authority: {}\n\
         users:\n- name: admin\n  user:\n    token: {token}\n\
         contexts:\n- name: test\n  context: {{cluster: test, user: admin, namespace: default}}\n",
        certificate.display()
    )
}

/// A new P-256 key in SEC 1 form: the scalar alone is a complete key, the reader computes the public half.
fn ec_private_key_pem() -> String {
    let mut scalar = rand::random::<[u8; 32]>();
    scalar[0] &= 0x7f; // below the order of the curve
    let mut der = vec![0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20];
    der.extend(scalar);
    der.extend([0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]);
    format!("-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n", BASE64.encode(&der))
}
