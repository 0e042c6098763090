//! The operator gives back what it kept about objects that are deleted. `make memory` runs this test in a fast build.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used)]

use signpost_simulation::{
    bed::Bed, memory, pangolin::PangolinBed, pihole::PiholeBed, portal::PortalBed, powerdns::PowerDnsBed,
    router::RouterBed,
};

#[global_allocator]
static HEAP: dhat::Alloc = dhat::Alloc;

/// The memory that the operator may keep for each of 6 × 40 deleted objects, in bytes: less than a pointer. A set of pointers that doubles
/// once, because many were queued at the same moment, takes 5.
const KEPT: usize = 7;

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
    gives_back::<RouterBed>();
    gives_back::<PangolinBed>();
    gives_back::<PortalBed>();
}
