//! `networking.k8s.io/v1` Ingress with only the fields that a DNS operator reads: identity, annotations, dates and rule hosts.
//!
//! In: an Ingress as the API server sends it. Out: a struct of a few hundred bytes. Every field is optional, so that no valid Ingress is
//! unreadable.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Deserializer, Serialize};

use crate::null_is_default;

/// An Ingress, reduced to names and dates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ingress {
    /// Identity, annotations, finalizers and dates; labels, owners and managed fields are dropped while reading.
    #[serde(default, deserialize_with = "lean_meta")]
    pub metadata: ObjectMeta,
    /// The rules.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: IngressSpec,
}

/// The part of the specification that names hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressSpec {
    /// One entry per virtual host.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<IngressRule>,
}

/// One rule; only its host matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressRule {
    /// The virtual host; absent means "any host".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Ingress {
    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
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

/// Reads only the metadata this operator uses: managed fields are most of an Ingress's bytes.
fn lean_meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
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
    }
    let lean = Option::<Lean>::deserialize(deserializer)?.unwrap_or_default();
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
