//! The settings of this system.

use std::time::Duration;

use signpost_engine::{Setting, Settings};
use signpost_provider_resolver::{Options, Upstream};

/// Every setting of this system.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting::new(
        "PORTAL_RESOLVERS",
        "LIST",
        "Resolvers that every name is looked up with: system, authoritative, 192.0.2.53:53, tls://192.0.2.53#dns.example.org or https://dns.example.org/dns-query",
    )
    .or("system"),
    Setting::new("PORTAL_RESOLVER_CA_FILE", "FILE", "Certificate authorities of resolvers behind TLS and HTTPS, instead of the system's"),
    Setting::new("PORTAL_LOOKUPS", "NUMBER", "Lookups at once, over all objects: 1 to 1000").or("10"),
    Setting::new("PORTAL_LOOKUP_TIMEOUT", "TIME", "How long a resolver may take for a name").or("5s"),
    Setting::new("PORTAL_REFRESH", "TIME", "Time between two lookups of a name that is in sync").or("5m"),
    Setting::switch(
        "PORTAL_DISCOVER",
        "true",
        "Read the names of Ingresses, Services, DNSEndpoints, Gateway API routes and Istio objects: true or false",
    ),
    Setting::switch("PORTAL_DISABLE_DNS_CHECK", "false", "Do not look names up: true or false"),
];

/// How names are looked up.
#[derive(Clone, Debug)]
pub struct PortalConfig {
    /// The resolvers.
    pub resolvers: Options,
    /// How this system works.
    pub pace: Pace,
}

/// How this system works.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Whether names are looked up.
    pub check: bool,
    /// Time between two lookups of a name that is in sync.
    pub refresh: Duration,
    /// The first pause before a name that is not in sync is looked up again. It doubles up to the TTL of the answer, or to `refresh`.
    pub again: Duration,
    /// How long the lookups of one pass may take. The other names are looked up by the next pass.
    pub budget: Duration,
    /// Lookups of one pass at once.
    pub lookups: usize,
    /// Whether names are discovered on objects that no system of this operator publishes.
    pub discover: bool,
    /// The operator's own namespace, where the main portal is created; empty to create none.
    pub namespace: String,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            check: true,
            refresh: Duration::from_mins(5),
            again: Duration::from_secs(5),
            budget: Duration::from_secs(20),
            lookups: 10,
            discover: true,
            namespace: "signpost".to_owned(),
        }
    }
}

impl PortalConfig {
    pub(crate) fn read(settings: &mut Settings) -> Option<Self> {
        let before = settings.problems().len();
        let mut resolvers = Options::default();
        let list = |text: &str| {
            let words = text.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
            words.map(|word| word.parse::<Upstream>().map_err(|error| error.to_string())).collect::<Result<Vec<_>, _>>()
        };
        if let Some(listed) = settings.parse("PORTAL_RESOLVERS", list) {
            resolvers.resolvers = listed;
        }
        resolvers.ca = settings.given("PORTAL_RESOLVER_CA_FILE").map(Into::into);
        let number = |text: &str| match text.parse::<usize>() {
            Ok(number @ 1..=1000) => Ok(number),
            _ => Err(format!("{text:?} is not a number from 1 to 1000")),
        };
        if let Some(number) = settings.parse("PORTAL_LOOKUPS", number) {
            resolvers.concurrency = number;
        }
        let mut pace = Pace { lookups: resolvers.concurrency, ..Pace::default() };
        if let Some(deadline) = at_least(settings, "PORTAL_LOOKUP_TIMEOUT", Duration::from_millis(100)) {
            resolvers.deadline = deadline;
        }
        if let Some(refresh) = at_least(settings, "PORTAL_REFRESH", Duration::from_secs(10)) {
            pace.refresh = refresh;
        }
        pace.discover = settings.switch("PORTAL_DISCOVER", true);
        pace.check = !settings.switch("PORTAL_DISABLE_DNS_CHECK", false);
        if let Some(namespace) = settings.given("POD_NAMESPACE") {
            namespace.clone_into(&mut pace.namespace);
        }
        // Portals that are not watched cannot be known.
        if settings.given("WATCH_NAMESPACE").is_some_and(|watched| watched != pace.namespace) {
            pace.namespace.clear();
        }
        (settings.problems().len() == before).then_some(Self { resolvers, pace })
    }
}

fn at_least(settings: &mut Settings, name: &str, least: Duration) -> Option<Duration> {
    let given = settings.duration(name)?;
    if given < least {
        settings.problem(name, format!("{given:?} is too short; at least {least:?}"));
        return None;
    }
    Some(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_every_problem_is_reported() {
        let mut settings = Settings::new([
            ("PORTAL_RESOLVERS", "192.0.2.53, authoritative"),
            ("PORTAL_RESOLVER_CA_FILE", "/etc/dns/ca.crt"),
            ("PORTAL_LOOKUPS", "20"),
            ("PORTAL_REFRESH", "1m"),
            ("PORTAL_DISABLE_DNS_CHECK", "true"),
        ]);
        let config = PortalConfig::read(&mut settings).unwrap();
        assert_eq!(config.resolvers.resolvers.len(), 2);
        assert_eq!(config.resolvers.ca.as_deref(), Some(std::path::Path::new("/etc/dns/ca.crt")));
        assert_eq!((config.pace.lookups, config.pace.check), (20, false));
        assert_eq!(config.pace.namespace, "signpost");
        let mut elsewhere = Settings::new([("WATCH_NAMESPACE", "shop"), ("POD_NAMESPACE", "signpost")]);
        assert_eq!(PortalConfig::read(&mut elsewhere).unwrap().pace.namespace, "", "no main portal is created");
        let wrong = [("PORTAL_RESOLVERS", "dns.example"), ("PORTAL_LOOKUPS", "0"), ("PORTAL_REFRESH", "1s")];
        let mut settings = Settings::new(wrong);
        assert!(PortalConfig::read(&mut settings).is_none());
        assert_eq!(settings.problems().len(), 3);
    }
}
