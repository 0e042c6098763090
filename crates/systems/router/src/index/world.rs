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
use signpost_engine::{Kind, ObjectId};
use signpost_planning::{Claim, Claims};
use tokio::time::Instant;

use crate::{
    index::{
        FEW_HOSTS, MANY_HOSTS, RouterKey,
        facts::{ChildFacts, Id, Known, Owner, ServiceFacts, Target},
        hosts::Strays,
        istio::IstioFacts,
        reserved::Reserved,
        singletons::{Vacancy, first},
    },
    plan::{cluster, names, policy, singleton::Place},
    report::status::TargetVerdict,
    settings::RouterConfig,
};

/// The used object of a kind, or why there is no such object.
pub(crate) type Used<T> = Result<Arc<T>, Arc<str>>;

/// The keys that a change concerns.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    /// Keys that are to withdraw something. They do not wait for others.
    pub(crate) first: BTreeSet<RouterKey>,
    pub(crate) now: BTreeSet<RouterKey>,
    pub(crate) later: Vec<(RouterKey, Duration)>,
    pub(crate) statuses: Vec<(Id, RouterKey)>,
}

impl Touches {
    pub(super) fn touch(&mut self, key: RouterKey) {
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
pub(crate) struct ClusterState {
    gateway_namespace: String,
    /// How long a place is vacant before another object has it.
    pub(super) withdraw_after: Duration,
    /// The places whose object was deleted, while another one could have them.
    pub(super) vacant: BTreeMap<ObjectId, Vacancy>,
    pub(crate) identities: BTreeMap<Id, Known<ClusterIdentitySpec>>,
    pub(crate) configurations: BTreeMap<Id, Known<DNSConfigurationSpec>>,
    pub(crate) policies: BTreeMap<Id, Known<DNSPolicySpec>>,
    pub(crate) gateways: BTreeMap<Id, Known<GatewaySpec>>,
    pub(crate) routes: BTreeMap<Id, Route>,
    pub(crate) services: BTreeMap<Id, ServiceFacts>,
    /// Digests of the names of all Services.
    pub(super) present_services: BTreeSet<u64>,
    /// The DNSEndpoints that we generated.
    pub(crate) children: BTreeMap<Id, Box<ChildFacts>>,
    pub(crate) by_owner: BTreeMap<Owner, BTreeSet<Id>>,
    /// The names of controllers that DNSEndpoints share.
    pub(super) controllers: BTreeSet<Arc<str>>,
    /// How many DNSEndpoints of routes point at a name, by its digest.
    pub(super) pointed_at: BTreeMap<u64, usize>,
    /// Former names of gateways that a DNSEndpoint of a route points at, by their digests, and whose they are.
    pub(super) kept: BTreeMap<u64, BTreeSet<Target>>,
    /// The Gateways with a route that points at a former name, because theirs is not published yet.
    pub(super) unpublished: BTreeSet<Id>,
    /// All Istio Gateways.
    pub(crate) istio: BTreeMap<ObjectId, IstioFacts>,
    /// The hosts that passes write into Istio Gateways.
    pub(super) reserved: Reserved,
    /// The Gateways that left a host out in their last pass because a pass of another one reserves it, and the Istio Gateways of these.
    pub(super) waiting: BTreeMap<Id, BTreeSet<ObjectId>>,
    /// The routes of a Gateway, whether it exists or not.
    pub(crate) by_gateway: BTreeMap<Id, BTreeSet<Id>>,
    pub(crate) hosts: Claims<Fqdn, Id>,
    /// The decisions about the address records of gateways.
    pub(crate) targets: BTreeMap<Target, TargetVerdict>,
    /// The routes that have published their host, by the digest of the host.
    pub(super) served: BTreeMap<u64, Id>,
    /// Routes that cannot be published and have DNSEndpoints of a host that they do not ask for any more.
    pub(super) strays: Strays,
    /// Names that a foreign object has, and who waits for them.
    pub(super) taken: BTreeMap<ObjectId, BTreeSet<RouterKey>>,
    pub(crate) identity: Used<ClusterIdentitySpec>,
    pub(crate) configuration: Used<DNSConfigurationSpec>,
    /// Objects that could never be read, and when they were created: nobody knows what they ask for, so nothing is concluded from their
    /// absence.
    pub(super) unreadable: BTreeMap<ObjectId, Timestamp>,
    /// When a host of a gateway last changed.
    changed: BTreeMap<Id, Instant>,
}

impl ClusterState {
    pub(crate) fn new(config: &RouterConfig) -> Self {
        Self {
            gateway_namespace: config.gateway_namespace.clone(),
            withdraw_after: config.withdraw_after,
            vacant: BTreeMap::new(),
            identities: BTreeMap::new(),
            configurations: BTreeMap::new(),
            policies: BTreeMap::new(),
            gateways: BTreeMap::new(),
            routes: BTreeMap::new(),
            services: BTreeMap::new(),
            present_services: BTreeSet::new(),
            children: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            controllers: BTreeSet::new(),
            pointed_at: BTreeMap::new(),
            kept: BTreeMap::new(),
            unpublished: BTreeSet::new(),
            istio: BTreeMap::new(),
            reserved: Reserved::default(),
            waiting: BTreeMap::new(),
            by_gateway: BTreeMap::new(),
            hosts: Claims::new(),
            targets: BTreeMap::new(),
            served: BTreeMap::new(),
            strays: Strays::default(),
            taken: BTreeMap::new(),
            identity: used(None, &Place::default(), "ClusterIdentity", cluster::check_identity),
            configuration: used(None, &Place::default(), "DNSConfiguration", cluster::check_configuration),
            unreadable: BTreeMap::new(),
            changed: BTreeMap::new(),
        }
    }

    /// With the Gateways of routes in the namespace `infra`.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        Self::new(&RouterConfig { gateway_namespace: "infra".to_owned(), ..RouterConfig::default() })
    }

    pub(crate) fn put_identity(&mut self, new: Known<ClusterIdentitySpec>, touches: &mut Touches) {
        if put(&mut self.identities, new, RouterKey::Cluster, touches) {
            touches.touch(RouterKey::Cluster);
        }
        // A status alone may decide which object is used: on a replica that does not lead, it is how the decision is known.
        self.places_changed(touches);
    }

    pub(crate) fn remove_identity(&mut self, id: &ObjectId, touches: &mut Touches) {
        if self.identities.remove(id).is_some() {
            self.cluster_changed(touches);
        }
    }

    pub(crate) fn put_configuration(&mut self, new: Known<DNSConfigurationSpec>, touches: &mut Touches) {
        if put(&mut self.configurations, new, RouterKey::Cluster, touches) {
            touches.touch(RouterKey::Cluster);
        }
        // A status alone may decide which object is used: on a replica that does not lead, it is how the decision is known.
        self.places_changed(touches);
    }

    pub(crate) fn remove_configuration(&mut self, id: &ObjectId, touches: &mut Touches) {
        if self.configurations.remove(id).is_some() {
            self.cluster_changed(touches);
        }
    }

    pub(super) fn cluster_changed(&mut self, touches: &mut Touches) {
        touches.touch(RouterKey::Cluster);
        self.places_changed(touches);
    }

    /// Which of the identities and configurations is used is decided again; a place may have become vacant, or have an object again.
    fn places_changed(&mut self, touches: &mut Touches) {
        let kind = Kind::of::<router::ClusterIdentity>();
        self.note_vacancy(kind, None, self.is_vacant(kind, None, first(self.identities.values())));
        let kind = Kind::of::<router::DNSConfiguration>();
        self.note_vacancy(kind, None, self.is_vacant(kind, None, first(self.configurations.values())));
        self.choose_singletons(touches);
    }

    /// Chooses the identity and the configuration that are used. When one of them changes, everything is decided again.
    pub(super) fn choose_singletons(&mut self, touches: &mut Touches) {
        let chosen = first(self.identities.values());
        let place = self.place(Kind::of::<router::ClusterIdentity>(), None, chosen);
        let identity = used(chosen, &place, "ClusterIdentity", cluster::check_identity);
        let chosen = first(self.configurations.values());
        let place = self.place(Kind::of::<router::DNSConfiguration>(), None, chosen);
        let configuration = used(chosen, &place, "DNSConfiguration", cluster::check_configuration);
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
        let (key, namespace) = (policies_of(&id), id.namespace.as_deref());
        let used = self.used_policy(namespace);
        if put(&mut self.policies, new, key, touches) {
            self.policy_changed(&id, touches);
            return;
        }
        // A status alone may decide which object is used: on a replica that does not lead, it is how the decision is known.
        self.policy_place_changed(namespace);
        if self.used_policy(namespace) != used {
            self.policy_changed(&id, touches);
        }
    }

    pub(crate) fn remove_policy(&mut self, id: &ObjectId, touches: &mut Touches) {
        if self.policies.remove(id).is_some() {
            self.policy_changed(id, touches);
        }
    }

    pub(super) fn policy_changed(&mut self, id: &ObjectId, touches: &mut Touches) {
        touches.touch(policies_of(id));
        self.policy_place_changed(id.namespace.as_deref());
        self.touch_routes_of(id.namespace.as_deref(), touches);
    }

    /// The place of the policy of a namespace may have become vacant, or have an object again.
    fn policy_place_changed(&mut self, namespace: Option<&str>) {
        let kind = Kind::of::<router::DNSPolicy>();
        self.note_vacancy(kind, namespace, self.is_vacant(kind, namespace, self.first_policy(namespace)));
    }

    /// The policy of a namespace that is used, or is the next one to be.
    pub(crate) fn first_policy(&self, namespace: Option<&str>) -> Option<&Known<DNSPolicySpec>> {
        let policies = in_namespace(&self.policies, Kind::of::<router::DNSPolicy>(), namespace);
        first(policies.map(|(_, policy)| policy))
    }

    /// The policy that routes of a namespace use, if any.
    pub(super) fn used_policy(&self, namespace: Option<&str>) -> Option<Id> {
        let first = self.first_policy(namespace)?;
        let place = self.place(Kind::of::<router::DNSPolicy>(), namespace, Some(first));
        place.unknown("DNSPolicy").is_none().then(|| first.identity.id.clone())
    }

    /// The routes of a namespace. Where its policy is not active here, they withdraw what they have.
    pub(super) fn touch_routes_of(&self, namespace: Option<&str>, touches: &mut Touches) {
        let inactive = self.is_inactive(namespace);
        for (id, _) in in_namespace(&self.routes, router_kind(), namespace) {
            if inactive {
                self.touch_withdrawal(id, touches);
            } else {
                touches.touch(RouterKey::Route(id.clone()));
            }
        }
    }

    /// Whether the policy of a namespace does not apply to this cluster.
    fn is_inactive(&self, namespace: Option<&str>) -> bool {
        let policy = self.used_policy(namespace).and_then(|id| self.policies.get(&id));
        let identity = self.identity.as_ref().ok().filter(|_| self.configuration.is_ok());
        policy.zip(identity).is_some_and(|(policy, identity)| policy::elsewhere(&policy.spec, identity).is_some())
    }

    /// A route is to withdraw what it has: before the keys that wait, where it has something.
    fn touch_withdrawal(&self, id: &Id, touches: &mut Touches) {
        let key = RouterKey::Route(id.clone());
        if self.by_owner.contains_key(&Owner::Route(id.clone())) {
            touches.first.insert(key);
        } else {
            touches.touch(key);
        }
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
        // One name has one owner: others with the postfix may win or lose it. What a former controller published waits for its replacement.
        let targets = self.gateways.values().map(|gateway| Target::of(&gateway.spec));
        let published = self.published_targets().map(|(target, _)| target.clone());
        let shared = targets.chain(published).filter(|target| postfixes.contains(&target.postfix));
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
            self.touch_withdrawal(&id, touches);
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
        if route.known.identity.is_deleting() {
            self.touch_withdrawal(&id, touches);
        } else {
            touches.touch(RouterKey::Route(id.clone()));
        }
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
        self.strays.forget(id);
        if let Some(Ok(host)) = &route.host {
            self.unserve(host, id);
            self.hosts.remove(host, id);
            self.claims_changed(host, touches);
        }
    }

    /// Everybody who asks for this host is judged again, with the gateway that would serve it.
    fn claims_changed(&mut self, host: &Fqdn, touches: &mut Touches) {
        self.touch_aliases(host, touches);
        let claimants: Vec<Id> = self.hosts.queue(host).map(|claim| claim.holder.clone()).collect();
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
        if let Some(field) = names::empty_field(spec) {
            return Some(Err(format!("spec.{field} is empty").into()));
        }
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
        self.served.retain(|_, id| self.routes.get(id).is_some_and(|route| route.published));
    }
}

impl<S: PartialEq> Known<S> {
    fn asks_the_same(&self, other: &Self) -> bool {
        self.identity.asks_the_same(&other.identity) && self.spec == other.spec
    }
}

/// Puts an object into its map; false when it asks for what it asked for before.
fn put<S: PartialEq>(
    map: &mut BTreeMap<Id, Known<S>>,
    mut new: Known<S>,
    key: RouterKey,
    touches: &mut Touches,
) -> bool {
    let id = new.identity.id.clone();
    new.surplus = map.get(&id).filter(|before| before.identity.uid == new.identity.uid).and_then(|it| it.surplus);
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

/// The oldest, then the first by name, as with the controller that this system replaces.
pub(crate) fn oldest<'a, S: 'a>(objects: impl Iterator<Item = &'a Known<S>>) -> Option<&'a Known<S>> {
    objects.min_by_key(|object| object.identity.claim_by_name())
}

fn used<S>(first: Option<&Known<S>>, place: &Place, kind: &str, check: impl Fn(&S) -> Result<(), String>) -> Used<S> {
    let Some(first) = first.filter(|_| place.unknown(kind).is_none()) else {
        return Err(place.unknown(kind).unwrap_or_default().into());
    };
    match check(&first.spec) {
        Ok(()) => Ok(first.spec.clone()),
        Err(why) => Err(format!("{kind} {} is not valid: {why}", first.identity.id.name).into()),
    }
}

fn claim_of(route: &Route) -> Option<(Fqdn, Claim<Id>)> {
    let identity = &route.known.identity;
    let host = route.host.as_ref()?.as_ref().ok().filter(|_| !identity.is_deleting())?;
    // As with the singletons: the first by name of one second.
    Some((host.clone(), identity.claim_by_name()))
}

fn policies_of(id: &ObjectId) -> RouterKey {
    RouterKey::Policies(id.namespace.as_deref().unwrap_or_default().into())
}

pub(super) fn key_of(owner: &Owner) -> RouterKey {
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
    namespace: Option<&str>,
) -> impl Iterator<Item = (&'a Id, &'a T)> {
    let from = ObjectId::of_kind(kind, namespace, "");
    map.range(Arc::new(from)..).take_while(move |(id, _)| id.kind == kind && id.namespace.as_deref() == namespace)
}
