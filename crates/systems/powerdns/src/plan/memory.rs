//! The memory of a zone between passes, so that a change needs no read: a digest per record set, the serial,
//! the ledger and what the server refused.
//!
//! In: reads of the server and the outcome of our own writes. Out: lookups. Lost memory costs one full read, nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};
use signpost_planning::GuardMemory;
use signpost_provider_powerdns::{COMMENT_ACCOUNT, Comment, LEGACY_COMMENT_ACCOUNT, ServerSet, ZoneInfo, ZoneSettings};

use super::{
    ledger::Ledger,
    registry::{self, Registry},
};
use crate::{
    index::{digest::Digest, record::AppliedRecord},
    report::status::Found,
};

/// The memory of one zone.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // Independent facts about the zone.
pub(crate) struct ZoneMemory {
    /// The zone on the server; `None` when it must be read.
    pub(crate) present: Option<Present>,
    /// When every record was last read.
    pub(crate) read_at: Option<Timestamp>,
    pub(crate) ledger: Ledger,
    /// The refused changes, and until when they are not tried again.
    pub(crate) rejected: BTreeMap<RecordKey, Rejection>,
    /// Settings of the zone that the server would not take.
    pub(crate) rejected_settings: Option<RejectedSettings>,
    /// The server refuses every change of the zone, in its words, as it seemed; until it is tried again.
    pub(crate) closed: Option<(String, Timestamp)>,
    /// Whether the server keeps no comments, as it answered to one.
    pub(crate) no_comments: bool,
    /// Deletions that the guard paused in the pass before.
    pub(crate) guard: GuardMemory,
    /// Whose ledger this is: the uid of the zone object.
    pub(crate) ledger_of: Option<Arc<str>>,
    /// Whether the ledger has the lines of endpoints too.
    pub(crate) lists_endpoints: bool,
    /// The generation of that object in the pass before.
    pub(crate) generation: i64,
    /// Whether this process created the zone for that object.
    pub(crate) created: bool,
    /// Whether this process deleted the zone of that object since: its status may still report the zone.
    pub(crate) deleted: bool,
}

impl ZoneMemory {
    /// Refused changes may be accepted now.
    pub(crate) fn forget_refusals(&mut self) {
        self.rejected.clear();
        self.rejected_settings = None;
        self.closed = None;
    }

    /// The zone was deleted with everything in it. A creation of it that may still be carried out is remembered.
    pub(crate) fn zone_deleted(&mut self) {
        let Self { ledger, ledger_of, lists_endpoints, generation, .. } = std::mem::take(self);
        *self = Self {
            ledger: ledger.of_zone_alone(),
            ledger_of,
            lists_endpoints,
            generation,
            deleted: true,
            ..Self::default()
        };
    }

    /// Whether the server has exactly what the ledger lists. A start of authority is the zone's: without one, the zone is not served.
    pub(crate) fn is_ours_by_ledger(&self, key: &RecordKey) -> bool {
        let there = self.present.as_ref().and_then(|present| present.sets.get(key));
        key.rtype != RecordType::Soa && there.is_some_and(|digest| self.ledger.lists(key, *digest))
    }

    /// Takes lines off the ledger that the status of an object reports. A line of what the server refuses stays: the next try of it needs
    /// no other write of the zone object.
    pub(crate) fn prune(&mut self, durable: &BTreeSet<RecordKey>) {
        for key in durable {
            match self.rejected.get(key) {
                Some(rejection) => self.ledger.confirm(key, rejection.digest),
                None => self.ledger.forget(key),
            }
        }
    }

    /// Takes contents of a set off the ledger that the server does not have, apart from this one and from what is uncertain.
    pub(crate) fn strike_absent(&mut self, key: &RecordKey, but: Digest) {
        if let Some(present) = &self.present {
            let there = present.sets.get(key).copied();
            self.ledger.keep(key, |digest| digest == but || Some(digest) == there);
        }
    }

    /// The first of these sets that is on the server as the ledger lists it, for the status of the object that it was written for.
    pub(crate) fn find_listed<'a>(&self, zone: &ZoneName, keys: impl IntoIterator<Item = &'a RecordKey>) -> Found {
        let applied = |key: &RecordKey| {
            let digest = *self.present.as_ref()?.sets.get(key)?;
            self.ledger.lists(key, digest).then(|| AppliedRecord { zone: zone.clone(), key: key.clone(), digest })
        };
        keys.into_iter().find_map(applied).map_or(Found::Nothing, |applied| Found::Wrote(Arc::new(applied)))
    }

    /// Everything the ledger lists that is on the server as listed.
    pub(crate) fn ours_by_ledger(&self) -> impl Iterator<Item = RecordKey> + '_ {
        self.ledger.keys().filter(|key| self.is_ours_by_ledger(key)).cloned()
    }
}

/// A zone as the server has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Present {
    pub(crate) info: ZoneInfo,
    pub(crate) sets: BTreeMap<RecordKey, Digest>,
    /// Sets that carry a comment of ours.
    pub(crate) commented: BTreeSet<RecordKey>,
    /// Comments of others, which stay when ours is written.
    pub(crate) beside: BTreeMap<RecordKey, Arc<[Comment]>>,
    /// TTL and hosts of the apex NS set, whose TTL is kept as it is.
    pub(crate) apex_ns: Option<(u32, BTreeSet<String>)>,
    /// TTL and text of the start of authority; a zone without one is not served.
    pub(crate) soa: Option<(u32, Box<str>)>,
    /// The names that external-dns owns.
    pub(crate) registry: Registry,
}

/// Settings of a zone that the server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RejectedSettings {
    pub(crate) settings: ZoneSettings,
    pub(crate) words: String,
    pub(crate) until: Timestamp,
}

/// A record set the server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) digest: Digest,
    pub(crate) words: String,
    pub(crate) until: Timestamp,
}

/// A zone that is being read, one record set after the other: only digests are kept.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    apex: &'a Fqdn,
    sets: BTreeMap<RecordKey, Digest>,
    commented: BTreeSet<RecordKey>,
    beside: BTreeMap<RecordKey, Arc<[Comment]>>,
    apex_ns: Option<(u32, BTreeSet<String>)>,
    soa: Option<(u32, Box<str>)>,
    registered: Vec<registry::Entry>,
}

impl<'a> Reading<'a> {
    /// Begins to read the zone with this name.
    pub(crate) fn new(apex: &'a Fqdn) -> Self {
        let (sets, commented, beside) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { apex, sets, commented, beside, apex_ns: None, soa: None, registered: Vec::new() }
    }

    /// Takes the next record set.
    pub(crate) fn add(&mut self, set: &ServerSet) {
        if set.contents.is_empty() && !set.disabled {
            return;
        }
        let key = RecordKey::new(set.name.clone(), set.rtype);
        let ours = |comment: &&Comment| [COMMENT_ACCOUNT, LEGACY_COMMENT_ACCOUNT].contains(&&*comment.account);
        if set.comments.iter().any(|comment| ours(&comment)) {
            self.commented.insert(key.clone());
        }
        let others: Arc<[Comment]> = set.comments.iter().filter(|comment| !ours(comment)).cloned().collect();
        if !others.is_empty() {
            self.beside.insert(key.clone(), others);
        }
        if set.name == *self.apex {
            match set.rtype {
                RecordType::Ns => {
                    let hosts = set.contents.iter().map(|host| canonical_host(host)).collect();
                    self.apex_ns = Some((set.ttl, hosts));
                }
                RecordType::Soa => self.soa = set.contents.first().map(|text| (set.ttl, text.clone())),
                _ => {}
            }
        }
        self.registered.extend(registry::read(set));
        self.sets.insert(key, Digest::of_server(set));
    }

    /// The zone, when all of it was read.
    pub(crate) fn finish(self, info: ZoneInfo) -> Present {
        let Self { apex: _, sets, commented, beside, apex_ns, soa, registered } = self;
        let registry = Registry::of(registered, &sets);
        Present { info, sets, commented, beside, apex_ns, soa, registry }
    }
}

impl Present {
    #[cfg(test)]
    pub(crate) fn of(contents: &signpost_provider_powerdns::ZoneContents) -> Self {
        let mut reading = Reading::new(contents.info.name.name());
        contents.sets.iter().for_each(|set| reading.add(set));
        reading.finish(contents.info.clone())
    }

    /// The types at a name.
    pub(crate) fn at<'a>(&'a self, name: &'a Fqdn) -> impl Iterator<Item = (&'a RecordKey, Digest)> + 'a {
        let from = RecordKey::new(name.clone(), RecordType::A);
        self.sets.range(from..).take_while(move |(key, _)| key.name == *name).map(|(key, digest)| (key, *digest))
    }
}

/// A host name as NS sets are compared.
pub(crate) fn canonical_host(host: &str) -> String {
    Fqdn::parse(host).map_or_else(|_| host.to_owned(), |name| name.to_string())
}

/// A plain zone at serial 7.
#[cfg(test)]
pub(crate) fn plain_info(zone: signpost_dns::ZoneName) -> ZoneInfo {
    ZoneInfo {
        id: zone.to_string(),
        name: zone,
        kind: "Native".into(),
        serial: 7,
        notified_serial: 0,
        edited_serial: 7,
        masters: vec![],
        dnssec: false,
        catalog: String::new(),
        account: String::new(),
        soa_edit_api: "DEFAULT".into(),
        api_rectify: false,
    }
}
