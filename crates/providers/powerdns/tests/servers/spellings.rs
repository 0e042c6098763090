//! The answer of a server for a canonical text: the same value, whatever its backend stores.

use signpost_dns::Rdata;
use signpost_testkit::dig;

use super::*;

/// Values as a user may spell them, of every type whose digits, names or strings a server could print differently.
const SPELLINGS: &[(&str, &str)] = &[
    ("CDNSKEY", "257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ=="),
    ("CDS", "12345 8 2 49FD46E6C4B45C55D4AC69CBD3CD34AC1AFE51DE8B91B5C2A0B0AAF7B10A9C2E"),
    ("CERT", "1 0 0 mdss wUyr"),
    ("DHCID", "AAIBY2/AuCccgoJbsaxcQc9TUapptP69lOjxfNuVAA2kjEA="),
    ("DLV", "12345 8 2 49FD46E6C4B45C55D4AC69CBD3CD34AC1AFE51DE8B91B5C2A0B0AAF7B10A9C2E"),
    ("EUI48", "00-00-5E-00-53-2A"),
    ("EUI64", "00-00-5E-EF-10-00-00-2A"),
    ("IPSECKEY", "10 1 2 192.0.2.38 AQNRU3mG 7TVTO2Bk R47usntb 102uFJtu gbo6BSGv gt4AQA=="),
    ("L64", "10 2001:0DB8:1140:1000"),
    ("NID", "10 0014:4FFF:FF20:EE64"),
    ("NSEC3PARAM", "1 0 0 AABB"),
    ("OPENPGPKEY", "bWFp bA=="),
    ("PTR", "My\\032Printer._ipp._tcp.example.org."),
    ("PTR", "Bob's\\032\\.dot\\\\slash\\032(\\195\\188)._ipp._tcp.example.org."),
    ("CNAME", "a\\.b.example.org."),
    ("SMIMEA", "3 1 1 D2ABDE240D7CD3EE6B4B28C54DF034B97983A1D16E8A410E4561CB106618E971"),
    ("TXT", "\"txtvers=1\" \"path=/admin\" \"user=x\""),
    ("TXT", "\"\" \"x\""),
    ("HTTPS", "1 . alpn=h2 dohpath=/dns-query{?dns} ohttp tls-supported-groups=29,23"),
    ("SVCB", "1 . mandatory=dohpath dohpath=/q"),
    (
        "ZONEMD",
        "2018031500 1 1 FEBE3D4CE2EC2FFA4BA99D46CD69D6D29711E55217057BEE7EB1A7B641A47BA7FED2DD5B97AE499FAFA4F22C6BD647DE",
    ),
];

on_every_server! {
    async fn every_spelling_reads_back_as_what_was_written(server, zone) {
        server.create(&new_zone(&zone)).await.unwrap();
        let mut wrong = Vec::new();
        for (n, (rtype, spelled)) in SPELLINGS.iter().enumerate() {
            let of = |text: &str| Rdata::parse(&rtype.parse().unwrap(), text).unwrap();
            let (name, wanted) = (format!("n{n}"), of(spelled));
            match server.patch(&zone, &[replace(&zone, &name, rtype, &[&wanted.to_string()])]).await {
                Ok(_) => {
                    let stored = set(server, &zone, &name, rtype).await.unwrap();
                    if of(&stored.contents[0]) != wanted {
                        wrong.push(format!("{rtype}: wrote {wanted}, read {}", stored.contents[0]));
                    }
                }
                Err(error) => wrong.push(format!("{rtype} {wanted}: {error}")),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// The strings of a text are served as they were written: DNS-SD has one key in each.
#[tokio::test]
async fn text_is_served_with_the_boundaries_of_its_strings() {
    tls();
    for server in [PowerDns::shared_sqlite().await, PowerDns::shared_lmdb().await].into_iter().flatten() {
        let _alone = ONE_WRITER.lock().await;
        let (client, zone) = (client(&server.api_url(), &server.api_key()), ZoneName::parse("dns-sd.example").unwrap());
        client.create(&new_zone(&zone)).await.unwrap();
        for (name, spelled, served) in [
            ("two", r#""txtvers=1"  "path=/admin""#, r#""txtvers=1" "path=/admin""#),
            ("empty", r#""" "x""#, r#""" "x""#),
            ("one", r#""txtvers=1path=/admin""#, r#""txtvers=1path=/admin""#),
        ] {
            let wanted = Rdata::parse(&RecordType::Txt, spelled).unwrap().to_string();
            client.patch(&zone, &[replace(&zone, name, "TXT", &[&wanted])]).await.unwrap();
            assert_eq!(&*set(&client, &zone, name, "TXT").await.unwrap().contents[0], served);
            let answer = dig(server.dns_addr(), &zone.resolve(name).unwrap().to_string(), "TXT").await;
            assert_eq!(answer.records, [served]);
        }
    }
}

/// The changes of one HTTPS record, spelled by number as everywhere in the operator.
fn newer_keys(zone: &ZoneName) -> [Change; 1] {
    [replace(zone, "www", "HTTPS", &[r#"1 . alpn=h2 key7="/q" key8="" key9="\000\029""#])]
}

/// A stand-in that reports a version, and what is sent to it: the number of questions for it, and the records written.
async fn of_version(
    version: &'static str,
    status: u16,
) -> (PowerDnsClient, Arc<std::sync::Mutex<(usize, Vec<String>)>>) {
    use axum::{Router, body::Body, extract::Request, http::Method, response::Response};
    let seen = Arc::new(std::sync::Mutex::new((0, Vec::new())));
    let log = seen.clone();
    let app = Router::new().fallback(move |request: Request| {
        let log = log.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let (status, answer) = if head.method == Method::PATCH {
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let record = body["rrsets"][0]["records"][0]["content"].as_str().unwrap().to_owned();
                log.lock().unwrap().1.push(record);
                (status, String::new())
            } else {
                log.lock().unwrap().0 += 1;
                (200, format!(r#"{{"daemon_type":"authoritative","version":"{version}"}}"#))
            };
            Response::builder().status(status).body(Body::from(answer)).unwrap()
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (client(&url, "k"), seen)
}

#[tokio::test]
async fn newer_service_keys_are_written_as_the_servers_version_takes_them() {
    let zone = ZoneName::parse("example.com").unwrap();
    for (version, written) in [
        ("5.1.0", r#"1 . alpn=h2 dohpath="/q" ohttp tls-supported-groups=29"#),
        ("5.0.7", r#"1 . alpn=h2 key7="/q" key8="" key9="\000\029""#),
        ("4.7.3", r#"1 . alpn=h2 key7="/q" key8="" key9="\000\029""#),
    ] {
        let (client, seen) = of_version(version, 204).await;
        client.patch(&zone, &[replace(&zone, "www", "HTTPS", &["1 . alpn=h2"])]).await.unwrap();
        assert_eq!(seen.lock().unwrap().0, 0, "other changes need no version");
        for _ in 0..3 {
            client.patch(&zone, &newer_keys(&zone)).await.unwrap();
        }
        let (asked, records) = seen.lock().unwrap().clone();
        assert_eq!((asked, &records[1..]), (1, [written; 3].map(str::to_owned).as_slice()), "{version}");
    }
}

#[tokio::test]
async fn a_refused_service_key_makes_the_client_ask_for_the_version_again() {
    let zone = ZoneName::parse("example.com").unwrap();
    let (client, seen) = of_version("5.0.0", 422).await;
    for asked in 1..=2 {
        refusal(client.patch(&zone, &newer_keys(&zone)).await);
        assert_eq!(seen.lock().unwrap().0, asked);
    }
}

#[tokio::test]
async fn the_server_in_memory_spells_service_keys_by_its_version() {
    let zone = ZoneName::parse("example.com").unwrap();
    for (version, stored) in [
        ("5.1.4", r#"1 . alpn=h2 dohpath="/q" ohttp tls-supported-groups=29"#),
        ("5.0.7", r#"1 . alpn=h2 key7="/q" key8="" key9="\000\029""#),
    ] {
        let server = MemoryServer::new();
        server.set_version(version);
        assert_eq!(server.server().await.unwrap().version, version);
        server.create(&new_zone(&zone)).await.unwrap();
        server.patch(&zone, &newer_keys(&zone)).await.unwrap();
        assert_eq!(&*set(&server, &zone, "www", "HTTPS").await.unwrap().contents[0], stored, "{version}");
    }
}
