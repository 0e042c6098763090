//! Ownership for servers whose records can carry no marker: a ConfigMap in the operator's own namespace.
//!
//! It lists `address host` lines. A line is written before its record is created and removed after its record is
//! gone, so a crash in between leaves a line too many, never one too few. One per Pi-hole and owner, so that
//! clusters and scopes do not read each other's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use signpost_dns::Fqdn;

/// What holds the lines.
const HOSTS: &str = "hosts";
/// What says whose they are. Ledgers that were written before there was such a thing say nothing.
const OWNER: &str = "owner";

/// Longest time for one request.
const DEADLINE: Duration = Duration::from_secs(10);

/// What we have created, or are about to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    entries: BTreeSet<(Fqdn, IpAddr)>,
}

impl Ledger {
    /// Whether this record is ours.
    pub fn holds(&self, host: &Fqdn, ip: IpAddr) -> bool {
        self.entries.contains(&(host.clone(), ip))
    }

    /// Adds a record; true when it was not there.
    pub fn add(&mut self, host: &Fqdn, ip: IpAddr) -> bool {
        self.entries.insert((host.clone(), ip))
    }

    /// Keeps only some records; true when any went.
    pub fn retain(&mut self, mut keep: impl FnMut(&Fqdn, IpAddr) -> bool) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(host, ip)| keep(host, *ip));
        self.entries.len() < before
    }

    /// The text in the ConfigMap.
    pub fn to_text(&self) -> String {
        let lines: Vec<String> = self.entries.iter().map(|(host, ip)| format!("{ip} {}\n", host.undotted())).collect();
        lines.concat()
    }

    /// Reads the text in the ConfigMap; a line that cannot be read owns nothing.
    pub fn from_text(text: &str) -> Self {
        let entry = |line: &str| {
            let (ip, host) = line.split_once(' ')?;
            Some((Fqdn::parse(host.trim()).ok()?, ip.parse().ok()?))
        };
        Self { entries: text.lines().filter_map(entry).collect() }
    }
}

/// Why the ledger cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// No right.
    #[error("no right to {verb} the ConfigMap {name}; the Role for the operator's namespace is missing")]
    Forbidden {
        /// What was tried.
        verb: &'static str,
        /// On what.
        name: String,
    },
    /// Somebody else changed it meanwhile.
    #[error("the ConfigMap {name} was changed by somebody else")]
    Conflict {
        /// Which.
        name: String,
    },
    /// Anything else.
    #[error("the ConfigMap {name} cannot be used: {what}")]
    Failed {
        /// Which.
        name: String,
        /// What happened.
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

/// The ConfigMap with the id of the cluster.
pub(crate) const CLUSTER_ID: &str = "signpost-pihole-cluster-id";

/// Where ledgers are kept.
pub trait LedgerStore: Send + Sync + 'static {
    /// The id of the cluster, made once.
    fn cluster_id(&self) -> BoxFuture<'_, Result<String, LedgerError>>;
    /// Reads a ledger; an absent one is empty.
    fn load(&self, instance: &str) -> BoxFuture<'_, Result<Versioned, LedgerError>>;
    /// Writes a ledger, refused when it changed since it was read.
    fn save(&self, instance: &str, ledger: Versioned) -> BoxFuture<'_, Result<Versioned, LedgerError>>;
}

/// Ledgers in ConfigMaps.
pub struct ConfigMaps {
    api: Api<ConfigMap>,
    owner: String,
}

impl ConfigMaps {
    /// Ledgers of `owner` in `namespace`.
    pub fn new(client: Client, namespace: &str, owner: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), owner: owner.to_owned() }
    }

    /// A ledger that is there, unless it says that it is somebody else's.
    async fn read(&self, name: &str) -> Result<Option<Versioned>, LedgerError> {
        let Some(map) = in_time(self.api.get_opt(name), "get", name).await? else { return Ok(None) };
        let data = map.data.unwrap_or_default();
        if data.get(OWNER).is_some_and(|owner| *owner != self.owner) {
            return Ok(None);
        }
        let ledger = Ledger::from_text(data.get(HOSTS).map_or("", String::as_str));
        Ok(Some(Versioned { ledger, version: map.metadata.resource_version }))
    }
}

/// The ConfigMap of a Pi-hole and owner; no two have the same.
fn name_of(owner: &str, instance: &str) -> String {
    if is_plain(owner) && !instance.contains('-') {
        // The last dash parts the two.
        return format!("signpost-pihole-{owner}-{instance}");
    }
    let readable = owner.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    // FNV-1a: what it takes to tell two owners apart that look alike, the same in every version.
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = owner.bytes().chain([0]).chain(instance.bytes()).fold(0x811c_9dc5, step);
    format!("signpost-pihole-{readable}-{instance}.{hash:08x}")
}

/// What it was called before every name was one of a kind.
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

/// One request, which is given up in time: a Pi-hole's worker waits for it.
async fn in_time<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
    verb: &'static str,
    name: &str,
) -> Result<T, LedgerError> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(|error| failed(error, verb, name)),
        Err(_) => {
            Err(LedgerError::Failed { name: name.to_owned(), what: format!("no answer within {DEADLINE:?} to {verb}") })
        }
    }
}

fn failed(error: kube::Error, verb: &'static str, name: &str) -> LedgerError {
    let name = name.to_owned();
    match error {
        kube::Error::Api(status) if status.code == 403 => LedgerError::Forbidden { verb, name },
        kube::Error::Api(status) if status.code == 409 => LedgerError::Conflict { name },
        kube::Error::Api(status) => {
            LedgerError::Failed { name, what: format!("status {}: {}", status.code, status.message) }
        }
        other => LedgerError::Failed { name, what: other.to_string() },
    }
}

impl LedgerStore for ConfigMaps {
    fn cluster_id(&self) -> BoxFuture<'_, Result<String, LedgerError>> {
        Box::pin(async move {
            let map = match in_time(self.api.get_opt(CLUSTER_ID), "get", CLUSTER_ID).await? {
                Some(map) => map,
                None => {
                    let empty = ConfigMap {
                        metadata: ObjectMeta { name: Some(CLUSTER_ID.to_owned()), ..ObjectMeta::default() },
                        ..ConfigMap::default()
                    };
                    match in_time(self.api.create(&PostParams::default(), &empty), "create", CLUSTER_ID).await {
                        // Another replica was faster.
                        Err(LedgerError::Conflict { .. }) => {
                            in_time(self.api.get(CLUSTER_ID), "get", CLUSTER_ID).await?
                        }
                        made => made?,
                    }
                }
            };
            if let Some(id) = map.data.as_ref().and_then(|data| data.get(OWNER)) {
                return Ok(id.clone());
            }
            // The API server has made something unique already. It is written down, so that it survives a backup and its restore.
            let uid = map.metadata.uid.clone().unwrap_or_default().replace('-', "");
            let id = format!("cluster-{}", uid.chars().take(12).collect::<String>());
            let named = ConfigMap { data: Some([(OWNER.to_owned(), id.clone())].into()), ..map };
            in_time(self.api.replace(CLUSTER_ID, &PostParams::default(), &named), "update", CLUSTER_ID).await?;
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
            // What was listed under the former name is ours still; from the next change on it is listed under the new one.
            let former = self.read(&former).await?.unwrap_or_default();
            Ok(Versioned { version: None, ..former })
        })
    }

    fn save(&self, instance: &str, ledger: Versioned) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        let name = name_of(&self.owner, instance);
        Box::pin(async move {
            let Versioned { ledger, version } = ledger;
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    resource_version: version.clone(),
                    ..ObjectMeta::default()
                },
                data: Some([(HOSTS.to_owned(), ledger.to_text()), (OWNER.to_owned(), self.owner.clone())].into()),
                ..ConfigMap::default()
            };
            let params = PostParams::default();
            let written = match version {
                None => in_time(self.api.create(&params, &map), "create", &name).await,
                Some(_) => in_time(self.api.replace(&name, &params, &map), "update", &name).await,
            }?;
            Ok(Versioned { ledger, version: written.metadata.resource_version })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_survives_being_written_and_read() {
        let mut ledger = Ledger::default();
        let host = Fqdn::parse("app.lan").unwrap();
        assert!(ledger.add(&host, "10.0.0.1".parse().unwrap()));
        assert!(!ledger.add(&host, "10.0.0.1".parse().unwrap()));
        ledger.add(&host, "10.0.0.2".parse().unwrap());
        assert_eq!(ledger.to_text(), "10.0.0.1 app.lan\n10.0.0.2 app.lan\n");
        assert_eq!(Ledger::from_text(&ledger.to_text()), ledger);
        assert_eq!(Ledger::from_text("rubbish\n\n10.0.0.x a.lan\n"), Ledger::default());
    }

    #[test]
    fn names_stay_as_they_were_where_they_are_one_of_a_kind_and_no_two_are_the_same() {
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
        let ledgers = ConfigMaps::new(sandbox.client(), "default", "a_b");
        assert_eq!(ledgers.load("c").await.unwrap(), Versioned::default());
        let former =
            serde_json::json!({"metadata": {"name": "signpost-pihole-a-b-c"}, "data": {"hosts": "10.0.0.1 app.lan\n"}});
        let former: ConfigMap = serde_json::from_value(former).unwrap();
        ledgers.api.create(&PostParams::default(), &former).await.unwrap();
        let taken = ledgers.load("c").await.unwrap();
        let entries = Ledger::from_text("10.0.0.1 app.lan\n");
        assert_eq!(taken, Versioned { ledger: entries.clone(), version: None });
        let saved = ledgers.save("c", Versioned { ledger: Ledger::default(), version: taken.version }).await.unwrap();
        assert_eq!(ledgers.load("c").await.unwrap(), saved, "from now on it has its own");
        assert_eq!(ledgers.read("signpost-pihole-a-b-c").await.unwrap().unwrap().ledger, entries);
    }

    #[tokio::test]
    async fn a_ledger_that_says_it_is_somebody_elses_is_not_taken_over() {
        let sandbox = signpost_sandbox::Sandbox::new(signpost_sandbox::SandboxOptions::default());
        let (ours, theirs) = ("a_b", "a-b");
        let [ours, theirs] = [ours, theirs].map(|owner| ConfigMaps::new(sandbox.client(), "default", owner));
        let entries = Ledger::from_text("10.0.0.1 app.lan\n");
        let saved = theirs.save("c", Versioned { ledger: entries, version: None }).await.unwrap();
        assert_eq!(theirs.load("c").await.unwrap(), saved);
        assert_eq!(ours.load("c").await.unwrap(), Versioned::default());
    }

    #[tokio::test]
    async fn a_cluster_gets_its_id_once_and_two_clusters_get_two() {
        let options = |seed| signpost_sandbox::SandboxOptions { seed, ..signpost_sandbox::SandboxOptions::default() };
        let [one, two] = [1, 2].map(|seed| signpost_sandbox::Sandbox::new(options(seed)));
        let [first, again] = [(); 2].map(|()| ConfigMaps::new(one.client(), "default", "default"));
        let other = ConfigMaps::new(two.client(), "default", "default");
        let (a, b) = tokio::join!(first.cluster_id(), again.cluster_id());
        // Both replicas may be at it at once; whoever is refused reads it the next time.
        let id = a.or(b).unwrap();
        assert!(id.starts_with("cluster-") && id.len() == 20, "{id}");
        assert_eq!((first.cluster_id().await.unwrap(), again.cluster_id().await.unwrap()), (id.clone(), id.clone()));
        assert_ne!(other.cluster_id().await.unwrap(), id);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_hangs_is_given_up_in_time() {
        let sandbox = signpost_sandbox::Sandbox::new(signpost_sandbox::SandboxOptions::default());
        let hangs = signpost_sandbox::FaultPlan::new(|_, _| signpost_sandbox::Fault::Delay(Duration::from_hours(1)));
        let ledgers = ConfigMaps::new(sandbox.client_with(hangs), "default", "home");
        let error = ledgers.load("pihole").await.unwrap_err();
        assert!(error.to_string().contains("no answer within 10s to get"), "{error}");
        let error = ledgers.save("pihole", Versioned::default()).await.unwrap_err();
        assert!(error.to_string().contains("no answer within 10s to create"), "{error}");
    }
}
