//! Whether an object already has what would be applied to it, judged by the fields we own in its `managedFields`.
//!
//! In: the live object and the one to apply. Out: true when applying it would change nothing. No schema is needed: which lists are keyed,
//! sets or of one piece shows in how their ownership is written down (`k:`, `v:`, or nothing below the field). In doubt the answer is
//! false, and the server finds that nothing changed.

use serde_json::{Map, Value};

use super::super::FIELD_MANAGER;

/// The fields that name an object; nobody owns them.
const NAMING: [&str; 4] = ["name", "namespace", "uid", "resourceVersion"];

/// Our entry among the managers of the object itself, not of its status.
pub(super) fn entry(live: &Value) -> Option<&Value> {
    live["metadata"]["managedFields"].as_array()?.iter().find(|entry| {
        entry["manager"] == FIELD_MANAGER
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    })
}

/// Whether we own exactly the fields of `wanted`, and `live` has their values.
pub(super) fn is_up_to_date(live: &Value, wanted: &Value) -> bool {
    let Some(entry) = entry(live).filter(|entry| entry["apiVersion"] == wanted["apiVersion"]) else { return false };
    let mut wanted = wanted.clone();
    if let Some(fields) = wanted.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !NAMING.contains(&field.as_str()));
            if metadata.is_empty() {
                fields.remove("metadata");
            }
        }
    }
    matches(&entry["fieldsV1"], &wanted, live)
}

/// `owned` is what we own at this place, as `fieldsV1` writes it.
fn matches(owned: &Value, wanted: &Value, live: &Value) -> bool {
    let Some(owned) = owned.as_object() else { return false };
    let below: Vec<(&String, &Value)> = owned.iter().filter(|(key, _)| *key != ".").collect();
    if below.is_empty() {
        return is_within(wanted, live);
    }
    match wanted {
        Value::Object(fields) => {
            below.len() == fields.len()
                && below.into_iter().all(|(key, owned)| {
                    key.strip_prefix("f:")
                        .is_some_and(|name| fields.get(name).is_some_and(|wanted| matches(owned, wanted, &live[name])))
                })
        }
        Value::Array(items) => {
            let live = live.as_array().map(Vec::as_slice).unwrap_or_default();
            below.len() == items.len() && below.into_iter().all(|(key, owned)| has_item(key, owned, items, live))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether an item of a keyed list (`k:{…}`) or of a set (`v:…`) is wanted and there.
fn has_item(key: &str, owned: &Value, items: &[Value], live: &[Value]) -> bool {
    if let Some(value) = key.strip_prefix("v:") {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| items.contains(&value) && live.contains(&value));
    }
    let Some(keys) = key.strip_prefix("k:").and_then(|keys| serde_json::from_str::<Map<String, Value>>(keys).ok())
    else {
        return false;
    };
    // A key that the server fills in may be missing from what is wanted.
    let named = |item: &&Value| keys.iter().all(|(name, value)| item.get(name).is_none_or(|have| have == value));
    match (items.iter().find(named), live.iter().find(named)) {
        (Some(wanted), Some(live)) => matches(owned, wanted, live),
        _ => false,
    }
}

/// Whether `live` has all of `wanted`. What the server filled in beside it does not count.
fn is_within(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            wanted.iter().all(|(name, wanted)| live.get(name).is_some_and(|live| is_within(wanted, live)))
        }
        (Value::Array(wanted), Value::Array(live)) => {
            wanted.len() == live.len() && wanted.iter().zip(live).all(|(wanted, live)| is_within(wanted, live))
        }
        (Value::Number(wanted), Value::Number(live)) => wanted == live || wanted.as_f64() == live.as_f64(),
        (wanted, live) => wanted == live,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(fields: &Value, mut object: Value) -> Value {
        object["metadata"]["managedFields"] =
            json!([{ "manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields }]);
        object
    }

    fn wanted(mut object: Value) -> Value {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Thing");
        object["metadata"]["name"] = json!("a");
        object
    }

    #[test]
    fn the_same_fields_and_values_are_up_to_date_whatever_others_added() {
        let live = live(
            &json!({"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}),
            json!({"metadata": {"labels": {"x": "1", "theirs": "2"}}, "data": {"a": "1", "theirs": "2"}}),
        );
        assert!(is_up_to_date(&live, &wanted(json!({"metadata": {"labels": {"x": "1"}}, "data": {"a": "1"}}))));
    }

    #[test]
    fn another_value_a_new_field_and_a_dropped_field_are_not() {
        let live = live(&json!({"f:data": {"f:a": {}, "f:b": {}}}), json!({"data": {"a": "1", "b": "2", "c": "3"}}));
        for data in [json!({"a": "9", "b": "2"}), json!({"a": "1", "b": "2", "c": "3"}), json!({"a": "1"})] {
            assert!(!is_up_to_date(&live, &wanted(json!({ "data": data }))), "{data}");
        }
        assert!(is_up_to_date(&live, &wanted(json!({"data": {"a": "1", "b": "2"}}))));
    }

    #[test]
    fn a_field_that_somebody_took_over_is_not_even_with_our_value() {
        let live = live(&json!({"f:data": {"f:a": {}}}), json!({"data": {"a": "1", "b": "2"}}));
        assert!(!is_up_to_date(&live, &wanted(json!({"data": {"a": "1", "b": "2"}}))));
    }

    #[test]
    fn lists_of_one_piece_keyed_lists_and_sets_are_told_apart() {
        let owned = json!({"f:spec": {
            "f:rules": {},
            "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
            "f:tags": {"v:\"a\"": {}, "v:\"b\"": {}},
        }});
        let there = json!({"metadata": {}, "spec": {
            "rules": [{"host": "a", "filled": "in"}],
            "ports": [{"port": 443, "protocol": "TCP"}, {"port": 80, "protocol": "TCP", "nodePort": 1}],
            "tags": ["theirs", "b", "a"],
        }});
        let live = live(&owned, there);
        let spec = |rules: Value, ports: Value, tags: Value| {
            wanted(json!({"spec": {"rules": rules, "ports": ports, "tags": tags}}))
        };
        let (rules, ports, tags) = (json!([{"host": "a"}]), json!([{"port": 80}]), json!(["a", "b"]));
        assert!(is_up_to_date(&live, &spec(rules.clone(), ports.clone(), tags.clone())));
        assert!(!is_up_to_date(&live, &spec(json!([]), ports.clone(), tags.clone())));
        assert!(!is_up_to_date(&live, &spec(json!([{"host": "b"}]), ports.clone(), tags.clone())));
        assert!(!is_up_to_date(&live, &spec(rules.clone(), json!([{"port": 81}]), tags.clone())));
        assert!(!is_up_to_date(&live, &spec(rules.clone(), json!([{"port": 80}, {"port": 443}]), tags)));
        assert!(!is_up_to_date(&live, &spec(rules.clone(), ports.clone(), json!(["a"]))));
        assert!(!is_up_to_date(&live, &spec(rules, ports, json!(["a", "c"]))));
    }

    #[test]
    fn what_another_version_or_another_manager_applied_says_nothing() {
        let mut other = live(&json!({"f:data": {"f:a": {}}}), json!({"data": {"a": "1"}}));
        let same = wanted(json!({"data": {"a": "1"}}));
        assert!(is_up_to_date(&other, &same));
        other["metadata"]["managedFields"][0]["apiVersion"] = json!("v2");
        assert!(!is_up_to_date(&other, &same));
        other["metadata"]["managedFields"] = json!([{ "manager": FIELD_MANAGER, "operation": "Update", "apiVersion": "v1",
            "fieldsV1": {"f:data": {"f:a": {}}} }]);
        assert!(!is_up_to_date(&other, &same));
    }
}
