//! Strategies that make values of every record type, and a reproducible source of mutations.

// Each test binary uses its part of this module, and a strategy that cannot make its value should stop the test.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use signpost_dns::{Caa, Ds, Fqdn, Loc, Naptr, Rdata, RecordType, Sshfp, SvcParam, Svcb, Text, Tlsa};

/// Texts that match; the pattern is compiled once, not for every text.
fn matching(pattern: &str) -> impl Strategy<Value = String> {
    prop::string::string_regex(pattern).unwrap()
}

/// Any name: the root, plain, with a wildcard, with underscores, slashes and hyphens.
pub(crate) fn name() -> impl Strategy<Value = Fqdn> {
    let label = matching("[a-z0-9_-][a-z0-9_/-]{0,12}");
    let labels = vec(label, 0..5).prop_map(|labels| labels.join("."));
    (labels, any::<bool>()).prop_map(|(labels, wildcard)| {
        let text = match (labels.is_empty(), wildcard) {
            (true, _) => ".".to_owned(),
            (false, true) => format!("*.{labels}"),
            (false, false) => labels,
        };
        Fqdn::parse(&text).unwrap()
    })
}

/// Any name that a record's data may have, often with escaped octets.
pub(crate) fn escaped_name() -> impl Strategy<Value = Fqdn> {
    let label = vec(any::<u8>(), 1..12)
        .prop_map(|octets| octets.iter().fold(String::new(), |label, octet| label + &format!("\\{octet:03}")));
    let escaped = vec(label, 1..4).prop_filter_map("readable", |labels| {
        match Rdata::parse(&RecordType::Ptr, &labels.join(".")) {
            Ok(Rdata::Ptr(name)) => Some(name),
            _ => None,
        }
    });
    prop_oneof![3 => name(), 1 => escaped]
}

/// The name of a host.
pub(crate) fn host() -> impl Strategy<Value = Fqdn> {
    prop::collection::vec(matching("[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?"), 1..5)
        .prop_filter_map("not an address", |labels| Fqdn::parse_hostname(&labels.join(".")).ok())
}

/// The name of a host, or the root.
fn host_or_none() -> impl Strategy<Value = Fqdn> {
    prop_oneof![4 => host(), 1 => Just(Fqdn::root())]
}

/// Octets of any value, with a liking for those that need an escape.
pub(crate) fn octets(max: usize) -> impl Strategy<Value = Box<[u8]>> {
    let octet = prop_oneof![any::<u8>(), prop::sample::select(b"\"\\,; \t\n09azAZ()@".to_vec())];
    vec(octet, 0..=max).prop_map(Vec::into_boxed_slice)
}

fn ipv6() -> impl Strategy<Value = Ipv6Addr> {
    prop_oneof![
        any::<Ipv6Addr>(),
        any::<Ipv4Addr>().prop_map(|v4| v4.to_ipv6_mapped()),
        any::<Ipv4Addr>().prop_map(|v4| v4.to_ipv6_compatible()),
        vec(prop_oneof![Just(0_u16), any::<u16>()], 8)
            .prop_map(|groups| Ipv6Addr::from(<[u16; 8]>::try_from(groups).unwrap())),
    ]
}

fn some_octets() -> impl Strategy<Value = Box<[u8]>> {
    vec(any::<u8>(), 1..70).prop_map(Vec::into_boxed_slice)
}

fn service_parameter() -> impl Strategy<Value = (u16, SvcParam)> {
    prop_oneof![
        prop::collection::btree_set(any::<u16>(), 1..4)
            .prop_map(|keys| (0, SvcParam::Mandatory(keys.into_iter().collect()))),
        vec("[ !#-'*-:<-~]{1,12}", 1..4)
            .prop_map(|names| (1, SvcParam::Alpn(names.into_iter().map(|name| name.into_bytes().into()).collect()))),
        Just((2, SvcParam::NoDefaultAlpn)),
        any::<u16>().prop_map(|port| (3, SvcParam::Port(port))),
        vec(any::<Ipv4Addr>(), 1..4).prop_map(|hints| (4, SvcParam::Ipv4Hint(hints))),
        octets(20).prop_map(|keys| (5, SvcParam::Ech(keys))),
        vec(ipv6(), 1..4).prop_map(|hints| (6, SvcParam::Ipv6Hint(hints))),
        prop::sample::select(vec![4, 6]).prop_map(|key| (key, SvcParam::AutoHint)),
        Just((8, SvcParam::Opaque(Box::default()))),
        btree_set(any::<u16>(), 1..4)
            .prop_map(|groups| { (9, SvcParam::Opaque(groups.into_iter().flat_map(u16::to_be_bytes).collect())) }),
        (prop_oneof![Just(7), 10..=u16::MAX], octets(20)).prop_map(|(key, value)| (key, SvcParam::Opaque(value))),
    ]
}

fn service_binding() -> impl Strategy<Value = Box<Svcb>> {
    let params = vec(service_parameter(), 0..5).prop_map(BTreeMap::from_iter);
    (any::<u16>(), escaped_name(), params).prop_map(|(priority, target, params)| {
        let priority = if params.is_empty() { priority } else { priority.max(1) };
        Box::new(Svcb { priority, target, params })
    })
}

/// A size or precision: one digit and a power of ten.
fn extent() -> impl Strategy<Value = i64> {
    (0..=9_i64, 0..=9_u32).prop_map(|(digit, power)| (digit * 10_i64.pow(power)).min(4_000_000_000))
}

fn location() -> impl Strategy<Value = Box<Loc>> {
    let place = (-324_000_000..=324_000_000_i32, -648_000_000..=648_000_000_i32, -10_000_000..=2_147_483_647_i64);
    (place, extent(), extent(), extent()).prop_map(|((latitude, longitude, altitude), size, horizontal, vertical)| {
        Box::new(Loc { latitude, longitude, altitude, size, horizontal, vertical })
    })
}

fn start_of_authority() -> impl Strategy<Value = Rdata> {
    let local = "[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,10}(\\\\\\.[a-z]{1,5})?";
    let domain = name().prop_filter("a domain", |name| !name.is_wildcard());
    (name(), local, domain, any::<[u32; 5]>()).prop_map(|(mname, local, domain, [a, b, c, d, e])| {
        let domain = if domain.is_root() { String::new() } else { domain.to_string() };
        Rdata::parse(&RecordType::Soa, &format!("{mname} {local}.{domain} {a} {b} {c} {d} {e}")).unwrap()
    })
}

fn generic(mnemonic: &'static str, text: impl Strategy<Value = String>) -> impl Strategy<Value = Rdata> {
    let rtype: RecordType = mnemonic.parse().unwrap();
    text.prop_map(move |text| Rdata::parse(&rtype, &text).unwrap())
}

/// Values of one type.
pub(crate) fn of_type(rtype: RecordType) -> BoxedStrategy<Rdata> {
    let string = || octets(255);
    match rtype {
        RecordType::A => any::<Ipv4Addr>().prop_map(Rdata::A).boxed(),
        RecordType::Aaaa => ipv6().prop_map(Rdata::Aaaa).boxed(),
        RecordType::Cname => escaped_name().prop_map(Rdata::Cname).boxed(),
        RecordType::Dname => escaped_name().prop_map(Rdata::Dname).boxed(),
        RecordType::Ns => host().prop_map(Rdata::Ns).boxed(),
        RecordType::Ptr => escaped_name().prop_map(Rdata::Ptr).boxed(),
        RecordType::Alias => escaped_name().prop_map(Rdata::Alias).boxed(),
        RecordType::Mx => {
            (any::<u16>(), host_or_none()).prop_map(|(preference, exchange)| Rdata::Mx { preference, exchange }).boxed()
        }
        RecordType::Txt => vec(prop_oneof![3 => octets(20), 1 => octets(600)], 0..4)
            .prop_map(|strings| Rdata::Txt(Text::of_strings(strings).unwrap()))
            .boxed(),
        RecordType::Srv => (any::<[u16; 3]>(), host_or_none())
            .prop_map(|([priority, weight, port], target)| Rdata::Srv { priority, weight, port, target })
            .boxed(),
        RecordType::Soa => start_of_authority().boxed(),
        RecordType::Caa => (any::<u8>(), "[a-z0-9]{1,12}", octets(300))
            .prop_map(|(flags, tag, value)| Rdata::Caa(Box::new(Caa { flags, tag: tag.into(), value })))
            .boxed(),
        RecordType::Tlsa => (any::<[u8; 3]>(), some_octets())
            .prop_map(|([usage, selector, matching], data)| {
                Rdata::Tlsa(Box::new(Tlsa { usage, selector, matching, data }))
            })
            .boxed(),
        RecordType::Sshfp => (any::<[u8; 2]>(), some_octets())
            .prop_map(|([algorithm, digest_type], fingerprint)| {
                Rdata::Sshfp(Box::new(Sshfp { algorithm, digest_type, fingerprint }))
            })
            .boxed(),
        RecordType::Ds => (any::<u16>(), any::<[u8; 2]>(), some_octets())
            .prop_map(|(key_tag, [algorithm, digest_type], digest)| {
                Rdata::Ds(Box::new(Ds { key_tag, algorithm, digest_type, digest }))
            })
            .boxed(),
        RecordType::Naptr => (any::<[u16; 2]>(), [string(), string(), string()], name())
            .prop_map(|([order, preference], [flags, service, regexp], replacement)| {
                Rdata::Naptr(Box::new(Naptr { order, preference, flags, service, regexp, replacement }))
            })
            .boxed(),
        RecordType::Https => service_binding().prop_map(Rdata::Https).boxed(),
        RecordType::Svcb => service_binding().prop_map(Rdata::Svcb).boxed(),
        RecordType::Loc => location().prop_map(Rdata::Loc).boxed(),
        RecordType::Other(_) => prop_oneof![
            generic(
                "TYPE65280",
                octets(40).prop_map(|octets| {
                    let digits = octets.iter().fold(String::new(), |digits, octet| digits + &format!("{octet:02X}"));
                    format!("\\# {} {digits}", octets.len())
                })
            ),
            generic("URI", "[0-9]{1,3}[ \t]{1,3}[0-9]{1,3} \"[ -!#-\\[\\]-~ü]{0,30}\""),
        ]
        .boxed(),
    }
}

/// Every type with a parser of its own, and one without.
pub(crate) fn every_type() -> Vec<RecordType> {
    let mut types = RecordType::KNOWN.to_vec();
    types.push("TYPE65280".parse().unwrap());
    types
}

/// Several different values of one type.
pub(crate) fn distinct(rtype: RecordType) -> impl Strategy<Value = BTreeSet<Rdata>> {
    btree_set(of_type(rtype), 1..5)
}

/// SplitMix64: the same mutations on every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, or 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    /// The text with a few characters removed, doubled, swapped or replaced.
    pub(crate) fn mutate(&mut self, text: &str) -> String {
        const SPICE: &[char] = &[
            '"', '\\', ' ', '\t', '\n', '\0', '.', '*', '-', '_', '/', '@', ',', ';', '#', '=', '(', ')', '0', '9',
            ':', 'a', 'F', 'ü', '。', '\u{200d}', '\u{301}', '\u{202e}', '🦀', '\u{7f}', '\u{ad}', 'x',
        ];
        let mut characters: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(4) {
            let at = self.below(characters.len() + 1);
            match self.below(6) {
                0 if at < characters.len() => {
                    characters.remove(at);
                }
                1 if at < characters.len() => characters[at] = SPICE[self.below(SPICE.len())],
                2 => characters.truncate(at),
                3 => {
                    let tail = characters[at..].to_vec();
                    characters.extend(tail);
                }
                4 if at < characters.len() => {
                    let with = self.below(characters.len());
                    characters.swap(at, with);
                }
                _ => characters.insert(at, SPICE[self.below(SPICE.len())]),
            }
        }
        characters.into_iter().collect()
    }
}
