//! The parts of a plan: changes and refusals.

use std::collections::BTreeMap;
use std::net::IpAddr;

use signpost_dns::Fqdn;
use signpost_planning::{Reason, Refusal};
use signpost_provider_pihole::{ChangeSet, Line};

use crate::index::{IngressId, Target, Wanted};

/// The three kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// An IPv4 address.
    A,
    /// An IPv6 address.
    Aaaa,
    /// An alias.
    Cname,
}

impl Slot {
    pub(crate) const ALL: [Self; 3] = [Self::A, Self::Aaaa, Self::Cname];

    pub(crate) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::A } else { Self::Aaaa }
    }
}

/// The value of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(Fqdn),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name.undotted()),
        }
    }
}

/// One record to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The host.
    pub host: Fqdn,
    /// The type.
    pub slot: Slot,
    /// The Ingress it is done for; None when that is unknown.
    pub ingress: Option<IngressId>,
    /// The former value.
    pub old: Option<Value>,
    /// The new value; None to delete it.
    pub new: Option<Value>,
    /// The line to add.
    pub add: Option<Line>,
    /// The lines to take out.
    pub remove: Vec<Line>,
}

impl Change {
    /// Every line it adds or takes out.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.add.iter().chain(&self.remove)
    }
}

/// Something that is not done, for whom, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordRefusal {
    /// For which Ingress; None when it concerns the Pi-hole.
    pub ingress: Option<IngressId>,
    /// For which host.
    pub host: Option<Fqdn>,
    /// Why.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}

impl RecordRefusal {
    /// The refusal as it is reported on an object.
    pub(crate) fn on(&self, instance: &str) -> Refusal {
        Refusal::new(self.reason, format!("{} (Pi-hole {instance})", self.message))
    }
}

/// The plan for the hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// The changes.
    pub changes: Vec<Change>,
    /// The refusals.
    pub refusals: Vec<RecordRefusal>,
    /// Whether a large deletion waits for a second pass that wants the same.
    pub paused: bool,
    /// Whether aliases wait for the next allowed restart.
    pub deferred: bool,
    /// Whether a record waits for the one that replaces it: another pass has to follow.
    pub unfinished: bool,
    /// Hosts whose oldest claim cannot be understood, and the Ingress that has them instead.
    pub yielded: BTreeMap<Fqdn, IngressId>,
}

impl Planned {
    /// The changes as lines.
    pub fn change_set(&self) -> ChangeSet {
        let mut set = ChangeSet::default();
        for change in &self.changes {
            let (add, remove) = match change.slot {
                Slot::A | Slot::Aaaa => (&mut set.add_hosts, &mut set.remove_hosts),
                Slot::Cname => (&mut set.add_cnames, &mut set.remove_cnames),
            };
            add.extend(change.add.clone());
            remove.extend(change.remove.iter().cloned());
        }
        set
    }
}

impl Planned {
    pub(super) fn refuse(
        &mut self,
        ingress: Option<&IngressId>,
        host: Option<&Fqdn>,
        reason: Reason,
        message: impl Into<String>,
    ) {
        let refusal = RecordRefusal { ingress: ingress.cloned(), host: host.cloned(), reason, message: message.into() };
        self.refusals.push(refusal);
    }
}

/// The value that a target wants in one slot.
pub(super) fn wanted(target: &Target, slot: Slot) -> Wanted<Value> {
    let address = |ip: IpAddr| Wanted::Value(Value::Address(ip));
    match (target, slot) {
        (Target::Keep, _)
        | (Target::Addresses { v4: Wanted::Keep, .. }, Slot::A)
        | (Target::Addresses { v6: Wanted::Keep, .. }, Slot::Aaaa) => Wanted::Keep,
        (Target::Addresses { v4: Wanted::Value(ip), .. }, Slot::A) => address(IpAddr::V4(*ip)),
        (Target::Addresses { v6: Wanted::Value(ip), .. }, Slot::Aaaa) => address(IpAddr::V6(*ip)),
        (Target::Alias(name), Slot::Cname) => Wanted::Value(Value::Name(name.clone())),
        (Target::Addresses { .. } | Target::Alias(_), _) => Wanted::Nothing,
    }
}

/// Whether nothing about a target can be understood.
pub(super) fn is_unusable(target: &Target) -> bool {
    Slot::ALL.iter().all(|slot| !matches!(wanted(target, *slot), Wanted::Value(_)))
}
