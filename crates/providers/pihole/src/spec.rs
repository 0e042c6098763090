//! The dialect of the original request: `/admin/api/dns/local` with a Bearer token, one A record per call.
//!
//! Deleting is by name, so a name that also has a foreign address must not be deleted through it; the caller
//! sees that in the listing. There is no update: an address changes by DELETE and POST, the POST repeated at once
//! when it fails.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::Method;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::error::{ErrorClass, PiholeError};
use crate::http::{Connection, Http, Reply, element};
use crate::line::Line;
use crate::{ApplyResult, Capabilities, ChangeSet, Dialect, Listing, Pihole, Secret};

const PATH: &str = "/admin/api/dns/local";

/// A Pi-hole spoken to in the dialect of the original request.
#[derive(Debug)]
pub struct SpecDialect {
    http: Http,
    token: Secret,
    writing: Mutex<()>,
}

#[derive(Deserialize)]
struct Records {
    data: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    domain: String,
    ip: String,
}

impl SpecDialect {
    /// Prepares the connection; nothing is sent.
    pub fn new(connection: Connection) -> Result<Self, PiholeError> {
        Ok(Self { http: Http::new(&connection)?, token: connection.token, writing: Mutex::new(()) })
    }

    async fn call(&self, method: Method, path: &str, body: Option<&serde_json::Value>) -> Result<Reply, PiholeError> {
        let bearer = format!("Bearer {}", self.token.read().await?.expose());
        self.http.send(method, path, &[("authorization", &bearer)], body).await
    }

    /// The list call itself, unjudged: what auto-detection reads.
    pub(crate) async fn raw_list(&self) -> Result<Reply, PiholeError> {
        self.http.quickly(|| self.call(Method::GET, PATH, None)).await
    }

    /// Judges the answer to a list call.
    pub(crate) fn read_list(reply: Reply) -> Result<Listing, PiholeError> {
        match reply.status.as_u16() {
            200 => {
                let records: Records = serde_json::from_slice(&reply.body).map_err(|error| PiholeError::Protocol {
                    what: format!(
                        "the list is not an object with an array `data` of domain and ip ({})",
                        classify(&error)
                    ),
                })?;
                // A name with a blank or '#' in it cannot be a host of ours; left out, it is never touched.
                let plain =
                    |record: &Record| !record.domain.contains([' ', '\t', '#', ',']) && !record.domain.is_empty();
                let hosts = records.data.iter().filter(|record| plain(record));
                Ok(Listing {
                    capabilities: Capabilities::SPEC,
                    hosts: hosts.map(|record| Line::stored(&format!("{} {}", record.ip, record.domain))).collect(),
                    cnames: Vec::new(),
                    write_error: None,
                })
            }
            401 | 403 => Err(PiholeError::Unauthorized),
            400 if is_v6_hint(&reply) => Err(PiholeError::WrongDialect { dialect: "spec" }),
            _ => Err(reply.into_error()),
        }
    }

    /// Whether the record is there by now.
    async fn holds(&self, line: &Line) -> Result<bool, PiholeError> {
        let reply = self.call(Method::GET, PATH, None).await?;
        Ok(Self::read_list(reply)?.hosts.contains(line))
    }

    /// Creates a record. The dialect does not define whether an existing record may be created again. So the record is read before every
    /// repeated attempt: only the answer may have been lost.
    async fn create(&self, line: &Line, first: bool) -> Result<(), PiholeError> {
        let parts = line.address_parts();
        let (Some(std::net::IpAddr::V4(ip)), [domain]) = (parts.ip, parts.names.as_slice()) else {
            return Err(PiholeError::Unsupported { dialect: "spec", line: line.clone() });
        };
        let body = serde_json::json!({ "domain": domain, "ip": ip.to_string() });
        let again = AtomicBool::new(!first);
        let attempt = || async {
            if again.swap(true, Ordering::Relaxed) && self.holds(line).await? {
                return Ok(None);
            }
            self.call(Method::POST, PATH, Some(&body)).await.map(Some)
        };
        let Some(reply) = self.http.quickly(attempt).await? else { return Ok(()) };
        match reply.status.as_u16() {
            200..=299 => Ok(()),
            401 | 403 => Err(PiholeError::Unauthorized),
            400 if is_v6_hint(&reply) => Err(PiholeError::WrongDialect { dialect: "spec" }),
            400 => {
                let why = reply.error_body().to_string();
                let why = if why.is_empty() { "status 400".to_owned() } else { why };
                Err(PiholeError::LineRefused { line: line.clone(), why })
            }
            _ => Err(reply.into_error()),
        }
    }

    async fn delete(&self, line: &Line) -> Result<(), PiholeError> {
        let parts = line.address_parts();
        let [domain] = parts.names.as_slice() else {
            return Err(PiholeError::Unsupported { dialect: "spec", line: line.clone() });
        };
        let path = format!("{PATH}/{}", element(domain));
        let reply = self.http.quickly(|| self.call(Method::DELETE, &path, None)).await?;
        match reply.status.as_u16() {
            200..=299 | 404 => Ok(()),
            401 | 403 => Err(PiholeError::Unauthorized),
            400 if is_v6_hint(&reply) => Err(PiholeError::WrongDialect { dialect: "spec" }),
            400 => Err(PiholeError::LineRefused { line: line.clone(), why: "status 400 on delete".into() }),
            _ => Err(reply.into_error()),
        }
    }

    /// Creates a record, in the place of an old one if there is one.
    async fn put_in_place(&self, old: Option<&Line>, line: &Line, writes: &mut u32) -> Result<(), PiholeError> {
        let Some(old) = old else {
            *writes += 1;
            return self.create(line, true).await;
        };
        *writes += 1;
        self.delete(old).await?;
        let result = self.create_at_once(line, writes).await;
        if matches!(result, Err(PiholeError::LineRefused { .. } | PiholeError::Unsupported { .. })) {
            // The name is served as it was rather than not at all.
            self.create_at_once(old, writes).await?;
        }
        result
    }

    /// Creates a record whose name has none for now: one more attempt at once keeps that time short.
    async fn create_at_once(&self, line: &Line, writes: &mut u32) -> Result<(), PiholeError> {
        *writes += 1;
        match self.create(line, true).await {
            Err(error) if error.class() != ErrorClass::Permanent => {
                *writes += 1;
                self.create(line, false).await
            }
            done => done,
        }
    }

    async fn write(&self, changes: &ChangeSet) -> ApplyResult {
        let _one_at_a_time = self.writing.lock().await;
        let mut applied = ApplyResult::default();
        for line in changes.add_cnames.iter().chain(&changes.remove_cnames) {
            applied.refused.push((line.clone(), PiholeError::Unsupported { dialect: "spec", line: line.clone() }));
        }
        let (replaced, deleted): (Vec<&Line>, Vec<&Line>) =
            changes.remove_hosts.iter().partition(|old| changes.add_hosts.iter().any(|new| new.replaces(old)));
        for line in &changes.add_hosts {
            let old = replaced.iter().find(|old| line.replaces(old));
            let result = self.put_in_place(old.copied(), line, &mut applied.writes).await;
            if !note(&mut applied, line, result) {
                return applied;
            }
        }
        for line in deleted {
            applied.writes += 1;
            let result = self.delete(line).await;
            if !note(&mut applied, line, result) {
                return applied;
            }
        }
        applied
    }
}

/// Files one result; false when the rest must wait.
pub(crate) fn note(applied: &mut ApplyResult, line: &Line, result: Result<(), PiholeError>) -> bool {
    match result {
        Ok(()) => true,
        Err(error @ (PiholeError::LineRefused { .. } | PiholeError::Unsupported { .. })) => {
            applied.refused.push((line.clone(), error));
            true
        }
        Err(error) => {
            applied.stopped = Some(error);
            false
        }
    }
}

/// Pi-hole v6 answers every path of this dialect with a hint with the path of its API.
pub(crate) fn is_v6_hint(reply: &Reply) -> bool {
    let error = reply.error_body();
    error.key == "bad_request" && error.hint.contains("/api")
}

fn classify(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        serde_json::error::Category::Data => "wrong shape",
        _ => "not JSON",
    }
}

impl Pihole for SpecDialect {
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>> {
        async {
            let reply = self.call(Method::GET, PATH, None).await?;
            Self::read_list(reply).map(|_| ())
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, PiholeError>> {
        async { Self::read_list(self.raw_list().await?) }.boxed()
    }

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, ApplyResult> {
        self.write(changes).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }

    fn dialect(&self) -> Option<Dialect> {
        Some(Dialect::Spec)
    }
}
