//! Text as records carry it: octets, printed in double quotes.
//!
//! In: octets. Out: strings of at most 255 octets each, printable ASCII as it is, `"` and `\` behind a backslash,
//! everything else as `\ddd`. The printed form holds no control character and no byte above 126.

use std::fmt;

use super::error::RdataError;
use super::scan::MAX_RDATA_LEN;
use crate::rtype::RecordType;

/// Longest single string within a record.
pub(super) const MAX_STRING_LEN: usize = 255;

/// Octets of one or more strings, joined. Where the strings were split does not count as a difference.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Box<[u8]>);

impl Text {
    /// A text of these octets; refuses what does not fit into a record.
    pub fn new(octets: impl Into<Box<[u8]>>) -> Result<Self, RdataError> {
        let octets = octets.into();
        let len = octets.len() + octets.len().div_ceil(MAX_STRING_LEN).max(1);
        if len > MAX_RDATA_LEN {
            return Err(RdataError::TooLong { rtype: RecordType::Txt, len, max: MAX_RDATA_LEN });
        }
        Ok(Self(octets))
    }

    /// The octets, all strings joined.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The strings of at most 255 octets that are published; one empty string for an empty text.
    pub fn strings(&self) -> impl Iterator<Item = &[u8]> {
        let empty = self.0.is_empty().then_some([].as_slice());
        empty.into_iter().chain(self.0.chunks(MAX_STRING_LEN))
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
