//! The values of records.
//!
//! In: a type and a text as a user or a provider spells it. Out: [`Rdata`], where two spellings of one value are equal,
//! and whose `Display` is the one text a PowerDNS server accepts for it (the server refuses a text that it would print
//! differently itself). `parse(print(x)) == x` for every value.

mod address;
mod error;
mod generic;
mod hexed;
mod layout;
mod loc;
mod mailbox;
mod naptr;
mod scan;
mod svcb;
mod text;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Serialize, Serializer};

pub use error::RdataError;
pub use generic::Generic;
pub use hexed::{Ds, Sshfp, Tlsa};
pub use loc::Loc;
pub use mailbox::Mailbox;
pub use naptr::{Caa, Naptr};
pub use svcb::{SvcParam, Svcb};
pub use text::Text;

use crate::name::Fqdn;
use crate::rtype::RecordType;
use address::HexadecimalIpv6;
use scan::Scanner;
use svcb::KeyNames;

/// The start of authority.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Soa {
    /// The primary name server.
    pub mname: Fqdn,
    /// The mailbox of the person in charge.
    pub rname: Mailbox,
    /// The version of the zone.
    pub serial: u32,
    /// Seconds between two polls of the primary by a secondary.
    pub refresh: u32,
    /// Seconds before a failed poll is repeated.
    pub retry: u32,
    /// Seconds after which a secondary gives up.
    pub expire: u32,
    /// Seconds a negative answer may be kept.
    pub minimum: u32,
}

impl Soa {
    fn scan(scan: &mut Scanner<'_>) -> Result<Self, RdataError> {
        Ok(Self {
            mname: scan.name("primary server")?,
            rname: Mailbox::scan(scan, "mailbox")?,
            serial: scan.u32("serial")?,
            refresh: scan.u32("refresh")?,
            retry: scan.u32("retry")?,
            expire: scan.u32("expire")?,
            minimum: scan.u32("minimum")?,
        })
    }
}

/// The value of one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rdata {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// The canonical name of this name.
    Cname(Fqdn),
    /// The name that replaces this name in every name below it.
    Dname(Fqdn),
    /// A mail exchange; `0 .` means that no mail is accepted.
    Mx {
        /// Lower is tried first.
        preference: u16,
        /// The host that takes the mail.
        exchange: Fqdn,
    },
    /// Text.
    Txt(Text),
    /// A service's host and port.
    Srv {
        /// Lower is tried first.
        priority: u16,
        /// Share among equal priorities.
        weight: u16,
        /// The service's port.
        port: u16,
        /// The host, or `.` when the service is not offered.
        target: Fqdn,
    },
    /// A name server.
    Ns(Fqdn),
    /// The name this address points back to.
    Ptr(Fqdn),
    /// The start of authority.
    Soa(Box<Soa>),
    /// The authorities that may issue certificates.
    Caa(Box<Caa>),
    /// A certificate association.
    Tlsa(Box<Tlsa>),
    /// An SSH key fingerprint.
    Sshfp(Box<Sshfp>),
    /// A naming authority pointer.
    Naptr(Box<Naptr>),
    /// A service binding for HTTPS.
    Https(Box<Svcb>),
    /// A service binding.
    Svcb(Box<Svcb>),
    /// The name whose addresses are answered here.
    Alias(Fqdn),
    /// A location on earth.
    Loc(Box<Loc>),
    /// A delegation signer.
    Ds(Box<Ds>),
    /// A record of a type without a parser of its own.
    Generic(Box<Generic>),
}

impl Rdata {
    /// Reads a value of that type.
    ///
    /// Lenient where users are: blanks are free, host names need no trailing dot and are always absolute. Text must be
    /// in double quotes.
    pub fn parse(rtype: &RecordType, text: &str) -> Result<Self, RdataError> {
        let scan = |needs| Scanner::new(*rtype, needs, text);
        match rtype {
            RecordType::A => {
                let mut scan = scan("an IPv4 address such as 192.0.2.1")?;
                let address = address::parse_ipv4(scan.word()?).ok_or_else(|| scan.shape())?;
                scan.end(Self::A(address))
            }
            RecordType::Aaaa => {
                let mut scan = scan("an IPv6 address such as 2001:db8::1")?;
                let address = scan.word()?.parse().map_err(|_| scan.shape())?;
                scan.end(Self::Aaaa(address))
            }
            RecordType::Cname => one_name(scan("one host name such as www.example.com.")?, Self::Cname),
            RecordType::Dname => one_name(scan("one name such as example.net.")?, Self::Dname),
            RecordType::Ns => {
                let mut scan = scan("one name server such as ns1.example.com.")?;
                let server = scan.host("name server")?;
                if server.is_root() {
                    return Err(scan.shape());
                }
                scan.end(Self::Ns(server))
            }
            RecordType::Ptr => one_name(scan("one host name such as www.example.com.")?, Self::Ptr),
            RecordType::Alias => one_name(scan("one host name such as lb.example.net.")?, Self::Alias),
            RecordType::Mx => {
                let mut scan = scan("a preference and a mail host, such as 10 mail.example.com.")?;
                let (preference, exchange) = (scan.u16("preference")?, scan.host("mail host")?);
                scan.end(Self::Mx { preference, exchange })
            }
            RecordType::Txt => {
                let mut scan = scan("text in double quotes, such as \"v=spf1 -all\"")?;
                scan.strings().and_then(Text::of_strings).map(Self::Txt)
            }
            RecordType::Srv => {
                let mut scan = scan("priority, weight, port and target host, such as 10 5 443 www.example.com.")?;
                let (priority, weight, port) = (scan.u16("priority")?, scan.u16("weight")?, scan.u16("port")?);
                let target = scan.host("target host")?;
                scan.end(Self::Srv { priority, weight, port, target })
            }
            RecordType::Soa => {
                let needs = "primary server, mailbox, serial, refresh, retry, expire and minimum, such as \
                     ns1.example.com. hostmaster.example.com. 1 10800 3600 604800 3600";
                boxed(scan(needs)?, Soa::scan, Self::Soa)
            }
            RecordType::Caa => {
                let needs = "flags, tag and a quoted value, such as 0 issue \"letsencrypt.org\"";
                boxed(scan(needs)?, Caa::scan, Self::Caa)
            }
            RecordType::Tlsa => {
                let needs = "usage, selector, matching type and hexadecimal data, such as 3 1 1 0b9fa5a5…";
                boxed(scan(needs)?, Tlsa::scan, Self::Tlsa)
            }
            RecordType::Sshfp => {
                let needs = "algorithm, fingerprint type and hexadecimal fingerprint, such as 4 2 123456789a…";
                boxed(scan(needs)?, Sshfp::scan, Self::Sshfp)
            }
            RecordType::Ds => {
                let needs = "key tag, algorithm, digest type and hexadecimal digest, such as 60485 13 2 d4b7d520…";
                boxed(scan(needs)?, Ds::scan, Self::Ds)
            }
            RecordType::Naptr => {
                let needs = "order, preference, three quoted strings (flags, service, expression) and a name, such as \
                     100 50 \"s\" \"SIP+D2U\" \"\" _sip._udp.example.com.";
                boxed(scan(needs)?, Naptr::scan, Self::Naptr)
            }
            RecordType::Https => boxed(scan(svcb::NEEDS)?, Svcb::scan, Self::Https),
            RecordType::Svcb => boxed(scan(svcb::NEEDS)?, Svcb::scan, Self::Svcb),
            RecordType::Loc => {
                let needs = "latitude, longitude and altitude, such as 52 22 23.000 N 4 53 32.000 E -2.00m";
                boxed(scan(needs)?, Loc::scan, Self::Loc)
            }
            RecordType::Other(_) => {
                let scan = scan("a value; unknown types are written as \\# 4 c0000201")?;
                Generic::scan(*rtype, scan).map(|generic| Self::Generic(Box::new(generic)))
            }
        }
    }

    /// The type of the record.
    pub fn rtype(&self) -> RecordType {
        match self {
            Self::A(_) => RecordType::A,
            Self::Aaaa(_) => RecordType::Aaaa,
            Self::Cname(_) => RecordType::Cname,
            Self::Dname(_) => RecordType::Dname,
            Self::Mx { .. } => RecordType::Mx,
            Self::Txt(_) => RecordType::Txt,
            Self::Srv { .. } => RecordType::Srv,
            Self::Ns(_) => RecordType::Ns,
            Self::Ptr(_) => RecordType::Ptr,
            Self::Soa(_) => RecordType::Soa,
            Self::Caa(_) => RecordType::Caa,
            Self::Tlsa(_) => RecordType::Tlsa,
            Self::Sshfp(_) => RecordType::Sshfp,
            Self::Naptr(_) => RecordType::Naptr,
            Self::Https(_) => RecordType::Https,
            Self::Svcb(_) => RecordType::Svcb,
            Self::Alias(_) => RecordType::Alias,
            Self::Loc(_) => RecordType::Loc,
            Self::Ds(_) => RecordType::Ds,
            Self::Generic(generic) => generic.rtype(),
        }
    }

    /// The other name this record leads to, if it leads to one.
    pub fn target(&self) -> Option<&Fqdn> {
        let name = match self {
            Self::Cname(name) | Self::Dname(name) | Self::Ns(name) | Self::Ptr(name) | Self::Alias(name) => name,
            Self::Mx { exchange, .. } => exchange,
            Self::Srv { target, .. } => target,
            Self::Naptr(naptr) => &naptr.replacement,
            Self::Https(svcb) | Self::Svcb(svcb) => &svcb.target,
            Self::A(_)
            | Self::Aaaa(_)
            | Self::Txt(_)
            | Self::Soa(_)
            | Self::Caa(_)
            | Self::Tlsa(_)
            | Self::Sshfp(_)
            | Self::Loc(_)
            | Self::Ds(_)
            | Self::Generic(_) => return None,
        };
        (!name.is_root()).then_some(name)
    }

    /// Whether the server is asked to fill in an address hint by itself (`ipv4hint=auto`).
    ///
    /// PowerDNS 4.7 on LMDB takes such a record and then fails to list the zone it is in, so whoever publishes for
    /// others must decide whether to let it through.
    pub fn has_automatic_hint(&self) -> bool {
        match self {
            Self::Https(svcb) | Self::Svcb(svcb) => svcb.params.values().any(|param| *param == SvcParam::AutoHint),
            _ => false,
        }
    }

    /// The text for a server that knows the service parameters `dohpath`, `ohttp` and `tls-supported-groups` by name,
    /// as PowerDNS does from 5.1 on. `None` when that text is the canonical one, which has them by number.
    pub fn text_with_key_names(&self) -> Option<String> {
        let (Self::Https(svcb) | Self::Svcb(svcb)) = self else { return None };
        let mut text = String::new();
        (svcb.has_newer_keys() && svcb.write(&mut text, KeyNames::Names).is_ok()).then_some(text)
    }

    /// Whether both values mean the same: equal, but for the serial of a SOA, which the server counts up by itself.
    pub fn same_meaning(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Soa(ours), Self::Soa(theirs)) => {
                let Soa { mname, rname, serial: _, refresh, retry, expire, minimum } = ours.as_ref();
                (mname, rname, refresh, retry, expire, minimum)
                    == (&theirs.mname, &theirs.rname, &theirs.refresh, &theirs.retry, &theirs.expire, &theirs.minimum)
            }
            _ => self == other,
        }
    }
}

/// A value whose type reads itself.
fn boxed<T>(
    mut scan: Scanner<'_>,
    read: impl FnOnce(&mut Scanner<'_>) -> Result<T, RdataError>,
    wrap: fn(Box<T>) -> Rdata,
) -> Result<Rdata, RdataError> {
    let value = read(&mut scan)?;
    scan.end(wrap(Box::new(value)))
}

/// A record whose value is one name.
fn one_name(mut scan: Scanner<'_>, build: fn(Fqdn) -> Rdata) -> Result<Rdata, RdataError> {
    let name = scan.name("name")?;
    scan.end(build(name))
}

impl fmt::Display for Rdata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A(address) => address.fmt(f),
            Self::Aaaa(address) => HexadecimalIpv6(*address).fmt(f),
            Self::Cname(name) | Self::Dname(name) | Self::Ns(name) | Self::Ptr(name) | Self::Alias(name) => name.fmt(f),
            Self::Mx { preference, exchange } => write!(f, "{preference} {exchange}"),
            Self::Txt(text) => text.fmt(f),
            Self::Srv { priority, weight, port, target } => write!(f, "{priority} {weight} {port} {target}"),
            Self::Soa(soa) => {
                let Soa { mname, rname, serial, refresh, retry, expire, minimum } = soa.as_ref();
                write!(f, "{mname} {rname} {serial} {refresh} {retry} {expire} {minimum}")
            }
            Self::Caa(caa) => caa.fmt(f),
            Self::Tlsa(tlsa) => tlsa.fmt(f),
            Self::Sshfp(sshfp) => sshfp.fmt(f),
            Self::Naptr(naptr) => naptr.fmt(f),
            Self::Https(svcb) | Self::Svcb(svcb) => svcb.fmt(f),
            Self::Loc(loc) => loc.fmt(f),
            Self::Ds(ds) => ds.fmt(f),
            Self::Generic(generic) => generic.fmt(f),
        }
    }
}

/// As the canonical text. There is no `Deserialize`: a text alone does not have its type; a `RecordSet` has.
impl Serialize for Rdata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
