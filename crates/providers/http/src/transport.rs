//! What answers requests in the place of a network: a server of a simulation in the same process.

use std::{fmt, future::Future, pin::Pin};

use bytes::Bytes;

use crate::error::HttpError;

/// The answer that a [`Transport`] gives.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<http::Response<Bytes>, HttpError>> + Send + 'a>>;

/// Answers requests in the place of a network. The deadline of a call is kept by the client.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Sends a request.
    fn send(&self, request: http::Request<Bytes>) -> Answering<'_>;
}
