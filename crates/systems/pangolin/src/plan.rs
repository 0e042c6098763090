//! The desired endpoints of an Ingress, and the changes that may be made to get there. Pure: no I/O, no clock, no log.
//!
//! ```text
//! claimant, Services, tunnel, domains ─► exposures: host, domain, routes, addresses │ refusals │ hosts that wait
//!                                            ├─► crd: PangolinResources to apply and to delete
//!                                            └─► api: resources of Pangolin to ensure and to delete
//! ```
//! One planner for both deliveries. A resource that is not provably ours is never changed. An object that cannot be read, found or understood deletes nothing. A new
//! exposure is made before an old one is deleted.

pub(crate) mod api;
pub(crate) mod crd;
pub(crate) mod exposure;
mod probing;
pub(crate) mod refusals;
mod tunnel;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signpost_dns::Fqdn;
use signpost_engine::{Identity, RetryClass};
use signpost_exposure::BaseDomain;
use signpost_planning::{GuardMemory, Reason, Refusal};
use signpost_provider_pangolin::{ErrorClass, Listed, PangolinError, ResourceId, Site, SiteId, Stored};

use crate::index::{ChildFacts, ChildState, Claimant, FoundTunnel, IngressId, Key, ServiceFacts};
use crate::settings::Policy;
use api::ApiPlan;
use crd::{CrdPlan, Shape};
use exposure::Exposures;
use refusals::{About, HostRefusal};
use tunnel::{children_of, resources_of};

/// The memory of an Ingress between passes. Losing it costs a read, never an exposure.
#[derive(Debug, Default)]
pub struct Memory {
    /// The Ingress as it was last seen, for events after its end.
    pub(crate) identity: Option<Identity>,
    /// The report of pangolin-operator about each child: host, state, id in Pangolin.
    pub(crate) children: BTreeMap<String, (String, ChildState, Option<String>)>,
    /// Children whose leftover in Pangolin has been reported, while they are being deleted; hosts of a deleted Ingress (direct mode).
    pub(crate) left: BTreeSet<String>,
    /// Whether the children were seen before: what a start finds is not reported as a change.
    pub(crate) seen: bool,
    /// Whether a tunnel that is not ready, or a sweep that waits, has been reported.
    pub(crate) waiting: bool,
    /// The resources of Pangolin, as last read or written (direct mode).
    pub(crate) known: BTreeMap<ResourceId, Stored>,
    /// Hosts with a resource of this Ingress that answers requests, as last listed (direct mode).
    pub(crate) exposed: BTreeSet<String>,
    /// The host that is exposed instead of the one in the rule, where that was reported.
    pub(crate) moved: Option<String>,
    /// The domains that the last pass knew (crd mode).
    pub(crate) domains: Option<Arc<[BaseDomain]>>,
    /// The digest of what was last made sure of, and when (direct mode).
    pub(crate) applied: Option<(String, Timestamp)>,
    /// Large deletions that wait (sweep).
    pub(crate) guard: GuardMemory,
    /// When a write was last sent whose effect is not known (direct mode).
    pub(crate) doubt: Option<Timestamp>,
    /// How many resources there were for the Ingress.
    pub(crate) managed: usize,
    /// How many passes in a row found a host used by a foreign resource (direct mode).
    pub(crate) foreign: u32,
}

impl Memory {
    /// Domains that are not known for a moment are those of the last pass. The index knows those of existing children too, but not of a child
    /// that the watch has not delivered yet: the public suffix list would move it into another domain.
    pub(crate) fn remember_domains(&mut self, tunnel: &mut FoundTunnel) {
        if let FoundTunnel::One { domains, .. } = tunnel {
            match domains {
                Some(known) => self.domains = Some(known.clone()),
                None => domains.clone_from(&self.domains),
            }
        }
    }
}

/// The input of a plan.
#[derive(Debug)]
pub struct Observed {
    pub(crate) key: Key,
    pub(crate) policy: Arc<Policy>,
    /// Whether the time for a comparison has come.
    pub(crate) full: bool,
    pub(crate) wish: Wish,
    /// The Ingress that exists, of any class.
    pub(crate) present: Option<Identity>,
    pub(crate) view: View,
    pub(crate) memory: Memory,
    /// How long ago a write to one of its hosts was sent whose effect is not known, for any Ingress (direct mode).
    pub(crate) doubt: Option<Duration>,
}

/// The request.
#[derive(Debug)]
pub(crate) enum Wish {
    /// It cannot be read: leave whatever is there.
    Unreadable,
    /// Nothing: the Ingress is deleted, switched off, or not ours.
    Nothing,
    /// An Ingress.
    Ingress(Box<Wanted>),
}

/// An Ingress with everything it refers to.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) claimant: Arc<Claimant>,
    /// Hosts that other Ingresses own.
    pub(crate) taken: BTreeMap<Fqdn, IngressId>,
    /// Its class, where only the controller of the class makes it ours.
    pub(crate) class: Option<String>,
    /// The hosts that it claims and owns.
    pub(crate) owned: BTreeSet<Fqdn>,
    /// Services that exist.
    pub(crate) services: BTreeMap<String, ServiceFacts>,
    /// The tunnel's name.
    pub(crate) reference: String,
}

/// The current state of the place of delivery.
#[derive(Debug)]
pub(crate) enum View {
    /// PangolinResources.
    Crd {
        /// The writable fields, or why they are not known.
        shape: Result<Shape, String>,
        /// The tunnel.
        tunnel: FoundTunnel,
        /// The children of the Ingress, by name.
        children: BTreeMap<String, ChildFacts>,
        /// Hosts of the Ingress for which their owner has a child already.
        handed_over: Vec<String>,
    },
    /// Pangolin itself.
    Api(Box<ApiView>),
    /// Pangolin, which could not be read.
    Down(PangolinError),
}

/// The state of Pangolin.
#[derive(Debug)]
pub(crate) struct ApiView {
    /// The owner id in the marks.
    pub(crate) owner: String,
    /// The site that the tunnel's name means.
    pub(crate) site: FoundSite,
    /// The domains of the organisation.
    pub(crate) domains: Arc<[BaseDomain]>,
    /// Its resources.
    pub(crate) resources: Arc<[Listed]>,
    /// The first parts of the marks of Ingresses that exist (sweep).
    pub(crate) marks: Vec<String>,
    /// Hosts of our resources that an Ingress owns, and who.
    pub(crate) owned_hosts: BTreeMap<Fqdn, IngressId>,
    /// The same, for owners that will expose them.
    pub(crate) takers: BTreeMap<Fqdn, IngressId>,
}

/// The site of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundSite {
    /// One site.
    One(SiteId, bool),
    /// None; these are there.
    None(String),
    /// Several of the name, with these identifiers.
    Several(String),
}

/// The site of a name: its identifier, else its only name; without a configured name, the only site.
pub(crate) fn site(sites: &[Site], reference: &str, configured: bool) -> FoundSite {
    let one = |site: &Site| FoundSite::One(site.id, site.online != Some(false));
    if let Some(site) = sites.iter().find(|site| site.nice_id == reference) {
        return one(site);
    }
    let named: Vec<&Site> = sites.iter().filter(|site| site.name == reference).collect();
    let identifiers = |sites: &mut dyn Iterator<Item = &Site>| -> String {
        let mut names: Vec<&str> = sites.map(|site| site.nice_id.as_str()).collect();
        names.sort_unstable();
        names.join(", ").chars().take(300).collect()
    };
    match (&named[..], sites) {
        ([site], _) => one(site),
        ([], [only]) if !configured => one(only),
        ([], _) => FoundSite::None(identifiers(&mut sites.iter())),
        (several, _) => FoundSite::Several(identifiers(&mut several.iter().copied())),
    }
}

/// The plan.
#[allow(clippy::struct_excessive_bools)] // Each answers a question of the report.
#[derive(Debug)]
pub struct Plan {
    pub(crate) key: Key,
    pub(crate) policy: Arc<Policy>,
    pub(crate) memory: Memory,
    pub(crate) identity: Option<Identity>,
    pub(crate) tunnel: String,
    pub(crate) refusals: Vec<HostRefusal>,
    /// Events that are not refusals.
    pub(crate) notes: Vec<Note>,
    /// When to come back although everything that can be done is done.
    pub(crate) again: Option<RetryClass>,
    pub(crate) delivery: Delivery,
    /// Hosts that are exposed once everything is done; `None` leaves the status of the Ingress alone.
    pub(crate) hosts: Option<Vec<String>>,
    /// Whether the Ingress exists.
    pub(crate) present: bool,
    /// Whether the Ingress is ours.
    pub(crate) managed: bool,
    /// Whether the refusals are complete.
    pub(crate) judged: bool,
    /// Whether nothing of it may be changed (direct mode).
    pub(crate) blocked: bool,
    /// The class to note on the Ingress, and the one that is noted (direct mode).
    pub(crate) classes: Option<(Option<String>, Option<Box<str>>)>,
    /// Hosts that it owns and cannot expose (direct mode).
    pub(crate) abandoned: Option<Abandoned>,
    /// What the Ingress asked for.
    pub(crate) asked: Option<Arc<Claimant>>,
}

/// Hosts that an Ingress owns and cannot expose.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    pub(crate) hosts: BTreeSet<Fqdn>,
    /// The first parts of the marks of resources that have hosts of it.
    pub(crate) marks: BTreeSet<String>,
    pub(crate) owner: String,
}

fn abandoned(wanted: Option<&Wanted>, exposures: &Exposures, unmade: &BTreeSet<Fqdn>, view: &ApiView) -> Abandoned {
    let owned = wanted.map(|wanted| wanted.owned.clone()).unwrap_or_default();
    let of = view.resources.iter().filter(|listed| listed.host.as_ref().is_some_and(|host| owned.contains(host)));
    let mut hosts = owned.clone();
    if !exposures.blocked {
        for exposure in exposures.list.iter().filter(|one| !unmade.contains(&one.split.host)) {
            hosts.remove(&exposure.split.host);
        }
    }
    let marks = of.filter_map(|listed| api::mark_of(listed, &view.owner)?.rsplit_once('-'));
    let marks = marks.map(|(ingress, _)| ingress.to_owned()).collect();
    Abandoned { marks, owner: view.owner.clone(), hosts }
}

impl Plan {
    fn nothing(key: Key, policy: Arc<Policy>) -> Self {
        Self {
            key,
            policy,
            memory: Memory::default(),
            identity: None,
            tunnel: String::new(),
            refusals: Vec::new(),
            notes: Vec::new(),
            again: None,
            delivery: Delivery::Nothing,
            hosts: None,
            present: false,
            managed: false,
            judged: false,
            blocked: false,
            classes: None,
            abandoned: None,
            asked: None,
        }
    }
}

/// The plan, by place of delivery.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// Nothing.
    Nothing,
    /// PangolinResources.
    Crd(CrdPlan),
    /// Pangolin itself.
    Api(ApiPlan),
    /// Pangolin, which could not be read.
    Down(PangolinError),
}

/// An event that is not a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

impl Note {
    pub(crate) fn normal(reason: &'static str, text: impl Into<String>) -> Self {
        Self { warning: false, reason, text: text.into() }
    }

    pub(crate) fn warning(reason: Reason, text: impl Into<String>) -> Self {
        Self { warning: true, reason: reason.as_str(), text: text.into() }
    }
}

/// Decides.
pub(crate) fn plan(observed: Observed, now: Timestamp) -> Plan {
    let Observed { key, policy, full, wish, present, view, mut memory, doubt } = observed;
    let mut plan = Plan::nothing(key, policy);
    if let Some(at) = doubt.and_then(|age| now.checked_sub(jiff::SignedDuration::try_from(age).ok()?).ok()) {
        // A write to one of its hosts may still have its effect.
        memory.doubt = Some(memory.doubt.map_or(at, |known| known.max(at)));
    }
    match (plan.key.clone(), wish) {
        (Key::Sweep, _) => match view {
            View::Api(view) => {
                memory.doubt = None;
                let swept = api::sweep(&view, &plan.policy, &mut memory, now);
                if swept.paused > 0 && !memory.waiting {
                    let note = format!(
                        "{} resources of Pangolin that no Ingress wants stay public until a second check, because they are many",
                        swept.paused
                    );
                    plan.notes.push(Note::warning(Reason::StillExposed, note));
                }
                memory.waiting = swept.paused > 0;
                plan.delivery = Delivery::Api(swept);
            }
            View::Down(error) => plan.delivery = Delivery::Down(error),
            View::Crd { .. } => {}
        },
        // What exists is unchanged, and is remembered and counted.
        (Key::Ingress(_), Wish::Unreadable) => plan.managed = true,
        (Key::Ingress(id), wish) => {
            let wanted = match wish {
                Wish::Ingress(wanted) => Some(wanted),
                Wish::Nothing | Wish::Unreadable => None,
            };
            plan.present = present.is_some();
            memory.identity = present.or(memory.identity.take());
            if let Some(wanted) = &wanted {
                memory.identity = Some(wanted.claimant.identity.clone());
                plan.managed = true;
                plan.tunnel.clone_from(&wanted.reference);
                plan.asked = Some(Arc::clone(&wanted.claimant));
            }
            plan.identity.clone_from(&memory.identity);
            // Deleted before its first pass: only its name is known, which is enough for an event.
            plan.identity.get_or_insert_with(|| Identity::of_meta(id.clone(), &ObjectMeta::default()));
            decide(&id, wanted.as_deref(), &view, full, &mut plan, &mut memory, now);
        }
    }
    plan.memory = memory;
    plan
}

/// Decides about one Ingress; `wanted` is absent when nothing is to be exposed for it.
fn decide(
    id: &IngressId,
    wanted: Option<&Wanted>,
    view: &View,
    full: bool,
    plan: &mut Plan,
    memory: &mut Memory,
    now: Timestamp,
) {
    let policy = Arc::clone(&plan.policy);
    let made = match view {
        View::Down(error) => {
            down(wanted, full, error, plan, memory);
            plan.delivery = Delivery::Down(error.clone());
            return;
        }
        View::Crd { shape, tunnel, .. } => wanted.map(|wanted| children_of(wanted, shape, tunnel, &policy)),
        View::Api(view) => wanted.map(|wanted| resources_of(wanted, view, &policy)),
    };
    plan.judged = true;
    let mut exposures = made.unwrap_or_default();
    wait(&mut exposures, plan, memory);
    report_moved(&exposures, plan, memory);
    plan.refusals.append(&mut exposures.refusals);
    plan.again = exposures.again;
    let options = wanted.map(|wanted| &wanted.claimant.annotations.options);
    if let View::Crd { shape, tunnel, children, handed_over } = view {
        let tunnel = match tunnel {
            FoundTunnel::One { namespace, name, .. } => Some((namespace.as_str(), name.as_str())),
            FoundTunnel::None | FoundTunnel::Several(_) => None,
        };
        let input = crd::Input {
            id,
            identity: wanted.map(|wanted| &wanted.claimant.identity),
            policy: &policy,
            exposures: &exposures,
            shape: shape.as_ref().ok().copied(),
            tunnel,
            options,
            class: wanted.and_then(|wanted| wanted.class.as_deref()),
            children,
            handed_over,
            now,
        };
        let crd::Judged { plan: delivery, notes, refusals, ready, again } = crd::plan(&input, memory);
        plan.again = plan.again.or(again);
        plan.notes.extend(notes);
        plan.refusals.extend(refusals);
        plan.hosts = Some(ready);
        plan.delivery = Delivery::Crd(delivery);
    } else if let View::Api(view) = view {
        let input = api::Input { full, ..api::Input::new(id, &exposures, options, view, &policy) };
        decide_resources(input, wanted, plan, memory, now);
    }
    if exposures.blocked {
        // What exists is unchanged, and so is the status of the Ingress.
        plan.hosts = None;
    }
}

/// Decides about the resources of one Ingress in Pangolin, and when they are looked at again.
fn decide_resources<'a>(
    mut input: api::Input<'a>,
    wanted: Option<&'a Wanted>,
    plan: &mut Plan,
    memory: &mut Memory,
    now: Timestamp,
) {
    let (exposures, view) = (input.exposures, input.view);
    memory.left.clear();
    memory.exposed = api::public_hosts(view, input.id);
    // What another Ingress took over, or others deleted, is not ours to report.
    let own: BTreeSet<ResourceId> = api::own(view, input.id).map(|listed| listed.id).collect();
    memory.known.retain(|id, _| own.contains(id));
    if let Some(claimant) = wanted.map(|wanted| &*wanted.claimant) {
        (input.applied, input.restored) = (claimant.applied.as_deref(), claimant.restored);
    }
    let doubt = memory.doubt.map(|at| DOUBT.saturating_sub(now.duration_since(at).unsigned_abs()));
    input.settle = doubt == Some(Duration::ZERO);
    let api::Judged { plan: delivery, refusals, hosts, unsure, unmade } = api::plan(&input, memory, now);
    // What was not read is still in doubt.
    let settled = input.settle && !exposures.blocked && exposures.waiting.is_empty();
    let doubt = doubt.filter(|_| !input.settle).or_else(|| unsure.then_some(DOUBT));
    if settled || unsure {
        memory.doubt = unsure.then_some(now);
    }
    let foreign = refusals.iter().any(|refused| refused.refusal.reason == Reason::ForeignResource);
    memory.foreign = if foreign { memory.foreign.saturating_add(1) } else { 0 };
    if foreign {
        plan.again = Some(RetryClass::Fixed(recheck(memory.foreign)));
    } else if !refusals.is_empty() {
        plan.again.get_or_insert(SOON);
    }
    if let Some(left) = doubt {
        plan.again.get_or_insert(RetryClass::Fixed(left));
    }
    plan.refusals.extend(refusals);
    plan.hosts = Some(hosts);
    plan.blocked = exposures.blocked;
    plan.abandoned = Some(abandoned(wanted, exposures, &unmade, view));
    plan.classes = wanted.map(|wanted| (wanted.class.clone(), wanted.claimant.noted_class.clone()));
    plan.delivery = Delivery::Api(delivery);
}

/// Reports a Pangolin that does not answer: to an Ingress that waits for it, and about the hosts of a deleted one.
fn down(wanted: Option<&Wanted>, full: bool, error: &PangolinError, plan: &mut Plan, memory: &mut Memory) {
    // One that is in place needs nothing, and nothing is reported.
    plan.judged = !full && wanted.is_some();
    if plan.judged {
        let Refusal { reason, message } = unreachable(error);
        plan.refusals.push(About::Ingress.refuse(reason, message));
    }
    let was_public = |Claimant { applied, annotations, .. }: &Claimant| {
        applied.as_deref().is_some_and(|digest| !digest.is_empty()) && !annotations.options.paused
    };
    match wanted {
        Some(wanted) => {
            // Its next deletion is reported again.
            memory.left.clear();
            // Nothing was listed since the start. An Ingress with a digest has resources for its hosts.
            if memory.exposed.is_empty() && was_public(&wanted.claimant) {
                memory.exposed = wanted.owned.iter().map(|host| host.undotted().to_owned()).collect();
            }
        }
        None if memory.left.is_empty() => {
            let known = memory.known.values().filter(|(resource, _)| resource.enabled);
            let known = known.filter_map(|(resource, _)| Some(resource.host.as_ref()?.undotted().to_owned()));
            memory.left = known.chain(memory.exposed.iter().cloned()).collect();
            let hosts: Vec<&str> = memory.left.iter().map(String::as_str).collect();
            let note = format!("{} stays public until Pangolin answers: {error}", hosts.join(", "));
            plan.notes.extend((!hosts.is_empty()).then(|| Note::warning(Reason::StillExposed, note)));
        }
        None => {}
    }
}

/// A tunnel that is not ready is not a refusal: it is reported once, as a normal event.
fn wait(exposures: &mut Exposures, plan: &mut Plan, memory: &mut Memory) {
    let at = exposures.refusals.iter().position(|refused| refused.refusal.reason == Reason::TunnelNotReady);
    if let Some(at) = at {
        let refusal = exposures.refusals.remove(at).refusal;
        if !memory.waiting {
            plan.notes.push(Note::normal(Reason::TunnelNotReady.as_str(), refusal.message));
        }
    }
    memory.waiting = at.is_some();
}

/// A host that keeps its subdomain in another domain is reported once, as a normal event.
fn report_moved(exposures: &Exposures, plan: &mut Plan, memory: &mut Memory) {
    if let Some((host, exposed)) =
        exposures.moved.as_ref().filter(|(_, exposed)| memory.moved.as_ref() != Some(exposed))
    {
        let note = format!("{host} is not below the domain that domain-name names, so {exposed} is exposed");
        plan.notes.push(Note::normal("HostOverridden", note));
    }
    memory.moved = exposures.moved.as_ref().map(|(_, exposed)| exposed.clone());
}

/// Why Pangolin cannot be used now, for an Ingress that waits for it.
pub(crate) fn unreachable(error: &PangolinError) -> Refusal {
    let reason = match error.class() {
        ErrorClass::Transient => Reason::ProviderUnreachable,
        ErrorClass::Throttled(_) => Reason::ProviderThrottled,
        ErrorClass::Settings => Reason::ProviderUnauthorized,
        ErrorClass::Object => Reason::ProviderRejected,
    };
    Refusal::new(reason, error.to_string())
}

/// How long a write may take to have its effect after its caller gave up. After that, everything is read once more.
pub(crate) const DOUBT: Duration = Duration::from_mins(1);

/// How long to wait until a host that a foreign resource has is looked at again, by the number of times that it was not free.
pub(crate) fn recheck(times: u32) -> Duration {
    let doubled = Duration::from_secs(15).saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(8)));
    doubled.min(Duration::from_mins(2))
}

/// How soon something that only a person can change is tried again.
pub(crate) const SOON: RetryClass = RetryClass::Fixed(Duration::from_mins(1));

#[cfg(test)]
mod tests;
