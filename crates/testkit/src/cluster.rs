//! A Kubernetes API for a test: the sandbox in this process, or the real servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use signpost_sandbox::{Sandbox, SandboxOptions, Served};

use crate::control_plane::ControlPlane;
use crate::{eventually, skip};

/// Longest time until a new kind is served, on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A Kubernetes API with full permissions. Clones share it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    kubeconfig: PathBuf,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Sandbox(Arc<Own>),
    Real(&'static ControlPlane),
}

/// A sandbox of one test, served on loopback too.
struct Own {
    sandbox: Sandbox,
    _served: Served,
    _dir: tempfile::TempDir,
}

/// A new sandbox with only the objects that every cluster has.
pub async fn sandbox_cluster() -> Cluster {
    let sandbox = Sandbox::new(SandboxOptions::default());
    let served = sandbox.serve(([127, 0, 0, 1], 0).into()).await.expect("loopback has a free port");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, served.kubeconfig()).expect("the temporary directory is writable");
    let client = sandbox.client();
    Cluster { client, kubeconfig, kind: Kind::Sandbox(Arc::new(Own { sandbox, _served: served, _dir: dir })) }
}

/// The real API server, which the tests of one binary share: isolate by namespace. `None` after reporting a skip, when the servers are not
/// installed.
pub async fn real_cluster() -> Option<Cluster> {
    real(ControlPlane::shared().await).await
}

/// A second real API server, with an etcd of its own, for tests of two clusters. `None` as for [`real_cluster`].
pub async fn second_real_cluster() -> Option<Cluster> {
    real(ControlPlane::second().await).await
}

async fn real(plane: Result<&'static ControlPlane, String>) -> Option<Cluster> {
    match plane {
        Ok(plane) => {
            let client = Client::try_from(config_of(plane.kubeconfig()).await).expect("a usable configuration");
            Some(Cluster { client, kubeconfig: plane.kubeconfig().to_owned(), kind: Kind::Real(plane) })
        }
        Err(missing) => {
            skip("real API server", &missing);
            None
        }
    }
}

impl Cluster {
    /// A client with all permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client that acts as `user` in `groups` (by impersonation). On the real server RBAC decides its permissions; the sandbox has no
    /// authorization and allows everything.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        let mut config = config_of(&self.kubeconfig).await;
        let header = |name: &'static str, value: &str| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a name fit for a header"))
        };
        config.headers.push(header("impersonate-user", user));
        config.headers.extend(groups.iter().map(|group| header("impersonate-group", group)));
        Client::try_from(config).expect("a usable configuration")
    }

    /// The configuration of a client, for tests that change it (another URL, a token, timeouts).
    pub async fn config(&self) -> Config {
        config_of(&self.kubeconfig).await
    }

    /// Whether this is the real API server.
    pub fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Real(_))
    }

    /// A kubeconfig file for other processes.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// A kubeconfig that reaches the API server by another address, such as a [`crate::FaultProxy`]'s: the same user, and no certificate to
    /// check.
    pub fn kubeconfig_through(&self, url: &str) -> String {
        let text = std::fs::read_to_string(&self.kubeconfig).expect("the kubeconfig is there");
        let mut config: serde_json::Value = serde_saphyr::from_str(&text).expect("the kubeconfig is YAML");
        config["clusters"][0]["cluster"] = json!({ "server": url });
        config.to_string()
    }

    /// The sandbox, for its fault hooks and request log.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        match &self.kind {
            Kind::Sandbox(own) => Some(&own.sandbox),
            Kind::Real(_) => None,
        }
    }

    /// Creates a namespace that no other test uses, and returns its name.
    pub async fn namespace(&self, prefix: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let namespace: Namespace =
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .expect("a namespace");
        let api = Api::<Namespace>::all(self.client());
        api.create(&PostParams::default(), &namespace)
            .await
            .unwrap_or_else(|error| panic!("cannot create namespace {name}: {error}"));
        name
    }

    /// Applies CRDs and waits until their resources are served.
    pub async fn install(&self, crds: &[CustomResourceDefinition]) {
        let api = Api::<CustomResourceDefinition>::all(self.client());
        let params = PatchParams::apply("testkit").force();
        for crd in crds {
            let name = crd.name_any();
            let applied = api.patch(&name, &params, &Patch::Apply(crd)).await;
            applied.unwrap_or_else(|error| panic!("cannot install {name}: {error}"));
        }
        for crd in crds {
            let name = crd.name_any();
            eventually(&format!("{name} is established"), TIMEOUT, || async {
                established(&api.get(&name).await.map_err(|error| error.to_string())?)
            })
            .await;
            for version in crd.spec.versions.iter().filter(|version| version.served) {
                let path = format!("/apis/{}/{}/{}", crd.spec.group, version.name, crd.spec.names.plural);
                eventually(&format!("{path} is served"), TIMEOUT, || self.get(&path)).await;
            }
        }
    }

    /// Forgets history, so that old resourceVersions and continue tokens expire: on the real server by compacting etcd.
    pub async fn forget_history(&self) {
        match &self.kind {
            Kind::Sandbox(own) => own.sandbox.compact(),
            Kind::Real(plane) => {
                let revision = self.current_revision().await;
                let url = format!("{}/v3/kv/compaction", plane.etcd_url());
                let body = json!({"revision": revision.to_string(), "physical": true}).to_string();
                rustls::crypto::ring::default_provider().install_default().ok();
                let answer = reqwest::Client::new().post(&url).body(body).send().await;
                let status = answer.expect("etcd answers").status();
                assert!(status.is_success(), "etcd compaction at {revision} answered {status}");
            }
        }
    }

    async fn current_revision(&self) -> u64 {
        let list = self.get("/api/v1/namespaces?limit=1").await.unwrap_or_else(|error| panic!("{error}"));
        let version = list.pointer("/metadata/resourceVersion").and_then(|version| version.as_str());
        version.and_then(|version| version.parse().ok()).unwrap_or_else(|| panic!("no resourceVersion in {list}"))
    }

    async fn get(&self, path: &str) -> Result<serde_json::Value, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        self.client.request::<serde_json::Value>(request).await.map_err(|error| error.to_string())
    }
}

async fn config_of(kubeconfig: &Path) -> Config {
    rustls::crypto::ring::default_provider().install_default().ok();
    let parsed = Kubeconfig::read_from(kubeconfig).unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
    Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()))
}

fn established(crd: &CustomResourceDefinition) -> Result<(), String> {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is = |kind: &str| conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True");
    if is("Established") && is("NamesAccepted") { Ok(()) } else { Err(format!("{conditions:?}")) }
}
