//! ResolveDNS without the lookup: which questions to ask for a name, and the verdict on their answers.
//!
//! | answer                                   | status   | reason |
//! |------------------------------------------|----------|--------|
//! | has the targets, or exists without any   | sync     | Match, Exists |
//! | NXDOMAIN, no record of the type, other   | notFound | NoSuchName, NoData, Mismatch |
//! | SERVFAIL, REFUSED, a loop, unreadable    | error    | ServFail, Refused, CnameLoop, BadAnswer, ErrorCode |
//! | none within the time limit               | timeout  | Timeout |
//! | none, because no resolver works          | the last verdict is kept | |
//! | none of some, because they do not work   | the worst of the others; the last verdict is kept where one of them gave it and the others are better | |
//! | other, and a target host has no answer   | the last verdict is kept | |

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use signpost_apis::portal::TargetMatch;
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_inventory::{SyncReason, SyncStatus, Values};
use signpost_provider_resolver::{Answer, LookupError, Rcode, Reply};

use super::entries::{Expected, Question};

/// Values of an answer that are kept, and characters of each.
const MOST_OBSERVED: usize = 20;
const LONGEST_OBSERVED: usize = 255;

/// The resolver that asks every name server of a zone.
const AUTHORITATIVE: &str = "authoritative";

/// The answers to questions.
pub type Answers = BTreeMap<(Fqdn, RecordType), Vec<Reply>>;

/// The answer of the resolvers for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// In a word.
    pub status: SyncStatus,
    /// Why.
    pub reason: SyncReason,
    /// The answer.
    pub observed: Values,
    /// How long the answer is kept, in seconds.
    pub ttl: Option<u32>,
    /// The resolver that gave the answer.
    pub resolver: Option<Arc<str>>,
}

impl Verdict {
    pub(crate) fn new(status: SyncStatus, reason: SyncReason, observed: Values) -> Self {
        Self { status, reason, observed, ttl: None, resolver: None }
    }

    /// Whether it is kept beside a new verdict that resolvers which do not work have no part in: where one of them gave it, and the new one is not worse. Where
    /// nobody knows who gave it, the new one counts: the name may be fixed, and the resolver may never work again.
    pub(crate) fn outlasts(&self, new: &Self, dead: &BTreeSet<Arc<str>>) -> bool {
        let by_dead = self.resolver.as_ref().is_some_and(|resolver| dead.contains(resolver));
        by_dead && rank(new.status) <= rank(self.status)
    }
}

/// The judgement of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// A verdict.
    Verdict(Verdict),
    /// A verdict of a part of the resolvers.
    Partly {
        /// The verdict.
        verdict: Verdict,
        /// The resolvers that do not work.
        dead: BTreeSet<Arc<str>>,
        /// Why one of them does not work.
        why: String,
    },
    /// No resolver works; the last verdict is kept.
    Outage(String),
    /// It was not asked for in this pass.
    NotAsked,
}

/// How many questions there are to ask for a name.
pub(crate) fn count(question: &Question) -> usize {
    let (types, hosts) = match (question.rtype, &question.expected) {
        (None, Expected::Addresses { hosts, .. }) => (2, hosts.len()),
        (Some(_), Expected::Addresses { hosts, .. }) => (1, hosts.len()),
        (_, Expected::Existence | Expected::Records(_)) => (1, 0),
    };
    types * (1 + hosts)
}

/// The questions to ask for a name.
pub fn questions(question: &Question) -> Vec<(Fqdn, RecordType)> {
    let types: Vec<RecordType> = match (question.rtype, &question.expected) {
        (Some(rtype), _) => vec![rtype],
        (None, Expected::Addresses { .. }) => vec![RecordType::A, RecordType::Aaaa],
        (None, _) => vec![RecordType::A],
    };
    let hosts: &[Fqdn] = match &question.expected {
        Expected::Addresses { hosts, .. } => hosts,
        Expected::Existence | Expected::Records(_) => &[],
    };
    let names = std::iter::once(&question.name).chain(hosts);
    names.flat_map(|name| types.iter().map(move |rtype| (name.clone(), *rtype))).collect()
}

/// The verdict on a name: the worst of what the resolvers that work answered.
pub fn judge(question: &Question, answers: &Answers) -> Judged {
    let asked = questions(question);
    if asked.iter().any(|key| !answers.contains_key(key)) {
        return Judged::NotAsked;
    }
    let own: Vec<&[Reply]> = asked
        .iter()
        .filter(|(name, _)| *name == question.name)
        .filter_map(|key| answers.get(key).map(Vec::as_slice))
        .collect();
    let mut worst: Option<Verdict> = None;
    let mut outage = String::from("no resolver is configured");
    let mut dead: BTreeMap<Arc<str>, String> = BTreeMap::new();
    let mut authoritative = false;
    for replies in by_server(&own) {
        let failed = replies.iter().find_map(|reply| {
            let error = reply.result.as_ref().err().filter(|error| error.is_outage())?;
            Some((reply.resolver.clone(), cause(error)))
        });
        if let Some((resolver, why)) = failed {
            outage.clone_from(&why);
            dead.entry(resolver).or_insert(why);
            continue;
        }
        authoritative |= replies.iter().any(|reply| &*reply.resolver == AUTHORITATIVE);
        // With a part of the types only there is nothing to compare.
        if replies.len() < own.len() {
            outage = format!("not every type of {} was answered", question.name);
            continue;
        }
        let results = replies.iter().map(|reply| reply.result.as_ref());
        let verdict = match results.collect::<Result<Vec<&Answer>, &LookupError>>() {
            Ok(answered) => {
                let resolver = replies.first().map(|reply| &*reply.resolver).unwrap_or_default();
                compare(question, &answered, resolver, answers)
            }
            Err(error) => failure(error),
        };
        if verdict.reason == SyncReason::Mismatch
            && let Some(host) = unknown_host(question, answers)
        {
            outage = format!("the addresses of the target {host} are not known");
            continue;
        }
        if worst.as_ref().is_none_or(|worst| rank(verdict.status) > rank(worst.status)) {
            worst = Some(Verdict { resolver: replies.first().map(|reply| reply.resolver.clone()), ..verdict });
        }
    }
    // Of the name servers of a zone, one that can be reached is enough.
    dead.retain(|resolver, _| !(authoritative && **resolver == *AUTHORITATIVE));
    match (worst, dead.values().next()) {
        (None, _) => Judged::Outage(outage),
        (Some(verdict), None) => Judged::Verdict(verdict),
        (Some(verdict), Some(why)) => {
            let why = why.clone();
            Judged::Partly { verdict, dead: dead.into_keys().collect(), why }
        }
    }
}

/// The replies of each server to the questions for a name. The name servers of a zone are told apart by their names, because their number may
/// differ from question to question; of every other resolver, the first replies belong together, and so on.
fn by_server<'a>(own: &[&'a [Reply]]) -> Vec<Vec<&'a Reply>> {
    // Resolver, server, and the number among replies of both.
    type Server<'a> = (&'a str, &'a str, usize);
    let mut servers: Vec<(Server<'_>, Vec<&Reply>)> = Vec::new();
    for replies in own {
        let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for reply in *replies {
            let server = match &reply.result {
                _ if &*reply.resolver != AUTHORITATIVE => "",
                Ok(answer) => &*answer.server,
                Err(error) => error.server().unwrap_or_default(),
            };
            let number = seen.entry((&*reply.resolver, server)).or_default();
            let key = (&*reply.resolver, server, *number);
            *number += 1;
            match servers.iter_mut().find(|(known, _)| *known == key) {
                Some((_, replies)) => replies.push(reply),
                None => servers.push((key, vec![reply])),
            }
        }
    }
    servers.into_iter().map(|(_, replies)| replies).collect()
}

/// Why a resolver does not work, in the same words from try to try: they are part of the status.
fn cause(error: &LookupError) -> String {
    match error {
        LookupError::Paused { server, why, .. } => format!("{server} cannot be reached: {why}"),
        other => other.to_string(),
    }
}

/// A target host whose addresses no resolver could tell.
fn unknown_host(question: &Question, answers: &Answers) -> Option<Fqdn> {
    let knows = |reply: &Reply| {
        reply.result.as_ref().is_ok_and(|answer| matches!(answer.rcode, Rcode::NoError | Rcode::NxDomain))
    };
    let mut of_hosts = questions(question).into_iter().filter(|(name, _)| *name != question.name);
    of_hosts.find(|key| answers.get(key).is_some_and(|replies| !replies.iter().any(knows))).map(|(host, _)| host)
}

fn rank(status: SyncStatus) -> u8 {
    match status {
        SyncStatus::Unchecked => 0,
        SyncStatus::Sync => 1,
        SyncStatus::Timeout => 2,
        SyncStatus::Error => 3,
        SyncStatus::NotFound => 4,
    }
}

fn failure(error: &LookupError) -> Verdict {
    let (status, reason) = match error {
        LookupError::Timeout { .. } => (SyncStatus::Timeout, SyncReason::Timeout),
        LookupError::CnameLoop { .. } => (SyncStatus::Error, SyncReason::CnameLoop),
        LookupError::BadAnswer { .. } => (SyncStatus::Error, SyncReason::BadAnswer),
        LookupError::BadQuestion { .. } => (SyncStatus::Error, SyncReason::InvalidEntry),
        LookupError::Unreachable { .. } | LookupError::Paused { .. } | LookupError::NoServer { .. } => {
            (SyncStatus::Error, SyncReason::Unreachable)
        }
    };
    Verdict::new(status, reason, [error.to_string()].iter().collect())
}

/// The verdict on the answers of one server to the questions for a name.
fn compare(question: &Question, answered: &[&Answer], resolver: &str, answers: &Answers) -> Verdict {
    let ttl = answered.iter().filter_map(|answer| answer.ttl).min();
    let verdict = |status, reason, observed: Values| Verdict { ttl, ..Verdict::new(status, reason, observed) };
    let chain: Vec<&Fqdn> = answered.iter().flat_map(|answer| &answer.chain).collect();
    let led = || capped(chain.iter().map(|hop| format!("CNAME {hop}")));
    let failed =
        answered.iter().map(|answer| answer.rcode).find(|rcode| !matches!(rcode, Rcode::NoError | Rcode::NxDomain));
    if let Some(rcode) = failed {
        let reason = match rcode {
            Rcode::ServFail => SyncReason::ServFail,
            Rcode::Refused => SyncReason::Refused,
            _ => SyncReason::ErrorCode,
        };
        return verdict(SyncStatus::Error, reason, [rcode.to_string()].iter().collect());
    }
    if answered.iter().all(|answer| answer.rcode == Rcode::NxDomain) {
        return verdict(SyncStatus::NotFound, SyncReason::NoSuchName, led());
    }
    let values: Vec<&Rdata> = answered.iter().flat_map(|answer| &answer.values).collect();
    let texts = || capped(values.iter().map(|value| shown(value)));
    if question.expected == Expected::Existence && (question.rtype.is_none() || !values.is_empty()) {
        return verdict(SyncStatus::Sync, SyncReason::Exists, texts());
    }
    if values.is_empty() {
        return verdict(SyncStatus::NotFound, SyncReason::NoData, led());
    }
    if matches(question, &values, &chain, resolver, answers) {
        return verdict(SyncStatus::Sync, SyncReason::Match, texts());
    }
    verdict(SyncStatus::NotFound, SyncReason::Mismatch, texts())
}

/// An answer may have thousands of long values; the first ones are enough to see what is wrong.
fn capped(values: impl ExactSizeIterator<Item = String>) -> Values {
    let more = values.len().saturating_sub(MOST_OBSERVED);
    let cut = |value: String| value.chars().take(LONGEST_OBSERVED).collect::<String>();
    values.take(MOST_OBSERVED).map(cut).chain((more > 0).then(|| format!("and {more} more"))).collect()
}

/// Whether the values are as expected. The addresses of a target host are those that the same resolver answers, because another one may answer with
/// others: by region, by load, or inside and outside of a network. A server that is not asked for the host, or does not know it, is compared with
/// each of the other resolvers.
fn matches(question: &Question, values: &[&Rdata], chain: &[&Fqdn], resolver: &str, answers: &Answers) -> bool {
    let of_hosts: Vec<&Reply> = questions(question)
        .into_iter()
        .filter(|(name, _)| *name != question.name)
        .filter_map(|key| answers.get(&key))
        .flatten()
        .filter(|reply| reply.result.is_ok())
        .collect();
    let answering: BTreeSet<&str> = of_hosts.iter().map(|reply| &*reply.resolver).collect();
    if answering.is_empty() || answering.contains(resolver) {
        return matches_by(question, values, chain, resolver, answers);
    }
    answering.into_iter().any(|other| matches_by(question, values, chain, other, answers))
}

/// The same, with the addresses of target hosts that this resolver answers, or else any other one.
fn matches_by(question: &Question, values: &[&Rdata], chain: &[&Fqdn], resolver: &str, answers: &Answers) -> bool {
    let observed: BTreeSet<Vec<u8>> = values.iter().map(|value| meaning(value)).collect();
    let expected: BTreeSet<Vec<u8>> = match &question.expected {
        Expected::Existence => return true,
        Expected::Records(records) => records.iter().map(meaning).collect(),
        Expected::Addresses { ips, hosts } => {
            if ips.is_empty() && hosts.iter().any(|host| chain.contains(&host)) {
                return true;
            }
            let of_hosts = questions(question).into_iter().filter(|(name, _)| *name != question.name);
            let found = of_hosts.filter_map(|key| answers.get_key_value(&key)).flat_map(|((host, _), replies)| {
                let same = replies.iter().any(|reply| &*reply.resolver == resolver && reply.result.is_ok());
                let counts = move |reply: &&Reply| !same || &*reply.resolver == resolver;
                let answers = replies.iter().filter(counts).filter_map(|reply| reply.result.as_ref().ok());
                answers.flat_map(|answer| &answer.values).map(move |value| (host, value))
            });
            if question.how == TargetMatch::Exact && !hosts.is_empty() {
                let observed: BTreeSet<IpAddr> = values.iter().copied().filter_map(address).collect();
                let mut of_hosts: BTreeMap<&Fqdn, BTreeSet<IpAddr>> = BTreeMap::new();
                for (host, value) in found {
                    of_hosts.entry(host).or_default().extend(address(value));
                }
                return has_addresses(&observed, &ips.iter().copied().collect(), &of_hosts);
            }
            let ips = ips.iter().map(|ip| match ip {
                IpAddr::V4(ip) => Rdata::A(*ip),
                IpAddr::V6(ip) => Rdata::Aaaa(*ip),
            });
            found.map(|(_, value)| meaning(value)).chain(ips.map(|ip| meaning(&ip))).collect()
        }
    };
    match question.how {
        TargetMatch::Exact => observed == expected,
        TargetMatch::Subset => observed.is_subset(&expected),
        TargetMatch::Any => !observed.is_disjoint(&expected),
    }
}

/// Whether an answer has every listed address, and one address of each target host in each family where the host has any. A host may be answered with
/// other addresses from question to question, so further ones are not wrong in that family. In a family where no host has any, they are.
fn has_addresses(
    observed: &BTreeSet<IpAddr>,
    listed: &BTreeSet<IpAddr>,
    of_hosts: &BTreeMap<&Fqdn, BTreeSet<IpAddr>>,
) -> bool {
    let fits = |is: fn(&IpAddr) -> bool| {
        let of_family = |ips: &BTreeSet<IpAddr>| ips.iter().copied().filter(is).collect::<BTreeSet<IpAddr>>();
        let mut hosts = of_hosts.values().map(of_family).filter(|ips| !ips.is_empty()).peekable();
        if hosts.peek().is_none() {
            of_family(observed).is_subset(listed)
        } else {
            hosts.all(|ips| !ips.is_disjoint(observed))
        }
    };
    listed.is_subset(observed) && fits(IpAddr::is_ipv4) && fits(IpAddr::is_ipv6)
}

fn address(value: &Rdata) -> Option<IpAddr> {
    match value {
        Rdata::A(ip) => Some((*ip).into()),
        Rdata::Aaaa(ip) => Some((*ip).into()),
        _ => None,
    }
}

/// The compared form of a value. The parts of a text are joined, as every reader of a text does.
fn meaning(value: &Rdata) -> Vec<u8> {
    match value {
        Rdata::Txt(text) => text.joined(),
        other => other.to_string().into_bytes(),
    }
}

/// A value as users write it: names and addresses as in the targets.
fn shown(value: &Rdata) -> String {
    match value {
        Rdata::Aaaa(ip) => ip.to_string(),
        other => other.to_string(),
    }
}
