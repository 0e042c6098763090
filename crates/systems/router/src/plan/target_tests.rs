//! Decisions about the names of gateways: addresses, record types, owners of a name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use signpost_apis::{externaldns::DnsEndpoint, service::Service};
use signpost_dns::Fqdn;
use signpost_engine::{ChildError, ObjectId, Outcome, Proof, RetryClass, Touch};

use crate::{
    apply::ApplyResult,
    index::facts::{Class, Points, Target},
    plan::{
        Memory, Plan, names, target,
        tests::{at, base, identity_of},
    },
    report::{report, status::Decision},
};

#[test]
fn a_postfix_that_is_not_one_makes_no_name() {
    let mut view = target_view(Some(addresses()), None);
    view.postfix = Some("a b".to_owned());
    view.target.postfix = names::label_value("a b").into();
    let plan = target::plan(&view, at(0));
    let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
    assert_eq!((verdict.reason.as_str(), verdict.host.as_deref(), plan.apply.len()), ("InvalidHost", None, 0));
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
                names: Box::default(),
                class,
                observed,
                read,
                ours: false,
                has_service: false,
                service: None,
                replaced: false,
            })
            .collect(),
        former: BTreeMap::new(),
        is_needed: false,
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
        // The report may be on the way.
        (alias(), Some((Class::Addresses, unread, unseen)), ""),
        (alias(), Some((Class::Empty, read, unseen)), ""),
        // Whether its records are deleted is not known: see the next test.
        (alias(), Some((Class::Empty, read, seen)), ""),
        (alias(), Some((Class::Empty, unread, unseen)), ""),
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
fn a_type_that_nobody_has_reported_to_have_read_changes_after_the_pause() {
    let mut view = target_view(Some(addresses()), None);
    let plan = target::plan(&view, at(0));
    assert_eq!(types(&plan), "A AAAA");
    // The watch has not shown the new DNSEndpoint yet, and the load balancer has a host name now.
    view.memory = plan.memory;
    view.service = Some(service("istio", alias()));
    let plan = target::plan(&view, at(1));
    assert_eq!((plan.apply.len(), plan.again), (0, Some(Duration::from_mins(2))));
    view.memory = plan.memory;
    view.children = target_view(None, Some((Class::Addresses, false, false))).children;
    let step = |view: &mut target::View, second: i64, child: (Class, bool, bool)| {
        (view.children[0].class, view.children[0].read, view.children[0].observed) = child;
        let plan = target::plan(view, at(second));
        view.memory = plan.memory.clone();
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        (types(&plan), plan.again.map(|again| again.as_secs()), verdict.class)
    };
    assert_eq!(step(&mut view, 10, (Class::Addresses, false, false)), (String::new(), None, None), "emptied");
    assert_eq!(step(&mut view, 20, (Class::Empty, false, false)), (String::new(), Some(120), None));
    assert_eq!(step(&mut view, 139, (Class::Empty, false, false)), (String::new(), Some(1), None));
    let mut late = target_view(Some(alias()), Some((Class::Empty, true, false)));
    late.memory = view.memory.clone();
    assert_eq!(step(&mut view, 140, (Class::Empty, false, false)), ("CNAME".to_owned(), None, None));
    // A report of the address that arrives in the pause: the pause begins again when the empty DNSEndpoint is read.
    let class = Some(Class::Addresses);
    assert_eq!(step(&mut late, 139, (Class::Empty, true, false)), (String::new(), None, class));
    assert_eq!(step(&mut late, 200, (Class::Empty, true, true)), (String::new(), Some(120), class));
    assert_eq!(step(&mut late, 320, (Class::Empty, true, true)).0, "CNAME");
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
    // Also when this process wrote it a moment ago, before it was known who publishes it.
    let mut view = target_view(Some(addresses()), None);
    view.memory = target::plan(&view, at(0)).memory;
    view.children = target_view(None, Some((Class::Addresses, true, true))).children;
    view.children[0].ours = true;
    view.service = Some(service("istio", alias()));
    assert_eq!(types(&target::plan(&view, at(1))), "CNAME");
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
fn time_without_an_address_does_not_count_for_a_deleted_gateway() {
    let mut view = target_view(Some(Points::default()), Some((Class::Addresses, true, true)));
    view.next = Some(service("other", addresses()));
    view.memory = target::plan(&view, at(0)).memory;
    view.controller = None;
    let plan = target::plan(&view, at(59));
    assert_eq!((plan.withdraw.len(), plan.again), (0, Some(Duration::from_mins(1))));
    view.memory = plan.memory;
    assert_eq!(target::plan(&view, at(119)).withdraw.len(), 1);
}

#[test]
fn a_pause_ends_in_time_although_another_controller_is_refused() {
    let plan = target::plan(&target_view(Some(alias()), Some((Class::Empty, true, true))), at(0));
    let (key, pause) = (plan.key.clone(), Duration::from_mins(2));
    assert_eq!(plan.again, Some(pause));
    let taken = ObjectId::new::<DnsEndpoint>(Some("infra"), "foreign");
    let errors = vec![ChildError::NotOurs { id: taken, proof: String::new() }];
    let report = report(ApplyResult {
        plan,
        postponed: false,
        errors,
        written: 0,
        deleted: Vec::new(),
        measured: crate::metrics::Measured::default(),
    });
    assert_eq!(report.touches, [(key, Touch::All, pause)]);
    assert!(matches!(report.outcome, Outcome::Retry { class: RetryClass::Slow, .. }), "a retry may be later");
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
    let mut deleted = target_view(Some(addresses()), child);
    deleted.controller = None;
    let first = target::plan(&deleted, at(0));
    assert!(first.withdraw.is_empty() && first.again == Some(Duration::from_mins(1)));
    deleted.memory = first.memory;
    let second = target::plan(&deleted, at(59));
    assert!(second.withdraw.is_empty() && second.again == Some(Duration::from_secs(1)));
    assert_eq!(target::plan(&deleted, at(60)).withdraw.len(), 1);

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
        // The report that they were read may be on the way.
        (rival(Class::Addresses, false, false), false),
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
fn only_what_is_published_is_reported_to_be_kept() {
    for (child, kept) in [(None, false), (Some((Class::Addresses, true, true)), true)] {
        let plan = target::plan(&target_view(Some(Points::default()), child), at(0));
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        assert_eq!(verdict.message.contains("is kept"), kept, "{}", verdict.message);
    }
}

const NAME: &str = "aks01-weu-internal.example.com";
const FORMER: &str = "aks01-old-internal.example.com";

/// The names that are applied for the first child, in order.
fn names_of(plan: &Plan) -> Vec<String> {
    let points = plan.apply[0].1["spec"]["endpoints"].as_array().unwrap().clone();
    let mut names: Vec<String> = points.iter().map(|point| point["dnsName"].as_str().unwrap().to_owned()).collect();
    names.dedup();
    names
}

/// A pass in which a DNSEndpoint of a route points at the former name, or does not: the names, and the seconds until the next pass.
fn with_former(view: &mut target::View, second: i64, is_pointed_at: bool) -> (Vec<String>, Option<u64>) {
    view.former.insert(Fqdn::parse(FORMER).unwrap(), is_pointed_at);
    let plan = target::plan(view, at(second));
    view.memory = plan.memory.clone();
    (names_of(&plan), plan.again.map(|again| again.as_secs()))
}

#[test]
fn a_former_name_is_kept_while_a_route_points_at_it_and_for_a_while_after() {
    let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
    let both = || vec![NAME.to_owned(), FORMER.to_owned()];
    assert_eq!(with_former(&mut view, 0, true), (both(), None), "the new name is the first");
    assert_eq!(types(&target::plan(&view, at(0))), "A AAAA A AAAA");
    assert_eq!(with_former(&mut view, 3600, true), (both(), None), "for as long as it takes");
    assert_eq!(with_former(&mut view, 3610, false), (both(), Some(60)));
    assert_eq!(with_former(&mut view, 3669, false), (both(), Some(1)));
    assert_eq!(with_former(&mut view, 3670, false), (vec![NAME.to_owned()], None));
    assert_eq!(with_former(&mut view, 3671, false), (vec![NAME.to_owned()], None), "and not again");
    // A route points at it again before the end.
    view.memory = Memory::default();
    with_former(&mut view, 4000, true);
    with_former(&mut view, 4001, false);
    assert_eq!(with_former(&mut view, 4050, true), (both(), None));
    assert_eq!(with_former(&mut view, 4100, false), (both(), Some(60)), "the pause begins again");
}

#[test]
fn a_name_that_this_process_has_not_published_is_kept_only_while_it_is_pointed_at() {
    let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
    assert_eq!(with_former(&mut view, 0, false), (vec![NAME.to_owned()], None), "others may have written it");
    view.memory = Memory::default();
    assert_eq!(with_former(&mut view, 0, true).0.len(), 2, "after a restart");
}

#[test]
fn the_name_before_a_changed_identity_is_known_before_the_watch_shows_it() {
    let mut view = target_view(Some(addresses()), None);
    view.memory = target::plan(&view, at(0)).memory;
    let name = Fqdn::parse(NAME).unwrap();
    assert!(view.memory.former.contains_key(&name), "{:?}", view.memory);
    let mut identity = view.base.identity.as_deref().unwrap().clone();
    identity.region = "neu".to_owned();
    view.base.identity = Ok(Arc::new(identity));
    view.former = BTreeMap::from([(name, true)]);
    assert_eq!(names_of(&target::plan(&view, at(1))), ["aks01-neu-internal.example.com", NAME]);
    // A name that was never published is not kept.
    let without_address = target_view(Some(Points::default()), None);
    assert!(target::plan(&without_address, at(0)).memory.former.is_empty());
}

#[test]
fn a_change_of_record_type_does_not_lose_a_former_name() {
    let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
    with_former(&mut view, 0, true);
    view.service = Some(service("istio", alias()));
    assert_eq!(with_former(&mut view, 10, true).0.len(), 0, "both are withdrawn");
    (view.children[0].class, view.children[0].observed) = (Class::Empty, true);
    with_former(&mut view, 20, true);
    assert_eq!(with_former(&mut view, 140, true), (vec![NAME.to_owned(), FORMER.to_owned()], None));
    assert_eq!(types(&target::plan(&view, at(140))), "CNAME CNAME");
}

#[test]
fn a_former_name_is_not_an_alias_of_itself() {
    let former = Points { names: vec![Fqdn::parse(FORMER).unwrap()], ..Points::default() };
    let mut view = target_view(Some(former), Some((Class::Alias, true, true)));
    view.memory.former.insert(Fqdn::parse(FORMER).unwrap(), None);
    assert_eq!(with_former(&mut view, 0, false).0, [NAME]);
}

#[test]
fn a_former_name_that_is_pointed_at_is_reported() {
    let mut view = target_view(Some(addresses()), None);
    let message = |view: &target::View| {
        let plan = target::plan(view, at(0));
        let Decision::Target { verdict, .. } = &plan.decisions[0] else { panic!("{:?}", plan.decisions) };
        assert!(verdict.ready && verdict.host.as_deref() == Some(NAME), "{verdict:?}");
        verdict.message.clone()
    };
    assert!(!message(&view).contains("still point at"), "{}", message(&view));
    view.former.insert(Fqdn::parse(FORMER).unwrap(), true);
    assert!(message(&view).contains(&format!("still point at {FORMER}, which is kept")), "{}", message(&view));
}

#[test]
fn a_name_without_a_gateway_is_kept_until_its_routes_have_moved() {
    let mut view = target_view(Some(addresses()), Some((Class::Addresses, true, true)));
    (view.controller, view.is_needed) = (None, true);
    for second in [0, 60, 3600] {
        let plan = target::plan(&view, at(second));
        assert_eq!((plan.withdraw.len(), plan.again), (0, Some(Duration::from_mins(1))), "after {second} s");
        view.memory = plan.memory;
    }
    // They have: the time until then does not count.
    view.is_needed = false;
    let plan = target::plan(&view, at(3601));
    assert_eq!((plan.withdraw.len(), plan.again), (0, Some(Duration::from_mins(1))));
    view.memory = plan.memory;
    assert_eq!(target::plan(&view, at(3661)).withdraw.len(), 1);
}

#[test]
fn a_pass_without_a_place_for_its_writes_reports_nothing_and_comes_again_soon() {
    let plan = target::plan(&target_view(Some(addresses()), None), at(0));
    let (errors, deleted, measured) = (Vec::new(), Vec::new(), crate::metrics::Measured::default());
    let memory = plan.memory.clone();
    let report = report(ApplyResult { plan, postponed: true, errors, written: 0, deleted, measured });
    assert!(report.statuses.is_empty() && report.events.is_empty());
    assert_eq!(report.memory, Some(memory));
    let Outcome::Retry { class: RetryClass::Fixed(pause), .. } = report.outcome else { panic!("{:?}", report.outcome) };
    assert!(pause <= Duration::from_secs(5), "{pause:?}");
}
