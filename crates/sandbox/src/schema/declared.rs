//! What a schema may declare beyond being structural: known types, list and map types that fit, defaults that are valid.

use serde_json::{Value, json};

use super::{
    FieldError,
    golang::{child, subscript},
    node::Node,
    prune, validate,
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// What is wrong with the declarations, from the root down.
pub(crate) fn check(node: &Node, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if node.nullable {
        errors.push(FieldError::forbidden(&child(at, "nullable"), "nullable cannot be true at the root"));
    }
    walk(node, at, &mut errors);
    errors
}

fn walk(node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    if node.reference {
        errors.push(FieldError::forbidden(&child(at, "$ref"), "$ref is not supported"));
    }
    if let Some(kind) = node.kind.as_deref().filter(|kind| !TYPES.contains(kind)) {
        let supported = TYPES.map(str::to_owned);
        errors.push(FieldError::not_supported(&child(at, "type"), &json!(kind), &supported));
    }
    if node.additional.is_some() && !node.properties.is_empty() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&child(at, "additionalProperties"), detail));
    }
    if node.preserve_refused {
        let at = child(at, "x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(&at, &json!(false), "must be true or undefined"));
    }
    if node.unique_items {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&child(at, "uniqueItems"), detail));
    }
    merge_types(node, at, errors);
    default(node, at, errors);
    if let Some(items) = &node.items {
        walk(items, &child(at, "items"), errors);
    }
    if let Some(additional) = node.additional_schema() {
        walk(additional, &child(at, "additionalProperties"), errors);
    }
    for (name, property) in &node.properties {
        walk(property, &subscript(&child(at, "properties"), name), errors);
    }
}

/// A default must be what the schema lets in, and nothing that pruning would drop.
fn default(node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    let Some(default) = &node.default else { return };
    let at = child(at, "default");
    if !prune::prune_inner(&mut default.clone(), node).is_empty() {
        errors.push(FieldError::invalid(&at, default, "must not have unknown fields"));
    }
    let mut filled = default.clone();
    prune::default(&mut filled, node);
    errors.extend(validate::validate(&filled, node, &at, None));
}

/// List and map types fit the value's type, and list keys exist and are always there.
fn merge_types(node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    let kind = node.kind.clone().unwrap_or_default();
    if let Some(list_type) = &node.list_type {
        if kind == "array" {
            if !matches!(list_type.as_str(), "atomic" | "set" | "map") {
                let supported = ["atomic", "set", "map"].map(str::to_owned);
                errors.push(FieldError::not_supported(
                    &child(at, "x-kubernetes-list-type"),
                    &json!(list_type),
                    &supported,
                ));
            }
        } else if kind.is_empty() {
            errors
                .push(FieldError::required(&child(at, "type"), "must be array if x-kubernetes-list-type is specified"));
        } else {
            let detail = "must be array if x-kubernetes-list-type is specified";
            errors.push(FieldError::invalid(&child(at, "type"), &json!(kind), detail));
        }
    }
    if node.list_type.as_deref() == Some("set")
        && let Some(items) = node.items.as_deref()
    {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let items_at = child(at, "items");
        if items.kind.as_deref() == Some("array") && items.list_type.as_deref().is_some_and(|kind| kind != "atomic") {
            errors.push(FieldError::invalid(
                &child(&items_at, "x-kubernetes-list-type"),
                &json!(items.list_type),
                detail,
            ));
        }
        if items.kind.as_deref() == Some("object") && items.map_type.as_deref() != Some("atomic") {
            errors.push(FieldError::invalid(
                &child(&items_at, "x-kubernetes-map-type"),
                &json!(items.list_type),
                detail,
            ));
        }
    }
    if node.list_type.as_deref() == Some("map") {
        list_keys(node, at, errors);
    } else if !node.list_map_keys.is_empty() {
        let shown = node.list_type.clone().map_or(Value::Null, Value::String);
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        let at = child(at, "x-kubernetes-list-type");
        errors.push(if shown.is_null() {
            FieldError::required(&at, detail)
        } else {
            FieldError::invalid(&at, &shown, detail)
        });
    }
    if let Some(map_type) = &node.map_type {
        if kind == "object" {
            if !matches!(map_type.as_str(), "atomic" | "granular") {
                let supported = ["atomic", "granular"].map(str::to_owned);
                errors.push(FieldError::not_supported(
                    &child(at, "x-kubernetes-map-type"),
                    &json!(map_type),
                    &supported,
                ));
            }
        } else {
            let detail = "must be object if x-kubernetes-map-type is specified";
            let at = child(at, "type");
            errors.push(if kind.is_empty() {
                FieldError::required(&at, detail)
            } else {
                FieldError::invalid(&at, &json!(kind), detail)
            });
        }
    }
}

fn list_keys(node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    let keys_at = child(at, "x-kubernetes-list-map-keys");
    if node.list_map_keys.is_empty() {
        errors.push(FieldError::required(&keys_at, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = node.items.as_deref() else {
        errors.push(FieldError::required(&child(at, "items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    let items_at = child(at, "items");
    if items.kind.as_deref() != Some("object") {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        let kind = items.kind.clone().unwrap_or_default();
        errors.push(FieldError::invalid(&child(&items_at, "type"), &json!(kind), detail));
    }
    for key in &node.list_map_keys {
        let property_at = subscript(&child(&items_at, "properties"), key);
        match items.properties.get(key) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(&keys_at, &json!(node.list_map_keys), detail));
            }
            Some(property) => {
                if matches!(property.kind.as_deref(), Some("array" | "object")) {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let kind = items.kind.clone().unwrap_or_default();
                    errors.push(FieldError::invalid(&child(&property_at, "type"), &json!(kind), detail));
                }
                if property.default.is_none() && !items.required.contains(key) {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    errors.push(FieldError::required(&child(&property_at, "default"), detail));
                }
            }
        }
    }
}
