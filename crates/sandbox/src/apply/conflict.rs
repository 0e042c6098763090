//! Why an apply was refused, with the server's texts.

use serde_json::{Value, json};

use super::{managed::Manager, path::Fields};

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields that the patch would change.
    #[error("{0}")]
    Conflict(ApplyConflict),
    /// The patch cannot be read by the type's schema.
    #[error("{message}")]
    Unreadable {
        /// The HTTP status code the server answers.
        code: u16,
        /// The server's text.
        message: String,
    },
}

impl ApplyError {
    pub(super) fn bad_request(message: &str) -> Self {
        Self::Unreadable { code: 400, message: message.to_owned() }
    }

    pub(super) fn internal(message: String) -> Self {
        Self::Unreadable { code: 500, message }
    }

    pub(super) fn unreadable(patch: &Value, errors: &[(String, String)]) -> Self {
        let text = |pointer: &str| patch.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let lines: Vec<String> = errors
            .iter()
            .map(|(path, text)| if path.is_empty() { text.clone() } else { format!("{path}: {text}") })
            .collect();
        let errors = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        let (group_version, kind) = (text("/apiVersion"), text("/kind"));
        let group_version =
            if group_version.contains('/') { group_version.to_owned() } else { format!("/{group_version}") };
        Self::internal(format!(
            "failed to create typed patch object ({}/{}; {group_version}, Kind={kind}): {errors}",
            text("/metadata/namespace"),
            text("/metadata/name"),
        ))
    }
}

/// The fields in conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyConflict {
    /// One per field: by manager, then by field.
    pub causes: Vec<ConflictCause>,
}

/// One field in conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictCause {
    /// The cause's text: `conflict with "kubectl" using v1`.
    pub message: String,
    /// The field: `.spec.ttl`.
    pub field: String,
}

impl std::fmt::Display for ApplyConflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [only] = self.causes.as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.message, only.field);
        }
        let mut lines = Vec::new();
        let mut manager = "";
        for cause in &self.causes {
            if cause.message != manager {
                manager = &cause.message;
                lines.push(format!("{}:", manager.replacen("conflict with", "conflicts with", 1)));
            }
            lines.push(format!("- {}", cause.field));
        }
        write!(f, "Apply failed with {} conflicts: {}", self.causes.len(), lines.join("\n"))
    }
}

impl ApplyConflict {
    pub(super) fn new(conflicts: &[(Manager, Fields)]) -> Self {
        let causes = conflicts.iter().flat_map(|(manager, fields)| {
            let message = format!("conflict with {}", manager.described());
            fields.paths().into_iter().map(move |field| ConflictCause { message: message.clone(), field })
        });
        Self { causes: causes.collect() }
    }

    /// The remaining conflicts when some fields are allowed to conflict; `None` without any.
    pub(super) fn without(&self, allowed: &Fields) -> Option<Self> {
        let allowed = allowed.paths();
        let causes: Vec<ConflictCause> =
            self.causes.iter().filter(|cause| !allowed.contains(&cause.field)).cloned().collect();
        (!causes.is_empty()).then_some(Self { causes })
    }

    /// The 409 `Status` that the server answers.
    pub fn status(&self) -> Value {
        let causes: Vec<Value> = self
            .causes
            .iter()
            .map(|cause| json!({"reason": "FieldManagerConflict", "message": cause.message, "field": cause.field}))
            .collect();
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.to_string(),
            "reason": "Conflict", "details": {"causes": causes}, "code": 409
        })
    }
}
