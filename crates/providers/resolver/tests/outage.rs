//! A resolver that fails for a name, and one that fails because the server behind it does not work.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use signpost_dns::{Fqdn, RecordType};
use signpost_provider_resolver::{Answer, Lookup, LookupError, Options, Rcode, Resolvers, Upstream};
use tokio::net::UdpSocket;

/// Longer than any exchange on a loaded machine.
const PATIENT: Duration = Duration::from_mins(1);

/// What a forwarder answers for a name, given as text without the last dot: a code, or nothing at all.
type Mood = Arc<dyn Fn(&str) -> Option<ResponseCode> + Send + Sync>;

/// A forwarder with a cache: what it answered once, it answers again, whatever its server does meanwhile.
struct Forwarder {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Forwarder {
    async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mood: Arc<Mutex<Mood>> = Arc::new(Mutex::new(Arc::new(|_| Some(ResponseCode::NoError))));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (now, seen) = (mood.clone(), asked.clone());
        tokio::spawn(async move {
            let (mut buffer, mut cache) = (vec![0; 4096], Vec::new());
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let question = Message::from_vec(&buffer[..length]).unwrap();
                let name = question.queries[0].name.to_string().trim_end_matches('.').to_owned();
                seen.lock().unwrap().push(name.clone());
                let cached = cache.contains(&name);
                let mood = now.lock().unwrap().clone();
                let Some(code) = (if cached { Some(ResponseCode::NoError) } else { mood(&name) }) else { continue };
                let mut answer = question.clone().into_response();
                answer.metadata.response_code = code;
                if code == ResponseCode::NoError {
                    let address = RData::A(A(Ipv4Addr::new(192, 0, 2, 1)));
                    answer.add_answers([Record::from_rdata(question.queries[0].name.clone(), 60, address)]);
                    cache.push(name);
                }
                socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            }
        });
        Self { address, mood, asked }
    }

    fn set(&self, mood: impl Fn(&str) -> Option<ResponseCode> + Send + Sync + 'static) {
        *self.mood.lock().unwrap() = Arc::new(mood);
    }

    fn resolvers(&self, change: impl FnOnce(&mut Options)) -> Resolvers {
        let resolvers = vec![Upstream::Server(self.address)];
        let mut options = Options { resolvers, deadline: PATIENT, ..Options::default() };
        change(&mut options);
        Resolvers::new(&options)
    }
}

async fn ask(resolvers: &Resolvers, name: &str) -> Result<Answer, LookupError> {
    let replies = resolvers.lookup(&Fqdn::parse(name).unwrap(), RecordType::A).await;
    replies.into_iter().next().unwrap().result
}

async fn is_answered(resolvers: &Resolvers, names: &[&str]) {
    for name in names {
        assert_eq!(ask(resolvers, name).await.unwrap().rcode, Rcode::NoError, "{name}");
    }
}

fn is_outage(result: &Result<Answer, LookupError>) {
    let Err(error) = result else { panic!("{result:?}") };
    assert!(error.is_outage() && error.to_string().contains("it fails for every name"), "{error}");
}

#[tokio::test]
async fn a_forwarder_without_its_server_is_an_outage_despite_cached_names() {
    let forwarder = Forwarder::start().await;
    let resolvers = forwarder.resolvers(|_| {});
    is_answered(&resolvers, &["www.example.org", "www.example.net", "db.apps.svc.cluster.local"]).await;
    for code in [ResponseCode::ServFail, ResponseCode::Refused] {
        // Names of the cluster are its own, and are still answered.
        forwarder.set(move |name| Some(if name.ends_with("cluster.local") { ResponseCode::NXDomain } else { code }));
        is_outage(&ask(&resolvers, "api.example.org").await);
        is_outage(&ask(&resolvers, "www.example.com").await);
        is_answered(&resolvers, &["www.example.org"]).await;
    }
    forwarder.set(|_| Some(ResponseCode::NoError));
    is_answered(&resolvers, &["api.example.org"]).await;
}

#[tokio::test]
async fn a_failure_of_one_name_or_of_one_zone_is_its_own() {
    let forwarder = Forwarder::start().await;
    let resolvers = forwarder.resolvers(|_| {});
    is_answered(&resolvers, &["www.example.org", "www.example.net"]).await;
    let rcode = |result: Result<Answer, LookupError>| result.unwrap().rcode;
    forwarder
        .set(|name| Some(if name == "broken.example.org" { ResponseCode::ServFail } else { ResponseCode::NoError }));
    assert_eq!(rcode(ask(&resolvers, "broken.example.org").await), Rcode::ServFail);
    forwarder
        .set(|name| Some(if name.ends_with("example.org") { ResponseCode::ServFail } else { ResponseCode::NXDomain }));
    assert_eq!(rcode(ask(&resolvers, "other.example.org").await), Rcode::ServFail);
    // The only zone that it was ever asked for: then the root tells.
    let alone = forwarder.resolvers(|_| {});
    assert_eq!(rcode(ask(&alone, "other.example.org").await), Rcode::ServFail);
}

#[tokio::test]
async fn a_name_server_that_is_down_is_not_an_outage_of_the_resolver() {
    let forwarder = Forwarder::start().await;
    let dead = |zones: &'static [&'static str]| {
        let fails = move |name: &str| zones.iter().any(|zone| name.ends_with(zone));
        forwarder.set(move |name| Some(if fails(name) { ResponseCode::ServFail } else { ResponseCode::NXDomain }));
    };
    // Two of three zones are on the name server that is down, then all three.
    let zones: [&'static [&'static str]; 2] =
        [&["example.org", "example.net"], &["example.org", "example.net", "example.edu"]];
    for zones in zones {
        forwarder.set(|_| Some(ResponseCode::NoError));
        let resolvers = forwarder.resolvers(|_| {});
        is_answered(&resolvers, &["www.example.org", "www.example.net", "www.example.edu"]).await;
        dead(zones);
        for name in ["api.example.org", "api.example.net", "shop.example.org"] {
            assert_eq!(ask(&resolvers, name).await.unwrap().rcode, Rcode::ServFail, "{name} of {zones:?}");
        }
    }
}

#[tokio::test]
async fn a_forwarder_that_is_silent_for_every_zone_is_an_outage() {
    let forwarder = Forwarder::start().await;
    let resolvers = forwarder.resolvers(|options| options.deadline = Duration::from_secs(2));
    is_answered(&resolvers, &["www.example.org", "www.example.net"]).await;
    // It answers at once that it does not ask for the root, as some do, and nothing else.
    let is_control = |name: &str| name.is_empty();
    forwarder.set(move |name| is_control(name).then_some(ResponseCode::Refused));
    is_outage(&ask(&resolvers, "api.example.org").await);
    forwarder.set(|name| (!name.starts_with("slow")).then_some(ResponseCode::NoError));
    let slow = ask(&resolvers, "slow.example.org").await;
    assert!(matches!(&slow, Err(LookupError::Timeout { .. })), "{slow:?}");
}

#[tokio::test]
async fn a_question_of_the_outage_is_not_a_slow_name_when_the_server_is_back() {
    let forwarder = Forwarder::start().await;
    let resolvers = forwarder.resolvers(|options| options.deadline = Duration::from_millis(200));
    forwarder.set(|_| None);
    let silent = ask(&resolvers, "www.example.org").await;
    assert!(silent.as_ref().is_err_and(LookupError::is_outage), "{silent:?}");
    // From now on it answers, except for one name: that is as if its question had come too early.
    forwarder.set(|name| (name != "www.example.org").then_some(ResponseCode::NoError));
    let back = ask(&resolvers, "www.example.org").await;
    assert!(back.as_ref().is_err_and(LookupError::is_outage), "{back:?}");
    // The name is slow, and not the server.
    let slow = ask(&resolvers, "www.example.org").await;
    assert!(matches!(&slow, Err(LookupError::Timeout { .. })), "{slow:?}");
}

#[tokio::test]
async fn a_failure_of_a_server_that_does_not_ask_others_is_its_answer() {
    let forwarder = Forwarder::start().await;
    forwarder.set(|_| Some(ResponseCode::Refused));
    let resolvers = forwarder.resolvers(|options| options.forwards = false);
    assert_eq!(ask(&resolvers, "www.example.org").await.unwrap().rcode, Rcode::Refused);
    assert_eq!(*forwarder.asked.lock().unwrap(), ["www.example.org"]);
}

#[tokio::test]
async fn names_that_fail_together_are_controlled_once() {
    let forwarder = Forwarder::start().await;
    let resolvers = forwarder.resolvers(|_| {});
    is_answered(&resolvers, &["www.example.org", "www.example.net"]).await;
    forwarder.set(|_| Some(ResponseCode::ServFail));
    let names: Vec<String> = (0..10).map(|number| format!("n{number}.example.org")).collect();
    let all = futures::future::join_all(names.iter().map(|name| ask(&resolvers, name))).await;
    all.iter().for_each(is_outage);
    let controls = forwarder.asked.lock().unwrap().iter().filter(|name| name.starts_with("signpost-")).count();
    assert_eq!(controls, 3, "one for each domain, and one below com");
}

#[tokio::test]
async fn a_guide_that_fails_for_every_name_is_an_outage_of_authoritative() {
    let forwarder = Forwarder::start().await;
    forwarder.set(|_| Some(ResponseCode::ServFail));
    let resolvers = forwarder.resolvers(|options| options.resolvers.push(Upstream::Authoritative));
    let replies = resolvers.lookup(&Fqdn::parse("www.example.org").unwrap(), RecordType::A).await;
    assert_eq!(replies.len(), 2);
    for reply in replies {
        is_outage(&reply.result);
    }
}
