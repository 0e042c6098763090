//! YAML in and out: several documents per file, with errors that name the file, the document and the place.

use anyhow::Context;
use serde_json::Value;

/// Prints one object as YAML.
pub fn to_yaml(object: &Value) -> anyhow::Result<String> {
    serde_saphyr::to_string(object).context("printing YAML")
}

/// Prints objects as one YAML stream.
pub fn to_stream(objects: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(to_yaml(object)?.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// Reads the objects of a YAML file; empty documents are skipped, lists are expanded.
pub fn from_yaml(source: &str, text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| anyhow::anyhow!("{source} is not valid YAML: {error}"))?;
    for (number, document) in documents.into_iter().enumerate() {
        match document {
            Value::Null => {}
            Value::Object(ref fields)
                if fields.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List")) =>
            {
                objects.extend(fields.get("items").and_then(Value::as_array).cloned().unwrap_or_default());
            }
            Value::Object(ref fields) => {
                for field in ["apiVersion", "kind", "metadata"] {
                    anyhow::ensure!(fields.contains_key(field), "{source}: document {} has no {field}", number + 1);
                }
                objects.push(document);
            }
            other => anyhow::bail!("{source}: document {} is not an object but {other}", number + 1),
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_documents_and_lists_are_read_in_order() {
        let text = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: List\nmetadata: {}\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
        let names: Vec<_> = from_yaml("x.yaml", text).unwrap().iter().map(|o| o["metadata"]["name"].clone()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn invalid_yaml_is_reported_with_file_and_document() {
        let error = from_yaml("x.yaml", "a: [1").unwrap_err().to_string();
        assert!(error.starts_with("x.yaml is not valid YAML"), "{error}");
        assert_eq!(from_yaml("x.yaml", "- 1").unwrap_err().to_string(), "x.yaml: document 1 is not an object but [1]");
        assert_eq!(from_yaml("x.yaml", "kind: A\n").unwrap_err().to_string(), "x.yaml: document 1 has no apiVersion");
    }

    #[test]
    fn printed_objects_are_read_back() {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "yes", "x": "1.10", "y": "a: b\n#"}});
        assert_eq!(from_yaml("x", &to_yaml(&object).unwrap()).unwrap(), vec![object.clone()]);
        let two = [object.clone(), object];
        assert_eq!(from_yaml("x", &to_stream(&two).unwrap()).unwrap(), two);
    }
}
