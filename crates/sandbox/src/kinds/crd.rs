//! CustomResourceDefinitions: defaults, validation, and the kinds they bring.
//!
//! In: a CRD object. Out: the errors of its declaration, or one [`Kind`] per served version and the status that reports them as
//! established.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Column, CustomVersion, Kind, Origin,
    names::{invalid, required, subdomain, unsupported},
};
use crate::{
    apply::TypeSchema,
    clock::rfc3339,
    schema::{FieldError, Structural},
    store::meta,
};

/// Deleting a CRD waits on this finalizer until its objects are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

/// Fills in what a declaration may leave out.
pub(crate) fn default(crd: &mut Value) {
    let kind = text(crd, "/spec/names/kind").to_owned();
    if !kind.is_empty()
        && let Some(names) = crd.pointer_mut("/spec/names").and_then(Value::as_object_mut)
    {
        for (field, value) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
            if names.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                names.insert(field.into(), Value::from(value));
            }
        }
    }
    if let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
        if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
            spec.remove("preserveUnknownFields");
        }
    }
    if let Some(versions) = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
        for version in versions {
            for column in
                version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut).into_iter().flatten()
            {
                if column.get("priority") == Some(&json!(0)) {
                    column.as_object_mut().map(|column| column.remove("priority"));
                }
            }
        }
    }
}

/// The status of a declaration that has just been made.
pub(crate) fn initial_status(crd: &Value) -> Value {
    let stored: Vec<&Value> =
        versions(crd).filter(|version| version["storage"] == true).map(|version| &version["name"]).collect();
    json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored})
}

/// Compiles a schema once per process: a test suite installs the same declarations in thousands of sandboxes.
fn compiled(at: &str, schema: &Value) -> Result<Arc<Structural>, Vec<FieldError>> {
    static COMPILED: Mutex<BTreeMap<String, Arc<Structural>>> = Mutex::new(BTreeMap::new());
    const ROOM: usize = 256;
    let key = schema.to_string();
    let known = COMPILED.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
    if let Some(known) = known {
        return Ok(known);
    }
    let made = Arc::new(Structural::compile_at(at, schema)?);
    let mut cache = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if cache.len() >= ROOM {
        cache.clear();
    }
    cache.insert(key, made.clone());
    Ok(made)
}

/// Whether all versions carry the same schema, which the server then reports as the one of the whole declaration.
fn one_schema(crd: &Value) -> bool {
    let schemas: Vec<Option<&Value>> = versions(crd).map(|version| version.get("schema")).collect();
    schemas.windows(2).all(|pair| pair[0] == pair[1])
}

/// The errors in a declaration that keep the sandbox from serving it. Its names, columns and defaults are not checked.
pub(crate) fn errors(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (group, plural) = (text(new, "/spec/group"), text(new, "/spec/names/plural"));
    let name = meta(new, "name");
    let wanted = format!("{plural}.{group}");
    if name != wanted {
        errors.push(invalid("metadata.name", &Value::from(name), "must be spec.names.plural+\".\"+spec.group"));
    }
    if group.is_empty() {
        errors.push(required("spec.group", ""));
    } else if !subdomain(group).is_empty() {
        errors.extend(subdomain(group).iter().map(|why| invalid("spec.group", &Value::from(group), why)));
    } else if !group.contains('.') {
        errors.push(invalid("spec.group", &Value::from(group), "should be a domain with at least one dot"));
    }
    let scope = text(new, "/spec/scope");
    if scope.is_empty() {
        errors.push(required("spec.scope", ""));
    } else if !matches!(scope, "Cluster" | "Namespaced") {
        errors.push(unsupported("spec.scope", scope, &["Cluster", "Namespaced"]));
    }
    errors.extend(version_errors(new, old));
    for field in ["plural", "kind"] {
        if text(new, &format!("/spec/names/{field}")).is_empty() {
            errors.push(required(format!("spec.names.{field}"), ""));
        }
    }
    if let Some(old) = old {
        for (field, pointer) in [("spec.group", "/spec/group"), ("spec.names.plural", "/spec/names/plural")] {
            if text(new, pointer) != text(old, pointer) {
                errors.push(invalid(field, &Value::from(text(new, pointer)), "field is immutable"));
            }
        }
        if established(old) {
            for (field, pointer) in [("spec.scope", "/spec/scope"), ("spec.names.kind", "/spec/names/kind")] {
                if text(new, pointer) != text(old, pointer) {
                    errors.push(invalid(field, &Value::from(text(new, pointer)), "field is immutable"));
                }
            }
        }
    }
    errors
}

/// The versions as the server prints them.
fn shown_versions(new: &Value) -> Value {
    if new.pointer("/spec/versions").is_none() {
        return Value::Null;
    }
    let shown = versions(new).map(|version| {
        json!({
            "Name": version["name"], "Served": version["served"], "Storage": version["storage"],
            "Deprecated": version["deprecated"] == true, "DeprecationWarning": version["deprecationWarning"],
        })
    });
    Value::Array(shown.collect())
}

fn version_errors(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let hoisted = one_schema(new);
    let mut errors: Vec<FieldError> =
        versions(new).enumerate().flat_map(|(at, version)| schema_errors(at, version, hoisted)).collect();
    let names: Vec<&str> = versions(new).map(|version| version["name"].as_str().unwrap_or_default()).collect();
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        errors.push(invalid("spec.versions", &shown_versions(new), "must contain unique version names"));
    }
    let storage = versions(new).filter(|version| version["storage"] == true).count();
    if storage != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(invalid("spec.versions", &shown_versions(new), why));
    }
    if storage == 0 {
        errors.push(invalid("status.storedVersions", &Value::Null, "must have at least one stored version"));
    }
    let stored = old.and_then(|old| old.pointer("/status/storedVersions")).and_then(Value::as_array);
    for (at, stored) in stored.into_iter().flatten().enumerate() {
        if !names.contains(&stored.as_str().unwrap_or_default()) {
            let why = "missing from spec.versions; must be removed from status.storedVersions first";
            errors.push(invalid(format!("status.storedVersions[{at}]"), stored, why));
        }
    }
    errors
}

/// The errors of one schema. Where all versions have the same (`hoisted`), the server reports them once, at the top.
fn schema_errors(at: usize, version: &Value, hoisted: bool) -> Vec<FieldError> {
    let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
    match version.pointer("/schema/openAPIV3Schema") {
        None => vec![required(path, "")],
        Some(_) if hoisted && at > 0 => Vec::new(),
        Some(schema) if hoisted => compiled("spec.validation.openAPIV3Schema", schema).err().unwrap_or_default(),
        Some(schema) => compiled(&path, schema).err().unwrap_or_default(),
    }
}

/// Whether its objects are served.
pub(crate) fn established(crd: &Value) -> bool {
    crd.pointer("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// The kinds that a valid declaration brings, one per served version.
pub(crate) fn kinds(crd: &Value) -> Vec<Kind> {
    let storage = versions(crd)
        .find(|version| version["storage"] == true)
        .and_then(|version| version["name"].as_str())
        .unwrap_or_default()
        .to_owned();
    let group = text(crd, "/spec/group");
    let names = &crd["spec"]["names"];
    let strings = |field: &str| -> Vec<String> {
        names[field].as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let plural = text(crd, "/spec/names/plural").to_owned();
    versions(crd)
        .filter(|version| version["served"] == true)
        .filter_map(|version| {
            let schema = compiled("", version.pointer("/schema/openAPIV3Schema")?).ok()?;
            let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten().map(column).collect();
            let selectable = version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|field| field["jsonPath"].as_str())
                .map(|path| path.trim_start_matches('.').to_owned())
                .collect();
            let name = version["name"].as_str()?.to_owned();
            let deprecation = (version["deprecated"] == true).then(|| {
                version["deprecationWarning"].as_str().map_or_else(|| default_deprecation(crd, &name), str::to_owned)
            });
            Some(Kind {
                group: group.to_owned(),
                version: name,
                kind: text(crd, "/spec/names/kind").to_owned(),
                list_kind: text(crd, "/spec/names/listKind").to_owned(),
                plural: plural.clone(),
                singular: text(crd, "/spec/names/singular").to_owned(),
                short_names: strings("shortNames"),
                categories: strings("categories"),
                namespaced: text(crd, "/spec/scope") == "Namespaced",
                status: version.pointer("/subresources/status").is_some(),
                storage_version: storage.clone(),
                table: format!("{plural}.{group}"),
                merge: TypeSchema::of_custom(&schema)
                    .with_status_subresource(version.pointer("/subresources/status").is_some()),
                origin: Origin::Custom(Box::new(CustomVersion { schema, columns, selectable, deprecation })),
            })
        })
        .collect()
}

/// The warning for a deprecated version that has no warning of its own.
fn default_deprecation(crd: &Value, name: &str) -> String {
    let (group, kind) = (text(crd, "/spec/group"), text(crd, "/spec/names/kind"));
    let rank = crate::discovery::version_rank;
    let better = versions(crd)
        .filter(|version| version["served"] == true && version["deprecated"] != true)
        .filter_map(|version| version["name"].as_str())
        .filter(|other| rank(other) < rank(name))
        .min_by_key(|other| rank(other));
    match better {
        Some(better) => format!("{group}/{name} {kind} is deprecated; use {group}/{better} {kind}"),
        None => format!("{group}/{name} {kind} is deprecated"),
    }
}

fn column(declared: &Value) -> Column {
    let field = |name: &str| declared[name].as_str().unwrap_or_default().to_owned();
    Column {
        name: field("name"),
        kind: field("type"),
        format: field("format"),
        description: field("description"),
        priority: declared["priority"].as_i64().unwrap_or_default(),
        path: field("jsonPath"),
    }
}

/// The status that the server's controllers give a declaration once its names are accepted.
pub(crate) fn accepted_status(crd: &Value, conflict: Option<&str>, now: Timestamp) -> Value {
    let time = rfc3339(now);
    let mut status = crd.get("status").cloned().unwrap_or_else(|| initial_status(crd));
    let old = status["conditions"].as_array().cloned().unwrap_or_default();
    let condition = |kind: &str, state: &str, reason: &str, message: &str| {
        let kept = old.iter().find(|c| c["type"] == kind && c["status"] == state);
        let since = kept.map_or_else(|| json!(time), |c| c["lastTransitionTime"].clone());
        json!({"type": kind, "status": state, "lastTransitionTime": since, "reason": reason, "message": message})
    };
    match conflict {
        None => {
            let names = &crd["spec"]["names"];
            status["acceptedNames"] = names.clone();
            status["conditions"] = json!([
                condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
                condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
            ]);
        }
        Some(message) => {
            status["conditions"] = json!([
                condition("NamesAccepted", "False", "KindConflict", message),
                condition("Established", "False", "NotAccepted", "not all names are accepted"),
            ]);
        }
    }
    let storage = versions(crd).find(|version| version["storage"] == true).map(|version| version["name"].clone());
    if let (Some(storage), Some(stored)) = (storage, status["storedVersions"].as_array_mut())
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widget() -> Value {
        json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            }
        })
    }

    #[test]
    fn a_good_declaration_brings_one_kind_per_served_version() {
        let mut crd = widget();
        default(&mut crd);
        assert_eq!(errors(&crd, None), []);
        let kinds = kinds(&crd);
        assert_eq!(kinds.len(), 1);
        assert_eq!((kinds[0].singular.as_str(), kinds[0].list_kind.as_str()), ("widget", "WidgetList"));
    }

    #[test]
    fn a_name_that_is_not_plural_and_group_is_refused() {
        let mut crd = widget();
        crd["metadata"]["name"] = json!("other.example.com");
        let errors = errors(&crd, None);
        assert_eq!(
            errors[0].to_string(),
            "metadata.name: Invalid value: \"other.example.com\": must be spec.names.plural+\".\"+spec.group"
        );
    }
}
