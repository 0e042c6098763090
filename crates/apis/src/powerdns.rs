//! The group `dns.cav.enablers.ob`: zones and record sets kept on a PowerDNS server.
//!
//! ```text
//! Zone (namespaced) ──┐                 ┌── RRset (namespaced)
//!                     ├─ one spec each ─┤      zoneRef: Zone of its namespace, or any ClusterZone
//! ClusterZone ────────┘                 └── ClusterRRset, zoneRef: ClusterZone
//! ```
//!
//! In: nothing but types. Out: the four kinds and [`crds`]. What can be decided from one object alone is in
//! the schema and its CEL rules, so that `kubectl apply` refuses it; the field names are PowerDNS-Operator's.

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
/// Group and version, as objects spell it.
pub const API_VERSION: &str = "dns.cav.enablers.ob/v1alpha2";
/// Held while the object has something on the server that must go first.
pub const FINALIZER: &str = "dns.cav.enablers.ob/external-resources";
/// Left on objects by PowerDNS-Operator; never added here, only taken off when the object goes.
pub const LEGACY_METRICS_FINALIZER: &str = "dns.cav.enablers.ob/metrics";

/// What PowerDNS does with a zone's content.
#[derive(Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneKind {
    /// Kept by the database alone; no notifications, no transfers.
    Native,
    /// Notifies its secondaries.
    Master,
    /// Transferred from its masters.
    Slave,
    /// A catalog zone that lists other zones.
    Producer,
    /// A catalog zone taken from its masters.
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

    /// Whether the content comes from a primary, so that no record can be written here.
    pub const fn is_secondary(self) -> bool {
        matches!(self, Self::Slave | Self::Consumer)
    }
}

/// How PowerDNS moves the SOA serial when the zone is changed through its API.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum SoaEditApi {
    /// A date and a counter, YYYYMMDDnn, and never below the serial before.
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

/// What happens on the server when the object is deleted.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum DeletionPolicy {
    /// What the object wrote is deleted.
    #[default]
    Delete,
    /// What the object wrote stays.
    Retain,
}

/// What happens when the server already has a zone of that name.
#[derive(
    Serialize, Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum AdoptionPolicy {
    /// The zone is taken over and brought to the spec; records no object asks for stay as they are.
    #[default]
    Adopt,
    /// The zone is left alone and the object fails.
    Refuse,
}

/// The start of authority. The serial is the server's business and never goes backwards.
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
    /// Seconds until a secondary tries again after a failed check.
    #[serde(default = "soa_retry")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub retry: i64,
    /// Seconds after which a secondary that hears nothing stops answering.
    #[serde(default = "soa_expire")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub expire: i64,
    /// Seconds a resolver may remember that a name does not exist.
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

/// What a zone should be on the server. The zone's name is the object's name unless `zoneName` is set.
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
    validation = Rule::new("has(self.zoneName) == has(oldSelf.zoneName) && (!has(self.zoneName) || self.zoneName == oldSelf.zoneName)").message("zoneName is immutable: delete the object and create it anew"),
    validation = Rule::new("self.kind != 'Consumer' || !has(self.nameservers) || size(self.nameservers) == 0").message("a Consumer zone has no nameservers of its own: remove spec.nameservers"),
    validation = Rule::new("!(self.kind in ['Slave', 'Consumer']) || (has(self.masters) && size(self.masters) > 0)").message("a Slave or Consumer zone needs spec.masters: the addresses it is transferred from")
)]
#[serde(rename_all = "camelCase")]
pub struct ZoneSpec {
    /// Native, Master, Slave, Producer or Consumer.
    pub kind: ZoneKind,
    /// The host names in the NS record set at the zone's apex. Left out, the apex NS is not managed by this object.
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
    /// The catalog zone this zone is a member of. Removing it takes the zone out of the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 254))]
    pub catalog: Option<String>,
    /// How the server moves the serial: DEFAULT (YYYYMMDDnn), INCREASE or EPOCH.
    #[serde(default, rename = "soa_edit_api")]
    pub soa_edit_api: SoaEditApi,
    /// The zone's DNS name, where an object name cannot spell it (an underscore, a slash, upper case). Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 254))]
    pub zone_name: Option<String>,
    /// The addresses a Slave or Consumer zone is transferred from, each with an optional port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)))]
    pub masters: Vec<String>,
    /// Whether the zone is signed. Left out, signing is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dnssec: Option<bool>,
    /// The server's account label of the zone. Left out, it is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub account: Option<String>,
    /// The start of authority. Left out, the server's own default is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soa: Option<SoaSpec>,
    /// Whether the server rectifies the zone after every change. Left out: on for a signed zone, off for one that is created here unsigned, otherwise not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_rectify: Option<bool>,
    /// Delete (the default): the zone goes from the server with this object, and with it every record in it. Retain: it stays.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Adopt (the default): a zone the server already has is taken over. Refuse: it is left alone.
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
            /// The generation of the spec this status speaks of.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub observed_generation: Option<i64>,
        }
    };
}

status! {
    /// What the operator last saw and did about a zone.
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
        /// The serial the secondaries were last notified of.
        #[serde(default, rename = "notified_serial", skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0, max = 4_294_967_295_i64))]
        pub notified_serial: Option<i64>,
        /// The serial the server answers with, after SOA-EDIT.
        #[serde(default, rename = "edited_serial", skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0, max = 4_294_967_295_i64))]
        pub edited_serial: Option<i64>,
        /// The masters as the server reports them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub masters: Vec<String>,
        /// Whether the server says the zone is signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub dnssec: Option<bool>,
        /// The catalog the server says the zone is in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub catalog: Option<String>,
        /// The ledger: record sets that are being written and are not yet in the status of their object, each as
        /// "NAME TYPE DIGEST". Whatever is listed here and wanted by no object is taken off the server again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[x_kube(merge_strategy = ListMerge::Atomic)]
        pub in_flight: Vec<String>,
    }
}

/// Which zone a record set belongs to.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneRef {
    /// The name of the Zone or ClusterZone object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Zone (in the namespace of the record set) or ClusterZone.
    pub kind: ZoneRefKind,
}

/// The kind a [`ZoneRef`] points at.
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
    #[x_kube(validation = Rule::new("self == oldSelf").message("name is immutable: delete the object and create it anew"))]
    pub name: String,
    /// How long resolvers may keep the answer, in seconds.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ttl: i64,
    /// The records' contents, as a zone file spells them. Order does not matter.
    #[schemars(length(min = 1, max = 4096), inner(length(min = 1, max = 65_535)))]
    pub records: Vec<String>,
    /// A note kept beside the record set on the server. Removing it removes it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_535))]
    pub comment: Option<String>,
    /// The zone the record set belongs to. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("zoneRef is immutable: delete the object and create it anew"))]
    pub zone_ref: ZoneRef,
    /// Delete (the default): the record set goes from the server with this object. Retain: it stays.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What an object has written to the server, and so what its deletion deletes.
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
    /// What the operator last did about a record set.
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
        /// What this object has written to the server.
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
            /// What is wanted.
            pub spec: $spec,
            /// What is.
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

/// PowerDNS-Operator still lists `v1alpha1`, not served. The API server refuses a definition that drops a
/// version it once stored, so it stays listed here too.
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
