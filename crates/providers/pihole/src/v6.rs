//! The API of Pi-hole v6: `/api/config/dns/hosts` and `/api/config/dns/cnameRecords` under a session.
//!
//! Reading, probing and the meaning of answers are here; sessions in `session`, writes in `write`.
//!
//! FTL before 6.0.3 refuses comments. That shows when the first line with one is refused and the hint quotes the `#`; from then on lists
//! report that lines can carry no marker.

mod session;
mod write;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::Value;
use signpost_provider_http::Transport;
use tokio::sync::Mutex;

use crate::error::PiholeError;
use crate::http::{Connection, Http, Reply};
use crate::line::Line;
use crate::{ApplyResult, Capabilities, ChangeSet, Dialect, Listing, Pihole};
use session::Sessions;

/// A Pi-hole v6.
#[derive(Debug)]
pub struct V6Dialect {
    sessions: Sessions,
    writing: Mutex<()>,
    /// Whether a line with a comment has been refused for its comment.
    refuses_comments: AtomicBool,
    /// The largest body of a PATCH; smaller once the server has dropped one.
    patch_cap: AtomicUsize,
}

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Hosts,
    Cnames,
}

impl List {
    fn key(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Cnames => "cnameRecords",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hosts => "dns.hosts",
            Self::Cnames => "dns.cnameRecords",
        }
    }

    fn path(self) -> String {
        format!("/api/config/dns/{}", self.key())
    }

    fn read(self, value: &Value) -> Result<Vec<Line>, PiholeError> {
        let missing = || PiholeError::Protocol { what: format!("the answer holds no list dns.{}", self.key()) };
        let items = value["config"]["dns"][self.key()].as_array().ok_or_else(missing)?;
        items.iter().map(|item| item.as_str().map(Line::stored).ok_or_else(missing)).collect()
    }
}

impl V6Dialect {
    /// Prepares the connection; nothing is sent.
    pub fn new(connection: Connection) -> Result<Self, PiholeError> {
        Ok(Self::of(Http::new(&connection)?, connection))
    }

    /// The same, answered in this process instead of by the network.
    pub fn over(transport: Arc<dyn Transport>, connection: Connection) -> Self {
        Self::of(Http::over(transport, &connection), connection)
    }

    fn of(http: Http, connection: Connection) -> Self {
        Self {
            sessions: Sessions::new(http, connection.token),
            writing: Mutex::new(()),
            refuses_comments: AtomicBool::new(false),
            patch_cap: AtomicUsize::new(write::PATCH_CAP),
        }
    }

    /// Whether `/api/auth` answers as a Pi-hole v6 does; takes no session.
    pub(crate) async fn has_session_endpoint(&self) -> Result<bool, PiholeError> {
        let reply = self.http().quickly(|| self.sessions.anonymous("/api/auth")).await?;
        match reply.status.as_u16() {
            500..=599 => Err(reply.into_error()),
            _ => Ok(reply.json().is_some_and(|value| value["session"].is_object())),
        }
    }

    fn http(&self) -> &Http {
        &self.sessions.http
    }

    async fn read(&self, list: List) -> Result<Vec<Line>, PiholeError> {
        let reply = self.sessions.call(Method::GET, &list.path(), None).await?;
        match reply.status.as_u16() {
            200 => {
                let value =
                    reply.json().ok_or_else(|| PiholeError::Protocol { what: "the list is not JSON".into() })?;
                list.read(&value)
            }
            404 => Err(PiholeError::WrongDialect { dialect: "v6" }),
            _ => Err(judge(reply)),
        }
    }

    async fn read_all(&self) -> Result<Listing, PiholeError> {
        let write_error = self.http().quickly(|| self.sessions.forbidden()).await?;
        let plain = self.refuses_comments.load(Ordering::Relaxed);
        Ok(Listing {
            capabilities: if plain { Capabilities::V6_WITHOUT_COMMENTS } else { Capabilities::V6 },
            hosts: self.http().quickly(|| self.read(List::Hosts)).await?,
            cnames: self.http().quickly(|| self.read(List::Cnames)).await?,
            write_error,
        })
    }
}

/// The error of an unexpected answer of the configuration API.
pub(crate) fn judge(reply: Reply) -> PiholeError {
    let error = reply.error_body();
    match reply.status.as_u16() {
        400 if error.message.contains("environment variable") => {
            PiholeError::EnvLocked { key: if error.hint.is_empty() { "dns.hosts".into() } else { error.hint } }
        }
        403 if error.hint.contains("app_sudo") => PiholeError::AppSudoOff,
        403 if error.hint.contains("CLI session") => PiholeError::CliPassword,
        403 if error.message.contains("read-only") || error.hint.contains("readOnly") => PiholeError::ReadOnly,
        429 if error.key == "api_seats_exceeded" => PiholeError::SeatsFull,
        401 => PiholeError::Unauthorized,
        _ => reply.into_error(),
    }
}

impl Pihole for V6Dialect {
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>> {
        async {
            let reply = self.sessions.anonymous("/api/info/login").await?;
            match reply.status.as_u16() {
                200 => match reply.json().and_then(|value| value["dns"].as_bool()) {
                    Some(true) => Ok(()),
                    Some(false) => Err(PiholeError::Unreachable { what: "its resolver is down".into(), quick: false }),
                    None => Err(PiholeError::Protocol { what: "the answer does not tell whether DNS is up".into() }),
                },
                404 => Err(PiholeError::WrongDialect { dialect: "v6" }),
                _ => Err(reply.into_error()),
            }
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, PiholeError>> {
        self.read_all().boxed()
    }

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, ApplyResult> {
        self.write(changes).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.sessions.close().boxed()
    }

    fn dialect(&self) -> Option<Dialect> {
        Some(Dialect::V6)
    }
}
