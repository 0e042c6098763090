//! The DNSEndpoints and Services of gateways, whatever their labels have become.

use std::collections::BTreeSet;

use signpost_apis::{externaldns::DnsEndpoint, router::GatewaySpec, service::Service};
use signpost_engine::ObjectId;

use crate::{
    index::{
        facts::{ChildFacts, Id, Known, Owner, Target},
        services::Balancers,
        world::ClusterState,
    },
    plan::names,
};

impl ClusterState {
    /// The Gateways that are not being deleted.
    pub(crate) fn living_gateways(&self) -> impl Iterator<Item = &Known<GatewaySpec>> {
        self.gateways.values().filter(|gateway| !gateway.identity.is_deleting())
    }

    /// The DNSEndpoints of gateways: those that their labels name, and those that have their name and their Service. A label can be edited.
    pub(crate) fn children_of_target(&self, target: &Target) -> Vec<(&Id, &ChildFacts)> {
        let owner = Owner::Target(target.clone());
        let mut ids: BTreeSet<ObjectId> = self.children_of(&owner).map(|(id, _)| (**id).clone()).collect();
        let controllers = || self.configuration.iter().flat_map(|spec| &spec.external_dns_controllers);
        let ours = self.living_gateways().find(|gateway| Target::of(&gateway.spec) == *target);
        let Balancers { first, next } = self.balancers_of(target);
        for (service, gateway) in first.into_iter().chain(next).zip(ours.into_iter().cycle()) {
            let GatewaySpec { controller, target_postfix, .. } = &*gateway.spec;
            for dns in controllers() {
                let plain = names::target_child(controller, target_postfix, &dns.name);
                let other = names::instead_of(&plain, &[controller, target_postfix, &dns.name]);
                let id = |name: &String| ObjectId::new::<DnsEndpoint>(service.id.namespace.as_deref(), name);
                ids.extend([&plain, &other].map(id));
            }
        }
        ids.retain(|id| self.target_of(id).as_ref() == Some(target));
        ids.iter().filter_map(|id| self.children.get_key_value(id)).map(|(id, child)| (id, &**child)).collect()
    }

    /// The gateways of a DNSEndpoint; `None` when it is of a route.
    fn target_of(&self, id: &ObjectId) -> Option<Target> {
        let child = self.children.get(id)?;
        let Owner::Target(labelled) = &child.owner else { return None };
        let named = |controller: &str, postfix: &str, dns: &str| {
            let plain = names::target_child(controller, postfix, dns);
            id.name == plain || id.name == names::instead_of(&plain, &[controller, postfix, dns])
        };
        if named(&labelled.controller, &labelled.postfix, &child.controller) {
            return Some(labelled.clone());
        }
        let controllers = self.configuration.iter().flat_map(|spec| &spec.external_dns_controllers);
        let controllers = controllers.map(|dns| dns.name.as_str()).chain([&*child.controller]);
        let service = child.service.as_deref().map(|name| ObjectId::new::<Service>(id.namespace.as_deref(), name));
        let service = service.and_then(|service| self.services.get(&service));
        let wants = |gateway: &&Known<GatewaySpec>| {
            let GatewaySpec { controller, target_postfix, .. } = &*gateway.spec;
            let namespace = gateway.identity.id.namespace.as_deref();
            service.is_some_and(|service| service.serves(controller, namespace))
                && controllers.clone().any(|dns| named(controller, target_postfix, dns))
        };
        let mut wanting = self.living_gateways().filter(wants).map(|gateway| Target::of(&gateway.spec)).peekable();
        let first = wanting.peek().cloned();
        Some(if wanting.any(|target| target == *labelled) {
            labelled.clone()
        } else {
            first.unwrap_or(labelled.clone())
        })
    }

    /// The external-dns controller of a DNSEndpoint, as the value of a label: the one whose name it has, or else the one of its label.
    pub(crate) fn publisher_of(&self, id: &ObjectId, child: &ChildFacts, parts: &[&str]) -> std::sync::Arc<str> {
        let plain = |dns: &str| match parts {
            [route] => names::route_child(route, dns),
            [controller, postfix, ..] => names::target_child(controller, postfix, dns),
            [] => String::new(),
        };
        let has_name = |dns: &str| {
            let (plain, mut parts) = (plain(dns), parts.to_vec());
            parts.push(dns);
            id.name == plain || id.name == names::instead_of(&plain, &parts)
        };
        let label = |dns: &str| *names::label_value(dns) == *child.controller;
        let mut controllers = self.configuration.iter().flat_map(|spec| &spec.external_dns_controllers);
        let by_label = controllers.clone().find(|dns| label(&dns.name)).filter(|dns| has_name(&dns.name));
        match by_label.or_else(|| controllers.find(|dns| has_name(&dns.name))) {
            Some(dns) => names::label_value(&dns.name).into(),
            None => child.controller.clone(),
        }
    }

    /// Whether the name is that of a DNSEndpoint of another object of ours.
    pub(crate) fn is_occupied(&self, id: &ObjectId, owner: &Owner) -> bool {
        match (self.children.get(id), owner) {
            (None, _) => false,
            (Some(child), Owner::Target(target)) if matches!(child.owner, Owner::Target(_)) => {
                self.target_of(id).as_ref() != Some(target)
            }
            (Some(child), owner) => child.owner != *owner,
        }
    }
}
