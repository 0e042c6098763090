//! Errors of a write, by how they are handled.

use std::time::Duration;

use kube::core::Status;

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object is deleted, or another one has its name now. Nothing to do.
    #[error("the object no longer exists")]
    Gone,
    /// The object has changed since it was read.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The API server asks to wait.
    #[error("the API server is busy and asks to wait")]
    Throttled(Option<Duration>),
    /// A permission is missing.
    #[error("not allowed: {0}; check the ClusterRole of the operator")]
    Forbidden(String),
    /// The API server does not accept the content.
    #[error("the API server rejects the content as invalid: {0}")]
    Invalid(String),
    /// Any error that may pass: unreachable, overloaded, no answer in time.
    #[error("the request to the API server failed: {0}")]
    Transient(String),
}

impl WriteError {
    /// Longest wait that is honoured, named in a header or in the body; a longer one is shortened to it.
    pub(crate) const LONGEST_WAIT: Duration = Duration::from_mins(5);

    /// The name in metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Throttled(_) => "throttled",
            Self::Forbidden(_) => "forbidden",
            Self::Invalid(_) => "invalid",
            Self::Transient(_) => "transient",
        }
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from(*status),
            other => Self::Transient(other.to_string()),
        }
    }
}

impl From<Status> for WriteError {
    fn from(status: Status) -> Self {
        let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let wait = (wait > 0).then(|| Duration::from_secs(u64::from(wait)).min(Self::LONGEST_WAIT));
        match status.code {
            // A webhook's answer is about this object. It does not prove that the object is deleted or changed, or that the API server is busy.
            404 | 409 | 429 | 503 if is_of_webhook(&status) => {
                Self::Transient(format!("{} {}", status.code, status.message))
            }
            404 => Self::Gone,
            409 | 422 if is_another_uid(&status) => Self::Gone,
            409 => Self::Conflict,
            429 => Self::Throttled(wait),
            // An overloaded server may name a time as well.
            503 if wait.is_some() => Self::Throttled(wait),
            401 | 403 => Self::Forbidden(status.message),
            400 | 405 | 406 | 413 | 415 | 422 => Self::Invalid(status.message),
            code => Self::Transient(format!("{code} {}", status.message)),
        }
    }
}

/// True when an admission webhook rejected the write. The webhook chooses the status code, and the API server begins the message.
fn is_of_webhook(status: &Status) -> bool {
    status.message.starts_with("admission webhook ")
}

/// True when the API server rejected the write because the UID in it is not the UID of the object.
fn is_another_uid(status: &Status) -> bool {
    let by_cause =
        status.details.as_ref().is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"));
    by_cause || status.message.contains("uid mismatch") || status.message.contains("UID in precondition")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> Status {
        Status { code, message: message.to_owned(), ..Status::default() }
    }

    #[test]
    fn a_missing_object_is_reported_as_gone() {
        assert_eq!(WriteError::from(status(404, "not found")), WriteError::Gone);
    }

    #[test]
    fn another_object_of_the_same_name_is_reported_as_gone() {
        let texts = [
            "Operation cannot be fulfilled: uid mismatch: the provided object specified uid 1, and no existing object was found",
            "Precondition failed: UID in precondition: 1, UID in object meta: 2",
        ];
        for text in texts {
            assert_eq!(WriteError::from(status(409, text)), WriteError::Gone, "{text}");
        }
        assert_eq!(WriteError::from(status(409, "the object has been modified")), WriteError::Conflict);
    }

    #[test]
    fn a_busy_server_is_throttled_with_and_without_a_time() {
        let mut busy = status(429, "slow down");
        busy.details = serde_json::from_value(serde_json::json!({ "retryAfterSeconds": 3 })).unwrap();
        assert_eq!(WriteError::from(busy), WriteError::Throttled(Some(Duration::from_secs(3))));
        assert_eq!(WriteError::from(status(429, "slow down")), WriteError::Throttled(None));
    }

    #[test]
    fn a_wait_in_the_body_is_at_most_five_minutes() {
        for code in [429, 503] {
            let mut busy = status(code, "slow down");
            busy.details = serde_json::from_value(serde_json::json!({ "retryAfterSeconds": u32::MAX })).unwrap();
            assert_eq!(WriteError::from(busy), WriteError::Throttled(Some(Duration::from_mins(5))), "{code}");
        }
    }

    #[test]
    fn an_answer_of_a_webhook_is_about_one_object_whatever_its_code() {
        for code in [404, 409, 429, 503] {
            let mut denied = status(code, r#"admission webhook "policy.example.org" denied the request: later"#);
            denied.details = serde_json::from_value(serde_json::json!({ "retryAfterSeconds": 60 })).unwrap();
            let error = WriteError::from(denied);
            assert!(matches!(&error, WriteError::Transient(why) if why.contains("policy.example.org")), "{error:?}");
        }
    }

    #[test]
    fn other_status_codes_have_their_class() {
        assert!(matches!(WriteError::from(status(403, "no")), WriteError::Forbidden(_)));
        assert!(matches!(WriteError::from(status(422, "bad")), WriteError::Invalid(_)));
        assert!(matches!(WriteError::from(status(500, "oops")), WriteError::Transient(_)));
        assert!(matches!(WriteError::from(status(503, "later")), WriteError::Transient(_)));
    }
}
