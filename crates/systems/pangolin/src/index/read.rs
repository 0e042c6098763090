//! Objects as this system needs them: small, parsed, without anything that changes at every heartbeat. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use signpost_apis::ingress::{Ingress, IngressBackend};
use signpost_apis::pangolin::{HttpConfig, PangolinOrganization, PangolinResource, PangolinTunnel};
use signpost_apis::service::Service;
use signpost_dns::Fqdn;
use signpost_engine::{Identity, ObjectId, wrote_annotation};
use signpost_exposure::{
    AnnotationProblem as Problem, Annotations, Backend, BaseDomain, Class, Overrides, PathRule, PathType, Shape,
    normalise, parse_annotations, split,
};

use crate::settings::{MultiHost, Policy, TargetMode};

/// The id of an Ingress.
pub type IngressId = Arc<ObjectId>;

/// The label with the UID of the Ingress that a PangolinResource is for.
pub const UID_LABEL: &str = "pic.ingress.k8s.io/uid";
/// The label with its name, cut where it is too long.
pub const NAME_LABEL: &str = "pic.ingress.k8s.io/name";
/// The label with its namespace.
pub const NAMESPACE_LABEL: &str = "pic.ingress.k8s.io/namespace";
/// The annotation with the exposed host.
pub const HOST_ANNOTATION: &str = "pic.ingress.k8s.io/host";
/// The annotation on an Ingress with a digest of what Pangolin has for it, written in direct mode.
pub const APPLIED_ANNOTATION: &str = "pic.ingress.k8s.io/applied";

/// The annotation on a PangolinResource with the class of its Ingress, where only the controller of the class makes it ours.
pub(crate) const CLASS_ANNOTATION: &str = "pic.ingress.k8s.io/class";

/// Hosts of one Ingress beyond this are left out, with a Warning.
pub(crate) const MOST_HOSTS: usize = 1000;

/// The backend of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackendRef {
    /// A Service of the namespace.
    Service(Backend),
    /// Something else, as text.
    Other(String),
}

/// The paths of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostRule {
    /// The host as it is written; empty for a rule without one.
    pub(crate) host: String,
    /// Its paths, of all rules for it.
    pub(crate) paths: Vec<PathRule<BackendRef>>,
}

/// One Ingress, as far as this system is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimant {
    /// Which, in which incarnation.
    pub(crate) identity: Identity,
    /// The name of its class.
    pub(crate) class_name: Option<String>,
    /// The meaning of its class.
    pub(crate) class: Class,
    /// Its annotations.
    pub(crate) annotations: Annotations,
    /// Its rules, one for each host, in order.
    pub(crate) rules: Vec<HostRule>,
    /// How many hosts are left out, because there are too many.
    pub(crate) left_out: usize,
    /// The default backend.
    pub(crate) default: Option<BackendRef>,
    /// The digest that was noted on it.
    pub(crate) applied: Option<Box<str>>,
    /// Whether somebody else wrote that digest: a manifest of an older state, or a backup.
    pub(crate) restored: bool,
    /// The class that was noted on it, where only the controller of the class makes it ours.
    pub(crate) noted_class: Option<Box<str>>,
    /// Whether the annotation `enabled` cannot be read.
    pub(crate) misspelt: bool,
}

impl Claimant {
    /// The namespace of the Ingress.
    pub(crate) fn namespace(&self) -> &str {
        self.identity.id.namespace.as_deref().unwrap_or_default()
    }

    /// Whether something is to be exposed for it.
    pub(crate) fn is_active(&self) -> bool {
        !self.identity.is_deleting() && matches!(self.class, Class::Default | Class::Alias(_) | Class::EmptyAlias)
    }

    /// Whether it asks for the same, whatever else was written to it.
    pub(crate) fn asks_the_same(&self, other: &Self) -> bool {
        (&self.identity.uid, self.identity.is_deleting()) == (&other.identity.uid, other.identity.is_deleting())
            && (&self.class, &self.annotations) == (&other.class, &other.annotations)
            && (&self.rules, self.left_out, &self.default) == (&other.rules, other.left_out, &other.default)
    }

    /// The rules that are exposed, and whether others are left out.
    pub(crate) fn exposed(&self, multi: MultiHost) -> (&[HostRule], bool) {
        let named = self.rules.iter().filter(|rule| !rule.host.is_empty()).count();
        match multi {
            MultiHost::First if named > 1 => {
                let first = self.rules.iter().position(|rule| !rule.host.is_empty()).unwrap_or_default();
                (&self.rules[first..=first], true)
            }
            MultiHost::First | MultiHost::All => (&self.rules, false),
        }
    }

    /// The Services that it names.
    pub(crate) fn services(&self) -> impl Iterator<Item = &str> {
        let backends =
            self.rules.iter().flat_map(|rule| rule.paths.iter().map(|path| &path.backend)).chain(&self.default);
        backends.filter_map(|backend| match backend {
            BackendRef::Service(backend) => Some(backend.service.as_str()),
            BackendRef::Other(_) => None,
        })
    }

    /// The hosts that it claims: what will be exposed, with the domains of the organisation where they are known.
    pub(crate) fn claims(&self, policy: &Policy, domains: Option<&[BaseDomain]>) -> Vec<Fqdn> {
        if !self.is_active() || self.class == Class::EmptyAlias {
            return Vec::new();
        }
        let mut all = signpost_exposure::HostPolicy { unlisted: true, ..policy.hosts };
        all.localhost = true;
        let (rules, _) = self.exposed(policy.multi_host);
        let one = rules.iter().filter(|rule| !rule.host.is_empty()).count() == 1;
        let claimed = rules.iter().filter_map(|rule| {
            let host = normalise(&rule.host, policy.hosts).ok()?;
            let none = Overrides::default();
            let overrides = if one { &self.annotations.options.overrides } else { &none };
            let found = split(&host, overrides, domains, policy.hosts).ok().filter(|_| domains.is_some());
            let found = found.or_else(|| split(&host, overrides, None, all).ok());
            Some(found.map_or(host, |split| split.host))
        });
        let mut claimed: Vec<Fqdn> = claimed.collect();
        claimed.sort();
        claimed.dedup();
        claimed
    }
}

/// Reads an Ingress. `decide` returns the meaning of its class; of a misspelt `enabled` it gets whether the Ingress has a digest.
pub(crate) fn claimant(
    ingress: &Ingress,
    prefix: Option<&str>,
    decide: impl FnOnce(Option<&str>, Option<bool>, Option<&str>, Option<bool>) -> Class,
) -> Claimant {
    let (applied, noted_class) = match ingress.annotation(APPLIED_ANNOTATION) {
        Some(text) => match text.split_once('@') {
            Some((digest, class)) => (Some(digest.into()), Some(class.into())),
            None => (Some(text.into()), None),
        },
        None => (None, None),
    };
    let pairs = ingress.metadata.annotations.iter().flatten();
    let annotations = parse_annotations(pairs.map(|(key, value)| (key.as_str(), value.as_str())), prefix);
    let class_name = ingress.class().map(str::to_owned);
    let is_enabled = |problem: &Problem| matches!(problem, Problem::Invalid { name, .. } if name.ends_with("/enabled"));
    let misspelt = annotations.problems.iter().any(is_enabled);
    let exposed = misspelt.then_some(applied.is_some());
    let class = decide(class_name.as_deref(), annotations.options.enabled, noted_class.as_deref(), exposed);
    let mut rules: Vec<HostRule> = Vec::new();
    let mut left_out = BTreeSet::new();
    for rule in &ingress.spec.rules {
        let host = rule.host.clone().unwrap_or_default();
        let paths = rule.http.iter().flat_map(|http| &http.paths).map(|path| PathRule {
            path: path.path.clone().unwrap_or_default(),
            kind: match path.path_type.as_deref() {
                Some("Exact") => PathType::Exact,
                Some("Prefix") => PathType::Prefix,
                _ => PathType::ImplementationSpecific,
            },
            backend: backend(&path.backend),
        });
        match rules.iter().position(|known| known.host == host) {
            Some(at) => rules[at].paths.extend(paths),
            None if rules.len() < MOST_HOSTS => rules.push(HostRule { host, paths: paths.collect() }),
            None => drop(left_out.insert(host)),
        }
    }
    Claimant {
        identity: Identity::of(ingress),
        class_name,
        class,
        annotations,
        rules,
        left_out: left_out.len(),
        default: ingress.spec.default_backend.as_ref().map(backend),
        restored: applied.is_some() && !wrote_annotation(&ingress.metadata, APPLIED_ANNOTATION),
        applied,
        noted_class,
        misspelt,
    }
}

fn backend(backend: &IngressBackend) -> BackendRef {
    let Some(service) = &backend.service else {
        let other = backend.resource.as_ref().map(|other| format!("{} {}", other.kind, other.name));
        return BackendRef::Other(other.unwrap_or_else(|| "nothing".to_owned()));
    };
    let port = match (&service.port.name, service.port.number.and_then(|number| u16::try_from(number).ok())) {
        (_, Some(number)) if number > 0 => Ok(number),
        (name, _) => Err(name.clone().unwrap_or_default()),
    };
    BackendRef::Service(Backend { service: service.name.clone(), port })
}

/// The ports of a Service, and how a tunnel reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceFacts {
    /// Its ports.
    pub(crate) ports: Box<[PortFacts]>,
    /// Whether it is an `ExternalName`, which needs no ports of its own.
    pub(crate) external: bool,
    /// How a tunnel reaches it.
    pub(crate) reach: Reach,
}

/// How a tunnel reaches a Service. Without an address in it, a change of an address is not a change here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// By its name inside the cluster.
    Name,
    /// At this address, or by this name outside the cluster.
    At(Box<str>),
    /// Not at all, for this reason.
    Not(&'static str),
}

impl Reach {
    fn of(service: &Service, mode: TargetMode) -> Self {
        let Service { spec, status, .. } = service;
        let external = spec.external_name.as_deref().filter(|_| is_external(service));
        match (mode, external) {
            (TargetMode::Service, _) => Self::Name,
            (TargetMode::ClusterIp | TargetMode::LoadBalancer, Some(name)) => {
                Self::At(name.trim_end_matches('.').into())
            }
            (TargetMode::ClusterIp, None) => {
                let given = spec.cluster_ips.iter().chain(&spec.cluster_ip);
                let why = match spec.cluster_ip.as_deref() {
                    Some("None") => "is headless and has no cluster IP",
                    _ => "has no cluster IP yet",
                };
                address(given.map(String::as_str)).map_or(Self::Not(why), Self::At)
            }
            (TargetMode::LoadBalancer, None) => {
                let why = if service.is_load_balancer() {
                    "has no address of a load balancer yet"
                } else {
                    "is not of type LoadBalancer and has no address outside the cluster"
                };
                let given = || status.load_balancer.ingress.iter().filter(|_| service.is_load_balancer());
                let name = || given().find_map(|one| one.hostname.as_deref().filter(|name| !name.is_empty()));
                let found = address(given().filter_map(|one| one.ip.as_deref())).or_else(|| Some(name()?.into()));
                found.map_or(Self::Not(why), Self::At)
            }
        }
    }
}

/// The address to use: an IPv4 address before an IPv6 address, which not every kind of site can reach.
fn address<'a>(given: impl Iterator<Item = &'a str>) -> Option<Box<str>> {
    let known = given.filter_map(|text| text.parse::<IpAddr>().ok());
    known.min_by_key(IpAddr::is_ipv6).map(|address| address.to_string().into())
}

fn is_external(service: &Service) -> bool {
    service.spec.type_.as_deref() == Some("ExternalName")
}

/// One TCP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortFacts {
    /// Its number.
    pub(crate) number: u16,
    /// Its name.
    pub(crate) name: Option<Box<str>>,
    /// The protocol.
    pub(crate) protocol: Option<Box<str>>,
}

pub(crate) fn service(service: &Service, mode: TargetMode) -> ServiceFacts {
    let tcp = service.spec.ports.iter().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let ports = tcp.filter_map(|port| {
        Some(PortFacts {
            number: u16::try_from(port.port).ok().filter(|number| *number > 0)?,
            name: port.name.as_deref().map(Into::into),
            protocol: port.app_protocol.as_deref().map(Into::into),
        })
    });
    let external = is_external(service) && service.spec.external_name.is_some();
    ServiceFacts { ports: ports.collect(), external, reach: Reach::of(service, mode) }
}

/// The relevant fields of a tunnel, without its heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TunnelFacts {
    /// Whether it is ready.
    pub(crate) ready: bool,
    /// Its organisation, in the same namespace.
    pub(crate) organization: String,
}

pub(crate) fn tunnel(tunnel: &PangolinTunnel) -> TunnelFacts {
    TunnelFacts {
        ready: tunnel.metadata.deletion_timestamp.is_none() && tunnel.status.status.as_deref() == Some("Ready"),
        organization: tunnel.spec.organization_ref.name.clone(),
    }
}

/// The base domains of an organisation.
pub(crate) fn domains(organization: &PangolinOrganization) -> Arc<[BaseDomain]> {
    let domains = organization.status.domains.iter().filter_map(|domain| {
        Some(BaseDomain {
            name: Fqdn::parse_hostname(&domain.base_domain).ok()?,
            id: Some(domain.domain_id.clone()).filter(|id| !id.is_empty()),
            shape: if domain.type_ == "cname" { Shape::One } else { Shape::Tree },
            verified: domain.verified,
        })
    });
    domains.collect()
}

/// The report of pangolin-operator about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildState {
    /// Nothing yet, or it still works on it.
    Waiting,
    /// It is exposed under this host, as the operator understood it.
    Ready {
        /// The host in the status.
        host: Option<String>,
        /// Whether the status names a target.
        targets: bool,
    },
    /// It failed.
    Failed(String),
}

/// A PangolinResource that carries the UID of an Ingress in its label and among its owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChildFacts {
    /// The UID.
    pub(crate) uid: String,
    /// The host that it is for, by its annotation, or else by its specification.
    pub(crate) host: Option<String>,
    /// Its domain, where it was one of a known organisation.
    pub(crate) domain: Option<BaseDomain>,
    /// The id in Pangolin.
    pub(crate) resource_id: Option<String>,
    /// The report of the operator.
    pub(crate) state: ChildState,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
    /// Since when.
    pub(crate) leaving: Option<Timestamp>,
    /// The generation, so that a change of the specification is seen.
    pub(crate) generation: i64,
    /// The class of its Ingress, where it is noted.
    pub(crate) class: Option<String>,
    /// Its labels of ours, so that a change is seen.
    pub(crate) labels: Vec<String>,
}

/// The domain of a PangolinResource. Only one of a known organisation has an id.
fn child_domain(http: &HttpConfig) -> Option<BaseDomain> {
    Some(BaseDomain {
        name: Fqdn::parse_hostname(http.domain_name.as_deref()?).ok()?,
        id: Some(http.domain_id.clone().filter(|id| !id.is_empty())?),
        shape: if http.subdomain.as_deref().unwrap_or_default().is_empty() { Shape::One } else { Shape::Tree },
        verified: true,
    })
}

/// The host of a PangolinResource that pangolin-ingress-controller made: it has no annotation.
fn child_host(http: &HttpConfig) -> Option<String> {
    let domain = Fqdn::parse_hostname(http.domain_name.as_deref()?).ok()?;
    let subdomain = http.subdomain.as_deref().unwrap_or_default();
    let host = if subdomain.is_empty() { domain } else { domain.prepend(subdomain).ok()? };
    Some(host.undotted().to_owned())
}

/// Reads a PangolinResource: its Ingress, and the facts; `None` when it is not ours.
pub(crate) fn child(resource: &PangolinResource) -> Option<(String, ChildFacts)> {
    let meta = &resource.metadata;
    let label = |key: &str| meta.labels.as_ref()?.get(key).cloned();
    let uid = label(UID_LABEL)?;
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.kind == "Ingress" && owner.uid == uid)?;
    let status = &resource.status;
    let generation = meta.generation.unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let word = status.status.as_deref().or(status.phase.as_deref()).unwrap_or_default();
    let current = status.observed_generation.is_none_or(|observed| observed >= generation);
    let state = match word {
        "Ready" if current && ready.is_none_or(|ready| ready.status == "True") => {
            ChildState::Ready { host: status.full_domain.clone(), targets: !status.target_ids.is_empty() }
        }
        "Error" | "Failed" if current => {
            let why = ready.map(|ready| ready.message.as_str()).filter(|why| !why.is_empty());
            ChildState::Failed(why.unwrap_or("no message").chars().take(300).collect())
        }
        _ => ChildState::Waiting,
    };
    let resource_id = status.resource_id.as_ref().map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key).cloned();
    let facts = ChildFacts {
        host: annotation(HOST_ANNOTATION).or_else(|| child_host(&resource.spec.http_config)),
        class: annotation(CLASS_ANNOTATION),
        domain: child_domain(&resource.spec.http_config),
        resource_id: resource_id.filter(|id| !id.is_empty() && id != "null"),
        state,
        deleting: meta.deletion_timestamp.is_some(),
        leaving: meta.deletion_timestamp.as_ref().map(|time| time.0),
        generation,
        labels: [NAME_LABEL, NAMESPACE_LABEL].iter().filter_map(|key| label(key)).collect(),
        uid,
    };
    Some((owner.name.clone(), facts))
}
