//! What a name server answered, or why there is no answer.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use signpost_dns::{Fqdn, Rdata};
use thiserror::Error;

/// The response code of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rcode {
    /// No error; the answer may still have no record.
    NoError,
    /// The name does not exist.
    NxDomain,
    /// The server failed.
    ServFail,
    /// The server does not want to answer.
    Refused,
    /// Another code.
    Other(u16),
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoError => f.write_str("NOERROR"),
            Self::NxDomain => f.write_str("NXDOMAIN"),
            Self::ServFail => f.write_str("SERVFAIL"),
            Self::Refused => f.write_str("REFUSED"),
            Self::Other(code) => write!(f, "RCODE{code}"),
        }
    }
}

/// An answer of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The response code.
    pub rcode: Rcode,
    /// The targets of the CNAME records from the name to the values, in order. Empty for questions of type CNAME.
    pub chain: Vec<Fqdn>,
    /// The values of the type that was asked for, sorted.
    pub values: Vec<Rdata>,
    /// The smallest TTL of the chain and the values, or how long a negative answer may be kept; in seconds.
    pub ttl: Option<u32>,
    /// The server that answered.
    pub server: Arc<str>,
    /// From the question to the answer.
    pub took: Duration,
}

impl Answer {
    /// About how much memory its values and its chain take.
    pub fn octets(&self) -> usize {
        let hops = self.chain.iter().map(|hop| size_of::<Fqdn>() + hop.undotted().len());
        self.values.iter().map(octets).chain(hops).sum()
    }
}

/// Counts what is written.
struct Written(usize);

impl fmt::Write for Written {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// About how much memory a value takes.
pub(crate) fn octets(value: &Rdata) -> usize {
    if matches!(value, Rdata::A(_) | Rdata::Aaaa(_)) {
        return size_of::<Rdata>();
    }
    let mut written = Written(size_of::<Rdata>());
    // Counting does not fail.
    let _ = write!(written, "{value}");
    written.0
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LookupError {
    /// The time is over.
    #[error("{server} did not answer within {after:?}")]
    Timeout {
        /// The server that was asked.
        server: Arc<str>,
        /// The time limit.
        after: Duration,
    },
    /// The server could not be reached.
    #[error("{server} cannot be reached: {why}")]
    Unreachable {
        /// The server that was asked.
        server: Arc<str>,
        /// The error of the network.
        why: String,
    },
    /// The answer cannot be understood.
    #[error("{server} sent an answer that cannot be read: {why}")]
    BadAnswer {
        /// The server that answered.
        server: Arc<str>,
        /// What is wrong.
        why: String,
    },
    /// The CNAME records lead back to a name that was already there, or there are too many.
    #[error("{server}: the CNAME records of the name do not end; the last one is {last}")]
    CnameLoop {
        /// The server that answered.
        server: Arc<str>,
        /// The last target.
        last: Fqdn,
    },
    /// The server did not answer before and is not asked for a while.
    #[error("{server} is not asked for another {retry_after:?}, because it did not answer before: {why}")]
    Paused {
        /// The server that is not asked.
        server: Arc<str>,
        /// The last failure.
        why: String,
        /// When it is asked again.
        retry_after: Duration,
    },
    /// The question cannot be asked.
    #[error("{name} {rtype} cannot be asked: {why}")]
    BadQuestion {
        /// The name.
        name: Fqdn,
        /// The type.
        rtype: String,
        /// What is wrong.
        why: String,
    },
    /// There is no server to ask.
    #[error("{resolver} has no server to ask: {why}")]
    NoServer {
        /// The resolver as it is configured.
        resolver: Arc<str>,
        /// What is missing.
        why: String,
    },
}

impl LookupError {
    /// Whether the resolver is the cause, and not the name: the answer is unknown, and another time may be better.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Paused { .. } | Self::NoServer { .. } => true,
            Self::Timeout { .. } | Self::BadAnswer { .. } | Self::CnameLoop { .. } | Self::BadQuestion { .. } => false,
        }
    }
}

impl LookupError {
    /// The server that was asked, where one was.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Timeout { server, .. }
            | Self::Unreachable { server, .. }
            | Self::BadAnswer { server, .. }
            | Self::CnameLoop { server, .. }
            | Self::Paused { server, .. } => Some(server),
            Self::BadQuestion { .. } | Self::NoServer { .. } => None,
        }
    }
}

/// What one resolver answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The resolver as it is configured, such as `system`.
    pub resolver: Arc<str>,
    /// Its answer.
    pub result: Result<Answer, LookupError>,
}
