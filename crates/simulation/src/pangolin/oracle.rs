//! What must be exposed, worked out from the Ingresses alone. None of the operator's code is used here.
//!
//! ```text
//! Ingresses, Services ─► which Service answers which URL, as Kubernetes defines it ─┐
//! resources of Pangolin ─► which target answers it, as the edge routes ─────────────┴─► the same?
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{events::v1::Event, networking::v1::Ingress};
use kube::api::{Api, ListParams};
use signpost_sandbox::edge::Answer;
use tokio::time::Instant;

use super::{PangolinBed, action::PathObject};
use crate::{bed::Moment, ingresses::IngressBed, strikes::Allowed};

/// The paths that are asked for at every host.
const URLS: [&str; 5] = ["/", "/api", "/api/v1", "/apiary", "/api/v1/x"];

/// Which Service answers each of [`URLS`]; `None` for none.
type Answers = [Option<String>; 5];

/// A host that was served as its Ingress asks.
#[derive(Clone, Debug)]
pub struct Settled {
    since: Instant,
    answers: Answers,
}

/// The request of an Ingress.
struct Wish {
    name: String,
    created: i64,
    active: bool,
    /// Whether it cannot be understood, so that everything of it is unchanged.
    broken: bool,
    sso: bool,
    hosts: BTreeMap<String, Vec<PathObject>>,
}

impl Wish {
    fn of(ingress: Ingress) -> Self {
        let meta = ingress.metadata;
        let annotations = meta.annotations.unwrap_or_default();
        let annotation = |name: &str| annotations.get(&format!("pangolin.ingress.k8s.io/{name}")).map(String::as_str);
        let spec = ingress.spec.unwrap_or_default();
        let mut hosts: BTreeMap<String, Vec<PathObject>> = BTreeMap::new();
        for rule in spec.rules.unwrap_or_default() {
            let paths = rule.http.map(|http| http.paths).unwrap_or_default().into_iter().map(|path| {
                let service = path.backend.service.unwrap_or_default();
                let port = service.port.and_then(|port| port.number).unwrap_or_default();
                PathObject {
                    path: path.path.unwrap_or_default(),
                    exact: path.path_type == "Exact",
                    service: service.name,
                    port: u16::try_from(port).unwrap_or_default(),
                }
            });
            hosts.entry(rule.host.unwrap_or_default()).or_default().extend(paths);
        }
        let ours = spec.ingress_class_name.as_deref() == Some("pangolin");
        Self {
            name: meta.name.unwrap_or_default(),
            created: meta.creation_timestamp.map_or(0, |time| time.0.as_second()),
            active: ours && annotation("enabled") != Some("false") && meta.deletion_timestamp.is_none(),
            broken: annotation("sso").is_some_and(|value| !["true", "false"].contains(&value)),
            sso: annotation("sso") == Some("true"),
            hosts,
        }
    }

    fn claims(&self, host: &str) -> bool {
        self.active && self.hosts.contains_key(host)
    }

    /// Whether every Service of a host exists.
    fn is_backed(&self, host: &str, services: &BTreeSet<String>) -> bool {
        self.hosts.get(host).is_some_and(|paths| paths.iter().all(|path| services.contains(&path.service)))
    }

    fn answers(&self, host: &str) -> Answers {
        let paths = self.hosts.get(host).map(Vec::as_slice).unwrap_or_default();
        URLS.map(|url| {
            let matches = paths.iter().filter(|path| does_match(path, url));
            let best = matches.max_by_key(|path| (path.path.trim_end_matches('/').len(), path.exact));
            best.map(|path| format!("{}.one.svc.cluster.local:{}", path.service, path.port))
        })
    }
}

/// Whether a path matches as Kubernetes defines it: exactly, or by whole elements.
fn does_match(path: &PathObject, url: &str) -> bool {
    if path.exact {
        return path.path == url;
    }
    let prefix = path.path.trim_end_matches('/');
    url == prefix || url.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

struct Asked {
    wishes: Vec<Wish>,
    services: BTreeSet<String>,
}

impl Asked {
    async fn of(bed: &PangolinBed) -> Self {
        let listed = bed.api().list(&ListParams::default()).await;
        let services = bed.services().list(&ListParams::default()).await;
        Self {
            wishes: listed.into_iter().flatten().map(Wish::of).collect(),
            services: services.into_iter().flatten().filter_map(|service| service.metadata.name).collect(),
        }
    }

    /// The only Ingress that asks for a host, where nothing else speaks about it.
    fn alone(&self, bed: &PangolinBed, host: &str) -> Option<&Wish> {
        let mut all = self.wishes.iter().filter(|wish| wish.hosts.contains_key(host));
        let wish = all.next().filter(|_| all.next().is_none())?;
        let clear = wish.claims(host) && !wish.broken && wish.is_backed(host, &self.services);
        Some(wish).filter(|_| clear && !has_foreign(bed, host))
    }
}

fn has_foreign(bed: &PangolinBed, host: &str) -> bool {
    let state = bed.twin.state();
    state.resources.values().any(|row| row.full_domain == host && bed.twin.is_foreign(row.id))
}

/// What is counted where several targets answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    /// Each target.
    Targets,
    /// Each Service, however many targets it has.
    Services,
}

/// Which Service answers each URL of a host now.
fn served(bed: &PangolinBed, host: &str, count: Count) -> Answers {
    let state = bed.twin.state();
    let counted = |answer| match answer {
        Answer::Served(mut by) if count == Count::Services => {
            by.sort();
            by.dedup();
            Answer::Served(by)
        }
        other => other,
    };
    URLS.map(|url| match counted(state.answer(host, url)) {
        Answer::Served(mut by) if by.len() == 1 => by.pop(),
        Answer::Served(by) if by.is_empty() => None,
        Answer::NoRouter => None,
        other => Some(format!("{other:?}")),
    })
}

/// Whether a host is protected as its Ingress asks.
fn is_protected(bed: &PangolinBed, host: &str, sso: bool) -> bool {
    let state = bed.twin.state();
    state.resources.values().filter(|row| row.full_domain == host).all(|row| row.sso == Some(sso))
}

/// A write of the operator took effect: what was settled before it was sent must be answered by the same Services. A creation that has its
/// effect after its caller gave up and created the same target again makes two targets of one Service: each is right, and one is deleted.
pub fn judge(bed: &Arc<PangolinBed>, request: &str, sent: Instant) {
    let settled = bed.settled().clone();
    for (host, Settled { since, answers }) in settled {
        let now = served(bed, &host, Count::Services);
        if now == answers {
            continue;
        }
        bed.settled().remove(&host);
        // A write from before has its effect late: nobody can call it back.
        if since < sent {
            bed.world.violation(format!(
                "{request} changed what answers {host} while its Ingress is unchanged: {now:?} instead of {answers:?}"
            ));
        }
    }
}

/// How long a host that is asked for may be unserved.
const ALLOWED: Allowed = Allowed {
    without_fault: Duration::from_mins(1),
    // The deadline of a call, the longest pause after failures, a lease that runs out, and a comparison that finds a late write.
    after_fault: Duration::from_mins(8),
    // Keys, permissions and refusals are tried again after one to ten minutes.
    after_refusal: Duration::from_mins(14),
};
/// How long something that was changed at the dashboard may stay so: until the next comparison, or the one that reads everything.
const BY_HAND: Duration = Duration::from_mins(13);

/// How long a watch that broke may take until it shows everything again.
const WATCHED: Duration = Duration::from_mins(1);

/// Whether the operator has seen a change of that time. With a watch that is late, it still works on an older Ingress, and what it finds in
/// Pangolin may be what the newer one asks for by chance.
fn is_seen(bed: &PangolinBed, changed: Instant, now: Instant) -> bool {
    let struck = bed.world.strikes.of(|_| false).any;
    struck.is_none_or(|until| until < changed || until + WATCHED < now)
}

/// Looks for hosts that one Ingress has asked for and that are not served for longer than their own faults explain.
pub async fn look(bed: &Arc<PangolinBed>) -> bool {
    let (now, mut clear) = (Instant::now(), true);
    let asked = Asked::of(bed).await;
    let hosts: BTreeSet<&String> = asked.wishes.iter().flat_map(|wish| wish.hosts.keys()).collect();
    for host in hosts {
        let (Some(wish), Some(touched)) = (asked.alone(bed, host), bed.touched(host)) else { continue };
        let (wanted, there) = (wish.answers(host), served(bed, host, Count::Targets));
        if wanted == there && is_protected(bed, host, wish.sso) {
            if is_seen(bed, touched.at, now) {
                bed.settled().entry(host.clone()).or_insert(Settled { since: now, answers: wanted });
            } else {
                clear = false;
            }
            continue;
        }
        clear = false;
        let concerns =
            |name: &str| name.starts_with("pangolin ") || name.ends_with(&format!("/ingresses/{}", wish.name));
        let since = touched.by_hand.map_or(touched.at, |at| touched.at.max(at + BY_HAND));
        if now > bed.world.strikes.of(concerns).deadline(since, &ALLOWED) {
            bed.world.violation(format!(
                "Ingress {} asks for {host} alone and without faults of its own: {there:?} answers instead of {wanted:?}",
                wish.name
            ));
        }
    }
    clear
}

/// Checks everything: exactly the wanted resources, each with its mark, and each URL answered by its Service.
pub async fn check(bed: &Arc<PangolinBed>, moment: Moment) {
    let asked = Asked::of(bed).await;
    let wrong = |what: String| bed.world.violation(format!("{moment:?}: {what}"));
    let mut ours: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // An Ingress that cannot be understood keeps what it has, marked or not.
    let kept = asked.wishes.iter().any(|wish| wish.active && wish.broken);
    for row in bed.twin.state().resources.values().filter(|row| !bed.twin.is_foreign(row.id)) {
        ours.entry(row.full_domain.clone()).or_default().push(row.nice_id.clone());
        // A host that waits for a Service keeps what it has. The name of a resource whose creation was interrupted is its mark.
        let waits = |wish: &Wish| wish.claims(&row.full_domain) && !wish.is_backed(&row.full_domain, &asked.services);
        let waits = row.name.starts_with("sp-sim-") && asked.wishes.iter().any(waits);
        if !kept && !waits && !row.nice_id.starts_with("sp-sim-") {
            wrong(format!("resource {} for {} has no mark: {}", row.id, row.full_domain, row.nice_id));
        }
    }
    for (host, marks) in &ours {
        if !kept && !asked.wishes.iter().any(|wish| wish.claims(host)) {
            wrong(format!("{host} is exposed although no Ingress asks for it: {marks:?}"));
        }
        if marks.len() > 1 {
            wrong(format!("{host} is exposed {} times: {marks:?}", marks.len()));
        }
    }
    let hosts: BTreeSet<&String> = asked.wishes.iter().flat_map(|wish| wish.hosts.keys()).collect();
    for host in hosts {
        let mut claimants: Vec<&Wish> = asked.wishes.iter().filter(|wish| wish.claims(host)).collect();
        claimants.sort_by_key(|wish| wish.created);
        let first = claimants.first().map_or(0, |wish| wish.created);
        claimants.retain(|wish| wish.created == first);
        let clear = claimants.iter().all(|wish| !wish.broken && wish.is_backed(host, &asked.services));
        if claimants.is_empty() || !clear || has_foreign(bed, host) {
            continue;
        }
        let there = served(bed, host, Count::Targets);
        let right = |wish: &&Wish| wish.answers(host) == there && is_protected(bed, host, wish.sso);
        if !claimants.iter().any(right) {
            let wanted: Vec<_> = claimants.iter().map(|wish| (&wish.name, wish.answers(host), wish.sso)).collect();
            wrong(format!("{host}: {there:?} answers, asked for: {wanted:?}"));
        }
    }
    if moment == Moment::Rest && !bed.world.strikes.lost_events() {
        reported(bed, &asked, &ours).await;
    }
}

/// An Ingress whose host a foreign resource has gets an event about it.
async fn reported(bed: &PangolinBed, asked: &Asked, ours: &BTreeMap<String, Vec<String>>) {
    let events: Api<Event> = Api::all(bed.client.clone());
    let listed = events.list(&ListParams::default()).await;
    let about = |event: Event| (event.regarding.and_then(|object| object.name), event.reason);
    let reported: BTreeSet<_> = listed.into_iter().flatten().map(about).collect();
    for wish in asked.wishes.iter().filter(|wish| wish.active && !wish.broken) {
        for host in wish.hosts.keys().filter(|host| has_foreign(bed, host) && !ours.contains_key(*host)) {
            let alone = asked.wishes.iter().filter(|other| other.hosts.contains_key(host)).count() == 1;
            let is_reported = reported.contains(&(Some(wish.name.clone()), Some("ForeignResource".to_owned())));
            if alone && wish.is_backed(host, &asked.services) && !is_reported {
                bed.world.violation(format!(
                    "Rest: Ingress {} has {host}, a foreign resource has it too, and no event reports it",
                    wish.name
                ));
            }
        }
    }
}
