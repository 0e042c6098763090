//! The operator gives back what it kept about objects that are deleted.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used)]

use signpost_simulation::{bed::Bed, memory, pihole::PiholeBed, powerdns::PowerDnsBed};

#[global_allocator]
static HEAP: dhat::Alloc = dhat::Alloc;

/// The memory that the operator may keep for each of 6 × 40 deleted objects, in bytes. It should be zero. Seen for `powerdns`: 0 in
/// some runs, 17 in one, and 26 after 14 rounds. The cause is not known; growing tables are a guess. An id kept by mistake takes 72.
const KEPT: usize = 52;

fn measure() -> usize {
    dhat::HeapStats::get().curr_bytes
}

/// After eight rounds of objects the operator needs no more memory than after two.
fn gives_back<B: Bed>() {
    let (few, many) = (memory::after::<B>(2, measure).unwrap(), memory::after::<B>(8, measure).unwrap());
    assert!(few > 10_000, "{few} bytes: the operator itself is not measured");
    let kept = many.saturating_sub(few) / (6 * 40);
    assert!(kept <= KEPT, "{}: {few} bytes after 2 rounds, {many} after 8: {kept} for each deleted object", B::NAME);
}

// One test: the heap is that of the whole process.
#[test]
fn memory_of_deleted_objects_is_given_back() {
    let _profiler = dhat::Profiler::builder().testing().build();
    gives_back::<PowerDnsBed>();
    gives_back::<PiholeBed>();
}
