//! Reads the fields of a record's text one by one: words, numbers, names, quoted strings, hexadecimal.
//!
//! In: hostile text and the type it is for. Out: typed fields or a [`RdataError`] that names the field. Blanks between
//! fields are free; a quoted string may contain any byte, elsewhere control characters are refused.

use data_encoding::HEXLOWER_PERMISSIVE;

use super::error::RdataError;
use crate::excerpt::excerpt;
use crate::name::Fqdn;
use crate::rtype::RecordType;

/// Longest text looked at: 65535 octets, each written as `\ddd`, and some room for quotes.
const MAX_TEXT_LEN: usize = 65_535 * 4 + 4 * 1024;
/// Longest data of any record.
pub(super) const MAX_RDATA_LEN: usize = 65_535;

/// A cursor over one record's text.
pub(super) struct Scanner<'a> {
    rtype: RecordType,
    needs: &'static str,
    whole: &'a str,
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    /// Starts reading; `needs` is part of the message when fields are missing or left over.
    pub(super) fn new(rtype: RecordType, needs: &'static str, text: &'a str) -> Result<Self, RdataError> {
        if text.len() > MAX_TEXT_LEN {
            return Err(RdataError::TooLong { rtype, len: text.len(), max: MAX_TEXT_LEN });
        }
        Ok(Self { rtype, needs, whole: text, rest: text })
    }

    /// The error for a text of the wrong shape.
    pub(super) fn shape(&self) -> RdataError {
        RdataError::Shape { rtype: self.rtype, needs: self.needs, got: excerpt(self.whole) }
    }

    /// The error for one wrong field.
    pub(super) fn field(&self, field: &'static str, needs: &'static str, got: &str) -> RdataError {
        RdataError::Field { rtype: self.rtype, field, needs, got: excerpt(got) }
    }

    fn quoting(&self, why: &'static str) -> RdataError {
        RdataError::Quoting { rtype: self.rtype, why, got: excerpt(self.whole) }
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    /// The next character, not consumed.
    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Consumes that character, if it is the next one.
    pub(super) fn skip(&mut self, character: char) {
        self.rest = self.rest.strip_prefix(character).unwrap_or(self.rest);
    }

    /// Whether nothing but blanks is left.
    pub(super) fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest.is_empty()
    }

    /// The next word, up to a blank.
    pub(super) fn word(&mut self) -> Result<&'a str, RdataError> {
        self.optional_word().ok_or_else(|| self.shape())
    }

    /// The next word, if there is one.
    pub(super) fn optional_word(&mut self) -> Option<&'a str> {
        if self.at_end() {
            return None;
        }
        let end = self.rest.find([' ', '\t']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word)
    }

    /// The next word as a number written in digits only.
    pub(super) fn number<N: std::str::FromStr>(
        &mut self,
        field: &'static str,
        needs: &'static str,
    ) -> Result<N, RdataError> {
        let word = self.word()?;
        let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| word.parse().ok()).flatten().ok_or_else(|| self.field(field, needs, word))
    }

    /// The next word as a number of 0 to 255.
    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, RdataError> {
        self.number(field, "a number from 0 to 255")
    }

    /// The next word as a number of 0 to 65535.
    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, RdataError> {
        self.number(field, "a number from 0 to 65535")
    }

    /// The next word as a number of 0 to 4294967295.
    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, RdataError> {
        self.number(field, "a number from 0 to 4294967295")
    }

    /// The next word as an absolute name; a missing trailing dot is added, never a zone. A blank behind a backslash is
    /// part of the name.
    pub(super) fn name(&mut self, field: &'static str) -> Result<Fqdn, RdataError> {
        if self.at_end() {
            return Err(self.shape());
        }
        let mut escaped = false;
        let ends = |c: char| {
            let end = !escaped && matches!(c, ' ' | '\t');
            escaped = c == '\\' && !escaped;
            end
        };
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        Fqdn::parse_escaped(word).map_err(|source| RdataError::Name { rtype: self.rtype, field, source })
    }

    /// The next word as the name of a host, which is all the server takes here. The root, which means that there is no
    /// such host, passes.
    pub(super) fn host(&mut self, field: &'static str) -> Result<Fqdn, RdataError> {
        let word = self.word()?;
        let host = if word == "." { Ok(Fqdn::root()) } else { Fqdn::parse_hostname(word) };
        host.map_err(|source| RdataError::Name { rtype: self.rtype, field, source })
    }

    /// All that is left as one run of hexadecimal digits, blanks ignored; at least one octet.
    pub(super) fn hex_to_end(&mut self, field: &'static str) -> Result<Box<[u8]>, RdataError> {
        let digits: String = self.rest.chars().filter(|c| !matches!(c, ' ' | '\t')).collect();
        if digits.is_empty() {
            return Err(self.shape());
        }
        self.rest = "";
        let octets = HEXLOWER_PERMISSIVE
            .decode(digits.as_bytes())
            .map_err(|_| self.field(field, "an even number of hexadecimal digits", &digits))?;
        self.fits(octets.len())?;
        Ok(octets.into_boxed_slice())
    }

    /// Quoted strings up to the end, at least one.
    pub(super) fn strings(&mut self) -> Result<Vec<Vec<u8>>, RdataError> {
        let mut strings = vec![self.string(Bare::Refused)?];
        while !self.at_end() {
            strings.push(self.string(Bare::Refused)?);
        }
        Ok(strings)
    }

    /// The next quoted string, escapes resolved. A word without quotes is read as well where `bare` allows it.
    pub(super) fn string(&mut self, bare: Bare) -> Result<Vec<u8>, RdataError> {
        if self.at_end() {
            return Err(self.shape());
        }
        let quoted = self.rest.strip_prefix('"');
        if quoted.is_none() && matches!(bare, Bare::Refused) {
            return Err(RdataError::Unquoted { rtype: self.rtype, got: excerpt(self.whole) });
        }
        let bytes = quoted.unwrap_or(self.rest).as_bytes();
        let mut octets = Vec::new();
        let mut at = 0;
        loop {
            match bytes.get(at) {
                None if quoted.is_some() => return Err(self.quoting("a double quote is not closed")),
                None => break,
                Some(b'"') => {
                    if quoted.is_none() {
                        return Err(self.quoting("a double quote is inside a word; quote the whole value"));
                    }
                    at += 1;
                    break;
                }
                Some(b' ' | b'\t') if quoted.is_none() => break,
                Some(b'\\') => {
                    let (octet, length) = self.escape(bytes.get(at + 1..).unwrap_or_default())?;
                    octets.push(octet);
                    at += 1 + length;
                }
                Some(byte) if quoted.is_none() && byte.is_ascii_control() => {
                    return Err(self.quoting("a control character is outside double quotes"));
                }
                Some(byte) => {
                    octets.push(*byte);
                    at += 1;
                }
            }
        }
        // `at` is behind an ASCII byte or at the end, both of which are character boundaries.
        self.rest = quoted.unwrap_or(self.rest).get(at..).unwrap_or_default();
        Ok(octets)
    }

    /// The next `key` or `key=value`, if there is one; the value may be quoted.
    pub(super) fn parameter(&mut self) -> Result<Option<Parameter<'a>>, RdataError> {
        if self.at_end() {
            return Ok(None);
        }
        let end = self.rest.find([' ', '\t', '=']).unwrap_or(self.rest.len());
        let (key, rest) = self.rest.split_at(end);
        self.rest = rest;
        let Some(value) = rest.strip_prefix('=') else { return Ok(Some((key, None))) };
        self.rest = value;
        if value.is_empty() || value.starts_with([' ', '\t']) {
            return Ok(Some((key, Some(Vec::new()))));
        }
        let value = self.string(Bare::Allowed)?;
        if !self.rest.is_empty() && !self.rest.starts_with([' ', '\t']) {
            return Err(self.quoting("a blank is missing behind a closing double quote"));
        }
        Ok(Some((key, Some(value))))
    }

    /// The escape behind a backslash: the octet meant, and how many bytes spell it.
    fn escape(&self, after: &[u8]) -> Result<(u8, usize), RdataError> {
        match after {
            [first, ..] if first.is_ascii_digit() => after
                .get(..3)
                .and_then(|digits| std::str::from_utf8(digits).ok())
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .map(|octet| (octet, 3))
                .ok_or_else(|| {
                    self.quoting(
                        "a backslash before a digit needs three digits from \\000 to \\255; write \\\\ for one",
                    )
                }),
            [first, ..] => Ok((*first, 1)),
            [] => Err(self.quoting("a backslash is at the end; write \\\\ for a backslash")),
        }
    }

    /// Checks that so many octets fit into a record.
    pub(super) fn fits(&self, len: usize) -> Result<(), RdataError> {
        if len <= MAX_RDATA_LEN {
            return Ok(());
        }
        Err(RdataError::TooLong { rtype: self.rtype, len, max: MAX_RDATA_LEN })
    }

    /// Ends the reading; anything left over is an error.
    pub(super) fn end<T>(mut self, value: T) -> Result<T, RdataError> {
        if self.at_end() { Ok(value) } else { Err(self.shape()) }
    }
}

/// A key, and its value if one is given.
pub(super) type Parameter<'a> = (&'a str, Option<Vec<u8>>);

/// Whether a string may be written without quotes.
#[derive(Clone, Copy)]
pub(super) enum Bare {
    /// A word without quotes is read as a string.
    Allowed,
    /// A word without quotes is refused.
    Refused,
}
