//! Views in order, in chunks that snapshots share: a change copies the chunks that it touches and nothing else.
//!
//! ```text
//!  Sorted ─► [chunk, chunk, chunk, …]   each 16 to 64 views, shared by reference
//!  edited([remove a, insert b]) ─► the same chunks but those with a and b
//! ```

use std::sync::Arc;

use crate::chunk::{Chunk, MOST};
use crate::view::{Place, View};

/// A chunk with fewer views is joined with the next one.
const LEAST: usize = 16;

/// One edit at the place of its view. A view that is there is named by reference: finding it needs no look at the views before it.
#[derive(Clone, Debug)]
pub(crate) enum Edit<'a> {
    /// Removes this view.
    Remove(&'a Arc<View>),
    /// Replaces the first view by the second, which has the same place.
    Replace(&'a Arc<View>, Arc<View>),
    /// Inserts a view at a place that is free.
    Insert(Arc<View>),
}

impl<'a> Edit<'a> {
    /// The view that is replaced, and the new one.
    fn replacement(self) -> Option<(&'a Arc<View>, Arc<View>)> {
        match self {
            Self::Replace(old, new) => Some((old, new)),
            Self::Remove(_) | Self::Insert(_) => None,
        }
    }

    fn place(&self) -> Place<'_> {
        match self {
            Self::Remove(view) | Self::Replace(view, _) => view.place(),
            Self::Insert(view) => view.place(),
        }
    }
}

/// Views in the order of their places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    chunks: Vec<Arc<Chunk>>,
    len: usize,
}

impl Sorted {
    /// How many views there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Every view.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<View>> {
        self.chunks.iter().flat_map(|chunk| chunk.views())
    }

    /// The chunks, in order.
    pub(crate) fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// Every view whose place `before` is false for; it is true for a beginning of the order.
    pub(crate) fn from(&self, before: impl Fn(&View) -> bool) -> impl Iterator<Item = &Arc<View>> {
        let first = self.chunks.partition_point(|chunk| chunk.last().is_some_and(|view| before(view)));
        let chunks = self.chunks.get(first..).unwrap_or_default();
        let skipped = chunks.first().map_or(0, |chunk| chunk.row_after(&before));
        chunks.iter().flat_map(|chunk| chunk.views()).skip(skipped)
    }

    /// A copy with the edits, which are in order and have one edit per place at most.
    pub(crate) fn edited(&self, edits: Vec<Edit<'_>>) -> Self {
        let mut chunks: Vec<Arc<Chunk>> = Vec::with_capacity(self.chunks.len() + 1);
        let mut edits = edits.into_iter().peekable();
        // The rest of chunks that became too small, to be joined with the next one.
        let mut carried: Vec<Arc<View>> = Vec::new();
        let mut next = 0;
        while let Some(edit) = edits.peek() {
            let chunk = self.chunk_of(edit.place(), next);
            if chunk > next && !carried.is_empty() {
                carried.extend(self.views_of(next));
                split_into(&mut chunks, &mut carried);
                next += 1;
                continue;
            }
            chunks.extend(self.chunks.get(next..chunk).unwrap_or_default().iter().cloned());
            next = chunk + 1;
            let end = self.chunks.get(next).and_then(|chunk| chunk.first());
            let mut here = Vec::with_capacity(MOST);
            while let Some(edit) = edits.next_if(|edit| end.is_none_or(|end| edit.place() < end.place())) {
                here.push(edit);
            }
            match self.chunks.get(chunk) {
                Some(edited) if carried.is_empty() && here.iter().all(|edit| matches!(edit, Edit::Replace(..))) => {
                    chunks.push(Arc::new(edited.replaced(here.into_iter().filter_map(Edit::replacement))));
                }
                edited => {
                    apply(edited, here, &mut carried);
                    split_into(&mut chunks, &mut carried);
                }
            }
        }
        if !carried.is_empty() {
            carried.extend(self.views_of(next));
            next += 1;
            split_into(&mut chunks, &mut carried);
            if !carried.is_empty() {
                chunks.push(Arc::new(Chunk::new(&carried)));
            }
        }
        chunks.extend(self.chunks.get(next..).unwrap_or_default().iter().cloned());
        let len = chunks.iter().map(|chunk| chunk.len()).sum();
        Self { chunks, len }
    }

    fn views_of(&self, chunk: usize) -> impl Iterator<Item = Arc<View>> {
        self.chunks.get(chunk).into_iter().flat_map(|chunk| chunk.views()).cloned()
    }

    /// The chunk of a place, at or after `from`: the last one that begins at or before it. The next edit is often near, so the search begins there and
    /// doubles its steps.
    fn chunk_of(&self, place: Place<'_>, from: usize) -> usize {
        let begins = |chunk: &Arc<Chunk>| chunk.first().is_some_and(|view| view.place() <= place);
        let rest = self.chunks.get(from..).unwrap_or_default();
        let (mut low, mut step) = (0, 1);
        while rest.get(low + step - 1).is_some_and(begins) {
            low += step;
            step *= 2;
        }
        let end = rest.len().min(low + step);
        let within = rest.get(low..end).unwrap_or_default().partition_point(begins);
        (from + low + within).saturating_sub(1).max(from)
    }
}

/// Adds the views of a chunk with the edits that belong there.
fn apply(chunk: Option<&Arc<Chunk>>, edits: Vec<Edit<'_>>, into: &mut Vec<Arc<View>>) {
    let mut old = chunk.into_iter().flat_map(|chunk| chunk.views()).peekable();
    into.reserve(chunk.map_or(0, |chunk| chunk.len()) + edits.len());
    for edit in edits {
        let (removed, new) = match edit {
            Edit::Remove(removed) => (Some(removed), None),
            Edit::Replace(removed, new) => (Some(removed), Some(new)),
            Edit::Insert(new) => (None, Some(new)),
        };
        match (removed, &new) {
            (Some(removed), _) => into.extend(old.by_ref().take_while(|view| !Arc::ptr_eq(view, removed)).cloned()),
            (None, Some(new)) => {
                while let Some(view) = old.next_if(|view| view.place() < new.place()) {
                    into.push(view.clone());
                }
            }
            (None, None) => {}
        }
        into.extend(new);
    }
    into.extend(old.cloned());
}

/// Moves views into chunks of a good size; too few are left where they are.
fn split_into(chunks: &mut Vec<Arc<Chunk>>, views: &mut Vec<Arc<View>>) {
    if views.len() < LEAST {
        return;
    }
    let size = views.len().div_ceil(views.len().div_ceil(MOST));
    chunks.extend(views.chunks(size).map(|views| Arc::new(Chunk::new(views))));
    views.clear();
}
