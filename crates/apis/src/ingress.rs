//! `networking.k8s.io/v1` Ingress and IngressClass with only the fields that this operator reads: identity, annotations, dates, class, hosts,
//! paths and backends.
//!
//! In: an object as the API server sends it. Out: a struct of a few hundred bytes. Every field is optional, so that no valid object is
//! unreadable.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, Time};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Deserializer, Serialize};

use crate::null_is_default;
use crate::service::ServiceStatus;

/// An Ingress, reduced to names and dates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ingress {
    /// Identity, annotations and who wrote them, finalizers and dates; labels and owners are dropped while reading.
    #[serde(default, deserialize_with = "lean_meta")]
    pub metadata: ObjectMeta,
    /// The rules.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: IngressSpec,
    /// The addresses of its load balancer.
    #[serde(default, deserialize_with = "null_is_default")]
    pub status: ServiceStatus,
}

/// The part of the specification that names hosts and backends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressSpec {
    /// The class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_class_name: Option<String>,
    /// What answers requests that no rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_backend: Option<IngressBackend>,
    /// One entry per virtual host.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<IngressRule>,
    /// One entry per certificate.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub tls: Vec<IngressTls>,
}

/// The hosts of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressTls {
    /// Its hosts.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressRule {
    /// The virtual host; absent means "any host".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<IngressHttp>,
}

/// The paths of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressHttp {
    /// In their order.
    #[serde(default, deserialize_with = "null_is_default")]
    pub paths: Vec<IngressPath>,
}

/// One path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressPath {
    /// The path; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `Exact`, `Prefix` or `ImplementationSpecific`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_type: Option<String>,
    /// What answers.
    #[serde(default, deserialize_with = "null_is_default")]
    pub backend: IngressBackend,
}

/// What answers: a Service, or another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressBackend {
    /// A Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<IngressService>,
    /// Another object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<IngressResource>,
}

/// A Service of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressService {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its port.
    #[serde(default, deserialize_with = "null_is_default")]
    pub port: IngressPort,
}

/// A port, by number or name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressPort {
    /// By number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i32>,
    /// By name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Another object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressResource {
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// The annotation that named a class before `ingressClassName` existed.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

impl Ingress {
    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The class, by its field or by the older annotation.
    pub fn class(&self) -> Option<&str> {
        let named = self.spec.ingress_class_name.as_deref().filter(|class| !class.is_empty());
        named.or_else(|| self.annotation(CLASS_ANNOTATION).filter(|class| !class.is_empty()))
    }

    /// The hosts of all rules that name one, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.spec.rules.iter().filter_map(|rule| rule.host.as_deref()).filter(|host| !host.is_empty())
    }
}

impl kube::Resource for Ingress {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Ingress".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "networking.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "ingresses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// An IngressClass, reduced to its controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IngressClass {
    /// Identity and dates.
    #[serde(default, deserialize_with = "lean_meta")]
    pub metadata: ObjectMeta,
    /// The controller.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: IngressClassSpec,
}

/// The specification of an IngressClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressClassSpec {
    /// Who serves Ingresses of this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
}

impl kube::Resource for IngressClass {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "IngressClass".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "networking.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "ingressclasses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads only the metadata this operator uses.
pub(crate) fn lean_meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Lean {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        annotations: Option<BTreeMap<String, Option<String>>>,
        finalizers: Option<Vec<String>>,
        managed_fields: Option<Vec<ManagedFieldsEntry>>,
    }
    let lean = Option::<Lean>::deserialize(deserializer)?.unwrap_or_default();
    // A watch delivers only which annotations this operator wrote.
    let written = lean.managed_fields.into_iter().flatten().filter(|entry| entry.fields_v1.is_some());
    let written: Vec<ManagedFieldsEntry> = written.collect();
    Ok(ObjectMeta {
        name: lean.name,
        namespace: lean.namespace,
        uid: lean.uid,
        resource_version: lean.resource_version,
        generation: lean.generation,
        creation_timestamp: lean.creation_timestamp,
        deletion_timestamp: lean.deletion_timestamp,
        annotations: lean
            .annotations
            .map(|pairs| pairs.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect()),
        finalizers: lean.finalizers,
        managed_fields: Some(written).filter(|written| !written.is_empty()),
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ingress_is_reduced_to_its_hosts() {
        let ingress: Ingress = serde_json::from_value(serde_json::json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "name": "app", "namespace": "demo", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-02T03:04:05Z", "annotations": {"pihole.io/register": "true"},
                "labels": {"big": "label"}, "managedFields": [{"manager": "kubectl", "operation": "Update"}] },
            "spec": { "ingressClassName": "nginx", "tls": [{"hosts": ["a.lan"]}],
                "rules": [ {"host": "a.lan", "http": {"paths": []}}, {"http": {"paths": []}}, {"host": ""}, {"host": "b.lan"} ] },
            "status": { "loadBalancer": {} }
        }))
        .unwrap();
        assert_eq!(ingress.hosts().collect::<Vec<_>>(), ["a.lan", "b.lan"]);
        assert_eq!(ingress.annotation("pihole.io/register"), Some("true"));
        assert!(ingress.metadata.managed_fields.is_none() && ingress.metadata.labels.is_none());
        assert_eq!(ingress.metadata.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn classes_paths_and_backends_are_read() {
        let ingress: Ingress = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "app", "annotations": {"kubernetes.io/ingress.class": "old"} },
            "spec": { "defaultBackend": {"resource": {"kind": "Bucket", "name": "b"}}, "rules": [{"host": "a.test", "http": {"paths": [
                {"path": "/a", "pathType": "Exact", "backend": {"service": {"name": "app", "port": {"name": "web"}}}}]}}] }
        }))
        .unwrap();
        assert_eq!(ingress.class(), Some("old"));
        let path = &ingress.spec.rules[0].http.as_ref().unwrap().paths[0];
        assert_eq!((path.path.as_deref(), path.path_type.as_deref()), (Some("/a"), Some("Exact")));
        assert_eq!(path.backend.service.as_ref().unwrap().port.name.as_deref(), Some("web"));
        assert_eq!(ingress.spec.default_backend.unwrap().resource.unwrap().kind, "Bucket");
        let class: IngressClass =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": {"controller": "x/y"}}))
                .unwrap();
        assert_eq!(class.spec.controller.as_deref(), Some("x/y"));
    }

    #[test]
    fn nulls_and_absent_parts_are_empty_not_errors() {
        for text in [
            r#"{"metadata":{"name":"x"}}"#,
            r#"{"metadata":{"name":"x","annotations":null},"spec":null}"#,
            r#"{"metadata":{"name":"x","annotations":{"a":null}},"spec":{"rules":null}}"#,
            r#"{"metadata":{"name":"x"},"spec":{"rules":[{},{"host":null}]}}"#,
        ] {
            let ingress: Ingress = serde_json::from_str(text).unwrap();
            assert_eq!(ingress.hosts().count(), 0, "{text}");
        }
    }
}
