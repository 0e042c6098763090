//! The configuration API of a Pi-hole v6: reading, one element at a time, whole lists, and who may do what.
//!
//! A write reads the list, takes its time, and writes the list back: two at once lose one another's lines, although
//! both are answered with success.

use std::sync::{Arc, Mutex};

use axum::response::Response;
use http::Method;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::v6::{Caller, Inner, error};
use super::v6_rules::{check, tidied};
use super::{answer, empty, lock, takes_its_time};

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Hosts,
    Cnames,
}

impl List {
    fn of(name: &str) -> Option<Self> {
        match name {
            "hosts" => Some(Self::Hosts),
            "cnameRecords" => Some(Self::Cnames),
            _ => None,
        }
    }

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Cnames => "cnameRecords",
        }
    }

    fn items(self, inner: &Inner) -> Vec<String> {
        match self {
            Self::Hosts => inner.hosts.clone(),
            Self::Cnames => inner.cnames.clone(),
        }
    }

    fn locked(self, inner: &Inner) -> bool {
        match self {
            Self::Hosts => inner.options.env_locked,
            Self::Cnames => inner.options.cnames_env_locked,
        }
    }

    /// A change of any list stores the whole configuration, and tidies every host line with it.
    fn store(self, inner: &mut Inner, items: Vec<String>, save: bool) {
        match self {
            Self::Hosts => inner.hosts = items,
            Self::Cnames => inner.cnames = items,
        }
        if save {
            if inner.options.tidies {
                inner.hosts = inner.hosts.iter().map(|line| tidied(line)).collect();
            }
            inner.saved = (inner.hosts.clone(), inner.cnames.clone());
        }
    }
}

pub(super) async fn serve(
    state: &Arc<Mutex<Inner>>,
    method: &Method,
    path: &str,
    query: Option<&str>,
    caller: Caller,
    body: &[u8],
) -> Response {
    // The path is decoded first and split after, so an element with a slash in it cannot be named.
    let decoded = percent_decode_str(&path.replace('+', " ")).decode_utf8_lossy().into_owned();
    let parts: Vec<&str> = decoded.trim_start_matches('/').split('/').collect();
    let method = method.as_str();
    if method == "GET" {
        return read(state, &parts, query);
    }
    if query.is_some() {
        lock(state).book.violation(format!("{method} {decoded} with a query: the operator never asks for one"));
    }
    let refusal = forbidden(&lock(state), caller);
    if let Some(reply) = refusal {
        lock(state).book.counters.writes += 1;
        return reply;
    }
    match (method, parts.as_slice()) {
        ("PATCH", ["dns", name]) => match List::of(name) {
            Some(list) => patch(state, list, body).await,
            None => unknown(state, method, &decoded),
        },
        ("PATCH", [""]) => {
            lock(state).book.violation("PATCH of the whole configuration answers with password hashes".to_owned());
            answer(200, json!({"config": {}}))
        }
        ("PUT" | "DELETE", ["dns", name, item]) => match List::of(name) {
            Some(list) if method == "PUT" => put(state, list, item).await,
            Some(list) => delete(state, list, item).await,
            None => answer(404, json!({})),
        },
        ("PUT" | "DELETE", _) => {
            lock(state).book.violation(format!("{method} {decoded}: an element with a slash can not be addressed"));
            answer(404, json!({}))
        }
        _ => unknown(state, method, &decoded),
    }
}

fn unknown(state: &Arc<Mutex<Inner>>, method: &str, path: &str) -> Response {
    lock(state).book.violation(format!("{method} /api/config{path} is not part of the contract"));
    error(404, "not_found", "Not found", Some(path))
}

fn read(state: &Arc<Mutex<Inner>>, parts: &[&str], query: Option<&str>) -> Response {
    let mut inner = lock(state);
    let detailed = query == Some("detailed=true");
    if query.is_some() && !detailed {
        inner.book.violation(format!("GET with the unknown query {query:?}"));
    }
    let config = match parts {
        ["dns", name] => match List::of(name) {
            Some(list) => {
                let items = json!(list.items(&inner));
                let env_var = list.locked(&inner);
                let flags =
                    json!({"restart_dnsmasq": list == List::Cnames, "session_reset": false, "env_var": env_var});
                let shown = if detailed {
                    json!({"type": "string array", "value": items, "default": [], "flags": flags})
                } else {
                    items
                };
                json!({"dns": {list.key(): shown}})
            }
            None => json!({}),
        },
        ["misc", "readOnly"] => json!({"misc": {"readOnly": inner.options.read_only}}),
        ["webserver", "api", "app_sudo"] => json!({"webserver": {"api": {"app_sudo": inner.options.app_sudo}}}),
        _ => json!({}),
    };
    if config == json!({}) {
        // Answered with success and nothing in it: whoever takes that for "no records" deletes everything.
        inner.book.violation(format!("GET of {parts:?}, a key that does not exist"));
    }
    answer(200, json!({ "config": config }))
}

/// The refusal of callers that may not write at all.
fn forbidden(inner: &Inner, caller: Caller) -> Option<Response> {
    let hint = match caller {
        Caller::App if !inner.options.app_sudo => {
            "The current app session is not allowed to modify Pi-hole config settings (webserver.api.app_sudo is false)"
        }
        Caller::Cli => "The current CLI session is not allowed to modify Pi-hole config settings",
        Caller::App | Caller::Web | Caller::Open => return None,
    };
    Some(error(403, "forbidden", "Unable to change configuration (read-only)", Some(hint)))
}

fn env_locked(list: List) -> Response {
    let message = "Config items set via environment variables cannot be changed via the API";
    error(400, "bad_request", message, Some(&format!("dns.{}", list.key())))
}

async fn put(state: &Arc<Mutex<Inner>>, list: List, item: &str) -> Response {
    let mut write = match begin(state, list, false) {
        Ok(begun) => begun,
        Err(reply) => return *reply,
    };
    let reply = if write.items.iter().any(|present| present == item) {
        Err(error(400, "bad_request", "Item already present", Some("Uniqueness of items is enforced")))
    } else {
        write.items.push(item.to_owned());
        write.check("Invalid value").map_err(|(message, hint)| error(400, "bad_request", message, Some(&hint)))
    };
    takes_its_time(state, write.time).await;
    write.end(state, reply.is_ok());
    reply.map_or_else(|refused| refused, |()| answer(201, json!({})))
}

async fn delete(state: &Arc<Mutex<Inner>>, list: List, item: &str) -> Response {
    let mut write = match begin(state, list, false) {
        Ok(begun) => begun,
        Err(reply) => return *reply,
    };
    let found = write.items.iter().position(|present| present == item).map(|index| write.items.remove(index)).is_some();
    takes_its_time(state, write.time).await;
    write.end(state, found);
    if found { empty(204) } else { answer(404, json!({})) }
}

async fn patch(state: &Arc<Mutex<Inner>>, list: List, body: &[u8]) -> Response {
    if body.is_empty() || body.len() > lock(state).options.body_limit {
        return error(400, "bad_request", "No request body data", None);
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if !value["config"].is_object() {
        return error(400, "body_error", "No \"config\" object in body data", None);
    }
    if lock(state).options.read_only {
        lock(state).book.counters.writes += 1;
        return error(403, "forbidden", "The config is currently in read-only mode", None);
    }
    let items: Option<Vec<String>> = value["config"]["dns"][list.key()]
        .as_array()
        .and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
    let Some(items) = items else {
        return error(400, "bad_request", "Config item is invalid", Some(&format!("dns.{}", list.key())));
    };
    if value["config"].as_object().is_some_and(|sections| sections.len() != 1)
        || value["config"]["dns"].as_object().is_some_and(|keys| keys.len() != 1)
    {
        lock(state)
            .book
            .violation("PATCH with more than the list it names: unknown keys are ignored in silence".to_owned());
    }
    if items == list.items(&lock(state)) {
        // Nothing is checked and nothing is stored, whoever has locked the list.
        lock(state).book.counters.writes += 1;
        return answer(200, json!({"config": {"dns": {list.key(): items}}}));
    }
    let mut write = match begin(state, list, true) {
        Ok(begun) => begun,
        Err(reply) => return *reply,
    };
    write.items = items;
    let valid = write.check("Config item validation failed");
    takes_its_time(state, write.time).await;
    write.end(state, valid.is_ok());
    if let Err((message, hint)) = valid {
        return error(400, "bad_request", message, Some(&hint));
    }
    let items = list.items(&lock(state));
    answer(200, json!({"config": {"dns": {list.key(): items}}}))
}

/// A write that has begun: a copy of the list as it was then.
struct Write {
    list: List,
    items: Vec<String>,
    time: std::time::Duration,
    save: bool,
    comments: bool,
    cut: usize,
    /// The process that took the request; a later one knows nothing of it.
    process: u64,
}

fn begin(state: &Arc<Mutex<Inner>>, list: List, patch: bool) -> Result<Write, Box<Response>> {
    let mut inner = lock(state);
    if list.locked(&inner) {
        inner.book.counters.writes += 1;
        return Err(Box::new(env_locked(list)));
    }
    assert!(!patch || !inner.options.read_only, "a PATCH of a read-only configuration is refused before");
    let crash = inner.options.crashes && inner.book.in_flight > 0;
    inner.book.write_begins();
    if crash {
        // Two writes at once end the process: neither is answered and neither is stored.
        inner.book.write_ends();
        inner.book.counters.crashes += 1;
        inner.process += 1;
        let _ = inner.restart.send(inner.options.restart);
        drop(inner);
        hang_up();
    }
    let items = list.items(&inner);
    let lines = u32::try_from(items.len()).unwrap_or(u32::MAX);
    let time = inner.options.write_time + inner.options.line_time * lines;
    Ok(Write {
        list,
        items,
        time,
        save: !inner.options.read_only,
        comments: inner.options.comments,
        cut: inner.options.cut_hints,
        process: inner.process,
    })
}

/// Closes the connection without an answer: the task that serves it ends here. No panic message is printed.
fn hang_up() -> ! {
    std::panic::resume_unwind(Box::new("the connection is closed without an answer"))
}

impl Write {
    fn check(&self, invalid: &'static str) -> Result<(), (&'static str, String)> {
        check(self.list, &self.items, self.comments, invalid, self.cut)
    }

    fn end(self, state: &Arc<Mutex<Inner>>, store: bool) {
        let mut inner = lock(state);
        inner.book.write_ends();
        if inner.process != self.process {
            drop(inner);
            hang_up();
        }
        if !store {
            return;
        }
        let changed = self.items != self.list.items(&inner);
        self.list.store(&mut inner, self.items, self.save);
        if changed && self.list == List::Cnames {
            inner.book.counters.restarts += 1;
            let (sender, delay, away) = (inner.restart.clone(), inner.options.restart_delay, inner.options.restart);
            tokio::spawn(async move {
                // The answer arrives before the restart begins.
                tokio::time::sleep(delay).await;
                let _ = sender.send(away);
            });
        }
    }
}
