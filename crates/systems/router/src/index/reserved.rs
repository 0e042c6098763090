//! The hosts that the passes of Gateways write into their Istio Gateways.
//!
//! The watch shows a write some time after its effect. Until then only the pass knows of it, and another Gateway of the same pods must not
//! add the host.
//!
//! ```text
//! observe ─► begin   the hosts of this pass, beside those of earlier passes that got no answer
//! apply ───► end     written: the hosts of this pass · no answer: all of them
//!                    refused: what was written before, and what got no answer · refused again: none, the watch shows what is there
//! ```

use std::collections::{BTreeMap, BTreeSet};

use signpost_engine::{ChildError, ObjectId, WriteError};

/// How the writes of a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything was written.
    Written,
    /// The API server refused a write.
    Refused,
    /// A write got no answer, and may still have its effect. Or it met another version, which may be that of such a write.
    Unanswered,
}

impl End {
    /// The end of a pass with these errors.
    pub(crate) fn of(errors: &[ChildError]) -> Self {
        let open =
            |error: &ChildError| matches!(error, ChildError::Write(WriteError::Transient(_) | WriteError::Conflict));
        if errors.iter().any(open) {
            Self::Unanswered
        } else if errors.is_empty() {
            Self::Written
        } else {
            Self::Refused
        }
    }
}

/// The hosts of one Istio Gateway, as digests.
#[derive(Debug, Default)]
struct Hosts {
    /// The pods and hosts of the last pass.
    pods: String,
    last: BTreeSet<u64>,
    /// Those of earlier passes that got no answer, by pods.
    uncertain: BTreeMap<String, BTreeSet<u64>>,
    /// The pods and hosts of the last pass that was written.
    written: Option<(String, BTreeSet<u64>)>,
    /// Whether the pass before was refused.
    refused: bool,
}

impl Hosts {
    fn has(&self, pods: &str, host: u64) -> bool {
        let before = self.uncertain.get(pods).is_some_and(|hosts| hosts.contains(&host));
        before || (self.pods == pods && self.last.contains(&host))
    }
}

/// The hosts that are being written, or were written last, by Istio Gateway.
#[derive(Debug, Default)]
pub(super) struct Reserved(BTreeMap<ObjectId, Hosts>);

impl Reserved {
    /// A pass is going to write these hosts for these pods.
    pub(super) fn begin(&mut self, istio: &ObjectId, pods: &str, hosts: BTreeSet<u64>) {
        if hosts.is_empty() && !self.0.contains_key(istio) {
            return;
        }
        let entry = self.0.entry(istio.clone()).or_default();
        if (entry.pods.as_str(), &entry.last) == (pods, &hosts) {
            return;
        }
        let before = std::mem::replace(&mut entry.last, hosts);
        let pods_before = std::mem::replace(&mut entry.pods, pods.to_owned());
        if !before.is_empty() {
            entry.uncertain.entry(pods_before).or_default().extend(before);
        }
    }

    /// A pass has ended. Returns the pods that may have lost a host.
    pub(super) fn end(&mut self, istio: &ObjectId, end: End) -> BTreeSet<String> {
        let Some(entry) = self.0.get_mut(istio) else { return BTreeSet::new() };
        let mut freed = BTreeSet::new();
        let refused_before = std::mem::replace(&mut entry.refused, end == End::Refused);
        match end {
            End::Written => {
                freed.extend(std::mem::take(&mut entry.uncertain).into_keys());
                entry.written = Some((entry.pods.clone(), entry.last.clone()));
            }
            End::Unanswered => {
                entry.uncertain.entry(entry.pods.clone()).or_default().extend(&entry.last);
            }
            // The watch may be late: the object has what was written before, or what got no answer.
            End::Refused if !refused_before => {
                freed.insert(entry.pods.clone());
                (entry.pods, entry.last) = entry.written.clone().unwrap_or_default();
            }
            // Some time has passed since the first refusal: the watch shows what the object has.
            End::Refused => {
                freed.extend(std::mem::take(&mut entry.uncertain).into_keys());
                freed.insert(entry.pods.clone());
                *entry = Hosts { refused: true, ..Hosts::default() };
            }
        }
        if entry.last.is_empty() && entry.uncertain.is_empty() {
            self.0.remove(istio);
        }
        freed
    }

    /// Whether this Istio Gateway has the host for these pods, or is about to.
    pub(super) fn has(&self, istio: &ObjectId, pods: &str, host: u64) -> bool {
        self.0.get(istio).is_some_and(|hosts| hosts.has(pods, host))
    }

    /// Another Istio Gateway of these pods that has the host, or is about to.
    pub(super) fn elsewhere(&self, istio: &ObjectId, pods: &str, host: u64) -> Option<&ObjectId> {
        self.0.iter().find(|(other, hosts)| *other != istio && hosts.has(pods, host)).map(|(other, _)| other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_apis::istio::IstioGateway;

    fn id(name: &str) -> ObjectId {
        ObjectId::new::<IstioGateway>(Some("infra"), name)
    }

    #[test]
    fn a_host_is_reserved_until_the_pass_that_gives_it_up_is_answered() {
        let mut reserved = Reserved::default();
        let has = |reserved: &Reserved| reserved.elsewhere(&id("b"), "edge", 1).is_some();
        reserved.begin(&id("a"), "edge", BTreeSet::from([1, 2]));
        assert!(has(&reserved));
        assert!(reserved.elsewhere(&id("a"), "edge", 1).is_none(), "its own");
        assert!(reserved.elsewhere(&id("b"), "other", 1).is_none(), "of other pods");
        assert!(reserved.end(&id("a"), End::Written).is_empty());
        assert!(has(&reserved), "the watch may not show it yet");
        // The next pass writes it no more.
        reserved.begin(&id("a"), "edge", BTreeSet::from([2]));
        assert!(has(&reserved), "that write may be on its way");
        assert!(reserved.end(&id("a"), End::Unanswered).is_empty());
        assert!(has(&reserved));
        assert_eq!(reserved.end(&id("a"), End::Written), BTreeSet::from(["edge".to_owned()]));
        assert!(!has(&reserved));
        // Without hosts, nothing is kept.
        reserved.begin(&id("a"), "edge", BTreeSet::new());
        reserved.end(&id("a"), End::Written);
        assert!(reserved.0.is_empty());
    }

    #[test]
    fn a_refused_write_keeps_what_was_written_before_until_it_is_refused_again() {
        let mut reserved = Reserved::default();
        let has = |reserved: &Reserved, host| reserved.elsewhere(&id("b"), "edge", host).is_some();
        reserved.begin(&id("a"), "edge", BTreeSet::from([1]));
        reserved.end(&id("a"), End::Written);
        // The watch is late, and does not show the first host either.
        reserved.begin(&id("a"), "edge", BTreeSet::from([2]));
        assert_eq!(reserved.end(&id("a"), End::Refused), BTreeSet::from(["edge".to_owned()]));
        assert!(has(&reserved, 1) && !has(&reserved, 2));
        // It is refused for good, and the watch has shown by now what is there.
        reserved.begin(&id("a"), "edge", BTreeSet::from([2]));
        assert_eq!(reserved.end(&id("a"), End::Refused), BTreeSet::from(["edge".to_owned()]));
        assert!(reserved.0.is_empty());
    }

    #[test]
    fn a_write_without_an_answer_is_reserved_although_the_next_one_is_refused() {
        let mut reserved = Reserved::default();
        let has = |reserved: &Reserved, host| reserved.elsewhere(&id("b"), "edge", host).is_some();
        reserved.begin(&id("a"), "edge", BTreeSet::from([1]));
        reserved.end(&id("a"), End::Unanswered);
        // It had its effect, so the next write meets another version, whether its hosts are the same or not.
        for next in [1, 2] {
            let mut reserved = Reserved::default();
            reserved.begin(&id("a"), "edge", BTreeSet::from([1]));
            reserved.end(&id("a"), End::Unanswered);
            reserved.begin(&id("a"), "edge", BTreeSet::from([next]));
            reserved.end(&id("a"), End::Refused);
            assert!(has(&reserved, 1) && !has(&reserved, 2), "{next}");
        }
        reserved.begin(&id("a"), "edge", BTreeSet::from([2]));
        assert_eq!(reserved.end(&id("a"), End::Written), BTreeSet::from(["edge".to_owned()]));
        assert!(!has(&reserved, 1) && has(&reserved, 2));
    }

    #[test]
    fn a_conflict_is_not_the_end_of_what_is_reserved() {
        let refused = || ChildError::Write(WriteError::Invalid("no".to_owned()));
        for error in [WriteError::Conflict, WriteError::Transient("late".to_owned())] {
            assert_eq!(End::of(&[refused(), ChildError::Write(error)]), End::Unanswered);
        }
        assert_eq!((End::of(&[refused()]), End::of(&[])), (End::Refused, End::Written));
    }

    #[test]
    fn a_refused_write_reserves_nothing() {
        let mut reserved = Reserved::default();
        reserved.begin(&id("a"), "edge", BTreeSet::from([1]));
        assert_eq!(reserved.end(&id("a"), End::Refused), BTreeSet::from(["edge".to_owned()]));
        assert!(reserved.0.is_empty());
    }
}
