//! `v1` Service with only the fields that this operator reads: type, ports, addresses, and the status of its load balancer.
//!
//! In: a Service as the API server sends it. Out: a struct of a few hundred bytes. Every field is optional, so that no valid Service is
//! unreadable.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::{labelled_meta, null_is_default};

/// A Service, reduced to its ports and addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Identity, labels, annotations, finalizers and dates; owners and managed fields are dropped while reading.
    #[serde(default, deserialize_with = "labelled_meta")]
    pub metadata: ObjectMeta,
    /// Type, ports and addresses.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: ServiceSpec,
    /// The addresses of its load balancer.
    #[serde(default, deserialize_with = "null_is_default")]
    pub status: ServiceStatus,
}

/// Type, ports and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The ports.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ServicePort>,
    /// Its address inside the cluster; `None` as text for a headless one.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<String>,
    /// All its addresses inside the cluster: one of each family for a dual-stack Service. The first one is `cluster_ip`.
    #[serde(
        default,
        rename = "clusterIPs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cluster_ips: Vec<String>,
    /// The labels of the pods behind it.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// The name that an `ExternalName` stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_name: Option<String>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name; a Service with one port may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its number.
    #[serde(default)]
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`; `TCP` where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What is spoken there, such as `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// The status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The load balancer.
    #[serde(default, deserialize_with = "null_is_default")]
    pub load_balancer: LoadBalancer,
}

/// The load balancer of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// Its addresses.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<LoadBalancerIngress>,
}

/// One address of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerIngress {
    /// The address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

impl Service {
    /// Whether it is of type LoadBalancer.
    pub fn is_load_balancer(&self) -> bool {
        self.spec.type_.as_deref() == Some("LoadBalancer")
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}

impl kube::Resource for Service {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Service".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "services".into()
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

    #[test]
    fn a_full_service_is_reduced_to_ports_and_addresses() {
        let service: Service = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "app", "namespace": "demo", "labels": {"a": "b"}, "managedFields": [] },
            "spec": { "type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"], "selector": {"app": "x"},
                "ports": [{"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP", "appProtocol": "https"}] },
            "status": { "loadBalancer": { "ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example.com"}] } }
        }))
        .unwrap();
        assert_eq!(service.spec.ports[0].name.as_deref(), Some("web"));
        assert_eq!((service.spec.ports[0].port, service.spec.ports[0].app_protocol.as_deref()), (80, Some("https")));
        assert_eq!(service.spec.cluster_ips, ["10.0.0.1", "fd00::1"]);
        assert_eq!(service.status.load_balancer.ingress[1].hostname.as_deref(), Some("lb.example.com"));
        assert!(service.is_load_balancer() && service.metadata.managed_fields.is_none());
        assert_eq!((service.label("a"), service.label("b")), (Some("b"), None));
    }

    #[test]
    fn nulls_and_absent_parts_are_empty_not_errors() {
        for text in [
            r#"{"metadata":{"name":"x"}}"#,
            r#"{"metadata":{"name":"x"},"spec":null,"status":null}"#,
            r#"{"metadata":{"name":"x"},"spec":{"ports":null},"status":{"loadBalancer":null}}"#,
            r#"{"metadata":{"name":"x"},"spec":{"ports":[{}]},"status":{"loadBalancer":{"ingress":null}}}"#,
        ] {
            let service: Service = serde_json::from_str(text).unwrap();
            assert!(service.status.load_balancer.ingress.is_empty(), "{text}");
        }
    }
}
