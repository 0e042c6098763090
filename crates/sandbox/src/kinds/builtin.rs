//! The table of built-in kinds.

use std::sync::OnceLock;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authorization::v1::SelfSubjectAccessReview,
        coordination::v1::Lease,
        core::v1::{
            ConfigMap, Endpoints, Event as CoreEvent, LimitRange, Namespace, ResourceQuota, Secret, Service,
            ServiceAccount,
        },
        discovery::v1::EndpointSlice,
        events::v1::Event,
        networking::v1::{Ingress, IngressClass},
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use schemars::JsonSchema;
use serde_json::Value;

use super::{Kind, Origin, names::NameRule};
use crate::apply::TypeSchema;

/// One built-in kind.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a row of a table: each is a column")]
pub(crate) struct Builtin {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    pub(crate) generation: bool,
    pub(crate) upsert: bool,
    pub(crate) unconditional: bool,
    pub(crate) selectable: &'static [&'static str],
    pub(crate) name_rule: NameRule,
    /// Whether a delete answers the object instead of a `Status`.
    pub(crate) delete_returns_object: bool,
    schema: fn() -> Value,
}

/// The schemas of [`BUILTINS`], each made on first use and shared by all sandboxes of the process.
static SCHEMAS: [OnceLock<Value>; 32] = [const { OnceLock::new() }; 32];

impl Builtin {
    /// The JSON schema of the kind with its definitions.
    pub(crate) fn schema(&self) -> &'static Value {
        let row = BUILTINS
            .iter()
            .position(|row| row.group == self.group && row.name == self.name)
            .unwrap_or(SCHEMAS.len() - 1);
        SCHEMAS[row].get_or_init(self.schema)
    }

    pub(crate) fn kind(&'static self) -> Kind {
        let table =
            if self.name == "Event" { "events".to_owned() } else { crate::status::qualified(self.group, self.plural) };
        Kind {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.name.into(),
            list_kind: format!("{}List", self.name),
            plural: self.plural.into(),
            singular: self.name.to_lowercase(),
            short_names: self.short_names.iter().map(|&name| name.into()).collect(),
            categories: self.categories.iter().map(|&name| name.into()).collect(),
            namespaced: self.namespaced,
            status: self.status,
            storage_version: self.version.into(),
            table,
            merge: TypeSchema::of_builtin(self.group, self.version, self.name),
            origin: Origin::Builtin(self),
        }
    }
}

/// Whether an `apiVersion` and a `kind` name a built-in kind.
pub(crate) fn is_known(api_version: &str, kind: &str) -> bool {
    BUILTINS.iter().any(|row| row.name == kind && super::api_version(row.group, row.version) == api_version)
}

/// Whether a group version has built-in kinds.
pub(crate) fn has_group_version(group: &str, version: &str) -> bool {
    BUILTINS.iter().any(|row| row.group == group && row.version == version)
}

fn schema_of<T: JsonSchema>() -> Value {
    schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = false)
        .into_generator()
        .into_root_schema_for::<T>()
        .into()
}

const fn row(
    (group, version, name, plural): (&'static str, &'static str, &'static str, &'static str),
    namespaced: bool,
    schema: fn() -> Value,
) -> Builtin {
    Builtin {
        group,
        version,
        name,
        plural,
        short_names: &[],
        categories: &[],
        namespaced,
        status: false,
        generation: false,
        upsert: false,
        unconditional: true,
        selectable: &[],
        name_rule: NameRule::Subdomain,
        delete_returns_object: false,
        schema,
    }
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

/// All built-in kinds.
pub(crate) static BUILTINS: &[Builtin] = &[
    Builtin {
        short_names: &["ns"],
        status: true,
        selectable: &["status.phase", "name"],
        name_rule: NameRule::Label,
        delete_returns_object: true,
        ..row(("", "v1", "Namespace", "namespaces"), false, schema_of::<Namespace>)
    },
    Builtin { short_names: &["cm"], ..row(("", "v1", "ConfigMap", "configmaps"), true, schema_of::<ConfigMap>) },
    Builtin { selectable: &["type"], ..row(("", "v1", "Secret", "secrets"), true, schema_of::<Secret>) },
    Builtin {
        short_names: &["svc"],
        categories: &["all"],
        status: true,
        upsert: true,
        selectable: &["spec.clusterIP", "spec.type"],
        name_rule: NameRule::Label,
        delete_returns_object: true,
        ..row(("", "v1", "Service", "services"), true, schema_of::<Service>)
    },
    Builtin {
        short_names: &["ev"],
        upsert: true,
        selectable: EVENT_FIELDS,
        name_rule: NameRule::Any,
        ..row(("", "v1", "Event", "events"), true, schema_of::<CoreEvent>)
    },
    Builtin {
        short_names: &["sa"],
        unconditional: false,
        delete_returns_object: true,
        ..row(("", "v1", "ServiceAccount", "serviceaccounts"), true, schema_of::<ServiceAccount>)
    },
    Builtin {
        short_names: &["ep"],
        upsert: true,
        ..row(("", "v1", "Endpoints", "endpoints"), true, schema_of::<Endpoints>)
    },
    Builtin {
        short_names: &["limits"],
        upsert: true,
        ..row(("", "v1", "LimitRange", "limitranges"), true, schema_of::<LimitRange>)
    },
    Builtin {
        short_names: &["quota"],
        status: true,
        delete_returns_object: true,
        ..row(("", "v1", "ResourceQuota", "resourcequotas"), true, schema_of::<ResourceQuota>)
    },
    Builtin {
        short_names: &["deploy"],
        categories: &["all"],
        status: true,
        generation: true,
        ..row(("apps", "v1", "Deployment", "deployments"), true, schema_of::<Deployment>)
    },
    row(
        ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
        false,
        schema_of::<SelfSubjectAccessReview>,
    ),
    Builtin {
        upsert: true,
        unconditional: false,
        ..row(("coordination.k8s.io", "v1", "Lease", "leases"), true, schema_of::<Lease>)
    },
    Builtin {
        generation: true,
        ..row(("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"), true, schema_of::<EndpointSlice>)
    },
    Builtin {
        short_names: &["ev"],
        upsert: true,
        selectable: NEW_EVENT_FIELDS,
        name_rule: NameRule::Any,
        ..row(("events.k8s.io", "v1", "Event", "events"), true, schema_of::<Event>)
    },
    Builtin {
        short_names: &["ing"],
        status: true,
        generation: true,
        ..row(("networking.k8s.io", "v1", "Ingress", "ingresses"), true, schema_of::<Ingress>)
    },
    Builtin {
        generation: true,
        ..row(("networking.k8s.io", "v1", "IngressClass", "ingressclasses"), false, schema_of::<IngressClass>)
    },
    Builtin {
        upsert: true,
        name_rule: NameRule::PathSegment,
        ..row(("rbac.authorization.k8s.io", "v1", "Role", "roles"), true, schema_of::<Role>)
    },
    Builtin {
        upsert: true,
        name_rule: NameRule::PathSegment,
        ..row(("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"), true, schema_of::<RoleBinding>)
    },
    Builtin {
        upsert: true,
        name_rule: NameRule::PathSegment,
        ..row(("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"), false, schema_of::<ClusterRole>)
    },
    Builtin {
        upsert: true,
        name_rule: NameRule::PathSegment,
        ..row(
            ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings"),
            false,
            schema_of::<ClusterRoleBinding>,
        )
    },
    Builtin {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        status: true,
        generation: true,
        unconditional: false,
        delete_returns_object: true,
        ..row(
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
            false,
            schema_of::<CustomResourceDefinition>,
        )
    },
];
