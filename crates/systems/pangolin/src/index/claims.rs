//! Which Ingress owns which host: the oldest that claims it, then by UID.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use signpost_dns::Fqdn;
use signpost_engine::Touch;
use signpost_exposure::BaseDomain;

use super::{Claimant, FoundTunnel, IngressId, Key, PangolinIndex, State};
use crate::settings::Mode;

impl PangolinIndex {
    /// The hosts that an Ingress claims.
    pub(crate) fn claimed(&self, id: &IngressId) -> Vec<Fqdn> {
        self.lock().claimed.get(id).cloned().unwrap_or_default()
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

    /// Whether an Ingress claims a host by now, and asks for something else than it did then.
    pub(crate) fn is_wanted_again(&self, id: &IngressId, host: &str, then: Option<&Claimant>) -> bool {
        let state = self.lock();
        let claims = state.claimed.get(id).is_some_and(|hosts| hosts.iter().any(|claimed| claimed.undotted() == host));
        let changed = |now: &Arc<Claimant>| then.is_none_or(|then| !then.asks_the_same(now));
        claims && state.claimants.get(id).is_some_and(changed)
    }

    /// The owner of a host, if it is another Ingress.
    fn other_owner(&self, id: &IngressId, host: &str) -> Option<IngressId> {
        let owner = Fqdn::parse(host).ok().and_then(|host| self.holder(&host))?;
        (owner != *id).then_some(owner)
    }

    /// Whether another Ingress owns a host.
    pub(crate) fn is_owned_by_another(&self, id: &IngressId, host: &str) -> bool {
        self.other_owner(id, host).is_some()
    }

    /// Whether another Ingress owns a host and has a child for it (crd mode).
    pub(crate) fn is_exposed_by_another(&self, id: &IngressId, host: &str) -> bool {
        self.other_owner(id, host).is_some_and(|owner| self.has_child(&owner, host))
    }

    /// Takes note of a resource that is left for the owner of its host. The pass that left it comes again when nobody claims the host any more.
    pub(crate) fn leave(&self, host: &Fqdn, key: &Key) {
        let mut state = self.lock();
        if state.claims.holder_of(host).is_some() {
            state.left.insert(host.clone(), key.clone());
            return;
        }
        drop(state);
        self.queue.touch(key.clone(), Touch::One(()));
    }

    /// Takes note of a host whose owner has the resource.
    pub(crate) fn take_over(&self, host: &Fqdn) {
        self.lock().left.remove(host);
    }

    /// Takes note of a host that a pass wrote to after another Ingress had become its owner. That one reads everything again, at once.
    pub(crate) fn overwritten(&self, host: &Fqdn, by: &Key) {
        self.lock().overwritten.insert(host.clone());
        self.touch_holder(host, by);
    }

    /// Whether one of these hosts was written over; each is reported once.
    pub(crate) fn take_overwritten(&self, hosts: &[Fqdn]) -> bool {
        let mut state = self.lock();
        let found: Vec<bool> = hosts.iter().map(|host| state.overwritten.remove(host)).collect();
        found.contains(&true)
    }

    /// Replaces what is known of an Ingress; returns who is concerned besides itself.
    pub(super) fn replace(
        &self,
        state: &mut State,
        id: &IngressId,
        next: Option<&Arc<Claimant>>,
    ) -> BTreeSet<IngressId> {
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
            if state.claims.holder_of(host).is_none() {
                state.overwritten.remove(host);
                if let Some(key) = state.left.remove(host) {
                    // Its next owner never took it.
                    self.queue.touch(key, Touch::One(()));
                }
            }
        }
        if let Some(next) = next {
            for host in new {
                let before = state.claims.holder_of(&host).map(|claim| claim.holder.clone());
                let claim = next.identity.claim();
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
            Mode::Crd => match self.tunnel_in(state, claimant) {
                FoundTunnel::One { domains, .. } => domains,
                FoundTunnel::None | FoundTunnel::Several(_) => None,
            },
        }
    }

    /// Works out the claims again, where domains have changed; returns who is concerned.
    pub(super) fn claim_again(&self, state: &mut State) -> BTreeSet<IngressId> {
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
}
