//! From a host to (domain, subdomain). The base domains that the organisation has decide; the public suffix list is for those who cannot read
//! them.

use std::net::{IpAddr, Ipv6Addr};

use signpost_dns::{Fqdn, NameError};
use thiserror::Error;

/// Which hosts are accepted at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostPolicy {
    /// `localhost` and names below it.
    pub localhost: bool,
    /// Wildcards, where the server allows them.
    pub wildcards: bool,
    /// Names under a suffix that nobody can register, such as `internal`, without an organisation that has them.
    pub unlisted: bool,
}

/// Why a host cannot be exposed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// Nothing was given.
    #[error("the rule has no host; a host is needed to expose it")]
    Empty,
    /// A wildcard.
    #[error(
        "wildcard hosts are not supported ({0}); name each host, or set PIC_WILDCARD_HOSTS=true if your Pangolin has a licence for them"
    )]
    Wildcard(String),
    /// An address.
    #[error("{0} is an address, not a host name; use a name")]
    Address(String),
    /// The machine itself.
    #[error("{0} is a name of the local machine; use a public name, or set PIC_ALLOW_LOCALHOST=true")]
    Localhost(String),
    /// One label only.
    #[error("{0} has one label only; use a name with a domain")]
    SingleLabel(String),
    /// Not a host name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A character that belongs into a URL, not into a name.
    #[error("{host:?} holds {character:?}, which is not part of a host name; remove it")]
    NotAName {
        /// The text.
        host: String,
        /// The character.
        character: char,
    },
    /// A public suffix.
    #[error("{0} is a public suffix, under which everybody can register names; use a name below it")]
    PublicSuffix(String),
    /// An unlisted suffix.
    #[error(
        "{0} is under a suffix that is not public, and no domain of the organisation has it; add the domain to Pangolin"
    )]
    UnknownSuffix(String),
    /// No domain of the organisation has it.
    #[error("no verified domain of the organisation has {host}; its domains are: {domains}")]
    NoDomain {
        /// The host.
        host: String,
        /// The verified base domains.
        domains: String,
    },
    /// A domain has it, but is not verified.
    #[error("{host} is in the domain {domain}, which is not verified; verify it in Pangolin's dashboard")]
    NotVerified {
        /// The host.
        host: String,
        /// The base domain.
        domain: String,
    },
    /// The annotations override the host of several rules.
    #[error("domain-name and subdomain override one host, and this Ingress has {0}; use one Ingress for each host")]
    OverrideAmbiguous(usize),
}

/// How a base domain can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The base domain and everything below it.
    Tree,
    /// The base domain alone.
    One,
}

/// A base domain of the organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseDomain {
    /// Its name.
    pub name: Fqdn,
    /// Its id, where one is known.
    pub id: Option<String>,
    /// How it can be used.
    pub shape: Shape,
    /// Whether it is verified.
    pub verified: bool,
}

/// The annotations about the only host of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `domain-name`.
    pub domain: Option<Fqdn>,
    /// `subdomain`; an empty one, written `@`, is the apex.
    pub subdomain: Option<String>,
}

impl Overrides {
    /// Whether nothing is overridden.
    pub fn is_empty(&self) -> bool {
        self.domain.is_none() && self.subdomain.is_none()
    }
}

/// The source of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSource {
    /// Both annotations.
    Annotations,
    /// A base domain of the organisation.
    Organization,
    /// The public suffix list.
    PublicSuffix,
}

/// A host in its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The host that is exposed: that of the rule, unless annotations override it.
    pub host: Fqdn,
    /// The domain.
    pub domain: Fqdn,
    /// The id of the domain, where one is known.
    pub domain_id: Option<String>,
    /// The labels in front of the domain; empty for the domain itself.
    pub subdomain: String,
    /// The source.
    pub source: SplitSource,
}

/// Brings a host into its canonical form, or refuses it. Total.
pub fn normalise(text: &str, policy: HostPolicy) -> Result<Fqdn, HostError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<Ipv6Addr>().is_ok() {
        return Err(HostError::Address(shorten(text)));
    }
    if let Some(character) = text.chars().find(|c| matches!(c, ':' | '/' | '@' | '[' | ']' | '\\') || c.is_whitespace())
    {
        return Err(HostError::NotAName { host: shorten(text), character });
    }
    let (wildcard, rest) = match text.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if (wildcard && !policy.wildcards) || rest.contains('*') {
        return Err(HostError::Wildcard(shorten(text)));
    }
    let name = match Fqdn::parse_hostname(rest) {
        Ok(name) => name,
        Err(_) if rest.trim_end_matches('.').parse::<IpAddr>().is_ok() => {
            return Err(HostError::Address(shorten(text)));
        }
        Err(error) => return Err(error.into()),
    };
    let last = name.labels().next_back().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HostError::Address(shorten(text)));
    }
    let local = last == "localhost" || name.undotted() == "localhost.localdomain";
    if local && !policy.localhost {
        return Err(HostError::Localhost(name.undotted().to_owned()));
    }
    if name.depth() < 2 && !local {
        return Err(HostError::SingleLabel(name.undotted().to_owned()));
    }
    if wildcard { Ok(name.prepend("*")?) } else { Ok(name) }
}

/// Splits a normalised host. `domains` are those of the organisation; `None` when they cannot be read.
pub fn split(
    host: &Fqdn,
    overrides: &Overrides,
    domains: Option<&[BaseDomain]>,
    policy: HostPolicy,
) -> Result<Split, HostError> {
    let host = match overrides {
        Overrides { domain: Some(domain), subdomain: Some(subdomain) } => {
            let host = join(subdomain, domain)?;
            return overridden(host, domain, subdomain, domains);
        }
        Overrides { domain: Some(domain), subdomain: None } => {
            // A host that is below the domain keeps its labels; another one keeps its own subdomain.
            let subdomain = match below(host, domain) {
                Some(subdomain) => subdomain,
                None => public_suffix(host, policy)?.subdomain,
            };
            return overridden(join(&subdomain, domain)?, domain, &subdomain, domains);
        }
        Overrides { domain: None, subdomain: Some(subdomain) } => {
            let own = split(host, &Overrides::default(), domains, policy)?;
            join(subdomain, &own.domain)?
        }
        Overrides { domain: None, subdomain: None } => host.clone(),
    };
    match domains {
        Some(domains) => organization(&host, domains),
        None => public_suffix(&host, policy),
    }
}

fn overridden(host: Fqdn, domain: &Fqdn, subdomain: &str, domains: Option<&[BaseDomain]>) -> Result<Split, HostError> {
    let known = domains.map(|domains| domains.iter().find(|known| known.name == *domain && known.verified));
    let domain_id = match known {
        // The organisation is known, and does not have the domain.
        Some(None) => return Err(no_domain(&host, domains.unwrap_or_default())),
        // Of a domain that is one host, Pangolin drops the subdomain.
        Some(Some(known)) if known.shape == Shape::One && !subdomain.is_empty() => {
            return Err(no_domain(&host, domains.unwrap_or_default()));
        }
        Some(Some(known)) => known.id.clone(),
        None => None,
    };
    let (domain, subdomain) = (domain.clone(), subdomain.to_owned());
    Ok(Split { host, domain, domain_id, subdomain, source: SplitSource::Annotations })
}

fn join(subdomain: &str, domain: &Fqdn) -> Result<Fqdn, HostError> {
    if subdomain.is_empty() { Ok(domain.clone()) } else { Ok(domain.prepend(subdomain)?) }
}

/// The labels of a host in front of a domain; empty for the domain itself.
fn below(host: &Fqdn, domain: &Fqdn) -> Option<String> {
    if host == domain {
        return Some(String::new());
    }
    let labels = host.undotted().strip_suffix(domain.undotted())?.strip_suffix('.')?;
    (!labels.is_empty()).then(|| labels.to_owned())
}

/// The longest verified base domain that can have the host.
fn organization(host: &Fqdn, domains: &[BaseDomain]) -> Result<Split, HostError> {
    let fits = |domain: &&BaseDomain| match domain.shape {
        Shape::Tree => host.is_at_or_below(&domain.name),
        Shape::One => *host == domain.name,
    };
    let longest = |verified| {
        let candidates = domains.iter().filter(fits).filter(move |domain| domain.verified == verified);
        candidates.max_by_key(|domain| (domain.name.depth(), domain.shape == Shape::One))
    };
    match (longest(true), longest(false)) {
        (Some(domain), _) => Ok(Split {
            host: host.clone(),
            domain: domain.name.clone(),
            domain_id: domain.id.clone(),
            subdomain: below(host, &domain.name).unwrap_or_default(),
            source: SplitSource::Organization,
        }),
        (None, Some(domain)) => {
            Err(HostError::NotVerified { host: host.undotted().to_owned(), domain: domain.name.undotted().to_owned() })
        }
        (None, None) => Err(no_domain(host, domains)),
    }
}

fn no_domain(host: &Fqdn, domains: &[BaseDomain]) -> HostError {
    let mut names: Vec<&str> =
        domains.iter().filter(|domain| domain.verified).map(|domain| domain.name.undotted()).collect();
    names.sort_unstable();
    let shown = if names.is_empty() { "none".to_owned() } else { shorten(&names.join(", ")) };
    HostError::NoDomain { host: host.undotted().to_owned(), domains: shown }
}

fn public_suffix(host: &Fqdn, policy: HostPolicy) -> Result<Split, HostError> {
    let text = || host.undotted().to_owned();
    let suffixed = host.public_suffix_split().ok_or_else(|| HostError::PublicSuffix(text()))?;
    let local = suffixed.suffix.undotted() == "localhost";
    if !(suffixed.listed || policy.unlisted || local && policy.localhost) {
        return Err(HostError::UnknownSuffix(text()));
    }
    if suffixed.registrable.is_wildcard() {
        return Err(HostError::PublicSuffix(text()));
    }
    Ok(Split {
        host: host.clone(),
        subdomain: below(host, &suffixed.registrable).unwrap_or_default(),
        domain: suffixed.registrable,
        domain_id: None,
        source: SplitSource::PublicSuffix,
    })
}

fn shorten(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}
