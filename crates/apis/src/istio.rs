//! `networking.istio.io/v1` Gateway with only the metadata that the owner of a generated one reads.
//!
//! In: a Gateway as the API server sends it. Out: identity, labels and dates; servers and selectors are dropped while reading.

use std::borrow::Cow;

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::labelled_meta;

/// The API group.
pub const GROUP: &str = "networking.istio.io";

/// An Istio Gateway, reduced to its identity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IstioGateway {
    /// Identity, labels, annotations and dates.
    #[serde(default, deserialize_with = "labelled_meta")]
    pub metadata: ObjectMeta,
}

impl kube::Resource for IstioGateway {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Gateway".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "gateways".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A definition of the kind with the fields that this operator writes, for the demo and for tests. In a cluster, Istio installs its own.
pub fn crd() -> CustomResourceDefinition {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let server = json!({
        "type": "object",
        "properties": {
            "port": { "type": "object", "properties": {
                "number": { "type": "integer" }, "name": text("Its name."), "protocol": text("HTTPS and so on."),
            } },
            "tls": { "type": "object", "properties": { "mode": text("SIMPLE and so on."), "credentialName": text("A Secret.") } },
            "hosts": { "type": "array", "items": { "type": "string" } },
        },
    });
    let schema = json!({
        "type": "object",
        "properties": { "spec": { "type": "object", "properties": {
            "selector": { "type": "object", "additionalProperties": { "type": "string" } },
            "servers": { "type": "array", "items": server },
        } } },
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
    });
    serde_json::from_value(json!({
        "metadata": { "name": format!("gateways.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": [version],
            "names": { "kind": "Gateway", "plural": "gateways", "singular": "gateway" },
        },
    }))
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_reduced_to_its_identity_and_labels() {
        let gateway: IstioGateway = serde_json::from_value(serde_json::json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
            "metadata": { "name": "gw", "namespace": "istio-system", "labels": {"router.io/gateway": "gw"},
                "managedFields": [{"manager": "istioctl", "operation": "Update"}] },
            "spec": { "servers": [{"hosts": ["a.example.org"]}] }
        }))
        .unwrap();
        assert_eq!(gateway.metadata.labels.unwrap()["router.io/gateway"], "gw");
        assert!(gateway.metadata.managed_fields.is_none());
        assert_eq!(crd().spec.names.kind, "Gateway");
    }
}
