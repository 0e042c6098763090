//! The real server over HTTP.
//!
//! Every call: admitted by the breaker, one of a bounded number at a time, within one deadline that includes the
//! wait for its turn and the body, with the key as it is now. No redirects; answers are cut off at a size.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use reqwest::{Method, StatusCode, header};
use signpost_dns::ZoneName;
use thiserror::Error;
use tokio::sync::Semaphore;
use url::Url;

use crate::types::Change;
use crate::{
    Health, KeySource, NewZone, Patched, ServerError, ServerInfo, ZoneContents, ZoneInfo, ZoneServer, ZoneSettings,
    breaker::Breaker, encode, error, wire,
};

/// Largest answer read, in megabytes: a zone of more than about 200,000 records. Several may be under way at once.
const MAX_ANSWER_MEGABYTES: usize = 32;
/// Longest wait that is taken at its word: whoever asks for a day is asked again before.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// Largest error text read.
const MAX_ERROR: usize = 64 * 1024;

/// How to reach a server.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The base URL; a path prefix is kept.
    pub url: Url,
    /// The API key.
    pub key: KeySource,
    /// The server id in paths.
    pub vhost: String,
    /// The deadline of every call.
    pub timeout: Duration,
    /// Accept any certificate.
    pub insecure: bool,
    /// Trust these certificates instead of the system's.
    pub ca_path: Option<PathBuf>,
    /// Calls under way at the same time.
    pub concurrency: usize,
}

/// Why no client could be made.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// The URL cannot have a path.
    #[error("{0} is not a base URL: write one such as http://powerdns:8081")]
    Url(Url),
    /// The certificate file cannot be read.
    #[error("PDNS_API_CA_PATH: cannot read the certificates in {path}: {why}")]
    Ca {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The HTTP client refuses its settings.
    #[error("cannot set up the HTTP client: {0}")]
    Client(String),
}

/// A client of one PowerDNS server.
#[derive(Debug)]
pub struct PowerDnsClient {
    http: reqwest::Client,
    base: Url,
    key: KeySource,
    timeout: Duration,
    slots: Semaphore,
    breaker: Breaker,
    /// Identifiers the server told, where they differ from what [`encode::zone_id`] spells.
    ids: Mutex<HashMap<ZoneName, String>>,
}

struct Answer {
    status: StatusCode,
    serial: Option<u32>,
    body: Vec<u8>,
}

impl PowerDnsClient {
    /// A client; no call is made yet.
    pub fn new(options: ClientOptions) -> Result<Self, OptionsError> {
        let ClientOptions { url, key, vhost, timeout, insecure, ca_path, concurrency } = options;
        // Another part of the process may have installed it already: either way there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("signpost/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            // The key is for the server alone.
            .no_proxy()
            .connect_timeout(timeout)
            .http1_only()
            .pool_max_idle_per_host(concurrency);
        if insecure {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if url.scheme() == "http" {
            // A machine without any certificate authority can still talk in the clear.
            builder = builder.tls_certs_only([]);
        }
        if let Some(path) = ca_path {
            let problem = |why: String| OptionsError::Ca { path: path.display().to_string(), why };
            let pem = std::fs::read(&path).map_err(|error| problem(error.to_string()))?;
            let certs = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| problem(error.to_string()))?;
            if certs.is_empty() {
                return Err(problem("no certificate in it".to_owned()));
            }
            builder = builder.tls_certs_only(certs);
        }
        let http = builder.build().map_err(|error| OptionsError::Client(full(&error)))?;
        let mut base = url.clone();
        base.path_segments_mut()
            .map_err(|()| OptionsError::Url(url))?
            .pop_if_empty()
            .extend(["api", "v1", "servers", &vhost]);
        Ok(Self {
            http,
            base,
            key,
            timeout,
            slots: Semaphore::new(concurrency.max(1)),
            breaker: Breaker::new(),
            ids: Mutex::default(),
        })
    }

    fn url(&self, zone: Option<&ZoneName>, query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push("zones");
            if let Some(zone) = zone {
                let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
                path.push(ids.get(zone).unwrap_or(&encode::zone_id(zone)));
            }
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn remember(&self, info: &ZoneInfo) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if info.id == encode::zone_id(&info.name) {
            ids.remove(&info.name);
        } else {
            ids.insert(info.name.clone(), info.id.clone());
        }
    }

    async fn call(&self, method: Method, url: Url, body: Option<Vec<u8>>) -> Result<Answer, ServerError> {
        self.breaker.admit()?;
        let guard = Admitted { breaker: &self.breaker, settled: false };
        let attempt = self.attempt(method, url, body);
        let result = match tokio::time::timeout(self.timeout, attempt).await {
            Ok(result) => result,
            Err(_) => Err(ServerError::Timeout { after: self.timeout }),
        };
        guard.settle(&result);
        result
    }

    /// A call about one zone. That the zone is missing is believed only from a server that names itself: a proxy or
    /// another virtual host answers 404 to everything, and what is served would be taken for gone.
    async fn zone_call(&self, method: Method, url: Url, body: Option<Vec<u8>>) -> Result<Answer, ServerError> {
        let result = self.call(method, url, body).await;
        if !matches!(result, Err(ServerError::NoZone)) {
            return result;
        }
        self.server().await.and(result)
    }

    async fn attempt(&self, method: Method, url: Url, body: Option<Vec<u8>>) -> Result<Answer, ServerError> {
        let unreachable = |error: reqwest::Error| ServerError::Unreachable { why: connection(&error.without_url()) };
        let Ok(_slot) = self.slots.acquire().await else {
            return Err(ServerError::Unreachable { why: "the client is closed".to_owned() });
        };
        let key = self.key.read().await?;
        let mut value = header::HeaderValue::from_str(key.expose())
            .map_err(|_| ServerError::Key { why: "it has characters no header can carry".to_owned() })?;
        value.set_sensitive(true);
        let mut request =
            self.http.request(method, url).header("X-API-Key", value).header(header::ACCEPT, "application/json");
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let serial = header("X-PDNS-New-Serial").and_then(|serial| serial.parse().ok());
        let retry_after = header("Retry-After").and_then(|seconds| seconds.trim().parse().ok());
        let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT));
        let limit = if status.is_success() { MAX_ANSWER_MEGABYTES << 20 } else { MAX_ERROR };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > limit {
                if status.is_success() {
                    return Err(ServerError::Protocol {
                        why: format!("it is larger than {MAX_ANSWER_MEGABYTES} MB, the most that is read of one zone"),
                    });
                }
                break;
            }
            body.extend_from_slice(&chunk);
        }
        classify(status, retry_after, &body)?;
        Ok(Answer { status, serial, body })
    }
}

/// Tells the breaker how an admitted call ended, also when it was dropped half-way.
struct Admitted<'a> {
    breaker: &'a Breaker,
    settled: bool,
}

impl Admitted<'_> {
    fn settle<T>(mut self, result: &Result<T, ServerError>) {
        self.settled = true;
        match result {
            Err(
                error @ (ServerError::Unreachable { .. }
                | ServerError::Timeout { .. }
                | ServerError::Unauthorised { .. }
                | ServerError::Key { .. }
                | ServerError::Failed { status: 502..=504, .. }),
            ) => self.breaker.failed(error),
            // Anything else is an answer: the server is there.
            _ => self.breaker.succeeded(),
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.breaker.abandoned();
        }
    }
}

fn classify(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Result<(), ServerError> {
    if status.is_success() {
        return Ok(());
    }
    let words = wire::failure(body);
    Err(match status.as_u16() {
        code @ (401 | 403) => ServerError::Unauthorised { status: code },
        404 => ServerError::NoZone,
        409 => ServerError::Conflict { words },
        400 | 422 => ServerError::Refused { words },
        413 => ServerError::Refused { words: format!("the request is too large (413): {words}") },
        429 => ServerError::Throttled { words, retry_after },
        503 if retry_after.is_some() => ServerError::Throttled { words, retry_after },
        code @ 300..400 => ServerError::Failed { status: code, words: "redirects are not followed".to_owned() },
        code => ServerError::Failed { status: code, words },
    })
}

/// What went wrong with a connection, and what to do where that can be told.
fn connection(error: &reqwest::Error) -> String {
    let why = full(error);
    if is_about_the_certificate(error) {
        return format!("{why}: PDNS_API_CA_PATH must hold the authority that signed the server's certificate");
    }
    why
}

fn is_about_the_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))) {
            return true;
        }
        // An I/O error hides what it carries from the chain of causes.
        let carried = error.downcast_ref().and_then(std::io::Error::get_ref);
        if carried.is_some_and(|carried| is_about_the_certificate(carried)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error with its causes, which `Display` of an HTTP error leaves out.
fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    error::words(&text)
}

/// What an answer is worth from something that does not say it is a PowerDNS server.
fn not_a_server(why: &str) -> ServerError {
    let why = format!(
        "it comes from something that does not name itself a server ({why}): check PDNS_API_URL and PDNS_API_VHOST"
    );
    ServerError::Protocol { why }
}

fn missing_is_none<T>(result: Result<T, ServerError>) -> Result<Option<T>, ServerError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(ServerError::NoZone) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Changes are answered with 204 and nothing else: any other success comes from something between us and the server.
fn changed(answer: &Answer) -> Result<(), ServerError> {
    if answer.status == StatusCode::NO_CONTENT {
        return Ok(());
    }
    Err(ServerError::Protocol { why: format!("a change was answered with {}, not 204", answer.status.as_u16()) })
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, ServerError> {
    serde_json::to_vec(value).map_err(|error| ServerError::Protocol { why: error.to_string() })
}

impl ZoneServer for PowerDnsClient {
    fn server(&self) -> BoxFuture<'_, Result<ServerInfo, ServerError>> {
        async {
            let answer = self.call(Method::GET, self.base.clone(), None).await;
            let answer = match answer.and_then(|answer| wire::server(&answer.body)) {
                Ok(server) if server.daemon_type.is_empty() => Err(not_a_server("it has no daemon_type")),
                Err(ServerError::NoZone) => Err(not_a_server("404")),
                Err(ServerError::Protocol { why }) => Err(not_a_server(&why)),
                answer => answer,
            };
            if let Err(error @ ServerError::Protocol { .. }) = &answer {
                // Something answers, and it is not the server.
                self.breaker.failed(error);
            }
            answer
        }
        .boxed()
    }

    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        async move {
            let url = self.url(Some(zone), &[("rrsets", "false")]);
            let Some(answer) = missing_is_none(self.zone_call(Method::GET, url, None).await)? else { return Ok(None) };
            let contents = wire::zone(&answer.body)?;
            self.remember(&contents.info);
            Ok(Some(contents.info))
        }
        .boxed()
    }

    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>> {
        async move {
            let url = self.url(Some(zone), &[]);
            let Some(answer) = missing_is_none(self.zone_call(Method::GET, url, None).await)? else { return Ok(None) };
            let contents = wire::zone(&answer.body)?;
            self.remember(&contents.info);
            Ok(Some(contents))
        }
        .boxed()
    }

    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>> {
        async move {
            let url = self.url(None, &[("rrsets", "false")]);
            let answer = self.call(Method::POST, url, Some(json(&wire::new_zone(zone))?)).await?;
            let contents = wire::zone(&answer.body)?;
            self.remember(&contents.info);
            Ok(contents.info)
        }
        .boxed()
    }

    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>> {
        async move {
            let url = self.url(Some(zone), &[]);
            changed(&self.zone_call(Method::PUT, url, Some(json(&wire::settings(settings))?)).await?)
        }
        .boxed()
    }

    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>> {
        async move {
            let url = self.url(Some(zone), &[]);
            let answer = self.zone_call(Method::PATCH, url, Some(json(&wire::Patch::of(changes))?)).await?;
            changed(&answer)?;
            Ok(Patched { serial: answer.serial })
        }
        .boxed()
    }

    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>> {
        async move {
            let url = self.url(Some(zone), &[]);
            let deleted = missing_is_none(self.zone_call(Method::DELETE, url, None).await)?;
            deleted.as_ref().map_or(Ok(()), changed)?;
            self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(zone);
            Ok(deleted.is_some())
        }
        .boxed()
    }

    fn health(&self) -> Health {
        match self.breaker.health() {
            Health::Down { why } => {
                Health::Down { why: format!("{}: {why}", self.base.origin().ascii_serialization()) }
            }
            health @ (Health::Unknown | Health::Up) => health,
        }
    }
}
