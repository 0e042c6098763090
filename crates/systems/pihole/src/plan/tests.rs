//! The plan on plain data: the owner of a host, our lines, and lines that are never touched.

use signpost_dns::Fqdn;
use signpost_engine::{Finalizers, Identity};
use signpost_provider_pihole::{Capabilities, OwnerId};

use super::*;
use crate::index::{Target, Wanted, ingress_id};
use crate::report::view;
use crate::settings::ConflictPolicy;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn fqdn(name: &str) -> Fqdn {
    Fqdn::parse(name).unwrap()
}

fn owner() -> OwnerId {
    OwnerId::parse("home").unwrap()
}

fn marked() -> Ownership {
    Ownership::Marker { owner: owner(), unmarked: Ledger::default() }
}

fn policy() -> Policy {
    Policy::new(owner(), "192.168.1.10".parse().unwrap())
}

fn to(ip: &str) -> Target {
    Target::Addresses { v4: Wanted::Value(ip.parse().unwrap()), v6: Wanted::Nothing }
}

fn claimant(name: &str, age: i64, hosts: &[&str], target: Target) -> Arc<Claimant> {
    let mut hosts: Vec<Fqdn> = hosts.iter().map(|host| fqdn(host)).collect();
    hosts.sort();
    let identity = Identity {
        id: ingress_id("default", name),
        uid: name.into(),
        version: 1,
        generation: 1,
        created: Timestamp::from_second(1_000_000 - age).unwrap(),
        deleting_since: None,
        finalizers: Finalizers::default(),
    };
    Arc::new(Claimant { identity, registered: true, hosts, target, problems: Vec::new(), view: None })
}

fn snapshot(claimants: &[Arc<Claimant>]) -> Snapshot {
    Snapshot { claimants: claimants.to_vec(), ..Snapshot::default() }
}

fn listing(hosts: &[&str], cnames: &[&str]) -> Listing {
    let lines = |raw: &[&str]| raw.iter().map(|raw| Line::stored(raw)).collect();
    Listing { capabilities: Capabilities::V6, hosts: lines(hosts), cnames: lines(cnames), write_error: None }
}

fn planned(snapshot: &Snapshot, listing: &Listing, policy: &Policy) -> Planned {
    let ownership = if listing.capabilities.marker {
        marked()
    } else {
        Ownership::Ledger(Ledger::from_text("192.168.1.10 ours.lan\n"))
    };
    let input = PlanInput { snapshot, listing, ownership: &ownership, policy, may_restart: true, now: NOW };
    hosts::make(&input, &mut GuardMemory::default())
}

/// The view of an Ingress, where no host is left to another Ingress.
fn view_of(
    claimant: &Claimant,
    holder: impl Fn(&Fqdn) -> Option<Target>,
    present: impl Fn(&Fqdn) -> bool,
    complete: bool,
) -> Option<String> {
    let shows = |host: &Fqdn| present(host) && holder(host).is_some_and(|target| target == claimant.target);
    view(claimant, |host| holder(host).is_some(), shows, &present, complete)
}

fn adds(planned: &Planned) -> Vec<String> {
    let set = planned.change_set();
    set.add_hosts.iter().chain(&set.add_cnames).map(ToString::to_string).collect()
}

fn removes(planned: &Planned) -> Vec<String> {
    let set = planned.change_set();
    set.remove_hosts.iter().chain(&set.remove_cnames).map(ToString::to_string).collect()
}

#[test]
fn missing_records_are_added_and_existing_ones_are_unchanged() {
    let snapshot = snapshot(&[claimant("app", 1, &["a.lan", "b.lan"], to("10.0.0.1"))]);
    let plan = planned(&snapshot, &listing(&["10.0.0.1 a.lan # signpost=home"], &[]), &policy());
    assert_eq!(adds(&plan), ["10.0.0.1 b.lan # signpost=home"]);
    assert!(removes(&plan).is_empty() && plan.refusals.is_empty());
}

#[test]
fn the_oldest_claim_wins_and_an_equal_claim_is_not_refused() {
    let claimants = [
        claimant("young", 1, &["a.lan"], to("10.0.0.1")),
        claimant("old", 9, &["a.lan"], to("10.0.0.2")),
        claimant("like-old", 5, &["a.lan"], to("10.0.0.2")),
    ];
    let plan = planned(&snapshot(&claimants), &listing(&[], &[]), &policy());
    assert_eq!(adds(&plan), ["10.0.0.2 a.lan # signpost=home"]);
    assert_eq!(plan.refusals.len(), 1);
    assert_eq!(
        (plan.refusals[0].reason, plan.refusals[0].ingress.clone()),
        (Reason::HostTaken, Some(ingress_id("default", "young")))
    );
}

#[test]
fn lines_that_are_not_provably_ours_are_never_in_a_change() {
    let theirs = [
        "10.0.0.9 x.lan",
        "10.0.0.9 x.lan # signpost=office",
        "10.0.0.9 x.lan y.lan # signpost=home",
        "10.0.0.9 x.lan# signpost=home",
        "broken",
    ];
    for line in theirs {
        let claimed = snapshot(&[claimant("app", 1, &["x.lan"], to("10.0.0.1"))]);
        let plan = planned(&claimed, &listing(&[line], &[]), &policy());
        assert!(removes(&plan).is_empty(), "{line}");
        let unclaimed = planned(&snapshot(&[]), &listing(&[line], &[]), &policy());
        assert!(unclaimed.changes.is_empty(), "{line}");
    }
}

#[test]
fn overwrite_takes_a_line_that_holds_the_host_alone_and_no_other() {
    let policy = Policy { conflict: ConflictPolicy::Overwrite, ..policy() };
    let snapshot = snapshot(&[claimant("app", 1, &["x.lan"], to("10.0.0.1"))]);
    let plan = planned(&snapshot, &listing(&["10.0.0.9 X.lan # mine"], &[]), &policy);
    assert_eq!(
        (adds(&plan), removes(&plan)),
        (vec!["10.0.0.1 x.lan # signpost=home".to_owned()], vec!["10.0.0.9 X.lan # mine".to_owned()])
    );
    for (hosts, cnames, reason) in [
        (&["10.0.0.9 x.lan y.lan"][..], &[][..], Reason::SharedLine),
        (&["10.0.0.9 x.lan # signpost=office"], &[], Reason::OtherOwner),
        (&[], &["x.lan,y.lan"], Reason::SharedLine),
    ] {
        let plan = planned(&snapshot, &listing(hosts, cnames), &policy);
        assert!(plan.changes.is_empty());
        assert_eq!(plan.refusals[0].reason, reason);
    }
}

#[test]
fn an_orphan_is_deleted_only_with_complete_lists_and_sweeping_on() {
    let orphan = listing(&["10.0.0.1 orphan.lan # signpost=home"], &[]);
    assert_eq!(removes(&planned(&snapshot(&[]), &orphan, &policy())).len(), 1);
    let blind = Snapshot { blind: true, ..Snapshot::default() };
    assert!(planned(&blind, &orphan, &policy()).changes.is_empty());
    let off = Policy { sweep: false, ..policy() };
    assert!(planned(&snapshot(&[]), &orphan, &off).changes.is_empty());
    let released = Snapshot {
        released: [(fqdn("orphan.lan"), ingress_id("default", "deleted"))].into(),
        blind: true,
        ..Snapshot::default()
    };
    let plan = planned(&released, &orphan, &off);
    assert_eq!(plan.changes[0].ingress, Some(ingress_id("default", "deleted")));
}

#[test]
fn more_than_half_and_more_than_ten_deletions_wait_for_the_same_plan_again() {
    let lines: Vec<String> = (0..30).map(|n| format!("10.0.0.1 h{n}.lan # signpost=home")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let listing = listing(&lines, &[]);
    let (nobody, policy, ownership) = (snapshot(&[]), policy(), marked());
    let mut guard = GuardMemory::default();
    let mut at = |seconds: i64| {
        let input = PlanInput {
            snapshot: &nobody,
            listing: &listing,
            ownership: &ownership,
            policy: &policy,
            may_restart: true,
            now: Timestamp::from_second(seconds).unwrap(),
        };
        hosts::make(&input, &mut guard)
    };
    let first = at(0);
    assert!(first.changes.is_empty() && first.paused);
    assert!(at(29).changes.is_empty(), "its time has not come");
    assert_eq!(at(30).changes.len(), 30);
    let ten = listing_of(10);
    assert_eq!(planned(&nobody, &ten, &policy).changes.len(), 10, "ten may always be deleted");
    let deleted = |n: usize| (fqdn(&format!("h{n}.lan")), ingress_id("default", "deleted"));
    let mut released = Snapshot { released: (0..30).map(deleted).collect(), ..Snapshot::default() };
    assert!(planned(&released, &listing, &policy).paused, "a list without them is not a proof");
    released.seen = (0..30).map(|n| deleted(n).0).collect();
    assert_eq!(planned(&released, &listing, &policy).changes.len(), 30, "their Ingresses were seen to be deleted");
}

fn listing_of(count: usize) -> Listing {
    let lines: Vec<String> = (0..count).map(|n| format!("10.0.0.1 h{n}.lan # signpost=home")).collect();
    listing(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &[])
}

#[test]
fn an_invalid_target_keeps_what_is_there_and_makes_nothing_new() {
    let keep = Target::Addresses { v4: Wanted::Keep, v6: Wanted::Nothing };
    let snapshot = snapshot(&[claimant("app", 1, &["a.lan", "b.lan"], keep)]);
    let plan = planned(&snapshot, &listing(&["10.0.0.1 a.lan # signpost=home"], &[]), &policy());
    assert!(plan.changes.is_empty() && plan.refusals.is_empty());
}

#[test]
fn the_old_type_is_deleted_only_after_the_new_one_is_there() {
    let alias = snapshot(&[claimant("app", 1, &["a.lan"], Target::Alias(fqdn("t.lan")))]);
    let first = planned(&alias, &listing(&["10.0.0.1 a.lan # signpost=home"], &[]), &policy());
    assert_eq!(
        (adds(&first), removes(&first).len(), first.unfinished),
        (vec!["a.lan,t.lan # signpost=home".to_owned()], 0, true)
    );
    let second =
        planned(&alias, &listing(&["10.0.0.1 a.lan # signpost=home"], &["a.lan,t.lan # signpost=home"]), &policy());
    assert_eq!((adds(&second).len(), removes(&second)), (0, vec!["10.0.0.1 a.lan # signpost=home".to_owned()]));
}

#[test]
fn aliases_wait_while_the_resolver_may_not_restart_and_addresses_do_not() {
    let snapshot = snapshot(&[
        claimant("app", 1, &["a.lan"], Target::Alias(fqdn("t.lan"))),
        claimant("other", 1, &["b.lan"], to("10.0.0.1")),
    ]);
    let (listing, policy, ownership) = (listing(&[], &[]), policy(), marked());
    let input = PlanInput {
        snapshot: &snapshot,
        listing: &listing,
        ownership: &ownership,
        policy: &policy,
        may_restart: false,
        now: NOW,
    };
    let plan = hosts::make(&input, &mut GuardMemory::default());
    assert_eq!((adds(&plan), plan.deferred), (vec!["10.0.0.1 b.lan # signpost=home".to_owned()], true));
}

#[test]
fn with_a_ledger_host_and_address_make_a_record_ours_unless_shared() {
    let spec = |hosts: &[&str]| Listing { capabilities: Capabilities::SPEC, ..listing(hosts, &[]) };
    let nobody = snapshot(&[]);
    assert_eq!(removes(&planned(&nobody, &spec(&["192.168.1.10 ours.lan"]), &policy())).len(), 1);
    assert!(planned(&nobody, &spec(&["10.0.0.9 ours.lan"]), &policy()).changes.is_empty());
    let shared = planned(&nobody, &spec(&["192.168.1.10 ours.lan", "10.0.0.9 ours.lan"]), &policy());
    assert_eq!((shared.changes.len(), shared.refusals[0].reason), (0, Reason::SharedLine));
    let other_type = planned(&nobody, &spec(&["192.168.1.10 ours.lan", "fd00::9 ours.lan"]), &policy());
    assert_eq!((other_type.changes.len(), other_type.refusals[0].reason), (0, Reason::SharedLine), "deleted by name");
    let moved = snapshot(&[claimant("app", 1, &["ours.lan"], to("10.0.0.7"))]);
    let moved = planned(&moved, &spec(&["192.168.1.10 ours.lan", "fd00::9 ours.lan"]), &policy());
    assert_eq!((moved.changes.len(), moved.refusals[0].reason), (0, Reason::SharedLine), "changed by name");
    let six = Target::Addresses { v4: Wanted::Nothing, v6: Wanted::Value("fd00::1".parse().unwrap()) };
    let six = planned(&snapshot(&[claimant("app", 1, &["a.lan"], six)]), &spec(&[]), &policy());
    assert_eq!(six.refusals[0].reason, Reason::Unsupported);
}

#[test]
fn planning_the_planned_changes_nothing() {
    let snapshot = snapshot(&[
        claimant("one", 3, &["a.lan", "b.lan"], to("10.0.0.1")),
        claimant("two", 2, &["b.lan", "c.lan"], to("10.0.0.2")),
        claimant("three", 1, &["d.lan"], Target::Alias(fqdn("a.lan"))),
    ]);
    let mut before =
        listing(&["10.0.0.7 user.lan", "10.0.0.1 stale.lan # signpost=home", "10.0.0.9 a.lan # signpost=home"], &[]);
    for round in 0..3 {
        let plan = planned(&snapshot, &before, &policy());
        if plan.changes.is_empty() {
            assert!(round > 0);
            return;
        }
        let set = plan.change_set();
        before.hosts.retain(|line| !set.remove_hosts.contains(line));
        before.hosts.extend(set.add_hosts);
        before.cnames.retain(|line| !set.remove_cnames.contains(line));
        before.cnames.extend(set.add_cnames);
    }
    panic!("still planning: {before:?}");
}

#[test]
fn the_view_shows_what_is_there_and_never_what_was_forged() {
    let mut own = (*claimant("app", 1, &["a.lan", "b.lan"], to("10.0.0.1"))).clone();
    own.view = Some("forged.lan,old.lan,b.lan".into());
    let holder = |host: &Fqdn| ["a.lan", "b.lan"].contains(&host.undotted()).then(|| to("10.0.0.1"));
    let present = |host: &Fqdn| ["a.lan", "old.lan"].contains(&host.undotted());
    assert_eq!(view_of(&own, holder, present, true).as_deref(), Some("a.lan,old.lan"));
    assert_eq!(view_of(&own, holder, |_| false, true), None);
}

#[test]
fn unmarked_ledger_lines_get_a_marker_or_are_deleted_without_a_claim() {
    let wanted = snapshot(&[claimant("app", 1, &["kept.lan"], to("192.168.1.10"))]);
    let listing = listing(&["192.168.1.10 kept.lan", "192.168.1.10 old.lan", "192.168.1.10 mine.lan"], &[]);
    let unmarked = Ledger::from_text("192.168.1.10 kept.lan\n192.168.1.10 old.lan\n");
    let (policy, ownership) = (policy(), Ownership::Marker { owner: owner(), unmarked });
    let input = PlanInput {
        snapshot: &wanted,
        listing: &listing,
        ownership: &ownership,
        policy: &policy,
        may_restart: true,
        now: NOW,
    };
    let plan = hosts::make(&input, &mut GuardMemory::default());
    assert_eq!(adds(&plan), ["192.168.1.10 kept.lan # signpost=home"]);
    assert_eq!(removes(&plan), ["192.168.1.10 kept.lan", "192.168.1.10 old.lan"]);
}

#[test]
fn without_comments_both_address_types_are_written_but_no_aliases() {
    let both = Target::Addresses {
        v4: Wanted::Value("192.168.1.10".parse().unwrap()),
        v6: Wanted::Value("fd00::10".parse().unwrap()),
    };
    let wanted = snapshot(&[
        claimant("app", 1, &["app.lan"], both),
        claimant("www", 1, &["www.lan"], Target::Alias(fqdn("app.lan"))),
    ]);
    let plain = Listing { capabilities: Capabilities::V6_WITHOUT_COMMENTS, ..listing(&[], &[]) };
    let plan = planned(&wanted, &plain, &policy());
    assert_eq!(adds(&plan), ["192.168.1.10 app.lan", "fd00::10 app.lan"]);
    assert_eq!(plan.refusals.iter().map(|refusal| refusal.reason).collect::<Vec<_>>(), [Reason::Unsupported]);
}

#[test]
fn only_aliases_that_close_a_loop_are_refused() {
    let alias = |name: &str, host: &str, target: &str| claimant(name, 1, &[host], Target::Alias(fqdn(target)));
    let wanted = snapshot(&[
        alias("self", "self.lan", "self.lan"),
        alias("a", "a.lan", "b.lan"),
        alias("b", "b.lan", "c.lan"),
        alias("c", "c.lan", "a.lan"),
        alias("user", "d.lan", "user.lan"),
        alias("good", "good.lan", "a.lan"),
    ]);
    let there = listing(&[], &["other.lan,user.lan,d.lan,300"]);
    let plan = planned(&wanted, &there, &policy());
    assert_eq!(
        adds(&plan),
        ["a.lan,b.lan # signpost=home", "b.lan,c.lan # signpost=home", "good.lan,a.lan # signpost=home"]
    );
    let refused: Vec<_> = plan.refusals.iter().map(|it| (it.host.clone().unwrap(), it.reason)).collect();
    let hosts = ["c.lan", "self.lan", "d.lan"];
    assert_eq!(refused, hosts.map(|host| (fqdn(host), Reason::AliasLoop)));
}

#[test]
fn an_alias_that_would_close_a_loop_does_not_break_a_served_alias() {
    let wanted = snapshot(&[
        claimant("new", 9, &["a.lan"], Target::Alias(fqdn("b.lan"))),
        claimant("served", 1, &["b.lan"], Target::Alias(fqdn("a.lan"))),
    ]);
    let there = listing(&["10.0.0.1 a.lan # signpost=home"], &["b.lan,a.lan # signpost=home"]);
    let plan = planned(&wanted, &there, &policy());
    assert!(plan.changes.is_empty(), "{:?}", plan.changes);
    assert_eq!(plan.refusals[0].reason, Reason::AliasLoop);
    // Reversed within one write, it is not a loop.
    let turned = snapshot(&[
        claimant("new", 9, &["a.lan"], Target::Alias(fqdn("b.lan"))),
        claimant("served", 1, &["b.lan"], to("10.0.0.1")),
    ]);
    let there = listing(&["10.0.0.1 b.lan # signpost=home"], &["b.lan,a.lan # signpost=home"]);
    let plan = planned(&turned, &there, &policy());
    assert_eq!(adds(&plan), ["a.lan,b.lan # signpost=home"]);
    assert_eq!(removes(&plan), ["b.lan,a.lan # signpost=home"]);
}

#[test]
fn with_overwrite_an_equal_record_is_taken_over_without_a_write() {
    let policy = Policy { conflict: ConflictPolicy::Overwrite, ..policy() };
    let wanted = snapshot(&[claimant("app", 1, &["x.lan"], to("10.0.0.1"))]);
    let there = |hosts: &[&str], capabilities| Listing { capabilities, ..listing(hosts, &[]) };
    for capabilities in [Capabilities::SPEC, Capabilities::V6_WITHOUT_COMMENTS] {
        let plan = planned(&wanted, &there(&["10.0.0.1 x.lan"], capabilities), &policy);
        assert_eq!((plan.changes.len(), plan.change_set().is_empty()), (1, true), "the ledger is all that is written");
    }
    let two = ["10.0.0.1 x.lan", "10.0.0.9 x.lan"];
    let exact = planned(&wanted, &there(&two, Capabilities::V6_WITHOUT_COMMENTS), &policy);
    assert_eq!((adds(&exact).len(), removes(&exact)), (0, vec![two[1].to_owned()]));
    let by_name = planned(&wanted, &there(&two, Capabilities::SPEC), &policy);
    assert_eq!((adds(&by_name).len(), removes(&by_name).len()), (1, 2), "deleting by name takes both");
    let marked = planned(&wanted, &listing(&["10.0.0.1 x.lan"], &[]), &policy);
    assert_eq!(adds(&marked), ["10.0.0.1 x.lan # signpost=home"], "where lines carry a marker, it gets one");
}

#[test]
fn a_users_line_that_appears_beside_ours_is_reported_or_overwritten() {
    let snapshot = snapshot(&[claimant("app", 1, &["x.lan"], to("10.0.0.1"))]);
    let both = listing(&["10.0.0.1 x.lan # signpost=home", "10.0.0.9 x.lan"], &[]);
    let skip = planned(&snapshot, &both, &policy());
    assert!(skip.changes.is_empty());
    assert_eq!((skip.refusals.len(), skip.refusals[0].reason), (1, Reason::ForeignRecord));
    assert!(skip.refusals[0].message.contains("also has a record that is not ours"));
    let overwrite = Policy { conflict: ConflictPolicy::Overwrite, ..policy() };
    let plan = planned(&snapshot, &both, &overwrite);
    assert_eq!((adds(&plan), removes(&plan)), (vec![], vec!["10.0.0.9 x.lan".to_owned()]));
    // A line with further names is kept, and so is a line of another cluster.
    for (line, reason) in
        [("10.0.0.9 x.lan nas.lan", Reason::SharedLine), ("10.0.0.9 x.lan # signpost=office", Reason::OtherOwner)]
    {
        let both = listing(&["10.0.0.1 x.lan # signpost=home", line], &[]);
        let plan = planned(&snapshot, &both, &overwrite);
        assert!(plan.changes.is_empty(), "{line}");
        assert_eq!(plan.refusals[0].reason, reason, "{line}");
    }
}

#[test]
fn ours_still_moves_while_a_users_line_is_beside_it() {
    let snapshot = snapshot(&[claimant("app", 1, &["x.lan"], to("10.0.0.2"))]);
    let both = listing(&["10.0.0.1 x.lan # signpost=home", "10.0.0.9 x.lan"], &[]);
    let plan = planned(&snapshot, &both, &policy());
    assert_eq!(
        (adds(&plan), removes(&plan)),
        (vec!["10.0.0.2 x.lan # signpost=home".to_owned()], vec!["10.0.0.1 x.lan # signpost=home".to_owned()])
    );
    assert_eq!(plan.refusals[0].reason, Reason::ForeignRecord);
}

#[test]
fn an_older_broken_ingress_leaves_a_free_host_to_a_younger_good_one() {
    let keep = Target::Addresses { v4: Wanted::Keep, v6: Wanted::Nothing };
    let claimants = [claimant("broken", 9, &["x.lan"], keep), claimant("good", 1, &["x.lan"], to("10.0.0.1"))];
    let snapshot = snapshot(&claimants);
    let good = ingress_id("default", "good");
    let free = planned(&snapshot, &listing(&[], &[]), &policy());
    assert_eq!(adds(&free), ["10.0.0.1 x.lan # signpost=home"]);
    assert!(free.refusals.is_empty(), "{:?}", free.refusals);
    assert_eq!(free.yielded.get(&fqdn("x.lan")), Some(&good));
    // And stays with it.
    let settled = planned(&snapshot, &listing(&["10.0.0.1 x.lan # signpost=home"], &[]), &policy());
    assert!(settled.changes.is_empty() && settled.refusals.is_empty());
    assert_eq!(settled.yielded.get(&fqdn("x.lan")), Some(&good));
    // A record from before the error is kept, and the refusal of the younger Ingress names the older one.
    let kept = planned(&snapshot, &listing(&["10.0.0.7 x.lan # signpost=home"], &[]), &policy());
    assert!(kept.changes.is_empty() && kept.yielded.is_empty());
    let [refusal] = kept.refusals.as_slice() else { panic!("{:?}", kept.refusals) };
    assert_eq!((refusal.reason, refusal.ingress.as_ref()), (Reason::HostTaken, Some(&good)));
    assert!(
        refusal.message.contains("default/broken") && refusal.message.contains("cannot be used"),
        "{}",
        refusal.message
    );
}

#[test]
fn a_name_that_has_a_users_a_gets_no_aaaa_of_ours() {
    let both = Target::Addresses {
        v4: Wanted::Value("10.0.0.1".parse().unwrap()),
        v6: Wanted::Value("fd00::1".parse().unwrap()),
    };
    let snapshot = snapshot(&[claimant("app", 1, &["nas.lan"], both)]);
    let taken = planned(&snapshot, &listing(&["10.0.0.9 nas.lan"], &[]), &policy());
    assert!(taken.changes.is_empty());
    assert!(taken.refusals.iter().all(|refusal| refusal.reason == Reason::ForeignRecord));
    let overwrite = Policy { conflict: ConflictPolicy::Overwrite, ..policy() };
    let plan = planned(&snapshot, &listing(&["10.0.0.9 nas.lan"], &[]), &overwrite);
    assert_eq!(adds(&plan), ["10.0.0.1 nas.lan # signpost=home", "fd00::1 nas.lan # signpost=home"]);
    // A user's AAAA beside our A may be intended.
    let plan = planned(&snapshot, &listing(&["fd00::9 nas.lan"], &[]), &policy());
    assert_eq!(adds(&plan), ["10.0.0.1 nas.lan # signpost=home"]);
}
