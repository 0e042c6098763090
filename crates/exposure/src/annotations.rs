//! The annotations of an Ingress. A value that decides who may enter, or where, and cannot be read, refuses the Ingress: a typing error must not
//! make it public. A name that is not known is reported with the nearest known one.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use signpost_dns::Fqdn;
use thiserror::Error;

use crate::host::Overrides;

/// The prefix of every annotation.
pub const PREFIX: &str = "pangolin.ingress.k8s.io/";

/// Names that are read.
const KNOWN: &[&str] = &[
    "backend-scheme",
    "block-access",
    "domain-name",
    "enabled",
    "headers",
    "healthcheck-enabled",
    "healthcheck-follow-redirects",
    "healthcheck-headers",
    "healthcheck-hostname",
    "healthcheck-interval",
    "healthcheck-method",
    "healthcheck-path",
    "healthcheck-port",
    "healthcheck-scheme",
    "healthcheck-status",
    "healthcheck-timeout",
    "healthcheck-tls-server-name",
    "healthcheck-unhealthy-interval",
    "paused",
    "set-host-header",
    "ssl",
    "sso",
    "sticky-session",
    "subdomain",
    "tls-server-name",
    "tunnel-name",
];
/// Names that other controllers read and this one does not.
const OTHERS: &[&str] = &["apply-rules", "email-whitelist-enabled", "healthcheck-mode", "post-auth-path"];
/// Names that other controllers write for themselves.
const IGNORED: &[&str] = &["resource-id"];
/// Largest value that is read.
const MAX_VALUE: usize = 16 * 1024;

/// How a service is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendScheme {
    /// Plain HTTP.
    Http,
    /// HTTPS.
    Https,
    /// HTTP/2 without TLS.
    H2c,
}

impl BackendScheme {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::H2c => "h2c",
        }
    }

    /// Reads its name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Http, Self::Https, Self::H2c].into_iter().find(|scheme| scheme.as_str() == text)
    }
}

/// A health check; what is not given is taken from the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// The path.
    pub path: Option<String>,
    /// `http` or `https`.
    pub scheme: Option<BackendScheme>,
    /// The host to ask.
    pub hostname: Option<String>,
    /// The port to ask.
    pub port: Option<u16>,
    /// Seconds between two checks.
    pub interval: Option<u32>,
    /// Seconds between two checks while it fails.
    pub unhealthy_interval: Option<u32>,
    /// Seconds until a check has failed.
    pub timeout: Option<u32>,
    /// The HTTP method.
    pub method: Option<String>,
    /// The expected status.
    pub status: Option<u16>,
    /// Whether redirects are followed.
    pub follow_redirects: Option<bool>,
    /// Headers of the check.
    pub headers: Vec<(String, String)>,
    /// Server name of the check.
    pub tls_server_name: Option<String>,
}

/// The settings in the annotations.
#[allow(clippy::struct_excessive_bools)] // One answer per annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `enabled`.
    pub enabled: Option<bool>,
    /// `paused`: the endpoint exists and is switched off.
    pub paused: bool,
    /// `tunnel-name`, as `name` or `namespace/name`.
    pub tunnel: Option<String>,
    /// `domain-name` and `subdomain`.
    pub overrides: Overrides,
    /// `sso`: single sign-on; off without the annotation.
    pub sso: bool,
    /// `block-access`.
    pub block_access: bool,
    /// `ssl`: HTTPS; on without the annotation.
    pub ssl: bool,
    /// `sticky-session`.
    pub sticky_session: bool,
    /// `tls-server-name`.
    pub tls_server_name: Option<String>,
    /// `set-host-header`.
    pub set_host_header: Option<String>,
    /// `headers`.
    pub headers: Vec<(String, String)>,
    /// `backend-scheme`.
    pub scheme: Option<BackendScheme>,
    /// `healthcheck-*`, when `healthcheck-enabled` is true.
    pub check: Option<Check>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: None,
            paused: false,
            tunnel: None,
            overrides: Overrides::default(),
            sso: false,
            block_access: false,
            ssl: true,
            sticky_session: false,
            tls_server_name: None,
            set_host_header: None,
            headers: Vec::new(),
            scheme: None,
            check: None,
        }
    }
}

/// An error in an annotation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum Problem {
    /// The name is not known.
    #[error("annotation {name} is not known and has no effect{}", nearest.as_ref().map(|near| format!("; did you mean {near}?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// The known name that is nearest.
        nearest: Option<String>,
    },
    /// The name is known to other controllers.
    #[error("annotation {0} is not supported and has no effect; set it in Pangolin's dashboard")]
    Unsupported(String),
    /// The value cannot be used.
    #[error("annotation {name} has the value {value:?}, which is not {expected}")]
    Invalid {
        /// The name.
        name: String,
        /// The value.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
}

impl Problem {
    /// Whether the Ingress cannot be exposed until it is corrected.
    pub fn refuses(&self) -> bool {
        matches!(self, Self::Invalid { .. })
    }
}

/// The annotations of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Annotations {
    /// The settings in them.
    pub options: Options,
    /// The errors in them, in order.
    pub problems: Vec<Problem>,
}

/// Reads all annotations of an Ingress. `second` is another prefix that means the same.
pub fn parse<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>, second: Option<&str>) -> Annotations {
    let mut values = BTreeMap::new();
    let mut problems = Vec::new();
    for (key, value) in all {
        let own = key.strip_prefix(PREFIX);
        let name = own.or_else(|| key.strip_prefix(second?)?.strip_prefix('/'));
        match name {
            Some(name) if IGNORED.contains(&name) => {}
            Some(name) if OTHERS.contains(&name) => problems.push(Problem::Unsupported(key.to_owned())),
            Some(name) => match KNOWN.iter().find(|known| **known == name) {
                // The first prefix wins.
                Some(known) if own.is_some() => drop(values.insert(*known, (key, value))),
                Some(known) => drop(values.entry(*known).or_insert((key, value))),
                None => problems.push(Problem::Unknown { name: shorten(key), nearest: nearest(name) }),
            },
            None => problems.extend(misspelt_prefix(key)),
        }
    }
    let mut read = Read { values, problems };
    let options = options(&mut read);
    let mut problems = read.problems;
    problems.sort();
    Annotations { options, problems }
}

/// Values, and what is wrong with those read so far.
struct Read<'a> {
    values: BTreeMap<&'static str, (&'a str, &'a str)>,
    problems: Vec<Problem>,
}

impl Read<'_> {
    fn get<T>(&mut self, name: &str, expected: &'static str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let (key, value) = *self.values.get(name)?;
        let parsed = if value.len() > MAX_VALUE { None } else { read(value.trim()) };
        if parsed.is_none() {
            // Headers may hold credentials.
            let value = if name.ends_with("headers") { "…".to_owned() } else { shorten(value) };
            self.problems.push(Problem::Invalid { name: key.to_owned(), value, expected });
        }
        parsed
    }

    fn flag(&mut self, name: &str) -> Option<bool> {
        self.get(name, "true or false", |text| {
            if text.eq_ignore_ascii_case("true") {
                Some(true)
            } else {
                text.eq_ignore_ascii_case("false").then_some(false)
            }
        })
    }

    fn host(&mut self, name: &str) -> Option<String> {
        self.get(name, "a host name", |text| Some(Fqdn::parse_hostname(text).ok()?.undotted().to_owned()))
    }

    fn seconds(&mut self, name: &str) -> Option<u32> {
        self.get(name, "a number of seconds", |text| text.parse().ok().filter(|seconds| *seconds > 0))
    }

    fn headers(&mut self, name: &str) -> Vec<(String, String)> {
        let expected = "headers: one \"Name: value\" per line, a JSON object of names and values, or a JSON array of objects with name and value";
        self.get(name, expected, read_headers).unwrap_or_default()
    }

    fn scheme(&mut self, name: &str) -> Option<BackendScheme> {
        self.get(name, "http, https or h2c", BackendScheme::parse)
    }
}

fn options(read: &mut Read<'_>) -> Options {
    let usual = Options::default();
    Options {
        enabled: read.flag("enabled"),
        paused: read.flag("paused").unwrap_or(usual.paused),
        tunnel: read.get("tunnel-name", "a tunnel: name or namespace/name", read_tunnel),
        overrides: Overrides {
            domain: read.get("domain-name", "a domain name", |text| Fqdn::parse_hostname(text).ok()),
            subdomain: read.get("subdomain", "labels such as app or api.staging, or @ for the domain itself", |text| {
                if text == "@" {
                    return Some(String::new());
                }
                Some(Fqdn::parse_hostname(text).ok()?.undotted().to_owned())
            }),
        },
        sso: read.flag("sso").unwrap_or(usual.sso),
        block_access: read.flag("block-access").unwrap_or(usual.block_access),
        ssl: read.flag("ssl").unwrap_or(usual.ssl),
        sticky_session: read.flag("sticky-session").unwrap_or(usual.sticky_session),
        tls_server_name: read.host("tls-server-name"),
        set_host_header: read.host("set-host-header"),
        headers: read.headers("headers"),
        scheme: read.scheme("backend-scheme"),
        check: check(read),
    }
}

/// All values are read, so that an error in one is reported while the check is off.
fn check(read: &mut Read<'_>) -> Option<Check> {
    let enabled = read.flag("healthcheck-enabled").unwrap_or(false);
    let check = Check {
        path: read.get("healthcheck-path", "a path that begins with /", |text| {
            (text.starts_with('/') && !text.contains(char::is_control)).then(|| text.to_owned())
        }),
        scheme: read.scheme("healthcheck-scheme"),
        hostname: read.host("healthcheck-hostname"),
        port: read.get("healthcheck-port", "a port", |text| text.parse().ok().filter(|port| *port > 0)),
        interval: read.seconds("healthcheck-interval"),
        unhealthy_interval: read.seconds("healthcheck-unhealthy-interval"),
        timeout: read.seconds("healthcheck-timeout"),
        method: read.get("healthcheck-method", "an HTTP method", |text| {
            let upper = text.to_ascii_uppercase();
            ["GET", "HEAD", "POST", "PUT", "OPTIONS"].contains(&upper.as_str()).then_some(upper)
        }),
        status: read.get("healthcheck-status", "an HTTP status", |text| {
            text.parse().ok().filter(|status| (100..=599).contains(status))
        }),
        follow_redirects: read.flag("healthcheck-follow-redirects"),
        headers: read.headers("healthcheck-headers"),
        tls_server_name: read.host("healthcheck-tls-server-name"),
    };
    enabled.then_some(check)
}

fn read_tunnel(text: &str) -> Option<String> {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let name = match text.split_once('/') {
        Some((namespace, name)) if label(namespace) => name,
        Some(_) => return None,
        None => text,
    };
    name.split('.').all(label).then(|| text.to_owned())
}

/// `Name: value` lines, a JSON object of names and values, or a JSON array of objects with `name` and `value`.
fn read_headers(text: &str) -> Option<Vec<(String, String)>> {
    let pairs: Vec<(String, String)> = if text.starts_with('{') {
        serde_json::from_str::<Pairs>(text).ok()?.0
    } else if text.starts_with('[') {
        let headers: Vec<HeaderEntry> = serde_json::from_str(text).ok()?;
        headers.into_iter().map(|HeaderEntry { name, value }| (name, value)).collect()
    } else {
        let pair = |line: &str| line.split_once(':').map(|(name, value)| (name.trim().into(), value.trim().into()));
        text.lines().filter(|line| !line.trim().is_empty()).map(pair).collect::<Option<_>>()?
    };
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_|~".contains(c);
    let fine = |(name, value): &(String, String)| {
        !name.is_empty() && name.chars().all(token) && !value.contains(char::is_control)
    };
    pairs.iter().all(fine).then_some(pairs)
}

/// One header of a JSON array.
#[derive(Deserialize)]
struct HeaderEntry {
    name: String,
    value: String,
}

/// The headers of a JSON object, in their order.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of names and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

/// A key whose prefix is nearly ours.
fn misspelt_prefix(key: &str) -> Option<Problem> {
    let (prefix, name) = key.split_once('/')?;
    let ours = PREFIX.trim_end_matches('/');
    let close = prefix != ours && prefix.len() < 80 && distance(prefix, ours) <= 2;
    let nearest = KNOWN.contains(&name).then(|| format!("{PREFIX}{name}"));
    close.then(|| Problem::Unknown { name: shorten(key), nearest })
}

/// The known name with the fewest changes, if they are few.
fn nearest(name: &str) -> Option<String> {
    if name.len() > 80 {
        return None;
    }
    let (changes, known) = KNOWN.iter().map(|known| (distance(name, known), *known)).min()?;
    (changes <= 2.max(known.len() / 4)).then(|| format!("{PREFIX}{known}"))
}

/// How many characters have to be added, removed or replaced.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (at, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, b) in two.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[two.len()]
}

fn shorten(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(120).collect()
}

#[cfg(test)]
mod tests;
