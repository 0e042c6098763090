//! Where a name comes from, how far it has come, and the result of its lookup with the reason.

/// How a name became known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An entry that a user wrote in a DNS object.
    #[default]
    Manual,
    /// Found on an object of the cluster that nobody publishes here.
    ExternalDns,
    /// Taken over from a remote portal.
    Remote,
    /// Wanted from or published by a system of this operator.
    System,
}

impl Source {
    /// As in statuses and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::ExternalDns => "external-dns",
            Self::Remote => "remote",
            Self::System => "system",
        }
    }
}

/// How far a name has come within this operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It is known; nobody here publishes it.
    #[default]
    Known,
    /// It is to be published.
    Wanted,
    /// It was written to its server.
    Published,
    /// It is not published; the refusal has the reason.
    Refused,
}

impl Stage {
    /// Every stage, in order.
    pub(crate) const ALL: [Self; 4] = [Self::Known, Self::Wanted, Self::Published, Self::Refused];

    /// As in statuses and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Wanted => "wanted",
            Self::Published => "published",
            Self::Refused => "refused",
        }
    }
}

/// The answer of the resolvers for a name, compared with its targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncStatus {
    /// It was not checked.
    #[default]
    Unchecked,
    /// The answer is the expected one.
    Sync,
    /// The name does not exist, or the answer differs from the targets.
    NotFound,
    /// The lookup failed.
    Error,
    /// The lookup took too long.
    Timeout,
}

impl SyncStatus {
    /// The status of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    /// Every status, in order.
    pub(crate) const ALL: [Self; 5] = [Self::Unchecked, Self::Sync, Self::NotFound, Self::Error, Self::Timeout];

    /// As in statuses and in the API; empty when not checked.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unchecked => "",
            Self::Sync => "sync",
            Self::NotFound => "notFound",
            Self::Error => "error",
            Self::Timeout => "timeout",
        }
    }
}

/// Why a name has its [`SyncStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncReason {
    /// It was not checked.
    #[default]
    Unchecked,
    /// The answer has the targets.
    Match,
    /// The name exists, and no targets are expected.
    Exists,
    /// The name does not exist (NXDOMAIN).
    NoSuchName,
    /// The name exists without a record of this type.
    NoData,
    /// The answer differs from the targets.
    Mismatch,
    /// The CNAME records lead back to themselves, or there are too many of them.
    CnameLoop,
    /// The server failed (SERVFAIL).
    ServFail,
    /// The server refused to answer (REFUSED).
    Refused,
    /// The server answered with another error code.
    ErrorCode,
    /// No server could be reached.
    Unreachable,
    /// The answer could not be read.
    BadAnswer,
    /// No answer within the time limit.
    Timeout,
    /// The entry itself is wrong, so it was not looked up.
    InvalidEntry,
    /// This replica does not know: only the leader looks names up, and the result is in no status.
    LeaderOnly,
}

impl SyncReason {
    /// Every reason, in order.
    pub const ALL: [Self; 15] = [
        Self::Unchecked,
        Self::Match,
        Self::Exists,
        Self::NoSuchName,
        Self::NoData,
        Self::Mismatch,
        Self::CnameLoop,
        Self::ServFail,
        Self::Refused,
        Self::ErrorCode,
        Self::Unreachable,
        Self::BadAnswer,
        Self::Timeout,
        Self::InvalidEntry,
        Self::LeaderOnly,
    ];

    /// The reason of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// As in statuses and in the API; empty when not checked.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unchecked => "",
            Self::Match => "Match",
            Self::Exists => "Exists",
            Self::NoSuchName => "NoSuchName",
            Self::NoData => "NoData",
            Self::Mismatch => "Mismatch",
            Self::CnameLoop => "CnameLoop",
            Self::ServFail => "ServFail",
            Self::Refused => "Refused",
            Self::ErrorCode => "ErrorCode",
            Self::Unreachable => "Unreachable",
            Self::BadAnswer => "BadAnswer",
            Self::Timeout => "Timeout",
            Self::InvalidEntry => "InvalidEntry",
            Self::LeaderOnly => "LeaderOnly",
        }
    }
}
