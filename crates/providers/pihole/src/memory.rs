//! A Pi-hole that is only a pair of lists: for demos, offline plans and tests that need no HTTP.
//!
//! It keeps v6's rules (markers, exact deletion, whole lists) and calls an observer after every change, so that
//! something else, such as an embedded name server, can show the same lines.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::PiholeError;
use crate::line::Line;
use crate::{ApplyResult, Capabilities, ChangeSet, Dialect, Listing, Pihole};

type Observer = Arc<dyn Fn(&Listing) + Send + Sync>;

/// A Pi-hole in memory. Clones share their lists.
#[derive(Clone)]
pub struct MemoryPihole {
    state: Arc<Mutex<State>>,
}

struct State {
    listing: Listing,
    observers: Vec<Observer>,
    writes: u64,
    fault: Option<PiholeError>,
}

impl Default for MemoryPihole {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryPihole {
    /// An empty Pi-hole with v6's capabilities.
    pub fn new() -> Self {
        let listing =
            Listing { capabilities: Capabilities::V6, hosts: Vec::new(), cnames: Vec::new(), write_error: None };
        Self { state: Arc::new(Mutex::new(State { listing, observers: Vec::new(), writes: 0, fault: None })) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        act(&mut state)
    }

    /// Calls `observer` now and after every change, with every line of the Pi-hole.
    pub fn on_change(&self, observer: impl Fn(&Listing) + Send + Sync + 'static) {
        let observer: Observer = Arc::new(observer);
        let listing = self.with(|state| {
            state.observers.push(Arc::clone(&observer));
            state.listing.clone()
        });
        observer(&listing);
    }

    /// Every line.
    pub fn listing(&self) -> Listing {
        self.with(|state| state.listing.clone())
    }

    /// How many write calls changed something.
    pub fn writes(&self) -> u64 {
        self.with(|state| state.writes)
    }

    /// Makes every call fail until this is called with None.
    pub fn fail(&self, fault: Option<PiholeError>) {
        self.with(|state| state.fault = fault);
    }

    /// Edits the lists as a person at the web page would.
    pub fn edit(&self, change: impl FnOnce(&mut Listing)) {
        self.change(|state| change(&mut state.listing));
    }

    fn change(&self, act: impl FnOnce(&mut State)) {
        let (listing, observers) = self.with(|state| {
            act(state);
            (state.listing.clone(), state.observers.clone())
        });
        for observer in observers {
            observer(&listing);
        }
    }
}

impl std::fmt::Debug for MemoryPihole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPihole").field("listing", &self.listing()).finish_non_exhaustive()
    }
}

fn edit(list: &mut Vec<Line>, add: &[Line], remove: &[Line]) {
    list.retain(|line| !remove.contains(line));
    for line in add {
        if !list.contains(line) {
            list.push(line.clone());
        }
    }
}

impl Pihole for MemoryPihole {
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>> {
        let fault = self.with(|state| state.fault.clone());
        async move { fault.map_or(Ok(()), Err) }.boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, PiholeError>> {
        let result = self.with(|state| state.fault.clone().map_or_else(|| Ok(state.listing.clone()), Err));
        async move { result }.boxed()
    }

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, ApplyResult> {
        let stopped = self.with(|state| state.fault.clone());
        let mut applied = ApplyResult { stopped, ..ApplyResult::default() };
        if applied.stopped.is_none() && !changes.is_empty() {
            applied.writes = 1;
            self.change(|state| {
                edit(&mut state.listing.hosts, &changes.add_hosts, &changes.remove_hosts);
                edit(&mut state.listing.cnames, &changes.add_cnames, &changes.remove_cnames);
                state.writes += 1;
            });
        }
        async move { applied }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }

    fn dialect(&self) -> Option<Dialect> {
        Some(Dialect::V6)
    }
}
