//! Writes what was planned, through the engine's writer: creates and corrections first, deletions after.

use futures::{StreamExt, stream};
use signpost_engine::{Child, ChildDeleted, ChildError, ObjectId};

use crate::{RouterSystem, metrics::Measured, plan::Plan};

/// The results of a pass.
#[derive(Debug)]
pub(crate) struct ApplyResult {
    pub(crate) plan: Plan,
    pub(crate) errors: Vec<ChildError>,
    /// What was deleted.
    pub(crate) deleted: Vec<ObjectId>,
    pub(crate) measured: Measured,
}

/// Deletions at the same time, per pass.
const DELETIONS: usize = 8;

/// Executes a plan.
pub(crate) async fn apply(system: &RouterSystem, mut plan: Plan) -> ApplyResult {
    let measured = crate::report::measured(&plan);
    let applied = system.writer.apply_children(std::mem::take(&mut plan.apply)).await;
    let mut errors: Vec<ChildError> = applied.into_iter().filter_map(Result::err).collect();
    let mut gone = Vec::new();
    let may_delete = |error: &ChildError| matches!(error, ChildError::NotOurs { .. });
    // A replacement must be there first. A foreign name is not a reason to keep a stale object.
    if errors.iter().all(may_delete) {
        let delete = |child: Child| {
            let writer = system.writer.clone();
            async move { (writer.delete_child(&child).await, child.id) }
        };
        let children = std::mem::take(&mut plan.delete);
        let deleted: Vec<_> = stream::iter(children).map(delete).buffered(DELETIONS).collect().await;
        for (deleted, id) in deleted {
            match deleted {
                Ok(ChildDeleted::Asked) => gone.push(id),
                Ok(ChildDeleted::Absent) => {}
                // One that became foreign is not ours to delete.
                Err(error) if may_delete(&error) => {}
                Err(error) => errors.push(error),
            }
        }
    }
    ApplyResult { plan, errors, deleted: gone, measured }
}
