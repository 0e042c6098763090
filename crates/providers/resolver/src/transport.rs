//! How a server is reached: plainly, over TLS (RFC 7858) or over HTTPS (RFC 8484).
//!
//! Connections over TLS are kept open and used again, because each costs a handshake. What cannot be set up, such as an authority that cannot be
//! read, is a failure of every question, so that it is reported like a server that cannot be reached.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RecordType as WireType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::exchange::{self, Failure, framed};
use crate::https::Https;
use crate::wire;

/// Open connections to one server that wait for a question.
const MOST_IDLE: usize = 8;
/// How long one is kept.
pub(crate) const LONGEST_IDLE: Duration = Duration::from_secs(10);

/// How a server is reached.
#[derive(Debug)]
pub(crate) enum Transport {
    /// UDP, and TCP where that is too small.
    Plain(SocketAddr),
    /// TLS.
    Tls(Tls),
    /// HTTPS.
    Https(Box<Https>),
    /// Not at all, and why.
    Broken(String),
}

impl Transport {
    /// TLS to a server with a certificate of this name, or of its address.
    pub(crate) fn tls(address: SocketAddr, name: Option<&str>, ca: Option<&Path>) -> Self {
        let name =
            name.map_or_else(|| Ok(ServerName::from(address.ip())), |name| ServerName::try_from(name.to_owned()));
        let set_up = || -> Result<Tls, String> {
            let name = name.map_err(|error| error.to_string())?;
            let connector = TlsConnector::from(Arc::new(client_config(ca)?));
            Ok(Tls { address, name, connector, idle: Mutex::default() })
        };
        set_up().map_or_else(Self::Broken, Self::Tls)
    }

    /// HTTPS to this URL.
    pub(crate) fn https(url: &str, ca: Option<&Path>) -> Self {
        Https::new(url, ca).map_or_else(Self::Broken, |https| Self::Https(Box::new(https)))
    }

    /// Asks, until the deadline.
    pub(crate) async fn exchange(
        &self,
        name: &Name,
        rtype: WireType,
        recursive: bool,
        deadline: Instant,
    ) -> Result<Message, Failure> {
        let question = || wire::question(name, rtype, recursive, true);
        match self {
            Self::Plain(address) => exchange::exchange(*address, name, rtype, recursive, deadline).await,
            Self::Tls(tls) => {
                timeout_at(deadline, tls.ask(&question(), deadline)).await.map_err(|_| Failure::Timeout)?
            }
            Self::Https(https) => {
                timeout_at(deadline, https.ask(&question(), deadline)).await.map_err(|_| Failure::Timeout)?
            }
            Self::Broken(why) => Err(Failure::Network(io::Error::other(why.clone()))),
        }
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| unusable(path, &error.to_string()))
}

pub(crate) fn unusable(path: &Path, why: &str) -> String {
    format!("the certificate authority in {} cannot be used: {why}", path.display())
}

/// TLS with the authorities of a file, or those of the system.
pub(crate) fn client_config(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots(ca)?).with_no_client_auth())
}

/// The authorities of a file, or those of the system.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let pem = read(path)?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(|why| unusable(path, &why))?;
    }
    if roots.is_empty() { Err(unusable(path, "it has no certificate")) } else { Ok(roots) }
}

/// A server behind TLS.
pub(crate) struct Tls {
    address: SocketAddr,
    name: ServerName<'static>,
    connector: TlsConnector,
    /// Connections that were used a moment ago, and when.
    idle: Mutex<Vec<(TlsStream<TcpStream>, Instant)>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("address", &self.address).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    async fn ask(&self, question: &Message, deadline: Instant) -> Result<Message, Failure> {
        // A firewall may have dropped an older one without a word.
        let fresh = |(open, used): (TlsStream<TcpStream>, Instant)| (used.elapsed() < LONGEST_IDLE).then_some(open);
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().and_then(fresh);
        // The server may have closed a connection that was idle, or does not hear it any more: then a new one is made, while there is time.
        if let Some(mut open) = idle {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Ok(Ok(answer)) = timeout_at(deadline - left * 3 / 4, framed(&mut open, question)).await {
                self.keep(open);
                return Ok(answer);
            }
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        let plain = TcpStream::connect(self.address).await?;
        plain.set_nodelay(true)?;
        let mut open = self.connector.connect(self.name.clone(), plain).await?;
        let answer = framed(&mut open, question).await?;
        self.keep(open);
        Ok(answer)
    }

    fn keep(&self, open: TlsStream<TcpStream>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, used)| used.elapsed() < LONGEST_IDLE);
        if idle.len() < MOST_IDLE {
            idle.push((open, Instant::now()));
        }
    }
}
