//! The state of the cluster in small maps, and which keys each change concerns.
//!
//! ```text
//! ClusterIdentity, DNSConfiguration ─► the one that is used ─► every key
//! DNSPolicy ─► the routes of its namespace          ServiceRoute ─► itself, its gateway, others that want its host
//! Gateway ───► itself, its target, its routes       Service ──────► the targets whose controller it serves
//! DNSEndpoint, Istio Gateway ─► the object that they were generated for; DNSEndpoint of a route ─► gateways that keep a former name for it
//! ```
//!
//! Objects are not kept. A host belongs to the oldest route that asks for it.

mod children;
mod decisions;
pub(crate) mod facts;
mod hosts;
pub(crate) mod istio;
mod pointers;
pub(crate) mod reserved;
pub(crate) mod services;
pub(crate) mod singletons;
mod targets;
mod unreadable;
pub(crate) mod world;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use signpost_apis::{
    externaldns::DnsEndpoint,
    istio::IstioGateway,
    router::{self, ClusterIdentity, DNSConfiguration, DNSPolicy, ServiceRoute},
    service::Service,
};
use signpost_engine::{Identity, Index, ObjectId, Queue, Touch, Wanted};

use crate::{
    index::{
        facts::{ChildFacts, Id, Known, Seen, ServiceFacts, Target},
        istio::IstioFacts,
        reserved::End,
        world::{ClusterState, Touches},
    },
    report::status::{self, Decision},
    settings::RouterConfig,
};

/// The decisions that are made at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouterKey {
    /// The ClusterIdentities and DNSConfigurations.
    Cluster,
    /// The DNSPolicies of a namespace.
    Policies(Arc<str>),
    /// The Istio Gateway of a Gateway.
    Gateway(Id),
    /// The address records of the gateways of one controller and postfix.
    Target(Target),
    /// The DNSEndpoints of a ServiceRoute.
    Route(Id),
}

impl fmt::Display for RouterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Policies(namespace) => write!(f, "policies {namespace}"),
            Self::Gateway(id) | Self::Route(id) => write!(f, "{id}"),
            Self::Target(target) => write!(f, "target {} {}", target.controller, target.postfix),
        }
    }
}

/// The queue of the system. Every pass is about the whole key.
pub(crate) type Keys = Queue<RouterKey, ()>;

/// The index.
#[derive(Debug)]
pub(crate) struct RouterIndex {
    world: Mutex<ClusterState>,
    queue: Keys,
}

impl RouterIndex {
    pub(crate) fn new(queue: Keys, config: &RouterConfig) -> Self {
        Self { world: Mutex::new(ClusterState::new(config)), queue }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut ClusterState, &mut Touches)) {
        let mut touches = Touches::default();
        change(&mut self.lock(), &mut touches);
        let Touches { first, now, later, statuses } = touches;
        for key in &first {
            self.queue.touch_first(key.clone(), Touch::All);
        }
        for key in now.into_iter().filter(|key| !first.contains(key)) {
            self.queue.touch(key, Touch::All);
        }
        for (key, delay) in later {
            self.queue.touch_after(key, Touch::All, delay);
        }
        for (_, key) in &statuses {
            self.queue.note(key);
        }
        self.queue.statuses().enqueue(statuses);
    }

    /// A kind that is generated was installed or removed, or generated objects were deleted unseen.
    pub(crate) fn kinds_changed(&self) {
        self.change(|world, touches| {
            world.touch_publishers(touches);
            world.touch_gateways(touches);
        });
    }

    /// A pass of a Gateway has written its Istio Gateway, or has failed to.
    pub(crate) fn gateway_written(&self, gateway: &ObjectId, end: End) {
        self.change(|world, touches| world.release_hosts(gateway, end, touches));
    }

    /// A pass begins: what waits for the end of a vacancy may be decided now.
    pub(crate) fn end_vacancies(&self, key: &RouterKey) {
        self.change(|world, touches| world.end_vacancies(key, touches));
    }

    /// Stores the decisions of a pass; returns the objects whose status may have to be written.
    pub(crate) fn settle(&self, key: &RouterKey, decisions: Vec<Decision>) -> Vec<Id> {
        let mut due = BTreeSet::new();
        self.change(|world, touches| {
            for decision in decisions {
                world.settle(key, decision, &mut due, touches);
            }
        });
        due.into_iter().collect()
    }

    /// The wanted state of an object.
    pub(crate) fn wanted(&self, id: &ObjectId, now: Timestamp) -> Option<Wanted> {
        let world = self.lock();
        if id.is::<ClusterIdentity>() {
            status::of_identity(world.identities.get(id)?, now)
        } else if id.is::<DNSConfiguration>() {
            status::of_configuration(world.configurations.get(id)?, now)
        } else if id.is::<DNSPolicy>() {
            status::of_policy(world.policies.get(id)?, now)
        } else if id.is::<router::Gateway>() {
            let gateway = world.gateways.get(id)?;
            status::of_gateway(gateway, world.targets.get(&Target::of(&gateway.spec)), now)
        } else {
            let route = world.routes.get(id)?;
            status::of_route(
                &route.known,
                |name| world.is_observed(route.known.identity.id.namespace.as_deref(), name),
                now,
            )
        }
    }
}

/// An object of ours as the watch shows it.
fn known<S>(identity: Identity, spec: S, seen: Seen) -> Known<S> {
    Known { identity, spec: Arc::new(spec), seen, verdict: None, surplus: None }
}

/// The index of one of our kinds: an object, and its place.
macro_rules! fold {
    ($kind:ty, $put:ident, $remove:ident, $seen:expr) => {
        impl Index<$kind> for RouterIndex {
            fn applied(&self, object: &$kind) {
                let seen = object.status.as_ref().map($seen).unwrap_or_default();
                let known = known(Identity::of(object), object.spec.clone(), seen);
                self.change(|world, touches| {
                    world.resolve_unreadable(&known.identity.id, touches);
                    world.$put(known, touches);
                });
            }

            fn deleted(&self, id: &ObjectId) {
                self.change(|world, touches| {
                    world.resolve_unreadable(id, touches);
                    world.$remove(id, touches);
                });
            }

            fn unreadable(&self, object: &Identity, _error: &str) {
                self.change(|world, touches| world.note_unreadable(object, touches));
            }
        }
    };
}

fold!(ClusterIdentity, put_identity, remove_identity, |status| Seen::of(&status.conditions).in_phase(status.phase));
fold!(DNSConfiguration, put_configuration, remove_configuration, |status| Seen::of(&status.conditions));
fold!(router::Gateway, put_gateway, remove_gateway, Seen::of_gateway);
fold!(DNSPolicy, put_policy, remove_policy, Seen::of_policy);
fold!(ServiceRoute, put_route, remove_route, |status| Seen::of(&status.conditions).in_phase(status.phase));

impl Index<Service> for RouterIndex {
    fn applied(&self, object: &Service) {
        let id = ObjectId::of(object);
        let facts = ServiceFacts::of(object);
        self.change(|world, touches| {
            world.resolve_unreadable(&id, touches);
            world.put_service(&id, true, facts, touches);
        });
    }

    fn deleted(&self, id: &ObjectId) {
        self.change(|world, touches| {
            world.resolve_unreadable(id, touches);
            world.put_service(id, false, None, touches);
        });
    }

    fn unreadable(&self, object: &Identity, _error: &str) {
        self.change(|world, touches| world.note_unreadable(object, touches));
    }
}

impl Index<DnsEndpoint> for RouterIndex {
    fn applied(&self, object: &DnsEndpoint) {
        let id = ObjectId::of(object);
        let facts = ChildFacts::of(object);
        self.change(|world, touches| world.put_child(id, facts, touches));
    }

    fn deleted(&self, id: &ObjectId) {
        self.change(|world, touches| world.put_child(id.clone(), None, touches));
    }

    fn children_lost(&self) {
        self.kinds_changed();
    }
}

impl Index<IstioGateway> for RouterIndex {
    fn applied(&self, object: &IstioGateway) {
        let (id, facts) = (ObjectId::of(object), IstioFacts::of(object));
        self.change(|world, touches| world.put_istio(id, Some(facts), touches));
    }

    fn deleted(&self, id: &ObjectId) {
        self.change(|world, touches| world.put_istio(id.clone(), None, touches));
    }

    fn children_lost(&self) {
        self.kinds_changed();
    }
}

/// How long a change of a generated object waits for more of them: most are our own.
pub(crate) const ECHO: Duration = Duration::from_millis(100);
/// How long a gateway waits for more hosts after one changed.
pub(crate) const FEW_HOSTS: Duration = Duration::from_millis(50);
/// How long it waits while hosts keep changing.
pub(crate) const MANY_HOSTS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
