//! Checks the workspace against its architecture: which crate may depend on which, and what the pure crates must not use.
//!
//! In: `cargo metadata` and the sources. Out: a failure that names the crate, the dependency path or the line.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Allowed dependencies between our own crates (normal dependencies only). A name that ends with `-` means every crate that begins
/// with it, so that a new system or provider needs no line here.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("signpost-dns", &[]),
    ("signpost-planning", &["signpost-dns"]),
    ("signpost-exposure", &["signpost-dns"]),
    ("signpost-apis", &[]),
    ("signpost-inventory", &["signpost-dns"]),
    ("signpost-engine", &["signpost-dns", "signpost-inventory", "signpost-planning"]),
    ("signpost-provider-http", &[]),
    ("signpost-provider-", &["signpost-dns", "signpost-provider-http"]),
    ("signpost-sandbox", &["signpost-dns"]),
    (
        "signpost-system-",
        &[
            "signpost-apis",
            "signpost-dns",
            "signpost-engine",
            "signpost-exposure",
            "signpost-inventory",
            "signpost-planning",
            "signpost-provider-",
        ],
    ),
];

/// Whether a name is meant by an entry of [`MAY_DEPEND_ON`].
fn is_meant(entry: &str, name: &str) -> bool {
    if entry.ends_with('-') { name.starts_with(entry) } else { name == entry }
}

/// Crates without a runtime, client, clock, randomness or environment, also among their transitive dependencies.
const PURE: &[&str] = &["signpost-dns", "signpost-planning", "signpost-exposure", "signpost-inventory"];
const IMPURE_CRATES: &[&str] = &[
    "tokio",
    "async-std",
    "mio",
    "socket2",
    "reqwest",
    "ureq",
    "hyper",
    "hyper-util",
    "kube",
    "kube-client",
    "kube-core",
    "kube-runtime",
    "k8s-openapi",
    "rand",
    "getrandom",
    "fastrand",
    "chrono",
    "time",
    "hickory-resolver",
];
/// Words that are matched at the start of a name. Hash maps are included because their order is random.
const IMPURE_CODE: &[&str] = &[
    "::now(",
    "Instant",
    "SystemTime",
    "env::",
    "std::env",
    "fs::",
    "std::fs",
    "io::",
    "std::io",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "process::",
    "std::process",
    "thread::",
    "std::thread",
    "RandomState",
    "HashMap",
    "HashSet",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
];

/// Further words that `plan` and `report` of a system must not use: shared state, metrics, logs and anything that waits.
///
/// This is a list of words, and only the files of the two stages are read. They take types from `index`, `observe` and `apply`, which have locks
/// and clients, so those modules are not read: a function in one of them that a stage calls may still be impure.
const IMPURE_STAGE: &[&str] = &[
    "Mutex",
    "RwLock",
    "OnceLock",
    "OnceCell",
    "Atomic",
    "tracing::",
    "async ",
    ".await",
    "tokio",
    "Writer",
    "Recorder",
    "health::",
    "&self.lock",
    ".lock()",
    "prometheus",
    "Counter",
    "Gauge",
    "Histogram",
    "Family",
    "Metrics",
    "Cell",
    "RefCell",
];
/// Words of a request that writes to the API server. Systems write through the engine, which has the rules for it.
const API_WRITES: &[&str] = &[
    "PatchParams",
    "PostParams",
    "DeleteParams",
    "Request::post",
    "Request::put",
    "Request::patch",
    "Request::delete",
];
/// The files that every system has.
const SYSTEM_FILES: &[&str] = &[
    "lib.rs",
    "settings.rs",
    "index.rs",
    "observe.rs",
    "plan.rs",
    "apply.rs",
    "report.rs",
    "project.rs",
    "metrics.rs",
];

struct Workspace {
    root: PathBuf,
    /// Package name → names of its normal dependencies, for the whole resolved graph.
    normal: BTreeMap<String, BTreeSet<String>>,
    manifests: BTreeMap<String, PathBuf>,
}

fn workspace() -> Workspace {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: BTreeMap<String, String> =
        metadata["packages"].as_array().unwrap().iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
    let members: BTreeSet<String> = metadata["workspace_members"].as_array().unwrap().iter().map(text).collect();
    let manifests = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|p| members.contains(&text(&p["id"])))
        .map(|p| (text(&p["name"]), PathBuf::from(text(&p["manifest_path"]))))
        .collect();
    let mut normal: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let entry = normal.entry(names[&text(&node["id"])].clone()).or_default();
        for dependency in node["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                entry.insert(names[&text(&dependency["pkg"])].clone());
            }
        }
    }
    Workspace { root, normal, manifests }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let workspace = workspace();
    let mut wrong = Vec::new();
    for (entry, _) in MAY_DEPEND_ON {
        let known = workspace.manifests.keys().any(|name| is_meant(entry, name));
        assert!(known, "{entry} is in MAY_DEPEND_ON but not in the workspace");
    }
    for name in workspace.manifests.keys() {
        // The first entry counts: a crate with a line of its own comes before the pattern that means it too.
        let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(entry, _)| is_meant(entry, name)) else { continue };
        for dependency in workspace.normal[name].iter().filter(|d| workspace.manifests.contains_key(*d)) {
            if !allowed.iter().any(|entry| is_meant(entry, dependency)) {
                wrong.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_crates_reach_no_runtime_client_clock_or_randomness() {
    let workspace = workspace();
    for pure in PURE {
        let mut path_to: BTreeMap<String, Vec<String>> =
            BTreeMap::from([((*pure).to_owned(), vec![(*pure).to_owned()])]);
        let mut open = vec![(*pure).to_owned()];
        while let Some(name) = open.pop() {
            for dependency in workspace.normal.get(&name).into_iter().flatten() {
                if !path_to.contains_key(dependency) {
                    let mut path = path_to[&name].clone();
                    path.push(dependency.clone());
                    assert!(
                        !IMPURE_CRATES.contains(&dependency.as_str()),
                        "{} reaches {dependency}: {}",
                        pure,
                        path.join(" → ")
                    );
                    path_to.insert(dependency.clone(), path);
                    open.push(dependency.clone());
                }
            }
        }
    }
}

/// The lines of a source, numbered from 1, without comments and test-only code. In rustfmt's layout, an item ends with its first line, or
/// with the next line at the same depth that closes a brace or a statement.
fn code(source: &str) -> Vec<(usize, &str)> {
    let mut kept = Vec::new();
    let mut lines = (1..).zip(source.lines());
    while let Some((number, line)) = lines.next() {
        let text = line.trim_start();
        if text == "#[cfg(test)]" {
            let depth = line.len() - text.len();
            let Some((_, head)) = lines.find(|(_, line)| !line.trim_start().starts_with("#[")) else { break };
            if !head.ends_with([';', '}']) {
                lines.find(|(_, line)| {
                    line.get(depth..).is_some_and(|rest| {
                        rest.starts_with('}') || rest.ends_with(';') && !rest.starts_with(char::is_whitespace)
                    })
                });
            }
        } else if !text.starts_with("//") {
            kept.push((number, line));
        }
    }
    kept
}

/// The impure words of a line.
fn impure(line: &str) -> impl Iterator<Item = &'static str> {
    words_of(IMPURE_CODE, line)
}

/// The words that occur in a line, at the start of a name.
fn words_of(words: &'static [&'static str], line: &str) -> impl Iterator<Item = &'static str> {
    let begins = |at: usize| !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
    words
        .iter()
        .copied()
        .filter(move |word| line.match_indices(word).any(|(at, _)| word.starts_with([':', '.']) || begins(at)))
}

#[test]
fn the_scanner_skips_only_comments_and_test_code() {
    let source = "\
mod a;

#[cfg(test)]
mod tests;

/// Not println!.
fn one() {
    // Nor std::fs.
    let at = Timestamp::now();
}

#[cfg(test)]
#[allow(unused)]
mod more {
    fn two() {
        std::env::var(\"A\");
    }
}

impl Three {
    #[cfg(test)]
    fn four() {
        if true {
            dbg!();
        }
    }

    fn five(refs: &[u8]) {
        refs::fs();
        std::thread::sleep(x);
    }
}

#[cfg(test)]
mod empty {}
#[cfg(test)]
const LIST: &[&str] = &[
    \"std::io\",
];

fn six() -> HashMap<u8, u8> {}
";
    let seen: Vec<_> =
        code(source).into_iter().flat_map(|(number, line)| impure(line).map(move |word| (number, word))).collect();
    assert_eq!(
        seen,
        [(9, "::now("), (30, "thread::"), (30, "std::thread"), (41, "HashMap")],
        "and every line is where it was"
    );
}

#[test]
fn pure_sources_use_no_clock_environment_or_output() {
    let workspace = workspace();
    let mut wrong = Vec::new();
    for pure in PURE {
        let folder = workspace.manifests[*pure].parent().unwrap().join("src");
        let mut files = Vec::new();
        rust_files(&folder, &mut files);
        assert!(!files.is_empty(), "{pure} has no sources in {}", folder.display());
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            for (number, line) in code(&source) {
                wrong.extend(impure(line).map(|word| format!("{}:{number}: `{word}` in a pure crate", file.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The sources of every system, by the system's name.
fn systems(workspace: &Workspace) -> BTreeMap<String, PathBuf> {
    let systems = workspace.manifests.iter().filter_map(|(name, manifest)| {
        Some((name.strip_prefix("signpost-system-")?.to_owned(), manifest.parent()?.join("src")))
    });
    let systems: BTreeMap<String, PathBuf> = systems.collect();
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../systems")).unwrap().count();
    assert_eq!(systems.len(), folders, "the package of every crate in crates/systems is named signpost-system-NAME");
    systems
}

#[test]
fn every_system_has_the_same_files() {
    let mut missing = Vec::new();
    for (system, folder) in systems(&workspace()) {
        missing.extend(
            SYSTEM_FILES.iter().filter(|file| !folder.join(file).is_file()).map(|file| format!("{system}/{file}")),
        );
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_binary_names_a_system_in_its_list_only() {
    let workspace = workspace();
    let folder = workspace.manifests["signpost"].parent().unwrap().join("src");
    let mut files = Vec::new();
    rust_files(&folder, &mut files);
    rust_files(&workspace.manifests["xtask"].parent().unwrap().join("src"), &mut files);
    let names: Vec<String> = systems(&workspace).into_keys().collect();
    let named = |line: &str| {
        let line = line.to_lowercase().replace(['-', '_'], "");
        names.iter().find(|name| line.contains(name.as_str())).cloned()
    };
    assert!(
        named("//! PowerDNS and Pi-hole in memory").is_some() && named("use signpost_system_pihole::SPEC").is_some()
    );
    let mut wrong = Vec::new();
    let (list, others): (Vec<PathBuf>, _) = files.into_iter().partition(|file| *file == folder.join("systems.rs"));
    assert_eq!(list.len(), 1, "the list of the systems is in {}", folder.display());
    for file in others {
        let source = std::fs::read_to_string(&file).unwrap();
        for (number, line) in (1..).zip(source.lines()) {
            wrong.extend(named(line).map(|name| format!("{}:{number} names the system {name}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn plan_and_report_of_every_system_are_pure() {
    let mut wrong = Vec::new();
    for (system, folder) in systems(&workspace()) {
        let mut files = vec![folder.join("plan.rs"), folder.join("report.rs")];
        rust_files(&folder.join("plan"), &mut files);
        rust_files(&folder.join("report"), &mut files);
        // Tests beside the code may use anything.
        files.retain(|file| !file.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests")));
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            for (number, line) in code(&source) {
                let words = impure(line).chain(words_of(IMPURE_STAGE, line));
                wrong.extend(words.map(|word| format!("{system}: {}:{number}: `{word}`", file.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn systems_write_to_the_api_server_only_through_the_engine() {
    let mut wrong = Vec::new();
    for (system, folder) in systems(&workspace()) {
        let mut files = Vec::new();
        rust_files(&folder, &mut files);
        // A demo plays the user, and tests beside the code may use anything.
        let exempt = |name: &str| name == "demo" || name.ends_with("tests");
        files.retain(|file| !file.file_stem().is_some_and(|name| exempt(&name.to_string_lossy())));
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            for (number, line) in code(&source) {
                let words = words_of(API_WRITES, line);
                wrong.extend(words.map(|word| format!("{system}: {}:{number}: `{word}`", file.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_crate_forbids_unsafe_code() {
    let workspace = workspace();
    for (name, manifest) in &workspace.manifests {
        let text = std::fs::read_to_string(manifest).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
    }
    let root = std::fs::read_to_string(workspace.root.join("Cargo.toml")).unwrap();
    assert!(root.contains("unsafe_code = \"forbid\""));
}
