//! Label and field selectors: parsing as the server does, matching against JSON objects.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::status::{ApiError, quoted};

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Missing(String),
    Greater(String, i64),
    Less(String, i64),
}

/// A parsed label selector; empty matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut requirements = Vec::new();
        for clause in split_outside_parentheses(text) {
            let clause = clause.trim();
            if !clause.is_empty() {
                let parsed = requirement(clause).ok_or_else(|| ApiError::bad_request(complaint(clause)))?;
                requirements.push(parsed);
            }
        }
        Ok(Self(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        let number = |key: &str| label(key).and_then(|value| value.parse::<i64>().ok());
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Missing(key) => label(key).is_none(),
            Requirement::Greater(key, bound) => number(key).is_some_and(|value| value > *bound),
            Requirement::Less(key, bound) => number(key).is_some_and(|value| value < *bound),
        })
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(clause: &str) -> Option<Requirement> {
    if let Some(key) = clause.strip_prefix('!') {
        return Some(Requirement::Missing(label_key(key)?));
    }
    if let Some(open) = clause.find('(') {
        let values: BTreeSet<String> =
            clause[open + 1..].strip_suffix(')')?.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = clause[..open].split_whitespace();
        let key = label_key(words.next()?)?;
        return match (words.next()?, words.next()) {
            ("in", None) => Some(Requirement::In(key, values)),
            ("notin", None) => Some(Requirement::NotIn(key, values)),
            _ => None,
        };
    }
    for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = clause.split_once(operator) {
            let values = BTreeSet::from([label_value(value)?]);
            let key = label_key(key)?;
            return Some(if equal { Requirement::In(key, values) } else { Requirement::NotIn(key, values) });
        }
    }
    if let Some((key, bound)) = clause.split_once('>') {
        return Some(Requirement::Greater(label_key(key)?, bound.trim().parse().ok()?));
    }
    if let Some((key, bound)) = clause.split_once('<') {
        return Some(Requirement::Less(label_key(key)?, bound.trim().parse().ok()?));
    }
    Some(Requirement::Exists(label_key(clause)?))
}

/// The error in a requirement that cannot be parsed.
fn complaint(clause: &str) -> String {
    let words: Vec<&str> = clause.split_whitespace().collect();
    let error = match words.as_slice() {
        [_, "in" | "notin", found, ..] => format!("found '{found}' expected: '('"),
        [_, "in" | "notin"] => "found '' expected: '('".to_owned(),
        _ => match clause.split_once('=') {
            Some((key, value)) if label_value(value).is_none() && !value.trim().contains(' ') => {
                let (key, value) = (key.trim_end_matches(['=', '!']).trim(), value.trim_start_matches('=').trim());
                let why = crate::kinds::names::label_value(value).join(", ");
                format!("values[0][{key}]: Invalid value: {}: {why}", quoted(value))
            }
            _ => format!("found '{}', expected: ',' or 'end of string'", words.last().unwrap_or(&"")),
        },
    };
    format!("unable to parse requirement: {error}")
}

fn label_key(text: &str) -> Option<String> {
    let key = text.trim();
    (!key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))).then(|| key.to_owned())
}

fn label_value(text: &str) -> Option<String> {
    let value = text.trim();
    value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)).then(|| value.to_owned())
}

/// A parsed field selector; empty matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// `supported` are the fields the resource can be selected by, besides its name and namespace.
    pub(crate) fn parse(text: &str, own_fields: bool, supported: &[String]) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for clause in split_unescaped(text) {
            if clause.is_empty() {
                continue;
            }
            let (field, equal, value) = ["!=", "==", "="]
                .into_iter()
                .find_map(|op| clause.split_once(op).map(|(field, value)| (field, op != "!=", value)))
                .ok_or_else(|| {
                    ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{clause}'"))
                })?;
            let known = matches!(field, "metadata.name" | "metadata.namespace") || supported.iter().any(|f| f == field);
            if !known {
                return Err(ApiError::bad_request(if own_fields {
                    format!("field label not supported: {field}")
                } else {
                    format!(
                        "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                        quoted(field)
                    )
                }));
            }
            terms.push((field.to_owned(), equal, unescaped(value)));
        }
        Ok(Self(terms))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Restricts to one object, as a watch of a named object does.
    pub(crate) fn and_name(mut self, name: &str) -> Self {
        self.0.push(("metadata.name".into(), true, name.into()));
        self
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(field, equal, wanted)| (field_text(object, field) == *wanted) == *equal)
    }
}

/// The text of a field by its dotted path; missing is empty.
fn field_text(object: &Value, path: &str) -> String {
    let mut at = object;
    for part in path.split('.') {
        match at.get(part) {
            Some(next) => at = next,
            None => return default_text(path),
        }
    }
    match at {
        Value::String(text) => text.clone(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
        other => other.to_string(),
    }
}

/// Fields whose absence means something: a typed object has their zero value.
fn default_text(path: &str) -> String {
    match path {
        "spec.unschedulable" | "spec.hostNetwork" => "false".into(),
        _ => String::new(),
    }
}

fn split_unescaped(text: &str) -> Vec<String> {
    let (mut parts, mut current, mut escaped) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            _ if escaped => {
                current.push('\\');
                current.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            ',' => parts.push(std::mem::take(&mut current)),
            c => current.push(c),
        }
    }
    parts.push(current);
    parts
}

fn unescaped(text: &str) -> String {
    let (mut out, mut escaped) = (String::new(), false);
    for c in text.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(c);
            escaped = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selectors_match_as_documented() {
        let object = json!({"metadata": {"labels": {"app": "dns", "tier": "edge", "n": "5"}}});
        let cases = [
            ("", true),
            ("app=dns", true),
            ("app==dns,tier!=core", true),
            ("app!=dns", false),
            ("missing!=x", true),
            ("app in (web, dns)", true),
            ("app notin (web,dns)", false),
            ("tier", true),
            ("!tier", false),
            ("!gone", true),
            ("n>4", true),
            ("n<5", false),
        ];
        for (text, expected) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), expected, "{text}");
        }
        assert!(LabelSelector::parse("a in b").is_err());
        assert!(LabelSelector::parse("a=b c").is_err());
    }

    #[test]
    fn a_field_that_cannot_be_selected_by_is_refused_by_name() {
        let error = FieldSelector::parse("spec.x=1", true, &[]).unwrap_err();
        assert!(error.message().ends_with("field label not supported: spec.x"), "{error}");
        let selector = FieldSelector::parse("spec.x=1,metadata.name!=b", true, &["spec.x".into()]).unwrap();
        assert!(selector.matches(&json!({"metadata": {"name": "a"}, "spec": {"x": 1}})));
        assert!(!selector.matches(&json!({"metadata": {"name": "b"}, "spec": {"x": 1}})));
    }
}
