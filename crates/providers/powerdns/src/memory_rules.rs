//! The rules of PowerDNS for a PATCH, with its messages (checked against 4.7).

use signpost_dns::{Fqdn, Rdata, RecordType, ZoneName};

use crate::{
    error::ServerError,
    types::{Action, Change, CommentChange, SetContent},
};

/// Types the server knows besides those with a parser of their own.
const OTHER_TYPES: &[&str] = &[
    "AFSDB",
    "ALIAS",
    "APL",
    "CDNSKEY",
    "CDS",
    "CERT",
    "CSYNC",
    "DHCID",
    "DLV",
    "DNSKEY",
    "EUI48",
    "EUI64",
    "HINFO",
    "IPSECKEY",
    "KEY",
    "KX",
    "L32",
    "L64",
    "LP",
    "LUA",
    "MAILA",
    "MB",
    "MG",
    "MINFO",
    "MR",
    "NID",
    "NSEC",
    "NSEC3",
    "NSEC3PARAM",
    "OPENPGPKEY",
    "RKEY",
    "RP",
    "RRSIG",
    "SIG",
    "SMIMEA",
    "SPF",
    "URI",
    "WKS",
    "ZONEMD",
];

pub(crate) fn refuse(words: String) -> ServerError {
    ServerError::Refused { words }
}

pub(crate) fn known_type(name: &Fqdn, rtype: RecordType) -> Result<(), ServerError> {
    match rtype {
        RecordType::Other(mnemonic)
            if !OTHER_TYPES.contains(&mnemonic.as_str()) && !mnemonic.as_str().starts_with("TYPE") =>
        {
            Err(refuse(format!("RRset {name} IN {rtype}: unknown type given")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn acceptable(
    zone: &ZoneName,
    name: &Fqdn,
    rtype: RecordType,
    content: &SetContent,
    key_names: bool,
) -> Result<(), ServerError> {
    if !name.is_within(zone) {
        return Err(refuse(format!("RRset {name} IN {rtype}: Name is out of zone")));
    }
    let apex = name == zone.name();
    if rtype == RecordType::Soa && !apex {
        return Err(refuse(format!("Record {name} IN {rtype} is only allowed at apex")));
    }
    if rtype == RecordType::Ds && apex {
        return Err(refuse(format!("Record {name} IN {rtype} is not allowed at apex")));
    }
    if rtype.singleton() && content.records.len() > 1 {
        return Err(refuse(format!("RRset {name} IN {rtype} has more than one record")));
    }
    for record in &content.records {
        let parsed = Rdata::parse(&rtype, record).map_err(|error| {
            refuse(format!(
                "Record {name}/{rtype} '{record}': Parsing record content (try 'pdnsutil check-zone'): {error}"
            ))
        })?;
        let named = key_names.then(|| parsed.text_with_key_names()).flatten();
        let canonical = named.unwrap_or_else(|| parsed.to_string());
        if rtype != RecordType::Aaaa && !canonical.eq_ignore_ascii_case(record) {
            return Err(refuse(format!(
                "Record {name}/{rtype} '{record}': Not in expected format (parsed as '{canonical}')"
            )));
        }
    }
    Ok(())
}

pub(crate) fn compatible(
    zone: &ZoneName,
    name: &Fqdn,
    rtype: RecordType,
    present: impl Iterator<Item = RecordType>,
) -> Result<(), ServerError> {
    let apex = name == zone.name();
    for other in present.filter(|other| *other != rtype) {
        let exclusive = rtype == RecordType::Cname || other == RecordType::Cname;
        let pair = [rtype, other];
        let delegated = !apex && pair.contains(&RecordType::Ns) && pair.contains(&RecordType::Dname);
        if exclusive || delegated {
            return Err(refuse(format!("RRset {name} IN {rtype}: Conflicts with pre-existing RRset")));
        }
    }
    Ok(())
}

/// The answer of a backend without comments to a comment.
pub(crate) fn uncommented(changes: &[Change]) -> Result<(), ServerError> {
    let commented = |change: &&Change| matches!(&change.action, Action::Replace { comment: CommentChange::Are(_), .. });
    match changes.iter().find(commented) {
        Some(_) => Err(refuse("Hosting backend does not support editing comments.".to_owned())),
        None => Ok(()),
    }
}

/// The serial in a SOA's text.
pub(crate) fn soa_serial(soa: &str) -> Option<u32> {
    soa.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// The SOA's text with another serial.
pub(crate) fn with_serial(soa: &str, serial: u32) -> Box<str> {
    let mut fields: Vec<String> = soa.split_ascii_whitespace().map(str::to_owned).collect();
    if let Some(field) = fields.get_mut(2) {
        *field = serial.to_string();
    }
    fields.join(" ").into()
}

/// The first serial of the day: YYYYMMDD01.
pub(crate) fn date_serial(seconds: u32) -> u32 {
    // Civil date from days since 1970, in 400-year eras that begin on 1 March.
    let days = u64::from(seconds) / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    u32::try_from(year * 1_000_000 + month * 10_000 + day * 100 + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_takes_its_own_spelling_of_service_keys_only() {
        let zone = ZoneName::parse("example.com").unwrap();
        let accepts = |record: &str, key_names| {
            let content = SetContent { ttl: 60, records: Box::new([record.into()]), comment: None };
            acceptable(&zone, zone.name(), RecordType::Https, &content, key_names).is_ok()
        };
        for (record, by_name, by_number) in [
            (r#"1 . dohpath="/q" ohttp"#, true, false),
            (r#"1 . key7="/q" key8="""#, false, true),
            ("1 . alpn=h2", true, true),
        ] {
            assert_eq!((accepts(record, true), accepts(record, false)), (by_name, by_number), "{record}");
        }
    }

    #[test]
    fn the_serial_of_a_day_spells_its_date() {
        assert_eq!(date_serial(0), 1_970_010_101);
        assert_eq!(date_serial(951_782_400), 2_000_022_901);
        assert_eq!(date_serial(1_794_787_200), 2_026_111_601);
    }

    #[test]
    fn a_serial_is_read_and_replaced_in_place() {
        let soa = "ns. host. 7 1 2 3 4";
        assert_eq!(soa_serial(soa), Some(7));
        assert_eq!(&*with_serial(soa, 9), "ns. host. 9 1 2 3 4");
    }
}
