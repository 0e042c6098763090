//! Writes: verdicts into the index, components and the main portal into the cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use signpost_apis::portal::{API_VERSION, Component, Portal};
use signpost_engine::{Child, ChildError, Proof};

use crate::plan::component::{DNS_CONTROLLER, MANAGED_BY, PORTAL};
use crate::plan::{DnsPlan, Plan};
use crate::{PortalSystem, served};

/// The label of the main portal that the operator creates.
const CREATED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "signpost");

/// The result of a plan.
#[derive(Debug)]
pub struct ApplyResult {
    /// The plan.
    pub plan: Plan,
    /// The objects that the API server did not accept.
    pub error: Option<ChildError>,
}

pub(crate) async fn apply(system: &PortalSystem, plan: Plan) -> ApplyResult {
    let error = match &plan {
        Plan::Dns(dns) => {
            // First the names: an error with a component does not hold them up.
            system.objects.judged(&dns.identity, dns.verdicts.clone());
            reconcile_components(system, dns).await.err()
        }
        Plan::Names(names) => {
            served::judge(system, names);
            None
        }
        Plan::Main(namespace) => create_main(system, namespace).await.err(),
        Plan::Portal(..) | Plan::Component(..) | Plan::Nothing => None,
    };
    ApplyResult { plan, error }
}

/// Creates or changes the component first, and deletes what is left of earlier ones after that.
async fn reconcile_components(system: &PortalSystem, plan: &DnsPlan) -> Result<(), ChildError> {
    let (id, uid) = (&plan.identity.id, &plan.identity.uid);
    let owner = OwnerReference {
        api_version: API_VERSION.into(),
        kind: "DNS".into(),
        name: id.name.clone(),
        uid: uid.to_string(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let child =
        |name: &str| Child::new::<Component>(id.namespace.as_deref(), name, Proof::Owner(Box::new(owner.clone())));
    if let Some((wish, state)) = &plan.component.apply {
        // A user may have declared another state while names were looked up.
        let owned = system.objects.owned_by(uid);
        let known = owned.iter().find(|(id, _)| id.name == wish.name).or(owned.first());
        let state = known.map_or(*state, |(_, state)| *state);
        let mut spec = json!({
            "displayName": wish.display_name,
            "group": wish.group,
            "portalRef": plan.facts.portal,
            "status": state.as_str(),
        });
        for (field, value) in [("description", &wish.description), ("link", &wish.link)] {
            if let Some(value) = value {
                spec[field] = json!(value);
            }
        }
        let mut labels = json!({ MANAGED_BY: DNS_CONTROLLER });
        // A label has 63 characters at most; the portal is in the spec too.
        if plan.facts.portal.len() <= 63 {
            labels[PORTAL] = json!(plan.facts.portal);
        }
        let content = json!({ "metadata": { "labels": labels }, "spec": spec });
        system.writer.apply_child(&child(&wish.name), &content).await?;
    }
    for name in &plan.component.delete {
        system.writer.delete_child(&child(name)).await?;
    }
    Ok(())
}

async fn create_main(system: &PortalSystem, namespace: &str) -> Result<(), ChildError> {
    let proof = Proof::Label { key: CREATED_BY.0.into(), value: CREATED_BY.1.into() };
    let child = Child::new::<Portal>(Some(namespace), "main", proof);
    let content = json!({ "spec": { "title": "Main Portal", "main": true } });
    system.writer.apply_child(&child, &content).await.map(drop)
}
