//! Kubernetes types: ours with CEL and printer columns, and slim foreign ones.

pub mod externaldns;
pub mod gatewayapi;
pub mod ingress;
pub mod istio;
pub mod pangolin;
pub mod portal;
pub mod powerdns;
pub mod router;
pub mod service;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// Reads `null` as an absent field.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads only the metadata that this operator uses of foreign kinds, labels and owners included: managed fields are most of the bytes of an object.
pub(crate) fn labelled_meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Lean {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        labels: Option<BTreeMap<String, Option<String>>>,
        annotations: Option<BTreeMap<String, Option<String>>>,
        finalizers: Option<Vec<String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let filled = |pairs: Option<BTreeMap<String, Option<String>>>| {
        pairs.map(|pairs| pairs.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect())
    };
    let lean = Option::<Lean>::deserialize(deserializer)?.unwrap_or_default();
    Ok(ObjectMeta {
        name: lean.name,
        namespace: lean.namespace,
        uid: lean.uid,
        resource_version: lean.resource_version,
        generation: lean.generation,
        creation_timestamp: lean.creation_timestamp,
        deletion_timestamp: lean.deletion_timestamp,
        labels: filled(lean.labels),
        annotations: filled(lean.annotations),
        finalizers: lean.finalizers,
        owner_references: lean.owner_references,
        ..ObjectMeta::default()
    })
}
