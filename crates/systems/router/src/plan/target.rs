//! The name of a gateway: one DNSEndpoint per external-dns controller, with the addresses of the LoadBalancer Service.
//!
//! ```text
//! addresses ─► A, AAAA        host name ─► CNAME        nothing ─► what is published is kept
//! A ⇄ CNAME: an empty DNSEndpoint first, until external-dns has read it. A name server refuses both at one name. That of another controller
//! is emptied by its own key.
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use signpost_apis::{externaldns::DnsEndpoint, router::ExternalDNSController};
use signpost_dns::Fqdn;
use signpost_engine::{Child, Identity, ObjectId};
use signpost_planning::{Reason, Refusal};

use crate::{
    index::{
        RouterKey,
        facts::{Class, GATEWAY_SERVICE, ISTIO_CONTROLLER, Id, Points, RESOURCE_TYPE, TARGET_POSTFIX, Target},
    },
    plan::{Base, Blame, Memory, Plan, endpoint, names, owner_of, proof},
    report::status::{Decision, TYPE_CHANGING, TargetVerdict},
};

/// The TTL of address records, in seconds, as service-router-operator writes it.
const TTL: i64 = 300;

/// The gateways of one controller and postfix.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) target: Target,
    pub(crate) base: Base,
    pub(crate) installed: bool,
    /// The controller as it is written in the Gateways; `None` when no Gateway names one.
    pub(crate) controller: Option<String>,
    /// The oldest of the Gateways.
    pub(crate) gateway: Option<Identity>,
    /// An older Gateway with the same postfix and another controller.
    pub(crate) holder: Option<Holder>,
    pub(crate) service: Option<ServiceView>,
    pub(crate) children: Vec<ChildView>,
    /// DNSEndpoints of other controllers with the same name.
    pub(crate) rivals: Vec<ChildView>,
    pub(crate) occupied: BTreeSet<ObjectId>,
    pub(crate) memory: Memory,
}

/// The Gateway that owns the name.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) id: Id,
    /// Whether its name is published.
    pub(crate) published: bool,
    /// Whether it waits for records of another type to be withdrawn.
    pub(crate) changing: bool,
}

/// The load balancer.
#[derive(Debug)]
pub(crate) struct ServiceView {
    pub(crate) identity: Identity,
    pub(crate) points: Points,
}

/// A DNSEndpoint of the target.
#[derive(Debug)]
pub(crate) struct ChildView {
    pub(crate) id: Id,
    /// The external-dns controller that publishes it, as the value of a label.
    pub(crate) controller: Arc<str>,
    pub(crate) class: Class,
    pub(crate) observed: bool,
    pub(crate) read: bool,
    /// Whether the Service that it was generated for still exists.
    pub(crate) has_service: bool,
}

/// Plans the DNSEndpoints of a gateway's name.
pub(crate) fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::new(RouterKey::Target(view.target.clone()));
    plan.about.clone_from(&view.gateway);
    let Some(controller) = view.controller.clone() else {
        plan.decisions.push(Decision::TargetGone(view.target.clone()));
        match &view.holder {
            // The name has another controller now: this is a replacement, and two answers would be wrong.
            Some(holder) if holder.published => plan.delete = all_to_delete(view),
            Some(holder) if holder.changing => empty(view, &mut plan),
            // What replaces it is not published yet: the name is kept until then, however long that takes.
            Some(_) => {}
            None => withdraw_absent(view, now, |_| true, &mut plan),
        }
        return plan;
    };
    let host = view.base.identity().ok().and_then(|identity| names::target_host(identity, &view.target.postfix).ok());
    let verdict = |ready: bool, reason: &'static str, message: String, refusal: Option<Refusal>| TargetVerdict {
        ready,
        reason,
        message,
        refusal,
        addresses: view.service.as_ref().map(|service| service.points.texts()).unwrap_or_default(),
        host: host.as_ref().map(|host| host.undotted().to_owned()),
    };
    let refused = |refusal: Refusal| verdict(false, refusal.reason.as_str(), refusal.message.clone(), Some(refusal));
    let waits = |message: &str| verdict(false, "LoadBalancerIPPending", message.to_owned(), None);
    let decided = match judge(view) {
        Ok(()) => None,
        Err(Obstacle::Refused(refusal)) => Some(refused(refusal)),
        Err(Obstacle::Lost(refusal)) => {
            plan.delete = all_to_delete(view);
            Some(refused(refusal))
        }
        Err(Obstacle::Yields(refusal)) => {
            empty(view, &mut plan);
            Some(refused(refusal))
        }
        Err(Obstacle::NoService) => {
            withdraw_absent(view, now, |child| !child.has_service, &mut plan);
            let message = format!(
                "no Service of type LoadBalancer has the label istio={controller}, or is named {controller} in the namespace of the Gateway"
            );
            Some(waits(&message))
        }
        Err(Obstacle::NoAddress(message)) => Some(waits(&message)),
    };
    let (Some(service), Some(host), None) = (&view.service, &host, &decided) else {
        if plan.apply.is_empty() && plan.delete.is_empty() {
            plan.delete = without_publisher(view);
        }
        plan.decisions.extend(decided.map(|verdict| Decision::Target { target: view.target.clone(), verdict }));
        return plan;
    };
    let changing = publish(view, &controller, service, host, &mut plan);
    let verdict = if changing.is_empty() {
        let kept = view.base.configuration().map_or(0, |spec| spec.external_dns_controllers.len());
        verdict(
            true,
            "DNSEndpointsCreated",
            format!("{kept} DNSEndpoints have the addresses of {}", service.identity.id),
            None,
        )
    } else {
        let message = format!(
            "the record type changes: the old records are withdrawn, and the new ones follow when external-dns has read that ({})",
            changing.join(", ")
        );
        verdict(false, TYPE_CHANGING, message, None)
    };
    plan.blame =
        Blame::Target { target: view.target.clone(), addresses: verdict.addresses.clone(), host: verdict.host.clone() };
    plan.decisions.push(Decision::Target { target: view.target.clone(), verdict });
    plan
}

enum Obstacle {
    /// Something is wrong; what is published is kept.
    Refused(Refusal),
    /// Another gateway owns the name, and has published it.
    Lost(Refusal),
    /// Another gateway owns the name, and its records have another type.
    Yields(Refusal),
    NoService,
    NoAddress(String),
}

fn judge(view: &View) -> Result<(), Obstacle> {
    let identity = view.base.identity().map_err(Obstacle::Refused)?;
    view.base.configuration().map_err(Obstacle::Refused)?;
    let host = names::target_host(identity, &view.target.postfix).map_err(|error| {
        Obstacle::Refused(Refusal::new(
            Reason::InvalidHost,
            format!("the name of this gateway cannot be used: {error}"),
        ))
    })?;
    if let Some(Holder { id, published, changing }) = &view.holder {
        let message = format!(
            "{} is already owned by {id}, which is older and has another controller. Change spec.targetPostfix of one of the two",
            host.undotted()
        );
        let refusal = Refusal::new(Reason::HostConflict, message);
        return Err(match (published, changing) {
            (true, _) => Obstacle::Lost(refusal),
            (false, true) => Obstacle::Yields(refusal),
            (false, false) => Obstacle::Refused(refusal),
        });
    }
    if !view.installed {
        let message =
            "the CRD dnsendpoints.externaldns.k8s.io is not installed. Install it; the addresses are published then";
        return Err(Obstacle::Refused(Refusal::new(Reason::KindNotInstalled, message)));
    }
    let Some(service) = &view.service else { return Err(Obstacle::NoService) };
    if service.points.is_empty() {
        let bad = match service.points.unusable {
            0 => String::new(),
            count => format!(" that can be used ({count} cannot)"),
        };
        let kept = if view.children.is_empty() { "" } else { "; what is published is kept" };
        let message = format!("{} has no address{bad}{kept}", service.identity.id);
        return Err(Obstacle::NoAddress(message));
    }
    Ok(())
}

/// Adds the DNSEndpoints; returns the controllers whose record type is being changed.
fn publish(view: &View, controller: &str, service: &ServiceView, host: &Fqdn, plan: &mut Plan) -> Vec<String> {
    let (class, records) = records(host, &service.points);
    let Ok(configuration) = view.base.configuration() else { return Vec::new() };
    let mut wanted: BTreeSet<ObjectId> = BTreeSet::new();
    let mut changing = Vec::new();
    for dns in &configuration.external_dns_controllers {
        let (child, content) = wanted_child(view, controller, service, dns);
        let before = view.children.iter().find(|before| *before.id == child.id);
        let publisher = names::label_value(&dns.name);
        let rival = || view.rivals.iter().any(|rival| *rival.controller == *publisher && rival.is_in_the_way_of(class));
        let now = match before {
            Some(before) if before.class == class => true,
            Some(before) => !before.is_in_the_way_of(class) && !rival(),
            None => !rival(),
        };
        let records = if now { records.clone() } else { json!([]) };
        wanted.insert(child.id.clone());
        if !now {
            changing.push(dns.name.clone());
            if before.is_none() {
                continue;
            }
        }
        let content = endpoint(dns, &view.base.settings.annotation, content, &records);
        plan.apply.push((child, content));
    }
    let stale = view.children.iter().filter(|child| !wanted.contains(&*child.id));
    plan.delete = stale.map(|child| to_delete(&view.target, child)).collect();
    changing
}

impl ChildView {
    /// Whether a name server may still have records of it that exclude those of the class.
    fn is_in_the_way_of(&self, class: Class) -> bool {
        match self.class {
            Class::Empty => self.read && !self.observed,
            // Where nobody has read it, there are no records.
            other => other != class && self.read,
        }
    }
}

/// Withdraws the records, and keeps the DNSEndpoints until external-dns has read that: records of another type follow.
fn empty(view: &View, plan: &mut Plan) {
    let Ok(configuration) = view.base.configuration() else { return };
    for child in view.children.iter().filter(|child| child.class != Class::Empty) {
        let mut controllers = configuration.external_dns_controllers.iter();
        let Some(dns) = controllers.find(|dns| *names::label_value(&dns.name) == *child.controller) else { continue };
        let content = endpoint(dns, &view.base.settings.annotation, BTreeMap::new(), &json!([]));
        plan.apply.push((to_delete(&view.target, child), content));
    }
}

fn records(host: &Fqdn, points: &Points) -> (Class, Value) {
    let record = |rtype: &str, targets: Vec<String>| json!({ "dnsName": host.undotted(), "recordType": rtype, "recordTTL": TTL, "targets": targets });
    let mut records = Vec::new();
    if !points.v4.is_empty() {
        records.push(record("A", points.v4.iter().map(ToString::to_string).collect()));
    }
    if !points.v6.is_empty() {
        records.push(record("AAAA", points.v6.iter().map(ToString::to_string).collect()));
    }
    match points.names.first() {
        // An alias has one target, and no address beside it.
        Some(name) if records.is_empty() => (Class::Alias, json!([record("CNAME", vec![name.undotted().to_owned()])])),
        _ => (Class::Addresses, json!(records)),
    }
}

fn wanted_child<'a>(
    view: &View,
    controller: &str,
    service: &ServiceView,
    dns: &ExternalDNSController,
) -> (Child, BTreeMap<&'a str, String>) {
    let namespace = service.identity.id.namespace.as_deref();
    let postfix = &*view.target.postfix;
    let plain = names::target_child(controller, postfix, &dns.name);
    let name = if view.occupied.contains(&ObjectId::new::<DnsEndpoint>(namespace, &plain)) {
        names::instead_of(&plain, &[controller, postfix, &dns.name])
    } else {
        plain
    };
    // Another Service of the label may take over, and an object has one controller at most.
    let owner = OwnerReference { controller: None, ..owner_of(&service.identity) };
    let proof = proof(labels(&view.target), Some(owner));
    (Child::new::<DnsEndpoint>(namespace, &name, proof), BTreeMap::new())
}

fn labels(target: &Target) -> [(&str, &str); 3] {
    [(RESOURCE_TYPE, GATEWAY_SERVICE), (ISTIO_CONTROLLER, &target.controller), (TARGET_POSTFIX, &target.postfix)]
}

fn to_delete(target: &Target, child: &ChildView) -> Child {
    Child::new::<DnsEndpoint>(child.id.namespace.as_deref(), &child.id.name, proof(labels(target), None))
}

fn all_to_delete(view: &View) -> Vec<Child> {
    view.children.iter().map(|child| to_delete(&view.target, child)).collect()
}

/// The DNSEndpoints of controllers that were removed from the configuration. An object without the label is older than this operator.
fn without_publisher(view: &View) -> Vec<Child> {
    let Ok(configuration) = view.base.configuration() else { return Vec::new() };
    let exists = |label: &str| {
        configuration.external_dns_controllers.iter().any(|controller| names::label_value(&controller.name) == label)
    };
    let removed = view.children.iter().filter(|child| !child.controller.is_empty() && !exists(&child.controller));
    removed.map(|child| to_delete(&view.target, child)).collect()
}

/// Deletes DNSEndpoints whose Gateway or Service is deleted, once it has been so for long enough: a replaced object is back by then.
fn withdraw_absent(view: &View, now: Timestamp, which: impl Fn(&ChildView) -> bool, plan: &mut Plan) {
    let children: Vec<&ChildView> = view.children.iter().filter(|child| which(child)).collect();
    if children.is_empty() {
        return;
    }
    let since = view.memory.absent_since.unwrap_or(now);
    let absent = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    plan.memory.absent_since = Some(since);
    match view.base.settings.withdraw_after.checked_sub(absent).filter(|left| !left.is_zero()) {
        Some(left) => plan.again = Some(left),
        None => plan.delete = children.into_iter().map(|child| to_delete(&view.target, child)).collect(),
    }
}
