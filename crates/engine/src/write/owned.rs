//! The fields of an object that we own, by its `managedFields`.
//!
//! In: the live object and the one to apply. Out: whether applying it would change anything, and the part of the live object that is ours.
//! No schema is needed: which lists are keyed, sets or atomic shows in how their ownership is recorded (`k:`, `v:`, or nothing below the
//! field). In doubt the answer is yes: the apply is then sent, and the server finds no change.

use serde_json::{Map, Value};

use super::FIELD_MANAGER;

/// The fields that identify an object; they have no owner.
const NAMING: [&str; 4] = ["name", "namespace", "uid", "resourceVersion"];

/// The field manager of a part of the operator.
pub(super) fn manager(owner: &str) -> String {
    if owner.is_empty() { FIELD_MANAGER.to_owned() } else { format!("{FIELD_MANAGER}-{owner}") }
}

/// Whether an entry of `managedFields` is for fields that this operator applied.
pub(crate) fn is_ours(entry: &Value) -> bool {
    let ours =
        |name: &str| name.strip_prefix(FIELD_MANAGER).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    entry["operation"] == "Apply" && entry["manager"].as_str().is_some_and(ours)
}

/// The entry of this owner for the object itself (no subresource) or for a subresource.
pub(super) fn entry<'a>(live: &'a Value, subresource: &str, owner: &str) -> Option<&'a Value> {
    live["metadata"]["managedFields"].as_array()?.iter().find(|entry| {
        is_ours(entry)
            && entry["manager"] == manager(owner).as_str()
            && entry["subresource"].as_str().unwrap_or_default() == subresource
    })
}

/// The fields of the live object that are ours; `None` when there are none.
pub(super) fn extract(live: &Value, subresource: &str, owner: &str) -> Option<Value> {
    part(&entry(live, subresource, owner)?["fieldsV1"], live)
}

/// `owned` has the fields that we own at this place, in the form of `fieldsV1`.
fn part(owned: &Value, live: &Value) -> Option<Value> {
    let owned = owned.as_object()?;
    let below = || owned.iter().filter(|(key, _)| *key != ".");
    if below().next().is_none() {
        return Some(live.clone());
    }
    match live {
        Value::Object(fields) => {
            let mut ours = Map::new();
            for (key, owned) in below() {
                let name = key.strip_prefix("f:")?;
                if let Some(value) = fields.get(name).and_then(|value| part(owned, value)) {
                    ours.insert(name.to_owned(), value);
                }
            }
            Some(Value::Object(ours))
        }
        Value::Array(items) => {
            let mut ours = Vec::new();
            for item in items {
                if let Some((_, owned)) = below().find(|(key, _)| names(key, item)) {
                    ours.push(if owned.as_object().is_some_and(Map::is_empty) {
                        item.clone()
                    } else {
                        part(owned, item)?
                    });
                }
            }
            Some(Value::Array(ours))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Whether the key of an entry (`k:{…}` of a keyed list, `v:…` of a set) names this item.
fn names(key: &str, item: &Value) -> bool {
    if let Some(value) = key.strip_prefix("v:") {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item);
    }
    key.strip_prefix("k:")
        .and_then(|keys| serde_json::from_str::<Map<String, Value>>(keys).ok())
        .is_some_and(|keys| keys.iter().all(|(name, value)| item.get(name) == Some(value)))
}

/// The content to apply, without the fields that identify the object.
pub(super) fn content(wanted: &Value) -> Value {
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
    wanted
}

/// Whether we own exactly the fields of `wanted`, and `live` has their values.
pub(super) fn is_up_to_date(live: &Value, wanted: &Value) -> bool {
    let entry = entry(live, "", "").filter(|entry| entry["apiVersion"] == wanted["apiVersion"]);
    entry.is_some_and(|entry| matches(&entry["fieldsV1"], &content(wanted), live))
}

/// `owned` has the fields that we own at this place, in the form of `fieldsV1`.
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

/// Whether an item of a keyed list (`k:{…}`) or of a set (`v:…`) is wanted and exists.
fn has_item(key: &str, owned: &Value, items: &[Value], live: &[Value]) -> bool {
    if let Some(value) = key.strip_prefix("v:") {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| items.contains(&value) && live.contains(&value));
    }
    let Some(keys) = key.strip_prefix("k:").and_then(|keys| serde_json::from_str::<Map<String, Value>>(keys).ok())
    else {
        return false;
    };
    // A key that the server fills in may be missing in `wanted`.
    let named = |item: &&Value| keys.iter().all(|(name, value)| item.get(name).is_none_or(|have| have == value));
    match (items.iter().find(named), live.iter().find(named)) {
        (Some(wanted), Some(live)) => matches(owned, wanted, live),
        _ => false,
    }
}

/// Whether `live` has all of `wanted`. Other fields, which the server filled in, are ignored.
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
    fn equal_fields_are_up_to_date_beside_foreign_ones() {
        let live = live(
            &json!({"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}),
            json!({"metadata": {"labels": {"x": "1", "theirs": "2"}}, "data": {"a": "1", "theirs": "2"}}),
        );
        assert!(is_up_to_date(&live, &wanted(json!({"metadata": {"labels": {"x": "1"}}, "data": {"a": "1"}}))));
    }

    #[test]
    fn only_our_fields_are_extracted() {
        let object = live(
            &json!({"f:spec": {
                "f:rules": {},
                "f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}, "f:name": {}}},
                "f:tags": {"v:\"a\"": {}},
            }}),
            json!({"metadata": {}, "spec": {
                "rules": [{"host": "a"}],
                "ports": [{"port": 443}, {"port": 80, "name": "http", "nodePort": 1}],
                "tags": ["theirs", "a"],
                "replicas": 2,
            }}),
        );
        let ours = json!({"spec": {"rules": [{"host": "a"}], "ports": [{"port": 80, "name": "http"}], "tags": ["a"]}});
        assert_eq!(extract(&object, "", ""), Some(ours));
        assert_eq!(extract(&object, "status", ""), None);
        assert_eq!(extract(&object, "", "portal"), None);
    }

    #[test]
    fn changed_added_and_removed_fields_are_not_up_to_date() {
        let live = live(&json!({"f:data": {"f:a": {}, "f:b": {}}}), json!({"data": {"a": "1", "b": "2", "c": "3"}}));
        for data in [json!({"a": "9", "b": "2"}), json!({"a": "1", "b": "2", "c": "3"}), json!({"a": "1"})] {
            assert!(!is_up_to_date(&live, &wanted(json!({ "data": data }))), "{data}");
        }
        assert!(is_up_to_date(&live, &wanted(json!({"data": {"a": "1", "b": "2"}}))));
    }

    #[test]
    fn a_field_with_a_foreign_owner_is_not_up_to_date() {
        let live = live(&json!({"f:data": {"f:a": {}}}), json!({"data": {"a": "1", "b": "2"}}));
        assert!(!is_up_to_date(&live, &wanted(json!({"data": {"a": "1", "b": "2"}}))));
    }

    #[test]
    fn atomic_lists_keyed_lists_and_sets_are_distinguished() {
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
    fn an_entry_of_another_version_or_operation_is_not_up_to_date() {
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
