//! DNS over HTTPS (RFC 8484): over HTTP/2 where the server speaks it, and over HTTP/1.1 otherwise.
//!
//! ```text
//!  question ─► session, kept open ─┬─ h2 ────────► one connection for all questions
//!              TLS with ALPN ──────┴─ HTTP/1.1 ──► connections of their own
//! ```

use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use h2::client::SendRequest;
use hickory_proto::op::Message;
use rustls::pki_types::ServerName;
use tokio::net::lookup_host;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::exchange::{Failure, whole_answer};
use crate::transport::{LONGEST_IDLE, client_config, either, first_success, read, secured, unusable};

/// The longest message of DNS.
const MOST_OCTETS: usize = 65_535;
/// The most octets of the headers of a response.
const MOST_HEADERS: u32 = 16 << 10;
/// Addresses of a host that are tried.
const MOST_ADDRESSES: usize = 8;
/// The type of a message over HTTPS.
const MEDIA_TYPE: &str = "application/dns-message";
/// The protocols in a TLS handshake, in the order of preference.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Sends questions over one connection.
type Session = SendRequest<Cursor<Vec<u8>>>;

/// A session that is used now, its number, and whether it was made for this.
struct Used {
    session: Session,
    number: u64,
    new: bool,
}

/// A server behind HTTPS.
#[derive(Debug)]
pub(crate) struct Https {
    url: Url,
    name: ServerName<'static>,
    connector: Connector,
    /// The connection over HTTP/2, its number, and when it was last used.
    session: Mutex<Option<(Session, u64, Instant)>>,
    /// How many connections were made.
    made: AtomicU64,
    /// The client over HTTP/1.1, and whether the server speaks nothing else.
    client: reqwest::Client,
    older: AtomicBool,
}

struct Connector(TlsConnector);

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl Https {
    /// HTTPS to this URL, with the authorities of a file or else of the system, for questions with this deadline.
    pub(crate) fn new(url: &str, ca: Option<&Path>, deadline: Duration) -> Result<Self, String> {
        // Another part of the process may have installed a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().http1_only();
        // All addresses of the host share this time, one after another.
        builder = builder.connect_timeout(deadline / 2);
        if let Some(path) = ca {
            let pem = read(path)?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem);
            builder = builder.tls_certs_only(certificates.map_err(|error| unusable(path, &error.to_string()))?);
        }
        let client = builder.build().map_err(|error| error.to_string())?;
        let url: Url = url.parse().map_err(|error: url::ParseError| error.to_string())?;
        let name = match url.host() {
            Some(Host::Domain(host)) => ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?,
            Some(Host::Ipv4(ip)) => ServerName::from(std::net::IpAddr::from(ip)),
            Some(Host::Ipv6(ip)) => ServerName::from(std::net::IpAddr::from(ip)),
            None => return Err("the URL has no host".to_owned()),
        };
        let mut config = client_config(ca)?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        let connector = Connector(TlsConnector::from(Arc::new(config)));
        let (session, made, older) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { url, name, connector, session, made, client, older })
    }

    /// Asks, until the deadline.
    pub(crate) async fn ask(&self, question: &Message, deadline: Instant) -> Result<Message, Failure> {
        let sent = question.to_vec().map_err(|error| Failure::Unreadable(error.to_string()))?;
        let received = match self.session().await? {
            Some(used) => self.ask_session(used, &sent, deadline).await?,
            None => self.ask_older(sent).await?,
        };
        let answer = Message::from_vec(&received).map_err(|error| Failure::Unreadable(error.to_string()))?;
        whole_answer(question, answer)
    }

    /// The open connection, or a new one, and which of both it is. `None` where the server speaks HTTP/1.1 only.
    async fn session(&self) -> Result<Option<Used>, Failure> {
        if self.older.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // One connection is made at a time: the others wait for it.
        let mut open = self.session.lock().await;
        // A firewall may have dropped an older one without a word.
        if let Some((session, number, _)) = open.take().filter(|(.., used)| used.elapsed() < LONGEST_IDLE)
            && let Ok(session) = session.ready().await
        {
            *open = Some((session.clone(), number, Instant::now()));
            return Ok(Some(Used { session, number, new: false }));
        }
        let session = self.connect().await?;
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        *open = session.clone().map(|session| (session, number, Instant::now()));
        self.older.store(session.is_none(), Ordering::Relaxed);
        Ok(session.map(|session| Used { session, number, new: true }))
    }

    /// A new connection; `None` where the server does not speak HTTP/2.
    async fn connect(&self) -> Result<Option<Session>, Failure> {
        let attempt = |address| secured(&self.connector.0, &self.name, address);
        let stream = first_success(self.addresses().await?.into_iter().map(attempt)).await?;
        if stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Ok(None);
        }
        let mut builder = h2::client::Builder::new();
        builder.enable_push(false).max_header_list_size(MOST_HEADERS);
        let (session, connection) = builder.handshake(stream).await.map_err(|error| network(error.to_string()))?;
        // It ends with the last handle to the session.
        tokio::spawn(connection);
        Ok(Some(session))
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        let port = self.url.port_or_known_default().unwrap_or(443);
        match self.url.host() {
            Some(Host::Domain(host)) => Ok(lookup_host((host, port)).await?.take(MOST_ADDRESSES).collect()),
            Some(Host::Ipv4(ip)) => Ok(vec![(ip, port).into()]),
            Some(Host::Ipv6(ip)) => Ok(vec![(ip, port).into()]),
            None => Err(network("the URL has no host".to_owned())),
        }
    }

    /// Asks over HTTP/2. The server may not hear an open connection any more: then a new one is made, while there is time.
    async fn ask_session(&self, used: Used, sent: &[u8], deadline: Instant) -> Result<Vec<u8>, Failure> {
        let Used { session, number, new } = used;
        let broken = |error: h2::Error| Err(network(error.to_string()));
        if new {
            return self.send(session, sent).await.unwrap_or_else(broken);
        }
        let over_new = async {
            // Another question may have replaced it already.
            let mut open = self.session.lock().await;
            if open.as_ref().is_some_and(|(_, at, _)| *at == number) {
                *open = None;
            }
            drop(open);
            match self.session().await? {
                Some(used) => self.send(used.session, sent).await.unwrap_or_else(broken),
                None => self.ask_older(sent.to_vec()).await,
            }
        };
        either(async { self.send(session, sent).await.ok() }, over_new, deadline).await
    }

    /// The answer to a question over a connection, or what is wrong with the connection.
    async fn send(&self, mut session: Session, sent: &[u8]) -> Result<Result<Vec<u8>, Failure>, h2::Error> {
        let request = http::Request::post(self.url.as_str())
            .header("content-type", MEDIA_TYPE)
            .header("accept", MEDIA_TYPE)
            .header("content-length", sent.len())
            .body(());
        let request = match request {
            Ok(request) => request,
            Err(error) => return Ok(Err(network(error.to_string()))),
        };
        let (response, mut body) = session.send_request(request, false)?;
        body.send_data(Cursor::new(sent.to_vec()), true)?;
        let (head, mut body) = response.await?.into_parts();
        let media_type = head.headers.get("content-type").map(http::HeaderValue::as_bytes);
        if let Err(failure) = is_message(head.status.as_u16(), media_type) {
            return Ok(Err(failure));
        }
        let mut octets = Vec::new();
        while let Some(part) = body.data().await {
            let part = part?;
            body.flow_control().release_capacity(part.len())?;
            if let Err(failure) = append(&mut octets, &part) {
                return Ok(Err(failure));
            }
        }
        Ok(Ok(octets))
    }

    /// Asks over HTTP/1.1. After a failure, the next question finds out again what the server speaks.
    async fn ask_older(&self, sent: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let failed = |error: reqwest::Error| {
            self.older.store(false, Ordering::Relaxed);
            network(last_cause(&error))
        };
        let request =
            self.client.post(self.url.as_str()).header("content-type", MEDIA_TYPE).header("accept", MEDIA_TYPE);
        let mut response = request.body(sent).send().await.map_err(failed)?;
        let media_type = response.headers().get("content-type").map(reqwest::header::HeaderValue::as_bytes);
        is_message(response.status().as_u16(), media_type)?;
        let mut octets = Vec::new();
        while let Some(part) = response.chunk().await.map_err(failed)? {
            append(&mut octets, &part)?;
        }
        Ok(octets)
    }
}

/// Anything but a message is not an answer about the name.
fn is_message(status: u16, media_type: Option<&[u8]>) -> Result<(), Failure> {
    if status != 200 {
        return Err(network(format!("it answers with HTTP status {status}")));
    }
    if media_type != Some(MEDIA_TYPE.as_bytes()) {
        return Err(network(format!("it does not speak DNS: the answer is not {MEDIA_TYPE}")));
    }
    Ok(())
}

fn append(octets: &mut Vec<u8>, part: &[u8]) -> Result<(), Failure> {
    if octets.len() + part.len() > MOST_OCTETS {
        return Err(Failure::Unreadable("it is larger than a message can be".to_owned()));
    }
    octets.extend_from_slice(part);
    Ok(())
}

fn network(why: String) -> Failure {
    Failure::Network(io::Error::other(why))
}

/// The last cause of an error, which names what failed.
fn last_cause(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
