//! Which record sets can stand side by side in a zone.
//!
//! In: the wanted name-and-type pairs of one zone, each with the claim behind it, and the pairs that are there and not
//! ours. Out: those that may be published, and a refusal for each of the others. Older claims win; what is not ours wins
//! over all of them, since it will not be changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};

use crate::claims::Claim;
use crate::refusal::{Reason, Refusal, Refused};

/// A wanted record set and the claim behind it.
pub type Candidates<H> = BTreeMap<RecordKey, Claim<H>>;

/// What may be published, and what not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// May be published.
    pub admitted: BTreeSet<RecordKey>,
    /// May not, in order of their keys.
    pub refused: Vec<Refused<RecordKey>>,
}

/// Decides which candidates can be published together.
pub fn admit<H: Ord + Display>(zone: &ZoneName, wanted: &Candidates<H>, foreign: &BTreeSet<RecordKey>) -> Admission {
    let mut by_age: Vec<(&RecordKey, &Claim<H>)> = wanted.iter().collect();
    by_age.sort_by(|(left_key, left), (right_key, right)| left.cmp(right).then_with(|| left_key.cmp(right_key)));

    let mut taken: BTreeMap<&Fqdn, Vec<Taken<'_, H>>> = BTreeMap::new();
    for key in foreign.iter().filter(|key| !wanted.contains_key(*key)) {
        taken.entry(&key.name).or_default().push(Taken { rtype: key.rtype, by: None });
    }
    let mut admission = Admission::default();
    for (key, claim) in by_age {
        let there = taken.entry(&key.name).or_default();
        match misplaced(zone, key).or_else(|| conflict(zone, key, there)) {
            Some(refusal) => admission.refused.push(Refused { key: key.clone(), refusal }),
            None => {
                there.push(Taken { rtype: key.rtype, by: Some(&claim.holder) });
                admission.admitted.insert(key.clone());
            }
        }
    }
    admission.refused.sort();
    admission
}

/// A type that is at a name already, and whose it is.
struct Taken<'a, H> {
    rtype: RecordType,
    by: Option<&'a H>,
}

/// Why the type cannot be at that place of the zone at all.
fn misplaced(zone: &ZoneName, key: &RecordKey) -> Option<Refusal> {
    let apex = key.name == *zone.name();
    let why = match (key.rtype, apex) {
        _ if !key.name.is_within(zone) => {
            let message = format!("{} is not inside zone {zone}", key.name);
            return Some(Refusal::new(Reason::OutsideZone, message));
        }
        (RecordType::Cname, true) => "a CNAME cannot be at the top of a zone; use ALIAS or address records there",
        (RecordType::Ds, true) => "a DS record belongs into the parent zone, not at the top of the zone itself",
        (RecordType::Soa, false) => "a SOA record is allowed at the top of the zone only",
        (RecordType::Other(mnemonic), false) if mnemonic.as_str() == "DNSKEY" => {
            "a DNSKEY record is allowed at the top of the zone only"
        }
        _ => return None,
    };
    Some(Refusal::new(Reason::WrongPlace, format!("{key}: {why}")))
}

/// Why the type cannot be next to what is at the name already.
fn conflict<H: Display>(zone: &ZoneName, key: &RecordKey, there: &[Taken<'_, H>]) -> Option<Refusal> {
    let apex = key.name == *zone.name();
    let other = there.iter().find(|taken| excludes(key.rtype, taken.rtype, apex))?;
    let whose = other.by.map_or_else(|| "that was not published by us".to_owned(), |holder| format!("of {holder}"));
    let message = format!("{key} cannot share its name with the {} record {whose}", other.rtype);
    Some(Refusal::new(Reason::CnameConflict, message))
}

/// Whether two different types cannot be at one name. The same type is no matter of coexistence but of claims.
fn excludes(one: RecordType, other: RecordType, apex: bool) -> bool {
    let pair = |a, b| (one, other) == (a, b) || (one, other) == (b, a);
    one != other
        && (one == RecordType::Cname
            || other == RecordType::Cname
            || (!apex && pair(RecordType::Ns, RecordType::Dname)))
}
