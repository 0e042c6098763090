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
        Base, Memory, names,
        policy::{self, Selection, select},
        route, target,
    },
    report::status::{Decision, Verdict},
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
        policy: policy.map(|policy| ("policy".to_owned(), Arc::new(policy))),
        unreadable_policy: None,
        gateway: Arc::new(ObjectId::new::<signpost_apis::router::Gateway>(Some("infra"), "gw")),
        postfix: Some("internal".to_owned()),
    };
    route::View {
        id: Arc::new(id),
        base,
        installed: true,
        route: Some(route),
        children: children.iter().map(|c| (format!("api-{c}"), Arc::from(*c))).collect(),
        occupied: BTreeSet::new(),
    }
}

/// The applied and the deleted objects, and the reason of Ready.
fn outcome(view: &route::View) -> (Vec<String>, Vec<String>, &'static str) {
    let plan = route::plan(view);
    let applied = plan.apply.iter().map(|(child, _)| child.id.name.clone()).collect();
    let deleted = plan.delete.iter().map(|child| child.id.name.clone()).collect();
    let reason = plan.decisions.iter().find_map(|decision| match decision {
        Decision::Object { verdict: Verdict { told, .. }, .. } => Some(told[0].reason),
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
fn an_occupied_name_is_avoided() {
    let mut view = route_view(base(&["weu"], &[]), Some(DNSPolicySpec::default()), &[]);
    view.occupied.insert("api-dns-weu".to_owned());
    let (applied, _, _) = outcome(&view);
    assert!(applied[0].starts_with("api-dns-weu-") && applied.len() == 1, "{applied:?}");
}

fn target_view(points: Option<Points>, child: Option<(Class, bool, bool)>) -> target::View {
    let service = |points| target::ServiceView {
        identity: identity_of(ObjectId::new::<Service>(Some("infra"), "istio")),
        points,
    };
    let name = names::target_child("istio", "internal", "dns-weu");
    target::View {
        target: Target { controller: "istio".into(), postfix: "internal".into() },
        base: base(&["weu"], &[]),
        installed: true,
        controller: Some("istio".to_owned()),
        gateway: None,
        holder: None,
        service: points.map(service),
        children: child
            .into_iter()
            .map(|(class, read, observed)| target::ChildView {
                id: Arc::new(ObjectId::new::<DnsEndpoint>(Some("infra"), &name)),
                controller: "dns-weu".into(),
                class,
                observed,
                read,
                has_service: false,
            })
            .collect(),
        rivals: Vec::new(),
        occupied: BTreeSet::new(),
        memory: Memory::default(),
    }
}

fn addresses() -> Points {
    Points { v4: vec!["10.0.0.1".parse().unwrap()], v6: vec!["2001:db8::1".parse().unwrap()], ..Points::default() }
}

fn alias() -> Points {
    Points { names: vec![signpost_dns::Fqdn::parse("lb.example.net").unwrap()], ..Points::default() }
}

#[test]
fn a_change_of_record_type_passes_through_an_empty_endpoint_that_was_read() {
    let types = |view: &target::View| {
        let plan = target::plan(view, at(0));
        let points = plan.apply[0].1["spec"]["endpoints"].as_array().unwrap().clone();
        points.iter().map(|point| point["recordType"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let (read, unread, seen, unseen) = (true, false, true, false);
    for (points, child, wanted) in [
        (addresses(), None, "A AAAA"),
        (alias(), None, "CNAME"),
        (alias(), Some((Class::Addresses, read, seen)), ""),
        (alias(), Some((Class::Addresses, unread, unseen)), "CNAME"),
        (alias(), Some((Class::Empty, read, unseen)), ""),
        (alias(), Some((Class::Empty, read, seen)), "CNAME"),
        (alias(), Some((Class::Empty, unread, unseen)), "CNAME"),
        (addresses(), Some((Class::Alias, read, unseen)), ""),
        (addresses(), Some((Class::Addresses, read, unseen)), "A AAAA"),
    ] {
        assert_eq!(types(&target_view(Some(points), child)), wanted, "{child:?}");
    }
}

#[test]
fn addresses_outlive_their_gateway_and_service_for_a_while() {
    let child = Some((Class::Addresses, true, true));
    let mut gone = target_view(Some(addresses()), child);
    gone.controller = None;
    let first = target::plan(&gone, at(0));
    assert!(first.delete.is_empty() && first.again == Some(Duration::from_mins(1)));
    gone.memory = first.memory;
    let second = target::plan(&gone, at(59));
    assert!(second.delete.is_empty() && second.again == Some(Duration::from_secs(1)));
    assert_eq!(target::plan(&gone, at(60)).delete.len(), 1);

    let no_service = target_view(None, child);
    let first = target::plan(&no_service, at(0));
    assert!(first.delete.is_empty() && first.again.is_some());
    let empty = target_view(Some(Points::default()), child);
    let plan = target::plan(&empty, at(0));
    assert!(plan.delete.is_empty() && plan.apply.is_empty() && plan.again.is_none(), "an empty address keeps all");
}

#[test]
fn the_loser_of_a_gateway_name_withdraws_once_the_winner_is_published() {
    let winner = Arc::new(ObjectId::new::<signpost_apis::router::Gateway>(Some("infra"), "older"));
    for (published, deleted) in [(false, 0), (true, 1)] {
        let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
        view.holder = Some(target::Holder { id: winner.clone(), published, changing: false });
        let plan = target::plan(&view, at(0));
        assert_eq!((plan.apply.len(), plan.delete.len()), (0, deleted));
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        assert_eq!((verdict.ready, verdict.reason), (false, "HostConflict"));

        // The controller of the Gateway was changed: the name is kept until the new one has published it.
        view.controller = None;
        for seconds in [0, 60, 3600] {
            let plan = target::plan(&view, at(seconds));
            assert_eq!((plan.delete.len(), plan.again.is_some()), (deleted, false));
        }
    }
}

#[test]
fn a_removed_controller_withdraws_although_nothing_can_be_published() {
    // The Service has no address, and dns-weu is not in the configuration any more.
    let mut view = target_view(Some(Points::default()), Some((Class::Addresses, true, true)));
    assert_eq!(target::plan(&view, at(0)).delete.len(), 0);
    view.base = base(&["weu"], &[]);
    view.children[0].controller = "dns-removed".into();
    assert_eq!(target::plan(&view, at(0)).delete.len(), 1);
    // Without the label nothing is known about it.
    view.children[0].controller = "".into();
    assert_eq!(target::plan(&view, at(0)).delete.len(), 0);
}

#[test]
fn another_controller_with_records_of_another_type_yields_in_two_steps() {
    // The new controller has a host name. While external-dns may have addresses of the old one, nothing is published.
    let rival = |class, read, observed| target_view(None, Some((class, read, observed))).children;
    for (rivals, published) in [
        (rival(Class::Addresses, true, true), false),
        (rival(Class::Empty, true, false), false),
        (rival(Class::Empty, true, true), true),
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
        assert_eq!((plan.apply.len(), plan.delete.len()), (1, 0));
        assert_eq!(plan.apply[0].1["spec"]["endpoints"], serde_json::json!([]));
    }
}

#[test]
fn an_older_object_that_cannot_be_read_does_not_lose_to_a_younger_one() {
    let mut view = route_view(base(&["weu"], &[]), None, &["dns-weu"]);
    view.route.as_mut().unwrap().unreadable_policy = Some("older".to_owned());
    assert_eq!(outcome(&view), (vec![], vec![], "DNSPolicyNotFound"), "nothing is withdrawn");
    let younger = (identity_of(ObjectId::new::<DNSPolicy>(Some("app"), "younger")), Arc::new(DNSPolicySpec::default()));
    let view = policy::View {
        namespace: "app".into(),
        base: base(&["weu"], &[]),
        policies: vec![younger],
        unreadable: Some("older".to_owned()),
    };
    let Decision::Object { verdict, .. } = &policy::plan(&view)[0] else { panic!("a policy has a verdict") };
    assert_eq!(verdict.told[0].reason, "SingletonViolation");
    assert!(
        verdict.told[0].message.contains("DNSPolicy older is older and cannot be read"),
        "{}",
        verdict.told[0].message
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
        let proof = route::plan(view).delete[0].proof.clone();
        matches!(proof, Proof::Any(proofs) if proofs.iter().any(|proof| matches!(proof, Proof::Owner(_))))
    };
    assert!(by_owner(&view));
    view.route = None;
    assert!(!by_owner(&view), "the owner is gone");
}
