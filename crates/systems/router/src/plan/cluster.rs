//! ClusterIdentities and DNSConfigurations: which one is used, and whether it is valid.

use std::{collections::BTreeSet, sync::Arc};

use signpost_apis::router::{ClusterIdentitySpec, DNSConfigurationSpec, ExternalDNSController};
use signpost_dns::Fqdn;
use signpost_engine::Identity;
use signpost_planning::{Reason, Refusal};

use crate::{
    index::world::Used,
    plan::names,
    report::status::{Decision, Detail, NOTICE, READY, Told, Verdict},
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
    /// An older ClusterIdentity that cannot be read.
    pub(crate) unreadable_identity: Option<String>,
    /// An older DNSConfiguration that cannot be read.
    pub(crate) unreadable_configuration: Option<String>,
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
    let View { identities, configurations, unreadable_identity, unreadable_configuration, configuration } = view;
    let identity = |spec: &ClusterIdentitySpec| match check_identity(spec) {
        Ok(()) => Ok(adopted(spec, configuration)),
        Err(why) => Err(why),
    };
    let words = ("ClusterIdentity", IDENTITY, "ValidationSucceeded");
    let mut decisions = judge(identities, unreadable_identity.as_deref(), words, true, identity);
    let valid = |spec: &DNSConfigurationSpec| check_configuration(spec).map(|()| (None, None));
    let words = ("DNSConfiguration", CONFIGURATION, "ConfigurationValid");
    decisions.extend(judge(configurations, unreadable_configuration.as_deref(), words, false, valid));
    decisions
}

/// The message for an object whose older rival cannot be read.
pub(crate) fn older_is_unreadable(kind: &str, older: &str) -> String {
    format!(
        "{kind} {older} is older and cannot be read, so none is used. Apply {older} again in a valid form, or delete it"
    )
}

type More = (Option<Told>, Option<Refusal>);

fn judge<S>(
    objects: &[(Identity, Arc<S>)],
    unreadable: Option<&str>,
    (kind, expected, valid): (&str, &str, &'static str),
    has_phase: bool,
    check: impl Fn(&S) -> Result<More, String>,
) -> Vec<Decision> {
    let winner = objects.iter().map(|(identity, _)| (identity.created, &identity.id)).min();
    let decide = |(identity, spec): &(Identity, Arc<S>)| {
        let phase = |phase: &'static str| has_phase.then_some(phase);
        let second = match (unreadable, winner) {
            (Some(older), _) => Some(older_is_unreadable(kind, older)),
            (None, Some((_, winner))) if *winner != identity.id => Some(format!(
                "{kind} {} is older and is used; there can be only one. Delete one of the two",
                winner.name
            )),
            _ => None,
        };
        let verdict = match second {
            Some(message) => {
                Verdict::refused(phase("Failed"), Refusal::new(Reason::SingletonViolation, message), Detail::None)
            }
            None => match check(spec) {
                Err(why) => Verdict::refused(phase("Failed"), Refusal::new(Reason::InvalidSpec, why), Detail::None),
                Ok((more, mut refusal)) => {
                    let ready = Told::new(READY, true, valid, format!("{kind} is valid (ReconciliationSucceeded)"));
                    let mut told = vec![ready];
                    told.extend(more);
                    if identity.id.name != expected {
                        let message = format!("{kind} is used, but other tools expect the name {expected}. Rename it");
                        told.push(Told::new(NOTICE, true, Reason::UnusualName.as_str(), message.clone()));
                        refusal.get_or_insert(Refusal::new(Reason::UnusualName, message));
                    }
                    Verdict { phase: phase("Active"), told, refusal, detail: Detail::None }
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
        return (Some(Told::new(TYPE, true, "NoAdoptedRegions", "no region is adopted")), None);
    }
    let controllers = configuration.as_ref().map_or(&[][..], |spec| &spec.external_dns_controllers);
    let has_controller = |region: &&String| !controllers.iter().any(|controller| controller.region == **region);
    let missing: Vec<&str> = spec.adopts_regions.iter().filter(has_controller).map(String::as_str).collect();
    if missing.is_empty() {
        return (Some(Told::new(TYPE, true, "AllAdoptedRegionsValid", "every adopted region has a controller")), None);
    }
    let message = match configuration {
        Ok(_) => format!(
            "DNSConfiguration has no controller of the adopted region {}. Add one, or remove the region",
            missing.join(", ")
        ),
        Err(why) => format!("{why}, so the adopted region {} has no controller", missing.join(", ")),
    };
    let refusal = Refusal::new(Reason::AdoptedRegionNotFound, message.clone());
    (Some(Told::new(TYPE, false, Reason::AdoptedRegionNotFound.as_str(), message)), Some(refusal))
}
