//! The HTTP API of a simulated Pi-hole v6, as FTL 6.4 answers: sessions, whole lists, single lines, refusals.
//!
//! In: requests of the operator's own client, each with its fate. Out: answers, and an eye on every write. What a line may be is checked as
//! far as users of the simulation get it wrong.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use signpost_provider_pihole::{Answering, HttpError, Line, Transport};
use tokio::time::Instant;

use super::{
    OWNER,
    twin::{Held, Lists, Twin, YOUNG},
};
use crate::{
    provider::{Call, Wire},
    weather::{Class, Effect},
};

impl Transport for Wire<Twin> {
    fn send(&self, request: Request<Bytes>) -> Answering<'_> {
        let asked = Asked::of(request);
        let call = Call {
            class: if asked.is_write() { Class::Records } else { Class::Look },
            name: format!("{} {} {}", self.twin.name(), asked.method, asked.path),
            deadline: None,
            cut,
            late: cut,
            shown: |answered| {
                answered.as_ref().map_or(0, |response: &Response<Bytes>| response.status().as_u16()).to_string()
            },
        };
        Box::pin(self.call(call, move |twin, effect, _| match effect {
            Effect::Refused(code) => Ok(of_proxy(code)),
            Effect::Answered | Effect::CutBefore | Effect::CutAfter => Ok(twin.serve(&asked)),
        }))
    }
}

fn cut() -> HttpError {
    HttpError::Unreachable { why: "connection reset by peer".to_owned(), restarting: true }
}

/// An answer of something between the operator and the Pi-hole. A route that a proxy has lost is a 404 that FTL never gave.
fn of_proxy(code: u16) -> Response<Bytes> {
    let code = match code {
        409 => 404,
        422 => 502,
        code => code,
    };
    respond(code, Bytes::from_static(b"<html>the proxy has no such page</html>"))
}

fn respond(code: u16, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn answer(code: u16, mut body: Value) -> Response<Bytes> {
    body["took"] = json!(0.000_1);
    respond(code, Bytes::from(body.to_string()))
}

fn error(code: u16, key: &str, message: &str, hint: Option<&str>) -> Response<Bytes> {
    answer(code, json!({ "error": { "key": key, "message": message, "hint": hint } }))
}

/// A request as FTL reads it.
struct Asked {
    method: Method,
    /// Decoded.
    path: String,
    detailed: bool,
    session: Option<String>,
    body: Bytes,
}

impl Asked {
    fn of(request: Request<Bytes>) -> Self {
        let (parts, body) = request.into_parts();
        Self {
            path: decoded(parts.uri.path()),
            detailed: parts.uri.query() == Some("detailed=true"),
            session: parts.headers.get("x-ftl-sid").and_then(|value| value.to_str().ok()).map(str::to_owned),
            method: parts.method,
            body,
        }
    }

    fn is_write(&self) -> bool {
        self.method != Method::GET && self.path != "/api/auth"
    }
}

/// A path without its escapes.
fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = path.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                plain.push(byte);
                at += 3;
            }
            (byte, _) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// One of the two lists.
#[derive(Clone, Copy, PartialEq, Eq)]
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

    fn held(self, lists: &Lists) -> &Vec<Held> {
        match self {
            Self::Hosts => &lists.hosts,
            Self::Cnames => &lists.cnames,
        }
    }

    fn held_mut(self, lists: &mut Lists) -> &mut Vec<Held> {
        match self {
            Self::Hosts => &mut lists.hosts,
            Self::Cnames => &mut lists.cnames,
        }
    }

    /// What is wrong with the first line that FTL does not take.
    fn check(self, lines: &[Line]) -> Result<(), String> {
        let bad = |line: &&Line| {
            let value = line.as_str().split('#').next().unwrap_or_default();
            self == Self::Hosts && value.split_whitespace().skip(1).any(|name| !valid_host(name))
        };
        match lines.iter().enumerate().find(|(_, line)| bad(line)) {
            Some((index, line)) => Err(format!("dns.{}[{index}]: invalid hostname (\"{line}\")", self.key())),
            None => Ok(()),
        }
    }
}

/// Whether a line has the mark of the operator.
fn is_marked(line: &Line) -> bool {
    line.as_str().ends_with(&format!("# signpost={OWNER}"))
}

/// FTL checks the ends of the last label.
fn valid_host(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    !last.starts_with('-') && !last.ends_with('-')
}

impl Twin {
    fn serve(&self, asked: &Asked) -> Response<Bytes> {
        match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/api/info/login") => return answer(200, json!({ "dns": true })),
            ("POST", "/api/auth") => {
                let session = json!({ "valid": true, "sid": self.log_in(), "message": "password correct" });
                return answer(200, json!({ "session": session }));
            }
            ("DELETE", "/api/auth") => return respond(204, Bytes::new()),
            _ => {}
        }
        if !asked.session.as_ref().is_some_and(|sid| self.knows(sid)) {
            return error(401, "unauthorized", "Unauthorized", None);
        }
        let parts: Vec<&str> = asked.path.trim_start_matches("/api/config/").splitn(3, '/').collect();
        match (asked.method.as_str(), parts.as_slice()) {
            ("GET", ["misc", "readOnly"]) => {
                answer(200, json!({ "config": { "misc": { "readOnly": self.is_read_only() } } }))
            }
            ("GET", ["dns", name]) => self.show(name, asked.detailed),
            ("PATCH", ["dns", name]) => self.patch(name, &asked.body),
            ("PUT", ["dns", name, line]) => self.put(name, line),
            ("DELETE", ["dns", name, line]) => self.remove_line(name, line),
            _ => answer(404, json!({})),
        }
    }

    fn show(&self, name: &str, detailed: bool) -> Response<Bytes> {
        let Some(list) = List::of(name) else { return answer(200, json!({ "config": {} })) };
        let lines: Vec<Value> = list.held(&self.lists()).iter().map(|held| json!(held.line.as_str())).collect();
        let locked = list == List::Cnames && self.is_locked();
        let shown = if detailed { json!({ "value": lines, "flags": { "env_var": locked } }) } else { json!(lines) };
        answer(200, json!({ "config": { "dns": { list.key(): shown } } }))
    }

    fn patch(&self, name: &str, body: &[u8]) -> Response<Bytes> {
        if self.is_read_only() {
            return error(403, "forbidden", "The config is currently in read-only mode", None);
        }
        let Some(list) = List::of(name) else { return answer(404, json!({})) };
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let lines = value["config"]["dns"][list.key()].as_array().cloned().unwrap_or_default();
        let lines: Vec<Line> = lines.iter().filter_map(Value::as_str).map(Line::stored).collect();
        if let Some(refused) = self.refuse(list, &lines, "Config item validation failed") {
            return refused;
        }
        let mut lists = self.lists();
        let there = list.held(&lists).clone();
        let now = Instant::now();
        for held in there.iter().filter(|held| !held.ours && held.since + YOUNG < now) {
            if !lines.iter().any(|line| line.tidy() == held.line.tidy()) {
                self.world().violation(format!("{}: the foreign line {:?} was deleted", self.name(), held.line));
            }
        }
        let known = |line: &Line| there.iter().find(|held| held.line == *line).cloned();
        // A line that a person deleted meanwhile comes back with a list that was read before.
        let new = |line: Line| Held { ours: is_marked(&line), line, since: now };
        *list.held_mut(&mut lists) = lines.into_iter().map(|line| known(&line).unwrap_or_else(|| new(line))).collect();
        self.stored(&mut lists, &format!("PATCH {name}"));
        answer(200, json!({ "config": {} }))
    }

    /// Why the lists cannot become so.
    fn refuse(&self, list: List, lines: &[Line], invalid: &str) -> Option<Response<Bytes>> {
        if list == List::Cnames && self.is_locked() {
            let message = "Config items set via environment variables cannot be changed via the API";
            return Some(error(400, "bad_request", message, Some("dns.cnameRecords")));
        }
        list.check(lines).err().map(|hint| error(400, "bad_request", invalid, Some(&hint)))
    }

    fn put(&self, name: &str, text: &str) -> Response<Bytes> {
        let Some(list) = List::of(name) else { return answer(404, json!({})) };
        let line = Line::stored(text);
        let mut lists = self.lists();
        if list.held(&lists).iter().any(|held| held.line == line) {
            return error(400, "bad_request", "Item already present", Some("Uniqueness of items is enforced"));
        }
        let lines: Vec<Line> = list.held(&lists).iter().map(|held| held.line.clone()).chain([line.clone()]).collect();
        if let Some(refused) = self.refuse(list, &lines, "Invalid value") {
            return refused;
        }
        if self.is_read_only() && !self.is_newly_read_only() {
            let name = self.name();
            self.world().violation(format!("{name}: {line:?} was written, and is lost at the next restart"));
        }
        list.held_mut(&mut lists).push(Held { line, ours: true, since: Instant::now() });
        self.stored(&mut lists, &format!("PUT {text}"));
        answer(201, json!({}))
    }

    fn remove_line(&self, name: &str, text: &str) -> Response<Bytes> {
        let Some(list) = List::of(name) else { return answer(404, json!({})) };
        let mut lists = self.lists();
        let held = list.held_mut(&mut lists);
        let Some(place) = held.iter().position(|held| held.line.as_str() == text) else {
            return answer(404, json!({}));
        };
        if !held.remove(place).ours {
            self.world().violation(format!("{}: the foreign line {text:?} was deleted", self.name()));
        }
        self.stored(&mut lists, &format!("DELETE {text}"));
        respond(204, Bytes::new())
    }

    /// Every write stores the whole configuration, and tidies the blanks of every host line with it.
    fn stored(&self, lists: &mut Lists, what: &str) {
        for held in &mut lists.hosts {
            held.line = held.line.tidy();
        }
        self.world().wrote(&format!("{} {what}", self.name()));
    }
}
