//! The rules of a Pi-hole v6 for lines, of its resolver for a configuration, and for blanks.
//!
//! In: whole lists. Out: the message and hint of the first error, as FTL gives them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::v6_config::List;

/// The part of a line before its comment. A `#` starts a comment only at the start of a word.
pub(super) fn uncommented(line: &str) -> &str {
    let starts = |(at, _): &(usize, &str)| *at == 0 || line.as_bytes()[at - 1].is_ascii_whitespace();
    let cut = line.match_indices('#').find(starts).map_or(line.len(), |(at, _)| at);
    &line[..cut]
}

/// Checks a whole list: message and hint of the first error. The message for an invalid element is the caller's.
pub(super) fn check(
    list: List,
    items: &[String],
    comments: bool,
    invalid: &'static str,
    cut: usize,
) -> Result<(), (&'static str, String)> {
    for (index, item) in items.iter().enumerate() {
        let checked = match list {
            List::Hosts => host_line(item, comments),
            List::Cnames => cname_line(item),
        };
        checked.map_err(|why| (invalid, format!("dns.{}[{index}]: {why}", list.key())))?;
    }
    match list {
        List::Hosts => Ok(()),
        List::Cnames => resolver_test(items, cut).map_err(|why| ("Invalid configuration", why)),
    }
}

fn host_line(item: &str, comments: bool) -> Result<(), String> {
    if item.contains(['\n', '\r']) {
        return Err("contains newline characters".to_owned());
    }
    let value = if comments { uncommented(item) } else { item };
    let mut words = value.split([' ', '\t']).filter(|word| !word.is_empty());
    let Some(address) = words.next() else { return Err(format!("found no first element (\"{item}\")")) };
    if address.parse::<IpAddr>().is_err() {
        return Err(format!("neither a valid IPv4 nor IPv6 address (\"{address}\")"));
    }
    let mut names = words.peekable();
    if names.peek().is_none() {
        return Err(format!("entry does not have at least one hostname (\"{item}\")"));
    }
    names.try_for_each(|name| if valid_domain(name) { Ok(()) } else { Err(format!("invalid hostname (\"{name}\")")) })
}

/// A name in `dns.hosts`. The last label is checked for its first and last character, the others for their length.
fn valid_domain(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let mut labels: Vec<&str> = name.split('.').collect();
    let last = labels.pop().unwrap_or_default();
    (1..=255).contains(&name.len())
        && name.bytes().all(good)
        && labels.iter().all(|label| (1..=63).contains(&label.len()))
        && !last.starts_with('-')
        && !last.ends_with('-')
}

/// An element of `dns.cnameRecords`: only the number of words is checked, and that none is empty.
fn cname_line(item: &str) -> Result<(), String> {
    let words: Vec<&str> = item.split(',').collect();
    if let Some(place) = words.iter().position(|word| word.is_empty()) {
        return Err(format!("contains an empty string at position {place}"));
    }
    if words.len() < 2 {
        return Err("not a valid CNAME definition (too few elements)".to_owned());
    }
    if item.contains(['\n', '\r']) {
        return Err("contains newline characters".to_owned());
    }
    Ok(())
}

/// The aliases of a line and their target, as the resolver reads them.
pub(super) fn alias_words(line: &str) -> Option<(Vec<String>, String)> {
    let value = uncommented(line).to_ascii_lowercase();
    let name = |word: &str| word.trim().trim_end_matches('.').to_owned();
    let mut words: Vec<String> = value.split(',').map(name).collect();
    if words.len() > 2 && words.last().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
        words.pop();
    }
    let target = words.pop()?;
    (!words.is_empty()).then_some((words, target))
}

/// The test that the resolver makes of its whole configuration. It names no element of a list: it quotes the line that it wrote for
/// one, sometimes without its first characters.
fn resolver_test(items: &[String], cut: usize) -> Result<(), String> {
    // The first lines of the file are other settings.
    const FIRST: usize = 57;
    let quote = |place: usize| {
        let line: String = format!("cname={}", uncommented(&items[place]).trim_end()).chars().skip(cut).collect();
        format!("at line {} of /etc/pihole/dnsmasq.conf.temp: \"{line}\"", place + FIRST)
    };
    let mut seen = BTreeSet::new();
    let mut targets = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        let Some((aliases, target)) = alias_words(item) else { continue };
        for alias in aliases {
            let word = |name: &str| name.is_empty() || name.split('.').any(|label| label.len() > 63);
            if word(&alias) || word(&target) {
                return Err(format!("bad CNAME {}", quote(place)));
            }
            if !seen.insert(alias.clone()) {
                return Err(format!("duplicate CNAME {}", quote(place)));
            }
            targets.insert(alias, target.clone());
        }
    }
    for start in targets.keys() {
        let mut name = start;
        for _ in 0..=targets.len() {
            match targets.get(name) {
                Some(next) if next == start => return Err(format!("CNAME loop involving {start}")),
                Some(next) => name = next,
                None => break,
            }
        }
    }
    Ok(())
}

/// A line of `dns.hosts` as FTL 6.3 and later store it: one blank between words, up to the comment.
pub(super) fn tidied(item: &str) -> String {
    let value = uncommented(item);
    if value.trim().is_empty() {
        return item.to_owned();
    }
    let comment = &item[value.len()..];
    let mut words: Vec<&str> = value.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    if !comment.is_empty() {
        words.push(comment);
    }
    words.join(" ")
}
