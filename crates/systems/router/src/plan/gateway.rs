//! A Gateway: one Istio Gateway with one HTTPS server and the hosts of its routes.
//!
//! A host that another route owns, or that is not a host name, is left out: Istio drops a whole server for one duplicate host, and its
//! webhook rejects a whole object for one bad host.

use std::sync::Arc;

use serde_json::json;
use signpost_apis::{istio::IstioGateway, router::GatewaySpec};
use signpost_dns::Fqdn;
use signpost_engine::{Child, Identity};
use signpost_planning::{Reason, Refusal};

use crate::{
    index::{
        RouterKey,
        facts::{GATEWAY, ISTIO, Id},
    },
    plan::{Base, Blame, Plan, names, owner_of, proof},
    report::status::{Decision, Detail, READY, Told, Verdict},
};

/// A Gateway and its hosts.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) id: Id,
    pub(crate) base: Base,
    /// Whether Istio Gateways can be written.
    pub(crate) installed: bool,
    /// Whether an Istio Gateway of that name exists, and every route could be read.
    pub(crate) may_delete: bool,
    /// `None` when it is deleted.
    pub(crate) gateway: Option<(Identity, Arc<GatewaySpec>)>,
    /// The hosts of its routes, in order, without those that it must not have.
    pub(crate) hosts: Vec<Fqdn>,
    /// How many of its routes have no host in the list.
    pub(crate) left_out: usize,
}

/// Plans the Istio Gateway. When its Gateway is deleted, the cluster deletes it with its owner.
pub(crate) fn plan(view: &View) -> Plan {
    let mut plan = Plan::new(RouterKey::Gateway(view.id.clone()));
    let Some((identity, spec)) = view.gateway.as_ref().filter(|(identity, _)| !identity.is_deleting()) else {
        return plan;
    };
    plan.about = Some(identity.clone());
    let detail = |hosts: Option<usize>| Detail::Gateway { hosts };
    let mut decide = |phase: &'static str, told: Told, refusal: Option<Refusal>, hosts: Option<usize>| {
        let verdict = Verdict { phase: Some(phase), told: vec![told], refusal, detail: detail(hosts) };
        plan.decisions.push(Decision::Object { judged: identity.clone(), verdict });
    };
    if let Err((phase, refusal)) = check(view, spec) {
        let told = Told::new(READY, false, refusal.reason.as_str(), refusal.message.clone());
        decide(phase, told, Some(refusal), None);
        return plan;
    }
    let owner = proof([(GATEWAY, &names::label_value(&view.id.name))], Some(owner_of(identity)));
    let child = Child::new::<IstioGateway>(view.id.namespace.as_deref(), &view.id.name, owner);
    if view.hosts.is_empty() {
        let why = match view.left_out {
            0 => "no ServiceRoute uses this Gateway".to_owned(),
            routes => {
                format!("{routes} ServiceRoutes use this Gateway, and none of them has a host that can be served")
            }
        };
        decide("Pending", Told::new(READY, false, "NoServiceRoutes", why), None, Some(0));
        if view.may_delete && view.installed {
            plan.delete.push(child);
        }
        plan.blame = Blame::Object { judged: identity.clone(), detail: detail(None) };
        return plan;
    }
    let count = view.hosts.len();
    let mut message = format!("Istio Gateway has {count} hosts (ReconciliationSucceeded)");
    if view.left_out > 0 {
        message = format!("{message}; {} routes are left out, see their status", view.left_out);
    }
    decide("Active", Told::new(READY, true, "GatewayCreated", message), None, Some(count));
    let hosts: Vec<&str> = view.hosts.iter().map(Fqdn::undotted).collect();
    let content = json!({
        "spec": {
            "selector": { ISTIO: spec.controller },
            "servers": [{
                "port": { "number": 443, "name": "https", "protocol": "HTTPS" },
                "tls": { "mode": "SIMPLE", "credentialName": spec.credential_name },
                "hosts": hosts,
            }],
        },
    });
    plan.apply.push((child, content));
    plan.blame = Blame::Object { judged: identity.clone(), detail: detail(None) };
    plan
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
