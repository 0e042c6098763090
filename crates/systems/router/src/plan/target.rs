//! The name of a gateway: one DNSEndpoint per external-dns controller, with the addresses of the LoadBalancer Service.
//!
//! ```text
//! addresses ─► A, AAAA        host name ─► CNAME        nothing ─► what is published is kept
//! A ⇄ CNAME: see `types`. A DNSEndpoint of another controller is emptied by its own key.
//! another name ─► both names, see `former`
//! ```

mod former;
mod types;

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
    plan::{Absent, Base, Blame, Memory, Plan, endpoint, names, proof},
    report::{
        states::{State, Why},
        status::{Decision, TargetVerdict},
    },
};

use former::Kept;
pub(crate) use types::Trace;
use types::Wait;

/// The TTL of address records, in seconds, as service-router-operator writes it.
const TTL: i64 = 300;
/// How often a name without a Gateway is checked while routes that are going to move point at it.
const AWAITED: Duration = Duration::from_mins(1);

/// The gateways of one controller and postfix.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) target: Target,
    pub(crate) base: Base,
    pub(crate) installed: bool,
    /// The controller as it is written in the Gateways; `None` when no Gateway names one.
    pub(crate) controller: Option<String>,
    /// The postfix as it is written in them.
    pub(crate) postfix: Option<String>,
    /// The oldest of the Gateways.
    pub(crate) gateway: Option<Identity>,
    /// An older Gateway with the same postfix and another controller.
    pub(crate) holder: Option<Holder>,
    /// The load balancer whose addresses are published, or would be.
    pub(crate) service: Option<ServiceView>,
    /// The one that would be chosen without it, where that has an address.
    pub(crate) next: Option<ServiceView>,
    pub(crate) children: Vec<ChildView>,
    /// Other names that the gateways had, and whether a DNSEndpoint of a route points at each. No other object has one of them now.
    pub(crate) former: BTreeMap<Fqdn, bool>,
    /// Whether no Gateway has the name any more, and a route whose Gateway exists still points at it.
    pub(crate) is_needed: bool,
    /// The class of the records that an external-dns had read, as the status of a Gateway shows it.
    pub(crate) reported: Option<Class>,
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
    /// Host names that it reports and that lead back to it.
    pub(crate) loops: Vec<Fqdn>,
}

/// A DNSEndpoint of the target.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // facts that do not depend on each other
pub(crate) struct ChildView {
    pub(crate) id: Id,
    /// The external-dns controller that publishes it, as the value of a label.
    pub(crate) controller: Arc<str>,
    /// The names that it publishes.
    pub(crate) names: Box<[Fqdn]>,
    pub(crate) class: Class,
    pub(crate) observed: bool,
    pub(crate) read: bool,
    /// Whether this operator publishes it itself.
    pub(crate) ours: bool,
    /// Whether the Service that it was generated for still exists.
    pub(crate) has_service: bool,
    /// That Service, where it is a load balancer or has the label.
    pub(crate) service: Option<Identity>,
    /// Whether the Gateway that owns the name publishes it by the same external-dns controller.
    pub(crate) replaced: bool,
}

/// Plans the DNSEndpoints of a gateway's name.
pub(crate) fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::new(RouterKey::Target(view.target.clone()));
    plan.about.clone_from(&view.gateway);
    plan.memory.traces = types::traces(view, None, now);
    plan.memory.restored = view.memory.restored || view.base.configuration().is_ok();
    let (Some(controller), Some(postfix)) = (&view.controller, &view.postfix) else {
        without_gateway(view, now, &mut plan);
        return plan;
    };
    let host = host_of(view, postfix).ok();
    let kept = former::keep(view, host.as_ref(), now, &mut plan.memory);
    let service = choose(view, now, &mut plan);
    let addresses = service.map(|service| service.points.texts()).unwrap_or_default();
    let text = host.as_ref().map(|host| host.undotted().to_owned());
    let (target, class) = (view.target.clone(), types::class_of(&plan.memory.traces));
    plan.blame = Blame::Target { target, addresses: addresses.clone(), host: text.clone(), class };
    let (reported, notice) = match (judge(view, service, postfix), service, &host) {
        (Ok(()), Some(service), Some(host)) => {
            let records = records(host, &kept.names, &service.points);
            plan.memory.former.insert(host.clone(), None);
            let changing = publish(view, (controller, postfix), service, &records, now, &mut plan);
            (published(view, service, &kept, &changing), notice(view, host, service, &records))
        }
        (Err(obstacle), ..) => {
            let notice = service.filter(|_| matches!(obstacle, Obstacle::NoAddress(_)));
            let notice = notice.and_then(|service| left_out(service, None, host.as_ref()));
            (obstructed(view, obstacle, controller, now, &mut plan), notice)
        }
        // Without either of them there is an obstacle.
        (Ok(()), ..) => return plan,
    };
    plan.again = plan.again.into_iter().chain(kept.again).min();
    let NameReport { ready, reason, message, refusal } = reported;
    let class = types::class_of(&plan.memory.traces);
    let verdict = TargetVerdict { ready, reason, message, refusal, addresses, host: text, class, notice };
    plan.decisions.push(Decision::Target { target: view.target.clone(), verdict });
    plan
}

/// What is reported about the name.
struct NameReport {
    ready: bool,
    reason: Why,
    message: String,
    refusal: Option<Refusal>,
}

/// No Gateway has this controller and postfix any more.
fn without_gateway(view: &View, now: Timestamp, plan: &mut Plan) {
    plan.decisions.push(Decision::TargetGone(view.target.clone()));
    match &view.holder {
        // The name has another controller now: this is a replacement, and two answers would be wrong.
        Some(holder) if holder.published => plan.withdraw = all_to_delete(view),
        Some(holder) if holder.changing => empty(view, plan),
        // Where nothing replaces it yet, the name is kept until then, however long that takes.
        Some(_) => plan.withdraw = replaced(view),
        // The Gateway has another name now, and its routes follow one by one.
        None if view.is_needed => {
            plan.withdraw = without_publisher(view);
            plan.again = Some(AWAITED);
        }
        None => withdraw_absent(view, Absent::Gateway, now, |_| true, plan),
    }
}

/// The name cannot be published: what is withdrawn all the same, and the report.
fn obstructed(view: &View, obstacle: Obstacle, controller: &str, now: Timestamp, plan: &mut Plan) -> NameReport {
    let refused = |refusal: Refusal| NameReport {
        ready: false,
        reason: refusal.reason.into(),
        message: refusal.message.clone(),
        refusal: Some(refusal),
    };
    let waits =
        |message| NameReport { ready: false, reason: State::LoadBalancerIPPending.into(), message, refusal: None };
    let reported = match obstacle {
        Obstacle::Refused(refusal) => refused(refusal),
        Obstacle::Lost(refusal) => {
            plan.withdraw = all_to_delete(view);
            refused(refusal)
        }
        Obstacle::Yields(refusal) => {
            empty(view, plan);
            refused(refusal)
        }
        Obstacle::NoService => {
            withdraw_absent(view, Absent::Service, now, |child| !child.has_service, plan);
            waits(format!(
                "no Service of type LoadBalancer has the label istio={controller}, or is named {controller} in the namespace of the Gateway"
            ))
        }
        Obstacle::NoAddress(message) => waits(message),
    };
    if plan.apply.is_empty() && plan.withdraw.is_empty() {
        plan.withdraw = replaced(view);
        plan.withdraw.extend(without_publisher(view));
    }
    reported
}

/// The report of a name that is published, or whose record type is being changed for these controllers.
fn published(view: &View, service: &ServiceView, kept: &Kept<'_>, changing: &[String]) -> NameReport {
    if changing.is_empty() {
        let count = view.base.configuration().map_or(0, |spec| spec.external_dns_controllers.len());
        let mut message = format!("{count} DNSEndpoints have the addresses of {}", service.identity.id);
        if !kept.pointed_at.is_empty() {
            let names: Vec<&str> = kept.pointed_at.iter().map(|name| name.undotted()).collect();
            message = format!("{message}. DNSEndpoints of routes still point at {}, which is kept", names.join(", "));
        }
        return NameReport { ready: true, reason: State::DNSEndpointsCreated.into(), message, refusal: None };
    }
    let message = format!(
        "the record type changes: the old records are withdrawn, and the new ones follow {:?} after external-dns has read that, or after the withdrawal if it reports nothing ({})",
        view.base.settings.type_change_after,
        changing.join(", ")
    );
    NameReport { ready: false, reason: State::RecordTypeChanging.into(), message, refusal: None }
}

/// The name of the gateways.
fn host_of(view: &View, postfix: &str) -> Result<Fqdn, Refusal> {
    names::target_host(view.base.identity()?, postfix)
        .map_err(|error| Refusal::new(Reason::InvalidHost, format!("the name of this gateway cannot be used: {error}")))
}

/// The load balancer: the one whose addresses are published, until it has had none for a while and another one has some.
fn choose<'a>(view: &'a View, now: Timestamp, plan: &mut Plan) -> Option<&'a ServiceView> {
    let (Some(service), Some(next)) = (&view.service, &view.next) else { return view.service.as_ref() };
    if !service.points.is_empty() {
        return Some(service);
    }
    (plan.memory.absent_since, plan.again) =
        view.memory.absent(Absent::Address, now, view.base.settings.withdraw_after);
    Some(if plan.again.is_some() { service } else { next })
}

/// What works but needs attention.
fn notice(view: &View, host: &Fqdn, service: &ServiceView, (class, records): &Records<'_>) -> Option<Refusal> {
    if let Some(refusal) = left_out(service, Some(*class), Some(host)) {
        return Some(refusal);
    }
    let excess = |rtype: &str| names::txt_excess(host, rtype, view.base.settings.txt_prefix_length);
    let excess = records.iter().filter_map(|(rtype, _)| excess(rtype)).max()?;
    let message = format!(
        "{} is published, but the name of external-dns's ownership record would be {excess} characters too long, so external-dns does not own the record. Shorten spec.targetPostfix, the names in the ClusterIdentity, or --txt-prefix",
        host.undotted()
    );
    Some(Refusal::new(Reason::TxtNameTooLong, message))
}

/// The entries of a load balancer that are not published beside records of the class, by their causes.
fn left_out(service: &ServiceView, class: Option<Class>, host: Option<&Fqdn>) -> Option<Refusal> {
    let Points { names, unusable, left_out, .. } = &service.points;
    let (names, why) = match class {
        Some(Class::Addresses) => (names.len(), "host names, which cannot be beside addresses".to_owned()),
        Some(Class::Alias) => (names.len().saturating_sub(1), "further host names, and an alias has one".to_owned()),
        Some(Class::Empty) | None => (0, String::new()),
    };
    let back = format!("host names that lead back to {}", host.map_or("the gateway", Fqdn::undotted));
    let causes = [
        (*unusable, "neither an address of a host nor a host name".to_owned()),
        (names, why),
        (service.loops.len(), back),
        (*left_out, "beyond the limit of 256".to_owned()),
    ];
    let causes: Vec<(usize, String)> = causes.into_iter().filter(|(count, _)| *count > 0).collect();
    let all: usize = causes.iter().map(|(count, _)| count).sum();
    let texts: Vec<String> = causes.iter().map(|(count, why)| format!("{count} are {why}")).collect();
    (all > 0).then(|| {
        let of = &service.identity.id;
        let message = format!("{all} of the addresses of {of} are not published: {}", texts.join(", "));
        Refusal::new(Reason::AddressesLeftOut, message)
    })
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

fn judge(view: &View, service: Option<&ServiceView>, postfix: &str) -> Result<(), Obstacle> {
    let host = host_of(view, postfix).map_err(Obstacle::Refused)?;
    view.base.configuration().map_err(Obstacle::Refused)?;
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
    let Some(service) = service else { return Err(Obstacle::NoService) };
    if let Some(name) = service.loops.first().filter(|_| service.points.is_empty()) {
        let message = format!(
            "{} reports the host name {}, which leads back to {}. Correct the host name; what is published is kept",
            service.identity.id,
            name.undotted(),
            host.undotted()
        );
        return Err(Obstacle::Refused(Refusal::new(Reason::AliasLoop, message)));
    }
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
fn publish(
    view: &View,
    written: (&str, &str),
    service: &ServiceView,
    (class, records): &Records<'_>,
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<String> {
    let Ok(configuration) = view.base.configuration() else { return Vec::new() };
    let records: Vec<&Value> = records.iter().map(|(_, record)| record).collect();
    let annotation = &view.base.settings.annotation;
    plan.memory.traces = types::traces(view, Some(*class), now);
    let mut kept: BTreeSet<ObjectId> = BTreeSet::new();
    let mut wanted: BTreeMap<Arc<str>, ObjectId> = BTreeMap::new();
    let mut changing = Vec::new();
    for dns in &configuration.external_dns_controllers {
        let child = wanted_child(view, written, service, dns);
        let publisher: Arc<str> = names::label_value(&dns.name).into();
        let before = view.children.iter().find(|before| *before.id == child.id);
        let trace = plan.memory.traces.get(&publisher).copied();
        let same = before.is_some_and(|before| before.class == *class);
        let wait = trace.and_then(|trace| trace.waits(*class, now, view.base.settings.type_change_after));
        kept.insert(child.id.clone());
        wanted.insert(publisher.clone(), child.id.clone());
        if let Some(wait) = wait.filter(|_| !same) {
            changing.push(dns.name.clone());
            if let Wait::Pause(left) = wait {
                plan.again = Some(plan.again.map_or(left, |again| again.min(left)));
            }
            // Also one under another name, or in another namespace: it is deleted when external-dns has nothing of it any more.
            for former in view.children.iter().filter(|former| former.controller == publisher) {
                kept.insert((*former.id).clone());
                plan.apply.push((to_delete(&view.target, former), emptied(view, dns)));
            }
            continue;
        }
        // What is written now may be read before the watch shows anything of it.
        if before.is_none_or(|before| !before.ours) {
            let read = before.is_some_and(|before| before.read) || trace.is_some_and(|trace| trace.read);
            plan.memory.traces.insert(publisher, Trace { class: *class, withdrawn: None, read });
        }
        plan.apply.push((child, endpoint(dns, annotation, BTreeMap::new(), &json!(records))));
    }
    let is_listed = |child: &&ChildView| wanted.contains_key(&child.controller);
    let stale = view.children.iter().filter(|child| !kept.contains(&*child.id));
    let (replaced, removed): (Vec<_>, Vec<_>) = stale.partition(is_listed);
    for child in replaced {
        let stale = to_delete(&view.target, child);
        let by = wanted.get(&child.controller).map(|by| (stale.id.clone(), by.clone()));
        plan.replaced_by.extend(by);
        plan.delete.push(stale);
    }
    plan.withdraw = removed.into_iter().map(|child| to_delete(&view.target, child)).collect();
    changing
}

/// The content of a DNSEndpoint whose records are withdrawn.
fn emptied(view: &View, dns: &ExternalDNSController) -> Value {
    endpoint(dns, &view.base.settings.annotation, BTreeMap::new(), &json!([]))
}

/// Withdraws the records, and keeps the DNSEndpoints until external-dns has read that: records of another type follow.
fn empty(view: &View, plan: &mut Plan) {
    let Ok(configuration) = view.base.configuration() else { return };
    for child in view.children.iter().filter(|child| child.class != Class::Empty) {
        let mut controllers = configuration.external_dns_controllers.iter();
        let Some(dns) = controllers.find(|dns| *names::label_value(&dns.name) == *child.controller) else { continue };
        plan.apply.push((to_delete(&view.target, child), emptied(view, dns)));
    }
}

/// Records, by type.
type Records<'a> = (Class, Vec<(&'a str, Value)>);

/// The records of a load balancer: those of the name, then those of former names.
fn records<'a, 'n>(host: &'n Fqdn, former: &[&'n Fqdn], points: &Points) -> Records<'a> {
    let record = |name: &Fqdn, rtype: &'a str, targets: Vec<String>| {
        (rtype, json!({ "dnsName": name.undotted(), "recordType": rtype, "recordTTL": TTL, "targets": targets }))
    };
    let names = || std::iter::once(host).chain(former.iter().copied());
    let mut records = Vec::new();
    for name in names() {
        if !points.v4.is_empty() {
            records.push(record(name, "A", points.v4.iter().map(ToString::to_string).collect()));
        }
        if !points.v6.is_empty() {
            records.push(record(name, "AAAA", points.v6.iter().map(ToString::to_string).collect()));
        }
    }
    if !records.is_empty() {
        return (Class::Addresses, records);
    }
    // An alias has one target, which is another name, and no address beside it.
    let alias = |target: &Fqdn| {
        let names = names().filter(|name| *name != target);
        names.map(|name| record(name, "CNAME", vec![target.undotted().to_owned()])).collect()
    };
    (Class::Alias, points.names.first().map(alias).unwrap_or_default())
}

fn wanted_child(
    view: &View,
    (controller, postfix): (&str, &str),
    service: &ServiceView,
    dns: &ExternalDNSController,
) -> Child {
    let namespace = service.identity.id.namespace.as_deref();
    let plain = names::target_child(controller, postfix, &dns.name);
    let other = names::instead_of(&plain, &[controller, postfix, &dns.name]);
    let id = |name: &str| ObjectId::new::<DnsEndpoint>(namespace, name);
    let has = |name: &str| view.children.iter().any(|child| *child.id == id(name));
    // A name that it has is kept: the plain one may be a foreign object's by now.
    let name = if view.occupied.contains(&id(&plain)) || (has(&other) && !has(&plain)) { other } else { plain };
    let proof = proof(labels(&view.target), Some(owner(&service.identity)));
    Child::new::<DnsEndpoint>(namespace, &name, proof)
}

/// A Service as an owner. Another Service of the label may take over, and an object has one controller at most.
fn owner(service: &Identity) -> OwnerReference {
    OwnerReference { controller: None, ..service.owner_reference() }
}

fn labels(target: &Target) -> [(&str, &str); 3] {
    [(RESOURCE_TYPE, GATEWAY_SERVICE), (ISTIO_CONTROLLER, &target.controller), (TARGET_POSTFIX, &target.postfix)]
}

fn to_delete(target: &Target, child: &ChildView) -> Child {
    // A child belongs to the gateway by its Service, even when its labels were edited.
    let proof = proof(labels(target), child.service.as_ref().map(owner));
    Child::new::<DnsEndpoint>(child.id.namespace.as_deref(), &child.id.name, proof)
}

fn all_to_delete(view: &View) -> Vec<Child> {
    view.children.iter().map(|child| to_delete(&view.target, child)).collect()
}

/// The DNSEndpoints that the owner of the name has as well: a late write may bring them back.
fn replaced(view: &View) -> Vec<Child> {
    view.children.iter().filter(|child| child.replaced).map(|child| to_delete(&view.target, child)).collect()
}

/// The DNSEndpoints of controllers that were removed from the configuration. An object without the label is older than this operator.
fn without_publisher(view: &View) -> Vec<Child> {
    let Ok(configuration) = view.base.configuration() else { return Vec::new() };
    let exists = |label: &str| {
        configuration.external_dns_controllers.iter().any(|controller| names::label_value(&controller.name) == label)
    };
    let removed = |child: &&ChildView| !child.replaced && !child.controller.is_empty() && !exists(&child.controller);
    let removed = view.children.iter().filter(removed);
    removed.map(|child| to_delete(&view.target, child)).collect()
}

/// Deletes DNSEndpoints whose Gateway or Service is deleted, once it has been so for long enough: a replaced object is back by then.
fn withdraw_absent(view: &View, what: Absent, now: Timestamp, which: impl Fn(&ChildView) -> bool, plan: &mut Plan) {
    let children: Vec<&ChildView> = view.children.iter().filter(|child| which(child)).collect();
    if children.is_empty() {
        return;
    }
    (plan.memory.absent_since, plan.again) = view.memory.absent(what, now, view.base.settings.withdraw_after);
    if plan.again.is_none() {
        plan.withdraw = children.into_iter().map(|child| to_delete(&view.target, child)).collect();
    }
}
