//! Which object is used where there can be only one: the ClusterIdentity, the DNSConfiguration, the DNSPolicy of a namespace.
//!
//! ```text
//! the oldest, then the first by name ─► used        the others ─► SingletonViolation
//! the used one is deleted ─► nothing is used for ROUTER_WITHDRAW_AFTER, nothing is withdrawn ─► the next one is used
//! ```
//!
//! An object that is used keeps its place: of two that were created in the same second, the second may be the first by name. An object that was refused
//! stays refused while another one exists. Otherwise it would take over when the used one is replaced: deleted and created again, and then the younger of
//! the two. The status of an object shows what it was, so a restart changes nothing.
//!
//! The wait is not stored. A new process begins it again, because it cannot know when the used object was deleted: the others carry the same refusal
//! before and after. So a process that never lives as long as the wait never uses the next object. That is safe: nothing is withdrawn
//! meanwhile, and nothing is published by an object that was refused.
//!
//! An object that could never be read may have been used before. So it has the place of a new object: after the used one, before the refused ones.

use std::time::Duration;

use signpost_apis::router::{ClusterIdentity, DNSConfiguration, DNSPolicy};
use signpost_engine::{Kind, ObjectId};
use signpost_planning::Reason;
use tokio::time::Instant;

use crate::{
    index::{
        RouterKey,
        facts::{Id, Known},
        world::{ClusterState, Touches},
    },
    plan::singleton::{Place, Vacant},
    report::status::{ObjectStatus, READY},
};

/// A place whose object was deleted, while one that was refused exists.
#[derive(Debug)]
pub(crate) struct Vacancy {
    since: Instant,
    /// Whether the other one may be used.
    over: bool,
}

impl<S> Known<S> {
    /// Whether it was refused because another object is used.
    pub(crate) fn is_surplus(&self) -> bool {
        self.surplus.unwrap_or_else(|| self.seen.has_reason(Reason::SingletonViolation.as_str()))
    }
}

/// The claim of an object to its place. The first of these has it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It was judged, and not refused because of another one.
    Used,
    New,
    /// It was refused because of another one.
    Surplus,
}

pub(super) fn rank<S>(known: &Known<S>) -> Rank {
    match (known.is_surplus(), known.surplus) {
        (true, _) => Rank::Surplus,
        (false, Some(_)) => Rank::Used,
        (false, None) => {
            if known.seen.has_type(READY) {
                Rank::Used
            } else {
                Rank::New
            }
        }
    }
}

/// Whether an object of this status was refused because another one is used.
pub(super) fn is_surplus(status: &ObjectStatus) -> bool {
    status.refusal.as_ref().is_some_and(|refusal| refusal.reason == Reason::SingletonViolation)
}

/// The object that is used, or is the next one to be.
pub(crate) fn first<'a, S: 'a>(objects: impl Iterator<Item = &'a Known<S>>) -> Option<&'a Known<S>> {
    let order = |known: &Known<S>| (rank(known), known.identity.created);
    objects.min_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.identity.id.cmp(&b.identity.id)))
}

/// The key of a place. It is not the id of an object.
fn place_of(kind: &'static Kind, namespace: Option<&str>) -> ObjectId {
    ObjectId::of_kind(kind, namespace, "")
}

impl ClusterState {
    /// The used object of a place, or why no object is used.
    pub(crate) fn place<S>(&self, kind: &'static Kind, namespace: Option<&str>, first: Option<&Known<S>>) -> Place {
        let unreadable = self.unreadable_ahead(kind, namespace, first).map(|id| id.name.clone());
        let vacancy = self.vacant.get(&place_of(kind, namespace)).filter(|vacancy| !vacancy.over);
        let vacant = vacancy.map(|vacancy| Vacant {
            after: self.withdraw_after,
            left: self.withdraw_after.saturating_sub(vacancy.since.elapsed()).max(Duration::from_millis(1)),
        });
        let first = first.map(|first| (first.identity.id.clone(), first.identity.created));
        Place { first, unreadable, vacant }
    }

    /// Whether all objects of a place were refused, and none is there that cannot be read.
    pub(super) fn is_vacant<S>(&self, kind: &Kind, namespace: Option<&str>, first: Option<&Known<S>>) -> bool {
        first.is_some_and(Known::is_surplus) && self.unreadable_ahead(kind, namespace, first).is_none()
    }

    /// The objects of a place have changed: it may have become vacant, or have an object again.
    pub(super) fn note_vacancy(&mut self, kind: &'static Kind, namespace: Option<&str>, is_vacant: bool) {
        let (place, over) = (place_of(kind, namespace), self.withdraw_after.is_zero());
        if is_vacant {
            self.vacant.entry(place).or_insert_with(|| Vacancy { since: Instant::now(), over });
        } else {
            self.vacant.remove(&place);
        }
    }

    /// A pass uses an object, so its place is not vacant.
    pub(super) fn note_used(&mut self, id: &Id) {
        self.vacant.remove(&place_of(id.kind, id.namespace.as_deref()));
    }

    /// What waits for the end of a vacancy is decided, when its time is over.
    pub(crate) fn end_vacancies(&mut self, key: &RouterKey, touches: &mut Touches) {
        match key {
            RouterKey::Cluster => {
                let identity = self.ends(Kind::of::<ClusterIdentity>(), None);
                if self.ends(Kind::of::<DNSConfiguration>(), None) || identity {
                    self.choose_singletons(touches);
                }
            }
            RouterKey::Policies(namespace) => {
                if self.ends(Kind::of::<DNSPolicy>(), Some(namespace)) {
                    self.touch_routes_of(Some(namespace), touches);
                }
            }
            RouterKey::Gateway(_) | RouterKey::Target(_) | RouterKey::Route(_) => {}
        }
    }

    fn ends(&mut self, kind: &'static Kind, namespace: Option<&str>) -> bool {
        let after = self.withdraw_after;
        let vacancy = self.vacant.get_mut(&place_of(kind, namespace));
        let ended = vacancy.filter(|vacancy| !vacancy.over && vacancy.since.elapsed() >= after);
        ended.map(|vacancy| vacancy.over = true).is_some()
    }
}
