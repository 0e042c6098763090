//! Passes one after another on a clock of the test's own: what is written how often, and how long a Pi-hole is left alone.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use signpost_engine::metrics::Metrics;
use signpost_engine::{Clock, Index, Job, ManualClock, Outcome, Queue, Report, RetryClass, System};
use signpost_provider_pihole::{self as provider, ChangeSet, Dialect, MemoryPihole, OwnerId, Pihole, PiholeError};

use std::time::Duration;

use super::*;
use crate::index::{IngressIndex, REGISTER, TARGET_CNAME, ingress_id};

/// How long a write takes here.
const WRITE: SignedDuration = SignedDuration::from_secs(7);

/// A Pi-hole that takes its time to write aliases, and whose aliases a foreign writer may put back at once.
struct Slow {
    lists: MemoryPihole,
    clock: Arc<ManualClock>,
    undoes: bool,
    /// When writes of aliases began.
    restarts: Mutex<Vec<Timestamp>>,
    /// Whether the next write, a whole list, ends without an answer and is carried out later.
    hangs: AtomicBool,
    /// The write to carry out.
    late: Mutex<Vec<ChangeSet>>,
    /// Whether the next write is refused, and a foreign line is added during it.
    refuses: AtomicBool,
}

impl Slow {
    fn carry_out_late(&self) {
        for changes in self.late.lock().unwrap().drain(..) {
            self.lists.apply(&changes).now_or_never().unwrap();
        }
    }
}

impl Pihole for Slow {
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>> {
        self.lists.probe()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, PiholeError>> {
        self.lists.list()
    }

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, provider::ApplyResult> {
        async {
            if changes.touches_cnames() > 0 {
                self.restarts.lock().unwrap().push(self.clock.now());
                self.clock.skew_by(WRITE);
            }
            if self.hangs.swap(false, Ordering::SeqCst) {
                let whole: Vec<Line> =
                    self.lists.listing().hosts.into_iter().chain(changes.add_hosts.iter().cloned()).collect();
                self.late.lock().unwrap().push(ChangeSet { add_hosts: whole.clone(), ..changes.clone() });
                return provider::ApplyResult {
                    stopped: Some(PiholeError::Timeout),
                    sent: Some(whole),
                    ..provider::ApplyResult::default()
                };
            }
            if self.refuses.swap(false, Ordering::SeqCst) {
                self.lists.edit(|listing| listing.hosts.push(Line::stored("10.0.0.1 mine.lan")));
                let refuse =
                    |line: &Line| (line.clone(), PiholeError::LineRefused { line: line.clone(), why: "no".into() });
                let refused = changes.add_hosts.iter().map(refuse).collect();
                return provider::ApplyResult { refused, writes: 1, ..provider::ApplyResult::default() };
            }
            let mut changes = changes.clone();
            if self.undoes {
                changes.add_cnames.clear();
            }
            provider::ApplyResult { writes: 1, ..self.lists.apply(&changes).await }
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.lists.close()
    }

    fn dialect(&self) -> Option<Dialect> {
        self.lists.dialect()
    }
}

/// A ledger in memory.
#[derive(Default)]
struct OneLedger(Mutex<Versioned>);

impl LedgerStore for OneLedger {
    fn cluster_id(&self) -> BoxFuture<'_, Result<String, LedgerError>> {
        async { Ok("cluster".to_owned()) }.boxed()
    }

    fn load(&self, _instance: &str) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        async { Ok(self.0.lock().unwrap().clone()) }.boxed()
    }

    fn save(&self, _instance: &str, ledger: Versioned) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        let version = ledger.version.as_deref().map_or(0, |version| version.parse::<u64>().unwrap());
        let saved = Versioned { version: Some((version + 1).to_string()), ..ledger };
        self.0.lock().unwrap().clone_from(&saved);
        async { Ok(saved) }.boxed()
    }
}

struct Bed {
    clock: Arc<ManualClock>,
    pihole: Arc<Slow>,
    index: Arc<IngressIndex>,
    system: PiholeSystem,
    ledger: Arc<OneLedger>,
    memory: Mutex<Memory>,
}

impl Bed {
    fn new(undoes: bool) -> Self {
        Self::gathering(undoes, Duration::ZERO)
    }

    /// A bed whose system gathers changes for a time.
    fn gathering(undoes: bool, gather: Duration) -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_second(1_000_000).unwrap()));
        let pihole = Arc::new(Slow {
            lists: MemoryPihole::new(),
            clock: Arc::clone(&clock),
            undoes,
            restarts: Mutex::default(),
            hangs: AtomicBool::new(false),
            late: Mutex::default(),
            refuses: AtomicBool::new(false),
        });
        let policy = Policy { gather, ..Policy::new(OwnerId::parse("home").unwrap(), "192.168.1.10".parse().unwrap()) };
        let index = Arc::new(IngressIndex::new(policy.default_target, false, vec!["pihole".into()], Queue::new()));
        let instance = Arc::new(Instance::new("pihole", Arc::clone(&pihole) as Arc<dyn Pihole>));
        let ledger = Arc::new(OneLedger::default());
        let system = PiholeSystem::new(
            policy,
            Arc::clone(&index),
            BTreeMap::from([("pihole".to_owned(), instance)]),
            Arc::clone(&ledger) as Arc<dyn LedgerStore>,
            Arc::clone(&clock) as Arc<dyn Clock>,
            &Metrics::new(),
        );
        Self { clock, pihole, index, system, ledger, memory: Mutex::default() }
    }

    /// An Ingress with one host, `{name}.lan`.
    fn register(&self, name: &str, alias_of: Option<&str>) {
        let mut annotations = serde_json::json!({ REGISTER: "true" });
        if let Some(target) = alias_of {
            annotations[TARGET_CNAME] = target.into();
        }
        let object = serde_json::json!({
            "metadata": {"namespace": "default", "name": name, "uid": name, "annotations": annotations},
            "spec": {"rules": [{ "host": format!("{name}.lan") }]},
        });
        self.index.applied(&serde_json::from_value(object).unwrap());
    }

    /// One pass: the reasons of its events, and when the next is due.
    async fn pass(&self) -> (Vec<String>, Outcome<IngressId>) {
        let job = Job { key: "pihole".to_owned(), touched: Touched::<IngressId>::All, attempt: 0 };
        let memory = std::mem::take(&mut *self.memory.lock().unwrap());
        let observed = self.system.observe(&job, memory).await;
        let plan = PiholeSystem::plan(observed, self.clock.now());
        let applied = self.system.apply(plan).await;
        let mut report: Report<PiholeSystem> = PiholeSystem::report(applied, self.clock.now());
        *self.memory.lock().unwrap() = report.memory.take().unwrap_or_default();
        (report.events.into_iter().map(|event| event.reason).collect(), report.outcome)
    }

    /// Runs the passes that are due within this time; returns the reasons of their events.
    async fn passes_for(&self, time: SignedDuration) -> Vec<String> {
        let end = self.clock.now() + time;
        let mut reported = Vec::new();
        while self.clock.now() < end {
            let (reasons, outcome) = self.pass().await;
            reported.extend(reasons);
            let pause = match outcome {
                Outcome::Done => return reported,
                Outcome::Check { after } => after,
                Outcome::Retry { class: RetryClass::Now, .. } => Duration::ZERO,
                Outcome::Retry { class, .. } => pause_of(class),
            };
            let left = end.duration_since(self.clock.now());
            self.clock.skew_by(SignedDuration::try_from(pause).unwrap().min(left));
        }
        reported
    }

    /// The times between one restart and the next.
    fn between_restarts(&self) -> Vec<SignedDuration> {
        let restarts = self.pihole.restarts.lock().unwrap();
        restarts.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect()
    }
}

fn pause_of(class: RetryClass) -> Duration {
    match class {
        RetryClass::Fixed(pause) | RetryClass::Throttled { after: Some(pause) } => pause,
        other => panic!("{other:?} has no pause of its own"),
    }
}

fn is_throttled(class: &Outcome<IngressId>) -> bool {
    matches!(class, Outcome::Retry { class: RetryClass::Throttled { .. }, .. })
}

fn due(outcome: Outcome<IngressId>) -> Duration {
    match outcome {
        Outcome::Retry { class, .. } => pause_of(class),
        other => panic!("{other:?} is not a failure"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_resolver_is_restarted_at_most_once_a_minute_however_long_a_write_takes() {
    let bed = Bed::new(false);
    for n in 0..20 {
        bed.register(&format!("a{n}"), Some("target.lan"));
        bed.passes_for(SignedDuration::from_secs(11)).await;
    }
    bed.passes_for(SignedDuration::from_mins(5)).await;
    assert_eq!(bed.pihole.lists.listing().cnames.len(), 20);
    let between = bed.between_restarts();
    assert!(between.len() >= 3, "{between:?}");
    let shortest = SignedDuration::from_mins(1) + WRITE;
    assert!(between.iter().all(|time| *time >= shortest), "from the end of one write on: {between:?}");
}

#[tokio::test(start_paused = true)]
async fn an_alias_undone_repeatedly_is_reported_and_restarts_less_and_less() {
    let bed = Bed::new(true);
    bed.register("app", Some("target.lan"));
    let reported = bed.passes_for(SignedDuration::from_hours(2)).await;
    assert!(reported.contains(&"Unsettled".to_owned()), "{reported:?}");
    assert_eq!(reported.len(), 1, "the error lasts until the alias stays: {reported:?}");
    let between = bed.between_restarts();
    assert!(between.is_sorted(), "{between:?}");
    assert!(between[0] < SignedDuration::from_mins(3), "{between:?}");
    assert!(between.len() < 16, "{between:?}");
    assert!(*between.last().unwrap() >= SignedDuration::from_mins(10), "{between:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_undone_does_not_delay_others() {
    let bed = Bed::new(true);
    bed.register("app", Some("target.lan"));
    for _ in 0..100 {
        let (reported, outcome) = bed.pass().await;
        if reported.contains(&"Unsettled".to_owned()) {
            assert!(!is_throttled(&outcome), "{outcome:?}");
            bed.register("other", None);
            bed.pass().await;
            assert_eq!(bed.pihole.lists.listing().hosts.len(), 1);
            return;
        }
        bed.clock.skew_by(SignedDuration::from_secs(10));
    }
    panic!("it is never reported");
}

#[tokio::test(start_paused = true)]
async fn rows_17_and_40_a_pause_grows_when_it_ends_and_a_change_does_not_end_it() {
    let bed = Bed::new(false);
    let server = PiholeError::Server { status: 503, detail: String::new() };
    let refused = PiholeError::Unreachable { what: "refused".into(), quick: true };
    let within = |pause: Duration, seconds: u64| {
        let usual = Duration::from_secs(seconds);
        assert!(pause >= usual.mul_f64(0.9) && pause <= usual.mul_f64(1.1), "{pause:?} for {seconds} s");
    };
    bed.register("app", None);
    bed.pihole.lists.fail(Some(refused));
    let (_, first) = bed.pass().await;
    assert!(!is_throttled(&first), "nobody listens: a change may be tried at once");
    let first = due(first);
    within(first, 30);
    // Ten changes before the pause is over.
    for n in 0..10 {
        bed.clock.skew_by(SignedDuration::from_secs(1));
        bed.register(&format!("more-{n}"), None);
        let (_, outcome) = bed.pass().await;
        assert_eq!(due(outcome) + Duration::from_secs(n + 1), first, "the rest of the same pause");
    }
    bed.clock.skew_by(SignedDuration::try_from(first).unwrap());
    // It listens again, but fails: now it is left alone.
    bed.pihole.lists.fail(Some(server));
    let (_, second) = bed.pass().await;
    assert!(is_throttled(&second));
    let second = due(second);
    within(second, 60);
    bed.clock.skew_by(SignedDuration::try_from(second).unwrap());
    within(due(bed.pass().await.1), 120);
    bed.clock.skew_by(SignedDuration::from_mins(3));
    bed.pihole.lists.fail(None);
    bed.pass().await;
    bed.pihole.lists.fail(Some(PiholeError::Timeout));
    within(due(bed.pass().await.1), 30);
}

#[tokio::test(start_paused = true)]
async fn a_single_change_waits_for_no_other_and_a_burst_is_gathered() {
    let gather = Duration::from_millis(300);
    let bed = Bed::gathering(false, gather);
    let looks = |name: &str| Job {
        key: "pihole".to_owned(),
        touched: Touched::Some([ingress_id("default", name)].into()),
        attempt: 0,
    };
    let waited = async |job: Job<String, IngressId>| {
        let begun = tokio::time::Instant::now();
        bed.system.observe(&job, Memory::default()).await;
        begun.elapsed()
    };
    tokio::time::advance(Duration::from_secs(5)).await;
    bed.register("app", None);
    assert_eq!(waited(looks("app")).await, Duration::ZERO, "nothing changed for a while before");
    tokio::time::advance(Duration::from_millis(20)).await;
    bed.register("two", None);
    assert_eq!(waited(looks("two")).await, gather, "more may come");
    tokio::time::advance(Duration::from_secs(5)).await;
    bed.register("three", None);
    assert_eq!(waited(looks("three")).await, Duration::ZERO);
    // Every write of aliases restarts the resolver: a single new alias waits for others, and so does a deleted one.
    tokio::time::advance(Duration::from_secs(5)).await;
    bed.register("alias", Some("app.lan"));
    assert_eq!(waited(looks("alias")).await, gather);
    tokio::time::advance(Duration::from_secs(5)).await;
    bed.index.deleted(&ingress_id("default", "alias"));
    assert_eq!(waited(looks("alias")).await, gather);
}

#[tokio::test(start_paused = true)]
async fn a_refused_line_is_retried_when_the_pihole_changed_during_the_write() {
    let bed = Bed::new(false);
    bed.register("app", None);
    bed.pihole.refuses.store(true, Ordering::SeqCst);
    bed.pass().await;
    let hosts = || bed.pihole.lists.listing().hosts;
    assert_eq!(hosts(), [Line::stored("10.0.0.1 mine.lan")]);
    bed.pass().await;
    assert_eq!(hosts().len(), 2, "{:?}", hosts());
}

/// The deletion is paused, then allowed, and cannot be carried out: it is still the same deletion.
#[tokio::test(start_paused = true)]
async fn a_paused_deletion_on_a_read_only_pihole_is_reported_once() {
    let bed = Bed::new(false);
    bed.register("app", None);
    let orphan = |n: usize| Line::stored(&format!("192.168.1.10 orphan-{n}.lan # signpost=home"));
    bed.pihole.lists.edit(|listing| {
        listing.hosts.extend((0..20).map(orphan));
        listing.write_error = Some(PiholeError::ReadOnly);
    });
    let mut reported = bed.passes_for(SignedDuration::from_hours(1)).await;
    reported.sort();
    assert_eq!(reported, ["DeletionsHeld", "ReadOnly"]);
    assert_eq!(bed.pihole.lists.listing().hosts.len(), 20);
    // It can be written again: the deletion waited for long enough.
    bed.pihole.lists.edit(|listing| listing.write_error = None);
    let (reported, _) = bed.pass().await;
    assert_eq!((reported, bed.pihole.lists.listing().hosts.len()), (Vec::<String>::new(), 1));
}

/// A Pi-hole without marks, on which the record of an Ingress `app` was written without an answer.
async fn written_without_an_answer() -> Bed {
    let bed = Bed::new(false);
    bed.pihole.lists.edit(|listing| listing.capabilities = provider::Capabilities::V6_WITHOUT_COMMENTS);
    bed.register("app", None);
    bed.pihole.hangs.store(true, Ordering::SeqCst);
    bed.pass().await;
    assert_eq!(bed.pihole.late.lock().unwrap().len(), 1);
    bed
}

impl Bed {
    fn ledger(&self) -> String {
        self.ledger.0.lock().unwrap().ledger.to_text()
    }

    /// The pass that is due once everything uncertain is over.
    async fn pass_after_grace(&self, outcome: Outcome<IngressId>) {
        let pause = due(outcome);
        assert!(pause <= self.system.policy.grace, "{pause:?}");
        self.clock.skew_by(SignedDuration::try_from(pause).unwrap());
        self.pass().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_marks_a_write_that_is_carried_out_late_is_deleted() {
    let bed = written_without_an_answer().await;
    bed.index.deleted(&ingress_id("default", "app"));
    let (_, outcome) = bed.pass().await;
    assert_eq!(bed.ledger(), "192.168.1.10 app.lan\n", "the Pi-hole may still carry it out");
    bed.pihole.carry_out_late();
    assert_eq!(bed.pihole.lists.listing().hosts.len(), 1);
    bed.pass_after_grace(outcome).await;
    assert_eq!(bed.pihole.lists.listing().hosts, []);
    assert_eq!(bed.ledger(), "");
}

#[tokio::test(start_paused = true)]
async fn without_marks_a_lost_write_leaves_the_ledger_after_the_grace_period() {
    let bed = written_without_an_answer().await;
    bed.index.deleted(&ingress_id("default", "app"));
    let (_, outcome) = bed.pass().await;
    bed.pass_after_grace(outcome).await;
    assert_eq!(bed.ledger(), "");
    assert!(matches!(bed.pass().await.1, Outcome::Check { .. }), "nothing is uncertain any more");
}

#[tokio::test(start_paused = true)]
async fn without_marks_a_late_write_after_a_second_one_was_answered_is_deleted() {
    let bed = written_without_an_answer().await;
    bed.pass().await;
    assert_eq!(bed.pihole.lists.listing().hosts.len(), 1, "written by the second request");
    bed.index.deleted(&ingress_id("default", "app"));
    let (_, outcome) = bed.pass().await;
    assert_eq!(bed.pihole.lists.listing().hosts, []);
    bed.pihole.carry_out_late();
    bed.pass_after_grace(outcome).await;
    assert_eq!((bed.pihole.lists.listing().hosts, bed.ledger()), (vec![], String::new()));
}

#[tokio::test(start_paused = true)]
async fn without_marks_a_late_list_does_not_bring_a_deleted_record_back() {
    let bed = Bed::new(false);
    bed.pihole.lists.edit(|listing| listing.capabilities = provider::Capabilities::V6_WITHOUT_COMMENTS);
    bed.register("old", None);
    bed.pass().await;
    bed.register("app", None);
    bed.pihole.hangs.store(true, Ordering::SeqCst);
    bed.pass().await;
    bed.index.deleted(&ingress_id("default", "old"));
    let (_, outcome) = bed.pass().await;
    let app = [Line::stored("192.168.1.10 app.lan")];
    assert_eq!(bed.pihole.lists.listing().hosts, app);
    // The list has the record that was deleted since.
    bed.pihole.carry_out_late();
    assert_eq!(bed.pihole.lists.listing().hosts.len(), 2);
    bed.pass_after_grace(outcome).await;
    assert_eq!(bed.pihole.lists.listing().hosts, app);
    assert_eq!(bed.ledger(), "192.168.1.10 app.lan\n");
}

#[tokio::test(start_paused = true)]
async fn without_marks_a_crash_does_not_forget_a_write_that_is_carried_out_late() {
    let bed = written_without_an_answer().await;
    *bed.memory.lock().unwrap() = Memory::default();
    bed.index.deleted(&ingress_id("default", "app"));
    let (_, outcome) = bed.pass().await;
    bed.pihole.carry_out_late();
    bed.pass_after_grace(outcome).await;
    assert_eq!((bed.pihole.lists.listing().hosts, bed.ledger()), (vec![], String::new()));
}

#[tokio::test(start_paused = true)]
async fn without_marks_a_ledger_that_was_only_read_is_written_before_it_is_relied_on() {
    let bed = Bed::new(false);
    bed.pihole.lists.edit(|listing| listing.capabilities = provider::Capabilities::V6_WITHOUT_COMMENTS);
    bed.register("app", None);
    bed.pass().await;
    let version = || bed.ledger.0.lock().unwrap().version.clone();
    assert_eq!(version().as_deref(), Some("1"));
    bed.pass().await;
    assert_eq!(version().as_deref(), Some("1"), "nothing is created");
    // Its line is listed already, but an earlier request may still remove it.
    bed.pihole.lists.edit(|listing| listing.hosts.clear());
    bed.pass().await;
    assert_eq!((version().as_deref(), bed.pihole.lists.listing().hosts.len()), (Some("2"), 1));
}

#[test]
fn a_foreign_line_that_was_sent_and_is_missing_afterwards_is_named() {
    let line = Line::stored;
    let ownership = Ownership::Marker { owner: OwnerId::parse("home").unwrap(), unmarked: plan::Ledger::default() };
    let ours = line("10.0.0.1 app.lan # signpost=home");
    let sent =
        [line("10.0.0.9  mine.lan"), line("10.0.0.8 lost.lan"), ours.clone(), line("10.0.0.1 old.lan # signpost=home")];
    let changes = ChangeSet { add_hosts: vec![ours], ..ChangeSet::default() };
    let after = |hosts: &[&str]| Listing {
        hosts: hosts.iter().map(|raw| line(raw)).collect(),
        ..MemoryPihole::new().listing()
    };
    let found = missing_lines(Some(&sent), &changes, &after(&["10.0.0.9 mine.lan"]), &ownership);
    let [refusal] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((refusal.reason, refusal.ingress.as_ref()), (Reason::ForeignLineMissing, None));
    assert!(refusal.message.contains("\"10.0.0.8 lost.lan\""), "{}", refusal.message);
    assert!(
        missing_lines(Some(&sent), &changes, &after(&["10.0.0.9 mine.lan", "10.0.0.8\tlost.lan"]), &ownership)
            .is_empty()
    );
    assert!(missing_lines(None, &changes, &after(&[]), &ownership).is_empty(), "single lines were sent");
}
