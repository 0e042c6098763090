//! The binary as a user sees it: output, error messages and exit codes.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use signpost_testkit::{Lines, eventually};

/// Longest wait for anything.
const TIMEOUT: Duration = Duration::from_mins(2);

fn signpost(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_signpost"))
        .args(arguments)
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("PATH", "/usr/bin:/bin")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_version_is_that_of_the_crate() {
    let output = signpost(&["--version"], &[]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), format!("signpost {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn rbac_prints_roles_in_the_watched_namespaces_instead_of_a_cluster_role() {
    let print = |arguments: &[&str]| {
        let output = signpost(&[["rbac", "--systems", "pangolin"].as_slice(), arguments].concat(), &[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        signpost::manifest::from_yaml("stdout", &text(&output.stdout)).unwrap()
    };
    let name = |object: &serde_json::Value| {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}/{}",
            text(&object["kind"]),
            text(&object["metadata"]["namespace"]),
            text(&object["metadata"]["name"])
        )
    };
    let objects = print(&["--mode", "crd", "--watch-namespaces", "shop, blog", "--tunnel-namespace", "edge"]);
    let roles: Vec<String> = objects.iter().map(name).filter(|name| name.starts_with("Role ")).collect();
    let of = "signpost-pangolin-crd";
    assert_eq!(roles, ["blog", "edge", "shop", "signpost"].map(|place| format!("Role {place}/{of}")));
    let rules = |name_of: &str| objects.iter().find(|object| name(object) == name_of).unwrap()["rules"].to_string();
    assert!(!rules(&format!("ClusterRole /{of}")).contains("services"), "{}", rules(&format!("ClusterRole /{of}")));
    assert!(rules(&format!("Role shop/{of}")).contains("pangolinresources"));
    assert!(rules(&format!("Role edge/{of}")).contains("pangolintunnels"));
    assert!(!rules(&format!("Role edge/{of}")).contains("pangolinresources"));
    assert!(rules(&format!("Role signpost/{of}")).contains("leases"));
    // Without the flag it is the file in deploy/.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac-pangolin-api.yaml");
    let shipped = signpost::manifest::from_yaml("file", &std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(print(&["--mode", "api"]), shipped);
    for (arguments, problem) in [
        (["--mode", "both"], "there are crd, api"),
        (["--watch-namespaces", "Shop"], "\"Shop\" is not the name of a namespace"),
        (["--namespace", "a/b"], "\"a/b\" is not the name of a namespace"),
        (["--tunnel-namespace", "edge"], "--watch-namespaces"),
    ] {
        let output = signpost(&[["rbac", "--systems", "pangolin"].as_slice(), &arguments].concat(), &[]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(problem), "{arguments:?}: {error}");
    }
    let output = signpost(&["rbac", "--mode", "api"], &[]);
    assert!(text(&output.stderr).contains("add --systems pangolin"), "{}", text(&output.stderr));
}

#[test]
fn crds_prints_the_four_kinds_as_yaml() {
    let output = signpost(&["crds"], &[]);
    assert!(output.status.success());
    let objects = signpost::manifest::from_yaml("stdout", &text(&output.stdout)).unwrap();
    let names: Vec<_> = objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    for kind in ["zones", "clusterzones", "rrsets", "clusterrrsets"] {
        assert!(names.contains(&format!("{kind}.dns.cav.enablers.ob").as_str()), "{kind} is not among {names:?}");
    }
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = signpost(&["completions", shell], &[]);
        assert!(output.status.success(), "{shell}");
        assert!(text(&output.stdout).contains("signpost"), "{shell}");
    }
}

#[test]
fn help_names_every_flag_with_its_environment_variable() {
    let help = text(
        &signpost(&["run", "--help"], &[("PDNS_API_KEY", "canary-7f3a"), ("PIHOLE_API_TOKEN", "canary-7f3a")]).stdout,
    );
    for variable in [
        "PDNS_API_URL",
        "PDNS_API_KEY",
        "PDNS_API_TIMEOUT",
        "PIHOLE_URL",
        "DEFAULT_TARGET_IP",
        "OWNER_ID",
        "WATCH_NAMESPACE",
        "LOG_LEVEL",
    ] {
        assert!(help.contains(variable), "{variable} is not in the help");
    }
    assert!(!help.contains("canary-7f3a"), "the help shows a secret");
}

#[test]
fn run_without_a_system_names_the_variables_that_enable_one() {
    let output = signpost(&["run"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("PDNS_API_URL") && error.contains("PIHOLE_URL"), "{error}");
}

#[test]
fn every_configuration_problem_is_reported_without_secrets() {
    let output = signpost(
        &["run"],
        &[
            ("PDNS_API_URL", "ftp://pdns"),
            ("PDNS_API_KEY", "canary-7f3a"),
            ("PDNS_API_TIMEOUT", "soon"),
            ("PIHOLE_URL", "pi.hole"),
            ("PIHOLE_API_TOKEN", ""),
            ("DEFAULT_TARGET_IP", "1.2.3"),
            ("LOG_LEVEL", "loud"),
            ("LEADER_ELECT", "perhaps"),
            ("HEALTH_ADDRESS", "here"),
        ],
    );
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    for name in [
        "PDNS_API_URL",
        "PDNS_API_TIMEOUT",
        "PIHOLE_URL",
        "PIHOLE_API_TOKEN",
        "DEFAULT_TARGET_IP",
        "LOG_LEVEL",
        "LEADER_ELECT",
        "HEALTH_ADDRESS",
    ] {
        assert!(error.contains(name), "{name} is not in: {error}");
    }
    assert!(!error.contains("canary-7f3a"), "{error}");
}

#[test]
fn run_without_a_cluster_names_the_next_step() {
    let output = signpost(
        &["run"],
        &[("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x"), ("HEALTH_ADDRESS", "127.0.0.1:0")],
    );
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("--kubeconfig") && error.contains("signpost demo"), "{error}");
}

/// A `run` with all settings but no cluster.
fn run_with_kubeconfig(path: &Path) -> Output {
    signpost(
        &["run", "--kubeconfig", path.to_str().unwrap()],
        &[("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x"), ("HEALTH_ADDRESS", "127.0.0.1:0")],
    )
}

fn kubeconfig_for(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{token: canary-7f3a}}}}]\n"
    )
}

#[test]
fn run_with_a_bad_kubeconfig_names_the_file_and_the_problem() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("missing", None, "cannot be read"),
        ("broken", Some("clusters: ["), "not valid YAML"),
        ("empty", Some(""), "current-context"),
        ("lost", Some("apiVersion: v1\nkind: Config\ncurrent-context: prod\n"), "no context \"prod\""),
        ("folder", None, "cannot be read"),
    ];
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (name, content, problem) in cases {
        let file = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let output = run_with_kubeconfig(&file);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        assert!(error.contains(file.to_str().unwrap()) && error.contains(problem), "{name}: {error}");
    }
    // The same with the environment variable.
    let output = signpost(
        &["run"],
        &[
            ("KUBECONFIG", folder.path().join("broken").to_str().unwrap()),
            ("PDNS_API_URL", "http://127.0.0.1:1"),
            ("PDNS_API_KEY", "x"),
            ("HEALTH_ADDRESS", "127.0.0.1:0"),
        ],
    );
    assert!(text(&output.stderr).contains("not valid YAML"), "{}", text(&output.stderr));
}

#[test]
fn run_with_expired_credentials_asks_for_a_login_without_secrets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
            let _ = write!(
                stream,
                "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, kubeconfig_for(&format!("http://{address}"))).unwrap();
    let output = run_with_kubeconfig(&file);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("may have expired") && error.contains("log in to the cluster again"), "{error}");
    assert!(!error.contains("canary-7f3a"), "{error}");
}

#[test]
fn run_stops_at_once_while_the_cluster_does_not_answer() {
    // Accepts connections and does not answer.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, kubeconfig_for(&format!("http://{}", listener.local_addr().unwrap()))).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_signpost"))
        .args(["run", "--kubeconfig", file.to_str().unwrap()])
        .envs([("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x"), ("HEALTH_ADDRESS", "127.0.0.1:0")])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send((listener.accept(), listener)));
    let _connection = receiver.recv_timeout(TIMEOUT).expect("it asks the cluster");
    signal(&child, "-TERM");
    assert_eq!(end_of(&mut child).code(), Some(0));
}

/// How many bytes the other end of a connection on this machine has received and not read.
fn unread(client: &TcpStream) -> Option<u32> {
    let end = |port: u16| format!("0100007F:{port:04X}");
    let (ours, theirs) = (end(client.local_addr().unwrap().port()), end(client.peer_addr().unwrap().port()));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let queue = (fields[1] == theirs && fields[2] == ours).then(|| fields[4].split_once(':').unwrap().1)?;
        u32::from_str_radix(queue, 16).ok()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn run_does_not_wait_for_a_client_with_half_a_request() {
    let cluster = signpost_testkit::sandbox_cluster().await;
    cluster.install(&signpost_apis::powerdns::crds()).await;
    let address = format!("127.0.0.1:{}", signpost_testkit::free_port());
    let mut child = Command::new(env!("CARGO_BIN_EXE_signpost"))
        .args(["run", "--kubeconfig", cluster.kubeconfig().to_str().unwrap()])
        .envs([("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x"), ("HEALTH_ADDRESS", &address)])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let connect = || async { TcpStream::connect(&address) };
    let mut client = eventually("it listens", TIMEOUT, connect).await;
    client.write_all(b"GET /healthz HT").unwrap();
    eventually("it has read that", TIMEOUT, || async {
        match unread(&client) {
            Some(0) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    signal(&child, "-TERM");
    assert_eq!(end_of(&mut child).code(), Some(0));
}

#[test]
fn run_with_its_health_port_in_use_names_the_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = signpost(
        &["run"],
        &[("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x"), ("HEALTH_ADDRESS", &address)],
    );
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&address) && error.contains("HEALTH_ADDRESS"), "{error}");
}

#[test]
fn the_demo_converges_on_other_ports_when_its_own_are_in_use() {
    let (api, health) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let names = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = |address: std::io::Result<std::net::SocketAddr>| address.unwrap().port().to_string();
    let (api, health, names) = (port(api.local_addr()), port(health.local_addr()), port(names.local_addr()));
    let taken = ["--api-port", &api, "--health-port", &health, "--dns-port", &names];
    let sockets = (api.clone(), health.clone(), names.clone());
    let output = signpost(&[["demo", "--once"].as_slice(), taken.as_slice()].concat(), &[]);
    let output_text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output_text}\n{}", text(&output.stderr));
    for (port, what) in [(sockets.0, "Kubernetes API"), (sockets.1, "health server"), (sockets.2, "name server")] {
        assert!(output_text.contains(&format!("port {port} cannot be had for the {what}")), "{output_text}");
    }
    assert!(output_text.contains("everything converged"), "{output_text}");
    assert!(output_text.contains("refused"), "{output_text}");
    assert!(!output_text.contains("Ctrl-C"), "it does not stay: {output_text}");
}

/// `make once` is how CI runs the demo. It fails ten seconds after its build; a test with a clock would depend on what else
/// the machine does.
#[test]
fn a_demo_that_does_not_converge_within_its_deadline_fails() {
    let makefile = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile")).unwrap();
    let (_, once) = makefile.split_once("\nonce:").unwrap();
    let recipe: Vec<&str> = once.lines().skip(1).take_while(|line| line.starts_with('\t')).collect();
    assert!(recipe[0].contains("cargo build"), "the build does not count: {recipe:?}");
    assert!(recipe[1].ends_with("demo --once --timeout 10"), "{recipe:?}");
    assert!(makefile.lines().any(|line| line.starts_with("test:") && line.contains(" once ")), "make test runs it");
    let output = signpost(
        &["demo", "--once", "--timeout", "0", "--api-port", "0", "--dns-port", "0", "--health-port", "0"],
        &[],
    );
    let output_text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output_text}\n{}", text(&output.stderr));
    assert!(output_text.contains("\nnot everything converged"), "{output_text}");
}

/// A demo with its own ports and kubeconfig.
fn demo(kubeconfig: &Path) -> Command {
    // The process that runs the tests may ignore a signal that is tested here, and a child inherits that.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_signpost")])
        .args(["demo", "--api-port", "0", "--dns-port", "0", "--health-port", "0", "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

fn end_of(child: &mut Child) -> ExitStatus {
    let asked = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(asked.elapsed() < TIMEOUT, "it did not stop");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_demo_can_be_stopped_at_any_moment_and_leaves_no_file() {
    // After each line that it prints, and once when it is complete and waits. Several at once: a demo mostly waits.
    let at_once = 6;
    std::thread::scope(|scope| {
        for first in 1..=at_once {
            scope.spawn(move || (first..).step_by(at_once).find(|moment| stopped_after(*moment)));
        }
    });
}

/// Stops a demo after so many lines; whether it was complete by then.
fn stopped_after(moment: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut child = demo(&kubeconfig).stdout(Stdio::piped()).spawn().unwrap();
    // Read continuously, as a terminal does, so that it does not wait for us.
    let lines = Lines::of(child.stdout.take().unwrap());
    let mut last = String::new();
    for _ in 0..moment {
        last = lines.next(TIMEOUT).expect("the demo runs until it is stopped");
        if last.contains("Ctrl-C stops it") {
            break;
        }
    }
    signal(&child, ["-TERM", "-INT", "-HUP"][moment % 3]);
    let status = end_of(&mut child);
    assert!(status.code().is_some(), "moment {moment}: it was ended by the signal itself: {status}");
    assert!(!kubeconfig.exists(), "moment {moment} ({last}): the kubeconfig was left behind");
    let complete = last.contains("Ctrl-C stops it");
    assert!(!complete || status.code() == Some(0), "a demo that converged ends well: {status}");
    complete
}

/// A demo that is complete and waits, with its output until then.
fn running_demo(command: &mut Command) -> (Child, Lines, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    let mut output_text = String::new();
    while !output_text.contains("Ctrl-C stops it") {
        output_text += &lines.next(TIMEOUT).unwrap_or_else(|| panic!("the demo ended with: {output_text}"));
        output_text.push('\n');
    }
    (child, lines, output_text)
}

#[test]
fn a_second_signal_ends_the_demo_and_its_file_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let (mut child, _lines, _) = running_demo(&mut demo(&kubeconfig));
    assert!(kubeconfig.exists());
    // Both signals are pending when it continues.
    for name in ["-STOP", "-INT", "-TERM", "-CONT"] {
        signal(&child, name);
    }
    let status = end_of(&mut child);
    assert!(matches!(status.code(), Some(130 | 143)), "{status}");
    assert!(!kubeconfig.exists());
}

#[test]
fn a_demo_under_nohup_outlives_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("env");
    command.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_signpost")]);
    command.args(["demo", "--api-port", "0", "--dns-port", "0", "--health-port", "0", "--kubeconfig"]);
    command.arg(folder.path().join("kubeconfig")).stdin(Stdio::null()).stderr(Stdio::null());
    let (mut child, _lines, _) = running_demo(&mut command);
    // The handled signal comes after the ignored one.
    signal(&child, "-HUP");
    signal(&child, "-TERM");
    assert_eq!(end_of(&mut child).code(), Some(0));
}

/// CPU time that a process has used, in hundredths of a second.
fn cpu_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_demo_without_file_descriptors_waits_without_using_the_cpu() {
    const LIMIT: usize = 64;
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {LIMIT}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_signpost")]);
    command.args(["demo", "--api-port", "0", "--dns-port", "0", "--health-port", "0", "--kubeconfig"]);
    command.arg(folder.path().join("kubeconfig")).stdin(Stdio::null()).stderr(Stdio::null());
    let (mut child, _lines, output_text) = running_demo(&mut command);
    let address = output_text.split_once("http://").unwrap().1.split_whitespace().next().unwrap();
    let many: Vec<_> = (0..2 * LIMIT).map(|_| TcpStream::connect(address).unwrap()).collect();
    let began = Instant::now();
    while std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().count() < LIMIT {
        assert!(began.elapsed() < TIMEOUT, "it takes every connection that it can");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (before, second) = (cpu_time(child.id()), Duration::from_secs(1));
    std::thread::sleep(second);
    let used = cpu_time(child.id()) - before;
    assert!(used < 50, "it used {used} % of a core while it could do nothing");
    drop(many);
    let mut one = TcpStream::connect(address).unwrap();
    one.set_read_timeout(Some(TIMEOUT)).unwrap();
    one.write_all(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    one.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    signal(&child, "-TERM");
    assert_eq!(end_of(&mut child).code(), Some(0));
}

#[test]
fn a_kubeconfig_that_cannot_be_written_names_the_flag() {
    let output = signpost(
        &[
            "demo",
            "--once",
            "--api-port",
            "0",
            "--dns-port",
            "0",
            "--health-port",
            "0",
            "--kubeconfig",
            "/proc/nowhere",
        ],
        &[],
    );
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("/proc/nowhere") && error.contains("--kubeconfig"), "{error}");
}

#[test]
fn a_demo_does_not_overwrite_an_existing_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, "mine").unwrap();
    let output = demo(&file).arg("--once").stderr(Stdio::piped()).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("there is a file already") && error.contains("--kubeconfig"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn an_ignored_example_that_was_changed_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let ingress = |name: &str, expect: &str| {
        let text = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  annotations: \
             {{pihole.io/register: \"true\", demo.signpost/expect: {expect}}}\nspec: {{rules: [{{host: {name}.home.arpa}}]}}\n"
        );
        std::fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
    };
    // The second is applied after the first: once it is served, so is the first.
    ingress("first", "Ignored");
    ingress("second", "Served");
    let examples = folder.path().to_str().unwrap();
    let output = signpost(
        &["demo", "--once", "--api-port", "0", "--dns-port", "0", "--health-port", "0", "--examples", examples],
        &[("TMPDIR", examples)],
    );
    let output_text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output_text}");
    assert!(
        output_text.contains("missing  Ingress default/first") && output_text.contains("which was not expected"),
        "{output_text}"
    );
    assert!(output_text.contains("1 names served"), "{output_text}");
}

#[test]
fn invalid_examples_are_reported_with_file_object_or_field() {
    let rrset = |spec: &str| {
        format!("apiVersion: dns.cav.enablers.ob/v1alpha2\nkind: RRset\nmetadata: {{name: www}}\nspec: {spec}\n")
    };
    let zone = "zoneRef: {name: example.org, kind: ClusterZone}";
    let cases = [
        ("not YAML", "a: [1".to_owned(), vec!["bad.yaml is not valid YAML"]),
        ("no object", "- 1".to_owned(), vec!["bad.yaml: document 1 is not an object"]),
        ("no kind", "apiVersion: v1\nmetadata: {name: a}".to_owned(), vec!["bad.yaml: document 1 has no kind"]),
        (
            "unknown kind",
            "apiVersion: v1\nkind: Gadget\nmetadata: {name: a}".to_owned(),
            vec!["knows no kind Gadget", "RRset"],
        ),
        (
            "unknown version",
            "apiVersion: dns.cav.enablers.ob/v9\nkind: RRset\nmetadata: {name: a}".to_owned(),
            vec!["RRset default/a", "there is no RRset of dns.cav.enablers.ob/v9 here"],
        ),
        (
            "invalid by schema, every field at once",
            rrset(&format!("{{type: A, name: www, ttl: -1, records: [], {zone}}}")),
            vec!["RRset default/www", "spec.ttl", "spec.records"],
        ),
        (
            "a field is missing",
            rrset(&format!("{{name: www, ttl: 60, records: [192.0.2.1], {zone}}}")),
            vec!["spec.type: Required value"],
        ),
        (
            "invalid by CEL",
            rrset(&format!("{{type: CNAME, name: www, ttl: 60, records: [a, b], {zone}}}")),
            vec!["RRset default/www", "exactly one record"],
        ),
    ];
    for (name, manifest, words) in cases {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("bad.yaml"), manifest).unwrap();
        let examples = folder.path().to_str().unwrap();
        let output = signpost(
            &["demo", "--once", "--api-port", "0", "--dns-port", "0", "--health-port", "0", "--examples", examples],
            &[("TMPDIR", examples)],
        );
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        for word in words {
            assert!(error.contains(word), "{name}: {word:?} is not in: {error}");
        }
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["bad.yaml"], "{name}: nothing is left behind");
    }
}
