//! The checks that make a schema structural: every field has one type, outside of the logical combinators.

use serde_json::json;

use super::{
    FieldError,
    golang::{child, subscript},
    node::{Additional, Node},
};

/// The level of a node, which decides what it may leave out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What is wrong with the schema, sorted by text.
pub(crate) fn check(node: &Node, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(node, Level::Root, at, &mut errors);
    complete(node, node, at, at, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn invariants(node: &Node, level: Level, at: &str, errors: &mut Vec<FieldError>) {
    let kind = node.kind.as_deref();
    if kind == Some("array") && node.items.is_none() {
        errors.push(FieldError::required(&child(at, "items"), "must be specified"));
    }
    if let Some(items) = &node.items {
        invariants(items, Level::Item, &child(at, "items"), errors);
    }
    let properties = child(at, "properties");
    for (name, property) in &node.properties {
        invariants(property, Level::Field, &subscript(&properties, name), errors);
    }
    let additional_at = child(at, "additionalProperties");
    if let Some(additional) = &node.additional {
        if level == Level::Root {
            errors.push(FieldError::forbidden(&additional_at, "must not be used at the root"));
        }
        if let Additional::Schema(inner) = additional {
            invariants(inner, Level::Field, &additional_at, errors);
        }
    }
    for (set, name) in [
        (node.preserve_unknown, "x-kubernetes-preserve-unknown-fields"),
        (node.embedded, "x-kubernetes-embedded-resource"),
    ] {
        if node.int_or_string && set {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(&child(at, name), &json!(true), detail));
        }
    }
    combinations(node, is_int_or_string(&node.any_of), at, errors);
    let type_at = child(at, "type");
    if node.embedded && kind != Some("object") {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            None => FieldError::required(&type_at, detail),
            Some(kind) => FieldError::invalid(&type_at, &json!(kind), detail),
        });
    } else if kind.is_none() && !node.int_or_string && !node.preserve_unknown {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&type_at, detail));
    }
    if node.embedded && node.additional.is_some() {
        errors.push(FieldError::forbidden(&additional_at, "must not be used if x-kubernetes-embedded-resource is set"));
    }
    if let Some(kind) = kind.filter(|kind| level == Level::Root && *kind != "object") {
        errors.push(FieldError::invalid(&type_at, &json!(kind), "must be object at the root"));
    }
    resource_fields(node, level, &properties, errors);
    if node.embedded && !node.preserve_unknown && node.properties.is_empty() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&properties, detail));
    }
}

/// `apiVersion`, `kind` and `metadata` belong to every resource; a schema may restrict only their names.
fn resource_fields(node: &Node, level: Level, properties: &str, errors: &mut Vec<FieldError>) {
    let resource = level == Level::Root || node.embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) =
            node.properties.get(name).filter(|property| resource && property.kind.as_deref() != Some("string"))
        {
            let at = child(&subscript(properties, name), "type");
            let kind = property.kind.clone().unwrap_or_default();
            errors.push(FieldError::invalid(&at, &json!(kind), "must be string"));
        }
    }
    let Some(metadata) = node.properties.get("metadata") else { return };
    let at = subscript(properties, "metadata");
    if resource && metadata.kind.as_deref() != Some("object") {
        let kind = metadata.kind.clone().unwrap_or_default();
        errors.push(FieldError::invalid(&child(&at, "type"), &json!(kind), "must be object"));
    }
    let names_only = metadata.properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName"));
    let says_more = !names_only
        || metadata.additional.is_some()
        || metadata.preserve_unknown
        || metadata.embedded
        || metadata.nullable
        || metadata.described
        || metadata.titled
        || metadata.map_type.is_some()
        || !metadata.required.is_empty()
        || !metadata.rules.is_empty();
    if level == Level::Root && says_more {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(&at, detail));
    }
}

/// The two alternatives that spell out int-or-string, and nothing else.
fn is_int_or_string(alternatives: &[Node]) -> bool {
    let plain = |node: &Node, kind: &str| {
        node.kind.as_deref() == Some(kind)
            && node.properties.is_empty()
            && node.allowed.is_empty()
            && node.pattern.is_none()
    };
    matches!(alternatives, [first, second] if plain(first, "integer") && plain(second, "string"))
}

fn combinations(node: &Node, spells_int_or_string: bool, at: &str, errors: &mut Vec<FieldError>) {
    for (name, parts) in [("anyOf", &node.any_of), ("allOf", &node.all_of), ("oneOf", &node.one_of)] {
        if name == "anyOf" && spells_int_or_string {
            continue;
        }
        for (index, part) in parts.iter().enumerate() {
            let skip = name == "allOf" && index == 0 && is_int_or_string(&part.any_of);
            nested(part, skip, &subscript(&child(at, name), index), errors);
        }
    }
    if let Some(not) = &node.not {
        nested(not, false, &child(at, "not"), errors);
    }
    if let Some((pattern, error)) =
        node.pattern.as_ref().and_then(|pattern| Some((pattern, pattern.regex.as_ref().err()?)))
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(&child(at, "pattern"), &json!(pattern.source), &detail));
    }
}

/// Inside a combinator only value checks are allowed: types, defaults and extensions belong to the outer schema.
fn nested(node: &Node, spells_int_or_string: bool, at: &str, errors: &mut Vec<FieldError>) {
    combinations(node, spells_int_or_string, at, errors);
    if let Some(items) = &node.items {
        nested(items, false, &child(at, "items"), errors);
    }
    let properties = child(at, "properties");
    for (name, property) in &node.properties {
        nested(property, false, &subscript(&properties, name), errors);
    }
    for (present, name, detail) in [
        (node.kind.is_some(), "type", "must be empty to be structural"),
        (node.additional.is_some(), "additionalProperties", "must be undefined to be structural"),
        (node.default.is_some(), "default", "must be undefined to be structural"),
        (node.titled, "title", "must be empty to be structural"),
        (node.described, "description", "must be empty to be structural"),
        (node.nullable, "nullable", "must be false to be structural"),
        (node.preserve_unknown, "x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        (node.embedded, "x-kubernetes-embedded-resource", "must be false to be structural"),
        (node.int_or_string, "x-kubernetes-int-or-string", "must be false to be structural"),
        (!node.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", "must be empty to be structural"),
        (node.list_type.is_some(), "x-kubernetes-list-type", "must be undefined to be structural"),
        (node.map_type.is_some(), "x-kubernetes-map-type", "must be undefined to be structural"),
        (!node.rules.is_empty(), "x-kubernetes-validations", "must be empty to be structural"),
    ] {
        if present {
            errors.push(FieldError::forbidden(&child(at, name), detail));
        }
    }
    if node.properties.contains_key("metadata") {
        let at = subscript(&properties, "metadata");
        errors.push(FieldError::forbidden(&at, "must not be specified in a nested context"));
    }
}

/// Every field named in a combinator must exist in the structural part.
fn complete(
    validation: &Node,
    structure: &Node,
    structure_at: &str,
    validation_at: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = &validation.not {
        complete_nested(not, structure, structure_at, &child(validation_at, "not"), errors);
    }
    for (name, parts) in [("allOf", &validation.all_of), ("anyOf", &validation.any_of), ("oneOf", &validation.one_of)] {
        for (index, part) in parts.iter().enumerate() {
            complete_nested(part, structure, structure_at, &subscript(&child(validation_at, name), index), errors);
        }
    }
}

fn complete_nested(
    validation: &Node,
    structure: &Node,
    structure_at: &str,
    validation_at: &str,
    errors: &mut Vec<FieldError>,
) {
    complete(validation, structure, structure_at, validation_at, errors);
    if let Some(items) = &validation.items {
        let (structure_at, validation_at) = (child(structure_at, "items"), child(validation_at, "items"));
        match &structure.items {
            Some(inner) => complete_nested(items, inner, &structure_at, &validation_at, errors),
            None => {
                errors.push(FieldError::required(&structure_at, &format!("because it is defined in {validation_at}")));
            }
        }
    }
    for (name, property) in &validation.properties {
        let structure_at = subscript(&child(structure_at, "properties"), name);
        let validation_at = subscript(&child(validation_at, "properties"), name);
        match structure.properties.get(name) {
            Some(inner) => complete_nested(property, inner, &structure_at, &validation_at, errors),
            None => {
                errors.push(FieldError::required(&structure_at, &format!("because it is defined in {validation_at}")));
            }
        }
    }
}
