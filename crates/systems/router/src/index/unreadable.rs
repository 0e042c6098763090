//! Objects that exist and could never be read. Nobody knows what they ask for, so nothing is withdrawn because of them, and none of them loses its
//! place to a younger object without a word.

use std::sync::Arc;

use signpost_apis::router;
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Kind, ObjectId};
use signpost_planning::Claim;

use crate::index::{
    facts::{Known, Owner, Target},
    singletons::{Rank, rank},
    world::{ClusterState, Touches},
};

impl ClusterState {
    /// An object cannot be read. What was known of it before stays.
    pub(crate) fn note_unreadable(&mut self, object: &Identity, touches: &mut Touches) {
        let id = &*object.id;
        let known = self.routes.contains_key(id)
            || self.gateways.contains_key(id)
            || self.policies.contains_key(id)
            || self.identities.contains_key(id)
            || self.configurations.contains_key(id)
            || self.services.contains_key(id);
        if !known && self.unreadable.insert(id.clone(), object.created).is_none() {
            self.singletons_changed(id, touches);
        }
    }

    /// An object was found to be unreadable, or no longer is: it may be, or have been, the oldest of its kind.
    fn singletons_changed(&mut self, id: &ObjectId, touches: &mut Touches) {
        if id.is::<router::ClusterIdentity>() || id.is::<router::DNSConfiguration>() {
            self.cluster_changed(touches);
        } else if id.is::<router::DNSPolicy>() {
            self.policy_changed(id, touches);
        }
    }

    /// The oldest object of a kind and namespace that could never be read, where it may be the one that is to be used: no readable one is used,
    /// and none that is older was not refused.
    pub(crate) fn unreadable_ahead<S>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        readable: Option<&Known<S>>,
    ) -> Option<&ObjectId> {
        let of_kind = self.unreadable.iter().filter(|(id, _)| id.kind == kind && id.namespace.as_deref() == namespace);
        let first = of_kind.map(|(id, created)| Claim::by_name(id, *created)).min()?;
        let ahead = |known: &Known<S>| {
            let claim = Claim::by_name(&*known.identity.id, known.identity.created);
            (Rank::New, &first) < (rank(known), &claim)
        };
        readable.is_none_or(ahead).then_some(first.holder)
    }

    /// Whether the object exists and could never be read.
    pub(crate) fn is_unreadable(&self, id: &ObjectId) -> bool {
        self.unreadable.contains_key(id)
    }

    /// An object can be read, or is deleted: what waited for that is decided now.
    pub(crate) fn resolve_unreadable(&mut self, id: &ObjectId, touches: &mut Touches) {
        if self.unreadable.remove(id).is_some() {
            self.singletons_changed(id, touches);
            self.touch_gateways(touches);
            self.touch_publishers(touches);
        }
    }

    /// Whether an object of the kind could never be read.
    pub(crate) fn has_unreadable<K: kube::Resource<DynamicType = ()> + 'static>(&self) -> bool {
        self.unreadable.keys().any(ObjectId::is::<K>)
    }

    /// Whether a route that could never be read has a DNSEndpoint of the host.
    pub(crate) fn is_published_unread(&self, host: &Fqdn) -> bool {
        let routes = self.unreadable.keys().filter(|id| id.is::<router::ServiceRoute>());
        routes.map(|id| Arc::new(id.clone())).any(|id| self.has_endpoint_of(&id, host))
    }

    /// Whether the owner is perhaps there, and only cannot be read.
    pub(super) fn may_be_unreadable(&self, owner: &Owner) -> bool {
        match owner {
            _ if self.unreadable.is_empty() => false,
            Owner::Route(id) => self.is_unreadable(id),
            Owner::Target(target) => {
                let mut there = self.gateways.values().filter(|gateway| !gateway.identity.is_deleting());
                self.has_unreadable::<router::Gateway>() && !there.any(|gateway| Target::of(&gateway.spec) == *target)
            }
        }
    }
}
