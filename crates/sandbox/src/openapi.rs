//! OpenAPI documents: what `kubectl explain` reads, and what kubectl reads to find which options a server supports.
//!
//! In: the schemas of CRDs and of k8s-openapi's types. Out: one version 3 document per group and version, made when asked for.
//!
//! kubectl turns to version 2 for a kind that version 3 does not have (an unknown kind, which it then reports), so that document exists and
//! defines nothing. Without it kubectl complains of the server instead.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::{
    kinds::{Kind, Origin},
    render,
    status::ApiError,
    world::SandboxState,
};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// An OpenAPI document and its media type.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) body: Bytes,
    pub(crate) content_type: &'static str,
}

/// Answers a path under `/openapi`.
pub(crate) fn serve(world: &SandboxState, path: &str, accept: &str) -> Result<Document, ApiError> {
    let json = |value: &Value| Ok(Document { body: render::to_bytes(value), content_type: "application/json" });
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match segments.as_slice() {
        ["openapi", "v2"] if accept.contains("protobuf") => Ok(Document {
            // The message with nothing but `swagger: "2.0"`.
            body: Bytes::from_static(b"\x0a\x032.0"),
            content_type: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        }),
        ["openapi", "v2"] => json(&json!({
            "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": {}, "definitions": {}
        })),
        ["openapi", "v3"] => json(&index(world)),
        ["openapi", "v3", "api", version] => json(&document(world, "", version)?),
        ["openapi", "v3", "apis", group, version] => json(&document(world, group, version)?),
        _ => Err(ApiError::no_such_path()),
    }
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn index(world: &SandboxState) -> Value {
    let versions: BTreeSet<(&str, &str)> =
        world.catalog.iter().map(|kind| (kind.group.as_str(), kind.version.as_str())).collect();
    let paths: Map<String, Value> = versions
        .into_iter()
        .map(|(group, version)| {
            // The hash names the content, because clients keep documents by it.
            let mut hasher = DefaultHasher::new();
            for kind in kinds(world, group, version) {
                kind.plural.hash(&mut hasher);
                if let Origin::Custom(custom) = &kind.origin {
                    custom.schema.raw().to_string().hash(&mut hasher);
                }
            }
            let path = path_of(group, version);
            let url = format!("/openapi/v3/{path}?hash={:016X}", hasher.finish());
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

fn kinds<'a>(world: &'a SandboxState, group: &str, version: &str) -> impl Iterator<Item = &'a Arc<Kind>> {
    world.catalog.iter().filter(move |kind| kind.group == group && kind.version == version)
}

fn document(world: &SandboxState, group: &str, version: &str) -> Result<Value, ApiError> {
    if !world.catalog.has_group_version(group, version) {
        return Err(ApiError::no_such_path());
    }
    let (mut schemas, mut paths) = (Map::new(), Map::new());
    for kind in kinds(world, group, version) {
        let name = add_schema(kind, &mut schemas);
        add_paths(kind, &name, &mut paths);
    }
    Ok(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": schemas}
    }))
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// Adds the schema of a kind and all it refers to; answers its name.
fn add_schema(kind: &Kind, schemas: &mut Map<String, Value>) -> String {
    match &kind.origin {
        Origin::Builtin(builtin) => {
            let mut schema = builtin.schema().clone();
            let name = schema["title"].as_str().unwrap_or(&kind.kind).to_owned();
            add_definitions(&mut schema, schemas);
            schema["x-kubernetes-group-version-kind"] = json!([gvk(kind)]);
            schemas.insert(name.clone(), schema);
            name
        }
        Origin::Custom(custom) => {
            let reversed: Vec<&str> = kind.group.rsplit('.').collect();
            let name = format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind);
            let mut schema = custom.schema.raw().clone();
            if !schemas.contains_key(OBJECT_META) {
                let mut meta: Value = schemars::schema_for!(ObjectMeta).into();
                add_definitions(&mut meta, schemas);
                schemas.insert(OBJECT_META.into(), meta);
            }
            if !schema["properties"].is_object() {
                schema["properties"] = json!({});
            }
            schema["properties"]["apiVersion"] = json!({
                "type": "string",
                "description": "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
            });
            schema["properties"]["kind"] = json!({
                "type": "string",
                "description": "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
            });
            schema["properties"]["metadata"] = json!({
                "allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}],
                "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
            });
            schema["x-kubernetes-group-version-kind"] = json!([gvk(kind)]);
            schemas.insert(name.clone(), schema);
            name
        }
    }
}

/// Moves the definitions of a JSON schema into the components, and its references with them.
fn add_definitions(schema: &mut Value, schemas: &mut Map<String, Value>) {
    let definitions = schema.as_object_mut().and_then(|fields| {
        fields.remove("$schema");
        fields.remove("title");
        fields.remove("$defs")
    });
    rewrite(schema);
    if let Some(Value::Object(definitions)) = definitions {
        for (name, mut definition) in definitions {
            if !schemas.contains_key(&name) {
                rewrite(&mut definition);
                schemas.insert(name, definition);
            }
        }
    }
}

fn rewrite(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.remove("$ref") {
                let target = target.replace("#/$defs/", "#/components/schemas/");
                if fields.is_empty() {
                    fields.insert("$ref".into(), Value::String(target));
                } else {
                    fields.insert("allOf".into(), json!([{"$ref": target}]));
                }
                return;
            }
            fields.values_mut().for_each(rewrite);
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite),
        _ => {}
    }
}

fn add_paths(kind: &Kind, schema: &str, paths: &mut Map<String, Value>) {
    let root = format!("/{}", path_of(&kind.group, &kind.version));
    let collection = if kind.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("{root}/{}", kind.plural)
    };
    let reference = json!({"$ref": format!("#/components/schemas/{schema}")});
    let responses = json!({"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}});
    let query = |names: &[&str]| -> Vec<Value> {
        names
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .collect()
    };
    let operation = |action: &str, parameters: &[&str]| {
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk(kind),
            "parameters": query(parameters),
            "responses": responses,
        })
    };
    let writing = ["dryRun", "fieldManager", "fieldValidation"];
    let place = if kind.namespaced {
        json!([{"name": "namespace", "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}}])
    } else {
        json!([])
    };
    let mut many = json!({"post": operation("post", &writing), "parameters": place});
    if !kind.is_review() {
        many["get"] = operation("list", &["labelSelector", "fieldSelector", "limit", "continue", "watch"]);
        let mut patch = operation("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]);
        let any = json!({"schema": {"type": "object"}});
        patch["requestBody"] = json!({"required": true, "content": {
            "application/apply-patch+yaml": any, "application/json-patch+json": any, "application/merge-patch+json": any
        }});
        paths.insert(
            format!("{collection}/{{name}}"),
            json!({
                "get": operation("get", &[]), "put": operation("put", &writing), "patch": patch,
                "delete": operation("delete", &["dryRun", "propagationPolicy"]), "parameters": place
            }),
        );
        if kind.namespaced {
            paths.insert(
                format!("{root}/{}", kind.plural),
                json!({"get": operation("list", &["labelSelector", "fieldSelector", "limit", "continue", "watch"])}),
            );
        }
    }
    paths.insert(collection, many);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SandboxOptions;

    #[test]
    fn every_reference_of_every_document_is_answered() {
        fn references(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(target)) = fields.get("$ref") {
                        found.insert(target.rsplit('/').next().unwrap().to_owned());
                    }
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let world = SandboxState::new(&SandboxOptions::default());
        for path in index(&world)["paths"].as_object().unwrap().keys() {
            let document = serve(&world, &format!("/openapi/v3/{path}"), "").unwrap();
            let document: Value = serde_json::from_slice(&document.body).unwrap();
            let mut found = BTreeSet::new();
            references(&document, &mut found);
            for name in found {
                assert!(document["components"]["schemas"].get(&name).is_some(), "{path}: {name}");
            }
        }
    }
}
