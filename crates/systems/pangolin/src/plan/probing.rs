//! The health check of a target, from its annotations. Pure.

use signpost_exposure::{BackendScheme, Check};
use signpost_provider_pangolin::{Header, HealthCheck};

use crate::plan::exposure::Address;

/// Headers as Pangolin has them.
pub(crate) fn headers(pairs: &[(String, String)]) -> Vec<Header> {
    pairs.iter().map(|(name, value)| Header { name: name.clone(), value: value.clone() }).collect()
}

/// A health check; what its annotations leave out is taken from the backend.
pub(crate) fn of(check: &Check, backend: &Address) -> HealthCheck {
    let scheme = check.scheme.unwrap_or(backend.scheme);
    HealthCheck {
        hostname: check.hostname.clone().unwrap_or_else(|| backend.host.clone()),
        port: check.port.unwrap_or(backend.port),
        path: check.path.clone().unwrap_or_else(|| "/".to_owned()),
        scheme: if scheme == BackendScheme::Https { "https" } else { "http" }.to_owned(),
        method: check.method.clone().unwrap_or_else(|| "GET".to_owned()),
        interval: check.interval.unwrap_or(30),
        unhealthy_interval: check.unhealthy_interval.unwrap_or(30),
        timeout: check.timeout.unwrap_or(5),
        status: check.status,
        follow_redirects: check.follow_redirects.unwrap_or(true),
        headers: headers(&check.headers),
        tls_server_name: check.tls_server_name.clone(),
    }
}
