//! Two replicas of the binary as processes of their own: one is asked to stop, one is frozen and woken up again.
//!
//! ```text
//!   signpost run (first)  ──► proxy ──►┐ Kubernetes API (sandbox, real)
//!   signpost run (second) ──► proxy ──►┘ Pi-hole stand-in, through a proxy each as well: so it is known who wrote what
//! ```

// A test that cannot do its work must fail at once.
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

const PATIENCE: Duration = Duration::from_mins(1);

/// One replica, and everything it asked for.
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

    /// Waits until it has a view of the Ingresses that it keeps up to date.
    async fn watches(&self) {
        eventually(&format!("{} watches", self.name), PATIENCE, || async {
            let open = self.api.seen().iter().any(|seen| seen.path.contains("watch=true") && seen.status == Some(200));
            if open { Ok(()) } else { Err(self.said()) }
        })
        .await;
    }

    async fn ends(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "{} does not end: {}", self.name, self.said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Its writes to Kubernetes from the nth request on, the lease apart.
    fn kubernetes_writes(&self, from: usize) -> Vec<Seen> {
        writes(&self.api, from).into_iter().filter(|seen| !seen.path.contains("/leases")).collect()
    }

    /// Its changes to the Pi-hole from the nth request on; logging in and out is no change.
    fn pihole_writes(&self, from: usize) -> Vec<Seen> {
        writes(&self.pihole, from).into_iter().filter(|seen| !seen.path.contains("/api/auth")).collect()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} said:\n{}", self.name, self.said());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn writes(proxy: &FaultProxy, from: usize) -> Vec<Seen> {
    proxy.seen().into_iter().skip(from).filter(|seen| seen.method != "GET").collect()
}

async fn holder(cluster: &Cluster, namespace: &str) -> String {
    // Named after the watched namespace, so that operators of several do not wait for each other.
    let name = format!("signpost-{namespace}");
    let lease = Api::<Lease>::namespaced(cluster.client(), namespace).get_opt(&name).await.unwrap();
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

async fn until_held(cluster: &Cluster, namespace: &str, name: &str) {
    eventually(&format!("the lease is held by {name}"), PATIENCE, || async {
        let holder = holder(cluster, namespace).await;
        if holder.starts_with(&format!("{name}_")) { Ok(()) } else { Err(holder) }
    })
    .await;
}

/// A namespace with a Pi-hole, a leader (`first`) and a follower (`second`).
struct World {
    cluster: Cluster,
    namespace: String,
    pihole: PiholeV6,
    first: Replica,
    second: Replica,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(cluster: Cluster) -> Self {
        let namespace = cluster.namespace("replicas").await;
        let folder = tempfile::tempdir().unwrap();
        let pihole = PiholeV6::start().await;
        let first = Replica::start("first", &cluster, &namespace, &pihole, folder.path()).await;
        first.watches().await;
        until_held(&cluster, &namespace, "first").await;
        let second = Replica::start("second", &cluster, &namespace, &pihole, folder.path()).await;
        let world = Self { cluster, namespace, pihole, first, second, _folder: folder };
        world.second.watches().await;
        world
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

    /// Waits until the Pi-hole has exactly these names and their Ingresses say so, which is the last write of a pass.
    async fn serves(&self, names: &[&str]) {
        eventually(&format!("{names:?} are served"), PATIENCE, || async {
            let hosts = self.pihole.hosts();
            let all = names.iter().all(|name| hosts.iter().any(|line| line.contains(&format!("{name}.example.lan"))));
            if all && hosts.len() == names.len() { Ok(()) } else { Err(hosts) }
        })
        .await;
        for name in names {
            eventually(&format!("{name} says so"), PATIENCE, || async {
                let annotations = self.ingresses().get(name).await.unwrap().metadata.annotations.unwrap_or_default();
                if annotations.contains_key("pihole.io/managed-hosts") { Ok(()) } else { Err(annotations) }
            })
            .await;
        }
    }

    async fn held_by(&self, name: &str) {
        until_held(&self.cluster, &self.namespace, name).await;
    }

    /// Waits for some renewals of the lease, during which nothing else may be written.
    async fn is_at_rest(&self, replica: &Replica) {
        let renewals = || writes(&replica.api, 0).iter().filter(|seen| seen.path.contains("/leases")).count();
        let others = || (replica.kubernetes_writes(0).len(), replica.pihole_writes(0).len());
        let quiet_since = eventually("the last echoes are over", PATIENCE, || async {
            let (before, then) = (others(), renewals());
            eventually("a renewal", PATIENCE, || async { if renewals() > then { Ok(()) } else { Err(then) } }).await;
            if others() == before { Ok(before) } else { Err(before) }
        })
        .await;
        let then = renewals();
        eventually("three renewals", PATIENCE, || async { if renewals() >= then + 3 { Ok(()) } else { Err(then) } })
            .await;
        assert_eq!(others(), quiet_since, "writes at rest");
    }
}

on_both! {
    async fn a_leader_that_was_frozen_writes_nothing_when_it_wakes_up_after_another_has_taken_over(cluster) {
        let mut world = World::start(cluster).await;
        world.register("a").await;
        world.serves(&["a"]).await;
        world.is_at_rest(&world.first).await;

        world.first.signal("-STOP");
        // All of this waits in the frozen one's connections and would be its work.
        world.ingresses().delete("a", &DeleteParams::default()).await.unwrap();
        world.register("b").await;
        world.held_by("second").await;
        world.serves(&["b"]).await;
        world.register("c").await;
        world.serves(&["b", "c"]).await;
        world.is_at_rest(&world.second).await;
        let (api, pihole) = (world.first.api.seen().len(), world.first.pihole.seen().len());
        let (by_second, lines) = (world.second.pihole_writes(0).len(), world.pihole.hosts());

        world.first.signal("-CONT");
        let status = world.first.ends().await;
        assert_eq!(status.code(), Some(1), "{}", world.first.said());
        assert!(world.first.said().contains("the lease was lost"), "{}", world.first.said());
        assert_eq!(world.first.kubernetes_writes(api), [], "the old leader wrote to Kubernetes");
        assert_eq!(world.first.pihole_writes(pihole), [], "the old leader wrote to the Pi-hole");
        let renewed: Vec<_> = writes(&world.first.api, api).into_iter().filter(|seen| seen.status == Some(200)).collect();
        assert_eq!(renewed, [], "the old leader renewed a lease that is another's");

        world.is_at_rest(&world.second).await;
        assert_eq!((world.second.pihole_writes(0).len(), world.pihole.hosts()), (by_second, lines));
        assert!(holder(&world.cluster, &world.namespace).await.starts_with("second_"));
    }

    async fn a_leader_that_is_asked_to_stop_hands_over_at_once(cluster) {
        let mut world = World::start(cluster).await;
        world.register("a").await;
        world.serves(&["a"]).await;
        world.first.signal("-TERM");
        let status = world.first.ends().await;
        assert_eq!(status.code(), Some(0), "{}", world.first.said());
        let last = writes(&world.first.api, 0).pop().unwrap();
        assert!(last.path.contains("/leases/signpost"), "{last:?}");
        let given_back: Lease = serde_json::from_str(&last.body).unwrap();
        let given_back = given_back.spec.unwrap();
        assert_eq!(given_back.holder_identity.as_deref(), Some(""), "{last:?}");
        // It looks every half to whole second, which the tests of the lease show on a clock of their own. Here: it takes the lease at its first
        // look, beside one that may have been under way already.
        let of_lease = |seen: &Seen| seen.path.contains("/leases");
        let looks = |seen: Vec<Seen>| seen.iter().take_while(|seen| !of_lease(seen) || seen.method == "GET").filter(|seen| of_lease(seen)).count();
        let until_now = looks(world.second.api.seen());
        world.held_by("second").await;
        let until_taken = looks(world.second.api.seen());
        assert!(until_taken <= until_now + 2, "{until_now} looks, then {until_taken}");
        world.register("b").await;
        world.serves(&["a", "b"]).await;
        world.is_at_rest(&world.second).await;
    }
}
