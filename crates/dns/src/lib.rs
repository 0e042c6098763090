//! DNS names and records: parse, canonical form, compare, public suffix, IDNA.
//!
//! ```text
//!  "Www.Bücher.example"    ─► Fqdn       ─► www.xn--bcher-kva.example.
//!  "@" in a ZoneName       ─► Fqdn
//!  RecordType + text       ─► Rdata      ─► canonical text, as PowerDNS accepts it
//!  name, type, TTL, Rdata  ─► RecordSet  ─► compared by meaning, not by spelling
//! ```
//!
//! Pure: no I/O, no clock, no environment, no randomness. All text is hostile: every parser is total, refuses with a
//! message a user can act on, and never panics.

mod excerpt;
mod name;
mod rdata;
mod record_set;
mod rtype;
mod ttl;
mod zone;

pub use name::{Fqdn, MAX_LABEL_LEN, MAX_NAME_LEN, NameError, Suffixed};
pub use rdata::{Caa, Ds, Generic, Loc, Mailbox, Naptr, Rdata, RdataError, Soa, Sshfp, SvcParam, Svcb, Text, Tlsa};
pub use record_set::{RecordKey, RecordSet, RecordSetError};
pub use rtype::{Mnemonic, RecordType, RecordTypeError};
pub use ttl::{Ttl, TtlError};
pub use zone::ZoneName;
