//! Whether the operator gives back what it kept about objects that are deleted.
//!
//! ```text
//!  create 80 objects ─► rest ─► delete them ─► rest
//!  create 40 objects ─► rest ─► delete them ─► rest ─► … with other names ─► memory with the operator
//!                                                                   end it ─► memory without the operator
//! ```
//! The difference of the two is the operator's own memory: the cluster and the provider of the simulation remember every round.
//!
//! A hash table keeps its size. Entries that were removed take room in it until it is tidied: in place when it is less than half full, else
//! it doubles. When that happens depends on the hashes, which differ from process to process. After 80 objects every table has
//! twice the room that 40 objects need, so it never doubles in the rounds.

use std::time::Duration;

use tokio::time::sleep;

use crate::{bed::Bed, history::History, replica::Replica, world::World};

/// Time in which everything is served, or deleted.
const DONE: Duration = Duration::from_mins(10);
/// Time after which nothing is remembered for its age.
const OLD: Duration = Duration::from_hours(3);

/// Rounds whose objects exist at the same time, before the others.
const FIRST: usize = 2;

/// The memory in bytes that the operator uses after so many rounds of objects that all are deleted.
pub fn after<B: Bed>(rounds: usize, measure: fn() -> usize) -> Result<usize, String> {
    let prepared = B::prepared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let world = World::new(prepared, 0, false);
        let bed = B::open(world.clone(), &History { seed: 0, replicas: 1, events: Vec::new() }).await;
        let replica = Replica::start(&bed, &world, 0, false);
        let alone = (FIRST..FIRST + rounds).map(|round| round..round + 1);
        for together in std::iter::once(0..FIRST).chain(alone) {
            for delete in [false, true] {
                for round in together.clone() {
                    bed.churn(round, delete).await;
                }
                sleep(DONE).await;
            }
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
