//! What Pi-hole v6 serves: `/api/config/dns/hosts` and `/api/config/dns/cnameRecords` under a session.
//!
//! One change is a PUT or DELETE of exactly that line; several are one PATCH of the whole list, read anew right
//! before, with every other line byte-identical and in its place. A list too large for one PATCH (the server drops
//! bodies above 64 KiB) is changed line by line, additions first.
//!
//! FTL before 6.0.3 refuses comments. That shows when the first line with one is refused although nothing else is odd about it;
//! from then on lists say that lines can carry no marker.

mod session;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::error::PiholeError;
use crate::http::{Connection, Http, Reply, element};
use crate::line::Line;
use crate::spec::note;
use crate::{Applied, Capabilities, ChangeSet, Dialect, Listing, Pihole};
use session::Sessions;

/// Pi-hole drops request bodies above 64 KiB; some room is left for headers it may count in.
const PATCH_CAP: usize = 60 * 1024;
/// How many of our lines may be refused one after another before a PATCH is given up.
const REFUSALS: usize = 16;

/// A Pi-hole v6.
#[derive(Debug)]
pub struct V6Dialect {
    sessions: Sessions,
    writing: Mutex<()>,
    /// Whether a line with a comment has been refused for its comment.
    refuses_comments: AtomicBool,
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

    fn path(self) -> String {
        format!("/api/config/dns/{}", self.key())
    }

    fn read(self, value: &Value) -> Result<Vec<Line>, PiholeError> {
        let missing = || PiholeError::Protocol { what: format!("the answer holds no list dns.{}", self.key()) };
        let items = value["config"]["dns"][self.key()].as_array().ok_or_else(missing)?;
        items.iter().map(|item| item.as_str().map(Line::stored).ok_or_else(missing)).collect()
    }
}

/// How one PATCH ended when it did not succeed.
enum Patched {
    Written,
    Unchanged,
    TooLarge,
}

impl V6Dialect {
    /// Prepares the connection; nothing is sent.
    pub fn new(connection: Connection) -> Result<Self, PiholeError> {
        let http = Http::new(&connection)?;
        let sessions = Sessions::new(http, connection.token);
        Ok(Self { sessions, writing: Mutex::new(()), refuses_comments: AtomicBool::new(false) })
    }

    /// Whether `/api/auth` answers as a Pi-hole v6 does; takes no session.
    pub(crate) async fn has_session_endpoint(&self) -> Result<bool, PiholeError> {
        let reply = self.http().quickly(|| self.http().send(Method::GET, "/api/auth", &[], None)).await?;
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
        let trouble = self.http().quickly(|| self.sessions.trouble()).await?;
        let plain = self.refuses_comments.load(Ordering::Relaxed);
        Ok(Listing {
            capabilities: if plain { Capabilities::V6_WITHOUT_COMMENTS } else { Capabilities::V6 },
            hosts: self.http().quickly(|| self.read(List::Hosts)).await?,
            cnames: self.http().quickly(|| self.read(List::Cnames)).await?,
            trouble,
        })
    }

    /// Replaces a list by itself without `remove` and with `add` at its end.
    async fn patch_once(
        &self,
        list: List,
        add: &[&Line],
        remove: &[&Line],
        writes: &AtomicU32,
    ) -> Result<Patched, PiholeError> {
        let before = self.read(list).await?;
        let gone: std::collections::BTreeSet<&Line> = remove.iter().copied().collect();
        let mut after: Vec<&Line> = before.iter().filter(|line| !gone.contains(line)).collect();
        let present: std::collections::BTreeSet<&Line> = after.iter().copied().collect();
        after.extend(add.iter().filter(|line| !present.contains(*line)));
        if after.len() == before.len() && after.iter().zip(&before).all(|(new, old)| **new == *old) {
            return Ok(Patched::Unchanged);
        }
        let lines: Vec<&str> = after.iter().map(|line| line.as_str()).collect();
        let body = json!({ "config": { "dns": { list.key(): lines } } });
        if body.to_string().len() > PATCH_CAP {
            return Ok(Patched::TooLarge);
        }
        writes.fetch_add(1, Ordering::Relaxed);
        let reply = self.sessions.call(Method::PATCH, &list.path(), Some(&body)).await?;
        match reply.status.as_u16() {
            200..=299 => Ok(Patched::Written),
            400 if reply.trouble().message.contains("No request body data") => Ok(Patched::TooLarge),
            400 => Err(blame(&reply, list, &after, add).unwrap_or_else(|| judge(reply))),
            _ => Err(judge(reply)),
        }
    }

    /// One PATCH, repeated without the lines of ours that are refused; false when the list is too large for it.
    ///
    /// A refusal of aliases that names no line (the resolver itself does not like its configuration) is narrowed down with fewer and fewer
    /// of them. What is refused restarts nothing; the first that is taken does, so the rest waits for the next time.
    async fn patch(&self, list: List, add: &[Line], remove: &[Line], applied: &mut Applied) -> bool {
        let mut add: Vec<&Line> = add.iter().collect();
        let mut remove: Vec<&Line> = remove.iter().collect();
        let mut size = add.len();
        for _ in 0..=REFUSALS {
            let writes = AtomicU32::new(0);
            let (now, later) = add.split_at(size);
            // What is replaced stays until its successor is there.
            let gone: Vec<&Line> =
                remove.iter().copied().filter(|old| !later.iter().any(|new| new.replaces(old))).collect();
            let result = self.http().quickly(|| self.patch_once(list, now, &gone, &writes)).await;
            applied.writes += writes.into_inner();
            let refused = match result {
                Ok(Patched::Written | Patched::Unchanged) => {
                    applied.postponed.extend(later.iter().map(|line| (*line).clone()));
                    return true;
                }
                Ok(Patched::TooLarge) => return false,
                Err(PiholeError::LineRefused { line, why }) => (line, why),
                Err(PiholeError::Rejected { status: 400, detail }) if list == List::Cnames && size > 0 => {
                    if size > 1 {
                        size /= 2;
                        continue;
                    }
                    (now[0].clone(), format!("status 400{detail}"))
                }
                Err(error) => {
                    applied.stopped = Some(error);
                    return true;
                }
            };
            let (line, why) = refused;
            add.retain(|candidate| **candidate != line);
            // Refused, it takes nobody's place.
            remove.retain(|old| !line.replaces(old));
            size = add.len();
            applied.refused.push((line.clone(), PiholeError::LineRefused { line, why }));
        }
        applied.stopped = Some(PiholeError::Protocol { what: "the Pi-hole refuses line after line".into() });
        true
    }

    async fn put(&self, list: List, line: &Line) -> Result<(), PiholeError> {
        let path = format!("{}/{}", list.path(), element(line.as_str()));
        let reply = self.http().quickly(|| self.sessions.call(Method::PUT, &path, None)).await?;
        match reply.status.as_u16() {
            200..=299 => Ok(()),
            400 if reply.trouble().message.contains("already present") => Ok(()),
            400 if index_in(&reply.trouble().hint, list).is_some() => {
                // The whole list is checked on every addition: find out whose line it is that does not please.
                let mut lines = self.http().quickly(|| self.read(list)).await?;
                lines.push(line.clone());
                let lines: Vec<&Line> = lines.iter().collect();
                Err(blame(&reply, list, &lines, &[line]).unwrap_or_else(|| judge(reply)))
            }
            404 => {
                Err(PiholeError::LineRefused { line: line.clone(), why: "status 404: no such list or element".into() })
            }
            _ => Err(judge(reply)),
        }
    }

    async fn delete(&self, list: List, line: &Line) -> Result<(), PiholeError> {
        let path = format!("{}/{}", list.path(), element(line.as_str()));
        let reply = self.http().quickly(|| self.sessions.call(Method::DELETE, &path, None)).await?;
        match reply.status.as_u16() {
            200..=299 | 404 => Ok(()),
            _ => Err(judge(reply)),
        }
    }

    async fn one_by_one(&self, list: List, add: &[Line], remove: &[Line], applied: &mut Applied) {
        for line in add {
            if applied.refused.iter().any(|(refused, _)| refused == line) {
                continue;
            }
            applied.writes += 1;
            let result = self.put(list, line).await;
            if !note(applied, line, result) {
                return;
            }
        }
        for line in remove {
            if applied.refused.iter().any(|(refused, _)| refused.replaces(line)) {
                continue;
            }
            applied.writes += 1;
            let result = self.delete(list, line).await;
            if !note(applied, line, result) {
                return;
            }
        }
    }

    async fn write_hosts(&self, changes: &ChangeSet, applied: &mut Applied) {
        let (add, remove) = (&changes.add_hosts, &changes.remove_hosts);
        match (add.len(), remove.len()) {
            (0, 0) => {}
            (1, 0) | (0, 1) => self.one_by_one(List::Hosts, add, remove, applied).await,
            _ => {
                if !self.patch(List::Hosts, add, remove, applied).await {
                    self.one_by_one(List::Hosts, add, remove, applied).await;
                }
            }
        }
        // Somebody's invalid line blocks additions, but not deletions: what has to go can still go.
        if let Some(PiholeError::BadForeignLine { .. }) = applied.stopped {
            let stopped = applied.stopped.take();
            let gone: Vec<Line> =
                remove.iter().filter(|old| !add.iter().any(|new| new.replaces(old))).cloned().collect();
            self.one_by_one(List::Hosts, &[], &gone, applied).await;
            applied.stopped = stopped;
        }
    }

    async fn write(&self, changes: &ChangeSet) -> Applied {
        let _one_at_a_time = self.writing.lock().await;
        let mut applied = Applied::default();
        self.write_hosts(changes, &mut applied).await;
        if applied.stopped.is_none()
            && changes.touches_cnames() > 0
            && !self.patch(List::Cnames, &changes.add_cnames, &changes.remove_cnames, &mut applied).await
        {
            applied.stopped =
                Some(PiholeError::Protocol { what: "dns.cnameRecords is too large for one request".into() });
        }
        if applied.stopped == Some(PiholeError::CommentsRefused) {
            self.refuses_comments.store(true, Ordering::Relaxed);
        }
        applied
    }
}

/// Reads `dns.hosts[7]: …`.
fn index_in(hint: &str, list: List) -> Option<usize> {
    let (_, rest) = hint.split_once(&format!("dns.{}[", list.key()))?;
    rest.split_once(']')?.0.parse().ok()
}

/// Whose line a validation error is about.
fn blame(reply: &Reply, list: List, sent: &[&Line], ours: &[&Line]) -> Option<PiholeError> {
    let trouble = reply.trouble();
    let index = index_in(&trouble.hint, list)?;
    match sent.get(index) {
        Some(line) if ours.contains(line) && list == List::Hosts && is_first_comment(line, &sent[..index]) => {
            Some(PiholeError::CommentsRefused)
        }
        Some(line) if ours.contains(line) => {
            Some(PiholeError::LineRefused { line: (*line).clone(), why: trouble.hint })
        }
        Some(line) => Some(PiholeError::BadForeignLine { index, line: line.as_str().chars().take(200).collect() }),
        None => None,
    }
}

/// Whether a refused line of ours has nothing odd but its comment, and no line before it shows that comments are taken.
fn is_first_comment(line: &Line, before: &[&Line]) -> bool {
    let parts = line.address_parts();
    let plain =
        |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    line.is_marked()
        && parts.ip.is_some()
        && parts.names.len() == 1
        && parts.names.iter().all(plain)
        && before.iter().all(|line| line.comment().is_none())
}

/// What an unexpected answer of the configuration API means.
pub(crate) fn judge(reply: Reply) -> PiholeError {
    let trouble = reply.trouble();
    match reply.status.as_u16() {
        400 if trouble.message.contains("environment variable") => {
            PiholeError::EnvLocked { key: if trouble.hint.is_empty() { "dns.hosts".into() } else { trouble.hint } }
        }
        403 if trouble.hint.contains("app_sudo") => PiholeError::AppSudoOff,
        403 if trouble.message.contains("read-only") || trouble.hint.contains("readOnly") => PiholeError::ReadOnly,
        429 if trouble.key == "api_seats_exceeded" => PiholeError::SeatsFull,
        401 => PiholeError::Unauthorized,
        _ => reply.into_error(),
    }
}

impl Pihole for V6Dialect {
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>> {
        async {
            let reply = self.http().send(Method::GET, "/api/info/login", &[], None).await?;
            match reply.status.as_u16() {
                200 => match reply.json().and_then(|value| value["dns"].as_bool()) {
                    Some(true) => Ok(()),
                    Some(false) => Err(PiholeError::Unreachable { what: "its resolver is down".into(), quick: false }),
                    None => Err(PiholeError::Protocol { what: "the answer does not say whether DNS is up".into() }),
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

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, Applied> {
        self.write(changes).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.sessions.close().boxed()
    }

    fn dialect(&self) -> Option<Dialect> {
        Some(Dialect::V6)
    }
}
