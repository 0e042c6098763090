//! The seed's tables and every false verdict of the program that this one replaces, as questions and answers.

use std::sync::Arc;

use signpost_apis::portal::{DnsEntry, DnsGroup, TargetMatch};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_inventory::{SyncReason as Reason, SyncStatus as Status};
use signpost_provider_resolver::{Answer, LookupError, Rcode, Reply};

use super::entries::{Question, aggregate, collect};
use super::judge::{Answers, Judged, judge, questions};
use super::*;

fn entry(fqdn: &str, rtype: &str, targets: &[&str]) -> DnsEntry {
    DnsEntry {
        fqdn: fqdn.into(),
        record_type: (!rtype.is_empty()).then(|| rtype.into()),
        targets: targets.iter().map(|target| (*target).to_owned()).collect(),
        ..DnsEntry::default()
    }
}

fn read(entry: DnsEntry) -> Wanted {
    let group = DnsGroup { name: "g".into(), description: None, entries: vec![entry] };
    aggregate(collect(&[group])).remove(0).names[0].clone()
}

fn question(fqdn: &str, rtype: &str, targets: &[&str]) -> Question {
    read(entry(fqdn, rtype, targets)).question.unwrap()
}

fn name(text: &str) -> Fqdn {
    Fqdn::parse(text).unwrap()
}

#[allow(clippy::unnecessary_wraps)] // The results of lookups, of which some are errors.
fn answer(rcode: Rcode, chain: &[&str], rtype: &str, values: &[&str]) -> Result<Answer, LookupError> {
    let rtype: RecordType = rtype.parse().unwrap();
    Ok(Answer {
        rcode,
        chain: chain.iter().map(|hop| name(hop)).collect(),
        values: values.iter().map(|value| Rdata::parse(&rtype, value).unwrap()).collect(),
        ttl: Some(60),
        server: "test".into(),
        took: Duration::ZERO,
    })
}

fn found(rtype: &str, values: &[&str]) -> Result<Answer, LookupError> {
    answer(Rcode::NoError, &[], rtype, values)
}

fn reply(result: Result<Answer, LookupError>) -> Reply {
    Reply { resolver: "test".into(), result }
}

/// The verdict on a name when its own questions are answered like this, in order.
fn verdict(question: &Question, results: Vec<Result<Answer, LookupError>>) -> (Status, Reason) {
    let answers: Answers = questions(question).into_iter().zip(results.into_iter().map(|r| vec![reply(r)])).collect();
    match judge(question, &answers) {
        Judged::Verdict(verdict) => (verdict.status, verdict.reason),
        other => panic!("{other:?}"),
    }
}

fn server() -> Arc<str> {
    "test".into()
}

#[test]
fn seed_table_of_results() {
    let wanted = question("www.example.org", "A", &["192.0.2.1"]);
    assert_eq!(verdict(&wanted, vec![found("A", &["192.0.2.1"])]), (Status::Sync, Reason::Match));
    assert_eq!(verdict(&wanted, vec![found("A", &["192.0.2.2"])]), (Status::NotFound, Reason::Mismatch));
    assert_eq!(verdict(&wanted, vec![answer(Rcode::NxDomain, &[], "A", &[])]), (Status::NotFound, Reason::NoSuchName));
    assert_eq!(verdict(&wanted, vec![found("A", &[])]), (Status::NotFound, Reason::NoData));
    assert_eq!(verdict(&wanted, vec![answer(Rcode::ServFail, &[], "A", &[])]), (Status::Error, Reason::ServFail));
    assert_eq!(verdict(&wanted, vec![answer(Rcode::Refused, &[], "A", &[])]), (Status::Error, Reason::Refused));
    assert_eq!(verdict(&wanted, vec![answer(Rcode::Other(9), &[], "A", &[])]), (Status::Error, Reason::ErrorCode));
    let late = LookupError::Timeout { server: server(), after: Duration::from_secs(5) };
    assert_eq!(verdict(&wanted, vec![Err(late)]), (Status::Timeout, Reason::Timeout));
    let circle = LookupError::CnameLoop { server: server(), last: name("a.example") };
    assert_eq!(verdict(&wanted, vec![Err(circle)]), (Status::Error, Reason::CnameLoop));
}

#[test]
fn a_dual_stack_name_is_judged_per_family() {
    let four = question("www.example.org", "A", &["192.0.2.1"]);
    assert_eq!(questions(&four), [(name("www.example.org"), RecordType::A)], "AAAA is not asked for");
    let both = question("www.example.org", "", &["2001:db8::1", "192.0.2.1"]);
    let answers = |six: &[&str]| vec![found("A", &["192.0.2.1"]), found("AAAA", six)];
    assert_eq!(verdict(&both, answers(&["2001:db8::1"])), (Status::Sync, Reason::Match));
    assert_eq!(verdict(&both, answers(&[])), (Status::NotFound, Reason::Mismatch));
}

#[test]
fn an_ipv6_address_in_another_spelling_is_the_same() {
    let wanted = question("www.example.org", "AAAA", &["2001:0DB8:0:0::1"]);
    assert_eq!(verdict(&wanted, vec![found("AAAA", &["2001:db8::1"])]), (Status::Sync, Reason::Match));
}

#[test]
fn a_two_hop_alias_is_judged_by_its_own_record() {
    let wanted = question("one.example.org", "CNAME", &["Two.example.org."]);
    assert_eq!(verdict(&wanted, vec![found("CNAME", &["two.example.org"])]), (Status::Sync, Reason::Match));
    let end = question("one.example.org", "CNAME", &["three.example.org"]);
    assert_eq!(verdict(&end, vec![found("CNAME", &["two.example.org"])]), (Status::NotFound, Reason::Mismatch));
}

#[test]
fn text_is_compared_by_value_with_and_without_quotes() {
    for target in ["v=spf1 -all", "\"v=spf1 -all\"", "\"v=spf1\" \" -all\""] {
        let wanted = question("example.org", "TXT", &[target]);
        assert_eq!(
            verdict(&wanted, vec![found("TXT", &["\"v=spf1 -all\""])]),
            (Status::Sync, Reason::Match),
            "{target}"
        );
    }
}

#[test]
fn a_name_with_only_text_exists() {
    let any = question("example.org", "", &[]);
    assert_eq!(verdict(&any, vec![found("A", &[])]), (Status::Sync, Reason::Exists));
    assert_eq!(verdict(&any, vec![answer(Rcode::NxDomain, &[], "A", &[])]), (Status::NotFound, Reason::NoSuchName));
    let text = question("example.org", "TXT", &[]);
    assert_eq!(verdict(&text, vec![found("TXT", &["\"x\""])]), (Status::Sync, Reason::Exists));
    assert_eq!(verdict(&text, vec![found("TXT", &[])]), (Status::NotFound, Reason::NoData));
}

#[test]
fn a_name_with_changing_addresses_can_be_in_sync() {
    let with = |how| {
        let how = Some(how);
        read(DnsEntry { match_: how, ..entry("cdn.example.org", "A", &["192.0.2.1", "192.0.2.2"]) }).question.unwrap()
    };
    let one = || vec![found("A", &["192.0.2.2"])];
    let more = || vec![found("A", &["192.0.2.2", "192.0.2.9"])];
    assert_eq!(verdict(&with(TargetMatch::Subset), one()).0, Status::Sync);
    assert_eq!(verdict(&with(TargetMatch::Subset), more()).0, Status::NotFound);
    assert_eq!(verdict(&with(TargetMatch::Any), more()).0, Status::Sync);
    assert_eq!(verdict(&with(TargetMatch::Exact), one()).0, Status::NotFound);
}

#[test]
fn a_host_as_target_of_an_address_is_followed() {
    let wanted = question("www.example.org", "A", &["lb.example.net"]);
    assert_eq!((questions(&wanted).len(), judge::count(&wanted)), (2, 2));
    let both = question("www.example.org", "", &["lb.example.net", "192.0.2.1"]);
    assert_eq!((questions(&both).len(), judge::count(&both)), (4, 4));
    let flattened = vec![found("A", &["192.0.2.1"]), found("A", &["192.0.2.1"])];
    assert_eq!(verdict(&wanted, flattened).0, Status::Sync);
    let through = answer(Rcode::NoError, &["lb.example.net"], "A", &["192.0.2.5"]);
    assert_eq!(verdict(&wanted, vec![through, found("A", &["192.0.2.6"])]).0, Status::Sync, "the chain names the host");
    assert_eq!(verdict(&wanted, vec![found("A", &["192.0.2.7"]), found("A", &["192.0.2.1"])]).0, Status::NotFound);
}

#[test]
fn an_outage_of_one_resolver_does_not_count_and_the_worst_of_the_others_does() {
    let wanted = question("www.example.org", "A", &["192.0.2.1"]);
    let key = (name("www.example.org"), RecordType::A);
    let down = || reply(Err(LookupError::Unreachable { server: server(), why: "refused".into() }));
    let judged = |replies: Vec<Reply>| judge(&wanted, &Answers::from([(key.clone(), replies)]));
    assert!(matches!(judged(vec![down(), down()]), Judged::Outage(_)));
    let good = || reply(found("A", &["192.0.2.1"]));
    let partly = judged(vec![down(), good()]);
    assert!(matches!(&partly, Judged::Partly { verdict, .. } if verdict.status == Status::Sync), "{partly:?}");
    let bad = reply(found("A", &["192.0.2.9"]));
    assert!(matches!(judged(vec![good(), bad]), Judged::Verdict(verdict) if verdict.reason == Reason::Mismatch));
    assert_eq!(judge(&wanted, &Answers::new()), Judged::NotAsked);
}

#[test]
fn an_outage_has_the_same_words_from_try_to_try() {
    let wanted = question("www.example.org", "A", &["192.0.2.1"]);
    let key = (name("www.example.org"), RecordType::A);
    let judged = |error| judge(&wanted, &Answers::from([(key.clone(), vec![reply(Err(error))])]));
    let paused = |seconds| LookupError::Paused {
        server: server(),
        why: "refused".into(),
        retry_after: Duration::from_secs(seconds),
    };
    let first = judged(LookupError::Unreachable { server: server(), why: "refused".into() });
    assert_eq!(first, Judged::Outage("test cannot be reached: refused".into()));
    assert_eq!((judged(paused(1)), judged(paused(7))), (first.clone(), first));
}

#[test]
fn a_target_host_that_cannot_be_looked_up_is_no_mismatch() {
    let wanted = question("www.example.org", "A", &["lb.example.net"]);
    let judged = |host: Vec<Result<Answer, LookupError>>| {
        let own = vec![reply(found("A", &["192.0.2.1"]))];
        let replies = [own, host.into_iter().map(reply).collect()];
        judge(&wanted, &questions(&wanted).into_iter().zip(replies).collect())
    };
    let late = || Err(LookupError::Timeout { server: server(), after: Duration::from_secs(5) });
    let unknown = Judged::Outage("the addresses of the target lb.example.net. are not known".into());
    assert_eq!(judged(vec![late()]), unknown);
    assert_eq!(judged(vec![late(), answer(Rcode::ServFail, &[], "A", &[])]), unknown);
    let is = |judged, reason| matches!(judged, Judged::Verdict(verdict) if verdict.reason == reason);
    assert!(is(judged(vec![late(), found("A", &["192.0.2.1"])]), Reason::Match));
    assert!(is(judged(vec![late(), found("A", &["192.0.2.9"])]), Reason::Mismatch));
    assert!(is(judged(vec![answer(Rcode::NxDomain, &[], "A", &[])]), Reason::Mismatch));
}

#[test]
fn half_of_an_answer_is_not_judged() {
    let both = question("www.example.org", "", &["2001:db8::1", "192.0.2.1"]);
    let judged =
        |four: Vec<Reply>, six: Vec<Reply>| judge(&both, &questions(&both).into_iter().zip([four, six]).collect());
    let down = || reply(Err(LookupError::Unreachable { server: server(), why: "refused".into() }));
    let (four, six) = (|| reply(found("A", &["192.0.2.1"])), || reply(found("AAAA", &["2001:db8::1"])));
    assert!(matches!(judged(vec![four(), four()], vec![down()]), Judged::Outage(_)));
    let first = judged(vec![four(), four()], vec![six()]);
    assert!(matches!(first, Judged::Verdict(verdict) if verdict.status == Status::Sync), "the whole one counts");
}

#[test]
fn names_are_folded_and_a_bad_entry_does_not_affect_others() {
    let entries = ["*.Apps.example.org.", "_dmarc.example.org", "bücher.example", "not a name", "x..y"]
        .map(|fqdn| entry(fqdn, "", &[]))
        .to_vec();
    let group = DnsGroup { name: "g".into(), description: None, entries };
    let names = aggregate(collect(&[group])).remove(0).names;
    let good: Vec<&str> = names.iter().filter(|name| name.question.is_ok()).map(|name| name.shown.as_str()).collect();
    assert_eq!(good, ["*.apps.example.org", "_dmarc.example.org", "xn--bcher-kva.example"]);
    assert_eq!(names.iter().filter(|name| name.question.is_err()).count(), 2);
    for (rtype, target) in
        [("A", "2001:db8::1"), ("AAAA", "192.0.2.1"), ("A", "not a host"), ("MX", "mail"), ("??", "x")]
    {
        assert!(read(entry("www.example.org", rtype, &[target])).question.is_err(), "{rtype} {target}");
    }
}

#[test]
fn groups_and_names_are_sorted_and_repeated_entries_count_once() {
    let group = |name: &str, names: &[&str]| DnsGroup {
        name: name.into(),
        description: Some(format!("about {name}")),
        entries: names.iter().map(|fqdn| entry(fqdn, "", &[])).collect(),
    };
    let groups =
        aggregate(collect(&[group("b", &["z.example", "a.example"]), group("a", &[]), group("b", &["A.example."])]));
    let shown: Vec<(&str, Vec<&str>)> = groups
        .iter()
        .map(|group| (&*group.name, group.names.iter().map(|name| name.shown.as_str()).collect()))
        .collect();
    assert_eq!(shown, [("a", vec![]), ("b", vec!["a.example", "z.example"])]);
}

#[test]
fn an_entry_that_is_repeated_after_one_with_another_match_counts_once() {
    let with = |how, rtype| DnsEntry { match_: Some(how), ..entry("a.example", rtype, &["192.0.2.1"]) };
    let entries = vec![with(TargetMatch::Any, "A"), with(TargetMatch::Exact, "A"), with(TargetMatch::Any, "")];
    let groups = aggregate(collect(&[DnsGroup { name: "g".into(), description: None, entries }]));
    let how: Vec<TargetMatch> = groups[0].names.iter().map(|wanted| wanted.question.as_ref().unwrap().how).collect();
    assert_eq!(how, [TargetMatch::Exact, TargetMatch::Any], "in this order, in which a status has them");
}

#[test]
fn entries_that_differ_in_match_only_have_their_own_results() {
    let with = |how, rtype| read(DnsEntry { match_: Some(how), ..entry("a.example", rtype, &["192.0.2.1"]) });
    let names = [with(TargetMatch::Exact, ""), with(TargetMatch::Any, "A")];
    let answers =
        Answers::from([((name("a.example"), RecordType::A), vec![reply(found("A", &["192.0.2.1", "192.0.2.2"]))])]);
    let looked_up = PassAnswers { answers: &answers, unfinished: &BTreeMap::new(), changed: &BTreeSet::new() };
    let pauses = Pauses { refresh: Duration::from_mins(5), again: Duration::from_secs(5) };
    let before = (&Verdicts::new(), &Outages::new());
    let judged = judge_all(&names.iter().collect::<Vec<_>>(), before, &looked_up, pauses, Timestamp::UNIX_EPOCH);
    let result = |wanted: &Wanted| judged.verdicts[&wanted.subject().unwrap()].verdict.reason;
    assert_eq!(names.each_ref().map(result), [Reason::Mismatch, Reason::Match]);
}

#[test]
fn a_broken_name_is_looked_up_sooner_and_never_later_than_its_ttl() {
    let pauses = Pauses { refresh: Duration::from_mins(5), again: Duration::from_secs(5) };
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let after = |failures: u32, ttl: Option<u32>| {
        let verdict = Verdict { ttl, ..Verdict::new(Status::NotFound, Reason::NoSuchName, [""].iter().collect()) };
        judged(verdict, failures, pauses, now).next.duration_since(now).as_secs()
    };
    assert_eq!([after(0, None), after(1, None), after(2, None), after(40, None)], [5, 10, 20, 30]);
    assert_eq!([after(5, Some(20)), after(5, Some(0)), after(40, Some(3_600))], [20, 5, 30]);
    let good = Verdict::new(Status::Sync, Reason::Match, [""].iter().collect());
    assert_eq!(judged(good, 0, pauses, now).next.duration_since(now).as_secs(), 300);
}

#[test]
fn a_changed_name_is_looked_up_first_and_soon_again_when_it_is_broken() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let pauses = Pauses { refresh: Duration::from_mins(5), again: Duration::from_secs(5) };
    let names: Vec<Wanted> =
        (0..3).map(|number| read(entry(&format!("n{number}.example.org"), "A", &["192.0.2.1"]))).collect();
    let all: Vec<&Wanted> = names.iter().collect();
    let missing = |wanted: &&Wanted| {
        let asked = questions(wanted.question.as_ref().unwrap()).remove(0);
        (asked, vec![reply(answer(Rcode::NxDomain, &[], "A", &[]))])
    };
    let answers: Answers = all.iter().map(missing).collect();
    let (nothing, none, unfinished) = (Outages::new(), BTreeSet::new(), BTreeMap::new());
    let looked_up = |changed| PassAnswers { answers: &answers, unfinished: &unfinished, changed };
    let mut verdicts = Verdicts::new();
    for _ in 0..10 {
        verdicts = judge_all(&all, (&verdicts, &nothing), &looked_up(&none), pauses, now).verdicts;
    }
    let changed = BTreeSet::from([name("n2.example.org")]);
    let order = |changed: &BTreeSet<Fqdn>, seconds: i64| -> Vec<String> {
        let later = Timestamp::from_second(now.as_second() + seconds).unwrap();
        let due = due(all.iter().map(|wanted| (*wanted, ())), &verdicts, changed, later);
        due.into_iter().map(|(wanted, ())| wanted.shown.clone()).collect()
    };
    assert_eq!(order(&changed, 1), ["n2.example.org"]);
    assert_eq!(order(&changed, 60), ["n2.example.org", "n0.example.org", "n1.example.org"]);
    let again = judge_all(&all, (&verdicts, &nothing), &looked_up(&changed), pauses, now).verdicts;
    let pause = |wanted: &Wanted| again[&wanted.subject().unwrap()].next.duration_since(now).as_secs();
    assert_eq!([pause(all[0]), pause(all[2])], [30, 5], "the change ends the backoff");
}

#[test]
fn of_a_huge_answer_the_first_values_are_kept() {
    let wanted = question("www.example.org", "A", &["192.0.2.1"]);
    let many: Vec<String> = (0..200).map(|number| format!("198.51.100.{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let key = (name("www.example.org"), RecordType::A);
    let Judged::Verdict(verdict) = judge(&wanted, &Answers::from([(key, vec![reply(found("A", &many))])])) else {
        panic!()
    };
    assert_eq!(verdict.observed.len(), 21);
    assert_eq!(verdict.observed.iter().last(), Some("and 180 more"));
}

/// A pass over one name with these answers, after what is remembered.
fn pass(outages: &Outages, verdicts: &Verdicts, answers: &Answers, now: Timestamp) -> JudgedAll {
    let wanted = read(entry("www.example.org", "A", &["192.0.2.1"]));
    let pauses = Pauses { refresh: Duration::from_mins(5), again: Duration::from_secs(5) };
    let looked_up = PassAnswers { answers, unfinished: &BTreeMap::new(), changed: &BTreeSet::new() };
    judge_all(&[&wanted], (verdicts, outages), &looked_up, pauses, now)
}

#[test]
fn an_outage_lasts_until_the_name_is_answered_again() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let with = |result| Answers::from([((name("www.example.org"), RecordType::A), vec![reply(result)])]);
    let down = with(Err(LookupError::Unreachable { server: server(), why: "refused".into() }));
    let first = pass(&Outages::new(), &Verdicts::new(), &down, now);
    assert_eq!(first.outages.len(), 1);
    let nothing_asked = pass(&first.outages, &first.verdicts, &Answers::new(), now);
    assert_eq!(nothing_asked.outages, first.outages, "nobody answered anything");
    let answered = pass(&nothing_asked.outages, &nothing_asked.verdicts, &with(found("A", &["192.0.2.1"])), now);
    assert!(answered.outages.is_empty());
    let asked_for_others = pass(&answered.outages, &answered.verdicts, &Answers::new(), now);
    assert!(asked_for_others.outages.is_empty() && asked_for_others.verdicts == answered.verdicts);
}

#[test]
fn an_outage_of_one_resolver_keeps_its_verdict_unless_others_are_worse() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let from = |resolver: &str, result| Reply { resolver: resolver.into(), result };
    let good = |resolver| from(resolver, found("A", &["192.0.2.1"]));
    let other = |resolver| from(resolver, found("A", &["192.0.2.9"]));
    let down = |resolver: &str| {
        from(resolver, Err(LookupError::Unreachable { server: resolver.into(), why: "refused".into() }))
    };
    let both = |one, two| Answers::from([((name("www.example.org"), RecordType::A), vec![one, two])]);
    let reason = |all: &JudgedAll| all.verdicts.values().next().unwrap().verdict.reason;
    let next = |before: &JudgedAll, answers: Answers| pass(&before.outages, &before.verdicts, &answers, now);

    let wrong = pass(&Outages::new(), &Verdicts::new(), &both(good("in"), other("out")), now);
    assert_eq!(reason(&wrong), Reason::Mismatch);
    let dead = next(&wrong, both(good("in"), down("out")));
    assert_eq!((reason(&dead), dead.turns.len()), (Reason::Mismatch, 0), "the one that is wrong does not answer");
    let why = Outage::Partial("out cannot be reached: refused".into());
    assert_eq!(dead.outages.values().collect::<Vec<_>>(), [&why]);
    let again = next(&dead, both(good("in"), good("out")));
    assert_eq!((reason(&again), again.outages.len()), (Reason::Match, 0));
    // Worse counts, and a verdict of a resolver that answers is replaced.
    let worse = next(&again, both(other("in"), down("out")));
    assert_eq!(reason(&worse), Reason::Mismatch);
    assert_eq!(reason(&next(&worse, both(good("in"), down("out")))), Reason::Match);
}

#[test]
fn a_pass_that_comes_a_tenth_early_looks_names_up() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let wanted = read(entry("www.example.org", "A", &["192.0.2.1"]));
    let answers = Answers::from([((name("www.example.org"), RecordType::A), vec![reply(found("A", &["192.0.2.1"]))])]);
    let verdicts = pass(&Outages::new(), &Verdicts::new(), &answers, now).verdicts;
    let is_due = |seconds: i64| {
        let later = Timestamp::from_second(now.as_second() + seconds).unwrap();
        due([(&wanted, ())].into_iter(), &verdicts, &BTreeSet::new(), later).len() == 1
    };
    assert_eq!([is_due(200), is_due(270), is_due(300)], [false, true, true]);
}

#[test]
fn a_name_that_was_looked_up_in_the_future_is_due() {
    let (wanted, now) = (read(entry("www.example.org", "A", &["192.0.2.1"])), Timestamp::UNIX_EPOCH);
    let pauses = Pauses { refresh: Duration::from_mins(1), again: Duration::from_secs(5) };
    let in_sync = Verdict::new(Status::Sync, Reason::Match, ["192.0.2.1"].iter().collect());
    let is_due = |looked_up: Timestamp| {
        let checked = judged(in_sync.clone(), 0, pauses, looked_up);
        let verdicts = Verdicts::from([(wanted.subject().unwrap(), checked)]);
        !due([(&wanted, ())].into_iter(), &verdicts, &BTreeSet::new(), now).is_empty()
    };
    assert!(!is_due(now));
    assert!(is_due(later(now, Duration::from_secs(1))), "the clock was set back");
    assert!(is_due(later(now, Duration::from_hours(24))));
}

#[test]
fn a_target_host_is_compared_with_what_the_same_resolver_answers() {
    let wanted = question("www.example.org", "A", &["lb.example.net"]);
    let from = |resolver: &str, values: &[&str]| Reply { resolver: resolver.into(), result: found("A", values) };
    let judged = |host: Vec<Reply>| {
        let own = vec![from("one", &["192.0.2.1"]), from("two", &["192.0.2.2"])];
        match judge(&wanted, &questions(&wanted).into_iter().zip([own, host]).collect()) {
            Judged::Verdict(verdict) => verdict.reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(judged(vec![from("one", &["192.0.2.1"]), from("two", &["192.0.2.2"])]), Reason::Match);
    assert_eq!(judged(vec![from("one", &["192.0.2.2"]), from("two", &["192.0.2.1"])]), Reason::Mismatch);
    let down =
        Reply { result: Err(LookupError::Unreachable { server: server(), why: "x".into() }), ..from("two", &[]) };
    assert_eq!(judged(vec![from("one", &["192.0.2.1"]), down]), Reason::Mismatch, "what the other one knows counts");
}

#[test]
fn name_servers_of_a_zone_are_told_apart_by_name() {
    let both = question("www.example.org", "", &["2001:db8::1", "192.0.2.1"]);
    let from = |server: &str, rtype: &str, value: &str| {
        let answer = Answer { server: server.into(), ..found(rtype, &[value]).unwrap() };
        Reply { resolver: "authoritative".into(), result: Ok(answer) }
    };
    let four = vec![from("ns1", "A", "192.0.2.1"), from("ns2", "A", "192.0.2.1")];
    let judged = |six: Vec<Reply>| judge(&both, &questions(&both).into_iter().zip([four.clone(), six]).collect());
    let is = |judged, reason| matches!(judged, Judged::Verdict(verdict) if verdict.reason == reason);
    let (one, two) = (|| from("ns1", "AAAA", "2001:db8::1"), |value: &str| from("ns2", "AAAA", value));
    assert!(is(judged(vec![two("2001:db8::1"), one()]), Reason::Match), "in any order");
    assert!(is(judged(vec![two("2001:db8::9"), one()]), Reason::Mismatch));
    assert!(is(judged(vec![one()]), Reason::Match), "the other one did not answer every type");
}

#[test]
fn a_server_that_does_not_know_the_target_host_is_compared_with_each_resolver() {
    let wanted = question("www.example.org", "A", &["lb.example.net"]);
    let from = |resolver: &str, values: &[&str]| Reply { resolver: resolver.into(), result: found("A", values) };
    // The server that the name was published to is asked for the name only.
    let judged = |published: &str| {
        let own = vec![from("published", &[published]), from("one", &["192.0.2.1"]), from("two", &["192.0.2.2"])];
        let host = vec![from("one", &["192.0.2.1"]), from("two", &["192.0.2.2"])];
        match judge(&wanted, &questions(&wanted).into_iter().zip([own, host]).collect()) {
            Judged::Verdict(verdict) => verdict.reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([judged("192.0.2.1"), judged("192.0.2.2")], [Reason::Match, Reason::Match]);
    assert_eq!(judged("192.0.2.3"), Reason::Mismatch);
}

#[test]
fn a_name_server_that_fails_for_one_type_is_judged_by_that_failure() {
    let both = question("www.example.org", "", &["2001:db8::1", "192.0.2.1"]);
    let from = |result| Reply { resolver: "authoritative".into(), result };
    let four = vec![from(Ok(Answer { server: "ns1".into(), ..found("A", &["192.0.2.1"]).unwrap() }))];
    let six = vec![from(Err(LookupError::Timeout { server: "ns1".into(), after: Duration::from_secs(5) }))];
    let judged = judge(&both, &questions(&both).into_iter().zip([four, six]).collect());
    assert!(matches!(&judged, Judged::Verdict(verdict) if verdict.reason == Reason::Timeout), "{judged:?}");
}

#[test]
fn an_entry_that_no_pass_can_look_up_has_a_reason() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let pauses = Pauses { refresh: Duration::from_mins(5), again: Duration::from_secs(5) };
    let wanted = read(entry("www.example.org", "A", &["a.example.net", "b.example.net"]));
    let judged = |why| {
        let unfinished = BTreeMap::from([(wanted.subject().unwrap(), why)]);
        let (answers, changed) = (Answers::new(), BTreeSet::new());
        let looked_up = PassAnswers { answers: &answers, unfinished: &unfinished, changed: &changed };
        judge_all(&[&wanted], (&Verdicts::new(), &Outages::new()), &looked_up, pauses, now)
    };
    let large = judged(Unfinished::TooLarge);
    let checked = large.verdicts.values().next().unwrap();
    assert_eq!((checked.verdict.status, checked.verdict.reason), (Status::Error, Reason::BadAnswer));
    assert!(checked.verdict.observed.iter().next().unwrap().contains("use fewer targets"));
    assert!(large.next(&[&wanted], 0, pauses, now).unwrap() > now, "it is not looked up again at once");
    let slow = judged(Unfinished::TooSlow);
    assert!(slow.verdicts.is_empty() && slow.outages.len() == 1, "{:?}", slow.outages);
    assert!(slow.next(&[&wanted], 0, pauses, now).unwrap() > now);
}

#[test]
fn a_pass_without_turns_for_its_names_is_repeated_after_a_pause() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let pauses = |again| Pauses { refresh: Duration::from_mins(5), again };
    let (short, long) = (Duration::from_millis(100), Duration::from_secs(5));
    assert_eq!(after_turns(Some(now), pauses(long), now), Some(later(now, TURN)));
    assert_eq!(after_turns(Some(now), pauses(short), now), Some(later(now, short)));
    let next = later(now, Duration::from_mins(1));
    assert_eq!(after_turns(Some(next), pauses(long), now), Some(next), "it is not brought forward");
    assert_eq!(after_turns(None, pauses(long), now), None);
}

#[test]
fn an_entry_with_many_targets_is_looked_up_after_the_others() {
    let hosts: Vec<String> = (0..MANY_QUESTIONS).map(|number| format!("h{number}.example.net")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let names = [read(entry("a.example.org", "A", &hosts)), read(entry("b.example.org", "A", &["lb.example.net"]))];
    let due = due(names.iter().map(|wanted| (wanted, ())), &Verdicts::new(), &BTreeSet::new(), Timestamp::UNIX_EPOCH);
    let order: Vec<&str> = due.iter().map(|(wanted, ())| wanted.shown.as_str()).collect();
    assert_eq!(order, ["b.example.org", "a.example.org"]);
}

#[test]
fn a_host_that_is_answered_with_changing_addresses_is_no_mismatch() {
    let wanted = question("www.example.org", "", &["lb.example.net"]);
    // A and AAAA of the name, then of the host.
    let judged = |own: [&[&str]; 2], host: [&[&str]; 2]| {
        let [four, six, host_four, host_six] = [own[0], own[1], host[0], host[1]];
        let results = vec![found("A", four), found("AAAA", six), found("A", host_four), found("AAAA", host_six)];
        verdict(&wanted, results).1
    };
    let (one, two) = (["192.0.2.1", "192.0.2.2"], ["192.0.2.2", "192.0.2.3"]);
    assert_eq!(judged([&one, &[]], [&two, &[]]), Reason::Match, "one address in common");
    assert_eq!(judged([&one, &[]], [&["192.0.2.1"], &[]]), Reason::Match);
    assert_eq!(judged([&["192.0.2.1"], &[]], [&one, &[]]), Reason::Match);
    assert_eq!(judged([&["192.0.2.1"], &[]], [&two, &[]]), Reason::Mismatch, "nothing in common");
    assert_eq!(judged([&one, &["2001:db8::9"]], [&one, &[]]), Reason::Mismatch, "the host has no such address");
    assert_eq!(judged([&one, &["2001:db8::9"]], [&one, &["2001:db8::1"]]), Reason::Mismatch, "of each family");
    assert_eq!(judged([&one, &[]], [&one, &["2001:db8::1"]]), Reason::Mismatch, "a family is missing");
}

#[test]
fn an_answer_needs_an_address_of_each_target_host() {
    let wanted = question("www.example.org", "A", &["a.example.net", "b.example.net"]);
    let judged = |own: &[&str]| {
        verdict(&wanted, vec![found("A", own), found("A", &["192.0.2.1"]), found("A", &["192.0.2.2"])]).1
    };
    assert_eq!(judged(&["192.0.2.1", "192.0.2.2"]), Reason::Match);
    assert_eq!(judged(&["192.0.2.1"]), Reason::Mismatch);
}

#[test]
fn an_address_beside_a_host_is_always_expected() {
    let wanted = question("www.example.org", "A", &["192.0.2.9", "lb.example.net"]);
    let judged = |own: &[&str]| verdict(&wanted, vec![found("A", own), found("A", &["192.0.2.1", "192.0.2.2"])]).1;
    assert_eq!(judged(&["192.0.2.9", "192.0.2.2"]), Reason::Match);
    assert_eq!(judged(&["192.0.2.1", "192.0.2.2"]), Reason::Mismatch);
    assert_eq!(judged(&["192.0.2.9"]), Reason::Mismatch);
}

#[test]
fn an_entry_of_several_groups_is_looked_up_and_reported_once() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let names = ["a.example.org", "b.example.org"].map(|fqdn| read(entry(fqdn, "A", &["192.0.2.1"])));
    // Every group has all names.
    let all: Vec<&Wanted> = names.iter().chain(&names).chain(&names).collect();
    let due = due(all.iter().map(|wanted| (*wanted, ())), &Verdicts::new(), &BTreeSet::new(), now);
    assert_eq!(due.len(), 2);
    let pauses = Pauses { refresh: Duration::from_mins(5), again: Duration::from_secs(5) };
    let (outages, unfinished, changed) = (Outages::new(), BTreeMap::new(), BTreeSet::new());
    let pass = |before: &Verdicts, address: &str| {
        let answers: Answers = names
            .iter()
            .map(|wanted| (questions(wanted.question.as_ref().unwrap()).remove(0), vec![reply(found("A", &[address]))]))
            .collect();
        let looked_up = PassAnswers { answers: &answers, unfinished: &unfinished, changed: &changed };
        judge_all(&all, (before, &outages), &looked_up, pauses, now)
    };
    let first = pass(&Verdicts::new(), "192.0.2.1");
    let turns = pass(&first.verdicts, "192.0.2.9").turns;
    let turned: Vec<&str> = turns.iter().map(|turn| turn.name.as_str()).collect();
    assert_eq!(turned, ["a.example.org", "b.example.org"]);
}
