//! The v6 dialect against a strict server: lists, writes, sessions, and every way to be refused.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::time::Duration;

use common::{close_in, hosts_line, line, v6};
use signpost_provider_pihole::{
    Capabilities, ChangeSet, Connection, ErrorClass, Line, Pihole, PiholeError, Secret, Timing, V6Dialect,
    parse_base_url,
};
use signpost_testkit::pihole::{PiholeV6, TlsFront, Upset, V6Options};
use signpost_testkit::{dig, eventually};

fn add(lines: &[&str]) -> ChangeSet {
    ChangeSet { add_hosts: lines.iter().map(|raw| line(raw)).collect(), ..ChangeSet::default() }
}

#[tokio::test]
async fn lists_come_back_verbatim_and_in_order() {
    let (server, pihole) = v6(V6Options::default()).await;
    let raw = ["10.0.0.1\tnas.lan  nas # the box", "bogus", "10.0.0.1 a.lan # signpost=home"];
    server.edit(|hosts, cnames| {
        hosts.extend(raw.map(str::to_owned));
        cnames.push("www.lan,nas.lan,300".into());
    });
    let listing = pihole.list().await.unwrap();
    assert_eq!(listing.hosts, raw.map(line));
    assert_eq!(listing.cnames, [line("www.lan,nas.lan,300")]);
    assert_eq!(listing.write_error, None);
}

#[tokio::test]
async fn one_change_is_one_put_or_delete_and_already_done_is_done() {
    let (server, pihole) = v6(V6Options::default()).await;
    let changes = add(&["10.0.0.1 app.lan # signpost=home"]);
    for _ in 0..2 {
        let applied = pihole.apply(&changes).await;
        assert_eq!((applied.writes, applied.stopped), (1, None));
    }
    assert_eq!(dig(server.dns(), "app.lan", "A").await.records, ["10.0.0.1"]);
    let removal = ChangeSet { remove_hosts: changes.add_hosts, ..ChangeSet::default() };
    for _ in 0..2 {
        assert_eq!(pihole.apply(&removal).await.stopped, None);
    }
    assert!(server.hosts().is_empty());
    let writes: Vec<String> = server.requests().into_iter().filter(|request| request.contains("/hosts/")).collect();
    assert_eq!(writes[0], "PUT /api/config/dns/hosts/10.0.0.1%20app.lan%20%23%20signpost%3Dhome");
    assert!(writes[2].starts_with("DELETE "));
}

#[tokio::test]
async fn many_changes_are_one_patch_that_keeps_other_lines_byte_for_byte() {
    // FTL 6.3 and later tidy blanks by themselves; nobody else changes a byte.
    let (server, pihole) = v6(V6Options { tidies: false, ..V6Options::default() }).await;
    let user = ["10.0.0.9  odd   spacing.lan  #x", "fd00::1 six.lan", "10.0.0.9 UPPER.lan."];
    server.edit(|hosts, _| {
        hosts.extend([user[0], "10.0.0.1 old.lan # signpost=home", user[1], user[2]].map(str::to_owned));
    });
    let changes = ChangeSet {
        add_hosts: (0..100).map(hosts_line).collect(),
        remove_hosts: vec![line("10.0.0.1 old.lan # signpost=home")],
        ..ChangeSet::default()
    };
    let applied = pihole.apply(&changes).await;
    assert_eq!((applied.writes, applied.stopped.clone()), (1, None));
    let after = server.hosts();
    assert_eq!(after[..3], user.map(str::to_owned));
    assert_eq!(after.len(), 103);
    assert_eq!(server.counters().writes, 1);
}

#[tokio::test]
async fn an_address_changes_without_a_moment_with_none_or_both() {
    let (server, pihole) = v6(V6Options::default()).await;
    server.edit(|hosts, _| hosts.push("10.0.0.1 app.lan # signpost=home".into()));
    let changes = ChangeSet {
        add_hosts: vec![line("10.0.0.2 app.lan # signpost=home")],
        remove_hosts: vec![line("10.0.0.1 app.lan # signpost=home")],
        ..ChangeSet::default()
    };
    assert_eq!(pihole.apply(&changes).await.writes, 1);
    assert_eq!(server.hosts(), ["10.0.0.2 app.lan # signpost=home"]);
}

#[tokio::test]
async fn a_list_too_large_for_one_request_is_changed_line_by_line() {
    let (server, pihole) = v6(V6Options { write_time: Duration::ZERO, ..V6Options::default() }).await;
    let old: Vec<String> = (0..2200).map(|n| format!("10.9.0.1 somebody-{n:04}.lan")).collect();
    server.edit(|hosts, _| {
        hosts.extend(old.clone());
        hosts.push("10.0.0.1 old.lan # signpost=home".into());
    });
    let changes = ChangeSet {
        add_hosts: (0..20).map(hosts_line).collect(),
        remove_hosts: vec![line("10.0.0.1 old.lan # signpost=home")],
        ..ChangeSet::default()
    };
    let applied = pihole.apply(&changes).await;
    assert_eq!((applied.writes, applied.stopped.clone()), (21, None));
    assert_eq!(server.hosts().len(), 2220);
    assert_eq!(server.hosts()[..2200], old[..]);
    let last = server.requests().pop().unwrap();
    assert!(last.starts_with("DELETE "), "{last}");
    assert_eq!(server.counters().most_writes_at_once, 1);
}

#[tokio::test]
async fn one_session_serves_everything_and_is_given_back_at_the_end() {
    let (server, pihole) = v6(V6Options::default()).await;
    let (one, two) = tokio::join!(pihole.list(), pihole.list());
    one.unwrap();
    two.unwrap();
    pihole.apply(&add(&["10.0.0.1 a.lan", "10.0.0.1 b.lan"])).await;
    pihole.probe().await.unwrap();
    assert_eq!((server.counters().logins, server.sessions()), (1, 1));
    pihole.close().await;
    pihole.close().await;
    assert_eq!((server.counters().logouts, server.sessions()), (1, 0));
}

#[tokio::test]
async fn a_session_that_is_refused_in_the_middle_is_renewed_once() {
    let (server, pihole) = v6(V6Options::default()).await;
    pihole.list().await.unwrap();
    server.forget_sessions();
    pihole.apply(&add(&["10.0.0.1 a.lan"])).await;
    assert_eq!(server.hosts(), ["10.0.0.1 a.lan"]);
    assert_eq!(server.counters().logins, 2);
}

#[tokio::test]
async fn a_seat_that_is_refused_is_given_back_and_not_left_behind() {
    let (server, pihole) = v6(V6Options::default()).await;
    for _ in 0..20 {
        // Something between us and the Pi-hole refuses the call, twice.
        server.upset(Upset::status("GET", "/api/config/dns/hosts", 401, 2));
        assert_eq!(pihole.list().await.unwrap_err(), PiholeError::Unauthorized);
        assert_eq!(server.sessions(), 0);
    }
    assert_eq!((server.counters().logins, server.counters().logouts), (40, 40));
    pihole.list().await.unwrap();
    assert_eq!(server.sessions(), 1);
}

#[tokio::test]
async fn a_refused_login_is_tried_once_more_and_then_no_more() {
    let server = PiholeV6::start().await;
    let pihole = V6Dialect::new(close_in(&server.url(), "wrong")).unwrap();
    assert_eq!(pihole.list().await.unwrap_err(), PiholeError::Unauthorized);
    assert_eq!(server.counters().login_attempts, 2);
}

#[tokio::test]
async fn a_rate_limited_app_password_succeeds_a_little_later() {
    let options = V6Options { app_password: Some("app".into()), app_sudo: true, ..V6Options::default() };
    let server = PiholeV6::with(options).await;
    // Two other tools log in within the same second.
    server.next_second();
    for _ in 0..2 {
        V6Dialect::new(close_in(&server.url(), "app")).unwrap().list().await.unwrap();
    }
    let mut connection = close_in(&server.url(), "app");
    connection.timing.login_again = Duration::from_secs(2);
    let pihole = V6Dialect::new(connection).unwrap();
    let before = server.counters().login_attempts;
    let (listed, ()) = tokio::join!(pihole.list(), async {
        eventually("the first try is refused", Duration::from_secs(20), || {
            let attempts = server.counters().login_attempts - before;
            std::future::ready(if attempts == 1 { Ok(()) } else { Err(attempts) })
        })
        .await;
        server.next_second();
    });
    listed.unwrap();
}

#[tokio::test]
async fn a_settings_error_is_seen_while_reading_and_only_while_it_lasts() {
    let options = V6Options { app_password: Some("app".into()), ..V6Options::default() };
    let server = PiholeV6::with(options).await;
    let pihole = V6Dialect::new(close_in(&server.url(), "app")).unwrap();
    assert_eq!(pihole.list().await.unwrap().write_error, Some(PiholeError::AppSudoOff));
    server.set(|options| options.app_sudo = true);
    assert_eq!(pihole.list().await.unwrap().write_error, None);
    let before = server.counters().requests;
    pihole.list().await.unwrap();
    assert_eq!(server.counters().requests - before, 2, "a list is two requests once the settings are known");
    for (change, write_error) in [
        ((|options: &mut V6Options| options.read_only = true) as fn(&mut V6Options), PiholeError::ReadOnly),
        (
            |options: &mut V6Options| {
                options.read_only = false;
                options.env_locked = true;
            },
            PiholeError::EnvLocked { key: "dns.hosts".into() },
        ),
    ] {
        server.set(change);
        let fresh = V6Dialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
        assert_eq!(fresh.list().await.unwrap().write_error, Some(write_error));
    }
}

#[tokio::test]
async fn refusals_of_a_write_have_names() {
    let server = PiholeV6::with(V6Options { app_password: Some("app".into()), ..V6Options::default() }).await;
    let app = V6Dialect::new(close_in(&server.url(), "app")).unwrap();
    assert_eq!(app.apply(&add(&["10.0.0.1 a.lan"])).await.stopped, Some(PiholeError::AppSudoOff));
    let web = V6Dialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    server.set(|options| options.env_locked = true);
    let locked = web.apply(&add(&["10.0.0.1 a.lan"])).await.stopped.unwrap();
    assert_eq!((locked.reason(), locked.class()), ("EnvLocked", ErrorClass::Instance));
    server.set(|options| {
        options.env_locked = false;
        options.read_only = true;
    });
    assert_eq!(web.apply(&add(&["10.0.0.1 a.lan", "10.0.0.1 b.lan"])).await.stopped, Some(PiholeError::ReadOnly));
    assert!(server.hosts().is_empty());
}

#[tokio::test]
async fn a_second_factor_full_seats_and_the_rate_limit_have_names_too() {
    let server = PiholeV6::with(V6Options { totp: true, ..V6Options::default() }).await;
    let pihole = V6Dialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    assert_eq!(pihole.list().await.unwrap_err(), PiholeError::TwoFactor);
    server.set(|options| {
        options.totp = false;
        options.seats = 0;
    });
    let full = pihole.list().await.unwrap_err();
    assert_eq!((full.clone(), full.class()), (PiholeError::SeatsFull, ErrorClass::Throttled(None)));
    server.upset(Upset {
        body: serde_json::json!({"error": {"key": "rate_limiting"}}),
        ..Upset::status("POST", "/api/auth", 429, 1)
    });
    assert_eq!(pihole.list().await.unwrap_err(), PiholeError::RateLimited { retry_after: None });
}

#[tokio::test]
async fn a_bad_foreign_line_is_reported_and_does_not_stop_deletions() {
    let (server, pihole) = v6(V6Options::default()).await;
    server.edit(|hosts, _| hosts.extend(["bogus x.lan".to_owned(), "10.0.0.1 old.lan # signpost=home".to_owned()]));
    let bad = PiholeError::BadForeignLine { list: "dns.hosts", index: 0, line: "bogus x.lan".into() };
    assert_eq!(pihole.apply(&add(&["10.0.0.1 a.lan"])).await.stopped, Some(bad.clone()));
    let changes = ChangeSet {
        remove_hosts: vec![line("10.0.0.1 old.lan # signpost=home")],
        ..add(&["10.0.0.1 a.lan", "10.0.0.1 b.lan"])
    };
    assert_eq!(pihole.apply(&changes).await.stopped, Some(bad));
    assert_eq!(server.hosts(), ["bogus x.lan"]);
}

#[tokio::test]
async fn a_line_of_ours_that_is_refused_does_not_stop_the_others() {
    let (server, pihole) = v6(V6Options::default()).await;
    let applied = pihole.apply(&add(&["10.0.0.1 a.lan", "10.0.0.1 *.b.lan", "10.0.0.1 c.lan"])).await;
    assert_eq!(applied.stopped, None);
    assert_eq!(applied.refused.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>(), ["10.0.0.1 *.b.lan"]);
    assert_eq!(server.hosts(), ["10.0.0.1 a.lan", "10.0.0.1 c.lan"]);
    let alone = pihole.apply(&add(&["10.0.0.1 *.d.lan"])).await;
    assert_eq!((alone.refused.len(), alone.stopped), (1, None));
}

#[tokio::test]
async fn a_line_that_is_refused_takes_nobodys_place() {
    let (server, pihole) = v6(V6Options::default()).await;
    let old = ["10.0.0.1 a.lan # signpost=home", "fd00::1 a.lan # signpost=home", "10.0.0.1 b.lan # signpost=home"];
    server.edit(|hosts, _| {
        hosts.push("10.0.0.9 mine.lan # upstairs".to_owned());
        hosts.extend(old.map(str::to_owned));
    });
    let changes = ChangeSet { remove_hosts: old.map(line).to_vec(), ..add(&["10.0.0.2 a.lan # signpost=home"]) };
    // With the three taken out, the new one comes right after the user's.
    let hint = "dns.hosts[1]: for a reason of its own";
    let body =
        serde_json::json!({"error": {"key": "bad_request", "message": "Config item validation failed", "hint": hint}});
    server.upset(Upset { body, ..Upset::status("PATCH", "/api/config", 400, 1) });
    let applied = pihole.apply(&changes).await;
    assert_eq!((applied.refused.len(), applied.stopped), (1, None));
    assert_eq!(
        server.hosts(),
        ["10.0.0.9 mine.lan # upstairs", old[0]],
        "the address of the other kind had no successor"
    );
}

#[tokio::test]
async fn an_alias_refused_without_a_message_is_found_and_the_others_written() {
    let (server, pihole) = v6(V6Options { restart: Duration::from_millis(10), ..V6Options::default() }).await;
    let alias = |name: &str| line(&format!("{name}.lan,target.lan # signpost=home"));
    server.edit(|_, cnames| cnames.push("taken.lan,mine.lan".into()));
    let names = ["a", "b", "c", "taken", "d", "e"];
    let mut left: Vec<Line> = names.map(alias).to_vec();
    let mut refused = Vec::new();
    for restarts in 1..=4 {
        let applied = pihole.apply(&ChangeSet { add_cnames: left.clone(), ..ChangeSet::default() }).await;
        assert_eq!(applied.stopped, None);
        refused.extend(applied.refused.into_iter().map(|(line, error)| (line, error.to_string())));
        assert!(server.counters().restarts <= restarts, "one write that is taken in each attempt");
        left = applied.postponed;
        if left.is_empty() {
            break;
        }
    }
    assert!(left.is_empty(), "{left:?}");
    let [(line, why)] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(*line, alias("taken"));
    assert!(why.contains("duplicate CNAME"), "{why}");
    let written: Vec<String> = server.cnames();
    assert_eq!(written[0], "taken.lan,mine.lan");
    assert_eq!(written.len(), 6, "{written:?}");
}

#[tokio::test]
async fn a_pihole_without_comments_is_recognised_by_its_first_refusal() {
    for lines in
        [&["10.0.0.1 a.lan # signpost=home"][..], &["10.0.0.1 a.lan # signpost=home", "10.0.0.1 b.lan # signpost=home"]]
    {
        let (server, pihole) = v6(V6Options { comments: false, ..V6Options::default() }).await;
        server.edit(|hosts, _| hosts.push("10.0.0.9 mine.lan".into()));
        assert_eq!(pihole.list().await.unwrap().capabilities, Capabilities::V6, "it is not asked before it matters");
        let applied = pihole.apply(&add(lines)).await;
        assert_eq!((applied.stopped, applied.writes), (Some(PiholeError::CommentsRefused), 1));
        assert_eq!(pihole.list().await.unwrap().capabilities, Capabilities::V6_WITHOUT_COMMENTS);
        assert_eq!(pihole.apply(&add(&["10.0.0.1 a.lan"])).await.stopped, None);
        assert_eq!(server.hosts(), ["10.0.0.9 mine.lan", "10.0.0.1 a.lan"]);
    }
}

#[tokio::test]
async fn a_line_refused_for_another_cause_proves_nothing_about_comments() {
    let (server, pihole) = v6(V6Options::default()).await;
    let odd = pihole.apply(&add(&["10.0.0.1 *.a.lan # signpost=home"])).await;
    assert_eq!((odd.refused.len(), odd.stopped), (1, None), "the name is odd");
    server.edit(|hosts, _| hosts.push("10.0.0.9 mine.lan # upstairs".into()));
    let hint = "dns.hosts[1]: for a reason of its own";
    let body = serde_json::json!({"error": {"key": "bad_request", "message": "Invalid value", "hint": hint}});
    server.upset(Upset { body, ..Upset::status("PUT", "/api/config", 400, 1) });
    let refused = pihole.apply(&add(&["10.0.0.1 a.lan # signpost=home"])).await;
    assert_eq!((refused.refused.len(), refused.stopped), (1, None), "another comment is there");
    assert_eq!(pihole.list().await.unwrap().capabilities, Capabilities::V6);
}

#[tokio::test]
async fn row_36_a_connection_is_given_three_seconds_and_an_answer_ten() {
    let timing = Connection::new(parse_base_url("http://127.0.0.1:9").unwrap(), Secret::Value("x".into())).timing;
    assert_eq!((timing.connect, timing.total), (Duration::from_secs(3), Duration::from_secs(10)));
    assert_eq!(
        timing.quick.map(|pause| pause.as_millis()),
        [500, 1000, 2000],
        "row 40: quick retries inside an attempt"
    );
    assert_eq!(timing.login_again, Duration::from_millis(1500));
}

#[tokio::test]
async fn an_answer_without_the_list_is_an_error_and_never_an_empty_list() {
    let (server, pihole) = v6(V6Options::default()).await;
    for body in [
        serde_json::json!({"config": {}}),
        serde_json::json!({"config": {"dns": {"hosts": [7]}}}),
        serde_json::json!(null),
    ] {
        server.upset(Upset { body, ..Upset::status("GET", "/api/config/dns/hosts", 200, 2) });
        let error = pihole.list().await.unwrap_err();
        assert_eq!(error.reason(), "Protocol", "{error}");
        // The rest of the upset is used up.
        let _ = pihole.list().await;
    }
}

#[tokio::test]
async fn a_restart_costs_a_moment_and_not_the_pass() {
    let server = PiholeV6::start().await;
    let connection = Connection { timing: Timing::default(), ..close_in(&server.url(), PiholeV6::PASSWORD) };
    let pihole = V6Dialect::new(connection).unwrap();
    pihole.list().await.unwrap();
    server.hold_restarts();
    server.restart_for(Duration::ZERO);
    eventually("the Pi-hole is away", Duration::from_mins(1), || {
        std::future::ready(if std::net::TcpStream::connect(server.addr()).is_err() { Ok(()) } else { Err("there") })
    })
    .await;
    let changes = add(&["10.0.0.1 a.lan", "10.0.0.1 b.lan"]);
    let (applied, ()) = tokio::join!(pihole.apply(&changes), async {
        tokio::task::yield_now().await;
        server.release_restarts();
    });
    assert_eq!(applied.stopped, None);
    assert_eq!(server.hosts().len(), 2);
    assert_eq!(server.counters().logins, 1, "the session survives");
}

#[tokio::test]
async fn aliases_are_written_in_one_patch_with_one_restart() {
    let (server, pihole) = v6(V6Options { restart: Duration::from_millis(40), ..V6Options::default() }).await;
    let changes = ChangeSet {
        add_cnames: ["a.lan,t.lan # signpost=home", "b.lan,t.lan # signpost=home"].map(line).to_vec(),
        ..ChangeSet::default()
    };
    assert_eq!(pihole.apply(&changes).await.writes, 1);
    pihole.list().await.unwrap();
    assert_eq!((server.cnames().len(), server.counters().restarts), (2, 1));
}

#[tokio::test]
async fn a_pihole_without_a_password_needs_no_session() {
    let server = PiholeV6::with(V6Options { password: None, ..V6Options::default() }).await;
    let pihole = V6Dialect::new(close_in(&server.url(), "whatever")).unwrap();
    pihole.list().await.unwrap();
    pihole.close().await;
    assert_eq!(server.counters().logouts, 0);
}

#[tokio::test]
async fn a_certificate_for_pi_hole_needs_its_authority_and_its_name() {
    let server = PiholeV6::start().await;
    let front = TlsFront::open(server.addr()).await;
    let plain = close_in(&front.url(), PiholeV6::PASSWORD);
    let with_ca = Connection { ca_file: Some(front.ca_file().to_owned()), ..plain.clone() };
    let with_both = Connection { server_name: Some("pi.hole".into()), ..with_ca.clone() };
    for refused in [plain, with_ca] {
        let error = V6Dialect::new(refused).unwrap().list().await.unwrap_err();
        assert_eq!(error.reason(), "Tls", "{error}");
    }
    V6Dialect::new(with_both).unwrap().list().await.unwrap();
    let missing = Connection { ca_file: Some("/nowhere/ca.crt".into()), ..close_in(&front.url(), "x") };
    assert_eq!(V6Dialect::new(missing).unwrap_err().reason(), "Setup");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_up_in_time() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut connection = close_in(&format!("http://{}", listener.local_addr().unwrap()), "x");
    connection.timing.total = Duration::from_millis(100);
    let begun = tokio::time::Instant::now();
    assert_eq!(V6Dialect::new(connection).unwrap().list().await.unwrap_err(), PiholeError::Timeout);
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_secret_file_is_read_at_each_login_and_no_error_shows_a_secret() {
    let server = PiholeV6::start().await;
    let path = std::env::temp_dir().join(format!("signpost-token-{}", std::process::id()));
    std::fs::write(&path, "not-yet-rotated\n").unwrap();
    let mut connection = close_in(&server.url(), "");
    connection.token = Secret::File(path.clone());
    let pihole = V6Dialect::new(connection).unwrap();
    let error = pihole.list().await.unwrap_err();
    assert!(!format!("{error} {error:?} {pihole:?}").contains("not-yet-rotated"));
    std::fs::write(&path, format!("{}\n", PiholeV6::PASSWORD)).unwrap();
    pihole.list().await.unwrap();
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn readiness_takes_no_seat_and_notices_a_dead_server() {
    let (server, pihole) = v6(V6Options::default()).await;
    pihole.probe().await.unwrap();
    assert_eq!(server.counters().login_attempts, 0);
    let nowhere =
        V6Dialect::new(Connection::new(parse_base_url("http://127.0.0.1:9").unwrap(), Secret::Value("x".into())))
            .unwrap();
    assert_eq!(nowhere.probe().await.unwrap_err().reason(), "Unreachable");
    let _ = Line::stored("");
}

/// From FTL 6.3 on, the authority is made again with every certificate, and its file is copied over the old one.
#[tokio::test]
async fn a_renewed_authority_is_read_from_its_file_without_a_restart() {
    let server = PiholeV6::start().await;
    let (old, new) = (TlsFront::open_by_address(server.addr()).await, TlsFront::open(server.addr()).await);
    let path = std::env::temp_dir().join(format!("signpost-ca-{}", std::process::id()));
    std::fs::copy(old.ca_file(), &path).unwrap();
    let plain = close_in(&new.url(), PiholeV6::PASSWORD);
    let connection = Connection { ca_file: Some(path.clone()), server_name: Some("pi.hole".into()), ..plain };
    let pihole = V6Dialect::new(connection).unwrap();
    let error = pihole.list().await.unwrap_err();
    assert_eq!(error.reason(), "Tls");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    std::fs::copy(new.ca_file(), &path).unwrap();
    pihole.list().await.unwrap();
    std::fs::remove_file(&path).unwrap();
}
