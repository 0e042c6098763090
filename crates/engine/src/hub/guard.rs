//! Parses one object of a list, so that a bad one does not make the list fail. Drops the bulk before parsing.
//!
//! The last-applied annotation and the `managedFields` of others are most of an object's size and are not used. The fields that we applied
//! are kept beside the parsed object until they have been compared with what is wanted; the object itself has only the parts that we applied,
//! and which annotations we wrote.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::{DynamicResourceScope, Resource};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::write::{FIELD_MANAGER, owned};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// An error may quote the object; more than this is cut.
const ERROR_LIMIT: usize = 512;

/// An object, or why it cannot be parsed.
#[derive(Clone, Debug)]
pub(super) enum Guarded<K> {
    Good {
        object: Box<K>,
        /// The object as it came, where it has fields that we applied; without the `managedFields` of others.
        applied: Option<Box<Value>>,
    },
    Bad {
        meta: Box<ObjectMeta>,
        error: String,
    },
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let (ours, written) = prune(&mut value);
        if !ours.is_empty() || !written.is_empty() {
            value["metadata"]["managedFields"] = ours.iter().map(without_fields).chain(written).collect();
        }
        match K::deserialize(&value) {
            Ok(object) => {
                let applied = (!ours.is_empty()).then(|| {
                    value["metadata"]["managedFields"] = Value::Array(ours);
                    Box::new(value)
                });
                Ok(Self::Good { object: Box::new(object), applied })
            }
            Err(error) => {
                let mut error = error.to_string();
                crate::events::cut(&mut error, ERROR_LIMIT);
                Ok(Self::Bad { meta: Box::new(meta_of(&value)), error })
            }
        }
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Guarded<K> {
    type DynamicType = ();
    // Decided when the stream is built: a namespaced kind may be watched in one namespace or in all.
    type Scope = DynamicResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Good { object, .. } => object.meta(),
            Self::Bad { meta, .. } => meta,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Good { object, .. } => object.meta_mut(),
            Self::Bad { meta, .. } => meta,
        }
    }
}

/// Drops the bulk, and returns our own entries of `managedFields`: of what we applied, and of annotations that we wrote otherwise.
fn prune(value: &mut Value) -> (Vec<Value>, Vec<Value>) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return Default::default() };
    let managed = metadata.remove("managedFields");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    match managed {
        Some(Value::Array(mut entries)) => {
            let written = entries.iter().filter_map(annotations_alone).collect();
            entries.retain(owned::is_ours);
            (entries, written)
        }
        _ => Default::default(),
    }
}

/// An entry of `managedFields` for annotations that we wrote by a patch, without anything else.
fn annotations_alone(entry: &Value) -> Option<Value> {
    let ours = entry["operation"] == "Update" && entry["manager"] == FIELD_MANAGER && entry["subresource"].is_null();
    let written = entry["fieldsV1"]["f:metadata"].get("f:annotations").filter(|_| ours)?;
    let fields = json!({ "f:metadata": { "f:annotations": written } });
    Some(json!({ "manager": FIELD_MANAGER, "operation": "Update", "fieldsV1": fields }))
}

/// An entry of `managedFields` without its fields: it shows which part of the object it is for.
fn without_fields(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.retain(|name, _| ["manager", "operation", "subresource"].contains(&name.as_str()));
    }
    entry
}

/// The name, UID, version, deletion time and finalizers, even where the rest of the metadata cannot be parsed.
fn meta_of(value: &Value) -> ObjectMeta {
    let text = |field: &str| value.pointer(&format!("/metadata/{field}")).and_then(Value::as_str).map(str::to_owned);
    let finalizers = value.pointer("/metadata/finalizers").and_then(Value::as_array);
    ObjectMeta {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        deletion_timestamp: text("deletionTimestamp").and_then(|time| time.parse().ok()).map(Time),
        finalizers: finalizers.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::is_reported;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn an_annotation_is_ours_until_another_manager_changes_its_value() {
        let entry = |manager: &str, operation: &str, subresource: Option<&str>| {
            json!({"manager": manager, "operation": operation, "subresource": subresource,
                "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:example.org/a": {}}, "f:labels": {"f:l": {}}}}})
        };
        let wrote = |entry: Value| {
            let object =
                json!({"metadata": {"name": "a", "annotations": {"example.org/a": "1"}, "managedFields": [entry]}});
            let Guarded::<ConfigMap>::Good { object, applied } = serde_json::from_value(object).unwrap() else {
                panic!()
            };
            assert!(applied.is_none() && !is_reported(&object.metadata));
            ["example.org/a", "example.org/b"].map(|key| crate::object::wrote_annotation(&object.metadata, key))
        };
        assert_eq!(wrote(entry(FIELD_MANAGER, "Update", None)), [true, false]);
        assert_eq!(wrote(entry("kubectl", "Update", None)), [false, false]);
        assert_eq!(wrote(entry(FIELD_MANAGER, "Update", Some("status"))), [false, false]);
    }

    #[test]
    fn a_good_object_loses_only_its_bulk() {
        let guarded: Guarded<ConfigMap> = serde_json::from_value(json!({
            "metadata": {
                "name": "a",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {LAST_APPLIED: "{}", "keep": "me"},
            },
            "data": {"k": "v"},
        }))
        .unwrap();
        let Guarded::Good { object: map, applied } = guarded else { panic!("not readable") };
        assert!(map.metadata.managed_fields.is_none() && applied.is_none());
        assert_eq!(map.metadata.annotations.unwrap().into_keys().collect::<Vec<_>>(), ["keep"]);
        assert_eq!(map.data.unwrap()["k"], "v");
    }

    #[test]
    fn fields_we_applied_are_kept_beside_the_object() {
        let entry = |manager: &str, subresource: &str| json!({"manager": manager, "operation": "Apply", "subresource": subresource, "fieldsV1": {"f:data": {"f:k": {}}}});
        let guarded: Guarded<ConfigMap> = serde_json::from_value(json!({
            "metadata": {"name": "a", "managedFields": [entry("kubectl", "status"), entry("signpost", ""), entry("signpost-portal", "")]},
            "data": {"k": "v"},
        }))
        .unwrap();
        let Guarded::Good { object, applied: Some(applied) } = guarded else { panic!("nothing kept") };
        let kept = object.metadata.managed_fields.as_deref().unwrap();
        assert!(kept.len() == 2 && kept.iter().all(|entry| entry.fields_v1.is_none()), "{kept:?}");
        assert!(!is_reported(&object.metadata), "kubectl wrote the status");
        let managers: Vec<_> =
            applied["metadata"]["managedFields"].as_array().unwrap().iter().map(|e| &e["manager"]).collect();
        assert_eq!(managers, ["signpost", "signpost-portal"]);
        assert_eq!(applied["data"]["k"], "v");
    }

    #[test]
    fn a_status_that_this_operator_wrote_is_known_as_reported() {
        let guarded: Guarded<ConfigMap> = serde_json::from_value(json!({"metadata": {"name": "a", "managedFields": [
            {"manager": "signpost", "operation": "Apply", "subresource": "status", "fieldsV1": {}},
        ]}}))
        .unwrap();
        assert!(matches!(guarded, Guarded::Good { object, .. } if is_reported(&object.metadata)));
    }

    #[test]
    fn a_bad_object_keeps_its_name() {
        let guarded: Guarded<ConfigMap> = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "1", "resourceVersion": "7"},
            "data": ["not", "a", "map"],
        }))
        .unwrap();
        let Guarded::Bad { meta, error } = guarded else { panic!("readable") };
        assert_eq!((meta.name.as_deref(), meta.resource_version.as_deref()), (Some("a"), Some("7")));
        assert!(error.contains("map"), "{error}");
    }

    #[test]
    fn an_object_with_bad_metadata_keeps_its_name() {
        let guarded: Guarded<ConfigMap> =
            serde_json::from_value(json!({"metadata": {"name": "a", "labels": 3}})).unwrap();
        assert!(matches!(guarded, Guarded::Bad { meta, .. } if meta.name.as_deref() == Some("a")));
    }

    #[test]
    fn a_long_error_is_cut() {
        let guarded: Guarded<ConfigMap> =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "immutable": "x".repeat(10_000)})).unwrap();
        assert!(matches!(guarded, Guarded::Bad { error, .. } if error.len() <= ERROR_LIMIT));
    }
}
