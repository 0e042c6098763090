//! The example objects: built in from `examples/demo`, or read from a folder; applied in an order that works.

use std::path::Path;

use anyhow::Context;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::manifest;

const BUILT_IN: &[(&str, &str)] = &[
    ("powerdns.yaml", include_str!("../../../../examples/demo/powerdns.yaml")),
    ("ingress.yaml", include_str!("../../../../examples/demo/ingress.yaml")),
];

/// The annotation with the expected result of an example; without it, the example is expected to be served.
const EXPECT: &str = "demo.signpost/expect";

/// One object of the examples.
#[derive(Debug, Clone)]
pub(super) struct Example {
    pub(super) object: Value,
    pub(super) resource: ApiResource,
}

/// The expected result of an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expected {
    /// Served.
    Served,
    /// Refused, with this reason.
    Refused(String),
    /// Not changed by any system.
    Ignored,
}

impl Example {
    pub(super) fn kind(&self) -> &str {
        &self.resource.kind
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.object["metadata"]["namespace"].as_str()
    }

    pub(super) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// `RRset demo/www`.
    pub(super) fn title(&self) -> String {
        match self.namespace() {
            Some(namespace) => format!("{} {namespace}/{}", self.kind(), self.name()),
            None => format!("{} {}", self.kind(), self.name()),
        }
    }

    pub(super) fn expected(&self) -> Expected {
        match self.object["metadata"]["annotations"][EXPECT].as_str() {
            None | Some("Served") => Expected::Served,
            Some("Ignored") => Expected::Ignored,
            Some(reason) => Expected::Refused(reason.to_owned()),
        }
    }

    pub(super) fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }
}

/// Reads the examples; an error names the file.
pub(super) fn load(folder: Option<&Path>) -> anyhow::Result<Vec<Example>> {
    let mut objects = Vec::new();
    match folder {
        None => {
            for (name, text) in BUILT_IN {
                objects.extend(manifest::from_yaml(name, text)?);
            }
        }
        Some(folder) => {
            let entries =
                std::fs::read_dir(folder).with_context(|| format!("the folder {} cannot be read", folder.display()))?;
            let mut files: Vec<_> =
                entries.collect::<Result<Vec<_>, _>>()?.into_iter().map(|entry| entry.path()).collect();
            files.retain(|path| path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json"));
            files.sort();
            anyhow::ensure!(!files.is_empty(), "{} has no .yaml, .yml or .json file", folder.display());
            for file in files {
                let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
                objects.extend(manifest::from_yaml(&file.display().to_string(), &text)?);
            }
        }
    }
    let (installation, objects): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_installation);
    if !installation.is_empty() {
        super::print_line(&format!(
            "left out        {} objects of an installation (Deployment, Secret, RBAC): the demo is the operator",
            installation.len()
        ));
    }
    anyhow::ensure!(!objects.is_empty(), "the folder holds an installation only, and no object to try");
    let mut examples = objects.into_iter().map(example).collect::<anyhow::Result<Vec<_>>>()?;
    examples.sort_by_key(|example| rank(example.kind()));
    Ok(examples)
}

/// Whether an object installs an operator. The demo runs one of its own.
fn is_installation(object: &Value) -> bool {
    let kinds = ["Deployment", "Secret", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    object["kind"].as_str().is_some_and(|kind| kinds.contains(&kind))
}

/// Kinds that others depend on come first.
fn rank(kind: &str) -> u8 {
    match kind {
        "Namespace" => 0,
        "ClusterZone" | "Zone" => 1,
        _ => 2,
    }
}

fn example(mut object: Value) -> anyhow::Result<Example> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let plural = match kind.as_str() {
        "Namespace" => "namespaces",
        "Ingress" => "ingresses",
        "Zone" => "zones",
        "ClusterZone" => "clusterzones",
        "RRset" => "rrsets",
        "ClusterRRset" => "clusterrrsets",
        "Service" => "services",
        "ConfigMap" => "configmaps",
        other => anyhow::bail!(
            "the demo knows no kind {other} ({api_version}); it applies Namespace, Ingress, Zone, ClusterZone, RRset, ClusterRRset, Service and ConfigMap"
        ),
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.clone(),
        kind: kind.clone(),
        plural: plural.into(),
    };
    if !matches!(kind.as_str(), "Namespace" | "ClusterZone" | "ClusterRRset")
        && object["metadata"]["namespace"].is_null()
    {
        object["metadata"]["namespace"] = json!("default");
    }
    Ok(Example { object, resource })
}

/// Installs the custom kinds and waits until they are served.
pub(super) async fn install_crds(client: &Client) -> anyhow::Result<()> {
    let api: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(client.clone());
    for crd in crate::crds::all() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &PatchParams::apply("signpost-demo").force(), &Patch::Apply(&crd))
            .await
            .with_context(|| format!("installing {name}"))?;
        let established =
            kube::runtime::wait::await_condition(api.clone(), &name, kube::runtime::conditions::is_crd_established());
        tokio::time::timeout(std::time::Duration::from_secs(10), established)
            .await
            .with_context(|| format!("{name} was not established in 10 s"))??;
    }
    Ok(())
}

/// Applies the examples as `kubectl apply --server-side` does.
pub(super) async fn apply(client: &Client, examples: &[Example]) -> anyhow::Result<()> {
    for example in examples {
        let params = PatchParams::apply("signpost-demo").force();
        example
            .api(client)
            .patch(example.name(), &params, &Patch::Apply(&example.object))
            .await
            .map_err(|error| anyhow::anyhow!("{} was rejected: {}", example.title(), rejection(example, error)))?;
    }
    Ok(())
}

/// The API server's message about an object.
fn rejection(example: &Example, error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 404 && status.details.is_none() => {
            format!("there is no {} of {} here", example.kind(), example.resource.api_version)
        }
        kube::Error::Api(status) => status.message,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_examples_are_valid_and_zones_come_first() {
        let kinds: Vec<u8> = load(None).unwrap().iter().map(|example| rank(example.kind())).collect();
        assert!(kinds.len() >= 8, "{kinds:?}");
        assert!(kinds.is_sorted(), "{kinds:?}");
    }

    #[test]
    fn a_missing_empty_or_invalid_folder_is_reported() {
        let error = load(Some(Path::new("/nowhere"))).unwrap_err().to_string();
        assert_eq!(error, "the folder /nowhere cannot be read");
        let folder = tempfile::tempdir().unwrap();
        let error = load(Some(folder.path())).unwrap_err().to_string();
        assert!(error.ends_with("has no .yaml, .yml or .json file"), "{error}");
        std::fs::write(folder.path().join("a.yaml"), "apiVersion: v1\nkind: Gadget\nmetadata: {name: a}\n").unwrap();
        let error = load(Some(folder.path())).unwrap_err().to_string();
        assert!(error.starts_with("the demo knows no kind Gadget"), "{error}");
    }
}
