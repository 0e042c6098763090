//! Lines as Pi-hole stores them, and the marker that shows which ones are ours.
//!
//! ```text
//! dns.hosts          192.168.1.10 app.lan # signpost=home
//! dns.cnameRecords   www.lan,app.lan # signpost=home
//! ```
//! A line is ours only when it is what we would write for the address, name and owner it carries. In `dns.hosts` blanks between words do not
//! count: FTL 6.3 and later tidy those of every line whenever they store anything. Any other edit makes the line foreign.

use std::fmt;
use std::net::IpAddr;

use signpost_dns::Fqdn;

/// The word before `=` in the marker comment.
pub const MARKER: &str = "signpost=";

/// The owner id in the lines: one per cluster that shares a Pi-hole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(String);

/// Why a text is not an owner id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an owner id is 1 to 96 characters of a-z, 0-9, '-', '_' and '.'; {0:?} is not")]
pub struct OwnerIdError(String);

impl OwnerId {
    /// Accepts what survives in a Pi-hole comment: no blank, no `/`, no `,`, no `#`, ASCII only.
    pub fn parse(text: &str) -> Result<Self, OwnerIdError> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
        if (1..=96).contains(&text.len()) && text.bytes().all(good) {
            Ok(Self(text.to_owned()))
        } else {
            Err(OwnerIdError(text.chars().take(40).collect()))
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One element of `dns.hosts` or `dns.cnameRecords`, verbatim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(Box<str>);

impl Line {
    /// A line as the Pi-hole returned it; no byte is changed.
    pub fn stored(raw: &str) -> Self {
        Self(raw.into())
    }

    /// The line we write for an address, marked with its owner where the dialect can carry a marker.
    pub fn address(ip: IpAddr, host: &Fqdn, owner: Option<&OwnerId>) -> Self {
        Self(marked(format!("{ip} {}", host.undotted()), owner))
    }

    /// The line we write for an alias.
    pub fn alias(alias: &Fqdn, target: &Fqdn, owner: Option<&OwnerId>) -> Self {
        Self(marked(format!("{},{}", alias.undotted(), target.undotted()), owner))
    }

    /// The exact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The comment, trimmed. A `#` starts a comment only at the start of a word.
    pub fn comment(&self) -> Option<&str> {
        self.0[self.value().len()..].strip_prefix('#').map(str::trim)
    }

    /// The line as FTL 6.3 and later store it in `dns.hosts`: one blank between words, the comment unchanged.
    #[must_use]
    pub fn tidy(&self) -> Self {
        let value = self.value();
        let comment = &self.0[value.len()..];
        let mut words: Vec<&str> = value.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            return self.clone();
        }
        if !comment.is_empty() {
            words.push(comment);
        }
        Self(words.join(" ").into())
    }

    /// Whether some signpost wrote a marker here, ours or another cluster's.
    pub fn is_marked(&self) -> bool {
        self.comment().is_some_and(|comment| comment.starts_with(MARKER))
    }

    /// The subject of the line: its name and, in `dns.hosts`, the kind of its address. A line replaces another of the same subject.
    pub(crate) fn subject(&self) -> Option<(Fqdn, Option<bool>)> {
        let parts = self.address_parts();
        match (parts.ip, parts.names.as_slice()) {
            (Some(ip), [name]) => Some((Fqdn::parse(name).ok()?, Some(ip.is_ipv4()))),
            (Some(_), _) => None,
            (None, _) => match self.alias_parts().aliases.as_slice() {
                [alias] => Some((Fqdn::parse(alias).ok()?, None)),
                _ => None,
            },
        }
    }

    /// Whether this line takes the place of another.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        self.subject().is_some_and(|subject| other.subject() == Some(subject))
    }

    /// Everything before the comment.
    fn value(&self) -> &str {
        let starts = |(at, _): &(usize, &str)| *at == 0 || self.0.as_bytes()[at - 1].is_ascii_whitespace();
        let end = self.0.match_indices('#').find(starts).map_or(self.0.len(), |(at, _)| at);
        &self.0[..end]
    }

    /// Reads the line as an element of `dns.hosts`.
    pub fn address_parts(&self) -> AddressParts<'_> {
        let mut words = self.value().split_ascii_whitespace();
        let ip = words.next().and_then(|word| word.parse().ok());
        AddressParts { ip, names: words.collect() }
    }

    /// Reads the line as an element of `dns.cnameRecords`; the last of several commas may be a TTL.
    pub fn alias_parts(&self) -> AliasParts<'_> {
        let mut words: Vec<&str> = self.value().split(',').map(str::trim).collect();
        if words.len() > 2 && words.last().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
            words.pop();
        }
        let target = if words.len() > 1 { words.pop() } else { None };
        AliasParts { aliases: words, target }
    }

    /// The address and name, when this is a `dns.hosts` line that `owner` wrote and nobody changed but for blanks.
    pub fn own_address(&self, owner: &OwnerId) -> Option<(IpAddr, Fqdn)> {
        if !self.is_marked() {
            return None;
        }
        let parts = self.address_parts();
        let ([name], Some(ip)) = (parts.names.as_slice(), parts.ip) else { return None };
        let host = Fqdn::parse(name).ok()?;
        (Self::address(ip, &host, Some(owner)) == self.tidy()).then_some((ip, host))
    }

    /// The alias and target, when this is a `dns.cnameRecords` line that `owner` wrote and nobody changed.
    pub fn own_alias(&self, owner: &OwnerId) -> Option<(Fqdn, Fqdn)> {
        if !self.is_marked() {
            return None;
        }
        let parts = self.alias_parts();
        let ([alias], Some(target)) = (parts.aliases.as_slice(), parts.target) else { return None };
        let (alias, target) = (Fqdn::parse(alias).ok()?, Fqdn::parse(target).ok()?);
        (Self::alias(&alias, &target, Some(owner)) == *self).then_some((alias, target))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn marked(value: String, owner: Option<&OwnerId>) -> Box<str> {
    match owner {
        Some(owner) => format!("{value} # {MARKER}{owner}").into(),
        None => value.into(),
    }
}

/// A `dns.hosts` line taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressParts<'a> {
    /// The address, when it is one.
    pub ip: Option<IpAddr>,
    /// Every name on the line.
    pub names: Vec<&'a str>,
}

/// A `dns.cnameRecords` line taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasParts<'a> {
    /// Every alias on the line.
    pub aliases: Vec<&'a str>,
    /// Their target.
    pub target: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> OwnerId {
        OwnerId::parse("home").unwrap()
    }

    #[test]
    fn a_marked_line_is_ours_and_returns_its_names_and_target() {
        let host = Fqdn::parse("App.LAN.").unwrap();
        let line = Line::address("192.168.1.10".parse().unwrap(), &host, Some(&owner()));
        assert_eq!(line.as_str(), "192.168.1.10 app.lan # signpost=home");
        assert_eq!(line.own_address(&owner()), Some(("192.168.1.10".parse().unwrap(), host.clone())));
        let alias = Line::alias(&Fqdn::parse("www.lan").unwrap(), &host, Some(&owner()));
        assert_eq!(alias.as_str(), "www.lan,app.lan # signpost=home");
        assert!(alias.own_alias(&owner()).is_some());
    }

    #[test]
    fn a_line_that_was_edited_or_has_another_owner_is_not_ours() {
        for raw in [
            "192.168.1.10 app.lan",
            "192.168.1.10 app.lan # signpost=office",
            "192.168.1.10 app.lan printer.lan # signpost=home",
            "192.168.1.10 app.lan #signpost=home",
            "192.168.1.10 app.lan# signpost=home",
            "192.168.1.10 app.lan # signpost=home and mine",
            "192.168.1.10 APP.lan # signpost=home",
            "192.168.1.10 app.lan. # signpost=home",
            "192.168.1.010 app.lan # signpost=home",
            "# signpost=home",
            "",
        ] {
            assert_eq!(Line::stored(raw).own_address(&owner()), None, "{raw}");
        }
    }

    #[test]
    fn blanks_do_not_make_a_line_foreign() {
        for raw in ["192.168.1.10  app.lan # signpost=home", " 192.168.1.10\tapp.lan\t # signpost=home"] {
            assert!(Line::stored(raw).own_address(&owner()).is_some(), "{raw}");
            assert_eq!(Line::stored(raw).tidy().as_str(), "192.168.1.10 app.lan # signpost=home");
        }
        for unchanged in ["# a note  of mine", "", "  "] {
            assert_eq!(Line::stored(unchanged).tidy().as_str(), unchanged);
        }
    }

    #[test]
    fn a_hash_inside_a_word_starts_no_comment() {
        let line = Line::stored("10.0.0.1 nas.lan#x box # the # box");
        assert_eq!((line.address_parts().names, line.comment()), (vec!["nas.lan#x", "box"], Some("the # box")));
        assert_eq!(Line::stored("10.0.0.1 nas.lan#x").comment(), None);
    }

    #[test]
    fn lines_are_taken_apart_as_pihole_reads_them() {
        let line = Line::stored("10.0.0.1\tnas.lan  nas # the box");
        assert_eq!(line.address_parts().names, ["nas.lan", "nas"]);
        assert_eq!(line.comment(), Some("the box"));
        let line = Line::stored("a.lan,b.lan,target.lan,300");
        assert_eq!(line.alias_parts(), AliasParts { aliases: vec!["a.lan", "b.lan"], target: Some("target.lan") });
    }

    #[test]
    fn a_line_replaces_only_a_line_of_the_same_name_and_kind() {
        let line = Line::stored("10.0.0.1 app.lan # signpost=home");
        for same in ["10.0.0.2 App.LAN.", "10.0.0.1 app.lan"] {
            assert!(line.replaces(&Line::stored(same)), "{same}");
        }
        for other in ["fd00::1 app.lan", "10.0.0.2 app.lan b.lan", "10.0.0.2 b.lan", "app.lan,b.lan", ""] {
            assert!(!line.replaces(&Line::stored(other)), "{other}");
        }
        assert!(Line::stored("www.lan,app.lan # signpost=home").replaces(&Line::stored("www.lan,old.lan,300")));
        assert!(!Line::stored("www.lan,app.lan").replaces(&Line::stored("app.lan,www.lan")));
    }

    #[test]
    fn an_owner_id_that_would_break_a_line_is_refused() {
        for bad in ["", "a b", "a/b", "a,b", "a#b", "Ä", "Home", "x\ny", &"x".repeat(97)] {
            assert!(OwnerId::parse(bad).is_err(), "{bad}");
        }
    }
}
