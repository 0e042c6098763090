//! The cluster's own controllers, at once and in order: garbage collection by owner, namespace deletion, CRD cleanup.
//!
//! A real cluster does this some moments later; here it is done before the request that caused it is answered, so that tests
//! need not wait and always see the same history.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kinds::{Kind, crd},
    store::{Object, Place, Table, key_of},
    world::SandboxState,
};

impl SandboxState {
    /// An object was removed: its dependents, its namespace and its declaration may follow.
    pub(crate) fn after_removal(&mut self, kind: &Kind, last: &Arc<Object>) {
        if kind.kind == "CustomResourceDefinition" && kind.group == "apiextensions.k8s.io" {
            let plural = last.value["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
            let group = last.value["spec"]["group"].as_str().unwrap_or_default().to_owned();
            self.catalog.remove(&group, &plural);
            self.store.close(last.meta("name"));
        }
        if kind.is_custom() {
            self.finish_crd(&kind.table);
        }
        if !self.controllers {
            return;
        }
        for place in self.store.dependents(last.meta("uid")) {
            self.drop_owner(&place, last.meta("uid"));
        }
        self.finish_foreground(&last.value);
        let namespace = last.meta("namespace").to_owned();
        if !namespace.is_empty() {
            self.finish_namespace(&namespace);
        }
    }

    /// One of an object's owners was removed.
    fn drop_owner(&mut self, place: &Place, uid: &str) {
        let (table, key) = place;
        let Some(kind) = self.catalog.by_table(table).cloned() else { return };
        let Some(object) = self.store.get(table, key).cloned() else { return };
        let owners =
            object.value.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default();
        let others: Vec<Value> = owners.into_iter().filter(|owner| owner["uid"] != uid).collect();
        let living = others.iter().any(|owner| self.owner_lives(&object, owner));
        if living {
            let mut value = object.value.clone();
            value["metadata"]["ownerReferences"] = Value::Array(others);
            self.put_for_controller(&kind, key, value);
        } else {
            self.delete_for_controller(&kind, key);
        }
    }

    /// Whether a reference points at an object that exists. An object that cannot be looked up is assumed to exist.
    fn owner_lives(&self, dependent: &Object, owner: &Value) -> bool {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let Some(kind) = self.catalog.by_kind(text("apiVersion"), text("kind")) else { return true };
        let namespace = if kind.namespaced { dependent.meta("namespace") } else { "" };
        self.store
            .get(&kind.table, &key_of(namespace, text("name")))
            .is_some_and(|found| found.meta("uid") == text("uid"))
    }

    /// A new object whose owners are all removed is deleted.
    pub(crate) fn collect_orphan(&mut self, kind: &Kind, stored: &Arc<Object>) {
        if !self.controllers {
            return;
        }
        let owners = stored.value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let orphaned = owners
            .is_some_and(|owners| !owners.is_empty() && !owners.iter().any(|owner| self.owner_lives(stored, owner)));
        if orphaned && let Some(kind) = self.catalog.by_table(&kind.table).cloned() {
            self.delete_for_controller(&kind, &key_of(stored.meta("namespace"), stored.meta("name")));
        }
    }

    /// An object has begun to be deleted: does what its finalizers wait for.
    pub(crate) fn settle_deletion(&mut self, kind: &Arc<Kind>, key: &str) {
        let Some(object) = self.store.get(&kind.table, key).cloned() else { return };
        if kind.kind == "CustomResourceDefinition" {
            self.empty_crd(object.meta("name"));
            return;
        }
        if !self.controllers {
            return;
        }
        let uid = object.meta("uid").to_owned();
        let has = |finalizer: &str| {
            object
                .value
                .pointer("/metadata/finalizers")
                .and_then(Value::as_array)
                .is_some_and(|list| list.iter().any(|f| f == finalizer))
        };
        if has("orphan") {
            for place in self.store.dependents(&uid) {
                self.disown(&place, &uid);
            }
            self.remove_finalizer(kind, key, "orphan");
        } else if has("foregroundDeletion") {
            for (table, dependent) in self.store.dependents(&uid) {
                if let Some(kind) = self.catalog.by_table(&table).cloned() {
                    self.delete_for_controller(&kind, &dependent);
                }
            }
            self.try_finish_foreground(kind, key);
        }
        if kind.kind == "Namespace" {
            self.empty_namespace(key);
        }
    }

    /// Takes an owner out of a dependent that is kept.
    fn disown(&mut self, place: &Place, uid: &str) {
        let (table, key) = place;
        let Some(kind) = self.catalog.by_table(table).cloned() else { return };
        let Some(object) = self.store.get(table, key).cloned() else { return };
        let mut value = object.value.clone();
        if let Some(owners) = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) {
            owners.retain(|owner| owner["uid"] != uid);
            if owners.is_empty()
                && let Some(metadata) = value["metadata"].as_object_mut()
            {
                metadata.remove("ownerReferences");
            }
        }
        self.put_for_controller(&kind, key, value);
    }

    fn remove_finalizer(&mut self, kind: &Arc<Kind>, key: &str, finalizer: &str) {
        let Some(object) = self.store.get(&kind.table, key).cloned() else { return };
        let mut value = object.value.clone();
        if let Some(list) = value.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
            list.retain(|f| f != finalizer);
            if list.is_empty()
                && let Some(metadata) = value["metadata"].as_object_mut()
            {
                metadata.remove("finalizers");
            }
        }
        if value != object.value {
            self.put_for_controller(kind, key, value);
        }
    }

    /// A dependent was removed: owners that wait for their dependents may be removed too.
    fn finish_foreground(&mut self, dependent: &Value) {
        let owners =
            dependent.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default();
        for owner in owners {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let Some(kind) = self.catalog.by_kind(text("apiVersion"), text("kind")).cloned() else { continue };
            let namespace = if kind.namespaced { crate::store::meta(dependent, "namespace") } else { "" };
            self.try_finish_foreground(&kind, &key_of(namespace, text("name")));
        }
    }

    fn try_finish_foreground(&mut self, kind: &Arc<Kind>, key: &str) {
        let Some(owner) = self.store.get(&kind.table, key).cloned() else { return };
        if owner.meta("deletionTimestamp").is_empty() {
            return;
        }
        let blocked = self.store.dependents(owner.meta("uid")).iter().any(|(table, key)| {
            self.store.get(table, key).is_some_and(|dependent| {
                dependent
                    .value
                    .pointer("/metadata/ownerReferences")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .any(|reference| reference["uid"] == owner.meta("uid") && reference["blockOwnerDeletion"] == true)
            })
        });
        if !blocked {
            self.remove_finalizer(kind, key, "foregroundDeletion");
        }
    }

    /// Deletes the objects of a terminating namespace.
    fn empty_namespace(&mut self, namespace: &str) {
        let prefix = format!("{namespace}/");
        let version = self.store.version();
        let content: Vec<Place> = self
            .store
            .tables()
            .flat_map(|(table, objects)| {
                let found = objects.read_at(version, &prefix, None).unwrap_or_default();
                found.into_iter().map(|object| (table.clone(), key_of(object.meta("namespace"), object.meta("name"))))
            })
            .collect();
        for (table, key) in content {
            if let Some(kind) = self.catalog.by_table(&table).cloned() {
                self.delete_for_controller(&kind, &key);
            }
        }
        self.finish_namespace(namespace);
    }

    /// Lets a terminating namespace go once it is empty.
    fn finish_namespace(&mut self, namespace: &str) {
        if self.store.is_populated(namespace) {
            return;
        }
        let Some(found) = self.store.get("namespaces", namespace).cloned() else { return };
        if found.meta("deletionTimestamp").is_empty() {
            return;
        }
        if let Some(kind) = self.catalog.by_table("namespaces").cloned() {
            let mut value = found.value.clone();
            value["spec"] = json!({});
            self.put_for_controller(&kind, namespace, value);
        }
    }

    /// Deletes all objects of a CRD that is being deleted.
    fn empty_crd(&mut self, table: &str) {
        let Some(kind) = self.catalog.by_table(table).cloned() else {
            self.finish_crd(table);
            return;
        };
        let keys: Vec<String> = self
            .store
            .table(table)
            .map(|objects| objects.iter().map(|(key, _)| key.clone()).collect())
            .unwrap_or_default();
        for key in keys {
            self.delete_for_controller(&kind, &key);
        }
        self.finish_crd(table);
    }

    /// Lets a deleted declaration go once it has no objects.
    fn finish_crd(&mut self, table: &str) {
        let crds = "customresourcedefinitions.apiextensions.k8s.io";
        let deleting = self.store.get(crds, table).is_some_and(|crd| !crd.meta("deletionTimestamp").is_empty());
        if deleting
            && self.store.table(table).is_none_or(Table::is_empty)
            && let Some(kind) = self.catalog.by_table(crds).cloned()
        {
            self.remove_finalizer(&kind, table, crd::CLEANUP);
        }
    }
}
