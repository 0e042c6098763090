//! The network between a process of the operator and the Kubernetes API: every request has a fate, every event of a watch too.
//!
//! ```text
//!  kube::Client of the operator ─► fate ─► (a task of its own: what is on the wire arrives, whoever still waits) ─► sandbox
//!                        ▲                                                                                             │
//!                        └────────── answer, late, or never ◄──────────────────────────────────────────────────────────┘
//! ```

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use signpost_sandbox::{Connection, Session};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tower::Service as _;

use crate::{
    history::Side,
    process::Process,
    weather::{Class, Delivery, Effect},
    world::World,
};

/// Why a connection broke.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A client of the sandbox for one process.
pub fn client(world: &Arc<World>, process: &Process) -> kube::Client {
    kube::Client::new(
        Wire { world: world.clone(), process: process.clone(), server: world.sandbox.connection(&Session::default()) },
        "default",
    )
}

#[derive(Clone)]
struct Wire {
    world: Arc<World>,
    process: Process,
    server: Connection,
}

fn broken() -> BoxError {
    Box::new(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer"))
}

impl tower::Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move { wire.send(request).await })
    }
}

/// The class of a request, and its name without the parts that change from try to try.
struct Asked {
    class: Class,
    name: String,
    path: String,
    /// Whether it changes something that counts: leases do not.
    write: bool,
}

impl Asked {
    fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let read = request.method() == http::Method::GET;
        let class = if path.contains("/leases") {
            Class::Lease
        } else if path.ends_with("/events") || path.contains("/events/") {
            Class::Event
        } else if read && query.contains("watch=") {
            Class::Watch
        } else if read && query.contains("limit=") {
            Class::List
        } else if read {
            Class::Get
        } else if path.ends_with("/status") {
            Class::Status
        } else {
            Class::Metadata
        };
        let write = !read && class != Class::Lease;
        let verb = match class {
            Class::Watch => "WATCH",
            Class::List => "LIST",
            _ => request.method().as_str(),
        };
        Self { class, name: format!("{verb} {path}"), path: path.to_owned(), write }
    }
}

impl Wire {
    async fn send(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let Self { world, process, mut server } = self;
        process.runs().await;
        let (asked, sent) = (Asked::of(&request), Instant::now());
        let fate = world.fate(Side::Api, asked.class, &asked.name);
        let (answer, wait) = oneshot::channel();
        let (there, name) = (world.clone(), asked.name.clone());
        let sender = process.clone();
        tokio::spawn(async move {
            sleep(fate.before).await;
            let answered = match fate.effect {
                Effect::CutBefore => Err(broken()),
                Effect::Refused(code) => Ok(refusal(code)),
                Effect::Answered | Effect::CutAfter => server.call(request).await,
            };
            let code = answered.as_ref().map_or(0, |response| response.status().as_u16());
            there.note(&format!("{} {name} {code} {:?}", sender.name(), fate.effect));
            if asked.write && (200..300).contains(&code) && !matches!(fate.effect, Effect::Refused(_)) {
                there.wrote(&name);
                if asked.class == Class::Metadata {
                    there.metadata_written(asked.path, sent).await;
                }
            }
            sleep(fate.after).await;
            let answered = if fate.effect == Effect::CutAfter { Err(broken()) } else { answered };
            // No caller waits any more: it has given up.
            drop(answer.send(answered));
        });
        let answered = wait.await.unwrap_or_else(|_| Err(broken()));
        process.runs().await;
        match answered {
            Ok(response) if asked.class == Class::Watch && response.status().is_success() => {
                Ok(response.map(|body| delivered(world, process, asked.name, body)))
            }
            other => other,
        }
    }
}

/// A watch whose events meet the weather.
fn delivered(
    world: Arc<World>,
    process: Process,
    name: String,
    body: UnsyncBoxBody<Bytes, BoxError>,
) -> UnsyncBoxBody<Bytes, BoxError> {
    struct Feed {
        world: Arc<World>,
        process: Process,
        name: String,
        body: Option<http_body_util::BodyDataStream<UnsyncBoxBody<Bytes, BoxError>>>,
        again: Option<Bytes>,
    }
    let feed = Feed { world, process, name, body: Some(body.into_data_stream()), again: None };
    let frames = stream::unfold(feed, |mut feed| async move {
        if let Some(event) = feed.again.take() {
            return Some((Ok(Frame::data(event)), feed));
        }
        let next = feed.body.as_mut()?.next().await?;
        feed.process.runs().await;
        let Ok(event) = next else {
            feed.body = None;
            return Some((Err(broken()), feed));
        };
        loop {
            match feed.world.weather.stream(&feed.name) {
                Delivery::Now => break,
                Delivery::At(time) => tokio::time::sleep_until(time).await,
                Delivery::Twice => {
                    feed.again = Some(event.clone());
                    break;
                }
                Delivery::Break => {
                    feed.body = None;
                    return Some((Err(broken()), feed));
                }
                Delivery::Expire => {
                    feed.body = None;
                    return Some((Ok(Frame::data(expired())), feed));
                }
            }
        }
        feed.process.runs().await;
        Some((Ok(Frame::data(event)), feed))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn expired() -> Bytes {
    let status = serde_json::json!({
        "type": "ERROR",
        "object": {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "too old resource version", "reason": "Expired", "code": 410,
        },
    });
    Bytes::from(format!("{status}\n"))
}

/// The answer of an API server that refuses.
fn refusal(code: u16) -> Answer {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "drawn by the simulation",
        "reason": reason, "code": code,
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if code == 429 {
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}
