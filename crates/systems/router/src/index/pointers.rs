//! The names that DNSEndpoints of routes point at.
//!
//! ```text
//! identity or postfix changes ─► gateways have another name ─► it is published ─► each route points at it after its own pass
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

    /// A DNSEndpoint of gateways has changed. When it has other names, routes that wait for one are decided again.
    pub(super) fn names_changed(
        &mut self,
        before: Option<&ChildFacts>,
        new: Option<&ChildFacts>,
        touches: &mut Touches,
    ) {
        let published = |facts: Option<&ChildFacts>| {
            let facts = facts.filter(|facts| !facts.names.is_empty())?;
            Some((facts.names.clone(), facts.controller.clone()))
        };
        if !self.unpublished.is_empty() && published(before) != published(new) {
            self.touch_unpublished(touches);
        }
    }

    /// Routes that point at a former name are decided again: perhaps that of their Gateway is published, or will not be.
    pub(super) fn touch_unpublished(&mut self, touches: &mut Touches) {
        for gateway in std::mem::take(&mut self.unpublished) {
            let routes = self.by_gateway.get(&gateway).into_iter().flatten();
            touches.now.extend(routes.cloned().map(RouterKey::Route));
        }
    }

    /// A route points at a former name, because that of its Gateway is not published yet.
    pub(crate) fn note_unpublished(&mut self, gateway: &Id) {
        self.unpublished.insert(gateway.clone());
    }

    /// The name that a DNSEndpoint of a route keeps pointing at: its controller publishes that name for gateways, and not yet the name of the
    /// route's Gateway. Where others publish the names of gateways, there is no such name.
    pub(crate) fn former_target(&self, child: &ChildFacts, controller: &str, name: &Fqdn) -> Option<Fqdn> {
        let digest = child.points_at().filter(|digest| *digest != host_digest(name.undotted()))?;
        let published = self.published_targets().flat_map(|(_, ids)| ids).filter_map(|id| self.children.get(id));
        let published = published.filter(|published| *published.controller == *controller);
        let mut former = None;
        for published in published.flat_map(|published| published.names.iter()) {
            if published == name {
                return None;
            }
            if host_digest(published.undotted()) == digest {
                former = Some(published);
            }
        }
        former.cloned()
    }

    /// Whether the Gateway has a load balancer, so that its name is going to be published.
    pub(crate) fn has_balancer(&self, gateway: &GatewaySpec) -> bool {
        self.balancers_of(&Target::of(gateway)).first.is_some()
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
        !digests.is_empty() && self.children.values().any(|child| awaits(child))
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
    use crate::index::{
        facts::{Seen, ServiceFacts},
        known,
    };
    use serde_json::{Value, json};
    use signpost_apis::{
        externaldns::DnsEndpoint,
        router::{ClusterIdentity, Gateway, ServiceRoute},
        service::Service,
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

    /// A DNSEndpoint of gateways with the name; returns the routes that are decided again.
    fn publish(world: &mut ClusterState, postfix: &str, published: Option<&str>) -> usize {
        let endpoint: DnsEndpoint = read(json!({
            "metadata": { "name": format!("gateway-controller-istio-{postfix}-dns"), "namespace": "infra", "labels": {
                "app.kubernetes.io/managed-by": "service-router-operator", "router.io/resource-type": "gateway-service",
                "router.io/istio-controller": "istio", "router.io/target-postfix": postfix, "router.io/controller": "dns" } },
            "spec": { "endpoints": [{ "dnsName": published.unwrap_or_default(), "recordType": "A", "targets": ["10.0.0.1"] }] },
        }));
        let facts = published.and_then(|_| ChildFacts::of(&endpoint));
        let mut touches = Touches::default();
        world.put_child(ObjectId::of(&endpoint), facts, &mut touches);
        touches.now.into_iter().filter(|key| matches!(key, RouterKey::Route(_))).count()
    }

    /// The load balancer of the controller `istio`; returns the routes that are decided again.
    fn put_balancer(world: &mut ClusterState, exists: bool) -> usize {
        let service: Service = read(json!({
            "metadata": { "name": "istio", "namespace": "infra", "labels": { "istio": "istio" } },
            "spec": { "type": "LoadBalancer" },
        }));
        let facts = Some(service).filter(|_| exists).and_then(|service| ServiceFacts::of(&service));
        let mut touches = Touches::default();
        world.put_service(&ObjectId::new::<Service>(Some("infra"), "istio"), exists, facts, &mut touches);
        touches.now.into_iter().filter(|key| matches!(key, RouterKey::Route(_))).count()
    }

    /// The name that the DNSEndpoint of the route `api` keeps pointing at.
    fn former(world: &ClusterState, controller: &str) -> Option<String> {
        let child = world.children.get(&ObjectId::new::<DnsEndpoint>(Some("app"), "api-dns")).unwrap();
        let gateway = world.gateways.get(&ObjectId::new::<Gateway>(Some("infra"), "gw")).unwrap();
        let own = names::target_host(world.identity.as_ref().unwrap(), &gateway.spec.target_postfix).unwrap();
        world.former_target(child, controller, &own).map(|former| former.undotted().to_owned())
    }

    fn has_balancer(world: &ClusterState) -> bool {
        let gateway = world.gateways.get(&ObjectId::new::<Gateway>(Some("infra"), "gw")).unwrap();
        world.has_balancer(&gateway.spec)
    }

    #[test]
    fn a_route_keeps_a_published_name_until_that_of_its_gateway_is_published() {
        const OLD: &str = "aks01-weu-old.example.com";
        let mut world = ClusterState::of_tests();
        put_identity(&mut world);
        put_gateway(&mut world, "gw", "new");
        put_route(&mut world, "api", "gw");
        point(&mut world, "api", Some(OLD));
        put_balancer(&mut world, true);
        assert_eq!(former(&world, "dns"), None, "others publish the names of gateways");
        assert_eq!(publish(&mut world, "old", Some(OLD)), 0, "nobody waits");
        assert_eq!(former(&world, "dns").as_deref(), Some(OLD));
        assert_eq!(former(&world, "other"), None, "another controller publishes it");
        let gateway = ObjectId::new::<Gateway>(Some("infra"), "gw");
        world.note_unpublished(&Id::from(gateway.clone()));
        assert_eq!(publish(&mut world, "old", Some(OLD)), 0, "it has the same names");
        assert_eq!(put_balancer(&mut world, false), 1, "it is decided again, once");
        assert!(!has_balancer(&world), "the name will not be published");
        assert_eq!(former(&world, "dns").as_deref(), Some(OLD), "perhaps the Service is being replaced");
        assert_eq!(put_balancer(&mut world, true), 0);
        assert!(has_balancer(&world));
        world.note_unpublished(&Id::from(gateway));
        assert_eq!(publish(&mut world, "new", Some("aks01-weu-new.example.com")), 1);
        assert_eq!(former(&world, "dns"), None, "it is published");
        assert!(world.unpublished.is_empty());
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
