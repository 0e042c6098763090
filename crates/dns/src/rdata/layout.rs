//! The one spelling of digits in types without a parser of their own.
//!
//! In: a type and its text with single blanks. Out: numbers without leading zeros, hexadecimal data in lower case and one
//! run, base64 data in one run: the spelling that PowerDNS prints when its backend stores octets. A text that does not
//! have the expected fields is left alone, for the server to judge.

use data_encoding::BASE64;

use crate::rtype::RecordType;

/// One field of a type.
#[derive(Clone, Copy)]
enum Field {
    /// A decimal number.
    Number,
    /// A word whose case counts.
    Word,
    /// One word of hexadecimal digits, with or without separators, or `-` for none.
    Hex,
    /// One word of base32 digits, which are printed in upper case.
    Base32,
    /// Everything up to the end as hexadecimal digits.
    HexToEnd,
    /// Everything up to the end as base64.
    Base64ToEnd,
    /// Everything up to the end, unchanged.
    Rest,
}

/// The fields of a type whose digits have more than one spelling.
fn fields(mnemonic: &str) -> Option<&'static [Field]> {
    use Field::{Base32, Base64ToEnd, Hex, HexToEnd, Number, Rest, Word};
    Some(match mnemonic {
        "CDS" | "DLV" | "SMIMEA" | "TA" | "ZONEMD" => &[Number, Number, Number, HexToEnd],
        "CDNSKEY" | "CERT" | "DNSKEY" | "KEY" | "RKEY" => &[Number, Number, Number, Base64ToEnd],
        "DHCID" | "OPENPGPKEY" => &[Base64ToEnd],
        "EUI48" | "EUI64" => &[Hex],
        "IPSECKEY" => &[Number, Number, Number, Word, Base64ToEnd],
        "L64" | "NID" => &[Number, Hex],
        "NSEC3" => &[Number, Number, Number, Hex, Base32, Rest],
        "NSEC3PARAM" => &[Number, Number, Number, Hex],
        _ => return None,
    })
}

/// The text with its digits in their one spelling; `None` when the type has no layout or the text does not follow it.
pub(super) fn canonical(rtype: RecordType, text: &str) -> Option<String> {
    let mut words = text.split(' ');
    let mut parts = Vec::new();
    for field in fields(rtype.as_str())? {
        let part = match field {
            Field::Number => number(words.next()?)?,
            Field::Word => words.next()?.to_owned(),
            Field::Hex => hexadecimal(words.next()?, "-:")?,
            Field::Base32 => words.next()?.to_ascii_uppercase(),
            Field::HexToEnd => run(&mut words).and_then(|digits| hexadecimal(&digits, ""))?,
            Field::Base64ToEnd => base64(&run(&mut words)?)?,
            Field::Rest => {
                parts.extend(words.by_ref().map(str::to_owned));
                continue;
            }
        };
        parts.push(part);
    }
    words.next().is_none().then(|| parts.join(" "))
}

fn number(word: &str) -> Option<String> {
    let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| word.parse::<u32>().ok()).flatten().map(|number| number.to_string())
}

fn hexadecimal(word: &str, separators: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_hexdigit() || separators.contains(c);
    (!word.is_empty() && word.chars().all(allowed)).then(|| word.to_ascii_lowercase())
}

fn base64(word: &str) -> Option<String> {
    BASE64.decode(word.as_bytes()).ok().map(|octets| BASE64.encode(&octets))
}

/// The words that are left, joined; at least one.
fn run<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<String> {
    let joined: String = words.collect();
    (!joined.is_empty()).then_some(joined)
}
