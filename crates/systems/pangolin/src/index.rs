//! The requests of the cluster, folded from the watch. No object is kept.
//!
//! ```text
//! Ingress, IngressClass ─► claimants ─► claims on hosts (oldest, then UID) ─┐
//! Service, PangolinTunnel, PangolinOrganization ─► facts ───────────────────┼─► touch: one key per Ingress
//! PangolinResource (label and owner of an Ingress) ─► children ─────────────┘
//! ```
//! A change that means nothing here (a tunnel's heartbeat, a status, a label of others) touches nothing.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use signpost_apis::ingress::{Ingress, IngressClass};
use signpost_apis::pangolin::{PangolinOrganization, PangolinResource, PangolinTunnel};
use signpost_apis::service::Service;
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Index, ObjectId, Queue, Touch, Wanted as WantedState, Writer};
use signpost_exposure::{BaseDomain, Class, decide_class};
use signpost_planning::{Claim, Claims, Refusal};

pub use read::{APPLIED_ANNOTATION, HOST_ANNOTATION, IngressId, NAME_LABEL, NAMESPACE_LABEL, UID_LABEL};
pub(crate) use read::{
    BackendRef, CLASS_ANNOTATION, ChildFacts, ChildState, Claimant, HostRule, ServiceFacts, TunnelFacts,
};

use crate::metrics::Measured;
use crate::settings::{Mode, Policy};

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
    pub(crate) refusals: Vec<Refusal>,
}

impl State {
    /// The domains of an organisation, where it has any.
    fn domains_of(&self, namespace: &str, organization: &str) -> Option<Arc<[BaseDomain]>> {
        let place = (namespace.to_owned(), organization.to_owned());
        self.organizations.get(&place).filter(|domains| !domains.is_empty()).cloned()
    }
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

/// The tunnel of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundTunnel {
    /// One tunnel.
    One {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Whether it is ready.
        ready: bool,
        /// The domains of its organisation, where they are known.
        domains: Option<Arc<[BaseDomain]>>,
    },
    /// None.
    None,
    /// Several, in these namespaces.
    Several(Vec<String>),
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

    /// The Ingress that exists, whosever it is, where it is known.
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

    /// The hosts that an Ingress claims.
    pub(crate) fn claimed(&self, id: &IngressId) -> Vec<Fqdn> {
        self.lock().claimed.get(id).cloned().unwrap_or_default()
    }

    /// What the last pass of an Ingress found.
    pub(crate) fn outcome(&self, id: &IngressId) -> Arc<Outcome> {
        self.lock().outcomes.get(id).cloned().unwrap_or_default()
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

    /// The hosts of an Ingress that others own, and who.
    pub(crate) fn taken(&self, claimant: &Claimant) -> BTreeMap<Fqdn, IngressId> {
        let state = self.lock();
        let hosts = state.claimed.get(&claimant.identity.id).cloned().unwrap_or_default();
        let other = |host: Fqdn| {
            let holder = state.claims.holder_of(&host)?.holder.clone();
            (holder != claimant.identity.id).then_some((host, holder))
        };
        hosts.into_iter().filter_map(other).collect()
    }

    /// The owner of a host.
    pub(crate) fn holder(&self, host: &Fqdn) -> Option<IngressId> {
        self.lock().claims.holder_of(host).map(|claim| claim.holder.clone())
    }

    /// Who owns a host and will expose it: an owner that could not at its last pass keeps nothing of others alive.
    pub(crate) fn taker(&self, host: &Fqdn) -> Option<IngressId> {
        let state = self.lock();
        let holder = state.claims.holder_of(host).map(|claim| claim.holder.clone())?;
        let refused = state.refused.get(&holder).is_some_and(|hosts| hosts.contains(host));
        (!refused).then_some(holder)
    }

    /// The hosts that an Ingress claims and owns.
    pub(crate) fn owned(&self, id: &IngressId) -> BTreeSet<Fqdn> {
        let state = self.lock();
        let claimed = state.claimed.get(id).into_iter().flatten();
        claimed.filter(|host| state.claims.holder_of(host).is_some_and(|claim| claim.holder == *id)).cloned().collect()
    }

    /// Takes note of the owned hosts that an Ingress cannot expose. Where there are others than before, what carries one of these marks is
    /// looked at again: nobody takes it over.
    pub(crate) fn set_refused(&self, id: &IngressId, hosts: BTreeSet<Fqdn>, is_marked: impl Fn(&IngressId) -> bool) {
        let mut state = self.lock();
        let before = state.refused.remove(id).unwrap_or_default();
        let more = hosts.iter().any(|host| !before.contains(host));
        if !hosts.is_empty() {
            state.refused.insert(id.clone(), hosts);
        }
        drop(state);
        if more {
            self.touch(self.known().into_iter().filter(is_marked));
            self.queue.touch(Key::Sweep, Touch::One(()));
        }
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

    /// The tunnel of this name for an Ingress of this namespace: beside it, in the configured namespace, or the only one of the name.
    pub(crate) fn tunnel(&self, reference: &str, namespace: &str) -> FoundTunnel {
        self.find_tunnel(&self.lock(), reference, namespace)
    }

    fn find_tunnel(&self, state: &State, reference: &str, namespace: &str) -> FoundTunnel {
        let found = |namespace: &str, name: &str| {
            let facts = state.tunnels.get(&(namespace.to_owned(), name.to_owned()))?;
            let domains = state.domains_of(namespace, &facts.organization);
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            Some(FoundTunnel::One { namespace, name, ready: facts.ready, domains })
        };
        if let Some((namespace, name)) = reference.split_once('/') {
            return found(namespace, name).unwrap_or(FoundTunnel::None);
        }
        let configured = self.policy.tunnel_namespace.as_deref();
        if let Some(one) = [Some(namespace), configured].into_iter().flatten().find_map(|place| found(place, reference))
        {
            return one;
        }
        let places =
            || state.tunnels.keys().filter(|(_, name)| name == reference).map(|(namespace, _)| namespace.as_str());
        match places().count() {
            0 => FoundTunnel::None,
            1 => places().next().and_then(|place| found(place, reference)).unwrap_or(FoundTunnel::None),
            _ => FoundTunnel::Several(places().map(str::to_owned).collect()),
        }
    }

    /// The Ingresses that may have something in Pangolin: ours, and those that cannot be read.
    pub(crate) fn known(&self) -> Vec<IngressId> {
        let state = self.lock();
        let ours = state.claimants.iter().filter(|(_, claimant)| claimant.class != Class::Foreign).map(|(id, _)| id);
        ours.chain(&state.unreadable).cloned().collect()
    }

    /// Whether a class has no object, and this was not reported before.
    pub(crate) fn is_missing_class(&self, class: &str) -> bool {
        let mut state = self.lock();
        state.classes_listed && !state.classes.contains_key(class) && state.classes_missing.insert(class.to_owned())
    }

    /// Replaces what is known of an Ingress; returns who is concerned besides itself.
    fn replace(&self, state: &mut State, id: &IngressId, next: Option<&Arc<Claimant>>) -> BTreeSet<IngressId> {
        let mut concerned = BTreeSet::new();
        let before = match next {
            Some(next) => state.claimants.insert(id.clone(), Arc::clone(next)),
            None => state.claimants.remove(id),
        };
        if next.is_none() {
            state.exposed.remove(id);
            state.outcomes.remove(id);
            state.refused.remove(id);
        }
        let old = state.claimed.remove(id).unwrap_or_default();
        let new = next.map(|next| next.claims(&self.policy, self.domains(state, next).as_deref())).unwrap_or_default();
        if !new.is_empty() {
            state.claimed.insert(id.clone(), new.clone());
        }
        for host in old.iter().filter(|host| !new.contains(host)) {
            concerned.extend(state.claims.remove(host, id).map(|claim| claim.holder.clone()));
        }
        if let Some(next) = next {
            for host in new {
                let before = state.claims.holder_of(&host).map(|claim| claim.holder.clone());
                let claim = Claim::new(id.clone(), next.identity.created, next.identity.uid.clone());
                state.claims.insert(host.clone(), claim);
                let now = state.claims.holder_of(&host).map(|claim| claim.holder.clone());
                if before != now {
                    concerned.extend(before);
                }
            }
        }
        let place = |name: &str| (id.namespace.clone().unwrap_or_default(), name.to_owned());
        for name in before.iter().flat_map(|before| before.services()) {
            if let Some(users) = state.users.get_mut(&place(name)) {
                users.remove(id);
                if users.is_empty() {
                    state.users.remove(&place(name));
                }
            }
        }
        for name in next.into_iter().flat_map(|next| next.services()) {
            state.users.entry(place(name)).or_default().insert(id.clone());
        }
        concerned.remove(id);
        concerned
    }

    /// The domains that decide about the hosts of an Ingress, as far as they are known.
    fn domains(&self, state: &State, claimant: &Claimant) -> Option<Arc<[BaseDomain]>> {
        match self.policy.mode {
            Mode::Api => state.domains.clone(),
            Mode::Crd => match self.find_tunnel(state, &tunnel_of(claimant, &self.policy), claimant.namespace()) {
                FoundTunnel::One { domains, .. } => domains,
                FoundTunnel::None | FoundTunnel::Several(_) => None,
            },
        }
    }

    /// Works out the claims again, where domains have changed; returns who is concerned.
    fn claim_again(&self, state: &mut State) -> BTreeSet<IngressId> {
        let all: Vec<(IngressId, Arc<Claimant>)> =
            state.claimants.iter().map(|(id, claimant)| (id.clone(), Arc::clone(claimant))).collect();
        let mut concerned = BTreeSet::new();
        for (id, claimant) in all {
            let before = state.claimed.get(&id).cloned();
            concerned.extend(self.replace(state, &id, Some(&claimant)));
            if before.as_ref() != state.claimed.get(&id) {
                concerned.insert(id);
            }
        }
        concerned
    }

    /// Takes note of the domains of the organisation in Pangolin (direct mode). What an Ingress claims may change with them.
    pub(crate) fn set_organization(&self, domains: &Arc<[BaseDomain]>) {
        let mut state = self.lock();
        if state.domains.as_ref() == Some(domains) {
            return;
        }
        state.domains = Some(Arc::clone(domains));
        let concerned = self.claim_again(&mut state);
        drop(state);
        self.touch(concerned);
    }

    /// What a class means for an Ingress. A class that does not exist any more means what it meant when the Ingress was exposed: what is
    /// missing withdraws no host.
    fn class_of(
        &self,
        state: &State,
        id: &IngressId,
        name: Option<&str>,
        enabled: Option<bool>,
        noted: Option<&str>,
        misspelt: bool,
    ) -> Class {
        let rules = &self.policy.class;
        let was_ours = |name: &str| {
            let mut children = state.children.get(id).into_iter().flat_map(BTreeMap::values);
            noted == Some(name) || children.any(|child| child.class.as_deref() == Some(name))
        };
        let controller = name.and_then(|name| match state.classes.get(name) {
            Some(controller) => Some(controller.as_str()),
            None => was_ours(name).then_some(rules.controller.as_str()),
        });
        match decide_class(rules, name, controller, enabled) {
            // A value that cannot be read is refused; it does not withdraw what exists.
            Class::Foreign if rules.opt_in && misspelt => Class::Default,
            class => class,
        }
    }

    /// The class of an Ingress, where only the controller of the class makes it ours. It is noted beside what is exposed.
    pub(crate) fn class_to_note(&self, claimant: &Claimant) -> Option<String> {
        let name = claimant.class_name.as_deref()?;
        let rules = &self.policy.class;
        let by_name = decide_class(rules, Some(name), None, None) != Class::Foreign;
        let state = self.lock();
        let controller = state.classes.get(name);
        let ours = match controller {
            Some(controller) => *controller == rules.controller,
            None => {
                self.class_of(&state, &claimant.identity.id, Some(name), None, claimant.noted_class.as_deref(), false)
                    != Class::Foreign
            }
        };
        (ours && !by_name).then(|| name.to_owned())
    }

    /// Decides again what the class of an Ingress means; returns who is concerned.
    fn classify(&self, state: &mut State, claimant: &Arc<Claimant>) -> BTreeSet<IngressId> {
        let id = &claimant.identity.id;
        let (enabled, noted) = (claimant.annotations.options.enabled, claimant.noted_class.as_deref());
        let class = self.class_of(state, id, claimant.class_name.as_deref(), enabled, noted, claimant.misspelt);
        if class == claimant.class {
            return BTreeSet::new();
        }
        let next = Arc::new(Claimant { class, ..(**claimant).clone() });
        let mut concerned = self.replace(state, id, Some(&next));
        concerned.insert(id.clone());
        concerned
    }

    /// Takes note of a class; what its Ingresses mean may change with it.
    fn set_class(&self, name: &str, controller: Option<&str>) {
        let mut state = self.lock();
        let before = match controller {
            Some(controller) => state.classes.insert(name.to_owned(), controller.to_owned()),
            None => state.classes.remove(name),
        };
        if before.as_deref() == controller {
            return;
        }
        let of_class: Vec<Arc<Claimant>> =
            state.claimants.values().filter(|known| known.class_name.as_deref() == Some(name)).cloned().collect();
        let mut concerned = BTreeSet::new();
        for claimant in of_class {
            concerned.extend(self.classify(&mut state, &claimant));
        }
        drop(state);
        self.touch(concerned);
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

    fn set_tunnel(&self, id: &ObjectId, facts: Option<TunnelFacts>) {
        let changed = {
            let mut state = self.lock();
            let place = (id.namespace.clone().unwrap_or_default(), id.name.clone());
            let organization = |state: &State| state.tunnels.get(&place).map(|facts| facts.organization.clone());
            let before = organization(&state);
            let changed = Self::change(&mut state.tunnels, id, facts);
            let moved = before != organization(&state);
            let concerned = if moved { self.claim_again(&mut state) } else { BTreeSet::new() };
            drop(state);
            self.touch(concerned);
            changed
        };
        if changed {
            // Which Ingresses may mean it is decided by name; a tunnel changes rarely.
            let of_name = |claimant: &Arc<Claimant>| {
                let reference = tunnel_of(claimant, &self.policy);
                reference.rsplit('/').next() == Some(id.name.as_str())
            };
            let users: Vec<IngressId> = self
                .lock()
                .claimants
                .iter()
                .filter(|(_, claimant)| of_name(claimant))
                .map(|(id, _)| id.clone())
                .collect();
            self.touch(users);
        }
    }

    fn set_domains(&self, id: &ObjectId, domains: Option<Arc<[BaseDomain]>>) {
        // An organisation without domains is not complete yet, or is being replaced: what is known of it stays.
        let Some(domains) = domains.filter(|domains| !domains.is_empty()) else { return };
        let mut state = self.lock();
        if Self::change(&mut state.organizations, id, Some(domains)) {
            self.claim_again(&mut state);
            drop(state);
            self.touch_all();
        }
    }

    fn set_child(&self, id: &ObjectId, child: Option<(IngressId, ChildFacts)>) {
        let mut state = self.lock();
        let mut concerned = BTreeSet::new();
        let parent = state.parents.get(id).cloned();
        let same = |state: &State, parent: &IngressId, facts: &ChildFacts| {
            state.children.get(parent).and_then(|children| children.get(&id.name)) == Some(facts)
        };
        if let Some((next, facts)) = &child
            && parent.as_ref() == Some(next)
            && same(&state, next, facts)
        {
            return;
        }
        if let Some(parent) = parent {
            if let Some(children) = state.children.get_mut(&parent) {
                children.remove(&id.name);
                if children.is_empty() {
                    state.children.remove(&parent);
                }
            }
            state.parents.remove(id);
            concerned.insert(parent);
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
            if let Some(claimant) = state.claimants.get(&next).cloned().filter(|_| noted) {
                concerned.extend(self.classify(&mut state, &claimant));
            }
            concerned.insert(next);
        }
        drop(state);
        self.touch(concerned);
    }
}

/// The tunnel that an Ingress names: by annotation, by its class, or the default one.
pub(crate) fn tunnel_of(claimant: &Claimant, policy: &Policy) -> String {
    if let Some(named) = &claimant.annotations.options.tunnel {
        return named.clone();
    }
    match &claimant.class {
        Class::Alias(alias) => policy.mapping.tunnel(alias).to_owned(),
        Class::Foreign | Class::Disabled | Class::Default | Class::EmptyAlias => {
            policy.default_tunnel.clone().unwrap_or_else(|| crate::settings::DEFAULT_TUNNEL.to_owned())
        }
    }
}

impl Index<Ingress> for PangolinIndex {
    fn applied(&self, ingress: &Ingress) {
        let mut state = self.lock();
        let id = Arc::new(ObjectId::of(ingress));
        let next = read::claimant(ingress, self.policy.prefix.as_deref(), |class, enabled, noted, misspelt| {
            self.class_of(&state, &id, class, enabled, noted, misspelt)
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
        let mut concerned = self.replace(&mut state, &id, keep.then(|| Arc::new(next)).as_ref());
        drop(state);
        if matters {
            concerned.insert(id);
        }
        self.touch(concerned);
    }

    fn deleted(&self, id: &ObjectId) {
        let id = Arc::new(id.clone());
        let mut state = self.lock();
        let known = state.claimants.contains_key(&id) || state.children.contains_key(&id);
        let known = state.unreadable.remove(&id) || known;
        let mut concerned = self.replace(&mut state, &id, None);
        drop(state);
        if known {
            concerned.insert(id);
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

impl Index<IngressClass> for PangolinIndex {
    fn applied(&self, class: &IngressClass) {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        self.set_class(name, Some(class.spec.controller.as_deref().unwrap_or_default()));
    }

    fn deleted(&self, id: &ObjectId) {
        self.set_class(&id.name, None);
    }

    fn listed(&self) {
        self.lock().classes_listed = true;
    }
}

impl Index<Service> for PangolinIndex {
    fn applied(&self, service: &Service) {
        self.set_service(&ObjectId::of(service), Some(read::service(service)));
    }

    fn deleted(&self, id: &ObjectId) {
        self.set_service(id, None);
    }
}

impl Index<PangolinTunnel> for PangolinIndex {
    fn applied(&self, tunnel: &PangolinTunnel) {
        self.set_tunnel(&ObjectId::of(tunnel), Some(read::tunnel(tunnel)));
    }

    fn deleted(&self, id: &ObjectId) {
        self.set_tunnel(id, None);
    }
}

impl Index<PangolinOrganization> for PangolinIndex {
    fn applied(&self, organization: &PangolinOrganization) {
        self.set_domains(&ObjectId::of(organization), Some(read::domains(organization)));
    }

    fn deleted(&self, id: &ObjectId) {
        self.set_domains(id, None);
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
}

#[cfg(test)]
mod tests;
