//! The mailbox in a SOA record: a name whose first label is the local part of a mail address.
//!
//! In: `john\.doe.example.com.`, or `john.doe@example.com` as people write it. Out: the first form, lower case. The
//! local part has the characters that a mail address may have without quotes.

use std::fmt;

use super::error::RdataError;
use super::scan::Scanner;
use crate::name::{Fqdn, MAX_LABEL_LEN, MAX_NAME_LEN, NameError};

/// A mailbox written as a name. Without trailing dot; dots in the local part are behind a backslash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mailbox(Box<str>);

impl Mailbox {
    pub(super) fn scan(scan: &mut Scanner<'_>, field: &'static str) -> Result<Self, RdataError> {
        const NEEDS: &str = "a mailbox written as a name, such as hostmaster.example.com.";
        let word = scan.word()?;
        let wrong = || scan.field(field, NEEDS, word);
        if word == "." {
            return Ok(Self(Box::from(".")));
        }
        let (local, domain) = match word.split_once('@') {
            Some((local, domain)) => (local.replace("\\.", "."), domain),
            None => split_first_label(word).ok_or_else(wrong)?,
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
        if local.is_empty() || local.len() > MAX_LABEL_LEN || !local.chars().all(allowed) {
            return Err(wrong());
        }
        let domain = if domain.is_empty() { Ok(Fqdn::root()) } else { Fqdn::parse(domain) };
        let domain = match domain {
            Ok(domain) if domain.is_wildcard() => return Err(wrong()),
            Ok(domain) => domain,
            Err(NameError::BadCharacter { .. }) => return Err(wrong()),
            Err(source) => return Err(RdataError::Name { rtype: crate::RecordType::Soa, field, source }),
        };
        if local.len() + 1 + domain.undotted().len() > MAX_NAME_LEN {
            return Err(wrong());
        }
        let local = local.to_ascii_lowercase().replace('.', "\\.");
        Ok(Self(if domain.is_root() { local } else { format!("{local}.{}", domain.undotted()) }.into_boxed_str()))
    }
}

/// The first label with its escaped dots resolved, and what follows behind the dot. No other escape is read.
fn split_first_label(word: &str) -> Option<(String, &str)> {
    let mut local = String::new();
    let mut characters = word.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' => return Some((local, word.get(at + 1..)?)),
            '\\' => match characters.next()? {
                (_, '.') => local.push('.'),
                _ => return None,
            },
            other => local.push(other),
        }
    }
    Some((local, ""))
}

impl fmt::Display for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)?;
        if self.0.as_ref() == "." { Ok(()) } else { f.write_str(".") }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({self})")
    }
}
