//! The JSONPath of printer columns, such as `.status.conditions[?(@.type=="Ready")].status`; the first match counts.

use std::fmt::Write as _;

use jsonpath_rust::JsonPath;
use serde_json::Value;

/// The first value at `path`.
pub(crate) fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    object.query(&standard(path)).ok()?.into_iter().next()
}

/// A path of Kubernetes as RFC 9535 has it: with its root, and with names that contain dots in brackets.
fn standard(path: &str) -> String {
    let path = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    let mut out = String::from("$");
    let mut rest = if path.starts_with(['.', '[']) { path.to_owned() } else { format!(".{path}") };
    while let Some(escape) = rest.find("\\.") {
        let start = rest[..escape].rfind('.').unwrap_or(0);
        let tail = rest[start + 1..].replace("\\.", "\u{0}");
        let end = tail.find(['.', '[']).unwrap_or(tail.len());
        out.push_str(&rest[..start]);
        let _ = write!(out, "['{}']", tail[..end].replace('\u{0}', "."));
        rest = tail[end..].replace('\u{0}', "\\.");
    }
    out + &rest
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
