//! The plan for the zone itself: its settings, its apex NS and its start of authority. Pure.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use jiff::Timestamp;
use signpost_apis::powerdns::{SoaEditApi, SoaSpec, ZoneSpec};
use signpost_dns::{Fqdn, Rdata, RecordKey, RecordType, ZoneName};
use signpost_planning::{Reason, Refusal};
use signpost_provider_powerdns::{CommentChange, ErrorClass, NewZone, ServerError, SetContent, ZoneSettings};

use super::{
    Atom, Waiting, Write, ZoneStep,
    memory::{Present, ZoneMemory},
};
use crate::index::{
    digest::Digest,
    record::{ZoneObject, content},
};

/// The TTL of an apex NS set where the server has none yet.
const NS_TTL: u32 = 3600;

/// Whether the zone object itself asks for this record set.
pub(crate) fn holds(zone: &ZoneName, holder: &ZoneObject, key: &RecordKey) -> bool {
    key.name == *zone.name()
        && match key.rtype {
            RecordType::Ns => !holder.spec.nameservers.is_empty(),
            RecordType::Soa => holder.spec.soa.is_some(),
            _ => false,
        }
}

/// The primary that PowerDNS names in a zone that is created without a start of authority.
const MISCONFIGURED: &str = "a.misconfigured.dns.server.invalid.";

/// A step, and what of it is refused although the rest is done.
type Step = (ZoneStep, Option<Refusal>);

/// Creation, or the settings that differ.
pub(crate) fn step(zone: &ZoneName, holder: &ZoneObject, memory: &ZoneMemory, now: Timestamp) -> Result<Step, Refusal> {
    let spec = &*holder.spec;
    let catalog = catalog(spec)?;
    let secondary = spec.kind.is_secondary();
    let (counting, refusal) = counting(holder, memory, now);
    let Some(present) = &memory.present else {
        let new = NewZone {
            name: zone.clone(),
            kind: spec.kind.as_str().to_owned(),
            nameservers: if secondary { Vec::new() } else { nameservers(spec)? },
            settings: ZoneSettings {
                kind: None,
                masters: secondary.then(|| spec.masters.clone()),
                catalog: (!catalog.is_empty()).then_some(catalog),
                account: spec.account.clone(),
                soa_edit_api: Some(counting.unwrap_or(SoaEditApi::Default).as_str().to_owned()),
                // A rectify walks the whole zone after every change and does nothing for an unsigned zone.
                api_rectify: Some(spec.api_rectify.unwrap_or(spec.dnssec == Some(true))),
                dnssec: spec.dnssec.filter(|signed| *signed),
            },
        };
        return Ok((ZoneStep::Create(new), refusal));
    };
    let info = &present.info;
    let differs = |have: &str, want: &str| (!have.eq_ignore_ascii_case(want)).then(|| want.to_owned());
    let sorted = |list: &[String]| list.iter().map(|item| canonical_master(item)).collect::<BTreeSet<_>>();
    let signed = spec.dnssec.unwrap_or(info.dnssec) && !secondary;
    let settings = ZoneSettings {
        kind: differs(&info.kind, spec.kind.as_str()),
        masters: (secondary && sorted(&info.masters) != sorted(&spec.masters)).then(|| spec.masters.clone()),
        catalog: differs(&info.catalog, &catalog),
        account: spec.account.as_deref().filter(|account| *account != info.account).map(str::to_owned),
        soa_edit_api: counting.and_then(|counting| differs(&info.soa_edit_api, counting.as_str())),
        // A record in a signed zone has no valid answer until the zone is rectified.
        api_rectify: spec.api_rectify.or(signed.then_some(true)).filter(|rectify| *rectify != info.api_rectify),
        dnssec: spec.dnssec.filter(|signed| *signed != info.dnssec),
    };
    let step = if settings.is_empty() { ZoneStep::Keep } else { ZoneStep::Configure(settings) };
    Ok((step, refusal))
}

/// The shape of a zone, which tells one that was created for an object from a foreign one: its kind, its way of counting and of
/// rectifying, its account, and its masters or else its name servers.
fn shape(kind: &str, settings: (&str, bool, &str), masters: &[String], nameservers: &BTreeSet<String>) -> Digest {
    let (counting, rectify, account) = settings;
    let masters: BTreeSet<String> = masters.iter().map(|master| canonical_master(master)).collect();
    // The name servers of a secondary come from its masters.
    let hosts = if masters.is_empty() { nameservers } else { &masters };
    let words = [kind.to_lowercase(), counting.to_uppercase(), rectify.to_string(), account.to_owned()];
    Digest::of_shape(words.iter().chain(hosts).map(String::as_str))
}

/// The shape of the zone that a request asks for.
pub(crate) fn shape_asked(new: &NewZone) -> Digest {
    let NewZone { name: _, kind, nameservers, settings } = new;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (counting, account) = (text(&settings.soa_edit_api), text(&settings.account));
    let settings_asked = (counting.as_str(), settings.api_rectify == Some(true), account.as_str());
    let hosts = nameservers.iter().map(ToString::to_string).collect();
    shape(kind, settings_asked, settings.masters.as_deref().unwrap_or_default(), &hosts)
}

/// The shape of the zone that the server has.
pub(crate) fn shape_served(present: &Present) -> Digest {
    let info = &present.info;
    let hosts = present.apex_ns.as_ref().map(|(_, hosts)| hosts.clone()).unwrap_or_default();
    shape(&info.kind, (&info.soa_edit_api, info.api_rectify, &info.account), &info.masters, &hosts)
}

/// The shape of the zone that the object asks for now.
pub(crate) fn wanted_shape(zone: &ZoneName, holder: &ZoneObject, now: Timestamp) -> Option<Digest> {
    match step(zone, holder, &ZoneMemory::default(), now) {
        Ok((ZoneStep::Create(new), _)) => Some(shape_asked(&new)),
        _ => None,
    }
}

/// The serial that secondaries have seen of the zone: theirs must never be above the served one. A zone whose
/// content comes from elsewhere has its serial from there.
pub(crate) fn serial_floor(holder: &ZoneObject) -> Option<u32> {
    let last = holder.decided().serial.or(holder.status.serial);
    last.and_then(|serial| u32::try_from(serial).ok()).filter(|_| !holder.spec.kind.is_secondary())
}

/// Whether one serial is older than another, also for secondaries, which compare them on a circle (RFC 1982). A serial
/// that wrapped around is not.
pub(crate) fn is_older(serial: u32, than: u32) -> bool {
    than.checked_sub(serial).is_some_and(|ahead| (1..0x8000_0000).contains(&ahead))
}

/// The serial that secondaries have seen, where the server's is older and can be raised. A server that was restored or
/// that lost the zone has such a serial.
pub(crate) fn behind(holder: &ZoneObject, memory: &ZoneMemory, now: Timestamp) -> Option<u32> {
    let info = &memory.present.as_ref()?.info;
    let floor = serial_floor(holder).filter(|floor| is_older(info.serial, *floor))?;
    // The server takes the time for a serial, whatever it is given.
    let fixed = info.soa_edit_api == SoaEditApi::Epoch.as_str() && is_older(epoch(now), floor);
    (!fixed).then_some(floor)
}

fn epoch(now: Timestamp) -> u32 {
    u32::try_from(now.as_second()).unwrap_or(u32::MAX)
}

/// How the serial is to move. `None` leaves it as the server has it: the setting asked for would take the serial back.
fn counting(holder: &ZoneObject, memory: &ZoneMemory, now: Timestamp) -> (Option<SoaEditApi>, Option<Refusal>) {
    let wanted = holder.spec.soa_edit_api;
    let floor = serial_floor(holder);
    let primary = !holder.spec.kind.is_secondary();
    let served = memory.present.as_ref().map(|present| present.info.serial).filter(|_| primary);
    let known = [floor, served].into_iter().flatten().find(|serial| is_older(epoch(now), *serial));
    let current = memory.present.as_ref().map(|present| present.info.soa_edit_api.as_str());
    match known {
        Some(serial) if wanted == SoaEditApi::Epoch && current != Some(wanted.as_str()) => {
            // Without the time of day: a message that changes by itself would be a status write at every pass.
            let message = format!(
                "spec.soa_edit_api: EPOCH would take the serial from {serial} back to the time of the change, and secondaries would ignore every further change. Use DEFAULT or INCREASE"
            );
            (None, Some(Refusal::new(Reason::InvalidSpec, message)))
        }
        _ => (Some(wanted), None),
    }
}

/// A master's address in one spelling, with its port; a text that is not an address is left to the server to refuse.
fn canonical_master(master: &str) -> String {
    let bare = master.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(master);
    let with_default_port = || bare.parse().map(|address: IpAddr| SocketAddr::new(address, 53));
    master
        .parse()
        .or_else(|_| with_default_port())
        .map_or_else(|_| master.to_owned(), |address: SocketAddr| address.to_string())
}

fn catalog(spec: &ZoneSpec) -> Result<String, Refusal> {
    match spec.catalog.as_deref().filter(|catalog| !catalog.is_empty()) {
        None => Ok(String::new()),
        Some(text) => match ZoneName::parse(text) {
            Ok(name) => Ok(name.to_string()),
            Err(error) => Err(Refusal::new(Reason::InvalidName, format!("spec.catalog: {error}"))),
        },
    }
}

fn nameservers(spec: &ZoneSpec) -> Result<Vec<Fqdn>, Refusal> {
    let parse = |(index, host): (usize, &String)| {
        Fqdn::parse(host)
            .map_err(|error| Refusal::new(Reason::InvalidName, format!("spec.nameservers[{index}]: {error}")))
    };
    spec.nameservers.iter().enumerate().map(parse).collect()
}

/// The record sets at the apex that the zone object itself asks for and the server does not have, each for itself. A
/// start of authority is asked for without words, unless a record set is one.
pub(crate) fn apex(
    zone: &ZoneName,
    holder: &Arc<ZoneObject>,
    memory: &ZoneMemory,
    soa_elsewhere: bool,
    now: Timestamp,
) -> Vec<Result<Atom, Refusal>> {
    let apex = zone.name();
    let atom = |(rtype, content): (RecordType, SetContent)| {
        let key = RecordKey::new(apex.clone(), rtype);
        let digest = Digest::of_content(rtype, &content);
        let rejection = memory.rejected.get(&key).filter(|r| r.digest == digest && r.until > now);
        if let Some(rejection) = rejection {
            return Err(Refusal::new(Reason::ProviderRejected, rejection.words.clone()));
        }
        let content = Arc::new(content);
        // The zone's finalizer is on before anything is written, so its own sets need no ledger.
        let write = Write { key, content, digest, comment: CommentChange::Keep, ledger: false, endpoint: false };
        Ok(Atom { name: apex.clone(), deletes: vec![], write: Some(write), waiting: vec![Waiting::Zone] })
    };
    let wanted = [apex_soa(zone, holder, memory, soa_elsewhere, now), apex_ns(holder, memory)];
    wanted.into_iter().filter_map(Result::transpose).map(|wanted| wanted.and_then(atom)).collect()
}

type Wanted = Result<Option<(RecordType, SetContent)>, Refusal>;

fn apex_soa(zone: &ZoneName, holder: &ZoneObject, memory: &ZoneMemory, elsewhere: bool, now: Timestamp) -> Wanted {
    let Some(present) = &memory.present else { return Ok(None) };
    let first = || first_soa(zone, &holder.spec);
    let default = match &present.soa {
        None if !elsewhere => Some(first()),
        // The server names no primary in a zone that was created without one.
        Some((_, text)) if memory.created && !elsewhere && text.starts_with(MISCONFIGURED) => {
            (!holder.spec.nameservers.is_empty()).then(first)
        }
        _ => None,
    };
    let behind = behind(holder, memory, now).is_some();
    let content = match (holder.spec.soa.clone().or(default), &present.soa) {
        (Some(soa), _) => soa_content(&soa)?,
        // As it is, but with a serial that secondaries take for a newer one.
        (None, Some((ttl, text))) if behind => {
            SetContent { ttl: *ttl, records: Box::new([text.clone()]), comment: None }
        }
        (None, _) => return Ok(None),
    };
    let digest = Digest::of_content(RecordType::Soa, &content);
    let key = RecordKey::new(zone.name().clone(), RecordType::Soa);
    let there = present.sets.get(&key) == Some(&digest);
    Ok((!there || behind).then_some((RecordType::Soa, content)))
}

fn apex_ns(holder: &ZoneObject, memory: &ZoneMemory) -> Wanted {
    let hosts = nameservers(&holder.spec)?;
    // A zone that is made now gets its name servers with it.
    let (false, Some(present)) = (hosts.is_empty(), &memory.present) else { return Ok(None) };
    let wanted: BTreeSet<String> = hosts.iter().map(ToString::to_string).collect();
    let (ttl, have) = present.apex_ns.clone().unwrap_or((NS_TTL, BTreeSet::new()));
    let records: Vec<Rdata> = hosts.into_iter().map(Rdata::Ns).collect();
    Ok((wanted != have).then(|| (RecordType::Ns, content(ttl, &records, None))))
}

/// The start of authority of a zone that the server created without one, because its content was to come from elsewhere.
fn first_soa(zone: &ZoneName, spec: &ZoneSpec) -> SoaSpec {
    let primary = spec.nameservers.first().cloned().unwrap_or_else(|| zone.to_string());
    SoaSpec {
        primary,
        mailbox: format!("hostmaster.{zone}"),
        refresh: 10_800,
        retry: 3_600,
        expire: 604_800,
        minimum: 3_600,
        ttl: 3_600,
    }
}

fn soa_content(soa: &SoaSpec) -> Result<SetContent, Refusal> {
    let SoaSpec { primary, mailbox, refresh, retry, expire, minimum, ttl } = soa;
    // An address is the same as a name whose first dot is the at sign.
    let mailbox = match mailbox.split_once('@') {
        Some((local, domain)) => format!("{}.{domain}", local.replace('.', "\\.")),
        None => mailbox.clone(),
    };
    let dotted = |name: &str| if name.ends_with('.') { name.to_owned() } else { format!("{name}.") };
    let text = format!("{} {} 1 {refresh} {retry} {expire} {minimum}", dotted(primary), dotted(&mailbox));
    let record = Rdata::parse(&RecordType::Soa, &text)
        .map_err(|error| Refusal::new(Reason::InvalidRecord, format!("spec.soa: {error}")))?;
    Ok(content(u32::try_from(*ttl).unwrap_or(NS_TTL), &[record], None))
}

/// A start of authority never takes the serial back: the server counts on from the one it is given.
pub(crate) fn with_safe_serial(
    present: Option<&Present>,
    floor: Option<u32>,
    key: &RecordKey,
    content: &Arc<SetContent>,
) -> Arc<SetContent> {
    let (RecordType::Soa, Some(present), [record]) = (key.rtype, present, &*content.records) else {
        return content.clone();
    };
    let Ok(Rdata::Soa(mut soa)) = Rdata::parse(&RecordType::Soa, record) else { return content.clone() };
    soa.serial = soa.serial.max(present.info.serial);
    if let Some(floor) = floor.filter(|floor| is_older(soa.serial, *floor)) {
        soa.serial = floor;
    }
    let records = Box::new([Rdata::Soa(soa).to_string().into()]);
    Arc::new(SetContent { records, ..(**content).clone() })
}

/// The refusal that a failed call means for the objects that wait for it.
pub(crate) fn server_refusal(error: &ServerError) -> Refusal {
    let reason = match error.class() {
        ErrorClass::Transient | ErrorClass::Missing => Reason::ProviderUnreachable,
        ErrorClass::Throttled(_) => Reason::ProviderThrottled,
        ErrorClass::Refused => Reason::ProviderRejected,
        ErrorClass::Unauthorised => Reason::ProviderUnauthorized,
    };
    // A pause reports what led to it and nothing else, so that a status is unchanged from try to try.
    match error {
        ServerError::Paused { refused_key: true, why, .. } => Refusal::new(Reason::ProviderUnauthorized, why),
        ServerError::Paused { refused_key: false, why, .. } => Refusal::new(Reason::ProviderUnreachable, why),
        _ => Refusal::new(reason, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use signpost_apis::powerdns::Zone;
    use signpost_engine::{Identity, ObjectId};
    use signpost_provider_powerdns::{ZoneContents, ZoneInfo};

    use crate::plan::memory::plain_info;

    fn zone() -> ZoneName {
        ZoneName::parse("example.com").unwrap()
    }

    fn holder(spec: Value) -> Arc<ZoneObject> {
        let id = Arc::new(ObjectId::new::<Zone>(Some("ns"), "example.com"));
        let spec = serde_json::from_value(spec).unwrap();
        let identity = Identity::of_meta(id, &kube::core::ObjectMeta::default());
        Arc::new(ZoneObject::of(identity, &spec, None))
    }

    /// A zone without any record.
    fn present(dnssec: bool, api_rectify: bool) -> Present {
        let info = ZoneInfo { dnssec, api_rectify, ..plain_info(zone()) };
        Present::of(&ZoneContents { info, sets: vec![] })
    }

    #[test]
    fn a_signed_zone_is_rectified_unless_the_spec_says_otherwise_and_never_unsigned_unasked() {
        let sent = |spec: Value, present: Present| {
            let memory = ZoneMemory { present: Some(present), ..ZoneMemory::default() };
            match step(&zone(), &holder(spec), &memory, Timestamp::UNIX_EPOCH).unwrap() {
                (ZoneStep::Configure(settings), None) => (settings.dnssec, settings.api_rectify),
                (ZoneStep::Keep, None) => (None, None),
                other => panic!("{other:?}"),
            }
        };
        let plain = || json!({ "kind": "Native" });
        let signed = || json!({ "kind": "Native", "dnssec": true });
        assert_eq!(sent(plain(), present(false, false)), (None, None));
        assert_eq!(sent(plain(), present(false, true)), (None, None));
        assert_eq!(sent(plain(), present(true, false)), (None, Some(true)));
        assert_eq!(sent(plain(), present(true, true)), (None, None));
        assert_eq!(sent(signed(), present(false, false)), (Some(true), Some(true)));
        assert_eq!(sent(json!({ "kind": "Native", "dnssec": false }), present(true, true)), (Some(false), None));
        let by_hand = json!({ "kind": "Native", "dnssec": true, "apiRectify": false });
        assert_eq!(sent(by_hand, present(true, true)), (None, Some(false)));
    }

    #[test]
    fn a_pause_is_told_in_the_words_of_the_failure_before_it() {
        let failures = [ServerError::Unauthorised { status: 401 }, ServerError::Unreachable { why: "refused".into() }];
        for failure in failures {
            let paused = ServerError::Paused {
                why: failure.to_string(),
                retry_after: std::time::Duration::from_secs(7),
                refused_key: failure.class() == ErrorClass::Unauthorised,
            };
            assert_eq!(server_refusal(&paused), server_refusal(&failure));
        }
    }

    #[test]
    fn masters_are_compared_as_addresses() {
        for (one, other) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("2001:0db8:0:0::53", "2001:db8::53"),
            ("[2001:db8::53]", "[2001:DB8::53]:53"),
        ] {
            assert_eq!(canonical_master(one), canonical_master(other));
        }
        for (one, other) in [("192.0.2.53", "192.0.2.53:5300"), ("[2001:db8::53]:5300", "2001:db8::53")] {
            assert_ne!(canonical_master(one), canonical_master(other));
        }
        assert_eq!(canonical_master("no address"), "no address");
    }

    #[test]
    fn a_zone_without_a_start_of_authority_gets_one_unless_a_record_set_is_one() {
        let holder = holder(json!({ "kind": "Native", "nameservers": ["ns1.example.org"] }));
        let memory = ZoneMemory { present: Some(present(false, false)), ..ZoneMemory::default() };
        let types = |memory: &ZoneMemory, elsewhere| {
            let atoms =
                apex(&zone(), &holder, memory, elsewhere, Timestamp::UNIX_EPOCH).into_iter().map(Result::unwrap);
            atoms.filter_map(|atom| atom.write).map(|write| write.key.rtype).collect::<Vec<_>>()
        };
        assert_eq!(types(&memory, false), [RecordType::Soa, RecordType::Ns]);
        assert_eq!(types(&memory, true), [RecordType::Ns]);
        let with_one = Present { soa: Some((3600, "ns1. host. 1 2 3 4 5".into())), ..present(false, false) };
        let memory = ZoneMemory { present: Some(with_one), ..ZoneMemory::default() };
        assert_eq!(types(&memory, false), [RecordType::Ns]);
    }
    #[test]
    fn what_is_wrong_with_the_start_of_authority_keeps_no_name_server_back_and_the_other_way_round() {
        let soa = |mailbox: &str| json!({ "primary": "ns1.example.org", "mailbox": mailbox });
        let parts = |spec: Value| {
            let memory = ZoneMemory { present: Some(present(false, false)), ..ZoneMemory::default() };
            let parts = apex(&zone(), &holder(spec), &memory, false, Timestamp::UNIX_EPOCH);
            let words = parts.into_iter().map(|part| match part {
                Ok(atom) => atom.write.unwrap().key.rtype.to_string(),
                Err(refusal) => refusal.reason.to_string(),
            });
            words.collect::<Vec<_>>()
        };
        let ns = json!(["ns2.example.org"]);
        assert_eq!(parts(json!({ "kind": "Native", "nameservers": ns, "soa": soa("a..b") })), ["InvalidRecord", "NS"]);
        let bad = json!(["not..a.name"]);
        assert_eq!(
            parts(json!({ "kind": "Native", "nameservers": bad, "soa": soa("host.example.org") })),
            ["SOA", "InvalidName"]
        );
    }

    #[test]
    fn serials_are_compared_as_secondaries_do() {
        for (older, newer) in [(2, 9), (9, 2_026_111_601), (1_794_830_000, 2_026_111_601)] {
            assert!(is_older(older, newer) && !is_older(newer, older), "{older} {newer}");
        }
        assert!(!is_older(7, 7) && !is_older(3, 4_294_967_295) && !is_older(4_294_967_295, 3));
    }

    /// A zone object whose status reports this serial, and the zone at serial 7.
    fn seen_at(serial: i64, mode: &str, present: Present) -> (Arc<ZoneObject>, ZoneMemory) {
        let mut object = (*holder(json!({ "kind": "Native", "soa_edit_api": mode }))).clone();
        let status = signpost_apis::powerdns::ZoneStatus { serial: Some(serial), ..Default::default() };
        object.status = Arc::new(status);
        (Arc::new(object), ZoneMemory { present: Some(present), ..ZoneMemory::default() })
    }

    #[test]
    fn a_zone_with_an_older_serial_than_reported_gets_its_start_of_authority_raised() {
        let soa = Some((60, "ns1.example.org. host.example.org. 7 1 2 3 4".into()));
        let raised = |serial| {
            let (holder, memory) = seen_at(serial, "DEFAULT", Present { soa: soa.clone(), ..present(false, false) });
            let parts = apex(&zone(), &holder, &memory, false, Timestamp::UNIX_EPOCH);
            let write = parts.into_iter().find_map(|part| part.unwrap().write)?;
            let floor = serial_floor(&holder);
            let content = with_safe_serial(memory.present.as_ref(), floor, &write.key, &write.content);
            Some((content.ttl, content.records[0].to_string()))
        };
        assert_eq!(raised(9), Some((60, "ns1.example.org. host.example.org. 9 1 2 3 4".to_owned())));
        assert_eq!((raised(7), raised(6)), (None, None));
    }

    #[test]
    fn a_refusal_of_epoch_has_the_same_message_an_hour_later() {
        let refusal = |second| {
            let (holder, memory) = seen_at(2_026_111_601, "EPOCH", present(false, false));
            step(&zone(), &holder, &memory, Timestamp::from_second(second).unwrap()).unwrap().1.unwrap()
        };
        assert_eq!(refusal(1_794_830_000), refusal(1_794_833_600));
    }

    #[test]
    fn epoch_is_refused_where_it_would_take_the_serial_back_and_the_rest_is_done() {
        let now = Timestamp::from_second(1_794_830_000).unwrap();
        let steps = |serial| {
            let (holder, mut memory) = seen_at(serial, "EPOCH", present(false, false));
            let configured = step(&zone(), &holder, &memory, now).unwrap();
            memory.present = None;
            (configured, step(&zone(), &holder, &memory, now).unwrap())
        };
        let ((kept, refusal), (created, _)) = steps(2_026_111_601);
        assert_eq!((kept, refusal.unwrap().reason), (ZoneStep::Keep, Reason::InvalidSpec));
        assert!(matches!(created, ZoneStep::Create(new) if new.settings.soa_edit_api.as_deref() == Some("DEFAULT")));
        let ((sent, refusal), _) = steps(9);
        assert!(matches!(sent, ZoneStep::Configure(settings) if settings.soa_edit_api.as_deref() == Some("EPOCH")));
        assert_eq!(refusal, None);
    }
}
