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
