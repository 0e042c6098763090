//! The hosts of routes and the names of gateways as names of the inventory.
//!
//! A DNSEndpoint that was generated for a host publishes it, on every replica. Why a host is refused is known where its pass ran.

use std::{collections::BTreeSet, net::IpAddr};

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
        facts::{ChildFacts, Class, Id, Owner, Target, host_digest},
        world::{ClusterState, oldest},
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
fn route(world: &ClusterState, id: &Id) -> Option<Entry> {
    let route = world.routes.get(id)?;
    let identity = &route.known.identity;
    let host = route.host.as_ref()?.as_ref().ok()?.clone();
    let digest = host_digest(host.undotted());
    let owner = Owner::Route(id.clone());
    let published = world.children_of(&owner).any(|(_, child)| child.host == digest);
    if identity.is_deleting() && !published {
        return None;
    }
    let gateway = world.gateways.get(&route.gateway);
    let target = gateway.and_then(|gateway| target_host(world, &gateway.spec.target_postfix));
    // While that name is not published, its DNSEndpoints point at a former one.
    let former = target.as_ref().and_then(|target| {
        let former = |child: &ChildFacts| world.former_target(child, &child.controller, target);
        world.children_of(&owner).find_map(|(_, child)| former(child))
    });
    let refusal = route.known.verdict.as_ref().and_then(|verdict| verdict.refusal.as_ref());
    let mut entry = Entry::new(host, Some(RecordType::Cname), wanted_by(id, &identity.uid, PUBLISHER));
    entry.targets = former.or(target).iter().map(ToString::to_string).collect();
    Some(entry_of(entry, identity, published, refusal))
}

/// The name of gateways, and former names that routes still point at, with the addresses of their load balancer.
fn gateways(world: &ClusterState, target: &Target) -> Vec<Entry> {
    let of_target = world.gateways.values().filter(|gateway| Target::of(&gateway.spec) == *target);
    let Some(gateway) = oldest(of_target) else { return Vec::new() };
    let Some(host) = target_host(world, &gateway.spec.target_postfix) else { return Vec::new() };
    let owner = Owner::Target(target.clone());
    let children = world.children_of(&owner).flat_map(|(_, child)| child.names.iter());
    let former: BTreeSet<&Fqdn> = children.filter(|name| **name != host && world.is_pointed_at(name)).collect();
    let published = has_records(world, &owner);
    let refusal = world.targets.get(target).and_then(|verdict| verdict.refusal.as_ref());
    let points = world.balancers_of(target).first.map(|service| service.points.texts());
    let provenance = wanted_by(&gateway.identity.id, &gateway.identity.uid, PUBLISHER);
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
    let mut entries = Vec::new();
    for (name, published) in std::iter::once((&host, published)).chain(former.into_iter().map(|name| (name, true))) {
        for (rtype, targets) in &by_type {
            let mut entry = Entry::new(name.clone(), Some(*rtype), provenance.clone());
            entry.targets = targets.iter().collect();
            entries.push(entry_of(entry, &gateway.identity, published, refusal));
        }
    }
    entries
}

/// Whether a DNSEndpoint with records was generated for the owner.
fn has_records(world: &ClusterState, owner: &Owner) -> bool {
    world.children_of(owner).any(|(_, child)| child.class != Class::Empty)
}

fn target_host(world: &ClusterState, postfix: &str) -> Option<Fqdn> {
    names::target_host(world.identity.as_ref().ok()?, postfix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{
        facts::{Known, Seen, ServiceFacts},
        world::Touches,
    };
    use serde_json::json;
    use signpost_apis::{externaldns::DnsEndpoint, router, service::Service};
    use signpost_engine::{Identity, ObjectId};
    use signpost_inventory::Stage;

    fn read<K: serde::de::DeserializeOwned>(object: serde_json::Value) -> K {
        serde_json::from_value(object).unwrap()
    }

    fn known<K: kube::Resource<DynamicType = ()> + 'static, S>(object: &K, spec: S) -> Known<S> {
        Known { identity: Identity::of(object), spec: spec.into(), seen: Seen::default(), verdict: None, surplus: None }
    }

    fn world() -> ClusterState {
        let mut world = ClusterState::of_tests();
        let mut touches = Touches::default();
        let spec = json!({ "region": "weu", "cluster": "aks01", "domain": "example.com", "environmentLetter": "p" });
        let identity: router::ClusterIdentity =
            read(json!({ "metadata": { "name": "cluster-identity" }, "spec": spec }));
        world.put_identity(known(&identity, identity.spec.clone()), &mut touches);
        let spec = json!({ "controller": "istio", "credentialName": "cert", "targetPostfix": "internal" });
        let gateway: router::Gateway =
            read(json!({ "metadata": { "name": "gw", "namespace": "infra" }, "spec": spec }));
        world.put_gateway(known(&gateway, gateway.spec.clone()), &mut touches);
        world
    }

    fn put_service(world: &mut ClusterState, name: &str, second: u8, more: &serde_json::Value, address: Option<&str>) {
        let points: Vec<_> = address.iter().map(|ip| json!({ "ip": ip })).collect();
        let mut metadata = json!({ "name": name, "namespace": "infra", "labels": { "istio": "istio" },
            "creationTimestamp": format!("2026-01-01T00:00:0{second}Z") });
        metadata.as_object_mut().unwrap().append(&mut more.as_object().cloned().unwrap_or_default());
        let service: Service = read(json!({ "metadata": metadata, "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": points } } }));
        world.put_service(&ObjectId::of(&service), true, ServiceFacts::of(&service), &mut Touches::default());
    }

    fn put_endpoint(world: &mut ClusterState, endpoint: serde_json::Value) {
        let endpoint: DnsEndpoint = read(endpoint);
        world.put_child(ObjectId::of(&endpoint), ChildFacts::of(&endpoint), &mut Touches::default());
    }

    fn shown(world: &ClusterState) -> Vec<String> {
        let target = Target { controller: "istio".into(), postfix: "internal".into() };
        gateways(world, &target).iter().flat_map(|entry| entry.targets.iter().map(ToString::to_string)).collect()
    }

    #[test]
    fn the_addresses_are_those_of_the_service_that_is_published() {
        let mut world = world();
        put_service(
            &mut world,
            "leaving",
            0,
            &json!({ "deletionTimestamp": "2026-01-02T00:00:00Z" }),
            Some("10.0.0.1"),
        );
        put_service(&mut world, "waiting", 1, &json!({}), None);
        put_service(&mut world, "serving", 2, &json!({}), Some("10.0.0.3"));
        assert_eq!(shown(&world), ["10.0.0.3"]);
        put_service(&mut world, "older", 1, &json!({}), Some("10.0.0.2"));
        assert_eq!(shown(&world), ["10.0.0.2"], "nothing is published yet");
        put_endpoint(
            &mut world,
            json!({
                "metadata": { "name": "e", "namespace": "infra", "labels": {
                    "app.kubernetes.io/managed-by": "service-router-operator", "router.io/resource-type": "gateway-service",
                    "router.io/istio-controller": "istio", "router.io/target-postfix": "internal" },
                    "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": "serving", "uid": "u" }] },
                "spec": { "endpoints": [{ "dnsName": "aks01-weu-internal.example.com", "recordType": "A", "targets": ["10.0.0.3"] }] },
            }),
        );
        assert_eq!(shown(&world), ["10.0.0.3"], "the one that is published");
    }

    #[test]
    fn a_former_name_is_shown_while_a_route_points_at_it() {
        let mut world = world();
        put_service(&mut world, "serving", 0, &json!({}), Some("10.0.0.3"));
        let record = |name: &str| json!({ "dnsName": name, "recordType": "A", "targets": ["10.0.0.3"] });
        put_endpoint(
            &mut world,
            json!({
                "metadata": { "name": "e", "namespace": "infra", "labels": {
                    "app.kubernetes.io/managed-by": "service-router-operator", "router.io/resource-type": "gateway-service",
                    "router.io/istio-controller": "istio", "router.io/target-postfix": "internal" } },
                "spec": { "endpoints": [record("aks01-weu-internal.example.com"), record("old.example.com")] },
            }),
        );
        assert_eq!(shown(&world).len(), 1, "nothing points at the former name");
        put_endpoint(
            &mut world,
            json!({
                "metadata": { "name": "api-dns", "namespace": "app", "labels": {
                    "app.kubernetes.io/managed-by": "service-router-operator", "router.io/serviceroute": "api" } },
                "spec": { "endpoints": [{ "dnsName": "a.example.com", "recordType": "CNAME", "targets": ["old.example.com"] }] },
            }),
        );
        assert_eq!(shown(&world), ["10.0.0.3", "10.0.0.3"]);
    }

    #[test]
    fn a_route_shows_the_name_that_it_points_at_until_the_new_one_is_published() {
        let mut world = world();
        put_service(&mut world, "waiting", 0, &json!({}), None);
        let spec = json!({ "serviceName": "api", "gatewayName": "gw", "environment": "prod", "application": "app" });
        let object: router::ServiceRoute =
            read(json!({ "metadata": { "name": "api", "namespace": "app" }, "spec": spec }));
        world.put_route(known(&object, object.spec.clone()), &mut Touches::default());
        let id: Id = std::sync::Arc::new(ObjectId::of(&object));
        put_endpoint(
            &mut world,
            json!({
                "metadata": { "name": "api-dns", "namespace": "app", "labels": {
                    "app.kubernetes.io/managed-by": "service-router-operator", "router.io/serviceroute": "api", "router.io/controller": "dns" } },
                "spec": { "endpoints": [{ "dnsName": "a.example.com", "recordType": "CNAME", "targets": ["old.example.com"] }] },
            }),
        );
        for name in ["old.example.com", "aks01-weu-internal.example.com"] {
            put_endpoint(
                &mut world,
                json!({
                    "metadata": { "name": "e", "namespace": "infra", "labels": {
                        "app.kubernetes.io/managed-by": "service-router-operator", "router.io/resource-type": "gateway-service",
                        "router.io/istio-controller": "istio", "router.io/target-postfix": "internal", "router.io/controller": "dns" } },
                    "spec": { "endpoints": [{ "dnsName": name, "recordType": "A", "targets": ["10.0.0.3"] }] },
                }),
            );
            let targets: Vec<String> = route(&world, &id).unwrap().targets.iter().map(ToString::to_string).collect();
            assert_eq!(targets, [format!("{name}.")]);
        }
    }

    #[test]
    fn a_route_is_published_by_its_endpoints_whatever_its_verdict_is() {
        let mut world = world();
        let spec = json!({ "serviceName": "api", "gatewayName": "gw", "environment": "prod", "application": "app" });
        let route_object: router::ServiceRoute =
            read(json!({ "metadata": { "name": "api", "namespace": "app" }, "spec": spec }));
        world.put_route(known(&route_object, route_object.spec.clone()), &mut Touches::default());
        let id: Id = std::sync::Arc::new(ObjectId::of(&route_object));
        let refused =
            signpost_planning::Refusal::new(signpost_planning::Reason::GatewayNotFound, "there is no Gateway");
        let verdict =
            crate::report::status::ObjectStatus::refused(Some("Failed"), refused, crate::report::status::Detail::None);
        let stage = |world: &ClusterState| route(world, &id).unwrap().stage;
        let judge =
            |world: &mut ClusterState| world.routes.get_mut(&id).unwrap().known.verdict = Some(verdict.clone().into());
        assert_eq!(stage(&world), Stage::Wanted);
        judge(&mut world);
        assert_eq!(stage(&world), Stage::Refused);
        for (host, expected) in
            [("old.example.com", Stage::Refused), ("api-ns-p-prod-app.example.com", Stage::Published)]
        {
            put_endpoint(
                &mut world,
                json!({
                    "metadata": { "name": "api-dns", "namespace": "app", "labels": {
                        "app.kubernetes.io/managed-by": "service-router-operator", "router.io/serviceroute": "api" } },
                    "spec": { "endpoints": [{ "dnsName": host, "recordType": "CNAME", "targets": ["b"] }] },
                }),
            );
            assert_eq!(stage(&world), expected, "{host}");
        }
    }
}
