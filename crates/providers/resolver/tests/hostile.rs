//! A server that lies, is silent, truncates, loops, answers late, with the wrong id, from the wrong address, or with far too much.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, NS, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType as WireType};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_provider_resolver::{Answer, Lookup, LookupError, Options, Rcode, Reply, Resolvers, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// Longer than any exchange on a loaded machine.
const PATIENT: Duration = Duration::from_mins(1);

fn name(text: &str) -> Fqdn {
    Fqdn::parse(text).unwrap()
}

fn address(last: u8) -> Rdata {
    Rdata::A(Ipv4Addr::new(192, 0, 2, last))
}

/// The answer to a question, with these records.
fn answer(question: &Message, records: Vec<Record>) -> Message {
    let mut answer = question.clone().into_response();
    answer.metadata.recursion_available = true;
    answer.add_answers(records);
    answer
}

fn record(owner: &str, data: RData) -> Record {
    let mut owner = Name::from_ascii(owner).unwrap();
    owner.set_fqdn(true);
    Record::from_rdata(owner, 60, data)
}

fn a(owner: &str, last: u8) -> Record {
    record(owner, RData::A(A(Ipv4Addr::new(192, 0, 2, last))))
}

fn cname(owner: &str, target: &str) -> Record {
    let mut target = Name::from_ascii(target).unwrap();
    target.set_fqdn(true);
    record(owner, RData::CNAME(CNAME(target)))
}

/// What a server sends for a datagram, from its own socket.
type Datagrams = Arc<dyn Fn(&Message, usize) -> Vec<Vec<u8>> + Send + Sync>;

/// A server on a loopback port. Returns its address and how many questions it got.
async fn server(datagrams: Datagrams, streamed: Option<Datagrams>) -> (SocketAddr, Arc<AtomicUsize>) {
    let (address, asked, listener) = over_udp(datagrams).await;
    if let Some(streamed) = streamed {
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let length = stream.read_u16().await.unwrap();
                let mut buffer = vec![0; usize::from(length)];
                stream.read_exact(&mut buffer).await.unwrap();
                for message in streamed(&Message::from_vec(&buffer).unwrap(), 0) {
                    let length = u16::try_from(message.len()).unwrap();
                    stream.write_all(&length.to_be_bytes()).await.unwrap();
                    stream.write_all(&message).await.unwrap();
                }
            }
        });
    }
    (address, asked)
}

/// The same over UDP only, with whoever listens for TCP on the same port.
async fn over_udp(datagrams: Datagrams) -> (SocketAddr, Arc<AtomicUsize>, TcpListener) {
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
            break (listener, socket);
        }
    };
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = asked.clone();
    tokio::spawn(async move {
        let mut buffer = vec![0; 4096];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let number = counter.fetch_add(1, Ordering::SeqCst);
            let question = Message::from_vec(&buffer[..length]).unwrap();
            for datagram in datagrams(&question, number) {
                socket.send_to(&datagram, from).await.unwrap();
            }
        }
    });
    (address, asked, listener)
}

fn resolvers(address: SocketAddr, deadline: Duration) -> Resolvers {
    Resolvers::new(&Options { resolvers: vec![Upstream::Server(address)], deadline, ..Options::default() })
}

async fn ask(resolvers: &Resolvers, text: &str, rtype: RecordType) -> Result<Answer, LookupError> {
    let replies: [Reply; 1] = resolvers.lookup(&name(text), rtype).await.try_into().unwrap();
    let [Reply { result, .. }] = replies;
    result
}

#[tokio::test]
async fn an_answer_has_values_ttl_code_and_server() {
    let datagrams: Datagrams = Arc::new(|question, _| {
        vec![answer(question, vec![a("www.example.org.", 2), a("www.example.org.", 1)]).to_vec().unwrap()]
    });
    let (at, _) = server(datagrams, None).await;
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
    assert_eq!((answer.rcode, answer.ttl), (Rcode::NoError, Some(60)));
    assert_eq!(answer.values, [address(1), address(2)], "sorted");
    assert_eq!(*answer.server, *at.to_string());
}

#[tokio::test]
async fn records_of_another_name_are_not_taken() {
    let datagrams: Datagrams =
        Arc::new(|question, _| vec![answer(question, vec![a("evil.example.net.", 66)]).to_vec().unwrap()]);
    let (at, _) = server(datagrams, None).await;
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
    assert_eq!((answer.rcode, answer.values), (Rcode::NoError, vec![]));
}

#[tokio::test]
async fn forged_answers_are_dropped_until_the_true_one_arrives() {
    let datagrams: Datagrams = Arc::new(|question, _| {
        let mut wrong_id = answer(question, vec![a("www.example.org.", 66)]);
        wrong_id.metadata.id = question.metadata.id.wrapping_add(1);
        let mut other = answer(question, vec![a("www.example.org.", 66)]);
        other.queries[0].name = Name::from_ascii("other.example.org.").unwrap();
        let not_an_answer = question.to_vec().unwrap();
        let right = answer(question, vec![a("www.example.org.", 1)]);
        vec![
            wrong_id.to_vec().unwrap(),
            other.to_vec().unwrap(),
            not_an_answer,
            b"junk".to_vec(),
            right.to_vec().unwrap(),
        ]
    });
    let (at, _) = server(datagrams, None).await;
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
    assert_eq!(answer.values, [address(1)]);
}

#[tokio::test]
async fn an_answer_from_another_address_is_dropped() {
    // The server hears the question and another socket answers it first.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let forger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut buffer = vec![0; 4096];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let question = Message::from_vec(&buffer[..length]).unwrap();
            let forged = answer(&question, vec![a("www.example.org.", 66)]).to_vec().unwrap();
            forger.send_to(&forged, from).await.unwrap();
            let right = answer(&question, vec![a("www.example.org.", 1)]).to_vec().unwrap();
            socket.send_to(&right, from).await.unwrap();
        }
    });
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
    assert_eq!(answer.values, [address(1)]);
}

#[tokio::test]
async fn a_lost_question_is_sent_again() {
    let datagrams: Datagrams = Arc::new(|question, number| match number {
        0 => vec![],
        _ => vec![answer(question, vec![a("www.example.org.", 1)]).to_vec().unwrap()],
    });
    let (at, asked) = server(datagrams, None).await;
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
    assert_eq!(answer.values, [address(1)]);
    assert!(asked.load(Ordering::SeqCst) >= 2);
}

#[tokio::test]
async fn a_silent_server_is_unreachable_and_then_is_not_asked_for_a_while() {
    let (at, asked) = server(Arc::new(|_, _| vec![]), None).await;
    let resolvers = resolvers(at, Duration::from_millis(100));
    for _ in 0..5 {
        let error = ask(&resolvers, "www.example.org", RecordType::A).await.unwrap_err();
        assert!(matches!(error, LookupError::Unreachable { .. }) && error.is_outage(), "{error}");
    }
    let before = asked.load(Ordering::SeqCst);
    let error = ask(&resolvers, "www.example.org", RecordType::A).await.unwrap_err();
    assert!(matches!(error, LookupError::Paused { .. }) && error.is_outage(), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), before, "a paused server is not asked");
    assert!(resolvers.health()[0].failure.is_some());
}

#[tokio::test]
async fn names_that_take_too_long_are_a_timeout_of_the_name_not_of_the_server() {
    let root = WireType::NS;
    let datagrams: Datagrams = Arc::new(move |question, _| {
        let mut refused = answer(question, vec![]);
        refused.metadata.response_code = ResponseCode::Refused;
        (question.queries[0].query_type == root).then(|| refused.to_vec().unwrap()).into_iter().collect()
    });
    let (at, _) = server(datagrams, None).await;
    let resolvers = resolvers(at, Duration::from_millis(100));
    for _ in 0..8 {
        let error = ask(&resolvers, "slow.example.org", RecordType::A).await.unwrap_err();
        assert!(matches!(error, LookupError::Timeout { .. }) && !error.is_outage(), "{error}");
    }
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let at = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap_err();
    assert!(matches!(error, LookupError::Unreachable { .. }) && error.is_outage(), "{error}");
}

#[tokio::test]
async fn a_truncated_answer_is_asked_again_over_tcp() {
    let cut: Datagrams = Arc::new(|question, _| {
        let mut cut = answer(question, vec![a("www.example.org.", 1), a("www.example.org.", 2)]);
        cut.metadata.truncation = true;
        let mut octets = cut.to_vec().unwrap();
        // Within a record, as some servers do.
        octets.truncate(octets.len() - 20);
        vec![octets]
    });
    let whole: Datagrams = Arc::new(|question, _| {
        let records = (0..2000_u16).map(|n| {
            let [high, low] = n.to_be_bytes();
            record("www.example.org.", RData::A(A(Ipv4Addr::new(10, 0, high, low))))
        });
        vec![answer(question, records.collect()).to_vec().unwrap()]
    });
    let (at, _) = server(cut, Some(whole)).await;
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
    assert_eq!(answer.values.len(), 2000);
}

#[tokio::test]
async fn an_answer_that_promises_more_records_than_it_has_is_refused() {
    let liar: Datagrams = Arc::new(|question, _| {
        let mut octets = answer(question, vec![a("www.example.org.", 1)]).to_vec().unwrap();
        octets[6..8].copy_from_slice(&10_000_u16.to_be_bytes());
        vec![octets]
    });
    let (at, _) = server(cut_off(), Some(liar)).await;
    let error = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap_err();
    assert!(matches!(error, LookupError::BadAnswer { .. }), "{error}");
}

/// A datagram that is truncated, without a record.
fn cut_off() -> Datagrams {
    Arc::new(|question, _| {
        let mut cut = answer(question, vec![]);
        cut.metadata.truncation = true;
        vec![cut.to_vec().unwrap()]
    })
}

/// 4,000 of the 10,000 records of a name are in a message, which is marked as truncated: more than 5,957 records never fit into one.
#[tokio::test]
async fn a_part_of_10_000_records_is_not_an_answer() {
    let part: Datagrams = Arc::new(|question, _| {
        let records = (0..4_000_u16).map(|number| {
            let [high, low] = number.to_be_bytes();
            record("www.example.org.", RData::A(A(Ipv4Addr::new(10, 0, high, low))))
        });
        let mut answer = answer(question, records.collect());
        answer.metadata.truncation = true;
        vec![answer.to_vec().unwrap()]
    });
    let (at, _) = server(cut_off(), Some(part)).await;
    let error = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap_err();
    assert!(matches!(error, LookupError::BadAnswer { .. }) && !error.is_outage(), "{error}");
    assert!(error.to_string().contains("more records than a message"), "{error}");
}

#[tokio::test]
async fn a_server_without_tcp_works_although_its_answer_is_truncated() {
    for resets in [false, true] {
        let (at, _, listener) = over_udp(cut_off()).await;
        if resets {
            tokio::spawn(async move {
                loop {
                    // What arrived is not read, so the connection is reset.
                    let (stream, _) = listener.accept().await.unwrap();
                    stream.readable().await.unwrap();
                }
            });
        } else {
            drop(listener);
        }
        let resolvers = resolvers(at, PATIENT);
        for _ in 0..8 {
            let error = ask(&resolvers, "www.example.org", RecordType::A).await.unwrap_err();
            assert!(matches!(error, LookupError::BadAnswer { .. }) && !error.is_outage(), "{error}");
            assert!(error.to_string().contains("it is truncated"), "{error}");
        }
        assert_eq!(resolvers.health()[0].failure, None);
    }
}

/// An answer of 4,000 records of one type, compressed: the data of the first one may be long, and that of the others is four octets.
fn compressed(question: &Message, first: &[u8], other: impl Fn(u16) -> [u8; 4]) -> Vec<u8> {
    let mut answer = answer(question, Vec::new());
    answer.edns = None;
    let rtype = u16::from(question.queries[0].query_type);
    let mut octets = answer.to_vec().unwrap();
    octets[6..8].copy_from_slice(&4_000_u16.to_be_bytes());
    let mut add = |data: &[u8]| {
        // The name of the question, the type, the class, a minute.
        octets.extend([0xc0, 12].into_iter().chain(rtype.to_be_bytes()).chain([0, 1, 0, 0, 0, 60]));
        octets.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        octets.extend(data);
    };
    add(first);
    (1..4_000).for_each(|number| add(&other(number)));
    octets
}

#[tokio::test]
async fn the_largest_set_of_addresses_is_read_and_values_of_a_megabyte_are_not() {
    // 4,000 mail servers with names of 241 octets, each two octets long in the message.
    let label = [&[59][..], &[b'a'; 59]].concat();
    let host = [label.repeat(4).as_slice(), &[0]].concat();
    let large: Datagrams = Arc::new(move |question, _| {
        let octets = match question.queries[0].query_type {
            WireType::MX => {
                let first = [&[0, 0][..], &host].concat();
                // The header and the question, then the first record up to its name.
                let mut head = answer(question, Vec::new());
                head.edns = None;
                let at = u16::try_from(head.to_vec().unwrap().len() + 12 + 2).unwrap() | 0xc000;
                compressed(question, &first, |number| {
                    let ([a, b], [c, d]) = (number.to_be_bytes(), at.to_be_bytes());
                    [a, b, c, d]
                })
            }
            _ => compressed(question, &[10, 0, 0, 0], |number| (0x0a00_0000 + u32::from(number)).to_be_bytes()),
        };
        vec![octets]
    });
    let (at, _) = server(cut_off(), Some(large)).await;
    let resolvers = resolvers(at, PATIENT);
    assert_eq!(ask(&resolvers, "www.example.org", RecordType::A).await.unwrap().values.len(), 4_000);
    let error = ask(&resolvers, "www.example.org", RecordType::Mx).await.unwrap_err();
    assert!(matches!(error, LookupError::BadAnswer { .. }) && !error.is_outage(), "{error}");
    assert!(error.to_string().contains("more than 256 KiB"), "{error}");
}

#[tokio::test]
async fn aliases_are_followed_hop_by_hop_over_several_answers() {
    let datagrams: Datagrams = Arc::new(|question, _| {
        let records = match question.queries[0].name.to_string().as_str() {
            "www.example.org." => {
                vec![cname("www.example.org.", "a.example.org."), cname("a.example.org.", "b.example.net.")]
            }
            "b.example.net." => vec![a("b.example.net.", 7)],
            other => panic!("{other} was not expected"),
        };
        vec![answer(question, records).to_vec().unwrap()]
    });
    let (at, _) = server(datagrams, None).await;
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
    assert_eq!(answer.chain, [name("a.example.org"), name("b.example.net")]);
    assert_eq!(answer.values, [address(7)]);
}

#[tokio::test]
async fn a_question_for_the_alias_itself_is_not_followed() {
    let datagrams: Datagrams = Arc::new(|question, _| {
        vec![
            answer(
                question,
                vec![cname("www.example.org.", "A.example.org."), cname("a.example.org.", "b.example.org.")],
            )
            .to_vec()
            .unwrap(),
        ]
    });
    let (at, _) = server(datagrams, None).await;
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::Cname).await.unwrap();
    assert_eq!((answer.values, answer.chain), (vec![Rdata::Cname(name("a.example.org"))], vec![]));
}

#[tokio::test]
async fn a_loop_of_aliases_ends_in_one_answer_and_over_several() {
    let within: Datagrams = Arc::new(|question, _| {
        vec![
            answer(
                question,
                vec![cname("www.example.org.", "a.example.org."), cname("a.example.org.", "www.example.org.")],
            )
            .to_vec()
            .unwrap(),
        ]
    });
    let across: Datagrams = Arc::new(|question, _| {
        let asked = question.queries[0].name.to_string();
        let next = if asked.starts_with("www") { "a.example.org." } else { "www.example.org." };
        vec![answer(question, vec![cname(&asked, next)]).to_vec().unwrap()]
    });
    let endless: Datagrams = Arc::new(|question, number| {
        let asked = question.queries[0].name.to_string();
        vec![answer(question, vec![cname(&asked, &format!("n{number}.example.org."))]).to_vec().unwrap()]
    });
    for datagrams in [within, across, endless] {
        let (at, asked) = server(datagrams, None).await;
        let error = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap_err();
        assert!(matches!(error, LookupError::CnameLoop { .. }), "{error}");
        assert!(asked.load(Ordering::SeqCst) < 40);
    }
}

#[tokio::test]
async fn a_server_without_edns_is_asked_without_it() {
    let datagrams: Datagrams = Arc::new(|question, _| {
        let mut answer = answer(question, vec![a("www.example.org.", 1)]);
        if question.edns.is_some() {
            answer.edns = None;
            answer.answers.clear();
            answer.metadata.response_code = ResponseCode::FormErr;
        }
        vec![answer.to_vec().unwrap()]
    });
    let (at, _) = server(datagrams, None).await;
    let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
    assert_eq!(answer.values, [address(1)]);
}

#[tokio::test]
async fn response_codes_are_kept_apart() {
    for (code, expected) in [
        (ResponseCode::NXDomain, Rcode::NxDomain),
        (ResponseCode::ServFail, Rcode::ServFail),
        (ResponseCode::Refused, Rcode::Refused),
        (ResponseCode::NotAuth, Rcode::Other(9)),
    ] {
        // For this name only: a server that fails for every name does not work.
        let datagrams: Datagrams = Arc::new(move |question, _| {
            let mut failed = answer(question, vec![]);
            if question.queries[0].name.to_string() == "www.example.org." {
                failed.metadata.response_code = code;
            }
            vec![failed.to_vec().unwrap()]
        });
        let (at, _) = server(datagrams, None).await;
        let answer = ask(&resolvers(at, PATIENT), "www.example.org", RecordType::A).await.unwrap();
        assert_eq!(answer.rcode, expected);
    }
}

#[tokio::test]
async fn a_server_works_unless_it_fails_for_every_name() {
    for code in [ResponseCode::ServFail, ResponseCode::Refused] {
        let down = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_down = down.clone();
        let datagrams: Datagrams = Arc::new(move |question, _| {
            let good = question.queries[0].name.to_string().ends_with(".example.net.");
            let works = good && !is_down.load(std::sync::atomic::Ordering::SeqCst);
            let mut message = answer(question, if works { vec![a("good.example.net.", 1)] } else { vec![] });
            if !works {
                message.metadata.response_code = code;
            }
            vec![message.to_vec().unwrap()]
        });
        let (at, _) = server(datagrams, None).await;
        let resolvers = resolvers(at, PATIENT);
        // Nothing is known to be answered, and the root is not either.
        let error = ask(&resolvers, "www.example.org", RecordType::A).await.unwrap_err();
        assert!(error.is_outage() && error.to_string().contains("for every name"), "{error}");
        assert_eq!(ask(&resolvers, "good.example.net", RecordType::A).await.unwrap().values, [address(1)]);
        assert!(matches!(
            ask(&resolvers, "www.example.org", RecordType::A).await.unwrap().rcode,
            Rcode::ServFail | Rcode::Refused
        ));
        down.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(ask(&resolvers, "www.example.org", RecordType::A).await.unwrap_err().is_outage());
        // What a server was asked for that has the names itself is its own answer.
        let options =
            Options { resolvers: vec![Upstream::Server(at)], deadline: PATIENT, forwards: false, ..Options::default() };
        let own = ask(&Resolvers::new(&options), "www.example.org", RecordType::A).await.unwrap();
        assert!(matches!(own.rcode, Rcode::ServFail | Rcode::Refused));
    }
}

#[tokio::test]
async fn no_more_questions_are_open_than_allowed() {
    // Nobody is answered before three questions are there; a fourth would have come by then.
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let at = socket.local_addr().unwrap();
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    tokio::spawn(async move {
        let mut buffer = vec![0; 4096];
        let mut waiting: Vec<(Message, SocketAddr)> = Vec::new();
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let question = Message::from_vec(&buffer[..length]).unwrap();
            if !waiting.iter().any(|(open, _)| open.queries == question.queries) {
                waiting.push((question, from));
            }
            seen.fetch_max(waiting.len(), Ordering::SeqCst);
            if waiting.len() >= 3 {
                for (question, from) in waiting.drain(..) {
                    let owner = question.queries[0].name.to_string();
                    socket.send_to(&answer(&question, vec![a(&owner, 1)]).to_vec().unwrap(), from).await.unwrap();
                }
            }
        }
    });
    let options =
        Options { resolvers: vec![Upstream::Server(at)], concurrency: 3, deadline: PATIENT, ..Options::default() };
    let resolvers = Resolvers::new(&options);
    let names: Vec<Fqdn> = (0..30).map(|n| name(&format!("n{n}.example.org"))).collect();
    let all = futures::future::join_all(names.iter().map(|name| resolvers.lookup(name, RecordType::A))).await;
    assert!(all.iter().flatten().all(|reply| reply.result.is_ok()));
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_system_without_a_name_server_has_nobody_to_ask() {
    let folder = std::env::temp_dir().join(format!("signpost-resolv-{}", std::process::id()));
    std::fs::write(&folder, "nameserver\n").unwrap();
    let options = Options { resolvers: vec![Upstream::System], system: folder.clone(), ..Options::default() };
    let error = ask(&Resolvers::new(&options), "www.example.org", RecordType::A).await.unwrap_err();
    std::fs::remove_file(&folder).unwrap();
    assert!(matches!(error, LookupError::NoServer { .. }) && error.is_outage(), "{error}");
}

/// A guide that knows `example.org`, with a name server on 127.0.0.1, and `www.example.org` as an alias into `example.net`.
fn guide() -> Datagrams {
    Arc::new(|question, _| {
        let zone = |name: &str| {
            let host = Name::from_ascii("ns.example.org.").unwrap();
            record(name, RData::SOA(SOA::new(host.clone(), host, 1, 60, 60, 60, 60)))
        };
        let alias = || cname("www.example.org.", "lb.example.net.");
        let asked = &question.queries[0];
        let mut message = answer(question, vec![]);
        match (asked.name.to_string().as_str(), asked.query_type) {
            ("www.example.org.", WireType::SOA) => {
                message.add_answers([alias()]);
                message.add_authorities([zone("example.net.")]);
            }
            ("www.example.org.", _) => drop(message.add_answers([alias()])),
            ("example.org.", WireType::SOA) => drop(message.add_answers([zone("example.org.")])),
            ("example.org.", WireType::NS) => {
                let host = Name::from_ascii("ns.example.org.").unwrap();
                message.add_answers([record("example.org.", RData::NS(NS(host)))]);
            }
            ("ns.example.org.", WireType::A) => {
                message.add_answers([record("ns.example.org.", RData::A(A(Ipv4Addr::LOCALHOST)))]);
            }
            ("lb.example.net.", WireType::A) => drop(message.add_answers([a("lb.example.net.", 5)])),
            ("broken.example.org.", _) => message.metadata.response_code = ResponseCode::ServFail,
            _ => {}
        }
        vec![message.to_vec().unwrap()]
    })
}

/// The same, and the host of the name server has no address; `silent` is without an answer for it.
fn guide_without_address(silent: bool) -> Datagrams {
    let guide = guide();
    Arc::new(move |question, number| match question.queries[0].name.to_string().as_str() {
        "ns.example.org." if silent => vec![],
        "ns.example.org." => vec![answer(question, vec![]).to_vec().unwrap()],
        _ => guide(question, number),
    })
}

/// The name servers of zones, on this port.
async fn of_zones(guide: SocketAddr, port: u16, text: &str) -> Vec<Result<Answer, LookupError>> {
    let resolvers = vec![Upstream::Server(guide), Upstream::Authoritative];
    let options = Options { resolvers, deadline: PATIENT, authoritative_port: port, ..Options::default() };
    let replies = Resolvers::new(&options).lookup(&name(text), RecordType::A).await;
    replies.into_iter().filter(|reply| &*reply.resolver == "authoritative").map(|reply| reply.result).collect()
}

#[tokio::test]
async fn a_lookup_at_the_servers_of_a_zone_does_not_wait_for_those_after_it() {
    let (seen, guide) = (Arc::new(std::sync::Mutex::new(Vec::new())), guide());
    let noted = seen.clone();
    let noting: Datagrams = Arc::new(move |question, number| {
        noted.lock().unwrap().push((question.queries[0].name.to_string(), question.queries[0].query_type));
        guide(question, number)
    });
    let (at, _) = server(noting, None).await;
    let options = Options {
        resolvers: vec![Upstream::Server(at), Upstream::Authoritative],
        concurrency: 1,
        deadline: PATIENT,
        authoritative_port: at.port(),
        ..Options::default()
    };
    let resolvers = Resolvers::new(&options);
    let names = ["one.example.org", "two.example.org", "three.example.org"].map(name);
    futures::future::join_all(names.iter().map(|name| resolvers.lookup(name, RecordType::A))).await;
    let seen = seen.lock().unwrap();
    let last = |name: &str| seen.iter().rposition(|asked| *asked == (name.to_owned(), WireType::A)).unwrap();
    let first = |name: &str| seen.iter().position(|asked| *asked == (name.to_owned(), WireType::SOA)).unwrap();
    assert!(last("one.example.org.") < first("two.example.org."), "{seen:?}");
    assert!(last("two.example.org.") < first("three.example.org."), "{seen:?}");
}

#[tokio::test]
async fn a_slow_resolver_takes_no_time_from_lookups_at_the_servers_of_a_zone() {
    let (asked, mut at_zone) = tokio::sync::mpsc::unbounded_channel();
    let guide = guide();
    let noting: Datagrams = Arc::new(move |question, number| {
        let query = &question.queries[0];
        // The guide is asked with recursion, the name server of the zone without.
        if query.query_type == WireType::A && !question.metadata.recursion_desired {
            let _ = asked.send(query.name.to_string());
        }
        guide(question, number)
    });
    let (at, _) = server(noting, None).await;
    // Nobody reads from it.
    let slow = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        resolvers: vec![Upstream::Server(at), Upstream::Server(slow.local_addr().unwrap()), Upstream::Authoritative],
        concurrency: 2,
        deadline: PATIENT,
        authoritative_port: at.port(),
        ..Options::default()
    };
    let resolvers = Resolvers::new(&options);
    let names = ["one.example.org", "two.example.org", "three.example.org"].map(name);
    let lookups = futures::future::join_all(names.iter().map(|name| resolvers.lookup(name, RecordType::A)));
    let all_asked = async {
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 3 {
            seen.extend(at_zone.recv().await);
        }
    };
    tokio::select! {
        _ = lookups => panic!("the slow resolver has answered"),
        asked = tokio::time::timeout(PATIENT / 2, all_asked) => asked.unwrap(),
    }
}

#[tokio::test]
async fn an_alias_into_another_zone_is_asked_at_its_own_zone() {
    let (at, _) = server(guide(), None).await;
    let replies = of_zones(at, at.port(), "www.example.org").await;
    let [Ok(answer)] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!(*answer.server, *"ns.example.org (127.0.0.1)");
    assert_eq!((&answer.chain[..], &answer.values[..]), (&[name("lb.example.net")][..], &[address(5)][..]));
}

#[tokio::test]
async fn a_zone_that_fails_is_not_looked_for_at_its_parent() {
    let (at, _) = server(guide(), None).await;
    let replies = of_zones(at, at.port(), "broken.example.org").await;
    // The guide answers for other names, so the zone itself fails.
    let [Ok(answer)] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!((answer.rcode, answer.values.len()), (Rcode::ServFail, 0));
}

#[tokio::test]
async fn a_zone_whose_name_servers_are_all_dead_is_no_outage_of_the_resolver() {
    let (at, _) = server(guide(), None).await;
    let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let replies = of_zones(at, closed, "www.example.org").await;
    let [Err(error)] = &replies[..] else { panic!("{replies:?}") };
    assert!(matches!(error, LookupError::Timeout { .. }) && !error.is_outage(), "{error}");
}

#[tokio::test]
async fn a_zone_whose_name_servers_have_no_address_is_a_timeout_of_its_names() {
    let (at, _) = server(guide_without_address(false), None).await;
    let replies = of_zones(at, at.port(), "www.example.org").await;
    let [Err(error)] = &replies[..] else { panic!("{replies:?}") };
    assert!(matches!(error, LookupError::Timeout { .. }) && !error.is_outage(), "{error}");
}

#[tokio::test]
async fn name_servers_whose_addresses_nobody_tells_are_an_outage() {
    let (at, _) = server(guide_without_address(true), None).await;
    let resolvers = vec![Upstream::Server(at), Upstream::Authoritative];
    let deadline = Duration::from_secs(2);
    let options = Options { resolvers, deadline, authoritative_port: at.port(), ..Options::default() };
    let replies = Resolvers::new(&options).lookup(&name("www.example.org"), RecordType::A).await;
    let error = replies.iter().find_map(|reply| reply.result.as_ref().err()).unwrap();
    assert!(matches!(error, LookupError::NoServer { .. }) && error.is_outage(), "{error}");
}
