//! A Gateway: one Istio Gateway with one HTTPS server and the hosts of its routes.
//!
//! A host that another route owns, or that is not a host name, is left out: Istio drops a whole server for one duplicate host, and its
//! webhook rejects a whole object for one bad host.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use signpost_apis::{istio::IstioGateway, router::GatewaySpec};
use signpost_dns::Fqdn;
use signpost_engine::{Child, Identity, ObjectId};
use signpost_planning::{Reason, Refusal};

use crate::{
    index::{
        RouterKey,
        facts::{GATEWAY, ISTIO, Id},
        istio::{HTTPS, Written},
    },
    plan::{Absent, Base, Blame, Memory, Plan, names, proof},
    report::{
        states::State,
        status::{Decision, Detail, ObjectStatus, READY, Reported},
    },
};

/// A Gateway and its hosts.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) id: Id,
    pub(crate) base: Base,
    /// Whether Istio Gateways can be written.
    pub(crate) installed: bool,
    /// Whether an Istio Gateway of that name exists, and none of its hosts may be that of a route that cannot be read.
    pub(crate) may_delete: bool,
    /// Whether the Gateway is deleted, and its Istio Gateway exists.
    pub(crate) orphaned: bool,
    /// `None` when it is deleted.
    pub(crate) gateway: Option<(Identity, Arc<GatewaySpec>)>,
    /// The hosts of its routes, in order, without those that it must not have.
    pub(crate) hosts: Vec<Fqdn>,
    /// Hosts of its routes that another Istio Gateway of the same pods still has.
    pub(crate) waiting: Vec<(Fqdn, ObjectId)>,
    /// How many of its routes have no host in either list.
    pub(crate) left_out: usize,
    /// What the Istio Gateway has, where it is ours.
    pub(crate) written: Option<Written>,
    pub(crate) memory: Memory,
}

/// How long another Istio Gateway may keep a host before that is reported: usually it is written within a second or two.
const HAND_OVER: Duration = Duration::from_secs(10);

/// Plans the Istio Gateway.
pub(crate) fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::new(RouterKey::Gateway(view.id.clone()));
    let Some((identity, spec)) = &view.gateway else {
        delete_orphan(view, now, &mut plan);
        return plan;
    };
    plan.about = Some(identity.clone());
    let owner = proof([(GATEWAY, &names::label_value(&view.id.name))], Some(identity.owner_reference()));
    let child = Child::new::<IstioGateway>(view.id.namespace.as_deref(), &view.id.name, owner);
    if identity.is_deleting() {
        give_up(view, child, &mut plan);
        return plan;
    }
    let detail = |hosts: Option<usize>| Detail::Gateway { hosts };
    let conflict = waits(view, now, &mut plan);
    let mut decide = |phase: &'static str, reported: Reported, refusal: Option<Refusal>, hosts: Option<usize>| {
        let notices = conflict.clone().into_iter().collect();
        let verdict =
            ObjectStatus { phase: Some(phase), conditions: vec![reported], refusal, notices, detail: detail(hosts) };
        plan.decisions.push(Decision::Object { judged: identity.clone(), verdict });
    };
    if let Err((phase, refusal)) = check(view, spec) {
        let reported = Reported::new(READY, false, refusal.reason, refusal.message.clone());
        decide(phase, reported, Some(refusal), None);
        give_up(view, child, &mut plan);
        return plan;
    }
    if view.hosts.is_empty() {
        let why = match (view.waiting.len(), view.left_out) {
            (0, 0) => "no ServiceRoute uses this Gateway".to_owned(),
            (hosts @ 1.., _) => format!("{hosts} hosts follow when another Istio Gateway does not have them any more"),
            (0, routes) => {
                format!("{routes} ServiceRoutes use this Gateway, and none of them has a host that can be served")
            }
        };
        decide("Pending", Reported::new(READY, false, State::NoServiceRoutes, why), None, Some(0));
        if view.may_delete && view.installed {
            plan.withdraw.push(child);
        }
        plan.blame = Blame::Object { judged: identity.clone(), detail: detail(None) };
        return plan;
    }
    let count = view.hosts.len();
    let mut message = format!("Istio Gateway has {count} hosts (ReconciliationSucceeded)");
    if view.left_out > 0 {
        message = format!("{message}; {} routes are left out, see their status", view.left_out);
    }
    if !view.waiting.is_empty() {
        let more = view.waiting.len();
        message = format!("{message}; {more} more follow when another Istio Gateway does not have them any more");
    }
    decide("Active", Reported::new(READY, true, State::GatewayCreated, message), None, Some(count));
    plan.apply.push((child, content(&spec.controller, &spec.credential_name, view.hosts.iter())));
    plan.blame = Blame::Object { judged: identity.clone(), detail: detail(None) };
    plan
}

/// The content of an Istio Gateway.
fn content<'a>(controller: &str, credential: &str, hosts: impl Iterator<Item = &'a Fqdn>) -> Value {
    let hosts: Vec<&str> = hosts.map(Fqdn::undotted).collect();
    json!({
        "spec": {
            "selector": { ISTIO: controller },
            "servers": [{
                "port": { "number": HTTPS, "name": "https", "protocol": "HTTPS" },
                "tls": { "mode": "SIMPLE", "credentialName": credential },
                "hosts": hosts,
            }],
        },
    })
}

/// Deletes the Istio Gateway of a deleted Gateway by its labels. The cluster deletes it by its owner, but not after a deletion with
/// `--cascade=orphan`. A Gateway that is replaced is back by then.
fn delete_orphan(view: &View, now: Timestamp, plan: &mut Plan) {
    if !view.orphaned {
        return;
    }
    (plan.memory.absent_since, plan.again) =
        view.memory.absent(Absent::Gateway, now, view.base.settings.withdraw_after);
    if plan.again.is_none() {
        let labels = proof([(GATEWAY, &names::label_value(&view.id.name))], None);
        plan.withdraw.push(Child::new::<IstioGateway>(view.id.namespace.as_deref(), &view.id.name, labels));
    }
}

/// A Gateway that is refused, or being deleted, keeps its Istio Gateway as it is. Only hosts that are not its own any more are removed: another
/// Gateway of the same pods must not wait for them until this one is corrected, or its last finalizer is removed.
fn give_up(view: &View, child: Child, plan: &mut Plan) {
    let Some(Written { controller, credential, hosts }) = view.written.as_ref().filter(|_| view.installed) else {
        return;
    };
    // Without an identity, no route has a host.
    if view.base.identity().is_err() {
        return;
    }
    let waits = |host: &Fqdn| view.waiting.iter().any(|(waiting, _)| waiting == host);
    let kept: Vec<&Fqdn> = hosts.iter().filter(|host| view.hosts.binary_search(host).is_ok() || waits(host)).collect();
    if kept.len() == hosts.len() {
        return;
    }
    if !kept.is_empty() {
        plan.apply.push((child, content(controller, credential, kept.into_iter())));
    } else if view.may_delete {
        plan.withdraw.push(child);
    }
}

/// The report about hosts that another Istio Gateway keeps for too long.
fn waits(view: &View, now: Timestamp, plan: &mut Plan) -> Option<Refusal> {
    let (host, other) = view.waiting.first()?;
    (plan.memory.absent_since, plan.again) = view.memory.absent(Absent::Host, now, HAND_OVER);
    if plan.again.is_some() {
        return None;
    }
    let more = match view.waiting.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more hosts"),
    };
    let message = format!(
        "{}{more} cannot be added: Istio Gateway {}/{} selects the same pods and has it, and Istio drops a whole server for one duplicate host. Correct the Gateway of that name, or remove the host there",
        host.undotted(),
        other.namespace.as_deref().unwrap_or_default(),
        other.name
    );
    Some(Refusal::new(Reason::HostConflict, message))
}

fn check(view: &View, spec: &GatewaySpec) -> Result<(), (&'static str, Refusal)> {
    let GatewaySpec { controller, credential_name, target_postfix } = spec;
    let failed = |message: String| Err(("Failed", Refusal::new(Reason::ValidationFailed, message)));
    if !names::is_dns_label(&view.id.name) {
        return failed(format!(
            "Istio does not accept the name {}: it has a dot or more than 63 characters. Create the Gateway under another name",
            view.id.name
        ));
    }
    if controller.is_empty() || !names::is_label_value(controller) {
        return failed(format!(
            "spec.controller {:?} cannot be the value of a label; write the value of the label istio of the gateway's pods",
            controller.chars().take(80).collect::<String>()
        ));
    }
    if credential_name.trim().is_empty() {
        return failed("spec.credentialName is empty; write the name of the Secret with the certificate".to_owned());
    }
    let identity = view.base.identity().map_err(|refusal| ("Pending", refusal))?;
    if let Err(error) = names::target_host(identity, target_postfix) {
        return Err((
            "Failed",
            Refusal::new(
                Reason::InvalidHost,
                format!(
                    "the name of this gateway cannot be used: {error}. Correct spec.targetPostfix, or the ClusterIdentity"
                ),
            ),
        ));
    }
    if !view.installed {
        let message =
            "the CRD gateways.networking.istio.io is not installed. Install Istio; the Istio Gateway is created then";
        return Err(("Pending", Refusal::new(Reason::KindNotInstalled, message)));
    }
    Ok(())
}
