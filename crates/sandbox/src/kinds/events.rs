//! Events have two faces over one store: `v1` (as stored) and `events.k8s.io/v1`.

use serde_json::{Map, Value};

use super::Kind;

/// (core field, events.k8s.io field)
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A stored event as `kind` shows it; `None` when it is the same.
pub(crate) fn from_storage(kind: &Kind, stored: &Value) -> Option<Value> {
    if kind.group.is_empty() {
        return None;
    }
    let mut shown = Map::new();
    for (field, value) in stored.as_object()? {
        let name = RENAMED.iter().find(|(core, _)| core == field).map_or(field.as_str(), |(_, new)| new);
        let leave_out = name == "reportingController" && value.as_str() == Some("")
            || name == "reportingInstance" && value.as_str() == Some("");
        if !leave_out {
            shown.insert(name.to_owned(), value.clone());
        }
    }
    shown.insert("apiVersion".into(), Value::from("events.k8s.io/v1"));
    Some(Value::Object(shown))
}

/// An event of either face in the form it is stored in.
pub(crate) fn to_storage(kind: &Kind, object: Value) -> Value {
    let mut stored = match object {
        Value::Object(fields) if !kind.group.is_empty() => fields
            .into_iter()
            .map(|(field, value)| {
                let name = RENAMED.iter().find(|(_, new)| *new == field).map(|(core, _)| (*core).to_owned());
                (name.unwrap_or(field), value)
            })
            .collect(),
        Value::Object(fields) => fields,
        other => return other,
    };
    stored.insert("apiVersion".into(), Value::from("v1"));
    for (field, empty) in [
        ("source", Value::Object(Map::new())),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
        ("involvedObject", Value::Object(Map::new())),
        ("reportingComponent", Value::from("")),
        ("reportingInstance", Value::from("")),
    ] {
        stored.entry(field).or_insert(empty);
    }
    Value::Object(stored)
}

#[cfg(test)]
mod tests {
    use crate::kinds::Catalog;
    use serde_json::json;

    #[test]
    fn an_event_written_by_one_face_is_read_by_the_other() {
        let catalog = Catalog::builtin();
        let new = catalog.get("events.k8s.io", "v1", "events").unwrap();
        let core = catalog.get("", "v1", "events").unwrap();
        let written = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "regarding": {"kind": "Ingress"}, "note": "hello", "reportingController": "c", "reportingInstance": "i"});
        let stored = new.to_storage(written);
        assert_eq!(stored["message"], "hello");
        assert_eq!(stored["involvedObject"]["kind"], "Ingress");
        assert_eq!(core.show(&stored), None);
        let back = new.show(&stored).unwrap();
        assert_eq!((&back["note"], &back["apiVersion"]), (&json!("hello"), &json!("events.k8s.io/v1")));
    }
}
