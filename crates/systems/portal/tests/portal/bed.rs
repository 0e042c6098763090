//! A namespace, an operator that watches it, and a resolver in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use signpost_apis::portal::{Component, DNS, DnsStatus, FqdnStatus};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_engine::{Operator, OperatorOptions};
use signpost_inventory::{Filter, Inventory, SyncStatus, View};
use signpost_provider_resolver::Memory;
use signpost_system_portal::{Lookups, Pace, install_with};
use signpost_testkit::{Cluster, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_mins(2);

pub struct Bed {
    pub namespace: String,
    pub cluster: Cluster,
    pub resolver: Arc<Memory>,
    pub inventory: Arc<Inventory>,
    stop: CancellationToken,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Bed {
    /// With an operator, which creates the portal `main`.
    pub async fn new(cluster: Cluster) -> Self {
        let bed = Self::without_operator(cluster).await;
        bed.start();
        bed
    }

    pub async fn without_operator(cluster: Cluster) -> Self {
        cluster.install(&signpost_apis::portal::crds()).await;
        let namespace = cluster.namespace("portal").await;
        let (resolver, inventory) = (Arc::default(), Arc::new(Inventory::new()));
        Self { namespace, cluster, resolver, inventory, stop: CancellationToken::new() }
    }

    /// A replica in the same namespace and cluster, with an inventory and a resolver of its own.
    pub fn replica(&self) -> Self {
        Self {
            namespace: self.namespace.clone(),
            cluster: self.cluster.clone(),
            resolver: Arc::default(),
            inventory: Arc::new(Inventory::new()),
            stop: CancellationToken::new(),
        }
    }

    pub fn options(&self) -> OperatorOptions {
        OperatorOptions { namespace: Some(self.namespace.clone()), ..OperatorOptions::default() }
    }

    pub fn start(&self) -> JoinHandle<()> {
        self.start_with(self.cluster.client(), self.options(), self.resolver.clone())
    }

    pub fn start_with(&self, client: Client, options: OperatorOptions, lookups: impl Into<Lookups>) -> JoinHandle<()> {
        self.start_at(client, options, lookups, |_| {})
    }

    /// The same, with other times.
    pub fn start_at(
        &self,
        client: Client,
        options: OperatorOptions,
        lookups: impl Into<Lookups>,
        change: impl FnOnce(&mut Pace),
    ) -> JoinHandle<()> {
        let mut operator = Operator::new(client, options);
        let mut pace = Pace {
            refresh: Duration::from_millis(500),
            again: Duration::from_millis(100),
            namespace: self.namespace.clone(),
            ..Pace::default()
        };
        change(&mut pace);
        install_with(&mut operator, lookups, &self.inventory, pace);
        let stop = self.stop.clone();
        tokio::spawn(async move { operator.run(stop).await.expect("the operator runs until it is stopped") })
    }

    /// Asks the operator to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub fn api<K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    pub async fn dns(&self, name: &str, groups: Value, annotations: Value) {
        let object = dns(name, groups, annotations);
        self.api::<DNS>().create(&PostParams::default(), &object).await.unwrap();
    }

    pub fn answers(&self, name: &str, rtype: &str, values: &[&str]) {
        let rtype: RecordType = rtype.parse().unwrap();
        let values = values.iter().map(|value| Rdata::parse(&rtype, value).unwrap()).collect();
        self.resolver.set(&Fqdn::parse(name).unwrap(), rtype, values);
    }

    pub async fn status(&self, name: &str) -> DnsStatus {
        self.api::<DNS>().get(name).await.unwrap().status.unwrap_or_default()
    }

    /// `status/reason` by name, as in the status of a DNS object.
    pub async fn results(&self, name: &str) -> BTreeMap<String, String> {
        let fqdns = self.status(name).await.groups.into_iter().flat_map(|group| group.fqdns);
        let result = |fqdn: FqdnStatus| {
            (fqdn.fqdn, format!("{}/{}", fqdn.sync_status.unwrap_or_default(), fqdn.reason.unwrap_or_default()))
        };
        fqdns.map(result).collect()
    }

    pub async fn shows(&self, name: &str, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> = expected.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        eventually(&format!("{name} shows {expected:?}"), PATIENCE, || async {
            let seen = self.results(name).await;
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    pub async fn condition(&self, name: &str, type_: &str, reason: &str) {
        eventually(&format!("{name} has {type_} {reason}"), PATIENCE, || async {
            let conditions = self.status(name).await.conditions;
            let found = conditions.iter().any(|condition| condition.type_ == type_ && condition.reason == reason);
            if found { Ok(()) } else { Err(conditions) }
        })
        .await;
    }

    pub fn in_inventory(&self, status: SyncStatus) -> usize {
        self.inventory.snapshot().page(&Filter { status: Some(status), ..Filter::default() }, None, 1).total
    }

    /// `name status` of every view.
    pub fn lines(&self) -> Vec<String> {
        let line = |view: &View| format!("{} {}", view.name().undotted(), view.status().as_str());
        self.inventory.snapshot().iter().map(|view| line(view)).collect()
    }

    /// Waits until the inventory has these names, as `name status`.
    pub async fn lists(&self, expected: &[&str]) {
        eventually(&format!("the inventory has {expected:?}"), PATIENCE, || async {
            let seen = self.lines();
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// Waits until a name has this status and reason in the inventory, as `status/reason`.
    pub async fn has_result(&self, name: &str, expected: &str) {
        let fqdn = Fqdn::parse(name).unwrap();
        eventually(&format!("{name} is {expected} in the inventory"), PATIENCE, || async {
            let result = |view: &Arc<View>| format!("{}/{}", view.status().as_str(), view.reason().as_str());
            let seen = self.inventory.snapshot().get(&fqdn).next().map(result);
            if seen.as_deref() == Some(expected) { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    pub async fn has_components(&self, names: &[&str]) -> Vec<Component> {
        eventually(&format!("the components are {names:?}"), PATIENCE, || async {
            let all = self.api::<Component>().list(&ListParams::default()).await.unwrap().items;
            let mut seen: Vec<String> = all.iter().map(|component| component.spec.display_name.clone()).collect();
            seen.sort();
            if seen == names { Ok(all) } else { Err(seen) }
        })
        .await
    }
}

/// A DNS object of the portal `main`.
pub fn dns(name: &str, groups: Value, annotations: Value) -> DNS {
    serde_json::from_value(json!({
        "apiVersion": "sreportal.io/v1alpha1",
        "kind": "DNS",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "portalRef": "main", "groups": groups },
    }))
    .unwrap()
}

/// A group of one name with one address.
pub fn one(fqdn: &str, target: &str) -> Value {
    json!([{ "name": "apps", "entries": [{ "fqdn": fqdn, "recordType": "A", "targets": [target] }] }])
}
