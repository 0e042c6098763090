//! The rows of the server: organisations, keys, domains, sites, resources and targets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use signpost_sandbox::edge::{Access, EdgeTarget, Exposure, PathMatch};

use super::{Options, Version};

/// An API key.
#[derive(Clone, Debug)]
pub struct Key {
    /// The part before the dot.
    pub id: String,
    /// The part after it.
    pub secret: String,
    /// Its organisations; a root key reaches all.
    pub orgs: Vec<String>,
    /// Whether it is a root key. Such a key needs its actions all the same.
    pub root: bool,
    /// What it may do.
    pub actions: BTreeSet<String>,
}

/// A domain.
#[derive(Clone, Debug)]
pub struct DomainRow {
    /// Its id.
    pub id: String,
    /// The base domain.
    pub base: String,
    /// `ns`, `cname` or `wildcard`.
    pub kind: &'static str,
    /// Whether it is verified.
    pub verified: bool,
    /// The organisations it is linked to.
    pub orgs: Vec<String>,
}

/// A site.
#[derive(Clone, Debug)]
pub struct SiteRow {
    /// Its number.
    pub id: i64,
    /// Its identifier.
    pub nice_id: String,
    /// Its organisation.
    pub org: String,
    /// `newt`, `local` or `wireguard`.
    pub kind: &'static str,
    /// Whether it is online.
    pub online: bool,
    /// First three numbers of the /24 of a wireguard site.
    pub subnet: Option<&'static str>,
}

/// A resource.
#[allow(clippy::struct_excessive_bools)] // Columns of the real table.
#[derive(Clone, Debug)]
pub struct ResourceRow {
    /// Its number.
    pub id: i64,
    /// Its organisation.
    pub org: String,
    /// Its identifier.
    pub nice_id: String,
    /// Its name.
    pub name: String,
    /// `http`, `ssh` or `inference`.
    pub mode: String,
    /// Its domain.
    pub domain: String,
    /// The subdomain as it was sent, with its case.
    pub subdomain: Option<String>,
    /// The host.
    pub full_domain: String,
    /// HTTPS.
    pub ssl: bool,
    /// Whether it is routed.
    pub enabled: bool,
    /// Its own value for single sign-on; none while only a shared policy decides.
    pub sso: Option<bool>,
    /// Nobody may enter.
    pub block_access: bool,
    /// Sticky sessions.
    pub sticky_session: bool,
    /// The rules of access are applied.
    pub apply_rules: bool,
    /// The whitelist of addresses is applied.
    pub whitelist: bool,
    /// Server name towards the target.
    pub tls_server_name: Option<String>,
    /// Host header towards the target.
    pub set_host_header: Option<String>,
    /// Where to go after the login.
    pub post_auth_path: Option<String>,
    /// Headers towards the target, as JSON.
    pub headers: Option<Value>,
    /// The shared policy.
    pub policy: Option<i64>,
    /// Whether a password is set on the resource itself.
    pub password: bool,
}

impl ResourceRow {
    /// Who may enter. Without a value of its own a shared policy decides about single sign-on, which is on in the server's usual one.
    pub fn access(&self) -> Access {
        if self.block_access {
            Access::Blocked
        } else if self.sso.unwrap_or(true) || self.password || self.whitelist {
            Access::Login
        } else {
            Access::Open
        }
    }
}

/// A target, with the fields as they were sent.
#[derive(Clone, Debug)]
pub struct TargetRow {
    /// Its number.
    pub id: i64,
    /// Its resource.
    pub resource: i64,
    /// Its site.
    pub site: i64,
    /// Where newt listens for it.
    pub internal_port: Option<i64>,
    /// `unknown`, `healthy` or `unhealthy`.
    pub health: &'static str,
    /// The other columns, by their name in the API.
    pub fields: BTreeMap<String, Value>,
}

impl TargetRow {
    /// One column.
    pub fn field(&self, name: &str) -> &Value {
        self.fields.get(name).unwrap_or(&Value::Null)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.field(name).as_str().map(str::to_owned)
    }
}

/// Everything that the server stores.
#[derive(Debug)]
pub struct State {
    pub(super) options: Options,
    pub(super) keys: Vec<Key>,
    /// The domains.
    pub domains: Vec<DomainRow>,
    /// The sites.
    pub sites: Vec<SiteRow>,
    /// The resources, by number.
    pub resources: BTreeMap<i64, ResourceRow>,
    /// The targets, by number.
    pub targets: BTreeMap<i64, TargetRow>,
    pub(super) next: i64,
    pub(super) next_port: i64,
    pub(super) requests: Vec<String>,
}

impl State {
    pub(super) fn new(options: Options) -> Self {
        let domain = |id: &str, base: &str, kind, verified, org: &str| DomainRow {
            id: id.to_owned(),
            base: base.to_owned(),
            kind,
            verified,
            orgs: vec![org.to_owned()],
        };
        let site = |id, nice_id: &str, org: &str, kind, online| SiteRow {
            id,
            nice_id: nice_id.to_owned(),
            org: org.to_owned(),
            kind,
            online,
            subnet: (kind == "wireguard").then_some("10.9.0"),
        };
        Self {
            options,
            keys: super::auth::keys(),
            domains: vec![
                domain("d-wild", "wild.test", "wildcard", true, super::ORG),
                domain("d-ns", "ns.test", "ns", true, super::ORG),
                domain("d-cname", "one.cname.test", "cname", true, super::ORG),
                domain("d-open", "open.test", "ns", false, super::ORG),
                domain("d-other", "other.test", "ns", true, super::OTHER_ORG),
            ],
            sites: vec![
                site(1, "home", super::ORG, "local", true),
                site(2, "cluster", super::ORG, "newt", true),
                site(3, "guard", super::ORG, "wireguard", true),
                site(4, "theirs", super::OTHER_ORG, "newt", true),
            ],
            resources: BTreeMap::new(),
            targets: BTreeMap::new(),
            next: 100,
            next_port: 40_000,
            requests: Vec::new(),
        }
    }

    pub(super) fn version(&self) -> Version {
        self.options.version
    }

    pub(super) fn number(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    pub(super) fn port(&mut self) -> i64 {
        self.next_port += 1;
        self.next_port
    }

    pub(super) fn site(&self, id: i64) -> Option<&SiteRow> {
        self.sites.iter().find(|site| site.id == id)
    }

    /// The resources as the edge gets them; each target is named `ip:port`.
    pub(super) fn exposures(&self) -> Vec<Exposure<String>> {
        let of = |resource: &ResourceRow| Exposure {
            host: resource.full_domain.to_ascii_lowercase(),
            enabled: resource.enabled,
            ssl: resource.ssl,
            access: resource.access(),
            targets: self
                .targets
                .values()
                .filter(|target| target.resource == resource.id)
                .map(|target| self.edge_target(target))
                .collect(),
        };
        self.resources.values().filter(|resource| resource.mode == "http").map(of).collect()
    }

    fn edge_target(&self, target: &TargetRow) -> EdgeTarget<String> {
        let site = self.site(target.site);
        let ip = target.text("ip").unwrap_or_default();
        // The address is put into a URL without brackets, unless newt dials it.
        let dialled = site.is_some_and(|site| site.kind == "newt") || !ip.contains(':');
        EdgeTarget {
            enabled: target.field("enabled") != &json!(false),
            online: site.is_some_and(|site| site.online),
            usable: target.text("method").is_some() && !ip.is_empty() && dialled && target.health != "unhealthy",
            path: target.text("path"),
            matching: match target.text("pathMatchType").as_deref() {
                Some("exact") => Some(PathMatch::Exact),
                Some("prefix") => Some(PathMatch::Prefix),
                Some("regex") => Some(PathMatch::Regex),
                _ => None,
            },
            rewrite: target.text("rewritePath").map(|path| format!("{path} {}", target.field("rewritePathType"))),
            priority: target.field("priority").as_i64().and_then(|number| u16::try_from(number).ok()).unwrap_or(100),
            name: format!("{ip}:{}", target.field("port")),
        }
    }
}
