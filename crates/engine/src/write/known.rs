//! The API server's state of the fields that we applied: a few numbers per object, from the watch and from the answers to our own writes.
//!
//! ```text
//!  watch, answers ─► digest of the fields that we own in the live object ─► Known
//!  wanted ─────────► digest of the content to apply ───────────────────────►   └─ equal? then nothing is sent
//! ```
//!
//! The newer resource version wins, so a late watch event does not hide a write of ours. Content that the server stores differently (a
//! default filled in, a field pruned) is remembered as a pair and not sent again either.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU64,
};

use serde_json::Value;

use super::{Proof, owned};
use crate::{
    hub::Compared,
    object::{Kind, ObjectId},
};

/// The part that is applied: the object itself or its status, by one field manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Part {
    /// Empty for the object itself, or `status`.
    pub(super) subresource: &'static str,
    /// Empty, or the name of the part of the operator that owns it.
    pub(super) owner: &'static str,
}

impl Part {
    pub(super) fn whole() -> Self {
        Self { subresource: "", owner: "" }
    }

    pub(super) fn status(owner: &'static str) -> Self {
        Self { subresource: "status", owner }
    }
}

/// The server's state of a part of an object.
#[derive(Clone, Copy, Debug)]
struct Known {
    uid: u64,
    /// The resource version of this state; 0 when it is not known.
    version: u64,
    deleting: bool,
    /// Whether `live` is from the object's own `managedFields`.
    by_fields: bool,
    /// The proof that it is ours, as a digest: it was checked, or written, when the object had these fields.
    proof: Option<Digest>,
    /// The digest of the fields that we own.
    live: Option<Digest>,
}

/// The digest of some content. An `Option` of it is not larger.
pub(super) type Digest = NonZeroU64;

/// The state of a child according to the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedChild {
    /// It is up to date.
    Same,
    /// There is no such object with fields of ours.
    Absent,
    /// It differs. In this version all fields that we applied are in place, and with them the proof that it is ours.
    Ours {
        /// The resource version.
        version: u64,
    },
    /// It differs, or the view is not current.
    Unknown,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Table {
    known: HashMap<u64, Known>,
    /// Content that the server stores differently: the digest that we applied, and the digest of what the server stored for it.
    reads_as: HashMap<u64, (Digest, Digest)>,
    /// Fields that only record when something happened, by kind; also the kinds whose status is reported.
    times: BTreeMap<&'static Kind, BTreeSet<&'static str>>,
    /// The owners of statuses.
    owners: BTreeSet<&'static str>,
    /// The streams of each kind of children, by their names.
    streams: BTreeMap<&'static Kind, BTreeMap<&'static str, Stream>>,
    /// Children that are being applied, and whether one was deleted since: then the answer is older than the deletion.
    applying: HashMap<u64, bool>,
    /// Children that only the answer to our own write has shown, by kind, with that version and their namespace: the watch has not
    /// delivered them yet.
    undelivered: BTreeMap<&'static Kind, HashMap<u64, (u64, Option<String>)>>,
}

/// A stream that delivers children of one kind.
#[derive(Debug, Default)]
struct Stream {
    /// The namespace whose objects it delivers; `None` for all namespaces.
    namespace: Option<String>,
    /// Whether it is complete and current.
    current: bool,
    /// The version of its last complete list.
    listed: Option<u64>,
}

impl Stream {
    fn covers(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_none() || self.namespace.as_deref() == namespace
    }
}

impl Table {
    /// Declares a kind whose status is written, and its fields that only record when something happened.
    pub(super) fn reported(&mut self, kind: &'static Kind, times: &[&'static str]) {
        self.times.entry(kind).or_default().extend(times);
    }

    /// Declares an owner of parts of statuses.
    pub(super) fn owner(&mut self, owner: &'static str) {
        self.owners.insert(owner);
    }

    /// Whether the server has something under the part.
    pub(super) fn owns(&self, id: &ObjectId, part: Part) -> bool {
        let live = self.known.get(&key(id, part)).and_then(|known| known.live);
        live.is_some_and(|live| live != self.empty_status(id))
    }

    /// Whether the server is known to have nothing under the part: its kind and its owner are compared, and nothing was seen.
    pub(super) fn has_nothing(&self, id: &ObjectId, part: Part) -> bool {
        let compared = part.owner.is_empty() || self.owners.contains(part.owner);
        compared && self.times.contains_key(id.kind) && !self.owns(id, part)
    }

    /// The digest of a status without fields.
    pub(super) fn empty_status(&self, id: &ObjectId) -> Digest {
        self.digest_of_status(id, &Value::Object(serde_json::Map::new()))
    }

    /// Whether what a stream delivers of a kind of children is complete and current. The namespace is `None` for all namespaces.
    pub(super) fn view_of(&mut self, kind: &'static Kind, name: &'static str, namespace: Option<&str>, current: bool) {
        let stream = self.streams.entry(kind).or_default().entry(name).or_default();
        stream.namespace = namespace.map(str::to_owned);
        stream.current = current;
    }

    /// Whether every stream that could deliver this child is complete and current, and there is one.
    fn is_viewed(&self, id: &ObjectId) -> bool {
        let Some(streams) = self.streams.get(id.kind) else { return false };
        let mut covering = streams.values().filter(|stream| stream.covers(id.namespace.as_deref())).peekable();
        covering.peek().is_some() && covering.all(|stream| stream.current)
    }

    /// The digest of the content to apply.
    pub(super) fn digest(&self, id: &ObjectId, part: Part, content: &Value) -> Digest {
        if part.subresource.is_empty() { digest(content, &|_| false) } else { digest(content, &self.is_time(id)) }
    }

    /// The digest of a status to apply.
    pub(super) fn digest_of_status(&self, id: &ObjectId, status: &Value) -> Digest {
        let mut hasher = DefaultHasher::new();
        feed_fields([("status", status)].into_iter(), &self.is_time(id), &mut hasher);
        finish(&hasher)
    }

    fn is_time(&self, id: &ObjectId) -> impl Fn(&str) -> bool {
        let times = self.times.get(id.kind);
        move |name| name == "lastTransitionTime" || times.is_some_and(|times| times.contains(name))
    }

    /// Whether the server has exactly this under the part of that incarnation.
    pub(super) fn has(&self, id: &ObjectId, uid: &str, part: Part, wanted: Digest) -> bool {
        let key = key(id, part);
        self.known.get(&key).is_some_and(|known| known.uid == hash_of(uid) && self.is(key, known, wanted))
    }

    fn is(&self, key: u64, known: &Known, wanted: Digest) -> bool {
        known.live.is_some_and(|live| live == wanted || self.reads_as.get(&key) == Some(&(wanted, live)))
    }

    /// The state of a child that should have this content.
    pub(super) fn child(&self, id: &ObjectId, wanted: Digest, proof: Digest) -> WatchedChild {
        if !self.is_viewed(id) {
            return WatchedChild::Unknown;
        }
        let key = key(id, Part::whole());
        match self.known.get(&key) {
            Some(known) if !known.deleting && self.is(key, known, wanted) => WatchedChild::Same,
            Some(known) if !known.deleting && known.proof == Some(proof) && known.version != 0 => {
                WatchedChild::Ours { version: known.version }
            }
            Some(_) => WatchedChild::Unknown,
            None => WatchedChild::Absent,
        }
    }

    /// Notes an object as the watch delivers it. `applied` is the object where it has fields of ours.
    pub(super) fn saw(
        &mut self,
        id: &ObjectId,
        uid: &str,
        (version, deleting): (u64, bool),
        applied: Option<&Value>,
        compared: Compared,
    ) {
        let mut parts = Vec::new();
        if compared.whole {
            parts.push(Part::whole());
            self.delivered(id);
        }
        if compared.status {
            parts.push(Part::status(""));
            parts.extend(self.owners.iter().copied().map(Part::status));
        }
        for part in parts {
            // The answer to our own write was the same state.
            if self.known.get(&key(id, part)).is_some_and(|known| known.is_state(hash_of(uid), version)) {
                continue;
            }
            let live = applied.and_then(|object| owned::extract(object, part.subresource, part.owner));
            let live = live.map(|live| self.digest(id, part, &live));
            self.note(id, part, Known { uid: hash_of(uid), version, deleting, by_fields: true, proof: None, live });
        }
    }

    /// A stream's list of a kind of children is complete. Children of an earlier version that no list and no watch has delivered are not in
    /// the cluster any more: they were deleted while the watch was broken. Returns whether there are such children.
    pub(super) fn listed(&mut self, kind: &'static Kind, name: &'static str, version: u64) -> bool {
        let streams = self.streams.entry(kind).or_default();
        streams.entry(name).or_default().listed = Some(version);
        let Some(undelivered) = self.undelivered.get_mut(kind) else { return false };
        let before = undelivered.len();
        let is_older = |answered: u64, namespace: Option<&str>| {
            listed_by_all(streams, namespace).is_some_and(|listed| answered <= listed)
        };
        for (key, _) in undelivered.extract_if(|_, (answered, namespace)| is_older(*answered, namespace.as_deref())) {
            self.known.remove(&key);
            self.reads_as.remove(&key);
        }
        undelivered.len() < before
    }

    /// The watch, or a list, has shown this child, or its deletion.
    fn delivered(&mut self, id: &ObjectId) {
        if let Some(undelivered) = self.undelivered.get_mut(id.kind) {
            undelivered.remove(&key(id, Part::whole()));
        }
    }

    /// Notes that only an answer has shown this child. Returns false when the child is deleted already: a complete list of a later version
    /// does not have it.
    fn undelivered(&mut self, id: &ObjectId, version: u64) -> bool {
        let key = key(id, Part::whole());
        if self.known.contains_key(&key) {
            return true;
        }
        let listed = self.streams.get(id.kind).and_then(|streams| listed_by_all(streams, id.namespace.as_deref()));
        if listed.is_some_and(|listed| version <= listed) {
            return false;
        }
        self.undelivered.entry(id.kind).or_default().insert(key, (version, id.namespace.clone()));
        true
    }

    /// An attempt to apply a child begins.
    pub(super) fn begin(&mut self, id: &ObjectId) {
        self.applying.insert(key(id, Part::whole()), false);
    }

    /// The child is applied, or that failed.
    pub(super) fn end(&mut self, id: &ObjectId) {
        self.applying.remove(&key(id, Part::whole()));
    }

    /// Notes the object that the API server returned for an apply of `wanted` under `part`. Returns false for a child that is deleted
    /// already, because a later list does not have it.
    pub(super) fn answered(&mut self, id: &ObjectId, uid: &str, part: Part, wanted: Digest, answer: &Value) -> bool {
        if !part.owner.is_empty() {
            self.owners.insert(part.owner);
        }
        if self.applying.get(&key(id, part)) == Some(&true) {
            return true;
        }
        let version = crate::object::version_of(answer.pointer("/metadata/resourceVersion").and_then(Value::as_str));
        if part == Part::whole() && !self.undelivered(id, version) {
            return false;
        }
        let deleting = answer.pointer("/metadata/deletionTimestamp").is_some();
        // An answer without managedFields counts as what was sent.
        let live = owned::extract(answer, part.subresource, part.owner).map(|live| self.digest(id, part, &live));
        let by_fields = live.is_some();
        let live = live.unwrap_or(wanted);
        self.note(id, part, Known { uid: hash_of(uid), version, deleting, by_fields, proof: None, live: Some(live) });
        let key = key(id, part);
        if live == wanted {
            self.reads_as.remove(&key);
        } else {
            self.reads_as.insert(key, (wanted, live));
        }
        true
    }

    /// Notes that a child, as it is in this answer, is ours by this proof. The watch may have delivered a later version since, which may have
    /// lost the proof.
    pub(super) fn proved(&mut self, id: &ObjectId, uid: &str, answer: &Value, proof: Digest) {
        let version = crate::object::version_of(answer.pointer("/metadata/resourceVersion").and_then(Value::as_str));
        if let Some(known) = self.known.get_mut(&key(id, Part::whole()))
            && (known.uid, known.version) == (hash_of(uid), version)
        {
            known.proof = Some(proof);
        }
    }

    /// Keeps the newer of two states.
    fn note(&mut self, id: &ObjectId, part: Part, new: Known) {
        let key = key(id, part);
        match self.known.get_mut(&key) {
            Some(old) => {
                let same = old.uid == new.uid;
                if !same || new.version >= old.version || new.version == 0 {
                    // The same fields are the same proof.
                    let proof = old.proof.filter(|_| same && new.by_fields && new.live == old.live);
                    *old = Known { proof, ..new };
                }
                if !same {
                    self.reads_as.remove(&key);
                }
            }
            // An object without anything of ours takes no memory.
            None if new.live.is_some() => {
                self.known.insert(key, new);
            }
            None => {}
        }
    }

    /// Forgets an object that is deleted.
    pub(super) fn forget(&mut self, id: &ObjectId) {
        self.delivered(id);
        let owners = self.owners.iter().copied().map(Part::status);
        for part in owners.chain([Part::whole(), Part::status("")]) {
            let key = key(id, part);
            self.known.remove(&key);
            self.reads_as.remove(&key);
            if let Some(deleted) = self.applying.get_mut(&key) {
                *deleted = true;
            }
        }
    }

    /// Forgets everything: the cluster was restored from an older state, and versions can no longer be compared.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.reads_as.clear();
        self.undelivered.clear();
        for stream in self.streams.values_mut().flat_map(BTreeMap::values_mut) {
            stream.listed = None;
        }
    }
}

/// The version up to which every stream that could deliver a child of this namespace has listed; `None` while one of them has not.
fn listed_by_all(streams: &BTreeMap<&'static str, Stream>, namespace: Option<&str>) -> Option<u64> {
    let covering = streams.values().filter(|stream| stream.covers(namespace));
    covering.map(|stream| stream.listed).min().flatten()
}

impl Known {
    /// Whether this is what is known of that very version.
    fn is_state(&self, uid: u64, version: u64) -> bool {
        self.by_fields && version != 0 && (self.uid, self.version) == (uid, version)
    }
}

fn key(id: &ObjectId, part: Part) -> u64 {
    hash_of(&(id, part))
}

/// The digest of a proof.
pub(super) fn digest_of_proof(proof: &Proof) -> Digest {
    let mut hasher = DefaultHasher::new();
    format!("{proof:?}").hash(&mut hasher);
    finish(&hasher)
}

fn hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A digest of a JSON value that does not depend on the order of keys, leaves out fields that only record when something happened, and
/// treats a missing field like `null`. A list of items with a `type`, such as conditions, is compared in any order: the server keeps its
/// own.
fn digest(value: &Value, is_time: &dyn Fn(&str) -> bool) -> Digest {
    let mut hasher = DefaultHasher::new();
    feed(value, is_time, &mut hasher);
    finish(&hasher)
}

fn finish(hasher: &DefaultHasher) -> Digest {
    Digest::new(hasher.finish()).unwrap_or(Digest::MIN)
}

fn feed(value: &Value, is_time: &dyn Fn(&str) -> bool, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(flag) => (1_u8, flag).hash(hasher),
        Value::Number(number) => (2_u8, number.to_string()).hash(hasher),
        Value::String(text) => (3_u8, text).hash(hasher),
        Value::Array(items) => {
            (4_u8, items.len()).hash(hasher);
            let mut items: Vec<&Value> = items.iter().collect();
            if items.iter().all(|item| item["type"].is_string()) {
                items.sort_by_key(|item| item["type"].as_str());
            }
            for item in items {
                feed(item, is_time, hasher);
            }
        }
        Value::Object(fields) => {
            feed_fields(fields.iter().map(|(name, value)| (name.as_str(), value)), is_time, hasher);
        }
    }
}

fn feed_fields<'a>(
    fields: impl Iterator<Item = (&'a str, &'a Value)>,
    is_time: &dyn Fn(&str) -> bool,
    hasher: &mut DefaultHasher,
) {
    let mut present: Vec<_> = fields.filter(|(name, value)| !value.is_null() && !is_time(name)).collect();
    present.sort_by_key(|(name, _)| *name);
    (5_u8, present.len()).hash(hasher);
    for (name, value) in present {
        name.hash(hasher);
        feed(value, is_time, hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    fn id() -> ObjectId {
        ObjectId::new::<ConfigMap>(Some("default"), "a")
    }

    fn live(version: u64, status: &Value, fields: &Value) -> Value {
        json!({
            "metadata": {
                "uid": "1", "resourceVersion": version.to_string(),
                "managedFields": [{"manager": "signpost", "operation": "Apply", "subresource": "status", "fieldsV1": fields}],
            },
            "status": status,
        })
    }

    const STATUS: Compared = Compared { status: true, whole: false };

    fn wanted(table: &Table, status: &Value) -> Digest {
        table.digest_of_status(&id(), status)
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_is_not_kept() {
        let mut table = Table::default();
        table.view_of(Kind::of::<ConfigMap>(), "configmaps", None, true);
        let content = json!({"data": {"k": "v"}});
        let digest = table.digest(&id(), Part::whole(), &content);
        let proof = digest_of_proof(&Proof::Labels(BTreeMap::new()));
        let answer = json!({"metadata": {"uid": "1", "resourceVersion": "7"}, "data": {"k": "v"}});
        for (deleted, view) in [(false, WatchedChild::Same), (true, WatchedChild::Absent)] {
            table.begin(&id());
            if deleted {
                table.forget(&id());
            }
            table.answered(&id(), "1", Part::whole(), digest, &answer);
            table.end(&id());
            assert_eq!(table.child(&id(), digest, proof), view, "deleted: {deleted}");
        }
        assert!(table.applying.is_empty());
    }

    #[test]
    fn a_child_that_a_later_list_does_not_have_is_forgotten() {
        let content = json!({"data": {"k": "v"}});
        let proof = digest_of_proof(&Proof::Labels(BTreeMap::new()));
        let answer = json!({"metadata": {"uid": "1", "resourceVersion": "7"}, "data": {"k": "v"}});
        let kind = Kind::of::<ConfigMap>();
        let whole = Compared { status: false, whole: true };
        // The version of the list, whether it has the child, whether the answer is later than the list, and the view afterwards.
        let cases = [
            (6, false, false, WatchedChild::Same),
            (9, false, false, WatchedChild::Absent),
            (9, false, true, WatchedChild::Absent),
            (9, true, false, WatchedChild::Same),
            (9, true, true, WatchedChild::Same),
        ];
        for (version, has, late, expected) in cases {
            let mut table = Table::default();
            table.view_of(kind, "configmaps", None, true);
            let digest = table.digest(&id(), Part::whole(), &content);
            let answered = |table: &mut Table| table.answered(&id(), "1", Part::whole(), digest, &answer);
            if !late {
                assert!(answered(&mut table));
            }
            if has {
                let object = json!({
                    "metadata": {"managedFields": [{"manager": "signpost", "operation": "Apply",
                        "fieldsV1": {"f:data": {"f:k": {}}}}]},
                    "data": {"k": "v"},
                });
                table.saw(&id(), "1", (7, false), Some(&object), whole);
            }
            let lost = table.listed(kind, "configmaps", version);
            assert_eq!(lost, !late && expected == WatchedChild::Absent, "list {version}, has {has}, late {late}");
            if late {
                assert_eq!(answered(&mut table), has);
            }
            assert_eq!(table.child(&id(), digest, proof), expected, "list {version}, has {has}, late {late}");
        }
    }

    #[test]
    fn a_late_event_does_not_hide_a_written_status() {
        let mut table = Table::default();
        let (old, new) = (json!({"serial": 1}), json!({"serial": 2}));
        let fields = json!({"f:status": {"f:serial": {}}});
        let digest = wanted(&table, &new);
        table.answered(&id(), "1", Part::status(""), digest, &live(7, &new, &fields));
        assert!(table.has(&id(), "1", Part::status(""), digest));
        table.saw(&id(), "1", (6, false), Some(&live(6, &old, &fields)), STATUS);
        assert!(table.has(&id(), "1", Part::status(""), digest), "version 6 is older than 7");
        table.saw(&id(), "1", (8, false), Some(&live(8, &old, &fields)), STATUS);
        assert!(!table.has(&id(), "1", Part::status(""), digest), "a foreign change at version 8");
        assert!(!table.has(&id(), "2", Part::status(""), digest), "another incarnation");
        table.forget(&id());
        assert!(table.known.is_empty());
    }

    #[test]
    fn an_empty_status_is_there_only_where_the_view_shows_nothing_of_ours() {
        let mut table = Table::default();
        let part = Part::status("pangolin");
        assert!(!table.has_nothing(&id(), part), "neither the kind nor the owner is compared");
        table.reported(id().kind, &[]);
        table.owner("pangolin");
        assert!(table.has_nothing(&id(), part) && !table.owns(&id(), part));
        let mut object = live(7, &json!({"host": "a"}), &json!({"f:status": {"f:host": {}}}));
        object["metadata"]["managedFields"][0]["manager"] = json!("signpost-pangolin");
        table.saw(&id(), "1", (7, false), Some(&object), STATUS);
        assert!(!table.has_nothing(&id(), part) && table.owns(&id(), part));
        let empty = table.empty_status(&id());
        table.answered(&id(), "1", part, empty, &json!({"metadata": {"uid": "1", "resourceVersion": "8"}}));
        assert!(table.has_nothing(&id(), part) && !table.owns(&id(), part));
    }

    #[test]
    fn a_field_taken_by_another_manager_is_not_ours() {
        let mut table = Table::default();
        let status = json!({"serial": 2, "name": "a"});
        table.saw(&id(), "1", (8, false), Some(&live(8, &status, &json!({"f:status": {"f:serial": {}}}))), STATUS);
        assert!(!table.has(&id(), "1", Part::status(""), wanted(&table, &status)));
        assert!(table.has(&id(), "1", Part::status(""), wanted(&table, &json!({"serial": 2}))));
    }

    #[test]
    fn a_status_stored_differently_is_not_sent_again() {
        let mut table = Table::default();
        let sent = json!({"serial": 2, "pruned": true});
        let digest = wanted(&table, &sent);
        let back = live(7, &json!({"serial": 2}), &json!({"f:status": {"f:serial": {}}}));
        table.answered(&id(), "1", Part::status(""), digest, &back);
        assert!(table.has(&id(), "1", Part::status(""), digest));
        let changed = live(8, &json!({"serial": 3}), &json!({"f:status": {"f:serial": {}}}));
        table.saw(&id(), "1", (8, false), Some(&changed), STATUS);
        assert!(!table.has(&id(), "1", Part::status(""), digest));
    }

    #[test]
    fn time_fields_and_the_order_of_conditions_are_ignored() {
        let mut table = Table::default();
        table.reported(Kind::of::<ConfigMap>(), &["checkedAt"]);
        let condition = |type_: &str, at: &str| json!({"type": type_, "status": "True", "lastTransitionTime": at});
        let one = json!({"checkedAt": "1", "conditions": [condition("A", "1"), condition("B", "1")]});
        let other = json!({"checkedAt": "2", "conditions": [condition("B", "2"), condition("A", "2")], "gone": null});
        assert_eq!(wanted(&table, &one), wanted(&table, &other));
        assert_ne!(wanted(&table, &one), wanted(&table, &json!({"conditions": [condition("A", "1")]})));
    }

    #[test]
    fn a_child_is_compared_by_watch_only_while_the_view_is_current() {
        let mut table = Table::default();
        let content = json!({"data": {"k": "v"}});
        let digest = table.digest(&id(), Part::whole(), &content);
        assert_eq!(table.child(&id(), digest, Digest::MIN), WatchedChild::Unknown);
        table.view_of(Kind::of::<ConfigMap>(), "configmaps", None, true);
        assert_eq!(table.child(&id(), digest, Digest::MIN), WatchedChild::Absent);
        let object = json!({
            "metadata": {"managedFields": [{"manager": "signpost", "operation": "Apply", "fieldsV1": {"f:data": {"f:k": {}}}}]},
            "data": {"k": "v", "theirs": "w"},
        });
        let whole = Compared { status: false, whole: true };
        table.saw(&id(), "1", (3, false), Some(&object), whole);
        assert_eq!(table.child(&id(), digest, Digest::MIN), WatchedChild::Same);
        table.saw(&id(), "1", (4, true), Some(&object), whole);
        assert_eq!(table.child(&id(), digest, Digest::MIN), WatchedChild::Unknown, "it is being deleted");
        table.view_of(Kind::of::<ConfigMap>(), "configmaps", None, false);
        assert_eq!(table.child(&id(), digest, Digest::MIN), WatchedChild::Unknown);
    }

    #[test]
    fn a_child_is_ours_without_a_read_while_its_proof_is_unchanged() {
        let mut table = Table::default();
        table.view_of(Kind::of::<ConfigMap>(), "configmaps", None, true);
        let object = |version: &str, value: &str| {
            json!({
                "metadata": {"resourceVersion": version, "managedFields": [
                    {"manager": "signpost", "operation": "Apply", "fieldsV1": {"f:data": {"f:k": {}}}}]},
                "data": {"k": value},
            })
        };
        let digest = |table: &Table, value: &str| table.digest(&id(), Part::whole(), &json!({"data": {"k": value}}));
        let (proof, other) = (Digest::new(7).unwrap(), Digest::new(8).unwrap());
        let (made, wanted) = (digest(&table, "v"), digest(&table, "w"));
        let whole = Compared { status: false, whole: true };
        table.saw(&id(), "1", (2, false), Some(&object("2", "v")), whole);
        assert_eq!(table.child(&id(), wanted, proof), WatchedChild::Unknown, "it was not checked yet");
        table.answered(&id(), "1", Part::whole(), made, &object("3", "v"));
        table.proved(&id(), "1", &object("3", "v"), proof);
        assert_eq!(table.child(&id(), wanted, proof), WatchedChild::Ours { version: 3 });
        assert_eq!(table.child(&id(), wanted, other), WatchedChild::Unknown, "another proof is another question");
        table.saw(&id(), "1", (4, false), Some(&object("4", "v")), whole);
        assert_eq!(
            table.child(&id(), wanted, proof),
            WatchedChild::Ours { version: 4 },
            "others changed something else"
        );
        table.saw(&id(), "1", (5, false), Some(&object("5", "x")), whole);
        assert_eq!(table.child(&id(), wanted, proof), WatchedChild::Unknown, "what we applied was changed");
        table.answered(&id(), "1", Part::whole(), made, &object("6", "v"));
        table.proved(&id(), "1", &object("6", "v"), proof);
        table.saw(&id(), "2", (7, false), Some(&object("7", "v")), whole);
        assert_eq!(table.child(&id(), wanted, proof), WatchedChild::Unknown, "another incarnation");
        // A user changed the object before the answer to our write arrived: the answer proves nothing about the later version.
        table.saw(&id(), "2", (9, false), Some(&object("9", "x")), whole);
        table.answered(&id(), "2", Part::whole(), made, &object("8", "v"));
        table.proved(&id(), "2", &object("8", "v"), proof);
        assert_eq!(
            table.child(&id(), wanted, proof),
            WatchedChild::Unknown,
            "the answer is older than what the watch delivered"
        );
    }

    #[test]
    fn objects_without_fields_of_ours_take_no_memory() {
        let mut table = Table::default();
        table.saw(&id(), "1", (3, false), None, STATUS);
        assert!(table.known.is_empty());
    }

    #[test]
    fn a_stream_of_another_namespace_shows_nothing_of_a_child() {
        let (mut table, kind) = (Table::default(), Kind::of::<ConfigMap>());
        let (a, b) = (ObjectId::new::<ConfigMap>(Some("a"), "child"), ObjectId::new::<ConfigMap>(Some("b"), "child"));
        let (wanted, proof) = (digest(&json!({"data": {}}), &|_| false), digest(&json!("proof"), &|_| false));
        table.view_of(kind, "configmaps in a", Some("a"), true);
        assert_eq!(
            (table.child(&a, wanted, proof), table.child(&b, wanted, proof)),
            (WatchedChild::Absent, WatchedChild::Unknown)
        );
        table.view_of(kind, "configmaps in b", Some("b"), true);
        assert_eq!(table.child(&b, wanted, proof), WatchedChild::Absent);
        // The watch of `b` breaks, and that of `a` is opened again.
        table.view_of(kind, "configmaps in b", Some("b"), false);
        table.view_of(kind, "configmaps in a", Some("a"), true);
        assert_eq!(
            (table.child(&a, wanted, proof), table.child(&b, wanted, proof)),
            (WatchedChild::Absent, WatchedChild::Unknown)
        );
        // A list of `a` does not show that a child of `b` was deleted.
        table.listed(kind, "configmaps in a", 105);
        assert!(table.undelivered(&b, 100));
        assert!(!table.listed(kind, "configmaps in a", 106));
        assert!(table.listed(kind, "configmaps in b", 101), "a list of its own namespace does");
        assert!(!table.undelivered(&b, 101));
    }

    #[test]
    fn a_child_is_viewed_when_every_stream_that_may_deliver_it_is_current() {
        let (mut table, kind) = (Table::default(), Kind::of::<ConfigMap>());
        let (wanted, proof) = (digest(&json!({"data": {}}), &|_| false), digest(&json!("proof"), &|_| false));
        table.view_of(kind, "labelled", None, true);
        table.view_of(kind, "named", Some("default"), false);
        assert_eq!(table.child(&id(), wanted, proof), WatchedChild::Unknown);
        table.view_of(kind, "named", Some("default"), true);
        assert_eq!(table.child(&id(), wanted, proof), WatchedChild::Absent);
    }
}
