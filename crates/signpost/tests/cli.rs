//! The binary as a user meets it: what it prints, what it says when something is wrong, and its exit codes.

// A test that cannot do its work must fail at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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
fn the_version_is_the_crates() {
    let output = signpost(&["--version"], &[]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), format!("signpost {}\n", env!("CARGO_PKG_VERSION")));
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
fn run_with_no_system_configured_says_which_variables_switch_one_on() {
    let output = signpost(&["run"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("PDNS_API_URL") && error.contains("PIHOLE_URL"), "{error}");
}

#[test]
fn every_configuration_problem_is_reported_at_once_and_no_secret_is_shown() {
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
fn run_without_a_cluster_says_what_to_do() {
    let output = signpost(
        &["run"],
        &[("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x"), ("HEALTH_ADDRESS", "127.0.0.1:0")],
    );
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("--kubeconfig") && error.contains("signpost demo"), "{error}");
}

#[test]
fn run_with_a_broken_kubeconfig_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, "clusters: [").unwrap();
    let path = file.to_str().unwrap();
    let output = signpost(
        &["run", "--kubeconfig", path],
        &[("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x"), ("HEALTH_ADDRESS", "127.0.0.1:0")],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(path), "{}", text(&output.stderr));
}

#[test]
fn the_demo_converges_and_takes_other_ports_when_its_own_are_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = signpost(&["demo", "--once", "--api-port", &port, "--dns-port", "0", "--health-port", "0"], &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    assert!(said.contains(&format!("port {port} cannot be had for the Kubernetes API")), "{said}");
    assert!(said.contains("everything converged"), "{said}");
    assert!(said.contains("refused"), "{said}");
}

#[test]
fn the_demo_stops_at_once_when_asked_to_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut child = Command::new(env!("CARGO_BIN_EXE_signpost"))
        .args(["demo", "--api-port", "0", "--dns-port", "0", "--health-port", "0", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !kubeconfig.exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "the demo wrote no kubeconfig");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let asked = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(asked.elapsed() < Duration::from_secs(10), "the demo did not stop");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!kubeconfig.exists(), "the kubeconfig was left behind");
}
