//! The expected records, computed from the Ingresses alone. None of the operator's code is used here.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use k8s_openapi::api::{events::v1::Event, networking::v1::Ingress};
use kube::api::{Api, ListParams};
use tokio::time::Instant;

use super::{
    OWNER, PiholeBed,
    action::{DEFAULT_TARGET, Speaks},
    twin::{Held, Twin, host_of},
};
use crate::{bed::Moment, ingresses::IngressBed, strikes::Allowed};

/// A finalizer that waits for longer than this is removed whatever the Pi-hole answers.
const PATIENCE: Duration = Duration::from_mins(10);

/// The request of an Ingress.
struct Wish {
    name: String,
    created: i64,
    hosts: BTreeSet<String>,
    registered: bool,
    deleting: bool,
    /// The records of each host, without their host; `None` where the target cannot be understood.
    records: Option<Vec<Record>>,
    /// The view that the operator wrote.
    managed: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Record {
    Address(String),
    Alias(String),
}

impl Wish {
    fn of(ingress: Ingress) -> Self {
        let meta = ingress.metadata;
        let annotations = meta.annotations.unwrap_or_default();
        let annotation = |name: &str| annotations.get(&format!("pihole.io/{name}")).map(String::as_str);
        let rules = ingress.spec.and_then(|spec| spec.rules).unwrap_or_default();
        Self {
            name: meta.name.unwrap_or_default(),
            created: meta.creation_timestamp.map_or(0, |time| time.0.as_second()),
            hosts: rules.into_iter().filter_map(|rule| rule.host).collect(),
            registered: annotation("register") == Some("true"),
            deleting: meta.deletion_timestamp.is_some(),
            records: records(annotation("target-ip"), annotation("target-ipv6"), annotation("target-cname")),
            managed: annotation("managed-hosts").map(|list| {
                list.split(',').map(|host| host.trim().to_owned()).filter(|host| !host.is_empty()).collect()
            }),
        }
    }

    fn claims(&self, host: &str) -> bool {
        self.registered && !self.deleting && self.hosts.contains(host)
    }
}

fn records(v4: Option<&str>, v6: Option<&str>, alias: Option<&str>) -> Option<Vec<Record>> {
    if let Some(alias) = alias {
        return Some(vec![Record::Alias(alias.to_owned())]);
    }
    let v4: Ipv4Addr = v4.unwrap_or(DEFAULT_TARGET).parse().ok()?;
    let mut records = vec![Record::Address(v4.to_string())];
    if let Some(v6) = v6 {
        records.push(Record::Address(v6.parse::<Ipv6Addr>().ok()?.to_string()));
    }
    Some(records)
}

async fn wishes(bed: &PiholeBed) -> Vec<Wish> {
    let listed = bed.api().list(&ListParams::default()).await;
    listed.into_iter().flatten().map(Wish::of).collect()
}

/// An Ingress that had a finalizer is deleted: nothing of it may be served, unless another Ingress asks for it.
pub async fn check_release(bed: &Arc<PiholeBed>) {
    let wishes = wishes(bed).await;
    let uids: BTreeSet<String> = bed
        .api()
        .list(&ListParams::default())
        .await
        .into_iter()
        .flatten()
        .filter_map(|ingress| ingress.metadata.uid)
        .collect();
    let released: Vec<_> = {
        let mut deleted = bed.deleted();
        let uids: Vec<String> = deleted.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        uids.into_iter().filter_map(|uid| deleted.remove(&uid)).collect()
    };
    for ingress in &released {
        bed.touch(ingress.hosts.iter().cloned());
    }
    let strict = bed.setup.finalizer && !bed.switched.load(Ordering::Relaxed);
    for ingress in released.iter().filter(|ingress| strict && ingress.at + PATIENCE > Instant::now()) {
        let asked = |host: &String| wishes.iter().any(|wish| wish.hosts.contains(host));
        for host in ingress.hosts.iter().filter(|host| !asked(host) && !bed.was_handed_over(ingress, host)) {
            for twin in &bed.twins {
                let lists = twin.lists();
                let served = lists
                    .hosts
                    .iter()
                    .chain(&lists.cnames)
                    .find(|held| held.ours && host_of(&held.line) == *host && held.since < ingress.at);
                if let Some(held) = served {
                    bed.world.violation(format!(
                        "Ingress {} was released while {} served {:?}",
                        ingress.name,
                        twin.name(),
                        held.line
                    ));
                }
            }
        }
    }
}

/// How long a host that is asked for may be unserved.
const ALLOWED: Allowed = Allowed {
    // A pause that gathers changes, and one between two restarts of the resolver.
    without_fault: Duration::from_mins(2),
    // A request that hangs for its 10 seconds, the longest pause after failures, and a lease that runs out.
    after_fault: Duration::from_mins(6),
    // Passwords and permissions are tried again after one to ten minutes.
    after_refusal: Duration::from_mins(12),
};

/// Looks for hosts that one Ingress has asked for and that have been unserved for longer than their own faults explain.
pub async fn look(bed: &Arc<PiholeBed>) -> bool {
    let (now, mut clear) = (Instant::now(), true);
    let wishes = wishes(bed).await;
    for wish in wishes.iter().filter(|wish| wish.records.is_some()) {
        for host in wish.hosts.iter().filter(|host| wish.claims(host)) {
            let alone = wishes.iter().filter(|other| other.hosts.contains(host)).count() == 1;
            let Some(since) = bed.touched(host).filter(|_| alone) else { continue };
            for twin in bed.twins.iter().filter(|twin| !twin.is_by_hand()) {
                let concerns = |name: &str| {
                    name.starts_with(&format!("{} ", twin.name()))
                        || name.ends_with(&format!("/ingresses/{}", wish.name))
                };
                if is_served(twin, host, wish) {
                    continue;
                }
                clear = false;
                if now > bed.world.strikes.of(concerns).deadline(since, &ALLOWED) {
                    let asks = format!("Ingress {} asks for {host} alone and without faults of its own", wish.name);
                    bed.world.violation(format!("{asks}, and Pi-hole {} does not serve it", twin.name()));
                }
            }
        }
    }
    clear
}

fn is_served(twin: &Twin, host: &str, wish: &Wish) -> bool {
    let lists = twin.lists();
    let held: Vec<&Held> =
        lists.hosts.iter().chain(&lists.cnames).filter(|held| held.ours && host_of(&held.line) == host).collect();
    // What a lock of the aliases keeps from a host is judged at rest.
    let alias = |record: &Record| matches!(record, Record::Alias(_));
    let stuck = held.iter().any(|held| is_alias(held)) || wish.records.iter().flatten().any(alias);
    let right = |records: &Vec<Record>| records.iter().cloned().collect::<BTreeSet<_>>() == ours(&held);
    (twin.is_locked() && stuck) || wish.records.as_ref().is_none_or(right)
}

/// Checks everything.
pub async fn check(bed: &Arc<PiholeBed>, moment: Moment) {
    let wishes = wishes(bed).await;
    for wish in wishes.iter().filter(|wish| wish.deleting) {
        bed.world.violation(format!("{moment:?}: Ingress {} is still being deleted", wish.name));
    }
    for twin in &bed.twins {
        pihole(bed, twin, &wishes, moment);
    }
    if moment == Moment::Rest {
        views(bed, &wishes);
        if !bed.world.strikes.lost_events() {
            reported(bed, &wishes).await;
        }
    }
}

/// The records of one host, as lines of the operator have it.
fn ours(held: &[&Held]) -> BTreeSet<Record> {
    let record = |held: &&Held| {
        let text = held.line.as_str().split('#').next().unwrap_or_default().trim().to_owned();
        match text.split_once(',') {
            Some((_, target)) => Record::Alias(target.to_owned()),
            None => Record::Address(text.split_whitespace().next().unwrap_or_default().to_owned()),
        }
    };
    held.iter().map(record).collect()
}

/// Whether a line is in the list of aliases.
fn is_alias(held: &Held) -> bool {
    held.line.as_str().split('#').next().is_some_and(|text| text.contains(','))
}

/// Whether a line that a user wrote by hand names the host.
fn named_by_hand(held: &Held, host: &str) -> bool {
    let text = held.line.as_str().split('#').next().unwrap_or_default();
    !held.ours && text.split(|c: char| c.is_whitespace() || c == ',').any(|word| word == host)
}

fn pihole(bed: &PiholeBed, twin: &Twin, wishes: &[Wish], moment: Moment) {
    // Nothing can be written there.
    if twin.is_read_only() {
        return;
    }
    let locked = twin.is_locked();
    let lists = twin.lists().clone();
    let all: Vec<&Held> = lists.hosts.iter().chain(&lists.cnames).collect();
    let wrong = |what: String| bed.world.violation(format!("{moment:?}: Pi-hole {}: {what}", twin.name()));
    let mut served: BTreeMap<String, Vec<&Held>> = BTreeMap::new();
    for held in all.iter().filter(|held| held.ours) {
        served.entry(host_of(&held.line)).or_default().push(held);
        let marked = held.line.as_str().ends_with(&format!("# signpost={OWNER}"));
        if marked != (bed.setup.speaks == Speaks::V6) {
            wrong(format!("{:?} is marked: {marked}", held.line));
        }
    }
    let hosts: BTreeSet<String> = wishes
        .iter()
        .filter(|wish| wish.registered && !wish.deleting)
        .flat_map(|wish| wish.hosts.iter().cloned())
        .collect();
    for (host, held) in &served {
        // The token API deletes by name: a line of ours stays where that would delete a foreign one.
        let shared = bed.setup.speaks == Speaks::Token && all.iter().any(|held| named_by_hand(held, host));
        let stuck = locked && held.iter().all(|held| is_alias(held));
        if !hosts.contains(host) && !shared && !stuck {
            wrong(format!("{:?} is served although no Ingress asks for it", held[0].line));
        }
    }
    for host in &hosts {
        if all.iter().any(|held| named_by_hand(held, host)) {
            continue;
        }
        let mut claimants: Vec<&Wish> = wishes.iter().filter(|wish| wish.claims(host)).collect();
        claimants.sort_by_key(|wish| wish.created);
        let there = served.get(host).map(|held| ours(held)).unwrap_or_default();
        let alias = |record: &Record| matches!(record, Record::Alias(_));
        let asked = || claimants.iter().filter_map(|wish| wish.records.as_ref()).flatten();
        // Aliases can be neither written nor deleted there, and other types of the host wait for them.
        if locked && asked().chain(&there).any(alias) {
            continue;
        }
        let first = claimants.first().map_or(0, |wish| wish.created);
        let tied = || claimants.iter().filter(move |wish| wish.created == first);
        // An Ingress that cannot be understood keeps existing records; without records, the next one owns the host.
        if tied().any(|wish| wish.records.is_none()) {
            let next = claimants.iter().find_map(|wish| wish.records.as_ref());
            if there.is_empty() && next.is_some() && claimants.len() > 1 && moment == Moment::Rest {
                wrong(format!("{host} is not served although an Ingress with a valid target asks for it"));
            }
            continue;
        }
        let right = tied().any(|wish| {
            wish.records.as_ref().is_some_and(|records| records.iter().cloned().collect::<BTreeSet<_>>() == there)
        });
        if !right {
            let asked: Vec<_> = tied().map(|wish| (&wish.name, &wish.records)).collect();
            wrong(format!("{host}: {there:?} is served, asked for: {asked:?}"));
        }
    }
}

/// An Ingress whose host has a line written by hand gets an event about it.
async fn reported(bed: &PiholeBed, wishes: &[Wish]) {
    let events: Api<Event> = Api::all(bed.client.clone());
    let listed = events.list(&ListParams::default()).await;
    // An event about something else does not count.
    let about_lines = ["ForeignRecord", "SharedLine", "OtherOwner"];
    let about_lines = |event: &Event| event.reason.as_deref().is_some_and(|reason| about_lines.contains(&reason));
    let about: BTreeSet<String> =
        listed.into_iter().flatten().filter(about_lines).filter_map(|event| event.regarding?.name).collect();
    for wish in wishes.iter().filter(|wish| matches!(wish.records.as_deref(), Some([Record::Address(_)]))) {
        for host in wish.hosts.iter().filter(|host| wish.claims(host)) {
            let alone = wishes.iter().filter(|other| other.hosts.contains(host)).count() == 1;
            let beside = |twin: &Arc<Twin>| twin.lists().hosts.iter().any(|held| v4_by_hand(held, host));
            if alone && !about.contains(&wish.name) && bed.twins.iter().any(beside) {
                bed.world.violation(format!(
                    "Rest: Ingress {} has {host}, there is a foreign line for it, and no event reports it",
                    wish.name
                ));
            }
        }
    }
}

/// Whether an IPv4 address for the host was written by hand.
fn v4_by_hand(held: &Held, host: &str) -> bool {
    let address = held.line.as_str().split_whitespace().next().unwrap_or_default();
    named_by_hand(held, host) && address.parse::<Ipv4Addr>().is_ok()
}

/// The annotation `pihole.io/managed-hosts` of Ingresses about which there is no doubt.
fn views(bed: &PiholeBed, wishes: &[Wish]) {
    // A host is in the view once every Pi-hole has it.
    if bed.twins.iter().any(|twin| twin.is_read_only() || twin.is_locked()) {
        return;
    }
    for wish in wishes.iter().filter(|wish| !wish.deleting) {
        let by_hand = |host: &String| {
            bed.twins.iter().any(|twin| twin.lists().hosts.iter().any(|held| named_by_hand(held, host)))
        };
        let alone = |host: &String| wishes.iter().filter(|other| other.claims(host)).count() <= 1;
        if !wish.registered {
            let shared = |host: &String| bed.setup.speaks == Speaks::Token && by_hand(host);
            if wish.managed.as_ref().is_some_and(|hosts| !hosts.iter().all(shared)) {
                bed.world
                    .violation(format!("Rest: Ingress {} asks for nothing, its view is {:?}", wish.name, wish.managed));
            }
        } else if wish.records.is_some() && wish.hosts.iter().all(|host| alone(host) && !by_hand(host)) {
            let mut managed = wish.managed.clone().unwrap_or_default();
            if bed.setup.speaks == Speaks::Token {
                managed.retain(|host| wish.hosts.contains(host) || !by_hand(host));
            }
            if managed != wish.hosts {
                bed.world
                    .violation(format!("Rest: Ingress {} has {:?}, its view is {managed:?}", wish.name, wish.hosts));
            }
        }
    }
}
