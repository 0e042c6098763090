//! The part of a system in `signpost demo`. The demo takes it from [`SystemSpec::demo`](crate::SystemSpec::demo) and knows no system.
//!
//! ```text
//!  Demo {examples, crds, start} ──start(stage)──► Show ◄── check(example) ── demo, until every example has its result
//!                                    │                 ◄── then(), commands()
//!                                    └─ its servers in memory ──Mirror──► Names ──► name server (dig works)
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use signpost_dns::{Fqdn, RecordSet, RecordType, Ttl, ZoneName};

use crate::operator::Operator;

/// Any error of a demo.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A demo that is being started.
pub type Starting<'a> = BoxFuture<'a, Result<Box<dyn Show>, BoxError>>;

/// The demo of one system.
#[derive(Clone, Copy)]
pub struct Demo {
    /// Its example manifests: file name and YAML. The namespace `demo` exists; further ones are manifests too.
    pub examples: &'static [(&'static str, &'static str)],
    /// CRDs of other projects that its objects need in the demo's cluster.
    pub crds: fn() -> Vec<CustomResourceDefinition>,
    /// Starts its servers in memory and installs the system.
    pub start: for<'a> fn(&'a mut dyn Stage) -> Starting<'a>,
}

impl fmt::Debug for Demo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demo").finish_non_exhaustive()
    }
}

/// Where a demo runs.
pub trait Stage: Send {
    /// The operator of the demo's cluster.
    fn operator(&mut self) -> &mut Operator;
    /// The name server of the demo.
    fn names(&self) -> Arc<dyn Names>;
    /// The operator of a further cluster, which has every CRD and no object. It runs when the demo's own operator runs. Systems that serve
    /// others take part in it: see [`Show::join`].
    fn cluster<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<&'a mut Operator, BoxError>>;
}

/// A system whose demo has started.
pub trait Show: Send + Sync {
    /// The server of the system, in one line, such as `PowerDNS in memory`.
    fn about(&self) -> String;

    /// The state of an example, read from the API server a moment ago; `None` when the system does not read its kind.
    fn check<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Option<State>>;

    /// Installs the system in a further cluster too, on the same servers, where another system relies on it there.
    fn join(&self, _operator: &mut Operator) {}

    /// Shows more once every example has its result. Returns lines to print; an error is a demo that did not converge.
    fn then(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Commands to try next. `kubectl` is the command with the demo's kubeconfig, `served` every answer of the demo.
    fn commands(&self, _kubectl: &str, _served: &[Answer]) -> Vec<String> {
        Vec::new()
    }
}

/// The state of an example at one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Served, with the answers that prove it.
    Served(Vec<Answer>),
    /// Refused.
    Refused {
        /// The reason.
        reason: String,
        /// The message.
        message: String,
    },
    /// Not done, and why.
    NotYet(String),
    /// The system has not written to it, and what it lacks.
    Untouched(String),
}

impl State {
    /// The state of an example that two systems read.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Served(mut answers), Self::Served(more)) => {
                answers.extend(more);
                Self::Served(answers)
            }
            (Self::Untouched(_), other) => other,
            (state, Self::Untouched(_) | Self::Served(_)) => state,
            (Self::Served(_), other) => other,
            (state, Self::NotYet(_) | Self::Refused { .. }) => state,
        }
    }
}

/// An answer of a server: `www.example.org.` `A` `192.0.2.1`, or `https://app.example.org/` `GET` `Service demo/app`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// The name or URL that was asked.
    pub question: String,
    /// The record type or method.
    pub qtype: String,
    /// The data.
    pub data: Vec<String>,
}

/// The name server of the demo.
pub trait Names: Send + Sync {
    /// Adds a zone.
    fn add_zone(&self, zone: &ZoneName);
    /// Removes a zone with its records.
    fn remove_zone(&self, zone: &ZoneName);
    /// Adds or replaces a record set.
    fn set(&self, set: &RecordSet);
    /// Removes a record set.
    fn remove(&self, name: &Fqdn, rtype: RecordType);
    /// Where it answers, over UDP and TCP.
    fn address(&self) -> SocketAddr;
    /// Queries it over the network. An empty answer means that the name or the type does not exist.
    fn ask<'a>(&'a self, name: &'a str, rtype: &'a str) -> BoxFuture<'a, Result<Vec<String>, BoxError>>;
}

/// Served when the name server answers every question (name and type).
pub async fn answered(names: &dyn Names, questions: impl IntoIterator<Item = (String, String)> + Send) -> State {
    let questions: Vec<_> = questions.into_iter().collect();
    let mut answers = Vec::new();
    for (question, qtype) in questions {
        match names.ask(&question, &qtype).await {
            Ok(data) if !data.is_empty() => answers.push(Answer { question, qtype, data }),
            Ok(_) => return State::NotYet(format!("the name server has no answer for {question} {qtype}")),
            Err(error) => return State::NotYet(format!("{question} {qtype} cannot be queried: {error}")),
        }
    }
    State::Served(answers)
}

/// A record set as a server in memory has it.
#[derive(Clone, Debug)]
pub struct Mirrored {
    /// Its name.
    pub name: Fqdn,
    /// Its type.
    pub rtype: RecordType,
    /// Its TTL.
    pub ttl: u32,
    /// Its data. A set with data that is not valid is left out.
    pub data: Vec<String>,
}

/// The record sets of one zone.
type Sets = BTreeSet<(Fqdn, RecordType)>;

/// Copies what a server in memory has to the name server.
pub struct Mirror {
    names: Arc<dyn Names>,
    /// By zone; `None` for names outside of every zone.
    shown: Mutex<BTreeMap<Option<ZoneName>, Sets>>,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").finish_non_exhaustive()
    }
}

impl Mirror {
    /// A mirror to this name server.
    pub fn new(names: Arc<dyn Names>) -> Self {
        Self { names, shown: Mutex::default() }
    }

    /// The complete content of a zone; `None` when it was deleted.
    pub fn zone(&self, zone: &ZoneName, content: Option<impl IntoIterator<Item = Mirrored>>) {
        if let Some(content) = content {
            self.names.add_zone(zone);
            self.replace(Some(zone.clone()), content);
        } else {
            self.shown.lock().unwrap_or_else(PoisonError::into_inner).remove(&Some(zone.clone()));
            self.names.remove_zone(zone);
        }
    }

    /// All names of a server that has no zones.
    pub fn names(&self, content: impl IntoIterator<Item = Mirrored>) {
        self.replace(None, content);
    }

    fn replace(&self, zone: Option<ZoneName>, content: impl IntoIterator<Item = Mirrored>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = BTreeSet::new();
        for Mirrored { name, rtype, ttl, data } in content {
            let Ok(ttl) = Ttl::new(ttl) else { continue };
            if let Ok(set) = RecordSet::parse(name.clone(), rtype, ttl, &data) {
                self.names.set(&set);
                now.insert((name, rtype));
            }
        }
        let before = shown.insert(zone, now.clone()).unwrap_or_default();
        for (name, rtype) in before.difference(&now) {
            self.names.remove(name, *rtype);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name server that keeps what it was given, as text.
    #[derive(Default)]
    struct Kept(Mutex<BTreeSet<String>>);

    impl Names for Kept {
        fn add_zone(&self, zone: &ZoneName) {
            self.0.lock().unwrap().insert(zone.to_string());
        }
        fn remove_zone(&self, zone: &ZoneName) {
            let zone = zone.to_string();
            self.0.lock().unwrap().retain(|line| *line != zone);
        }
        fn set(&self, set: &RecordSet) {
            self.0.lock().unwrap().insert(format!("{} {}", set.name, set.rtype));
        }
        fn remove(&self, name: &Fqdn, rtype: RecordType) {
            self.0.lock().unwrap().remove(&format!("{name} {rtype}"));
        }
        fn address(&self) -> SocketAddr {
            ([127, 0, 0, 1], 53).into()
        }
        fn ask<'a>(&'a self, name: &'a str, rtype: &'a str) -> BoxFuture<'a, Result<Vec<String>, BoxError>> {
            let known = self.0.lock().unwrap().contains(&format!("{name} {rtype}"));
            Box::pin(async move { Ok(known.then(|| "192.0.2.1".to_owned()).into_iter().collect()) })
        }
    }

    fn a(name: &str, data: &str) -> Mirrored {
        Mirrored { name: Fqdn::parse(name).unwrap(), rtype: RecordType::A, ttl: 0, data: vec![data.to_owned()] }
    }

    #[tokio::test]
    async fn a_mirror_removes_what_its_server_no_longer_has() {
        let names = Arc::new(Kept::default());
        let mirror = Mirror::new(names.clone());
        let zone = ZoneName::parse("example.org").unwrap();
        let kept = || names.0.lock().unwrap().iter().cloned().collect::<Vec<_>>();
        mirror.zone(&zone, Some([a("www.example.org", "192.0.2.1"), a("bad.example.org", "not an address")]));
        mirror.names([a("nas.home.arpa", "192.0.2.1")]);
        assert_eq!(kept(), ["example.org.", "nas.home.arpa. A", "www.example.org. A"]);
        let asked = |name: &str| vec![(name.to_owned(), "A".to_owned())];
        assert!(matches!(answered(&*names, asked("www.example.org.")).await, State::Served(_)));
        mirror.zone(&zone, Some([a("new.example.org", "192.0.2.1")]));
        assert_eq!(kept(), ["example.org.", "nas.home.arpa. A", "new.example.org. A"]);
        assert!(matches!(answered(&*names, asked("www.example.org.")).await, State::NotYet(_)));
        mirror.names([]);
        mirror.zone(&zone, None::<[Mirrored; 0]>);
        assert_eq!(kept(), ["new.example.org. A"], "the name server itself removes the records of a zone");
    }

    #[test]
    fn an_example_of_two_systems_is_served_when_both_serve_it() {
        let served = |name: &str| {
            State::Served(vec![Answer { question: name.into(), qtype: "A".into(), data: vec!["192.0.2.1".into()] }])
        };
        let refused = State::Refused { reason: "InvalidSpec".into(), message: String::new() };
        let (not_yet, untouched) = (State::NotYet("no".into()), State::Untouched("none".into()));
        assert!(matches!(served("a").and(served("b")), State::Served(answers) if answers.len() == 2));
        for open in [refused.clone(), not_yet] {
            assert_eq!(served("a").and(open.clone()), open);
            assert_eq!(open.clone().and(served("a")), open);
            assert_eq!(untouched.clone().and(open.clone()), open);
        }
        assert_eq!(untouched.clone().and(served("a")), served("a"));
        assert_eq!(served("a").and(untouched.clone()), served("a"));
        assert_eq!(untouched.clone().and(untouched.clone()), untouched);
    }
}
