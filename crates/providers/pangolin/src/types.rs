//! What an organisation has, and what is wanted of it.

use std::fmt;

use signpost_dns::Fqdn;
use thiserror::Error;

use crate::path::RoutePath;

/// The id of a domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub String);

macro_rules! numbers {
    ($(#[doc = $doc:literal] $name:ident,)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

numbers! {
    /// The number of a site.
    SiteId,
    /// The number of a resource.
    ResourceId,
    /// The number of a target.
    TargetId,
}

/// How a domain was added to the organisation; it decides which hosts it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainKind {
    /// Delegated: the base domain and everything below.
    Ns,
    /// One host only: the base domain itself.
    Cname,
    /// Configured on the server: the base domain and everything below.
    Wildcard,
    /// A type that this client does not know; treated as [`DomainKind::Ns`].
    Other,
}

/// A domain of the organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its id.
    pub id: DomainId,
    /// The base domain.
    pub base: Fqdn,
    /// How it was added.
    pub kind: DomainKind,
    /// Whether it is verified; only then can it be used.
    pub verified: bool,
}

impl Domain {
    /// Where a host is in this domain; `None` when the domain cannot have it.
    pub fn place(&self, host: &Fqdn) -> Option<Place> {
        if *host == self.base {
            return Some(Place::Apex);
        }
        let below = host.undotted().strip_suffix(self.base.undotted())?.strip_suffix('.')?;
        let possible = self.kind != DomainKind::Cname && !below.is_empty();
        possible.then(|| Place::Subdomain(below.to_owned()))
    }
}

/// Where a host is in its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the base domain itself.
    Apex,
    /// It is below, with these labels in front.
    Subdomain(String),
}

/// What connects a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// A newt agent, which dials targets by name.
    Newt,
    /// A WireGuard peer.
    Wireguard,
    /// The server itself.
    Local,
    /// A type that this client does not know.
    Other,
}

/// A site of the organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its number.
    pub id: SiteId,
    /// Its identifier.
    pub nice_id: String,
    /// Its name.
    pub name: String,
    /// What connects it.
    pub kind: SiteKind,
    /// Whether it is connected; a local site does not report it.
    pub online: Option<bool>,
}

/// A resource as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub id: ResourceId,
    /// Its identifier.
    pub nice_id: String,
    /// Its name.
    pub name: String,
    /// Its host; a resource without one is not served by HTTP.
    pub host: Option<Fqdn>,
    /// Whether it is routed.
    pub enabled: bool,
    /// Whether single sign-on protects it, where the list shows it.
    pub sso: Option<bool>,
    /// Whether it is served by HTTPS, where the list shows it.
    pub ssl: Option<bool>,
    /// Its targets, where the list shows them: without method, path and priority.
    pub targets: Option<Vec<ListedTarget>>,
}

/// A target as the list of resources shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTarget {
    /// Its number.
    pub id: TargetId,
    /// Its site.
    pub site: SiteId,
    /// The address.
    pub ip: String,
    /// The port.
    pub port: u16,
    /// Whether it is used.
    pub enabled: bool,
}

/// An HTTP header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A resource with all its settings.
#[allow(clippy::struct_excessive_bools)] // Columns of the server, each its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its number.
    pub id: ResourceId,
    /// Its identifier.
    pub nice_id: String,
    /// Its name.
    pub name: String,
    /// Its domain.
    pub domain: Option<DomainId>,
    /// Its host.
    pub host: Option<Fqdn>,
    /// Whether it is routed.
    pub enabled: bool,
    /// HTTPS.
    pub ssl: bool,
    /// Single sign-on; `None` when the answer does not show it (after a create), or a shared policy decides.
    pub sso: Option<bool>,
    /// Nobody may enter.
    pub block_access: bool,
    /// Sticky sessions.
    pub sticky_session: bool,
    /// Server name towards the target.
    pub tls_server_name: Option<String>,
    /// Host header towards the target.
    pub set_host_header: Option<String>,
    /// Headers towards the target.
    pub headers: Vec<Header>,
    /// The shared policy; it is sent again with every update, since the server deletes protection without it.
    pub policy: Option<i64>,
}

impl Resource {
    /// A resource that was just created: it has a random identifier, and is protected by single sign-on.
    pub fn created(id: ResourceId, new: &NewResource) -> Self {
        Self {
            id,
            nice_id: format!("random-{id}"),
            name: new.name.clone(),
            domain: Some(new.domain.clone()),
            host: Some(new.host.clone()),
            enabled: true,
            ssl: true,
            sso: Some(true),
            block_access: false,
            sticky_session: false,
            tls_server_name: None,
            set_host_header: None,
            headers: Vec::new(),
            policy: None,
        }
    }

    /// Whether it has nothing that only newer servers have.
    pub(crate) fn is_plain(&self) -> bool {
        !self.block_access
            && !self.sticky_session
            && self.tls_server_name.is_none()
            && self.set_host_header.is_none()
            && self.headers.is_empty()
    }
}

/// An identifier that can be set: lower-case letters, digits and hyphens. The server compares case, its search does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NiceId(String);

/// A text that cannot be an identifier.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not an identifier; use lower-case letters, digits and hyphens, at most 255")]
pub struct NiceIdError(String);

impl NiceId {
    /// Checks a text.
    pub fn parse(text: &str) -> Result<Self, NiceIdError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=255).contains(&text.len()) && text.bytes().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(NiceIdError(text.chars().take(80).collect()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A resource to be created. Everything else is set by the update that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewResource {
    /// Its name; how a resource is recognised whose creator stopped before it could be marked.
    pub name: String,
    /// Its domain, from the organisation's list.
    pub domain: DomainId,
    /// Its host.
    pub host: Fqdn,
}

/// The wanted settings of a resource, all of them.
#[allow(clippy::struct_excessive_bools)] // Columns of the server, each its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSettings {
    /// Its identifier: the mark of ownership.
    pub nice_id: NiceId,
    /// Its name.
    pub name: String,
    /// Its domain, from the organisation's list.
    pub domain: DomainId,
    /// Its host.
    pub host: Fqdn,
    /// Whether it is routed.
    pub enabled: bool,
    /// HTTPS.
    pub ssl: bool,
    /// Single sign-on.
    pub sso: bool,
    /// Nobody may enter.
    pub block_access: bool,
    /// Sticky sessions.
    pub sticky_session: bool,
    /// Server name towards the target.
    pub tls_server_name: Option<String>,
    /// Host header towards the target.
    pub set_host_header: Option<String>,
    /// Headers towards the target.
    pub headers: Vec<Header>,
}

impl ResourceSettings {
    /// Whether a resource has these settings. The host is compared, never the subdomain: the server keeps its case.
    pub fn match_resource(&self, resource: &Resource) -> bool {
        let Self {
            nice_id,
            name,
            domain,
            host,
            enabled,
            ssl,
            sso,
            block_access,
            sticky_session,
            tls_server_name,
            set_host_header,
            headers,
        } = self;
        let plain = (resource.enabled, resource.ssl, resource.block_access, resource.sticky_session);
        resource.nice_id == nice_id.as_str()
            && resource.name == *name
            && resource.domain.as_ref() == Some(domain)
            && resource.host.as_ref() == Some(host)
            && plain == (*enabled, *ssl, *block_access, *sticky_session)
            && resource.sso == Some(*sso)
            && resource.tls_server_name == *tls_server_name
            && resource.set_host_header == *set_host_header
            && resource.headers == *headers
    }
}

/// A health check of a target. The server starts a check only with all of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The host to ask; the server requires it from 1.20 on.
    pub hostname: String,
    /// The port to ask.
    pub port: u16,
    /// The path to ask.
    pub path: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The HTTP method.
    pub method: String,
    /// Seconds between two checks.
    pub interval: u32,
    /// Seconds between two checks while it fails.
    pub unhealthy_interval: u32,
    /// Seconds until a check has failed.
    pub timeout: u32,
    /// The expected status; any success without one.
    pub status: Option<u16>,
    /// Whether redirects are followed.
    pub follow_redirects: bool,
    /// Headers of the check.
    pub headers: Vec<Header>,
    /// Server name of the check.
    pub tls_server_name: Option<String>,
}

/// The wanted settings of a target, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSettings {
    /// Its site, from the organisation's list.
    pub site: SiteId,
    /// A host name or IPv4 address that the site can reach.
    pub host: String,
    /// The port.
    pub port: u16,
    /// `http`, `https` or `h2c`.
    pub method: String,
    /// Whether it is used.
    pub enabled: bool,
    /// The path; `None` for the whole host.
    pub path: Option<RoutePath>,
    /// 1 to 1000; 100 is the server's own choice.
    pub priority: u16,
    /// The health check.
    pub health: Option<HealthCheck>,
}

/// A target with all its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its number.
    pub id: TargetId,
    /// The address.
    pub host: String,
    /// Its site.
    pub site: SiteId,
    /// The port.
    pub port: u16,
    /// The method, where it has one.
    pub method: Option<String>,
    /// Whether it is used.
    pub enabled: bool,
    /// The path as stored, whatever its form.
    pub path: Option<String>,
    /// How it matches.
    pub matching: Option<String>,
    /// What the path is rewritten to.
    pub rewrite: Option<String>,
    /// The priority.
    pub priority: Option<u16>,
    /// The health check, while it is on.
    pub health: Option<HealthCheck>,
    /// Whether the server leaves it out because of its last check.
    pub unhealthy: bool,
}

impl Target {
    /// Whether it has nothing that only newer servers have: a path, a priority, or a check.
    pub(crate) fn is_plain(&self) -> bool {
        self.path.is_none()
            && self.matching.is_none()
            && self.rewrite.is_none()
            && self.priority.unwrap_or(100) == 100
            && self.health.is_none()
            && !self.unhealthy
    }
}

impl TargetSettings {
    /// Whether a target has these settings. One that a check has frozen as unhealthy, and that should have no check, has not.
    pub fn match_target(&self, target: &Target) -> bool {
        let Self { site, host, port, method, enabled, path, priority, health } = self;
        let routed = path.as_ref().map(|path| (path.text(), path.matching().as_str()));
        let has = (target.path.as_deref().unwrap_or_default(), target.matching.as_deref().unwrap_or_default());
        target.site == *site
            && target.host.eq_ignore_ascii_case(host)
            && target.port == *port
            && target.method.as_deref() == Some(method)
            && target.enabled == *enabled
            && has == routed.unwrap_or_default()
            && target.rewrite.as_deref().unwrap_or_default().is_empty()
            && target.priority.unwrap_or(100) == *priority
            && target.health == *health
            && (health.is_some() || !target.unhealthy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_lower_case_so_that_search_and_comparison_agree() {
        assert_eq!(NiceId::parse("sp-home-0a1b").unwrap().as_str(), "sp-home-0a1b");
        for text in ["", "Mine", "a_b", "a.b", "a b", &"x".repeat(256)] {
            assert!(NiceId::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_domain_has_its_base_and_what_is_below_unless_it_is_one_host() {
        let name = |text: &str| Fqdn::parse(text).unwrap();
        let domain = |kind| Domain { id: DomainId("d".into()), base: name("apps.example.com"), kind, verified: true };
        for kind in [DomainKind::Ns, DomainKind::Wildcard, DomainKind::Other] {
            assert_eq!(domain(kind).place(&name("apps.example.com")), Some(Place::Apex));
            assert_eq!(domain(kind).place(&name("a.b.apps.example.com")), Some(Place::Subdomain("a.b".to_owned())));
            assert_eq!(domain(kind).place(&name("xapps.example.com")), None);
        }
        assert_eq!(domain(DomainKind::Cname).place(&name("apps.example.com")), Some(Place::Apex));
        assert_eq!(domain(DomainKind::Cname).place(&name("a.apps.example.com")), None);
    }
}
