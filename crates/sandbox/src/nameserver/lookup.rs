//! How a question is answered from the records: RFC 1034 with wildcards (RFC 4592), delegations, aliases and negative answers.
//!
//! In: a name and a type. Out: an [`Answer`] of record sets, without anything of the wire.

use std::collections::BTreeSet;

use signpost_dns::{Fqdn, Rdata, RecordSet, RecordType};

use super::{
    records::{Held, negative_ttl},
    wire::type_code,
};

/// How long a chain of aliases may be.
const LONGEST_CHAIN: usize = 16;

const ANY: u16 = 255;
const CNAME: u16 = 5;
const DS: u16 = 43;
const SOA: u16 = 6;

/// The answer for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The name exists; the answer may still be empty.
    Found,
    /// The name does not exist.
    NoSuchName,
    /// Someone else is to be asked.
    Referral,
    /// The name is outside of the zones of this server.
    Refused,
}

/// An answer before it is put on the wire.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) answers: Vec<RecordSet>,
    pub(super) authority: Vec<RecordSet>,
    pub(super) additional: Vec<RecordSet>,
}

impl Answer {
    fn new(verdict: Verdict) -> Self {
        Self { verdict, answers: Vec::new(), authority: Vec::new(), additional: Vec::new() }
    }
}

/// Answers a question for records of type number `qtype`.
pub(super) fn answer(held: &Held, qname: &Fqdn, qtype: u16) -> Answer {
    let mut answer = Answer::new(Verdict::Refused);
    let mut seen = BTreeSet::new();
    let mut name = qname.clone();
    for _ in 0..LONGEST_CHAIN {
        if !seen.insert(name.clone()) {
            break;
        }
        let Some(next) = step(held, &name, qtype, &mut answer) else { break };
        name = next;
        // Where a chain leaves our zones, its part in our zones is the answer.
        if held.apex_of(&name).is_none() {
            break;
        }
    }
    answer
}

/// Answers for one name of a chain; the target when the name is an alias.
fn step(held: &Held, name: &Fqdn, qtype: u16, answer: &mut Answer) -> Option<Fqdn> {
    let apex = apex(held, name, qtype)?;
    if let Some(cut) = delegation(held, &apex, name, qtype) {
        answer.verdict = Verdict::Referral;
        answer.additional =
            cut.records.iter().filter_map(Rdata::target).flat_map(|host| addresses(held, host)).collect();
        answer.authority = vec![cut];
        return None;
    }
    answer.verdict = Verdict::Found;
    if held.sets(name).is_some() {
        return node(held, &apex, name, name, qtype, answer);
    }
    if name == &apex && qtype == SOA {
        answer.answers.extend(held.soa(&apex));
        return None;
    }
    if held.exists(name) || name == &apex {
        negative(held, &apex, answer);
        return None;
    }
    let encloser = closest_encloser(held, &apex, name)?;
    if let Some((set, target)) = synthesised(held, &encloser, name) {
        answer.answers.extend(set);
        return target;
    }
    let wildcard = encloser.prepend("*").ok().filter(|wildcard| held.sets(wildcard).is_some());
    if let Some(wildcard) = wildcard {
        return node(held, &apex, &wildcard, name, qtype, answer);
    }
    answer.verdict = Verdict::NoSuchName;
    negative(held, &apex, answer);
    None
}

/// The apex that answers; a DS record belongs to the parent's side of a cut.
fn apex(held: &Held, name: &Fqdn, qtype: u16) -> Option<Fqdn> {
    let apex = held.apex_of(name)?;
    if qtype == DS
        && &apex == name
        && let Some(parent) =
            name.parent().and_then(|parent| held.apex_of(&parent)).filter(|parent| name.is_at_or_below(parent))
    {
        return Some(parent);
    }
    Some(apex)
}

/// The NS records of the first cut between the apex and the name.
fn delegation(held: &Held, apex: &Fqdn, name: &Fqdn, qtype: u16) -> Option<RecordSet> {
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
        .find_map(|cut| held.set(&cut, RecordType::Ns).cloned())
}

/// The records at `node`, shown as `owner`'s.
fn node(held: &Held, apex: &Fqdn, node: &Fqdn, owner: &Fqdn, qtype: u16, answer: &mut Answer) -> Option<Fqdn> {
    let shown = |set: &RecordSet| RecordSet { name: owner.clone(), ..set.clone() };
    let sets = held.sets(node)?;
    let before = answer.answers.len();
    let wanted =
        |set: &&RecordSet| (qtype == ANY && set.rtype != RecordType::Alias) || type_code(set.rtype) == Some(qtype);
    answer.answers.extend(sets.values().filter(wanted).map(shown));
    if node == apex && matches!(qtype, ANY | SOA) && !sets.contains_key(&RecordType::Soa) {
        answer.answers.extend(held.soa(apex));
    }
    if answer.answers.len() > before {
        let targets: Vec<Fqdn> =
            answer.answers[before..].iter().flat_map(|set| &set.records).filter_map(extra_target).cloned().collect();
        answer.additional.extend(targets.iter().flat_map(|host| addresses(held, host)));
        return None;
    }
    if let Some(alias) = sets.get(&RecordType::Cname).filter(|_| qtype != CNAME) {
        answer.answers.push(shown(alias));
        return alias.records.iter().find_map(Rdata::target).cloned();
    }
    if let Some(alias) = sets.get(&RecordType::Alias) {
        let flattened = flattened(held, alias, owner, qtype);
        if !flattened.is_empty() {
            answer.answers.extend(flattened);
            return None;
        }
    }
    negative(held, apex, answer);
    None
}

/// The addresses of an ALIAS record's target, as the owner's own.
fn flattened(held: &Held, alias: &RecordSet, owner: &Fqdn, qtype: u16) -> Vec<RecordSet> {
    if ![RecordType::A, RecordType::Aaaa].into_iter().any(|rtype| type_code(rtype) == Some(qtype)) {
        return Vec::new();
    }
    let targets = alias.records.iter().filter_map(Rdata::target);
    let found = targets.flat_map(|target| {
        let mut name = target.clone();
        for _ in 0..LONGEST_CHAIN {
            match held.set(&name, RecordType::Cname).and_then(|set| set.records.iter().find_map(Rdata::target)) {
                Some(next) => name = next.clone(),
                None => break,
            }
        }
        held.sets(&name)
            .into_iter()
            .flat_map(|sets| sets.values())
            .filter(|set| type_code(set.rtype) == Some(qtype))
            .collect::<Vec<_>>()
    });
    found.map(|set| RecordSet { name: owner.clone(), ..set.clone() }).collect()
}

/// A CNAME made from a DNAME above the name, with the DNAME itself.
fn synthesised(held: &Held, encloser: &Fqdn, name: &Fqdn) -> Option<(Vec<RecordSet>, Option<Fqdn>)> {
    let dname = held.set(encloser, RecordType::Dname)?;
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
fn closest_encloser(held: &Held, apex: &Fqdn, name: &Fqdn) -> Option<Fqdn> {
    let mut at = name.parent();
    while let Some(current) = at {
        if &current == apex || held.exists(&current) {
            return Some(current);
        }
        at = current.parent();
    }
    None
}

/// Adds the SOA, whose minimum is how long an absence may be cached.
fn negative(held: &Held, apex: &Fqdn, answer: &mut Answer) {
    if let Some(mut soa) = held.soa(apex) {
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

fn addresses(held: &Held, host: &Fqdn) -> Vec<RecordSet> {
    [RecordType::A, RecordType::Aaaa].into_iter().filter_map(|rtype| held.set(host, rtype).cloned()).collect()
}

/// The answer for a name below `above` that cannot have records.
pub(super) fn absent(held: &Held, above: &Fqdn) -> Answer {
    let mut answer = Answer::new(Verdict::Refused);
    if let Some(apex) = held.apex_of(above) {
        answer.verdict = Verdict::NoSuchName;
        negative(held, &apex, &mut answer);
    }
    answer
}
