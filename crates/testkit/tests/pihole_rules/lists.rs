//! The lists: reading, one line, whole lists, who may write, what a write costs.

use super::*;

/// FTL v6.4.1: with `FTLCONF_dns_hosts` set, `?detailed=true` shows `flags.env_var` true, and a write answers 400
/// `{"error":{"key":"bad_request","message":"Config items set via environment variables cannot be changed via the API","hint":"dns.hosts"}}`.
#[tokio::test]
async fn a_list_set_by_the_environment_is_marked_and_cannot_be_changed() {
    let (_pihole, caller) = v6(V6Options { env_locked: true, ..V6Options::default() }).await;
    let (_, body) = caller.get("/api/config/dns/hosts?detailed=true").await;
    assert_eq!(body["config"]["dns"]["hosts"]["flags"]["env_var"], json!(true));
    let (status, body) = caller.put("10.0.0.1 a.lan").await;
    assert_eq!((status, body["error"]["hint"].as_str()), (400, Some("dns.hosts")));
    assert_eq!(body["error"]["message"], "Config items set via environment variables cannot be changed via the API");
}

/// FTL v6.4.1: with `misc.readOnly`, PATCH answers 403, while PUT and DELETE answer 201 and 204, take effect, and are forgotten at the next restart.
#[tokio::test]
async fn a_read_only_configuration_refuses_patch_and_forgets_puts_on_restart() {
    let (pihole, caller) = v6(V6Options { read_only: true, ..V6Options::default() }).await;
    assert_eq!(caller.patch(&["10.0.0.1 a.lan".into()]).await.0, 403);
    assert_eq!(caller.put("10.0.0.1 a.lan").await.0, 201);
    assert_eq!(pihole.hosts(), ["10.0.0.1 a.lan"]);
    pihole.restart_for(Duration::from_millis(20));
    eventually("the line is removed", PATIENCE, || async {
        if pihole.hosts().is_empty() { Ok(()) } else { Err(pihole.hosts()) }
    })
    .await;
}

/// FTL v6.4.1: `PUT …/hosts/192.168.1.100%20app.local` answers 201 and is served with a TTL of 0; the same again answers 400
/// `{"error":{"key":"bad_request","message":"Item already present","hint":"Uniqueness of items is enforced"}}`.
#[tokio::test]
async fn one_line_is_added_once_and_a_second_time_is_refused_as_present() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.put("192.168.1.100 app.local").await.0, 201);
    let (status, body) = caller.put("192.168.1.100 app.local").await;
    assert_eq!(status, 400);
    assert_eq!(
        without_took(body),
        json!({"error": {"key": "bad_request", "message": "Item already present", "hint": "Uniqueness of items is enforced"}})
    );
    assert_eq!(dig(pihole.dns(), "app.local", "A").await.records, ["192.168.1.100"]);
    assert_eq!(dig(pihole.dns(), "app.local", "A").await.ttl, Some(0));
}

/// FTL v6.4.1: a second address for a name answers 201, and both are served; an IPv6 address is served as AAAA.
#[tokio::test]
async fn a_second_address_for_a_name_is_another_line_and_both_are_served() {
    let (pihole, caller) = v6(V6Options::default()).await;
    caller.put("10.0.0.1 app.lan").await;
    assert_eq!(caller.put("10.0.0.2 app.lan").await.0, 201);
    assert_eq!(caller.put("fd00::2 app.lan").await.0, 201);
    assert_eq!(dig(pihole.dns(), "app.lan", "A").await.records, ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(dig(pihole.dns(), "app.lan", "AAAA").await.records, ["fd00::2"]);
}

/// FTL v6.4.1: a comment after `#` is stored, returned verbatim, and ignored by the resolver (since FTL 6.0.3).
#[tokio::test]
async fn a_comment_is_kept_verbatim_and_not_served() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.put("10.0.0.1 app.lan # signpost=home").await.0, 201);
    assert_eq!(pihole.hosts(), ["10.0.0.1 app.lan # signpost=home"]);
    assert_eq!(dig(pihole.dns(), "app.lan", "A").await.records, ["10.0.0.1"]);
    caller.put("10.0.0.1 other.lan # hidden.lan").await;
    assert_eq!(dig(pihole.dns(), "hidden.lan", "A").await.rcode, "NXDOMAIN");
}

/// FTL before 6.0.3 (known from its change, not observed): a line with a comment does not pass the validation of `dns.hosts`, which answers 400
/// "Invalid value" with the index in the hint.
#[tokio::test]
async fn an_ftl_before_6_0_3_refuses_comments() {
    let (_pihole, caller) = v6(V6Options { comments: false, ..V6Options::default() }).await;
    let (status, body) = caller.put("10.0.0.1 app.lan # signpost=home").await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Invalid value")));
    assert!(body["error"]["hint"].as_str().unwrap().starts_with("dns.hosts[0]:"));
}

/// FTL v6.4.1: DELETE of the exact line answers 204 without a body; with other spacing, without its comment, with one name of several, or with the name alone it
/// answers 404 `{}` and changes nothing.
#[tokio::test]
async fn only_the_exact_line_can_be_deleted() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.edit(|hosts, _| hosts.extend(["10.0.0.1 a.lan # note".to_owned(), "10.0.0.2 b.lan c.lan".to_owned()]));
    for other in ["10.0.0.1 a.lan", "10.0.0.1  a.lan # note", "a.lan", "10.0.0.2 b.lan", "10.0.0.9 x.lan"] {
        let (status, body) = caller.delete(other).await;
        assert_eq!((status, without_took(body)), (404, json!({})), "{other}");
    }
    assert_eq!(caller.delete("10.0.0.1 a.lan # note").await.0, 204);
    assert_eq!(dig(pihole.dns(), "a.lan", "A").await.rcode, "NXDOMAIN");
    assert_eq!(pihole.hosts(), ["10.0.0.2 b.lan c.lan"]);
}

/// FTL v6.4.1: the path is decoded before it is split, so PUT and DELETE of a value with `/` in it, even as `%2F`, answer 404.
#[tokio::test]
async fn a_line_with_a_slash_cannot_be_named_in_a_path() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.put("10.0.0.1 a.lan # x/y").await.0, 404);
    assert_eq!(pihole.take_violations().len(), 1);
}

/// FTL v6.4.1: `+` in the path is taken for a blank.
#[tokio::test]
async fn a_plus_in_a_path_is_a_blank() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.call("PUT", "/api/config/dns/hosts/10.0.0.1+a.lan", None).await.0, 201);
    assert_eq!(pihole.hosts(), ["10.0.0.1 a.lan"]);
}

/// FTL v6.4.1: PUT of a wildcard, a bad address, one with leading zeros, no name or a name that is not ASCII answers 400 "Invalid value" with the hint `dns.hosts[N]: …`;
/// upper case, a trailing dot, an underscore, a leading dash and a single label answer 201 and are stored verbatim.
#[tokio::test]
async fn invalid_lines_are_refused_by_index_and_odd_valid_lines_are_kept() {
    let (pihole, caller) = v6(V6Options::default()).await;
    for bad in ["10.0.0.1 *.lan", "300.0.0.1 a.lan", "10.0.0.01 a.lan", "10.0.0.1", "10.0.0.1 ä.lan"] {
        let (status, body) = caller.put(bad).await;
        assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Invalid value")), "{bad}");
        assert!(body["error"]["hint"].as_str().unwrap().starts_with("dns.hosts[0]: "), "{bad}");
    }
    for odd in
        ["10.0.0.1 UPPER.lan", "10.0.0.1 dotted.lan.", "10.0.0.1 _under.lan", "10.0.0.1 -dash.lan", "10.0.0.1 single"]
    {
        assert_eq!(caller.put(odd).await.0, 201, "{odd}");
        assert_eq!(pihole.hosts().last().map(String::as_str), Some(odd));
    }
    assert_eq!(dig(pihole.dns(), "upper.LAN", "A").await.records, ["10.0.0.1"]);
}

/// FTL v6.4.1: every PUT checks the whole list, and the index in the hint is that of the first bad line, whoever wrote it:
/// `dns.hosts[1]: neither a valid IPv4 nor IPv6 address ("bogus")`. DELETE checks nothing.
#[tokio::test]
async fn a_bad_foreign_line_makes_every_addition_fail_but_no_deletion() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.edit(|hosts, _| hosts.extend(["10.0.0.1 ok.lan".to_owned(), "bogus line".to_owned()]));
    let (status, body) = caller.put("10.0.0.2 new.lan").await;
    assert_eq!(status, 400);
    assert_eq!(body["error"]["hint"], "dns.hosts[1]: neither a valid IPv4 nor IPv6 address (\"bogus\")");
    assert_eq!(caller.delete("10.0.0.1 ok.lan").await.0, 204);
}

/// FTL v6.4.1: PATCH answers 200 `{"config":{"dns":{"hosts":[…]}}}` with the new list; one bad line answers 400 "Config item validation failed" with its index, and
/// nothing is changed; duplicates inside the list are accepted.
#[tokio::test]
async fn a_patch_replaces_the_whole_list_or_changes_nothing() {
    let (pihole, caller) = v6(V6Options::default()).await;
    let three: Vec<String> = (1..=3).map(|n| format!("10.0.0.{n} h{n}.lan")).collect();
    let (status, body) = caller.patch(&three).await;
    assert_eq!((status, &body["config"]["dns"]["hosts"]), (200, &json!(three)));
    let mut bad = three.clone();
    bad[1] = "bogus x.lan".into();
    let (status, body) = caller.patch(&bad).await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Config item validation failed")));
    assert_eq!(body["error"]["hint"], "dns.hosts[1]: neither a valid IPv4 nor IPv6 address (\"bogus\")");
    assert_eq!(pihole.hosts(), three);
    let twice = vec![three[0].clone(), three[0].clone()];
    assert_eq!(caller.patch(&twice).await.0, 200, "duplicates inside one PATCH are accepted");
}

/// FTL v6.4.1: PATCH without `config` answers 400 with the key `body_error`; with a value that is not a list, 400 "Config item is invalid".
#[tokio::test]
async fn a_patch_that_is_not_one_is_refused_by_shape() {
    let (_pihole, caller) = v6(V6Options::default()).await;
    let (status, body) = caller.call("PATCH", "/api/config/dns/hosts", Some(json!({}))).await;
    assert_eq!((status, body["error"]["key"].as_str()), (400, Some("body_error")));
    let (status, body) =
        caller.call("PATCH", "/api/config/dns/hosts", Some(json!({"config": {"dns": {"hosts": "x"}}}))).await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Config item is invalid")));
}

/// FTL v6.4.1: a PATCH of 2,000 short lines passes; one of 66 KB answers 400 "No request body data".
#[tokio::test]
async fn a_body_above_64_kib_is_dropped_and_answered_as_if_there_were_none() {
    let (pihole, caller) = v6(V6Options::default()).await;
    let lines = |count: u32| (0..count).map(|n| format!("10.0.0.1 host-{n:05}.lan")).collect::<Vec<_>>();
    assert_eq!(caller.patch(&lines(2000)).await.0, 200);
    let (status, body) = caller.patch(&lines(2600)).await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("No request body data")));
    assert_eq!(pihole.hosts().len(), 2000);
}

/// FTL v6.4.1: `GET /api/config/dns/<no such key>` answers 200 `{"config":{}}`.
#[tokio::test]
async fn a_mistyped_key_is_answered_with_success_and_an_empty_configuration() {
    let (pihole, caller) = v6(V6Options::default()).await;
    let (status, body) = caller.get("/api/config/dns/host").await;
    assert_eq!((status, without_took(body)), (200, json!({"config": {}})));
    assert_eq!(pihole.take_violations().len(), 1, "and no client of ours may ever ask for one");
}

/// FTL v6.4.1: 50 PUTs from 3 and from 5 clients at once were all answered 201; 49 and 45 lines were there afterwards.
#[tokio::test]
async fn two_writes_at_once_both_succeed_and_one_of_them_is_lost() {
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.hold_writes();
    let both = eventually("both are in flight", PATIENCE, || async {
        let writes = pihole.counters().writes;
        if writes == 2 { Ok(()) } else { Err(writes) }
    });
    let (one, two, ()) = tokio::join!(caller.put("10.0.0.1 one.lan"), caller.put("10.0.0.2 two.lan"), async {
        both.await;
        pihole.release_writes();
    });
    assert_eq!((one.0, two.0), (201, 201));
    assert_eq!(pihole.hosts().len(), 1);
    assert_eq!(pihole.counters().most_writes_at_once, 2);
}

/// FTL v6.4.1: a write of `dns.hosts` restarts nothing; one of `dns.cnameRecords` is answered 201, then DNS is silent for 0.66 s and the API refuses
/// connections for 0.61 s; afterwards the session is still valid and the alias served. A second target for an alias
/// answers 400, from the test that the resolver makes of its configuration.
#[tokio::test]
async fn an_alias_write_restarts_api_and_dns_and_a_host_write_does_not() {
    let (pihole, caller) = v6(V6Options { restart: Duration::ZERO, ..V6Options::default() }).await;
    caller.put("10.0.0.1 app.lan").await;
    assert_eq!(pihole.counters().restarts, 0);
    pihole.hold_restarts();
    let path = format!("/api/config/dns/cnameRecords/{}", escape("www.lan,app.lan # signpost=home"));
    assert_eq!(caller.call("PUT", &path, None).await.0, 201, "the answer comes before the restart");
    eventually("connections are refused", PATIENCE, || async {
        match tokio::net::TcpStream::connect(pihole.addr()).await {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    try_dig(pihole.dns(), "app.lan", "A").await.expect_err("DNS is silent too");
    pihole.release_restarts();
    eventually("the alias is served after the restart", PATIENCE, || async {
        match try_dig(pihole.dns(), "www.lan", "A").await {
            Ok(answer) if answer.records == ["10.0.0.1"] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(caller.get("/api/config/dns/cnameRecords").await.0, 200, "with the same session");
    let again = format!("/api/config/dns/cnameRecords/{}", escape("www.lan,other.lan"));
    let (status, body) = caller.call("PUT", &again, None).await;
    assert_eq!(status, 400, "a second target for an alias is refused");
    assert!(!body["error"]["hint"].as_str().unwrap().contains('['), "by the resolver's test, which names no element");
}

/// FTL v6.4.1: a PATCH of what is there already answers 200 and writes nothing.
#[tokio::test]
async fn a_patch_of_the_same_aliases_restarts_nothing() {
    let (pihole, caller) = v6(V6Options { restart: Duration::from_millis(10), ..V6Options::default() }).await;
    pihole.edit(|_, cnames| cnames.push("www.lan,app.lan".into()));
    let same = json!({"config": {"dns": {"cnameRecords": ["www.lan,app.lan"]}}});
    assert_eq!(caller.call("PATCH", "/api/config/dns/cnameRecords", Some(same)).await.0, 200);
    assert_eq!(pihole.counters().restarts, 0);
}

/// FTL v6.4.1: PUT and DELETE below a key that does not exist answer 404 `{}`; POST answers 404 with the key `not_found`.
#[tokio::test]
async fn below_a_key_that_does_not_exist_there_is_nothing_to_write() {
    let (pihole, caller) = v6(V6Options::default()).await;
    for method in ["PUT", "DELETE"] {
        let (status, body) = caller.call(method, "/api/config/dns/host/10.0.0.1%20a.lan", None).await;
        assert_eq!((status, without_took(body)), (404, json!({})));
    }
    let (status, body) = caller.call("POST", "/api/config/dns/hosts/10.0.0.1%20a.lan", None).await;
    assert_eq!((status, body["error"]["key"].as_str()), (404, Some("not_found")));
    assert!(!pihole.take_violations().is_empty());
}

/// FTL v6.4.1: every write stores the whole list, so it takes the longer the more is there: 100 PUTs on one connection took 48 ms each on a
/// short list and 70 ms each on top of 1,000 lines (11 ms each with a new connection for every one, on a short list).
#[tokio::test]
async fn a_write_takes_longer_the_more_lines_there_are() {
    let options =
        V6Options { line_time: Duration::from_millis(10), write_time: Duration::ZERO, ..V6Options::default() };
    let (pihole, caller) = v6(options).await;
    pihole.edit(|hosts, _| hosts.extend((0..20).map(|n| format!("10.0.0.{n} h{n}.lan"))));
    let begun = std::time::Instant::now();
    assert_eq!(caller.put("10.0.1.1 a.lan").await.0, 201);
    assert!(begun.elapsed() >= Duration::from_millis(200));
}
