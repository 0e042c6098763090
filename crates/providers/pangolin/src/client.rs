//! The client: one organisation of one server, by HTTP.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use serde_json::{Map, Value};
use signpost_dns::Fqdn;
use signpost_provider_http::Method;

use crate::cache::Cached;
use crate::error::PangolinError;
use crate::http::{Call, Connection, Http, Permission, Timing};
use crate::lists::List;
use crate::transport::Transport;
use crate::types::{
    Domain, Listed, ListedTarget, NewResource, Resource, ResourceId, ResourceSettings, Site, Target, TargetId,
    TargetSettings,
};
use crate::{Answer, Deleted, Pangolin, checks, wire};

/// A Pangolin by HTTP.
#[derive(Debug)]
pub struct PangolinClient {
    http: Http,
    timing: Timing,
    domains: Cached<Domain>,
    sites: Cached<Site>,
    resources: Cached<Listed>,
    /// Whether lists of sites and resources take `limit` and `offset`.
    limits: AtomicBool,
    /// Whether a create takes `mode` instead of the older pair.
    mode: AtomicBool,
    /// Keys that the server does not know. They are asked about again once a row shows more than such a server has.
    unknown: Mutex<BTreeSet<String>>,
    /// Hosts whose resource is being created.
    creating: Mutex<BTreeSet<Fqdn>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the reservation of a host.
struct Reserved<'a> {
    hosts: &'a Mutex<BTreeSet<Fqdn>>,
    host: Fqdn,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        lock(self.hosts).remove(&self.host);
    }
}

impl PangolinClient {
    /// A client; no call is made yet.
    pub fn new(connection: &Connection) -> Result<Self, PangolinError> {
        Ok(Self::with(Http::new(connection)?, connection))
    }

    /// A client whose requests are carried by something else than sockets.
    pub fn over(transport: Arc<dyn Transport>, connection: &Connection) -> Self {
        Self::with(Http::over(transport, connection), connection)
    }

    fn with(http: Http, connection: &Connection) -> Self {
        Self {
            http,
            timing: connection.timing.clone(),
            domains: Cached::default(),
            sites: Cached::default(),
            resources: Cached::default(),
            limits: AtomicBool::new(false),
            mode: AtomicBool::new(false),
            unknown: Mutex::default(),
            creating: Mutex::default(),
        }
    }

    fn in_org(&self, method: Method, what: &str, permission: Permission) -> Call {
        Call::new(method, ["org", &self.http.org, what], permission)
    }

    fn list(&self, name: &'static str, id: &'static str, permission: Permission) -> List {
        let path = ["org", &self.http.org, name].map(str::to_owned).into();
        List { name, id, path, permission }
    }

    async fn read_domains(&self) -> Result<Arc<[Domain]>, PangolinError> {
        let load = || async {
            let rows = self.http.slices(&self.list("domains", "domainId", "listOrgDomains")).await?;
            if rows.is_empty() {
                // A root key gets empty lists of an organisation that does not exist.
                return Err(PangolinError::EmptyOrganization { org: self.http.org.clone() });
            }
            Ok(rows.iter().filter_map(wire::domain).collect())
        };
        self.domains.get(self.timing.expiry, load).await
    }

    async fn read_sites(&self) -> Result<Arc<[Site]>, PangolinError> {
        let load = || async {
            let rows = self.http.pages(&self.list("sites", "siteId", "listSites"), &self.limits).await?;
            rows.iter().map(wire::site).collect()
        };
        self.sites.get(self.timing.expiry, load).await
    }

    async fn read_resources(&self, max_age: Duration) -> Result<Arc<[Listed]>, PangolinError> {
        let load = || async {
            let list = self.list("resources", "resourceId", "listResources");
            self.http.pages(&list, &self.limits).await?.iter().map(wire::listed).collect()
        };
        self.resources.get(max_age, load).await
    }

    /// Sends a write. What may have taken effect although it failed is read again before the next decision.
    async fn write(&self, call: Call) -> Result<Value, PangolinError> {
        let done = self.http.send(&call).await;
        if done.as_ref().is_err_and(PangolinError::is_ambiguous) {
            self.resources.forget();
        }
        done
    }

    /// Sends a body, without keys that this server does not know and whose value is what it does anyway.
    async fn write_known(&self, call: Call, mut body: Map<String, Value>) -> Result<Value, PangolinError> {
        {
            let unknown = lock(&self.unknown);
            body.retain(|key, value| !(unknown.contains(key) && wire::is_default(key, value)));
        }
        match self.write(call.clone().body(body.clone())).await {
            Err(PangolinError::Unsupported { keys })
                if !keys.is_empty()
                    && keys.iter().all(|key| body.get(key).is_some_and(|value| wire::is_default(key, value))) =>
            {
                body.retain(|key, _| !keys.contains(key));
                lock(&self.unknown).extend(keys);
                self.write(call.body(body)).await
            }
            done => done,
        }
    }

    /// A server that was upgraded keeps what an update leaves out: nothing is left out of a row that has something to keep.
    fn learn(&self, plain: bool) {
        if !plain {
            lock(&self.unknown).clear();
        }
    }

    async fn create(&self, new: &NewResource) -> Result<Resource, PangolinError> {
        let NewResource { name, domain, host } = new;
        let place = checks::place(&self.read_domains().await?, domain, host)?;
        if !lock(&self.creating).insert(host.clone()) {
            let by = "it is being created by another request".to_owned();
            return Err(PangolinError::HostTaken { host: host.undotted().to_owned(), by });
        }
        let _reserved = Reserved { hosts: &self.creating, host: host.clone() };
        checks::host_is_free(&self.read_resources(self.timing.list_age).await?, host)?;
        let send = |mode| {
            let call = self.in_org(Method::PUT, "resource", "createResource");
            self.write(call.body(wire::create_body(name, domain, &place, mode)))
        };
        let mode = self.mode.load(Ordering::Acquire);
        let data = match send(mode).await {
            // The server knows only one of the two ways.
            Err(PangolinError::Unsupported { keys }) if keys.iter().any(|key| is_way(key)) => {
                let data = send(!mode).await?;
                self.mode.store(!mode, Ordering::Release);
                data
            }
            done => named(done, host)?,
        };
        let made = wire::resource(&data)?;
        self.note(&made).await;
        if made.host.as_ref() != Some(host) {
            // Nothing may be served under a host that nobody asked for.
            self.delete(made.id).await?;
            return Err(checks::wrong_host(host, made.host.as_ref()));
        }
        Ok(made)
    }

    async fn update(&self, current: &Resource, wanted: &ResourceSettings) -> Result<Resource, PangolinError> {
        if wanted.match_resource(current) {
            return Ok(current.clone());
        }
        let place = checks::place(&self.read_domains().await?, &wanted.domain, &wanted.host)?;
        self.learn(current.is_plain());
        let call = Call::new(Method::POST, ["resource".to_owned(), current.id.to_string()], "updateResource");
        let body = wire::update_body(wanted, &place, current.policy);
        let data = match self.write_known(call, body).await {
            Err(PangolinError::Licence { .. } | PangolinError::Rejected { status: 403, .. })
                if current.policy.is_some() =>
            {
                return Err(PangolinError::SharedPolicy { id: current.id });
            }
            done => named(done, &wanted.host)?,
        };
        let updated = wire::resource(&data)?;
        self.note(&updated).await;
        if updated.host.as_ref() != Some(&wanted.host) {
            return Err(checks::wrong_host(&wanted.host, updated.host.as_ref()));
        }
        Ok(updated)
    }

    async fn delete(&self, id: ResourceId) -> Result<Deleted, PangolinError> {
        let call = Call::new(Method::DELETE, ["resource".to_owned(), id.to_string()], "deleteResource");
        let deleted = absent_is_done(self.write(call).await)?;
        self.resources.edit(|list| list.retain(|listed| listed.id != id)).await;
        Ok(deleted)
    }

    async fn put_target(
        &self,
        resource: Option<ResourceId>,
        call: Call,
        wanted: &TargetSettings,
    ) -> Result<Target, PangolinError> {
        checks::target(&self.read_sites().await?, wanted)?;
        let target = wire::target(&self.write_known(call, wire::target_body(wanted)).await?)?;
        self.note_target(resource, &target).await;
        Ok(target)
    }

    /// Notes a resource as the server returned it.
    async fn note(&self, resource: &Resource) {
        let Resource { id, nice_id, name, host, enabled, sso, ssl, .. } = resource;
        self.resources
            .edit(|list| {
                let known = list.iter().position(|listed| listed.id == *id);
                let targets = match known {
                    Some(at) => list[at].targets.clone(),
                    None => Some(Vec::new()),
                };
                let listed = Listed {
                    id: *id,
                    nice_id: nice_id.clone(),
                    name: name.clone(),
                    host: host.clone(),
                    enabled: *enabled,
                    sso: *sso,
                    ssl: Some(*ssl),
                    targets,
                };
                match known {
                    Some(at) => list[at] = listed,
                    None => list.push(listed),
                }
            })
            .await;
    }

    /// Notes a target as the server returned it: a new one of `resource`, or one that is in the list.
    async fn note_target(&self, resource: Option<ResourceId>, target: &Target) {
        let shown = ListedTarget {
            id: target.id,
            site: target.site,
            ip: target.host.clone(),
            port: target.port,
            enabled: target.enabled,
        };
        self.resources
            .edit(|list| {
                for targets in list.iter_mut().filter_map(|listed| listed.targets.as_mut()) {
                    if let Some(known) = targets.iter_mut().find(|known| known.id == shown.id) {
                        *known = shown;
                        return;
                    }
                }
                let of = list.iter_mut().find(|listed| Some(listed.id) == resource);
                if let Some(targets) = of.and_then(|listed| listed.targets.as_mut()) {
                    targets.push(shown);
                }
            })
            .await;
    }
}

/// A key of one of the two ways to create a resource.
fn is_way(key: &str) -> bool {
    matches!(key, "http" | "protocol" | "mode")
}

/// The error about a host, with its name.
fn named(done: Result<Value, PangolinError>, host: &Fqdn) -> Result<Value, PangolinError> {
    done.map_err(|error| match error {
        PangolinError::HostTaken { by, .. } => PangolinError::HostTaken { host: host.undotted().to_owned(), by },
        other => other,
    })
}

fn absent_is_done(done: Result<Value, PangolinError>) -> Result<Deleted, PangolinError> {
    match done {
        Ok(_) => Ok(Deleted::Done),
        Err(PangolinError::NotFound { .. }) => Ok(Deleted::Absent),
        Err(error) => Err(error),
    }
}

impl Pangolin for PangolinClient {
    fn probe(&self) -> Answer<'_, ()> {
        self.http.probe().boxed()
    }

    fn answers(&self) -> u64 {
        self.http.answers()
    }

    fn domains(&self) -> Answer<'_, Arc<[Domain]>> {
        self.read_domains().boxed()
    }

    fn sites(&self) -> Answer<'_, Arc<[Site]>> {
        self.read_sites().boxed()
    }

    fn forget(&self) {
        self.domains.forget();
        self.sites.forget();
        self.resources.forget();
    }

    fn resources(&self, max_age: Duration) -> Answer<'_, Arc<[Listed]>> {
        self.read_resources(max_age).boxed()
    }

    fn resource(&self, id: ResourceId) -> Answer<'_, Resource> {
        async move {
            let call = Call::new(Method::GET, ["resource".to_owned(), id.to_string()], "getResource");
            wire::resource(&self.http.send(&call).await?)
        }
        .boxed()
    }

    fn targets(&self, id: ResourceId) -> Answer<'_, Vec<Target>> {
        async move {
            let path = ["resource".to_owned(), id.to_string(), "targets".to_owned()].into();
            let list = List { name: "targets", id: "targetId", path, permission: "listTargets" };
            self.http.slices(&list).await?.iter().map(wire::target).collect()
        }
        .boxed()
    }

    fn create_resource<'a>(&'a self, new: &'a NewResource) -> Answer<'a, Resource> {
        self.create(new).boxed()
    }

    fn update_resource<'a>(&'a self, current: &'a Resource, wanted: &'a ResourceSettings) -> Answer<'a, Resource> {
        self.update(current, wanted).boxed()
    }

    fn delete_resource(&self, id: ResourceId) -> Answer<'_, Deleted> {
        self.delete(id).boxed()
    }

    fn create_target<'a>(&'a self, resource: ResourceId, wanted: &'a TargetSettings) -> Answer<'a, Target> {
        let path = ["resource".to_owned(), resource.to_string(), "target".to_owned()];
        self.put_target(Some(resource), Call::new(Method::PUT, path, "createTarget"), wanted).boxed()
    }

    fn update_target<'a>(&'a self, current: &'a Target, wanted: &'a TargetSettings) -> Answer<'a, Target> {
        if wanted.match_target(current) {
            return futures::future::ready(Ok(current.clone())).boxed();
        }
        self.learn(current.is_plain());
        let call = Call::new(Method::POST, ["target".to_owned(), current.id.to_string()], "updateTarget");
        self.put_target(None, call, wanted).boxed()
    }

    fn delete_target(&self, resource: ResourceId, id: TargetId) -> Answer<'_, Deleted> {
        async move {
            let call = Call::new(Method::DELETE, ["target".to_owned(), id.to_string()], "deleteTarget");
            let deleted = absent_is_done(self.write(call).await)?;
            self.resources
                .edit(|list| {
                    let of = list.iter_mut().find(|listed| listed.id == resource);
                    if let Some(targets) = of.and_then(|listed| listed.targets.as_mut()) {
                        targets.retain(|target| target.id != id);
                    }
                })
                .await;
            Ok(deleted)
        }
        .boxed()
    }
}
