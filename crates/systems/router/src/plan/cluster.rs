//! ClusterIdentities and DNSConfigurations: which one is used, and whether it is valid.

use std::{collections::BTreeSet, sync::Arc};

use signpost_apis::router::{ClusterIdentitySpec, DNSConfigurationSpec, ExternalDNSController};
use signpost_dns::Fqdn;
use signpost_engine::Identity;
use signpost_planning::{Reason, Refusal};

use crate::{
    index::{
        facts::{CONTROLLER, REGION},
        world::Used,
    },
    plan::{names, singleton::Place},
    report::{
        states::State,
        status::{Decision, Detail, ObjectStatus, READY, Reported},
    },
};

/// The name that a ClusterIdentity should have.
const IDENTITY: &str = "cluster-identity";
/// The name that a DNSConfiguration should have.
const CONFIGURATION: &str = "dns-config";

/// All of them.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) identities: Vec<(Identity, Arc<ClusterIdentitySpec>)>,
    pub(crate) configurations: Vec<(Identity, Arc<DNSConfigurationSpec>)>,
    /// Which ClusterIdentity is used.
    pub(crate) identity_place: Place,
    /// Which DNSConfiguration is used.
    pub(crate) configuration_place: Place,
    pub(crate) configuration: Used<DNSConfigurationSpec>,
}

/// Whether an identity can be used.
pub(crate) fn check_identity(spec: &ClusterIdentitySpec) -> Result<(), String> {
    let ClusterIdentitySpec { region, cluster, domain, environment_letter, adopts_regions: _ } = spec;
    for (field, value) in
        [("region", region), ("cluster", cluster), ("domain", domain), ("environmentLetter", environment_letter)]
    {
        if value.trim().is_empty() {
            return Err(format!("spec.{field} is empty; write a value"));
        }
    }
    match Fqdn::parse_hostname(domain) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("spec.domain: {error}")),
    }
}

/// Whether a configuration can be used.
pub(crate) fn check_configuration(spec: &DNSConfigurationSpec) -> Result<(), String> {
    let controllers = &spec.external_dns_controllers;
    if controllers.is_empty() {
        return Err("spec.externalDNSControllers is empty; list at least one controller".to_owned());
    }
    let mut seen = BTreeSet::new();
    for (number, ExternalDNSController { name, region }) in controllers.iter().enumerate() {
        let number = number + 1;
        if name.is_empty() || region.is_empty() {
            return Err(format!("controller {number} has an empty name or region; write both"));
        }
        if !names::is_object_name(name) {
            let name = name.chars().take(80).collect::<String>();
            return Err(format!(
                "the controller name {name:?} cannot be a part of an object's name; use lower-case letters, digits, '-' and '.'"
            ));
        }
        if !seen.insert(name) {
            return Err(format!("the controller {name} is listed more than once; keep one of them"));
        }
    }
    Ok(())
}

/// A status for each.
pub(crate) fn plan(view: &View) -> Vec<Decision> {
    let View { identities, configurations, identity_place, configuration_place, configuration } = view;
    let identity = |spec: &ClusterIdentitySpec| match check_identity(spec) {
        Ok(()) => Ok(adopted(spec, configuration)),
        Err(why) => Err(why),
    };
    let words = ("ClusterIdentity", IDENTITY, State::ValidationSucceeded);
    let mut decisions = judge(identities, identity_place, words, true, identity);
    let valid = |spec: &DNSConfigurationSpec| check_configuration(spec).map(|()| (None, None, labels(spec)));
    let words = ("DNSConfiguration", CONFIGURATION, State::ConfigurationValid);
    decisions.extend(judge(configurations, configuration_place, words, false, valid));
    decisions
}

/// The condition of adopted regions, its refusal, and what works but needs attention.
type More = (Option<Reported>, Option<Refusal>, Option<Refusal>);

/// Names that labels cannot have as they are: a selector of external-dns would select nothing.
fn labels(spec: &DNSConfigurationSpec) -> Option<Refusal> {
    let names = spec.external_dns_controllers.iter().flat_map(|dns| [(CONTROLLER, &dns.name), (REGION, &dns.region)]);
    let changed = names.filter(|(_, name)| !names::is_label_value(name));
    let changed: BTreeSet<String> = changed.map(|(key, name)| format!("{key}={}", names::label_value(name))).collect();
    if changed.is_empty() {
        return None;
    }
    let changed = changed.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!(
        "a name or region of a controller cannot be the value of a label, so that DNSEndpoints have {changed}. Use that in --label-filter, or choose at most 63 letters, digits, '-', '_' and '.'"
    );
    Some(Refusal::new(Reason::LabelDiffers, message))
}

fn judge<S>(
    objects: &[(Identity, Arc<S>)],
    place: &Place,
    (kind, expected, valid): (&str, &str, State),
    has_phase: bool,
    check: impl Fn(&S) -> Result<More, String>,
) -> Vec<Decision> {
    let decide = |(identity, spec): &(Identity, Arc<S>)| {
        let phase = |phase: &'static str| has_phase.then_some(phase);
        let verdict = match place.surplus(kind, "", identity) {
            Some(message) => {
                ObjectStatus::refused(phase("Failed"), Refusal::new(Reason::SingletonViolation, message), Detail::None)
            }
            None => match check(spec) {
                Err(why) => {
                    ObjectStatus::refused(phase("Failed"), Refusal::new(Reason::InvalidSpec, why), Detail::None)
                }
                Ok((more, refusal, notice)) => {
                    let ready = Reported::new(READY, true, valid, format!("{kind} is valid (ReconciliationSucceeded)"));
                    let mut reported = vec![ready];
                    reported.extend(more);
                    let mut notices: Vec<Refusal> = notice.into_iter().collect();
                    if identity.id.name != expected {
                        let message = format!("{kind} is used, but other tools expect the name {expected}. Rename it");
                        notices.push(Refusal::new(Reason::UnusualName, message));
                    }
                    ObjectStatus {
                        phase: phase("Active"),
                        conditions: reported,
                        refusal,
                        notices,
                        detail: Detail::None,
                    }
                }
            },
        };
        Decision::Object { judged: identity.clone(), verdict }
    };
    objects.iter().map(decide).collect()
}

/// Whether every adopted region has a controller. It does not prevent anything.
fn adopted(spec: &ClusterIdentitySpec, configuration: &Used<DNSConfigurationSpec>) -> More {
    const TYPE: &str = "AdoptedRegionsValid";
    if spec.adopts_regions.is_empty() {
        return (Some(Reported::new(TYPE, true, State::NoAdoptedRegions, "no region is adopted")), None, None);
    }
    let controllers = configuration.as_ref().map_or(&[][..], |spec| &spec.external_dns_controllers);
    let has_controller = |region: &&String| !controllers.iter().any(|controller| controller.region == **region);
    let missing: Vec<&str> = spec.adopts_regions.iter().filter(has_controller).map(String::as_str).collect();
    if missing.is_empty() {
        let reported =
            Reported::new(TYPE, true, State::AllAdoptedRegionsValid, "every adopted region has a controller");
        return (Some(reported), None, None);
    }
    let message = match configuration {
        Ok(_) => format!(
            "DNSConfiguration has no controller of the adopted region {}. Add one, or remove the region",
            missing.join(", ")
        ),
        Err(why) => format!("{why}, so the adopted region {} has no controller", missing.join(", ")),
    };
    let refusal = Refusal::new(Reason::AdoptedRegionNotFound, message.clone());
    (Some(Reported::new(TYPE, false, Reason::AdoptedRegionNotFound, message)), Some(refusal), None)
}
