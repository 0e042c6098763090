//! Resolvers behind TLS and HTTPS, with a real TLS server on loopback in front of a name server.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_provider_resolver::{Lookup, LookupError, Options, Reply, Resolvers};
use signpost_testkit::TlsFront;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Longer than any exchange on a loaded machine.
const PATIENT: Duration = Duration::from_mins(1);

fn answer(octets: &[u8]) -> Vec<u8> {
    let question = Message::from_vec(octets).unwrap();
    let mut answer = question.clone().into_response();
    let name = question.queries[0].name().clone();
    answer.add_answers([Record::from_rdata(name, 60, RData::A(A(Ipv4Addr::new(192, 0, 2, 1))))]);
    answer.to_vec().unwrap()
}

/// Answers the next question of a connection, after this time.
async fn answer_next(stream: &mut TcpStream, delay: Duration) -> Option<()> {
    let length = stream.read_u16().await.ok()?;
    let mut octets = vec![0; usize::from(length)];
    stream.read_exact(&mut octets).await.unwrap();
    tokio::time::sleep(delay).await;
    let answer = answer(&octets);
    let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &answer].concat()).await.ok()
}

/// A name server over TCP that closes a connection after so many questions. Returns its address and how many connections it got.
async fn over_tcp(questions: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = connections.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                for _ in 0..questions {
                    if answer_next(&mut stream, Duration::ZERO).await.is_none() {
                        break;
                    }
                }
            });
        }
    });
    (address, connections)
}

/// A name server over TCP that answers one question of a connection, and then keeps it open in silence.
async fn silent_after_one() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = connections.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            if answer_next(&mut stream, Duration::ZERO).await.is_some() {
                open.push(stream);
            }
        }
    });
    (address, connections)
}

/// A name server over TCP that answers the first question of its first connection at once, and the others of it after this time. It hears other
/// connections, and never answers them.
async fn slow_after_one(delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut others = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                others.push(stream);
            }
        });
        let mut answered = answer_next(&mut stream, Duration::ZERO).await;
        while answered.is_some() {
            answered = answer_next(&mut stream, delay).await;
        }
    });
    address
}

/// A name server over HTTP/1.1 that answers at one path.
async fn over_http(path: &'static str, media_type: &'static str) -> SocketAddr {
    async fn serve(stream: &mut TcpStream, path: &str, media_type: &str) -> Option<()> {
        let mut received = Vec::new();
        let head = loop {
            if let Some(end) = received.windows(4).position(|part| part == b"\r\n\r\n") {
                break end + 4;
            }
            let mut part = [0; 1024];
            let length = stream.read(&mut part).await.ok().filter(|length| *length > 0)?;
            received.extend_from_slice(&part[..length]);
        };
        let text = String::from_utf8_lossy(&received[..head]).to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse().ok()?;
        let mut body = received.split_off(head);
        while body.len() < length {
            let mut part = [0; 1024];
            let length = stream.read(&mut part).await.ok().filter(|length| *length > 0)?;
            body.extend_from_slice(&part[..length]);
        }
        let (status, body) = if text.starts_with(&format!("post {path} ")) {
            ("200 OK", answer(&body))
        } else {
            ("404 Not Found", Vec::new())
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat()).await.ok()
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move { while serve(&mut stream, path, media_type).await.is_some() {} });
        }
    });
    address
}

fn resolvers(upstream: &str, ca: Option<PathBuf>) -> Resolvers {
    Resolvers::new(&Options { resolvers: vec![upstream.parse().unwrap()], deadline: PATIENT, ca, ..Options::default() })
}

async fn ask(resolvers: &Resolvers) -> Reply {
    let mut replies = resolvers.lookup(&Fqdn::parse("www.example.org").unwrap(), RecordType::A).await;
    assert_eq!(replies.len(), 1);
    replies.remove(0)
}

fn is_answered(reply: &Reply) {
    let answer = reply.result.as_ref().unwrap();
    assert_eq!(answer.values, [Rdata::A(Ipv4Addr::new(192, 0, 2, 1))]);
}

fn is_outage(reply: &Reply, why: &str) {
    let error = reply.result.as_ref().unwrap_err();
    assert!(error.is_outage() && matches!(error, LookupError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[tokio::test]
async fn a_server_behind_tls_is_asked_over_one_connection() {
    let (server, connections) = over_tcp(usize::MAX).await;
    let front = TlsFront::open_by_address(server).await;
    let url = front.url().replace("https://", "tls://");
    let resolvers = resolvers(&url, Some(front.ca_file().to_owned()));
    for _ in 0..5 {
        let reply = ask(&resolvers).await;
        is_answered(&reply);
        assert_eq!(&*reply.resolver, url);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced() {
    let (server, connections) = over_tcp(1).await;
    let front = TlsFront::open_by_address(server).await;
    let resolvers = resolvers(&front.url().replace("https://", "tls://"), Some(front.ca_file().to_owned()));
    for _ in 0..3 {
        is_answered(&ask(&resolvers).await);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_connection_that_was_lost_without_a_word_is_replaced_in_time() {
    let (server, connections) = silent_after_one().await;
    let front = TlsFront::open_by_address(server).await;
    let upstream = front.url().replace("https://", "tls://").parse().unwrap();
    let deadline = Duration::from_secs(8);
    let ca = Some(front.ca_file().to_owned());
    let resolvers = Resolvers::new(&Options { resolvers: vec![upstream], deadline, ca, ..Options::default() });
    for _ in 0..2 {
        is_answered(&ask(&resolvers).await);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

/// The deadline of a question, and how long a slow server takes: longer than an open connection may be silent before a new one is tried.
const SLOW: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

#[tokio::test]
async fn a_slow_answer_over_an_open_connection_has_the_whole_time() {
    let (deadline, delay) = SLOW;
    let front = TlsFront::open_by_address(slow_after_one(delay).await).await;
    let upstream = front.url().replace("https://", "tls://").parse().unwrap();
    let ca = Some(front.ca_file().to_owned());
    let resolvers = Resolvers::new(&Options { resolvers: vec![upstream], deadline, ca, ..Options::default() });
    for _ in 0..2 {
        is_answered(&ask(&resolvers).await);
    }
}

#[tokio::test]
async fn a_slow_answer_over_http_2_has_the_whole_time() {
    let (url, connections) = over_http2(Mood::Slow).await;
    let (upstream, ca) = (url.parse().unwrap(), Some(LOCAL_CA.into()));
    let resolvers = Resolvers::new(&Options { resolvers: vec![upstream], deadline: SLOW.0, ca, ..Options::default() });
    for _ in 0..2 {
        is_answered(&ask(&resolvers).await);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2, "a new one was tried beside it");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_verified_is_an_outage() {
    let (server, _) = over_tcp(usize::MAX).await;
    let front = TlsFront::open_by_address(server).await;
    let url = front.url().replace("https://", "tls://");
    let ca = || Some(front.ca_file().to_owned());
    is_outage(&ask(&resolvers(&url, None)).await, "certificate");
    is_outage(&ask(&resolvers(&format!("{url}#dns.example.org"), ca())).await, "certificate");
    is_outage(&ask(&resolvers(&url, Some("/nowhere/ca.crt".into()))).await, "/nowhere/ca.crt cannot be used");
    is_outage(&ask(&resolvers(&format!("{}/dns-query", front.url()), None)).await, "certificate");
}

/// How a server over HTTP/2 behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Answers every question.
    Answers,
    /// Answers one question of a connection, and closes it.
    Closes,
    /// Answers one question of a connection, and keeps it open in silence.
    Forgets,
    /// Answers the first question of the first connection at once, the others of it late, and those of other connections never.
    Slow,
    /// Answers with a message that does not end.
    Endless,
    /// Answers with an error of HTTP.
    Overloaded,
}

const LOCAL_CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testkit/src/pihole/tls/local-ca.crt");

/// A server over TLS that speaks HTTP/2 only. Returns its URL and how many connections it got.
async fn over_http2(mood: Mood) -> (String, Arc<AtomicUsize>) {
    let pem = |file: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testkit/src/pihole/tls/").to_owned() + file;
        std::fs::read(path).unwrap()
    };
    let certificate = CertificateDer::from_pem_slice(&pem("local.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&pem("local.key")).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/dns-query", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let number = counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve_http2(acceptor.clone(), stream, number, mood));
        }
    });
    (url, connections)
}

async fn serve_http2(acceptor: TlsAcceptor, stream: TcpStream, number: usize, mood: Mood) -> Option<()> {
    let stream = acceptor.accept(stream).await.ok()?;
    let mut connection = h2::server::handshake(stream).await.ok()?;
    let (mut silent, mut served) = (Vec::new(), 0);
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        served += 1;
        if mood == Mood::Forgets && served > 1 || mood == Mood::Slow && number > 0 {
            silent.push(respond);
            continue;
        }
        let head = request.headers();
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/dns-query"));
        assert!(["content-type", "accept"].iter().all(|name| head[*name] == "application/dns-message"), "{head:?}");
        tokio::spawn(async move {
            let (mut body, mut question) = (request.into_body(), Vec::new());
            while let Some(Ok(part)) = body.data().await {
                question.extend_from_slice(&part);
            }
            if mood == Mood::Slow && served > 1 {
                tokio::time::sleep(SLOW.1).await;
            }
            let status = if mood == Mood::Overloaded { 503 } else { 200 };
            let head = http::Response::builder().status(status).header("content-type", "application/dns-message");
            let mut sending = respond.send_response(head.body(()).unwrap(), false).unwrap();
            if mood == Mood::Endless {
                for _ in 0..1_000 {
                    if sending.send_data(vec![0; 16_384].into(), false).is_err() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                return;
            }
            sending.send_data(answer(&question).into(), true).unwrap();
        });
        if mood == Mood::Closes {
            connection.graceful_shutdown();
        }
    }
    Some(())
}

#[tokio::test]
async fn a_server_that_speaks_http_2_is_asked_over_one_connection() {
    let (url, connections) = over_http2(Mood::Answers).await;
    let resolvers = resolvers(&url, Some(LOCAL_CA.into()));
    for _ in 0..3 {
        is_answered(&ask(&resolvers).await);
    }
    // Many questions at the same time share the connection too.
    for reply in futures::future::join_all((0..20).map(|_| ask(&resolvers))).await {
        is_answered(&reply);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_over_http_2_that_ended_is_replaced() {
    for mood in [Mood::Closes, Mood::Forgets] {
        let (url, connections) = over_http2(mood).await;
        let (upstream, ca) = (url.parse().unwrap(), Some(LOCAL_CA.into()));
        let deadline = Duration::from_secs(8);
        let resolvers = Resolvers::new(&Options { resolvers: vec![upstream], deadline, ca, ..Options::default() });
        for _ in 0..2 {
            is_answered(&ask(&resolvers).await);
        }
        assert_eq!(connections.load(Ordering::SeqCst), 2, "{mood:?}");
    }
}

#[tokio::test]
async fn an_error_of_http_is_an_outage_and_keeps_the_connection() {
    let (url, connections) = over_http2(Mood::Overloaded).await;
    let resolvers = resolvers(&url, Some(LOCAL_CA.into()));
    for _ in 0..2 {
        is_outage(&ask(&resolvers).await, "HTTP status 503");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_over_http_2_that_does_not_end_cannot_be_read() {
    let (url, _) = over_http2(Mood::Endless).await;
    let reply = ask(&resolvers(&url, Some(LOCAL_CA.into()))).await;
    let error = reply.result.unwrap_err();
    assert!(matches!(error, LookupError::BadAnswer { .. }), "{error}");
    assert!(error.to_string().contains("larger than a message can be"), "{error}");
}

#[tokio::test]
async fn a_server_behind_https_is_asked_and_a_page_is_an_outage() {
    let front = TlsFront::open_by_address(over_http("/dns-query", "application/dns-message").await).await;
    let ca = || Some(front.ca_file().to_owned());
    let dns = resolvers(&format!("{}/dns-query", front.url()), ca());
    for _ in 0..3 {
        is_answered(&ask(&dns).await);
    }
    is_outage(&ask(&resolvers(&format!("{}/other", front.url()), ca())).await, "HTTP status 404");
    let page = TlsFront::open_by_address(over_http("/dns-query", "text/html").await).await;
    is_outage(&ask(&resolvers(&format!("{}/dns-query", page.url()), ca())).await, "does not speak DNS");
}
