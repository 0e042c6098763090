//! One HTTP exchange with a Pi-hole: capped, timed, without redirects or cookies, errors sorted.
//!
//! In: method, path, headers, JSON. Out: [`Reply`], or an error that says whether trying again at once can help.

use std::error::Error as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use url::Url;

use crate::error::{PiholeError, tame};

/// A list of 50,000 lines fits; a server that streams for ever does not.
const RESPONSE_CAP: usize = 8 * 1024 * 1024;

/// Everything but letters, digits and the characters of names and addresses is escaped in a path element.
const ELEMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b':');

/// A password or token, either given or read from a file each time it is needed. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The value itself.
    Value(String),
    /// A file, re-read at every login so that a rotated secret needs no restart.
    File(PathBuf),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Secret(…)"),
            Self::File(path) => write!(f, "Secret({})", path.display()),
        }
    }
}

impl Secret {
    /// The secret now; trailing line ends of a file do not count.
    pub async fn read(&self) -> Result<String, PiholeError> {
        match self {
            Self::Value(value) => Ok(value.clone()),
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => Err(PiholeError::Setup {
                    what: format!("the token file {} cannot be read: {error}", path.display()),
                }),
            },
        }
    }
}

/// How long to wait for what.
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
    pub(crate) fn trouble(&self) -> Trouble {
        let value = self.json().unwrap_or_default();
        let text = |name: &str| value["error"][name].as_str().map(tame).unwrap_or_default();
        Trouble { key: text("key"), message: text("message"), hint: text("hint") }
    }

    /// What a status means when the caller has no better idea.
    pub(crate) fn into_error(self) -> PiholeError {
        let status = self.status.as_u16();
        let detail = self.trouble().to_string();
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
pub(crate) struct Trouble {
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in [&self.key, &self.message, &self.hint] {
            if !part.is_empty() {
                write!(f, ", {part}")?;
            }
        }
        Ok(())
    }
}

/// The HTTP side of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    base: Url,
    pub(crate) timing: Timing,
}

impl Http {
    pub(crate) fn new(connection: &Connection) -> Result<Self, PiholeError> {
        // Whoever comes first installs the provider; a second installation is refused, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let setup = |what: String| PiholeError::Setup { what };
        let mut base = connection.base.clone();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("signpost/", env!("CARGO_PKG_VERSION"), " (Kubernetes DNS operator)"))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(15))
            .connect_timeout(connection.timing.connect)
            .timeout(connection.timing.total);
        if let Some(path) = &connection.ca_file {
            let pem = std::fs::read(path)
                .map_err(|error| setup(format!("the CA file {} cannot be read: {error}", path.display())))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|_| setup(format!("the CA file {} holds no PEM certificates", path.display())))?;
            if certificates.is_empty() {
                return Err(setup(format!("the CA file {} holds no PEM certificates", path.display())));
            }
            builder = builder.tls_certs_only(certificates);
        } else if base.scheme() == "http" {
            // A machine without any certificate authority can still talk in the clear.
            builder = builder.tls_certs_only([]);
        }
        if let Some(name) = &connection.server_name {
            let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            base.set_host(Some(name))
                .map_err(|error| setup(format!("the server name {name:?} is no host name: {error}")))?;
            builder = builder.dns_resolver(Arc::new(Elsewhere { name: name.to_ascii_lowercase(), host }));
        }
        let client = builder.build().map_err(|error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            setup(format!("the HTTP client cannot be set up: {error}{cause}"))
        })?;
        Ok(Self { client, base, timing: connection.timing.clone() })
    }

    /// Sends one request and reads its whole answer. `path` starts with `/` and is already escaped.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Option<&Value>,
    ) -> Result<Reply, PiholeError> {
        let url = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        let mut request = self.client.request(method, url);
        for (name, value) in headers {
            let mut value = reqwest::header::HeaderValue::from_str(value).map_err(|_| PiholeError::Setup {
                what: "the token holds characters no HTTP header can carry".into(),
            })?;
            value.set_sensitive(true);
            request = request.header(*name, value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(|error| sort(&error))?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        // Whatever a server asks for, within the hour it is asked again.
        let retry_after = header(reqwest::header::RETRY_AFTER)
            .and_then(|text| text.parse().ok())
            .map(|seconds| Duration::from_secs(seconds).min(Duration::from_hours(1)));
        let location = header(reqwest::header::LOCATION).map(|text| match Url::parse(text) {
            Ok(url) => tame(&format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default())),
            Err(_) => "another path".to_owned(),
        });
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| sort(&error))? {
            if bytes.len() + chunk.len() > RESPONSE_CAP {
                return Err(PiholeError::Protocol { what: "the answer is larger than 8 MiB".into() });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Reply { status, body: bytes, retry_after, location })
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

/// Answers the certificate's name with the addresses of the host in the URL.
struct Elsewhere {
    name: String,
    host: String,
}

impl Resolve for Elsewhere {
    fn resolve(&self, name: Name) -> Resolving {
        let host =
            if name.as_str().eq_ignore_ascii_case(&self.name) { self.host.clone() } else { name.as_str().to_owned() };
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Sorts a transport error without repeating URLs (which may hold names of other people's records).
fn sort(error: &reqwest::Error) -> PiholeError {
    if error.is_timeout() {
        return PiholeError::Timeout;
    }
    let mut source: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    let mut last = String::new();
    let mut quick = false;
    while let Some(cause) = source {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return PiholeError::Tls { what: tame(&tls.to_string()) };
        }
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            if let Some(tls) = tls_inside(io) {
                return PiholeError::Tls { what: tame(&tls.to_string()) };
            }
            quick |= matches!(
                io.kind(),
                std::io::ErrorKind::ConnectionRefused
                    | std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::ConnectionAborted
                    | std::io::ErrorKind::BrokenPipe
                    | std::io::ErrorKind::UnexpectedEof
            );
        }
        last = cause.to_string();
        // A connection closed before the answer began: the server went away in the middle.
        quick |= last.contains("connection closed before message completed");
        source = cause.source();
    }
    PiholeError::Unreachable { what: if last.is_empty() { "no connection".into() } else { tame(&last) }, quick }
}

/// The TLS error inside an I/O error inside an I/O error.
fn tls_inside(mut io: &std::io::Error) -> Option<&rustls::Error> {
    loop {
        let inner = io.get_ref()?;
        if let Some(tls) = inner.downcast_ref() {
            return Some(tls);
        }
        io = inner.downcast_ref()?;
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

    #[test]
    fn a_secret_is_never_printed() {
        assert!(!format!("{:?}", Secret::Value("hunter2".into())).contains("hunter2"));
    }
}
