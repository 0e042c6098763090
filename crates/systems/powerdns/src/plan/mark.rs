//! A line of the ledger in sixteen characters, for lists that would be too long with their names.
//!
//! In: a record set and the digest of its content. Out: a [`Mark`], and many of them as few strings. A mark proves what a line
//! proves: the record set whose mark it is was written by this operator. Which record set that is, is found by making the marks of those
//! that the server has. So a mark has 96 bits: with fewer, a user could look for a name whose mark is that of a foreign record set.

use sha2::{Digest as _, Sha256};
use signpost_dns::RecordKey;

use crate::index::digest::Digest;

/// Characters of a mark, six bits each.
const CHARS: usize = 16;

/// Marks in one string of a list.
const PER_LINE: usize = 64;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The short form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u128);

impl Mark {
    /// The mark of that content of that set.
    pub(crate) fn of(key: &RecordKey, digest: Digest) -> Self {
        let bytes: [u8; 32] = Sha256::digest(format!("{} {} {digest}", key.name, key.rtype)).into();
        Self(bytes.iter().take(12).fold(0, |number, byte| number << 8 | u128::from(*byte)))
    }

    fn print(self, text: &mut String) {
        let sextet = |place: usize| usize::try_from(self.0 >> (6 * (CHARS - 1 - place)) & 63).unwrap_or_default();
        text.extend((0..CHARS).map(|place| char::from(ALPHABET[sextet(place)])));
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let sextet = |byte: &u8| (0_u128..).zip(ALPHABET).find(|(_, letter)| *letter == byte).map(|(number, _)| number);
        let number = text.iter().try_fold(0, |number, byte| Some(number << 6 | sextet(byte)?));
        number.filter(|_| text.len() == CHARS).map(Self)
    }
}

/// Marks as the strings of a list, in order.
pub(crate) fn pack(mut marks: Vec<Mark>) -> Vec<String> {
    marks.sort_unstable();
    marks.dedup();
    let line = |marks: &[Mark]| {
        let mut text = String::with_capacity(CHARS * PER_LINE);
        for mark in marks {
            mark.print(&mut text);
        }
        text
    };
    marks.chunks(PER_LINE).map(line).collect()
}

/// The marks of a string of a list. Other strings have none.
pub(crate) fn unpack(line: &str) -> impl Iterator<Item = Mark> {
    let packed = line.bytes().all(|byte| ALPHABET.contains(&byte));
    line.as_bytes().chunks(CHARS).filter(move |_| packed).filter_map(Mark::parse)
}

/// How many bytes so many marks take in a list, quotes and commas included.
pub(crate) fn packed_bytes(marks: usize) -> usize {
    marks * CHARS + marks.div_ceil(PER_LINE) * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::{Fqdn, RecordType};
    use std::collections::BTreeSet;

    fn mark(name: &str, rtype: RecordType, digest: &str) -> Mark {
        Mark::of(&RecordKey::new(Fqdn::parse(name).unwrap(), rtype), Digest::parse(digest).unwrap())
    }

    #[test]
    fn packed_marks_read_back_and_take_the_bytes_that_are_counted() {
        for count in [0, 1, 63, 64, 65, 1_000] {
            let name = |number: usize| format!("n{number}.example.com");
            let marks: BTreeSet<Mark> =
                (0..count).map(|number| mark(&name(number), RecordType::A, "0123456789abcdef")).collect();
            assert_eq!(marks.len(), count);
            let lines = pack(marks.iter().copied().collect());
            assert_eq!(lines.iter().flat_map(|line| unpack(line)).collect::<BTreeSet<_>>(), marks);
            let bytes: usize = lines.iter().map(|line| line.len() + 3).sum();
            assert_eq!(packed_bytes(count), bytes);
        }
    }

    #[test]
    fn a_mark_tells_name_type_and_content_apart_and_never_changes() {
        let digest = "0123456789abcdef";
        let one = mark("www.example.com", RecordType::A, digest);
        assert_eq!(one, mark("WWW.example.com.", RecordType::A, digest));
        assert_ne!(one, mark("w.example.com", RecordType::A, digest));
        assert_ne!(one, mark("www.example.com", RecordType::Aaaa, digest));
        assert_ne!(one, mark("www.example.com", RecordType::A, "0123456789abcdee"));
        // It is stored: another release must read it.
        assert_eq!(pack(vec![one, one]), ["2zN598CyxNRnTynD"]);
    }

    #[test]
    fn nonsense_has_no_marks() {
        let line = format!("{} A 0123456789abcdef", "a".repeat(63));
        for line in ["", &line, "AAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAA=", "ÄAAAAAAAAAAAAAA"] {
            assert_eq!(unpack(line).count(), 0, "{line}");
        }
        assert_eq!(unpack("AAAAAAAAAAAAAAAAAAAA").count(), 1, "what is cut off is not a mark");
    }
}
