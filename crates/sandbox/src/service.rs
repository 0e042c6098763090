//! From an HTTP request to an HTTP response: faults, permissions, routing, rendering, the log.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;

use crate::{
    Shared,
    api::{Answer, Ask, review, write::deprecation},
    discovery,
    faults::{Fate, Session, WatchFate},
    kinds::{Kind, builtin},
    openapi, render,
    request::{RequestInfo, Shape, shape_wanted},
    status::{About, ApiError},
    watch::{self, BoxError},
    world::SandboxState,
};

/// A response body: whole, or a watch.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The user every request is made by.
pub(crate) const USER: &str = "sandbox-admin";

fn broken() -> BoxError {
    Box::new(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer"))
}

/// Serves one request of one client.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    session: Session,
    request: Request<Bytes>,
) -> Result<Response<Body>, BoxError> {
    let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let info = RequestInfo::parse(request.method().as_str(), target);
    let fate = Fate::from(session.next(&shared.faults, &info));
    if fate.crash {
        session.crash();
        return Err(broken());
    }
    session.wait(fate.delay).await.ok_or_else(broken)?;
    if fate.drop {
        shared.log.push(info, 0);
        return Err(broken());
    }
    if let Some(error) = &fate.refuse {
        shared.log.push(info, error.code);
        return Ok(refusal(error, false));
    }
    let (late_answer, waiting) = (fate.late_answer, session.clone());
    let answer = match fate.late_effect {
        None => carry_out(&shared, &session, info, &request, fate),
        // A task of its own, so that the effect comes even if the client gives up.
        Some(time) => {
            let task = tokio::spawn(async move {
                tokio::time::sleep(time).await;
                carry_out(&shared, &session, info, &request, fate)
            });
            task.await?
        }
    };
    waiting.wait(late_answer).await.ok_or_else(broken)?;
    answer.ok_or_else(broken)
}

/// Serves the request and logs it; `None` when its answer is lost.
fn carry_out(
    shared: &Arc<Shared>,
    session: &Session,
    info: RequestInfo,
    request: &Request<Bytes>,
    fate: Fate,
) -> Option<Response<Body>> {
    let yaml = wants_yaml(text(request.headers(), header::ACCEPT));
    let lost = fate.lose_answer;
    let refuse = fate.refuse_after;
    let response = respond(shared, session, &info, request, (fate.behind, fate.watch));
    let mut response = response.unwrap_or_else(|error| refusal(&error, yaml));
    // 0 in the log: the client cannot know whether the request had an effect.
    let status = if lost || refuse.is_some() { 0 } else { response.status().as_u16() };
    if let Some(error) = &refuse {
        response = refusal(error, yaml);
    }
    shared.log.push(info, status);
    (!lost && !session.is_crashed()).then_some(response)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn respond(
    shared: &Arc<Shared>,
    session: &Session,
    info: &RequestInfo,
    request: &Request<Bytes>,
    (behind, watch_fate): (u64, WatchFate),
) -> Result<Response<Body>, ApiError> {
    let accept = text(request.headers(), header::ACCEPT);
    if info.resource.is_empty() {
        return other_path(shared, info, accept);
    }
    let deny = shared.deny();
    review::check(&deny, info, USER)?;
    let mut world = shared.world();
    let Some(kind) = world.catalog.get(&info.group, &info.version, &info.resource).cloned() else {
        return Err(no_route(info));
    };
    check_route(&kind, info)?;
    let ask = Ask {
        info,
        kind: kind.clone(),
        body: request.body(),
        content_type: text(request.headers(), header::CONTENT_TYPE),
        agent: text(request.headers(), header::USER_AGENT),
    };
    if kind.is_review() {
        if info.verb != "create" {
            return Err(ApiError::method_not_allowed());
        }
        return Ok(answer(
            &kind,
            Shape::Full,
            info,
            &SandboxState::review(&ask, &deny)?,
            world.now(),
            wants_yaml(accept),
        ));
    }
    let shape = shape_wanted(accept, kind.is_custom())?;
    check_shape(shape, &kind, info)?;
    let mut made = match info.verb.as_str() {
        "get" => world.get(&ask, behind)?,
        "list" => world.list(&ask, behind)?,
        "watch" => {
            let feed = watch::open(shared, &mut world, &ask, shape, watch_fate, session.token())?;
            return Ok(response(200, StreamBody::new(feed.into_stream()).boxed_unsync(), "application/json"));
        }
        "create" => world.create(&ask)?,
        "update" => world.update(&ask)?,
        "patch" => world.patch(&ask)?,
        "delete" => world.delete(&ask)?,
        "deletecollection" => world.delete_collection(&ask)?,
        _ => return Err(ApiError::method_not_allowed()),
    };
    made.warnings.extend(deprecation(&kind));
    let now = world.now();
    drop(world);
    Ok(answer(&kind, shape, info, &made, now, wants_yaml(accept)))
}

/// Whether the path can exist for the kind, and the verb for the path.
fn check_route(kind: &Kind, info: &RequestInfo) -> Result<(), ApiError> {
    let refused = ApiError::method_not_allowed;
    if !kind.namespaced && !info.namespace.is_empty() {
        return Err(no_route(info));
    }
    match info.subresource.as_str() {
        "" => {}
        "status" if kind.status && matches!(info.verb.as_str(), "get" | "update" | "patch") => {}
        "status" if kind.status => return Err(refused()),
        "finalize" if kind.kind == "Namespace" && info.verb == "update" => {}
        _ if kind.is_custom() => {
            return Err(ApiError::not_found(About { group: &kind.group, resource: &kind.plural, name: &info.name }));
        }
        _ => return Err(no_route(info)),
    }
    if kind.namespaced && info.namespace.is_empty() {
        if !info.name.is_empty() {
            return Err(no_route(info));
        }
        if matches!(info.verb.as_str(), "create" | "deletecollection") {
            return Err(refused());
        }
    }
    match (info.verb.as_str(), info.name.is_empty()) {
        ("update" | "patch", true) if kind.is_custom() => Err(ApiError::bad_request("name must be provided")),
        ("create", false) | ("update" | "patch", true) => Err(refused()),
        ("deletecollection", _) if kind.group.is_empty() && kind.kind == "Namespace" => Err(refused()),
        _ => Ok(()),
    }
}

/// A list has a list of metadata, an object has its own.
fn check_shape(shape: Shape, kind: &Kind, info: &RequestInfo) -> Result<(), ApiError> {
    let go_type = |list: bool| {
        let suffix = if list { "List" } else { "" };
        if kind.is_custom() {
            return format!("*unstructured.Unstructured{suffix}");
        }
        let family = kind.group.split('.').next().filter(|family| !family.is_empty()).unwrap_or("core");
        format!("*{family}.{}{suffix}", kind.kind)
    };
    let refused = |message: String| Err(ApiError::new(406, "NotAcceptable", message));
    match (shape, info.verb.as_str()) {
        (Shape::Metadata, "list" | "deletecollection") => refused(format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({})",
            go_type(true)
        )),
        (Shape::MetadataList, "get" | "create" | "update" | "patch") => refused(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
            go_type(false)
        )),
        _ => Ok(()),
    }
}

/// The answer to a path below a group version that has no such resource.
fn no_route(info: &RequestInfo) -> ApiError {
    if builtin::has_group_version(&info.group, &info.version) {
        ApiError::no_such_resource()
    } else {
        ApiError::no_such_path()
    }
}

fn other_path(shared: &Arc<Shared>, info: &RequestInfo, accept: &str) -> Result<Response<Body>, ApiError> {
    if info.path.starts_with("/openapi") {
        let document = openapi::serve(&shared.world(), &info.path, accept)?;
        return Ok(whole(200, document.body, document.content_type));
    }
    match info.path.trim_end_matches('/') {
        "/healthz" | "/readyz" | "/livez" => {
            return Ok(whole(200, Bytes::from_static(b"ok"), "text/plain; charset=utf-8"));
        }
        _ => {}
    }
    let document = discovery::serve(&shared.world(), info, accept)?;
    Ok(whole(200, render::to_bytes(&document.body), document.content_type))
}

fn answer(
    kind: &Kind,
    shape: Shape,
    info: &RequestInfo,
    answer: &Answer,
    now: jiff::Timestamp,
    yaml: bool,
) -> Response<Body> {
    let include = info.get("includeObject").unwrap_or_default();
    let mut made = document(answer.code, render::body(kind, shape, include, &answer.payload, now), yaml);
    for warning in &answer.warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = http::HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            made.headers_mut().append(header::WARNING, value);
        }
    }
    made
}

fn refusal(error: &ApiError, yaml: bool) -> Response<Body> {
    let mut made = match &error.status {
        Value::String(plain) => whole(error.code, Bytes::from(plain.clone()), "text/plain; charset=utf-8"),
        status => document(error.code, render::to_bytes(status), yaml),
    };
    if let Some(seconds) = error.retry_after {
        made.headers_mut().insert(header::RETRY_AFTER, http::HeaderValue::from(seconds));
    }
    made
}

/// Whether YAML is the first form that a client takes.
fn wants_yaml(accept: &str) -> bool {
    let mut forms = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    forms.find(|form| matches!(*form, "application/json" | "application/yaml" | "*/*")) == Some("application/yaml")
}

/// An object, as JSON or as YAML.
fn document(code: u16, json: Bytes, yaml: bool) -> Response<Body> {
    let converted = yaml
        .then(|| serde_json::from_slice::<Value>(&json).ok().and_then(|value| serde_saphyr::to_string(&value).ok()))
        .flatten();
    match converted {
        Some(text) => whole(code, Bytes::from(text), "application/yaml"),
        None => whole(code, json, "application/json"),
    }
}

fn whole(code: u16, body: Bytes, content_type: &str) -> Response<Body> {
    response(code, Full::new(body).map_err(|never| match never {}).boxed_unsync(), content_type)
}

fn response(code: u16, body: Body, content_type: &str) -> Response<Body> {
    let mut made = Response::new(body);
    *made.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = http::HeaderValue::from_str(content_type) {
        made.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    made
}
