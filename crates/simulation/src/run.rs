//! Plays one history, lets everything come to rest, and checks.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    bed::{Bed, Moment},
    history::{History, ProcessEvent, What},
    replica::Replica,
    world::World,
};

/// After so long without faults, everything that is wanted is served.
const SERVED: Duration = Duration::from_mins(12);
/// After so much longer, everything is as it should be.
const REST: Duration = Duration::from_mins(10);
/// So long nothing is written then: longer than anything that is done from time to time.
const QUIET: Duration = Duration::from_mins(12);
/// One seed of so many is quiet for a whole hour.
const HOUR_OF: u64 = 5;

/// What came of a history.
#[derive(Clone, Debug)]
pub struct Played {
    /// Everything found wrong.
    pub violations: Vec<String>,
    /// A number that tells two runs apart.
    pub trace: u64,
    /// The trace, where it was kept.
    pub lines: Vec<String>,
}

/// Plays a history on a runtime of its own, whose clock is paused: nothing waits in real time.
pub fn play<B: Bed>(history: &History<B::Action>, keep: bool) -> Played {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return Played { violations: vec![format!("no runtime: {error}")], trace: 0, lines: Vec::new() };
        }
    };
    runtime.block_on(async {
        let world = World::new(history.seed, keep);
        simulate::<B>(&world, history).await;
        Played { violations: world.violations(), trace: world.trace_hash(), lines: world.trace_lines() }
    })
}

async fn simulate<B: Bed>(world: &Arc<World>, history: &History<B::Action>) {
    let bed = B::open(world.clone(), history).await;
    let lease = history.replicas > 1;
    let replicas: Vec<_> = (0..history.replicas).map(|number| Replica::start(&bed, world, number, lease)).collect();
    let began = world.elapsed();
    let until = |at: u64| (began + Duration::from_millis(at)).saturating_sub(world.elapsed());
    for event in &history.events {
        let wait = until(event.at);
        if !wait.is_zero() {
            sleep(wait).await;
        }
        match &event.what {
            What::User(action) => bed.act(action).await,
            What::Spell(spell) => {
                world.note(&format!("{spell:?}"));
                world.disturb(Instant::now() + Duration::from_millis(spell.effect()));
                world.weather.begin(spell.clone());
            }
            What::Process(event) => {
                let (ProcessEvent::Crash { replica, .. }
                | ProcessEvent::Restart { replica, .. }
                | ProcessEvent::Freeze { replica, .. }) = event;
                if let Some(replica) = replicas.get(*replica) {
                    world.note(&format!("{event:?}"));
                    world.disturb(Instant::now() + Duration::from_millis(event.effect()));
                    replica.meet(*event);
                }
            }
            What::Compact => world.sandbox.compact(),
        }
    }
    sleep((began + history.length()).saturating_sub(world.elapsed())).await;
    world.note("faults end");
    sleep(SERVED).await;
    bed.check(Moment::Served).await;
    sleep(REST).await;
    bed.check(Moment::Rest).await;
    let (before, _) = world.writes();
    let quiet = if history.seed.is_multiple_of(HOUR_OF) { Duration::from_hours(1) } else { QUIET };
    sleep(quiet).await;
    let (after, last) = world.writes();
    if after != before && !bed.is_restless() {
        world.violation(format!(
            "{} writes in {} minutes of quiet; the last: {last}",
            after - before,
            quiet.as_secs() / 60
        ));
    }
}
