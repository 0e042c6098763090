//! The last version of each object that was processed: a name and two hashes per object.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::{Kind, ObjectId};

/// The meaning of a listed or watched version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionChange {
    /// This version, or a later one, has been processed before.
    Seen,
    /// A new version with an unchanged spec: the status or metadata changed.
    Beside,
    /// A new object, or one whose spec changed.
    Wanted,
    /// The object seen before is deleted, and another one has its name.
    Replaced,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    uid: u64,
    /// The version itself where it is a number; else a hash of it.
    number: u64,
    ordered: bool,
    round: u32,
    /// The low bits of the generation, which distinguish a new spec from a new status.
    generation: u32,
    readable: bool,
}

/// The versions processed so far.
#[derive(Debug, Default)]
pub(super) struct SeenVersions {
    objects: HashMap<Box<str>, Version>,
    round: u32,
    unreadable: usize,
}

impl SeenVersions {
    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Notes a version and returns its meaning.
    pub(super) fn note(&mut self, meta: &ObjectMeta, readable: bool) -> VersionChange {
        let text = meta.resource_version.as_deref();
        let number = text.and_then(|text| text.parse().ok());
        let next = Version {
            uid: hash(meta.uid.as_deref()),
            number: number.unwrap_or_else(|| hash(text)),
            ordered: number.is_some(),
            round: self.round,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "only compared for equality")]
            generation: meta.generation.unwrap_or(0) as u32,
            readable,
        };
        match self.objects.entry(key(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())) {
            Entry::Vacant(place) => {
                place.insert(next);
                self.unreadable += usize::from(!readable);
                VersionChange::Wanted
            }
            Entry::Occupied(mut place) => {
                let before = *place.get();
                let replaced = before.uid != next.uid;
                let older = before.ordered && next.ordered && next.number < before.number;
                if !replaced && (older || next.number == before.number) {
                    place.get_mut().round = self.round;
                    return VersionChange::Seen;
                }
                place.insert(next);
                self.unreadable += usize::from(!readable);
                self.unreadable -= usize::from(!before.readable);
                if replaced {
                    VersionChange::Replaced
                } else if next.generation == before.generation && next.generation != 0 {
                    VersionChange::Beside
                } else {
                    VersionChange::Wanted
                }
            }
        }
    }

    /// The cluster was restored from an older state: every version is new again.
    pub(super) fn rewind(&mut self) {
        for version in self.objects.values_mut() {
            version.number = 0;
        }
    }

    /// Forgets an object. Returns false when it was not known.
    pub(super) fn remove(&mut self, meta: &ObjectMeta) -> bool {
        let key = key(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
        let removed = self.objects.remove(&key);
        self.unreadable -= usize::from(removed.is_some_and(|version| !version.readable));
        removed.is_some()
    }

    /// A list is complete: forgets and returns the objects that are not in it, sorted.
    pub(super) fn complete(&mut self, kind: &'static Kind) -> Vec<ObjectId> {
        let round = self.round;
        let mut deleted: Vec<ObjectId> = self
            .objects
            .extract_if(|_, version| version.round != round)
            .map(|(key, version)| {
                self.unreadable -= usize::from(!version.readable);
                match key.split_once('/') {
                    Some((namespace, name)) => ObjectId::of_kind(kind, Some(namespace), name),
                    None => ObjectId::of_kind(kind, None, &key),
                }
            })
            .collect();
        deleted.sort();
        deleted
    }

    /// How many objects there are, and how many of them cannot be read.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.objects.len(), self.unreadable)
    }
}

/// Neither a namespace nor a name can have a slash in it.
fn key(namespace: Option<&str>, name: &str) -> Box<str> {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}").into_boxed_str(),
        None => Box::from(name),
    }
}

fn hash(text: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn meta(name: &str, uid: &str, version: &str) -> ObjectMeta {
        ObjectMeta {
            namespace: Some("default".into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.into()),
            generation: Some(1),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_version_is_new_once() {
        let mut seen = SeenVersions::default();
        assert_eq!(seen.note(&meta("a", "1", "1"), true), VersionChange::Wanted);
        assert_eq!(seen.note(&meta("a", "1", "1"), true), VersionChange::Seen);
        assert_eq!(seen.note(&meta("a", "1", "2"), true), VersionChange::Beside);
        assert_eq!(seen.note(&meta("a", "2", "3"), true), VersionChange::Replaced);
    }

    #[test]
    fn a_new_generation_is_distinguished_from_a_new_status() {
        let mut seen = SeenVersions::default();
        let of = |version: &str, generation| ObjectMeta { generation, ..meta("a", "1", version) };
        seen.note(&of("1", Some(1)), true);
        assert_eq!(seen.note(&of("2", Some(1)), true), VersionChange::Beside);
        assert_eq!(seen.note(&of("3", Some(2)), true), VersionChange::Wanted);
        let mut seen = SeenVersions::default();
        seen.note(&of("1", None), true);
        assert_eq!(seen.note(&of("2", None), true), VersionChange::Wanted, "a kind without generations does not tell");
    }

    #[test]
    fn an_older_version_is_ignored_unless_the_cluster_was_restored() {
        let mut seen = SeenVersions::default();
        seen.note(&meta("a", "1", "10"), true);
        assert_eq!(seen.note(&meta("a", "1", "9"), true), VersionChange::Seen);
        assert_eq!(seen.note(&meta("a", "1", "10"), true), VersionChange::Seen);
        seen.rewind();
        assert_eq!(seen.note(&meta("a", "1", "9"), true), VersionChange::Beside);
    }

    #[test]
    fn only_a_complete_list_deletes() {
        let mut seen = SeenVersions::default();
        seen.begin();
        for name in ["a", "b", "c"] {
            seen.note(&meta(name, name, "1"), true);
        }
        assert!(seen.complete(Kind::of::<ConfigMap>()).is_empty());
        // A list that ends half-way...
        seen.begin();
        seen.note(&meta("a", "a", "1"), true);
        // ...is followed by a whole one, and only that one counts.
        seen.begin();
        seen.note(&meta("a", "a", "1"), true);
        seen.note(&meta("c", "c", "1"), true);
        let deleted = seen.complete(Kind::of::<ConfigMap>());
        assert_eq!(deleted, [ObjectId::new::<ConfigMap>(Some("default"), "b")]);
        assert_eq!(seen.count(), (2, 0));
    }

    #[test]
    fn unreadable_objects_are_counted_until_changed_or_deleted() {
        let mut seen = SeenVersions::default();
        seen.note(&meta("a", "1", "1"), false);
        assert_eq!(seen.note(&meta("a", "1", "1"), false), VersionChange::Seen);
        assert_eq!(seen.count(), (1, 1));
        seen.note(&meta("a", "1", "2"), true);
        assert_eq!(seen.count(), (1, 0));
        seen.note(&meta("a", "1", "3"), false);
        assert!(seen.remove(&meta("a", "1", "4")));
        assert!(!seen.remove(&meta("a", "1", "4")));
        assert_eq!(seen.count(), (0, 0));
    }
}
