//! Which gateway serves a host that several routes ask for.

use std::collections::BTreeSet;

use signpost_dns::Fqdn;

use crate::index::{
    facts::{Id, Owner, host_digest},
    world::{Touches, World},
};

impl World {
    /// The route whose gateway serves a host: its owner. While that has not published the host, a younger route that has keeps it, so that what
    /// clients are told is served.
    pub(crate) fn server_of(&self, host: &Fqdn) -> Option<&Id> {
        let owner = &self.hosts.holder_of(host)?.holder;
        let digest = host_digest(host.undotted());
        let publishes = |id: &&Id| {
            let children = self.by_owner.get(&Owner::Route((*id).clone())).into_iter().flatten();
            children.filter_map(|id| self.children.get(id)).any(|child| child.host == digest)
        };
        let mut waiting = self.hosts.waiting(host).map(|claim| &claim.holder).peekable();
        if waiting.peek().is_none() || publishes(&owner) {
            return Some(owner);
        }
        Some(waiting.find(publishes).unwrap_or(owner))
    }

    /// A DNSEndpoint of a route has changed: where others ask for the host, another gateway may have to serve it.
    pub(super) fn publication_changed(&mut self, owner: &Owner, touches: &mut Touches) {
        let Owner::Route(id) = owner else { return };
        let Some(Some(Ok(host))) = self.routes.get(id).map(|route| route.host.clone()) else { return };
        if self.hosts.waiting(&host).next().is_some() {
            let claimants = self.hosts.line(&host).filter_map(|claim| self.routes.get(&claim.holder));
            let gateways: BTreeSet<Id> = claimants.map(|route| route.gateway.clone()).collect();
            for gateway in gateways {
                self.hosts_changed(&gateway, touches);
            }
        }
    }
}
