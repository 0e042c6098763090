//! The output of `kubectl get`: objects as rows of a `meta.k8s.io/v1` Table.

mod cells;
mod path;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    kinds::{Column, Kind, Origin},
    render::metadata_only,
};

/// Objects of one kind as a table; `include` selects how much of each object comes with its row.
pub(crate) fn table<'a>(
    kind: &Kind,
    objects: impl Iterator<Item = &'a Value>,
    include: &str,
    now: Timestamp,
    with_columns: bool,
) -> Value {
    let (mut rows, mut version) = (Vec::new(), Value::Null);
    for object in objects {
        let mut row = json!({"cells": row_cells(kind, object, now)});
        match include {
            "None" => row["object"] = Value::Null,
            "Object" => row["object"] = object.clone(),
            _ => row["object"] = metadata_only(object),
        }
        version = object["metadata"]["resourceVersion"].clone();
        rows.push(row);
    }
    let columns = if with_columns { column_definitions(kind) } else { Value::Null };
    let metadata = if version.is_null() { json!({}) } else { json!({"resourceVersion": version}) };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows})
}

fn row_cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    match &kind.origin {
        Origin::Builtin(_) => cells::builtin(kind, object, now),
        Origin::Custom(custom) => {
            let mut row = vec![object["metadata"]["name"].clone()];
            if custom.columns.is_empty() {
                row.push(cells::age(object, now));
            }
            row.extend(custom.columns.iter().map(|column| custom_cell(column, object, now)));
            row
        }
    }
}

fn custom_cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let Some(value) = path::find(object, &column.path) else { return Value::Null };
    match (column.kind.as_str(), value) {
        ("string", Value::String(text)) => json!(text),
        ("string", other) => json!(other.to_string()),
        ("date", Value::String(text)) => {
            json!(
                text.parse::<Timestamp>()
                    .map_or_else(|_| "<invalid>".to_owned(), |then| cells::human_duration(now, then))
            )
        }
        ("integer", Value::Number(number)) => {
            #[expect(clippy::cast_possible_truncation, reason = "the server truncates too")]
            let whole = number.as_i64().or_else(|| number.as_f64().map(|n| n as i64));
            json!(whole)
        }
        ("number", value @ Value::Number(_)) | ("boolean", value @ Value::Bool(_)) => value.clone(),
        _ => Value::Null,
    }
}

fn column_definitions(kind: &Kind) -> Value {
    let definition = |name: &str, cell: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": cell, "format": format, "description": description, "priority": priority});
    let name = definition(
        "Name",
        "string",
        "name",
        "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
        0,
    );
    let columns: Vec<Value> = match &kind.origin {
        Origin::Builtin(_) => cells::builtin_columns(kind)
            .iter()
            .map(|(title, cell, priority)| match *title {
                "Name" => {
                    let mut name = name.clone();
                    name["priority"] = json!(priority);
                    name
                }
                title => definition(title, cell, "", "", *priority),
            })
            .collect(),
        Origin::Custom(custom) if custom.columns.is_empty() => vec![
            name,
            definition(
                "Age",
                "date",
                "",
                "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
                0,
            ),
        ],
        Origin::Custom(custom) => std::iter::once(name)
            .chain(custom.columns.iter().map(|column| {
                let described = if column.description.is_empty() {
                    format!("Custom resource definition column (in JSONPath format): {}", column.path)
                } else {
                    column.description.clone()
                };
                definition(&column.name, &column.kind, &column.format, &described, column.priority)
            }))
            .collect(),
    };
    Value::Array(columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Catalog;

    #[test]
    fn an_ingress_prints_its_hosts_and_addresses() {
        let catalog = Catalog::builtin();
        let kind = catalog.get("networking.k8s.io", "v1", "ingresses").unwrap();
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let object = json!({
            "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"ingressClassName": "nginx", "rules": [{"host": "a.example"}, {"host": "b.example"}], "tls": [{}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
        });
        let table = table(kind, std::iter::once(&object), "", now, true);
        assert_eq!(
            table["rows"][0]["cells"],
            json!(["web", "nginx", "a.example,b.example", "192.0.2.1", "80, 443", "60m"])
        );
    }

    #[test]
    fn every_builtin_row_has_as_many_cells_as_columns() {
        for kind in Catalog::builtin().iter() {
            let row = row_cells(kind, &json!({"metadata": {"name": "x"}}), Timestamp::UNIX_EPOCH);
            assert_eq!(row.len(), cells::builtin_columns(kind).len(), "{}", kind.kind);
        }
    }
}
