//! The form of a case file: a group of cases, each a list of steps in a namespace of its own.
//!
//! `${ns}` is that namespace (and a fresh name for cluster-wide objects), `${configmaps}`, `${widgets}` and so on are
//! paths in it (`run.rs` has them all), `${x}` is what a step captured as `x`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// A sentence: what the server does.
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

impl Case {
    /// Whether it makes the server forget its history.
    pub(crate) fn forgets(&self) -> bool {
        self.steps.iter().any(|step| step.forget.is_some())
    }
}

/// One step: exactly one of `request`, `watch`, `events` and `forget` is given.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Step {
    /// `METHOD /path?query`.
    pub(crate) request: Option<String>,
    /// Opens a watch on this path and keeps it as `name`.
    pub(crate) watch: Option<String>,
    /// Reads these events from the watch `name`, in this order. Bookmarks count only when the next expected event is one.
    pub(crate) events: Option<Vec<Value>>,
    /// Lets the server forget its history, so that the captured continue token of this name (or any old
    /// resourceVersion, when empty) has expired.
    pub(crate) forget: Option<String>,

    /// Which watch (default `watch`).
    pub(crate) name: Option<String>,
    /// Content type of the body: `json`, `merge`, `strategic`, `apply`, `yaml`, or in full.
    #[serde(rename = "type")]
    pub(crate) content_type: Option<String>,
    /// Accept header: `table`, `partial`, `partial-list`, `discovery`, or in full.
    pub(crate) accept: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<Value>,
    /// A body that is not JSON.
    pub(crate) raw: Option<String>,

    /// Expected status; 201 for POST and 200 for all others unless given.
    pub(crate) status: Option<u16>,
    /// Expected part of the answer; see `matching.rs`.
    pub(crate) expect: Option<Value>,
    /// The exact `message` of the answered Status.
    pub(crate) message: Option<String>,
    /// Text that the answer contains, for answers that are not JSON.
    pub(crate) text: Option<String>,
    /// Values that must differ: JSON pointer to value.
    pub(crate) differs: BTreeMap<String, Value>,
    /// Expected response headers (a `<matches …>` will do).
    pub(crate) answers: BTreeMap<String, String>,
    /// Values to remember: name to JSON pointer.
    pub(crate) capture: BTreeMap<String, String>,
    /// Whether to repeat the request until it holds (for what a controller does in its own time).
    pub(crate) until: bool,
    /// After the events, the server closes the watch.
    pub(crate) closed: bool,
}
