//! The client against small servers on loopback: deadlines, limits, connections, TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use signpost_provider_http::{HttpClient, HttpError, HttpOptions, Method, Request, SetupError};
use signpost_testkit::pihole::TlsFront;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The answer to a request's path, before the server hangs or continues.
type Script = fn(&str) -> (Vec<u8>, After);

#[derive(Clone, Copy, PartialEq)]
enum After {
    /// Waits for the next request.
    GoOn,
    /// Never writes again.
    Hang,
    /// Closes the connection.
    Close,
}

struct Server {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
}

async fn serve(script: Script) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(converse(stream, script));
        }
    });
    Server { addr, connections }
}

async fn converse(mut stream: TcpStream, script: Script) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        head.extend_from_slice(&buffer[..n]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        head.clear();
        let (answer, after) = script(text.split(' ').nth(1).unwrap());
        stream.write_all(&answer).await.unwrap();
        match after {
            After::GoOn => {}
            After::Hang => std::future::pending().await,
            After::Close => return,
        }
    }
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn options(server: &Server) -> HttpOptions {
    HttpOptions::new(format!("http://{}", server.addr).parse().unwrap())
}

fn get(client: &HttpClient, path: &str) -> Request {
    Request::new(Method::GET, client.base().join(path).unwrap())
}

async fn body(client: &HttpClient, path: &str) -> Result<Vec<u8>, HttpError> {
    client.send(get(client, path)).await?.body().await
}

#[tokio::test]
async fn without_idle_connections_every_request_has_its_own() {
    let server = serve(|_| (ok("{}"), After::GoOn)).await;
    for (idle_connections, expected) in [(1, 1), (0, 4)] {
        let before = server.connections.load(Ordering::SeqCst);
        let client = HttpClient::new(HttpOptions { idle_connections, ..options(&server) }).unwrap();
        for _ in 0..4 {
            assert_eq!(body(&client, "/").await.unwrap(), b"{}");
        }
        assert_eq!(server.connections.load(Ordering::SeqCst) - before, expected, "{idle_connections} idle");
    }
}

#[tokio::test]
async fn a_connection_that_was_idle_for_too_long_is_not_used_again() {
    let server = serve(|_| (ok("{}"), After::GoOn)).await;
    let client = HttpClient::new(HttpOptions { idle_timeout: Duration::from_millis(1), ..options(&server) }).unwrap();
    for connections in 1..=3 {
        assert_eq!(body(&client, "/").await.unwrap(), b"{}");
        assert_eq!(server.connections.load(Ordering::SeqCst), connections);
        // Requests that follow at once may be less than a millisecond apart.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_deadline_covers_the_body() {
    let server = serve(|path| match path {
        "/silent" => (Vec::new(), After::Hang),
        _ => (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_vec(), After::Hang),
    })
    .await;
    let client = HttpClient::new(HttpOptions { timeout: Duration::from_millis(200), ..options(&server) }).unwrap();
    assert_eq!(body(&client, "/silent").await, Err(HttpError::Timeout));
    assert_eq!(body(&client, "/half").await, Err(HttpError::Timeout));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_that_of_an_error_cut() {
    let server = serve(|path| match path {
        "/error" => {
            let body = "x".repeat(100_000);
            (format!("HTTP/1.1 500 No\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes(), After::Close)
        }
        // Its length is not announced.
        _ => ([b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), "x".repeat(2 << 20).as_bytes()].concat(), After::Close),
    })
    .await;
    let client = HttpClient::new(HttpOptions { max_body: 1 << 20, ..options(&server) }).unwrap();
    assert_eq!(body(&client, "/large").await, Err(HttpError::TooLarge { limit: 1 << 20 }));
    assert_eq!(body(&client, "/error").await.unwrap().len(), 64 << 10);
}

#[tokio::test]
async fn retry_after_is_read_in_both_forms_and_bounded() {
    let server = serve(|path| {
        let wait = match path {
            "/seconds" => "7".to_owned(),
            "/long" => "86400".to_owned(),
            "/date" => httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(40)),
            _ => "soon".to_owned(),
        };
        (format!("HTTP/1.1 503 Busy\r\nretry-after: {wait}\r\ncontent-length: 0\r\n\r\n").into_bytes(), After::GoOn)
    })
    .await;
    let client = HttpClient::new(HttpOptions { longest_wait: Duration::from_mins(5), ..options(&server) }).unwrap();
    let wait = async |path| client.send(get(&client, path)).await.unwrap().retry_after().map(|wait| wait.as_secs());
    assert_eq!(wait("/seconds").await, Some(7));
    assert_eq!(wait("/long").await, Some(300));
    assert!(matches!(wait("/date").await, Some(30..=40)));
    assert_eq!(wait("/neither").await, None);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_shows_only_its_host() {
    let server = serve(|_| {
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://other.example/x?key=s3cret\r\ncontent-length: 0\r\n\r\n".to_vec(),
            After::GoOn,
        )
    })
    .await;
    let client = HttpClient::new(options(&server)).unwrap();
    let answer = client.send(get(&client, "/")).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.location().as_deref()), (302, Some("http://other.example")));
}

#[tokio::test]
async fn errors_and_requests_show_neither_url_nor_secret() {
    let server = serve(|_| (Vec::new(), After::Close)).await;
    let client = HttpClient::new(options(&server)).unwrap();
    let request = get(&client, "/zones/private.example").secret_header("x-api-key", "s3cret").unwrap();
    assert!(!format!("{request:?} {client:?}").contains("s3cret"));
    let error = client.send(request).await.unwrap_err();
    assert!(matches!(error, HttpError::Unreachable { restarting: true, .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("private"), "{error:?}");
    let error = get(&client, "/").secret_header("x-api-key", "line\nend").unwrap_err();
    assert_eq!(error, HttpError::Header { header: "x-api-key" });
}

#[tokio::test]
async fn a_refused_connection_is_a_restarting_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let client = HttpClient::new(HttpOptions::new(format!("http://{addr}").parse().unwrap())).unwrap();
    let error = body(&client, "/").await.unwrap_err();
    assert!(matches!(&error, HttpError::Unreachable { restarting: true, why } if why.contains("refused")), "{error:?}");
}

/// A server that stops between the connection and the request: the request may not even have been written.
#[tokio::test]
async fn a_connection_dropped_at_any_moment_is_a_restarting_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut number = 0_u32;
        while let Ok((mut stream, _)) = listener.accept().await {
            number += 1;
            match number % 4 {
                0 => stream.set_zero_linger().unwrap(),
                1 => {}
                2 => drop(stream.read(&mut [0; 1]).await),
                _ => drop(stream.read(&mut [0; 4096]).await),
            }
        }
    });
    let url = format!("http://{addr}/").parse().unwrap();
    let client = HttpClient::new(HttpOptions { idle_connections: 0, ..HttpOptions::new(url) }).unwrap();
    let client = &client;
    for _ in 0..20 {
        let answers = futures::future::join_all((0..20).map(|_| body(client, "/"))).await;
        for answer in answers {
            assert!(matches!(answer, Err(HttpError::Unreachable { restarting: true, .. })), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_replaced_ca_file_is_read_after_a_certificate_error() {
    let server = serve(|_| (ok("{}"), After::GoOn)).await;
    let (old, new) = (TlsFront::open_by_address(server.addr).await, TlsFront::open(server.addr).await);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(old.ca_file(), file.path()).unwrap();
    let url = new.url().parse().unwrap();
    let options = HttpOptions {
        ca_file: Some(file.path().to_owned()),
        server_name: Some("pi.hole".into()),
        ..HttpOptions::new(url)
    };
    let client = HttpClient::new(options).unwrap();
    let refused = body(&client, "/").await.unwrap_err();
    assert!(matches!(refused, HttpError::Tls { certificate: true, .. }), "{refused:?}");
    // A file that cannot be used leaves the client as it was.
    std::fs::write(file.path(), "half a certificate").unwrap();
    assert_eq!(body(&client, "/").await.unwrap_err(), refused);
    std::fs::copy(new.ca_file(), file.path()).unwrap();
    assert_eq!(body(&client, "/").await.unwrap(), b"{}");
    assert_eq!(body(&client, "/").await.unwrap(), b"{}");
}

#[tokio::test]
async fn any_certificate_is_accepted_only_when_asked_for() {
    let server = serve(|_| (ok("{}"), After::GoOn)).await;
    let front = TlsFront::open(server.addr).await;
    for (insecure, accepted) in [(true, true), (false, false)] {
        let options = HttpOptions { insecure, ..HttpOptions::new(front.url().parse().unwrap()) };
        assert_eq!(body(&HttpClient::new(options).unwrap(), "/").await.is_ok(), accepted);
    }
}

#[test]
fn a_ca_file_that_cannot_be_used_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path().to_owned(), "/nonexistent/ca.pem".into()] {
        let options =
            HttpOptions { ca_file: Some(path.clone()), ..HttpOptions::new("https://127.0.0.1:9".parse().unwrap()) };
        let error = HttpClient::new(options).unwrap_err();
        assert!(
            matches!(&error, SetupError::Ca { path: named, .. } if *named == path.display().to_string()),
            "{error:?}"
        );
    }
}
