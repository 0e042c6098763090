//! Plays one history, lets everything come to rest, and checks.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    bed::{Bed, Moment},
    history::{History, Only, ProcessEvent, What},
    replica::Replica,
    world::World,
};

/// After so long without faults, everything that is wanted is served.
const SERVED: Duration = Duration::from_mins(12);
/// After so much longer, everything is as it should be.
const REST: Duration = Duration::from_mins(10);
/// So long nothing is written then: longer than anything that is done from time to time.
const QUIET: Duration = Duration::from_mins(12);
/// How often names that are not served are looked for.
const LOOK: Duration = Duration::from_secs(10);
/// One seed of so many is quiet for a whole hour.
const HOUR_OF: u64 = 5;

/// The result of a history.
#[derive(Clone, Debug)]
pub struct Played {
    /// Everything found wrong.
    pub violations: Vec<String>,
    /// A digest of the run.
    pub trace: u64,
    /// The trace, where it was kept.
    pub lines: Vec<String>,
}

/// Plays a history on a runtime of its own, whose clock is paused: nothing waits in real time.
pub fn play<B: Bed>(history: &History<B::Action>, keep: bool) -> Played {
    let failed = |why: String| Played { violations: vec![why], trace: 0, lines: Vec::new() };
    let prepared = match B::prepared() {
        Ok(prepared) => prepared,
        Err(error) => return failed(format!("the cluster cannot be prepared: {error}")),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        let world = World::new(prepared, history.seed, keep);
        simulate::<B>(&world, history).await;
        Played { violations: world.violations(), trace: world.trace_hash(), lines: world.trace_lines() }
    })
}

/// Looks at what is served, all the time.
async fn keep_looking<B: Bed>(bed: Arc<B>, world: Arc<World>) {
    let mut clear = None;
    loop {
        sleep(LOOK).await;
        let version = world.version();
        if clear != Some(version) {
            clear = bed.look().await.then_some(version);
        }
    }
}

async fn simulate<B: Bed>(world: &Arc<World>, history: &History<B::Action>) {
    let bed = B::open(world.clone(), history).await;
    let lease = history.replicas > 1;
    let replicas: Vec<_> = (0..history.replicas).map(|number| Replica::start(&bed, world, number, lease)).collect();
    let looking = tokio::spawn(keep_looking(bed.clone(), world.clone())).abort_handle();
    let began = world.elapsed();
    let until = |at: u64| (began + Duration::from_millis(at)).saturating_sub(world.elapsed());
    for event in &history.events {
        let wait = until(event.at);
        if !wait.is_zero() {
            sleep(wait).await;
        }
        match &event.what {
            What::User(action) => {
                world.acts();
                bed.act(action).await;
            }
            What::Spell(spell) => {
                world.note(&format!("{spell:?}"));
                let until = Instant::now() + Duration::from_millis(spell.effect());
                world.disturb(until);
                if spell.on == Only::Watch {
                    world.strikes.strike_all(until);
                }
                world.weather.begin(spell.clone());
            }
            What::Process(event) => {
                if let Some(replica) = replicas.get(event.replica()) {
                    world.note(&format!("{event:?}"));
                    let until = Instant::now() + Duration::from_millis(event.effect());
                    world.disturb(until);
                    world.strikes.strike_all(until);
                    // Of two replicas, either may report. A process that is frozen gives up what it sends.
                    if lease || matches!(event, ProcessEvent::Freeze { .. }) {
                        world.strikes.lose_events();
                    }
                    replica.meet(*event);
                }
            }
            What::Compact => {
                world.strikes.strike_all(Instant::now());
                world.sandbox.compact();
            }
        }
    }
    sleep((began + history.length()).saturating_sub(world.elapsed())).await;
    tokio::time::sleep_until(world.calm_since()).await;
    world.note("faults end");
    sleep(SERVED).await;
    looking.abort();
    bed.check(Moment::Served).await;
    sleep(REST).await;
    bed.check(Moment::Rest).await;
    let (before, _) = world.writes();
    let quiet = if history.seed.is_multiple_of(HOUR_OF) { Duration::from_hours(1) } else { QUIET };
    sleep(quiet).await;
    let (after, last) = world.writes();
    if after != before {
        world.violation(format!(
            "{} writes in {} minutes of quiet; the last: {last}",
            after - before,
            quiet.as_secs() / 60
        ));
    }
}
