//! The hosts of routes and the names of gateways as names of the inventory.
//!
//! A DNSEndpoint that was generated for a host publishes it, on every replica. Why a host is refused is known where its pass ran.

use std::net::IpAddr;

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::{
    Project,
    project::{entry_of, wanted_by},
};
use signpost_inventory::Entry;

use crate::{
    RouterSystem,
    index::{
        RouterKey,
        facts::{Class, Id, Owner, Target},
        world::{World, oldest},
    },
    plan::names,
};

/// Who publishes the names.
const PUBLISHER: &str = "external-dns";

impl Project<RouterKey> for RouterSystem {
    fn project(&self, key: &RouterKey, _now: Timestamp) -> Vec<Entry> {
        let world = self.index.lock();
        match key {
            RouterKey::Route(id) => route(&world, id).into_iter().collect(),
            RouterKey::Target(target) => gateways(&world, target),
            RouterKey::Cluster | RouterKey::Policies(_) | RouterKey::Gateway(_) => Vec::new(),
        }
    }
}

/// The host of a route: an alias of its gateway's name.
fn route(world: &World, id: &Id) -> Option<Entry> {
    let route = world.routes.get(id)?;
    let identity = &route.known.identity;
    let host = route.host.as_ref()?.as_ref().ok()?.clone();
    let published = route.published || route.known.verdict.is_none() && has_records(world, &Owner::Route(id.clone()));
    if identity.is_deleting() && !published {
        return None;
    }
    let gateway = world.gateways.get(&route.gateway);
    let target = gateway.and_then(|gateway| target_host(world, &gateway.spec.target_postfix));
    let refusal = route.known.verdict.as_ref().and_then(|verdict| verdict.refusal.as_ref());
    let mut entry = Entry::new(host, Some(RecordType::Cname), wanted_by(id, PUBLISHER));
    entry.targets = target.iter().map(ToString::to_string).collect();
    Some(entry_of(entry, identity, published, refusal))
}

/// The name of gateways, with the addresses of their load balancer.
fn gateways(world: &World, target: &Target) -> Vec<Entry> {
    let of_target = world.gateways.values().filter(|gateway| Target::of(&gateway.spec) == *target);
    let Some(gateway) = oldest(of_target) else { return Vec::new() };
    let Some(host) = target_host(world, &gateway.spec.target_postfix) else { return Vec::new() };
    let published = has_records(world, &Owner::Target(target.clone()));
    let refusal = world.targets.get(target).and_then(|verdict| verdict.refusal.as_ref());
    let namespace = gateway.identity.id.namespace.as_deref();
    let serving = world.services.values().filter(|service| service.serves(&gateway.spec.controller, namespace));
    let points =
        serving.min_by_key(|service| (service.created, service.id.clone())).map(|service| service.points.texts());
    let provenance = wanted_by(&gateway.identity.id, PUBLISHER);
    let mut by_type: Vec<(RecordType, Vec<String>)> = Vec::new();
    for point in points.unwrap_or_default() {
        let rtype = match point.parse() {
            Ok(IpAddr::V4(_)) => RecordType::A,
            Ok(IpAddr::V6(_)) => RecordType::Aaaa,
            Err(_) => RecordType::Cname,
        };
        let point = if rtype == RecordType::Cname { format!("{point}.") } else { point };
        match by_type.iter_mut().find(|(of, _)| *of == rtype) {
            Some((_, points)) => points.push(point),
            None => by_type.push((rtype, vec![point])),
        }
    }
    if by_type.iter().any(|(rtype, _)| *rtype != RecordType::Cname) {
        by_type.retain(|(rtype, _)| *rtype != RecordType::Cname);
    }
    if by_type.is_empty() {
        by_type.push((RecordType::A, Vec::new()));
    }
    let entries = by_type.into_iter().map(|(rtype, targets)| {
        let mut entry = Entry::new(host.clone(), Some(rtype), provenance.clone());
        entry.targets = targets.iter().collect();
        entry_of(entry, &gateway.identity, published, refusal)
    });
    entries.collect()
}

/// Whether a DNSEndpoint with records was generated for the owner.
fn has_records(world: &World, owner: &Owner) -> bool {
    world.children_of(owner).any(|(_, child)| child.class != Class::Empty)
}

fn target_host(world: &World, postfix: &str) -> Option<Fqdn> {
    names::target_host(world.identity.as_ref().ok()?, postfix).ok()
}
