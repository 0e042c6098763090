//! Strict stand-ins for a Pi-hole: one for v6, one for the token dialect. Both answer over HTTP and over DNS.
//!
//! ```text
//!   client ──HTTP──► PiholeV6 / PiholeSpec ── lines ──► UDP name server ◄── dig
//!                        │
//!                        └─► Counters (logins, writes, most writes at once) · requests · violations
//! ```
//! They answer as a real server was seen to answer, status by status. A call that the contract does not name is answered
//! with an error *and* kept as a violation; an unacknowledged violation fails the test when the server is dropped.

mod dns;
mod spec;
mod tls;
mod v6;
mod v6_config;
mod v6_rules;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::Value;
use tokio::sync::{Notify, watch};

pub use spec::PiholeSpec;
pub use tls::TlsFront;
pub use v6::{PiholeV6, V6Options};

/// The requests to a stand-in so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests of any kind.
    pub requests: u64,
    /// Logins that took a seat.
    pub logins: u64,
    /// Login attempts, successful or not.
    pub login_attempts: u64,
    /// Sessions given back.
    pub logouts: u64,
    /// Requests that change records.
    pub writes: u64,
    /// The most writes that were in flight at one time.
    pub most_writes_at_once: u64,
    /// Restarts of the resolver.
    pub restarts: u64,
    /// Ends of the process by two writes at once.
    pub crashes: u64,
}

/// An answer to give instead of the right one, for a number of requests.
#[derive(Clone, Debug)]
pub struct Upset {
    /// `GET`, `PUT`, …; empty for all.
    pub method: &'static str,
    /// The start of the path; empty for all.
    pub path: &'static str,
    /// The status to answer.
    pub status: u16,
    /// The body to answer.
    pub body: Value,
    /// How many requests are answered this way.
    pub times: u32,
    /// Whether the request takes effect all the same (the answer gets lost).
    pub effective: bool,
}

impl Upset {
    /// Answers the next `times` requests of one method under one path with a status.
    pub fn status(method: &'static str, path: &'static str, status: u16, times: u32) -> Self {
        Self { method, path, status, body: Value::Object(serde_json::Map::new()), times, effective: false }
    }
}

/// The state of both stand-ins.
#[derive(Debug)]
struct Book {
    counters: Counters,
    in_flight: u64,
    requests: Vec<String>,
    violations: Vec<String>,
    upsets: Vec<Upset>,
    /// Whether writes that have begun wait before they end.
    paused: watch::Sender<bool>,
    /// The request that is never answered.
    strike: Option<Strike>,
}

/// A request that is never answered, as when its sender dies.
#[derive(Clone, Debug)]
struct Strike {
    left: u64,
    effective: bool,
    reached: Arc<Notify>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            in_flight: 0,
            requests: Vec::new(),
            violations: Vec::new(),
            upsets: Vec::new(),
            paused: watch::Sender::new(false),
            strike: None,
        }
    }
}

/// Where a stand-in keeps its book.
trait Keeps: Send + 'static {
    fn book(&mut self) -> &mut Book;
}

impl Book {
    fn note(&mut self, method: &str, target: &str) {
        self.counters.requests += 1;
        self.requests.push(format!("{method} {target}"));
    }

    fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// The strike, if this is its request.
    fn struck(&mut self) -> Option<Strike> {
        let strike = self.strike.as_mut()?;
        match strike.left.checked_sub(1) {
            Some(left) => {
                strike.left = left;
                None
            }
            None => self.strike.take(),
        }
    }

    /// The upset for this request, if one is due.
    fn upset(&mut self, method: &str, path: &str) -> Option<Upset> {
        let due = |upset: &&mut Upset| {
            upset.times > 0 && (upset.method.is_empty() || upset.method == method) && path.starts_with(upset.path)
        };
        let upset = self.upsets.iter_mut().find(due)?;
        upset.times -= 1;
        Some(upset.clone())
    }

    fn write_begins(&mut self) {
        self.counters.writes += 1;
        self.in_flight += 1;
        self.counters.most_writes_at_once = self.counters.most_writes_at_once.max(self.in_flight);
    }

    fn write_ends(&mut self) {
        self.in_flight -= 1;
    }

    /// Fails the test over unacknowledged violations.
    fn close(&mut self, who: &str) {
        let violations = std::mem::take(&mut self.violations);
        let fine = violations.is_empty() || std::thread::panicking();
        assert!(fine, "{who} was used against its contract:\n  {}", violations.join("\n  "));
    }
}

/// The parts of either stand-in that a test may read and change.
macro_rules! open_book {
    ($server:ty) => {
        impl $server {
            /// Misbehaves for some requests.
            pub fn upset(&self, upset: $crate::pihole::Upset) {
                $crate::pihole::lock(&self.state).book.upsets.push(upset);
            }

            /// Lets writes begin and none end until [`Self::release_writes`]: they are in flight for as long as a test likes.
            pub fn hold_writes(&self) {
                $crate::pihole::lock(&self.state).book.paused.send_replace(true);
            }

            /// Lets writes end again.
            pub fn release_writes(&self) {
                $crate::pihole::lock(&self.state).book.paused.send_replace(false);
            }

            /// Never answers the request that is so many from now (0: the next one), whether it takes effect or not: its sender may die
            /// there. Notified when it is reached.
            pub fn strike(&self, after: u64, effective: bool) -> std::sync::Arc<tokio::sync::Notify> {
                let reached = std::sync::Arc::<tokio::sync::Notify>::default();
                let strike =
                    $crate::pihole::Strike { left: after, effective, reached: std::sync::Arc::clone(&reached) };
                $crate::pihole::lock(&self.state).book.strike = Some(strike);
                reached
            }

            /// Takes a strike back that was not reached.
            pub fn spare(&self) {
                $crate::pihole::lock(&self.state).book.strike = None;
            }

            /// The requests so far.
            pub fn counters(&self) -> $crate::pihole::Counters {
                $crate::pihole::lock(&self.state).book.counters
            }

            /// Every request, in order, as `METHOD path`.
            pub fn requests(&self) -> Vec<String> {
                $crate::pihole::lock(&self.state).book.requests.clone()
            }

            /// Takes note of what was asked against the contract.
            pub fn take_violations(&self) -> Vec<String> {
                std::mem::take(&mut $crate::pihole::lock(&self.state).book.violations)
            }
        }
    };
}
use open_book;

/// Notes a request and answers it, or misbehaves if that is due.
async fn noted<T: Keeps>(
    state: &Arc<Mutex<T>>,
    method: &Method,
    target: &str,
    path: &str,
    reply: impl Future<Output = Response>,
) -> Response {
    let (strike, upset) = {
        let mut inner = lock(state);
        let book = inner.book();
        book.note(method.as_str(), target);
        (book.struck(), book.upset(method.as_str(), path))
    };
    if let Some(strike) = strike {
        if strike.effective {
            reply.await;
        }
        strike.reached.notify_one();
        return std::future::pending().await;
    }
    match upset {
        None => reply.await,
        Some(upset) => {
            if upset.effective {
                reply.await;
            }
            plain(upset.status, &upset.body)
        }
    }
}

/// The time a write takes, and longer while writes are paused.
async fn takes_its_time<T: Keeps>(state: &Arc<Mutex<T>>, time: Duration) {
    tokio::time::sleep(time).await;
    let mut paused = lock(state).book().paused.subscribe();
    // The sender is part of the book, which exists as long as the server.
    let _ = paused.wait_for(|paused| !paused).await;
}

fn lock<T>(mutex: &Arc<Mutex<T>>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A JSON answer; every one of a Pi-hole's carries `took`.
fn answer(status: u16, mut body: Value) -> Response {
    if let Some(object) = body.as_object_mut() {
        object.insert("took".to_owned(), Value::from(0.000_1));
    }
    plain(status, &body)
}

fn plain(status: u16, body: &Value) -> Response {
    Response::builder()
        .status(StatusCode::from_u16(status).expect("a status"))
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .body(Body::from(body.to_string()))
        .expect("a response")
}

fn empty(status: u16) -> Response {
    Response::builder().status(StatusCode::from_u16(status).expect("a status")).body(Body::empty()).expect("a response")
}
