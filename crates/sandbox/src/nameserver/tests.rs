//! Real questions over UDP and TCP.

use std::net::Ipv4Addr;

use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{Name, RecordType as WireType},
};
use signpost_dns::{RecordType, ZoneName};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

async fn server(zones: &[&str], sets: &[(&str, &str, &[&str])]) -> NameServer {
    let server = NameServer::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    for zone in zones {
        server.records().add_zone(&ZoneName::parse(zone).unwrap());
    }
    for (name, rtype, values) in sets {
        server.records().set(&set(name, rtype, values));
    }
    server
}

fn set(name: &str, rtype: &str, values: &[&str]) -> RecordSet {
    let rtype: RecordType = rtype.parse().unwrap();
    RecordSet::parse(Fqdn::parse(name).unwrap(), rtype, signpost_dns::Ttl::new(300).unwrap(), values).unwrap()
}

fn question(name: &str, rtype: WireType, edns: Option<u16>) -> Vec<u8> {
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    let mut name = Name::from_labels(name.split('.').filter(|label| !label.is_empty()).map(str::as_bytes)).unwrap();
    name.set_fqdn(true);
    message.add_query(Query::query(name, rtype));
    if let Some(payload) = edns {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.edns = Some(edns);
    }
    message.to_vec().unwrap()
}

async fn udp(server: &NameServer, name: &str, rtype: WireType, edns: Option<u16>) -> Message {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.send_to(&question(name, rtype, edns), server.addr()).await.unwrap();
    let mut buffer = vec![0; 65_535];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

async fn tcp(server: &NameServer, name: &str, rtype: WireType) -> Message {
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let asked = question(name, rtype, None);
    stream.write_all(&u16::try_from(asked.len()).unwrap().to_be_bytes()).await.unwrap();
    stream.write_all(&asked).await.unwrap();
    let length = tokio::time::timeout(PATIENCE, stream.read_u16()).await.unwrap().unwrap();
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await.unwrap();
    Message::from_vec(&buffer).unwrap()
}

async fn ask(server: &NameServer, name: &str, rtype: WireType) -> Message {
    udp(server, name, rtype, Some(4096)).await
}

/// The answers as `owner type value`, and whether the reply is authoritative.
fn answers(message: &Message) -> Vec<String> {
    let mut lines: Vec<String> = message
        .answers
        .iter()
        .map(|record| format!("{} {} {}", record.name, record.record_type(), record.data))
        .collect();
    lines.sort();
    lines
}

fn code(message: &Message) -> ResponseCode {
    message.metadata.response_code
}

fn soa_owner(message: &Message) -> Option<String> {
    message
        .authorities
        .iter()
        .find(|record| record.record_type() == WireType::SOA)
        .map(|record| record.name.to_string())
}

fn serial(message: &Message) -> u32 {
    message.answers.iter().find_map(|record| record.data.to_string().split(' ').nth(2)?.parse().ok()).unwrap()
}

#[tokio::test]
async fn every_type_arrives_as_it_was_set() {
    let values: &[(&str, &[&str], &str)] = &[
        ("A", &["192.0.2.1"], "192.0.2.1"),
        ("AAAA", &["2001:db8::1"], "2001:db8::1"),
        ("MX", &["10 mail.example.com."], "10 mail.example.com."),
        ("TXT", &["\"hello world\""], "hello world"),
        ("SRV", &["1 2 3 host.example.com."], "1 2 3 host.example.com."),
        ("NS", &["ns1.example.net."], "ns1.example.net."),
        ("PTR", &["host.example.com."], "host.example.com."),
        ("CAA", &["0 issue \"ca.example.net\""], "0 issue \"ca.example.net\""),
        (
            "SSHFP",
            &["4 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"],
            "4 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ),
        (
            "TLSA",
            &["3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"],
            "3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ),
        (
            "NAPTR",
            &["100 50 \"s\" \"z3950+I2L\" \"\" _z._tcp.example.com."],
            "100 50 \"s\" \"z3950+I2L\" \"\" _z._tcp.example.com.",
        ),
        ("HTTPS", &["1 . alpn=h2,h3 port=8443 ipv4hint=192.0.2.7"], "1 . alpn=h2,h3 port=8443 ipv4hint=192.0.2.7"),
        ("SVCB", &["2 svc.example.net. port=53"], "2 svc.example.net. port=53"),
    ];
    let sets: Vec<(&str, &str, &[&str])> =
        values.iter().map(|(rtype, values, _)| ("all.example.com", *rtype, *values)).collect();
    let mut at_apex: Vec<(&str, &str, &[&str])> =
        sets.iter().filter(|set| set.1 == "NS").map(|set| ("example.com", set.1, set.2)).collect();
    at_apex.extend(sets.iter().filter(|set| set.1 != "NS"));
    let server = server(&["example.com"], &at_apex).await;
    for (rtype, _, shown) in values {
        let name = if *rtype == "NS" { "example.com." } else { "all.example.com." };
        let reply = ask(&server, name, rtype.parse().unwrap()).await;
        assert_eq!(code(&reply), ResponseCode::NoError, "{rtype}");
        assert!(reply.metadata.authoritative);
        let texts: Vec<String> =
            reply.answers.iter().map(|record| record.data.to_string().replace(", ", ",").replace(",  ", " ")).collect();
        let same = |left: &str, right: &str| {
            let bare = |text: &str| {
                text.replace([',', '"'], " ").split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
            };
            bare(left) == bare(right)
        };
        assert!(texts.len() == 1 && same(&texts[0], shown), "{rtype}: {texts:?} is not {shown}");
    }
}

#[tokio::test]
async fn types_without_a_parser_of_their_own_arrive_octet_for_octet() {
    let sets: &[(&str, &str, &[&str])] = &[
        ("a.example.com", "TYPE65280", &["\\# 3 abcdef"]),
        ("a.example.com", "DS", &["12345 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]),
        ("a.example.com", "LOC", &["51 30 12.748 N 0 7 39.612 W 10.00m 1.00m 10000.00m 10.00m"]),
    ];
    let server = server(&["example.com"], sets).await;
    for (code, start) in
        [(65280, vec![0xab, 0xcd, 0xef]), (43, vec![0x30, 0x39, 13, 2, 1, 0x23]), (29, vec![0, 0x12, 0x16, 0x13])]
    {
        let reply = ask(&server, "a.example.com.", WireType::from(code)).await;
        let octets = match &reply.answers[0].data {
            hickory_proto::rr::RData::Unknown { rdata, .. } => rdata.anything.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(octets[..start.len()], start[..]);
    }
}

#[tokio::test]
async fn absent_names_and_absent_types_have_different_answers() {
    let server = server(&["example.com"], &[("a.b.example.com", "A", &["192.0.2.1"])]).await;
    let missing = ask(&server, "nope.example.com.", WireType::A).await;
    assert_eq!((code(&missing), soa_owner(&missing)), (ResponseCode::NXDomain, Some("example.com.".into())));
    assert!(missing.metadata.authoritative);
    for name in ["a.b.example.com.", "b.example.com.", "example.com."] {
        let empty = ask(&server, name, WireType::TXT).await;
        assert_eq!(
            (code(&empty), empty.answers.len(), soa_owner(&empty)),
            (ResponseCode::NoError, 0, Some("example.com.".into())),
            "{name}"
        );
    }
    let below = ask(&server, "x.a.b.example.com.", WireType::A).await;
    assert_eq!(code(&below), ResponseCode::NXDomain);
}

#[tokio::test]
async fn a_name_outside_the_zones_is_refused() {
    let server = server(&["example.com"], &[]).await;
    for name in ["example.net.", "com.", ".", "notexample.com."] {
        let reply = ask(&server, name, WireType::A).await;
        assert_eq!((code(&reply), reply.metadata.authoritative), (ResponseCode::Refused, false), "{name}");
    }
    assert_eq!(code(&ask(&server, "example.com.", WireType::AXFR).await), ResponseCode::Refused);
}

#[tokio::test]
async fn wildcards_cover_what_does_not_exist() {
    let sets: &[(&str, &str, &[&str])] = &[
        ("*.example.com", "A", &["192.0.2.9"]),
        ("*.example.com", "TXT", &["\"wild\""]),
        ("host.example.com", "TXT", &["\"here\""]),
        ("deep.sub.example.com", "A", &["192.0.2.2"]),
    ];
    let server = server(&["example.com"], sets).await;
    assert_eq!(answers(&ask(&server, "any.example.com.", WireType::A).await), ["any.example.com. A 192.0.2.9"]);
    assert_eq!(answers(&ask(&server, "x.y.example.com.", WireType::A).await), ["x.y.example.com. A 192.0.2.9"]);
    // The type is missing at a name that exists: the wildcard does not apply.
    let here = ask(&server, "host.example.com.", WireType::A).await;
    assert_eq!((code(&here), here.answers.len()), (ResponseCode::NoError, 0));
    // Names below an existing one, and the empty node itself, are not covered either.
    assert_eq!(code(&ask(&server, "x.host.example.com.", WireType::A).await), ResponseCode::NXDomain);
    assert_eq!(answers(&ask(&server, "sub.example.com.", WireType::A).await), Vec::<String>::new());
    assert_eq!(code(&ask(&server, "other.sub.example.com.", WireType::A).await), ResponseCode::NXDomain);
    assert_eq!(answers(&ask(&server, "any.example.com.", WireType::MX).await), Vec::<String>::new());
}

#[tokio::test]
async fn aliases_are_followed_inside_the_zones() {
    let sets: &[(&str, &str, &[&str])] = &[
        ("www.example.com", "CNAME", &["web.example.org."]),
        ("web.example.org", "CNAME", &["host.example.org."]),
        ("host.example.org", "A", &["192.0.2.5"]),
        ("out.example.com", "CNAME", &["elsewhere.example.net."]),
        ("old.example.com", "CNAME", &["missing.example.org."]),
        ("loop.example.com", "CNAME", &["pool.example.com."]),
        ("pool.example.com", "CNAME", &["loop.example.com."]),
        ("example.com", "ALIAS", &["web.example.org."]),
        ("old.example.com", "DNAME", &["example.org."]),
    ];
    let server = server(&["example.com", "example.org"], sets).await;
    assert_eq!(
        answers(&ask(&server, "www.example.com.", WireType::A).await),
        [
            "host.example.org. A 192.0.2.5",
            "web.example.org. CNAME host.example.org.",
            "www.example.com. CNAME web.example.org."
        ]
    );
    assert_eq!(
        answers(&ask(&server, "www.example.com.", WireType::CNAME).await),
        ["www.example.com. CNAME web.example.org."]
    );
    let out = ask(&server, "out.example.com.", WireType::A).await;
    assert_eq!(
        (code(&out), answers(&out)),
        (ResponseCode::NoError, vec!["out.example.com. CNAME elsewhere.example.net.".to_owned()])
    );
    let old = ask(&server, "old.example.com.", WireType::A).await;
    assert_eq!(
        (code(&old), old.answers.len(), soa_owner(&old)),
        (ResponseCode::NXDomain, 1, Some("example.org.".into()))
    );
    assert_eq!(ask(&server, "loop.example.com.", WireType::A).await.answers.len(), 2);
    assert_eq!(answers(&ask(&server, "example.com.", WireType::A).await), ["example.com. A 192.0.2.5"]);
    let renamed = answers(&ask(&server, "host.old.example.com.", WireType::A).await);
    assert!(renamed.contains(&"host.old.example.com. CNAME host.example.org.".to_owned()), "{renamed:?}");
    assert!(renamed.contains(&"host.example.org. A 192.0.2.5".to_owned()), "{renamed:?}");
}

#[tokio::test]
async fn delegations_refer_to_the_child_with_glue() {
    let sets: &[(&str, &str, &[&str])] = &[
        ("child.example.com", "NS", &["ns.child.example.com."]),
        ("ns.child.example.com", "A", &["192.0.2.53"]),
        ("child.example.com", "DS", &["1 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]),
    ];
    let server = server(&["example.com"], sets).await;
    let reply = ask(&server, "www.child.example.com.", WireType::A).await;
    assert_eq!((code(&reply), reply.metadata.authoritative, reply.answers.len()), (ResponseCode::NoError, false, 0));
    assert_eq!(reply.authorities[0].data.to_string(), "ns.child.example.com.");
    assert_eq!(reply.additionals[0].data.to_string(), "192.0.2.53");
    let signer = ask(&server, "child.example.com.", WireType::DS).await;
    assert!(signer.metadata.authoritative && signer.answers.len() == 1);
    // A zone of our own is answered, not referred to.
    server.records().add_zone(&ZoneName::parse("child.example.com").unwrap());
    let own = ask(&server, "ns.child.example.com.", WireType::A).await;
    assert!(own.metadata.authoritative && own.answers.len() == 1);
}

#[tokio::test]
async fn the_serial_rises_with_every_change_and_never_falls() {
    let server = server(&["example.com"], &[]).await;
    let records = server.records();
    let zone = ZoneName::parse("example.com").unwrap();
    let first = serial(&ask(&server, "example.com.", WireType::SOA).await);
    records.set(&set("a.example.com", "A", &["192.0.2.1"]));
    let second = serial(&ask(&server, "example.com.", WireType::SOA).await);
    records.set(&set("a.example.com", "A", &["192.0.2.1"]));
    assert_eq!(serial(&ask(&server, "example.com.", WireType::SOA).await), second, "an equal set is not a change");
    records.remove(&Fqdn::parse("a.example.com").unwrap(), &RecordType::A);
    let third = serial(&ask(&server, "example.com.", WireType::SOA).await);
    records.remove_zone(&zone);
    assert_eq!(code(&ask(&server, "example.com.", WireType::SOA).await), ResponseCode::Refused);
    records.add_zone(&zone);
    let fourth = serial(&ask(&server, "example.com.", WireType::SOA).await);
    assert!(first < second && second < third && third < fourth, "{first} {second} {third} {fourth}");
}

#[tokio::test]
async fn a_name_without_a_zone_is_served_alone() {
    let server = server(&[], &[("nas.home.arpa", "A", &["192.0.2.3"])]).await;
    assert_eq!(answers(&ask(&server, "nas.home.arpa.", WireType::A).await), ["nas.home.arpa. A 192.0.2.3"]);
    let empty = ask(&server, "nas.home.arpa.", WireType::AAAA).await;
    assert_eq!((code(&empty), soa_owner(&empty)), (ResponseCode::NoError, Some("nas.home.arpa.".into())));
    assert_eq!(code(&ask(&server, "tv.home.arpa.", WireType::A).await), ResponseCode::Refused);
    assert_eq!(code(&ask(&server, "home.arpa.", WireType::A).await), ResponseCode::Refused);
    // A zone that comes later takes the name in.
    server.records().add_zone(&ZoneName::parse("home.arpa").unwrap());
    assert_eq!(code(&ask(&server, "tv.home.arpa.", WireType::A).await), ResponseCode::NXDomain);
    assert_eq!(answers(&ask(&server, "nas.home.arpa.", WireType::A).await), ["nas.home.arpa. A 192.0.2.3"]);
    assert_eq!(server.records().names(), [Fqdn::parse("nas.home.arpa").unwrap()]);
}

#[tokio::test]
async fn long_answers_are_cut_for_udp_and_whole_over_tcp() {
    let values: Vec<String> = (0..200).map(|n| format!("192.0.2.{n}")).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let server = server(&["example.com"], &[("many.example.com", "A", &values)]).await;
    let cut = udp(&server, "many.example.com.", WireType::A, None).await;
    assert!(cut.metadata.truncation && cut.answers.len() < 200);
    let cut = udp(&server, "many.example.com.", WireType::A, Some(4096)).await;
    assert!(cut.metadata.truncation, "more than what passes everywhere is not sent in one datagram");
    let whole = tcp(&server, "many.example.com.", WireType::A).await;
    assert!(!whole.metadata.truncation);
    assert_eq!(whole.answers.len(), 200);
}

#[tokio::test]
async fn odd_labels_and_upper_case_are_answered() {
    let server = server(&["example.com"], &[("_sip._tcp.example.com", "A", &["192.0.2.1"])]).await;
    assert_eq!(ask(&server, "_SIP._tcp.EXAMPLE.com.", WireType::A).await.answers.len(), 1);
    let odd = ask(&server, "a b.example.com.", WireType::A).await;
    assert_eq!((code(&odd), soa_owner(&odd)), (ResponseCode::NXDomain, Some("example.com.".into())));
}
