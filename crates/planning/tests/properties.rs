//! Properties of planning: the order of the input does not matter.

// A strategy that cannot create its value must fail the test.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};
use signpost_planning::{Candidates, Claim, Claims, DeletionGuard, GuardDecision, Permission, Reason, admit};

const TYPES: [RecordType; 5] = [RecordType::A, RecordType::Cname, RecordType::Txt, RecordType::Ns, RecordType::Dname];

/// Few names and types, so that they collide.
fn key() -> impl Strategy<Value = RecordKey> {
    (prop::sample::select(vec!["example.com", "a.example.com", "b.example.com"]), prop::sample::select(TYPES.to_vec()))
        .prop_map(|(name, rtype)| RecordKey::new(Fqdn::parse(name).unwrap(), rtype))
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
    fn claims_in_any_order_have_the_same_holder(
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
    fn the_claims_of_a_key_are_sorted_and_have_each_holder_once(claims in vec(claim(), 0..20)) {
        let all = made(&claims);
        for key in 0..3_u8 {
            let queue: Vec<_> = all.queue(&key).collect();
            prop_assert!(queue.is_sorted());
            let holders: BTreeSet<u8> = queue.iter().map(|claim| claim.holder).collect();
            let expected: BTreeSet<u8> = claims.iter().filter(|claim| claim.0 == key).map(|claim| claim.1).collect();
            prop_assert_eq!(holders.len(), queue.len());
            prop_assert_eq!(holders, expected);
        }
    }

    #[test]
    fn a_claim_added_and_removed_changes_nothing(claims in vec(claim(), 0..20), key in 0..3_u8) {
        let before = made(&claims);
        let mut after = before.clone();
        after.insert(key, Claim::new(99, Timestamp::from_second(1).unwrap(), "ab"));
        after.remove(&key, &99);
        prop_assert_eq!(after, before);
    }

    #[test]
    fn admitted_record_sets_can_coexist(
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
        // No claim loses to a younger one: the winner is older, or foreign.
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
    fn the_guard_pauses_by_its_rule_and_allows_a_second_identical_pass(
        served in 0..60_usize,
        share in 0..=100_usize,
        guard in prop::sample::select(vec![DeletionGuard::ZONE, DeletionGuard::LIST]),
    ) {
        let deletions = served * share / 100;
        let names: Vec<usize> = (0..deletions).collect();
        let too_much = if guard == DeletionGuard::ZONE {
            served >= 10 && deletions * 10 > served * 3
        } else {
            deletions > 10.max(served / 2)
        };
        match guard.check(served, &names, None, Permission::Guarded) {
            GuardDecision::Allowed => prop_assert!(!too_much),
            GuardDecision::Paused { fingerprint, deletions: counted, served: of } => {
                prop_assert!(too_much);
                prop_assert_eq!((counted, of), (deletions, served));
                let reversed = names.iter().rev();
                prop_assert_eq!(guard.check(served, reversed, Some(&fingerprint), Permission::Guarded), GuardDecision::Allowed);
                let other = names.iter().map(|name| name + 1);
                prop_assert_ne!(guard.check(served, other, Some(&fingerprint), Permission::Guarded), GuardDecision::Allowed);
                prop_assert_eq!(guard.check(served, &names, None, Permission::Override), GuardDecision::Allowed);
            }
        }
    }
}
