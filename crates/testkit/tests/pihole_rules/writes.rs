//! Permission to write, the limit of a write, and two writers at one time.

use super::*;

async fn patch_aliases(caller: &Caller, lines: &[&str]) -> (u16, Value) {
    let body = json!({"config": {"dns": {"cnameRecords": lines}}});
    caller.call("PATCH", "/api/config/dns/cnameRecords", Some(body)).await
}

/// FTL v6.4.1: with `misc.readOnly`, PATCH answers 403 `{"error":{"key":"forbidden","message":"The config is currently in read-only mode","hint":null}}`.
#[tokio::test]
async fn a_patch_of_a_read_only_configuration_has_its_own_message() {
    let (_pihole, caller) = v6(V6Options { read_only: true, ..V6Options::default() }).await;
    let (status, body) = caller.patch(&["10.0.0.1 a.lan".into()]).await;
    assert_eq!(status, 403);
    let message = "The config is currently in read-only mode";
    assert_eq!(without_took(body), json!({"error": {"key": "forbidden", "message": message, "hint": null}}));
}

/// FTL v6.4.1: a session of the CLI password may read; every PUT, PATCH and DELETE of the configuration answers 403
/// `{"error":{"key":"forbidden","message":"Unable to change configuration (read-only)","hint":"The current CLI session is not allowed to modify Pi-hole config settings"}}`.
#[tokio::test]
async fn a_cli_password_may_read_and_never_write() {
    let options = V6Options { cli_password: Some("cli".into()), app_sudo: true, ..V6Options::default() };
    let pihole = PiholeV6::with(options).await;
    let caller = Caller::logged_in(pihole.url(), "cli").await;
    assert_eq!(caller.get("/api/config/dns/hosts").await.0, 200);
    let hint = "The current CLI session is not allowed to modify Pi-hole config settings";
    for (status, body) in
        [caller.put("10.0.0.1 a.lan").await, caller.delete("10.0.0.1 a.lan").await, caller.patch(&[]).await]
    {
        assert_eq!((status, body["error"]["hint"].as_str()), (403, Some(hint)));
        assert_eq!(body["error"]["message"], "Unable to change configuration (read-only)");
    }
}

/// FTL v6.4.1: a PATCH that changes nothing answers 200 even when the list is set by an environment variable; a PATCH that changes something answers 400.
#[tokio::test]
async fn a_patch_that_changes_nothing_passes_an_environment_lock() {
    let (pihole, caller) = v6(V6Options { env_locked: true, ..V6Options::default() }).await;
    pihole.edit(|hosts, _| hosts.push("10.0.0.1 a.lan".into()));
    assert_eq!(caller.patch(&["10.0.0.1 a.lan".into()]).await.0, 200);
    let (status, body) = caller.patch(&[]).await;
    assert_eq!((status, body["error"]["hint"].as_str()), (400, Some("dns.hosts")));
}

/// FTL v6.4.1: with `FTLCONF_dns_cnameRecords` set, `flags.env_var` of that list is true and a write of it answers 400 with the hint `dns.cnameRecords`; `dns.hosts`
/// can be written.
#[tokio::test]
async fn the_alias_list_can_be_locked_by_the_environment_alone() {
    let (_pihole, caller) = v6(V6Options { cnames_env_locked: true, ..V6Options::default() }).await;
    let (_, body) = caller.get("/api/config/dns/cnameRecords?detailed=true").await;
    assert_eq!(body["config"]["dns"]["cnameRecords"]["flags"]["env_var"], json!(true));
    let (_, body) = caller.get("/api/config/dns/hosts?detailed=true").await;
    assert_eq!(body["config"]["dns"]["hosts"]["flags"]["env_var"], json!(false));
    let (status, body) = patch_aliases(&caller, &["www.lan,app.lan"]).await;
    assert_eq!((status, body["error"]["hint"].as_str()), (400, Some("dns.cnameRecords")));
    assert_eq!(caller.put("10.0.0.1 a.lan").await.0, 201);
}

/// FTL v6.4.1: a PATCH with a body of 65,524 bytes was accepted; one of 65,534 bytes answered 400 "No request body data".
#[tokio::test]
async fn the_largest_body_is_between_65_524_and_65_534_bytes() {
    let (_pihole, caller) = v6(V6Options::default()).await;
    let size = |lines: &[String]| json!({"config": {"dns": {"hosts": lines}}}).to_string().len();
    let of_size = |bytes: usize| {
        let mut lines: Vec<String> = (0..1900).map(|n| format!("10.0.0.1 host-{n:05}.lan")).collect();
        let missing = bytes - size(&lines);
        lines[0] = format!("10.0.0.1 host-00000.lan #{}", "x".repeat(missing - 2));
        assert_eq!(size(&lines), bytes);
        lines
    };
    assert_eq!(caller.patch(&of_size(65_524)).await.0, 200);
    let (status, body) = caller.patch(&of_size(65_534)).await;
    assert_eq!((status, body["error"]["message"].as_str()), (400, Some("No request body data")));
}

/// FTL v6.4.1: about 750 colliding writes ended the process 0, 1 and 2 times: connections were closed without an answer, and what had been written was not saved.
#[tokio::test]
async fn two_writes_at_once_may_end_the_process_without_an_answer() {
    let options = V6Options { crashes: true, restart: Duration::ZERO, ..V6Options::default() };
    let (pihole, caller) = v6(options).await;
    assert_eq!(caller.put("10.0.0.9 saved.lan").await.0, 201);
    pihole.hold_writes();
    let url = |line: &str| format!("{}/api/config/dns/hosts/{}", caller.base, escape(line));
    let write = |line: &str| {
        let sid = caller.sid.clone().unwrap();
        caller.http.put(url(line)).header("X-FTL-SID", sid).send()
    };
    let both = eventually("both were sent", PATIENCE, || async {
        if pihole.counters().crashes == 1 { Ok(()) } else { Err(pihole.counters()) }
    });
    let (one, two, ()) = tokio::join!(write("10.0.0.1 one.lan"), write("10.0.0.2 two.lan"), async {
        both.await;
        pihole.release_writes();
    });
    assert!(one.is_err() && two.is_err(), "{one:?} {two:?}");
    eventually("it is back", PATIENCE, || async {
        let answer = caller.http.get(format!("{}/api/info/login", caller.base)).send().await;
        answer.map(|_| ()).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(pihole.hosts(), ["10.0.0.9 saved.lan"]);
}
