//! The interface of a simulated system: its actions, its provider's twin, and checks that use none of its code.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use signpost_engine::Operator;
use signpost_sandbox::Sandbox;

use crate::{
    history::History,
    process::Process,
    world::{self, World},
};

/// When the state is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Faults ended a while ago: what is wanted is served.
    Served,
    /// Nothing has happened for long: everything is as it should be.
    Rest,
}

/// One system under simulation.
pub trait Bed: Send + Sync + Sized + 'static {
    /// The system's name, as `SYSTEM=` selects it.
    const NAME: &'static str;
    /// The actions of its users.
    type Action: Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The history of a seed.
    fn draw(seed: u64) -> History<Self::Action>;
    /// Creates what every simulation starts from: the system's kinds and namespaces, and no other objects.
    fn prepare(client: kube::Client) -> impl Future<Output = Result<(), kube::Error>>;
    /// The cluster that every simulation starts from. It is made once and never dropped: installing the kinds takes longer than a whole
    /// simulation.
    fn prepared() -> Result<&'static Sandbox, String> {
        static PREPARED: Mutex<BTreeMap<&str, &Sandbox>> = Mutex::new(BTreeMap::new());
        let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sandbox) = prepared.get(Self::NAME).copied() {
            return Ok(sandbox);
        }
        let sandbox: &Sandbox = Box::leak(Box::new(world::prepare(Self::prepare)?));
        prepared.insert(Self::NAME, sandbox);
        Ok(sandbox)
    }
    /// The bed of a new world, with an empty provider. The history may have the capabilities of the provider.
    fn open(world: Arc<World>, history: &History<Self::Action>) -> impl Future<Output = Arc<Self>>;
    /// A user acts.
    fn act(self: &Arc<Self>, action: &Self::Action) -> impl Future<Output = ()>;
    /// A user creates objects whose names no other round has, or deletes those of the round.
    fn churn(self: &Arc<Self>, round: usize, delete: bool) -> impl Future<Output = ()>;
    /// Adds the system to an operator of a process. The returned value lives as long as the operator runs.
    fn install(self: &Arc<Self>, operator: &mut Operator, process: &Process, pace: usize) -> Box<dyn Any + Send>;
    /// Looks for names that have been asked for and unserved for longer than the faults of their own requests explain. True when every name
    /// is served, so that the next look finds the same until something changes.
    fn look(self: &Arc<Self>) -> impl Future<Output = bool> + Send;
    /// Compares what is with what should be, and reports each difference as a violation.
    fn check(self: &Arc<Self>, moment: Moment) -> impl Future<Output = ()>;
}
