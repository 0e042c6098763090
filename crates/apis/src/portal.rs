//! The group `sreportal.io`: names that a team wants to know about, the portals that show them, and components of a status page.
//!
//! ```text
//! Portal ◄── portalRef ── DNS {groups of names} ── annotations sreportal.io/component* ──► Component ── portalRef ──► Portal
//! ```
//!
//! The three kinds and [`crds`]. The field names are those of SRE Portal 1.24 to 1.34; manifests of these versions apply unchanged: the schema
//! has no limit that theirs do not have. Names and targets are not checked by the schema: an entry that is wrong is reported on its own, and the others are checked.

#![allow(unreachable_pub, reason = "the KubeSchema derive repeats each struct inside a function")]
#![allow(clippy::duplicated_attributes, reason = "every printer column has a type and a path")]

use std::collections::BTreeMap;

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};

/// The API group of the three kinds.
pub const GROUP: &str = "sreportal.io";
/// Group and version, as in a manifest.
pub const API_VERSION: &str = "sreportal.io/v1alpha1";

/// How the answer of a resolver is compared with the targets of an entry.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum TargetMatch {
    /// The answer has exactly the targets.
    #[default]
    Exact,
    /// Every value of the answer is a target. For names that return some of many addresses.
    Subset,
    /// At least one value of the answer is a target.
    Any,
}

/// A name that should exist.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DnsEntry {
    /// The name, absolute; a trailing dot is optional. Wildcards, underscores and Unicode are allowed.
    #[schemars(length(min = 1))]
    pub fqdn: String,
    /// The purpose of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The record type to look up. Without it, the type follows from the targets; without targets, the name must merely exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_type: Option<String>,
    /// The expected values. Without any, a record of the type must merely exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Labels, to find the name by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How the answer is compared with the targets.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_: Option<TargetMatch>,
}

/// A group of names.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DnsGroup {
    /// The name of the group.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The purpose of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub entries: Vec<DnsEntry>,
}

/// The names of a team.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "sreportal.io",
    version = "v1alpha1",
    kind = "DNS",
    plural = "dns",
    singular = "dns",
    namespaced,
    status = "DnsStatus",
    derive = "PartialEq",
    doc = "Names that should exist, in groups. Each name is looked up, and its status reports the result.",
    printcolumn(name = "Portal", type_ = "string", json_path = ".spec.portalRef"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.total"),
    printcolumn(name = "Sync", type_ = "integer", json_path = ".status.sync"),
    printcolumn(name = "Broken", type_ = "integer", json_path = ".status.broken"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DnsSpec {
    /// The portal that shows the names, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub portal_ref: String,
    /// The groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub groups: Vec<DnsGroup>,
    /// Whether the names are those of a remote portal. Such an object is not looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_remote: Option<bool>,
}

/// The object that a name comes from.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OriginRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The result of one name.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FqdnStatus {
    /// The name, folded to lower case and A-labels, without a trailing dot; as it was written when it is not a name.
    pub fqdn: String,
    /// The purpose of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The type that was looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_type: Option<String>,
    /// The expected values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub targets: Vec<String>,
    /// sync, notFound, error or timeout; empty when not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_status: Option<String>,
    /// Why: Match, Exists, NoSuchName, NoData, Mismatch, ServFail, Refused, Timeout and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The answer of a resolver, or the problem with the entry. Of several resolvers, that of the worst result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub observed: Vec<String>,
    /// The resolver that gave the result, for a name that is not in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolver: Option<String>,
    /// When the name was last in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// When the name was last looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Time>,
    /// The object that the name comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_ref: Option<OriginRef>,
}

/// The results of a group.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FqdnGroupStatus {
    /// The name of the group.
    pub name: String,
    /// The purpose of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// manual, external-dns or remote.
    pub source: String,
    /// Its names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub fqdns: Vec<FqdnStatus>,
}

/// The results of all names.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DnsStatus {
    /// The groups, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub groups: Vec<FqdnGroupStatus>,
    /// How many names there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// How many of them are in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<i64>,
    /// How many of them were checked and are not in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<i64>,
    /// How many names are not listed above, because the object would be too large. They are checked and in the inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<i64>,
    /// When the names were last looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconcile_time: Option<Time>,
    /// Ready, and Resolved: whether the resolvers answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A reference to a Secret of the same namespace.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How a remote portal is trusted, and how it trusts us.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RemoteTls {
    /// Accept any certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
    /// The certificate authority, as ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretRef>,
    /// The client certificate, as tls.crt and tls.key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<SecretRef>,
}

/// A portal in another cluster.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RemotePortal {
    /// Its address.
    #[schemars(regex(pattern = r"^https?://"))]
    pub url: String,
    /// The name of the portal there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub portal: Option<String>,
    /// TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RemoteTls>,
}

/// The parts that a portal shows. Everything is on unless it is switched off.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PortalFeatures {
    /// Names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<bool>,
    /// Releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<bool>,
    /// Network policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<bool>,
    /// Alerts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alerts: Option<bool>,
    /// Components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_page: Option<bool>,
    /// Images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_inventory: Option<bool>,
}

/// A portal.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "sreportal.io",
    version = "v1alpha1",
    kind = "Portal",
    plural = "portals",
    singular = "portal",
    namespaced,
    status = "PortalStatus",
    derive = "PartialEq",
    doc = "A view of names and components.",
    printcolumn(name = "Title", type_ = "string", json_path = ".spec.title"),
    printcolumn(name = "Main", type_ = "boolean", json_path = ".spec.main"),
    printcolumn(name = "Remote URL", type_ = "string", json_path = ".spec.remote.url", priority = "1"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("!has(self.main) || !self.main || !has(self.remote)").message("the main portal cannot be remote: remove spec.main or spec.remote")
)]
#[serde(rename_all = "camelCase")]
pub struct PortalSpec {
    /// Its title.
    #[schemars(length(min = 1))]
    pub title: String,
    /// Whether names without a portal are shown here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<bool>,
    /// Its part of the URL; the name of the object when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
    /// The portal in another cluster that this one shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemotePortal>,
    /// The parts that it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<PortalFeatures>,
}

/// The last visit of a remote portal.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RemoteSync {
    /// When it last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sync_time: Option<Time>,
    /// Why it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sync_error: Option<String>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_title: Option<String>,
    /// How many names it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn_count: Option<i64>,
    /// The parts that it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<PortalFeatures>,
}

/// Whether a portal works.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PortalStatus {
    /// Whether it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The last visit of the remote portal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_sync: Option<RemoteSync>,
}

/// The state of a component, as a user declares it.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
#[serde(rename_all = "snake_case")]
pub enum ComponentState {
    /// It works.
    Operational,
    /// It is slow.
    Degraded,
    /// A part of it does not work.
    PartialOutage,
    /// It does not work.
    MajorOutage,
    /// Nobody has declared it.
    #[default]
    Unknown,
}

impl ComponentState {
    /// As in a manifest.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operational => "operational",
            Self::Degraded => "degraded",
            Self::PartialOutage => "partial_outage",
            Self::MajorOutage => "major_outage",
            Self::Unknown => "unknown",
        }
    }

    /// The state of this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Operational, Self::Degraded, Self::PartialOutage, Self::MajorOutage, Self::Unknown]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

/// A part of a platform on a status page.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "sreportal.io",
    version = "v1alpha1",
    kind = "Component",
    plural = "components",
    singular = "component",
    namespaced,
    status = "ComponentStatus",
    derive = "PartialEq",
    doc = "A part of a platform on a status page.",
    printcolumn(name = "Portal", type_ = "string", json_path = ".spec.portalRef"),
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.group"),
    printcolumn(name = "Status", type_ = "string", json_path = ".spec.status"),
    printcolumn(name = "Computed", type_ = "string", json_path = ".status.computedStatus"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ComponentSpec {
    /// Its name for people.
    #[schemars(length(min = 1))]
    pub display_name: String,
    /// Its group.
    #[schemars(length(min = 1))]
    pub group: String,
    /// The portal that shows it, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub portal_ref: String,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where to find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https?://"))]
    pub link: Option<String>,
    /// Its state.
    #[serde(default)]
    pub status: ComponentState,
}

/// The worst state of a day.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DailyStatus {
    /// The day in UTC, as 2026-01-31.
    pub date: String,
    /// The worst state of it.
    pub worst_status: String,
}

/// The computed state of a component.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// The state that is shown: the declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed_status: Option<String>,
    /// How many incidents are open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_incidents: Option<i64>,
    /// When the state last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status_change: Option<Time>,
    /// The last 30 days on which the component existed, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub daily_worst_status: Vec<DailyStatus>,
    /// Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The three definitions, ready to be applied.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![Portal::crd(), DNS::crd(), Component::crd()]
}
