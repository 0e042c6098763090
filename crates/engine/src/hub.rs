//! One watch stream per kind for the whole process, folded into indexes.
//!
//! ```text
//!  LIST (pages) ─► guard ─► seen table ─► Index::applied / unreadable / deleted   new or changed objects only
//!  WATCH ────────►   │          └─ after a complete list: what was not in it is deleted
//!                    └─ an object that cannot be parsed is reported by name (log, metric, event) and stops nothing
//! ```
//!
//! No object is kept: the seen table holds a name and two hashes for each. Lists and watches are made with kube's `Api` and not with its
//! `watcher`, which has no deadline on a list or on the start of a watch and does not tell whether the watch was ever opened: a cluster
//! that allows LIST and denies WATCH would look like a view that is complete and never changes.
//!
//! Whether a kind is installed is asked of the list itself: 404 means no, and it is tried again every few seconds. Discovery would be a
//! second answer to the same question, which lags behind the first, fails by itself and has to be asked again when a CRD comes or goes
//! under a running process; the list is needed anyway, and while the kind is missing it costs one small request.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;

use crate::{
    clock::Clock,
    events::Recorder,
    health::{Check, Health},
    metrics::Metrics,
    object::ObjectId,
    rights::{Right, resource_name},
    write::Writer,
};

mod guard;
mod seen;
mod stream;

/// A system's index for one kind. Interior mutability, cheap, no I/O; it touches its queue itself.
pub trait Index<K>: Send + Sync + 'static {
    /// The object was made or changed. Not called again for a version already seen.
    fn applied(&self, object: &K);
    /// The object is gone. Called only when the API server said so, or when a complete list did not have it.
    fn deleted(&self, id: &ObjectId);
    /// The object exists but cannot be understood: keep what you knew.
    fn unreadable(&self, id: &ObjectId, error: &str) {
        let _ = (id, error);
    }
    /// A complete list has been folded.
    fn listed(&self) {}
    /// The cluster was restored from an older state: versions seen so far say nothing about what comes next.
    fn rewound(&self) {}
}

/// Whether the operator can do without a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Watched when it is there; picked up when its CRD appears.
    Optional,
    /// Not ready without it.
    Required,
}

/// What can be watched.
pub trait Watched:
    kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static
{
}

impl<K> Watched for K where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static
{
}

/// How far the view of a kind is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindState {
    /// The cluster has no such kind: its CRD is not installed.
    Missing,
    /// A right is missing.
    Forbidden {
        /// Which: `list` or `watch`.
        verb: &'static str,
    },
    /// The first list is under way.
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

/// What is known about the view of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// Whether the operator can do without it.
    pub need: Need,
    /// How far it is.
    pub state: KindState,
    /// True once a complete list was folded and a watch was opened: from then on the view is usable, if perhaps old.
    pub complete: bool,
    /// Complete lists folded so far.
    pub lists: u64,
}

/// The state of every watched kind, by `plural.group`.
pub type Kinds = BTreeMap<&'static str, KindStatus>;

/// True when every required kind has a usable view.
pub(crate) fn required_are_complete(kinds: &Kinds) -> bool {
    kinds.values().all(|kind| kind.complete || kind.need == Need::Optional)
}

/// What all streams share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) namespace: Option<String>,
    pub(crate) page_size: u32,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) writer: Writer,
    pub(crate) recorder: Recorder,
    pub(crate) kinds: watch::Sender<Kinds>,
    pub(crate) install_crds: String,
    pub(crate) seed: u64,
}

/// A kind to watch, whatever its type.
pub(crate) trait Stream: Any + Send {
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn resource(&self) -> &'static str;
    fn need(&self) -> Need;
    fn run(self: Box<Self>, shared: Shared) -> BoxFuture<'static, ()>;
}

/// The indexes of one kind.
pub(crate) struct Fold<K> {
    pub(crate) need: Need,
    pub(crate) indexes: Vec<Arc<dyn Index<K>>>,
}

impl<K: Watched> Fold<K> {
    fn resource_name() -> &'static str {
        crate::object::intern(resource_name(&K::plural(&()), &K::group(&())))
    }
}

impl<K: Watched> Stream for Fold<K> {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn resource(&self) -> &'static str {
        Self::resource_name()
    }

    fn need(&self) -> Need {
        self.need
    }

    fn run(self: Box<Self>, shared: Shared) -> BoxFuture<'static, ()> {
        let resource = Self::resource_name();
        Box::pin(stream::KindStream::<K>::new(shared, resource, self.need, self.indexes).run())
    }
}

/// How a state reads on `/readyz`.
fn check_of(shared: &Shared, resource: &str, kind: &str, need: Need, state: &KindState, complete: bool) -> Check {
    match state {
        KindState::Synced => Check::Ok,
        KindState::Listing => Check::failing(format!("{kind}: the first list is not complete yet")),
        KindState::Missing => {
            let message = format!("{kind}: the CRD {resource} is not installed");
            match need {
                Need::Optional => Check::degraded(message),
                Need::Required => Check::failing_with_fix(message, shared.install_crds.clone()),
            }
        }
        KindState::Forbidden { verb } => {
            // A view that was never there is no danger; one that has stopped moving is.
            let need = if complete { Need::Required } else { need };
            let right = Right { verb, resource: resource.to_owned(), subresource: "", need };
            right.missing(format!("{kind}: no right to {verb} {resource}"))
        }
        KindState::Stale { since, error } => {
            let age = shared.clock.now().duration_since(*since);
            let message = format!("{kind}: not current since {since}: {error}");
            // Reads are still served from the last complete view for a while: better old than none.
            if complete && age < jiff::SignedDuration::from_mins(5) {
                Check::degraded(message)
            } else {
                Check::failing(message)
            }
        }
    }
}
