//! Comparing an answer with what a case expects.
//!
//! An expected object names the fields that matter; an expected list must match element by element, in full length.
//! Within: `<any>` (present), `<absent>`, `<matches REGEX>`, `<not TEXT>`; `{<has>: [..]}` finds each in a list,
//! `{<lacks>: [..]}` finds none, `{<exactly>: v}` compares all of it, `{<count>: n}` counts a list's or map's elements.

use regex::Regex;
use serde_json::Value;

/// Describes where and how `got` differs from what is expected; empty when it does not.
pub(crate) fn differences(expected: &Value, got: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    compare(expected, got, "", &mut found);
    found
}

fn compare(expected: &Value, got: Option<&Value>, path: &str, found: &mut Vec<String>) {
    let here = if path.is_empty() { "/" } else { path };
    match (expected, got) {
        (Value::String(text), _) if text == "<any>" => {
            if got.is_none_or(Value::is_null) {
                found.push(format!("{here}: expected a value, it is absent"));
            }
        }
        (Value::String(text), _) if text == "<absent>" => {
            if let Some(got) = got {
                found.push(format!("{here}: expected to be absent, it is {got}"));
            }
        }
        (Value::String(text), Some(got)) if text.starts_with('<') && text.ends_with('>') => {
            if let Some(problem) = match_text(text, got) {
                found.push(format!("{here}: {problem}"));
            }
        }
        (Value::Object(fields), _) if fields.len() == 1 && fields.keys().all(|key| key.starts_with('<')) => {
            for (operator, operand) in fields {
                compare_list(operator, operand, got, here, found);
            }
        }
        (Value::Object(fields), Some(Value::Object(values))) => {
            for (name, value) in fields {
                compare(value, values.get(name), &format!("{path}/{name}"), found);
            }
        }
        (Value::Array(elements), Some(Value::Array(values))) => {
            if elements.len() != values.len() {
                found.push(format!("{here}: expected {} elements, there are {}", elements.len(), values.len()));
            }
            for (number, element) in elements.iter().enumerate() {
                compare(element, values.get(number), &format!("{path}/{number}"), found);
            }
        }
        (Value::Number(expected), Some(Value::Number(got))) => {
            if expected.as_f64() != got.as_f64() || expected.is_f64() != got.is_f64() {
                found.push(format!("{here}: expected {expected}, got {got}"));
            }
        }
        (_, Some(got)) if got == expected => {}
        (_, Some(got)) => found.push(format!("{here}: expected {expected}, got {got}")),
        (_, None) => found.push(format!("{here}: expected {expected}, it is absent")),
    }
}

fn compare_list(operator: &str, operand: &Value, got: Option<&Value>, path: &str, found: &mut Vec<String>) {
    let elements = got.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let wanted = operand.as_array().map(Vec::as_slice).unwrap_or_default();
    let holds = |element: &Value| elements.iter().any(|got| differences(element, Some(got)).is_empty());
    match operator {
        "<has>" => {
            let missing = wanted.iter().filter(|element| !holds(element));
            found.extend(missing.map(|element| format!("{path}: no element matches {element}")));
        }
        "<lacks>" => {
            let unwanted = wanted.iter().filter(|element| holds(element));
            found.extend(unwanted.map(|element| format!("{path}: an element matches {element}")));
        }
        "<exactly>" => {
            if got != Some(operand) {
                found.push(format!("{path}: expected exactly {operand}, got {}", got.unwrap_or(&Value::Null)));
            }
        }
        "<count>" => {
            let fields = got.and_then(Value::as_object).map_or(0, serde_json::Map::len);
            let count = elements.len() + fields;
            if operand.as_u64() != Some(count as u64) {
                found.push(format!("{path}: expected {operand} elements, there are {count}"));
            }
        }
        other => panic!("unknown operator {other} in a case"),
    }
}

fn match_text(pattern: &str, got: &Value) -> Option<String> {
    let inner = &pattern[1..pattern.len() - 1];
    let text = got.as_str().map_or_else(|| got.to_string(), str::to_owned);
    if let Some(regex) = inner.strip_prefix("matches ") {
        let regex = Regex::new(&format!("^(?s:{regex})$")).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        return (!regex.is_match(&text)).then(|| format!("expected to match {regex}, got {text:?}"));
    }
    if let Some(unwanted) = inner.strip_prefix("not ") {
        return (text == unwanted).then(|| format!("expected anything but {unwanted:?}"));
    }
    (text != pattern).then(|| format!("expected {pattern:?}, got {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_named_fields_are_compared() {
        let got = json!({"a": 1, "b": {"c": [1, 2]}, "d": "x1"});
        for fits in [
            json!({}),
            json!({"b": {"c": [1, 2]}}),
            json!({"a": "<any>", "z": "<absent>", "d": "<matches x[0-9]>"}),
            json!({"b": {"c": {"<has>": [2]}}}),
            json!({"b": {"c": {"<lacks>": [3]}}}),
            json!({"b": {"<exactly>": {"c": [1, 2]}}, "d": "<not x2>"}),
            json!({"b": {"c": {"<count>": 2}}}),
        ] {
            assert_eq!(differences(&fits, Some(&got)), Vec::<String>::new());
        }
        for misfit in [
            json!({"a": 2}),
            json!({"a": 1.0}),
            json!({"a": "<absent>"}),
            json!({"z": "<any>"}),
            json!({"b": {"c": [1]}}),
            json!({"b": {"c": {"<has>": [3]}}}),
            json!({"b": {"c": {"<lacks>": [1]}}}),
            json!({"b": {"<exactly>": {}}}),
            json!({"d": "<matches x>"}),
            json!({"d": "<not x1>"}),
        ] {
            assert_ne!(differences(&misfit, Some(&got)), Vec::<String>::new(), "{misfit}");
        }
    }
}
