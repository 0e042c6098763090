//! Deletion guards: a pass that would delete a large share of what is served is paused until a second pass plans the same deletions.
//!
//! In: the number of served items, the planned deletions, and those of the pass before. Out: a [`GuardDecision`]. An empty list or an unstable
//! source then delays deletions by a pass instead of emptying a zone.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

/// The limits of deletions in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionGuard {
    /// More than this share of what is served is too much.
    pub percent: u8,
    /// With fewer served than this, nothing is checked.
    pub from: usize,
    /// This many deletions are always allowed.
    pub allowance: usize,
}

impl DeletionGuard {
    /// For a zone: more than 30 % of it, from 10 record sets up.
    pub const ZONE: Self = Self { percent: 30, from: 10, allowance: 0 };
    /// For a list of our own entries: more than 50 % of it; up to 10 are always allowed.
    pub const LIST: Self = Self { percent: 50, from: 0, allowance: 10 };

    /// Whether this many deletions out of `served` need a confirmation.
    pub fn trips(&self, served: usize, deletions: usize) -> bool {
        // Wide enough for any count; a share of exactly the limit is still allowed.
        let share = |count: usize, factor: u128| u128::try_from(count).unwrap_or(u128::MAX).saturating_mul(factor);
        served >= self.from
            && deletions > self.allowance
            && share(deletions, 100) > share(served, u128::from(self.percent))
    }

    /// Checks a pass that would delete `deletions` (each counted once) out of `served`.
    ///
    /// `before` is the fingerprint of the previous verdict, if that pass was paused.
    pub fn check<D: fmt::Display>(
        &self,
        served: usize,
        deletions: impl IntoIterator<Item = D>,
        before: Option<&Fingerprint>,
        permission: Permission,
    ) -> GuardDecision {
        let names: BTreeSet<String> = deletions.into_iter().map(|name| name.to_string()).collect();
        if permission == Permission::Override || !self.trips(served, names.len()) {
            return GuardDecision::Allowed;
        }
        let fingerprint = Fingerprint::of(&names);
        if before == Some(&fingerprint) {
            return GuardDecision::Allowed;
        }
        GuardDecision::Paused { deletions: names.len(), served, fingerprint }
    }
}

/// The guard's state of a key between its passes: the deletions that were paused and that each pass since has planned, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardMemory {
    paused: Option<(Fingerprint, Timestamp)>,
}

impl GuardMemory {
    /// Checks a pass as [`DeletionGuard::check`] does. A second identical pass is allowed once `wait` has passed since the first. So are the
    /// passes after it that plan the same: the deletions failed, and waiting again would only report them again. A caller that does not check
    /// every pass clears the memory when the deletions are done.
    pub fn check<D: fmt::Display>(
        &mut self,
        guard: DeletionGuard,
        served: usize,
        deletions: impl IntoIterator<Item = D>,
        permission: Permission,
        wait: Duration,
        now: Timestamp,
    ) -> GuardDecision {
        let verdict = guard.check(served, deletions, None, permission);
        let GuardDecision::Paused { fingerprint, .. } = &verdict else {
            self.paused = None;
            return verdict;
        };
        let before = self.paused.filter(|(before, _)| before == fingerprint);
        self.paused = before.or(Some((*fingerprint, now)));
        let confirmed = before.is_some_and(|(_, since)| now.duration_since(since).unsigned_abs() >= wait);
        if confirmed { GuardDecision::Allowed } else { verdict }
    }

    /// Whether deletions are paused, or were allowed after a pause by the last pass.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }
}

/// Whether a user has allowed this pass to delete without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// The guard decides.
    #[default]
    Guarded,
    /// An override is set.
    Override,
}

/// The decision of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardDecision {
    /// The deletions are allowed.
    Allowed,
    /// The deletions are paused. The next pass may delete, if its deletions have the same fingerprint.
    Paused {
        /// The number of paused deletions.
        deletions: usize,
        /// The number of served items.
        served: usize,
        /// The paused deletions, for the next check.
        fingerprint: Fingerprint,
    },
}

/// Identifies a set of deletions without keeping it. Equal sets have equal fingerprints, in any order, in any process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// FNV-1a over the sorted names, each followed by a byte that no UTF-8 text contains.
    fn of(names: &BTreeSet<String>) -> Self {
        const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let octets = names.iter().flat_map(|name| name.bytes().chain([0xff]));
        Self(octets.fold(OFFSET, |hash, octet| (hash ^ u128::from(octet)).wrapping_mul(PRIME)))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Permission = Permission::Guarded;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("r{number}.example.com. A")).collect()
    }

    fn paused(verdict: &GuardDecision) -> Fingerprint {
        match verdict {
            GuardDecision::Paused { fingerprint, .. } => *fingerprint,
            GuardDecision::Allowed => panic!("allowed"),
        }
    }

    #[test]
    fn a_zone_may_lose_thirty_percent_and_not_one_record_more() {
        assert!(!DeletionGuard::ZONE.trips(10, 3));
        assert!(DeletionGuard::ZONE.trips(10, 4));
        assert!(!DeletionGuard::ZONE.trips(1000, 300));
        assert!(DeletionGuard::ZONE.trips(1000, 301));
    }

    #[test]
    fn a_zone_of_fewer_than_ten_may_lose_all() {
        assert!(!DeletionGuard::ZONE.trips(9, 9));
        assert!(DeletionGuard::ZONE.trips(10, 10));
    }

    #[test]
    fn a_pihole_may_lose_ten_lines_or_half_whichever_is_more() {
        assert!(!DeletionGuard::LIST.trips(10, 10));
        assert!(DeletionGuard::LIST.trips(11, 11));
        assert!(!DeletionGuard::LIST.trips(100, 50));
        assert!(DeletionGuard::LIST.trips(100, 51));
    }

    #[test]
    fn absurd_counts_do_not_overflow() {
        assert!(DeletionGuard::ZONE.trips(usize::MAX, usize::MAX));
        assert!(!DeletionGuard::ZONE.trips(usize::MAX, 1));
    }

    #[test]
    fn a_second_identical_pass_is_allowed_in_any_order() {
        let guard = DeletionGuard::ZONE;
        let first = paused(&guard.check(20, names(10), None, NOW));
        let reversed: Vec<_> = names(10).into_iter().rev().collect();
        assert_eq!(guard.check(20, reversed, Some(&first), NOW), GuardDecision::Allowed);
    }

    #[test]
    fn a_second_different_pass_is_paused_again() {
        let guard = DeletionGuard::ZONE;
        let first = paused(&guard.check(20, names(10), None, NOW));
        let second = paused(&guard.check(20, names(11), Some(&first), NOW));
        assert_ne!(first, second);
        assert_eq!(guard.check(20, names(11), Some(&second), NOW), GuardDecision::Allowed);
    }

    #[test]
    fn the_memory_allows_only_the_same_deletions_after_the_wait() {
        let (guard, wait) = (DeletionGuard::ZONE, Duration::from_secs(30));
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut memory = GuardMemory::default();
        let mut check =
            |count, second| memory.check(guard, 20, names(count), NOW, wait, at(second)) == GuardDecision::Allowed;
        assert!(!check(10, 0) && !check(10, 10), "too early");
        assert!(check(10, 30));
        assert!(!check(11, 80), "other deletions wait again");
        assert!(!check(11, 109) && check(11, 110));
    }

    #[test]
    fn deletions_that_failed_stay_allowed_until_a_pass_plans_others() {
        let (guard, wait) = (DeletionGuard::ZONE, Duration::from_secs(30));
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut memory = GuardMemory::default();
        let mut check =
            |count, second| memory.check(guard, 20, names(count), NOW, wait, at(second)) == GuardDecision::Allowed;
        assert!(!check(10, 0) && check(10, 30));
        assert!(check(10, 40) && check(10, 70), "they are not paused again");
        assert!(check(0, 80), "there is nothing to delete");
        assert!(!check(10, 90), "the same deletions wait again");
        assert!(!check(10, 119) && check(10, 120));
    }

    #[test]
    fn a_pass_without_deletions_ends_a_pause() {
        let mut memory = GuardMemory::default();
        let mut check =
            |count| memory.check(DeletionGuard::ZONE, 20, names(count), NOW, Duration::ZERO, Timestamp::UNIX_EPOCH);
        check(10);
        check(0);
        assert!(matches!(check(10), GuardDecision::Paused { .. }));
        assert!(memory.is_paused());
    }

    #[test]
    fn an_override_and_small_deletions_are_allowed() {
        assert_eq!(DeletionGuard::ZONE.check(20, names(20), None, Permission::Override), GuardDecision::Allowed);
        assert_eq!(DeletionGuard::ZONE.check(20, names(6), None, NOW), GuardDecision::Allowed);
    }

    #[test]
    fn the_verdict_counts_each_name_once() {
        let twice = names(8).into_iter().chain(names(8));
        let verdict = DeletionGuard::ZONE.check(20, twice, None, NOW);
        assert!(matches!(verdict, GuardDecision::Paused { deletions: 8, served: 20, .. }), "{verdict:?}");
    }

    #[test]
    fn names_that_join_to_the_same_text_have_different_fingerprints() {
        let guard = DeletionGuard { percent: 0, from: 0, allowance: 0 };
        let one = paused(&guard.check(9, ["ab", "c"], None, NOW));
        let other = paused(&guard.check(9, ["a", "bc"], None, NOW));
        assert_ne!(one, other);
        assert_eq!(one.to_string().len(), 32);
    }
}
