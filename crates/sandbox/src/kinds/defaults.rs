//! The defaults of built-in kinds: on every write, and once on create.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use super::Kind;

/// Sets a field that is missing.
fn fill(object: &mut Value, field: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.entry(field).or_insert(value);
    }
}

/// A part of the object that typed encoders always write.
fn part<'a>(object: &'a mut Value, field: &str) -> &'a mut Value {
    fill(object, field, Value::Object(Map::new()));
    &mut object[field]
}

/// Defaults of every write of a built-in kind.
pub(crate) fn apply(kind: &Kind, object: &mut Value) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => {
            part(object, "spec");
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let metadata = part(object, "metadata");
            if !name.is_empty() {
                part(metadata, "labels")["kubernetes.io/metadata.name"] = Value::from(name);
            }
            part(object, "status");
        }
        ("", "Secret") => secret(object),
        ("", "Service") => service(object),
        ("networking.k8s.io", "Ingress") => {
            part(object, "spec");
            part(part(object, "status"), "loadBalancer");
        }
        ("networking.k8s.io", "IngressClass") => {
            let spec = part(object, "spec");
            if let Some(parameters) = spec.get_mut("parameters") {
                fill(parameters, "scope", json!("Cluster"));
            }
        }
        ("coordination.k8s.io", "Lease") => {
            part(object, "spec");
        }
        ("apps", "Deployment") => {
            let spec = part(object, "spec");
            let template = part(spec, "template");
            part(template, "metadata");
            part(template, "spec");
            part(object, "status");
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            if let Some(reference) = object.get_mut("roleRef") {
                fill(reference, "apiGroup", json!("rbac.authorization.k8s.io"));
            }
            for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
                if subject["kind"] != "ServiceAccount" {
                    fill(subject, "apiGroup", json!("rbac.authorization.k8s.io"));
                }
            }
        }
        ("rbac.authorization.k8s.io", _) => fill(object, "rules", Value::Null),
        _ => {}
    }
}

/// The parts that an otherwise empty object of a typed kind is encoded with.
pub(crate) fn zero(kind: &Kind, object: &mut Value) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Service") | ("networking.k8s.io", "Ingress") => {
            part(object, "spec");
            part(part(object, "status"), "loadBalancer");
        }
        ("", "Namespace" | "ResourceQuota") | ("apps", "Deployment") => {
            part(object, "spec");
            part(object, "status");
        }
        ("coordination.k8s.io", "Lease") | ("networking.k8s.io", "IngressClass") => {
            part(object, "spec");
        }
        _ => {}
    }
}

/// Fields that a create fills in and that no manager owns.
///
/// `address` counts the cluster IPs given out.
pub(crate) fn unowned_on_create(kind: &Kind, object: &mut Value, address: &mut u32) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        ("", "Service") => cluster_ip(object, address),
        _ => {}
    }
}

fn secret(object: &mut Value) {
    fill(object, "type", json!("Opaque"));
    if let Some(Value::Object(texts)) = object.as_object_mut().and_then(|map| map.remove("stringData")) {
        let data = part(object, "data");
        for (key, text) in texts {
            data[key] = Value::from(BASE64.encode(text.as_str().unwrap_or_default().as_bytes()));
        }
    }
}

fn service(object: &mut Value) {
    let spec = part(object, "spec");
    fill(spec, "type", json!("ClusterIP"));
    fill(spec, "sessionAffinity", json!("None"));
    let external = spec["type"] == "ExternalName";
    if !external {
        fill(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if matches!(spec["type"].as_str(), Some("LoadBalancer" | "NodePort")) {
        fill(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        fill(port, "targetPort", number);
    }
    let balancer = part(part(object, "status"), "loadBalancer");
    for ingress in balancer.get_mut("ingress").and_then(Value::as_array_mut).into_iter().flatten() {
        if ingress.get("ip").is_some() {
            fill(ingress, "ipMode", json!("VIP"));
        }
    }
}

fn cluster_ip(object: &mut Value, address: &mut u32) {
    let spec = part(object, "spec");
    if spec["type"] == "ExternalName" {
        return;
    }
    if spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().is_empty() {
        *address += 1;
        let n = *address;
        spec["clusterIP"] = Value::from(format!("10.96.{}.{}", (n >> 8) & 0xff, n & 0xff));
    }
    let ip = spec["clusterIP"].clone();
    fill(spec, "clusterIPs", json!([ip]));
    let free = ip == "None" && spec.get("selector").is_none();
    fill(spec, "ipFamilies", if free { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
    fill(spec, "ipFamilyPolicy", json!(if free { "RequireDualStack" } else { "SingleStack" }));
    if matches!(spec["type"].as_str(), Some("LoadBalancer" | "NodePort")) {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            *address += 1;
            fill(port, "nodePort", json!(30000 + (*address % 2768)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Catalog;

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "hello", "b": "hell", "c": "hel"}});
        apply(Catalog::builtin().get("", "v1", "secrets").unwrap(), &mut secret);
        assert_eq!(secret["data"], json!({"a": "aGVsbG8=", "b": "aGVsbA==", "c": "aGVs"}));
        assert_eq!(secret["type"], "Opaque");
        assert_eq!(secret.get("stringData"), None);
    }

    #[test]
    fn a_service_gets_an_address_once() {
        let catalog = Catalog::builtin();
        let kind = catalog.get("", "v1", "services").unwrap();
        let mut service = json!({"spec": {"ports": [{"port": 80}]}});
        apply(kind, &mut service);
        unowned_on_create(kind, &mut service, &mut 9);
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.10");
        assert_eq!(service["spec"]["ports"][0], json!({"port": 80, "targetPort": 80, "protocol": "TCP"}));
    }
}
