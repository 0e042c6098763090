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
use crate::wire;

/// Open connections to one server that wait for a question.
const MOST_IDLE: usize = 8;
/// How long one is kept.
const LONGEST_IDLE: Duration = Duration::from_secs(10);
/// The longest message of DNS.
const MOST_OCTETS: usize = 65_535;
/// The type of a message over HTTPS.
const MEDIA_TYPE: &str = "application/dns-message";

/// How a server is reached.
#[derive(Debug)]
pub(crate) enum Transport {
    /// UDP, and TCP where that is too small.
    Plain(SocketAddr),
    /// TLS.
    Tls(Tls),
    /// HTTPS.
    Https(Https),
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
            let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .with_root_certificates(roots(ca)?)
                .with_no_client_auth();
            Ok(Tls { address, name, connector: TlsConnector::from(Arc::new(config)), idle: Mutex::default() })
        };
        set_up().map_or_else(Self::Broken, Self::Tls)
    }

    /// HTTPS to this URL.
    pub(crate) fn https(url: &str, ca: Option<&Path>) -> Self {
        // Another part of the process may have installed a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let set_up = || -> Result<Https, String> {
            let mut builder =
                reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().http1_only();
            if let Some(path) = ca {
                let pem = read(path)?;
                let certificates = reqwest::Certificate::from_pem_bundle(&pem);
                builder = builder.tls_certs_only(certificates.map_err(|error| unusable(path, &error.to_string()))?);
            }
            let client = builder.build().map_err(|error| error.to_string())?;
            Ok(Https { url: url.to_owned(), client })
        };
        set_up().map_or_else(Self::Broken, Self::Https)
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
            Self::Https(https) => timeout_at(deadline, https.ask(&question())).await.map_err(|_| Failure::Timeout)?,
            Self::Broken(why) => Err(Failure::Network(io::Error::other(why.clone()))),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| unusable(path, &error.to_string()))
}

fn unusable(path: &Path, why: &str) -> String {
    format!("the certificate authority in {} cannot be used: {why}", path.display())
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

/// A server behind HTTPS.
#[derive(Debug)]
pub(crate) struct Https {
    url: String,
    client: reqwest::Client,
}

impl Https {
    async fn ask(&self, question: &Message) -> Result<Message, Failure> {
        let network = |why: String| Failure::Network(io::Error::other(why));
        let sent = question.to_vec().map_err(|error| Failure::Unreadable(error.to_string()))?;
        let request = self.client.post(&self.url).header("content-type", MEDIA_TYPE).header("accept", MEDIA_TYPE);
        let mut response = request.body(sent).send().await.map_err(|error| network(causes(&error)))?;
        // Anything but a message is not an answer about the name.
        if response.status() != reqwest::StatusCode::OK {
            return Err(network(format!("it answers with HTTP status {}", response.status().as_u16())));
        }
        let media_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        if media_type != Some(MEDIA_TYPE) {
            return Err(network(format!("it does not speak DNS: the answer is not {MEDIA_TYPE}")));
        }
        let mut octets = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| network(causes(&error)))? {
            if octets.len() + part.len() > MOST_OCTETS {
                return Err(Failure::Unreadable("it is larger than a message can be".to_owned()));
            }
            octets.extend_from_slice(&part);
        }
        let answer = Message::from_vec(&octets).map_err(|error| Failure::Unreadable(error.to_string()))?;
        if wire::answers(question, &answer) {
            Ok(answer)
        } else {
            Err(Failure::Unreadable("it answers another question".to_owned()))
        }
    }
}

/// The last cause of an error, which names what failed.
fn causes(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
