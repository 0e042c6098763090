//! Answers as bytes: whole objects, their metadata only, or a table; alone, in lists, or as watch events.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::{api::Payload, kinds::Kind, request::Shape, store::Object, table};

/// The JSON text of an answer.
pub(crate) fn body(kind: &Kind, shape: Shape, include: &str, payload: &Payload, now: jiff::Timestamp) -> Bytes {
    match payload {
        Payload::Plain(value) => to_bytes(value),
        Payload::Stored(object) => one(kind, shape, include, object, now),
        Payload::Made(value) => match shape {
            Shape::Full => to_bytes(value),
            Shape::Metadata | Shape::MetadataList => to_bytes(&metadata_only(value)),
            Shape::Table => to_bytes(&table::table(kind, std::iter::once(value), include, now, true)),
        },
        Payload::List { items, version, more, remaining } => {
            let mut metadata = json!({"resourceVersion": version.to_string()});
            if let Some(more) = more {
                metadata["continue"] = json!(more);
            } else if kind.is_custom() && shape == Shape::Full {
                // Untyped lists write it even when there is nothing to go on with.
                metadata["continue"] = json!("");
            }
            if let Some(remaining) = remaining {
                metadata["remainingItemCount"] = json!(remaining);
            }
            list(kind, shape, include, items, &metadata, now)
        }
    }
}

fn list(
    kind: &Kind,
    shape: Shape,
    include: &str,
    items: &[std::sync::Arc<Object>],
    metadata: &Value,
    now: jiff::Timestamp,
) -> Bytes {
    if shape == Shape::Table {
        let shown: Vec<Value> = items.iter().filter_map(|item| kind.show(&item.value)).collect();
        let mut made = if shown.is_empty() {
            table::table(kind, items.iter().map(|item| &item.value), include, now, true)
        } else {
            table::table(kind, shown.iter(), include, now, true)
        };
        made["metadata"] = metadata.clone();
        return to_bytes(&made);
    }
    let partial = matches!(shape, Shape::Metadata | Shape::MetadataList);
    if partial && items.is_empty() {
        // The server converts an empty list to null here, and only here.
        return to_bytes(
            &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": null}),
        );
    }
    let (list_kind, api_version) = match shape {
        Shape::Metadata | Shape::MetadataList => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        _ => (kind.list_kind.clone(), kind.api_version()),
    };
    let mut out = BytesMut::with_capacity(256 + items.len() * 512);
    out.put_slice(
        format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            json!(list_kind),
            json!(api_version)
        )
        .as_bytes(),
    );
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        match shape {
            Shape::Full if !kind.is_custom() => match kind.show(&item.value) {
                Some(shown) => out.put_slice(&serde_json::to_vec(&crate::store::Bare(&shown)).unwrap_or_default()),
                None => out.put_slice(&item.bare_json()),
            },
            _ => out.put_slice(&one(kind, shape, include, item, now)),
        }
    }
    out.put_slice(b"]}\n");
    out.freeze()
}

/// One stored object.
pub(crate) fn one(kind: &Kind, shape: Shape, include: &str, object: &Object, now: jiff::Timestamp) -> Bytes {
    match shape {
        Shape::Full => match kind.show(&object.value) {
            Some(shown) => to_bytes(&shown),
            None => object.json(),
        },
        Shape::Metadata | Shape::MetadataList => to_bytes(&metadata_only(&object.value)),
        Shape::Table => {
            let shown = kind.show(&object.value);
            let value = shown.as_ref().unwrap_or(&object.value);
            to_bytes(&table::table(kind, std::iter::once(value), include, now, true))
        }
    }
}

/// One watch event: a line of JSON.
pub(crate) fn event(event_type: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(event_type.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

/// A bookmark: nothing but its version.
pub(crate) fn bookmark(kind: &Kind, shape: Shape, version: u64, initial_end: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if initial_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object = match shape {
        Shape::Metadata | Shape::MetadataList => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        }
        Shape::Full | Shape::Table => {
            let mut object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
            if !kind.is_custom() {
                crate::kinds::defaults::zero(kind, &mut object);
            }
            if shape == Shape::Table {
                object = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null,
                    "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}}]});
            }
            object
        }
    };
    event("BOOKMARK", &to_bytes(&object))
}

pub(crate) fn metadata_only(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value.get("metadata").cloned().unwrap_or_default()})
}

pub(crate) fn to_bytes(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}
