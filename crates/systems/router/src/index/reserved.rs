//! The hosts that the passes of Gateways write into their Istio Gateways.
//!
//! The watch shows a write some time after its effect. Until then only the pass knows of it, and another Gateway of the same pods must not
//! add the host.
//!
//! ```text
//! observe ─► begin   the hosts of this pass, beside those of earlier passes that got no answer
//! apply ───► end     written: the hosts of this pass · refused: none · no answer: all of them
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
    /// A write got no answer. It may still have its effect.
    Unanswered,
}

impl End {
    /// The end of a pass with these errors.
    pub(crate) fn of(errors: &[ChildError]) -> Self {
        if errors.iter().any(|error| matches!(error, ChildError::Write(WriteError::Transient(_)))) {
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
        let Some(entry) = self.0.get_mut(istio).filter(|_| end != End::Unanswered) else { return BTreeSet::new() };
        let mut freed: BTreeSet<String> = std::mem::take(&mut entry.uncertain).into_keys().collect();
        if end == End::Refused && !entry.last.is_empty() {
            entry.last.clear();
            freed.insert(entry.pods.clone());
        }
        if entry.last.is_empty() {
            self.0.remove(istio);
        }
        freed
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
    fn a_refused_write_reserves_nothing() {
        let mut reserved = Reserved::default();
        reserved.begin(&id("a"), "edge", BTreeSet::from([1]));
        assert_eq!(reserved.end(&id("a"), End::Refused), BTreeSet::from(["edge".to_owned()]));
        assert!(reserved.0.is_empty());
    }
}
