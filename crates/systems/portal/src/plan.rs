//! What follows from the objects and the answers: verdicts and components. Pure.
//!
//! ```text
//!  entries ─► collect ─► aggregate ─► questions ─(lookup)─► judge ─► verdicts ─► status · component
//! ```

pub mod component;
pub mod entries;
pub mod judge;
pub mod view;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signpost_apis::portal::ComponentState;
use signpost_dns::Fqdn;
use signpost_engine::Identity;
use signpost_inventory::{Owner, Source, SyncReason, SyncStatus};
use signpost_planning::doubled;

use crate::index::{ComponentFacts, DnsFacts, PortalFacts};
use component::Wish;
use entries::{Subject, Wanted};
use judge::{Answers, Judged, Verdict, judge};

/// A verdict, and when the name is looked up next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The verdict.
    pub verdict: Verdict,
    /// When the name was looked up.
    pub at: Timestamp,
    /// When it is looked up next.
    pub next: Timestamp,
    /// How often in a row it was not in sync.
    pub failures: u32,
}

/// The verdicts of a DNS object.
pub type Verdicts = BTreeMap<Subject, Checked>;

/// The memory of a key between its passes.
#[derive(Debug, Default)]
pub struct Memory {
    /// The verdicts; `None` before the first pass.
    pub verdicts: Option<Arc<Verdicts>>,
    /// The portal that was asked for and does not exist, once that is reported.
    pub missing: Option<String>,
}

/// The times between lookups.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// For a name that is in sync.
    pub refresh: Duration,
    /// The first one for a name that is not.
    pub again: Duration,
}

/// A DNS object and its names.
#[derive(Debug)]
pub struct ObservedDns {
    /// Which object.
    pub identity: Identity,
    /// Its request.
    pub facts: DnsFacts,
    /// The portal that shows it.
    pub portal: Option<PortalFacts>,
    /// The name of that portal.
    pub shown_by: Option<String>,
    /// The verdicts so far.
    pub verdicts: Arc<Verdicts>,
    /// The portal that was reported as missing.
    pub missing: Option<String>,
    /// Whether names are looked up.
    pub check: bool,
    /// The answers of this pass.
    pub answers: Answers,
    /// How many names should have been looked up and were not, because the pass took too long.
    pub left: usize,
    /// The components that it owns.
    pub owned: Vec<(String, ComponentState)>,
    /// The times between lookups.
    pub pauses: Pauses,
}

/// The input of a plan.
#[derive(Debug)]
pub enum Observed {
    /// A DNS object.
    Dns(Box<ObservedDns>),
    /// The names of an owner of another system.
    Names(Box<ObservedNames>),
    /// A portal.
    Portal(Identity, PortalFacts),
    /// A component, and whether its portal exists.
    Component(Identity, Box<ComponentFacts>, bool),
    /// Whether the main portal must be created, in this namespace.
    Main(Option<String>),
    /// The object does not exist any more.
    Nothing,
}

/// The action on the component of a DNS object.
#[derive(Debug, Default)]
pub struct ComponentPlan {
    /// The component to create or change, with the state that it has or gets.
    pub apply: Option<(Wish, ComponentState)>,
    /// The names of components to delete.
    pub delete: Vec<String>,
}

/// A name whose status changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The name.
    pub name: String,
    /// The status before.
    pub before: SyncStatus,
    /// The verdict now.
    pub now: Verdict,
}

/// The decision about a DNS object.
#[derive(Debug)]
pub struct DnsPlan {
    /// Which object.
    pub identity: Identity,
    /// Its request.
    pub facts: DnsFacts,
    /// The portal that it refers to.
    pub portal: Option<PortalFacts>,
    /// Whether names are looked up.
    pub check: bool,
    /// The verdicts.
    pub verdicts: Arc<Verdicts>,
    /// The portal that was reported as missing before, and the one that is missing now.
    pub missing: (Option<String>, Option<String>),
    /// Why no resolver answered for some name.
    pub outage: Option<String>,
    /// Names whose status changed.
    pub turns: Vec<Turn>,
    /// The action on its component.
    pub component: ComponentPlan,
    /// When the next lookup is due.
    pub next: Option<Timestamp>,
}

/// The decisions.
#[derive(Debug)]
pub enum Plan {
    /// About a DNS object.
    Dns(Box<DnsPlan>),
    /// About the names of an owner of another system.
    Names(NamesPlan),
    /// A portal is reported.
    Portal(Identity, PortalFacts),
    /// A component is reported.
    Component(Identity, Box<ComponentFacts>, bool),
    /// The main portal is created in this namespace.
    Main(String),
    /// Nothing.
    Nothing,
}

/// Decides.
pub fn plan(observed: Observed, now: Timestamp) -> Plan {
    match observed {
        Observed::Dns(observed) => Plan::Dns(Box::new(plan_dns(*observed, now))),
        Observed::Names(observed) => Plan::Names(plan_names(*observed, now)),
        Observed::Portal(identity, facts) => Plan::Portal(identity, facts),
        Observed::Component(identity, facts, has_portal) => Plan::Component(identity, facts, has_portal),
        Observed::Main(Some(namespace)) => Plan::Main(namespace),
        Observed::Main(None) | Observed::Nothing => Plan::Nothing,
    }
}

/// The names of a DNS object that are looked up: none for remote names, for a portal without names, or without checks.
pub fn is_checked(facts: &DnsFacts, portal: Option<PortalFacts>, check: bool) -> bool {
    check && facts.source != Source::Remote && portal.is_none_or(|portal| portal.dns)
}

/// The names that are due for a lookup: the longest waiting first. A name in `changed` is always due, because its publisher has changed.
pub fn due<'a>(
    names: impl Iterator<Item = &'a Wanted>,
    verdicts: &Verdicts,
    changed: &BTreeSet<Fqdn>,
    now: Timestamp,
) -> Vec<&'a Wanted> {
    let is_changed = |wanted: &Wanted| wanted.question.as_ref().is_ok_and(|question| changed.contains(&question.name));
    let next = |wanted: &Wanted| match verdicts.get(&wanted.subject()?) {
        Some(checked) if checked.next > now && !is_changed(wanted) => None,
        Some(checked) => Some(checked.next),
        None => Some(Timestamp::UNIX_EPOCH),
    };
    let mut due: Vec<(Timestamp, &Wanted)> = names.filter_map(|wanted| Some((next(wanted)?, wanted))).collect();
    due.sort_by_key(|(next, _)| *next);
    due.into_iter().map(|(_, wanted)| wanted).collect()
}

/// The names of an owner of another system.
#[derive(Debug)]
pub struct ObservedNames {
    /// Whose names.
    pub owner: Owner,
    /// The names that were published.
    pub names: Vec<Wanted>,
    /// The verdicts so far.
    pub verdicts: Arc<Verdicts>,
    /// The answers of this pass.
    pub answers: Answers,
    /// How many questions were not asked, because the pass took too long.
    pub left: usize,
    /// The times between lookups.
    pub pauses: Pauses,
}

/// What is decided about the names of an owner of another system.
#[derive(Debug)]
pub struct NamesPlan {
    /// Whose names.
    pub owner: Owner,
    /// The verdicts.
    pub verdicts: Arc<Verdicts>,
    /// When the next lookup is due.
    pub next: Option<Timestamp>,
}

fn plan_names(observed: ObservedNames, now: Timestamp) -> NamesPlan {
    let ObservedNames { owner, names, verdicts, answers, left, pauses } = observed;
    let judged = judge_all(&names.iter().collect::<Vec<_>>(), &verdicts, &answers, pauses, now);
    let next = judged.next(&names.iter().collect::<Vec<_>>(), left, pauses, now);
    NamesPlan { owner, verdicts: Arc::new(judged.verdicts), next }
}

/// The verdicts of a pass.
struct JudgedAll {
    verdicts: Verdicts,
    turns: Vec<Turn>,
    outage: Option<String>,
}

impl JudgedAll {
    /// When the next lookup is due.
    fn next(&self, names: &[&Wanted], left: usize, pauses: Pauses, now: Timestamp) -> Option<Timestamp> {
        let is_unknown =
            |wanted: &&Wanted| wanted.subject().is_some_and(|subject| !self.verdicts.contains_key(&subject));
        match (left, names.iter().any(is_unknown)) {
            (0, false) => self.verdicts.values().map(|checked| checked.next).min(),
            (0, true) => Some(later(now, pauses.again)),
            _ => Some(now),
        }
    }
}

/// Judges names by the answers of a pass. What was not asked keeps its verdict, and so does everything during an outage.
fn judge_all(names: &[&Wanted], before: &Verdicts, answers: &Answers, pauses: Pauses, now: Timestamp) -> JudgedAll {
    let (mut verdicts, mut turns, mut outage) = (Verdicts::new(), Vec::new(), None);
    for wanted in names {
        let (Some(subject), Ok(question)) = (wanted.subject(), &wanted.question) else { continue };
        let last = before.get(&subject);
        match judge(question, answers) {
            Judged::Verdict(verdict) => {
                let checked = judged(verdict, last, pauses, now);
                if let Some(last) = last.filter(|last| last.verdict.status != checked.verdict.status) {
                    let (name, now) = (wanted.shown.clone(), checked.verdict.clone());
                    turns.push(Turn { name, before: last.verdict.status, now });
                }
                verdicts.insert(subject, checked);
            }
            Judged::Outage(why) => {
                outage = Some(why);
                // The last verdict is kept. The resolver is asked again soon.
                let next = later(now, pauses.again.saturating_mul(2));
                verdicts.extend(last.map(|last| (subject, Checked { next, ..last.clone() })));
            }
            Judged::NotAsked => verdicts.extend(last.map(|last| (subject, last.clone()))),
        }
    }
    turns.dedup();
    JudgedAll { verdicts, turns, outage }
}

fn plan_dns(observed: ObservedDns, now: Timestamp) -> DnsPlan {
    let ObservedDns {
        identity,
        facts,
        portal,
        shown_by,
        verdicts: before,
        missing,
        check,
        answers,
        left,
        owned,
        pauses,
    } = observed;
    let all = facts.groups.iter().flat_map(|group| &group.names);
    let names: Vec<&Wanted> = all.filter(|_| is_checked(&facts, portal, check)).collect();
    let all = judge_all(&names, &before, &answers, pauses, now);
    let next = all.next(&names, left, pauses, now);
    let JudgedAll { verdicts, turns, outage } = all;
    let component = plan_component(&facts, portal, owned);
    let asked = Some(&facts.portal).filter(|asked| facts.source == Source::ExternalDns && !asked.is_empty());
    let absent = asked.filter(|asked| shown_by.as_ref() != Some(*asked)).cloned();
    let missing = (missing, absent);
    DnsPlan { identity, facts, portal, check, verdicts: Arc::new(verdicts), missing, outage, turns, component, next }
}

/// A verdict with the time of the next lookup. A name that is not in sync is looked up sooner: first after `again`, then with doubled pauses, and
/// never later than its answer may be kept.
fn judged(verdict: Verdict, last: Option<&Checked>, pauses: Pauses, now: Timestamp) -> Checked {
    if verdict.status == SyncStatus::Sync {
        return Checked { verdict, at: now, next: later(now, pauses.refresh), failures: 0 };
    }
    let failures = last.map_or(0, |last| last.failures).saturating_add(1);
    let kept = verdict.ttl.map_or(pauses.refresh, |ttl| Duration::from_secs(ttl.into()).max(pauses.again));
    let next = later(now, doubled(pauses.again, failures - 1, kept.min(pauses.refresh)));
    Checked { verdict, at: now, next, failures }
}

fn later(now: Timestamp, pause: Duration) -> Timestamp {
    now.checked_add(pause).unwrap_or(Timestamp::MAX)
}

/// The component of a DNS object. Without a portal, or when the portal shows no components, everything is left as it is.
fn plan_component(
    facts: &DnsFacts,
    portal: Option<PortalFacts>,
    owned: Vec<(String, ComponentState)>,
) -> ComponentPlan {
    let wish = component::wish(&facts.annotations, &facts.portal, &facts.groups);
    if wish.is_some() && !portal.is_some_and(|portal| portal.status_page) {
        return ComponentPlan::default();
    }
    // A state that a user declared is kept, also when the component gets another name.
    let apply = wish.map(|wish| {
        let same = owned.iter().find(|(name, _)| *name == wish.name).or(owned.first());
        let state = same.map_or(wish.state, |(_, state)| *state);
        (wish, state)
    });
    let kept = apply.as_ref().map(|(wish, _)| wish.name.clone());
    let delete = owned.into_iter().map(|(name, _)| name).filter(|name| Some(name) != kept.as_ref()).collect();
    ComponentPlan { apply, delete }
}

/// The verdict on an entry that cannot be read.
pub(crate) fn invalid(why: &str) -> Verdict {
    Verdict::new(SyncStatus::Error, SyncReason::InvalidEntry, [why].iter().collect())
}
