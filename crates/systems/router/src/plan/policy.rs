//! Which controllers a DNSPolicy selects in this cluster: some, none by decision, or not known yet.

use std::sync::Arc;

use signpost_apis::router::{ClusterIdentitySpec, DNSPolicySpec, ExternalDNSController, PolicyMode};
use signpost_engine::Identity;
use signpost_planning::{Reason, Refusal};

use crate::{
    index::facts::Selected,
    plan::{Base, singleton::Place},
    report::{
        states::State,
        status::{Decision, Detail, ObjectStatus, READY, Reported},
    },
};

/// The DNSPolicies of a namespace.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) namespace: Arc<str>,
    pub(crate) base: Base,
    pub(crate) policies: Vec<PolicyView>,
    /// Which of them is used.
    pub(crate) place: Place,
}

/// A DNSPolicy.
#[derive(Debug)]
pub(crate) struct PolicyView {
    pub(crate) identity: Identity,
    pub(crate) spec: Arc<DNSPolicySpec>,
    /// What it selected before.
    pub(crate) before: Option<Selected>,
}

/// The state of a policy in this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// These controllers publish, in this order.
    Active(Vec<ExternalDNSController>),
    /// The policy does not apply to this cluster, and why.
    Inactive(String),
    /// Something that it depends on is missing.
    Unknown(Refusal),
}

/// Why a policy does not apply to a cluster of this identity, where it does not.
pub(crate) fn elsewhere(policy: &DNSPolicySpec, identity: &ClusterIdentitySpec) -> Option<String> {
    let filter = |wanted: &Option<String>| wanted.clone().filter(|wanted| !wanted.is_empty());
    if let Some(region) = filter(&policy.source_region).filter(|region| *region != identity.region) {
        return Some(format!("sourceRegion is {region}, and this cluster is in {}", identity.region));
    }
    let cluster = filter(&policy.source_cluster).filter(|cluster| *cluster != identity.cluster)?;
    Some(format!("sourceCluster is {cluster}, and this cluster is {}", identity.cluster))
}

/// Evaluates a policy.
pub(crate) fn select(policy: &DNSPolicySpec, base: &Base) -> Selection {
    let (identity, configuration) = match (base.identity(), base.configuration()) {
        (Ok(identity), Ok(configuration)) => (identity, configuration),
        (Err(refusal), _) | (_, Err(refusal)) => return Selection::Unknown(refusal),
    };
    if let Some(why) = elsewhere(policy, identity) {
        return Selection::Inactive(why);
    }
    let all = &configuration.external_dns_controllers;
    let mut selected: Vec<ExternalDNSController> = Vec::new();
    match policy.mode {
        PolicyMode::RegionBound => selected.clone_from(all),
        PolicyMode::Active => {
            for region in std::iter::once(&identity.region).chain(&identity.adopts_regions) {
                for controller in all.iter().filter(|controller| controller.region == *region) {
                    if !selected.contains(controller) {
                        selected.push(controller.clone());
                    }
                }
            }
        }
    }
    Selection::Active(selected)
}

/// A status for each policy of the namespace.
pub(crate) fn plan(view: &View) -> Vec<Decision> {
    let View { namespace, base, policies, place } = view;
    let scope = format!(" for the namespace {namespace}");
    let decide = |PolicyView { identity, spec, before }: &PolicyView| {
        let verdict = match place.surplus("DNSPolicy", &scope, identity) {
            Some(message) => {
                let refusal = Refusal::new(Reason::SingletonViolation, message);
                ObjectStatus::refused(Some("Failed"), refusal, Detail::Policy(Some((false, Vec::new()))))
            }
            None => judge(select(spec, base), before.as_ref()),
        };
        Decision::Object { judged: identity.clone(), verdict }
    };
    policies.iter().map(decide).collect()
}

fn judge(selection: Selection, before: Option<&Selected>) -> ObjectStatus {
    match selection {
        Selection::Active(controllers) => {
            let controllers: Vec<String> = controllers.into_iter().map(|controller| controller.name).collect();
            let message = if controllers.is_empty() {
                "DNSPolicy is active for this cluster (ReconciliationSucceeded), but no controller has its region"
                    .to_owned()
            } else {
                "DNSPolicy is active for this cluster (ReconciliationSucceeded)".to_owned()
            };
            let reported = vec![Reported::new(READY, true, State::PolicyActive, message)];
            let detail = Detail::Policy(Some((true, controllers)));
            ObjectStatus { phase: Some("Active"), conditions: reported, refusal: None, notices: Vec::new(), detail }
        }
        Selection::Inactive(why) => {
            let reported = vec![Reported::new(READY, false, State::PolicyInactive, why)];
            let detail = Detail::Policy(Some((false, Vec::new())));
            ObjectStatus { phase: Some("Inactive"), conditions: reported, refusal: None, notices: Vec::new(), detail }
        }
        // What is published is kept, and so is the report of it.
        Selection::Unknown(refusal) => ObjectStatus::refused(Some("Pending"), refusal, Detail::Policy(before.cloned())),
    }
}
