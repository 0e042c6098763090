//! One node of a schema, read from JSON once so that every later walk is cheap.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::{
    FieldError,
    golang::{self, child, subscript},
};

/// A schema node; absent keywords are `None`, empty or false.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // They are the schema language's own keywords.
pub(crate) struct Node {
    pub(crate) kind: Option<String>,
    pub(crate) format: Option<String>,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) additional: Option<Additional>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list_type: Option<String>,
    pub(crate) list_map_keys: Vec<String>,
    pub(crate) map_type: Option<String>,
    pub(crate) rules: Vec<RuleText>,
}

/// `additionalProperties`: a schema for the other fields, or whether they are allowed.
#[derive(Debug)]
pub(crate) enum Additional {
    Allowed(bool),
    Schema(Box<Node>),
}

/// A pattern with its compiled form, or why it does not compile.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: String,
    pub(crate) regex: Result<Regex, String>,
}

/// One entry of `x-kubernetes-validations`, as written.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleText {
    pub(crate) rule: String,
    pub(crate) message: String,
    pub(crate) message_expression: String,
    pub(crate) reason: Option<String>,
    pub(crate) field_path: String,
    pub(crate) optional_old_self: bool,
}

impl Node {
    pub(crate) fn read(schema: &Value) -> Self {
        let empty = Map::new();
        let fields = schema.as_object().unwrap_or(&empty);
        let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        let flag = |key: &str| fields.get(key).and_then(Value::as_bool).unwrap_or(false);
        let float = |key: &str| fields.get(key).and_then(Value::as_f64);
        let count = |key: &str| fields.get(key).and_then(Value::as_i64);
        let list = |key: &str| fields.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let texts =
            |key: &str| -> Vec<String> { list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect() };
        let nodes = |key: &str| -> Vec<Self> { list(key).iter().map(Self::read).collect() };
        let boxed =
            |key: &str| fields.get(key).filter(|value| value.is_object()).map(|value| Box::new(Self::read(value)));
        Self {
            kind: text("type").filter(|kind| !kind.is_empty()),
            format: text("format").filter(|format| !format.is_empty()),
            nullable: flag("nullable"),
            default: fields.get("default").filter(|value| !value.is_null()).cloned(),
            maximum: float("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: float("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            multiple_of: float("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: text("pattern")
                .filter(|source| !source.is_empty())
                .map(|source| Pattern { regex: golang::regex(&source), source }),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: flag("uniqueItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: texts("required"),
            allowed: list("enum").to_vec(),
            items: boxed("items"),
            properties: fields
                .get("properties")
                .and_then(Value::as_object)
                .map(|properties| properties.iter().map(|(name, node)| (name.clone(), Self::read(node))).collect())
                .unwrap_or_default(),
            additional: match fields.get("additionalProperties") {
                Some(Value::Bool(allowed)) => Some(Additional::Allowed(*allowed)),
                Some(node @ Value::Object(_)) => Some(Additional::Schema(Box::new(Self::read(node)))),
                _ => None,
            },
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: boxed("not"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: text("x-kubernetes-list-type"),
            list_map_keys: texts("x-kubernetes-list-map-keys"),
            map_type: text("x-kubernetes-map-type"),
            rules: list("x-kubernetes-validations").iter().map(RuleText::read).collect(),
        }
    }

    /// The patterns that cannot be compiled: a value could not be checked by them.
    pub(crate) fn bad_patterns(&self, at: &str, errors: &mut Vec<FieldError>) {
        if let Some((pattern, error)) = self.pattern.as_ref().and_then(|it| Some((it, it.regex.as_ref().err()?))) {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            errors.push(FieldError::invalid(&child(at, "pattern"), &Value::from(&*pattern.source), &detail));
        }
        for (name, property) in &self.properties {
            property.bad_patterns(&subscript(&child(at, "properties"), name), errors);
        }
        for (name, nodes) in [("allOf", &self.all_of), ("anyOf", &self.any_of), ("oneOf", &self.one_of)] {
            for (index, node) in nodes.iter().enumerate() {
                node.bad_patterns(&subscript(&child(at, name), index), errors);
            }
        }
        let single = [("items", self.items.as_deref()), ("not", self.not.as_deref())];
        for (name, node) in single.into_iter().chain([("additionalProperties", self.additional_schema())]) {
            if let Some(node) = node {
                node.bad_patterns(&child(at, name), errors);
            }
        }
    }

    /// The schema of the fields that `properties` does not name.
    pub(crate) fn additional_schema(&self) -> Option<&Self> {
        match &self.additional {
            Some(Additional::Schema(node)) => Some(node),
            Some(Additional::Allowed(_)) | None => None,
        }
    }

    /// The schema of a field: the named property, else the one for additional fields.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional_schema())
    }

    /// The types a value may have, as validation names them.
    pub(crate) fn types(&self) -> &[&str] {
        match (self.int_or_string, self.kind.as_deref()) {
            (true, _) => &["integer", "string"],
            (false, Some("string")) => &["string"],
            (false, Some("integer")) => &["integer"],
            (false, Some("number")) => &["number"],
            (false, Some("boolean")) => &["boolean"],
            (false, Some("array")) => &["array"],
            (false, Some("object")) => &["object"],
            (false, Some("null")) => &["null"],
            (false, _) => &[],
        }
    }
}

impl std::fmt::Display for RuleText {
    /// The rule as an error about its compilation shows it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |text: &str| golang::json_text(&Value::from(text));
        let reason = self.reason.as_deref().map_or_else(|| "null".to_owned(), text);
        let optional = if self.optional_old_self { "true" } else { "null" };
        write!(
            f,
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
            text(&self.rule),
            text(&self.message),
            text(&self.message_expression),
            text(&self.field_path),
        )
    }
}

impl RuleText {
    fn read(rule: &Value) -> Self {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: rule.get("reason").and_then(Value::as_str).map(str::to_owned),
            field_path: text("fieldPath"),
            optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
        }
    }

    /// The errors in the rule apart from its expressions.
    pub(crate) fn check(&self, at: &str, errors: &mut Vec<FieldError>) {
        const REASONS: [&str; 4] =
            ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        if self.rule.trim().is_empty() {
            errors.push(FieldError::required(&child(at, "rule"), "rule is not specified"));
        }
        let message_at = child(at, "message");
        let shown = Value::String(self.message.clone());
        if !self.message.is_empty() && self.message.trim().is_empty() {
            errors.push(FieldError::invalid(&message_at, &shown, "must be non-empty if specified"));
        } else if self.message.trim().contains('\n') {
            errors.push(FieldError::invalid(&message_at, &shown, "must not contain line breaks"));
        } else if self.message.is_empty() && self.rule.trim().contains('\n') {
            errors.push(FieldError::required(&message_at, "message must be specified if rule contains line breaks"));
        }
        if let Some(reason) = self.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
            let supported = REASONS.map(str::to_owned);
            errors.push(FieldError::not_supported(&child(at, "reason"), &Value::from(reason), &supported));
        }
    }

    /// The name of the rule in an error about it: its message, else its text.
    pub(crate) fn name(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }
}
