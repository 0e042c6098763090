//! The network between a process of the operator and its provider: every request has a fate.
//!
//! ```text
//!  client of the operator ─► fate ─► (a task of its own: what is on the wire arrives, whoever still waits) ─► twin
//!              ▲                                                                                                │
//!              └──────────────────── answer, late, or never ◄───────────────────────────────────────────────────┘
//! ```

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use crate::{
    history::Side,
    process::Process,
    weather::{Class, Effect},
    world::World,
};

/// The way of one process to a twin.
pub struct Wire<T> {
    /// The provider.
    pub twin: Arc<T>,
    process: Process,
    world: Arc<World>,
}

impl<T> std::fmt::Debug for Wire<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

/// A request.
pub struct Call<A, E> {
    /// Its class.
    pub class: Class,
    /// Its name, which decides its fate.
    pub name: String,
    /// When the caller gives up; without one, the client itself does.
    pub deadline: Option<Duration>,
    /// The error of a connection that breaks.
    pub cut: fn() -> E,
    /// The error of a caller that gives up.
    pub late: fn() -> E,
    /// The answer in the trace.
    pub shown: fn(&Result<A, E>) -> String,
}

impl<T: Send + Sync + 'static> Wire<T> {
    /// The way of a process.
    pub fn new(world: &Arc<World>, twin: &Arc<T>, process: &Process) -> Self {
        Self { twin: twin.clone(), process: process.clone(), world: world.clone() }
    }

    /// A request: it arrives, or not, whoever still waits for its answer. `serve` answers what arrives, or refuses it; it is given the time
    /// at which the request was sent.
    pub async fn call<A: Send + 'static, E: Send + 'static>(
        &self,
        call: Call<A, E>,
        serve: impl FnOnce(&T, Effect, Instant) -> Result<A, E> + Send + 'static,
    ) -> Result<A, E> {
        let Call { class, name, deadline, cut, late, shown } = call;
        self.process.runs().await;
        let sent = Instant::now();
        let fate = self.world.fate(Side::Provider, class, &name);
        let (twin, world, sender) = (self.twin.clone(), self.world.clone(), self.process.clone());
        let (answer, wait) = oneshot::channel();
        tokio::spawn(async move {
            sleep(fate.before).await;
            let answered = if fate.effect == Effect::CutBefore { Err(cut()) } else { serve(&twin, fate.effect, sent) };
            world.note(&format!("{} {name} {} {:?}", sender.name(), shown(&answered), fate.effect));
            sleep(fate.after).await;
            drop(answer.send(if fate.effect == Effect::CutAfter { Err(cut()) } else { answered }));
        });
        let waited = match deadline {
            Some(deadline) => timeout(deadline, wait).await,
            None => Ok(wait.await),
        };
        let answered = match waited {
            Ok(answered) => answered.unwrap_or_else(|_| Err(cut())),
            Err(_) => Err(late()),
        };
        self.process.runs().await;
        answered
    }
}
