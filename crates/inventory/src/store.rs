//! The store: one writer at a time, readers on snapshots.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordType};

use crate::changes::{Batch, Change, Stream, Subscription};
use crate::conflict::{self, Conflict};
use crate::filter::Filter;
use crate::page::{self, Cursor, Page};
use crate::sorted::{Edit, Sorted};
use crate::view::{At, Entry, Judgement, Owner, Shared, View};

/// The views of one owner, in order.
type Views = Box<[Arc<View>]>;

/// The views of each owner.
type Owners = BTreeMap<Arc<Owner>, Views>;

/// Where the judgements on published names of a system come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgements {
    /// The views so far have them.
    Kept,
    /// The entries have them.
    Given,
}

/// Every name of the operator. Shared by reference; all methods take `&self`.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The views of each owner, in order. Its lock is held for a whole replacement.
    owners: Mutex<Owners>,
    /// The snapshot for readers. Its lock is held to copy or to set one pointer.
    current: RwLock<Arc<Snapshot>>,
    stream: Arc<Stream>,
}

/// How many views a replacement changed. Views that differ in the time of their check only do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Views that were not there.
    pub added: usize,
    /// Views that are different now.
    pub modified: usize,
    /// Views that are not there any more.
    pub removed: usize,
}

impl Inventory {
    /// An empty inventory.
    pub fn new() -> Self {
        Self::default()
    }

    /// All names as of now. It does not change any more.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces every view of an owner at once. Without entries, the owner is removed. A published name of a system keeps its judgement while its
    /// values are the same, because the system does not know it.
    pub fn replace(&self, owner: &Owner, entries: Vec<Entry>, now: Timestamp) -> Replaced {
        self.replace_in(&mut lock(&self.owners), owner, entries, Judgements::Kept, now)
    }

    fn replace_in(
        &self,
        owners: &mut Owners,
        owner: &Owner,
        entries: Vec<Entry>,
        judgements: Judgements,
        now: Timestamp,
    ) -> Replaced {
        let (owner, before) = owners.remove_entry(owner).unwrap_or_else(|| (Arc::new(owner.clone()), Box::default()));
        let (views, changes, edits) = merge(&owner, &before, ordered(entries), judgements, now.into());
        let mut replaced = Replaced::default();
        for change in &changes {
            match change {
                Change::Added(_) => replaced.added += 1,
                Change::Modified(_) => replaced.modified += 1,
                Change::Removed(_) => replaced.removed += 1,
            }
        }
        if !edits.is_empty() {
            self.publish(edits, changes);
        }
        if !views.is_empty() {
            owners.insert(owner, views.into_boxed_slice());
        }
        replaced
    }

    /// Sets what the resolvers answered for views of an owner; views without a judgement are unchanged.
    pub fn judge(&self, owner: &Owner, now: Timestamp, judgement: impl Fn(&View) -> Option<Judgement>) -> Replaced {
        let mut owners = lock(&self.owners);
        let Some(views) = owners.get(owner) else { return Replaced::default() };
        let judged = |view: &Arc<View>| {
            let entry = view.to_entry();
            match judgement(view) {
                Some(Judgement { status, reason, observed, checked_at }) => {
                    Entry { observed, checked_at, status, reason, ..entry }
                }
                None => entry,
            }
        };
        let entries = views.iter().map(judged).collect();
        self.replace_in(&mut owners, owner, entries, Judgements::Given, now)
    }

    /// The views of an owner, in order.
    pub fn views(&self, owner: &Owner) -> Vec<Arc<View>> {
        lock(&self.owners).get(owner).map(|views| views.to_vec()).unwrap_or_default()
    }

    /// Removes an owner and all of its views.
    pub fn remove(&self, owner: &Owner, now: Timestamp) -> Replaced {
        self.replace(owner, Vec::new(), now)
    }

    /// The owners of a system.
    pub fn owners(&self, system: &str) -> Vec<Owner> {
        lock(&self.owners).keys().filter(|owner| owner.system == system).map(|owner| Owner::clone(owner)).collect()
    }

    /// All names as of now, and from there on every change.
    pub fn subscribe(self: &Arc<Self>) -> (Arc<Snapshot>, Subscription) {
        let snapshot = self.snapshot();
        let subscription = Subscription::new(self.clone(), self.stream.clone(), snapshot.version);
        (snapshot, subscription)
    }

    /// Called with the lock of the owners held, so that versions are in order.
    fn publish(&self, edits: Vec<Edit<'_>>, changes: Vec<Change>) {
        let before = self.snapshot();
        let version = before.version + u64::from(!changes.is_empty());
        let snapshot = Arc::new(Snapshot { version, views: before.views.edited(edits) });
        // The replaced snapshot is freed after the lock.
        let replaced = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, snapshot)
        };
        drop((before, replaced));
        if !changes.is_empty() {
            self.stream.push(Batch { version, changes: changes.into_boxed_slice() });
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Entries in the order of their views. Of entries that differ in nothing but the times of a check, the first is kept.
fn ordered(mut entries: Vec<Entry>) -> Vec<Entry> {
    // Where each is after the one before it, no two are the same.
    if !entries.is_sorted_by(|one, next| one.order(next).is_lt()) {
        entries.sort_by(Entry::order);
        entries.dedup_by(|later, kept| later.same(kept));
    }
    entries
}

/// The shared parts of an owner's views, the last used ones first to be looked at.
#[derive(Default)]
struct Parts(Vec<Arc<Shared>>);

impl Parts {
    /// Entries differ mostly in their name, so few parts are enough to look at.
    const KEPT: usize = 16;

    fn of(&mut self, owner: &Arc<Owner>, entry: &Entry, old: Option<&Arc<View>>) -> Arc<Shared> {
        let known = self.0.iter().find(|shared| shared.shares(entry));
        if let Some(known) = known.or_else(|| self.0.iter().find(|shared| shared.suits(entry))) {
            return known.clone();
        }
        let kept = old.map(|old| &old.shared).filter(|shared| shared.suits(entry));
        let shared = kept.cloned().unwrap_or_else(|| View::share(owner, entry));
        if self.0.len() == Self::KEPT {
            self.0.remove(0);
        }
        self.0.push(shared.clone());
        shared
    }
}

/// The views of an owner after a replacement, what changed for readers, and what changes in the order. A view that is the same is kept.
fn merge<'a>(
    owner: &Arc<Owner>,
    before: &'a [Arc<View>],
    entries: Vec<Entry>,
    judgements: Judgements,
    now: At,
) -> (Vec<Arc<View>>, Vec<Change>, Vec<Edit<'a>>) {
    let mut views: Vec<Arc<View>> = Vec::with_capacity(entries.len());
    let most = entries.len().max(before.len());
    let (mut changes, mut edits) = (Vec::with_capacity(most), Vec::with_capacity(most));
    let mut before = before.iter().peekable();
    let mut parts = Parts::default();
    let remove = |view: &'a Arc<View>, changes: &mut Vec<Change>, edits: &mut Vec<Edit<'a>>| {
        changes.push(Change::Removed(view.clone()));
        edits.push(Edit::Remove(view));
    };
    for mut entry in entries {
        let again = |view: &Arc<View>| (view.name(), view.rtype()) == (&entry.name, entry.rtype);
        let last = views.last().filter(|view| again(view));
        // More than 65,536 sets of one name and type from one owner are left out.
        let Some(ordinal) = last.map_or(Some(0), |view| view.ordinal.checked_add(1)) else { continue };
        // Within one owner, name, type and number are the whole place.
        let order = |old: &View| (old.name(), old.rtype(), old.ordinal).cmp(&(&entry.name, entry.rtype, ordinal));
        let mut at = before.peek().map(|old| order(old));
        while at == Some(Ordering::Less)
            && let Some(removed) = before.next()
        {
            remove(removed, &mut changes, &mut edits);
            at = before.peek().map(|old| order(old));
        }
        let Some(old) = before.next_if(|_| at == Some(Ordering::Equal)) else {
            let shared = parts.of(owner, &entry, None);
            let view = Arc::new(View::new(entry, shared, ordinal, now));
            changes.push(Change::Added(view.clone()));
            edits.push(Edit::Insert(view.clone()));
            views.push(view);
            continue;
        };
        if judgements == Judgements::Kept && entry.awaits_judgement() && old.targets() == &entry.targets {
            (entry.status, entry.reason) = (old.status(), old.reason());
            (entry.observed, entry.checked_at) = (old.observed().clone(), old.checked_at());
        }
        let same = old.is_of(&entry);
        if same && old.is_as_old_as(&entry) {
            views.push(old.clone());
            continue;
        }
        let changed = if same { old.last_change } else { now };
        let shared = parts.of(owner, &entry, Some(old));
        let view = Arc::new(View::new(entry, shared, ordinal, changed));
        if !same {
            changes.push(Change::Modified(view.clone()));
        }
        edits.push(Edit::Replace(old, view.clone()));
        views.push(view);
    }
    for removed in before {
        remove(removed, &mut changes, &mut edits);
    }
    (views, changes, edits)
}

/// All names at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub(crate) version: u64,
    views: Sorted,
}

impl Snapshot {
    /// Counts the changes since the start.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many views there are.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every view, by name, type and owner.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<View>> {
        self.views.iter()
    }

    /// The views of a name, of all types and owners.
    pub fn get<'a>(&'a self, name: &'a Fqdn) -> impl Iterator<Item = &'a Arc<View>> {
        self.views.from(|view| view.name() < name).take_while(move |view| view.name() == name)
    }

    /// The views of a name and a type, of all owners.
    pub fn get_typed<'a>(&'a self, name: &'a Fqdn, rtype: Option<RecordType>) -> impl Iterator<Item = &'a Arc<View>> {
        self.get(name).filter(move |view| view.rtype() == rtype)
    }

    /// A page of the views that a filter keeps: those after the cursor, at most `limit` of them and [`crate::MAX_PAGE`].
    pub fn page(&self, filter: &Filter, after: Option<&Cursor>, limit: usize) -> Page {
        page::page(&self.views, filter, after, limit)
    }

    /// Names that two objects want with different targets, by name and type.
    pub fn conflicts(&self) -> impl Iterator<Item = Conflict> {
        conflict::conflicts(self.views.iter())
    }
}
