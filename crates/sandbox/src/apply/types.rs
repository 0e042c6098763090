//! Which lists are sets or maps and which objects are atomic, for custom and for built-in kinds.

use crate::schema::Structural;

/// The merge rules of one kind.
#[derive(Clone, Debug)]
pub struct TypeSchema {}

impl TypeSchema {
    /// The rules a custom resource's schema declares (`x-kubernetes-list-type`, `x-kubernetes-map-type`).
    pub fn of_custom(schema: &Structural) -> Self {
        let _ = schema;
        Self {}
    }

    /// The rules of a built-in kind (`group` is empty for the core group); unknown kinds get atomic lists and granular objects.
    pub fn of_builtin(group: &str, version: &str, kind: &str) -> Self {
        let _ = (group, version, kind);
        Self {}
    }
}
