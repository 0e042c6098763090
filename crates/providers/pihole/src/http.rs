//! One HTTP exchange with a Pi-hole: capped, timed, without redirects or cookies, errors sorted.
//!
//! In: method, path, headers, JSON. Out: [`Reply`], or an error with the information whether an immediate retry can help.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use signpost_provider_http::{HttpClient, HttpError, HttpOptions, Request, Secret, SecretError, Transport};
use url::Url;

use crate::error::{PiholeError, tame};

/// A list of 50,000 lines fits; a server that streams indefinitely does not.
const RESPONSE_CAP: usize = 8 * 1024 * 1024;

/// Everything but letters, digits and the characters of names and addresses is escaped in a path element.
const ELEMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b':');

/// Timeouts and pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For a connection.
    pub connect: Duration,
    /// For a whole exchange.
    pub total: Duration,
    /// Pauses before trying a refused or reset connection again.
    pub quick: [Duration; 3],
    /// Pause before a refused login is tried once more.
    pub login_again: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            total: Duration::from_secs(10),
            quick: [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)],
            login_again: Duration::from_millis(1500),
        }
    }
}

/// Where a Pi-hole is and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The base, without `/admin` or `/api`; see [`parse_base_url`].
    pub base: Url,
    /// App password, web password or Bearer token.
    pub token: Secret,
    /// The CA that signed the Pi-hole's certificate, in PEM.
    pub ca_file: Option<PathBuf>,
    /// The name in the certificate, where it differs from the host in the URL (usually `pi.hole`).
    pub server_name: Option<String>,
    /// Timeouts.
    pub timing: Timing,
}

impl Connection {
    /// A connection with default timing and the system's certificate authorities.
    pub fn new(base: Url, token: Secret) -> Self {
        Self { base, token, ca_file: None, server_name: None, timing: Timing::default() }
    }
}

/// Reads a base URL as people paste it: trailing `/`, `/admin`, `/admin/` or `/api` are taken off.
pub fn parse_base_url(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text.trim()).map_err(|error| format!("{error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme must be http or https, not {:?}", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("the host is missing".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials do not belong into the URL".to_owned());
    }
    url.set_query(None);
    url.set_fragment(None);
    let mut path = url.path().trim_end_matches('/').to_owned();
    for tail in ["/api", "/admin"] {
        if let Some(cut) = path.strip_suffix(tail) {
            path = cut.trim_end_matches('/').to_owned();
        }
    }
    url.set_path(&path);
    Ok(url)
}

/// Escapes one path element.
pub(crate) fn element(text: &str) -> String {
    utf8_percent_encode(text, ELEMENT).to_string()
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) location: Option<String>,
}

impl Reply {
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Pi-hole's own error object: key, message, hint.
    pub(crate) fn error_body(&self) -> ErrorBody {
        let value = self.json().unwrap_or_default();
        let text = |name: &str| value["error"][name].as_str().map(tame).unwrap_or_default();
        ErrorBody { key: text("key"), message: text("message"), hint: text("hint") }
    }

    /// The default error of a status.
    pub(crate) fn into_error(self) -> PiholeError {
        let status = self.status.as_u16();
        let detail = self.error_body().to_string();
        match status {
            429 => PiholeError::RateLimited { retry_after: self.retry_after },
            300..=399 => {
                PiholeError::Redirected { status, location: self.location.unwrap_or_else(|| "nowhere".into()) }
            }
            500..=599 => PiholeError::Server { status, detail },
            _ => PiholeError::Rejected { status, detail },
        }
    }
}

/// The error object of an answer; fields are empty where the server gave none.
#[derive(Debug, Default)]
pub(crate) struct ErrorBody {
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl std::fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in [&self.key, &self.message, &self.hint] {
            if !part.is_empty() {
                write!(f, ", {part}")?;
            }
        }
        Ok(())
    }
}

fn options(connection: &Connection) -> HttpOptions {
    HttpOptions {
        ca_file: connection.ca_file.clone(),
        server_name: connection.server_name.clone(),
        connect_timeout: connection.timing.connect,
        timeout: connection.timing.total,
        // FTL sends head and body of an answer apart. On a connection that is used again, the second part waits
        // for the acknowledgement of the first, which takes 40 ms. A new connection takes less than 1 ms.
        idle_connections: 0,
        max_body: RESPONSE_CAP,
        ..HttpOptions::new(connection.base.clone())
    }
}

/// The HTTP side of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: Arc<HttpClient>,
    ca_file: Option<PathBuf>,
    pub(crate) timing: Timing,
}

impl Http {
    pub(crate) fn new(connection: &Connection) -> Result<Self, PiholeError> {
        let client = HttpClient::new(options(connection));
        Ok(Self::of(connection, client.map_err(|error| PiholeError::Setup { what: error.to_string() })?))
    }

    /// Whoever answers is in this process.
    pub(crate) fn over(transport: Arc<dyn Transport>, connection: &Connection) -> Self {
        Self::of(connection, HttpClient::over(transport, options(connection)))
    }

    fn of(connection: &Connection, client: HttpClient) -> Self {
        Self { client: Arc::new(client), ca_file: connection.ca_file.clone(), timing: connection.timing.clone() }
    }

    /// Sends one request and reads its whole answer. `path` starts with `/` and is already escaped.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Option<&Value>,
    ) -> Result<Reply, PiholeError> {
        let failed = |error: HttpError| self.failed(error);
        let url = format!("{}{path}", self.client.base().as_str().trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|error| PiholeError::Setup { what: error.to_string() })?;
        let mut request = Request::new(method, url);
        for (name, value) in headers {
            request = request.secret_header(name, value).map_err(failed)?;
        }
        if let Some(body) = body {
            request = request.json(body.to_string());
        }
        let mut answer = self.client.send(request).await.map_err(failed)?;
        let (status, retry_after, location) = (answer.status(), answer.retry_after(), answer.location());
        Ok(Reply { status, body: answer.body().await.map_err(failed)?, retry_after, location })
    }

    fn failed(&self, error: HttpError) -> PiholeError {
        match error {
            HttpError::Timeout => PiholeError::Timeout,
            HttpError::Unreachable { why, restarting } => {
                PiholeError::Unreachable { what: tame(&why), quick: restarting }
            }
            HttpError::Tls { why, certificate } => {
                let what = match &self.ca_file {
                    // From FTL 6.3 on a new certificate comes with a new authority.
                    Some(path) if certificate => format!(
                        "{why}, checked with the CA file {}, which may be older than the certificate: copy \
                         /etc/pihole/tls_ca.crt from the Pi-hole again",
                        path.display()
                    ),
                    _ => tame(&why),
                };
                PiholeError::Tls { what }
            }
            HttpError::TooLarge { .. } => PiholeError::Protocol { what: error.to_string() },
            HttpError::Header { .. } => {
                PiholeError::Setup { what: "the token holds characters no HTTP header can carry".into() }
            }
        }
    }

    /// Runs an operation again, up to three times, while the server refuses or resets connections.
    pub(crate) async fn quickly<T, F>(&self, mut operation: impl FnMut() -> F) -> Result<T, PiholeError>
    where
        F: Future<Output = Result<T, PiholeError>>,
    {
        for pause in self.timing.quick {
            match operation().await {
                Err(error) if error.is_quick() => tokio::time::sleep(pause).await,
                done => return done,
            }
        }
        operation().await
    }
}

impl From<SecretError> for PiholeError {
    fn from(error: SecretError) -> Self {
        Self::Setup { what: format!("the token file {error}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_as_people_paste_them() {
        for text in [
            "http://192.168.1.2",
            "http://192.168.1.2/",
            "http://192.168.1.2/admin",
            "http://192.168.1.2/admin/",
            "http://192.168.1.2/api/",
            "http://192.168.1.2/admin/api",
        ] {
            assert_eq!(parse_base_url(text).unwrap().as_str(), "http://192.168.1.2/", "{text}");
        }
        assert_eq!(parse_base_url("https://home.lan/pihole/admin").unwrap().as_str(), "https://home.lan/pihole");
        for text in ["", "192.168.1.2", "ftp://x", "http://", "http://user:pw@host"] {
            assert!(parse_base_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_becomes_one_path_element() {
        assert_eq!(element("fd00::1 app.lan # signpost=a_b"), "fd00::1%20app.lan%20%23%20signpost%3Da_b");
    }
}
