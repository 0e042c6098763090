//! One call: path, query and body out; the data of the envelope in, or the error that its status means.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use signpost_provider_http::{HttpClient, HttpOptions, Method, Secret, SecretError};
use tokio::sync::Semaphore;
use url::Url;

use crate::error::PangolinError;
use crate::transport::{Incoming, Outgoing, Transport};
use crate::wire;

/// Largest answer: a hundred thousand resources in pages of a thousand.
const MAX_BODY: usize = 32 << 20;

/// Deadlines, expiries and concurrency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For a connection.
    pub connect: Duration,
    /// For a whole call.
    pub total: Duration,
    /// How long domains and sites are kept.
    pub expiry: Duration,
    /// How old the list of resources may be that decides whether a host is free.
    pub list_age: Duration,
    /// Calls at once: each costs the server a password hash.
    pub parallel: usize,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            total: Duration::from_secs(15),
            expiry: Duration::from_mins(5),
            list_age: Duration::from_secs(30),
            parallel: 2,
        }
    }
}

/// How to reach a server and an organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The base URL, without `/v1`.
    pub base: Url,
    /// The id of the organisation.
    pub org: String,
    /// The API key; a file is read at each call, so that a rotation needs no restart.
    pub key: Secret,
    /// Trust the certificates in this PEM file instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Deadlines, expiries and concurrency.
    pub timing: Timing,
}

impl Connection {
    /// A connection with the usual deadlines.
    pub fn new(base: Url, org: impl Into<String>, key: Secret) -> Self {
        Self { base, org: org.into(), key, ca_file: None, timing: Timing::default() }
    }
}

/// Reads a base URL as people paste it: with or without a slash or `/v1` at its end.
pub fn parse_base_url(text: &str) -> Result<Url, String> {
    let mut url =
        Url::parse(text.trim()).map_err(|error| format!("{error}; write a URL such as https://api.example.com"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err("not an http or https URL; write a URL such as https://api.example.com".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user name or password; remove them, the API key is set separately".to_owned());
    }
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").or_else(|| path.strip_suffix("/V1")).unwrap_or(path).to_owned();
    url.set_path(&path);
    Ok(url)
}

/// The permission that a call needs.
pub(crate) type Permission = &'static str;

/// A request, before its key is added.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    body: Option<Map<String, Value>>,
    permission: Permission,
}

impl Call {
    pub(crate) fn new<P: ToString>(method: Method, path: impl IntoIterator<Item = P>, permission: Permission) -> Self {
        let path = path.into_iter().map(|part| part.to_string()).collect();
        Self { method, path, query: Vec::new(), body: None, permission }
    }

    pub(crate) fn query(mut self, name: &'static str, value: usize) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(crate) fn body(mut self, body: Map<String, Value>) -> Self {
        self.body = Some(body);
        self
    }
}

/// The HTTP side of a connection.
#[derive(Debug)]
pub(crate) struct Http {
    transport: Arc<dyn Transport>,
    base: Url,
    key: Secret,
    pub(crate) org: String,
    permits: Arc<Semaphore>,
    answers: AtomicU64,
}

impl Http {
    pub(crate) fn new(connection: &Connection) -> Result<Self, PangolinError> {
        let client = HttpClient::new(HttpOptions {
            ca_file: connection.ca_file.clone(),
            connect_timeout: connection.timing.connect,
            timeout: connection.timing.total,
            idle_connections: connection.timing.parallel,
            // The server closes a connection that was idle for 5 seconds; a request on it would be lost.
            idle_timeout: Duration::from_secs(3),
            max_body: MAX_BODY,
            ..HttpOptions::new(connection.base.clone())
        })
        .map_err(|error| PangolinError::Setup { what: error.to_string() })?;
        Ok(Self::over(Arc::new(client), connection))
    }

    pub(crate) fn over(transport: Arc<dyn Transport>, connection: &Connection) -> Self {
        let permits = Arc::new(Semaphore::new(connection.timing.parallel.max(1)));
        let (base, key, org) = (connection.base.clone(), connection.key.clone(), connection.org.clone());
        Self { transport, base, key, org, permits, answers: AtomicU64::new(0) }
    }

    fn url(&self, path: &[String], query: &[(&'static str, String)]) -> Result<Url, PangolinError> {
        let mut url = self.base.clone();
        let setup = || PangolinError::Setup { what: "the URL cannot have a path".to_owned() };
        url.path_segments_mut().map_err(|()| setup())?.pop_if_empty().push("v1").extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// Whether the API answers at all.
    pub(crate) async fn probe(&self) -> Result<(), PangolinError> {
        let request = Outgoing { method: Method::GET, url: self.url(&[], &[])?, authorization: None, body: None };
        let Incoming { status, location, body, .. } = self.transport.carry(request).await?;
        wire::healthy(status, location, &body)
    }

    /// Sends a call and returns the data of its answer. A read is sent again once when the connection was dropped.
    pub(crate) async fn send(&self, call: &Call) -> Result<Value, PangolinError> {
        let first = self.attempt(call).await;
        match first {
            Err(PangolinError::Unreachable { dropped: true, .. }) if call.method == Method::GET => {
                self.attempt(call).await
            }
            done => done,
        }
    }

    async fn attempt(&self, call: &Call) -> Result<Value, PangolinError> {
        let key = self.key.read().await.map_err(|error| secret_error(&error))?;
        // The server answers such a key with 500, as if it had failed itself.
        let (id, secret) = key.expose().trim().split_once('.').ok_or(PangolinError::MalformedKey)?;
        if id.is_empty() || secret.is_empty() {
            return Err(PangolinError::MalformedKey);
        }
        let request = Outgoing {
            method: call.method.clone(),
            url: self.url(&call.path, &call.query)?,
            authorization: Some(format!("Bearer {id}.{secret}")),
            body: call.body.as_ref().map(|body| Value::Object(body.clone()).to_string()),
        };
        let Incoming { status, location, retry_after, body } = {
            // A closed semaphore does not exist here.
            let _permit = self.permits.acquire().await.ok();
            self.transport.carry(request).await?
        };
        if status == 429 {
            return Err(PangolinError::RateLimited { retry_after });
        }
        let data = wire::data(status, location, &body, &self.org, call.permission);
        if data.is_ok() {
            self.answers.fetch_add(1, Ordering::AcqRel);
        }
        data
    }

    /// How many calls were answered with data.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Acquire)
    }
}

fn secret_error(error: &SecretError) -> PangolinError {
    PangolinError::Setup { what: format!("the file of the API key {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_as_people_paste_them() {
        for text in
            ["https://api.x.test", " https://api.x.test/ ", "https://api.x.test/v1", "https://api.x.test/v1/?a=b"]
        {
            assert_eq!(parse_base_url(text).unwrap().as_str(), "https://api.x.test/", "{text}");
        }
        assert_eq!(parse_base_url("http://x.test/pangolin/v1/").unwrap().as_str(), "http://x.test/pangolin");
        for text in ["", "api.x.test", "ftp://x", "https://user:pw@x.test"] {
            assert!(parse_base_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ids_are_escaped_as_one_part_of_the_path() {
        let connection = Connection::new(parse_base_url("http://x.test/p").unwrap(), "o", Secret::Value("a.b".into()));
        let http = Http::new(&connection).unwrap();
        let url = http.url(&["org".into(), "a/../b?c".into()], &[("query", "x y&z".into())]).unwrap();
        assert_eq!(url.as_str(), "http://x.test/p/v1/org/a%2F..%2Fb%3Fc?query=x+y%26z");
    }
}
