//! Dropping what the schema does not declare, and nulls it does not allow; filling in what it defaults.

use serde_json::{Map, Value};

use super::node::{Additional, Node};

/// The fields every resource has; `metadata` of the root and of embedded resources is not the schema's business.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes undeclared fields below a resource root and returns their paths, sorted.
pub(crate) fn prune(object: &mut Value, root: &Node) -> Vec<String> {
    let mut dropped = Vec::new();
    if let Value::Object(fields) = object {
        if root.preserve_unknown {
            keep_fields(fields, root, true, "", &mut dropped);
        } else {
            prune_fields(fields, root, true, "", &mut dropped);
        }
    }
    dropped.sort();
    dropped
}

fn prune_value(value: &mut Value, node: Option<&Node>, path: &str, dropped: &mut Vec<String>) {
    match (value, node) {
        (value, Some(node)) if node.preserve_unknown => keep(value, node, path, dropped),
        (Value::Object(fields), Some(node)) => prune_fields(fields, node, node.embedded, path, dropped),
        (Value::Object(fields), None) => {
            dropped.extend(fields.keys().map(|name| below(path, name)));
            fields.clear();
        }
        (Value::Array(items), node) => {
            let items_node = node.and_then(|node| node.items.as_deref());
            for (index, item) in items.iter_mut().enumerate() {
                prune_value(item, items_node, &format!("{path}[{index}]"), dropped);
            }
        }
        _ => {}
    }
}

fn prune_fields(fields: &mut Map<String, Value>, node: &Node, resource: bool, path: &str, dropped: &mut Vec<String>) {
    fields.retain(|name, value| {
        if resource && META.contains(&name.as_str()) {
            return true;
        }
        let inner = below(path, name);
        match (node.properties.get(name), &node.additional) {
            (Some(property), _) => prune_value(value, Some(property), &inner, dropped),
            (None, Some(Additional::Schema(node))) => prune_value(value, Some(node), &inner, dropped),
            (None, Some(Additional::Allowed(_))) => prune_value(value, None, &inner, dropped),
            (None, None) => {
                dropped.push(inner);
                return false;
            }
        }
        true
    });
}

fn keep(value: &mut Value, node: &Node, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(fields) => keep_fields(fields, node, node.embedded, path, dropped),
        Value::Array(items) => {
            if let Some(items_node) = node.items.as_deref() {
                for (index, item) in items.iter_mut().enumerate() {
                    keep(item, items_node, &format!("{path}[{index}]"), dropped);
                }
            }
        }
        _ => {}
    }
}

fn keep_fields(fields: &mut Map<String, Value>, node: &Node, resource: bool, path: &str, dropped: &mut Vec<String>) {
    for (name, value) in fields.iter_mut() {
        if resource && META.contains(&name.as_str()) {
            continue;
        }
        let inner = below(path, name);
        match (node.properties.get(name), &node.additional) {
            (Some(property), _) => prune_value(value, Some(property), &inner, dropped),
            (None, Some(Additional::Schema(node))) => prune_value(value, Some(node), &inner, dropped),
            (None, Some(Additional::Allowed(_))) => prune_value(value, None, &inner, dropped),
            (None, None) => {}
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Removes nulls that are neither allowed nor replaced by a default.
pub(crate) fn drop_nulls(value: &mut Value, node: Option<&Node>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let node = node.and_then(|node| node.field(name));
            if value.is_null() && node.is_some_and(|node| !node.nullable && node.default.is_none()) {
                return false;
            }
            drop_nulls(value, node);
            true
        }),
        Value::Array(items) => {
            let node = node.and_then(|node| node.items.as_deref());
            for item in items {
                drop_nulls(item, node);
            }
        }
        _ => {}
    }
}

/// Fills in defaults for absent fields and for nulls that are not allowed.
pub(crate) fn default(value: &mut Value, node: &Node) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                match fields.get(name) {
                    Some(Value::Null) if !property.nullable => {}
                    Some(_) => continue,
                    None => {}
                }
                fields.insert(name.clone(), default.clone());
            }
            for (name, value) in fields.iter_mut() {
                if let Some(property) = node.properties.get(name) {
                    default(value, property);
                } else if let Some(additional) = node.additional_schema() {
                    default_element(value, additional);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = node.items.as_deref() {
                for item in items {
                    default_element(item, node);
                }
            }
        }
        _ => {}
    }
}

fn default_element(value: &mut Value, node: &Node) {
    if value.is_null() && !node.nullable {
        *value = node.default.clone().unwrap_or(Value::Null);
    }
    default(value, node);
}
