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
    aggregate(collect(&[group])).remove(0).names.remove(0)
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
    assert_eq!(questions(&wanted).len(), 2);
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
    assert!(matches!(judged(vec![down(), good()]), Judged::Verdict(verdict) if verdict.status == Status::Sync));
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
fn a_broken_name_is_looked_up_sooner_and_never_later_than_its_ttl() {
    let pauses = Pauses { refresh: Duration::from_mins(5), again: Duration::from_secs(5) };
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let after = |failures: u32, ttl: Option<u32>| {
        let verdict = Verdict { ttl, ..Verdict::new(Status::NotFound, Reason::NoSuchName, [""].iter().collect()) };
        let last = Checked { verdict: verdict.clone(), at: now, next: now, failures };
        judged(verdict, Some(&last), pauses, now).next.duration_since(now).as_secs()
    };
    assert_eq!([after(0, None), after(1, None), after(2, None), after(40, None)], [5, 10, 20, 300]);
    assert_eq!([after(5, Some(30)), after(5, Some(0))], [30, 5]);
    let good = Verdict::new(Status::Sync, Reason::Match, [""].iter().collect());
    assert_eq!(judged(good, None, pauses, now).next.duration_since(now).as_secs(), 300);
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
