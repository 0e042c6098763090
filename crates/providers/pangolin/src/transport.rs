//! How a request reaches the server: by HTTP, or without sockets where time itself is simulated.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use signpost_provider_http::{HttpClient, HttpError, Method, Request};
use url::Url;

use crate::error::PangolinError;

/// A request with everything that is sent.
#[derive(Clone)]
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// The whole URL.
    pub url: Url,
    /// The value of the header `Authorization`.
    pub authorization: Option<String>,
    /// The body, as JSON.
    pub body: Option<String>,
}

impl fmt::Debug for Outgoing {
    /// Without the key and the body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("method", &self.method).field("path", &self.url.path()).finish_non_exhaustive()
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The status.
    pub status: u16,
    /// Where it redirects to.
    pub location: Option<String>,
    /// What `Retry-After` asks for.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Vec<u8>,
}

/// Carries requests to a server and answers back.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Carries one request.
    fn carry(&self, request: Outgoing) -> BoxFuture<'_, Result<Incoming, PangolinError>>;
}

impl Transport for HttpClient {
    fn carry(&self, request: Outgoing) -> BoxFuture<'_, Result<Incoming, PangolinError>> {
        async move {
            let Outgoing { method, url, authorization, body } = request;
            let mut request = Request::new(method, url);
            if let Some(value) = authorization {
                request = request.secret_header("authorization", &value).map_err(|_| PangolinError::MalformedKey)?;
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let mut answer = self.send(request).await.map_err(http_error)?;
            Ok(Incoming {
                status: answer.status().as_u16(),
                location: answer.location(),
                retry_after: answer.retry_after(),
                body: answer.body().await.map_err(http_error)?,
            })
        }
        .boxed()
    }
}

fn http_error(error: HttpError) -> PangolinError {
    match error {
        HttpError::Timeout => PangolinError::Timeout,
        HttpError::Unreachable { why, restarting } => PangolinError::Unreachable { what: why, dropped: restarting },
        HttpError::Tls { why, .. } => PangolinError::Tls { what: why },
        HttpError::TooLarge { .. } => PangolinError::Protocol { what: error.to_string() },
        HttpError::Header { .. } => PangolinError::MalformedKey,
    }
}
