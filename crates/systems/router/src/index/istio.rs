//! Istio Gateways as the watch shows them: which pods they are for, and the hosts of their HTTPS port.
//!
//! A host is added to an Istio Gateway only when no other one of the same pods has it: Istio drops a whole server for one duplicate host.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use signpost_apis::{
    istio::IstioGateway,
    router::{self, GatewaySpec},
};
use signpost_dns::Fqdn;
use signpost_engine::{Kind, ObjectId};

use crate::index::{
    ECHO, RouterKey,
    facts::{GATEWAY, ISTIO, Id, MANAGED_BY, OPERATOR, host_digest},
    reserved::End,
    world::{ClusterState, Touches},
};
use crate::plan::names;

/// The port of every generated server.
pub(crate) const HTTPS: u16 = 443;

/// The pods that an Istio Gateway is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Pods {
    /// Those with this value of the label `istio`.
    Labelled(Arc<str>),
    /// All of them: it has no selector.
    All,
    /// Those with other labels. Which gateways these are is not known.
    #[default]
    Others,
}

/// The few facts that are kept of an Istio Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IstioFacts {
    pods: Pods,
    /// Digests of the hosts of its HTTPS port, in order.
    hosts: Box<[u64]>,
    /// The hosts of an Istio Gateway of ours, one per line.
    written: Box<str>,
    /// The Secret with the certificate of an Istio Gateway of ours.
    credential: Box<str>,
    /// Whether it is labelled as one of ours, or owned by the Gateway of its name.
    ours: bool,
    /// Whether its labels show that it was generated for the Gateway of its name.
    generated: bool,
}

/// What an Istio Gateway of ours has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The value of the label `istio` of its pods.
    pub(crate) controller: String,
    /// The Secret with its certificate.
    pub(crate) credential: String,
    /// Its hosts.
    pub(crate) hosts: Vec<Fqdn>,
}

impl IstioFacts {
    pub(crate) fn of(gateway: &IstioGateway) -> Self {
        let servers = gateway.spec.servers.iter().filter(|server| server.port.number == Some(HTTPS.into()));
        // A host may be preceded by the namespaces that it is for.
        let name = |host: &String| host_digest(host.rsplit('/').next().unwrap_or(host));
        let written: Vec<&str> = servers.clone().flat_map(|server| &server.hosts).map(String::as_str).collect();
        let labels = gateway.metadata.labels.as_ref();
        let labelled = labels.and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|value| value == OPERATOR);
        let is_owner = |owner: &OwnerReference| {
            let kind = Kind::of::<router::Gateway>();
            (&owner.api_version, &owner.kind) == (&kind.api_version(), &kind.name)
                && Some(&owner.name) == gateway.metadata.name.as_ref()
        };
        // One without its label is still ours by its owner.
        let ours = labelled || gateway.metadata.owner_references.iter().flatten().any(is_owner);
        let written = if ours { written.join("\n").into() } else { Box::default() };
        let credential = servers.clone().next().filter(|_| ours).map(|server| server.tls.credential_name.as_str());
        let credential = credential.unwrap_or_default().into();
        let mut hosts: Vec<u64> = servers.flat_map(|server| &server.hosts).map(name).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let selector = &gateway.spec.selector;
        let pods = match selector.get(ISTIO) {
            Some(value) => Pods::Labelled(value.as_str().into()),
            None if selector.is_empty() => Pods::All,
            None => Pods::Others,
        };
        let name = names::label_value(gateway.metadata.name.as_deref().unwrap_or_default());
        let generated = labelled && labels.and_then(|labels| labels.get(GATEWAY)).is_some_and(|value| *value == name);
        Self { pods, hosts: hosts.into(), written, credential, ours, generated }
    }

    fn is_for(&self, controller: &str) -> bool {
        match &self.pods {
            Pods::Labelled(value) => **value == *controller,
            Pods::All => true,
            Pods::Others => false,
        }
    }

    fn has(&self, host: u64) -> bool {
        self.hosts.binary_search(&host).is_ok()
    }

    /// Whether pods lose a host of it with this change.
    fn frees_hosts(&self, new: Option<&Self>) -> bool {
        new.is_none_or(|new| new.pods != self.pods || self.hosts.iter().any(|host| !new.has(*host)))
    }
}

impl ClusterState {
    pub(crate) fn put_istio(&mut self, id: ObjectId, new: Option<IstioFacts>, touches: &mut Touches) {
        for key in self.taken.remove(&id).into_iter().flatten() {
            touches.touch(key);
        }
        let gateway = Arc::new(ObjectId::new::<router::Gateway>(id.namespace.as_deref(), &id.name));
        let delay = if new.is_some() { ECHO } else { Duration::ZERO };
        let before = self.istio.remove(&id);
        self.touch_routes_of_foreign(before.as_ref(), new.as_ref(), touches);
        if let Some(before) = before.filter(|before| before.frees_hosts(new.as_ref())) {
            // Another Gateway may wait for a host that this one had.
            let of_pods = self.gateways.values().filter(|other| before.is_for(&other.spec.controller));
            let others = of_pods.map(|other| &other.identity.id).filter(|other| **other != gateway);
            touches.now.extend(others.cloned().map(RouterKey::Gateway));
        }
        // One that was generated for a Gateway that is deleted is to be deleted too.
        let orphaned = new.as_ref().is_some_and(|new| new.generated);
        if let Some(new) = new {
            self.istio.insert(id, new);
        }
        if orphaned || self.gateways.contains_key(&gateway) {
            touches.later.push((RouterKey::Gateway(gateway), delay));
        }
    }

    /// A foreign Istio Gateway has changed: routes report whether it has their host.
    fn touch_routes_of_foreign(&self, before: Option<&IstioFacts>, new: Option<&IstioFacts>, touches: &mut Touches) {
        let foreign =
            |facts: Option<&IstioFacts>| facts.filter(|facts| !facts.ours && !facts.hosts.is_empty()).cloned();
        let (before, new) = (foreign(before), foreign(new));
        if before == new {
            return;
        }
        for gateway in self.gateways.values() {
            let has = |facts: &Option<IstioFacts>, host: u64| {
                facts.as_ref().is_some_and(|facts| facts.is_for(&gateway.spec.controller) && facts.has(host))
            };
            let concerned = |route: &&Id| {
                let host = self.routes.get(*route).and_then(|route| route.host.as_ref()?.as_ref().ok());
                let host = host.map(|host| host_digest(host.undotted()));
                host.is_some_and(|host| has(&before, host) != has(&new, host))
            };
            let routes = self.by_gateway.get(&gateway.identity.id).into_iter().flatten().filter(concerned);
            touches.now.extend(routes.cloned().map(RouterKey::Route));
        }
    }

    /// A foreign Istio Gateway of the same pods that has a host.
    pub(crate) fn foreign_istio_of(&self, spec: &GatewaySpec, host: &Fqdn) -> Option<&ObjectId> {
        let digest = host_digest(host.undotted());
        let has = |facts: &IstioFacts| !facts.ours && facts.is_for(&spec.controller) && facts.has(digest);
        self.istio.iter().find(|(_, facts)| has(facts)).map(|(id, _)| id)
    }

    /// Whether an Istio Gateway was generated for a Gateway that is deleted. One that exists and cannot be read counts as existing.
    pub(crate) fn is_orphaned(&self, istio: &ObjectId) -> bool {
        let gateway = ObjectId::new::<router::Gateway>(istio.namespace.as_deref(), &istio.name);
        let generated = self.istio.get(istio).is_some_and(|facts| facts.generated);
        generated && !self.gateways.contains_key(&gateway) && !self.is_unreadable(&gateway)
    }

    /// What an Istio Gateway of ours has, where it exists.
    pub(crate) fn written(&self, istio: &ObjectId) -> Option<Written> {
        let facts = self.istio.get(istio).filter(|facts| !facts.written.is_empty())?;
        let controller = match &facts.pods {
            Pods::Labelled(value) => value.to_string(),
            Pods::All | Pods::Others => String::new(),
        };
        Some(Written {
            controller,
            credential: facts.credential.to_string(),
            hosts: facts.written.lines().filter_map(|host| Fqdn::parse(host).ok()).collect(),
        })
    }

    /// The hosts of an Istio Gateway of ours that no route asks for, and that a route that cannot be read has published. While DNSEndpoints are
    /// not installed, any of them may be such a host.
    pub(crate) fn unread_hosts(&self, istio: &ObjectId, endpoints_installed: bool) -> impl Iterator<Item = Fqdn> {
        let hosts = self.istio.get(istio).filter(|_| self.has_unreadable::<router::ServiceRoute>());
        let hosts = hosts.into_iter().flat_map(|facts| facts.written.lines());
        let hosts = hosts.filter_map(|host| Fqdn::parse(host).ok()).filter(|host| !self.is_host(host));
        hosts.filter(move |host| !endpoints_installed || self.is_published_unread(host))
    }

    /// A pass is going to write these hosts into an Istio Gateway.
    pub(crate) fn reserve_hosts(&mut self, istio: &ObjectId, controller: &str, hosts: &[Fqdn]) {
        let hosts = hosts.iter().map(|host| host_digest(host.undotted())).collect();
        self.reserved.begin(istio, controller, hosts);
    }

    /// A pass of a Gateway leaves these hosts out, because other Istio Gateways of its pods have them, or are about to.
    pub(crate) fn note_waiting(&mut self, gateway: &Id, pods: &str, left_out: &[(Fqdn, ObjectId)]) {
        let reserves = |(host, other): &&(Fqdn, ObjectId)| self.reserved.has(other, pods, host_digest(host.undotted()));
        let others: BTreeSet<ObjectId> = left_out.iter().filter(reserves).map(|(_, other)| other.clone()).collect();
        if others.is_empty() {
            self.waiting.remove(gateway);
        } else {
            self.waiting.insert(gateway.clone(), others);
        }
    }

    /// That pass has ended. Gateways that wait for a host that it gave up are decided again, and no others: two that are refused would
    /// otherwise touch each other without end.
    pub(crate) fn release_hosts(&mut self, gateway: &ObjectId, end: End, touches: &mut Touches) {
        let istio = ObjectId::new::<IstioGateway>(gateway.namespace.as_deref(), &gateway.name);
        let freed = self.reserved.end(&istio, end);
        let of_pods = self.gateways.values().filter(|other| freed.contains(&other.spec.controller));
        let waits = |other: &&Id| self.waiting.get(*other).is_some_and(|others| others.contains(&istio));
        let others = of_pods.map(|other| &other.identity.id).filter(waits);
        touches.now.extend(others.cloned().map(RouterKey::Gateway));
    }

    /// The hosts that a Gateway must not add yet, each with another Istio Gateway of the same pods that has it, or is about to.
    pub(crate) fn hosts_elsewhere<'a>(
        &self,
        istio: &ObjectId,
        spec: &GatewaySpec,
        hosts: impl Iterator<Item = &'a Fqdn>,
    ) -> Vec<(Fqdn, ObjectId)> {
        let of_pods = self.istio.iter().filter(|(_, facts)| facts.is_for(&spec.controller));
        let (own, others): (Vec<_>, Vec<_>) = of_pods.partition(|(id, _)| *id == istio);
        let elsewhere = |host: &Fqdn| {
            let digest = host_digest(host.undotted());
            let shown = others.iter().find(|(_, facts)| facts.has(digest)).map(|(id, _)| *id);
            let other = shown.or_else(|| self.reserved.elsewhere(istio, &spec.controller, digest))?;
            let has_it = own.iter().any(|(_, facts)| facts.has(digest));
            (!has_it).then(|| (host.clone(), other.clone()))
        };
        hosts.filter_map(elsewhere).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{facts::Seen, known};
    use serde_json::json;
    use signpost_engine::Identity;

    fn facts(selector: &str, port: u16, hosts: &[&str]) -> IstioFacts {
        selecting(&json!({ "istio": selector }), port, hosts)
    }

    fn selecting(selector: &serde_json::Value, port: u16, hosts: &[&str]) -> IstioFacts {
        let gateway: IstioGateway = serde_json::from_value(json!({
            "metadata": { "name": "gw", "namespace": "infra" },
            "spec": { "selector": selector, "servers": [{ "port": { "number": port }, "hosts": hosts }] },
        }))
        .unwrap();
        IstioFacts::of(&gateway)
    }

    #[test]
    fn a_host_is_added_only_when_no_other_istio_gateway_of_the_pods_has_it() {
        let id = |name: &str| ObjectId::new::<IstioGateway>(Some("infra"), name);
        let spec: GatewaySpec =
            serde_json::from_value(json!({ "controller": "x", "credentialName": "c", "targetPostfix": "p" })).unwrap();
        let host = Fqdn::parse("a.example.com").unwrap();
        let waits = |others: &[(&str, IstioFacts)]| {
            let mut world = ClusterState::of_tests();
            for (name, facts) in others {
                world.put_istio(id(name), Some(facts.clone()), &mut Touches::default());
            }
            world.hosts_elsewhere(&id("mine"), &spec, std::iter::once(&host)).len() == 1
        };
        assert!(waits(&[("other", facts("x", 443, &["A.example.com"]))]));
        assert!(waits(&[("other", facts("x", 443, &["team/a.example.com"]))]), "after a namespace");
        assert!(!waits(&[("other", facts("y", 443, &["a.example.com"]))]), "of other pods");
        for (selector, all) in [(json!({}), true), (json!(null), true), (json!({ "app": "edge" }), false)] {
            assert_eq!(waits(&[("other", selecting(&selector, 443, &["a.example.com"]))]), all, "{selector}");
        }
        assert!(!waits(&[("other", facts("x", 80, &["a.example.com"]))]), "at another port");
        assert!(!waits(&[("mine", facts("x", 443, &["a.example.com"]))]), "its own");
        let both = [("mine", facts("x", 443, &["a.example.com"])), ("other", facts("x", 443, &["a.example.com"]))];
        assert!(!waits(&both), "what it has is not taken from it");
    }

    fn istio(name: &str) -> ObjectId {
        ObjectId::new::<IstioGateway>(Some("infra"), name)
    }

    /// Gateways of the same pods.
    fn with_gateways(names: &[&str]) -> (ClusterState, Vec<Id>, GatewaySpec) {
        let mut world = ClusterState::of_tests();
        let spec: GatewaySpec =
            serde_json::from_value(json!({ "controller": "x", "credentialName": "c", "targetPostfix": "p" })).unwrap();
        let put = |name: &&str| {
            let gateway: router::Gateway = serde_json::from_value(json!({
                "metadata": { "name": name, "namespace": "infra" }, "spec": spec,
            }))
            .unwrap();
            let identity = Identity::of(&gateway);
            let id = identity.id.clone();
            world.put_gateway(known(identity, gateway.spec, Seen::default()), &mut Touches::default());
            id
        };
        let ids = names.iter().map(put).collect();
        (world, ids, spec)
    }

    /// The keys that are decided again when a pass ends.
    fn ended(world: &mut ClusterState, gateway: &Id, end: End) -> BTreeSet<RouterKey> {
        let mut touches = Touches::default();
        world.release_hosts(gateway, end, &mut touches);
        touches.now
    }

    #[test]
    fn gateways_of_the_same_pods_that_are_refused_do_not_touch_each_other() {
        let (mut world, ids, _) = with_gateways(&["a", "b"]);
        for round in 0..3 {
            for id in &ids {
                let host = Fqdn::parse(&format!("{}.example.com", id.name)).unwrap();
                world.note_waiting(id, "x", &[]);
                world.reserve_hosts(&istio(&id.name), "x", &[host]);
                assert_eq!(ended(&mut world, id, End::Refused), BTreeSet::new(), "{id}, round {round}");
            }
        }
    }

    #[test]
    fn a_gateway_is_touched_when_a_host_that_it_waits_for_is_given_up() {
        let (mut world, ids, spec) = with_gateways(&["a", "b", "c"]);
        let host = Fqdn::parse("moves.example.com").unwrap();
        world.reserve_hosts(&istio("a"), "x", std::slice::from_ref(&host));
        assert_eq!(ended(&mut world, &ids[0], End::Written), BTreeSet::new());
        // The route has moved to the second Gateway. Its pass is the first one.
        let left_out = world.hosts_elsewhere(&istio("b"), &spec, std::iter::once(&host));
        assert_eq!(left_out, [(host, istio("a"))]);
        world.note_waiting(&ids[1], "x", &left_out);
        world.reserve_hosts(&istio("a"), "x", &[]);
        assert_eq!(ended(&mut world, &ids[0], End::Unanswered), BTreeSet::new(), "it may still have the host");
        assert_eq!(ended(&mut world, &ids[0], End::Written), BTreeSet::from([RouterKey::Gateway(ids[1].clone())]));
        world.note_waiting(&ids[1], "x", &[]);
        assert!(world.waiting.is_empty());
    }

    #[test]
    fn an_istio_gateway_without_its_label_is_ours_by_its_owner() {
        let id = ObjectId::new::<IstioGateway>(Some("infra"), "gw");
        let written = |kind: &str, owner: &str| {
            let owner =
                json!([{ "apiVersion": "routing.router.io/v1alpha1", "kind": kind, "name": owner, "uid": "1" }]);
            let gateway: IstioGateway = serde_json::from_value(json!({
                "metadata": { "name": "gw", "namespace": "infra", "ownerReferences": owner },
                "spec": { "servers": [{ "port": { "number": HTTPS }, "hosts": ["a.example.com"] }] },
            }))
            .unwrap();
            let mut world = ClusterState::of_tests();
            world.put_istio(id.clone(), Some(IstioFacts::of(&gateway)), &mut Touches::default());
            world.written(&id).map(|written| written.hosts.len())
        };
        assert_eq!(written("Gateway", "gw"), Some(1));
        assert_eq!(written("Gateway", "other"), None);
        assert_eq!(written("ServiceRoute", "gw"), None);
    }
}
