//! The HTTP client that providers are built on, and the circuit breaker of those that need one.
//!
//! ```text
//!  Request ─► HttpClient ─► Answer ─► chunks or a body, up to a limit
//!               │ TLS with an own CA, which is read again after a TLS error
//!               │ one deadline for the whole call, no redirects, no proxies
//!               └─ HttpError: unreachable, timeout, TLS, too large
//! ```
//!
//! The provider decides the meaning of a status code. Errors and `Debug` output never have a URL, a header or a
//! secret in them.

mod breaker;
mod client;
mod error;
mod options;
mod retry_after;
mod secret;
mod transport;

pub use breaker::{Breaker, Paused};
pub use client::{Answer, HttpClient, Request};
pub use error::{HttpError, SetupError, printable};
pub use options::{Certificates, HttpOptions};
pub use reqwest::{Method, StatusCode};
pub use retry_after::parse_retry_after;
pub use secret::{Secret, SecretError, SecretText};
pub use transport::{Answering, Transport};
