//! The exposures of an Ingress, as far as its tunnel can be used: a PangolinTunnel in crd mode, a site in direct mode. Pure.

use signpost_engine::RetryClass;
use signpost_planning::Reason;

use super::crd::Shape;
use super::exposure::{Exposures, Ground, exposures};
use super::refusals::About;
use super::{ApiView, FoundSite, SOON, Wanted};
use crate::index::FoundTunnel;
use crate::settings::Policy;

/// Nothing may be changed for an Ingress, for this reason.
fn blocked(reason: Reason, message: impl Into<String>, again: Option<RetryClass>) -> Exposures {
    let mut nothing = Exposures::default();
    nothing.block(reason, message, again);
    nothing
}

/// The refusal of a tunnel that the namespace of an Ingress may not use.
fn not_allowed(wanted: &Wanted, policy: &Policy) -> Option<Exposures> {
    let (reference, namespace) = (&wanted.reference, wanted.claimant.namespace());
    let message = || {
        format!(
            "Ingresses of the namespace {namespace} may not use the tunnel {reference:?}; use another one, or add {reference}={namespace} to PIC_TUNNEL_ALLOW"
        )
    };
    let refused = !policy.allowed.permits(reference, namespace);
    refused.then(|| blocked(Reason::TunnelNotAllowed, message(), None))
}

/// The exposures of an Ingress in crd mode, unless its tunnel or the shape of PangolinResource is not known.
pub(super) fn children_of(
    wanted: &Wanted,
    shape: &Result<Shape, String>,
    tunnel: &FoundTunnel,
    policy: &Policy,
) -> Exposures {
    if let Some(refused) = not_allowed(wanted, policy) {
        return refused;
    }
    let (reference, namespace) = (&wanted.reference, wanted.claimant.namespace());
    let slow = Some(RetryClass::Slow);
    let shape = match shape {
        Ok(shape) => shape,
        Err(why) => {
            let message = format!("the shape of PangolinResource is not known: {why}");
            return blocked(Reason::Unsupported, message, Some(RetryClass::Transient));
        }
    };
    match tunnel {
        FoundTunnel::None => blocked(Reason::TunnelNotFound, no_tunnel(reference, policy), slow),
        FoundTunnel::Several(places) => {
            let places = places.join(", ");
            let message =
                format!("several namespaces have a PangolinTunnel {reference:?} ({places}); write namespace/name");
            blocked(Reason::TunnelAmbiguous, message, slow)
        }
        FoundTunnel::One { namespace: place, name, .. } if place != namespace && !shape.tunnel_namespace => {
            let message = format!(
                "PangolinTunnel {place}/{name} is in another namespace, which this pangolin-operator does not support; create a tunnel in {namespace}"
            );
            blocked(Reason::TunnelNotInNamespace, message, slow)
        }
        FoundTunnel::One { namespace: place, name, ready, domains } => {
            let paths = shape.targets && shape.target_paths && policy.crd_paths;
            let ground = Ground { domains: domains.as_deref(), apex: shape.apex, paths, owner: "" };
            let mut made = exposures(wanted, ground, policy);
            if !ready && !made.blocked {
                let message = format!("PangolinTunnel {place}/{name} is not ready; what exists is unchanged");
                made.block(Reason::TunnelNotReady, message, Some(RetryClass::Fixed(policy.tunnel_wait)));
            }
            made
        }
    }
}

/// The exposures of an Ingress in direct mode, unless its site is not known.
pub(super) fn resources_of(wanted: &Wanted, view: &ApiView, policy: &Policy) -> Exposures {
    if let Some(refused) = not_allowed(wanted, policy) {
        return refused;
    }
    let reference = &wanted.reference;
    match &view.site {
        FoundSite::None(names) => {
            let message = format!("no site of the organisation is named {reference:?}; its sites are: {names}");
            blocked(Reason::TunnelNotFound, message, Some(SOON))
        }
        FoundSite::Several(names) => {
            let message = format!(
                "several sites of the organisation are named {reference:?}; use the identifier of one of them: {names}"
            );
            blocked(Reason::TunnelAmbiguous, message, Some(SOON))
        }
        FoundSite::One(_, online) => {
            let ground = Ground { domains: Some(&*view.domains), apex: true, paths: true, owner: &view.owner };
            let mut made = exposures(wanted, ground, policy);
            if !online {
                // Pangolin serves it as soon as the site is connected.
                let message = format!("site {reference:?} is not connected; its hosts answer when it is");
                made.refusals.push(About::Ingress.refuse(Reason::TunnelNotReady, message));
            }
            made
        }
    }
}

/// Why a PangolinTunnel is not found, and what to do.
fn no_tunnel(reference: &str, policy: &Policy) -> String {
    match reference.split_once('/').map(|(place, _)| place) {
        Some(place) if !policy.watches_tunnels_in(place) => format!(
            "PangolinTunnel {reference:?} is in the namespace {place}, whose tunnels are not watched; set PIC_TUNNEL_NAMESPACE={place}, or use another tunnel"
        ),
        Some(place) if policy.named_namespaces().contains(place) => format!(
            "PangolinTunnel {reference:?} does not exist, or the operator may not read the tunnels of {place} (see /readyz); create it, or allow it"
        ),
        Some(_) | None => {
            format!("PangolinTunnel {reference:?} does not exist; create it, or correct the class or annotation")
        }
    }
}
