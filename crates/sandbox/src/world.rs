//! The cluster itself: its objects, its kinds and what it makes identifiers with. Every request runs on it alone, so that one
//! history of versions describes all of them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    SandboxOptions,
    clock::{Ids, SandboxClock, rfc3339},
    kinds::{Catalog, Kind},
    status::{About, ApiError},
    store::{Object, Store},
};

/// The state behind the API.
#[derive(Debug)]
pub(crate) struct SandboxState {
    pub(crate) store: Store,
    pub(crate) catalog: Catalog,
    pub(crate) ids: Ids,
    pub(crate) clock: SandboxClock,
    /// The last cluster IP given out.
    pub(crate) address: u32,
    /// Whether garbage collection and namespace deletion run.
    pub(crate) controllers: bool,
}

impl SandboxState {
    pub(crate) fn new(options: &SandboxOptions) -> Self {
        let mut world = Self {
            store: Store::new(options.history),
            catalog: Catalog::builtin(),
            ids: Ids::new(options.seed),
            clock: options.clock.clone(),
            address: 0,
            controllers: options.controllers,
        };
        let tables: Vec<String> = world.catalog.iter().map(|kind| kind.table.clone()).collect();
        for table in tables {
            world.store.open(&table);
        }
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let uid = world.ids.uid();
            let created = rfc3339(world.now());
            world.store.put(
                "namespaces",
                json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "uid": uid, "creationTimestamp": created, "labels": {"kubernetes.io/metadata.name": name}},
                    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}
                }),
            );
        }
        let uid = world.ids.uid();
        let created = rfc3339(world.now());
        world.address = 1;
        world.store.put(
            "services",
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": "kubernetes", "namespace": "default", "uid": uid, "creationTimestamp": created,
                    "labels": {"component": "apiserver", "provider": "kubernetes"}
                },
                "spec": {
                    "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "internalTrafficPolicy": "Cluster",
                    "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]
                },
                "status": {"loadBalancer": {}}
            }),
        );
        world
    }

    /// The same cluster with a clock and identifiers of its own.
    pub(crate) fn fork(&self, options: &SandboxOptions) -> Self {
        // Another sequence than that of a new sandbox with this seed, whose uids the copied objects may have.
        const FORK: u64 = 0x9e37_79b9_7f4a_7c15;
        Self {
            store: self.store.copy(),
            catalog: self.catalog.clone(),
            ids: Ids::new(options.seed ^ FORK),
            clock: options.clock.clone(),
            address: self.address,
            controllers: options.controllers,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The stored object, or a 404.
    pub(crate) fn find(&self, kind: &Kind, key: &str) -> Result<Arc<Object>, ApiError> {
        self.store.get(&kind.table, key).cloned().ok_or_else(|| {
            let name = key.rsplit('/').next().unwrap_or(key);
            ApiError::not_found(About { group: &kind.group, resource: &kind.plural, name })
        })
    }

    /// The namespace must exist, and must not be terminating when an object is created in it.
    pub(crate) fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), ApiError> {
        let Some(found) = self.store.get("namespaces", namespace) else {
            return Err(ApiError::not_found(About { group: "", resource: "namespaces", name: namespace }));
        };
        let terminating = found.value.pointer("/status/phase").and_then(Value::as_str) == Some("Terminating");
        if terminating || !found.meta("deletionTimestamp").is_empty() {
            let about = About { group: &kind.group, resource: &kind.plural, name };
            return Err(ApiError::namespace_terminating(about, namespace));
        }
        Ok(())
    }
}
