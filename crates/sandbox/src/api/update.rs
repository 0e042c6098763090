//! Replacing an object: what a PUT or a patch may change, what it may not, and what changing it means.

use serde_json::{Map, Value, json};

use super::{
    Answer, Ask, Payload,
    write::{decode_body, default, read_object, settle_place, validate},
};
use crate::{
    apply,
    kinds::{
        Kind,
        names::{forbidden, invalid},
    },
    request::WriteOptions,
    schema::FieldError,
    status::ApiError,
    store::meta,
    world::SandboxState,
};

/// How the new object came about, which decides who is recorded as the owner of what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// PUT, JSON, merge or strategic merge patch.
    Update,
    /// Server-side apply, which has recorded its fields itself.
    Apply,
}

impl SandboxState {
    /// PUT.
    pub(crate) fn update(&mut self, ask: &Ask<'_>) -> Result<Answer, ApiError> {
        let options = WriteOptions::parse(ask.info, ask.agent, "UpdateOptions")?;
        let mut object = read_object(ask)?;
        let warnings = decode_body(ask, &mut object, options.validation)?;
        if meta(&object, "name").is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                ask.info.name
            )));
        }
        settle_place(ask, &mut object)?;
        let exists = self.store.get(&ask.kind.table, &ask.key()).is_some();
        if !exists && ask.kind.creates_on_update() && ask.info.subresource.is_empty() {
            let mut answer = self.create_object(ask, object, &options, None)?;
            answer.warnings = warnings;
            return Ok(answer);
        }
        if meta(&object, "resourceVersion").is_empty() && exists && !ask.kind.updates_unconditionally() {
            let error = invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            let name = meta(&object, "name");
            return Err(ApiError::invalid(&ask.kind.group, &ask.kind.plural, name, &[error]));
        }
        let mut answer = self.replace(ask, object, &options, Manner::Update)?;
        answer.warnings = warnings;
        Ok(answer)
    }

    /// Replaces the stored object by `new` (of the request's version, decoded).
    pub(crate) fn replace(
        &mut self,
        ask: &Ask<'_>,
        mut new: Value,
        options: &WriteOptions,
        manner: Manner,
    ) -> Result<Answer, ApiError> {
        let kind = ask.kind.clone();
        let stored = self.find(&kind, &ask.key())?;
        let old = kind.show(&stored.value);
        let old = old.as_ref().unwrap_or(&stored.value);
        let name = ask.info.name.as_str();
        let version = meta(&new, "resourceVersion");
        if !version.is_empty() && version != meta(old, "resourceVersion") {
            if version.parse::<u64>().is_err() {
                return Err(ApiError::unforeseen(format!("strconv.ParseUint: parsing {version:?}: invalid syntax")));
            }
            return Err(ApiError::modified(ask.about(name)));
        }
        let uid = meta(&new, "uid");
        if ask.info.verb == "update" && !uid.is_empty() && uid != meta(old, "uid") {
            return Err(ApiError::conflict(
                ask.about(name),
                &format!(
                    "StorageError: invalid object, Code: 4, Key: /registry/{}{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    if kind.is_custom() { format!("{}/", kind.group) } else { String::new() },
                    kind.plural,
                    ask.key(),
                    meta(old, "uid")
                ),
            ));
        }
        let mut errors = keep_system_metadata(old, &mut new);
        // The server checks this twice, and reports it twice.
        errors.extend(errors.clone());
        keep_other_part(&kind, old, &mut new, &ask.info.subresource);
        default(&kind, &mut new);
        if kind.has_generation() && content_changed(&kind, old, &new) {
            let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
        errors.extend(validate(&kind, &new, Some(old), &ask.info.subresource));
        if !errors.is_empty() {
            return Err(ApiError::invalid(kind.reported_group(), &kind.kind, name, &errors));
        }
        if manner == Manner::Update {
            let subresource = Some(ask.info.subresource.as_str()).filter(|sub| !sub.is_empty());
            apply::track_update(Some(old), &mut new, &options.manager, subresource, &kind.merge, self.now());
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let unchanged = apply::settle(old, &mut new);
        if options.dry_run {
            return Ok(Answer::ok(Payload::Made(new)));
        }
        if unchanged {
            return Ok(Answer::ok(Payload::Stored(stored)));
        }
        if is_released(&new) {
            self.remove_now(&kind, &ask.key());
            return Ok(Answer::ok(Payload::Made(new)));
        }
        let stored = self.store.put(&kind.table, kind.to_storage(new));
        self.after_write(&kind, &stored);
        Ok(Answer::ok(Payload::Stored(stored)))
    }
}

/// Whether a deleted object has no finalizer left.
pub(crate) fn is_released(object: &Value) -> bool {
    let has_finalizers =
        object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let by_namespace = object["kind"] == "Namespace"
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    !meta(object, "deletionTimestamp").is_empty() && !has_finalizers && !by_namespace
}

/// Puts back the metadata that only the server changes; complains where the caller tried.
fn keep_system_metadata(old: &Value, new: &mut Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = Map::new();
    let was = old["metadata"].as_object().unwrap_or(&empty);
    let deleting = was.contains_key("deletionTimestamp");
    let Some(metadata) = new["metadata"].as_object_mut() else { return errors };
    for field in ["uid", "namespace", "name"] {
        match (metadata.get(field), was.get(field)) {
            (Some(given), Some(kept)) if given != kept && !given.is_null() => {
                errors.push(invalid(format!("metadata.{field}"), given, "field is immutable"));
            }
            (_, Some(kept)) => {
                metadata.insert(field.into(), kept.clone());
            }
            (_, None) => {
                metadata.remove(field);
            }
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"] {
        match was.get(field) {
            Some(kept) => metadata.insert(field.into(), kept.clone()),
            None => metadata.remove(field),
        };
    }
    if deleting {
        let strings = |value: Option<&Value>| -> Vec<String> {
            value
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect()
        };
        let before = strings(was.get("finalizers"));
        let mut added: Vec<String> =
            strings(metadata.get("finalizers")).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
        added.sort();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
            errors.push(forbidden(
                "metadata.finalizers",
                &format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    list.join(", ")
                ),
            ));
        }
    }
    errors
}

/// A write to the main resource keeps the status, a write to the status keeps the rest.
fn keep_other_part(kind: &Kind, old: &Value, new: &mut Value, subresource: &str) {
    let restore = |new: &mut Value, field: &str| {
        if let Some(fields) = new.as_object_mut() {
            match old.get(field) {
                Some(kept) => fields.insert(field.to_owned(), kept.clone()),
                None => fields.remove(field),
            };
        }
    };
    match subresource {
        "status" if kind.is_custom() => {
            let status = new.get("status").cloned();
            let managed = new["metadata"].get("managedFields").cloned();
            *new = old.clone();
            if let Some(fields) = new.as_object_mut() {
                match status {
                    Some(status) => fields.insert("status".into(), status),
                    None => fields.remove("status"),
                };
            }
            if let Some(managed) = managed {
                new["metadata"]["managedFields"] = managed;
            }
        }
        "status" => restore(new, "spec"),
        "finalize" => {
            let finalizers = new.pointer("/spec/finalizers").cloned().unwrap_or_else(|| json!([]));
            restore(new, "status");
            new["spec"] = json!({"finalizers": finalizers});
        }
        _ => {
            if kind.status {
                restore(new, "status");
            }
            if kind.kind == "Namespace" {
                restore(new, "spec");
            }
            if kind.kind == "Service" {
                keep_address(old, new);
            }
        }
    }
}

/// A Service keeps its address when an update leaves it out.
fn keep_address(old: &Value, new: &mut Value) {
    if new["spec"]["type"] == "ExternalName" {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let missing = new["spec"].get(field).is_none_or(|value| value.as_str() == Some(""));
        if missing && let Some(kept) = old["spec"].get(field) {
            new["spec"][field] = kept.clone();
        }
    }
    let ports = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
    for port in new["spec"]["ports"].as_array_mut().into_iter().flatten() {
        let same = ports.iter().find(|other| other["port"] == port["port"] && other.get("protocol").is_some());
        if let (None, Some(node_port)) = (port.get("nodePort"), same.and_then(|same| same.get("nodePort"))) {
            port["nodePort"] = node_port.clone();
        }
    }
}

/// Whether more than metadata and status differs.
fn content_changed(kind: &Kind, old: &Value, new: &Value) -> bool {
    let content = |object: &Value, field: &String| -> bool {
        let _ = object;
        !(field == "metadata" || field == "apiVersion" || field == "kind" || field == "status" && kind.status)
    };
    let empty = Map::new();
    let (was, is) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    was.iter().filter(|(field, _)| content(old, field)).any(|(field, value)| is.get(field) != Some(value))
        || is.keys().filter(|field| content(new, field)).any(|field| !was.contains_key(field))
}
