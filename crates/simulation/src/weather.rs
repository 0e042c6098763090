//! The fate of each request: the active spells decide, and the seed decides the rest.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    dice::hash,
    history::{Fault, LATEST, Only, Side, Spell},
};

/// The properties of a request that spells depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// API: get, and whatever else changes nothing.
    Get,
    /// API: list.
    List,
    /// API: the start of a watch.
    Watch,
    /// API: a status.
    Status,
    /// API: metadata, or a whole object.
    Metadata,
    /// API: an event.
    Event,
    /// API: a lease, read or written.
    Lease,
    /// Provider: a read.
    Look,
    /// Provider: records are written.
    Records,
    /// Provider: what holds records is created, changed or deleted.
    Zones,
}

impl Class {
    fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch | Self::Look)
    }

    fn is_in(self, only: Only) -> bool {
        match only {
            Only::Any => true,
            Only::Reads => self.is_read(),
            Only::Writes => !self.is_read() && self != Self::Lease,
            Only::Status => self == Self::Status,
            Only::Metadata => self == Self::Metadata,
            Only::Lease => self == Self::Lease,
            // Of a watch that is open, each event is looked at, see `Weather::stream`.
            Only::Watch => false,
            Only::List => self == Self::List,
            Only::Records => self == Self::Records,
            Only::Zones => self == Self::Zones,
        }
    }
}

/// The fate of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Time until it takes effect.
    pub before: Duration,
    /// Whether it does.
    pub effect: Effect,
    /// Time from there until it is answered.
    pub after: Duration,
}

/// Whether a request takes effect and is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Both.
    Answered,
    /// Neither: a refusal with a status code.
    Refused(u16),
    /// Neither: the connection breaks.
    CutBefore,
    /// It takes effect, and the connection breaks.
    CutAfter,
}

/// The fate of the next event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is delivered.
    Now,
    /// It waits until then.
    At(Instant),
    /// It is delivered twice.
    Twice,
    /// The connection breaks.
    Break,
    /// A 410 is delivered in its place.
    Expire,
}

#[derive(Debug, Default)]
struct State {
    active: Vec<(Spell, Instant)>,
    seen: BTreeMap<String, u64>,
}

/// The spells that are active, and how many requests of each sort there were.
#[derive(Debug)]
pub struct Weather {
    seed: u64,
    state: Mutex<State>,
}

impl Weather {
    /// Fair weather.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A spell begins now.
    pub fn begin(&self, spell: Spell) {
        let until = Instant::now() + Duration::from_millis(spell.lasts);
        self.lock().active.push((spell, until));
    }

    /// Ends all spells.
    pub fn clear(&self) {
        self.lock().active.clear();
    }

    /// Draws a number for the next request that is called `name`.
    fn draw(state: &mut State, seed: u64, name: &str) -> u64 {
        let count = match state.seen.get_mut(name) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => *state.seen.entry(name.to_owned()).or_insert(0),
        };
        hash(seed, name, count)
    }

    /// The fate of a request. `name` identifies it; requests of one name are numbered.
    pub fn fate(&self, side: Side, class: Class, name: &str) -> Fate {
        let now = Instant::now();
        let mut state = self.lock();
        let drawn = Self::draw(&mut state, self.seed, name);
        let millis = |shift: u32| Duration::from_millis((drawn >> shift) % 4);
        let mut fate = Fate { before: millis(0), effect: Effect::Answered, after: millis(8) };
        state.active.retain(|(_, until)| *until > now);
        for (number, (spell, _)) in state.active.iter().enumerate() {
            let mine = spell.side == side && class.is_in(spell.on);
            let own = hash(drawn, "spell", number as u64);
            if mine && own % 100 < spell.share {
                fate = struck(fate, spell.fault, side, class, own >> 8);
            }
        }
        if side == Side::Provider {
            // Two spells together make it no later than one may.
            fate.before = fate.before.min(Duration::from_millis(LATEST));
        }
        fate
    }

    /// The fate of the next event of a watch.
    pub fn stream(&self, name: &str) -> Delivery {
        let now = Instant::now();
        let mut state = self.lock();
        state.active.retain(|(_, until)| *until > now);
        if !state.active.iter().any(|(spell, _)| spell.on == Only::Watch) {
            return Delivery::Now;
        }
        let drawn = Self::draw(&mut state, self.seed, name);
        let mut delivery = Delivery::Now;
        for (number, (spell, until)) in
            state.active.iter().enumerate().filter(|(_, (spell, _))| spell.on == Only::Watch)
        {
            if hash(drawn, "spell", number as u64) % 100 < spell.share {
                delivery = match spell.fault {
                    Fault::Stall | Fault::Slow { .. } => Delivery::At(*until),
                    Fault::Twice => Delivery::Twice,
                    Fault::Break | Fault::CutBefore | Fault::CutAfter | Fault::Mixed => Delivery::Break,
                    Fault::Expire | Fault::Refused(_) => Delivery::Expire,
                };
            }
        }
        delivery
    }
}

/// The fate of a request that meets one more fault.
fn struck(fate: Fate, fault: Fault, side: Side, class: Class, drawn: u64) -> Fate {
    let slow = |before: u64, after: u64| Fate {
        before: fate.before + Duration::from_millis(before),
        after: fate.after + Duration::from_millis(after),
        ..fate
    };
    match fault {
        Fault::Slow { before, after } => slow(before, after),
        Fault::Refused(code) if may_refuse(side, class, code) => Fate { effect: Effect::Refused(code), ..fate },
        Fault::CutBefore | Fault::Break => Fate { effect: Effect::CutBefore, ..fate },
        Fault::CutAfter => Fate { effect: Effect::CutAfter, ..fate },
        Fault::Mixed => {
            let codes: &[u16] = match side {
                Side::Api => &[409, 429, 500, 503],
                Side::Provider => &[422, 429, 500, 503],
            };
            let code = codes[usize::try_from((drawn >> 8) % 4).unwrap_or(0)];
            match drawn % 6 {
                0 => slow((drawn >> 16) % 2_000, (drawn >> 32) % 2_000),
                1 => slow((drawn >> 16) % 30_000, (drawn >> 32) % 30_000),
                2 if may_refuse(side, class, code) => Fate { effect: Effect::Refused(code), ..fate },
                3 => Fate { effect: Effect::CutBefore, ..fate },
                4 => Fate { effect: Effect::CutAfter, ..fate },
                _ => fate,
            }
        }
        Fault::Refused(_) | Fault::Stall | Fault::Twice | Fault::Expire => fate,
    }
}

/// Whether the server could give that answer: 409 and 422 are about the request, and no server answers a read with them.
fn may_refuse(side: Side, class: Class, code: u16) -> bool {
    match code {
        409 => match side {
            Side::Api => matches!(class, Class::Status | Class::Metadata | Class::Lease),
            Side::Provider => class == Class::Records,
        },
        422 => class == Class::Records,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spells_make_a_request_to_a_provider_no_later_than_one_may() {
        let weather = Weather::new(1);
        for _ in 0..2 {
            let fault = Fault::Slow { before: LATEST, after: 0 };
            weather.begin(Spell { side: Side::Provider, on: Only::Any, fault, share: 100, lasts: 60_000 });
        }
        let fate = weather.fate(Side::Provider, Class::Records, "PATCH");
        assert_eq!(fate.before, Duration::from_millis(LATEST));
    }
}
