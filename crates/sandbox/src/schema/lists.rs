//! The rules of lists beyond OpenAPI: a set has each value once, a keyed list each key once; and what embedded resources must carry.

use serde_json::{Map, Value, json};

use super::{
    FieldError,
    golang::{child, json_text, subscript},
    node::Node,
};

/// Repeated values in sets and repeated keys in keyed lists.
pub(crate) fn repeated(value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(additional) = node.additional_schema() {
                    repeated(value, additional, &subscript(path, name), errors);
                }
                if let Some(property) = node.properties.get(name) {
                    repeated(value, property, &child(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            match node.list_type.as_deref() {
                Some("set") => {
                    for index in second_appearances(items) {
                        errors.push(FieldError::duplicate(&subscript(path, index), &items[index]));
                    }
                }
                Some("map") => repeated_keys(items, node, path, errors),
                _ => {}
            }
            if let Some(node) = node.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    repeated(item, node, &subscript(path, index), errors);
                }
            }
        }
        _ => {}
    }
}

fn repeated_keys(items: &[Value], node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    if let Some((index, item)) = items.iter().enumerate().find(|(_, item)| !item.is_null() && !item.is_object()) {
        let path = subscript(path, index);
        errors.push(FieldError::invalid(&path, item, "must be an object for an array of list-type map"));
        return;
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let fields = node.list_map_keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Value::Object(fields.collect::<Map<String, Value>>())
        })
        .collect();
    for index in second_appearances(&keys) {
        errors.push(FieldError::duplicate(&subscript(path, index), &keys[index]));
    }
}

/// The index where each repeated value appears for the second time.
fn second_appearances(items: &[Value]) -> Vec<usize> {
    let mut seen = std::collections::HashMap::new();
    let mut found = Vec::new();
    for (index, item) in items.iter().enumerate() {
        // A whole float is another scalar than the integer, though both print alike.
        let float = item.as_f64().is_some() && item.as_i64().is_none();
        let times = seen.entry((float, json_text(item))).or_insert(0_u32);
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}

/// Embedded resources without a usable `apiVersion`, `kind` or `metadata`.
pub(crate) fn embedded(value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if node.embedded {
                embedded_resource(fields, path, errors);
            }
            for (name, value) in fields {
                if let Some(property) = node.properties.get(name) {
                    embedded(value, property, &child(path, name), errors);
                } else if let Some(additional) = node.additional_schema() {
                    embedded(value, additional, &subscript(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = node.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    embedded(item, node, &subscript(path, index), errors);
                }
            }
        }
        _ => {}
    }
}

fn embedded_resource(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let path = child(path, name);
        match fields.get(name) {
            None => errors.push(FieldError::required(&path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(&path, &json!(""), "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(&path, &json!(text), &detail));
            }
            Some(Value::String(text)) if name == "kind" && !is_label(&text.to_lowercase()) => {
                let detail = "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
                errors.push(FieldError::invalid(&path, &json!(text), detail));
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(&path, other, "must be a string")),
        }
    }
}

fn is_label(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}
