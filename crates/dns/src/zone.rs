//! Zone names, and how a record's name is read inside one.
//!
//! In: a zone's name; then names as written in a record (`@`, relative, or absolute with a trailing dot).
//! Out: [`ZoneName`], and absolute names that are certain to lie inside it.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::excerpt::excerpt;
use crate::name::{Fqdn, NameError};

/// The name of a zone: an absolute name that is not a wildcard.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ZoneName(Fqdn);

impl ZoneName {
    /// Parses a zone name, with or without its trailing dot.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        Self::try_from(Fqdn::parse(text)?)
    }

    /// The zone's apex.
    pub fn name(&self) -> &Fqdn {
        &self.0
    }

    /// The zone's name without trailing dot; the root is `.`.
    pub fn undotted(&self) -> &str {
        self.0.undotted()
    }

    /// Whether the name is the apex or below it.
    pub fn contains(&self, name: &Fqdn) -> bool {
        name.is_within(self)
    }

    /// Reads a record's name: `@` is the apex, a trailing dot makes it absolute, anything else is relative.
    pub fn resolve(&self, text: &str) -> Result<Fqdn, NameError> {
        if text == "@" {
            return Ok(self.0.clone());
        }
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if !text.ends_with('.') {
            return self.0.prepend(text);
        }
        let name = Fqdn::parse(text)?;
        if name.is_within(self) {
            Ok(name)
        } else {
            Err(NameError::OutsideZone { name: name.to_string(), zone: self.to_string() })
        }
    }

    /// The part of the name left of the zone: `@` for the apex, `None` for a name outside.
    pub fn relative<'a>(&self, name: &'a Fqdn) -> Option<&'a str> {
        if name == &self.0 {
            return Some("@");
        }
        if self.0.is_root() {
            return Some(name.undotted());
        }
        name.undotted().strip_suffix(self.undotted())?.strip_suffix('.').filter(|left| !left.is_empty())
    }
}

impl TryFrom<Fqdn> for ZoneName {
    type Error = NameError;

    fn try_from(name: Fqdn) -> Result<Self, Self::Error> {
        if name.is_wildcard() {
            return Err(NameError::MisplacedWildcard { name: excerpt(name.undotted()) });
        }
        Ok(Self(name))
    }
}

impl From<ZoneName> for Fqdn {
    fn from(zone: ZoneName) -> Self {
        zone.0
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZoneName({})", self.0)
    }
}

impl FromStr for ZoneName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Borrow<str> for ZoneName {
    fn borrow(&self) -> &str {
        self.undotted()
    }
}

impl<'de> Deserialize<'de> for ZoneName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn zone(text: &str) -> ZoneName {
        ZoneName::parse(text).unwrap()
    }

    #[test]
    fn a_record_name_is_relative_unless_it_ends_in_a_dot() {
        let zone = zone("Example.com");
        let resolved = |text: &str| zone.resolve(text).map(|name| name.to_string());
        assert_eq!(resolved("@").unwrap(), "example.com.");
        assert_eq!(resolved("www").unwrap(), "www.example.com.");
        assert_eq!(resolved("WWW.a").unwrap(), "www.a.example.com.");
        assert_eq!(resolved("*").unwrap(), "*.example.com.");
        assert_eq!(resolved("bücher").unwrap(), "xn--bcher-kva.example.com.");
        assert_eq!(resolved("www.example.com").unwrap(), "www.example.com.example.com.");
        assert_eq!(resolved("www.example.com.").unwrap(), "www.example.com.");
        assert_eq!(resolved("example.com.").unwrap(), "example.com.");
    }

    #[test]
    fn an_absolute_name_outside_the_zone_is_refused_with_both_names() {
        let error = zone("example.com").resolve("www.example.org.").unwrap_err();
        assert_eq!(
            error,
            NameError::OutsideZone { name: "www.example.org.".to_owned(), zone: "example.com.".to_owned() }
        );
    }

    #[test]
    fn bad_record_names_are_refused() {
        for bad in ["", ".", "..", "a..", "a b", "www.@", "a.*", "a\nb"] {
            assert!(zone("example.com").resolve(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_relative_name_that_grows_too_long_is_refused() {
        let long = format!("{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63));
        assert!(zone("example.com").resolve(&long).is_ok());
        assert!(matches!(zone(&long).resolve(&long), Err(NameError::TooLong { .. })));
    }

    #[test]
    fn names_in_the_root_zone_get_no_second_dot() {
        assert_eq!(zone(".").resolve("com").unwrap().to_string(), "com.");
        assert_eq!(zone(".").resolve("@").unwrap().to_string(), ".");
        assert_eq!(zone(".").relative(&Fqdn::parse("a.b").unwrap()), Some("a.b"));
    }

    #[test]
    fn the_relative_form_is_what_resolve_takes_back() {
        let zone = zone("example.com");
        for text in ["@", "www", "*", "a.b"] {
            assert_eq!(zone.relative(&zone.resolve(text).unwrap()), Some(text));
        }
        for outside in ["notexample.com", "com", "example.org"] {
            assert_eq!(zone.relative(&Fqdn::parse(outside).unwrap()), None, "{outside}");
        }
    }

    #[test]
    fn a_wildcard_is_not_a_zone() {
        assert!(matches!(ZoneName::parse("*.example.com"), Err(NameError::MisplacedWildcard { .. })));
    }

    #[test]
    fn the_closest_zone_is_found_by_walking_up_without_allocating() {
        let zones: BTreeMap<ZoneName, u8> = [(zone("example.com"), 1), (zone("a.example.com"), 2)].into();
        let closest = |text: &str| Fqdn::parse(text).unwrap().ancestors().find_map(|name| zones.get(name)).copied();
        assert_eq!(closest("x.a.example.com"), Some(2));
        assert_eq!(closest("b.example.com"), Some(1));
        assert_eq!(closest("example.org"), None);
    }

    #[test]
    fn a_zone_is_text_in_json() {
        assert_eq!(serde_json::to_string(&zone("example.com")).unwrap(), "\"example.com.\"");
        assert!(serde_json::from_str::<ZoneName>("\"*.example.com\"").is_err());
    }
}
