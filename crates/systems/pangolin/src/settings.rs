//! The settings of this system: the names of pangolin-ingress-controller (`PIC_*`), and those of direct mode. All problems at once.

use std::collections::BTreeSet;
use std::time::Duration;

use signpost_engine::{Identity, Setting, Settings, logs};
use signpost_exposure::{BackendScheme, ClassRules, HostPolicy, MappingError, TunnelAllowance, TunnelMapping};
use signpost_provider_pangolin::{Connection, Secret, parse_base_url};

/// Every setting of this system.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting::new(
        "PIC_MODE",
        "MODE",
        "crd writes PangolinResource objects for pangolin-operator (the default), api talks to Pangolin itself",
    ),
    Setting::new(
        "PIC_DEFAULT_TUNNEL_NAME",
        "NAME",
        "Tunnel of the class pangolin: a PangolinTunnel (name or namespace/name), or in api mode a site; default without one",
    ),
    Setting::new("PANGOLIN_DEFAULT_TUNNEL_NAME", "NAME", "Older name of PIC_DEFAULT_TUNNEL_NAME"),
    Setting::new(
        "PIC_TUNNEL_CLASS_MAPPING",
        "LINES",
        "Tunnels of the classes pangolin-ALIAS: one ALIAS=TUNNEL per line or comma. An alias without one is the tunnel's name",
    ),
    Setting::new("PIC_TUNNEL_NAMESPACE", "NAMESPACE", "Namespace of tunnels that are not beside their Ingress"),
    Setting::new(
        "PIC_TUNNEL_ALLOW",
        "LINES",
        "Which namespaces may use which tunnel: one TUNNEL=NAMESPACE per line or comma, * is all. Without it, all may use all",
    ),
    Setting::new("PIC_BACKEND_SCHEME", "SCHEME", "How Services are spoken to: http, https or h2c").or("http"),
    Setting::new(
        "PIC_RESYNC_PERIOD",
        "TIME",
        "Time between two comparisons, to repair what others changed: 300, 90s, 5m, 1h; 0 is never",
    )
    .or("5m"),
    Setting::new("PIC_LOG_LEVEL", "LEVEL", "debug, info, warn or error; replaces LOG_LEVEL"),
    Setting::new(
        "PIC_WATCH_NAMESPACES",
        "LIST",
        "Namespaces whose Ingresses are read, separated by commas; empty is all",
    ),
    Setting::new("PIC_MAX_CONCURRENT_RECONCILES", "NUMBER", "Ingresses worked on at the same time").or("16"),
    Setting::new(
        "PIC_RECONCILE_RATE",
        "NUMBER",
        "Passes per second at most; 0 is no limit. Without it, 10 for passes of api mode that create or change something in Pangolin",
    ),
    Setting::new(
        "PIC_MULTI_HOST",
        "all|first",
        "Which hosts of an Ingress are exposed: all, or the first with a Warning",
    )
    .or("all"),
    Setting::new(
        "PIC_CRD_DIALECT",
        "DIALECT",
        "Shape of PangolinResource: auto reads it from the API server, single or multi",
    )
    .or("auto"),
    Setting::switch(
        "PIC_CRD_PATHS",
        "false",
        "Write paths into spec.targets; only for a pangolin-operator that routes by them: true or false",
    ),
    Setting::switch(
        "PIC_WILDCARD_HOSTS",
        "false",
        "Accept wildcard hosts; Pangolin needs a licence for them: true or false",
    ),
    Setting::switch("PIC_ALLOW_LOCALHOST", "false", "Accept localhost and names below it: true or false"),
    Setting::switch("PIC_ALLOW_UNLISTED_SUFFIX", "false", "Accept names such as app.internal: true or false"),
    Setting::switch(
        "PIC_ANNOTATION_OPT_IN",
        "false",
        "Expose an Ingress of any class that has pangolin.ingress.k8s.io/enabled: \"true\": true or false",
    ),
    Setting::new("PIC_ANNOTATION_PREFIX", "PREFIX", "A second prefix of annotations, beside pangolin.ingress.k8s.io"),
    Setting::new("PIC_CLUSTER_DOMAIN", "DOMAIN", "Domain of Services inside the cluster").or("cluster.local"),
    Setting::new(
        "PIC_TARGET_MODE",
        "MODE",
        "How a tunnel reaches Services: service by their names inside the cluster; cluster-ip or load-balancer by that address of theirs, for a tunnel that ends outside of it",
    )
    .or("service"),
    Setting::switch(
        "PIC_UPDATE_INGRESS_STATUS",
        "false",
        "Write the exposed hosts into status.loadBalancer of the Ingress: true or false",
    ),
    Setting::new("PIC_API_URL", "URL", "Base URL of Pangolin's Integration API, for api mode"),
    Setting::new("PIC_ORG_ID", "ID", "Organisation of the API key, for api mode"),
    Setting::new("PIC_API_KEY", "KEY", "API key (id.secret), for api mode; prefer the environment or a file").secret(),
    Setting::new("PIC_API_KEY_FILE", "FILE", "File with the API key, read again when it changes"),
    Setting::new("PIC_API_CA_FILE", "FILE", "PEM file of the certificate authority of Pangolin"),
    Setting::new(
        "PIC_OWNER_ID",
        "ID",
        "Marks the resources of this cluster in Pangolin, for api mode. Without one, it is made from the cluster's own id",
    ),
];

/// How exposures are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// PangolinResource objects, for pangolin-operator.
    #[default]
    Crd,
    /// Pangolin's Integration API.
    Api,
}

/// Which hosts of an Ingress are exposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MultiHost {
    /// All.
    #[default]
    All,
    /// The first.
    First,
}

/// How a tunnel reaches a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetMode {
    /// By its name inside the cluster.
    #[default]
    Service,
    /// By its address inside the cluster, for a tunnel in a network that has a route to it.
    ClusterIp,
    /// By the address or name of its load balancer.
    LoadBalancer,
}

impl TargetMode {
    /// As it is written in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::ClusterIp => "cluster-ip",
            Self::LoadBalancer => "load-balancer",
        }
    }
}

/// How the shape of PangolinResource is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// By the schema of the API server.
    #[default]
    Auto,
    /// `spec.target`.
    Single,
    /// `spec.targets`.
    Multi,
}

/// Everything that decides what is written.
#[allow(clippy::struct_excessive_bools)] // Switches of the user, each its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How exposures are delivered.
    pub mode: Mode,
    /// The tunnel of the class without an alias; `None` when none was named.
    pub default_tunnel: Option<String>,
    /// The tunnels of aliases.
    pub mapping: TunnelMapping,
    /// Where tunnels are that are not beside their Ingress.
    pub tunnel_namespace: Option<String>,
    /// Which namespaces may use which tunnel.
    pub allowed: TunnelAllowance,
    /// How Services are spoken to.
    pub scheme: BackendScheme,
    /// How often everything is compared without a change; `None` for never.
    pub resync: Option<Duration>,
    /// The namespaces to watch; empty for those of the operator.
    pub namespaces: Vec<String>,
    /// The namespaces that the whole operator watches; part of the owner.
    pub scope: String,
    /// Ingresses worked on at the same time.
    pub concurrency: usize,
    /// Passes per second, where a limit was set; 0 means no limit. `None` limits only passes that call Pangolin about their Ingress.
    pub rate: Option<u32>,
    /// Which hosts are exposed.
    pub multi_host: MultiHost,
    /// How the shape of PangolinResource is found.
    pub dialect: Dialect,
    /// Whether paths are written into PangolinResources.
    pub crd_paths: bool,
    /// Which hosts are accepted.
    pub hosts: HostPolicy,
    /// Which Ingresses are ours.
    pub class: ClassRules,
    /// A second prefix of annotations.
    pub prefix: Option<String>,
    /// The domain of Services inside the cluster.
    pub cluster_domain: String,
    /// How a tunnel reaches Services.
    pub target_mode: TargetMode,
    /// Whether the status of Ingresses is written.
    pub ingress_status: bool,
    /// The owner id in the marks; `None` for an id of the cluster.
    pub owner: Option<String>,
    /// The operator's own namespace.
    pub namespace: String,
    /// The operator's own Deployment, which events about Pangolin itself are attached to.
    pub deployment: String,
    /// How soon a tunnel that is not ready is asked for again.
    pub tunnel_wait: Duration,
    /// How old what is known of a resource may be before all of it is read again.
    pub verify: Duration,
    /// How long a large deletion waits for its second pass.
    pub brake: Duration,
}

/// The controller that an IngressClass of ours names.
pub const CONTROLLER: &str = "pangolin.io/ingress-controller";
/// The tunnel of those who name none.
pub(crate) const DEFAULT_TUNNEL: &str = "default";

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Crd,
            default_tunnel: None,
            mapping: TunnelMapping::default(),
            tunnel_namespace: None,
            allowed: TunnelAllowance::default(),
            scheme: BackendScheme::Http,
            resync: Some(Duration::from_mins(5)),
            namespaces: Vec::new(),
            scope: String::new(),
            concurrency: 16,
            rate: None,
            multi_host: MultiHost::All,
            dialect: Dialect::Auto,
            crd_paths: false,
            hosts: HostPolicy::default(),
            class: ClassRules { class: "pangolin".to_owned(), controller: CONTROLLER.to_owned(), opt_in: false },
            prefix: None,
            cluster_domain: "cluster.local".to_owned(),
            target_mode: TargetMode::Service,
            ingress_status: false,
            owner: None,
            namespace: "signpost".to_owned(),
            deployment: "signpost".to_owned(),
            tunnel_wait: Duration::from_secs(30),
            verify: Duration::from_hours(1),
            brake: Duration::from_secs(30),
        }
    }
}

impl Policy {
    /// What events about Pangolin itself are attached to: the operator's own Deployment.
    pub(crate) fn deployment(&self) -> Identity {
        Identity::own_deployment(&self.namespace, &self.deployment)
    }

    /// The namespaces that the default tunnel and the mapping name, where they are not watched already.
    pub(crate) fn named_namespaces(&self) -> BTreeSet<String> {
        let named = self.default_tunnel.as_deref().into_iter().chain(self.mapping.tunnels());
        let named = named.filter_map(|tunnel| Some(tunnel.split_once('/')?.0.to_owned()));
        named.filter(|namespace| !self.is_watched(namespace)).collect()
    }

    /// Whether everything in a namespace is watched, or its tunnels are.
    fn is_watched(&self, namespace: &str) -> bool {
        let all = self.namespaces.is_empty() && self.scope.is_empty();
        let scope = self.namespaces.is_empty() && self.scope == namespace;
        all || scope
            || self.namespaces.iter().any(|watched| watched == namespace)
            || self.tunnel_namespace.as_deref() == Some(namespace)
    }

    /// Whether the tunnels of a namespace are watched.
    pub(crate) fn watches_tunnels_in(&self, namespace: &str) -> bool {
        self.is_watched(namespace) || self.named_namespaces().contains(namespace)
    }

    /// The watched namespaces, as text: operators of one cluster that watch different namespaces have different marks.
    pub(crate) fn watched(&self) -> String {
        if self.namespaces.is_empty() { self.scope.clone() } else { self.namespaces.join(",") }
    }
}

/// The settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PangolinConfig {
    /// The policy of the system.
    pub policy: Policy,
    /// How to reach Pangolin, in direct mode.
    pub connection: Option<Connection>,
}

/// The longest time between two comparisons. A longer one is a typing error.
const LONGEST_RESYNC: Duration = Duration::from_hours(31 * 24);

impl PangolinConfig {
    /// Reads the settings; `None` when something is wrong, which is then among their problems.
    pub fn read(settings: &mut Settings) -> Option<Self> {
        let known = settings.problems().len();
        let mode = settings.choice("PIC_MODE", &[("crd", Mode::Crd), ("api", Mode::Api)]).unwrap_or_default();
        let policy = Policy {
            mode,
            default_tunnel: default_tunnel(settings, mode),
            mapping: lines(settings, "PIC_TUNNEL_CLASS_MAPPING", TunnelMapping::parse),
            tunnel_namespace: settings.parse("PIC_TUNNEL_NAMESPACE", label),
            allowed: lines(settings, "PIC_TUNNEL_ALLOW", TunnelAllowance::parse),
            scheme: settings
                .parse("PIC_BACKEND_SCHEME", |text| {
                    BackendScheme::parse(text).ok_or_else(|| format!("{text:?} is not one of http, https, h2c"))
                })
                .unwrap_or(BackendScheme::Http),
            resync: resync(settings),
            namespaces: namespaces(settings),
            scope: settings.given("WATCH_NAMESPACE").unwrap_or_default().to_owned(),
            concurrency: number(settings, "PIC_MAX_CONCURRENT_RECONCILES", 1..=256).unwrap_or(16) as usize,
            rate: number(settings, "PIC_RECONCILE_RATE", 0..=10_000),
            multi_host: settings
                .choice("PIC_MULTI_HOST", &[("all", MultiHost::All), ("first", MultiHost::First)])
                .unwrap_or_default(),
            dialect: settings
                .choice(
                    "PIC_CRD_DIALECT",
                    &[("auto", Dialect::Auto), ("single", Dialect::Single), ("multi", Dialect::Multi)],
                )
                .unwrap_or_default(),
            crd_paths: settings.switch("PIC_CRD_PATHS", false),
            hosts: HostPolicy {
                localhost: settings.switch("PIC_ALLOW_LOCALHOST", false),
                wildcards: settings.switch("PIC_WILDCARD_HOSTS", false),
                unlisted: settings.switch("PIC_ALLOW_UNLISTED_SUFFIX", false),
            },
            class: ClassRules { opt_in: settings.switch("PIC_ANNOTATION_OPT_IN", false), ..Policy::default().class },
            prefix: settings.parse("PIC_ANNOTATION_PREFIX", |text| {
                let fine = text.split('.').all(|part| label(part).is_ok());
                fine.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is not a domain such as example.com"))
            }),
            cluster_domain: settings
                .parse("PIC_CLUSTER_DOMAIN", |text| {
                    let text = text.trim_matches('.');
                    let fine = text.split('.').all(|part| label(part).is_ok());
                    fine.then(|| text.to_owned())
                        .ok_or_else(|| format!("{text:?} is not a domain such as cluster.local"))
                })
                .unwrap_or_else(|| "cluster.local".to_owned()),
            target_mode: {
                let modes = [TargetMode::Service, TargetMode::ClusterIp, TargetMode::LoadBalancer];
                settings.choice("PIC_TARGET_MODE", &modes.map(|mode| (mode.as_str(), mode))).unwrap_or_default()
            },
            ingress_status: settings.switch("PIC_UPDATE_INGRESS_STATUS", false),
            owner: settings.parse("PIC_OWNER_ID", |text| {
                let fine = label(text).is_ok() && text.len() <= 20;
                fine.then(|| text.to_owned())
                    .ok_or_else(|| format!("{text:?} is not 1 to 20 characters of a-z, 0-9 and '-'"))
            }),
            namespace: settings.given("POD_NAMESPACE").unwrap_or("signpost").to_owned(),
            deployment: settings.given("DEPLOYMENT_NAME").unwrap_or("signpost").to_owned(),
            ..Policy::default()
        };
        if let Some(level) = settings.given("PIC_LOG_LEVEL").map(str::to_owned)
            && !settings.problems().iter().any(|problem| problem.setting == "PIC_LOG_LEVEL")
        {
            settings.check("PIC_LOG_LEVEL", logs::check_level(&level).map_err(|error| error.to_string()));
        }
        let connection = if mode == Mode::Api { connection(settings) } else { unused_connection(settings) };
        (settings.problems().len() == known).then_some(Self { policy, connection })
    }
}

/// The longest name of a site in Pangolin.
const LONGEST_SITE: usize = 255;

fn default_tunnel(settings: &mut Settings, mode: Mode) -> Option<String> {
    let (name, older) = ("PIC_DEFAULT_TUNNEL_NAME", "PANGOLIN_DEFAULT_TUNNEL_NAME");
    let (newest, old) = (settings.given(name).map(str::to_owned), settings.given(older).map(str::to_owned));
    if let (Some(newest), Some(old)) = (&newest, &old)
        && newest != old
    {
        settings.problem(older, format!("{old:?} differs from {name}, which is {newest:?}; remove {older}"));
    } else if old.is_some() {
        tracing::warn!("{older} is the older name of {name}; rename it");
    }
    let given = newest.or(old)?;
    let parts: Vec<&str> = given.split('/').collect();
    let is_tunnel =
        (1..=2).contains(&parts.len()) && parts.iter().all(|part| part.split('.').all(|part| label(part).is_ok()));
    match mode {
        Mode::Crd if !is_tunnel => {
            let why =
                "is not a PangolinTunnel: write name or namespace/name, with lower-case letters, digits, '-' and '.'";
            settings.problem(name, format!("{given:?} {why}"));
        }
        // People name sites as they like.
        Mode::Api if given.chars().count() > LONGEST_SITE || given.chars().any(char::is_control) => {
            let why =
                format!("is not the name of a site: it has control characters, or more than {LONGEST_SITE} characters");
            settings.problem(name, format!("{given:?} {why}"));
        }
        Mode::Crd | Mode::Api => {}
    }
    Some(given)
}

/// A setting of several lines; the default when some cannot be read, which are then problems.
fn lines<T: Default>(
    settings: &mut Settings,
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, Vec<MappingError>>,
) -> T {
    let text = settings.given(name).unwrap_or_default().to_owned();
    parse(&text).unwrap_or_else(|errors| {
        for error in errors {
            settings.problem(name, error.to_string());
        }
        T::default()
    })
}

fn resync(settings: &mut Settings) -> Option<Duration> {
    let time = settings.duration("PIC_RESYNC_PERIOD").unwrap_or(Duration::from_mins(5));
    if time.is_zero() {
        return None;
    }
    if !(Duration::from_secs(10)..=LONGEST_RESYNC).contains(&time) {
        settings.problem("PIC_RESYNC_PERIOD", format!("{time:?} is not between 10s and 744h; 0 is never"));
    }
    Some(time)
}

fn namespaces(settings: &mut Settings) -> Vec<String> {
    let text = settings.given("PIC_WATCH_NAMESPACES").unwrap_or_default().to_owned();
    let mut names = BTreeSet::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        names.extend(settings.check("PIC_WATCH_NAMESPACES", label(name)));
    }
    names.into_iter().collect()
}

fn number(settings: &mut Settings, name: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    settings.parse(name, |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("{text:?} is not a number from {} to {}", range.start(), range.end()))
    })
}

fn label(text: &str) -> Result<String, String> {
    let fine = (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    fine.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is not a Kubernetes name such as edge-eu"))
}

fn connection(settings: &mut Settings) -> Option<Connection> {
    let url =
        settings.required("PIC_API_URL", "the address of Pangolin's Integration API, such as https://api.example.com");
    let base = url.and_then(|url| settings.check("PIC_API_URL", parse_base_url(&url)));
    let org = settings.required("PIC_ORG_ID", "the id of the organisation, as the dashboard's address shows it");
    let (value, file) = (settings.given("PIC_API_KEY").map(str::to_owned), settings.path("PIC_API_KEY_FILE"));
    let at = if file.is_some() { "PIC_API_KEY_FILE" } else { "PIC_API_KEY" };
    let key = Secret::given(value, file).and_then(|key| {
        key.ok_or_else(|| "is required in api mode: an API key, or PIC_API_KEY_FILE with one".to_owned())
    });
    let key = settings.check(at, key);
    let ca_file = settings.path("PIC_API_CA_FILE");
    Some(Connection { ca_file, ..Connection::new(base?, org?, key?) })
}

/// A key that nothing uses is a typing error in the mode.
fn unused_connection(settings: &mut Settings) -> Option<Connection> {
    for name in ["PIC_API_URL", "PIC_API_KEY", "PIC_API_KEY_FILE", "PIC_ORG_ID"] {
        if settings.given(name).is_some() {
            settings.problem(name, "is for api mode, and PIC_MODE is crd; set PIC_MODE=api or remove it");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<PangolinConfig, Vec<String>> {
        let mut settings = Settings::new(values.iter().copied());
        let config = PangolinConfig::read(&mut settings);
        config.ok_or_else(|| settings.problems().iter().map(ToString::to_string).collect())
    }

    const API: [(&str, &str); 4] = [
        ("PIC_MODE", "api"),
        ("PIC_API_URL", "https://api.example.com/v1/"),
        ("PIC_ORG_ID", "home"),
        ("PIC_API_KEY", "a.b"),
    ];

    #[test]
    fn r039_to_r045_every_variable_of_the_seed_is_read() {
        let config = read(&[
            ("PIC_DEFAULT_TUNNEL_NAME", "edge"),
            ("PIC_TUNNEL_CLASS_MAPPING", "edge-eu=edge-eu-tunnel\nedge-us=infra/edge-us-tunnel\n"),
            ("PIC_BACKEND_SCHEME", "https"),
            ("PIC_RESYNC_PERIOD", "10m"),
            ("PIC_LOG_LEVEL", "debug"),
            ("PIC_WATCH_NAMESPACES", "prod, staging,"),
            ("PIC_MAX_CONCURRENT_RECONCILES", "3"),
            ("PIC_RECONCILE_RATE", "10"),
        ])
        .unwrap();
        let policy = config.policy;
        assert_eq!(policy.default_tunnel.as_deref(), Some("edge"));
        assert_eq!(policy.mapping.tunnel("edge-us"), "infra/edge-us-tunnel");
        assert_eq!((policy.scheme, policy.resync), (BackendScheme::Https, Some(Duration::from_mins(10))));
        assert_eq!(policy.namespaces.join(","), "prod,staging");
        assert_eq!((policy.concurrency, policy.rate), (3, Some(10)));
        let usual = read(&[]).unwrap();
        assert_eq!(usual, PangolinConfig { policy: Policy::default(), connection: None });
    }

    #[test]
    fn c35_the_target_mode_is_one_of_three() {
        for (text, expected) in [
            ("service", TargetMode::Service),
            ("cluster-ip", TargetMode::ClusterIp),
            ("load-balancer", TargetMode::LoadBalancer),
        ] {
            assert_eq!(read(&[("PIC_TARGET_MODE", text)]).unwrap().policy.target_mode, expected);
        }
    }

    #[test]
    fn namespaces_of_the_default_tunnel_and_the_mapping_are_watched() {
        let tunnels = [
            ("PIC_DEFAULT_TUNNEL_NAME", "infra/edge"),
            ("PIC_TUNNEL_CLASS_MAPPING", "eu=west/eu,us=us,shop=shop/edge,own=tunnels/x"),
            ("PIC_TUNNEL_NAMESPACE", "tunnels"),
        ];
        let policy = |watched: &[(&str, &str)]| read(&[&tunnels[..], watched].concat()).unwrap().policy;
        assert_eq!(policy(&[]).named_namespaces().len(), 0, "everything is watched");
        for watched in [("PIC_WATCH_NAMESPACES", "shop"), ("WATCH_NAMESPACE", "shop")] {
            let policy = policy(&[watched]);
            assert_eq!(policy.named_namespaces().into_iter().collect::<Vec<_>>(), ["infra", "west"], "{watched:?}");
            for (namespace, expected) in [("infra", true), ("shop", true), ("tunnels", true), ("other", false)] {
                assert_eq!(policy.watches_tunnels_in(namespace), expected, "{namespace}");
            }
        }
    }

    #[test]
    fn r084_every_bad_line_of_a_mapping_is_fatal_with_its_number() {
        let problems = read(&[("PIC_TUNNEL_CLASS_MAPPING", "good=tunnel\nnothing\n=x")]).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(problems[0], "PIC_TUNNEL_CLASS_MAPPING: line 2: \"nothing\" has no '='; write alias=tunnel");
    }

    #[test]
    fn r055_crd_mode_takes_no_key() {
        for name in ["PIC_API_KEY", "PIC_API_KEY_FILE", "PIC_API_URL", "PIC_ORG_ID"] {
            let problems = read(&[("PIC_MODE", "crd"), (name, "id.hunter2")]).unwrap_err();
            assert_eq!(
                problems,
                [format!("{name}: is for api mode, and PIC_MODE is crd; set PIC_MODE=api or remove it")]
            );
        }
        assert!((crate::SPEC.crds)().is_empty(), "R005: it installs no kind");
    }

    #[test]
    fn the_older_name_of_the_default_tunnel_works_and_a_difference_is_fatal() {
        let older = ("PANGOLIN_DEFAULT_TUNNEL_NAME", "edge");
        assert_eq!(read(&[older]).unwrap().policy.default_tunnel.as_deref(), Some("edge"));
        assert!(read(&[older, ("PIC_DEFAULT_TUNNEL_NAME", "edge")]).is_ok());
        assert!(read(&[older, ("PIC_DEFAULT_TUNNEL_NAME", "other")]).unwrap_err()[0].contains("differs"));
    }

    /// A person names a site in the dashboard, with any characters. The name of a PangolinTunnel is a Kubernetes name.
    #[test]
    fn the_default_tunnel_is_a_site_of_any_name_in_api_mode_alone() {
        for name in ["Home Lab", "Büro", "EU-1", "a/b/c", "x_y"] {
            let site = ("PIC_DEFAULT_TUNNEL_NAME", name);
            assert_eq!(read(&[&API[..], &[site]].concat()).unwrap().policy.default_tunnel.as_deref(), Some(name));
            let problems = read(&[site]).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains("is not a PangolinTunnel"), "{name}: {problems:?}");
        }
        for name in ["a\nb".to_owned(), "x".repeat(256)] {
            let problems = read(&[&API[..], &[("PIC_DEFAULT_TUNNEL_NAME", name.as_str())]].concat()).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains("is not the name of a site"), "{problems:?}");
        }
    }

    #[test]
    fn every_bad_value_is_reported_at_once() {
        let problems = read(&[
            ("PIC_MODE", "both"),
            ("PIC_DEFAULT_TUNNEL_NAME", "A b"),
            ("PIC_BACKEND_SCHEME", "ftp"),
            ("PIC_RESYNC_PERIOD", "1s"),
            ("PIC_LOG_LEVEL", "loud"),
            ("PIC_WATCH_NAMESPACES", "ok,Not_ok"),
            ("PIC_MAX_CONCURRENT_RECONCILES", "0"),
            ("PIC_MULTI_HOST", "some"),
            ("PIC_CRD_DIALECT", "triple"),
            ("PIC_OWNER_ID", "My Cluster"),
            ("PIC_CLUSTER_DOMAIN", "cluster local"),
            ("PIC_TUNNEL_ALLOW", "edge"),
            ("PIC_TARGET_MODE", "node-port"),
            ("PIC_RECONCILE_RATE", "-1"),
            ("PIC_API_URL", "https://api.example.com"),
        ])
        .unwrap_err();
        assert_eq!(problems.len(), 15, "{problems:#?}");
    }

    #[test]
    fn api_mode_needs_an_address_an_organisation_and_a_key_and_shows_no_secret() {
        let config = read(&API).unwrap();
        let connection = config.connection.as_ref().unwrap();
        assert_eq!((connection.base.as_str(), connection.org.as_str()), ("https://api.example.com/", "home"));
        let problems = read(&[API[0]]).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            read(&[API[0], API[1], API[2], ("PIC_API_KEY_FILE", "/nonexistent")]).unwrap_err()[0]
                .contains("cannot be read")
        );
        let both = [API[0], API[1], API[2], ("PIC_API_KEY", "id.hunter2"), ("PIC_API_KEY_FILE", "/nonexistent")];
        assert!(!read(&both).unwrap_err().join(" ").contains("hunter2"));
        assert!(!format!("{:?}", read(&[API[0], API[1], API[2], ("PIC_API_KEY", "id.hunter2")])).contains("hunter2"));
    }
}
