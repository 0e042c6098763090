//! What can go wrong with a Pangolin, sorted by what the reader can do about it.
//!
//! Every variant has a stable reason (event reason, metric label, heading in the troubleshooting page) and a class that decides how to continue
//! after it. No variant has a key, a request or a whole answer in it.

use std::time::Duration;

use crate::types::ResourceId;

/// One failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PangolinError {
    /// The key cannot be one.
    #[error("the API key is not of the form id.secret; copy the whole key from Pangolin's dashboard")]
    MalformedKey,
    /// The key was refused.
    #[error("Pangolin refuses the API key; create one in the dashboard, or mount the new one after a rotation")]
    Unauthorized,
    /// The key lacks a permission.
    #[error("the API key lacks the permission \"{permission}\"; add it to the key in Pangolin's dashboard")]
    Forbidden {
        /// The name of the permission in the dashboard's API.
        permission: &'static str,
    },
    /// The key does not reach the organisation, or no organisation has that id.
    #[error("the API key has no access to the organisation {org:?}, or there is no such organisation; check the id")]
    OtherOrganization {
        /// The configured id.
        org: String,
    },
    /// The organisation has no domain at all, as one that does not exist looks to a root key.
    #[error("the organisation {org:?} has no domain; check its id, or add a domain to it")]
    EmptyOrganization {
        /// The configured id.
        org: String,
    },
    /// A feature needs a licence.
    #[error("Pangolin needs a licence or another plan for this: {message}")]
    Licence {
        /// The server's message.
        message: String,
    },
    /// A shared policy protects the resource, and an update would delete the protection of the resource itself.
    #[error(
        "resource {id} has a shared policy, which Pangolin lets nobody send again without a licence, and an update without it deletes the resource's own protection; detach the policy"
    )]
    SharedPolicy {
        /// The resource.
        id: ResourceId,
    },
    /// The domain is not one of the organisation, or not verified.
    #[error("domain {domain:?} is not a verified domain of the organisation")]
    ForeignDomain {
        /// Its id.
        domain: String,
    },
    /// The site is not one of the organisation.
    #[error("site {site} is not a site of the organisation")]
    ForeignSite {
        /// Its number.
        site: i64,
    },
    /// The domain cannot have the host.
    #[error("Pangolin would serve {got} instead of {wanted}; choose another domain")]
    WrongHost {
        /// The wanted host.
        wanted: String,
        /// What it would be.
        got: String,
    },
    /// Another resource has the host.
    #[error("the host {host} is used by another resource of Pangolin ({by}); delete one of the two")]
    HostTaken {
        /// The host.
        host: String,
        /// The other one, as far as it is known.
        by: String,
    },
    /// Another resource has the identifier.
    #[error("the identifier {nice_id:?} is used by another resource of Pangolin")]
    NiceIdTaken {
        /// The identifier.
        nice_id: String,
    },
    /// The server does not know a setting.
    #[error("this version of Pangolin does not know {}; upgrade it, or do not use the setting", keys.join(", "))]
    Unsupported {
        /// The names in the API.
        keys: Vec<String>,
    },
    /// The address of a target cannot be dialled.
    #[error("{host:?} is not an address that the site can dial; use a host name or an IPv4 address")]
    BadAddress {
        /// The address.
        host: String,
    },
    /// The request was refused.
    #[error("Pangolin refused the request: status {status}, {message}")]
    Rejected {
        /// The status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The object does not exist (any more).
    #[error("{what} does not exist in Pangolin")]
    NotFound {
        /// Which object.
        what: String,
    },
    /// No Integration API there.
    #[error(
        "no Integration API answers at this address (status {status}); check the URL, and flags.enable_integration_api in Pangolin's configuration"
    )]
    NotTheApi {
        /// The status.
        status: u16,
    },
    /// The server redirects.
    #[error("the server redirects (status {status}) to {location}; put the final address into the URL")]
    Redirected {
        /// The status.
        status: u16,
        /// Scheme and host.
        location: String,
    },
    /// The answer cannot be used; nothing may be concluded from it.
    #[error("Pangolin's answer cannot be used: {what}")]
    Protocol {
        /// What was wrong.
        what: String,
    },
    /// A list could not be read as a whole.
    #[error("the list of {list} is not complete: {what}")]
    Incomplete {
        /// Which list.
        list: &'static str,
        /// What was wrong.
        what: String,
    },
    /// No connection, or it broke.
    #[error("Pangolin cannot be reached: {what}")]
    Unreachable {
        /// What happened.
        what: String,
        /// Whether the server dropped the connection, as it does with an idle one.
        dropped: bool,
    },
    /// No answer in time.
    #[error("Pangolin did not answer in time")]
    Timeout,
    /// The certificate does not verify.
    #[error("Pangolin's certificate does not verify: {what}")]
    Tls {
        /// The message of the TLS library.
        what: String,
    },
    /// Too many requests.
    #[error("Pangolin, or a proxy in front of it, limits the rate of requests")]
    RateLimited {
        /// What `Retry-After` asked for.
        retry_after: Option<Duration>,
    },
    /// A server error.
    #[error("Pangolin failed: status {status}, {message}")]
    Server {
        /// The status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The client cannot be set up.
    #[error("{what}")]
    Setup {
        /// What is wrong.
        what: String,
    },
}

/// How to go on after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Worth trying again with backoff.
    Transient,
    /// Wait a flat time, for the whole server.
    Throttled(Option<Duration>),
    /// A person has to change the key, the settings or the server; nothing works until then.
    Settings,
    /// This object will not be accepted until it, or something in Pangolin, changes.
    Object,
}

impl PangolinError {
    /// The reason, from a closed list.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MalformedKey => "MalformedKey",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden { .. } => "Forbidden",
            Self::OtherOrganization { .. } => "OtherOrganization",
            Self::EmptyOrganization { .. } => "EmptyOrganization",
            Self::Licence { .. } => "Licence",
            Self::SharedPolicy { .. } => "SharedPolicy",
            Self::ForeignDomain { .. } => "ForeignDomain",
            Self::ForeignSite { .. } => "ForeignSite",
            Self::WrongHost { .. } => "WrongHost",
            Self::HostTaken { .. } => "HostTaken",
            Self::NiceIdTaken { .. } => "NiceIdTaken",
            Self::Unsupported { .. } => "Unsupported",
            Self::BadAddress { .. } => "BadAddress",
            Self::Rejected { .. } => "Rejected",
            Self::NotFound { .. } => "NotFound",
            Self::NotTheApi { .. } => "NotTheApi",
            Self::Redirected { .. } => "Redirected",
            Self::Protocol { .. } => "Protocol",
            Self::Incomplete { .. } => "Incomplete",
            Self::Unreachable { .. } => "Unreachable",
            Self::Timeout => "Timeout",
            Self::Tls { .. } => "Tls",
            Self::RateLimited { .. } => "RateLimited",
            Self::Server { .. } => "ServerError",
            Self::Setup { .. } => "Setup",
        }
    }

    /// How to go on.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::RateLimited { retry_after } => ErrorClass::Throttled(*retry_after),
            Self::MalformedKey
            | Self::Unauthorized
            | Self::Forbidden { .. }
            | Self::OtherOrganization { .. }
            | Self::EmptyOrganization { .. }
            | Self::NotTheApi { .. }
            | Self::Redirected { .. }
            | Self::Setup { .. } => ErrorClass::Settings,
            Self::Licence { .. }
            | Self::SharedPolicy { .. }
            | Self::ForeignDomain { .. }
            | Self::ForeignSite { .. }
            | Self::WrongHost { .. }
            | Self::HostTaken { .. }
            | Self::NiceIdTaken { .. }
            | Self::Unsupported { .. }
            | Self::BadAddress { .. }
            | Self::Rejected { .. } => ErrorClass::Object,
            // What does not exist any more is seen by the next list.
            Self::NotFound { .. }
            | Self::Protocol { .. }
            | Self::Incomplete { .. }
            | Self::Unreachable { .. }
            | Self::Timeout
            | Self::Tls { .. }
            | Self::Server { .. } => ErrorClass::Transient,
        }
    }

    /// Whether it is about the server as a whole, so that a call about another object would fail too. A missing permission is about one kind
    /// of call, and the server answers with status 500 where it fails at one object.
    pub fn concerns_server(&self) -> bool {
        match self {
            Self::Server { status, .. } => (502..=504).contains(status),
            Self::Forbidden { .. } | Self::NotFound { .. } | Self::Protocol { .. } | Self::Incomplete { .. } => false,
            _ => match self.class() {
                ErrorClass::Object => false,
                ErrorClass::Transient | ErrorClass::Throttled(_) | ErrorClass::Settings => true,
            },
        }
    }

    /// Whether the request may have taken effect although it failed.
    pub fn is_ambiguous(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Timeout
                | Self::Server { .. }
                | Self::Protocol { .. }
                | Self::RateLimited { .. }
        )
    }
}
