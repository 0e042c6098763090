//! Which gateway serves a host that several routes ask for.

use std::{collections::BTreeSet, sync::Arc};

use signpost_dns::Fqdn;

use crate::index::{
    RouterKey,
    facts::{Id, Owner, host_digest},
    world::{ClusterState, Touches},
};

impl ClusterState {
    /// The route whose gateway serves a host: its owner. While that has not published the host, a younger route that has published it keeps it,
    /// because clients still have that answer.
    pub(crate) fn server_of(&self, host: &Fqdn) -> Option<&Id> {
        let owner = &self.hosts.holder_of(host)?.holder;
        let publishes = |id: &&Id| self.has_endpoint_of(id, host);
        let mut waiting = self.hosts.waiting(host).map(|claim| &claim.holder).peekable();
        if waiting.peek().is_none() || publishes(&owner) {
            return Some(owner);
        }
        Some(waiting.find(publishes).unwrap_or(owner))
    }

    /// Whether a DNSEndpoint of the route has the host, whatever its last pass came to.
    pub(crate) fn has_endpoint_of(&self, route: &Id, host: &Fqdn) -> bool {
        let digest = host_digest(host.undotted());
        let children = self.by_owner.get(&Owner::Route(route.clone())).into_iter().flatten();
        children.filter_map(|id| self.children.get(id)).any(|child| child.host == digest)
    }

    /// The controllers, as values of labels, whose DNSEndpoints of the route have the host.
    pub(crate) fn controllers_of(&self, route: &Id, host: &Fqdn) -> BTreeSet<Arc<str>> {
        let digest = host_digest(host.undotted());
        let children = self.by_owner.get(&Owner::Route(route.clone())).into_iter().flatten();
        let children = children.filter_map(|id| self.children.get(id)).filter(|child| child.host == digest);
        children.map(|child| child.controller.clone()).collect()
    }

    /// A route does not publish the host any more.
    pub(super) fn unserve(&mut self, host: &Fqdn, id: &Id) {
        let digest = host_digest(host.undotted());
        if self.served.get(&digest) == Some(id) {
            self.served.remove(&digest);
        }
    }

    /// Whether another route has published the host with this digest.
    pub(crate) fn is_served_by_another(&self, host: u64, id: &Id) -> bool {
        self.served.get(&host).is_some_and(|route| route != id)
    }

    /// A DNSEndpoint of a route has changed: where others ask for the host, another gateway may have to serve it.
    pub(super) fn publication_changed(&mut self, owner: &Owner, touches: &mut Touches) {
        let Owner::Route(id) = owner else { return };
        let Some(Some(Ok(host))) = self.routes.get(id).map(|route| route.host.clone()) else { return };
        if self.hosts.waiting(&host).next().is_some() {
            let claimants = self.hosts.queue(&host).filter_map(|claim| self.routes.get(&claim.holder));
            let gateways: BTreeSet<Id> = claimants.map(|route| route.gateway.clone()).collect();
            for gateway in gateways {
                self.hosts_changed(&gateway, touches);
            }
            // Others may withdraw the host now.
            let others = self.hosts.waiting(&host).map(|claim| RouterKey::Route(claim.holder.clone()));
            touches.now.extend(others);
        }
    }
}
