//! The `pangolin` system as its example Deployment runs it: the binary as a process, with the settings, probes and ports of the file.
//!
//! ```text
//!   examples/pangolin/deployment.yaml ─► environment ─► signpost run ──► Kubernetes API (sandbox, real)
//!                                              probes and ports ─► GET   └─► stand-in of Pangolin
//! ```

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use signpost_sandbox::edge::Answer;
use signpost_testkit::pangolin::{ORG, Pangolin};
use signpost_testkit::{Cluster, eventually, free_port, on_both};

const TIMEOUT: Duration = Duration::from_mins(2);

/// The Deployment of the example.
fn example() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pangolin/deployment.yaml");
    let all = signpost::manifest::from_yaml("deployment.yaml", &std::fs::read_to_string(path).unwrap()).unwrap();
    all.into_iter().find(|object| object["kind"] == "Deployment").unwrap()
}

fn container() -> Value {
    example()["spec"]["template"]["spec"]["containers"][0].clone()
}

/// One process, with the environment of the example.
struct Process {
    child: Child,
    log: PathBuf,
    /// The ports that stand for those of the container, by their number there.
    ports: Vec<(u64, u16)>,
}

impl Process {
    fn start(
        cluster: &Cluster,
        server: &Pangolin,
        folder: &Path,
        name: &str,
        own: &str,
        more: &[(&str, &str)],
    ) -> Self {
        let key = folder.join("key");
        std::fs::write(&key, Pangolin::KEY).unwrap();
        let container = container();
        let listed = container["ports"].as_array().unwrap().iter();
        let ports: Vec<(u64, u16)> =
            listed.map(|port| (port["containerPort"].as_u64().unwrap(), free_port())).collect();
        let local = |text: &str| {
            ports.iter().fold(text.to_owned(), |text, (there, here)| {
                text.replace(&format!("0.0.0.0:{there}"), &format!("127.0.0.1:{here}"))
            })
        };
        let env = container["env"].as_array().unwrap().iter();
        let given = env.filter_map(|one| Some((one["name"].as_str()?.to_owned(), local(one["value"].as_str()?))));
        let log = folder.join(format!("{name}.log"));
        let child = Command::new(env!("CARGO_BIN_EXE_signpost"))
            .args(container["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()))
            .env_clear()
            .envs(given)
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("HOME", "/nonexistent")
            .env("POD_NAME", name)
            .env("POD_NAMESPACE", own)
            .env("PIC_API_URL", server.url())
            .env("PIC_ORG_ID", ORG)
            .env("PIC_API_KEY_FILE", key)
            .env("LOG_FORMAT", "json")
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log, ports }
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Status and body of `GET path` at a port of the container.
    fn get(&self, port: u64, path: &str) -> Result<(u16, String), String> {
        let (_, here) = self.ports.iter().find(|(there, _)| *there == port).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", *here)).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .map_err(|error| error.to_string())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(|error| error.to_string())?;
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        Ok((status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
    }

    async fn answers(&self, port: u64, path: &str, status: u16) -> String {
        eventually(&format!("{port}{path} answers {status}"), TIMEOUT, || async {
            match self.get(port, path) {
                Ok((seen, body)) if seen == status => Ok(body),
                other => Err((other, self.log_text())),
            }
        })
        .await
    }

    async fn ends(&mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let began = std::time::Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < TIMEOUT, "it does not end: {}", self.log_text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log_text());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn expose(cluster: &Cluster, namespace: &str, name: &str, host: &str) {
    let services: Api<Service> = Api::namespaced(cluster.client(), namespace);
    let service = json!({"metadata": {"name": "app"}, "spec": {"ports": [{"port": 80}]}});
    let _ = services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await;
    let backend = json!({"service": {"name": "app", "port": {"number": 80}}});
    let rules = json!([{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]);
    let ingress = json!({"metadata": {"name": name}, "spec": {"ingressClassName": "pangolin", "rules": rules}});
    let ingresses: Api<Ingress> = Api::namespaced(cluster.client(), namespace);
    ingresses.create(&PostParams::default(), &serde_json::from_value(ingress).unwrap()).await.unwrap();
}

async fn served(server: &Pangolin, host: &str, namespace: &str) {
    let expected = Answer::Served(vec![format!("app.{namespace}.svc.cluster.local:80")]);
    eventually(&format!("{host} is served"), TIMEOUT, || async {
        let seen = server.get(host, "/");
        if seen == expected { Ok(()) } else { Err(seen) }
    })
    .await;
}

async fn holder(cluster: &Cluster, namespace: &str, name: &str) -> String {
    let leases: Api<Lease> = Api::namespaced(cluster.client(), namespace);
    let lease = leases.get_opt(name).await.unwrap();
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

async fn wait_for_holder(cluster: &Cluster, namespace: &str, name: &str, replica: &str) {
    eventually(&format!("{replica} has the Lease {name}"), TIMEOUT, || async {
        let holder = holder(cluster, namespace, name).await;
        if holder.starts_with(&format!("{replica}_")) { Ok(()) } else { Err(holder) }
    })
    .await;
}

#[test]
fn r048_the_example_is_one_replica_without_root_that_can_elect_a_leader() {
    let deployment = example();
    assert_eq!(deployment["spec"]["replicas"], 1);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["securityContext"]["runAsNonRoot"], &pod["securityContext"]["runAsUser"]),
        (&json!(true), &json!(65532))
    );
    let container = container();
    let env = container["env"].as_array().unwrap();
    let value = |name: &str| env.iter().find(|one| one["name"] == name).map(|one| one["value"].clone());
    assert_eq!(value("LEASE_NAME"), Some(json!("signpost-pangolin")));
    assert_eq!(value("LEADER_ELECT"), None, "it is on unless it is switched off");
    // R050, with the port of the health checks.
    let ports: Vec<u64> =
        container["ports"].as_array().unwrap().iter().map(|port| port["containerPort"].as_u64().unwrap()).collect();
    assert_eq!(ports, [8081, 8080]);
}

on_both! {
async fn r048_r049_r050_the_example_runs_with_its_probes_metrics_and_lease(cluster) {
    let (own, namespace) = (cluster.namespace("pangolin-own").await, cluster.namespace("pangolin-apps").await);
    let (server, folder) = (Pangolin::start().await, tempfile::tempdir().unwrap());
    let watched = [("PIC_WATCH_NAMESPACES", namespace.as_str()), ("PIC_OWNER_ID", "example")];
    let mut first = Process::start(&cluster, &server, folder.path(), "first", &own, &watched);
    wait_for_holder(&cluster, &own, "signpost-pangolin", "first").await;
    let container = container();
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["path"], path);
        let ports = container["ports"].as_array().unwrap();
        let port = ports.iter().find(|port| port["name"] == get["port"]).unwrap()["containerPort"].as_u64().unwrap();
        first.answers(port, path, 200).await;
    }
    expose(&cluster, &namespace, "app", "app.ns.test").await;
    served(&server, "app.ns.test", &namespace).await;
    for port in [8080, 8081] {
        eventually("the metrics of the seed", TIMEOUT, || async {
            let (_, metrics) = first.get(port, "/metrics")?;
            let passes = metrics.contains("pic_reconcile_total{result=\"success\"}");
            if passes && metrics.contains("pic_pangolinresource_managed 1") { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
    // A second replica waits, and works when the first one ends.
    let second = Process::start(&cluster, &server, folder.path(), "second", &own, &watched);
    second.answers(8081, "/healthz", 200).await;
    expose(&cluster, &namespace, "more", "more.ns.test").await;
    served(&server, "more.ns.test", &namespace).await;
    assert!(holder(&cluster, &own, "signpost-pangolin").await.starts_with("first_"));
    first.ends().await;
    wait_for_holder(&cluster, &own, "signpost-pangolin", "second").await;
    expose(&cluster, &namespace, "last", "last.ns.test").await;
    served(&server, "last.ns.test", &namespace).await;
    second.answers(8081, "/readyz", 200).await;
}

async fn r056_an_instance_for_each_tenant_has_its_own_lease_and_marks(cluster) {
    let own = cluster.namespace("pangolin-own").await;
    let (one, two) = (cluster.namespace("tenant-one").await, cluster.namespace("tenant-two").await);
    let (server, folder) = (Pangolin::start().await, tempfile::tempdir().unwrap());
    let start = |tenant: &str, lease: &str, name: &str| {
        let more = [("PIC_WATCH_NAMESPACES", tenant), ("LEASE_NAME", lease)];
        Process::start(&cluster, &server, folder.path(), name, &own, &more)
    };
    let first = start(&one, "tenant-one", "first");
    let mut second = start(&two, "tenant-two", "second");
    wait_for_holder(&cluster, &own, "tenant-one", "first").await;
    wait_for_holder(&cluster, &own, "tenant-two", "second").await;
    expose(&cluster, &one, "app", "one.ns.test").await;
    expose(&cluster, &two, "app", "two.ns.test").await;
    served(&server, "one.ns.test", &one).await;
    served(&server, "two.ns.test", &two).await;
    // The owner is made from the cluster's id and the watched namespaces, so the marks differ.
    let owner = |host: &str| {
        let state = server.state();
        let row = state.resources.values().find(|row| row.full_domain == host).unwrap();
        row.nice_id.rsplitn(3, '-').nth(2).unwrap().to_owned()
    };
    assert_ne!(owner("one.ns.test"), owner("two.ns.test"));
    // What one of them finds without an Ingress of its own belongs to the other one, also after a restart of either.
    second.ends().await;
    let ingresses: Api<Ingress> = Api::namespaced(cluster.client(), &two);
    ingresses.delete("app", &DeleteParams::default()).await.unwrap();
    expose(&cluster, &one, "later", "later.ns.test").await;
    served(&server, "later.ns.test", &one).await;
    assert_ne!(server.get("two.ns.test", "/"), Answer::NoRouter, "it is not for the first one to delete");
    let _second = start(&two, "tenant-two", "second-again");
    eventually("the second one deletes its own", TIMEOUT, || async {
        let seen = server.get("two.ns.test", "/");
        if seen == Answer::NoRouter { Ok(()) } else { Err(seen) }
    })
    .await;
    served(&server, "one.ns.test", &one).await;
    first.answers(8081, "/readyz", 200).await;
}

async fn r043_the_log_level_of_the_seed_counts(cluster) {
    let (own, namespace) = (cluster.namespace("pangolin-own").await, cluster.namespace("pangolin-apps").await);
    let (server, folder) = (Pangolin::start().await, tempfile::tempdir().unwrap());
    // No IngressClass exists here, which is a warning.
    for (level, host, expected) in [("debug", "a.ns.test", ["DEBUG", "INFO", "WARN"].as_slice()), ("info", "b.ns.test", &["INFO", "WARN"]), ("warn", "c.ns.test", &["WARN"]), ("error", "d.ns.test", &[])] {
        let settings = [("PIC_WATCH_NAMESPACES", namespace.as_str()), ("PIC_OWNER_ID", "example"), ("PIC_LOG_LEVEL", level)];
        let mut process = Process::start(&cluster, &server, folder.path(), level, &own, &settings);
        expose(&cluster, &namespace, level, host).await;
        served(&server, host, &namespace).await;
        process.ends().await;
        let text = process.log_text();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let levels: std::collections::BTreeSet<String> =
            lines.map(|line| line["level"].as_str().unwrap_or_default().to_owned()).collect();
        assert_eq!(levels.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{level}: {text}");
    }
}

async fn events_of_a_sweep_are_on_the_deployment_of_the_pod(cluster) {
    let (own, namespace) = (cluster.namespace("pangolin-own").await, cluster.namespace("pangolin-apps").await);
    let (server, folder) = (Pangolin::start().await, tempfile::tempdir().unwrap());
    let watched = [("PIC_WATCH_NAMESPACES", namespace.as_str()), ("PIC_OWNER_ID", "example")];
    let pod = "signpost-pangolin-7c9d8f6b5d-x2x9z";
    let mut first = Process::start(&cluster, &server, folder.path(), pod, &own, &watched);
    expose(&cluster, &namespace, "app", "app.ns.test").await;
    served(&server, "app.ns.test", &namespace).await;
    first.ends().await;
    let ingresses: Api<Ingress> = Api::namespaced(cluster.client(), &namespace);
    ingresses.delete("app", &DeleteParams::default()).await.unwrap();
    let _second = Process::start(&cluster, &server, folder.path(), pod, &own, &watched);
    let events: Api<Event> = Api::namespaced(cluster.client(), &own);
    eventually("an event on the Deployment", TIMEOUT, || async {
        let listed = events.list(&ListParams::default()).await.unwrap().items;
        let found: Vec<(Option<String>, Option<String>, Option<String>)> =
            listed.into_iter().map(|event| (event.involved_object.kind, event.involved_object.name, event.reason)).collect();
        let of = |kind: &str, name: &str| found.iter().any(|(k, n, _)| (k.as_deref(), n.as_deref()) == (Some(kind), Some(name)));
        if of("Deployment", "signpost-pangolin") && !of("Deployment", "signpost") { Ok(()) } else { Err(found) }
    })
    .await;
}
}
