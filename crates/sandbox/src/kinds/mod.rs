//! The kinds of the cluster: built in, or declared by a CustomResourceDefinition.
//!
//! In: the table of built-in kinds and the accepted CRDs. Out: for a group, version and plural, how its objects are read,
//! defaulted, validated, shown and stored.

pub(crate) mod builtin;
pub(crate) mod crd;
pub(crate) mod defaults;
pub(crate) mod events;
pub(crate) mod names;
pub(crate) mod typed;
pub(crate) mod validate;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use serde_json::Value;

use crate::{apply::TypeSchema, schema::Structural};

/// One column of `kubectl get`.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    /// How to find the value: the JSON path of a CRD; built-in kinds print their cells in code.
    pub(crate) path: String,
}

/// One served version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    pub(crate) schema: Arc<Structural>,
    pub(crate) columns: Vec<Column>,
    pub(crate) selectable: Vec<String>,
    pub(crate) deprecation: Option<String>,
}

/// The source of a kind.
#[derive(Debug)]
pub(crate) enum Origin {
    Builtin(&'static builtin::Builtin),
    Custom(Box<CustomVersion>),
}

/// One version of one resource, as requests name it.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "kind and listKind are what the API calls them")]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether `/status` is served and the main resource ignores it.
    pub(crate) status: bool,
    /// The version that objects are stored as.
    pub(crate) storage_version: String,
    /// The table its objects are in: shared by all versions, and by both faces of events.
    pub(crate) table: String,
    pub(crate) merge: TypeSchema,
    pub(crate) origin: Origin,
}

impl Kind {
    /// `v1` or `networking.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    pub(crate) fn storage_api_version(&self) -> String {
        api_version(&self.group, &self.storage_version)
    }

    /// Whether an update that changes more than metadata and status raises `metadata.generation`.
    pub(crate) fn has_generation(&self) -> bool {
        match &self.origin {
            Origin::Builtin(builtin) => builtin.generation,
            Origin::Custom(_) => true,
        }
    }

    /// The group that refusals of its objects name: both faces of events are one kind.
    pub(crate) fn reported_group(&self) -> &str {
        if self.table == "events" { "" } else { &self.group }
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom(_))
    }

    /// Whether a PUT of a missing object creates it.
    pub(crate) fn creates_on_update(&self) -> bool {
        matches!(&self.origin, Origin::Builtin(builtin) if builtin.upsert)
    }

    /// Whether an update may leave out the resourceVersion.
    pub(crate) fn updates_unconditionally(&self) -> bool {
        matches!(&self.origin, Origin::Builtin(builtin) if builtin.unconditional)
    }

    /// Whether objects are only answered, never kept.
    pub(crate) fn is_review(&self) -> bool {
        self.group == "authorization.k8s.io"
    }

    /// Fields that lists and watches can be narrowed by, besides name and namespace.
    pub(crate) fn selectable(&self) -> Vec<String> {
        match &self.origin {
            Origin::Builtin(builtin) => builtin.selectable.iter().map(|&field| field.to_owned()).collect(),
            Origin::Custom(custom) => custom.selectable.clone(),
        }
    }

    /// The stored form as this version shows it; `None` when it is the same.
    pub(crate) fn show(&self, stored: &Value) -> Option<Value> {
        if self.table == "events" {
            return events::from_storage(self, stored);
        }
        let wanted = self.api_version();
        if stored.get("apiVersion").and_then(Value::as_str) == Some(wanted.as_str()) {
            return None;
        }
        let mut shown = stored.clone();
        shown["apiVersion"] = Value::String(wanted);
        if let Origin::Custom(custom) = &self.origin {
            custom.schema.prune(&mut shown);
            custom.schema.default(&mut shown);
        }
        Some(shown)
    }

    /// An object of this version in the form it is stored in.
    pub(crate) fn to_storage(&self, mut object: Value) -> Value {
        if self.table == "events" {
            return events::to_storage(self, object);
        }
        if self.version != self.storage_version {
            object["apiVersion"] = Value::String(self.storage_api_version());
        }
        object
    }
}

/// `v1` or `networking.k8s.io/v1`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// All kinds, by group, then version, then plural.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    kinds: BTreeMap<(String, String, String), Arc<Kind>>,
}

impl Catalog {
    /// The built-in kinds.
    pub(crate) fn builtin() -> Self {
        // The same for every sandbox of the process.
        static KINDS: OnceLock<Vec<Arc<Kind>>> = OnceLock::new();
        let mut catalog = Self::default();
        for kind in KINDS.get_or_init(|| builtin::BUILTINS.iter().map(|row| Arc::new(row.kind())).collect()) {
            catalog.put(kind.clone());
        }
        catalog
    }

    pub(crate) fn insert(&mut self, kind: Kind) {
        self.put(Arc::new(kind));
    }

    fn put(&mut self, kind: Arc<Kind>) {
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.kinds.insert(key, kind);
    }

    /// Takes away all versions of a resource.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.kinds.retain(|(g, _, p), _| g != group || p != plural);
    }

    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The kind that an `apiVersion` and a `kind` name, in any served version of the group.
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.kinds.values().find(|known| known.group == group && known.kind == kind)
    }

    /// One kind for a table.
    pub(crate) fn by_table(&self, table: &str) -> Option<&Arc<Kind>> {
        self.kinds
            .values()
            .find(|kind| kind.table == table && kind.version == kind.storage_version && kind.group != "events.k8s.io")
            .or_else(|| self.kinds.values().find(|kind| kind.table == table))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    pub(crate) fn has_group_version(&self, group: &str, version: &str) -> bool {
        self.kinds.keys().any(|(g, v, _)| g == group && v == version)
    }
}
