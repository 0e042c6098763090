//! Service bindings (RFC 9460): the value of HTTPS and SVCB records.
//!
//! In: priority, target, then parameters in any order, quoted or not, by name or as `keyN`. Out: parameters by number,
//! printed in that order and with the quoting that PowerDNS prints (`ech` and unnamed ones quoted, others not).
//! [`KeyNames`] selects how keys that only newer servers know by name are printed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use data_encoding::BASE64;

use super::address::{DottedTailIpv6, parse_ipv4};
use super::error::RdataError;
use super::scan::Scanner;
use super::text::write_quoted;
use crate::name::Fqdn;

/// The fields of a value, for messages.
pub(super) const NEEDS: &str = "priority, target and parameters, such as 1 . alpn=h2,h3";

const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
const IPV4_HINT: u16 = 4;
const ECH: u16 = 5;
const IPV6_HINT: u16 = 6;
const DOH_PATH: u16 = 7;
const OHTTP: u16 = 8;
const TLS_GROUPS: u16 = 9;

/// Names that are read for a number.
const NAMES: [(&str, u16); 10] = [
    ("mandatory", MANDATORY),
    ("alpn", ALPN),
    ("no-default-alpn", NO_DEFAULT_ALPN),
    ("port", PORT),
    ("ipv4hint", IPV4_HINT),
    ("ech", ECH),
    ("ipv6hint", IPV6_HINT),
    ("dohpath", DOH_PATH),
    ("ohttp", OHTTP),
    ("tls-supported-groups", TLS_GROUPS),
];

/// How keys are printed that PowerDNS knows by name only from 5.1 on: `dohpath`, `ohttp`, `tls-supported-groups`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyNames {
    /// As `key7`, `key8`, `key9` with the octets on the wire: what PowerDNS 5.0 and older take, and the canonical form.
    Numbers,
    /// By name, with their values in presentation form: what PowerDNS 5.1 and later take.
    Names,
}

/// A service binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Svcb {
    /// 0 makes the record an alias; otherwise lower is tried first.
    pub priority: u16,
    /// The other name, or `.` for the record's own.
    pub target: Fqdn,
    /// The parameters by their number.
    pub params: BTreeMap<u16, SvcParam>,
}

/// The value of one parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SvcParam {
    /// Parameters a client must understand, in order.
    Mandatory(Vec<u16>),
    /// Protocols, in order of preference.
    Alpn(Vec<Box<[u8]>>),
    /// The default protocol is not spoken.
    NoDefaultAlpn,
    /// The service's port.
    Port(u16),
    /// Addresses to try before the name is looked up.
    Ipv4Hint(Vec<Ipv4Addr>),
    /// Addresses to try before the name is looked up.
    Ipv6Hint(Vec<Ipv6Addr>),
    /// PowerDNS fills in the hint from the target's address records.
    AutoHint,
    /// Keys for encrypting the client's hello.
    Ech(Box<[u8]>),
    /// A parameter without a parser of its own.
    Opaque(Box<[u8]>),
}

impl Svcb {
    pub(super) fn scan(scan: &mut Scanner<'_>) -> Result<Self, RdataError> {
        let (priority, target) = (scan.u16("priority")?, scan.name("target")?);
        let mut params = BTreeMap::new();
        let mut octets = 0;
        while let Some((name, value)) = scan.parameter()? {
            let key = key_number(name).ok_or_else(|| {
                scan.field("parameter", "a known name such as alpn, port, ipv4hint, or key0 to key65535", name)
            })?;
            octets += 4 + value.as_ref().map_or(0, Vec::len);
            let shown = String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
            let by_number = name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("key"));
            let param = if by_number && key <= TLS_GROUPS {
                from_wire(key, value.unwrap_or_default()).ok_or("octets as RFC 9460 encodes that parameter")
            } else {
                from_text(key, value)
            };
            let param = param.map_err(|needs| scan.field(field_name(key), needs, &shown))?;
            if params.insert(key, param).is_some() {
                return Err(scan.field("parameters", "given once each", name));
            }
        }
        if priority == 0 && !params.is_empty() {
            return Err(scan.field("priority", "at least 1 when there are parameters", "0"));
        }
        scan.fits(octets + target.undotted().len() + 4)?;
        Ok(Self { priority, target, params })
    }
}

fn key_number(name: &str) -> Option<u16> {
    let lower = name.to_ascii_lowercase();
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == lower) {
        return Some(*number);
    }
    let digits = lower.strip_prefix("key")?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

/// The name of a parameter as it is printed: those the server knows by name, others by number.
fn write_key(f: &mut impl fmt::Write, key: u16, names: KeyNames) -> fmt::Result {
    let last = match names {
        KeyNames::Numbers => IPV6_HINT,
        KeyNames::Names => TLS_GROUPS,
    };
    match NAMES.iter().find(|(_, number)| *number == key && key <= last) {
        Some((name, _)) => f.write_str(name),
        None => write!(f, "key{key}"),
    }
}

/// The name of a parameter in messages.
fn field_name(key: u16) -> &'static str {
    NAMES.iter().find(|(_, number)| *number == key).map_or("parameter", |(name, _)| name)
}

/// Reads a value in presentation form; the error describes what is needed.
fn from_text(key: u16, value: Option<Vec<u8>>) -> Result<SvcParam, &'static str> {
    let list = |value: Option<Vec<u8>>| value.and_then(|value| value_list(&value));
    let texts = |value| -> Option<Vec<String>> {
        list(value)?.into_iter().map(|item| String::from_utf8(item.into_vec()).ok()).collect()
    };
    match key {
        MANDATORY => {
            let keys = texts(value).and_then(|names| names.iter().map(|name| key_number(name)).collect());
            keys.and_then(mandatory).ok_or("names of parameters, separated by commas")
        }
        ALPN => list(value).and_then(alpn).ok_or("protocol names such as h2, separated by commas"),
        NO_DEFAULT_ALPN => {
            if value.is_none_or(|value| value.is_empty()) {
                Ok(SvcParam::NoDefaultAlpn)
            } else {
                Err("without a value")
            }
        }
        PORT => texts(value)
            .as_deref()
            .and_then(|items| match items {
                [port] if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().ok(),
                _ => None,
            })
            .map(SvcParam::Port)
            .ok_or("a number from 0 to 65535"),
        IPV4_HINT | IPV6_HINT if value.as_deref() == Some(b"auto") => Ok(SvcParam::AutoHint),
        IPV4_HINT => texts(value)
            .and_then(|items| items.iter().map(|item| parse_ipv4(item)).collect())
            .map(SvcParam::Ipv4Hint)
            .ok_or("IPv4 addresses, separated by commas"),
        IPV6_HINT => texts(value)
            .and_then(|items| items.iter().map(|item| item.parse().ok()).collect())
            .map(SvcParam::Ipv6Hint)
            .ok_or("IPv6 addresses, separated by commas"),
        ECH => value
            .and_then(|value| BASE64.decode(&value).ok())
            .map(|octets| SvcParam::Ech(octets.into_boxed_slice()))
            .ok_or("in base64"),
        OHTTP if value.as_deref().is_some_and(|value| !value.is_empty()) => Err("without a value"),
        TLS_GROUPS => texts(value)
            .and_then(|items| items.iter().map(|item| group(item)).collect::<Option<Vec<u16>>>())
            .filter(|groups| are_distinct(groups))
            .map(|groups| SvcParam::Opaque(groups.into_iter().flat_map(u16::to_be_bytes).collect()))
            .ok_or("numbers of TLS groups, each once, separated by commas"),
        _ => Ok(SvcParam::Opaque(value.unwrap_or_default().into_boxed_slice())),
    }
}

/// The number of a TLS group.
fn group(text: &str) -> Option<u16> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn are_distinct(groups: &[u16]) -> bool {
    groups.iter().enumerate().all(|(at, group)| !groups.iter().take(at).any(|before| before == group))
}

/// The TLS groups in octets on the wire; `None` when these are none.
fn groups(octets: &[u8]) -> Option<Vec<u16>> {
    let (pairs, []) = octets.as_chunks::<2>() else { return None };
    let groups: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
    (!groups.is_empty() && are_distinct(&groups)).then_some(groups)
}

/// Reads a known parameter given by number, whose value is then the octets on the wire.
fn from_wire(key: u16, octets: Vec<u8>) -> Option<SvcParam> {
    match key {
        MANDATORY => {
            let (pairs, []) = octets.as_chunks::<2>() else { return None };
            mandatory(pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect())
        }
        ALPN => {
            let mut names = Vec::new();
            let mut rest = octets.as_slice();
            while let [length, tail @ ..] = rest {
                let (name, tail) = tail.split_at_checked(usize::from(*length))?;
                names.push(Box::from(name));
                rest = tail;
            }
            alpn(names)
        }
        NO_DEFAULT_ALPN => octets.is_empty().then_some(SvcParam::NoDefaultAlpn),
        PORT => octets.try_into().ok().map(|port| SvcParam::Port(u16::from_be_bytes(port))),
        IPV4_HINT => {
            let (addresses, []) = octets.as_chunks::<4>() else { return None };
            let addresses: Vec<_> = addresses.iter().map(|octets| Ipv4Addr::from(*octets)).collect();
            (!addresses.is_empty()).then_some(SvcParam::Ipv4Hint(addresses))
        }
        ECH => Some(SvcParam::Ech(octets.into_boxed_slice())),
        IPV6_HINT => {
            let (addresses, []) = octets.as_chunks::<16>() else { return None };
            let addresses: Vec<_> = addresses.iter().map(|octets| Ipv6Addr::from(*octets)).collect();
            (!addresses.is_empty()).then_some(SvcParam::Ipv6Hint(addresses))
        }
        OHTTP if !octets.is_empty() => None,
        TLS_GROUPS if groups(&octets).is_none() => None,
        _ => Some(SvcParam::Opaque(octets.into_boxed_slice())),
    }
}

fn mandatory(mut keys: Vec<u16>) -> Option<SvcParam> {
    keys.sort_unstable();
    keys.dedup();
    (!keys.is_empty()).then_some(SvcParam::Mandatory(keys))
}

fn alpn(names: Vec<Box<[u8]>>) -> Option<SvcParam> {
    // Every registered protocol is of these characters, and PowerDNS 4.7 takes no others.
    let allowed = |octet: &u8| matches!(octet, b' '..=b'~') && !matches!(octet, b'"' | b';' | b'(' | b')');
    let valid = |name: &[u8]| (1..=255).contains(&name.len()) && name.iter().all(allowed);
    (!names.is_empty() && names.iter().all(|name| valid(name))).then_some(SvcParam::Alpn(names))
}

/// Splits at commas that are not behind a backslash; `None` for an empty item or another escape.
fn value_list(value: &[u8]) -> Option<Vec<Box<[u8]>>> {
    let mut items = Vec::new();
    let mut item = Vec::new();
    let mut octets = value.iter();
    while let Some(octet) = octets.next() {
        match octet {
            b'\\' => match octets.next() {
                Some(escaped @ (b'\\' | b',')) => item.push(*escaped),
                _ => return None,
            },
            b',' if item.is_empty() => return None,
            b',' => items.push(std::mem::take(&mut item).into_boxed_slice()),
            other => item.push(*other),
        }
    }
    if item.is_empty() {
        return None;
    }
    items.push(item.into_boxed_slice());
    Some(items)
}

impl Svcb {
    /// Whether a key is printed differently by name and by number.
    pub(super) fn has_newer_keys(&self) -> bool {
        let newer = |key: &u16| (DOH_PATH..=TLS_GROUPS).contains(key);
        self.params
            .iter()
            .any(|(key, param)| newer(key) || matches!(param, SvcParam::Mandatory(keys) if keys.iter().any(newer)))
    }

    /// Prints the value with the newer keys as given.
    pub(super) fn write(&self, f: &mut impl fmt::Write, names: KeyNames) -> fmt::Result {
        let Self { priority, target, params } = self;
        write!(f, "{priority} {target}")?;
        for (key, param) in params {
            f.write_str(" ")?;
            write_key(f, *key, names)?;
            match param {
                SvcParam::NoDefaultAlpn => {}
                SvcParam::AutoHint => f.write_str("=auto")?,
                SvcParam::Port(port) => write!(f, "={port}")?,
                SvcParam::Mandatory(keys) => write_list(f, keys, |f, key| write_key(f, *key, names))?,
                SvcParam::Ipv4Hint(addresses) => write_list(f, addresses, |f, address| write!(f, "{address}"))?,
                SvcParam::Ipv6Hint(addresses) => {
                    write_list(f, addresses, |f, address| write!(f, "{}", DottedTailIpv6(*address)))?;
                }
                SvcParam::Alpn(names) => {
                    f.write_str("=")?;
                    write_names(f, names)?;
                }
                SvcParam::Ech(octets) => write!(f, "=\"{}\"", BASE64.encode_display(octets))?,
                SvcParam::Opaque(_) if names == KeyNames::Names && *key == OHTTP => {}
                SvcParam::Opaque(octets) => match groups(octets) {
                    Some(groups) if names == KeyNames::Names && *key == TLS_GROUPS => {
                        write_list(f, &groups, |f, group| write!(f, "{group}"))?;
                    }
                    _ => {
                        f.write_str("=")?;
                        write_quoted(f, octets)?;
                    }
                },
            }
        }
        Ok(())
    }
}

impl fmt::Display for Svcb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, KeyNames::Numbers)
    }
}

fn write_list<T, W: fmt::Write>(f: &mut W, items: &[T], write_item: impl Fn(&mut W, &T) -> fmt::Result) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        f.write_str(if index == 0 { "=" } else { "," })?;
        write_item(f, item)?;
    }
    Ok(())
}

/// Protocol names: commas and backslashes within one are escaped, then the whole is written as a string, in quotes only
/// where a bare word would not do.
fn write_names(f: &mut impl fmt::Write, names: &[Box<[u8]>]) -> fmt::Result {
    let mut joined = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            joined.push(b',');
        }
        for octet in name {
            if matches!(octet, b'\\' | b',') {
                joined.push(b'\\');
            }
            joined.push(*octet);
        }
    }
    let mut quoted = String::new();
    write_quoted(&mut quoted, &joined)?;
    f.write_str(if joined.contains(&b' ') { &quoted } else { quoted.trim_matches('"') })
}
