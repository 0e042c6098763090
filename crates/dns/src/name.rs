//! Absolute domain names.
//!
//! In: text as people write it (any case, Unicode, with or without the trailing dot). Out: [`Fqdn`], lower case,
//! A-labels, lengths checked, built from letters, digits, `-`, `_`, `/` and a leftmost `*` only, so that no name can
//! carry a separator into a provider. A name within a record's data may have other octets too, as `\ddd`. One boxed
//! string per name: tens of thousands are in memory at once.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::excerpt::excerpt;
use crate::zone::ZoneName;

/// Longest name without its trailing dot (255 octets on the wire).
pub const MAX_NAME_LEN: usize = 253;
/// Longest label.
pub const MAX_LABEL_LEN: usize = 63;
/// Input longer than this is refused before IDNA mapping spends time on it.
const MAX_INPUT_LEN: usize = 4 * 1024;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("the name is empty; write a name such as \"www.example.com\"")]
    Empty,
    /// Two dots in a row, or a leading dot.
    #[error("name {name} has an empty label; remove the extra dot")]
    EmptyLabel {
        /// The refused text, quoted.
        name: String,
    },
    /// The whole name is longer than DNS allows.
    #[error("name {name} is {len} characters long; at most {MAX_NAME_LEN} are allowed")]
    TooLong {
        /// The refused text, quoted.
        name: String,
        /// Its length as A-labels.
        len: usize,
    },
    /// One label is longer than DNS allows.
    #[error("label {label} is {len} characters long; at most {MAX_LABEL_LEN} are allowed between two dots")]
    LabelTooLong {
        /// The refused label, quoted.
        label: String,
        /// Its length as an A-label.
        len: usize,
    },
    /// A character that has no place in a name.
    #[error(
        "name {name} contains {character:?}; allowed are letters, digits, '-', '_', '/' and a '*' as the first label"
    )]
    BadCharacter {
        /// The refused text, quoted.
        name: String,
        /// The first character refused.
        character: char,
    },
    /// A backslash that starts no escape.
    #[error("name {name} has a '\\' that starts no escape; write \\032 for a blank, \\. for a dot within a label")]
    BadEscape {
        /// The refused text, quoted.
        name: String,
    },
    /// A `*` that is not the whole first label.
    #[error("name {name} has a '*' that is not the whole first label; write \"*.example.com\"")]
    MisplacedWildcard {
        /// The refused text, quoted.
        name: String,
    },
    /// Unicode that UTS-46 does not map to a valid A-label.
    #[error("name {name} is not a valid internationalised name (UTS-46)")]
    Idna {
        /// The refused text, quoted.
        name: String,
    },
    /// A name that is not a host name: wildcard, underscore, slash, hyphen at an end, or an address.
    #[error("{name} is not a host name: {why}")]
    NotAHostname {
        /// The refused text, quoted.
        name: String,
        /// The error in it.
        why: &'static str,
    },
    /// An absolute name that is not below the zone it was given for.
    #[error("name {name} is not inside zone {zone}; drop the trailing dot to make it relative, or use another zone")]
    OutsideZone {
        /// The refused name, with its trailing dot.
        name: String,
        /// The zone, with its trailing dot.
        zone: String,
    },
}

/// An absolute name in canonical form: lower case, A-labels, no trailing dot kept (the root is `.`).
///
/// A clone shares the text. `Display` prints the trailing dot; [`Fqdn::undotted`] does not. Octets that only an escape can
/// write are stored as `\ddd`, the dot within a label too, so that `.` always separates labels. `Display` prints them as
/// PowerDNS does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fqdn(Arc<str>);

impl Fqdn {
    /// Parses any name that may own or be named by a record.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > MAX_INPUT_LEN {
            return Err(NameError::TooLong { name: excerpt(text), len: text.len() });
        }
        let ascii = to_ascii(text)?;
        if ascii.as_ref() == "." {
            return Ok(Self::root());
        }
        let bare = ascii.strip_suffix('.').unwrap_or(&ascii);
        check_labels(bare, text, is_plain)?;
        Ok(Self(Arc::from(bare)))
    }

    /// Parses a name within a record's data, such as `My\032Printer._ipp._tcp.example.org.`.
    ///
    /// A name with a backslash may have any octet but `"`, escaped as `\ddd` or `\c` where needed. Without one the alphabet is
    /// that of [`Fqdn::parse`], which catches typing errors.
    pub(crate) fn parse_escaped(text: &str) -> Result<Self, NameError> {
        if !text.contains('\\') {
            return Self::parse(text);
        }
        if text.len() > MAX_INPUT_LEN {
            return Err(NameError::TooLong { name: excerpt(text), len: text.len() });
        }
        let stored = store_escaped(text)?;
        let bare = stored.strip_suffix('.').unwrap_or(&stored);
        check_labels(bare, text, |octet| is_plain(octet) || octet == b'\\')?;
        let name = Self(Arc::from(bare));
        // Printed without a backslash, it would not be read again.
        if let Some(character) = name.octets().find(|octet| !is_plain(*octet)).map(char::from)
            && !name.to_string().contains('\\')
        {
            return Err(NameError::BadCharacter { name: excerpt(text), character });
        }
        Ok(name)
    }

    /// The octets of each label, from left to right, as they are sent; none for the root.
    pub fn label_octets(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        self.labels().map(|label| {
            if label.contains('\\') { Cow::Owned(unescape(label).collect()) } else { Cow::Borrowed(label.as_bytes()) }
        })
    }

    /// The octets of all labels, without what separates them.
    fn octets(&self) -> impl Iterator<Item = u8> {
        self.labels().flat_map(unescape)
    }

    /// Parses the name of a host: letters, digits and inner hyphens only; no wildcard, no underscore, not an address.
    pub fn parse_hostname(text: &str) -> Result<Self, NameError> {
        let name = Self::parse(text)?;
        let refuse = |why| Err(NameError::NotAHostname { name: excerpt(text), why });
        if name.is_root() {
            return refuse("it is the root");
        }
        if name.is_wildcard() {
            return refuse("a wildcard names no single host");
        }
        if name.0.contains('_') {
            return refuse("'_' is not allowed in a host name");
        }
        if name.0.contains('/') {
            return refuse("'/' is not allowed in a host name");
        }
        if name.labels().any(|label| label.starts_with('-') || label.ends_with('-')) {
            return refuse("a label begins or ends with '-'");
        }
        if Ipv4Addr::from_str(&name.0).is_ok() {
            return refuse("it is an IPv4 address");
        }
        Ok(name)
    }

    /// The root, printed as `.`.
    pub fn root() -> Self {
        Self(Arc::from("."))
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.as_ref() == "."
    }

    /// The labels from left to right; none for the root.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        let bare = if self.is_root() { "" } else { self.undotted() };
        bare.split('.').filter(|label| !label.is_empty())
    }

    /// How many labels the name has; 0 for the root.
    pub fn depth(&self) -> usize {
        self.labels().count()
    }

    /// Whether the first label is `*`.
    pub fn is_wildcard(&self) -> bool {
        self.0.as_ref() == "*" || self.0.starts_with("*.")
    }

    /// Whether the name is the zone's apex or below it, compared label by label.
    pub fn is_within(&self, zone: &ZoneName) -> bool {
        self.is_at_or_below(zone.name())
    }

    /// Whether the name equals `other` or lies below it, compared label by label.
    pub fn is_at_or_below(&self, other: &Fqdn) -> bool {
        other.is_root()
            || self == other
            || self.0.strip_suffix(other.undotted()).is_some_and(|left| left.ends_with('.') && left.len() > 1)
    }

    /// The name without its first label; `None` for the root.
    pub fn parent(&self) -> Option<Fqdn> {
        if self.is_root() {
            return None;
        }
        Some(self.0.split_once('.').map_or_else(Self::root, |(_, rest)| Self(Arc::from(rest))))
    }

    /// The name itself, its parent, and so on down to the root, without trailing dots and without allocating.
    ///
    /// `Fqdn` and [`ZoneName`] can be borrowed as `str` in exactly this form, so each item can be looked up in a map.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        let mut next = Some(self.undotted());
        std::iter::from_fn(move || {
            let item = next?;
            next = match item.split_once('.') {
                _ if item == "." => None,
                Some((_, rest)) => Some(rest),
                None => Some("."),
            };
            Some(item)
        })
    }

    /// The name with `labels` (one or more, dot-separated) put in front.
    pub fn prepend(&self, labels: &str) -> Result<Fqdn, NameError> {
        if labels.ends_with('.') {
            return Err(NameError::EmptyLabel { name: excerpt(labels) });
        }
        if self.is_root() { Self::parse(labels) } else { Self::parse(&format!("{labels}.{}", self.undotted())) }
    }

    /// The name without trailing dot; the root is `.`.
    pub fn undotted(&self) -> &str {
        &self.0
    }

    /// The name for display: A-labels decoded to Unicode where they are valid, no trailing dot.
    pub fn unicode(&self) -> String {
        if !self.0.contains("xn--") {
            return self.0.to_string();
        }
        let (unicode, outcome) = idna::domain_to_unicode(&self.0);
        if outcome.is_ok() { unicode } else { self.0.to_string() }
    }

    /// Splits the name at its public suffix; `None` when it is itself a public suffix or the root.
    pub fn public_suffix_split(&self) -> Option<Suffixed> {
        if self.is_root() {
            return None;
        }
        let domain = psl::domain(self.0.as_bytes())?;
        let text = |bytes| std::str::from_utf8(bytes).ok().map(|text| Self(Arc::from(text)));
        Some(Suffixed {
            suffix: text(domain.suffix().as_bytes())?,
            registrable: text(domain.as_bytes())?,
            listed: domain.suffix().is_known(),
        })
    }
}

/// A name split at its public suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suffixed {
    /// The public suffix, such as `co.uk`.
    pub suffix: Fqdn,
    /// The suffix and one more label: what one party registers, such as `example.co.uk`.
    pub registrable: Fqdn,
    /// Whether the suffix is on the public suffix list (`internal` or `lan` are not).
    pub listed: bool,
}

/// Lower-case ASCII form; Unicode is mapped by UTS-46, plain ASCII is only folded.
fn to_ascii(text: &str) -> Result<Cow<'_, str>, NameError> {
    if !text.is_ascii() {
        return idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::EMPTY)
            .map_err(|_| NameError::Idna { name: excerpt(text) });
    }
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Ok(Cow::Owned(text.to_ascii_lowercase()));
    }
    Ok(Cow::Borrowed(text))
}

/// Whether an octet is written without an escape in any name.
fn is_plain(octet: u8) -> bool {
    octet.is_ascii_lowercase() || octet.is_ascii_digit() || matches!(octet, b'-' | b'_' | b'/' | b'*')
}

/// The stored form of a name with escapes: lower case, every octet that is not plain as `\ddd`.
fn store_escaped(text: &str) -> Result<String, NameError> {
    let mut stored = String::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let octet = match (first, tail) {
            (b'.', _) => {
                stored.push('.');
                continue;
            }
            (b'\\', [a, b, c, after @ ..]) if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => {
                rest = after;
                let number = [a, b, c].iter().fold(0_u16, |sum, digit| sum * 10 + u16::from(**digit - b'0'));
                u8::try_from(number).map_err(|_| NameError::BadEscape { name: excerpt(text) })?
            }
            (b'\\', [escaped @ b' '..=b'~', after @ ..]) if !escaped.is_ascii_digit() => {
                rest = after;
                *escaped
            }
            (b'\\', _) => return Err(NameError::BadEscape { name: excerpt(text) }),
            (b'!'..=b'~', _) => *first,
            _ => {
                let character = text.chars().find(|c| !c.is_ascii_graphic()).unwrap_or(char::from(*first));
                return Err(NameError::BadCharacter { name: excerpt(text), character });
            }
        };
        let octet = octet.to_ascii_lowercase();
        if octet == b'"' {
            return Err(NameError::BadCharacter { name: excerpt(text), character: '"' });
        }
        if is_plain(octet) {
            stored.push(char::from(octet));
        } else {
            stored.push('\\');
            stored.extend([octet / 100, octet / 10 % 10, octet % 10].map(|digit| char::from(b'0' + digit)));
        }
    }
    Ok(stored)
}

/// The octets of a stored label.
fn unescape(label: &str) -> impl Iterator<Item = u8> {
    let mut rest = label.as_bytes();
    std::iter::from_fn(move || match rest {
        [b'\\', a, b, c, tail @ ..] => {
            rest = tail;
            let digits = [a, b, c].map(|digit| digit.wrapping_sub(b'0'));
            Some(digits.iter().fold(0_u8, |sum, digit| sum.wrapping_mul(10).wrapping_add(*digit)))
        }
        [first, tail @ ..] => {
            rest = tail;
            Some(*first)
        }
        [] => None,
    })
}

/// How many octets a stored text encodes.
fn octet_len(stored: &str) -> usize {
    stored.len() - 3 * stored.bytes().filter(|b| *b == b'\\').count()
}

/// Checks characters, labels and lengths of a lower-case name without trailing dot; `shown` is what the user wrote.
fn check_labels(bare: &str, shown: &str, allowed: fn(u8) -> bool) -> Result<(), NameError> {
    let allowed = |octet: u8| octet == b'.' || allowed(octet);
    if let Some(character) = bare.chars().find(|c| !u8::try_from(*c).is_ok_and(allowed)) {
        return Err(NameError::BadCharacter { name: excerpt(shown), character });
    }
    for (position, label) in bare.split('.').enumerate() {
        if label.is_empty() {
            return Err(NameError::EmptyLabel { name: excerpt(shown) });
        }
        let len = octet_len(label);
        if len > MAX_LABEL_LEN {
            return Err(NameError::LabelTooLong { label: excerpt(label), len });
        }
        if label.contains('*') && (position > 0 || label != "*") {
            return Err(NameError::MisplacedWildcard { name: excerpt(shown) });
        }
    }
    let len = octet_len(bare);
    if len > MAX_NAME_LEN {
        return Err(NameError::TooLong { name: excerpt(shown), len });
    }
    Ok(())
}

impl fmt::Display for Fqdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains('\\') {
            for label in self.labels() {
                for octet in unescape(label) {
                    match octet {
                        b'.' | b'\\' => write!(f, "\\{}", char::from(octet))?,
                        b'!'..=b'~' => fmt::Write::write_char(f, char::from(octet))?,
                        _ => write!(f, "\\{octet:03}")?,
                    }
                }
                f.write_str(".")?;
            }
            return Ok(());
        }
        f.write_str(&self.0)?;
        if self.is_root() { Ok(()) } else { f.write_str(".") }
    }
}

impl fmt::Debug for Fqdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fqdn({self})")
    }
}

impl FromStr for Fqdn {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Borrow<str> for Fqdn {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for Fqdn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fqdn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Fqdn {
        Fqdn::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    #[test]
    fn case_and_the_trailing_dot_make_no_difference() {
        assert_eq!(name("WWW.Example.COM."), name("www.example.com"));
        assert_eq!(name("www.example.com").to_string(), "www.example.com.");
        assert_eq!(name("www.example.com.").undotted(), "www.example.com");
    }

    #[test]
    fn unicode_and_its_a_label_are_one_name() {
        assert_eq!(name("www.Bücher.example").undotted(), "www.xn--bcher-kva.example");
        assert_eq!(name("bu\u{308}cher.example"), name("XN--Bcher-KVA.example"));
        assert_eq!(name("www\u{3002}example\u{ff0e}com"), name("www.example.com"));
        assert_eq!(name("straße.example").undotted(), "xn--strae-oqa.example");
        assert_eq!(name("_dmarc.bücher.example").undotted(), "_dmarc.xn--bcher-kva.example");
        assert_eq!(name("*.bücher.example").undotted(), "*.xn--bcher-kva.example");
    }

    #[test]
    fn a_name_is_shown_in_unicode_only_where_its_a_labels_are_valid() {
        assert_eq!(name("xn--bcher-kva.example").unicode(), "bücher.example");
        assert_eq!(name("xn--a.example").unicode(), "xn--a.example");
        assert_eq!(name("_x.example").unicode(), "_x.example");
    }

    #[test]
    fn unicode_cannot_smuggle_in_a_separator() {
        for sneaky in ["a\u{ff0c}b.example", "a\u{ff03}b.ex", "ü b.example", "ü\u{ff1b}.ex", "ü\n.ex", "\u{3002}ü"]
        {
            assert!(Fqdn::parse(sneaky).is_err(), "{sneaky:?}");
        }
    }

    #[test]
    fn separators_quotes_and_control_characters_are_refused() {
        for bad in
            ["a b", "a,b", "a#b", "a;b", "a\"b", "a'b", "a\\b", "a\nb", "a\0b", "a\tb", "a@b", "a:b", "a(b", "a%b"]
        {
            let error = Fqdn::parse(&format!("{bad}.example")).unwrap_err();
            assert!(matches!(error, NameError::BadCharacter { .. }), "{bad:?}: {error}");
        }
    }

    #[test]
    fn empty_labels_are_refused() {
        assert_eq!(Fqdn::parse(""), Err(NameError::Empty));
        for bad in ["..", ".a", "a..b", "a.."] {
            assert!(matches!(Fqdn::parse(bad), Err(NameError::EmptyLabel { .. })), "{bad:?}");
        }
    }

    #[test]
    fn labels_and_names_have_the_lengths_of_rfc_1035() {
        let label = "a".repeat(63);
        assert!(Fqdn::parse(&label).is_ok());
        assert!(matches!(Fqdn::parse(&format!("{label}a")), Err(NameError::LabelTooLong { len: 64, .. })));
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(name(&longest).undotted().len(), 253);
        assert_eq!(name(&format!("{longest}.")).undotted().len(), 253);
        assert!(matches!(Fqdn::parse(&format!("{longest}a")), Err(NameError::TooLong { len: 254, .. })));
        assert!(matches!(Fqdn::parse(&"ü.".repeat(100_000)), Err(NameError::TooLong { .. })));
    }

    #[test]
    fn a_wildcard_is_the_whole_first_label_or_nothing() {
        assert!(name("*.example.com").is_wildcard());
        assert!(name("*").is_wildcard());
        assert!(!name("example.com").is_wildcard());
        for bad in ["a*.example", "www.*.example", "**.example", "*a.example"] {
            assert!(matches!(Fqdn::parse(bad), Err(NameError::MisplacedWildcard { .. })), "{bad:?}");
        }
    }

    #[test]
    fn reverse_zones_of_rfc_2317_and_service_labels_are_names() {
        assert_eq!(name("1.0/25.2.0.192.in-addr.arpa").depth(), 7);
        assert_eq!(name("_https._tcp.example.com").labels().next(), Some("_https"));
    }

    #[test]
    fn a_host_name_is_letters_digits_and_inner_hyphens() {
        for good in ["www.example.com", "a-b.example.", "1.example", "bücher.example", "localhost", "a--b"] {
            assert!(Fqdn::parse_hostname(good).is_ok(), "{good:?}");
        }
        for bad in ["_x.example", "*.example", "a/b.example", "-a.example", "a-.example", ".", "192.0.2.1", "a b"] {
            assert!(Fqdn::parse_hostname(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_root_is_a_name_without_labels() {
        let root = name(".");
        assert_eq!((root.to_string().as_str(), root.undotted(), root.depth()), (".", ".", 0));
        assert_eq!(root.parent(), None);
        assert_eq!(root, Fqdn::root());
        assert_eq!(name("com").parent(), Some(root));
    }

    #[test]
    fn ancestors_run_from_the_name_to_the_root() {
        assert_eq!(name("a.b.c").ancestors().collect::<Vec<_>>(), ["a.b.c", "b.c", "c", "."]);
        assert_eq!(name(".").ancestors().collect::<Vec<_>>(), ["."]);
        assert_eq!(name("a.b.c").labels().rev().collect::<Vec<_>>(), ["c", "b", "a"]);
    }

    #[test]
    fn containment_compares_labels_not_text() {
        let zone = ZoneName::parse("example.com").unwrap();
        assert!(name("example.com").is_within(&zone));
        assert!(name("a.b.example.com").is_within(&zone));
        assert!(!name("notexample.com").is_within(&zone));
        assert!(!name("com").is_within(&zone));
        assert!(name("anything").is_within(&ZoneName::parse(".").unwrap()));
    }

    #[test]
    fn the_public_suffix_splits_what_is_registered() {
        let split = name("www.shop.example.co.uk").public_suffix_split().unwrap();
        assert_eq!(split, Suffixed { suffix: name("co.uk"), registrable: name("example.co.uk"), listed: true });
        assert_eq!(name("*.example.com").public_suffix_split().unwrap().registrable, name("example.com"));
        assert_eq!(name("co.uk").public_suffix_split(), None);
        assert_eq!(name(".").public_suffix_split(), None);
        assert!(!name("db.prod.internal").public_suffix_split().unwrap().listed);
    }

    #[test]
    fn an_internationalised_public_suffix_is_found_by_its_a_label() {
        let split = name("www.例子.公司.cn").public_suffix_split().unwrap();
        assert_eq!(split.suffix, name("公司.cn"));
        assert_eq!(split.registrable, name("例子.公司.cn"));
    }

    #[test]
    fn a_name_is_text_in_json() {
        assert_eq!(serde_json::to_string(&name("www.example.com")).unwrap(), "\"www.example.com.\"");
        assert_eq!(serde_json::from_str::<Fqdn>("\"WWW.example.com\"").unwrap(), name("www.example.com"));
        assert!(serde_json::from_str::<Fqdn>("\"a b\"").is_err());
    }

    #[test]
    fn a_name_costs_one_pointer_and_a_length() {
        assert_eq!(size_of::<Fqdn>(), 2 * size_of::<usize>());
    }

    #[test]
    fn messages_say_what_to_do_and_never_repeat_a_raw_control_character() {
        let message = Fqdn::parse("a\nb.example").unwrap_err().to_string();
        assert!(message.contains("contains '\\n'") && !message.contains('\n'), "{message}");
    }
}
