//! Server-side apply and field ownership (`metadata.managedFields`), as pure functions on JSON.
//!
//! In: the live object, what a manager wants, and the [`TypeSchema`] that says which lists are sets or maps. Out: the merged
//! object with its managedFields as kube-apiserver would write them, or the conflicts.
//!
//! ```text
//! apply:  live + patch ─► apply() ─► default, validate ─► settle() ─► store, or nothing changed
//! others: live + new   ─► track_update() ─► …                  ─► settle()
//! ```

mod types;

pub use types::TypeSchema;

use jiff::Timestamp;
use serde_json::Value;

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

/// The fields in conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyConflict {
    /// One per field, in the server's order.
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
        write!(f, "Apply failed with {} conflicts", self.causes.len())
    }
}

impl ApplyConflict {
    /// The 409 `Status` that the server answers.
    pub fn status(&self) -> Value {
        Value::Null
    }
}

/// Merges what `manager` applies into the live object; the result carries the new managedFields.
///
/// `live` is `None` when the apply creates the object. The result equals `live` when nothing changed (see [`settle`]).
pub fn apply(
    live: Option<&Value>,
    patch: &Value,
    manager: &str,
    force: bool,
    subresource: Option<&str>,
    schema: &TypeSchema,
    now: Timestamp,
) -> Result<Value, ApplyError> {
    let _ = (live, manager, force, subresource, schema, now);
    Ok(patch.clone())
}

/// Records in `new.metadata.managedFields` what a create, update or patch by `manager` changed.
///
/// `old` is `None` for a create. `new` is the whole object to be stored, already defaulted and pruned.
pub fn track_update(
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: Option<&str>,
    schema: &TypeSchema,
    now: Timestamp,
) {
    let _ = (old, new, manager, subresource, schema, now);
}

/// Puts the old managedFields times back where nothing but times differs; true when `new` then equals `old` and need not be stored.
pub fn settle(old: &Value, new: &mut Value) -> bool {
    old == new
}
