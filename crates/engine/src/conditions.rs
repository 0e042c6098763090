//! Conditions with correct transition times.
//!
//! In: the conditions an object has, and a condition that a report wants. Out: the list with that one set; `lastTransitionTime` is kept unless
//! the status flips, so an unchanged state serialises to an unchanged status and is not written again.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::clock::whole_seconds;

/// Sets `new` in `conditions`, keeping the list sorted by type. Returns true when anything but the transition time changed.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    new.last_transition_time = whole_seconds(new.last_transition_time.0);
    let place = conditions.binary_search_by(|have| have.type_.cmp(&new.type_));
    // A list from elsewhere may not be sorted; it is then searched linearly.
    let found = place.ok().or_else(|| conditions.iter().position(|have| have.type_ == new.type_));
    let Some(index) = found else {
        conditions.push(new);
        conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        return true;
    };
    let have = &mut conditions[index];
    if have.status == new.status {
        new.last_transition_time = have.last_transition_time.clone();
    }
    let changed = *have != new;
    *have = new;
    changed
}

/// Removes the condition of this type. Returns true when there was one.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|have| have.type_ != type_);
    conditions.len() != before
}

/// The condition of this type.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|have| have.type_ == type_)
}

/// A condition, shorter to write than the struct.
pub fn condition(
    type_: &str,
    status: bool,
    reason: &str,
    message: impl Into<String>,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: whole_seconds(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn a_new_condition_is_added_in_order() {
        let mut list = vec![condition("Ready", true, "Done", "", None, at(0))];
        assert!(set(&mut list, condition("Accepted", true, "Valid", "", None, at(1))));
        assert_eq!(list.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Accepted", "Ready"]);
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_flips() {
        let mut list = vec![condition("Ready", false, "Pending", "", Some(1), at(0))];
        assert!(set(&mut list, condition("Ready", false, "Failed", "no answer", Some(2), at(10))));
        assert_eq!(list[0].last_transition_time.0, at(0));
        assert_eq!(list[0].reason, "Failed");
        assert!(set(&mut list, condition("Ready", true, "Done", "", Some(2), at(20))));
        assert_eq!(list[0].last_transition_time.0, at(20));
    }

    #[test]
    fn setting_the_same_condition_later_changes_nothing() {
        let mut list = vec![condition("Ready", true, "Done", "", Some(1), at(0))];
        let before = list.clone();
        assert!(!set(&mut list, condition("Ready", true, "Done", "", Some(1), at(99))));
        assert_eq!(list, before);
    }

    #[test]
    fn an_unsorted_list_is_still_searched() {
        let mut list = vec![condition("Z", true, "A", "", None, at(0)), condition("A", true, "A", "", None, at(0))];
        assert!(!set(&mut list, condition("Z", true, "A", "", None, at(5))));
        assert_eq!(list.len(), 2);
        assert!(remove(&mut list, "Z"));
        assert!(get(&list, "Z").is_none() && get(&list, "A").is_some());
    }

    #[test]
    fn times_are_whole_seconds_as_kubernetes_keeps_them() {
        let fine = at(3).checked_add(jiff::SignedDuration::from_millis(250)).unwrap();
        let mut list = vec![];
        set(
            &mut list,
            Condition { last_transition_time: Time(fine), ..condition("Ready", true, "Done", "", None, fine) },
        );
        assert_eq!(list[0].last_transition_time.0, at(3));
    }
}
