//! The in-memory twin: portals that answer from a table, for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::future::BoxFuture;

use crate::{PortalOptions, Portals, RemoteError, RemoteNames};

/// Portals by their URL. A URL that was not set does not answer.
#[derive(Debug, Default)]
pub struct MemoryPortals(Mutex<BTreeMap<String, Result<RemoteNames, RemoteError>>>);

impl MemoryPortals {
    /// Sets what the portal at a URL answers.
    pub fn set(&self, url: &str, answer: Result<RemoteNames, RemoteError>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(url.to_owned(), answer);
    }
}

impl Portals for MemoryPortals {
    fn names<'a>(
        &'a self,
        at: PortalOptions,
        _portal: Option<&'a str>,
    ) -> BoxFuture<'a, Result<RemoteNames, RemoteError>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(at.url.as_str()).cloned();
        let answer = known.unwrap_or_else(|| Err(RemoteError::Answer(format!("there is no portal at {}", at.url))));
        Box::pin(async move { answer })
    }
}
