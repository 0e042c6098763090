//! The v6 dialect against what FTL really does: names it refuses, blanks it tidies, locks, limits, and people who edit at the same time.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::time::Duration;

use common::{close_in, hosts_line, line, v6};
use signpost_provider_pihole::{
    AutoDialect, Capabilities, ChangeSet, Dialect, ErrorClass, Line, Pihole, PiholeError, V6Dialect,
};
use signpost_testkit::pihole::{PiholeV6, Upset, V6Options};

fn add(lines: &[&str]) -> ChangeSet {
    ChangeSet { add_hosts: lines.iter().map(|raw| line(raw)).collect(), ..ChangeSet::default() }
}

fn writes(server: &PiholeV6) -> Vec<String> {
    let is_write =
        |request: &String| ["PUT ", "PATCH ", "DELETE /api/config"].iter().any(|verb| request.starts_with(verb));
    server.requests().into_iter().filter(is_write).collect()
}

#[tokio::test]
async fn a_refused_name_is_not_taken_for_an_ftl_that_refuses_comments() {
    let (server, pihole) = v6(V6Options::default()).await;
    server.edit(|hosts, _| hosts.push("10.0.0.9 mine.lan".into()));
    let changes =
        add(&["10.0.0.1 a.lan- # signpost=home", "10.0.0.1 b.lan # signpost=home", "10.0.0.1 c.lan # signpost=home"]);
    let applied = pihole.apply(&changes).await;
    assert_eq!(applied.stopped, None);
    assert_eq!(
        applied.refused.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>(),
        ["10.0.0.1 a.lan- # signpost=home"]
    );
    assert_eq!(server.hosts().len(), 3);
    assert_eq!(pihole.list().await.unwrap().capabilities, Capabilities::V6);
    // One at a time as well.
    let alone = pihole.apply(&add(&["10.0.0.1 d.lan- # signpost=home"])).await;
    assert_eq!((alone.refused.len(), alone.stopped), (1, None));
}

#[tokio::test]
async fn forty_refused_names_stop_nobody() {
    let (server, pihole) = v6(V6Options::default()).await;
    let mut lines: Vec<Line> = (0..40).map(|n| line(&format!("10.0.0.1 a{n:02}.lan- # signpost=home"))).collect();
    lines.push(line("10.0.0.1 good.lan # signpost=home"));
    lines.push(line("10.0.0.2 moved.lan # signpost=home"));
    let old = line("10.0.0.1 moved.lan # signpost=home");
    server.edit(|hosts, _| hosts.extend([old.to_string(), "10.0.0.9 mine.lan # upstairs".to_owned()]));
    let changes = ChangeSet { add_hosts: lines, remove_hosts: vec![old], ..ChangeSet::default() };
    let applied = pihole.apply(&changes).await;
    assert_eq!((applied.stopped, applied.refused.len()), (None, 40));
    let wanted =
        ["10.0.0.9 mine.lan # upstairs", "10.0.0.1 good.lan # signpost=home", "10.0.0.2 moved.lan # signpost=home"];
    assert_eq!(server.hosts(), wanted);
}

#[tokio::test]
async fn an_error_of_the_alias_list_alone_stops_no_address() {
    let alias = line("c.lan,b.lan # signpost=home");
    let locked = V6Options { cnames_env_locked: true, ..V6Options::default() };
    let (server, pihole) = v6(locked).await;
    let changes = ChangeSet { add_cnames: vec![alias.clone()], ..add(&["10.0.0.1 b.lan # signpost=home"]) };
    let applied = pihole.apply(&changes).await;
    assert_eq!(
        (applied.stopped, applied.aliases),
        (None, Some(PiholeError::EnvLocked { key: "dns.cnameRecords".into() }))
    );
    assert_eq!(server.hosts(), ["10.0.0.1 b.lan # signpost=home"]);

    let (server, pihole) = v6(V6Options::default()).await;
    server.edit(|_, cnames| cnames.push("only-one-word".into()));
    let applied = pihole.apply(&changes).await;
    let bad = PiholeError::BadForeignLine { list: "dns.cnameRecords", index: 0, line: "only-one-word".into() };
    assert_eq!((applied.stopped, applied.aliases), (None, Some(bad)));
    assert_eq!(server.hosts().len(), 1);

    let (server, pihole) = v6(V6Options::default()).await;
    server.edit(|_, cnames| cnames.extend((0..2500).map(|n| format!("alias-{n:05}.lan,target.lan"))));
    let applied = pihole.apply(&changes).await;
    let large = PiholeError::TooLarge { list: "dns.cnameRecords" };
    assert_eq!((applied.stopped, applied.aliases), (None, Some(large.clone())));
    assert_eq!((server.hosts().len(), large.class()), (1, ErrorClass::Instance));
}

#[tokio::test]
async fn an_error_of_the_address_list_alone_stops_no_alias() {
    let (server, pihole) = v6(V6Options { restart: Duration::from_millis(10), ..V6Options::default() }).await;
    server.edit(|hosts, _| hosts.push("bogus x.lan".into()));
    let changes =
        ChangeSet { add_cnames: vec![line("c.lan,b.lan # signpost=home")], ..add(&["10.0.0.1 b.lan # signpost=home"]) };
    assert_eq!(pihole.apply(&changes).await.stopped.unwrap().reason(), "BadForeignLine");
    assert_eq!(server.cnames(), ["c.lan,b.lan # signpost=home"]);
}

#[tokio::test]
async fn a_proxys_404_is_worth_another_try_and_ftls_own_is_not() {
    let (server, pihole) = v6(V6Options::default()).await;
    let wanted = add(&["10.0.0.1 b.lan # signpost=home"]);
    for body in [serde_json::json!("404 page not found"), serde_json::json!({"message": "no Route matched", "took": 1})]
    {
        server.upset(Upset { body, ..Upset::status("PUT", "/api/config", 404, 1) });
        let applied = pihole.apply(&wanted).await;
        assert!(applied.refused.is_empty());
        assert_eq!(
            applied.stopped.map(|error| (error.reason(), error.class())),
            Some(("Rejected", ErrorClass::Transient))
        );
    }
    server.upset(Upset { body: serde_json::json!({"took": 0.1}), ..Upset::status("PUT", "/api/config", 404, 1) });
    let applied = pihole.apply(&wanted).await;
    assert_eq!((applied.refused.len(), applied.stopped), (1, None));
}

#[tokio::test]
async fn a_configuration_that_becomes_read_only_gets_no_line_it_would_forget() {
    let (server, pihole) = v6(V6Options::default()).await;
    server.edit(|hosts, _| hosts.push("10.0.0.1 a.lan # signpost=home".into()));
    assert_eq!(pihole.list().await.unwrap().write_error, None);
    server.set(|options| options.read_only = true);
    assert_eq!(pihole.apply(&add(&["10.0.0.1 b.lan # signpost=home"])).await.stopped, Some(PiholeError::ReadOnly));
    let removal = ChangeSet { remove_hosts: vec![line("10.0.0.1 a.lan # signpost=home")], ..ChangeSet::default() };
    assert_eq!(pihole.apply(&removal).await.stopped, Some(PiholeError::ReadOnly));
    assert_eq!(server.hosts(), ["10.0.0.1 a.lan # signpost=home"]);
    assert_eq!(pihole.list().await.unwrap().write_error, Some(PiholeError::ReadOnly), "it is known from then on");
    server.set(|options| options.read_only = false);
    assert_eq!(pihole.list().await.unwrap().write_error, None);
}

#[tokio::test]
async fn a_command_line_password_has_its_own_reason() {
    let server = PiholeV6::with(V6Options { cli_password: Some("cli".into()), ..V6Options::default() }).await;
    let pihole = V6Dialect::new(close_in(&server.url(), "cli")).unwrap();
    let stopped = pihole.apply(&add(&["10.0.0.1 a.lan"])).await.stopped.unwrap();
    assert_eq!((stopped.reason(), stopped.class()), ("CliPassword", ErrorClass::Instance));
}

#[tokio::test]
async fn messages_quote_a_line_as_it_is() {
    let (_server, pihole) = v6(V6Options::default()).await;
    let applied = pihole.apply(&add(&["10.0.0.1 *.a.lan"])).await;
    let text = applied.refused[0].1.to_string();
    assert!(text.starts_with("the Pi-hole refuses \"10.0.0.1 *.a.lan\": dns.hosts[0]"), "{text}");
    let text = PiholeError::Unsupported { dialect: "spec", line: line("a.lan,b.lan") }.to_string();
    assert_eq!(text, "the spec dialect cannot hold \"a.lan,b.lan\"");
}

#[tokio::test]
async fn a_line_whose_blanks_were_tidied_meanwhile_is_still_deleted() {
    let odd = "10.0.0.1   old.lan # signpost=home";
    for (adds, wanted) in [(1, 2), (4, 5)] {
        let (server, pihole) = v6(V6Options::default()).await;
        server.edit(|hosts, _| hosts.extend([odd.to_owned(), "10.0.0.9\tmine.lan".to_owned()]));
        let changes = ChangeSet {
            add_hosts: (0..adds).map(hosts_line).collect(),
            remove_hosts: vec![line(odd)],
            ..ChangeSet::default()
        };
        assert_eq!(pihole.apply(&changes).await.stopped, None);
        assert_eq!(server.hosts().len(), wanted, "{:?}", server.hosts());
        assert!(!server.hosts().iter().any(|line| line.contains("old.lan")));
    }
}

#[tokio::test]
async fn one_or_two_changes_send_single_lines_and_no_foreign_line() {
    let (server, pihole) = v6(V6Options::default()).await;
    server.edit(|hosts, _| hosts.push("10.0.0.1 old.lan # signpost=home".into()));
    let two = ChangeSet {
        remove_hosts: vec![line("10.0.0.1 old.lan # signpost=home")],
        ..add(&["10.0.0.1 new.lan # signpost=home"])
    };
    // A person deletes and adds lines between our list and our write.
    pihole.list().await.unwrap();
    server.edit(|hosts, _| hosts.push("10.0.0.9 mine.lan".into()));
    let applied = pihole.apply(&two).await;
    assert_eq!((applied.writes, applied.stopped, applied.sent), (2, None, None));
    assert!(writes(&server).iter().all(|request| !request.starts_with("PATCH")));
    assert_eq!(server.hosts(), ["10.0.0.9 mine.lan", "10.0.0.1 new.lan # signpost=home"]);
}

#[tokio::test]
async fn a_patch_is_sent_right_after_a_read_and_reports_what_it_sent() {
    let (server, pihole) = v6(V6Options::default()).await;
    server.edit(|hosts, _| hosts.push("10.0.0.9 mine.lan".into()));
    pihole.list().await.unwrap();
    let applied = pihole.apply(&add(&["10.0.0.1 a.lan", "10.0.0.1 b.lan", "10.0.0.1 c.lan"])).await;
    let requests = server.requests();
    let [.., read, patch] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((read.as_str(), patch.as_str()), ("GET /api/config/dns/hosts", "PATCH /api/config/dns/hosts"));
    let sent: Vec<String> = applied.sent.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(sent, server.hosts());
}

/// The Pi-hole may still carry such a request out, and then every line of it is there again.
#[tokio::test]
async fn a_patch_without_an_answer_reports_what_it_sent() {
    let changes = add(&["10.0.0.1 a.lan", "10.0.0.1 b.lan", "10.0.0.1 c.lan"]);
    for (status, reported) in [(504, true), (502, true), (403, false)] {
        let (server, pihole) = v6(V6Options::default()).await;
        server.edit(|hosts, _| hosts.push("10.0.0.1 old.lan".into()));
        server.upset(Upset::status("PATCH", "/api/config", status, 1));
        let applied = pihole.apply(&changes).await;
        assert!(applied.stopped.is_some(), "{status}");
        let sent = applied.sent.map(|lines| lines.iter().map(ToString::to_string).collect::<Vec<_>>());
        let whole = ["10.0.0.1 old.lan", "10.0.0.1 a.lan", "10.0.0.1 b.lan", "10.0.0.1 c.lan"].map(str::to_owned);
        assert_eq!(sent, reported.then(|| whole.to_vec()), "{status}");
        assert_eq!(server.hosts(), ["10.0.0.1 old.lan"]);
    }
}

#[tokio::test]
async fn above_the_limit_one_patch_fills_the_list_and_lines_follow_singly() {
    let (server, pihole) = v6(V6Options { write_time: Duration::ZERO, ..V6Options::default() }).await;
    let old: Vec<Line> = (0..20).map(|n| line(&format!("10.0.0.2 host-{n:04}.lan # signpost=home"))).collect();
    server.edit(|hosts, _| {
        hosts.extend(["10.0.0.9 mine.lan".to_owned(), "10.0.0.1 old.lan # signpost=home".to_owned()]);
        hosts.extend(old.iter().map(ToString::to_string));
    });
    let mut remove = vec![line("10.0.0.1 old.lan # signpost=home")];
    remove.extend(old);
    let changes = ChangeSet {
        add_hosts: (0..1500).rev().map(hosts_line).collect(),
        remove_hosts: remove,
        ..ChangeSet::default()
    };
    let applied = pihole.apply(&changes).await;
    assert_eq!(applied.stopped, None);
    let mut after = server.hosts();
    assert_eq!(after.remove(0), "10.0.0.9 mine.lan");
    after.sort();
    assert_eq!(after, (0..1500).map(|n| hosts_line(n).to_string()).collect::<Vec<_>>());
    assert!(applied.writes < 200, "{} writes: 1,350 lines fit into one", applied.writes);
    let sent = writes(&server);
    assert!(sent[0].starts_with("PATCH") && sent[1..].iter().all(|request| !request.starts_with("PATCH")));
    assert!(
        sent[1..].iter().all(|request| request.starts_with("PUT")),
        "what is replaced is replaced in the one request"
    );
}

#[tokio::test]
async fn a_server_that_drops_a_body_gets_smaller_ones() {
    let (server, pihole) =
        v6(V6Options { body_limit: 9_000, write_time: Duration::ZERO, ..V6Options::default() }).await;
    let changes = ChangeSet { add_hosts: (0..300).map(hosts_line).collect(), ..ChangeSet::default() };
    let applied = pihole.apply(&changes).await;
    assert_eq!((applied.stopped, server.hosts().len()), (None, 300));
    let patches = |server: &PiholeV6| writes(server).iter().filter(|request| request.starts_with("PATCH")).count();
    assert!((2..=4).contains(&patches(&server)), "{}", patches(&server));
    // The limit is kept: a list above it is not sent whole again.
    let before = patches(&server);
    let more = ChangeSet { add_hosts: (300..310).map(hosts_line).collect(), ..ChangeSet::default() };
    assert_eq!(pihole.apply(&more).await.stopped, None);
    assert_eq!((patches(&server), server.hosts().len()), (before, 310));
}

#[tokio::test]
async fn the_alias_that_the_resolver_quotes_is_found_at_once() {
    for cut in [0, 4] {
        let options = V6Options { restart: Duration::from_millis(10), cut_hints: cut, ..V6Options::default() };
        let (server, pihole) = v6(options).await;
        server.edit(|_, cnames| cnames.push("taken.lan,mine.lan".into()));
        let names = ["a", "b", "c", "taken", "d", "e"];
        let aliases = names.map(|name| line(&format!("{name}.lan,target.lan # signpost=home"))).to_vec();
        let applied = pihole.apply(&ChangeSet { add_cnames: aliases, ..ChangeSet::default() }).await;
        assert_eq!((applied.stopped, applied.aliases, applied.postponed.len()), (None, None, 0));
        assert_eq!(applied.refused[0].0.as_str(), "taken.lan,target.lan # signpost=home");
        assert_eq!((applied.writes, server.counters().restarts, server.cnames().len()), (2, 1, 6));
    }
}

#[tokio::test]
async fn many_refused_aliases_stop_nothing_and_the_rest_waits_for_its_turn() {
    let (server, pihole) = v6(V6Options { restart: Duration::from_millis(10), ..V6Options::default() }).await;
    server.edit(|_, cnames| cnames.extend((0..30).map(|n| format!("taken-{n}.lan,mine.lan"))));
    let mut left: Vec<Line> = (0..30).map(|n| line(&format!("taken-{n}.lan,target.lan # signpost=home"))).collect();
    left.push(line("good.lan,target.lan # signpost=home"));
    let mut refused = 0;
    for _ in 0..3 {
        let applied = pihole.apply(&ChangeSet { add_cnames: left, ..ChangeSet::default() }).await;
        assert_eq!((applied.stopped, applied.aliases), (None, None));
        refused += applied.refused.len();
        left = applied.postponed;
        if left.is_empty() {
            break;
        }
    }
    assert_eq!((refused, left), (30, Vec::new()));
    assert_eq!(server.cnames().last().map(String::as_str), Some("good.lan,target.lan # signpost=home"));
}

#[tokio::test]
async fn an_odd_answer_to_a_probe_does_not_change_the_dialect() {
    let server = PiholeV6::start().await;
    let pihole = AutoDialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    pihole.list().await.unwrap();
    for status in [200, 404, 403, 302] {
        server.upset(Upset::status("GET", "/api/info/login", status, 1));
        pihole.probe().await.unwrap_err();
        assert_eq!(pihole.dialect(), Some(Dialect::V6), "after {status}");
        pihole.list().await.unwrap();
    }
    // Twice in a row there is no such path: it is another server.
    server.upset(Upset::status("GET", "/api/info/login", 404, 2));
    for _ in 0..2 {
        pihole.probe().await.unwrap_err();
    }
    assert_eq!(pihole.dialect(), None);
}

/// FTL v6.4.1 answers a request on a connection that is kept 44 ms later than one on a new connection.
#[tokio::test]
async fn every_request_has_a_connection_of_its_own() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let pihole = V6Dialect::new(close_in(&format!("http://{}", listener.local_addr().unwrap()), "x")).unwrap();
    let mut kept = Vec::new();
    for _ in 0..2 {
        let (answered, stream) = tokio::join!(pihole.probe(), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 2048];
            assert!(stream.read(&mut bytes).await.unwrap() > 0);
            let body = "{\"dns\":true}";
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            stream
        });
        answered.unwrap();
        // The server would keep it.
        kept.push(stream);
    }
}
