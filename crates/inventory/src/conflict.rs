//! Conflicts: one name and type that two objects want with different targets.
//!
//! They are computed from a snapshot, where the claims on a name are neighbours. So a conflict ends with its cause, and a restart leads to the same
//! list: the order of the claims and the beginning of a conflict come from [`crate::Entry::first_seen`].

use std::collections::BTreeSet;
use std::sync::Arc;

use signpost_dns::{Fqdn, Rdata, RecordType};

use crate::result::{Stage, SyncStatus};
use crate::view::{At, View};

/// A name that two objects want with different targets.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The claims: the oldest first, then by owner.
    pub claims: Vec<Arc<View>>,
    /// When the object of the second claim was created. The conflict may be younger, where an object was edited later: a restart does not know when.
    pub since: At,
    /// The claim that is served, or else the one that was published, if one is.
    pub served: Option<Arc<View>>,
}

impl Conflict {
    /// The name in question.
    pub fn name(&self) -> Option<&Fqdn> {
        self.claims.first().map(|claim| claim.name())
    }

    /// Its type.
    pub fn rtype(&self) -> Option<RecordType> {
        self.claims.first().and_then(|claim| claim.rtype())
    }
}

/// The conflicts among views, which are in order.
pub(crate) fn conflicts<'a>(views: impl Iterator<Item = &'a Arc<View>>) -> impl Iterator<Item = Conflict> {
    let mut claims = views.filter(|view| view.claims() && !view.targets().is_empty()).peekable();
    std::iter::from_fn(move || {
        loop {
            let first = claims.next()?;
            let more = |view: &&Arc<View>| (view.name(), view.rtype()) == (first.name(), first.rtype());
            if claims.peek().is_none_or(|next| !more(next)) {
                continue;
            }
            let mut same_name = vec![first.clone()];
            while let Some(view) = claims.next_if(more) {
                same_name.push(view.clone());
            }
            if let Some(conflict) = judge(same_name) {
                return Some(conflict);
            }
        }
    })
}

/// The conflict among claims on one name and type, if there is one.
fn judge(mut claims: Vec<Arc<View>>) -> Option<Conflict> {
    claims.sort_by(|a, b| {
        (a.first_seen(), a.place(), &a.provenance().origin).cmp(&(b.first_seen(), b.place(), &b.provenance().origin))
    });
    let since = claims.get(second(&claims)?)?.first_seen();
    let first = |wanted: &dyn Fn(&&Arc<View>) -> bool| claims.iter().find(wanted).cloned();
    let served = first(&|claim| claim.status() == SyncStatus::Sync)
        .or_else(|| first(&|claim| claim.stage() == Stage::Published));
    Some(Conflict { claims, since, served })
}

/// The first claim that differs from an earlier one in both its object and its targets. Up to there, all earlier claims have one object, or all
/// have the same targets.
fn second(claims: &[Arc<View>]) -> Option<usize> {
    let oldest = claims.first()?;
    let (mut one_object, mut one_set) = (true, true);
    for (number, claim) in claims.iter().enumerate().skip(1) {
        let same_object = claim.provenance().origin == oldest.provenance().origin;
        let same_set = claim.targets().same_set(oldest.targets()) || same_text(claim, oldest);
        if !(one_object && same_object || one_set && same_set) {
            return Some(number);
        }
        one_object &= same_object;
        one_set &= same_set;
    }
    None
}

/// Whether two claims are the same text in other chunks: every reader joins them.
fn same_text(one: &View, other: &View) -> bool {
    let joined = |view: &View| -> Option<BTreeSet<Vec<u8>>> {
        let parsed = view.targets().iter().map(|target| match Rdata::parse(&RecordType::Txt, target) {
            Ok(Rdata::Txt(text)) => Some(text.joined()),
            Ok(_) | Err(_) => None,
        });
        parsed.collect()
    };
    one.rtype() == Some(RecordType::Txt) && joined(one).is_some_and(|texts| joined(other).as_ref() == Some(&texts))
}
