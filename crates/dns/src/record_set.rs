//! Record sets: all records of one name and type, which DNS always publishes together.
//!
//! In: parsed parts, or texts as a user wrote them. Out: [`RecordSet`], compared by meaning: order, spelling and
//! duplicates of its records make no difference.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::Fqdn;
use crate::rdata::{Rdata, RdataError};
use crate::rtype::RecordType;
use crate::ttl::Ttl;

/// Why texts do not make a record set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordSetError {
    /// One of the records does not parse.
    #[error("records[{index}]: {source}")]
    Record {
        /// Position in the list the user wrote.
        index: usize,
        /// The error in it.
        source: RdataError,
    },
    /// No record at all.
    #[error("the list of records is empty; give at least one record, or delete the object")]
    Empty,
    /// Several records of a type that allows one only.
    #[error("a {rtype} record set has exactly one record, got {count}")]
    Singleton {
        /// The type.
        rtype: RecordType,
        /// How many different records were given.
        count: usize,
    },
    /// A record of another type than the set's.
    #[error("records[{index}] is of type {found}, not {rtype}")]
    MixedTypes {
        /// Position in the list.
        index: usize,
        /// The set's type.
        rtype: RecordType,
        /// The record's type.
        found: RecordType,
    },
}

/// The key of a record set within a zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordKey {
    /// The owner name.
    pub name: Fqdn,
    /// The type.
    #[serde(rename = "type")]
    pub rtype: RecordType,
}

impl RecordKey {
    /// The key of that name and type.
    pub fn new(name: Fqdn, rtype: RecordType) -> Self {
        Self { name, rtype }
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.rtype)
    }
}

/// All records of one name and type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct RecordSet {
    /// The owner name.
    pub name: Fqdn,
    /// The type of every record in the set.
    #[serde(rename = "type")]
    pub rtype: RecordType,
    /// The TTL of the set.
    pub ttl: Ttl,
    /// The records, without order or duplicates.
    pub records: BTreeSet<Rdata>,
}

impl RecordSet {
    /// A set of already parsed records; refuses an empty set, a foreign type and a second record in a singleton.
    pub fn new(
        name: Fqdn,
        rtype: RecordType,
        ttl: Ttl,
        records: impl IntoIterator<Item = Rdata>,
    ) -> Result<Self, RecordSetError> {
        let mut set = BTreeSet::new();
        for (index, record) in records.into_iter().enumerate() {
            let found = record.rtype();
            if found != rtype {
                return Err(RecordSetError::MixedTypes { index, rtype, found });
            }
            set.insert(record);
        }
        match set.len() {
            0 => Err(RecordSetError::Empty),
            count if count > 1 && rtype.singleton() => Err(RecordSetError::Singleton { rtype, count }),
            _ => Ok(Self { name, rtype, ttl, records: set }),
        }
    }

    /// A set of records as a user wrote them.
    pub fn parse<T: AsRef<str>>(
        name: Fqdn,
        rtype: RecordType,
        ttl: Ttl,
        records: impl IntoIterator<Item = T>,
    ) -> Result<Self, RecordSetError> {
        let records = records
            .into_iter()
            .enumerate()
            .map(|(index, text)| {
                Rdata::parse(&rtype, text.as_ref()).map_err(|source| RecordSetError::Record { index, source })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Self::new(name, rtype, ttl, records)
    }

    /// The name and type.
    pub fn key(&self) -> RecordKey {
        RecordKey::new(self.name.clone(), self.rtype)
    }

    /// Whether both sets mean the same to a resolver's user: equal, except that a SOA's serial, which the server
    /// counts up by itself, is not looked at.
    pub fn same_meaning(&self, other: &Self) -> bool {
        let Self { name, rtype, ttl, records } = self;
        (name, rtype, ttl) == (&other.name, &other.rtype, &other.ttl)
            && records.len() == other.records.len()
            && records.iter().zip(&other.records).all(|(ours, theirs)| ours.same_meaning(theirs))
    }
}

impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.ttl, self.rtype)?;
        for (index, record) in self.records.iter().enumerate() {
            write!(f, "{} {record}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// A record set as it is spelled in JSON.
#[derive(Deserialize)]
struct Written {
    name: Fqdn,
    #[serde(rename = "type")]
    rtype: RecordType,
    ttl: Ttl,
    records: Vec<String>,
}

impl TryFrom<Written> for RecordSet {
    type Error = RecordSetError;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { name, rtype, ttl, records } = written;
        Self::parse(name, rtype, ttl, records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rtype: RecordType, records: &[&str]) -> Result<RecordSet, RecordSetError> {
        RecordSet::parse(Fqdn::parse("www.example.com").unwrap(), rtype, Ttl::new(300).unwrap(), records)
    }

    #[test]
    fn order_spelling_and_duplicates_make_no_difference() {
        let one = set(RecordType::Aaaa, &["2001:db8::1", "2001:DB8:0::2", "2001:db8::1"]).unwrap();
        let other = set(RecordType::Aaaa, &["2001:db8:0:0:0:0:0:2", "2001:db8::0001"]).unwrap();
        assert_eq!(one, other);
        assert!(one.same_meaning(&other));
    }

    #[test]
    fn a_different_ttl_or_record_is_a_difference() {
        let one = set(RecordType::A, &["192.0.2.1"]).unwrap();
        let mut other = one.clone();
        other.ttl = Ttl::new(301).unwrap();
        assert!(!one.same_meaning(&other));
        assert!(!one.same_meaning(&set(RecordType::A, &["192.0.2.2"]).unwrap()));
        assert!(!one.same_meaning(&set(RecordType::A, &["192.0.2.1", "192.0.2.2"]).unwrap()));
    }

    #[test]
    fn the_serial_of_a_soa_does_not_count() {
        let one = set(RecordType::Soa, &["ns1.example.com. h.example.com. 1 2 3 4 5"]).unwrap();
        let later = set(RecordType::Soa, &["ns1.example.com h.example.com 2026111501 2 3 4 5"]).unwrap();
        let other = set(RecordType::Soa, &["ns1.example.com h.example.com 1 2 3 4 6"]).unwrap();
        assert!(one != later && one.same_meaning(&later));
        assert!(!one.same_meaning(&other));
    }

    #[test]
    fn a_bad_record_is_named_by_its_position() {
        let error = set(RecordType::A, &["192.0.2.1", "foo"]).unwrap_err();
        assert_eq!(error.to_string(), "records[1]: record type A needs an IPv4 address such as 192.0.2.1, got \"foo\"");
    }

    #[test]
    fn a_set_has_at_least_one_record_and_a_cname_exactly_one() {
        assert_eq!(set(RecordType::A, &[]), Err(RecordSetError::Empty));
        assert_eq!(
            set(RecordType::Cname, &["a.example", "b.example"]),
            Err(RecordSetError::Singleton { rtype: RecordType::Cname, count: 2 })
        );
        assert!(set(RecordType::Cname, &["a.example", "A.example."]).is_ok());
    }

    #[test]
    fn a_record_of_another_type_is_refused() {
        let record = Rdata::parse(&RecordType::A, "192.0.2.1").unwrap();
        let made = RecordSet::new(Fqdn::root(), RecordType::Txt, Ttl::MAX, [record]);
        assert!(matches!(made, Err(RecordSetError::MixedTypes { index: 0, .. })));
    }

    #[test]
    fn json_has_texts_and_reads_back_to_the_same_set() {
        let one = set(RecordType::Mx, &["10 mail.example.com", "0 ."]).unwrap();
        let json = serde_json::to_value(&one).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "name": "www.example.com.", "type": "MX", "ttl": 300, "records": ["0 .", "10 mail.example.com."],
            })
        );
        assert_eq!(serde_json::from_value::<RecordSet>(json).unwrap(), one);
        assert!(serde_json::from_str::<RecordSet>(r#"{"name":"a.","type":"A","ttl":1,"records":["x"]}"#).is_err());
    }

    #[test]
    fn a_set_prints_as_one_line() {
        let one = set(RecordType::A, &["192.0.2.2", "192.0.2.1"]).unwrap();
        assert_eq!(one.to_string(), "www.example.com. 300 A 192.0.2.1, 192.0.2.2");
        assert_eq!(one.key().to_string(), "www.example.com. A");
    }
}
