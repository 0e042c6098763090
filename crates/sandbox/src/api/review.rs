//! Access reviews, and the requests that a test can deny.

use serde_json::{Value, json};

use super::{
    Answer, Ask, Payload,
    write::{decode, read_object},
};
use crate::{
    request::{FieldValidation, RequestInfo},
    status::{About, ApiError, quoted},
    world::SandboxState,
};

/// A request that is refused with 403; empty fields and `*` match anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenyRule {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The API group.
    pub group: Option<String>,
    /// The plural, or `plural/subresource`.
    pub resource: String,
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
}

impl DenyRule {
    /// Denies a verb on a resource everywhere.
    pub fn new(verb: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { verb: verb.into(), group: None, resource: resource.into(), namespace: None }
    }

    fn covers(&self, verb: &str, group: &str, resource: &str, namespace: &str) -> bool {
        let any = |rule: &str, value: &str| rule.is_empty() || rule == "*" || rule == value;
        any(&self.verb, verb)
            && self.group.as_deref().is_none_or(|rule| any(rule, group) || rule.is_empty() && group.is_empty())
            && any(&self.resource, resource)
            && self.namespace.as_deref().is_none_or(|rule| rule == namespace)
    }
}

/// Whether the rules refuse this.
pub(crate) fn denied(rules: &[DenyRule], verb: &str, group: &str, resource: &str, namespace: &str) -> bool {
    rules.iter().any(|rule| rule.covers(verb, group, resource, namespace))
}

/// The 403 for a request that the rules refuse.
pub(crate) fn check(rules: &[DenyRule], info: &RequestInfo, user: &str) -> Result<(), ApiError> {
    let resource = if info.subresource.is_empty() {
        info.resource.clone()
    } else {
        format!("{}/{}", info.resource, info.subresource)
    };
    if info.resource.is_empty() || !denied(rules, &info.verb, &info.group, &resource, &info.namespace) {
        return Ok(());
    }
    let place = if info.namespace.is_empty() {
        " at the cluster scope".to_owned()
    } else {
        format!(" in the namespace {}", quoted(&info.namespace))
    };
    let about = About { group: &info.group, resource: &info.resource, name: &info.name };
    Err(ApiError::forbidden(
        about,
        &format!(
            "User {} cannot {} resource {} in API group {}{place}",
            quoted(user),
            info.verb,
            quoted(&resource),
            quoted(&info.group)
        ),
    ))
}

impl SandboxState {
    /// Answers an access review.
    pub(crate) fn review(ask: &Ask<'_>, rules: &[DenyRule]) -> Result<Answer, ApiError> {
        let mut object = read_object(ask)?;
        decode(&ask.kind, &mut object, FieldValidation::Ignore, None).map_err(ApiError::bad_request)?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let base = "/spec/resourceAttributes";
        let sub = text(&format!("{base}/subresource"));
        let resource = text(&format!("{base}/resource"));
        let resource = if sub.is_empty() { resource } else { format!("{resource}/{sub}") };
        let denied = denied(
            rules,
            &text(&format!("{base}/verb")),
            &text(&format!("{base}/group")),
            &resource,
            &text(&format!("{base}/namespace")),
        );
        object["status"] = json!({"allowed": !denied});
        Ok(Answer { code: 201, payload: Payload::Plain(object), warnings: Vec::new() })
    }
}
