//! Statuses, events and when a key runs next. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use signpost_apis::portal::{ComponentState, DailyStatus, FqdnGroupStatus, FqdnStatus};
use signpost_engine::clock::whole_seconds;
use signpost_engine::{
    Event, EventKind, Identity, Outcome, Report, RetryClass, Touched, Wanted as WantedState, conditions,
};
use signpost_inventory::{Source, SyncStatus};

use crate::PortalSystem;
use crate::apply::ApplyResult;
use crate::discover::read::PORTAL;
use crate::index::{ComponentFacts, Known, PortalFacts};
use crate::plan::{Checked, DnsPlan, Memory, Plan, invalid};

/// An object of this size is accepted by every API server. The spec and the metadata are part of it.
const MOST_BYTES: usize = 1_200_000;
/// The size that a status may always have.
const LEAST_BYTES: usize = 100_000;
/// Events about names of one pass; more are summed up in one.
const MOST_EVENTS: usize = 10;
/// Days in the history of a component.
const DAYS: usize = 30;

/// The status of an object, without the times of its conditions.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Which object, as it was judged.
    pub identity: Identity,
    /// The fields but the conditions.
    pub fields: Value,
    /// The conditions: type, status, reason, message.
    pub conditions: Vec<(&'static str, bool, &'static str, String)>,
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
    let mut status = decided.fields.clone();
    status["conditions"] = json!(list);
    Some(WantedState { status: Some(status), ..WantedState::nothing(known.identity.clone()) })
}

pub(crate) fn report(applied: ApplyResult, now: Timestamp) -> Report<PortalSystem> {
    let ApplyResult { plan, error } = applied;
    let mut report = match plan {
        Plan::Dns(plan) => report_dns(*plan, error.as_ref().map(ToString::to_string), now),
        Plan::Names(plan) => {
            let memory = Some(Memory { verdicts: Some(plan.verdicts), missing: None });
            Report { memory, ..Report::new(outcome(plan.next, now)) }
        }
        Plan::Portal(identity, facts) => status_only(portal(identity, facts), Outcome::Done),
        Plan::Component(identity, facts, has_portal) => {
            let next = Outcome::Check { after: until_midnight(now) };
            status_only(component(identity, &facts, has_portal, now), next)
        }
        Plan::Main(_) | Plan::Nothing => Report::new(Outcome::Done),
    };
    if let Some(error) = &error {
        report.outcome = Outcome::Retry { class: RetryClass::from(error), objects: Touched::All };
    }
    report
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
    let events = events(&plan);
    let reported = plan.facts.source == Source::Manual;
    let statuses = if reported { vec![dns_status(&plan, component_error, now)] } else { Vec::new() };
    let memory = Some(Memory { verdicts: Some(plan.verdicts), missing: plan.missing.1 });
    Report { memory, statuses, events, ..Report::new(outcome) }
}

fn dns_status(plan: &DnsPlan, component_error: Option<String>, now: Timestamp) -> Decision {
    let (mut groups, mut counts) = (Vec::new(), Counts::default());
    for group in plan.facts.groups.iter() {
        let mut fqdns = Vec::with_capacity(group.names.len());
        for wanted in &group.names {
            let checked = match &wanted.question {
                Ok(_) => wanted.subject().and_then(|subject| plan.verdicts.get(&subject).cloned()),
                Err(why) => Some(Checked { verdict: invalid(why), at: now, next: now, failures: 0 }),
            };
            counts.add(checked.as_ref());
            let rtype = wanted.question.as_ref().ok().and_then(|question| question.rtype);
            let verdict = checked.as_ref().map(|checked| &checked.verdict);
            fqdns.push(FqdnStatus {
                fqdn: wanted.shown.clone(),
                description: wanted.description.as_deref().map(str::to_owned),
                record_type: rtype.map(|rtype| rtype.as_str().to_owned()),
                targets: wanted.targets.iter().map(str::to_owned).collect(),
                sync_status: verdict.map(|verdict| verdict.status.as_str().to_owned()),
                reason: verdict.map(|verdict| verdict.reason.as_str().to_owned()),
                observed: verdict.iter().flat_map(|verdict| verdict.observed.iter()).map(str::to_owned).collect(),
                last_seen: Some(whole_seconds(now)),
                checked_at: checked.as_ref().map(|checked| whole_seconds(checked.at)),
                origin_ref: None,
            });
        }
        let (name, description) = (group.name.to_string(), group.description.clone());
        groups.push(FqdnGroupStatus { name, description, source: "manual".into(), fqdns });
    }
    let omitted = fit(&mut groups, MOST_BYTES.saturating_sub(plan.facts.size).max(LEAST_BYTES));
    let mut fields = json!({
        "groups": groups,
        "total": counts.total,
        "sync": counts.sync,
        "broken": counts.broken,
        "lastReconcileTime": whole_seconds(now),
        "observedGeneration": plan.identity.generation,
    });
    if omitted > 0 {
        fields["omitted"] = json!(omitted);
    }
    Decision {
        identity: plan.identity.clone(),
        fields,
        conditions: dns_conditions(plan, &counts, omitted, component_error),
    }
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    sync: usize,
    broken: usize,
}

impl Counts {
    fn add(&mut self, checked: Option<&Checked>) {
        self.total += 1;
        match checked.map(|checked| checked.verdict.status) {
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
    let mut message = format!("{} names, {} in sync, {} broken", counts.total, counts.sync, counts.broken);
    if omitted > 0 {
        message = format!("{message}; {omitted} are not listed, because the object would be too large");
    }
    let ready = match (plan.portal, component_error) {
        (None, _) => {
            let portal = &plan.facts.portal;
            let note =
                format!("there is no portal {portal} in this namespace; create it or change spec.portalRef. {message}");
            ("Ready", false, "PortalNotFound", note)
        }
        (Some(portal), _) if !portal.dns => {
            ("Ready", true, "FeatureDisabled", "the portal shows no names (spec.features.dns is false)".to_owned())
        }
        (Some(_), Some(error)) => ("Ready", false, "ComponentFailed", format!("{message}; the component: {error}")),
        (Some(_), None) => ("Ready", true, "ReconcileSucceeded", message),
    };
    let resolved = match &plan.outage {
        _ if !plan.check => None,
        Some(why) => Some(("Resolved", false, "ResolverUnavailable", format!("the last verdicts are kept: {why}"))),
        None => Some(("Resolved", true, "Answered", String::new())),
    };
    [Some(ready), resolved].into_iter().flatten().collect()
}

/// Removes names until the groups fit into so many bytes, those in sync first. Returns how many.
fn fit(groups: &mut [FqdnGroupStatus], most: usize) -> usize {
    let size = |fqdn: &FqdnStatus| serde_json::to_vec(fqdn).map_or(0, |json| json.len() + 1);
    let mut total: usize = groups.iter().flat_map(|group| &group.fqdns).map(size).sum();
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
        }
    }
    omitted
}

/// Events about names whose status changed.
fn events(plan: &DnsPlan) -> Vec<Event> {
    let object = plan.identity.reference();
    let event = |kind, reason: &str, note: String| Event { object: object.clone(), kind, reason: reason.into(), note };
    let mut events: Vec<Event> = Vec::new();
    for turn in plan.turns.iter().take(MOST_EVENTS) {
        let (status, observed) = (turn.now.status.as_str(), turn.now.observed.iter().collect::<Vec<_>>().join(", "));
        events.push(if turn.now.status == SyncStatus::Sync {
            event(EventKind::Normal, "InSync", format!("{} is in sync again", turn.name))
        } else {
            let note = format!("{} is {status}, it was {}; observed: {observed}", turn.name, turn.before.as_str());
            event(EventKind::Warning, turn.now.reason.as_str(), note)
        });
    }
    if let more @ 1.. = plan.turns.len().saturating_sub(MOST_EVENTS) {
        events.push(event(
            EventKind::Normal,
            "MoreChanges",
            format!("the status of {more} more names changed; see the status"),
        ));
    }
    if let (before, Some(missing)) = &plan.missing
        && before.as_ref() != Some(missing)
    {
        let note = format!(
            "there is no portal {missing}; the main portal shows the names. Create it, or change the annotation {PORTAL}"
        );
        events.push(event(EventKind::Warning, "PortalNotFound", note));
    }
    events
}

fn portal(identity: Identity, facts: PortalFacts) -> Decision {
    let ready = if facts.remote {
        let note = "remote portals are not supported yet; the portal of the other cluster is not read".to_owned();
        ("Ready", false, "RemoteUnsupported", note)
    } else {
        ("Ready", true, "PortalConfigured", String::new())
    };
    Decision { identity, fields: json!({ "ready": !facts.remote }), conditions: vec![ready] }
}

/// The state of a component: the declared one, and the worst of each of the last 30 days on which it existed.
fn component(identity: Identity, facts: &ComponentFacts, has_portal: bool, now: Timestamp) -> Decision {
    let state = facts.state.as_str();
    let changed = facts.status.computed_status.as_deref() != Some(state);
    let since = facts.status.last_status_change.clone().filter(|_| !changed).unwrap_or_else(|| whole_seconds(now));
    let ready = if has_portal {
        ("Ready", true, "Reconciled", String::new())
    } else {
        let note = format!("there is no portal {} in this namespace; create it or change spec.portalRef", facts.portal);
        ("Ready", false, "PortalNotFound", note)
    };
    let fields = json!({
        "computedStatus": state,
        "activeIncidents": 0,
        "lastStatusChange": since,
        "dailyWorstStatus": history(facts, identity.created, now),
    });
    Decision { identity, fields, conditions: vec![ready] }
}

/// The days of a component, oldest first. A day without an entry had the state of the day before it.
fn history(facts: &ComponentFacts, created: Timestamp, now: Timestamp) -> Vec<DailyStatus> {
    let day = |time: Timestamp| time.to_zoned(TimeZone::UTC).date();
    let known: BTreeMap<&str, &str> =
        facts.status.daily_worst_status.iter().map(|day| (day.date.as_str(), day.worst_status.as_str())).collect();
    let today = day(now);
    let mut days = Vec::new();
    let mut at = today;
    while days.len() < DAYS && at >= day(created).min(today) {
        days.push(at);
        let Ok(before) = at.yesterday() else { break };
        at = before;
    }
    days.reverse();
    let mut last = facts.status.computed_status.clone().unwrap_or_else(|| facts.state.as_str().to_owned());
    let mut history = Vec::with_capacity(days.len());
    for date in days {
        let text = date.to_string();
        let mut worst = known.get(text.as_str()).map_or_else(|| last.clone(), |state| (*state).to_owned());
        if date == today {
            worst = worse(worst, facts.state.as_str().to_owned());
        }
        last.clone_from(&worst);
        history.push(DailyStatus { date: text, worst_status: worst });
    }
    history
}

fn worse(a: String, b: String) -> String {
    let rank = |text: &str| match ComponentState::parse(text) {
        Some(ComponentState::Operational) => 1,
        Some(ComponentState::Degraded) => 2,
        Some(ComponentState::PartialOutage) => 3,
        Some(ComponentState::MajorOutage) => 4,
        Some(ComponentState::Unknown) | None => 0,
    };
    if rank(&b) > rank(&a) { b } else { a }
}

fn until_midnight(now: Timestamp) -> Duration {
    let today = now.to_zoned(TimeZone::UTC);
    let midnight = today.tomorrow().and_then(|tomorrow| tomorrow.start_of_day()).map(|start| start.timestamp());
    midnight.ok().and_then(|at| Duration::try_from(at.duration_since(now)).ok()).unwrap_or(Duration::from_hours(24))
}

#[cfg(test)]
mod tests {
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
    fn names_in_sync_are_omitted_first_when_an_object_is_too_large() {
        let all = || vec![group("a", &["sync", "notFound", "sync"]), group("b", &["error", "sync"])];
        let names = |groups: &[FqdnGroupStatus]| -> Vec<String> {
            groups.iter().flat_map(|group| &group.fqdns).map(|fqdn| fqdn.fqdn.clone()).collect()
        };
        let mut groups = all();
        assert_eq!((fit(&mut groups, 100_000), names(&groups).len()), (0, 5));
        assert_eq!(names(&groups), names(&all()), "in the same order");
        let mut groups = all();
        assert_eq!(fit(&mut groups, 120), 3);
        assert_eq!(names(&groups), ["n1.a.example.org", "n0.b.example.org"]);
        let mut groups = all();
        assert_eq!(fit(&mut groups, 0), 5);
    }

    fn component_of(state: ComponentState, history: &[(&str, &str)]) -> ComponentFacts {
        let day = |(date, worst): &(&str, &str)| DailyStatus { date: (*date).into(), worst_status: (*worst).into() };
        ComponentFacts {
            portal: "main".into(),
            state,
            owners: Vec::new(),
            status: signpost_apis::portal::ComponentStatus {
                computed_status: Some("operational".into()),
                daily_worst_status: history.iter().map(day).collect(),
                ..signpost_apis::portal::ComponentStatus::default()
            },
        }
    }

    #[test]
    fn the_history_has_the_worst_state_of_each_day_since_the_component_exists() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let facts =
            component_of(ComponentState::Degraded, &[("2026-03-01", "major_outage"), ("2026-03-02", "operational")]);
        let days = history(&facts, at("2026-03-01T23:00:00Z"), at("2026-03-04T01:00:00Z"));
        let days: Vec<(&str, &str)> = days.iter().map(|day| (day.date.as_str(), day.worst_status.as_str())).collect();
        let expected = [
            ("2026-03-01", "major_outage"),
            ("2026-03-02", "operational"),
            ("2026-03-03", "operational"),
            ("2026-03-04", "degraded"),
        ];
        assert_eq!(days, expected);
        let facts = component_of(ComponentState::Operational, &[("2026-03-04", "degraded")]);
        let days = history(&facts, at("2020-01-01T00:00:00Z"), at("2026-03-04T01:00:00Z"));
        assert_eq!(
            (days.len(), days.last().unwrap().worst_status.as_str()),
            (30, "degraded"),
            "a day keeps its worst state"
        );
        assert_eq!(until_midnight(at("2026-03-04T23:59:00Z")), Duration::from_mins(1));
    }
}
