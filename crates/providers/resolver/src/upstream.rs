//! Which resolver to ask, as users write it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// The port of DNS.
pub(crate) const PORT: u16 = 53;

/// A resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upstream {
    /// The servers of `/etc/resolv.conf`, the next one when one does not answer.
    System,
    /// One server.
    Server(SocketAddr),
    /// The name servers of the zone that a name is in, each of them.
    Authoritative,
}

/// The text is not a resolver.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a resolver; write system, authoritative, or an address such as 192.0.2.53 or [2001:db8::53]:5353"
)]
pub struct UpstreamError(String);

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let text = text.trim();
        match text {
            "system" => return Ok(Self::System),
            "authoritative" => return Ok(Self::Authoritative),
            _ => {}
        }
        let address = text.parse::<SocketAddr>().ok();
        let bare = || text.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT));
        let address = address.or_else(bare).filter(|address| address.port() != 0 && !address.ip().is_unspecified());
        address.map(Self::Server).ok_or_else(|| UpstreamError(text.chars().take(100).collect()))
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Server(address) => address.fmt(f),
            Self::Authoritative => f.write_str("authoritative"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read_as_they_are_printed() {
        for (text, printed) in [
            ("system", "system"),
            (" authoritative ", "authoritative"),
            ("192.0.2.53", "192.0.2.53:53"),
            ("192.0.2.53:5353", "192.0.2.53:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("[2001:db8::53]", "[2001:db8::53]:53"),
            ("[2001:db8::53]:54", "[2001:db8::53]:54"),
        ] {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!(upstream.to_string(), printed);
            assert_eq!(printed.parse(), Ok(upstream));
        }
    }

    #[test]
    fn what_is_not_a_resolver_is_refused_with_a_hint() {
        for text in ["", "resolver.example.org", "192.0.2.53:0", "0.0.0.0", "192.0.2.53:70000", "https://192.0.2.1/"] {
            let error = text.parse::<Upstream>().unwrap_err().to_string();
            assert!(error.contains("write system, authoritative"), "{error}");
        }
    }
}
