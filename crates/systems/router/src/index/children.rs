//! The DNSEndpoints that we generated, by the object that they were generated for.

use std::{collections::BTreeSet, sync::Arc};

use signpost_engine::ObjectId;

use crate::index::{
    ECHO, RouterKey,
    facts::{ChildFacts, Id, Owner, Target},
    world::{ClusterState, Touches, key_of},
};

/// Names of controllers that are kept for sharing; more are not shared.
const SHARED_CONTROLLERS: usize = 64;

impl ClusterState {
    pub(crate) fn put_child(&mut self, id: ObjectId, new: Option<ChildFacts>, touches: &mut Touches) {
        for key in self.taken.remove(&id).into_iter().flatten() {
            touches.touch(key);
        }
        let before = self.children.remove_entry(&id);
        self.pointer_changed(before.as_ref().map(|(_, before)| &**before), new.as_ref(), touches);
        self.names_changed(before.as_ref().map(|(_, before)| &**before), new.as_ref(), touches);
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
        self.share_controller(&mut new);
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
        self.children.insert(id, Box::new(new));
        if !same {
            self.publication_changed(&owner, touches);
        }
        self.touch_rivals_of(&owner, touches);
    }

    /// Most DNSEndpoints have one of a few controllers.
    fn share_controller(&mut self, child: &mut ChildFacts) {
        if let Some(shared) = self.controllers.get(&child.controller) {
            child.controller = shared.clone();
        } else if self.controllers.len() < SHARED_CONTROLLERS {
            self.controllers.insert(child.controller.clone());
        }
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

    /// Whether external-dns has read the current generation of this DNSEndpoint.
    pub(crate) fn is_observed(&self, namespace: Option<&str>, name: &str) -> bool {
        let id = ObjectId::new::<signpost_apis::externaldns::DnsEndpoint>(namespace, name);
        self.children.get(&id).is_some_and(|child| child.observed)
    }

    /// Whether there is a route, or a DNSEndpoint that was made for it.
    pub(crate) fn knows_route(&self, route: &Id) -> bool {
        let owner = Owner::Route(route.clone());
        self.routes.contains_key(route) || self.by_owner.contains_key(&owner) || self.may_be_unreadable(&owner)
    }

    /// The children of an owner, in order; none while it perhaps cannot be read, so that they are kept.
    pub(crate) fn children_of(&self, owner: &Owner) -> impl Iterator<Item = (&Id, &ChildFacts)> {
        let ids = self.by_owner.get(owner).filter(|_| !self.may_be_unreadable(owner));
        ids.into_iter().flatten().filter_map(|id| self.children.get_key_value(id)).map(|(id, child)| (id, &**child))
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
    pub(super) fn touch_rivals(&self, target: &Target, touches: &mut Touches) {
        let living = self.gateways.values().map(|gateway| Target::of(&gateway.spec));
        let published = self.published_targets().map(|(target, _)| target.clone());
        let rivals = living.chain(published).filter(|other| other.postfix == target.postfix && other != target);
        touches.now.extend(rivals.map(RouterKey::Target));
    }
}
