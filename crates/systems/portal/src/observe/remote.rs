//! A visit of a portal in another cluster: its certificates from Secrets of the same namespace, and the names that it answers with.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use signpost_apis::portal::{DNS, RemotePortal as RemoteSpec, SecretRef};
use signpost_engine::{Identity, ObjectId};
use signpost_inventory::Source;
use signpost_planning::{Reason, Refusal};
use signpost_provider_http::Certificates;
use signpost_provider_portal::{PortalOptions, RemoteError, RemoteNames};
use url::Url;

use crate::PortalSystem;
use crate::index::{DnsFacts, Known, Objects, PortalFacts, Remote};
use crate::plan::remote::{Copy, MOST_PARTS, ObservedRemote, Taken, Visit, copy_name};
use crate::plan::{Memory, Observed, Pauses};

/// Portals that are visited at once, over all passes.
pub(crate) const MOST_VISITS: usize = 4;

/// How long the API server may take for a Secret.
const PATIENCE: Duration = Duration::from_secs(5);

/// The code of a request without permission.
const FORBIDDEN: u16 = 403;

/// A remote portal, visited when that is due. The names of a portal take up to 24 MiB while they are read, and some more for a page of the answer, so
/// the visits at once are limited. A pass does not wait for a visit of others to end: it comes back later.
pub(crate) async fn observe(
    system: &PortalSystem,
    known: &Known,
    facts: PortalFacts,
    remote: &Remote,
    memory: Memory,
) -> Observed {
    let (identity, now) = (known.identity.clone(), system.clock.now());
    let pauses = Pauses { refresh: system.pace.refresh, again: system.pace.again };
    // A portal that was deleted and created again may be in another place.
    let last = memory.visit.filter(|visit| visit.portal.asks_the_same(&identity));
    let visit = match last {
        Some(visit) if !visit.is_over(pauses, now) => *visit,
        last => {
            let Ok(_turn) = system.visits.try_acquire() else {
                return Observed::Later(Box::new(Memory { visit: last, ..Memory::default() }));
            };
            let result = visit(system, &identity.id, &remote.spec).await;
            let (at, portal) = (system.clock.now(), identity.clone());
            let (failures, succeeded) = if result.is_ok() {
                (0, Some(at))
            } else {
                let failures = last.as_ref().map_or(0, |last| last.failures).saturating_add(1);
                (failures, last.and_then(|last| last.succeeded))
            };
            Visit { at, portal, result, failures, succeeded }
        }
    };
    let copies = copies_of(&system.objects, &identity);
    let last = remote.sync.clone();
    Observed::Remote(Box::new(ObservedRemote { identity, facts, copies, visit, last, pauses }))
}

/// The DNS objects with names of a portal that are known and belong to the portal.
pub(crate) fn copies_of(objects: &Objects, portal: &Identity) -> Vec<Copy> {
    let copy = |part: usize| {
        let id = ObjectId::new::<DNS>(portal.id.namespace.as_deref(), &copy_name(&portal.id.name, part));
        let known = objects.get(&id).filter(|known| !known.identity.is_deleting())?;
        let ours = |facts: &&DnsFacts| facts.owners.iter().any(|owner| **owner == *portal.uid);
        let facts = known.dns().filter(|facts| facts.source == Source::Remote).filter(ours)?;
        let (groups, omitted) = (facts.taken.clone(), facts.omitted);
        Some(Copy { part, groups, omitted, identity: known.identity })
    };
    (0..MOST_PARTS).filter_map(copy).collect()
}

/// Visits a portal, within the time for it: a pass that takes too long would report nothing.
async fn visit(system: &PortalSystem, portal: &ObjectId, remote: &RemoteSpec) -> Result<Arc<Taken>, Refusal> {
    let unreachable = |why: String| Refusal::new(Reason::RemoteConnectionFailed, why);
    let url: Url = remote.url.parse().map_err(|error| unreachable(format!("spec.remote.url is not a URL: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        // It would be in statuses, events and logs.
        let why =
            "spec.remote.url has a user name or a password; use a client certificate (spec.remote.tls.certSecretRef)";
        return Err(unreachable(why.to_owned()));
    }
    let (place, limit) = (url.origin().ascii_serialization(), system.pace.visit);
    let late = |_| {
        let why = format!("{place} did not send all of its names within {limit:?}; it is asked again");
        Refusal::new(Reason::RemoteFetchFailed, why)
    };
    let names = tokio::time::timeout(limit, read_names(system, portal, remote, url)).await.map_err(late)??;
    Ok(Arc::new(Taken::of(&names)))
}

async fn read_names(
    system: &PortalSystem,
    portal: &ObjectId,
    remote: &RemoteSpec,
    url: Url,
) -> Result<RemoteNames, Refusal> {
    let certificates = certificates(system, portal, remote).await?;
    let insecure = remote.tls.as_ref().and_then(|tls| tls.insecure_skip_verify).unwrap_or(false);
    // The rest of a URL may be a secret.
    let place = url.origin().ascii_serialization();
    let refused = |error: RemoteError| {
        let why = error.to_string();
        match error {
            RemoteError::Setup(_) => {
                Refusal::new(Reason::TLSConfigFailed, format!("{why}; correct the Secrets of spec.remote.tls"))
            }
            RemoteError::Connection(_) => {
                Refusal::new(Reason::RemoteConnectionFailed, format!("{place} cannot be reached: {why}"))
            }
            RemoteError::Answer(_) => Refusal::new(Reason::RemoteFetchFailed, format!("{place}: {why}")),
        }
    };
    let wanted = remote.portal.as_deref().filter(|name| !name.is_empty());
    system.lookups.portals.names(PortalOptions { url, certificates, insecure }, wanted).await.map_err(refused)
}

async fn certificates(system: &PortalSystem, portal: &ObjectId, remote: &RemoteSpec) -> Result<Certificates, Refusal> {
    let Some(tls) = &remote.tls else { return Ok(Certificates::default()) };
    let mut certificates = Certificates::default();
    if let Some(reference) = &tls.ca_secret_ref {
        certificates.ca = Some(read(system, portal, reference, &["ca.crt"]).await?.into());
    }
    if let Some(reference) = &tls.cert_secret_ref {
        certificates.client = Some(read(system, portal, reference, &["tls.crt", "tls.key"]).await?.into());
    }
    Ok(certificates)
}

/// The values of these keys, one after another.
async fn read(
    system: &PortalSystem,
    portal: &ObjectId,
    reference: &SecretRef,
    keys: &[&str],
) -> Result<Vec<u8>, Refusal> {
    let (namespace, name) = (portal.namespace.as_deref().unwrap_or_default(), &reference.name);
    let failed = |why: String| Refusal::new(Reason::TLSConfigFailed, format!("Secret {namespace}/{name} {why}"));
    let api: Api<Secret> = Api::namespaced(system.client.clone(), namespace);
    let secret = match tokio::time::timeout(PATIENCE, api.get_opt(name)).await {
        Ok(Ok(Some(secret))) => secret,
        Ok(Ok(None)) => return Err(failed("does not exist; create it or change spec.remote.tls".to_owned())),
        Ok(Err(kube::Error::Api(status))) if status.code == FORBIDDEN => {
            let allow = format!("signpost rbac --secrets {namespace}/{name}");
            return Err(failed(format!("may not be read; allow it with the output of `{allow}`")));
        }
        Ok(Err(error)) => return Err(failed(format!("cannot be read: {error}"))),
        Err(_) => return Err(failed("cannot be read: the API server does not answer".to_owned())),
    };
    let mut content = Vec::new();
    for key in keys {
        let value = secret.data.as_ref().and_then(|data| data.get(*key));
        let value = value.ok_or_else(|| failed(format!("has no key {key}; add it")))?;
        content.extend_from_slice(&value.0);
        content.push(b'\n');
    }
    Ok(content)
}
