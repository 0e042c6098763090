//! Both shapes of the kinds of pangolin-operator, as far as they matter here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// Which shape PangolinResource has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Single,
    Multi,
}

/// The kinds of this shape.
pub(crate) fn crds(kind: Kind) -> Vec<CustomResourceDefinition> {
    let text = json!({"type": "string"});
    let port = json!({"type": "integer", "minimum": 1, "maximum": 65535});
    let method = json!({"type": "string", "enum": ["http", "https", "tcp", "udp"], "default": "http"});
    let mut target = json!({"type": "object", "required": ["ip", "port"], "properties": {"ip": text, "port": port, "method": method}});
    let mut spec = json!({
        "name": text, "protocol": text, "resourceId": text,
        "enabled": {"type": "boolean", "default": true},
        "tunnelRef": {"type": "object", "required": ["name"], "properties": {"name": text}},
        "httpConfig": {"type": "object", "required": ["subdomain"], "properties": {
            "subdomain": {"type": "string", "minLength": 1}, "domainId": text, "domainName": text}},
    });
    match kind {
        Kind::Single => spec["target"] = target,
        Kind::Multi => {
            target["properties"]["path"] = text.clone();
            target["properties"]["pathMatchType"] = json!({"type": "string", "enum": ["exact", "prefix", "regex"]});
            target["properties"]["priority"] =
                json!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 100});
            spec["targets"] = json!({"type": "array", "items": target});
            spec["tunnelRef"]["properties"]["namespace"] = text.clone();
            spec["httpConfig"]["properties"]["sso"] = json!({"type": "boolean"});
            spec["httpConfig"]["properties"]["blockAccess"] = json!({"type": "boolean"});
        }
    }
    let status = json!({
        "status": {"type": "string", "enum": ["Creating", "Ready", "Error", "Deleting", "Waiting"]},
        "resourceId": text, "fullDomain": text, "url": text,
        "targetIds": {"type": "array", "items": text},
        "observedGeneration": {"type": "integer", "format": "int64"},
        "conditions": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    });
    let resource = (json!({"type": "object", "properties": spec}), json!({"type": "object", "properties": status}));
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    vec![
        crd("PangolinResource", &resource.0, &resource.1),
        crd("PangolinTunnel", &free, &free),
        crd("PangolinOrganization", &free, &free),
    ]
}

fn crd(kind: &str, spec: &Value, status: &Value) -> CustomResourceDefinition {
    let plural = format!("{}s", kind.to_lowercase());
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.tunnel.pangolin.io")},
        "spec": {
            "group": "tunnel.pangolin.io", "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": spec, "status": status}}},
            }],
        },
    }))
    .unwrap()
}
