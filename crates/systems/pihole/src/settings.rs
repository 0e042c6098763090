//! The settings of this system: read by the engine's reader, one YAML file for several Pi-holes, all problems at once.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use signpost_engine::{Identity, Setting, Settings, logs};
use signpost_provider_pihole::{Connection, Dialect, OwnerId, Secret, Url, parse_base_url};

/// Every setting of this system.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting::new("PIHOLE_URL", "URL", "Base URL of the Pi-hole, such as http://192.168.1.2"),
    Setting::new(
        "PIHOLE_API_TOKEN",
        "TOKEN",
        "Application password (v6) or API token; prefer the environment or a file",
    )
    .secret(),
    Setting::new("PIHOLE_API_TOKEN_FILE", "FILE", "File with the token, read again when it changes"),
    Setting::new("DEFAULT_TARGET_IP", "IP", "IPv4 address that names point at unless an Ingress names another"),
    Setting::new("PIHOLE_API_DIALECT", "DIALECT", "auto, spec or v6").or("auto"),
    Setting::new(
        "PIHOLE_INSTANCES_FILE",
        "FILE",
        "YAML file with several Pi-holes: name, url, token or tokenFile, dialect, caFile, serverName",
    ),
    Setting::new("PIHOLE_CA_FILE", "FILE", "PEM file of the certificate authority of the Pi-hole"),
    Setting::new("PIHOLE_SERVER_NAME", "NAME", "Name that the Pi-hole's certificate is made out to, such as pi.hole"),
    Setting::new(
        "OWNER_ID",
        "ID",
        "Marks the lines of this cluster; must differ between clusters that share a Pi-hole. Without one, an id is made once",
    ),
    Setting::new(
        "CONFLICT_POLICY",
        "POLICY",
        "What to do with a user's own record for a wanted host: skip or overwrite",
    )
    .or("skip"),
    Setting::switch("USE_FINALIZER", "false", "Keep deleted Ingresses until their records are deleted: true or false"),
    Setting::new("GC", "on|off", "Remove own lines that no Ingress claims after a start: on or off").or("on"),
    Setting::new(
        "PIHOLE_RESYNC",
        "TIME",
        "Time between two comparisons with each Pi-hole, to repair what others changed: 300, 90s, 5m, 1h; 0 is never",
    )
    .or("5m"),
];

/// The policy for a foreign record of a claimed host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// Leave it and report it.
    #[default]
    Skip,
    /// Replace it.
    Overwrite,
}

/// One Pi-hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceConfig {
    /// Its name in logs, events and metrics.
    pub name: String,
    /// How to reach it.
    pub connection: Connection,
    /// The dialect.
    pub dialect: Dialect,
}

/// Everything that decides what is written, whatever the instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The address of hosts whose Ingress names none.
    pub default_target: Ipv4Addr,
    /// The owner id in marker and ledger; contains the watched namespace when there is one.
    pub owner: OwnerId,
    /// Whether the marker carries an id made once for this cluster instead, because no owner is configured.
    pub cluster_id: bool,
    /// The policy for foreign records.
    pub conflict: ConflictPolicy,
    /// Whether Ingresses get a finalizer.
    pub finalizer: bool,
    /// Whether own lines without any claim are deleted.
    pub sweep: bool,
    /// How often everything is compared without a change; None for never.
    pub resync: Option<Duration>,
    /// The operator's own namespace.
    pub namespace: String,
    /// The operator's own Deployment, which events about a whole Pi-hole are attached to.
    pub deployment: String,
    /// How long changes of a burst gather.
    pub gather: Duration,
    /// The longest that a change waits for others.
    pub gather_at_most: Duration,
    /// How long a large deletion waits for its second pass.
    pub brake: Duration,
    /// The shortest time between two restarts of a resolver.
    pub restart_pause: Duration,
    /// How long a finalizer waits for a Pi-hole that does not answer.
    pub finalizer_patience: Duration,
    /// The first pause after a failure; doubles up to ten times itself.
    pub backoff: Duration,
    /// The pause after a 429.
    pub throttle: Duration,
    /// How long a request that ended without an answer may still be carried out.
    pub grace: Duration,
}

impl Policy {
    /// The usual policy for an owner and a default address.
    pub fn new(owner: OwnerId, default_target: Ipv4Addr) -> Self {
        Self {
            default_target,
            owner,
            cluster_id: false,
            conflict: ConflictPolicy::Skip,
            finalizer: false,
            sweep: true,
            resync: Some(Duration::from_mins(5)),
            namespace: "signpost".to_owned(),
            deployment: "signpost".to_owned(),
            gather: Duration::from_millis(300),
            gather_at_most: Duration::from_secs(3),
            brake: Duration::from_secs(30),
            restart_pause: Duration::from_mins(1),
            finalizer_patience: Duration::from_mins(10),
            backoff: Duration::from_secs(30),
            throttle: Duration::from_mins(1),
            grace: Duration::from_mins(1),
        }
    }

    /// The object of events about a whole Pi-hole: the operator's own Deployment.
    pub(crate) fn deployment(&self) -> Identity {
        Identity::own_deployment(&self.namespace, &self.deployment)
    }
}

/// The settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PiholeConfig {
    /// The Pi-holes.
    pub instances: Vec<InstanceConfig>,
    /// The policy of the system.
    pub policy: Policy,
    /// Whether the owner is the default one.
    pub nameless: bool,
}

/// The owner when none is configured.
const NAMELESS: &str = "default";
/// The longest time between two comparisons. A longer one is a typing error.
const LONGEST_RESYNC: Duration = Duration::from_hours(31 * 24);

impl PiholeConfig {
    /// Reads the settings; None when something is wrong, which is then among their problems.
    pub fn read(settings: &mut Settings) -> Option<Self> {
        let known = settings.problems().len();
        let default_target = settings
            .required("DEFAULT_TARGET_IP", "the IPv4 address Ingress hosts point at, such as 192.168.1.10")
            .and_then(|text| {
                let ip = text.parse::<Ipv4Addr>().map_err(|_| format!("{text:?} is not an IPv4 address"));
                settings.check("DEFAULT_TARGET_IP", ip)
            });
        let cluster_id = settings.given("OWNER_ID").is_none();
        let (owner, nameless) = owner(settings);
        let conflict = settings
            .choice("CONFLICT_POLICY", &[("skip", ConflictPolicy::Skip), ("overwrite", ConflictPolicy::Overwrite)])
            .unwrap_or_default();
        let finalizer = settings.switch("USE_FINALIZER", false);
        let sweep = settings.switch("GC", true);
        let resync = resync(settings);
        if let Some(level) = settings.given("LOG_LEVEL").map(str::to_owned)
            && !settings.problems().iter().any(|problem| problem.setting == "LOG_LEVEL")
        {
            settings.check("LOG_LEVEL", logs::check_level(&level).map_err(|error| error.to_string()));
        }
        let namespace = settings.given("POD_NAMESPACE").unwrap_or("signpost").to_owned();
        let deployment = settings.given("DEPLOYMENT_NAME").unwrap_or("signpost").to_owned();
        let instances = instances(settings);
        if settings.problems().len() > known {
            return None;
        }
        let policy = Policy::new(owner?, default_target?);
        let policy = Policy { cluster_id, conflict, finalizer, sweep, resync, namespace, deployment, ..policy };
        Some(Self { instances, policy, nameless })
    }
}

/// The owner id in the markers, and whether it is the default of all who configured none.
fn owner(settings: &mut Settings) -> (Option<OwnerId>, bool) {
    let given = settings.given("OWNER_ID").unwrap_or(NAMELESS).to_owned();
    if given.contains('.') {
        // With WATCH_NAMESPACE the owner is `<owner>.<namespace>`: two different owners must not get the same text.
        let message = format!("{given:?} holds a '.', which separates the owner from WATCH_NAMESPACE");
        settings.problem("OWNER_ID", message);
    }
    let scope = settings.given("WATCH_NAMESPACE").map(|scope| format!(".{scope}")).unwrap_or_default();
    let owner = OwnerId::parse(&format!("{given}{scope}")).map_err(|error| error.to_string());
    (settings.check("OWNER_ID", owner), given == NAMELESS)
}

fn resync(settings: &mut Settings) -> Option<Duration> {
    let time = settings.duration("PIHOLE_RESYNC").unwrap_or(Duration::from_mins(5));
    if time.is_zero() {
        return None;
    }
    if !(Duration::from_secs(10)..=LONGEST_RESYNC).contains(&time) {
        settings.problem("PIHOLE_RESYNC", format!("{time:?} is not between 10s and 744h; 0 is never"));
    }
    Some(time)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstancesFile {
    instances: Vec<InstanceEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InstanceEntry {
    name: String,
    url: String,
    token: Option<String>,
    token_file: Option<PathBuf>,
    dialect: Option<String>,
    ca_file: Option<PathBuf>,
    server_name: Option<String>,
}

/// The Pi-holes of the file, and the Pi-hole with settings of its own.
fn instances(settings: &mut Settings) -> Vec<InstanceConfig> {
    let file = settings.path("PIHOLE_INSTANCES_FILE");
    let mut entries = Vec::new();
    if let Some(path) = &file {
        let read = std::fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()));
        // The parser's message may quote the line, and the line may hold a token: only the place is repeated.
        let parsed = read.and_then(|text| {
            serde_saphyr::from_str::<InstancesFile>(&text).map_err(|_| {
                format!(
                    "{} is not `instances:` with name, url, token or tokenFile, dialect, caFile, serverName",
                    path.display()
                )
            })
        });
        if let Some(file) = settings.check("PIHOLE_INSTANCES_FILE", parsed) {
            let label = |entry: &InstanceEntry| format!("PIHOLE_INSTANCES_FILE, instance {:?}", entry.name);
            entries.extend(file.instances.into_iter().map(|entry| (label(&entry), entry)));
            if entries.is_empty() {
                settings.problem("PIHOLE_INSTANCES_FILE", "lists no instance");
            }
        }
    }
    if file.is_none() || settings.given("PIHOLE_URL").is_some() {
        let text = |name: &str| settings.given(name).map(str::to_owned);
        let entry = InstanceEntry {
            name: "pihole".to_owned(),
            url: text("PIHOLE_URL").unwrap_or_default(),
            token: text("PIHOLE_API_TOKEN"),
            token_file: settings.path("PIHOLE_API_TOKEN_FILE"),
            dialect: text("PIHOLE_API_DIALECT"),
            ca_file: settings.path("PIHOLE_CA_FILE"),
            server_name: text("PIHOLE_SERVER_NAME"),
        };
        entries.push((String::new(), entry));
    }
    let mut instances: Vec<InstanceConfig> = Vec::new();
    let mut names = BTreeSet::new();
    for (place, entry) in entries {
        if !names.insert(entry.name.clone()) {
            let at = if place.is_empty() { "PIHOLE_INSTANCES_FILE".to_owned() } else { format!("{place}, name") };
            settings.problem(at, "the name is used twice");
        }
        if let Some(instance) = entry.check(&place, &instances, settings) {
            instances.push(instance);
        }
    }
    instances
}

impl InstanceEntry {
    /// The entry as a Pi-hole to talk to; what is wrong with it is a problem of the settings.
    fn check(self, place: &str, others: &[InstanceConfig], settings: &mut Settings) -> Option<InstanceConfig> {
        let given =
            |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let at = |variable: &str, field: &str| {
            if place.is_empty() { variable.to_owned() } else { format!("{place}, {field}") }
        };
        if !is_instance_name(&self.name) {
            settings.problem(at("name", "name"), "a name is 1 to 40 characters of a-z, 0-9 and '-'");
        }
        let url = at("PIHOLE_URL", "url");
        let base = if self.url.trim().is_empty() {
            Err("is required: the base URL of the Pi-hole, such as http://192.168.1.2".to_owned())
        } else {
            parse_base_url(&self.url).map_err(|error| format!("is not a usable http or https URL: {error}"))
        };
        let base = settings.check(&url, base);
        let token = Secret::given(given(&self.token), self.token_file).and_then(|token| {
            token.ok_or_else(|| "is required: an app password, the web password, or the API token".to_owned())
        });
        let token = settings.check(at("PIHOLE_API_TOKEN", "token"), token);
        let dialect = given(&self.dialect).unwrap_or_else(|| "auto".to_owned());
        let dialect = Dialect::parse(&dialect).ok_or_else(|| format!("{dialect:?} is not one of auto, spec, v6"));
        let dialect = settings.check(at("PIHOLE_API_DIALECT", "dialect"), dialect);
        if let Some(path) = &self.ca_file
            && let Err(error) = std::fs::metadata(path)
        {
            let message = format!("{} cannot be read: {error}", path.display());
            settings.problem(at("PIHOLE_CA_FILE", "caFile"), message);
        }
        let base = base?;
        if let Some(twin) = others.iter().find(|other| is_same_server(&other.connection.base, &base)) {
            // Each has a worker of its own, and two writes at a time crash a Pi-hole.
            let message = format!("leads to the same Pi-hole as the instance {:?}; name each Pi-hole once", twin.name);
            settings.problem(url, message);
        }
        let mut connection = Connection::new(base, token?);
        connection.ca_file = self.ca_file;
        connection.server_name = given(&self.server_name);
        Some(InstanceConfig { name: self.name, connection, dialect: dialect? })
    }
}

/// Whether two base URLs lead to the same server: equal, or the usual ports of one host.
fn is_same_server(one: &Url, two: &Url) -> bool {
    let usual = |url: &Url| url.port().is_none();
    let place = |url: &Url| (url.host_str().map(str::to_ascii_lowercase), url.path().trim_end_matches('/').to_owned());
    place(one) == place(two)
        && (one.port_or_known_default() == two.port_or_known_default() || (usual(one) && usual(two)))
}

fn is_instance_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&name.len()) && name.bytes().all(good) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: [(&str, &str); 3] = [
        ("PIHOLE_URL", "http://192.168.1.2/admin"),
        ("PIHOLE_API_TOKEN", "secret"),
        ("DEFAULT_TARGET_IP", "192.168.1.10"),
    ];

    /// The three settings that are required, and others in addition to them or instead of them.
    fn settings(others: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new(GIVEN);
        for (name, value) in others {
            settings.set(*name, *value);
        }
        settings
    }

    fn read(others: &[(&str, &str)]) -> PiholeConfig {
        let mut settings = settings(others);
        let config = PiholeConfig::read(&mut settings);
        config.unwrap_or_else(|| panic!("{:?}", settings.problems()))
    }

    fn problems(others: &[(&str, &str)]) -> Vec<signpost_engine::settings::Problem> {
        let mut settings = settings(others);
        let config = PiholeConfig::read(&mut settings);
        assert_eq!(config.is_none(), !settings.problems().is_empty());
        settings.problems().to_vec()
    }

    fn places(others: &[(&str, &str)]) -> Vec<String> {
        problems(others).into_iter().map(|problem| problem.setting).collect()
    }

    #[test]
    fn row_50_three_settings_are_enough() {
        let config = read(&[]);
        assert_eq!(config.instances[0].connection.base.as_str(), "http://192.168.1.2/");
        assert_eq!(config.policy.resync, Some(Duration::from_mins(5)));
        assert_eq!(config.policy.conflict, ConflictPolicy::Skip);
        assert!(!config.policy.finalizer && config.policy.sweep);
    }

    #[test]
    fn rows_17_37_40_and_41_the_pauses_are_those_of_the_request() {
        let policy = read(&[]).policy;
        assert_eq!(policy.backoff, Duration::from_secs(30), "doubling to ten times as much, 5 minutes");
        assert_eq!(policy.throttle, Duration::from_mins(1));
        assert_eq!((policy.gather, policy.gather_at_most), (Duration::from_millis(300), Duration::from_secs(3)));
        assert_eq!(policy.brake, Duration::from_secs(30));
        assert_eq!(policy.restart_pause, Duration::from_mins(1));
        assert_eq!(policy.finalizer_patience, Duration::from_mins(10));
    }

    #[test]
    fn an_owner_without_a_name_of_its_own_is_noticed() {
        assert!(read(&[]).nameless);
        for (owner, nameless) in [("default", true), ("", true), ("home", false)] {
            assert_eq!(read(&[("OWNER_ID", owner)]).nameless, nameless, "{owner:?}");
        }
    }

    #[test]
    fn an_owner_with_a_dot_could_be_another_owner_in_a_namespace() {
        assert_eq!(places(&[("OWNER_ID", "home.media")]), ["OWNER_ID"]);
    }

    #[test]
    fn without_an_owner_the_cluster_gets_an_id_of_its_own() {
        assert!(read(&[]).policy.cluster_id);
        for (owner, cluster_id) in [("", true), ("default", false), ("home", false)] {
            assert_eq!(read(&[("OWNER_ID", owner)]).policy.cluster_id, cluster_id, "{owner:?}");
        }
        let example = include_str!("../../../../examples/pihole/deployment.yaml");
        assert!(!example.contains("OWNER_ID"), "two clusters that copy the example would delete each other's records");
    }

    #[test]
    fn one_pihole_under_two_names_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("instances.yaml");
        let both = |url: &str| {
            let one = "{name: one, url: 'http://10.0.0.1/admin', token: x}";
            std::fs::write(&path, format!("instances:\n- {one}\n- {{name: two, url: '{url}', token: x}}\n")).unwrap();
            let file = path.to_str().unwrap();
            problems(&[("PIHOLE_URL", ""), ("PIHOLE_API_TOKEN", ""), ("PIHOLE_INSTANCES_FILE", file)])
        };
        for same in ["http://10.0.0.1", "http://10.0.0.1:80/api", "https://10.0.0.1"] {
            let problems = both(same);
            assert_eq!(problems.len(), 1, "{same}");
            assert!(problems[0].setting.contains("two") && problems[0].message.contains("\"one\""), "{problems:?}");
        }
        for other in ["http://10.0.0.2", "http://10.0.0.1:8080", "http://10.0.0.1/other"] {
            assert!(both(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn a_resync_beyond_reason_is_refused() {
        for bad in ["18446744073709551615h", "99999999999999999999s", "745h", "often", "5s"] {
            assert_eq!(places(&[("PIHOLE_RESYNC", bad)]), ["PIHOLE_RESYNC"], "{bad}");
        }
        assert_eq!(read(&[("PIHOLE_RESYNC", "744h")]).policy.resync, Some(LONGEST_RESYNC));
        assert_eq!(read(&[("PIHOLE_RESYNC", "0")]).policy.resync, None);
    }

    #[test]
    fn row_30_every_problem_is_listed_at_once() {
        let mut settings = Settings::new([
            ("PIHOLE_API_DIALECT", "v5"),
            ("OWNER_ID", "My Cluster"),
            ("CONFLICT_POLICY", "maybe"),
            ("USE_FINALIZER", "perhaps"),
            ("GC", "sometimes"),
            ("PIHOLE_RESYNC", "often"),
            ("LOG_LEVEL", "loud"),
        ]);
        assert_eq!(PiholeConfig::read(&mut settings), None);
        let found: Vec<&str> = settings.problems().iter().map(|problem| problem.setting.as_str()).collect();
        for setting in [
            "PIHOLE_URL",
            "PIHOLE_API_TOKEN",
            "DEFAULT_TARGET_IP",
            "PIHOLE_API_DIALECT",
            "OWNER_ID",
            "CONFLICT_POLICY",
            "USE_FINALIZER",
            "GC",
            "PIHOLE_RESYNC",
            "LOG_LEVEL",
        ] {
            assert!(found.contains(&setting), "{setting} is missing in {found:?}");
        }
    }

    #[test]
    fn row_25_the_url_is_required_and_taken_as_people_paste_it() {
        for good in [
            "http://192.168.1.2",
            "https://pi.hole/",
            "http://pi.hole/admin",
            "http://pi.hole/admin/",
            "http://pi.hole:8080/api",
        ] {
            assert!(problems(&[("PIHOLE_URL", good)]).is_empty(), "{good}");
        }
        for bad in ["", " ", "pi.hole", "ftp://pi.hole", "http://", "http://me:secret@pi.hole"] {
            let problems = problems(&[("PIHOLE_URL", bad)]);
            assert_eq!(problems.len(), 1, "{bad}");
            assert!(problems[0].setting == "PIHOLE_URL" && !problems[0].message.contains("secret"));
        }
    }

    #[test]
    fn row_26_the_token_is_required_and_not_blank() {
        for bad in ["", "  "] {
            assert_eq!(places(&[("PIHOLE_API_TOKEN", bad)]), ["PIHOLE_API_TOKEN"]);
        }
        let mut absent = Settings::new([GIVEN[0], GIVEN[2]]);
        assert_eq!(PiholeConfig::read(&mut absent), None);
        assert_eq!(absent.problems()[0].setting, "PIHOLE_API_TOKEN");
    }

    #[test]
    fn row_27_the_default_address_is_required_and_ipv4() {
        for bad in ["", "::1", "1.2.3", "01.2.3.4", "host"] {
            assert_eq!(places(&[("DEFAULT_TARGET_IP", bad)]), ["DEFAULT_TARGET_IP"]);
        }
        let mut absent = Settings::new([GIVEN[0], GIVEN[1]]);
        assert_eq!(PiholeConfig::read(&mut absent), None);
        assert_eq!(absent.problems()[0].setting, "DEFAULT_TARGET_IP");
    }

    #[test]
    fn row_28_the_log_level_is_one_of_four_and_info_when_absent() {
        for good in ["", "debug", "info", "warn", "error"] {
            assert!(problems(&[("LOG_LEVEL", good)]).is_empty());
        }
        for bad in ["INFO", "trace", "warning", "loud"] {
            assert_eq!(places(&[("LOG_LEVEL", bad)]), ["LOG_LEVEL"]);
        }
    }

    #[test]
    fn row_29_the_watched_namespace_is_part_of_the_owner() {
        let config = read(&[("OWNER_ID", "home"), ("WATCH_NAMESPACE", "media")]);
        assert_eq!(config.policy.owner.as_str(), "home.media");
    }

    #[test]
    fn a_file_of_instances_adds_to_the_single_one_and_never_leaks_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("instances.yaml");
        std::fs::write(&path, "instances:\n- {name: one, url: 'http://10.0.0.1', token: s3cret}\n- {name: two, url: 'https://10.0.0.2', token: x, dialect: v6, serverName: pi.hole}\n").unwrap();
        let file = ("PIHOLE_INSTANCES_FILE", path.to_str().unwrap());
        let names: Vec<String> = read(&[file]).instances.into_iter().map(|instance| instance.name).collect();
        assert_eq!(names, ["one", "two", "pihole"]);
        assert_eq!(read(&[file, ("PIHOLE_URL", ""), ("PIHOLE_API_TOKEN", "")]).instances.len(), 2);
        std::fs::write(&path, "instances:\n- {name: one, url: 'http://10.0.0.1', token: s3cret, extra: s3cret}\n")
            .unwrap();
        let text = format!("{:?} {:?}", problems(&[file]), settings(&[file]));
        assert!(text.contains("PIHOLE_INSTANCES_FILE") && !text.contains("s3cret"), "{text}");
    }

    #[test]
    fn a_token_file_is_checked_and_kept_as_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let with = [("PIHOLE_API_TOKEN", ""), ("PIHOLE_API_TOKEN_FILE", path.to_str().unwrap())];
        assert_eq!(places(&with), ["PIHOLE_API_TOKEN"]);
        std::fs::write(&path, "secret\n").unwrap();
        assert_eq!(read(&with).instances[0].connection.token, Secret::File(path.clone()));
    }
}
