//! The configuration API of a Pi-hole v6: reading, one element at a time, whole lists, and who may do what.
//!
//! A write reads the list, takes its time, and writes the list back: two at once lose one another's lines, although
//! both are answered with success.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use axum::response::Response;
use http::Method;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::v6::{Caller, Inner, error};
use super::{answer, empty, lock, takes_its_time};

/// Request bodies above this are dropped.
const BODY_LIMIT: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
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

    fn key(self) -> &'static str {
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

    fn store(self, inner: &mut Inner, items: Vec<String>, save: bool) {
        let (live, saved) = match self {
            Self::Hosts => (&mut inner.hosts, &mut inner.saved.0),
            Self::Cnames => (&mut inner.cnames, &mut inner.saved.1),
        };
        if save {
            saved.clone_from(&items);
        }
        *live = items;
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
    match (method, parts.as_slice()) {
        ("PATCH", ["dns", name]) => match List::of(name) {
            Some(list) => patch(state, list, caller, body).await,
            None => unknown(state, method, &decoded),
        },
        ("PATCH", [""]) => {
            lock(state).book.violation("PATCH of the whole configuration answers with password hashes".to_owned());
            answer(200, json!({"config": {}}))
        }
        ("PUT" | "DELETE", ["dns", name, item]) => match List::of(name) {
            Some(list) if method == "PUT" => put(state, list, caller, item).await,
            Some(list) => delete(state, list, caller, item).await,
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
                let env_var = inner.options.env_locked && list == List::Hosts;
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

/// Who may not write, and what may not be written.
fn refusal(inner: &Inner, caller: Caller, list: List, patch: bool) -> Option<Response> {
    const MESSAGE: &str = "Unable to change configuration (read-only)";
    if caller == Caller::App && !inner.options.app_sudo {
        let hint = "The current app session is not allowed to modify Pi-hole config settings (webserver.api.app_sudo is false)";
        return Some(error(403, "forbidden", MESSAGE, Some(hint)));
    }
    if inner.options.read_only && patch {
        return Some(error(403, "forbidden", MESSAGE, None));
    }
    if inner.options.env_locked && list == List::Hosts {
        let message = "Config items set via environment variables cannot be changed via the API";
        return Some(error(400, "bad_request", message, Some("dns.hosts")));
    }
    None
}

async fn put(state: &Arc<Mutex<Inner>>, list: List, caller: Caller, item: &str) -> Response {
    let (mut items, pause, save) = match begin(state, list, caller, false) {
        Ok(begun) => begun,
        Err(reply) => return *reply,
    };
    let reply = if items.iter().any(|present| present == item) {
        Err(error(400, "bad_request", "Item already present", Some("Uniqueness of items is enforced")))
    } else {
        items.push(item.to_owned());
        let comments = lock(state).options.comments;
        check(list, &items, comments, "Invalid value")
            .map_err(|(message, hint)| error(400, "bad_request", message, Some(&hint)))
    };
    takes_its_time(state, pause).await;
    end(state, list, reply.is_ok().then_some(items), save);
    reply.map_or_else(|refused| refused, |()| answer(201, json!({})))
}

async fn delete(state: &Arc<Mutex<Inner>>, list: List, caller: Caller, item: &str) -> Response {
    let (mut items, pause, save) = match begin(state, list, caller, false) {
        Ok(begun) => begun,
        Err(reply) => return *reply,
    };
    let found = items.iter().position(|present| present == item).map(|index| items.remove(index)).is_some();
    takes_its_time(state, pause).await;
    end(state, list, found.then_some(items), save);
    if found { empty(204) } else { answer(404, json!({})) }
}

async fn patch(state: &Arc<Mutex<Inner>>, list: List, caller: Caller, body: &[u8]) -> Response {
    if body.is_empty() || body.len() > BODY_LIMIT {
        return error(400, "bad_request", "No request body data", None);
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if !value["config"].is_object() {
        return error(400, "body_error", "No \"config\" object in body data", None);
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
    let (_, pause, save) = match begin(state, list, caller, true) {
        Ok(begun) => begun,
        Err(reply) => return *reply,
    };
    let comments = lock(state).options.comments;
    let valid = check(list, &items, comments, "Config item validation failed");
    takes_its_time(state, pause).await;
    if let Err((message, hint)) = valid {
        end(state, list, None, save);
        return error(400, "bad_request", message, Some(&hint));
    }
    end(state, list, Some(items.clone()), save);
    answer(200, json!({"config": {"dns": {list.key(): items}}}))
}

type Begun = (Vec<String>, std::time::Duration, bool);

fn begin(state: &Arc<Mutex<Inner>>, list: List, caller: Caller, patch: bool) -> Result<Begun, Box<Response>> {
    let mut inner = lock(state);
    if let Some(reply) = refusal(&inner, caller, list, patch) {
        inner.book.counters.writes += 1;
        return Err(Box::new(reply));
    }
    inner.book.write_begins();
    let items = list.items(&inner);
    let lines = u32::try_from(items.len()).unwrap_or(u32::MAX);
    let time = inner.options.write_time + inner.options.line_time * lines;
    Ok((items, time, !inner.options.read_only))
}

fn end(state: &Arc<Mutex<Inner>>, list: List, items: Option<Vec<String>>, save: bool) {
    let mut inner = lock(state);
    inner.book.write_ends();
    let Some(items) = items else { return };
    let changed = items != list.items(&inner);
    list.store(&mut inner, items, save);
    if changed && list == List::Cnames {
        inner.book.counters.restarts += 1;
        let (sender, delay, away) = (inner.restart.clone(), inner.options.restart_delay, inner.options.restart);
        tokio::spawn(async move {
            // The answer arrives before the restart begins.
            tokio::time::sleep(delay).await;
            let _ = sender.send(away);
        });
    }
}

/// Checks a whole list: message and hint of what is wrong, the message of an element that is invalid being the caller's.
fn check(list: List, items: &[String], comments: bool, invalid: &'static str) -> Result<(), (&'static str, String)> {
    validate(list, items, comments).map_err(|hint| (invalid, hint))?;
    resolver_test(list, items).map_err(|why| ("Invalid configuration", why))
}

/// Checks a whole list; the hint names the first bad element by its index.
fn validate(list: List, items: &[String], comments: bool) -> Result<(), String> {
    for (index, item) in items.iter().enumerate() {
        let value = match item.split_once('#') {
            Some((value, _)) if comments => value,
            _ => item.as_str(),
        };
        let checked = match list {
            List::Hosts => host_line(value),
            List::Cnames => cname_line(value),
        };
        checked.map_err(|why| format!("dns.{}[{index}]: {why}", list.key()))?;
    }
    Ok(())
}

fn host_line(value: &str) -> Result<(), String> {
    let mut words = value.split_ascii_whitespace();
    let address = words.next().unwrap_or_default();
    if address.parse::<IpAddr>().is_err() {
        return Err(format!("neither a valid IPv4 nor IPv6 address (\"{address}\")"));
    }
    let names: Vec<&str> = words.collect();
    if names.is_empty() {
        return Err("no hostname".to_owned());
    }
    names.iter().try_for_each(|name| name_ok(name))
}

fn cname_line(value: &str) -> Result<(), String> {
    let words: Vec<&str> = value.split(',').map(str::trim).collect();
    let [alias, target, ..] = words.as_slice() else {
        return Err(format!("not a valid CNAME definition (\"{value}\")"));
    };
    name_ok(alias.trim_start_matches("*."))?;
    name_ok(target)
}

/// The test that the resolver makes of its whole configuration: it knows of no lists and names no line of one.
fn resolver_test(list: List, items: &[String]) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    let mut aliases = items.iter().filter_map(|line| Some(line.split_once(',')?.0.trim().to_ascii_lowercase()));
    let fine = list == List::Hosts || aliases.all(|alias| seen.insert(alias));
    if fine { Ok(()) } else { Err("duplicate CNAME".to_owned()) }
}

fn name_ok(name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.is_empty() && name.bytes().all(good) { Ok(()) } else { Err(format!("invalid hostname (\"{name}\")")) }
}
