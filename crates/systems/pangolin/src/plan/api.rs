//! Resources of Pangolin: which to ensure and which to delete. The mark in the identifier (`niceId`) proves what is ours.
//!
//! ```text
//! exposure ─► mark ─► a resource with the mark                            ours
//!                 ├─► one whose name is the mark: its creator stopped      ours
//!                 ├─► one with the host, and a mark of ours for another
//!                 │   Ingress: it is handed over without a gap            ours
//!                 ├─► one with the host and no mark of ours               foreign: refused, untouched
//!                 └─► none                                                created
//! ```

use std::collections::BTreeSet;

use jiff::Timestamp;
use signpost_dns::Fqdn;
use signpost_exposure::{Matching, Options, Route, hex};
use signpost_planning::{DeletionGuard, GuardDecision, Permission, Reason};
use signpost_provider_pangolin::{
    DomainId, Listed, Matching as TargetMatching, NewResource, NiceId, Resource, ResourceId, ResourceSettings,
    RoutePath, SiteId, Stored, Target, TargetSettings,
};

use crate::index::IngressId;
use crate::plan::exposure::{Address, Exposure, Exposures};
use crate::plan::probing::{self, headers};
use crate::plan::refusals::{About, HostRefusal};
use crate::plan::{ApiView, FoundSite, Memory};
use crate::settings::Policy;

/// The plan for Pangolin.
#[derive(Debug, Default)]
pub(crate) struct ApiPlan {
    /// Resources to create or to correct.
    pub(crate) ensure: Vec<Ensure>,
    /// Resources to delete, once everything is ensured.
    pub(crate) delete: Vec<Doomed>,
    /// The digest of what is wanted.
    pub(crate) digest: String,
    /// The digest that is noted on the Ingress.
    pub(crate) noted: Option<String>,
    /// Whether that digest is the wanted one, but was written by somebody else: it is noted again.
    pub(crate) restored: bool,
    /// Resources of hosts that wait, which become stricter at once.
    pub(crate) protect: Vec<Protect>,
    /// How many resources are ours.
    pub(crate) managed: usize,
    /// How many deletions wait for a second pass, because they are many.
    pub(crate) paused: usize,
    /// Hosts whose resources are left for another Ingress to take over.
    pub(crate) left: Vec<Fqdn>,
}

/// A resource to create or to correct.
#[derive(Clone, Debug)]
pub(crate) struct Ensure {
    pub(crate) new: NewResource,
    pub(crate) settings: ResourceSettings,
    pub(crate) targets: Vec<TargetSettings>,
    /// The resource that is there.
    pub(crate) current: Option<ResourceId>,
    /// Its known state.
    pub(crate) known: Option<Stored>,
    /// The mark that it has.
    pub(crate) mark: Option<String>,
    /// Whether it answers requests for the host now.
    pub(crate) served: bool,
    /// Whether it is there, and its access becomes stricter.
    pub(crate) stricter: bool,
    /// A host of ours that overlaps with it by a wildcard, and its Ingress: Pangolin may refuse one of the two.
    pub(crate) overlap: Option<(Fqdn, IngressId)>,
}

/// A resource to delete. It is read once more before: its mark must still be ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doomed {
    pub(crate) id: ResourceId,
    pub(crate) host: String,
    /// The identifier or name that proves that it is ours.
    pub(crate) mark: String,
    /// Whether the Ingress that owns the host has a resource of its own.
    pub(crate) twice: bool,
    /// Whether it answers requests for the host.
    pub(crate) served: bool,
}

/// A resource that is only made stricter: its targets cannot be made now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Protect {
    pub(crate) id: ResourceId,
    pub(crate) mark: String,
    pub(crate) host: String,
    pub(crate) sso: bool,
    pub(crate) block_access: bool,
    pub(crate) paused: bool,
}

/// The result of the plan beside the actions.
pub(crate) struct Judged {
    pub(crate) plan: ApiPlan,
    pub(crate) refusals: Vec<HostRefusal>,
    /// The hosts that are exposed when everything is done.
    pub(crate) hosts: Vec<String>,
    /// Whether an earlier process may have stopped in the middle of a change: a write of it may still have its effect.
    pub(crate) unsure: bool,
    /// Hosts of which no resource can be made.
    pub(crate) unmade: BTreeSet<Fqdn>,
}

/// Everything that the plan is made from.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) id: &'a IngressId,
    pub(crate) exposures: &'a Exposures,
    pub(crate) options: Option<&'a Options>,
    pub(crate) site: Option<SiteId>,
    pub(crate) view: &'a ApiView,
    /// The digest that is noted on the Ingress.
    pub(crate) applied: Option<&'a str>,
    /// Whether somebody else wrote it.
    pub(crate) restored: bool,
    /// Whether the time for a comparison has come.
    pub(crate) full: bool,
    /// Whether everything is read because the effect of a write was not known.
    pub(crate) settle: bool,
    pub(crate) policy: &'a Policy,
}

impl<'a> Input<'a> {
    /// The input of an Ingress without a digest, for a pass that compares nothing.
    pub(crate) fn new(
        id: &'a IngressId,
        exposures: &'a Exposures,
        options: Option<&'a Options>,
        view: &'a ApiView,
        policy: &'a Policy,
    ) -> Self {
        let site = match view.site {
            FoundSite::One(site, _) => Some(site),
            FoundSite::None(_) | FoundSite::Several(_) => None,
        };
        Self { id, exposures, options, site, view, applied: None, restored: false, full: false, settle: false, policy }
    }
}

/// The mark of a resource that is provably of this owner: its identifier, or the name of one whose creator stopped.
pub(crate) fn mark_of<'a>(listed: &'a Listed, owner: &str) -> Option<&'a str> {
    [listed.nice_id.as_str(), listed.name.as_str()].into_iter().find(|text| is_mark(text, owner))
}

/// Whether a text is a mark of this owner: `sp-<owner>-<12 digits>-<12 digits>`.
pub(crate) fn is_mark(text: &str, owner: &str) -> bool {
    let hex = |part: &str| part.len() == 12 && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let rest =
        text.strip_prefix("sp-").and_then(|rest| rest.strip_prefix(owner)).and_then(|rest| rest.strip_prefix('-'));
    rest.and_then(|rest| rest.split_once('-')).is_some_and(|(ingress, host)| hex(ingress) && hex(host))
}

/// Decides about the resources of an Ingress.
pub(crate) fn plan(input: &Input<'_>, memory: &Memory, now: Timestamp) -> Judged {
    let Input { id, exposures, options, site, view, applied, restored, full, settle, policy } = *input;
    let mut judged = Judged {
        plan: ApiPlan::default(),
        refusals: Vec::new(),
        hosts: Vec::new(),
        unsure: false,
        unmade: BTreeSet::new(),
    };
    if exposures.blocked {
        for listed in own(view, id) {
            judged.plan.protect.extend(stricter(listed, options, view));
        }
        return judged;
    }
    let mut wanted = Vec::new();
    let mut waiting = exposures.waiting.clone();
    if let (Some(options), Some(site)) = (options, site) {
        for exposure in &exposures.list {
            match ensure(exposure, options, site) {
                Ok(ensure) => wanted.push(ensure),
                Err(refusal) => {
                    waiting.insert(exposure.split.host.undotted().to_owned());
                    judged.unmade.insert(exposure.split.host.clone());
                    judged.refusals.push(refusal);
                }
            }
        }
    }
    judged.plan.digest = digest(&wanted);
    judged.plan.noted = applied.filter(|digest| !digest.is_empty()).map(str::to_owned);
    let stale = memory.applied.as_ref().is_some_and(|(_, at)| now.duration_since(*at).unsigned_abs() >= policy.verify);
    let verify = settle || (full && stale);
    let equal = applied == Some(judged.plan.digest.as_str());
    // A digest that others restored may be of a state that Pangolin does not have any more.
    let noted = equal && !restored;
    judged.plan.restored = equal && restored && memory.applied.is_none();
    let trusted = match &memory.applied {
        Some((digest, _)) => *digest == judged.plan.digest && !verify,
        None => noted && !verify,
    };
    let trust = Trust { trusted, verify, noted };
    let mut used: BTreeSet<ResourceId> = BTreeSet::new();
    for ensure in wanted {
        used.extend(compare(ensure, input, memory, trust, &mut judged));
    }
    for listed in own(view, id) {
        let host = listed.host.as_ref().map_or("", Fqdn::undotted);
        if waiting.contains(host) {
            let shown = options.is_none_or(|options| !options.paused) && is_served(listed, &view.owner);
            judged.hosts.extend(shown.then(|| host.to_owned()));
            judged.plan.protect.extend(stricter(listed, options, view));
        }
    }
    // What an older Ingress owns and has not taken over yet stays too.
    waiting.extend(exposures.lost.iter().cloned());
    doom(id, &waiting, view, &used, &mut judged.plan);
    judged
}

/// What is believed without reading it.
#[derive(Clone, Copy)]
struct Trust {
    /// Whether a resource that the list shows as wanted is as wanted.
    trusted: bool,
    /// Whether everything is read.
    verify: bool,
    /// Whether the digest on the Ingress is the wanted one, and our own.
    noted: bool,
}

/// Compares a wanted resource with the list; returns the resource that is there for it.
fn compare(
    mut ensure: Ensure,
    input: &Input<'_>,
    memory: &Memory,
    trust: Trust,
    judged: &mut Judged,
) -> Option<ResourceId> {
    let Input { id, view, .. } = *input;
    let host = ensure.settings.host.undotted().to_owned();
    let mark = ensure.settings.nice_id.as_str();
    if let Some(owner) = view.owned_hosts.get(&ensure.settings.host).filter(|owner| *owner != id) {
        let message = format!(
            "{host} is already exposed by the Ingress {}. Delete one of the two, or change the host.",
            owner.path()
        );
        judged.refusals.push(About::Host(ensure.settings.host).refuse(Reason::HostConflict, message));
        return None;
    }
    let current = find(view, mark, &ensure.settings.host);
    let overlap = view.owned_hosts.iter().find(|(other, _)| overlaps(other, &ensure.settings.host));
    ensure.overlap = overlap.map(|(other, owner)| (other.clone(), owner.clone()));
    let foreign = view
        .resources
        .iter()
        .find(|listed| listed.host.as_ref() == Some(&ensure.settings.host) && mark_of(listed, &view.owner).is_none());
    if let Some(foreign) = foreign {
        let message = format!(
            "{host} is used by resource {} ({:?}) of Pangolin, which is not ours; delete one of the two",
            foreign.id, foreign.nice_id
        );
        let about = About::Host(ensure.settings.host.clone());
        judged.refusals.push(about.refuse(Reason::ForeignResource, message));
        current?;
    }
    if ensure.settings.enabled {
        judged.hosts.push(host);
    }
    if let Some(current) = current {
        if trust.trusted && shows(current, &ensure.settings, &ensure.targets) {
            return Some(current.id);
        }
        ensure.current = Some(current.id);
        ensure.mark = mark_of(current, &view.owner).map(str::to_owned);
        ensure.served = current.host.as_ref() == Some(&ensure.settings.host) && is_served(current, &view.owner);
        let known = memory.known.get(&current.id).filter(|(resource, targets)| is_known(current, resource, targets));
        ensure.stricter = tightens(&ensure.settings, current, known);
        ensure.known = known.filter(|_| !trust.verify).cloned();
        judged.unsure |= memory.applied.is_none() && !trust.noted;
    }
    judged.plan.ensure.push(ensure);
    current.map(|current| current.id)
}

/// Whether these settings make the access of a resource stricter than it is known to be. What is not known, as after a start, does not count:
/// otherwise each comparison of resources that are strict already would skip the rate.
fn tightens(settings: &ResourceSettings, listed: &Listed, known: Option<&Stored>) -> bool {
    let known = known.map(|(resource, _)| resource);
    let sso = listed.sso.or(known.and_then(|resource| resource.sso));
    (settings.sso && sso == Some(false))
        || (settings.block_access && known.is_some_and(|resource| !resource.block_access))
        || (!settings.enabled && listed.enabled)
}

/// Whether one of two hosts is a wildcard that has the other one.
fn overlaps(one: &Fqdn, two: &Fqdn) -> bool {
    let has = |wildcard: &Fqdn, host: &Fqdn| {
        let suffix = wildcard.undotted().strip_prefix('*').filter(|_| wildcard != host);
        suffix.is_some_and(|suffix| host.undotted().ends_with(suffix))
    };
    has(one, two) || has(two, one)
}

/// The resources with a mark of an Ingress.
pub(crate) fn own<'a>(view: &'a ApiView, id: &IngressId) -> impl Iterator<Item = &'a Listed> {
    let ours = format!("{}-", ingress_mark(&view.owner, id));
    view.resources.iter().filter(move |listed| mark_of(listed, &view.owner).is_some_and(|mark| mark.starts_with(&ours)))
}

/// The hosts of an Ingress that Pangolin serves.
pub(crate) fn public_hosts(view: &ApiView, id: &IngressId) -> BTreeSet<String> {
    let served = own(view, id).filter(|listed| is_served(listed, &view.owner));
    served.filter_map(|listed| Some(listed.host.as_ref()?.undotted().to_owned())).collect()
}

/// What makes a resource stricter that cannot be changed otherwise now. A list does not show whether access is blocked.
fn stricter(listed: &Listed, options: Option<&Options>, view: &ApiView) -> Option<Protect> {
    let Options { sso, block_access, paused, .. } = *options?;
    let needed = block_access || (sso && listed.sso != Some(true)) || (paused && listed.enabled);
    let mark = mark_of(listed, &view.owner).filter(|_| needed)?.to_owned();
    let host = listed.host.as_ref().map_or("", Fqdn::undotted).to_owned();
    Some(Protect { id: listed.id, mark, host, sso, block_access, paused })
}

/// The resource that is ours for a mark and a host.
fn find<'a>(view: &'a ApiView, mark: &str, host: &Fqdn) -> Option<&'a Listed> {
    let all = || view.resources.iter();
    all()
        .find(|listed| listed.nice_id == mark)
        .or_else(|| all().find(|listed| listed.name == mark))
        .or_else(|| all().find(|listed| listed.host.as_ref() == Some(host) && mark_of(listed, &view.owner).is_some()))
}

/// Resources with the marks of an Ingress that are not wanted any more, or are there twice.
fn doom(id: &IngressId, waiting: &BTreeSet<String>, view: &ApiView, used: &BTreeSet<ResourceId>, plan: &mut ApiPlan) {
    let ours = format!("{}-", ingress_mark(&view.owner, id));
    plan.managed = used.len();
    for listed in view.resources.iter().filter(|listed| !used.contains(&listed.id)) {
        let Some(mark) = mark_of(listed, &view.owner).filter(|mark| mark.starts_with(&ours)) else { continue };
        let host = listed.host.as_ref().map_or("", Fqdn::undotted);
        let taker = listed.host.as_ref().and_then(|host| view.takers.get(host)).filter(|owner| *owner != id);
        // A creation may have its effect so late that the new owner has a resource of its own by then.
        let twice = taker.is_some_and(|taker| has_own(view, listed, taker));
        // A host that another Ingress owns is handed over by that one.
        if !twice && (taker.is_some() || waiting.contains(host)) {
            plan.managed += 1;
            plan.left.extend(listed.host.clone().filter(|_| taker.is_some()));
        } else {
            let (host, mark) = (host.to_owned(), mark.to_owned());
            let served = is_served(listed, &view.owner);
            plan.delete.push(Doomed { id: listed.id, host, mark, twice, served });
        }
    }
}

/// Whether the owner of a resource's host has another one for it, under its own mark and with targets.
fn has_own(view: &ApiView, listed: &Listed, owner: &IngressId) -> bool {
    let own = format!("{}-", ingress_mark(&view.owner, owner));
    let mut of_owner = view.resources.iter().filter(|other| other.nice_id.starts_with(&own));
    of_owner.any(|other| other.host == listed.host && is_complete(other, &view.owner))
}

/// Whether a resource of ours is more than just created: it has its mark and a target, as far as the list shows targets.
fn is_complete(listed: &Listed, owner: &str) -> bool {
    is_mark(&listed.nice_id, owner) && listed.targets.as_ref().is_none_or(|targets| !targets.is_empty())
}

/// Whether a resource of ours answers requests.
fn is_served(listed: &Listed, owner: &str) -> bool {
    listed.enabled && is_complete(listed, owner)
}

/// The first part of the marks of an Ingress.
pub(crate) fn ingress_mark(owner: &str, id: &IngressId) -> String {
    let namespace = id.namespace.as_deref().unwrap_or_default();
    signpost_exposure::Names::of(owner, namespace, &id.name, "").ingress_mark
}

/// Decides about marked resources whose Ingress does not exist.
pub(crate) fn sweep(view: &ApiView, policy: &Policy, memory: &mut Memory, now: Timestamp) -> ApiPlan {
    let ours: Vec<(&Listed, &str)> =
        view.resources.iter().filter_map(|listed| Some((listed, mark_of(listed, &view.owner)?))).collect();
    let known: BTreeSet<&str> = view.marks.iter().map(String::as_str).collect();
    let orphan = |mark: &str| !known.contains(mark.rsplit_once('-').map_or(mark, |(ingress, _)| ingress));
    let mut plan = ApiPlan::default();
    for (listed, mark) in &ours {
        let taker = listed.host.as_ref().and_then(|host| view.takers.get(host));
        // Whoever will take the host over may have a resource of its own already.
        let twice = taker.is_some_and(|taker| has_own(view, listed, taker));
        if orphan(mark) && (taker.is_none() || twice) {
            let host = listed.host.as_ref().map_or("", Fqdn::undotted).to_owned();
            let served = is_served(listed, &view.owner);
            plan.delete.push(Doomed { id: listed.id, host, mark: (*mark).to_owned(), twice, served });
        } else if orphan(mark) {
            plan.left.extend(listed.host.clone());
        }
    }
    let names = plan.delete.iter().map(|doomed| doomed.mark.clone());
    let verdict = memory.guard.check(DeletionGuard::LIST, ours.len(), names, Permission::Guarded, policy.brake, now);
    if let GuardDecision::Paused { .. } = verdict {
        plan.paused = plan.delete.len();
        plan.delete.clear();
    }
    plan
}

/// The wanted state, as a text that is the same at every start.
fn digest(wanted: &[Ensure]) -> String {
    let text: Vec<String> = wanted.iter().map(|ensure| format!("{:?}{:?}", ensure.settings, ensure.targets)).collect();
    hex(&text.concat(), 10)
}

/// Whether the list shows a resource as wanted, as far as it shows it at all.
fn shows(listed: &Listed, settings: &ResourceSettings, targets: &[TargetSettings]) -> bool {
    let mut wanted: Vec<_> =
        targets.iter().map(|target| (target.site, target.host.as_str(), target.port, target.enabled)).collect();
    wanted.sort_unstable();
    listed.nice_id == settings.nice_id.as_str()
        && listed.name == settings.name
        && listed.host.as_ref() == Some(&settings.host)
        && listed.enabled == settings.enabled
        && listed.sso.is_none_or(|sso| sso == settings.sso)
        && listed.ssl.is_none_or(|ssl| ssl == settings.ssl)
        && listed_targets(listed).is_none_or(|listed| listed == wanted)
}

/// Whether the list shows a resource as it is remembered.
fn is_known(listed: &Listed, resource: &Resource, targets: &[Target]) -> bool {
    let mut known: Vec<_> =
        targets.iter().map(|target| (target.site, target.host.as_str(), target.port, target.enabled)).collect();
    known.sort_unstable();
    (&listed.nice_id, &listed.name, &listed.host) == (&resource.nice_id, &resource.name, &resource.host)
        && (listed.enabled, listed.ssl.unwrap_or(resource.ssl)) == (resource.enabled, resource.ssl)
        && (listed.sso.is_none() || resource.sso.is_none() || listed.sso == resource.sso)
        && listed_targets(listed).is_none_or(|listed| listed == known)
}

fn listed_targets(listed: &Listed) -> Option<Vec<(SiteId, &str, u16, bool)>> {
    let targets = listed.targets.as_ref()?;
    let mut shown: Vec<_> =
        targets.iter().map(|target| (target.site, target.ip.as_str(), target.port, target.enabled)).collect();
    shown.sort_unstable();
    Some(shown)
}

/// The resource of an exposure in Pangolin.
fn ensure(exposure: &Exposure, options: &Options, site: SiteId) -> Result<Ensure, HostRefusal> {
    let Exposure { split, names, routes } = exposure;
    let host = split.host.undotted();
    let refuse = |reason, why: String| About::Host(split.host.clone()).refuse(reason, format!("{host}: {why}"));
    let id = split.domain_id.clone();
    let id = id.ok_or_else(|| refuse(Reason::DomainNotFound, "its domain has no id in Pangolin".to_owned()))?;
    let nice_id = NiceId::parse(&names.mark).map_err(|error| refuse(Reason::ProviderRejected, error.to_string()))?;
    let domain = DomainId(id);
    let targets = routes
        .iter()
        .map(|route| target(route, options, site))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| refuse(Reason::PathNotSupported, why))?;
    let settings = ResourceSettings {
        nice_id,
        name: names.title.clone(),
        domain: domain.clone(),
        host: split.host.clone(),
        enabled: !options.paused,
        ssl: options.ssl,
        sso: options.sso,
        block_access: options.block_access,
        sticky_session: options.sticky_session,
        tls_server_name: options.tls_server_name.clone(),
        set_host_header: options.set_host_header.clone(),
        headers: headers(&options.headers),
    };
    // The name of a new one is its mark, so that it is recognised when its creator stops before it is marked.
    let new = NewResource { name: names.mark.clone(), domain, host: split.host.clone() };
    let (current, known, mark, overlap) = (None, None, None, None);
    Ok(Ensure { new, settings, targets, current, known, mark, served: false, stricter: false, overlap })
}

fn target(route: &Route<Address>, options: &Options, site: SiteId) -> Result<TargetSettings, String> {
    let Route { path, priority, backend } = route;
    let path = path.as_ref().map(|(matching, text)| {
        let matching = match matching {
            Matching::Exact => TargetMatching::Exact,
            Matching::Regex => TargetMatching::Regex,
        };
        RoutePath::new(matching, text.clone()).map_err(|error| error.to_string())
    });
    Ok(TargetSettings {
        site,
        host: backend.host.clone(),
        port: backend.port,
        method: backend.scheme.as_str().to_owned(),
        enabled: true,
        path: path.transpose()?,
        priority: *priority,
        health: options.check.as_ref().map(|check| probing::of(check, backend)),
    })
}
