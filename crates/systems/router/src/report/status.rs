//! Decisions, and the statuses that are made of them when their turn comes.

use std::{borrow::Cow, collections::BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use signpost_apis::router::{ClusterIdentitySpec, DNSConfigurationSpec, DNSPolicySpec, GatewaySpec, ServiceRouteSpec};
use signpost_dns::Fqdn;
use signpost_engine::{Identity, ObjectId, Wanted, conditions};
use signpost_planning::Refusal;

use crate::{
    index::facts::{Class, Id, Known, Selected, Target},
    report::states::{State, Why},
};

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
    Object { judged: Identity, verdict: ObjectStatus },
    /// Whether the DNSEndpoints of a route are there for this host.
    Published { judged: Identity, host: Fqdn, published: bool },
    /// About the address records of gateways.
    Target { target: Target, verdict: TargetVerdict },
    /// About an object that has not been ready since its last change: what it waits for.
    Delayed { judged: Identity, verdict: ObjectStatus },
    /// The same about the address records of gateways.
    DelayedTarget { target: Target, verdict: TargetVerdict },
    /// The hosts that a route does not ask for any more and still publishes, by their digests; none where it has no such host.
    Strays { route: Id, hosts: BTreeSet<u64> },
    /// There is no such gateway any more.
    TargetGone(Target),
    /// Foreign objects have these names.
    Taken(Vec<ObjectId>),
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reported {
    pub(crate) type_: &'static str,
    pub(crate) status: bool,
    pub(crate) reason: Why,
    pub(crate) message: Cow<'static, str>,
}

impl Reported {
    pub(crate) fn new(
        type_: &'static str,
        status: bool,
        reason: impl Into<Why>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { type_, status, reason: reason.into(), message: message.into() }
    }
}

/// A decision about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectStatus {
    pub(crate) phase: Option<&'static str>,
    pub(crate) conditions: Vec<Reported>,
    pub(crate) refusal: Option<Refusal>,
    /// What works but needs attention.
    pub(crate) notices: Vec<Refusal>,
    pub(crate) detail: Detail,
}

impl ObjectStatus {
    /// Not ready for this reason.
    pub(crate) fn refused(phase: Option<&'static str>, refusal: Refusal, detail: Detail) -> Self {
        let reported = vec![Reported::new(READY, false, refusal.reason, refusal.message.clone())];
        Self { phase, conditions: reported, refusal: Some(refusal), notices: Vec::new(), detail }
    }
}

/// Fields of a status that only one kind has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Detail {
    None,
    /// What a policy selects, where that is known.
    Policy(Option<Selected>),
    Gateway {
        hosts: Option<usize>,
    },
    Route {
        host: Option<String>,
        target: Option<String>,
        endpoints: Vec<(String, String)>,
    },
}

/// A decision about the address records of gateways.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetVerdict {
    pub(crate) ready: bool,
    pub(crate) reason: Why,
    pub(crate) message: String,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) addresses: Vec<String>,
    pub(crate) host: Option<String>,
    /// The class of the records that an external-dns has, or had a moment ago.
    pub(crate) class: Option<Class>,
    /// What works but needs attention.
    pub(crate) notice: Option<Refusal>,
}

impl TargetVerdict {
    /// Whether it waits for records of another type to be withdrawn.
    pub(crate) fn is_changing(&self) -> bool {
        self.reason == State::RecordTypeChanging.into()
    }
}

pub(crate) fn of_identity(known: &Known<ClusterIdentitySpec>, now: Timestamp) -> Option<Wanted> {
    wanted(known, None, json!({}), now)
}

pub(crate) fn of_configuration(known: &Known<DNSConfigurationSpec>, now: Timestamp) -> Option<Wanted> {
    wanted(known, None, json!({}), now)
}

pub(crate) fn of_policy(known: &Known<DNSPolicySpec>, now: Timestamp) -> Option<Wanted> {
    let Detail::Policy(selected) = &known.verdict.as_ref()?.detail else { return None };
    // Written even when it is empty: another manager may have written it before, and then an omitted field would stay.
    let (active, controllers) = selected.clone().unzip();
    let fields = json!({ "active": active, "activeControllers": controllers.unwrap_or_default() });
    wanted(known, None, fields, now)
}

pub(crate) fn of_gateway(known: &Known<GatewaySpec>, target: Option<&TargetVerdict>, now: Timestamp) -> Option<Wanted> {
    let hosts = match &known.verdict.as_ref()?.detail {
        Detail::Gateway { hosts } => *hosts,
        _ => None,
    };
    let Some(target) = target else {
        // Its name is not judged yet. An older report of that is not taken back for it.
        let none = known.seen.has_type(DNS_READY);
        return if none { None } else { wanted(known, None, json!({ "hosts": hosts }), now) };
    };
    let TargetVerdict { addresses, host, class, .. } = target;
    // Written even when it is empty, as the controllers of a policy are.
    let first = addresses.first().map_or("", String::as_str);
    let mut fields = json!({ "hostname": host, "loadBalancerIP": first, "hosts": hosts });
    fields["recordType"] = json!(class.and_then(Class::record_type));
    if !addresses.is_empty() {
        fields["addresses"] = json!(addresses);
    }
    wanted(known, Some(target), fields, now)
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
    wanted(known, None, fields, now)
}

fn wanted<S>(known: &Known<S>, target: Option<&TargetVerdict>, mut fields: Value, now: Timestamp) -> Option<Wanted> {
    let verdict = known.verdict.as_ref()?;
    if known.identity.is_deleting() {
        return None;
    }
    let generation = known.identity.generation;
    let dns = target.map(|target| Reported::new(DNS_READY, target.ready, target.reason, target.message.clone()));
    let notices: Vec<&Refusal> =
        verdict.notices.iter().chain(target.and_then(|target| target.notice.as_ref())).collect();
    let notice = notices.first().map(|first| {
        let messages: Vec<&str> = notices.iter().map(|notice| notice.message.as_str()).collect();
        Reported::new(NOTICE, true, first.reason, messages.join(". "))
    });
    let mut reported: Vec<&Reported> = verdict.conditions.iter().chain(&dns).chain(&notice).collect();
    reported.sort_by_key(|reported| reported.type_);
    let conditions: Vec<_> = reported
        .into_iter()
        .map(|Reported { type_, status, reason, message }| {
            let since = known.seen.since(type_, *status, now);
            let message: String = message.chars().take(4096).collect();
            conditions::condition(type_, *status, reason.as_str(), message, Some(generation), since)
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
    // A refusal that a condition has already was reported when it was written. Notices share a condition.
    let new = |type_: &str, refusal: &Refusal| !known.seen.has(type_, refusal.reason.as_str());
    let of = |refusal: &&Refusal| verdict.conditions.iter().all(|reported| new(reported.type_, refusal));
    let second = target.and_then(|target| target.refusal.as_ref()).filter(|refusal| new(DNS_READY, refusal));
    let notices = notices.into_iter().filter(|notice| !known.seen.has_notice(notice));
    let refusals = verdict.refusal.iter().filter(of).chain(second).chain(notices).cloned().collect();
    Some(Wanted { status: Some(fields), refusals, ..Wanted::nothing(known.identity.clone()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::facts::Seen;
    use signpost_apis::router::Gateway;
    use signpost_planning::Reason;

    fn refusal(reason: Reason) -> Refusal {
        Refusal::new(reason, reason.as_str())
    }

    fn refused(reason: Reason) -> ObjectStatus {
        ObjectStatus::refused(Some("Failed"), refusal(reason), Detail::None)
    }

    fn refused_target(reason: Reason, notice: Option<Reason>) -> TargetVerdict {
        TargetVerdict {
            ready: false,
            reason: reason.into(),
            message: String::new(),
            refusal: Some(refusal(reason)),
            addresses: Vec::new(),
            host: None,
            class: None,
            notice: notice.map(refusal),
        }
    }

    /// A Gateway without a status.
    fn gateway(verdict: ObjectStatus) -> Known<GatewaySpec> {
        let gateway: Gateway = serde_json::from_value(json!({
            "metadata": { "name": "gw", "namespace": "infra" },
            "spec": { "controller": "c", "credentialName": " ", "targetPostfix": "p" },
        }))
        .unwrap();
        Known {
            identity: Identity::of(&gateway),
            spec: gateway.spec.into(),
            seen: Seen::default(),
            verdict: Some(verdict.into()),
            surplus: None,
        }
    }

    #[test]
    fn a_reason_that_another_condition_has_already_is_reported_too() {
        let reported = |known: &Known<GatewaySpec>, target: &TargetVerdict| {
            let wanted = of_gateway(known, Some(target), Timestamp::UNIX_EPOCH).unwrap();
            let seen = wanted.status.unwrap()["conditions"].clone();
            (wanted.refusals.len(), Seen::of(&serde_json::from_value::<Vec<_>>(seen).unwrap()))
        };
        // A foreign Istio Gateway has the name, and then a foreign DNSEndpoint too.
        let mut known = gateway(refused(Reason::NameTaken));
        let (count, seen) = reported(&known, &refused_target(Reason::KindNotInstalled, None));
        assert_eq!(count, 2);
        known.seen = seen;
        let target = refused_target(Reason::NameTaken, Some(Reason::NameTaken));
        let (count, seen) = reported(&known, &target);
        assert_eq!(count, 2, "that of DNSReady and that of Notice");
        known.seen = seen;
        assert_eq!(reported(&known, &target).0, 0, "it has them");
    }

    #[test]
    fn every_refusal_of_an_object_is_reported_once() {
        let mut verdict = refused(Reason::ValidationFailed);
        verdict.notices = vec![refusal(Reason::HostConflict)];
        let target = refused_target(Reason::NameTaken, Some(Reason::TxtNameTooLong));
        let mut known = gateway(verdict);
        let wanted = of_gateway(&known, Some(&target), Timestamp::UNIX_EPOCH).unwrap();
        let reasons: Vec<Reason> = wanted.refusals.iter().map(|refusal| refusal.reason).collect();
        assert_eq!(
            reasons,
            [Reason::ValidationFailed, Reason::NameTaken, Reason::HostConflict, Reason::TxtNameTooLong]
        );
        let status = wanted.status.unwrap();
        let types: Vec<&str> =
            status["conditions"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["DNSReady", "Notice", "Ready"], "one condition of each type");
        assert_eq!(status["conditions"][1]["message"], "HostConflict. TxtNameTooLong");
        known.seen = Seen::of(&serde_json::from_value::<Vec<_>>(status["conditions"].clone()).unwrap());
        assert_eq!(of_gateway(&known, Some(&target), Timestamp::UNIX_EPOCH).unwrap().refusals, [], "it has them");
    }

    #[test]
    fn a_further_notice_is_reported_and_the_others_are_not_reported_again() {
        use Reason::{HostConflict, TxtNameTooLong, ValidationFailed};
        let mut known = gateway(refused(ValidationFailed));
        let mut reported = |notices: &[Reason]| {
            let mut verdict = refused(ValidationFailed);
            verdict.notices = notices.iter().copied().map(refusal).collect();
            known.verdict = Some(verdict.into());
            let wanted = wanted(&known, None, json!({}), Timestamp::UNIX_EPOCH).unwrap();
            let conditions = wanted.status.unwrap()["conditions"].clone();
            known.seen = Seen::of(&serde_json::from_value::<Vec<_>>(conditions).unwrap());
            wanted.refusals.into_iter().map(|refusal| refusal.reason).collect::<Vec<Reason>>()
        };
        assert_eq!(reported(&[TxtNameTooLong]), [ValidationFailed, TxtNameTooLong]);
        assert_eq!(reported(&[TxtNameTooLong, HostConflict]), [HostConflict], "the second one");
        assert_eq!(reported(&[TxtNameTooLong, HostConflict]), [], "it has them");
        assert_eq!(reported(&[HostConflict]), [], "it is the first one now");
        assert_eq!(reported(&[TxtNameTooLong, HostConflict]), [TxtNameTooLong], "it is back");
    }
}
