//! A Pangolin without a server: for demos, the simulation and tests that need no HTTP.
//!
//! It keeps the rules that matter to a caller: a new resource has a random identifier and is protected, identifiers are unique, a second resource
//! with a host is refused. It reports the state after every change to an observer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::ready;

use crate::error::PangolinError;
use crate::types::{
    Domain, Listed, ListedTarget, NewResource, Resource, ResourceId, ResourceSettings, Site, Target, TargetId,
    TargetSettings,
};
use crate::{Answer, Deleted, Pangolin, checks};

/// A resource with its targets.
pub type Stored = (Resource, Vec<Target>);
type Observer = Arc<dyn Fn(&[Stored]) + Send + Sync>;

/// A Pangolin in memory. Clones share their state.
#[derive(Clone)]
pub struct MemoryPangolin {
    state: Arc<Mutex<State>>,
}

struct State {
    domains: Vec<Domain>,
    sites: Vec<Site>,
    resources: BTreeMap<ResourceId, Stored>,
    next: i64,
    writes: u64,
    answers: u64,
    fault: Option<PangolinError>,
    observers: Vec<Observer>,
}

impl State {
    fn number(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    fn listed(&self) -> Vec<Listed> {
        self.resources.values().map(listed).collect()
    }
}

impl MemoryPangolin {
    /// An organisation with these domains and sites.
    pub fn new(domains: Vec<Domain>, sites: Vec<Site>) -> Self {
        let (resources, observers) = (BTreeMap::new(), Vec::new());
        let state = State { domains, sites, resources, next: 0, writes: 0, answers: 0, fault: None, observers };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Everything it has.
    pub fn stored(&self) -> Vec<Stored> {
        self.with(|state| state.resources.values().cloned().collect())
    }

    /// How many calls changed something.
    pub fn writes(&self) -> u64 {
        self.with(|state| state.writes)
    }

    /// Lets every call fail until this is called with `None`.
    pub fn fail(&self, fault: Option<PangolinError>) {
        self.with(|state| state.fault = fault);
    }

    /// Calls `observer` now and after every change, with everything it has.
    pub fn on_change(&self, observer: impl Fn(&[Stored]) + Send + Sync + 'static) {
        let observer: Observer = Arc::new(observer);
        self.with(|state| state.observers.push(Arc::clone(&observer)));
        observer(&self.stored());
    }

    /// Changes resources as a person at the dashboard would.
    pub fn edit(&self, change: impl FnOnce(&mut BTreeMap<ResourceId, Stored>)) {
        self.with(|state| change(&mut state.resources));
        self.report();
    }

    fn report(&self) {
        let (stored, observers) = (self.stored(), self.with(|state| state.observers.clone()));
        for observer in observers {
            observer(&stored);
        }
    }

    fn read<T: Send + 'static>(&self, act: impl FnOnce(&mut State) -> Result<T, PangolinError>) -> Answer<'_, T> {
        let answer = self.with(|state| {
            if let Some(fault) = state.fault.clone() {
                return Err(fault);
            }
            state.answers += 1;
            act(state)
        });
        ready(answer).boxed()
    }

    fn write<T: Send + 'static>(&self, act: impl FnOnce(&mut State) -> Result<T, PangolinError>) -> Answer<'_, T> {
        let answer = self.read(|state| {
            let done = act(state)?;
            state.writes += 1;
            Ok(done)
        });
        self.report();
        answer
    }
}

impl std::fmt::Debug for MemoryPangolin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPangolin").field("stored", &self.stored()).finish_non_exhaustive()
    }
}

fn listed((resource, targets): &Stored) -> Listed {
    let shown = |target: &Target| ListedTarget {
        id: target.id,
        site: target.site,
        ip: target.host.clone(),
        port: target.port,
        enabled: target.enabled,
    };
    Listed {
        id: resource.id,
        nice_id: resource.nice_id.clone(),
        name: resource.name.clone(),
        host: resource.host.clone(),
        enabled: resource.enabled,
        sso: resource.sso,
        ssl: Some(resource.ssl),
        targets: Some(targets.iter().map(shown).collect()),
    }
}

fn missing(what: &str, id: impl std::fmt::Display) -> PangolinError {
    PangolinError::NotFound { what: format!("{what} {id}") }
}

fn stored(id: TargetId, wanted: &TargetSettings) -> Target {
    let TargetSettings { site, host, port, method, enabled, path, priority, health } = wanted.clone();
    let matching = path.as_ref().map(|path| path.matching().as_str().to_owned());
    Target {
        id,
        host,
        site,
        port,
        method: Some(method),
        enabled,
        path: path.map(|path| path.text().to_owned()),
        matching,
        rewrite: None,
        priority: Some(priority),
        health,
        unhealthy: false,
    }
}

impl Pangolin for MemoryPangolin {
    fn probe(&self) -> Answer<'_, ()> {
        self.read(|_| Ok(()))
    }

    fn answers(&self) -> u64 {
        self.with(|state| state.answers)
    }

    fn domains(&self) -> Answer<'_, Arc<[Domain]>> {
        self.read(|state| Ok(state.domains.clone().into()))
    }

    fn sites(&self) -> Answer<'_, Arc<[Site]>> {
        self.read(|state| Ok(state.sites.clone().into()))
    }

    fn forget(&self) {}

    fn resources(&self, _max_age: Duration) -> Answer<'_, Arc<[Listed]>> {
        self.read(|state| Ok(state.listed().into()))
    }

    fn resource(&self, id: ResourceId) -> Answer<'_, Resource> {
        self.read(|state| state.resources.get(&id).map(|(row, _)| row.clone()).ok_or_else(|| missing("resource", id)))
    }

    fn targets(&self, id: ResourceId) -> Answer<'_, Vec<Target>> {
        self.read(|state| state.resources.get(&id).map(|(_, rows)| rows.clone()).ok_or_else(|| missing("resource", id)))
    }

    fn create_resource<'a>(&'a self, new: &'a NewResource) -> Answer<'a, Resource> {
        self.write(|state| {
            checks::place(&state.domains, &new.domain, &new.host)?;
            checks::host_is_free(&state.listed(), &new.host)?;
            let id = ResourceId(state.number());
            let made = Resource::created(id, new);
            state.resources.insert(id, (made.clone(), Vec::new()));
            Ok(made)
        })
    }

    fn update_resource<'a>(&'a self, current: &'a Resource, wanted: &'a ResourceSettings) -> Answer<'a, Resource> {
        if wanted.match_resource(current) {
            return self.read(|_| Ok(current.clone()));
        }
        self.write(|state| {
            checks::place(&state.domains, &wanted.domain, &wanted.host)?;
            let taken = |row: &Resource| row.id != current.id && row.nice_id == wanted.nice_id.as_str();
            if state.resources.values().any(|(row, _)| taken(row)) {
                return Err(PangolinError::NiceIdTaken { nice_id: wanted.nice_id.to_string() });
            }
            let (row, _) = state.resources.get_mut(&current.id).ok_or_else(|| missing("resource", current.id))?;
            *row = Resource {
                id: row.id,
                nice_id: wanted.nice_id.to_string(),
                name: wanted.name.clone(),
                domain: Some(wanted.domain.clone()),
                host: Some(wanted.host.clone()),
                enabled: wanted.enabled,
                ssl: wanted.ssl,
                sso: Some(wanted.sso),
                block_access: wanted.block_access,
                sticky_session: wanted.sticky_session,
                tls_server_name: wanted.tls_server_name.clone(),
                set_host_header: wanted.set_host_header.clone(),
                headers: wanted.headers.clone(),
                policy: row.policy,
            };
            Ok(row.clone())
        })
    }

    fn delete_resource(&self, id: ResourceId) -> Answer<'_, Deleted> {
        self.write(|state| Ok(state.resources.remove(&id).map_or(Deleted::Absent, |_| Deleted::Done)))
    }

    fn create_target<'a>(&'a self, resource: ResourceId, wanted: &'a TargetSettings) -> Answer<'a, Target> {
        self.write(|state| {
            checks::target(&state.sites, wanted)?;
            let id = TargetId(state.number());
            let (_, targets) = state.resources.get_mut(&resource).ok_or_else(|| missing("resource", resource))?;
            let target = stored(id, wanted);
            targets.push(target.clone());
            Ok(target)
        })
    }

    fn update_target<'a>(&'a self, current: &'a Target, wanted: &'a TargetSettings) -> Answer<'a, Target> {
        if wanted.match_target(current) {
            return self.read(|_| Ok(current.clone()));
        }
        self.write(|state| {
            checks::target(&state.sites, wanted)?;
            let mut all = state.resources.values_mut().flat_map(|(_, targets)| targets);
            let target = all.find(|target| target.id == current.id).ok_or_else(|| missing("target", current.id))?;
            *target = stored(current.id, wanted);
            Ok(target.clone())
        })
    }

    fn delete_target(&self, resource: ResourceId, id: TargetId) -> Answer<'_, Deleted> {
        self.write(|state| {
            let Some((_, targets)) = state.resources.get_mut(&resource) else { return Ok(Deleted::Absent) };
            let before = targets.len();
            targets.retain(|target| target.id != id);
            Ok(if targets.len() < before { Deleted::Done } else { Deleted::Absent })
        })
    }
}
