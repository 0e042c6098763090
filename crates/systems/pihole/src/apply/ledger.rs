//! Where ownership is kept for servers whose records can carry no marker: a ConfigMap in the operator's own namespace. The id of the cluster
//! has one of its own.
//!
//! A ledger lists `address host` lines. A line is written before its record is created and removed after its record is
//! deleted, so a crash in between leaves a line too many, never one too few. One per Pi-hole and owner, so that
//! clusters and scopes do not read each other's.
//!
//! A request that was given up may still be carried out, and would remove a line that is needed again by then. It names the version it was
//! made for. So a ledger that was only read is written before anything relies on it: from then on such a request is refused.

use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use signpost_engine::{Child, ChildError, Identity, ObjectWrite, Proof, WriteError, Writer};

use crate::plan::Ledger;

/// The key with the lines.
const HOSTS: &str = "hosts";
/// The key with the owner. Old ledgers do not have it.
const OWNER: &str = "owner";
/// The key with the version that a ledger was made from, so that each write of it makes a new version.
const AFTER: &str = "after";
/// The label of what this operator writes.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "signpost");
/// The ConfigMap with the id of the cluster.
pub(crate) const CLUSTER_ID: &str = "signpost-pihole-cluster-id";

/// Longest time for one request.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why the ledger cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// No permission.
    #[error("no permission to {verb} the ConfigMap {name}; the Role for the operator's namespace is missing")]
    Forbidden {
        /// The verb.
        verb: &'static str,
        /// The ConfigMap.
        name: String,
    },
    /// Another writer changed it meanwhile.
    #[error("the ConfigMap {name} was changed by another writer")]
    Conflict {
        /// Which.
        name: String,
    },
    /// Anything else.
    #[error("the ConfigMap {name} cannot be used: {what}")]
    Failed {
        /// Which.
        name: String,
        /// The error.
        what: String,
    },
}

/// A ledger with the version it was read at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// The ledger.
    pub ledger: Ledger,
    /// The version; None when there is no ConfigMap yet.
    pub version: Option<String>,
}

/// Where ledgers are kept.
pub trait LedgerStore: Send + Sync + 'static {
    /// The id of the cluster, made once.
    fn cluster_id(&self) -> BoxFuture<'_, Result<String, LedgerError>>;
    /// Reads a ledger; an absent one is empty.
    fn load(&self, instance: &str) -> BoxFuture<'_, Result<Versioned, LedgerError>>;
    /// Writes a ledger, refused when it changed since it was read.
    fn save(&self, instance: &str, ledger: Versioned) -> BoxFuture<'_, Result<Versioned, LedgerError>>;
}

/// Ledgers in ConfigMaps. They are read from the API server, and written by the engine's writer.
pub struct ConfigMaps {
    api: Api<ConfigMap>,
    writer: Writer,
    namespace: String,
    owner: String,
}

impl ConfigMaps {
    /// Ledgers of `owner` in `namespace`.
    pub fn new(client: Client, writer: Writer, namespace: &str, owner: &str) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, writer, namespace: namespace.to_owned(), owner: owner.to_owned() }
    }

    async fn get(&self, name: &str) -> Result<Option<ConfigMap>, LedgerError> {
        match tokio::time::timeout(DEADLINE, self.api.get_opt(name)).await {
            Ok(answer) => answer.map_err(|error| unread(error, name)),
            Err(_) => Err(late("get", name)),
        }
    }

    /// A ledger that is there, unless its owner is another one.
    async fn read(&self, name: &str) -> Result<Option<Versioned>, LedgerError> {
        let Some(map) = self.get(name).await? else { return Ok(None) };
        let data = map.data.unwrap_or_default();
        if data.get(OWNER).is_some_and(|owner| *owner != self.owner) {
            return Ok(None);
        }
        let ledger = Ledger::from_text(data.get(HOSTS).map_or("", String::as_str));
        Ok(Some(Versioned { ledger, version: map.metadata.resource_version }))
    }

    /// Writes a ConfigMap of ours.
    async fn put(&self, name: &str, data: serde_json::Value, there: Option<&ConfigMap>) -> Result<(), LedgerError> {
        let verb = if there.is_some() { "update" } else { "create" };
        let write = async {
            let (key, value) = MANAGED_BY;
            if let Some(map) = there.filter(|map| map.labels().get(key).is_none_or(|found| found != value)) {
                // It was written before ConfigMaps of ours had this label.
                let label = ObjectWrite::metadata(&Identity::of(map), json!({ "labels": { key: value } }));
                self.writer.write(&label).await?;
            }
            let proof = Proof::Label { key: key.to_owned(), value: value.to_owned() };
            let child = Child::new::<ConfigMap>(Some(&self.namespace), name, proof);
            self.writer.apply_child(&child, &json!({ "data": data })).await
        };
        match tokio::time::timeout(DEADLINE, write).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(unwritten(error, verb, name)),
            Err(_) => Err(late(verb, name)),
        }
    }
}

/// The ConfigMap of a Pi-hole and owner; no two have the same.
fn name_of(owner: &str, instance: &str) -> String {
    if is_plain(owner) && !instance.contains('-') {
        // The last dash parts the two.
        return format!("signpost-pihole-{owner}-{instance}");
    }
    let readable = owner.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    // FNV-1a: distinguishes owners with similar names, with the same result in every version.
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = owner.bytes().chain([0]).chain(instance.bytes()).fold(0x811c_9dc5, step);
    format!("signpost-pihole-{readable}-{instance}.{hash:08x}")
}

/// The name in versions in which two ledgers could have the same name.
fn former_name_of(owner: &str, instance: &str) -> String {
    format!("signpost-pihole-{}-{instance}", owner.replace('_', "-").trim_matches(['-', '.']))
}

/// Whether Kubernetes takes this as part of a name just as it is.
fn is_plain(owner: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-');
    owner.split('.').all(label)
}

/// A request that is given up: a Pi-hole's worker waits for it.
fn late(verb: &'static str, name: &str) -> LedgerError {
    LedgerError::Failed { name: name.to_owned(), what: format!("no answer within {DEADLINE:?} to {verb}") }
}

fn unread(error: kube::Error, name: &str) -> LedgerError {
    let name = name.to_owned();
    match error {
        kube::Error::Api(status) if status.code == 403 => LedgerError::Forbidden { verb: "get", name },
        kube::Error::Api(status) => {
            LedgerError::Failed { name, what: format!("status {}: {}", status.code, status.message) }
        }
        other => LedgerError::Failed { name, what: other.to_string() },
    }
}

fn unwritten(error: ChildError, verb: &'static str, name: &str) -> LedgerError {
    let name = name.to_owned();
    match error {
        ChildError::Write(WriteError::Forbidden(_)) => LedgerError::Forbidden { verb, name },
        ChildError::Write(WriteError::Conflict) => LedgerError::Conflict { name },
        other => LedgerError::Failed { name, what: other.to_string() },
    }
}

impl LedgerStore for ConfigMaps {
    fn cluster_id(&self) -> BoxFuture<'_, Result<String, LedgerError>> {
        Box::pin(async move {
            if self.get(CLUSTER_ID).await?.is_none() {
                self.put(CLUSTER_ID, json!({}), None).await?;
            }
            let missing = || LedgerError::Failed { name: CLUSTER_ID.to_owned(), what: "it is not there".to_owned() };
            let map = self.get(CLUSTER_ID).await?.ok_or_else(missing)?;
            if let Some(id) = map.data.as_ref().and_then(|data| data.get(OWNER)) {
                return Ok(id.clone());
            }
            // The API server has made something unique already. It is written down, so that it survives a backup and its restore.
            let uid = map.metadata.uid.clone().unwrap_or_default().replace('-', "");
            // Short, because it is in every line, and a list has to fit into one request.
            let id = format!("c{}", uid.chars().take(8).collect::<String>());
            self.put(CLUSTER_ID, json!({ OWNER: id }), Some(&map)).await?;
            Ok(id)
        })
    }

    fn load(&self, instance: &str) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        let (name, former) = (name_of(&self.owner, instance), former_name_of(&self.owner, instance));
        Box::pin(async move {
            if let Some(found) = self.read(&name).await? {
                return Ok(found);
            }
            if former == name || !is_plain(&former) {
                return Ok(Versioned::default());
            }
            // Lines under the former name are still ours. The next change writes them under the new name.
            let former = self.read(&former).await?.unwrap_or_default();
            Ok(Versioned { version: None, ..former })
        })
    }

    fn save(&self, instance: &str, ledger: Versioned) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        let name = name_of(&self.owner, instance);
        Box::pin(async move {
            let there = if ledger.version.is_some() { self.get(&name).await? } else { None };
            let version = there.as_ref().and_then(|map| map.metadata.resource_version.clone());
            if version != ledger.version {
                return Err(LedgerError::Conflict { name });
            }
            let mut data = json!({ HOSTS: ledger.ledger.to_text(), OWNER: self.owner });
            if let Some(version) = version {
                data[AFTER] = json!(version);
            }
            self.put(&name, data, there.as_ref()).await?;
            Ok(self.read(&name).await?.unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::api::PostParams;
    use signpost_engine::health::Health;
    use signpost_engine::lease::Fence;
    use signpost_engine::metrics::Metrics;
    use signpost_engine::write::WriterOptions;

    use super::*;

    fn ledgers(client: Client, owner: &str) -> ConfigMaps {
        let metrics = Metrics::new();
        let health = Health::new(metrics.clone());
        let writer = Writer::new(client.clone(), WriterOptions::default(), Fence::open(), health, metrics);
        ConfigMaps::new(client, writer, "default", owner)
    }

    #[test]
    fn ledger_names_are_distinct_and_unambiguous_ones_do_not_change() {
        for (owner, instance) in [("default", "pihole"), ("home.media", "pihole"), ("my-home", "pihole")] {
            assert_eq!(name_of(owner, instance), former_name_of(owner, instance));
        }
        let alike = [
            ("a_b", "c"),
            ("a-b", "c"),
            ("a", "b-c"),
            ("a.b", "c"),
            ("-a", "c"),
            ("a", "c"),
            ("a.", "c"),
            ("a..b", "c"),
            ("a.-b", "c"),
            ("_", "c"),
        ];
        let names: BTreeSet<String> = alike.iter().map(|(owner, instance)| name_of(owner, instance)).collect();
        assert_eq!(names.len(), alike.len(), "{names:?}");
        assert!(names.iter().all(|name| is_plain(name)), "{names:?}");
    }

    #[tokio::test]
    async fn a_ledger_under_its_former_name_is_taken_over_and_left_where_it_is() {
        let sandbox = signpost_sandbox::Sandbox::new(signpost_sandbox::SandboxOptions::default());
        let kept = ledgers(sandbox.client(), "a_b");
        assert_eq!(kept.load("c").await.unwrap(), Versioned::default());
        let former =
            serde_json::json!({"metadata": {"name": "signpost-pihole-a-b-c"}, "data": {"hosts": "10.0.0.1 app.lan\n"}});
        let former: ConfigMap = serde_json::from_value(former).unwrap();
        kept.api.create(&PostParams::default(), &former).await.unwrap();
        let taken = kept.load("c").await.unwrap();
        let entries = Ledger::from_text("10.0.0.1 app.lan\n");
        assert_eq!(taken, Versioned { ledger: entries.clone(), version: None });
        let saved = kept.save("c", Versioned { ledger: Ledger::default(), version: taken.version }).await.unwrap();
        assert_eq!(kept.load("c").await.unwrap(), saved, "from now on it has its own");
        assert_eq!(kept.read("signpost-pihole-a-b-c").await.unwrap().unwrap().ledger, entries);
    }

    #[tokio::test]
    async fn every_save_makes_a_new_version_so_that_an_earlier_request_is_refused() {
        let sandbox = signpost_sandbox::Sandbox::new(signpost_sandbox::SandboxOptions::default());
        let kept = ledgers(sandbox.client(), "home");
        let first = kept.save("c", Versioned::default()).await.unwrap();
        let second = kept.save("c", first.clone()).await.unwrap();
        assert_eq!(second.ledger, first.ledger);
        assert_ne!(second.version, first.version);
        assert!(matches!(kept.save("c", first).await, Err(LedgerError::Conflict { .. })));
    }

    #[tokio::test]
    async fn a_ledger_with_the_label_of_another_owner_is_not_taken_over() {
        let sandbox = signpost_sandbox::Sandbox::new(signpost_sandbox::SandboxOptions::default());
        let (ours, theirs) = ("a_b", "a-b");
        let [ours, theirs] = [ours, theirs].map(|owner| ledgers(sandbox.client(), owner));
        let entries = Ledger::from_text("10.0.0.1 app.lan\n");
        let saved = theirs.save("c", Versioned { ledger: entries, version: None }).await.unwrap();
        assert_eq!(theirs.load("c").await.unwrap(), saved);
        assert_eq!(ours.load("c").await.unwrap(), Versioned::default());
    }

    #[tokio::test]
    async fn a_cluster_gets_its_id_once_and_two_clusters_get_two() {
        let options = |seed| signpost_sandbox::SandboxOptions { seed, ..signpost_sandbox::SandboxOptions::default() };
        let [one, two] = [1, 2].map(|seed| signpost_sandbox::Sandbox::new(options(seed)));
        let [first, again] = [(); 2].map(|()| ledgers(one.client(), "default"));
        let other = ledgers(two.client(), "default");
        let (a, b) = tokio::join!(first.cluster_id(), again.cluster_id());
        // Both replicas may write at once; the refused one reads it the next time.
        let id = a.or(b).unwrap();
        assert!(id.starts_with('c') && id.len() == 9, "{id}");
        assert_eq!((first.cluster_id().await.unwrap(), again.cluster_id().await.unwrap()), (id.clone(), id.clone()));
        assert_ne!(other.cluster_id().await.unwrap(), id);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_hangs_is_given_up_in_time() {
        let sandbox = signpost_sandbox::Sandbox::new(signpost_sandbox::SandboxOptions::default());
        let hangs = signpost_sandbox::FaultPlan::new(|_, _| signpost_sandbox::Fault::Delay(Duration::from_hours(1)));
        let kept = ledgers(sandbox.client_with(hangs), "home");
        let error = kept.load("pihole").await.unwrap_err();
        assert!(error.to_string().contains("no answer within 10s to get"), "{error}");
        let error = kept.save("pihole", Versioned::default()).await.unwrap_err();
        assert!(error.to_string().contains("no answer within 10s to create"), "{error}");
    }
}
