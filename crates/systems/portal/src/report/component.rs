//! The status of a component: its state, and the worst one of each day. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::json;
use signpost_apis::portal::{ComponentState, DailyStatus};
use signpost_engine::Identity;
use signpost_engine::clock::whole_seconds;
use signpost_planning::Reason;

use super::{DecidedStatus, Decision, refusal_of, text};
use crate::index::ComponentFacts;
use crate::plan::component::rank;

/// Days in the history of a component.
const DAYS: usize = 30;

/// The state of a component: the declared one, and the worst of each of the last 30 days on which it existed.
pub(super) fn status(identity: Identity, facts: &ComponentFacts, has_portal: bool, now: Timestamp) -> Decision {
    let state = facts.state.as_str();
    let last = facts.decided.as_deref().unwrap_or(&facts.status);
    let changed = last.computed_status.as_deref() != Some(state);
    let since = last.last_status_change.clone().filter(|_| !changed).unwrap_or_else(|| whole_seconds(now));
    let ready = if has_portal {
        ("Ready", true, "Reconciled", String::new())
    } else {
        let note = format!("there is no portal {} in this namespace; create it or change spec.portalRef", facts.portal);
        ("Ready", false, Reason::PortalNotFound.as_str(), note)
    };
    let refusal = refusal_of(std::slice::from_ref(&ready));
    let fields = json!({
        "computedStatus": state,
        "activeIncidents": 0,
        "lastStatusChange": since,
        "dailyWorstStatus": history(facts, identity.created, now),
    });
    Decision { identity, status: DecidedStatus { fields: text(&fields), conditions: vec![ready], refusal } }
}

/// The days of a component, oldest first, each with its worst state. A day on which nobody watched had the state that was last known, and a day
/// before the first known one was a good one.
fn history(facts: &ComponentFacts, created: Timestamp, now: Timestamp) -> Vec<DailyStatus> {
    let day = |time: Timestamp| time.to_zoned(TimeZone::UTC).date();
    // A decision may be written later than the watch delivers the next change.
    let decided = facts.decided.as_deref();
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for day in [Some(&facts.status), decided].into_iter().flatten().flat_map(|status| &status.daily_worst_status) {
        let state = known.entry(&day.date).or_insert(&day.worst_status);
        *state = worse(state, &day.worst_status);
    }
    let today = day(now);
    let mut days = Vec::new();
    let mut at = today;
    while days.len() < DAYS && at >= day(created).min(today) {
        days.push(at);
        let Ok(before) = at.yesterday() else { break };
        at = before;
    }
    days.reverse();
    let first = known.keys().next().copied();
    let declared = facts.state.as_str();
    // The state until this pass: over midnight, and on days on which nobody watched.
    let until_now = decided.unwrap_or(&facts.status).computed_status.as_deref().unwrap_or(declared);
    let worst = |date: &str| match known.get(date) {
        Some(state) => *state,
        None if date == today.to_string() => until_now,
        None if first.is_some_and(|first| first < date) => until_now,
        None => ComponentState::Operational.as_str(),
    };
    let daily = |date: Date| {
        let text = date.to_string();
        let seen = worst(&text);
        let missed = facts.missed.map_or(declared, ComponentState::as_str);
        let worst_status = if date == today { worse(worse(seen, missed), declared) } else { seen };
        DailyStatus { worst_status: worst_status.to_owned(), date: text }
    };
    days.into_iter().map(daily).collect()
}

fn worse<'a>(a: &'a str, b: &'a str) -> &'a str {
    let rank = |text: &str| ComponentState::parse(text).map_or(0, rank);
    if rank(b) > rank(a) { b } else { a }
}

/// The history has a new day then.
pub(super) fn until_midnight(now: Timestamp) -> Duration {
    let today = now.to_zoned(TimeZone::UTC);
    let midnight = today.tomorrow().and_then(|tomorrow| tomorrow.start_of_day()).map(|start| start.timestamp());
    midnight.ok().and_then(|at| Duration::try_from(at.duration_since(now)).ok()).unwrap_or(Duration::from_hours(24))
}

#[cfg(test)]
mod tests {
    use signpost_apis::portal::Component;
    use signpost_engine::{Index, ObjectId};

    use super::*;
    use crate::index::{Keys, Objects};

    fn component_of(state: ComponentState, history: &[(&str, &str)]) -> ComponentFacts {
        let day = |(date, worst): &(&str, &str)| DailyStatus { date: (*date).into(), worst_status: (*worst).into() };
        ComponentFacts {
            portal: "main".into(),
            state,
            owners: Vec::new(),
            discovered: false,
            managed: true,
            decided: None,
            missed: None,
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
        // One bad hour on one day is not one on the next.
        let facts = component_of(ComponentState::Operational, &[("2026-03-02", "major_outage")]);
        let days = history(&facts, at("2026-02-28T00:00:00Z"), at("2026-03-04T00:00:01Z"));
        let worst: Vec<&str> = days.iter().map(|day| day.worst_status.as_str()).collect();
        assert_eq!(worst, ["operational", "operational", "major_outage", "operational", "operational"]);
        let facts = component_of(ComponentState::Operational, &[("2026-03-04", "degraded")]);
        let days = history(&facts, at("2020-01-01T00:00:00Z"), at("2026-03-04T01:00:00Z"));
        assert_eq!(
            (days.len(), days.last().unwrap().worst_status.as_str()),
            (30, "degraded"),
            "a day keeps its worst state"
        );
        assert_eq!(until_midnight(at("2026-03-04T23:59:00Z")), Duration::from_mins(1));
    }

    /// The history after a component had these states, one after another, before the watch delivered a status.
    fn history_after(states: &[&str], pass: impl Fn(&str) -> bool) -> Vec<String> {
        let objects = Objects::new(Keys::default(), "");
        let now: Timestamp = "2026-03-04T12:00:00Z".parse().unwrap();
        let mut last = None;
        for (number, state) in states.iter().enumerate() {
            let component: Component = serde_json::from_value(json!({
                "apiVersion": "sreportal.io/v1alpha1", "kind": "Component",
                "metadata": { "name": "shop", "namespace": "a", "uid": "u", "generation": number, "creationTimestamp": "2026-03-04T08:00:00Z" },
                "spec": { "displayName": "Shop", "group": "apps", "portalRef": "main", "status": state },
            }))
            .unwrap();
            Index::<Component>::applied(&objects, &component);
            let known = objects.get(&ObjectId::of(&component)).unwrap();
            let (decided, missed) = known.history();
            let facts = ComponentFacts { decided, missed, ..known.component().unwrap().clone() };
            let decision = status(known.identity, &facts, true, now);
            if pass(state) {
                objects.settle(decision.clone()).unwrap();
            }
            last = Some(decision);
        }
        let fields = last.unwrap().status.fields.json().unwrap();
        let days = fields["dailyWorstStatus"].as_array().unwrap();
        days.iter().map(|day| day["worstStatus"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_bad_state_that_was_not_written_in_time_is_in_the_history() {
        let states = ["operational", "major_outage", "operational", "operational"];
        assert_eq!(history_after(&states, |_| true), ["major_outage"], "the status was decided, and not delivered");
        assert_eq!(history_after(&states, |_| false), ["major_outage"], "no pass saw it");
        assert_eq!(history_after(&states, |state| state == "operational"), ["major_outage"]);
        assert_eq!(
            history_after(&["operational", "degraded", "operational"], |state| state == "degraded"),
            ["degraded"]
        );
        assert_eq!(history_after(&["operational", "unknown"], |_| true), ["operational"]);
    }
}
