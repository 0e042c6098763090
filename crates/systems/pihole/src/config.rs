//! Configuration: strings from flags, environment and one YAML file in, checked values or *all* problems out.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use signpost_provider_pihole::{Connection, Dialect, OwnerId, Secret, Url, parse_base_url};

/// The settings as a person gives them: everything is text, everything may be missing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PiholeSettings {
    /// `PIHOLE_URL`
    pub url: Option<String>,
    /// `PIHOLE_API_TOKEN`
    pub token: Option<String>,
    /// `PIHOLE_API_TOKEN_FILE`
    pub token_file: Option<PathBuf>,
    /// `DEFAULT_TARGET_IP`
    pub default_target_ip: Option<String>,
    /// `PIHOLE_API_DIALECT`: `auto`, `spec` or `v6`
    pub dialect: Option<String>,
    /// `OWNER_ID`
    pub owner_id: Option<String>,
    /// `CONFLICT_POLICY`: `skip` or `overwrite`
    pub conflict_policy: Option<String>,
    /// `USE_FINALIZER`: `true` or `false`
    pub use_finalizer: Option<String>,
    /// `GC`: `on` or `off`
    pub gc: Option<String>,
    /// `PIHOLE_RESYNC`: `5m`, `90s`, `1h`, or `0` for never
    pub resync: Option<String>,
    /// `PIHOLE_INSTANCES_FILE`
    pub instances_file: Option<PathBuf>,
    /// `PIHOLE_CA_FILE`
    pub ca_file: Option<PathBuf>,
    /// `PIHOLE_SERVER_NAME`
    pub server_name: Option<String>,
    /// `WATCH_NAMESPACE`
    pub watch_namespace: Option<String>,
    /// `LOG_LEVEL`: `debug`, `info`, `warn` or `error`
    pub log_level: Option<String>,
    /// The operator's own namespace, where the ledger lives.
    pub operator_namespace: Option<String>,
}

impl std::fmt::Debug for PiholeSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PiholeSettings").field("url", &self.url).finish_non_exhaustive()
    }
}

/// One thing wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct ConfigProblem {
    /// The variable or the place in the file.
    pub setting: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// What to do about somebody else's record for a host that is claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// Leave it, say so.
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
    /// What to speak.
    pub dialect: Dialect,
}

/// Everything that decides what is written, whatever the instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The address of hosts whose Ingress names none.
    pub default_target: Ipv4Addr,
    /// Who we are in marker and ledger; holds the watched namespace when there is one.
    pub owner: OwnerId,
    /// Whether the marker carries an id made once for this cluster instead, since nobody gave a name.
    pub cluster_id: bool,
    /// What to do about other people's records.
    pub conflict: ConflictPolicy,
    /// Whether Ingresses get a finalizer.
    pub finalizer: bool,
    /// Whether own lines without any claim are deleted.
    pub sweep: bool,
    /// How often everything is looked at without a change; None for never.
    pub resync: Option<Duration>,
    /// The operator's own namespace.
    pub namespace: String,
    /// How long changes gather.
    pub gather: Duration,
    /// The longest a change waits for others.
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
            gather: Duration::from_millis(300),
            gather_at_most: Duration::from_secs(3),
            brake: Duration::from_secs(30),
            restart_pause: Duration::from_mins(1),
            finalizer_patience: Duration::from_mins(10),
            backoff: Duration::from_secs(30),
            throttle: Duration::from_mins(1),
        }
    }
}

/// The checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PiholeConfig {
    /// The Pi-holes.
    pub instances: Vec<InstanceConfig>,
    /// What to write.
    pub policy: Policy,
    /// The namespace to watch; None for all.
    pub watch_namespace: Option<String>,
    /// Whether the owner has the name that everybody has who gave none.
    pub nameless: bool,
}

/// The owner of those who name none.
const NAMELESS: &str = "default";
/// The longest time between two comparisons. Beyond it somebody has mistyped.
const LONGEST_RESYNC: Duration = Duration::from_hours(31 * 24);

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

/// Collects problems while values are read.
#[derive(Default)]
struct Problems(Vec<ConfigProblem>);

impl Problems {
    fn add(&mut self, setting: &str, problem: impl Into<String>) {
        self.0.push(ConfigProblem { setting: setting.to_owned(), problem: problem.into() });
    }

    fn take<T>(&mut self, setting: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|problem| self.add(setting, problem)).ok()
    }
}

fn given(value: Option<&String>) -> Option<&str> {
    value.map(|text| text.trim()).filter(|text| !text.is_empty())
}

impl PiholeSettings {
    /// Every problem at once; empty when all is well.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        self.resolve().err().unwrap_or_default()
    }

    /// The checked configuration, or every problem at once.
    pub fn resolve(&self) -> Result<PiholeConfig, Vec<ConfigProblem>> {
        let mut problems = Problems::default();
        let default_target = match given(self.default_target_ip.as_ref()) {
            None => Err("is required: the IPv4 address Ingress hosts point at, such as 192.168.1.10".to_owned()),
            Some(text) => text.parse::<Ipv4Addr>().map_err(|_| format!("{text:?} is not an IPv4 address")),
        };
        let default_target = problems.take("DEFAULT_TARGET_IP", default_target);
        let watch_namespace = given(self.watch_namespace.as_ref()).map(str::to_owned);
        let owner = given(self.owner_id.as_ref()).unwrap_or(NAMELESS);
        let nameless = owner == NAMELESS;
        if owner.contains('.') {
            // With WATCH_NAMESPACE the owner is `<owner>.<namespace>`: two that differ must not look the same.
            problems.add("OWNER_ID", format!("{owner:?} holds a '.', which separates the owner from WATCH_NAMESPACE"));
        }
        let owner = watch_namespace.as_ref().map_or_else(|| owner.to_owned(), |scope| format!("{owner}.{scope}"));
        let owner = problems.take("OWNER_ID", OwnerId::parse(&owner).map_err(|error| error.to_string()));
        let conflict = match given(self.conflict_policy.as_ref()) {
            None | Some("skip") => Ok(ConflictPolicy::Skip),
            Some("overwrite") => Ok(ConflictPolicy::Overwrite),
            Some(other) => Err(format!("{other:?} is neither \"skip\" nor \"overwrite\"")),
        };
        let conflict = problems.take("CONFLICT_POLICY", conflict);
        let finalizer = problems.take("USE_FINALIZER", switch(given(self.use_finalizer.as_ref()), false));
        let sweep = problems.take("GC", switch(given(self.gc.as_ref()), true));
        let resync = problems.take("PIHOLE_RESYNC", period(given(self.resync.as_ref()).unwrap_or("5m")));
        if let Some(level) = given(self.log_level.as_ref())
            && !["debug", "info", "warn", "error"].contains(&level)
        {
            problems.add("LOG_LEVEL", format!("{level:?} is none of debug, info, warn, error"));
        }
        let instances = self.instances(&mut problems);
        match (default_target, owner, conflict, finalizer, sweep, resync) {
            (Some(default_target), Some(owner), Some(conflict), Some(finalizer), Some(sweep), Some(resync))
                if problems.0.is_empty() =>
            {
                let namespace = given(self.operator_namespace.as_ref()).unwrap_or("signpost").to_owned();
                let cluster_id = given(self.owner_id.as_ref()).is_none();
                let policy = Policy::new(owner, default_target);
                let policy = Policy { cluster_id, conflict, finalizer, sweep, resync, namespace, ..policy };
                Ok(PiholeConfig { instances, policy, watch_namespace, nameless })
            }
            _ => Err(problems.0),
        }
    }

    fn instances(&self, problems: &mut Problems) -> Vec<InstanceConfig> {
        let mut entries = Vec::new();
        if let Some(path) = &self.instances_file {
            let read =
                std::fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()));
            // The parser's message may quote the line, and the line may hold a token: only the place is repeated.
            let parsed = read.and_then(|text| {
                serde_saphyr::from_str::<InstancesFile>(&text).map_err(|_| {
                    format!(
                        "{} is not `instances:` with name, url, token or tokenFile, dialect, caFile, serverName",
                        path.display()
                    )
                })
            });
            if let Some(file) = problems.take("PIHOLE_INSTANCES_FILE", parsed) {
                let label = |entry: &InstanceEntry| format!("PIHOLE_INSTANCES_FILE, instance {:?}", entry.name);
                entries.extend(file.instances.into_iter().map(|entry| (label(&entry), entry)));
                if entries.is_empty() {
                    problems.add("PIHOLE_INSTANCES_FILE", "lists no instance");
                }
            }
        }
        if self.instances_file.is_none() || given(self.url.as_ref()).is_some() {
            let entry = InstanceEntry {
                name: "pihole".to_owned(),
                url: self.url.clone().unwrap_or_default(),
                token: self.token.clone(),
                token_file: self.token_file.clone(),
                dialect: self.dialect.clone(),
                ca_file: self.ca_file.clone(),
                server_name: self.server_name.clone(),
            };
            entries.push((String::new(), entry));
        }
        let mut names = BTreeSet::new();
        let mut instances = Vec::new();
        for (place, entry) in entries {
            let at = |variable: &str, field: &str| {
                if place.is_empty() { variable.to_owned() } else { format!("{place}, {field}") }
            };
            if !instance_name(&entry.name) {
                problems.add(&at("name", "name"), "a name is 1 to 40 characters of a-z, 0-9 and '-'");
            } else if !names.insert(entry.name.clone()) {
                problems.add(&at("PIHOLE_INSTANCES_FILE", "name"), "the name is used twice");
            }
            let url = at("PIHOLE_URL", "url");
            let base = if entry.url.trim().is_empty() {
                Err("is required: the base URL of the Pi-hole, such as http://192.168.1.2".to_owned())
            } else {
                parse_base_url(&entry.url).map_err(|error| format!("is not a usable http or https URL: {error}"))
            };
            let base = problems.take(&url, base);
            let token = match (given(entry.token.as_ref()), entry.token_file) {
                (Some(_), Some(_)) => Err("give the token or the token file, not both".to_owned()),
                (Some(token), None) => Ok(Secret::Value(token.to_owned())),
                (None, Some(file)) => match std::fs::read_to_string(&file) {
                    Ok(text) if !text.trim().is_empty() => Ok(Secret::File(file)),
                    Ok(_) => Err(format!("the token file {} is empty", file.display())),
                    Err(error) => Err(format!("the token file {} cannot be read: {error}", file.display())),
                },
                (None, None) => Err("is required: an app password, the web password, or the API token".to_owned()),
            };
            let token = problems.take(&at("PIHOLE_API_TOKEN", "token"), token);
            let dialect = given(entry.dialect.as_ref()).unwrap_or("auto");
            let dialect = Dialect::parse(dialect).ok_or_else(|| format!("{dialect:?} is none of auto, spec, v6"));
            let dialect = problems.take(&at("PIHOLE_API_DIALECT", "dialect"), dialect);
            if let Some(path) = &entry.ca_file
                && let Err(error) = std::fs::metadata(path)
            {
                problems.add(&at("PIHOLE_CA_FILE", "caFile"), format!("{} cannot be read: {error}", path.display()));
            }
            if let (Some(base), Some(token), Some(dialect)) = (base, token, dialect) {
                let twin = instances.iter().find(|other: &&InstanceConfig| same_server(&other.connection.base, &base));
                if let Some(twin) = twin {
                    // Each has a worker of its own, and two writes at a time crash a Pi-hole.
                    let problem =
                        format!("leads to the same Pi-hole as the instance {:?}; name each Pi-hole once", twin.name);
                    problems.add(&url, problem);
                }
                let mut connection = Connection::new(base, token);
                connection.ca_file = entry.ca_file;
                connection.server_name = given(entry.server_name.as_ref()).map(str::to_owned);
                instances.push(InstanceConfig { name: entry.name, connection, dialect });
            }
        }
        instances
    }
}

/// Whether two base URLs lead to the same server: equal, or the usual ports of one host.
fn same_server(one: &Url, two: &Url) -> bool {
    let usual = |url: &Url| url.port().is_none();
    let place = |url: &Url| (url.host_str().map(str::to_ascii_lowercase), url.path().trim_end_matches('/').to_owned());
    place(one) == place(two)
        && (one.port_or_known_default() == two.port_or_known_default() || (usual(one) && usual(two)))
}

fn instance_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&name.len()) && name.bytes().all(good) && !name.starts_with('-') && !name.ends_with('-')
}

fn switch(text: Option<&str>, default: bool) -> Result<bool, String> {
    match text {
        None => Ok(default),
        Some("true" | "on" | "yes" | "1") => Ok(true),
        Some("false" | "off" | "no" | "0") => Ok(false),
        Some(other) => Err(format!("{other:?} is neither \"true\" nor \"false\"")),
    }
}

fn period(text: &str) -> Result<Option<Duration>, String> {
    let bad = || format!("{text:?} is not a time such as 5m, 90s or 1h (0 for never)");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.parse().map_err(|_| bad())?;
    let seconds = match &text[digits.len()..] {
        "" | "s" => count,
        "m" => count.saturating_mul(60),
        "h" => count.saturating_mul(3600),
        _ => return Err(bad()),
    };
    match seconds {
        0 => Ok(None),
        1..=9 => Err(format!("{text:?} is too short: at least 10s, or 0 for never")),
        long if long > LONGEST_RESYNC.as_secs() => Err(format!("{text:?} is too long: at most 744h, or 0 for never")),
        _ => Ok(Some(Duration::from_secs(seconds))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PiholeSettings {
        PiholeSettings {
            url: Some("http://192.168.1.2/admin".into()),
            token: Some("secret".into()),
            default_target_ip: Some("192.168.1.10".into()),
            ..PiholeSettings::default()
        }
    }

    fn places(settings: &PiholeSettings) -> Vec<String> {
        settings.validate().into_iter().map(|problem| problem.setting).collect()
    }

    #[test]
    fn row_50_three_settings_are_enough() {
        let config = settings().resolve().unwrap();
        assert_eq!(config.instances[0].connection.base.as_str(), "http://192.168.1.2/");
        assert_eq!(config.policy.resync, Some(Duration::from_mins(5)));
        assert_eq!(config.policy.conflict, ConflictPolicy::Skip);
        assert!(!config.policy.finalizer && config.policy.sweep);
    }

    #[test]
    fn rows_17_37_40_and_41_the_pauses_are_those_of_the_request() {
        let policy = settings().resolve().unwrap().policy;
        assert_eq!(policy.backoff, Duration::from_secs(30), "doubling to ten times as much, 5 minutes");
        assert_eq!(policy.throttle, Duration::from_mins(1));
        assert_eq!((policy.gather, policy.gather_at_most), (Duration::from_millis(300), Duration::from_secs(3)));
        assert_eq!(policy.brake, Duration::from_secs(30));
        assert_eq!(policy.restart_pause, Duration::from_mins(1));
        assert_eq!(policy.finalizer_patience, Duration::from_mins(10));
    }

    #[test]
    fn an_owner_without_a_name_of_its_own_is_noticed() {
        for (owner, nameless) in [(None, true), (Some("default"), true), (Some(""), true), (Some("home"), false)] {
            let settings = PiholeSettings { owner_id: owner.map(str::to_owned), ..settings() };
            assert_eq!(settings.resolve().unwrap().nameless, nameless, "{owner:?}");
        }
    }

    #[test]
    fn an_owner_with_a_dot_could_be_another_owner_in_a_namespace() {
        assert_eq!(places(&PiholeSettings { owner_id: Some("home.media".into()), ..settings() }), ["OWNER_ID"]);
    }

    #[test]
    fn without_an_owner_the_cluster_gets_an_id_of_its_own() {
        for (owner, cluster_id) in [(None, true), (Some(""), true), (Some("default"), false), (Some("home"), false)] {
            let settings = PiholeSettings { owner_id: owner.map(str::to_owned), ..settings() };
            assert_eq!(settings.resolve().unwrap().policy.cluster_id, cluster_id, "{owner:?}");
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
            let settings = PiholeSettings { url: None, token: None, instances_file: Some(path.clone()), ..settings() };
            settings.validate()
        };
        for same in ["http://10.0.0.1", "http://10.0.0.1:80/api", "https://10.0.0.1"] {
            let problems = both(same);
            assert_eq!(problems.len(), 1, "{same}");
            assert!(problems[0].setting.contains("two") && problems[0].problem.contains("\"one\""), "{problems:?}");
        }
        for other in ["http://10.0.0.2", "http://10.0.0.1:8080", "http://10.0.0.1/other"] {
            assert!(both(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn a_resync_beyond_reason_is_refused() {
        for bad in ["18446744073709551615h", "99999999999999999999s", "745h", "often"] {
            assert_eq!(places(&PiholeSettings { resync: Some(bad.into()), ..settings() }), ["PIHOLE_RESYNC"], "{bad}");
        }
        let longest = PiholeSettings { resync: Some("744h".into()), ..settings() };
        assert_eq!(longest.resolve().unwrap().policy.resync, Some(LONGEST_RESYNC));
    }

    #[test]
    fn row_30_every_problem_is_listed_at_once() {
        let settings = PiholeSettings {
            dialect: Some("v5".into()),
            owner_id: Some("My Cluster".into()),
            conflict_policy: Some("maybe".into()),
            use_finalizer: Some("perhaps".into()),
            gc: Some("sometimes".into()),
            resync: Some("often".into()),
            log_level: Some("loud".into()),
            ..PiholeSettings::default()
        };
        let found = places(&settings);
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
            assert!(found.iter().any(|place| place == setting), "{setting} is missing in {found:?}");
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
            assert!(PiholeSettings { url: Some(good.into()), ..settings() }.validate().is_empty(), "{good}");
        }
        for bad in ["", " ", "pi.hole", "ftp://pi.hole", "http://", "http://me:secret@pi.hole"] {
            let problems = PiholeSettings { url: Some(bad.into()), ..settings() }.validate();
            assert_eq!(problems.len(), 1, "{bad}");
            assert!(problems[0].setting == "PIHOLE_URL" && !problems[0].problem.contains("secret"));
        }
    }

    #[test]
    fn row_26_the_token_is_required_and_not_blank() {
        for bad in [None, Some(String::new()), Some("  ".into())] {
            assert_eq!(places(&PiholeSettings { token: bad, ..settings() }), ["PIHOLE_API_TOKEN"]);
        }
    }

    #[test]
    fn row_27_the_default_address_is_required_and_ipv4() {
        for bad in [
            None,
            Some(String::new()),
            Some("::1".into()),
            Some("1.2.3".into()),
            Some("01.2.3.4".into()),
            Some("host".into()),
        ] {
            assert_eq!(places(&PiholeSettings { default_target_ip: bad, ..settings() }), ["DEFAULT_TARGET_IP"]);
        }
    }

    #[test]
    fn row_28_the_log_level_is_one_of_four_and_info_when_absent() {
        for good in [None, Some("debug"), Some("info"), Some("warn"), Some("error")] {
            assert!(PiholeSettings { log_level: good.map(str::to_owned), ..settings() }.validate().is_empty());
        }
        for bad in ["INFO", "trace", "warning", "loud"] {
            assert_eq!(places(&PiholeSettings { log_level: Some(bad.into()), ..settings() }), ["LOG_LEVEL"]);
        }
    }

    #[test]
    fn row_29_the_watched_namespace_is_part_of_the_owner() {
        let config =
            PiholeSettings { owner_id: Some("home".into()), watch_namespace: Some("media".into()), ..settings() };
        assert_eq!(config.resolve().unwrap().policy.owner.as_str(), "home.media");
    }

    #[test]
    fn a_file_of_instances_adds_to_the_single_one_and_never_leaks_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("instances.yaml");
        std::fs::write(&path, "instances:\n- {name: one, url: 'http://10.0.0.1', token: s3cret}\n- {name: two, url: 'https://10.0.0.2', token: x, dialect: v6, serverName: pi.hole}\n").unwrap();
        let both = PiholeSettings { instances_file: Some(path.clone()), ..settings() };
        let names: Vec<String> = both.resolve().unwrap().instances.into_iter().map(|instance| instance.name).collect();
        assert_eq!(names, ["one", "two", "pihole"]);
        for url in [None, Some(String::new())] {
            let alone = PiholeSettings { url, token: None, ..both.clone() };
            assert_eq!(alone.resolve().unwrap().instances.len(), 2);
        }
        std::fs::write(&path, "instances:\n- {name: one, url: 'http://10.0.0.1', token: s3cret, extra: s3cret}\n")
            .unwrap();
        let text = format!("{:?} {both:?}", both.validate());
        assert!(text.contains("PIHOLE_INSTANCES_FILE") && !text.contains("s3cret"), "{text}");
    }

    #[test]
    fn a_token_file_is_checked_and_kept_as_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let with = PiholeSettings { token: None, token_file: Some(path.clone()), ..settings() };
        assert_eq!(places(&with), ["PIHOLE_API_TOKEN"]);
        std::fs::write(&path, "secret\n").unwrap();
        assert_eq!(with.resolve().unwrap().instances[0].connection.token, Secret::File(path));
    }
}
