//! Get and list: the present, or the version that was asked for; whole or page by page.

use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};

use super::{Answer, Ask, Payload};
use crate::{
    kinds::names::{forbidden, unsupported},
    request::RequestInfo,
    selector::{FieldSelector, LabelSelector},
    status::ApiError,
    store::{Compacted, Object},
    world::SandboxState,
};

/// Which objects of a collection a request means.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) prefix: String,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Scope {
    pub(crate) fn parse(ask: &Ask<'_>) -> Result<Self, ApiError> {
        let info = ask.info;
        let labels = LabelSelector::parse(info.get("labelSelector").unwrap_or_default())?;
        let text = info.get("fieldSelector").unwrap_or_default();
        let mut fields = FieldSelector::parse(
            text,
            ask.kind.is_custom() || !ask.kind.selectable().is_empty(),
            &ask.kind.selectable(),
        )?;
        if !info.name.is_empty() {
            fields = fields.and_name(&info.name);
        }
        let prefix = if info.namespace.is_empty() { String::new() } else { format!("{}/", info.namespace) };
        Ok(Self { prefix, labels, fields })
    }

    /// Whether an object in storage form is meant; `kind` shows it the way its fields are selected by.
    pub(crate) fn covers(&self, ask_kind: &crate::kinds::Kind, stored: &Value) -> bool {
        if !self.labels.matches(stored) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        match ask_kind.show(stored) {
            Some(shown) => self.fields.matches(&shown),
            None => self.fields.matches(stored),
        }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// The refusal of contradictory list options.
fn refused(errors: &[crate::schema::FieldError]) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", errors)
}

/// Checks the options that lists and watches share.
pub(crate) fn check_list_options(info: &RequestInfo) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    let version = info.text("resourceVersion");
    let rule = info.text("resourceVersionMatch");
    let watching = info.flag("watch");
    let initial = info.get("sendInitialEvents").is_some();
    if watching {
        if let Some(rule) = rule {
            if !initial {
                errors.push(forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if rule != "NotOlderThan" {
                errors.push(unsupported("resourceVersionMatch", rule, &["NotOlderThan"]));
            }
        } else if initial {
            errors.push(forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
    } else {
        if initial {
            errors.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if let Some(rule) = rule {
            if version.is_none() {
                errors.push(forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if info.text("continue").is_some() {
                errors.push(forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(rule, "Exact" | "NotOlderThan") {
                errors.push(unsupported("resourceVersionMatch", rule, &["Exact", "NotOlderThan", ""]));
            }
            if rule == "Exact" && version == Some("0") {
                errors.push(forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(refused(&errors)) }
}

/// A resourceVersion as a number.
pub(crate) fn version_wanted(info: &RequestInfo) -> Result<Option<u64>, ApiError> {
    let Some(text) = info.text("resourceVersion") else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

impl SandboxState {
    /// One object; `behind` reads that many versions ago, as a lagging replica would.
    pub(crate) fn get(&self, ask: &Ask<'_>, behind: u64) -> Result<Answer, ApiError> {
        if let Some(wanted) = version_wanted(ask.info)?
            && wanted > self.store.version()
        {
            return Err(ApiError::version_from_the_future(wanted, self.store.version()));
        }
        if behind > 0
            && let Some(table) = self.store.table(&ask.kind.table)
        {
            let then = self.store.version().saturating_sub(behind).max(table.oldest());
            let key = ask.key();
            let found = table.read_at(then, &key, None).ok().and_then(|objects| {
                objects
                    .into_iter()
                    .find(|object| crate::store::key_of(object.meta("namespace"), object.meta("name")) == key)
            });
            return found
                .map(|object| Answer::ok(Payload::Stored(object)))
                .ok_or_else(|| ApiError::not_found(ask.about(&ask.info.name)));
        }
        Ok(Answer::ok(Payload::Stored(self.find(&ask.kind, &ask.key())?)))
    }

    /// A collection, whole or a page of it.
    pub(crate) fn list(&self, ask: &Ask<'_>, behind: u64) -> Result<Answer, ApiError> {
        let info = ask.info;
        check_list_options(info)?;
        let scope = Scope::parse(ask)?;
        let limit = info.number("limit")?.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let now = self.store.version();
        let wanted = version_wanted(info)?;
        if wanted.is_some_and(|wanted| wanted > now) {
            return Err(ApiError::version_from_the_future(wanted.unwrap_or_default(), now));
        }
        let page = info.text("continue").map(Continue::parse).transpose()?;
        if page.is_some() && wanted.is_some_and(|wanted| wanted != 0) {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let Some(table) = self.store.table(&ask.kind.table) else {
            return Ok(Answer::ok(Payload::List { items: Vec::new(), version: now, more: None, remaining: None }));
        };
        let exact = info.text("resourceVersionMatch") == Some("Exact")
            || (info.text("resourceVersionMatch").is_none()
                && limit.is_some()
                && wanted.is_some_and(|wanted| wanted > 0));
        let version = match (&page, wanted) {
            (Some(page), _) => page.version.unwrap_or(now),
            (None, Some(wanted)) if exact => wanted,
            _ if behind > 0 => now.saturating_sub(behind).max(table.oldest()),
            _ => now,
        };
        let after = page.as_ref().map(|page| page.after.as_str());
        let found = table.read_at(version, &scope.prefix, after).map_err(|Compacted { oldest: _ }| match &page {
            Some(page) => page_expired(&page.after),
            None => ApiError::expired("The resourceVersion for the provided list is too old."),
        })?;
        let matching: Vec<Arc<Object>> = if scope.is_everything() {
            found
        } else {
            found.into_iter().filter(|object| scope.covers(&ask.kind, &object.value)).collect()
        };
        let total = matching.len();
        let (items, more) = match limit {
            Some(limit) if total > limit => {
                let items: Vec<Arc<Object>> = matching.into_iter().take(limit).collect();
                let last =
                    items.last().map(|object| crate::store::key_of(object.meta("namespace"), object.meta("name")));
                (items, last.map(|after| Continue { version: Some(version), after }.encode()))
            }
            _ => (matching, None),
        };
        let remaining = (more.is_some() && scope.is_everything()).then(|| total - items.len());
        Ok(Answer::ok(Payload::List { items, version, more, remaining }))
    }
}

/// Where the next page of a list starts.
#[derive(Debug, PartialEq, Eq)]
struct Continue {
    /// `None` continues at the newest version, without consistency.
    version: Option<u64>,
    after: String,
}

impl Continue {
    fn encode(&self) -> String {
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.version.map_or(-1, |v| i64::try_from(v).unwrap_or(-1)), "start": self.after});
        BASE64URL_NOPAD.encode(token.to_string().as_bytes())
    }

    fn parse(token: &str) -> Result<Self, ApiError> {
        let invalid = || {
            ApiError::bad_request(
                "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
            )
        };
        let bytes = BASE64URL_NOPAD.decode(token.trim_end_matches('=').as_bytes()).map_err(|_| invalid())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        let rv = value["rv"].as_i64().ok_or_else(invalid)?;
        let after = value["start"].as_str().ok_or_else(invalid)?.to_owned();
        Ok(Self { version: u64::try_from(rv).ok(), after })
    }
}

fn page_expired(after: &str) -> ApiError {
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.status["metadata"] = json!({"continue": Continue { version: None, after: after.to_owned() }.encode()});
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_survives_the_round_trip() {
        for after in ["n/a", "n/ab", "n/abc", ""] {
            let token = Continue { version: Some(12), after: after.into() };
            assert_eq!(Continue::parse(&token.encode()), Ok(token));
        }
        assert!(Continue::parse("!!").is_err());
    }

    #[test]
    fn match_without_version_is_refused() {
        let info = RequestInfo::parse("GET", "/api/v1/pods?resourceVersionMatch=Exact");
        let error = check_list_options(&info).unwrap_err();
        assert_eq!(error.code, 422);
        assert!(error.message().contains("resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
}
