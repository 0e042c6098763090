//! Selectors as `kubectl --selector` takes them, matched in this process against labels or annotations.
//!
//! The API server matches labels by itself ([`crate::Watch::labels`]); it has no selector for annotations.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

/// A parsed selector. The empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Missing(String),
}

/// A text that is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a selector; write key=value, key!=value, key in (a, b), key notin (a, b), key or !key, separated by commas"
)]
pub struct SelectorError(String);

impl Selector {
    /// Reads a selector.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let clauses = split(text).into_iter().map(str::trim).filter(|clause| !clause.is_empty());
        let parsed = clauses.map(|clause| requirement(clause).ok_or_else(|| SelectorError(clause.to_owned())));
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// Whether labels or annotations match.
    pub fn matches(&self, pairs: Option<&BTreeMap<String, String>>) -> bool {
        let value = |key: &str| pairs.and_then(|pairs| pairs.get(key));
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => value(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => value(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => value(key).is_some(),
            Requirement::Missing(key) => value(key).is_none(),
        })
    }
}

/// At the commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(|c| {
        inside = (inside || c == '(') && c != ')';
        c == ',' && !inside
    })
    .collect()
}

fn requirement(clause: &str) -> Option<Requirement> {
    if let Some(key) = clause.strip_prefix('!') {
        return Some(Requirement::Missing(word(key)?));
    }
    if let Some((head, values)) = clause.split_once('(') {
        let values = values.strip_suffix(')')?.split(',').map(value).collect::<Option<BTreeSet<String>>>()?;
        let (key, operator) = head.trim().split_once(char::is_whitespace)?;
        return match operator.trim() {
            "in" => Some(Requirement::In(word(key)?, values)),
            "notin" => Some(Requirement::NotIn(word(key)?, values)),
            _ => None,
        };
    }
    if let Some((key, other)) = clause.split_once("!=") {
        return Some(Requirement::NotIn(word(key)?, [value(other)?].into()));
    }
    match clause.split_once('=') {
        Some((key, same)) => Some(Requirement::In(word(key)?, [value(same.strip_prefix('=').unwrap_or(same))?].into())),
        None => Some(Requirement::Exists(word(clause)?)),
    }
}

/// A key: one word, not empty.
fn word(text: &str) -> Option<String> {
    value(text).filter(|word| !word.is_empty())
}

/// A value: one word, or empty.
fn value(text: &str) -> Option<String> {
    let text = text.trim();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    text.chars().all(allowed).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_requirement_is_matched() {
        let pairs: BTreeMap<String, String> =
            [("example.org/region", "weu"), ("tier", "")].map(|(key, value)| (key.into(), value.into())).into();
        for (text, matches) in [
            ("", true),
            ("example.org/region=weu", true),
            ("example.org/region == weu , tier", true),
            ("example.org/region=neu", false),
            ("example.org/region!=neu,absent!=x", true),
            ("example.org/region in (neu, weu)", true),
            ("example.org/region notin (neu,weu)", false),
            ("tier=,!absent", true),
            ("absent", false),
            ("!tier", false),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(Some(&pairs)), matches, "{text:?}");
        }
        assert!(!Selector::parse("a=b").unwrap().matches(None));
    }

    #[test]
    fn nonsense_is_reported_with_its_clause() {
        for text in ["=x", "a in b", "a in (b", "a=b c", "(a)", "a,!"] {
            let error = Selector::parse(text).unwrap_err().to_string();
            assert!(error.contains("is not a selector"), "{text:?}: {error}");
        }
    }
}
