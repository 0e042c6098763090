//! Text as records carry it: octets, printed in double quotes.
//!
//! In: octets. Out: strings of at most 255 octets each, printable ASCII as it is, `"` and `\` behind a backslash,
//! everything else as `\ddd`. The printed form holds no control character and no byte above 126.

use std::fmt;

/// Longest single string within a record.
pub(super) const MAX_STRING_LEN: usize = 255;

/// Octets of one or more strings, joined. Where the strings were split does not count as a difference.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(pub(super) Box<[u8]>);

impl Text {
    /// The octets, all strings joined.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The strings of at most 255 octets that are published; one empty string for an empty text.
    pub fn strings(&self) -> impl Iterator<Item = &[u8]> {
        let empty = self.0.is_empty().then_some([].as_slice());
        empty.into_iter().chain(self.0.chunks(MAX_STRING_LEN))
    }

    /// How many octets the text takes in a record.
    pub(super) fn wire_len(octets: usize) -> usize {
        octets + octets.div_ceil(MAX_STRING_LEN).max(1)
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
