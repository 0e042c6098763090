//! The three-way diff: what to write so that what is served becomes what is wanted.
//!
//! In: *previous* (the keys we published: the proof that they are ours), *current* (what is there now), *desired* (what
//! is wanted), *keep* (claims that stand but could not be read), and whether records that are not ours may be adopted.
//! Out: [`Changes`]. A key that is neither ours nor adopted is never changed; a key that is desired or kept is never
//! deleted.

use std::collections::{BTreeMap, BTreeSet};

use signpost_dns::{Fqdn, RecordKey, RecordSet};

use crate::refusal::{Reason, Refusal, Refused};

/// A value that can be published.
pub trait Published: Clone {
    /// Whether serving `other` instead makes no difference.
    fn same_meaning(&self, other: &Self) -> bool;
}

impl Published for RecordSet {
    fn same_meaning(&self, other: &Self) -> bool {
        RecordSet::same_meaning(self, other)
    }
}

/// For worlds in which the key says it all, such as the lines of a Pi-hole.
impl Published for () {
    fn same_meaning(&self, (): &Self) -> bool {
        true
    }
}

/// What happens when something that is wanted is already there and not provably ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adoption {
    /// Refuse it, even when it is exactly what is wanted.
    Never,
    /// Take it over when it is exactly what is wanted: nothing is written, and a crash between publishing and noting
    /// it down heals by itself.
    #[default]
    Identical,
    /// Take it over and make it what is wanted.
    Always,
}

/// What a diff looks at.
#[derive(Clone, Copy, Debug)]
pub struct World<'a, K, V> {
    /// What we published before.
    pub previous: &'a BTreeSet<K>,
    /// What is there now.
    pub current: &'a BTreeMap<K, V>,
    /// What is wanted.
    pub desired: &'a BTreeMap<K, V>,
    /// What must stay as it is although it is not among what is wanted: its object is there but cannot be read now.
    pub keep: &'a BTreeSet<K>,
}

/// A value that becomes another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<V> {
    /// What is there.
    pub from: V,
    /// What is wanted.
    pub to: V,
}

/// What to write, and what not, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<K, V> {
    /// Not there and wanted.
    pub create: BTreeMap<K, V>,
    /// Ours, or adopted, and different from what is wanted.
    pub update: BTreeMap<K, Update<V>>,
    /// Ours and no longer wanted, with what is there.
    pub delete: BTreeMap<K, V>,
    /// Ours and as wanted.
    pub unchanged: BTreeSet<K>,
    /// Not ours so far, exactly as wanted, and ours from now on without a write.
    pub adopted: BTreeSet<K>,
    /// Ours, and left as it is because its object cannot be read now.
    pub kept: BTreeSet<K>,
    /// Ours once, no longer wanted, and already gone.
    pub gone: BTreeSet<K>,
    /// Wanted and not done.
    pub refused: Vec<Refused<K>>,
}

/// Plans the writes that turn `current` into `desired`.
pub fn plan_changes<K, V>(world: &World<'_, K, V>, adoption: Adoption) -> Changes<K, V>
where
    K: Ord + Clone + std::fmt::Display,
    V: Published,
{
    let World { previous, current, desired, keep } = *world;
    let mut changes = Changes::default();
    for (key, to) in desired {
        let ours = previous.contains(key);
        let Some(from) = current.get(key) else {
            changes.create.insert(key.clone(), to.clone());
            continue;
        };
        match (ours, from.same_meaning(to), adoption) {
            (true, true, _) => {
                changes.unchanged.insert(key.clone());
            }
            (false, true, Adoption::Identical | Adoption::Always) => {
                changes.adopted.insert(key.clone());
            }
            (true, false, _) | (false, false, Adoption::Always) => {
                changes.update.insert(key.clone(), Update { from: from.clone(), to: to.clone() });
            }
            (false, _, Adoption::Never) | (false, false, Adoption::Identical) => {
                let message = format!(
                    "{key} is already there and was not published by us; delete it at the provider, or allow adoption"
                );
                changes
                    .refused
                    .push(Refused { key: key.clone(), refusal: Refusal::new(Reason::ForeignRecord, message) });
            }
        }
    }
    for key in previous.iter().filter(|key| !desired.contains_key(key)) {
        match current.get(key) {
            _ if keep.contains(key) => {
                changes.kept.insert(key.clone());
            }
            Some(from) => {
                changes.delete.insert(key.clone(), from.clone());
            }
            None => {
                changes.gone.insert(key.clone());
            }
        }
    }
    changes
}

impl<K, V> Default for Changes<K, V> {
    fn default() -> Self {
        Self {
            create: BTreeMap::new(),
            update: BTreeMap::new(),
            delete: BTreeMap::new(),
            unchanged: BTreeSet::new(),
            adopted: BTreeSet::new(),
            kept: BTreeSet::new(),
            gone: BTreeSet::new(),
            refused: Vec::new(),
        }
    }
}

impl<K: Ord + Clone, V: Clone> Changes<K, V> {
    /// Whether nothing is to be written at the provider.
    pub fn is_quiet(&self) -> bool {
        self.writes() == 0
    }

    /// How many writes there are.
    pub fn writes(&self) -> usize {
        self.create.len() + self.update.len() + self.delete.len()
    }

    /// What is ours once all of it is written: the next pass's *previous*.
    pub fn owned_after(&self) -> BTreeSet<K> {
        let Self { create, update, delete: _, unchanged, adopted, kept, gone: _, refused: _ } = self;
        let keys = create.keys().chain(update.keys()).chain(unchanged).chain(adopted).chain(kept);
        keys.cloned().collect()
    }

    /// What is there once all of it is written to `current`.
    pub fn applied_to(&self, current: &BTreeMap<K, V>) -> BTreeMap<K, V> {
        let mut after = current.clone();
        after.retain(|key, _| !self.delete.contains_key(key));
        after.extend(self.create.iter().map(|(key, value)| (key.clone(), value.clone())));
        after.extend(self.update.iter().map(|(key, update)| (key.clone(), update.to.clone())));
        after
    }

    /// The same without its deletions, which stay ours: what is done while a guard holds them back.
    #[must_use]
    pub fn without_deletions(mut self) -> Self {
        let held = std::mem::take(&mut self.delete);
        self.kept.extend(held.into_keys());
        self
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a, V> {
    /// Remove the set.
    Delete(&'a RecordKey),
    /// Publish this in place of whatever of that key is there.
    Replace(&'a RecordKey, &'a V),
}

/// The writes at one name. They belong into one transaction: a name changes its type without a moment of having none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a, V> {
    /// The name.
    pub name: &'a Fqdn,
    /// Its writes: deletions first, because a CNAME cannot be added next to what it takes the place of.
    pub steps: Vec<Step<'a, V>>,
}

impl<V> Changes<RecordKey, V> {
    /// The writes by name, in the order to send them: names that are published first, names that only vanish last.
    pub fn groups(&self) -> Vec<Group<'_, V>> {
        let mut by_name: BTreeMap<&Fqdn, Vec<Step<'_, V>>> = BTreeMap::new();
        let deletes = self.delete.keys().map(|key| (key, Step::Delete(key)));
        let creates = self.create.iter().map(|(key, value)| (key, Step::Replace(key, value)));
        let updates = self.update.iter().map(|(key, update)| (key, Step::Replace(key, &update.to)));
        for (key, step) in deletes.chain(creates).chain(updates) {
            by_name.entry(&key.name).or_default().push(step);
        }
        let only_deletes = |group: &Group<'_, V>| group.steps.iter().all(|step| matches!(step, Step::Delete(_)));
        let groups = by_name.into_iter().map(|(name, steps)| Group { name, steps });
        let (last, mut ordered): (Vec<_>, Vec<_>) = groups.partition(only_deletes);
        ordered.extend(last);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use signpost_dns::Ttl;

    use super::*;

    type Sets = BTreeMap<RecordKey, RecordSet>;

    fn sets(written: &[(&str, &str, &str)]) -> Sets {
        written
            .iter()
            .map(|(name, rtype, record)| {
                let name = Fqdn::parse(name).unwrap();
                let set = RecordSet::parse(name, rtype.parse().unwrap(), Ttl::new(60).unwrap(), [record]).unwrap();
                (set.key(), set)
            })
            .collect()
    }

    fn keys(written: &[(&str, &str)]) -> BTreeSet<RecordKey> {
        written.iter().map(|(name, rtype)| RecordKey::new(Fqdn::parse(name).unwrap(), rtype.parse().unwrap())).collect()
    }

    fn plan(
        previous: &[(&str, &str)],
        current: &[(&str, &str, &str)],
        desired: &[(&str, &str, &str)],
        adoption: Adoption,
    ) -> Changes<RecordKey, RecordSet> {
        let (previous, current, desired) = (keys(previous), sets(current), sets(desired));
        plan_changes(
            &World { previous: &previous, current: &current, desired: &desired, keep: &BTreeSet::new() },
            adoption,
        )
    }

    #[test]
    fn what_is_missing_is_created_whether_or_not_it_was_ours() {
        for previous in [&[][..], &[("www.ex", "A")]] {
            let changes = plan(previous, &[], &[("www.ex", "A", "192.0.2.1")], Adoption::Never);
            assert_eq!((changes.create.len(), changes.writes()), (1, 1));
        }
    }

    #[test]
    fn what_is_ours_is_brought_back_to_what_is_wanted() {
        let changes =
            plan(&[("www.ex", "A")], &[("www.ex", "A", "192.0.2.9")], &[("www.ex", "A", "192.0.2.1")], Adoption::Never);
        let update = changes.update.values().next().unwrap();
        assert_eq!(update.from.records.first().unwrap().to_string(), "192.0.2.9");
        assert_eq!(update.to.records.first().unwrap().to_string(), "192.0.2.1");
    }

    #[test]
    fn another_spelling_of_the_same_value_is_no_change() {
        let changes = plan(
            &[("www.ex", "AAAA")],
            &[("www.ex", "AAAA", "::ffff:192.0.2.1")],
            &[("WWW.ex.", "AAAA", "0:0:0:0:0:ffff:c000:201")],
            Adoption::Never,
        );
        assert!(changes.is_quiet());
        assert_eq!(changes.unchanged, keys(&[("www.ex", "AAAA")]));
    }

    #[test]
    fn what_is_ours_and_no_longer_wanted_is_deleted_or_already_gone() {
        let changes = plan(&[("a.ex", "A"), ("b.ex", "A")], &[("a.ex", "A", "192.0.2.1")], &[], Adoption::Never);
        assert_eq!(changes.delete.keys().cloned().collect::<BTreeSet<_>>(), keys(&[("a.ex", "A")]));
        assert_eq!(changes.gone, keys(&[("b.ex", "A")]));
        assert!(changes.owned_after().is_empty());
    }

    #[test]
    fn what_is_not_ours_and_not_wanted_is_left_alone() {
        for adoption in [Adoption::Never, Adoption::Identical, Adoption::Always] {
            assert_eq!(plan(&[], &[("a.ex", "A", "192.0.2.1")], &[], adoption), Changes::default());
        }
    }

    #[test]
    fn a_foreign_record_is_refused_taken_over_or_changed_as_the_policy_says() {
        let same = |adoption| plan(&[], &[("a.ex", "A", "192.0.2.1")], &[("a.ex", "A", "192.0.2.1")], adoption);
        let other = |adoption| plan(&[], &[("a.ex", "A", "192.0.2.9")], &[("a.ex", "A", "192.0.2.1")], adoption);
        assert_eq!(same(Adoption::Never).refused.len(), 1);
        assert_eq!(other(Adoption::Never).refused.len(), 1);
        assert_eq!(same(Adoption::Identical).adopted.len(), 1);
        assert_eq!(other(Adoption::Identical).refused.len(), 1);
        assert_eq!(same(Adoption::Always).adopted.len(), 1);
        assert_eq!(other(Adoption::Always).update.len(), 1);
        let refused = other(Adoption::default()).refused;
        assert_eq!(refused.first().unwrap().refusal.reason, Reason::ForeignRecord);
        assert!(refused.first().unwrap().refusal.message.starts_with("a.ex. A is already there"));
    }

    #[test]
    fn an_object_that_cannot_be_read_keeps_what_it_published() {
        let (previous, current) = (keys(&[("a.ex", "A"), ("b.ex", "A")]), sets(&[("a.ex", "A", "192.0.2.1")]));
        let keep = previous.clone();
        let world = World { previous: &previous, current: &current, desired: &Sets::new(), keep: &keep };
        let changes = plan_changes(&world, Adoption::Never);
        assert!(changes.is_quiet());
        assert_eq!(changes.kept, previous);
        assert_eq!(changes.owned_after(), previous);
    }

    #[test]
    fn deletions_that_are_held_back_stay_ours() {
        let changes =
            plan(&[("a.ex", "A")], &[("a.ex", "A", "192.0.2.1")], &[("b.ex", "A", "192.0.2.2")], Adoption::Never);
        let held = changes.without_deletions();
        assert_eq!((held.create.len(), held.delete.len()), (1, 0));
        assert_eq!(held.owned_after(), keys(&[("a.ex", "A"), ("b.ex", "A")]));
    }

    #[test]
    fn a_name_that_changes_its_type_loses_the_old_one_first_and_in_one_group() {
        let changes = plan(
            &[("www.ex", "A"), ("a.ex", "A"), ("z.ex", "A")],
            &[("www.ex", "A", "192.0.2.1"), ("a.ex", "A", "192.0.2.1"), ("z.ex", "A", "192.0.2.1")],
            &[("www.ex", "CNAME", "lb.ex"), ("z.ex", "A", "192.0.2.2"), ("new.ex", "A", "192.0.2.3")],
            Adoption::Never,
        );
        let order: Vec<String> = changes
            .groups()
            .iter()
            .flat_map(|group| &group.steps)
            .map(|step| match step {
                Step::Delete(key) => format!("- {key}"),
                Step::Replace(key, _) => format!("+ {key}"),
            })
            .collect();
        assert_eq!(order, ["+ new.ex. A", "- www.ex. A", "+ www.ex. CNAME", "+ z.ex. A", "- a.ex. A"]);
    }

    #[allow(clippy::zero_sized_map_values, reason = "the key says it all, and the diff is over maps")]
    #[test]
    fn lines_without_a_value_are_compared_by_their_key() {
        let line = |text: &str| (text.to_owned(), ());
        let previous: BTreeSet<String> = ["192.0.2.1 a.ex".to_owned(), "192.0.2.2 b.ex".to_owned()].into();
        let current: BTreeMap<String, ()> =
            [line("192.0.2.1 a.ex"), line("192.0.2.2 b.ex"), line("10.0.0.1 nas")].into();
        let desired: BTreeMap<String, ()> = [line("192.0.2.1 a.ex"), line("192.0.2.3 c.ex")].into();
        let world = World { previous: &previous, current: &current, desired: &desired, keep: &BTreeSet::new() };
        let changes = plan_changes(&world, Adoption::Identical);
        assert_eq!(changes.create.keys().collect::<Vec<_>>(), ["192.0.2.3 c.ex"]);
        assert_eq!(changes.delete.keys().collect::<Vec<_>>(), ["192.0.2.2 b.ex"]);
        assert_eq!(changes.unchanged.iter().collect::<Vec<_>>(), ["192.0.2.1 a.ex"]);
    }
}
