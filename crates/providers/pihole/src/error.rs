//! The errors of a Pi-hole, sorted by what the reader can do about them.
//!
//! Every variant has a stable reason (event reason, metric label, heading in the troubleshooting page) and a class
//! that decides about the retry. No variant carries a request or response body, a password or a session id.

use std::time::Duration;

use crate::line::Line;

/// One failure of a call to a Pi-hole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PiholeError {
    /// The password or token was refused, twice.
    #[error("the Pi-hole refuses the password or token; for Pi-hole v6 use an app password or the web password")]
    Unauthorized,
    /// An app password may read but not write.
    #[error("the app password may not change settings; set webserver.api.app_sudo to true on the Pi-hole")]
    AppSudoOff,
    /// The password of the command line may read but never write.
    #[error(
        "the password is the Pi-hole's command line password, which may not change settings; use an app password or the web password"
    )]
    CliPassword,
    /// The list is pinned by an environment variable of the Pi-hole.
    #[error("{key} is set by an environment variable of the Pi-hole (FTLCONF_{}) and cannot be changed; remove the variable there", key.replace('.', "_"))]
    EnvLocked {
        /// The setting, such as `dns.hosts`.
        key: String,
    },
    /// The Pi-hole's configuration is read-only.
    #[error("the Pi-hole's configuration is read-only; set misc.readOnly to false on the Pi-hole")]
    ReadOnly,
    /// The web password is protected by a second factor.
    #[error("the Pi-hole asks for a second factor; create an app password, which needs none")]
    TwoFactor,
    /// No API session is free.
    #[error("all API sessions of the Pi-hole are taken; log out other clients or raise webserver.api.max_sessions")]
    SeatsFull,
    /// Too many attempts.
    #[error("the Pi-hole limits the rate of requests")]
    RateLimited {
        /// The time in `Retry-After`, if there is one.
        retry_after: Option<Duration>,
    },
    /// A foreign line is invalid; the Pi-hole refuses every addition until it is corrected.
    #[error(
        "the Pi-hole refuses every change of {list} because its line {index} is invalid: {line:?}; correct or delete that line on the Pi-hole"
    )]
    BadForeignLine {
        /// The list, such as `dns.hosts`.
        list: &'static str,
        /// Position in the list, from 0.
        index: usize,
        /// The line.
        line: String,
    },
    /// The Pi-hole takes no comments, so lines cannot carry a marker.
    #[error(
        "the Pi-hole refuses comments (FTL before 6.0.3), so its records are listed in a ConfigMap instead; upgrade the Pi-hole"
    )]
    CommentsRefused,
    /// One of our lines was refused.
    #[error("the Pi-hole refuses {:?}: {why}", line.as_str())]
    LineRefused {
        /// The line.
        line: Line,
        /// The Pi-hole's message.
        why: String,
    },
    /// A list that has to be written in one request is too large for one.
    #[error("{list} is too large for one request to the Pi-hole; remove some of its lines")]
    TooLarge {
        /// The list, such as `dns.cnameRecords`.
        list: &'static str,
    },
    /// The server speaks the other dialect.
    #[error("the server does not speak the {dialect} dialect; set PIHOLE_API_DIALECT=auto")]
    WrongDialect {
        /// The dialect that was tried.
        dialect: &'static str,
    },
    /// The server speaks no dialect we know.
    #[error("no Pi-hole answers at this address (status {status}); check the URL")]
    NotAPihole {
        /// The answer to the last attempt.
        status: u16,
    },
    /// The server redirects to another address.
    #[error("the server redirects (status {status}) to {location}; put the final address into the URL")]
    Redirected {
        /// The status.
        status: u16,
        /// Scheme and host it points at.
        location: String,
    },
    /// The answer is not what the API promises; nothing may be concluded from it.
    #[error("the Pi-hole's answer cannot be used: {what}")]
    Protocol {
        /// The difference.
        what: String,
    },
    /// No connection, or it broke.
    #[error("the Pi-hole cannot be reached: {what}")]
    Unreachable {
        /// The cause.
        what: String,
        /// Whether trying again at once may help (refused, reset).
        quick: bool,
    },
    /// No answer in time.
    #[error("the Pi-hole did not answer in time")]
    Timeout,
    /// The certificate does not verify.
    #[error(
        "the Pi-hole's certificate does not verify: {what}. PIHOLE_CA_FILE and PIHOLE_SERVER_NAME (usually pi.hole) have to fit it; FTL 6.3 and later replace the CA about every 45 days, unless webserver.tls.validity is 0"
    )]
    Tls {
        /// The verifier's message.
        what: String,
    },
    /// A client error with no special meaning.
    #[error("the Pi-hole refused the request: status {status}{detail}")]
    Rejected {
        /// The status.
        status: u16,
        /// Key, message and hint, when the Pi-hole gave them.
        detail: String,
    },
    /// A server error.
    #[error("the Pi-hole failed: status {status}{detail}")]
    Server {
        /// The status.
        status: u16,
        /// Key, message and hint, when the Pi-hole gave them.
        detail: String,
    },
    /// The client could not be set up.
    #[error("{what}")]
    Setup {
        /// The error in the configuration.
        what: String,
    },
    /// This dialect cannot hold such a record.
    #[error("the {dialect} dialect cannot hold {:?}", line.as_str())]
    Unsupported {
        /// The dialect.
        dialect: &'static str,
        /// The line.
        line: Line,
    },
}

/// How to continue after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Worth trying again with backoff.
    Transient,
    /// Wait a flat time, for the whole instance.
    Throttled(Option<Duration>),
    /// A person has to change a setting of the Pi-hole; it is checked again every few seconds.
    Instance,
    /// This line will never be accepted; do not send it again until it or the Pi-hole changes.
    Permanent,
}

impl PiholeError {
    /// The reason, from a closed list.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unauthorized => "Unauthorized",
            Self::AppSudoOff => "AppSudoOff",
            Self::CliPassword => "CliPassword",
            Self::EnvLocked { .. } => "EnvLocked",
            Self::ReadOnly => "ReadOnly",
            Self::TwoFactor => "TwoFactor",
            Self::SeatsFull => "SeatsFull",
            Self::RateLimited { .. } => "RateLimited",
            Self::BadForeignLine { .. } => "BadForeignLine",
            Self::CommentsRefused => "CommentsRefused",
            Self::LineRefused { .. } => "LineRefused",
            Self::TooLarge { .. } => "TooLarge",
            Self::WrongDialect { .. } => "WrongDialect",
            Self::NotAPihole { .. } => "NotAPihole",
            Self::Redirected { .. } => "Redirected",
            Self::Protocol { .. } => "Protocol",
            Self::Unreachable { .. } => "Unreachable",
            Self::Timeout => "Timeout",
            Self::Tls { .. } => "Tls",
            Self::Rejected { .. } => "Rejected",
            Self::Server { .. } => "ServerError",
            Self::Setup { .. } => "Setup",
            Self::Unsupported { .. } => "Unsupported",
        }
    }

    /// How to continue.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::RateLimited { retry_after } => ErrorClass::Throttled(*retry_after),
            Self::SeatsFull => ErrorClass::Throttled(None),
            Self::AppSudoOff
            | Self::CliPassword
            | Self::TooLarge { .. }
            | Self::EnvLocked { .. }
            | Self::ReadOnly
            | Self::TwoFactor
            | Self::BadForeignLine { .. }
            | Self::Setup { .. } => ErrorClass::Instance,
            Self::LineRefused { .. } | Self::Unsupported { .. } => ErrorClass::Permanent,
            Self::Unauthorized
            | Self::CommentsRefused
            | Self::WrongDialect { .. }
            | Self::NotAPihole { .. }
            | Self::Redirected { .. }
            | Self::Protocol { .. }
            | Self::Unreachable { .. }
            | Self::Timeout
            | Self::Tls { .. }
            | Self::Rejected { .. }
            | Self::Server { .. } => ErrorClass::Transient,
        }
    }

    /// Whether the same call may succeed within seconds: the server is restarting.
    pub fn is_quick(&self) -> bool {
        matches!(self, Self::Unreachable { quick: true, .. })
    }
}

/// Text from a Pi-hole made safe for a log line: printable, one line, short.
pub(crate) fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}
