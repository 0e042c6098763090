//! One watch stream per kind for the whole process, folded into indexes.

use crate::object::ObjectId;

/// A system's index for one kind. Interior mutability, cheap, no I/O; it touches its queue itself.
pub trait Index<K>: Send + Sync + 'static {
    /// The object was made or changed. Not called again for a version already seen.
    fn applied(&self, object: &K);
    /// The object is gone.
    fn deleted(&self, id: &ObjectId);
    /// The object exists but cannot be understood: keep what you knew.
    fn unreadable(&self, id: &ObjectId, error: &str) {
        let _ = (id, error);
    }
    /// A complete list has been folded.
    fn listed(&self) {}
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
    /// The view was complete once, but the watch is broken.
    Stale {
        /// Since when.
        since: jiff::Timestamp,
        /// Why.
        error: String,
    },
}
