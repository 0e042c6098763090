//! The real server over HTTP.
//!
//! Every call: admitted by the breaker, one of a bounded number at a time, within one deadline that includes the
//! wait for its turn and the body, with the key as it is now. No redirects; answers are cut off at a size.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use signpost_dns::ZoneName;
use signpost_provider_http::{
    Breaker, HttpClient, HttpError, HttpOptions, Method, Paused, Request, Secret, SetupError, StatusCode,
};
use thiserror::Error;
use tokio::sync::Semaphore;
use url::Url;

use crate::types::Change;
use crate::zone_reader::{Each, ZoneReader};
use crate::{
    Health, NewZone, Patched, ServerError, ServerInfo, ZoneContents, ZoneInfo, ZoneServer, ZoneSettings, encode,
    spelling, wire,
};

/// Largest answer read, in megabytes: a zone of more than about 200,000 records. Several may be under way at once.
const MAX_ANSWER_MEGABYTES: usize = 32;
/// Longest wait that is honoured: a server that asks for a day is called again before.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// How to reach a server.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The base URL; a path prefix is kept. It may end in `/api/v1` or `/api/v1/servers/localhost`.
    pub url: Url,
    /// The API key.
    pub key: Secret,
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
    #[error("PDNS_API_CA_PATH: {0}")]
    Ca(SetupError),
    /// The HTTP client refuses its settings.
    #[error("{0}")]
    Client(SetupError),
}

/// A client of one PowerDNS server.
#[derive(Debug)]
pub struct PowerDnsClient {
    http: HttpClient,
    base: Url,
    key: Secret,
    timeout: Duration,
    slots: Semaphore,
    breaker: Breaker<ServerError>,
    /// Identifiers that the server reported, where they differ from [`encode::zone_id`].
    ids: Mutex<HashMap<ZoneName, String>>,
    /// Whether the server knows the newer service parameters by name; asked for when a change depends on it.
    key_names: Mutex<Option<bool>>,
}

struct Answer {
    status: StatusCode,
    serial: Option<u32>,
}

/// The treatment of the body of a successful answer.
enum Sink<'a, 'b> {
    Bytes(&'a mut Vec<u8>),
    Zone(&'a mut ZoneReader<'b>),
}

impl<'b> Sink<'_, 'b> {
    /// The same for one more call. An answer that is not a success has put nothing into it.
    fn again(&mut self) -> Sink<'_, 'b> {
        match self {
            Self::Bytes(bytes) => Sink::Bytes(bytes),
            Self::Zone(reader) => Sink::Zone(reader),
        }
    }
}

/// The base of every path: the URL, without what people copy from the API's documentation, and the server's id.
fn api_base(url: &Url, vhost: &str) -> Option<Url> {
    let segments: Vec<&str> = url.path_segments()?.filter(|segment| !segment.is_empty()).collect();
    let (surplus, given) = match segments.as_slice() {
        [.., "api", "v1", "servers", id] => (4, Some(*id)),
        [.., "api", "v1", "servers"] => (3, None),
        [.., "api", "v1"] => (2, None),
        _ => (0, None),
    };
    // The id in the URL counts where the setting has its default.
    let id = given.filter(|_| vhost == "localhost").unwrap_or(vhost);
    let mut base = url.clone();
    base.set_query(None);
    base.set_fragment(None);
    {
        let mut path = base.path_segments_mut().ok()?;
        path.pop_if_empty();
        for _ in 0..surplus {
            path.pop();
        }
        path.extend(["api", "v1", "servers", id]);
    }
    Some(base)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PowerDnsClient {
    /// A client; no call is made yet.
    pub fn new(options: ClientOptions) -> Result<Self, OptionsError> {
        let ClientOptions { url, key, vhost, timeout, insecure, ca_path, concurrency } = options;
        let base = api_base(&url, &vhost).ok_or_else(|| OptionsError::Url(url.clone()))?;
        let http = HttpClient::new(HttpOptions {
            ca_file: ca_path,
            insecure,
            connect_timeout: timeout,
            timeout,
            idle_connections: concurrency,
            max_body: MAX_ANSWER_MEGABYTES << 20,
            longest_wait: LONGEST_WAIT,
            ..HttpOptions::new(url)
        })
        .map_err(|error| match error {
            SetupError::Ca { .. } => OptionsError::Ca(error),
            SetupError::ServerName { .. } | SetupError::Client(_) => OptionsError::Client(error),
        })?;
        Ok(Self {
            http,
            base,
            key,
            timeout,
            slots: Semaphore::new(concurrency.max(1)),
            breaker: Breaker::default(),
            ids: Mutex::default(),
            key_names: Mutex::default(),
        })
    }

    fn url(&self, zone: Option<&ZoneName>, query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push("zones");
            if let Some(zone) = zone {
                path.push(lock(&self.ids).get(zone).unwrap_or(&encode::zone_id(zone)));
            }
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn remember(&self, info: &ZoneInfo) {
        let mut ids = lock(&self.ids);
        if info.id == encode::zone_id(&info.name) {
            ids.remove(&info.name);
        } else {
            ids.insert(info.name.clone(), info.id.clone());
        }
    }

    async fn call(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
        into: Sink<'_, '_>,
    ) -> Result<Answer, ServerError> {
        self.breaker.admit().map_err(paused)?;
        let guard = Admitted { breaker: &self.breaker, settled: false };
        let attempt = self.attempt(method, url, body, into);
        let result = match tokio::time::timeout(self.timeout, attempt).await {
            Ok(result) => result,
            Err(_) => Err(ServerError::Timeout { after: self.timeout }),
        };
        guard.settle(&result);
        result
    }

    /// A read of one zone. That the zone is missing is believed only from a server that names itself, and only when it reports so twice: a
    /// proxy or another virtual host answers 404 to everything, and a proxy that loses its server for a moment to one request. What is served
    /// would be taken for missing.
    async fn read_call(&self, url: Url, mut into: Sink<'_, '_>) -> Result<Answer, ServerError> {
        let result = self.call(Method::GET, url.clone(), None, into.again()).await;
        if !matches!(result, Err(ServerError::NoZone)) {
            return result;
        }
        self.server().await?;
        self.call(Method::GET, url, None, into).await
    }

    /// A change of one zone, whose answer has no body worth reading. After a 404 the zone is read: only a missing zone is reported as
    /// missing. The change itself is not sent again here: that is left to the caller, as after any other failure.
    async fn change(&self, method: Method, zone: &ZoneName, body: Option<Vec<u8>>) -> Result<Answer, ServerError> {
        let result = self.call(method, self.url(Some(zone), &[]), body, Sink::Bytes(&mut Vec::new())).await;
        if matches!(result, Err(ServerError::NoZone)) && self.zone(zone).await?.is_some() {
            return Err(not_found(zone));
        }
        let answer = result?;
        changed(&answer)?;
        Ok(answer)
    }

    async fn attempt(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
        mut into: Sink<'_, '_>,
    ) -> Result<Answer, ServerError> {
        let Ok(_slot) = self.slots.acquire().await else {
            return Err(ServerError::Unreachable { why: "the client is closed".to_owned() });
        };
        let failed = |error: HttpError| self.failed(error);
        let key = self.key.read().await.map_err(|error| ServerError::Key { why: error.to_string() })?;
        let creates = method == Method::POST;
        let mut request = Request::new(method, url).secret_header("x-api-key", key.expose().trim()).map_err(failed)?;
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut answer = self.http.send(request).await.map_err(failed)?;
        let status = answer.status();
        if !status.is_success() {
            let retry_after = answer.retry_after();
            let error = refusal(status, retry_after, &answer.body().await.map_err(failed)?);
            return Err(if creates { of_creation(status, error) } else { error });
        }
        let serial = answer.header("x-pdns-new-serial").and_then(|serial| serial.parse().ok());
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            match &mut into {
                Sink::Bytes(bytes) => bytes.extend_from_slice(&chunk),
                Sink::Zone(reader) => reader.push(&chunk)?,
            }
        }
        Ok(Answer { status, serial })
    }

    fn failed(&self, error: HttpError) -> ServerError {
        match error {
            HttpError::Timeout => ServerError::Timeout { after: self.timeout },
            HttpError::Unreachable { why, restarting: _ } | HttpError::Tls { why, certificate: false } => {
                ServerError::Unreachable { why }
            }
            HttpError::Tls { why, certificate: true } => ServerError::Unreachable {
                why: format!("{why}: PDNS_API_CA_PATH must hold the authority that signed the server's certificate"),
            },
            HttpError::TooLarge { .. } => ServerError::Protocol {
                why: format!("it is larger than {MAX_ANSWER_MEGABYTES} MB, the most that is read of one zone"),
            },
            error @ HttpError::Header { .. } => ServerError::Key { why: error.to_string() },
        }
    }

    /// Whether the server knows the newer service parameters by name.
    async fn key_names(&self) -> Result<bool, ServerError> {
        let known = *lock(&self.key_names);
        match known {
            Some(known) => Ok(known),
            None => self.server().await.map(|server| spelling::knows_key_names(&server.version)),
        }
    }
}

/// Whether the key is refused or cannot be read: the next call would fail in the same way.
fn is_about_the_key(error: &ServerError) -> bool {
    matches!(error, ServerError::Unauthorised { .. } | ServerError::Key { .. })
}

fn paused(Paused { error, retry_after }: Paused<ServerError>) -> ServerError {
    ServerError::Paused { why: error.to_string(), retry_after, refused_key: is_about_the_key(&error) }
}

/// Tells the breaker how an admitted call ended, also when it was dropped half-way.
struct Admitted<'a> {
    breaker: &'a Breaker<ServerError>,
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
            ) => self.breaker.failed(error.clone(), is_about_the_key(error)),
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

/// The error of a status that is not a success.
fn refusal(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> ServerError {
    let words = wire::failure(body);
    match status.as_u16() {
        code @ (401 | 403) => ServerError::Unauthorised { status: code },
        404 => ServerError::NoZone,
        409 => ServerError::Conflict { words },
        400 | 422 => ServerError::Refused { words },
        413 => ServerError::Refused { words: format!("the request is too large (413): {words}") },
        429 => ServerError::Throttled { words, retry_after },
        503 if retry_after.is_some() => ServerError::Throttled { words, retry_after },
        code @ 300..400 => ServerError::Failed { status: code, words: "redirects are not followed".to_owned() },
        code => ServerError::Failed { status: code, words },
    }
}

/// The error for an answer of something that does not identify itself as a PowerDNS server.
fn not_a_server(why: &str) -> ServerError {
    let why = format!(
        "it comes from something that does not name itself a server ({why}): check PDNS_API_URL and PDNS_API_VHOST"
    );
    ServerError::Protocol { why }
}

/// The error for a change that was answered with 404 although the server has the zone.
fn not_found(zone: &ZoneName) -> ServerError {
    let words = format!(
        "zone {zone} exists, but a change of it was not found. Check the proxy in front of the server, if there is one"
    );
    ServerError::Failed { status: 404, words }
}

/// The error of a creation. PowerDNS answers 409 for a zone that exists, and 422 only after it has looked for the zone: a 422 proves that the
/// zone is missing. 400 and 413 are about the request itself. The server answers them before it looks for the zone, and a proxy may answer
/// them, so they are failures like any other.
fn of_creation(status: StatusCode, error: ServerError) -> ServerError {
    match error {
        ServerError::Refused { words } if status != StatusCode::UNPROCESSABLE_ENTITY => {
            ServerError::Failed { status: status.as_u16(), words }
        }
        error => error,
    }
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
            let mut body = Vec::new();
            let answer = self.call(Method::GET, self.base.clone(), None, Sink::Bytes(&mut body)).await;
            let answer = match answer.and_then(|_| wire::server(&body)) {
                Ok(server) if server.daemon_type.is_empty() => Err(not_a_server("it has no daemon_type")),
                Err(ServerError::NoZone) => Err(not_a_server("404")),
                Err(ServerError::Protocol { why }) => Err(not_a_server(&why)),
                answer => answer,
            };
            match &answer {
                Ok(server) => *lock(&self.key_names) = Some(spelling::knows_key_names(&server.version)),
                // Something answers, and it is not the server.
                Err(error @ ServerError::Protocol { .. }) => self.breaker.failed(error.clone(), false),
                Err(_) => {}
            }
            answer
        }
        .boxed()
    }

    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        async move {
            let url = self.url(Some(zone), &[("rrsets", "false")]);
            let mut body = Vec::new();
            let answer = self.read_call(url, Sink::Bytes(&mut body)).await;
            if missing_is_none(answer)?.is_none() {
                return Ok(None);
            }
            let info = wire::zone(&body)?;
            self.remember(&info);
            Ok(Some(info))
        }
        .boxed()
    }

    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>> {
        async move {
            let mut sets = Vec::new();
            let Some(info) = self.read_each(zone, &mut |set| sets.push(set)).await? else { return Ok(None) };
            sets.shrink_to_fit();
            Ok(Some(ZoneContents { info, sets }))
        }
        .boxed()
    }

    fn read_each<'a>(
        &'a self,
        zone: &'a ZoneName,
        each: Each<'a>,
    ) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        async move {
            let url = self.url(Some(zone), &[]);
            let mut reader = ZoneReader::new(each);
            let answer = self.read_call(url, Sink::Zone(&mut reader)).await;
            if missing_is_none(answer)?.is_none() {
                return Ok(None);
            }
            let info = reader.finish()?;
            self.remember(&info);
            Ok(Some(info))
        }
        .boxed()
    }

    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>> {
        async move {
            let url = self.url(None, &[("rrsets", "false")]);
            let mut body = Vec::new();
            self.call(Method::POST, url, Some(json(&wire::new_zone(zone))?), Sink::Bytes(&mut body)).await?;
            let info = wire::zone(&body)?;
            self.remember(&info);
            Ok(info)
        }
        .boxed()
    }

    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>> {
        async move {
            self.change(Method::PUT, zone, Some(json(&wire::settings(settings))?)).await?;
            Ok(())
        }
        .boxed()
    }

    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>> {
        async move {
            let depends = changes.iter().any(spelling::depends_on_version);
            let changes = spelling::for_server(changes, depends && self.key_names().await?);
            let result = self.change(Method::PATCH, zone, Some(json(&wire::Patch::of(&changes))?)).await;
            if depends && matches!(result, Err(ServerError::Refused { .. })) {
                // The server may have been upgraded since it was asked.
                *lock(&self.key_names) = None;
            }
            Ok(Patched { serial: result?.serial })
        }
        .boxed()
    }

    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>> {
        async move {
            let deleted = missing_is_none(self.change(Method::DELETE, zone, None).await)?;
            lock(&self.ids).remove(zone);
            Ok(deleted.is_some())
        }
        .boxed()
    }

    fn health(&self) -> Health {
        match self.breaker.last() {
            None => Health::Unknown,
            Some(Ok(())) => Health::Up,
            Some(Err(why)) => Health::Down { why: format!("{}: {why}", self.base.origin().ascii_serialization()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_reports_whether_the_key_was_refused() {
        let of = |error| match paused(Paused { error, retry_after: Duration::from_secs(1) }) {
            ServerError::Paused { refused_key, .. } => refused_key,
            other => panic!("{other}"),
        };
        assert!(of(ServerError::Unauthorised { status: 401 }));
        assert!(!of(ServerError::Unreachable { why: "refused".into() }));
    }

    #[test]
    fn a_url_is_taken_as_people_copy_it() {
        let base = |url: &str, vhost: &str| api_base(&url.parse().unwrap(), vhost).unwrap().to_string();
        let plain = "http://dns:8081/api/v1/servers/localhost";
        for url in [
            "http://dns:8081",
            "http://dns:8081/",
            "http://dns:8081/api/v1",
            "http://dns:8081/api/v1/",
            "http://dns:8081/api/v1/servers",
            "http://dns:8081/api/v1/servers/localhost",
            "http://dns:8081/api/v1/servers/localhost/",
            "http://dns:8081/api/v1?x=y#z",
        ] {
            assert_eq!(base(url, "localhost"), plain, "{url}");
        }
        for url in ["http://dns/pdns", "http://dns/pdns/", "http://dns/pdns/api/v1/"] {
            assert_eq!(base(url, "localhost"), "http://dns/pdns/api/v1/servers/localhost", "{url}");
        }
        assert_eq!(base("http://dns/a%20b/api/v1", "localhost"), "http://dns/a%20b/api/v1/servers/localhost");
        assert_eq!(base("http://dns/api/v1/servers/main", "localhost"), "http://dns/api/v1/servers/main");
        assert_eq!(base("http://dns/api/v1/servers/localhost", "main"), "http://dns/api/v1/servers/main");
        assert_eq!(base("http://dns/api", "localhost"), "http://dns/api/api/v1/servers/localhost");
    }
}
