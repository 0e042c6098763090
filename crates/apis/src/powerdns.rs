//! The group `dns.cav.enablers.ob`: zones and record sets kept on a PowerDNS server.
//!
//! ```text
//! Zone (namespaced) ──┐                 ┌── RRset (namespaced)
//!                     ├─ one spec each ─┤      zoneRef: Zone of its namespace, or any ClusterZone
//! ClusterZone ────────┘                 └── ClusterRRset, zoneRef: ClusterZone
//! ```
//!
//! The four kinds and [`crds`]. The schema and its CEL rules check everything that can be decided from one object alone, so that `kubectl
//! apply` rejects invalid objects. The field names are those of PowerDNS-Operator.

#![allow(unreachable_pub, reason = "the KubeSchema derive repeats each struct inside a function")]
#![allow(clippy::duplicated_attributes, reason = "every printer column has a type and a path")]

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
        ValidationRule,
    },
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    CustomResource, CustomResourceExt, KubeSchema, Resource,
    core::{ClusterResourceScope, ObjectMeta},
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The API group of the four kinds.
pub const GROUP: &str = "dns.cav.enablers.ob";
/// The served and stored version.
pub const VERSION: &str = "v1alpha2";
/// Group and version, as in a manifest.
pub const API_VERSION: &str = "dns.cav.enablers.ob/v1alpha2";
/// The finalizer of an object whose zone or records on the server must be deleted first.
pub const FINALIZER: &str = "dns.cav.enablers.ob/external-resources";
/// A finalizer of PowerDNS-Operator; only removed, when the object is deleted.
pub const LEGACY_METRICS_FINALIZER: &str = "dns.cav.enablers.ob/metrics";

/// How PowerDNS replicates a zone.
#[derive(Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneKind {
    /// Replicated by the database only; no notifications, no transfers.
    Native,
    /// Notifies its secondaries.
    Master,
    /// Transferred from its masters.
    Slave,
    /// A catalog zone that lists other zones.
    Producer,
    /// A catalog zone transferred from its masters.
    Consumer,
}

impl ZoneKind {
    /// The word PowerDNS uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "Native",
            Self::Master => "Master",
            Self::Slave => "Slave",
            Self::Producer => "Producer",
            Self::Consumer => "Consumer",
        }
    }

    /// Whether the content is transferred from a primary, so that no record can be written here.
    pub const fn is_secondary(self) -> bool {
        matches!(self, Self::Slave | Self::Consumer)
    }
}

/// How PowerDNS increases the SOA serial when the zone is changed through its API.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum SoaEditApi {
    /// A date and a counter, YYYYMMDDnn, or the serial before plus one if that is higher.
    #[default]
    #[serde(rename = "DEFAULT")]
    Default,
    /// One more than before.
    #[serde(rename = "INCREASE")]
    Increase,
    /// The seconds since 1970.
    #[serde(rename = "EPOCH")]
    Epoch,
}

impl SoaEditApi {
    /// The word PowerDNS uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "DEFAULT",
            Self::Increase => "INCREASE",
            Self::Epoch => "EPOCH",
        }
    }
}

/// The effect on the server when the object is deleted.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum DeletionPolicy {
    /// The zone or record set is deleted from the server.
    #[default]
    Delete,
    /// The zone or record set is kept on the server.
    Retain,
}

/// The behaviour when the server already has a zone of that name.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum AdoptionPolicy {
    /// The zone is adopted and changed to the spec; records that no object owns are unchanged.
    #[default]
    Adopt,
    /// The zone is unchanged and the object fails.
    Refuse,
}

/// The start of authority. The serial is managed by the server.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct SoaSpec {
    /// The primary name server, absolute; a trailing dot is optional.
    #[schemars(length(min = 1, max = 254))]
    pub primary: String,
    /// The mailbox of the person responsible, as a name (hostmaster.example.com) or an address (hostmaster@example.com).
    #[schemars(length(min = 1, max = 254))]
    pub mailbox: String,
    /// Seconds between a secondary's checks.
    #[serde(default = "soa_refresh")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub refresh: i64,
    /// Seconds until a secondary retries a failed check.
    #[serde(default = "soa_retry")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub retry: i64,
    /// Seconds without a successful check after which a secondary stops answering.
    #[serde(default = "soa_expire")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub expire: i64,
    /// Seconds that a resolver may cache that a name does not exist.
    #[serde(default = "soa_minimum")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub minimum: i64,
    /// The TTL of the SOA record itself, in seconds.
    #[serde(default = "soa_ttl")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ttl: i64,
}

const fn soa_refresh() -> i64 {
    10_800
}
const fn soa_retry() -> i64 {
    3_600
}
const fn soa_expire() -> i64 {
    604_800
}
const fn soa_minimum() -> i64 {
    3_600
}
const fn soa_ttl() -> i64 {
    3_600
}

/// The desired state of a zone on the server. The zone's name is the object's name unless `zoneName` is set.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "dns.cav.enablers.ob",
    version = "v1alpha2",
    kind = "Zone",
    plural = "zones",
    singular = "zone",
    namespaced,
    status = "ZoneStatus",
    derive = "PartialEq",
    doc = "A DNS zone on the PowerDNS server, with records from RRsets of the same namespace.",
    printcolumn(name = "Serial", type_ = "integer", json_path = ".status.serial"),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.id"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.syncStatus"),
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind", priority = "1"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", priority = "1")
)]
#[x_kube(
    validation = Rule::new("has(self.zoneName) == has(oldSelf.zoneName) && (!has(self.zoneName) || self.zoneName == oldSelf.zoneName)").message("zoneName is immutable: delete the object and create it again"),
    validation = Rule::new("self.kind != 'Consumer' || !has(self.nameservers) || size(self.nameservers) == 0").message("a Consumer zone has no nameservers of its own: remove spec.nameservers"),
    validation = Rule::new("!(self.kind in ['Slave', 'Consumer']) || (has(self.masters) && size(self.masters) > 0)").message("a Slave or Consumer zone needs spec.masters: the addresses it is transferred from")
)]
#[serde(rename_all = "camelCase")]
pub struct ZoneSpec {
    /// Native, Master, Slave, Producer or Consumer.
    pub kind: ZoneKind,
    /// The host names in the NS record set at the zone's apex. Without it, the apex NS record set is not managed by this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(
            length(min = 1, max = 254),
            regex(
                pattern = r"^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$"
            )
        )
    )]
    pub nameservers: Vec<String>,
    /// The catalog zone that this zone is a member of. Removing it removes the zone from the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 254))]
    pub catalog: Option<String>,
    /// How the server increases the serial: DEFAULT (YYYYMMDDnn), INCREASE or EPOCH.
    #[serde(default, rename = "soa_edit_api")]
    pub soa_edit_api: SoaEditApi,
    /// The zone's DNS name, if it is not a valid object name (an underscore, a slash, upper case). Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 254))]
    pub zone_name: Option<String>,
    /// The addresses that a Slave or Consumer zone is transferred from, each with an optional port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)))]
    pub masters: Vec<String>,
    /// Whether the zone is signed. Without it, signing is unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dnssec: Option<bool>,
    /// The account of the zone on the server. Without it, the account is unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub account: Option<String>,
    /// The start of authority. Without it, the server's default is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soa: Option<SoaSpec>,
    /// Whether the server rectifies the zone after every change. Without it: true for a signed zone, false for an unsigned zone that this
    /// object creates, otherwise unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_rectify: Option<bool>,
    /// Delete (the default): the zone and all its records are deleted from the server with this object. Retain: the zone is kept.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Adopt (the default): a zone that the server already has is adopted. Refuse: it is unchanged and the object fails.
    #[serde(default)]
    pub adoption_policy: AdoptionPolicy,
}

/// A status: fields of its own, and those that every status has.
macro_rules! status {
    ($(#[$doc:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($fields)*
            /// Pending, Succeeded or Failed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub sync_status: Option<String>,
            /// Available and Ready, and Notice where something is served but probably not as it was meant.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
            pub conditions: Vec<Condition>,
            /// The generation of the spec that this status describes.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub observed_generation: Option<i64>,
        }
    };
}

status! {
    /// The observed state of a zone.
    pub struct ZoneStatus {
        /// The server's identifier of the zone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<String>,
        /// The zone's canonical name, with its trailing dot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// The zone's kind as the server reports it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub kind: Option<String>,
        /// The SOA serial as the server last reported it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0, max = 4_294_967_295_i64))]
        pub serial: Option<i64>,
        /// The serial that the secondaries were last notified of.
        #[serde(default, rename = "notified_serial", skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0, max = 4_294_967_295_i64))]
        pub notified_serial: Option<i64>,
        /// The serial that the server answers with, after SOA-EDIT.
        #[serde(default, rename = "edited_serial", skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0, max = 4_294_967_295_i64))]
        pub edited_serial: Option<i64>,
        /// The masters as the server reports them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub masters: Vec<String>,
        /// Whether the zone is signed, as the server reports it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub dnssec: Option<bool>,
        /// The catalog of the zone, as the server reports it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub catalog: Option<String>,
        /// Record sets that are being written and are not yet in the status of their object, each as "NAME TYPE DIGEST". A record set that
        /// is listed here and that no object wants is deleted from the server.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[x_kube(merge_strategy = ListMerge::Atomic)]
        pub in_flight: Vec<String>,
        /// Record sets that were written for DNSEndpoints, each as "NAME TYPE DIGEST". A long list has marks of 16 characters instead, 64 in
        /// one string. A record set that is listed here and that no object wants is deleted from the server while the operator
        /// publishes DNSEndpoints.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[x_kube(merge_strategy = ListMerge::Atomic)]
        pub endpoints: Vec<String>,
    }
}

/// The zone of a record set.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneRef {
    /// The name of the Zone or ClusterZone object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Zone (in the namespace of the record set) or ClusterZone.
    pub kind: ZoneRefKind,
}

/// The kind of a [`ZoneRef`].
#[derive(Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneRefKind {
    /// A Zone in the same namespace.
    Zone,
    /// A ClusterZone.
    ClusterZone,
}

impl ZoneRefKind {
    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zone => "Zone",
            Self::ClusterZone => "ClusterZone",
        }
    }
}

/// One record set: every record of one type at one name.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "dns.cav.enablers.ob",
    version = "v1alpha2",
    kind = "RRset",
    plural = "rrsets",
    singular = "rrset",
    namespaced,
    status = "RRsetStatus",
    derive = "PartialEq",
    doc = "A record set in a Zone of the same namespace, or in a ClusterZone.",
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.zoneRef.name"),
    printcolumn(name = "Name", type_ = "string", json_path = ".status.dnsEntryName"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "TTL", type_ = "integer", json_path = ".spec.ttl"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.syncStatus"),
    printcolumn(name = "Records", type_ = "string", json_path = ".spec.records"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", priority = "1")
)]
#[x_kube(
    validation = Rule::new("!(self.type.upperAscii() in ['CNAME', 'DNAME', 'SOA']) || size(self.records) == 1").message("a CNAME, DNAME or SOA record set has exactly one record"),
    validation = Rule::new("!self.name.endsWith('.') || !self.zoneRef.name.contains('.') || self.name.lowerAscii() == self.zoneRef.name.lowerAscii() + '.' || self.name.lowerAscii().endsWith('.' + self.zoneRef.name.lowerAscii() + '.')").message("an absolute name must be inside the zone: write it relative to the zone, without the zone's name and without a trailing dot (www, not www.example.org.)")
)]
#[serde(rename_all = "camelCase")]
pub struct RRsetSpec {
    /// The record type: A, AAAA, CNAME, MX, TXT and so on.
    #[serde(rename = "type")]
    #[schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9]*$"), length(min = 1, max = 16))]
    pub type_: String,
    /// The owner name. With a trailing dot it is absolute; otherwise the zone's name is appended. "@" is the apex. Immutable.
    #[schemars(length(min = 1, max = 254))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("name is immutable: delete the object and create it again"))]
    pub name: String,
    /// How long resolvers may cache the answer, in seconds.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ttl: i64,
    /// The contents of the records, in zone file format. Order does not matter.
    #[schemars(length(min = 1, max = 4096), inner(length(min = 1, max = 65_535)))]
    pub records: Vec<String>,
    /// A comment of the record set on the server. Removing it here removes it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_535))]
    pub comment: Option<String>,
    /// The zone that the record set belongs to. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("zoneRef is immutable: delete the object and create it again"))]
    pub zone_ref: ZoneRef,
    /// Delete (the default): the record set is deleted from the server with this object. Retain: it is kept.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The record set that an object has written to the server, and that its deletion deletes.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppliedSet {
    /// The zone, with its trailing dot.
    pub zone: String,
    /// The owner name, with its trailing dot.
    pub name: String,
    /// The record type.
    #[serde(rename = "type")]
    pub type_: String,
    /// A digest of TTL, records and comment.
    pub hash: String,
}

status! {
    /// The observed state of a record set.
    pub struct RRsetStatus {
        /// The absolute name, with its trailing dot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub dns_entry_name: Option<String>,
        /// When the record set was last written to the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub last_update_time: Option<Time>,
        /// The zone's SOA serial after this record set was last written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0, max = 4_294_967_295_i64))]
        pub serial: Option<i64>,
        /// The record set that this object has written to the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub applied: Option<AppliedSet>,
    }
}

/// The root of a cluster-scoped twin: same spec and status, other name and scope.
macro_rules! cluster_twin {
    ($(#[$doc:meta])* $kind:ident, $plural:literal, $spec:ty, $status:ty) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
        #[serde(rename_all = "camelCase")]
        pub struct $kind {
            /// Group and version.
            pub api_version: String,
            /// The kind.
            pub kind: String,
            /// Standard object metadata.
            pub metadata: ObjectMeta,
            /// The desired state.
            pub spec: $spec,
            /// The observed state.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl $kind {
            /// An object of that name, without status.
            pub fn new(name: &str, spec: $spec) -> Self {
                Self {
                    api_version: API_VERSION.into(),
                    kind: stringify!($kind).into(),
                    metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
                    spec,
                    status: None,
                }
            }
        }

        impl Resource for $kind {
            type DynamicType = ();
            type Scope = ClusterResourceScope;
            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
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
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

cluster_twin!(
    /// A DNS zone on the PowerDNS server, with records from any namespace.
    ClusterZone,
    "clusterzones",
    ZoneSpec,
    ZoneStatus
);
cluster_twin!(
    /// A record set in a ClusterZone.
    ClusterRRset,
    "clusterrrsets",
    RRsetSpec,
    RRsetStatus
);

/// The four definitions, ready to be applied, in the order Zone, ClusterZone, RRset, ClusterRRset.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut cluster_rrset =
        twin(&RRset::crd(), "ClusterRRset", "clusterrrsets", "clusterrrset", "A record set in a ClusterZone.");
    add_root_rule(
        &mut cluster_rrset,
        "self.spec.zoneRef.kind == 'ClusterZone'",
        "a ClusterRRset belongs to a ClusterZone: set spec.zoneRef.kind to ClusterZone",
    );
    vec![
        with_retired_version(Zone::crd()),
        twin(
            &Zone::crd(),
            "ClusterZone",
            "clusterzones",
            "clusterzone",
            "A DNS zone on the PowerDNS server, with records from RRsets of any namespace and from ClusterRRsets.",
        ),
        with_retired_version(RRset::crd()),
        cluster_rrset,
    ]
}

fn twin(
    of: &CustomResourceDefinition,
    kind: &str,
    plural: &str,
    singular: &str,
    description: &str,
) -> CustomResourceDefinition {
    let mut crd = of.clone();
    crd.metadata.name = Some(format!("{plural}.{GROUP}"));
    crd.spec.scope = "Cluster".into();
    crd.spec.names.kind = kind.into();
    crd.spec.names.plural = plural.into();
    crd.spec.names.singular = Some(singular.into());
    for schema in schemas(&mut crd) {
        schema.description = Some(description.into());
        schema.title = schema.title.as_ref().map(|_| kind.into());
    }
    crd
}

fn schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn add_root_rule(crd: &mut CustomResourceDefinition, rule: &str, message: &str) {
    for schema in schemas(crd) {
        schema.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
            rule: rule.into(),
            message: Some(message.into()),
            ..ValidationRule::default()
        });
    }
}

/// PowerDNS-Operator still lists `v1alpha1`, not served. The API server rejects a definition without a version that it once stored, so it
/// is listed here too.
fn with_retired_version(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.versions.push(CustomResourceDefinitionVersion {
        name: "v1alpha1".into(),
        served: false,
        storage: false,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(JSONSchemaProps {
                type_: Some("object".into()),
                description: Some("Retired: use v1alpha2.".into()),
                x_kubernetes_preserve_unknown_fields: Some(true),
                ..JSONSchemaProps::default()
            }),
        }),
        ..CustomResourceDefinitionVersion::default()
    });
    crd
}

#[cfg(test)]
#[path = "powerdns_tests.rs"]
mod tests;
