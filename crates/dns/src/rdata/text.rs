//! Text as records carry it: strings of octets, printed in double quotes.
//!
//! In: strings of octets. Out: the same strings, each over 255 octets split into pieces that fit; printable ASCII is
//! printed unchanged, `"` and `\` behind a backslash, everything else as `\ddd`. The printed form has no control
//! character and no byte above 126.

use std::fmt;

use super::error::RdataError;
use super::scan::MAX_RDATA_LEN;
use crate::rtype::RecordType;

/// Longest single string within a record.
pub(super) const MAX_STRING_LEN: usize = 255;

/// One or more strings of at most 255 octets, as on the wire: each behind its length.
///
/// The boundaries between strings are part of the value: DNS-SD (RFC 6763) has one key in each string.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Box<[u8]>);

impl Text {
    /// A text of one string, split where it has more than 255 octets.
    pub fn new(octets: impl AsRef<[u8]>) -> Result<Self, RdataError> {
        Self::of_strings([octets])
    }

    /// A text of these strings, each split where it has more than 255 octets. Returns an error when the text does not
    /// fit into a record. No string at all is one empty string.
    pub fn of_strings(strings: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Self, RdataError> {
        let mut wire = Vec::new();
        for string in strings {
            let string = string.as_ref();
            let empty = string.is_empty().then_some([].as_slice());
            for piece in empty.into_iter().chain(string.chunks(MAX_STRING_LEN)) {
                wire.push(u8::try_from(piece.len()).unwrap_or(u8::MAX));
                wire.extend_from_slice(piece);
            }
        }
        if wire.is_empty() {
            wire.push(0);
        }
        if wire.len() > MAX_RDATA_LEN {
            return Err(RdataError::TooLong { rtype: RecordType::Txt, len: wire.len(), max: MAX_RDATA_LEN });
        }
        Ok(Self(wire.into_boxed_slice()))
    }

    /// The octets of all strings, joined, as SPF and DKIM read them.
    pub fn joined(&self) -> Vec<u8> {
        self.strings().flatten().copied().collect()
    }

    /// The strings that are published, each of at most 255 octets; at least one.
    pub fn strings(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let (length, tail) = rest.split_first()?;
            let (string, tail) = tail.split_at_checked(usize::from(*length))?;
            rest = tail;
            Some(string)
        })
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, string) in self.strings().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            write_quoted(f, string)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints octets in double quotes.
pub(super) fn write_quoted(f: &mut impl fmt::Write, octets: &[u8]) -> fmt::Result {
    f.write_char('"')?;
    for octet in octets {
        match octet {
            b'"' => f.write_str("\\\"")?,
            b'\\' => f.write_str("\\\\")?,
            b' '..=b'~' => f.write_char(char::from(*octet))?,
            _ => write!(f, "\\{octet:03}")?,
        }
    }
    f.write_char('"')
}
