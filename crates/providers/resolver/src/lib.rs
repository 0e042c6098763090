//! Asks name servers for records: what they answer, from which server, and how long it took.
//!
//! ```text
//!  name, type ─► Resolvers ─► each resolver: system · ip:port · tls:// · https:// · authoritative ─► Reply per server
//! ```
//!
//! Names are absolute; no search domain is ever added. CNAME records are followed hop by hop. Answers are hostile: an answer with another id,
//! another question or from another address is not taken. [`Memory`] is the in-memory twin for the demo and for tests.

mod answer;
mod exchange;
mod https;
mod memory;
mod resolvers;
mod server;
mod system;
mod transport;
mod upstream;
mod wire;

use futures::future::BoxFuture;
use signpost_dns::{Fqdn, RecordType};

pub use answer::{Answer, LookupError, Rcode, Reply};
pub use memory::Memory;
pub use resolvers::{Health, Options, Resolvers};
pub use upstream::{Upstream, UpstreamError};

/// Looks names up.
pub trait Lookup: std::fmt::Debug + Send + Sync {
    /// What each resolver answers; at least one reply.
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>>;
}
