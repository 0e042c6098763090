//! Drawn histories of replacements. After every step the inventory equals what is computed from scratch from the same entries: views, pages,
//! filters, conflicts, and the state of a subscriber that followed the changes.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use signpost_dns::{Fqdn, RecordType};
use signpost_inventory::{
    At, Change, Cursor, Entry, Filter, Inventory, Origin, Owner, Provenance, Search, Snapshot, SyncStatus, Update,
    Values, View,
};

/// An entry as it is drawn.
#[derive(Clone, Debug)]
struct Drawn {
    name: u16,
    rtype: u8,
    target: u8,
    origin: u8,
    group: u8,
    broken: bool,
    seen: u8,
}

/// A step of a history: an owner and its entries from then on.
type Step = (u8, Vec<Drawn>);

fn drawn(names: u16) -> impl Strategy<Value = Drawn> {
    (0..names, 0..3_u8, 0..3_u8, 0..3_u8, 0..2_u8, any::<bool>(), 0..4_u8).prop_map(
        |(name, rtype, target, origin, group, broken, seen)| Drawn { name, rtype, target, origin, group, broken, seen },
    )
}

fn history(names: u16, entries: usize, steps: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..4_u8, prop::collection::vec(drawn(names), 0..entries)), 1..steps)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn owner(number: u8) -> Owner {
    Owner::new(if number.is_multiple_of(2) { "even" } else { "odd" }, &format!("demo/{number}"))
}

fn entry(owner: u8, drawn: &Drawn) -> Entry {
    let rtype = [None, Some(RecordType::A), Some(RecordType::Aaaa)][usize::from(drawn.rtype)];
    let provenance = Provenance {
        origin: Origin {
            kind: "DNS".into(),
            namespace: format!("team-{owner}").into(),
            name: drawn.origin.to_string().into(),
        },
        groups: vec![format!("group-{}", drawn.group).into()],
        ..Provenance::default()
    };
    let name = Fqdn::parse(&format!("n{}.example.org", drawn.name)).unwrap();
    Entry {
        targets: (drawn.target > 0).then(|| format!("192.0.2.{}", drawn.target)).into_iter().collect(),
        status: if drawn.broken { SyncStatus::NotFound } else { SyncStatus::Sync },
        first_seen: At::from(at(i64::from(drawn.seen))),
        claims: true,
        ..Entry::new(name, rtype, Arc::new(provenance))
    }
}

/// A view, without the times of the store.
type Row = (String, Option<RecordType>, Owner, Origin, Values, SyncStatus, At, Vec<Arc<str>>);

fn row(owner: &Owner, entry: &Entry) -> Row {
    let provenance = &entry.provenance;
    (
        entry.name.undotted().to_owned(),
        entry.rtype,
        owner.clone(),
        provenance.origin.clone(),
        entry.targets.clone(),
        entry.status,
        entry.first_seen,
        provenance.groups.clone(),
    )
}

/// The row of a view.
fn seen(view: &View) -> Row {
    let provenance = view.provenance();
    (
        view.name().undotted().to_owned(),
        view.rtype(),
        view.owner().clone(),
        provenance.origin.clone(),
        view.targets().clone(),
        view.status(),
        view.first_seen(),
        provenance.groups.clone(),
    )
}

/// The rows of views, in any order of views with one name, type and owner.
fn rows<'a>(views: impl IntoIterator<Item = &'a Arc<View>>) -> Vec<Row> {
    let mut rows: Vec<Row> = views.into_iter().map(|view| seen(view)).collect();
    assert!(rows.is_sorted_by_key(|row| (row.0.clone(), row.1, row.2.clone())), "by name, type and owner");
    rows.sort();
    rows
}

/// The same from scratch.
fn expected(all: &BTreeMap<u8, Vec<Drawn>>) -> Vec<Row> {
    let rows: BTreeSet<Row> =
        all.iter().flat_map(|(number, drawn)| drawn.iter().map(|d| row(&owner(*number), &entry(*number, d)))).collect();
    rows.into_iter().collect()
}

/// Names and types that two objects want with different targets, and since when, by comparing all with all.
fn expected_conflicts(rows: &[Row]) -> Vec<(String, Option<RecordType>, At)> {
    let claims: Vec<&Row> = rows.iter().filter(|row| !row.4.is_empty()).collect();
    let keys: BTreeSet<(String, Option<RecordType>)> = claims.iter().map(|row| (row.0.clone(), row.1)).collect();
    let mut conflicts = Vec::new();
    for (name, rtype) in keys {
        let same: Vec<&Row> = claims.iter().filter(|row| row.0 == name && row.1 == rtype).copied().collect();
        let rivals = same.iter().flat_map(|a| same.iter().map(move |b| (a, b)));
        let since = rivals.filter(|(a, b)| a.3 != b.3 && a.4 != b.4).map(|(a, b)| a.6.max(b.6)).min();
        conflicts.extend(since.map(|since| (name, rtype, since)));
    }
    conflicts
}

/// The views that a filter keeps, computed in another way.
type Keeps = fn(&Row) -> bool;

fn filters() -> Vec<(Filter, Keeps)> {
    vec![
        (Filter::default(), |_| true),
        (Filter { search: Some(Search::new("N1")), ..Filter::default() }, |row| row.0.contains("n1")),
        (Filter { status: Some(SyncStatus::NotFound), ..Filter::default() }, |row| row.5 == SyncStatus::NotFound),
        (Filter { rtype: Some(RecordType::A), ..Filter::default() }, |row| row.1 == Some(RecordType::A)),
        (Filter { group: Some("group-1".into()), ..Filter::default() }, |row| row.7.iter().any(|g| **g == *"group-1")),
        (
            Filter { search: Some(Search::new("2.example.org.")), status: Some(SyncStatus::Sync), ..Filter::default() },
            |row| row.0.ends_with("2.example.org") && row.5 == SyncStatus::Sync,
        ),
        (Filter { search: Some(Search::new("1\nn")), ..Filter::default() }, |_| false),
        (Filter { system: Some("odd".into()), ..Filter::default() }, |row| row.2.system == "odd"),
        (Filter { namespace: Some("team-2".into()), ..Filter::default() }, |row| *row.3.namespace == *"team-2"),
        (Filter { name: Some(Fqdn::parse("n3.example.org").unwrap()), ..Filter::default() }, |row| {
            row.0 == "n3.example.org"
        }),
    ]
}

/// All pages of a filter, as tokens carry the place from one to the next.
fn paged(snapshot: &Snapshot, filter: &Filter, limit: usize) -> Vec<Row> {
    let (mut views, mut after) = (Vec::new(), None);
    loop {
        let page = snapshot.page(filter, after.as_ref(), limit);
        assert!(page.views.len() <= limit);
        views.extend(page.views);
        let Some(next) = page.next else {
            assert_eq!(page.total, views.len());
            return rows(&views);
        };
        after = Some(next.to_string().parse().unwrap());
    }
}

/// The state of a subscriber: the views by their place, which no two views share.
type Followed = BTreeMap<String, Row>;

fn place(view: &View) -> String {
    Cursor::after(view).to_string()
}

fn follow(known: &mut Followed, update: Update) {
    let batch = match update {
        Update::Lagged(snapshot) => {
            *known = snapshot.iter().map(|view| (place(view), seen(view))).collect();
            return;
        }
        Update::Changes(batch) => batch,
    };
    for change in &batch.changes {
        match change {
            Change::Added(view) => assert_eq!(known.insert(place(view), seen(view)), None),
            Change::Modified(view) => assert!(known.insert(place(view), seen(view)).is_some()),
            Change::Removed(view) => assert!(known.remove(&place(view)).is_some(), "what is removed was there"),
        }
    }
}

fn play(history: Vec<Step>, limit: usize) {
    let inventory = Arc::new(Inventory::new());
    let (_, mut subscription) = inventory.subscribe();
    let (mut known, mut all) = (Followed::new(), BTreeMap::<u8, Vec<Drawn>>::new());
    let mut counted = 0;
    for (time, (number, drawn)) in (100..).zip(history) {
        let entries = drawn.iter().map(|drawn| entry(number, drawn)).collect();
        let replaced = inventory.replace(&owner(number), entries, at(time));
        all.insert(number, drawn);
        let snapshot = inventory.snapshot();
        let expected = expected(&all);
        assert_eq!(rows(snapshot.iter()), expected);
        assert_eq!(snapshot.len(), expected.len());
        counted = counted + replaced.added - replaced.removed;
        assert_eq!(counted, expected.len());
        for (filter, keeps) in filters() {
            let kept: Vec<Row> = expected.iter().filter(|row| keeps(row)).cloned().collect();
            assert_eq!(paged(&snapshot, &filter, limit), kept);
        }
        let conflicts: Vec<_> =
            snapshot.conflicts().map(|c| (c.name().unwrap().undotted().to_owned(), c.rtype(), c.since)).collect();
        assert_eq!(conflicts, expected_conflicts(&expected));
        let again = Inventory::new();
        for (number, drawn) in all.iter().rev() {
            again.replace(&owner(*number), drawn.iter().rev().map(|d| entry(*number, d)).collect(), at(0));
        }
        let claims = |snapshot: &Snapshot| -> Vec<Vec<Row>> {
            snapshot.conflicts().map(|c| c.claims.iter().map(|claim| seen(claim)).collect()).collect()
        };
        assert_eq!(
            claims(&snapshot),
            claims(&again.snapshot()),
            "a restart finds the same conflicts in the same order"
        );
        while let Some(update) = subscription.try_next() {
            follow(&mut known, update);
        }
        let mut followed: Vec<Row> = known.values().cloned().collect();
        followed.sort();
        assert_eq!(followed, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_equals_a_computation_from_scratch(history in history(6, 12, 20), limit in 1..7_usize) {
        play(history, limit);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn many_names_equal_a_computation_from_scratch(history in history(1_500, 1_200, 6), limit in 100..700_usize) {
        play(history, limit);
    }
}
