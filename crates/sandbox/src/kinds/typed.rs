//! Reads an object of a built-in kind the way a typed server does: fields it has no place for are dropped and named, values of
//! the wrong type are refused, and what is empty leaves no trace.
//!
//! In: the kind's JSON schema (as k8s-openapi generates it) and an object. Out: the object as it would be encoded again, the
//! paths it lost, and the first mistyped value.

use std::fmt::Write as _;

use serde_json::Value;

/// The findings from reading an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Paths of dropped fields: `spec.foo`, `spec.rules[0].bar`.
    pub(crate) unknown: Vec<String>,
    /// The decoder's text for the first value of a wrong type.
    pub(crate) mistyped: Option<String>,
    /// The same mismatch, as server-side apply reports it.
    pub(crate) mismatch: Option<String>,
}

/// Reads `object` by `schema`, in place.
pub(crate) fn read(schema: &Value, kind: &str, object: &mut Value) -> Findings {
    let mut findings = Findings::default();
    let reader = Reader { defs: schema.get("$defs") };
    reader.walk(schema, object, &mut String::new(), kind, &mut findings);
    findings.unknown.sort();
    findings
}

struct Reader<'a> {
    defs: Option<&'a Value>,
}

impl<'a> Reader<'a> {
    fn resolve(&self, mut schema: &'a Value) -> &'a Value {
        while let Some(target) = reference(schema) {
            match target.rsplit('/').next().and_then(|name| self.defs.and_then(|defs| defs.get(name))) {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }

    fn walk(&self, schema: &'a Value, value: &mut Value, path: &mut String, holder: &str, found: &mut Findings) {
        if is_opaque(schema) {
            return;
        }
        let name = reference(schema).and_then(|target| target.rsplit('.').next()).unwrap_or_default();
        let inner_holder = if name.is_empty() { holder } else { name };
        let schema = self.resolve(schema);
        let wanted = schema.get("type").and_then(Value::as_str);
        if let Some(text) = ill_formed(schema, name, value) {
            found.mistyped.get_or_insert(text);
            return;
        }
        if !fits(wanted, schema, value) {
            if found.mistyped.is_none() {
                found.mismatch = Some(mismatch(wanted, path, value));
                found.mistyped = Some(format!(
                    "json: cannot unmarshal {} into Go struct field {holder}.{} of type {}",
                    json_name(value),
                    field_of(path),
                    go_name(wanted, schema)
                ));
            }
            return;
        }
        match value {
            Value::Object(fields) => {
                if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                    let required = |name: &str| {
                        schema
                            .get("required")
                            .and_then(Value::as_array)
                            .is_some_and(|list| list.iter().any(|n| n == name))
                    };
                    fields.retain(|name, inner| {
                        let at = path.len();
                        if at > 0 {
                            path.push('.');
                        }
                        path.push_str(name);
                        let keep = match properties.get(name) {
                            None => {
                                found.unknown.push(path.replace('\u{0}', "."));
                                false
                            }
                            Some(_) if inner.is_null() => false,
                            Some(property) => {
                                self.walk(property, inner, path, inner_holder, found);
                                required(name) || !self.leaves_no_trace(name, property, inner)
                            }
                        };
                        path.truncate(at);
                        keep
                    });
                } else if let Some(item) = schema.get("additionalProperties").filter(|item| item.is_object()) {
                    for (name, inner) in fields.iter_mut() {
                        let at = path.len();
                        if inner.is_null() && self.resolve(item).get("type").and_then(Value::as_str) == Some("string") {
                            *inner = Value::String(String::new());
                        }
                        path.push('\u{0}');
                        path.push_str(name);
                        self.walk(item, inner, path, holder, found);
                        path.truncate(at);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(item) = schema.get("items") {
                    for (n, inner) in items.iter_mut().enumerate() {
                        let at = path.len();
                        let _ = write!(path, "[{n}]");
                        self.walk(item, inner, path, inner_holder, found);
                        path.truncate(at);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether an encoder leaves this optional field out: empty text, lists and maps.
    fn leaves_no_trace(&self, name: &str, schema: &'a Value, value: &Value) -> bool {
        match value {
            _ if is_opaque(schema) => false,
            Value::Array(items) => items.is_empty(),
            Value::String(text) => text.is_empty() && !holds_empty_text(name),
            Value::Object(fields) => fields.is_empty() && self.resolve(schema).get("additionalProperties").is_some(),
            _ => false,
        }
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema
        .get("$ref")
        .or_else(|| schema.get("allOf").and_then(|all| all.get(0)).and_then(|first| first.get("$ref")))
        .and_then(Value::as_str)
}

/// Optional fields for which empty text differs from a missing field.
fn holds_empty_text(name: &str) -> bool {
    matches!(
        name,
        "ingressClassName"
            | "pathType"
            | "holderIdentity"
            | "preferredHolder"
            | "strategy"
            | "apiGroup"
            | "appProtocol"
            | "loadBalancerClass"
            | "ipFamilyPolicy"
            | "ipMode"
            | "hostname"
            | "nodeName"
            | "zone"
            | "default"
            | "value"
    )
}

/// The struct field of a path: without list indexes and map keys.
fn field_of(path: &str) -> String {
    let path = path.split('\u{0}').next().unwrap_or(path);
    let mut out = String::new();
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    // The one embedded struct that our users meet.
    out.replace("spec.rules.http", "spec.rules.IngressRuleValue.http")
}

fn mismatch(wanted: Option<&str>, path: &str, value: &Value) -> String {
    let path = path.replace('\u{0}', ".");
    let wanted = match wanted {
        Some("object") => "map",
        Some("array") => "list",
        Some("integer" | "number") => "numeric (int or float)",
        Some(other) => other,
        None => "value",
    };
    let got = match (wanted, value) {
        ("map" | "list", Value::String(text)) => format!("&{{{text}}}"),
        ("map" | "list", other) => format!("&{{{other}}}"),
        ("numeric (int or float)", Value::String(_)) => "string".to_owned(),
        (_, Value::String(text)) => format!("&value.valueUnstructured{{Value:{text:?}}}"),
        (_, other) => format!("&value.valueUnstructured{{Value:{other}}}"),
    };
    format!(".{path}: expected {wanted}, got {got}")
}

/// Text that is not valid for its type: base64 and times.
fn ill_formed(schema: &Value, type_name: &str, value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    match (format, type_name) {
        ("byte", _) | (_, "ByteString") => {
            let wrong = text
                .bytes()
                .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'\n' | b'\r')));
            let at = wrong.or_else(|| (text.len() % 4 != 0).then(|| text.len() / 4 * 4))?;
            Some(format!("illegal base64 data at input byte {at}"))
        }
        ("date-time", "MicroTime") => {
            let zone = text.find(['Z', '+']).filter(|at| *at >= 19)?;
            let fraction = text.get(19..zone)?;
            let whole = fraction.len() == 7 && fraction.starts_with('.');
            (!whole).then(|| {
                let rest = &text[19..];
                format!("parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest:?} as \".000000\"")
            })
        }
        ("date-time", _) => text.parse::<jiff::Timestamp>().is_err().then(|| {
            format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\"")
        }),
        _ => None,
    }
}

/// Types that accept any JSON and have no schema for it.
fn is_opaque(schema: &Value) -> bool {
    reference(schema).and_then(|target| target.rsplit('.').next()).is_some_and(|name| {
        matches!(
            name,
            "JSON"
                | "JSONSchemaPropsOrArray"
                | "JSONSchemaPropsOrBool"
                | "JSONSchemaPropsOrStringArray"
                | "RawExtension"
                | "FieldsV1"
        )
    })
}

fn fits(wanted: Option<&str>, schema: &Value, value: &Value) -> bool {
    let int_or_string = schema.get("x-kubernetes-int-or-string").is_some()
        || schema.get("format").and_then(Value::as_str) == Some("int-or-string");
    if int_or_string && matches!(value, Value::Number(_) | Value::String(_)) {
        return true;
    }
    match (wanted, value) {
        (_, Value::Null)
        | (None, _)
        | (Some("string"), Value::String(_))
        | (Some("boolean"), Value::Bool(_))
        | (Some("object"), Value::Object(_))
        | (Some("array"), Value::Array(_))
        | (Some("number"), Value::Number(_)) => true,
        (Some("integer"), Value::Number(number)) => number.is_i64() || number.is_u64(),
        (Some(_), _) => false,
    }
}

fn json_name(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(number) if number.is_f64() => format!("number {number}"),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(_) => "array".into(),
        Value::Object(_) => "object".into(),
    }
}

fn go_name(wanted: Option<&str>, schema: &Value) -> String {
    let type_name = |schema: &Value| {
        reference(schema).and_then(|target| {
            let mut parts = target.rsplit('.');
            let (name, version) = (parts.next()?, parts.next()?);
            Some(format!("{version}.{name}"))
        })
    };
    match wanted {
        Some("boolean") => "bool".into(),
        Some("integer") if schema.get("format").and_then(Value::as_str) == Some("int64") => "int64".into(),
        Some("integer") => "int32".into(),
        Some("number") => "float64".into(),
        Some("array") => format!("[]{}", schema.get("items").and_then(type_name).unwrap_or_else(|| "string".into())),
        Some("object") => "map[string]string".into(),
        _ => "string".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::builtin::BUILTINS;
    use serde_json::json;

    fn schema(kind: &str) -> &'static Value {
        BUILTINS.iter().find(|row| row.kind().kind == kind).unwrap().schema()
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let mut object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a", "labels": {}, "odd": 1},
            "spec": {"rules": [{"host": "a.example", "extra": true}], "tls": [], "ingressClassName": null}
        });
        let findings = read(schema("Ingress"), "Ingress", &mut object);
        assert_eq!(findings.unknown, ["metadata.odd", "spec.rules[0].extra"]);
        assert_eq!(findings.mistyped, None);
        assert_eq!(object["spec"], json!({"rules": [{"host": "a.example"}]}));
        assert_eq!(object["metadata"], json!({"name": "a"}));
    }

    #[test]
    fn a_number_where_text_belongs_is_refused_as_the_decoder_does() {
        let mut object = json!({"metadata": {"name": "a"}, "data": {"n": 5}});
        let findings = read(schema("ConfigMap"), "ConfigMap", &mut object);
        assert_eq!(
            findings.mistyped.as_deref(),
            Some("json: cannot unmarshal number into Go struct field ConfigMap.data of type string")
        );
    }

    #[test]
    fn ports_may_be_numbers_or_names() {
        let mut object = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8080}]}});
        assert_eq!(read(schema("Service"), "Service", &mut object), Findings::default());
    }
}
