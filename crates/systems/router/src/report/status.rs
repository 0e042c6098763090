//! Decisions, and the statuses that are made of them when their turn comes.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};
use signpost_apis::router::{ClusterIdentitySpec, DNSConfigurationSpec, DNSPolicySpec, GatewaySpec, ServiceRouteSpec};
use signpost_dns::Fqdn;
use signpost_engine::{Identity, ObjectId, Wanted, conditions};
use signpost_planning::Refusal;

use crate::index::facts::{Known, Target};

/// The condition that every kind has.
pub(crate) const READY: &str = "Ready";
/// The condition of a Gateway's name.
pub(crate) const DNS_READY: &str = "DNSReady";
/// The condition of an object that works but needs attention.
pub(crate) const NOTICE: &str = "Notice";

/// The decision of a pass.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// About an object.
    Object { judged: Identity, verdict: Verdict },
    /// Whether the DNSEndpoints of a route are there for this host.
    Published { judged: Identity, host: Fqdn, published: bool },
    /// About the address records of gateways.
    Target { target: Target, verdict: TargetVerdict },
    /// There is no such gateway any more.
    TargetGone(Target),
    /// Foreign objects have these names.
    Taken(Vec<ObjectId>),
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) type_: &'static str,
    pub(crate) status: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: Cow<'static, str>,
}

impl Told {
    pub(crate) fn new(
        type_: &'static str,
        status: bool,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { type_, status, reason, message: message.into() }
    }
}

/// A decision about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) phase: Option<&'static str>,
    pub(crate) told: Vec<Told>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) detail: Detail,
}

impl Verdict {
    /// Not ready for this reason.
    pub(crate) fn refused(phase: Option<&'static str>, refusal: Refusal, detail: Detail) -> Self {
        let told = vec![Told::new(READY, false, refusal.reason.as_str(), refusal.message.clone())];
        Self { phase, told, refusal: Some(refusal), detail }
    }
}

/// Fields of a status that only one kind has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Detail {
    None,
    Policy { active: Option<bool>, controllers: Vec<String> },
    Gateway { hosts: Option<usize> },
    Route { host: Option<String>, target: Option<String>, endpoints: Vec<(String, String)> },
}

/// A decision about the address records of gateways.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetVerdict {
    pub(crate) ready: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) addresses: Vec<String>,
    pub(crate) host: Option<String>,
}

/// The reason while a gateway's addresses become a host name, or the reverse.
pub(crate) const TYPE_CHANGING: &str = "RecordTypeChanging";

impl TargetVerdict {
    /// Whether it waits for records of another type to be withdrawn.
    pub(crate) fn is_changing(&self) -> bool {
        self.reason == TYPE_CHANGING
    }
}

pub(crate) fn of_identity(known: &Known<ClusterIdentitySpec>, now: Timestamp) -> Option<Wanted> {
    wanted(known, &[], json!({}), None, now)
}

pub(crate) fn of_configuration(known: &Known<DNSConfigurationSpec>, now: Timestamp) -> Option<Wanted> {
    wanted(known, &[], json!({}), None, now)
}

pub(crate) fn of_policy(known: &Known<DNSPolicySpec>, now: Timestamp) -> Option<Wanted> {
    let Detail::Policy { active, controllers } = &known.verdict.as_ref()?.detail else { return None };
    // Written even when it is empty: another manager may have written it before, and then an omitted field would stay.
    wanted(known, &[], json!({ "active": active, "activeControllers": controllers }), None, now)
}

pub(crate) fn of_gateway(known: &Known<GatewaySpec>, target: &TargetVerdict, now: Timestamp) -> Option<Wanted> {
    let hosts = match &known.verdict.as_ref()?.detail {
        Detail::Gateway { hosts } => *hosts,
        _ => None,
    };
    let TargetVerdict { ready, reason, message, refusal, addresses, host } = target;
    let dns = Told::new(DNS_READY, *ready, reason, message.clone());
    // Written even when it is empty, as the controllers of a policy are.
    let first = addresses.first().map_or("", String::as_str);
    let mut fields = json!({ "hostname": host, "loadBalancerIP": first, "hosts": hosts });
    if !addresses.is_empty() {
        fields["addresses"] = json!(addresses);
    }
    wanted(known, &[dns], fields, refusal.as_ref(), now)
}

pub(crate) fn of_route(
    known: &Known<ServiceRouteSpec>,
    is_observed: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Option<Wanted> {
    let Detail::Route { host, target, endpoints } = &known.verdict.as_ref()?.detail else { return None };
    // Written even when it is empty, as the controllers of a policy are.
    let first = endpoints.first().map_or("", |(name, _)| name.as_str());
    let mut fields = json!({ "hostname": host, "target": target, "dnsEndpoint": first });
    if !endpoints.is_empty() {
        let endpoint = |(name, controller): &(String, String)| json!({ "name": name, "controller": controller, "observed": is_observed(name) });
        fields["dnsEndpoints"] = endpoints.iter().map(endpoint).collect();
    }
    wanted(known, &[], fields, None, now)
}

fn wanted<S>(
    known: &Known<S>,
    more: &[Told],
    mut fields: Value,
    second: Option<&Refusal>,
    now: Timestamp,
) -> Option<Wanted> {
    let verdict = known.verdict.as_ref()?;
    if known.identity.is_deleting() {
        return None;
    }
    let generation = known.identity.generation;
    let mut told: Vec<&Told> = verdict.told.iter().chain(more).collect();
    told.sort_by_key(|told| told.type_);
    let conditions: Vec<_> = told
        .into_iter()
        .map(|Told { type_, status, reason, message }| {
            let since = known.seen.since(type_, *status, now);
            let message: String = message.chars().take(4096).collect();
            conditions::condition(type_, *status, reason, message, Some(generation), since)
        })
        .collect();
    fields["conditions"] = json!(conditions);
    fields["observedGeneration"] = json!(generation);
    if let Some(phase) = verdict.phase {
        fields["phase"] = json!(phase);
    }
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    // A refusal that the object has already was reported when it was written.
    let new = |refusal: &&Refusal| !known.seen.has_reason(refusal.reason.as_str());
    let refusal = verdict.refusal.as_ref().filter(new).or_else(|| second.filter(new)).cloned();
    Some(Wanted { status: Some(fields), refusal, ..Wanted::nothing(known.identity.clone()) })
}
