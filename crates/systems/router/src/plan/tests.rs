//! Decisions as plain data: what is selected, published, kept and withdrawn.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use signpost_apis::{
    externaldns::DnsEndpoint,
    router::{
        ClusterIdentitySpec, DNSConfigurationSpec, DNSPolicy, DNSPolicySpec, ExternalDNSController, PolicyMode,
        ServiceRoute, ServiceRouteSpec,
    },
    service::Service,
};
use signpost_engine::{Finalizers, Identity, ObjectId, Proof};

use crate::{
    index::facts::{Class, Points, Target},
    plan::{
        Base, Memory, Plan, cluster, names,
        policy::{self, Selection, select},
        route, target,
    },
    report::status::{Decision, Detail, ObjectStatus},
    settings::RouterConfig,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn identity_of(id: ObjectId) -> Identity {
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

fn base(regions: &[&str], adopts: &[&str]) -> Base {
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
        unreadable_policy: None,
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
        occupied: BTreeSet::new(),
    }
}

fn child(label: &str) -> route::ChildView {
    route::ChildView {
        name: format!("api-{label}"),
        controller: label.into(),
        stray: None,
        displaced: false,
        source: 0,
    }
}

/// The applied and the deleted objects, and the reason of Ready.
fn outcome(view: &route::View) -> (Vec<String>, Vec<String>, &'static str) {
    let plan = route::plan(view);
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
    let strays = route::plan(&view).decisions.into_iter().find_map(|decision| match decision {
        Decision::Strays { hosts, .. } => Some(hosts),
        _ => None,
    });
    assert_eq!(strays, Some(BTreeSet::from([7])), "it is decided again when that host is published");
    view.children[0].displaced = true;
    assert_eq!(outcome(&view), (vec![], vec!["api-dns-weu".to_owned()], "GatewayNotFound"));
}

#[test]
fn what_is_not_selected_any_more_does_not_wait_for_other_writes() {
    let view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &["dns-frc"]);
    let mut renamed = child("dns-weu");
    renamed.name = "former-name".to_owned();
    let view = route::View { children: view.children.into_iter().chain([renamed]).collect(), ..view };
    let plan = route::plan(&view);
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
        configurations: vec![(identity_of(id), Arc::new(configuration.clone()))],
        unreadable_identity: None,
        unreadable_configuration: None,
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
fn a_postfix_that_is_not_one_makes_no_name() {
    let mut view = target_view(Some(addresses()), None);
    view.postfix = Some("a b".to_owned());
    view.target.postfix = names::label_value("a b").into();
    let plan = target::plan(&view, at(0));
    let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
    assert_eq!((verdict.reason.as_str(), verdict.host.as_deref(), plan.apply.len()), ("InvalidHost", None, 0));
}

#[test]
fn an_occupied_name_is_avoided() {
    let mut view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &[]);
    view.occupied.insert("api-dns-weu".to_owned());
    let (applied, _, _) = outcome(&view);
    assert!(applied[0].starts_with("api-dns-weu-") && applied.len() == 1, "{applied:?}");
}

fn target_view(points: Option<Points>, child: Option<(Class, bool, bool)>) -> target::View {
    let name = names::target_child("istio", "internal", "dns-weu");
    target::View {
        target: Target { controller: "istio".into(), postfix: "internal".into() },
        base: base(&["weu"], &[]),
        installed: true,
        controller: Some("istio".to_owned()),
        postfix: Some("internal".to_owned()),
        gateway: None,
        holder: None,
        service: points.map(|points| service("istio", points)),
        next: None,
        children: child
            .into_iter()
            .map(|(class, read, observed)| target::ChildView {
                id: Arc::new(ObjectId::new::<DnsEndpoint>(Some("infra"), &name)),
                controller: "dns-weu".into(),
                class,
                observed,
                read,
                ours: false,
                has_service: false,
                service: None,
                replaced: false,
            })
            .collect(),
        rivals: Vec::new(),
        reported: None,
        occupied: BTreeSet::new(),
        memory: Memory::default(),
    }
}

fn service(name: &str, points: Points) -> target::ServiceView {
    let identity = identity_of(ObjectId::new::<Service>(Some("infra"), name));
    target::ServiceView { identity, points, loops: Vec::new() }
}

fn addresses() -> Points {
    Points { v4: vec!["10.0.0.1".parse().unwrap()], v6: vec!["2001:db8::1".parse().unwrap()], ..Points::default() }
}

fn alias() -> Points {
    Points { names: vec![signpost_dns::Fqdn::parse("lb.example.net").unwrap()], ..Points::default() }
}

/// The types that are applied for the first child.
fn types(plan: &Plan) -> String {
    let points = plan.apply[0].1["spec"]["endpoints"].as_array().unwrap().clone();
    points.iter().map(|point| point["recordType"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_change_of_record_type_passes_through_an_empty_endpoint_that_was_read() {
    let (read, unread, seen, unseen) = (true, false, true, false);
    for (points, child, wanted) in [
        (addresses(), None, "A AAAA"),
        (alias(), None, "CNAME"),
        (alias(), Some((Class::Addresses, read, seen)), ""),
        (alias(), Some((Class::Addresses, unread, unseen)), "CNAME"),
        (alias(), Some((Class::Empty, read, unseen)), ""),
        // Whether its records are deleted is not known: see the next test.
        (alias(), Some((Class::Empty, read, seen)), ""),
        (alias(), Some((Class::Empty, unread, unseen)), "CNAME"),
        (addresses(), Some((Class::Alias, read, unseen)), ""),
        (addresses(), Some((Class::Addresses, read, unseen)), "A AAAA"),
    ] {
        assert_eq!(types(&target::plan(&target_view(Some(points), child), at(0))), wanted, "{child:?}");
    }
}

#[test]
fn the_other_record_type_follows_two_intervals_after_external_dns_has_read_that() {
    let mut view = target_view(Some(alias()), Some((Class::Addresses, true, true)));
    let step = |view: &mut target::View, second: i64, class: Class, observed: bool| {
        (view.children[0].class, view.children[0].observed) = (class, observed);
        let plan = target::plan(view, at(second));
        view.memory = plan.memory.clone();
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        assert_eq!(verdict.ready, !verdict.is_changing());
        (types(&plan), plan.again)
    };
    assert_eq!(step(&mut view, 0, Class::Addresses, true), (String::new(), None));
    assert_eq!(step(&mut view, 100, Class::Empty, false), (String::new(), None), "until it is read");
    assert_eq!(step(&mut view, 1000, Class::Empty, true), (String::new(), Some(Duration::from_mins(2))));
    assert_eq!(step(&mut view, 1060, Class::Empty, true), (String::new(), Some(Duration::from_mins(1))));
    assert_eq!(step(&mut view, 1120, Class::Empty, true), ("CNAME".to_owned(), None));
    // The load balancer changes back before the watch shows our own write: external-dns may have read the alias.
    view.service.as_mut().unwrap().points = addresses();
    assert_eq!(step(&mut view, 1121, Class::Empty, true), (String::new(), Some(Duration::from_mins(2))));
    // The first type may return at any time.
    view.service.as_mut().unwrap().points = alias();
    assert_eq!(step(&mut view, 1122, Class::Empty, true), ("CNAME".to_owned(), None));
}

#[test]
fn a_deleted_endpoint_of_the_other_type_is_waited_for() {
    let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
    view.memory = target::plan(&view, at(0)).memory;
    // The Service was deleted, and its DNSEndpoints with it. The next one has a host name.
    view.children.clear();
    view.service = Some(service("other", alias()));
    let plan = target::plan(&view, at(10));
    assert_eq!((plan.apply.len(), plan.again), (0, Some(Duration::from_mins(2))));
    view.memory = plan.memory;
    assert_eq!(types(&target::plan(&view, at(130))), "CNAME");
    view.service = Some(service("other", addresses()));
    assert_eq!(types(&target::plan(&view, at(11))), "A AAAA", "the same type needs no pause");
}

#[test]
fn a_record_type_that_an_earlier_process_reported_is_waited_for_once() {
    // The Service and its DNSEndpoints were deleted, and then the process changed. The next Service has a host name.
    let mut view = target_view(Some(alias()), None);
    view.reported = Some(Class::Addresses);
    let plan = target::plan(&view, at(0));
    assert_eq!((plan.apply.len(), plan.again), (0, Some(Duration::from_mins(2))));
    let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
    assert_eq!((verdict.is_changing(), verdict.class), (true, Some(Class::Addresses)));
    view.memory = plan.memory;
    let plan = target::plan(&view, at(120));
    assert_eq!(types(&plan), "CNAME");
    // The status need not be written yet.
    view.memory = plan.memory;
    assert_eq!(types(&target::plan(&view, at(121))), "CNAME");
    view.service = Some(service("other", addresses()));
    view.memory = Memory::default();
    assert_eq!(types(&target::plan(&view, at(0))), "A AAAA", "the same type needs no pause");
}

#[test]
fn a_stale_endpoint_of_the_other_type_is_emptied_before_it_is_deleted() {
    // The load balancer moved to another namespace, and has a host name there.
    let mut view = target_view(Some(alias()), Some((Class::Addresses, true, true)));
    let id = ObjectId::new::<DnsEndpoint>(Some("former"), &view.children[0].id.name);
    view.children[0].id = Arc::new(id.clone());
    let plan = target::plan(&view, at(0));
    assert!(plan.delete.is_empty() && plan.withdraw.is_empty());
    assert_eq!((plan.apply.len(), &plan.apply[0].0.id, types(&plan).as_str()), (1, &id, ""));
    view.memory = plan.memory;
    (view.children[0].class, view.children[0].observed) = (Class::Empty, true);
    view.memory = target::plan(&view, at(10)).memory;
    let plan = target::plan(&view, at(130));
    assert_eq!((types(&plan).as_str(), plan.delete.len()), ("CNAME", 1));
    assert_eq!((plan.apply[0].0.id.namespace.as_deref(), &plan.delete[0].id), (Some("infra"), &id));
}

#[test]
fn a_name_that_this_operator_publishes_changes_its_type_in_one_step() {
    let mut view = target_view(Some(alias()), Some((Class::Addresses, true, true)));
    view.children[0].ours = true;
    assert_eq!(types(&target::plan(&view, at(0))), "CNAME");
}

#[test]
fn a_load_balancer_without_an_address_keeps_the_name_for_a_while() {
    let targets =
        |plan: &Plan| plan.apply.first().map(|(_, content)| content["spec"]["endpoints"][0]["targets"][0].clone());
    let mut view = target_view(Some(Points::default()), Some((Class::Addresses, true, true)));
    view.next = target_view(Some(addresses()), None).service;
    for (second, left, published) in [(0, Some(60), None), (59, Some(1), None), (60, None, Some("10.0.0.1".into()))] {
        let plan = target::plan(&view, at(second));
        assert_eq!((plan.again, targets(&plan)), (left.map(Duration::from_secs), published), "after {second} s");
        view.memory = plan.memory;
    }
    view.service = target_view(Some(addresses()), None).service;
    assert_eq!(target::plan(&view, at(61)).memory.absent_since, None, "it has an address again");
}

#[test]
fn a_host_name_that_leads_back_is_not_published() {
    let mut view = target_view(Some(Points::default()), Some((Class::Addresses, true, true)));
    view.service.as_mut().unwrap().loops = vec![signpost_dns::Fqdn::parse("aks01-weu-internal.example.com").unwrap()];
    let plan = target::plan(&view, at(0));
    let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
    assert_eq!((verdict.reason.as_str(), plan.apply.len(), plan.delete.len()), ("AliasLoop", 0, 0));
    view.service.as_mut().unwrap().points = addresses();
    assert_eq!(target::plan(&view, at(0)).apply.len(), 1, "it has an address as well");
}

#[test]
fn addresses_that_are_not_published_get_a_notice() {
    for (unusable, left_out, noticed) in [(0, 0, false), (1, 0, true), (0, 44, true)] {
        let view = target_view(Some(Points { unusable, left_out, ..addresses() }), None);
        let plan = target::plan(&view, at(0));
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        assert_eq!((verdict.ready, verdict.notice.is_some()), (true, noticed));
    }
}

#[test]
fn addresses_outlive_their_gateway_and_service_for_a_while() {
    let child = Some((Class::Addresses, true, true));
    let mut gone = target_view(Some(addresses()), child);
    gone.controller = None;
    let first = target::plan(&gone, at(0));
    assert!(first.withdraw.is_empty() && first.again == Some(Duration::from_mins(1)));
    gone.memory = first.memory;
    let second = target::plan(&gone, at(59));
    assert!(second.withdraw.is_empty() && second.again == Some(Duration::from_secs(1)));
    assert_eq!(target::plan(&gone, at(60)).withdraw.len(), 1);

    let no_service = target_view(None, child);
    let first = target::plan(&no_service, at(0));
    assert!(first.withdraw.is_empty() && first.again.is_some());
    let empty = target_view(Some(Points::default()), child);
    let plan = target::plan(&empty, at(0));
    assert!(plan.withdraw.is_empty() && plan.apply.is_empty() && plan.again.is_none(), "an empty address keeps all");
}

#[test]
fn the_loser_of_a_gateway_name_withdraws_once_the_winner_is_published() {
    let winner = Arc::new(ObjectId::new::<signpost_apis::router::Gateway>(Some("infra"), "older"));
    for (published, deleted) in [(false, 0), (true, 1)] {
        let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
        view.holder = Some(target::Holder { id: winner.clone(), published, changing: false });
        let plan = target::plan(&view, at(0));
        assert_eq!((plan.apply.len(), plan.withdraw.len()), (0, deleted));
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        assert_eq!((verdict.ready, verdict.reason.as_str()), (false, "HostConflict"));

        // The controller of the Gateway was changed: the name is kept until the new one has published it.
        view.controller = None;
        for seconds in [0, 60, 3600] {
            let plan = target::plan(&view, at(seconds));
            assert_eq!((plan.withdraw.len(), plan.again.is_some()), (deleted, false));
        }
    }
}

#[test]
fn what_the_owner_of_a_gateway_name_publishes_too_is_withdrawn_without_a_configuration() {
    let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
    let winner = Arc::new(ObjectId::new::<signpost_apis::router::Gateway>(Some("infra"), "older"));
    view.holder = Some(target::Holder { id: winner, published: false, changing: false });
    view.base.configuration = Err("two controllers have one name".into());
    assert_eq!(target::plan(&view, at(0)).withdraw.len(), 0, "nothing replaces it");
    view.children[0].replaced = true;
    assert_eq!(target::plan(&view, at(0)).withdraw.len(), 1);
    view.controller = None;
    assert_eq!(target::plan(&view, at(0)).withdraw.len(), 1);
}

#[test]
fn a_removed_controller_withdraws_although_nothing_can_be_published() {
    // The Service has no address, and dns-weu is not in the configuration any more.
    let mut view = target_view(Some(Points::default()), Some((Class::Addresses, true, true)));
    assert_eq!(target::plan(&view, at(0)).withdraw.len(), 0);
    view.base = base(&["weu"], &[]);
    view.children[0].controller = "dns-removed".into();
    assert_eq!(target::plan(&view, at(0)).withdraw.len(), 1);
    // Without the label nothing is known about it.
    view.children[0].controller = "".into();
    assert_eq!(target::plan(&view, at(0)).withdraw.len(), 0);
}

#[test]
fn another_controller_with_records_of_another_type_yields_in_two_steps() {
    // The new controller has a host name. While external-dns may have addresses of the old one, nothing is published.
    let rival = |class, read, observed| target_view(None, Some((class, read, observed))).children;
    for (rivals, published) in [
        (rival(Class::Addresses, true, true), false),
        (rival(Class::Empty, true, false), false),
        (rival(Class::Empty, true, true), false),
        (rival(Class::Addresses, false, false), true),
        (rival(Class::Alias, true, true), true),
    ] {
        let mut view = target_view(Some(alias()), None);
        view.rivals = rivals;
        let plan = target::plan(&view, at(0));
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        assert_eq!(
            (plan.apply.len(), verdict.ready, verdict.is_changing()),
            (usize::from(published), published, !published)
        );
        // Two intervals after external-dns has read that, it is.
        view.rivals.iter_mut().for_each(|rival| (rival.class, rival.observed) = (Class::Empty, true));
        view.memory = target::plan(&view, at(0)).memory;
        assert_eq!(target::plan(&view, at(120)).apply.len(), 1);
    }
    // What is published already is not taken back.
    let mut view = target_view(Some(alias()), Some((Class::Alias, true, true)));
    view.rivals = rival(Class::Addresses, true, true);
    assert_eq!(target::plan(&view, at(0)).apply[0].1["spec"]["endpoints"].as_array().map(Vec::len), Some(1));
    // The old controller, with or without a Gateway, empties its DNSEndpoints and keeps them.
    let winner = Arc::new(ObjectId::new::<signpost_apis::router::Gateway>(Some("infra"), "older"));
    for controller in [None, Some("istio".to_owned())] {
        let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
        view.holder = Some(target::Holder { id: winner.clone(), published: false, changing: true });
        view.controller = controller;
        let plan = target::plan(&view, at(0));
        assert_eq!((plan.apply.len(), plan.withdraw.len()), (1, 0));
        assert_eq!(plan.apply[0].1["spec"]["endpoints"], serde_json::json!([]));
    }
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
        let view = policy::View { namespace: "app".into(), base, policies, unreadable: None };
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
    view.route.as_mut().unwrap().unreadable_policy = Some("older".to_owned());
    assert_eq!(outcome(&view), (vec![], vec![], "DNSPolicyNotFound"), "nothing is withdrawn");
    let younger = policy_view("younger");
    let view = policy::View {
        namespace: "app".into(),
        base: base(&["weu"], &[]),
        policies: vec![younger],
        unreadable: Some("older".to_owned()),
    };
    let Decision::Object { verdict, .. } = &policy::plan(&view)[0] else { panic!("a policy has a verdict") };
    assert_eq!(verdict.conditions[0].reason.as_str(), "SingletonViolation");
    assert!(
        verdict.conditions[0].message.contains("DNSPolicy older is older and cannot be read"),
        "{}",
        verdict.conditions[0].message
    );
}

#[test]
fn a_service_is_an_owner_but_not_the_controller() {
    let plan = target::plan(&target_view(Some(addresses()), None), at(0));
    let Proof::Any(proofs) = &plan.apply[0].0.proof else { panic!("{:?}", plan.apply) };
    let owner = proofs.iter().find_map(|proof| match proof {
        Proof::Owner(owner) => Some(owner),
        _ => None,
    });
    assert_eq!(owner.map(|owner| (owner.kind.as_str(), owner.controller)), Some(("Service", None)));
}

#[test]
fn only_what_is_published_is_said_to_be_kept() {
    for (child, said) in [(None, false), (Some((Class::Addresses, true, true)), true)] {
        let plan = target::plan(&target_view(Some(Points::default()), child), at(0));
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        assert_eq!(verdict.message.contains("is kept"), said, "{}", verdict.message);
    }
}

#[test]
fn a_child_of_a_route_is_deleted_by_its_label_or_its_owner() {
    let mut view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &["dns-old"]);
    let by_owner = |view: &route::View| {
        let proof = route::plan(view).withdraw[0].proof.clone();
        matches!(proof, Proof::Any(proofs) if proofs.iter().any(|proof| matches!(proof, Proof::Owner(_))))
    };
    assert!(by_owner(&view));
    view.route = None;
    assert!(!by_owner(&view), "the owner is gone");
}
