//! How a client reaches its server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

/// Certificates as content, in PEM.
#[derive(Clone, Default)]
pub struct Certificates {
    /// Trust these instead of the system's.
    pub ca: Option<Arc<[u8]>>,
    /// The client's certificate and its key.
    pub client: Option<Arc<[u8]>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ca, client } = self;
        f.debug_struct("Certificates").field("ca", &ca.is_some()).field("client", &client.is_some()).finish()
    }
}

/// How a client reaches its server.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The base URL, which [`HttpClient::base`](crate::HttpClient::base) returns with `server_name` as its host.
    pub url: Url,
    /// Trust the certificates in this PEM file instead of the system's. It is read again after a TLS error.
    pub ca_file: Option<PathBuf>,
    /// Certificates that are not in a file. Its authority counts instead of `ca_file`.
    pub certificates: Certificates,
    /// Accept any certificate.
    pub insecure: bool,
    /// The name in the server's certificate, where it differs from the host in the URL.
    pub server_name: Option<String>,
    /// The deadline for a connection.
    pub connect_timeout: Duration,
    /// The deadline for a whole call, from the connection to the end of the body.
    pub timeout: Duration,
    /// Connections that are kept open for later requests. With 0 every request has a connection of its own.
    pub idle_connections: usize,
    /// How long such a connection is kept: less than the server keeps it, or a request on it is lost.
    pub idle_timeout: Duration,
    /// Largest body that is read from a successful answer, in bytes. A body of an error is cut at 64 KiB.
    pub max_body: usize,
    /// Longest `Retry-After` that is honoured.
    pub longest_wait: Duration,
}

impl HttpOptions {
    /// Options with the system's certificates, deadlines of 3 and 10 seconds, one idle connection for 90 seconds, 8 MiB of
    /// body.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            ca_file: None,
            certificates: Certificates::default(),
            insecure: false,
            server_name: None,
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            idle_connections: 1,
            idle_timeout: Duration::from_secs(90),
            max_body: 8 << 20,
            longest_wait: Duration::from_hours(1),
        }
    }
}
