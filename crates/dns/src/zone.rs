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
