//! The resolver of a simulation: what the name servers have, a network to it, and which answers were bad.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_provider_resolver::{Answer, Lookup, LookupError, Memory, Rcode, Reply};
use tokio::time::Instant;

use crate::{
    provider::{Call, Wire},
    weather::{Class, Effect},
    world::World,
};

/// `PORTAL_LOOKUP_TIMEOUT`.
const DEADLINE: Duration = Duration::from_secs(5);

/// The resolver.
pub struct Twin {
    world: Arc<World>,
    resolver: Memory,
    state: Mutex<State>,
}

/// What it has, and what went wrong with it.
#[derive(Debug)]
pub struct State {
    /// The values of each name and type.
    pub records: BTreeMap<(String, String), Vec<String>>,
    /// When any of them last changed.
    pub changed: Instant,
    /// When a question for a name was last answered with an error of the name, by name. An outage is not one.
    pub bad: BTreeMap<String, Instant>,
}

/// What the name servers have for a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Truth {
    /// The name does not exist.
    NoSuchName,
    /// The aliases lead nowhere.
    Loop,
    /// These values, or none of the type.
    Values(Vec<String>),
}

impl State {
    /// What a question is answered with, aliases followed.
    pub fn truth(&self, name: &str, rtype: &str) -> Truth {
        let at = |name: &str, rtype: &str| self.records.get(&(name.to_owned(), rtype.to_owned()));
        let (mut name, mut hops) = (name.to_owned(), 0);
        loop {
            if let Some(values) = at(&name, rtype) {
                return Truth::Values(values.clone());
            }
            match at(&name, "CNAME") {
                Some(alias) => name.clone_from(&alias[0]),
                None if self.records.keys().any(|(known, _)| *known == name) => return Truth::Values(Vec::new()),
                None => return Truth::NoSuchName,
            }
            hops += 1;
            if hops > 20 {
                return Truth::Loop;
            }
        }
    }
}

impl Twin {
    /// A resolver without any name.
    pub fn new(world: &Arc<World>) -> Arc<Self> {
        let state = State { records: BTreeMap::new(), changed: Instant::now(), bad: BTreeMap::new() };
        Arc::new(Self { world: world.clone(), resolver: Memory::default(), state: Mutex::new(state) })
    }

    /// What it has, and what went wrong with it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the values of a name and type. Nothing is beside an alias.
    pub fn set(&self, name: &str, rtype: &str, values: &[String]) {
        self.world.note(&format!("{name} {rtype} is {values:?}"));
        let excluded: &[&str] = if rtype == "CNAME" { &["A", "TXT"] } else { &["CNAME"] };
        self.put(name, rtype, values);
        if !values.is_empty() {
            for other in excluded {
                self.put(name, other, &[]);
            }
        }
        self.state().changed = Instant::now();
    }

    fn put(&self, name: &str, rtype: &str, values: &[String]) {
        let (Ok(fqdn), Ok(kind)) = (Fqdn::parse(name), rtype.parse::<RecordType>()) else { return };
        let written = |value: &String| match rtype {
            "TXT" => format!("\"{value}\""),
            "CNAME" => format!("{value}."),
            _ => value.clone(),
        };
        let parsed = values.iter().filter_map(|value| Rdata::parse(&kind, &written(value)).ok()).collect();
        self.resolver.set(&fqdn, kind, parsed);
        let key = (name.to_owned(), rtype.to_owned());
        let mut state = self.state();
        if values.is_empty() {
            state.records.remove(&key);
        } else {
            state.records.insert(key, values.to_vec());
        }
    }
}

/// The answer of a resolver that fails for a name.
fn failed(code: u16) -> Answer {
    let rcode = if matches!(code, 401 | 403) { Rcode::Refused } else { Rcode::ServFail };
    Answer { rcode, chain: Vec::new(), values: Vec::new(), ttl: None, server: "twin".into(), took: Duration::ZERO }
}

impl Lookup for Wire<Twin> {
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let call = Call {
                class: Class::Look,
                name: format!("resolve {} {rtype}", name.undotted()),
                deadline: Some(DEADLINE),
                cut: || LookupError::Unreachable { server: "twin".into(), why: "connection reset by peer".to_owned() },
                late: || LookupError::Timeout { server: "twin".into(), after: DEADLINE },
                shown: |answered| {
                    format!("{:?}", answered.as_ref().map(|answer: &Answer| (answer.rcode, &answer.values)))
                },
            };
            let asked = name.clone();
            let answered = self.call(call, move |twin, effect, _| match effect {
                Effect::Refused(code) => Ok(failed(code)),
                Effect::Answered | Effect::CutBefore | Effect::CutAfter => {
                    let replies = futures::FutureExt::now_or_never(twin.resolver.lookup(&asked, rtype));
                    let first = replies.into_iter().flatten().next().map(|reply| reply.result);
                    first.unwrap_or_else(|| Ok(failed(500)))
                }
            });
            let result = answered.await;
            let bad = match &result {
                Ok(answer) => !matches!(answer.rcode, Rcode::NoError | Rcode::NxDomain),
                Err(error) => !error.is_outage(),
            };
            if bad {
                self.twin.state().bad.insert(name.undotted().to_owned(), Instant::now());
            }
            vec![Reply { resolver: "twin".into(), result }]
        })
    }
}
