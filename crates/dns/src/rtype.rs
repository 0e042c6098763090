//! Record types.
//!
//! In: a mnemonic in any case, or RFC 3597's `TYPEn`. Out: [`RecordType`]; types without a parser of their own are kept
//! by name as [`RecordType::Other`]. Query and transport types (`ANY`, `AXFR`, `OPT`, …) are refused: no record has them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::excerpt::excerpt;

/// Why a text is not a record type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordTypeError {
    /// Not a mnemonic at all.
    #[error("{0} is not a record type; write one such as A, AAAA, CNAME, MX, TXT or TYPE65280")]
    Malformed(String),
    /// A type that exists in queries or transport only.
    #[error("{0} is not the type of a record; it exists in queries only")]
    QueryOnly(String),
}

/// The mnemonic of a type this crate has no parser for: upper case letters, digits and `-`, at most 15 of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mnemonic([u8; Mnemonic::MAX]);

impl Mnemonic {
    /// Longest mnemonic kept; the longest one assigned has ten characters.
    const MAX: usize = 15;

    fn new(upper: &str) -> Option<Self> {
        let valid = upper.starts_with(|c: char| c.is_ascii_uppercase())
            && upper.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'-');
        if !valid {
            return None;
        }
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..upper.len())?.copy_from_slice(upper.as_bytes());
        Some(Self(bytes))
    }

    /// The mnemonic as text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(Self::MAX);
        self.0.get(..end).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl fmt::Debug for Mnemonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! record_types {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $code:literal;)*) => {
        /// The type of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RecordType {
            $($(#[$doc])* $variant,)*
            /// Any other type, by its mnemonic.
            Other(Mnemonic),
        }

        impl RecordType {
            /// Every type with a parser of its own.
            pub const KNOWN: &'static [RecordType] = &[$(RecordType::$variant,)*];

            /// The mnemonic, upper case.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(mnemonic) => mnemonic.as_str(),
                }
            }

            fn known(upper: &str) -> Option<Self> {
                match upper {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }

            fn from_code(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

record_types! {
    /// An IPv4 address.
    A = "A", 1;
    /// An IPv6 address.
    Aaaa = "AAAA", 28;
    /// Another name of the same node.
    Cname = "CNAME", 5;
    /// Another name of the tree below.
    Dname = "DNAME", 39;
    /// A mail exchange.
    Mx = "MX", 15;
    /// Text.
    Txt = "TXT", 16;
    /// A service's host and port.
    Srv = "SRV", 33;
    /// A name server.
    Ns = "NS", 2;
    /// A pointer to a name.
    Ptr = "PTR", 12;
    /// The start of authority.
    Soa = "SOA", 6;
    /// The authorities that may issue certificates.
    Caa = "CAA", 257;
    /// A certificate association.
    Tlsa = "TLSA", 52;
    /// An SSH key fingerprint.
    Sshfp = "SSHFP", 44;
    /// A naming authority pointer.
    Naptr = "NAPTR", 35;
    /// A service binding for HTTPS.
    Https = "HTTPS", 65;
    /// A service binding.
    Svcb = "SVCB", 64;
    /// PowerDNS' name for a flattened CNAME; private type code.
    Alias = "ALIAS", 65401;
    /// A location on earth.
    Loc = "LOC", 29;
    /// A delegation signer.
    Ds = "DS", 43;
}

impl RecordType {
    /// Whether a set of this type has one record only.
    pub fn singleton(&self) -> bool {
        matches!(self, Self::Cname | Self::Dname | Self::Soa)
    }
}

impl FromStr for RecordType {
    type Err = RecordTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || RecordTypeError::Malformed(excerpt(text));
        if text.len() > Mnemonic::MAX || !text.is_ascii() {
            return Err(malformed());
        }
        let upper = text.to_ascii_uppercase();
        if matches!(upper.as_str(), "ANY" | "AXFR" | "IXFR" | "OPT" | "TSIG" | "TKEY" | "MAILA" | "MAILB") {
            return Err(RecordTypeError::QueryOnly(upper));
        }
        if let Some(known) = Self::known(&upper) {
            return Ok(known);
        }
        if let Some(digits) = upper.strip_prefix("TYPE")
            && digits.bytes().all(|b| b.is_ascii_digit())
        {
            let code: u16 = digits.parse().map_err(|_| malformed())?;
            return match Self::from_code(code) {
                Some(known) => Ok(known),
                // 41 is OPT, 128 to 255 are query and meta types, 0 is reserved.
                None if matches!(code, 0 | 41 | 128..=255) => Err(RecordTypeError::QueryOnly(upper)),
                None => Mnemonic::new(&format!("TYPE{code}")).map(Self::Other).ok_or_else(malformed),
            };
        }
        Mnemonic::new(&upper).map(Self::Other).ok_or_else(malformed)
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for RecordType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RecordType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_type_reads_back_from_its_own_text_in_any_case() {
        for known in RecordType::KNOWN {
            assert_eq!(known.to_string().parse::<RecordType>(), Ok(*known));
            assert_eq!(known.to_string().to_lowercase().parse::<RecordType>(), Ok(*known));
        }
    }

    #[test]
    fn a_numbered_type_is_the_named_one_where_there_is_one() {
        assert_eq!("TYPE1".parse(), Ok(RecordType::A));
        assert_eq!("type257".parse(), Ok(RecordType::Caa));
        assert_eq!("TYPE065280".parse::<RecordType>().unwrap().to_string(), "TYPE65280");
    }

    #[test]
    fn an_unknown_type_is_kept_by_name() {
        let lua: RecordType = "lua".parse().unwrap();
        assert_eq!(lua.to_string(), "LUA");
        assert!(matches!(lua, RecordType::Other(_)));
    }

    #[test]
    fn a_text_that_is_not_a_record_type_is_refused() {
        for bad in ["", " A", "A B", "1A", "TYPE", "TYPE65536", "TYPE99999999999", "Ä", "ABCDEFGHIJKLMNOP"] {
            assert!(matches!(bad.parse::<RecordType>(), Err(RecordTypeError::Malformed(_))), "{bad:?}");
        }
        for meta in ["any", "AXFR", "OPT", "TSIG", "TYPE255", "TYPE0", "TYPE41"] {
            assert!(matches!(meta.parse::<RecordType>(), Err(RecordTypeError::QueryOnly(_))), "{meta:?}");
        }
    }

    #[test]
    fn only_types_that_exclude_a_second_value_are_singletons() {
        let singletons: Vec<_> = RecordType::KNOWN.iter().filter(|t| t.singleton()).map(ToString::to_string).collect();
        assert_eq!(singletons, ["CNAME", "DNAME", "SOA"]);
    }
}
