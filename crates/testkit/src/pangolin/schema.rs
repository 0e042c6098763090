//! Strict objects: what the server checks about the keys and values of a body before anything else.

use serde_json::{Map, Value};

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Text of so many characters.
    Text(usize, usize),
    /// True or false.
    Bool,
    /// A whole number in this range.
    Int(i64, i64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list of `{name, value}`.
    Headers,
}

/// One field of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) required: bool,
    pub(super) nullable: bool,
}

/// Any text.
pub(super) const ANY: Kind = Kind::Text(0, usize::MAX);
/// Any number.
pub(super) const NUMBER: Kind = Kind::Int(i64::MIN, i64::MAX);

impl Field {
    pub(super) const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, required: false, nullable: false }
    }

    pub(super) const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub(super) const fn nullable(self) -> Self {
        Self { nullable: true, ..self }
    }

    fn accepts(&self, value: &Value) -> bool {
        if value.is_null() {
            return self.nullable;
        }
        match self.kind {
            Kind::Text(min, max) => value.as_str().is_some_and(|text| (min..=max).contains(&text.chars().count())),
            Kind::Bool => value.is_boolean(),
            Kind::Int(min, max) => value.as_i64().is_some_and(|number| (min..=max).contains(&number)),
            Kind::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Kind::Headers => value.as_array().is_some_and(|items| items.iter().all(is_header)),
        }
    }
}

fn is_header(item: &Value) -> bool {
    let Some(item) = item.as_object() else { return false };
    item.len() == 2 && ["name", "value"].iter().all(|key| item.get(*key).is_some_and(Value::is_string))
}

/// Checks a body; the error is the message of a 400.
pub(super) fn check(body: &Map<String, Value>, fields: &[Field]) -> Result<(), String> {
    let unknown: Vec<&String> = body.keys().filter(|key| fields.iter().all(|field| field.name != *key)).collect();
    if !unknown.is_empty() {
        return Err(unrecognized(unknown));
    }
    for field in fields {
        match body.get(field.name) {
            None if field.required => return Err(invalid(field.name)),
            Some(value) if !field.accepts(value) => return Err(invalid(field.name)),
            None | Some(_) => {}
        }
    }
    Ok(())
}

/// The message about keys that are not declared.
pub(super) fn unrecognized<T: AsRef<str>>(keys: impl IntoIterator<Item = T>) -> String {
    let keys: Vec<String> = keys.into_iter().map(|key| format!("{:?}", key.as_ref())).collect();
    let plural = if keys.len() == 1 { "" } else { "s" };
    format!("Validation error: Unrecognized key{plural}: {}", keys.join(", "))
}

/// The message about a value that is missing or of the wrong type.
pub(super) fn invalid(name: &str) -> String {
    format!("Validation error: Invalid input at \"{name}\"")
}
