//! Statuses, events and when a key runs next. Pure.

mod component;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use signpost_apis::portal::{FqdnGroupStatus, FqdnStatus};
use signpost_engine::clock::whole_seconds;
use signpost_engine::project::reference;
use signpost_engine::{
    ChildError, Event, EventKind, Identity, Outcome, Report, RetryClass, Touched, Wanted as WantedState, conditions,
};
use signpost_inventory::{Source, SyncStatus};
use signpost_planning::{Reason, Refusal};

use crate::PortalSystem;
use crate::apply::ApplyResult;
use crate::index::Known;
use crate::plan::entries::{Group, Wanted};
use crate::plan::judge::Verdict;
use crate::plan::remote::RemotePlan;
use crate::plan::{Checked, DnsPlan, MainPortal, Memory, NamesPlan, Notices, Outage, Plan, Turn, Verdicts, invalid};

/// An object of this size is accepted by every API server. The spec and the metadata are part of it.
const MOST_BYTES: usize = 1_200_000;
/// The size that the names in a status may have beside a spec that is larger.
const LEAST_BYTES: usize = 100_000;
/// An object of this size is still accepted by an API server with the default limits, which are 1.5 MiB.
const LIMIT: usize = 1_520_000;
/// Events about names of one pass; more are summed up in one, with this reason.
const MOST_EVENTS: usize = 10;
const MORE: &str = "MoreChanges";
/// The condition of a record set that is answered as it was published, and the owner of that part of its status.
pub(crate) const SERVED: &str = "Served";
pub(crate) const SERVED_OWNER: &str = "served";
/// Parts of its message, after the name of a resolver.
const NO_RECORD: &str = " has no such record";
const GAVE: &str = ": ";
/// The longest pause until an object that was not accepted is written again.
const SLOWEST: Duration = Duration::from_mins(5);
/// The pause before a remote portal that could not be visited, because others were, is tried again.
const TURN: Duration = Duration::from_secs(1);
/// A check within this time is not replaced by the retry of a failed write.
const SOON: Duration = Duration::from_secs(10);

/// The fields of a status but its conditions.
#[derive(Clone, Debug)]
pub enum Fields {
    /// There are none.
    Nothing,
    /// As JSON text, which is a fraction of the size of its values.
    Text(Box<str>),
    /// The names of a DNS object, of which there may be 10,000. They are shared with whoever else has them, and become JSON when they are written.
    Names(Box<NamesStatus>),
}

/// The names of a DNS object and their verdicts.
#[derive(Clone, Debug)]
pub struct NamesStatus {
    groups: Arc<Vec<Group>>,
    verdicts: Arc<Verdicts>,
    /// The size of the spec as JSON.
    size: usize,
    generation: i64,
    /// When they were judged.
    at: Timestamp,
}

/// The status of an object, without the times of its conditions.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Which object, as it was judged.
    pub identity: Identity,
    /// The status.
    pub status: DecidedStatus,
}

/// The status that was decided for an object, without the times of its conditions.
#[derive(Clone, Debug)]
pub struct DecidedStatus {
    /// The fields but the conditions.
    pub fields: Fields,
    /// The conditions: type, status, reason, message.
    pub conditions: Vec<(&'static str, bool, &'static str, String)>,
    /// What the object is refused for.
    pub refusal: Option<Refusal>,
}

fn text(fields: &Value) -> Fields {
    Fields::Text(fields.to_string().into())
}

impl Fields {
    /// As JSON. `None` where the text is not JSON, which does not happen.
    pub(crate) fn json(&self) -> Option<Value> {
        match self {
            Self::Nothing => Some(json!({})),
            Self::Text(text) => serde_json::from_str(text).ok(),
            Self::Names(names) => Some(names.json().0),
        }
    }
}

/// The writes for an object.
pub(crate) fn wanted(known: &Known, now: Timestamp) -> Option<WantedState> {
    let decided = known.decided.as_ref()?;
    let generation = Some(known.identity.generation);
    let mut list: Vec<Condition> = known.conditions.clone();
    list.retain(|have| decided.conditions.iter().any(|(type_, ..)| *type_ == have.type_));
    for (type_, status, reason, message) in &decided.conditions {
        conditions::set(&mut list, conditions::condition(type_, *status, reason, message.clone(), generation, now));
    }
    let mut status = decided.fields.json()?;
    let owner = if known.is_record() { SERVED_OWNER } else { "" };
    // Nothing is applied where nothing is left to report.
    if !list.is_empty() || owner.is_empty() {
        status["conditions"] = json!(list);
    }
    let refusal = decided.refusal.clone();
    Some(WantedState {
        status: Some(status),
        owner,
        refusals: refusal.into_iter().collect(),
        ..WantedState::nothing(known.identity.clone())
    })
}

pub(crate) fn report(applied: ApplyResult, now: Timestamp) -> Report<PortalSystem> {
    let ApplyResult { plan, error } = applied;
    let mut report = match plan {
        Plan::Dns(plan) => report_dns(*plan, error.as_ref().map(ToString::to_string), now),
        Plan::Names(plan) => report_names(plan, now),
        Plan::Portal(identity, ..) => status_only(portal(identity, error.as_ref()), Outcome::Done),
        Plan::Remote(plan) => report_remote(*plan, error.as_ref().map(ToString::to_string), now),
        Plan::Later(memory) => Report { memory: Some(*memory), ..Report::new(Outcome::Check { after: TURN }) },
        Plan::Component(identity, facts, has_portal) => {
            let next = Outcome::Check { after: component::until_midnight(now) };
            status_only(component::status(identity, &facts, has_portal, now), next)
        }
        Plan::Main(main) => report_main(&main, error.as_ref().map(ToString::to_string)),
        Plan::Nothing => Report::new(Outcome::Done),
    };
    if let Some(error) = &error {
        report.outcome = again(report.outcome, error.into());
    }
    report
}

/// When a key runs again after an object could not be written: a lookup that is due before the retry does not wait for it. Every pass tries to write the
/// object again.
fn again(outcome: Outcome<()>, class: RetryClass) -> Outcome<()> {
    match (outcome, class) {
        (Outcome::Check { after }, RetryClass::Slow) => Outcome::Check { after: after.min(SLOWEST) },
        (Outcome::Check { after }, RetryClass::Now | RetryClass::Transient) if after <= SOON => {
            Outcome::Check { after }
        }
        _ => Outcome::Retry { class, objects: Touched::All },
    }
}

/// Why there is no main portal, on the operator's own Deployment: names without a portal would have no other explanation.
fn report_main(main: &MainPortal, error: Option<String>) -> Report<PortalSystem> {
    let namespace = &main.namespace;
    let refused = |error: String| {
        let why = format!("the main portal {namespace}/main cannot be created: {error}");
        Refusal::new(Reason::PortalNotFound, why)
    };
    let refusals: Vec<Refusal> = error.map(refused).into_iter().collect();
    let watched = (!namespace.is_empty()).then(|| (Identity::own_deployment(namespace, &main.deployment), refusals));
    Report { refusals: watched.into_iter().collect(), ..Report::new(Outcome::Done) }
}

/// The published names of an owner of another system: the result in the inventory, on record sets that report it, and in events on the objects that
/// want the names.
fn report_names(plan: NamesPlan, now: Timestamp) -> Report<PortalSystem> {
    let mut events: Vec<Event> =
        plan.turns.iter().take(MOST_EVENTS).map(|(view, turn)| turned(turn, reference(view.provenance()))).collect();
    if let Some((view, _)) = plan.turns.get(MOST_EVENTS) {
        let (more, owner) = (plan.turns.len() - MOST_EVENTS, &plan.owner);
        let note = format!("the status of {more} names of {owner} changed, this one's among them; see the inventory");
        let object = reference(view.provenance());
        events.push(Event { object, kind: EventKind::Normal, reason: MORE.into(), note });
    }
    let statuses = plan.records.into_iter().map(|(identity, verdict)| served(identity, verdict)).collect();
    // Nothing is remembered of an owner without names: most of them are deleted.
    let remembers = !(plan.verdicts.is_empty() && plan.outages.is_empty());
    let memory = Memory { verdicts: Some(plan.verdicts), outages: plan.outages, ..Memory::default() };
    let memory = remembers.then_some(memory);
    Report { memory, statuses, events, ..Report::new(outcome(plan.next, now)) }
}

/// The resolver that gave the result in a condition `Served`, which is part of the message where the result is wrong. No name of a resolver has a blank.
pub(crate) fn resolver_of(served: &Condition) -> Option<&str> {
    let message = Some(served.message.as_str()).filter(|_| served.status != "True")?;
    message.split_once(GAVE).map(|(resolver, _)| resolver).or_else(|| message.strip_suffix(NO_RECORD))
}

/// Whether a published record set is answered as it was published.
fn served(identity: Identity, verdict: Option<Verdict>) -> Decision {
    let condition = verdict.map(|verdict| {
        let answer = verdict.observed.iter().collect::<Vec<_>>().join(", ");
        let message = match (verdict.status, verdict.resolver) {
            (SyncStatus::Sync, _) | (_, None) => answer,
            (_, Some(resolver)) if answer.is_empty() => format!("{resolver}{NO_RECORD}"),
            (_, Some(resolver)) => format!("{resolver}{GAVE}{answer}"),
        };
        (SERVED, verdict.status == SyncStatus::Sync, verdict.reason.as_str(), message)
    });
    let conditions = condition.into_iter().collect();
    Decision { identity, status: DecidedStatus { fields: Fields::Nothing, conditions, refusal: None } }
}

fn status_only(decision: Decision, outcome: Outcome<()>) -> Report<PortalSystem> {
    Report { statuses: vec![decision], ..Report::new(outcome) }
}

/// The key runs again when the next lookup is due.
fn outcome(next: Option<Timestamp>, now: Timestamp) -> Outcome<()> {
    let Some(next) = next else { return Outcome::Done };
    let after = Duration::try_from(next.duration_since(now)).unwrap_or_default();
    Outcome::Check { after: after.max(Duration::from_millis(50)) }
}

/// UpdateStatus.
fn report_dns(plan: DnsPlan, component_error: Option<String>, now: Timestamp) -> Report<PortalSystem> {
    let outcome = outcome(plan.next, now);
    let reported = plan.facts.source == Source::Manual;
    // An object without a status of ours gets events, each once.
    let mut notices = plan.notices.clone();
    if let Some(error) = component_error.as_ref().filter(|_| !reported) {
        notices.insert(Reason::ComponentFailed.as_str(), format!("the component cannot be written: {error}"));
    }
    let events = events(&plan, &notices);
    let statuses = if reported { vec![dns_status(&plan, component_error, now)] } else { Vec::new() };
    let memory = Some(Memory { verdicts: Some(plan.verdicts), outages: plan.outages, noticed: notices, visit: None });
    Report { memory, statuses, events, ..Report::new(outcome) }
}

fn dns_status(plan: &DnsPlan, component_error: Option<String>, now: Timestamp) -> Decision {
    let names = NamesStatus {
        groups: plan.facts.groups.clone(),
        verdicts: plan.verdicts.clone(),
        size: plan.facts.size,
        generation: plan.identity.generation,
        at: now,
    };
    let (_, counts, omitted) = names.json();
    let conditions = dns_conditions(plan, &counts, omitted, component_error);
    let refusal = refusal_of(&conditions);
    let fields = Fields::Names(Box::new(names));
    Decision { identity: plan.identity.clone(), status: DecidedStatus { fields, conditions, refusal } }
}

impl NamesStatus {
    /// As JSON, with the counts, and how many names do not fit into the object.
    fn json(&self) -> (Value, Counts, usize) {
        let (mut groups, mut counts) = (Vec::new(), Counts::default());
        for group in self.groups.iter() {
            let mut fqdns = Vec::with_capacity(group.names.len());
            for wanted in group.names.iter() {
                let checked = self.checked(wanted);
                counts.add(checked.as_ref());
                fqdns.push(self.fqdn(wanted, checked.as_ref()));
            }
            let (name, description) = (group.name.to_string(), group.description.clone());
            groups.push(FqdnGroupStatus { name, description, source: "manual".into(), fqdns });
        }
        let omitted = fit(&mut groups, room(self.size));
        let mut fields = json!({
            "groups": groups,
            "total": counts.total,
            "sync": counts.sync,
            "broken": counts.broken,
            "lastReconcileTime": whole_seconds(self.at),
            "observedGeneration": self.generation,
        });
        if omitted > 0 {
            fields["omitted"] = json!(omitted);
        }
        (fields, counts, omitted)
    }

    fn checked(&self, wanted: &Wanted) -> Option<Checked> {
        let at = self.at;
        match &wanted.question {
            Ok(_) => wanted.subject().and_then(|subject| self.verdicts.get(&subject).cloned()),
            Err(wrong) => Some(Checked { verdict: invalid(&wrong.why), at, next: at, from: at, failures: 0 }),
        }
    }

    fn fqdn(&self, wanted: &Wanted, checked: Option<&Checked>) -> FqdnStatus {
        let rtype = wanted.question.as_ref().ok().and_then(|question| question.rtype);
        let verdict = checked.map(|checked| &checked.verdict);
        // After a restart, it tells whether the result is kept beside resolvers that do not work.
        let broken = verdict.filter(|verdict| verdict.status != SyncStatus::Sync);
        FqdnStatus {
            fqdn: wanted.shown.clone(),
            description: wanted.description.as_deref().map(str::to_owned),
            record_type: rtype.map(|rtype| rtype.as_str().to_owned()),
            targets: wanted.targets.iter().map(str::to_owned).collect(),
            sync_status: verdict.map(|verdict| verdict.status.as_str().to_owned()),
            reason: verdict.map(|verdict| verdict.reason.as_str().to_owned()),
            observed: verdict.iter().flat_map(|verdict| verdict.observed.iter()).map(str::to_owned).collect(),
            resolver: broken.and_then(|verdict| verdict.resolver.as_deref().map(str::to_owned)),
            last_seen: Some(whole_seconds(self.at)),
            checked_at: checked.map(|checked| whole_seconds(checked.at)),
            origin_ref: None,
        }
    }
}

/// The refusal of an object whose portal does not exist.
fn refusal_of(conditions: &[(&'static str, bool, &'static str, String)]) -> Option<Refusal> {
    let missing = Reason::PortalNotFound;
    let found = conditions.iter().find(|(_, _, reason, _)| *reason == missing.as_str());
    found.map(|(.., message)| Refusal::new(missing, message.clone()))
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    sync: usize,
    broken: usize,
}

impl Counts {
    fn add(&mut self, checked: Option<&Checked>) {
        self.count(checked.map(|checked| checked.verdict.status));
    }

    fn message(&self, omitted: usize) -> String {
        let message = format!("{} names, {} in sync, {} broken", self.total, self.sync, self.broken);
        match omitted {
            0 => message,
            omitted => format!("{message}; {omitted} are not listed, because the object would be too large"),
        }
    }

    fn count(&mut self, status: Option<SyncStatus>) {
        self.total += 1;
        match status {
            Some(SyncStatus::Sync) => self.sync += 1,
            Some(SyncStatus::NotFound | SyncStatus::Error | SyncStatus::Timeout) => self.broken += 1,
            Some(SyncStatus::Unchecked) | None => {}
        }
    }
}

fn dns_conditions(
    plan: &DnsPlan,
    counts: &Counts,
    omitted: usize,
    component_error: Option<String>,
) -> Vec<(&'static str, bool, &'static str, String)> {
    let message = counts.message(omitted);
    let ready = match (plan.portal, component_error) {
        (None, _) => {
            let portal = &plan.facts.portal;
            let note =
                format!("there is no portal {portal} in this namespace; create it or change spec.portalRef. {message}");
            ("Ready", false, Reason::PortalNotFound.as_str(), note)
        }
        (Some(portal), _) if !portal.dns => {
            ("Ready", true, "FeatureDisabled", "the portal shows no names (spec.features.dns is false)".to_owned())
        }
        (Some(_), Some(error)) => {
            ("Ready", false, Reason::ComponentFailed.as_str(), format!("{message}; the component: {error}"))
        }
        (Some(_), None) => ("Ready", true, "ReconcileSucceeded", message),
    };
    let whole = plan.outages.values().find(|outage| matches!(outage, Outage::Whole(_)));
    let resolved = match whole.or(plan.outages.values().next()) {
        _ if !plan.check => None,
        Some(Outage::Whole(why)) => {
            let note = format!("the last verdicts are kept: {why}");
            Some(("Resolved", false, Reason::ResolverUnavailable.as_str(), note))
        }
        Some(Outage::Partial(why)) => {
            let note =
                format!("the verdicts of a resolver that does not work are kept, unless others are worse: {why}");
            Some(("Resolved", false, Reason::PartlyAnswered.as_str(), note))
        }
        None => Some(("Resolved", true, "Answered", String::new())),
    };
    [Some(ready), resolved].into_iter().flatten().collect()
}

/// The size that the names in a status may have beside so many bytes.
fn room(beside: usize) -> usize {
    MOST_BYTES.saturating_sub(beside).max(LIMIT.saturating_sub(beside).min(LEAST_BYTES))
}

/// Removes names until the groups fit into so many bytes: those in sync first, then the others. Where the groups alone are too large, their
/// descriptions are removed first, and groups without names after that. Returns how many names.
fn fit(groups: &mut Vec<FqdnGroupStatus>, most: usize) -> usize {
    fn size(value: &impl serde::Serialize) -> usize {
        serde_json::to_vec(value).map_or(0, |json| json.len() + 1)
    }
    // With the name of the field that has the names.
    let frame = |group: &FqdnGroupStatus| {
        12 + size(&FqdnGroupStatus {
            fqdns: Vec::new(),
            name: group.name.clone(),
            description: group.description.clone(),
            source: group.source.clone(),
        })
    };
    let mut frames: usize = groups.iter().map(frame).sum();
    if frames > most / 2 {
        for group in groups.iter_mut() {
            group.description = None;
        }
        frames = groups.iter().map(frame).sum();
    }
    let mut total: usize = frames + groups.iter().flat_map(|group| &group.fqdns).map(size).sum::<usize>();
    let mut omitted = 0;
    let in_sync = |fqdn: &FqdnStatus| fqdn.sync_status.as_deref() == Some(SyncStatus::Sync.as_str());
    for only_in_sync in [true, false] {
        for group in groups.iter_mut().rev() {
            let mut kept = Vec::with_capacity(group.fqdns.len());
            while let Some(fqdn) = group.fqdns.pop() {
                if total > most && (!only_in_sync || in_sync(&fqdn)) {
                    total -= size(&fqdn);
                    omitted += 1;
                } else {
                    kept.push(fqdn);
                }
            }
            kept.reverse();
            group.fqdns = kept;
            if total > most && group.fqdns.is_empty() {
                // Marked to be removed: a group always has a source.
                total = total.saturating_sub(frame(group));
                group.source.clear();
            }
        }
        groups.retain(|group| !group.source.is_empty());
    }
    omitted
}

/// The event about a name whose status changed.
fn turned(turn: &Turn, object: ObjectReference) -> Event {
    let (status, observed) = (turn.now.status.as_str(), turn.now.observed.iter().collect::<Vec<_>>().join(", "));
    let (kind, reason, note) = if turn.now.status == SyncStatus::Sync {
        (EventKind::Normal, "InSync", format!("{} is in sync, it was {}", turn.name, turn.before.as_str()))
    } else {
        let note = format!("{} is {status}, it was {}; observed: {observed}", turn.name, turn.before.as_str());
        (EventKind::Warning, turn.now.reason.as_str(), note)
    };
    Event { object, kind, reason: reason.into(), note }
}

/// Events about names whose status changed, and about what is wrong with an object that has no status of ours.
fn events(plan: &DnsPlan, notices: &Notices) -> Vec<Event> {
    let object = plan.identity.reference();
    let event = |kind, reason: &str, note: String| Event { object: object.clone(), kind, reason: reason.into(), note };
    let mut events: Vec<Event> = plan.turns.iter().take(MOST_EVENTS).map(|turn| turned(turn, object.clone())).collect();
    if let more @ 1.. = plan.turns.len().saturating_sub(MOST_EVENTS) {
        events.push(event(EventKind::Normal, MORE, format!("the status of {more} more names changed; see the status")));
    }
    let new = notices.iter().filter(|(reason, note)| plan.noticed.get(*reason) != Some(note));
    events.extend(new.map(|(reason, note)| event(EventKind::Warning, reason, note.clone())));
    events
}

/// A portal of this cluster, and why names that it showed as a remote one cannot be deleted.
fn portal(identity: Identity, error: Option<&ChildError>) -> Decision {
    let refused = |error: &ChildError| {
        let why = format!("the names of the remote portal that it was cannot be deleted: {error}");
        Refusal::new(Reason::RemoteFetchFailed, why)
    };
    let refusal = error.map(refused);
    let ready = match &refusal {
        None => ("Ready", true, "PortalConfigured", String::new()),
        Some(refusal) => ("Ready", false, refusal.reason.as_str(), refusal.message.clone()),
    };
    let fields = text(&json!({ "ready": refusal.is_none() }));
    Decision { identity, status: DecidedStatus { fields, conditions: vec![ready], refusal } }
}

/// A portal of another cluster, and the DNS objects with its names. After a failure the names stay, and `Ready` is false on all of them.
fn report_remote(plan: RemotePlan, error: Option<String>, now: Timestamp) -> Report<PortalSystem> {
    let RemotePlan { identity, dns, copies, create: _, delete: _, omitted, visit, sync, next } = plan;
    let failed = |message: String| Refusal::new(Reason::RemoteFetchFailed, message);
    let refusal = visit.result.as_ref().err().cloned().or_else(|| error.map(failed));
    let parts = copies.into_iter().map(|copy| {
        let (mut groups, mut counts) = ((*copy.groups).clone(), Counts::default());
        for fqdn in groups.iter().flat_map(|group| &group.fqdns) {
            counts.count(fqdn.sync_status.as_deref().and_then(SyncStatus::parse));
        }
        let not_read = if copy.part == 0 { omitted } else { 0 };
        counts.total += not_read;
        let omitted = fit(&mut groups, MOST_BYTES) + not_read;
        (copy.identity, groups, counts, omitted)
    });
    let parts: Vec<_> = parts.collect();
    let mut all = Counts::default();
    for (_, _, counts, _) in &parts {
        (all.total, all.sync, all.broken) =
            (all.total + counts.total, all.sync + counts.sync, all.broken + counts.broken);
    }
    let condition = |counts: &Counts, omitted: usize, kept: &str| match &refusal {
        None => ("Ready", true, "RemoteSyncSuccess", counts.message(omitted)),
        Some(refusal) => ("Ready", false, refusal.reason.as_str(), format!("{kept}{}", refusal.message)),
    };
    let missing = parts.iter().map(|(.., omitted)| omitted).sum();
    let ready = condition(&all, missing, "");
    // A portal that shows no names, here or there, has none to take over.
    let synced = dns.then(|| match &refusal {
        None => ("DNSSynced", true, "DNSSyncSuccess", ready.3.clone()),
        Some(_) => ("DNSSynced", false, "DNSSyncFailed", ready.3.clone()),
    });
    let status = DecidedStatus {
        fields: text(&json!({ "ready": refusal.is_none(), "remoteSync": sync })),
        conditions: [Some(ready), synced].into_iter().flatten().collect(),
        refusal: refusal.clone(),
    };
    let mut statuses = vec![Decision { identity, status }];
    for (identity, groups, counts, omitted) in parts {
        let mut fields = json!({
            "groups": groups, "total": counts.total, "sync": counts.sync, "broken": counts.broken,
            "lastReconcileTime": whole_seconds(now), "observedGeneration": identity.generation,
        });
        if omitted > 0 {
            fields["omitted"] = json!(omitted);
        }
        let ready = condition(&counts, omitted, "the names of the last visit are kept: ");
        let status = DecidedStatus { fields: text(&fields), conditions: vec![ready], refusal: None };
        statuses.push(Decision { identity, status });
    }
    let memory = Some(Memory { visit: Some(Box::new(visit)), ..Memory::default() });
    Report { memory, statuses, ..Report::new(outcome(Some(next), now)) }
}

#[cfg(test)]
mod tests {
    use signpost_inventory::SyncReason;

    use super::*;

    fn group(name: &str, statuses: &[&str]) -> FqdnGroupStatus {
        let fqdn = |(number, status): (usize, &&str)| FqdnStatus {
            fqdn: format!("n{number}.{name}.example.org"),
            sync_status: Some((*status).to_owned()),
            ..FqdnStatus::default()
        };
        let fqdns = statuses.iter().enumerate().map(fqdn).collect();
        FqdnGroupStatus { name: name.into(), source: "manual".into(), fqdns, ..FqdnGroupStatus::default() }
    }

    #[test]
    fn the_message_of_served_names_the_resolver_that_gave_a_wrong_result() {
        let resolver_in = |status, resolver: &str, observed: &[&str]| {
            let verdict = Verdict::new(status, SyncReason::Mismatch, observed.iter().collect());
            let verdict = Verdict { resolver: Some(resolver.into()), ..verdict };
            let decision = served(Identity::own_deployment("a", "b"), Some(verdict));
            let (type_, status, reason, message) = decision.status.conditions.into_iter().next().unwrap();
            let condition = conditions::condition(type_, status, reason, message, None, Timestamp::UNIX_EPOCH);
            resolver_of(&condition).map(str::to_owned)
        };
        for resolver in
            ["system", "192.0.2.53:53", "tls://[2001:db8::53]:853#dns.example.org", "https://dns.example.org/q"]
        {
            for observed in [&[][..], &["\"v: 1\"", "192.0.2.1"], &["has no such record"]] {
                assert_eq!(resolver_in(SyncStatus::NotFound, resolver, observed).as_deref(), Some(resolver));
                assert_eq!(resolver_in(SyncStatus::Sync, resolver, observed), None);
            }
        }
    }

    #[test]
    fn names_have_less_room_beside_a_large_spec() {
        let sizes = [0, 500_000, 1_150_000, 1_400_000, 1_500_000, 1_520_000, 2_000_000];
        assert_eq!(sizes.map(room), [1_200_000, 700_000, 100_000, 100_000, 20_000, 0, 0]);
    }

    #[test]
    fn names_in_sync_are_omitted_first_when_an_object_is_too_large() {
        let all = || vec![group("a", &["sync", "notFound", "sync"]), group("b", &["error", "sync"])];
        let names = |groups: &[FqdnGroupStatus]| -> Vec<String> {
            groups.iter().flat_map(|group| &group.fqdns).map(|fqdn| fqdn.fqdn.clone()).collect()
        };
        let mut groups = all();
        assert_eq!((fit(&mut groups, 100_000), names(&groups).len()), (0, 5));
        assert_eq!(names(&groups), names(&all()), "in the same order");
        let mut groups = all();
        assert_eq!(fit(&mut groups, 209), 3);
        assert_eq!(names(&groups), ["n1.a.example.org", "n0.b.example.org"]);
        let mut groups = all();
        assert_eq!((fit(&mut groups, 0), groups.len()), (5, 0));
        // Groups count too.
        let described = |number: usize| FqdnGroupStatus {
            description: Some("d".repeat(1_000)),
            ..group(&format!("g{number}"), &["notFound"])
        };
        let mut groups: Vec<FqdnGroupStatus> = (0..1_000).map(described).collect();
        assert_eq!(fit(&mut groups, 200_000), 0, "the descriptions are removed first");
        assert!(serde_json::to_vec(&groups).unwrap().len() <= 200_000 && groups.len() == 1_000);
        let omitted = fit(&mut groups, 20_000);
        assert!(serde_json::to_vec(&groups).unwrap().len() <= 20_000 && omitted > 0);
    }
}
