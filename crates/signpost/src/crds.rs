//! The custom kinds that Signpost serves.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use signpost_engine::SystemSpec;

use crate::{manifest, systems::SYSTEMS};

/// Every CustomResourceDefinition, in a fixed order.
pub fn all() -> Vec<CustomResourceDefinition> {
    of(SYSTEMS)
}

/// Those of some systems.
pub fn of(systems: &[SystemSpec]) -> Vec<CustomResourceDefinition> {
    systems.iter().flat_map(|spec| (spec.crds)()).collect()
}

/// Those of some systems as one YAML stream.
pub fn yaml(systems: &[SystemSpec]) -> anyhow::Result<String> {
    let objects = of(systems).iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    manifest::to_stream(&objects)
}
