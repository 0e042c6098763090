//! A client for the local DNS records of a Pi-hole, in both dialects behind one small trait.
//!
//! ```text
//!            ┌ SpecDialect   /admin/api/dns/local, Bearer token, one record per call
//! Pihole ────┼ V6Dialect     /api/config/dns/…, sessions, whole lists in one PATCH
//!            ├ AutoDialect   finds out which of the two answers, by the first list call
//!            └ MemoryPihole  no server at all: demos and tests
//! ```
//! In: a connection and a set of lines to add and remove. Out: lists, verbatim, and typed errors. Knows nothing of
//! Kubernetes and decides nothing about ownership. It never has two writes in flight: parallel writes lose records
//! on a real Pi-hole.

mod auto;
mod error;
mod http;
mod line;
mod memory;
mod spec;
mod v6;

use futures::future::BoxFuture;

pub use auto::AutoDialect;
pub use error::{ErrorClass, PiholeError};
pub use http::{Connection, Timing, parse_base_url};
pub use line::{AddressParts, AliasParts, Line, MARKER, OwnerId, OwnerIdError};
pub use memory::MemoryPihole;
pub use signpost_provider_http::{Answering, HttpError, Secret, Transport};
pub use spec::SpecDialect;
pub use url::Url;
pub use v6::V6Dialect;

/// The API of a Pi-hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Found out by the first list call.
    #[default]
    Auto,
    /// `/admin/api/dns/local` with a Bearer token.
    Spec,
    /// The API of Pi-hole v6: `/api/auth` and `/api/config`.
    V6,
}

impl Dialect {
    /// The name used in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Spec => "spec",
            Self::V6 => "v6",
        }
    }

    /// Reads the name used in configuration.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Auto, Self::Spec, Self::V6].into_iter().find(|dialect| dialect.as_str() == text)
    }
}

/// The capabilities of the server behind a connection.
#[allow(clippy::struct_excessive_bools)] // Five questions, each with an answer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Many changes in one write, all or nothing.
    pub batch: bool,
    /// Lines can carry a marker comment, so ownership is recorded in the Pi-hole itself.
    pub marker: bool,
    /// One line can be deleted without touching another of the same name.
    pub exact_delete: bool,
    /// IPv6 addresses can be stored.
    pub ipv6: bool,
    /// Aliases can be stored, and distinguished from foreign ones.
    pub aliases: bool,
}

impl Capabilities {
    /// The capabilities of the token dialect.
    pub const SPEC: Self = Self { batch: false, marker: false, exact_delete: false, ipv6: false, aliases: false };
    /// The capabilities of Pi-hole v6.
    pub const V6: Self = Self { batch: true, marker: true, exact_delete: true, ipv6: true, aliases: true };
    /// The capabilities of Pi-hole v6 before FTL 6.0.3, which takes no comments.
    pub const V6_WITHOUT_COMMENTS: Self = Self { marker: false, aliases: false, ..Self::V6 };
}

/// Every line of a Pi-hole, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The capabilities of the server.
    pub capabilities: Capabilities,
    /// `dns.hosts`, verbatim and in order.
    pub hosts: Vec<Line>,
    /// `dns.cnameRecords`, verbatim and in order.
    pub cnames: Vec<Line>,
    /// A setting that forbids writing, noticed while reading.
    pub write_error: Option<PiholeError>,
}

/// A set of changes. Removals are exact lines; a line that is in neither list is never touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// Lines to append to `dns.hosts`.
    pub add_hosts: Vec<Line>,
    /// Lines to take out of `dns.hosts`.
    pub remove_hosts: Vec<Line>,
    /// Lines to append to `dns.cnameRecords`; writing these restarts the resolver.
    pub add_cnames: Vec<Line>,
    /// Lines to take out of `dns.cnameRecords`; writing these restarts the resolver.
    pub remove_cnames: Vec<Line>,
}

impl ChangeSet {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.touches_hosts() == 0 && self.touches_cnames() == 0
    }

    /// How many lines of `dns.hosts` change.
    pub fn touches_hosts(&self) -> usize {
        self.add_hosts.len() + self.remove_hosts.len()
    }

    /// How many lines of `dns.cnameRecords` change.
    pub fn touches_cnames(&self) -> usize {
        self.add_cnames.len() + self.remove_cnames.len()
    }
}

/// The result of a change set. Only the next [`Pihole::list`] shows the actual lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyResult {
    /// Write requests sent.
    pub writes: u32,
    /// Lines that were permanently refused, each with its reason; the others were sent.
    pub refused: Vec<(Line, PiholeError)>,
    /// Aliases that were not sent, so that the resolver restarts once: they can be sent with the next restart.
    pub postponed: Vec<Line>,
    /// The error that stopped the rest.
    pub stopped: Option<PiholeError>,
    /// The error that stopped the aliases alone; addresses were written.
    pub aliases: Option<PiholeError>,
    /// The whole `dns.hosts` as it was last sent in one request that was accepted, or that the Pi-hole may still carry out. A line in it that
    /// is not there afterwards was lost or deleted meanwhile.
    pub sent: Option<Vec<Line>>,
}

/// One Pi-hole. Calls that write wait for each other.
pub trait Pihole: Send + Sync + 'static {
    /// Whether the Pi-hole answers and its resolver is up. Takes no session.
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>>;

    /// Reads every line. An answer without the expected key is an error, never an empty list.
    fn list(&self) -> BoxFuture<'_, Result<Listing, PiholeError>>;

    /// Writes a change set, additions first.
    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, ApplyResult>;

    /// Releases what the server keeps for us (a session).
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Which dialect is spoken, once known.
    fn dialect(&self) -> Option<Dialect>;
}

/// Opens a connection in the given dialect. No request is made yet.
pub fn connect(connection: Connection, dialect: Dialect) -> Result<std::sync::Arc<dyn Pihole>, PiholeError> {
    Ok(match dialect {
        Dialect::Auto => std::sync::Arc::new(AutoDialect::new(connection)?),
        Dialect::Spec => std::sync::Arc::new(SpecDialect::new(connection)?),
        Dialect::V6 => std::sync::Arc::new(V6Dialect::new(connection)?),
    })
}
