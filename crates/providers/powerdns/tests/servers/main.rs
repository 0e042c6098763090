//! One suite for every server behind the trait: PowerDNS on SQLite, PowerDNS on LMDB, and the one in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod transport;

use std::{sync::Arc, time::Duration};

use signpost_dns::{Fqdn, RecordType, ZoneName};
use signpost_provider_powerdns::{
    Action, Change, ClientOptions, Comment, CommentChange, MemoryServer, NewZone, PowerDnsClient, Secret, ServerError,
    ServerSet, SetContent, ZoneServer, ZoneSettings,
};
use signpost_testkit::PowerDns;

fn client(url: &str, key: &str) -> PowerDnsClient {
    PowerDnsClient::new(options(url, key)).unwrap()
}

fn options(url: &str, key: &str) -> ClientOptions {
    ClientOptions {
        url: url.parse().unwrap(),
        key: Secret::Value(key.into()),
        vhost: "localhost".into(),
        timeout: Duration::from_mins(1),
        insecure: false,
        ca_path: None,
        concurrency: 4,
    }
}

fn tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// SQLite has one writer at a time; the server answers a second one with 500 when it waits too long.
static ONE_WRITER: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Writes one test per server for each case.
macro_rules! on_every_server {
    ($($(#[$meta:meta])* async fn $name:ident($server:ident, $zone:ident) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn run($server: &dyn ZoneServer, $zone: ZoneName) $body

            fn zone() -> ZoneName {
                ZoneName::parse(&format!("{}.example", stringify!($name).replace('_', "-").chars().take(50).collect::<String>())).unwrap()
            }

            #[tokio::test]
            async fn memory() {
                run(&MemoryServer::new(), zone()).await;
            }

            #[tokio::test]
            async fn sqlite() {
                tls();
                let Some(server) = PowerDns::shared_sqlite().await else { return };
                let _alone = ONE_WRITER.lock().await;
                run(&client(&server.api_url(), &server.api_key()), zone()).await;
            }

            #[tokio::test]
            async fn lmdb() {
                tls();
                let Some(server) = PowerDns::shared_lmdb().await else { return };
                run(&client(&server.api_url(), &server.api_key()), zone()).await;
            }
        }
    )+};
}

// Behind the macro that it uses.
mod spellings;

fn new_zone(name: &ZoneName) -> NewZone {
    NewZone {
        name: name.clone(),
        kind: "Native".into(),
        nameservers: vec![Fqdn::parse("ns1.example.org").unwrap()],
        settings: ZoneSettings {
            soa_edit_api: Some("DEFAULT".into()),
            api_rectify: Some(false),
            ..ZoneSettings::default()
        },
    }
}

fn replace(zone: &ZoneName, name: &str, rtype: &str, records: &[&str]) -> Change {
    let content =
        SetContent { ttl: 300, records: records.iter().map(|record| Box::from(*record)).collect(), comment: None };
    let action = Action::Replace { content: Arc::new(content), comment: CommentChange::Keep };
    Change { name: zone.resolve(name).unwrap(), rtype: rtype.parse().unwrap(), action }
}

fn remove(zone: &ZoneName, name: &str, rtype: &str) -> Change {
    Change { name: zone.resolve(name).unwrap(), rtype: rtype.parse().unwrap(), action: Action::Delete }
}

async fn set(server: &dyn ZoneServer, zone: &ZoneName, name: &str, rtype: &str) -> Option<ServerSet> {
    let (name, rtype): (Fqdn, RecordType) = (zone.resolve(name).unwrap(), rtype.parse().unwrap());
    server.read(zone).await.unwrap()?.sets.into_iter().find(|set| set.name == name && set.rtype == rtype)
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ServerError>) -> String {
    match result {
        Err(ServerError::Refused { words }) => words,
        other => panic!("not refused: {other:?}"),
    }
}

on_every_server! {
    async fn a_zone_is_made_read_and_deleted(server, zone) {
        assert_eq!(server.zone(&zone).await.unwrap(), None);
        assert_eq!(server.read(&zone).await.unwrap(), None);
        let made = server.create(&new_zone(&zone)).await.unwrap();
        assert_eq!((made.kind.as_str(), made.soa_edit_api.as_str(), made.api_rectify), ("Native", "DEFAULT", false));
        assert_eq!(server.zone(&zone).await.unwrap().unwrap().serial, made.serial);
        assert_eq!(&*set(server, &zone, "@", "NS").await.unwrap().contents[0], "ns1.example.org.");
        assert!(set(server, &zone, "@", "SOA").await.is_some());
        assert!(server.delete(&zone).await.unwrap());
        assert!(!server.delete(&zone).await.unwrap());
        assert_eq!(server.zone(&zone).await.unwrap(), None);
    }

    async fn a_zone_that_exists_is_a_conflict(server, zone) {
        server.create(&new_zone(&zone)).await.unwrap();
        assert!(matches!(server.create(&new_zone(&zone)).await, Err(ServerError::Conflict { .. })));
    }

    async fn a_change_of_a_missing_zone_reports_the_missing_zone(server, zone) {
        let change = [replace(&zone, "www", "A", &["192.0.2.1"])];
        assert_eq!(server.patch(&zone, &change).await, Err(ServerError::NoZone));
        assert_eq!(server.configure(&zone, &ZoneSettings { kind: Some("Master".into()), ..ZoneSettings::default() }).await, Err(ServerError::NoZone));
    }

    async fn settings_change_one_by_one_and_a_catalog_is_cleared_by_nothing(server, zone) {
        server.create(&new_zone(&zone)).await.unwrap();
        let change = |settings: ZoneSettings| { let zone = zone.clone(); async move {
            server.configure(&zone, &settings).await.unwrap();
            server.zone(&zone).await.unwrap().unwrap()
        } };
        let none = ZoneSettings::default;
        assert_eq!(change(ZoneSettings { kind: Some("Master".into()), ..none() }).await.kind, "Master");
        assert_eq!(change(ZoneSettings { account: Some("team".into()), ..none() }).await.account, "team");
        assert_eq!(change(ZoneSettings { catalog: Some("c.example.".into()), ..none() }).await.catalog, "c.example.");
        assert_eq!(change(ZoneSettings { catalog: Some(String::new()), ..none() }).await.catalog, "");
        assert_eq!(change(ZoneSettings { soa_edit_api: Some("EPOCH".into()), ..none() }).await.soa_edit_api, "EPOCH");
        let last = change(ZoneSettings { kind: Some("Slave".into()), masters: Some(vec!["192.0.2.53".into()]), ..none() }).await;
        assert_eq!((last.kind.as_str(), last.masters), ("Slave", vec!["192.0.2.53".to_owned()]));
        assert_eq!(last.account, "team", "what is not sent is unchanged");
    }

    async fn a_patch_applies_everything_and_moves_the_serial_once(server, zone) {
        let before = server.create(&new_zone(&zone)).await.unwrap().serial;
        let changes: Vec<Change> = (0..50).map(|n| replace(&zone, &format!("h{n}"), "A", &["192.0.2.1", "192.0.2.2"])).collect();
        let patched = server.patch(&zone, &changes).await.unwrap();
        assert_eq!(patched.serial, Some(before + 1));
        assert_eq!(server.zone(&zone).await.unwrap().unwrap().serial, before + 1);
        assert_eq!(server.read(&zone).await.unwrap().unwrap().sets.len(), 52);
        let patched = server.patch(&zone, &[remove(&zone, "h0", "A"), remove(&zone, "never", "A")]).await.unwrap();
        assert_eq!(patched.serial, Some(before + 2));
        assert_eq!(set(server, &zone, "h0", "A").await, None);
        // Seconds since 1970: two writes in one second are one serial.
        server.configure(&zone, &ZoneSettings { soa_edit_api: Some("EPOCH".into()), ..ZoneSettings::default() }).await.unwrap();
        let patched = server.patch(&zone, &[replace(&zone, "h0", "A", &["192.0.2.1"])]).await.unwrap();
        let serial = i64::from(patched.serial.unwrap());
        let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
        assert!((now - 60..=now + 1).contains(&serial), "{serial} at {now}");
    }

    async fn a_refused_change_names_its_record_and_rolls_everything_back(server, zone) {
        server.create(&new_zone(&zone)).await.unwrap();
        let good = || replace(&zone, "good", "A", &["192.0.2.1"]);
        for (change, named) in [
            (replace(&zone, "bad", "A", &["192.0.2"]), "/A '192.0.2'"),
            (replace(&zone, "bad", "AA", &["1"]), "IN AA: unknown type given"),
            (replace(&zone, "bad", "SRV", &["1 1 80 foo"]), "/SRV '1 1 80 foo': Not in expected format"),
            (replace(&zone, "bad", "TXT", &["no quotes"]), "/TXT 'no quotes'"),
            (replace(&zone, "bad", "SOA", &["a. b. 1 2 3 4 5"]), "IN SOA is only allowed at apex"),
            (remove(&zone, "bad", "AA"), "IN AA: unknown type given"),
        ] {
            let words = refusal(server.patch(&zone, &[good(), change]).await);
            assert!(words.contains(named) && words.contains(&zone.resolve("bad").unwrap().to_string()), "{words}");
            assert_eq!(set(server, &zone, "good", "A").await, None, "nothing of it took effect");
        }
    }

    async fn an_alias_excludes_other_types_unless_they_are_deleted_first(server, zone) {
        server.create(&new_zone(&zone)).await.unwrap();
        server.patch(&zone, &[replace(&zone, "www", "A", &["192.0.2.1"])]).await.unwrap();
        let alias = || replace(&zone, "www", "CNAME", &["web.example.org."]);
        let words = refusal(server.patch(&zone, &[alias()]).await);
        assert!(words.contains("Conflicts with pre-existing RRset"), "{words}");
        server.patch(&zone, &[remove(&zone, "www", "A"), alias()]).await.unwrap();
        assert_eq!(set(server, &zone, "www", "A").await, None);
        refusal(server.patch(&zone, &[replace(&zone, "www", "TXT", &["\"x\""])]).await);
        server.patch(&zone, &[remove(&zone, "www", "CNAME"), replace(&zone, "www", "A", &["192.0.2.2"])]).await.unwrap();
        assert_eq!(&*set(server, &zone, "www", "A").await.unwrap().contents[0], "192.0.2.2");
    }

    async fn an_address_is_stored_in_its_short_form_or_as_given_but_means_the_same(server, zone) {
        server.create(&new_zone(&zone)).await.unwrap();
        server.patch(&zone, &[replace(&zone, "six", "AAAA", &["2001:db8:0:0::1"])]).await.unwrap();
        let stored = set(server, &zone, "six", "AAAA").await.unwrap().contents[0].to_string();
        let parsed = |text: &str| signpost_dns::Rdata::parse(&RecordType::Aaaa, text).unwrap();
        assert_eq!(parsed(&stored), parsed("2001:db8::1"));
    }

    async fn an_soa_continues_from_the_serial_it_is_given(server, zone) {
        let mut new = new_zone(&zone);
        new.settings.soa_edit_api = Some("INCREASE".into());
        server.create(&new).await.unwrap();
        let soa = replace(&zone, "@", "SOA", &["ns1.example.org. host.example.org. 4000000000 1 2 3 4"]);
        let patched = server.patch(&zone, &[soa]).await.unwrap();
        assert_eq!(patched.serial, None, "the server does not tell it in this case");
        assert_eq!(server.zone(&zone).await.unwrap().unwrap().serial, 4_000_000_001);
    }

    async fn names_with_underscores_and_slashes_have_their_zones(server, zone) {
        for prefix in ["_msdcs", "0/25.2.0.192.in-addr.arpa"] {
            let name = ZoneName::parse(&format!("{prefix}.{zone}")).unwrap();
            server.create(&new_zone(&name)).await.unwrap();
            server.patch(&name, &[replace(&name, "7", "PTR", &["www.example.org."])]).await.unwrap();
            assert!(set(server, &name, "7", "PTR").await.is_some());
            assert!(server.delete(&name).await.unwrap());
        }
    }

    async fn a_consumer_zone_takes_no_name_servers(server, zone) {
        let new = NewZone {
            kind: "Consumer".into(),
            nameservers: vec![],
            settings: ZoneSettings { masters: Some(vec!["192.0.2.53".into()]), ..ZoneSettings::default() },
            ..new_zone(&zone)
        };
        let made = server.create(&new).await.unwrap();
        assert_eq!((made.kind.as_str(), made.masters.len()), ("Consumer", 1));
    }
}

#[tokio::test]
async fn comments_are_kept_set_and_cleared_on_sqlite_and_in_memory() {
    tls();
    let zone = ZoneName::parse("comments.example").unwrap();
    let sqlite = PowerDns::shared_sqlite().await.map(|server| client(&server.api_url(), &server.api_key()));
    let memory = MemoryServer::new();
    let _alone = ONE_WRITER.lock().await;
    let servers = [Some(&memory as &dyn ZoneServer), sqlite.as_ref().map(|server| server as &dyn ZoneServer)];
    for server in servers.into_iter().flatten() {
        server.create(&new_zone(&zone)).await.unwrap();
        let write = |comment: CommentChange| {
            let content = SetContent { ttl: 300, records: Box::new([Box::from("192.0.2.1")]), comment: None };
            let action = Action::Replace { content: Arc::new(content), comment };
            Change { name: zone.resolve("www").unwrap(), rtype: RecordType::A, action }
        };
        let comments = || async {
            let mut comments = set(server, &zone, "www", "A").await.unwrap().comments;
            comments.sort_by(|a, b| a.account.cmp(&b.account));
            comments
        };
        let comment = |account: &str, modified_at: u64| Comment {
            content: "hello".into(),
            account: account.into(),
            modified_at: Some(modified_at),
        };
        let both = [comment("admin", 1_700_000_000), comment("signpost", 1_800_000_000)];
        server.patch(&zone, &[write(CommentChange::Are(both.clone().into()))]).await.unwrap();
        assert_eq!(comments().await, both);
        server.patch(&zone, &[write(CommentChange::Keep)]).await.unwrap();
        assert_eq!(comments().await, both);
        server.patch(&zone, &[write(CommentChange::Are(Arc::default()))]).await.unwrap();
        assert_eq!(comments().await, []);
    }
}

#[tokio::test]
async fn a_wrong_key_is_a_class_of_its_own_and_never_printed() {
    tls();
    let Some(server) = PowerDns::shared_sqlite().await else { return };
    let client = client(&server.api_url(), "wrong-key");
    let error = client.server().await.unwrap_err();
    assert_eq!(error, ServerError::Unauthorised { status: 401 });
    assert!(!error.to_string().contains("wrong-key") && !format!("{client:?}").contains("wrong-key"));
}

#[tokio::test]
async fn the_server_reports_its_version() {
    tls();
    let Some(server) = PowerDns::shared_sqlite().await else { return };
    let info = client(&server.api_url(), &server.api_key()).server().await.unwrap();
    assert_eq!(info.daemon_type, "authoritative");
}

#[tokio::test]
async fn disabled_records_are_recognised_and_enabled_by_a_change() {
    tls();
    let Some(server) = PowerDns::shared_sqlite().await else { return };
    let _alone = ONE_WRITER.lock().await;
    let (client, zone) = (client(&server.api_url(), &server.api_key()), ZoneName::parse("disabled.example").unwrap());
    client.create(&new_zone(&zone)).await.unwrap();
    let record = |content: &str, disabled: bool| serde_json::json!({ "content": content, "disabled": disabled });
    let set = |name: &str, records: [serde_json::Value; 2]| serde_json::json!({ "name": format!("{name}.disabled.example."), "type": "A", "ttl": 300, "changetype": "REPLACE", "records": records });
    let body = serde_json::json!({ "rrsets": [
        set("some", [record("192.0.2.1", false), record("192.0.2.2", true)]),
        set("all", [record("192.0.2.1", true), record("192.0.2.2", true)]),
    ] });
    let url = format!("{}/api/v1/servers/localhost/zones/{zone}", server.api_url());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http.patch(url).header("X-API-Key", server.api_key()).body(body.to_string()).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    for (name, served) in [("some", vec!["192.0.2.1"]), ("all", vec![])] {
        let there = addresses(&client, &zone, name).await;
        assert_eq!(there.contents.iter().map(|content| &**content).collect::<Vec<_>>(), served);
        assert!(there.disabled);
        client.patch(&zone, &[replace(&zone, name, "A", &["192.0.2.1"])]).await.unwrap();
        let there = addresses(&client, &zone, name).await;
        assert_eq!((there.contents.len(), there.disabled), (1, false));
    }
}

async fn addresses(client: &PowerDnsClient, zone: &ZoneName, name: &str) -> ServerSet {
    set(client, zone, name, "A").await.unwrap()
}

#[tokio::test]
async fn the_largest_request_fits_the_limit_of_the_server_and_a_larger_does_not() {
    tls();
    let Some(server) = PowerDns::shared_lmdb().await else { return };
    let (client, zone) = (client(&server.api_url(), &server.api_key()), ZoneName::parse("limit.example").unwrap());
    client.create(&new_zone(&zone)).await.unwrap();
    let text = format!("\"{}\"", "x".repeat(250));
    let of_size = |limit: usize| {
        let mut size = 0;
        let changes = (0..).map(|n| replace(&zone, &format!("h{n}"), "TXT", &[text.as_str()]));
        let fits = |change: &Change| {
            size += change.encoded_len();
            size <= limit
        };
        changes.take_while(fits).collect::<Vec<_>>()
    };
    client.patch(&zone, &of_size(signpost_provider_powerdns::MAX_PATCH_BYTES)).await.unwrap();
    let error = client.patch(&zone, &of_size(2_200_000)).await.unwrap_err();
    // It closes the connection on the rest, which may be noticed before its answer is.
    assert!(matches!(error, ServerError::Refused { .. } | ServerError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn the_server_in_memory_remembers_its_last_calls_only() {
    let server = MemoryServer::new();
    let zone = ZoneName::parse("log.example").unwrap();
    server.zone(&zone).await.unwrap();
    for _ in 0..10_000 {
        server.server().await.unwrap();
    }
    let log = server.log();
    assert_eq!((log.len(), log.contains(&signpost_provider_powerdns::Call::Zone(zone))), (10_000, false));
}
