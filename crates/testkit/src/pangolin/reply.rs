//! Answers: the envelope, the HTML page of an unknown route, and their HTTP form.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// JSON.
    Json(u16, Value),
    /// The page of the web framework for a route that does not exist.
    NoRoute(String),
}

impl Reply {
    pub(super) fn ok(data: Value, message: &str) -> Self {
        Self::success(200, data, message)
    }

    pub(super) fn created(data: Value, message: &str) -> Self {
        Self::success(201, data, message)
    }

    fn success(status: u16, data: Value, message: &str) -> Self {
        let mut body = json!({ "success": true, "error": false, "message": message, "status": status });
        body["data"] = data;
        Self::Json(status, body)
    }

    pub(super) fn error(status: u16, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let body = json!({
            "data": null, "success": false, "error": true, "message": message, "status": status, "stack": null,
        });
        Self::Json(status, body)
    }

    /// Status, content type and body.
    pub(super) fn into_parts(self) -> (u16, &'static str, String) {
        match self {
            Self::Json(status, body) => (status, "application/json; charset=utf-8", body.to_string()),
            Self::NoRoute(what) => {
                let page = format!(
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<body>\n<pre>Cannot {what}</pre>\n</body>\n</html>\n"
                );
                (404, "text/html; charset=utf-8", page)
            }
        }
    }

    /// The HTTP form. A repeated GET of the same content is answered without it.
    pub(super) fn into_response(self, known: Option<&HeaderValue>) -> Response {
        let (status, kind, body) = self.into_parts();
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let tag = format!("W/\"{:x}\"", hasher.finish());
        let repeated = status == 200 && known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let (status, body) = if repeated { (304, String::new()) } else { (status, body) };
        Response::builder()
            .status(StatusCode::from_u16(status).expect("a status"))
            .header(header::CONTENT_TYPE, kind)
            .header(header::ETAG, tag)
            .body(Body::from(body))
            .expect("a response")
    }
}
