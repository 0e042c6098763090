//! A history: what users, the network and the processes do, each at its time. It is plain data, drawn from a seed, printed as YAML, read
//! back from a scenario file, and shrunk by leaving events out.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::dice::Dice;

/// The longest time, in milliseconds, that a request to a provider takes until it has its effect. An operator that keeps what it is not
/// sure of for a shorter time leaves it behind.
pub const LATEST: u64 = 45_000;

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event<A> {
    /// When, in milliseconds since the start.
    pub at: u64,
    /// The event.
    #[serde(rename = "do")]
    pub what: What<A>,
}

/// An event of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What<A> {
    /// A user acts, in the cluster or at the provider.
    User(A),
    /// Requests meet a fault for a while.
    Spell(Spell),
    /// Something happens to a process of the operator.
    Process(ProcessEvent),
    /// The API server forgets all past changes: a watch from before has to list again.
    Compact,
}

/// A fault that a share of the requests meets for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spell {
    /// Whose requests.
    pub side: Side,
    /// Which of them.
    pub on: Only,
    /// Their fault.
    pub fault: Fault,
    /// How many of them, in percent.
    pub share: u64,
    /// For how many milliseconds.
    #[serde(rename = "for")]
    pub lasts: u64,
}

impl Spell {
    /// Milliseconds until a request that meets it at its very end has had its effect and its answer.
    pub fn effect(&self) -> u64 {
        let late = match self.fault {
            Fault::Slow { before, after } => before + after,
            Fault::Mixed => 60_000,
            _ => 0,
        };
        self.lasts + late
    }
}

impl ProcessEvent {
    /// Which replica it happens to.
    pub fn replica(&self) -> usize {
        match self {
            Self::Crash { replica, .. } | Self::Restart { replica, .. } | Self::Freeze { replica, .. } => *replica,
        }
    }

    /// Milliseconds until the process runs again.
    pub fn effect(&self) -> u64 {
        match self {
            Self::Crash { down, .. } => *down,
            // The time that it has to stop in, too.
            Self::Restart { down, .. } => down + 30_000,
            Self::Freeze { lasts, .. } => *lasts,
        }
    }
}

/// The two servers that the operator talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Side {
    /// The Kubernetes API.
    Api,
    /// The name server.
    Provider,
}

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Only {
    /// Every request; of watches, their start.
    Any,
    /// Requests that change nothing.
    Reads,
    /// Requests that change something.
    Writes,
    /// API: writes of a status.
    Status,
    /// API: writes of metadata.
    Metadata,
    /// API: the lease.
    Lease,
    /// API: the events of watches that are open.
    Watch,
    /// API: lists.
    List,
    /// Provider: writes of records.
    Records,
    /// Provider: creation, change and deletion of what holds records.
    Zones,
}

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// It takes effect late and is answered later still. Either may be after the caller has given up.
    Slow {
        /// Milliseconds until it takes effect.
        before: u64,
        /// Milliseconds from there until it is answered.
        after: u64,
    },
    /// It is refused with a status code.
    Refused(u16),
    /// The connection breaks before it takes effect.
    CutBefore,
    /// It takes effect, and the connection breaks before the answer.
    CutAfter,
    /// Each request meets another one of the above.
    Mixed,
    /// Watches: no event is delivered until the spell ends.
    Stall,
    /// Watches: each event is delivered twice.
    Twice,
    /// Watches: the connection breaks at the next event.
    Break,
    /// Watches: the next event is a 410, so that the kind is listed again.
    Expire,
}

/// The fault of a process of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessEvent {
    /// The process dies and is started again.
    Crash {
        /// Which replica.
        replica: usize,
        /// Milliseconds until it is started again.
        down: u64,
    },
    /// The process is asked to stop and started again, with another pace.
    Restart {
        /// Which replica.
        replica: usize,
        /// Milliseconds until it is started again.
        down: u64,
        /// Which of the system's paces it has from then on.
        pace: usize,
    },
    /// Nothing leaves or reaches the process until it wakes.
    Freeze {
        /// Which replica.
        replica: usize,
        /// Milliseconds until it wakes.
        lasts: u64,
    },
}

/// A whole history of one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History<A> {
    /// The seed of jitter, latencies and single faults.
    pub seed: u64,
    /// How many replicas run; with none, nothing is served.
    pub replicas: usize,
    /// The events, in order.
    pub events: Vec<Event<A>>,
}

impl<A: Serialize + DeserializeOwned> History<A> {
    /// The history as a scenario file.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).unwrap_or_else(|error| format!("# not printable: {error}"))
    }

    /// Reads a scenario file.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }
}

impl<A> History<A> {
    /// The same after this action.
    #[must_use]
    pub fn after(mut self, action: A) -> Self {
        self.events.insert(0, Event { at: 0, what: What::User(action) });
        self
    }

    /// The same, followed by events whose times are counted from its end.
    #[must_use]
    pub fn then(mut self, events: Vec<Event<A>>) -> Self {
        let end = u64::try_from(self.length().as_millis()).unwrap_or(u64::MAX);
        self.events.extend(events.into_iter().map(|event| Event { at: end.saturating_add(event.at), ..event }));
        self
    }

    /// The first action that is one of these.
    pub fn find<T>(&self, is_one: impl Fn(&A) -> Option<T>) -> Option<T> {
        self.events.iter().find_map(|event| match &event.what {
            What::User(action) => is_one(action),
            _ => None,
        })
    }

    /// When the last event is over.
    pub fn length(&self) -> Duration {
        let end = |event: &Event<A>| {
            event.at
                + match &event.what {
                    What::Spell(spell) => spell.effect(),
                    What::Process(event) => event.effect(),
                    What::User(_) | What::Compact => 0,
                }
        };
        Duration::from_millis(self.events.iter().map(end).max().unwrap_or(0))
    }
}

/// How likely the gap between two events is, and from how many to how many milliseconds it lasts.
type Gaps = [(usize, u64, u64); 7];

/// Events that are far apart as well as close together.
const WIDE: Gaps = [
    (4, 0, 0),
    (5, 1, 30),
    (5, 50, 400),
    (4, 500, 3_000),
    (3, 4_000, 20_000),
    (2, 40_000, 130_000),
    (1, 300_000, 700_000),
];
/// Events that all fall into the same faults.
const DENSE: Gaps =
    [(3, 0, 0), (4, 1, 30), (6, 50, 400), (6, 500, 3_000), (3, 4_000, 12_000), (1, 15_000, 30_000), (0, 0, 0)];

/// Draws a history: `user` draws what a user does at one moment, and learns whether it is the first.
pub fn draw<A>(seed: u64, dice: &mut Dice, user: impl Fn(&mut Dice, bool) -> Vec<A>) -> History<A> {
    let replicas = if dice.chance(25) { 2 } else { 1 };
    let count = dice.between(5, 22);
    let dense = dice.chance(50);
    let gaps = if dense { DENSE } else { WIDE };
    // Some histories are calm, some are full of faults.
    let spells = dice.pick(&[0, 10, 25, 35, 45]);
    let processes = dice.pick(&[0, 4, 12]);
    let (mut at, mut events, mut first) = (0, Vec::new(), true);
    if dense {
        for _ in 0..dice.between(1, 3) {
            events.push(Event { at: dice.between(0, 4_000), what: What::Spell(lasting_spell(dice)) });
        }
    }
    for _ in 0..count {
        let (_, low, high) = gaps[dice.weighted(&gaps.map(|(weight, ..)| weight))];
        at += dice.between(low, high);
        let kind = dice.below(100);
        let mut push = |what| events.push(Event { at, what });
        if kind < spells {
            push(What::Spell(if dense && dice.chance(50) { lasting_spell(dice) } else { draw_spell(dice) }));
        } else if kind < spells + processes {
            push(What::Process(draw_process(dice, replicas)));
        } else if kind == 99 {
            push(What::Compact);
        } else {
            for action in user(dice, std::mem::replace(&mut first, false)) {
                push(What::User(action));
            }
        }
    }
    events.sort_by_key(|event| event.at);
    History { seed, replicas, events }
}

/// A fault that lasts, so that others overlap with it: late statuses, a server that hangs, writes whose end is not known.
fn lasting_spell(dice: &mut Dice) -> Spell {
    let lasts = dice.between(2_000, 60_000);
    let late = |dice: &mut Dice| Fault::Slow { before: dice.between(30, 6_000), after: 0 };
    let hang = |dice: &mut Dice| Fault::Slow { before: dice.between(9_000, LATEST), after: 0 };
    let (side, on, fault) = match dice.below(10) {
        0 | 1 => (Side::Api, Only::Status, late(dice)),
        2 => (Side::Api, Only::Metadata, late(dice)),
        3 => (Side::Provider, Only::Reads, hang(dice)),
        4 => (Side::Provider, Only::Any, hang(dice)),
        5 => (Side::Provider, Only::Records, hang(dice)),
        6 => (Side::Provider, Only::Writes, dice.pick(&[Fault::CutAfter, Fault::CutBefore, Fault::Refused(500)])),
        7 => (Side::Provider, Only::Zones, dice.pick(&[Fault::CutAfter, Fault::Refused(500), Fault::Refused(503)])),
        8 => (Side::Api, Only::Watch, Fault::Stall),
        _ => (Side::Api, Only::Writes, dice.pick(&[Fault::CutAfter, Fault::Refused(500), Fault::Mixed])),
    };
    Spell { side, on, fault, share: dice.pick(&[50, 100, 100]), lasts }
}

/// A delay from nothing to minutes.
fn delay(dice: &mut Dice) -> u64 {
    const DELAYS: [(u64, u64); 7] =
        [(0, 0), (1, 60), (100, 700), (1_000, 9_000), (9_500, 14_000), (15_000, 60_000), (60_000, 300_000)];
    let (low, high) = DELAYS[dice.weighted(&[3, 4, 5, 4, 3, 3, 1])];
    dice.between(low, high)
}

fn draw_spell(dice: &mut Dice) -> Spell {
    let lasts = dice.pick(&[50, 300, 1_000, 4_000, 10_000, 30_000, 60_000, 180_000]);
    let share = dice.pick(&[30, 60, 100, 100]);
    if dice.chance(12) {
        let fault = dice.pick(&[Fault::Stall, Fault::Stall, Fault::Twice, Fault::Break, Fault::Expire]);
        return Spell { side: Side::Api, on: Only::Watch, fault, share, lasts };
    }
    let side = dice.pick(&[Side::Api, Side::Provider, Side::Provider]);
    let on = match side {
        Side::Api => dice.pick(&[
            Only::Any,
            Only::Reads,
            Only::Writes,
            Only::Status,
            Only::Status,
            Only::Metadata,
            Only::Lease,
            Only::List,
        ]),
        Side::Provider => dice.pick(&[Only::Any, Only::Reads, Only::Writes, Only::Records, Only::Records, Only::Zones]),
    };
    let code = match side {
        Side::Api => dice.pick(&[401, 403, 409, 429, 500, 503, 504]),
        Side::Provider => dice.pick(&[401, 409, 422, 429, 500, 503]),
    };
    let fault = match dice.weighted(&[8, 4, 2, 3, 3]) {
        0 => {
            let before = delay(dice);
            // A request that reaches the name server later than this is taken for lost.
            let before = if side == Side::Provider { before.min(LATEST) } else { before };
            Fault::Slow { before, after: delay(dice) }
        }
        1 => Fault::Refused(code),
        2 => Fault::CutBefore,
        3 => Fault::CutAfter,
        _ => Fault::Mixed,
    };
    Spell { side, on, fault, share, lasts }
}

fn draw_process(dice: &mut Dice, replicas: usize) -> ProcessEvent {
    let replica = dice.below(replicas);
    let down = dice.pick(&[0, 1, 100, 2_000, 20_000, 90_000]);
    match dice.weighted(&[4, 3, 2]) {
        0 => ProcessEvent::Crash { replica, down },
        1 => ProcessEvent::Restart { replica, down, pace: dice.below(4) },
        _ => ProcessEvent::Freeze { replica, lasts: dice.pick(&[500, 5_000, 20_000, 60_000, 200_000]) },
    }
}
