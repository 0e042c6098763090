//! A ServiceRoute: a CNAME from its host to its gateway, as one DNSEndpoint per selected controller.
//!
//! The status names the first thing that is in the way. Withdrawals are decided apart from that: see `withdraws`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::json;
use signpost_apis::{
    externaldns::DnsEndpoint,
    router::{DNSPolicySpec, ExternalDNSController, ServiceRouteSpec},
};
use signpost_dns::Fqdn;
use signpost_engine::{Child, Identity};
use signpost_planning::{Reason, Refusal};

use crate::{
    index::{
        RouterKey,
        facts::{Id, SERVICE_ROUTE, SOURCE_NAMESPACE},
    },
    plan::{
        Base, Blame, Plan, endpoint, names, owner_of,
        policy::{self, Selection},
        proof,
    },
    report::status::{Decision, Detail, NOTICE, READY, Told, Verdict},
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
    /// Its DNSEndpoints: name and controller.
    pub(crate) children: Vec<(String, Arc<str>)>,
    /// Names of its namespace that DNSEndpoints of other objects of ours have.
    pub(crate) occupied: BTreeSet<String>,
}

/// A ServiceRoute that exists.
#[derive(Debug)]
pub(crate) struct RouteView {
    pub(crate) identity: Identity,
    pub(crate) spec: Arc<ServiceRouteSpec>,
    pub(crate) host: Option<Result<Fqdn, Arc<str>>>,
    /// The older route that owns the host, and whether it is published.
    pub(crate) holder: Option<(Id, bool)>,
    /// The DNSPolicy of the namespace.
    pub(crate) policy: Option<(String, Arc<DNSPolicySpec>)>,
    /// A DNSPolicy of the namespace that would be used, and cannot be read.
    pub(crate) unreadable_policy: Option<String>,
    pub(crate) gateway: Id,
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
pub(crate) fn plan(view: &View) -> Plan {
    let mut plan = Plan::new(RouterKey::Route(view.id.clone()));
    let Some(route) = view.route.as_ref().filter(|route| !route.identity.is_deleting()) else {
        plan.delete = view.children.iter().map(|(name, _)| child_to_delete(view, name)).collect();
        return plan;
    };
    plan.about = Some(route.identity.clone());
    let selection = route.policy.as_ref().map(|(_, policy)| policy::select(policy, &view.base));
    let judged = judge(view, route, selection.as_ref());
    let host = route.host.as_ref().and_then(|host| host.as_ref().ok());
    let kept = |keep: &dyn Fn(&str) -> bool| -> Vec<(String, String)> {
        let kept = view.children.iter().filter(|(name, _)| keep(name));
        kept.map(|(name, controller)| (name.clone(), controller.to_string())).collect()
    };
    let detail = |target: Option<&Fqdn>, endpoints: Vec<(String, String)>| Detail::Route {
        host: host.map(|host| host.undotted().to_owned()),
        target: target.map(|target| target.undotted().to_owned()),
        endpoints,
    };
    match judged {
        Ok(publication) => {
            let wanted = endpoints(view, route, &publication, &mut plan);
            let names: BTreeSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
            let stale = view.children.iter().filter(|(name, _)| !names.contains(name.as_str()));
            plan.delete = stale.map(|(name, _)| child_to_delete(view, name)).collect();
            let detail = detail(Some(&publication.target), wanted);
            plan.blame = Blame::Object { judged: route.identity.clone(), detail: detail.clone() };
            plan.decisions = published(view, route, publication, detail);
        }
        Err((phase, told, refusal)) => {
            let withdrawn = withdraws(view, route, selection.as_ref());
            let remains = |name: &str| !withdrawn.contains(name);
            plan.delete = withdrawn.iter().map(|name| child_to_delete(view, name)).collect();
            let detail = detail(None, kept(&remains));
            plan.blame = Blame::Object { judged: route.identity.clone(), detail: detail.clone() };
            let verdict = Verdict { phase: Some(phase), told: vec![told], refusal, detail };
            plan.decisions.push(Decision::Object { judged: route.identity.clone(), verdict });
            // An older route must not wait for a younger one that is withdrawn.
            if let Some(host) = host.filter(|_| !withdrawn.is_empty() || view.children.is_empty()) {
                plan.decisions.push(Decision::Published {
                    judged: route.identity.clone(),
                    host: host.clone(),
                    published: false,
                });
            }
        }
    }
    plan
}

/// The names of the DNSEndpoints that a decision withdraws, although nothing new can be published.
fn withdraws(view: &View, route: &RouteView, selection: Option<&Selection>) -> BTreeSet<String> {
    let all = || view.children.iter().map(|(name, _)| name.clone()).collect();
    if matches!(route.holder, Some((_, true))) {
        return all();
    }
    match selection {
        Some(Selection::Inactive(_)) => all(),
        Some(Selection::Active(selected)) if selected.is_empty() => {
            let Ok(configuration) = view.base.configuration() else { return BTreeSet::new() };
            let exists = |name: &str| {
                configuration
                    .external_dns_controllers
                    .iter()
                    .any(|controller| names::label_value(&controller.name) == name)
            };
            view.children.iter().filter(|(_, controller)| !exists(controller)).map(|(name, _)| name.clone()).collect()
        }
        Some(Selection::Active(selected)) if view.installed => {
            let publishes = |label: &str| selected.iter().any(|one| names::label_value(&one.name) == label);
            let deselected = view.children.iter().filter(|(_, label)| !label.is_empty() && !publishes(label));
            deselected.map(|(name, _)| name.clone()).collect()
        }
        Some(Selection::Active(_) | Selection::Unknown(_)) | None => BTreeSet::new(),
    }
}

type Obstacle = (&'static str, Told, Option<Refusal>);

fn obstacle(phase: &'static str, reason: Reason, message: impl Into<String>) -> Obstacle {
    let refusal = Refusal::new(reason, message);
    (phase, Told::new(READY, false, reason.as_str(), refusal.message.clone()), Some(refusal))
}

fn judge(view: &View, route: &RouteView, selection: Option<&Selection>) -> Result<Publication, Obstacle> {
    let ServiceRouteSpec { service_name, gateway_name, gateway_namespace: _, environment, application } = &*route.spec;
    for (field, value) in [
        ("serviceName", service_name),
        ("gatewayName", gateway_name),
        ("environment", environment),
        ("application", application),
    ] {
        if value.trim().is_empty() {
            return Err(obstacle("Failed", Reason::ValidationFailed, format!("spec.{field} is empty; write a value")));
        }
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
            return Err(("Pending", Told::new(READY, false, "DNSPolicyInactive", message), None));
        }
        (Some(_), Some(Selection::Unknown(refusal))) => {
            return Err(obstacle("Pending", refusal.reason, refusal.message.clone()));
        }
        (None, _) | (_, None) => {
            let namespace = view.id.namespace.as_deref().unwrap_or_default();
            let message = match &route.unreadable_policy {
                Some(policy) => format!(
                    "DNSPolicy {policy} is the oldest of the namespace {namespace} and cannot be read. Apply it again in a valid form, or delete it; what is published is kept"
                ),
                None => format!("the namespace {namespace} has no DNSPolicy. Create one; what is published is kept"),
            };
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
        let message = "the DNSPolicy selects no external-dns controller: none has the region of this cluster or an adopted one. Add one to DNSConfiguration (DNSEndpointGenerationFailed)";
        return Err(obstacle("Failed", Reason::NoControllers, message));
    }
    if !view.installed {
        let message =
            "the CRD dnsendpoints.externaldns.k8s.io is not installed. Install it; the route is published then";
        return Err(obstacle("Pending", Reason::KindNotInstalled, message));
    }
    Ok(Publication { host, target, controllers })
}

/// Adds the DNSEndpoints to the plan; returns their names and controllers.
fn endpoints(view: &View, route: &RouteView, publication: &Publication, plan: &mut Plan) -> Vec<(String, String)> {
    let Publication { host, target, controllers } = publication;
    let id = &view.id;
    let value = names::label_value(&id.name);
    let records = json!([{ "dnsName": host.undotted(), "recordType": "CNAME", "targets": [target.undotted()] }]);
    let mut wanted = Vec::new();
    for controller in controllers {
        let plain = names::route_child(&id.name, &controller.name);
        let name = if view.occupied.contains(&plain) {
            names::instead_of(&plain, &[&id.name, &controller.name])
        } else {
            plain
        };
        let namespace = id.namespace.clone().unwrap_or_default();
        let labels = BTreeMap::from([(SOURCE_NAMESPACE, names::label_value(&namespace))]);
        let content = endpoint(controller, &view.base.settings.annotation, labels, &records);
        let proof = proof([(SERVICE_ROUTE, &value)], Some(owner_of(&route.identity)));
        plan.apply.push((Child::new::<DnsEndpoint>(id.namespace.as_deref(), &name, proof), content));
        wanted.push((name, names::label_value(&controller.name)));
    }
    wanted
}

fn child_to_delete(view: &View, name: &str) -> Child {
    let id = &view.id;
    // A child belongs to the route by its owner, even when its label was edited.
    let owner = view.route.as_ref().map(|route| owner_of(&route.identity));
    let proof = proof([(SERVICE_ROUTE, &names::label_value(&id.name))], owner);
    Child::new::<DnsEndpoint>(id.namespace.as_deref(), name, proof)
}

fn published(view: &View, route: &RouteView, publication: Publication, detail: Detail) -> Vec<Decision> {
    let host = publication.host;
    let mut told = vec![Told::new(READY, true, "ReconciliationSucceeded", "ServiceRoute is active")];
    let mut refusal = None;
    if let Some(excess) = names::txt_excess(&host, view.base.settings.txt_prefix_length) {
        let message = format!(
            "{} is published, but the name of external-dns's ownership record would be {excess} characters too long, so external-dns does not own the record. Shorten serviceName, environment, application or --txt-prefix",
            host.undotted()
        );
        told.push(Told::new(NOTICE, true, Reason::TxtNameTooLong.as_str(), message.clone()));
        refusal = Some(Refusal::new(Reason::TxtNameTooLong, message));
    }
    let verdict = Verdict { phase: Some("Active"), told, refusal, detail };
    let judged = route.identity.clone();
    vec![Decision::Object { judged: judged.clone(), verdict }, Decision::Published { judged, host, published: true }]
}
