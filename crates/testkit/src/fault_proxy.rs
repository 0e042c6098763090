//! An HTTP proxy in front of a server that misbehaves on request.
//!
//! ```text
//!   client ──► FaultProxy ──► PowerDNS, Kubernetes API, …
//!                  │ rules: on the nth PATCH of /zones/…: hang, answer 500, cut the answer after passing the request on
//!                  └ a list of the requests, to count writes
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// The fault that the proxy adds to a request, or puts in its place.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Accepts the request and does not answer until the rules are cleared or the client disconnects.
    Hang,
    /// Waits, then passes the request on.
    Delay(Duration),
    /// Answers itself with this status, these headers and this body; the server does not get the request.
    Answer {
        /// The status code.
        status: u16,
        /// Extra headers, such as `("retry-after", "2")`.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: String,
    },
    /// Closes the connection; the server does not get the request.
    CutBefore,
    /// Passes the request on, then closes the connection instead of returning the answer.
    CutAfter,
    /// Passes the request on and returns the head and this many bytes of the body, then closes the connection.
    CutBody(usize),
}

impl Fault {
    /// Answers with a status and a plain body.
    pub fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: format!("fault {status}") }
    }

    /// Answers 429 with a `Retry-After` of this many seconds.
    pub fn throttled(seconds: u64) -> Self {
        let headers = vec![("retry-after", seconds.to_string())];
        Self::Answer { status: 429, headers, body: "slow down".into() }
    }
}

/// Which requests get a fault.
#[derive(Clone, Debug)]
pub struct Rule {
    method: Option<Method>,
    path: Option<String>,
    first: usize,
    times: usize,
    seen: usize,
    fault: Fault,
}

impl Rule {
    /// Every request.
    pub fn every(fault: Fault) -> Self {
        Self { method: None, path: None, first: 1, times: usize::MAX, seen: 0, fault }
    }

    /// Only the `n`th matching request from now on, counted from 1.
    pub fn nth(n: usize, fault: Fault) -> Self {
        Self { first: n, times: 1, ..Self::every(fault) }
    }

    /// The next `times` matching requests.
    pub fn next(times: usize, fault: Fault) -> Self {
        Self { times, ..Self::every(fault) }
    }

    /// Only requests with this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Only requests whose path and query contain this.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// Counts a request; `Some` when it gets the fault.
    fn takes(&mut self, method: &Method, path: &str) -> Option<Fault> {
        let fits = self.method.as_ref().is_none_or(|own| own == method)
            && self.path.as_ref().is_none_or(|part| path.contains(part.as_str()));
        if !fits {
            return None;
        }
        self.seen += 1;
        let hit = self.seen >= self.first && self.seen - self.first < self.times;
        hit.then(|| self.fault.clone())
    }
}

/// One request that reached the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The request's body, as text.
    pub body: String,
    /// The server's status; `None` when the request was not passed on, or is still in progress.
    pub status: Option<u16>,
    /// Whether it got a fault.
    pub faulty: bool,
}

/// The proxy. Dropping it closes its port and every connection through it.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<String>,
    client: reqwest::Client,
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Log>,
    /// Counts calls of [`FaultProxy::clear`], which release hanging requests.
    cleared: watch::Sender<u64>,
}

/// The requests, each with its own number, so that a late answer is not assigned to another request after [`FaultProxy::forget`].
#[derive(Debug, Default)]
struct Log {
    next: u64,
    entries: BTreeMap<u64, Seen>,
}

impl Log {
    fn push(&mut self, seen: Seen) -> u64 {
        self.next += 1;
        self.entries.insert(self.next, seen);
        self.next
    }
}

type Body = BoxBody<Bytes, Cut>;

/// The error that makes the HTTP server drop the connection without a (whole) answer.
#[derive(Debug, thiserror::Error)]
#[error("cut by a fault rule")]
struct Cut;

impl FaultProxy {
    /// Starts a proxy on a free port in front of `upstream` (`http://…` or `https://…`, whose certificate is not checked).
    pub async fn start(upstream: &str) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let client = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .expect("a plain client");
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream.trim_end_matches('/').to_owned()),
            client,
            rules: Mutex::default(),
            seen: Mutex::default(),
            cleared: watch::Sender::new(0),
        });
        let server = AbortOnDropHandle::new(tokio::spawn(accept(listener, shared.clone())));
        Self { addr, shared, _server: server }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Adds a rule. The first rule that matches a request decides.
    pub fn add(&self, rule: Rule) {
        lock(&self.shared.rules).push(rule);
    }

    /// Removes all rules and releases hanging requests (they are then passed on).
    pub fn clear(&self) {
        lock(&self.shared.rules).clear();
        self.shared.cleared.send_modify(|times| *times += 1);
    }

    /// Passes requests on to another server from now on.
    pub fn redirect(&self, upstream: &str) {
        upstream.trim_end_matches('/').clone_into(&mut lock(&self.shared.upstream));
    }

    /// All requests so far, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).entries.values().cloned().collect()
    }

    /// How many requests had this method and this part in their path.
    pub fn count(&self, method: &Method, part: &str) -> usize {
        self.count_if(|seen| seen.method == *method && seen.path.contains(part))
    }

    /// How many requests were not reads.
    pub fn writes(&self) -> usize {
        self.count_if(|seen| seen.method != Method::GET && seen.method != Method::HEAD)
    }

    fn count_if(&self, counts: impl Fn(&Seen) -> bool) -> usize {
        lock(&self.shared.seen).entries.values().filter(|seen| counts(seen)).count()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        lock(&self.shared.seen).entries.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: wait until some are closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // With Nagle's algorithm, pages of a list would wait for acknowledgements.
        stream.set_nodelay(true).ok();
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(|request| shared.serve(request));
            // An error here is a cut connection, as a rule demands.
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Shared {
    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        let path = head.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        // Subscribed before the rules are read: a hanging request must notice that they are cleared.
        let mut cleared = self.cleared.subscribe();
        let fault = lock(&self.rules).iter_mut().find_map(|rule| rule.takes(&head.method, &path));
        let number = lock(&self.seen).push(Seen {
            method: head.method.clone(),
            path: path.clone(),
            body: String::from_utf8_lossy(&body).into_owned(),
            status: None,
            faulty: fault.is_some(),
        });
        let mut keep = None;
        match fault {
            None => {}
            Some(Fault::Hang) => {
                // Err means the proxy is being dropped, and this connection with it.
                cleared.changed().await.ok();
            }
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::Answer { status, headers, body }) => return answer(status, &headers, body),
            Some(Fault::CutBefore) => return Err(Cut),
            Some(Fault::CutAfter) => {
                self.pass_on(number, &head.method, &path, &head.headers, body).await?;
                return Err(Cut);
            }
            Some(Fault::CutBody(bytes)) => keep = Some(bytes),
        }
        let upstream = self.pass_on(number, &head.method, &path, &head.headers, body).await?;
        return_answer(upstream, keep)
    }

    async fn pass_on(
        &self,
        number: u64,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, Cut> {
        let url = format!("{}{path}", lock(&self.upstream));
        let headers = end_to_end(headers, &["host", "content-length"]);
        let sent = self.client.request(method.clone(), url).headers(headers).body(body).send().await;
        let response = sent.map_err(|_| Cut)?;
        if let Some(seen) = lock(&self.seen).entries.get_mut(&number) {
            seen.status = Some(response.status().as_u16());
        }
        Ok(response)
    }
}

fn answer(status: u16, headers: &[(&'static str, String)], body: String) -> Result<Response<Body>, Cut> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    let body = Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {}).boxed();
    response.body(body).map_err(|_| Cut)
}

/// Streams the answer, so that watches work through the proxy; `keep` cuts it after that many bytes.
fn return_answer(upstream: reqwest::Response, keep: Option<usize>) -> Result<Response<Body>, Cut> {
    let mut response = Response::builder().status(upstream.status());
    if let Some(headers) = response.headers_mut() {
        *headers = end_to_end(upstream.headers(), &[]);
    }
    let chunks = futures::stream::try_unfold((upstream, keep), |(mut upstream, keep)| async move {
        let Some(mut chunk) = upstream.chunk().await.map_err(|_| Cut)? else { return Ok(None) };
        let left = match keep {
            Some(0) => return Err(Cut),
            Some(keep) => {
                chunk.truncate(keep);
                Some(keep - chunk.len())
            }
            None => None,
        };
        Ok(Some((Frame::data(chunk), (upstream, left))))
    });
    response.body(StreamBody::new(sync(chunks)).boxed()).map_err(|_| Cut)
}

/// `BoxBody` requires `Sync`, which the client's response future is not; one task polls it.
fn sync<S>(stream: S) -> impl futures::Stream<Item = Result<Frame<Bytes>, Cut>> + Send + Sync
where
    S: futures::Stream<Item = Result<Frame<Bytes>, Cut>> + Send + 'static,
{
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let pump = AbortOnDropHandle::new(tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(item) = futures::StreamExt::next(&mut stream).await {
            if sender.send(item).await.is_err() {
                return;
            }
        }
    }));
    futures::stream::unfold((receiver, pump), |(mut receiver, pump)| async move {
        receiver.recv().await.map(|item| (item, (receiver, pump)))
    })
}

/// Headers without those that belong to one connection only, and without `drop`.
fn end_to_end(headers: &HeaderMap, drop: &[&str]) -> HeaderMap {
    const PER_CONNECTION: [&str; 4] = ["connection", "transfer-encoding", "keep-alive", "upgrade"];
    let kept = |name: &HeaderName| !PER_CONNECTION.contains(&name.as_str()) && !drop.contains(&name.as_str());
    let pairs = headers.iter().filter(|(name, _)| kept(name));
    pairs.map(|(name, value): (&HeaderName, &HeaderValue)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers every request with its method, after counting it.
    async fn echo() -> FaultProxy {
        let server = FaultProxy::start("http://127.0.0.1:1").await;
        server.add(Rule::every(Fault::Answer {
            status: 200,
            headers: vec![("x-echo", "yes".into())],
            body: "hello world".into(),
        }));
        server
    }

    async fn get(url: &str) -> Result<(u16, String), reqwest::Error> {
        let response = reqwest::get(url).await?;
        let status = response.status().as_u16();
        Ok((status, response.text().await?))
    }

    #[tokio::test]
    async fn without_rules_requests_are_passed_on_and_counted() {
        let server = echo().await;
        let proxy = FaultProxy::start(&server.url()).await;
        let response = reqwest::get(format!("{}/a/b?c=d", proxy.url())).await.unwrap();
        assert_eq!(response.headers()["x-echo"], "yes");
        assert_eq!(response.text().await.unwrap(), "hello world");
        assert_eq!(proxy.count(&Method::GET, "/a/b?c=d"), 1);
        assert_eq!(proxy.seen()[0].status, Some(200));
        assert_eq!(proxy.writes(), 0);
        proxy.forget();
        assert_eq!(proxy.seen(), []);
    }

    #[tokio::test]
    async fn only_the_nth_matching_request_fails() {
        let server = echo().await;
        let proxy = FaultProxy::start(&server.url()).await;
        proxy.add(Rule::nth(2, Fault::throttled(7)).method(Method::GET).path("/zones"));
        let url = format!("{}/zones", proxy.url());
        assert_eq!(get(&format!("{}/other", proxy.url())).await.unwrap().0, 200);
        assert_eq!(get(&url).await.unwrap().0, 200);
        let throttled = reqwest::get(&url).await.unwrap();
        assert_eq!(throttled.status(), 429);
        assert_eq!(throttled.headers()["retry-after"], "7");
        assert_eq!(get(&url).await.unwrap().0, 200);
        assert_eq!(server.seen().len(), 3, "the failed one never reached the server");
    }

    #[tokio::test]
    async fn a_request_whose_answer_is_cut_reaches_the_server() {
        let server = echo().await;
        let proxy = FaultProxy::start(&server.url()).await;
        proxy.add(Rule::next(1, Fault::CutAfter));
        get(&proxy.url()).await.unwrap_err();
        assert_eq!(server.seen().len(), 1);
        proxy.add(Rule::next(1, Fault::CutBefore));
        get(&proxy.url()).await.unwrap_err();
        assert_eq!(server.seen().len(), 1);
        proxy.add(Rule::next(1, Fault::CutBody(5)));
        get(&proxy.url()).await.unwrap_err();
        assert_eq!(get(&proxy.url()).await.unwrap().1, "hello world");
    }

    #[tokio::test]
    async fn a_hanging_request_continues_when_the_rules_are_cleared() {
        let server = echo().await;
        let proxy = FaultProxy::start(&server.url()).await;
        proxy.add(Rule::every(Fault::Hang));
        let url = proxy.url();
        let asked = tokio::spawn(async move { get(&url).await });
        crate::eventually("the request arrived", Duration::from_secs(30), || async {
            if proxy.seen().is_empty() { Err(()) } else { Ok(()) }
        })
        .await;
        assert!(!asked.is_finished());
        proxy.clear();
        assert_eq!(asked.await.unwrap().unwrap().0, 200);
    }

    #[tokio::test]
    async fn a_late_answer_is_not_assigned_to_another_request() {
        let server = echo().await;
        let proxy = FaultProxy::start(&server.url()).await;
        proxy.add(Rule::next(1, Fault::Hang));
        let url = format!("{}/late", proxy.url());
        let asked = tokio::spawn(async move { get(&url).await });
        crate::eventually("the request arrived", Duration::from_secs(30), || async {
            if proxy.seen().is_empty() { Err(()) } else { Ok(()) }
        })
        .await;
        proxy.forget();
        proxy.add(Rule::next(1, Fault::status(503)));
        assert_eq!(get(&format!("{}/next", proxy.url())).await.unwrap().0, 503);
        proxy.clear();
        assert_eq!(asked.await.unwrap().unwrap().0, 200);
        let seen: Vec<_> = proxy.seen().into_iter().map(|seen| (seen.path, seen.status)).collect();
        assert_eq!(seen, [("/next".to_owned(), None)]);
    }
}
