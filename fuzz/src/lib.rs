//! What every fuzz target checks: a text is refused or read, never a panic, and what is read prints to a text that reads
//! back as the same thing and holds nothing a provider could take for a separator.

use signpost_dns::{Fqdn, Rdata, RecordSet, RecordType, ZoneName};

/// Names, and everything that is computed from one.
pub fn name(text: &str) {
    if let Ok(name) = Fqdn::parse(text) {
        let safe = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/*.".contains(c);
        assert!(name.undotted().chars().all(safe) && name.undotted().len() <= 253);
        assert_eq!(Fqdn::parse(&name.to_string()).as_ref(), Ok(&name));
        assert_eq!(name.ancestors().count(), name.depth() + 1);
        let _ = (name.unicode(), name.public_suffix_split(), name.parent());
    }
    if let Ok(host) = Fqdn::parse_hostname(text) {
        assert!(!host.is_wildcard() && !host.undotted().contains(['_', '/', '*']));
    }
}

/// Zone names, and record names read inside a zone. The first line is the zone.
pub fn zone(text: &str) {
    let (zone, name) = text.split_once('\n').unwrap_or(("example.com", text));
    let Ok(zone) = ZoneName::parse(zone) else { return };
    if let Ok(name) = zone.resolve(name) {
        assert!(name.is_within(&zone));
        let relative = zone.relative(&name);
        assert_eq!(relative.map(|relative| zone.resolve(relative)), Some(Ok(name)));
    }
}

/// Record types.
pub fn record_type(text: &str) {
    if let Ok(rtype) = text.parse::<RecordType>() {
        assert_eq!(rtype.to_string().parse(), Ok(rtype));
    }
}

/// Values of the given types.
pub fn rdata(types: &[&str], text: &str) {
    for rtype in types {
        let Ok(rtype) = rtype.parse::<RecordType>() else { panic!("{rtype} is not a type") };
        if let Ok(value) = Rdata::parse(&rtype, text) {
            let printed = value.to_string();
            assert!(printed.chars().all(|c| (' '..='~').contains(&c)), "{printed:?}");
            assert_eq!(value.rtype(), rtype);
            assert_eq!(Rdata::parse(&rtype, &printed), Ok(value), "{printed:?}");
        }
    }
}

/// Whole record sets, as they come out of a status or a file.
pub fn record_set(text: &str) {
    if let Ok(set) = serde_json::from_str::<RecordSet>(text) {
        let Ok(json) = serde_json::to_string(&set) else { panic!("{set} has no JSON") };
        assert!(serde_json::from_str::<RecordSet>(&json).is_ok_and(|again| again == set), "{json}");
    }
}
