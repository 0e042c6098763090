//! Settings as templates and small images leave them, passed to the binary.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// `signpost run` with these variables and a missing kubeconfig: exit code 1 when the settings are valid, 2 when not.
fn run(environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_signpost"))
        .args(["run", "--kubeconfig", "/nonexistent/kubeconfig"])
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("HEALTH_ADDRESS", "127.0.0.1:0")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

const POWERDNS: [(&str, &str); 2] = [("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x")];

#[test]
fn an_empty_setting_counts_as_not_given() {
    let empty = [
        "PDNS_API_KEY_FILE",
        "PDNS_API_CA_PATH",
        "PDNS_API_VHOST",
        "PDNS_API_TIMEOUT",
        "PDNS_API_INSECURE",
        "PDNS_RESYNC",
        "PIHOLE_URL",
        "PIHOLE_API_TOKEN",
        "PIHOLE_API_TOKEN_FILE",
        "PIHOLE_INSTANCES_FILE",
        "PIHOLE_CA_FILE",
        "PIHOLE_SERVER_NAME",
        "PIHOLE_API_DIALECT",
        "PIHOLE_RESYNC",
        "OWNER_ID",
        "CONFLICT_POLICY",
        "USE_FINALIZER",
        "GC",
        "LEADER_ELECT",
        "LEASE_NAME",
        "LOG_LEVEL",
        "LOG_FORMAT",
        "WATCH_NAMESPACE",
        "POD_NAMESPACE",
        "POD_NAME",
        "DEPLOYMENT_NAME",
    ];
    let mut environment: Vec<_> = empty.iter().map(|name| (*name, "")).collect();
    environment.extend(POWERDNS);
    let (code, error) = run(&environment);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("/nonexistent/kubeconfig"), "{error}");
    let (code, error) = run(&empty.map(|name| (name, "")));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("no system is switched on"), "{error}");
}

#[test]
fn the_log_level_is_one_of_four() {
    for good in ["debug", "info", "warn", "error"] {
        let (code, error) = run(&[POWERDNS.as_slice(), &[("LOG_LEVEL", good)]].concat());
        assert_eq!(code, Some(1), "{good}: {error}");
    }
    for bad in ["loud", "off", "trace", "INFO", "warning", "info,signpost_engine=debug"] {
        let (code, error) = run(&[POWERDNS.as_slice(), &[("LOG_LEVEL", bad)]].concat());
        assert_eq!(code, Some(2), "{bad}: {error}");
        assert!(error.contains("LOG_LEVEL"), "{error}");
    }
}

#[test]
fn a_switch_accepts_the_usual_spellings() {
    for good in ["true", "True", "1", "yes", "on", "false", "FALSE", "0", "no", "off"] {
        for name in ["LEADER_ELECT", "PDNS_API_INSECURE"] {
            let (code, error) = run(&[POWERDNS.as_slice(), &[(name, good)]].concat());
            assert_eq!(code, Some(1), "{name}={good}: {error}");
        }
    }
}

#[test]
fn an_invalid_lease_name_is_reported_at_the_start() {
    for bad in ["Signpost", "a_b", "-a", "a..b"] {
        let (code, error) = run(&[POWERDNS.as_slice(), &[("LEASE_NAME", bad)]].concat());
        assert_eq!(code, Some(2), "{bad}: {error}");
        assert!(error.contains("LEASE_NAME"), "{error}");
    }
}

#[test]
fn a_watched_namespace_that_cannot_exist_is_reported_at_the_start() {
    for bad in ["shop,blog", "Shop", "a.b", "a/b"] {
        let wrong = [("WATCH_NAMESPACE", bad), ("LEASE_NAME", "a_b")];
        let (code, error) = run(&[POWERDNS.as_slice(), &wrong].concat());
        assert_eq!(code, Some(2), "{bad}: {error}");
        assert!(error.contains("WATCH_NAMESPACE: ") && error.contains("LEASE_NAME: \"a_b\""), "{error}");
        // The name of the Lease that is made of it is not the user's mistake.
        let (_, error) = run(&[POWERDNS.as_slice(), &wrong[..1]].concat());
        assert!(error.contains("WATCH_NAMESPACE: ") && !error.contains("LEASE_NAME"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_works_without_certificate_authorities() {
    // The API server's authority is in its kubeconfig, as it is in a pod.
    let Some(cluster) = signpost_testkit::real_cluster().await else { return };
    cluster.install(&signpost_apis::powerdns::crds()).await;
    for setting in [
        vec![("PDNS_API_URL", "http://127.0.0.1:1"), ("PDNS_API_KEY", "x")],
        vec![("PIHOLE_URL", "http://127.0.0.1:1"), ("PIHOLE_API_TOKEN", "x"), ("DEFAULT_TARGET_IP", "10.0.0.1")],
    ] {
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_signpost"))
            .args(["run", "--kubeconfig", cluster.kubeconfig().to_str().unwrap()])
            .env_clear()
            .envs([("HOME", "/nonexistent"), ("HEALTH_ADDRESS", "127.0.0.1:0"), ("LOG_FORMAT", "json")])
            .envs([("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/nonexistent")])
            .envs(setting)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stderr.take().unwrap()));
        let mut log = String::new();
        let timeout = Duration::from_mins(1);
        while let Some(line) = tokio::time::timeout(timeout, lines.next_line()).await.expect("a line in time").unwrap()
        {
            log.push_str(&line);
            if line.contains("signpost started") {
                break;
            }
        }
        assert!(log.contains("signpost started"), "it ended with: {log}");
    }
}
