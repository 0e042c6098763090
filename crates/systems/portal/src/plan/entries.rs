//! The first two steps of the chain: the entries of a DNS object collected, and aggregated into groups in a fixed order.
//!
//! In: `spec.groups` as users write them. Out: names, types and expected values as types. An entry that cannot be read carries its own error, and
//! the others are not affected.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use signpost_apis::portal::{DnsEntry, DnsGroup, TargetMatch};
use signpost_dns::{Fqdn, Rdata, RecordType, Text};
use signpost_inventory::Values;

/// The expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Anything.
    Existence,
    /// These values.
    Records(Vec<Rdata>),
    /// These addresses, or those of these hosts.
    Addresses {
        /// Addresses.
        ips: Vec<IpAddr>,
        /// Hosts whose addresses are expected.
        hosts: Vec<Fqdn>,
    },
}

/// A name and what is expected of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name.
    pub name: Fqdn,
    /// The type; `None` where any type will do.
    pub rtype: Option<RecordType>,
    /// The expectation.
    pub expected: Expected,
    /// How the two are compared.
    pub how: TargetMatch,
}

/// What is wrong with an entry, and what could be read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// What is wrong, and what to write instead.
    pub why: String,
    /// The name, unless it is not a name.
    pub name: Option<Fqdn>,
    /// The type, where it is one.
    pub rtype: Option<RecordType>,
}

/// The key of a remembered verdict.
pub type Subject = (Fqdn, Option<RecordType>, Values, TargetMatch);

/// An entry, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name as it is shown: folded, or as it was written when it is not a name.
    pub shown: String,
    /// The question, or what is wrong with the entry.
    pub question: Result<Question, Invalid>,
    /// The targets in canonical form, or as they were written.
    pub targets: Values,
    /// The purpose of the name.
    pub description: Option<Arc<str>>,
    /// Its labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
}

impl Wanted {
    /// The key of its verdict; `None` for an entry that cannot be read.
    pub fn subject(&self) -> Option<Subject> {
        let question = self.question.as_ref().ok()?;
        Some((question.name.clone(), question.rtype, self.targets.clone(), question.how))
    }
}

/// The same as a [`Subject`], borrowed.
pub(crate) type SubjectRef<'a> = (&'a Fqdn, Option<RecordType>, &'a Values, TargetMatch);

impl Wanted {
    /// The same as [`Wanted::subject`], borrowed.
    pub(crate) fn subject_ref(&self) -> Option<SubjectRef<'_>> {
        let question = self.question.as_ref().ok()?;
        Some((&question.name, question.rtype, &self.targets, question.how))
    }
}

/// A group, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Arc<str>,
    /// Its purpose.
    pub description: Option<String>,
    /// Its names, sorted. Groups with the same names share them.
    pub names: Arc<Vec<Wanted>>,
}

/// CollectManualEntries: the groups of the spec.
pub fn collect(groups: &[DnsGroup]) -> impl Iterator<Item = &DnsGroup> {
    groups.iter()
}

/// AggregateFQDNs: groups sorted by name, names sorted within them. Groups of the same name are one group; an entry that is repeated counts once.
pub fn aggregate<'a>(groups: impl Iterator<Item = &'a DnsGroup>) -> Vec<Group> {
    let mut by_name: BTreeMap<&str, (Option<String>, Vec<Wanted>)> = BTreeMap::new();
    for group in groups {
        let (description, names) = by_name.entry(group.name.as_str()).or_default();
        let given = || group.description.as_deref().map(|text| cut(text, LONGEST_DESCRIPTION).to_owned());
        *description = description.take().or_else(given);
        names.extend(group.entries.iter().map(read));
    }
    let sorted = |(name, (description, mut names)): (&str, (Option<String>, Vec<Wanted>))| {
        names.sort_by(|a, b| a.place().cmp(&b.place()));
        names.dedup();
        // Most objects have few names, and all of this is kept: a list that grows has place for four.
        names.shrink_to_fit();
        Group { name: name.into(), description, names: Arc::new(names) }
    };
    let mut groups: Vec<Group> = by_name.into_iter().map(sorted).collect();
    groups.shrink_to_fit();
    groups
}

impl Wanted {
    /// Its place in a group. Repeated entries are neighbours.
    fn place(&self) -> (&str, Option<RecordType>, &Values, Option<TargetMatch>) {
        let question = self.question.as_ref().ok();
        let rtype = question.and_then(|question| question.rtype);
        (&self.shown, rtype, &self.targets, question.map(|question| question.how))
    }
}

/// Characters of texts that are kept. The schema has no limit for them.
const LONGEST_NAME: usize = 512;
const LONGEST_DESCRIPTION: usize = 1024;
const LONGEST_REASON: usize = 1024;

fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// An entry as types.
pub(crate) fn read(entry: &DnsEntry) -> Wanted {
    let question = question(entry);
    let targets = match &question {
        Ok((_, targets)) => targets.iter().collect(),
        Err(_) => entry.targets.iter().collect(),
    };
    let shown = match &question {
        Ok((question, _)) => question.name.undotted().to_owned(),
        Err(_) => cut(&entry.fqdn, LONGEST_NAME).to_owned(),
    };
    let labels = entry.labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    Wanted {
        shown,
        targets,
        question: question.map(|(question, _)| question).map_err(|why| Invalid {
            why: cut(&why, LONGEST_REASON).to_owned(),
            name: Fqdn::parse(entry.fqdn.trim()).ok(),
            rtype: entry.record_type.as_deref().and_then(|text| text.trim().parse().ok()),
        }),
        description: entry.description.as_deref().map(|text| cut(text, LONGEST_DESCRIPTION).into()),
        labels: labels.collect(),
    }
}

/// The question of an entry and its targets in canonical form, or what is wrong with it and what to write instead.
fn question(entry: &DnsEntry) -> Result<(Question, Vec<String>), String> {
    let name = Fqdn::parse(entry.fqdn.trim()).map_err(|error| error.to_string())?;
    let given = entry.record_type.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let rtype = given.map(|text| text.parse::<RecordType>().map_err(|error| error.to_string())).transpose()?;
    let targets: Vec<&str> = entry.targets.iter().map(|target| target.trim()).collect();
    if targets.contains(&"") {
        return Err("a target is empty; remove it or write a value".to_owned());
    }
    let how = entry.match_.unwrap_or_default();
    if targets.is_empty() {
        return Ok((Question { name, rtype, expected: Expected::Existence, how }, Vec::new()));
    }
    if let Some(rtype) = rtype.filter(|rtype| !matches!(rtype, RecordType::A | RecordType::Aaaa)) {
        let mut records = targets.iter().map(|target| record(rtype, target)).collect::<Result<Vec<_>, _>>()?;
        records.sort_unstable();
        records.shrink_to_fit();
        let texts = records.iter().map(ToString::to_string).collect();
        return Ok((Question { name, rtype: Some(rtype), expected: Expected::Records(records), how }, texts));
    }
    let (mut ips, mut hosts) = (Vec::new(), Vec::new());
    for target in targets {
        match (target.parse::<IpAddr>(), rtype) {
            (Ok(IpAddr::V6(_)), Some(RecordType::A)) => {
                return Err(format!("{target} is not an IPv4 address; use type AAAA"));
            }
            (Ok(IpAddr::V4(_)), Some(RecordType::Aaaa)) => {
                return Err(format!("{target} is not an IPv6 address; use type A"));
            }
            (Ok(ip), _) => ips.push(ip),
            (Err(_), _) => {
                let host = Fqdn::parse_hostname(target);
                hosts.push(
                    host.map_err(|error| format!("the target {target:?} is neither an address nor a host: {error}"))?,
                );
            }
        }
    }
    ips.sort_unstable();
    hosts.sort_unstable();
    ips.shrink_to_fit();
    hosts.shrink_to_fit();
    let inferred = match (&ips[..], &hosts[..]) {
        (ips, []) if ips.iter().all(IpAddr::is_ipv4) => Some(RecordType::A),
        (ips, []) if ips.iter().all(IpAddr::is_ipv6) => Some(RecordType::Aaaa),
        _ => None,
    };
    let texts =
        ips.iter().map(ToString::to_string).chain(hosts.iter().map(|host| host.undotted().to_owned())).collect();
    Ok((Question { name, rtype: rtype.or(inferred), expected: Expected::Addresses { ips, hosts }, how }, texts))
}

/// A target as a value. Text need not be in quotes.
fn record(rtype: RecordType, target: &str) -> Result<Rdata, String> {
    match Rdata::parse(&rtype, target) {
        Err(_) if rtype == RecordType::Txt && !target.contains('"') => {
            Text::new(target).map(Rdata::Txt).map_err(|error| error.to_string())
        }
        result => result.map_err(|error| error.to_string()),
    }
}
