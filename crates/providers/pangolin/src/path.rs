//! A path as a target carries it. The server puts it into a routing rule between backticks without escaping, so one that holds a backtick would
//! reach into the rules of other hosts.

use std::fmt;

use thiserror::Error;

/// Longest path.
pub(crate) const MAX_PATH: usize = 2000;

/// How the path of a target matches a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Matching {
    /// The whole path.
    Exact,
    /// The start of the path, character by character.
    Prefix,
    /// A regular expression, anywhere in the path.
    Regex,
}

impl Matching {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Regex => "regex",
        }
    }

    /// Reads the name in the API.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Exact, Self::Prefix, Self::Regex].into_iter().find(|matching| matching.as_str() == text)
    }
}

/// A path and how it matches. Never one without the other: the server would make a second router for the whole host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutePath {
    matching: Matching,
    text: String,
}

/// Why a text cannot be the path of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// It would end the quotes of a routing rule.
    #[error("the path holds {0:?}, which Pangolin would put into its routing rules as it is; remove the character")]
    Unsafe(char),
    /// It does not begin with a slash.
    #[error("the path does not begin with '/'; add the slash")]
    NoSlash,
    /// It is too long.
    #[error("the path is longer than {MAX_PATH} characters; shorten it")]
    TooLong,
}

impl RoutePath {
    /// A path that a routing rule can hold.
    pub fn new(matching: Matching, text: impl Into<String>) -> Result<Self, PathError> {
        let text: String = text.into();
        if let Some(bad) = text.chars().find(|c| *c == '`' || c.is_control()) {
            return Err(PathError::Unsafe(bad));
        }
        if text.chars().count() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        if matching != Matching::Regex && !text.starts_with('/') {
            return Err(PathError::NoSlash);
        }
        Ok(Self { matching, text })
    }

    /// How it matches.
    pub fn matching(&self) -> Matching {
        self.matching
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for RoutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.matching.as_str(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_end_the_quotes_of_a_rule() {
        for matching in [Matching::Exact, Matching::Prefix, Matching::Regex] {
            let made = RoutePath::new(matching, "/a`) || Host(`other.example.com");
            assert_eq!(made, Err(PathError::Unsafe('`')), "{matching:?}");
            assert_eq!(RoutePath::new(matching, "/a\n"), Err(PathError::Unsafe('\n')));
        }
    }

    #[test]
    fn a_path_begins_with_a_slash_unless_it_is_an_expression() {
        assert_eq!(RoutePath::new(Matching::Prefix, "api"), Err(PathError::NoSlash));
        assert_eq!(RoutePath::new(Matching::Regex, "^/api(/|$)").unwrap().text(), "^/api(/|$)");
        assert_eq!(RoutePath::new(Matching::Exact, "/".repeat(MAX_PATH + 1)), Err(PathError::TooLong));
    }
}
