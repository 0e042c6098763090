//! `externaldns.k8s.io/v1alpha1` DNSEndpoint: records that an object asks external-dns, or this operator, to publish.
//!
//! In: a DNSEndpoint as the API server sends it. Out: the same fields as the CRD of external-dns has. Every field is optional there, so every
//! field may be absent here; what it means is judged by the reader.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::null_is_default;

/// The API group.
pub const GROUP: &str = "externaldns.k8s.io";
/// The version.
pub const VERSION: &str = "v1alpha1";
/// Group and version, as in a manifest.
pub const API_VERSION: &str = "externaldns.k8s.io/v1alpha1";

/// A DNSEndpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DnsEndpoint {
    /// Identity, labels, annotations, owners and dates.
    #[serde(default, deserialize_with = "null_is_default")]
    pub metadata: ObjectMeta,
    /// The records.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: DnsEndpointSpec,
    /// What external-dns reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<DnsEndpointStatus>,
}

/// The records of a DNSEndpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsEndpointSpec {
    /// One entry per name, type and set identifier.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
}

/// One record set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The name, usually without a trailing dot.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub dns_name: String,
    /// A, AAAA, CNAME and so on.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub record_type: String,
    /// Seconds; 0 or absent is the default of the provider.
    #[serde(default, rename = "recordTTL", skip_serializing_if = "Option::is_none")]
    pub record_ttl: Option<i64>,
    /// The contents, without quotes and without trailing dots.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Tells several record sets of one name and type apart, for providers that can route by weight or region.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub set_identifier: String,
    /// Labels for the registry of external-dns.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Settings of single providers.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub provider_specific: Vec<ProviderSpecific>,
}

/// One setting of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderSpecific {
    /// Its name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its value.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// The status of a DNSEndpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsEndpointStatus {
    /// The generation that was read, not necessarily published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl DnsEndpoint {
    /// Whether the current generation has been read by external-dns, or by whoever publishes the object.
    pub fn is_observed(&self) -> bool {
        let observed = self.status.as_ref().and_then(|status| status.observed_generation);
        observed.is_some() && observed == self.metadata.generation
    }
}

/// A definition with these fields, for the demo and for tests without a cluster. In a cluster the definition is external-dns's own.
pub fn crd() -> CustomResourceDefinition {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer", "format": "int64" }));
    let setting = json!({ "type": "object", "properties": { "name": text, "value": text } });
    let endpoint = json!({ "type": "object", "properties": {
        "dnsName": text, "recordType": text, "recordTTL": number, "setIdentifier": text,
        "targets": { "type": "array", "items": text },
        "labels": { "type": "object", "additionalProperties": text },
        "providerSpecific": { "type": "array", "items": setting },
    }});
    let endpoints = json!({ "endpoints": { "type": "array", "items": endpoint } });
    let schema = json!({ "type": "object", "properties": {
        "apiVersion": text, "kind": text, "metadata": { "type": "object" },
        "spec": { "type": "object", "properties": endpoints },
        "status": { "type": "object", "properties": { "observedGeneration": number } },
    }});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("dnsendpoints.{GROUP}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, in the place of external-dns's own definition" },
        },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": { "kind": "DNSEndpoint", "listKind": "DNSEndpointList", "plural": "dnsendpoints", "singular": "dnsendpoint" },
            "versions": [{
                "name": VERSION, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    serde_json::from_value(crd).unwrap_or_default()
}

impl kube::Resource for DnsEndpoint {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "DNSEndpoint".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn api_version((): &()) -> Cow<'_, str> {
        API_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "dnsendpoints".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_field_of_the_crd_is_read_and_written_back() {
        let spec = json!({ "endpoints": [{
            "dnsName": "app.example.org", "recordType": "A", "recordTTL": 300, "targets": ["192.0.2.1"], "setIdentifier": "weu",
            "labels": {"team": "web"}, "providerSpecific": [{"name": "alias", "value": "true"}],
        }]});
        let object: DnsEndpoint = serde_json::from_value(json!({
            "apiVersion": API_VERSION, "kind": "DNSEndpoint",
            "metadata": {"name": "app", "namespace": "demo", "generation": 2, "labels": {"router.io/region": "weu"}},
            "spec": spec, "status": {"observedGeneration": 1, "conditions": []},
        }))
        .unwrap();
        assert_eq!(serde_json::to_value(&object.spec).unwrap(), spec);
        assert!(!object.is_observed());
        assert_eq!(object.metadata.labels.unwrap()["router.io/region"], "weu");
    }

    #[test]
    fn the_definition_has_every_field() {
        let crd = crd();
        let schema = serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap();
        let endpoint =
            &schema["openAPIV3Schema"]["properties"]["spec"]["properties"]["endpoints"]["items"]["properties"];
        let endpoint: BTreeMap<String, serde_json::Value> = serde_json::from_value(endpoint.clone()).unwrap();
        let fields: Vec<&str> = endpoint.keys().map(String::as_str).collect();
        let all = ["dnsName", "labels", "providerSpecific", "recordTTL", "recordType", "setIdentifier", "targets"];
        assert_eq!(fields, all);
    }

    #[test]
    fn nulls_and_absent_parts_are_empty_not_errors() {
        for text in [
            r#"{"metadata":{"name":"x"}}"#,
            r#"{"metadata":{"name":"x"},"spec":null,"status":{}}"#,
            r#"{"metadata":{"name":"x"},"spec":{"endpoints":null}}"#,
        ] {
            let object: DnsEndpoint = serde_json::from_str(text).unwrap();
            assert!(object.spec.endpoints.is_empty() && !object.is_observed(), "{text}");
        }
        let object: DnsEndpoint =
            serde_json::from_str(r#"{"metadata":{},"spec":{"endpoints":[{},{"targets":null,"labels":null}]}}"#)
                .unwrap();
        assert_eq!(object.spec.endpoints, [Endpoint::default(), Endpoint::default()]);
    }
}
