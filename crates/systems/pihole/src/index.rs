//! The requests of Ingresses, folded from the watch: hosts, target, dates. No object is kept.
//!
//! ```text
//! Ingress ── read() ──► Claimant ──► index ──touch──► queue (one key per Pi-hole)
//!                                      ├─ released: hosts that lost their last known claim while we watched
//!                                      └─ standings: what the last good pass of each Pi-hole found
//! ```
//! An Ingress that asks for nothing and shows no trace of us takes no memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signpost_apis::ingress::Ingress;
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Index, ObjectId, Queue, Touch, Touched};
use signpost_planning::{Reason, Refusal};
use tokio::time::Instant;

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
/// The hosts that we have registered: a view, written by us.
pub const MANAGED_HOSTS: &str = "pihole.io/managed-hosts";
/// Keeps an Ingress until its records are deleted, when switched on.
pub const FINALIZER: &str = "pihole.io/cleanup";

/// Hosts of one Ingress beyond this are left out: no honest Ingress has as many.
const MOST_HOSTS: usize = 1000;

/// The id of an Ingress.
pub type IngressId = Arc<ObjectId>;

/// The id of the Ingress of this name.
pub fn ingress_id(namespace: &str, name: &str) -> IngressId {
    Arc::new(ObjectId::new::<Ingress>(Some(namespace), name))
}

/// The record of one type that an Ingress wants.
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
        /// The error.
        error: String,
    },
    /// A host, from the rules or from the annotation.
    Host {
        /// The host, shortened.
        host: String,
        /// The error.
        error: String,
    },
    /// It asks for records but names no usable host.
    NoHosts,
}

impl Problem {
    /// The reasons it may be reported under.
    pub const REASONS: [Reason; 3] = [Reason::InvalidAnnotation, Reason::InvalidHost, Reason::NoHosts];

    /// The problem as a refusal.
    pub fn refusal(&self) -> Refusal {
        let message = match self {
            Self::Annotation { annotation, value, error } => {
                format!("{annotation}: {value:?} cannot be used: {error}")
            }
            Self::Host { host, error } => format!("the host {host:?} cannot be registered: {error}"),
            Self::NoHosts => "no host to register: no rule and no pihole.io/hosts names one".to_owned(),
        };
        let reason = match self {
            Self::Annotation { .. } => Reason::InvalidAnnotation,
            Self::Host { .. } => Reason::InvalidHost,
            Self::NoHosts => Reason::NoHosts,
        };
        Refusal::new(reason, message)
    }
}

/// One Ingress, as far as this system is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Which, in which incarnation, with which finalizers.
    pub identity: Identity,
    /// Whether it asks for records.
    pub registered: bool,
    /// Its hosts, sorted, each once; empty when it does not ask for records or is being deleted.
    pub hosts: Vec<Fqdn>,
    /// Where they point.
    pub target: Target,
    /// The parts that could not be used.
    pub problems: Vec<Problem>,
    /// The view that is on it, written by us or forged.
    pub view: Option<Box<str>>,
}

impl Claimant {
    /// Which Ingress.
    pub fn id(&self) -> &IngressId {
        &self.identity.id
    }

    /// The hosts in the view that are names at all.
    pub fn viewed(&self) -> impl Iterator<Item = Fqdn> {
        self.view
            .iter()
            .flat_map(|view| view.split(','))
            .take(MOST_HOSTS)
            .filter_map(|name| Fqdn::parse(name.trim()).ok())
    }

    /// Whether our finalizer is there.
    pub fn has_finalizer(&self) -> bool {
        self.identity.finalizers.has(FINALIZER)
    }

    /// Whether our finalizer should be there.
    pub fn wants_finalizer(&self, use_finalizer: bool) -> bool {
        use_finalizer && self.registered && !self.identity.is_deleting()
    }

    /// Whether it is the same incarnation of the Ingress, asking for the same records.
    pub(crate) fn asks_the_same(&self, other: &Self) -> bool {
        (&self.identity.uid, &self.hosts, &self.target) == (&other.identity.uid, &other.hosts, &other.target)
    }

    /// Equal but for the version it was read at.
    fn same(&self, other: &Self) -> bool {
        let (one, two) = (&self.identity, &other.identity);
        (&one.uid, one.deleting_since, &one.finalizers) == (&two.uid, two.deleting_since, &two.finalizers)
            && (self.registered, &self.view, &self.problems) == (other.registered, &other.view, &other.problems)
            && (&self.hosts, &self.target) == (&other.hosts, &other.target)
    }

    fn is_alias(&self) -> bool {
        matches!(self.target, Target::Alias(_))
    }
}

/// Reads an Ingress; None when it has nothing to do with us. Pure.
pub fn read(ingress: &Ingress, default_target: Ipv4Addr, use_finalizer: bool) -> Option<Claimant> {
    let mut problems = Vec::new();
    let registered = match ingress.annotation(REGISTER) {
        Some("true") => true,
        None | Some("false") => false,
        Some(other) => {
            problems.push(annotation_problem(REGISTER, other, "only \"true\" registers an Ingress".to_owned()));
            false
        }
    };
    let identity = Identity::of(ingress);
    let view: Option<Box<str>> = ingress.annotation(MANAGED_HOSTS).map(Into::into);
    let finalizer = identity.finalizers.has(FINALIZER) || (use_finalizer && registered);
    if !registered && view.is_none() && !finalizer && problems.is_empty() {
        return None;
    }
    let active = registered && !identity.is_deleting();
    let hosts = if active { hosts_of(ingress, &mut problems) } else { Vec::new() };
    let target = if active { target_of(ingress, default_target, &mut problems) } else { Target::Keep };
    if active && hosts.is_empty() {
        problems.push(Problem::NoHosts);
    }
    Some(Claimant { identity, registered, hosts, target, problems, view })
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

/// A host that lost its last known claim, and the Pi-holes that have not confirmed that its record is deleted.
#[derive(Clone, Debug)]
struct Released {
    /// The last Ingress that claimed it.
    by: IngressId,
    /// Others that claimed it before, while no Pi-hole had confirmed: their finalizers wait as well.
    before: BTreeSet<IngressId>,
    pending: BTreeSet<String>,
    /// Whether a watch event showed it. A list without the object is not a proof: it may be incomplete.
    seen: bool,
    /// Which release it is, of all there have been.
    release: u64,
    /// Whether it was an alias.
    alias: bool,
}

/// The result of the last good pass of a Pi-hole. Shared, so that every pass can decide for all Pi-holes.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The hosts that have a record of ours; None before the first good pass.
    pub present: Option<Arc<BTreeSet<Fqdn>>>,
    /// Hosts whose oldest claim cannot be understood, and the Ingress that has them instead.
    pub yielded: Arc<BTreeMap<Fqdn, IngressId>>,
    /// The refusals, by Ingress.
    pub refusals: Arc<BTreeMap<IngressId, Vec<Refusal>>>,
    /// What is refused of one host, by Ingress and host.
    pub refused: Arc<BTreeMap<(IngressId, Fqdn), Refusal>>,
}

/// All Ingresses that concern us.
#[derive(Debug)]
pub struct IngressIndex {
    default_target: Ipv4Addr,
    use_finalizer: bool,
    instances: Vec<String>,
    queue: Queue<String, IngressId>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    claimants: BTreeMap<IngressId, Arc<Claimant>>,
    released: BTreeMap<Fqdn, Released>,
    releases: u64,
    unreadable: BTreeSet<ObjectId>,
    /// Views on their way to the API server: seeing them come back is not a change.
    expected: BTreeMap<IngressId, Option<String>>,
    standings: BTreeMap<String, Standing>,
    /// When something last changed, and when the change before that was.
    changed: [Instant; 2],
}

/// The index at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Every Ingress that concerns us, by id.
    pub claimants: Vec<Arc<Claimant>>,
    /// Hosts that lost their last claim while we watched, and who had it.
    pub released: BTreeMap<Fqdn, IngressId>,
    /// Of these, the ones that a watch event showed.
    pub seen: BTreeSet<Fqdn>,
    /// The number of releases so far. Later releases are not part of this snapshot.
    pub releases: u64,
    /// Whether some Ingress exists that could never be read: its claims are unknown.
    pub blind: bool,
}

impl Snapshot {
    /// One Ingress.
    pub fn claimant(&self, id: &ObjectId) -> Option<&Arc<Claimant>> {
        let place = self.claimants.binary_search_by(|claimant| (**claimant.id()).cmp(id)).ok()?;
        self.claimants.get(place)
    }
}

impl IngressIndex {
    /// An empty index that touches every one of `instances` when something changes.
    pub fn new(
        default_target: Ipv4Addr,
        use_finalizer: bool,
        instances: Vec<String>,
        queue: Queue<String, IngressId>,
    ) -> Self {
        let state = State {
            claimants: BTreeMap::new(),
            released: BTreeMap::new(),
            releases: 0,
            unreadable: BTreeSet::new(),
            expected: BTreeMap::new(),
            standings: instances.iter().map(|name| (name.clone(), Standing::default())).collect(),
            changed: [Instant::now(); 2],
        };
        Self { default_target, use_finalizer, instances, queue, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current state, for one instance.
    pub fn snapshot(&self, instance: &str) -> Snapshot {
        let state = self.lock();
        let released = || state.released.iter().filter(|(_, released)| released.pending.contains(instance));
        Snapshot {
            claimants: state.claimants.values().cloned().collect(),
            released: released().map(|(host, released)| (host.clone(), released.by.clone())).collect(),
            seen: released().filter(|(_, released)| released.seen).map(|(host, _)| host.clone()).collect(),
            releases: state.releases,
            blind: !state.unreadable.is_empty(),
        }
    }

    /// When something last changed, and when the change before that was.
    pub fn changed(&self) -> [Instant; 2] {
        self.lock().changed
    }

    /// Whether what was touched, or has lost its claim, is or was an alias.
    pub fn touches_aliases(&self, touched: &Touched<IngressId>) -> bool {
        let state = self.lock();
        let alias = |claimant: &Arc<Claimant>| claimant.is_alias();
        state.released.values().any(|released| released.alias)
            || match touched {
                Touched::All => state.claimants.values().any(alias),
                Touched::Some(ids) => ids.iter().filter_map(|id| state.claimants.get(id)).any(alias),
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

    /// The Ingresses with hosts that some Pi-hole has not confirmed yet: it may have a write of them under way.
    pub fn unconfirmed(&self) -> BTreeSet<IngressId> {
        let state = self.lock();
        let of = |released: &Released| released.before.iter().chain([&released.by]).cloned().collect::<Vec<_>>();
        state.released.values().flat_map(of).collect()
    }

    /// The standings of all Pi-holes, with `found` as that of one of them.
    pub fn stand(&self, instance: &str, found: Option<Standing>) -> Vec<Standing> {
        let mut state = self.lock();
        if let Some(found) = found {
            state.standings.insert(instance.to_owned(), found);
        }
        state.standings.values().cloned().collect()
    }

    /// What the last good pass of an instance found.
    pub(crate) fn standing(&self, instance: &str) -> Standing {
        self.lock().standings.get(instance).cloned().unwrap_or_default()
    }

    /// Views are on their way: when they come back by the watch, nothing needs to be done.
    pub fn expect_views(&self, views: impl IntoIterator<Item = (IngressId, Option<String>)>) {
        self.lock().expected.extend(views);
    }

    fn replace(&self, id: &IngressId, new: Option<Claimant>) {
        let mut state = self.lock();
        let new = new.map(Arc::new);
        let old = match &new {
            Some(new) => state.claimants.insert(id.clone(), Arc::clone(new)),
            None => state.claimants.remove(id),
        };
        if old.is_none() && new.is_none() {
            return;
        }
        for problem in new_problems(old.as_deref(), new.as_deref()) {
            log_problem(id, problem);
        }
        if let (Some(old), Some(new)) = (&old, &new) {
            let view_only = Claimant { view: new.view.clone(), ..(**old).clone() };
            let expected = state.expected.get(id).is_some_and(|view| view.as_deref() == new.view.as_deref());
            if expected {
                state.expected.remove(id);
            }
            // A finalizer is written with the version it was read at: when that was too old, the newer one is a change.
            let settled = new.has_finalizer() == new.wants_finalizer(self.use_finalizer);
            if settled && (old.same(new) || (expected && view_only.same(new))) {
                return;
            }
        }
        if new.is_none() {
            state.expected.remove(id);
        }
        let kept = new.as_ref().map(|new| new.hosts.as_slice()).unwrap_or_default();
        for host in old.iter().flat_map(|old| &old.hosts).filter(|host| kept.binary_search(host).is_err()) {
            let pending = self.instances.iter().cloned().collect();
            state.releases += 1;
            let release = state.releases;
            let alias = old.as_ref().is_some_and(|old| old.is_alias());
            let former = state.released.remove(host);
            let before =
                former.map(|former| former.before.into_iter().chain([former.by]).collect()).unwrap_or_default();
            let released = Released { by: id.clone(), before, pending, seen: true, release, alias };
            state.released.insert(host.clone(), released);
        }
        state.changed = [Instant::now(), state.changed[0]];
        drop(state);
        for instance in &self.instances {
            self.queue.touch(instance.clone(), Touch::One(id.clone()));
        }
    }
}

/// The problems that an Ingress did not have before.
fn new_problems<'a>(old: Option<&Claimant>, new: Option<&'a Claimant>) -> impl Iterator<Item = &'a Problem> {
    let before: BTreeSet<Problem> = old.iter().flat_map(|old| old.problems.iter().cloned()).collect();
    new.into_iter().flat_map(|new| &new.problems).filter(move |problem| !before.contains(problem))
}

fn log_problem(id: &ObjectId, problem: &Problem) {
    let ingress = id.path();
    match problem {
        Problem::Annotation { annotation, value, error } => {
            tracing::warn!(ingress, annotation, value, error, "invalid annotation");
        }
        Problem::Host { host, error } => tracing::warn!(ingress, host, error, "invalid host"),
        Problem::NoHosts => tracing::warn!(ingress, "ingress skipped (no hosts)"),
    }
}

impl Index<Ingress> for IngressIndex {
    fn applied(&self, object: &Ingress) {
        let id = Arc::new(ObjectId::of(object));
        self.lock().unreadable.remove(&*id);
        self.replace(&id, read(object, self.default_target, self.use_finalizer));
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().unreadable.remove(id);
        self.replace(&Arc::new(id.clone()), None);
    }

    fn unreadable(&self, object: &Identity, _error: &str) {
        let (id, mut state) = (&*object.id, self.lock());
        if !state.claimants.contains_key(id) {
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
mod tests;
