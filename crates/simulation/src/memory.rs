//! Whether the operator gives back what it kept about objects that are deleted.
//!
//! ```text
//!  create 40 objects ─► rest ─► delete them ─► rest ─► … with other names ─► memory with the operator
//!                                                                   end it ─► memory without the operator
//! ```
//! The difference of the two is the operator's own memory: the cluster and the provider of the simulation remember every round.

use std::time::Duration;

use tokio::time::sleep;

use crate::{bed::Bed, history::History, replica::Replica, world::World};

/// Time in which everything is served, or deleted.
const DONE: Duration = Duration::from_mins(10);
/// Time after which nothing is remembered for its age.
const OLD: Duration = Duration::from_hours(3);

/// The memory in bytes that the operator uses after so many rounds of objects that all are deleted.
pub fn after<B: Bed>(rounds: usize, measure: fn() -> usize) -> Result<usize, String> {
    let prepared = B::prepared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let world = World::new(prepared, 0, false);
        let bed = B::open(world.clone(), &History { seed: 0, replicas: 1, events: Vec::new() }).await;
        let replica = Replica::start(&bed, &world, 0, false);
        for round in 0..rounds {
            bed.churn(round, false).await;
            sleep(DONE).await;
            bed.churn(round, true).await;
            sleep(DONE).await;
        }
        world.sandbox.compact();
        sleep(OLD).await;
        let with = measure();
        replica.end();
        // Its spawned tasks end with it.
        sleep(OLD).await;
        let without = measure();
        match world.violations().as_slice() {
            [] => Ok(with.saturating_sub(without)),
            found => Err(found.join("\n")),
        }
    })
}
