//! The custom kinds that Signpost serves.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::manifest;

/// Every CustomResourceDefinition, in a fixed order.
pub fn all() -> Vec<CustomResourceDefinition> {
    signpost_apis::powerdns::crds()
}

/// All of them as one YAML stream.
pub fn yaml() -> anyhow::Result<String> {
    let mut text = String::new();
    for crd in all() {
        text.push_str("---\n");
        text.push_str(manifest::to_yaml(&serde_json::to_value(&crd)?)?.trim_end());
        text.push('\n');
    }
    Ok(text)
}
