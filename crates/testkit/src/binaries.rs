//! Where the real servers are: in `KUBEBUILDER_ASSETS`, on `PATH`, or in the cache that `dev/setup` fills.

use std::path::{Path, PathBuf};
use std::process::Command;

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
        }
    }

    fn is_kubernetes(self) -> bool {
        matches!(self, Self::ApiServer | Self::ControllerManager | Self::Kubectl)
    }
}

/// The oldest Kubernetes minor version the suites are written for.
const OLDEST_MINOR: u32 = 34;

/// Finds a binary: `KUBEBUILDER_ASSETS`, then `PATH` (a Kubernetes binary only when new enough), then the cache.
pub fn find_binary(binary: Binary) -> Option<PathBuf> {
    let name = binary.name();
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(|dir| PathBuf::from(dir).join(name));
    if let Some(found) = assets.filter(|path| path.is_file()) {
        return Some(found);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers live in sbin directories, which an ordinary user's PATH often leaves out.
    let sbin = [PathBuf::from("/usr/local/sbin"), PathBuf::from("/usr/sbin")];
    let on_path = std::env::split_paths(&path).chain(sbin).map(|dir| dir.join(name)).find(|path| path.is_file());
    if let Some(found) = on_path.filter(|path| !binary.is_kubernetes() || is_new_enough(binary, path)) {
        return Some(found);
    }
    Some(cache_dir()?.join("bin").join(name)).filter(|path| path.is_file())
}

/// `SIGNPOST_CACHE`, or `.cache/signpost` in the home directory.
fn cache_dir() -> Option<PathBuf> {
    std::env::var_os("SIGNPOST_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/signpost")))
}

fn is_new_enough(binary: Binary, path: &Path) -> bool {
    let mut command = Command::new(path);
    match binary {
        Binary::Kubectl => command.args(["version", "--client"]),
        _ => command.arg("--version"),
    };
    let Ok(output) = command.output() else { return false };
    minor_version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|minor| minor >= OLDEST_MINOR)
}

/// The `36` of `Kubernetes v1.36.3` or `Client Version: v1.36.3`.
fn minor_version(text: &str) -> Option<u32> {
    let rest = text.split_once("v1.")?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minor_version_is_read_from_what_the_binaries_print() {
        assert_eq!(minor_version("Kubernetes v1.36.3\n"), Some(36));
        assert_eq!(minor_version("Client Version: v1.20.2-dirty\nKustomize Version: v5"), Some(20));
        assert_eq!(minor_version("Client Version: version.Info{Major:\"\"}"), None);
    }
}
