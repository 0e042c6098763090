//! How a server is reached: plainly, over TLS (RFC 7858) or over HTTPS (RFC 8484).
//!
//! Connections over TLS are kept open and used again, because each costs a handshake. What cannot be set up, such as an authority that cannot be
//! read, is a failure of every question, so that it is reported like a server that cannot be reached.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt as _};
use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RecordType as WireType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::exchange::{self, Failure, framed};
use crate::https::Https;
use crate::wire;

/// Open connections to one server that wait for a question.
const MOST_IDLE: usize = 8;
/// How long one is kept.
pub(crate) const LONGEST_IDLE: Duration = Duration::from_secs(10);
/// How long one address of a server may take, before the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

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

    /// HTTPS to this URL, for questions with this deadline.
    pub(crate) fn https(url: &str, ca: Option<&Path>, deadline: Duration) -> Self {
        Https::new(url, ca, deadline).map_or_else(Self::Broken, |https| Self::Https(Box::new(https)))
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
        let Some(open) = self.idle() else { return self.ask_over(self.connect().await?, question).await };
        let over_open = async {
            // The server may have closed a connection that was idle.
            let answer = self.ask_over(open, question).await;
            (!matches!(answer, Err(Failure::Network(_)))).then_some(answer)
        };
        let over_new = async {
            let mut new = self.connect().await?;
            let answer = framed(&mut new, question).await?;
            // The others that are idle may be lost as well.
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
            self.keep(new);
            Ok(answer)
        };
        either(over_open, over_new, deadline).await
    }

    /// A connection that was used a moment ago. A firewall may have dropped an older one without a word.
    fn idle(&self) -> Option<TlsStream<TcpStream>> {
        let (open, used) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        (used.elapsed() < LONGEST_IDLE).then_some(open)
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>, Failure> {
        secured(&self.connector, &self.name, self.address).await
    }

    async fn ask_over(&self, mut open: TlsStream<TcpStream>, question: &Message) -> Result<Message, Failure> {
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

/// A connection to an address, behind TLS.
pub(crate) async fn secured(
    connector: &TlsConnector,
    name: &ServerName<'static>,
    address: SocketAddr,
) -> Result<TlsStream<TcpStream>, Failure> {
    let plain = TcpStream::connect(address).await?;
    plain.set_nodelay(true)?;
    Ok(connector.connect(name.clone(), plain).await?)
}

/// The answer over an open connection, or over a new one. The new one is made when the open one is lost (`None`), or when it was silent for a quarter of
/// the time that is left: the server may not hear it any more. The open one is still listened to, because the server may only be slow.
pub(crate) async fn either<T>(
    open: impl Future<Output = Option<Result<T, Failure>>>,
    new: impl Future<Output = Result<T, Failure>>,
    deadline: Instant,
) -> Result<T, Failure> {
    let (mut open, new) = (pin!(open), pin!(new));
    let left = deadline.saturating_duration_since(Instant::now());
    match timeout(left / 4, &mut open).await {
        Ok(Some(answer)) => return answer,
        Ok(None) => return new.await,
        Err(_) => {}
    }
    match select(open, new).await {
        Either::Left((Some(answer), _)) | Either::Right((answer @ Ok(_), _)) => answer,
        Either::Left((None, new)) => new.await,
        Either::Right((Err(failure), open)) => open.await.unwrap_or(Err(failure)),
    }
}

/// The result of the first attempt that succeeds. Each begins when one before it fails, or after a moment: an address that does not answer takes no time
/// from the others.
pub(crate) async fn first_success<T>(
    attempts: impl IntoIterator<Item = impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    let (mut waiting, mut running) = (attempts.into_iter(), FuturesUnordered::new());
    let mut last = Failure::Network(io::Error::other("the host has no address"));
    running.extend(waiting.next());
    while !running.is_empty() {
        match timeout(STAGGER, running.next()).await {
            Ok(Some(Ok(result))) => return Ok(result),
            Ok(Some(Err(failure))) => last = failure,
            Ok(None) | Err(_) => {}
        }
        running.extend(waiting.next());
    }
    Err(last)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test reports a failed step by panicking.
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(8);

    async fn after(seconds: u64, answer: &'static str) -> &'static str {
        sleep(Duration::from_secs(seconds)).await;
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_connection_is_heard_until_the_deadline() {
        let until = || Instant::now() + DEADLINE;
        let slow = async { Some(Ok(after(7, "open").await)) };
        let as_slow = async { Ok(after(7, "new").await) };
        assert_eq!(either(slow, as_slow, until()).await.unwrap(), "open");
        let started = Instant::now();
        let dead = async { Ok(after(1, "new").await) };
        assert_eq!(either(pending(), dead, until()).await.unwrap(), "new");
        assert_eq!(started.elapsed(), Duration::from_secs(3), "a quarter, and the time of the new one");
        let refused = async { Err(Failure::Network(io::Error::other("refused"))) };
        let slow = async { Some(Ok(after(7, "open").await)) };
        assert_eq!(either(slow, refused, until()).await.unwrap(), "open", "no new one can be made");
        let lost = async { None };
        assert_eq!(either(lost, async { Ok("new") }, until()).await.unwrap(), "new");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_takes_no_time_from_the_next() {
        async fn attempt(number: usize) -> Result<usize, Failure> {
            match number {
                0 | 1 => pending().await,
                2 => Err(Failure::Network(io::Error::other("refused"))),
                number => Ok(number),
            }
        }
        let started = Instant::now();
        assert_eq!(first_success((0..5).map(attempt)).await.unwrap(), 3);
        assert_eq!(started.elapsed(), STAGGER * 2);
        assert!(matches!(first_success((2..3).map(attempt)).await, Err(Failure::Network(_))));
        assert!(matches!(first_success((0..0).map(attempt)).await, Err(Failure::Network(_))));
    }
}
