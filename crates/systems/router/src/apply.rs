//! Writes what was planned, through the engine's writer: creates and corrections first, deletions after.

mod places;

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use signpost_engine::{Child, ChildDeleted, ChildError, ObjectId};

use crate::{
    RouterSystem,
    index::{RouterKey, reserved::End},
    metrics::Measured,
    plan::Plan,
};

pub(crate) use places::Places;

/// The results of a pass.
#[derive(Debug)]
pub(crate) struct ApplyResult {
    pub(crate) plan: Plan,
    /// Whether nothing was tried, because earlier writes of Istio Gateways do not end.
    pub(crate) postponed: bool,
    pub(crate) errors: Vec<ChildError>,
    /// How many objects are as planned.
    pub(crate) written: usize,
    /// What was deleted.
    pub(crate) deleted: Vec<ObjectId>,
    pub(crate) measured: Measured,
}

/// Deletions at the same time, per pass.
const DELETIONS: usize = 8;

impl ApplyResult {
    /// Nothing was tried. The hosts of the pass stay reserved, as those of a pass in progress.
    fn postponed(plan: Plan) -> Self {
        let (errors, deleted, measured) = (Vec::new(), Vec::new(), Measured::default());
        Self { plan, postponed: true, errors, written: 0, deleted, measured }
    }
}

/// Executes a plan.
pub(crate) async fn apply(system: &RouterSystem, mut plan: Plan) -> ApplyResult {
    let of_istio = matches!(plan.key, RouterKey::Gateway(_));
    let place = if of_istio && plan.has_writes() {
        let Some(place) = system.places.take().await else { return ApplyResult::postponed(plan) };
        Some(place)
    } else {
        None
    };
    let wanted = std::mem::take(&mut plan.apply);
    let compared = wanted.len();
    let ids: Vec<ObjectId> = wanted.iter().map(|(child, _)| child.id.clone()).collect();
    let applied = system.writer.apply_children(wanted).await;
    let failed: BTreeSet<ObjectId> =
        ids.into_iter().zip(&applied).filter(|(_, applied)| applied.is_err()).map(|(id, _)| id).collect();
    let mut errors: Vec<ChildError> = applied.into_iter().filter_map(Result::err).collect();
    let written = compared - errors.len();
    let mut removed = Vec::new();
    let is_foreign = |error: &ChildError| matches!(error, ChildError::NotOurs { .. });
    let mut children = std::mem::take(&mut plan.withdraw);
    // A replacement must be there first, whatever prevents it.
    let is_replaced = |child: &Child| plan.replaced_by.get(&child.id).is_none_or(|by| !failed.contains(by));
    children.extend(std::mem::take(&mut plan.delete).into_iter().filter(is_replaced));
    let delete = |child: Child| {
        let writer = system.writer.clone();
        async move { (writer.delete_child(&child).await, child.id) }
    };
    let deleted: Vec<_> = stream::iter(children).map(delete).buffered(DELETIONS).collect().await;
    for (deleted, id) in deleted {
        match deleted {
            Ok(ChildDeleted::Asked) => removed.push(id),
            Ok(ChildDeleted::Absent) => {}
            // One that became foreign is not ours to delete.
            Err(error) if is_foreign(&error) => {}
            Err(error) => errors.push(error),
        }
    }
    drop(place);
    if let RouterKey::Gateway(id) = &plan.key {
        system.index.gateway_written(id, End::of(&errors));
    }
    let measured = Measured { applied: compared, deleted: removed.len() };
    ApplyResult { plan, postponed: false, errors, written, deleted: removed, measured }
}
