//! Addresses as PowerDNS spells them, which is not one way.
//!
//! An AAAA record with an IPv4-mapped address is refused when written with a dotted tail, although the server prints it
//! so itself; inside an `ipv6hint` only the dotted tail is accepted. Both spellings parse to the same address.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Reads an IPv4 address; leading zeros in a part are read as decimal, as the server does.
pub(super) fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.').map(|part| {
        let digits = (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<u8>().ok()).flatten()
    });
    let mut part = || parts.next().flatten();
    let address = Ipv4Addr::new(part()?, part()?, part()?, part()?);
    parts.next().is_none().then_some(address)
}

/// Prints hexadecimal groups only.
pub(super) struct HexadecimalIpv6(pub(super) Ipv6Addr);

impl fmt::Display for HexadecimalIpv6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.to_ipv4_mapped() {
            Some(_) => {
                let [.., high, low] = self.0.segments();
                write!(f, "::ffff:{high:x}:{low:x}")
            }
            None => self.0.fmt(f),
        }
    }
}

/// Prints a dotted tail for IPv4-mapped and IPv4-compatible addresses, as the C library does.
pub(super) struct DottedTailIpv6(pub(super) Ipv6Addr);

impl fmt::Display for DottedTailIpv6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.segments() {
            [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
                write!(f, "::{}", Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
            }
            _ => self.0.fmt(f),
        }
    }
}
