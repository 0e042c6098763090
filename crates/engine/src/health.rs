//! Liveness and readiness: problems, and how to fix them.
//!
//! In: named checks that the hub, the lease and the systems keep up to date. Out: `/healthz`, `/readyz` (text, or JSON when asked for with
//! `?format=json` or an `Accept` header) and `/metrics` on one server.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// The state of one check.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Check {
    /// Nothing is wrong.
    Ok,
    /// Worth knowing, but the process is ready: one of several providers is down, an optional kind is not installed.
    Degraded {
        /// The problem.
        message: String,
    },
    /// The process is not ready.
    Failing {
        /// The problem.
        message: String,
        /// How to fix it, e.g. a command.
        #[serde(skip_serializing_if = "Option::is_none")]
        fix: Option<String>,
    },
}

impl Check {
    /// A failing check without a fix.
    pub fn failing(message: impl Into<String>) -> Self {
        Self::Failing { message: message.into(), fix: None }
    }

    /// A failing check and how to fix it.
    pub fn failing_with_fix(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Failing { message: message.into(), fix: Some(fix.into()) }
    }

    /// A degraded check.
    pub fn degraded(message: impl Into<String>) -> Self {
        Self::Degraded { message: message.into() }
    }
}

/// The checks of this process. Cloning gives another handle to the same checks.
#[derive(Clone, Debug)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
    metrics: Metrics,
}

impl Health {
    /// No checks yet: ready.
    pub fn new(metrics: Metrics) -> Self {
        Self { checks: Arc::default(), metrics }
    }

    /// Sets a check by name, for example `powerdns`, and returns the check before.
    pub fn set(&self, name: impl Into<String>, check: Check) -> Option<Check> {
        self.lock().insert(name.into(), check)
    }

    /// Removes a check and returns it.
    pub fn clear(&self, name: &str) -> Option<Check> {
        self.lock().remove(name)
    }

    /// True when no check is failing.
    pub fn is_ready(&self) -> bool {
        !self.lock().values().any(|check| matches!(check, Check::Failing { .. }))
    }

    /// All checks, by name.
    pub fn checks(&self) -> BTreeMap<String, Check> {
        self.lock().clone()
    }

    /// The routes `/healthz`, `/readyz` and `/metrics`, to be served alone or beside others.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }

    /// Serves the routes until `stop`.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        axum::serve(listener, self.router()).with_graceful_shutdown(stop.cancelled_owned()).await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Check>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, check) in self.checks() {
            // Writing to a string cannot fail.
            let _ = match check {
                Check::Ok => writeln!(text, "[+] {name}"),
                Check::Degraded { message } => writeln!(text, "[~] {name}: {message}"),
                Check::Failing { message, fix: None } => writeln!(text, "[-] {name}: {message}"),
                Check::Failing { message, fix: Some(fix) } => {
                    writeln!(text, "[-] {name}: {message}\n    to fix it: {fix}")
                }
            };
        }
        text.push_str(if self.is_ready() { "ready\n" } else { "not ready\n" });
        text
    }
}

async fn readyz(
    State(health): State<Health>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let code = if health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if query.get("format").is_some_and(|format| format == "json") || accepts.contains("application/json") {
        let body = json!({ "ready": code == StatusCode::OK, "checks": health.checks() });
        (code, Json(body)).into_response()
    } else {
        (code, health.text()).into_response()
    }
}

async fn metrics(State(health): State<Health>) -> Response {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], health.metrics.encode()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        Health::new(Metrics::new())
    }

    #[test]
    fn degraded_is_still_ready_and_failing_is_not() {
        let health = health();
        health.set("provider pihole", Check::degraded("no answer"));
        assert!(health.is_ready());
        health.set("kind rrsets", Check::failing("no"));
        assert!(!health.is_ready());
        health.clear("kind rrsets");
        assert!(health.is_ready());
    }

    #[test]
    fn the_text_names_the_problem_and_the_fix() {
        let health = health();
        health.set("a", Check::Ok);
        health.set("b", Check::failing_with_fix("the CRD is not installed", "signpost crds | kubectl apply -f -"));
        assert_eq!(
            health.text(),
            "[+] a\n[-] b: the CRD is not installed\n    to fix it: signpost crds | kubectl apply -f -\nnot ready\n"
        );
    }

    #[tokio::test]
    async fn the_server_answers_in_text_and_json() {
        let health = health();
        health.set("kind rrsets", Check::failing("no permission to watch"));
        let plain = readyz(State(health.clone()), Query(BTreeMap::new()), HeaderMap::new()).await;
        assert_eq!(plain.status(), StatusCode::SERVICE_UNAVAILABLE);
        let as_json = Query(BTreeMap::from([("format".to_owned(), "json".to_owned())]));
        health.clear("kind rrsets");
        let answer = readyz(State(health), as_json, HeaderMap::new()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
    }
}
