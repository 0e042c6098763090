//! Kubernetes types: ours with CEL and printer columns, and slim foreign ones.

pub mod externaldns;
pub mod ingress;
pub mod pangolin;
pub mod portal;
pub mod powerdns;
pub mod service;

use serde::{Deserialize, Deserializer};

/// Reads `null` as an absent field.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
