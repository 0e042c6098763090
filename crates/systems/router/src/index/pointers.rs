//! The names that DNSEndpoints of routes point at.
//!
//! ```text
//! identity or postfix changes ─► gateways have another name ─► each route points at it after its own pass
//!                                └► the former name is kept until no DNSEndpoint points at it
//! ```

use std::collections::BTreeSet;

use signpost_apis::router::GatewaySpec;
use signpost_dns::Fqdn;

use crate::{
    index::{
        RouterKey,
        facts::{ChildFacts, Id, Known, Owner, Target, host_digest},
        world::{ClusterState, Touches},
    },
    plan::names,
};

impl ClusterState {
    /// A DNSEndpoint has changed. When nothing points at a former name any more, the gateways that keep it are decided again.
    pub(super) fn pointer_changed(
        &mut self,
        before: Option<&ChildFacts>,
        new: Option<&ChildFacts>,
        touches: &mut Touches,
    ) {
        let (before, new) = (before.and_then(ChildFacts::points_at), new.and_then(ChildFacts::points_at));
        if before == new {
            return;
        }
        if let Some(new) = new {
            *self.pointed_at.entry(new).or_default() += 1;
        }
        let Some(before) = before else { return };
        let Some(count) = self.pointed_at.get_mut(&before) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.pointed_at.remove(&before);
            let kept = self.kept.remove(&before).unwrap_or_default();
            touches.now.extend(kept.into_iter().map(RouterKey::Target));
        }
    }

    /// Whether a DNSEndpoint of a route points at the name.
    pub(crate) fn is_pointed_at(&self, name: &Fqdn) -> bool {
        self.pointed_at.contains_key(&host_digest(name.undotted()))
    }

    /// Gateways keep these former names, because DNSEndpoints of routes point at them.
    pub(crate) fn note_kept<'a>(&mut self, target: &Target, names: impl Iterator<Item = &'a Fqdn>) {
        for name in names {
            self.kept.entry(host_digest(name.undotted())).or_default().insert(target.clone());
        }
    }

    /// Whether a route that is going to move points at one of the names: its Gateway exists, with another name. A route whose Gateway is deleted
    /// keeps its DNSEndpoints and does not move.
    pub(crate) fn is_awaited<'a>(&self, names: impl Iterator<Item = &'a Fqdn>) -> bool {
        let digests = names.map(|name| host_digest(name.undotted()));
        let digests: BTreeSet<u64> = digests.filter(|digest| self.pointed_at.contains_key(digest)).collect();
        let exists = |gateway: &Id| self.gateways.get(gateway).is_some_and(|gateway| !gateway.identity.is_deleting());
        let moves = |id: &Id| {
            // Nobody knows what an object asks for that cannot be read.
            self.is_unreadable(id) || self.routes.get(id).is_some_and(|route| exists(&route.gateway))
        };
        let awaits = |child: &ChildFacts| match &child.owner {
            Owner::Route(id) => child.points_at().is_some_and(|digest| digests.contains(&digest)) && moves(id),
            Owner::Target(_) => false,
        };
        !digests.is_empty() && self.children.values().any(awaits)
    }

    /// Whether another object has the name now: a route, or gateways of another postfix.
    pub(crate) fn is_name_of_another(&self, name: &Fqdn, target: &Target) -> bool {
        let of_gateway = |gateway: &Known<GatewaySpec>| {
            let identity = self.identity.as_ref().ok();
            let own = identity.and_then(|identity| names::target_host(identity, &gateway.spec.target_postfix).ok());
            Target::of(&gateway.spec).postfix != target.postfix && own.as_ref() == Some(name)
        };
        self.is_host(name) || self.living_gateways().any(of_gateway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{facts::Seen, known};
    use serde_json::{Value, json};
    use signpost_apis::{
        externaldns::DnsEndpoint,
        router::{ClusterIdentity, Gateway, ServiceRoute},
    };
    use signpost_engine::{Identity, ObjectId};

    fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).unwrap()
    }

    fn name(text: &str) -> Fqdn {
        Fqdn::parse(text).unwrap()
    }

    /// A DNSEndpoint of the route, which points at the target; `None` when it is deleted.
    fn point(world: &mut ClusterState, route: &str, target: Option<&str>) -> BTreeSet<RouterKey> {
        let endpoint: DnsEndpoint = read(json!({
            "metadata": { "name": format!("{route}-dns"), "namespace": "app", "labels": {
                "app.kubernetes.io/managed-by": "service-router-operator", "router.io/serviceroute": route } },
            "spec": { "endpoints": [{ "dnsName": "a.example.com", "recordType": "CNAME", "targets": [target.unwrap_or_default()] }] },
        }));
        let facts = target.and_then(|_| ChildFacts::of(&endpoint));
        let mut touches = Touches::default();
        world.put_child(ObjectId::of(&endpoint), facts, &mut touches);
        touches.now.into_iter().filter(|key| matches!(key, RouterKey::Target(_))).collect()
    }

    fn put_gateway(world: &mut ClusterState, gateway: &str, postfix: &str) {
        let spec = json!({ "controller": "istio", "credentialName": "cert", "targetPostfix": postfix });
        let gateway: Gateway = read(json!({ "metadata": { "name": gateway, "namespace": "infra" }, "spec": spec }));
        let gateway = known(Identity::of(&gateway), gateway.spec.clone(), Seen::default());
        world.put_gateway(gateway, &mut Touches::default());
    }

    fn put_route(world: &mut ClusterState, route: &str, gateway: &str) {
        let spec =
            json!({ "serviceName": route, "gatewayName": gateway, "environment": "prod", "application": "shop" });
        let route: ServiceRoute = read(json!({ "metadata": { "name": route, "namespace": "app" }, "spec": spec }));
        world.put_route(known(Identity::of(&route), route.spec.clone(), Seen::default()), &mut Touches::default());
    }

    fn put_identity(world: &mut ClusterState) {
        let spec = json!({ "region": "weu", "cluster": "aks01", "domain": "example.com", "environmentLetter": "p" });
        let identity: ClusterIdentity = read(json!({ "metadata": { "name": "cluster-identity" }, "spec": spec }));
        let identity = known(Identity::of(&identity), identity.spec.clone(), Seen::default());
        world.put_identity(identity, &mut Touches::default());
    }

    #[test]
    fn gateways_are_touched_when_the_last_pointer_at_a_former_name_moves() {
        let mut world = ClusterState::of_tests();
        let (old, target) = (name("old.example.com"), Target { controller: "istio".into(), postfix: "p".into() });
        let touched = |world: &mut ClusterState, route: &str, to: Option<&str>| point(world, route, to).len();
        assert_eq!(touched(&mut world, "one", Some("old.example.com")), 0);
        assert_eq!(touched(&mut world, "two", Some("OLD.example.com.")), 0, "the same name");
        world.note_kept(&target, std::iter::once(&old));
        assert_eq!(touched(&mut world, "one", Some("old.example.com")), 0, "nothing has changed");
        assert_eq!(touched(&mut world, "one", Some("new.example.com")), 0);
        assert!(world.is_pointed_at(&old));
        assert_eq!(point(&mut world, "two", None), BTreeSet::from([RouterKey::Target(target)]));
        assert!(!world.is_pointed_at(&old) && world.is_pointed_at(&name("new.example.com")));
        point(&mut world, "one", None);
        assert!(world.pointed_at.is_empty() && world.kept.is_empty());
    }

    #[test]
    fn a_name_is_awaited_while_a_route_of_an_existing_gateway_points_at_it() {
        let mut world = ClusterState::of_tests();
        let old = name("old.example.com");
        let awaited = |world: &ClusterState| world.is_awaited(std::iter::once(&old));
        put_gateway(&mut world, "gw", "new");
        put_route(&mut world, "api", "gw");
        assert!(!awaited(&world), "nothing points at it");
        point(&mut world, "api", Some("old.example.com"));
        assert!(awaited(&world));
        world.remove_gateway(&ObjectId::new::<Gateway>(Some("infra"), "gw"), &mut Touches::default());
        assert!(!awaited(&world), "its Gateway is deleted, so it does not move");
        put_gateway(&mut world, "gw", "new");
        point(&mut world, "api", Some("aks01-weu-new.example.com"));
        assert!(!awaited(&world), "it has moved");
    }

    #[test]
    fn a_former_name_that_another_object_has_now_is_not_free() {
        let mut world = ClusterState::of_tests();
        put_identity(&mut world);
        put_gateway(&mut world, "gw", "internal");
        put_route(&mut world, "api", "gw");
        let of = |postfix: &str| Target { controller: "istio".into(), postfix: postfix.into() };
        let internal = name("aks01-weu-internal.example.com");
        assert!(world.is_name_of_another(&internal, &of("edge")), "the name of the Gateway");
        assert!(!world.is_name_of_another(&internal, &of("internal")), "its own");
        assert!(world.is_name_of_another(&name("api-ns-p-prod-shop.example.com"), &of("internal")), "a host");
        assert!(!world.is_name_of_another(&name("aks01-typo-internal.example.com"), &of("internal")));
    }
}
