//! `dev/setup` when something fails: it reports the part, the log and the next step, and leaves nothing behind. And `dev/image-tags` and the image.
//!
//! It runs with its own PATH: the usual tools, and stand-ins for go, apt-get, df, id and sleep whose behaviour each test sets.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TOOLS: &[&str] = &[
    "bash", "sh", "env", "dirname", "mkdir", "rm", "mv", "mktemp", "tail", "sed", "grep", "wc", "awk", "paste", "cat",
    "chmod", "flock", "ls", "cmp",
];

/// Builds a "server" that prints a version, or fails as `$NOTES/go` demands. Every module is one folder.
const GO: &str = r#"#!/bin/sh
if [ "$1" = env ]; then
  case $2 in GOVERSION) echo "${GO_VERSION:-go1.26.8}" ;; *) echo /somewhere ;; esac
  exit 0
fi
if [ "$1" = list ]; then echo "$NOTES/module"; exit 0; fi
echo "a/package"
echo "$$" >>"$NOTES/go.pids"
case $(cat "$NOTES/go" 2>/dev/null) in
  broken) echo "main.go:7:1: syntax error: unexpected newline" >&2; exit 1 ;;
  full) echo "write /somewhere/b001: no space left on device" >&2; exit 1 ;;
  throttled) echo "reading example.org/module: 429 Too Many Requests" >&2; exit 1 ;;
  throttled-once) echo works >"$NOTES/go"; echo "example.org/module: 429 Too Many Requests" >&2; exit 1 ;;
  hang) "$REAL_SLEEP" 600 & echo "$!" >>"$NOTES/go.pids"; wait ;;
esac
if [ "$1" = mod ]; then
  mkdir -p "$NOTES/module/config/crd/standard" "$NOTES/module/kubernetes"
  echo "kind: endpoints" >"$NOTES/module/config/crd/standard/dnsendpoints.externaldns.k8s.io.yaml"
  echo "kind: gateways" >"$NOTES/module/kubernetes/customresourcedefinitions.gen.yaml"
  exit 0
fi
while [ "$1" != -o ]; do shift; done
case $2 in
  *etcd) version="etcd Version: 3.6.16" ;;
  *external-dns-0.2?) version="external-dns v0.${2##*0.}.0 (commit: unknown)" ;;
  *) version="Kubernetes v1.36.3" ;;
esac
printf '#!/bin/sh\necho "%s"\n' "$version" >"$2"
case $2 in *external-dns*) printf '#!/bin/sh\necho "%s" >&2\n' "$version" >"$2" ;; esac
chmod +x "$2"
"#;
const APT_GET: &str = r#"#!/bin/sh
echo "$*" >>"$NOTES/apt-get.calls"
case $(cat "$NOTES/apt-get" 2>/dev/null) in
  no-network) echo "E: Failed to fetch: Temporary failure resolving 'deb.example.org'" >&2; exit 100 ;;
  no-package) case "$*" in *install*) echo "E: Unable to locate package pdns-server" >&2; exit 100 ;; esac ;;
esac
"#;
/// Pauses are noted and end at once, or last longer than any test.
const SLEEP: &str = r#"#!/bin/sh
case $1 in 0.5) exec "$REAL_SLEEP" 0.01 ;; esac
echo "$1" >>"$NOTES/pauses"
case $(cat "$NOTES/sleep" 2>/dev/null) in
  long) echo "$$" >>"$NOTES/sleep.pids"; exec "$REAL_SLEEP" 600 ;;
esac
"#;
const DF: &str = "#!/bin/sh\necho head\necho \"disk 9 9 ${FREE_KB:-9999999} 1% /\"\n";
const ID: &str = "#!/bin/sh\necho \"${AS_USER:-0}\"\n";

/// A machine without servers.
struct Machine {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() };
        for folder in ["bin", "notes", "home"] {
            std::fs::create_dir(machine.at(folder)).unwrap();
        }
        for tool in TOOLS {
            std::os::unix::fs::symlink(which(tool), machine.at("bin").join(tool)).unwrap();
        }
        for (name, text) in [("go", GO), ("apt-get", APT_GET), ("sleep", SLEEP), ("df", DF), ("id", ID)] {
            machine.script(name, text);
        }
        machine
    }

    /// A machine on which this tool has this behaviour.
    fn with(tool: &str, behaviour: &str) -> Self {
        Self::new().and(tool, behaviour)
    }

    fn and(self, tool: &str, behaviour: &str) -> Self {
        std::fs::write(self.at("notes").join(tool), behaviour).unwrap();
        self
    }

    fn set(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    fn without(self, tool: &str) -> Self {
        std::fs::remove_file(self.at("bin").join(tool)).unwrap();
        self
    }

    /// Written by a shell: a file that is open for writing here may be open in another test's child too, and then cannot be run.
    fn script(&self, name: &str, text: &str) {
        let write = r#"printf %s "$2" >"$1" && chmod +x "$1""#;
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "sh"]).arg(self.at("bin").join(name)).arg(text);
        assert!(shell.status().unwrap().success());
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn cache(&self) -> PathBuf {
        self.at("home/.cache/signpost")
    }

    fn notes(&self, name: &str) -> String {
        std::fs::read_to_string(self.at("notes").join(name)).unwrap_or_default()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // The process that runs the tests may ignore the signals that are tested here, for example as a background job, and a child
        // inherits that.
        let mut command = Command::new(which("env"));
        command
            .arg("--default-signal=INT,TERM,HUP")
            .arg(which("bash"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/setup"))
            .args(arguments)
            .env_clear()
            .env("PATH", self.at("bin"))
            .env("HOME", self.at("home"))
            .env("NOTES", self.at("notes"))
            .env("REAL_SLEEP", which("sleep"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn setup(&self, arguments: &[&str]) -> Run {
        Run::of(&self.command(arguments).output().unwrap())
    }

    /// Starts it and waits until its build is in progress.
    fn start_hanging(&self) -> Child {
        let child = self.command(&["etcd"]).spawn().unwrap();
        wait_until("the build runs", || self.notes("go.pids").lines().count() == 2);
        child
    }

    /// No incomplete files in the cache, and no process that it started still running.
    fn is_clean(&self) {
        let left: Vec<_> = std::fs::read_dir(self.cache())
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("half-made"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
        for pid in (self.notes("go.pids") + &self.notes("sleep.pids")).lines() {
            wait_until(&format!("process {pid} has ended"), || !runs(pid));
        }
    }
}

/// The output and the exit code.
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// It ended with this code and printed all of these.
    fn printed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        for word in words {
            assert!(
                self.err.contains(word) || self.out.contains(word),
                "{word:?} is not in:\n{}\n{}",
                self.out,
                self.err
            );
        }
    }
}

fn which(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|folder| folder.join(tool))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{tool} is not on PATH"))
}

fn interrupt(child: &Child, signal: &str) {
    assert!(Command::new(which("kill")).args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// A zombie does not run any more.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_wrong_argument_is_wrong_usage() {
    let run = Machine::new().setup(&["etcd", "kubernetes"]);
    run.printed(2, &["unknown argument kubernetes", "etcd kube powerdns crds external-dns", "--help"]);
    Machine::new().setup(&["--help"]).printed(0, &["Exit codes", "SIGNPOST_CACHE", "KUBEBUILDER_ASSETS"]);
}

#[test]
fn a_server_is_built_once_and_a_given_one_is_not_built() {
    let machine = Machine::new();
    machine.setup(&["--check", "etcd"]).printed(1, &["missing  etcd 3.6.16", "dev/setup etcd"]);
    machine.setup(&["etcd"]).printed(0, &["etcd 3.6.16: done", "Everything is here"]);
    machine.setup(&["etcd"]).printed(0, &["there already"]);
    machine.setup(&["--check", "etcd"]).printed(0, &["ok       etcd"]);
    assert_eq!(machine.notes("go.pids").lines().count(), 1, "built once");
    machine.is_clean();
    let assets = machine.cache().join("bin").display().to_string();
    let given = Machine::new().without("go").set("KUBEBUILDER_ASSETS", assets);
    given.setup(&["etcd"]).printed(0, &["from KUBEBUILDER_ASSETS"]);
}

#[test]
fn each_external_dns_is_built_from_its_own_module() {
    let machine = Machine::new();
    machine.setup(&["--check", "external-dns"]).printed(
        1,
        &["missing  external-dns-0.22 0.22.0", "missing  external-dns-0.21 0.21.0", "dev/setup external-dns"],
    );
    let done = ["external-dns-0.22 0.22.0: done", "external-dns-0.21 0.21.0: done"];
    machine.setup(&["external-dns"]).printed(0, &done);
    machine
        .setup(&["--check", "external-dns"])
        .printed(0, &["ok       external-dns-0.22", "ok       external-dns-0.21"]);
    assert_eq!(machine.notes("go.pids").lines().count(), 2, "each is built once");
    // Another version under the same name does not count.
    machine.script("external-dns-0.22", "#!/bin/sh\necho 'v0.22.9'\n");
    machine.setup(&["--check", "external-dns"]).printed(0, &["(0.22.0)"]);
}

#[test]
fn foreign_definitions_are_copied_once_and_after_a_version_change() {
    let machine = Machine::new();
    machine.setup(&["--check", "crds"]).printed(1, &["dnsendpoint.yaml", "istio.yaml", "dev/setup crds"]);
    machine.setup(&["crds"]).printed(0, &["CRDs of external-dns and Istio: done"]);
    let read = |name: &str| std::fs::read_to_string(machine.cache().join("crds").join(name)).unwrap();
    assert_eq!((read("dnsendpoint.yaml").trim(), read("istio.yaml").trim()), ("kind: endpoints", "kind: gateways"));
    machine.setup(&["crds"]).printed(0, &["there already"]);
    std::fs::write(machine.cache().join("crds/go.sum"), "older versions").unwrap();
    machine.setup(&["--check", "crds"]).printed(1, &["dev/external-dns-0.22"]);
    machine.setup(&["crds"]).printed(0, &["done"]);
    machine.is_clean();
    let machine = Machine::with("go", "throttled");
    machine.setup(&["crds"]).printed(1, &["crds failed", "429 Too Many Requests", "run: dev/setup crds"]);
    machine.is_clean();
}

#[test]
fn a_server_on_path_is_used_only_when_it_is_new_enough() {
    for (part, binary, old, new) in [
        ("etcd", "etcd", "etcd Version: 3.4.30", "etcd Version: 3.5.0"),
        ("kube", "kubectl", "Client Version: v1.33.9", "Client Version: v1.34.0"),
    ] {
        let machine = Machine::new();
        machine.script(binary, &format!("#!/bin/sh\necho '{old}'\n"));
        machine.setup(&["--check", part]).printed(1, &[&format!("missing  {binary} ")]);
        machine.script(binary, &format!("#!/bin/sh\necho '{new}'\n"));
        let run = machine.setup(&["--check", part]);
        assert!(run.out.contains(&format!("ok       {binary}: ")) && run.out.contains("from PATH"), "{}", run.out);
    }
}

#[test]
fn a_missing_or_old_go_is_reported_with_the_version_to_install() {
    let run = Machine::new().without("go").setup(&["etcd", "kube"]);
    run.printed(1, &["no go on PATH", "KUBEBUILDER_ASSETS", "failed: etcd kube"]);
    let run = Machine::new().set("GO_VERSION", "go1.19.8").setup(&["kube"]);
    run.printed(1, &["Kubernetes needs Go 1.26", "go1.19.8"]);
}

#[test]
fn a_failed_build_is_reported_and_the_other_parts_are_tried() {
    let machine = Machine::with("go", "broken");
    let run = machine.setup(&["etcd", "kube"]);
    let log = machine.cache().join("log/etcd.log").display().to_string();
    run.printed(
        1,
        &[
            "etcd failed",
            &log,
            "syntax error",
            "run: dev/setup etcd",
            "kube failed",
            "run: dev/setup kube",
            "failed: etcd kube",
        ],
    );
    assert!(machine.notes("pauses").is_empty(), "a broken build is not tried again");
    machine.is_clean();
    // The failure is fixed: the next run succeeds.
    std::fs::remove_file(machine.at("notes/go")).unwrap();
    machine.setup(&["etcd", "kube"]).printed(0, &["Everything is here"]);
}

#[test]
fn a_throttling_registry_is_retried_with_growing_pauses() {
    let machine = Machine::with("go", "throttled-once");
    machine.setup(&["etcd"]).printed(0, &["the network failed (try 1), again in 5 s", "done"]);
    let machine = Machine::with("go", "throttled");
    machine
        .setup(&["etcd"])
        .printed(1, &["etcd failed", "429 Too Many Requests", "Wait a minute and run: dev/setup etcd"]);
    assert_eq!(machine.notes("pauses"), "5\n15\n45\n90\n");
    machine.is_clean();
}

#[test]
fn a_full_disk_is_distinguished_from_a_broken_build() {
    let machine = Machine::with("go", "full");
    machine.setup(&["etcd"]).printed(1, &["a disk is full", "SIGNPOST_CACHE and GOCACHE"]);
    machine.is_clean();
    let machine = Machine::new().set("FREE_KB", "102400");
    machine.setup(&["etcd"]).printed(1, &["only 100 MB are free", "SIGNPOST_CACHE"]);
    assert!(machine.notes("go.pids").is_empty(), "nothing was begun");
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    // Both are read-only, even for root.
    let file = tempfile::NamedTempFile::new().unwrap();
    for cache in ["/proc/signpost".to_owned(), file.path().join("cache").display().to_string()] {
        let run = Machine::new().set("SIGNPOST_CACHE", cache.as_str()).setup(&["etcd"]);
        run.printed(1, &[&format!("cannot write to {cache}"), "Set SIGNPOST_CACHE"]);
    }
    let mut without_home = Machine::new().command(&["etcd"]);
    Run::of(&without_home.env_remove("HOME").output().unwrap()).printed(1, &["neither SIGNPOST_CACHE nor HOME is set"]);
}

#[test]
fn an_interrupt_ends_the_build_and_its_processes() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let machine = Machine::with("go", "hang");
        let child = machine.start_hanging();
        interrupt(&child, signal);
        let run = Run::of(&child.wait_with_output().unwrap());
        run.printed(130, &["interrupted", "Run it again"]);
        machine.is_clean();
        // The next run succeeds.
        std::fs::remove_file(machine.at("notes/go")).unwrap();
        machine.setup(&["etcd"]).printed(0, &["Everything is here"]);
    }
}

#[test]
fn an_interrupt_ends_a_pause_and_does_not_block_the_next_run() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let machine = Machine::with("go", "throttled").and("sleep", "long");
        let mut child = machine.command(&["etcd"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("it pauses", || !machine.notes("sleep.pids").is_empty());
        interrupt(&child, signal);
        wait_until("it ends", || child.try_wait().unwrap().is_some_and(|status| status.code() == Some(130)));
        machine.is_clean();
        std::fs::remove_file(machine.at("notes/go")).unwrap();
        let run = machine.setup(&["etcd"]);
        run.printed(0, &["Everything is here"]);
        assert!(!run.out.contains("another dev/setup"), "{}", run.out);
    }
}

#[test]
fn a_second_run_waits_for_the_first_and_can_be_interrupted() {
    let machine = Machine::with("go", "hang");
    let first = machine.start_hanging();
    let start = |name: &str| {
        let out = std::fs::File::create(machine.at(name)).unwrap();
        let child = machine.command(&["etcd"]).stdout(out).spawn().unwrap();
        wait_until("it reports that it waits", || {
            std::fs::read_to_string(machine.at(name)).unwrap().contains("another dev/setup is at work")
        });
        child
    };
    let (mut second, mut third) = (start("second"), start("third"));
    interrupt(&third, "-TERM");
    wait_until("the third ends", || third.try_wait().unwrap().is_some_and(|status| status.code() == Some(130)));
    assert_eq!(second.try_wait().unwrap(), None);
    // It waits and does not build; the first run is interrupted, and then it starts.
    assert_eq!(machine.notes("go.pids").lines().count(), 2, "one build at a time");
    std::fs::remove_file(machine.at("notes/go")).unwrap();
    interrupt(&first, "-INT");
    Run::of(&first.wait_with_output().unwrap()).printed(130, &["interrupted"]);
    let status = second.wait().unwrap();
    let printed = std::fs::read_to_string(machine.at("second")).unwrap();
    assert_eq!(status.code(), Some(0), "{printed}");
    assert!(printed.contains("Everything is here"), "{printed}");
    machine.is_clean();
}

#[test]
fn packages_that_cannot_be_installed_are_reported_with_a_fix() {
    // sqlite3 and dig are not on this PATH, so something is missing wherever this runs.
    let run = Machine::new().set("AS_USER", "1000").setup(&["powerdns"]);
    run.printed(1, &["missing:", "sqlite3, dig", "run: sudo apt-get install pdns-server"]);
    let run = Machine::new().without("apt-get").setup(&["powerdns"]);
    run.printed(1, &["There is no apt-get here", "PowerDNS 4.7 or newer"]);
    let machine = Machine::with("apt-get", "no-package");
    let log = machine.cache().join("log/powerdns.log").display().to_string();
    machine
        .setup(&["powerdns"])
        .printed(1, &["powerdns failed", &log, "Unable to locate package", "run: dev/setup powerdns"]);
    assert!(machine.notes("apt-get.calls").contains("install -y --no-install-recommends pdns-server"));
    let machine = Machine::with("apt-get", "no-network");
    machine.setup(&["powerdns"]).printed(1, &["the network or a registry is in the way", "dev/setup powerdns"]);
    assert_eq!(machine.notes("pauses"), "5\n15\n45\n90\n");
    // The installation succeeds, but the binary is still missing.
    Machine::new().setup(&["powerdns"]).printed(1, &["still missing: ", "dig"]);
}

/// Acceptance rule R077: the tags of an image.
#[test]
fn a_release_has_the_tags_of_its_versions_and_a_branch_has_none_of_them() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/image-tags");
    for (of, tags) in [
        ("refs/heads/main", "main\n"),
        ("refs/tags/v1.2.3", "v1.2.3\nv1.2\nv1\nlatest\n"),
        ("refs/tags/v1.2.3-rc.1", "v1.2.3-rc.1\n"),
        ("refs/tags/v1.2", ""),
        ("refs/tags/version", ""),
        ("refs/heads/v1.2.3", ""),
        ("refs/pull/7/merge", ""),
    ] {
        let out = Command::new(&script).arg(of).output().unwrap();
        assert!(out.status.success(), "{of}: {out:?}");
        assert_eq!(String::from_utf8_lossy(&out.stdout), tags, "{of}");
    }
}

/// R074: two stages, a static binary of musl that the build checks, a base without a shell, and no root. No image is built here.
#[test]
fn r074_the_image_has_a_static_binary_on_a_distroless_base_and_no_root() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = std::fs::read_to_string(root.join("deploy/Dockerfile")).unwrap();
    let steps: Vec<&str> = file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let bases: Vec<&str> = steps.iter().filter_map(|step| step.strip_prefix("FROM ")).collect();
    assert_eq!(bases, ["rust:1.95-alpine AS build", "gcr.io/distroless/static-debian12:nonroot"]);
    let toolchain = std::fs::read_to_string(root.join("rust-toolchain.toml")).unwrap();
    assert!(
        toolchain.contains("channel = \"1.95.0\"") && steps.contains(&"ENV RUSTUP_TOOLCHAIN=1.95.0"),
        "{toolchain}"
    );
    let last = steps.iter().rposition(|step| step.starts_with("FROM ")).unwrap();
    assert!(
        steps[..last]
            .contains(&"RUN readelf --dynamic target/release/signpost > /tmp/dynamic && ! grep NEEDED /tmp/dynamic"),
        "{file}"
    );
    assert_eq!(
        steps[last + 1..],
        [
            "COPY --from=build /src/target/release/signpost /usr/local/bin/signpost",
            "USER 65532:65532",
            "ENTRYPOINT [\"/usr/local/bin/signpost\"]",
            "CMD [\"run\"]",
        ]
    );
}
