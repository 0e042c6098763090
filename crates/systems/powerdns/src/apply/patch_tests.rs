use std::sync::Arc;

use super::*;
use futures::future::{BoxFuture, FutureExt};
use signpost_dns::{Fqdn, RecordKey, RecordType};
use signpost_provider_powerdns::{
    Call, CommentChange, MemoryServer, NewZone, Patched, ServerInfo, SetContent, ZoneContents, ZoneInfo, ZoneSettings,
};

use crate::{index::digest::Digest, plan::Write};

fn zone() -> ZoneName {
    ZoneName::parse("example.com").unwrap()
}

fn key(name: &str, rtype: RecordType) -> RecordKey {
    RecordKey::new(zone().resolve(name).unwrap(), rtype)
}

fn atom(name: &str, deletes: &[RecordType], write: Option<(RecordType, &str)>) -> Atom {
    let write = write.map(|(rtype, record)| {
        let content = SetContent { ttl: 300, records: Box::new([record.into()]), comment: None };
        Write {
            key: key(name, rtype),
            digest: Digest::of_content(rtype, &content),
            content: Arc::new(content),
            comment: CommentChange::Keep,
            ledger: false,
            endpoint: false,
        }
    });
    Atom {
        name: zone().resolve(name).unwrap(),
        deletes: deletes.iter().map(|rtype| key(name, *rtype)).collect(),
        write,
        waiting: vec![],
    }
}

async fn server() -> MemoryServer {
    let server = MemoryServer::new();
    let settings = ZoneSettings::default();
    let new = NewZone {
        name: zone(),
        kind: "Native".into(),
        nameservers: vec![Fqdn::parse("ns.example").unwrap()],
        settings,
    };
    server.create(&new).await.unwrap();
    server
}

fn patches(server: &MemoryServer) -> usize {
    server.log().iter().filter(|call| matches!(call, Call::Patch(..))).count()
}

#[tokio::test]
async fn a_thousand_good_ones_are_one_call() {
    let server = server().await;
    let atoms: Vec<Atom> = (0..1000).map(|n| atom(&format!("h{n}"), &[], Some((RecordType::A, "192.0.2.1")))).collect();
    let Sent { outcomes, calls, .. } = send(&server, &zone(), &atoms, None, None).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, AtomOutcome::Done { serial: Some(_) })));
    assert_eq!((calls, patches(&server)), (1, 1));
}

#[tokio::test]
async fn what_somebody_else_wrote_before_is_noticed_and_what_we_write_ourselves_is_not() {
    let server = server().await;
    let info = || server.contents(&zone()).unwrap().info;
    let known = info();
    let atoms: Vec<Atom> =
        (0..5_001).map(|n| atom(&format!("h{n}"), &[], Some((RecordType::A, "192.0.2.1")))).collect();
    let sent = send(&server, &zone(), &atoms, Some(&known), None).await;
    assert_eq!((sent.calls, sent.strayed), (2, false));
    let now = info();
    assert!(!send(&server, &zone(), &atoms[..1], Some(&now), None).await.strayed);
    assert!(send(&server, &zone(), &atoms[..1], Some(&now), None).await.strayed, "the serial has moved since");
    assert!(!send(&server, &zone(), &atoms[..1], None, None).await.strayed, "nothing is known to compare with");
}

#[test]
fn a_serial_tells_how_many_writes_led_to_it_unless_it_is_a_time() {
    for counting in ["INCREASE", "SOA-EDIT-INCREASE", "DEFAULT"] {
        assert!(!skips(counting, 2_026_111_607, 2_026_111_608), "{counting}");
        assert!(skips(counting, 2_026_111_607, 2_026_111_609), "{counting}");
        assert!(skips(counting, 2_026_111_607, 2_026_111_607), "{counting}: it went back and came again");
        assert!(!skips(counting, u32::MAX, 0), "{counting}");
    }
    // The first write of a day, and the second when the first was a foreign one.
    assert!(!skips("DEFAULT", 2_026_111_607, 2_026_111_701));
    assert!(skips("DEFAULT", 2_026_111_607, 2_026_111_702));
    assert!(!skips("DEFAULT", 1, 2_026_111_701));
    assert!(skips("INCREASE", 1, 2_026_111_701));
    for counting in ["EPOCH", "", "OFF"] {
        assert!(!skips(counting, 1_794_810_673, 1_794_810_999), "{counting}");
    }
}

#[tokio::test]
async fn chunks_hold_five_thousand_sets_and_never_split_a_name() {
    let atoms: Vec<Atom> = (0..5_001)
        .flat_map(|n| {
            let name = format!("h{n}");
            [atom(&name, &[RecordType::Txt], None), atom(&name, &[], Some((RecordType::A, "192.0.2.1")))]
        })
        .collect();
    let chunks = chunks(&atoms);
    assert_eq!(chunks.len(), 3);
    for chunk in &chunks {
        assert!(changes(&atoms, &chunk.members).len() <= MAX_PATCH_SETS);
        assert_eq!(chunk.members.len() % 2, 0, "both atoms of a name are in one chunk");
    }
}

#[tokio::test]
async fn chunks_stay_below_the_servers_body_limit() {
    let text = format!("\"{}\"", "x".repeat(200));
    let atoms: Vec<Atom> = (0..20_000).map(|n| atom(&format!("h{n}"), &[], Some((RecordType::Txt, &text)))).collect();
    for chunk in chunks(&atoms) {
        let bytes: usize = changes(&atoms, &chunk.members).iter().map(Change::encoded_len).sum();
        assert!(bytes <= MAX_PATCH_BYTES, "{bytes}");
    }
}

#[tokio::test]
async fn deletions_come_before_writes_at_a_name_and_lonely_deletions_last() {
    let atoms = [
        atom("gone", &[RecordType::A], None),
        atom("www", &[RecordType::A], Some((RecordType::Cname, "web.example."))),
    ];
    let order = chunks(&atoms);
    let text: Vec<String> = changes(&atoms, &order[0].members)
        .iter()
        .map(|change| {
            format!("{} {} {}", if change.action == Action::Delete { "-" } else { "+" }, change.name, change.rtype)
        })
        .collect();
    assert_eq!(text, ["- www.example.com. A", "+ www.example.com. CNAME", "- gone.example.com. A"]);
}

#[tokio::test]
async fn exactly_the_bad_ones_are_refused_whatever_their_number() {
    for bad in [1_usize, 7, 40] {
        let server = server().await;
        let atoms: Vec<Atom> = (0..200)
            .map(|n| {
                let record = if n % (200 / bad) == 0 { "not an address" } else { "192.0.2.1" };
                atom(&format!("h{n}"), &[], Some((RecordType::A, record)))
            })
            .collect();
        let Sent { outcomes, calls, .. } = send(&server, &zone(), &atoms, None, None).await;
        for (atom, outcome) in atoms.iter().zip(&outcomes) {
            let good = &*atom.write.as_ref().unwrap().content.records[0] == "192.0.2.1";
            assert_eq!(matches!(outcome, AtomOutcome::Done { .. }), good, "{} {outcome:?}", atom.name);
        }
        assert!(calls <= 20 + bad * 10, "{calls} calls for {bad} bad ones");
    }
}

#[tokio::test]
async fn a_refused_switch_leaves_the_old_type() {
    let server = server().await;
    send(&server, &zone(), &[atom("www", &[], Some((RecordType::A, "192.0.2.1")))], None, None).await;
    let switch = [
        atom("www", &[RecordType::A], Some((RecordType::Cname, "not a host!"))),
        atom("other", &[], Some((RecordType::A, "192.0.2.2"))),
    ];
    let Sent { outcomes, .. } = send(&server, &zone(), &switch, None, None).await;
    assert!(matches!(outcomes[0], AtomOutcome::Refused(_)) && matches!(outcomes[1], AtomOutcome::Done { .. }));
    let sets = server.contents(&zone()).unwrap().sets;
    assert!(sets.iter().any(|set| set.rtype == RecordType::A && set.name == key("www", RecordType::A).name));
}

#[tokio::test]
async fn a_failed_call_fails_what_was_in_it_and_what_was_to_come() {
    let server = server().await;
    server.set_gate(Some(Arc::new(|_| {
        signpost_provider_powerdns::Fault::Before(ServerError::Failed { status: 500, words: "locked".into() })
    })));
    let atoms: Vec<Atom> =
        (0..6_000).map(|n| atom(&format!("h{n}"), &[], Some((RecordType::A, "192.0.2.1")))).collect();
    let Sent { outcomes, calls, .. } = send(&server, &zone(), &atoms, None, None).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, AtomOutcome::Failed(_))));
    assert_eq!(calls, 1);
}

/// The answer to a request instead.
type Fault = Box<dyn Fn(&[Change]) -> Option<ServerError> + Send + Sync>;

/// A server that does not take some requests.
struct Poisoned(MemoryServer, Fault);

impl Poisoned {
    /// A server that answers so wherever a name begins with `poison`.
    async fn with(error: ServerError) -> Self {
        let bad = |change: &Change| change.name.undotted().starts_with("poison");
        Self(server().await, Box::new(move |changes| changes.iter().any(bad).then(|| error.clone())))
    }

    /// A server whose database fails on some names.
    async fn database() -> Self {
        Self::with(ServerError::Failed { status: 500, words: "value too long for a column".into() }).await
    }
}

impl ZoneServer for Poisoned {
    fn server(&self) -> BoxFuture<'_, Result<ServerInfo, ServerError>> {
        self.0.server()
    }
    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        self.0.zone(zone)
    }
    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>> {
        self.0.read(zone)
    }
    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>> {
        self.0.create(zone)
    }
    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>> {
        self.0.configure(zone, settings)
    }
    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>> {
        if let Some(error) = (self.1)(changes) {
            return futures::future::ready(Err(error)).boxed();
        }
        self.0.patch(zone, changes)
    }
    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>> {
        self.0.delete(zone)
    }
    fn health(&self) -> signpost_provider_powerdns::Health {
        self.0.health()
    }
}

#[tokio::test]
async fn one_record_the_database_trips_over_fails_alone() {
    let server = Poisoned::database().await;
    let mut atoms: Vec<Atom> =
        (0..6_000).map(|n| atom(&format!("h{n}"), &[], Some((RecordType::A, "192.0.2.1")))).collect();
    atoms.insert(1234, atom("poison", &[], Some((RecordType::A, "192.0.2.1"))));
    let Sent { outcomes, calls, .. } = send(&server, &zone(), &atoms, None, None).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(matches!(outcome, AtomOutcome::Done { .. }), at != 1234, "{at} {outcome:?}");
    }
    assert!(matches!(outcomes[1234], AtomOutcome::Failed(_)));
    assert!(calls <= 32, "{calls} calls");
}

#[tokio::test]
async fn a_database_that_takes_nothing_is_not_hammered() {
    let server = Poisoned::database().await;
    let atoms: Vec<Atom> =
        (0..1_000).map(|n| atom(&format!("poison{n}"), &[], Some((RecordType::A, "192.0.2.1")))).collect();
    let Sent { outcomes, calls, .. } = send(&server, &zone(), &atoms, None, None).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, AtomOutcome::Failed(_))));
    assert!(calls <= 33, "{calls} calls");
}

#[tokio::test]
async fn a_request_that_is_too_large_for_a_proxy_is_halved_and_what_is_too_large_alone_is_refused() {
    let size = |changes: &[Change]| changes.iter().map(Change::encoded_len).sum::<usize>();
    let too_large = move |changes: &[Change]| {
        (size(changes) > 4_000).then(|| ServerError::Refused { words: "the request is too large (413)".into() })
    };
    let server = Poisoned(server().await, Box::new(too_large));
    let huge = format!("\"{}\"", "x".repeat(250)).repeat(20);
    let mut atoms: Vec<Atom> =
        (0..300).map(|n| atom(&format!("h{n}"), &[], Some((RecordType::A, "192.0.2.1")))).collect();
    atoms.insert(100, atom("huge", &[], Some((RecordType::Txt, &huge))));
    let Sent { outcomes, .. } = send(&server, &zone(), &atoms, None, None).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(matches!(outcome, AtomOutcome::Done { .. }), at != 100, "{at} {outcome:?}");
    }
    assert!(matches!(&outcomes[100], AtomOutcome::Refused(words) if words.contains("413")), "{:?}", outcomes[100]);
}

#[tokio::test]
async fn what_a_round_has_no_calls_left_for_is_put_off_and_later_rounds_get_through_all() {
    let server = Poisoned::with(ServerError::Refused { words: "one of them is wrong".into() }).await;
    let name = |n: usize| if n.is_multiple_of(4) { format!("h{n}") } else { format!("poison{n}") };
    let all: Vec<Atom> = (0..800).map(|n| atom(&name(n), &[], Some((RecordType::A, "192.0.2.1")))).collect();
    let (mut left, mut rounds) = (all, 0);
    while !left.is_empty() {
        let Sent { outcomes, calls, .. } = send(&server, &zone(), &left, None, None).await;
        assert!(calls <= MAX_CALLS, "{calls} calls");
        let mut deferred = Vec::new();
        for (atom, outcome) in left.into_iter().zip(outcomes) {
            let good = atom.name.undotted().starts_with('h');
            match outcome {
                AtomOutcome::Done { .. } => assert!(good, "{}", atom.name),
                AtomOutcome::Refused(_) => assert!(!good, "{}", atom.name),
                AtomOutcome::Deferred => deferred.push(atom),
                other => panic!("{}: {other:?}", atom.name),
            }
        }
        left = deferred;
        rounds += 1;
        assert!(rounds < 20, "{} are left", left.len());
    }
    assert!(rounds > 1, "the first round had calls for all");
    assert_eq!(server.0.contents(&zone()).unwrap().sets.len(), 202);
}

#[tokio::test]
async fn a_zone_that_takes_nothing_is_told_from_bad_records_by_a_few_calls() {
    let server = Poisoned::with(ServerError::Refused { words: "Failed to rectify".into() }).await;
    let all = |count: usize| -> Vec<Atom> {
        (0..count).map(|n| atom(&format!("poison{n}"), &[], Some((RecordType::A, "192.0.2.1")))).collect()
    };
    let Sent { outcomes, calls, closed, .. } = send(&server, &zone(), &all(300), None, None).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, AtomOutcome::Refused(_))));
    assert_eq!(closed.as_deref(), Some("Failed to rectify"));
    assert!(calls < 30, "{calls} calls");
    let again = send(&server, &zone(), &all(300), None, closed.as_deref()).await;
    assert_eq!((again.calls, again.closed), (1, closed));
    // An accepted change proves the opposite, wherever it is.
    for at in [0, 150, 299] {
        let mut atoms = all(300);
        atoms[at] = atom("h", &[], Some((RecordType::A, "192.0.2.1")));
        let Sent { outcomes, closed, .. } = send(&server, &zone(), &atoms, None, None).await;
        assert!(matches!(outcomes[at], AtomOutcome::Done { .. }) && closed.is_none(), "{at}");
    }
}

/// A round that has all atoms still to send.
fn round(atoms: &[Atom]) -> Round<'_> {
    let waiting = VecDeque::from([Chunk { members: (0..atoms.len()).collect(), drops: 0 }]);
    Round { atoms, closed: None, outcomes: Vec::new(), waiting, refusals: Refusals::default() }
}

#[test]
fn only_an_atom_that_is_alone_at_its_name_is_probed() {
    let address = |name: &str| atom(name, &[], Some((RecordType::A, "192.0.2.1")));
    let text = |name: &str| atom(name, &[], Some((RecordType::Txt, "\"x\"")));
    let both = [address("a"), text("a"), address("b"), text("b")];
    let one = [address("a"), text("a"), address("longer"), address("b"), text("b")];
    for count in EQUAL_REFUSALS..EQUAL_REFUSALS + PROBES {
        assert_eq!((round(&both).probe(count), round(&one).probe(count)), (None, Some(2)));
    }
}

/// Comparing each name with each other one would take minutes here.
#[test]
fn a_probe_of_a_large_zone_ends_soon() {
    let atoms: Vec<Atom> =
        (0..60_000).map(|n| atom(&format!("h{n:05}"), &[], Some((RecordType::A, "192.0.2.1")))).collect();
    let round = round(&atoms);
    for (count, found) in (EQUAL_REFUSALS..).zip([0, 59_999, 30_000]) {
        assert_eq!(round.probe(count), Some(found));
    }
}

#[test]
fn several_large_sets_at_one_name_are_sent_one_after_the_other() {
    let large = format!("\"{}\" ", "x".repeat(250)).repeat(4_000);
    let atoms = [
        atom("www", &[RecordType::Cname], None),
        atom("www", &[], Some((RecordType::Txt, &large))),
        atom("www", &[], Some(("SPF".parse().unwrap(), &large))),
    ];
    let chunks = chunks(&atoms);
    let sizes = chunks.iter().map(|chunk| changes(&atoms, &chunk.members).iter().map(Change::encoded_len).sum());
    assert!(sizes.into_iter().all(|size: usize| size <= MAX_PATCH_BYTES));
    let order: Vec<usize> = chunks.iter().flat_map(|chunk| chunk.members.clone()).collect();
    assert_eq!((chunks.len(), order), (2, vec![0, 1, 2]));
}

#[test]
fn blame_tells_a_type_from_a_longer_one_and_a_name_from_a_longer_one() {
    let atoms = [
        atom("www", &[], Some((RecordType::A, "x"))),
        atom("www", &[], Some((RecordType::Aaaa, "x"))),
        atom("a.www", &[], Some((RecordType::A, "x"))),
    ];
    let all = [0, 1, 2];
    assert_eq!(blamed(&atoms, &all, "RRset www.example.com. IN AAAA: Conflicts"), Some(1));
    assert_eq!(blamed(&atoms, &all, "Record www.example.com./A 'x': Parsing"), Some(0));
    assert_eq!(blamed(&atoms, &all, "Record a.www.example.com./A 'x': Parsing"), Some(2));
    assert_eq!(blamed(&atoms, &all, "database is locked"), None);
}
