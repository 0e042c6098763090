use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use signpost_apis::ingress::Ingress;
use signpost_apis::service::Service;
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Index as _, ObjectId, Queue, RetryClass};
use signpost_exposure::{BaseDomain, Options, TunnelAllowance};
use signpost_planning::Reason;
use signpost_provider_pangolin::{
    DomainId, Listed, NewResource, PangolinError, Resource, ResourceId, Site, SiteId, SiteKind,
};

use super::api::{self, is_mark, mark_of};
use super::crd::{self, Shape};
use super::exposure::{Exposures, Ground, exposures};
use super::refusals::HostRefusal;
use super::{ApiView, Delivery, FoundSite, Memory, Observed, Plan, SOON, View, Wanted, Wish, plan, site};
use crate::index::{ChildFacts, ChildState, FoundTunnel, IngressId, Key, MOST_HOSTS, PangolinIndex};
use crate::settings::Policy;

#[test]
fn a_mark_is_of_one_owner_and_complete() {
    let mark = "sp-home-0123456789ab-ba9876543210";
    assert!(is_mark(mark, "home"));
    for (text, owner) in [
        (mark, "hom"),
        (mark, "home-0123456789ab"),
        ("sp-home-x-0123456789ab-ba9876543210", "home"),
        ("sp-home-0123456789ab", "home"),
        ("sp-home-0123456789ab-BA9876543210", "home"),
        ("sp-home-0123456789ab-ba9876543210-more", "home"),
        ("my-sp-home-0123456789ab-ba9876543210", "home"),
        ("", "home"),
    ] {
        assert!(!is_mark(text, owner), "{text} {owner}");
    }
    assert_eq!(mark_of(&listed(1, "random", mark), "home"), Some(mark), "its creator stopped before it was marked");
    assert_eq!(mark_of(&listed(1, "random", "my app"), "home"), None);
}

#[test]
fn domains_that_are_not_known_for_a_moment_are_those_of_the_last_pass() {
    let tunnel = |domains: Option<&str>| FoundTunnel::One {
        namespace: "one".into(),
        name: "default".into(),
        ready: true,
        domains: domains.map(|name| {
            let name = Fqdn::parse(name).unwrap();
            [BaseDomain { name, id: None, shape: signpost_exposure::Shape::Tree, verified: true }].into()
        }),
    };
    let mut memory = Memory::default();
    let mut pass = |domains| {
        let mut tunnel = tunnel(domains);
        memory.remember_domains(&mut tunnel);
        let FoundTunnel::One { domains, .. } = tunnel else { panic!("one tunnel") };
        domains.map(|domains| domains[0].name.undotted().to_owned())
    };
    assert_eq!(pass(None), None);
    assert_eq!(pass(Some("apps.example.com")).as_deref(), Some("apps.example.com"));
    assert_eq!(pass(None).as_deref(), Some("apps.example.com"));
    assert_eq!(pass(Some("example.com")).as_deref(), Some("example.com"));
}

fn listed(id: i64, nice_id: &str, name: &str) -> Listed {
    Listed {
        id: ResourceId(id),
        nice_id: nice_id.into(),
        name: name.into(),
        host: None,
        enabled: true,
        sso: None,
        ssl: None,
        targets: None,
    }
}

#[test]
fn a_resource_that_appears_after_its_host_was_handed_over_is_deleted() {
    let host = Fqdn::parse("app.example.org").unwrap();
    let [old, new] = ["old", "new"].map(|name| Arc::new(ObjectId::new::<Ingress>(Some("one"), name)));
    let mark = |owner: &IngressId| format!("{}-0123456789ab", api::ingress_mark("home", owner));
    let made = |id, nice_id: &str, name: &str| Listed { host: Some(host.clone()), ..listed(id, nice_id, name) };
    let late = || made(1, "random-1", &mark(&old));
    let doomed = |resources: Vec<Listed>| {
        let view = ApiView {
            owner: "home".to_owned(),
            site: FoundSite::One(SiteId(1), true),
            domains: [].into(),
            resources: resources.into(),
            marks: Vec::new(),
            owned_hosts: [(host.clone(), new.clone())].into(),
            takers: [(host.clone(), new.clone())].into(),
        };
        let (exposures, policy) = (Exposures::default(), Policy::default());
        let input = api::Input::new(&old, &exposures, None, &view, &policy);
        let plan = api::plan(&input, &Memory::default(), Timestamp::UNIX_EPOCH).plan;
        plan.delete.iter().map(|doomed| (doomed.id, doomed.twice)).collect::<Vec<_>>()
    };
    assert_eq!(doomed(vec![late()]), [], "the new owner takes it over");
    let unfinished = made(2, "random-2", &mark(&new));
    assert_eq!(doomed(vec![late(), unfinished]), [], "the new owner has not finished its own");
    let bare = Listed { targets: Some(Vec::new()), ..made(2, &mark(&new), "app") };
    assert_eq!(doomed(vec![late(), bare]), [], "its targets are not there yet");
    assert_eq!(doomed(vec![late(), made(2, &mark(&new), "app")]), [(ResourceId(1), true)]);
}

/// A resource that waits for the next owner of its host is noted, by the pass of its Ingress and by the sweep.
#[test]
fn a_resource_that_is_left_for_the_next_owner_is_noted() {
    let host = Fqdn::parse("app.example.com").unwrap();
    let [old, new] = ["old", "new"].map(|name| Arc::new(ObjectId::new::<Ingress>(Some("one"), name)));
    let mark = format!("{}-0123456789ab", api::ingress_mark("home", &old));
    let there = Listed { host: Some(host.clone()), ..listed(1, &mark, "app") };
    let (exposures, policy) = (Exposures::default(), Policy::default());
    for (takers, expected) in
        [(BTreeMap::from([(host.clone(), new)]), (vec![host.clone()], 0)), (BTreeMap::new(), (Vec::new(), 1))]
    {
        let view = ApiView { takers, ..api_view(Some("d"), vec![there.clone()]) };
        let input = api::Input::new(&old, &exposures, None, &view, &policy);
        let passed = api::plan(&input, &Memory::default(), Timestamp::UNIX_EPOCH).plan;
        assert_eq!((passed.left, passed.delete.len()), expected);
        let swept = api::sweep(&view, &policy, &mut Memory::default(), Timestamp::UNIX_EPOCH);
        assert_eq!((swept.left, swept.delete.len()), expected);
    }
}

#[test]
fn a_site_is_found_by_identifier_or_only_name_and_never_guessed_among_several() {
    let one = |id, nice_id: &str, name: &str, online| Site {
        id: SiteId(id),
        nice_id: nice_id.into(),
        name: name.into(),
        kind: SiteKind::Newt,
        online,
    };
    let sites = [one(1, "home", "cluster", None), one(2, "cluster", "x", Some(false)), one(3, "y", "x", Some(true))];
    assert_eq!(site(&sites, "cluster", true), FoundSite::One(SiteId(2), false), "the identifier comes first");
    assert_eq!(site(&sites[..1], "cluster", true), FoundSite::One(SiteId(1), true));
    assert_eq!(site(&sites, "x", true), FoundSite::Several("cluster, y".to_owned()), "two of the name");
    assert_eq!(site(&sites, "typo", true), FoundSite::None("cluster, home, y".to_owned()));
    assert_eq!(
        site(&sites[..1], "default", false),
        FoundSite::One(SiteId(1), true),
        "the only one, when none was named"
    );
    assert!(matches!(site(&sites[..1], "typo", true), FoundSite::None(_)));
}

#[test]
fn the_shape_is_read_from_the_declared_fields() {
    let schema = |spec: serde_json::Value| json!({"properties": {"spec": {"properties": spec}}});
    let single = schema(json!({
        "name": {}, "target": {"properties": {"ip": {}}}, "tunnelRef": {"properties": {"name": {}}},
        "httpConfig": {"properties": {"subdomain": {"minLength": 1}, "domainId": {}}},
    }));
    assert_eq!(Shape::read(&single), Ok(Shape::SINGLE));
    let multi = schema(json!({
        "name": {}, "targets": {"items": {"properties": {"path": {}, "pathMatchType": {}, "priority": {}}}},
        "tunnelRef": {"properties": {"name": {}, "namespace": {}}},
        "httpConfig": {"properties": {"subdomain": {"minLength": 1}, "domainId": {}, "sso": {}, "blockAccess": {}}},
    }));
    assert_eq!(Shape::read(&multi), Ok(Shape::MULTI));
    assert!(Shape::read(&schema(json!({"name": {}}))).is_err());
    let apex = schema(json!({"target": {}, "httpConfig": {"properties": {"subdomain": {}}}}));
    assert!(Shape::read(&apex).unwrap().apex);
}

#[tokio::test]
async fn hosts_beyond_the_most_are_left_out_with_a_warning() {
    let made = |hosts: usize| {
        let rules: Vec<_> = (0..hosts).map(|number| json!({"host": format!("h{number}.example.com")})).collect();
        let backend = json!({"service": {"name": "app", "port": {"number": 80}}});
        specified("prod", "app", &json!({"ingressClassName": "pangolin", "rules": rules, "defaultBackend": backend})).1
    };
    let all = made(MOST_HOSTS);
    assert_eq!((all.list.len(), all.refusals.len()), (MOST_HOSTS, 0));
    let most = made(MOST_HOSTS + 2);
    assert_eq!(most.list.len(), MOST_HOSTS);
    let [refused] = &most.refusals[..] else { panic!("{:?}", most.refusals) };
    let refusal = &refused.refusal;
    assert_eq!(refusal.reason, Reason::MultipleHosts);
    assert!(refusal.message.contains("2 are left out"), "{}", refusal.message);
}

fn child(uid: &str, host: &str, state: ChildState) -> ChildFacts {
    ChildFacts {
        uid: uid.to_owned(),
        host: Some(host.to_owned()),
        domain: None,
        resource_id: None,
        state,
        deleting: false,
        leaving: None,
        generation: 1,
        class: None,
        labels: Vec::new(),
    }
}

/// The exposures of an Ingress `name` in `namespace`: these hosts, with the Service `app`.
fn exposures_of(namespace: &str, name: &str, hosts: &[&str]) -> (Identity, Exposures) {
    let paths = json!({"paths": [{"path": "/", "pathType": "Prefix",
        "backend": {"service": {"name": "app", "port": {"number": 80}}}}]});
    let rules: Vec<_> = hosts.iter().map(|host| json!({"host": host, "http": paths})).collect();
    specified(namespace, name, &json!({"ingressClassName": "pangolin", "rules": rules}))
}

/// The exposures of an Ingress with this specification, beside a Service `app` with the port 80.
fn specified(namespace: &str, name: &str, spec: &Value) -> (Identity, Exposures) {
    let metadata = json!({"name": name, "namespace": namespace, "uid": "u"});
    let ingress = json!({"metadata": metadata, "spec": spec});
    made(&ingress, &json!({"ports": [{"port": 80}]}), &Policy::default())
}

/// The exposures of an Ingress, beside a Service `app` with this specification.
fn made(ingress: &Value, service: &Value, policy: &Policy) -> (Identity, Exposures) {
    let wanted = wanted(ingress, service, policy);
    let ground = Ground { domains: None, apex: true, paths: true, owner: "" };
    (wanted.claimant.identity.clone(), exposures(&wanted, ground, policy))
}

fn wanted(ingress: &Value, service: &Value, policy: &Policy) -> Wanted {
    let index = PangolinIndex::new(Arc::new(policy.clone()), Queue::new(), None);
    let metadata = json!({"name": "app", "namespace": ingress["metadata"]["namespace"]});
    let ingress: Ingress = serde_json::from_value(ingress.clone()).unwrap();
    let service: Service = serde_json::from_value(json!({"metadata": metadata, "spec": service})).unwrap();
    index.applied(&ingress);
    index.applied(&service);
    let claimant = index.claimant(&Arc::new(ObjectId::of(&ingress))).unwrap();
    Wanted {
        taken: index.taken(&claimant),
        class: None,
        owned: index.owned(&claimant.identity.id),
        services: index.services(&claimant),
        reference: "default".to_owned(),
        claimant,
    }
}

/// C35 and C36: the domain of the cluster, and the scheme: of the annotation, else of the port, else of the settings.
#[tokio::test]
async fn c36_a_backend_has_the_scheme_of_annotation_port_or_settings() {
    use signpost_exposure::BackendScheme::{H2c, Http, Https};
    let policy = |scheme| Policy { scheme, cluster_domain: "k8s.example".to_owned(), ..Policy::default() };
    for (annotation, protocol, scheme, expected) in [
        (None, None, Http, Http),
        (None, None, Https, Https),
        (None, Some("https"), Http, Https),
        (None, Some("kubernetes.io/wss"), Http, Https),
        (None, Some("kubernetes.io/h2c"), Http, H2c),
        (None, Some("example.com/own"), Https, Https),
        (Some("http"), Some("https"), Https, Http),
        (Some("h2c"), None, Http, H2c),
    ] {
        let annotations: Value =
            annotation.map_or(json!({}), |word| json!({"pangolin.ingress.k8s.io/backend-scheme": word}));
        let backend = json!({"service": {"name": "app", "port": {"number": 80}}});
        let ingress = json!({
            "metadata": {"name": "app", "namespace": "prod", "uid": "u", "annotations": annotations},
            "spec": {"ingressClassName": "pangolin", "rules": [{"host": "app.example.com"}], "defaultBackend": backend},
        });
        let service = json!({"ports": [{"port": 80, "appProtocol": protocol}]});
        let (_, found) = made(&ingress, &service, &policy(scheme));
        let [exposure] = &found.list[..] else { panic!("{found:?}") };
        let address = &exposure.routes[0].backend;
        assert_eq!(
            (address.host.as_str(), address.scheme),
            ("app.prod.svc.k8s.example", expected),
            "{annotation:?} {protocol:?}"
        );
    }
}

/// A pass of crd mode over an Ingress with these children.
fn judged(app: &(Identity, Exposures), children: &BTreeMap<String, ChildFacts>, memory: &mut Memory) -> crd::Judged {
    judged_beside(&[], app, children, memory)
}

/// The same, where older Ingresses have children for these hosts.
fn judged_beside(
    handed_over: &[String],
    (identity, exposures): &(Identity, Exposures),
    children: &BTreeMap<String, ChildFacts>,
    memory: &mut Memory,
) -> crd::Judged {
    let (options, policy) = (Options::default(), Policy { crd_paths: true, ..Policy::default() });
    let input = crd::Input {
        id: &identity.id,
        identity: Some(identity),
        policy: &policy,
        exposures,
        shape: Some(Shape::MULTI),
        tunnel: Some(("edge", "default")),
        options: Some(&options),
        class: None,
        children,
        handed_over,
        now: Timestamp::UNIX_EPOCH,
    };
    crd::plan(&input, memory)
}

/// pangolin-operator may be done before the first pass that sees the new child.
#[tokio::test]
async fn a_child_that_is_ready_at_its_first_pass_has_a_ready_event() {
    let app = exposures_of("prod", "app", &["app.example.com"]);
    let mut memory = Memory::default();
    let none = judged(&app, &BTreeMap::new(), &mut memory);
    let [(name, ..)] = &none.plan.apply[..] else { panic!("{:?}", none.plan) };
    let ready = ChildState::Ready { host: Some("app.example.com".to_owned()), targets: true };
    let children = BTreeMap::from([(name.clone(), child("u", "app.example.com", ready))]);
    let reasons = |memory: &mut Memory| {
        judged(&app, &children, memory).notes.into_iter().map(|note| note.reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&mut memory), ["Ready"]);
    assert_eq!(reasons(&mut memory), [""; 0], "once");
    assert_eq!(reasons(&mut Memory::default()), [""; 0], "what a start finds is not a change");
}

/// Names of pangolin-ingress-controller that are not ours: of the host that annotations override, without `--`, and of a long namespace.
#[tokio::test]
async fn a_child_that_has_the_wanted_host_keeps_its_name() {
    let long = "n".repeat(55);
    for (namespace, ingress, made) in [
        ("prod", "app", "pic-prod-app-0badcafe"),
        ("prod", "my--app", "pic-prod-my-app-0badcafe"),
        (&long, "app", "pic-0badcafe"),
    ] {
        let app = exposures_of(namespace, ingress, &["app.example.com"]);
        let ready = ChildState::Ready { host: Some("app.example.com".to_owned()), targets: true };
        let mut children = BTreeMap::from([(made.to_owned(), child("u", "app.example.com", ready.clone()))]);
        let names = |children: &BTreeMap<String, ChildFacts>| {
            let plan = judged(&app, children, &mut Memory::default()).plan;
            let apply: Vec<String> = plan.apply.into_iter().map(|(name, ..)| name).collect();
            (apply, plan.delete.into_iter().map(|doomed| doomed.name).collect::<Vec<_>>())
        };
        let usual = names(&BTreeMap::new()).0.remove(0);
        assert_ne!(usual, made);
        assert_eq!(names(&children), (vec![made.to_owned()], vec![]), "{namespace}/{ingress}");
        children.insert(usual.clone(), child("u", "app.example.com", ready.clone()));
        assert_eq!(names(&children), (vec![usual.clone()], vec![made.to_owned()]), "of two, the usual name");
        // The usual name is that of another host, which pangolin-operator does not change.
        let other = BTreeMap::from([(usual.clone(), child("u", "old.example.com", ready))]);
        let (apply, delete) = names(&other);
        assert!(apply.len() == 1 && apply[0] != usual && delete == [usual], "{apply:?} {delete:?}");
    }
}

/// The API server refuses an address as a host; an older one may have stored it.
#[tokio::test]
async fn r022_an_address_is_a_warning_and_its_neighbour_is_exposed() {
    let (_, found) = exposures_of("prod", "app", &["192.168.1.1", "2001:db8::1", "good.example.com"]);
    let listed: Vec<&str> = found.list.iter().map(|one| one.split.host.undotted()).collect();
    assert_eq!(listed, ["good.example.com"]);
    let notes: Vec<_> = found.refusals.iter().map(|one| (one.refusal.reason, one.refusal.message.as_str())).collect();
    let expected = [
        "192.168.1.1 is an address, not a host name; use a name",
        "2001:db8::1 is an address, not a host name; use a name",
    ];
    assert_eq!(notes, expected.map(|note| (Reason::InvalidHost, note)));
}

/// The reasons of all refusals.
fn reasons(refusals: &[HostRefusal]) -> Vec<Reason> {
    refusals.iter().map(|refused| refused.refusal.reason).collect()
}

#[tokio::test]
async fn a_backend_or_suffix_that_cannot_be_used_is_refused_with_its_reason() {
    let to = |backend: Value| {
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        let rules = json!([{"host": "app.example.com", "http": {"paths": paths}}]);
        specified("prod", "app", &json!({"ingressClassName": "pangolin", "rules": rules})).1
    };
    let absent = to(json!({"service": {"name": "app", "port": {"number": 81}}}));
    assert_eq!(reasons(&absent.refusals), [Reason::BackendPortNotFound]);
    assert!(absent.refusals[0].refusal.message.contains("has no TCP port 81;"), "{absent:?}");
    assert!(absent.waiting.contains("app.example.com"), "what exists stays");
    let other = to(json!({"resource": {"kind": "Bucket", "name": "files"}}));
    assert_eq!(reasons(&other.refusals), [Reason::PathNotSupported], "nothing is left of the host");
    let paths = json!([
        {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "app", "port": {"number": 80}}}},
        {"path": "/files", "pathType": "Prefix", "backend": {"resource": {"kind": "Bucket", "name": "files"}}},
    ]);
    let rules = json!([{"host": "app.example.com", "http": {"paths": paths}}]);
    let beside = specified("prod", "app", &json!({"ingressClassName": "pangolin", "rules": rules})).1;
    assert_eq!((beside.list.len(), reasons(&beside.refusals)), (1, vec![Reason::BackendNotSupported]));
    assert!(beside.refusals[0].refusal.message.starts_with("app.example.com/files: the backend is Bucket files"));
    // The organisation may be unknown only for a moment.
    let unlisted = exposures_of("prod", "app", &["app.internal"]).1;
    assert_eq!(reasons(&unlisted.refusals), [Reason::InvalidHost]);
    assert!(unlisted.waiting.contains("app.internal"));
}

#[tokio::test]
async fn a_prefix_is_written_as_an_expression_where_paths_are_asked_for() {
    let paths = json!([{"path": "/api", "pathType": "Prefix", "backend": {"service": {"name": "app", "port": {"number": 80}}}}]);
    let rules = json!([{"host": "app.example.com", "http": {"paths": paths}}]);
    let app = specified("prod", "app", &json!({"ingressClassName": "pangolin", "rules": rules}));
    let plan = judged(&app, &BTreeMap::new(), &mut Memory::default()).plan;
    let target = &plan.apply[0].2["spec"]["targets"][0];
    assert_eq!((&target["path"], &target["pathMatchType"]), (&json!("^/api(/|$)"), &json!("regex")));
}

/// The endpoint of a child that others deleted is still known when its host is not wanted any more.
#[tokio::test]
async fn a_leftover_of_a_child_that_others_deleted_is_reported() {
    let app = exposures_of("prod", "app", &["app.example.com"]);
    let mut memory = Memory::default();
    let (name, ..) = judged(&app, &BTreeMap::new(), &mut memory).plan.apply.remove(0);
    let ready = ChildState::Ready { host: Some("app.example.com".to_owned()), targets: true };
    let made = ChildFacts { resource_id: Some("7".to_owned()), ..child("u", "app.example.com", ready) };
    judged(&app, &BTreeMap::from([(name, made)]), &mut memory);
    assert_eq!(judged(&app, &BTreeMap::new(), &mut memory).notes, [], "it is created again");
    let nothing = (app.0.clone(), Exposures::default());
    let notes = judged(&nothing, &BTreeMap::new(), &mut memory).notes;
    assert!(notes.len() == 1 && notes[0].reason == "StillExposed" && notes[0].text.contains("resource 7"), "{notes:?}");
    assert_eq!(judged(&nothing, &BTreeMap::new(), &mut memory).notes, [], "once");
}

/// The endpoint of a child whose host an older Ingress took over is reported with the deletion of the child, and not again.
#[tokio::test]
async fn a_leftover_of_a_host_that_was_handed_over_is_reported_once() {
    let hosts = ["app.example.com".to_owned()];
    let app = exposures_of("prod", "app", &["app.example.com"]);
    let mut memory = Memory::default();
    let (name, ..) = judged(&app, &BTreeMap::new(), &mut memory).plan.apply.remove(0);
    let ready = ChildState::Ready { host: Some("app.example.com".to_owned()), targets: true };
    let made = ChildFacts { resource_id: Some("7".to_owned()), ..child("u", "app.example.com", ready) };
    let children = BTreeMap::from([(name.clone(), made.clone())]);
    judged(&app, &children, &mut memory);
    let lost = (app.0.clone(), Exposures { lost: hosts.clone().into(), ..Exposures::default() });
    let kept = judged(&lost, &children, &mut memory);
    assert!(kept.plan.delete.is_empty() && kept.notes.is_empty(), "it stays until the older Ingress has the host");
    let doomed = judged_beside(&hosts, &lost, &children, &mut memory).plan.delete.remove(0);
    let note = doomed.leftover.unwrap();
    assert!(doomed.handed_over && note.reason == "StillExposed" && note.text.contains("resource 7"), "{note:?}");
    // The deletion is asked for, and takes a while.
    memory.left.insert(name.clone());
    let since = Timestamp::from_second(-60).unwrap();
    let leaving = BTreeMap::from([(name, ChildFacts { deleting: true, leaving: Some(since), ..made })]);
    let waits = judged_beside(&hosts, &lost, &leaving, &mut memory);
    assert!(waits.notes.is_empty() && waits.refusals.is_empty(), "{:?} {:?}", waits.notes, waits.refusals);
    assert_eq!(judged_beside(&hosts, &lost, &BTreeMap::new(), &mut memory).notes, []);
    let nothing = (app.0.clone(), Exposures::default());
    assert_eq!(judged(&nothing, &BTreeMap::new(), &mut memory).notes, [], "once");
}

/// A deletion may still be called off after it was planned.
#[tokio::test]
async fn a_leftover_of_a_planned_deletion_is_reported_with_the_deletion() {
    let app = exposures_of("prod", "app", &["app.example.com"]);
    let ready = ChildState::Ready { host: Some("app.example.com".to_owned()), targets: true };
    let made = ChildFacts { resource_id: Some("7".to_owned()), ..child("u", "app.example.com", ready) };
    let children = BTreeMap::from([("pic".to_owned(), made)]);
    let nothing = (app.0.clone(), Exposures::default());
    let mut memory = Memory::default();
    for _ in 0..2 {
        let mut planned = judged(&nothing, &children, &mut memory);
        assert_eq!((planned.notes, memory.left.len()), (vec![], 0));
        let note = planned.plan.delete.remove(0).leftover.unwrap();
        assert!(note.reason == "StillExposed" && note.text.contains("resource 7"), "{note:?}");
    }
    // As after a deletion that the watch has not delivered yet, and then has.
    memory.left.insert("pic".to_owned());
    assert_eq!(judged(&nothing, &children, &mut memory).plan.delete.remove(0).leftover, None, "once");
    assert_eq!(judged(&nothing, &BTreeMap::new(), &mut memory).notes, [], "once");
}

/// What Pangolin has, with the site `cluster` and the domain `example.com`.
fn api_view(domain_id: Option<&str>, resources: Vec<Listed>) -> ApiView {
    let name = Fqdn::parse("example.com").unwrap();
    let domain =
        BaseDomain { name, id: domain_id.map(str::to_owned), shape: signpost_exposure::Shape::Tree, verified: true };
    ApiView {
        owner: "home".to_owned(),
        site: FoundSite::One(SiteId(1), true),
        domains: [domain].into(),
        resources: resources.into(),
        marks: Vec::new(),
        owned_hosts: BTreeMap::new(),
        takers: BTreeMap::new(),
    }
}

/// The plan for `app.example.com` in the namespace `prod`.
fn planned(view: View, policy: Policy, change: impl FnOnce(&mut Observed)) -> Plan {
    let backend = json!({"service": {"name": "app", "port": {"number": 80}}});
    let ingress = json!({
        "metadata": {"name": "app", "namespace": "prod", "uid": "u"},
        "spec": {"ingressClassName": "pangolin", "rules": [{"host": "app.example.com"}], "defaultBackend": backend},
    });
    let wanted = wanted(&ingress, &json!({"ports": [{"port": 80}]}), &policy);
    let identity = wanted.claimant.identity.clone();
    let mut observed = Observed {
        key: Key::Ingress(identity.id.clone()),
        policy: Arc::new(policy),
        full: false,
        wish: Wish::Ingress(Box::new(wanted)),
        present: Some(identity),
        view,
        memory: Memory::default(),
        doubt: None,
    };
    change(&mut observed);
    plan(observed, Timestamp::UNIX_EPOCH)
}

#[tokio::test]
async fn a_site_that_cannot_be_used_or_is_not_connected_has_its_reason() {
    let of = |site: FoundSite| {
        let view = View::Api(Box::new(ApiView { site, ..api_view(Some("d"), Vec::new()) }));
        planned(view, Policy::default(), |_| {})
    };
    let several = of(FoundSite::Several("one, two".to_owned()));
    assert_eq!((reasons(&several.refusals), several.blocked), (vec![Reason::TunnelAmbiguous], true));
    assert!(several.refusals[0].refusal.message.ends_with("use the identifier of one of them: one, two"));
    let offline = of(FoundSite::One(SiteId(1), false));
    assert_eq!((offline.refusals.len(), offline.notes.len()), (0, 1), "it is made, and answers later");
    assert_eq!((offline.notes[0].warning, offline.notes[0].reason), (false, "TunnelNotReady"));
    let Delivery::Api(delivery) = offline.delivery else { panic!("no plan for Pangolin") };
    assert_eq!(delivery.ensure.len(), 1);
}

#[tokio::test]
async fn a_shape_or_tunnel_that_is_not_known_changes_nothing() {
    let crd = |shape, tunnel| View::Crd { shape, tunnel, children: BTreeMap::new(), handed_over: Vec::new() };
    let unknown = planned(crd(Err("no schema".to_owned()), FoundTunnel::None), Policy::default(), |_| {});
    assert_eq!((reasons(&unknown.refusals), unknown.again), (vec![Reason::Unsupported], Some(RetryClass::Transient)));
    assert!(unknown.refusals[0].refusal.message.ends_with("is not known: no schema"));
    let allowed = TunnelAllowance::parse("default=other").unwrap();
    let not_allowed =
        planned(crd(Ok(Shape::MULTI), FoundTunnel::None), Policy { allowed, ..Policy::default() }, |_| {});
    assert_eq!(reasons(&not_allowed.refusals), [Reason::TunnelNotAllowed]);
    let named = Policy {
        default_tunnel: Some("infra/edge".to_owned()),
        namespaces: vec!["prod".to_owned()],
        ..Policy::default()
    };
    let unread = planned(crd(Ok(Shape::MULTI), FoundTunnel::None), named, |observed| {
        let Wish::Ingress(wanted) = &mut observed.wish else { panic!("an Ingress") };
        wanted.reference = "infra/edge".to_owned();
    });
    assert_eq!(reasons(&unread.refusals), [Reason::TunnelNotFound]);
    assert!(unread.refusals[0].refusal.message.contains("may not read the tunnels of infra"), "{:?}", unread.refusals);
}

/// What cannot be read is left as it is, and is not judged.
#[tokio::test]
async fn an_ingress_that_cannot_be_read_changes_nothing() {
    let view = View::Api(Box::new(api_view(Some("d"), Vec::new())));
    let plan = planned(view, Policy::default(), |observed| observed.wish = Wish::Unreadable);
    assert!(matches!(plan.delivery, Delivery::Nothing) && plan.managed && !plan.judged);
}

#[tokio::test]
async fn a_resource_that_cannot_be_made_is_refused_and_what_exists_stays() {
    let host = Fqdn::parse("app.example.com").unwrap();
    let id = Arc::new(ObjectId::new::<Ingress>(Some("prod"), "app"));
    let mark = format!("{}-0123456789ab", api::ingress_mark("home", &id));
    let there = || Listed { host: Some(host.clone()), ..listed(1, &mark, "app") };
    let nameless = planned(View::Api(Box::new(api_view(None, vec![there()]))), Policy::default(), |_| {});
    assert_eq!((reasons(&nameless.refusals), nameless.again), (vec![Reason::DomainNotFound], Some(SOON)));
    let Delivery::Api(delivery) = nameless.delivery else { panic!("no plan for Pangolin") };
    assert!(delivery.ensure.is_empty() && delivery.delete.is_empty(), "{delivery:?}");
    let other = Arc::new(ObjectId::new::<Ingress>(Some("prod"), "other"));
    let view = ApiView { owned_hosts: [(host.clone(), other)].into(), ..api_view(Some("d"), Vec::new()) };
    let owned = planned(View::Api(Box::new(view)), Policy::default(), |_| {});
    assert_eq!((reasons(&owned.refusals), owned.again), (vec![Reason::HostConflict], Some(SOON)));
    assert!(owned.refusals[0].refusal.message.contains("already exposed by the Ingress prod/other"));
}

/// A host that an older Ingress has taken over is that one's: it is not reported when the younger one is deleted during an outage.
#[tokio::test]
async fn a_host_that_was_handed_over_is_not_reported_as_left() {
    let host = Fqdn::parse("old.example.com").unwrap();
    let notes_of = |name: &str| {
        let owner = Arc::new(ObjectId::new::<Ingress>(Some("prod"), name));
        let mark = format!("{}-0123456789ab", api::ingress_mark("home", &owner));
        let new = NewResource { name: "old".to_owned(), domain: DomainId("d".to_owned()), host: host.clone() };
        let resource = Resource { nice_id: mark.clone(), ..Resource::created(ResourceId(1), &new) };
        let there = Listed { host: Some(host.clone()), ..listed(1, &mark, "old") };
        let view = View::Api(Box::new(api_view(Some("d"), vec![there])));
        let passed = planned(view, Policy::default(), |observed| {
            observed.memory.known.insert(ResourceId(1), (resource, Vec::new()));
        });
        let deleted = planned(View::Down(PangolinError::Timeout), Policy::default(), |observed| {
            (observed.wish, observed.present, observed.memory) = (Wish::Nothing, None, passed.memory);
        });
        deleted.notes.into_iter().map(|note| note.reason).collect::<Vec<_>>()
    };
    assert_eq!(notes_of("older"), [""; 0]);
    assert_eq!(notes_of("app"), ["StillExposed"], "its own is reported");
}

/// Many leftovers at once wait for a second sweep that finds the same, which is reported once.
#[tokio::test]
async fn a_large_sweep_waits_for_a_second_one_and_is_reported_once() {
    let leftovers =
        || (0..12).map(|number| listed(number, &format!("sp-home-{number:012x}-0123456789ab"), "app")).collect();
    let mut memory = Memory::default();
    let mut at = |second: i64| {
        let observed = Observed {
            key: Key::Sweep,
            policy: Arc::new(Policy::default()),
            full: true,
            wish: Wish::Nothing,
            present: None,
            view: View::Api(Box::new(api_view(Some("d"), leftovers()))),
            memory: std::mem::take(&mut memory),
            doubt: None,
        };
        let swept = plan(observed, Timestamp::from_second(second).unwrap());
        memory = swept.memory;
        let Delivery::Api(delivery) = swept.delivery else { panic!("no plan for Pangolin") };
        (swept.notes.len(), delivery.paused, delivery.delete.len())
    };
    assert_eq!(at(0), (1, 12, 0));
    assert_eq!(at(5), (0, 12, 0), "too soon, and reported already");
    assert_eq!(at(60), (0, 0, 12));
}
