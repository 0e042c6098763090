//! Records of numbers, words and quoted strings: CAA and NAPTR.

use std::fmt;

use super::error::RdataError;
use super::scan::{Bare, Scanner};
use super::text::{MAX_STRING_LEN, write_quoted};
use crate::name::Fqdn;

/// The authorities that may issue certificates (RFC 8659).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caa {
    /// 128 makes the property critical.
    pub flags: u8,
    /// The property, lower case: `issue`, `issuewild`, `iodef`, …
    pub tag: Box<str>,
    /// The property's value; its case counts.
    pub value: Box<[u8]>,
}

impl Caa {
    pub(super) fn scan(scan: &mut Scanner<'_>) -> Result<Self, RdataError> {
        let flags = scan.u8("flags")?;
        let word = scan.word()?;
        let valid = (1..=MAX_STRING_LEN).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_alphanumeric());
        if !valid {
            return Err(scan.field("tag", "letters and digits only, such as issue", word));
        }
        let value = scan.string(Bare::Allowed)?;
        scan.fits(value.len() + word.len() + 2)?;
        Ok(Self { flags, tag: word.to_ascii_lowercase().into_boxed_str(), value: value.into_boxed_slice() })
    }
}

impl fmt::Display for Caa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, tag, value } = self;
        write!(f, "{flags} {tag} ")?;
        write_quoted(f, value)
    }
}

/// A naming authority pointer (RFC 3403).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Naptr {
    /// Lower is processed first.
    pub order: u16,
    /// Lower is preferred within one order.
    pub preference: u16,
    /// The result of the expression.
    pub flags: Box<[u8]>,
    /// The service and its protocol.
    pub service: Box<[u8]>,
    /// The substitution; empty when there is a replacement.
    pub regexp: Box<[u8]>,
    /// The next name to ask; `.` when there is an expression.
    pub replacement: Fqdn,
}

impl Naptr {
    pub(super) fn scan(scan: &mut Scanner<'_>) -> Result<Self, RdataError> {
        Ok(Self {
            order: scan.u16("order")?,
            preference: scan.u16("preference")?,
            flags: short_string(scan, "flags")?,
            service: short_string(scan, "service")?,
            regexp: short_string(scan, "expression")?,
            replacement: scan.name("replacement")?,
        })
    }
}

/// A string of at most 255 octets.
fn short_string(scan: &mut Scanner<'_>, field: &'static str) -> Result<Box<[u8]>, RdataError> {
    let octets = scan.string(Bare::Allowed)?;
    if octets.len() > MAX_STRING_LEN {
        return Err(scan.field(field, "at most 255 octets long", &String::from_utf8_lossy(&octets)));
    }
    Ok(octets.into_boxed_slice())
}

impl fmt::Display for Naptr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, preference, flags, service, regexp, replacement } = self;
        write!(f, "{order} {preference} ")?;
        for string in [flags, service, regexp] {
            write_quoted(f, string)?;
            f.write_str(" ")?;
        }
        replacement.fmt(f)
    }
}
