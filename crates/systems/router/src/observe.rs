//! One key as plain data, from the index alone. There is no provider: what others publish is read from DNSEndpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use signpost_apis::{
    externaldns::DnsEndpoint,
    istio::IstioGateway,
    router::{ClusterIdentity, DNSConfiguration, DNSPolicy, ExternalDNSController},
};
use signpost_dns::Fqdn;
use signpost_engine::{
    Identity, Kind, ObjectId,
    hub::{KindState, Kinds},
};
use tokio::sync::watch;

use crate::{
    RouterSystem,
    index::{
        RouterIndex, RouterKey,
        facts::{ChildFacts, Id, Known, Owner, ServiceFacts, Target, host_digest},
        services::{self, Balancers},
        singletons::first,
        world::{ClusterState, in_namespace, oldest},
    },
    plan::{Base, Memory, Observed, cluster, gateway, names, policy, route, target},
    report::status::{Detail, TargetVerdict},
};

/// The input of a plan.
pub(crate) fn observe(system: &RouterSystem, key: &RouterKey, memory: Memory) -> Observed {
    system.index.end_vacancies(key);
    let mut world = system.index.lock();
    let base = Base {
        identity: world.identity.clone(),
        configuration: world.configuration.clone(),
        settings: system.config.clone(),
    };
    match key {
        RouterKey::Cluster => Observed::Cluster(cluster::View {
            identities: world.identities.values().map(plain).collect(),
            configurations: world.configurations.values().map(plain).collect(),
            identity_place: world.place(Kind::of::<ClusterIdentity>(), None, first(world.identities.values())),
            configuration_place: world.place(
                Kind::of::<DNSConfiguration>(),
                None,
                first(world.configurations.values()),
            ),
            configuration: base.configuration,
        }),
        RouterKey::Policies(namespace) => {
            let policies = in_namespace(&world.policies, Kind::of::<DNSPolicy>(), Some(namespace));
            let policies = policies.map(|(_, policy)| policy);
            let place = world.place(Kind::of::<DNSPolicy>(), Some(namespace), world.first_policy(Some(namespace)));
            let policies = policies.map(|policy| {
                let decided = policy.verdict.as_ref().and_then(|verdict| match &verdict.detail {
                    Detail::Policy(selected) => selected.clone(),
                    _ => None,
                });
                let (identity, spec) = plain(policy);
                policy::PolicyView { identity, spec, before: decided.or_else(|| policy.seen.selected.clone()) }
            });
            let policies = policies.collect();
            Observed::Policies(policy::View { namespace: namespace.clone(), base, policies, place })
        }
        RouterKey::Gateway(id) => {
            let view = of_gateway(system, &world, id, base, memory);
            let istio = ObjectId::new::<IstioGateway>(id.namespace.as_deref(), &id.name);
            // Under the same lock, so that no other pass adds a host that this one is going to write.
            let (pods, hosts) = match &view.gateway {
                Some((_, spec)) => (&*spec.controller, &*view.hosts),
                None => ("", &[][..]),
            };
            world.note_waiting(id, pods, &view.waiting);
            world.reserve_hosts(&istio, pods, hosts);
            Observed::Gateway(Box::new(view))
        }
        RouterKey::Target(target) => {
            let view = of_target(system, &world, target, base, memory);
            // Under the same lock, so that the last pointer that moves touches this key.
            world.note_kept(target, view.former.iter().filter(|(_, pointed_at)| **pointed_at).map(|(name, _)| name));
            Observed::Target(Box::new(view))
        }
        RouterKey::Route(id) => {
            let view = of_route(system, &world, id, base, memory);
            // Under the same lock, so that the name that it waits for touches this key.
            let waits = view.children.iter().any(|child| child.former.is_some());
            if let Some(route) = view.route.as_ref().filter(|_| waits) {
                world.note_unpublished(&route.gateway);
            }
            Observed::Route(Box::new(view))
        }
    }
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

fn of_route(system: &RouterSystem, world: &ClusterState, id: &Id, base: Base, memory: Memory) -> route::View {
    let owner = Owner::Route(id.clone());
    let namespace = id.namespace.as_deref();
    let names = base.configuration.iter().flat_map(|spec| &spec.external_dns_controllers);
    let names = names.map(|controller| names::route_child(&id.name, &controller.name));
    let occupied = names.filter(|name| world.is_occupied(&ObjectId::new::<DnsEndpoint>(namespace, name), &owner));
    let route = world.routes.get(id).map(|route| {
        let policy = world.first_policy(namespace);
        let no_policy = world.place(Kind::of::<DNSPolicy>(), namespace, policy).unknown("DNSPolicy");
        let policy = policy.filter(|_| no_policy.is_none());
        let host = route.host.as_ref().and_then(|host| host.as_ref().ok());
        let holder = host.and_then(|host| world.hosts.holder_of(host)).filter(|claim| claim.holder != *id);
        let gateway = world.gateways.get(&route.gateway).filter(|gateway| !gateway.identity.is_deleting());
        route::RouteView {
            identity: route.known.identity.clone(),
            spec: route.known.spec.clone(),
            host: route.host.clone(),
            replaced: holder
                .zip(host)
                .map(|(claim, host)| world.controllers_of(&claim.holder, host))
                .unwrap_or_default(),
            holder: holder.map(|claim| {
                let published = world.routes.get(&claim.holder).is_some_and(|holder| holder.published);
                (claim.holder.clone(), published)
            }),
            policy: policy.map(|policy| (policy.identity.id.name.clone(), policy.spec.clone())),
            no_policy,
            gateway: route.gateway.clone(),
            foreign_istio: gateway
                .zip(host)
                .and_then(|(gateway, host)| world.foreign_istio_of(&gateway.spec, host))
                .cloned(),
            postfix: gateway.map(|gateway| gateway.spec.target_postfix.clone()),
        }
    });
    let own = |digest: u64| {
        let host = world.routes.get(id).and_then(|route| route.host.as_ref()?.as_ref().ok());
        host.is_some_and(|host| host_digest(host.undotted()) == digest)
    };
    let gateway = world.routes.get(id).and_then(|route| world.gateways.get(&route.gateway));
    let gateway = gateway.filter(|gateway| !gateway.identity.is_deleting()).map(|gateway| &*gateway.spec);
    let target = gateway.zip(base.identity.as_ref().ok());
    let target = target.and_then(|(gateway, identity)| names::target_host(identity, &gateway.target_postfix).ok());
    let child = |(child, facts): (&Id, &ChildFacts)| {
        let stray = Some(facts.host).filter(|host| !own(*host));
        let controller = world.publisher_of(child, facts, &[&id.name]);
        route::ChildView {
            name: child.name.clone(),
            former: target.as_ref().and_then(|target| world.former_target(facts, &controller, target)),
            controller,
            stray,
            displaced: stray.is_some_and(|host| world.is_served_by_another(host, id)),
            source: facts.source,
        }
    };
    let children: Vec<route::ChildView> = world.children_of(&owner).map(child).collect();
    let waiting = children.iter().zip(world.children_of(&owner)).find(|(child, _)| child.former.is_some());
    let waiting = waiting.map(|(_, (_, facts))| facts);
    let begins_with = |dns: &ExternalDNSController| {
        let (waiting, target) = waiting.zip(target.as_ref())?;
        let label: Arc<str> = names::label_value(&dns.name).into();
        let is_new = children.iter().all(|child| child.controller != label);
        let former = world.former_target(waiting, &label, target).filter(|_| is_new)?;
        Some((label, former))
    };
    let controllers = base.configuration.iter().flat_map(|spec| &spec.external_dns_controllers);
    let begins_with: BTreeMap<Arc<str>, Fqdn> = controllers.filter_map(begins_with).collect();
    route::View {
        id: id.clone(),
        installed: is_installed::<DnsEndpoint>(&system.kinds.borrow()),
        route,
        has_balancer: waiting.is_some() && gateway.is_some_and(|gateway| world.has_balancer(gateway)),
        children,
        begins_with,
        occupied: occupied.collect(),
        memory,
        base,
    }
}

fn of_gateway(system: &RouterSystem, world: &ClusterState, id: &Id, base: Base, memory: Memory) -> gateway::View {
    let routes: Vec<_> = world.by_gateway.get(id).into_iter().flatten().filter_map(|id| world.routes.get(id)).collect();
    let owned = routes.iter().filter_map(|route| {
        let host = route.host.as_ref()?.as_ref().ok()?;
        (world.server_of(host) == Some(&route.known.identity.id)).then(|| host.clone())
    });
    let mut hosts: BTreeSet<_> = owned.collect();
    let leaving = routes.iter().filter(|route| route.known.identity.is_deleting()).count();
    let left_out = routes.len().saturating_sub(hosts.len() + leaving);
    let istio = ObjectId::new::<IstioGateway>(id.namespace.as_deref(), &id.name);
    let gateway = world.gateways.get(id);
    let waiting = gateway.map(|gateway| world.hosts_elsewhere(&istio, &gateway.spec, hosts.iter())).unwrap_or_default();
    for (host, _) in &waiting {
        hosts.remove(host);
    }
    let kinds = system.kinds.borrow();
    let unread: Vec<Fqdn> = world.unread_hosts(&istio, is_installed::<DnsEndpoint>(&kinds)).collect();
    let may_delete = world.istio.contains_key(&istio) && unread.is_empty();
    hosts.extend(unread);
    gateway::View {
        id: id.clone(),
        installed: is_installed::<IstioGateway>(&kinds),
        may_delete,
        orphaned: world.is_orphaned(&istio),
        gateway: gateway.map(plain),
        left_out,
        hosts: hosts.into_iter().collect(),
        waiting,
        written: world.written(&istio),
        memory,
        base,
    }
}

fn of_target(system: &RouterSystem, world: &ClusterState, target: &Target, base: Base, memory: Memory) -> target::View {
    let ours: Vec<_> = world.living_gateways().filter(|gateway| Target::of(&gateway.spec) == *target).collect();
    let written = ours.first().map(|gateway| (gateway.spec.controller.clone(), gateway.spec.target_postfix.clone()));
    let (controller, postfix) = written.unzip();
    let of_postfix = |gateway: &&Known<_>| Target::of(&gateway.spec).postfix == target.postfix;
    let holder = oldest(world.living_gateways().filter(of_postfix));
    let holder = holder.filter(|oldest| Target::of(&oldest.spec) != *target);
    let Balancers { first, next } = world.balancers_of(target);
    let owner = Owner::Target(target.clone());
    let of_rival = |(rival, _): &(&Target, _)| rival.postfix == target.postfix && *rival != target;
    let rivals = world.published_targets().filter(of_rival).flat_map(|(rival, _)| {
        let rivals = world.children_of_target(rival).into_iter();
        rivals.map(|child| of_child(world, rival, child)).collect::<Vec<_>>()
    });
    let rivals: Vec<target::ChildView> = rivals.collect();
    let occupied = match (&controller, &base.configuration) {
        (Some(controller), Ok(spec)) => {
            let names = |service: &'_ ServiceFacts| {
                let namespace = service.id.namespace.clone();
                let name = |dns: &ExternalDNSController| names::target_child(controller, &target.postfix, &dns.name);
                let names: Vec<String> = spec.external_dns_controllers.iter().map(name).collect();
                names.into_iter().map(move |name| ObjectId::new::<DnsEndpoint>(namespace.as_deref(), &name))
            };
            first.into_iter().chain(next).flat_map(names).filter(|id| world.is_occupied(id, &owner)).collect()
        }
        _ => BTreeSet::new(),
    };
    let owned: BTreeSet<(Arc<str>, u64)> = match holder.map(|oldest| Target::of(&oldest.spec)) {
        Some(holder) => {
            let published = world.children_of_target(&holder).into_iter().filter(|(_, child)| child.host != 0);
            published.map(|child| (of_child(world, &holder, child).controller, child.1.host)).collect()
        }
        None => BTreeSet::new(),
    };
    let child = |child: (&Id, &ChildFacts)| {
        let view = of_child(world, target, child);
        target::ChildView { replaced: owned.contains(&(view.controller.clone(), child.1.host)), ..view }
    };
    let host = world.identity.as_ref().ok().zip(postfix.as_deref());
    let host = host.and_then(|(identity, postfix)| names::target_host(identity, postfix).ok());
    let children: Vec<target::ChildView> = world.children_of_target(target).into_iter().map(child).collect();
    let former = former_names(world, target, host.as_ref(), children.iter().chain(&rivals), &memory);
    let view = |service: &ServiceFacts| of_service(world, service, host.as_ref(), &former);
    target::View {
        target: target.clone(),
        installed: is_installed::<DnsEndpoint>(&system.kinds.borrow()),
        controller,
        postfix,
        gateway: oldest(ours.iter().copied()).map(|gateway| gateway.identity.clone()),
        holder: holder.map(|gateway| {
            let verdict = world.targets.get(&Target::of(&gateway.spec));
            target::Holder {
                id: gateway.identity.id.clone(),
                published: verdict.is_some_and(|verdict| verdict.ready),
                changing: verdict.is_some_and(TargetVerdict::is_changing),
            }
        }),
        service: first.map(view),
        next: next.map(view),
        is_needed: ours.is_empty() && world.is_awaited(former.keys()),
        children,
        former,
        rivals,
        reported: ours.iter().find_map(|gateway| gateway.seen.class),
        occupied,
        memory,
        base,
    }
}

/// The names that gateways had, and whether a DNSEndpoint of a route points at each: names of their DNSEndpoints, and those that this process published.
fn former_names<'a>(
    world: &ClusterState,
    target: &Target,
    host: Option<&Fqdn>,
    children: impl Iterator<Item = &'a target::ChildView>,
    memory: &'a Memory,
) -> BTreeMap<Fqdn, bool> {
    let names: BTreeSet<&Fqdn> = children.flat_map(|child| child.names.iter()).chain(memory.former.keys()).collect();
    let former = names.into_iter().filter(|name| Some(*name) != host && !world.is_name_of_another(name, target));
    former.map(|name| (name.clone(), world.is_pointed_at(name))).collect()
}

/// A load balancer, without names that lead back to it.
fn of_service(
    world: &ClusterState,
    service: &ServiceFacts,
    host: Option<&Fqdn>,
    former: &BTreeMap<Fqdn, bool>,
) -> target::ServiceView {
    let mut points = service.points.clone();
    let leads_back = |name: &Fqdn| Some(name) == host || former.get(name) == Some(&true) || world.is_host(name);
    let (loops, names) = points.names.into_iter().partition(leads_back);
    points.names = names;
    target::ServiceView { identity: service.identity(), points, loops }
}

/// A DNSEndpoint of gateways.
fn of_child(world: &ClusterState, target: &Target, (id, child): (&Id, &ChildFacts)) -> target::ChildView {
    let gateway = world.living_gateways().find(|gateway| Target::of(&gateway.spec) == *target);
    let (controller, postfix) = match gateway {
        Some(gateway) => (&*gateway.spec.controller, &*gateway.spec.target_postfix),
        None => (&*target.controller, &*target.postfix),
    };
    let service = child.service.as_deref().map(|name| services::owner_of(id, name));
    target::ChildView {
        id: id.clone(),
        controller: world.publisher_of(id, child, &[controller, postfix]),
        names: child.names.clone(),
        class: child.class,
        observed: child.observed,
        read: child.read,
        ours: child.ours,
        has_service: service.as_ref().is_some_and(|service| world.has_service(service)),
        service: service.and_then(|service| world.services.get(&service)).map(ServiceFacts::identity),
        replaced: false,
    }
}
