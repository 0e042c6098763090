//! From an Ingress to what is exposed for it: hosts in domains, paths as routes, Services as addresses. The same for both deliveries.

use std::collections::{BTreeMap, BTreeSet};

use signpost_dns::Fqdn;
use signpost_engine::RetryClass;
use signpost_exposure::{
    Backend, BackendScheme, BaseDomain, Class, HostError, Names, Overrides, PathRule, PathType, Route, Split,
    normalise, routes, split,
};
use signpost_planning::{Reason, Refusal};

use crate::index::{BackendRef, Claimant, HostRule, MOST_HOSTS, Reach, ServiceFacts};
use crate::plan::refusals::{About, HostRefusal};
use crate::plan::{SOON, Wanted};
use crate::settings::Policy;

/// One exposed host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposure {
    /// The host in its domain.
    pub(crate) split: Split,
    /// The names of what is made for it.
    pub(crate) names: Names,
    /// The routes, the highest priority first.
    pub(crate) routes: Vec<Route<Address>>,
}

/// Where a Service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Its name inside the cluster, or its address; an IPv6 address without brackets.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
    /// How it is spoken to.
    pub(crate) scheme: BackendScheme,
}

/// The capabilities of the place of delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground<'a> {
    /// The domains of the organisation, where they are known.
    pub(crate) domains: Option<&'a [BaseDomain]>,
    /// Whether a domain itself can be exposed.
    pub(crate) apex: bool,
    /// Whether paths can be routed.
    pub(crate) paths: bool,
    /// The owner id in the marks.
    pub(crate) owner: &'a str,
}

/// The exposures of an Ingress.
#[derive(Debug, Default)]
pub(crate) struct Exposures {
    /// The possible exposures.
    pub(crate) list: Vec<Exposure>,
    /// Hosts that are wanted and cannot be made now: what exists for them stays.
    pub(crate) waiting: BTreeSet<String>,
    /// Hosts that an older Ingress owns.
    pub(crate) lost: BTreeSet<String>,
    /// The refusals.
    pub(crate) refusals: Vec<HostRefusal>,
    /// When to come back although nothing changes.
    pub(crate) again: Option<RetryClass>,
    /// Whether nothing at all may be changed.
    pub(crate) blocked: bool,
    /// The host that is exposed instead of the one in the rule, which is not below the domain that an annotation names.
    pub(crate) moved: Option<(String, String)>,
}

impl Exposures {
    /// Nothing may be changed, for this reason.
    pub(crate) fn block(&mut self, reason: Reason, message: impl Into<String>, again: Option<RetryClass>) {
        self.refusals.push(About::Ingress.refuse(reason, message));
        self.again = again;
        self.blocked = true;
    }

    /// A warning: no host is refused by it.
    fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        self.refusals.push(About::NoHost.refuse(reason, message));
    }
}

/// Why a host is not made.
struct RefusedHost {
    refusal: Refusal,
    /// Whether it may become possible while the Ingress is unchanged.
    waits: bool,
}

fn refused(reason: Reason, message: impl Into<String>, waits: bool) -> RefusedHost {
    RefusedHost { refusal: Refusal::new(reason, message), waits }
}

/// Decides what is exposed.
pub(crate) fn exposures(wanted: &Wanted, ground: Ground<'_>, policy: &Policy) -> Exposures {
    let claimant = &*wanted.claimant;
    let mut found = Exposures::default();
    for problem in &claimant.annotations.problems {
        let reason = if problem.refuses() { Reason::InvalidAnnotation } else { Reason::UnknownAnnotation };
        let about = if problem.refuses() { About::Ingress } else { About::NoHost };
        found.refusals.push(about.refuse(reason, problem.to_string()));
        found.blocked |= problem.refuses();
    }
    if claimant.class == Class::EmptyAlias {
        let class = claimant.class_name.as_deref().unwrap_or_default();
        found.warn(
            Reason::InvalidClass,
            format!("the class {class:?} has no alias after the hyphen; add one, or use pangolin"),
        );
        return found;
    }
    let (rules, more) = claimant.exposed(policy.multi_host);
    if more {
        let first = rules.first().map_or("", |rule| rule.host.as_str());
        let message =
            format!("only the first host, {first}, is exposed; use one Ingress for each host, or PIC_MULTI_HOST=all");
        found.warn(Reason::MultipleHosts, message);
    }
    if claimant.left_out > 0 && !more {
        let (most, left) = (MOST_HOSTS, claimant.left_out);
        let message =
            format!("only the first {most} hosts are exposed, and {left} are left out; use several Ingresses");
        found.warn(Reason::MultipleHosts, message);
    }
    if rules.is_empty() {
        found.warn(
            Reason::NoRules,
            "the Ingress has no rule; add a rule with a host, a default backend alone cannot be exposed",
        );
    }
    if let Some(BackendRef::Other(other)) = &claimant.default {
        let message = format!("the default backend is {other}, which is not a Service; use a Service");
        found.warn(Reason::BackendNotSupported, message);
    }
    let named = rules.iter().filter(|rule| !rule.host.is_empty()).count();
    let overrides = &claimant.annotations.options.overrides;
    if named > 1 && !overrides.is_empty() {
        found.block(Reason::InvalidAnnotation, HostError::OverrideAmbiguous(named).to_string(), None);
    }
    if found.blocked {
        return found;
    }
    for rule in rules {
        let before = found.refusals.len();
        match host(rule, wanted, ground, policy, &mut found.refusals) {
            Ok(exposure) => {
                found.moved = moved(rule, &exposure.split, overrides).or(found.moved.take());
                found.list.push(exposure);
            }
            Err((host, refused)) => {
                // Of a host that is not made, only its own refusal is reported.
                found.refusals.truncate(before);
                // With annotations that name another host, there is one host, and it has another name.
                let overridden = !overrides.is_empty();
                let about = if overridden { About::Ingress } else { About::host(&host) };
                if refused.refusal.reason == Reason::HostConflict {
                    found.lost.insert(host);
                } else if refused.waits {
                    // Without its domain, the host that annotations name is not known: what exists is unchanged.
                    found.blocked |= overridden && refused.refusal.reason == Reason::DomainNotFound;
                    found.waiting.insert(host);
                    let soon = matches!(refused.refusal.reason, Reason::DomainNotFound);
                    found.again = Some(if soon { SOON } else { RetryClass::Slow });
                }
                found.refusals.push(HostRefusal { key: about, refusal: refused.refusal });
            }
        }
    }
    found
}

/// The host of a rule that is not below the domain that an annotation names, and the one that is exposed instead.
fn moved(rule: &HostRule, split: &Split, overrides: &Overrides) -> Option<(String, String)> {
    let domain = overrides.domain.as_ref().filter(|_| overrides.subdomain.is_none())?;
    let is_below = Fqdn::parse(&rule.host).is_ok_and(|host| host.is_at_or_below(domain));
    (!is_below).then(|| (rule.host.clone(), split.host.undotted().to_owned()))
}

fn host(
    rule: &HostRule,
    wanted: &Wanted,
    ground: Ground<'_>,
    policy: &Policy,
    warnings: &mut Vec<HostRefusal>,
) -> Result<Exposure, (String, RefusedHost)> {
    let claimant = &*wanted.claimant;
    let shown = rule.host.clone();
    let none = Overrides::default();
    let options = &claimant.annotations.options;
    let overrides = if claimant.rules.len() == 1 || !options.overrides.is_empty() { &options.overrides } else { &none };
    let name = normalise(&rule.host, policy.hosts).map_err(|error| (shown.clone(), host_error(&error, ground)))?;
    let split = placed(&name, overrides, ground, policy)
        .map_err(|error| (name.undotted().to_owned(), host_error(&error, ground)))?;
    let host = split.host.undotted().to_owned();
    let fail = |refused| (host.clone(), refused);
    if let Some(owner) = wanted.taken.get(&split.host).or_else(|| wanted.taken.get(&name)) {
        let message = format!(
            "{host} belongs to the older Ingress {}, which names it too. Delete one of the two, or change the host.",
            owner.path()
        );
        return Err(fail(refused(Reason::HostConflict, message, false)));
    }
    if split.subdomain.is_empty() && !ground.apex {
        let message = format!(
            "{host} is a domain itself, which the PangolinResource of this cluster cannot express; use a name below it, or PIC_MODE=api"
        );
        // The domain may be new, and the Ingress an old one: what exists stays.
        return Err(fail(refused(Reason::ApexNotSupported, message, true)));
    }
    let paths = supported(rule, ground, &split.host, warnings);
    let default = match &claimant.default {
        Some(BackendRef::Service(backend)) => Some(backend),
        Some(BackendRef::Other(_)) | None => None,
    };
    let made = routes(&paths, default);
    for problem in made.problems {
        warnings.push(About::Host(split.host.clone()).refuse(Reason::PathNotSupported, format!("{host}: {problem}")));
    }
    if made.routes.is_empty() {
        let message = format!("{host} has no path that can be exposed; add the path / with a Service as its backend");
        return Err(fail(refused(Reason::PathNotSupported, message, false)));
    }
    let mut addressed = Vec::new();
    for Route { path, priority, backend } in made.routes {
        let backend = address(&backend, claimant, &wanted.services, policy).map_err(fail)?;
        addressed.push(Route { path, priority, backend });
    }
    let names = Names::of(ground.owner, claimant.namespace(), &claimant.identity.id.name, &host);
    Ok(Exposure { split, names, routes: addressed })
}

/// The host in its domain. Where a domain itself cannot be exposed, a shorter domain that leaves a subdomain is used.
fn placed(name: &Fqdn, overrides: &Overrides, ground: Ground<'_>, policy: &Policy) -> Result<Split, HostError> {
    let found = split(name, overrides, ground.domains, policy.hosts)?;
    if ground.apex || !found.subdomain.is_empty() {
        return Ok(found);
    }
    let shorter: Vec<BaseDomain> =
        ground.domains.unwrap_or_default().iter().filter(|domain| domain.name != found.host).cloned().collect();
    let other = split(name, overrides, Some(&shorter), policy.hosts);
    Ok(other.ok().filter(|other| other.host == found.host && !other.subdomain.is_empty()).unwrap_or(found))
}

fn host_error(error: &HostError, ground: Ground<'_>) -> RefusedHost {
    match error {
        // The organisation may be unknown only for a moment.
        HostError::UnknownSuffix(_) if ground.domains.is_none() => {
            refused(Reason::InvalidHost, error.to_string(), true)
        }
        HostError::NoDomain { .. } | HostError::NotVerified { .. } => {
            refused(Reason::DomainNotFound, error.to_string(), true)
        }
        HostError::Empty
        | HostError::Wildcard(_)
        | HostError::Address(_)
        | HostError::Localhost(_)
        | HostError::SingleLabel(_)
        | HostError::Name(_)
        | HostError::NotAName { .. }
        | HostError::PublicSuffix(_)
        | HostError::UnknownSuffix(_)
        | HostError::OverrideAmbiguous(_) => refused(Reason::InvalidHost, error.to_string(), false),
    }
}

/// The paths that the place of delivery can route; what is left out is a warning.
fn supported(
    rule: &HostRule,
    ground: Ground<'_>,
    name: &Fqdn,
    warnings: &mut Vec<HostRefusal>,
) -> Vec<PathRule<Backend>> {
    let host = name.undotted();
    let mut warn = |reason, message| warnings.push(About::Host(name.clone()).refuse(reason, message));
    let mut paths = Vec::new();
    for path in &rule.paths {
        let root = path.kind != PathType::Exact && path.path.trim_end_matches('/').is_empty();
        match &path.backend {
            BackendRef::Other(other) => warn(
                Reason::BackendNotSupported,
                format!("{host}{}: the backend is {other}, which is not a Service; use a Service", path.path),
            ),
            BackendRef::Service(_) if !ground.paths && !root => warn(
                Reason::PathNotSupported,
                format!(
                    "{host}: path {:?} is left out, because pangolin-operator does not route by paths; use PIC_MODE=api",
                    path.path.chars().take(80).collect::<String>()
                ),
            ),
            BackendRef::Service(backend) => {
                paths.push(PathRule { path: path.path.clone(), kind: path.kind, backend: backend.clone() });
            }
        }
    }
    paths
}

/// Where a Service is reached.
fn address(
    backend: &Backend,
    claimant: &Claimant,
    services: &BTreeMap<String, ServiceFacts>,
    policy: &Policy,
) -> Result<Address, RefusedHost> {
    let Backend { service, port } = backend;
    let namespace = claimant.namespace();
    let facts = services.get(service).ok_or_else(|| {
        let message = format!("Service {namespace}/{service} does not exist; create it, or change the backend");
        refused(Reason::BackendNotFound, message, true)
    })?;
    let found = facts.ports.iter().find(|known| match port {
        Ok(number) => known.number == *number,
        Err(name) => known.name.as_deref() == Some(name.as_str()),
    });
    let (number, protocol) = match (found, port, facts.external) {
        (Some(known), _, _) => (known.number, known.protocol.as_deref()),
        // An `ExternalName` Service needs no ports of its own.
        (None, Ok(number), true) => (*number, None),
        (None, _, _) => {
            let port = match port {
                Ok(number) => number.to_string(),
                Err(name) => format!("{name:?}"),
            };
            let message =
                format!("Service {namespace}/{service} has no TCP port {port}; add the port, or change the backend");
            return Err(refused(Reason::BackendPortNotFound, message, true));
        }
    };
    let by_protocol = match protocol {
        Some("https" | "kubernetes.io/wss") => Some(BackendScheme::Https),
        Some("kubernetes.io/h2c") => Some(BackendScheme::H2c),
        _ => None,
    };
    let scheme = claimant.annotations.options.scheme.or(by_protocol).unwrap_or(policy.scheme);
    let host = match &facts.reach {
        Reach::Name => format!("{service}.{namespace}.svc.{}", policy.cluster_domain),
        Reach::At(address) => address.to_string(),
        Reach::Not(why) => {
            let mode = policy.target_mode.as_str();
            let message = format!(
                "Service {namespace}/{service} {why}, which PIC_TARGET_MODE={mode} needs; use another Service, or another mode"
            );
            return Err(refused(Reason::BackendNotSupported, message, true));
        }
    };
    Ok(Address { host, port: number, scheme })
}
