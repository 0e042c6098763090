//! Which version of each object has been folded: a name and two hashes per object, nothing else.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::ObjectId;

/// What a listed or watched version means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// This version, or a later one, has been folded before.
    Old,
    /// A version not seen before.
    New,
    /// The object seen before is gone, and another one has its name.
    Reborn,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    uid: u64,
    /// The version itself where it is a number, as it always is today; else a hash of it.
    number: u64,
    ordered: bool,
    round: u32,
    readable: bool,
}

/// The versions folded so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    objects: HashMap<Box<str>, Version>,
    round: u32,
    unreadable: usize,
}

impl Seen {
    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Notes a version and says whether it is news.
    pub(super) fn note(&mut self, meta: &ObjectMeta, readable: bool) -> News {
        let text = meta.resource_version.as_deref();
        let number = text.and_then(|text| text.parse().ok());
        let next = Version {
            uid: hash(meta.uid.as_deref()),
            number: number.unwrap_or_else(|| hash(text)),
            ordered: number.is_some(),
            round: self.round,
            readable,
        };
        match self.objects.entry(key(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())) {
            Entry::Vacant(place) => {
                place.insert(next);
                self.unreadable += usize::from(!readable);
                News::New
            }
            Entry::Occupied(mut place) => {
                let before = *place.get();
                let reborn = before.uid != next.uid;
                let older = before.ordered && next.ordered && next.number < before.number;
                if !reborn && (older || next.number == before.number) {
                    place.get_mut().round = self.round;
                    return News::Old;
                }
                place.insert(next);
                self.unreadable += usize::from(!readable);
                self.unreadable -= usize::from(!before.readable);
                if reborn { News::Reborn } else { News::New }
            }
        }
    }

    /// The cluster has gone back in time (a restore): every version is news again.
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

    /// A list is complete: forgets and returns what was not in it, sorted.
    pub(super) fn complete(&mut self, kind: &'static str) -> Vec<ObjectId> {
        let round = self.round;
        let mut gone: Vec<ObjectId> = self
            .objects
            .extract_if(|_, version| version.round != round)
            .map(|(key, version)| {
                self.unreadable -= usize::from(!version.readable);
                match key.split_once('/') {
                    Some((namespace, name)) => ObjectId::new(kind, Some(namespace), name),
                    None => ObjectId::new(kind, None, &key),
                }
            })
            .collect();
        gone.sort();
        gone
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

    fn meta(name: &str, uid: &str, version: &str) -> ObjectMeta {
        ObjectMeta {
            namespace: Some("default".into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_version_is_news_once() {
        let mut seen = Seen::default();
        assert_eq!(seen.note(&meta("a", "1", "1"), true), News::New);
        assert_eq!(seen.note(&meta("a", "1", "1"), true), News::Old);
        assert_eq!(seen.note(&meta("a", "1", "2"), true), News::New);
        assert_eq!(seen.note(&meta("a", "2", "3"), true), News::Reborn);
    }

    #[test]
    fn an_older_version_is_no_news_unless_the_cluster_was_restored() {
        let mut seen = Seen::default();
        seen.note(&meta("a", "1", "10"), true);
        assert_eq!(seen.note(&meta("a", "1", "9"), true), News::Old);
        assert_eq!(seen.note(&meta("a", "1", "10"), true), News::Old);
        seen.rewind();
        assert_eq!(seen.note(&meta("a", "1", "9"), true), News::New);
    }

    #[test]
    fn only_a_complete_list_deletes() {
        let mut seen = Seen::default();
        seen.begin();
        for name in ["a", "b", "c"] {
            seen.note(&meta(name, name, "1"), true);
        }
        assert!(seen.complete("ConfigMap").is_empty());
        // A list that ends half-way...
        seen.begin();
        seen.note(&meta("a", "a", "1"), true);
        // ...is followed by a whole one, and only that one counts.
        seen.begin();
        seen.note(&meta("a", "a", "1"), true);
        seen.note(&meta("c", "c", "1"), true);
        let gone = seen.complete("ConfigMap");
        assert_eq!(gone, [ObjectId::new("ConfigMap", Some("default"), "b")]);
        assert_eq!(seen.count(), (2, 0));
    }

    #[test]
    fn unreadable_objects_are_counted_until_they_change_or_go() {
        let mut seen = Seen::default();
        seen.note(&meta("a", "1", "1"), false);
        assert_eq!(seen.note(&meta("a", "1", "1"), false), News::Old);
        assert_eq!(seen.count(), (1, 1));
        seen.note(&meta("a", "1", "2"), true);
        assert_eq!(seen.count(), (1, 0));
        seen.note(&meta("a", "1", "3"), false);
        assert!(seen.remove(&meta("a", "1", "4")));
        assert!(!seen.remove(&meta("a", "1", "4")));
        assert_eq!(seen.count(), (0, 0));
    }
}
