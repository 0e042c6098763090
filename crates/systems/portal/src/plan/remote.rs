//! The names of a portal in another cluster, as DNS objects of this one have them. Pure.
//!
//! ```text
//!  visit ─► names, sorted, in parts that fit into an object ─► groups ─► status of the DNS objects `remote-PORTAL`, `remote2-PORTAL`, …
//!    └ failed: the names of the last visit, marked as stale                              └─(watch)─► inventory of every replica
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use signpost_apis::portal::{FqdnGroupStatus, FqdnStatus, OriginRef, PortalFeatures, RemoteSync};
use signpost_engine::Identity;
use signpost_engine::clock::whole_seconds;
use signpost_inventory::{SyncReason, SyncStatus};
use signpost_planning::{Refusal, doubled};
use signpost_provider_portal::{Features, RemoteName, RemoteNames};

use super::{Pauses, later};
use crate::index::PortalFacts;

/// The group of names without any.
const NO_GROUP: &str = "default";
/// Most DNS objects with the names of one portal. A portal that lies can fill no more.
pub const MOST_PARTS: usize = 8;
/// Octets of JSON of the names in one of them; the groups around them need some more.
const PART_BYTES: usize = 1_000_000;
/// Octets of JSON around a name and around a group, at most.
const AROUND: usize = 64;

/// The DNS object with a part of the names of a remote portal, counted from 0. Names of portals have no part in the number before the first `-`,
/// so no two portals want the same object.
pub fn copy_name(portal: &str, part: usize) -> String {
    match part {
        0 => format!("remote-{portal}"),
        part => format!("remote{}-{portal}", part + 1),
    }
}

/// What a visit brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taken {
    /// The title of the portal there.
    pub title: String,
    /// The parts that it shows, where it knows them.
    pub features: Option<PortalFeatures>,
    /// How many names it has.
    pub count: usize,
    /// The names, by the DNS object that has them; at least one part.
    pub parts: Vec<Arc<Vec<FqdnGroupStatus>>>,
    /// Names that are in none of them.
    pub omitted: usize,
}

impl Taken {
    /// Takes over the names of a portal.
    pub fn of(names: &RemoteNames) -> Self {
        let (parts, cut) = parts(&names.names);
        let parts = parts.iter().map(|part| Arc::new(groups(part))).collect();
        let count = names.names.len() + names.omitted;
        let (title, features) = (names.title.clone(), names.features.map(features));
        Self { title, features, count, parts, omitted: names.omitted + cut }
    }
}

fn features(remote: Features) -> PortalFeatures {
    let Features { dns, releases, network_policy, alerts, status_page, image_inventory } = remote;
    PortalFeatures {
        dns: Some(dns),
        releases: Some(releases),
        network_policy: Some(network_policy),
        alerts: Some(alerts),
        status_page: Some(status_page),
        image_inventory: Some(image_inventory),
    }
}

/// A visit of a remote portal.
#[derive(Clone, Debug)]
pub struct Visit {
    /// When it ended.
    pub at: Timestamp,
    /// The portal that it was for, in this incarnation and generation.
    pub portal: Identity,
    /// The names, or why there are none.
    pub result: Result<Arc<Taken>, Refusal>,
    /// How many visits in a row have failed.
    pub failures: u32,
    /// When the last one succeeded, if it did since the start.
    pub succeeded: Option<Timestamp>,
}

impl Visit {
    /// Whether it is time for another visit. After a visit in the future, the clock was set back.
    pub fn is_over(&self, pauses: Pauses, now: Timestamp) -> bool {
        self.at > now || self.next(pauses) <= now
    }

    /// When the next visit is due: sooner after a failure.
    pub fn next(&self, pauses: Pauses) -> Timestamp {
        let pause = match self.failures {
            0 => pauses.refresh,
            failures => doubled(pauses.again, failures - 1, pauses.refresh),
        };
        later(self.at, pause)
    }
}

/// A DNS object with names of a portal.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Which object.
    pub identity: Identity,
    /// Which part of the names it has.
    pub part: usize,
    /// Its names.
    pub groups: Arc<Vec<FqdnGroupStatus>>,
    /// Names that are in no object, as the first one has their number.
    pub omitted: usize,
}

/// A remote portal.
#[derive(Debug)]
pub struct ObservedRemote {
    /// Which object.
    pub identity: Identity,
    /// Its request.
    pub facts: PortalFacts,
    /// The DNS objects with its names that exist.
    pub copies: Vec<Copy>,
    /// The last visit.
    pub visit: Visit,
    /// What its status has of the visits before.
    pub last: Option<RemoteSync>,
    /// The times between visits.
    pub pauses: Pauses,
}

/// The decision about a remote portal.
#[derive(Debug)]
pub struct RemotePlan {
    /// Which object.
    pub identity: Identity,
    /// Whether names are shown, here and there.
    pub dns: bool,
    /// The DNS objects that exist, with the names that they show: those of the last visit that succeeded.
    pub copies: Vec<Copy>,
    /// The parts for which a DNS object is created now.
    pub create: Vec<usize>,
    /// The parts whose DNS object is deleted, because the names need less of them.
    pub delete: Vec<usize>,
    /// Names that the other portal has, and that are not taken over.
    pub omitted: usize,
    /// The last visit.
    pub visit: Visit,
    /// What the status has of it.
    pub sync: RemoteSync,
    /// When the next visit is due.
    pub next: Timestamp,
}

/// Decides what is shown of a remote portal.
pub fn plan(observed: ObservedRemote) -> RemotePlan {
    let ObservedRemote { identity, facts, mut copies, visit, last, pauses } = observed;
    let last = last.unwrap_or_default();
    let next = visit.next(pauses);
    let (create, delete, sync, omitted) = match &visit.result {
        Ok(taken) => {
            let sync = RemoteSync {
                last_sync_time: Some(whole_seconds(visit.at)),
                last_sync_error: None,
                remote_title: Some(taken.title.clone()),
                fqdn_count: i64::try_from(taken.count).ok(),
                features: taken.features.clone(),
            };
            let has = |part: usize| copies.iter().any(|copy| copy.part == part);
            let create = (0..taken.parts.len()).filter(|part| !has(*part)).collect();
            let delete = (taken.parts.len()..MOST_PARTS).filter(|part| has(*part)).collect();
            copies.retain_mut(|copy| match taken.parts.get(copy.part) {
                Some(groups) => {
                    copy.groups = groups.clone();
                    true
                }
                None => false,
            });
            (create, delete, sync, taken.omitted)
        }
        Err(refusal) => {
            let omitted = copies.iter().map(|copy| copy.omitted).sum();
            let last_sync_time = visit.succeeded.map(whole_seconds).or(last.last_sync_time);
            let last_sync_error = Some(refusal.message.clone());
            (Vec::new(), Vec::new(), RemoteSync { last_sync_time, last_sync_error, ..last }, omitted)
        }
    };
    let there = sync.features.as_ref().and_then(|features| features.dns).unwrap_or(true);
    RemotePlan { identity, dns: facts.dns && there, copies, create, delete, omitted, visit, sync, next }
}

/// The names in parts that fit into an object each, in order, and how many are too many: those in sync first. All groups of a name are in one part.
fn parts(names: &[RemoteName]) -> (Vec<Vec<&RemoteName>>, usize) {
    let octets = |name: &RemoteName| {
        let one = serde_json::to_vec(&status(name)).map_or(0, |json| json.len() + AROUND);
        one * name.groups.len().max(1)
    };
    let mut sized: Vec<(usize, &RemoteName)> = names.iter().map(|name| (octets(name), name)).collect();
    sized.sort_by_key(|(_, name)| name.sync_status.as_deref() == Some(SyncStatus::Sync.as_str()));
    let mut total = 0;
    sized.retain(|(octets, name)| {
        let frames: usize = name.groups.iter().map(|group| group.len() + AROUND).sum();
        total += octets + frames;
        // What is around a group counts once for each name here, so there is room for what is left over at the end of a part.
        total <= MOST_PARTS * PART_BYTES
    });
    let cut = names.len() - sized.len();
    sized.sort_by(|(_, a), (_, b)| (&a.name, &a.record_type, &a.targets).cmp(&(&b.name, &b.record_type, &b.targets)));
    let (mut parts, mut size, mut seen): (Vec<Vec<&RemoteName>>, usize, BTreeSet<&str>) =
        (vec![Vec::new()], 0, BTreeSet::new());
    for (octets, name) in sized {
        let new = |seen: &BTreeSet<&str>| -> usize {
            let groups = name.groups.iter().filter(|group| !seen.contains(group.as_str()));
            groups.map(|group| group.len() + AROUND).sum()
        };
        if size + octets + new(&seen) > PART_BYTES && size > 0 && parts.len() < MOST_PARTS {
            (size, seen) = (0, BTreeSet::new());
            parts.push(Vec::new());
        }
        size += octets + new(&seen);
        seen.extend(name.groups.iter().map(String::as_str));
        if let Some(part) = parts.last_mut() {
            part.push(name);
        }
    }
    (parts, cut)
}

/// Names by group, in order. A name without a group is in the default one.
fn groups(names: &[&RemoteName]) -> Vec<FqdnGroupStatus> {
    let mut by_group: BTreeMap<&str, Vec<FqdnStatus>> = BTreeMap::new();
    for name in names {
        let groups: Vec<&str> = match &name.groups[..] {
            [] => vec![NO_GROUP],
            groups => groups.iter().map(String::as_str).collect(),
        };
        for group in groups {
            by_group.entry(group).or_default().push(status(name));
        }
    }
    let group = |(name, mut fqdns): (&str, Vec<FqdnStatus>)| {
        fqdns.sort_by(|a, b| (&a.fqdn, &a.record_type, &a.targets).cmp(&(&b.fqdn, &b.record_type, &b.targets)));
        fqdns.dedup_by(|a, b| (&a.fqdn, &a.record_type, &a.targets) == (&b.fqdn, &b.record_type, &b.targets));
        FqdnGroupStatus { name: name.to_owned(), description: None, source: "remote".into(), fqdns }
    };
    by_group.into_iter().map(group).collect()
}

fn status(name: &RemoteName) -> FqdnStatus {
    // The older words of SRE Portal have a status here too.
    let (status, reason) = match name.sync_status.as_deref() {
        Some("notsync") => (Some(SyncStatus::NotFound), Some(SyncReason::Mismatch)),
        Some("notavailable") => (Some(SyncStatus::Error), None),
        other => (other.and_then(SyncStatus::parse), None),
    };
    FqdnStatus {
        fqdn: name.name.clone(),
        description: name.description.clone(),
        record_type: name.record_type.clone(),
        targets: name.targets.clone(),
        sync_status: status.map(|status| status.as_str().to_owned()),
        reason: reason.map(|reason| reason.as_str().to_owned()),
        observed: Vec::new(),
        resolver: None,
        last_seen: name.last_seen.map(whole_seconds),
        checked_at: None,
        origin_ref: name.origin.as_ref().map(|[kind, namespace, name]| OriginRef {
            kind: kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(fqdn: &str, groups: &[&str], status: &str) -> RemoteName {
        RemoteName {
            name: fqdn.into(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            sync_status: Some(status.into()),
            ..RemoteName::default()
        }
    }

    #[test]
    fn names_are_grouped_sorted_and_counted_once() {
        let names = [
            name("b.example.org", &["Web", "API"], "notsync"),
            name("a.example.org", &["Web"], "notavailable"),
            name("b.example.org", &["Web"], "sync"),
            name("c.example.org", &[], "timeout"),
        ];
        let shown: Vec<(String, Vec<String>)> = groups(&names.each_ref())
            .into_iter()
            .map(|group| {
                let word =
                    |fqdn: &FqdnStatus| format!("{} {}", fqdn.fqdn, fqdn.sync_status.clone().unwrap_or_default());
                (group.name, group.fqdns.iter().map(word).collect())
            })
            .collect();
        let web = vec!["a.example.org error".to_owned(), "b.example.org notFound".to_owned()];
        let expected = [
            ("API".to_owned(), vec!["b.example.org notFound".to_owned()]),
            ("Web".to_owned(), web),
            ("default".to_owned(), vec!["c.example.org timeout".to_owned()]),
        ];
        assert_eq!(shown, expected);
    }

    fn many(count: usize, length: usize, status: &str) -> Vec<RemoteName> {
        let of = |number: usize| RemoteName {
            targets: vec!["t".repeat(length)],
            ..name(&format!("{status}-{number:05}.example.org"), &["a", "b"], status)
        };
        (0..count).map(of).collect()
    }

    #[test]
    fn names_that_do_not_fit_into_one_object_are_in_several() {
        let names = RemoteNames { names: many(9_000, 10, "sync"), ..RemoteNames::default() };
        let taken = Taken::of(&names);
        assert_eq!((taken.count, taken.omitted), (9_000, 0));
        assert!(taken.parts.len() > 1);
        let mut seen = BTreeSet::new();
        for part in &taken.parts {
            assert!(serde_json::to_vec(&**part).unwrap().len() <= 1_200_000);
            let of = |group: &FqdnGroupStatus| group.fqdns.iter().map(|fqdn| fqdn.fqdn.clone()).collect::<Vec<_>>();
            assert_eq!(of(&part[0]), of(&part[1]), "all groups of a name are in one object");
            seen.extend(of(&part[0]));
        }
        assert_eq!(seen.len(), 9_000);
        assert_eq!(Taken::of(&RemoteNames::default()).parts.len(), 1, "a portal without names has one too");
    }

    #[test]
    fn a_portal_is_visited_again_after_its_pause_and_when_the_clock_was_set_back() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let pauses = Pauses { refresh: Duration::from_mins(1), again: Duration::from_secs(5) };
        let visit = |failures| Visit {
            at: at(0),
            portal: Identity::own_deployment("a", "east"),
            result: Ok(Arc::new(Taken::default())),
            failures,
            succeeded: None,
        };
        let over = |failures, second| visit(failures).is_over(pauses, at(second));
        assert_eq!([over(0, 0), over(0, 59), over(0, 60)], [false, false, true]);
        assert_eq!([over(1, 4), over(1, 5), over(2, 9), over(2, 10)], [false, true, false, true]);
        assert!(over(0, -1) && over(0, -86_400));
    }

    #[test]
    fn of_too_many_names_those_in_sync_are_cut() {
        let names = [many(20_000, 500, "sync"), many(10, 500, "notFound")].concat();
        let taken = Taken::of(&RemoteNames { names, ..RemoteNames::default() });
        let listed: Vec<&FqdnStatus> = taken.parts.iter().flat_map(|part| &part[0].fqdns).collect();
        assert_eq!((listed.len() + taken.omitted, taken.parts.len()), (20_010, MOST_PARTS));
        assert!(taken.omitted > 0);
        let broken = |fqdn: &&&FqdnStatus| fqdn.sync_status.as_deref() == Some("notFound");
        assert_eq!(listed.iter().filter(broken).count(), 10);
        for part in &taken.parts {
            assert!(serde_json::to_vec(&**part).unwrap().len() <= 1_200_000);
        }
    }
}
