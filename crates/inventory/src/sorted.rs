//! Views in order, in chunks that snapshots share: a change copies the chunks that it touches and nothing else.
//!
//! ```text
//!  Sorted ─► [chunk, chunk, chunk, …]   each 64 to 512 views, shared by reference
//!  edited([remove a, insert b]) ─► the same chunks but those with a and b
//! ```

use std::sync::Arc;

use crate::view::{Place, View};

/// A chunk with more views is split.
const MOST: usize = 512;
/// A chunk with fewer views is joined with the next one.
const LEAST: usize = 64;

type Chunk = Vec<Arc<View>>;

/// One edit at the place of its view. A view that is there is named by reference: finding it needs no look at the views before it.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Removes this view.
    Remove(Arc<View>),
    /// Replaces the first view by the second, which has the same place.
    Replace(Arc<View>, Arc<View>),
    /// Inserts a view at a place that is free.
    Insert(Arc<View>),
}

impl Edit {
    fn place(&self) -> Place<'_> {
        match self {
            Self::Remove(view) | Self::Insert(view) | Self::Replace(view, _) => view.place(),
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
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Every view whose place `before` is false for; it is true for a beginning of the order.
    pub(crate) fn from(&self, before: impl Fn(&View) -> bool) -> impl Iterator<Item = &Arc<View>> {
        let first = self.chunks.partition_point(|chunk| chunk.last().is_some_and(|view| before(view)));
        let chunks = self.chunks.get(first..).unwrap_or_default();
        let skipped = chunks.first().map_or(0, |chunk| chunk.partition_point(|view| before(view)));
        chunks.iter().flat_map(|chunk| chunk.iter()).skip(skipped)
    }

    /// A copy with the edits, which are in order and have one edit per place at most.
    pub(crate) fn edited(&self, edits: Vec<Edit>) -> Self {
        let mut chunks: Vec<Arc<Chunk>> = Vec::with_capacity(self.chunks.len() + 1);
        let mut edits = edits.into_iter().peekable();
        // What is left of chunks that became too small, to be joined with the next one.
        let mut carried: Chunk = Vec::new();
        let mut next = 0;
        while let Some(edit) = edits.peek() {
            // The chunk of an edit is the last one that begins at or before it.
            let place = edit.place();
            let begins = |chunk: &Arc<Chunk>| chunk.first().is_some_and(|view| view.place() <= place);
            let chunk = self.chunks.partition_point(begins).saturating_sub(1).max(next);
            if chunk > next && !carried.is_empty() {
                carried.extend(self.chunks.get(next).into_iter().flat_map(|chunk| chunk.iter().cloned()));
                split_into(&mut chunks, &mut carried);
                next += 1;
                continue;
            }
            chunks.extend(self.chunks.get(next..chunk).unwrap_or_default().iter().cloned());
            next = chunk + 1;
            let end = self.chunks.get(next).and_then(|chunk| chunk.first());
            let mut old = self.chunks.get(chunk).into_iter().flat_map(|chunk| chunk.iter()).peekable();
            while let Some(edit) = edits.next_if(|edit| end.is_none_or(|end| edit.place() < end.place())) {
                let (gone, new) = match edit {
                    Edit::Remove(gone) => (Some(gone), None),
                    Edit::Replace(gone, new) => (Some(gone), Some(new)),
                    Edit::Insert(new) => (None, Some(new)),
                };
                match (&gone, &new) {
                    (Some(gone), _) => {
                        carried.extend(old.by_ref().take_while(|view| !Arc::ptr_eq(view, gone)).cloned());
                    }
                    (None, Some(new)) => {
                        while let Some(view) = old.next_if(|view| view.place() < new.place()) {
                            carried.push(view.clone());
                        }
                    }
                    (None, None) => {}
                }
                carried.extend(new);
            }
            carried.extend(old.cloned());
            split_into(&mut chunks, &mut carried);
        }
        if !carried.is_empty() {
            let joined = self.chunks.get(next).map(|chunk| {
                next += 1;
                chunk.iter().cloned()
            });
            carried.extend(joined.into_iter().flatten());
            split_into(&mut chunks, &mut carried);
            if !carried.is_empty() {
                chunks.push(Arc::new(std::mem::take(&mut carried)));
            }
        }
        chunks.extend(self.chunks.get(next..).unwrap_or_default().iter().cloned());
        let len = chunks.iter().map(|chunk| chunk.len()).sum();
        Self { chunks, len }
    }
}

/// Moves views into chunks of a good size; too few are left where they are.
fn split_into(chunks: &mut Vec<Arc<Chunk>>, views: &mut Chunk) {
    if views.len() < LEAST {
        return;
    }
    let parts = views.len().div_ceil(MOST);
    let size = views.len().div_ceil(parts);
    let mut rest = std::mem::take(views).into_iter();
    for _ in 0..parts {
        let mut chunk: Chunk = Vec::with_capacity(size.min(rest.len()));
        chunk.extend(rest.by_ref().take(size));
        chunks.push(Arc::new(chunk));
    }
}
