//! The requests of the cluster, folded from the watch. No object is kept.
//!
//! ```text
//! Ingress, IngressClass ─► claimants ─► claims on hosts (oldest, then UID) ─┐
//! Service, PangolinTunnel, PangolinOrganization ─► facts ───────────────────┼─► touch: one key per Ingress
//! PangolinResource (label and owner of an Ingress) ─► children ─────────────┘
//! ```
//! A change that means nothing here (a tunnel's heartbeat, a status, a label of others) touches nothing.

mod claims;
mod classes;
mod read;
mod tunnels;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use signpost_apis::ingress::Ingress;
use signpost_apis::pangolin::PangolinResource;
use signpost_apis::service::Service;
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Index, ObjectId, Queue, Touch, Wanted as WantedState, Writer};
use signpost_exposure::{BaseDomain, Class};
use signpost_planning::Claims;

pub use read::{APPLIED_ANNOTATION, HOST_ANNOTATION, IngressId, NAME_LABEL, NAMESPACE_LABEL, UID_LABEL};
pub(crate) use read::{
    BackendRef, CLASS_ANNOTATION, ChildFacts, ChildState, Claimant, HostRule, MOST_HOSTS, Reach, ServiceFacts,
    TunnelFacts,
};
pub(crate) use tunnels::{FoundTunnel, tunnel_of};

use crate::metrics::Measured;
use crate::plan::refusals::HostRefusal;
use crate::settings::Policy;

/// The unit of a pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Everything in Pangolin that is marked as ours and belongs to no Ingress (direct mode).
    Sweep,
    /// One Ingress.
    Ingress(IngressId),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sweep => f.write_str("sweep"),
            Self::Ingress(id) => f.write_str(&id.path()),
        }
    }
}

/// The queue of this system.
pub(crate) type Keys = Queue<Key, ()>;

type Place = (String, String);

#[derive(Debug, Default)]
struct State {
    claimants: BTreeMap<IngressId, Arc<Claimant>>,
    unreadable: BTreeSet<IngressId>,
    claims: Claims<Fqdn, IngressId>,
    /// Claimed hosts that their Ingress could not expose at its last pass (direct mode).
    refused: BTreeMap<IngressId, BTreeSet<Fqdn>>,
    /// Hosts whose resource waits for its next owner, and which pass left it (direct mode).
    left: BTreeMap<Fqdn, Key>,
    /// Hosts that an Ingress wrote to after it had given them up: their owner reads them again (direct mode).
    overwritten: BTreeSet<Fqdn>,
    /// The hosts that each Ingress claims, with the domains that were known then.
    claimed: BTreeMap<IngressId, Vec<Fqdn>>,
    /// Controllers by class.
    classes: BTreeMap<String, String>,
    /// Whether the classes are known completely, and which absent ones were reported.
    classes_listed: bool,
    classes_missing: BTreeSet<String>,
    services: BTreeMap<Place, ServiceFacts>,
    /// The Ingresses that name a Service.
    users: BTreeMap<Place, BTreeSet<IngressId>>,
    tunnels: BTreeMap<Place, TunnelFacts>,
    organizations: BTreeMap<Place, Arc<[BaseDomain]>>,
    /// The domains of the organisation in Pangolin (direct mode).
    domains: Option<Arc<[BaseDomain]>>,
    /// Children by their Ingress, and the Ingress of each.
    children: BTreeMap<IngressId, BTreeMap<String, ChildFacts>>,
    parents: BTreeMap<ObjectId, IngressId>,
    /// The hosts that belong into the status of an Ingress.
    exposed: BTreeMap<IngressId, (Identity, Vec<String>)>,
    /// What the last pass of each Ingress found.
    outcomes: BTreeMap<IngressId, Arc<Outcome>>,
}

/// What the last pass of an Ingress found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Hosts that are exposed.
    pub(crate) hosts: BTreeSet<Fqdn>,
    /// What is refused.
    pub(crate) refusals: Vec<HostRefusal>,
}

/// The index.
#[derive(Debug)]
pub struct PangolinIndex {
    state: Mutex<State>,
    queue: Keys,
    policy: Arc<Policy>,
    /// Knows which statuses of Ingresses have hosts of ours; absent when none are written.
    statuses: Option<Writer>,
}

impl PangolinIndex {
    /// An empty index.
    pub(crate) fn new(policy: Arc<Policy>, queue: Keys, statuses: Option<Writer>) -> Self {
        Self { state: Mutex::default(), queue, policy, statuses }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self, ids: impl IntoIterator<Item = IngressId>) {
        for id in ids {
            self.queue.touch(Key::Ingress(id), Touch::One(()));
        }
    }

    /// Asks for a pass of an Ingress that exposes nothing any more, before those that wait: until then, something is public that nobody wants
    /// to be.
    fn withdraw(&self, id: IngressId) {
        self.queue.touch_first(Key::Ingress(id), Touch::One(()));
    }

    /// Asks for a pass of the owner of a host, unless it is this one.
    pub(crate) fn touch_holder(&self, host: &Fqdn, except: &Key) {
        self.touch(self.holder(host).filter(|holder| *except != Key::Ingress(holder.clone())));
    }

    /// Asks for a pass of every Ingress.
    pub(crate) fn touch_all(&self) {
        let state = self.lock();
        let ours = state.claimants.iter().filter(|(_, claimant)| claimant.class != Class::Foreign);
        let ids: Vec<IngressId> = ours.map(|(id, _)| id.clone()).collect();
        drop(state);
        self.touch(ids);
    }

    /// The Ingress, when it is ours and can be read.
    pub(crate) fn claimant(&self, id: &IngressId) -> Option<Arc<Claimant>> {
        self.lock().claimants.get(id).filter(|claimant| claimant.class != Class::Foreign).cloned()
    }

    /// The Ingress that exists, of any class, where it is known.
    pub(crate) fn identity(&self, id: &IngressId) -> Option<Identity> {
        self.lock().claimants.get(id).map(|claimant| claimant.identity.clone())
    }

    /// Whether the status of an Ingress has hosts of ours.
    fn is_stated(&self, id: &ObjectId) -> bool {
        self.statuses.as_ref().is_some_and(|writer| writer.owns_status(id, crate::NAME))
    }

    /// Takes what a pass found, unless the Ingress was deleted meanwhile.
    pub(crate) fn settle(&self, measured: &Measured) {
        let Some(Key::Ingress(id)) = measured.key.as_ref().filter(|_| self.queue.is_followed()) else { return };
        let mut state = self.lock();
        let hosts: BTreeSet<Fqdn> = match &measured.hosts {
            Some(hosts) => hosts.iter().filter_map(|host| Fqdn::parse(host).ok()).collect(),
            None => state.outcomes.get(id).map(|before| before.hosts.clone()).unwrap_or_default(),
        };
        if !state.claimants.contains_key(id) || hosts.is_empty() && measured.refusals.is_empty() {
            state.outcomes.remove(id);
            return;
        }
        let outcome = Outcome { hosts, refusals: measured.refusals.clone() };
        state.outcomes.insert(id.clone(), Arc::new(outcome));
    }

    /// What the last pass of an Ingress found.
    pub(crate) fn outcome(&self, id: &IngressId) -> Arc<Outcome> {
        self.lock().outcomes.get(id).cloned().unwrap_or_default()
    }

    /// Whether there is an Ingress, or a PangolinResource that was made for it.
    pub(crate) fn knows(&self, id: &IngressId) -> bool {
        let state = self.lock();
        state.claimants.contains_key(id) || state.unreadable.contains(id) || state.children.contains_key(id)
    }

    /// Stores the hosts that belong into the status of an Ingress, unless it was deleted meanwhile.
    pub(crate) fn set_exposed(&self, identity: Identity, hosts: Vec<String>) -> IngressId {
        let id = identity.id.clone();
        let mut state = self.lock();
        if state.claimants.contains_key(&id) {
            state.exposed.insert(id.clone(), (identity, hosts));
        }
        id
    }

    /// The part of the status that is ours. Without hosts we give up what we own of it; what the API server has already is not sent.
    pub(crate) fn wanted(&self, id: &ObjectId) -> Option<WantedState> {
        let state = self.lock();
        let (identity, hosts) = state.exposed.get(id)?;
        let identity = state.claimants.get(id).map_or(identity, |claimant| &claimant.identity).clone();
        let addresses: Vec<_> = hosts.iter().map(|host| json!({ "hostname": host })).collect();
        let status = if hosts.is_empty() { json!({}) } else { json!({ "loadBalancer": { "ingress": addresses } }) };
        Some(WantedState { status: Some(status), owner: crate::NAME, ..WantedState::nothing(identity) })
    }

    /// Whether the Ingress exists and cannot be read: everything of it is left alone.
    pub(crate) fn is_unreadable(&self, id: &IngressId) -> bool {
        self.lock().unreadable.contains(id)
    }

    /// The Services that an Ingress names and that exist.
    pub(crate) fn services(&self, claimant: &Claimant) -> BTreeMap<String, ServiceFacts> {
        let state = self.lock();
        let namespace = claimant.namespace();
        let known = |name: &str| state.services.get(&(namespace.to_owned(), name.to_owned())).cloned();
        claimant.services().filter_map(|name| Some((name.to_owned(), known(name)?))).collect()
    }

    /// The children of an Ingress, by name.
    pub(crate) fn children(&self, id: &IngressId) -> BTreeMap<String, ChildFacts> {
        self.lock().children.get(id).cloned().unwrap_or_default()
    }

    /// Whether an Ingress has a child for a host.
    pub(crate) fn has_child(&self, id: &IngressId, host: &str) -> bool {
        let state = self.lock();
        let children = state.children.get(id).into_iter().flat_map(BTreeMap::values);
        children.into_iter().any(|child| child.host.as_deref() == Some(host) && !child.deleting)
    }

    /// The Ingresses that may have something in Pangolin: ours, and those that cannot be read.
    pub(crate) fn known(&self) -> Vec<IngressId> {
        let state = self.lock();
        let ours = state.claimants.iter().filter(|(_, claimant)| claimant.class != Class::Foreign).map(|(id, _)| id);
        ours.chain(&state.unreadable).cloned().collect()
    }

    fn change<T: PartialEq>(map: &mut BTreeMap<Place, T>, id: &ObjectId, facts: Option<T>) -> bool {
        let place = (id.namespace.clone().unwrap_or_default(), id.name.clone());
        match facts {
            Some(facts) if map.get(&place) == Some(&facts) => false,
            Some(facts) => {
                map.insert(place, facts);
                true
            }
            None => map.remove(&place).is_some(),
        }
    }

    fn set_service(&self, id: &ObjectId, facts: Option<ServiceFacts>) {
        let mut state = self.lock();
        if Self::change(&mut state.services, id, facts) {
            let place = (id.namespace.clone().unwrap_or_default(), id.name.clone());
            let users = state.users.get(&place).cloned().unwrap_or_default();
            drop(state);
            self.touch(users);
        }
    }

    fn set_child(&self, id: &ObjectId, child: Option<(IngressId, ChildFacts)>) {
        let mut state = self.lock();
        let mut concerned = BTreeSet::new();
        // Ingresses whose resources have other domains now.
        let mut moved = BTreeSet::new();
        if let Some(parent) = state.parents.get(id).cloned() {
            let before = state.children.get(&parent).and_then(|children| children.get(&id.name));
            let now = child.as_ref().filter(|(next, _)| *next == parent).map(|(_, facts)| facts);
            if before == now {
                return;
            }
            if before.map(|before| &before.domain) != now.map(|now| &now.domain) {
                moved.insert(parent.clone());
            }
            if let Some(children) = state.children.get_mut(&parent) {
                children.remove(&id.name);
                if children.is_empty() {
                    state.children.remove(&parent);
                }
            }
            state.parents.remove(id);
            concerned.insert(parent);
        } else if let Some((next, _)) = child.as_ref().filter(|(_, facts)| facts.domain.is_some()) {
            moved.insert(next.clone());
        }
        if let Some((next, facts)) = child {
            // Another Ingress may wait for this one to have the host.
            let host = facts.host.as_deref().and_then(|host| Fqdn::parse(host).ok());
            let waiting =
                host.map(|host| state.claims.waiting(&host).map(|claim| claim.holder.clone()).collect::<Vec<_>>());
            concerned.extend(waiting.into_iter().flatten());
            state.parents.insert(id.clone(), next.clone());
            let noted = facts.class.is_some();
            state.children.entry(next.clone()).or_default().insert(id.name.clone(), facts);
            if let Some(claimant) = state.claimants.get(&next).cloned().filter(|claimant| noted || claimant.misspelt) {
                concerned.extend(self.classify(&mut state, &claimant));
            }
            concerned.insert(next);
        }
        for id in moved {
            if let Some(claimant) = state.claimants.get(&id).cloned() {
                concerned.extend(self.replace(&mut state, &id, Some(&claimant)));
            }
        }
        drop(state);
        self.touch(concerned);
    }
}

impl Index<Ingress> for PangolinIndex {
    fn applied(&self, ingress: &Ingress) {
        let mut state = self.lock();
        let id = Arc::new(ObjectId::of(ingress));
        let next = read::claimant(ingress, self.policy.prefix.as_deref(), |class, enabled, noted, misspelt| {
            self.class_of(
                &state,
                &id,
                class,
                enabled,
                noted,
                misspelt.is_some_and(|applied| applied || state.is_exposed(&id)),
            )
        });
        let was_unreadable = state.unreadable.remove(&id);
        // One of another class is kept, since its class may be created or replaced and name our controller.
        let stated = self.is_stated(&id) && !next.is_active();
        let keep = next.class != Class::Foreign || next.class_name.is_some() || stated;
        let before = state.claimants.get(&id).cloned();
        let same = before.as_ref().is_some_and(|before| before.asks_the_same(&next));
        let ours = |known: &Claimant| known.class != Class::Foreign;
        let matters = ours(&next)
            || before.as_deref().is_some_and(ours)
            || state.children.contains_key(&id)
            || was_unreadable
            || stated;
        if same && keep && !was_unreadable && !stated {
            state.claimants.insert(id, Arc::new(next));
            return;
        }
        let ended = !next.is_active();
        let concerned = self.replace(&mut state, &id, keep.then(|| Arc::new(next)).as_ref());
        drop(state);
        match (matters, ended) {
            (true, true) => self.withdraw(id),
            (true, false) => self.touch([id]),
            (false, _) => {}
        }
        self.touch(concerned);
    }

    fn deleted(&self, id: &ObjectId) {
        let id = Arc::new(id.clone());
        let mut state = self.lock();
        let known = state.claimants.contains_key(&id) || state.children.contains_key(&id);
        let known = state.unreadable.remove(&id) || known;
        let concerned = self.replace(&mut state, &id, None);
        drop(state);
        if known {
            self.withdraw(id);
        }
        self.touch(concerned);
    }

    fn unreadable(&self, object: &Identity, _error: &str) {
        self.lock().unreadable.insert(object.id.clone());
    }

    fn listed(&self) {
        self.queue.touch(Key::Sweep, Touch::One(()));
    }
}

impl Index<Service> for PangolinIndex {
    fn applied(&self, service: &Service) {
        self.set_service(&ObjectId::of(service), Some(read::service(service, self.policy.target_mode)));
    }

    fn deleted(&self, id: &ObjectId) {
        self.set_service(id, None);
    }
}

impl Index<PangolinResource> for PangolinIndex {
    fn applied(&self, resource: &PangolinResource) {
        let id = ObjectId::of(resource);
        let child = read::child(resource).map(|(name, facts)| {
            let parent: IngressId = Arc::new(ObjectId::new::<Ingress>(id.namespace.as_deref(), &name));
            (parent, facts)
        });
        self.set_child(&id, child);
    }

    fn deleted(&self, id: &ObjectId) {
        self.set_child(id, None);
    }

    fn children_lost(&self) {
        self.touch_all();
    }
}

#[cfg(test)]
mod tests;
