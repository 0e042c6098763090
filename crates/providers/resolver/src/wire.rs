//! Questions and answers as they travel, and hickory's values as ours.

use std::collections::BTreeSet;

use data_encoding::{BASE64, HEXLOWER};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::svcb::{SVCB, SvcParamValue};
use hickory_proto::rr::{Name, RData, Record, RecordType as WireType};
use signpost_dns::{Fqdn, Rdata, RecordType, Text};

use crate::answer::{Rcode, octets};

/// What fits into a datagram on every path (as recommended for DNS since 2020).
const PAYLOAD: u16 = 1232;
/// Types whose values hickory leaves as octets.
const DS: u16 = 43;
const DNAME: u16 = 39;
/// Longest chain of CNAME records that is followed.
pub(crate) const MOST_HOPS: usize = 16;

/// Octets that the values of one answer may take. All addresses that fit into a message take less. Names in a message are compressed, so the values of
/// 64 KiB can take some MiB.
const MOST_OCTETS: usize = 256 << 10;

/// A question, with a drawn id.
pub(crate) fn question(name: &Name, rtype: WireType, recursive: bool, edns: bool) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = recursive;
    message.add_query(Query::query(name.clone(), rtype));
    if edns {
        let mut options = Edns::new();
        options.set_max_payload(PAYLOAD);
        message.set_edns(options);
    }
    message
}

/// Whether a message answers the question. Everything else is dropped: late answers to other questions, forgeries.
pub(crate) fn answers(question: &Message, answer: &Message) -> bool {
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && answer.metadata.op_code == OpCode::Query
        && match (&question.queries[..], &answer.queries[..]) {
            ([asked], [echoed]) => {
                asked.query_type == echoed.query_type
                    && asked.query_class == echoed.query_class
                    && asked.name.to_lowercase() == echoed.name.to_lowercase()
            }
            // A server that does not understand a message need not repeat the question.
            (_, []) => answer.metadata.response_code != ResponseCode::NoError,
            _ => false,
        }
}

pub(crate) fn rcode(message: &Message) -> Rcode {
    match message.metadata.response_code {
        ResponseCode::NoError => Rcode::NoError,
        ResponseCode::NXDomain => Rcode::NxDomain,
        ResponseCode::ServFail => Rcode::ServFail,
        ResponseCode::Refused => Rcode::Refused,
        other => Rcode::Other(u16::from(other)),
    }
}

/// A name as hickory carries it; `None` when it cannot be sent.
pub(crate) fn wire_name(name: &Fqdn) -> Option<Name> {
    let labels: Vec<_> = name.label_octets().collect();
    let mut out = Name::from_labels(labels.iter().map(AsRef::as_ref)).ok()?;
    out.set_fqdn(true);
    Some(out)
}

/// A type as hickory carries it; `None` when it has no number.
pub(crate) fn wire_type(rtype: RecordType) -> Option<WireType> {
    if let RecordType::Other(mnemonic) = rtype
        && let Some(number) = mnemonic.as_str().strip_prefix("TYPE")
    {
        return number.parse::<u16>().ok().map(WireType::from);
    }
    rtype.as_str().parse().ok()
}

/// What one message says about a name.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The targets of the CNAME records that lead away from the name, in order.
    pub(crate) hops: Vec<Fqdn>,
    /// The values at the end of the chain.
    pub(crate) values: Vec<Rdata>,
    /// The smallest TTL.
    pub(crate) ttl: Option<u32>,
    /// About how much memory the values take.
    octets: usize,
}

/// Why a message cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The chain does not end.
    Loop(Fqdn),
    /// A value is wrong.
    Value(String),
}

impl Read {
    /// Adds a record at the end of the chain.
    fn push(&mut self, record: &Record) -> Result<(), Unreadable> {
        let value = value(&record.data).map_err(Unreadable::Value)?;
        self.octets += octets(&value);
        if self.octets > MOST_OCTETS {
            return Err(Unreadable::Value(format!("its values take more than {} KiB", MOST_OCTETS >> 10)));
        }
        self.values.push(value);
        self.keep_for(record.ttl);
        Ok(())
    }

    fn keep_for(&mut self, ttl: u32) {
        self.ttl = Some(self.ttl.map_or(ttl, |shortest| shortest.min(ttl)));
    }
}

/// Follows the chain within one message, from `name`, and reads the values at its end. Records of other names do not count.
pub(crate) fn read(message: &Message, name: &Name, rtype: WireType) -> Result<Read, Unreadable> {
    let mut read = Read::default();
    let mut at = name.to_lowercase();
    let mut seen = BTreeSet::from([at.clone()]);
    loop {
        let here = |record: &&Record| record.name.to_lowercase() == at;
        let records = message.answers.iter().filter(here);
        let mut found = false;
        for record in records.clone().filter(|record| record.record_type() == rtype) {
            read.push(record)?;
            found = true;
        }
        let next = records.clone().find_map(|record| match &record.data {
            RData::CNAME(target) => Some((record.ttl, &target.0)),
            _ => None,
        });
        let Some((ttl, target)) = next.filter(|_| !found) else { break };
        let hop = match name_of(target).map_err(Unreadable::Value)? {
            hop if read.hops.len() >= MOST_HOPS => return Err(Unreadable::Loop(hop)),
            hop => hop,
        };
        read.keep_for(ttl);
        at = target.to_lowercase();
        if !seen.insert(at.clone()) {
            return Err(Unreadable::Loop(hop));
        }
        read.hops.push(hop);
    }
    if read.values.is_empty() && read.hops.is_empty() {
        delegated(message, name, rtype, &mut read)?;
    }
    if read.values.is_empty() {
        // How long a negative answer may be kept.
        let negative = message.authorities.iter().find_map(|record| match &record.data {
            RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
            _ => None,
        });
        if let Some(ttl) = negative {
            read.keep_for(ttl);
        }
    }
    read.values.sort_unstable();
    read.values.dedup();
    Ok(read)
}

/// Reads a referral: a server that does not have a zone itself names the servers of the zone, and their addresses, beside an empty answer.
/// For these records of the parent zone, it is the answer.
fn delegated(message: &Message, name: &Name, rtype: WireType, read: &mut Read) -> Result<(), Unreadable> {
    let is_soa = |record: &Record| matches!(record.data, RData::SOA(_));
    let metadata = &message.metadata;
    if metadata.authoritative || metadata.response_code != ResponseCode::NoError || !message.answers.is_empty() {
        return Ok(());
    }
    if message.authorities.iter().any(is_soa) || !message.authorities.iter().any(|it| it.record_type() == WireType::NS)
    {
        return Ok(());
    }
    let section = if rtype == WireType::NS { &message.authorities } else { &message.additionals };
    let here = |record: &&Record| record.record_type() == rtype && record.name.to_lowercase() == name.to_lowercase();
    for record in section.iter().filter(here) {
        read.push(record)?;
    }
    Ok(())
}

/// The zone that a message names as the authority for a name: the owner of its SOA record. `None` for an alias, where it is the target's.
pub(crate) fn zone(message: &Message) -> Option<Fqdn> {
    if message.answers.iter().any(|record| matches!(record.data, RData::CNAME(_))) {
        return None;
    }
    let records = message.answers.iter().chain(&message.authorities);
    let soa = records.into_iter().find(|record| matches!(record.data, RData::SOA(_)))?;
    name_of(&soa.name).ok()
}

/// A name of an answer, as data: any octet may be in it.
fn name_of(name: &Name) -> Result<Fqdn, String> {
    match Rdata::parse(&RecordType::Ptr, &escaped(name)) {
        Ok(Rdata::Ptr(name)) => Ok(name),
        Ok(_) => Err("it is not a name".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// A name as text, with everything but letters, digits, `-` and `_` escaped.
fn escaped(name: &Name) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for label in name {
        for octet in label {
            match octet {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' | b'*' => text.push(char::from(*octet)),
                _ => {
                    // Writing to a string does not fail.
                    let _ = write!(text, "\\{octet:03}");
                }
            }
        }
        text.push('.');
    }
    if text.is_empty() { ".".into() } else { text }
}

/// A value of an answer.
fn value(data: &RData) -> Result<Rdata, String> {
    let parse = |rtype: RecordType, text: &str| Rdata::parse(&rtype, text).map_err(|error| error.to_string());
    match data {
        RData::A(address) => Ok(Rdata::A(address.0)),
        RData::AAAA(address) => Ok(Rdata::Aaaa(address.0)),
        RData::CNAME(name) => name_of(&name.0).map(Rdata::Cname),
        RData::NS(name) => name_of(&name.0).map(Rdata::Ns),
        RData::PTR(name) => name_of(&name.0).map(Rdata::Ptr),
        RData::MX(mx) => Ok(Rdata::Mx { preference: mx.preference, exchange: name_of(&mx.exchange)? }),
        RData::SRV(srv) => {
            let target = name_of(&srv.target)?;
            Ok(Rdata::Srv { priority: srv.priority, weight: srv.weight, port: srv.port, target })
        }
        RData::TXT(txt) => Text::of_strings(txt.txt_data.iter()).map(Rdata::Txt).map_err(|error| error.to_string()),
        RData::CAA(caa) => {
            let quoted = Text::new(&caa.value).map_err(|error| error.to_string())?;
            parse(RecordType::Caa, &format!("{} {} {quoted}", caa.flags(), caa.tag))
        }
        RData::HTTPS(https) => parse(RecordType::Https, &service_binding(&https.0)?),
        RData::SVCB(svcb) => parse(RecordType::Svcb, &service_binding(svcb)?),
        RData::NAPTR(naptr) => {
            let quoted =
                |octets: &[u8]| Text::new(octets).map(|text| text.to_string()).map_err(|error| error.to_string());
            let (flags, services, expression) =
                (quoted(&naptr.flags)?, quoted(&naptr.services)?, quoted(&naptr.regexp)?);
            let (order, preference, name) = (naptr.order, naptr.preference, escaped(&naptr.replacement));
            parse(RecordType::Naptr, &format!("{order} {preference} {flags} {services} {expression} {name}"))
        }
        RData::Unknown { code, rdata } if u16::from(*code) == DS => delegation_signer(&rdata.anything),
        RData::Unknown { code, rdata } if u16::from(*code) == DNAME => {
            let name = uncompressed(&rdata.anything).ok_or("it is not a name")?;
            name_of(&name).map(Rdata::Dname)
        }
        RData::Unknown { code, rdata } => {
            let octets = &rdata.anything;
            let hex = HEXLOWER.encode(octets);
            let rtype = format!("TYPE{}", u16::from(*code)).parse::<RecordType>().map_err(|error| error.to_string())?;
            parse(rtype, &format!("\\# {} {hex}", octets.len()))
        }
        other => {
            let rtype = other.record_type().to_string().parse::<RecordType>().map_err(|error| error.to_string())?;
            parse(rtype, &other.to_string())
        }
    }
}

/// The digest of a key in the parent zone: key tag, algorithm, digest type, digest.
fn delegation_signer(octets: &[u8]) -> Result<Rdata, String> {
    let [high, low, algorithm, digest, rest @ ..] = octets else { return Err("it is too short".into()) };
    let tag = u16::from_be_bytes([*high, *low]);
    let text = format!("{tag} {algorithm} {digest} {}", HEXLOWER.encode(rest));
    Rdata::parse(&RecordType::Ds, &text).map_err(|error| error.to_string())
}

/// A name that is written label by label.
fn uncompressed(mut octets: &[u8]) -> Option<Name> {
    let mut labels: Vec<&[u8]> = Vec::new();
    loop {
        let (length, rest) = octets.split_first()?;
        if *length == 0 {
            break;
        }
        let (label, rest) = rest.split_at_checked(usize::from(*length)).filter(|_| *length < 64)?;
        labels.push(label);
        octets = rest;
    }
    Name::from_labels(labels).ok()
}

/// A service binding as text. Values that are not text are written as octets.
fn service_binding(svcb: &SVCB) -> Result<String, String> {
    let mut text = format!("{} {}", svcb.svc_priority, escaped(&svcb.target_name));
    for (key, value) in &svcb.svc_params {
        let list = |items: Vec<String>| items.join(",");
        let value = match value {
            SvcParamValue::Mandatory(keys) => list(keys.0.iter().map(ToString::to_string).collect()),
            SvcParamValue::Alpn(names) => list(names.0.clone()),
            SvcParamValue::NoDefaultAlpn => {
                text.push_str(" no-default-alpn");
                continue;
            }
            SvcParamValue::Port(port) => port.to_string(),
            SvcParamValue::Ipv4Hint(hints) => list(hints.0.iter().map(ToString::to_string).collect()),
            SvcParamValue::Ipv6Hint(hints) => list(hints.0.iter().map(ToString::to_string).collect()),
            SvcParamValue::EchConfigList(ech) => BASE64.encode(&ech.0),
            SvcParamValue::Unknown(octets) => Text::new(&octets.0).map_err(|error| error.to_string())?.to_string(),
        };
        text.extend([" ", &key.to_string(), "=", &value]);
    }
    Ok(text)
}
