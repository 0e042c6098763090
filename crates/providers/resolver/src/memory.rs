//! The in-memory twin: a resolver that answers from a table, for the demo and for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use signpost_dns::{Fqdn, Rdata, RecordType};

use crate::Lookup;
use crate::answer::{Answer, LookupError, Rcode, Reply};

/// A resolver that knows what it was told. A name without records does not exist.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    records: BTreeMap<(Fqdn, RecordType), Vec<Rdata>>,
    errors: BTreeMap<Fqdn, LookupError>,
    down: bool,
    asked: u64,
}

impl Memory {
    /// Sets the values of a name and type; without values, they are removed.
    pub fn set(&self, name: &Fqdn, rtype: RecordType, mut values: Vec<Rdata>) {
        values.sort_unstable();
        let mut known = self.lock();
        if values.is_empty() {
            known.records.remove(&(name.clone(), rtype));
        } else {
            known.records.insert((name.clone(), rtype), values);
        }
    }

    /// Removes every record.
    pub fn clear(&self) {
        self.lock().records.clear();
    }

    /// Makes every question for a name fail, or answers again.
    pub fn fail(&self, name: &Fqdn, error: Option<LookupError>) {
        let mut known = self.lock();
        match error {
            Some(error) => known.errors.insert(name.clone(), error),
            None => known.errors.remove(name),
        };
    }

    /// Makes the resolver unreachable, or reachable again.
    pub fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    /// How many questions were asked.
    pub fn asked(&self) -> u64 {
        self.lock().asked
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, name: &Fqdn, rtype: RecordType) -> Result<Answer, LookupError> {
        let server: Arc<str> = "memory".into();
        let mut known = self.lock();
        known.asked += 1;
        if known.down {
            return Err(LookupError::Unreachable { server, why: "it is switched off".into() });
        }
        if let Some(error) = known.errors.get(name) {
            return Err(error.clone());
        }
        let mut chain: Vec<Fqdn> = Vec::new();
        loop {
            let at = chain.last().unwrap_or(name).clone();
            let values = known.records.get(&(at.clone(), rtype)).cloned().unwrap_or_default();
            let alias = known.records.get(&(at.clone(), RecordType::Cname)).and_then(|values| values.first()?.target());
            if let Some(target) = alias.filter(|_| values.is_empty()) {
                if target == name || chain.contains(target) {
                    return Err(LookupError::CnameLoop { server, last: target.clone() });
                }
                chain.push(target.clone());
                continue;
            }
            let exists = known.records.keys().any(|(known, _)| *known == at);
            let rcode = if exists { Rcode::NoError } else { Rcode::NxDomain };
            let ttl = Some(if values.is_empty() { 30 } else { 300 });
            return Ok(Answer { rcode, chain, values, ttl, server, took: Duration::from_millis(1) });
        }
    }
}

impl Lookup for Memory {
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move { vec![Reply { resolver: "memory".into(), result: self.answer(name, rtype) }] })
    }
}
