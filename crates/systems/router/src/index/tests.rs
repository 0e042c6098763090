//! Which keys are decided again, and what counts as known.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde_json::json;
use signpost_apis::{
    externaldns::DnsEndpoint,
    router::{ClusterIdentity, ClusterIdentitySpec, DNSConfiguration, DNSPolicy, Gateway, ServiceRoute},
};
use signpost_engine::{Identity, Index, ObjectId, Outcome, Queue};
use signpost_planning::{Reason, Refusal};

use crate::{
    index::{
        Keys, RouterIndex, RouterKey,
        facts::{
            ChildFacts, GATEWAY_SERVICE, ISTIO_CONTROLLER, MANAGED_BY, OPERATOR, Owner, RESOURCE_TYPE, SERVICE_ROUTE,
            Seen, TARGET_POSTFIX, Target,
        },
        known,
        world::{ClusterState, Touches},
    },
    report::{
        states::State,
        status::{Decision, Detail, ObjectStatus, TargetVerdict},
    },
    settings::RouterConfig,
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

fn identity_id(name: &str) -> ObjectId {
    ObjectId::new::<ClusterIdentity>(None, name)
}

/// An identity that was created so many seconds after the epoch, with this reason of the condition Ready; its region is its name.
fn put_identity(world: &mut ClusterState, name: &str, second: i64, reason: Option<&str>) -> Touches {
    let spec = ClusterIdentitySpec {
        region: name.into(),
        cluster: "aks01".into(),
        domain: "example.com".into(),
        environment_letter: "p".into(),
        adopts_regions: Vec::new(),
    };
    let conditions: Vec<_> = reason.into_iter().map(ready).collect();
    let mut touches = Touches::default();
    world.put_identity(known(made(&identity_id(name), second), spec, Seen::of(&conditions)), &mut touches);
    touches
}

fn region(world: &ClusterState) -> Result<&str, &str> {
    world.identity.as_ref().map(|identity| identity.region.as_str()).map_err(|why| &**why)
}

#[test]
fn an_older_unreadable_identity_keeps_its_place_and_a_younger_one_changes_nothing() {
    let id = identity_id;
    let mut world = ClusterState::of_tests();
    put_identity(&mut world, "readable", 20, None);
    assert!(world.identity.is_ok());
    world.note_unreadable(&made(&id("younger"), 30), &mut Touches::default());
    assert!(world.identity.is_ok(), "a younger one is not used anyway");
    let mut touches = Touches::default();
    world.note_unreadable(&made(&id("older"), 10), &mut touches);
    assert_eq!(region(&world), Err("ClusterIdentity older cannot be read, so none is used"));
    assert!(touches.now.contains(&RouterKey::Cluster));
    world.resolve_unreadable(&id("older"), &mut touches);
    assert!(world.identity.is_ok(), "it was deleted");
}

#[test]
fn a_used_identity_keeps_its_place_although_an_older_one_cannot_be_read() {
    let mut world = ClusterState::of_tests();
    put_identity(&mut world, "used", 20, Some("ValidationSucceeded"));
    let mut touches = Touches::default();
    world.note_unreadable(&made(&identity_id("older"), 10), &mut touches);
    assert_eq!(region(&world), Ok("used"));
    // After it is deleted, nobody knows whether the other one was to be used.
    world.remove_identity(&identity_id("used"), &mut touches);
    assert_eq!(region(&world), Err("ClusterIdentity older cannot be read, so none is used"));
}

#[test]
fn a_refused_identity_does_not_take_the_place_of_one_that_cannot_be_read() {
    let mut world = ClusterState::of_tests();
    put_identity(&mut world, "refused", 10, Some("SingletonViolation"));
    world.note_unreadable(&made(&identity_id("younger"), 20), &mut Touches::default());
    assert_eq!(region(&world), Err("ClusterIdentity younger cannot be read, so none is used"));
    assert!(world.vacant.is_empty(), "the place is not vacant: {:?}", world.vacant);
    // The wait begins when it is deleted.
    let mut touches = Touches::default();
    world.resolve_unreadable(&identity_id("younger"), &mut touches);
    assert!(
        region(&world).unwrap_err().contains("the ClusterIdentity that was used was deleted"),
        "{:?}",
        region(&world)
    );
    assert!(touches.now.contains(&RouterKey::Cluster));
    // One that can be read again is used at once.
    world.note_unreadable(&made(&identity_id("younger"), 20), &mut touches);
    world.resolve_unreadable(&identity_id("younger"), &mut touches);
    put_identity(&mut world, "younger", 20, None);
    assert_eq!(region(&world), Ok("younger"));
}

fn put_policy(
    world: &mut ClusterState,
    name: &str,
    second: i64,
    reason: Option<&str>,
) -> (Identity, BTreeSet<RouterKey>) {
    let conditions: Vec<_> = reason.into_iter().map(ready).collect();
    let policy: DNSPolicy = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "app" }, "spec": { "mode": "Active" },
    }))
    .unwrap();
    let identity = made(&ObjectId::of(&policy), second);
    let mut touches = Touches::default();
    world.put_policy(known(identity.clone(), policy.spec, Seen::of(&conditions)), &mut touches);
    (identity, touches.now)
}

/// The cluster with a route, and the keys of the route and of the policies of its namespace.
fn with_route() -> (ClusterState, RouterKey, BTreeSet<RouterKey>) {
    let mut world = ClusterState::of_tests();
    let route: ServiceRoute = serde_json::from_value(json!({
        "metadata": { "name": "api", "namespace": "app" },
        "spec": { "serviceName": "api", "gatewayName": "gw", "environment": "prod", "application": "shop" },
    }))
    .unwrap();
    let id = Arc::new(ObjectId::of(&route));
    world.put_route(known(Identity::of(&route), route.spec, Seen::default()), &mut Touches::default());
    let policies = RouterKey::Policies("app".into());
    (world, policies.clone(), BTreeSet::from([policies, RouterKey::Route(id)]))
}

fn settle_policy(world: &mut ClusterState, key: &RouterKey, judged: &Identity, surplus: bool) -> BTreeSet<RouterKey> {
    let detail = Detail::Policy(None);
    let refused =
        || ObjectStatus::refused(None, Refusal::new(Reason::SingletonViolation, "another"), Detail::Policy(None));
    let used = ObjectStatus { phase: None, conditions: Vec::new(), refusal: None, notices: Vec::new(), detail };
    let verdict = if surplus { refused() } else { used };
    let mut touches = Touches::default();
    let decision = Decision::Object { judged: judged.clone(), verdict };
    world.settle(key, decision, &mut BTreeSet::new(), &mut touches);
    touches.now
}

#[test]
fn a_late_verdict_that_decides_which_policy_is_used_touches_its_routes() {
    let (mut world, key, all) = with_route();
    let used = |world: &ClusterState| world.used_policy(Some("app")).map(|id| id.name.clone());
    let (young, _) = put_policy(&mut world, "young", 20, None);
    // A pass sees it alone. An older one is created before its verdict is stored, and routes are judged by that one meanwhile.
    let (old, touched) = put_policy(&mut world, "old", 10, None);
    assert_eq!((used(&world).as_deref(), &touched), (Some("old"), &all));
    assert_eq!(settle_policy(&mut world, &key, &young, false), all, "routes are judged again, and so is the older one");
    assert_eq!(used(&world).as_deref(), Some("young"), "it was used first");
    // Verdicts that change nothing touch nothing.
    assert_eq!(settle_policy(&mut world, &key, &old, true), BTreeSet::new());
    assert_eq!(settle_policy(&mut world, &key, &young, false), BTreeSet::new());
    assert_eq!(used(&world).as_deref(), Some("young"));
}

#[test]
fn a_status_decides_which_policy_is_used_on_a_replica_that_does_not_lead() {
    let (mut world, _, all) = with_route();
    let used = |world: &ClusterState| world.used_policy(Some("app")).map(|id| id.name.clone());
    put_policy(&mut world, "young", 20, None);
    put_policy(&mut world, "old", 10, None);
    assert_eq!(used(&world).as_deref(), Some("old"));
    let (_, touched) = put_policy(&mut world, "young", 20, Some("PolicyActive"));
    assert_eq!((used(&world).as_deref(), touched), (Some("young"), all));
    let (_, touched) = put_policy(&mut world, "old", 10, Some("SingletonViolation"));
    assert_eq!((used(&world).as_deref(), touched), (Some("young"), BTreeSet::new()));
}

#[test]
fn a_status_decides_which_identity_is_used_on_a_replica_that_does_not_lead() {
    let id = identity_id;
    let put = |world: &mut ClusterState, name: &str, reason: Option<&str>| put_identity(world, name, 10, reason);
    let region = |world: &ClusterState| region(world).map(str::to_owned).ok();
    let mut world = ClusterState::of_tests();
    // Both were created in the same second. The leader knew of the second one by name first, and uses it.
    put(&mut world, "b", None);
    put(&mut world, "a", None);
    assert_eq!(region(&world).as_deref(), Some("a"));
    put(&mut world, "a", Some("SingletonViolation"));
    put(&mut world, "b", Some("ValidationSucceeded"));
    assert_eq!(region(&world).as_deref(), Some("b"));
    // It is deleted, and the leader uses the other one after a while.
    world.remove_identity(&id("b"), &mut Touches::default());
    assert_eq!(region(&world), None, "the place is vacant");
    put(&mut world, "a", Some("ValidationSucceeded"));
    assert_eq!(region(&world).as_deref(), Some("a"));
}

fn read<K: serde::de::DeserializeOwned>(metadata: &serde_json::Value, spec: &serde_json::Value) -> K {
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// A route of the namespace `app`, or of another one.
fn route(namespace: &str, name: &str, service: &str, deleted: Option<&str>) -> ServiceRoute {
    let metadata = json!({ "name": name, "namespace": namespace, "deletionTimestamp": deleted });
    let spec = json!({ "serviceName": service, "gatewayName": "gw", "environment": "prod", "application": "shop" });
    read(&metadata, &spec)
}

fn policy(spec: &serde_json::Value) -> DNSPolicy {
    read(&json!({ "name": "policy", "namespace": "app" }), spec)
}

/// An index with a published route of the namespace `app`, and a queue in which nothing is due but a route of another namespace.
fn with_published_route() -> (Keys, RouterIndex, ObjectId) {
    let (queue, config) = (Queue::new(), RouterConfig::default());
    let index = RouterIndex::new(queue.clone(), &config);
    let identity = json!({ "region": "weu", "cluster": "aks01", "domain": "example.com", "environmentLetter": "p" });
    index.applied(&read::<ClusterIdentity>(&json!({ "name": "cluster-identity" }), &identity));
    let controllers = json!({ "externalDNSControllers": [{ "name": "dns-weu", "region": "weu" }] });
    index.applied(&read::<DNSConfiguration>(&json!({ "name": "dns-config" }), &controllers));
    index.applied(&policy(&json!({ "mode": "Active" })));
    let api = route("app", "api", "api", None);
    index.applied(&api);
    let labels = json!({ MANAGED_BY: OPERATOR, SERVICE_ROUTE: "api" });
    let records = json!([{ "dnsName": "a", "recordType": "CNAME", "targets": ["b"] }]);
    let metadata = json!({ "name": "api-dns-weu", "namespace": "app", "labels": labels });
    index.applied(&read::<DnsEndpoint>(&metadata, &json!({ "endpoints": records })));
    while let Some(job) = queue.try_next() {
        queue.finish(&job.key, Outcome::Done);
    }
    index.applied(&route("busy", "other", "other", None));
    (queue, index, ObjectId::of(&api))
}

#[test]
fn a_withdrawal_is_before_the_keys_that_wait() {
    type Change = fn(&RouterIndex, &ObjectId);
    let changes: [(&str, Change); 3] = [
        ("its policy becomes inactive", |index, _| {
            index.applied(&policy(&json!({ "mode": "RegionBound", "sourceRegion": "neu" })));
        }),
        ("it is being deleted", |index, _| {
            index.applied(&route("app", "api", "api", Some("2026-01-01T00:00:00Z")));
        }),
        ("it is deleted", |index, id| Index::<ServiceRoute>::deleted(index, id)),
    ];
    for (what, change) in changes {
        let (queue, index, id) = with_published_route();
        change(&index, &id);
        assert_eq!(queue.try_next().map(|job| job.key), Some(RouterKey::Route(Arc::new(id))), "{what}");
    }
}

#[test]
fn a_change_that_withdraws_nothing_waits_its_turn() {
    let (queue, index, _) = with_published_route();
    index.applied(&policy(&json!({ "mode": "RegionBound", "sourceRegion": "weu" })));
    let other = ObjectId::new::<ServiceRoute>(Some("busy"), "other");
    assert_eq!(queue.try_next().map(|job| job.key), Some(RouterKey::Route(Arc::new(other))));
}

/// A pass of the route found that it has DNSEndpoints of this host, and does not ask for it.
fn settle_strays(world: &mut ClusterState, route: &Identity, hosts: &[u64]) {
    let decision = Decision::Strays { route: route.id.clone(), hosts: hosts.iter().copied().collect() };
    let key = RouterKey::Route(route.id.clone());
    world.settle(&key, decision, &mut BTreeSet::new(), &mut Touches::default());
}

#[test]
fn strays_of_a_route_are_forgotten_when_it_is_published_changed_or_deleted() {
    let mut world = ClusterState::of_tests();
    let object = route("app", "api", "api", None);
    let identity = Identity::of(&object);
    let put = |world: &mut ClusterState, service: &str| {
        let object = route("app", "api", service, None);
        world.put_route(known(Identity::of(&object), object.spec, Seen::default()), &mut Touches::default());
    };
    put(&mut world, "api");
    settle_strays(&mut world, &identity, &[7, 8]);
    assert!(!world.strays.is_empty());
    settle_strays(&mut world, &identity, &[]);
    assert!(world.strays.is_empty(), "it has none any more");

    settle_strays(&mut world, &identity, &[7]);
    let host = signpost_dns::Fqdn::parse("api.example.com").unwrap();
    let published = Decision::Published { judged: identity.clone(), host, published: true };
    let key = RouterKey::Route(identity.id.clone());
    world.settle(&key, published, &mut BTreeSet::new(), &mut Touches::default());
    assert!(world.strays.is_empty(), "it is published");

    settle_strays(&mut world, &identity, &[7]);
    put(&mut world, "changed");
    assert!(world.strays.is_empty(), "it is changed");

    settle_strays(&mut world, &identity, &[7]);
    world.remove_route(&identity.id, &mut Touches::default());
    assert!(world.strays.is_empty(), "it is deleted");
    settle_strays(&mut world, &identity, &[7]);
    assert!(world.strays.is_empty(), "it was deleted during its pass");
}

/// The condition Ready of an object that is, or is not, used.
fn ready(reason: &str) -> Condition {
    Condition {
        type_: "Ready".to_owned(),
        status: if reason == "SingletonViolation" { "False" } else { "True" }.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}
