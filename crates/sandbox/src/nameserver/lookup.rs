//! How a question is answered from the records: RFC 1034 with wildcards (RFC 4592), delegations, aliases and negative answers.
//!
//! In: a name and a type. Out: an [`Answer`] of record sets, without anything of the wire.

use std::collections::BTreeSet;

use signpost_dns::{Fqdn, Rdata, RecordSet, RecordType};

use super::{
    records::{RecordMap, negative_ttl},
    wire::type_code,
};

/// How long a chain of aliases may be.
const LONGEST_CHAIN: usize = 16;

const ANY: u16 = 255;
const CNAME: u16 = 5;
const DS: u16 = 43;
const SOA: u16 = 6;

/// The kind of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// The name exists; the answer may still be empty.
    Found,
    /// The name does not exist.
    NoSuchName,
    /// Another server has to be asked.
    Referral,
    /// The name is outside of the zones of this server.
    Refused,
}

/// An answer before it is put on the wire.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) kind: AnswerKind,
    pub(super) answers: Vec<RecordSet>,
    pub(super) authority: Vec<RecordSet>,
    pub(super) additional: Vec<RecordSet>,
}

impl Answer {
    fn new(kind: AnswerKind) -> Self {
        Self { kind, answers: Vec::new(), authority: Vec::new(), additional: Vec::new() }
    }
}

/// Answers a question for records of type number `qtype`.
pub(super) fn answer(records: &RecordMap, qname: &Fqdn, qtype: u16) -> Answer {
    let mut answer = Answer::new(AnswerKind::Refused);
    let mut seen = BTreeSet::new();
    let mut name = qname.clone();
    for _ in 0..LONGEST_CHAIN {
        if !seen.insert(name.clone()) {
            break;
        }
        let Some(next) = step(records, &name, qtype, &mut answer) else { break };
        name = next;
        // Where a chain leaves our zones, its part in our zones is the answer.
        if records.apex_of(&name).is_none() {
            break;
        }
    }
    answer
}

/// Answers for one name of a chain; the target when the name is an alias.
fn step(records: &RecordMap, name: &Fqdn, qtype: u16, answer: &mut Answer) -> Option<Fqdn> {
    let apex = apex(records, name, qtype)?;
    if let Some(cut) = delegation(records, &apex, name, qtype) {
        answer.kind = AnswerKind::Referral;
        answer.additional =
            cut.records.iter().filter_map(Rdata::target).flat_map(|host| addresses(records, host)).collect();
        answer.authority = vec![cut];
        return None;
    }
    answer.kind = AnswerKind::Found;
    if records.sets(name).is_some() {
        return node(records, &apex, name, name, qtype, answer);
    }
    if name == &apex && qtype == SOA {
        answer.answers.extend(records.soa(&apex));
        return None;
    }
    if records.exists(name) || name == &apex {
        negative(records, &apex, answer);
        return None;
    }
    let encloser = closest_encloser(records, &apex, name)?;
    if let Some((set, target)) = synthesised(records, &encloser, name) {
        answer.answers.extend(set);
        return target;
    }
    let wildcard = encloser.prepend("*").ok().filter(|wildcard| records.sets(wildcard).is_some());
    if let Some(wildcard) = wildcard {
        return node(records, &apex, &wildcard, name, qtype, answer);
    }
    answer.kind = AnswerKind::NoSuchName;
    negative(records, &apex, answer);
    None
}

/// The apex that answers; a DS record belongs to the parent's side of a cut.
fn apex(records: &RecordMap, name: &Fqdn, qtype: u16) -> Option<Fqdn> {
    let apex = records.apex_of(name)?;
    if qtype == DS
        && &apex == name
        && let Some(parent) =
            name.parent().and_then(|parent| records.apex_of(&parent)).filter(|parent| name.is_at_or_below(parent))
    {
        return Some(parent);
    }
    Some(apex)
}

/// The NS records of the first cut between the apex and the name.
fn delegation(records: &RecordMap, apex: &Fqdn, name: &Fqdn, qtype: u16) -> Option<RecordSet> {
    let mut path = Vec::new();
    let mut at = Some(name.clone());
    while let Some(current) = at {
        if &current == apex {
            break;
        }
        at = current.parent();
        path.push(current);
    }
    path.into_iter()
        .rev()
        .filter(|cut| !(cut == name && qtype == DS))
        .find_map(|cut| records.set(&cut, RecordType::Ns).cloned())
}

/// The records at `node`, shown as `owner`'s.
fn node(records: &RecordMap, apex: &Fqdn, node: &Fqdn, owner: &Fqdn, qtype: u16, answer: &mut Answer) -> Option<Fqdn> {
    let shown = |set: &RecordSet| RecordSet { name: owner.clone(), ..set.clone() };
    let sets = records.sets(node)?;
    let before = answer.answers.len();
    let wanted =
        |set: &&RecordSet| (qtype == ANY && set.rtype != RecordType::Alias) || type_code(set.rtype) == Some(qtype);
    answer.answers.extend(sets.values().filter(wanted).map(shown));
    if node == apex && matches!(qtype, ANY | SOA) && !sets.contains_key(&RecordType::Soa) {
        answer.answers.extend(records.soa(apex));
    }
    if answer.answers.len() > before {
        let targets: Vec<Fqdn> =
            answer.answers[before..].iter().flat_map(|set| &set.records).filter_map(extra_target).cloned().collect();
        answer.additional.extend(targets.iter().flat_map(|host| addresses(records, host)));
        return None;
    }
    if let Some(alias) = sets.get(&RecordType::Cname).filter(|_| qtype != CNAME) {
        answer.answers.push(shown(alias));
        return alias.records.iter().find_map(Rdata::target).cloned();
    }
    if let Some(alias) = sets.get(&RecordType::Alias) {
        let flattened = flattened(records, alias, owner, qtype);
        if !flattened.is_empty() {
            answer.answers.extend(flattened);
            return None;
        }
    }
    negative(records, apex, answer);
    None
}

/// The addresses of an ALIAS record's target, as the owner's own.
fn flattened(records: &RecordMap, alias: &RecordSet, owner: &Fqdn, qtype: u16) -> Vec<RecordSet> {
    if ![RecordType::A, RecordType::Aaaa].into_iter().any(|rtype| type_code(rtype) == Some(qtype)) {
        return Vec::new();
    }
    let targets = alias.records.iter().filter_map(Rdata::target);
    let found = targets.flat_map(|target| {
        let mut name = target.clone();
        for _ in 0..LONGEST_CHAIN {
            match records.set(&name, RecordType::Cname).and_then(|set| set.records.iter().find_map(Rdata::target)) {
                Some(next) => name = next.clone(),
                None => break,
            }
        }
        records
            .sets(&name)
            .into_iter()
            .flat_map(|sets| sets.values())
            .filter(|set| type_code(set.rtype) == Some(qtype))
            .collect::<Vec<_>>()
    });
    found.map(|set| RecordSet { name: owner.clone(), ..set.clone() }).collect()
}

/// A CNAME made from a DNAME above the name, with the DNAME itself.
fn synthesised(records: &RecordMap, encloser: &Fqdn, name: &Fqdn) -> Option<(Vec<RecordSet>, Option<Fqdn>)> {
    let dname = records.set(encloser, RecordType::Dname)?;
    let target = dname.records.iter().find_map(Rdata::target)?;
    let prefix = name.undotted().strip_suffix(encloser.undotted())?.trim_end_matches('.');
    let target = target.prepend(prefix).ok()?;
    let cname = RecordSet {
        name: name.clone(),
        rtype: RecordType::Cname,
        ttl: dname.ttl,
        records: BTreeSet::from([Rdata::Cname(target.clone())]),
    };
    Some((vec![dname.clone(), cname], Some(target)))
}

/// The nearest name above that exists in the zone.
fn closest_encloser(records: &RecordMap, apex: &Fqdn, name: &Fqdn) -> Option<Fqdn> {
    let mut at = name.parent();
    while let Some(current) = at {
        if &current == apex || records.exists(&current) {
            return Some(current);
        }
        at = current.parent();
    }
    None
}

/// Adds the SOA, whose minimum is how long an absence may be cached.
fn negative(records: &RecordMap, apex: &Fqdn, answer: &mut Answer) {
    if let Some(mut soa) = records.soa(apex) {
        if let Ok(ttl) = signpost_dns::Ttl::new(negative_ttl(&soa)) {
            soa.ttl = ttl;
        }
        answer.authority.push(soa);
    }
}

/// The host whose addresses help whoever got this record.
fn extra_target(rdata: &Rdata) -> Option<&Fqdn> {
    match rdata {
        Rdata::Mx { .. } | Rdata::Srv { .. } | Rdata::Ns(_) => rdata.target(),
        _ => None,
    }
}

fn addresses(records: &RecordMap, host: &Fqdn) -> Vec<RecordSet> {
    [RecordType::A, RecordType::Aaaa].into_iter().filter_map(|rtype| records.set(host, rtype).cloned()).collect()
}

/// The answer for a name below `above` that cannot have records.
pub(super) fn absent(records: &RecordMap, above: &Fqdn) -> Answer {
    let mut answer = Answer::new(AnswerKind::Refused);
    if let Some(apex) = records.apex_of(above) {
        answer.kind = AnswerKind::NoSuchName;
        negative(records, &apex, &mut answer);
    }
    answer
}
