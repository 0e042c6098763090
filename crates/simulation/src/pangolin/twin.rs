//! The Pangolin of a simulation: the strict stand-in without its port, a network to it, and an eye on every write.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use signpost_provider_pangolin::{Incoming, Outgoing, PangolinError, Transport};
use signpost_testkit::pangolin::{Asked, ORG, Pangolin, State, Version};
use tokio::time::Instant;

use super::{PangolinBed, action::Edit, oracle};
use crate::{
    provider::{Call, Wire},
    weather::{Class, Effect},
    world::World,
};

/// The deadline of a call, as the client has it.
const DEADLINE: Duration = Duration::from_secs(15);

/// One Pangolin.
pub struct Twin {
    world: Arc<World>,
    state: Mutex<State>,
    /// Resources that a user created at the dashboard, as they must stay.
    foreign: Mutex<BTreeMap<i64, String>>,
    /// Until when it is down.
    down: Mutex<Option<Instant>>,
    bed: Mutex<Weak<PangolinBed>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Twin {
    /// A Pangolin without resources.
    pub fn new(world: &Arc<World>, version: Version) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            state: Mutex::new(State::of(version)),
            foreign: Mutex::default(),
            down: Mutex::default(),
            bed: Mutex::default(),
        })
    }

    /// Who judges writes.
    pub fn judged_by(&self, bed: &Arc<PangolinBed>) {
        *lock(&self.bed) = Arc::downgrade(bed);
    }

    /// Everything that it stores.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether a user created this resource at the dashboard.
    pub fn is_foreign(&self, id: i64) -> bool {
        lock(&self.foreign).contains_key(&id)
    }

    /// Nothing answers until then.
    pub fn stop_until(&self, until: Instant) {
        let mut down = lock(&self.down);
        *down = (*down).max(Some(until));
    }

    fn is_down(&self) -> bool {
        lock(&self.down).is_some_and(|until| Instant::now() < until)
    }

    fn by_hand(&self, method: &str, path: &str, body: &Value) -> Option<i64> {
        let body = body.to_string();
        let asked = Asked { method, path, query: "", authorization: Some("Bearer all.secret"), body: Some(&body) };
        let (status, answer) = self.state().respond(&asked);
        self.world.note(&format!("by hand {method} {path} {status}"));
        let answer: Value = serde_json::from_str(&answer).ok()?;
        answer["data"]["resourceId"].as_i64().filter(|_| status < 300)
    }

    /// A user creates a resource for a host.
    pub fn add(&self, host: &str) {
        let Some((subdomain, base)) = host.split_once('.') else { return };
        let domain = if base == "ns.test" { "d-ns" } else { "d-wild" };
        let body =
            json!({ "name": "by hand", "domainId": domain, "subdomain": subdomain, "http": true, "protocol": "tcp" });
        let Some(id) = self.by_hand("PUT", &format!("/v1/org/{ORG}/resource"), &body) else { return };
        let target = json!({ "siteId": 1, "ip": "10.0.0.9", "port": 9, "method": "http", "priority": 100 });
        self.by_hand("PUT", &format!("/v1/resource/{id}/target"), &target);
        let row = self.row(id);
        lock(&self.foreign).insert(id, row);
    }

    /// A user deletes such a resource. Returns its host.
    pub fn remove(&self, index: usize) -> Option<String> {
        let id = lock(&self.foreign).keys().nth(index).copied()?;
        lock(&self.foreign).remove(&id);
        let host = self.state().resources.get(&id).map(|row| row.full_domain.clone());
        self.by_hand("DELETE", &format!("/v1/resource/{id}"), &json!({}));
        host
    }

    /// A user changes a resource of the operator. Returns its host.
    pub fn edit(&self, index: usize, how: Edit) -> Option<String> {
        let (id, host) = {
            let state = self.state();
            let mut ours = state.resources.values().filter(|row| !self.is_foreign(row.id));
            ours.nth(index).map(|row| (row.id, row.full_domain.clone()))?
        };
        self.world.note(&format!("by hand {how:?} {host}"));
        let mut state = self.state();
        let target = state.targets.values().find(|target| target.resource == id).map(|target| target.id);
        let target = target.and_then(|target| state.targets.get_mut(&target));
        match (how, target) {
            (Edit::Port, Some(target)) => drop(target.fields.insert("port".to_owned(), json!(1))),
            (Edit::Path, Some(target)) => {
                target.fields.insert("path".to_owned(), json!("/elsewhere"));
                target.fields.insert("pathMatchType".to_owned(), json!("exact"));
            }
            (Edit::DropTarget, Some(target)) => {
                let target = target.id;
                state.targets.remove(&target);
            }
            (Edit::Disable, _) => state.resources.get_mut(&id).into_iter().for_each(|row| row.enabled = false),
            (Edit::Protect, _) => state.resources.get_mut(&id).into_iter().for_each(|row| row.sso = Some(true)),
            (Edit::Delete, _) => {
                state.resources.remove(&id);
                state.targets.retain(|_, target| target.resource != id);
            }
            (Edit::Port | Edit::Path | Edit::DropTarget, None) => {}
        }
        Some(host)
    }

    /// A resource and its targets, as text.
    fn row(&self, id: i64) -> String {
        let state = self.state();
        let targets: Vec<_> = state.targets.values().filter(|target| target.resource == id).collect();
        format!("{:?} {targets:?}", state.resources.get(&id))
    }

    /// Serves a request. Nothing foreign may be changed by it.
    fn serve(&self, request: &Outgoing) -> Incoming {
        let path = request.url.path().to_owned();
        let asked = Asked {
            method: request.method.as_str(),
            path: &path,
            query: request.url.query().unwrap_or_default(),
            authorization: request.authorization.as_deref(),
            body: request.body.as_deref(),
        };
        let (status, body) = self.state().respond(&asked);
        if asked.method != "GET" && status < 300 {
            self.world.wrote(&format!("{} {path}", asked.method));
            let foreign = lock(&self.foreign).clone();
            for (id, before) in foreign {
                let after = self.row(id);
                if after != before {
                    self.world.violation(format!("foreign resource {id} changed from {before} to {after}"));
                    lock(&self.foreign).insert(id, after);
                }
            }
        }
        incoming(status, body)
    }
}

fn incoming(status: u16, body: String) -> Incoming {
    Incoming { status, location: None, retry_after: None, body: body.into_bytes() }
}

/// The answer of a server, or of a proxy in front of it, that refuses.
fn refusal(code: u16) -> Incoming {
    let envelope = |message: &str| {
        json!({ "data": null, "success": false, "error": true, "message": message, "status": code, "stack": null })
            .to_string()
    };
    match code {
        401 => incoming(401, envelope("Invalid API key")),
        403 => incoming(403, envelope("Key does not have permission perform this action")),
        409 => incoming(409, envelope("Resource with that domain already exists")),
        // A proxy that has lost the API.
        422 => incoming(404, "<!DOCTYPE html><html><body>404 page not found</body></html>".to_owned()),
        503 => incoming(503, "<html><body>no available server</body></html>".to_owned()),
        _ => incoming(code, envelope("An error occurred")),
    }
}

fn cut() -> PangolinError {
    PangolinError::Unreachable { what: "connection reset by peer".to_owned(), dropped: true }
}

impl Transport for Wire<Twin> {
    fn carry(&self, request: Outgoing) -> BoxFuture<'_, Result<Incoming, PangolinError>> {
        let path = request.url.path();
        let class = match (request.method.as_str(), path.contains("/target")) {
            ("GET", _) => Class::Look,
            (_, true) => Class::Records,
            (_, false) => Class::Zones,
        };
        let name = format!("pangolin {} {path}", request.method);
        let call = Call {
            class,
            name: name.clone(),
            deadline: Some(DEADLINE),
            cut,
            late: || PangolinError::Timeout,
            shown: |answered| answered.as_ref().map_or(0, |answer: &Incoming| answer.status).to_string(),
        };
        let serve = move |twin: &Twin, effect, sent| {
            if twin.is_down() {
                return Err(PangolinError::Unreachable { what: "connection refused".to_owned(), dropped: false });
            }
            let answer = match effect {
                Effect::Refused(code) => refusal(code),
                Effect::Answered | Effect::CutBefore | Effect::CutAfter => twin.serve(&request),
            };
            let judge = lock(&twin.bed).upgrade();
            if let Some(bed) = judge.filter(|_| class != Class::Look && (200..300).contains(&answer.status)) {
                oracle::judge(&bed, &name, sent);
            }
            Ok(answer)
        };
        self.call(call, serve).boxed()
    }
}

/// The key of the operator.
pub const KEY: &str = Pangolin::KEY;
