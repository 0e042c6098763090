//! `networking.istio.io/v1` Gateway and VirtualService with only the fields that names are read from.
//!
//! In: an object as the API server sends it. Out: identity, labels and dates, hosts, and what a Gateway selects. Every field is optional.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{labelled_meta, null_is_default};

/// The API group.
pub const GROUP: &str = "networking.istio.io";

/// An Istio Gateway, reduced to its hosts and what it selects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IstioGateway {
    /// Identity, labels, annotations and dates.
    #[serde(default, deserialize_with = "labelled_meta")]
    pub metadata: ObjectMeta,
    /// Hosts, and what it selects.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: IstioGatewaySpec,
}

/// Hosts, and what a Gateway selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IstioGatewaySpec {
    /// The labels of the pods that it is for.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// One entry per port.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<IstioServer>,
}

/// The hosts of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IstioServer {
    /// Its port.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "IstioPort::is_empty")]
    pub port: IstioPort,
    /// Its hosts, each perhaps after `namespace/`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Its certificate.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "IstioTls::is_empty")]
    pub tls: IstioTls,
}

/// The certificate of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IstioTls {
    /// The Secret that has it.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub credential_name: String,
}

impl IstioTls {
    fn is_empty(&self) -> bool {
        self.credential_name.is_empty()
    }
}

/// The port of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IstioPort {
    /// Its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
}

impl IstioPort {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_empty(&self) -> bool {
        self.number.is_none()
    }
}

/// An Istio VirtualService, reduced to its hosts and gateways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VirtualService {
    /// Identity, labels, annotations and dates.
    #[serde(default, deserialize_with = "labelled_meta")]
    pub metadata: ObjectMeta,
    /// Hosts and gateways.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: VirtualServiceSpec,
}

/// Hosts and gateways of a VirtualService.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualServiceSpec {
    /// Its hosts.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The Gateways that it is attached to, as `name` or `namespace/name`; `mesh` means the sidecars.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
}

impl kube::Resource for VirtualService {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "VirtualService".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "virtualservices".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
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
    fn a_gateway_is_reduced_to_its_labels_and_hosts() {
        let gateway: IstioGateway = serde_json::from_value(serde_json::json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
            "metadata": { "name": "gw", "namespace": "istio-system", "labels": {"router.io/gateway": "gw"},
                "managedFields": [{"manager": "istioctl", "operation": "Update"}] },
            "spec": { "servers": [{"hosts": ["a.example.org"]}] }
        }))
        .unwrap();
        assert_eq!(gateway.spec.servers[0].hosts, ["a.example.org"]);
        assert_eq!(gateway.metadata.labels.unwrap()["router.io/gateway"], "gw");
        assert!(gateway.metadata.managed_fields.is_none());
        assert_eq!(crd().spec.names.kind, "Gateway");
    }
}
