//! Strategic merge patches: merge patches that know how the lists of built-in kinds are keyed.

use serde_json::{Map, Value};

/// Lists that merge by a key; everything else is replaced. The key of a list depends on its path.
const MERGE_KEYS: &[(&str, &str)] = &[
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("ownerReferences", "uid"),
    ("conditions", "type"),
    ("secrets", "name"),
];

fn merge_key(path: &[String]) -> Option<&'static str> {
    let field = path.last()?.as_str();
    let parent = path.len().checked_sub(2).map(|at| path[at].as_str());
    match (field, parent) {
        ("ports", Some("spec")) if path.len() == 2 => Some("port"),
        ("ports", _) => Some("containerPort"),
        // Below a pod's spec a list of this name is replaced as a whole.
        ("secrets", _) if path.len() > 2 => None,
        _ => MERGE_KEYS.iter().find(|(name, _)| *name == field).map(|(_, key)| *key),
    }
}

/// Lists of plain values that merge as sets.
fn is_set(path: &[String]) -> bool {
    path.last().is_some_and(|field| field == "finalizers") && path.len() == 2
}

/// Merges `patch` into `object`.
pub(crate) fn merge(object: &mut Value, patch: &Value) -> Result<(), String> {
    merge_value(object, patch, &mut Vec::new())
}

fn merge_value(target: &mut Value, patch: &Value, path: &mut Vec<String>) -> Result<(), String> {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match changes.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let mut replaced = changes.clone();
            replaced.remove("$patch");
            *target = Value::Object(replaced);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("unknown patch type: {other} in map: map[$patch:{other}]")),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Some(kept) = changes.get("$retainKeys").and_then(Value::as_array)
        && let Some(fields) = target.as_object_mut()
    {
        fields.retain(|field, _| kept.iter().any(|name| name == field));
    }
    for (field, change) in changes {
        if field == "$patch" || field == "$retainKeys" || field.starts_with("$setElementOrder/") {
            continue;
        }
        if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            let doomed = change.as_array().cloned().unwrap_or_default();
            if let Some(items) = target.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !doomed.contains(item));
            }
            continue;
        }
        let Some(fields) = target.as_object_mut() else { continue };
        path.push(field.clone());
        let outcome = match change {
            Value::Null => {
                fields.remove(field);
                Ok(())
            }
            Value::Array(items) => {
                let order = changes.get(&format!("$setElementOrder/{field}")).and_then(Value::as_array);
                let current = fields.entry(field.clone()).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(current, items, order, path)
            }
            other => {
                let current = fields.entry(field.clone()).or_insert(Value::Null);
                merge_value(current, other, path)
            }
        };
        path.pop();
        outcome?;
    }
    // An order may be given for a list that is otherwise not patched.
    for (directive, order) in changes {
        if let Some(list) = directive.strip_prefix("$setElementOrder/")
            && !changes.contains_key(list)
            && let Some(items) = target.get_mut(list).and_then(Value::as_array_mut)
        {
            path.push(list.to_owned());
            sort_by_order(items, order.as_array(), merge_key(path));
            path.pop();
        }
    }
    Ok(())
}

fn merge_list(
    current: &mut Value,
    items: &[Value],
    order: Option<&Vec<Value>>,
    path: &mut Vec<String>,
) -> Result<(), String> {
    let key = merge_key(path);
    if key.is_none() && !is_set(path) {
        *current = Value::Array(items.to_vec());
        return Ok(());
    }
    if !current.is_array() {
        *current = Value::Array(Vec::new());
    }
    let Some(list) = current.as_array_mut() else { return Ok(()) };
    if items.iter().any(|item| item["$patch"] == "replace") {
        *list = items.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
        return Ok(());
    }
    for item in items {
        match key {
            None => {
                if !list.contains(item) {
                    list.push(item.clone());
                }
            }
            Some(key) => {
                let Some(id) = item.get(key) else {
                    return Err(format!("map: {item} does not contain declared merge key: {key}"));
                };
                let at = list.iter().position(|other| other.get(key) == Some(id));
                if item["$patch"] == "delete" {
                    if let Some(at) = at {
                        list.remove(at);
                    }
                } else if let Some(at) = at {
                    merge_value(&mut list[at], item, path)?;
                } else {
                    list.push(item.clone());
                }
            }
        }
    }
    sort_by_order(list, order, key);
    Ok(())
}

fn sort_by_order(list: &mut [Value], order: Option<&Vec<Value>>, key: Option<&str>) {
    let Some(order) = order else { return };
    let identity = |item: &Value| key.and_then(|key| item.get(key)).cloned().unwrap_or_else(|| item.clone());
    let place = |item: &Value| {
        let id = identity(item);
        order.iter().position(|wanted| identity(wanted) == id).unwrap_or(usize::MAX)
    };
    list.sort_by_key(place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(mut object: Value, patch: &Value) -> Value {
        merge(&mut object, patch).unwrap();
        object
    }

    #[test]
    fn service_ports_merge_by_port() {
        let service = json!({"spec": {"ports": [{"port": 80, "nodePort": 30000}, {"port": 81}]}});
        let patch = json!({"spec": {"ports": [{"port": 80, "name": "http"}, {"port": 81, "$patch": "delete"}]}});
        assert_eq!(
            merged(service, &patch),
            json!({"spec": {"ports": [{"port": 80, "nodePort": 30000, "name": "http"}]}})
        );
    }

    #[test]
    fn a_changed_image_keeps_the_rest_of_its_container() {
        let pod = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let old = pod(json!([{"name": "a", "image": "a:1", "args": ["run"]}, {"name": "b", "image": "b:1"}]));
        // As kubectl apply sends it.
        let patch = json!({"spec": {"template": {"spec": {
            "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "a", "image": "a:2"}]
        }}}});
        let new = pod(json!([{"name": "a", "image": "a:2", "args": ["run"]}, {"name": "b", "image": "b:1"}]));
        assert_eq!(merged(old, &patch), new);
    }

    #[test]
    fn ingress_rules_are_replaced() {
        let ingress = json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}]}});
        let patch = json!({"spec": {"rules": [{"host": "c"}]}});
        assert_eq!(merged(ingress, &patch), json!({"spec": {"rules": [{"host": "c"}]}}));
    }

    #[test]
    fn null_removes_and_finalizers_are_a_set() {
        let object = json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["x"]}});
        let patch = json!({"metadata": {"labels": {"a": null, "b": "2"}, "finalizers": ["y"], "$deleteFromPrimitiveList/finalizers": ["x"]}});
        assert_eq!(merged(object, &patch), json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["y"]}}));
    }
}
