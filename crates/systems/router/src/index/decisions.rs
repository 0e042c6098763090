//! Stores the decisions of passes, and touches whoever waited for them.

use std::{collections::BTreeSet, sync::Arc};

use signpost_apis::router::{self, GatewaySpec};
use signpost_dns::Fqdn;
use signpost_engine::Identity;

use crate::{
    index::{
        RouterKey,
        facts::{Id, Known, Target},
        singletons,
        world::{ClusterState, Touches, key_of},
    },
    report::status::{DNS_READY, Decision, ObjectStatus, TargetVerdict},
};

impl ClusterState {
    /// Stores one decision.
    pub(crate) fn settle(
        &mut self,
        key: &RouterKey,
        decision: Decision,
        due: &mut BTreeSet<Id>,
        touches: &mut Touches,
    ) {
        match decision {
            Decision::Object { judged, verdict } => self.settle_object(key, judged, verdict, due, touches),
            Decision::Published { judged, host, published } => {
                if published {
                    self.strays.forget(&judged.id);
                }
                self.settle_published(&judged, &host, published, touches);
            }
            Decision::Strays { route, hosts } => self.note_strays(&route, hosts, touches),
            Decision::Delayed { judged, verdict } => {
                let ready =
                    |verdict: &Arc<ObjectStatus>| verdict.conditions.first().is_some_and(|reported| reported.status);
                let known = decided(self, &judged).filter(|known| !known.verdict.as_ref().is_some_and(ready));
                if let Some(known) = known {
                    *known.verdict = Some(Arc::new(verdict));
                    due.insert(judged.id.clone());
                }
            }
            Decision::DelayedTarget { target, verdict } => self.settle_delayed_target(target, verdict, due),
            Decision::Target { target, verdict } => {
                let of_target = |gateway: &&Known<GatewaySpec>| Target::of(&gateway.spec) == target;
                due.extend(self.gateways.values().filter(of_target).map(|gateway| gateway.identity.id.clone()));
                let reported = |verdict: &TargetVerdict| (verdict.ready, verdict.is_changing());
                if reported(&verdict) != self.targets.get(&target).map_or((false, false), reported) {
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

    /// The verdict about an object. It may decide which of several objects is used: a verdict is of the state before its pass.
    fn settle_object(
        &mut self,
        key: &RouterKey,
        judged: Identity,
        verdict: ObjectStatus,
        due: &mut BTreeSet<Id>,
        touches: &mut Touches,
    ) {
        let surplus = singletons::is_surplus(&verdict);
        let namespace = judged.id.namespace.clone().filter(|_| judged.id.is::<router::DNSPolicy>());
        let used = namespace.as_deref().map(|namespace| self.used_policy(Some(namespace)));
        if let Some(known) = decided(self, &judged) {
            (*known.verdict, *known.surplus) = (Some(Arc::new(verdict)), Some(surplus));
            if !surplus {
                self.note_used(&judged.id);
            }
            due.insert(judged.id);
        }
        if *key == RouterKey::Cluster {
            self.choose_singletons(touches);
        }
        if let (Some(namespace), Some(used)) = (namespace.as_deref(), used)
            && self.used_policy(Some(namespace)) != used
        {
            touches.touch(key.clone());
            self.touch_routes_of(Some(namespace), touches);
        }
    }

    /// Whether the DNSEndpoints of a route are there for a host.
    fn settle_published(&mut self, judged: &Identity, host: &Fqdn, published: bool, touches: &mut Touches) {
        let Some(route) = self.routes.get_mut(&judged.id) else { return };
        let current = route.known.identity.asks_the_same(judged) && route.host.as_ref() == Some(&Ok(host.clone()));
        if !current || route.published == published {
            return;
        }
        route.published = published;
        // The former owner of the host may withdraw it now, whether it still asks for the host or not.
        let others = self.hosts.waiting(host).map(|claim| RouterKey::Route(claim.holder.clone()));
        touches.now.extend(others);
        if published {
            self.serve(host, &judged.id, touches);
        } else {
            self.unserve(host, &judged.id);
        }
    }

    /// What the address records of gateways wait for, where nothing better is known of them.
    fn settle_delayed_target(&mut self, target: Target, verdict: TargetVerdict, due: &mut BTreeSet<Id>) {
        let of_target = |gateway: &&Known<GatewaySpec>| Target::of(&gateway.spec) == target;
        let gateways = || self.gateways.values().filter(of_target);
        let replaces = match self.targets.get(&target) {
            Some(before) => !before.ready && !before.is_changing(),
            None => !gateways().any(|gateway| gateway.seen.has_type(DNS_READY)),
        };
        if replaces {
            due.extend(gateways().map(|gateway| gateway.identity.id.clone()));
            self.targets.insert(target, verdict);
        }
    }
}

/// What the decisions about an object are.
struct Decided<'a> {
    verdict: &'a mut Option<Arc<ObjectStatus>>,
    surplus: &'a mut Option<bool>,
}

fn decided<'a>(world: &'a mut ClusterState, judged: &Identity) -> Option<Decided<'a>> {
    fn place<'a, S>(known: &'a mut Known<S>, judged: &Identity) -> Option<Decided<'a>> {
        let Known { identity, verdict, surplus, .. } = known;
        identity.asks_the_same(judged).then_some(Decided { verdict, surplus })
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
