//! Which gateway serves a host that several routes ask for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use signpost_dns::Fqdn;

use crate::index::{
    RouterKey,
    facts::{Id, Owner, host_digest},
    world::{ClusterState, Touches},
};

/// Routes that cannot be published and have DNSEndpoints of hosts that they do not ask for any more. Hosts are digests.
#[derive(Debug, Default)]
pub(super) struct Strays {
    by_host: BTreeMap<u64, BTreeSet<Id>>,
    by_route: BTreeMap<Id, BTreeSet<u64>>,
}

impl Strays {
    /// These are the hosts of the route now.
    pub(super) fn set(&mut self, route: &Id, hosts: BTreeSet<u64>) {
        self.forget(route);
        for host in &hosts {
            self.by_host.entry(*host).or_default().insert(route.clone());
        }
        if !hosts.is_empty() {
            self.by_route.insert(route.clone(), hosts);
        }
    }

    /// The route has no such hosts any more, or is deleted.
    pub(super) fn forget(&mut self, route: &Id) {
        for host in self.by_route.remove(route).unwrap_or_default() {
            if let Some(routes) = self.by_host.get_mut(&host) {
                routes.remove(route);
                if routes.is_empty() {
                    self.by_host.remove(&host);
                }
            }
        }
    }

    /// Removes a host, and returns its routes.
    fn take(&mut self, host: u64) -> BTreeSet<Id> {
        let routes = self.by_host.remove(&host).unwrap_or_default();
        for route in &routes {
            if let Some(hosts) = self.by_route.get_mut(route) {
                hosts.remove(&host);
                if hosts.is_empty() {
                    self.by_route.remove(route);
                }
            }
        }
        routes
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_host.is_empty() && self.by_route.is_empty()
    }
}

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

    /// A route has published the host. Routes that have DNSEndpoints of it and do not ask for it withdraw them.
    pub(super) fn serve(&mut self, host: &Fqdn, id: &Id, touches: &mut Touches) {
        let digest = host_digest(host.undotted());
        self.served.insert(digest, id.clone());
        touches.now.extend(self.strays.take(digest).into_iter().map(RouterKey::Route));
    }

    /// The hosts that a route which cannot be published still has, and does not ask for. It is decided again when another route publishes one.
    pub(super) fn note_strays(&mut self, route: &Id, hosts: BTreeSet<u64>, touches: &mut Touches) {
        // It was deleted during its pass.
        if !self.routes.contains_key(route) {
            return;
        }
        let (served, waiting): (BTreeSet<u64>, BTreeSet<u64>) =
            hosts.into_iter().partition(|host| self.is_served_by_another(*host, route));
        if !served.is_empty() {
            touches.touch(RouterKey::Route(route.clone()));
        }
        self.strays.set(route, waiting);
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
