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

impl Edit<'_> {
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
        let first = self.chunks.partition_point(|chunk| chunk.views().last().is_some_and(|view| before(view)));
        let chunks = self.chunks.get(first..).unwrap_or_default();
        let skipped = chunks.first().map_or(0, |chunk| chunk.views().partition_point(|view| before(view)));
        chunks.iter().flat_map(|chunk| chunk.views()).skip(skipped)
    }

    /// A copy with the edits, which are in order and have one edit per place at most.
    pub(crate) fn edited(&self, edits: Vec<Edit<'_>>) -> Self {
        let mut chunks: Vec<Arc<Chunk>> = Vec::with_capacity(self.chunks.len() + 1);
        let mut edits = edits.into_iter().peekable();
        // The rest of chunks that became too small, to be joined with the next one.
        let mut carried: Vec<Arc<View>> = Vec::new();
        let mut next = 0;
        let views_of = |chunk: Option<&Arc<Chunk>>| chunk.map(|chunk| chunk.views().to_vec()).unwrap_or_default();
        while let Some(edit) = edits.peek() {
            // The chunk of an edit is the last one that begins at or before it.
            let place = edit.place();
            let begins = |chunk: &Arc<Chunk>| chunk.views().first().is_some_and(|view| view.place() <= place);
            let chunk = self.chunks.partition_point(begins).saturating_sub(1).max(next);
            if chunk > next && !carried.is_empty() {
                carried.extend(views_of(self.chunks.get(next)));
                split_into(&mut chunks, &mut carried, None);
                next += 1;
                continue;
            }
            chunks.extend(self.chunks.get(next..chunk).unwrap_or_default().iter().cloned());
            next = chunk + 1;
            let edited = self.chunks.get(chunk);
            let end = self.chunks.get(next).and_then(|chunk| chunk.views().first());
            let here = |edit: &Edit<'_>| end.is_none_or(|end| edit.place() < end.place());
            let same_names = carried.is_empty();
            let same_names = replace(edited, &mut edits, here, &mut carried) && same_names;
            split_into(&mut chunks, &mut carried, edited.filter(|_| same_names).map(|chunk| &**chunk));
        }
        if !carried.is_empty() {
            carried.extend(views_of(self.chunks.get(next)));
            next += 1;
            split_into(&mut chunks, &mut carried, None);
            if !carried.is_empty() {
                chunks.push(Arc::new(Chunk::new(std::mem::take(&mut carried), None)));
            }
        }
        chunks.extend(self.chunks.get(next..).unwrap_or_default().iter().cloned());
        let len = chunks.iter().map(|chunk| chunk.views().len()).sum();
        Self { chunks, len }
    }
}

/// Adds the views of a chunk with the edits that belong there. Returns whether the names are the same as before.
fn replace<'a>(
    chunk: Option<&Arc<Chunk>>,
    edits: &mut std::iter::Peekable<impl Iterator<Item = Edit<'a>>>,
    here: impl Fn(&Edit<'_>) -> bool,
    into: &mut Vec<Arc<View>>,
) -> bool {
    let mut same_names = chunk.is_some();
    let mut old = chunk.into_iter().flat_map(|chunk| chunk.views()).peekable();
    into.reserve(old.size_hint().0);
    while let Some(edit) = edits.next_if(&here) {
        same_names &= matches!(edit, Edit::Replace(..));
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
    same_names
}

/// Moves views into chunks of a good size; too few are left where they are. `like` is a chunk that has the same names as all of them.
fn split_into(chunks: &mut Vec<Arc<Chunk>>, views: &mut Vec<Arc<View>>, like: Option<&Chunk>) {
    if views.len() < LEAST {
        return;
    }
    let parts = views.len().div_ceil(MOST);
    if parts == 1 {
        chunks.push(Arc::new(Chunk::new(std::mem::take(views), like)));
        return;
    }
    let size = views.len().div_ceil(parts);
    let mut rest = std::mem::take(views).into_iter();
    for _ in 0..parts {
        chunks.push(Arc::new(Chunk::new(rest.by_ref().take(size).collect(), None)));
    }
}
