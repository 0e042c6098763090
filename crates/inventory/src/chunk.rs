//! A run of views in order, with what filters need beside them: a reader looks at the columns, and at a view only when it wants it.
//!
//! ```text
//!  leaves  │ [v0 … v7] [v8 … v15] …   shared by reference: a replaced view costs its leaf, and the others are not touched
//!  rows    │ state, type, number of the shared part     shared │ each part once
//!  names   │ "a.example.org.\nb.example.org.\n…"   one text, so that a search runs over it without a stop
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use memchr::{memchr_iter, memmem::Finder};
use signpost_dns::RecordType;

use crate::result::{Stage, SyncStatus};
use crate::view::{Shared, View, code_of};

/// Most views of a chunk. The names of an owner are spread over many chunks, and each that has one of them is made again when the owner is
/// replaced: small chunks leave more of the others as they are.
pub(crate) const MOST: usize = 64;

/// Views of a chunk that are copied when one of them is replaced.
const LEAF: usize = 8;

/// Views in order.
type Leaf = Arc<[Arc<View>]>;

/// A run of views.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// All but the last one have [`LEAF`] views.
    leaves: Box<[Leaf]>,
    rows: Box<[Row]>,
    shared: Box<[Arc<Shared>]>,
    /// How many shared parts there were when they were last collected from all views; some of them may not be used any more.
    collected: usize,
    names: Names,
}

/// What most filters need of a view.
#[derive(Clone, Copy, Debug)]
struct Row {
    state: u8,
    rtype: u8,
    shared: u16,
}

impl Row {
    fn of(view: &View, number: usize) -> Self {
        let shared = u16::try_from(number).unwrap_or(u16::MAX);
        Self { state: state(view.status(), view.stage()), rtype: view.code(), shared }
    }
}

/// The names of a chunk as one text, each with a dot and a line break at its end.
type Names = Arc<str>;

/// A set of views of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows([u64; MOST / 64]);

impl Rows {
    /// The first so many.
    pub(crate) fn first(count: usize) -> Self {
        let mut rows = Self::default();
        for (place, word) in rows.0.iter_mut().enumerate() {
            let here = count.saturating_sub(place * 64).min(64);
            *word = u64::MAX.checked_shr(u32::try_from(64 - here).unwrap_or_default()).unwrap_or_default();
        }
        rows
    }

    pub(crate) fn insert(&mut self, row: usize) {
        if let Some(word) = self.0.get_mut(row / 64) {
            *word |= 1 << (row % 64);
        }
    }

    pub(crate) fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Those that are in both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        self
    }

    /// In order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let ones = |(place, word): (usize, u64)| {
            std::iter::successors(Some(word), |word| Some(word & word.wrapping_sub(1)))
                .take_while(|word| *word != 0)
                .map(move |word| place * 64 + word.trailing_zeros() as usize)
        };
        self.0.into_iter().enumerate().flat_map(ones)
    }
}

fn names_of(views: &[Arc<View>]) -> Names {
    let mut text = String::with_capacity(views.iter().map(|view| view.name().undotted().len() + 2).sum());
    for view in views {
        text.push_str(view.name().undotted());
        text.push_str(".\n");
    }
    text.into()
}

impl Chunk {
    /// A chunk of these views.
    pub(crate) fn new(views: &[Arc<View>]) -> Self {
        Self::indexed(views.chunks(LEAF).map(Leaf::from).collect(), names_of(views))
    }

    /// A copy with other views in the places of some. The pairs of old and new views are in order, and each old view is in the chunk.
    pub(crate) fn replaced<'a>(&self, pairs: impl Iterator<Item = (&'a Arc<View>, Arc<View>)>) -> Self {
        let (mut rows, mut shared) = (self.rows.clone(), self.shared.to_vec());
        let mut leaves = self.leaves.clone();
        let mut pairs = pairs.peekable();
        for (number, leaf) in leaves.iter_mut().enumerate() {
            let Some((next, _)) = pairs.peek() else { break };
            if !leaf.iter().any(|view| Arc::ptr_eq(view, next)) {
                continue;
            }
            let edited = leaf.iter().enumerate().map(|(place, view)| {
                let Some((_, new)) = pairs.next_if(|(old, _)| Arc::ptr_eq(old, view)) else { return view.clone() };
                let known = shared.iter().rposition(|part| Arc::ptr_eq(part, &new.shared));
                let part = known.unwrap_or_else(|| {
                    shared.push(new.shared.clone());
                    shared.len() - 1
                });
                if let Some(row) = rows.get_mut(number * LEAF + place) {
                    *row = Row::of(&new, part);
                }
                new
            });
            *leaf = edited.collect();
        }
        debug_assert!(pairs.next().is_none(), "every replaced view is in the chunk");
        // Some parts may not be used any more.
        if shared.len() > 2 * self.collected + 8 {
            return Self::indexed(leaves, self.names.clone());
        }
        Self { leaves, rows, shared: shared.into(), collected: self.collected, names: self.names.clone() }
    }

    fn indexed(leaves: Box<[Leaf]>, names: Names) -> Self {
        let mut numbers: BTreeMap<*const Shared, usize> = BTreeMap::new();
        let mut shared: Vec<Arc<Shared>> = Vec::new();
        let mut last: Option<(*const Shared, usize)> = None;
        let mut rows = Vec::with_capacity(leaves.len() * LEAF);
        for view in leaves.iter().flat_map(|leaf| leaf.iter()) {
            let part = Arc::as_ptr(&view.shared);
            let number = match last {
                Some((same, number)) if same == part => number,
                _ => *numbers.entry(part).or_insert_with(|| {
                    shared.push(view.shared.clone());
                    shared.len() - 1
                }),
            };
            last = Some((part, number));
            rows.push(Row::of(view, number));
        }
        Self { leaves, rows: rows.into(), collected: shared.len(), shared: shared.into(), names }
    }

    /// How many views there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The views, in order.
    pub(crate) fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.leaves.iter().flat_map(|leaf| leaf.iter())
    }

    /// The view of a row.
    pub(crate) fn view(&self, row: usize) -> Option<&Arc<View>> {
        self.leaves.get(row / LEAF)?.get(row % LEAF)
    }

    pub(crate) fn first(&self) -> Option<&Arc<View>> {
        self.view(0)
    }

    pub(crate) fn last(&self) -> Option<&Arc<View>> {
        self.leaves.last()?.last()
    }

    /// The first row that `before` is false for; it is true for a beginning of the views.
    pub(crate) fn row_after(&self, before: impl Fn(&View) -> bool) -> usize {
        let leaf = self.leaves.partition_point(|leaf| leaf.last().is_some_and(|view| before(view)));
        let within = self.leaves.get(leaf).map_or(0, |leaf| leaf.partition_point(|view| before(view)));
        leaf * LEAF + within
    }

    /// The rows with these properties whose shared part is kept.
    pub(crate) fn rows(
        &self,
        keeps: impl Fn(&Shared) -> bool,
        status: Option<SyncStatus>,
        stage: Option<Stage>,
        rtype: Option<RecordType>,
    ) -> Rows {
        let mut rows = Rows::default();
        let (mut mask, mut wanted) = (0, 0);
        if let Some(status) = status {
            (mask, wanted) = (mask | 0xF0, wanted | state(status, Stage::default()));
        }
        if let Some(stage) = stage {
            (mask, wanted) = (mask | 0x0F, wanted | state(SyncStatus::default(), stage));
        }
        let code = rtype.map(|rtype| code_of(Some(rtype)));
        // A shared part is looked at once, and only for a row that fits otherwise.
        let mut kept: Vec<Option<bool>> = vec![None; self.shared.len()];
        for (number, row) in self.rows.iter().enumerate() {
            if row.state & mask != wanted || code.is_some_and(|code| code != row.rtype) {
                continue;
            }
            let place = usize::from(row.shared);
            let (Some(kept), Some(shared)) = (kept.get_mut(place), self.shared.get(place)) else { continue };
            if *kept.get_or_insert_with(|| keeps(shared)) {
                rows.insert(number);
            }
        }
        // Types without a code share one.
        if let Some(rtype) = rtype.filter(|rtype| !RecordType::KNOWN.contains(rtype)) {
            let is = |row: &usize| self.view(*row).is_some_and(|view| view.rtype() == Some(rtype));
            let mut exact = Rows::default();
            rows.iter().filter(is).for_each(|row| exact.insert(row));
            return exact;
        }
        rows
    }

    /// The rows whose name has this text in it.
    pub(crate) fn search(&self, finder: &Finder<'_>) -> Rows {
        let (mut rows, mut from, mut row) = (Rows::default(), 0, 0);
        let text = self.names.as_bytes();
        while let Some(found) = text.get(from..).and_then(|rest| finder.find(rest)) {
            let place = from + found;
            row += memchr_iter(b'\n', text.get(from..place).unwrap_or_default()).count();
            rows.insert(row);
            // One hit in a name is enough.
            match text.get(place..).and_then(|rest| memchr::memchr(b'\n', rest)) {
                Some(end) => (from, row) = (place + end + 1, row + 1),
                None => break,
            }
        }
        rows
    }
}

/// Status and stage in one octet.
fn state(status: SyncStatus, stage: Stage) -> u8 {
    ((status as u8) << 4) | stage as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_and_listed_in_order() {
        let mut rows = Rows::default();
        for row in [63, 0, 32, 31, 5] {
            rows.insert(row);
        }
        assert_eq!(rows.iter().collect::<Vec<_>>(), [0, 5, 31, 32, 63]);
        assert_eq!((rows.count(), rows.is_empty(), Rows::default().is_empty()), (5, false, true));
        assert_eq!(rows.and(Rows::first(33)).iter().collect::<Vec<_>>(), [0, 5, 31, 32]);
        assert_eq!(Rows::first(MOST).count(), MOST);
    }
}
