//! Which keys are decided again, and what counts as known.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use signpost_apis::{
    externaldns::DnsEndpoint,
    router::{ClusterIdentity, ClusterIdentitySpec, Gateway, ServiceRoute},
};
use signpost_engine::{Identity, ObjectId};

use crate::{
    index::{
        RouterKey,
        facts::{
            ChildFacts, GATEWAY_SERVICE, ISTIO_CONTROLLER, MANAGED_BY, OPERATOR, Owner, RESOURCE_TYPE, SERVICE_ROUTE,
            Seen, TARGET_POSTFIX, Target,
        },
        known,
        world::{ClusterState, Touches},
    },
    report::{
        states::State,
        status::{Decision, TargetVerdict},
    },
};

/// An object that was created so many seconds after the epoch.
fn made(id: &ObjectId, second: i64) -> Identity {
    let created = jiff::Timestamp::from_second(second).unwrap();
    Identity { created, ..Identity::of_meta(Arc::new(id.clone()), &ObjectMeta::default()) }
}

fn target(controller: &str) -> Target {
    Target { controller: controller.into(), postfix: "internal".into() }
}

fn put_gateway(world: &mut ClusterState, name: &str, controller: &str) {
    let gateway: Gateway = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "infra", "uid": name },
        "spec": { "controller": controller, "credentialName": "cert", "targetPostfix": "internal" },
    }))
    .unwrap();
    let gateway = known(Identity::of(&gateway), gateway.spec.clone(), Seen::default());
    world.put_gateway(gateway, &mut Touches::default());
}

fn put_child(world: &mut ClusterState, name: &str, labels: serde_json::Value) {
    let mut labels = labels;
    labels[MANAGED_BY] = json!(OPERATOR);
    let endpoint: DnsEndpoint = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "app", "labels": labels },
        "spec": { "endpoints": [{ "dnsName": "a", "recordType": "CNAME", "targets": ["b"] }] },
    }))
    .unwrap();
    world.put_child(ObjectId::of(&endpoint), ChildFacts::of(&endpoint), &mut Touches::default());
}

fn put_addresses(world: &mut ClusterState, controller: &str) {
    let labels = json!({ RESOURCE_TYPE: GATEWAY_SERVICE, ISTIO_CONTROLLER: controller, TARGET_POSTFIX: "internal" });
    put_child(world, controller, labels);
}

/// The keys that are decided again after this verdict.
fn settle(world: &mut ClusterState, controller: &str, ready: bool) -> BTreeSet<RouterKey> {
    let verdict = TargetVerdict {
        ready,
        reason: State::DNSEndpointsCreated.into(),
        message: String::new(),
        refusal: None,
        addresses: Vec::new(),
        host: None,
        class: None,
        notice: None,
    };
    let decision = Decision::Target { target: target(controller), verdict };
    let mut touches = Touches::default();
    world.settle(&RouterKey::Target(target(controller)), decision, &mut BTreeSet::new(), &mut touches);
    touches.now
}

#[test]
fn a_published_name_is_told_to_those_who_had_it() {
    let mut world = ClusterState::of_tests();
    put_gateway(&mut world, "old", "winner");
    put_gateway(&mut world, "young", "loser");
    put_addresses(&mut world, "former");
    assert_eq!(settle(&mut world, "winner", false), BTreeSet::new());
    let rivals = ["former", "loser"].map(|controller| RouterKey::Target(target(controller)));
    assert_eq!(settle(&mut world, "winner", true), BTreeSet::from(rivals));
    assert_eq!(settle(&mut world, "winner", true), BTreeSet::new(), "once");
}

#[test]
fn a_deleted_gateway_touches_what_its_former_controller_published() {
    let mut world = ClusterState::of_tests();
    put_addresses(&mut world, "former");
    put_gateway(&mut world, "gw", "new");
    let mut touches = Touches::default();
    world.remove_gateway(&ObjectId::new::<Gateway>(Some("infra"), "gw"), &mut touches);
    for controller in ["former", "new"] {
        assert!(touches.now.contains(&RouterKey::Target(target(controller))), "{controller}: {touches:?}");
    }
}

#[test]
fn what_an_unreadable_route_published_is_kept_until_it_is_deleted() {
    let mut world = ClusterState::of_tests();
    put_child(&mut world, "api-dns", json!({ SERVICE_ROUTE: "api" }));
    let id = ObjectId::new::<ServiceRoute>(Some("app"), "api");
    let owner = Owner::Route(Arc::new(id.clone()));
    assert_eq!(world.children_of(&owner).count(), 1);
    world.note_unreadable(&made(&id, 0), &mut Touches::default());
    assert_eq!(world.children_of(&owner).count(), 0, "nothing is there to be withdrawn");
    assert!(world.has_unreadable::<ServiceRoute>() && !world.has_unreadable::<Gateway>());
    let mut touches = Touches::default();
    world.resolve_unreadable(&id, &mut touches);
    assert_eq!(world.children_of(&owner).count(), 1);
    assert!(touches.now.contains(&RouterKey::Route(Arc::new(id))) && !world.has_unreadable::<ServiceRoute>());
}

#[test]
fn the_addresses_of_an_unreadable_gateway_are_kept() {
    let mut world = ClusterState::of_tests();
    put_gateway(&mut world, "other", "other");
    for controller in ["istio", "other"] {
        put_addresses(&mut world, controller);
    }
    let read_before = ObjectId::new::<Gateway>(Some("infra"), "other");
    world.note_unreadable(&made(&read_before, 0), &mut Touches::default());
    assert!(!world.has_unreadable::<Gateway>(), "it was read before");
    let id = ObjectId::new::<Gateway>(Some("infra"), "gw");
    world.note_unreadable(&made(&id, 0), &mut Touches::default());
    let count = |world: &ClusterState, controller: &str| world.children_of(&Owner::Target(target(controller))).count();
    assert_eq!((count(&world, "istio"), count(&world, "other")), (0, 1));
    let mut touches = Touches::default();
    world.resolve_unreadable(&id, &mut touches);
    assert_eq!((count(&world, "istio"), count(&world, "other")), (1, 1));
    assert!(touches.now.contains(&RouterKey::Target(target("istio"))));
}

#[test]
fn an_older_unreadable_identity_keeps_its_place_and_a_younger_one_changes_nothing() {
    let spec = ClusterIdentitySpec {
        region: "weu".into(),
        cluster: "aks01".into(),
        domain: "example.com".into(),
        environment_letter: "p".into(),
        adopts_regions: Vec::new(),
    };
    let id = |name: &str| ObjectId::new::<ClusterIdentity>(None, name);
    let mut world = ClusterState::of_tests();
    world.put_identity(known(made(&id("readable"), 20), spec, Seen::default()), &mut Touches::default());
    assert!(world.identity.is_ok());
    world.note_unreadable(&made(&id("younger"), 30), &mut Touches::default());
    assert!(world.identity.is_ok(), "a younger one is not used anyway");
    let mut touches = Touches::default();
    world.note_unreadable(&made(&id("older"), 10), &mut touches);
    assert_eq!(world.identity.as_ref().unwrap_err().as_ref(), "ClusterIdentity older is the oldest and cannot be read");
    assert!(touches.now.contains(&RouterKey::Cluster));
    world.resolve_unreadable(&id("older"), &mut touches);
    assert!(world.identity.is_ok(), "it was deleted");
}
