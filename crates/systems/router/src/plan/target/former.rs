//! Former names of gateways. A name changes with `cluster`, `region` or `domain` of the ClusterIdentity, and routes point at the new one after
//! their own passes. Until then their aliases need the former name.
//!
//! ```text
//! new name ─► both names ─► no DNSEndpoint of a route points at the former one ─► ROUTER_WITHDRAW_AFTER ─► the new name
//! ```
//!
//! The pause is for resolvers that have the alias of a route in their cache. It is not stored: a new process keeps only the names that are pointed at.

use std::time::Duration;

use jiff::Timestamp;
use signpost_dns::Fqdn;

use crate::plan::{Memory, left, target::View};

/// The former names that are published beside the name.
#[derive(Debug, Default)]
pub(super) struct Kept<'a> {
    /// All of them, in order.
    pub(super) names: Vec<&'a Fqdn>,
    /// Those that a DNSEndpoint of a route points at.
    pub(super) pointed_at: Vec<&'a Fqdn>,
    /// When the next one is withdrawn.
    pub(super) again: Option<Duration>,
}

/// The former names that are kept beside this one, and what is remembered of them.
pub(super) fn keep<'a>(view: &'a View, host: Option<&Fqdn>, now: Timestamp, memory: &mut Memory) -> Kept<'a> {
    let before = &view.memory.former;
    let mut kept = Kept::default();
    // Without a name nothing is written.
    let Some(host) = host else {
        memory.former.clone_from(before);
        return kept;
    };
    for (name, is_pointed_at) in &view.former {
        if *is_pointed_at {
            kept.pointed_at.push(name);
            memory.former.insert(name.clone(), None);
        } else {
            // A name that this process has not published may be an edit of others.
            let Some(since) = before.get(name).map(|since| since.unwrap_or(now)) else { continue };
            let Some(time) = left(since, now, view.base.settings.withdraw_after) else { continue };
            kept.again = Some(kept.again.map_or(time, |again| again.min(time)));
            memory.former.insert(name.clone(), Some(since));
        }
        kept.names.push(name);
    }
    if before.contains_key(host) {
        memory.former.insert(host.clone(), None);
    }
    kept
}
