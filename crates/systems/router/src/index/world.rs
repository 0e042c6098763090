//! The maps, and what a change of one of them touches.
//!
//! In: facts of objects. Out: the maps with the facts in them, the host claims, and the keys whose input has changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use signpost_apis::router::{
    self, ClusterIdentitySpec, DNSConfigurationSpec, DNSPolicySpec, GatewaySpec, ServiceRouteSpec,
};
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Kind, ObjectId};
use signpost_planning::{Claim, Claims};
use tokio::time::Instant;

use crate::{
    index::{
        ECHO, FEW_HOSTS, MANY_HOSTS, RouterKey,
        facts::{ChildFacts, Id, Known, Owner, ServiceFacts, Target},
    },
    plan::{cluster, names},
    report::status::{Decision, TargetVerdict},
};

/// The used object of a kind, or why there is no such object.
pub(crate) type Used<T> = Result<Arc<T>, Arc<str>>;

/// The keys that a change concerns.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    pub(crate) now: BTreeSet<RouterKey>,
    pub(crate) later: Vec<(RouterKey, Duration)>,
    pub(crate) statuses: Vec<(Id, RouterKey)>,
}

impl Touches {
    fn touch(&mut self, key: RouterKey) {
        self.now.insert(key);
    }
}

/// A ServiceRoute.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) known: Known<ServiceRouteSpec>,
    /// The Gateway that it names.
    pub(crate) gateway: Id,
    /// Its host; `None` while the cluster has no identity.
    pub(crate) host: Option<Result<Fqdn, Arc<str>>>,
    /// Whether its DNSEndpoints are published for this host.
    pub(crate) published: bool,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct World {
    gateway_namespace: String,
    pub(crate) identities: BTreeMap<Id, Known<ClusterIdentitySpec>>,
    pub(crate) configurations: BTreeMap<Id, Known<DNSConfigurationSpec>>,
    pub(crate) policies: BTreeMap<Id, Known<DNSPolicySpec>>,
    pub(crate) gateways: BTreeMap<Id, Known<GatewaySpec>>,
    pub(crate) routes: BTreeMap<Id, Route>,
    pub(crate) services: BTreeMap<Id, ServiceFacts>,
    /// The DNSEndpoints that we generated.
    pub(crate) children: BTreeMap<Id, ChildFacts>,
    pub(crate) by_owner: BTreeMap<Owner, BTreeSet<Id>>,
    /// All Istio Gateways.
    pub(crate) istio: BTreeSet<ObjectId>,
    /// The routes of a Gateway, whether it exists or not.
    pub(crate) by_gateway: BTreeMap<Id, BTreeSet<Id>>,
    pub(crate) hosts: Claims<Fqdn, Id>,
    /// The decisions about the address records of gateways.
    pub(crate) targets: BTreeMap<Target, TargetVerdict>,
    /// Names that a foreign object has, and who waits for them.
    taken: BTreeMap<ObjectId, BTreeSet<RouterKey>>,
    pub(crate) identity: Used<ClusterIdentitySpec>,
    pub(crate) configuration: Used<DNSConfigurationSpec>,
    /// Objects that could never be read, and when they were created: nobody knows what they ask for, so nothing is concluded from their
    /// absence.
    pub(super) unreadable: BTreeMap<ObjectId, Timestamp>,
    /// When a host of a gateway last changed.
    changed: BTreeMap<Id, Instant>,
}

impl World {
    pub(crate) fn new(gateway_namespace: &str) -> Self {
        Self {
            gateway_namespace: gateway_namespace.to_owned(),
            identities: BTreeMap::new(),
            configurations: BTreeMap::new(),
            policies: BTreeMap::new(),
            gateways: BTreeMap::new(),
            routes: BTreeMap::new(),
            services: BTreeMap::new(),
            children: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            istio: BTreeSet::new(),
            by_gateway: BTreeMap::new(),
            hosts: Claims::new(),
            targets: BTreeMap::new(),
            taken: BTreeMap::new(),
            identity: used(None, None, "ClusterIdentity", cluster::check_identity),
            configuration: used(None, None, "DNSConfiguration", cluster::check_configuration),
            unreadable: BTreeMap::new(),
            changed: BTreeMap::new(),
        }
    }

    pub(crate) fn put_identity(&mut self, new: Known<ClusterIdentitySpec>, touches: &mut Touches) {
        if put(&mut self.identities, new, RouterKey::Cluster, touches) {
            self.cluster_changed(touches);
        }
    }

    pub(crate) fn remove_identity(&mut self, id: &ObjectId, touches: &mut Touches) {
        if self.identities.remove(id).is_some() {
            self.cluster_changed(touches);
        }
    }

    pub(crate) fn put_configuration(&mut self, new: Known<DNSConfigurationSpec>, touches: &mut Touches) {
        if put(&mut self.configurations, new, RouterKey::Cluster, touches) {
            self.cluster_changed(touches);
        }
    }

    pub(crate) fn remove_configuration(&mut self, id: &ObjectId, touches: &mut Touches) {
        if self.configurations.remove(id).is_some() {
            self.cluster_changed(touches);
        }
    }

    pub(super) fn cluster_changed(&mut self, touches: &mut Touches) {
        touches.touch(RouterKey::Cluster);
        let first = oldest(self.identities.values());
        let older = self.older_unreadable(Kind::of::<router::ClusterIdentity>(), None, first);
        let identity = used(first, older, "ClusterIdentity", cluster::check_identity);
        let first = oldest(self.configurations.values());
        let older = self.older_unreadable(Kind::of::<router::DNSConfiguration>(), None, first);
        let configuration = used(first, older, "DNSConfiguration", cluster::check_configuration);
        let same = (&identity, &configuration) == (&self.identity, &self.configuration);
        if identity != self.identity {
            self.identity = identity;
            self.name_all_hosts();
        }
        self.configuration = configuration;
        if !same {
            touches.now.extend(self.policies.keys().map(|id| policies_of(id)));
            self.touch_gateways(touches);
            self.touch_publishers(touches);
        }
    }

    /// Every key that writes DNSEndpoints.
    pub(crate) fn touch_publishers(&self, touches: &mut Touches) {
        touches.now.extend(self.routes.keys().cloned().map(RouterKey::Route));
        let targets = self.gateways.values().map(|gateway| Target::of(&gateway.spec));
        touches.now.extend(targets.map(RouterKey::Target));
        touches.now.extend(self.by_owner.keys().map(key_of));
    }

    /// Every key that writes Istio Gateways.
    pub(crate) fn touch_gateways(&self, touches: &mut Touches) {
        touches.now.extend(self.gateways.keys().cloned().map(RouterKey::Gateway));
    }

    pub(crate) fn put_policy(&mut self, new: Known<DNSPolicySpec>, touches: &mut Touches) {
        let id = new.identity.id.clone();
        let key = policies_of(&id);
        if put(&mut self.policies, new, key, touches) {
            self.policy_changed(&id, touches);
        }
    }

    pub(crate) fn remove_policy(&mut self, id: &ObjectId, touches: &mut Touches) {
        if self.policies.remove(id).is_some() {
            self.policy_changed(id, touches);
        }
    }

    pub(super) fn policy_changed(&self, id: &ObjectId, touches: &mut Touches) {
        touches.touch(policies_of(id));
        let routes = in_namespace(&self.routes, router_kind(), id.namespace.as_deref());
        touches.now.extend(routes.map(|(id, _)| RouterKey::Route(id.clone())));
    }

    pub(crate) fn put_gateway(&mut self, new: Known<GatewaySpec>, touches: &mut Touches) {
        let id = new.identity.id.clone();
        let before = self.gateways.get(&id).cloned();
        if put(&mut self.gateways, new, RouterKey::Gateway(id.clone()), touches) {
            self.gateway_changed(&id, before.as_ref(), touches);
        }
    }

    pub(crate) fn remove_gateway(&mut self, id: &ObjectId, touches: &mut Touches) {
        if let Some((id, before)) = self.gateways.remove_entry(id) {
            self.changed.remove(&id);
            self.gateway_changed(&id, Some(&before), touches);
        }
    }

    fn gateway_changed(&self, id: &Id, before: Option<&Known<GatewaySpec>>, touches: &mut Touches) {
        touches.touch(RouterKey::Gateway(id.clone()));
        let routes = self.by_gateway.get(id).into_iter().flatten();
        touches.now.extend(routes.cloned().map(RouterKey::Route));
        let postfixes: BTreeSet<Arc<str>> = before
            .into_iter()
            .chain(self.gateways.get(id))
            .map(|gateway| {
                let target = Target::of(&gateway.spec);
                touches.touch(RouterKey::Target(target.clone()));
                target.postfix
            })
            .collect();
        // One name has one owner: others with the postfix may win or lose it.
        let targets = self.gateways.values().map(|gateway| Target::of(&gateway.spec));
        let shared = targets.filter(|target| postfixes.contains(&target.postfix));
        touches.now.extend(shared.map(RouterKey::Target));
    }

    pub(crate) fn put_route(&mut self, new: Known<ServiceRouteSpec>, touches: &mut Touches) {
        let id = new.identity.id.clone();
        if let Some(before) = self.routes.get_mut(&id)
            && before.known.asks_the_same(&new)
        {
            let verdict = before.known.verdict.take();
            before.known = Known { verdict, ..new };
            touches.statuses.push((id.clone(), RouterKey::Route(id)));
            return;
        }
        if let Some(before) = self.routes.remove(&id) {
            self.detach(&before, touches);
        }
        let gateway = self.gateway_of(&id, &new.spec);
        let route = Route { known: new, gateway, host: None, published: false };
        self.attach(id, route, touches);
    }

    pub(crate) fn remove_route(&mut self, id: &ObjectId, touches: &mut Touches) {
        if let Some((id, before)) = self.routes.remove_entry(id) {
            self.detach(&before, touches);
            touches.touch(RouterKey::Route(id));
        }
    }

    fn gateway_of(&self, id: &ObjectId, spec: &ServiceRouteSpec) -> Id {
        let named = spec.gateway_namespace.as_deref().filter(|namespace| !namespace.is_empty());
        let namespace = named.unwrap_or(&self.gateway_namespace);
        let gateway = ObjectId::new::<router::Gateway>(Some(namespace), &spec.gateway_name);
        debug_assert!(id.namespace.is_some());
        match self.by_gateway.get_key_value(&gateway) {
            Some((shared, _)) => shared.clone(),
            None => Arc::new(gateway),
        }
    }

    fn attach(&mut self, id: Id, mut route: Route, touches: &mut Touches) {
        touches.touch(RouterKey::Route(id.clone()));
        route.host = self.host_of(&route.known.spec);
        self.by_gateway.entry(route.gateway.clone()).or_default().insert(id.clone());
        self.hosts_changed(&route.gateway, touches);
        if let Some(claim) = claim_of(&route) {
            let (host, claim) = claim;
            self.hosts.insert(host.clone(), claim);
            self.claims_changed(&host, touches);
        }
        self.routes.insert(id, route);
    }

    fn detach(&mut self, route: &Route, touches: &mut Touches) {
        let id = &route.known.identity.id;
        if let Some(routes) = self.by_gateway.get_mut(&route.gateway) {
            routes.remove(id);
            if routes.is_empty() {
                self.by_gateway.remove(&route.gateway);
            }
        }
        self.hosts_changed(&route.gateway, touches);
        if let Some(Ok(host)) = &route.host {
            self.hosts.remove(host, id);
            self.claims_changed(host, touches);
        }
    }

    /// Everybody who asks for this host is judged again, with the gateway that would serve it.
    fn claims_changed(&mut self, host: &Fqdn, touches: &mut Touches) {
        let claimants: Vec<Id> = self.hosts.line(host).map(|claim| claim.holder.clone()).collect();
        for id in claimants {
            if let Some(gateway) = self.routes.get(&id).map(|route| route.gateway.clone()) {
                self.hosts_changed(&gateway, touches);
            }
            touches.touch(RouterKey::Route(id));
        }
    }

    /// A gateway's hosts are written together: soon after one change, less often while they keep changing.
    pub(super) fn hosts_changed(&mut self, gateway: &Id, touches: &mut Touches) {
        if !self.gateways.contains_key(gateway) {
            return;
        }
        let now = Instant::now();
        let before = self.changed.insert(gateway.clone(), now);
        let burst = before.is_some_and(|before| now.duration_since(before) < MANY_HOSTS);
        touches.later.push((RouterKey::Gateway(gateway.clone()), if burst { MANY_HOSTS } else { FEW_HOSTS }));
    }

    fn host_of(&self, spec: &ServiceRouteSpec) -> Option<Result<Fqdn, Arc<str>>> {
        let identity = self.identity.as_ref().ok()?;
        Some(names::route_host(identity, spec).map_err(|error| error.to_string().into()))
    }

    /// The identity has changed, and with it every host.
    fn name_all_hosts(&mut self) {
        self.hosts = Claims::new();
        let mut routes = std::mem::take(&mut self.routes);
        for route in routes.values_mut() {
            let host = self.host_of(&route.known.spec);
            route.published &= host == route.host;
            route.host = host;
            if let Some((host, claim)) = claim_of(route) {
                self.hosts.insert(host, claim);
            }
        }
        self.routes = routes;
    }

    pub(crate) fn put_service(&mut self, id: &ObjectId, new: Option<ServiceFacts>, touches: &mut Touches) {
        if self.services.get(id) == new.as_ref() {
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
        if let Some(new) = new {
            self.services.insert(new.id.clone(), new);
        }
    }

    pub(crate) fn put_child(&mut self, id: ObjectId, new: Option<ChildFacts>, touches: &mut Touches) {
        for key in self.taken.remove(&id).into_iter().flatten() {
            touches.touch(key);
        }
        let before = self.children.remove_entry(&id);
        let Some(mut new) = new else {
            if let Some((id, before)) = before {
                self.forget_child(&id, &before.owner);
                touches.touch(key_of(&before.owner));
                self.publication_changed(&before.owner, touches);
                self.touch_rivals_of(&before.owner, touches);
            }
            return;
        };
        if let Some((shared, _)) = self.by_owner.get_key_value(&new.owner) {
            new.owner = shared.clone();
        }
        let (id, before) = match before {
            Some((id, before)) => (id, Some(before)),
            None => (Arc::new(id), None),
        };
        match &before {
            Some(before) if before.owner != new.owner => {
                self.forget_child(&id, &before.owner);
                touches.touch(key_of(&before.owner));
                touches.touch(key_of(&new.owner));
            }
            Some(before) if before.digest == new.digest => match &new.owner {
                Owner::Route(route) => touches.statuses.push((route.clone(), key_of(&new.owner))),
                Owner::Target(_) => touches.touch(key_of(&new.owner)),
            },
            _ => touches.later.push((key_of(&new.owner), ECHO)),
        }
        let owner = new.owner.clone();
        let same = before.as_ref().is_some_and(|before| before.owner == owner && before.host == new.host);
        self.by_owner.entry(owner.clone()).or_default().insert(id.clone());
        self.children.insert(id, new);
        if !same {
            self.publication_changed(&owner, touches);
        }
        self.touch_rivals_of(&owner, touches);
    }

    /// What a gateway publishes decides whether another one of the name may.
    fn touch_rivals_of(&self, owner: &Owner, touches: &mut Touches) {
        if let Owner::Target(target) = owner {
            self.touch_rivals(target, touches);
        }
    }

    fn forget_child(&mut self, id: &Id, owner: &Owner) {
        if let Some(children) = self.by_owner.get_mut(owner) {
            children.remove(id);
            if children.is_empty() {
                self.by_owner.remove(owner);
            }
        }
    }

    pub(crate) fn put_istio(&mut self, id: ObjectId, exists: bool, touches: &mut Touches) {
        for key in self.taken.remove(&id).into_iter().flatten() {
            touches.touch(key);
        }
        let gateway = Arc::new(ObjectId::new::<router::Gateway>(id.namespace.as_deref(), &id.name));
        let delay = if exists { ECHO } else { Duration::ZERO };
        if exists {
            self.istio.insert(id);
        } else {
            self.istio.remove(&id);
        }
        if self.gateways.contains_key(&gateway) {
            touches.later.push((RouterKey::Gateway(gateway), delay));
        }
    }

    /// Whether external-dns has read the current generation of this DNSEndpoint.
    pub(crate) fn is_observed(&self, namespace: Option<&str>, name: &str) -> bool {
        let id = ObjectId::new::<signpost_apis::externaldns::DnsEndpoint>(namespace, name);
        self.children.get(&id).is_some_and(|child| child.observed)
    }

    /// The children of an owner, in order; none while it perhaps cannot be read, so that they are kept.
    pub(crate) fn children_of(&self, owner: &Owner) -> impl Iterator<Item = (&Id, &ChildFacts)> {
        let ids = self.by_owner.get(owner).filter(|_| !self.may_be_unreadable(owner));
        ids.into_iter().flatten().filter_map(|id| self.children.get_key_value(id))
    }

    /// The gateways that have DNSEndpoints.
    pub(crate) fn published_targets(&self) -> impl Iterator<Item = (&Target, &BTreeSet<Id>)> {
        let first = Owner::Target(Target { controller: "".into(), postfix: "".into() });
        self.by_owner.range(first..).filter_map(|(owner, children)| match owner {
            Owner::Target(target) => Some((target, children)),
            Owner::Route(_) => None,
        })
    }

    /// Other gateways of the postfix: they may withdraw the name now, because this one has published it.
    fn touch_rivals(&self, target: &Target, touches: &mut Touches) {
        let living = self.gateways.values().map(|gateway| Target::of(&gateway.spec));
        let published = self.published_targets().map(|(target, _)| target.clone());
        let rivals = living.chain(published).filter(|other| other.postfix == target.postfix && other != target);
        touches.now.extend(rivals.map(RouterKey::Target));
    }

    /// Stores one decision.
    pub(crate) fn settle(
        &mut self,
        key: &RouterKey,
        decision: Decision,
        due: &mut BTreeSet<Id>,
        touches: &mut Touches,
    ) {
        match decision {
            Decision::Object { judged, verdict } => {
                let id = judged.id.clone();
                let place = verdict_of(self, &judged);
                if let Some(place) = place {
                    *place = Some(Arc::new(verdict));
                    due.insert(id);
                }
            }
            Decision::Published { judged, host, published } => {
                let Some(route) = self.routes.get_mut(&judged.id) else { return };
                let current = route.known.identity.asks_the_same(&judged) && route.host == Some(Ok(host.clone()));
                if current && route.published != published {
                    route.published = published;
                    // The former owner of the host may withdraw it now.
                    let others = self.hosts.waiting(&host).map(|claim| RouterKey::Route(claim.holder.clone()));
                    touches.now.extend(others);
                }
            }
            Decision::Target { target, verdict } => {
                let of_target = |gateway: &&Known<GatewaySpec>| Target::of(&gateway.spec) == target;
                due.extend(self.gateways.values().filter(of_target).map(|gateway| gateway.identity.id.clone()));
                let told = |verdict: &TargetVerdict| (verdict.ready, verdict.is_changing());
                if told(&verdict) != self.targets.get(&target).map_or((false, false), told) {
                    self.touch_rivals(&target, touches);
                }
                self.targets.insert(target, verdict);
            }
            Decision::TargetGone(target) => {
                self.targets.remove(&target);
            }
            Decision::Taken(ids) => {
                for id in ids {
                    // Another object of ours has the name, and the watch was late: the next pass chooses another name.
                    if self.children.get(&id).is_some_and(|child| key_of(&child.owner) != *key) {
                        touches.touch(key.clone());
                    }
                    self.taken.entry(id).or_default().insert(key.clone());
                }
            }
        }
    }
}

impl<S: PartialEq> Known<S> {
    fn asks_the_same(&self, other: &Self) -> bool {
        self.identity.asks_the_same(&other.identity) && self.spec == other.spec
    }
}

/// Puts an object into its map; false when it asks for what it asked for before.
fn put<S: PartialEq>(map: &mut BTreeMap<Id, Known<S>>, new: Known<S>, key: RouterKey, touches: &mut Touches) -> bool {
    let id = new.identity.id.clone();
    if let Some(before) = map.get_mut(&id)
        && before.asks_the_same(&new)
    {
        let verdict = before.verdict.take();
        *before = Known { verdict, ..new };
        touches.statuses.push((id, key));
        return false;
    }
    map.insert(id, new);
    true
}

fn verdict_of<'a>(
    world: &'a mut World,
    judged: &Identity,
) -> Option<&'a mut Option<Arc<crate::report::status::Verdict>>> {
    fn place<'a, S>(
        known: &'a mut Known<S>,
        judged: &Identity,
    ) -> Option<&'a mut Option<Arc<crate::report::status::Verdict>>> {
        known.identity.asks_the_same(judged).then_some(&mut known.verdict)
    }
    let id = &*judged.id;
    if id.is::<router::ClusterIdentity>() {
        place(world.identities.get_mut(id)?, judged)
    } else if id.is::<router::DNSConfiguration>() {
        place(world.configurations.get_mut(id)?, judged)
    } else if id.is::<router::DNSPolicy>() {
        place(world.policies.get_mut(id)?, judged)
    } else if id.is::<router::Gateway>() {
        place(world.gateways.get_mut(id)?, judged)
    } else {
        place(&mut world.routes.get_mut(id)?.known, judged)
    }
}

/// The oldest, then the first by name.
pub(crate) fn oldest<'a, S: 'a>(objects: impl Iterator<Item = &'a Known<S>>) -> Option<&'a Known<S>> {
    objects.min_by(|a, b| (a.identity.created, &a.identity.id).cmp(&(b.identity.created, &b.identity.id)))
}

fn used<S>(
    first: Option<&Known<S>>,
    unreadable: Option<&ObjectId>,
    kind: &str,
    check: impl Fn(&S) -> Result<(), String>,
) -> Used<S> {
    if let Some(id) = unreadable {
        return Err(format!("{kind} {} is the oldest and cannot be read", id.name).into());
    }
    let Some(first) = first else {
        return Err(format!("there is no {kind}").into());
    };
    match check(&first.spec) {
        Ok(()) => Ok(first.spec.clone()),
        Err(why) => Err(format!("{kind} {} is not valid: {why}", first.identity.id.name).into()),
    }
}

fn claim_of(route: &Route) -> Option<(Fqdn, Claim<Id>)> {
    let identity = &route.known.identity;
    let host = route.host.as_ref()?.as_ref().ok().filter(|_| !identity.is_deleting())?;
    Some((host.clone(), identity.claim()))
}

fn policies_of(id: &ObjectId) -> RouterKey {
    RouterKey::Policies(id.namespace.as_deref().unwrap_or_default().into())
}

fn key_of(owner: &Owner) -> RouterKey {
    match owner {
        Owner::Route(id) => RouterKey::Route(id.clone()),
        Owner::Target(target) => RouterKey::Target(target.clone()),
    }
}

fn router_kind() -> &'static signpost_engine::Kind {
    signpost_engine::Kind::of::<router::ServiceRoute>()
}

/// The objects of a kind in a namespace.
pub(crate) fn in_namespace<'a, T>(
    map: &'a BTreeMap<Id, T>,
    kind: &'static signpost_engine::Kind,
    namespace: Option<&'a str>,
) -> impl Iterator<Item = (&'a Id, &'a T)> {
    let from = ObjectId::of_kind(kind, namespace, "");
    map.range(Arc::new(from)..).take_while(move |(id, _)| id.kind == kind && id.namespace.as_deref() == namespace)
}
