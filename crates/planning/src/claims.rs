//! Claims: which of several objects that want the same key owns it.
//!
//! In: claims as objects are created and deleted, in any order. Out: the holder of a key (oldest claim, then lowest UID, then holder) and
//! the queue behind it. The answer depends on the claims alone, not on their order of arrival.
//!
//! The order of [`Claim`] is the only one: every system compares claims. Two variants differ in what decides between claims of one second:
//! the name alone ([`Claim::by_name`]), or what is served already ([`Claim::cmp_served`]).

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

/// One object's request to own a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim<H> {
    /// Since when: the object's creation.
    pub since: Timestamp,
    /// The object's UID, which decides between claims of one second; empty where its name does.
    pub uid: Arc<str>,
    /// The object.
    pub holder: H,
}

impl<H> Claim<H> {
    /// A claim of `holder` since then.
    pub fn new(holder: H, since: Timestamp, uid: impl Into<Arc<str>>) -> Self {
        Self { since, uid: uid.into(), holder }
    }

    /// A claim of `holder` since then. The first by name is the owner among claims of one second: the same one after a restore from a backup, which
    /// changes every UID.
    pub fn by_name(holder: H, since: Timestamp) -> Self {
        Self::new(holder, since, "")
    }
}

impl<H: Ord> Claim<H> {
    /// The same order where it is known which claims are served already: of two claims of one second, the one that is served more is first.
    pub fn cmp_served<S: Ord>(&self, served: &S, other: &Self, other_served: &S) -> Ordering {
        self.since.cmp(&other.since).then_with(|| other_served.cmp(served)).then_with(|| self.cmp(other))
    }
}

/// The position of a claim after it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing<H> {
    /// It owns the key. `displaced` owned it before and now waits.
    Holds {
        /// The holder that lost the key to an older claim, if there was one.
        displaced: Option<H>,
    },
    /// Another object owns the key.
    Waits {
        /// The owner of the key.
        holder: H,
    },
}

/// All claims on one key: the first apart from the rest, so that an uncontested key needs no further allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ClaimQueue<H> {
    first: Claim<H>,
    /// In order after the first.
    rest: Vec<Claim<H>>,
}

/// The claims on all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims<K, H> {
    queues: BTreeMap<K, ClaimQueue<H>>,
}

impl<K, H> Default for Claims<K, H> {
    fn default() -> Self {
        Self { queues: BTreeMap::new() }
    }
}

impl<K: Ord, H: Ord + Clone> Claims<K, H> {
    /// No claims.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a claim. An earlier claim of the same holder on the key is replaced.
    pub fn insert(&mut self, key: K, claim: Claim<H>) -> Standing<H> {
        let before = self.holder_of(&key).map(|first| first.holder.clone());
        self.withdraw(&key, &claim.holder);
        let claimant = claim.holder.clone();
        let Some(queue) = self.queues.get_mut(&key) else {
            self.queues.insert(key, ClaimQueue { first: claim, rest: Vec::new() });
            return Standing::Holds { displaced: None };
        };
        match queue.add(claim) {
            Some(holder) => Standing::Waits { holder },
            None => Standing::Holds { displaced: before.filter(|before| *before != claimant) },
        }
    }

    /// Withdraws a holder's claim; returns the claim that owns the key now, if that is a change.
    pub fn remove(&mut self, key: &K, holder: &H) -> Option<&Claim<H>> {
        let owned = self.is_owned_by(key, holder);
        self.withdraw(key, holder);
        if owned { self.holder_of(key) } else { None }
    }

    /// The claim that owns the key.
    pub fn holder_of(&self, key: &K) -> Option<&Claim<H>> {
        self.queues.get(key).map(|queue| &queue.first)
    }

    /// Whether the key is owned by that holder.
    pub fn is_owned_by(&self, key: &K, holder: &H) -> bool {
        self.holder_of(key).is_some_and(|first| first.holder == *holder)
    }

    /// The claims after the holder's, next one first.
    pub fn waiting(&self, key: &K) -> impl Iterator<Item = &Claim<H>> {
        self.queues.get(key).into_iter().flat_map(|queue| &queue.rest)
    }

    /// All claims on the key, the holder's first.
    pub fn queue(&self, key: &K) -> impl Iterator<Item = &Claim<H>> {
        self.holder_of(key).into_iter().chain(self.waiting(key))
    }

    /// Every claimed key and the claim that owns it, in order.
    pub fn owned(&self) -> impl Iterator<Item = (&K, &Claim<H>)> {
        self.queues.iter().map(|(key, queue)| (key, &queue.first))
    }

    /// How many keys are claimed.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    fn withdraw(&mut self, key: &K, holder: &H) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if queue.first.holder != *holder {
            queue.rest.retain(|claim| claim.holder != *holder);
            queue.rest.shrink_to_fit();
        } else if queue.rest.is_empty() {
            self.queues.remove(key);
        } else {
            queue.first = queue.rest.remove(0);
            queue.rest.shrink_to_fit();
        }
    }
}

impl<H: Ord + Clone> ClaimQueue<H> {
    /// Inserts a claim; returns the holder it waits for, or `None` when it is the first itself.
    fn add(&mut self, claim: Claim<H>) -> Option<H> {
        if claim < self.first {
            let second = std::mem::replace(&mut self.first, claim);
            self.rest.insert(0, second);
            return None;
        }
        let place = self.rest.partition_point(|other| *other < claim);
        self.rest.insert(place, claim);
        Some(self.first.holder.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(holder: &'static str, second: i64, uid: &str) -> Claim<&'static str> {
        Claim::new(holder, Timestamp::from_second(second).unwrap(), uid)
    }

    fn holders(claims: &Claims<&str, &'static str>, key: &'static str) -> Vec<&'static str> {
        claims.queue(&key).map(|claim| claim.holder).collect()
    }

    #[test]
    fn the_oldest_claim_owns_the_key_and_the_others_wait_by_age() {
        let mut claims = Claims::new();
        assert_eq!(claims.insert("www", claim("b", 2, "u2")), Standing::Holds { displaced: None });
        assert_eq!(claims.insert("www", claim("c", 3, "u3")), Standing::Waits { holder: "b" });
        assert_eq!(claims.insert("www", claim("a", 1, "u1")), Standing::Holds { displaced: Some("b") });
        assert_eq!(holders(&claims, "www"), ["a", "b", "c"]);
        assert_eq!(claims.waiting(&"www").map(|claim| claim.holder).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn claims_of_one_second_are_ordered_by_uid() {
        let mut claims = Claims::new();
        claims.insert("www", claim("a", 1, "u2"));
        claims.insert("www", claim("b", 1, "u1"));
        assert_eq!(holders(&claims, "www"), ["b", "a"]);
    }

    #[test]
    fn of_one_second_the_served_claim_is_first_then_the_uid_decides() {
        let (older, low, high) = (claim("a", 1, "u9"), claim("b", 2, "u1"), claim("c", 2, "u2"));
        assert_eq!(high.cmp_served(&true, &low, &false), Ordering::Less);
        assert_eq!(high.cmp_served(&true, &older, &false), Ordering::Greater, "age is first");
        assert_eq!(low.cmp_served(&true, &high, &true), Ordering::Less);
        assert_eq!(low.cmp_served(&false, &high, &false), low.cmp(&high));
    }

    #[test]
    fn claims_by_name_are_ordered_by_age_then_by_name() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut claims = [Claim::by_name("b", at(2)), Claim::by_name("c", at(1)), Claim::by_name("a", at(2))];
        claims.sort();
        assert_eq!(claims.map(|claim| claim.holder), ["c", "a", "b"]);
    }

    #[test]
    fn removing_the_holder_passes_the_key_to_the_next_claim() {
        let mut claims = Claims::new();
        for (holder, second) in [("a", 1), ("b", 2), ("c", 3)] {
            claims.insert("www", claim(holder, second, "u"));
        }
        assert_eq!(claims.remove(&"www", &"a").map(|claim| claim.holder), Some("b"));
        assert_eq!(claims.remove(&"www", &"c"), None);
        assert_eq!(claims.remove(&"www", &"stranger"), None);
        assert_eq!(holders(&claims, "www"), ["b"]);
        assert_eq!(claims.remove(&"www", &"b"), None);
        assert!(claims.is_empty());
    }

    #[test]
    fn deleting_a_duplicate_keeps_the_winner() {
        let mut claims = Claims::new();
        claims.insert("www", claim("winner", 1, "u1"));
        claims.insert("www", claim("duplicate", 2, "u2"));
        assert_eq!(claims.remove(&"www", &"duplicate"), None);
        assert!(claims.is_owned_by(&"www", &"winner"));
    }

    #[test]
    fn a_repeated_claim_keeps_its_place_but_a_recreated_object_does_not() {
        let mut claims = Claims::new();
        claims.insert("www", claim("a", 1, "u1"));
        claims.insert("www", claim("b", 2, "u2"));
        assert_eq!(claims.insert("www", claim("a", 1, "u1")), Standing::Holds { displaced: None });
        assert_eq!(holders(&claims, "www"), ["a", "b"]);
        assert_eq!(claims.insert("www", claim("a", 3, "u3")), Standing::Waits { holder: "b" });
        assert_eq!(holders(&claims, "www"), ["b", "a"]);
    }

    #[test]
    fn keys_are_independent() {
        let mut claims = Claims::new();
        claims.insert("www", claim("a", 1, "u1"));
        claims.insert("api", claim("b", 2, "u2"));
        assert_eq!(claims.len(), 2);
        let owned: Vec<_> = claims.owned().map(|(key, claim)| (*key, claim.holder)).collect();
        assert_eq!(owned, [("api", "b"), ("www", "a")]);
        assert_eq!(claims.holder_of(&"mail"), None);
    }
}
