//! One call at a time: request out, answer in, within one deadline.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use bytes::Bytes;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Method, StatusCode, header};
use url::Url;

use crate::error::{HttpError, SetupError, printable, with_causes};
use crate::options::HttpOptions;
use crate::retry_after::parse_retry_after;
use crate::transport::Transport;

/// Largest body of an error that is read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// Longest text of a header that is repeated.
const MAX_HEADER: usize = 200;

/// A client of one server.
#[derive(Debug)]
pub struct HttpClient {
    options: HttpOptions,
    base: Url,
    way: Way,
}

/// How requests get to the server.
#[derive(Debug)]
enum Way {
    Network(RwLock<Current>),
    Transport(Arc<dyn Transport>),
}

/// The client in use and the CA file that it was made from.
#[derive(Clone)]
struct Current {
    client: reqwest::Client,
    ca: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    url: Url,
    headers: header::HeaderMap,
    body: Option<Bytes>,
}

impl Request {
    /// A request without a body that asks for JSON.
    pub fn new(method: Method, url: Url) -> Self {
        let mut headers = header::HeaderMap::new();
        headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
        Self { method, url, headers, body: None }
    }

    /// With a header whose value is never printed.
    pub fn secret_header(mut self, name: &'static str, value: &str) -> Result<Self, HttpError> {
        let wrong = HttpError::Header { header: name };
        let mut value = header::HeaderValue::from_str(value).map_err(|_| wrong.clone())?;
        value.set_sensitive(true);
        self.headers.insert(header::HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong)?, value);
        Ok(self)
    }

    /// With a body of JSON.
    #[must_use]
    pub fn json(mut self, body: impl Into<Bytes>) -> Self {
        self.headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        self.body = Some(body.into());
        self
    }
}

impl HttpClient {
    /// A client; no call is made yet.
    pub fn new(options: HttpOptions) -> Result<Self, SetupError> {
        let mut base = options.url.clone();
        if let Some(name) = &options.server_name {
            base.set_host(Some(name))
                .map_err(|error| SetupError::ServerName { name: name.clone(), why: error.to_string() })?;
        }
        let way = Way::Network(RwLock::new(Current::of(&options)?));
        Ok(Self { options, base, way })
    }

    /// A client whose requests are answered in this process.
    pub fn over(transport: Arc<dyn Transport>, options: HttpOptions) -> Self {
        let base = options.url.clone();
        Self { options, base, way: Way::Transport(transport) }
    }

    /// The base URL of requests.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Sends a request and returns its answer, whose body is still to be read.
    ///
    /// When the server's certificate does not verify, the CA file is read again. When it has changed, the request is
    /// sent again with the new certificates: the failed handshake has sent nothing.
    pub async fn send(&self, request: Request) -> Result<Answer, HttpError> {
        let current = match &self.way {
            Way::Network(current) => current,
            Way::Transport(transport) => return self.carry(&**transport, request).await,
        };
        let used = current.read().unwrap_or_else(PoisonError::into_inner).clone();
        match self.send_with(&used.client, request.clone()).await {
            Err(error @ HttpError::Tls { certificate: true, .. }) => match self.renewed(current, &used).await {
                Some(client) => self.send_with(&client, request).await,
                None => Err(error),
            },
            sent => sent,
        }
    }

    async fn send_with(&self, client: &reqwest::Client, request: Request) -> Result<Answer, HttpError> {
        let Request { method, url, headers, body } = request;
        let mut builder = client.request(method, url).headers(headers);
        if let Some(body) = body {
            builder = builder.body(body);
        }
        let response = builder.send().await.map_err(|error| HttpError::of(&error))?;
        Ok(Answer::of(response, &self.options))
    }

    async fn carry(&self, transport: &dyn Transport, request: Request) -> Result<Answer, HttpError> {
        let Request { method, url, headers, body } = request;
        let mut sent = http::Request::new(body.unwrap_or_default());
        *sent.method_mut() = method;
        *sent.uri_mut() = url.as_str().parse().map_err(|error: http::uri::InvalidUri| HttpError::Unreachable {
            why: error.to_string(),
            restarting: false,
        })?;
        *sent.headers_mut() = headers;
        let answered = tokio::time::timeout(self.options.timeout, transport.send(sent)).await;
        let response = answered.map_err(|_| HttpError::Timeout)??;
        Ok(Answer::of(reqwest::Response::from(response), &self.options))
    }

    /// A client with the current CA file, unless `failed` was made from the same file.
    async fn renewed(&self, current: &RwLock<Current>, failed: &Current) -> Option<reqwest::Client> {
        let pem = tokio::fs::read(self.options.ca_file.as_ref()?).await.ok()?;
        if failed.ca.as_deref() == Some(&pem[..]) {
            return None;
        }
        let renewed = Current::with_ca(&self.options, Some(pem.into())).ok()?;
        let client = renewed.client.clone();
        *current.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Some(client)
    }
}

impl Current {
    fn of(options: &HttpOptions) -> Result<Self, SetupError> {
        if let Some(ca) = &options.certificates.ca {
            return Self::with_ca(options, Some(ca.clone()));
        }
        let ca = match &options.ca_file {
            Some(path) => Some(std::fs::read(path).map_err(|error| SetupError::Ca {
                path: path.display().to_string(),
                why: format!("cannot be read: {error}"),
            })?),
            None => None,
        };
        Self::with_ca(options, ca.map(Into::into))
    }

    fn with_ca(options: &HttpOptions, ca: Option<Arc<[u8]>>) -> Result<Self, SetupError> {
        // Another part of the process may have installed a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("signpost/", env!("CARGO_PKG_VERSION"), " (Kubernetes DNS operator)"))
            .redirect(reqwest::redirect::Policy::none())
            // Secrets are for the server alone, whatever the environment has.
            .no_proxy()
            .http1_only()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(options.idle_connections)
            .pool_idle_timeout(options.idle_timeout)
            .connect_timeout(options.connect_timeout)
            .timeout(options.timeout);
        if options.insecure {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if let Some(pem) = &ca {
            builder = builder.tls_certs_only(certificates(options, pem)?);
        } else if options.url.scheme() == "http" {
            // A machine without any certificate authority can still use plain HTTP.
            builder = builder.tls_certs_only([]);
        }
        if let Some(pem) = &options.certificates.client {
            let identity = reqwest::Identity::from_pem(pem).map_err(|_| {
                SetupError::Client("the client certificate and its key cannot be read as PEM".to_owned())
            })?;
            builder = builder.identity(identity);
        }
        if let Some(name) = &options.server_name {
            let host = options.url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            builder = builder.dns_resolver(Arc::new(Elsewhere { name: name.to_ascii_lowercase(), host }));
        }
        let client = builder.build().map_err(|error| {
            let causes = with_causes(&error);
            SetupError::Client(if causes.is_empty() { error.to_string() } else { causes })
        })?;
        Ok(Self { client, ca })
    }
}

fn certificates(options: &HttpOptions, pem: &[u8]) -> Result<Vec<reqwest::Certificate>, SetupError> {
    let path = options.ca_file.as_deref().map_or_else(|| "ca.crt".to_owned(), |path| path.display().to_string());
    match reqwest::Certificate::from_pem_bundle(pem) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => Err(SetupError::Ca { path, why: "has no PEM certificate in it".to_owned() }),
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

/// An answer whose body is read chunk by chunk, within the deadline of the call and up to a limit.
#[derive(Debug)]
pub struct Answer {
    response: reqwest::Response,
    retry_after: Option<std::time::Duration>,
    limit: usize,
    read: usize,
}

impl Answer {
    fn of(response: reqwest::Response, options: &HttpOptions) -> Self {
        let now = SystemTime::now();
        let header = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after =
            header.and_then(|text| parse_retry_after(text, now)).map(|wait| wait.min(options.longest_wait));
        let limit = if response.status().is_success() { options.max_body } else { MAX_ERROR_BODY };
        Self { response, retry_after, limit, read: 0 }
    }

    /// The status code.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// The time in `Retry-After`, bounded.
    pub fn retry_after(&self) -> Option<std::time::Duration> {
        self.retry_after
    }

    /// Scheme and host that a redirect leads to.
    pub fn location(&self) -> Option<String> {
        self.header(header::LOCATION.as_str()).map(|text| match Url::parse(text) {
            Ok(url) => printable(&format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default()), MAX_HEADER),
            Err(_) => "another path".to_owned(),
        })
    }

    /// The next part of the body. The body of an error ends at 64 KiB, that of a success must not exceed the limit.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        let Some(mut chunk) = self.response.chunk().await.map_err(|error| HttpError::of(&error))? else {
            return Ok(None);
        };
        let room = self.limit - self.read;
        if chunk.len() > room {
            if self.status().is_success() {
                return Err(HttpError::TooLarge { limit: self.limit });
            }
            if room == 0 {
                return Ok(None);
            }
            chunk.truncate(room);
        }
        self.read += chunk.len();
        Ok(Some(chunk))
    }

    /// The rest of the body.
    pub async fn body(&mut self) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}
