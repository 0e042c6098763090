//! The lookups of a pass, within its time and within the memory for answers.
//!
//! ```text
//!  due entries ─► questions, in order ─► answers ─┬─ every question of an entry has one: it is judged
//!                                                 ├─ the entry alone is too large, or takes too long: reported as such
//!                                                 └─ others: asked by the next pass
//! ```
//!
//! A name that takes too long has its turn for seconds, so names that may do so have a part of the turns, over all passes: those that took too long the
//! last time, and what is left of a pass once a name in it took too long. Otherwise a few objects with such names would have all of the turns. A pass does
//! not wait long for these turns. Passes that wait until their time is over have a turn for their last moments: lookups are cut off, and no name is judged.
//!
//! A message of 64 KiB can have values of more than a MiB, because names in it are compressed. The resolver bounds one answer, a pass bounds its own, and
//! all passes together have a bound too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use signpost_dns::{Fqdn, RecordType};
use signpost_provider_resolver::{LookupError, Reply};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use crate::PortalSystem;
use crate::plan::entries::{Question, Subject, Wanted};
use crate::plan::judge::{Answers, questions};
use crate::plan::{Doubts, MANY_QUESTIONS, Unfinished, Verdicts};

/// Octets of answers that one pass keeps.
const MOST: usize = 1 << 20;
/// Octets of answers that one pass may keep, however many others there are.
const LEAST: usize = 64 << 10;
/// Octets of answers that all passes keep.
const MOST_OF_ALL: usize = 16 << 20;
/// How long a name that may take long waits for a turn.
const MOST_WAIT: Duration = Duration::from_secs(1);

/// The publisher of a name, where the address of its server is known.
pub(super) type Server = Box<str>;

/// The answers of a pass.
#[derive(Debug, Default)]
pub(super) struct LookedUp {
    pub(super) answers: Answers,
    /// Entries that no pass can look up.
    pub(super) unfinished: BTreeMap<Subject, Unfinished>,
    /// How many entries are left to the next pass.
    pub(super) left: usize,
    /// Whether some of them had no turn.
    pub(super) busy: bool,
}

/// The octets of answers that all passes keep while they look names up.
#[derive(Debug, Default)]
pub(crate) struct Kept(AtomicUsize);

/// The part of one pass, until it ends or is cut off.
struct Share<'a> {
    kept: &'a Kept,
    octets: usize,
}

impl Kept {
    fn share(&self) -> Share<'_> {
        Share { kept: self, octets: 0 }
    }
}

impl Share<'_> {
    fn add(&mut self, octets: usize) {
        self.octets += octets;
        self.kept.0.fetch_add(octets, Ordering::Relaxed);
    }

    /// Whether the pass keeps no further answers.
    fn is_full(&self) -> bool {
        let all = self.kept.0.load(Ordering::Relaxed);
        self.octets >= MOST || self.octets >= LEAST && all >= MOST_OF_ALL
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.kept.0.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

/// Why a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Answered,
    Full,
    Late,
    /// Names that may take long had no turn.
    Busy,
}

/// The names that are due and may take long. A name whose publisher has changed may be fixed, so it is not one of them.
pub(super) fn doubtful(due: &[&Wanted], verdicts: &Verdicts, changed: &BTreeSet<Fqdn>) -> BTreeSet<Fqdn> {
    let doubts = Doubts::new(verdicts);
    let doubted = due.iter().filter(|wanted| doubts.has(wanted));
    let names = doubted.filter_map(|wanted| wanted.question.as_ref().ok()).map(|question| &question.name);
    names.filter(|name| !changed.contains(*name)).cloned().collect()
}

/// Whether a resolver did not answer in time.
fn took_too_long(replies: &[Reply]) -> bool {
    replies.iter().any(|reply| matches!(reply.result, Err(LookupError::Timeout { .. })))
}

/// A turn for a name that may take long; `None` where other names have all of them. Once a name of a pass had none, the others of the pass do not wait.
async fn slow_turn<'a>(system: &'a PortalSystem, busy: &AtomicBool) -> Option<SemaphorePermit<'a>> {
    if busy.load(Ordering::Relaxed) {
        return None;
    }
    // The semaphore is never closed.
    let turn = timeout(MOST_WAIT, system.slow.acquire()).await.ok().and_then(Result::ok);
    if turn.is_none() {
        busy.store(true, Ordering::Relaxed);
    }
    turn
}

/// Asks, as many questions at once as the resolvers allow, until the time of the pass is over or its answers are too large. The
/// server that a name was published to is asked beside the resolvers, and its answer is the first one.
pub(super) async fn look_up(
    system: &PortalSystem,
    due: &[&Wanted],
    asked: Vec<((Fqdn, RecordType), Option<Server>)>,
    doubtful: &BTreeSet<Fqdn>,
) -> LookedUp {
    let until = Instant::now() + system.pace.budget;
    let (mut answers, mut share) = (Answers::new(), system.kept.share());
    let (is_late, is_busy) = (AtomicBool::new(false), AtomicBool::new(false));
    let (late, busy) = (&is_late, &is_busy);
    let mut replies = futures::stream::iter(asked)
        .map(|((name, rtype), server)| async move {
            let may_take_long = late.load(Ordering::Relaxed) || doubtful.contains(&name);
            let _turn = if may_take_long { Some(slow_turn(system, busy).await?) } else { None };
            let replies = ask(system, &name, rtype, server).await;
            if took_too_long(&replies) {
                late.store(true, Ordering::Relaxed);
            }
            Some(((name, rtype), replies))
        })
        // One object with many names that take long leaves some turns to the others.
        .buffer_unordered((system.pace.lookups * 4 / 5).max(1));
    let end = loop {
        match timeout_at(until, replies.next()).await {
            Ok(Some(Some((question, replies)))) => {
                system.metrics.looked_up(&replies);
                share.add(octets_of(&replies));
                answers.insert(question, replies);
            }
            Ok(Some(None)) => {}
            Ok(None) => break End::Answered,
            Err(_) => break End::Late,
        }
        // The others are asked by the next pass.
        if share.is_full() {
            break End::Full;
        }
    };
    drop(replies);
    let end = if end != End::Full && is_busy.load(Ordering::Relaxed) { End::Busy } else { end };
    finish(due, answers, end)
}

/// Tells entries that the next pass can look up from those that no pass can: one whose own answers are too large, and one with so many targets that
/// asking for them takes longer than a pass.
fn finish(due: &[&Wanted], answers: Answers, end: End) -> LookedUp {
    let mut looked_up = LookedUp { answers, busy: end == End::Busy, ..LookedUp::default() };
    if end == End::Answered {
        return looked_up;
    }
    for (wanted, question) in due.iter().filter_map(|wanted| Some((wanted, wanted.question.as_ref().ok()?))) {
        let asked = questions(question);
        let answered = asked.iter().filter_map(|key| looked_up.answers.get(key));
        if answered.clone().count() == asked.len() {
            continue;
        }
        let is_slow = || asked.len() > MANY_QUESTIONS && is_answered(question, &asked, &looked_up.answers);
        let why = match end {
            End::Full if answered.clone().map(|replies| octets_of(replies)).sum::<usize>() >= MOST / 2 => {
                Some(Unfinished::TooLarge)
            }
            End::Late if is_slow() => Some(Unfinished::TooSlow),
            // Without a target that took too long, it was others that had the turns.
            End::Busy if is_slow() && answered.clone().any(|replies| took_too_long(replies)) => {
                Some(Unfinished::TooSlow)
            }
            End::Full | End::Late | End::Busy | End::Answered => None,
        };
        match (why, wanted.subject()) {
            (Some(why), Some(subject)) => {
                looked_up.unfinished.insert(subject, why);
            }
            _ => looked_up.left += 1,
        }
    }
    looked_up
}

/// Whether the questions for the name itself are answered: the pass had turns, and the targets took its time.
fn is_answered(question: &Question, asked: &[(Fqdn, RecordType)], answers: &Answers) -> bool {
    asked.iter().filter(|(name, _)| *name == question.name).all(|key| answers.contains_key(key))
}

/// About how much memory replies take.
fn octets_of(replies: &[Reply]) -> usize {
    replies.iter().filter_map(|reply| reply.result.as_ref().ok()).map(signpost_provider_resolver::Answer::octets).sum()
}

async fn ask(system: &PortalSystem, name: &Fqdn, rtype: RecordType, server: Option<Server>) -> Vec<Reply> {
    let resolvers = system.lookups.resolvers.lookup(name, rtype);
    let Some(server) = server.and_then(|server| system.lookups.servers.get(&server)) else { return resolvers.await };
    let (mut replies, others) = join(server.lookup(name, rtype), resolvers).await;
    replies.extend(others);
    replies
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use signpost_apis::portal::DnsEntry;
    use signpost_dns::Rdata;
    use signpost_inventory::{SyncReason, SyncStatus, Values};
    use signpost_provider_resolver::{Answer, Rcode};

    use super::*;
    use crate::plan::judge::Verdict;
    use crate::plan::{Checked, entries};

    /// A reply with so many mail servers.
    fn answered(count: usize) -> Reply {
        let server: Arc<str> = "192.0.2.53".into();
        let long = format!("10 {}example.org.", "a23456789.".repeat(20));
        let values = vec![Rdata::parse(&RecordType::Mx, &long).unwrap(); count];
        let (chain, took) = (Vec::new(), Duration::ZERO);
        let answer = Answer { rcode: Rcode::NoError, chain, values, ttl: None, server: server.clone(), took };
        Reply { resolver: server, result: Ok(answer) }
    }

    #[test]
    fn the_values_of_every_reply_count() {
        let one = octets_of(&[answered(100)]);
        assert!((20_000..40_000).contains(&one), "{one}");
        let (server, after): (Arc<str>, _) = ("192.0.2.53".into(), Duration::from_secs(5));
        let silent = Reply { resolver: server.clone(), result: Err(LookupError::Timeout { server, after }) };
        assert_eq!(octets_of(&[answered(100), silent, answered(100)]), 2 * one);
    }

    #[test]
    fn all_passes_together_have_one_bound_and_each_a_part_of_its_own() {
        let kept = Kept::default();
        let mut shares: Vec<Share<'_>> = (0..16).map(|_| kept.share()).collect();
        for share in &mut shares {
            share.add(MOST - 1);
            assert!(!share.is_full());
        }
        shares[0].add(1);
        assert!(shares[0].is_full(), "the bound of one pass");
        let mut late = kept.share();
        late.add(LEAST - 1);
        assert!(!late.is_full(), "a pass beside many others makes progress");
        late.add(1);
        assert!(late.is_full(), "the bound of all");
        drop(shares);
        assert!(!late.is_full());
        drop(late);
        assert_eq!(kept.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn names_that_took_too_long_are_doubtful_until_their_publisher_changes() {
        let read = |name: &str| entries::read(&DnsEntry { fqdn: name.into(), ..DnsEntry::default() });
        let names = ["new.example.org", "slow.example.org", "late.example.org", "good.example.org"].map(read);
        let checked = |number: usize, status: SyncStatus| {
            let never = Timestamp::UNIX_EPOCH;
            let verdict = Verdict::new(status, SyncReason::Timeout, Values::default());
            (names[number].subject().unwrap(), Checked { verdict, at: never, next: never, from: never, failures: 0 })
        };
        let due: Vec<&Wanted> = names.iter().collect();
        let seen = |verdicts: &Verdicts, changed: &[&str]| -> Vec<String> {
            let changed = changed.iter().map(|name| Fqdn::parse(name).unwrap()).collect();
            doubtful(&due, verdicts, &changed).iter().map(|name| name.undotted().to_owned()).collect()
        };
        let (slow, late) = (checked(1, SyncStatus::Timeout), checked(2, SyncStatus::Timeout));
        let good = checked(3, SyncStatus::Sync);
        let half = Verdicts::from([slow.clone(), good.clone()]);
        assert_eq!(seen(&half, &[]), ["slow.example.org"]);
        assert_eq!(seen(&half, &["slow.example.org"]), Vec::<String>::new());
        assert_eq!(seen(&Verdicts::from([good.clone()]), &[]), Vec::<String>::new());
        let most = Verdicts::from([slow, late, good]);
        assert_eq!(seen(&most, &[]), ["late.example.org", "new.example.org", "slow.example.org"]);
    }

    #[test]
    fn an_entry_that_no_pass_can_look_up_is_told_from_one_that_waits() {
        let entry = |name: &str, hosts: usize| {
            let targets = (0..hosts).map(|number| format!("h{number}.example.net")).collect();
            entries::read(&DnsEntry { fqdn: name.into(), targets, ..DnsEntry::default() })
        };
        let (large, other, next) =
            (entry("large.example.org", 20), entry("other.example.org", 1), entry("next.example.org", 0));
        let due = [&other, &large, &next];
        let subject = |wanted: &Wanted| wanted.subject().unwrap();
        let answers = |count: usize| -> Answers {
            let own = questions(large.question.as_ref().unwrap()).into_iter().take(12);
            own.map(|question| (question, vec![answered(count)])).collect()
        };
        let full = finish(&due, answers(400), End::Full);
        assert_eq!(full.unfinished, BTreeMap::from([(subject(&large), Unfinished::TooLarge)]));
        assert_eq!(full.left, 2, "the answers of the large one are not those of its neighbours");
        assert_eq!(
            (finish(&due, answers(1), End::Full).unfinished.len(), finish(&due, answers(1), End::Full).left),
            (0, 3)
        );
        let late = finish(&due, answers(1), End::Late);
        assert_eq!(late.unfinished, BTreeMap::from([(subject(&large), Unfinished::TooSlow)]));
        assert_eq!(late.left, 2);
        let starved = finish(&due, Answers::new(), End::Late);
        assert_eq!((starved.unfinished.len(), starved.left), (0, 3), "other objects had the turns");
        let busy = finish(&due, answers(1), End::Busy);
        assert_eq!((busy.unfinished.len(), busy.left, busy.busy), (0, 3, true), "its targets do not take long");
        let (server, after): (Arc<str>, _) = ("192.0.2.53".into(), Duration::from_secs(5));
        let silent = Reply { resolver: server.clone(), result: Err(LookupError::Timeout { server, after }) };
        let mut slow = answers(1);
        let host = questions(large.question.as_ref().unwrap()).remove(2);
        slow.insert(host, vec![silent]);
        let busy = finish(&due, slow, End::Busy);
        assert_eq!(busy.unfinished, BTreeMap::from([(subject(&large), Unfinished::TooSlow)]));
        assert_eq!((busy.left, busy.busy, late.busy), (2, true, false));
    }
}
