//! What Ingresses ask for, folded from the watch: hosts, target, dates. No object is kept.
//!
//! ```text
//! Ingress ── read() ──► Claimant ──► index ──touch──► queue (one key per Pi-hole)
//!                                      └─ released: hosts that lost their last known claim while we looked
//! ```
//! An Ingress that asks for nothing and shows no trace of us takes no memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use signpost_apis::ingress::Ingress;
use signpost_dns::Fqdn;
use signpost_engine::{Index, ObjectId, Queue, Touch, Touched};
use tokio::time::Instant;

use crate::plan::Reason;

/// Asks for records.
pub const REGISTER: &str = "pihole.io/register";
/// Replaces the hosts of the rules.
pub const HOSTS: &str = "pihole.io/hosts";
/// Replaces the default address.
pub const TARGET_IP: &str = "pihole.io/target-ip";
/// Adds an IPv6 address.
pub const TARGET_IPV6: &str = "pihole.io/target-ipv6";
/// Makes aliases instead of addresses.
pub const TARGET_CNAME: &str = "pihole.io/target-cname";
/// What we have registered: a view, written by us.
pub const MANAGED_HOSTS: &str = "pihole.io/managed-hosts";
/// Holds an Ingress until its records are gone, when switched on.
pub const FINALIZER: &str = "pihole.io/cleanup";

/// Hosts of one Ingress beyond this are left out: no honest Ingress has as many.
const MOST_HOSTS: usize = 1000;

/// `namespace/name` of an Ingress.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IngressKey(Arc<str>);

impl IngressKey {
    /// From its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The engine's id.
    pub fn id(&self) -> ObjectId {
        let (namespace, name) = self.0.split_once('/').unwrap_or(("", &self.0));
        ObjectId::new("Ingress", Some(namespace), name)
    }
}

impl fmt::Display for IngressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IngressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an Ingress wants in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted<T> {
    /// Nothing.
    Nothing,
    /// It cannot be understood: leave whatever is there.
    Keep,
    /// This.
    Value(T),
}

/// Where the hosts of an Ingress point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// At addresses.
    Addresses {
        /// The A record.
        v4: Wanted<Ipv4Addr>,
        /// The AAAA record.
        v6: Wanted<Ipv6Addr>,
    },
    /// At another name.
    Alias(Fqdn),
    /// At something that cannot be understood: leave whatever is there.
    Keep,
}

/// Something in an Ingress that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// An annotation.
    Annotation {
        /// Its key.
        annotation: &'static str,
        /// Its value, shortened.
        value: String,
        /// What is wrong.
        error: String,
    },
    /// A host, from the rules or from the annotation.
    Host {
        /// The host, shortened.
        host: String,
        /// What is wrong.
        error: String,
    },
    /// It asks for records but names no usable host.
    NoHosts,
}

impl Problem {
    /// The reason it is reported under.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Annotation { .. } => Reason::InvalidAnnotation,
            Self::Host { .. } => Reason::InvalidHost,
            Self::NoHosts => Reason::NoHosts,
        }
    }
}

/// One Ingress, as far as this system is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Which.
    pub key: IngressKey,
    /// Which life of it.
    pub uid: Box<str>,
    /// Since when.
    pub since: Timestamp,
    /// Its hosts, sorted, each once; empty when it does not ask for records or is being deleted.
    pub hosts: Vec<Fqdn>,
    /// Where they point.
    pub target: Target,
    /// What could not be used.
    pub problems: Vec<Problem>,
    /// The view we (or somebody else) wrote.
    pub view: Option<Box<str>>,
    /// All its finalizers, when ours matters.
    pub finalizers: Option<Box<Finalizers>>,
}

/// What it takes to change the finalizers of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finalizers {
    /// All of them.
    pub list: Vec<String>,
    /// The version they were read at.
    pub resource_version: String,
    /// Since when the Ingress is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether it asks for records.
    pub registered: bool,
}

impl Finalizers {
    /// Whether ours is there.
    pub fn has_ours(&self) -> bool {
        self.list.iter().any(|name| name == FINALIZER)
    }

    /// Whether ours should be there.
    pub fn wants_ours(&self, use_finalizer: bool) -> bool {
        use_finalizer && self.registered && self.deleting.is_none()
    }
}

impl Claimant {
    /// The hosts in the view that are names at all.
    pub fn viewed(&self) -> impl Iterator<Item = Fqdn> {
        self.view
            .iter()
            .flat_map(|view| view.split(','))
            .take(MOST_HOSTS)
            .filter_map(|name| Fqdn::parse(name.trim()).ok())
    }

    /// Whether it is the same life of the Ingress, asking for the same records.
    pub(crate) fn asks_the_same(&self, other: &Self) -> bool {
        (&self.uid, &self.hosts, &self.target) == (&other.uid, &other.hosts, &other.target)
    }

    /// Equal but for the version it was read at.
    fn same(&self, other: &Self) -> bool {
        let without_version = |claimant: &Self| {
            let mut copy = claimant.clone();
            if let Some(finalizers) = &mut copy.finalizers {
                finalizers.resource_version.clear();
            }
            copy
        };
        without_version(self) == without_version(other)
    }
}

/// Reads an Ingress; None when it has nothing to do with us. Pure.
pub fn read(ingress: &Ingress, default_target: Ipv4Addr, use_finalizer: bool) -> Option<Claimant> {
    let meta = &ingress.metadata;
    let mut problems = Vec::new();
    let registered = match ingress.annotation(REGISTER) {
        Some("true") => true,
        None | Some("false") => false,
        Some(other) => {
            problems.push(annotation_problem(REGISTER, other, "only \"true\" registers an Ingress".to_owned()));
            false
        }
    };
    let deleting = meta.deletion_timestamp.as_ref().map(|time| time.0);
    let list = meta.finalizers.clone().unwrap_or_default();
    let ours = list.iter().any(|name| name == FINALIZER);
    let finalizers = (ours || (use_finalizer && registered)).then(|| {
        let resource_version = meta.resource_version.clone().unwrap_or_default();
        Box::new(Finalizers { list, resource_version, deleting, registered })
    });
    let view: Option<Box<str>> = ingress.annotation(MANAGED_HOSTS).map(Into::into);
    if !registered && view.is_none() && finalizers.is_none() && problems.is_empty() {
        return None;
    }
    let active = registered && deleting.is_none();
    let hosts = if active { hosts_of(ingress, &mut problems) } else { Vec::new() };
    let target = if active { target_of(ingress, default_target, &mut problems) } else { Target::Keep };
    if active && hosts.is_empty() {
        problems.push(Problem::NoHosts);
    }
    Some(Claimant {
        key: IngressKey::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        since: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        hosts,
        target,
        problems,
        view,
        finalizers,
    })
}

fn hosts_of(ingress: &Ingress, problems: &mut Vec<Problem>) -> Vec<Fqdn> {
    let names: Vec<&str> = match ingress.annotation(HOSTS) {
        Some(list) => list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect(),
        None => ingress.hosts().collect(),
    };
    let mut hosts = BTreeSet::new();
    if let Some(beyond) = names.get(MOST_HOSTS) {
        let error = format!("one Ingress registers {MOST_HOSTS} hosts at most; this one and what follows is left out");
        problems.push(Problem::Host { host: shorten(beyond), error });
    }
    for name in names.into_iter().take(MOST_HOSTS) {
        match own_host(name) {
            Ok(host) => {
                hosts.insert(host);
            }
            Err(error) => problems.push(Problem::Host { host: shorten(name), error }),
        }
    }
    hosts.into_iter().collect()
}

/// A name that a Pi-hole line can hold.
fn usable_host(name: &str) -> Result<Fqdn, String> {
    let host = Fqdn::parse(name).map_err(|error| error.to_string())?;
    let text = host.undotted();
    if host.is_wildcard() {
        return Err("a wildcard cannot be a local DNS record of a Pi-hole".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) || host.is_root() {
        return Err("a host name holds letters, digits, '-', '_' and dots only".to_owned());
    }
    let last = text.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("an address is not a host name".to_owned());
    }
    if last.starts_with('-') || last.ends_with('-') {
        return Err("the last part of a host name neither starts nor ends with '-'; a Pi-hole refuses it".to_owned());
    }
    Ok(host)
}

/// A name that a Pi-hole can hold a record for.
fn own_host(name: &str) -> Result<Fqdn, String> {
    let host = usable_host(name)?;
    if host.undotted() == "pi.hole" {
        return Err("pi.hole is the Pi-hole's own name, which it answers with its own address".to_owned());
    }
    Ok(host)
}

fn target_of(ingress: &Ingress, default_target: Ipv4Addr, problems: &mut Vec<Problem>) -> Target {
    if let Some(value) = ingress.annotation(TARGET_CNAME) {
        return match usable_host(value.trim()) {
            Ok(name) => Target::Alias(name),
            Err(error) => {
                problems.push(annotation_problem(TARGET_CNAME, value, error));
                Target::Keep
            }
        };
    }
    let v4 = address(ingress, TARGET_IP, "not an IPv4 address", problems).unwrap_or(Wanted::Value(default_target));
    let v6 = address(ingress, TARGET_IPV6, "not an IPv6 address", problems).unwrap_or(Wanted::Nothing);
    Target::Addresses { v4, v6 }
}

/// The address in an annotation; None when there is no such annotation.
fn address<T: FromStr>(
    ingress: &Ingress,
    annotation: &'static str,
    expected: &str,
    problems: &mut Vec<Problem>,
) -> Option<Wanted<T>> {
    let value = ingress.annotation(annotation)?;
    Some(value.trim().parse().map_or_else(
        |_| {
            problems.push(annotation_problem(annotation, value, expected.to_owned()));
            Wanted::Keep
        },
        Wanted::Value,
    ))
}

fn annotation_problem(annotation: &'static str, value: &str, error: String) -> Problem {
    Problem::Annotation { annotation, value: shorten(value), error }
}

fn shorten(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(120).collect()
}

/// A host that lost its last known claim, and the Pi-holes that have not confirmed that its record is gone.
#[derive(Clone, Debug)]
struct Released {
    by: IngressKey,
    pending: BTreeSet<String>,
    /// Whether an event told of it. A list that lacks an object may be a list of less than there was.
    seen: bool,
    /// Which release it is, of all there have been.
    release: u64,
    /// Whether it was an alias.
    alias: bool,
}

/// All Ingresses that concern us.
#[derive(Debug)]
pub struct IngressIndex {
    default_target: Ipv4Addr,
    use_finalizer: bool,
    instances: Vec<String>,
    queue: Queue<String, IngressKey>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    claimants: BTreeMap<IngressKey, Arc<Claimant>>,
    released: BTreeMap<Fqdn, Released>,
    releases: u64,
    unreadable: BTreeSet<ObjectId>,
    /// Views on their way to the API server: seeing them come back is no news.
    expected: BTreeMap<IngressKey, Option<String>>,
    /// When something last changed, and when the change before that was.
    changed: [Instant; 2],
}

/// What the index knows at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Every Ingress that concerns us, by key.
    pub claimants: Vec<Arc<Claimant>>,
    /// Hosts that lost their last claim while we looked, and who had it.
    pub released: BTreeMap<Fqdn, IngressKey>,
    /// Of these, the ones an event told of.
    pub seen: BTreeSet<Fqdn>,
    /// How many releases there had been: what is released again after that, this knows nothing of.
    pub releases: u64,
    /// Whether some Ingress exists that could never be read: its claims are unknown.
    pub blind: bool,
    /// Whether an alias is among the hosts that lost their last claim.
    pub alias_released: bool,
}

impl Snapshot {
    /// One Ingress.
    pub fn claimant(&self, key: &IngressKey) -> Option<Arc<Claimant>> {
        let place = self.claimants.binary_search_by(|claimant| claimant.key.cmp(key)).ok()?;
        self.claimants.get(place).cloned()
    }
}

impl IngressIndex {
    /// An empty index that touches every one of `instances` when something changes.
    pub fn new(
        default_target: Ipv4Addr,
        use_finalizer: bool,
        instances: Vec<String>,
        queue: Queue<String, IngressKey>,
    ) -> Self {
        let state = State {
            claimants: BTreeMap::new(),
            released: BTreeMap::new(),
            releases: 0,
            unreadable: BTreeSet::new(),
            expected: BTreeMap::new(),
            changed: [Instant::now(); 2],
        };
        Self { default_target, use_finalizer, instances, queue, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known now, for one instance.
    pub fn snapshot(&self, instance: &str) -> Snapshot {
        let state = self.lock();
        let released = || state.released.iter().filter(|(_, released)| released.pending.contains(instance));
        Snapshot {
            claimants: state.claimants.values().cloned().collect(),
            released: released().map(|(host, released)| (host.clone(), released.by.clone())).collect(),
            seen: released().filter(|(_, released)| released.seen).map(|(host, _)| host.clone()).collect(),
            releases: state.releases,
            blind: !state.unreadable.is_empty(),
            alias_released: released().any(|(_, released)| released.alias),
        }
    }

    /// One Ingress.
    pub fn claimant(&self, key: &IngressKey) -> Option<Arc<Claimant>> {
        self.lock().claimants.get(key).cloned()
    }

    /// The Ingresses in which something cannot be used.
    pub fn with_problems(&self) -> Vec<Arc<Claimant>> {
        let state = self.lock();
        state.claimants.values().filter(|claimant| !claimant.problems.is_empty()).cloned().collect()
    }

    /// When something last changed, and when the change before that was.
    pub fn changed(&self) -> [Instant; 2] {
        self.lock().changed
    }

    /// Whether what was touched, or has lost its claim, is or was an alias.
    pub fn touches_aliases(&self, touched: &Touched<IngressKey>) -> bool {
        let state = self.lock();
        let alias = |claimant: &Arc<Claimant>| matches!(claimant.target, Target::Alias(_));
        state.released.values().any(|released| released.alias)
            || match touched {
                Touched::All => state.claimants.values().any(alias),
                Touched::Some(keys) => keys.iter().filter_map(|key| state.claimants.get(key)).any(alias),
            }
    }

    /// One instance has confirmed that these hosts, released as the snapshot knows it, have no record of ours left, or a new claim.
    pub fn confirm(&self, instance: &str, snapshot: &Snapshot, hosts: impl IntoIterator<Item = Fqdn>) {
        let mut state = self.lock();
        for host in hosts {
            if let Some(released) = state.released.get_mut(&host).filter(|it| it.release <= snapshot.releases) {
                released.pending.remove(instance);
                if released.pending.is_empty() {
                    state.released.remove(&host);
                }
            }
        }
    }

    /// A view is on its way: when it comes back by the watch, nothing needs to be done.
    pub fn expect_view(&self, key: &IngressKey, view: Option<String>) {
        self.lock().expected.insert(key.clone(), view);
    }

    fn replace(&self, key: &IngressKey, new: Option<Claimant>) {
        let mut state = self.lock();
        let new = new.map(Arc::new);
        let old = match &new {
            Some(new) => state.claimants.insert(key.clone(), Arc::clone(new)),
            None => state.claimants.remove(key),
        };
        if old.is_none() && new.is_none() {
            return;
        }
        if let (Some(old), Some(new)) = (&old, &new) {
            let view_only = Claimant { view: new.view.clone(), ..(**old).clone() };
            let expected = state.expected.get(key).is_some_and(|view| view.as_deref() == new.view.as_deref());
            if expected {
                state.expected.remove(key);
            }
            // A finalizer is written with the version it was read at: when that was too old, the newer one is news.
            let finalizers = new.finalizers.as_ref();
            let settled = finalizers.is_none_or(|it| it.has_ours() == it.wants_ours(self.use_finalizer));
            if settled && (old.same(new) || (expected && view_only.same(new))) {
                return;
            }
        }
        if new.is_none() {
            state.expected.remove(key);
        }
        let kept = new.as_ref().map(|new| new.hosts.as_slice()).unwrap_or_default();
        for host in old.iter().flat_map(|old| &old.hosts).filter(|host| kept.binary_search(host).is_err()) {
            let pending = self.instances.iter().cloned().collect();
            state.releases += 1;
            let release = state.releases;
            let alias = old.as_ref().is_some_and(|old| matches!(old.target, Target::Alias(_)));
            state.released.insert(host.clone(), Released { by: key.clone(), pending, seen: true, release, alias });
        }
        state.changed = [Instant::now(), state.changed[0]];
        drop(state);
        for instance in &self.instances {
            self.queue.touch(instance.clone(), Touch::One(key.clone()));
        }
    }
}

impl Index<Ingress> for IngressIndex {
    fn applied(&self, object: &Ingress) {
        let id = ObjectId::of(object);
        self.lock().unreadable.remove(&id);
        let key = IngressKey::new(id.namespace.as_deref().unwrap_or_default(), &id.name);
        self.replace(&key, read(object, self.default_target, self.use_finalizer));
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().unreadable.remove(id);
        self.replace(&IngressKey::new(id.namespace.as_deref().unwrap_or_default(), &id.name), None);
    }

    fn unreadable(&self, id: &ObjectId, _error: &str) {
        let key = IngressKey::new(id.namespace.as_deref().unwrap_or_default(), &id.name);
        let mut state = self.lock();
        if !state.claimants.contains_key(&key) {
            state.unreadable.insert(id.clone());
        }
    }

    fn listed(&self) {
        for released in self.lock().released.values_mut() {
            released.seen = false;
        }
        for instance in &self.instances {
            self.queue.touch(instance.clone(), Touch::All);
        }
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
