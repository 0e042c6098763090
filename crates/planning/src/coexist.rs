//! Which record sets can coexist in a zone.
//!
//! In: the wanted name-and-type pairs of one zone, each with its claim, and the foreign pairs. Out: the pairs that may be published, and a
//! refusal for each of the others. Older claims win; foreign pairs win over all claims, since they will not be changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};

use crate::claims::Claim;
use crate::refusal::{Reason, Refusal, Refused};

/// Wanted record sets, each with its claim.
pub type Candidates<H> = BTreeMap<RecordKey, Claim<H>>;

/// The record sets that may be published, and the refused ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// May be published.
    pub admitted: BTreeSet<RecordKey>,
    /// May not be published, in order of their keys.
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
        if let Some(refusal) = misplaced(zone, key).or_else(|| conflict(zone, key, there)) {
            admission.refused.push(Refused { key: key.clone(), refusal });
        } else {
            there.push(Taken { rtype: key.rtype, by: Some(&claim.holder) });
            admission.admitted.insert(key.clone());
        }
    }
    admission.refused.sort();
    admission
}

/// A type that exists at a name already, and its owner.
struct Taken<'a, H> {
    rtype: RecordType,
    by: Option<&'a H>,
}

/// Why the type is not allowed at that place of the zone.
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

/// Why the type cannot coexist with the types at the name.
fn conflict<H: Display>(zone: &ZoneName, key: &RecordKey, there: &[Taken<'_, H>]) -> Option<Refusal> {
    let apex = key.name == *zone.name();
    let other = there.iter().find(|taken| excludes(key.rtype, taken.rtype, apex))?;
    let whose = other.by.map_or_else(|| "that was not published by us".to_owned(), |holder| format!("of {holder}"));
    let message = format!("{key} cannot share its name with the {} record {whose}", other.rtype);
    Some(Refusal::new(Reason::CnameConflict, message))
}

/// Whether two different types cannot be at one name; `apex` is whether that is the name of the zone. [`admit`] never asks for one type
/// twice: a name and type is wanted once, and a foreign set of a wanted name and type is not considered.
pub fn excludes(one: RecordType, other: RecordType, apex: bool) -> bool {
    let either = |rtype| one == rtype || other == rtype;
    either(RecordType::Cname) || (!apex && either(RecordType::Ns) && either(RecordType::Dname))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn key(name: &str, rtype: &str) -> RecordKey {
        RecordKey::new(Fqdn::parse(name).unwrap(), rtype.parse().unwrap())
    }

    /// Admits (name, type, age) for example.com; the holder is named after its age.
    fn admitted(wanted: &[(&str, &str, i64)], foreign: &[(&str, &str)]) -> (Vec<String>, Vec<(String, Reason)>) {
        let zone = ZoneName::parse("example.com").unwrap();
        let wanted: Candidates<String> = wanted
            .iter()
            .map(|(name, rtype, age)| {
                let since = Timestamp::from_second(*age).unwrap();
                (key(name, rtype), Claim::new(format!("RRset default/h{age}"), since, "u"))
            })
            .collect();
        let foreign = foreign.iter().map(|(name, rtype)| key(name, rtype)).collect();
        let Admission { admitted, refused } = admit(&zone, &wanted, &foreign);
        (
            admitted.iter().map(ToString::to_string).collect(),
            refused.into_iter().map(|refused| (refused.key.to_string(), refused.refusal.reason)).collect(),
        )
    }

    fn refused(key: &str, reason: Reason) -> Vec<(String, Reason)> {
        vec![(key.to_owned(), reason)]
    }

    #[test]
    fn the_older_of_a_cname_and_another_record_is_published() {
        let (published, losers) = admitted(&[("www.example.com", "A", 1), ("www.example.com", "CNAME", 2)], &[]);
        assert_eq!(published, ["www.example.com. A"]);
        assert_eq!(losers, refused("www.example.com. CNAME", Reason::CnameConflict));
        let (published, losers) = admitted(&[("www.example.com", "A", 2), ("www.example.com", "CNAME", 1)], &[]);
        assert_eq!(published, ["www.example.com. CNAME"]);
        assert_eq!(losers, refused("www.example.com. A", Reason::CnameConflict));
    }

    #[test]
    fn types_other_than_cname_share_a_name() {
        let (published, losers) =
            admitted(&[("a.example.com", "A", 1), ("a.example.com", "AAAA", 2), ("a.example.com", "TXT", 3)], &[]);
        assert_eq!((published.len(), losers), (3, vec![]));
    }

    #[test]
    fn a_foreign_record_wins_over_every_claim() {
        let (published, losers) = admitted(&[("www.example.com", "CNAME", 1)], &[("www.example.com", "A")]);
        assert_eq!(published, Vec::<String>::new());
        assert_eq!(losers, refused("www.example.com. CNAME", Reason::CnameConflict));
        let (published, _) = admitted(&[("www.example.com", "TXT", 1)], &[("www.example.com", "A")]);
        assert_eq!(published.len(), 1);
    }

    #[test]
    fn a_foreign_set_of_the_same_type_is_not_a_conflict() {
        let (published, losers) = admitted(&[("www.example.com", "CNAME", 1)], &[("www.example.com", "CNAME")]);
        assert_eq!((published.len(), losers), (1, vec![]));
    }

    #[test]
    fn some_types_are_allowed_only_at_or_below_the_apex() {
        for (name, rtype) in
            [("example.com", "CNAME"), ("example.com", "DS"), ("a.example.com", "SOA"), ("a.example.com", "DNSKEY")]
        {
            let (published, losers) = admitted(&[(name, rtype, 1)], &[]);
            assert_eq!(published, Vec::<String>::new(), "{rtype}");
            assert_eq!(losers, refused(&format!("{name}. {rtype}"), Reason::WrongPlace));
        }
        for (name, rtype) in [("example.com", "SOA"), ("example.com", "ALIAS"), ("a.example.com", "DS")] {
            assert_eq!(admitted(&[(name, rtype, 1)], &[]).0.len(), 1, "{rtype}");
        }
    }

    #[test]
    fn a_delegation_and_a_dname_exclude_each_other_below_the_apex_only() {
        assert_eq!(admitted(&[("a.example.com", "NS", 1), ("a.example.com", "DNAME", 2)], &[]).0.len(), 1);
        assert_eq!(admitted(&[("example.com", "NS", 1), ("example.com", "DNAME", 2)], &[]).0.len(), 2);
    }

    #[test]
    fn losers_are_listed_by_name_not_by_age() {
        let (_, losers) = admitted(&[("b.example.com", "SOA", 1), ("a.example.com", "SOA", 2)], &[]);
        let names: Vec<_> = losers.into_iter().map(|(key, _)| key).collect();
        assert_eq!(names, ["a.example.com. SOA", "b.example.com. SOA"]);
    }

    #[test]
    fn a_name_outside_the_zone_is_refused() {
        let (_, losers) = admitted(&[("www.example.org", "A", 1)], &[]);
        assert_eq!(losers, refused("www.example.org. A", Reason::OutsideZone));
    }

    #[test]
    fn the_refusal_names_the_owner_of_the_name() {
        let zone = ZoneName::parse("example.com").unwrap();
        let since = |second| Timestamp::from_second(second).unwrap();
        let wanted: Candidates<&str> = [
            (key("www.example.com", "A"), Claim::new("RRset default/old", since(1), "u1")),
            (key("www.example.com", "CNAME"), Claim::new("RRset default/new", since(2), "u2")),
        ]
        .into();
        let admission = admit(&zone, &wanted, &BTreeSet::new());
        assert_eq!(
            admission.refused.first().unwrap().refusal.message,
            "www.example.com. CNAME cannot share its name with the A record of RRset default/old"
        );
    }
}
