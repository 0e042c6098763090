//! `inventory`: 100,000 names of 100 owners in memory. Measured: a filtered page, a substring search, the memory of a name beyond its strings,
//! and the replacement of an owner of 10,000 names beside eight readers. It needs no server and no operator.
//!
//! `replace_10000` is beside eight readers that each read 100 pages a second: far more than the pages, streams and tools of a busy team ask for.
//! `replace_10000_busy` is beside eight readers that read without a pause. On two cores they and the writer are nine threads that want to run, so the
//! writer has two ninths of the machine: `busy_cpu` is the time that its thread was on a core, and the rest of the wall time is the scheduler's. Both
//! have the same goal, and the second is short of it on two cores. Readers and the writer share no lock but for the copy of one pointer, and those of the
//! allocator: `busy_of_share` is the wall time beside the one that the writer would need with its fair share of the cores, so 1 means that it waits for
//! nothing else. `shuffled` has the entries in no order, so that they are sorted first. What the readers got is reported too: pages of all readers per
//! second, and the slowest percent of their pages, beside a writer that replaces without a pause.
//!
//! The memory of a name is what it adds: resident memory after 90,000 further names of 100 further owners, less the resident memory before them
//! and less the characters of their names, targets and answers, divided by 90,000. So it has everything that grows with the names (views, order,
//! columns, the text for searches, unused space between allocations) and nothing that exists once.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use signpost_dns::{Fqdn, RecordType};
use signpost_inventory::{
    At, Entry, Filter, Inventory, Origin, Owner, Provenance, Search, SyncReason, SyncStatus, View,
};

use crate::measurement::{Goal, Measurement, Measurements};

const NAMES: usize = 100_000;
const LARGE: usize = 10_000;
const READERS: usize = 8;
/// The pause of a reader between two pages.
const PAUSE: Duration = Duration::from_millis(10);
/// Replacements of the large owner, of which the median and the slowest percent are reported.
const TURNS: usize = 100;
const REPEATED: usize = 500;

pub(crate) fn run(measurements: &mut Measurements) -> anyhow::Result<()> {
    let inventory = Arc::new(Inventory::new());
    let large = Owner::new("portal", "bench/large");
    inventory.replace(&large, entries("large", LARGE, 0)?, now());
    fill(&inventory, 1..=100)?;
    let strings_before = all_strings(&inventory);
    anyhow::ensure!(inventory.snapshot().len() == NAMES, "{} names", inventory.snapshot().len());
    let before = rss()?;
    fill(&inventory, 101..=200)?;
    let more = inventory.snapshot().len() - NAMES;
    let strings = all_strings(&inventory) - strings_before;
    let beyond = (rss()? - before).saturating_sub(strings) / more;
    for number in 101..=200 {
        inventory.remove(&owner(number), now());
    }
    anyhow::ensure!(inventory.snapshot().len() == NAMES, "{} names", inventory.snapshot().len());

    let broken = Filter { status: Some(SyncStatus::NotFound), group: Some("group-3".into()), ..Filter::default() };
    let page = slowest_percent(|turn| {
        let snapshot = inventory.snapshot();
        let after = (turn % 2 == 1).then(|| snapshot.page(&Filter::default(), None, 1_000).next).flatten();
        let started = Instant::now();
        let page = snapshot.page(&broken, after.as_ref(), 100);
        assert_eq!(page.views.len(), 100);
        started.elapsed()
    });
    let search = slowest_percent(|turn| {
        let search = Some(Search::new(&format!("{}.owner-{}.", turn % 10, turn % 100 + 1)));
        let started = Instant::now();
        let page = inventory.snapshot().page(&Filter { search, ..Filter::default() }, None, 100);
        assert!(page.total > 50, "{} found", page.total);
        started.elapsed()
    });
    let conflicts = slowest_percent(|_| {
        let started = Instant::now();
        assert_eq!(inventory.snapshot().conflicts().count(), 0);
        started.elapsed()
    });
    let alone = beside_readers(&inventory, &large, Readers { count: 0, pause: PAUSE }, Order::Sorted)?;
    let reading = Readers { count: READERS, pause: PAUSE };
    let replaced = beside_readers(&inventory, &large, reading, Order::Sorted)?;
    let shuffled = beside_readers(&inventory, &large, reading, Order::Shuffled)?;
    let busy = beside_readers(&inventory, &large, Readers { count: READERS, pause: Duration::ZERO }, Order::Sorted)?;
    measurements.extend([
        Measurement::new("inventory.page_p99", milliseconds(page), "ms", Goal::AtMost(10.0)),
        Measurement::new("inventory.search_p99", milliseconds(search), "ms", Goal::AtMost(30.0)),
        Measurement::new("inventory.conflicts_p99", milliseconds(conflicts), "ms", Goal::None),
        Measurement::new("inventory.bytes_beyond_strings", as_f64(beyond), "bytes", Goal::AtMost(200.0)),
        Measurement::new("inventory.replace_10000_alone_median", milliseconds(alone.median), "ms", Goal::None),
        Measurement::new("inventory.replace_10000_median", milliseconds(replaced.median), "ms", Goal::AtMost(20.0)),
        Measurement::new("inventory.replace_10000_p99", milliseconds(replaced.slowest), "ms", Goal::None),
        Measurement::new("inventory.replace_10000_shuffled_median", milliseconds(shuffled.median), "ms", Goal::None),
        Measurement::new("inventory.reader_pages_per_second", replaced.pages, "pages/s", Goal::None),
        Measurement::new("inventory.reader_page_p99", milliseconds(replaced.page), "ms", Goal::None),
        Measurement::new("inventory.replace_10000_busy_median", milliseconds(busy.median), "ms", Goal::AtMost(20.0)),
        Measurement::new("inventory.replace_10000_busy_cpu_median", milliseconds(busy.cpu), "ms", Goal::None),
        Measurement::new("inventory.replace_10000_busy_of_share", busy.of_share(READERS + 1), "x", Goal::None),
        Measurement::new("inventory.busy_reader_pages_per_second", busy.pages, "pages/s", Goal::None),
        Measurement::new("inventory.busy_reader_page_p99", milliseconds(busy.page), "ms", Goal::None),
    ]);
    Ok(())
}

/// An owner of 900 names.
fn owner(number: usize) -> Owner {
    Owner::new("portal", &format!("bench/owner-{number}"))
}

/// Adds owners of 900 names.
fn fill(inventory: &Inventory, numbers: RangeInclusive<usize>) -> anyhow::Result<()> {
    for number in numbers {
        inventory.replace(&owner(number), entries(&format!("owner-{number}"), 900, number)?, now());
    }
    Ok(())
}

fn all_strings(inventory: &Inventory) -> usize {
    inventory.snapshot().iter().map(|view| strings(view)).sum()
}

/// The order of the entries of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Sorted,
    Shuffled,
}

/// The replacements of the large owner, and what the readers got meanwhile.
struct Replacements {
    /// From the beginning to the end.
    median: Duration,
    slowest: Duration,
    /// The median of the time on a core.
    cpu: Duration,
    /// Pages of all readers per second.
    pages: f64,
    /// The slowest percent of the pages.
    page: Duration,
}

impl Replacements {
    /// The wall time, as a part of the one that so many threads with the same share of the cores would need.
    fn of_share(&self, threads: usize) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let slower = (as_f64(threads) / as_f64(cores)).max(1.0);
        self.median.as_secs_f64() / (self.cpu.as_secs_f64() * slower)
    }
}

/// Readers of pages.
#[derive(Clone, Copy, Debug)]
struct Readers {
    count: usize,
    /// Of each reader, between two pages.
    pause: Duration,
}

/// Replacements of every name of the large owner while readers read pages.
fn beside_readers(
    inventory: &Arc<Inventory>,
    large: &Owner,
    readers: Readers,
    order: Order,
) -> anyhow::Result<Replacements> {
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let pause = readers.pause;
    let readers: Vec<_> = (0..readers.count)
        .map(|_| {
            let (inventory, stop) = (inventory.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut times = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let page = inventory.snapshot().page(&Filter::default(), None, 100);
                    assert_eq!((page.views.len(), page.total), (100, NAMES));
                    times.push(began.elapsed());
                    std::thread::sleep(pause);
                }
                times
            })
        })
        .collect();
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let mut entries = entries("large", LARGE, turn + 1)?;
        if order == Order::Shuffled {
            shuffle(&mut entries);
        }
        let (began, before) = (Instant::now(), on_core());
        let replaced = inventory.replace(large, entries, now());
        wall.push(began.elapsed());
        cpu.push(on_core().saturating_sub(before));
        anyhow::ensure!(replaced.modified == LARGE, "{replaced:?}");
    }
    stop.store(true, Ordering::Relaxed);
    let took = started.elapsed();
    let mut pages = Vec::new();
    for reader in readers {
        pages.extend(reader.join().ok().context("a reader failed")?);
    }
    Ok(Replacements {
        median: percentile(&mut wall, 50),
        slowest: percentile(&mut wall, 99),
        cpu: percentile(&mut cpu, 50),
        pages: as_f64(pages.len()) / took.as_secs_f64(),
        page: percentile(&mut pages, 99),
    })
}

/// The time that so many of a hundred runs do not exceed.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get(times.len() * percent / 100).copied().unwrap_or_default()
}

/// The same disorder in every run.
fn shuffle(entries: &mut [Entry]) {
    let mut state: usize = 42;
    for place in (1..entries.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        entries.swap(place, (state >> 33) % (place + 1));
    }
}

/// How long this thread was on a core.
fn on_core() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Names with one address each, every tenth not found. `turn` changes the description of all.
fn entries(owner: &str, count: usize, turn: usize) -> anyhow::Result<Vec<Entry>> {
    let provenance: Vec<Arc<Provenance>> = (0..4)
        .map(|group| {
            Arc::new(Provenance {
                origin: Origin { kind: "DNS".into(), namespace: "bench".into(), name: owner.into() },
                groups: vec![format!("group-{group}").into()],
                portals: vec!["main".into()],
                ..Provenance::default()
            })
        })
        .collect();
    let description: Arc<str> = format!("turn {turn}").into();
    (0..count)
        .map(|number| {
            let name = Fqdn::parse(&format!("service-{number:05}.{owner}.example.org"))?;
            let address = [format!("10.{}.{}.{}", number / 65_536, number / 256 % 256, number % 256)];
            let found = number % 10 != 3;
            Ok(Entry {
                targets: address.iter().collect(),
                observed: found.then_some(&address[0]).into_iter().collect(),
                description: Some(description.clone()),
                status: if found { SyncStatus::Sync } else { SyncStatus::NotFound },
                reason: if found { SyncReason::Match } else { SyncReason::NoSuchName },
                first_seen: At::from(now()),
                claims: true,
                ..Entry::new(name, Some(RecordType::A), provenance[number % 4].clone())
            })
        })
        .collect()
}

/// The bytes of the strings that only this view has.
fn strings(view: &View) -> usize {
    let values = |values: &signpost_inventory::Values| values.iter().map(str::len).sum::<usize>();
    view.name().undotted().len() + values(view.targets()) + values(view.observed())
}

/// Any time will do: the inventory does not measure it.
fn now() -> jiff::Timestamp {
    jiff::Timestamp::constant(1_800_000_000, 0)
}

/// The time that 99 % of the runs do not exceed.
fn slowest_percent(mut run: impl FnMut(usize) -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..REPEATED).map(&mut run).collect();
    percentile(&mut times, 99)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[allow(clippy::cast_precision_loss)] // far fewer than 2^52
fn as_f64(number: usize) -> f64 {
    number as f64
}

/// Resident memory of this process, in bytes.
fn rss() -> anyhow::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: usize = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1_024)
}
