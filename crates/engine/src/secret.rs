//! A value that must never be printed.
//!
//! Anything that reaches a log, an event, a status or an error through `Debug`, `Display` or serde shows `***`; only [`Secret::expose`]
//! gives the value away, so every place that does is easy to find.

use std::fmt;

/// A secret string: prints as `***` whichever way it is printed.
#[derive(Clone, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself. For the one place that sends it to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True when there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_stars_whichever_way() {
        let secret = Secret::new("hunter2");
        let all = format!("{secret} {secret:?} {:#?} {}", Some(&secret), serde_json::to_string(&secret).unwrap());
        assert!(!all.contains("hunter2"), "{all}");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn a_secret_is_read_from_plain_text() {
        let secret: Secret = serde_json::from_str("\"hunter2\"").unwrap();
        assert_eq!(secret.expose(), "hunter2");
    }
}
