//! The conformance suite: the same cases, as data, on the sandbox and on the real API server, which decides who is right.
//!
//! `CASE=text` runs only the cases whose name contains the text; `TARGET=sandbox` or `TARGET=real` only one server.

// A test that cannot go on fails at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod case;
mod matching;
mod run;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use signpost_testkit::{Cluster, real_cluster, sandbox_cluster};
use tokio::sync::OnceCell;

use case::{Case, Group};

/// How many cases there must at least be.
const LEAST: usize = 380;

macro_rules! groups {
    ($($name:ident)+) => {
        const GROUPS: &[&str] = &[$(stringify!($name)),+];
        $(mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sandbox() {
                super::run_group(stringify!($name), super::Target::Sandbox).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn real() {
                super::run_group(stringify!($name), super::Target::Real).await;
            }
        })+
    };
}

groups! {
    apply builtin definitions deletion discovery errors lists metadata output patches schema selectors status verbs watch
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Sandbox,
    Real,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Real => "real",
        }
    }

    /// A cluster with the suite's CRDs in it.
    async fn cluster(self) -> Option<Cluster> {
        static PREPARED: OnceCell<()> = OnceCell::const_new();
        match self {
            Self::Sandbox => {
                let cluster = sandbox_cluster().await;
                cluster.install(&crds()).await;
                Some(cluster)
            }
            Self::Real => {
                let cluster = real_cluster().await?;
                let prepare = || async {
                    cluster.install(&crds()).await;
                    cluster.forget_history().await;
                };
                PREPARED.get_or_init(prepare).await;
                Some(cluster)
            }
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

fn read<T: serde::de::DeserializeOwned>(file: &str) -> T {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // As in YAML 1.2: `y` and `no` are text.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn crds() -> Vec<CustomResourceDefinition> {
    read("crds.yaml")
}

async fn run_group(group: &str, target: Target) {
    if std::env::var("TARGET").is_ok_and(|wanted| wanted != target.name()) {
        return;
    }
    let filter = std::env::var("CASE").unwrap_or_default();
    let mut cases = read::<Group>(&format!("{group}.yaml")).cases;
    cases.retain(|case| case.name.contains(&filter));
    if cases.is_empty() {
        return;
    }
    let Some(cluster) = target.cluster().await else { return };
    let client = match target {
        Target::Sandbox => cluster.client(),
        // Without retries: a case wants to see the first answer.
        Target::Real => {
            let mut config = cluster.config().await;
            config.default_retry = false;
            kube::Client::try_from(config).unwrap()
        }
    };
    let done = AtomicUsize::new(0);
    let one = async |case: &Case| {
        let outcome = run::run(&cluster, &client, case).await;
        done.fetch_add(1, Ordering::Relaxed);
        outcome.err()
    };
    // Compaction affects every case, so it comes last and alone.
    let (forgetful, rest): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.forgets());
    let mut failures: Vec<Option<String>> = futures::stream::iter(rest).map(&one).buffer_unordered(4).collect().await;
    for case in forgetful {
        failures.push(one(case).await);
    }
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let ran = done.into_inner();
    assert_eq!(ran, cases.len(), "no case is skipped");
    // Also for a passing run: the count is what this suite is about. Straight to stderr, past the test harness.
    let summary = format!("conformance {group} on {}: {} of {ran} cases hold\n", target.name(), ran - failures.len());
    std::io::stderr().write_all(summary.as_bytes()).ok();
    assert!(failures.is_empty(), "{} of {ran} cases fail\n\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_case_file_is_run_and_every_case_name_is_unique() {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".yaml").map(str::to_owned))
        .filter(|name| name != "crds")
        .collect();
    files.sort();
    let mut listed = GROUPS.to_vec();
    listed.sort_unstable();
    assert_eq!(files, listed);
    let mut names: Vec<String> =
        GROUPS.iter().flat_map(|group| read::<Group>(&format!("{group}.yaml")).cases).map(|case| case.name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "two cases have one name");
    assert!(count >= LEAST, "{count} cases");
    eprintln!("{count} conformance cases");
}
