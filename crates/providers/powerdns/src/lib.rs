//! Zones and record sets on an authoritative server, as PowerDNS's HTTP API keeps them.
//!
//! ```text
//!  ZoneServer ◄── PowerDnsClient   the real server over HTTP: deadlines, limits, circuit breaker
//!             ◄── MemoryServer     the same rules in memory, for the demo and for tests
//! ```
//!
//! In: zone names, settings, ordered changes. Out: what the server has, the serial after a write, or a
//! [`ServerError`] classified by status code that carries the server's own words. No Kubernetes here.

mod client;
mod encode;
mod error;
mod memory;
mod memory_rules;
mod spelling;
mod types;
mod wire;
mod zone_reader;

pub use client::{ClientOptions, OptionsError, PowerDnsClient};
pub use error::{ErrorClass, ServerError};
pub use memory::{Call, Fault, Gate, MemoryServer, Observer, Seconds};
pub use types::{
    Action, Change, Comment, CommentChange, NewZone, Patched, ServerInfo, ServerSet, SetContent, ZoneContents,
    ZoneInfo, ZoneSettings,
};

pub use signpost_provider_http::Secret;

use futures::future::{BoxFuture, FutureExt};
use signpost_dns::ZoneName;

/// The account every comment written here carries.
pub const COMMENT_ACCOUNT: &str = "signpost";
/// The account PowerDNS-Operator wrote; its comments are ours after a switch.
pub const LEGACY_COMMENT_ACCOUNT: &str = "powerdns-operator";
/// Largest body sent in one PATCH; the server's own limit is 2 MB.
pub const MAX_PATCH_BYTES: usize = 1_900_000;
/// Most record sets sent in one PATCH.
pub const MAX_PATCH_SETS: usize = 5_000;

/// An authoritative server that zones are kept on.
pub trait ZoneServer: Send + Sync + 'static {
    /// Version and type of the server; also a check that it can be reached and the key is valid.
    fn server(&self) -> BoxFuture<'_, Result<ServerInfo, ServerError>>;
    /// The zone's settings and serial, without its records. `None` when the server has no such zone.
    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>>;
    /// The zone with every record. `None` when the server has no such zone.
    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>>;
    /// The zone's settings, after `each` was called with every record set, one by one as they arrive. A zone read this
    /// way is never in memory as a whole. After an error, discard what `each` was called with.
    fn read_each<'a>(
        &'a self,
        zone: &'a ZoneName,
        each: &'a mut (dyn FnMut(ServerSet) + Send),
    ) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        async move {
            let Some(ZoneContents { info, sets }) = self.read(zone).await? else { return Ok(None) };
            sets.into_iter().for_each(each);
            Ok(Some(info))
        }
        .boxed()
    }
    /// Creates a zone. [`ServerError::Conflict`] when it exists.
    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>>;
    /// Changes settings; what is `None` is unchanged.
    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>>;
    /// Applies changes in order, all or none.
    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>>;
    /// Deletes the zone with every record. False when there was none.
    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>>;
    /// Whether calls get through, for readiness.
    fn health(&self) -> Health;
}

/// Whether calls get through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// No call has been made yet.
    Unknown,
    /// The last call got through.
    Up,
    /// Calls fail.
    Down {
        /// The last failure.
        why: String,
    },
}
