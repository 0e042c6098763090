//! Which resolver to ask, as users write it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use signpost_dns::Fqdn;
use thiserror::Error;
use url::Url;

/// The port of DNS.
pub(crate) const PORT: u16 = 53;
/// The port of DNS over TLS.
const TLS_PORT: u16 = 853;

/// A resolver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upstream {
    /// The servers of `/etc/resolv.conf`, the next one when one does not answer.
    System,
    /// One server.
    Server(SocketAddr),
    /// One server behind TLS, whose certificate is for this name, or else for its address.
    Tls {
        /// The server.
        address: SocketAddr,
        /// The name in its certificate.
        name: Option<Box<str>>,
    },
    /// A server behind HTTPS, by its URL.
    Https(Box<str>),
    /// The name servers of the zone that a name is in, each of them.
    Authoritative,
}

/// The text is not a resolver.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a resolver; write system, authoritative, an address such as 192.0.2.53 or [2001:db8::53]:5353, tls://192.0.2.53#dns.example.org, or https://dns.example.org/dns-query"
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
        // The message is in logs: what comes before an @ may be a password.
        let shown = text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}"));
        let error = || UpstreamError(shown.chars().take(100).collect());
        if let Some(server) = text.strip_prefix("tls://") {
            let (server, name) = server.split_once('#').map_or((server, None), |(server, name)| (server, Some(name)));
            let valid = |name: &str| Fqdn::parse_hostname(name).map(|name| Box::from(name.undotted()));
            let name = name.map(valid).transpose().map_err(|_| error())?;
            return address(server, TLS_PORT).map(|address| Self::Tls { address, name }).ok_or_else(error);
        }
        if text.starts_with("https://") {
            let plain = |url: &Url| url.has_host() && url.username().is_empty() && url.password().is_none();
            let url = Url::parse(text).ok().filter(plain);
            return url.map(|url| Self::Https(url.as_str().into())).ok_or_else(error);
        }
        address(text, PORT).map(Self::Server).ok_or_else(error)
    }
}

/// An address, with this port where it has none.
fn address(text: &str, port: u16) -> Option<SocketAddr> {
    let bare = || text.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port));
    let address = text.parse::<SocketAddr>().ok().or_else(bare);
    address.filter(|address| address.port() != 0 && !address.ip().is_unspecified())
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Server(address) => address.fmt(f),
            Self::Tls { address, name: None } => write!(f, "tls://{address}"),
            Self::Tls { address, name: Some(name) } => write!(f, "tls://{address}#{name}"),
            Self::Https(url) => f.write_str(url),
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
            ("tls://192.0.2.53", "tls://192.0.2.53:853"),
            ("tls://[2001:db8::53]:8853#DNS.example.org", "tls://[2001:db8::53]:8853#dns.example.org"),
            ("https://dns.example.org/dns-query", "https://dns.example.org/dns-query"),
        ] {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!(upstream.to_string(), printed);
            assert_eq!(printed.parse(), Ok(upstream));
        }
    }

    #[test]
    fn what_is_not_a_resolver_is_refused_with_a_hint() {
        for text in [
            "",
            "resolver.example.org",
            "192.0.2.53:0",
            "0.0.0.0",
            "192.0.2.53:70000",
            "http://192.0.2.1/",
            "tls://dns.example.org",
            "tls://192.0.2.1#a_b",
            "https://",
            "https://user@192.0.2.1/",
            "https://:secret@192.0.2.1/",
            "tls://user:secret@192.0.2.1",
        ] {
            let error = text.parse::<Upstream>().unwrap_err().to_string();
            assert!(error.contains("write system, authoritative"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
