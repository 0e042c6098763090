//! `metadata.managedFields`: who owns which fields since when.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::path::Fields;
use crate::schema::quoted;

/// How many update entries an object keeps; older ones are folded into one.
const MOST_UPDATERS: usize = 10;

/// A writer: a manager by one operation through one subresource (and, for updates, in one API version).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) applies: bool,
    /// Empty for appliers, whose entries are shared between versions.
    pub(crate) version: String,
    pub(crate) subresource: String,
}

/// The fields that a manager owns.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) fields: Fields,
    pub(crate) version: String,
    pub(crate) time: Option<String>,
}

/// All managers of an object.
pub(crate) type Managers = BTreeMap<Manager, Owned>;

impl Manager {
    pub(crate) fn new(name: &str, applies: bool, version: &str, subresource: Option<&str>) -> Self {
        Self {
            name: if name.is_empty() { "unknown".to_owned() } else { name.to_owned() },
            applies,
            version: if applies { String::new() } else { version.to_owned() },
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }

    /// How a conflict names the manager.
    pub(crate) fn described(&self) -> String {
        let mut text = quoted(&self.name);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {}", quoted(&self.subresource));
        }
        if self.applies { text } else { format!("{text} using {}", self.version) }
    }
}

/// A time as managedFields carry it.
pub(crate) fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The managers of an object; an entry that cannot be read makes the whole list unreadable.
pub(crate) fn decode(entries: Option<&Value>) -> Option<Managers> {
    let mut managers = Managers::new();
    for entry in entries.and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let applies = match text("operation").as_str() {
            "Apply" => true,
            "Update" => false,
            _ => return None,
        };
        let version = text("apiVersion");
        if version.is_empty() || text("fieldsType") != "FieldsV1" {
            return None;
        }
        let manager = Manager {
            name: text("manager"),
            applies,
            version: if applies { String::new() } else { version.clone() },
            subresource: text("subresource"),
        };
        let fields = entry.get("fieldsV1").map(Fields::decode).unwrap_or_default();
        let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
        managers.insert(manager, Owned { fields, version, time });
    }
    Some(managers)
}

/// The entries as the API shows them: by operation, then time, manager, version and subresource.
pub(crate) fn encode(managers: &Managers) -> Value {
    let mut list: Vec<(&Manager, &Owned)> = managers.iter().collect();
    list.sort_by_key(|(manager, owned)| {
        (
            !manager.applies,
            owned.time.clone().unwrap_or_default(),
            manager.name.clone(),
            owned.version.clone(),
            manager.subresource.clone(),
        )
    });
    let entries = list.into_iter().map(|(manager, owned)| {
        let mut entry = json!({
            "manager": manager.name, "operation": if manager.applies { "Apply" } else { "Update" },
            "apiVersion": owned.version, "fieldsType": "FieldsV1", "fieldsV1": owned.fields.encode(),
        });
        if let Some(time) = &owned.time {
            entry["time"] = json!(time);
        }
        if !manager.subresource.is_empty() {
            entry["subresource"] = json!(manager.subresource);
        }
        entry
    });
    Value::Array(entries.collect())
}

/// Writes the managers into the object, or removes the field when there are none.
pub(crate) fn store(object: &mut Value, managers: &Managers) {
    let Some(fields) = object.as_object_mut() else { return };
    if managers.is_empty() {
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        return;
    }
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".to_owned(), encode(managers));
    }
}

/// Folds the oldest update entries of a version into one named `ancient-changes` when there are too many.
pub(crate) fn cap(managers: &mut Managers) {
    let mut updaters: Vec<Manager> = managers.keys().filter(|manager| !manager.applies).cloned().collect();
    if updaters.len() <= MOST_UPDATERS {
        return;
    }
    updaters.sort_by_key(|manager| {
        (managers.get(manager).and_then(|owned| owned.time.clone()).unwrap_or_default(), manager.clone())
    });
    let mut left = updaters.len();
    let mut first_of: BTreeMap<String, Manager> = BTreeMap::new();
    for manager in updaters {
        if left <= MOST_UPDATERS {
            break;
        }
        let Some(owned) = managers.get(&manager).cloned() else { continue };
        let Some(first) = first_of.get(&owned.version) else {
            first_of.insert(owned.version.clone(), manager);
            continue;
        };
        let bucket = Manager::new("ancient-changes", false, &owned.version, None);
        if !managers.contains_key(&bucket)
            && let Some(earliest) = managers.remove(first)
        {
            managers.insert(bucket.clone(), earliest);
        }
        managers.remove(&manager);
        if let Some(folded) = managers.get_mut(&bucket) {
            folded.fields = std::mem::take(&mut folded.fields).union(owned.fields);
            folded.time = owned.time;
        }
        left -= 1;
    }
}
