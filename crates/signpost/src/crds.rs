//! The custom kinds that Signpost serves.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::manifest;

/// Every CustomResourceDefinition, in a fixed order.
pub fn all() -> Vec<CustomResourceDefinition> {
    signpost_apis::powerdns::crds()
}

/// All of them as one YAML stream.
pub fn yaml() -> anyhow::Result<String> {
    let objects = all().iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    manifest::to_stream(&objects)
}
