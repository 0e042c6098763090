//! Values of types without a parser of their own.
//!
//! In: RFC 3597's `\# length hex`, or any text in the type's own spelling. Out: the former decoded, the latter with single
//! blanks, its quoted strings in their one spelling, and the digits of types with a [layout](super::layout) in theirs.
//! Nothing else is assumed about it, so case counts.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use super::error::RdataError;
use super::layout;
use super::scan::{Bare, Scanner};
use super::text::write_quoted;
use crate::rtype::RecordType;

/// A value that is carried without being understood.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generic {
    rtype: RecordType,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Value {
    /// Given as octets.
    Octets(Box<[u8]>),
    /// Given as text.
    Words(Box<str>),
}

impl Generic {
    pub(super) fn scan(rtype: RecordType, mut scan: Scanner<'_>) -> Result<Self, RdataError> {
        if scan.at_end() {
            return Err(scan.shape());
        }
        let numbered = rtype.as_str().strip_prefix("TYPE").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
        let words = squeeze(&mut scan)?;
        let value = match words.strip_prefix("\\#") {
            Some(rest) if rest.is_empty() || rest.starts_with(' ') => Value::Octets(octets(&scan, rest)?),
            _ if numbered => return Err(scan.shape()),
            _ => {
                let words = layout::canonical(rtype, &words).unwrap_or(words);
                scan.fits(words.len())?;
                Value::Words(words.into_boxed_str())
            }
        };
        Ok(Self { rtype, value })
    }

    /// The record's type.
    pub fn rtype(&self) -> RecordType {
        self.rtype
    }
}

/// The octets behind `\#`.
fn octets(scan: &Scanner<'_>, rest: &str) -> Result<Box<[u8]>, RdataError> {
    let mut words = rest.split(' ').filter(|word| !word.is_empty());
    let length = words.next().ok_or_else(|| scan.shape())?;
    let length: usize = length.parse().map_err(|_| scan.field("length", "a number from 0 to 65535", length))?;
    let digits: String = words.collect();
    let octets = HEXLOWER_PERMISSIVE
        .decode(digits.as_bytes())
        .map_err(|_| scan.field("data", "an even number of hexadecimal digits", &digits))?;
    if octets.len() != length {
        return Err(scan.field("data", "as many octets as the length", &digits));
    }
    scan.fits(length)?;
    Ok(octets.into_boxed_slice())
}

/// The text with single blanks outside quotes and quoted strings in their one spelling.
fn squeeze(scan: &mut Scanner<'_>) -> Result<String, RdataError> {
    const NEEDS: &str = "printable ASCII outside double quotes";
    let mut squeezed = String::new();
    let mut blank = false;
    while let Some(character) = scan.peek() {
        if matches!(character, ' ' | '\t') {
            blank = !scan.at_end();
            continue;
        }
        if std::mem::take(&mut blank) && !squeezed.is_empty() {
            squeezed.push(' ');
        }
        if character == '"' {
            let octets = scan.string(Bare::Refused)?;
            write_quoted(&mut squeezed, &octets).map_err(|_| scan.shape())?;
            continue;
        }
        scan.skip(character);
        let escaped = if character == '\\' { Some(scan.peek().ok_or_else(|| scan.shape())?) } else { None };
        for part in [Some(character), escaped].into_iter().flatten() {
            if !part.is_ascii() || part.is_control() {
                return Err(scan.field("value", NEEDS, &part.to_string()));
            }
            squeezed.push(part);
        }
        if let Some(escaped) = escaped {
            scan.skip(escaped);
        }
    }
    Ok(squeezed)
}

impl fmt::Display for Generic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            // The blank behind the length is written without octets too: the server insists on it.
            Value::Octets(octets) => write!(f, "\\# {} {}", octets.len(), HEXLOWER.encode_display(octets)),
            Value::Words(words) => f.write_str(words),
        }
    }
}
