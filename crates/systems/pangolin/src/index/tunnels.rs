//! The tunnel of an Ingress, and the domains of its organisation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use signpost_apis::pangolin::{PangolinOrganization, PangolinTunnel};
use signpost_engine::{Index, ObjectId};
use signpost_exposure::{BaseDomain, Class, Shape};

use super::{Claimant, IngressId, PangolinIndex, State, TunnelFacts, read};
use crate::settings::Policy;

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
        /// The domains of its organisation, as far as they are known.
        domains: Option<Arc<[BaseDomain]>>,
    },
    /// None.
    None,
    /// Several, in these namespaces.
    Several(Vec<String>),
}

impl State {
    /// The domains of the resources that an Ingress has. They count while those of its organisation are not known: what is exposed keeps its
    /// domain, and the public suffix list decides nothing.
    fn kept_domains(&self, id: &IngressId) -> Option<Arc<[BaseDomain]>> {
        let children = self.children.get(id).into_iter().flat_map(BTreeMap::values).filter(|child| !child.deleting);
        let mut domains: Vec<BaseDomain> = children.filter_map(|child| child.domain.clone()).collect();
        domains.sort_by_key(|domain| (domain.name.clone(), domain.shape == Shape::One));
        domains.dedup_by(|more, known| more.name == known.name);
        (!domains.is_empty()).then(|| domains.into())
    }

    /// The domains of an organisation, where it has any.
    fn domains_of(&self, namespace: &str, organization: &str) -> Option<Arc<[BaseDomain]>> {
        let place = (namespace.to_owned(), organization.to_owned());
        self.organizations.get(&place).filter(|domains| !domains.is_empty()).cloned()
    }
}

impl PangolinIndex {
    /// The tunnel of an Ingress.
    pub(crate) fn tunnel(&self, claimant: &Claimant) -> FoundTunnel {
        self.tunnel_in(&self.lock(), claimant)
    }

    pub(super) fn tunnel_in(&self, state: &State, claimant: &Claimant) -> FoundTunnel {
        let mut found = self.find_tunnel(state, &tunnel_of(claimant, &self.policy), claimant.namespace());
        if let FoundTunnel::One { domains: domains @ None, .. } = &mut found {
            *domains = state.kept_domains(&claimant.identity.id);
        }
        found
    }

    /// The tunnel of this name for an Ingress of this namespace: beside it, in the configured namespace, or the only one of the name.
    pub(super) fn find_tunnel(&self, state: &State, reference: &str, namespace: &str) -> FoundTunnel {
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
