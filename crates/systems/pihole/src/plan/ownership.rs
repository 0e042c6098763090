//! How a line of a Pi-hole is known to be ours: by the marker in it, or by a ledger. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use signpost_dns::Fqdn;
use signpost_provider_pihole::{Line, OwnerId};

/// How a line is known to be ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// By the marker in it.
    Marker {
        /// The owner id in the marker.
        owner: OwnerId,
        /// Lines that were written without a marker, before the Pi-hole accepted comments. They get their marker.
        unmarked: Ledger,
    },
    /// By our ledger.
    Ledger(Ledger),
}

impl Ownership {
    /// The address and host of a `dns.hosts` line of ours.
    pub(crate) fn own_address(&self, line: &Line) -> Option<(IpAddr, Fqdn)> {
        let listed = |ledger: &Ledger| address_of(line).filter(|(ip, host)| ledger.holds(host, *ip));
        match self {
            Self::Marker { owner, unmarked } => {
                line.own_address(owner).or_else(|| if line.comment().is_none() { listed(unmarked) } else { None })
            }
            Self::Ledger(ledger) => listed(ledger),
        }
    }

    /// The alias and target of a `dns.cnameRecords` line of ours.
    pub(crate) fn own_alias(&self, line: &Line) -> Option<(Fqdn, Fqdn)> {
        match self {
            Self::Marker { owner, .. } => line.own_alias(owner),
            Self::Ledger(_) => None,
        }
    }

    /// The ledger in it.
    pub(crate) fn ledger_mut(&mut self) -> &mut Ledger {
        let (Self::Ledger(ledger) | Self::Marker { unmarked: ledger, .. }) = self;
        ledger
    }
}

/// The address and the name of a line that has one name.
pub(crate) fn address_of(line: &Line) -> Option<(IpAddr, Fqdn)> {
    let parts = line.address_parts();
    let ([name], Some(ip)) = (parts.names.as_slice(), parts.ip) else { return None };
    Some((ip, Fqdn::parse(name).ok()?))
}

/// The records that we have created, or are about to create, where lines can carry no marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    entries: BTreeSet<(Fqdn, IpAddr)>,
}

impl Ledger {
    /// Whether this record is ours.
    pub fn holds(&self, host: &Fqdn, ip: IpAddr) -> bool {
        self.entries.contains(&(host.clone(), ip))
    }

    /// Adds a record; true when it was not there.
    pub fn add(&mut self, host: &Fqdn, ip: IpAddr) -> bool {
        self.entries.insert((host.clone(), ip))
    }

    /// Keeps only some records; true when any was removed.
    pub fn retain(&mut self, mut keep: impl FnMut(&Fqdn, IpAddr) -> bool) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(host, ip)| keep(host, *ip));
        self.entries.len() < before
    }

    /// Every record in it.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&Fqdn, IpAddr)> {
        self.entries.iter().map(|(host, ip)| (host, *ip))
    }

    /// The text in the ConfigMap: a line `address host` for each.
    pub fn to_text(&self) -> String {
        let lines: Vec<String> = self.entries.iter().map(|(host, ip)| format!("{ip} {}\n", host.undotted())).collect();
        lines.concat()
    }

    /// Reads the text in the ConfigMap; a line that cannot be read owns nothing.
    pub fn from_text(text: &str) -> Self {
        let entry = |line: &str| {
            let (ip, host) = line.split_once(' ')?;
            Some((Fqdn::parse(host.trim()).ok()?, ip.parse().ok()?))
        };
        Self { entries: text.lines().filter_map(entry).collect() }
    }
}

/// Records in the ledger that a request without an answer was about, and since when: the Pi-hole may still carry it out. They stay in the
/// ledger for a grace period, whatever the Pi-hole holds meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uncertain {
    since: BTreeMap<(Fqdn, IpAddr), Timestamp>,
}

impl Uncertain {
    /// Adds a record.
    pub(crate) fn add(&mut self, host: &Fqdn, ip: IpAddr, now: Timestamp) {
        self.since.insert((host.clone(), ip), now);
    }

    /// Whether a record is uncertain.
    pub(crate) fn holds(&self, host: &Fqdn, ip: IpAddr) -> bool {
        self.since.contains_key(&(host.clone(), ip))
    }

    /// Requests that ended so long ago are over.
    pub(crate) fn expire(&mut self, now: Timestamp, grace: Duration) {
        self.since.retain(|_, since| now.duration_since(*since).unsigned_abs() < grace);
    }

    /// How long until all of them are over; None when there are none.
    pub(crate) fn left(&self, now: Timestamp, grace: Duration) -> Option<Duration> {
        let latest = self.since.values().max()?;
        Some(grace.saturating_sub(now.duration_since(*latest).unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_survives_being_written_and_read() {
        let mut ledger = Ledger::default();
        let host = Fqdn::parse("app.lan").unwrap();
        assert!(ledger.add(&host, "10.0.0.1".parse().unwrap()));
        assert!(!ledger.add(&host, "10.0.0.1".parse().unwrap()));
        ledger.add(&host, "10.0.0.2".parse().unwrap());
        assert_eq!(ledger.to_text(), "10.0.0.1 app.lan\n10.0.0.2 app.lan\n");
        assert_eq!(Ledger::from_text(&ledger.to_text()), ledger);
        assert_eq!(Ledger::from_text("rubbish\n\n10.0.0.x a.lan\n"), Ledger::default());
    }
}
