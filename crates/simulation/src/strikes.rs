//! Which requests met a fault, and until when: what explains that a name is not served.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::weather::{Class, Effect, Fate};

/// A request that takes longer than this has met a fault.
const PROMPT: Duration = Duration::from_millis(50);

/// Until when faults had an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Struck {
    /// Any fault.
    pub any: Option<Instant>,
    /// An answer after which a caller tries again minutes later: no permission, or refused for good.
    pub refused: Option<Instant>,
}

impl Struck {
    fn add(&mut self, other: Self) {
        self.any = self.any.max(other.any);
        self.refused = self.refused.max(other.refused);
    }

    /// When something that is asked for since then must be served, at the latest.
    pub fn deadline(&self, since: Instant, allowed: &Allowed) -> Instant {
        let after = |time: Option<Instant>, more: Duration| time.map(|time| time + more);
        let deadlines = [after(self.any, allowed.after_fault), after(self.refused, allowed.after_refusal)];
        deadlines.into_iter().flatten().fold(since + allowed.without_fault, Instant::max)
    }
}

/// How long a name that is asked for may be unserved.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Where no fault has anything to do with it.
    pub without_fault: Duration,
    /// After the last fault.
    pub after_fault: Duration,
    /// After the last refusal.
    pub after_refusal: Duration,
}

/// The faults of requests, by the name of the request.
#[derive(Debug, Default)]
pub struct Strikes(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    named: BTreeMap<String, Struck>,
    all: Struck,
    /// Whether an event that the current process sent may be lost.
    events: bool,
}

impl Strikes {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fault that concerns every name, until then.
    pub fn strike_all(&self, until: Instant) {
        self.lock().all.add(Struck { any: Some(until), refused: None });
    }

    /// Requests of this name are refused until then.
    pub fn refuse(&self, name: &str, until: Instant) {
        let struck = Struck { any: Some(until), refused: Some(until) };
        self.lock().named.entry(name.to_owned()).or_default().add(struck);
    }

    /// Notes a request that meets a fault.
    pub fn note(&self, class: Class, name: &str, fate: &Fate) {
        if fate.effect == Effect::Answered && fate.before + fate.after < PROMPT {
            return;
        }
        let until = Instant::now() + fate.before + fate.after;
        let refused = matches!(fate.effect, Effect::Refused(401 | 403 | 409 | 422)).then_some(until);
        let struck = Struck { any: Some(until), refused };
        let mut inner = self.lock();
        match class {
            // Watches and lists concern every name.
            Class::Get | Class::List | Class::Watch => inner.all.add(struck),
            // Leader election does too, and only a leader sends events.
            Class::Lease => {
                inner.all.add(struck);
                inner.events = true;
            }
            Class::Event => inner.events = true,
            Class::Status | Class::Metadata | Class::Look | Class::Records | Class::Zones => {
                inner.named.entry(name.to_owned()).or_default().add(struck);
            }
        }
    }

    /// Events that the current process sends may be lost.
    pub fn lose_events(&self) {
        self.lock().events = true;
    }

    /// The only process starts again: it reports everything that is wrong once more.
    pub fn forget_lost_events(&self) {
        self.lock().events = false;
    }

    /// Whether an event about something that is still wrong may be lost.
    pub fn lost_events(&self) -> bool {
        self.lock().events
    }

    /// The faults of every request whose name `concerns` accepts, and those that concern everything.
    pub fn of(&self, concerns: impl Fn(&str) -> bool) -> Struck {
        let inner = self.lock();
        let mut struck = inner.all;
        for (_, own) in inner.named.iter().filter(|(name, _)| concerns(name)) {
            struck.add(*own);
        }
        struck
    }
}
