//! The server's refusals: every error of the API as the `Status` object, HTTP code and text that kube-apiserver answers.

use serde_json::{Value, json};

use crate::schema::{FieldError, invalid_status};

/// The name of a resource in a message: `ingresses.networking.k8s.io`, or `configmaps` for the core group.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// A string in quotes, as messages print it.
pub(crate) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The whole `Status` object, or plain text when it is a JSON string.
    pub status: Value,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u64>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let message = self.status.get("message").and_then(Value::as_str).or(self.status.as_str()).unwrap_or_default();
        write!(f, "{} {message}", self.code)
    }
}

impl std::error::Error for ApiError {}

/// The object a refusal is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) name: &'a str,
}

impl About<'_> {
    fn details(self) -> Value {
        let mut details = json!({"name": self.name, "kind": self.resource});
        if !self.group.is_empty() {
            details["group"] = json!(self.group);
        }
        details
    }

    fn text(self) -> String {
        format!("{} {:?}", qualified(self.group, self.resource), self.name)
    }
}

impl ApiError {
    /// A `Status` failure with the given code, reason and message.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "code": code
        });
        if !reason.is_empty() {
            status["reason"] = json!(reason);
        }
        Self { code, status, retry_after: None }
    }

    fn with_details(mut self, details: Value) -> Self {
        self.status["details"] = details;
        self
    }

    /// The message of the `Status`.
    pub fn message(&self) -> &str {
        self.status.get("message").and_then(Value::as_str).unwrap_or_default()
    }

    /// The reason of the `Status`.
    pub fn reason(&self) -> &str {
        self.status.get("reason").and_then(Value::as_str).unwrap_or_default()
    }

    /// A `Status` that another module has made.
    pub(crate) fn from_status(status: Value) -> Self {
        let code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
        Self { code, status, retry_after: None }
    }

    /// The plain answer to a path that nothing serves.
    pub(crate) fn no_such_path() -> Self {
        Self { code: 404, status: Value::String("404 page not found\n".into()), retry_after: None }
    }

    pub(crate) fn not_found(about: About<'_>) -> Self {
        Self::new(404, "NotFound", format!("{} not found", about.text())).with_details(about.details())
    }

    /// `going` when the existing object is being deleted.
    pub(crate) fn already_exists(about: About<'_>, going: bool) -> Self {
        let prefix = if going { "object is being deleted: " } else { "" };
        Self::new(409, "AlreadyExists", format!("{prefix}{} already exists", about.text()))
            .with_details(about.details())
    }

    pub(crate) fn conflict(about: About<'_>, why: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {}: {why}", about.text()))
            .with_details(about.details())
    }

    /// The object changed between the caller's read and its write.
    pub(crate) fn modified(about: About<'_>) -> Self {
        Self::conflict(
            about,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn forbidden(about: About<'_>, why: &str) -> Self {
        let subject = if about.name.is_empty() { qualified(about.group, about.resource) } else { about.text() };
        let mut details = about.details();
        if about.name.is_empty()
            && let Some(map) = details.as_object_mut()
        {
            map.remove("name");
        }
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}")).with_details(details)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut status = invalid_status(group, kind, name, errors);
        if let Some(details) = status["details"].as_object_mut() {
            details.retain(|_, value| value.as_str() != Some(""));
        }
        Self::from_status(status)
    }

    /// A refusal that the server did not foresee: code 500 without a reason.
    pub(crate) fn unforeseen(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(json!({}))
    }

    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// The refusal of an `Accept` header; custom kinds word it differently.
    pub(crate) fn not_acceptable(custom: bool) -> Self {
        const FORMS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        if custom {
            return Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {FORMS}"));
        }
        let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        Self::new(406, "NotAcceptable", format!("406: Not Acceptable\n\nAvailable representations: {FORMS}, {streams}"))
            .with_details(json!({}))
    }

    /// A patch of a type that built-in kinds do not know.
    pub(crate) fn unknown_patch_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details(json!({}))
    }

    /// A read at a resourceVersion that has not happened yet.
    pub(crate) fn version_from_the_future(wanted: u64, current: u64) -> Self {
        let mut error =
            Self::new(504, "Timeout", format!("Timeout: Too large resource version: {wanted}, current: {current}"))
                .with_details(json!({
                    "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                    "retryAfterSeconds": 1
                }));
        error.retry_after = Some(1);
        error
    }

    /// The namespace is terminating: no object may be created in it.
    pub(crate) fn namespace_terminating(about: About<'_>, namespace: &str) -> Self {
        let mut error = Self::forbidden(
            about,
            &format!("unable to create new content in namespace {namespace} because it is being terminated"),
        );
        error.status["details"]["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace"
        }]);
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_resource_is_named_without_its_group() {
        let error = ApiError::not_found(About { group: "", resource: "configmaps", name: "a" });
        assert_eq!(error.message(), "configmaps \"a\" not found");
        assert_eq!(error.status["details"], json!({"name": "a", "kind": "configmaps"}));
    }

    #[test]
    fn a_grouped_resource_is_named_with_its_group() {
        let error = ApiError::already_exists(About { group: "example.com", resource: "widgets", name: "w" }, false);
        assert_eq!(error.message(), "widgets.example.com \"w\" already exists");
        assert_eq!((error.code, error.reason()), (409, "AlreadyExists"));
    }
}
