//! A client for the Integration API of Pangolin 1.9 to 1.22, behind one trait.
//!
//! ```text
//!            ┌ PangolinClient  HTTP: two calls at once, lists with an expiry, complete objects on update
//! Pangolin ──┤
//!            └ MemoryPangolin  no server: demos, simulation and tests
//! ```
//! In: an organisation, and the wanted settings of resources and targets. Out: what the server has, and typed errors. It knows nothing of
//! Kubernetes and decides nothing about ownership. It does hold what the server does not check:
//!
//! - A domain or site is used only when the organisation's own list has it: the server takes those of other organisations as well.
//! - A resource is created only when the list shows no other one with its host: 1.22 accepts a second one.
//! - Domain and subdomain are sent together, an update is complete, and nothing is sent when nothing differs: each update of a target
//!   interrupts its connections.
//! - A path cannot carry a character that ends the quotes of the server's routing rules.

mod cache;
mod checks;
mod client;
mod error;
mod http;
mod lists;
mod memory;
mod path;
mod transport;
mod types;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub use client::PangolinClient;
pub use error::{ErrorClass, PangolinError};
pub use http::{Connection, Timing, parse_base_url};
pub use memory::{MemoryPangolin, Stored};
pub use path::{Matching, PathError, RoutePath};
pub use signpost_provider_http::{Method, Secret};
pub use transport::{Incoming, Outgoing, Transport};
pub use types::{
    Domain, DomainId, DomainKind, Header, HealthCheck, Listed, ListedTarget, NewResource, NiceId, NiceIdError, Place,
    Resource, ResourceId, ResourceSettings, Site, SiteId, SiteKind, Target, TargetId, TargetSettings,
};
pub use url::Url;

/// What every call returns.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, PangolinError>>;

/// Whether a deletion found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It existed.
    Done,
    /// It did not exist.
    Absent,
}

/// One organisation of a Pangolin server.
pub trait Pangolin: Send + Sync + 'static {
    /// Whether the API answers. Needs no key, so that it costs the server next to nothing.
    fn probe(&self) -> Answer<'_, ()>;

    /// How many calls with the key were answered so far. A list that is returned from memory does not count: it proves nothing about the server.
    fn answers(&self) -> u64;

    /// The domains of the organisation. Kept for a few minutes; see [`Pangolin::forget`].
    fn domains(&self) -> Answer<'_, Arc<[Domain]>>;

    /// The sites of the organisation. Kept for a few minutes; see [`Pangolin::forget`].
    fn sites(&self) -> Answer<'_, Arc<[Site]>>;

    /// Reads domains, sites and resources again at their next use.
    fn forget(&self);

    /// Every resource of the organisation, from a list that is at most so old. Own writes are part of it.
    fn resources(&self, max_age: Duration) -> Answer<'_, Arc<[Listed]>>;

    /// One resource with all its settings.
    fn resource(&self, id: ResourceId) -> Answer<'_, Resource>;

    /// The targets of a resource.
    fn targets(&self, id: ResourceId) -> Answer<'_, Vec<Target>>;

    /// Creates a resource, unless the list shows one with the same host. The new resource has a random identifier and is protected by
    /// single sign-on until [`Pangolin::update_resource`].
    fn create_resource<'a>(&'a self, new: &'a NewResource) -> Answer<'a, Resource>;

    /// Changes a resource; sends nothing when it is as wanted.
    fn update_resource<'a>(&'a self, current: &'a Resource, wanted: &'a ResourceSettings) -> Answer<'a, Resource>;

    /// Deletes a resource with its targets.
    fn delete_resource(&self, id: ResourceId) -> Answer<'_, Deleted>;

    /// Adds a target to a resource.
    fn create_target<'a>(&'a self, resource: ResourceId, wanted: &'a TargetSettings) -> Answer<'a, Target>;

    /// Changes a target; sends nothing when it is as wanted.
    fn update_target<'a>(&'a self, current: &'a Target, wanted: &'a TargetSettings) -> Answer<'a, Target>;

    /// Deletes a target of a resource.
    fn delete_target(&self, resource: ResourceId, id: TargetId) -> Answer<'_, Deleted>;
}
