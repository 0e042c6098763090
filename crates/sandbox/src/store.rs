//! The objects of the cluster: one table per resource, one counter of versions for all, and a window of past changes.
//!
//! In: puts and removals, already validated. Out: reads of the present or of any version inside the window, and the changes
//! that watches follow. An object is shared by every reader; its JSON text is made once.
//!
//! ```text
//! put / remove ─► rv += 1 ─► table.objects     (now)
//!                         └► table.changes     (the window: watches, paging, stale reads)
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::signal::{Listener, Signal};

/// One version of one object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    json: OnceLock<Bytes>,
    bare: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(value: Value) -> Arc<Self> {
        Arc::new(Self { value, json: OnceLock::new(), bare: OnceLock::new() })
    }

    /// The JSON text without type, as it is in typed lists.
    pub(crate) fn bare_json(&self) -> Bytes {
        self.bare.get_or_init(|| Bytes::from(serde_json::to_vec(&Bare(&self.value)).unwrap_or_default())).clone()
    }

    /// The object as JSON text, made on first use.
    pub(crate) fn json(&self) -> Bytes {
        self.json.get_or_init(|| Bytes::from(serde_json::to_vec(&self.value).unwrap_or_default())).clone()
    }

    pub(crate) fn meta(&self, field: &str) -> &str {
        meta(&self.value, field)
    }
}

/// An object without `apiVersion` and `kind`.
pub(crate) struct Bare<'a>(pub(crate) &'a Value);

impl Serialize for Bare<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_object() {
            Some(fields) => {
                serializer.collect_map(fields.iter().filter(|(name, _)| *name != "apiVersion" && *name != "kind"))
            }
            None => self.0.serialize(serializer),
        }
    }
}

/// A string field of `metadata`, empty when missing.
pub(crate) fn meta<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// One past change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) rv: u64,
    pub(crate) key: String,
    pub(crate) old: Option<Arc<Object>>,
    /// The new state; for a removal, the last state under the removal's version.
    pub(crate) new: Arc<Object>,
    pub(crate) removed: bool,
}

/// All objects of one resource, under their storage keys (`namespace/name` or `name`).
#[derive(Debug)]
pub(crate) struct Table {
    objects: BTreeMap<String, Arc<Object>>,
    changes: VecDeque<Arc<Change>>,
    /// Changes up to this version are forgotten.
    floor: u64,
    /// No read or watch may start before this version, even where nothing was forgotten.
    compacted: u64,
    signal: Signal,
}

/// The key of an object: as etcd orders them.
pub(crate) fn key_of(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// The window has moved past the version that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) oldest: u64,
}

impl Table {
    fn new(floor: u64) -> Self {
        Self { objects: BTreeMap::new(), changes: VecDeque::new(), floor, compacted: floor, signal: Signal::default() }
    }

    /// A copy with watches of its own.
    fn copy(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            changes: self.changes.clone(),
            floor: self.floor,
            compacted: self.compacted,
            signal: Signal::default(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Arc<Object>)> {
        self.objects.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The oldest version that a read or a watch can still start from.
    pub(crate) fn oldest(&self) -> u64 {
        self.floor.max(self.compacted)
    }

    /// The version of the last change, or of the last one that is forgotten.
    pub(crate) fn last_change(&self) -> u64 {
        self.changes.back().map_or(self.floor, |change| change.rv)
    }

    /// Wakes when a change is made; ends when the resource is taken away.
    pub(crate) fn subscribe(&self) -> Listener {
        self.signal.subscribe()
    }

    /// Changes after `version`, oldest first.
    pub(crate) fn changes_after(
        &self,
        version: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Change>>, Compacted> {
        if version < self.floor {
            return Err(Compacted { oldest: self.floor });
        }
        let start = self.changes.partition_point(|change| change.rv <= version);
        Ok(self.changes.range(start..))
    }

    /// Objects in the range as they were at `version`: what has changed since is undone.
    pub(crate) fn read_at(
        &self,
        version: u64,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<Vec<Arc<Object>>, Compacted> {
        let start = after.map_or_else(|| prefix.to_owned(), |key| format!("{key}\0"));
        let within = |key: &str| key.starts_with(prefix) && key >= start.as_str();
        if version < self.oldest() {
            return Err(Compacted { oldest: self.oldest() });
        }
        let mut undone: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        for change in self.changes_after(version)?.rev() {
            if within(&change.key) {
                undone.insert(&change.key, change.old.as_ref());
            }
        }
        let live = self.objects.range(start.clone()..).take_while(|(key, _)| key.starts_with(prefix));
        if undone.is_empty() {
            return Ok(live.map(|(_, object)| object.clone()).collect());
        }
        let mut merged: BTreeMap<&str, &Arc<Object>> = live.map(|(key, object)| (key.as_str(), object)).collect();
        for (key, old) in undone {
            match old {
                Some(object) => merged.insert(key, object),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_values().cloned().collect())
    }

    fn record(&mut self, change: Change, window: usize) {
        self.changes.push_back(Arc::new(change));
        while self.changes.len() > window {
            if let Some(dropped) = self.changes.pop_front() {
                self.floor = dropped.rv;
            }
        }
        self.signal.send();
    }
}

/// Where an object is: its table and its key.
pub(crate) type Place = (String, String);

/// All objects of the cluster.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    window: usize,
    tables: BTreeMap<String, Table>,
    /// The dependents of each owner uid.
    dependents: BTreeMap<String, BTreeSet<Place>>,
    /// The number of objects in each namespace.
    population: BTreeMap<String, usize>,
}

impl Store {
    pub(crate) fn new(window: usize) -> Self {
        Self {
            version: 1,
            window: window.max(1),
            tables: BTreeMap::new(),
            dependents: BTreeMap::new(),
            population: BTreeMap::new(),
        }
    }

    /// A copy that shares the objects, but no watch and no later change.
    pub(crate) fn copy(&self) -> Self {
        Self {
            version: self.version,
            window: self.window,
            tables: self.tables.iter().map(|(name, table)| (name.clone(), table.copy())).collect(),
            dependents: self.dependents.clone(),
            population: self.population.clone(),
        }
    }

    /// The version of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Makes the table exist, so that watches can wait on it.
    pub(crate) fn open(&mut self, table: &str) -> &Table {
        let version = self.version;
        self.tables.entry(table.to_owned()).or_insert_with(|| Table::new(version))
    }

    pub(crate) fn table(&self, table: &str) -> Option<&Table> {
        self.tables.get(table)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (&String, &Table)> {
        self.tables.iter()
    }

    pub(crate) fn get(&self, table: &str, key: &str) -> Option<&Arc<Object>> {
        self.tables.get(table)?.get(key)
    }

    /// Stores an object under the next version, which is written into it.
    pub(crate) fn put(&mut self, table: &str, mut value: Value) -> Arc<Object> {
        self.version += 1;
        let rv = self.version;
        value["metadata"]["resourceVersion"] = Value::String(rv.to_string());
        let key = key_of(meta(&value, "namespace"), meta(&value, "name"));
        let object = Object::new(value);
        let window = self.window;
        let entry = self.tables.entry(table.to_owned()).or_insert_with(|| Table::new(rv - 1));
        let old = entry.objects.insert(key.clone(), object.clone());
        entry.record(Change { rv, key: key.clone(), old: old.clone(), new: object.clone(), removed: false }, window);
        let place = (table.to_owned(), key);
        match &old {
            Some(old) => self.forget_owners(&place, old),
            None => self.count(&object, 1),
        }
        for uid in owner_uids(&object.value) {
            self.dependents.entry(uid.to_owned()).or_default().insert(place.clone());
        }
        object
    }

    /// Removes an object; returns its last state under the removal's version.
    pub(crate) fn remove(&mut self, table: &str, key: &str) -> Option<Arc<Object>> {
        let rv = self.version + 1;
        let window = self.window;
        let entry = self.tables.get_mut(table)?;
        let old = entry.objects.remove(key)?;
        self.version = rv;
        let mut last = old.value.clone();
        last["metadata"]["resourceVersion"] = Value::String(rv.to_string());
        let last = Object::new(last);
        entry.record(
            Change { rv, key: key.to_owned(), old: Some(old.clone()), new: last.clone(), removed: true },
            window,
        );
        self.forget_owners(&(table.to_owned(), key.to_owned()), &old);
        self.count(&old, -1);
        Some(last)
    }

    /// Ends every watch of a table, after what it still has to deliver.
    pub(crate) fn close(&mut self, table: &str) {
        if let Some(entry) = self.tables.get_mut(table) {
            entry.signal = Signal::default();
        }
    }

    /// Makes all reads and watches that start in the past too old; watches that are being served go on.
    pub(crate) fn compact(&mut self) {
        // Something else always happens between a read and its being forgotten.
        self.version += 1;
        for table in self.tables.values_mut() {
            table.compacted = self.version;
        }
    }

    /// The objects with an owner reference to `uid`.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).map(|places| places.iter().cloned().collect()).unwrap_or_default()
    }

    /// Whether a namespace contains objects.
    pub(crate) fn is_populated(&self, namespace: &str) -> bool {
        self.population.get(namespace).is_some_and(|count| *count > 0)
    }

    fn count(&mut self, object: &Object, by: isize) {
        let namespace = object.meta("namespace");
        if !namespace.is_empty() {
            let count = self.population.entry(namespace.to_owned()).or_default();
            *count = count.saturating_add_signed(by);
        }
    }

    fn forget_owners(&mut self, place: &Place, old: &Object) {
        for uid in owner_uids(&old.value) {
            if let Some(places) = self.dependents.get_mut(uid) {
                places.remove(place);
                if places.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
    }
}

/// The uids in `metadata.ownerReferences`.
pub(crate) fn owner_uids(value: &Value) -> impl Iterator<Item = &str> {
    value
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|owner| owner.get("uid").and_then(Value::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(name: &str, data: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": name}, "data": data})
    }

    fn names(objects: &[Arc<Object>]) -> Vec<String> {
        objects.iter().map(|o| format!("{}={}", o.meta("name"), o.value["data"].as_str().unwrap())).collect()
    }

    #[test]
    fn a_read_in_the_past_undoes_what_came_after() {
        let mut store = Store::new(100);
        store.put("t", named("a", "1"));
        store.put("t", named("b", "1"));
        let then = store.version();
        store.put("t", named("a", "2"));
        store.remove("t", "n/b");
        store.put("t", named("c", "1"));
        let table = store.table("t").unwrap();
        assert_eq!(names(&table.read_at(then, "n/", None).unwrap()), ["a=1", "b=1"]);
        assert_eq!(names(&table.read_at(store.version(), "n/", None).unwrap()), ["a=2", "c=1"]);
        assert_eq!(names(&table.read_at(then, "n/", Some("n/a")).unwrap()), ["b=1"]);
    }

    #[test]
    fn a_version_before_the_window_is_compacted() {
        let mut store = Store::new(2);
        for _ in 0..5 {
            store.put("t", named("a", "x"));
        }
        let table = store.table("t").unwrap();
        assert!(table.changes_after(store.version() - 2).is_ok());
        assert!(table.changes_after(store.version() - 3).is_err());
    }

    #[test]
    fn namespaces_sort_as_storage_keys_do() {
        let mut store = Store::new(10);
        for namespace in ["a", "a-b"] {
            store.put("t", json!({"metadata": {"namespace": namespace, "name": "x"}, "data": namespace}));
        }
        let all = store.table("t").unwrap().read_at(store.version(), "", None).unwrap();
        assert_eq!(names(&all), ["x=a-b", "x=a"]);
    }
}
