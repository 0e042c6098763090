//! Validation of a value against the OpenAPI part of a schema, error for error as kube-apiserver does it.
//!
//! Each check counts its successes, because the alternative of an `anyOf` or `oneOf` that got furthest is the one whose errors are
//! shown. On an update, the errors of a value that equals its correlated old value are tolerated.

use serde_json::{Map, Value, json};

use super::{
    FieldError,
    correlate::Correlated,
    formats,
    golang::{Num, child, number_text, quoted, subscript},
    node::{Additional, Node},
};

/// Validates `value`; error paths are put below `base`. With `old`, unchanged invalid values are tolerated.
pub(crate) fn validate(value: &Value, node: &Node, base: &str, old: Option<Correlated<'_>>) -> Vec<FieldError> {
    check(value, node, "", old).failures.into_iter().map(|failure| failure.into_error(base)).collect()
}

/// The errors of a check, and how many of its parts were valid.
#[derive(Default)]
struct Outcome {
    failures: Vec<Failure>,
    matches: u32,
}

struct Failure {
    /// The path inside the validated value.
    name: String,
    text: String,
    class: Class,
}

enum Class {
    Required,
    Type(Value),
    Enum {
        value: Value,
        allowed: Vec<Value>,
    },
    TooLong(i64),
    TooMany {
        actual: usize,
        max: i64,
    },
    Other(Value),
    /// About the whole value, without a path of its own.
    Whole,
}

impl Failure {
    fn into_error(self, base: &str) -> FieldError {
        let name = self.name.strip_prefix('.').unwrap_or(&self.name);
        let path = if name.is_empty() { base.to_owned() } else { child(base, name) };
        match self.class {
            Class::Required => FieldError::required(&path, ""),
            Class::Type(value) => FieldError::type_invalid(&path, &value, &self.text),
            Class::Enum { value, allowed } => {
                let allowed: Vec<String> = allowed
                    .iter()
                    .map(|value| value.as_str().map_or_else(|| super::golang::json_text(value), str::to_owned))
                    .collect();
                FieldError::not_supported(&path, &value, &allowed)
            }
            Class::TooLong(max) => FieldError::too_long(&path, max),
            Class::TooMany { actual, max } => FieldError::too_many(&path, actual, max),
            Class::Other(value) => FieldError::invalid(&path, &value, &self.text),
            Class::Whole => FieldError::invalid(base, &json!(""), &self.text),
        }
    }
}

impl Outcome {
    fn add(&mut self, failure: Failure) {
        if !self.failures.iter().any(|known| known.text == failure.text) {
            self.failures.push(failure);
        }
    }

    fn fail(&mut self, name: &str, class: Class, text: String) {
        self.add(Failure { name: name.to_owned(), text, class });
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for failure in other.failures {
            self.add(failure);
        }
    }

    fn valid(&self) -> bool {
        self.failures.is_empty()
    }
}

fn check(value: &Value, node: &Node, path: &str, old: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if value.is_null() {
        outcome.merge(check_type(value, node, path));
        outcome.merge(check_enum(value, node, path));
    } else {
        let format = formats::supported(node);
        if !node.types().is_empty() || format.is_some() {
            outcome.merge(check_type(value, node, path));
            outcome.matches += 1;
        }
        outcome.merge(check_combinations(value, node, path));
        outcome.matches += 1;
        if let Value::String(text) = value {
            outcome.merge(check_string(text, node, path));
            outcome.matches += 1;
            if let Some(format) = format.filter(|format| formats::known(format)) {
                outcome.merge(check_format(text, format, path));
                outcome.matches += 1;
            }
        }
        if let Value::Number(number) = value {
            outcome.merge(check_number(Num::of(number), node, path));
            outcome.matches += 1;
        }
        if let Value::Array(items) = value {
            outcome.merge(check_items(items, node, path, old));
            outcome.matches += 1;
        }
        outcome.merge(check_enum(value, node, path));
        outcome.matches += 1;
        if let Value::Object(fields) = value {
            outcome.merge(check_fields(fields, node, path, old));
            outcome.matches += 1;
        }
        outcome.matches += 1;
    }
    if !outcome.valid() && old.is_some_and(Correlated::unchanged) {
        outcome.failures.clear();
    }
    outcome
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) => match Num::of(number) {
            Num::Int(_) => "integer",
            Num::Float(_) => "number",
        },
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_type(value: &Value, node: &Node, path: &str) -> Outcome {
    let good = Outcome { failures: Vec::new(), matches: 1 };
    let types = node.types();
    let wrong = |expected: &str, actual: &str| {
        let mut outcome = Outcome::default();
        let text = format!("{path} in body must be of type {expected}: {}", quoted(actual));
        outcome.fail(path, Class::Type(json!(actual)), text);
        outcome
    };
    if value.is_null() {
        let refused = !types.is_empty() && !types.contains(&"null") && !node.nullable;
        return if refused { wrong(&types.join(","), "null") } else { good };
    }
    let actual = type_name(value);
    let whole_float = matches!(value, Value::Number(number) if matches!(Num::of(number), Num::Float(float) if is_integer(float)))
        && types.contains(&"integer");
    let integer_as_number = actual == "integer" && types.contains(&"number");
    let fits = types.contains(&actual) || whole_float || integer_as_number;
    let textual = matches!(value, Value::String(_) | Value::Array(_));
    if let Some(format) = formats::supported(node) {
        let native = match actual {
            "integer" => "int64",
            "number" => "float64",
            _ => "",
        };
        if !(textual || fits || native == format) {
            return wrong(format, native);
        }
        if !(types.contains(&"number") || types.contains(&"integer")) && textual {
            return good;
        }
    }
    if fits { good } else { wrong(&types.join(","), actual) }
}

/// Whether a float is an integer that JSON can carry exactly.
fn is_integer(value: f64) -> bool {
    const LIMIT: f64 = 9_007_199_254_740_991.0;
    if !value.is_finite() || value.abs() > LIMIT {
        return false;
    }
    let whole = value.trunc();
    let distance = (value - whole).abs();
    distance == 0.0 || (whole != 0.0 && distance / (value.abs() + whole.abs()) < 1e-9)
}

fn check_enum(value: &Value, node: &Node, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if !node.allowed.is_empty() && !node.allowed.iter().any(|allowed| same_in_enum(value, allowed)) {
        let text = format!("{path} in body should be one of {}", go_list(&node.allowed));
        outcome.fail(path, Class::Enum { value: value.clone(), allowed: node.allowed.clone() }, text);
    }
    outcome
}

fn same_in_enum(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) => false,
        (Value::Number(value), Value::Number(allowed)) => match (Num::of(value), Num::of(allowed)) {
            (Num::Int(value), Num::Int(allowed)) => value == allowed,
            // The original converts to the allowed value's type first, which cuts off the fraction.
            (Num::Float(value), Num::Int(allowed)) => truncated(value) == allowed,
            #[allow(clippy::float_cmp)] // Equality is what the original asks for.
            (value, allowed) => value.float() == allowed.float(),
        },
        (value, allowed) => value == allowed,
    }
}

fn go_list(values: &[Value]) -> String {
    let texts: Vec<String> = values
        .iter()
        .map(|value| match value {
            Value::String(text) => text.clone(),
            Value::Null => "<nil>".to_owned(),
            other => super::golang::bad_value(other),
        })
        .collect();
    format!("[{}]", texts.join(" "))
}

fn check_string(text: &str, node: &Node, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(max) = node.max_length.filter(|max| length > *max) {
        outcome.fail(path, Class::TooLong(max), format!("{path} in body should be at most {max} chars long"));
    } else if let Some(min) = node.min_length.filter(|min| length < *min) {
        outcome.fail(path, Class::Other(json!(text)), format!("{path} in body should be at least {min} chars long"));
    } else if let Some(pattern) = &node.pattern {
        match &pattern.regex {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => outcome.fail(
                path,
                Class::Other(json!(text)),
                format!("{path} in body should match '{}'", pattern.source),
            ),
            Err(error) => outcome.fail(
                path,
                Class::Other(json!(text)),
                format!("{path} in body should match '{}, but pattern is invalid: {error}'", pattern.source),
            ),
        }
    }
    outcome
}

fn check_format(text: &str, format: &str, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if !formats::valid(format, text) {
        let message = format!("{path} in body must be of type {format}: {}", quoted(text));
        outcome.fail(path, Class::Type(json!(text)), message);
    }
    outcome
}

fn check_number(value: Num, node: &Node, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let kind = if node.int_or_string { "" } else { node.kind.as_deref().unwrap_or_default() };
    let format = match (kind, node.format.as_deref()) {
        ("integer", Some(format @ ("int32" | "int64"))) | ("number", Some(format @ ("float" | "double"))) => format,
        _ => "",
    };
    let range = |subject: &str, number: Num| -> Option<String> {
        let fits = match (kind, format) {
            ("integer", "int32") => as_integer(number).is_some_and(|number| i32::try_from(number).is_ok()),
            ("integer", _) => as_integer(number).is_some(),
            ("number", "float") => number.float().abs() <= f64::from(f32::MAX),
            _ => true,
        };
        let described = if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
        (!fits).then(|| format!("{subject} value must be of type {kind} {described} in {path}"))
    };
    if let Some(text) = range("Checked", value) {
        outcome.fail("", Class::Whole, text);
    }
    if let Some(factor) = node.multiple_of {
        let misfit = range("MultipleOf", Num::Float(factor));
        let shown = match (value, &misfit) {
            (Num::Int(_), None) => Num::Int(truncated(factor)),
            _ => Num::Float(factor),
        };
        if let Some(text) = misfit {
            outcome.fail("", Class::Whole, text);
        }
        if shown.float() <= 0.0 {
            let shown_text = number_text(shown);
            let text = format!("factor MultipleOf declared for {path} must be positive: {shown_text}");
            outcome.fail(path, Class::Other(to_json(shown)), text);
        } else {
            let multiple = match (value, shown) {
                (Num::Int(value), Num::Int(factor)) => value % factor == 0,
                _ => is_integer(if factor < 1.0 { 1.0 / factor * value.float() } else { value.float() / factor }),
            };
            if !multiple {
                let text = format!("{path} in body should be a multiple of {}", number_text(shown));
                outcome.fail(path, Class::Other(to_json(value)), text);
            }
        }
    }
    for (bound, exclusive, subject, below) in [
        (node.minimum, node.exclusive_minimum, "Minimum boundary", true),
        (node.maximum, node.exclusive_maximum, "Maximum boundary", false),
    ] {
        let Some(bound) = bound else { continue };
        let misfit = range(subject, Num::Float(bound));
        let (order, shown) = match (value, &misfit) {
            (Num::Int(value), None) => {
                let bound = truncated(bound);
                (Some(value.cmp(&bound)), Num::Int(bound))
            }
            _ => (value.float().partial_cmp(&bound), Num::Float(bound)),
        };
        if let Some(text) = misfit {
            outcome.fail("", Class::Whole, text);
        }
        let outside = match order {
            Some(std::cmp::Ordering::Equal) => exclusive,
            Some(std::cmp::Ordering::Less) => below,
            Some(std::cmp::Ordering::Greater) => !below,
            None => false,
        };
        if outside {
            let relation = match (below, exclusive) {
                (true, false) => "greater than or equal to",
                (true, true) => "greater than",
                (false, false) => "less than or equal to",
                (false, true) => "less than",
            };
            let text = format!("{path} in body should be {relation} {}", number_text(shown));
            outcome.fail(path, Class::Other(to_json(value)), text);
        }
    }
    outcome.matches += 1;
    outcome
}

fn to_json(value: Num) -> Value {
    match value {
        Num::Int(value) => json!(value),
        Num::Float(value) => json!(value),
    }
}

#[allow(clippy::cast_possible_truncation)] // Saturates, as a bound beyond the integers should.
fn truncated(value: f64) -> i64 {
    value as i64
}

#[allow(clippy::cast_precision_loss)]
fn as_integer(value: Num) -> Option<i64> {
    match value {
        Num::Int(value) => Some(value),
        Num::Float(value) => {
            (value.fract() == 0.0 && value >= i64::MIN as f64 && value < i64::MAX as f64).then(|| truncated(value))
        }
    }
}

fn check_items(items: &[Value], node: &Node, path: &str, old: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(item_node) = node.items.as_deref() {
        for (index, item) in items.iter().enumerate() {
            let old_item = old.and_then(|old| old.index(index));
            outcome.merge(check(item, item_node, &subscript(path, index), old_item));
        }
    }
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(min) = node.min_items.filter(|min| size < *min) {
        outcome.fail(path, Class::Other(json!(size)), format!("{path} in body should have at least {min} items"));
    }
    if let Some(max) = node.max_items.filter(|max| size > *max) {
        let text = format!("{path} in body should have at most {max} items");
        outcome.fail(path, Class::TooMany { actual: items.len(), max }, text);
    }
    if node.unique_items && items.iter().enumerate().any(|(index, item)| items[..index].contains(item)) {
        outcome.fail(path, Class::Other(json!("")), format!("{path} in body shouldn't contain duplicates"));
    }
    outcome.matches += 1;
    outcome
}

fn check_fields(fields: &Map<String, Value>, node: &Node, path: &str, old: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    let size = i64::try_from(fields.len()).unwrap_or(i64::MAX);
    if let Some(min) = node.min_properties.filter(|min| size < *min) {
        outcome.fail(path, Class::Other(json!(size)), format!("{path} in body should have at least {min} properties"));
    }
    if let Some(max) = node.max_properties.filter(|max| size > *max) {
        let text = format!("{path} in body should have at most {max} properties");
        outcome.fail(path, Class::TooMany { actual: fields.len(), max }, text);
    }
    let field_old = |name: &str| {
        // The API version and kind of the root are converted before they are compared, so their old values are not compared.
        if path.is_empty() && matches!(name, "apiVersion" | "kind") { None } else { old.and_then(|old| old.key(name)) }
    };
    for (name, value) in fields.iter().filter(|(name, _)| !node.properties.contains_key(*name)) {
        match &node.additional {
            Some(Additional::Schema(additional)) => {
                outcome.merge(check(value, additional, &format!("{path}.{name}"), field_old(name)));
            }
            Some(Additional::Allowed(false)) => {
                outcome.fail(path, Class::Other(json!(name)), format!("{path}.{name} in body is a forbidden property"));
            }
            Some(Additional::Allowed(true)) | None => {}
        }
    }
    for (name, property) in &node.properties {
        if let Some(value) = fields.get(name) {
            outcome.merge(check(value, property, &child(path, name), field_old(name)));
        }
    }
    for name in node.required.iter().filter(|name| !fields.contains_key(*name)) {
        let name = format!("{path}.{name}");
        let text = format!("{name} in body is required");
        outcome.fail(&name, Class::Required, text);
    }
    outcome
}

/// `anyOf`, `oneOf`, `allOf` and `not`; old values are ignored inside them.
fn check_combinations(value: &Value, node: &Node, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if !node.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut found = false;
        for alternative in &node.any_of {
            let result = check(value, alternative, path, None);
            if result.valid() {
                best = Some(result);
                found = true;
                break;
            }
            if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if !found {
            outcome.fail("", Class::Whole, format!("{} must validate at least one schema (anyOf)", quoted(path)));
        }
        if let Some(best) = best {
            outcome.merge(best);
        }
    }
    if !node.one_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut first: Option<Outcome> = None;
        let mut valid = 0;
        for alternative in &node.one_of {
            let result = check(value, alternative, path, None);
            if result.valid() {
                valid += 1;
                best = None;
                first.get_or_insert(result);
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if valid == 1 {
            outcome.merge(first.unwrap_or_default());
        } else {
            let found =
                if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
            let text = format!("{} must validate one and only one schema (oneOf). {found}", quoted(path));
            outcome.fail("", Class::Whole, text);
            if let Some(best) = best {
                outcome.merge(best);
            }
        }
    }
    if !node.all_of.is_empty() {
        let mut valid = 0;
        for part in &node.all_of {
            let result = check(value, part, path, None);
            valid += usize::from(result.valid());
            outcome.merge(result);
        }
        if valid != node.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            outcome.fail("", Class::Whole, format!("{} must validate all the schemas (allOf){none}", quoted(path)));
        }
    }
    if node.not.as_deref().is_some_and(|not| check(value, not, path, None).valid()) {
        outcome.fail("", Class::Whole, format!("{} must not validate the schema (not)", quoted(path)));
    }
    outcome.matches += 1;
    outcome
}
