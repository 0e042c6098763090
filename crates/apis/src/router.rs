//! The groups `cluster.router.io` and `routing.router.io`: names of services over several clusters and regions.
//!
//! ```text
//! ClusterIdentity (who this cluster is) ──┬──► Gateway ──► Istio Gateway, DNSEndpoints of its own name
//! DNSConfiguration (all controllers) ─────┴──► DNSPolicy (which of them, per namespace) ──► ServiceRoute ──► DNSEndpoints
//! ```
//!
//! The five kinds and [`crds`]. Field names, defaults and patterns are those of service-router-operator. The schema rejects only what never
//! worked there.

#![allow(unreachable_pub, reason = "the KubeSchema derive repeats each struct inside a function")]
#![allow(clippy::duplicated_attributes, reason = "every printer column has a type and a path")]

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};

/// The API group of the kinds that describe the cluster.
pub const CLUSTER_GROUP: &str = "cluster.router.io";
/// The API group of the kinds that describe routes.
pub const ROUTING_GROUP: &str = "routing.router.io";
/// The served and stored version of both groups.
pub const VERSION: &str = "v1alpha1";

/// A status: fields of its own, and those that every status has.
macro_rules! status {
    ($(#[$doc:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($fields)*
            /// Ready, and further conditions of the kind. Notice is present where something works but needs attention.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
            pub conditions: Vec<Condition>,
            /// The generation of the spec that this status describes.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub observed_generation: Option<i64>,
        }
    };
}

/// Who this cluster is: its region, its name and its domain.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "cluster.router.io",
    version = "v1alpha1",
    kind = "ClusterIdentity",
    plural = "clusteridentities",
    singular = "clusteridentity",
    shortname = "ci",
    category = "router",
    status = "ClusterIdentityStatus",
    derive = "PartialEq",
    doc = "The region, the name and the domain of this cluster. There is one, named cluster-identity.",
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.region"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Domain", type_ = "string", json_path = ".spec.domain"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentitySpec {
    /// The region of the cluster, such as weu. It selects the external-dns controllers of DNSConfiguration.
    #[schemars(length(min = 1, max = 253))]
    pub region: String,
    /// The name of the cluster. It is a part of the names of its gateways.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: String,
    /// The domain of all names, in lower case and without a trailing dot.
    #[schemars(length(max = 253), regex(pattern = r"^([a-z0-9]+(-[a-z0-9]+)*\.)+[a-z]{2,}$"))]
    pub domain: String,
    /// The environment as one letter, such as d, t or p. It is a part of the names of services.
    #[schemars(regex(pattern = r"^[a-z]$"))]
    pub environment_letter: String,
    /// Regions without a cluster whose names this cluster publishes too, in Active mode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 253)))]
    pub adopts_regions: Vec<String>,
}

status! {
    /// The observed state of a ClusterIdentity.
    pub struct ClusterIdentityStatus {
        /// Pending, Active or Failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub phase: Option<Phase>,
    }
}

/// The phase of an object.
#[derive(Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It waits for something.
    Pending,
    /// It works.
    Active,
    /// It cannot work as it is.
    Failed,
}

impl Phase {
    /// The word in a status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Active => "Active",
            Self::Failed => "Failed",
        }
    }
}

/// All external-dns controllers there are.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "cluster.router.io",
    version = "v1alpha1",
    kind = "DNSConfiguration",
    plural = "dnsconfigurations",
    singular = "dnsconfiguration",
    shortname = "dnsconf",
    category = "router",
    status = "DNSConfigurationStatus",
    derive = "PartialEq",
    doc = "All external-dns controllers, with their regions. There is one, named dns-config.",
    printcolumn(name = "Controllers", type_ = "string", json_path = ".spec.externalDNSControllers[*].name"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct DNSConfigurationSpec {
    /// Every controller, of every region. Their names are unique.
    #[serde(rename = "externalDNSControllers")]
    #[schemars(length(min = 1, max = 1000))]
    pub external_dns_controllers: Vec<ExternalDNSController>,
}

/// One external-dns controller.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalDNSController {
    /// Its name: the value of the label router.io/controller and of the controller annotation of its DNSEndpoints.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,
    /// The region whose zone it writes: the value of the label router.io/region of its DNSEndpoints.
    #[schemars(length(min = 1, max = 253))]
    pub region: String,
}

status! {
    /// The observed state of a DNSConfiguration.
    pub struct DNSConfigurationStatus {}
}

/// A gateway that services can use: an Istio Gateway and a name of its own.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "routing.router.io",
    version = "v1alpha1",
    kind = "Gateway",
    plural = "gateways",
    singular = "gateway",
    shortname = "gw",
    category = "router",
    namespaced,
    status = "GatewayStatus",
    derive = "PartialEq",
    doc = "A gateway for ServiceRoutes: an Istio Gateway with their hosts, and the name that the hosts point at.",
    printcolumn(name = "Controller", type_ = "string", json_path = ".spec.controller"),
    printcolumn(name = "Hostname", type_ = "string", json_path = ".status.hostname"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.loadBalancerIP"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = "1"
    ),
    printcolumn(
        name = "DNS",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"DNSReady\")].reason",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// The value of the label istio of the gateway's pods and of its LoadBalancer Service, or the name of that Service.
    #[schemars(length(min = 1, max = 253))]
    pub controller: String,
    /// The Secret with the TLS certificate, in the namespace of the gateway's pods.
    #[schemars(length(min = 1, max = 253))]
    pub credential_name: String,
    /// The last part of the first label of the gateway's own name, such as internal.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$"))]
    pub target_postfix: String,
}

status! {
    /// The observed state of a Gateway.
    pub struct GatewayStatus {
        /// Pending, Active or Failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub phase: Option<Phase>,
        /// The name of the gateway: what the hosts of its ServiceRoutes point at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub hostname: Option<String>,
        /// The first address of the LoadBalancer Service.
        #[serde(default, rename = "loadBalancerIP", skip_serializing_if = "Option::is_none")]
        pub load_balancer_ip: Option<String>,
        /// All addresses or host names of the LoadBalancer Service.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[x_kube(merge_strategy = ListMerge::Atomic)]
        pub addresses: Vec<String>,
        /// The type of the gateway's records that an external-dns has read, or had read a moment ago: A (also for AAAA) or CNAME. Records of
        /// the other type wait until these are deleted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub record_type: Option<String>,
        /// How many hosts the Istio Gateway has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0, max = 2_147_483_647))]
        pub hosts: Option<i64>,
    }
}

/// How a DNSPolicy selects controllers.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum PolicyMode {
    /// The controllers of the own region and of the adopted regions.
    #[default]
    Active,
    /// All controllers, in the cluster that sourceRegion and sourceCluster name.
    RegionBound,
}

/// Which controllers publish the ServiceRoutes of a namespace.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "routing.router.io",
    version = "v1alpha1",
    kind = "DNSPolicy",
    plural = "dnspolicies",
    singular = "dnspolicy",
    shortname = "dnsp",
    category = "router",
    namespaced,
    status = "DNSPolicyStatus",
    derive = "PartialEq",
    doc = "Which external-dns controllers publish the ServiceRoutes of this namespace. There is one per namespace.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Active", type_ = "boolean", json_path = ".status.active"),
    printcolumn(name = "Controllers", type_ = "string", json_path = ".status.activeControllers"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("self.mode != 'RegionBound' || (has(self.sourceRegion) && size(self.sourceRegion) > 0) || (has(self.sourceCluster) && size(self.sourceCluster) > 0)").message("RegionBound needs spec.sourceRegion or spec.sourceCluster: without one, every cluster would publish in every region")
)]
#[serde(rename_all = "camelCase")]
pub struct DNSPolicySpec {
    /// Active (the default): the controllers of the own and the adopted regions. RegionBound: all controllers, in one region or cluster only.
    #[serde(default)]
    pub mode: PolicyMode,
    /// The policy is active only in clusters of this region. Empty: in every region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub source_region: Option<String>,
    /// The policy is active only in the cluster of this name. Empty: in every cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub source_cluster: Option<String>,
}

/// The phase of a DNSPolicy.
#[derive(Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyPhase {
    /// It waits for something.
    Pending,
    /// It applies to this cluster.
    Active,
    /// It cannot work as it is.
    Failed,
    /// It does not apply to this cluster.
    Inactive,
}

impl PolicyPhase {
    /// The word in a status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Active => "Active",
            Self::Failed => "Failed",
            Self::Inactive => "Inactive",
        }
    }
}

status! {
    /// The observed state of a DNSPolicy.
    pub struct DNSPolicyStatus {
        /// Pending, Active, Failed or Inactive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub phase: Option<PolicyPhase>,
        /// Whether the policy applies to this cluster. Unchanged while that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub active: Option<bool>,
        /// The controllers that publish the ServiceRoutes of the namespace, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[x_kube(merge_strategy = ListMerge::Atomic)]
        pub active_controllers: Vec<String>,
    }
}

/// One service and the gateway that it is reached by.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "routing.router.io",
    version = "v1alpha1",
    kind = "ServiceRoute",
    plural = "serviceroutes",
    singular = "serviceroute",
    shortname = "sr",
    category = "router",
    namespaced,
    status = "ServiceRouteStatus",
    derive = "PartialEq",
    doc = "The name of a service, published by the controllers of the namespace's DNSPolicy and served by a Gateway.",
    printcolumn(name = "Hostname", type_ = "string", json_path = ".status.hostname"),
    printcolumn(name = "Target", type_ = "string", json_path = ".status.target"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = "1"
    ),
    printcolumn(name = "Gateway", type_ = "string", json_path = ".spec.gatewayName", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRouteSpec {
    /// The name of the service: the first part of its host.
    #[schemars(length(min = 1, max = 253))]
    pub service_name: String,
    /// The Gateway that serves the host.
    #[schemars(length(min = 1, max = 253))]
    pub gateway_name: String,
    /// The namespace of the Gateway. Without it: ROUTER_GATEWAY_NAMESPACE, which is istio-system by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub gateway_namespace: Option<String>,
    /// The environment, such as dev or prod: a part of the host.
    #[schemars(length(min = 1, max = 253))]
    pub environment: String,
    /// The application: the last part of the first label of the host.
    #[schemars(length(min = 1, max = 253))]
    pub application: String,
}

/// A DNSEndpoint of a ServiceRoute.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteEndpoint {
    /// Its name, in the namespace of the ServiceRoute.
    pub name: String,
    /// The controller that publishes it.
    pub controller: String,
    /// Whether external-dns has read its current generation.
    pub observed: bool,
}

status! {
    /// The observed state of a ServiceRoute.
    pub struct ServiceRouteStatus {
        /// Pending, Active or Failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub phase: Option<Phase>,
        /// The name that clients use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub hostname: Option<String>,
        /// The name of the gateway that the hostname points at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub target: Option<String>,
        /// The first of the DNSEndpoints.
        #[serde(default, rename = "dnsEndpoint", skip_serializing_if = "Option::is_none")]
        pub dns_endpoint: Option<String>,
        /// Every DNSEndpoint of the route.
        #[serde(default, rename = "dnsEndpoints", skip_serializing_if = "Vec::is_empty")]
        #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
        pub dns_endpoints: Vec<RouteEndpoint>,
    }
}

/// The five definitions, ready to be applied.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![ClusterIdentity::crd(), DNSConfiguration::crd(), Gateway::crd(), DNSPolicy::crd(), ServiceRoute::crd()]
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
