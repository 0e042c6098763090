//! Writes: verdicts into the index, components and the main portal into the cluster.

use std::time::Duration;

use kube::{Api, ResourceExt};
use serde_json::json;
use signpost_apis::portal::{Component, ComponentState, DNS, Portal};
use signpost_engine::{Child, ChildError, Identity, Proof, WriteError};
use signpost_inventory::Source;

use crate::observe::remote::copies_of;
use crate::plan::component::{DNS_CONTROLLER, MANAGED_BY, PORTAL, SOURCE_CONTROLLER, Wish};
use crate::plan::remote::copy_name;
use crate::plan::{DnsPlan, Plan};
use crate::{PortalSystem, served};

/// The label of the main portal that the operator creates.
const CREATED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "signpost");

/// How long the API server may take for an object.
const PATIENCE: Duration = Duration::from_secs(10);

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
            if dns.facts.source != Source::Remote {
                system.objects.judged(&dns.identity, dns.verdicts.clone());
            }
            reconcile_components(system, dns).await.err()
        }
        Plan::Names(names) => {
            served::judge(system, names);
            None
        }
        Plan::Main(main) if main.missing => create_main(system, &main.namespace).await.err(),
        Plan::Portal(identity, _, true) => {
            let leftovers = copies_of(&system.objects, identity).into_iter().map(|copy| copy.part);
            keep_copies(system, identity, &[], leftovers.collect()).await.err()
        }
        Plan::Remote(remote) => {
            keep_copies(system, &remote.identity, &remote.create, remote.delete.clone()).await.err()
        }
        Plan::Portal(..) | Plan::Later(_) | Plan::Component(..) | Plan::Main(_) | Plan::Nothing => None,
    };
    ApplyResult { plan, error }
}

/// Creates and deletes DNS objects with names of a remote portal.
async fn keep_copies(
    system: &PortalSystem,
    portal: &Identity,
    create: &[usize],
    delete: Vec<usize>,
) -> Result<(), ChildError> {
    let content = json!({ "spec": { "portalRef": portal.id.name, "isRemote": true } });
    for part in create {
        system.writer.apply_child(&copy_of(portal, *part), &content).await?;
    }
    for part in delete {
        system.writer.delete_child(&copy_of(portal, part)).await?;
    }
    Ok(())
}

/// A DNS object with names of a remote portal, which owns it.
fn copy_of(portal: &Identity, part: usize) -> Child {
    let proof = Proof::Owner(Box::new(portal.owner_reference()));
    Child::new::<DNS>(portal.id.namespace.as_deref(), &copy_name(&portal.id.name, part), proof)
}

/// The state of a component is set when it is created, and kept from then on: users declare it.
const DECLARED: &str = "/spec/status";

/// Creates or changes the component first, and deletes what is left of earlier ones after that.
async fn reconcile_components(system: &PortalSystem, plan: &DnsPlan) -> Result<(), ChildError> {
    let id = &plan.identity.id;
    let proof = Proof::Owner(Box::new(plan.identity.owner_reference()));
    let child = |name: &str| Child::new::<Component>(id.namespace.as_deref(), name, proof.clone());
    if let Some((wish, state)) = &plan.component.apply {
        let state = declared(system, &plan.identity, wish, *state).await?;
        let mut spec = json!({
            "displayName": wish.display_name,
            "group": wish.group,
            "portalRef": wish.portal,
            "status": state.as_str(),
        });
        for (field, value) in [("description", &wish.description), ("link", &wish.link)] {
            if let Some(value) = value {
                spec[field] = json!(value);
            }
        }
        let by = if plan.facts.source == Source::ExternalDns { SOURCE_CONTROLLER } else { DNS_CONTROLLER };
        let mut labels = json!({ MANAGED_BY: by });
        // A label has 63 characters at most; the portal is in the spec too.
        if wish.portal.len() <= 63 {
            labels[PORTAL] = json!(wish.portal);
        }
        let content = json!({ "metadata": { "labels": labels }, "spec": spec });
        system.writer.apply_child_keeping(&child(&wish.name), &content, &[DECLARED]).await?;
        system.objects.wrote(&plan.identity, &wish.name);
    }
    for name in &plan.component.delete {
        system.writer.delete_child(&child(name)).await?;
    }
    Ok(())
}

/// The state of a component that is written now. A component that replaces another one has the state of the youngest before it, which may be one that
/// the watch has not delivered. The state is read from the API server, because a user may have declared it a moment ago.
async fn declared(
    system: &PortalSystem,
    identity: &Identity,
    wish: &Wish,
    planned: ComponentState,
) -> Result<ComponentState, ChildError> {
    let owned = system.objects.owned_by(identity);
    if let Some(same) = owned.iter().find(|component| component.id.name == wish.name) {
        system.objects.delivered(identity);
        return Ok(same.state);
    }
    let written = system.objects.written(identity).filter(|name| *name != wish.name);
    let mut names: Vec<String> = written.into_iter().collect();
    names.extend(owned.iter().filter(|it| !it.leaving).map(|it| it.id.name.clone()));
    let namespace = identity.id.namespace.as_deref().unwrap_or_default();
    let api: Api<Component> = Api::namespaced(system.client.clone(), namespace);
    for name in &names {
        let failed = |why: String| {
            let why = format!("Component {namespace}/{name} cannot be read: {why}");
            ChildError::Write(WriteError::Transient(why))
        };
        let read = tokio::time::timeout(PATIENCE, api.get_opt(name)).await;
        let live = read.map_err(|_| failed("the API server does not answer".into()))?;
        let live = live.map_err(|error| failed(error.to_string()))?;
        if let Some(before) = live.filter(|component| stays(component, identity)) {
            return Ok(before.spec.status);
        }
    }
    Ok(planned)
}

/// Whether a component belongs to an object, and is not being deleted.
fn stays(component: &Component, owner: &Identity) -> bool {
    component.metadata.deletion_timestamp.is_none()
        && component.owner_references().iter().any(|reference| *reference.uid == *owner.uid)
}

async fn create_main(system: &PortalSystem, namespace: &str) -> Result<(), ChildError> {
    let proof = Proof::Label { key: CREATED_BY.0.into(), value: CREATED_BY.1.into() };
    let child = Child::new::<Portal>(Some(namespace), "main", proof);
    let content = json!({ "spec": { "title": "Main Portal", "main": true } });
    system.writer.apply_child(&child, &content).await.map(drop)
}
