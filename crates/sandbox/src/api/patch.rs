//! The four kinds of patches: JSON, merge, strategic merge (built-in kinds), and server-side apply.

use serde_json::{Value, json};

use super::{
    Answer, Ask, strategic,
    update::Manner,
    write::{decode, settle_place},
};
use crate::{
    apply::{self, ApplyError},
    kinds::{Origin, names::required, typed},
    request::{FieldValidation, WriteOptions, read_body},
    status::ApiError,
    store::meta,
    world::SandboxState,
};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl SandboxState {
    /// PATCH.
    pub(crate) fn patch(&mut self, ask: &Ask<'_>) -> Result<Answer, ApiError> {
        let media = ask.content_type.split(';').next().unwrap_or_default().trim();
        let accepted: &[&str] = if ask.kind.is_custom() {
            &[JSON_PATCH, MERGE_PATCH, APPLY]
        } else {
            &[JSON_PATCH, MERGE_PATCH, STRATEGIC, APPLY]
        };
        if !accepted.contains(&media) {
            return Err(if ask.kind.is_custom() {
                ApiError::unsupported_media_type(accepted)
            } else {
                ApiError::unknown_patch_type()
            });
        }
        let options = WriteOptions::parse(ask.info, ask.agent, "PatchOptions")?;
        if media == APPLY {
            return self.apply_patch(ask, &options);
        }
        if ask.info.flag("force") {
            let error = crate::kinds::names::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let stored = self.find(&ask.kind, &ask.key())?;
        let current = ask.kind.show(&stored.value).unwrap_or_else(|| stored.value.clone());
        let patch = read_body(ask.body, "application/json")
            .map_err(|text| ApiError::bad_request(format!("error decoding patch: {text}")))?;
        let mut new = match media {
            JSON_PATCH => json_patched(current, &patch)?,
            MERGE_PATCH => {
                let mut merged = current;
                if !patch.is_object() {
                    let is = if patch.is_array() { "array" } else { "value" };
                    return Err(ApiError::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {is} into Go value of type map[string]interface {{}}"
                    )));
                }
                json_patch::merge(&mut merged, &patch);
                merged
            }
            _ => {
                let mut merged = current;
                strategic::merge(&mut merged, &patch).map_err(ApiError::unforeseen)?;
                merged
            }
        };
        let patched = new.clone();
        let refused = |text: &str| {
            let error = crate::kinds::names::invalid("patch", &Value::String(patched.to_string()), text);
            ApiError::invalid("", "", "", &[error])
        };
        if ask.kind.is_custom() {
            check_custom_type(ask, &new)?;
        } else {
            check_type(ask, &new).map_err(|text| refused(&text))?;
        }
        let warnings = decode(&ask.kind, &mut new, options.validation, None).map_err(|text| refused(&text))?;
        settle_place(ask, &mut new)?;
        let mut answer = self.replace(ask, new, &options, Manner::Update)?;
        answer.warnings = warnings;
        Ok(answer)
    }

    fn apply_patch(&mut self, ask: &Ask<'_>, options: &WriteOptions) -> Result<Answer, ApiError> {
        if ask.info.text("fieldManager").is_none() {
            let error = required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let mut wanted = read_body(ask.body, "application/yaml")
            .map_err(|text| ApiError::bad_request(format!("error decoding YAML: {text}")))?;
        check_applied(ask, &wanted)?;
        if !wanted.get("metadata").is_some_and(Value::is_object) {
            wanted["metadata"] = json!({});
        }
        settle_place(ask, &mut wanted)?;
        let kind = ask.kind.clone();
        let live = self.store.get(&kind.table, &ask.key()).cloned();
        let subresource = Some(ask.info.subresource.as_str()).filter(|sub| !sub.is_empty());
        let shown = live.as_ref().map(|live| kind.show(&live.value).unwrap_or_else(|| live.value.clone()));
        if live.is_none() {
            if subresource.is_some() {
                return Err(ApiError::not_found(ask.about(&ask.info.name)));
            }
            let uid = meta(&wanted, "uid");
            if !uid.is_empty() {
                return Err(ApiError::conflict(
                    ask.about(&ask.info.name),
                    &format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found"),
                ));
            }
        }
        let mut merged = apply::apply(
            shown.as_ref(),
            &wanted,
            &options.manager,
            options.force,
            subresource,
            &kind.merge,
            self.now(),
        )
        .map_err(|error| match error {
            ApplyError::Conflict(conflict) => ApiError::from_status(conflict.status()),
            ApplyError::Unreadable { code, message } => {
                ApiError::new(code, if code == 400 { "BadRequest" } else { "" }, message)
            }
        })?;
        let warnings = decode(&kind, &mut merged, FieldValidation::Warn, None).map_err(ApiError::unforeseen)?;
        let mut answer = match live {
            None => {
                if let Some(metadata) = merged["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                }
                self.create_object(ask, merged, options, Some(()))?
            }
            Some(_) => self.replace(ask, merged, options, Manner::Apply)?,
        };
        answer.warnings = warnings;
        Ok(answer)
    }
}

/// A patch must not turn an object into something else.
fn check_type(ask: &Ask<'_>, new: &Value) -> Result<(), String> {
    let kind = &ask.kind;
    let is = |field: &str| new.get(field).and_then(Value::as_str).unwrap_or_default();
    if is("kind") != kind.kind || is("apiVersion") != kind.api_version() {
        let (api_version, name) = (is("apiVersion"), is("kind"));
        return Err(format!(
            "no kind {name:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    Ok(())
}

/// The same for a custom object, whose refusal names what it would have become.
fn check_custom_type(ask: &Ask<'_>, new: &Value) -> Result<(), ApiError> {
    let is = |field: &str| new.get(field).and_then(Value::as_str).unwrap_or_default();
    let group = is("apiVersion").split_once('/').map_or("", |(group, _)| group);
    for (field, wanted) in [("kind", ask.kind.kind.clone()), ("apiVersion", ask.kind.api_version())] {
        if is(field) != wanted {
            let error = crate::kinds::names::invalid(field, &Value::from(is(field)), &format!("must be {wanted}"));
            return Err(ApiError::invalid(group, is("kind"), &ask.info.name, &[error]));
        }
    }
    Ok(())
}

/// An applied object needs its type, and only fields that the kind declares.
fn check_applied(ask: &Ask<'_>, wanted: &Value) -> Result<(), ApiError> {
    let kind = &ask.kind;
    let is = |field: &str| wanted.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, name) = (is("apiVersion"), is("kind"));
    if api_version != kind.api_version() || name != kind.kind {
        let slash = if api_version.contains('/') { "" } else { "/" };
        return Err(ApiError::bad_request(format!("invalid object type: {slash}{api_version}, Kind={name}")));
    }
    if wanted.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if let Origin::Builtin(builtin) = &kind.origin {
        let findings = typed::read(builtin.schema(), &kind.kind, &mut wanted.clone());
        let undeclared = findings.unknown.first().map(|path| format!(".{path}: field not declared in schema"));
        if let Some(why) = undeclared.or(findings.mismatch).or(findings.mistyped) {
            return Err(ApiError::unforeseen(format!(
                "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {why}",
                meta(wanted, "namespace"),
                meta(wanted, "name"),
                kind.group,
                kind.version,
                kind.kind
            )));
        }
    }
    Ok(())
}

/// Applies a JSON patch; testing a missing place for null succeeds, as it does on the server.
fn json_patched(mut object: Value, patch: &Value) -> Result<Value, ApiError> {
    if !patch.is_array() {
        return Err(ApiError::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    }
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|_| unprocessable())?;
    if patch.0.len() > 10_000 {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("The allowed maximum operations in a JSON patch is 10000, got {}", patch.0.len()),
        ));
    }
    for operation in patch.0 {
        if let json_patch::PatchOperation::Test(test) = &operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(&mut object, &[operation]).map_err(|_| unprocessable())?;
    }
    Ok(object)
}

fn unprocessable() -> ApiError {
    let mut error = ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request");
    error.status["details"] = json!({});
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn testing_a_missing_place_for_null_succeeds() {
        let patch = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["x"]},
        ]);
        let patched = json_patched(json!({"metadata": {}}), &patch).unwrap();
        assert_eq!(patched, json!({"metadata": {"finalizers": ["x"]}}));
    }

    #[test]
    fn a_failed_test_is_unprocessable() {
        let patch = json!([{"op": "test", "path": "/a", "value": 1}]);
        assert_eq!(json_patched(json!({"a": 2}), &patch).unwrap_err().code, 422);
    }
}
