//! Readers beside a writer, subscribers that are slow, and tokens that are wrong.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordType};
use signpost_inventory::{
    At, BadCursor, Change, Cursor, Entry, Filter, Inventory, Judgement, MAX_PAGE, Origin, Owner, Provenance, Search,
    Source, Stage, SyncReason, SyncStatus, Update,
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn name(text: &str) -> Fqdn {
    Fqdn::parse(text).unwrap()
}

fn from_object(object: &str) -> Arc<Provenance> {
    let origin = Origin { kind: "DNS".into(), namespace: "demo".into(), name: object.into() };
    Arc::new(Provenance { origin, ..Provenance::default() })
}

fn known(text: &str) -> Entry {
    Entry::new(name(text), Some(RecordType::A), from_object("one"))
}

fn claim(object: &str, target: &str, first_seen: i64) -> Entry {
    Entry {
        targets: [target].into_iter().collect(),
        claims: true,
        first_seen: at(first_seen).into(),
        ..Entry::new(name("www.example.org"), Some(RecordType::A), from_object(object))
    }
}

#[test]
fn a_reader_never_sees_half_an_owner() {
    const NAMES: usize = 700;
    let inventory = Arc::new(Inventory::new());
    let owners = [Owner::new("portal", "demo/a"), Owner::new("portal", "demo/b")];
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (inventory, stop) = (inventory.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut checked = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut generations: BTreeMap<Owner, BTreeMap<Arc<str>, usize>> = BTreeMap::new();
                    for view in inventory.snapshot().iter() {
                        let generation = view.description().cloned().unwrap();
                        *generations.entry(view.owner().clone()).or_default().entry(generation).or_default() += 1;
                    }
                    for (owner, generations) in generations {
                        assert_eq!(generations.len(), 1, "{owner} is seen in two states");
                        assert_eq!(generations.values().sum::<usize>(), NAMES, "{owner} is not whole");
                    }
                    checked += 1;
                }
                checked
            })
        })
        .collect();
    for generation in 0..50 {
        for owner in &owners {
            let description: Arc<str> = generation.to_string().into();
            let entries = (0..NAMES)
                .map(|n| Entry { description: Some(description.clone()), ..known(&format!("n{n}.example.org")) })
                .collect();
            inventory.replace(owner, entries, at(generation));
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>() > 0);
}

#[test]
fn a_snapshot_is_not_changed_by_later_replacements() {
    let inventory = Inventory::new();
    let owner = Owner::new("portal", "demo/a");
    inventory.replace(&owner, vec![known("a.example.org")], at(1));
    let before = inventory.snapshot();
    inventory.remove(&owner, at(2));
    assert_eq!((before.len(), inventory.snapshot().len()), (1, 0));
    assert!(inventory.owners("portal").is_empty());
}

#[test]
fn a_check_without_a_new_result_is_not_a_change() {
    let inventory = Arc::new(Inventory::new());
    let owner = Owner::new("portal", "demo/a");
    inventory.replace(&owner, vec![known("a.example.org")], at(1));
    let (_, mut subscription) = inventory.subscribe();
    let checked = Entry { checked_at: at(9).into(), ..known("a.example.org") };
    assert_eq!(inventory.replace(&owner, vec![checked], at(9)), signpost_inventory::Replaced::default());
    let snapshot = inventory.snapshot();
    let view = snapshot.iter().next().unwrap();
    assert_eq!((view.checked_at(), view.last_change()), (At::from(at(9)), At::from(at(1))));
    assert!(subscription.try_next().is_none());
    let broken = Entry { status: SyncStatus::NotFound, ..known("a.example.org") };
    assert_eq!(inventory.replace(&owner, vec![broken], at(20)).modified, 1);
    assert_eq!(inventory.snapshot().iter().next().unwrap().last_change(), At::from(at(20)));
}

#[test]
fn a_subscriber_is_woken_and_gets_an_owner_in_one_batch() {
    struct Counter(AtomicU32);
    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let inventory = Arc::new(Inventory::new());
    let (_, mut subscription) = inventory.subscribe();
    let woken = Arc::new(Counter(AtomicU32::new(0)));
    let waker = Waker::from(woken.clone());
    let mut next = Box::pin(subscription.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    inventory.replace(&Owner::new("portal", "demo/a"), vec![known("a.example.org"), known("b.example.org")], at(1));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let std::task::Poll::Ready(Update::Changes(batch)) = next.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("no changes");
    };
    assert!(matches!(&*batch.changes, [Change::Added(_), Change::Added(_)]));
}

#[test]
fn a_slow_subscriber_gets_a_snapshot_and_continues_from_there() {
    let inventory = Arc::new(Inventory::new());
    let owner = Owner::new("portal", "demo/a");
    let (_, mut subscription) = inventory.subscribe();
    let described =
        |text: &str, n: usize| Entry { description: Some(text.into()), ..known(&format!("n{n}.example.org")) };
    for generation in 0..20 {
        let entries = (0..1_000).map(|n| described(&generation.to_string(), n)).collect();
        inventory.replace(&owner, entries, at(generation));
    }
    let Some(Update::Lagged(snapshot)) = subscription.try_next() else { panic!("20,000 changes are not kept") };
    assert_eq!(snapshot.len(), 1_000);
    assert!(snapshot.iter().all(|view| view.description().map(|text| &**text) == Some("19")));
    assert!(subscription.try_next().is_none());
    inventory.remove(&owner, at(30));
    let Some(Update::Changes(batch)) = subscription.try_next() else { panic!("changes continue") };
    assert_eq!(batch.changes.len(), 1_000);
}

#[test]
fn a_conflict_names_the_claims_and_ends_with_its_cause() {
    let inventory = Inventory::new();
    let (first, second) = (Owner::new("portal", "demo/first"), Owner::new("powerdns", "demo/second"));
    let young = Entry { stage: Stage::Published, ..claim("second", "192.0.2.2", 20) };
    inventory.replace(&second, vec![young.clone()], at(100));
    inventory.replace(&first, vec![claim("first", "192.0.2.1", 10)], at(100));
    let conflicts: Vec<_> = inventory.snapshot().conflicts().collect();
    let [conflict] = &conflicts[..] else { panic!("{conflicts:?}") };
    let origins: Vec<_> = conflict.claims.iter().map(|claim| &*claim.provenance().origin.name).collect();
    assert_eq!(origins, ["first", "second"], "the oldest claim first");
    assert_eq!(conflict.since, At::from(at(20)));
    assert_eq!(conflict.served.as_ref().map(|view| view.owner()), Some(&second), "it was published");
    let served = Entry { status: SyncStatus::Sync, ..claim("first", "192.0.2.1", 10) };
    inventory.replace(&first, vec![served], at(101));
    let conflict = inventory.snapshot().conflicts().next().unwrap();
    assert_eq!(
        conflict.served.as_ref().map(|view| view.owner()),
        Some(&first),
        "what the resolvers answer counts more"
    );
    inventory.replace(&first, vec![claim("first", "192.0.2.2", 10)], at(102));
    assert_eq!(inventory.snapshot().conflicts().count(), 0, "both want the same");
}

#[test]
fn what_is_not_a_claim_is_not_a_conflict() {
    let inventory = Inventory::new();
    let replace = |key: &str, entry: Entry| inventory.replace(&Owner::new("portal", key), vec![entry], at(1));
    replace("a", claim("one", "192.0.2.1", 1));
    replace("b", claim("one", "192.0.2.2", 1));
    assert_eq!(inventory.snapshot().conflicts().count(), 0, "two views of one object");
    replace("b", Entry { claims: false, ..claim("two", "192.0.2.2", 1) });
    assert_eq!(inventory.snapshot().conflicts().count(), 0, "an entry that makes no claim");
    replace("b", Entry { targets: signpost_inventory::Values::default(), ..claim("two", "", 1) });
    assert_eq!(inventory.snapshot().conflicts().count(), 0, "a name that must merely exist");
    replace("b", Entry { rtype: Some(RecordType::Aaaa), ..claim("two", "2001:db8::1", 1) });
    assert_eq!(inventory.snapshot().conflicts().count(), 0, "another type");
    replace("b", claim("two", "192.0.2.2", 1));
    assert_eq!(inventory.snapshot().conflicts().count(), 1);
}

#[test]
fn the_same_text_in_other_chunks_is_not_a_conflict() {
    let inventory = Inventory::new();
    let replace = |object: &str, text: &str| {
        let entry = Entry { rtype: Some(RecordType::Txt), ..claim(object, text, 1) };
        inventory.replace(&Owner::new("portal", object), vec![entry], at(1));
        inventory.snapshot().conflicts().count()
    };
    replace("one", r#""v=spf1 -all""#);
    assert_eq!(replace("two", r#""v=spf1" " -all""#), 0);
    assert_eq!(replace("three", r#""v=spf1 ~all""#), 1);
    assert_eq!(replace("three", r#""v=spf1" "-all""#), 1, "without the blank it is another text");
}

#[test]
fn a_judgement_can_be_taken_back() {
    let (inventory, owner) = (Inventory::new(), Owner::new("powerdns", "example.org"));
    let provenance = Arc::new(Provenance { source: Source::System, ..(*from_object("one")).clone() });
    let published =
        || Entry { stage: Stage::Published, ..Entry::new(name("www.example.org"), None, provenance.clone()) };
    let reason = || inventory.views(&owner)[0].reason();
    let judge = |reason| {
        let judgement = Judgement {
            status: SyncStatus::Unchecked,
            reason,
            observed: signpost_inventory::Values::default(),
            checked_at: At::NEVER,
        };
        inventory.judge(&owner, at(2), |_| Some(judgement.clone()));
    };
    inventory.replace(&owner, vec![published()], at(1));
    judge(SyncReason::LeaderOnly);
    inventory.replace(&owner, vec![published()], at(3));
    assert_eq!(reason(), SyncReason::LeaderOnly, "its system does not know it");
    judge(SyncReason::Unchecked);
    assert_eq!(reason(), SyncReason::Unchecked);
}

#[test]
fn a_page_has_an_upper_bound_and_a_wrong_token_is_an_error() {
    let inventory = Inventory::new();
    let entries = (0..MAX_PAGE + 5).map(|n| known(&format!("n{n}.example.org"))).collect();
    inventory.replace(&Owner::new("portal", "demo/a"), entries, at(1));
    let page = inventory.snapshot().page(&Filter::default(), None, usize::MAX);
    assert_eq!((page.views.len(), page.total), (MAX_PAGE, MAX_PAGE + 5));
    let token = page.next.unwrap().to_string();
    assert!(token.parse::<Cursor>().is_ok());
    for wrong in ["", "0", "MTA", &token[1..], &"A".repeat(10_000), "ä"] {
        assert_eq!(wrong.parse::<Cursor>(), Err(BadCursor), "{wrong}");
    }
}

#[test]
fn a_page_continues_where_its_last_view_was_removed() {
    let inventory = Inventory::new();
    let owner = Owner::new("portal", "demo/a");
    let names = |names: &[&str]| names.iter().map(|name| known(&format!("{name}.example.org"))).collect();
    inventory.replace(&owner, names(&["a", "b", "c", "d"]), at(1));
    let first = inventory.snapshot().page(&Filter::default(), None, 2);
    inventory.replace(&owner, names(&["a", "bb", "c", "d"]), at(2));
    let second = inventory.snapshot().page(&Filter::default(), first.next.as_ref(), 2);
    let second: Vec<&str> = second.views.iter().map(|view| view.name().undotted()).collect();
    assert_eq!(second, ["bb.example.org", "c.example.org"], "nothing twice, nothing skipped");
}

#[test]
fn a_search_ignores_case_and_understands_unicode() {
    let inventory = Inventory::new();
    let names = ["www.bücher.example", "api.example.org"].map(known).to_vec();
    inventory.replace(&Owner::new("portal", "demo/a"), names, at(1));
    let found = |text: &str| {
        let filter = Filter { search: Some(Search::new(text)), ..Filter::default() };
        inventory.snapshot().page(&filter, None, 10).total
    };
    assert_eq!(
        [found("BÜCHER"), found("xn--"), found("Api.Ex"), found("example.org."), found("example.")],
        [1, 1, 1, 1, 2]
    );
    assert_eq!([found("nothing"), found("")], [0, 2]);
}

#[test]
fn the_views_of_a_name_are_found_in_all_types() {
    let inventory = Inventory::new();
    let quad = Entry { rtype: Some(RecordType::Aaaa), ..known("b.example.org") };
    let entries = vec![known("a.example.org"), known("b.example.org"), quad, known("c.example.org")];
    inventory.replace(&Owner::new("portal", "demo/a"), entries, at(1));
    let snapshot = inventory.snapshot();
    assert_eq!(snapshot.get(&name("b.example.org")).count(), 2);
    assert_eq!(snapshot.get_typed(&name("b.example.org"), Some(RecordType::Aaaa)).count(), 1);
    assert_eq!(snapshot.get(&name("x.example.org")).count(), 0);
}

#[test]
fn a_judgement_is_kept_while_a_published_name_has_the_same_values() {
    let inventory = Inventory::new();
    let owner = Owner::new("powerdns", "example.org.");
    let provenance = Arc::new(Provenance { source: Source::System, ..(*from_object("www")).clone() });
    let published =
        |target: &str| Entry { stage: Stage::Published, provenance: provenance.clone(), ..claim("www", target, 1) };
    inventory.replace(&owner, vec![published("192.0.2.1")], at(1));
    let served = |_: &signpost_inventory::View| {
        let observed = ["192.0.2.1"].into_iter().collect();
        Some(Judgement { status: SyncStatus::Sync, reason: SyncReason::Match, observed, checked_at: at(5).into() })
    };
    assert_eq!(inventory.judge(&owner, at(5), served).modified, 1);
    let status = || inventory.views(&owner)[0].status();
    assert_eq!(status(), SyncStatus::Sync);
    assert_eq!(inventory.replace(&owner, vec![published("192.0.2.1")], at(6)).modified, 0, "nothing has changed");
    assert_eq!(status(), SyncStatus::Sync);
    inventory.replace(&owner, vec![published("192.0.2.2")], at(7));
    assert_eq!(status(), SyncStatus::Unchecked, "other values are judged again");
    inventory.judge(&owner, at(8), served);
    let refused = Entry { stage: Stage::Refused, ..published("192.0.2.2") };
    inventory.replace(&owner, vec![refused], at(9));
    assert_eq!(status(), SyncStatus::Unchecked, "it is not published any more");
    assert_eq!(
        inventory.judge(&Owner::new("powerdns", "other."), at(9), served),
        signpost_inventory::Replaced::default()
    );
}
