//! A refused field, and the `Status` object that carries a list of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::golang::{bad_value, quoted};

/// One refused field, as it appears in `Status.details.causes`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// The cause's reason: `FieldValueInvalid`, `FieldValueRequired`, and so on.
    pub reason: &'static str,
    /// The path of the field, such as `spec.records[0]`; `<nil>` where kube-apiserver prints that.
    pub field: String,
    /// The text without the path, such as `Invalid value: -1: …`.
    pub message: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for FieldError {}

impl FieldError {
    fn new(reason: &'static str, path: &str, message: String) -> Self {
        let field = if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() };
        Self { reason, field, message }
    }

    /// A malformed value; the empty path prints as `<nil>`.
    pub fn invalid(path: &str, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueInvalid", path, with_detail(&format!("Invalid value: {}", bad_value(value)), detail))
    }

    /// A malformed value, already printed.
    pub(crate) fn shown(path: &str, value: &str, detail: &str) -> Self {
        Self::new("FieldValueInvalid", path, with_detail(&format!("Invalid value: {value}"), detail))
    }

    /// A malformed value that is not shown.
    pub fn invalid_omitted(path: &str, detail: &str) -> Self {
        Self::new("FieldValueInvalid", path, with_detail("Invalid value", detail))
    }

    /// A value of the wrong type.
    pub fn type_invalid(path: &str, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueTypeInvalid", path, with_detail(&format!("Invalid value: {}", bad_value(value)), detail))
    }

    /// A value that must be given.
    pub fn required(path: &str, detail: &str) -> Self {
        Self::new("FieldValueRequired", path, with_detail("Required value", detail))
    }

    /// A value that must not be given.
    pub fn forbidden(path: &str, detail: &str) -> Self {
        Self::new("FieldValueForbidden", path, with_detail("Forbidden", detail))
    }

    /// A value that appears twice.
    pub fn duplicate(path: &str, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", path, format!("Duplicate value: {}", bad_value(value)))
    }

    /// A value that appears twice and is not shown.
    pub fn duplicate_omitted(path: &str) -> Self {
        Self::new("FieldValueDuplicate", path, "Duplicate value".to_owned())
    }

    /// A value that is not one of the listed ones.
    pub fn not_supported(path: &str, value: &Value, supported: &[String]) -> Self {
        let list: Vec<String> = supported.iter().map(|value| quoted(value)).collect();
        let detail = if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::new(
            "FieldValueNotSupported",
            path,
            with_detail(&format!("Unsupported value: {}", bad_value(value)), &detail),
        )
    }

    /// A text with too many bytes.
    pub fn too_long(path: &str, max: i64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new("FieldValueTooLong", path, format!("Too long: may not be more than {max} {unit}"))
    }

    /// A list or map with too many entries.
    pub fn too_many(path: &str, actual: usize, max: i64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new("FieldValueTooMany", path, format!("Too many: {actual}: must have at most {max} {unit}"))
    }
}

fn with_detail(body: &str, detail: &str) -> String {
    if detail.is_empty() { body.to_owned() } else { format!("{body}: {detail}") }
}

/// The errors in one line: alone as it is, several in brackets, repeated texts once.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut seen = BTreeSet::new();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).filter(|text| seen.insert(text.clone())).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// The 422 `Status` that kube-apiserver answers: `group_kind` is `RRset.dns.cav.enablers.ob` (`Service` for the core group).
pub fn invalid_status(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Value {
    let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let message = if errors.is_empty() {
        format!("{qualified} {} is invalid", quoted(name))
    } else {
        format!("{qualified} {} is invalid: {}", quoted(name), aggregate(errors))
    };
    let causes: Vec<Value> = errors
        .iter()
        .map(|error| json!({"reason": error.reason, "message": error.message, "field": error.field}))
        .collect();
    let mut details = json!({"name": name, "kind": kind});
    if !group.is_empty() {
        details["group"] = json!(group);
    }
    if !causes.is_empty() {
        details["causes"] = json!(causes);
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Invalid", "details": details, "code": 422
    })
}
