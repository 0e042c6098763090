//! The rules for a line, for a configuration of the resolver, and for stored lines.

use super::*;

async fn put_alias(caller: &Caller, line: &str) -> (u16, Value) {
    caller.call("PUT", &format!("/api/config/dns/cnameRecords/{}", escape(line)), None).await
}

/// FTL v6.4.1: a name whose last label starts or ends with `-` answers 400 with the hint `dns.hosts[N]: invalid hostname ("a.lan-")`; the
/// other labels may.
#[tokio::test]
async fn a_last_label_with_an_edge_hyphen_is_refused() {
    let (pihole, caller) = v6(V6Options::default()).await;
    for bad in ["a.lan-", "a.-lan", "-", "single-"] {
        let (status, body) = caller.put(&format!("10.0.0.1 {bad}")).await;
        assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Invalid value")), "{bad}");
        assert_eq!(body["error"]["hint"], format!("dns.hosts[0]: invalid hostname (\"{bad}\")"));
    }
    assert_eq!(caller.put("10.0.0.1 -a-.lan").await.0, 201);
    assert_eq!(pihole.hosts(), ["10.0.0.1 -a-.lan"]);
}

/// FTL v6.4.1: a `#` starts a comment only at the start of a word, so `foo#bar` and `a.lan#x` answer 400; `#x` after a blank is a comment.
#[tokio::test]
async fn a_hash_inside_a_word_starts_no_comment() {
    let (pihole, caller) = v6(V6Options::default()).await;
    for bad in ["foo#bar", "a.lan#x"] {
        let (status, body) = caller.put(&format!("10.0.0.1 {bad}")).await;
        assert_eq!(status, 400, "{bad}");
        assert_eq!(body["error"]["hint"], format!("dns.hosts[0]: invalid hostname (\"{bad}\")"));
    }
    assert_eq!(caller.put("10.0.0.1 a.lan #x").await.0, 201);
    assert_eq!(dig(pihole.dns(), "a.lan", "A").await.records, ["10.0.0.1"]);
}

/// FTL v6.4.1: `x..lan`, a name with a leading dot and a label of 64 bytes that is not the last one answer 400; a last label of 64 bytes answers 201.
#[tokio::test]
async fn an_empty_label_and_a_long_one_that_is_not_the_last_are_refused() {
    let (_pihole, caller) = v6(V6Options::default()).await;
    let long = "x".repeat(64);
    for bad in ["x..lan".to_owned(), ".lan".to_owned(), format!("{long}.lan")] {
        assert_eq!(caller.put(&format!("10.0.0.1 {bad}")).await.0, 400, "{bad}");
    }
    assert_eq!(caller.put(&format!("10.0.0.1 a.{long}")).await.0, 201);
    assert_eq!(caller.put(&format!("10.0.0.1 {}.lan", "y".repeat(63))).await.0, 201);
}

/// FTL v6.3 and later: every store of the configuration, of any list, puts one blank between the words of every host line, up to the comment, which
/// is unchanged. A line is deleted by its new text. FTL before 6.3 stores what it was given.
#[tokio::test]
async fn every_store_puts_one_blank_between_the_words_of_every_host_line() {
    let odd = ["  10.0.0.1\t nas.lan   nas  #  the   box", "10.0.0.2  b.lan # signpost=home", "# a note  of mine"];
    let tidy = ["10.0.0.1 nas.lan nas #  the   box", "10.0.0.2 b.lan # signpost=home", "# a note  of mine"];
    for (tidies, stored) in [(true, tidy), (false, odd)] {
        let (pihole, caller) = v6(V6Options { tidies, restart: Duration::ZERO, ..V6Options::default() }).await;
        pihole.edit(|hosts, _| hosts.extend(odd[..2].iter().map(|line| (*line).to_owned())));
        assert_eq!(put_alias(&caller, "www.lan,b.lan").await.0, 201, "a write of the other list counts too");
        assert_eq!(pihole.hosts(), stored[..2]);
    }
    let (pihole, caller) = v6(V6Options::default()).await;
    pihole.edit(|hosts, _| hosts.extend(odd.map(str::to_owned)));
    assert_eq!(caller.delete(odd[1]).await.0, 204, "until something is stored, the old text is the line's name");
    assert_eq!(pihole.hosts(), [tidy[0], tidy[2]], "a deletion is a store as well");
    let (status, _) = caller.delete(odd[0]).await;
    assert_eq!(status, 404);
    let same = pihole.hosts();
    pihole.edit(|hosts, _| hosts[0] = odd[0].to_owned());
    let unchanged = pihole.hosts();
    assert_eq!(caller.patch(&unchanged).await.0, 200);
    assert_eq!(pihole.hosts(), unchanged, "a PATCH that changes nothing stores nothing");
    assert_ne!(unchanged, same);
}

/// FTL v6.4.1: an element of `dns.cnameRecords` is checked for empty words only (`contains an empty string at position 0`, `not a valid CNAME definition
/// (too few elements)`), and only these errors have an index. Names with blanks or umlauts answer 201.
#[tokio::test]
async fn an_alias_is_checked_for_empty_words_only() {
    let (pihole, caller) = v6(V6Options { restart: Duration::ZERO, ..V6Options::default() }).await;
    for (bad, why) in [
        (",app.lan", "contains an empty string at position 0"),
        ("a.lan,", "contains an empty string at position 1"),
        ("a.lan", "not a valid CNAME definition (too few elements)"),
    ] {
        let (status, body) = put_alias(&caller, bad).await;
        assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Invalid value")), "{bad}");
        assert_eq!(body["error"]["hint"], format!("dns.cnameRecords[0]: {why}"));
    }
    let odd = ["my printer.lan,app.lan", "bücher.lan,app.lan", "-a-.lan-,app.lan"];
    let body = json!({"config": {"dns": {"cnameRecords": odd}}});
    assert_eq!(caller.call("PATCH", "/api/config/dns/cnameRecords", Some(body)).await.0, 200);
    assert_eq!(pihole.cnames(), odd);
}

/// FTL v6.4.1: what the resolver itself refuses answers 400 "Invalid configuration" without an index; the hint quotes the line that was written for the
/// resolver (`duplicate CNAME at line 58 of /etc/pihole/dnsmasq.conf.temp: "cname=www.lan,other.lan"`), sometimes with its first characters cut. A loop
/// is refused too.
#[tokio::test]
async fn the_resolver_quotes_a_refused_line_without_an_index() {
    for cut in [0, 3] {
        let (pihole, caller) = v6(V6Options { cut_hints: cut, ..V6Options::default() }).await;
        pihole.edit(|_, cnames| cnames.push("www.lan,app.lan".into()));
        let (status, body) = put_alias(&caller, "WWW.lan,other.lan # signpost=home").await;
        assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Invalid configuration")));
        let hint = body["error"]["hint"].as_str().unwrap();
        let quoted = format!("\"{}\"", &"cname=WWW.lan,other.lan"[cut..]);
        assert!(hint.starts_with("duplicate CNAME at line ") && hint.ends_with(&quoted), "{hint}");
        assert!(!hint.contains('['), "{hint}");
        let (status, body) = put_alias(&caller, "app.lan,www.lan").await;
        assert_eq!((status, body["error"]["message"].as_str()), (400, Some("Invalid configuration")));
        assert!(body["error"]["hint"].as_str().unwrap().starts_with("CNAME loop involving "));
        assert_eq!(pihole.cnames(), ["www.lan,app.lan"]);
    }
}

/// FTL v6.4.1: `pi.hole` is accepted as a line, and the server keeps answering it with its own address.
#[tokio::test]
async fn a_line_for_the_servers_own_name_is_stored_and_not_served() {
    let (pihole, caller) = v6(V6Options::default()).await;
    assert_eq!(caller.put("10.0.0.1 pi.hole").await.0, 201);
    assert_eq!(dig(pihole.dns(), "pi.hole", "A").await.records, ["127.0.0.1"]);
}

/// FTL before 6.0.3 (known from its change, not observed): the comment is read as a name, and the hint quotes it: `invalid hostname ("#")`.
#[tokio::test]
async fn an_ftl_before_6_0_3_quotes_the_hash_it_refuses() {
    let (_pihole, caller) = v6(V6Options { comments: false, ..V6Options::default() }).await;
    let (_, body) = caller.put("10.0.0.1 app.lan # signpost=home").await;
    assert_eq!(body["error"]["hint"], "dns.hosts[0]: invalid hostname (\"#\")");
}
