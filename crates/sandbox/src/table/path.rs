//! The part of JSONPath that printer columns use: fields, indexes, wildcards and equality filters; the first match counts.

use serde_json::Value;

/// The first value at `path`, such as `.status.conditions[?(@.type=="Ready")].status`.
pub(crate) fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path)?
        .iter()
        .try_fold(vec![object], |at, step| {
            let next: Vec<&Value> = at.into_iter().flat_map(|value| step.apply(value)).collect();
            if next.is_empty() { None } else { Some(next) }
        })?
        .into_iter()
        .next()
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Equal(Vec<String>, Value),
    NotEqual(Vec<String>, Value),
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(n) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if *n < 0 { len + n } else { *n };
                usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            Step::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Step::Equal(path, wanted) => filter(value, |item| inner(item, path) == Some(wanted)),
            Step::NotEqual(path, wanted) => {
                filter(value, |item| inner(item, path).is_some_and(|found| found != wanted))
            }
        }
    }
}

fn filter(value: &Value, keep: impl Fn(&Value) -> bool) -> Vec<&Value> {
    value.as_array().into_iter().flatten().filter(|item| keep(item)).collect()
}

fn inner<'a>(item: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(item, |at, name| at.get(name))
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (name, tail) = field(after);
            if !name.is_empty() {
                steps.push(if name == "*" { Step::All } else { Step::Field(name) });
            }
            rest = tail;
        } else if rest.starts_with('[') {
            let end = closing(rest)?;
            steps.push(bracket(&rest[1..end])?);
            rest = &rest[end + 1..];
        } else {
            let (name, tail) = field(rest);
            if name.is_empty() {
                return None;
            }
            steps.push(Step::Field(name));
            rest = tail;
        }
    }
    Some(steps)
}

/// Where the bracket that opens the text closes, quotes respected.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            (Some(_) | None, _) => {}
        }
    }
    None
}

/// A field name up to the next `.` or `[`; `\.` is a dot of the name.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                if let Some((_, escaped)) = chars.next() {
                    name.push(escaped);
                }
            }
            '.' | '[' => return (name, &text[at..]),
            c => name.push(c),
        }
    }
    (name, "")
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Ok(n) = text.parse() {
        return Some(Step::Index(n));
    }
    if let Some(name) = unquoted(text) {
        return Some(Step::Field(name));
    }
    let condition = text.strip_prefix("?(")?.strip_suffix(')')?.trim();
    let (left, right, equal) = match (condition.split_once("=="), condition.split_once("!=")) {
        (Some((left, right)), _) => (left, right, true),
        (None, Some((left, right))) => (left, right, false),
        (None, None) => return None,
    };
    let path: Vec<String> =
        left.trim().strip_prefix('@')?.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let right = right.trim();
    let wanted = match unquoted(right) {
        Some(text) => Value::String(text),
        None => serde_json::from_str(right).ok()?,
    };
    Some(if equal { Step::Equal(path, wanted) } else { Step::NotEqual(path, wanted) })
}

fn unquoted(text: &str) -> Option<String> {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_paths_of_printer_columns_are_found() {
        let object = json!({
            "metadata": {"labels": {"example.com/a": "x"}},
            "spec": {"list": [{"n": 1}, {"n": 2}]},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}
        });
        let cases = [
            (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True"))),
            (".status.conditions[?(@.type=='Gone')].status", None),
            (".spec.list[1].n", Some(json!(2))),
            (".spec.list[*].n", Some(json!(1))),
            (".spec.list[-1].n", Some(json!(2))),
            (".metadata.labels.example\\.com/a", Some(json!("x"))),
            (".metadata.labels['example.com/a']", Some(json!("x"))),
            (".nothing.here", None),
        ];
        for (path, expected) in cases {
            assert_eq!(find(&object, path).cloned(), expected, "{path}");
        }
    }
}
