//! A ServiceRoute: a CNAME from its host to its gateway, as one DNSEndpoint per selected controller.
//!
//! The status names the first thing that is in the way. Withdrawals are decided apart from that: see `withdraws`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::json;
use signpost_apis::{
    externaldns::DnsEndpoint,
    router::{DNSPolicySpec, ExternalDNSController, ServiceRouteSpec},
};
use signpost_dns::Fqdn;
use signpost_engine::{Child, Identity, ObjectId};
use signpost_planning::{Reason, Refusal};

use crate::{
    index::{
        RouterKey,
        facts::{Id, SERVICE_ROUTE, SOURCE_NAMESPACE, source_digest},
    },
    plan::{
        Absent, Base, Blame, Memory, Plan, endpoint, names,
        policy::{self, Selection},
        proof,
    },
    report::{
        states::State,
        status::{Decision, Detail, ObjectStatus, READY, Reported},
    },
};

/// A ServiceRoute and everything that it depends on.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) id: Id,
    pub(crate) base: Base,
    /// Whether DNSEndpoints can be written.
    pub(crate) installed: bool,
    /// `None` when it is deleted.
    pub(crate) route: Option<RouteView>,
    /// Its DNSEndpoints.
    pub(crate) children: Vec<ChildView>,
    /// While one of these waits: the name that a further one begins with, by the controller that has none yet.
    pub(crate) begins_with: BTreeMap<Arc<str>, Fqdn>,
    /// Whether one of these waits for the name of the Gateway, and the Gateway has a load balancer.
    pub(crate) has_balancer: bool,
    /// Names of its namespace that DNSEndpoints of other objects of ours have.
    pub(crate) occupied: BTreeSet<String>,
    pub(crate) memory: Memory,
}

/// A DNSEndpoint of the route.
#[derive(Debug)]
pub(crate) struct ChildView {
    pub(crate) name: String,
    /// The controller that publishes it, as the value of a label.
    pub(crate) controller: Arc<str>,
    /// The digest of the host that it publishes, where that is not the host of the route.
    pub(crate) stray: Option<u64>,
    /// Whether another route has published that host.
    pub(crate) displaced: bool,
    /// The digest of the region and the target that it was written with.
    pub(crate) source: u64,
    /// The published name of gateways that it points at, while that of the route's Gateway is not published.
    pub(crate) former: Option<Fqdn>,
}

/// A ServiceRoute that exists.
#[derive(Debug)]
pub(crate) struct RouteView {
    pub(crate) identity: Identity,
    pub(crate) spec: Arc<ServiceRouteSpec>,
    pub(crate) host: Option<Result<Fqdn, Arc<str>>>,
    /// The older route that owns the host, and whether it is published.
    pub(crate) holder: Option<(Id, bool)>,
    /// The controllers that publish the host for that route.
    pub(crate) replaced: BTreeSet<Arc<str>>,
    /// The DNSPolicy of the namespace.
    pub(crate) policy: Option<(String, Arc<DNSPolicySpec>)>,
    /// Why no DNSPolicy of the namespace is used, where none is.
    pub(crate) no_policy: Option<String>,
    pub(crate) gateway: Id,
    /// A foreign Istio Gateway of the pods of the Gateway that has the host.
    pub(crate) foreign_istio: Option<ObjectId>,
    /// The postfix of the Gateway, where it exists.
    pub(crate) postfix: Option<String>,
}

/// The result of the checks.
struct Publication {
    host: Fqdn,
    target: Fqdn,
    controllers: Vec<ExternalDNSController>,
}

/// Plans the DNSEndpoints of a route.
pub(crate) fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::new(RouterKey::Route(view.id.clone()));
    let Some(route) = view.route.as_ref().filter(|route| !route.identity.is_deleting()) else {
        plan.withdraw = view.children.iter().map(|child| child_to_delete(view, &child.name)).collect();
        return plan;
    };
    plan.about = Some(route.identity.clone());
    let selection = route.policy.as_ref().map(|(_, policy)| policy::select(policy, &view.base));
    let judged = judge(view, route, selection.as_ref());
    let host = route.host.as_ref().and_then(|host| host.as_ref().ok());
    let detail = |target: Option<&Fqdn>, endpoints: Vec<(String, String)>| Detail::Route {
        host: host.map(|host| host.undotted().to_owned()),
        target: target.map(|target| target.undotted().to_owned()),
        endpoints,
    };
    match judged {
        Ok(publication) => {
            let waits = waits(view, &publication, now, &mut plan);
            let wanted = endpoints(view, route, &publication, waits, &mut plan);
            let names: BTreeSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
            let stale = view.children.iter().filter(|child| !names.contains(child.name.as_str()));
            // Where a controller is not selected any more, nothing replaces what it has.
            let label = |controller: &str| names::label_value(controller);
            let replaced =
                |child: &&ChildView| wanted.iter().any(|(_, controller)| label(controller) == *child.controller);
            let (replaced, withdrawn): (Vec<_>, Vec<_>) = stale.partition(replaced);
            for child in replaced {
                let by = wanted.iter().find(|(_, controller)| label(controller) == *child.controller);
                let stale = child_to_delete(view, &child.name);
                let by = by.map(|(name, _)| ObjectId::new::<DnsEndpoint>(view.id.namespace.as_deref(), name));
                plan.replaced_by.extend(by.map(|by| (stale.id.clone(), by)));
                plan.delete.push(stale);
            }
            plan.withdraw = withdrawn.into_iter().map(|child| child_to_delete(view, &child.name)).collect();
            let Publication { host, target, controllers } = &publication;
            let former = || controllers.iter().find_map(|controller| former_of(view, controller, host));
            let former = waits.then(former).flatten();
            let detail = detail(Some(former.unwrap_or(target)), wanted);
            plan.blame = Blame::Object { judged: route.identity.clone(), detail: detail.clone() };
            let ready = readiness(route, target, former);
            plan.decisions = published(view, route, publication, ready, detail);
        }
        Err((phase, reported, refusal)) => {
            let is_withdrawn = withdraws(view, route, selection.as_ref());
            let (withdrawn, kept): (Vec<_>, Vec<_>) = view.children.iter().partition(|child| is_withdrawn(child));
            plan.withdraw = withdrawn.iter().map(|child| child_to_delete(view, &child.name)).collect();
            let endpoints = kept.iter().map(|child| (child.name.clone(), controller_of(view, child))).collect();
            let detail = detail(None, endpoints);
            plan.blame = Blame::Object { judged: route.identity.clone(), detail: detail.clone() };
            let verdict =
                ObjectStatus { phase: Some(phase), conditions: vec![reported], refusal, notices: Vec::new(), detail };
            plan.decisions.push(Decision::Object { judged: route.identity.clone(), verdict });
            // An older route must not wait for a younger one that is withdrawn.
            if let Some(host) = host.filter(|_| kept.is_empty()) {
                plan.decisions.push(Decision::Published {
                    judged: route.identity.clone(),
                    host: host.clone(),
                    published: false,
                });
            }
            // When another route publishes what this one does not ask for any more, this one withdraws it.
            let hosts = kept.iter().filter_map(|child| child.stray).collect();
            plan.decisions.push(Decision::Strays { route: view.id.clone(), hosts });
        }
    }
    plan
}

/// Which DNSEndpoints a decision withdraws, although nothing new can be published.
fn withdraws<'a>(
    view: &'a View,
    route: &'a RouteView,
    selection: Option<&'a Selection>,
) -> impl Fn(&ChildView) -> bool + 'a {
    let is_lost = matches!(route.holder, Some((_, true)));
    let has_label = |controllers: &[ExternalDNSController], label: &str| {
        controllers.iter().any(|controller| names::label_value(&controller.name) == label)
    };
    move |child: &ChildView| {
        // What a controller publishes for the owner of the host replaces this one, whatever else the owner waits for.
        if is_lost || child.displaced || route.replaced.contains(&child.controller) {
            return true;
        }
        let label = &*child.controller;
        match selection {
            Some(Selection::Inactive(_)) => true,
            // A region that no controller has may be a mistake. What a removed controller had is not wanted in any case.
            Some(Selection::Active(selected)) if selected.is_empty() => {
                let configuration = view.base.configuration();
                configuration.is_ok_and(|spec| !has_label(&spec.external_dns_controllers, label))
                    || is_as_today(view, route, child)
            }
            Some(Selection::Active(selected)) if view.installed => !label.is_empty() && !has_label(selected, label),
            Some(Selection::Active(_) | Selection::Unknown(_)) | None => false,
        }
    }
}

/// Whether the DNSEndpoint is as this cluster would write it for its controller today. Then neither region has changed, and the controller is one that
/// was selected before: by `adoptsRegions`, or by the mode.
fn is_as_today(view: &View, route: &RouteView, child: &ChildView) -> bool {
    let (Ok(identity), Ok(configuration), Some(postfix)) =
        (view.base.identity(), view.base.configuration(), &route.postfix)
    else {
        return false;
    };
    let of_child = |dns: &&ExternalDNSController| names::label_value(&dns.name) == *child.controller;
    let dns = configuration.external_dns_controllers.iter().find(of_child);
    let target = names::target_host(identity, postfix).ok();
    dns.zip(target)
        .is_some_and(|(dns, target)| child.source == source_digest(&names::label_value(&dns.region), target.undotted()))
}

type Obstacle = (&'static str, Reported, Option<Refusal>);

fn obstacle(phase: &'static str, reason: Reason, message: impl Into<String>) -> Obstacle {
    let refusal = Refusal::new(reason, message);
    (phase, Reported::new(READY, false, reason, refusal.message.clone()), Some(refusal))
}

fn judge(view: &View, route: &RouteView, selection: Option<&Selection>) -> Result<Publication, Obstacle> {
    if let Some(field) = names::empty_field(&route.spec) {
        return Err(obstacle("Failed", Reason::ValidationFailed, format!("spec.{field} is empty; write a value")));
    }
    let identity = view.base.identity().map_err(|refusal| obstacle("Pending", refusal.reason, refusal.message))?;
    let host = match &route.host {
        Some(Ok(host)) => host.clone(),
        Some(Err(why)) => {
            let message = format!(
                "the host of this route cannot be used: {why}. Shorten or correct serviceName, environment or application"
            );
            return Err(obstacle("Failed", Reason::InvalidHost, message));
        }
        None => return Err(obstacle("Pending", Reason::ClusterIdentityNotAvailable, "the host is not known yet")),
    };
    if let Some((holder, _)) = &route.holder {
        let message = format!(
            "{} is already owned by {holder}, which is older. Delete one of the two, or change serviceName, environment or application",
            host.undotted()
        );
        return Err(obstacle("Failed", Reason::HostConflict, message));
    }
    let controllers = match (&route.policy, selection) {
        (Some(_), Some(Selection::Active(controllers))) => controllers.clone(),
        (Some((policy, _)), Some(Selection::Inactive(why))) => {
            let message = format!("DNSPolicy {policy} is not active in this cluster: {why}");
            return Err(("Pending", Reported::new(READY, false, State::DNSPolicyInactive, message), None));
        }
        (Some(_), Some(Selection::Unknown(refusal))) => {
            return Err(obstacle("Pending", refusal.reason, refusal.message.clone()));
        }
        (None, _) | (_, None) => {
            let namespace = view.id.namespace.as_deref().unwrap_or_default();
            let why = route.no_policy.as_deref().unwrap_or("there is no DNSPolicy");
            let message = format!(
                "{why}. Create a DNSPolicy in the namespace {namespace}, or correct it; what is published is kept"
            );
            return Err(obstacle("Pending", Reason::DNSPolicyNotFound, message));
        }
    };
    let Some(postfix) = &route.postfix else {
        let message = format!(
            "there is no {}. Create it, or correct gatewayName or gatewayNamespace; what is published is kept",
            route.gateway
        );
        return Err(obstacle("Failed", Reason::GatewayNotFound, message));
    };
    let target = names::target_host(identity, postfix).map_err(|error| {
        obstacle("Failed", Reason::InvalidHost, format!("the name of {} cannot be used: {error}", route.gateway))
    })?;
    if target == host {
        let message = format!("{} would point at itself: it is also the name of {}", host.undotted(), route.gateway);
        return Err(obstacle("Failed", Reason::InvalidHost, message));
    }
    if controllers.is_empty() {
        let message = "the DNSPolicy selects no external-dns controller: none has the region of this cluster or an adopted one. Add one to DNSConfiguration, or correct the region; what was published before a region was changed is kept (DNSEndpointGenerationFailed)";
        return Err(obstacle("Failed", Reason::NoControllers, message));
    }
    if !view.installed {
        let message =
            "the CRD dnsendpoints.externaldns.k8s.io is not installed. Install it; the route is published then";
        return Err(obstacle("Pending", Reason::KindNotInstalled, message));
    }
    Ok(Publication { host, target, controllers })
}

/// Whether DNSEndpoints wait for the name of the Gateway. Without a load balancer they do so for a while: a Service that is replaced, or created
/// after its Gateway, exists by then. After that, others publish the name.
fn waits(view: &View, publication: &Publication, now: Timestamp, plan: &mut Plan) -> bool {
    let Publication { host, controllers, .. } = publication;
    let has_former = view.children.iter().any(|child| child.former.is_some())
        && controllers.iter().any(|controller| kept_by(view, &names::label_value(&controller.name), host).is_some());
    if !has_former || view.has_balancer {
        return has_former;
    }
    (plan.memory.absent_since, plan.again) =
        view.memory.absent(Absent::Service, now, view.base.settings.withdraw_after);
    plan.again.is_some()
}

/// Adds the DNSEndpoints to the plan; returns their names and controllers.
fn endpoints(
    view: &View,
    route: &RouteView,
    publication: &Publication,
    waits: bool,
    plan: &mut Plan,
) -> Vec<(String, String)> {
    let Publication { host, target, controllers } = publication;
    let id = &view.id;
    let value = names::label_value(&id.name);
    let records =
        |target: &Fqdn| json!([{ "dnsName": host.undotted(), "recordType": "CNAME", "targets": [target.undotted()] }]);
    let mut wanted = Vec::with_capacity(controllers.len());
    for controller in controllers {
        let plain = names::route_child(&id.name, &controller.name);
        let other = names::instead_of(&plain, &[&id.name, &controller.name]);
        let has = |name: &str| view.children.iter().any(|child| child.name == name);
        // A name that it has is kept: the plain one may be a foreign object's by now.
        let name = if view.occupied.contains(&plain) || (has(&other) && !has(&plain)) { other } else { plain };
        let namespace = id.namespace.clone().unwrap_or_default();
        let labels = BTreeMap::from([(SOURCE_NAMESPACE, names::label_value(&namespace))]);
        // A name that is not published has no answer: until it is, the alias is that of a former one.
        let former = waits.then(|| former_of(view, controller, host)).flatten();
        let records = records(former.unwrap_or(target));
        let content = endpoint(controller, &view.base.settings.annotation, labels, &records);
        let proof = proof([(SERVICE_ROUTE, &value)], Some(route.identity.owner_reference()));
        plan.apply.push((Child::new::<DnsEndpoint>(id.namespace.as_deref(), &name, proof), content));
        wanted.push((name, controller.name.clone()));
    }
    wanted
}

/// The published name of gateways that the DNSEndpoint of a controller points at, while that of the route's Gateway is not published. One that
/// does not exist yet begins with the name that the others have.
fn former_of<'a>(view: &'a View, controller: &ExternalDNSController, host: &Fqdn) -> Option<&'a Fqdn> {
    let label = names::label_value(&controller.name);
    let begins_with = || view.begins_with.get(label.as_str()).filter(|former| *former != host);
    kept_by(view, &label, host).or_else(begins_with)
}

/// The same of a DNSEndpoint that exists, by the label of its controller.
fn kept_by<'a>(view: &'a View, label: &str, host: &Fqdn) -> Option<&'a Fqdn> {
    let own = view.children.iter().filter(|child| *child.controller == *label);
    own.filter_map(|child| child.former.as_ref()).find(|former| *former != host)
}

/// The condition of a route that is published.
fn readiness(route: &RouteView, target: &Fqdn, former: Option<&Fqdn>) -> Reported {
    let Some(former) = former else {
        return Reported::new(READY, true, State::ReconciliationSucceeded, "ServiceRoute is active");
    };
    let message = format!(
        "the route still points at {}, because {} is not published yet. DNSReady of {} has the reason",
        former.undotted(),
        target.undotted(),
        route.gateway
    );
    Reported::new(READY, false, State::TargetNotPublished, message)
}

/// The name of the controller that publishes a DNSEndpoint; its label, where the configuration has no such controller.
fn controller_of(view: &View, child: &ChildView) -> String {
    let controllers = view.base.configuration().map_or(&[][..], |spec| &spec.external_dns_controllers);
    let named = controllers.iter().find(|dns| names::label_value(&dns.name) == *child.controller);
    named.map_or_else(|| child.controller.to_string(), |dns| dns.name.clone())
}

fn child_to_delete(view: &View, name: &str) -> Child {
    let id = &view.id;
    // A child belongs to the route by its owner, even when its label was edited.
    let owner = view.route.as_ref().map(|route| route.identity.owner_reference());
    let proof = proof([(SERVICE_ROUTE, &names::label_value(&id.name))], owner);
    Child::new::<DnsEndpoint>(id.namespace.as_deref(), name, proof)
}

fn published(
    view: &View,
    route: &RouteView,
    publication: Publication,
    ready: Reported,
    detail: Detail,
) -> Vec<Decision> {
    let host = publication.host;
    let mut notices = Vec::new();
    if let Some(excess) = names::txt_excess(&host, "CNAME", view.base.settings.txt_prefix_length) {
        let message = format!(
            "{} is published, but the name of external-dns's ownership record would be {excess} characters too long, so external-dns does not own the record. Shorten serviceName, environment, application or --txt-prefix",
            host.undotted()
        );
        notices.push(Refusal::new(Reason::TxtNameTooLong, message));
    }
    if let Some(ObjectId { namespace, name, .. }) = &route.foreign_istio {
        let message = format!(
            "{} is published, but Istio Gateway {}/{name} selects the same pods, has this host and is not generated by this operator: requests are answered with its certificate. Remove the host there",
            host.undotted(),
            namespace.as_deref().unwrap_or_default(),
        );
        notices.push(Refusal::new(Reason::HostConflict, message));
    }
    let phase = Some(if ready.status { "Active" } else { "Pending" });
    let verdict = ObjectStatus { phase, conditions: vec![ready], refusal: None, notices, detail };
    let judged = route.identity.clone();
    vec![Decision::Object { judged: judged.clone(), verdict }, Decision::Published { judged, host, published: true }]
}
