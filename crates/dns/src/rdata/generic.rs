//! Values of types without a parser of their own.
//!
//! In: RFC 3597's `\# length hex`, or any text in the type's own spelling. Out: the former decoded, the latter with its
//! blanks outside quotes made single. Nothing else is assumed about it, so case counts.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use super::error::RdataError;
use super::scan::Scanner;
use crate::excerpt::excerpt;
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
    pub(super) fn scan(rtype: RecordType, mut scan: Scanner<'_>, text: &str) -> Result<Self, RdataError> {
        if scan.at_end() {
            return Err(scan.shape());
        }
        let numbered = rtype.as_str().strip_prefix("TYPE").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
        let words = squeeze(rtype, text)?;
        let value = match words.strip_prefix("\\#") {
            Some(rest) if rest.is_empty() || rest.starts_with(' ') => Value::Octets(octets(&scan, rest)?),
            _ if numbered => return Err(scan.shape()),
            _ => {
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
        return Err(scan.field("data", "as many octets as the length says", &digits));
    }
    scan.fits(length)?;
    Ok(octets.into_boxed_slice())
}

/// The text with single blanks outside quotes; refuses control characters and unclosed quotes.
fn squeeze(rtype: RecordType, text: &str) -> Result<String, RdataError> {
    let refuse = |why| Err(RdataError::Quoting { rtype, why, got: excerpt(text) });
    let mut squeezed = String::with_capacity(text.len());
    let (mut quoted, mut escaped, mut blank) = (false, false, false);
    for character in text.chars() {
        if !quoted && matches!(character, ' ' | '\t') && !escaped {
            blank = true;
            continue;
        }
        if character.is_control() {
            return refuse("a control character cannot be part of a value; write it as \\ddd");
        }
        if blank && !squeezed.is_empty() {
            squeezed.push(' ');
        }
        blank = false;
        squeezed.push(character);
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == '"' {
            quoted = !quoted;
        }
    }
    if quoted {
        return refuse("a double quote is not closed");
    }
    if escaped {
        return refuse("a backslash stands at the end; write \\\\ for a backslash");
    }
    Ok(squeezed)
}

impl fmt::Display for Generic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            // The blank behind the length stays when there are no octets: the server insists on it.
            Value::Octets(octets) => write!(f, "\\# {} {}", octets.len(), HEXLOWER.encode_display(octets)),
            Value::Words(words) => f.write_str(words),
        }
    }
}
