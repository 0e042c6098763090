use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use signpost_apis::ingress::Ingress;
use signpost_apis::service::Service;
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Index as _, ObjectId, Queue};
use signpost_exposure::{BaseDomain, Options};
use signpost_planning::Reason;
use signpost_provider_pangolin::{Listed, ResourceId, Site, SiteId, SiteKind};

use super::api::{self, is_mark, mark_of};
use super::crd::{self, Shape};
use super::exposure::{Exposures, Ground, exposures};
use super::{ApiView, FoundSite, Memory, Wanted, site};
use crate::index::{ChildFacts, ChildState, FoundTunnel, IngressId, MOST_HOSTS, PangolinIndex};
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
        let input = api::Input {
            id: &old,
            exposures: &exposures,
            options: None,
            site: Some(SiteId(1)),
            view: &view,
            applied: None,
            restored: false,
            full: false,
            settle: false,
            policy: &policy,
        };
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
    let index = PangolinIndex::new(Arc::new(Policy::default()), Queue::new(), None);
    let made = |hosts: usize| {
        let rules: Vec<_> = (0..hosts).map(|number| json!({"host": format!("h{number}.example.com")})).collect();
        let ingress: Ingress = serde_json::from_value(json!({
            "metadata": {"name": "app", "namespace": "prod", "uid": "u"},
            "spec": {"ingressClassName": "pangolin", "rules": rules,
                "defaultBackend": {"service": {"name": "app", "port": {"number": 80}}}},
        }))
        .unwrap();
        index.applied(&ingress);
        let claimant = index.claimant(&Arc::new(ObjectId::of(&ingress))).unwrap();
        let service: Service = serde_json::from_value(
            json!({"metadata": {"name": "app", "namespace": "prod"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .unwrap();
        index.applied(&service);
        let wanted = Wanted {
            taken: index.taken(&claimant),
            class: None,
            owned: index.owned(&claimant.identity.id),
            services: index.services(&claimant),
            reference: "default".to_owned(),
            claimant,
        };
        let ground = Ground { domains: None, apex: true, paths: true, owner: "" };
        exposures(&wanted, ground, &Policy::default())
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

/// The exposures of an Ingress `name` in `namespace`, with the Service `app`.
fn exposures_of(namespace: &str, name: &str, hosts: &[&str]) -> (Identity, Exposures) {
    let index = PangolinIndex::new(Arc::new(Policy::default()), Queue::new(), None);
    let paths = json!({"paths": [{"path": "/", "pathType": "Prefix",
        "backend": {"service": {"name": "app", "port": {"number": 80}}}}]});
    let rules: Vec<_> = hosts.iter().map(|host| json!({"host": host, "http": paths})).collect();
    let ingress: Ingress = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": "u"},
        "spec": {"ingressClassName": "pangolin", "rules": rules},
    }))
    .unwrap();
    let service: Service = serde_json::from_value(
        json!({"metadata": {"name": "app", "namespace": namespace}, "spec": {"ports": [{"port": 80}]}}),
    )
    .unwrap();
    index.applied(&ingress);
    index.applied(&service);
    let claimant = index.claimant(&Arc::new(ObjectId::of(&ingress))).unwrap();
    let wanted = Wanted {
        taken: index.taken(&claimant),
        class: None,
        owned: index.owned(&claimant.identity.id),
        services: index.services(&claimant),
        reference: "default".to_owned(),
        claimant,
    };
    let ground = Ground { domains: None, apex: true, paths: true, owner: "" };
    (wanted.claimant.identity.clone(), exposures(&wanted, ground, &Policy::default()))
}

/// A pass of crd mode over an Ingress with these children.
fn judged(
    (identity, exposures): &(Identity, Exposures),
    children: &BTreeMap<String, ChildFacts>,
    memory: &mut Memory,
) -> crd::Judged {
    let (options, policy) = (Options::default(), Policy::default());
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
        handed_over: &[],
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
            (apply, plan.delete.into_iter().map(|(name, ..)| name).collect::<Vec<_>>())
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
