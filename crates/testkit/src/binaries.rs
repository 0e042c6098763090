//! Finds the real servers: in `KUBEBUILDER_ASSETS`, on `PATH`, or in the cache that `dev/setup` fills.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

/// A server or tool that tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// The Kubernetes API server.
    ApiServer,
    /// Garbage collection and namespace deletion.
    ControllerManager,
    /// The store behind the API server.
    Etcd,
    /// The command-line client.
    Kubectl,
    /// The PowerDNS authoritative server.
    PowerDns,
    /// Creates the database of the SQLite backend.
    Sqlite,
    /// external-dns 0.22.
    ExternalDns22,
    /// external-dns 0.21.
    ExternalDns21,
}

impl Binary {
    /// The file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Etcd => "etcd",
            Self::Kubectl => "kubectl",
            Self::PowerDns => "pdns_server",
            Self::Sqlite => "sqlite3",
            Self::ExternalDns22 => "external-dns-0.22",
            Self::ExternalDns21 => "external-dns-0.21",
        }
    }

    /// The oldest version that the suites are written for, major and minor; `None` where any version is accepted.
    ///
    /// `dev/setup` has the same numbers.
    fn oldest(self) -> Option<(u32, u32)> {
        match self {
            Self::ApiServer | Self::ControllerManager | Self::Kubectl => Some((1, 34)),
            Self::Etcd => Some((3, 5)),
            Self::PowerDns | Self::Sqlite | Self::ExternalDns22 | Self::ExternalDns21 => None,
        }
    }

    /// Whether a binary found on `PATH` is new enough.
    fn is_new_enough(self, path: &Path) -> bool {
        let Some((major, minor)) = self.oldest() else { return true };
        let mut command = Command::new(path);
        match self {
            Self::Kubectl => command.args(["version", "--client"]),
            _ => command.arg("--version"),
        };
        let Ok(output) = command.output() else { return false };
        version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|found| found.0 == major && found.1 >= minor)
    }
}

/// Finds a binary: `KUBEBUILDER_ASSETS`, then `PATH` (Kubernetes and etcd only when new enough), then the cache.
///
/// With `SIGNPOST_SANDBOX_ONLY=true` nothing is found: the quick tier of the tests (`make check`) runs without real servers.
pub fn find_binary(binary: Binary) -> Option<PathBuf> {
    if std::env::var("SIGNPOST_SANDBOX_ONLY").as_deref() == Ok("true") {
        return None;
    }
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers live in sbin directories, which an ordinary user's PATH often leaves out.
    let sbin = [PathBuf::from("/usr/local/sbin"), PathBuf::from("/usr/sbin")];
    find(binary, assets, std::env::split_paths(&path).chain(sbin), cache_dir())
}

fn find(
    binary: Binary,
    assets: Option<PathBuf>,
    path: impl IntoIterator<Item = PathBuf>,
    cache: Option<PathBuf>,
) -> Option<PathBuf> {
    let in_dir = |dir: PathBuf| Some(dir.join(binary.name())).filter(|path| path.is_file());
    assets
        .and_then(in_dir)
        .or_else(|| path.into_iter().find_map(in_dir).filter(|found| binary.is_new_enough(found)))
        .or_else(|| in_dir(cache?.join("bin")))
}

/// CRDs of others, as `dev/setup crds` took them from their Go modules: `dnsendpoint` or `istio`. `None` when they are not in the cache.
pub fn foreign_crds(name: &str) -> Option<Vec<CustomResourceDefinition>> {
    let text = std::fs::read_to_string(cache_dir()?.join("crds").join(format!("{name}.yaml"))).ok()?;
    let crds = serde_saphyr::from_multiple(&text);
    Some(crds.unwrap_or_else(|error| panic!("the CRDs of {name} in the cache cannot be read: {error}")))
}

/// A CRD of others with a schema that accepts anything. Of its versions, the first is stored.
pub fn any_crd(group: &str, versions: &[&str], kind: &str) -> CustomResourceDefinition {
    let singular = kind.to_lowercase();
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = |(number, name): (usize, &&str)| {
        json!({
            "name": name, "served": true, "storage": number == 0, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": anything, "status": anything } } },
        })
    };
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{singular}s.{group}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": format!("{singular}s"), "singular": singular, "kind": kind },
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    });
    serde_json::from_value(crd).unwrap_or_else(|error| panic!("the CRD of {kind} cannot be read: {error}"))
}

/// `SIGNPOST_CACHE`, or `.cache/signpost` in the home directory.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    std::env::var_os("SIGNPOST_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/signpost")))
}

/// Major and minor of the first full version in a text, such as `Kubernetes v1.36.3` or `etcd Version: 3.6.16`.
fn version(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
        let mut numbers = word.split('.').map(str::parse);
        let (Ok(major), Ok(minor), Ok::<u32, _>(_)) = (numbers.next()?, numbers.next()?, numbers.next()?) else {
            return None;
        };
        Some((major, minor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that prints this and ends. A shell writes it: a file that is open for writing here may be open in another test's child
    /// too, and then cannot be run.
    fn program(dir: &Path, name: &str, prints: &str) -> PathBuf {
        let path = dir.join(name);
        let write = r#"mkdir -p "${1%/*}" && printf '#!/bin/sh\necho "%s"\n' "$2" >"$1" && chmod +x "$1""#;
        assert!(Command::new("sh").args(["-c", write, "sh"]).arg(&path).arg(prints).status().unwrap().success());
        path
    }

    #[test]
    fn the_version_is_read_from_the_output_of_the_binaries() {
        assert_eq!(version("Kubernetes v1.36.3\n"), Some((1, 36)));
        assert_eq!(version("Client Version: v1.20.2-dirty\nKustomize Version: v5.7.1"), Some((1, 20)));
        assert_eq!(version("etcd Version: 3.6.16\nGit SHA: 1.x\nGo Version: go1.26.8"), Some((3, 6)));
        assert_eq!(version("Client Version: version.Info{Major:\"\"}"), None);
    }

    #[test]
    fn an_old_binary_on_path_is_skipped_for_the_cache() {
        for (binary, old, new) in [
            (Binary::Etcd, "etcd Version: 3.4.30", "etcd Version: 3.5.0"),
            (Binary::Kubectl, "Client Version: v1.33.9", "Client Version: v1.34.0"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let at = |folder: &str| dir.path().join(folder);
            let find_in = |assets: Option<&str>| find(binary, assets.map(at), [at("path")], Some(at("cache")));
            assert_eq!(find_in(None), None);
            program(&at("path"), binary.name(), old);
            assert_eq!(find_in(None), None);
            let cached = program(&at("cache/bin"), binary.name(), new);
            assert_eq!(find_in(None), Some(cached));
            let on_path = program(&at("path"), binary.name(), new);
            assert_eq!(find_in(None), Some(on_path));
            let given = program(&at("assets"), binary.name(), old);
            assert_eq!(find_in(Some("assets")), Some(given), "what is given by name is taken as it is");
        }
    }

    #[test]
    fn dev_setup_has_the_same_versions() {
        let setup = include_str!("../../../dev/setup");
        for (binary, name) in [(Binary::ApiServer, "OLDEST_KUBE"), (Binary::Etcd, "OLDEST_ETCD")] {
            let (major, minor) = binary.oldest().unwrap();
            assert!(setup.contains(&format!("\n{name}={major}.{minor} ")), "{name} is not {major}.{minor} there");
        }
    }
}
