//! Two replicas of the binary as separate processes: one is asked to stop, one is suspended and resumed.
//!
//! ```text
//!   signpost run (first)  ──► proxy ──►┐ Kubernetes API (sandbox, real)
//!   signpost run (second) ──► proxy ──►┘ Pi-hole stand-in, through a proxy each as well, which records the writes of each replica
//! ```

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use signpost_testkit::pihole::PiholeV6;
use signpost_testkit::{Cluster, FaultProxy, Seen, eventually, on_both};

const TIMEOUT: Duration = Duration::from_mins(2);

/// One replica, and its requests.
struct Replica {
    name: &'static str,
    process: Child,
    log: PathBuf,
    api: FaultProxy,
    pihole: FaultProxy,
}

impl Replica {
    async fn start(name: &'static str, cluster: &Cluster, namespace: &str, pihole: &PiholeV6, folder: &Path) -> Self {
        let api = FaultProxy::start(&cluster.config().await.cluster_url.to_string()).await;
        let pihole = FaultProxy::start(&pihole.url()).await;
        let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        config["clusters"][0]["cluster"] = json!({ "server": api.url() });
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let log = folder.join(format!("{name}.log"));
        let process = Command::new(env!("CARGO_BIN_EXE_signpost"))
            .arg("run")
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("POD_NAME", name)
            .env("POD_NAMESPACE", namespace)
            .env("WATCH_NAMESPACE", namespace)
            .env("HEALTH_ADDRESS", "127.0.0.1:0")
            .env("PIHOLE_URL", pihole.url())
            .env("PIHOLE_API_TOKEN", PiholeV6::PASSWORD)
            .env("PIHOLE_API_DIALECT", "v6")
            .env("DEFAULT_TARGET_IP", "192.0.2.1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { name, process, log, api, pihole }
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success(), "{} takes {signal}", self.name);
    }

    /// Waits until its watch of the Ingresses is open.
    async fn watches(&self) {
        eventually(&format!("{} watches", self.name), TIMEOUT, || async {
            let open = self.api.seen().iter().any(|seen| seen.path.contains("watch=true") && seen.status == Some(200));
            if open { Ok(()) } else { Err(self.log_text()) }
        })
        .await;
    }

    async fn ends(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < TIMEOUT, "{} does not end: {}", self.name, self.log_text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Its writes to Kubernetes from the nth request on, without the lease.
    fn kubernetes_writes(&self, from: usize) -> Vec<Seen> {
        writes(&self.api, from).into_iter().filter(|seen| !seen.path.contains("/leases")).collect()
    }

    /// Its changes to the Pi-hole from the nth request on; logging in and out is not a change.
    fn pihole_writes(&self, from: usize) -> Vec<Seen> {
        writes(&self.pihole, from).into_iter().filter(|seen| !seen.path.contains("/api/auth")).collect()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of {}:\n{}", self.name, self.log_text());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn writes(proxy: &FaultProxy, from: usize) -> Vec<Seen> {
    proxy.seen().into_iter().skip(from).filter(|seen| seen.method != "GET").collect()
}

async fn holder(cluster: &Cluster, namespace: &str) -> String {
    // Named after the watched namespace, so that operators of different namespaces do not wait for each other.
    let name = format!("signpost-{namespace}");
    let lease = Api::<Lease>::namespaced(cluster.client(), namespace).get_opt(&name).await.unwrap();
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

async fn until_holder_is(cluster: &Cluster, namespace: &str, name: &str) {
    eventually(&format!("{name} is the holder of the lease"), TIMEOUT, || async {
        let holder = holder(cluster, namespace).await;
        if holder.starts_with(&format!("{name}_")) { Ok(()) } else { Err(holder) }
    })
    .await;
}

/// A namespace with a Pi-hole, a leader (`first`) and a follower (`second`).
struct Replicas {
    cluster: Cluster,
    namespace: String,
    pihole: PiholeV6,
    first: Replica,
    second: Replica,
    _folder: tempfile::TempDir,
}

impl Replicas {
    async fn start(cluster: Cluster) -> Self {
        let namespace = cluster.namespace("replicas").await;
        let folder = tempfile::tempdir().unwrap();
        let pihole = PiholeV6::start().await;
        let first = Replica::start("first", &cluster, &namespace, &pihole, folder.path()).await;
        first.watches().await;
        until_holder_is(&cluster, &namespace, "first").await;
        let second = Replica::start("second", &cluster, &namespace, &pihole, folder.path()).await;
        let replicas = Self { cluster, namespace, pihole, first, second, _folder: folder };
        replicas.second.watches().await;
        replicas
    }

    fn ingresses(&self) -> Api<Ingress> {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    async fn register(&self, name: &str) {
        let ingress: Ingress = serde_json::from_value(json!({
            "metadata": { "name": name, "annotations": { "pihole.io/register": "true" } },
            "spec": { "rules": [{ "host": format!("{name}.example.lan") }], "defaultBackend": { "service": { "name": "x", "port": { "number": 80 } } } },
        }))
        .unwrap();
        self.ingresses().create(&PostParams::default(), &ingress).await.unwrap();
    }

    /// Waits until the Pi-hole has exactly these names and their Ingresses report it, which is the last write of a pass.
    async fn serves(&self, names: &[&str]) {
        eventually(&format!("{names:?} are served"), TIMEOUT, || async {
            let hosts = self.pihole.hosts();
            let all = names.iter().all(|name| hosts.iter().any(|line| line.contains(&format!("{name}.example.lan"))));
            if all && hosts.len() == names.len() { Ok(()) } else { Err(hosts) }
        })
        .await;
        for name in names {
            eventually(&format!("{name} reports it"), TIMEOUT, || async {
                let annotations = self.ingresses().get(name).await.unwrap().metadata.annotations.unwrap_or_default();
                if annotations.contains_key("pihole.io/managed-hosts") { Ok(()) } else { Err(annotations) }
            })
            .await;
        }
    }

    async fn until_holder_is(&self, name: &str) {
        until_holder_is(&self.cluster, &self.namespace, name).await;
    }

    /// Waits for some renewals of the lease, during which nothing else may be written.
    async fn is_at_rest(&self, replica: &Replica) {
        let renewals = || writes(&replica.api, 0).iter().filter(|seen| seen.path.contains("/leases")).count();
        let others = || (replica.kubernetes_writes(0).len(), replica.pihole_writes(0).len());
        let quiet_since = eventually("the last echoes are over", TIMEOUT, || async {
            let (before, then) = (others(), renewals());
            eventually("a renewal", TIMEOUT, || async { if renewals() > then { Ok(()) } else { Err(then) } }).await;
            if others() == before { Ok(before) } else { Err(before) }
        })
        .await;
        let then = renewals();
        eventually("three renewals", TIMEOUT, || async { if renewals() >= then + 3 { Ok(()) } else { Err(then) } })
            .await;
        assert_eq!(others(), quiet_since, "writes at rest");
    }
}

on_both! {
    async fn a_suspended_leader_writes_nothing_after_another_took_over(cluster) {
        let mut replicas = Replicas::start(cluster).await;
        replicas.register("a").await;
        replicas.serves(&["a"]).await;
        replicas.is_at_rest(&replicas.first).await;

        replicas.first.signal("-STOP");
        // All of this waits in the connections of the suspended replica and would be its work.
        replicas.ingresses().delete("a", &DeleteParams::default()).await.unwrap();
        replicas.register("b").await;
        replicas.until_holder_is("second").await;
        replicas.serves(&["b"]).await;
        replicas.register("c").await;
        replicas.serves(&["b", "c"]).await;
        replicas.is_at_rest(&replicas.second).await;
        let (api, pihole) = (replicas.first.api.seen().len(), replicas.first.pihole.seen().len());
        let (by_second, lines) = (replicas.second.pihole_writes(0).len(), replicas.pihole.hosts());

        replicas.first.signal("-CONT");
        let status = replicas.first.ends().await;
        assert_eq!(status.code(), Some(1), "{}", replicas.first.log_text());
        assert!(replicas.first.log_text().contains("the lease was lost"), "{}", replicas.first.log_text());
        assert_eq!(replicas.first.kubernetes_writes(api), [], "the old leader wrote to Kubernetes");
        assert_eq!(replicas.first.pihole_writes(pihole), [], "the old leader wrote to the Pi-hole");
        let renewed: Vec<_> = writes(&replicas.first.api, api).into_iter().filter(|seen| seen.status == Some(200)).collect();
        assert_eq!(renewed, [], "the old leader renewed a lease that is another's");

        replicas.is_at_rest(&replicas.second).await;
        assert_eq!((replicas.second.pihole_writes(0).len(), replicas.pihole.hosts()), (by_second, lines));
        assert!(holder(&replicas.cluster, &replicas.namespace).await.starts_with("second_"));
    }

    async fn a_leader_that_stops_hands_over_at_once(cluster) {
        let mut replicas = Replicas::start(cluster).await;
        replicas.register("a").await;
        replicas.serves(&["a"]).await;
        replicas.first.signal("-TERM");
        let status = replicas.first.ends().await;
        assert_eq!(status.code(), Some(0), "{}", replicas.first.log_text());
        let last = writes(&replicas.first.api, 0).pop().unwrap();
        assert!(last.path.contains("/leases/signpost"), "{last:?}");
        let released: Lease = serde_json::from_str(&last.body).unwrap();
        let released = released.spec.unwrap();
        assert_eq!(released.holder_identity.as_deref(), Some(""), "{last:?}");
        // It checks every half to whole second, as the tests of the lease show on paused time. Here: it takes the lease at its first check,
        // besides a check that may have been in progress.
        let of_lease = |seen: &Seen| seen.path.contains("/leases");
        let checks = |seen: Vec<Seen>| seen.iter().take_while(|seen| !of_lease(seen) || seen.method == "GET").filter(|seen| of_lease(seen)).count();
        let until_now = checks(replicas.second.api.seen());
        replicas.until_holder_is("second").await;
        let until_taken = checks(replicas.second.api.seen());
        assert!(until_taken <= until_now + 2, "{until_now} checks, then {until_taken}");
        replicas.register("b").await;
        replicas.serves(&["a", "b"]).await;
        replicas.is_at_rest(&replicas.second).await;
    }
}
