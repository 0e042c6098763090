//! Laws of planning: order never matters, planning the planned world changes nothing, and nobody's record is touched
//! who did not ask for it.

// A strategy that cannot make its value should stop the test.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use signpost_dns::{Fqdn, RecordKey, RecordSet, RecordType, Ttl, ZoneName};
use signpost_planning::{
    Adoption, Candidates, Claim, Claims, DeletionGuard, Permission, Reason, Step, Verdict, World, admit, plan_changes,
};

const TYPES: [RecordType; 5] = [RecordType::A, RecordType::Cname, RecordType::Txt, RecordType::Ns, RecordType::Dname];

/// Few names and types, so that they meet.
fn key() -> impl Strategy<Value = RecordKey> {
    (prop::sample::select(vec!["example.com", "a.example.com", "b.example.com"]), prop::sample::select(TYPES.to_vec()))
        .prop_map(|(name, rtype)| RecordKey::new(Fqdn::parse(name).unwrap(), rtype))
}

fn set(key: &RecordKey, variant: u8) -> RecordSet {
    let record = match key.rtype {
        RecordType::A => format!("192.0.2.{variant}"),
        RecordType::Txt => format!("\"{variant}\""),
        _ => format!("t{variant}.example.net"),
    };
    RecordSet::parse(key.name.clone(), key.rtype, Ttl::new(60).unwrap(), [record]).unwrap()
}

fn sets() -> impl Strategy<Value = BTreeMap<RecordKey, RecordSet>> {
    btree_map(key(), 0..3_u8, 0..10)
        .prop_map(|chosen| chosen.into_iter().map(|(key, variant)| (key.clone(), set(&key, variant))).collect())
}

fn adoption() -> impl Strategy<Value = Adoption> {
    prop::sample::select(vec![Adoption::Never, Adoption::Identical, Adoption::Always])
}

/// (key, holder, age, uid); few of each, so that ties happen.
fn claim() -> impl Strategy<Value = (u8, u8, i64, String)> {
    (0..3_u8, 0..6_u8, 0..3_i64, "[ab]{1,2}")
}

fn made(claims: &[(u8, u8, i64, String)]) -> Claims<u8, u8> {
    let mut all = Claims::new();
    for (key, holder, age, uid) in claims {
        all.insert(*key, Claim::new(*holder, Timestamp::from_second(*age).unwrap(), uid.as_str()));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn claims_made_in_any_order_come_to_the_same_holder(
        (claims, shuffled) in vec(claim(), 0..20)
            // One claim per key and holder: a later one would rightly replace the earlier one.
            .prop_map(|claims| {
                let unique: BTreeMap<(u8, u8), _> = claims.into_iter().map(|claim| ((claim.0, claim.1), claim)).collect();
                unique.into_values().collect::<Vec<_>>()
            })
            .prop_flat_map(|claims| (Just(claims.clone()), Just(claims).prop_shuffle())),
    ) {
        prop_assert_eq!(made(&claims), made(&shuffled));
    }

    #[test]
    fn the_line_is_sorted_and_holds_every_claimant_once(claims in vec(claim(), 0..20)) {
        let all = made(&claims);
        for key in 0..3_u8 {
            let line: Vec<_> = all.line(&key).collect();
            prop_assert!(line.is_sorted());
            let holders: BTreeSet<u8> = line.iter().map(|claim| claim.holder).collect();
            let expected: BTreeSet<u8> = claims.iter().filter(|claim| claim.0 == key).map(|claim| claim.1).collect();
            prop_assert_eq!(holders.len(), line.len());
            prop_assert_eq!(holders, expected);
        }
    }

    #[test]
    fn a_claim_that_came_and_went_leaves_no_trace(claims in vec(claim(), 0..20), key in 0..3_u8) {
        let before = made(&claims);
        let mut after = before.clone();
        after.insert(key, Claim::new(99, Timestamp::from_second(1).unwrap(), "ab"));
        after.remove(&key, &99);
        prop_assert_eq!(after, before);
    }

    #[test]
    fn planning_the_planned_world_changes_nothing(
        previous in btree_set(key(), 0..10),
        current in sets(),
        desired in sets(),
        keep in btree_set(key(), 0..3),
        adoption in adoption(),
    ) {
        let changes = plan_changes(&World { previous: &previous, current: &current, desired: &desired, keep: &keep }, adoption);
        let (owned, served) = (changes.owned_after(), changes.applied_to(&current));
        let again = plan_changes(&World { previous: &owned, current: &served, desired: &desired, keep: &keep }, adoption);
        prop_assert!(again.is_quiet(), "{:?}", again);
        prop_assert!(again.adopted.is_empty() && again.gone.is_empty());
        prop_assert_eq!(again.refused, changes.refused);
        prop_assert_eq!(again.kept, changes.kept);
    }

    #[test]
    fn what_is_wanted_is_served_afterwards_or_refused(
        previous in btree_set(key(), 0..10),
        current in sets(),
        desired in sets(),
        adoption in adoption(),
    ) {
        let world = World { previous: &previous, current: &current, desired: &desired, keep: &BTreeSet::new() };
        let changes = plan_changes(&world, adoption);
        let served = changes.applied_to(&current);
        for (key, wanted) in &desired {
            let refused = changes.refused.iter().any(|refused| refused.key == *key);
            prop_assert_eq!(refused, served.get(key) != Some(wanted) || (adoption == Adoption::Never && !previous.contains(key) && current.contains_key(key)));
        }
    }

    #[test]
    fn a_foreign_record_is_never_in_a_change(
        previous in btree_set(key(), 0..10),
        current in sets(),
        desired in sets(),
        keep in btree_set(key(), 0..3),
        adoption in prop::sample::select(vec![Adoption::Never, Adoption::Identical]),
    ) {
        let changes = plan_changes(&World { previous: &previous, current: &current, desired: &desired, keep: &keep }, adoption);
        let served = changes.applied_to(&current);
        for (key, value) in current.iter().filter(|(key, _)| !previous.contains(*key)) {
            prop_assert!(!changes.create.contains_key(key) && !changes.update.contains_key(key) && !changes.delete.contains_key(key));
            prop_assert_eq!(served.get(key), Some(value));
        }
    }

    #[test]
    fn not_even_adoption_deletes_a_foreign_record(current in sets(), desired in sets(), previous in btree_set(key(), 0..10)) {
        let world = World { previous: &previous, current: &current, desired: &desired, keep: &BTreeSet::new() };
        let changes = plan_changes(&world, Adoption::Always);
        prop_assert!(changes.delete.keys().all(|key| previous.contains(key)));
    }

    #[test]
    fn what_is_wanted_or_kept_is_never_deleted(
        previous in btree_set(key(), 0..10),
        current in sets(),
        desired in sets(),
        keep in btree_set(key(), 0..5),
        adoption in adoption(),
    ) {
        let changes = plan_changes(&World { previous: &previous, current: &current, desired: &desired, keep: &keep }, adoption);
        prop_assert!(changes.delete.keys().all(|key| !desired.contains_key(key) && !keep.contains(key)));
        let served = changes.applied_to(&current);
        for key in current.keys().filter(|key| desired.contains_key(*key) || keep.contains(*key)) {
            prop_assert!(served.contains_key(key));
        }
    }

    #[test]
    fn every_write_is_in_one_group_and_deletions_come_first_within_it(
        previous in btree_set(key(), 0..10),
        current in sets(),
        desired in sets(),
    ) {
        let world = World { previous: &previous, current: &current, desired: &desired, keep: &BTreeSet::new() };
        let changes = plan_changes(&world, Adoption::Always);
        let groups = changes.groups();
        prop_assert_eq!(groups.iter().map(|group| group.steps.len()).sum::<usize>(), changes.writes());
        let names: BTreeSet<_> = groups.iter().map(|group| group.name).collect();
        prop_assert_eq!(names.len(), groups.len());
        for group in &groups {
            prop_assert!(group.steps.is_sorted_by_key(|step| matches!(step, Step::Replace(..))));
        }
        let vanishes = |group: &signpost_planning::Group<'_, RecordSet>| group.steps.iter().all(|step| matches!(step, Step::Delete(_)));
        prop_assert!(groups.iter().map(vanishes).is_sorted());
    }

    #[test]
    fn admitted_record_sets_can_stand_side_by_side(
        wanted in btree_map(key(), (0..4_i64, "[ab]{1,2}", 0..9_u8), 0..12),
        foreign in btree_set(key(), 0..4),
    ) {
        let zone = ZoneName::parse("example.com").unwrap();
        let candidates: Candidates<u8> = wanted
            .into_iter()
            .map(|(key, (age, uid, holder))| (key, Claim::new(holder, Timestamp::from_second(age).unwrap(), uid)))
            .collect();
        let admission = admit(&zone, &candidates, &foreign);
        prop_assert_eq!(admission.admitted.len() + admission.refused.len(), candidates.len());
        let there: BTreeSet<&RecordKey> =
            admission.admitted.iter().chain(foreign.iter().filter(|key| !candidates.contains_key(*key))).collect();
        for cname in admission.admitted.iter().filter(|key| key.rtype == RecordType::Cname) {
            prop_assert!(cname.name != *zone.name());
            prop_assert!(there.iter().all(|other| other.name != cname.name || other.rtype == RecordType::Cname));
        }
        // Nobody loses to a younger claim: what a loser collides with is older, or not ours.
        for loser in admission.refused.iter().filter(|refused| refused.refusal.reason == Reason::CnameConflict) {
            let claim = &candidates[&loser.key];
            let beaten = there.iter().any(|other| {
                other.name == loser.key.name
                    && other.rtype != loser.key.rtype
                    && candidates.get(*other).is_none_or(|winner| (winner, *other) < (claim, &loser.key))
            });
            prop_assert!(beaten, "{:?}", loser);
        }
    }

    #[test]
    fn the_guard_holds_exactly_what_its_rule_says_and_lets_a_second_identical_pass_through(
        served in 0..60_usize,
        share in 0..=100_usize,
        guard in prop::sample::select(vec![DeletionGuard::ZONE, DeletionGuard::PIHOLE]),
    ) {
        let deletions = served * share / 100;
        let names: Vec<usize> = (0..deletions).collect();
        let too_much = if guard == DeletionGuard::ZONE {
            served >= 10 && deletions * 10 > served * 3
        } else {
            deletions > 10.max(served / 2)
        };
        match guard.check(served, &names, None, Permission::Guarded) {
            Verdict::Allowed => prop_assert!(!too_much),
            Verdict::Held { fingerprint, deletions: counted, served: of } => {
                prop_assert!(too_much);
                prop_assert_eq!((counted, of), (deletions, served));
                let reversed = names.iter().rev();
                prop_assert_eq!(guard.check(served, reversed, Some(&fingerprint), Permission::Guarded), Verdict::Allowed);
                let other = names.iter().map(|name| name + 1);
                prop_assert_ne!(guard.check(served, other, Some(&fingerprint), Permission::Guarded), Verdict::Allowed);
                prop_assert_eq!(guard.check(served, &names, None, Permission::Override), Verdict::Allowed);
            }
        }
    }
}
