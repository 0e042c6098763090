//! Record values as they travel: type codes, and rdata with uncompressed names.

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::{Name, RData, Record, RecordType as WireType, rdata::NULL};
use signpost_dns::{Fqdn, Loc, Mailbox, Rdata, RecordType, Soa, SvcParam, Svcb};

/// The type's number; `None` for an unassigned mnemonic.
pub(super) fn type_code(rtype: RecordType) -> Option<u16> {
    Some(match rtype {
        RecordType::A => 1,
        RecordType::Ns => 2,
        RecordType::Cname => 5,
        RecordType::Soa => 6,
        RecordType::Ptr => 12,
        RecordType::Mx => 15,
        RecordType::Txt => 16,
        RecordType::Aaaa => 28,
        RecordType::Loc => 29,
        RecordType::Srv => 33,
        RecordType::Naptr => 35,
        RecordType::Dname => 39,
        RecordType::Ds => 43,
        RecordType::Sshfp => 44,
        RecordType::Tlsa => 52,
        RecordType::Svcb => 64,
        RecordType::Https => 65,
        RecordType::Caa => 257,
        RecordType::Alias => 65401,
        RecordType::Other(mnemonic) => return other_code(mnemonic.as_str()),
    })
}

/// Types without a parser of their own that have a number.
const OTHERS: [(&str, u16); 20] = [
    ("HINFO", 13),
    ("MINFO", 14),
    ("RP", 17),
    ("AFSDB", 18),
    ("KEY", 25),
    ("KX", 36),
    ("CERT", 37),
    ("IPSECKEY", 45),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("DHCID", 49),
    ("SMIMEA", 53),
    ("CDS", 59),
    ("CDNSKEY", 60),
    ("OPENPGPKEY", 61),
    ("CSYNC", 62),
    ("SPF", 99),
    ("EUI48", 108),
    ("URI", 256),
];

fn other_code(mnemonic: &str) -> Option<u16> {
    if let Some(number) = mnemonic.strip_prefix("TYPE") {
        return number.parse().ok();
    }
    OTHERS.iter().find(|(name, _)| *name == mnemonic).map(|(_, code)| *code)
}

/// A record ready to send; `None` when its value cannot be put on the wire.
pub(super) fn record(owner: &Fqdn, ttl: u32, rdata: &Rdata) -> Option<Record> {
    let code = WireType::from(type_code(rdata.rtype())?);
    let value = value(rdata)?;
    let rdata = RData::Unknown { code, rdata: if value.is_empty() { NULL::new() } else { NULL::with(value) } };
    Some(Record::from_rdata(name(owner)?, ttl, rdata))
}

/// A name as hickory carries it.
pub(super) fn name(name: &Fqdn) -> Option<Name> {
    let labels: Vec<_> = name.label_octets().collect();
    let mut out = Name::from_labels(labels.iter().map(AsRef::as_ref)).ok()?;
    out.set_fqdn(true);
    Some(out)
}

fn put_name(out: &mut Vec<u8>, name: &Fqdn) {
    for label in name.label_octets() {
        put_string(out, &label);
    }
    out.push(0);
}

/// A length octet and at most 255 octets.
fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(255)];
    out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(text);
}

fn value(rdata: &Rdata) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match rdata {
        Rdata::A(address) => out.extend(address.octets()),
        Rdata::Aaaa(address) => out.extend(address.octets()),
        Rdata::Cname(target) | Rdata::Dname(target) | Rdata::Ns(target) | Rdata::Ptr(target) | Rdata::Alias(target) => {
            put_name(&mut out, target);
        }
        Rdata::Mx { preference, exchange } => {
            out.extend(preference.to_be_bytes());
            put_name(&mut out, exchange);
        }
        Rdata::Txt(text) => {
            for string in text.strings() {
                put_string(&mut out, string);
            }
            if out.is_empty() {
                out.push(0);
            }
        }
        Rdata::Srv { priority, weight, port, target } => {
            for number in [priority, weight, port] {
                out.extend(number.to_be_bytes());
            }
            put_name(&mut out, target);
        }
        Rdata::Soa(soa) => put_soa(&mut out, soa),
        Rdata::Caa(caa) => {
            out.push(caa.flags);
            put_string(&mut out, caa.tag.as_bytes());
            out.extend_from_slice(&caa.value);
        }
        Rdata::Tlsa(tlsa) => {
            out.extend([tlsa.usage, tlsa.selector, tlsa.matching]);
            out.extend_from_slice(&tlsa.data);
        }
        Rdata::Sshfp(sshfp) => {
            out.extend([sshfp.algorithm, sshfp.digest_type]);
            out.extend_from_slice(&sshfp.fingerprint);
        }
        Rdata::Naptr(naptr) => {
            out.extend(naptr.order.to_be_bytes());
            out.extend(naptr.preference.to_be_bytes());
            for text in [&naptr.flags, &naptr.service, &naptr.regexp] {
                put_string(&mut out, text);
            }
            put_name(&mut out, &naptr.replacement);
        }
        Rdata::Https(binding) | Rdata::Svcb(binding) => put_binding(&mut out, binding),
        Rdata::Loc(loc) => put_loc(&mut out, loc)?,
        Rdata::Ds(ds) => {
            out.extend(ds.key_tag.to_be_bytes());
            out.extend([ds.algorithm, ds.digest_type]);
            out.extend_from_slice(&ds.digest);
        }
        Rdata::Generic(generic) => out = octets(&generic.to_string())?,
    }
    Some(out)
}

/// The octets of `\# length hex`; values in a spelling of their own cannot be sent.
fn octets(text: &str) -> Option<Vec<u8>> {
    let mut words = text.strip_prefix("\\#")?.split_whitespace();
    words.next()?;
    let digits: String = words.collect();
    (0..digits.len() / 2).map(|at| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()).collect()
}

fn put_soa(out: &mut Vec<u8>, soa: &Soa) {
    put_name(out, &soa.mname);
    put_mailbox(out, &soa.rname);
    for number in [soa.serial, soa.refresh, soa.retry, soa.expire, soa.minimum] {
        out.extend(number.to_be_bytes());
    }
}

/// A mailbox: labels between dots that are not behind a backslash.
fn put_mailbox(out: &mut Vec<u8>, mailbox: &Mailbox) {
    let mut label = Vec::new();
    let mut quoted = false;
    for c in mailbox.to_string().bytes() {
        match c {
            b'\\' if !quoted => {
                quoted = true;
                continue;
            }
            b'.' if !quoted => {
                if !label.is_empty() {
                    put_string(out, &label);
                    label.clear();
                }
            }
            c => label.push(c),
        }
        quoted = false;
    }
    if !label.is_empty() {
        put_string(out, &label);
    }
    out.push(0);
}

fn put_binding(out: &mut Vec<u8>, binding: &Svcb) {
    out.extend(binding.priority.to_be_bytes());
    put_name(out, &binding.target);
    for (key, param) in &binding.params {
        let mut value = Vec::new();
        match param {
            SvcParam::Mandatory(keys) => value.extend(keys.iter().flat_map(|key| key.to_be_bytes())),
            SvcParam::Alpn(protocols) => {
                for protocol in protocols {
                    put_string(&mut value, protocol);
                }
            }
            SvcParam::NoDefaultAlpn => {}
            SvcParam::Port(port) => value.extend(port.to_be_bytes()),
            SvcParam::Ipv4Hint(addresses) => value.extend(addresses.iter().flat_map(Ipv4Addr::octets)),
            SvcParam::Ipv6Hint(addresses) => value.extend(addresses.iter().flat_map(Ipv6Addr::octets)),
            // A hint that the server is asked to fill in is left out, which is always allowed.
            SvcParam::AutoHint => continue,
            SvcParam::Ech(octets) | SvcParam::Opaque(octets) => value.extend_from_slice(octets),
        }
        out.extend(key.to_be_bytes());
        out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        out.extend(value);
    }
}

fn put_loc(out: &mut Vec<u8>, loc: &Loc) -> Option<()> {
    const EQUATOR: i64 = 1 << 31;
    const GROUND: i64 = 10_000_000;
    out.push(0);
    for extent in [loc.size, loc.horizontal, loc.vertical] {
        out.push(extent_octet(extent));
    }
    for number in [EQUATOR + i64::from(loc.latitude), EQUATOR + i64::from(loc.longitude), GROUND + loc.altitude] {
        out.extend(u32::try_from(number).ok()?.to_be_bytes());
    }
    Some(())
}

/// Centimetres as one digit and a power of ten.
fn extent_octet(centimetres: i64) -> u8 {
    let (mut digit, mut power) = (centimetres, 0_u8);
    while digit > 9 {
        digit /= 10;
        power += 1;
    }
    u8::try_from(digit).unwrap_or(0) << 4 | power
}
