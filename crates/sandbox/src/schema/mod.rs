//! The structural schema of one version of a custom resource definition, as pure functions on JSON.
//!
//! In: the `openAPIV3Schema` of a CRD version. Out: a compiled [`Structural`] that defaults, prunes and validates objects
//! with the paths, reasons and texts that kube-apiserver prints.
//!
//! ```text
//! request body ─► unknown_fields (strict) ─► prune ─► default ─► validate(new, old) ─► FieldErrors ─► Status 422
//! ```

mod correlate;
mod error;
mod formats;
mod golang;
mod lists;
mod node;
mod prune;
mod rules;
#[cfg(test)]
mod tests;
mod validate;

pub use error::{FieldError, aggregate, invalid_status};
pub(crate) use golang::{json_text, quoted};
pub(crate) use node::{Additional, Node};

use correlate::Correlated;
use rules::Checks;
use serde_json::Value;

/// A compiled structural schema.
#[derive(Debug)]
pub struct Structural {
    raw: Value,
    root: Node,
    rules: Option<Checks>,
}

impl Structural {
    /// Compiles the `openAPIV3Schema` of a CRD version; error paths are relative to the schema.
    pub fn compile(schema: &Value) -> Result<Self, Vec<FieldError>> {
        Self::compile_at("", schema)
    }

    /// Compiles, with error paths below `at`: of a pattern or a rule that cannot be compiled. The schema is taken to be structural.
    ///
    /// A CRD whose versions share one schema reports below `spec.validation.openAPIV3Schema`, others below
    /// `spec.versions[i].schema.openAPIV3Schema`.
    pub fn compile_at(at: &str, schema: &Value) -> Result<Self, Vec<FieldError>> {
        let root = Node::read(schema);
        let mut errors = Vec::new();
        root.bad_patterns(at, &mut errors);
        let rules = Checks::compile(&root, at, &mut errors);
        if errors.is_empty() { Ok(Self { raw: schema.clone(), root, rules }) } else { Err(errors) }
    }

    /// Fills in declared defaults, in place; nulls that are neither allowed nor defaulted are dropped first.
    pub fn default(&self, object: &mut Value) {
        prune::drop_nulls(object, Some(&self.root));
        prune::default(object, &self.root);
    }

    /// Fills in declared defaults and leaves nulls alone, as is done to what server-side apply has merged.
    pub fn default_merged(&self, object: &mut Value) {
        prune::default(object, &self.root);
    }

    /// Removes fields the schema does not declare, in place; returns their paths (`spec.foo`), sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(object, &self.root)
    }

    /// The paths that pruning would drop, for `fieldValidation=Strict` and `Warn`.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        self.prune(&mut object.clone())
    }

    /// Validates an object; with `old`, transition rules run and unchanged invalid values are tolerated.
    ///
    /// Expects a defaulted and pruned object. Object metadata is not checked.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let correlated = old.map(|old| Correlated::new(new, old, &self.root));
        let mut errors = validate::validate(new, &self.root, "", correlated);
        lists::embedded(new, &self.root, "", &mut errors);
        self.finish(new, old, errors)
    }

    /// Validates an update through the status subresource: the schema of `status` only, and all rules.
    pub fn validate_status(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let (Some(status), Some(node)) = (new.get("status"), self.root.properties.get("status")) {
            let correlated = Correlated::new(new, old, &self.root).key("status");
            errors = validate::validate(status, node, "status", correlated);
        }
        self.finish(new, Some(old), errors)
    }

    fn finish(&self, new: &Value, old: Option<&Value>, mut errors: Vec<FieldError>) -> Vec<FieldError> {
        let mut repeated = Vec::new();
        lists::repeated(new, &self.root, "", &mut repeated);
        let mut repeated_before = Vec::new();
        if let Some(old) = old.filter(|_| !repeated.is_empty()) {
            lists::repeated(old, &self.root, "", &mut repeated_before);
        }
        if repeated_before.is_empty() {
            errors.append(&mut repeated);
        }
        let Some(rules) = &self.rules else { return errors };
        // Rules are not run on an object of the wrong shape, because they could not be trusted to evaluate.
        let blocked = errors.iter().any(|error| {
            matches!(
                error.reason,
                "FieldValueNotSupported"
                    | "FieldValueRequired"
                    | "FieldValueTooLong"
                    | "FieldValueTooMany"
                    | "FieldValueTypeInvalid"
            )
        });
        if blocked {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid("", &Value::Null, detail));
        } else {
            errors.extend(rules.run(new, old, &self.root));
        }
        errors
    }

    /// The schema as it was given.
    pub fn raw(&self) -> &Value {
        &self.raw
    }

    /// The root node, for the merge rules of the kind.
    pub(crate) fn root(&self) -> &Node {
        &self.root
    }
}
