//! The errors of a call, classified by status code, never by text.

use std::time::Duration;

use thiserror::Error;

/// A failed call. Messages carry the server's own words, shortened; never a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ServerError {
    /// No connection, or it broke.
    #[error("the PowerDNS server cannot be reached: {why}")]
    Unreachable {
        /// The error of the connection.
        why: String,
    },
    /// No answer in time.
    #[error("the PowerDNS server did not answer within {} s", .after.as_secs_f32())]
    Timeout {
        /// The deadline of the call.
        after: Duration,
    },
    /// The circuit breaker is open: no call was made.
    #[error("calls to the PowerDNS server are paused: {why}")]
    Paused {
        /// The failure that opened it.
        why: String,
        /// When the next call is allowed.
        retry_after: Duration,
        /// Whether that failure was a refused or unreadable key.
        refused_key: bool,
    },
    /// This process may not write any more: no call was made.
    #[error("nothing was sent to the PowerDNS server: this replica does not lead any more")]
    NotLeading,
    /// 401 or 403.
    #[error("the PowerDNS server refuses the API key ({status}): check PDNS_API_KEY or PDNS_API_KEY_FILE")]
    Unauthorised {
        /// The status code.
        status: u16,
    },
    /// The key file cannot be read.
    #[error("the API key cannot be read: {why}")]
    Key {
        /// The error of the file system.
        why: String,
    },
    /// 404 where a zone was expected.
    #[error("the PowerDNS server has no such zone")]
    NoZone,
    /// 409.
    #[error("conflict on the PowerDNS server: {words}")]
    Conflict {
        /// The server's words.
        words: String,
    },
    /// 400, 413 or 422: the request is not acceptable as it is. For the creation of a zone only 422, which proves that the zone is missing.
    #[error("{words}")]
    Refused {
        /// The server's words.
        words: String,
    },
    /// 429, or 503 with Retry-After.
    #[error("the PowerDNS server asks to slow down: {words}")]
    Throttled {
        /// The server's words.
        words: String,
        /// When it asked to be called again.
        retry_after: Option<Duration>,
    },
    /// Any other 5xx, and any other status that is not a success.
    #[error("the PowerDNS server failed with {status}: {words}")]
    Failed {
        /// The status code.
        status: u16,
        /// The server's words.
        words: String,
    },
    /// An answer that is not from a PowerDNS.
    #[error("the answer of the PowerDNS server cannot be understood: {why}")]
    Protocol {
        /// The difference.
        why: String,
    },
}

/// How to continue after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Try again, ever more slowly.
    Transient,
    /// Try again, not before this long.
    Throttled(Option<Duration>),
    /// Try again only slowly: the same request will be refused again until something changes.
    Refused,
    /// The key is wrong: nothing works until it is changed.
    Unauthorised,
    /// The zone is not there.
    Missing,
}

impl ServerError {
    /// How to continue.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Failed { .. }
            | Self::Protocol { .. }
            // At once it would be the same conflict again, without end.
            | Self::Conflict { .. }
            | Self::NotLeading => ErrorClass::Transient,
            Self::Paused { retry_after, .. } => ErrorClass::Throttled(Some(*retry_after)),
            Self::Throttled { retry_after, .. } => ErrorClass::Throttled(*retry_after),
            Self::Unauthorised { .. } | Self::Key { .. } => ErrorClass::Unauthorised,
            Self::NoZone => ErrorClass::Missing,
            Self::Refused { .. } => ErrorClass::Refused,
        }
    }

    /// True when it is not known whether the request took effect.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Failed { .. } | Self::Protocol { .. } => true,
            Self::Paused { .. }
            | Self::NotLeading
            | Self::Throttled { .. }
            | Self::Unauthorised { .. }
            | Self::Key { .. }
            | Self::NoZone
            | Self::Conflict { .. }
            | Self::Refused { .. } => false,
        }
    }
}

/// At most this much of a server's words is repeated to a user.
const MAX_WORDS: usize = 512;

/// The server's words without control characters, cut to a length that fits into a status.
pub(crate) fn words(text: &str) -> String {
    let clean = signpost_provider_http::printable(text, MAX_WORDS);
    if clean.is_empty() { "no explanation".to_owned() } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_retried_with_a_pause_and_never_at_once() {
        let conflict = ServerError::Conflict { words: "Conflict".into() };
        assert_eq!(conflict.class(), ErrorClass::Transient);
        assert!(!conflict.is_uncertain());
    }
}
