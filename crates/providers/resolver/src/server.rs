//! One name server: asked within a deadline, left alone while it does not answer, chains followed to their end.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RecordType as WireType};
use signpost_dns::{Fqdn, RecordType};
use signpost_provider_http::{Breaker, Paused};
use tokio::time::Instant;

use crate::answer::{Answer, LookupError, Rcode};
use crate::exchange::Failure;
use crate::transport::Transport;
use crate::wire::{self, MOST_HOPS, Unreadable};

/// How long a server may take for the question that tells whether it answers at all.
pub(crate) const PROBE: Duration = Duration::from_secs(1);

/// A name server.
#[derive(Debug)]
pub(crate) struct Server {
    transport: Transport,
    label: Arc<str>,
    breaker: Breaker<String>,
    deadline: Duration,
    control: Mutex<Control>,
    /// Of several questions that fail, one starts a control.
    controls: tokio::sync::Mutex<()>,
}

/// The domains that a server answered for, and the last control.
#[derive(Debug, Default)]
struct Control {
    domains: BTreeSet<Fqdn>,
    /// When it began, and whether the server works.
    last: Option<(Instant, bool)>,
}

/// Why a server cannot be reached, in the same words from try to try.
const SILENT: &str = "it answers nothing";
/// Domains that are remembered, and how long a control that failed counts.
const MOST_CONTROLS: usize = 8;
const CONTROLLED: Duration = Duration::from_secs(1);
/// Domains that a resolver may answer for itself, such as those of the cluster: they tell nothing about the servers that it asks.
const OWN: &[&str] = &["arpa", "internal", "invalid", "lan", "local", "localhost", "onion", "test"];
/// A domain that every resolver with a way to the root knows. Its zone is signed with opt-out, so a resolver does not make up denials from what it has in
/// its cache (RFC 8198), as it may below `arpa`.
const ROOTED: &str = "com";

/// What a name is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ZoneOf {
    /// This zone.
    Zone(Fqdn),
    /// No zone is known.
    None,
    /// The server fails for it.
    Failed(Rcode),
}

impl Server {
    pub(crate) fn new(address: SocketAddr, label: &str, deadline: Duration) -> Self {
        Self::over(Transport::Plain(address), label, deadline)
    }

    /// A server that is reached in this way.
    pub(crate) fn over(transport: Transport, label: &str, deadline: Duration) -> Self {
        let (label, breaker, control) = (label.into(), Breaker::default(), Mutex::default());
        Self { transport, label, breaker, deadline, control, controls: tokio::sync::Mutex::default() }
    }

    pub(crate) fn last_failure(&self) -> Option<String> {
        self.breaker.last().and_then(Result::err)
    }

    /// Its name in answers.
    pub(crate) fn label(&self) -> &Arc<str> {
        &self.label
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that a name was answered.
    fn answered(&self, name: &Fqdn) {
        let Some(domain) = domain(name) else { return };
        let mut control = self.control();
        if control.domains.len() < MOST_CONTROLS && control.domains.insert(domain) {
            control.last = None;
        }
    }

    /// Whether the server was asked for names of several domains, so that a slow name and a slow server can be told apart.
    pub(crate) fn knows_domains(&self) -> bool {
        self.control().domains.len() > 1
    }

    /// Whether a server that failed for a name works: whether it answers for the top-level domain `com`, or for any domain that it answered for before. It
    /// is asked for names that it cannot have in its cache. A forwarder whose own server is down fails for all of them. Zones whose own name
    /// server is down fail as well, however many they are, but the others are answered. `asked` is when the question that failed was sent: one
    /// control is enough for all that failed before it.
    pub(crate) async fn works(&self, asked: Instant) -> bool {
        let _one_at_a_time = self.controls.lock().await;
        let (domains, last) = {
            let control = self.control();
            (control.domains.clone(), control.last)
        };
        if let Some((began, works)) = last
            && (began >= asked || !works && began.elapsed() < CONTROLLED)
        {
            return works;
        }
        let rooted = Fqdn::parse(ROOTED).ok();
        let (began, until) = (Instant::now(), Instant::now() + PROBE);
        let controls = domains.iter().chain(&rooted).map(|domain| async move {
            let name = Fqdn::parse(&format!("{}.{}", unknown_label(), domain.undotted())).ok();
            let name = name.and_then(|name| wire::wire_name(&name))?;
            let answer = self.transport.exchange(&name, WireType::A, true, until).await.ok()?;
            matches!(wire::rcode(&answer), Rcode::NoError | Rcode::NxDomain).then_some(domain)
        });
        let answers: Vec<Option<&Fqdn>> = join_all(controls).await;
        let answered: BTreeSet<&Fqdn> = answers.iter().flatten().copied().collect();
        let works = !answered.is_empty();
        let mut control = self.control();
        control.last = Some((began, works));
        if domains.iter().any(|domain| answered.contains(domain)) {
            // A domain that does not work any more is not a control.
            control.domains.retain(|domain| answered.contains(domain));
        }
        works
    }

    /// Asks for the values of a name, over as many CNAME records as it takes.
    pub(crate) async fn ask(&self, name: &Fqdn, rtype: RecordType, recursive: bool) -> Result<Answer, LookupError> {
        let started = Instant::now();
        let until = started + self.deadline;
        let mut chain: Vec<Fqdn> = Vec::new();
        let mut ttl = None;
        loop {
            let at = chain.last().unwrap_or(name).clone();
            let (wire_name, wire_type) = Self::question(&at, rtype)?;
            let message = self.exchange(&wire_name, wire_type, recursive, until).await?;
            let read = wire::read(&message, &wire_name, wire_type).map_err(|error| self.unreadable(error))?;
            ttl = [ttl, read.ttl].into_iter().flatten().min();
            let led_on = !read.hops.is_empty();
            for hop in read.hops {
                if chain.len() >= MOST_HOPS || hop == *name || chain.contains(&hop) {
                    return Err(LookupError::CnameLoop { server: self.label.clone(), last: hop });
                }
                chain.push(hop);
            }
            let rcode = wire::rcode(&message);
            if read.values.is_empty() && rcode == Rcode::NoError && led_on && recursive {
                continue;
            }
            if recursive && matches!(rcode, Rcode::NoError | Rcode::NxDomain) {
                self.answered(name);
            }
            let (server, took) = (self.label.clone(), started.elapsed());
            return Ok(Answer { rcode, chain, values: read.values, ttl, server, took });
        }
    }

    /// The zone that a name is in. An alias is answered with the zone of its target; its own zone is that of its parent.
    pub(crate) async fn zone_of(&self, name: &Fqdn) -> Result<ZoneOf, LookupError> {
        let until = Instant::now() + self.deadline;
        let mut next = Some(name.clone());
        while let Some(at) = next {
            let (wire_name, wire_type) = Self::question(&at, RecordType::Soa)?;
            let message = self.exchange(&wire_name, wire_type, true, until).await?;
            // Behind a failure may be a zone of its own, which the parent's servers know nothing about.
            match wire::rcode(&message) {
                Rcode::NoError | Rcode::NxDomain => {}
                rcode => return Ok(ZoneOf::Failed(rcode)),
            }
            if let Some(zone) = wire::zone(&message).filter(|zone| name.is_at_or_below(zone)) {
                return Ok(ZoneOf::Zone(zone));
            }
            next = at.parent();
        }
        Ok(ZoneOf::None)
    }

    fn question(name: &Fqdn, rtype: RecordType) -> Result<(Name, WireType), LookupError> {
        let bad = |why: &str| LookupError::BadQuestion {
            name: name.clone(),
            rtype: rtype.as_str().to_owned(),
            why: why.to_owned(),
        };
        let wire_name = wire::wire_name(name).ok_or_else(|| bad("the name cannot be sent"))?;
        let wire_type = wire::wire_type(rtype).ok_or_else(|| bad("the type has no number"))?;
        Ok((wire_name, wire_type))
    }

    async fn exchange(
        &self,
        name: &Name,
        rtype: WireType,
        recursive: bool,
        until: Instant,
    ) -> Result<Message, LookupError> {
        let server = || self.label.clone();
        let paused = |Paused { error: why, retry_after }| LookupError::Paused { server: server(), why, retry_after };
        self.breaker.admit().map_err(paused)?;
        let was_silent = self.last_failure().is_some();
        // A caller that gives up leaves no trial behind.
        let admitted = Admitted(&self.breaker);
        let result = self.transport.exchange(name, rtype, recursive, until).await;
        let slow = matches!(result, Err(Failure::Timeout)) && self.answers_at_all().await;
        std::mem::forget(admitted);
        match result {
            Ok(message) => {
                self.breaker.succeeded();
                Ok(message)
            }
            Err(Failure::Unreadable(why)) => {
                self.breaker.succeeded();
                Err(LookupError::BadAnswer { server: server(), why })
            }
            Err(Failure::Timeout) if slow && was_silent => {
                // It answers again since a moment ago: the question was sent before, and tells nothing about the name.
                self.breaker.succeeded();
                Err(LookupError::Unreachable { server: server(), why: SILENT.to_owned() })
            }
            Err(Failure::Timeout) if slow => {
                self.breaker.succeeded();
                Err(LookupError::Timeout { server: server(), after: self.deadline })
            }
            Err(Failure::Timeout) => Err(self.unreachable(SILENT.to_owned())),
            Err(Failure::Network(error)) => Err(self.unreachable(error.to_string())),
        }
    }

    /// Whether the server answers something that every server can answer at once, if only with a refusal. A name that takes too long is then not
    /// the server's failure.
    async fn answers_at_all(&self) -> bool {
        let until = Instant::now() + PROBE;
        self.transport.exchange(&Name::root(), WireType::NS, false, until).await.is_ok()
    }

    fn unreachable(&self, why: String) -> LookupError {
        self.breaker.failed(why.clone(), false);
        LookupError::Unreachable { server: self.label.clone(), why }
    }

    fn unreadable(&self, error: Unreadable) -> LookupError {
        let server = self.label.clone();
        match error {
            Unreadable::Loop(last) => LookupError::CnameLoop { server, last },
            Unreadable::Value(why) => LookupError::BadAnswer { server, why },
        }
    }
}

/// The last two labels of a name; `None` where a resolver may answer for itself.
fn domain(name: &Fqdn) -> Option<Fqdn> {
    let (mut domain, mut above) = (name.clone(), name.parent()?);
    loop {
        let next = above.parent()?;
        if next.is_root() {
            return (!OWN.contains(&above.undotted())).then_some(domain);
        }
        (domain, above) = (above, next);
    }
}

/// A label that nobody has asked for before.
fn unknown_label() -> String {
    format!("signpost-{:016x}", RandomState::new().build_hasher().finish())
}

/// Tells the breaker when a question is given up.
struct Admitted<'a>(&'a Breaker<String>);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.abandoned();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test reports a failed step by panicking.
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_is_given_up_at_any_moment_is_repeated() {
        // Nobody reads from it.
        let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let deadline = Duration::from_secs(2);
        let server = Server::new(silent.local_addr().unwrap(), "silent", deadline);
        let name = Fqdn::parse("www.example.org").unwrap();
        for _ in 0..5 {
            server.breaker.failed("no answer".into(), false);
        }
        assert!(matches!(server.ask(&name, RecordType::A, true).await, Err(LookupError::Paused { .. })));
        tokio::time::advance(Duration::from_secs(1)).await;
        for given_up in [deadline / 2, deadline + PROBE / 2] {
            let trial = tokio::time::timeout(given_up, server.ask(&name, RecordType::A, true)).await;
            assert!(trial.is_err(), "given up while it waits: {trial:?}");
        }
        let error = server.ask(&name, RecordType::A, true).await.unwrap_err();
        assert!(matches!(error, LookupError::Unreachable { .. }), "it is asked again: {error}");
    }
}
