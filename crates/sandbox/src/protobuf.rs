//! Request bodies in Kubernetes' protobuf encoding, which kubectl's typed commands (`create namespace`, `auth can-i`) send.
//!
//! In: the bytes. Out: the object as JSON, for the kinds those commands make. Answers are JSON, which every client takes.

use data_encoding::BASE64;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The media type of such bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The type of a field.
#[derive(Clone, Copy, Debug)]
enum Holds {
    Text,
    Number,
    Flag,
    Time,
    PortOrName,
    Part(&'static [Field]),
    /// A part whose fields belong to the holder itself.
    Inline(&'static [Field]),
    TextMap,
    BytesMap,
}

/// One field: its number, its name, whether it is a list, and its type.
#[derive(Clone, Copy, Debug)]
struct Field(u64, &'static str, bool, Holds);

const fn one(number: u64, name: &'static str, holds: Holds) -> Field {
    Field(number, name, false, holds)
}

const fn many(number: u64, name: &'static str, holds: Holds) -> Field {
    Field(number, name, true, holds)
}

use Holds::{BytesMap, Flag, Inline, Number, Part, PortOrName, Text, TextMap, Time};

const OWNER: &[Field] = &[
    one(1, "kind", Text),
    one(3, "name", Text),
    one(4, "uid", Text),
    one(5, "apiVersion", Text),
    one(6, "controller", Flag),
    one(7, "blockOwnerDeletion", Flag),
];

const METADATA: Field = one(
    1,
    "metadata",
    Part(&[
        one(1, "name", Text),
        one(2, "generateName", Text),
        one(3, "namespace", Text),
        one(5, "uid", Text),
        one(6, "resourceVersion", Text),
        one(8, "creationTimestamp", Time),
        one(11, "labels", TextMap),
        one(12, "annotations", TextMap),
        many(13, "ownerReferences", Part(OWNER)),
        many(14, "finalizers", Text),
    ]),
);

const BACKEND: &[Field] = &[
    one(3, "resource", Part(&[one(1, "apiGroup", Text), one(2, "kind", Text), one(3, "name", Text)])),
    one(
        4,
        "service",
        Part(&[one(1, "name", Text), one(2, "port", Part(&[one(1, "name", Text), one(2, "number", Number)]))]),
    ),
];

const PATH: &[Field] = &[one(1, "path", Text), one(2, "backend", Part(BACKEND)), one(3, "pathType", Text)];

const INGRESS: &[Field] = &[
    METADATA,
    one(
        2,
        "spec",
        Part(&[
            one(1, "defaultBackend", Part(BACKEND)),
            many(2, "tls", Part(&[many(1, "hosts", Text), one(2, "secretName", Text)])),
            many(
                3,
                "rules",
                Part(&[
                    one(1, "host", Text),
                    one(2, "", Inline(&[one(1, "http", Part(&[many(1, "paths", Part(PATH))]))])),
                ]),
            ),
            one(4, "ingressClassName", Text),
        ]),
    ),
];

const PORT: &[Field] = &[
    one(1, "name", Text),
    one(2, "protocol", Text),
    one(3, "port", Number),
    one(4, "targetPort", PortOrName),
    one(5, "nodePort", Number),
    one(6, "appProtocol", Text),
];

const SERVICE: &[Field] = &[
    METADATA,
    one(
        2,
        "spec",
        Part(&[
            many(1, "ports", Part(PORT)),
            one(2, "selector", TextMap),
            one(3, "clusterIP", Text),
            one(4, "type", Text),
            many(5, "externalIPs", Text),
            one(7, "sessionAffinity", Text),
            one(8, "loadBalancerIP", Text),
            one(10, "externalName", Text),
            one(11, "externalTrafficPolicy", Text),
        ]),
    ),
];

const ACCESS_REVIEW: &[Field] = &[
    METADATA,
    one(
        2,
        "spec",
        Part(&[
            one(
                1,
                "resourceAttributes",
                Part(&[
                    one(1, "namespace", Text),
                    one(2, "verb", Text),
                    one(3, "group", Text),
                    one(4, "version", Text),
                    one(5, "resource", Text),
                    one(6, "subresource", Text),
                    one(7, "name", Text),
                ]),
            ),
            one(2, "nonResourceAttributes", Part(&[one(1, "path", Text), one(2, "verb", Text)])),
        ]),
    ),
];

const DELETE_OPTIONS: &[Field] = &[
    one(1, "gracePeriodSeconds", Number),
    one(2, "preconditions", Part(&[one(1, "uid", Text), one(2, "resourceVersion", Text)])),
    one(3, "orphanDependents", Flag),
    one(4, "propagationPolicy", Text),
    many(5, "dryRun", Text),
];

const CONFIG_MAP: &[Field] =
    &[METADATA, one(2, "data", TextMap), one(3, "binaryData", BytesMap), one(4, "immutable", Flag)];

const SECRET: &[Field] = &[
    METADATA,
    one(2, "data", BytesMap),
    one(3, "type", Text),
    one(4, "stringData", TextMap),
    one(5, "immutable", Flag),
];

const SERVICE_ACCOUNT: &[Field] = &[METADATA, one(4, "automountServiceAccountToken", Flag)];

fn fields_of(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("v1", "Namespace") => &[METADATA],
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        ("v1", "Service") => SERVICE,
        ("networking.k8s.io/v1", "Ingress") => INGRESS,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => ACCESS_REVIEW,
        (_, "DeleteOptions") => DELETE_OPTIONS,
        _ => return None,
    })
}

/// An encoded object as JSON; `None` when it is malformed or of a kind that is not known here.
pub(crate) fn read(body: &[u8]) -> Option<Value> {
    let envelope = body.strip_prefix(b"k8s\0")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), [].as_slice());
    for (number, value) in entries(envelope)? {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => {
                for (number, value) in entries(bytes)? {
                    match (number, value) {
                        (1, Wire::Bytes(text)) => api_version = String::from_utf8(text.to_vec()).ok()?,
                        (2, Wire::Bytes(text)) => kind = String::from_utf8(text.to_vec()).ok()?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = message(raw, fields_of(&api_version, &kind)?)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Some(Value::Object(object))
}

/// A value on the wire.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn entries(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 | 5 => {
                let (_, rest) = bytes.split_at_checked(if tag & 7 == 1 { 8 } else { 4 })?;
                bytes = rest;
                continue;
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (value, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Wire::Bytes(value)
            }
            _ => return None,
        };
        found.push((tag >> 3, value));
    }
    Some(found)
}

fn message(bytes: &[u8], fields: &[Field]) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    for (number, wire) in entries(bytes)? {
        let Some(Field(_, name, list, holds)) = fields.iter().find(|field| field.0 == number) else { continue };
        if let (Inline(inner), Wire::Bytes(bytes)) = (holds, wire) {
            object.extend(message(bytes, inner)?);
            continue;
        }
        if let (TextMap | BytesMap, Wire::Bytes(bytes)) = (holds, wire) {
            let (key, value) = map_entry(bytes, matches!(holds, BytesMap))?;
            let map = object.entry(*name).or_insert_with(|| json!({}));
            map[key] = json!(value);
            continue;
        }
        let Some(value) = value(wire, *holds)? else { continue };
        if *list {
            match object.entry(*name).or_insert_with(|| json!([])) {
                Value::Array(items) => items.push(value),
                _ => return None,
            }
        } else {
            object.insert((*name).to_owned(), value);
        }
    }
    Some(object)
}

/// One value; the inner `None` is a zero that JSON leaves out.
#[expect(clippy::option_option, reason = "malformed and left out are two things")]
fn value(wire: Wire<'_>, holds: Holds) -> Option<Option<Value>> {
    Some(match (holds, wire) {
        (Text, Wire::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).ok()?;
            (!text.is_empty()).then(|| json!(text))
        }
        (Number, Wire::Number(number)) => (number != 0).then(|| json!(number.cast_signed())),
        (Flag, Wire::Number(number)) => Some(json!(number != 0)),
        (Time, Wire::Bytes(bytes)) => {
            let (mut seconds, mut nanos) = (0, 0);
            for (number, value) in entries(bytes)? {
                match (number, value) {
                    (1, Wire::Number(number)) => seconds = number.cast_signed(),
                    (2, Wire::Number(number)) => nanos = i32::try_from(number).ok()?,
                    _ => {}
                }
            }
            let time = Timestamp::new(seconds, nanos).ok()?;
            (seconds != 0).then(|| json!(crate::clock::rfc3339(time)))
        }
        (PortOrName, Wire::Bytes(bytes)) => {
            let (mut is_name, mut number, mut name) = (false, 0, String::new());
            for (field, value) in entries(bytes)? {
                match (field, value) {
                    (1, Wire::Number(kind)) => is_name = kind == 1,
                    (2, Wire::Number(value)) => number = value.cast_signed(),
                    (3, Wire::Bytes(text)) => name = String::from_utf8(text.to_vec()).ok()?,
                    _ => {}
                }
            }
            match (is_name, number) {
                (true, _) => Some(json!(name)),
                (false, 0) => None,
                (false, number) => Some(json!(number)),
            }
        }
        (Part(fields), Wire::Bytes(bytes)) => Some(Value::Object(message(bytes, fields)?)),
        _ => return None,
    })
}

fn map_entry(bytes: &[u8], as_base64: bool) -> Option<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    for (number, wire) in entries(bytes)? {
        match (number, wire) {
            (1, Wire::Bytes(text)) => key = String::from_utf8(text.to_vec()).ok()?,
            (2, Wire::Bytes(data)) if as_base64 => value = BASE64.encode(data),
            (2, Wire::Bytes(text)) => value = String::from_utf8(text.to_vec()).ok()?,
            _ => {}
        }
    }
    Some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length-delimited field.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    #[test]
    fn a_config_map_is_read() {
        let metadata = field(1, &[field(1, b"cm"), field(2, b"")].concat());
        let data = field(2, &[field(1, b"k"), field(2, b"v")].concat());
        let types = field(1, &[field(1, b"v1"), field(2, b"ConfigMap")].concat());
        let body = [b"k8s\0".to_vec(), types, field(2, &[metadata, data].concat())].concat();
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"k": "v"}});
        assert_eq!(read(&body), Some(expected));
    }

    #[test]
    fn truncated_or_unknown_bytes_are_refused() {
        assert_eq!(read(b"k8s\0\x0a\x7f"), None);
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(b"k8s\0"), None);
    }
}
