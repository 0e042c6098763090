//! The few facts that are kept of an object.
//!
//! In: objects as the watch delivers them. Out: specs, conditions without their messages, and what a generated DNSEndpoint is.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use signpost_apis::{
    externaldns::DnsEndpoint,
    router::{self, ROUTING_GROUP, ServiceRoute},
    service::Service,
};
use signpost_dns::Fqdn;
use signpost_engine::{Finalizers, Identity, ObjectId, is_reported};
use signpost_planning::Refusal;

use crate::{
    plan::names,
    report::status::{NOTICE, ObjectStatus},
};

/// The id of an object.
pub(crate) type Id = Arc<ObjectId>;

/// The label of everything that this system generates; the value is that of service-router-operator, so that its objects are taken over.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub(crate) const OPERATOR: &str = "service-router-operator";
/// The controller that publishes a DNSEndpoint.
pub(crate) const CONTROLLER: &str = "router.io/controller";
/// The region of that controller.
pub(crate) const REGION: &str = "router.io/region";
/// The route of a DNSEndpoint.
pub(crate) const SERVICE_ROUTE: &str = "router.io/serviceroute";
/// The namespace of that route.
pub(crate) const SOURCE_NAMESPACE: &str = "router.io/source-namespace";
/// The Gateway of an Istio Gateway.
pub(crate) const GATEWAY: &str = "router.io/gateway";
/// The Istio controller of a gateway's DNSEndpoint.
pub(crate) const ISTIO_CONTROLLER: &str = "router.io/istio-controller";
/// The postfix of a gateway's DNSEndpoint.
pub(crate) const TARGET_POSTFIX: &str = "router.io/target-postfix";
/// The purpose of a DNSEndpoint.
pub(crate) const RESOURCE_TYPE: &str = "router.io/resource-type";
/// The value of [`RESOURCE_TYPE`] of a gateway's DNSEndpoint.
pub(crate) const GATEWAY_SERVICE: &str = "gateway-service";
/// The label of Istio's gateway pods and Services.
pub(crate) const ISTIO: &str = "istio";

/// Entrances of one load balancer beyond this are left out.
const MOST_POINTS: usize = 256;
/// Names of one DNSEndpoint of gateways beyond this are not known.
const MOST_NAMES: usize = 64;

/// An object of ours.
#[derive(Clone, Debug)]
pub(crate) struct Known<S> {
    pub(crate) identity: Identity,
    pub(crate) spec: Arc<S>,
    pub(crate) seen: Seen,
    /// The decision of the last pass.
    pub(crate) verdict: Option<Arc<ObjectStatus>>,
    /// Whether a pass of this process refused it because another object is used; `None` before the first one.
    pub(crate) surplus: Option<bool>,
}

/// The conditions and the phase that the API server has, what a DNSPolicy selects and which records a Gateway has according to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    conditions: Vec<SeenCondition>,
    pub(crate) phase: Option<&'static str>,
    pub(crate) selected: Option<Selected>,
    /// The record type of a Gateway.
    pub(crate) class: Option<Class>,
    /// The message of the condition that all notices share.
    notices: Option<Box<str>>,
}

/// What a DNSPolicy selects: whether it is active, and the names of its controllers.
pub(crate) type Selected = (bool, Vec<String>);

#[derive(Clone, Debug, PartialEq)]
struct SeenCondition {
    type_: Box<str>,
    status: bool,
    reason: Box<str>,
    since: Timestamp,
}

impl Seen {
    pub(crate) fn of(conditions: &[Condition]) -> Self {
        let seen = |condition: &Condition| SeenCondition {
            type_: condition.type_.as_str().into(),
            status: condition.status == "True",
            reason: condition.reason.as_str().into(),
            since: condition.last_transition_time.0,
        };
        let notices = conditions.iter().find(|condition| condition.type_ == NOTICE);
        let notices = notices.map(|condition| condition.message.as_str().into());
        Self { conditions: conditions.iter().map(seen).collect(), notices, ..Self::default() }
    }

    /// The same with a phase.
    pub(crate) fn in_phase(self, phase: Option<router::Phase>) -> Self {
        Self { phase: phase.map(router::Phase::as_str), ..self }
    }

    pub(crate) fn of_gateway(status: &router::GatewayStatus) -> Self {
        let class = status.record_type.as_deref().and_then(Class::of_record_type);
        Self { class, ..Self::of(&status.conditions).in_phase(status.phase) }
    }

    pub(crate) fn of_policy(status: &router::DNSPolicyStatus) -> Self {
        let selected = status.active.map(|active| (active, status.active_controllers.clone()));
        let phase = status.phase.map(router::PolicyPhase::as_str);
        Self { phase, selected, ..Self::of(&status.conditions) }
    }

    /// Since when the condition has this status; `now` when it has another one.
    pub(crate) fn since(&self, type_: &str, status: bool, now: Timestamp) -> Timestamp {
        let same = self.conditions.iter().find(|seen| *seen.type_ == *type_ && seen.status == status);
        same.map_or(now, |seen| seen.since)
    }

    /// Whether there is a condition of the type.
    pub(crate) fn has_type(&self, type_: &str) -> bool {
        self.conditions.iter().any(|seen| *seen.type_ == *type_)
    }

    /// Whether the condition of this type has this reason.
    pub(crate) fn has(&self, type_: &str, reason: &str) -> bool {
        self.conditions.iter().any(|seen| *seen.type_ == *type_ && *seen.reason == *reason)
    }

    /// Whether the condition of the notices has this one: as its reason, or in its message.
    pub(crate) fn has_notice(&self, notice: &Refusal) -> bool {
        let is_in = |message: &str| message.contains(&notice.message);
        self.has(NOTICE, notice.reason.as_str()) || self.notices.as_deref().is_some_and(is_in)
    }

    /// Whether a condition has this reason.
    pub(crate) fn has_reason(&self, reason: &str) -> bool {
        self.conditions.iter().any(|seen| *seen.reason == *reason)
    }
}

/// The gateways that share a name: those of one Istio controller and postfix. Both are kept as values of labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) controller: Arc<str>,
    pub(crate) postfix: Arc<str>,
}

impl Target {
    pub(crate) fn of(gateway: &router::GatewaySpec) -> Self {
        let value = |text: &str| Arc::from(names::label_value(text));
        Self { controller: value(&gateway.controller), postfix: value(&gateway.target_postfix) }
    }
}

/// The object that a DNSEndpoint was generated for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A ServiceRoute.
    Route(Id),
    /// Gateways.
    Target(Target),
}

/// The record class of a DNSEndpoint. An alias and addresses cannot follow one another at a name without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nothing: it is being changed from one class to the other.
    Empty,
    /// A and AAAA records.
    Addresses,
    /// A CNAME record.
    Alias,
}

impl Class {
    /// The class in the status of a Gateway.
    pub(crate) fn record_type(self) -> Option<&'static str> {
        match self {
            Self::Empty => None,
            Self::Addresses => Some("A"),
            Self::Alias => Some("CNAME"),
        }
    }

    fn of_record_type(text: &str) -> Option<Self> {
        [Self::Addresses, Self::Alias].into_iter().find(|class| class.record_type() == Some(text))
    }
}

/// A DNSEndpoint that we generated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChildFacts {
    pub(crate) owner: Owner,
    pub(crate) controller: Arc<str>,
    pub(crate) class: Class,
    /// A digest of the name that it publishes.
    pub(crate) host: u64,
    /// A digest of the region of its controller and of its first target.
    pub(crate) source: u64,
    /// A digest of its first target.
    target: u64,
    /// The names that a DNSEndpoint of gateways publishes.
    pub(crate) names: Box<[Fqdn]>,
    /// The Service that owns it, where one does.
    pub(crate) service: Option<Arc<str>>,
    /// Whether external-dns has read the current generation.
    pub(crate) observed: bool,
    /// Whether external-dns has read any generation.
    pub(crate) read: bool,
    /// Whether this operator publishes it itself, and so has written its status.
    pub(crate) ours: bool,
    /// A digest of everything but its status.
    pub(crate) digest: u64,
}

impl ChildFacts {
    /// The facts of a DNSEndpoint; `None` when it is foreign.
    pub(crate) fn of(endpoint: &DnsEndpoint) -> Option<Self> {
        let meta = &endpoint.metadata;
        let label = |key: &str| meta.labels.as_ref()?.get(key).map(String::as_str);
        let service = owner_named(meta, "Service");
        // The owner is a proof too, together with a label of ours: the other label may have been removed by hand.
        let owned = service.is_some() || owner_named(meta, "ServiceRoute").is_some();
        if label(MANAGED_BY) != Some(OPERATOR) && !(owned && label(CONTROLLER).is_some()) {
            return None;
        }
        // The owner counts: a label can be edited, and that of a long name is not the name.
        let owner = match owner_named(meta, "ServiceRoute") {
            None if service.is_some() || label(RESOURCE_TYPE) == Some(GATEWAY_SERVICE) => {
                let value = |key: &str| label(key).unwrap_or_default().into();
                Owner::Target(Target { controller: value(ISTIO_CONTROLLER), postfix: value(TARGET_POSTFIX) })
            }
            route => {
                let name = route.or_else(|| label(SERVICE_ROUTE))?;
                Owner::Route(Arc::new(ObjectId::new::<ServiceRoute>(meta.namespace.as_deref(), name)))
            }
        };
        let class = match endpoint.spec.endpoints.as_slice() {
            [] => Class::Empty,
            [first, ..] if first.record_type == "CNAME" => Class::Alias,
            _ => Class::Addresses,
        };
        let names = match &owner {
            Owner::Target(_) => names_of(endpoint),
            Owner::Route(_) => Box::default(),
        };
        Some(Self {
            owner,
            controller: label(CONTROLLER).unwrap_or_default().into(),
            class,
            host: endpoint.spec.endpoints.first().map_or(0, |first| host_digest(&first.dns_name)),
            source: source_digest(label(REGION).unwrap_or_default(), first_target(endpoint)),
            target: host_digest(first_target(endpoint)),
            names,
            service: service.map(Arc::from),
            observed: endpoint.is_observed(),
            read: endpoint.status.as_ref().is_some_and(|status| status.observed_generation.is_some()),
            ours: is_reported(meta),
            digest: digest_of(endpoint),
        })
    }

    /// The digest of the name that a DNSEndpoint of a route points at.
    pub(crate) fn points_at(&self) -> Option<u64> {
        let points = matches!(self.owner, Owner::Route(_)) && self.class == Class::Alias;
        points.then_some(self.target)
    }
}

/// The names of a DNSEndpoint. The records of one name follow one another.
fn names_of(endpoint: &DnsEndpoint) -> Box<[Fqdn]> {
    let names = endpoint.spec.endpoints.iter().filter_map(|point| Fqdn::parse(&point.dns_name).ok());
    let mut names: Vec<Fqdn> = names.take(MOST_NAMES).collect();
    names.dedup();
    names.into()
}

fn owner_named<'a>(meta: &'a ObjectMeta, kind: &str) -> Option<&'a str> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let ours = |api_version: &str| kind == "Service" || api_version.starts_with(ROUTING_GROUP);
    owners.iter().find(|owner| owner.kind == kind && ours(&owner.api_version)).map(|owner| owner.name.as_str())
}

/// The digest of a name, with or without a trailing dot.
pub(crate) fn host_digest(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.trim_end_matches('.').to_ascii_lowercase().hash(&mut hasher);
    hasher.finish()
}

/// The digest of the region of a controller, as the value of a label, and of a target.
pub(crate) fn source_digest(region: &str, target: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (region, host_digest(target)).hash(&mut hasher);
    hasher.finish()
}

fn first_target(endpoint: &DnsEndpoint) -> &str {
    endpoint.spec.endpoints.first().and_then(|first| first.targets.first()).map_or("", String::as_str)
}

fn digest_of(endpoint: &DnsEndpoint) -> u64 {
    let mut hasher = DefaultHasher::new();
    let pairs = |map: &Option<BTreeMap<String, String>>, hasher: &mut DefaultHasher| map.hash(hasher);
    pairs(&endpoint.metadata.labels, &mut hasher);
    pairs(&endpoint.metadata.annotations, &mut hasher);
    for owner in endpoint.metadata.owner_references.iter().flatten() {
        (&owner.uid, &owner.name).hash(&mut hasher);
    }
    endpoint.metadata.uid.hash(&mut hasher);
    endpoint.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    for point in &endpoint.spec.endpoints {
        (&point.dns_name, &point.record_type, point.record_ttl, &point.targets, &point.set_identifier)
            .hash(&mut hasher);
        point.labels.hash(&mut hasher);
        for setting in &point.provider_specific {
            (&setting.name, &setting.value).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// A Service that may be the load balancer of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceFacts {
    pub(crate) id: Id,
    pub(crate) uid: Arc<str>,
    pub(crate) created: Timestamp,
    /// The value of its label `istio`.
    pub(crate) istio: Option<Arc<str>>,
    pub(crate) balancer: bool,
    pub(crate) deleting: bool,
    pub(crate) points: Points,
}

/// Where a load balancer is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Points {
    pub(crate) v4: Vec<Ipv4Addr>,
    pub(crate) v6: Vec<Ipv6Addr>,
    pub(crate) names: Vec<Fqdn>,
    /// Entrances that are neither an address of a host nor a host name.
    pub(crate) unusable: usize,
    /// Entrances beyond the limit.
    pub(crate) left_out: usize,
}

impl Points {
    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty() && self.names.is_empty()
    }

    /// As text, addresses first.
    pub(crate) fn texts(&self) -> Vec<String> {
        let names = self.names.iter().map(|name| name.undotted().to_owned());
        self.v4.iter().map(ToString::to_string).chain(self.v6.iter().map(ToString::to_string)).chain(names).collect()
    }

    fn of(service: &Service) -> Self {
        let all = &service.status.load_balancer.ingress;
        let mut points = Self { left_out: all.len().saturating_sub(MOST_POINTS), ..Self::default() };
        for point in all.iter().take(MOST_POINTS) {
            let text = |text: &Option<String>| {
                text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
            };
            match (text(&point.ip), text(&point.hostname)) {
                (Some(ip), _) => match ip.parse().map(|ip: IpAddr| ip.to_canonical()) {
                    Ok(ip) if !is_of_host(ip) => points.unusable += 1,
                    Ok(IpAddr::V4(ip)) => points.v4.push(ip),
                    Ok(IpAddr::V6(ip)) => points.v6.push(ip),
                    Err(_) => points.unusable += 1,
                },
                (None, Some(name)) => match Fqdn::parse_hostname(&name) {
                    Ok(name) => points.names.push(name),
                    Err(_) => points.unusable += 1,
                },
                (None, None) => {}
            }
        }
        points.v4.sort_unstable();
        points.v4.dedup();
        points.v6.sort_unstable();
        points.v6.dedup();
        points.names.sort_unstable();
        points.names.dedup();
        points
    }
}

/// Whether one host can have the address. A tunnel to a development cluster reports a loopback address.
fn is_of_host(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !broadcast && !ip.is_unspecified() && !ip.is_multicast()
}

impl ServiceFacts {
    /// The facts of a Service; `None` when it cannot have to do with a gateway.
    pub(crate) fn of(service: &Service) -> Option<Self> {
        let istio = service.label(ISTIO).map(Arc::from);
        let balancer = service.is_load_balancer();
        if !balancer && istio.is_none() {
            return None;
        }
        let Identity { id, uid, created, deleting_since, .. } = Identity::of(service);
        let points = if balancer { Points::of(service) } else { Points::default() };
        Some(Self { id, uid, created, istio, balancer, deleting: deleting_since.is_some(), points })
    }

    /// Its identity, as far as an owner reference needs it.
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            id: self.id.clone(),
            uid: self.uid.clone(),
            version: 0,
            generation: 0,
            created: self.created,
            deleting_since: None,
            finalizers: Finalizers::default(),
        }
    }

    /// Whether it is the load balancer of this controller, for a Gateway of that namespace.
    pub(crate) fn serves(&self, controller: &str, namespace: Option<&str>) -> bool {
        let named = self.id.name == controller && self.id.namespace.as_deref() == namespace;
        self.balancer && (self.istio.as_deref() == Some(controller) || named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(points: &serde_json::Value) -> ServiceFacts {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "ingress", "namespace": "istio-system", "uid": "u", "labels": {"istio": "internal"}},
            "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": points}},
        }))
        .unwrap();
        ServiceFacts::of(&service).unwrap()
    }

    #[test]
    fn every_entrance_counts_once_by_its_kind() {
        let points = service(&json!([
            {"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, {"ip": "2001:DB8::1"}, {"hostname": "LB.Example.NET."},
            {"ip": "not an address"}, {"hostname": "-"}, {},
        ]))
        .points;
        assert_eq!(points.texts(), ["10.0.0.1", "10.0.0.2", "2001:db8::1", "lb.example.net"]);
        assert_eq!(points.unusable, 2);
        let nobody = ["0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1"];
        let points = service(&json!(nobody.map(|ip| json!({"ip": ip})))).points;
        assert_eq!((points.is_empty(), points.unusable), (true, nobody.len()), "no host has it");
        let local = ["127.0.0.1", "169.254.1.1", "::1", "fe80::1"];
        let points = service(&json!(local.map(|ip| json!({"ip": ip})))).points;
        assert_eq!((points.texts().len(), points.unusable), (4, 0), "minikube tunnel reports 127.0.0.1");
        assert_eq!(
            service(&json!([{"ip": "::ffff:10.0.0.1"}])).points.texts(),
            ["10.0.0.1"],
            "an IPv4 address in another form"
        );
        let many: Vec<_> = (0..100).map(|n| json!({"ip": format!("10.0.1.{n}")})).collect();
        assert_eq!(service(&json!(many)).points.v4.len(), 100);
        let many: Vec<_> = (0..300).map(|n| json!({"ip": format!("10.0.{}.{}", n / 250, n % 250)})).collect();
        let points = service(&json!(many)).points;
        assert_eq!((points.v4.len(), points.left_out), (256, 44));
    }

    #[test]
    fn a_service_is_found_by_its_label_or_by_its_name() {
        let facts = service(&json!([]));
        assert!(facts.serves("internal", Some("elsewhere")), "by its label, from any namespace");
        assert!(facts.serves("ingress", Some("istio-system")), "by its name, from its own namespace");
        assert!(!facts.serves("ingress", Some("elsewhere")));
    }

    #[test]
    fn an_endpoint_is_ours_by_its_labels() {
        let endpoint = |labels: serde_json::Value| -> DnsEndpoint {
            serde_json::from_value(json!({"metadata": {"name": "e", "namespace": "app", "labels": labels, "generation": 2},
                "spec": {"endpoints": [{"dnsName": "a", "recordType": "CNAME", "targets": ["b"]}]}, "status": {"observedGeneration": 2}}))
            .unwrap()
        };
        let route = json!({MANAGED_BY: OPERATOR, SERVICE_ROUTE: "api", CONTROLLER: "weu"});
        let facts = ChildFacts::of(&endpoint(route)).unwrap();
        assert_eq!(facts.owner, Owner::Route(Arc::new(ObjectId::new::<ServiceRoute>(Some("app"), "api"))));
        assert!(facts.observed && facts.class == Class::Alias && &*facts.controller == "weu");
        let gateway =
            json!({MANAGED_BY: OPERATOR, RESOURCE_TYPE: GATEWAY_SERVICE, ISTIO_CONTROLLER: "i", TARGET_POSTFIX: "p"});
        let target = Target { controller: "i".into(), postfix: "p".into() };
        assert!(facts.names.is_empty());
        assert_eq!(facts.points_at(), Some(host_digest("b")), "a route points at a name");
        let facts = ChildFacts::of(&endpoint(gateway)).unwrap();
        assert_eq!(facts.owner, Owner::Target(target));
        assert_eq!((facts.names.len(), facts.names[0].undotted(), facts.points_at()), (1, "a", None));
        assert_eq!(ChildFacts::of(&endpoint(json!({SERVICE_ROUTE: "api"}))), None);
        let mut owned = endpoint(json!({CONTROLLER: "weu"}));
        assert_eq!(ChildFacts::of(&owned), None, "without an owner");
        let owner =
            json!([{"apiVersion": "routing.router.io/v1alpha1", "kind": "ServiceRoute", "name": "api", "uid": "u"}]);
        owned.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
        assert!(ChildFacts::of(&owned).is_some(), "by its owner");
        owned.metadata.labels = None;
        assert_eq!(ChildFacts::of(&owned), None, "of a route, and without a label of ours");
        assert_eq!(ChildFacts::of(&endpoint(json!({MANAGED_BY: OPERATOR}))), None);
    }
}
