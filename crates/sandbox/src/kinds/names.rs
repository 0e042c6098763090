//! The valid forms of names, labels, annotations and finalizers, with the server's texts for invalid ones.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use regex::Regex;
use serde_json::Value;

use crate::{schema::FieldError, status::quoted, store::meta};

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED_TEXT: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY_TEXT: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const WILDCARD_TEXT: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// The rule for the names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    Label,
    Subdomain,
    PathSegment,
    Any,
}

impl NameRule {
    /// The error in a name; with `prefix` it is a `generateName`, whose tail is cut off.
    pub(crate) fn complaints(self, name: &str, prefix: bool) -> Vec<String> {
        let trimmed =
            if prefix && name.ends_with('-') { format!("{}a", &name[..name.len() - 1]) } else { name.to_owned() };
        match self {
            NameRule::Label => label_1123(&trimmed),
            NameRule::Subdomain => subdomain(&trimmed),
            NameRule::PathSegment | NameRule::Any => path_segment(name),
        }
    }
}

/// Labels with dots between them.
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// The error in a text that may have so many characters or bytes, and must match a pattern as a whole.
fn shaped(text: &str, (most, unit): (usize, &str), pattern: &'static str, why: &str) -> Vec<String> {
    static COMPILED: Mutex<BTreeMap<&str, Option<Regex>>> = Mutex::new(BTreeMap::new());
    let mut wrong = Vec::new();
    if text.len() > most {
        wrong.push(format!("must be no more than {most} {unit}"));
    }
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let regex = compiled.entry(pattern).or_insert_with(|| Regex::new(&format!("^(?:{pattern})$")).ok());
    if !regex.as_ref().is_some_and(|regex| regex.is_match(text)) {
        wrong.push(why.to_owned());
    }
    wrong
}

pub(crate) fn label_1123(text: &str) -> Vec<String> {
    let dotted = text.contains('.') && subdomain(text).is_empty();
    let why = if dotted { "must not contain dots" } else { LABEL_TEXT };
    shaped(text, (63, "characters"), "[a-z0-9]([-a-z0-9]*[a-z0-9])?", why)
}

pub(crate) fn subdomain(text: &str) -> Vec<String> {
    shaped(text, (253, "characters"), SUBDOMAIN, SUBDOMAIN_TEXT)
}

pub(crate) fn wildcard_subdomain(text: &str) -> Vec<String> {
    let most = (253, "characters");
    shaped(text, most, "\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", WILDCARD_TEXT)
}

/// A port's name.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 15 {
        wrong.push("must be no more than 15 characters");
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)");
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens");
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen");
    }
    wrong.into_iter().map(str::to_owned).collect()
}

fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].iter().filter(|part| text.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong = shaped(text, (253, "characters"), "[-._a-zA-Z0-9]+", CONFIG_KEY_TEXT);
    match text {
        "." | ".." => wrong.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// `prefix/name` as labels, annotations and finalizers use it.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let mut wrong = Vec::new();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                let why = |text: String| format!("prefix part {}", text.replace("253 characters", "253 bytes"));
                wrong.extend(subdomain(prefix).into_iter().map(why));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    let shape = shaped(name, (63, "bytes"), "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", QUALIFIED_TEXT);
    wrong.extend(shape.into_iter().map(|why| why.replacen("must be no more", "name part must be no more", 1)));
    wrong
}

pub(crate) fn label_value(text: &str) -> Vec<String> {
    shaped(text, (63, "bytes"), "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", LABEL_VALUE_TEXT)
}

/// `Invalid value: "x": why`.
pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> FieldError {
    FieldError {
        reason: "FieldValueInvalid",
        field: field.into(),
        message: format!("Invalid value: {}: {why}", shown(value)),
    }
}

/// `Required value: why`.
pub(crate) fn required(field: impl Into<String>, why: &str) -> FieldError {
    let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
    FieldError { reason: "FieldValueRequired", field: field.into(), message }
}

/// `Forbidden: why`.
pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> FieldError {
    FieldError { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {why}") }
}

/// `Unsupported value: "x": supported values: "a", "b"`.
pub(crate) fn unsupported(field: impl Into<String>, value: &str, supported: &[&str]) -> FieldError {
    let known: Vec<String> = supported.iter().map(|value| quoted(value)).collect();
    FieldError {
        reason: "FieldValueNotSupported",
        field: field.into(),
        message: format!("Unsupported value: {}: supported values: {}", quoted(value), known.join(", ")),
    }
}

/// `Duplicate value: "x"`.
pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> FieldError {
    FieldError {
        reason: "FieldValueDuplicate",
        field: field.into(),
        message: format!("Duplicate value: {}", shown(value)),
    }
}

/// Finalizers of built-in kinds must be standard or carry a domain.
pub(crate) fn finalizer_errors(object: &Value) -> Vec<FieldError> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    list.enumerate()
        .filter(|(_, finalizer)| {
            let text = finalizer.as_str().unwrap_or_default();
            !text.contains('/') && !matches!(text, "orphan" | "foregroundDeletion" | "kubernetes")
        })
        .map(|(at, finalizer)| {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            invalid(format!("metadata.finalizers[{at}]"), finalizer, why)
        })
        .collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// Everything about `metadata` that is wrong whatever the kind.
pub(crate) fn metadata_errors(object: &Value, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate = meta(object, "generateName");
    if !generate.is_empty() {
        let value = Value::from(generate);
        errors.extend(rule.complaints(generate, true).iter().map(|why| invalid("metadata.generateName", &value, why)));
    }
    let name = meta(object, "name");
    if name.is_empty() {
        errors.push(required("metadata.name", "name or generateName is required"));
    } else {
        let value = Value::from(name);
        errors.extend(rule.complaints(name, false).iter().map(|why| invalid("metadata.name", &value, why)));
    }
    let namespace = meta(object, "namespace");
    if namespaced {
        if namespace.is_empty() {
            errors.push(required("metadata.namespace", ""));
        } else {
            let value = Value::from(namespace);
            errors.extend(label_1123(namespace).iter().map(|why| invalid("metadata.namespace", &value, why)));
        }
    } else if !namespace.is_empty() {
        errors.push(forbidden("metadata.namespace", "not allowed on this type"));
    }
    let metadata = object.get("metadata");
    let entries = |field: &str| metadata.and_then(|m| m.get(field)).and_then(Value::as_object).into_iter().flatten();
    for (key, value) in entries("labels") {
        errors
            .extend(qualified_name(key).iter().map(|why| invalid("metadata.labels", &Value::from(key.as_str()), why)));
        errors.extend(
            label_value(value.as_str().unwrap_or_default()).iter().map(|why| invalid("metadata.labels", value, why)),
        );
    }
    let mut size = 0;
    for (key, value) in entries("annotations") {
        let lower = Value::from(key.as_str());
        errors
            .extend(qualified_name(&key.to_lowercase()).iter().map(|why| invalid("metadata.annotations", &lower, why)));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > 256 * 1024 {
        errors.push(FieldError {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".into(),
            message: "Too long: may not be more than 262144 bytes".into(),
        });
    }
    let items = |field: &str| metadata.and_then(|m| m.get(field)).and_then(Value::as_array).into_iter().flatten();
    for owner in items("ownerReferences") {
        for (field, missing) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                errors.push(invalid(format!("metadata.ownerReferences.{field}"), &Value::from(""), missing));
            }
        }
    }
    let text = |owner: &Value, field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let controllers: Vec<String> = items("ownerReferences")
        .filter(|owner| owner.get("controller") == Some(&Value::Bool(true)))
        .map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name")))
        .collect();
    if let [first, second, ..] = controllers.as_slice() {
        errors.push(invalid(
            "metadata.ownerReferences",
            metadata.and_then(|m| m.get("ownerReferences")).unwrap_or(&Value::Null),
            &format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"),
        ));
    }
    for finalizer in items("finalizers") {
        let text = finalizer.as_str().unwrap_or_default();
        errors.extend(qualified_name(text).iter().map(|why| invalid("metadata.finalizers", finalizer, why)));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_upper_case_name_is_refused_with_the_servers_text() {
        let errors = metadata_errors(&json!({"metadata": {"name": "Big"}}), false, NameRule::Subdomain);
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].to_string().starts_with("metadata.name: Invalid value: \"Big\": a lowercase RFC 1123 subdomain")
        );
    }

    #[test]
    fn a_good_object_has_no_complaints() {
        let object = json!({"metadata": {
            "name": "a.b", "namespace": "n", "labels": {"app.kubernetes.io/name": "x", "empty": ""},
            "annotations": {"Example.com/Upper": "free text, any"}, "finalizers": ["example.com/hold"],
        }});
        assert_eq!(metadata_errors(&object, true, NameRule::Subdomain), []);
    }

    #[test]
    fn a_generate_name_may_end_in_a_dash() {
        let object = json!({"metadata": {"generateName": "x-", "name": "x-abcde", "namespace": "n"}});
        assert_eq!(metadata_errors(&object, true, NameRule::Label), []);
    }
}
