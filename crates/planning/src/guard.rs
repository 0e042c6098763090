//! Deletion guards: a pass that would delete much of what is served waits until a second pass wants exactly the same.
//!
//! In: how much is served, what would be deleted, what the pass before wanted to delete. Out: a [`Verdict`]. An empty
//! list, a flapping source or a half-read cluster then costs a pass, not a zone.

use std::collections::BTreeSet;
use std::fmt;

/// When a pass deletes too much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionGuard {
    /// More than this share of what is served is too much.
    pub percent: u8,
    /// With fewer served than this, the guard does not look.
    pub from: usize,
    /// So many deletions are always allowed.
    pub allowance: usize,
}

impl DeletionGuard {
    /// For a zone: more than 30 % of it, from 10 record sets up.
    pub const ZONE: Self = Self { percent: 30, from: 10, allowance: 0 };
    /// For a Pi-hole: more than 50 % of our lines, but at least 10 go at once.
    pub const PIHOLE: Self = Self { percent: 50, from: 0, allowance: 10 };

    /// Whether so many deletions out of so many served need a confirmation.
    pub fn trips(&self, served: usize, deletions: usize) -> bool {
        // Wide enough for any count; a share of exactly the limit is still allowed.
        let share = |count: usize, factor: u128| u128::try_from(count).unwrap_or(u128::MAX).saturating_mul(factor);
        served >= self.from
            && deletions > self.allowance
            && share(deletions, 100) > share(served, u128::from(self.percent))
    }

    /// Judges a pass that would delete `deletions` (each named once) while `served` are there.
    ///
    /// `before` is the fingerprint of the verdict that held the previous pass, if it was held.
    pub fn check<D: fmt::Display>(
        &self,
        served: usize,
        deletions: impl IntoIterator<Item = D>,
        before: Option<&Fingerprint>,
        permission: Permission,
    ) -> Verdict {
        let names: BTreeSet<String> = deletions.into_iter().map(|name| name.to_string()).collect();
        if permission == Permission::Override || !self.trips(served, names.len()) {
            return Verdict::Allowed;
        }
        let fingerprint = Fingerprint::of(&names);
        if before == Some(&fingerprint) {
            return Verdict::Allowed;
        }
        Verdict::Held { deletions: names.len(), served, fingerprint }
    }
}

/// Whether a user has allowed this pass to delete as much as it wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// The guard decides.
    #[default]
    Guarded,
    /// An override is set.
    Override,
}

/// What the guard says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go ahead.
    Allowed,
    /// Delete nothing in this pass. The next pass may, if its deletions have the same fingerprint.
    Held {
        /// How many deletions wait.
        deletions: usize,
        /// How many are served.
        served: usize,
        /// What waits, to be given to the next check.
        fingerprint: Fingerprint,
    },
}

/// Identifies a set of deletions without keeping it. Equal sets have equal fingerprints, in any order, in any process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// FNV-1a over the sorted names, each closed by a byte no UTF-8 text contains.
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
