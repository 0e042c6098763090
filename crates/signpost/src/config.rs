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
    /// The addresses of health and metrics: one at least.
    pub health_addresses: Vec<SocketAddr>,
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
    let deployment = deployment(&args.process, &mut settings);
    settings.set("DEPLOYMENT_NAME", deployment);
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
    let addresses = settings.given("HEALTH_ADDRESS").unwrap_or("0.0.0.0:8081");
    let address = |text: &str| {
        text.trim().parse().map_err(|_| format!("{:?} is not an address such as 0.0.0.0:8081", text.trim()))
    };
    let addresses = addresses.split(',').map(address).collect::<Result<Vec<SocketAddr>, String>>();
    let health_addresses = settings.check("HEALTH_ADDRESS", addresses);
    let identity = pod_name(args);
    let watch_namespace = Some(args.watch_namespace.trim().to_owned()).filter(|namespace| !namespace.is_empty());
    let lease_name = match (settings.given("LEASE_NAME"), &watch_namespace) {
        (Some(name), _) => name.to_owned(),
        (None, Some(namespace)) => format!("signpost-{namespace}"),
        (None, None) => "signpost".to_owned(),
    };
    let given = settings.given("LEASE_NAME").filter(|name| !is_object_name(name)).map(str::to_owned);
    if let Some(name) = given {
        settings.problem("LEASE_NAME", format!("{name:?} is not a valid Kubernetes object name, such as signpost"));
    }
    // The API server lists nothing for a text that cannot be a namespace, and reports no error.
    if let Some(text) = watch_namespace.as_deref().filter(|text| !is_namespace_name(text)) {
        let message = format!("{text:?} is not the name of a namespace; write one, such as shop, or none to watch all");
        settings.problem("WATCH_NAMESPACE", message);
    }
    Some(Process {
        watch_namespace,
        health_addresses: health_addresses?,
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

/// The name that was given, or the host name, which is the name of the pod.
fn pod_name(args: &ProcessArgs) -> String {
    match args.identity.trim() {
        "" => std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        given => given.to_owned(),
    }
}

/// The name that was given, that of the pod's Deployment, or `signpost`.
fn deployment(args: &ProcessArgs, settings: &mut Settings) -> String {
    let given = args.deployment_name.trim();
    if given.is_empty() {
        return deployment_of(&pod_name(args)).unwrap_or("signpost").to_owned();
    }
    if !is_object_name(given) {
        settings
            .problem("DEPLOYMENT_NAME", format!("{given:?} is not a valid Kubernetes object name, such as signpost"));
    }
    given.to_owned()
}

/// The Deployment of a pod: its name without the two endings that its ReplicaSet and the pod have. Kubernetes makes them of these letters only.
fn deployment_of(pod: &str) -> Option<&str> {
    let made = |text: &str| text.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte));
    let (set, _) = pod.rsplit_once('-').filter(|(_, end)| end.len() == 5 && made(end))?;
    let (name, _) = set.rsplit_once('-').filter(|(_, hash)| (5..=10).contains(&hash.len()) && made(hash))?;
    Some(name).filter(|name| is_object_name(name))
}

/// A DNS subdomain, as the names of most Kubernetes objects are.
pub(crate) fn is_object_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-');
    name.len() <= 253 && name.split('.').all(label)
}

/// A DNS label, as the names of namespaces are.
pub(crate) fn is_namespace_name(name: &str) -> bool {
    is_object_name(name) && !name.contains('.') && name.len() <= 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deployment_is_given_or_that_of_the_pod() {
        assert_eq!(deployment_of("signpost-home-7c9d8f6b5d-x2x9z"), Some("signpost-home"));
        assert_eq!(deployment_of("signpost-65d4c8b4f9-zq8vn"), Some("signpost"));
        for pod in [
            "",
            "signpost",
            "signpost-0",
            "my-laptop-aaaaa-bbbbb",
            "7c9d8f6b5d-x2x9z",
            "a-7c9d8f6b5d-x2x9",
            "-7c9d8f6b5d-x2x9z",
        ] {
            assert_eq!(deployment_of(pod), None, "{pod}");
        }
        let read = |given: &str, pod: &str| {
            let args =
                ProcessArgs { deployment_name: given.to_owned(), identity: pod.to_owned(), ..ProcessArgs::default() };
            let mut settings = Settings::default();
            (deployment(&args, &mut settings), settings.problems().len())
        };
        assert_eq!(read("", "edge-7c9d8f6b5d-x2x9z"), ("edge".to_owned(), 0));
        assert_eq!(read(" other ", "edge-7c9d8f6b5d-x2x9z"), ("other".to_owned(), 0));
        assert_eq!(read("", "laptop"), ("signpost".to_owned(), 0));
        assert_eq!(read("My Deployment", "laptop").1, 1);
    }
}
