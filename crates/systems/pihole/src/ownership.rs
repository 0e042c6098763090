//! How a line of a Pi-hole is known to be ours: by the marker in it, or by a ledger.

use std::net::IpAddr;

use signpost_dns::Fqdn;
use signpost_provider_pihole::{Line, OwnerId};

use crate::ledger::Ledger;

/// How a line is known to be ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// By the marker in it.
    Marker {
        /// Who writes the marker.
        owner: OwnerId,
        /// What was written without one, before the Pi-hole could hold comments. Such lines get their marker.
        unmarked: Ledger,
    },
    /// By our ledger.
    Ledger(Ledger),
}

impl Ownership {
    /// The address and host of a `dns.hosts` line of ours.
    pub(crate) fn own_address(&self, line: &Line) -> Option<(IpAddr, Fqdn)> {
        let listed = |ledger: &Ledger| {
            let parts = line.address_parts();
            let ([name], Some(ip)) = (parts.names.as_slice(), parts.ip) else { return None };
            Fqdn::parse(name).ok().filter(|host| ledger.holds(host, ip)).map(|host| (ip, host))
        };
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
}
