//! `tunnel.pangolin.io/v1alpha1`: the kinds of pangolin-operator, with only the fields that are read. Nothing of them is installed here.
//!
//! Two shapes of PangolinResource are in use (`spec.target` and `spec.targets`). Both are read by the same type; what is written is decided by
//! the shape that the API server declares. Every field is optional, so that no object of either shape is unreadable.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::null_is_default;

/// The API group.
pub const GROUP: &str = "tunnel.pangolin.io";
/// The version.
pub const VERSION: &str = "v1alpha1";

macro_rules! kinds {
    ($($name:ident, $plural:literal;)*) => {$(
        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                VERSION.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

kinds! {
    PangolinResource, "pangolinresources";
    PangolinTunnel, "pangolintunnels";
    PangolinOrganization, "pangolinorganizations";
}

/// A public endpoint, reduced to its labels, owners, domain and status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PangolinResource {
    /// Identity, labels, annotations and owners.
    #[serde(default, deserialize_with = "meta_without_fields")]
    pub metadata: ObjectMeta,
    /// Its domain.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: ResourceSpec,
    /// What pangolin-operator reports.
    #[serde(default, deserialize_with = "null_is_default")]
    pub status: ResourceStatus,
}

/// The part of a resource's specification that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpec {
    /// Its host.
    #[serde(default, deserialize_with = "null_is_default")]
    pub http_config: HttpConfig,
}

/// The host of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpConfig {
    /// The id of its domain, where the organisation is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_id: Option<String>,
    /// The base domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// The labels in front of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,
}

/// What pangolin-operator reports about a resource. Builds differ: one has `status`, the other may have `phase`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// `Creating`, `Waiting`, `Ready`, `Error` or `Deleting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The same in builds that follow another document: `Pending`, `Ready`, `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The id in Pangolin; a text in one build, a number in another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<Value>,
    /// The ids of the targets.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub target_ids: Vec<Value>,
    /// The host as the operator understood it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_domain: Option<String>,
    /// The public URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
}

/// A condition, without its times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCondition {
    /// `Ready`.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// The reason.
    #[serde(default)]
    pub reason: String,
    /// The message.
    #[serde(default)]
    pub message: String,
}

/// A tunnel: a site of Pangolin. It is only read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PangolinTunnel {
    /// Identity.
    #[serde(default, deserialize_with = "meta_without_fields")]
    pub metadata: ObjectMeta,
    /// Its organisation.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: TunnelSpec,
    /// Whether it is ready.
    #[serde(default, deserialize_with = "null_is_default")]
    pub status: TunnelStatus,
}

/// The part of a tunnel's specification that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelSpec {
    /// Its organisation, in the same namespace.
    #[serde(default, deserialize_with = "null_is_default")]
    pub organization_ref: NameRef,
}

/// A name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRef {
    /// The name.
    #[serde(default)]
    pub name: String,
}

/// The part of a tunnel's status that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// `Waiting`, `Ready` or `Error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// An organisation of Pangolin, for its domains. It is only read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PangolinOrganization {
    /// Identity.
    #[serde(default, deserialize_with = "meta_without_fields")]
    pub metadata: ObjectMeta,
    /// Its domains.
    #[serde(default, deserialize_with = "null_is_default")]
    pub status: OrganizationStatus,
}

/// The part of an organisation's status that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrganizationStatus {
    /// The domains.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<OrganizationDomain>,
}

/// A domain of an organisation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrganizationDomain {
    /// Its id.
    #[serde(default)]
    pub domain_id: String,
    /// The base domain.
    #[serde(default)]
    pub base_domain: String,
    /// Whether it is verified.
    #[serde(default)]
    pub verified: bool,
    /// `ns`, `cname` or `wildcard`.
    #[serde(default, rename = "type")]
    pub type_: String,
}

/// Reads the metadata without `managedFields`, which are most of its bytes.
fn meta_without_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut fields = BTreeMap::<String, Value>::deserialize(deserializer)?;
    fields.remove("managedFields");
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
    serde_json::from_value(Value::Object(fields)).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_shapes_of_a_resource_are_read() {
        for status in [
            json!({"status": "Ready", "resourceId": "7", "targetIds": ["1"], "observedGeneration": 2, "conditions": [
                {"type": "Ready", "status": "True", "reason": "ReconcileSuccess", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
            json!({"phase": "Ready", "resourceId": 7, "targetIds": [1], "targetCount": 1}),
        ] {
            let resource: PangolinResource = serde_json::from_value(json!({
                "metadata": {"name": "pic", "labels": {"a": "b"}, "managedFields": [{"manager": "x"}],
                    "ownerReferences": [{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "app", "uid": "u"}]},
                "spec": {"targets": [{"ip": "x", "port": 1}]}, "status": status,
            }))
            .unwrap();
            assert_eq!(resource.status.target_ids.len(), 1);
            assert!(resource.metadata.managed_fields.is_none() && resource.metadata.labels.is_some());
            assert_eq!(resource.metadata.owner_references.unwrap()[0].uid, "u");
        }
    }

    #[test]
    fn nulls_and_absent_parts_are_empty_not_errors() {
        for text in
            [r#"{"metadata":{"name":"x"}}"#, r#"{"metadata":{"name":"x","labels":null},"spec":null,"status":null}"#]
        {
            serde_json::from_str::<PangolinResource>(text).unwrap();
            serde_json::from_str::<PangolinOrganization>(text).unwrap();
            let tunnel: PangolinTunnel = serde_json::from_str(text).unwrap();
            assert_eq!((tunnel.status.status, tunnel.spec.organization_ref.name.as_str()), (None, ""));
        }
    }
}
