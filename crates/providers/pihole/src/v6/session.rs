//! One seat at a Pi-hole v6: logged in when first needed, shared by every call, renewed once when it is refused,
//! given back at the end.
//!
//! A Pi-hole has 16 seats and counts failed logins per second, both for all clients together, so a login is the
//! scarcest call there is. The third valid app-password login within one second is answered like a wrong one:
//! a single refusal proves nothing, and is tried once more a little later.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::Secret;
use crate::error::PiholeError;
use crate::http::{Http, Reply};

/// The session of one connection.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) http: Http,
    password: Secret,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seat: Option<Seat>,
    /// Counts logins, so that a refusal of an old seat does not throw away a new one.
    generation: u64,
    /// Whether the settings are known to allow writing; read once per login, again while they do not.
    may_write: bool,
}

#[derive(Clone)]
struct Seat {
    /// None when the Pi-hole has no password: every call is let in.
    sid: Option<String>,
    app_password: bool,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("app_password", &self.app_password).finish_non_exhaustive()
    }
}

impl Sessions {
    pub(super) fn new(http: Http, password: Secret) -> Self {
        Self { http, password, state: Mutex::default() }
    }

    /// One request, under a session or without one.
    async fn send(
        &self,
        method: Method,
        path: &str,
        sid: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Reply, PiholeError> {
        let headers: Vec<(&'static str, &str)> = sid.map(|sid| ("x-ftl-sid", sid)).into_iter().collect();
        self.http.send(method, path, &headers, body).await
    }

    /// One GET that needs no session and takes none.
    pub(super) async fn anonymous(&self, path: &str) -> Result<Reply, PiholeError> {
        self.send(Method::GET, path, None, None).await
    }

    /// One call under the session; a refused session is renewed once.
    pub(super) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, PiholeError> {
        for _ in 0..2 {
            let (seat, generation) = self.seat().await?;
            let reply = self.with(&seat, method.clone(), path, body).await?;
            if reply.status.as_u16() != 401 {
                return Ok(reply);
            }
            self.give_up(generation).await;
        }
        Err(PiholeError::Unauthorized)
    }

    /// Forgets a seat that was refused. Something else may have refused the call: the seat is given back, not left behind.
    async fn give_up(&self, generation: u64) {
        let seat = {
            let mut state = self.state.lock().await;
            if state.generation == generation { state.seat.take() } else { None }
        };
        if let Some(seat) = seat {
            self.leave(&seat).await;
        }
    }

    /// Gives a seat back. Where that fails, it expires by itself.
    async fn leave(&self, seat: &Seat) {
        if seat.sid.is_some() {
            let farewell = self.with(seat, Method::DELETE, "/api/auth", None);
            let _ = tokio::time::timeout(self.http.timing.connect, farewell).await;
        }
    }

    async fn with(&self, seat: &Seat, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, PiholeError> {
        self.send(method, path, seat.sid.as_deref(), body).await
    }

    /// The seat, taken now if need be. The lock is kept while logging in: other callers wait for the result.
    async fn seat(&self) -> Result<(Seat, u64), PiholeError> {
        let mut state = self.state.lock().await;
        if let Some(seat) = &state.seat {
            return Ok((seat.clone(), state.generation));
        }
        let seat = match self.log_in().await {
            Err(PiholeError::Unauthorized) => {
                tokio::time::sleep(self.http.timing.login_again).await;
                self.log_in().await?
            }
            done => done?,
        };
        state.generation += 1;
        state.may_write = false;
        state.seat = Some(seat.clone());
        Ok((seat, state.generation))
    }

    async fn log_in(&self) -> Result<Seat, PiholeError> {
        let body = json!({ "password": self.password.read().await?.expose() });
        let reply = self.send(Method::POST, "/api/auth", None, Some(&body)).await?;
        let status = reply.status.as_u16();
        let error = reply.error_body();
        match status {
            200 => {
                let value = reply.json().unwrap_or_default();
                let session = &value["session"];
                if session["valid"] != Value::Bool(true) {
                    return Err(PiholeError::Protocol { what: "the login neither succeeded nor failed".into() });
                }
                Ok(Seat {
                    sid: session["sid"].as_str().map(str::to_owned),
                    app_password: session["message"].as_str().is_some_and(|message| message.contains("app-password")),
                })
            }
            400 if error.message.contains("2FA") => Err(PiholeError::TwoFactor),
            401 => Err(PiholeError::Unauthorized),
            404 => Err(PiholeError::WrongDialect { dialect: "v6" }),
            429 if error.key == "api_seats_exceeded" => Err(PiholeError::SeatsFull),
            // The hint to a bad login body may repeat the body: it is left out.
            400 => Err(PiholeError::Rejected { status, detail: format!(", {}", error.message) }),
            _ => Err(reply.into_error()),
        }
    }

    /// The setting that forbids writing, if there is one.
    pub(super) async fn forbidden(&self) -> Result<Option<PiholeError>, PiholeError> {
        let (seat, _) = self.seat().await?;
        if self.state.lock().await.may_write {
            return Ok(None);
        }
        let found = self.read_forbidden(&seat).await?;
        self.state.lock().await.may_write = found.is_none();
        Ok(found)
    }

    /// Whether the configuration is read-only now. FTL takes single lines all the same then, and forgets them at its next restart.
    pub(super) async fn refuse_read_only(&self) -> Result<(), PiholeError> {
        if self.setting("/api/config/misc/readOnly", "/config/misc/readOnly").await? == Some(true) {
            self.state.lock().await.may_write = false;
            return Err(PiholeError::ReadOnly);
        }
        Ok(())
    }

    async fn read_forbidden(&self, seat: &Seat) -> Result<Option<PiholeError>, PiholeError> {
        if self.setting("/api/config/misc/readOnly", "/config/misc/readOnly").await? == Some(true) {
            return Ok(Some(PiholeError::ReadOnly));
        }
        if seat.app_password
            && self.setting("/api/config/webserver/api/app_sudo", "/config/webserver/api/app_sudo").await?
                == Some(false)
        {
            return Ok(Some(PiholeError::AppSudoOff));
        }
        let locked = self.setting("/api/config/dns/hosts?detailed=true", "/config/dns/hosts/flags/env_var").await?;
        Ok((locked == Some(true)).then(|| PiholeError::EnvLocked { key: "dns.hosts".into() }))
    }

    /// A boolean in an answer; absent in versions that do not know it.
    async fn setting(&self, path: &str, pointer: &str) -> Result<Option<bool>, PiholeError> {
        let reply = self.call(Method::GET, path, None).await?;
        match reply.status.as_u16() {
            200 => Ok(reply.json().and_then(|value| value.pointer(pointer)?.as_bool())),
            500..=599 | 429 => Err(reply.into_error()),
            _ => Ok(None),
        }
    }

    /// Logs out, if logged in.
    pub(super) async fn close(&self) {
        let seat = self.state.lock().await.seat.take();
        if let Some(seat) = seat {
            self.leave(&seat).await;
        }
    }
}
