//! Every type against a real PowerDNS: what was published is what is read, in the same canonical form.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use signpost_dns::{Fqdn, Rdata, RecordType, ZoneName};
use signpost_provider_powerdns::{
    Action, Change, ClientOptions, CommentChange, NewZone, PowerDnsClient, Secret, SetContent, ZoneServer, ZoneSettings,
};
use signpost_provider_resolver::{Answer, Lookup, LookupError, Options, Rcode, Resolvers, Upstream};
use signpost_testkit::PowerDns;

const ZONE: &str = "resolver.example";

const RECORDS: &[(&str, &str, &[&str])] = &[
    ("www", "A", &["192.0.2.1", "192.0.2.2"]),
    ("www", "AAAA", &["2001:db8::1"]),
    ("one", "CNAME", &["two.resolver.example."]),
    ("two", "CNAME", &["www.resolver.example."]),
    ("text", "TXT", &["\"v=spf1 -all\"", "\"a\" \"b\""]),
    ("mail", "MX", &["10 mx1.example.net.", "20 mx2.example.net."]),
    ("_sip._tcp", "SRV", &["10 5 5060 sip.example.net."]),
    ("caa", "CAA", &["0 issue \"letsencrypt.org\""]),
    ("ptr", "PTR", &["host.example.net."]),
    ("https", "HTTPS", &["1 . alpn=h2,h3 ipv4hint=192.0.2.1"]),
    ("svcb", "SVCB", &["2 svc.example.net. port=8443"]),
    ("tlsa", "TLSA", &["3 1 1 0b9fa5a59eed715c26c1020c711b4f6ec42d58b0015e14337a39dad301c5afc3"]),
    ("sshfp", "SSHFP", &["4 2 123456789abcdef67890123456789abcdef67890123456789abcdef123456789"]),
    ("*.wild", "A", &["192.0.2.9"]),
    ("ns1", "A", &["127.0.0.1"]),
    ("sub", "NS", &["ns1.resolver.example.", "ns.sub.resolver.example."]),
    ("ns.sub", "A", &["192.0.2.53"]),
    ("sub", "DS", &["12345 13 2 0b9fa5a59eed715c26c1020c711b4f6ec42d58b0015e14337a39dad301c5afc3"]),
    ("dname", "DNAME", &["other.example.net."]),
    ("naptr", "NAPTR", &[r#"100 10 "u" "E2U+sip" "!^(.*)$!sip:\\1@example.net!" ."#]),
];

fn change(zone: &ZoneName, name: &str, rtype: &str, records: Vec<Box<str>>) -> Change {
    let content = Arc::new(SetContent { ttl: 300, records: records.into(), comment: None });
    let action = Action::Replace { content, comment: CommentChange::Keep };
    Change { name: zone.resolve(name).unwrap(), rtype: rtype.parse().unwrap(), action }
}

/// Creates a zone with these records. One at a time: SQLite refuses a write beside one that takes long.
async fn publish(server: &PowerDns, zone: &ZoneName, changes: &[Change]) {
    static WRITING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _writing = WRITING.lock().await;
    let client = PowerDnsClient::new(ClientOptions {
        url: server.api_url().parse().unwrap(),
        key: Secret::Value(server.api_key()),
        vhost: "localhost".into(),
        timeout: Duration::from_mins(1),
        insecure: false,
        ca_path: None,
        concurrency: 4,
    })
    .unwrap();
    let new = NewZone {
        name: zone.clone(),
        kind: "Native".into(),
        nameservers: vec![Fqdn::parse("ns1.resolver.example").unwrap()],
        settings: ZoneSettings::default(),
    };
    client.create(&new).await.unwrap();
    client.patch(zone, changes).await.unwrap();
}

async fn ask(resolvers: &Resolvers, name: &str, rtype: &str) -> Answer {
    let name = Fqdn::parse(&format!("{name}.{ZONE}")).unwrap();
    let mut replies = resolvers.lookup(&name, rtype.parse().unwrap()).await;
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies.remove(0).result.unwrap()
}

#[tokio::test]
async fn what_is_published_is_read_in_the_same_form() {
    let Some(server) = PowerDns::shared_sqlite().await else { return };
    let zone = ZoneName::parse(ZONE).unwrap();
    let of = |(name, rtype, records): &(&str, &str, &[&str])| {
        change(&zone, name, rtype, records.iter().map(|record| Box::from(*record)).collect())
    };
    publish(server, &zone, &RECORDS.iter().map(of).collect::<Vec<_>>()).await;
    let options = Options {
        resolvers: vec![Upstream::Server(server.dns_addr())],
        deadline: Duration::from_mins(1),
        ..Options::default()
    };
    let resolvers = Resolvers::new(&options);
    for (name, rtype, records) in RECORDS {
        let rtype: RecordType = rtype.parse().unwrap();
        let mut expected: Vec<Rdata> = records.iter().map(|text| Rdata::parse(&rtype, text).unwrap()).collect();
        expected.sort_unstable();
        let answer = ask(&resolvers, name, rtype.as_str()).await;
        assert_eq!((answer.rcode, answer.ttl), (Rcode::NoError, Some(300)), "{name} {rtype}");
        assert_eq!(answer.values, expected, "{name} {rtype}");
    }
    let two_hops = ask(&resolvers, "one", "A").await;
    let chain: Vec<&str> = two_hops.chain.iter().map(Fqdn::undotted).collect();
    assert_eq!((chain, two_hops.values.len()), (vec!["two.resolver.example", "www.resolver.example"], 2));
    assert_eq!(ask(&resolvers, "any.wild", "A").await.values.len(), 1);
    assert_eq!(ask(&resolvers, "missing", "A").await.rcode, Rcode::NxDomain);
    let no_data = ask(&resolvers, "text", "A").await;
    assert_eq!((no_data.rcode, no_data.values), (Rcode::NoError, vec![]));
    assert!(no_data.ttl.is_some(), "how long the negative answer may be kept");

    let port = server.dns_addr().port();
    let each = vec![Upstream::Server(server.dns_addr()), Upstream::Authoritative];
    let both = Resolvers::new(&Options { resolvers: each, authoritative_port: port, ..options });
    let replies = both.lookup(&Fqdn::parse("www.resolver.example").unwrap(), RecordType::A).await;
    let servers: Vec<String> = replies.iter().map(|reply| reply.result.clone().unwrap().server.to_string()).collect();
    assert_eq!(servers, [server.dns_addr().to_string(), "ns1.resolver.example (127.0.0.1)".to_owned()]);
    assert!(replies.iter().all(|reply| reply.result.as_ref().unwrap().values.len() == 2), "{replies:?}");
}

#[tokio::test]
async fn a_name_with_10_000_records_cannot_be_answered_and_others_are() {
    let Some(server) = PowerDns::shared_sqlite().await else { return };
    let zone = ZoneName::parse("many.resolver.example").unwrap();
    let addresses = (0..10_000_u32).map(|number| std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string().into());
    let one: Vec<Box<str>> = vec!["192.0.2.1".into()];
    let changes = [change(&zone, "all", "A", addresses.collect()), change(&zone, "one", "A", one)];
    publish(server, &zone, &changes).await;
    let options = Options {
        resolvers: vec![Upstream::Server(server.dns_addr())],
        deadline: Duration::from_mins(1),
        forwards: false,
        ..Options::default()
    };
    let resolvers = Resolvers::new(&options);
    let ask = async |name: &str| {
        let name = zone.resolve(name).unwrap();
        resolvers.lookup(&name, RecordType::A).await.remove(0).result
    };
    let error = ask("all").await.unwrap_err();
    assert!(matches!(error, LookupError::BadAnswer { .. }), "{error}");
    assert!(error.to_string().contains("more records than a message"), "{error}");
    assert_eq!(ask("one").await.unwrap().values.len(), 1);
}
