//! One watch stream per kind and scope for the whole process, folded into the indexes of the systems that asked for it.
//!
//! ```text
//!  LIST (pages) ─► guard ─► seen table ─► Index::applied / unreadable / deleted   new or changed objects only
//!  WATCH ────────►   │          └─ after a complete list: objects not in it are deleted
//!                    └─ an object that cannot be parsed is reported by name (log, metric, event); other objects are not affected
//! ```
//!
//! Objects are not kept: the seen table has a name and two hashes for each. kube's `watcher` is not used: it has no deadline for a list or
//! for the start of a watch, and it does not report whether the watch was opened. A cluster that allows LIST and denies WATCH would look
//! like a complete view that never changes.
//!
//! A replica that is elected lists every kind again before its systems act on the view: its own watch may have been denied, throttled or
//! silently dead since an object was created that the leader before it has published. See [`KindStatus::fresh`].
//!
//! The list itself shows whether a kind is installed: 404 means no, and it is retried every few seconds. Discovery would be a second source
//! for the same fact, which lags behind and can fail on its own.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;

use crate::{
    clock::Clock,
    events::Recorder,
    health::{Check, Health},
    lease::Election,
    metrics::Metrics,
    object::{Identity, Kind, ObjectId},
    permissions::Permission,
    refusals::Refusals,
    write::Writer,
};

mod guard;
mod page;
mod seen;
mod stream;

/// A system's index for one kind. Interior mutability, cheap, no I/O; it touches its queue itself.
pub trait Index<K>: Send + Sync + 'static {
    /// The object was created or changed. Not called again for a version already seen.
    fn applied(&self, object: &K);
    /// The object is deleted. Called only when the API server reported it, or when a complete list did not have it.
    fn deleted(&self, id: &ObjectId);
    /// The object exists but cannot be parsed: keep what is known of it.
    fn unreadable(&self, object: &Identity, error: &str) {
        let _ = (object, error);
    }
    /// A complete list has been processed.
    fn listed(&self) {}
    /// Objects that we created were deleted before the watch delivered them, so [`Index::deleted`] is not called for them. Which ones is not
    /// known here: touch every key that has children of this kind.
    fn children_lost(&self) {}
    /// The cluster was restored from an older state: versions seen so far cannot be compared with those to come.
    fn rewound(&self) {}
}

/// Whether a system can do without a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Watched when it is installed; picked up when its CRD appears. When it is installed, the system waits for its first list. A kind that
    /// may not be listed counts as one that is not installed, unless this replica has an old view of it (see [`KindStatus::old`]).
    Optional,
    /// The system does not drive without it.
    Required,
}

/// The objects of a kind that a system watches.
///
/// ```
/// use signpost_engine::Watch;
/// let everything = Watch::required();
/// let ours = Watch::optional().labels("app.kubernetes.io/managed-by=signpost");
/// let one = Watch::required().named("dns", "portal-ca");
/// # let _ = (everything, ours, one);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    pub(crate) need: Need,
    pub(crate) scope: Scope,
    pub(crate) reported: Option<&'static [&'static str]>,
    pub(crate) children: bool,
}

/// Which objects of a kind a stream delivers, and how much of them. Watches of one kind with equal scopes share a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    /// Instead of the namespace that the whole operator watches.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    pub(crate) metadata_only: bool,
}

impl Watch {
    fn new(need: Need) -> Self {
        Self { need, scope: Scope::default(), reported: None, children: false }
    }

    /// The system does not drive without this kind.
    pub fn required() -> Self {
        Self::new(Need::Required)
    }

    /// The system can do without this kind while it is not installed.
    pub fn optional() -> Self {
        Self::new(Need::Optional)
    }

    /// Only objects with these labels, as `kubectl --selector` takes them.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.scope.labels = Some(selector.into());
        self
    }

    /// Only objects with these fields, as `kubectl --field-selector` takes them.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.scope.fields = Some(selector.into());
        self
    }

    /// Only objects of this namespace, whatever namespace the operator watches otherwise.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.scope.namespace = Some(namespace.into());
        self
    }

    /// Only the object of this name. The permission can be given for that name alone (`resourceNames`).
    #[must_use]
    pub fn named(self, namespace: impl Into<String>, name: &str) -> Self {
        self.in_namespace(namespace).fields(format!("metadata.name={name}"))
    }

    /// Only metadata is fetched. The watched type must be kube's `PartialObjectMeta`.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.scope.metadata_only = true;
        self
    }

    /// The system writes the status of these objects. `times` are names of fields that only record when something happened: a status that
    /// differs only in them is not written. `lastTransitionTime` is always one of them.
    #[must_use]
    pub fn reported(mut self, times: &'static [&'static str]) -> Self {
        self.reported = Some(times);
        self
    }

    /// The system creates objects of this kind (see [`Writer::apply_child`]). They are compared with what is wanted as the watch reports
    /// them, so that an unchanged child costs no request.
    #[must_use]
    pub fn children(mut self) -> Self {
        self.children = true;
        self
    }
}

impl Scope {
    /// ` (labels a=b, namespace dns)`, or nothing for all objects.
    fn suffix(&self) -> String {
        let part = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
        let parts: Vec<String> =
            [part("namespace", &self.namespace), part("labels", &self.labels), part("fields", &self.fields)]
                .into_iter()
                .flatten()
                .chain(self.metadata_only.then(|| "metadata".to_owned()))
                .collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }
}

/// A type that can be watched.
pub trait Watched:
    kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
}

impl<K> Watched for K where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
}

/// The state of the view of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindState {
    /// The kind is not installed in the cluster.
    Missing,
    /// A permission is missing.
    Forbidden {
        /// Which: `list` or `watch`.
        verb: &'static str,
    },
    /// The first list is in progress, or the list that a replica makes when it is elected.
    Listing,
    /// The view is complete and the watch is open.
    Synced,
    /// The view is not current: lists or watches fail.
    Stale {
        /// Since when.
        since: Timestamp,
        /// Why.
        error: String,
    },
}

/// The status of the view of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// The systems that watch it, and whether each can do without it.
    pub systems: BTreeMap<&'static str, Need>,
    /// Its state.
    pub state: KindState,
    /// True once a complete list was processed and a watch was opened: from then on the view serves reads, though it may be old.
    pub complete: bool,
    /// True once a list was processed that began when this replica led, and a watch was opened after it: from then on its systems act on the
    /// view. Without leader election, the same as `complete`.
    pub fresh: bool,
    /// True once a list was processed that began before this replica led. Until the view is fresh, it may lack objects that the leader before
    /// has published.
    pub old: bool,
    /// Complete lists so far.
    pub lists: u64,
}

impl KindStatus {
    /// Whether `system` may drive as far as this kind is concerned.
    fn lets_drive(&self, system: &str) -> bool {
        match self.systems.get(system) {
            None => true,
            Some(Need::Required) => self.fresh,
            // A kind that may be listed and not watched has a view that is never current: it is waited for. So is a kind with an old view that
            // may no longer be listed. The objects of a kind that is not installed are deleted, so an old view of it lacks none of them.
            Some(Need::Optional) => match self.state {
                KindState::Missing => true,
                KindState::Forbidden { verb: "list" } => self.fresh || !self.old,
                _ => self.fresh,
            },
        }
    }

    /// Whether every system does without it: it is not installed, or may not be listed.
    fn is_left_out(&self) -> bool {
        let absent = match self.state {
            KindState::Missing => true,
            KindState::Forbidden { verb } => verb == "list" && !self.complete,
            KindState::Listing | KindState::Synced | KindState::Stale { .. } => false,
        };
        absent && self.systems.values().all(|need| *need == Need::Optional)
    }
}

/// The state of every watched kind, by `plural.group` (followed by its selectors where it has any).
pub type Kinds = BTreeMap<&'static str, KindStatus>;

/// True when `system` has a fresh view of every kind that it waits for. Kinds of other systems do not matter.
pub(crate) fn may_drive(kinds: &Kinds, system: &str) -> bool {
    kinds.values().all(|kind| kind.lets_drive(system))
}

/// The parts that all streams share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) namespace: Option<String>,
    pub(crate) page_size: u32,
    /// The server ends a watch after this long; it is then resumed.
    pub(crate) watch: Duration,
    pub(crate) election: Election,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) writer: Writer,
    pub(crate) refusals: Refusals,
    pub(crate) recorder: Recorder,
    pub(crate) kinds: watch::Sender<Kinds>,
    pub(crate) install_crds: String,
    pub(crate) seed: u64,
}

/// A kind to watch, whatever its type.
pub(crate) trait Stream: Any + Send {
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// `plural.group` and the selectors.
    fn name(&self) -> &'static str;
    fn kind(&self) -> &'static Kind;
    fn systems(&self) -> &BTreeMap<&'static str, Need>;
    fn run(self: Box<Self>, shared: Shared) -> BoxFuture<'static, ()>;
}

/// The indexes of one kind and scope.
pub(crate) struct Fold<K> {
    pub(crate) scope: Scope,
    pub(crate) systems: BTreeMap<&'static str, Need>,
    pub(crate) indexes: Vec<Arc<dyn Index<K>>>,
    /// Whether the objects that the watch shows are compared with what we applied.
    pub(crate) compared: Compared,
}

/// The parts of an object that are compared with what is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) status: bool,
    pub(crate) whole: bool,
}

impl<K: Watched> Fold<K> {
    pub(crate) fn new(scope: Scope) -> Self {
        Self { scope, systems: BTreeMap::new(), indexes: Vec::new(), compared: Compared::default() }
    }

    pub(crate) fn add(&mut self, system: &'static str, need: Need, compared: Compared, index: Arc<dyn Index<K>>) {
        let most = self.systems.entry(system).or_insert(need);
        *most = (*most).max(need);
        self.compared.status |= compared.status;
        self.compared.whole |= compared.whole;
        self.indexes.push(index);
    }
}

impl<K: Watched> Stream for Fold<K> {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn name(&self) -> &'static str {
        intern(format!("{}{}", Kind::of::<K>().resource(), self.scope.suffix()))
    }

    fn kind(&self) -> &'static Kind {
        Kind::of::<K>()
    }

    fn systems(&self) -> &BTreeMap<&'static str, Need> {
        &self.systems
    }

    fn run(self: Box<Self>, shared: Shared) -> BoxFuture<'static, ()> {
        let name = self.name();
        Box::pin(stream::KindStream::<K>::new(shared, name, *self).run())
    }
}

/// The names of streams are few and fixed at start, so keeping each until the process ends costs nothing.
fn intern(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let kept: &'static str = Box::leak(name.into_boxed_str());
    names.insert(kept);
    kept
}

/// How a state reads on `/readyz`. `systems` are those that watch the kind.
pub(crate) fn check_of(shared: &Shared, kind: &Kind, name: &str, status: &KindStatus) -> Check {
    let KindStatus { systems, state, complete, fresh, old, .. } = status;
    let need = systems.values().copied().max().unwrap_or(Need::Optional);
    let who: Vec<&str> = systems.keys().copied().collect();
    // The old view serves reads, and the systems wait.
    let waits = *old && !*fresh && *state != KindState::Missing && shared.election.is_won();
    let wait = if waits { "waiting for a fresh list of " } else { "" };
    let who = format!("{}: {wait}{}", who.join(", "), kind.name);
    match state {
        KindState::Synced => Check::Ok,
        KindState::Listing if waits => Check::failing(format!("{who}: this replica has just become the leader")),
        KindState::Listing => Check::failing(format!("{who}: the first list is not complete yet")),
        KindState::Missing => {
            let message = format!("{who}: the CRD {name} is not installed");
            match need {
                Need::Optional => Check::degraded(message),
                Need::Required => Check::failing_with_fix(message, shared.install_crds.clone()),
            }
        }
        KindState::Forbidden { verb } => {
            // A kind that may not be listed counts as missing. A kind that may be listed and not watched delays its systems: a complete
            // view that no longer changes would mislead them.
            let need = if *complete || waits || *verb != "list" { Need::Required } else { need };
            let permission = Permission { verb, resource: kind.resource(), subresource: "", need };
            permission.missing(format!("{who}: no permission to {verb} {name}"))
        }
        KindState::Stale { since, error } => {
            let age = shared.clock.now().duration_since(*since);
            let message = format!("{who}: not current since {since}: {error}");
            // The last complete view serves reads for a while.
            if *complete && !waits && age < jiff::SignedDuration::from_mins(5) {
                Check::degraded(message)
            } else {
                Check::failing(message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(state: KindState, old: bool, fresh: bool) -> KindStatus {
        let systems = BTreeMap::from([("needs", Need::Required), ("can-do-without", Need::Optional)]);
        KindStatus { systems, state, complete: old || fresh, fresh, old, lists: 1 }
    }

    /// Whether the system that needs the kind may drive, and the one that can do without it.
    fn drive(kind: &KindStatus) -> (bool, bool) {
        assert!(kind.lets_drive("another"), "another system does not watch it");
        (kind.lets_drive("needs"), kind.lets_drive("can-do-without"))
    }

    #[test]
    fn a_view_from_before_the_election_lets_no_system_drive() {
        let stale = KindState::Stale { since: Timestamp::UNIX_EPOCH, error: String::new() };
        let [list, watch] = ["list", "watch"].map(|verb| KindState::Forbidden { verb });
        for state in [KindState::Synced, KindState::Listing, list, watch, stale] {
            assert_eq!(drive(&kind(state.clone(), true, false)), (false, false), "{state:?}");
            assert_eq!(drive(&kind(state.clone(), true, true)), (true, true), "a leader goes on, {state:?}");
        }
    }

    #[test]
    fn a_kind_that_was_removed_stops_no_system_that_can_do_without_it() {
        assert_eq!(drive(&kind(KindState::Missing, true, false)), (false, true));
    }

    #[test]
    fn an_optional_kind_without_an_old_view_may_be_absent() {
        for state in [KindState::Missing, KindState::Forbidden { verb: "list" }] {
            assert_eq!(drive(&kind(state.clone(), false, false)), (false, true), "{state:?}");
        }
        for state in [KindState::Listing, KindState::Forbidden { verb: "watch" }] {
            assert_eq!(drive(&kind(state.clone(), false, false)), (false, false), "{state:?}");
        }
    }
}
