//! Server-side apply and field ownership (`metadata.managedFields`), as pure functions on JSON.
//!
//! In: the live object, what a manager wants, and the [`TypeSchema`] that declares which lists are sets or keyed. Out: the merged
//! object with its managedFields as kube-apiserver would write them, or the conflicts.
//!
//! ```text
//! apply:  live + patch ─► apply() ─► default, validate ─► settle() ─► store, or nothing changed
//! others: live + new   ─► track_update() ─► …          ─► settle() ─► store, or nothing changed
//! ```

mod builtin;
mod conflict;
mod managed;
mod path;
#[cfg(test)]
mod tests;
mod typed;
mod types;

pub use conflict::{ApplyConflict, ApplyError, ConflictCause};
pub use types::TypeSchema;

use std::sync::LazyLock;

use jiff::Timestamp;
use managed::{Manager, Managers, Owned};
use path::Fields;
use serde_json::{Map, Value, json};

/// Fields without an owner: the server sets them, or they name the object.
const IDENTITY: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

static IDENTITY_FIELDS: LazyLock<Fields> = LazyLock::new(|| Fields::of(&IDENTITY));

/// Where kubectl's client-side apply keeps what it last applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Merges what `manager` applies into the live object; the result carries the new managedFields.
///
/// `live` is `None` when the apply creates the object. The result equals `live` when nothing changed (see [`settle`]). Through the
/// main resource the status is unchanged, through the status subresource everything else is.
pub fn apply(
    live: Option<&Value>,
    patch: &Value,
    manager: &str,
    force: bool,
    subresource: Option<&str>,
    schema: &TypeSchema,
    now: Timestamp,
) -> Result<Value, ApplyError> {
    if !patch.pointer("/metadata/managedFields").is_none_or(Value::is_null) {
        return Err(ApplyError::bad_request("metadata.managedFields must be nil"));
    }
    let version = text_at(patch, "/apiVersion");
    let mut object = live.cloned().unwrap_or_else(|| blank(schema, patch));
    let entries = take_managed(&mut object);
    let mut managers = managed::decode(entries.as_ref())
        .ok_or_else(|| ApplyError::internal("failed to decode managed fields".to_owned()))?;
    if managers.is_empty() && live.is_some() {
        // Fields from before the first apply are owned by a manager of their own, so that applying does not take them over in silence.
        let before = Manager::new("before-first-apply", false, &version, subresource);
        update(&blank(schema, patch), &object, &mut managers, &before, schema, subresource, now);
    }
    let mut patch = patch.clone();
    take_managed(&mut patch);
    let errors = typed::check(&patch, &schema.root, false);
    if !errors.is_empty() {
        return Err(ApplyError::unreadable(&patch, &errors));
    }
    let applier = Manager::new(manager, true, &version, subresource);
    // kubectl may have to try again, so what it started from is kept.
    let before = (manager == "kubectl").then(|| managers.clone());
    let attempt = |managers: Managers, force: bool| {
        merge_applied(&object, &patch, managers, &applier, &version, force, schema, subresource)
    };
    let merged = match (attempt(managers, force), before) {
        (Err(conflict), Some(managers)) => {
            // Fields that client-side apply set and that were not changed since are kubectl's own.
            let allowed = last_applied(&object, &version, schema);
            if let Some(rest) = conflict.without(&allowed) {
                return Err(ApplyError::Conflict(rest));
            }
            attempt(managers, true).map_err(ApplyError::Conflict)?
        }
        (other, _) => other.map_err(ApplyError::Conflict)?,
    };
    let (mut merged, mut managers) = merged;
    let changed = !path::same(&object, &merged);
    if let Some(owned) = managers.get_mut(&applier) {
        owned.fields.subtract(&IDENTITY_FIELDS);
        if changed {
            owned.time = Some(managed::stamp(now));
        }
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    if manager == "kubectl" {
        update_last_applied(&mut merged, &patch);
    }
    reset(&mut merged, live, subresource, schema);
    drop_empty_metadata(&mut merged);
    whole_numbers(&mut merged);
    managed::store(&mut merged, &managers);
    Ok(merged)
}

/// Metadata is stored without empty maps and lists, whoever owns them.
fn drop_empty_metadata(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| match value {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        });
    }
}

/// Records in `new.metadata.managedFields` what a create, update or patch by `manager` changed.
///
/// `old` is `None` for a create. `new` is the whole object to be stored, already defaulted and pruned. A client may send an
/// empty list of managedFields to forget all owners, or a list of its own.
pub fn track_update(
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: Option<&str>,
    schema: &TypeSchema,
    now: Timestamp,
) {
    let version = text_at(new, "/apiVersion");
    let mut live = old.cloned().unwrap_or_else(|| blank(schema, new));
    let live_entries = take_managed(&mut live);
    let sent = take_managed(new);
    drop_empty_metadata(new);
    let from_live = || managed::decode(live_entries.as_ref()).unwrap_or_default();
    let mut managers = match (&sent, subresource) {
        (Some(sent), None) if is_reset(sent) => Managers::new(),
        (Some(sent), None) => {
            managed::decode(Some(sent)).filter(|managers| !managers.is_empty()).unwrap_or_else(from_live)
        }
        _ => from_live(),
    };
    if managers.is_empty() && old.is_some() {
        return;
    }
    let updater = Manager::new(manager, false, &version, subresource);
    whole_numbers(new);
    update(&live, new, &mut managers, &updater, schema, subresource, now);
    managed::store(new, &managers);
}

/// Writes whole floats as integers, which is how they come back from the store.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            #[allow(clippy::cast_possible_truncation)] // Whole and in range.
            if let Some(whole) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9.2e18) {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Puts the old managedFields times back where nothing but times differs; true when `new` then equals `old` and need not be stored.
pub fn settle(old: &Value, new: &mut Value) -> bool {
    let timeless = |object: &Value| {
        let mut entries = object.pointer("/metadata/managedFields").cloned().unwrap_or_default();
        for entry in entries.as_array_mut().into_iter().flatten() {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        let mut entries = entries.as_array().cloned().unwrap_or_default();
        entries.sort_by(path::compare_values);
        entries
    };
    if !same_content(old, new) || timeless(old) != timeless(new) {
        return false;
    }
    *new = old.clone();
    true
}

/// Whether two objects differ in nothing but managedFields and resourceVersion.
fn same_content(old: &Value, new: &Value) -> bool {
    fn same_fields(old: &Value, new: &Value, skipped: &[&str], inner: fn(&str, &Value, &Value) -> bool) -> bool {
        let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return path::same(old, new) };
        let counted =
            |fields: &Map<String, Value>| fields.keys().filter(|name| !skipped.contains(&name.as_str())).count();
        counted(old) == counted(new)
            && old
                .iter()
                .filter(|(name, _)| !skipped.contains(&name.as_str()))
                .all(|(name, old)| new.get(name).is_some_and(|new| inner(name, old, new)))
    }
    same_fields(old, new, &[], |name, old, new| match name {
        "metadata" => same_fields(old, new, &["managedFields", "resourceVersion"], |_, old, new| path::same(old, new)),
        _ => path::same(old, new),
    })
}

/// Whether the list resets all owners: no entries, or one empty entry.
fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

fn text_at(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// An object of the kind with nothing set.
fn blank(schema: &TypeSchema, like: &Value) -> Value {
    let mut object = schema.blank.clone();
    object["apiVersion"] = like.get("apiVersion").cloned().unwrap_or_default();
    object["kind"] = like.get("kind").cloned().unwrap_or_default();
    object["metadata"] = json!({});
    object
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata").and_then(Value::as_object_mut).and_then(|metadata| metadata.remove("managedFields"))
}

fn reset_fields<'a>(schema: &'a TypeSchema, subresource: Option<&str>) -> &'a Fields {
    if subresource.is_some() { &schema.status_reset } else { &schema.reset }
}

/// Undoes what the endpoint may not write.
fn reset(merged: &mut Value, live: Option<&Value>, subresource: Option<&str>, schema: &TypeSchema) {
    let Some(live) = live else {
        if schema.status_subresource
            && let Some(fields) = merged.as_object_mut()
        {
            fields.remove("status");
        }
        return;
    };
    let put = |target: &mut Value, status: Option<&Value>| {
        if let Some(fields) = target.as_object_mut() {
            match status {
                Some(status) => fields.insert("status".to_owned(), status.clone()),
                None => fields.remove("status"),
            };
        }
    };
    if subresource == Some("status") {
        let status = merged.get("status").cloned();
        let version = merged.pointer("/metadata/resourceVersion").cloned();
        *merged = live.clone();
        put(merged, status.as_ref());
        // Kept for the caller to compare, should the applier have named one.
        if let (Some(version), Some(metadata)) = (version, merged.get_mut("metadata").and_then(Value::as_object_mut)) {
            metadata.insert("resourceVersion".to_owned(), version);
        }
    } else if schema.status_subresource {
        put(merged, live.get("status"));
    }
}

/// Takes changed and removed fields from their owners, or reports them as conflicts unless `force` is set.
fn take_over(
    old: &Value,
    new: &Value,
    managers: &mut Managers,
    own: &Manager,
    force: bool,
    schema: &TypeSchema,
    subresource: Option<&str>,
) -> Result<typed::Comparison, ApplyConflict> {
    let compared = typed::compare(old, new, &schema.root).without_trees(reset_fields(schema, subresource));
    let conflicts: Vec<(Manager, Fields)> = managers
        .iter()
        .filter(|(manager, _)| *manager != own)
        .map(|(manager, owned)| {
            let written =
                owned.fields.intersection(&compared.modified).union(owned.fields.intersection(&compared.added));
            (manager.clone(), written)
        })
        .filter(|(_, fields)| !fields.is_empty())
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(ApplyConflict::new(&conflicts));
    }
    for (manager, fields) in conflicts {
        if let Some(owned) = managers.get_mut(&manager) {
            owned.fields.subtract(&fields);
        }
    }
    if !compared.removed.is_empty() {
        for (_, owned) in managers.iter_mut().filter(|(manager, _)| *manager != own) {
            owned.fields.subtract(&compared.removed);
        }
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    Ok(compared)
}

/// Gives `updater` the fields that differ between `old` and `new`.
fn update(
    old: &Value,
    new: &Value,
    managers: &mut Managers,
    updater: &Manager,
    schema: &TypeSchema,
    subresource: Option<&str>,
    now: Timestamp,
) {
    // The operation is a manager of its own until it is known what it changed, so that it takes fields from its earlier entry too.
    let operation = Manager { name: String::new(), ..updater.clone() };
    let Ok(compared) = take_over(old, new, managers, &operation, true, schema, subresource) else { return };
    let fields = compared.modified.union(compared.added).difference(&IDENTITY_FIELDS);
    if !fields.is_empty() {
        let earlier = managers.get(updater).map(|owned| owned.fields.clone()).unwrap_or_default();
        let owned =
            Owned { fields: earlier.union(fields), version: updater.version.clone(), time: Some(managed::stamp(now)) };
        managers.insert(updater.clone(), owned);
    }
    managed::cap(managers);
}

/// The live object with the patch laid over it, without fields that the applier dropped and no other manager owns; and the new owners.
#[allow(clippy::too_many_arguments)]
fn merge_applied(
    live: &Value,
    patch: &Value,
    mut managers: Managers,
    applier: &Manager,
    version: &str,
    force: bool,
    schema: &TypeSchema,
    subresource: Option<&str>,
) -> Result<(Value, Managers), ApplyConflict> {
    let atom = &*schema.root;
    let merged = typed::merge(Some(live), Some(patch), atom).unwrap_or_else(|| json!({}));
    let last = managers.get(applier).cloned();
    let fields = typed::fields(patch, atom).without_trees(reset_fields(schema, subresource));
    let time = last.as_ref().and_then(|last| last.time.clone());
    managers.insert(applier.clone(), Owned { fields, version: version.to_owned(), time });
    let merged = match last.filter(|last| !last.fields.is_empty()) {
        // Nothing to look for where everything applied before is applied again.
        Some(last) if !dropped(&last.fields, &managers, applier).is_empty() => {
            without_dropped(&merged, &last.fields, &managers, schema)
        }
        _ => merged,
    };
    take_over(live, &merged, &mut managers, applier, force, schema, subresource)?;
    Ok((merged, managers))
}

/// The fields that the applier owned and no longer applies.
fn dropped(last: &Fields, managers: &Managers, applier: &Manager) -> Fields {
    managers.get(applier).map_or_else(|| last.clone(), |owned| last.clone().difference(&owned.fields))
}

/// Removes what the applier owned and no longer applies, except what others own or what is below something that is kept.
fn without_dropped(merged: &Value, last: &Fields, managers: &Managers, schema: &TypeSchema) -> Value {
    let atom = &*schema.root;
    let structs = |fields: &Fields| typed::with_structs(fields, None, Some(atom));
    let removed = |fields: &Fields| typed::remove(merged, fields, atom).unwrap_or_else(|| json!({}));
    let all = structs(&typed::fields(merged, atom));
    let pruned = removed(&structs(last));
    let owned = managers.values().fold(Fields::default(), |all, owned| all.union(owned.fields.clone()));
    let kept = structs(&typed::fields(&pruned, atom)).union(structs(&owned));
    let pruned = removed(&all.clone().difference(&kept));
    let kept = structs(&typed::fields(&pruned, atom));
    removed(&all.difference(&kept).intersection(&structs(last)))
}

/// The fields that kubectl's client-side apply set and that still have the value it set.
fn last_applied(live: &Value, version: &str, schema: &TypeSchema) -> Fields {
    let Some(applied) = live
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(LAST_APPLIED))
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .filter(|applied| text_at(applied, "/apiVersion") == version)
    else {
        return Fields::default();
    };
    let compared = typed::compare(&applied, live, &schema.root);
    typed::fields(&applied, &schema.root)
        .difference(&compared.modified)
        .difference(&compared.added)
        .difference(&compared.removed)
}

/// Keeps the annotation of client-side apply true after a server-side apply by kubectl, where it is there.
fn update_last_applied(merged: &mut Value, patch: &Value) {
    let Some(annotation) = merged
        .pointer_mut("/metadata/annotations")
        .and_then(|annotations| annotations.get_mut(LAST_APPLIED))
        .filter(|value| value.as_str().is_some_and(|text| !text.is_empty()))
    else {
        return;
    };
    let mut patch = patch.clone();
    if let Some(annotations) = patch.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    *annotation = Value::String(format!("{}\n", crate::schema::json_text(&patch)));
}
