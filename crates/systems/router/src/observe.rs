//! One key as plain data, from the index alone. There is no provider: what others publish is read from DNSEndpoints.

use std::{collections::BTreeSet, sync::Arc};

use signpost_apis::{
    externaldns::DnsEndpoint,
    istio::IstioGateway,
    router::{ClusterIdentity, DNSConfiguration, DNSPolicy, ServiceRoute},
    service::Service,
};
use signpost_engine::{
    Identity, Kind, ObjectId,
    hub::{KindState, Kinds},
};
use tokio::sync::watch;

use crate::{
    RouterSystem,
    index::{
        RouterIndex, RouterKey,
        facts::{ChildFacts, Id, Known, Owner, ServiceFacts, Target},
        world::{World, in_namespace, oldest},
    },
    plan::{Base, Memory, Observed, cluster, gateway, names, policy, route, target},
    report::status::TargetVerdict,
};

/// The input of a plan.
pub(crate) fn observe(system: &RouterSystem, key: &RouterKey, memory: Memory) -> Observed {
    let world = system.index.lock();
    let base = Base {
        identity: world.identity.clone(),
        configuration: world.configuration.clone(),
        settings: system.config.clone(),
    };
    match key {
        RouterKey::Cluster => Observed::Cluster(cluster::View {
            identities: world.identities.values().map(plain).collect(),
            configurations: world.configurations.values().map(plain).collect(),
            unreadable_identity: unreadable::<ClusterIdentity, _>(&world, None, oldest(world.identities.values())),
            unreadable_configuration: unreadable::<DNSConfiguration, _>(
                &world,
                None,
                oldest(world.configurations.values()),
            ),
            configuration: base.configuration,
        }),
        RouterKey::Policies(namespace) => {
            let policies = || {
                let policies = in_namespace(&world.policies, Kind::of::<DNSPolicy>(), Some(namespace));
                policies.map(|(_, policy)| policy)
            };
            let unreadable = unreadable::<DNSPolicy, _>(&world, Some(namespace), oldest(policies()));
            let policies = policies().map(plain).collect();
            Observed::Policies(policy::View { namespace: namespace.clone(), base, policies, unreadable })
        }
        RouterKey::Gateway(id) => Observed::Gateway(Box::new(of_gateway(system, &world, id, base))),
        RouterKey::Target(target) => Observed::Target(Box::new(of_target(system, &world, target, base, memory))),
        RouterKey::Route(id) => Observed::Route(Box::new(of_route(system, &world, id, base))),
    }
}

/// The name of the object of a kind that would be used, where that cannot be read.
fn unreadable<K: kube::Resource<DynamicType = ()> + 'static, S>(
    world: &World,
    namespace: Option<&str>,
    readable: Option<&Known<S>>,
) -> Option<String> {
    world.older_unreadable(Kind::of::<K>(), namespace, readable).map(|id| id.name.clone())
}

fn plain<S>(known: &Known<S>) -> (Identity, Arc<S>) {
    (known.identity.clone(), known.spec.clone())
}

/// Whether a kind is installed, as far as is known.
fn is_installed<K: kube::Resource<DynamicType = ()> + 'static>(kinds: &Kinds) -> bool {
    let resource = Kind::of::<K>().resource();
    kinds.get(resource.as_str()).is_none_or(|kind| kind.state != KindState::Missing)
}

/// Judges everything again when a kind that is generated is installed or removed.
pub(crate) async fn follow_kinds(index: Arc<RouterIndex>, mut kinds: watch::Receiver<Kinds>) {
    let installed = |kinds: &Kinds| (is_installed::<DnsEndpoint>(kinds), is_installed::<IstioGateway>(kinds));
    let mut before = installed(&kinds.borrow());
    while kinds.changed().await.is_ok() {
        let now = installed(&kinds.borrow_and_update());
        if now != before {
            before = now;
            index.kinds_changed();
        }
    }
    // The sender lives as long as the operator.
    std::future::pending::<()>().await;
}

fn of_route(system: &RouterSystem, world: &World, id: &Id, base: Base) -> route::View {
    let owner = Owner::Route(id.clone());
    let namespace = id.namespace.as_deref();
    let names = base.configuration.iter().flat_map(|spec| &spec.external_dns_controllers);
    let names = names.map(|controller| names::route_child(&id.name, &controller.name));
    let occupied = names.filter(|name| occupied(world, &ObjectId::new::<DnsEndpoint>(namespace, name), &owner));
    let route = world.routes.get(id).map(|route| {
        let policies = in_namespace(&world.policies, Kind::of::<DNSPolicy>(), namespace).map(|(_, policy)| policy);
        let policy = oldest(policies);
        let unreadable_policy = unreadable::<DNSPolicy, _>(world, namespace, policy);
        let policy = policy.filter(|_| unreadable_policy.is_none());
        let host = route.host.as_ref().and_then(|host| host.as_ref().ok());
        let holder = host.and_then(|host| world.hosts.holder_of(host)).filter(|claim| claim.holder != *id);
        let gateway = world.gateways.get(&route.gateway).filter(|gateway| !gateway.identity.is_deleting());
        route::RouteView {
            identity: route.known.identity.clone(),
            spec: route.known.spec.clone(),
            host: route.host.clone(),
            holder: holder.map(|claim| {
                let published = world.routes.get(&claim.holder).is_some_and(|holder| holder.published);
                (claim.holder.clone(), published)
            }),
            policy: policy.map(|policy| (policy.identity.id.name.clone(), policy.spec.clone())),
            unreadable_policy,
            gateway: route.gateway.clone(),
            postfix: gateway.map(|gateway| gateway.spec.target_postfix.clone()),
        }
    });
    let child = |(id, facts): (&Id, &ChildFacts)| (id.name.clone(), facts.controller.clone());
    route::View {
        id: id.clone(),
        installed: is_installed::<DnsEndpoint>(&system.kinds.borrow()),
        route,
        children: world.children_of(&owner).map(child).collect(),
        occupied: occupied.collect(),
        base,
    }
}

/// Whether the name is that of a DNSEndpoint of another object of ours.
fn occupied(world: &World, id: &ObjectId, owner: &Owner) -> bool {
    world.children.get(id).is_some_and(|child| child.owner != *owner)
}

fn of_gateway(system: &RouterSystem, world: &World, id: &Id, base: Base) -> gateway::View {
    let routes: Vec<_> = world.by_gateway.get(id).into_iter().flatten().filter_map(|id| world.routes.get(id)).collect();
    let held = routes.iter().filter_map(|route| {
        let host = route.host.as_ref()?.as_ref().ok()?;
        (world.server_of(host) == Some(&route.known.identity.id)).then(|| host.clone())
    });
    let hosts: BTreeSet<_> = held.collect();
    let leaving = routes.iter().filter(|route| route.known.identity.is_deleting()).count();
    gateway::View {
        id: id.clone(),
        installed: is_installed::<IstioGateway>(&system.kinds.borrow()),
        may_delete: world.istio.contains(&ObjectId::new::<IstioGateway>(id.namespace.as_deref(), &id.name))
            && !world.has_unreadable::<ServiceRoute>(),
        gateway: world.gateways.get(id).map(plain),
        left_out: routes.len().saturating_sub(hosts.len() + leaving),
        hosts: hosts.into_iter().collect(),
        base,
    }
}

fn of_target(system: &RouterSystem, world: &World, target: &Target, base: Base, memory: Memory) -> target::View {
    let there = || world.gateways.values().filter(|gateway| !gateway.identity.is_deleting());
    let ours: Vec<_> = there().filter(|gateway| Target::of(&gateway.spec) == *target).collect();
    let controller = ours.first().map(|gateway| gateway.spec.controller.clone());
    let of_postfix = |gateway: &&Known<_>| Target::of(&gateway.spec).postfix == target.postfix;
    let holder = oldest(there().filter(of_postfix)).filter(|oldest| Target::of(&oldest.spec) != *target);
    let serves = |service: &&ServiceFacts| {
        let namespace = |gateway: &Known<signpost_apis::router::GatewaySpec>| gateway.identity.id.namespace.clone();
        ours.iter().any(|gateway| service.serves(&gateway.spec.controller, namespace(gateway).as_deref()))
    };
    // One that is being deleted, or has no address, does not hide one that can be reached.
    let preferred =
        |service: &&ServiceFacts| (service.deleting, service.points.is_empty(), service.created, service.id.clone());
    let service = world.services.values().filter(serves).min_by_key(preferred);
    let owner = Owner::Target(target.clone());
    let of_rival = |(rival, _): &(&Target, _)| rival.postfix == target.postfix && *rival != target;
    let rivals = world.published_targets().filter(of_rival).flat_map(|(_, children)| children);
    let rivals = rivals.filter_map(|id| world.children.get_key_value(id)).map(|child| of_child(world, child));
    let occupied = match (&controller, service, &base.configuration) {
        (Some(controller), Some(service), Ok(spec)) => spec
            .external_dns_controllers
            .iter()
            .map(|dns| names::target_child(controller, &target.postfix, &dns.name))
            .map(|name| ObjectId::new::<DnsEndpoint>(service.id.namespace.as_deref(), &name))
            .filter(|id| occupied(world, id, &owner))
            .collect(),
        _ => BTreeSet::new(),
    };
    target::View {
        target: target.clone(),
        installed: is_installed::<DnsEndpoint>(&system.kinds.borrow()),
        controller,
        gateway: oldest(ours.iter().copied()).map(|gateway| gateway.identity.clone()),
        holder: holder.map(|gateway| {
            let verdict = world.targets.get(&Target::of(&gateway.spec));
            target::Holder {
                id: gateway.identity.id.clone(),
                published: verdict.is_some_and(|verdict| verdict.ready),
                changing: verdict.is_some_and(TargetVerdict::is_changing),
            }
        }),
        service: service
            .map(|service| target::ServiceView { identity: service.identity(), points: service.points.clone() }),
        children: world.children_of(&owner).map(|child| of_child(world, child)).collect(),
        rivals: rivals.collect(),
        occupied,
        memory,
        base,
    }
}

fn of_child(world: &World, (id, child): (&Id, &ChildFacts)) -> target::ChildView {
    let service = child.service.as_deref().map(|name| ObjectId::new::<Service>(id.namespace.as_deref(), name));
    let exists = |service: ObjectId| world.services.contains_key(&service) || world.is_unreadable(&service);
    target::ChildView {
        id: id.clone(),
        controller: child.controller.clone(),
        class: child.class,
        observed: child.observed,
        read: child.read,
        has_service: service.is_some_and(exists),
    }
}
