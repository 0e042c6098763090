//! A refused field, and the `Status` object that carries a list of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

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

/// A string as Go's `%q` prints it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = std::fmt::Write::write_fmt(&mut out, format_args!("\\x{:02x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
