//! The settings of the system, from flags, the environment and files.

use std::{path::PathBuf, time::Duration};

use signpost_dns::ZoneName;
use signpost_engine::{
    Selector,
    settings::{Problem, Setting, Settings},
};
use signpost_provider_powerdns::{ClientOptions, Secret};

use crate::plan::ledger::PACKS_ABOVE;

/// How the system runs.
#[derive(Clone, Debug)]
pub struct PowerDnsConfig {
    /// `PDNS_API_URL`: the base URL; a path prefix is kept.
    pub url: String,
    /// `PDNS_API_KEY` or `PDNS_API_KEY_FILE`.
    pub key: Secret,
    /// `PDNS_API_VHOST`: the server id in paths.
    pub vhost: String,
    /// `PDNS_API_TIMEOUT`: the deadline of every call.
    pub timeout: Duration,
    /// `PDNS_API_INSECURE`: accept any certificate.
    pub insecure: bool,
    /// `PDNS_API_CA_PATH`: trust these certificates instead of the system's.
    pub ca_path: Option<PathBuf>,
    /// Calls under way at the same time.
    pub concurrency: usize,
    /// How the zones are watched over.
    pub pace: Pace,
}

/// How often zones are looked at when nothing happens, and which.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Between two looks at a zone's serial.
    pub resync: Duration,
    /// Between two reads of all its records.
    pub full_read: Duration,
    /// Before a record set the server refused is tried again.
    pub retry_refused: Duration,
    /// How long a request that ended without an answer may still be carried out by the server. It must be longer than
    /// the deadline of a call.
    pub grace: Duration,
    /// Between two questions whether the server answers at all, for readiness.
    pub probe: Duration,
    /// Zones worked on at the same time.
    pub zones_at_once: usize,
    /// Only zones at or below this name.
    pub only: Option<ZoneName>,
    /// Whether only the objects of one namespace are seen: a ClusterZone's record sets are then not all known, and
    /// nothing is deleted because no object of it is seen.
    pub partial_view: bool,
    /// Which DNSEndpoints are published; `None` when none are.
    pub endpoints: Option<EndpointSource>,
    /// Bytes up to which a zone object lists the records of DNSEndpoints with their names. A longer list has marks.
    pub packs_above: usize,
}

/// Which DNSEndpoints are published, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSource {
    /// `PDNS_DNSENDPOINTS_LABELS`: only objects with these labels.
    pub labels: Option<String>,
    /// `PDNS_DNSENDPOINTS_ANNOTATIONS`: only objects with these annotations.
    pub annotations: Selector,
    /// `PDNS_DNSENDPOINTS_TAKE_OVER`: names that the registry of external-dns owns are taken over.
    pub take_over: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            resync: Duration::from_mins(1),
            full_read: Duration::from_mins(10),
            retry_refused: Duration::from_mins(5),
            grace: Duration::from_mins(1),
            probe: Duration::from_secs(30),
            zones_at_once: 8,
            only: None,
            partial_view: false,
            endpoints: None,
            packs_above: PACKS_ABOVE,
        }
    }
}

/// The settings.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting::new(
        "PDNS_API_URL",
        "URL",
        "Base URL of the PowerDNS API, such as http://pdns.dns.svc:8081; a path prefix is kept",
    ),
    Setting::new("PDNS_API_KEY", "KEY", "API key; prefer the environment or a file, since flags are visible to others")
        .secret(),
    Setting::new("PDNS_API_KEY_FILE", "FILE", "File with the API key, read again when it changes"),
    Setting::new("PDNS_API_VHOST", "ID", "Server id in the API's paths").or("localhost"),
    Setting::new("PDNS_API_TIMEOUT", "TIME", "Longest time that any one call may take: 10, 10s, 1m").or("10"),
    Setting::switch("PDNS_API_INSECURE", "false", "Accept any TLS certificate: true or false"),
    Setting::new("PDNS_API_CA_PATH", "FILE", "PEM file of the certificate authority to trust"),
    Setting::new(
        "PDNS_RESYNC",
        "TIME",
        "Time between two checks of each zone's serial, to find changes made by others: 60, 60s, 5m",
    )
    .or("60"),
    Setting::switch(
        "PDNS_DNSENDPOINTS",
        "false",
        "Publish DNSEndpoint objects (externaldns.k8s.io) in the zones of this operator, as external-dns would: true or false",
    ),
    Setting::new(
        "PDNS_DNSENDPOINTS_LABELS",
        "SELECTOR",
        "Only DNSEndpoints with these labels, as external-dns's --label-filter takes them",
    ),
    Setting::new(
        "PDNS_DNSENDPOINTS_ANNOTATIONS",
        "SELECTOR",
        "Only DNSEndpoints with these annotations, as external-dns's --annotation-filter takes them",
    ),
    Setting::switch(
        "PDNS_DNSENDPOINTS_TAKE_OVER",
        "false",
        "Take over the names of DNSEndpoints that the TXT registry of an external-dns owns: true or false",
    ),
];

/// Reads which DNSEndpoints are published.
fn read_endpoints(settings: &mut Settings) -> Option<EndpointSource> {
    const LABELS: &str = "PDNS_DNSENDPOINTS_LABELS";
    const ANNOTATIONS: &str = "PDNS_DNSENDPOINTS_ANNOTATIONS";
    const TAKE_OVER: &str = "PDNS_DNSENDPOINTS_TAKE_OVER";
    let take_over = settings.switch(TAKE_OVER, false);
    if !settings.switch("PDNS_DNSENDPOINTS", false) {
        let given = |name| settings.given(name).is_some();
        let further = [(LABELS, given(LABELS)), (ANNOTATIONS, given(ANNOTATIONS)), (TAKE_OVER, take_over)];
        for (name, _) in further.into_iter().filter(|(_, set)| *set) {
            settings.problem(name, "it has no effect without PDNS_DNSENDPOINTS=true");
        }
        return None;
    }
    let read = |text: &str| Selector::parse(text).map_err(|error| error.to_string());
    settings.parse(LABELS, read);
    Some(EndpointSource {
        labels: settings.given(LABELS).map(str::to_owned),
        annotations: settings.parse(ANNOTATIONS, read).unwrap_or_default(),
        take_over,
    })
}

impl PowerDnsConfig {
    /// Reads the settings; `None` when something is wrong with them, which is then among their problems.
    pub fn read(settings: &mut Settings) -> Option<Self> {
        let before = settings.problems().len();
        let url = settings.required("PDNS_API_URL", "the base URL of the PowerDNS API, such as http://pdns:8081");
        let key = match settings.path("PDNS_API_KEY_FILE") {
            Some(file) => Secret::File(file),
            None => Secret::Value(settings.given("PDNS_API_KEY").unwrap_or_default().to_owned()),
        };
        let mut config = Self::new(url.unwrap_or_default(), key);
        if let Some(vhost) = settings.given("PDNS_API_VHOST") {
            vhost.clone_into(&mut config.vhost);
        }
        config.ca_path = settings.path("PDNS_API_CA_PATH");
        config.insecure = settings.switch("PDNS_API_INSECURE", false);
        for (name, value) in [("PDNS_API_TIMEOUT", &mut config.timeout), ("PDNS_RESYNC", &mut config.pace.resync)] {
            match settings.duration(name) {
                Some(Duration::ZERO) => settings.problem(name, "it is zero; write seconds, such as 10"),
                Some(given) => *value = given,
                None => {}
            }
        }
        // Other processes may own names of a shared zone in namespaces that are not watched here.
        config.pace.partial_view = settings.given("WATCH_NAMESPACE").is_some();
        config.pace.endpoints = read_endpoints(settings);
        for Problem { setting, message } in config.validate() {
            // A setting that could not be read is reported once.
            if settings.problems().iter().all(|known| known.setting != setting) {
                settings.problem(setting, message);
            }
        }
        (settings.problems().len() == before).then_some(config)
    }

    /// A configuration with every optional setting at its default.
    pub fn new(url: impl Into<String>, key: Secret) -> Self {
        Self {
            url: url.into(),
            key,
            vhost: "localhost".to_owned(),
            timeout: Duration::from_secs(10),
            insecure: false,
            ca_path: None,
            concurrency: 8,
            pace: Pace::default(),
        }
    }

    /// Everything that cannot work, all at once.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut problem =
            |setting: &str, message: String| problems.push(Problem { setting: setting.to_owned(), message });
        match url::Url::parse(&self.url) {
            Ok(url) if !matches!(url.scheme(), "http" | "https") => {
                problem("PDNS_API_URL", format!("{} is not http or https", url.scheme()));
            }
            Ok(url) if url.host_str().is_none_or(str::is_empty) => problem("PDNS_API_URL", "it has no host".to_owned()),
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                problem(
                    "PDNS_API_URL",
                    "it must not carry a user name or password; the key is PDNS_API_KEY".to_owned(),
                );
            }
            Ok(_) => {}
            Err(error) => {
                problem("PDNS_API_URL", format!("it is not a URL ({error}); write http://host:8081"));
            }
        }
        match &self.key {
            Secret::Value(key) if key.trim().is_empty() => {
                problem("PDNS_API_KEY", "it is empty; set it, or PDNS_API_KEY_FILE".to_owned());
            }
            Secret::File(path) => {
                if let Err(why) = Secret::given(None, Some(path.clone())) {
                    problem("PDNS_API_KEY_FILE", why);
                }
            }
            Secret::Value(_) => {}
        }
        if self.vhost.is_empty() {
            problem("PDNS_API_VHOST", "it is empty; write localhost".to_owned());
        }
        if self.timeout.is_zero() {
            problem("PDNS_API_TIMEOUT", "it is zero; write seconds, such as 10".to_owned());
        }
        if let Some(path) = &self.ca_path
            && !path.exists()
        {
            problem("PDNS_API_CA_PATH", format!("{} does not exist", path.display()));
        }
        problems
    }

    /// The options of the client. `None` when the URL is not valid.
    pub fn client_options(&self) -> Option<ClientOptions> {
        Some(ClientOptions {
            url: url::Url::parse(&self.url).ok()?,
            key: self.key.clone(),
            vhost: self.vhost.clone(),
            timeout: self.timeout,
            insecure: self.insecure,
            ca_path: self.ca_path.clone(),
            concurrency: self.concurrency,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn every_problem_is_reported_at_once_with_its_setting() {
        let mut config = PowerDnsConfig::new("ftp://dns", Secret::Value(String::new()));
        config.vhost.clear();
        config.timeout = Duration::ZERO;
        config.ca_path = Some("/nonexistent/ca.pem".into());
        let settings: Vec<_> = config.validate().into_iter().map(|problem| problem.setting).collect();
        assert_eq!(
            settings,
            ["PDNS_API_URL", "PDNS_API_KEY", "PDNS_API_VHOST", "PDNS_API_TIMEOUT", "PDNS_API_CA_PATH"]
        );
    }

    #[test]
    fn settings_are_read_with_their_defaults_and_problems_are_reported_together() {
        let mut settings = Settings::new([("PDNS_API_URL", "http://dns:8081"), ("PDNS_API_KEY", "k")]);
        let config = PowerDnsConfig::read(&mut settings).unwrap();
        assert_eq!((config.timeout, config.pace.resync), (Duration::from_secs(10), Duration::from_mins(1)));
        assert!(!config.pace.partial_view && settings.problems().is_empty());
        let given = [("PDNS_API_URL", "http://dns:8081"), ("PDNS_API_TIMEOUT", "soon"), ("PDNS_RESYNC", "0")];
        let mut settings = Settings::new(given);
        assert!(PowerDnsConfig::read(&mut settings).is_none());
        let problems: Vec<&str> = settings.problems().iter().map(|problem| problem.setting.as_str()).collect();
        assert_eq!(problems, ["PDNS_API_TIMEOUT", "PDNS_RESYNC", "PDNS_API_KEY"]);
        let mut settings = Settings::new([("PDNS_API_URL", "ftp://dns"), ("PDNS_API_TIMEOUT", "soon")]);
        assert!(PowerDnsConfig::read(&mut settings).is_none());
        let problems: Vec<&str> = settings.problems().iter().map(|problem| problem.setting.as_str()).collect();
        assert_eq!(problems, ["PDNS_API_TIMEOUT", "PDNS_API_URL", "PDNS_API_KEY"]);
    }

    #[test]
    fn endpoints_are_published_only_when_asked_and_filters_are_checked() {
        let read = |more: &[(&'static str, &'static str)]| {
            let given = [("PDNS_API_URL", "http://dns:8081"), ("PDNS_API_KEY", "k")];
            let mut settings = Settings::new(given.into_iter().chain(more.iter().copied()));
            let config = PowerDnsConfig::read(&mut settings);
            (config.map(|config| config.pace.endpoints), settings.problems().to_vec())
        };
        assert_eq!(read(&[]).0, Some(None));
        let on = ("PDNS_DNSENDPOINTS", "true");
        assert_eq!(read(&[on]).0, Some(Some(EndpointSource::default())));
        let (source, _) = read(&[
            on,
            ("PDNS_DNSENDPOINTS_LABELS", "router.io/region in (weu)"),
            ("PDNS_DNSENDPOINTS_ANNOTATIONS", "example.org/controller=weu"),
            ("PDNS_DNSENDPOINTS_TAKE_OVER", "true"),
        ]);
        let source = source.flatten().unwrap();
        assert_eq!((source.labels.as_deref(), source.take_over), (Some("router.io/region in (weu)"), true));
        assert_eq!(Ok(source.annotations), Selector::parse("example.org/controller=weu"));
        for (more, setting, word) in [
            (&[("PDNS_DNSENDPOINTS_LABELS", "a=b")][..], "PDNS_DNSENDPOINTS_LABELS", "without PDNS_DNSENDPOINTS=true"),
            (&[on, ("PDNS_DNSENDPOINTS_LABELS", "a in b")], "PDNS_DNSENDPOINTS_LABELS", "is not a selector"),
            (&[on, ("PDNS_DNSENDPOINTS_ANNOTATIONS", "=")], "PDNS_DNSENDPOINTS_ANNOTATIONS", "is not a selector"),
        ] {
            let (config, problems) = read(more);
            assert!(config.is_none() && problems.len() == 1, "{problems:?}");
            assert!(problems[0].setting == setting && problems[0].message.contains(word), "{problems:?}");
        }
    }

    #[test]
    fn a_plain_configuration_has_no_problem() {
        let config = PowerDnsConfig::new("https://dns.example:8443/pdns", Secret::Value("k".into()));
        assert_eq!(config.validate(), []);
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_repeated() {
        let config = PowerDnsConfig::new("http://me:hunter2@dns:8081", Secret::Value("k".into()));
        let problems = config.validate();
        assert_eq!(problems.len(), 1);
        assert!(!problems[0].to_string().contains("hunter2"));
        let config = PowerDnsConfig::new("http://me:hunter2@dns:port", Secret::Value("k".into()));
        let problems = config.validate();
        assert_eq!(problems.len(), 1);
        assert!(!problems[0].to_string().contains("hunter2"), "{}", problems[0]);
    }
}
