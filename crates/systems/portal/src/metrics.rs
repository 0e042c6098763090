//! The metrics of this system: names as they are in the inventory when they are asked for, and lookups by resolver and result.
//!
//! Users write the types and the portals of names, and servers write response codes. The values of each such label are bounded.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use signpost_dns::RecordType;
use signpost_engine::Writer;
use signpost_engine::metrics::Metrics;
use signpost_inventory::{Inventory, Snapshot, View};
use signpost_provider_resolver::{LookupError, Rcode, Reply};

/// Portals with a series of their own: those with the most names.
const MOST_PORTALS: usize = 100;
/// The value of a label that is not one of the bounded ones.
const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    resolver: Arc<str>,
    result: &'static str,
}

/// Counters of this system.
#[derive(Debug, Default)]
pub(crate) struct PortalMetrics {
    lookups: Family<ByResult, Counter>,
}

impl PortalMetrics {
    pub(crate) fn register(metrics: &Metrics, inventory: &Arc<Inventory>, writer: &Writer) -> Self {
        let own = Self::default();
        metrics.register("portal_lookups", "Lookups, by resolver and result", own.lookups.clone());
        let names = |what| Names { inventory: Arc::downgrade(inventory), writer: writer.clone(), what };
        metrics.register("names", "Names in the inventory, by system, portal, status and type", names(What::Names));
        metrics.register(
            "name_conflicts",
            "Names that two objects want with different targets",
            names(What::Conflicts),
        );
        metrics.register(
            "name_check_oldest_timestamp_seconds",
            "When the name whose last lookup is longest ago was looked up",
            names(What::Oldest),
        );
        own
    }

    pub(crate) fn looked_up(&self, replies: &[Reply]) {
        for reply in replies {
            let result = match &reply.result {
                Ok(answer) => code(answer.rcode),
                Err(error) => failure(error),
            };
            self.lookups.get_or_create(&ByResult { resolver: reply.resolver.clone(), result }).inc();
        }
    }
}

fn code(rcode: Rcode) -> &'static str {
    match rcode {
        Rcode::NoError => "NOERROR",
        Rcode::NxDomain => "NXDOMAIN",
        Rcode::ServFail => "SERVFAIL",
        Rcode::Refused => "REFUSED",
        Rcode::Other(_) => OTHER,
    }
}

fn failure(error: &LookupError) -> &'static str {
    match error {
        LookupError::Timeout { .. } => "timeout",
        LookupError::Unreachable { .. } => "unreachable",
        LookupError::BadAnswer { .. } => "bad answer",
        LookupError::CnameLoop { .. } => "loop",
        LookupError::Paused { .. } => "paused",
        LookupError::BadQuestion { .. } => "bad question",
        LookupError::NoServer { .. } => "no server",
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Names,
    Conflicts,
    Oldest,
}

/// A gauge that is counted when it is asked for.
#[derive(Debug)]
struct Names {
    inventory: Weak<Inventory>,
    writer: Writer,
    what: What,
}

type NameLabels<'a> = [(&'static str, &'a str); 4];

/// How many names there are with the same labels.
fn counts(snapshot: &Snapshot) -> BTreeMap<NameLabels<'_>, i64> {
    let mut by_portal: BTreeMap<&str, usize> = BTreeMap::new();
    for view in snapshot.iter() {
        *by_portal.entry(portal(view)).or_default() += 1;
    }
    let mut portals: Vec<(&str, usize)> = by_portal.into_iter().collect();
    portals.sort_by_key(|(_, names)| Reverse(*names));
    let portals: BTreeSet<&str> = portals.into_iter().take(MOST_PORTALS).map(|(portal, _)| portal).collect();
    let mut counts: BTreeMap<NameLabels<'_>, i64> = BTreeMap::new();
    for view in snapshot.iter() {
        let portal = Some(portal(view)).filter(|portal| portals.contains(portal)).unwrap_or(OTHER);
        let (system, status) = (view.owner().system, view.status().as_str());
        let labels = [("system", system), ("portal", portal), ("status", status), ("rtype", rtype(view))];
        *counts.entry(labels).or_default() += 1;
    }
    counts
}

/// The first portal that shows a name.
fn portal(view: &View) -> &str {
    view.provenance().portals.first().map_or("", |portal| portal)
}

/// The type of a name, where it is a known one.
fn rtype(view: &View) -> &'static str {
    let Some(rtype) = view.rtype() else { return "" };
    RecordType::KNOWN.iter().find(|known| **known == rtype).map_or(OTHER, RecordType::as_str)
}

impl EncodeMetric for Names {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(inventory) = self.inventory.upgrade() else { return Ok(()) };
        let snapshot = inventory.snapshot();
        match self.what {
            What::Names => {
                for (labels, count) in counts(&snapshot) {
                    encoder.encode_family(&labels)?.encode_gauge(&count)?;
                }
                Ok(())
            }
            What::Conflicts => encoder.encode_gauge(&i64::try_from(snapshot.conflicts().count()).unwrap_or(i64::MAX)),
            // The others know when a status was last written, which is another time.
            What::Oldest if !self.writer.may_write() => Ok(()),
            What::Oldest => {
                let oldest = snapshot.iter().filter_map(|view| view.checked_at().timestamp()).min();
                // Without a lookup there is no time to show.
                oldest.map_or(Ok(()), |oldest| encoder.encode_gauge(&oldest.as_second()))
            }
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use signpost_dns::Fqdn;
    use signpost_inventory::{Entry, Owner, Provenance};

    use super::*;

    fn labels_of(names: impl Iterator<Item = (String, String)>, label: &str) -> BTreeSet<String> {
        let entry = |(number, (rtype, portal)): (usize, (String, String))| {
            let name = Fqdn::parse(&format!("n{number}.example.org")).unwrap();
            let provenance = Provenance { portals: vec![portal.as_str().into()], ..Provenance::default() };
            Entry::new(name, Some(rtype.parse().unwrap()), Arc::new(provenance))
        };
        let inventory = Inventory::new();
        let entries = names.enumerate().map(entry).collect();
        inventory.replace(&Owner::new("portal", "team"), entries, Timestamp::UNIX_EPOCH);
        let snapshot = inventory.snapshot();
        let values = counts(&snapshot).into_keys().flatten().filter(|(key, _)| *key == label);
        values.map(|(_, value)| value.to_owned()).collect()
    }

    #[test]
    fn types_that_users_make_up_have_one_series() {
        let types = (0..500).map(|number| format!("MADEUP{number}")).chain(["A".to_owned(), "TXT".to_owned()]);
        let seen = labels_of(types.map(|rtype| (rtype, "main".to_owned())), "rtype");
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["A", "TXT", "other"]);
    }

    #[test]
    fn portals_with_the_most_names_have_a_series_each() {
        let portals = (0..500).map(|number| format!("a{number}")).chain(["main".to_owned(), "main".to_owned()]);
        let seen = labels_of(portals.map(|portal| ("A".to_owned(), portal)), "portal");
        assert_eq!(seen.len(), MOST_PORTALS + 1);
        assert!(seen.contains("main") && seen.contains(OTHER));
    }
}
