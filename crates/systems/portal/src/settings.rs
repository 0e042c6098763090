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
    Setting::new(
        "PORTAL_SERVERS",
        "LIST",
        "DNS addresses of servers that systems publish to, asked for the names published there: powerdns=192.0.2.53, pihole NAME=192.0.2.2:53",
    ),
    Setting::new("PORTAL_RESOLVER_CA_FILE", "FILE", "Certificate authorities of resolvers behind TLS and HTTPS, instead of the system's"),
    Setting::new("PORTAL_LOOKUPS", "NUMBER", "Lookups at once, over all objects: 1 to 1000").or("10"),
    Setting::new("PORTAL_LOOKUP_TIMEOUT", "TIME", "How long a resolver may take for a name: 100ms to 30s").or("5s"),
    Setting::new("PORTAL_REFRESH", "TIME", "Time between two lookups of a name that is in sync").or("5m"),
    Setting::switch(
        "PORTAL_DISCOVER",
        "true",
        "Read the names of Ingresses, Services, DNSEndpoints, Gateway API routes and Istio objects: true or false",
    ),
    Setting::switch("PORTAL_DISABLE_DNS_CHECK", "false", "Do not look names up: true or false"),
    Setting::switch(
        "VERIFY",
        "false",
        "Report on RRsets and ClusterRRsets, in the condition Served, whether they are answered as published: true or false",
    )
    .needs(&["powerdns"]),
];

/// The longest time for a lookup.
const LONGEST_LOOKUP: Duration = Duration::from_secs(30);

/// How names are looked up.
#[derive(Clone, Debug)]
pub struct PortalConfig {
    /// The resolvers.
    pub resolvers: Options,
    /// The servers that systems publish to, by the name of the publisher in the inventory.
    pub servers: Vec<(Box<str>, Upstream)>,
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
    /// The first pause before a name that is not in sync is looked up again. It doubles up to the TTL of the answer, 30 seconds or `refresh`.
    pub again: Duration,
    /// How long the lookups of one pass may take. The other names are looked up by the next pass.
    pub budget: Duration,
    /// How long a visit of a remote portal may take. It ends before the pass does, so that it is reported.
    pub visit: Duration,
    /// Lookups of one pass at once.
    pub lookups: usize,
    /// Lookups of names that may take long at once, over all passes. The other turns are for the other names.
    pub slow: usize,
    /// Whether names are discovered on objects that no system of this operator publishes.
    pub discover: bool,
    /// Whether the result for a published record set is reported on its object.
    pub verify: bool,
    /// The operator's own namespace, where the main portal is created; empty to create none.
    pub namespace: String,
    /// The name of the operator's own Deployment, for events that concern no other object.
    pub deployment: String,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            check: true,
            refresh: Duration::from_mins(5),
            again: Duration::from_secs(5),
            budget: Duration::from_secs(20),
            visit: Duration::from_secs(25),
            lookups: 10,
            slow: 5,
            discover: true,
            verify: false,
            namespace: "signpost".to_owned(),
            deployment: "signpost".to_owned(),
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
        let servers = settings.parse("PORTAL_SERVERS", servers).unwrap_or_default();
        resolvers.ca = settings.given("PORTAL_RESOLVER_CA_FILE").map(Into::into);
        let number = |text: &str| match text.parse::<usize>() {
            Ok(number @ 1..=1000) => Ok(number),
            _ => Err(format!("{text:?} is not a number from 1 to 1000")),
        };
        if let Some(number) = settings.parse("PORTAL_LOOKUPS", number) {
            resolvers.concurrency = number;
        }
        // Half of the questions at once.
        let slow = (resolvers.concurrency / 2 / resolvers.questions_at_once().max(1)).max(1);
        let mut pace = Pace { lookups: resolvers.concurrency, slow, ..Pace::default() };
        if let Some(deadline) = at_least(settings, "PORTAL_LOOKUP_TIMEOUT", Duration::from_millis(100)) {
            if deadline > LONGEST_LOOKUP {
                settings
                    .problem("PORTAL_LOOKUP_TIMEOUT", format!("{deadline:?} is too long; at most {LONGEST_LOOKUP:?}"));
            }
            resolvers.deadline = deadline;
        }
        // A pass is long enough for a lookup at every server of /etc/resolv.conf, one after another.
        pace.budget = pace.budget.max(resolvers.deadline * 4).max(resolvers.longest() + Duration::from_secs(1));
        if let Some(refresh) = at_least(settings, "PORTAL_REFRESH", Duration::from_secs(10)) {
            pace.refresh = refresh;
        }
        pace.discover = settings.switch("PORTAL_DISCOVER", true);
        pace.check = !settings.switch("PORTAL_DISABLE_DNS_CHECK", false);
        pace.verify = settings.switch("VERIFY", false);
        if pace.verify && !pace.check {
            settings.problem("VERIFY", "it has no effect with PORTAL_DISABLE_DNS_CHECK=true");
        }
        if let Some(namespace) = settings.given("POD_NAMESPACE") {
            namespace.clone_into(&mut pace.namespace);
        }
        if let Some(deployment) = settings.given("DEPLOYMENT_NAME") {
            deployment.clone_into(&mut pace.deployment);
        }
        // Portals that are not watched cannot be known.
        if settings.given("WATCH_NAMESPACE").is_some_and(|watched| watched != pace.namespace) {
            pace.namespace.clear();
        }
        (settings.problems().len() == before).then_some(Self { resolvers, servers, pace })
    }
}

/// `PUBLISHER=ADDRESS`, separated by commas.
fn servers(text: &str) -> Result<Vec<(Box<str>, Upstream)>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let server = |part: &str| {
        let (publisher, address) = part
            .split_once('=')
            .filter(|(publisher, _)| !publisher.trim().is_empty())
            .ok_or_else(|| format!("{part:?} is not a server; write PUBLISHER=ADDRESS, such as powerdns=192.0.2.53"))?;
        let upstream = address.parse::<Upstream>().map_err(|error| error.to_string())?;
        if matches!(upstream, Upstream::System | Upstream::Authoritative) {
            return Err(format!("{part:?} is not a server; write its address, such as {publisher}=192.0.2.53"));
        }
        Ok((publisher.trim().into(), upstream))
    };
    parts.map(server).collect()
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
    fn the_defaults_are_those_of_the_seed() {
        let config = PortalConfig::read(&mut Settings::new([("PORTAL_DISCOVER", "true")])).unwrap();
        assert_eq!((config.resolvers.concurrency, config.pace.lookups), (10, 10));
        assert_eq!((config.resolvers.deadline, config.pace.refresh), (Duration::from_secs(5), Duration::from_mins(5)));
        assert!(config.pace.check);
    }

    #[test]
    fn a_pass_is_longer_than_the_longest_lookup() {
        for timeout in ["", "100ms", "1s", "5s", "6s", "20s", "30s"] {
            let config = PortalConfig::read(&mut Settings::new([("PORTAL_LOOKUP_TIMEOUT", timeout)])).unwrap();
            assert!(config.pace.budget > config.resolvers.longest(), "{timeout}: {:?}", config.pace.budget);
        }
    }

    #[test]
    fn names_that_may_take_long_have_half_of_the_questions_at_once() {
        let slow = |lookups: &str, resolvers: &str| {
            let settings = [("PORTAL_LOOKUPS", lookups), ("PORTAL_RESOLVERS", resolvers)];
            PortalConfig::read(&mut Settings::new(settings)).unwrap().pace.slow
        };
        assert_eq!([slow("10", "system"), slow("10", "192.0.2.1,192.0.2.2"), slow("1", "system")], [5, 2, 1]);
        assert_eq!([slow("10", "authoritative"), slow("100", "system,authoritative")], [1, 2]);
    }

    #[test]
    fn settings_are_read_and_every_problem_is_reported() {
        let mut settings = Settings::new([
            ("PORTAL_RESOLVERS", "192.0.2.53, authoritative"),
            ("PORTAL_RESOLVER_CA_FILE", "/etc/dns/ca.crt"),
            ("PORTAL_SERVERS", "powerdns=192.0.2.1, pihole home = [2001:db8::1]:5353"),
            ("VERIFY", "false"),
            ("PORTAL_LOOKUPS", "20"),
            ("PORTAL_REFRESH", "1m"),
            ("PORTAL_DISABLE_DNS_CHECK", "true"),
        ]);
        let config = PortalConfig::read(&mut settings).unwrap();
        assert_eq!(config.resolvers.resolvers.len(), 2);
        assert_eq!(config.resolvers.ca.as_deref(), Some(std::path::Path::new("/etc/dns/ca.crt")));
        let servers: Vec<(&str, String)> = config.servers.iter().map(|(who, at)| (&**who, at.to_string())).collect();
        let expected = [("powerdns", "192.0.2.1:53".to_owned()), ("pihole home", "[2001:db8::1]:5353".to_owned())];
        assert_eq!(servers, expected);
        assert_eq!((config.pace.lookups, config.pace.check), (20, false));
        assert_eq!(config.pace.namespace, "signpost");
        let mut elsewhere = Settings::new([("WATCH_NAMESPACE", "shop"), ("POD_NAMESPACE", "signpost")]);
        assert_eq!(PortalConfig::read(&mut elsewhere).unwrap().pace.namespace, "", "no main portal is created");
        let wrong = [("PORTAL_RESOLVERS", "dns.example"), ("PORTAL_LOOKUPS", "0"), ("PORTAL_REFRESH", "1s")];
        let mut settings = Settings::new(wrong);
        assert!(PortalConfig::read(&mut settings).is_none());
        assert_eq!(settings.problems().len(), 3);
        let mut slow = Settings::new([("PORTAL_LOOKUP_TIMEOUT", "20s")]);
        assert_eq!(PortalConfig::read(&mut slow).unwrap().pace.budget, Duration::from_secs(80));
        assert!(PortalConfig::read(&mut Settings::new([("PORTAL_LOOKUP_TIMEOUT", "31s")])).is_none());
        let nothing_to_report = [("VERIFY", "true"), ("PORTAL_DISABLE_DNS_CHECK", "true")];
        let servers = |text| [("PORTAL_SERVERS", text), ("VERIFY", "false")];
        for wrong in [nothing_to_report, servers("powerdns"), servers("=192.0.2.1"), servers("powerdns=system")] {
            let mut settings = Settings::new(wrong);
            assert!(PortalConfig::read(&mut settings).is_none(), "{wrong:?}");
            assert_eq!(settings.problems().len(), 1, "{wrong:?}");
        }
    }
}
