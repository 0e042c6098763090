//! Finds out which dialect a Pi-hole speaks, by the first list call itself.
//!
//! | the token dialect's list call answers | then `GET /api/auth` | verdict |
//! |---|---|---|
//! | 200 with an object and a list `data` in it | not asked | spec |
//! | 401/403 with an object that is not Pi-hole's own error | not asked | spec, wrong token |
//! | 400 with a hint at `/api`, 404, a redirect, HTML, anything else | has a `session` | v6 |
//! | the same | anything else | neither: an error, tried again later |
//! | refused, no answer, 5xx, 429 | not asked | undecided: never guessed |
//!
//! The verdict is kept until the answer to a list or a write stops fitting it. A verdict that a list has confirmed is dropped by probes only when two in
//! a row find the dialect not spoken: an odd answer while a server or a proxy restarts proves nothing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::PiholeError;
use crate::http::{Connection, Reply};
use crate::spec::SpecDialect;
use crate::v6::V6Dialect;
use crate::{ApplyResult, ChangeSet, Dialect, Listing, Pihole};

/// A Pi-hole whose dialect is found out.
#[derive(Debug)]
pub struct AutoDialect {
    spec: SpecDialect,
    v6: V6Dialect,
    verdict: Mutex<Option<Dialect>>,
    /// Locked while the dialect is being found out: a real Pi-hole logs a warning for every attempt, so one has to do.
    finding_out: tokio::sync::Mutex<()>,
    /// Whether a list has confirmed the verdict, and no probe has found the dialect not spoken since.
    trusted: AtomicBool,
}

impl AutoDialect {
    /// Prepares the connection; nothing is sent.
    pub fn new(connection: Connection) -> Result<Self, PiholeError> {
        Ok(Self {
            spec: SpecDialect::new(connection.clone())?,
            v6: V6Dialect::new(connection)?,
            verdict: Mutex::new(None),
            finding_out: tokio::sync::Mutex::new(()),
            trusted: AtomicBool::new(false),
        })
    }

    fn verdict(&self) -> Option<Dialect> {
        self.verdict.lock().ok().and_then(|verdict| *verdict)
    }

    fn decide(&self, verdict: Option<Dialect>) {
        if let Ok(mut slot) = self.verdict.lock() {
            *slot = verdict;
        }
    }

    /// Decides the dialect from the answer to the token dialect's list call.
    async fn judge(&self, reply: &Reply) -> Result<Dialect, PiholeError> {
        let status = reply.status.as_u16();
        let shape = reply.json().filter(serde_json::Value::is_object);
        let pihole_shape =
            shape.as_ref().is_some_and(|value| value.get("session").is_some() || value["error"]["key"].is_string());
        let listed = shape.as_ref().is_some_and(|value| value["data"].is_array());
        let verdict = match status {
            200 if listed && !pihole_shape => Dialect::Spec,
            401 | 403 if shape.is_some() && !pihole_shape => Dialect::Spec,
            429 => return Err(PiholeError::RateLimited { retry_after: reply.retry_after }),
            500..=599 => return Err(PiholeError::Server { status, detail: reply.error_body().to_string() }),
            _ if self.v6.has_session_endpoint().await? => Dialect::V6,
            300..=399 => {
                let location = reply.location.clone().unwrap_or_else(|| "nowhere".into());
                return Err(PiholeError::Redirected { status, location });
            }
            // A secret is asked for, and nothing shows in which dialect.
            401 | 403 => return Err(PiholeError::Unauthorized),
            _ => return Err(PiholeError::NotAPihole { status }),
        };
        self.decide(Some(verdict));
        Ok(verdict)
    }

    async fn detect(&self) -> Result<Listing, PiholeError> {
        let _one_at_a_time = self.finding_out.lock().await;
        match self.verdict() {
            Some(Dialect::Spec) => return self.spec.list().await,
            Some(Dialect::V6) => return self.v6.list().await,
            Some(Dialect::Auto) | None => {}
        }
        let reply = self.spec.raw_list().await?;
        match self.judge(&reply).await? {
            Dialect::Spec => SpecDialect::read_list(reply),
            Dialect::Auto | Dialect::V6 => self.v6.list().await,
        }
    }

    async fn recognise(&self) -> Result<(), PiholeError> {
        let _one_at_a_time = self.finding_out.lock().await;
        match self.verdict() {
            Some(Dialect::Spec) => return self.spec.probe().await,
            Some(Dialect::V6) => return self.v6.probe().await,
            Some(Dialect::Auto) | None => {}
        }
        let reply = self.spec.raw_list().await?;
        match self.judge(&reply).await? {
            Dialect::Spec => SpecDialect::read_list(reply).map(|_| ()),
            Dialect::Auto | Dialect::V6 => self.v6.probe().await,
        }
    }

    /// Drops the verdict when an answer shows that the server is not what it was.
    fn doubt(&self, error: &PiholeError) {
        if matches!(
            error,
            PiholeError::WrongDialect { .. } | PiholeError::NotAPihole { .. } | PiholeError::Protocol { .. }
        ) {
            self.decide(None);
        }
    }
}

impl Pihole for AutoDialect {
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>> {
        async {
            let result = match self.verdict() {
                Some(Dialect::Spec) => self.spec.probe().await,
                Some(Dialect::V6) => self.v6.probe().await,
                // A replica that does not lead never lists: it detects the dialect by itself, without a login.
                Some(Dialect::Auto) | None => self.recognise().await,
            };
            let wrong = matches!(result, Err(PiholeError::WrongDialect { .. }));
            if wrong && !self.trusted.swap(false, Ordering::Relaxed) {
                self.decide(None);
            }
            result
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, PiholeError>> {
        async {
            let result = match self.verdict() {
                Some(Dialect::Spec) => self.spec.list().await,
                Some(Dialect::V6) => self.v6.list().await,
                Some(Dialect::Auto) | None => self.detect().await,
            };
            self.trusted.store(result.is_ok(), Ordering::Relaxed);
            result.inspect_err(|error| self.doubt(error))
        }
        .boxed()
    }

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, ApplyResult> {
        async move {
            let applied = match self.verdict() {
                Some(Dialect::Spec) => self.spec.apply(changes).await,
                Some(Dialect::V6) => self.v6.apply(changes).await,
                Some(Dialect::Auto) | None => ApplyResult {
                    stopped: Some(PiholeError::Protocol { what: "the dialect is not known yet".into() }),
                    ..ApplyResult::default()
                },
            };
            if let Some(error) = &applied.stopped {
                self.doubt(error);
            }
            applied
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.v6.close()
    }

    fn dialect(&self) -> Option<Dialect> {
        self.verdict()
    }
}
