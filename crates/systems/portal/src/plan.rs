//! What follows from the objects and the answers: verdicts and components. Pure.
//!
//! ```text
//!  entries ─► collect ─► aggregate ─► questions ─(lookup)─► judge ─► verdicts ─► status · component
//! ```

pub mod component;
pub mod entries;
pub mod judge;
pub mod remote;
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
use signpost_inventory::{Owner, Source, SyncReason, SyncStatus, View};
use signpost_planning::{Reason, doubled};

use crate::discover::read::{MOST as MOST_NAMES, PORTAL};
use crate::index::{ComponentFacts, DnsFacts, Owned, PortalFacts};
use component::Wish;
use entries::{Subject, Wanted};
use judge::{Answers, Judged, Verdict, judge};
use remote::{ObservedRemote, RemotePlan, Visit};

/// A verdict, and when the name is looked up next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The verdict.
    pub verdict: Verdict,
    /// When the name was looked up.
    pub at: Timestamp,
    /// When it is looked up next.
    pub next: Timestamp,
    /// From when on a pass looks it up. The passes of a key are spread, so one may come a little early.
    pub from: Timestamp,
    /// How often in a row it was not in sync.
    pub failures: u32,
}

/// The verdicts of a DNS object.
pub type Verdicts = BTreeMap<Subject, Checked>;

/// Which resolvers did not work the last time that a name was looked up, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outage {
    /// None of them worked.
    Whole(Arc<str>),
    /// Some of them did not work.
    Partial(Arc<str>),
}

/// Questions of an entry that is not one of many: the targets of others take longer, so they are the last.
pub(crate) const MANY_QUESTIONS: usize = 8;

/// Why no pass can look an entry up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// The answers for its targets take more memory than a pass has.
    TooLarge,
    /// Asking for its targets takes longer than a pass.
    TooSlow,
}

/// The names that could not be looked up, or not with every resolver.
pub type Outages = BTreeMap<Subject, Outage>;

/// What was reported in an event about an object without a status of ours, by reason.
pub type Notices = BTreeMap<&'static str, String>;

/// The memory of a key between its passes.
#[derive(Debug, Default)]
pub struct Memory {
    /// The verdicts; `None` before the first pass.
    pub verdicts: Option<Arc<Verdicts>>,
    /// The names that could not be looked up.
    pub outages: Arc<Outages>,
    /// What was reported in events.
    pub noticed: Notices,
    /// The last visit of a remote portal.
    pub visit: Option<Box<Visit>>,
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
    /// The names that could not be looked up so far.
    pub outages: Arc<Outages>,
    /// What was reported in events.
    pub noticed: Notices,
    /// Whether names are looked up.
    pub check: bool,
    /// The answers of this pass.
    pub answers: Answers,
    /// The names in it whose publisher has changed.
    pub changed: BTreeSet<Fqdn>,
    /// The entries that no pass can look up.
    pub unfinished: BTreeMap<Subject, Unfinished>,
    /// How many entries should have been looked up and were not, because the pass took too long, or because names that take long had no turn.
    pub left: usize,
    /// Whether some of them had no turn.
    pub busy: bool,
    /// The components that it owns, the youngest first.
    pub owned: Vec<Owned>,
    /// The times between lookups.
    pub pauses: Pauses,
}

/// The main portal of the operator's namespace.
#[derive(Debug)]
pub struct MainPortal {
    /// The namespace.
    pub namespace: String,
    /// The operator's Deployment in it.
    pub deployment: String,
    /// Whether no main portal exists.
    pub missing: bool,
}

/// The input of a plan.
#[derive(Debug)]
pub enum Observed {
    /// A DNS object.
    Dns(Box<ObservedDns>),
    /// The names of an owner of another system.
    Names(Box<ObservedNames>),
    /// A portal, and whether there are names of a remote one that it showed before.
    Portal(Identity, PortalFacts, bool),
    /// A portal of another cluster.
    Remote(Box<ObservedRemote>),
    /// A portal of another cluster that cannot be visited now, because others are; this is remembered of it.
    Later(Box<Memory>),
    /// A component, and whether its portal exists.
    Component(Identity, Box<ComponentFacts>, bool),
    /// The main portal.
    Main(MainPortal),
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
    /// What was reported in events before.
    pub noticed: Notices,
    /// What is to be reported in an event, unless it was.
    pub notices: Notices,
    /// The names that could not be looked up.
    pub outages: Arc<Outages>,
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
    /// A portal is reported, and what is left of a remote one is deleted.
    Portal(Identity, PortalFacts, bool),
    /// About a portal of another cluster.
    Remote(Box<RemotePlan>),
    /// It is tried again soon; this is remembered until then.
    Later(Box<Memory>),
    /// A component is reported.
    Component(Identity, Box<ComponentFacts>, bool),
    /// The main portal is created where it is missing.
    Main(MainPortal),
    /// Nothing.
    Nothing,
}

/// Decides.
pub fn plan(observed: Observed, now: Timestamp) -> Plan {
    match observed {
        Observed::Dns(observed) => Plan::Dns(Box::new(plan_dns(*observed, now))),
        Observed::Names(observed) => Plan::Names(plan_names(*observed, now)),
        Observed::Portal(identity, facts, leftover) => Plan::Portal(identity, facts, leftover),
        Observed::Remote(observed) => Plan::Remote(Box::new(remote::plan(*observed))),
        Observed::Later(memory) => Plan::Later(memory),
        Observed::Component(identity, facts, has_portal) => Plan::Component(identity, facts, has_portal),
        Observed::Main(main) => Plan::Main(main),
        Observed::Nothing => Plan::Nothing,
    }
}

/// The names of a DNS object that are looked up: none for remote names, for a portal without names, or without checks.
pub fn is_checked(facts: &DnsFacts, portal: Option<PortalFacts>, check: bool) -> bool {
    check && facts.source != Source::Remote && portal.is_none_or(|portal| portal.dns)
}

/// Which names may take long: those that took too long the last time, and new names of an object where most names did.
#[derive(Debug)]
pub(crate) struct Doubts<'a> {
    verdicts: &'a Verdicts,
    /// Names that took too long.
    slow: usize,
}

impl<'a> Doubts<'a> {
    pub(crate) fn new(verdicts: &'a Verdicts) -> Self {
        let slow = verdicts.values().filter(|checked| took_too_long(checked)).count();
        Self { verdicts, slow }
    }

    pub(crate) fn has(&self, wanted: &Wanted) -> bool {
        let most = self.slow > self.verdicts.len() / 2;
        let may = |subject: Subject| self.verdicts.get(&subject).map_or(most, took_too_long);
        self.slow > 0 && wanted.subject().is_some_and(may)
    }
}

fn took_too_long(checked: &Checked) -> bool {
    checked.verdict.status == SyncStatus::Timeout
}

/// The names that are due for a lookup, each with what belongs to it: first those in `changed`, whose publisher has changed and which are always due, then
/// the longest waiting.
pub fn due<'a, T>(
    names: impl Iterator<Item = (&'a Wanted, T)>,
    verdicts: &Verdicts,
    changed: &BTreeSet<Fqdn>,
    now: Timestamp,
) -> Vec<(&'a Wanted, T)> {
    let is_changed = |wanted: &Wanted| wanted.question.as_ref().is_ok_and(|question| changed.contains(&question.name));
    let next = |wanted: &Wanted| match verdicts.get(&wanted.subject()?) {
        // A clock that was set back has looked names up in the future: they would wait until it is there again.
        Some(checked) if checked.at <= now && checked.from > now && !is_changed(wanted) => None,
        Some(checked) => Some(checked.next),
        None => Some(Timestamp::UNIX_EPOCH),
    };
    // Names that may take long are the last, and so are those with many targets.
    let doubts = Doubts::new(verdicts);
    let is_slow = |wanted: &Wanted| {
        wanted.question.as_ref().is_ok_and(|question| judge::count(question) > MANY_QUESTIONS) || doubts.has(wanted)
    };
    let place = |wanted: &Wanted| {
        let changed = is_changed(wanted);
        let next = next(wanted)?;
        Some((!changed && is_slow(wanted), !changed, next))
    };
    // An entry of several groups is looked up once.
    let mut seen = BTreeSet::new();
    let first = |(wanted, with): (&'a Wanted, T)| {
        let is_new = seen.insert(wanted.subject_ref()?);
        let place = if is_new { place(wanted)? } else { return None };
        Some((place, wanted, with))
    };
    let mut due: Vec<((bool, bool, Timestamp), &Wanted, T)> = names.filter_map(first).collect();
    due.sort_by_key(|(place, ..)| *place);
    due.into_iter().map(|(_, wanted, with)| (wanted, with)).collect()
}

/// The names of an owner of another system.
#[derive(Debug)]
pub struct ObservedNames {
    /// Whose names.
    pub owner: Owner,
    /// The names that were published.
    pub names: Vec<Wanted>,
    /// The views of these names, in the same order.
    pub views: Vec<Arc<View>>,
    /// The objects that report whether their record set is served, and its key; without one, it is not published.
    pub records: Vec<(Identity, Option<Subject>)>,
    /// The verdicts so far.
    pub verdicts: Arc<Verdicts>,
    /// The names that could not be looked up so far.
    pub outages: Arc<Outages>,
    /// The answers of this pass.
    pub answers: Answers,
    /// The entries that no pass can look up.
    pub unfinished: BTreeMap<Subject, Unfinished>,
    /// How many entries should have been looked up and were not, because the pass took too long, or because names that take long had no turn.
    pub left: usize,
    /// Whether some of them had no turn.
    pub busy: bool,
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
    /// The names that could not be looked up.
    pub outages: Arc<Outages>,
    /// The objects whose record set was judged in this pass, and those that are not published any more.
    pub records: Vec<(Identity, Option<Verdict>)>,
    /// Names whose status changed.
    pub turns: Vec<(Arc<View>, Turn)>,
    /// When the next lookup is due.
    pub next: Option<Timestamp>,
}

fn plan_names(observed: ObservedNames, now: Timestamp) -> NamesPlan {
    let ObservedNames { owner, names, views, records, verdicts, outages, answers, unfinished, left, busy, pauses } =
        observed;
    let before = (&*verdicts, &*outages);
    let looked_up = PassAnswers { answers: &answers, unfinished: &unfinished, changed: &BTreeSet::new() };
    let judged = judge_all(&names.iter().collect::<Vec<_>>(), before, &looked_up, pauses, now);
    let next = judged.next(&names.iter().collect::<Vec<_>>(), left, pauses, now);
    let next = if busy { after_turns(next, pauses, now) } else { next };
    let of = |(identity, subject): (Identity, Option<Subject>)| match subject {
        Some(subject) => {
            let checked = judged.verdicts.get(&subject).filter(|checked| checked.at == now)?;
            Some((identity, Some(checked.verdict.clone())))
        }
        None => Some((identity, None)),
    };
    let records = records.into_iter().filter_map(of).collect();
    let turned = |(wanted, view): (&Wanted, Arc<View>)| {
        let subject = wanted.subject()?;
        let (before, now) = (&verdicts.get(&subject)?.verdict, &judged.verdicts.get(&subject)?.verdict);
        let turn = || Turn { name: wanted.shown.clone(), before: before.status, now: now.clone() };
        (before.status != now.status).then(|| (view, turn()))
    };
    let turns = names.iter().zip(views).filter_map(turned).collect();
    let (verdicts, outages) = (Arc::new(judged.verdicts), Arc::new(judged.outages));
    NamesPlan { owner, verdicts, outages, records, turns, next }
}

/// The verdicts of a pass.
struct JudgedAll {
    verdicts: Verdicts,
    turns: Vec<Turn>,
    outages: Outages,
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

/// The result of the lookups of a pass.
struct PassAnswers<'a> {
    answers: &'a Answers,
    unfinished: &'a BTreeMap<Subject, Unfinished>,
    /// The names whose publisher has changed.
    changed: &'a BTreeSet<Fqdn>,
}

impl PassAnswers<'_> {
    /// The judgement of an entry.
    fn judge(&self, subject: &Subject, question: &entries::Question) -> Judged {
        match (judge(question, self.answers), self.unfinished.get(subject)) {
            (Judged::NotAsked, Some(Unfinished::TooLarge)) => {
                let why = "the answers for all targets of the entry are too large to be compared; use fewer targets";
                Judged::Verdict(Verdict::new(SyncStatus::Error, SyncReason::BadAnswer, [why].iter().collect()))
            }
            (Judged::NotAsked, Some(Unfinished::TooSlow)) => {
                Judged::Outage(format!("the targets of {} are not answered in time; use fewer targets", question.name))
            }
            (judged, _) => judged,
        }
    }
}

/// Judges names by the answers of a pass. What was not asked keeps its verdict, and so does everything during an outage.
fn judge_all(
    names: &[&Wanted],
    (before, failed): (&Verdicts, &Outages),
    looked_up: &PassAnswers<'_>,
    pauses: Pauses,
    now: Timestamp,
) -> JudgedAll {
    let (mut verdicts, mut turns, mut outages) = (Verdicts::new(), Vec::new(), Outages::new());
    // An entry of several groups has one verdict, and one event.
    let mut seen = BTreeSet::new();
    for wanted in names.iter().filter(|wanted| wanted.subject_ref().is_some_and(|subject| seen.insert(subject))) {
        let (Some(subject), Ok(question)) = (wanted.subject(), &wanted.question) else { continue };
        let last = before.get(&subject);
        let (verdict, outage) = match looked_up.judge(&subject, question) {
            Judged::NotAsked => {
                outages.extend(failed.get(&subject).map(|outage| (subject.clone(), outage.clone())));
                verdicts.extend(last.map(|last| (subject, last.clone())));
                continue;
            }
            Judged::Verdict(verdict) => (Some(verdict), None),
            Judged::Partly { verdict, dead, why } => {
                let kept = last.is_some_and(|last| last.verdict.outlasts(&verdict, &dead));
                (Some(verdict).filter(|_| !kept), Some(Outage::Partial(why.into())))
            }
            Judged::Outage(why) => (None, Some(Outage::Whole(why.into()))),
        };
        outages.extend(outage.map(|outage| (subject.clone(), outage)));
        if let Some(verdict) = verdict {
            // After a change of its publisher, a name has no history of failures.
            let failures = last.filter(|_| !looked_up.changed.contains(&question.name)).map_or(0, |last| last.failures);
            let checked = judged(verdict, failures, pauses, now);
            if let Some(last) = last.filter(|last| last.verdict.status != checked.verdict.status) {
                let (name, now) = (wanted.shown.clone(), checked.verdict.clone());
                turns.push(Turn { name, before: last.verdict.status, now });
            }
            verdicts.insert(subject, checked);
        } else {
            // The last verdict is kept. The resolver is asked again soon.
            let (next, from) = after(now, pauses.again.saturating_mul(2));
            verdicts.extend(last.map(|last| (subject, Checked { next, from, ..last.clone() })));
        }
    }
    JudgedAll { verdicts, turns, outages }
}

fn plan_dns(observed: ObservedDns, now: Timestamp) -> DnsPlan {
    let ObservedDns {
        identity,
        facts,
        portal,
        shown_by,
        verdicts: before,
        outages,
        noticed,
        check,
        answers,
        changed,
        unfinished,
        left,
        busy,
        owned,
        pauses,
    } = observed;
    let all = facts.groups.iter().flat_map(|group| group.names.iter());
    let names: Vec<&Wanted> = all.filter(|_| is_checked(&facts, portal, check)).collect();
    let looked_up = PassAnswers { answers: &answers, unfinished: &unfinished, changed: &changed };
    let all = judge_all(&names, (&before, &outages), &looked_up, pauses, now);
    let next = all.next(&names, left, pauses, now);
    let next = if busy { after_turns(next, pauses, now) } else { next };
    let JudgedAll { verdicts, turns, outages } = all;
    let component = plan_component(&facts, shown_by.as_deref(), portal, &owned);
    let notices =
        if facts.source == Source::ExternalDns { notices(&facts, shown_by.as_deref()) } else { Notices::new() };
    let (verdicts, outages) = (Arc::new(verdicts), Arc::new(outages));
    DnsPlan { identity, facts, portal, check, verdicts, noticed, notices, outages, turns, component, next }
}

/// What is wrong with an object that has no status of ours: a portal that does not exist, and entries that cannot be read.
fn notices(facts: &DnsFacts, shown_by: Option<&str>) -> Notices {
    let mut notices = Notices::new();
    let asked = facts.portal.as_str();
    if !asked.is_empty() && shown_by != Some(asked) {
        let note = format!(
            "there is no portal {asked}; the main portal shows the names. Create it, or change the annotation {PORTAL}"
        );
        notices.insert(Reason::PortalNotFound.as_str(), note);
    }
    let names = facts.groups.first().into_iter().flat_map(|group| group.names.iter());
    let bad: Vec<(&str, &str)> = names
        .filter_map(|wanted| Some((wanted.shown.as_str(), wanted.question.as_ref().err()?.why.as_str())))
        .collect();
    let more = facts.omitted;
    if let Some((name, why)) = bad.first() {
        let note = format!("{} names are not looked up; the first is {name:?}: {why}", bad.len() + more);
        notices.insert(SyncReason::InvalidEntry.as_str(), note);
    } else if more > 0 {
        let note = format!(
            "{more} names are not shown; an object may have {MOST_NAMES}, and as many targets of all names. Use more objects"
        );
        notices.insert(SyncReason::InvalidEntry.as_str(), note);
    }
    notices
}

/// The longest pause between two lookups of a name that is not in sync.
const BROKEN: Duration = Duration::from_secs(30);

/// A verdict with the time of the next lookup, after so many failures in a row. A name that is not in sync is looked up sooner: first after `again`, then
/// with doubled pauses, and never later than its answer may be kept.
fn judged(verdict: Verdict, failures: u32, pauses: Pauses, now: Timestamp) -> Checked {
    if verdict.status == SyncStatus::Sync {
        let (next, from) = after(now, pauses.refresh);
        return Checked { verdict, at: now, next, from, failures: 0 };
    }
    let most = BROKEN.max(pauses.again).min(pauses.refresh);
    let kept = verdict.ttl.map_or(most, |ttl| Duration::from_secs(ttl.into()).max(pauses.again));
    let (next, from) = after(now, doubled(pauses.again, failures, kept.min(most)));
    Checked { verdict, at: now, next, from, failures: failures.saturating_add(1) }
}

/// When a pause ends, and from when on a pass that comes early counts: checks are spread by a tenth.
fn after(now: Timestamp, pause: Duration) -> (Timestamp, Timestamp) {
    (later(now, pause), later(now, pause.saturating_sub(pause / 8)))
}

fn later(now: Timestamp, pause: Duration) -> Timestamp {
    now.checked_add(pause).unwrap_or(Timestamp::MAX)
}

/// The longest pause before names that had no turn are looked up again.
const TURN: Duration = Duration::from_secs(1);

/// When a pass is due after one that had no turn for some of its names. Until then, other objects have turns.
fn after_turns(next: Option<Timestamp>, pauses: Pauses, now: Timestamp) -> Option<Timestamp> {
    next.map(|next| next.max(later(now, pauses.again.min(TURN))))
}

/// The component of an object with names. Without a portal, or when the portal shows no components, everything is left as it is.
fn plan_component(
    facts: &DnsFacts,
    shown_by: Option<&str>,
    portal: Option<PortalFacts>,
    owned: &[Owned],
) -> ComponentPlan {
    let wish = component::wish(&facts.annotations, shown_by.unwrap_or(&facts.portal), &facts.groups);
    if wish.is_some() && !portal.is_some_and(|portal| portal.status_page) {
        return ComponentPlan::default();
    }
    // A state that a user declared is kept, also when the component gets another name.
    let apply = wish.map(|wish| {
        let same = owned.iter().find(|component| component.id.name == wish.name);
        let before = || owned.iter().find(|component| !component.leaving);
        let state = same.or_else(before).map_or(wish.state, |component| component.state);
        (wish, state)
    });
    let kept = apply.as_ref().map(|(wish, _)| wish.name.clone());
    let names = owned.iter().map(|component| component.id.name.clone());
    let delete = names.filter(|name| Some(name) != kept.as_ref()).collect();
    ComponentPlan { apply, delete }
}

/// The verdict on an entry that cannot be read.
pub(crate) fn invalid(why: &str) -> Verdict {
    Verdict::new(SyncStatus::Error, SyncReason::InvalidEntry, [why].iter().collect())
}
