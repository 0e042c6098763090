//! Discovery: groups, versions and resources, one by one or in one aggregated document.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    kinds::{Kind, api_version},
    request::RequestInfo,
    status::ApiError,
    world::SandboxState,
};

/// A discovery document and its media type.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) body: Value,
    pub(crate) content_type: &'static str,
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Group → versions (most preferred first) → kinds.
type Groups<'a> = BTreeMap<&'a str, Vec<(&'a str, Vec<&'a Arc<Kind>>)>>;

/// Versions in Kubernetes' order: stable before beta before alpha, newer before older.
pub(crate) fn version_rank(version: &str) -> (u8, Reverse<u32>, Reverse<u32>, String) {
    let parse = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        match &rest[digits..] {
            "" => Some((0, major, 0)),
            tail => {
                let (rank, minor) =
                    tail.strip_prefix("beta").map(|n| (1, n)).or_else(|| tail.strip_prefix("alpha").map(|n| (2, n)))?;
                Some((rank, major, minor.parse().ok()?))
            }
        }
    };
    match parse() {
        Some((rank, major, minor)) => (rank, Reverse(major), Reverse(minor), String::new()),
        None => (3, Reverse(0), Reverse(0), version.to_owned()),
    }
}

fn groups(world: &SandboxState) -> Groups<'_> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<&Arc<Kind>>>> = BTreeMap::new();
    for kind in world.catalog.iter() {
        groups.entry(&kind.group).or_default().entry(&kind.version).or_default().push(kind);
    }
    groups
        .into_iter()
        .map(|(group, versions)| {
            let mut versions: Vec<_> = versions.into_iter().collect();
            versions.sort_by_key(|(version, _)| version_rank(version));
            (group, versions)
        })
        .collect()
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.is_review() {
        return vec!["create"];
    }
    if kind.is_custom() {
        return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    }
    let mut verbs = vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    if kind.kind == "Namespace" {
        verbs.retain(|verb| *verb != "deletecollection");
    }
    verbs
}

fn subresources(kind: &Kind) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all = Vec::new();
    if kind.kind == "Namespace" && kind.group.is_empty() {
        all.push(("finalize", vec!["update"]));
    }
    if kind.status {
        all.push(("status", vec!["get", "patch", "update"]));
    }
    all
}

/// Answers a path that is not a resource.
pub(crate) fn serve(world: &SandboxState, info: &RequestInfo, accept: &str) -> Result<Document, ApiError> {
    let plain = |body: Value| Ok(Document { body, content_type: "application/json" });
    let segments: Vec<&str> = info.path.split('/').filter(|part| !part.is_empty()).collect();
    let aggregated = accept
        .split(',')
        .next()
        .is_some_and(|first| first.contains("g=apidiscovery.k8s.io") && first.contains("v=v2;"))
        || accept.contains("g=apidiscovery.k8s.io;v=v2;");
    match segments.as_slice() {
        ["api"] if aggregated => Ok(Document { body: aggregate(world, true), content_type: AGGREGATED }),
        ["apis"] if aggregated => Ok(Document { body: aggregate(world, false), content_type: AGGREGATED }),
        ["api"] => plain(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
        })),
        ["apis"] => {
            let all: Vec<Value> = groups(world)
                .iter()
                .filter(|(group, _)| !group.is_empty())
                .map(|(group, versions)| api_group(group, versions, false))
                .collect();
            plain(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all}))
        }
        ["apis", group] => match groups(world).get(group) {
            Some(versions) => plain(api_group(group, versions, true)),
            None => Err(ApiError::no_such_path()),
        },
        ["api", version] if world.catalog.has_group_version("", version) => plain(resources(world, "", version)),
        ["apis", group, version] if world.catalog.has_group_version(group, version) => {
            plain(resources(world, group, version))
        }
        ["version"] => plain(json!({
            "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
            "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64"
        })),
        [] => {
            let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
            for (group, versions) in groups(world).iter().filter(|(group, _)| !group.is_empty()) {
                paths.push(format!("/apis/{group}"));
                paths.extend(versions.iter().map(|(version, _)| format!("/apis/{group}/{version}")));
            }
            paths
                .extend(["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
            plain(json!({"paths": paths}))
        }
        _ => Err(ApiError::no_such_path()),
    }
}

fn api_group(group: &str, versions: &[(&str, Vec<&Arc<Kind>>)], alone: bool) -> Value {
    let version = |version: &str| json!({"groupVersion": api_version(group, version), "version": version});
    let mut made = json!({
        "name": group,
        "versions": versions.iter().map(|(name, _)| version(name)).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(|(name, _)| version(name)),
    });
    if alone {
        made["kind"] = json!("APIGroup");
        made["apiVersion"] = json!("v1");
    }
    made
}

fn resources(world: &SandboxState, group: &str, version: &str) -> Value {
    let mut all = Vec::new();
    for kind in world.catalog.iter().filter(|kind| kind.group == group && kind.version == version) {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs(kind)
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        all.push(entry);
        for (name, verbs) in subresources(kind) {
            all.push(json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs
            }));
        }
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version), "resources": all})
}

fn aggregate(world: &SandboxState, core: bool) -> Value {
    let mut items: Vec<Value> = Vec::new();
    for (group, versions) in groups(world).iter().filter(|(group, _)| group.is_empty() == core) {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(version, kinds)| {
                let resources: Vec<Value> = kinds.iter().map(|kind| aggregated_resource(kind)).collect();
                json!({"version": version, "freshness": "Current", "resources": resources})
            })
            .collect();
        let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(kind: &Kind) -> Value {
    // Built-in kinds leave out what the surrounding group has already.
    let response = if kind.is_custom() {
        json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
    } else {
        json!({"group": "", "version": "", "kind": kind.kind})
    };
    let mut made = json!({
        "resource": kind.plural,
        "responseKind": response,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        made["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        made["categories"] = json!(kind.categories);
    }
    let subs: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|(name, verbs)| json!({"subresource": name, "responseKind": response, "verbs": verbs}))
        .collect();
    if !subs.is_empty() {
        made["subresources"] = Value::Array(subs);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_stable_first_and_newest_first() {
        let mut versions = vec!["v1alpha1", "v1", "v2beta1", "v1beta2", "v10", "foo", "v2"];
        versions.sort_by_key(|version| version_rank(version));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }
}
