//! The writes and the reports, as a function of the observed state.
//!
//! ```text
//!  Cluster, Policies ─► statuses                    Gateway ─► one Istio Gateway with the hosts of its routes
//!  Route ─► a CNAME DNSEndpoint per controller      Target ──► an A/AAAA or CNAME DNSEndpoint per controller
//! ```
//!
//! A DNSEndpoint is withdrawn only by a decision: an inactive policy, a deleted route, a removed controller. Something that is missing or
//! not known withdraws nothing. A gateway that gets another name keeps the former one while a route points at it.

pub(crate) mod cluster;
pub(crate) mod gateway;
pub(crate) mod names;
pub(crate) mod policy;
pub(crate) mod route;
pub(crate) mod singleton;
pub(crate) mod target;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use signpost_apis::router::{ClusterIdentitySpec, DNSConfigurationSpec, ExternalDNSController};
use signpost_dns::Fqdn;
use signpost_engine::{Child, Identity, ObjectId, Proof};
use signpost_planning::{Reason, Refusal};

use crate::{
    index::{
        RouterKey,
        facts::{CONTROLLER, Class, MANAGED_BY, OPERATOR, REGION, Target},
        world::Used,
    },
    report::status::{Decision, Detail},
    settings::RouterConfig,
};

/// The input of every decision.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) identity: Used<ClusterIdentitySpec>,
    pub(crate) configuration: Used<DNSConfigurationSpec>,
    pub(crate) settings: Arc<RouterConfig>,
}

impl Base {
    /// The identity, or the refusal of whatever needs it.
    pub(crate) fn identity(&self) -> Result<&ClusterIdentitySpec, Refusal> {
        let create = "Create one, or correct it; what is published is kept";
        self.identity
            .as_deref()
            .map_err(|why| Refusal::new(Reason::ClusterIdentityNotAvailable, format!("{why}. {create}")))
    }

    /// The configuration, or the refusal of whatever needs it.
    pub(crate) fn configuration(&self) -> Result<&DNSConfigurationSpec, Refusal> {
        let create = "Create one, or correct it; what is published is kept";
        self.configuration
            .as_deref()
            .map_err(|why| Refusal::new(Reason::DNSConfigurationNotAvailable, format!("{why}. {create}")))
    }
}

/// The state of a key between its passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// What is absent, and since when.
    pub(crate) absent_since: Option<(Absent, Timestamp)>,
    /// What each external-dns has, or had, of the name: by the label of its controller.
    pub(crate) traces: BTreeMap<Arc<str>, target::Trace>,
    /// Whether these include what an earlier process reported.
    pub(crate) restored: bool,
    /// The names that this process has published for gateways, and since when no DNSEndpoint of a route points at a former one.
    pub(crate) former: BTreeMap<Fqdn, Option<Timestamp>>,
}

/// Something whose absence is borne for a while. The time without one of these does not count for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The Gateway is deleted.
    Gateway,
    /// The Service is deleted.
    Service,
    /// The Service has no address.
    Address,
    /// Another Istio Gateway has a host.
    Host,
}

impl Memory {
    /// Since when it is absent, and how much is left of the time for which that is borne; `None` when that time is over.
    fn absent(&self, what: Absent, now: Timestamp, borne: Duration) -> (Option<(Absent, Timestamp)>, Option<Duration>) {
        let since = self.absent_since.filter(|(before, _)| *before == what).map_or(now, |(_, since)| since);
        (Some((what, since)), left(since, now, borne))
    }
}

/// How much of a time is left.
fn left(since: Timestamp, now: Timestamp, time: Duration) -> Option<Duration> {
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    time.checked_sub(elapsed).filter(|left| !left.is_zero())
}

/// The observed state.
#[derive(Debug)]
pub(crate) enum Observed {
    Cluster(cluster::View),
    Policies(policy::View),
    Gateway(Box<gateway::View>),
    Target(Box<target::View>),
    Route(Box<route::View>),
}

/// The plan.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) key: RouterKey,
    /// Objects to create or correct.
    pub(crate) apply: Vec<(Child, Value)>,
    /// Objects to delete when those that replace them are written.
    pub(crate) delete: Vec<Child>,
    /// What replaces each of these.
    pub(crate) replaced_by: BTreeMap<ObjectId, ObjectId>,
    /// Objects to delete, whatever becomes of the others.
    pub(crate) withdraw: Vec<Child>,
    /// The report when all of it is done.
    pub(crate) decisions: Vec<Decision>,
    /// The object that gets the report of a failure.
    pub(crate) blame: Blame,
    /// The object whose events report what was deleted; `None` when it is deleted itself.
    pub(crate) about: Option<Identity>,
    pub(crate) memory: Memory,
    /// When to check again although nothing changed.
    pub(crate) again: Option<Duration>,
}

/// The object that gets the report of a failed write.
#[derive(Clone, Debug)]
pub(crate) enum Blame {
    Nobody,
    Object { judged: Identity, detail: Detail },
    Target { target: Target, addresses: Vec<String>, host: Option<String>, class: Option<Class> },
}

impl Blame {
    /// Without the objects of these ids, which are foreign.
    pub(crate) fn without(mut self, taken: &[ObjectId]) -> Self {
        if let Self::Object { detail: Detail::Route { endpoints, .. }, .. } = &mut self {
            endpoints.retain(|(name, _)| taken.iter().all(|id| id.name != *name));
        }
        self
    }
}

impl Plan {
    fn new(key: RouterKey) -> Self {
        Self {
            key,
            apply: Vec::new(),
            delete: Vec::new(),
            replaced_by: BTreeMap::new(),
            withdraw: Vec::new(),
            decisions: Vec::new(),
            blame: Blame::Nobody,
            about: None,
            memory: Memory::default(),
            again: None,
        }
    }

    /// Whether it asks for a write.
    pub(crate) fn has_writes(&self) -> bool {
        !(self.apply.is_empty() && self.delete.is_empty() && self.withdraw.is_empty())
    }

    /// Statuses only. A place that is vacant is looked at again.
    fn decided(key: RouterKey, places: &[&singleton::Place], decisions: Vec<Decision>) -> Self {
        let again = places.iter().filter_map(|place| place.vacant).map(|vacant| vacant.left).min();
        Self { decisions, again, ..Self::new(key) }
    }
}

/// Decides.
pub(crate) fn plan(observed: Observed, now: Timestamp) -> Plan {
    match observed {
        Observed::Cluster(view) => {
            let places = [&view.identity_place, &view.configuration_place];
            Plan::decided(RouterKey::Cluster, &places, cluster::plan(&view))
        }
        Observed::Policies(view) => {
            Plan::decided(RouterKey::Policies(view.namespace.clone()), &[&view.place], policy::plan(&view))
        }
        Observed::Gateway(view) => gateway::plan(&view, now),
        Observed::Target(view) => target::plan(&view, now),
        Observed::Route(view) => route::plan(&view, now),
    }
}

/// The content of a DNSEndpoint for one controller.
fn endpoint(
    controller: &ExternalDNSController,
    annotation: &str,
    more_labels: BTreeMap<&str, String>,
    endpoints: &Value,
) -> Value {
    let mut labels: BTreeMap<&str, String> = more_labels;
    labels.insert(CONTROLLER, names::label_value(&controller.name));
    labels.insert(REGION, names::label_value(&controller.region));
    json!({
        "metadata": { "labels": labels, "annotations": { annotation: controller.name } },
        "spec": { "endpoints": endpoints },
    })
}

/// The proof that an object is ours: these labels, or its owner.
fn proof<const N: usize>(labels: [(&str, &str); N], owner: Option<OwnerReference>) -> Proof {
    let mut all: BTreeMap<String, String> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    all.insert(MANAGED_BY.to_owned(), OPERATOR.to_owned());
    match owner {
        Some(owner) => Proof::Any(vec![Proof::Labels(all), Proof::Owner(Box::new(owner))]),
        None => Proof::Labels(all),
    }
}

#[cfg(test)]
mod target_tests;
#[cfg(test)]
mod tests;
