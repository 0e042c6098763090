//! Decisions as plain data: what is selected, published, kept and withdrawn. Those about gateways are in `target_tests`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use signpost_apis::router::{
    ClusterIdentitySpec, DNSConfigurationSpec, DNSPolicy, DNSPolicySpec, ExternalDNSController, PolicyMode,
    ServiceRoute, ServiceRouteSpec,
};
use signpost_engine::{Finalizers, Identity, ObjectId, Proof};

use crate::{
    plan::{
        Absent, Base, Memory, Plan, cluster, gateway, names,
        policy::{self, Selection, select},
        route,
        singleton::{Place, Vacant},
    },
    report::status::{Decision, Detail, ObjectStatus},
    settings::RouterConfig,
};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(super) fn identity_of(id: ObjectId) -> Identity {
    Identity {
        id: Arc::new(id),
        uid: "uid".into(),
        version: 1,
        generation: 1,
        created: at(0),
        deleting_since: None,
        finalizers: Finalizers::default(),
    }
}

pub(super) fn base(regions: &[&str], adopts: &[&str]) -> Base {
    let controller =
        |region: &&str| ExternalDNSController { name: format!("dns-{region}"), region: (*region).to_owned() };
    Base {
        identity: Ok(Arc::new(ClusterIdentitySpec {
            region: "weu".into(),
            cluster: "aks01".into(),
            domain: "example.com".into(),
            environment_letter: "p".into(),
            adopts_regions: adopts.iter().map(|region| (*region).to_owned()).collect(),
        })),
        configuration: Ok(Arc::new(DNSConfigurationSpec {
            external_dns_controllers: regions.iter().map(controller).collect(),
        })),
        settings: Arc::new(RouterConfig::default()),
    }
}

fn policy(mode: PolicyMode, region: &str, cluster: &str) -> DNSPolicySpec {
    DNSPolicySpec { mode, source_region: Some(region.to_owned()), source_cluster: Some(cluster.to_owned()) }
}

#[test]
fn a_policy_selects_by_mode_region_and_cluster() {
    let names = |selection: Selection| match selection {
        Selection::Active(controllers) => controllers.into_iter().map(|c| c.name).collect::<Vec<_>>().join(" "),
        Selection::Inactive(_) => "inactive".to_owned(),
        Selection::Unknown(refusal) => refusal.reason.to_string(),
    };
    let here = base(&["neu", "weu", "frc"], &["frc", "weu", "frc"]);
    let cases = [
        (PolicyMode::Active, "", "", "dns-weu dns-frc"),
        (PolicyMode::Active, "weu", "aks01", "dns-weu dns-frc"),
        (PolicyMode::Active, "neu", "", "inactive"),
        (PolicyMode::RegionBound, "weu", "", "dns-neu dns-weu dns-frc"),
        (PolicyMode::RegionBound, "neu", "", "inactive"),
        (PolicyMode::RegionBound, "weu", "aks02", "inactive"),
        (PolicyMode::RegionBound, "", "aks01", "dns-neu dns-weu dns-frc"),
    ];
    for (mode, region, cluster, selected) in cases {
        assert_eq!(names(select(&policy(mode, region, cluster), &here)), selected, "{mode:?} {region} {cluster}");
    }
    let nowhere = Base { configuration: Err("there is no DNSConfiguration".into()), ..here };
    assert_eq!(names(select(&policy(PolicyMode::Active, "neu", ""), &nowhere)), "DNSConfigurationNotAvailable");
}

fn route_view(base: Base, policy: Option<DNSPolicySpec>, children: &[&str]) -> route::View {
    let id = ObjectId::new::<ServiceRoute>(Some("app"), "api");
    let spec = ServiceRouteSpec {
        service_name: "api".into(),
        gateway_name: "gw".into(),
        gateway_namespace: None,
        environment: "prod".into(),
        application: "app".into(),
    };
    let host = base
        .identity
        .as_ref()
        .ok()
        .map(|identity| names::route_host(identity, &spec).map_err(|e| e.to_string().into()));
    let route = route::RouteView {
        identity: identity_of(id.clone()),
        spec: Arc::new(spec),
        host,
        holder: None,
        replaced: BTreeSet::new(),
        policy: policy.map(|policy| ("policy".to_owned(), Arc::new(policy))),
        no_policy: None,
        gateway: Arc::new(ObjectId::new::<signpost_apis::router::Gateway>(Some("infra"), "gw")),
        foreign_istio: None,
        postfix: Some("internal".to_owned()),
    };
    route::View {
        id: Arc::new(id),
        base,
        installed: true,
        route: Some(route),
        children: children.iter().map(|label| child(label)).collect(),
        begins_with: BTreeMap::new(),
        has_balancer: true,
        occupied: BTreeSet::new(),
        memory: Memory::default(),
    }
}

fn child(label: &str) -> route::ChildView {
    route::ChildView {
        name: format!("api-{label}"),
        controller: label.into(),
        stray: None,
        displaced: false,
        source: 0,
        former: None,
    }
}

/// The applied and the deleted objects, and the reason of Ready.
fn outcome(view: &route::View) -> (Vec<String>, Vec<String>, &'static str) {
    let plan = route::plan(view, at(0));
    let applied = plan.apply.iter().map(|(child, _)| child.id.name.clone()).collect();
    let deleted = plan.withdraw.iter().chain(&plan.delete).map(|child| child.id.name.clone()).collect();
    let reason = plan.decisions.iter().find_map(|decision| match decision {
        Decision::Object { verdict: ObjectStatus { conditions, .. }, .. } => Some(conditions[0].reason.as_str()),
        _ => None,
    });
    (applied, deleted, reason.unwrap_or("none"))
}

#[test]
fn only_a_decision_withdraws() {
    let active = || Some(DNSPolicySpec::default());
    let there = ["dns-old", "dns-weu"];
    let all = vec!["api-dns-old".to_owned(), "api-dns-weu".to_owned()];
    let (applied, deleted, reason) = outcome(&route_view(base(&["weu"], &[]), active(), &there));
    assert_eq!((applied, deleted, reason), (vec![all[1].clone()], vec![all[0].clone()], "ReconciliationSucceeded"));

    let inactive = Some(policy(PolicyMode::RegionBound, "neu", ""));
    assert_eq!(outcome(&route_view(base(&["weu"], &[]), inactive, &there)), (vec![], all.clone(), "DNSPolicyInactive"));
    let mut deleted = route_view(base(&["weu"], &[]), active(), &there);
    deleted.route = None;
    assert_eq!(outcome(&deleted), (vec![], all.clone(), "none"));

    let kept = |view: route::View, reason: &'static str| {
        assert_eq!(outcome(&view), (vec![], vec![], reason));
    };
    kept(route_view(base(&["weu"], &[]), None, &there), "DNSPolicyNotFound");
    kept(
        route_view(Base { configuration: Err("none".into()), ..base(&[], &[]) }, active(), &there),
        "DNSConfigurationNotAvailable",
    );
    kept(
        route_view(Base { identity: Err("none".into()), ..base(&["weu"], &[]) }, active(), &there),
        "ClusterIdentityNotAvailable",
    );
    let mut no_gateway = route_view(base(&["weu"], &[]), active(), &there);
    no_gateway.route.as_mut().unwrap().postfix = None;
    // A controller that was removed is a decision, whatever else is missing.
    assert_eq!(outcome(&no_gateway), (vec![], vec![all[0].clone()], "GatewayNotFound"));
    let mut not_installed = route_view(base(&["weu"], &[]), active(), &there);
    not_installed.installed = false;
    kept(not_installed, "KindNotInstalled");

    // Nothing has the region: what a removed controller had is withdrawn, what others have is kept.
    let (applied, deleted, reason) = outcome(&route_view(base(&["neu"], &[]), active(), &["dns-neu", "dns-old"]));
    assert_eq!((applied, deleted, reason), (vec![], vec![all[0].clone()], "NoControllers"));
}

#[test]
fn the_loser_of_a_host_withdraws_once_the_winner_is_published() {
    let winner = Arc::new(ObjectId::new::<ServiceRoute>(Some("other"), "older"));
    for (published, withdrawn) in [(false, vec![]), (true, vec!["api-dns-weu".to_owned()])] {
        let mut view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &["dns-weu"]);
        view.route.as_mut().unwrap().holder = Some((winner.clone(), published));
        assert_eq!(outcome(&view), (vec![], withdrawn, "HostConflict"));
    }
}

#[test]
fn a_blocked_route_withdraws_the_host_that_it_left_once_another_one_serves_it() {
    let mut view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &["dns-weu"]);
    view.route.as_mut().unwrap().postfix = None;
    view.children[0].stray = Some(7);
    assert_eq!(outcome(&view), (vec![], vec![], "GatewayNotFound"));
    let strays = route::plan(&view, at(0)).decisions.into_iter().find_map(|decision| match decision {
        Decision::Strays { hosts, .. } => Some(hosts),
        _ => None,
    });
    assert_eq!(strays, Some(BTreeSet::from([7])), "it is decided again when that host is published");
    view.children[0].displaced = true;
    assert_eq!(outcome(&view), (vec![], vec!["api-dns-weu".to_owned()], "GatewayNotFound"));
}

#[test]
fn a_route_points_at_the_published_name_until_the_new_one_is_published() {
    let former = signpost_dns::Fqdn::parse("old-weu-internal.example.com").unwrap();
    let mut view = route_view(base(&["weu", "frc"], &["frc"]), Some(DNSPolicySpec::default()), &["dns-weu", "dns-frc"]);
    view.children[0].former = Some(former);
    let plan = route::plan(&view, at(0));
    let targets = |name: &str| {
        let content = plan.apply.iter().find(|(child, _)| child.id.name == name).map(|(_, content)| content);
        content.unwrap()["spec"]["endpoints"][0]["targets"].clone()
    };
    assert_eq!(targets("api-dns-weu"), serde_json::json!(["old-weu-internal.example.com"]));
    assert_eq!(targets("api-dns-frc"), serde_json::json!(["aks01-weu-internal.example.com"]), "each for itself");
    let Decision::Object { verdict, .. } = &plan.decisions[0] else { panic!("it has a verdict") };
    let ready = &verdict.conditions[0];
    assert_eq!((verdict.phase, ready.status, ready.reason.as_str()), (Some("Pending"), false, "TargetNotPublished"));
    let names = ["old-weu-internal.example.com", "aks01-weu-internal.example.com"];
    assert!(names.iter().all(|name| ready.message.contains(name)), "{}", ready.message);
    assert!(
        matches!(&verdict.detail, Detail::Route { target: Some(target), .. } if target == names[0]),
        "{:?}",
        verdict.detail
    );
    assert!(matches!(&plan.decisions[1], Decision::Published { published: true, .. }), "others must know");
    // A name that is the host of the route by now would point at itself.
    let host = view.route.as_ref().unwrap().host.clone().unwrap().unwrap();
    view.children[0].former = Some(host);
    assert_eq!(outcome(&view).2, "ReconciliationSucceeded");
}

#[test]
fn a_new_controller_begins_with_the_name_that_the_others_keep() {
    let former = signpost_dns::Fqdn::parse("old-weu-internal.example.com").unwrap();
    let mut view = route_view(base(&["weu", "frc"], &["frc"]), Some(DNSPolicySpec::default()), &["dns-weu"]);
    view.children[0].former = Some(former.clone());
    view.begins_with = BTreeMap::from([("dns-frc".into(), former)]);
    let plan = route::plan(&view, at(0));
    let targets: Vec<String> =
        plan.apply.iter().map(|(_, content)| content["spec"]["endpoints"][0]["targets"].to_string()).collect();
    assert_eq!(targets, [r#"["old-weu-internal.example.com"]"#; 2]);
    // The one that waits is not selected any more: the region of the cluster has changed.
    view.children[0].controller = "dns-neu".into();
    let plan = route::plan(&view, at(0));
    assert_eq!(plan.apply[0].1["spec"]["endpoints"][0]["targets"][0], "aks01-weu-internal.example.com");
    assert_eq!(plan.apply[1].1["spec"]["endpoints"][0]["targets"][0], "aks01-weu-internal.example.com");
}

#[test]
fn a_route_waits_a_while_for_a_load_balancer_that_does_not_exist() {
    let (old, new) = ("old-weu-internal.example.com", "aks01-weu-internal.example.com");
    let mut view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &["dns-weu"]);
    view.children[0].former = Some(signpost_dns::Fqdn::parse(old).unwrap());
    let target = |plan: &Plan| plan.apply[0].1["spec"]["endpoints"][0]["targets"][0].clone();
    let waiting = route::plan(&view, at(0));
    assert_eq!((target(&waiting), waiting.again), (serde_json::json!(old), None), "the Service has no address yet");
    assert_eq!(waiting.memory, Memory::default());
    view.has_balancer = false;
    let absent = route::plan(&view, at(0));
    assert_eq!((target(&absent), absent.again), (serde_json::json!(old), Some(Duration::from_mins(1))));
    view.memory = absent.memory;
    let over = route::plan(&view, at(60));
    assert_eq!((target(&over), over.again), (serde_json::json!(new), None), "others publish the name");
    assert_eq!(outcome(&view).2, "TargetNotPublished", "at the time at which it began");
    // A write that failed does not begin the time again.
    view.memory = over.memory;
    assert_eq!(target(&route::plan(&view, at(61))), new);
    view.children[0].former = None;
    assert_eq!(route::plan(&view, at(62)).memory, Memory::default(), "it has moved");
}

#[test]
fn what_is_not_selected_any_more_does_not_wait_for_other_writes() {
    let view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &["dns-frc"]);
    let mut renamed = child("dns-weu");
    renamed.name = "former-name".to_owned();
    let view = route::View { children: view.children.into_iter().chain([renamed]).collect(), ..view };
    let plan = route::plan(&view, at(0));
    let names = |children: &[signpost_engine::Child]| children.iter().map(|it| it.id.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(&plan.withdraw), names(&plan.delete)), (vec!["api-dns-frc".into()], vec!["former-name".into()]));
}

#[test]
fn an_empty_selection_withdraws_what_was_selected_before_and_keeps_what_a_mistake_would_lose() {
    // The only controller is that of a region which is not adopted any more.
    let digest = |region: &str, target: &str| crate::index::facts::source_digest(region, target);
    for (source, withdrawn) in [
        (digest("neu", "aks01-weu-internal.example.com"), true),
        // The region of the cluster was another one.
        (digest("neu", "aks01-neu-internal.example.com"), false),
        // The region of the controller was another one.
        (digest("weu", "aks01-weu-internal.example.com"), false),
    ] {
        let mut view = route_view(base(&["neu"], &[]), Some(DNSPolicySpec::default()), &["dns-neu"]);
        view.children[0].source = source;
        let deleted = if withdrawn { vec!["api-dns-neu".to_owned()] } else { vec![] };
        assert_eq!(outcome(&view), (vec![], deleted, "NoControllers"));
        view.route.as_mut().unwrap().postfix = None;
        assert_eq!(outcome(&view), (vec![], vec![], "GatewayNotFound"), "the target is not known");
    }
}

#[test]
fn names_that_are_not_label_values_and_unusual_names_are_both_reported() {
    let configuration = DNSConfigurationSpec {
        external_dns_controllers: vec![ExternalDNSController { name: "dns".into(), region: "West Europe".into() }],
    };
    let id = ObjectId::new::<signpost_apis::router::DNSConfiguration>(None, "mine");
    let view = cluster::View {
        identities: Vec::new(),
        configurations: vec![(identity_of(id.clone()), Arc::new(configuration.clone()))],
        identity_place: Place::default(),
        configuration_place: place_of(&id),
        configuration: Ok(Arc::new(configuration)),
    };
    let Decision::Object { verdict, .. } = &cluster::plan(&view)[0] else { panic!("it has a verdict") };
    assert_eq!((verdict.phase, verdict.conditions[0].status), (None, true), "it works");
    let reasons: Vec<&str> = verdict.notices.iter().map(|notice| notice.reason.as_str()).collect();
    assert_eq!(reasons, ["LabelDiffers", "UnusualName"]);
    let message = &verdict.notices[0].message;
    assert!(message.contains(&format!("router.io/region={}", names::label_value("West Europe"))), "{message}");
}

#[test]
fn time_without_a_host_does_not_count_for_a_deleted_gateway() {
    let mut view = gateway::View {
        id: Arc::new(ObjectId::new::<signpost_apis::router::Gateway>(Some("infra"), "gw")),
        base: base(&["weu"], &[]),
        installed: true,
        may_delete: true,
        orphaned: true,
        gateway: None,
        hosts: Vec::new(),
        waiting: Vec::new(),
        left_out: 0,
        written: None,
        // Another Istio Gateway had one of its hosts.
        memory: Memory { absent_since: Some((Absent::Host, at(0))), ..Memory::default() },
    };
    let plan = gateway::plan(&view, at(100));
    assert_eq!((plan.withdraw.len(), plan.again), (0, Some(Duration::from_mins(1))));
    view.memory = plan.memory;
    assert_eq!(gateway::plan(&view, at(160)).withdraw.len(), 1);
}

#[test]
fn an_occupied_name_is_avoided() {
    let mut view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &[]);
    view.occupied.insert("api-dns-weu".to_owned());
    let (applied, _, _) = outcome(&view);
    assert!(applied[0].starts_with("api-dns-weu-") && applied.len() == 1, "{applied:?}");
}

/// The place of an object that is used.
fn place_of(id: &ObjectId) -> Place {
    Place { first: Some((Arc::new(id.clone()), Timestamp::UNIX_EPOCH)), ..Place::default() }
}

fn policy_view(name: &str) -> policy::PolicyView {
    let identity = identity_of(ObjectId::new::<DNSPolicy>(Some("app"), name));
    policy::PolicyView { identity, spec: Arc::default(), before: None }
}

#[test]
fn a_policy_that_cannot_be_evaluated_keeps_its_report() {
    let before = Some((true, vec!["dns-weu".to_owned()]));
    let decided = |base: Base| {
        let policies = vec![policy::PolicyView { before: before.clone(), ..policy_view("policy") }];
        let place = place_of(&policies[0].identity.id);
        let view = policy::View { namespace: "app".into(), base, policies, place };
        let Decision::Object { verdict, .. } = policy::plan(&view).remove(0) else { panic!("a policy has a verdict") };
        (verdict.conditions[0].reason.as_str(), verdict.detail)
    };
    let nowhere = Base { configuration: Err("there is no DNSConfiguration".into()), ..base(&["weu"], &[]) };
    assert_eq!(decided(nowhere), ("DNSConfigurationNotAvailable", Detail::Policy(before.clone())));
    let (reason, detail) = decided(base(&["weu"], &[]));
    assert_eq!((reason, detail), ("PolicyActive", Detail::Policy(before.clone())));
    let (_, detail) = decided(base(&["neu"], &[]));
    assert_eq!(detail, Detail::Policy(Some((true, Vec::new()))), "a decision changes it");
}

#[test]
fn an_older_object_that_cannot_be_read_does_not_lose_to_a_younger_one() {
    let mut view = route_view(base(&["weu"], &[]), None, &["dns-weu"]);
    view.route.as_mut().unwrap().no_policy = Some("DNSPolicy older cannot be read, so none is used".to_owned());
    assert_eq!(outcome(&view), (vec![], vec![], "DNSPolicyNotFound"), "nothing is withdrawn");
    let younger = policy_view("younger");
    let view = policy::View {
        namespace: "app".into(),
        base: base(&["weu"], &[]),
        place: Place { unreadable: Some("older".to_owned()), ..place_of(&younger.identity.id) },
        policies: vec![younger],
    };
    let Decision::Object { verdict, .. } = &policy::plan(&view)[0] else { panic!("a policy has a verdict") };
    assert_eq!(verdict.conditions[0].reason.as_str(), "SingletonViolation");
    assert!(
        verdict.conditions[0].message.contains("DNSPolicy older cannot be read, so none is used"),
        "{}",
        verdict.conditions[0].message
    );
}

#[test]
fn a_child_of_a_route_is_deleted_by_its_label_or_its_owner() {
    let mut view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &["dns-old"]);
    let by_owner = |view: &route::View| {
        let proof = route::plan(view, at(0)).withdraw[0].proof.clone();
        matches!(proof, Proof::Any(proofs) if proofs.iter().any(|proof| matches!(proof, Proof::Owner(_))))
    };
    assert!(by_owner(&view));
    view.route = None;
    assert!(!by_owner(&view), "the owner is deleted");
}

#[test]
fn a_place_names_the_object_that_is_used_or_what_it_waits_for() {
    let id = |name: &str| ObjectId::new::<DNSPolicy>(Some("app"), name);
    let of = |name: &str, second: i64| Identity { created: at(second), ..identity_of(id(name)) };
    let place = |second: i64| Place { first: Some((Arc::new(id("used")), at(second))), ..Place::default() };
    let message = |place: &Place, name: &str| place.surplus("DNSPolicy", "", &of(name, 5)).unwrap_or_default();
    assert_eq!(message(&place(0), "used"), "");
    assert!(message(&place(0), "other").starts_with("DNSPolicy used is older and is used; there can be only one"));
    // It was replaced, and is the younger one.
    assert!(message(&place(9), "other").starts_with("DNSPolicy used is used; there can be only one"));
    assert_eq!((place(0).unknown("DNSPolicy"), Place::default().unknown("DNSPolicy").is_some()), (None, true));
    let vacant = Some(Vacant { after: Duration::from_mins(1), left: Duration::from_secs(9) });
    let vacant = Place { vacant, ..place(0) };
    assert!(message(&vacant, "used").contains("was deleted. This one is used 60s after that"));
    assert!(message(&vacant, "other").starts_with("DNSPolicy used is the next one to be used"));
    assert!(vacant.unknown("DNSPolicy").unwrap().contains("DNSPolicy used is used 60s after that"));
}
