//! Every request that reached the API, in order, so that tests can assert that there is no write at rest.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::request::RequestInfo;

/// One request and how it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLogEntry {
    /// The request.
    pub info: RequestInfo,
    /// The HTTP status code; 0 when the connection broke first.
    pub status: u16,
}

impl RequestLogEntry {
    /// Whether it changed the cluster, or may have.
    pub fn is_write(&self) -> bool {
        self.info.is_write() && (self.status == 0 || (200..300).contains(&self.status))
    }
}

/// The log; `None` when it is switched off.
#[derive(Debug)]
pub(crate) struct RequestLog(Option<Mutex<Vec<RequestLogEntry>>>);

impl RequestLog {
    pub(crate) fn new(wanted: bool) -> Self {
        Self(wanted.then(Mutex::default))
    }

    fn with<T: Default>(&self, look: impl FnOnce(&mut Vec<RequestLogEntry>) -> T) -> T {
        self.0.as_ref().map(|log| look(&mut log.lock().unwrap_or_else(PoisonError::into_inner))).unwrap_or_default()
    }

    pub(crate) fn push(&self, info: RequestInfo, status: u16) {
        self.with(|log| log.push(RequestLogEntry { info, status }));
    }

    pub(crate) fn entries(&self) -> Vec<RequestLogEntry> {
        self.with(|log| log.clone())
    }

    pub(crate) fn take(&self) -> Vec<RequestLogEntry> {
        self.with(std::mem::take)
    }

    pub(crate) fn counts(&self) -> BTreeMap<(String, String), usize> {
        self.with(|log| {
            let mut counts = BTreeMap::new();
            for entry in log {
                let resource = match entry.info.subresource.as_str() {
                    "" => entry.info.resource.clone(),
                    sub => format!("{}/{sub}", entry.info.resource),
                };
                *counts.entry((entry.info.verb.clone(), resource)).or_default() += 1;
            }
            counts
        })
    }

    pub(crate) fn writes(&self) -> usize {
        self.with(|log| log.iter().filter(|entry| entry.is_write()).count())
    }
}
