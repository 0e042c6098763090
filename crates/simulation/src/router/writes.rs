//! The checks at every write of the operator: nothing foreign is changed, no name is withdrawn without a decision, no host is in two Istio
//! Gateways of the same pods.
//!
//! ```text
//! the object before the write ─┬─► a name or a host that it has lost ─► a state of the cluster, not long ago, in which nobody asked for it?
//! the object after the write ──┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Key, RouterBed, WITHDRAW_AFTER,
    action::{Kind, MANAGED_BY},
    lock,
    model::{Record, State, Thing},
};

/// After so long, the sender of a request has given it up and may have decided otherwise since.
const GIVEN_UP: Duration = Duration::from_secs(9);
/// After so long without faults, the operator knows of a write, and of what users did.
const KNOWN: Duration = Duration::from_secs(3);

/// A DNSEndpoint of a route.
struct Pointer {
    /// The names that it points at.
    targets: BTreeSet<String>,
    /// The namespace and name of its route.
    route: (String, String),
}

/// A DNSEndpoint as the operator wrote it.
#[derive(Clone, Debug)]
struct Endpoint {
    thing: Thing,
    written: Instant,
    /// Whether a user has changed it since.
    edited: bool,
}

/// The generated objects as the operator wrote them.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<Key, Endpoint>);

impl Seen {
    /// Forgets the objects of a kind that are not there any more.
    pub fn retain(&mut self, kind: Kind, there: &[Thing]) {
        let is_there = |key: &Key| there.iter().any(|thing| thing.path() == (&key.1, &key.2));
        self.0.retain(|key, _| key.0 != kind || is_there(key));
    }

    /// A user deletes an object.
    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// A user changes an object.
    pub fn edited(&mut self, key: &Key) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.edited = true;
        }
    }
}

/// The records of a DNSEndpoint.
pub fn records(thing: &Thing) -> Vec<Record> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let endpoints = thing.spec["endpoints"].as_array().into_iter().flatten();
    let record = |endpoint: &serde_json::Value| {
        let targets = endpoint["targets"].as_array().into_iter().flatten().map(text).collect();
        (text(&endpoint["dnsName"]), text(&endpoint["recordType"]), targets)
    };
    endpoints.map(record).collect()
}

/// The names of a DNSEndpoint, and whether they are aliases.
fn names(thing: &Thing) -> BTreeSet<(String, bool)> {
    records(thing).into_iter().map(|(name, rtype, _)| (name, rtype == "CNAME")).collect()
}

/// The pods of an Istio Gateway, and its hosts.
pub fn hosts(thing: &Thing) -> (String, BTreeSet<String>) {
    let servers = thing.spec["servers"].as_array().into_iter().flatten();
    let https = servers.filter(|server| server["port"]["number"] == 443);
    let hosts = https.flat_map(|server| server["hosts"].as_array().cloned().unwrap_or_default());
    let pods = thing.spec["selector"]["istio"].as_str().unwrap_or_default().to_owned();
    (pods, hosts.filter_map(|host| host.as_str().map(str::to_owned)).collect())
}

/// Whether two foreign objects are the same, apart from what others report about them.
pub fn is_same(one: &Thing, other: &Thing) -> bool {
    (&one.uid, &one.labels, &one.annotations, &one.owners, &one.spec)
        == (&other.uid, &other.labels, &other.annotations, &other.owners, &other.spec)
}

fn key_of(path: &str) -> Option<Key> {
    let parts: Vec<&str> = path.trim_start_matches("/apis/").split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        ["externaldns.k8s.io", _, "namespaces", namespace, "dnsendpoints", name] => {
            (Kind::DnsEndpoint, namespace, name)
        }
        ["networking.istio.io", _, "namespaces", namespace, "gateways", name] => (Kind::IstioGateway, namespace, name),
        _ => return None,
    };
    Some((kind, (*namespace).to_owned(), (*name).to_owned()))
}

impl RouterBed {
    /// The operator wrote an object.
    pub(super) async fn written(&self, path: &str) {
        let Some(key) = key_of(path) else { return };
        let late = self.world.sent().elapsed() > GIVEN_UP;
        if self.acting.load(Ordering::Relaxed) > 0 {
            self.snapshot().await;
        }
        let live = self.get(key.0, &key.1, &key.2).await;
        let foreign = lock(&self.foreign).get(&key).cloned();
        if let Some(foreign) = foreign {
            if !live.as_ref().is_some_and(|live| is_same(live, &foreign)) {
                self.world.violation(format!("{key:?} is foreign and was {foreign:?}; the operator made it {live:?}"));
            }
            return;
        }
        // A user makes it at this moment.
        if live.as_ref().is_some_and(|live| live.label(MANAGED_BY.0) != MANAGED_BY.1 && live.owners.is_empty()) {
            return;
        }
        let before = {
            let mut seen = lock(&self.seen);
            let before = seen.0.remove(&key);
            if let Some(thing) = live.clone() {
                seen.0.insert(key.clone(), Endpoint { thing, written: Instant::now(), edited: false });
            }
            before
        };
        if key.0 == Kind::DnsEndpoint {
            if let Some(before) = before.filter(|before| !before.edited) {
                let of_route = before.thing.owners.iter().any(|(kind, ..)| kind == "ServiceRoute");
                let pointers = if of_route { Vec::new() } else { self.pointers().await };
                self.endpoint_written(&before, live.as_ref(), &pointers);
            }
        } else {
            self.istio_written(&key, before.filter(|before| !before.edited).as_ref(), live.as_ref(), late);
        }
    }

    /// The states that the operator may have acted on when it changed what it wrote at that time.
    fn states_since(&self, written: Instant) -> Vec<(Instant, Arc<State>)> {
        let minutes = Duration::from_mins;
        let (before, within) =
            if self.is_disturbed() { (minutes(10), minutes(20)) } else { (Duration::from_secs(2), minutes(6)) };
        let earlier = |time: Instant, by: Duration| time.checked_sub(by).unwrap_or(self.began);
        let since = earlier(written, before).max(earlier(Instant::now(), within));
        let states = lock(&self.states);
        // The last state that began before counts too.
        let first = states.iter().rposition(|(began, _)| *began < since).unwrap_or(0);
        states[first..].to_vec()
    }

    /// The DNSEndpoints of routes that the operator wrote and must know of by now.
    async fn pointers(&self) -> Vec<Pointer> {
        if self.is_disturbed() {
            return Vec::new();
        }
        let live = self.list(Kind::DnsEndpoint).await;
        let seen = lock(&self.seen);
        let pointer = |thing: &Thing| {
            let entry = seen.0.get(&(Kind::DnsEndpoint, thing.namespace.clone(), thing.name.clone()))?;
            let is_same = entry.thing.uid == thing.uid && records(&entry.thing) == records(thing);
            let is_known = is_same && !entry.edited && entry.written.elapsed() > KNOWN;
            let (_, route, _) = thing.owners.iter().find(|(kind, ..)| kind == "ServiceRoute").filter(|_| is_known)?;
            let targets = records(thing).into_iter().filter(|(_, rtype, _)| rtype == "CNAME");
            let targets = targets.flat_map(|(.., targets)| targets).collect();
            Some(Pointer { targets, route: (thing.namespace.clone(), route.clone()) })
        };
        live.iter().filter_map(pointer).collect()
    }

    /// Whether a route follows the name of its Gateway, as the operator must know by now.
    fn moves(&self, route: &(String, String)) -> bool {
        let states = lock(&self.states);
        let first = states.iter().rposition(|(began, _)| began.elapsed() > KNOWN).unwrap_or(0);
        let has_gateway = |state: &State| {
            let route = state.get(Kind::ServiceRoute, &route.0, &route.1);
            route.is_some_and(|route| state.has_gateway(route))
        };
        states[first..].iter().all(|(_, state)| has_gateway(state))
    }

    fn endpoint_written(&self, before: &Endpoint, after: Option<&Thing>, pointers: &[Pointer]) {
        let (old, controller) = (&before.thing, before.thing.label("router.io/controller"));
        let kept = match after {
            Some(after) if after.label("router.io/controller") == controller => names(after),
            _ => BTreeSet::new(),
        };
        for (host, alias) in names(old).difference(&kept) {
            let publishes = |entry: &Endpoint| {
                let same = entry.thing.label("router.io/controller") == controller;
                same && names(&entry.thing).iter().any(|(name, _)| name == host)
            };
            let elsewhere =
                lock(&self.seen).0.iter().any(|(key, entry)| key.0 == Kind::DnsEndpoint && publishes(entry));
            // Another type of record at the name is not the same answer, but no gap either; the twin looks at the order.
            if elsewhere {
                continue;
            }
            let states = self.states_since(before.written);
            let decided = match old.owners.iter().find(|(kind, ..)| kind == "ServiceRoute") {
                Some((_, route, _)) => {
                    let route = (old.namespace.as_str(), route.as_str());
                    states.iter().any(|(_, state)| state.withdraws_route(route, controller, host))
                }
                None => self.withdraws_target(old, &states, controller, (host, *alias), pointers),
            };
            if !decided {
                self.world.violation(format!(
                    "{host} is withdrawn from {controller} without a decision: DNSEndpoint {}/{} becomes {:?}",
                    old.namespace,
                    old.name,
                    after.map(|after| &after.spec)
                ));
            }
        }
    }

    fn withdraws_target(
        &self,
        old: &Thing,
        states: &[(Instant, Arc<State>)],
        controller: &str,
        (host, alias): (&str, bool),
        pointers: &[Pointer],
    ) -> bool {
        let pointers: Vec<&Pointer> = pointers.iter().filter(|pointer| pointer.targets.contains(host)).collect();
        let (pointed_at, awaited) = (!pointers.is_empty(), pointers.iter().any(|pointer| self.moves(&pointer.route)));
        let target = (old.label("router.io/istio-controller"), old.label("router.io/target-postfix"));
        let has_service = |state: &State| {
            let mut services = old.owners.iter().filter(|(kind, ..)| kind == "Service");
            services.any(|(_, name, _)| state.get(Kind::Service, &old.namespace, name).is_some())
        };
        let decided =
            |state: &State| state.withdraws_target(target, controller, host, alias, pointed_at) || !has_service(state);
        let is_absent = |state: &State| state.gateways(target.0, target.1).next().is_none();
        let (mut since, mut longest) = (None, None);
        let ends = states.iter().skip(1).map(|(began, _)| *began).chain([Instant::now()]);
        for ((began, state), end) in states.iter().zip(ends) {
            since = is_absent(state).then(|| since.unwrap_or(*began));
            longest = longest.max(since.map(|since: Instant| end.duration_since(since)));
        }
        // The operator may have learned of it a moment later. A Gateway that has another name now is not a deleted one.
        let enough =
            |longest: Duration| self.is_disturbed() || (!awaited && longest + Duration::from_secs(2) >= WITHDRAW_AFTER);
        longest.is_some_and(enough) || states.iter().any(|(_, state)| decided(state))
    }

    fn istio_written(&self, key: &Key, before: Option<&Endpoint>, after: Option<&Thing>, late: bool) {
        let gateway = (key.1.as_str(), key.2.as_str());
        let (pods, new) = after.map(hosts).unwrap_or_default();
        let (old_pods, old) = before.map(|before| hosts(&before.thing)).unwrap_or_default();
        if let Some(before) = before {
            let states = self.states_since(before.written);
            let unwanted = |state: &State, host: &str| {
                state.get(Kind::Gateway, gateway.0, gateway.1).is_none()
                    || (state.identity().is_some() && !state.wants_host(gateway, host))
            };
            for host in old.difference(&new) {
                if !states.iter().any(|(_, state)| unwanted(state, host)) {
                    self.world.violation(format!("Istio Gateway {gateway:?} loses {host} without a decision"));
                }
            }
        }
        // Nobody can take back a request that is on its way. It is corrected when it is seen.
        if late {
            return;
        }
        let added: Vec<&String> = new.iter().filter(|host| pods != old_pods || !old.contains(*host)).collect();
        let seen = lock(&self.seen);
        let others =
            seen.0.iter().filter(|(other, entry)| other.0 == Kind::IstioGateway && *other != key && !entry.edited);
        for (other, entry) in others {
            let (their_pods, theirs) = hosts(&entry.thing);
            if let Some(host) = added.iter().find(|host| their_pods == pods && theirs.contains(**host)) {
                let what = format!(
                    "{host} is in the Istio Gateways {gateway:?} and {:?} of the pods {pods}",
                    (&other.1, &other.2)
                );
                self.world.violation(what);
            }
        }
    }
}
