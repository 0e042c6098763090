//! Turns the text of the command line and the environment into types, and lists every problem at once.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use signpost_engine::logs;
use signpost_system_pihole::{PiholeConfig, PiholeSettings};
use signpost_system_powerdns::{ApiKey, KeySource, PowerDnsConfig};

use crate::cli::{PiholeArgs, PowerDnsArgs, ProcessArgs, RunArgs};

/// A configuration that can be run.
#[derive(Debug)]
pub struct Config {
    /// The process itself.
    pub process: Process,
    /// The powerdns system, when it is on.
    pub powerdns: Option<PowerDnsConfig>,
    /// The pihole system, when it is on.
    pub pihole: Option<PiholeConfig>,
}

/// How the process runs.
#[derive(Debug)]
pub struct Process {
    /// The namespace to watch; `None` watches all.
    pub watch_namespace: Option<String>,
    /// Where health and metrics are served.
    pub health_address: SocketAddr,
    /// Whether a Lease decides who writes.
    pub leader_elect: bool,
    /// The operator's own namespace.
    pub own_namespace: String,
    /// Name of that Lease. Operators that watch different namespaces do not wait for each other.
    pub lease_name: String,
    /// Name of this replica.
    pub identity: String,
    /// What is logged.
    pub log_level: String,
    /// How log lines look.
    pub log_format: logs::Format,
}

/// Reads the configuration; the error lists all that is wrong, one line each, `NAME: what is wrong`.
pub fn read(args: &RunArgs) -> Result<Config, Vec<String>> {
    let mut problems = Vec::new();
    let process = process(&args.process, &mut problems);
    let mut powerdns = powerdns(&args.powerdns, &mut problems);
    if let Some(powerdns) = &mut powerdns {
        // Others may hold names of a shared zone in namespaces that are not watched here.
        powerdns.pace.partial_view = !args.process.watch_namespace.trim().is_empty();
    }
    let pihole = pihole(&args.pihole, &args.process).map(|settings| {
        settings.resolve().map_err(|wrong| problems.extend(wrong.iter().map(ToString::to_string))).ok()
    });
    if powerdns.is_none() && pihole.is_none() {
        problems.push(
            "no system is switched on: give PDNS_API_URL for powerdns, or PIHOLE_URL or PIHOLE_INSTANCES_FILE for pihole; or see everything without a cluster: signpost demo"
                .to_owned(),
        );
    }
    match process {
        Some(process) if problems.is_empty() => Ok(Config { process, powerdns, pihole: pihole.flatten() }),
        _ => Err(problems),
    }
}

fn process(args: &ProcessArgs, problems: &mut Vec<String>) -> Option<Process> {
    let leader_elect = boolean("LEADER_ELECT", &args.leader_elect, true, problems);
    let mut take = |name: &str, problem: String| problems.push(format!("{name}: {problem}"));
    let log_level = given(&args.log_level).unwrap_or("info").to_owned();
    if let Err(error) = logs::check_level(&log_level) {
        take("LOG_LEVEL", error.to_string());
    }
    let log_format = match given(&args.log_format).unwrap_or("auto") {
        "auto" if std::io::IsTerminal::is_terminal(&std::io::stderr()) => Some(logs::Format::Text),
        "auto" => Some(logs::Format::Json),
        other => {
            other.parse().map_err(|_| take("LOG_FORMAT", format!("{other:?} is none of json, text and auto"))).ok()
        }
    };
    let health_address = given(&args.health_address)
        .unwrap_or("0.0.0.0:8081")
        .parse()
        .map_err(|_| {
            take("HEALTH_ADDRESS", format!("{:?} is not an address such as 0.0.0.0:8081", args.health_address));
        })
        .ok();
    let identity = match args.identity.trim() {
        "" => std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        given => given.to_owned(),
    };
    let watch_namespace = given(&args.watch_namespace).map(str::to_owned);
    let lease_name = match (given(&args.lease_name), &watch_namespace) {
        (Some(name), _) => name.to_owned(),
        (None, Some(namespace)) => format!("signpost-{namespace}"),
        (None, None) => "signpost".to_owned(),
    };
    if !is_object_name(&lease_name) {
        take("LEASE_NAME", format!("{lease_name:?} is not a name that Kubernetes takes, such as signpost"));
    }
    Some(Process {
        watch_namespace,
        health_address: health_address?,
        leader_elect: leader_elect?,
        own_namespace: own_namespace(args),
        lease_name,
        // Two replicas under one name, or the successor of a killed one, must still be told apart.
        identity: format!(
            "{}_{:016x}",
            if identity.is_empty() { "signpost" } else { &identity },
            RandomState::new().hash_one(())
        ),
        log_level,
        log_format: log_format?,
    })
}

/// The namespace that was given, that of the pod, or `default`.
fn own_namespace(args: &ProcessArgs) -> String {
    let pod = || std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace").unwrap_or_default();
    let found = given(&args.own_namespace).map_or_else(|| pod().trim().to_owned(), str::to_owned);
    if found.is_empty() { "default".to_owned() } else { found }
}

fn powerdns(args: &PowerDnsArgs, problems: &mut Vec<String>) -> Option<PowerDnsConfig> {
    let url = given(args.pdns_api_url.as_deref()?)?;
    let key = match file(args.pdns_api_key_file.as_ref()) {
        Some(file) => KeySource::File(file),
        None => KeySource::Text(ApiKey::new(args.pdns_api_key.as_deref().unwrap_or_default())),
    };
    let mut config = PowerDnsConfig::new(url, key);
    given(&args.pdns_api_vhost).unwrap_or("localhost").clone_into(&mut config.vhost);
    config.ca_path = file(args.pdns_api_ca_path.as_ref());
    let mut seconds = |name: &str, text: &str, value: &mut Duration| match given(text).map(str::parse::<u32>) {
        None => {}
        Some(Ok(seconds)) if seconds > 0 => *value = Duration::from_secs(seconds.into()),
        Some(_) => problems.push(format!("{name}: {text:?} is not a number of seconds, such as 10")),
    };
    seconds("PDNS_API_TIMEOUT", &args.pdns_api_timeout, &mut config.timeout);
    seconds("PDNS_RESYNC", &args.pdns_resync, &mut config.pace.resync);
    config.insecure = boolean("PDNS_API_INSECURE", &args.pdns_api_insecure, false, problems).unwrap_or_default();
    problems.extend(config.validate().iter().map(ToString::to_string));
    Some(config)
}

/// What a value says; nothing when it is empty, as templates leave it.
fn given(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

fn file(path: Option<&PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty()).cloned()
}

/// A DNS subdomain, as the names of most Kubernetes objects are.
fn is_object_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-');
    name.len() <= 253 && name.split('.').all(label)
}

fn boolean(name: &str, text: &str, default: bool, problems: &mut Vec<String>) -> Option<bool> {
    match given(text).map(str::to_ascii_lowercase).as_deref() {
        None => Some(default),
        Some("true" | "on" | "yes" | "1") => Some(true),
        Some("false" | "off" | "no" | "0") => Some(false),
        Some(_) => {
            problems.push(format!("{name}: {text:?} is neither true nor false"));
            None
        }
    }
}

fn pihole(args: &PiholeArgs, process: &ProcessArgs) -> Option<PiholeSettings> {
    let instances_file = file(args.pihole_instances_file.as_ref());
    let files = [&instances_file, &file(args.pihole_api_token_file.as_ref())].into_iter().any(Option::is_some);
    let texts = [&args.pihole_url, &args.pihole_api_token, &args.default_target_ip];
    // Whoever gives one of these means a Pi-hole, and is told what else it takes.
    if !files && texts.into_iter().all(|text| text.as_deref().and_then(given).is_none()) {
        return None;
    }
    Some(PiholeSettings {
        url: args.pihole_url.clone(),
        token: args.pihole_api_token.clone(),
        token_file: file(args.pihole_api_token_file.as_ref()),
        default_target_ip: args.default_target_ip.clone(),
        dialect: Some(args.pihole_api_dialect.clone()),
        owner_id: Some(args.owner_id.clone()),
        conflict_policy: Some(args.conflict_policy.clone()),
        use_finalizer: Some(args.use_finalizer.clone()),
        gc: Some(args.gc.clone()),
        resync: Some(args.pihole_resync.clone()),
        instances_file,
        ca_file: file(args.pihole_ca_file.as_ref()),
        server_name: args.pihole_server_name.clone(),
        watch_namespace: Some(process.watch_namespace.clone()),
        log_level: None,
        operator_namespace: Some(own_namespace(process)),
    })
}
