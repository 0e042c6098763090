//! Copies a `Retry-After` header into the Status that an error becomes.
//!
//! An overloaded API server answers 429 with that header and one line of text; a proxy in front of it may answer 503 the same way. The
//! client turns the body into a Status and drops the headers. Seconds only: no API server sends a date.

use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use kube::client::DynBody;
use serde_json::{Value, json};

use crate::write::WriteError;

type HttpAnswer = Response<Box<DynBody>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The rest of a longer body is dropped.
const BODY_LIMIT: usize = 64 * 1024;

/// Passes an answer on. A time to wait is added to its Status.
pub(super) async fn into_status(answer: HttpAnswer) -> Result<HttpAnswer, BoxError> {
    let Some(seconds) = asked_for(&answer) else { return Ok(answer) };
    let (mut parts, mut body) = answer.into_parts();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data()
            && text.len() < BODY_LIMIT
        {
            text.extend_from_slice(&data);
        }
    }
    let mut status = match serde_json::from_slice::<Value>(&text) {
        Ok(status) if status["kind"] == "Status" => status,
        _ => json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": String::from_utf8_lossy(&text).trim(),
            "reason": if parts.status == StatusCode::TOO_MANY_REQUESTS { "TooManyRequests" } else { "ServiceUnavailable" },
            "code": parts.status.as_u16(),
        }),
    };
    if !status["details"].is_object() {
        status["details"] = json!({});
    }
    // A wait that the Status names itself is kept. `WriteError` limits it.
    if status["details"]["retryAfterSeconds"].as_u64().unwrap_or(0) == 0 {
        status["details"]["retryAfterSeconds"] = json!(seconds);
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = Full::new(status.to_string().into()).map_err(|never| match never {});
    Ok(Response::from_parts(parts, Box::new(body)))
}

fn asked_for(answer: &HttpAnswer) -> Option<u64> {
    if !matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let seconds: u64 = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    (seconds > 0).then_some(seconds.min(WriteError::LONGEST_WAIT.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn after(code: u16, retry_after: &str, body: &str) -> Value {
        let full = Full::new(body.to_owned().into()).map_err(|never| -> BoxError { match never {} });
        let answer =
            Response::builder().status(code).header("retry-after", retry_after).header("content-length", body.len());
        let answer: HttpAnswer = answer.body(Box::new(full) as Box<DynBody>).unwrap();
        let text = into_status(answer).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&text).unwrap_or_else(|_| json!(String::from_utf8_lossy(&text)))
    }

    #[tokio::test]
    async fn a_text_answer_becomes_a_status_with_the_time_to_wait() {
        let status = after(429, "7", "Too many requests, please try again later.\n").await;
        assert_eq!((&status["details"]["retryAfterSeconds"], &status["code"]), (&json!(7), &json!(429)));
        assert_eq!(status["message"], "Too many requests, please try again later.");
    }

    #[tokio::test]
    async fn a_status_keeps_its_message_and_its_own_time() {
        let status = after(503, "7", r#"{"kind":"Status","message":"m","code":503,"details":null}"#).await;
        assert_eq!((&status["details"]["retryAfterSeconds"], &status["message"]), (&json!(7), &json!("m")));
        let status = after(429, "7", r#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":3}}"#).await;
        assert_eq!(status["details"]["retryAfterSeconds"], 3);
    }

    #[tokio::test]
    async fn answers_without_a_usable_retry_after_are_unchanged() {
        for (code, retry_after) in [(500, "7"), (200, "7"), (429, "soon"), (429, "0"), (429, "-1")] {
            assert_eq!(after(code, retry_after, "as it was").await, "as it was", "{code} {retry_after}");
        }
        assert_eq!(after(429, "86400", "a day").await["details"]["retryAfterSeconds"], 300);
    }
}
