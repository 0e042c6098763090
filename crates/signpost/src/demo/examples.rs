//! The example objects: those of the systems, or read from a folder; applied in an order that works.

use std::path::Path;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use signpost_engine::SystemSpec;

use crate::manifest;

/// The namespace of every built-in example.
const NAMESPACE: (&str, &str) = ("the namespace", "{apiVersion: v1, kind: Namespace, metadata: {name: demo}}");

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

/// A kind that the demo can apply.
struct Kind {
    name: String,
    group: String,
    plural: String,
    namespaced: bool,
}

/// The kinds of the demo, in the order in which they are applied.
pub(super) struct Kinds(Vec<Kind>);

impl Kinds {
    /// Namespaces, the custom kinds, and the built-in kinds that systems read.
    pub(super) fn new(crds: &[CustomResourceDefinition]) -> Self {
        let kind = |(name, group, plural, namespaced): (&str, &str, &str, bool)| Kind {
            name: name.to_owned(),
            group: group.to_owned(),
            plural: plural.to_owned(),
            namespaced,
        };
        let custom = crds.iter().map(|crd| {
            let names = &crd.spec.names;
            kind((&names.kind, &crd.spec.group, &names.plural, crd.spec.scope == "Namespaced"))
        });
        let built_in = [
            ("ConfigMap", "", "configmaps", true),
            ("Service", "", "services", true),
            ("IngressClass", "networking.k8s.io", "ingressclasses", false),
            ("Ingress", "networking.k8s.io", "ingresses", true),
        ];
        let first = kind(("Namespace", "", "namespaces", false));
        Self(std::iter::once(first).chain(custom).chain(built_in.map(kind)).collect())
    }

    fn find(&self, group: &str, kind: &str) -> Option<(usize, &Kind)> {
        self.0.iter().enumerate().find(|(_, known)| known.group == group && known.name == kind)
    }

    /// The position of the kind of an example.
    fn rank(&self, example: &Example) -> usize {
        self.find(&example.resource.group, example.kind()).map_or(self.0.len(), |(at, _)| at)
    }

    /// The plural names of the kinds of some examples, without namespaces.
    pub(super) fn plurals(&self, examples: &[Example]) -> Vec<String> {
        let used = |known: &&Kind| {
            let resources = examples.iter().map(|example| &example.resource);
            resources.into_iter().any(|resource| resource.group == known.group && resource.kind == known.name)
        };
        self.0.iter().skip(1).filter(used).map(|known| known.plural.clone()).collect()
    }
}

/// Reads the examples of the systems or of a folder; an error names the file.
pub(super) fn load(folder: Option<&Path>, systems: &[SystemSpec], kinds: &Kinds) -> anyhow::Result<Vec<Example>> {
    let mut objects = Vec::new();
    match folder {
        None => {
            let built_in = systems.iter().filter_map(|spec| spec.demo).flat_map(|demo| demo.examples);
            for (name, text) in std::iter::once(&NAMESPACE).chain(built_in) {
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
    anyhow::ensure!(!objects.is_empty(), "the folder has only an installation, and no object to try");
    let mut examples = objects.into_iter().map(|object| example(object, kinds)).collect::<anyhow::Result<Vec<_>>>()?;
    examples.sort_by_key(|example| kinds.rank(example));
    // Several systems may bring the same namespace.
    examples.dedup_by(|one, other| one.kind() == "Namespace" && one.title() == other.title());
    Ok(examples)
}

/// Whether an object installs an operator. The demo runs one of its own.
fn is_installation(object: &Value) -> bool {
    let kinds = ["Deployment", "Secret", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    object["kind"].as_str().is_some_and(|kind| kinds.contains(&kind))
}

fn example(mut object: Value, kinds: &Kinds) -> anyhow::Result<Example> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some((_, known)) = kinds.find(group, &kind) else {
        let all: Vec<&str> = kinds.0.iter().map(|known| known.name.as_str()).collect();
        anyhow::bail!("the demo knows no kind {kind} ({api_version}); it applies {}", all.join(", "));
    };
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.clone(),
        kind,
        plural: known.plural.clone(),
    };
    if known.namespaced && object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = json!("default");
    }
    Ok(Example { object, resource })
}

/// Installs the custom kinds and waits until they are served.
pub(super) async fn install_crds(client: &Client, crds: &[CustomResourceDefinition]) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &PatchParams::apply("signpost-demo").force(), &Patch::Apply(crd))
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
    use crate::systems::SYSTEMS;

    fn loaded(folder: Option<&Path>) -> anyhow::Result<Vec<Example>> {
        load(folder, SYSTEMS, &Kinds::new(&crate::crds::all()))
    }

    fn rank(kind: &str) -> u8 {
        match kind {
            "Namespace" => 0,
            "ClusterZone" | "Zone" => 1,
            _ => 2,
        }
    }

    #[test]
    fn the_built_in_examples_are_valid_and_zones_come_first() {
        let kinds: Vec<u8> = loaded(None).unwrap().iter().map(|example| rank(example.kind())).collect();
        assert!(kinds.len() >= 8, "{kinds:?}");
        assert!(kinds.is_sorted(), "{kinds:?}");
    }

    #[test]
    fn a_missing_empty_or_invalid_folder_is_reported() {
        let error = loaded(Some(Path::new("/nowhere"))).unwrap_err().to_string();
        assert_eq!(error, "the folder /nowhere cannot be read");
        let folder = tempfile::tempdir().unwrap();
        let error = loaded(Some(folder.path())).unwrap_err().to_string();
        assert!(error.ends_with("has no .yaml, .yml or .json file"), "{error}");
        std::fs::write(folder.path().join("a.yaml"), "apiVersion: v1\nkind: Gadget\nmetadata: {name: a}\n").unwrap();
        let error = loaded(Some(folder.path())).unwrap_err().to_string();
        assert!(error.starts_with("the demo knows no kind Gadget"), "{error}");
    }
}
