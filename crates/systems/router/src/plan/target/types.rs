//! A change of record type, from addresses to a host name or the reverse. A name server refuses both at one name, and external-dns creates before
//! it deletes.
//!
//! ```text
//! records ─► empty DNSEndpoint ─► external-dns has read it ─► ROUTER_TYPE_CHANGE_AFTER ─► records of the other type
//! ```
//!
//! That external-dns has read a DNSEndpoint is all that Kubernetes shows: whether its records are deleted is not. Hence the pause. A DNSEndpoint
//! that was written counts as published, whether external-dns has reported that or not: its report may be on the way. Without a report, the pause
//! begins when the DNSEndpoint is empty. Where this operator publishes the DNSEndpoint itself (`powerdns`), both types change places in one
//! write, so there is nothing to wait for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    index::facts::Class,
    plan::{
        left, names,
        target::{ChildView, View},
    },
};

/// What an external-dns has, or had, of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// The class of its records; `Empty` when that is not known.
    pub(crate) class: Class,
    /// Since when it knows that they are withdrawn; `None` while they are not.
    pub(crate) withdrawn: Option<Timestamp>,
    /// Whether it has reported that it read them.
    pub(crate) read: bool,
}

/// What records of another type wait for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// That external-dns reads that the others are withdrawn.
    Reading,
    /// The rest of the pause after that.
    Pause(Duration),
}

impl Trace {
    /// What records of the class wait for, if for anything.
    pub(super) fn waits(self, class: Class, now: Timestamp, pause: Duration) -> Option<Wait> {
        match self.withdrawn {
            _ if self.class == class => None,
            None => Some(Wait::Reading),
            Some(since) => left(since, now, pause).map(Wait::Pause),
        }
    }
}

/// The class of records that an external-dns has, or had: what a later process has to know.
pub(super) fn class_of(traces: &BTreeMap<Arc<str>, Trace>) -> Option<Class> {
    let known = traces.values().filter(|trace| trace.class != Class::Empty && trace.read);
    known.max_by_key(|trace| trace.withdrawn.is_some()).map(|trace| trace.class)
}

/// What each external-dns has, or had, of the name: from its DNSEndpoints, and from what is remembered of those that are deleted. Where there is
/// a choice, records of another class than the wanted one count.
pub(super) fn traces(view: &View, wanted: Option<Class>, now: Timestamp) -> BTreeMap<Arc<str>, Trace> {
    let pause = view.base.settings.type_change_after;
    let children = || view.children.iter().chain(&view.rivals);
    let seen = children().map(|child| &child.controller);
    // What an earlier process knew. Its records may have been deleted by others a moment ago, with the load balancer.
    let before = view.reported.filter(|_| !view.memory.restored);
    let configured = view.base.configuration().into_iter().flat_map(|spec| &spec.external_dns_controllers);
    let configured: Vec<Arc<str>> = configured.map(|dns| names::label_value(&dns.name).into()).collect();
    let restored = configured.iter().filter(|_| before.is_some());
    let publishers: BTreeSet<&Arc<str>> = seen.chain(view.memory.traces.keys()).chain(restored).collect();
    let mut traces = BTreeMap::new();
    for publisher in publishers {
        let of = || children().filter(|child| child.controller == *publisher && !child.ours);
        let live = of().filter(|child| child.class != Class::Empty).max_by_key(|child| Some(child.class) != wanted);
        let unread = |child: &ChildView| child.class == Class::Empty && child.read && !child.observed;
        let remembered = view.memory.traces.get(publisher).filter(|_| !is_ours(view, publisher));
        let read = of().any(|child| child.read) || remembered.is_some_and(|before| before.read);
        let trace = match (live, remembered) {
            (Some(child), _) => Trace { class: child.class, withdrawn: None, read },
            (None, before) if of().any(unread) => {
                Trace { class: before.map_or(Class::Empty, |before| before.class), withdrawn: None, read }
            }
            (None, Some(before)) => Trace { withdrawn: before.withdrawn.or(Some(now)), read, ..*before },
            // This process does not know since when.
            (None, None) if of().next().is_some() => Trace { class: Class::Empty, withdrawn: Some(now), read },
            (None, None) => match before {
                Some(class) => Trace { class, withdrawn: Some(now), read: true },
                None => continue,
            },
        };
        let over = trace.withdrawn.is_some_and(|since| left(since, now, pause).is_none());
        if !over || of().next().is_some() {
            traces.insert(publisher.clone(), trace);
        }
    }
    traces
}

/// Whether this operator publishes what the controller has of the name.
fn is_ours(view: &View, publisher: &Arc<str>) -> bool {
    view.children.iter().chain(&view.rivals).any(|child| child.controller == *publisher && child.ours)
}
