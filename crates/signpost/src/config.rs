//! Turns the text of the command line and the environment into types, and lists every problem at once.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;

use signpost_engine::{Configured, Settings, logs};

use crate::cli::{ProcessArgs, RunArgs};
use crate::systems;

/// A valid configuration.
pub struct Config {
    /// The process itself.
    pub process: Process,
    /// The systems that are switched on, with their settings read.
    pub systems: Vec<(&'static str, Box<dyn Configured>)>,
}

/// How the process runs.
#[derive(Debug)]
pub struct Process {
    /// The namespace to watch; `None` watches all.
    pub watch_namespace: Option<String>,
    /// The address of health and metrics.
    pub health_address: SocketAddr,
    /// Whether a Lease decides which replica writes.
    pub leader_elect: bool,
    /// The operator's own namespace.
    pub own_namespace: String,
    /// Name of that Lease. Operators that watch different namespaces do not wait for each other.
    pub lease_name: String,
    /// Name of this replica.
    pub identity: String,
    /// The log level.
    pub log_level: String,
    /// The format of log lines.
    pub log_format: logs::Format,
}

/// Reads the configuration. The error lists all problems, one line each: `NAME: problem`.
pub fn read(args: &RunArgs) -> Result<Config, Vec<String>> {
    let mut settings = args.systems.settings();
    let process = process(&args.process, &mut settings);
    settings.set("WATCH_NAMESPACE", &args.process.watch_namespace);
    settings.set("POD_NAMESPACE", own_namespace(&args.process));
    let mut chosen = Vec::new();
    for spec in systems::enabled(&args.process.systems, &mut settings) {
        if let Some(configured) = (spec.configure)(&mut settings) {
            chosen.push((spec.name, configured));
        }
    }
    match process {
        Some(process) if settings.problems().is_empty() => Ok(Config { process, systems: chosen }),
        _ => Err(settings.problems().iter().map(ToString::to_string).collect()),
    }
}

fn process(args: &ProcessArgs, settings: &mut Settings) -> Option<Process> {
    // The process reads its own flags with the same reader as the systems.
    for (name, value) in [
        ("LEADER_ELECT", &args.leader_elect),
        ("LOG_LEVEL", &args.log_level),
        ("LOG_FORMAT", &args.log_format),
        ("HEALTH_ADDRESS", &args.health_address),
        ("LEASE_NAME", &args.lease_name),
        ("POD_NAME", &args.identity),
    ] {
        settings.set(name, value);
    }
    let leader_elect = settings.switch("LEADER_ELECT", true);
    // A system may have a name of its own for it, which its users know.
    let names = systems::SYSTEMS.iter().flat_map(|spec| spec.settings).map(|setting| setting.name);
    let own = names.filter(|name| name.ends_with("_LOG_LEVEL")).find(|name| settings.given(name).is_some());
    let level_name = own.unwrap_or("LOG_LEVEL");
    let log_level = settings.given(level_name).unwrap_or("info").to_owned();
    settings.check(level_name, logs::check_level(&log_level).map_err(|error| error.to_string()));
    let log_format = match settings.given("LOG_FORMAT").unwrap_or("auto") {
        "auto" if std::io::IsTerminal::is_terminal(&std::io::stderr()) => Some(logs::Format::Text),
        "auto" => Some(logs::Format::Json),
        other => {
            let format = other.parse().map_err(|_| format!("{other:?} is not one of json, text and auto"));
            settings.check("LOG_FORMAT", format)
        }
    };
    let address = settings.given("HEALTH_ADDRESS").unwrap_or("0.0.0.0:8081");
    let address = address.parse().map_err(|_| format!("{address:?} is not an address such as 0.0.0.0:8081"));
    let health_address = settings.check("HEALTH_ADDRESS", address);
    let identity = match settings.given("POD_NAME") {
        None => std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        Some(given) => given.to_owned(),
    };
    let watch_namespace = Some(args.watch_namespace.trim().to_owned()).filter(|namespace| !namespace.is_empty());
    let lease_name = match (settings.given("LEASE_NAME"), &watch_namespace) {
        (Some(name), _) => name.to_owned(),
        (None, Some(namespace)) => format!("signpost-{namespace}"),
        (None, None) => "signpost".to_owned(),
    };
    if !is_object_name(&lease_name) {
        let message = format!("{lease_name:?} is not a valid Kubernetes object name, such as signpost");
        settings.problem("LEASE_NAME", message);
    }
    Some(Process {
        watch_namespace,
        health_address: health_address?,
        leader_elect,
        own_namespace: own_namespace(args),
        lease_name,
        // Two replicas of one name, or a replica after a restart, must have different identities.
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
    let given = args.own_namespace.trim();
    let found = if given.is_empty() { pod().trim().to_owned() } else { given.to_owned() };
    if found.is_empty() { "default".to_owned() } else { found }
}

/// A DNS subdomain, as the names of most Kubernetes objects are.
fn is_object_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-');
    name.len() <= 253 && name.split('.').all(label)
}
