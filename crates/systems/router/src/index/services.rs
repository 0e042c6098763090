//! The Services that may be the load balancer of a gateway's name, and which one is.
//!
//! The Service whose addresses are published stays the load balancer while it exists. Another one of the label takes over when it is deleted
//! or has had no address for a while, so that an address that flaps moves no name.

use signpost_apis::router::GatewaySpec;
use signpost_dns::Fqdn;
use signpost_engine::ObjectId;

use crate::index::{
    RouterKey,
    facts::{Id, Known, Owner, ServiceFacts, Target, host_digest},
    world::{ClusterState, Touches},
};

/// The load balancers of a gateway's name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Balancers<'a> {
    /// The one whose addresses are published, or the first choice where none is.
    pub(crate) first: Option<&'a ServiceFacts>,
    /// The next choice, where it has an address.
    pub(crate) next: Option<&'a ServiceFacts>,
}

impl ClusterState {
    /// A Service as the watch shows it: whether it exists, and its facts where it can have to do with a gateway.
    pub(crate) fn put_service(
        &mut self,
        id: &ObjectId,
        exists: bool,
        new: Option<ServiceFacts>,
        touches: &mut Touches,
    ) {
        let existed = if exists {
            !self.present_services.insert(digest_of(id))
        } else {
            self.present_services.remove(&digest_of(id))
        };
        if existed == exists && self.services.get(id) == new.as_ref() {
            return;
        }
        let before = self.services.remove(id);
        let concerns = |gateway: &Known<GatewaySpec>| {
            let controller = gateway.spec.controller.as_str();
            let by_label = |facts: &ServiceFacts| facts.istio.as_deref() == Some(controller);
            id.name == controller || before.iter().chain(&new).any(by_label)
        };
        let targets =
            self.gateways.values().filter(|gateway| concerns(gateway)).map(|gateway| Target::of(&gateway.spec));
        touches.now.extend(targets.map(RouterKey::Target));
        // Its addresses do not matter here: routes wait for the DNSEndpoints that have them.
        let selected = |facts: Option<&ServiceFacts>| facts.map(|facts| (facts.balancer, facts.istio.clone()));
        let is_another = selected(before.as_ref()) != selected(new.as_ref());
        if let Some(new) = new {
            self.services.insert(new.id.clone(), new);
        }
        if is_another {
            self.touch_unpublished(touches);
        }
    }

    /// Whether the Service exists, whatever its type, or cannot be read.
    pub(crate) fn has_service(&self, id: &ObjectId) -> bool {
        self.present_services.contains(&digest_of(id)) || self.is_unreadable(id)
    }

    /// The load balancers of a gateway's name, in the order in which they are chosen.
    pub(crate) fn balancers_of(&self, target: &Target) -> Balancers<'_> {
        let there = self.gateways.values().filter(|gateway| !gateway.identity.is_deleting());
        let gateways: Vec<_> = there.filter(|gateway| Target::of(&gateway.spec) == *target).collect();
        let serves = |service: &&ServiceFacts| {
            let namespace = |gateway: &Known<GatewaySpec>| gateway.identity.id.namespace.clone();
            gateways.iter().any(|gateway| service.serves(&gateway.spec.controller, namespace(gateway).as_deref()))
        };
        let children: Vec<_> = self.children_of(&Owner::Target(target.clone())).collect();
        let publishes = |service: &ServiceFacts| {
            children.iter().any(|(id, child)| {
                id.namespace == service.id.namespace && child.service.as_deref() == Some(service.id.name.as_str())
            })
        };
        let mut serving: Vec<&ServiceFacts> = self.services.values().filter(serves).collect();
        // One that is being deleted, or has no address, does not hide one that can be reached.
        serving.sort_by_cached_key(|service| {
            let published = !service.deleting && publishes(service);
            (service.deleting, !published, service.points.is_empty(), service.created, service.id.clone())
        });
        let reachable = |service: &&ServiceFacts| !service.deleting && !service.points.is_empty();
        Balancers { first: serving.first().copied(), next: serving.get(1).copied().filter(reachable) }
    }

    /// A route asks for a host, or no longer does: a load balancer with that name is judged again.
    pub(super) fn touch_aliases(&self, host: &Fqdn, touches: &mut Touches) {
        let named = |service: &&ServiceFacts| service.points.names.contains(host);
        for service in self.services.values().filter(named) {
            let gateways = self
                .gateways
                .values()
                .filter(|gateway| service.serves(&gateway.spec.controller, gateway.identity.id.namespace.as_deref()));
            touches.now.extend(gateways.map(|gateway| RouterKey::Target(Target::of(&gateway.spec))));
        }
    }

    /// Whether the name is the host of a route.
    pub(crate) fn is_host(&self, name: &Fqdn) -> bool {
        self.hosts.holder_of(name).is_some()
    }
}

fn digest_of(id: &ObjectId) -> u64 {
    host_digest(&format!("{}/{}", id.namespace.as_deref().unwrap_or_default(), id.name))
}

/// The id of the Service that owns a DNSEndpoint.
pub(crate) fn owner_of(child: &Id, name: &str) -> ObjectId {
    ObjectId::new::<signpost_apis::service::Service>(child.namespace.as_deref(), name)
}
