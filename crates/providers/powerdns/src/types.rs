//! Requests to the server and its answers, as plain data.

use std::sync::Arc;

use signpost_dns::{Fqdn, RecordType, ZoneName};

/// The server's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// `authoritative` on an authoritative server.
    pub daemon_type: String,
    /// The server's version.
    pub version: String,
}

/// A zone without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    /// The server's opaque identifier.
    pub id: String,
    /// The zone's name.
    pub name: ZoneName,
    /// Native, Master, Slave, Producer or Consumer.
    pub kind: String,
    /// The SOA serial.
    pub serial: u32,
    /// The serial that secondaries were notified of.
    pub notified_serial: u32,
    /// The serial after SOA-EDIT.
    pub edited_serial: u32,
    /// Where a secondary zone is transferred from.
    pub masters: Vec<String>,
    /// Whether the zone is signed.
    pub dnssec: bool,
    /// The catalog zone, dotted; empty for none.
    pub catalog: String,
    /// The account label.
    pub account: String,
    /// How the serial moves.
    pub soa_edit_api: String,
    /// Whether each change is followed by a rectify.
    pub api_rectify: bool,
}

/// A zone with its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneContents {
    /// Settings and serial.
    pub info: ZoneInfo,
    /// Every record set, in the server's order.
    pub sets: Vec<ServerSet>,
}

/// A comment beside a record set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// The text.
    pub content: String,
    /// The account that wrote it.
    pub account: String,
    /// When, in seconds since 1970, where the server reports it. A comment that is written without it gets the current time.
    pub modified_at: Option<u64>,
}

/// A record set as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSet {
    /// The owner name.
    pub name: Fqdn,
    /// The type.
    pub rtype: RecordType,
    /// The TTL.
    pub ttl: u32,
    /// The contents of the records that are served.
    pub contents: Vec<Box<str>>,
    /// Whether the set also has records that are switched off.
    pub disabled: bool,
    /// Comments beside the set.
    pub comments: Vec<Comment>,
}

/// A zone to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewZone {
    /// The zone's name.
    pub name: ZoneName,
    /// Native, Master, Slave, Producer or Consumer.
    pub kind: String,
    /// Hosts of the apex NS set; empty for none.
    pub nameservers: Vec<Fqdn>,
    /// Everything else; `kind` in here is ignored.
    pub settings: ZoneSettings,
}

/// Settings to change; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneSettings {
    /// Native, Master, Slave, Producer or Consumer.
    pub kind: Option<String>,
    /// Where a secondary zone is transferred from.
    pub masters: Option<Vec<String>>,
    /// The catalog zone, dotted; empty clears it.
    pub catalog: Option<String>,
    /// The account label.
    pub account: Option<String>,
    /// How the serial moves.
    pub soa_edit_api: Option<String>,
    /// Whether each change is followed by a rectify.
    pub api_rectify: Option<bool>,
    /// Whether the zone is signed.
    pub dnssec: Option<bool>,
}

impl ZoneSettings {
    /// True when nothing is to change.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The content of a record set that is to be written. Shared, because an index and a batch both have it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetContent {
    /// The TTL.
    pub ttl: u32,
    /// The records in canonical text, sorted, without duplicates.
    pub records: Box<[Box<str>]>,
    /// The comment wanted beside the set.
    pub comment: Option<Box<str>>,
}

/// The treatment of comments when a set is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommentChange {
    /// Leave them alone; backends without comments accept nothing else.
    Keep,
    /// From now on there are these and no others.
    Are(Arc<[Comment]>),
}

/// One change of a record set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The owner name.
    pub name: Fqdn,
    /// The type.
    pub rtype: RecordType,
    /// The kind of the change.
    pub action: Action,
}

/// The kind of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete the set, if it exists.
    Delete,
    /// Make it exactly this.
    Replace {
        /// TTL and records.
        content: Arc<SetContent>,
        /// The treatment of comments.
        comment: CommentChange,
    },
}

/// The answer to a PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patched {
    /// The serial after the change, where the server reported it. The one before is not known: PowerDNS names the new one in both of
    /// its headers.
    pub serial: Option<u32>,
}
