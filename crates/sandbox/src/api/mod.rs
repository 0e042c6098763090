//! The verbs of the API on the [`SandboxState`](crate::world::SandboxState): each takes a parsed request and gives an answer or a refusal.

pub(crate) mod delete;
pub(crate) mod gc;
pub(crate) mod patch;
pub(crate) mod read;
pub(crate) mod review;
pub(crate) mod strategic;
pub(crate) mod update;
pub(crate) mod write;

use std::sync::Arc;

use serde_json::Value;

use crate::{
    kinds::Kind,
    request::RequestInfo,
    status::About,
    store::{Object, key_of},
};

/// A request on a resource.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) info: &'a RequestInfo,
    pub(crate) kind: Arc<Kind>,
    pub(crate) body: &'a [u8],
    pub(crate) content_type: &'a str,
    pub(crate) agent: &'a str,
}

impl Ask<'_> {
    pub(crate) fn key(&self) -> String {
        key_of(&self.info.namespace, &self.info.name)
    }

    pub(crate) fn about<'b>(&'b self, name: &'b str) -> About<'b> {
        About { group: &self.kind.group, resource: &self.kind.plural, name }
    }
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// A stored object.
    Stored(Arc<Object>),
    /// An object of the request's version that is not stored like this.
    Made(Value),
    /// Something that is not of the kind, such as a `Status`.
    Plain(Value),
    /// A list: objects in storage form, the version it was read at, and where to go on.
    List { items: Vec<Arc<Object>>, version: u64, more: Option<String>, remaining: Option<usize> },
}

/// A successful answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) payload: Payload,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    pub(crate) fn ok(payload: Payload) -> Self {
        Self { code: 200, payload, warnings: Vec::new() }
    }
}
